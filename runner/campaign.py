"""The loop over trials: engine, progress, resume, and the record of each outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from runner.catalog import campaign_from_manifest, campaign_servers, load_workload
from runner.digest.tables import build_tables, have_tables, rebuild
from runner.digest.trial import Digest, digest_trial
from runner.measure import machine
from runner.measure.build import build
from runner.measure.conntrack import wait_for_room
from runner.measure.database import DatabaseFacts, try_database
from runner.measure.engine import EngineChoice
from runner.measure.manifest import write_manifest
from runner.measure.session import Session, session
from runner.measure.tools import Tool, need_tool
from runner.measure.trial import Bench, Ready, measure
from runner.model import SCHEMA, Campaign, Cell, LabError, Measurement, Placement, Server, State, Trial, Workload
from runner.plan import next_attempt, plan_trials
from runner.search import Searches
from runner.store import RunFolder, new_run, raw_hashes, write_json

DATABASE = "the database"
WAIT = "Waiting for room in the kernel's table of tracked connections: the next trial opens up to {:,}."
ATTEMPTS = 3
"""How often a trial is tried whose only fault is that the machine took the CPU away from the sampler."""


class Reporter(Protocol):
    """Who is told how a campaign goes."""

    def say(self, text: str) -> None:
        """One line that the user should see."""

    def plan(self, trials: Sequence[Trial]) -> None:
        """The trials to come, in order."""

    def begin(self, trial: Trial) -> None:
        """A trial starts."""

    def step(self, text: str) -> None:
        """What the trial is doing."""

    def end(self, trial: Trial, record: dict[str, Any]) -> None:
        """A trial has ended, with its record."""


@dataclass(frozen=True)
class Outcome:
    """How a campaign ended."""

    run: RunFolder
    trials: int
    failed: tuple[str, ...]
    """One sentence a failed trial."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Prepared:
    """Everything that trials need, and for each server, and the database, the reason why it is not to be had."""

    servers: dict[str, Ready]
    database: DatabaseFacts | None
    errors: dict[str, str]
    """By server's name, or DATABASE."""

    def error_for(self, cell: Cell, workload: Workload) -> str | None:
        """Return why a cell cannot be measured."""
        return self.errors.get(cell.server) or (self.errors.get(DATABASE) if workload.database else None)


def run_campaign(
    campaign: Campaign, *, engine: EngineChoice, scale: float, seed: int | None, report: Reporter
) -> Outcome:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build the tables.

    A trial that fails is recorded and the next one runs. LabError where nothing can run at all.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}.")
    tools = _tools(trials)
    placement = _place(campaign, trials)
    warnings = machine.warnings(placement, max(trial.cell.sockets for trial in trials))
    with session(engine) as opened:
        _greet(opened, warnings, report)
        prepared = _prepare(opened, servers, placement, report)
        run = new_run(campaign.name)
        write_manifest(
            run,
            campaign=campaign,
            scale=scale,
            tools=tools,
            engine=opened.engine,
            placement=placement,
            prepared=prepared.servers.values(),
            database=prepared.database,
            warnings=warnings,
        )
        for trial in trials:
            run.append("planned", trial.trial_id)
        bench = _bench(opened, campaign, placement, tools)
        failed = _run_trials(bench, run, trials, prepared, report)
    build_tables(run)
    return Outcome(run, len(trials), failed, tuple(warnings))


def resume_campaign(run: RunFolder, *, report: Reporter) -> Outcome:
    """Go on with a run that was interrupted: the same plan, order, engine and binaries; finished trials stay untouched.

    A trial that was not finished is repeated as a new attempt. LabError where a binary or image is not the same.
    """
    manifest = run.manifest()
    campaign = campaign_from_manifest(manifest)
    servers = campaign_servers(campaign)
    planned = plan_trials(campaign, servers)
    trials = _unfinished(run, planned)
    if not trials:
        report.say(f"Run {run.run_id} is finished: there is nothing to resume.")
        return _finished(run, 0, manifest)
    tools = _tools(trials)
    placement = _place(campaign, planned)
    with session(manifest["engine"]) as opened:
        _greet(opened, (), report)
        prepared = _prepare(opened, servers, placement, report)
        _require_same(prepared, manifest)
        _run_trials(_bench(opened, campaign, placement, tools), run, trials, prepared, report)
    rebuild(run)
    return _finished(run, len(trials), manifest)


