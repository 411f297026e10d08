"""Read how long a subject's threads ran, and how long they waited for a CPU.

A subject is a thing that the sampler observes, such as a server.

/proc/PID/task/TID/schedstat says how long a thread has run on a CPU, and how long it has waited on
a run queue, both in nanoseconds since the thread was created (the kernel's
Documentation/scheduler/sched-stats.rst). While a thread sleeps, or is stopped by a signal, it is on
no run queue, so the time of the sleep or stop does not count as waiting.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from runner.measure.procfs import KeptFile

MOST_THREADS = 64
"""The threads of a subject are read only if the subject has at most this many threads."""
LISTED_TICKS = 5
"""The sampler looks for new threads once in this many ticks of 50 ms."""
_STOPPED = (b"T", b"t")


class Scheduling(NamedTuple):
    """What the scheduler did with a subject's threads; unknown values are None."""

    waited_ns: int | None = None
    """Total time for which all threads have waited for a CPU since they were created."""
    busiest_thread_ns: int | None = None
    """CPU time that the busiest thread has used since the previous reading."""
    stopped: int | None = None
    """1 if a signal has stopped the subject's first process, otherwise 0."""


class _Thread(NamedTuple):
    """The file of a thread, and the times that were last read from it."""

    file: KeptFile
    ran_ns: int = 0
    waited_ns: int = 0


class Threads:
    """Reads the threads of a changing set of processes.

    `pids` lists the processes. The state of the process `leader` says whether a signal has stopped
    the subject. The time for which a thread waited still counts after the thread has ended.
    """

    def __init__(self, leader: int, pids: Callable[[], Iterable[int]]) -> None:
        self._state = KeptFile(f"/proc/{leader}/stat")
        self._pids = pids
        self._threads: dict[int, _Thread] = {}
        self._ended_waited_ns = 0
        self._ticks_until_listed = 0
        self._are_few = True

    def read(self) -> Scheduling:
        """Return the times of all threads; raise OSError if the process `leader` has ended.

        If there are more than MOST_THREADS threads, the times are None.
        """
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
        """Read a thread again and return its new times.

        If the thread has ended, forget the thread, and return `before`, its last known times.
        """
        try:
            ran_ns, waited_ns = map(int, before.file.read().split()[:2])
        except (OSError, ValueError):
            self._ended_waited_ns += before.waited_ns
            del self._threads[number]
            return before
        self._threads[number] = now = _Thread(before.file, ran_ns, waited_ns)
        return now

    def _list(self) -> None:
        """Look for new threads.

        The CPU time that a thread used before this method found the thread does not count.
        """
        found = dict(self._found())
        self._are_few = len(found) <= MOST_THREADS
        if not self._are_few:
            return
        for number, pid in found.items():
            if number not in self._threads:
                with contextlib.suppress(OSError, ValueError):  # the thread has ended
                    file = KeptFile(f"/proc/{pid}/task/{number}/schedstat")
                    ran_ns, waited_ns = map(int, file.read().split()[:2])
                    self._threads[number] = _Thread(file, ran_ns, waited_ns)

    def _found(self) -> Iterator[tuple[int, int]]:
        """Yield the id of each thread, with the pid of its process."""
        for pid in self._pids():
            with contextlib.suppress(OSError):  # the process has ended
                for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - at each tick
                    yield int(name), pid
