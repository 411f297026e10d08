"""What the kernel killed for want of memory, from its own counters: a container engine's flag misses workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.measure import cgroups
from runner.measure.procfs import number_after


@dataclass(frozen=True)
class Kills:
    """Processes killed so far: in a server's own memory group, where it has one, and on the whole machine."""

    group: int | None
    machine: int | None

    def since(self, before: Kills) -> int | None:
        """Return how many since `before`: the group's, or the machine's where the group has gone with its server."""
        if self.group is not None and before.group is not None:
            return self.group - before.group
        if self.machine is not None and before.machine is not None:
            return self.machine - before.machine
        return None


def kills(pid: int) -> Kills:
    """Read the counters for the server that `pid` leads."""
    folder = cgroups.memory_of(pid)
    group = None if folder is None else _count(folder / "memory.events", folder / "memory.oom_control")
    return Kills(group, _count(Path("/proc/vmstat")))


def _count(*files: Path) -> int | None:
    for file in files:
        try:
            return number_after(b"oom_kill ", file.read_bytes())
        except OSError:
            continue
    return None
