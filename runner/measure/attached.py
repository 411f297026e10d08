"""Find the process and the CPUs of a server that already runs.

The lab neither starts nor ends such a server.
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
from runner.measure.tls import Tls
from runner.measurement import NO_EXIT_CODE, Placement
from runner.model import LabError, Server, UserApi
from runner.store import lab_root

INIT = 1
FORWARDERS = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "socat")
"""Programs that accept connections on behalf of a server.

If one of these programs listens at the server's address, the server itself is another process,
which the lab cannot find.
"""


def leaders(address: str, port: int) -> list[int]:
    """Return the pids of the processes that listen at `address` and `port`.

    If a process and its child both listen, leave out the child. If several processes with the same
    parent listen, they are the workers of a server, so return only their parent. But return the
    workers if their parent is init, the lab's own process or an ancestor of the lab's process.
    Return an empty list if no process of this machine listens there, or if this user may not see
    which process listens.
    """
    ours = (
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
    )
    if not ip_address(address).is_loopback and address not in ours:
        return []  # the server is on another machine, whose sockets this kernel does not list
    parents = _holders(_sockets(address, port))
    found = sorted(pid for pid, parent in parents.items() if parent not in parents)
    above = {parents[pid] for pid in found}
    if len(found) < 2 or len(above) > 1:
        return found
    common = above.pop()
    return found if common <= INIT or os.getpid() in descendants(common) else [common]


def _sockets(address: str, port: int) -> set[str]:
    """Return the inodes of the sockets that accept connections to `address` and `port`.

    If no socket is bound to `address` itself, return the sockets that are bound to 0.0.0.0 or `::`,
    because these sockets accept connections to every address of this machine.
    """
    found: dict[str, set[str]] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                host, _, number = local.partition(":")
                # 0A is TCP_LISTEN of the kernel's include/net/tcp_states.h.
                if state == "0A" and int(number, 16) == port:
                    # The kernel prints the address in the machine's byte order.
                    words = struct.unpack(f"={len(host) // 8}I", bytes.fromhex(host))
                    found.setdefault(
                        str(ip_address(struct.pack(f">{len(words)}I", *words))), set()
                    ).add(rest[5])
    # A socket that is bound to any address in `names` accepts connections to `address`. The most
    # specific address comes first.
    names = [address, "::"]
    if ip_address(address).version == 4:
        # The lab only looks for other programs' sockets at 0.0.0.0. The lab does not listen there.
        names[1:1] = [str(ip_address(f"::ffff:{address}")), "0.0.0.0"]  # noqa: S104
    return next((found[name] for name in names if name in found), set())


def _holders(sockets: set[str]) -> dict[int, int]:
    """Return the processes that have one of `sockets` open: a dict from pid to the parent's pid.

    `sockets` contains inodes. psutil is not used for this search, because psutil names only one
    process per socket, but several workers may share a socket.
    """
    links = {f"socket:[{inode}]" for inode in sockets}
    found = {}
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):  # the file was closed meanwhile
                    # pathlib is not used here, because the text of the link is not a path.
                    if os.readlink(entry.path) in links:  # noqa: PTH115
                        found[pid] = psutil.Process(pid).ppid()
                        break
    return found


@dataclass(frozen=True)
class Listener:
    """The process that listens at an address, or the reason why the process is unknown."""

    pid: int
    why: str

    @property
    def identity(self) -> str | None:
        """Id of the process, which no other process of this machine ever gets.

        None if the process is unknown.
        """
        return (
            f"{boot_id()} {self.pid} {start_ticks(self.pid)}" if self.pid != UNKNOWN_PID else None
        )


def find(api: UserApi) -> Listener:
    """Return the process of the server that listens at the address of `api`.

    The server's process is unknown if `leaders` finds no process, several processes, or only a
    program of FORWARDERS. Then the returned Listener contains the reason instead of a process.
    """
    leading = leaders(api.address, api.port or 80)
    if not leading:
        return Listener(UNKNOWN_PID, "no process that listens there is visible to this user")
    if len(leading) > 1:
        return Listener(
            UNKNOWN_PID, f"{len(leading)} processes without a common parent listen there"
        )
    name = psutil.Process(leading[0]).name()
    if name in FORWARDERS:
        return Listener(
            UNKNOWN_PID,
            f"{name} listens there and forwards connections to another program: let the "
            "server itself listen at this address",
        )
    return Listener(leading[0], "")


def cpus_of(pid: int) -> tuple[int, ...]:
    """Return all CPUs on which threads of a process or of its descendants may run.

    Return an empty tuple if the process has ended.
    """
    found: set[int] = set()
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{each}/task").iterdir():
                with contextlib.suppress(OSError):
                    found |= os.sched_getaffinity(int(thread.name))
    return tuple(sorted(found))


def place(apis: Sequence[UserApi]) -> Placement:
    """Return the CPUs on which the servers may run, and all other CPUs for the generator.

    If the servers may use every CPU, the generator gets all CPUs but the first. A server whose
    process was not found contributes no CPUs. If no server was found, the generator gets all CPUs.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    pids = [found.pid for api in apis if (found := find(api)).pid != UNKNOWN_PID]
    server = tuple(sorted({cpu for pid in pids for cpu in cpus_of(pid)}))
    others = tuple(cpu for cpu in cpus if cpu not in server)
    return Placement(server, others or cpus[1:] or cpus)


