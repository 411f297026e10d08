"""Checks and set-up before the first trial.

Room, tools, CPUs, built servers, a database that starts, and ceilings. A failure in the middle of a
campaign costs hours, so everything that can be checked is checked before it begins.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.calibration import Calibration, load_calibration
from runner.measure import attached, machine
from runner.measure.database import try_database
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.idle import remedy
from runner.measure.lab import Lab
from runner.measure.loading import Bench
from runner.measure.machine import OTHER_FILES
from runner.measure.memory import available_bytes
from runner.measure.session import Ready
from runner.measure.sites import Sites
from runner.measure.tools import Tool, build, find_tool, need_tool
from runner.measurement import Placement
from runner.model import (
    CLAIMS,
    SCHEMA,
    Campaign,
    CannotGoOnError,
    Cell,
    LabError,
    Server,
    Trial,
    record_of,
)
from runner.planning.catalog import campaign_workload, changed, inputs_of
from runner.planning.plan import by_session
from runner.store import RunFolder, free_bytes, lab_root, sha256, write_json

if TYPE_CHECKING:
    from runner.measure.fleet import Fleet

DATABASE = "the database"  # stands beside the servers' names where something is said of each


@dataclass(frozen=True)
class Prepared:
    """Everything that trials need, and for each server, and the database, the reason why it is not
    to be had.
    """

    bench: Bench
    servers: Mapping[str, Ready] = field(default_factory=dict)
    database: Mapping[str, Any] | None = None  # what the manifest says of it
    errors: Mapping[str, str] = field(default_factory=dict)  # by server's name, or DATABASE
    inputs: Mapping[str, str] = field(
        default_factory=dict
    )  # SHA-256 of the files that the campaign is made from

    def require_unchanged(self) -> None:
        """Raise CannotGoOnError where a file, or a binary that is run as it lies there, is another
        one by now.
        """
        servers = [ready.server for ready in self.servers.values()]
        if said := changed(self.inputs, inputs_of(self.bench.campaign, servers)):
            raise CannotGoOnError(f"{said}: put it back.")
        for ready in self.servers.values():
            run_as_it_is = (
                ready.image is None
                and ready.binary is not None
                and ready.server.artifact is not None
            )
            if (
                run_as_it_is
                and sha256(ready.server.folder / str(ready.server.artifact)) != ready.binary
            ):
                raise CannotGoOnError(
                    f"The binary of {ready.server.name} was built anew: put back what it was from."
                )


def place_for(campaign: Campaign, trials: Sequence[Trial], fleet: Fleet | None = None) -> Placement:
    """Return which CPUs each side gets, here or on the hosts of `fleet`.

    A database only if a trial has one.

    A server that runs already keeps its CPUs, and the generator gets the others.
    """
    if any(api.url is not None for api in campaign.owns):
        return attached.place(campaign.owns)
    needed = any(
        campaign_workload(campaign, name).database
        for name in {trial.cell.workload for trial in trials}
    )
    place = machine.place if fleet is None else fleet.place
    return place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def calibration_for(
    tools: dict[str, Tool], placement: Placement, fleet: Fleet | None
) -> Calibration | None:
    """Return the calibration of this machine, or of the hosts, if it was made with these tools on
    as many CPUs.
    """
    found = load_calibration(of_hosts=fleet is not None)
    versions = {name: tool.version for name, tool in tools.items()}
    facts = machine.facts() if fleet is None else fleet.facts()[0]["machine"]
    cpus = (
        len(placement.generator)
        if fleet is None
        else sum(host.cpus for host in fleet.sites.generator_hosts)
    )
    return found if found and found.valid_for(facts, versions, cpus) else None


def tools_of(trials: Sequence[Trial]) -> dict[str, Tool]:
    """Return the generators that the trials need; LabError if one is missing."""
    return {name: need_tool(name) for name in sorted({str(trial.cell.tool) for trial in trials})}


def ask_idle(opened: Lab, trials: Sequence[Trial]) -> tuple[str, list[str]]:
    """Have idle CPUs do what the trials ask.

    Return `polling`, `system`, or `both` in turn, and warnings.
    """
    asked = {trial.cell.idle for trial in trials}
    if "polling" in asked:
        opened.idle.ask("polling")
    warnings = [remedy(opened.idle.problem)] if opened.idle.problem else []
    return (
        "both" if len(asked) > 1 and opened.idle.state == "polling" else opened.idle.state
    ), warnings


def greet(opened: Lab, warnings: Iterable[str], say: Callable[[str], None]) -> None:
    """Say what was cleaned up, which engine is used, and what on this machine can spoil the
    numbers.
    """
    if opened.reaped:
        say(f"Removed what a run that died had left: {', '.join(opened.reaped)}.")
    word = "NO CONTAINERS. Engine" if opened.engine.name == "process" else "Engine"
    say(f"{word}: {opened.engine.name} ({opened.engine.reason}).")
    for warning in warnings:
        say(f"Warning: {warning}")


def prepare(
    opened: Lab,
    campaign: Campaign,
    servers: Sequence[Server],
    placement: Placement,
    tools: dict[str, Tool],
    calibration: Calibration | None,
    say: Callable[[str], None],
) -> Prepared:
    """Build the servers and try the database.

    What is missing fails its trials, and a user's API the campaign.
    """
    engine = opened.engine
    ready = {}
    errors = {}
    database = None
    for server in servers:
        if engine.name != "attached":
            say(f"Building {server.name} …")
        try:
            binary = build(server)
            ready[server.name] = Ready(server, engine.prepare(server), binary)
        except LabError as error:
            if campaign.owns:
                raise
            errors[server.name] = str(error)
    if placement.database:
        say("Trying the database …")
        try:
            database = try_database(engine, placement.database)
        except LabError as error:
            errors[DATABASE] = str(error)
    for said in errors.values():
        say(f"Error: {said}")
    paths = {name: tool.path for name, tool in tools.items()}
    bench = Bench(opened, opened.sites, campaign, placement, paths, calibration)
    return Prepared(
        bench,
        ready,
        database,
        errors,
        inputs_of(campaign, [each.server for each in ready.values()]),
    )


BYTES_A_REQUEST = 200  # seen: 102 of k6's gzipped samples and 39 in the table of requests
BYTES_A_TRIAL = 2 * 2**20  # of all else; seen: up to one MiB
SPARE_BYTES = 256 * 2**20
TEMPORARY_BYTES = 64 * 2**20  # a warm-up, a server's temporary files
MEMORY_BYTES = (
    512 * 2**20
)  # runner, instruments, a server, PostgreSQL; seen: 400 MiB with a pool of 500 connections
MEMBER_BYTES = 256 * 2**20  # each further server of a session, with its PostgreSQL


def bytes_of(cell: Cell) -> int:
    """Return an upper estimate of what a trial leaves on the disk, in bytes."""
    return BYTES_A_TRIAL + BYTES_A_REQUEST * GENERATORS[cell.tool].kept_requests(cell)


def require_room(trials: Sequence[Trial], folder: Path) -> None:
    """Raise LabError if a disk, the memory or the open files that this user may have are too few
    for the trials.

    `folder` is where their raw samples go.
    """
    temporary = Path(tempfile.gettempdir())
    connections = max((trial.cell.sockets for trial in trials), default=0)
    disk = SPARE_BYTES + sum(bytes_of(trial.cell) for trial in trials)
    memory = MEMORY_BYTES + MEMBER_BYTES * max(
        (len(unit) - 1 for unit in by_session(trials)), default=0
    )
    memory += max(
        (GENERATORS[trial.cell.tool].memory_bytes(trial.cell.slice(1)) for trial in trials),
        default=0,
    )
    files = connections + OTHER_FILES
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    _require(
        disk,
        free_bytes(folder),
        f"on the disk of {folder}",
        "make the trials smaller with --scale or --repeats",
    )
    _require(
        TEMPORARY_BYTES,
        free_bytes(temporary),
        f"in {temporary}",
        "set TMPDIR to a folder elsewhere",
    )
    _require(
        memory,
        available_bytes(),
        "of memory",
        "end other programs, or ask for fewer virtual users or iterations",
    )
    if allowed != resource.RLIM_INFINITY and allowed < files:
        raise LabError(
            f"{connections} connections need {files} open files, and `ulimit -Hn` allows "
            f"{allowed}: as root, `ulimit "
            f"-n {max(65_536, files)}`, or set `nofile` in /etc/security/limits.conf.",
            exit_code=1,
        )


def require_room_there(trials: Sequence[Trial], sites: Sites) -> None:
    """Raise LabError if the disk of another host is too small for the largest load's files."""
    needed = SPARE_BYTES + max(bytes_of(trial.cell) for trial in trials)
    for site in sites.generators:
        if (free := site.room()) is not None:
            _require(
                needed,
                free,
                f"on the disk of the host of the {site.name}",
                "make the loads smaller with --scale",
            )


