"""How much memory the lab may use, the machine's or its control group's, and what the kernel killed
for want of it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from runner.measure import cgroups
from runner.measure.procfs import number_after

FULL = 0.98
"""Share of its limit from which on a group counts as full: the kernel takes pages away by the
batch.
"""


def allowed_bytes() -> int:
    """Return the machine's memory, or the limit of a control group around the lab where that is
    less.
    """
    return min(limit for limit, _ in _limits())


def available_bytes() -> int:
    """Return how much of it can be had now: free, or in caches that the kernel gives up."""
    return min(max(0, limit - used) for limit, used in _limits())


def _limits() -> list[tuple[int, int]]:
    """Return memory and use of the machine, and of each control group around this process that has
    a limit.
    """
    machine = psutil.virtual_memory()
    found = [(machine.total, machine.total - machine.available)]
    folder = cgroups.memory_group(os.getpid())
    while folder is not None and folder.is_relative_to(cgroups.ROOT) and folder != cgroups.ROOT:
        if (limited := _limit_and_use(folder)) is not None:
            # What was read from files and may go counts as used, and is not in the way.
            found.append(
                (
                    limited[0],
                    limited[1] - (_counted(b"inactive_file ", folder / "memory.stat") or 0),
                )
            )
        folder = folder.parent
    return found


def _limit_and_use(folder: Path) -> tuple[int, int] | None:
    """Return a group's limit and its use, of either version.

    None if it has no limit (version 2 says `max`).
    """
    for limit, use in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            return int((folder / limit).read_text()), int((folder / use).read_text())
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
    found = _limit_and_use(folder) if folder is not None else None
    if found is None or found[1] < FULL * found[0]:
        return ""
    return f"for want of memory: it used all of its {found[0] / 2**20:,.0f} MiB"


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
