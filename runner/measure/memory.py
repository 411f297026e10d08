"""How much memory the lab may use, the machine's or its control group's, and what the kernel killed
for want of it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from runner.measure import cgroups
from runner.measure.procfs import number_after

FULL = 0.98
"""Share of its limit from which on a group counts as full: the kernel takes pages away by the
batch.
"""


@dataclass(frozen=True)
class MemoryLimit:
    """How much memory the machine or a control group may use, and uses."""

    most_bytes: int
    used_bytes: int


def allowed_bytes() -> int:
    """Return the machine's memory, or the limit of a control group around the lab where that is
    less.
    """
    return min(limit.most_bytes for limit in _limits())


def available_bytes() -> int:
    """Return how much of it can be had now: free, or in caches that the kernel gives up."""
    return min(max(0, limit.most_bytes - limit.used_bytes) for limit in _limits())


def _limits() -> list[MemoryLimit]:
    """Return memory and use of the machine, and of each control group around this process that has
    a limit.
    """
    machine = psutil.virtual_memory()
    found = [MemoryLimit(machine.total, machine.total - machine.available)]
    folder = cgroups.memory_group(os.getpid())
    while folder is not None and folder.is_relative_to(cgroups.ROOT) and folder != cgroups.ROOT:
        limit = _limit_of(folder)
        if limit is not None:
            # What was read from files and may go counts as used, and is not in the way.
            may_go_bytes = _counted(b"inactive_file ", folder / "memory.stat") or 0
            found.append(replace(limit, used_bytes=limit.used_bytes - may_go_bytes))
        folder = folder.parent
    return found


def _limit_of(folder: Path) -> MemoryLimit | None:
    """Return a control group's limit, of either version.

    None if it has no limit (version 2 says `max`).
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
    """Processes killed so far: in a server's memory group, if it has one, and on the whole
    machine.
    """

    group: int | None
    machine: int | None

    def since(self, before: Kills) -> int | None:
        """Return how many since `before`: the group's, or the machine's where the group has gone
        with its server.
        """
        for now, then in ((self.group, before.group), (self.machine, before.machine)):
            if now is not None and then is not None:
                return now - then
        return None


def kills(pid: int) -> Kills:
    """Read the counters for the server that `pid` leads."""
    folder = _group_of(pid)
    files = (folder / "memory.events", folder / "memory.oom_control") if folder is not None else ()
    return Kills(_counted(b"oom_kill ", *files), _counted(b"oom_kill ", Path("/proc/vmstat")))


def want(pid: int) -> str:
    """Return `for want of memory: it used all of its 6 MiB` of a server that `pid` leads.

    Empty if it has some left.

    Near its limit a kernel may take a program's pages away again and again rather than kill it.
    """
    folder = _group_of(pid)
    limit = _limit_of(folder) if folder is not None else None
    if limit is None or limit.used_bytes < FULL * limit.most_bytes:
        return ""
    return f"for want of memory: it used all of its {limit.most_bytes / 2**20:,.0f} MiB"


def _group_of(pid: int) -> Path | None:
    """Return the folder of the control group that limits the memory of `pid`, if it is not this
    process's.
    """
    folder = cgroups.memory_group(pid)
    return None if folder == cgroups.memory_group(os.getpid()) else folder


def _counted(key: bytes, *files: Path) -> int | None:
    """Return the number behind `key` in the first of the files that can be read."""
    for file in files:
        with contextlib.suppress(OSError):
            return number_after(key, file.read_bytes())
    return None
