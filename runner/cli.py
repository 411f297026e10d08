"""The `bench` command: parse, call, exit code; no logic."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from runner import catalog
from runner.console import Console, TrialProgress
from runner.model import LabError
from runner.store import find_run

app = typer.Typer(
    name="bench",
    help="Benchmark web API servers; every number carries a verdict of what it measured.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="How servers are started: auto, docker or process.", show_default=True)
]
Servers = Annotated[list[str] | None, typer.Argument(help="Server names; all where none is given.")]
Run = Annotated[str, typer.Argument(help="A run id, a path, `latest` or `sample`.")]


def main() -> None:
    """Run the command line; an error is one sentence on stderr and an exit code, never a traceback."""
    try:
        app()
    except LabError as error:
        Console().error(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        named = f" ({error.filename})" if error.filename else ""
        Console().error(f"The system refused: {error.strerror or error}{named}.")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _emit(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


def _engine(name: str) -> Any:
    if name not in ("auto", "docker", "process"):
        raise LabError(f"There is no engine {name!r}; there are auto, docker and process.")
    return name


@app.command()
def doctor(json_: JsonFlag = False) -> None:
    """Say what this machine has, what a campaign would use, and what is missing."""
    from runner.measure.doctor import examine

    findings = examine()
    if json_:
        _emit([asdict(finding) for finding in findings])
    else:
        Console().table(
            "doctor",
            ("", "what", "found"),
            [(finding.level, finding.subject, finding.text) for finding in findings],
        )
    if any(finding.level == "missing" for finding in findings):
        raise typer.Exit(2)


@app.command("list")
def list_(
    json_: JsonFlag = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the servers as the README's table.")] = False,
) -> None:
    """List servers, workloads and campaigns."""
    servers = [catalog.load_server(name) for name in catalog.server_names()]
    workloads = [catalog.load_workload(name) for name in catalog.workload_names()]
    campaigns = [catalog.load_campaign(name) for name in catalog.campaign_names()]
    if json_:
        _emit(
            {
                "servers": [{**asdict(server), "folder": f"servers/{server.name}"} for server in servers],
                "workloads": [{**asdict(workload), "script": workload.script.name} for workload in workloads],
                "campaigns": [asdict(campaign) for campaign in campaigns],
            }
        )
        return
    if markdown:
        from runner.present.markup import servers_table

        sys.stdout.write(servers_table(servers) + "\n")
        return
    console = Console()
    console.table(
        "servers",
        ("name", "language", "framework", "tier", "implements"),
        [(s.name, s.language, s.framework, s.tier, " ".join(s.implements)) for s in servers],
    )
    console.table(
        "workloads",
        ("name", "tool", "load", "what"),
        [(w.name, w.tool, w.load_model, w.title) for w in workloads],
    )
    console.table("campaigns", ("name", "servers", "what"), [(c.name, " ".join(c.servers), c.title) for c in campaigns])


@app.command()
def build(servers: Servers = None, json_: JsonFlag = False) -> None:
    """Build binaries and, where a Docker engine answers, images."""
    from runner.measure.inspection import build_all

    console = Console()
    outcomes = build_all([catalog.load_server(name) for name in servers or catalog.server_names()], console.note)
    if json_:
        _emit([asdict(outcome) for outcome in outcomes])
    else:
        rows = [(o.server, "failed" if o.error else "ok", o.error or f"{o.binary}; {o.image}") for o in outcomes]
        console.table("build", ("server", "state", "result"), rows)
    if any(outcome.error for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def check(servers: Servers = None, engine: EngineOption = "auto", json_: JsonFlag = False) -> None:
    """Hold started servers against the HTTP contract, without load."""
    from runner.measure.inspection import inspect_all

    chosen = [catalog.load_server(name) for name in servers or catalog.server_names()]
    console = Console()
    inspections = inspect_all(chosen, _engine(engine), console.note)
    if json_:
        _emit([asdict(inspection) for inspection in inspections])
    else:
        for inspection in inspections:
            if inspection.error:
                console.error(inspection.error)
            console.note(inspection.summary)
            for word, checks in (("broken", inspection.broken), ("known deviation", inspection.deviating)):
                if checks:
                    console.table(inspection.server, (word, "detail"), [(c.name, c.detail) for c in checks])
    if not all(inspection.ok for inspection in inspections):
        raise typer.Exit(1)


@app.command()
def run(
    campaign: Annotated[str, typer.Argument(help="A campaign's name, or the path of a TOML file.")] = "",
    engine: EngineOption = "auto",
    server: Annotated[list[str] | None, typer.Option("--server", help="Only these servers; repeatable.")] = None,
    scale: Annotated[float, typer.Option(help="Multiplies iterations and durations.")] = 1.0,
    repeats: Annotated[int | None, typer.Option(min=1, max=1000, help="Trials of each cell.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Order of the trials.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with this run; takes no campaign.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Run a campaign: every trial in a fresh server, raw samples into data/runs/."""
    from runner.campaign import resume_campaign, run_campaign
    from runner.plan import choose

    console = Console()
    choice = _engine(engine)
    with TrialProgress(console) as progress:
        if resume is not None:
            if campaign:
                raise LabError("--resume goes on with the campaign of its run: give no campaign beside it.")
            outcome = resume_campaign(find_run(resume), report=progress)
        else:
            if not campaign:
                raise LabError(f"Which campaign? There are {', '.join(catalog.campaign_names())}.")
            chosen = choose(catalog.load_campaign(campaign), server or [], repeats, scale)
            outcome = run_campaign(chosen, engine=choice, scale=scale, seed=seed, report=progress)
    _finish(console, outcome, json_)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def calibrate(
    engine: EngineOption = "auto",
    scale: Annotated[float, typer.Option(help="Multiplies iterations and durations.")] = 1.0,
    repeats: Annotated[int | None, typer.Option(min=1, max=1000, help="Trials of each load.")] = None,
    json_: JsonFlag = False,
) -> None:
    """Find how fast k6 and wrk are on this machine; verdicts use it from then on."""
    from runner.campaign import calibrate_machine
    from runner.plan import choose

    console = Console()
    chosen = choose(catalog.load_campaign("calibrate"), [], repeats, scale)
    with TrialProgress(console) as progress:
        found = calibrate_machine(chosen, engine=_engine(engine), scale=scale, report=progress)
    if json_:
        _emit(asdict(found))
        return
    rows = [
        (
            c.tool,
            c.load_model,
            c.mode,
            c.connections,
            f"{'' if c.known else 'at least '}{c.rps:,.0f}",
            c.server,
            c.verdict,
        )
        for c in found.ceilings
    ]
    columns = ("tool", "load", "mode", "connections or users", "requests/s", "against", "verdict")
    console.table(f"ceilings of the generators (run {found.run_id})", columns, rows)


