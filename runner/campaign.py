"""The loop over trials: engine, progress, resume, and the record of each outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from runner.catalog import campaign_from_manifest, load_server, load_workload
from runner.digest.tables import build_tables, have_tables, rebuild
from runner.digest.trial import Digest, digest_trial
from runner.measure import machine
from runner.measure.build import Built, build
from runner.measure.engine import EngineChoice
from runner.measure.manifest import write_manifest
from runner.measure.session import Session, session
from runner.measure.tools import Tool, need_tool
from runner.measure.trial import Bench, measure
from runner.model import SCHEMA, Campaign, LabError, Measurement, Server, State, Trial
from runner.plan import next_attempt, plan_trials
from runner.store import RunFolder, new_run, raw_hashes, write_json

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
class _Ready:
    """A server that is built and prepared, or the reason why not."""

    server: Server
    built: Built
    image: str | None
    error: str | None


def run_campaign(
    campaign: Campaign, *, engine: EngineChoice, scale: float, seed: int | None, report: Reporter
) -> Outcome:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build the tables.

    A trial that fails is recorded and the next one runs. LabError where nothing can run at all.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = [load_server(name) for name in campaign.servers]
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}.")
    tools = _tools(trials)
    placement = machine.place(campaign.server_cpus)
    warnings = machine.warnings(placement, max(trial.cell.sockets for trial in trials))
    with session(engine) as opened:
        _greet(opened, warnings, report)
        ready = [_prepare(opened, server, report) for server in servers]
        run = new_run(campaign.name)
        write_manifest(
            run,
            campaign=campaign,
            scale=scale,
            tools=tools,
            engine=opened.engine,
            placement=placement,
            images={each.server.name: each.image for each in ready if each.image},
            artifacts={each.server.name: each.built.sha256 for each in ready if each.built.sha256},
            warnings=warnings,
        )
        for trial in trials:
            run.append("planned", trial.trial_id)
        bench = Bench(
            opened.engine,
            placement,
            {name: tool.path for name, tool in tools.items()},
            campaign.sample_hz,
            opened.ledger,
        )
        failed = _run_trials(bench, run, trials, ready, report)
    build_tables(run)
    return Outcome(run, len(trials), failed, tuple(warnings))


def resume_campaign(run: RunFolder, *, report: Reporter) -> Outcome:
    """Go on with a run that was interrupted: the same plan, order, engine and binaries; finished trials stay untouched.

    A trial that was not finished is repeated as a new attempt. LabError where a binary or image is not the same.
    """
    manifest = run.manifest()
    campaign = campaign_from_manifest(manifest)
    servers = [load_server(name) for name in campaign.servers]
    planned = plan_trials(campaign, servers)
    trials = _unfinished(run, planned)
    if not trials:
        report.say(f"Run {run.run_id} is finished: there is nothing to resume.")
        return _finished(run, 0, manifest)
    tools = _tools(trials)
    placement = machine.place(campaign.server_cpus)
    with session(manifest["engine"]) as opened:
        _greet(opened, (), report)
        ready = [_prepare(opened, server, report) for server in servers]
        _require_same(ready, manifest)
        bench = Bench(
            opened.engine,
            placement,
            {name: tool.path for name, tool in tools.items()},
            campaign.sample_hz,
            opened.ledger,
        )
        _run_trials(bench, run, trials, ready, report)
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


def _require_same(ready: Sequence[_Ready], manifest: dict[str, Any]) -> None:
    for each in ready:
        name = each.server.name
        for kind, now in (("artifacts", each.built.sha256), ("images", each.image)):
            then = manifest[kind].get(name)
            if then is not None and now != then:
                raise LabError(
                    f"The run cannot go on: the {kind.rstrip('s')} of {name} is not the one that it began with "
                    f"({then[:19]} then, {str(now)[:19]} now). Start a new run."
                )


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


def _prepare(opened: Session, server: Server, report: Reporter) -> _Ready:
    """Build a server; a server that cannot be built fails its own trials, not the campaign."""
    report.say(f"Building {server.name} …")
    try:
        built = build(server)
        return _Ready(server, built, opened.engine.prepare(server), None)
    except LabError as error:
        report.say(f"Error: {error}")
        return _Ready(server, Built(None, None), None, str(error))


def _run_trials(
    bench: Bench, run: RunFolder, trials: Sequence[Trial], ready: Sequence[_Ready], report: Reporter
) -> tuple[str, ...]:
    """Run the trials in order; return a sentence for each that failed."""
    machine.raise_open_files()
    report.plan(trials)
    by_name = {each.server.name: each for each in ready}
    failed = []
    for trial in trials:
        report.begin(trial)
        record = _run_trial(bench, run, trial, by_name[trial.cell.server], report.step)
        while record["disturbed"] and record["attempt"] < ATTEMPTS:
            report.say(f"{record['trial_id']} is repeated: {record['error']}")
            again = next_attempt(trial, record["attempt"] + 1)
            record = _run_trial(bench, run, again, by_name[trial.cell.server], report.step)
        report.end(trial, record)
        if record["error"] is not None:
            failed.append(f"{record['trial_id']}: {record['error']}")
    return tuple(failed)


def _run_trial(
    bench: Bench, run: RunFolder, trial: Trial, ready: _Ready, step: Callable[[str], None]
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
        measurement = _measure(bench, trial, ready, run, step)
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


def _measure(bench: Bench, trial: Trial, ready: _Ready, run: RunFolder, step: Callable[[str], None]) -> Measurement:
    if ready.error is not None:
        raise LabError(ready.error, exit_code=1)
    return measure(
        bench,
        ready.server,
        load_workload(trial.cell.workload),
        trial.cell,
        run.trial(trial.trial_id),
        step,
        image=ready.image,
        binary=ready.built.sha256,
    )


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
