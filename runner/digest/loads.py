"""Read what a generator left of a trial's loads, and put the slices of a trial together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.digest import reconcile
from runner.digest.histogram import QUANTILES, bucket_counts, latency_table
from runner.digest.k6 import K6Points, digest_k6, read_summary, spool_side_by_side, sum_up
from runner.digest.k6_raw import Tally
from runner.digest.probe import ProbeSamples, reopened_share
from runner.digest.vegeta import read_report, spool_results
from runner.digest.wrk import WrkResult, add_up, mean_ms, quantile_ms, read_wrk, side_by_side
from runner.measurement import Counters, Measurement
from runner.model import Cell, Check, Share, Trial
from runner.store import RunFolder, raw_name, replacing


def part(run: RunFolder, table: str, trial_id: str) -> Path:
    """Return where a trial's part of a table lies until the parts are put together."""
    return run.tables / "parts" / table / f"{trial_id}.parquet"


@dataclass(frozen=True)
class LeftOut:
    """Places of a session that do not count, for any of its servers."""

    places: frozenset[int] = frozenset()
    taken: str | None = None
    """Who took so much that the session is to be repeated; then every place counts, as there is nothing better."""


FEWEST_KEPT = 0.5
"""Share of a session's places that must be left for it to count without the others."""


def left_out_places(taken: Sequence[Sequence[str]]) -> LeftOut:
    """Return the places, from 1, in which much of the CPUs' time was taken from any server.

    `taken` says, of each server, who took it in each of its slices; empty where little was taken.
    """
    disturbed = {place: who for each in taken for place, who in enumerate(each, start=1) if who}
    places = max((len(each) for each in taken), default=0)
    if places - len(disturbed) < FEWEST_KEPT * places:
        who = next(iter(disturbed.values()))
        return LeftOut(taken=f"disturbed: {len(disturbed)} of {places} places of its session ({who}, and the like)")
    return LeftOut(frozenset(disturbed))


def join_parts(parts: Sequence[Path], begins_s: Sequence[float], column: str, out: Path) -> None:
    """Write several tables one after the other; the times in `column` count from the first one's begin."""
    schema = pq.read_schema(parts[0])
    with replacing(out) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for path, begin_s in zip(parts, begins_s, strict=True):
            source = pq.ParquetFile(path)
            for group in range(source.num_row_groups):
                table = source.read_row_group(group)
                at, kind = schema.get_field_index(column), schema.field(column).type
                whole = int(begin_s) if pa.types.is_integer(kind) else begin_s
                writer.write_table(table.set_column(at, column, pc.add(table[column], pa.scalar(whole, kind))))


def exact_percentiles(requests: Path) -> dict[str, float]:
    """Return percentiles (linear between order statistics) and maximum of the latencies in a table of requests."""
    shares = list(QUANTILES.values())
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT quantile_cont(latency_ms, $shares), max(latency_ms) FROM read_parquet($path)",
            {"shares": shares, "path": str(requests)},
        ).fetchone()
    assert found is not None  # an aggregate has one row
    percentiles = dict(zip(QUANTILES, found[0], strict=True))
    return {f"latency_{name}_ms": value for name, value in percentiles.items()} | {"latency_max_ms": found[1]}


Metrics = dict[str, Any]


@dataclass(frozen=True)
class LoadOfTrial:
    """What a generator's raw files say about one load, or about several together."""

    metrics: Metrics
    checks: tuple[Check, ...]
    begin_wall_ns: int
    duration_s: float
    sent: reconcile.Sent
    mode: str
    answered: int
    """Answers until the load was to end."""
    result: WrkResult | K6Points


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
    """Read one load of a trial, counted from 1, and hold its invariants; LabError for a missing or corrupt file.

    `measurement` and `probe` are of this load alone. Tables of k6 go to the parts; with `salvage` the end of its
    samples may be cut off, and nothing is reconciled.
    """
    if trial.cell.tool == "wrk":
        return _wrk_load(run, trial, number, measurement)
    return _sampled_load(run, trial, number, measurement, probe, salvage=salvage, threads=threads)


