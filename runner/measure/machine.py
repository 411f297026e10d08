"""What this machine is, and which of its CPUs the server and the generator get."""

from __future__ import annotations

import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

from runner.measure.hazards import Demand, Hazard, Moment, hazards
from runner.measure.procfs import number_after
from runner.measurement import Placement
from runner.model import LabError

ROOT = Path("/")
"""Where /proc, /sys and /etc are."""
STEAL_OVER_S = 0.5
_CPU = "sys/devices/system/cpu"


def _read(path: str) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: str) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isdigit() else None


def cpu_model() -> str:
    """Return the CPU's name as the kernel gives it."""
    return _cpuinfo("model name") or platform.machine()


def _cpuinfo(key: str) -> str | None:
    """Return what /proc/cpuinfo says of the first CPU."""
    for line in (_read("proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def os_name() -> str:
    """Return the distribution's name, such as `Debian GNU/Linux 12 (bookworm)`."""
    for line in (_read("etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def cgroup_version() -> int | None:
    """Return 2 where the unified hierarchy counts CPU, 1 where cpuacct does, None where neither is mounted."""
    if (ROOT / "sys/fs/cgroup/cgroup.controllers").exists():
        return 2
    return 1 if (ROOT / "sys/fs/cgroup/cpuacct").is_dir() else None


def ephemeral_ports() -> tuple[int, int]:
    """Return the first and last port that the kernel gives to outgoing connections."""
    low, high = (_read("proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split()
    return int(low), int(high)


def _memory_bytes() -> int | None:
    kib = number_after(b"MemTotal:", (_read("proc/meminfo") or "").encode())
    return None if kib is None else 1024 * kib


def _governor(cpus: list[int]) -> str | None:
    """Return the governor of the CPUs, or all of them where they differ."""
    found = {_read(f"{_CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {None}
    return ", ".join(sorted(map(str, found))) or None


def _turbo() -> bool | None:
    """Return whether the CPU may run above its rated speed; None where the kernel has no say in it."""
    off, boost = _number(f"{_CPU}/intel_pstate/no_turbo"), _number(f"{_CPU}/cpufreq/boost")
    if off is not None:
        return off == 0
    return None if boost is None else boost != 0


def _smt_siblings(cpus: list[int]) -> list[list[int]]:
    """Return those of the CPUs that are hardware threads of one core, core by core."""
    cores = set()
    for cpu in cpus:
        listed = _read(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        cores.add(tuple(sorted(_expand(listed) & set(cpus))))
    return [list(core) for core in sorted(cores) if len(core) > 1]


def _expand(listed: str) -> set[int]:
    """Return the CPUs of a list as the kernel writes it: `0-1,8`."""
    ends = [part.partition("-") for part in listed.split(",")]
    return {cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)}


def _hypervisor() -> bool | None:
    """Return whether this is a virtual machine; None where the CPU does not tell (only x86 does)."""
    flags = _cpuinfo("flags")
    if (ROOT / "sys/hypervisor/type").exists():
        return True
    return None if flags is None else "hypervisor" in flags.split()


def facts() -> dict[str, Any]:
    """Describe the machine for the manifest: an allow-list, never the environment or a user's name."""
    cpus = sorted(os.sched_getaffinity(0))
    return {
        "cpu_model": cpu_model(),
        "cpus": len(cpus),
        "smt_siblings": _smt_siblings(cpus),
        "memory_bytes": _memory_bytes(),
        "kernel": _read("proc/sys/kernel/osrelease") or platform.release(),
        "os": os_name(),
        "hypervisor": _hypervisor(),
        "governor": _governor(cpus),
        "turbo": _turbo(),
        "cgroup_version": cgroup_version(),
        "clock_source": _read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "somaxconn": _number("proc/sys/net/core/somaxconn") or 0,
        "ephemeral_ports": ephemeral_ports(),
        "tcp_tw_reuse": _number("proc/sys/net/ipv4/tcp_tw_reuse"),
        "nf_conntrack_max": _number("proc/sys/net/netfilter/nf_conntrack_max"),
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


def examine(placement: Placement, connections: int, opened: int = 0) -> list[Hazard]:
    """Return what can spoil the numbers of a campaign with up to `connections` sockets; takes half a second.

    `opened` is how many connections one trial opens at most (conntrack.connections_of): in close mode, one a request.
    """
    return hazards(facts(), _moment(), Demand(placement, connections, opened))


def warnings(placement: Placement, connections: int, opened: int = 0) -> list[str]:
    """Say what on this machine will spoil the numbers of such a campaign, and what to do about it."""
    return [hazard.text for hazard in examine(placement, connections, opened) if not hazard.harmless]


def _moment() -> Moment:
    before = _cpu_times()
    time.sleep(STEAL_OVER_S)
    after = _cpu_times()
    passed = [b - a for a, b in zip(before, after, strict=True)]
    load = (_read("proc/loadavg") or "0").split()[0]
    stolen = _stolen_pct(after), _stolen_pct(passed)
    return Moment(*stolen, float(load), _real_time_permitted(), _time_wait())


def _time_wait() -> int:
    """Return how many connections are closed and keep their port still."""
    return number_after(b" tw ", (_read("proc/net/sockstat") or "").encode()) or 0


def _cpu_times() -> list[int]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal since boot, summed over all CPUs."""
    first, *_ = (_read("proc/stat") or "cpu 0 0 0 0 0 0 0 0").splitlines()
    return [int(value) for value in first.split()[1:9]]


def _stolen_pct(times: list[int]) -> float:
    return 100 * times[-1] / max(1, sum(times))


def _real_time_permitted() -> bool:
    """Return whether this process, and so the instruments that it starts, may do what precedence.py does first."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, parameters)
    return True
