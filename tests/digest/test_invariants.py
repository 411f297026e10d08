"""Tests of the invariants.

An injected violation of an invariant must fail the check of this invariant, and no other check.
The table of invariants must agree with the code and with the committed runs.
"""

import ast
import json
import lzma
from dataclasses import replace

import numpy as np
import pytest
from built import ROOT
from cells import cell_of
from k6_files import REQUEST_METRICS
from measured import measured

from runner.digest.invariants import Invariant
from runner.digest.k6 import GeneratorSummary, RequestNumbers, Steady
from runner.digest.reconcile import (
    Sent,
    clock,
    lived,
    request_checks,
    sample_checks,
    succeeded,
    wrk_checks,
)
from runner.digest.resources import Counter, Window
from runner.digest.wrk import WrkResult
from runner.measurement import Counters

CELL = cell_of(vus=50, iterations=1000)
TREND = {
    "mean": 10.0,
    "min": 1.0,
    "p50": 9.0,
    "p90": 15.0,
    "p95": 20.0,
    "p99": 30.0,
    "p999": 40.0,
    "max": 50.0,
}
SUMMARY = GeneratorSummary(1000, 0, 1000, 5000.0, TREND)
COUNTS = ("requests", "with_status", "iterations", "script_runs")
POINTS = RequestNumbers(
    points=dict.fromkeys(REQUEST_METRICS, 1000),
    **dict.fromkeys(COUNTS, 1000),
    **dict.fromkeys(("failed", "dropped_iterations", "first_start_ns", "worst_residual_ms"), 0),
    **dict.fromkeys(("durations", "latency"), TREND),
    last_end_ns=10**9,
    iteration_max_ms=50.5,
    steady=Steady(seconds=0.9, in_flight=50.0, iteration_mean_ms=10.0),
)


def measurement(counted=1000, accepted=50, **changes):
    counters = {
        "counters_before": Counters(100, 5, 7),
        "counters_after": Counters(100 + counted, 5 + accepted, 7),
    }
    return measured(**counters, **changes)


def broken(checks):
    return [check.name for check in checks if not check.ok]


def names(invariants):
    return [invariant.check_name for invariant in invariants]


def test_a_right_k6_trial_keeps_every_invariant():
    checks = [*request_checks(CELL, POINTS, SUMMARY, measurement())]
    assert broken(checks) == [] and {check.name[0] for check in checks} == set("123458")


OPEN = cell_of(vus=50, first_rate_rps=1000.0, rate_rps=1000.0, steps=1, step_s=1.0)
CUT_OFF = {"dropped_iterations": 10, "iterations": 990, "script_runs": 990}
VIOLATIONS = [
    (Invariant.ITERATIONS, {}, {"iterations": 999}, 1000),
    (Invariant.RAN_TO_ITS_END, CUT_OFF, {"iterations": 990, "dropped": 10}, 1000),
    (Invariant.POINTS, {}, {"requests": 999}, 1000),
    (Invariant.POINTS, {"points": {**POINTS.points, "http_req_waiting": 999}}, {}, 1000),
    (Invariant.PHASES, {"worst_residual_ms": 0.002}, {}, 1000),
    (Invariant.LONGEST, {"iteration_max_ms": 49.0}, {}, 1000),
    (Invariant.QUANTILES, {"durations": {**TREND, "p99": 30.002}}, {}, 1000),
    (Invariant.QUANTILES, {}, {"http_req_duration": {"mean": 10.0}}, 1000),
    (Invariant.SENT, {}, {}, 999),
    (Invariant.SENT, {}, {}, 1001),
    (Invariant.LITTLES_LAW, {"steady": Steady(0.9, 47.4, 10.0)}, {}, 1000),
    (Invariant.LITTLES_LAW, {"steady": Steady(0.9, 52.6, 10.0)}, {}, 1000),
]


@pytest.mark.parametrize(("invariant", "points", "summary", "counted"), VIOLATIONS)
def test_a_violation_is_caught_by_its_own_check_alone(invariant, points, summary, counted):
    checks = request_checks(
        CELL, replace(POINTS, **points), replace(SUMMARY, **summary), measurement(counted)
    )
    assert broken(checks) == [invariant.check_name]


