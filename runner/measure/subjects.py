"""Read one subject's cumulative counters: from a control group, from a process tree, or of the whole host."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from runner.measure import cgroups

_PAGE = os.sysconf("SC_PAGE_SIZE")
FEW = 8
"""The memory of a group with more processes than this is read seldom: a pool of 500 makes 500 PostgreSQL processes."""
SELDOM_NS = 1_000_000_000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """Counters at one instant; None where the source does not have it. `mono_ns` is taken beside the CPU counter."""

    mono_ns: int
    wall_ns: int
    cpu_ns: int
    rss_bytes: int | None = None
    threads: int | None = None
    throttled_ns: int | None = None
    switches: int | None = None
    steal_ns: int | None = None


class Source(Protocol):
    """Where a subject's counters come from; `name` is stored beside each row."""

    name: str

    def read(self) -> Reading:
        """Return the counters now; OSError where the subject is gone."""


class CgroupSubject:
    """All processes of a control group: CPU time with nanosecond or microsecond resolution."""

    def __init__(self, group: cgroups.Cgroup) -> None:
        self.name = f"cgroup-v{group.version}"
        self._group = group
        self._memory: tuple[int | None, int | None] = None, None
        self._looked_ns = 0
        self._many = False

    def read(self) -> Reading:
        """Return the group's counters; memory and threads are summed over its processes."""
        mono, wall, cpu = time.monotonic_ns(), time.time_ns(), cgroups.cpu_ns(self._group)
        throttled = cgroups.throttling(self._group)
        if not self._many or mono - self._looked_ns > SELDOM_NS:
            pids = cgroups.members(self._group)
            self._memory, self._looked_ns, self._many = _group_memory(pids), mono, len(pids) > FEW
        resident, threads = self._memory
        return Reading(
            mono, wall, cpu, rss_bytes=resident, threads=threads, throttled_ns=throttled.ns if throttled else None
        )


def _group_memory(pids: list[int]) -> tuple[int | None, int | None]:
    """Return resident bytes and threads of several processes; what they share is counted once.

    The largest shared part stands for all: PostgreSQL's processes share their buffers, and hardly anything else.
    """
    if not pids:
        return None, None
    facts = [_process_facts(pid) for pid in pids]
    resident, threads = sum(rss for rss, _ in facts), sum(count for _, count in facts)
    if len(pids) > 1:
        shared = [_shared_bytes(pid) for pid in pids]
        resident -= sum(shared) - max(shared)
    return resident, threads


def _shared_bytes(pid: int) -> int:
    """Return how many resident bytes of a process are files or shared memory; 0 for one that has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[2]) * _PAGE
    except OSError:
        return 0


def _process_facts(pid: int) -> tuple[int, int]:
    """Return resident bytes and threads of a process; zeros for one that has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[21]) * _PAGE, int(fields[17])


class ProcessSubject:
    """A process and its descendants, the fallback where no control group is to be had.

    psutil finds the processes (anew once a second) and their memory. CPU time comes from the kernel's CPU-time clock of
    each process (clock_getcpuclockid(3)) in nanoseconds, as psutil's has 10 ms ticks: +-10 points a core at 100 ms.
    """

    name = "psutil"

    def __init__(self, pid: int) -> None:
        self._leader = psutil.Process(pid)
        self._tree = [self._leader]
        self._refreshed_ns = 0
        self._cpu_ns: dict[int, int] = {}

    def read(self) -> Reading:
        """Return the summed counters; what an ended child used stays counted."""
        mono, wall = time.monotonic_ns(), time.time_ns()
        rss, threads = 0, 0
        try:
            if mono - self._refreshed_ns > 1_000_000_000:
                self._tree = [self._leader, *self._leader.children(recursive=True)]
                self._refreshed_ns = mono
            for process in self._tree:
                self._cpu_ns[process.pid] = time.clock_gettime_ns(_cpu_clock(process.pid))
                resident, count = _process_facts(process.pid)
                rss, threads = rss + resident, threads + count
        except psutil.Error as error:
            raise ProcessLookupError(str(error)) from error
        return Reading(mono, wall, sum(self._cpu_ns.values()), rss, threads)


def _cpu_clock(pid: int) -> int:
    """Return the clock id of a process's CPU time, as clock_getcpuclockid(3) makes it on Linux."""
    return (~pid << 3) | 2


class OwnSubject:
    """This very process: its CPU time in nanoseconds without any scan."""

    name = "process-clock"

    def read(self) -> Reading:
        """Return this process's counters."""
        rss, threads = _process_facts(os.getpid())
        return Reading(time.monotonic_ns(), time.time_ns(), time.process_time_ns(), rss, threads)


class HostSubject:
    """The whole machine from /proc/stat, 10 ms ticks: busy time of all CPUs, and time stolen by the hypervisor."""

    name = "proc-stat"

    def read(self) -> Reading:
        """Return busy CPU time (user, nice, system, interrupts), memory in use, and steal."""
        lines = Path("/proc/stat").read_text().splitlines()
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(v) for v in lines[0].split()[1:9])
        switches = next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))
        memory = psutil.virtual_memory()
        return Reading(
            time.monotonic_ns(),
            time.time_ns(),
            (user + nice + system + irq + softirq) * _TICK_NS,
            rss_bytes=memory.total - memory.available,
            switches=switches,
            steal_ns=steal * _TICK_NS,
        )


def open_files(pid: int) -> int | None:
    """Return how many files and sockets a process and its descendants have open; None where that may not be read."""
    try:
        leader = psutil.Process(pid)
        return sum(each.num_fds() for each in (leader, *leader.children(recursive=True)))
    except psutil.Error:
        return None


def source_of(pid: int) -> Source:
    """Return the best source for `pid`: its control group unless that holds the lab too, else the process tree."""
    if pid == os.getpid():
        return OwnSubject()
    group = cgroups.of_process(pid)
    if group is None or os.getpid() in cgroups.members(group):
        return ProcessSubject(pid)
    return CgroupSubject(group)
