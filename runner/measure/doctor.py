"""What this machine has, what a campaign would use, and what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from runner.calibration import load_calibration
from runner.fingerprint import fingerprint
from runner.measure import cgroups, machine
from runner.measure.counters import CLOSE_RPS
from runner.measure.idle import idle_cpus
from runner.measure.idle import remedy as remedy_of_idle
from runner.measure.leftovers import ledger, watching
from runner.measure.machine import Diagnosis, judged
from runner.measure.tools import find_program, find_tool, remedy
from runner.model import LabError, number
from runner.planning.catalog import load_server, server_names
from runner.planning.hosts import Hosts

LEAST_FREE = 2**30
"""On a host's disk, for the raw samples of its generator."""
CLOSE_OPENS = 4 * CLOSE_RPS
"""What a close-mode load of 3 s and its warm-up may open."""


def examine(server_cpus: int = 1, connections: int = 3000, opened: int = CLOSE_OPENS) -> list[Diagnosis]:
    """Return what matters for a campaign of this size, most important first; the sizes are machine.examine's."""
    return [
        *examine_tools(),
        _docker(),
        _postgres(),
        *map(_server, server_names()),
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
        from runner.measure.fleet import open_fleet  # noqa: PLC0415 - slow to import

        with open_fleet(hosts, book, say) as fleet:
            for place in fleet.places.values():
                role, facts, clock, free = place.role, place.said["facts"], place.station.clock, place.station.room()
                engine = place.client.version()
                words = (
                    f"engine {engine.get('Version')} ({engine.get('Arch')}), {facts['cpu_model']}, of {facts['cpus']} "
                    f"CPUs {machine.cpu_list(place.cpus)}, {(facts['memory_bytes'] or 0) / 2**30:.0f} GiB, "
                    f"Linux {facts['kernel']}, control groups version {facts['cgroup_version']}"
                )
                apart = f"{clock.offset_ns / 1e9:+.6f} s from this machine's, known to ± {clock.error_ns / 1e6:.3g} ms"
                room = f"{free / 2**30:.1f} GiB free"
                found += [
                    Diagnosis(role, "ok", words),
                    Diagnosis(f"{role}: clock", "ok", apart),
                    judged(f"{role}: disk", free > LEAST_FREE, room, room),
                ]
            if fleet.transfer is not None:
                rate, there_and_back = 8 * fleet.transfer.bytes_s / 1e9, number(fleet.transfer.round_trip_ns / 1e6)
                text = f"the slowest way between a generator and the server carries {rate:.2g} Gbit/s, "
                text += f"the farthest takes {there_and_back} ms there and back"
                found.append(Diagnosis("network", "ok", text))
            fleet.idle.ask("polling")
            awake, problem = "can be kept awake on every host", fleet.idle.problem
            found.append(judged("idle CPUs", problem is None, awake, f"cannot be kept awake: {problem}"))
            for role, hazards in fleet.hazards(connections, CLOSE_OPENS).items():
                found += [Diagnosis(f"{role}: {each.subject}", each.level, each.text) for each in hazards]
    return found


def examine_tools() -> list[Diagnosis]:
    """Return which load generators there are, and whether the lab can use them."""
    findings = []
    for name in ("k6", "wrk", "vegeta"):
        tool = find_tool(name)
        if tool is None or tool.unfit is not None:
            why = "not installed" if tool is None else tool.unfit
            findings.append(Diagnosis(name, "missing", f"{why}: {remedy(name)}"))
        else:
            findings.append(Diagnosis(name, "ok", f"{tool.version} ({tool.path.parent.name}/{tool.path.name})"))
    return findings


def _docker() -> Diagnosis:
    from docker.errors import DockerException  # noqa: PLC0415 - slow to import

    from runner.measure.connecting import connect  # noqa: PLC0415

    try:
        with contextlib.closing(connect()) as client:
            version = client.version().get("Version", "unknown")
    except DockerException:
        return Diagnosis("docker", "warning", "no engine answers: servers will run as plain processes")
    return Diagnosis("docker", "ok", f"engine {version} answers: servers will run as containers")


def _postgres() -> Diagnosis:
    tool = find_tool("postgres")
    if tool is None:
        text = f"not installed: {remedy('postgres')}; without containers the database workloads fail"
        return Diagnosis("postgres", "warning", text)
    return Diagnosis("postgres", "ok", f"{tool.version} (for the process engine; containers have another)")


def _server(name: str) -> Diagnosis:
    """Say whether a server can be built and run as a process."""
    server = load_server(name)
    lacking = [need for need in (*server.build_needs, *server.run_needs) if find_program(need) is None]
    text = "; ".join(f"needs {need}: {remedy(need)}" for need in lacking)
    return judged(f"server {name}", not lacking, f"{server.framework} ({server.language})", text)


def _machine() -> list[Diagnosis]:
    facts = machine.facts()
    group, kind = facts["cgroup_version"], ", a virtual machine" if facts["hypervisor"] else ""
    text = (
        f"{facts['cpu_model']}, {facts['cpus']} CPUs, {(facts['memory_bytes'] or 0) / 2**30:.0f} GiB, {facts['os']}, "
        f"Linux {facts['kernel']}{kind}; fingerprint {fingerprint(facts)}"
    )
    no_group = "none: CPU time is read from each process instead"
    return [Diagnosis("machine", "ok", text), judged("cgroup", group is not None, f"version {group}", no_group)]


def _hazards(server_cpus: int, connections: int, opened: int) -> list[Diagnosis]:
    try:
        return machine.examine(machine.place(server_cpus), connections, opened)
    except LabError as error:
        return [Diagnosis("cpus", "missing", str(error))]


def _idle() -> Diagnosis:
    """Say whether idle CPUs can be kept awake; takes a fifth of a second."""
    with idle_cpus() as cpus:
        cpus.ask("polling")
        awake = "can be kept awake, and are while a run lasts (--idle system leaves them)"
        return judged("idle CPUs", cpus.problem is None, awake, remedy_of_idle(cpus.problem or ""))


def _shares() -> Diagnosis:
    """Say whether the process engine can give a server a share of a core; containers always can."""
    with ledger() as book, cgroups.temporary("doctor", book.add_group) as group:
        can = group is not None and group.quota is not None
        return judged("shares", can, "of a core can be given to servers, by a CPU quota", cgroups.NO_QUOTA)


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
    # The highest ceiling of each tool, load model and mode.
    best = {(one.tool, one.load_model, one.mode): one for one in sorted(found.ceilings, key=lambda one: one.rps)}
    said = "; ".join(f"{c.tool} {c.load_model} {c.mode} at {c.connections}: {c.in_words}" for c in best.values())
    return Diagnosis("ceilings", "ok", f"requests/s, found {found.made_at[:10]}: {said}")
