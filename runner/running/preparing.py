"""What stands before the first trial: room, tools, CPUs, built servers, a database that starts, ceilings.

What fails in the middle of a campaign costs hours: room is asked for before it begins.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.calibration import Calibration, load_calibration
from runner.measure import attached, machine
from runner.measure.database import DatabaseFacts, try_database
from runner.measure.generators import k6_bytes, k6_iterations
from runner.measure.idle import remedy
from runner.measure.lab import Lab
from runner.measure.loading import Bench
from runner.measure.machine import OTHER_FILES
from runner.measure.memory import available_bytes
from runner.measure.session import Ready
from runner.measure.sites import Sites
from runner.measure.tools import Tool, build, find_tool, need_tool
from runner.measurement import Placement
from runner.model import CLAIMS, SCHEMA, Campaign, CannotGoOnError, Cell, LabError, Server, Trial, Workload
from runner.planning.catalog import campaign_workload, changed, inputs_of
from runner.planning.plan import by_session
from runner.store import RunFolder, free_bytes, lab_root, sha256, write_json

if TYPE_CHECKING:
    from runner.measure.fleet import Fleet

DATABASE = "the database"
"""Stands beside the servers' names where something is said of each."""


@dataclass(frozen=True)
class Prepared:
    """Everything that trials need, and for each server, and the database, the reason why it is not to be had."""

    servers: dict[str, Ready]
    database: DatabaseFacts | None
    errors: dict[str, str]
    """By server's name, or DATABASE."""
    workloads: dict[str, Workload] = field(default_factory=dict)
    """Those of the campaign by name; filled in once it is known where the run has its files."""
    campaign: Campaign | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files that the campaign is made from, as they were then."""

    @property
    def seed(self) -> int:
        """The campaign's seed."""
        return self.campaign.seed if self.campaign is not None else 0

    @property
    def attempts(self) -> int:
        """How often the campaign has a trial tried that the machine disturbed."""
        return (self.campaign or Campaign).attempts

    def error_for(self, cell: Cell, workload: Workload) -> str | None:
        """Return why a cell cannot be measured."""
        return self.errors.get(cell.server) or (self.errors.get(DATABASE) if workload.database else None)

    def require_unchanged(self) -> None:
        """Raise CannotGoOnError where a file, or a binary that is run as it lies there, is another one by now."""
        servers = [ready.server for ready in self.servers.values()]
        if self.campaign is not None and (said := changed(self.inputs, inputs_of(self.campaign, servers))):
            raise CannotGoOnError(f"{said}: put it back.")
        for ready in self.servers.values():
            run_as_it_is = ready.image is None and ready.binary is not None and ready.server.artifact is not None
            if run_as_it_is and sha256(ready.server.folder / str(ready.server.artifact)) != ready.binary:
                raise CannotGoOnError(f"The binary of {ready.server.name} was built anew: put back what it was from.")


def place_for(campaign: Campaign, trials: Sequence[Trial], fleet: Fleet | None = None) -> Placement:
    """Return which CPUs each side gets, here or on the hosts of `fleet`; a database only where a trial has one.

    A server that runs already keeps its CPUs, and the generator gets the others.
    """
    if any(own.url is not None for own in campaign.owns):
        return attached.place(campaign.owns)
    needed = any(campaign_workload(campaign, name).database for name in {trial.cell.workload for trial in trials})
    place = machine.place if fleet is None else fleet.place
    return place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def calibration_for(tools: dict[str, Tool], placement: Placement, fleet: Fleet | None = None) -> Calibration | None:
    """Return the calibration of this machine, or of the hosts, if it was made with these tools on as many CPUs."""
    found = load_calibration(of_hosts=fleet is not None)
    versions = {name: tool.version for name, tool in tools.items()}
    facts = machine.facts() if fleet is None else fleet.facts()[0]["machine"]
    cpus = len(placement.generator) if fleet is None else fleet.generator_cpus
    return found if found and found.valid_for(facts, versions, cpus) else None


def bench_of(
    opened: Lab, campaign: Campaign, placement: Placement, tools: dict[str, Tool], calibration: Calibration | None
) -> Bench:
    """Return what all trials of a campaign share."""
    environment: dict[str, dict[str, str]] = {}
    for server, name, value in campaign.environment:
        environment.setdefault(server, {})[name] = value
    paths = {name: tool.path for name, tool in tools.items()}
    return Bench(
        opened.engine,
        placement,
        paths,
        campaign.sample_hz,
        opened.ledger,
        environment,
        calibration,
        idle=opened.idle,
        sites=opened.sites,
        host_cpus=opened.fleet.server_cpus if opened.fleet else os.cpu_count(),
    )


