"""What on a machine can spoil numbers: each hazard with its value, and, where it is one, with its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.measurement import Placement

STEAL_PCT = 1.0
"""A trial that loses more than this of its CPUs' time is slower by more than servers often differ."""
PORTS_A_SECOND = 28_000
"""The kernel's own range has 28,232 ports: enough for a second of a close-mode load, and then they are used again."""
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


@dataclass(frozen=True)
class Demand:
    """What a campaign asks of the machine: at most so many connections at once, and so many `opened` by one trial."""

    placement: Placement
    connections: int
    opened: int


def hazards(facts: Mapping[str, Any], moment: Moment, demand: Demand) -> list[Hazard]:
    """Return everything that was looked at, harmless or not; `facts` as machine.facts returns them."""
    return [
        _placement(demand.placement),
        _siblings(facts["smt_siblings"], demand.placement),
        _governor(facts["governor"]),
        _turbo(facts["turbo"]),
        _steal(moment),
        _load(moment.load_average, facts["cpus"]),
        _real_time(moment.real_time),
        _open_files(facts["open_files"], demand.connections),
        _backlog(facts["somaxconn"], demand.connections),
        _ports(facts["ephemeral_ports"], facts["tcp_tw_reuse"], moment.time_wait, demand),
        _tracking(facts["nf_conntrack_max"], demand.opened),
    ]


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
            "There is one CPU only: server and generator share it, so no rate tells about the server; use a machine "
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


def _governor(governor: str | None) -> Hazard:
    if governor in (None, "performance"):
        return Hazard("governor", True, governor or "none that this system can see")
    text = f"The CPU governor is {governor}, and changes clock speed: `sudo cpupower frequency-set -g performance`."
    return Hazard("governor", False, text)


def _turbo(turbo: bool | None) -> Hazard:
    if not turbo:
        return Hazard("turbo", True, "none that this system can see" if turbo is None else "off")
    text = (
        "Turbo is on: clock speed falls as the CPU warms up and as more cores work; write 1 to "
        "/sys/devices/system/cpu/intel_pstate/no_turbo, or 0 to /sys/devices/system/cpu/cpufreq/boost."
    )
    return Hazard("turbo", False, text)


def _steal(moment: Moment) -> Hazard:
    took = f"{moment.steal_since_boot_pct:.1f} % since boot, {moment.steal_now_pct:.1f} % now"
    if max(moment.steal_since_boot_pct, moment.steal_now_pct) <= STEAL_PCT:
        return Hazard("steal", True, f"the hypervisor took {took}")
    text = (
        f"The hypervisor took CPU time away ({took}): a server then looks slow or idle; use a machine with CPUs of its "
        "own, or one that is less busy."
    )
    return Hazard("steal", False, text)


def _load(average: float, cpus: int) -> Hazard:
    if average <= 0.5 * cpus:
        return Hazard("load", True, f"load average {average:.1f} on {cpus} CPUs")
    text = (
        f"The machine was busy before the run: load average {average:.1f} on {cpus} CPUs; wait for it, or end what "
        "else runs (`top`)."
    )
    return Hazard("load", False, text)


def _real_time(permitted: bool) -> Hazard:
    if permitted:
        return Hazard("priority", True, "sampler and probe run ahead of the generator")
    text = (
        "Sampler and probe may not take real-time priority, and wait for the generator's CPU at times: allow "
        "`rtprio 1` in /etc/security/limits.conf, or give a container `--cap-add SYS_NICE`."
    )
    return Hazard("priority", False, text)


def _open_files(allowed: int, connections: int) -> Hazard:
    needed = connections + OTHER_FILES
    if allowed >= needed:
        return Hazard("open files", True, f"up to {allowed} ({connections} connections need {needed})")
    text = (
        f"`ulimit -Hn` allows {allowed} open files, and {connections} connections need {needed}: as root, "
        f"`ulimit -n {max(65_536, needed)}`, or set `nofile` in /etc/security/limits.conf."
    )
    return Hazard("open files", False, text)


def _backlog(somaxconn: int, connections: int) -> Hazard:
    if somaxconn >= connections:
        return Hazard("somaxconn", True, f"{somaxconn} connections can wait to be accepted")
    text = (
        f"net.core.somaxconn is {somaxconn}: bursts of {connections} connections overflow it; "
        f"`sudo sysctl -w net.core.somaxconn={max(4096, connections)}`."
    )
    return Hazard("somaxconn", False, text)


def _ports(ends: Sequence[int], reuse: int | None, waiting: int, demand: Demand) -> Hazard:
    """Judge the ports of outgoing connections, each held for a minute (TIME-WAIT, RFC 9293) by the side that closes.

    With net.ipv4.tcp_tw_reuse at 1, or at 2 (loopback only, the default), it serves a new connection after a second;
    else the `waiting` ones are in the way now.
    """
    first, last = ends
    ports = last - first + 1
    if reuse == 0 and ports - waiting < 2 * demand.connections <= ports:
        text = (
            f"{waiting} of {ports} ports are held by connections that were closed within the last minute: wait for it, "
            "or `sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    elif ports < (needed := max(2 * demand.connections, min(demand.opened, PORTS_A_SECOND))):
        text = (
            f"There are {ports} ports for outgoing connections ({first} to {last}), and {needed} are needed: "
            "`sudo sysctl -w net.ipv4.ip_local_port_range='16384 65535'`."
        )
    elif reuse == 0 and ports < demand.opened:
        text = (
            f"net.ipv4.tcp_tw_reuse is 0: a closed connection keeps one of {ports} ports for a minute, and a trial "
            f"opens up to {demand.opened}; `sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    else:
        return Hazard("ports", True, f"{ports} for outgoing connections ({first} to {last})")
    return Hazard("ports", False, text)


def _tracking(most: int | None, opened: int) -> Hazard:
    if most is None:
        return Hazard("tracking", True, "the firewall, if any, tracks no connections")
    if most >= opened:
        return Hazard("tracking", True, f"{most} connections can be tracked (a trial opens up to {opened})")
    text = (
        f"nf_conntrack_max is {most}, and a trial opens up to {opened} connections, which are tracked for two minutes: "
        "the kernel drops packets where the table is full; "
        f"`sudo sysctl -w net.netfilter.nf_conntrack_max={max(262_144, 2 * opened)}`."
    )
    return Hazard("tracking", False, text)
