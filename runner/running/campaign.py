"""A campaign from its plan to its tables, new or resumed, and the calibration that is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from runner.calibration import Calibration, fingerprint, save_calibration
from runner.digest.ceilings import calibrate
from runner.digest.tables import build_tables, have_parts, rebuild, verify_sealed
from runner.measure import machine
from runner.measure.counters import connections_of
from runner.measure.engine import EngineChoice
from runner.measure.generators.script import store_script
from runner.measure.lab import Lab, open_lab
from runner.measure.tools import Tool
from runner.measurement import Placement
from runner.model import Campaign, LabError, State, Trial
from runner.planning.catalog import (
    PACKAGE,
    WRAPPER,
    campaign_from_manifest,
    campaign_servers,
    changed,
    inputs_of,
)
from runner.planning.hosts import Hosts
from runner.planning.plan import by_session, next_attempt, plan_trials
from runner.running import preparing
from runner.running.attempts import RunResult, run_trials
from runner.running.stopping import TO_THE_END, Stopping
from runner.running.user_api import Planned, why_not_same
from runner.store import (
    RunFolder,
    begun_here,
    data_folder,
    decode,
    new_run,
    read_json,
    remember,
    sweep,
    write_json,
)

if TYPE_CHECKING:
    from runner.console import TrialProgress


def run_campaign(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    seed: int | None,
    report: TrialProgress,
    calibrating: bool = False,
    planned: Planned | None = None,
    stopping: Stopping = TO_THE_END,
    hosts: Hosts | None = None,
) -> RunResult:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build
    the tables.

    A trial that fails is recorded and the next one runs. LabError if nothing can run at all.
    With `calibrating` no verdict leans on an earlier calibration. `planned` goes with a campaign
    for a user's API; `stopping` says when to end before the last trial; `hosts` where everything
    runs, if not here.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(
            f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}."
        )
    preparing.require_room(trials, data_folder())
    tools = preparing.tools_of(trials)
    inputs = inputs_of(campaign, servers)
    with open_lab(engine, campaign.owns, hosts, report.say) as opened:
        placement = preparing.place_for(campaign, trials, opened.fleet)
        preparing.require_room_there(trials, opened.sites)
        most, opens = (
            max(f(trial.cell) for trial in trials) for f in (attrgetter("sockets"), connections_of)
        )
        spoilt = (
            opened.fleet.warnings(most, opens)
            if opened.fleet
            else machine.warnings(placement, most, opens)
        )
        idle, hindered = preparing.ask_idle(opened, trials)
        warnings = (*spoilt, *(planned.remarks if planned else ()), *opened.warnings, *hindered)
        preparing.greet(opened, warnings, report.say)
        calibration = (
            None if calibrating else preparing.calibration_for(tools, placement, opened.fleet)
        )
        prepared = preparing.prepare(
            opened, campaign, servers, placement, tools, calibration, report.say
        )
        run = new_run(campaign.name)
        if planned is not None and planned.script is not None:
            store_script(run, planned.script, PACKAGE / "workloads" / WRAPPER)
        more = {
            "scale": scale,
            "idle": idle,
            "until": stopping.until or None,
            "host_warnings": warnings,
        }
        preparing.write_manifest(run, prepared, tools, inputs, **more)
        remember(run)
        for trial in trials:
            run.append("planned", trial.trial_id)
        failed = run_trials(run, trials, prepared, report, stopping)
    build_tables(run) if have_parts(run) else rebuild(run)
    return RunResult(run, len(trials), failed, warnings)


def calibrate_machine(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    report: TrialProgress,
    hosts: Hosts | None = None,
) -> Calibration:
    """Run the calibrating `campaign` and store the generators' ceilings that it shows."""
    outcome = run_campaign(
        campaign,
        engine=engine,
        scale=scale,
        seed=None,
        report=report,
        calibrating=True,
        hosts=hosts,
    )
    for failure in outcome.failed:
        report.say(f"Error: {failure}")
    calibration = calibrate(outcome.run)
    save_calibration(calibration, of_hosts=hosts is not None)
    return calibration


