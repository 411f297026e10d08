"""A server that runs already: which process it is, which CPUs it may use; the lab neither starts nor ends it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from runner.measure import cgroups
from runner.measure.engine import UNKNOWN_PID, Handed, Running, RunningDatabase
from runner.measure.leftovers import boot_id, start_ticks
from runner.measure.listeners import leaders
from runner.measure.procfs import descendants
from runner.measure.readiness import ask
from runner.measurement import NO_EXIT_CODE, Placement
from runner.model import LabError, Server, UserApi

FORWARDERS = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "socat")
"""Programs that listen for another one, whose CPU time is then not theirs."""
NO_DATABASE = "A server that the lab did not start gets no database from it."


@dataclass(frozen=True)
class Found:
    """The process that listens at an address, or why it is not known."""

    pid: int
    why: str

    @property
    def identity(self) -> str | None:
        """What tells the process from every other one, before and after it."""
        return f"{boot_id()} {self.pid} {start_ticks(self.pid)}" if self.pid != UNKNOWN_PID else None


def find(own: UserApi) -> Found:
    """Return the process that leads those that listen at the address of `own`."""
    leading = leaders(own.address, _port(own))
    if not leading:
        return Found(UNKNOWN_PID, "no process of this machine that this user may look at listens there")
    if len(leading) > 1:
        return Found(UNKNOWN_PID, f"{len(leading)} processes that have no parent in common listen there")
    name = psutil.Process(leading[0]).name()
    if name in FORWARDERS:
        return Found(UNKNOWN_PID, f"{name} listens there for another program: let the server itself listen there")
    return Found(leading[0], "")


def _port(own: UserApi) -> int:
    assert own.port is not None  # it goes with a URL
    return own.port


def cpus_of(pid: int) -> tuple[int, ...]:
    """Return the CPUs that any thread of a process and its descendants may run on; none for one that has ended."""
    found: set[int] = set()
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{each}/task").iterdir():
                with contextlib.suppress(OSError):
                    found |= os.sched_getaffinity(int(thread.name))
    return tuple(sorted(found))


def place(owns: Sequence[UserApi]) -> Placement:
    """Return the CPUs that the servers were seen to use, and for the generator all others.

    Where none is left, it gets all but the first. A server that was not found has none; of none found it gets all.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    pids = [found.pid for own in owns if (found := find(own)).pid != UNKNOWN_PID]
    if not pids:
        return Placement((), cpus)
    server = tuple(sorted({cpu for pid in pids for cpu in cpus_of(pid)}))
    others = tuple(cpu for cpu in cpus if cpu not in server)
    return Placement(server, others or cpus[1:] or cpus)


def remarks(own: UserApi) -> list[str]:
    """Say what a reader must know of numbers of a server that the lab did not start."""
    said = [
        f"The server at {own.url} was running before, and is the same in every trial: what one leaves behind, the next "
        "one finds."
    ]
    found = find(own)
    if found.pid == UNKNOWN_PID:
        said.append(f"The CPU time of the server at {own.url} is not known, and so no verdict: {found.why}.")
    return said


def target(own: UserApi, found: Found) -> Running:
    """Return the server of `own` as one that runs, whose end is not the lab's to ask for."""
    pid = found.pid
    known = pid != UNKNOWN_PID
    assert own.url is not None
    running = Running(
        pid,
        _port(own),
        exit_code=_process_end(psutil.Process(pid)) if known else lambda: _answer_end(running, own.probe_path),
        stop=lambda: None,
        address=own.address,
        host=urlsplit(own.url).netloc,
        alone=known and _alone(pid),
        cpus=(lambda: cpus_of(pid)) if known else lambda: (),
    )
    return running


def _alone(pid: int) -> bool:
    """Return whether the control group of a process holds nothing but the process and its descendants."""
    group = cgroups.of_process(pid)
    return group is not None and set(cgroups.members(group)) <= set(descendants(pid))


def _process_end(process: psutil.Process) -> Callable[[], int | None]:
    def code() -> int | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                return None
        return NO_EXIT_CODE

    return code


def _answer_end(running: Running, path: str) -> int | None:
    try:
        ask(running, path, timeout_s=2.0)
    except ConnectionRefusedError:
        return NO_EXIT_CODE
    except OSError:
        return None
    return None


class AttachedEngine:
    """No engine at all: the server that is there."""

    name = "attached"

    def __init__(self, owns: Sequence[UserApi]) -> None:
        self.reason = f"{' and '.join(str(own.url) for own in owns)} answered before the run"
        self._owns = {own.name: own for own in owns}

    def prepare(self, server: Server) -> str | None:
        """Check that the server is there; there is no image."""
        self._find(server.name)
        return None

    @contextlib.contextmanager
    def started(
        self,
        server: Server,
        cpus: tuple[int, ...],  # noqa: ARG002 - what other engines need
        handed: Handed,  # noqa: ARG002
        log: Path,  # noqa: ARG002
    ) -> Iterator[Running]:
        """Yield the server as it is, which must be the process that the run began with; nothing is handed to it."""
        yield target(self._owns[server.name], self._find(server.name))

    def _find(self, name: str) -> Found:
        own = self._owns[name]
        found = find(own)
        if found.identity != own.process:
            raise LabError(
                f"At {own.url} is not the process of {name} that the run began with: it was started anew or "
                "ended. Start a new run.",
                exit_code=1,
            )
        return found

    def prepare_database(self) -> str | None:
        """Refuse: nothing here starts a database."""
        raise LabError(NO_DATABASE)

    def database(
        self,
        cpus: tuple[int, ...],  # noqa: ARG002 - what other engines need
        verifier: str,  # noqa: ARG002
        log: Path,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[RunningDatabase]:
        """Refuse as `prepare_database` does."""
        raise LabError(NO_DATABASE)
