"""Read /proc and /sys cheaply enough for a sampler.

To save time, files stay open, and the memory of many processes is read in portions.
"""

import contextlib
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
"""Folder that contains /proc, /sys and /etc."""
AT_ONCE = 8
"""The sampler reads the memory of about this many processes of a subject at one tick.

A subject is a thing that the sampler observes, such as a server or a database. At each tick, the
sampler reads all its subjects (see sampler.py). With a pool of 500 connections, PostgreSQL has 500
processes. If the sampler read all 500 processes at one tick, it would take a CPU from the generator
for milliseconds.
"""
SELDOM = 4
KEPT = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8
"""The sampler keeps the files of at most this many processes of a subject open.

These are two files per process. So three subjects together use at most three quarters of the files
that the sampler may have open.
"""
OWN_CHILDREN = Path("/proc/thread-self/children")
"""A file that exists if the kernel lists the children of threads (CONFIG_PROC_CHILDREN)."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class KeptFile:
    """A file of /proc or /sys that stays open, and is read from its beginning each time.

    To read a file that is already open takes a twentieth of the time that pathlib needs to open and
    read it. Besides, an open file always belongs to the same process or group, even if another
    process gets the same pid, or another group gets the same name. The constructor raises OSError
    if the file does not exist, and `read` raises OSError if the file no longer exists.
    """

    _fd = -1

    def __init__(self, path: Path | str, most_bytes: int = _PAGE) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._most_bytes = most_bytes

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self) -> bytes:
        """Return the file's current content, at most `most_bytes` of it."""
        return os.pread(self._fd, self._most_bytes, 0)


def number_after(key: bytes, data: bytes) -> int | None:
    """Return the integer after `key` in a kernel file's text, or None if `key` is absent."""
    at = data.find(key)
    return None if at < 0 else int(data[at + len(key) :].split(None, 1)[0])


@dataclass(frozen=True)
class MemoryUse:
    """Resident memory and number of threads of processes; both are None if there is no process."""

    resident_bytes: int | None = None
    threads: int | None = None


class Memory:
    """Reads the resident memory and the number of threads of a changing set of processes.

    Shared memory counts once. If the processes differ in the size of their shared memory, only the
    largest size counts, because PostgreSQL's processes share their buffers and hardly anything
    else.

    The first call of `at` lists and reads all processes. If `every_ns` is 0, every call does so. If
    `every_ns` is greater, each later call reads about AT_ONCE processes. The calls that together
    read each process once are a pass. Until a pass is complete, `at` returns the result of the
    previous pass.

    A pass begins no earlier than `every_ns` after the beginning of the previous pass. If there are
    more than AT_ONCE processes, this interval is SELDOM times as long. To list the processes takes
    as long as a pass, so the processes are listed again only after SELDOM times `every_ns`.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], every_ns: int) -> None:
        self._list = pids
        self._every_ns = every_ns
        self._pids: list[int] = []
        self._listed_ns: int | None = None
        self._due_ns = 0
        self._pass: Iterator[bool] = iter(())
        self._known = MemoryUse()
        # The open files stat and statm of each process, by pid.
        self._files: dict[int, tuple[KeptFile, KeptFile]] = {}

    def at(self, mono_ns: int) -> MemoryUse:
        """Read those processes that are due at `mono_ns`, and return the memory of all processes.

        Not every call reads all processes (see Memory). So the returned values are from the last
        calls that together read every process once. Errors of the function `pids`, which lists the
        processes, are not caught.
        """
        at_once = self._every_ns == 0 or self._listed_ns is None
        if not next(self._pass, False) and mono_ns >= self._due_ns:
            if self._listed_ns is None or mono_ns - self._listed_ns >= SELDOM * self._every_ns:
                self._pids = list(self._list())
                self._listed_ns = mono_ns
            self._due_ns = mono_ns + self._every_ns * (SELDOM if len(self._pids) > AT_ONCE else 1)
            self._pass = self._look()
            while next(self._pass, False) and at_once:
                pass
        return self._known

    def _look(self) -> Iterator[bool]:
        """Read all listed processes, and store the result at the end.

        Yield True each time that AT_ONCE processes have been read.
        """
        alone = most_shared = threads = 0
        files: dict[int, tuple[KeptFile, KeptFile]] = {}
        for count, pid in enumerate(self._pids, 1):
            with contextlib.suppress(OSError):  # the process has ended
                opened = self._files.get(pid) or (
                    KeptFile(f"/proc/{pid}/stat"),
                    KeptFile(f"/proc/{pid}/statm"),
                )
                stat = opened[0].read()
                statm = opened[1].read()
                resident, shared = map(int, statm.split(None, 3)[1:3])
                alone = alone + resident - shared
                most_shared = max(most_shared, shared)
                threads += int(stat.rpartition(b")")[2].split(None, 18)[17])
                if len(files) < KEPT:
                    files[pid] = opened
            if count % AT_ONCE == 0:
                yield True
        self._files = files
        self._known = MemoryUse()
        if self._pids:
            self._known = MemoryUse((alone + most_shared) * _PAGE, threads)


def read_pids(path: Path | str) -> list[int]:
    """Return the pids in a kernel file.

    The file is opened each time, because version 1 of control groups returns an outdated list if a
    file stays open and is read more often than once a second (cgroup_pidlist_start in the kernel's
    kernel/cgroup/cgroup-v1.c).
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - at each tick
        return [int(pid) for pid in file.read().split()]


def descendants(pid: int, own_children: Path = OWN_CHILDREN) -> Iterator[int]:
    """Yield the pids of a process and of all its descendants, parents before their children.

    A process may have ended by the time when its pid is yielded. If the file `own_children` does
    not exist, psutil finds the descendants. This takes longer, because psutil has to read the
    parent of every process of the machine.
    """
    if not own_children.exists():
        import psutil  # noqa: PLC0415 - slow to import, and rarely needed

        yield pid
        with contextlib.suppress(psutil.Error):
            yield from (child.pid for child in psutil.Process(pid).children(recursive=True))
        return
    waiting = [pid]
    while waiting:
        yield (parent := waiting.pop())
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - at each tick
                with contextlib.suppress(OSError):
                    waiting += read_pids(f"/proc/{parent}/task/{thread}/children")
