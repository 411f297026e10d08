"""Tests of how pytest leaves out tests if the time for all tests is over."""

import time

import pytest
from built import ROOT

PROGRAM = """
import pytest


@pytest.fixture(scope="module")
def costly():
    raise AssertionError("a fixture is made although the time is over")


def test_one(costly):
    pass


def test_two():
    assert False
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Return a function that runs two tests, which would both fail, and returns pytest's result.

    `end_s` is the time, in seconds from now, after which no further test starts.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))
    monkeypatch.delenv("ATTEMPT", raising=False)
    pytester.makeconftest('pytest_plugins = ["time_limit"]')
    pytester.makepyfile(PROGRAM)

    def call(end_s, *options):
        monkeypatch.setenv("TESTS_END", str(time.time() + end_s))
        return pytester.runpytest_subprocess("-ra", *options)

    return call


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_tests_after_the_end_are_left_out_and_counted(run, options):
    result = run(-1, *options)
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["TIME LIMIT: 2 tests were not run, because the time * is over."])


def test_before_the_end_all_tests_run(run):
    result = run(600)
    result.assert_outcomes(failed=1, errors=1)
    assert "TIME LIMIT" not in result.stdout.str()


def test_a_failed_test_is_repeated_after_the_end(run, monkeypatch):
    """A test that has failed must not count as skipped because the time is over."""
    monkeypatch.setenv("ATTEMPT", "second")
    run(-1).assert_outcomes(failed=1, errors=1)
