"""Tests of profiles of the reference server, which burns a known CPU time in a known function."""

import math
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import real_lab
from real_lab import campaign, load
from scipy import stats

from runner.measure.perf import refusal

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("wrk"),
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
]
BURNS_US = {"burns-5": 5.0, "burns-20": 20.0, "burns-80": 80.0}
CAMPAIGN = campaign(
    list(BURNS_US),
    load("wrk-matrix", connections=20, duration_s=0.6, profile=True),
    copies=dict.fromkeys(BURNS_US, "reference"),
    environment={
        name: {"REFERENCE_BURN_US_PER_REQUEST": f"{us:g}"} for name, us in BURNS_US.items()
    },
)
SYSTEMATIC = 0.03
"""Largest systematic error of a burn's CPU time in a profile, as a share of the burn's CPU time.

The error arises because perf samples by a timer, and the timer fires too late while code has
interrupts disabled. More samples do not reduce this error.
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("burns")), CAMPAIGN, "--engine", "process"
    )
    tables = made.folder / "tables"
    profiled = made.folder / "profiles" / "tables" / "slices.parquet"
    return SimpleNamespace(
        made=made,
        every_slice=pd.read_parquet(profiled),
        stacks=pd.read_parquet(tables / "profiles.parquet"),
        slices=pd.read_parquet(tables / "profile_slices.parquet").query("kind == 'recorded'"),
        counters=pd.read_parquet(tables / "counters.parquet"),
    )


@pytest.mark.fault(
    "all tables of a run with profiles are removed", "they are made anew from the raw files"
)
def test_tables_of_profiles_are_made_anew(run):
    folder = run.made.folder
    names = ("profiles", "profile_slices", "counters")
    before = {name: pd.read_parquet(folder / "tables" / f"{name}.parquet") for name in names}
    shutil.rmtree(folder / "tables")
    shutil.rmtree(folder / "profiles" / "tables")
    real_lab.bench(run.made.root, "profile", run.made.result["run_id"], code=0)
    for name, table in before.items():
        made_anew = pd.read_parquet(folder / "tables" / f"{name}.parquet")
        pd.testing.assert_frame_equal(table, made_anew)


def test_a_slice_counts_the_probe_s_requests_within_the_load_only(run):
    """Of the probe's requests, a slice counts only those during the load: at most 40 per second.

    The probe also sends requests before and after the load, while perf starts and ends.
    """
    slices = run.every_slice
    of_probe = slices["answered"] - slices["requests"]
    assert (of_probe <= 40 * slices["duration_s"] + 2).all()


@pytest.mark.parametrize("name", BURNS_US)
def test_a_known_burn_comes_back_within_its_interval(run, name):
    mine = run.stacks.query("server == @name")
    burnt = mine[mine["stack"].str.contains("known_burn")].groupby("place")["us_per_request"].sum()
    places = run.slices.query("server == @name")["place"]
    values = burnt.reindex(places).fillna(0.0).to_numpy()
    half = stats.t.ppf(0.995, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    known_us = BURNS_US[name]
    assert values.mean() == pytest.approx(known_us, abs=half + SYSTEMATIC * known_us)
    assert half < values.mean(), "a burn of any size is told from none"


def test_all_kinds_of_work_together_are_the_cpu_time(run):
    ratios = run.slices["sampled_us_per_request"] / run.slices["cpu_us_per_request"]
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)


def test_few_functions_have_no_known_name(run):
    by_category = run.stacks.groupby("category")["us_per_request"].sum()
    assert by_category.get("unknown", 0.0) < 0.15 * by_category.sum()


@pytest.mark.parametrize("name", BURNS_US)
def test_each_request_is_received_and_sent_once(run, name):
    """For each request, the server makes one system call to receive it, and one to answer it.

    The burn makes further system calls, which read the thread's clock. perf also counts them by
    name.
    """
    events = run.counters.query("server == @name").set_index("event")["per_request"]
    assert events["syscalls:sys_enter_recvfrom"] == pytest.approx(1, abs=0.2)
    sent = events["syscalls:sys_enter_writev"] + events["syscalls:sys_enter_write"]
    assert sent + events["syscalls:sys_enter_sendto"] == pytest.approx(1, abs=0.2)
    by_name = events.filter(like="syscalls:sys_enter_").sum()
    # perf starts the counters one after the other. So the counters by name may count a few calls
    # more than the counter of all calls.
    assert by_name <= 1.001 * events["raw_syscalls:sys_enter"]