@pytest.mark.parametrize(("good", "ok"), [(1, True), (0, False)])
def test_a_trial_without_any_success_is_invalid(good, ok):
    check = succeeded(Sent(ok=good, refused=1000, lost=3, at_once=50))
    assert check.ok is ok and f"{good} of {1003 + good} requests were answered" in check.detail


def test_littles_law_needs_a_closed_loop_and_a_steady_part():
    law = [Invariant.LITTLES_LAW]
    for cell, seconds, violated in ((CELL, 0.9, law), (CELL, 0.04, []), (OPEN, 0.9, [])):
        points = replace(POINTS, steady=Steady(seconds, 20.0, 10.0))
        checks = request_checks(cell, points, SUMMARY, measurement())
        assert broken(checks) == names(violated)


@pytest.mark.parametrize(
    ("completed", "ok"), [(1000, True), (1012, True), (1013, False), (999, True)]
)
def test_an_open_load_may_run_on_for_as_long_as_a_timer_is_late(completed, ok):
    """In an open load of 1000 requests/s for 1 s, up to twelve additional requests are allowed.

    One request is allowed at the end of the load, one per step, and ten because a timer may be
    10 ms late.
    """
    found = replace(
        POINTS, points=dict.fromkeys(REQUEST_METRICS, completed), **dict.fromkeys(COUNTS, completed)
    )
    said = replace(SUMMARY, iterations=completed, requests=completed)
    checks = request_checks(OPEN, found, said, measurement(completed))
    assert broken(checks) == names([] if ok else [Invariant.ITERATIONS])


# --- invariants of loads by wrk -------------------------------------------------------------------

WRK_CELL = cell_of(workload="wrk-matrix", tool="wrk", connections=50, duration_s=1.0)
HISTOGRAM = (np.array([1000.0]), np.array([1000]))
NO_ERRORS = dict.fromkeys(("connect", "read", "write", "status", "timeout"), 0)
WRK = WrkResult(
    ended_wall_ns=0,
    duration_s=1.0,
    requests=1000,
    connections=50,
    threads=5,
    errors=NO_ERRORS,
    reported=HISTOGRAM,
    raw=HISTOGRAM,
)
WRK_TRIALS = [
    ("keepalive", {}, 1000, 50, []),
    ("close", {}, 1000, 1000, []),
    (
        "keepalive",
        {"raw": (np.array([1000.0]), np.array([999]))},
        1000,
        50,
        [Invariant.BUCKETS],
    ),
    ("keepalive", {"errors": NO_ERRORS | {"read": 1}}, 1000, 50, [Invariant.ERRORS]),
    ("keepalive", {"connections": 48}, 1000, 48, [Invariant.CONNECTIONS]),
    ("keepalive", {}, 1000, 1000, [Invariant.KEEPALIVE_MODE]),
    ("close", {}, 1000, 50, [Invariant.CLOSE_MODE]),
    ("keepalive", {}, 999, 50, [Invariant.ANSWERED]),
    ("keepalive", {}, 1051, 50, [Invariant.ANSWERED]),
]


@pytest.mark.parametrize(("mode", "changes", "counted", "accepted", "violated"), WRK_TRIALS)
def test_wrk_is_held_against_the_servers_counts(mode, changes, counted, accepted, violated):
    cell = replace(WRK_CELL, mode=mode)
    checks = wrk_checks(cell, replace(WRK, **changes), measurement(counted, accepted))
    assert broken(checks) == names(violated)


# --- invariants of CPU use, samples and clock, and of the server's survival -----------------------


def sampled(
    begin=-1.0, end=2.0, hz=20.0, server_pct=99.0, generator_pct=100.0, foreign=(9.0, 9.0, 0.0)
):
    """Return the checks of a load of 1 s that was sampled from `begin` to `end`, in seconds.

    `foreign` consists of two times and a number of CPUs. Between the two times, the server could
    use this number of CPUs that belong to another role.
    """
    t_s = np.arange(begin, end + 0.01, 0.05)
    others = np.where((t_s >= foreign[0]) & (t_s <= foreign[1]), foreign[2], 0.0)
    host = Counter(t_s, {"cpu_s": t_s})
    raw = {"server": Counter(t_s, {"cpu_s": t_s, "foreign_cpus": others}), "host": host}
    metrics = {
        "server_cpu_mean_pct": server_pct,
        "generator_cpu_mean_pct": generator_pct,
        "host_steal_pct": 0.0,
    }
    return sample_checks(measurement(sample_hz=hz), metrics, raw, raw, [Window(0, 1.0, 0, 0)])


