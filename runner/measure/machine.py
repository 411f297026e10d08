"""What this machine is, which CPUs each side gets, and what on it can spoil numbers, each with its remedy."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Return whether this is a virtual machine; None where the CPU does not say (only x86 does)."""
    flags = _cpuinfo("flags")
    if (ROOT / "sys/hypervisor/type").exists():
        return True
    return None if flags is None else "hypervisor" in flags.split()


def facts() -> dict[str, Any]:
    """Describe the machine for the manifest: an allow-list, never the environment or a user's name."""
    cpus = sorted(os.sched_getaffinity(0))
    memory_kib = number_after(b"MemTotal:", (_read("proc/meminfo") or "").encode())
    return {
        "cpu_model": cpu_model(),
        "cpus": len(cpus),
        "smt_siblings": _smt_siblings(cpus),
        "memory_bytes": None if memory_kib is None else 1024 * memory_kib,
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
    return hazards(facts(), _moment(), placement, connections, opened)


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
    waiting = number_after(b" tw ", (_read("proc/net/sockstat") or "").encode()) or 0
    return Moment(*stolen, float(load), _real_time_permitted(), waiting)


def _cpu_times() -> list[int]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal since boot, summed over all CPUs."""
    first, *_ = (_read("proc/stat") or "cpu 0 0 0 0 0 0 0 0").splitlines()
    return [int(value) for value in first.split()[1:9]]


def _stolen_pct(times: list[int]) -> float:
    return 100 * times[-1] / max(1, sum(times))


def _real_time_permitted() -> bool:
    """Return whether this process, and so the instruments that it starts, may run first (idle.take_precedence)."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, parameters)
    return True


STEAL_PCT = 1.0
"""A trial that loses more than this of its CPUs' time is slower by more than servers often differ."""
PORTS_A_SECOND = 28_000
"""The kernel's range has 28,232 ports: enough for a second of a close-mode load, and then they are used again."""
OTHER_FILES = 200
"""Open files of a generator beside its connections."""


@dataclass(frozen=True)
class Hazard:
    """One thing that was looked at; `text` is its value where it is `harmless`, else a sentence with the remedy."""

    subject: str
    harmless: bool
    text: str


@dataclass(frozen=True)
class Moment:
    """What changes by the minute: CPU time that the hypervisor took (in percent, of all CPUs), load average, rights."""

    steal_since_boot_pct: float
    steal_now_pct: float
    load_average: float
    real_time: bool
    """Whether the instruments may take real-time priority."""
    time_wait: int = 0
    """Connections that are closed and keep their port still."""


def hazards(
    facts: Mapping[str, Any], moment: Moment, placement: Placement, connections: int, opened: int
) -> list[Hazard]:
    """Return everything that was looked at, harmless or not; `facts` as machine.facts returns them.

    A campaign asks for at most so many `connections` at once, and one of its trials opens at most `opened`.
    """
    return [
        _placement(placement),
        _siblings(facts["smt_siblings"], placement),
        _governor_hazard(facts["governor"]),
        _turbo_hazard(facts["turbo"]),
        _steal(moment),
        _load(moment.load_average, facts["cpus"]),
        _real_time(moment.real_time),
        _open_files(facts["open_files"], connections),
        _backlog(facts["somaxconn"], connections),
        _ports(facts["ephemeral_ports"], facts["tcp_tw_reuse"], moment.time_wait, connections, opened),
        _tracking(facts["nf_conntrack_max"], opened),
    ]


def _hazard(subject: str, harmless: bool, value: str, sentence: str) -> Hazard:
    return Hazard(subject, harmless, value if harmless else sentence)


def cpu_list(cpus: Sequence[int]) -> str:
    """Return CPUs as a reader sees them: `CPU 0, 1`."""
    return f"CPU {', '.join(map(str, cpus))}"


def _placement(placement: Placement) -> Hazard:
    both = {*placement.server, *placement.generator}
    if not placement.disjoint and len(both) > 1:
        own = min(both - set(placement.generator), default=min(both))
        text = (
            f"The server may run on {cpu_list(placement.server)}, and the generator does on "
            f"{cpu_list(placement.generator)}: where they share a CPU, no verdict is possible; start the server under "
            f"`taskset -c {own}`, or move it there while it runs, `taskset -a -c -p {own} PID`."
        )
    elif not placement.disjoint:
        text = (
            "There is one CPU only: server and generator share it, so no rate is the server's; use a machine "
            "(or `taskset`) with two or more."
        )
    elif placement.database_shared:
        text = (
            "The database shares the generator's CPUs, as there are too few for one of its own: with three or more it "
            "gets one."
        )
    else:
        parts = {"server": placement.server, "generator": placement.generator, "database": placement.database}
        return Hazard("cpus", True, ", ".join(f"{who} on {cpu_list(cpus)}" for who, cpus in parts.items() if cpus))
    return Hazard("cpus", False, text)


def _siblings(groups: Sequence[Sequence[int]], placement: Placement) -> Hazard:
    others = set(placement.generator) | set(placement.database)
    for group in groups:
        ours, theirs = set(group) & set(placement.server), set(group) & others - set(placement.server)
        if ours and theirs:
            text = (
                f"The server's {cpu_list(sorted(ours))} and the load's {cpu_list(sorted(theirs))} are hyper-threads of "
                "one core, and each slows the other: `echo off | sudo tee /sys/devices/system/cpu/smt/control`, or run "
                "the lab under `taskset -c` with one CPU of each core."
            )
            return Hazard("hyper-threads", False, text)
    return Hazard("hyper-threads", True, "the server shares no core with its load")


def _governor_hazard(governor: str | None) -> Hazard:
    if governor in (None, "performance"):
        return Hazard("governor", True, governor or "none that this system can see")
    text = f"The CPU governor is {governor}, and changes clock speed: `sudo cpupower frequency-set -g performance`."
    return Hazard("governor", False, text)


def _turbo_hazard(turbo: bool | None) -> Hazard:
    return _hazard(
        "turbo",
        not turbo,
        "none that this system can see" if turbo is None else "off",
        "Turbo is on: clock speed falls as the CPU warms up and as more cores work; write 1 to "
        "/sys/devices/system/cpu/intel_pstate/no_turbo, or 0 to /sys/devices/system/cpu/cpufreq/boost.",
    )


def _steal(moment: Moment) -> Hazard:
    took = f"{moment.steal_since_boot_pct:.1f} % since boot, {moment.steal_now_pct:.1f} % now"
    return _hazard(
        "steal",
        max(moment.steal_since_boot_pct, moment.steal_now_pct) <= STEAL_PCT,
        f"the hypervisor took {took}",
        f"The hypervisor took CPU time away ({took}): a server then looks slow or idle; use a machine with CPUs of its "
        "own, or one that is less busy.",
    )


def _load(average: float, cpus: int) -> Hazard:
    return _hazard(
        "load",
        average <= 0.5 * cpus,
        f"load average {average:.1f} on {cpus} CPUs",
        f"The machine was busy before the run: load average {average:.1f} on {cpus} CPUs; wait for it, or end what "
        "else runs (`top`).",
    )


def _real_time(permitted: bool) -> Hazard:
    return _hazard(
        "priority",
        permitted,
        "sampler and probe run ahead of the generator",
        "Sampler and probe may not take real-time priority, and wait for the generator's CPU at times: allow "
        "`rtprio 1` in /etc/security/limits.conf, or give a container `--cap-add SYS_NICE`.",
    )


def _open_files(allowed: int, connections: int) -> Hazard:
    needed = connections + OTHER_FILES
    return _hazard(
        "open files",
        allowed >= needed,
        f"up to {allowed} ({connections} connections need {needed})",
        f"`ulimit -Hn` allows {allowed} open files, and {connections} connections need {needed}: as root, "
        f"`ulimit -n {max(65_536, needed)}`, or set `nofile` in /etc/security/limits.conf.",
    )


def _backlog(somaxconn: int, connections: int) -> Hazard:
    return _hazard(
        "somaxconn",
        somaxconn >= connections,
        f"{somaxconn} connections can wait to be accepted",
        f"net.core.somaxconn is {somaxconn}: bursts of {connections} connections overflow it; "
        f"`sudo sysctl -w net.core.somaxconn={max(4096, connections)}`.",
    )


def _ports(ends: Sequence[int], reuse: int | None, waiting: int, connections: int, opened: int) -> Hazard:
    """Judge the ports of outgoing connections, each held for a minute (TIME-WAIT, RFC 9293) by the side that closes.

    With net.ipv4.tcp_tw_reuse at 1, or at 2 (loopback only, the default), it serves a new connection after a second;
    else the `waiting` ones are in the way now.
    """
    first, last = ends
    ports = last - first + 1
    if reuse == 0 and ports - waiting < 2 * connections <= ports:
        text = (
            f"{waiting} of {ports} ports are held by connections that were closed within the last minute: wait for it, "
            "or `sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    elif ports < (needed := max(2 * connections, min(opened, PORTS_A_SECOND))):
        text = (
            f"There are {ports} ports for outgoing connections ({first} to {last}), and {needed} are needed: "
            "`sudo sysctl -w net.ipv4.ip_local_port_range='16384 65535'`."
        )
    elif reuse == 0 and ports < opened:
        text = (
            f"net.ipv4.tcp_tw_reuse is 0: a closed connection keeps one of {ports} ports for a minute, and a trial "
            f"opens up to {opened}; `sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    else:
        return Hazard("ports", True, f"{ports} for outgoing connections ({first} to {last})")
    return Hazard("ports", False, text)


def _tracking(most: int | None, opened: int) -> Hazard:
    if most is None:
        return Hazard("tracking", True, "the firewall, if any, tracks no connections")
    return _hazard(
        "tracking",
        most >= opened,
        f"{most} connections can be tracked (a trial opens up to {opened})",
        f"nf_conntrack_max is {most}, and a trial opens up to {opened} connections, which are tracked for two minutes: "
        "the kernel drops packets where the table is full; "
        f"`sudo sysctl -w net.netfilter.nf_conntrack_max={max(262_144, 2 * opened)}`.",
    )
