"""The loop over trials: engine, progress, resume, and the record of each outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from runner.calibration import Calibration, calibration_from, save_calibration
from runner.catalog import campaign_from_manifest, campaign_servers, load_workload
from runner.digest.ceilings import calibrate
from runner.digest.tables import build_tables, have_tables, rebuild
from runner.digest.trial import Digest, digest_trial
from runner.fingerprint import fingerprint
from runner.measure import machine
from runner.measure.conntrack import connections_of, wait_for_room
from runner.measure.engine import EngineChoice
from runner.measure.loading import Bench
from runner.measure.manifest import write_manifest
from runner.measure.session import session
from runner.measure.tools import Tool
from runner.measure.trial import measure
from runner.model import SCHEMA, Campaign, LabError, Measurement, Placement, State, Trial
from runner.plan import next_attempt, plan_trials
from runner.preparing import DATABASE, Prepared, bench_of, calibration_for, greet, place_for, prepare, tools_of
from runner.search import Searches
from runner.store import RunFolder, new_run, raw_hashes, read_json, write_json

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


def run_campaign(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    seed: int | None,
    report: Reporter,
    calibrating: bool = False,
) -> Outcome:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build the tables.

    A trial that fails is recorded and the next one runs. LabError where nothing can run at all. With `calibrating` no
    verdict leans on an earlier calibration.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}.")
    tools = tools_of(trials)
    placement = place_for(campaign, trials)
    warnings = machine.warnings(
        placement,
        max(trial.cell.sockets for trial in trials),
        max(connections_of(trial.cell) for trial in trials),
    )
    calibration = None if calibrating else calibration_for(tools, placement)
    with session(engine) as opened:
        greet(opened, warnings, report.say)
        prepared = prepare(opened, servers, placement, report.say)
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
            calibration=calibration,
            warnings=warnings,
        )
        for trial in trials:
            run.append("planned", trial.trial_id)
        bench = bench_of(opened, campaign, placement, tools, calibration)
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
    tools = tools_of(trials)
    placement = place_for(campaign, planned)
    with session(manifest["engine"]) as opened:
        greet(opened, (), report.say)
        prepared = prepare(opened, servers, placement, report.say)
        _require_same(prepared, manifest)
        _require_same_machine(manifest, placement, tools)
        begun_with = manifest.get("calibration")
        calibration = calibration_from(begun_with) if begun_with else None
        _run_trials(bench_of(opened, campaign, placement, tools, calibration), run, trials, prepared, report)
    rebuild(run)
    return _finished(run, len(trials), manifest)


def _unfinished(run: RunFolder, planned: Sequence[Trial]) -> list[Trial]:
    """Return the trials that have no sealed or failed attempt, each as its next attempt."""
    states = run.states()
    left = []
    for trial in planned:
        attempts = [name for name in states if name.split(".a")[0] == trial.trial_id]
        begun = [name for name in attempts if states[name] != "planned"]
        if not any(states[name] in ("sealed", "failed") and not _to_repeat(run, name) for name in attempts):
            left.append(next_attempt(trial, len(begun) + 1))
    return left


def _to_repeat(run: RunFolder, attempt: str) -> bool:
    """Return whether an attempt failed by the machine's fault, and was to be followed by another."""
    record = read_json(run.trial(attempt) / "trial.json")
    return bool(record["disturbed"]) and record["attempt"] < ATTEMPTS


def _require_same(prepared: Prepared, manifest: dict[str, Any]) -> None:
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


def _require_same_machine(manifest: dict[str, Any], placement: Placement, tools: dict[str, Tool]) -> None:
    """Refuse to go on with a run elsewhere: its later blocks would stand under a manifest that is not theirs."""
    then = manifest["placement"]
    same = {
        "machine": fingerprint(manifest["machine"]) == fingerprint(machine.facts()),
        "CPU placement": all(tuple(then[side]) == cpus for side, cpus in asdict(placement).items()),
        **{name: manifest["tools"].get(name) in (None, tool.version) for name, tool in tools.items()},
    }
    for what, unchanged in same.items():
        if not unchanged:
            raise LabError(f"The run cannot go on: its {what} is not the one that it began with. Start a new run.")


def calibrate_machine(campaign: Campaign, *, engine: EngineChoice, scale: float, report: Reporter) -> Calibration:
    """Run the calibrating `campaign` and store the generators' ceilings that it shows."""
    outcome = run_campaign(campaign, engine=engine, scale=scale, seed=None, report=report, calibrating=True)
    for failure in outcome.failed:
        report.say(f"Error: {failure}")
    calibration = calibrate(outcome.run)
    save_calibration(calibration)
    return calibration


def _finished(run: RunFolder, trials: int, manifest: dict[str, Any]) -> Outcome:
    last = {(r["block"], r["cell"]["server"], str(r["cell"])): r for r in run.records()}
    failed = [f"{r['trial_id']}: {r['error']}" for r in last.values() if r["status"] == "failed"]
    return Outcome(run, trials, tuple(failed), tuple(manifest["host_warnings"]))


def ensure_tables(run: RunFolder, say: Callable[[str], None], *, salvage: bool = False) -> None:
    """Rebuild the run's tables from raw if any is missing, or if damaged samples are to be salvaged."""
    if salvage or not have_tables(run):
        say("Rebuilding the tables from the raw samples …")
        rebuild(run, salvage=salvage)


def _run_trials(
    bench: Bench, run: RunFolder, trials: Sequence[Trial], prepared: Prepared, report: Reporter
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
    bench: Bench, run: RunFolder, trial: Trial, prepared: Prepared, step: Callable[[str], None]
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
    bench: Bench, trial: Trial, prepared: Prepared, run: RunFolder, step: Callable[[str], None]
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
