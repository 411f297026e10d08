"""Run a campaign from its plan to its tables, resume a run, and calibrate the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.calibration import Calibration, save_calibration
from runner.digest.ceilings import calibrate
from runner.digest.tables import build_tables, ensure_tables, have_parts, rebuild, verify_sealed
from runner.manifest import Manifest
from runner.measure import machine
from runner.measure.counters import connections_of
from runner.measure.engine import EngineChoice
from runner.measure.lab import open_lab
from runner.model import Campaign, LabError, Trial
from runner.planning.catalog import campaign_from_manifest, campaign_servers, inputs_of
from runner.planning.hosts import Hosts
from runner.planning.plan import plan_trials
from runner.running import preparing
from runner.running.attempts import RunResult
from runner.running.creating import RunOptions, create
from runner.running.preparing import Prepared, Setting
from runner.running.profiling import (
    TimeBudget,
    kept_s,
    note_missing,
    obstacle,
    profile_servers,
    profiles_left,
)
from runner.running.resuming import (
    cannot_go_on,
    measure_remaining,
    require_same_servers,
    require_same_setting,
    rest_of,
)
from runner.running.stopping import TO_THE_END, Stopping
from runner.running.user_api import Planned, why_not_same
from runner.store import RunFolder, begun_here, data_folder, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Run every trial of `campaign` and build the tables.

    The campaign is already scaled, so `scale` is only recorded. If a trial fails, record the
    failure and run the next trial. Raise LabError if no trial can run. If `calibrating` is True,
    verdicts use no earlier calibration. `planned` is needed only if the campaign is for a user's
    API. `stopping` contains the rules by which the run may end before the last trial. `hosts` are
    the machines to use. If `hosts` is None, everything runs on this machine.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(
            f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}."
        )
    preparing.require_room(trials, preparing.Room.of(data_folder()))
    tools = preparing.tools_of(trials, on_hosts=hosts is not None)
    inputs = inputs_of(campaign, servers)
    with open_lab(engine, campaign.owns, hosts, report.say) as opened:
        setting = preparing.set_up(opened, campaign, trials, trials, tools)
        remarks = planned.remarks if planned else ()
        warnings = (
            *_warnings(setting, trials),
            *remarks,
            *opened.warnings,
            *setting.idle_warnings,
        )
        preparing.greet(opened, warnings, report.say)
        calibration = None if calibrating else preparing.calibration_for(setting)
        prepared = preparing.prepare(
            opened, campaign, servers, setting.placement, tools, calibration, report.say
        )
        script = planned.script if planned else None
        options = RunOptions(scale, stopping.until or None, warnings, script)
        run = create(setting, prepared, trials, inputs, options)
        trial_count = _measure(run, trials, prepared, report, stopping)
    return _finish(run, trial_count, report, is_new=True)


def _warnings(setting: Setting, trials: Sequence[Trial]) -> Sequence[str]:
    """Return warnings about facts of the machine or the hosts that distort the trials' numbers."""
    most_sockets = max(trial.cell.sockets for trial in trials)
    most_connections = max(connections_of(trial.cell) for trial in trials)
    fleet = setting.opened.fleet
    if fleet is not None:
        return fleet.warnings(most_sockets, most_connections)
    return machine.warnings(setting.placement, most_sockets, most_connections)


def calibrate_machine(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    report: TrialProgress,
    hosts: Hosts | None = None,
) -> Calibration:
    """Run `campaign`, which measures the generators' ceilings; store and return the ceilings."""
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
    """Resume an interrupted run.

    The run keeps its plan, the order of its trials, its engine and its binaries. Finished trials
    are not changed. An unfinished trial is repeated as a new attempt. An unfinished profile begins
    again with its first slice. Raise LabError if a file, a binary or an image has changed.
    """
    begun = _resumable(run, hosts)
    campaign = campaign_from_manifest(begun)
    if (campaign.owns or campaign.environment) and not begun_here(run):
        raise LabError(
            f"Run {run.run_id} was begun elsewhere, not in this lab. Resuming the run would "
            "execute the program, the script or the environment that are stored with it. "
            "Start a new run instead."
        )
    servers = campaign_servers(campaign)
    planned = plan_trials(campaign, servers)
    rest = rest_of(run, planned, campaign.attempts)
    verify_sealed(run)
    profiles = [trial for profile in profiles_left(run, campaign) for trial in profile.trials]
    missing = obstacle(of_hosts=hosts is not None) if profiles else None
    remaining = [*rest.trials, *(profiles if missing is None else ())]
    if not remaining:
        if missing is not None:
            report.say(f"Warning: {missing}")
            note_missing(run, (missing,))
        if rest.recorded:
            with open_lab("process"):  # only to hold the lab's lock; no server is started
                rest.write_down(run)
        report.say(f"Run {run.run_id} is finished: no trial is left to run.")
        ensure_tables(run, report.say)
        return _result(run, 0)
    for api in campaign.owns:
        if why := why_not_same(api, run):
            raise cannot_go_on(why)
    preparing.require_room(remaining, preparing.Room.of(run.path))
    tools = preparing.tools_of(remaining, on_hosts=hosts is not None)
    changed = preparing.changed_file(begun, inputs_of(campaign, servers))
    if changed is not None:
        raise LabError(f"{changed}: restore the file, or start a new run.")
    with open_lab(_engine(begun), campaign.owns, hosts, report.say) as opened:
        setting = preparing.set_up(opened, campaign, planned, remaining, tools)
        require_same_setting(begun, setting)
        preparing.greet(opened, (), report.say)
        prepared = preparing.prepare(
            opened,
            campaign,
            servers,
            setting.placement,
            tools,
            _calibration(run, begun),
            report.say,
        )
        require_same_servers(begun, prepared)
        trial_count = _measure(run, planned, prepared, report, stopping)
    return _finish(run, trial_count, report, is_new=False)


