"""Profile the slices of a session with perf.

In a profile, `session.measure` uses an object of the class Profiling as its instrument.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runner.measure.engine import UNKNOWN_PID
from runner.measure.loading import Bench
from runner.measure.perf import Perf, need_perf
from runner.measure.session import Observed
from runner.model import CannotGoOnError, LabError
from runner.profiled import DATABASE_STACKS, EVENTS, STACKS, kind_of
from runner.store import raw_name

if TYPE_CHECKING:
    from runner.measure.fleet import Fleet


class Recorder(Protocol):
    """perf on one host: `perf.Perf` on this machine, or `profiler.FarPerf` on another host."""

    def recording(self, pid: int, out: Path) -> AbstractContextManager[None]:
        """Record the call stacks of a process and its descendants, as `Perf.recording` does."""

    def counting(self, pid: int, out: Path) -> AbstractContextManager[None]:
        """Count events of a process and its descendants, as `Perf.counting` does."""


@dataclass(frozen=True)
class Profiling:
    """Runs perf during the load of each slice of a profile.

    A profile is a session in which perf observes the servers. A slice is one server's turn in the
    session.
    """

    of_server: Recorder
    of_database: Recorder | None
    """perf on the host of the database, or None if that host refuses perf."""
    database_refusal: str | None = None
    """The reason why the database cannot be profiled, or None if it can be profiled."""
    session: str = ""
    """Name of the profile's session, which decides what perf does in each slice (`kind_of`)."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, bench: Bench) -> Iterator["Profiling"]:
        """Yield a Profiling for the servers of `bench` and their databases.

        On other hosts, perf runs in containers, which are removed when the context ends. Raise
        LabError with the reason if perf is missing or refused on the server's host.
        """
        fleet = bench.lab.fleet
        if fleet is None:
            perf = Perf(need_perf(), bench.cpus_of(bench.sites.server), bench.lab.ledger)
            yield cls(perf, perf)
            return
        with _on_other_hosts(cls, bench, fleet) as profiling:
            yield profiling

    @contextlib.contextmanager
    def __call__(self, observed: Observed, place: int, folder: Path) -> Iterator[None]:
        """Observe the server while the context is open, and write perf's files to `folder`.

        A slice is one turn of the server in the session, and `place` is the slice's number among
        the server's slices, from 1. The name of the session and `place` decide whether perf records
        the server's call stacks, counts the server's events, or does nothing. If perf records the
        server's call stacks, perf also records the database's call stacks, unless there is no
        database or its host refuses perf. Raise LabError if the server's process is unknown.
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
                    if observed.database is not None and self.of_database is not None:
                        out = folder / raw_name(DATABASE_STACKS, place)
                        stack.enter_context(self.of_database.recording(observed.database.pid, out))
                    stack.enter_context(
                        self.of_server.recording(server.pid, folder / raw_name(STACKS, place))
                    )
                case "counted":
                    stack.enter_context(
                        self.of_server.counting(server.pid, folder / raw_name(EVENTS, place))
                    )
                case "plain":
                    pass
            yield


@contextlib.contextmanager
def _on_other_hosts(kind: type[Profiling], bench: Bench, fleet: "Fleet") -> Iterator[Profiling]:
    """Yield a Profiling that runs perf on the hosts of server and database.

    If the database's host refuses perf, yield a Profiling of the servers only.
    """
    from runner.measure.profiler import FarPerf, profiler  # noqa: PLC0415 - imports docker-py

    sites = bench.sites
    ledger = bench.lab.ledger
    with contextlib.ExitStack() as stack:
        station = stack.enter_context(profiler(fleet.server, ledger))
        of_server = FarPerf(station, bench.cpus_of(sites.server), sites.server)
        if not bench.placement.database or fleet.database is fleet.server:
            yield kind(of_server, of_server)
            return
        try:
            station = stack.enter_context(profiler(fleet.database, ledger))
        except CannotGoOnError:
            raise
        except LabError as refused:
            profiling = kind(of_server, None, str(refused))
        else:
            of_database = FarPerf(station, _cpus_beside_database(bench), sites.database)
            profiling = kind(of_server, of_database)
        yield profiling


def _cpus_beside_database(bench: Bench) -> tuple[int, ...]:
    """Return the CPUs on which perf runs on the database's host.

    These are the CPUs of generators and instruments that the database does not use. If the database
    uses all of them, return all of them.
    """
    cpus = bench.cpus_of(bench.sites.database)
    return tuple(cpu for cpu in cpus if cpu not in bench.placement.database) or cpus
