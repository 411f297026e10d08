"""Read the raw files that a generator wrote for each load, and combine the slices of a trial."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.digest import oha, reconcile
from runner.digest.endpoints import (
    ScriptSlice,
    keep_slice,
    write_script_tables,
    write_tables_of_slices,
)
from runner.digest.histogram import QUANTILES, bucket_index, latency_table, merge_counts
from runner.digest.k6 import (
    FIRST_BYTE,
    GeneratorSummary,
    RequestNumbers,
    digest_requests,
    merge_summaries,
    read_summary,
    spool_together,
)
from runner.digest.k6_raw import spool_points
from runner.digest.probe import ProbeSamples, reopened_share
from runner.digest.vegeta import read_report, spool_results
from runner.digest.wrk import (
    WrkResult,
    mean_ms,
    merge_generators,
    merge_slices,
    quantile_ms,
    read_wrk,
)
from runner.generator_traits import TRAITS
from runner.measurement import Counters, Measurement
from runner.model import OWN_SCRIPT, Cell, Check, LoadPart, Trial, carried_percent
from runner.shapes import Closed
from runner.store import OF_SCRIPTS, RunFolder, raw_name, replacing

FEWEST_KEPT = 0.5
"""If at least this share of a session's places is undisturbed, the disturbed places are left out.

If fewer places are undisturbed, the session is repeated. A place is the number of a slice among the
slices of its server in the session, counted from 1.
"""
SUMS = (
    "requests",
    "elsewhere",
    "failed",
    "dropped",
    "checks",
    "checks_failed",
)
"""Metrics that are counts. If a trial has slices, the counts of its slices are added."""
PROTOCOLS = ("proto", "tls_version")
"""Metrics with the names of the protocols (HTTP and TLS) that a load's answers used."""
UNCOUNTED = Counters(None, None, None)
K6_TABLES = {"requests": "t_s", "latency": "second", "throughput": "t_s"}
"""Name of the column that has times, by the name of the table.

The lab makes these tables if the generator (k6, vegeta or oha) records every request.
"""
Metrics = dict[str, Any]
Raw = Callable[..., Path]
"""Function that returns the path of a raw file of one load.

The function gets the base name of the file, and the number of the generator that wrote the file.
"""


def part(run: RunFolder, table: str, trial_id: str) -> Path:
    """Return the path of a trial's part of a table.

    A part is a file with the rows of one trial, or of one of its slices. The parts are joined into
    the table later.
    """
    return run.tables / "parts" / table / f"{trial_id}.parquet"


def parts_of_script(run: RunFolder, trial: Trial) -> dict[str, Path]:
    """Return the path of a trial's part of each table that exists only for users' scripts."""
    return {name: part(run, name, trial.trial_id) for name in OF_SCRIPTS}


@dataclass(frozen=True)
class LeftOut:
    """The places of a session that are left out for every server of the session."""

    places: frozenset[int] = frozenset()
    """The numbers of the places that are left out, counted from 1."""
    why_repeat: str | None = None
    """Reason to repeat the whole session; None if enough places remain."""


def left_out_places(taken: Sequence[Sequence[str]]) -> LeftOut:
    """Return the places of a session that are left out because they were disturbed.

    A place is the number of a slice among the slices of its server, counted from 1. Every server
    has one slice at each place, unless the server died early. `taken` has one list per server, and
    the list has one text per slice, in the order of the places. The text says who took much CPU
    time during the slice: the hypervisor, other programs, or both. The text is empty if neither
    took much CPU time. A place is disturbed if the text of at least one server is not empty at this
    place.

    If the share of undisturbed places is at least FEWEST_KEPT, the disturbed places are left out.
    If it is lower, no place is left out, and `why_repeat` says why the session must be repeated.
    """
    disturbed = {place: who for each in taken for place, who in enumerate(each, start=1) if who}
    places = max((len(each) for each in taken), default=0)
    if places - len(disturbed) < FEWEST_KEPT * places:
        who = next(iter(disturbed.values()))
        return LeftOut(
            why_repeat=(
                f"disturbed: in {len(disturbed)} of {places} places of the session, the "
                f"hypervisor or other programs took much CPU time (for example, {who})"
            )
        )
    return LeftOut(frozenset(disturbed))


