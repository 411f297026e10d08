"""Pytest's plugin for tests that measure: what the hypervisor disturbed is repeated, as the lab does with its trials.

A test marked `load` or `timed` that fails counts at once where the machine was the tests' own. Where another guest took
CPU time away in some second since its module began, the test and all of its fixtures are made anew, in a quieter
moment if one comes. Where the hypervisor took so much on average, in the last attempt too, that a trial's verdict would
be `inconclusive`, a test marked `load` is skipped and says so: nothing was found out.

A test marked `load` runs alone: beside others, in a worker of pytest-xdist, it fails and says so. One marked `timed`
may run beside others, once and without this plugin's help; where it fails there, `make test` runs it again alone.
"""

import math
import threading
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

STOLEN_PCT = 5.0
"""Of the time of all CPUs: from here on a verdict is `inconclusive` (runner/digest/verdict.py)."""
QUIET_PCT, QUIET_S = 2.0, 3
"""A moment is quiet after so many seconds with so little."""
ATTEMPTS = 4
PATIENCE_S = 45.0
"""How long a repeated test waits for a quiet moment."""
BUDGET_S = 600.0
"""How long all repeats of a session may take: afterwards none is begun."""
STAT, EVERY_S = Path("/proc/stat"), 1.0
FEWEST_TICKS = 50
"""Fewer make no share: one tick of few is a large one."""


class Reading(NamedTuple):
    """What /proc/stat counted up to an instant, in clock ticks."""

    at_s: float
    every: int
    stolen: int


def read(stat: str, at_s: float) -> Reading:
    """Return the counts of all CPUs; proc(5): user nice system idle iowait irq softirq steal."""
    ticks = [int(number) for number in stat.split("\n", 1)[0].split()[1:9]]
    return Reading(at_s, sum(ticks), ticks[7])


def stolen_pct(before: Reading, after: Reading) -> float:
    """Return the share of the CPUs' time that the hypervisor took between two readings."""
    return 100 * (after.stolen - before.stolen) / max(1, after.every - before.every)


class Watch:
    """Reads what was stolen once in `EVERY_S`, in a thread of its own."""

    def __init__(self) -> None:
        self.readings = [self._now()]
        threading.Thread(target=self._watch, daemon=True).start()

    def _now(self) -> Reading:
        return read(STAT.read_text(), time.monotonic())

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.readings.append(self._now())

    def mark(self) -> float:
        """Begin a second, and return when."""
        self.readings.append(self._now())
        return self.readings[-1].at_s

    def since(self, begin_s: float, end_s: float = math.inf) -> list[float]:
        """Return the share stolen in each second since a marked instant, up to another one or now."""
        pairs = [p for p in pairwise([*self.readings, self._now()]) if p[0].at_s >= begin_s and p[1].at_s <= end_s]
        return [stolen_pct(*pair) for pair in pairs if pair[1].every - pair[0].every >= FEWEST_TICKS]

    def mean_pct(self, begin_s: float) -> float:
        """Return the share stolen since an instant."""
        now = self._now()
        return stolen_pct(next((each for each in self.readings if each.at_s >= begin_s), now), now)

    def wait_for_quiet(self) -> None:
        """Wait for a quiet moment, as long as patience lasts."""
        begin_s = time.monotonic()
        while time.monotonic() - begin_s < PATIENCE_S:
            time.sleep(EVERY_S)
            last = self.since(begin_s)[-QUIET_S:]
            if len(last) == QUIET_S and max(last) < QUIET_PCT:
                return


def measures(item: pytest.Item) -> bool:
    """Return whether a test is marked `load` or `timed`."""
    return any(item.iter_markers("load")) or any(item.iter_markers("timed"))


def beside_others(item: pytest.Item) -> bool:
    """Return whether other workers of pytest-xdist run tests at the same time."""
    return getattr(item.config, "workerinput", {}).get("workercount", 1) > 1


class Repeats:
    """Runs the tests that measure, again where they were disturbed."""

    measuring = False
    """Whether the test that runs is marked `load` or `timed`: only such a one may run a campaign."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._left_s = BUDGET_S
        self._module: tuple[object, float] = (None, 0.0)
        self._timeout: object = None
        self._repeated: list[str] = []
        self._made: dict[str, tuple[float, float]] = {}
        """Fixture of the whole session -> when it was made: before the module began that takes it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """Note when a fixture is made that tests of several modules take."""
        begin_s = self._watch.mark() if fixturedef.scope == "session" else 0.0
        made = yield
        if fixturedef.scope == "session":
            self._made[fixturedef.argname] = (begin_s, self._watch.mark())
        return made

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse to drive a load beside other tests."""
        Repeats.measuring = measures(item)
        if any(item.iter_markers("load")) and beside_others(item):
            pytest.fail("it measures, and runs alone: without -n, or leave it out by -m 'not load'")

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, settings: object) -> None:
        """Keep what pytest-timeout was told: each attempt may take as long."""
        self._timeout = settings

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test that measures, as often as needed; leave the others to pytest."""
        module = item.getparent(pytest.Module)
        if module is not self._module[0]:
            self._module = (module, self._watch.mark())
        if not measures(item) or beside_others(item):
            self._timeout = None
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._attempts(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        self._timeout = None
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _attempts(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        begin_s = failed_s = self._module[1]
        for left in reversed(range(ATTEMPTS)):
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            if left < ATTEMPTS - 1:
                self._left_s -= time.monotonic() - failed_s
            made = (self._watch.since(*self._made[each]) for each in item.fixturenames if each in self._made)
            stolen = max(chain(self._watch.since(begin_s), *made), default=0.0)
            if not any(report.failed for report in reports) or stolen < STOLEN_PCT:
                return reports
            failed_s = time.monotonic()
            self._repeated.append(f"{item.nodeid}: the hypervisor took up to {stolen:.0f} %")
            if not left or self._left_s <= 0 or not self._begin_anew(item):
                break
            begin_s = self._watch.mark()
        self._repeated.pop()
        self._judge(item, reports, begin_s)
        return reports

    def _begin_anew(self, item: pytest.Item) -> bool:
        """Tear all fixtures down, wait for a quiet moment, give the test its time again; return whether it worked."""
        self._arm(item)
        try:
            item.session._setupstate.teardown_exact(None)
        except Exception:  # noqa: BLE001 - a fixture's own error: the test has failed already, and is not repeated
            return False
        if self._timeout is not None:
            item.ihook.pytest_timeout_cancel_timer(item=item)
        self._watch.wait_for_quiet()
        self._arm(item)
        return True

    def _arm(self, item: pytest.Item) -> None:
        if self._timeout is not None:
            item.ihook.pytest_timeout_cancel_timer(item=item)
            item.ihook.pytest_timeout_set_timer(item=item, settings=self._timeout)

    def _judge(self, item: pytest.Item, reports: list[pytest.TestReport], begin_s: float) -> None:
        """Turn the failure of a test that drives a load into a skip where a verdict would be `inconclusive`."""
        mean_pct = self._watch.mean_pct(begin_s)
        if mean_pct < STOLEN_PCT or item.get_closest_marker("load") is None:
            return
        for report in reports:
            if report.failed and report.when != "teardown":
                said = report.longreprtext.strip().splitlines()[-1:]
                why = f"nothing can be told: the hypervisor took {mean_pct:.0f} % of the CPUs, at last too; {said}"
                report.outcome, report.longrepr = "skipped", (item.location[0], item.location[1] or 0, why)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was repeated."""
        for said in self._repeated:
            terminalreporter.write_line(f"REPEATED {said}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch."""
    config.pluginmanager.register(Repeats())
