"""Commands that measure."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from runner import console
from runner.commands import options
from runner.commands.options import EngineOption, JsonFlag, emit
from runner.console import TrialProgress
from runner.model import Campaign, LabError, Workload, short_number
from runner.planning import catalog
from runner.store import RunFolder, find_run


def run(
    campaign: Annotated[
        str, typer.Argument(help="A campaign's name, or the path of a TOML file.")
    ] = "",
    engine: EngineOption = "auto",
    server: Annotated[
        list[str] | None, typer.Option("--server", help="Only these servers; repeatable.")
    ] = None,
    scale: options.Scale = 1.0,
    repeats: options.Repeats = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Order of the trials.")] = None,
    hosts: options.HostsFile = None,
    idle: options.Idle = None,
    rates_of: options.RatesOf = None,
    budget: options.Budget = None,
    until: options.Until = None,
    resume: Annotated[
        str | None, typer.Option(help="Continue this run; takes no campaign.")
    ] = None,
    url: options.Url = None,
    folder: options.Folder = None,
    script: options.ScriptFile = None,
    vus: options.Vus = None,
    iterations: options.Iterations = None,
    rate: options.Rates = None,
    duration: options.Duration = None,
    close: options.Close = False,
    probe_path: options.ProbePath = None,
    server_cpus: options.ServerCpus = None,
    i_own_this_host: options.OwnedHost = None,
    also: options.Also = None,
    json_: JsonFlag = False,
) -> None:
    """Run a campaign, each trial in a fresh server, or load an API of your own.

    Raw samples are written to data/runs/.
    """
    from runner.planning.plan import choose, with_idle, with_rates
    from runner.running.campaign import resume_campaign, run_campaign
    from runner.running.stopping import read_stopping
    from runner.running.user_api import Asked, plan_user_api

    rates = tuple(rate or ())
    urls = tuple(url or ())
    api = Asked(
        urls,
        folder,
        script,
        vus,
        iterations,
        rates,
        duration,
        probe_path,
        i_own_this_host,
        server_cpus,
        close,
        also=tuple(dict.fromkeys(also or ())),
    )
    has_api = api != Asked()
    if hosts is not None and (has_api or engine == "process"):
        raise LabError(
            "--hosts goes with a campaign, whose servers run as containers: leave it out for "
            "an API of your own."
        )
    _one_of(
        campaign,
        resume,
        has_api,
        named=bool(server) or scale != 1.0 or (bool(urls) and engine != "auto"),
    )
    with TrialProgress() as progress:
        if resume is not None:
            begun = find_run(resume)
            stopping = read_stopping(budget, _begun_until(begun, until))
            outcome = resume_campaign(begun, report=progress, stopping=stopping, hosts=hosts)
        else:
            planned = plan_user_api(api, repeats, seed) if has_api else None
            chosen = (
                planned.campaign
                if planned
                else choose(catalog.load_campaign(campaign), server, repeats, scale)
            )
            chosen = with_idle(chosen, idle)
            chosen = with_rates(
                chosen, partial(_capacity, find_run(rates_of), chosen) if rates_of else None
            )
            more: dict[str, Any] = {
                "planned": planned,
                "stopping": read_stopping(budget, until),
                "hosts": hosts,
            }
            outcome = run_campaign(
                chosen, engine=engine, scale=scale, seed=seed, report=progress, **more
            )
    _finish(outcome, json_)
    if outcome.failed:
        raise typer.Exit(1)


def _capacity(run: RunFolder, campaign: Campaign, workload: Workload) -> float:
    """Return the capacity of a campaign's slowest server, from an earlier run."""
    from runner.digest.ceilings import capacity

    loads = [load for load in campaign.loads if load.workload == workload.name]
    return capacity(
        run, [name for load in loads for name in load.servers or campaign.servers], workload
    )


def _begun_until(run: RunFolder, until: str | None) -> str | None:
    """Return the original `--until` of a resumed run, which keeps it.

    Its confidence level depends on it.
    """
    begun = run.manifest().get("until")
    if until not in (None, begun):
        raise LabError(
            f"Run {run.run_id} began {f'with --until {begun}' if begun else 'without --until'}: "
            "leave it out."
        )
    return begun


def _one_of(campaign: str, resume: str | None, api: bool, *, named: bool) -> None:
    """Raise LabError unless exactly one thing to run is given.

    `named` is True if there are options that only a campaign has.
    """
    if resume is not None and (campaign or api):
        raise LabError(
            "--resume continues the campaign of its run: give no campaign, and no API, with it."
        )
    if campaign and api:
        raise LabError(
            f"Campaign {campaign} has its servers and loads: give it without those of an API of "
            "your own."
        )
    if api and named:
        raise LabError(
            "--server and --scale are for campaigns, and --engine is none for a --url: leave "
            "them out."
        )
    if not campaign and resume is None and not api:
        raise LabError(
            f"Which campaign? There are {', '.join(catalog.campaign_names())}; or give the "
            "--url of your API."
        )


