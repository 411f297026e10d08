"""Report which tools and permissions this machine has for a campaign, and which are missing."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from runner.calibration import load_calibration
from runner.generator_traits import TRAITS
from runner.manifest import Machine
from runner.measure import cgroups, machine, perf
from runner.measure.counters import CLOSE_RPS
from runner.measure.idle import IdleCpus
from runner.measure.idle import remedy as remedy_of_idle
from runner.measure.leftovers import ledger
from runner.measure.machine import Diagnosis, MachineFacts, judged
from runner.measure.procfs import ROOT
from runner.measure.tools import Tool, find_program, find_tool, remedy
from runner.model import LabError, short_number
from runner.places import places
from runner.planning.catalog import load_server, server_names
from runner.planning.hosts import Hosts

CALIBRATED = ("k6", "wrk")  # generators whose ceilings (highest rates) `bench calibrate` finds
LEAST_FREE = 2**30  # a host's disk needs this many free bytes, for a generator's raw samples
CONNECTIONS = 3000
"""Number of connections that a load of a large campaign has open at the same time."""
CLOSE_OPENS = 4 * CLOSE_RPS
"""Number of connections that a large load in close mode opens within 4 s, warm-up included.

In close mode each request opens a connection.
"""


def examine(
    server_cpus: int = 1, root: Path = ROOT, sleep: Callable[[float], object] = time.sleep
) -> list[Diagnosis]:
    """Return the diagnoses of everything that matters for a large campaign, most important first.

    `server_cpus` is the number of CPUs for the server. `root` and `sleep` have the same meaning as
    in `machine.examine`.
    """
    facts = machine.facts(root)
    try:
        placement = machine.place(server_cpus)
        hazards = machine.examine(placement, CONNECTIONS, CLOSE_OPENS, root, sleep)
    except LabError as error:
        hazards = [Diagnosis("cpus", "missing", str(error))]
    installed = find_generators()
    versions = {name: installed[name].version for name in CALIBRATED if name in installed}
    return [
        *examine_tools(installed),
        *_programs(),
        *_machine(facts),
        *hazards,
        *_permitted(),
        examine_calibration(Machine.of(facts), versions, server_cpus),
    ]


def examine_hosts(hosts: Hosts, say: Callable[[str], None]) -> list[Diagnosis]:
    """Return the diagnoses of all hosts of a hosts file, and of the network between them.

    Raise LabError if a host cannot be reached or used.
    """
    found = []
    with ledger() as book:
        from runner.measure.fleet import open_fleet  # noqa: PLC0415 - slow to import
        from runner.measure.profiler import refusal_of  # noqa: PLC0415 - slow to import

        with open_fleet(hosts, book, say) as fleet:
            for place in fleet.places.values():
                role = place.role
                facts = place.said["facts"]
                clock = place.station.clock
                free = place.station.room()
                engine = place.client.version()
                words = (
                    f"engine {engine.get('Version')} ({engine.get('Arch')}), {facts['cpu_model']}, "
                    f"{machine.cpu_list(place.cpus)} of {facts['cpus']} CPUs, "
                    f"{(facts['memory_bytes'] or 0) / 2**30:.0f} GiB, Linux {facts['kernel']}, "
                    f"control groups version {facts['cgroup_version']}"
                )
                apart = (
                    f"{clock.offset_ns / 1e9:+.6f} s apart from this machine's clock; the "
                    f"difference is known to ± {clock.error_ns / 1e6:.3g} ms"
                )
                room = f"{free / 2**30:.1f} GiB free"
                found += [Diagnosis(role, "ok", words), Diagnosis(f"{role}: clock", "ok", apart)]
                found.append(judged(f"{role}: disk", free > LEAST_FREE, room, room))
            if fleet.transfer is not None:
                text = (
                    "the slowest connection between a generator and the server carries "
                    f"{8 * fleet.transfer.bytes_s / 1e9:.2g} Gbit/s, and the longest round "
                    f"trip takes {short_number(fleet.transfer.round_trip_ns / 1e6)} ms"
                )
                found.append(Diagnosis("network", "ok", text))
            for place in dict.fromkeys((fleet.server, fleet.database)):
                say(f"Starting perf on the host of the {place.role} …")
                found.append(
                    replace(examine_perf(refusal_of(place, book)), subject=f"{place.role}: perf")
                )
            fleet.idle.ask("polling")
            awake = "can be kept awake on every host"
            problem = fleet.idle.problem
            found.append(
                judged("idle CPUs", problem is None, awake, f"cannot be kept awake: {problem}")
            )
            for role, hazards in fleet.hazards(CONNECTIONS, CLOSE_OPENS).items():
                found += [
                    Diagnosis(f"{role}: {each.subject}", each.level, each.text) for each in hazards
                ]
    return found


def find_generators() -> dict[str, Tool]:
    """Return the load generators that are installed, by name."""
    return {name: tool for name in TRAITS if (tool := find_tool(name)) is not None}


def examine_tools(installed: Mapping[str, Tool]) -> list[Diagnosis]:
    """Return diagnoses that say which load generators are installed and fit for the lab."""
    findings = []
    no_servers = places().checkout is None
    for name, traits in TRAITS.items():
        tool = installed.get(name)
        # Without a checkout there are no servers, and a user's API is loaded only by generators
        # that run scripts. So the other generators are optional.
        is_optional = traits.is_optional or (no_servers and not traits.runs_scripts)
        if tool is None or tool.unfit is not None:
            why = "not installed" if tool is None else tool.unfit
            words = f"{why}: {remedy(name)}"
            if is_optional:
                words += f"; without it the workloads of {name} cannot run"
            findings.append(Diagnosis(name, "warning" if is_optional else "missing", words))
        else:
            findings.append(
                Diagnosis(name, "ok", f"{tool.version} ({tool.path.parent.name}/{tool.path.name})")
            )
    return findings


def _programs() -> list[Diagnosis]:
    """Return diagnoses of the Docker engine, of PostgreSQL, and of each server.

    The diagnosis of a server says which of the programs that the server needs are missing.
    """
    from docker.errors import DockerException  # noqa: PLC0415 - slow to import

    from runner.measure.connecting import connect  # noqa: PLC0415

    version = None
    with contextlib.suppress(DockerException), contextlib.closing(connect()) as client:
        version = client.version().get("Version", "unknown")
    words = f"engine {version} answers: servers will run as containers"
    found = [
        judged(
            "docker",
            version is not None,
            words,
            "no engine answers: servers will run as plain processes",
        )
    ]
    postgres = find_tool("postgres")
    words = (
        f"{postgres and postgres.version} (for servers that run as plain processes; containers "
        "have a PostgreSQL of their own)"
    )
    lacking = (
        "not installed, and without containers the workloads with a database need it: "
        f"{remedy('postgres')}"
    )
    found.append(judged("postgres", postgres is not None, words, lacking))
    for server in map(load_server, server_names()):
        missing = [
            need for need in (*server.build_needs, *server.run_needs) if find_program(need) is None
        ]
        lacking = "; ".join(f"needs {need}: {remedy(need)}" for need in missing)
        found.append(
            judged(
                f"server {server.name}",
                not missing,
                f"{server.framework} ({server.language})",
                lacking,
            )
        )
    return found


def _machine(facts: MachineFacts) -> list[Diagnosis]:
    fingerprint = Machine.of(facts).fingerprint
    group = facts["cgroup_version"]
    kind = ", a virtual machine" if facts["hypervisor"] else ""
    text = (
        f"{facts['cpu_model']}, {facts['cpus']} CPUs, {(facts['memory_bytes'] or 0) / 2**30:.0f} "
        f"GiB, {facts['os']}, Linux {facts['kernel']}{kind}; fingerprint {fingerprint}"
    )
    no_group = "none: CPU time is read from each process instead"
    return [
        Diagnosis("machine", "ok", text),
        judged("cgroup", group is not None, f"version {group}", no_group),
    ]


def _permitted() -> list[Diagnosis]:
    """Return diagnoses of this user's permissions.

    The diagnoses say whether the lab may keep idle CPUs awake, limit a process to a share of a
    core, and profile servers. To find this out takes 0.2 s.
    """
    with contextlib.closing(IdleCpus()) as cpus:
        cpus.ask("polling")
    with ledger() as book, cgroups.temporary("doctor", book.add_group) as group:
        can_share = group is not None and group.quota is not None
    awake = "can be kept awake, and are kept awake during a run (unless it has --idle system)"
    return [
        judged("idle CPUs", cpus.problem is None, awake, remedy_of_idle(cpus.problem or "")),
        judged(
            "shares",
            can_share,
            "servers can be limited to a share of a core, by a CPU quota",
            cgroups.NO_QUOTA,
        ),
        examine_perf(perf.refusal()),
    ]


def examine_perf(refused: str | None) -> Diagnosis:
    """Return a diagnosis that says whether servers can be profiled.

    `refused` is the reason why servers cannot be profiled; None if they can be profiled.
    """
    words = "servers and databases can be profiled (`bench run --profile`)"
    return judged("perf", refused is None, words, refused or "")


def examine_calibration(
    this_machine: Machine, versions: Mapping[str, str], server_cpus: int
) -> Diagnosis:
    """Return a diagnosis that says whether the stored ceilings of the generators are valid here.

    The ceilings are valid only for this machine, for the installed versions of the generators, and
    for the number of CPUs that the generator gets. `versions` contains the installed versions by
    the generators' names.
    """
    try:
        found = load_calibration()
        generator = machine.place(server_cpus).generator
    except LabError as error:
        return Diagnosis("ceilings", "warning", str(error))
    if found is None:
        return Diagnosis(
            "ceilings",
            "warning",
            "No calibration for this machine: run `bench calibrate`.",
        )
    if not found.valid_for(this_machine, versions, len(generator)):
        text = (
            "The stored calibration is not valid, because the machine, a load generator's "
            "version or the number of CPUs has changed: run `bench calibrate` again."
        )
        return Diagnosis("ceilings", "warning", text)
    # For each combination of tool, load model and mode, keep only the highest ceiling.
    best = {
        (one.tool, one.load_model, one.mode): one
        for one in sorted(found.ceilings, key=lambda one: one.rps)
    }
    said = "; ".join(
        f"{c.tool} {c.load_model} {c.mode} at {c.connections} connections: {c.in_words}"
        for c in best.values()
    )
    return Diagnosis(
        "ceilings",
        "ok",
        f"highest rates of the generators in requests/s, measured on {found.made_at[:10]}: {said}",
    )
