"""Tests of how pytest and `make test` treat tests of the lab that were disturbed.

A failed test is called disturbed if it is marked `timed` or `load`, and the hypervisor took CPU
time away while it ran. Disturbed tests are repeated more often than other failed tests.
"""

import subprocess

import pytest
from built import ROOT

pytestmark = pytest.mark.long

CONFTEST = """
import pathlib, time
import disturbance

BEGAN = time.monotonic()


class Stat:
    '''A machine whose clock ticks 10,000 times a second.

    The hypervisor takes a share of it, for so many seconds.
    '''
    at, stolen = BEGAN, 0.0

    def read_text(self):
        now = time.monotonic()
        share, until_s = map(float, pathlib.Path("stolen").read_text().split())
        self.stolen += (now - self.at) * 10_000 * share / 100 * (now < BEGAN + until_s)
        self.at = now
        spent = int((now - BEGAN) * 10_000) - int(self.stolen)
        return f"cpu {spent} 0 0 0 0 0 0 {int(self.stolen)} 0 0\\ncpu0 1 2 3\\n"


disturbance.STAT, disturbance.EVERY_S, disturbance.PATIENCE_S = Stat(), 0.1, 3.0
pytest_plugins = ["disturbance"]
"""
BODY = """
import time
import pytest


@pytest.mark.{mark}
def test_it():
    time.sleep(0.5)
    assert {passes}
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Return a function that runs a test while the hypervisor seems to take CPU time away.

    The hypervisor takes `stolen` percent of the CPU time until `until_s` seconds have passed. The
    function returns pytest's result, which has the exit code and the output.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))
    pytester.makeini("[pytest]\nmarkers =\n    load: x\n    timed: x\n    other: x\n")
    pytester.makeconftest(CONFTEST)

    def call(*options, stolen=30, until_s=999, mark="load", passes=False):
        (pytester.path / "stolen").write_text(f"{stolen} {until_s}")
        pytester.makepyfile(BODY.format(mark=mark, passes=passes))
        return pytester.runpytest_subprocess("-ra", *options)

    return call


DISTURBED = "DISTURBED: the hypervisor took up to [23]* %; *::test_it"
UNKNOWN = "SKIPPED*nothing is known: the hypervisor took [23]* % of the CPUs*"
MACHINES = [
    ("", {"mark": "load"}, 9, "failed", DISTURBED),
    ("", {"mark": "timed"}, 9, "failed", DISTURBED),
    ("", {"mark": "other"}, 1, "failed", "*"),  # a test with another mark measures nothing
    ("", {"stolen": 0}, 1, "failed", "*"),
    ("", {"stolen": 3}, 1, "failed", "*"),  # a small share of CPU time is always stolen
    ("", {"passes": True}, 0, "passed", "*"),
    ("last", {}, 0, "skipped", UNKNOWN),
    ("last", {"mark": "timed"}, 9, "failed", DISTURBED),  # a test marked `timed` is not skipped
    ("last", {"stolen": 3}, 1, "failed", "*"),
]


@pytest.mark.parametrize(("attempt", "machine", "code", "outcome", "says"), MACHINES)
def test_what_was_disturbed_says_so_and_nothing_at_last(
    run, monkeypatch, attempt, machine, code, outcome, says
):
    monkeypatch.setenv("ATTEMPT", attempt)
    done = run(**machine)
    done.assert_outcomes(**{outcome: 1})
    assert done.ret == code
    done.stdout.fnmatch_lines([says])


@pytest.mark.parametrize(("until_s", "code"), [(0.5, 1), (999, 9)])
def test_what_failed_is_run_again_in_a_quiet_moment(run, until_s, code):
    assert run().ret == 9
    assert run("--last-failed", until_s=until_s).ret == code


@pytest.mark.parametrize(
    ("codes", "runs", "fails"),
    [
        ([], 3, False),
        ([1], 4, False),
        ([1, 1], 4, True),
        ([9, 9, 9], 6, False),
        ([9, 9, 9, 9], 6, True),
        ([2], 3, True),
    ],
)
def test_make_repeats_failures_and_disturbed_ones_twice_more(tmp_path, codes, runs, fails):
    """`make test` runs failed tests once more, but disturbed tests up to three times more.

    A fake pytest records its calls. Its first calls end with the given exit codes, and all later
    calls end with 0.
    """
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    program = (
        'echo "$ATTEMPT $*" >> calls; code=$(head -n 1 codes); sed -i 1d codes; exit "${code:-0}"'
    )
    (tmp_path / "pytest").write_text(program)
    made = ["-o", "setup", "-o", "vegeta"]
    command = ["make", "-f", str(ROOT / "Makefile"), *made, "test", "PYTEST=bash pytest"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert (len(calls), done.returncode != 0) == (runs, fails), done.stderr
    again = [call for call in calls if "--last-failed" in call]
    assert len(again) == runs - 3
    assert [call for call in again if call.startswith("last ")] == again[2:]
    assert all("not load and not timed" in call for call in again)


@pytest.mark.parametrize(
    ("mark", "outcomes"),
    [("load", {"errors": 1}), ("timed", {"passed": 1}), ("other", {"passed": 1})],
)
def test_what_drives_a_load_refuses_to_run_beside_others(run, mark, outcomes):
    run("-n", "2", mark=mark, passes=True, stolen=0).assert_outcomes(**outcomes)
