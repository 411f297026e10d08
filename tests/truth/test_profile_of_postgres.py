"""Tests of PostgreSQL's profile under a load of inserts.

The profile must agree with PostgreSQL's measured CPU time, and most of this time must be assigned
to known functions.
"""

import pandas as pd
import pytest
import real_lab
from real_lab import campaign, load

from runner.measure.perf import refusal
from runner.present.why.profiles import UNKNOWN, read_profiles
from runner.store import RunFolder

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("wrk", "postgres"),
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
]
CAMPAIGN = campaign(
    ["axum"],
    load(
        "devices-insert",
        connections=8,
        pool_sizes=[4],
        server_share=0.3,
        slices=2,
        slice_s=0.5,
        sessions=True,
        profile=True,
    ),
    database_cpus=1,
    attempts=1,
)


@pytest.fixture(
    scope="module",
    params=[
        "process",
        pytest.param("docker", marks=[pytest.mark.docker, real_lab.needs_docker()]),
    ],
)
def run(request, tmp_path_factory):
    root = real_lab.make(tmp_path_factory.mktemp("inserts"))
    return RunFolder(real_lab.run(root, CAMPAIGN, "--engine", request.param).folder)


def test_the_samples_are_the_cpu_time_of_the_database(run):
    slices = pd.read_parquet(run.table("profile_slices"))
    theirs = slices[slices["subject"].eq("database")]["sampled_us_per_request"]
    assert len(theirs) >= 4
    trials = pd.read_parquet(run.profiles.table("trials"))
    used_us = 1000 * float(trials["database_cpu_ms_per_request"].iloc[0])
    assert theirs.mean() == pytest.approx(used_us, rel=0.3)


def test_an_insert_is_executed_stored_and_logged(run):
    databases = read_profiles(run, "database")
    (load_id,) = databases.loads
    (found,) = databases.of(load_id)
    us = {name: value.mean for name, value in found.categories.items()}
    for kind in ("executor", "storage and locks", "WAL", "client protocol", "kernel network"):
        assert us[kind] > 0, us
    assert us[UNKNOWN] < 0.15 * found.total.mean
    assert us["HTTP"] == us["routing and framework"] == 0


def test_the_server_s_own_profile_has_none_of_it(run):
    servers = read_profiles(run)
    assert not servers.stacks["stack"].str.contains("PostgresMain").any()
    assert read_profiles(run, "database").stacks["stack"].str.contains("PostgresMain").any()
