"""Record everything that a run starts, so that all of it can be removed if the run dies.

Each runner writes a ledger file under data/.live/. The file begins with the runner's `identity`,
and the clean-up never touches a ledger whose runner is alive. Each entry identifies a thing without
ambiguity: a process by its pid and start time, a container by its full id. The name of a temporary
folder identifies the process that made it, by pid namespace, pid and start time:
`bench-NAMESPACE-PID-START-…`.

The watchdog (`python -m runner.measure.leftovers watchdog LEDGER`) is a process that outlives the
runner for a moment. The watchdog holds the read end of a pipe whose write end only the runner has.
No matter how the runner ends, even by SIGKILL, the kernel closes the pipe, and then the watchdog
removes everything that the ledger lists.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from runner.measure import cgroups
from runner.places import places
from runner.store import replacing

if TYPE_CHECKING:
    from docker import DockerClient

PREFIX = "bench-"
"""Prefix of the lab's temporary folders and control groups.

The lab never removes a folder or a group whose name does not begin with this prefix.
"""


def boot_id() -> str:
    """Return the kernel's id of this boot.

    A pid identifies a process only together with this id, because each boot assigns pids anew.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return a process's start time, in clock ticks since boot; None if the process has ended."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_running(pid: int) -> bool:
    """Return whether a process runs. A zombie has ended, although it still exists."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def pid_namespace() -> int:
    """Return the id of this process's pid namespace; a container has a namespace of its own."""
    return Path("/proc/self/ns/pid").stat().st_ino


def identity(pid: int) -> str:
    """Return a process's identity, unique for all time: boot id, pid namespace, pid, start time."""
    return f"{boot_id()}:{pid_namespace()}:{pid}:{start_ticks(pid)}"


def lives(whose: str) -> bool:
    """Return whether the process that has the identity `whose` exists, or may exist.

    This process cannot see the processes of another pid namespace. So if `whose` belongs to another
    pid namespace of this boot, return True.
    """
    boot, _, rest = whose.partition(":")
    numbering, _, rest = rest.partition(":")
    pid = rest.partition(":")[0]
    if boot == boot_id() and numbering != str(pid_namespace()):
        return True
    return pid.isdigit() and identity(int(pid)) == whose


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name; None without such a process.

    Field 0 is the state, 3 the session, and 19 the start time.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


class Ledger:
    """The runner's list of the things that it started.

    The list is a file with one JSON line per entry. The file is removed after the clean-up.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stored = StoredLedger(identity(os.getpid()))
        self._stored.write(path)

    def add(self, entry: Entry) -> None:
        """Append an entry to the list and to its file.

        Call this method just before or after creating the thing that the entry describes. If the
        file was removed meanwhile, write the file again.
        """
        self._stored.entries.append(entry)
        if self.path.exists():
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(_line(entry.kind, entry))
        self.restore()

    def restore(self) -> None:
        """Write the file again if somebody removed it."""
        if not self.path.exists():
            self._stored.write(self.path)

    def add_process(self, pid: int) -> None:
        """Append the entry of a process that leads one of the kernel's sessions (setsid(2)).

        The entry covers all processes of the session.
        """
        self.add(ProcessEntry(pid, start_ticks(pid)))

    def add_group(self, folder: Path) -> None:
        """Append the entry of a control group."""
        self.add(GroupEntry(str(folder)))


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
    """Start a watchdog for this runner's ledger, and yield the ledger.

    When the context ends, remove everything that the ledger still lists.
    """
    pid = os.getpid()
    path = places().data / ".live" / f"{pid}-{start_ticks(pid)}.jsonl"
    argv = [sys.executable, "-m", "runner.measure.leftovers", "watchdog", str(path)]
    watchdog = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert watchdog.stdin is not None
    book = Ledger(path)
    try:
        yield book
    finally:
        book.restore()
        reap(path)
        # This line tells the watchdog that the runner has cleaned up by itself.
        with contextlib.suppress(BrokenPipeError):
            watchdog.stdin.write(b"done\n")
            watchdog.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watchdog.wait(timeout=30)


class Engines:
    """Connections to Docker engines, by which the containers in a ledger are removed.

    The lab connects to each engine only once. If an engine does not answer, it is not tried again.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[str, ...], DockerClient | None] = {}

    def remove(self, engine: tuple[str, ...], container: str) -> list[str] | None:
        """Remove a container, and return a list that contains a description of the container.

        Return an empty list if the container does not exist. Return None if the engine does not
        answer, because then the container may still exist. `engine` is the engine's URL and the
        folder of its certificates, both empty for this machine's engine.
        """
        # Imported only here, so that removing processes does not wait for docker-py.
        from docker.errors import NotFound  # noqa: PLC0415

        from runner.measure.connecting import TROUBLE  # noqa: PLC0415

        try:
            client = self._client(engine)
            if client is None:
                return None
            client.containers.get(container).remove(force=True, v=True)
        except NotFound:
            return []
        except TROUBLE:
            self._clients[engine] = None
            return None
        return [f"container {container[:12]}"]

    def _client(self, engine: tuple[str, ...]) -> DockerClient | None:
        from runner.measure.connecting import connect  # noqa: PLC0415 - see above

        if engine not in self._clients:
            url, certificates = engine
            self._clients[engine] = connect(url, certificates, timeout_s=5 if url else 20)
        return self._clients[engine]

    def close(self) -> None:
        """Close all connections."""
        for client in filter(None, self._clients.values()):
            client.close()