def tls_of(api: UserApi) -> Tls | None:
    """Return the settings with which clients reach a user's server over TLS.

    Return None if the URL of the server does not begin with `https`.
    """
    parts = urlsplit(str(api.url))
    if parts.scheme != "https":
        return None
    ca, certificate, key = map(_resolved, (api.ca, api.certificate, api.key))
    return Tls(str(parts.hostname), ca, api.insecure, certificate, key)


def _resolved(path: str | None) -> str | None:
    """Return `path`, which is relative to the lab's root, as an absolute path.

    Return None if `path` is None.
    """
    return None if path is None else str((lab_root() / path).resolve())


def target(api: UserApi, found: Listener) -> Running:
    """Return a Running for a user's server. Calling `stop` on the Running does nothing."""
    pid = found.pid
    known = found.pid != UNKNOWN_PID
    process = psutil.Process(pid) if known else None
    group = cgroups.of_process(pid) if known else None

    def exit_code() -> int | None:
        """Return NO_EXIT_CODE if the server has ended, otherwise None.

        A server whose process is unknown counts as ended only if its port refuses a connection.
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
        # True if the process's control group holds only the process and its descendants.
        alone=group is not None and set(cgroups.members(group.folder)) <= set(descendants(pid)),
        cpus=lambda: cpus_of(pid) if known else (),
        tls=tls_of(api),
    )
    return running


class AttachedEngine:
    """An engine that starts nothing, because the user has already started the servers."""

    name = "attached"

    def __init__(self, apis: Sequence[UserApi]) -> None:
        self.reason = f"{' and '.join(str(api.url) for api in apis)} answered before the run"
        self._apis = {api.name: api for api in apis}

    def prepare(self, server: Server) -> str | None:
        """Check that the server runs; return None, because the lab does not build its image."""
        self._find(server.name)
        return None

    @contextlib.contextmanager
    def started(self, server: Server, *_: Any, **__: Any) -> Iterator[Running]:
        """Yield the server, which the user has started.

        Raise LabError if the server's process is not the one with which the run began. The server
        gets no environment variables or files from the lab.
        """
        yield target(self._apis[server.name], self._find(server.name))

    def _find(self, name: str) -> Listener:
        api = self._apis[name]
        found = find(api)
        if found.identity != api.process:
            raise LabError(
                f"The process of {name} at {api.url} is no longer the one with which the "
                "run began, because the server ended or was restarted. Start a new run.",
                exit_code=1,
            )
        return found

    def database(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[RunningDatabase]:
        """Raise LabError, because this engine starts no database."""
        raise LabError(
            "The lab starts a database only for servers that it also starts: choose a workload "
            "without a database."
        )