def calibrate(
    engine: EngineOption = "auto",
    scale: options.Scale = 1.0,
    repeats: options.Repeats = None,
    hosts: options.HostsFile = None,
    json_: JsonFlag = False,
) -> None:
    """Measure the highest rates of k6 and wrk on this machine, or on all hosts together.

    Verdicts use these ceilings from then on.
    """
    from runner.planning.plan import choose
    from runner.running.campaign import calibrate_machine

    chosen = choose(catalog.load_campaign("calibrate"), None, repeats, scale)
    with TrialProgress() as progress:
        found = calibrate_machine(chosen, engine=engine, scale=scale, report=progress, hosts=hosts)
    if json_:
        emit(asdict(found))
        return
    rows = [
        (c.tool, c.load_model, c.mode, c.connections, c.in_words, c.server, c.verdict)
        for c in found.ceilings
    ]
    columns = ("tool", "load", "mode", "connections or users", "requests/s", "against", "verdict")
    console.table(f"ceilings of the generators (run {found.run_id})", columns, rows)


def overhead(
    engine: EngineOption = "auto",
    server: Annotated[str, typer.Option(help="The server to load.")] = "gin",
    vus: Annotated[int, typer.Option(min=1, max=10_000, help="Virtual users of k6.")] = 3000,
    iterations: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Requests of each load.")
    ] = 60_000,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Loads under each variant.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Order of the loads.")] = 1,
    json_: JsonFlag = False,
) -> None:
    """Measure the cost of the lab itself.

    One load runs with all of its observers, without each, and by a stock k6.
    """
    from runner.running import overhead as lab_costs

    usual = lab_costs.overhead_campaign(
        server, vus=vus, iterations=iterations, repeats=repeats, seed=seed
    )
    costly = lab_costs.costly_campaign(repeats=repeats, seed=seed)
    of_usual = lab_costs.measure_overhead(
        usual, lab_costs.VARIANTS, engine=engine, say=console.note
    )
    of_costly = lab_costs.measure_overhead(
        costly, lab_costs.COSTLY, engine=engine, say=console.note
    )
    lab_costs.store_overhead([*of_usual, *of_costly])
    rows = [
        *({"load": f"{server}, N = {vus}", **row} for row in lab_costs.costs(of_usual)),
        *(
            {"load": f"{lab_costs.COST_MS:g} ms of CPU a request", **row}
            for row in lab_costs.costs(of_costly)
        ),
    ]
    if json_:
        emit(
            [
                row | {"lab_to_variant": (ratio := row["lab_to_variant"]) and asdict(ratio)}
                for row in rows
            ]
        )
        return
    columns = (
        "load,variant,loads,requests/s,p50 in ms,the lab's rate / this,sampler in % of a "
        "core,probe in % of a core"
    )
    shown = []
    for row in rows:
        cpu = (
            "" if row[name] is None else f"{row[name]:.2f}"
            for name in ("sampler_cpu_pct", "probe_cpu_pct")
        )
        rates = (f"{row['rps']:,.0f}", short_number(row["p50_ms"]), lab_costs.in_words(row))
        shown.append((row["load"], row["variant"], row["trials"], *rates, *cpu))
    console.table("what the lab costs", columns.split(","), shown)


def _finish(outcome: Any, json_: bool) -> None:
    from runner.present.answers import other_ports
    from runner.present.answers.findings import sentences
    from runner.present.answers.summary import (
        notes,
        of_own_api,
        printable,
        reasons_unknown,
        summarize,
    )
    from runner.present.frames import read_tables
    from runner.present.look.markup import DAGGER, NOT_RANKED

    tables = read_tables(outcome.run)
    table = summarize(tables)
    more = of_own_api(tables)
    shown = printable(table, more)
    findings = (*sentences(tables), *other_ports.sentences(tables))
    missing = notes(table, more)
    unknown = reasons_unknown(table)
    if json_:
        result = {
            "run_id": outcome.run.run_id,
            "path": str(outcome.run.path),
            "trials": outcome.trials,
        }
        result |= {"failed": outcome.failed, "warnings": outcome.warnings, "findings": findings}
        emit(result | {"summary": shown.to_dict("records"), "notes": missing, "unknown": unknown})
        return
    console.frame(f"run {outcome.run.run_id}", shown)
    if len(shown) and shown["requests/s"].str.contains(NOT_RANKED).any():
        console.note(DAGGER)
    console.note(*missing, *unknown)
    for sentence in outcome.failed[:10]:
        console.error(sentence)
    if len(outcome.failed) > 10:
        console.note(f"… and {len(outcome.failed) - 10} more: see the trial.json files.")
    console.note(*findings, f"Raw samples and tables: {outcome.run.path}")
