"""Commands that measure."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from runner import console
from runner.commands import options
from runner.commands.options import (
    ApiOptions,
    CampaignOptions,
    EngineOption,
    JsonFlag,
    emit,
    grouped,
)
from runner.console import TrialProgress
from runner.model import Campaign, LabError, Workload
from runner.planning import catalog
from runner.store import RunFolder, find_run

if TYPE_CHECKING:
    from runner.running.attempts import RunResult
    from runner.running.user_api import Asked


@grouped(CampaignOptions, ApiOptions)
def run(what: CampaignOptions, of_api: ApiOptions, json_: JsonFlag = False) -> None:
    """Run a campaign, with a freshly started server in each trial, or load an API of your own.

    Raw samples are written to data/runs/ in a checkout, and to bench-data/runs/ elsewhere.
    """
    from runner.running.campaign import resume_campaign
    from runner.running.stopping import read_stopping
    from runner.running.user_api import Asked

    asked = _asked(of_api)
    has_api = asked != Asked()
    if what.hosts is not None and (has_api or what.engine == "process"):
        raise LabError(
            "--hosts works only with a campaign whose servers run as containers: omit "
            "--hosts for an API of your own, and with --engine process."
        )
    _one_of(
        what.campaign,
        what.resume,
        has_api,
        named=bool(what.server)
        or what.scale != 1.0
        or (bool(asked.urls) and what.engine != "auto"),
    )
    with TrialProgress() as progress:
        if what.resume is not None:
            begun = find_run(what.resume)
            stopping = read_stopping(what.budget, _begun_until(begun, what.until))
            outcome = resume_campaign(begun, report=progress, stopping=stopping, hosts=what.hosts)
        else:
            outcome = _begin(what, asked if has_api else None, progress)
    show_result(outcome, json_)
    if outcome.failed:
        raise typer.Exit(1)


def _asked(of_api: ApiOptions) -> Asked:
    """Return the options about a user's API as an `Asked`, from which the run is planned."""
    from runner.running.user_api import Asked

    return Asked(
        urls=tuple(of_api.url or ()),
        folder=of_api.folder,
        script=of_api.script,
        vus=of_api.vus,
        iterations=of_api.iterations,
        rates_rps=tuple(of_api.rate or ()),
        duration_s=of_api.duration,
        probe_path=of_api.probe_path,
        owned_host=of_api.i_own_this_host,
        server_cpus=of_api.server_cpus,
        close=of_api.close,
        also=tuple(dict.fromkeys(of_api.also or ())),
        ca=of_api.ca,
        insecure=of_api.insecure,
        certificate=of_api.cert,
        key=of_api.key,
        objective=of_api.objective,
        as_written=of_api.as_written,
    )


def _begin(what: CampaignOptions, api: Asked | None, progress: TrialProgress) -> RunResult:
    """Run a new campaign: one of the lab's own, or if `api` is given, one for the user's API."""
    from runner.planning.plan import choose, with_idle, with_profile, with_rates
    from runner.running.campaign import run_campaign
    from runner.running.stopping import read_stopping
    from runner.running.user_api import plan_user_api

    if api is not None and api.as_written and what.profile:
        raise LabError(
            "--profile loads the servers in short slices, and a load that the script "
            "itself defines (--as-written) cannot be cut into slices: omit one of the two "
            "options."
        )
    planned = None if api is None else plan_user_api(api, what.repeats, what.seed)
    if planned is None:
        campaign = catalog.load_campaign(what.campaign)
        chosen = choose(campaign, what.server, what.repeats, what.scale)
    else:
        chosen = planned.campaign
    chosen = with_idle(chosen, what.idle)
    if what.profile is not None:
        chosen = with_profile(chosen, profile=what.profile)
    capacity = partial(_capacity, find_run(what.rates_of), chosen) if what.rates_of else None
    chosen = with_rates(chosen, capacity)
    return run_campaign(
        chosen,
        engine=what.engine,
        scale=what.scale,
        seed=what.seed,
        report=progress,
        planned=planned,
        stopping=read_stopping(what.budget, what.until),
        hosts=what.hosts,
    )


def _capacity(run: RunFolder, campaign: Campaign, workload: Workload) -> float:
    """Return the capacity of the slowest server in an earlier run, in requests/s.

    Only servers that the campaign loads with `workload` are considered.
    """
    from runner.digest.ceilings import capacity

    loads = [load for load in campaign.loads if load.workload == workload.name]
    return capacity(
        run, [name for load in loads for name in load.servers or campaign.servers], workload
    )


def _begun_until(run: RunFolder, until: str | None) -> str | None:
    """Return the `--until` with which a run began; raise LabError if `until` is another value.

    A resumed run keeps its original option, because the run's confidence level depends on it.
    """
    begun = run.manifest().until
    if until not in (None, begun):
        raise LabError(
            f"Run {run.run_id} began "
            f"{f'with --until {begun}' if begun else 'without --until'}, and a resumed run "
            "keeps its rule for stopping: omit --until."
        )
    return begun


