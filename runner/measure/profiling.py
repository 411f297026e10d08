"""Profile the slices of a session with perf. `session.measure` runs perf around each load."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner.measure.engine import UNKNOWN_PID
from runner.measure.loading import Bench
from runner.measure.perf import Perf, need_perf
from runner.measure.session import Observed
from runner.model import LabError
from runner.profiled import DATABASE_STACKS, EVENTS, STACKS, kind_of
from runner.store import raw_name


class Recorder(Protocol):
    """perf on the server's host: `perf.Perf`, or `profiler.FarPerf` on another host."""

    def recording(self, pid: int, out: Path) -> AbstractContextManager[None]:
        """Record the call stacks of a process and its descendants, as `Perf.recording` does."""

    def counting(self, pid: int, out: Path) -> AbstractContextManager[None]:
        """Count events of a process and its descendants, as `Perf.counting` does."""


@dataclass(frozen=True)
class Profiling:
    """Runs perf during the loads of a profile's slices."""

    perf: Recorder
    session: str = ""
    """Name of the profile's session. The name determines what is observed in each slice."""
    with_database: bool = True
    """False if the database runs on another host than the server, so that perf cannot record it."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, bench: Bench) -> Iterator["Profiling"]:
        """Yield a Profiling of the servers of `bench`.

        On another host, perf runs in a container, which is removed on leaving. Raise LabError with
        the reason if perf is missing or refused.
        """
        sites = bench.sites
        cpus = bench.cpus_of(sites.server)
        fleet = bench.lab.fleet
        if fleet is None:
            yield cls(Perf(need_perf(), cpus, bench.lab.ledger))
            return
        from runner.measure.profiler import FarPerf, profiler  # noqa: PLC0415 - imports docker-py

        with profiler(fleet.server, bench.lab.ledger) as station:
            yield cls(
                FarPerf(station, cpus, sites.server), with_database=sites.database is sites.server
            )

    @contextlib.contextmanager
    def __call__(self, observed: Observed, place: int, folder: Path) -> Iterator[None]:
        """Observe the server while the context is open.

        The place of the slice in its session decides whether perf records the server's call stacks,
        counts the server's events, or does nothing. If perf records call stacks, and the database
        runs on the server's host, perf also records the database's call stacks.
        """
        server = observed.server
        if server.pid == UNKNOWN_PID:
            raise LabError(
                "The server's process is unknown, so it cannot be profiled: run the lab as the "
                "user of the server, or as root.",
                exit_code=1,
            )
        with contextlib.ExitStack() as stack:
            match kind_of(self.session, place):
                case "recorded":
                    if observed.database is not None and self.with_database:
                        out = folder / raw_name(DATABASE_STACKS, place)
                        stack.enter_context(self.perf.recording(observed.database.pid, out))
                    stack.enter_context(
                        self.perf.recording(server.pid, folder / raw_name(STACKS, place))
                    )
                case "counted":
                    stack.enter_context(
                        self.perf.counting(server.pid, folder / raw_name(EVENTS, place))
                    )
                case "plain":
                    pass
            yield
