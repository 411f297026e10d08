"""Tests of reading a script's own load from the output of `k6 inspect --execution-requirements`."""

from pathlib import Path

import pytest

from runner.measure.generators.written import read_written, seconds_of
from runner.model import LabError
from runner.shapes import Duration, Iterations, Sweep

SCRIPT = Path("their.js")


def written(*scenarios, users=10, total="1m30s", **options):
    """Return the load that is read from k6's output for a script with these scenarios.

    Options without a value are None, because k6 prints null.
    """
    empty = dict.fromkeys(("exec", "startTime", "timeUnit", "stages", "duration"))
    named = {f"s{number}": empty | each for number, each in enumerate(scenarios, start=1)}
    known = {"scenarios": named, "maxVUs": users, "totalDuration": total, **options}
    return read_written(SCRIPT, known)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m30s", 90), ("2m0.5s", 120.5), ("500ms", 0.5), ("1h2m3s", 3723), (None, 7), (1500, 1.5)],
)
def test_durations_are_read_as_k6_prints_them(text, seconds):
    assert seconds_of(text, 7) == seconds


EXECUTORS = [
    ({"executor": "shared-iterations", "vus": 4, "iterations": 40}, Iterations(40), 4),
    ({"executor": "per-vu-iterations", "vus": 4, "iterations": 10}, Iterations(40), 4),
    ({"executor": "constant-vus", "vus": 3, "duration": "5s"}, Duration(5), 3),
    (
        {
            "executor": "ramping-vus",
            "startVUs": 2,
            "stages": [{"duration": "2s", "target": 8}, {"duration": "4s", "target": 0}],
        },
        Duration(6),
        8,
    ),
    (
        {"executor": "constant-arrival-rate", "rate": 600, "timeUnit": "1m", "duration": "20s"},
        Sweep((10.0,), 20),
        10,
    ),
    # 80 iterations start while the rate rises to 30/s in 4 s, and 30 iterations while it falls to
    # 0/s in 2 s. These are 110 iterations in 6 s, or 18.3/s on average.
    (
        {
            "executor": "ramping-arrival-rate",
            "startRate": 10,
            "stages": [{"duration": "4s", "target": 30}, {"duration": "2s", "target": 0}],
        },
        Sweep((18.3,), 6),
        10,
    ),
]


@pytest.mark.parametrize(("scenario", "form", "users"), EXECUTORS)
def test_one_scenario_gives_the_load(scenario, form, users):
    load = written(scenario)
    assert (load.form, load.users) == (form, users)


def test_several_scenarios_are_all_users_for_the_time_of_the_longest():
    early = {"executor": "constant-vus", "vus": 3, "duration": "5s", "exec": "browse"}
    late = {"executor": "constant-vus", "vus": 7, "duration": "4s", "startTime": "2s"}
    load = written(early, late, users=10)
    assert (load.form, load.users, load.functions) == (Duration(6), 10, ("browse",))
    assert load.words == "s1 (constant-vus), s2 (constant-vus)"


def test_the_longest_duration_has_setup_and_teardown():
    load = written(EXECUTORS[0][0], total="10m30s", setupTimeout="2m0s", teardownTimeout=None)
    assert load.longest_s == 630 + 120 + 60


@pytest.mark.parametrize(
    ("scenario", "more", "words"),
    [
        ({"executor": "externally-controlled"}, {}, "the executor externally-controlled"),
        (
            EXECUTORS[2][0],
            {"users": 10_001},
            "10,001 virtual users, but the lab allows at most 10,000",
        ),
        (EXECUTORS[2][0], {"total": "1h0m1s"}, "3,601 seconds"),
        (
            {"executor": "per-vu-iterations", "vus": 1000, "iterations": 1001},
            {},
            "1,001,000 iterations",
        ),
        (
            {"executor": "constant-arrival-rate", "rate": 2000, "duration": "10m"},
            {},
            "1,200,000 iterations",
        ),
    ],
)
def test_a_load_that_the_lab_cannot_run_is_refused(scenario, more, words):
    with pytest.raises(LabError) as caught:
        written(scenario, **more)
    said = str(caught.value)
    assert words in said and said.endswith(".")
