"""What a run that dies may leave: the ledger, temporary folders, and who removes what a dead run
left.

Each runner writes one ledger file under data/.live/, which begins with the runner's `identity`: a
ledger whose runner is alive is never touched. An entry names a thing so that nothing else can be
taken for it: a process by pid and start time, a container by its full id. A temporary folder says
in its name which process made it: `bench-NUMBERING-PID-START-…`.

`python -m runner.measure.leftovers watchdog LEDGER` outlives the runner by a moment. It holds the
read end of a pipe whose write end only the runner has: however the runner ends, SIGKILL included,
the kernel closes the pipe, and the watchdog reaps the ledger.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict, Unpack, cast

from runner.measure import cgroups
from runner.store import lab_root, replacing

PREFIX = "bench-"
"""How the names of temporary folders and control groups begin: nothing else is ever removed."""


def boot_id() -> str:
    """Return the kernel's id of this boot: pids mean nothing across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot.

    None if there is no such process.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def pid_namespace() -> int:
    """Return which numbering of processes this one sees: in a container it is not the machine's."""
    return Path("/proc/self/ns/pid").stat().st_ino


def identity(pid: int) -> str:
    """Return what no other process has, on this machine and at any time: boot id, numbering, pid,
    start.
    """
    return f"{boot_id()}:{pid_namespace()}:{pid}:{start_ticks(pid)}"


def lives(whose: str) -> bool:
    """Return whether the process of an `identity` is there, or may be: one with another numbering
    cannot be checked.
    """
    boot, numbering, pid, *_ = (*whose.split(":"), "", "", "")
    if boot == boot_id() and numbering != str(pid_namespace()):
        return True
    return pid.isdigit() and identity(int(pid)) == whose


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the command's name: [0] is the state, [3] the session, [19]
    the start.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


class Found(TypedDict, total=False):
    """By what a thing is found again: a process by `pid` and its start in ticks, a container by its
    id and how its engine is reached, a control group or folder by its path.
    """

    id: str
    engine: Sequence[str]
    path: str
    pid: int
    start: int | None


class Entry(Found):
    """A line of a ledger: the runner, a process, a container, a control group or a folder."""

    kind: str


