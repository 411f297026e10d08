"""Measure what the lab itself costs, by running the same load with and without its observers.

Run: python benchmarks/overhead.py [--engine auto|docker|process] [--server NAME] [--vus N]
[--iterations N] [--repeats N] [--seed N] [--json], or `bench overhead` with the same options. Each
block loads the server once under every variant, in seeded random order. The variants are the lab
with all observers, the lab without one of its observers, and a stock k6. For each variant, the
program prints medians, and the ratio of the lab's rate to the variant's rate. Only loads of the
same block are compared. The program stores every observation in data/overhead.json.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from runner import console
from runner.commands.options import EngineOption, JsonFlag, emit
from runner.digest.k6 import GeneratorSummary, read_summary
from runner.digest.probe import read_probe
from runner.digest.resources import read_counters
from runner.manifest import Machine
from runner.measure import machine
from runner.measure.engine import EngineChoice
from runner.measure.lab import open_lab
from runner.measure.leftovers import scratch
from runner.measure.loading import Bench
from runner.measure.session import Member, Ready, measure
from runner.measure.tools import need_tool
from runner.measurement import Measurement
from runner.model import Campaign, Cell, LabError, Load, Trial, short_number
from runner.planning.catalog import campaign_servers, load_workload
from runner.planning.plan import plan_trials
from runner.present.statistics.inference import FEWEST_TRIALS, Ratio, ratio, sample_of
from runner.running.preparing import greet, place_for, prepare, tools_of
from runner.shapes import Closed, Iterations
from runner.store import data_folder, last_line, write_json

LAB = "lab"
VARIANTS: dict[str, dict[str, Any]] = {
    LAB: {},
    "summary only": {"output": "summary"},
    "no sampler": {"with_sampler": False},
    "no probe": {"with_probe": False},
    "stock k6": {"output": "stock", "with_sampler": False, "with_probe": False},
}
"""For each variant, the fields of Bench in which the variant differs from `lab`.

`lab` is like every trial: k6 writes every sample, and sampler and probe run. In `stock k6`, neither
sampler nor probe runs, k6 writes only its summary, and k6 runs without the lab's settings for tags
and for the garbage collector. The script is the same in all variants.
"""
COSTLY = {name: VARIANTS[name] for name in (LAB, "stock k6")}
"""Variants under which a server with costly requests is loaded.

Such a server shows most clearly what the requests of the lab's probe cost, which are sent in
addition to the load.
"""
COST_MS = 5.0  # CPU time of a request to the costly server
COSTLY_USERS = 4
COSTLY_ITERATIONS = 1500
"""With these numbers of users and iterations, a load takes about 8 s."""
WORKLOAD = "experiments"
MEASURED = ["rps", "p50_ms", "sampler_cpu_pct", "probe_cpu_pct"]  # numbers in an observation

COLUMNS = (
    "load",
    "variant",
    "loads",
    "requests/s",
    "p50 in ms",
    "the lab's rate / this",
    "sampler in % of a core",
    "probe in % of a core",
)

Say = Callable[[str], None]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def overhead(
    engine: EngineOption = "auto",
    server: Annotated[str, typer.Option(help="Which server is loaded.")] = "gin",
    vus: Annotated[int, typer.Option(min=1, max=10_000, help="Virtual users of k6.")] = 3000,
    iterations: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Requests of each load.")
    ] = 60_000,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Loads under each variant.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Order of the loads.")] = 1,
    json_: JsonFlag = False,
) -> None:
    """Measure what the lab itself costs: one load with all of its observers, without each, and by a
    stock k6.
    """
    usual = overhead_campaign(server, vus=vus, iterations=iterations, repeats=repeats, seed=seed)
    costly = costly_campaign(repeats=repeats, seed=seed)
    of_usual = measure_overhead(usual, VARIANTS, engine=engine, say=console.note)
    of_costly = measure_overhead(costly, COSTLY, engine=engine, say=console.note)
    store_overhead([*of_usual, *of_costly])
    rows = [
        *({"load": f"{server}, N = {vus}", **row} for row in costs(of_usual)),
        *({"load": f"{COST_MS:g} ms of CPU a request", **row} for row in costs(of_costly)),
    ]
    if json_:
        emit([_plain(row) for row in rows])
    else:
        console.table("what the lab costs", COLUMNS, [_printable(row) for row in rows])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in which the ratio is a dict, so that the row can be printed as JSON."""
    found: Ratio | None = row["lab_to_variant"]
    return {**row, "lab_to_variant": None if found is None else asdict(found)}


