"""Find, create and read control groups of version 1 or 2. CPU times are in nanoseconds.

Some machines use version 1 of control groups, and others use version 2. /proc/PID/cgroup shows
which version counts a process's CPU time: version 1 if a line has the controller `cpuacct`,
otherwise version 2 (the line `0::PATH`). If a machine has both versions mounted (hybrid), version 1
counts the CPU time.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.measure.procfs import ROOT, read_pids
from runner.model import QUOTA_PERIOD_S, LabError

Pid = int | Literal["self"]
"""The pid of a process, or `self` for this process, as in /proc."""
PERIOD_US = round(1e6 * QUOTA_PERIOD_S)
NO_QUOTA = (
    "Servers can be limited to a share of a core only by a CPU quota, which this user may "
    "not set here: run the lab as root, or with containers (--engine docker)."
)


@dataclass(frozen=True)
class Cgroup:
    """A control group that counts CPU time.

    `folder` is the group's folder in the hierarchy that counts CPU time. `quota` is the folder in
    which a CPU quota can be set; None if no quota can be set. In version 1 `quota` may be in
    another hierarchy than `folder`.
    """

    version: int
    folder: Path
    quota: Path | None = None

    @property
    def counter(self) -> str:
        """Name of the file that contains the CPU time.

        In version 1 the file holds one number in nanoseconds. In version 2 the file's lines are
        pairs of a key and a value in microseconds.
        """
        return "cpuacct.usage" if self.version == 1 else "cpu.stat"

    @property
    def folders(self) -> list[Path]:
        """All folders of the group; a process must be added to each folder."""
        return [self.folder] if self.quota in (None, self.folder) else [self.folder, self.quota]

    def limit(self, cores: float) -> None:
        """Limit the group's processes, all together, to the CPU time of `cores` cores.

        In each period of PERIOD_US, the processes may use `cores` times PERIOD_US of CPU time.
        Raise LabError if the kernel refuses this quota.
        """
        if self.quota is None:
            raise LabError(NO_QUOTA, exit_code=1)
        quota_us = round(cores * PERIOD_US)
        try:
            if self.version == 2:
                (self.quota / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            else:
                (self.quota / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self.quota / "cpu.cfs_quota_us").write_text(str(quota_us))
        except OSError as error:
            raise LabError(f"{NO_QUOTA[:-1]} ({error.strerror or error}).", exit_code=1) from None


def mounts(root: Path = ROOT) -> Path:
    """Return the folder below which control groups are mounted."""
    return root / "sys" / "fs" / "cgroup"


ALL_PROGRAMS = mounts() / "cpuacct" / "cpuacct.usage"
"""File with the CPU time of all programs in nanoseconds.

