"""Tests with the reference server, whose behaviour is set to known values.

The generators and the probe must measure these values, and the tables must contain them.
"""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import real_lab
from real_lab import campaign, load
from scipy.special import stdtrit

from runner.measure.idle import DEVICE, idle_states
from runner.planning.search import bracket
from runner.present.statistics.inference import ratio, sample_of
from runner.present.statistics.stats import histogram_quantile, window_means

pytestmark = [pytest.mark.load, pytest.mark.long, real_lab.needs("k6", "wrk")]

# The known percentiles of the response times. The distribution consists of four steps (see "mixed"
# below), and each percentile lies in the middle third of a step. So the exact rank of a percentile
# does not matter, and neither do a few answers that a timer delays.
STEPS_MS = {"p50": 100.0, "p90": 200.0, "p95": 400.0, "p99": 800.0}
MEAN_MS = 141.0
BEHAVIOUR = {
    "mixed": {"REFERENCE_SERVICE_MS": "85:100,8:200,4:400,3:800"},
    "duty": {"REFERENCE_CPU_PCT": "30"},
    "limited": {"REFERENCE_MAX_RPS": "600"},
    "burning": {"REFERENCE_CPU_MS_PER_REQUEST": "1"},
    "plain": {},
}
SEARCH = {"objective": "p99 <= 50 ms", "from_rps": 500, "to_rps": 3200, "bisections": 5}
CAMPAIGN = campaign(
    list(BEHAVIOUR),
    load("rates", servers=["mixed"], rates_rps=[100], duration_s=16, vus=100),
    load("wrk-matrix", servers=["mixed"], connections=50, duration_s=8),
    load("rates", servers=["duty"], rates_rps=[20], duration_s=6, vus=10),
    load("wrk-matrix", servers=["limited", "burning"], connections=20, duration_s=3),
    load("rates", servers=["limited"], duration_s=2, vus=400, **SEARCH),
    load("experiments", servers=["plain"], vus=1000, iterations=20_000),
    copies=dict.fromkeys(BEHAVIOUR, "reference"),
    environment={name: known for name, known in BEHAVIOUR.items() if known},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("reference")), CAMPAIGN, "--engine", "process"
    )
    return SimpleNamespace(
        trials=made.trials.set_index("name", drop=False), tables=made.folder / "tables"
    )


@pytest.mark.parametrize("name", STEPS_MS)
def test_known_service_times_come_back_from_all_observers(run, name):
    """k6 and wrk measure the known percentiles, and all tables of response times contain them."""
    known_ms = STEPS_MS[name]
    q = float(name[1:]) / 100
    known = pytest.approx(known_ms, rel=0.01, abs=0.2)
    open_loop = run.trials.loc["b01-mixed-rates-r100"]
    closed = run.trials.loc["b01-mixed-wrk-matrix-c50-keepalive"]
    assert (open_loop[f"latency_{name}_ms"], closed[f"latency_{name}_ms"]) == (known, known)
    trial = open_loop["trial_id"]
    requests = pd.read_parquet(run.tables / "requests" / f"{trial}.parquet")
    assert requests["latency_ms"].quantile(q) == known
    latency = pd.read_parquet(run.tables / "latency.parquet").query("trial_id == @trial")
    drawn = histogram_quantile(latency["lower_ms"], latency["upper_ms"], latency["count"], q)[0]
    assert drawn == pytest.approx(
        known_ms, rel=0.01 + max(0.01, 0.2 / known_ms)
    )  # a bucket is 1 % wide


def test_the_median_comes_back_from_a_probe_of_one_percent(run):
    row = run.trials.loc["b01-mixed-rates-r100"]
    probe = pd.read_parquet(run.tables / "probe" / f"{row['trial_id']}.parquet")
    assert (row["probe_hz"], row["probe_requests"]) == (1, pytest.approx(16, abs=1))
    # The tolerance is 1 % and 0.3 ms, because an idle CPU takes time to wake, which shifts the
    # median of so few requests.
    known = pytest.approx(STEPS_MS["p50"], abs=0.01 * STEPS_MS["p50"] + 0.3)
    assert (row["probe_p50_ms"], probe["service_ms"].quantile(0.5)) == (known, known)