def _require(needed: int, there: int, where: str, remedy: str) -> None:
    if there < needed:
        raise LabError(
            f"The trials need about {needed / 2**30:.2g} GiB {where}, and {there / 2**30:.2g} are "
            f"free: free some, or {remedy}.",
            exit_code=1,
        )


_PACKAGES = (
    "docker",
    "duckdb",
    "matplotlib",
    "numpy",
    "pandas",
    "papermill",
    "psutil",
    "pyarrow",
    "seaborn",
)


def write_manifest(
    run: RunFolder,
    prepared: Prepared,
    tools: Mapping[str, Tool],
    inputs: Mapping[str, str],
    **more: Any,
) -> None:
    """Write run.json, what is run, with what, on what (`more` as it is): an allow-list, never the
    environment.
    """
    bench = prepared.bench
    servers = prepared.servers.values()
    engine = bench.lab.engine
    fleet = bench.lab.fleet
    campaign = record_of(bench.campaign)
    hosts = {"hosts": fleet.facts()} if fleet else {}
    seed = campaign.pop("seed")
    apis = campaign.pop("owns")
    campaign |= {"own": apis[0] if len(apis) == 1 else apis or None, "toml": campaign.pop("text")}
    placement = {
        name: value for name, value in asdict(bench.placement).items() if name != "hosts" or value
    }
    nginx = find_tool("nginx")
    versions = {name: tool.version for name, tool in tools.items()} | (
        {"nginx": nginx.version} if nginx else {}
    )
    write_json(
        run.path / "run.json",
        {
            "schema": SCHEMA,
            "run_id": run.path.name,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "campaign": campaign | {"scale": more.pop("scale")},
            "seed": seed,
            "git": _git(),
            "machine": hosts["hosts"][0]["machine"] if hosts else machine.facts(),
            **hosts,
            "tools": versions | {"python": platform.python_version()},
            "packages": {name: version(name) for name in _PACKAGES},
            "engine": engine.name,
            "engine_reason": engine.reason,
            "placement": placement
            | {
                "disjoint": bench.placement.disjoint,
                "database_shared": bench.placement.database_shared,
            },
            "images": {each.server.name: each.image for each in servers if each.image},
            "artifacts": {each.server.name: each.binary for each in servers if each.binary},
            "inputs": dict(inputs),
            "claims_sha256": sha256(CLAIMS),
            "database": prepared.database,
            "calibration": asdict(bench.calibration) if bench.calibration else None,
            **more,
        },
    )


def _git() -> dict[str, object] | None:
    """Return commit and whether tracked files differ from it; None outside a git checkout."""
    said = []
    for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain")):
        command = ["git", "-C", str(lab_root()), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            return None
        said.append(done.stdout.strip())
    return {"commit": said[0], "dirty": bool(said[1])}
