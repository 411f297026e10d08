"""Put the trials' parts together into the run's tables, and rebuild them from raw."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.digest.trial import Digest, digest_trial, part
from runner.model import FIGURES, Cell, LabError, Measurement, Trial
from runner.store import RunFolder, replacing, sha256

_TEXT = (
    "run_id trial_id server language framework tier workload tool load_model mode objective status error verdict "
    "verdict_reason"
)
_WHOLE = (
    "block bisection trial_order attempt connections threads vus iterations steps pool_size requests failed dropped "
    "inserts rows_inserted server_rss_peak_bytes database_rss_peak_bytes database_sessions database_statement_calls "
    "pool_in_use_max pool_waiting_max probe_requests probe_failed"
)
TRIAL_COLUMNS: tuple[str, ...] = (
    "run_id",
    "trial_id",
    "block",
    "trial_order",
    "attempt",
    "server",
    "language",
    "framework",
    "tier",
    "workload",
    "tool",
    "load_model",
    "mode",
    "connections",
    "threads",
    "vus",
    "iterations",
    "first_rate_rps",
    "rate_rps",
    "steps",
    "step_s",
    "pool_size",
    "objective",
    "bisection",
    "status",
    "error",
    "requests",
    "failed",
    "dropped",
    "sustained",
    "objective_kept",
    "inserts",
    "rows_inserted",
    "duration_s",
    "rps",
    "latency_mean_ms",
    "latency_p50_ms",
    "latency_p90_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "latency_p999_ms",
    "latency_max_ms",
    "iteration_mean_ms",
    "in_flight_mean",
    "wrk_reported_p50_ms",
    "wrk_reported_p99_ms",
    "server_cpu_mean_pct",
    "server_cpu_peak_100ms_pct",
    "server_cpu_peak_1s_pct",
    "server_cpu_ms_per_request",
    "server_rss_peak_bytes",
    "server_throttled_pct",
    "generator_cpu_mean_pct",
    "generator_cpu_peak_1s_pct",
    "generator_ceiling_rps",
    "database_cpu_mean_pct",
    "database_cpu_peak_1s_pct",
    "database_cpu_ms_per_request",
    "database_rss_peak_bytes",
    "database_sessions",
    "database_statement_calls",
    "database_statement_mean_ms",
    "pool_in_use_max",
    "pool_waiting_max",
    "pool_exhausted_pct",
    "sampler_cpu_mean_pct",
    "probe_cpu_mean_pct",
    "host_steal_pct",
    "probe_requests",
    "probe_failed",
    "probe_p50_ms",
    "probe_p95_ms",
    "probe_p99_ms",
    "verdict",
    "verdict_reason",
)
_KINDS = {_TEXT: pa.string(), _WHOLE: pa.int64(), "sustained objective_kept": pa.bool_()}
_TRIALS = pa.schema(
    [
        (name, next((kind for names, kind in _KINDS.items() if name in names.split()), pa.float64()))
        for name in TRIAL_COLUMNS
    ]
)
_LATENCY = pa.schema(
    [
        ("trial_id", pa.string()),
        ("second", pa.int32()),
        ("bucket", pa.int32()),
        ("lower_ms", pa.float64()),
        ("upper_ms", pa.float64()),
        ("count", pa.int64()),
    ]
)
_THROUGHPUT = pa.schema(
    [("trial_id", pa.string()), ("t_s", pa.float64()), ("requests", pa.int64()), ("failed", pa.int64())]
)
_RESOURCES = pa.schema(
    [
        ("trial_id", pa.string()),
        ("t_s", pa.float64()),
        ("dt_s", pa.float64()),
        ("subject", pa.string()),
        ("cpu_pct", pa.float64()),
        ("rss_bytes", pa.int64()),
        ("throttled_ms", pa.float64()),
        *[(name, pa.float64()) for name in FIGURES],
    ]
)
SCHEMAS = {"trials": _TRIALS, "latency": _LATENCY, "throughput": _THROUGHPUT, "resources": _RESOURCES}


def build_tables(run: RunFolder, salvaged: Mapping[str, dict[str, Any]] | None = None) -> None:
    """Write trials, latency, throughput and resources from the trials' records and parts; the parts are then gone.

    `salvaged` holds records by trial id that stand in for those on disk, which stay as they were sealed.
    """
    records = run.records()
    rows = [trial_row((salvaged or {}).get(record["trial_id"], record)) for record in records]
    _write(run.table("trials"), [pa.Table.from_pylist(rows, schema=_TRIALS)], _TRIALS)
    for name in ("latency", "throughput", "resources"):
        paths = [part(run, name, record["trial_id"]) for record in records]
        _write(run.table(name), (pq.read_table(path) for path in paths if path.exists()), SCHEMAS[name])
    shutil.rmtree(run.tables / "parts", ignore_errors=True)


def _write(path: Path, tables: Sequence[pa.Table] | Iterator[pa.Table], schema: pa.Schema) -> None:
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.select(schema.names).cast(schema))


def trial_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return a trial's row of tables/trials.parquet from its record."""
    known = {**record["cell"], **record, **record["metrics"], "trial_order": record["order"]}
    return {name: known.get(name) for name in TRIAL_COLUMNS}