def test_an_open_load_that_nobody_limits_is_offered(run):
    row = run.trials.loc["b01-mixed-rates-r100"]
    assert (row["verdict"], row["requests"]) == ("offered", pytest.approx(1600, abs=4))
    assert row["in_flight_mean"] == pytest.approx(
        100 * MEAN_MS / 1000, rel=0.03
    )  # Little's law: rate x mean response time


def test_a_known_duty_cycle_comes_back_within_a_point(run):
    """The server uses 30 % of a core, and the measured CPU use agrees within a percentage point.

    The 30 % include the CPU time of the 20 requests/s.
    """
    row = run.trials.loc["b01-duty-rates-r20"]
    resources = pd.read_parquet(run.tables / "resources.parquet")
    server = resources[
        (resources["trial_id"] == row["trial_id"]) & (resources["subject"] == "server")
    ]
    inside = server[(server["t_s"] > 0) & (server["t_s"] < row["duration_s"])]
    seconds = window_means(
        inside["t_s"], inside["dt_s"], inside["cpu_pct"], np.arange(0.2, 5.3, 1.0)
    )
    assert seconds == pytest.approx([30] * 5, abs=1.0)
    assert row["server_cpu_mean_pct"] == pytest.approx(30, abs=1.0)


LIMIT_RPS = 600


def test_a_known_maximum_rate_comes_back(run):
    """The requests of the generator and of the probe together reach the server's highest rate.

    About one request in a hundred comes from the probe.
    """
    row = run.trials.loc["b01-limited-wrk-matrix-c20-keepalive"]
    assert row["served_rps"] == pytest.approx(LIMIT_RPS, rel=0.01)
    assert 4 <= row["probe_hz"] <= 0.0105 * row["served_rps"]


def test_a_server_that_makes_all_wait_while_idle_is_said_to(run):
    name = "b01-limited-wrk-matrix-c20-keepalive"
    row = run.trials[real_lab.undisturbed(run.trials)].loc[name]
    assert (
        row["verdict"] == "inconclusive"
        and "generator and probe wait alike" in row["verdict_reason"]
    )


def test_the_search_brackets_a_known_maximum_rate(run):
    """Five bisections from 500 to 3200 requests/s end in a range of 6 % around the known limit."""
    steps = run.trials[run.trials["objective"] == "p99 <= 50 ms"]
    assert len(steps) == 5
    known = bracket(zip(steps["rate_rps"], steps["objective_kept"], strict=True))
    # At a rate slightly above the limit, requests wait less than 50 ms during the 2 s of a step. So
    # the highest rate that kept the objective may be slightly above the limit.
    assert known.kept_rps < LIMIT_RPS * 1.02
    assert known.broken_rps > LIMIT_RPS * 0.98  # the probe takes a hundredth of the limit
    assert known.broken_rps / known.kept_rps < 1.07


def test_a_server_that_uses_its_cpu_up_is_server_bound(run):
    row = run.trials.loc["b01-burning-wrk-matrix-c20-keepalive"]
    assert (row["verdict"], row["served_rps"]) == ("server-bound", pytest.approx(1000, rel=0.1))
    assert row["server_cpu_ms_per_request"] == pytest.approx(1.0, rel=0.05)


def test_a_generator_that_measures_itself_is_called_so(run):
    """If k6 is the limit in a closed load without think time, the verdict says so.

    In such a load, k6's median is mostly the wait in k6's own queue, but the probe's median is the
    response time of the server.
    """
    row = run.trials.loc["b01-plain-experiments-vus1000"]
    assert row["verdict"] == "generator-bound"
    assert row["latency_p50_ms"] > 20 * row["probe_p50_ms"]
    assert row["in_flight_mean"] == pytest.approx(1000, rel=0.05)


def test_the_probe_is_counted_out_and_costs_little(run):
    probed = run.trials[run.trials["probe_hz"] > 0]
    unprobed = run.trials[run.trials["probe_hz"] == 0]
    at_most = unprobed["duration_s"] * unprobed["rps"].clip(upper=LIMIT_RPS)
    assert (at_most < 1300).all(), "1 % of them has no median"
    assert (probed["probe_failed"] == 0).all()
    assert (probed["probe_requests"] - probed["duration_s"] * probed["probe_hz"]).abs().max() <= 2
    assert probed["probe_cpu_mean_pct"].median() < 2


# --- known ratios, through sessions on shares of a core, in both engines --------------------------

