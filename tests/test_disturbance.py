"""Tests that measure are repeated where the hypervisor disturbed them, and nowhere else."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.long

CALM, STOLEN = 0, 30
HEAD = """
import os, pathlib, time
import disturbance, pytest

pytestmark = pytest.mark.{mark}
LOG = pathlib.Path("attempts")


def machine(stolen_pct):
    '''From now on the hypervisor takes so much of every second, a hundred of which are in one of the test's.'''
    pathlib.Path("stolen").write_text(str(stolen_pct))


@pytest.fixture(scope="module")
def measured():
    with LOG.open("a") as log:
        log.write("x")
    machine({stolen} if len(LOG.read_text()) <= {disturbed} else 0)
    time.sleep(0.4)
    return len(LOG.read_text())
"""
CONFTEST = """
import pathlib, time
import disturbance

BEGAN = time.monotonic()


class Stat:
    '''A machine whose clock ticks 10,000 times a second, and a share of it is stolen.'''
    at, stolen = time.monotonic(), 0.0

    def read_text(self):
        share = pathlib.Path("stolen")
        now = time.monotonic()
        self.stolen += (now - self.at) * 10_000 * (float(share.read_text() or 0) / 100 if share.exists() else 0)
        self.at = now
        spent = int((now - BEGAN) * 10_000) - int(self.stolen)
        return f"cpu {spent} 0 0 0 0 0 0 {int(self.stolen)} 0 0\\ncpu0 1 2 3\\n"


disturbance.STAT, disturbance.EVERY_S, disturbance.PATIENCE_S = Stat(), 0.1, 0.5
pytest_plugins = ["disturbance"]
"""

EVERYWHERE = """
import pytest


@pytest.fixture(scope="session")
def everywhere():
    with open("attempts", "a") as log:
        log.write("x")
    first = pathlib.Path("attempts").read_text() == "x"
    pathlib.Path("stolen").write_text("30" if first else "0")
    time.sleep(0.4)
    pathlib.Path("stolen").write_text("0")
    return len(pathlib.Path("attempts").read_text())
"""


@pytest.fixture
def outcome(pytester, monkeypatch):
    """Return a function that runs a module of tests on a machine that is disturbed in its first attempts."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    pytester.makeini("[pytest]\nmarkers =\n    load: x\n    timed: x\n    other: x\n")

    def run(body, *options, disturbed, stolen=STOLEN, mark="load", shared=""):
        pytester.makeconftest(CONFTEST + shared)
        pytester.makepyfile(HEAD.format(mark=mark, stolen=stolen, disturbed=disturbed) + body)
        done = pytester.runpytest_subprocess("-ra", "-p", "no:cacheprovider", *options)
        log = pytester.path / "attempts"
        return done, len(log.read_text()) if log.exists() else 0

    return run


SECOND_TRY = """
def test_it(measured):
    assert measured == 2

def test_the_next_one_has_the_same_measurement(measured):
    assert measured == 2
"""


@pytest.mark.parametrize("mark", ["load", "timed"])
def test_a_disturbed_failure_is_repeated_with_its_fixtures_made_anew(outcome, mark):
    done, attempts = outcome(SECOND_TRY, disturbed=1, mark=mark)
    done.assert_outcomes(passed=2)
    assert attempts == 2
    done.stdout.fnmatch_lines(["REPEATED *test_it: the hypervisor took up to [23]* %"])


def test_a_failure_on_a_quiet_machine_counts_at_once(outcome):
    done, attempts = outcome(SECOND_TRY, disturbed=1, stolen=CALM)
    done.assert_outcomes(failed=2)
    assert attempts == 1


def test_a_little_is_always_stolen_and_excuses_nothing(outcome):
    done, attempts = outcome(SECOND_TRY, disturbed=9, stolen=3)
    done.assert_outcomes(failed=2)
    assert attempts == 1


def test_a_test_that_measures_nothing_is_not_repeated(outcome):
    done, attempts = outcome(SECOND_TRY, disturbed=1, mark="other")
    done.assert_outcomes(failed=2)
    assert attempts == 1


def test_where_each_attempt_is_disturbed_nothing_can_be_told(outcome):
    done, attempts = outcome("def test_it(measured):\n    assert measured == 100\n", disturbed=9)
    done.assert_outcomes(skipped=1)
    assert attempts == 4
    done.stdout.fnmatch_lines(["SKIPPED*nothing can be told: the hypervisor took [23]* % of the CPUs*"])


def test_what_fails_in_the_quiet_after_a_disturbed_attempt_fails(outcome):
    done, attempts = outcome("def test_it(measured):\n    assert measured == 100\n", disturbed=1)
    done.assert_outcomes(failed=1)
    assert attempts == 2


def test_a_disturbed_test_that_passes_is_not_repeated(outcome):
    done, attempts = outcome("def test_it(measured):\n    assert measured == 1\n", disturbed=9)
    done.assert_outcomes(passed=1)
    assert attempts == 1


def test_each_attempt_has_the_whole_of_a_tests_time(outcome):
    body = "@pytest.mark.timeout(2)\ndef test_it(measured):\n    time.sleep(1.2)\n    assert measured == 2\n"
    done, attempts = outcome(body, disturbed=1)
    done.assert_outcomes(passed=1)
    assert attempts == 2


def test_a_fixture_of_the_whole_session_that_was_disturbed_is_made_anew(outcome, pytester):
    """For the second module too, which begins after the disturbance."""
    pytester.makepyfile(test_a="def test_first(everywhere):\n    pass\n")
    body = "def test_it(everywhere):\n    assert everywhere == 2\n"
    done, attempts = outcome(body, disturbed=1, shared=EVERYWHERE)
    done.assert_outcomes(passed=2)
    assert attempts == 2


@pytest.mark.parametrize(
    ("mark", "outcomes"), [("load", {"errors": 1}), ("timed", {"passed": 1}), ("x", {"passed": 1})]
)
def test_who_measures_refuses_to_run_beside_others(outcome, mark, outcomes):
    done, _ = outcome("def test_it():\n    pass\n", "-n", "2", disturbed=0, mark=mark)
    done.assert_outcomes(**outcomes)
