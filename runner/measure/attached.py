"""A server that runs already: which process it is, which CPUs it may use.

The lab neither starts nor ends it.
"""

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from runner.measure import cgroups
from runner.measure.engine import UNKNOWN_PID, Running, RunningDatabase, ask
from runner.measure.leftovers import boot_id, start_ticks
from runner.measure.procfs import descendants
from runner.measurement import NO_EXIT_CODE, Placement
from runner.model import LabError, Server, UserApi

INIT = 1
FORWARDERS = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "socat")
"""Programs that listen for another one, whose CPU time is then not theirs."""


def leaders(address: str, port: int) -> list[int]:
    """Return the processes that listen at `address` and `port`, without those whose parent does so
    as well.

    Several that have one parent in common count as that parent, if it is neither init nor one
    above the lab: workers with a socket each. Empty if no process of this machine has the
    socket, or this user may not see which.
    """
    ours = (
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
    )
    if not ip_address(address).is_loopback and address not in ours:
        return []  # another machine's sockets are not in this kernel's tables
    parents = _holders(_sockets(address, port))
    found = sorted(pid for pid, parent in parents.items() if parent not in parents)
    above = {parents[pid] for pid in found}
    if len(found) < 2 or len(above) > 1:
        return found
    common = above.pop()
    return found if common <= INIT or os.getpid() in descendants(common) else [common]


def _sockets(address: str, port: int) -> set[str]:
    """Return the inodes of the sockets to which a connection may come: those of the address before
    those of all.
    """
    found: dict[str, set[str]] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                host, _, number = local.partition(":")
                if (
                    state == "0A" and int(number, 16) == port
                ):  # TCP_LISTEN of the kernel's include/net/tcp_states.h
                    words = struct.unpack(
                        f"={len(host) // 8}I", bytes.fromhex(host)
                    )  # in the machine's byte order
                    found.setdefault(
                        str(ip_address(struct.pack(f">{len(words)}I", *words))), set()
                    ).add(rest[5])
    # What a socket that accepts connections to `address` can be bound to, the most exact first.
    names = [address, "::"]
    if ip_address(address).version == 4:
        names[1:1] = [str(ip_address(f"::ffff:{address}")), "0.0.0.0"]  # noqa: S104 - what others listen at
    return next((found[name] for name in names if name in found), set())


def _holders(sockets: set[str]) -> dict[int, int]:
    """Return the processes that have one of the sockets open, with their parents.

    Psutil names one process a socket.
    """
    links = {f"socket:[{inode}]" for inode in sockets}
    found = {}
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                    if os.readlink(entry.path) in links:  # noqa: PTH115 - the text of the link, which is no path
                        found[pid] = psutil.Process(pid).ppid()
                        break
    return found


@dataclass(frozen=True)
class Listener:
    """The process that listens at an address, or why it is not known."""

    pid: int
    why: str

    @property
    def identity(self) -> str | None:
        """What no other process has, before or after it."""
        return (
            f"{boot_id()} {self.pid} {start_ticks(self.pid)}" if self.pid != UNKNOWN_PID else None
        )


def find(api: UserApi) -> Listener:
    """Return the process that leads those that listen at the address of `api`."""
    leading = leaders(api.address, api.port or 80)
    if not leading:
        return Listener(
            UNKNOWN_PID, "no process of this machine that this user may look at listens there"
        )
    if len(leading) > 1:
        return Listener(
            UNKNOWN_PID, f"{len(leading)} processes that have no parent in common listen there"
        )
    name = psutil.Process(leading[0]).name()
    if name in FORWARDERS:
        return Listener(
            UNKNOWN_PID,
            f"{name} listens there for another program: let the server itself listen there",
        )
    return Listener(leading[0], "")


def cpus_of(pid: int) -> tuple[int, ...]:
    """Return the CPUs that any thread of a process and its descendants may run on.

    None for one that has ended.
    """
    found: set[int] = set()
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{each}/task").iterdir():
                with contextlib.suppress(OSError):
                    found |= os.sched_getaffinity(int(thread.name))
    return tuple(sorted(found))


def place(apis: Sequence[UserApi]) -> Placement:
    """Return the CPUs that the servers were seen to use, and for the generator all others.

    If none is left, it gets all but the first. A server that was not found has none; of none
    found it gets all.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    pids = [found.pid for api in apis if (found := find(api)).pid != UNKNOWN_PID]
    server = tuple(sorted({cpu for pid in pids for cpu in cpus_of(pid)}))
    others = tuple(cpu for cpu in cpus if cpu not in server)
    return Placement(server, others or cpus[1:] or cpus)


def target(api: UserApi, found: Listener) -> Running:
    """Return the server of `api` as one that runs, whose end is not the lab's to ask for."""
    pid = found.pid
    known = found.pid != UNKNOWN_PID
    process = psutil.Process(pid) if known else None
    group = cgroups.of_process(pid) if known else None

    def exit_code() -> int | None:
        """Of a server whose process is not known, only a refused connection says that it has
        ended.
        """
        try:
            if process is None:
                ask(running, api.probe_path, timeout_s=2.0)
            elif not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return NO_EXIT_CODE
        except (ConnectionRefusedError, psutil.NoSuchProcess):
            return NO_EXIT_CODE
        except OSError:
            pass
        return None

    running = Running(
        pid,
        api.port or 80,
        exit_code,
        stop=lambda: None,
        address=api.address,
        host=urlsplit(str(api.url)).netloc,
        # Whether the control group of the process holds nothing but it and its descendants.
        alone=group is not None and set(cgroups.members(group.folder)) <= set(descendants(pid)),
        cpus=lambda: cpus_of(pid) if known else (),
    )
    return running


class AttachedEngine:
    """No engine at all: the server that is there."""

    name = "attached"

    def __init__(self, apis: Sequence[UserApi]) -> None:
        self.reason = f"{' and '.join(str(api.url) for api in apis)} answered before the run"
        self._apis = {api.name: api for api in apis}

    def prepare(self, server: Server) -> str | None:
        """Check that the server is there; there is no image."""
        self._find(server.name)
        return None

    @contextlib.contextmanager
    def started(self, server: Server, *_: Any, **__: Any) -> Iterator[Running]:
        """Yield the server as it is, which must be the process that the run began with.

        Nothing is handed to it.
        """
        yield target(self._apis[server.name], self._find(server.name))

    def _find(self, name: str) -> Listener:
        api = self._apis[name]
        found = find(api)
        if found.identity != api.process:
            raise LabError(
                f"At {api.url} is not the process of {name} that the run began with: it was "
                "started anew or ended. Start a new run.",
                exit_code=1,
            )
        return found

    def database(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[RunningDatabase]:
        """Refuse: nothing here starts a database."""
        raise LabError("A server that the lab did not start gets no database from it.")