def tools_of(trials: Sequence[Trial]) -> dict[str, Tool]:
    """Return the generators that the trials need; LabError where one is missing."""
    names: set[str] = {trial.cell.tool for trial in trials}
    return {name: need_tool(name) for name in sorted(names)}


def ask_idle(opened: Lab, trials: Sequence[Trial]) -> tuple[str, list[str]]:
    """Have idle CPUs do what the trials ask; return `polling`, `system`, or `both` in turn, and warnings."""
    asked = {trial.cell.idle for trial in trials}
    if "polling" in asked:
        opened.idle.ask("polling")
    warnings = [remedy(opened.idle.problem)] if opened.idle.problem else []
    return ("both" if len(asked) > 1 and opened.idle.state == "polling" else opened.idle.state), warnings


def greet(opened: Lab, warnings: Iterable[str], say: Callable[[str], None]) -> None:
    """Say what was cleaned up, which engine is used, and what on this machine can spoil the numbers."""
    if opened.reaped:
        say(f"Removed what a run that died had left: {', '.join(opened.reaped)}.")
    word = "NO CONTAINERS. Engine" if opened.engine.name == "process" else "Engine"
    say(f"{word}: {opened.engine.name} ({opened.engine.reason}).")
    for warning in warnings:
        say(f"Warning: {warning}")


def prepare(
    opened: Lab, servers: Sequence[Server], placement: Placement, say: Callable[[str], None], *, strict: bool = False
) -> Prepared:
    """Build the servers and try the database; what is missing fails its trials, not the campaign.

    `strict` lets it fail the campaign: a LabError.
    """
    ready, errors, database = {}, {}, None
    for server in servers:
        if opened.engine.name != "attached":
            say(f"Building {server.name} …")
        try:
            binary = build(server)
            ready[server.name] = Ready(server, opened.engine.prepare(server), binary)
        except LabError as error:
            if strict:
                raise
            say(f"Error: {error}")
            errors[server.name] = str(error)
    if placement.database:
        say("Trying the database …")
        try:
            database = try_database(opened.engine, placement.database)
        except LabError as error:
            say(f"Error: {error}")
            errors[DATABASE] = str(error)
    return Prepared(ready, database, errors)


def with_workloads(prepared: Prepared, campaign: Campaign, run: RunFolder) -> Prepared:
    """Return what is prepared together with the campaign's workloads, whose scripts may lie in the run's folder."""
    names = dict.fromkeys(load.workload for load in campaign.loads)
    return replace(
        prepared,
        workloads={name: campaign_workload(campaign, name, run.scripts) for name in names},
        campaign=campaign,
        inputs=inputs_of(campaign, [ready.server for ready in prepared.servers.values()]),
    )


BYTES_A_REQUEST = 200
"""Seen: 102 of k6's gzipped samples and 39 in the table of requests."""
BYTES_A_TRIAL = 2 * 2**20
"""Of all else; seen: up to one MiB."""
SPARE_BYTES = 256 * 2**20
TEMPORARY_BYTES = 64 * 2**20
"""A warm-up, a server's temporary files."""
MEMORY_BYTES = 512 * 2**20
"""The runner, its instruments, a server and PostgreSQL; seen: 400 MiB with a pool of 500 connections."""
MEMBER_BYTES = 256 * 2**20
"""Each further server of a session, with its PostgreSQL."""


def bytes_of(cell: Cell) -> int:
    """Return about how much a trial leaves on the disk, rather too much; wrk keeps a histogram, no requests."""
    return BYTES_A_TRIAL + BYTES_A_REQUEST * (k6_iterations(cell) if cell.tool != "wrk" else 0)


def require_room(trials: Sequence[Trial], folder: Path) -> None:
    """Raise LabError where a disk, the memory or the open files that this user may have are too few for the trials.

    `folder` is where their raw samples go.
    """
    _require_disk(trials, folder)
    _require_memory(trials)
    _require_files(max((trial.cell.sockets for trial in trials), default=0))


def require_room_there(trials: Sequence[Trial], sites: Sites) -> None:
    """Raise LabError where the disk of another host is too small for the largest load's files."""
    needed = SPARE_BYTES + max(bytes_of(trial.cell) for trial in trials)
    for site in sites.generators:
        free = site.room()
        if free is not None and free < needed:
            raise LabError(
                f"A load needs about {needed / 2**30:.1f} GiB on the disk of the host of the {site.name}, and "
                f"{free / 2**30:.1f} are free: free some, or make the loads smaller with --scale.",
                exit_code=1,
            )


