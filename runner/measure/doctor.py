"""What this machine has, what a campaign would use, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.calibration import Calibration, Ceiling, load_calibration
from runner.fingerprint import fingerprint
from runner.measure import cgroups, machine
from runner.measure.counters import CLOSE_RPS
from runner.measure.idle import idle_cpus
from runner.measure.idle import remedy as remedy_of_idle
from runner.measure.leftovers import ledger, watching
from runner.measure.tools import find_program, find_tool, remedy
from runner.model import LabError, number
from runner.planning.catalog import load_server, server_names
from runner.planning.hosts import Hosts

if TYPE_CHECKING:
    from runner.measure.fleet import Place

LEAST_FREE = 2**30
"""On a host's disk, for the raw samples of its generator."""
CLOSE_OPENS = 4 * CLOSE_RPS
"""What a close-mode load of 3 s and its warm-up may open."""


@dataclass(frozen=True)
class Diagnosis:
    """One line of the doctor's report; `level` is `ok`, `warning` or `missing` (a campaign cannot run without it)."""

    subject: str
    level: str
    text: str


def examine(server_cpus: int = 1, connections: int = 3000, opened: int = CLOSE_OPENS) -> list[Diagnosis]:
    """Return what matters for a campaign of this size, most important first; the sizes are machine.examine's."""
    return [
        *examine_tools(),
        _docker(),
        _postgres(),
        *_toolchains(),
        *_machine(),
        *_hazards(server_cpus, connections, opened),
        _idle(),
        _shares(),
        _calibration(server_cpus),
    ]


def examine_hosts(hosts: Hosts, say: Callable[[str], None], connections: int = 3000) -> list[Diagnosis]:
    """Return what matters of each host, by its roles; LabError where one cannot be reached or used."""
    found = []
    with ledger() as book, watching(book):
        from runner.measure.fleet import FleetIdle, open_fleet  # noqa: PLC0415 - slow to import

        with open_fleet(hosts, book, say) as fleet:
            for place in fleet.places.values():
                found += _host(place)
            if fleet.transfer is not None:
                rate = 8 * fleet.transfer.bytes_s / 1e9
                there_and_back = number(fleet.transfer.round_trip_ns / 1e6)
                text = f"the slowest way between a generator and the server carries {rate:.2g} Gbit/s, "
                text += f"the farthest takes {there_and_back} ms there and back"
                found.append(Diagnosis("network", "ok", text))
            idle = FleetIdle([place.station for place in fleet.places.values()])
            idle.ask("polling")
            text = f"cannot be kept awake: {idle.problem}" if idle.problem else "can be kept awake on every host"
            found.append(Diagnosis("idle CPUs", "warning" if idle.problem else "ok", text))
            for role, hazards in fleet.hazards(connections, CLOSE_OPENS).items():
                found += [
                    Diagnosis(f"{role}: {each.subject}", "ok" if each.harmless else "warning", each.text)
                    for each in hazards
                ]
    return found


def _host(place: Place) -> list[Diagnosis]:
    facts, station = place.said["facts"], place.station
    version, clock = place.client.version(), station.clock
    machine_words = (
        f"engine {version.get('Version')} ({place.architecture}), {facts['cpu_model']}, of {facts['cpus']} CPUs "
        f"{machine.cpu_list(place.cpus)}, {(facts['memory_bytes'] or 0) / 2**30:.0f} GiB, Linux {facts['kernel']}, "
        f"control groups version {facts['cgroup_version']}"
    )
    apart = f"{clock.offset_ns / 1e9:+.6f} s from this machine's, known to ± {clock.error_ns / 1e6:.3g} ms"
    free = station.room()
    return [
        Diagnosis(place.role, "ok", machine_words),
        Diagnosis(f"{place.role}: clock", "ok", apart),
        Diagnosis(f"{place.role}: disk", "ok" if free > LEAST_FREE else "warning", f"{free / 2**30:.1f} GiB free"),
    ]


def examine_tools() -> list[Diagnosis]:
    """Return which load generators there are, and whether the lab can use them."""
    findings = []
    for name in ("k6", "wrk", "vegeta"):
        tool = find_tool(name)
        if tool is None:
            findings.append(Diagnosis(name, "missing", f"not installed: {remedy(name)}"))
        elif tool.unfit is not None:
            findings.append(Diagnosis(name, "missing", f"{tool.unfit}: {remedy(name)}"))
        else:
            findings.append(Diagnosis(name, "ok", f"{tool.version} ({tool.path.parent.name}/{tool.path.name})"))
    return findings