def join_parts(parts: Sequence[Path], begins_s: Sequence[float], column: str, out: Path) -> None:
    """Write the rows of several tables one after the other into the file `out`.

    Each table belongs to a slice. `begins_s` has the time when each slice begins, in seconds since
    the first slice began. This time is added to the times in the column `column` of the slice's
    table, so that all times count from the start of the first slice.
    """
    schema = pq.read_schema(parts[0])
    at = schema.get_field_index(column)
    with (
        replacing(out) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for path, begin_s in zip(parts, begins_s, strict=True):
            source = pq.ParquetFile(path)
            begun = pa.scalar(begin_s).cast(schema.field(at).type, safe=False)
            for group in range(source.num_row_groups):
                table = source.read_row_group(group)
                writer.write_table(table.set_column(at, column, pc.add(table[column], begun)))


def exact_percentiles(requests: Path) -> dict[str, float]:
    """Return exact percentiles and the maximum, in ms, of the latencies in a table of requests.

    The keys of the result are columns of trials.parquet. A percentile between two sorted latencies
    is interpolated.
    """
    wanted = {**QUANTILES, "max": 1.0}
    percent = carried_percent(pq.read_metadata(requests).num_rows)
    if percent is not None:
        wanted["tail"] = percent / 100
    with duckdb.connect() as connection:
        quantiles = f"quantile_cont(latency_ms, {list(wanted.values())})"
        ((values,),) = connection.read_parquet(str(requests)).aggregate(quantiles).fetchall()
    found = dict(zip(wanted, values, strict=True))
    tail = _tail(percent, found.pop("tail", None))
    return {f"latency_{name}_ms": value for name, value in found.items()} | tail


def first_byte_percentiles(requests: Path) -> dict[str, float | None]:
    """Return exact percentiles, in ms, of the time to the first byte, from a table of requests.

    The keys of the result are columns of trials.parquet. If no request was answered, all values are
    None.
    """
    wanted = [QUANTILES[name] for name in FIRST_BYTE]
    with duckdb.connect() as connection:
        answered = connection.read_parquet(str(requests)).filter("status <> 0")
        ((values,),) = answered.aggregate(
            f"quantile_cont(latency_ms - receiving_ms, {wanted})"
        ).fetchall()
    return _first_byte({} if values is None else dict(zip(FIRST_BYTE, values, strict=True)))


def _first_byte(known: Mapping[str, float]) -> dict[str, float | None]:
    return {f"first_byte_{name}_ms": known.get(name) for name in FIRST_BYTE}


def _tail(percent: float | None, ms: float | None) -> dict[str, float | None]:
    """Return the columns of trials.parquet about the highest percentile of a load's latency.

    `percent` is the highest percentile above which enough requests lie (`carried_percent`), and
    `ms` is the latency at this percentile. Both are None if there are too few requests even for the
    median.
    """
    return {"latency_tail_percent": percent, "latency_tail_ms": ms}


@dataclass(frozen=True)
class LoadOfTrial:
    """The results of one load, which is a slice or a whole trial, from the generator's raw files.

    `together` combines the results of a trial's slices into the results of the trial.
    """

    metrics: Metrics
    checks: tuple[Check, ...]
    begin_wall_ns: int
    sent: reconcile.Sent
    mode: str
    answered: int  # answers until the planned end of the load
    wrk: WrkResult | None = None
    script: ScriptSlice | None = None
    """The requests of a user's script in one slice.

    None if the load is not a user's script, or if the trial has no slices.
    """


def read_load(
    run: RunFolder,
    trial: Trial,
    number: int,
    measurement: Measurement,
    probe: ProbeSamples | None,
    *,
    salvage: bool,
    threads: int = 2,
) -> LoadOfTrial:
    """Read the raw files of one load: of one slice, or of a whole trial without slices.

    `number` is the number of the slice, counted from 1. If the trial has no slices, `number` is 1.
    `measurement` and `probe` have only the data of this load.

    Check the load's invariants. If the generator records every request, also write the load's parts
    of the tables, which are files with the rows of this load. For wrk, `together` writes the parts
    later.

    With `salvage`, the end of k6's samples may be missing, so no invariant of these samples is
    checked. Raise LabError if a file is missing or corrupt.
    """
    folder = run.trial(trial.trial_id)
    cell = trial.cell.slice(number)
    of_slice = None if trial.cell.slices is None else number

    def raw(name: str, generator: int = 1) -> Path:
        return folder / raw_name(name, of_slice, generator)

    if not TRAITS[cell.tool].keeps_requests:
        return _wrk_load(raw, cell, measurement)
    files = _SAMPLES[cell.tool]
    script = _OfScript(run, trial, of_slice)
    look = script.look if cell.workload == OWN_SCRIPT and not measurement.parts else None
    window_s = None if salvage else cell.window_s
    given: dict[str, Any] = {
        "trial_id": trial.trial_id,
        "mode": cell.mode,
        "window_s": window_s,
        "threads": threads,
    }
    # Scratch files are on the run's disk, which has enough room, and are removed with the parts.
    given["scratch"] = run.tables / "parts"
    tables = load_tables(run, trial, of_slice).values()
    held = reconcile.may_hold(cell, reopened_share(probe))
    digest = partial(digest_requests, raw(files.samples), tables, **given, held=held, look=look)
    spool = files.spool(raw, cell, measurement, salvage)
    whole = points = digest(spool=spool)
    # The metrics exclude the requests of the lead, which is the first `lead_s` seconds. But the
    # invariants are checked with all requests.
    if cell.lead_s:
        points = digest(spool=partial(spool, lead_s=cell.lead_s))
    metrics = metrics_of_points(points, cell, window_s)
    metrics["dropped"] = points.dropped_iterations + points.late + reconcile.missed(cell, whole)
    if measurement.also_ports:
        metrics["elsewhere"] = points.elsewhere
    reconciled = _Reconciled()
    if not salvage:
        reconciled = _reconciled(raw, cell, given, whole, measurement)
    ok = whole.requests - whole.failed
    unanswered = whole.requests - whole.with_status
    lost = unanswered + whole.script_runs - whole.iterations
    sent = reconcile.Sent(ok=ok, refused=whole.with_status - ok, lost=lost, at_once=cell.sockets)
    begin_ns = points.first_start_ns
    answered = points.answered_by_end
    metrics |= reconciled.metrics
    return LoadOfTrial(
        metrics, reconciled.checks, begin_ns, sent, points.mode, answered, script=script.kept
    )


@dataclass
class _OfScript:
    """Writer of the tables about a user's script, for one load of a trial.

    If the trial has slices, the writer writes no tables, but keeps the requests of this slice. The
    tables are made later, from the requests of all slices of the trial.
    """

    run: RunFolder
    trial: Trial
    of_slice: int | None
    kept: ScriptSlice | None = None

    def look(self, database: duckdb.DuckDBPyConnection, points: RequestNumbers) -> None:
        """Write the tables, or keep the requests if the load is a slice.

        `database` has the views with the requests, iterations and users of the load.
        """
        if self.of_slice is None:
            parts = parts_of_script(self.run, self.trial)
            write_script_tables(parts, self.trial, database, points)
            return
        name = f"{self.trial.trial_id}.{self.of_slice}"
        self.kept = keep_slice(
            lambda view: part(self.run, f"script-{view}", name), database, points
        )


def metrics_of_points(points: RequestNumbers, cell: Cell, window_s: float | None) -> Metrics:
    """Return the metrics of a load from its samples, by column of trials.parquet."""
    lasted_s = (points.last_end_ns - points.first_start_ns) / 1e9
    duration_s = window_s or lasted_s
    steady = points.steady
    says_connecting = TRAITS[cell.tool].says_connecting
    return {
        "requests": points.requests,
        **{name: said for name in PROTOCOLS if (said := getattr(points, name)) is not None},
        **({"opened_pct": 100 * points.opened / points.requests} if says_connecting else {}),
        "failed": points.failed,
        "duration_s": duration_s,
        "ended_late_s": max(0.0, lasted_s - window_s) if window_s else None,
        "rps": points.requests / duration_s if duration_s > 0 else None,
        **{f"latency_{name}_ms": points.latency[name] for name in ("mean", *QUANTILES, "max")},
        **_tail(points.tail_percent, points.tail_ms),
        **(_first_byte(points.first_byte) if TRAITS[cell.tool].runs_scripts else {}),
        "iteration_mean_ms": steady.iteration_mean_ms if steady else None,
        "in_flight_mean": steady.in_flight if steady else None,
    }


def together(run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]) -> LoadOfTrial:
    """Combine the results of a trial's slices into one result, and join the slices' tables.

    `loads` has pairs: the number of a slice, and the result of this slice. If the trial has no
    slices, `loads` has one pair, with the number 1.
    """
    parts = [load for _, load in loads]
    first = parts[0].metrics
    sums = {
        name: sum(load.metrics.get(name) or 0 for load in parts) for name in SUMS if name in first
    }
    duration_s = sum(load.metrics["duration_s"] for load in parts)
    keeps_requests = TRAITS[trial.cell.tool].keeps_requests
    write = _samples_together if keeps_requests else _wrk_together
    metrics = {**first, **sums, **write(run, trial, loads), "duration_s": duration_s}
    metrics["rps"] = sums["requests"] / duration_s if duration_s > 0 else None
    if len(parts) > 1:
        metrics |= {
            name: _mean(parts, name, "duration_s")
            for name in ("iteration_mean_ms", "in_flight_mean")
        }
        metrics |= {
            name: _mean(parts, name, "requests") for name in ("opened_pct",) if name in first
        }
        metrics |= {name: _all_words(parts, name) for name in PROTOCOLS if name in first}
        if metrics.get("ended_late_s") is not None:
            metrics["ended_late_s"] = max(load.metrics["ended_late_s"] for load in parts)
    counts = {
        name: sum(getattr(load.sent, name) for load in parts) for name in ("ok", "refused", "lost")
    }
    modes = {load.mode for load in parts}
    return replace(
        parts[0],
        metrics=metrics,
        sent=replace(parts[0].sent, **counts),
        mode=modes.pop() if len(modes) == 1 else "mixed",
        answered=sum(load.answered for load in parts),
    )