@app.command()
def overhead(
    engine: EngineOption = "auto",
    server: Annotated[str, typer.Option(help="Which server is loaded.")] = "gin",
    vus: Annotated[int, typer.Option(min=1, max=10_000, help="Virtual users of k6.")] = 3000,
    iterations: Annotated[int, typer.Option(min=1, max=1_000_000, help="Requests of each load.")] = 60_000,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Loads under each variant.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Order of the loads.")] = 1,
    json_: JsonFlag = False,
) -> None:
    """Measure what the lab itself costs: one load with all of its observers, without each, and by a stock k6."""
    from runner.overhead import measure_overhead
    from runner.present.overhead import costs

    console = Console()
    found = measure_overhead(
        server, engine=_engine(engine), vus=vus, iterations=iterations, repeats=repeats, seed=seed, say=console.note
    )
    rows = costs([asdict(observation) for observation in found])
    if json_:
        _emit([asdict(row) for row in rows])
        return
    shown = [
        {
            "variant": row.variant,
            "loads": row.trials,
            "requests/s": f"{row.rps:,.0f}",
            "p50, ms": f"{row.p50_ms:.3g}",
            "the lab's rate / this": row.in_words,
            "sampler, % of a core": "" if row.sampler_cpu_pct is None else f"{row.sampler_cpu_pct:.2f}",
            "probe, % of a core": "" if row.probe_cpu_pct is None else f"{row.probe_cpu_pct:.2f}",
        }
        for row in rows
    ]
    console.rows(f"what the lab costs: {server}, N = {vus}, {iterations} requests", shown)