def have_tables(run: RunFolder) -> bool:
    """Return whether every table is there."""
    return all(run.table(name).is_file() for name in SCHEMAS)


def rebuild(run: RunFolder, *, salvage: bool = False) -> None:
    """Digest every trial again from its raw files, which must be the sealed ones, and write the tables anew.

    LabError where a raw file is missing or changed, or where the metrics come out differently than when sealed. With
    `salvage` what is left of damaged k6 samples goes into the tables; its trial counts as failed.
    """
    salvaged = {}
    for record in run.records():
        if record["measurement"] is None:
            continue
        if salvage and _damaged(run, record):
            salvaged[record["trial_id"]] = _salvage(run, record)
            continue
        _verify_raw(run, record)
        digest = _again(run, record)
        # A run of an earlier version has fewer columns: those that it has must come out the same.
        differing = sorted(k for k, v in record["metrics"].items() if digest and digest.metrics.get(k) != v)
        if differing:
            raise LabError(
                f"{record['trial_id']}: the raw files now give other values than when sealed: {', '.join(differing)}.",
                exit_code=1,
            )
    build_tables(run, salvaged)


def _damaged(run: RunFolder, record: dict[str, Any]) -> bool:
    raw = run.trial(record["trial_id"]) / "k6.json.gz"
    sealed = record["raw"].get(raw.name)
    return raw.is_file() and (not record["metrics"] or sealed is None or sha256(raw) != sealed["sha256"])


def _salvage(run: RunFolder, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with the metrics of what is left, as a failed one; LabError where nothing is."""
    metrics = digest_trial(run, _trial(record), Measurement.from_json(record["measurement"]), salvage=True).metrics
    error = f"salvaged: {metrics['requests']} requests before the damage; {record['error'] or 'it had been sealed'}"
    return {**record, "metrics": metrics, "status": "failed", "error": error}


def _trial(record: dict[str, Any]) -> Trial:
    cell = Cell(**record["cell"])
    return Trial(record["trial_id"], record["order"], record["block"], cell, record["attempt"])


def _again(run: RunFolder, record: dict[str, Any]) -> Digest | None:
    """Digest a trial anew; None where it had failed to digest before and does so again."""
    try:
        return digest_trial(run, _trial(record), Measurement.from_json(record["measurement"]))
    except LabError:
        if record["metrics"]:
            raise
        return None


def _verify_raw(run: RunFolder, record: dict[str, Any]) -> None:
    folder = run.trial(record["trial_id"])
    for name, sealed in record["raw"].items():
        path = folder / name
        if not path.is_file():
            raise LabError(f"{path} is missing: the tables of this run cannot be rebuilt.", exit_code=1)
        if sha256(path) != sealed["sha256"]:
            raise LabError(f"{path} is not the file that was sealed: its SHA-256 differs.", exit_code=1)