def _unfinished(run: RunFolder, planned: Sequence[Trial]) -> list[Trial]:
    """Return the trials that have no sealed or failed attempt, each as its next attempt."""
    states = run.states()
    left = []
    for trial in planned:
        attempts = [name for name in states if name.split(".a")[0] == trial.trial_id]
        if not any(states[name] in ("sealed", "failed") for name in attempts):
            begun = [name for name in attempts if states[name] != "planned"]
            left.append(next_attempt(trial, len(begun) + 1))
    return left


def _require_same(prepared: _Prepared, manifest: dict[str, Any]) -> None:
    now = {
        "artifacts": {name: each.binary for name, each in prepared.servers.items()},
        "images": {name: each.image for name, each in prepared.servers.items()},
        "database": {DATABASE: prepared.database.image if prepared.database else None},
    }
    then = {**manifest, "database": {DATABASE: (manifest.get("database") or {}).get("image")}}
    for kind, found in now.items():
        for name, begun in then[kind].items():
            if begun is not None and found.get(name) != begun:
                raise LabError(
                    f"The run cannot go on: the {'artifact' if kind == 'artifacts' else 'image'} of {name} is not the "
                    f"one that it began with ({begun[:19]} then, {str(found.get(name))[:19]} now). Start a new run."
                )


def _place(campaign: Campaign, trials: Sequence[Trial]) -> Placement:
    needed = any(load_workload(name).database for name in {trial.cell.workload for trial in trials})
    return machine.place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def _bench(opened: Session, campaign: Campaign, placement: Placement, tools: dict[str, Tool]) -> Bench:
    environment: dict[str, dict[str, str]] = {}
    for server, name, value in campaign.environment:
        environment.setdefault(server, {})[name] = value
    paths = {name: tool.path for name, tool in tools.items()}
    return Bench(opened.engine, placement, paths, campaign.sample_hz, opened.ledger, environment)


def _finished(run: RunFolder, trials: int, manifest: dict[str, Any]) -> Outcome:
    last = {(r["block"], r["cell"]["server"], str(r["cell"])): r for r in run.records()}
    failed = [f"{r['trial_id']}: {r['error']}" for r in last.values() if r["status"] == "failed"]
    return Outcome(run, trials, tuple(failed), tuple(manifest["host_warnings"]))


def ensure_tables(run: RunFolder, say: Callable[[str], None], *, salvage: bool = False) -> None:
    """Rebuild the run's tables from raw if any is missing, or if damaged samples are to be salvaged."""
    if salvage or not have_tables(run):
        say("Rebuilding the tables from the raw samples …")
        rebuild(run, salvage=salvage)


def _tools(trials: Sequence[Trial]) -> dict[str, Tool]:
    names: set[str] = {trial.cell.tool for trial in trials}
    return {name: need_tool(name) for name in sorted(names)}


def _greet(opened: Session, warnings: Iterable[str], report: Reporter) -> None:
    if opened.reaped:
        report.say(f"Removed what a run that died had left: {', '.join(opened.reaped)}.")
    word = "Engine" if opened.engine.name == "docker" else "NO CONTAINERS. Engine"
    report.say(f"{word}: {opened.engine.name} ({opened.engine.reason}).")
    for warning in warnings:
        report.say(f"Warning: {warning}")


def _prepare(opened: Session, servers: Sequence[Server], placement: Placement, report: Reporter) -> _Prepared:
    """Build the servers and try the database; what is not to be had fails its own trials, not the campaign."""
    ready, errors, database = {}, {}, None
    for server in servers:
        report.say(f"Building {server.name} …")
        try:
            built = build(server)
            ready[server.name] = Ready(server, opened.engine.prepare(server), built.sha256)
        except LabError as error:
            report.say(f"Error: {error}")
            errors[server.name] = str(error)
    if placement.database:
        report.say("Trying the database …")
        try:
            database = try_database(opened.engine, placement.database)
        except LabError as error:
            report.say(f"Error: {error}")
            errors[DATABASE] = str(error)
    return _Prepared(ready, database, errors)


