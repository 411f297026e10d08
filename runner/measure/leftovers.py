"""Record what a run starts, so that it can be removed if the run dies.

Each runner writes a ledger file under data/.live/. It begins with the runner's `identity`; a ledger
whose runner is alive is never touched. Each entry identifies a thing without ambiguity: a process
by pid and start time, a container by its full id. The name of a temporary folder contains the
process that made it: `bench-NUMBERING-PID-START-…`.

`python -m runner.measure.leftovers watchdog LEDGER` outlives the runner for a moment. It holds the
read end of a pipe whose write end only the runner has. However the runner ends, even by SIGKILL,
the kernel closes the pipe, and the watchdog removes everything in the ledger.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.measure import cgroups
from runner.store import lab_root, replacing

PREFIX = "bench-"
"""Prefix of temporary folders and control groups; the lab never removes anything else."""


def boot_id() -> str:
    """Return the kernel's id of this boot, because pids are meaningless across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return a process's start time, in clock ticks since boot; None without such a process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def pid_namespace() -> int:
    """Return the id of this process's pid namespace, which in a container is not the machine's."""
    return Path("/proc/self/ns/pid").stat().st_ino


def identity(pid: int) -> str:
    """Return a process's identity, unique for all time: boot id, pid namespace, pid, start."""
    return f"{boot_id()}:{pid_namespace()}:{pid}:{start_ticks(pid)}"


def lives(whose: str) -> bool:
    """True if the process of an `identity` exists, or may exist.

    A process of another pid namespace cannot be checked.
    """
    boot, numbering, pid, *_ = (*whose.split(":"), "", "", "")
    if boot == boot_id() and numbering != str(pid_namespace()):
        return True
    return pid.isdigit() and identity(int(pid)) == whose


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the command name: [0] state, [3] session, [19] start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


class Ledger:
    """The runner's list of things it started, one JSON line per entry; removed after the
    clean-up.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[dict[str, Any]] = [{"kind": "runner", "id": identity(os.getpid())}]
        _write(path, self._entries)

    def add(self, kind: str, **facts: Any) -> None:
        """Append an entry, just before or after the thing comes into being.

        `kind` is process, container, cgroup or folder.
        """
        self._entries.append({"kind": kind, **facts})
        if self.path.exists():
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(self._entries[-1]) + "\n")
        self.restore()

    def restore(self) -> None:
        """Write the file again if a user removed it."""
        if not self.path.exists():
            _write(self.path, self._entries)

    def add_process(self, pid: int) -> None:
        """Append a process that leads a session; its entry covers all processes of the session."""
        self.add("process", pid=pid, start=start_ticks(pid))

    def add_group(self, folder: Path) -> None:
        """Append a control group."""
        self.add("cgroup", path=str(folder))


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
    """Yield this runner's ledger, with a watchdog for it.

    On leaving, remove everything that it still lists.
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
        # A line tells the watchdog that the runner has cleaned up by itself.
        with contextlib.suppress(BrokenPipeError):
            watchdog.stdin.write(b"done\n")
            watchdog.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watchdog.wait(timeout=30)


def _write(path: Path, entries: list[dict[str, Any]]) -> None:
    with replacing(path) as temporary:
        temporary.write_text(
            "".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8"
        )


@dataclass(frozen=True)
class StoredLedger:
    """What the file of a ledger says."""

    runner: str
    """The identity of its runner; empty if it cannot be read."""
    entries: list[dict[str, Any]]


def _read_ledger(path: Path) -> StoredLedger:
    """Read the file of a ledger; a line that the runner's death tore is left out."""
    entries = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # the line was torn by the runner's death
            entries += [entry] if isinstance(entry := json.loads(line), dict) else []
    if entries and entries[0].get("kind") == "runner":
        return StoredLedger(str(entries[0].get("id")), entries[1:])
    return StoredLedger("", entries)


def dead_ledgers() -> list[Path]:
    """Return the ledgers of runners that are dead."""
    return [
        path
        for path in sorted((lab_root() / "data" / ".live").glob("*-*.jsonl"))
        if not lives(_read_ledger(path).runner)
    ]


def reap(path: Path) -> list[str]:
    """End and remove everything that a ledger lists, then the ledger.

    Return a list of the removed things in words. Things that cannot be removed now, such as a
    container without its engine, stay in the ledger.
    """
    if not path.exists():
        return []
    stored = _read_ledger(path)
    same_boot = stored.runner.partition(":")[0] == boot_id()
    removed: list[str] = []
    kept: list[dict[str, Any]] = []
    # Last started, first removed: the generator before the server, a cgroup after its processes.
    for entry in reversed(stored.entries):
        if (gone := _remove(entry, same_boot)) is None:
            kept.insert(0, entry)
        else:
            removed += gone
    if kept:
        _write(path, [{"kind": "runner", "id": stored.runner}, *kept])
    else:
        path.unlink(missing_ok=True)
    return removed


def left_over() -> list[str]:
    """Return what dead runs have left and nobody could remove, in words."""
    listed = (entry for path in dead_ledgers() for entry in _read_ledger(path).entries)
    return [
        f"{entry['kind']} {str(entry.get('id') or entry.get('path') or entry.get('pid'))[:60]}"
        for entry in listed
    ]


def _remove(entry: dict[str, Any], same_boot: bool) -> list[str] | None:
    """Remove the thing of an entry; return what was removed, in words.

    None if it could not be removed.
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

    None if the pid belongs to another process now.
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
    """Kill the processes of a session until none is left; return their pids."""
    return cgroups.kill_all(lambda: session_members(leader, started))


def _remove_container(container_id: str, engine: list[str] | None) -> list[str] | None:
    # Removing processes must not wait for the import of docker-py.
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
    """Yield a temporary folder that is in the ledger, because other processes write to it."""
    with temporary() as folder:
        ledger.add("folder", path=str(folder))
        yield folder


def sweep_temporary() -> list[str]:
    """Remove this user's temporary folders of runners that have ended.

    Return a list of them in words.
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
    """Wait for the runner's end; remove its ledger's things unless it did so by itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = Path(sys.argv[2])
    if not sys.stdin.buffer.read() and path.exists():
        reap(path)
        sweep_temporary()


if __name__ == "__main__":
    main()
