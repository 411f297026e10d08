"""A campaign from its plan to its tables, new or resumed, and the calibration that is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from runner.calibration import Calibration, calibration_from, save_calibration
from runner.digest.ceilings import calibrate
from runner.digest.tables import build_tables, have_parts, rebuild, verify_sealed
from runner.fingerprint import fingerprint
from runner.measure import machine
from runner.measure.counters import connections_of
from runner.measure.engine import EngineChoice
from runner.measure.lab import Lab, open_lab
from runner.measure.tools import Tool
from runner.measurement import Placement
from runner.model import Campaign, LabError, State, Trial
from runner.planning.catalog import campaign_from_manifest, campaign_servers, changed, inputs_of
from runner.planning.hosts import Hosts
from runner.planning.plan import by_session, next_attempt, plan_trials
from runner.running.attempts import TO_THE_END, Reporter, RunResult, Stopping, resumable, run_trials
from runner.running.preparing import (
    DATABASE,
    Prepared,
    ask_idle,
    bench_of,
    calibration_for,
    greet,
    place_for,
    prepare,
    require_room,
    require_room_there,
    tools_of,
    with_workloads,
    write_manifest,
)
from runner.running.user_api import Planned, require_same_own
from runner.store import RunFolder, begun_here, data_folder, new_run, read_json, remember, sweep, write_json


def run_campaign(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    seed: int | None,
    report: Reporter,
    calibrating: bool = False,
    planned: Planned | None = None,
    stopping: Stopping = TO_THE_END,
    hosts: Hosts | None = None,
) -> RunResult:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build the tables.

    A trial that fails is recorded and the next one runs. LabError where nothing can run at all. With `calibrating` no
    verdict leans on an earlier calibration. `planned` goes with a campaign for a user's API; `stopping` says when to
    end before the last trial; `hosts` where everything runs, if not here.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}.")
    require_room(trials, data_folder())
    tools = tools_of(trials)
    with open_lab(engine, campaign.owns, hosts, report.say) as opened:
        require_room_there(trials, opened.sites)
        placement = place_for(campaign, trials, opened.fleet)
        warnings = _warnings(opened, placement, trials)
        warnings += planned.remarks if planned else ()
        calibration = None if calibrating else calibration_for(tools, placement, opened.fleet)
        idle, hindered = ask_idle(opened, trials)
        warnings += (*opened.warnings, *hindered)
        greet(opened, warnings, report.say)
        prepared = prepare(opened, servers, placement, report.say, strict=bool(campaign.owns))
        run = new_run(campaign.name)
        if planned is not None:
            planned.store(run)
        bench, inputs = bench_of(opened, campaign, placement, tools, calibration), inputs_of(campaign, servers)
        write_manifest(
            run, bench, campaign, prepared, scale=scale, tools=tools, idle=idle, warnings=warnings, inputs=inputs,
            until=stopping.until, hosts=opened.fleet.facts() if opened.fleet else None,
        )  # fmt: skip
        remember(run)
        for trial in trials:
            run.append("planned", trial.trial_id)
        with resumable(run, report):
            failed = run_trials(bench, run, trials, with_workloads(prepared, campaign, run), report, stopping)
    build_tables(run) if have_parts(run) else rebuild(run)
    return RunResult(run, len(trials), failed, tuple(warnings))


def _warnings(opened: Lab, placement: Placement, trials: Sequence[Trial]) -> list[str]:
    """Return what can spoil the numbers of a campaign, on this machine or on each host."""
    most = max(trial.cell.sockets for trial in trials)
    opens = max(connections_of(trial.cell) for trial in trials)
    return opened.fleet.warnings(most, opens) if opened.fleet else machine.warnings(placement, most, opens)


def calibrate_machine(
    campaign: Campaign, *, engine: EngineChoice, scale: float, report: Reporter, hosts: Hosts | None = None
) -> Calibration:
    """Run the calibrating `campaign` and store the generators' ceilings that it shows."""
    outcome = run_campaign(
        campaign, engine=engine, scale=scale, seed=None, report=report, calibrating=True, hosts=hosts
    )
    for failure in outcome.failed:
        report.say(f"Error: {failure}")
    calibration = calibrate(outcome.run)
    save_calibration(calibration, of_hosts=hosts is not None)
    return calibration


