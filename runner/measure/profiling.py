"""Profile the slices of a session: the instrument that `measure` calls around each load."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.measure.engine import UNKNOWN_PID, Running
from runner.measure.loading import Bench
from runner.measure.perf import Perf, refusal
from runner.measure.procfs import descendants
from runner.measure.tools import find_program
from runner.model import LabError
from runner.profiled import EVENTS, STACKS, kind_of
from runner.store import raw_name


@dataclass(frozen=True)
class Profiling:
    """perf around the loads of a profile's slices."""

    perf: Perf

    @classmethod
    def of(cls, bench: Bench) -> "Profiling":
        """Return the profiling of a lab's servers; raise LabError if perf is missing or refused."""
        if (why := refusal()) is not None:
            raise LabError(why)
        path = find_program("perf")
        assert path is not None
        cpus = bench.cpus_of(bench.sites.server)
        return cls(Perf(path, cpus, bench.lab.ledger))

    @contextlib.contextmanager
    def __call__(self, running: Running, place: int, folder: Path) -> Iterator[None]:
        """Record or count a server's processes while the context is open, as its place says."""
        if running.pid == UNKNOWN_PID:
            raise LabError(
                "The server's process is unknown, so it cannot be profiled: run the lab as the "
                "user of the server, or as root.",
                exit_code=1,
            )
        pids = list(descendants(running.pid))
        match kind_of(place):
            case "recorded":
                with self.perf.recording(pids, folder / raw_name(STACKS, place)):
                    yield
            case "counted":
                with self.perf.counting(pids, folder / raw_name(EVENTS, place)):
                    yield
            case "plain":
                yield
