"""Read the cumulative counters of a subject of the sampler, such as a server or the host.

The source of a subject's counters is a control group, a process tree, or the whole machine.
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
    """The counters of a subject at one instant; a counter that the source lacks is None.

    The CPU counter was read at `mono_ns`.
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
    """CPU time spent in interrupts. Some kernels charge this time to no program."""
    ran_ns: int | None = None
    """Exact CPU time of all programs. Only version 1 of control groups counts this time."""


class CgroupSubject:
    """Reads the counters of a control group.

    The CPU time has a resolution of 1 ns in version 1 of control groups, and of 1 µs in version 2.
    """

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
        self._folder = group.folder
        self._memory = Memory(self.pids, memory_ns)

    def pids(self) -> list[int]:
        """Return the pids of the processes in the group."""
        return cgroups.members(self._folder)

    def read(self) -> Reading:
        """Return the group's counters; memory and threads are sums over the group's processes."""
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
    """Reads a process and its descendants. This is the fallback if no control group can be used.

    CPU time comes from each process's CPU-time clock (clock_getcpuclockid(3)), in nanoseconds. The
    file /proc/PID/stat is not used, because it counts in ticks of 10 ms. In an interval of 100 ms,
    an error of one tick is an error of 10 percentage points of a core. New processes are found when
    memory is read (procfs.Memory).
    """

    name = "process-tree"

    def __init__(self, pid: int, memory_ns: int = 0, throttling: Throttling | None = None) -> None:
        self._leader = pid
        self._throttling = throttling
        self._living: dict[int, int] = {}  # CPU-time clocks of the known processes, by pid
        self._cpu_ns: dict[int, int] = {}
        self._memory = Memory(self._found, memory_ns)

    def read(self) -> Reading:
        """Return the sums over all processes; the CPU time of ended processes counts, too."""
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

    def pids(self) -> Iterator[int]:
        """Yield the pids of the process and its descendants."""
        return descendants(self._leader)

    def _found(self) -> Iterator[int]:
        for pid in descendants(self._leader):
            # On Linux, clock_getcpuclockid(3) computes the clock's id in the same way.
            self._living[pid] = (~pid << 3) | 2
            yield pid


class HostSubject:
    """Reads the counters of the whole machine.

    The busy time of all CPUs, and the time that the hypervisor took, come from /proc/stat, which
    counts in ticks of 10 ms. If the periods of a CPU quota are in step with the ticks, a CPU that
    is idle half of the time looks busy. So if the kernel also counts the exact CPU time of all
    programs, this time is read in addition.
    """

    name = "proc-stat"

    def __init__(self, memory_ns: int = 0) -> None:
        # Read up to twice the present size, because the file grows as its numbers get more digits.
        size = len(Path("/proc/stat").read_bytes())
        self._stat = KeptFile("/proc/stat", 2 * size)
        self._meminfo = KeptFile("/proc/meminfo")
        self._ran = KeptFile(cgroups.ALL_PROGRAMS) if cgroups.ALL_PROGRAMS.exists() else None
        self._memory_ns = memory_ns
        self._due_ns = 0
        self._used_bytes: int | None = None

    def read(self) -> Reading:
        """Return busy CPU time, memory in use, context switches, stolen time, and interrupt time.

        Busy time is the sum of the times for user, nice, system and interrupts. If the kernel
        counts the exact CPU time of all programs, return this time, too.
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
"""Source of a subject's counters.

The name of the source is stored in each row. The method `read` raises OSError if the subject no
longer exists. Each call of `read` reads the CPU counters, but it reads memory and threads only if
the last values of memory and threads are older than `memory_ns`.
"""


def open_files(pid: int) -> int | None:
    """Return the number of open files and sockets of a process and its descendants.

    Return None if this user may not read the number.
    """
    try:
        return sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in descendants(pid))
    except OSError:
        return None


def source_of(
    pid: int, memory_ns: int = 0, *, alone: bool = True
) -> CgroupSubject | ProcessSubject:
    """Return the best source for the process `pid`: its control group, or else its process tree.

    The group cannot be used if it also contains the lab, or if `alone` is False, which means that
    the group also contains other processes. The source reads memory and threads again once their
    last values are older than `memory_ns`. Raise OSError if the process or its group has just
    ended.
    """
    group = cgroups.of_process(pid)
    throttling = Throttling(quotas.find(pid))
    if group is None or not alone or os.getpid() in cgroups.members(group.folder):
        return ProcessSubject(pid, memory_ns, throttling)
    return CgroupSubject(group, memory_ns, throttling)
