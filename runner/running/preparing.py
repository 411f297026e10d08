"""What stands before the first trial: tools, CPUs, built servers, a database that starts, the generators' ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.calibration import Calibration, load_calibration
from runner.measure import attached, machine
from runner.measure.build import build
from runner.measure.database import DatabaseFacts, try_database
from runner.measure.idle import remedy
from runner.measure.lab import Lab
from runner.measure.loading import Bench
from runner.measure.session import Ready
from runner.measure.tools import Tool, need_tool
from runner.measurement import Placement
from runner.model import Campaign, CannotGoOnError, Cell, LabError, Server, Trial, Workload
from runner.planning.catalog import campaign_workload
from runner.planning.inputs import changed, inputs_of
from runner.store import RunFolder, sha256

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


def place_for(campaign: Campaign, trials: Sequence[Trial]) -> Placement:
    """Return which CPUs each side gets; a database only where a trial has one.

    A server that runs already keeps its CPUs, and the generator gets the others.
    """
    if any(own.url is not None for own in campaign.owns):
        return attached.place(campaign.owns)
    needed = any(campaign_workload(campaign, name).database for name in {trial.cell.workload for trial in trials})
    return machine.place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def calibration_for(tools: dict[str, Tool], placement: Placement) -> Calibration | None:
    """Return the machine's calibration if it was made with these tools on as many CPUs."""
    found = load_calibration()
    versions = {name: tool.version for name, tool in tools.items()}
    return found if found and found.valid_for(machine.facts(), versions, len(placement.generator)) else None


def bench_of(
    opened: Lab,
    campaign: Campaign,
    placement: Placement,
    tools: dict[str, Tool],
    calibration: Calibration | None,
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
    opened: Lab,
    servers: Sequence[Server],
    placement: Placement,
    say: Callable[[str], None],
    *,
    strict: bool = False,
) -> Prepared:
    """Build the servers and try the database; what is missing fails its trials, not the campaign.

    `strict` lets it fail the campaign: a LabError.
    """
    ready, errors, database = {}, {}, None
    for server in servers:
        if opened.engine.name != "attached":
            say(f"Building {server.name} …")
        try:
            built = build(server)
            ready[server.name] = Ready(server, opened.engine.prepare(server), built.sha256)
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