def _all_words(loads: Sequence[LoadOfTrial], name: str) -> str:
    """Return the words that a metric has in several loads, joined by commas, each word once.

    `name` is the name of the metric, such as `proto`. The metric of each load is a text of words
    that are separated by commas.
    """
    known = [load.metrics[name] for load in loads if name in load.metrics]
    return ", ".join(dict.fromkeys(word for text in known for word in text.split(", ")))


def _mean(loads: Sequence[LoadOfTrial], name: str, weight: str) -> float | None:
    """Return the mean of the metric `name` over several loads, weighted by the metric `weight`.

    Loads without the metric are left out. Return None if no load has the metric.
    """
    known = [load.metrics for load in loads if load.metrics.get(name) is not None]
    total = sum(each[weight] for each in known)
    return sum(each[name] * each[weight] for each in known) / total if known else None


# --- loads whose generator keeps every request ----------------------------------------------------


@dataclass(frozen=True)
class SampleFiles:
    """The files of a generator that records every request, and how to read them."""

    samples: str
    """Base name of the raw file with every request."""
    spool: Callable[[Raw, Cell, Measurement, bool], Callable[..., Any]]
    """Function that returns a second function. The second function spools the samples of one load.

    To spool samples means to write one row per request into Parquet files, as `spool_points` in
    k6_raw.py does. If several generators share the load, the samples of all generators are spooled.
    """
    summaries: Callable[[Raw, Measurement], list[GeneratorSummary]]
    """Function that returns the generators' own summaries of a load, one per generator."""


