"""What this machine has, what a campaign would use, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.catalog import load_server, server_names
from runner.measure import machine
from runner.measure.tools import find_program, find_tool, remedy
from runner.model import LabError


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; `level` is `ok`, `warning` or `missing` (a campaign cannot run without it)."""

    subject: str
    level: str
    text: str


def examine(server_cpus: int = 1, connections: int = 3000) -> list[Finding]:
    """Return what matters for a campaign of this size, most important first."""
    return [
        *_tools(),
        _docker(),
        _postgres(),
        *_toolchains(),
        _placement(server_cpus, connections),
        *_machine(connections),
    ]


def _tools() -> list[Finding]:
    findings = []
    for name in ("k6", "wrk"):
        tool = find_tool(name)
        if tool is None:
            findings.append(Finding(name, "missing", f"not installed: {remedy(name)}"))
        elif name == "k6" and not tool.version.startswith("1."):
            findings.append(Finding(name, "missing", f"{tool.version} found, 1.x needed: {remedy(name)}"))
        else:
            findings.append(Finding(name, "ok", f"{tool.version} ({tool.path.parent.name}/{tool.path.name})"))
    return findings


def _docker() -> Finding:
    from docker.errors import DockerException  # noqa: PLC0415 - slow to import

    from runner.measure.docker_engine import connect  # noqa: PLC0415

    try:
        client = connect()
    except DockerException:
        return Finding("docker", "warning", "no engine answers: servers will run as plain processes")
    version = client.version().get("Version", "unknown")
    client.close()
    return Finding("docker", "ok", f"engine {version} answers: servers will run as containers")


def _postgres() -> Finding:
    tool = find_tool("postgres")
    if tool is None:
        text = f"not installed: {remedy('postgres')}; without containers the database workloads fail"
        return Finding("postgres", "warning", text)
    return Finding("postgres", "ok", f"{tool.version} (for the process engine; containers have their own)")


def _toolchains() -> list[Finding]:
    findings = []
    for name in server_names():
        server = load_server(name)
        lacking = [need for need in (*server.build_needs, *server.run_needs) if find_program(need) is None]
        if lacking:
            text = "; ".join(f"needs {need}: {remedy(need)}" for need in lacking)
            findings.append(Finding(f"server {name}", "warning", text))
        else:
            findings.append(Finding(f"server {name}", "ok", f"{server.framework} ({server.language})"))
    return findings


def _placement(server_cpus: int, connections: int) -> Finding:
    try:
        placement = machine.place(server_cpus)
    except LabError as error:
        return Finding("cpus", "missing", str(error))
    text = f"server on {_list(placement.server)}, generator on {_list(placement.generator)}"
    warnings = machine.warnings(placement, connections)
    return Finding("cpus", "warning" if warnings else "ok", " ".join([text, *(f"({w})" for w in warnings)]))


def _list(cpus: tuple[int, ...]) -> str:
    return f"CPU {', '.join(map(str, cpus))}"


def _machine(connections: int) -> list[Finding]:
    facts: dict[str, Any] = machine.facts()
    low, high = facts["ephemeral_ports"]
    group = facts["cgroup_version"]
    return [
        Finding(
            "machine",
            "ok",
            f"{facts['cpu_model']}, {facts['cpus']} CPUs, {facts['memory_bytes'] / 2**30:.0f} GiB, {facts['os']}, "
            f"Linux {facts['kernel']}",
        ),
        Finding(
            "cgroup",
            "ok" if group else "warning",
            f"version {group}" if group else "none: CPU time is read from each process instead",
        ),
        Finding(
            "ports",
            "ok" if high - low > 2 * connections else "warning",
            f"{high - low + 1} ports for outgoing connections ({low} to {high})",
        ),
        Finding(
            "open files",
            "ok" if facts["open_files"] > connections + 200 else "warning",
            f"up to {facts['open_files']} (a load of {connections} connections needs {connections + 200})",
        ),
    ]
