"""Read one subject's cumulative counters: from a control group, from a process tree, or of the
whole host.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.measure import cgroups, quotas
from runner.measure.procfs import KeptFile, Memory, descendants, number_after
from runner.measure.quotas import Throttling

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """Counters at one instant; None if the source does not have it.

    `mono_ns` is taken beside the CPU counter.
    """

    mono_ns: int
    wall_ns: int
    cpu_ns: int
    rss_bytes: int | None = None
    threads: int | None = None
    throttled_ns: int | None = None
    switches: int | None = None
    steal_ns: int | None = None
    interrupts_ns: int | None = None
    """The machine's CPU time in interrupts, which some kernels book to no program."""
    ran_ns: int | None = None
    """Exact CPU time of all programs, where the kernel has it (control groups, version 1)."""


class CgroupSubject:
    """All processes of a control group: CPU time with nanosecond or microsecond resolution."""

    def __init__(
        self,
        group: cgroups.Cgroup,
        memory_ns: int = 0,
        throttling: Throttling | None = None,
    ) -> None:
        self.name = f"cgroup-v{group.version}"
        self._usage = KeptFile(group.folder / group.counter)
        self._unified = group.version == 2
        self._throttling = throttling
        self._memory = Memory(lambda: cgroups.members(group.folder), memory_ns)

    def read(self) -> Reading:
        """Return the group's counters; memory and threads are summed over its processes."""
        wall = time.time_ns()
        mono = time.monotonic_ns()
        usage = self._usage.read()
        if self._unified:
            used_us = number_after(b"usage_usec ", usage)
            if used_us is None:
                raise OSError("cpu.stat has no usage_usec")
            cpu = 1000 * used_us
        else:
            cpu = int(usage)
        throttled = self._throttling.read() if self._throttling is not None else None
        memory = self._memory.at(mono)
        return Reading(mono, wall, cpu, memory.resident_bytes, memory.threads, throttled)


class ProcessSubject:
    """A process and its descendants, the fallback where no control group is to be had.

    CPU time comes from the kernel's CPU-time clock of each process (clock_getcpuclockid(3)) in
    nanoseconds, as that in /proc/PID/stat has 10 ms ticks: +-10 points a core at 100 ms. New
    processes are found as their memory is looked at (procfs.Memory).
    """

    name = "process-tree"

    def __init__(self, pid: int, memory_ns: int = 0, throttling: Throttling | None = None) -> None:
        self._leader = pid
        self._throttling = throttling
        self._living: dict[int, int] = {}  # the CPU-time clocks of the known processes, by pid
        self._cpu_ns: dict[int, int] = {}
        self._memory = Memory(self._found, memory_ns)

    def read(self) -> Reading:
        """Return the summed counters; what an ended child used stays counted."""
        memory = self._memory.at(time.monotonic_ns())
        wall = time.time_ns()
        mono = time.monotonic_ns()
        for pid, clock in list(self._living.items()):
            try:
                self._cpu_ns[pid] = time.clock_gettime_ns(clock)
            except OSError:
                if pid == self._leader:
                    raise
                del self._living[pid]
        throttled = self._throttling.read() if self._throttling is not None else None
        cpu = sum(self._cpu_ns.values())
        return Reading(mono, wall, cpu, memory.resident_bytes, memory.threads, throttled)

    def _found(self) -> Iterator[int]:
        for pid in descendants(self._leader):
            self._living[pid] = (
                ~pid << 3
            ) | 2  # as clock_getcpuclockid(3) makes the clock's id on Linux
            yield pid


class HostSubject:
    """The whole machine from /proc/stat, 10 ms ticks: busy time of all CPUs, and time stolen by the
    hypervisor.

    A CPU quota whose periods keep step with the ticks makes a CPU look busy that is idle half of
    the time. So the exact time of all programs is read as well, where there is one.
    """

    name = "proc-stat"

    def __init__(self, memory_ns: int = 0) -> None:
        size = len(
            Path("/proc/stat").read_bytes()
        )  # some kB a hundred CPUs and interrupts; its numbers grow longer
        self._stat = KeptFile("/proc/stat", 2 * size)
        self._meminfo = KeptFile("/proc/meminfo")
        self._ran = KeptFile(cgroups.ALL_PROGRAMS) if cgroups.ALL_PROGRAMS.exists() else None
        self._memory_ns = memory_ns
        self._due_ns = 0
        self._used_bytes: int | None = None

    def read(self) -> Reading:
        """Return busy CPU time (user, nice, system, interrupts), memory in use, switches between
        tasks, and steal.
        """
        wall = time.time_ns()
        mono = time.monotonic_ns()
        data = self._stat.read()
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, data[: data.index(b"\n")].split()[1:9]
        )
        if mono >= self._due_ns:
            meminfo = self._meminfo.read()
            total = number_after(b"MemTotal:", meminfo)
            available = number_after(b"MemAvailable:", meminfo)
            self._due_ns = mono + self._memory_ns
            self._used_bytes = (
                None if total is None or available is None else 1024 * (total - available)
            )
        return Reading(
            mono,
            wall,
            (user + nice + system + irq + softirq) * _TICK_NS,
            self._used_bytes,
            switches=number_after(b"\nctxt ", data),
            steal_ns=steal * _TICK_NS,
            interrupts_ns=(irq + softirq) * _TICK_NS,
            ran_ns=int(self._ran.read()) if self._ran else None,
        )


Source = CgroupSubject | ProcessSubject | HostSubject
"""Where a subject's counters come from.

Its `name` is stored beside each row, and `read` raises OSError where the subject is gone. The CPU
counters are read each time; memory and threads anew only where the last look at them is as old as
`memory_ns`.
"""


def open_files(pid: int) -> int | None:
    """Return how many files and sockets a process and its descendants have open.

    None if that may not be read.
    """
    try:
        return sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in descendants(pid))
    except OSError:
        return None


def source_of(pid: int, memory_ns: int = 0, *, alone: bool = True) -> Source:
    """Return the best source for `pid`: its control group unless that holds the lab too, else the
    process tree.

    It is the tree as well where the group is known to hold others (not `alone`). A look at memory
    and threads holds for `memory_ns`. OSError where the process or its group has just ended.
    """
    group = cgroups.of_process(pid)
    throttling = Throttling(quotas.find(pid))
    if group is None or not alone or os.getpid() in cgroups.members(group.folder):
        return ProcessSubject(pid, memory_ns, throttling)
    return CgroupSubject(group, memory_ns, throttling)