def _k6_spool(raw: Raw, _cell: Cell, measurement: Measurement, salvage: bool) -> Callable[..., Any]:
    if not measurement.parts:
        server_port = measurement.port if measurement.also_ports else None
        return partial(spool_points, salvage=salvage, server_port=server_port)
    further = [
        (raw(K6_SAMPLES, part.number), part.behind_ns(measurement)) for part in measurement.parts
    ]
    return partial(spool_together, further=further, salvage=salvage)


def _k6_summaries(raw: Raw, measurement: Measurement) -> list[GeneratorSummary]:
    numbers = (1, *(part.number for part in measurement.parts))
    return [read_summary(raw("k6-summary.json", number)) for number in numbers]


def _vegeta_spool(
    _raw: Raw, cell: Cell, _measurement: Measurement, _salvage: bool
) -> Callable[..., Any]:
    return partial(spool_results, rate_rps=cell.last_rate_rps or 0.0)


def _vegeta_summaries(raw: Raw, _measurement: Measurement) -> list[GeneratorSummary]:
    return [read_report(raw("vegeta.json"))]


def _oha_spool(
    _raw: Raw, cell: Cell, measurement: Measurement, _salvage: bool
) -> Callable[..., Any]:
    began_ns = measurement.load_started_wall_ns
    return partial(oha.spool_requests, began_ns=began_ns, rate_rps=cell.last_rate_rps or 0.0)


