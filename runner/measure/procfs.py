"""Read /proc and /sys as cheaply as a sampler must: files that stay open, the memory of many
processes bit by bit.
"""

import contextlib
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

AT_ONCE = 8
"""Of so many processes memory is read at a time: a pool of 500 makes 500 PostgreSQL processes, and
to read all of them at one tick would keep the generator from its CPU for milliseconds.
"""
SELDOM = 4
KEPT = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8
"""Of so many processes of a subject, two files each stay open: three such subjects have room in
what is allowed.
"""
_OWN_CHILDREN = Path("/proc/thread-self/children")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class KeptFile:
    """A file of /proc or /sys that stays open, and is read from its beginning each time.

    That costs a twentieth of what opening it through pathlib does, and it remains the same
    process's or group's file, whatever gets its number or name afterwards. OSError where there is
    none, or none any more.
    """

    _fd = -1

    def __init__(self, path: Path | str, most_bytes: int = _PAGE) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._most_bytes = most_bytes

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self) -> bytes:
        """Return what the file says now, at most `most_bytes` of it."""
        return os.pread(self._fd, self._most_bytes, 0)


def number_after(key: bytes, data: bytes) -> int | None:
    """Return the whole number that follows `key` and blanks in the text of a kernel's file, None
    without the key.
    """
    at = data.find(key)
    return None if at < 0 else int(data[at + len(key) :].split(None, 1)[0])


@dataclass(frozen=True)
class MemoryUse:
    """Memory and threads of some processes; None if there is no process."""

    resident_bytes: int | None = None
    threads: int | None = None


class Memory:
    """Resident bytes and threads of a changing set of processes; what they share is counted once.

    The largest shared part stands for all: PostgreSQL's processes share their buffers, and hardly
    anything else. A pass over the processes begins every `every_ns` (SELDOM times that where they
    are more than AT_ONCE), and handles AT_ONCE of them at a call; until it is complete, the result
    of the last one holds. To list them costs as much as a pass, and is done once in SELDOM times
    `every_ns`. With 0, each call lists and reads all.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], every_ns: int) -> None:
        self._list = pids
        self._every_ns = every_ns
        self._pids: list[int] = []
        self._listed_ns: int | None = None
        self._due_ns = 0
        self._pass: Iterator[bool] = iter(())
        self._known = MemoryUse()
        self._files: dict[int, tuple[KeptFile, KeptFile]] = {}  # of each process its stat and statm

    def at(self, mono_ns: int) -> MemoryUse:
        """Return memory and threads as known at an instant.

        Raises what `pids` does.
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
        """Yield True after every AT_ONCE processes, and store the result at the end."""
        alone = most_shared = threads = 0
        files: dict[int, tuple[KeptFile, KeptFile]] = {}
        for count, pid in enumerate(self._pids, 1):
            with contextlib.suppress(OSError):  # it has ended
                opened = self._files.get(pid) or (
                    KeptFile(f"/proc/{pid}/stat"),
                    KeptFile(f"/proc/{pid}/statm"),
                )
                stat, statm = (file.read() for file in opened)
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
    """Return the pids that a file of the kernel lists, read anew.

    Version 1 of control groups hands one and the same list to a file that stays open, as long as it
    is read more often than once a second (cgroup_pidlist_start in the kernel's
    kernel/cgroup/cgroup-v1.c).
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - at each tick
        return [int(pid) for pid in file.read().split()]


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants, each before its children.

    Those that have ended may be among them.
    """
    if not _OWN_CHILDREN.exists():  # a kernel without CONFIG_PROC_CHILDREN
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
