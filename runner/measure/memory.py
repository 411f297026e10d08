"""Read how much memory the lab may use, and how many processes were killed for lack of memory."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from runner.measure import cgroups
from runner.measure.procfs import number_after

FULL = 0.98
"""A control group counts as full if it uses at least this share of its limit.

The share is less than 1, because the kernel reclaims memory in batches, so that even a full group
is often a little below its limit.
"""


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that the machine or a control group may use, and the memory that is used now."""

    most_bytes: int
    used_bytes: int


def allowed_bytes() -> int:
    """Return the bytes of memory that the lab may use.

    This is the machine's memory or, if lower, the limit of a control group that contains the lab.
    """
    return min(limit.most_bytes for limit in _limits())


def available_bytes() -> int:
    """Return the bytes of memory that the lab can still use.

    Caches that the kernel can reclaim count as free memory.
    """
    return min(max(0, limit.most_bytes - limit.used_bytes) for limit in _limits())


def _limits() -> list[MemoryLimit]:
    """Return the limits of the machine and of each control group that contains this process."""
    machine = psutil.virtual_memory()
    found = [MemoryLimit(machine.total, machine.total - machine.available)]
    folder = cgroups.memory_group(os.getpid())
    while folder is not None and cgroups.mounts() in folder.parents:
        limit = _limit_of(folder)
        if limit is not None:
            # The memory that the kernel counts for a group includes caches of files. The caches are
            # subtracted here, because the kernel can reclaim them.
            may_go_bytes = _counted(b"inactive_file ", folder / "memory.stat") or 0
            found.append(replace(limit, used_bytes=limit.used_bytes - may_go_bytes))
        folder = folder.parent
    return found


def _limit_of(folder: Path) -> MemoryLimit | None:
    """Return the memory limit of a control group, of version 1 or 2.

    Return None if the group has no limit (`max` in version 2).
    """
    for limit, use in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            most_bytes = int((folder / limit).read_text())
            return MemoryLimit(most_bytes, int((folder / use).read_text()))
    return None


@dataclass(frozen=True)
class Kills:
    """Numbers of processes that the kernel has killed for lack of memory so far.

    `group` counts the killed processes in a server's memory group; None if the server has no group
    of its own. `machine` counts the killed processes on the whole machine.
    """

    group: int | None
    machine: int | None

    def since(self, before: Kills) -> int | None:
        """Return the number of kills since `before`; None if the number is unknown.

        Count the kills in the server's group. But if the server has no group of its own, or if the
        group was removed with the server, count the kills on the whole machine.
        """
        for now, then in ((self.group, before.group), (self.machine, before.machine)):
            if now is not None and then is not None:
                return now - then
        return None


def kills(pid: int) -> Kills:
    """Read how many processes the kernel has killed for lack of memory.

    Count them in the memory group of `pid`, and on the whole machine.
    """
    folder = _group_of(pid)
    files = (folder / "memory.events", folder / "memory.oom_control") if folder is not None else ()
    return Kills(_counted(b"oom_kill ", *files), _counted(b"oom_kill ", Path("/proc/vmstat")))


def want(pid: int) -> str:
    """Return a phrase if a server has used up its memory limit; otherwise return an empty text.

    `pid` is the server's first process. The phrase is for example `because it used up its memory of
    6 MiB`. A server near its limit can be slow, because the kernel may reclaim the program's pages
    again and again instead of killing the program.
    """
    folder = _group_of(pid)
    limit = _limit_of(folder) if folder is not None else None
    if limit is None or limit.used_bytes < FULL * limit.most_bytes:
        return ""
    return f"because it used up its memory of {limit.most_bytes / 2**20:,.0f} MiB"


def _group_of(pid: int) -> Path | None:
    """Return the folder of the control group that limits the memory of `pid`.

    Return None if there is no such group, or if the lab's own process is in the same group.
    """
    folder = cgroups.memory_group(pid)
    return None if folder == cgroups.memory_group(os.getpid()) else folder


def _counted(key: bytes, *files: Path) -> int | None:
    """Return the number after `key` in the first file that can be read.

    Return None if that file does not contain `key`, or if no file can be read.
    """
    for file in files:
        with contextlib.suppress(OSError):
            return number_after(key, file.read_bytes())
    return None