def _calibration(server_cpus: int) -> Diagnosis:
    """Say how fast the generators are, and whether verdicts can use it."""
    try:
        found, generator = load_calibration(), machine.place(server_cpus).generator
    except LabError as error:
        return Diagnosis("ceilings", "warning", str(error))
    if found is None:
        return Diagnosis("ceilings", "warning", "of k6 and wrk are not known here: find them with `bench calibrate`")
    tools = {name: tool.version for name in ("k6", "wrk") if (tool := find_tool(name))}
    if not found.valid_for(machine.facts(), tools, len(generator)):
        text = "of k6 and wrk were found with another machine, tool or number of CPUs: run `bench calibrate` anew"
        return Diagnosis("ceilings", "warning", text)
    said = "; ".join(f"{c.tool} {c.load_model} {c.mode} at {c.connections}: {c.in_words}" for c in _best(found))
    return Diagnosis("ceilings", "ok", f"requests/s, found {found.made_at[:10]}: {said}")


def _best(calibration: Calibration) -> list[Ceiling]:
    """Return the highest ceiling of each tool, load model and mode."""
    best: dict[tuple[str, str, str], Ceiling] = {}
    for ceiling in calibration.ceilings:
        kind = (ceiling.tool, ceiling.load_model, ceiling.mode)
        best[kind] = max(ceiling, best.get(kind, ceiling), key=lambda one: one.rps)
    return list(best.values())


def _docker() -> Diagnosis:
    from docker.errors import DockerException  # noqa: PLC0415 - slow to import

    from runner.measure.connecting import connect  # noqa: PLC0415

    try:
        client = connect()
    except DockerException:
        return Diagnosis("docker", "warning", "no engine answers: servers will run as plain processes")
    version = client.version().get("Version", "unknown")
    client.close()
    return Diagnosis("docker", "ok", f"engine {version} answers: servers will run as containers")


def _postgres() -> Diagnosis:
    tool = find_tool("postgres")
    if tool is None:
        text = f"not installed: {remedy('postgres')}; without containers the database workloads fail"
        return Diagnosis("postgres", "warning", text)
    return Diagnosis("postgres", "ok", f"{tool.version} (for the process engine; containers have their own)")


def _toolchains() -> list[Diagnosis]:
    findings = []
    for name in server_names():
        server = load_server(name)
        lacking = [need for need in (*server.build_needs, *server.run_needs) if find_program(need) is None]
        if lacking:
            text = "; ".join(f"needs {need}: {remedy(need)}" for need in lacking)
            findings.append(Diagnosis(f"server {name}", "warning", text))
        else:
            findings.append(Diagnosis(f"server {name}", "ok", f"{server.framework} ({server.language})"))
    return findings


def _hazards(server_cpus: int, connections: int, opened: int) -> list[Diagnosis]:
    try:
        placement = machine.place(server_cpus)
    except LabError as error:
        return [Diagnosis("cpus", "missing", str(error))]
    found = machine.examine(placement, connections, opened)
    return [Diagnosis(hazard.subject, "ok" if hazard.harmless else "warning", hazard.text) for hazard in found]


def _idle() -> Diagnosis:
    """Say whether idle CPUs can be kept awake; takes a fifth of a second."""
    with idle_cpus() as cpus:
        cpus.ask("polling")
        if cpus.problem is None:
            return Diagnosis(
                "idle CPUs", "ok", "can be kept awake, and are while a run lasts (--idle system leaves them)"
            )
        return Diagnosis("idle CPUs", "warning", remedy_of_idle(cpus.problem))


def _shares() -> Diagnosis:
    """Say whether the process engine can give a server a share of a core; containers always can."""
    with ledger() as book, cgroups.temporary("doctor", book.add_group) as group:
        if group is not None and group.quota is not None:
            return Diagnosis("shares", "ok", "of a core can be given to servers, by a CPU quota")
        return Diagnosis("shares", "warning", cgroups.NO_QUOTA)


def _machine() -> list[Diagnosis]:
    facts: dict[str, Any] = machine.facts()
    group, memory = facts["cgroup_version"], facts["memory_bytes"]
    kind = ", a virtual machine" if facts["hypervisor"] else ""
    return [
        Diagnosis(
            "machine",
            "ok",
            f"{facts['cpu_model']}, {facts['cpus']} CPUs, {(memory or 0) / 2**30:.0f} GiB, {facts['os']}, "
            f"Linux {facts['kernel']}{kind}; fingerprint {fingerprint(facts)}",
        ),
        Diagnosis(
            "cgroup",
            "ok" if group else "warning",
            f"version {group}" if group else "none: CPU time is read from each process instead",
        ),
    ]
