"""Tests of what the lab derives from a warm-up: the probe's rate, and an open load's users."""

import json

import pandas as pd
import pytest
from cells import cell_of, changed

from runner.measure.generators.catalogue import GENERATORS
from runner.measure.generators.command import WarmedUp
from runner.measure.warming import _together, probe_hz, users_of
from runner.model import OWN_GET, OWN_SCRIPT
from runner.present.frames import _served_rps
from runner.served import served_rps_of

CLOSED = cell_of(workload=OWN_GET, path="/", vus=10, iterations=10_000)
OPEN = cell_of(
    workload=OWN_GET, path="/", first_rate_rps=100.0, rate_rps=100.0, steps=1, step_s=15.0
)
WRK = cell_of(workload=OWN_GET, path="/", tool="wrk", connections=10, duration_s=5.0)


def warmed(rps, iteration_ms=20.0):
    return WarmedUp(answers_rps=rps, iterations_rps=rps, iteration_ms=iteration_ms)


@pytest.mark.parametrize(
    ("cell", "answers_rps", "expected_hz"),
    [
        pytest.param(WRK, 20_000.0, 40.0, id="fast: as often as ever"),
        pytest.param(WRK, 1000.0, 10.0, id="a hundredth of the warm-up's rate"),
        pytest.param(WRK, 54.5, 0.0, id="20 ms: too rare for a median in 5 s"),
        pytest.param(changed(WRK, duration_s=60.0), 54.5, 0.545, id="20 ms: enough in a minute"),
        pytest.param(changed(WRK, slices=5), 300.0, 0.0, id="slices have many ends"),
        pytest.param(changed(WRK, slices=5), 500.0, 5.0, id="and need more requests for that"),
        pytest.param(WRK, None, 40.0, id="a generator that does not say"),
        pytest.param(WRK, 0.0, 0.0, id="no answer in the warm-up"),
        pytest.param(CLOSED, 1000.0, 10.0, id="iterations last as long as in the warm-up"),
        pytest.param(changed(CLOSED, iterations=1000), 1000.0, 0.0, id="few iterations"),
        pytest.param(OPEN, 5000.0, 1.0, id="a hundredth of the offered rate"),
        pytest.param(OPEN, 50.0, 0.0, id="the warm-up's rate is less than the offered one"),
        pytest.param(
            changed(OPEN, rate_rps=1000.0, steps=10, step_s=2.0),
            5000.0,
            1.0,
            id="of the lowest rate of a ramp",
        ),
    ],
)
def test_the_probe_is_a_hundredth_of_the_load_or_not_there(cell, answers_rps, expected_hz):
    assert probe_hz(cell, warmed(answers_rps)) == pytest.approx(expected_hz)


def test_the_probes_rate_follows_the_cost_of_its_request():
    """If the probe's requests take longer than the script's, the probe sends fewer requests."""
    script = changed(CLOSED, workload=OWN_SCRIPT, iterations=500_000)
    assert probe_hz(script, warmed(10_000.0), probe_s=0.0001) == 40
    assert probe_hz(script, warmed(10_000.0), probe_s=0.02) == pytest.approx(0.5)
    assert probe_hz(script, warmed(10_000.0), probe_s=2.0) == 0


@pytest.mark.parametrize(
    ("rate_rps", "iteration_ms", "expected"),
    [
        pytest.param(20.0, 1.0, 20, id="never fewer than 20"),
        pytest.param(100.0, 20.0, 100, id="answers of a second"),
        pytest.param(1000.0, 20.0, 400, id="no more than 400 for that"),
        pytest.param(1000.0, 600.0, 1200, id="twice those that are busy"),
        pytest.param(50.0, 3000.0, 300, id="a script that pauses"),
        pytest.param(100_000.0, 900.0, 5000, id="as many as k6 bears"),
        pytest.param(100.0, None, 100, id="no iteration was completed"),
    ],
)
def test_an_open_load_has_the_users_that_its_warm_up_shows(rate_rps, iteration_ms, expected):
    cell = changed(OPEN, first_rate_rps=rate_rps, rate_rps=rate_rps)
    assert users_of(cell, warmed(1000.0, iteration_ms)) == expected


@pytest.mark.parametrize(
    "cell", [CLOSED, WRK, changed(OPEN, vus=7), changed(OPEN, workload=OWN_SCRIPT, vus=9)]
)
def test_no_other_load_has_its_users_from_the_warm_up(cell):
    assert users_of(cell, warmed(1000.0)) is None


def test_what_generators_say_of_a_warm_up(tmp_path):
    summary = tmp_path / "k6-summary.json"
    result = tmp_path / "wrk.json"
    metrics = {"http_reqs": {"count": 60, "rate": 50.0}, "iterations": {"count": 30, "rate": 25.0}}
    summary.write_text(json.dumps({"metrics": {**metrics, "iteration_duration": {"avg": 40.5}}}))
    result.write_text(json.dumps({"requests": 300, "duration_us": 500_000}))
    assert GENERATORS["k6"].read_warm_up({"k6-summary.json": summary}) == WarmedUp(50.0, 25.0, 40.5)
    assert GENERATORS["wrk"].read_warm_up({"wrk.json": result}) == WarmedUp(answers_rps=600.0)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"requests": 3, "duration_us": 0}'])
def test_a_warm_up_without_a_result_says_nothing(tmp_path, text):
    (tmp_path / "wrk.json").write_text(text)
    assert GENERATORS["wrk"].read_warm_up({"wrk.json": tmp_path / "wrk.json"}) == WarmedUp()


def test_several_generators_add_up_unless_one_is_unknown():
    both = _together([WarmedUp(100.0, 50.0, 20.0), WarmedUp(60.0, 30.0, 25.0)])
    assert both == WarmedUp(160.0, 80.0, 25.0)
    assert _together([WarmedUp(100.0), WarmedUp()]) == WarmedUp()


def test_an_older_runs_served_rate_comes_from_the_same_columns():
    """For an older run, the rate of answers is calculated in the same way as for a new run.

    The rate counts the successful requests of the generator, and also those of the probe.
    """
    row = {
        "requests": 180,
        "failed": 2,
        "probe_requests": 400,
        "probe_failed": 36,
        "duration_s": 10.0,
    }
    assert served_rps_of(row) == pytest.approx((178 + 364) / 10)
    unprobed = {**row, "probe_requests": None, "probe_failed": None}
    frame = pd.DataFrame([row, unprobed]).astype(float)
    assert _served_rps(frame).to_list() == pytest.approx([54.2, 17.8])
