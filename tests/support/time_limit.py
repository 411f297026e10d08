"""Plugin of pytest that leaves out tests if the time for all tests is over.

`.ci/run` sets TESTS_END, because a CI job that takes longer than 90 minutes is ended from outside,
and then says nothing about the tests. On a slow machine, the last tests are therefore left out and
counted. `make test` and `make test-all` do not set TESTS_END, so they always run all tests.
"""

import os
import time

import pytest

END = float(os.environ.get("TESTS_END", "inf"))
"""Time after which no further test starts, in seconds since 1970."""
IS_REPEATED = "ATTEMPT" in os.environ
"""True if `make test` runs failed tests again. These tests always run, because they have failed."""
REASON = "not run, because the time for all tests is over"


class TimeLimit:
    """The plugin, which skips tests and counts them."""

    def __init__(self) -> None:
        self._left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test, before its fixtures are made, if the time is over."""
        if time.time() > END and not IS_REPEATED:
            pytest.skip(REASON)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that were left out, whichever worker should have run them."""
        self._left_out += report.skipped and REASON in str(report.longrepr)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left_out:
            terminalreporter.write_line(f"TIME LIMIT: {self._left_out} tests were {REASON}.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimit())