def together(run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]) -> LoadOfTrial:
    """Return several slices, by number, as one load, and write their parts of the tables together."""
    parts = [load for _, load in loads]
    sums = {name: sum(load.metrics.get(name) or 0 for load in parts) for name in SUMS if name in parts[0].metrics}
    duration_s = sum(load.duration_s for load in parts)
    write = _wrk_together if trial.cell.tool == "wrk" else _samples_together
    metrics = {
        **parts[0].metrics,
        **sums,
        **write(run, trial, loads),
        "duration_s": duration_s,
        "rps": sums["requests"] / duration_s if duration_s > 0 else None,
    }
    if len(parts) > 1:
        for name in ("iteration_mean_ms", "in_flight_mean"):
            metrics[name] = _mean([(load.metrics.get(name), load.duration_s) for load in parts])
        if "opened_pct" in metrics:
            metrics["opened_pct"] = _mean([(load.metrics["opened_pct"], load.metrics["requests"]) for load in parts])
        if metrics.get("ended_late_s") is not None:
            metrics["ended_late_s"] = max(load.metrics["ended_late_s"] for load in parts)
    sent = reconcile.Sent(
        **{name: sum(getattr(load.sent, name) for load in parts) for name in ("ok", "refused", "lost")},
        at_once=parts[0].sent.at_once,
    )
    modes = {load.mode for load in parts}
    return replace(
        parts[0],
        metrics=metrics,
        duration_s=duration_s,
        sent=sent,
        mode=modes.pop() if len(modes) == 1 else "mixed",
        answered=sum(load.answered for load in parts),
    )


SUMS = ("requests", "failed", "dropped", "checks", "checks_failed")
"""Counts of a load, which add up over its slices."""


def _mean(values: Sequence[tuple[float | None, float]]) -> float | None:
    """Return the mean of those values that are known, weighted."""
    known = [(value, weight) for value, weight in values if value is not None]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


# --- k6 and vegeta, which keep every request --------------------------------------------------------------

_K6_TABLES = ("requests", "latency", "throughput")


def _k6_tables(run: RunFolder, trial: Trial, number: int | None) -> dict[str, Path]:
    """Return where k6's tables of a trial lie, or, by its number, of a slice until they are put together."""
    name = trial.trial_id if number is None else f"{trial.trial_id}.{number}"
    final = {"requests": run.tables / "requests" / f"{trial.trial_id}.parquet"} if number is None else {}
    return {table: part(run, table, name) for table in _K6_TABLES} | final


RAW = {"k6": "k6.json.gz", "vegeta": "vegeta.csv.gz"}
"""Where a generator has its samples."""


def _sampled_load(
    run: RunFolder,
    trial: Trial,
    number: int,
    measurement: Measurement,
    probe: ProbeSamples | None,
    *,
    salvage: bool,
    threads: int,
) -> LoadOfTrial:
    folder, cell = run.trial(trial.trial_id), trial.cell.slice(number)
    of_slice = None if trial.cell.slices is None else number
    tables = _k6_tables(run, trial, of_slice)
    for path in tables.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    window_s = None if salvage else cell.window_s
    digest = partial(
        digest_k6,
        folder / raw_name(RAW[cell.tool], of_slice),
        *(tables[name] for name in _K6_TABLES),
        trial_id=trial.trial_id,
        mode=cell.mode,
        held=reconcile.may_hold(cell, reopened_share(probe)),
        window_s=window_s,
        threads=threads,
        scratch=run.tables / "parts",  # on the run's disk, which has room; removed with the parts
        salvage=salvage,
    )
    whole = points = digest(spool_raw=_spool_of(folder, of_slice, cell, measurement, salvage=salvage, threads=threads))
    if cell.lead_s:  # all that was sent is reconciled; what came after the lead is the load
        loaded = partial(spool_results, rate_rps=cell.rates_rps[0], lead_s=cell.lead_s, threads=threads)
        points = digest(spool_raw=loaded)
    lasted_s = (points.last_end_ns - points.first_start_ns) / 1e9
    duration_s = window_s or lasted_s
    metrics: Metrics = {
        "requests": points.requests,
        "opened_pct": 100 * points.opened / points.requests,
        "failed": points.failed,
        "dropped": points.dropped_iterations + points.late + reconcile.missed(cell, whole),
        "duration_s": duration_s,
        "ended_late_s": max(0.0, lasted_s - window_s) if window_s else None,
        "rps": points.requests / duration_s if duration_s > 0 else None,
        **{f"latency_{name}_ms": getattr(points.latency, name) for name in ("mean", *QUANTILES, "max")},
        "iteration_mean_ms": points.steady.iteration_mean_ms if points.steady else None,
        "in_flight_mean": points.steady.in_flight if points.steady else None,
    }
    checks: tuple[Check, ...] = ()
    if not salvage:
        said, checks = _reconciled(folder, of_slice, cell, whole, measurement)
        checks += (*_parts_of_k6(run, trial, of_slice, cell, measurement, threads), *reconcile.between(measurement))
        metrics |= said
    begin_ns, answered = points.first_start_ns, points.answered_by_end
    return LoadOfTrial(metrics, checks, begin_ns, duration_s, _sent(whole, cell), points.mode, answered, points)