def _printable(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a row as texts, in the order of `COLUMNS`."""
    cpu = (
        "" if row[name] is None else f"{row[name]:.2f}"
        for name in ("sampler_cpu_pct", "probe_cpu_pct")
    )
    rates = (f"{row['rps']:,.0f}", short_number(row["p50_ms"]), in_words(row))
    return (row["load"], row["variant"], row["trials"], *rates, *cpu)


def overhead_campaign(
    server: str, *, vus: int, iterations: int, repeats: int, seed: int
) -> Campaign:
    """Return the campaign that measures the overhead.

    The campaign has one server and one closed load of k6, and each block runs the load once.
    """
    load = Load(WORKLOAD, repeats, 1.0, Iterations(iterations), users=(vus,))
    return Campaign(
        "overhead",
        "What the lab itself costs",
        (server,),
        (load,),
        seed,
        server_cpus=1,
        sample_hz=20,
    )


def costly_campaign(*, repeats: int, seed: int) -> Campaign:
    """Return the campaign that measures the overhead on a server with costly requests.

    Each request to this server takes COST_MS of CPU time.
    """
    form = Iterations(COSTLY_ITERATIONS)
    load = Load(WORKLOAD, repeats, 1.0, form, users=(COSTLY_USERS,))
    cost = ("reference", "REFERENCE_CPU_MS_PER_REQUEST", f"{COST_MS:g}")
    return Campaign(
        "overhead-costly",
        "What the lab itself costs a costly server",
        ("reference",),
        (load,),
        seed,
        server_cpus=1,
        sample_hz=20,
        environment=(cost,),
    )


def measure_overhead(
    campaign: Campaign, variants: Mapping[str, Mapping[str, Any]], *, engine: EngineChoice, say: Say
) -> list[dict[str, Any]]:
    """Load the server under every variant, once per block in seeded random order.

    Return a row for each load, with `server`, `variant`, `block`, `rps` (the rate of all answered
    requests, including those of the probe), `p50_ms`, `sampler_cpu_pct` and `probe_cpu_pct`. Raise
    LabError if a load cannot be measured, because its block would be incomplete.
    """
    order = random.Random(campaign.seed)  # noqa: S311 - the order must be reproducible
    found: list[dict[str, Any]] = []
    with staged(campaign, engine=engine, say=say) as (bench, ready, trials):
        for trial in trials:
            for variant in order.sample(list(variants), len(variants)):
                seen = _observe(replace(bench, **variants[variant]), ready, trial, variant)
                place = f"[{trial.block}/{len(trials)}]"
                say(
                    f"{place} {variant}: {seen['rps']:,.0f} requests/s, p50 "
                    f"{short_number(seen['p50_ms'])} ms"
                )
                found.append({"server": trial.cell.server, **seen})
    return found


def store_overhead(observations: Sequence[Mapping[str, Any]]) -> None:
    """Write the observations to data/overhead.json, with the machine and the version of k6."""
    write_json(
        data_folder() / "overhead.json",
        {
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": Machine.of(machine.facts()).fingerprint,
            "k6": need_tool("k6").version,
            "observations": list(observations),
        },
    )


@contextlib.contextmanager
def staged(
    campaign: Campaign, *, engine: EngineChoice, say: Say
) -> Iterator[tuple[Bench, Ready, list[Trial]]]:
    """Open the lab for a campaign with one server and one load.

    Yield the `Bench` (what all trials share), the built server, and one trial per block. Raise
    LabError if the campaign cannot be measured.
    """
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    if not trials:
        raise LabError(
            f"Server {servers[0].name} does not implement {WORKLOAD}: name another by --server."
        )
    tools = tools_of(trials, on_hosts=False)
    placement = place_for(campaign, trials)
    with open_lab(engine) as opened:
        greet(opened, machine.warnings(placement, trials[0].cell.sockets), say)
        prepared = prepare(opened, campaign, servers, placement, tools, None, say)
        for error in prepared.errors.values():
            raise LabError(error, exit_code=1)
        machine.raise_open_files()
        yield prepared.bench, prepared.servers[servers[0].name], trials


def observed(
    bench: Bench, ready: Ready, cell: Cell, folder: Path, what: str
) -> tuple[Measurement, GeneratorSummary]:
    """Run a cell's load once, and return its measurement and k6's summary.

    The raw files are written to `folder`. Raise LabError if the load cannot be measured. Also raise
    LabError if k6 has not sent every request. The message of this error contains `what`, which
    names the variant.
    """
    member = Member(cell.cell_id, ready, cell, folder)
    found = measure(
        bench, load_workload(cell.workload), [member], [(cell.cell_id, 1)], lambda _step: None
    )
    measurement = found[cell.cell_id]
    if isinstance(measurement, LabError):
        raise measurement
    if measurement.generator_exit != 0:
        said = last_line(folder / "generator.log")
        raise LabError(f"k6 ended with exit code {measurement.generator_exit}{said}.", exit_code=1)
    summary = read_summary(folder / "k6-summary.json")
    assert isinstance(cell.shape, Closed), "the campaigns above have no other load"
    asked = cell.shape.iterations
    if summary.requests != asked or not summary.rps:
        raise LabError(f"k6 made {summary.requests} of {asked} requests ({what}).", exit_code=1)
    return measurement, summary


def _observe(bench: Bench, ready: Ready, trial: Trial, variant: str) -> dict[str, Any]:
    with scratch(bench.lab.ledger) as folder:
        measurement, summary = observed(bench, ready, trial.cell, folder, variant)
        probe = read_probe(folder / "probe.parquet")
        samples = folder / "resources.parquet"
        sampler_pct = None
        begun = measurement.load_started_mono_ns
        if samples.is_file():
            length_s = (measurement.load_ended_mono_ns - begun) / 1e9
            sampler_pct = read_counters(samples, begun)["sampler"].mean_pct(0.0, length_s)
        probe_pct = 100 * probe.cpu_share if probe and probe.cpu_share is not None else None
        probe_answers = 0 if probe is None else int((probe.status == 200).sum())
        served_rps = summary.rps * (1 + probe_answers / summary.requests)
        rates = {"rps": served_rps, "p50_ms": summary.http_req_duration["p50"]}
        used = {"sampler_cpu_pct": sampler_pct, "probe_cpu_pct": probe_pct}
        return {"variant": variant, "block": trial.block, **rates, **used}


def costs(observations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each variant, from the observations of `measure_overhead`.

    The row of the variant `lab`, with all observers, is the first. A row has `variant`, the number
    of `trials`, and the medians of `MEASURED`. A median is None if the variant has no such number.
    A row also has `lab_to_variant`, the ratio of the lab's rate to the variant's rate, in which
    loads of the same block are compared. This ratio is None for the lab itself, and if there are
    too few blocks.
    """
    table = pd.DataFrame(observations).astype(dict.fromkeys(MEASURED, float))
    table = table.sort_values("variant", key=lambda names: names.where(names != LAB, ""))
    rates = {
        name: sample_of(rows["rps"], rows["block"])
        for name, rows in table.groupby("variant", sort=False)
    }
    found = []
    for name, rows in table.groupby("variant", sort=False):
        medians = dict(
            zip(MEASURED, rows[MEASURED].median().replace({math.nan: None}), strict=True)
        )
        lab_to_variant = ratio(rates[LAB], rates[name]) if name != LAB else None
        found.append(
            {"variant": name, "trials": len(rows), "lab_to_variant": lab_to_variant, **medians}
        )
    return found


def in_words(row: Mapping[str, Any]) -> str:
    """Return a row's ratio with its interval, as a text.

    If the ratio may be 1, which means that the observers cost nothing, the text says so.
    """
    found: Ratio | None = row["lab_to_variant"]
    if found is None:
        return "" if row["variant"] == LAB else f"fewer than {FEWEST_TRIALS} blocks"
    said = f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"
    return f"{said}, not distinguishable from 1" if found.low <= 1 <= found.high else said


if __name__ == "__main__":
    try:
        app()
    except LabError as error:
        console.error(str(error))
        sys.exit(error.exit_code)
