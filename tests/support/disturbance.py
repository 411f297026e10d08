"""Pytest's plugin for tests that measure: what the hypervisor disturbed is repeated, as the lab
does with its trials.

Where a test marked `load` or `timed` failed, and in some second another guest took CPU time away,
pytest ends with the exit code DISTURBED, and `make test` runs what failed again: alone, all
fixtures made anew, in a quieter moment if one comes, and once more where that was disturbed too.
Where the hypervisor took so much on average, in the last attempt too, that a trial's verdict would
be `inconclusive`, a test marked `load` is skipped with this reason: nothing was found out. A test
marked `load` runs alone: beside others, in a worker of pytest-xdist, it fails and says so.
"""

import os
import threading
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import pytest

DISTURBED = 9
"""Pytest's exit code; the Makefile knows it."""
LAST = os.environ.get("ATTEMPT") == "last"
"""Whether `make test` gives up after this one."""
STOLEN_PCT = 5.0
"""Of the time of all CPUs: from here on a verdict is `inconclusive` (runner/digest/verdict.py)."""
QUIET_PCT, QUIET_S = 2.0, 3
"""A moment is quiet after so many seconds with so little."""
PATIENCE_S = 45.0
"""How long a repeated test waits for a quiet moment."""
STAT = Path("/proc/stat")
EVERY_S = 1.0
FEWEST_TICKS = 50
"""Fewer make no share: one tick of few is a large one."""


def stolen_pct(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the share of the CPUs' time that the hypervisor took between two readings."""
    return 100 * (after[1] - before[1]) / max(1, after[0] - before[0])


class Watch:
    """Reads in a thread, once in `EVERY_S`, what was stolen."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, int]] = []
        """Clock ticks of all CPUs up to an instant: all, and those that were stolen."""
        self.read()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.read()

    def read(self) -> int:
        """Read, and return how often that was done before.

        Proc(5): user nice system idle iowait irq softirq steal.
        """
        ticks = [int(number) for number in STAT.read_text().split("\n", 1)[0].split()[1:9]]
        self.readings.append((sum(ticks), ticks[7]))
        return len(self.readings) - 1

    def seconds_pct(self, begin: int) -> list[float]:
        """Return the share stolen in each second since a reading."""
        pairs = pairwise(self.readings[begin : self.read() + 1])
        return [
            stolen_pct(before, after)
            for before, after in pairs
            if after[0] - before[0] >= FEWEST_TICKS
        ]

    def wait_for_quiet(self) -> None:
        """Wait for a quiet moment, as long as patience lasts."""
        begin = self.read()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            time.sleep(EVERY_S)
            last = self.seconds_pct(begin)[-QUIET_S:]
            if len(last) == QUIET_S and max(last) < QUIET_PCT:
                return


class Disturbance:
    """Judges the failures of the tests that measure."""

    measuring = False
    """Whether the test that runs is marked `load` or `timed`: only such a one may run a campaign.
    """

    def __init__(self) -> None:
        self._watch = Watch()
        self._begin = 0
        """The reading from which on tests ran."""
        self._failed: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Wait, where what failed is run again."""
        if session.config.getoption("lf", False):
            self._watch.wait_for_quiet()
            self._begin = self._watch.read()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse to drive a load beside other tests."""
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
        """Turn the failure of a test that drives a load into a skip where a verdict would be
        `inconclusive`.
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
        """Note what failed, in whatever worker."""
        if report.failed and {"load", "timed"} & set(report.keywords):
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say by the exit code whether what failed was disturbed."""
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