def resume_campaign(
    run: RunFolder, *, report: Reporter, stopping: Stopping = TO_THE_END, hosts: Hosts | None = None
) -> RunResult:
    """Resume an interrupted run with the same plan, order, engine and binaries; finished trials stay untouched.

    A trial that was not finished is repeated as a new attempt. LabError where a file, binary or image is not the same.
    """
    manifest = _manifest(run)
    _require_as_many_hosts(run, manifest, hosts)
    campaign = campaign_from_manifest(manifest)
    if (campaign.owns or campaign.environment) and not begun_here(run):
        raise LabError(
            f"Run {run.run_id} brings a program, a script or an environment, and was not begun in this lab: "
            "it is not resumed, because resuming would execute them. Start a new run."
        )
    servers = campaign_servers(campaign)
    planned = plan_trials(campaign, servers)
    states = run.states()
    missing, recorded = _rest_of_plan(states, planned), _recorded(run, states)
    states |= {record["trial_id"]: record["status"] for record in recorded}
    verify_sealed(run)
    trials = _unfinished(run, states, planned, campaign.attempts)
    if not trials:
        if recorded:
            with open_lab("process"):  # for its lock: nothing is started
                _write_down(run, missing, recorded)
        report.say(f"Run {run.run_id} is finished: there is nothing to resume.")
        return _finished(run, 0, manifest)
    for own in campaign.owns:
        require_same_own(own, run)
    require_room(trials, run.path)
    tools = tools_of(trials)
    if said := changed(manifest.get("inputs", {}), inputs_of(campaign, servers)):
        raise LabError(f"{said}: put it back, or start a new run.")
    with open_lab(manifest["engine"], campaign.owns, hosts, report.say) as opened:
        require_room_there(trials, opened.sites)
        placement = place_for(campaign, planned, opened.fleet)
        _require_same_machine(manifest, placement, tools, opened.fleet.facts() if opened.fleet else None)
        idle, _ = ask_idle(opened, planned)
        if idle != manifest.get("idle", "system"):
            raise LabError(
                f"The run cannot go on: idle CPUs were {manifest.get('idle', 'system')} and cannot be so now "
                f"({opened.idle.problem or 'another state was asked for'}). Start a new run."
            )
        sweep(run)
        _write_down(run, missing, recorded)
        _break_up(run, trials, states)
        greet(opened, (), report.say)
        prepared = with_workloads(prepare(opened, servers, placement, report.say), campaign, run)
        _require_same(prepared, manifest)
        begun_with = manifest.get("calibration")
        said = f"{run.path / 'run.json'} has no calibration that can be read"
        calibration = calibration_from(begun_with, said) if begun_with else None
        with resumable(run, report):
            run_trials(
                bench_of(opened, campaign, placement, tools, calibration), run, trials, prepared, report, stopping
            )
    report.say("Rebuilding the tables from the raw samples …")
    rebuild(run)
    return _finished(run, len(trials), manifest)


_NEEDED: dict[str, type] = {
    **dict.fromkeys(("machine", "tools", "placement", "images", "artifacts"), dict),
    "engine": str,
    "host_warnings": list,
}
"""What a manifest must say of how a run began, for another to be the same."""


def _require_as_many_hosts(run: RunFolder, manifest: Mapping[str, Any], hosts: Hosts | None) -> None:
    if hosts is not None and manifest.get("hosts") is None:
        raise LabError(f"Run {run.run_id} began on this machine alone: leave out --hosts.")
    if hosts is None and manifest.get("hosts") is not None:
        raise LabError(f"Run {run.run_id} began on several hosts: name them with --hosts.")


def _manifest(run: RunFolder) -> dict[str, Any]:
    manifest = run.manifest()
    if run.packed.exists():
        raise LabError("The run cannot go on: it was exported, and has no raw files. Start a new run.")
    for name, kind in _NEEDED.items():
        if not isinstance(manifest.get(name), kind):
            raise LabError(f"The run cannot go on: its run.json does not say under which {name} it began.")
    return manifest