def _finish(console: Console, outcome: Any, json_: bool) -> None:
    from runner.present.summary import summary_rows

    rows = summary_rows(outcome.run)
    if json_:
        _emit(
            {
                "run_id": outcome.run.run_id,
                "path": str(outcome.run.path),
                "trials": outcome.trials,
                "failed": outcome.failed,
                "warnings": outcome.warnings,
                "summary": rows,
            }
        )
        return
    console.rows(f"run {outcome.run.run_id}", rows)
    console.errors(outcome.failed)
    console.note(f"Raw samples and tables: {outcome.run.path}")


@app.command()
def report(
    run: Run = "latest",
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Keep what is left of damaged k6 samples; their trials count as failed.")
    ] = False,
    json_: JsonFlag = False,
) -> None:
    """Make tables, figures and HTML of a run, through the notebooks."""
    from runner.campaign import ensure_tables
    from runner.present.notebooks import build_report
    from runner.present.summary import summary_rows

    console = Console()
    folder = find_run(run)
    ensure_tables(folder, console.note, salvage=salvage)
    console.note("Executing the notebooks …")
    made = build_report(folder)
    if json_:
        _emit({"run_id": folder.run_id, "html": str(made.html), "figures": [str(path) for path in made.figures]})
        return
    console.rows(f"run {folder.run_id}", summary_rows(folder))
    console.note(f"Figures: {made.html.parent}")
    for page in made.pages:
        console.note(f"Report:  {page}")


@app.command()
def compare(
    run_a: Annotated[str, typer.Argument(help="The run to compare with: an id, a path, `latest` or `sample`.")],
    run_b: Annotated[str, typer.Argument(help="The run that is compared.")],
    force: Annotated[bool, typer.Option("--force", help="Compare runs of different machines, tools or CPUs.")] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="PCT",
            min=0,
            help="Exit with 1 where B is worse by more than this, interval and all.",
        ),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Compare run B with run A, cell by cell: ratios with 95 % intervals, and what is a tie."""
    from runner.campaign import ensure_tables
    from runner.present.compare import compare_runs, notes, table
    from runner.present.conditions import word

    console = Console()
    folders = find_run(run_a), find_run(run_b)
    for folder in folders:
        ensure_tables(folder, console.note)
    found = compare_runs(*folders, force=force, fail_above_pct=fail_above)
    if json_:
        _emit(asdict(found))
    else:
        console.note(f"A: run {found.run_a}\nB: run {found.run_b}")
        if found.differences:
            rows = [(each.what, word(each.a), word(each.b)) for each in found.differences]
            console.table("compared by force", ("the runs differ in", "A", "B"), rows)
        for load in dict.fromkeys(comparison.load for comparison in found.comparisons):
            console.rows(load, table(found, load))
        for sentence in notes(found):
            console.note(sentence)
    if found.regressions:
        console.error(
            f"{len(found.regressions)} of {len(found.comparisons)} comparisons are worse by more than {fail_above:g} %."
        )
        raise typer.Exit(1)
    if fail_above is not None and not found.decided:
        console.error("Nothing could be decided: no cell has five comparable trials in both runs.")
        raise typer.Exit(1)


@app.command()
def export(run: Run, out: Annotated[str, typer.Option(help="Folder to write, replaced if it is a run.")]) -> None:
    """Copy a run without its single requests: what figures need, small enough to commit."""
    from pathlib import Path

    from runner.store import export_compact

    export_compact(find_run(run), Path(out))
    Console().note(f"Exported to {out}")


@app.command()
def clean(json_: JsonFlag = False) -> None:
    """Remove what runs that died have left: processes, containers, control groups, temporary files."""
    from runner.measure.session import clean_up

    removed = clean_up()
    if json_:
        _emit(removed)
    else:
        Console().note("\n".join(f"Removed {what}" for what in removed) or "Nothing was left over.")


if __name__ == "__main__":
    main()