@dataclass(frozen=True)
class ProcessEntry:
    """A ledger's entry for a process that leads one of the kernel's sessions (setsid(2)).

    The entry covers all processes of the session.
    """

    kind: ClassVar[str] = "process"
    pid: int
    start: int | None = None
    """Start time of the process, in clock ticks since boot."""

    def __str__(self) -> str:
        return f"process {self.pid}"

    def remove(self, same_boot: bool, engines: Engines) -> list[str] | None:  # noqa: ARG002
        """Kill the processes of the session; return a description of each killed process.

        If the machine has been rebooted since the entry was written (`same_boot` is False), the
        processes have ended already, so do nothing and return an empty list.
        """
        pids = kill_session(self.pid, self.start) if same_boot else []
        return [f"process {pid}" for pid in pids]


@dataclass(frozen=True)
class GroupEntry:
    """A ledger's entry for a control group that the lab created."""

    kind: ClassVar[str] = "cgroup"
    path: str

    def __str__(self) -> str:
        return f"cgroup {self.path}"

    def remove(self, same_boot: bool, engines: Engines) -> list[str] | None:  # noqa: ARG002
        """Kill the group's processes, and remove the group.

        Return a description of each killed process. If the machine has been rebooted since the
        entry was written (`same_boot` is False), or if the group's name does not begin with PREFIX,
        do nothing and return an empty list.
        """
        folder = Path(self.path)
        if not same_boot or not folder.name.startswith(PREFIX):
            return []
        return [f"process {pid}" for pid in cgroups.remove(folder)]


@dataclass(frozen=True)
class FolderEntry:
    """A ledger's entry for a temporary folder that the lab made."""

    kind: ClassVar[str] = "folder"
    path: str

    def __str__(self) -> str:
        return f"folder {self.path}"

    def remove(self, same_boot: bool, engines: Engines) -> list[str] | None:  # noqa: ARG002
        """Remove the folder with everything in it; return a list that describes the folder.

        If the folder does not exist, or if its name does not begin with PREFIX, do nothing and
        return an empty list.
        """
        folder = Path(self.path)
        if not folder.name.startswith(PREFIX) or not folder.is_dir():
            return []
        shutil.rmtree(folder, ignore_errors=True)
        return [f"folder {folder}"]


@dataclass(frozen=True)
class ContainerEntry:
    """A ledger's entry for a container, by the container's full id."""

    kind: ClassVar[str] = "container"
    id: str
    engine: tuple[str, str] | None = None
    """The URL of the container's engine, and the folder of the engine's certificates.

    Both are empty for this machine's engine. If the run has no hosts file, the field is None, which
    also means this machine's engine.
    """

    def __str__(self) -> str:
        return f"container {self.id}"

    # A container still exists after a reboot, unlike a process, so it is removed even then.
    def remove(self, same_boot: bool, engines: Engines) -> list[str] | None:  # noqa: ARG002
        """Remove the container, and return a list that contains a description of the container.

        Return an empty list if the container does not exist. Return None if the container's engine
        does not answer, because then the container may still exist.
        """
        return engines.remove(tuple(self.engine or ("", "")), self.id)


Entry: TypeAlias = ProcessEntry | GroupEntry | FolderEntry | ContainerEntry
"""An entry of a ledger.

The method `remove` removes the thing that the entry describes, and returns a list of descriptions
of everything that `remove` removed or killed. The list is empty if there was nothing that `remove`
may remove. If the thing cannot be removed now, `remove` returns None, and the entry must stay in
the ledger.
"""
ENTRIES: dict[str, type[Entry]] = {
    each.kind: each for each in (ProcessEntry, GroupEntry, FolderEntry, ContainerEntry)
}


def _line(kind: str, entry: Entry) -> str:
    """Return an entry as a line of a ledger's file."""
    known = {name: value for name, value in asdict(entry).items() if value is not None}
    return json.dumps({"kind": kind, **known}) + "\n"