COST_MS = {"base": 0.2, "same": 0.2, "dearer": 0.21, "dearest": 0.3}
RATIOS = campaign(
    list(COST_MS),
    load("wrk-matrix", connections=50, warmup_s=0.3),
    repeats=6,
    server_share=0.5,
    sessions={"slices": 4, "slice_s": 0.5},
    copies=dict.fromkeys(COST_MS, "reference"),
    environment={
        name: {"REFERENCE_CPU_MS_PER_REQUEST": f"{cost:g}"} for name, cost in COST_MS.items()
    },
)
SURE = 0.9995
"""Confidence level of an interval.

A run of these tests computes twelve intervals. At this level, one of them misses the truth by
chance in less than 1 of 100 runs.
"""


@pytest.fixture(
    scope="module", params=["process", pytest.param("docker", marks=real_lab.needs_docker())]
)
def trials(request, tmp_path_factory):
    return real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("lab")), RATIOS, "--engine", request.param
    ).trials


@pytest.mark.parametrize("name", ["same", "dearer", "dearest"])
@pytest.mark.parametrize("column", ["server_cpu_ms_per_request", "served_rps"])
def test_a_known_ratio_comes_back_within_its_interval(trials, name, column):
    by_server = {
        server: sample_of(rows[column], rows["block"]) for server, rows in trials.groupby("server")
    }
    found = ratio(by_server[name], by_server["base"])
    truth = COST_MS[name] / COST_MS["base"]
    truth = 1 / truth if column == "served_rps" else truth
    wide = stdtrit(found.degrees, (1 + SURE) / 2) * found.standard_error
    assert abs(math.log(found.ratio / truth)) <= max(wide, 0.005), found
    assert found.high / found.low < 1.3


def test_the_server_is_the_limit_on_its_quota(trials):
    quiet = real_lab.is_quiet(trials)
    assert (trials.loc[quiet, "verdict"] == "server-bound").all(), trials["verdict_reason"].tolist()
    # Every 100 ms, the kernel allows a server with half a core to use 50 ms of CPU time. A server
    # that was idle before a slice has not yet used its 50 ms when the slice begins. So in a slice
    # it may use up to 50 ms more than half of the slice's duration.
    slices = trials["duration_s"] / trials["slices_kept"]
    assert (trials["server_cpu_mean_pct"] < 50 * (1 + 0.1 / slices)).all()
    assert (trials.loc[quiet, "server_cpu_mean_pct"] > 49.5).all()
    assert (trials.loc[quiet, "server_throttled_pct"] > 5).all()
    assert trials.loc[quiet, "verdict_reason"].str.contains("of its 0.5 of a core").all()
    assert trials[["latency_p50_ms", "latency_p99_ms", "probe_p50_ms"]].isna().all(axis=None)
    assert (trials["share"] == 0.5).all()
    # The measured cost of a request must be the cost that was set (0.2, 0.21 or 0.3 ms), although
    # the server gets only a share of a core.
    for name, value in (
        trials[quiet].groupby("server")["server_cpu_ms_per_request"].median().items()
    ):
        assert value == pytest.approx(COST_MS[str(name)], rel=0.06)


@pytest.mark.skipif(not DEVICE.exists(), reason="this kernel has no /dev/cpu_dma_latency")
@pytest.mark.skipif(not idle_states(), reason="this kernel has no idle states to choose from")
def test_a_rate_of_one_connection_is_serial(root):
    one = load("wrk-matrix", connections=1, warmup_s=0.3)
    sessions = {"slices": 2, "slice_s": 1}
    loads = campaign(["axum"], one, idle=["polling", "system"], repeats=2, sessions=sessions)
    made = real_lab.run(root, loads, "--engine", "process")
    trials = made.trials
    slices = made.table("slices")
    assert sorted(trials["idle"].unique()) == ["polling", "system"]
    taken = trials["verdict_reason"].str.contains("other programs took CPU time away")
    quiet = trials[real_lab.is_quiet(trials) & ~taken]
    serial = quiet[quiet["verdict"] == "serial"]
    assert len(serial) == len(quiet)
    assert set(serial["idle"]) == {"polling", "system"}, "no quiet trial of one of the states"
    for row in serial.to_dict("records"):
        asleep = "idle CPUs slept, and the cycle includes the time to" in row["verdict_reason"]
        assert asleep is (row["idle"] == "system")
        assert f"a cycle took {1e6 / row['rps']:.1f} µs" in row["verdict_reason"]
    assert np.isfinite(slices["rps"]).all()
