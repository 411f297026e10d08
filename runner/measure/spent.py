"""Cumulative counts of a server's processes that cost nothing to read: CPU time by mode, switches.

Read around a load, they say what the load took. Threads that ended in between are not counted.
"""

from collections.abc import Iterator
from pathlib import Path

from runner.measure.procfs import Memory, descendants, number_after
from runner.measurement import Spent

_TICK_NS = 10_000_000
"""User and system time in /proc have ticks of 10 ms (USER_HZ is 100 on every architecture here)."""
_MINOR, _MAJOR, _USER, _SYSTEM = 7, 9, 11, 12
"""Fields of /proc/PID/stat after the program's name, counted from 0 (proc_pid_stat(5))."""


def spent_by(pid: int) -> Spent | None:
    """Return the counts of a process and its descendants; None if it has ended."""
    found = [each for process in descendants(pid) for each in _of_process(process)]
    if not found:
        return None
    return Spent(*(sum(values) for values in zip(*found, strict=True)))


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and its descendants, shared memory once."""
    return Memory(lambda: descendants(pid), 0).at(0).resident_bytes


def _of_process(pid: int) -> Iterator[tuple[int, ...]]:
    """Yield the counts of a process, or nothing if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        statuses = [path.read_bytes() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return
    voluntary, involuntary = (
        sum(number_after(key, status) or 0 for status in statuses)
        for key in (b"\nvoluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")
    )
    faults = int(stat[_MINOR]) + int(stat[_MAJOR])
    user_ns, system_ns = (_TICK_NS * int(stat[field]) for field in (_USER, _SYSTEM))
    yield user_ns, system_ns, voluntary, involuntary, faults