@dataclass(frozen=True)
class StoredLedger:
    """The content of a ledger's file.

    The first line identifies the runner, which is the process that wrote the ledger. Each further
    line is an entry.
    """

    runner: str
    """The identity of the runner; empty if it cannot be read."""
    entries: list[Entry] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write the runner and all entries to the ledger file `path`; replace an existing file."""
        first = json.dumps({"kind": "runner", "id": self.runner}) + "\n"
        lines = [_line(entry.kind, entry) for entry in self.entries]
        with replacing(path) as temporary:
            temporary.write_text("".join([first, *lines]), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> StoredLedger:
        """Return the content of the ledger file `path`.

        Skip entries of unknown kinds. Also skip an incomplete line, which the runner leaves if it
        dies while it writes.
        """
        runner = ""
        entries = []
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                facts = json.loads(line)
                kind = facts.pop("kind")
                if kind == "runner":
                    runner = str(facts["id"])
                else:
                    entries.append(ENTRIES[kind](**facts))
        return cls(runner, entries)


def dead_ledgers() -> list[Path]:
    """Return the ledgers of runners that are dead."""
    return [
        path
        for path in sorted((places().data / ".live").glob("*-*.jsonl"))
        if not lives(StoredLedger.read(path).runner)
    ]


def reap(path: Path) -> list[str]:
    """End and remove everything that a ledger lists, and then remove the ledger itself.

    Return a description of each removed thing. If some things cannot be removed now, for example a
    container whose engine does not answer, keep the ledger, with only the entries of these things.
    """
    if not path.exists():
        return []
    stored = StoredLedger.read(path)
    same_boot = stored.runner.partition(":")[0] == boot_id()
    removed: list[str] = []
    kept: list[Entry] = []
    with contextlib.closing(Engines()) as engines:
        # Remove in reverse order: the generator before the server, a group after its processes.
        for entry in reversed(stored.entries):
            gone = entry.remove(same_boot, engines)
            if gone is None:
                kept.insert(0, entry)
            else:
                removed += gone
    if kept:
        StoredLedger(stored.runner, kept).write(path)
    else:
        path.unlink(missing_ok=True)
    return removed


def left_over() -> list[str]:
    """Return a description of each thing that the ledgers of dead runs still list."""
    listed = (entry for path in dead_ledgers() for entry in StoredLedger.read(path).entries)
    return [str(entry)[:80] for entry in listed]


def session_members(leader: int, started: int | None) -> list[int]:
    """Return the pids of the living processes of a session.

    `leader` is the pid of the process that opened the session, and `started` is its start time, in
    clock ticks since boot. Return an empty list if the pid belongs to another process now.
    """
    now = start_ticks(leader)
    if started is None or (now is not None and now != started):
        return []
    members = []
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else None
        if (
            fields
            and int(fields[3]) == leader
            and int(fields[19]) >= started
            and fields[0] not in "ZX"
        ):
            members.append(int(entry.name))
    return members


def kill_session(leader: int, started: int | None) -> list[int]:
    """Kill the processes of a session until none is left; return the pids of the killed ones.

    `leader` and `started` mean the same as in `session_members`.
    """
    return cgroups.kill_all(lambda: session_members(leader, started))


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """Yield a temporary folder that only this user can enter."""
    prefix = f"{PREFIX}{pid_namespace()}-{os.getpid()}-{start_ticks(os.getpid())}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def scratch(ledger: Ledger) -> Iterator[Path]:
    """Yield a temporary folder that the ledger lists.

    The ledger must list the folder, because other processes write to it, and they may outlive this
    process.
    """
    with temporary() as folder:
        ledger.add(FolderEntry(str(folder)))
        yield folder


def sweep_temporary() -> list[str]:
    """Remove the temporary folders that dead runners of this user have left behind.

    Return a description of each removed folder.
    """
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        by = re.fullmatch(rf"{PREFIX}(\d+)-(\d+)-(\d+)-\w+", folder.name)
        if by is None or lives(":".join([boot_id(), *by.groups()])):
            continue
        with contextlib.suppress(OSError):
            if (
                folder.is_dir()
                and not folder.is_symlink()
                and folder.lstat().st_uid == os.geteuid()
            ):
                shutil.rmtree(folder)
                removed.append(f"folder {folder}")
    return removed


def main() -> None:
    """Wait until the runner ends, and then remove everything that its ledger lists.

    If the runner has already cleaned up by itself, remove nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = Path(sys.argv[2])
    if not sys.stdin.buffer.read() and path.exists():
        reap(path)
        sweep_temporary()


if __name__ == "__main__":
    main()
