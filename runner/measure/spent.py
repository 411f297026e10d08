"""Read cumulative counts of a server's processes: CPU time, context switches and page faults.

The counts are read before and after a load, so that reading costs nothing during the load. The
difference is what the server spent on the load. But context switches of threads that end during the
load are missing from the difference.
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from runner.measure.procfs import Memory, descendants, number_after
from runner.measurement import Spent

_TICK_NS = 10_000_000
"""Length of a tick, which is the unit of user and system time in /proc.

A tick is 10 ms, because USER_HZ is 100 on every architecture that the lab supports.
"""
# Fields of /proc/PID/stat after the program's name, counted from 0 (proc_pid_stat(5)).
_MINOR_FAULTS = 7
_MAJOR_FAULTS = 9
_USER_TICKS = 11
_SYSTEM_TICKS = 12


def spent_by(pid: int) -> Spent | None:
    """Return the summed counts of a process and its descendants, or None if all have ended."""
    processes = [_of_process(process) for process in descendants(pid)]
    found = [each for each in processes if each is not None]
    return reduce(Spent.plus, found) if found else None


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and its descendants; shared memory counts once."""
    return Memory(lambda: descendants(pid), 0).at(0).resident_bytes


def _of_process(pid: int) -> Spent | None:
    """Return the counts of a process, or None if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        statuses = [path.read_bytes() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return None
    return Spent(
        user_ns=_TICK_NS * int(stat[_USER_TICKS]),
        system_ns=_TICK_NS * int(stat[_SYSTEM_TICKS]),
        voluntary_switches=_sum_of(b"\nvoluntary_ctxt_switches:", statuses),
        involuntary_switches=_sum_of(b"nonvoluntary_ctxt_switches:", statuses),
        page_faults=int(stat[_MINOR_FAULTS]) + int(stat[_MAJOR_FAULTS]),
    )


def _sum_of(key: bytes, statuses: Sequence[bytes]) -> int:
    """Return the sum of the numbers after `key` in the status files of threads.

    A file without the number counts as 0.
    """
    return sum(number_after(key, status) or 0 for status in statuses)