@pytest.mark.parametrize(
    ("seen", "violated"),
    [
        ({}, []),
        ({"server_pct": 103.0}, [Invariant.SERVER_CPU]),
        ({"generator_pct": 103.0}, [Invariant.GENERATOR_CPU]),
        ({"server_pct": -1.0}, [Invariant.SERVER_CPU]),
        ({"hz": 24}, [Invariant.TICKS]),
        ({"begin": 0.04}, [Invariant.COVERED]),
        ({"end": 0.96}, [Invariant.COVERED]),
        # A process can use CPUs of another role during the load.
        ({"foreign": (0.3, 0.6, 1.0)}, [Invariant.STAYED]),
        ({"foreign": (0.3, 9.0, 1.0)}, [Invariant.STAYED]),
        # Other CPUs are allowed in the first 0.1 s of a load, because the generator may not be on
        # its own CPUs yet.
        ({"foreign": (-1.0, 0.06, 1.0)}, []),
        ({"foreign": (1.01, 9.0, 1.0)}, []),  # other CPUs could be used only after the load
        ({"foreign": (-1.0, 9.0, np.nan)}, []),  # it is unknown which CPUs could be used
    ],
)
def test_impossible_cpu_use_and_gaps_of_the_sampler_are_caught(seen, violated):
    """A trial must fail if a CPU use is impossible, or if samples are missing.

    A trial must also fail if the server could use CPUs of another role during the load.
    """
    assert broken(sampled(**seen)) == names(violated)


@pytest.mark.fault("the clock is stepped under load", "the trial is not sealed")
@pytest.mark.parametrize(
    ("stepped_ms", "ok"), [(0, True), (59, True), (61, False), (-61, False), (3_600_000, False)]
)
def test_a_clock_that_was_stepped_is_caught(stepped_ms, ok):
    ended = {"load_ended_mono_ns": 10**10, "load_ended_wall_ns": 10**10 + stepped_ms * 10**6}
    assert clock(measurement(**ended)).ok is ok


@pytest.mark.fault(
    "the kernel kills a server's process because memory ran out",
    "the trial is not sealed, and says why",
)
def test_a_process_killed_for_memory_breaks_its_trial():
    """A trial must fail if the server died, or if a lack of memory killed one of its processes."""
    assert lived(measurement()).ok and lived(measurement(oom_kills=0)).ok
    killed = lived(measurement(oom_kills=2))
    assert (killed.ok, killed.detail) == (
        False,
        "the kernel killed 2 of the server's processes, because memory ran out",
    )
    assert not lived(measurement(died=3)).ok


# --- the table of invariants ----------------------------------------------------------------------


def test_every_invariant_is_asked_and_no_check_is_made_past_the_table():
    asked = set()
    makers = set()
    for path in (ROOT / "runner" / "digest").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="Invariant"), attr=name):
                    asked.add(name)
                case ast.Call(func=ast.Name(id="Check")):
                    makers.add(path.name)
    assert asked == set(Invariant.__members__)
    assert makers == {"invariants.py"}


@pytest.mark.parametrize("run", ["sample", "all", "seeds", "engines"])
def test_a_stored_check_is_in_the_table_for_its_generator(run):
    tools = {}
    for invariant in Invariant:
        tools.setdefault(invariant.check_name, set()).update(invariant.generators)
    with lzma.open(ROOT / "data" / run / "trials.jsonl.xz") as lines:
        records = [json.loads(line) for line in lines]
    stored = {
        (check["name"], record["cell"]["tool"])
        for record in records
        for check in record.get("checks", ())
    }
    assert stored
    assert [(name, tool) for name, tool in stored if tool not in tools[name]] == []