class Ledger:
    """The runner's list of what it started, one JSON line per entry, removed when all is cleaned
    up.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[Entry] = [{"kind": "runner", "id": identity(os.getpid())}]
        _write(path, self._entries)

    def add(self, kind: str, **facts: Unpack[Found]) -> None:
        """Append an entry before or right after the thing exists.

        `kind` is process, container, cgroup or folder.
        """
        self._entries.append({"kind": kind, **facts})
        if self.path.exists():
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(self._entries[-1]) + "\n")
        self.restore()

    def restore(self) -> None:
        """Write the file anew where somebody has removed it."""
        if not self.path.exists():
            _write(self.path, self._entries)

    def add_process(self, pid: int) -> None:
        """Append a process that leads a session; all members of the session belong to it."""
        self.add("process", pid=pid, start=start_ticks(pid))

    def add_group(self, folder: Path) -> None:
        """Append a control group."""
        self.add("cgroup", path=str(folder))


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
    """Yield this runner's ledger, which a watchdog has an eye on.

    On leaving, whatever it still lists is reaped.
    """
    pid = os.getpid()
    path = lab_root() / "data" / ".live" / f"{pid}-{start_ticks(pid)}.jsonl"
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
        # A line before the end of the file says that the runner cleans up by itself.
        with contextlib.suppress(BrokenPipeError):
            watchdog.stdin.write(b"done\n")
            watchdog.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watchdog.wait(timeout=30)


def _write(path: Path, entries: list[Entry]) -> None:
    with replacing(path) as temporary:
        temporary.write_text(
            "".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8"
        )


def _entries(path: Path) -> tuple[str, list[Entry]]:
    """Return the identity of a ledger's runner, empty if it cannot be read, and what the ledger
    lists.
    """
    entries: list[Entry] = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # a line torn by the runner's death
            entry = json.loads(line)
            if isinstance(entry, dict):
                entries.append(cast("Entry", entry))
    if entries and entries[0].get("kind") == "runner":
        return str(entries[0].get("id")), entries[1:]
    return "", entries


def dead_ledgers() -> list[Path]:
    """Return the ledgers whose runner is gone."""
    return [
        path
        for path in sorted((lab_root() / "data" / ".live").glob("*-*.jsonl"))
        if not lives(_entries(path)[0])
    ]


def reap(path: Path) -> list[str]:
    """End and remove everything that a ledger lists, then the ledger.

    Return what was removed, in words.

    What cannot be removed now, a container without its engine, stays in the ledger.
    """
    if not path.exists():
        return []
    runner, entries = _entries(path)
    same_boot = runner.partition(":")[0] == boot_id()
    removed: list[str] = []
    kept: list[Entry] = []
    # Last started, first removed: the generator before the server, a cgroup after its processes.
    for entry in reversed(entries):
        if (gone := _remove(entry, same_boot)) is None:
            kept.insert(0, entry)
        else:
            removed += gone
    if kept:
        _write(path, [{"kind": "runner", "id": runner}, *kept])
    else:
        path.unlink(missing_ok=True)
    return removed


def left_over() -> list[str]:
    """Return what dead runs have left and nobody could remove, in words."""
    listed = (entry for path in dead_ledgers() for entry in _entries(path)[1])
    return [
        f"{entry['kind']} {str(entry.get('id') or entry.get('path') or entry.get('pid'))[:60]}"
        for entry in listed
    ]


def _remove(entry: Entry, same_boot: bool) -> list[str] | None:
    """Remove what an entry stands for.

    Return what was there, in words, or None if it is there still.
    """
    kind = entry.get("kind")
    path = Path(entry.get("path", "/"))
    if kind == "process" and same_boot:
        return [f"process {pid}" for pid in kill_session(entry["pid"], entry["start"])]
    if kind == "container":
        return _remove_container(entry["id"], entry.get("engine"))
    if kind == "folder" and path.name.startswith(PREFIX) and path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return [f"folder {path}"]
    if kind == "cgroup" and same_boot and path.name.startswith(PREFIX):
        return [f"process {pid}" for pid in cgroups.remove(path)]
    return []


def session_members(leader: int, started: int | None) -> list[int]:
    """Return the living processes of the session that `leader` opened at `started`.

    None if the pid is another's.
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
    """Kill a session until none of its processes is left; return their pids."""
    return cgroups.kill_all(lambda: session_members(leader, started))


def _remove_container(container_id: str, engine: Sequence[str] | None) -> list[str] | None:
    # The reaper of the process engine must not pay for docker-py.
    from docker.errors import NotFound  # noqa: PLC0415

    from runner.measure.connecting import TROUBLE, connect  # noqa: PLC0415

    try:
        with contextlib.closing(
            connect(*(engine or ("", "")), timeout_s=5 if engine else 20)
        ) as client:
            client.containers.get(container_id).remove(force=True, v=True)
    except NotFound:
        return []
    except TROUBLE:
        return None
    return [f"container {container_id[:12]}"]


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """Yield a temporary folder that only this user can enter."""
    prefix = f"{PREFIX}{pid_namespace()}-{os.getpid()}-{start_ticks(os.getpid())}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def scratch(ledger: Ledger) -> Iterator[Path]:
    """Yield a temporary folder that stands in the ledger, for what others than the runner write
    to.
    """
    with temporary() as folder:
        ledger.add("folder", path=str(folder))
        yield folder


def sweep_temporary() -> list[str]:
    """Remove this user's temporary folders of runners that have ended.

    Return what was removed, in words.
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
    """Wait for the runner's end; reap its ledger unless it said that it is done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = Path(sys.argv[2])
    if not sys.stdin.buffer.read() and path.exists():
        reap(path)
        sweep_temporary()


if __name__ == "__main__":
    main()