def _sent(load: K6Points, cell: Cell) -> reconcile.Sent:
    """Return what a server must have counted of a load whose requests were sampled."""
    ok, interrupted = load.requests - load.failed, load.script_runs - load.iterations
    lost = load.requests - load.with_status + interrupted
    return reconcile.Sent(ok=ok, refused=load.with_status - ok, lost=lost, at_once=cell.sockets)


def _spool_of(
    folder: Path, of_slice: int | None, cell: Cell, measurement: Measurement, *, salvage: bool, threads: int
) -> Callable[[Path, Path], Tally] | None:
    """Return what reads a load's samples in place of k6's reader: of vegeta, or of several generators."""
    if cell.tool == "vegeta":
        return partial(spool_results, rate_rps=cell.rate_rps or 0.0, threads=threads)
    further = [
        (folder / raw_name(RAW[cell.tool], of_slice, part.number), part.behind_ns(measurement))
        for part in measurement.parts
    ]
    return partial(spool_side_by_side, further=further, salvage=salvage) if further else None


def _reconciled(
    folder: Path, of_slice: int | None, cell: Cell, points: K6Points, measurement: Measurement
) -> tuple[Metrics, tuple[Check, ...]]:
    """Return the script's checks, where it has any, and the invariants, held against what the generator summed up."""
    name, read, hold = (
        ("vegeta.json", read_report, reconcile.vegeta_checks) if cell.tool == "vegeta"
        else ("k6-summary.json", read_summary, reconcile.k6_checks)
    )  # fmt: skip
    numbers = (1, *(part.number for part in measurement.parts))
    summaries = [read(folder / raw_name(name, of_slice, number)) for number in numbers]
    summary = summaries[0] if len(summaries) == 1 else sum_up(summaries)
    if len(summaries) > 1:
        hold = partial(reconcile.k6_checks, statistics=EXACT_SUMS)
    checked = {"checks": summary.checks, "checks_failed": summary.checks_failed} if summary.checks else {}
    return checked, hold(cell, points, summary, measurement)


UNCOUNTED = Counters(None, None, None)
EXACT_SUMS = ("mean", "min", "max")
"""What several generators' summaries say together; percentiles cannot be had of theirs."""


def _parts_of_k6(
    run: RunFolder, trial: Trial, of_slice: int | None, cell: Cell, measurement: Measurement, threads: int
) -> tuple[Check, ...]:
    """Hold k6's invariants for each generator's part by itself; nothing where there is one generator."""
    if not measurement.parts:
        return ()
    folder, checks = run.trial(trial.trial_id), []
    walls: list[tuple[int, int]] = []
    uncounted = replace(measurement, parts=(), counters_before=UNCOUNTED, counters_after=UNCOUNTED)
    for share in Share.all(len(measurement.parts) + 1):
        path, of_part = folder / raw_name(RAW["k6"], of_slice, share.number), share.of(cell)
        with tempfile.TemporaryDirectory(dir=run.tables / "parts") as name:
            tables = [Path(name, f"{table}.parquet") for table in _K6_TABLES]
            points = digest_k6(
                path, *tables, trial_id=trial.trial_id, mode=cell.mode, held=None, scratch=Path(name), threads=threads,
                window_s=cell.window_s,
            )  # fmt: skip
        walls.append((points.first_start_ns, points.last_end_ns))
        summary = read_summary(folder / raw_name("k6-summary.json", of_slice, share.number))
        if of_part.iterations is not None and abs(points.script_runs - of_part.iterations) <= 1:
            of_part = replace(of_part, iterations=points.script_runs)  # the sum is held exactly
        found = reconcile.k6_checks(of_part, points, summary, uncounted)
        checks += [replace(check, name=f"{check.name} (generator {share.number})") for check in found]
    return (*checks, reconcile.begun_together(measurement, walls))