def resume_campaign(
    run: RunFolder,
    *,
    report: TrialProgress,
    stopping: Stopping = TO_THE_END,
    hosts: Hosts | None = None,
) -> RunResult:
    """Resume an interrupted run with the same plan, order, engine and binaries.

    Finished trials stay untouched.

    A trial that was not finished is repeated as a new attempt. LabError if a file, binary or
    image is not the same.
    """
    manifest = _manifest(run, hosts)
    campaign = campaign_from_manifest(manifest)
    if (campaign.owns or campaign.environment) and not begun_here(run):
        raise LabError(
            f"Run {run.run_id} brings a program, a script or an environment, and was not begun in "
            "this lab: it is not resumed, because resuming would execute them. Start a new run."
        )
    servers = campaign_servers(campaign)
    planned = plan_trials(campaign, servers)
    states = run.states()
    missing = _rest_of_plan(states, planned)
    recorded = _recorded(run, states)
    states |= {record["trial_id"]: record["status"] for record in recorded}
    verify_sealed(run)
    trials = _unfinished(run, states, planned, campaign.attempts)
    if not trials:
        if recorded:
            with open_lab("process"):  # for its lock: nothing is started
                _write_down(run, missing, recorded)
        report.say(f"Run {run.run_id} is finished: there is nothing to resume.")
        return _finished(run, 0, manifest)
    for api in campaign.owns:
        if why := why_not_same(api, run):
            raise _cannot(why)
    preparing.require_room(trials, run.path)
    tools = preparing.tools_of(trials)
    if said := changed(manifest.get("inputs", {}), inputs_of(campaign, servers)):
        raise LabError(f"{said}: put it back, or start a new run.")
    with open_lab(manifest["engine"], campaign.owns, hosts, report.say) as opened:
        placement = preparing.place_for(campaign, planned, opened.fleet)
        preparing.require_room_there(trials, opened.sites)
        _require_same_machine(manifest, placement, tools, opened)
        idle = preparing.ask_idle(opened, planned)[0]
        then = manifest.get("idle", "system")
        if idle != then:
            why = opened.idle.problem or "another state was asked for"
            raise _cannot(f"idle CPUs were {then} and cannot be so now ({why})")
        sweep(run)
        _write_down(run, missing, recorded)
        _break_up(run, trials, states)
        preparing.greet(opened, (), report.say)
        unreadable = f"{run.path / 'run.json'} has no calibration that can be read"
        begun = manifest.get("calibration")
        calibration = decode(Calibration, begun, unreadable, exit_code=2) if begun else None
        prepared = preparing.prepare(
            opened, campaign, servers, placement, tools, calibration, report.say
        )
        _require_same_servers(prepared, manifest)
        run_trials(run, trials, prepared, report, stopping)
    report.say("Rebuilding the tables from the raw samples …")
    rebuild(run)
    return _finished(run, len(trials), manifest)


_NEEDED: dict[str, type] = {
    **dict.fromkeys(("machine", "tools", "placement", "images", "artifacts"), dict),
    "engine": str,
    "host_warnings": list,
}  # what a manifest must say of how a run began, for another to be the same


def _cannot(why: str) -> LabError:
    return LabError(f"The run cannot go on: {why}. Start a new run.")


def _manifest(run: RunFolder, hosts: Hosts | None) -> dict[str, Any]:
    """Return the manifest of a run that can be resumed on as many hosts; LabError for any other."""
    manifest = run.manifest()
    if run.packed.exists():
        raise _cannot("it was exported, and has no raw files")
    for name, kind in _NEEDED.items():
        if not isinstance(manifest.get(name), kind):
            raise _cannot(f"its run.json does not say under which {name} it began")
    if (hosts is None) != (manifest.get("hosts") is None):
        where = (
            "this machine alone: leave out --hosts"
            if hosts
            else "several hosts: name them with --hosts"
        )
        raise LabError(f"Run {run.run_id} began on {where}.")
    return manifest


def _rest_of_plan(states: Mapping[str, State], planned: Sequence[Trial]) -> Sequence[Trial]:
    """Return what the journal of a run that died in its planning lacks.

    LabError if today's plan is another one.
    """
    begun = [name for name in states if ".a" not in name]
    if begun != [trial.trial_id for trial in planned[: len(begun)]]:
        raise _cannot(
            "its plan is not the one that it began with (a server.toml or a workload changed)"
        )
    return planned[len(begun) :]


