"""A campaign from its plan to its tables, and the calibration that is one."""

from __future__ import annotations

from dataclasses import replace

from runner.calibration import Calibration, save_calibration
from runner.digest.ceilings import calibrate
from runner.digest.tables import build_tables, have_parts, rebuild
from runner.measure import machine
from runner.measure.conntrack import connections_of
from runner.measure.engine import EngineChoice
from runner.measure.lab import open_lab
from runner.measure.manifest import write_manifest
from runner.measure.resource_check import require_room
from runner.model import Campaign, LabError
from runner.planning.catalog import campaign_servers
from runner.planning.inputs import inputs_of
from runner.planning.plan import plan_trials
from runner.running.attempts import Reporter, RunResult, resumable, run_trials
from runner.running.preparing import (
    ask_idle,
    bench_of,
    calibration_for,
    greet,
    place_for,
    prepare,
    tools_of,
    with_workloads,
)
from runner.running.user_api import Planned
from runner.store import data_folder, new_run, remember


def run_campaign(
    campaign: Campaign,
    *,
    engine: EngineChoice,
    scale: float,
    seed: int | None,
    report: Reporter,
    calibrating: bool = False,
    planned: Planned | None = None,
) -> RunResult:
    """Run every trial of `campaign` (already scaled by `scale`, which is only recorded) and build the tables.

    A trial that fails is recorded and the next one runs. LabError where nothing can run at all. With `calibrating` no
    verdict leans on an earlier calibration. `planned` is what goes with a campaign for a user's API.
    """
    campaign = campaign if seed is None else replace(campaign, seed=seed)
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(f"No server of {', '.join(campaign.servers)} implements a workload of {campaign.name}.")
    require_room(trials, data_folder())
    tools = tools_of(trials)
    placement = place_for(campaign, trials)
    warnings = machine.warnings(
        placement,
        max(trial.cell.sockets for trial in trials),
        max(connections_of(trial.cell) for trial in trials),
    )
    warnings += planned.remarks if planned else ()
    calibration = None if calibrating else calibration_for(tools, placement)
    with open_lab(engine, campaign.owns) as opened:
        idle, hindered = ask_idle(opened, trials)
        warnings += (*opened.warnings, *hindered)
        greet(opened, warnings, report.say)
        prepared = prepare(opened, servers, placement, report.say, strict=bool(campaign.owns))
        run = new_run(campaign.name)
        if planned is not None:
            planned.store(run)
        write_manifest(
            run,
            campaign=campaign,
            scale=scale,
            tools=tools,
            engine=opened.engine,
            idle=idle,
            placement=placement,
            prepared=prepared.servers.values(),
            database=prepared.database,
            calibration=calibration,
            warnings=warnings,
            inputs=inputs_of(campaign, servers),
        )
        remember(run)
        for trial in trials:
            run.append("planned", trial.trial_id)
        bench = bench_of(opened, campaign, placement, tools, calibration)
        with resumable(run, report):
            failed = run_trials(bench, run, trials, with_workloads(prepared, campaign, run), report)
    build_tables(run) if have_parts(run) else rebuild(run)
    return RunResult(run, len(trials), failed, tuple(warnings))


def calibrate_machine(campaign: Campaign, *, engine: EngineChoice, scale: float, report: Reporter) -> Calibration:
    """Run the calibrating `campaign` and store the generators' ceilings that it shows."""
    outcome = run_campaign(campaign, engine=engine, scale=scale, seed=None, report=report, calibrating=True)
    for failure in outcome.failed:
        report.say(f"Error: {failure}")
    calibration = calibrate(outcome.run)
    save_calibration(calibration)
    return calibration