def _one_of(campaign: str, resume: str | None, api: bool, *, named: bool) -> None:
    """Raise LabError unless exactly one of a campaign, a run to resume, and an API is given.

    `named` is True if the user gave an option that does not apply to an API: --server, --scale, or
    --engine together with --url. Raise LabError if an API is given and `named` is True.
    """
    if resume is not None and (campaign or api):
        raise LabError(
            "--resume continues the run that it names, with that run's campaign: omit the "
            "campaign and the options for an API."
        )
    if campaign and api:
        raise LabError(
            f"Campaign {campaign} already defines its servers and loads: omit the campaign, "
            "or omit the options for an API of your own."
        )
    if api and named:
        raise LabError(
            "--server and --scale apply only to campaigns. --engine applies only to servers that "
            "the lab starts, and the lab does not start the server of a --url. Omit these options."
        )
    if not campaign and resume is None and not api:
        raise LabError(
            "`bench run` needs a campaign or an API: name one of the campaigns "
            f"{', '.join(catalog.campaign_names())}, or give the --url of your API."
        )


def calibrate(
    engine: EngineOption = "auto",
    scale: options.Scale = 1.0,
    repeats: options.Repeats = None,
    hosts: options.HostsFile = None,
    json_: JsonFlag = False,
) -> None:
    """Measure the highest rates that k6 and wrk reach on this machine, or on the hosts of --hosts.

    From then on, verdicts compare the rate of a load with this ceiling of its generator.
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
    columns = ("tool", "load", "mode", "connections or users", "requests/s", "server", "verdict")
    console.table(f"ceilings of the generators (run {found.run_id})", columns, rows)


def overhead(context: typer.Context) -> None:
    """Measure the cost of the lab itself.

    Run one load with all of the lab's instruments, then without each of them, and by an unmodified
    k6. The options are those of the checkout's benchmarks/overhead.py: its --help lists them.
    """
    import runpy

    benchmark = runpy.run_path(str(benchmark_file("overhead")))
    typer.main.get_command(benchmark["app"]).main(
        context.args, prog_name="bench overhead", standalone_mode=False
    )


def benchmark_file(name: str) -> Path:
    """Return the path of a program in the folder `benchmarks` of a checkout.

    Use the checkout that contains this program. If this program is in no checkout, use the checkout
    that contains the current folder. Raise LabError if the file does not exist there.
    """
    from runner import places

    inside = Path("benchmarks", f"{name}.py")
    own = places.OWN_CHECKOUT / inside
    file = own if own.is_file() else places.places().need_checkout(f"`bench {name}`") / inside
    if not file.is_file():
        raise LabError(
            f"`bench {name}` runs {inside}, which {file.parents[1]} does not contain: use a "
            "complete checkout of the lab."
        )
    return file


def show_result(outcome: Any, json_: bool) -> None:
    """Print the summary and the findings of a run. If `json_` is True, print them as JSON."""
    from runner.present.answers import other_ports
    from runner.present.answers.findings import quoted_servers, sentences
    from runner.present.answers.summary import (
        notes,
        of_own_api,
        printable,
        reasons_unknown,
        summarize,
    )
    from runner.present.comparison import searches
    from runner.present.frames import read_tables
    from runner.present.look.markup import DAGGER, NOT_RANKED
    from runner.present.why.figures import first_sentences

    tables = read_tables(outcome.run)
    table = summarize(tables)
    more = of_own_api(tables)
    shown = printable(table, more)
    reasons = first_sentences(tables, quoted_servers(tables))
    findings = (*sentences(tables), *reasons, *other_ports.sentences(tables))
    missing = notes(table, more)
    unknown = reasons_unknown(table)
    kept = searches.printable(searches.answers(tables))
    if json_:
        result = {
            "run_id": outcome.run.run_id,
            "path": str(outcome.run.path),
            "trials": outcome.trials,
        }
        result |= {"searches": kept.to_dict("records")}
        result |= {"failed": outcome.failed, "warnings": outcome.warnings, "findings": findings}
        emit(result | {"summary": shown.to_dict("records"), "notes": missing, "unknown": unknown})
        return
    if len(shown) or kept.empty:
        console.frame(f"run {outcome.run.run_id}", shown)
    if len(kept):
        console.frame(f"searches of run {outcome.run.run_id}", kept)
    if len(shown) and shown["requests/s"].str.contains(NOT_RANKED).any():
        console.note(DAGGER)
    console.note(*missing, *unknown)
    for sentence in outcome.failed[:10]:
        console.error(sentence)
    if len(outcome.failed) > 10:
        console.note(
            f"… and {len(outcome.failed) - 10} more failed trials: each trial's trial.json "
            "names the error."
        )
    if reasons:
        console.note(f"`bench profile {outcome.run.run_id}` shows the profiles, and their cost.")
    console.note(*findings, f"Raw samples and tables: {outcome.run.path}")