def _recorded(run: RunFolder, states: Mapping[str, State]) -> list[dict[str, Any]]:
    """Return the records that were complete when the runner died, of trials whose last line the
    journal lacks.
    """
    return [
        record
        for record in run.records()
        if states.get(record["trial_id"]) in ("running", "raw")
        and record["status"] in ("sealed", "failed")
    ]


def _write_down(
    run: RunFolder, missing: Sequence[Trial], recorded: Sequence[dict[str, Any]]
) -> None:
    """Append to the journal what the runner that died had not."""
    for trial in missing:
        run.append("planned", trial.trial_id)
    for record in recorded:
        run.append(record["status"], record["trial_id"], error=record["error"])


def _unfinished(
    run: RunFolder, states: Mapping[str, State], planned: Sequence[Trial], most_attempts: int
) -> list[Trial]:
    """Return the trials that have no sealed or failed attempt, each as its next one.

    Those of a session together.
    """
    left: list[Trial] = []
    for unit in by_session(planned):
        names = [
            [name for name in states if name.split(".a")[0] == trial.trial_id] for trial in unit
        ]
        begun = max(sum(states[name] != "planned" for name in attempts) for attempts in names)
        for attempt in range(
            1, begun + 1
        ):  # one that ended for all of them, and was not to be followed by another
            tried = [next_attempt(trial, attempt).trial_id for trial in unit]
            ended = all(states.get(name) in ("sealed", "failed") for name in tried)
            records = (read_json(run.record(name)) for name in tried)
            if ended and (
                attempt >= most_attempts or not any(record["disturbed"] for record in records)
            ):
                break
        else:
            left += [next_attempt(trial, begun + 1) for trial in unit]
    return left


def _break_up(run: RunFolder, trials: Sequence[Trial], states: Mapping[str, State]) -> None:
    """Mark the sealed trials of sessions that did not come to their end: a session counts as a
    whole or not at all.
    """
    error = "its session was interrupted"
    for name in (
        next_attempt(trial, attempt).trial_id
        for trial in trials
        for attempt in range(1, trial.attempt)
    ):
        if states.get(name) == "sealed":
            write_json(
                run.record(name),
                read_json(run.record(name)) | {"status": "interrupted", "error": error},
            )
            run.append("interrupted", name, error=error)


def _require_same_servers(prepared: preparing.Prepared, manifest: dict[str, Any]) -> None:
    """Raise LabError if a binary or an image is not the one that the run began with."""
    database = {preparing.DATABASE: (manifest.get("database") or {}).get("image")}
    for kind, then, now in (
        (
            "artifact",
            manifest["artifacts"],
            {name: each.binary for name, each in prepared.servers.items()},
        ),
        (
            "image",
            manifest["images"],
            {name: each.image for name, each in prepared.servers.items()},
        ),
        ("image", database, {preparing.DATABASE: (prepared.database or {}).get("image")}),
    ):
        for name, begun in then.items():
            if begun is not None and now.get(name) != begun:
                difference = f"{begun[:19]} then, {str(now.get(name))[:19]} now"
                raise _cannot(
                    f"the {kind} of {name} is not the one that it began with ({difference})"
                )


def _require_same_machine(
    manifest: dict[str, Any], placement: Placement, tools: dict[str, Tool], opened: Lab
) -> None:
    """Raise LabError on other machines: a run's manifest would not be that of the later blocks."""
    then = manifest["placement"]
    facts = (
        [each["machine"] for each in opened.fleet.facts()] if opened.fleet else [machine.facts()]
    )
    begun = [each["machine"] for each in (manifest["hosts"] if opened.fleet else [manifest])]
    same = {
        "machine": list(map(fingerprint, begun)) == list(map(fingerprint, facts)),
        "CPU placement": all(
            tuple(then.get(side, ())) == cpus for side, cpus in asdict(placement).items()
        ),
        **{
            name: manifest["tools"].get(name) in (None, tool.version)
            for name, tool in tools.items()
        },
    }
    for what, unchanged in same.items():
        if not unchanged:
            raise _cannot(f"its {what} is not the one that it began with")


def _finished(run: RunFolder, trials: int, manifest: dict[str, Any]) -> RunResult:
    last = {(r["block"], r["cell"]["server"], str(r["cell"])): r for r in run.records()}
    failed = [f"{r['trial_id']}: {r['error']}" for r in last.values() if r["status"] == "failed"]
    return RunResult(run, trials, tuple(failed), tuple(manifest["host_warnings"]))
