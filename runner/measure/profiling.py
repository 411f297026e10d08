"""Profile the slices of a session, by an instrument that `measure` opens around each load."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.measure.engine import UNKNOWN_PID
from runner.measure.loading import Bench
from runner.measure.perf import Perf, need_perf
from runner.measure.session import Observed
from runner.model import LabError
from runner.profiled import DATABASE_STACKS, EVENTS, STACKS, kind_of
from runner.store import raw_name


@dataclass(frozen=True)
class Profiling:
    """Runs perf during the loads of a profile's slices."""

    perf: Perf
    session: str = ""
    """Name of the profile's session, which determines what is observed in each slice."""

    @classmethod
    def of(cls, bench: Bench) -> "Profiling":
        """Return a Profiling of the servers of `bench`; raise LabError if perf is not installed."""
        path = need_perf()
        cpus = bench.cpus_of(bench.sites.server)
        return cls(Perf(path, cpus, bench.lab.ledger))

    @contextlib.contextmanager
    def __call__(self, observed: Observed, place: int, folder: Path) -> Iterator[None]:
        """Observe the server while the context is open.

        The place of the slice in its session decides whether perf records the server's call stacks,
        counts its events, or does nothing. If call stacks are recorded, so are the database's.
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
                    if observed.database is not None:
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
