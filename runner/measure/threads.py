"""Read how long a subject's threads ran, and how long they waited for a CPU.

/proc/PID/task/TID/schedstat has a thread's time on a CPU and its time on a run queue, both in
nanoseconds since it was created (the kernel's Documentation/scheduler/sched-stats.rst). A thread
that sleeps, or that a signal has stopped, is on no run queue.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from runner.measure.procfs import KeptFile

MOST_THREADS = 64
"""Number of threads that are read at each tick; nothing is known about a subject with more."""
LISTED_TICKS = 5
"""New threads are searched at every fifth tick of 50 ms."""
_STOPPED = (b"T", b"t")


class Scheduling(NamedTuple):
    """What the scheduler did with a subject's threads; None if it is unknown."""

    waited_ns: int | None = None
    """Time that all threads have waited for a CPU, since their begin."""
    busiest_thread_ns: int | None = None
    """CPU time, since the last reading, of the thread that used most of it."""
    stopped: int | None = None
    """1 if a signal has stopped the subject's first process, else 0."""


class _Thread(NamedTuple):
    """The times of a thread, as they were read last."""

    file: KeptFile
    ran_ns: int = 0
    waited_ns: int = 0


class Threads:
    """The threads of a changing set of processes.

    What a thread waited stays counted if it ends. `pids` lists the processes; `leader` is the one
    that may be stopped.
    """

    def __init__(self, leader: int, pids: Callable[[], Iterable[int]]) -> None:
        self._state = KeptFile(f"/proc/{leader}/stat")
        self._pids = pids
        self._threads: dict[int, _Thread] = {}
        self._ended_waited_ns = 0
        self._ticks_until_listed = 0
        self._are_few = True

    def read(self) -> Scheduling:
        """Return the times of all threads; raise OSError if the first process has ended."""
        stopped = int(self._state.read().rpartition(b")")[2].split(None, 1)[0] in _STOPPED)
        if self._ticks_until_listed == 0:
            self._list()
            self._ticks_until_listed = LISTED_TICKS
        self._ticks_until_listed -= 1
        if not self._are_few:
            return Scheduling(stopped=stopped)
        busiest_ns = 0
        for number, before in list(self._threads.items()):
            now = self._times(number, before)
            busiest_ns = max(busiest_ns, now.ran_ns - before.ran_ns)
        waited_ns = sum(thread.waited_ns for thread in self._threads.values())
        return Scheduling(self._ended_waited_ns + waited_ns, busiest_ns, stopped)

    def _times(self, number: int, before: _Thread) -> _Thread:
        """Read a thread again; forget it if it has ended."""
        try:
            ran_ns, waited_ns = map(int, before.file.read().split()[:2])
        except (OSError, ValueError):
            self._ended_waited_ns += before.waited_ns
            del self._threads[number]
            return before
        self._threads[number] = now = _Thread(before.file, ran_ns, waited_ns)
        return now

    def _list(self) -> None:
        """Search for new threads, and start with the CPU time that they have."""
        found = dict(self._found())
        self._are_few = len(found) <= MOST_THREADS
        if not self._are_few:
            return
        for number, pid in found.items():
            if number not in self._threads:
                with contextlib.suppress(OSError, ValueError):  # it has ended
                    file = KeptFile(f"/proc/{pid}/task/{number}/schedstat")
                    ran_ns, waited_ns = map(int, file.read().split()[:2])
                    self._threads[number] = _Thread(file, ran_ns, waited_ns)

    def _found(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each thread, with that of its process."""
        for pid in self._pids():
            with contextlib.suppress(OSError):  # it has ended
                for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - at each tick
                    yield int(name), pid