def _require_disk(trials: Sequence[Trial], folder: Path) -> None:
    needed, free = SPARE_BYTES + sum(bytes_of(trial.cell) for trial in trials), free_bytes(folder)
    if free < needed:
        raise LabError(
            f"The trials need about {needed / 2**30:.1f} GiB on the disk of {folder}, and {free / 2**30:.1f} are free: "
            "free some, or make them smaller with --scale or --repeats.",
            exit_code=1,
        )
    temporary = Path(tempfile.gettempdir())
    free = free_bytes(temporary)
    if free < TEMPORARY_BYTES:
        raise LabError(
            f"Temporary files need {TEMPORARY_BYTES / 2**20:.0f} MiB, and {free / 2**20:.0f} are free in {temporary}: "
            "free some, or set TMPDIR to a folder elsewhere.",
            exit_code=1,
        )


def _require_memory(trials: Sequence[Trial]) -> None:
    of_k6 = max((k6_bytes(trial.cell.slice(1)) for trial in trials if trial.cell.tool == "k6"), default=0)
    further = max((len(unit) - 1 for unit in by_session(trials)), default=0)
    needed, there = MEMORY_BYTES + MEMBER_BYTES * further + of_k6, available_bytes()
    if there < needed:
        raise LabError(
            f"The largest trial needs about {needed / 2**30:.1f} GiB of memory, and {there / 2**30:.1f} can be had: "
            "end other programs, or ask for fewer virtual users or iterations.",
            exit_code=1,
        )


def _require_files(connections: int) -> None:
    needed, allowed = connections + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise LabError(
            f"{connections} connections need {needed} open files, and `ulimit -Hn` allows {allowed}: as root, `ulimit "
            f"-n {max(65_536, needed)}`, or set `nofile` in /etc/security/limits.conf.",
            exit_code=1,
        )


_PACKAGES = ("docker", "duckdb", "matplotlib", "numpy", "pandas", "papermill", "psutil", "pyarrow", "seaborn")


def write_manifest(
    run: RunFolder,
    bench: Bench,
    campaign: Campaign,
    prepared: Prepared,
    *,
    scale: float,
    tools: Mapping[str, Tool],
    idle: str,
    warnings: Sequence[str],
    inputs: Mapping[str, str],
    until: str,
    hosts: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Write run.json, what is run, with what, on what: an allow-list, never the environment."""
    nginx = find_tool("nginx")
    versions = {name: tool.version for name, tool in tools.items()} | ({"nginx": nginx.version} if nginx else {})
    write_json(
        run.path / "run.json",
        {
            "schema": SCHEMA,
            "run_id": run.path.name,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "campaign": {
                "name": campaign.name,
                "title": campaign.title,
                "servers": campaign.servers,
                "loads": [asdict(load) for load in campaign.loads],
                "server_cpus": campaign.server_cpus,
                "database_cpus": campaign.database_cpus,
                "attempts": campaign.attempts,
                "environment": campaign.environment,
                "copies": campaign.copies,
                "own": _owns(campaign),
                "sample_hz": campaign.sample_hz,
                "toml": campaign.text,
                "scale": scale,
            },
            "seed": campaign.seed,
            "git": _git(),
            "machine": machine.facts() if hosts is None else hosts[0]["machine"],
            **({} if hosts is None else {"hosts": list(hosts)}),
            "tools": versions | {"python": platform.python_version()},
            "packages": {name: version(name) for name in _PACKAGES},
            "engine": bench.engine.name,
            "engine_reason": bench.engine.reason,
            "idle": idle,
            "placement": _placed(bench.placement),
            "images": {each.server.name: each.image for each in prepared.servers.values() if each.image},
            "artifacts": {each.server.name: each.binary for each in prepared.servers.values() if each.binary},
            "inputs": dict(inputs),
            "claims_sha256": sha256(CLAIMS),
            "until": until or None,
            "database": asdict(prepared.database) if prepared.database else None,
            "calibration": asdict(bench.calibration) if bench.calibration else None,
            "host_warnings": list(warnings),
        },
    )


def _placed(placement: Placement) -> dict[str, Any]:
    """Return who has which CPUs; `hosts` only where there are several."""
    placed = {name: value for name, value in asdict(placement).items() if name != "hosts" or value}
    return {**placed, "disjoint": placement.disjoint, "database_shared": placement.database_shared}


def _owns(campaign: Campaign) -> Any:
    """Return the user's API, or a list where several are compared; None where there is none."""
    owns = [asdict(own) for own in campaign.owns]
    return owns[0] if len(owns) == 1 else owns or None


def _git() -> dict[str, object] | None:
    """Return commit and whether tracked files differ from it; None outside a git checkout."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(
            ["git", "-C", str(lab_root()), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain"))} if commit else None
    except FileNotFoundError:
        return None