def _samples_together(run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]) -> Metrics:
    """Put the tables of slices together, each after the one before it; return the percentiles of all requests."""
    if trial.cell.slices is None:
        return {}
    begins_s, begun_s = [], 0.0
    for _, load in loads:
        begins_s.append(begun_s)
        begun_s += load.duration_s
    whole = _k6_tables(run, trial, None)
    for table, column in {"requests": "t_s", "latency": "second", "throughput": "t_s"}.items():
        parts = [_k6_tables(run, trial, number)[table] for number, _ in loads]
        join_parts(parts, begins_s, column, whole[table])
    means = [(load.metrics["latency_mean_ms"], float(load.metrics["requests"] or 0)) for _, load in loads]
    return {"latency_mean_ms": _mean(means), **exact_percentiles(whole["requests"])}


# --- wrk --------------------------------------------------------------------------------------------------


def _wrk_load(run: RunFolder, trial: Trial, number: int, measurement: Measurement) -> LoadOfTrial:
    of_slice = None if trial.cell.slices is None else number
    folder = run.trial(trial.trial_id)
    numbers = (1, *(part.number for part in measurement.parts))
    results = [read_wrk(folder / raw_name("wrk.json", of_slice, each)) for each in numbers]
    result = side_by_side(results)
    begin_ns = result.ended_wall_ns - round(result.duration_s * 1e9)
    checks = reconcile.wrk_checks(trial.cell.slice(number), result, measurement, results)
    if measurement.parts:
        rates = [(each.requests / each.duration_s, mean_ms(each.raw) / 1000, each.connections) for each in results]
        walls = [(each.ended_wall_ns - round(1e9 * each.duration_s), each.ended_wall_ns) for each in results]
        checks += (
            *reconcile.answered_all_along(trial.cell, rates), reconcile.begun_together(measurement, walls)
        )  # fmt: skip
    checks += reconcile.between(measurement)
    refused = result.errors["status"]
    # When wrk stops, each connection may have one request under way.
    sent = reconcile.Sent(
        ok=result.requests - refused, refused=refused, lost=result.connections, at_once=result.connections
    )
    answered = sent.ok + sent.refused
    return LoadOfTrial(
        _wrk_metrics(result), checks, begin_ns, result.duration_s, sent, trial.cell.mode, answered, result
    )


def _wrk_metrics(result: WrkResult) -> Metrics:
    return {
        "requests": result.requests,
        "failed": result.failed,
        "threads": result.threads,
        "duration_s": result.duration_s,
        "rps": result.requests / result.duration_s,
        "latency_mean_ms": mean_ms(result.raw),
        **{f"latency_{name}_ms": quantile_ms(result.raw, q) for name, q in QUANTILES.items()},
        "latency_max_ms": quantile_ms(result.raw, 1.0),
        "in_flight_mean": mean_ms(result.raw) / 1000 * result.requests / result.duration_s,
        "wrk_reported_p50_ms": quantile_ms(result.reported, 0.5),
        "wrk_reported_p99_ms": quantile_ms(result.reported, 0.99),
    }


def _wrk_together(run: RunFolder, trial: Trial, loads: Sequence[tuple[int, LoadOfTrial]]) -> Metrics:
    """Write the histogram of wrk's slices together; return what it says of all requests."""
    result = add_up([load.result for _, load in loads if isinstance(load.result, WrkResult)])
    table = latency_table(trial.trial_id, None, *bucket_counts(*result.raw))
    with replacing(part(run, "latency", trial.trial_id)) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return _wrk_metrics(result)