def _rest_of_plan(states: Mapping[str, State], planned: Sequence[Trial]) -> Sequence[Trial]:
    """Return the trials that a run which died while it wrote its plan has not in its journal.

    LabError where today's servers and workloads make another plan than the one that is there.
    """
    begun = [name for name in states if ".a" not in name]
    if begun != [trial.trial_id for trial in planned[: len(begun)]]:
        raise LabError(
            "The run cannot go on: its plan is not the one that it began with (a server.toml or a workload changed). "
            "Start a new run."
        )
    return planned[len(begun) :]


def _recorded(run: RunFolder, states: Mapping[str, State]) -> list[dict[str, Any]]:
    """Return the records that were complete when the runner died, of trials whose last line the journal lacks."""
    return [
        record
        for record in run.records()
        if states.get(record["trial_id"]) in ("running", "raw") and record["status"] in ("sealed", "failed")
    ]


def _write_down(run: RunFolder, missing: Sequence[Trial], recorded: Sequence[dict[str, Any]]) -> None:
    """Append to the journal what the runner that died had not."""
    for trial in missing:
        run.append("planned", trial.trial_id)
    for record in recorded:
        run.append(record["status"], record["trial_id"], error=record["error"])


def _unfinished(
    run: RunFolder, states: Mapping[str, State], planned: Sequence[Trial], most_attempts: int
) -> list[Trial]:
    """Return the trials that have no sealed or failed attempt, each as its next one; those of a session together."""
    left: list[Trial] = []
    for unit in by_session(planned):
        names = [[name for name in states if name.split(".a")[0] == trial.trial_id] for trial in unit]
        begun = max(sum(states[name] != "planned" for name in attempts) for attempts in names)
        if not any(_is_done(run, states, unit, attempt, most_attempts) for attempt in range(1, begun + 1)):
            left += [next_attempt(trial, begun + 1) for trial in unit]
    return left


def _is_done(
    run: RunFolder, states: Mapping[str, State], unit: Sequence[Trial], attempt: int, most_attempts: int
) -> bool:
    """Return whether an attempt came to its end for all trials of a session, and was not to be followed by another."""
    names = [next_attempt(trial, attempt).trial_id for trial in unit]
    ended = all(states.get(name) in ("sealed", "failed") for name in names)
    return ended and (attempt >= most_attempts or not any(_is_disturbed(run, name) for name in names))


def _is_disturbed(run: RunFolder, attempt: str) -> bool:
    """Return whether an attempt failed by the machine's fault."""
    return bool(read_json(run.trial(attempt) / "trial.json")["disturbed"])


def _break_up(run: RunFolder, recorded: Sequence[Trial], states: Mapping[str, State]) -> None:
    """Mark the sealed trials of sessions that did not come to their end: a session counts as a whole or not at all."""
    for trial in recorded:
        for attempt in range(1, trial.attempt):
            name = next_attempt(trial, attempt).trial_id
            if states.get(name) == "sealed":
                record = read_json(run.trial(name) / "trial.json")
                error = "its session was interrupted"
                write_json(run.trial(name) / "trial.json", {**record, "status": "interrupted", "error": error})
                run.append("interrupted", name, error=error)


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


def _require_same_machine(
    manifest: dict[str, Any], placement: Placement, tools: dict[str, Tool], hosts: Sequence[Mapping[str, Any]] | None
) -> None:
    """Refuse to resume a run on other machines: its manifest would not be that of the later blocks."""
    then, facts = manifest["placement"], [machine.facts()] if hosts is None else [host["machine"] for host in hosts]
    begun = [manifest["machine"]] if hosts is None else [host["machine"] for host in manifest["hosts"]]
    same = {
        "machine": list(map(fingerprint, begun)) == list(map(fingerprint, facts)),
        "CPU placement": all(tuple(then.get(side, ())) == cpus for side, cpus in asdict(placement).items()),
        **{name: manifest["tools"].get(name) in (None, tool.version) for name, tool in tools.items()},
    }
    for what, unchanged in same.items():
        if not unchanged:
            raise LabError(f"The run cannot go on: its {what} is not the one that it began with. Start a new run.")


def _finished(run: RunFolder, trials: int, manifest: dict[str, Any]) -> RunResult:
    last = {(r["block"], r["cell"]["server"], str(r["cell"])): r for r in run.records()}
    failed = [f"{r['trial_id']}: {r['error']}" for r in last.values() if r["status"] == "failed"]
    return RunResult(run, trials, tuple(failed), tuple(manifest["host_warnings"]))
