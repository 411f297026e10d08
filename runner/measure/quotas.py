"""Read the CPU quotas that apply to a process.

These are the quotas of the process's control group and of all groups above this group. The kernel
applies each quota, so the lowest quota limits the process. The quotas are in the hierarchy of the
controller `cpu`. In version 1 of control groups, CPU time may be counted in another hierarchy. So
the group that has the quota, and the group that counts the CPU time, may be different groups.
"""

from dataclasses import dataclass
from pathlib import Path

from runner.measure import cgroups
from runner.measure.procfs import ROOT, KeptFile, number_after
from runner.measurement import Quota

FIRST_NAMESPACE = "cgroup:[4026531835]"  # the initial namespace, from which all groups are visible


@dataclass(frozen=True)
class QuotaGroup:
    """A control group, and its CPU quota in cores."""

    version: int
    folder: Path
    cores: float

    @property
    def key(self) -> bytes:
        """The text that precedes the throttled time in the group's file cpu.stat."""
        return b"throttled_time " if self.version == 1 else b"throttled_usec "

    @property
    def unit_ns(self) -> int:
        """The number of nanoseconds in the unit of the throttled time in cpu.stat."""
        return 1 if self.version == 1 else 1000


@dataclass(frozen=True)
class Quotas:
    """The control groups that contain a process and have a quota, innermost group first."""

    groups: tuple[QuotaGroup, ...]
    known: bool
    """True if all groups could be read. If False, `groups` may lack a group that has a quota."""


def find(pid: cgroups.Pid, root: Path = ROOT) -> Quotas:
    """Return the quotas of a process.

    If a group cannot be read, raise no error, but set `known` of the result to False. `root` is the
    folder that contains /proc and /sys.
    """
    group = cgroups.cpu_group(pid, root)
    if group is None:
        return Quotas((), known=False)
    found: list[QuotaGroup] = []
    known = _sees_all_groups(root)
    for folder in group.folders:
        try:
            cores = _quota_cores(group.version, folder)
        except (OSError, ValueError, ZeroDivisionError):
            known = False
            continue
        if cores is not None:
            found.append(QuotaGroup(group.version, folder, cores))
    return Quotas(tuple(found), known)


def quota_of(pid: int, root: Path = ROOT) -> Quota:
    """Return the lowest quota that applies to the process `pid`.

    The result also says whether one of the quotas of `pid` also applies to the lab's own process.
    """
    theirs = find(pid, root)
    ours = find("self", root)
    return Quota(
        cores=min((group.cores for group in theirs.groups), default=None),
        known=theirs.known,
        shared=not set(theirs.groups).isdisjoint(ours.groups),
    )


class Throttling:
    """Reads the throttled time of a process: how long CPU quotas have held the process back.

    `quotas` contains only those of the process's groups that have a quota. The files of these
    groups stay open.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._known = quotas.known
        self._files: list[tuple[QuotaGroup, KeptFile]] = []
        try:
            for group in quotas.groups:
                self._files.append((group, KeptFile(group.folder / "cpu.stat")))
        except OSError:
            self._known = False

    def read(self) -> int | None:
        """Return the throttled time of all groups together, in ns, or None if it is unknown."""
        if not self._known:
            return None
        total_ns = 0
        for group, file in self._files:
            try:
                throttled = number_after(group.key, file.read())
            except OSError:
                return None
            if throttled is None:
                return None
            total_ns += group.unit_ns * throttled
        return total_ns


def _sees_all_groups(root: Path) -> bool:
    """Return whether this process sees all control groups.

    A process in the first namespace of control groups sees all groups. A process in another
    namespace does not see the groups above this namespace. If the kernel has no such namespaces,
    every process sees all groups.
    """
    try:
        return str((root / "proc" / "self" / "ns" / "cgroup").readlink()) == FIRST_NAMESPACE
    except FileNotFoundError:  # the kernel has no cgroup namespaces
        return True
    except OSError:
        return False


def _quota_cores(version: int, folder: Path) -> float | None:
    """Return a group's quota in cores, or None if the group has no quota.

    Raise OSError or ValueError if the quota cannot be read.
    """
    name = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    try:
        text = (folder / name).read_text()
    except FileNotFoundError:
        # A group without this file is the root, or lacks the controller, so it has no quota. But if
        # the group itself is missing, its quota is unknown.
        if folder.is_dir():
            return None
        raise
    if version == 1:
        quota_us = int(text)
        return quota_us / int((folder / "cpu.cfs_period_us").read_text()) if quota_us >= 0 else None
    quota, period_us = text.split()
    return None if quota == "max" else int(quota) / int(period_us)