Only version 1 has such a file. The root group of version 2 counts CPU time in clock ticks, which
are longer than a nanosecond.
"""


def of_process(pid: Pid) -> Cgroup | None:
    """Return the control group that counts the CPU time of `pid`.

    Return None if no such group can be read.
    """
    paths = _paths(pid)
    if "cpuacct" in paths:
        folder = _v1_mount("cpuacct") / paths["cpuacct"]
        if (folder / "cpuacct.usage").exists():
            return Cgroup(1, folder)
    folder = mounts() / paths.get("", "-")
    if (folder / "cpu.stat").exists():
        return Cgroup(2, folder)
    return None


@dataclass(frozen=True)
class CpuGroup:
    """The control group in which the controller `cpu` limits a process.

    `mount` is the folder at which the group's hierarchy is mounted, and `path` is the path of the
    group below `mount`.
    """

    version: int
    mount: Path
    path: str

    @property
    def folders(self) -> list[Path]:
        """The folders of the group and of all groups above it, innermost first."""
        folder = self.mount / self.path
        return [folder, *(each for each in folder.parents if each.is_relative_to(self.mount))]


def cpu_group(pid: Pid, root: Path = ROOT) -> CpuGroup | None:
    """Return the group that limits the CPU time of `pid`.

    Return None if the kernel reports no such group, or if the group is outside the lab's control
    group namespace. The lab cannot see such a group: the kernel shows its path with `/..` at the
    beginning. The folder `root` contains `proc` and `sys`.
    """
    paths = _paths(pid, root)
    version = 1 if "cpu" in paths else 2
    path = paths.get("cpu", paths.get(""))
    if path is None or ".." in path.split("/"):
        return None
    mount = _v1_mount("cpu", root) if version == 1 else _v2_mount(root)
    return CpuGroup(version, mount, path)


def memory_group(pid: Pid) -> Path | None:
    """Return the folder of the control group that limits the memory of `pid`.

    Return None if the kernel reports no such group.
    """
    paths = _paths(pid)
    if "memory" in paths:
        return _v1_mount("memory") / paths["memory"]
    return mounts() / paths[""] if "" in paths else None


def _paths(pid: Pid, root: Path = ROOT) -> dict[str, str]:
    """Return a dict from the names of controllers to the paths of a process's control groups.

    The key of the version 2 group is an empty text, because the kernel lists this group without
    controllers. Return an empty dict if the process has ended.
    """
    try:
        listed = root / "proc" / str(pid) / "cgroup"
        lines = listed.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    parts = [line.split(":", 2) for line in lines]
    return {
        name: path.lstrip("/") for _, controllers, path in parts for name in controllers.split(",")
    }


def _v1_mount(controller: str, root: Path = ROOT) -> Path:
    folders = [mounts(root) / name for name in (controller, "cpu,cpuacct")]
    return next(filter(Path.is_dir, folders), folders[0])


def _v2_mount(root: Path) -> Path:
    folder = mounts(root)
    return folder if (folder / "cgroup.controllers").exists() else folder / "unified"


@contextlib.contextmanager
def temporary(name: str, note: Callable[[Path], None]) -> Iterator[Cgroup | None]:
    """Yield a new control group; yield None if this user may not create groups.

    When the context ends, kill the processes that are still in the group, and remove the group.
    The function `note` gets each folder of the group. It must record the folder, so that the folder
    can be removed even if the runner dies.
    """
    group = _created(f"bench-{name}-{os.urandom(4).hex()}", note)
    try:
        yield group
    finally:
        for folder in group.folders if group is not None else ():
            remove(folder)


def _created(name: str, note: Callable[[Path], None]) -> Cgroup | None:
    """Create an empty group below this process's own group; return None if that fails.

    In version 2, the new group may be below the root group instead: see `limiting_parent`. The
    returned Cgroup has a `quota` only if this user may limit CPU time.
    """
    ours = of_process("self")
    if ours is None:
        return None
    folder = (limiting_parent(ours.folder) if ours.version == 2 else ours.folder) / name
    if not _made(folder, note):
        return None
    if not (folder / ours.counter).exists() or not os.access(folder / "cgroup.procs", os.W_OK):
        folder.rmdir()
        return None
    if ours.version == 2:
        return Cgroup(2, folder, folder if (folder / "cpu.max").exists() else None)
    quota = _v1_mount("cpu") / _paths("self").get("cpu", "-") / name
    limits = (quota.exists() or _made(quota, note)) and (quota / "cpu.cfs_quota_us").exists()
    return Cgroup(1, folder, quota if limits else None)


def _made(folder: Path, note: Callable[[Path], None]) -> bool:
    try:
        folder.mkdir()
    except OSError:
        return False
    note(folder)
    return True


def limiting_parent(ours: Path, root: Path = ROOT) -> Path:
    """Return the version 2 group below which a new group can limit CPU time.

    Return `ours`, the group of this process, if `ours` can pass the controller `cpu` to groups
    below `ours`. Usually `ours` cannot do so, because it contains processes, and only the root
    group may contain processes and pass controllers at the same time. Then return the root group.
    If the root group cannot be used either, return `ours`, because a group below `ours` at least
    counts CPU time.
    """
    for parent in (ours, mounts(root)):
        control = parent / "cgroup.subtree_control"
        with contextlib.suppress(OSError):
            if "cpu" not in control.read_text().split():
                control.write_text("+cpu")
            if os.access(parent, os.W_OK):
                return parent
    return ours


def remove(folder: Path) -> list[int]:
    """Kill the processes of a group that the lab made, and remove the group.

    Return the pids of the killed processes. PostgreSQL's processes are found by their group,
    because they share no session of the kernel: each of them calls setsid(2).
    """

    def left() -> list[int]:
        with contextlib.suppress(OSError):
            return members(folder)
        return []

    killed = kill_all(left)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return killed


def kill_all(living: Callable[[], list[int]], within_s: float = 5.0) -> list[int]:
    """Kill the processes whose pids `living` returns, and return the pids of all killed processes.

    Repeat this until `living` returns no pid, because a process may fork while it is being
    killed. Stop after `within_s` seconds, because a process that waits for a device cannot be
    killed.
    """
    killed: dict[int, None] = {}
    deadline = time.monotonic() + within_s
    while (pids := living()) and time.monotonic() < deadline:
        for pid in pids:
            killed[pid] = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return list(killed)


def members(folder: Path) -> list[int]:
    """Return the pids of the processes in a group."""
    return read_pids(folder / "cgroup.procs")