def _oha_summaries(raw: Raw, _measurement: Measurement) -> list[GeneratorSummary]:
    return [oha.read_report(raw("oha.json"))]


K6_SAMPLES = "k6.json.gz"
_SAMPLES = {
    "k6": SampleFiles(K6_SAMPLES, _k6_spool, _k6_summaries),
    "vegeta": SampleFiles("vegeta.csv.gz", _vegeta_spool, _vegeta_summaries),
    "oha": SampleFiles("oha.csv.gz", _oha_spool, _oha_summaries),
}


def load_tables(run: RunFolder, trial: Trial, of_slice: int | None) -> dict[str, Path]:
    """Return the paths of a slice's parts of the tables in K6_TABLES, by the name of the table.

    If `of_slice` is None, return the paths for the whole trial. In this case, the path for the
    table `requests` is that of the trial's final file, because each trial has its own such table.
    """
    name = trial.trial_id if of_slice is None else f"{trial.trial_id}.{of_slice}"
    final = (
        {"requests": run.tables / "requests" / f"{trial.trial_id}.parquet"}
        if of_slice is None
        else {}
    )
    return {table: part(run, table, name) for table in K6_TABLES} | final


@dataclass(frozen=True)
class _Reconciled:
    """Results that the lab derives from the summaries that the generators wrote about a load."""

    metrics: Metrics = field(default_factory=dict)
    """Counts of the results of the script's own checks; empty if the script has no checks."""
    checks: tuple[Check, ...] = ()
    """Results of the lab's invariants."""


def _reconciled(
    raw: Raw, cell: Cell, given: dict[str, Any], points: RequestNumbers, measurement: Measurement
) -> _Reconciled:
    """Return the results of the script's own checks, and the results of the lab's invariants.

    `given` holds the arguments with which digest_requests reads the samples of a single generator.
    `points` are the numbers of all generators together. The invariants compare the samples with the
    generator's summary. If there are several generators, there are two kinds of comparisons: the
    samples of all generators together with the merged summary, and the samples of each generator
    with the generator's own summary.
    """
    files = _SAMPLES[cell.tool]
    summaries = files.summaries(raw, measurement)
    summary = summaries[0] if len(summaries) == 1 else merge_summaries(summaries)
    checks = [*reconcile.request_checks(cell, points, summary, measurement)]
    walls: list[tuple[int, int]] = []
    uncounted = replace(measurement, parts=(), counters_before=UNCOUNTED, counters_after=UNCOUNTED)
    for load_part in LoadPart.all(len(summaries)) if measurement.parts else ():
        of_part = load_part.of(cell)
        each = summaries[load_part.number - 1]
        own = digest_requests(raw(files.samples, load_part.number), (), **given)
        walls.append((own.first_start_ns, own.last_end_ns))
        if isinstance(of_part.shape, Closed):
            asked = of_part.shape.iterations
            # A single generator may run one iteration more or less than planned. But the sum over
            # all generators must be exact.
            if abs(own.script_runs - asked) <= 1:
                of_part = replace(of_part, shape=replace(of_part.shape, iterations=own.script_runs))
        found = reconcile.request_checks(of_part, own, each, uncounted)
        checks += [
            replace(check, name=f"{check.name} (generator {load_part.number})") for check in found
        ]
    if walls:
        checks.append(reconcile.begun_together(measurement, walls))
    checked = (
        {"checks": summary.checks, "checks_failed": summary.checks_failed} if summary.checks else {}
    )
    return _Reconciled(checked, (*checks, *reconcile.between(measurement)))


