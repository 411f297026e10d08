"""How much memory the lab may use: the machine's, or what the control group leaves that the lab itself runs in."""

from __future__ import annotations

import os
from pathlib import Path

from runner.measure import cgroups
from runner.measure.procfs import number_after

_MEMINFO = Path("/proc/meminfo")


def allowed_bytes() -> int:
    """Return the machine's memory, or the limit of a control group around the lab where that is less."""
    return min(_machine(b"MemTotal:"), *(limit for limit, _ in _groups()))


def available_bytes() -> int:
    """Return how much of it can be had now: free, or in caches that the kernel gives up."""
    return min(_machine(b"MemAvailable:"), *(max(0, limit - used) for limit, used in _groups()))


def _machine(key: bytes) -> int:
    kib = number_after(key, _MEMINFO.read_bytes())
    return 1024 * kib if kib is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _groups() -> list[tuple[int, int]]:
    """Return limit and use of each control group around this process that has a limit; at last, those of none."""
    found = []
    folder = cgroups.memory_group(os.getpid())
    while folder is not None and folder.is_relative_to(cgroups.ROOT) and folder != cgroups.ROOT:
        limit, used = _number(folder, "memory.max", "memory.limit_in_bytes"), _number(folder, *_USED)
        if limit is not None and used is not None:
            found.append((limit, used - (_cached(folder) or 0)))
        folder = folder.parent
    return [*found, (_machine(b"MemTotal:"), 0)]


_USED = ("memory.current", "memory.usage_in_bytes")


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None  # version 2 says `max` where there is no limit
    return None


def _cached(folder: Path) -> int | None:
    """Return the bytes of a group's files that were read and may go: they count as used, and are not in the way."""
    try:
        return number_after(b"inactive_file ", (folder / "memory.stat").read_bytes())
    except OSError:
        return None
