"""Tests of how often `bench ab` is wrong, with noise that is drawn from real sessions.

The tests call functions of the program benchmarks/false_alarms.py.
"""

import runpy

import numpy as np
import pytest
from built import ROOT

from runner.commands.ab import FAIL_ABOVE_PCT
from runner.present.frames import read_tables
from runner.present.two_commits.decision import Rule
from runner.store import RunFolder

SESSIONS = 20
RUNS = 150


@pytest.fixture(scope="module")
def program():
    return runpy.run_path(str(ROOT / "benchmarks" / "false_alarms.py"))


@pytest.fixture(scope="module")
def noise(program):
    found = list(program["noises"](read_tables(RunFolder(ROOT / "data" / "sample"))))
    assert len(found) >= 8, "the committed run has fewer loads in sessions than this test needs"
    return found


def test_residuals_have_no_server_of_their_own(noise):
    for each in noise:
        assert np.abs(each.residuals.mean(axis=0)).max() < 1e-9
        assert 0.01 < each.residuals[:, :, 0].std() < 0.5


def test_no_slowdown_is_rarely_an_alarm(program, noise):
    """If nothing has changed, at most 2 % of the runs raise an alarm.

    The seed is fixed, so the test does not fail by chance.
    """
    shares = program["rates"](noise, 0.0, Rule(FAIL_ABOVE_PCT / 100), SESSIONS, RUNS)
    assert shares["worse"] <= 0.02
    assert shares["tie"] > 0.8


def test_a_large_slowdown_is_found(program, noise):
    shares = program["rates"](noise, 20.0, Rule(FAIL_ABOVE_PCT / 100), SESSIONS, RUNS)
    assert shares["worse"] >= 0.97 and shares["tie"] == shares["better"] == 0


def test_larger_slowdowns_are_found_more_often(program, noise):
    found = [
        program["rates"](noise, effect, Rule(FAIL_ABOVE_PCT / 100), SESSIONS, RUNS)["worse"]
        for effect in (0.0, 5.0, 10.0)
    ]
    assert found == sorted(found) and found[1] > 0.4 and found[2] > 0.9