def _samples_together(
    run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]
) -> Metrics:
    """Join the tables of a trial's slices, and return latency statistics over all requests.

    If the trial has no slices, join nothing, and return no metrics.
    """
    if trial.cell.slices is None:
        return {}
    begins_s = [0.0, *accumulate(load.metrics["duration_s"] for _, load in loads)][:-1]
    whole = load_tables(run, trial, None)
    for table, column in K6_TABLES.items():
        parts = [load_tables(run, trial, number)[table] for number, _ in loads]
        join_parts(parts, begins_s, column, whole[table])
    mean_ms = _mean([load for _, load in loads], "latency_mean_ms", "requests")
    has_first_byte = TRAITS[trial.cell.tool].runs_scripts
    first_byte = first_byte_percentiles(whole["requests"]) if has_first_byte else {}
    percentiles = exact_percentiles(whole["requests"])
    scripts = [load.script for _, load in loads if load.script is not None]
    if scripts:
        modes = {load.mode for _, load in loads}
        write_tables_of_slices(
            parts_of_script(run, trial),
            trial,
            scripts,
            [load.metrics["duration_s"] for _, load in loads],
            modes.pop() if len(modes) == 1 else "mixed",
            percentiles["latency_p99_ms"],
        )
    return {"latency_mean_ms": mean_ms, **percentiles, **first_byte}


# --- wrk, which does not keep every request -------------------------------------------------------


def _wrk_load(raw: Raw, cell: Cell, measurement: Measurement) -> LoadOfTrial:
    results = [
        read_wrk(raw("wrk.json", number))
        for number in (1, *(part.number for part in measurement.parts))
    ]
    result = merge_generators(results)
    checks = [*reconcile.wrk_checks(cell, result, measurement, results)]
    walls = [
        (each.ended_wall_ns - round(1e9 * each.duration_s), each.ended_wall_ns) for each in results
    ]
    if measurement.parts:
        rates = [
            (each.requests / each.duration_s, mean_ms(each.raw) / 1000, each.connections)
            for each in results
        ]
        checks += reconcile.answered_all_along(cell, rates)
        checks.append(reconcile.begun_together(measurement, walls))
    checks += reconcile.between(measurement)
    # When wrk ends, each connection may have one request under way. The lab does not know how many
    # connections have such a request, so it counts one lost request for each connection.
    refused = result.errors["status"]
    at_once = result.connections
    sent = reconcile.Sent(
        ok=result.requests - refused, refused=refused, lost=at_once, at_once=at_once
    )
    begin_ns = result.ended_wall_ns - round(1e9 * result.duration_s)
    metrics = _wrk_metrics(result)
    answered = result.requests
    return LoadOfTrial(metrics, (*checks,), begin_ns, sent, cell.mode, answered, result)


def _wrk_metrics(result: WrkResult) -> Metrics:
    percent = carried_percent(result.requests)
    return {
        "requests": result.requests,
        "failed": sum(result.errors.values()),
        "threads": result.threads,
        "duration_s": result.duration_s,
        "rps": result.requests / result.duration_s,
        "latency_mean_ms": mean_ms(result.raw),
        **{
            f"latency_{name}_ms": quantile_ms(result.raw, q)
            for name, q in {**QUANTILES, "max": 1.0}.items()
        },
        **_tail(percent, None if percent is None else quantile_ms(result.raw, percent / 100)),
        "in_flight_mean": mean_ms(result.raw) / 1000 * result.requests / result.duration_s,
        **{
            f"wrk_reported_{name}_ms": quantile_ms(result.reported, QUANTILES[name])
            for name in ("p50", "p99")
        },
    }


def _wrk_together(
    run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]
) -> Metrics:
    """Write the merged histogram of wrk's slices, and return the metrics of the slices together."""
    result = merge_slices([load.wrk for _, load in loads if load.wrk is not None])
    latencies_us, counts = result.raw
    table = latency_table(trial.trial_id, None, *merge_counts(bucket_index(latencies_us), counts))
    with replacing(part(run, "latency", trial.trial_id)) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return _wrk_metrics(result)
