"""What this machine is, and which of its CPUs the server and the generator get."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Any

import psutil

from runner.model import LabError, Placement


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def cpu_model() -> str:
    """Return the CPU's name as the kernel gives it."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def os_name() -> str:
    """Return the distribution's name, such as `Debian GNU/Linux 12 (bookworm)`."""
    for line in (_read("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def cgroup_version() -> int | None:
    """Return 2 where the unified hierarchy counts CPU, 1 where cpuacct does, None where neither is mounted."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return 2
    return 1 if Path("/sys/fs/cgroup/cpuacct").is_dir() else None


def ephemeral_ports() -> tuple[int, int]:
    """Return the first and last port that the kernel gives to outgoing connections."""
    low, high = (_read("/proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split()
    return int(low), int(high)


def facts() -> dict[str, Any]:
    """Describe the machine for the manifest: an allow-list, never the environment or a user's name."""
    frequency = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return {
        "cpu_model": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "os": os_name(),
        "governor": _read(frequency),
        "cgroup_version": cgroup_version(),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "somaxconn": int(_read("/proc/sys/net/core/somaxconn") or 0),
        "ephemeral_ports": ephemeral_ports(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    }


def place(server_cpus: int, database_cpus: int = 0) -> Placement:
    """Give the server the first `server_cpus` CPUs, the database the next, and the generator all the rest.

    Where no CPU would be left for the generator, the database shares the generator's: disturbing the server would look
    like a slower server. With one CPU all share it. Asking for as many server CPUs as there are is a LabError.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return Placement((cpus[0],), (cpus[0],), (cpus[0],) if database_cpus else ())
    if server_cpus >= len(cpus):
        raise LabError(
            f"The campaign gives the server {server_cpus} CPUs, but of {len(cpus)} at least one must be left "
            "for the load generator: lower server_cpus."
        )
    server, rest = tuple(cpus[:server_cpus]), tuple(cpus[server_cpus:])
    if database_cpus == 0:
        return Placement(server, rest)
    if database_cpus >= len(rest):
        return Placement(server, rest, rest)
    return Placement(server, rest[database_cpus:], rest[:database_cpus])


def raise_open_files() -> int:
    """Raise this process's limit of open files to what is allowed, for its children too; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def warnings(placement: Placement, connections: int) -> list[str]:
    """Say what on this machine can spoil the numbers of a campaign with up to `connections` sockets."""
    found = []
    if not placement.disjoint:
        found.append("There is one CPU only: server and generator share it, so no rate tells about the server.")
    elif placement.database_shared:
        found.append("The database shares the generator's CPUs: there are too few for one of its own.")
    machine = facts()
    if machine["governor"] not in (None, "performance"):
        found.append(f"The CPU governor is {machine['governor']}: clock speed changes with the load.")
    if machine["open_files"] < connections + 200:
        found.append(f"`ulimit -n` allows {machine['open_files']} files, too few for {connections} connections.")
    if machine["somaxconn"] < connections:
        found.append(f"net.core.somaxconn is {machine['somaxconn']}: bursts of {connections} connections overflow it.")
    load = os.getloadavg()[0]
    if load > 0.5 * machine["cpus"]:
        found.append(f"The machine was busy before the run: load average {load:.1f} on {machine['cpus']} CPUs.")
    return found