def _measure(
    run: RunFolder,
    planned: Sequence[Trial],
    prepared: Prepared,
    report: TrialProgress,
    stopping: Stopping,
) -> int:
    """Measure the remaining trials of a run, and then make the remaining profiles.

    Return the number of trials that remained at the beginning. Report everything that could not be
    profiled. The time budget covers trials and profiles.
    """
    profiles = profiles_left(run, prepared.bench.campaign)
    begun_s = stopping.clock()
    kept = replace(stopping, kept_s=kept_s(profiles, stopping.budget_s))
    trial_count = measure_remaining(run, planned, prepared, report, kept)
    left_s = stopping.budget_s - (stopping.clock() - begun_s)
    budget = TimeBudget(left_s, stopping.clock)
    missing = profile_servers(run, profiles, prepared, report, budget)
    for said in missing:
        report.say(f"Warning: {said}")
    if profiles:
        note_missing(run, missing)
    return trial_count


NEEDED = ("machine", "tools", "placement", "images", "artifacts", "engine", "host_warnings")
"""Facts that the manifest of a run must contain, so that the run can be resumed.

Without these facts, the lab could not continue the run under the same conditions.
"""


def _resumable(run: RunFolder, hosts: Hosts | None) -> Manifest:
    """Return the manifest of a run; raise LabError if the run cannot be resumed on these hosts."""
    manifest = run.manifest()
    if run.packed.exists():
        raise cannot_go_on("it is an exported run, without raw files")
    for name in NEEDED:
        if not manifest.says(name):
            raise cannot_go_on(
                f"its run.json does not contain the {name} that the run had when it began"
            )
    if (hosts is None) != (manifest.hosts is None):
        where = (
            "this machine alone: omit --hosts"
            if hosts
            else "several hosts: give the hosts file of that run by --hosts"
        )
        raise LabError(f"Run {run.run_id} began on {where}.")
    return manifest


def _engine(begun: Manifest) -> EngineChoice:
    """Return the kind of engine with which a run began.

    If the user had started the servers (engine `attached`), return `docker`. In this case it does
    not matter which engine is returned, because the resumed run does not start servers.
    """
    return "process" if begun.engine == "process" else "docker"


def _calibration(run: RunFolder, begun: Manifest) -> Calibration | None:
    """Return the calibration with which a run began, or None if it began without one.

    Raise LabError if the calibration cannot be read.
    """
    if not begun.calibration:
        return None
    unreadable = f"{run.path / 'run.json'} has no calibration that can be read"
    return decode(Calibration, begun.calibration, unreadable, exit_code=2)


def _finish(run: RunFolder, trial_count: int, report: TrialProgress, *, is_new: bool) -> RunResult:
    """Build the tables of a run, and return the result of the run.

    The tables of a new run are put together from partial tables, one for each trial. In a resumed
    run, the trials that ended before the interruption have no partial tables, so all tables are
    rebuilt from the raw samples.
    """
    if is_new and have_parts(run):
        build_tables(run)
    else:
        report.say("Rebuilding the tables from the raw samples …")
        rebuild(run)
    return _result(run, trial_count)


def _result(run: RunFolder, trial_count: int) -> RunResult:
    """Return the result of a run. Only the last attempt of each trial counts."""
    last = {
        (record["block"], record["cell"]["server"], str(record["cell"])): record
        for record in run.records()
    }
    failed = tuple(
        f"{record['trial_id']}: {record['error']}"
        for record in last.values()
        if record["status"] == "failed"
    )
    return RunResult(run, trial_count, failed, run.manifest().host_warnings)