def _run_trials(
    bench: Bench, run: RunFolder, trials: Sequence[Trial], prepared: _Prepared, report: Reporter
) -> tuple[str, ...]:
    """Run the trials in order; return a sentence for each that failed."""
    machine.raise_open_files()
    report.plan(trials)
    failed = []
    searches = Searches(run.records())
    for planned in trials:
        trial = searches.settle(planned)
        wait_for_room(trial.cell, lambda needed: report.say(WAIT.format(needed)))
        report.begin(trial)
        record = _run_trial(bench, run, trial, prepared, report.step)
        while record["disturbed"] and record["attempt"] < ATTEMPTS:
            report.say(f"{record['trial_id']} is repeated: {record['error']}")
            again = next_attempt(trial, record["attempt"] + 1)
            record = _run_trial(bench, run, again, prepared, report.step)
        searches.note(record)
        report.end(trial, record)
        if record["error"] is not None:
            failed.append(f"{record['trial_id']}: {record['error']}")
    return tuple(failed)


def _run_trial(
    bench: Bench, run: RunFolder, trial: Trial, prepared: _Prepared, step: Callable[[str], None]
) -> dict[str, Any]:
    """Measure, digest and record one trial; return its record. An interruption is recorded and goes on up."""
    run.trial(trial.trial_id).mkdir(parents=True)
    run.append("running", trial.trial_id)
    started = datetime.now(UTC).isoformat()
    measurement: Measurement | None = None
    digest: Digest | None = None
    state: State = "failed"
    error: str | None = None
    try:
        measurement = _measure(bench, trial, prepared, run, step)
        run.append("raw", trial.trial_id)
        step("digest")
        digest = digest_trial(run, trial, measurement)
        error = digest.broken
        state = "sealed" if error is None else "failed"
    except KeyboardInterrupt:
        state, error = "interrupted", "interrupted before its end"
        raise
    except LabError as known:
        error = str(known)
    except Exception as unknown:  # noqa: BLE001 - the trial's boundary: whatever happened is recorded, the next trial runs
        error = f"{type(unknown).__name__}: {unknown}"
    finally:
        record = _record(run, trial, started, state, error, measurement, digest)
        write_json(run.trial(trial.trial_id) / "trial.json", record)
        run.append(state, trial.trial_id, error=error)
    return record


def _measure(
    bench: Bench, trial: Trial, prepared: _Prepared, run: RunFolder, step: Callable[[str], None]
) -> Measurement:
    workload = load_workload(trial.cell.workload)
    error = prepared.error_for(trial.cell, workload)
    if error is not None:
        raise LabError(error, exit_code=1)
    ready = prepared.servers[trial.cell.server]
    return measure(bench, ready, workload, trial.cell, run.trial(trial.trial_id), step)


def _record(
    run: RunFolder,
    trial: Trial,
    started: str,
    state: State,
    error: str | None,
    measurement: Measurement | None,
    digest: Digest | None,
) -> dict[str, Any]:
    """Return trial.json: everything that is known of a trial, whatever became of it."""
    return {
        "schema": SCHEMA,
        "run_id": run.path.name,
        **asdict(trial),
        "started_at": started,
        "ended_at": datetime.now(UTC).isoformat(),
        "status": state,
        "error": error,
        "disturbed": digest is not None and digest.disturbed,
        "measurement": measurement.to_json() if measurement else None,
        "checks": [asdict(check) for check in digest.checks] if digest else [],
        "verdict": digest.verdict.verdict if digest else "inconclusive",
        "verdict_reason": digest.verdict.reason if digest else "the trial failed before it could be judged",
        "metrics": digest.metrics if digest else {},
        "raw": raw_hashes(run.trial(trial.trial_id)),
    }
