"""What stands before the first trial: tools, CPUs, built servers, a database that starts, the generators' ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runner.calibration import Calibration, load_calibration
from runner.catalog import load_workload
from runner.measure import machine
from runner.measure.build import build
from runner.measure.database import DatabaseFacts, try_database
from runner.measure.loading import Bench
from runner.measure.session import Session
from runner.measure.tools import Tool, need_tool
from runner.measure.trial import Ready
from runner.model import Campaign, Cell, LabError, Placement, Server, Trial, Workload

DATABASE = "the database"
"""Stands beside the servers' names where something is said of each."""


@dataclass(frozen=True)
class Prepared:
    """Everything that trials need, and for each server, and the database, the reason why it is not to be had."""

    servers: dict[str, Ready]
    database: DatabaseFacts | None
    errors: dict[str, str]
    """By server's name, or DATABASE."""

    def error_for(self, cell: Cell, workload: Workload) -> str | None:
        """Return why a cell cannot be measured."""
        return self.errors.get(cell.server) or (self.errors.get(DATABASE) if workload.database else None)


def place_for(campaign: Campaign, trials: Sequence[Trial]) -> Placement:
    """Return which CPUs each side gets; a database only where a trial has one."""
    needed = any(load_workload(name).database for name in {trial.cell.workload for trial in trials})
    return machine.place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def calibration_for(tools: dict[str, Tool], placement: Placement) -> Calibration | None:
    """Return the machine's calibration if it was made with these tools on as many CPUs."""
    found = load_calibration()
    versions = {name: tool.version for name, tool in tools.items()}
    return found if found and found.valid_for(machine.facts(), versions, len(placement.generator)) else None


def bench_of(
    opened: Session,
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
    return Bench(opened.engine, placement, paths, campaign.sample_hz, opened.ledger, environment, calibration)


def tools_of(trials: Sequence[Trial]) -> dict[str, Tool]:
    """Return the generators that the trials need; LabError where one is missing."""
    names: set[str] = {trial.cell.tool for trial in trials}
    return {name: need_tool(name) for name in sorted(names)}


def greet(opened: Session, warnings: Iterable[str], say: Callable[[str], None]) -> None:
    """Say what was cleaned up, which engine is used, and what on this machine can spoil the numbers."""
    if opened.reaped:
        say(f"Removed what a run that died had left: {', '.join(opened.reaped)}.")
    word = "Engine" if opened.engine.name == "docker" else "NO CONTAINERS. Engine"
    say(f"{word}: {opened.engine.name} ({opened.engine.reason}).")
    for warning in warnings:
        say(f"Warning: {warning}")


def prepare(opened: Session, servers: Sequence[Server], placement: Placement, say: Callable[[str], None]) -> Prepared:
    """Build the servers and try the database; what is not to be had fails its own trials, not the campaign."""
    ready, errors, database = {}, {}, None
    for server in servers:
        say(f"Building {server.name} …")
        try:
            built = build(server)
            ready[server.name] = Ready(server, opened.engine.prepare(server), built.sha256)
        except LabError as error:
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
