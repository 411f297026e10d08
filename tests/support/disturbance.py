"""Plugin of pytest for tests that measure: tests that the hypervisor disturbed are repeated.

The lab repeats disturbed trials in the same way.

- A test is marked `load` or `timed` if it runs a campaign or checks times. If such a test fails,
  and the hypervisor took STOLEN_PCT or more of the CPUs' time in at least one second, pytest ends
  with the exit code DISTURBED. `make test` then runs the failed tests again: alone, with all
  fixtures made anew, and if possible in a quieter moment. If this second attempt also ends with
  DISTURBED, `make test` runs the failed tests up to two more times.
- In the last attempt, a failed test marked `load` is reported as skipped if the hypervisor took so
  much CPU time on average that the verdict of a trial would be `inconclusive`. In this case the
  failure proves nothing.
- A test marked `load` must run alone. If pytest-xdist runs it in one of several workers, it fails
  and says why.
"""

import os
import threading
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import pytest

DISTURBED = 9
"""Exit code by which pytest tells the Makefile that failed tests were disturbed."""
LAST = os.environ.get("ATTEMPT") == "last"
"""True if `make test` does not repeat the tests after this attempt."""
STOLEN_PCT = 5.0
"""A share of the time of all CPUs, in percent.

If the hypervisor takes at least this share, a verdict is `inconclusive` (runner/digest/verdict.py).
"""
QUIET_PCT, QUIET_S = 2.0, 3
"""A moment is quiet if the hypervisor took less than QUIET_PCT in each of the last QUIET_S seconds.
"""
PATIENCE_S = 45.0
"""Before tests are repeated, pytest waits at most this many seconds for a quiet moment."""
STAT = Path("/proc/stat")
EVERY_S = 1.0
FEWEST_TICKS = 50
"""A share of stolen time is computed only from at least this many clock ticks.

With fewer ticks, a single stolen tick would already be a large share.
"""


def stolen_pct(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the percentage of the CPUs' time that the hypervisor took between two readings.

    A reading is a pair: the number of all clock ticks so far, and of stolen ticks so far.
    """
    return 100 * (after[1] - before[1]) / max(1, after[0] - before[0])


class Watch:
    """A thread that reads every `EVERY_S` seconds how much CPU time the hypervisor has taken."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, int]] = []
        """For each reading, the number of all ticks and of stolen ticks so far, over all CPUs."""
        self.read()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.read()

    def read(self) -> int:
        """Add a reading, and return its index.

        The columns in the file are, by proc(5): user nice system idle iowait irq softirq steal.
        """
        ticks = [int(number) for number in STAT.read_text().split("\n", 1)[0].split()[1:9]]
        self.readings.append((sum(ticks), ticks[7]))
        return len(self.readings) - 1

    def seconds_pct(self, begin: int) -> list[float]:
        """Return the stolen share in percent for each second since the reading `begin`."""
        pairs = pairwise(self.readings[begin : self.read() + 1])
        return [
            stolen_pct(before, after)
            for before, after in pairs
            if after[0] - before[0] >= FEWEST_TICKS
        ]

    def wait_for_quiet(self) -> None:
        """Wait for a quiet moment, but at most PATIENCE_S."""
        begin = self.read()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            time.sleep(EVERY_S)
            last = self.seconds_pct(begin)[-QUIET_S:]
            if len(last) == QUIET_S and max(last) < QUIET_PCT:
                return


class Disturbance:
    """The plugin, which judges the failures of the tests that measure."""

    measuring = False
    """True if the running test is marked `load` or `timed`. Only such a test may run a campaign."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._begin = 0
        """Index of the last reading before the tests began."""
        self._failed: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Wait for a quiet moment if failed tests are run again."""
        if session.config.getoption("lf", False):
            self._watch.wait_for_quiet()
            self._begin = self._watch.read()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let a test marked `load` fail if it does not run alone."""
        Disturbance.measuring = bool(
            {"load", "timed"} & {mark.name for mark in item.iter_markers()}
        )
        if (
            any(item.iter_markers("load"))
            and getattr(item.config, "workerinput", {}).get("workercount", 1) > 1
        ):
            pytest.fail("it measures, and runs alone: without -n, or leave it out by -m 'not load'")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """In the last attempt, skip a failed test marked `load` if it was disturbed too much.

        The test was disturbed too much if the hypervisor took so much CPU time that a trial would
        get the verdict `inconclusive`.
        """
        report = yield
        stolen = stolen_pct(
            self._watch.readings[self._begin], self._watch.readings[self._watch.read()]
        )
        may_skip = LAST and report.when != "teardown" and any(item.iter_markers("load"))
        if report.failed and may_skip and stolen >= STOLEN_PCT:
            said = report.longreprtext.strip().splitlines()[-1:]
            why = (
                f"nothing is known: the hypervisor took {stolen:.0f} % of the CPUs, at last too; "
                f"{said}"
            )
            report.outcome = "skipped"
            report.longrepr = (item.location[0], item.location[1] or 0, why)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record each failed test that measures, whichever worker ran the test."""
        if report.failed and {"load", "timed"} & set(report.keywords):
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code DISTURBED if tests failed and the hypervisor took much CPU time."""
        if self._failed and self._most_pct() >= STOLEN_PCT:
            session.exitstatus = DISTURBED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._failed and self._most_pct() >= STOLEN_PCT:
            failed = ", ".join(self._failed)
            terminalreporter.write_line(
                f"DISTURBED: the hypervisor took up to {self._most_pct():.0f} %; {failed}"
            )

    def _most_pct(self) -> float:
        return max(self._watch.seconds_pct(self._begin), default=0.0)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Disturbance())
