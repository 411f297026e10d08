"""What a load cost each subject: CPU, memory, the database's work; and whether the samples can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from runner.digest import reconcile
from runner.digest.resources import Counter, rates, read_counters, tick_coverage
from runner.digest.verdict import APART_MS, DatabaseEvidence, Evidence, Wait
from runner.digest.witness import probing_of, saw_the_same
from runner.measurement import Measurement
from runner.model import OWN_SCRIPT, Cell, Check, LabError
from runner.store import replacing

Metrics = Mapping[str, float | int | None]
SERVER = (
    *("server_cpu_mean_pct", "server_cpu_peak_100ms_pct", "server_cpu_peak_1s_pct", "server_cpu_ms_per_request"),
    *("server_rss_peak_bytes", "server_throttled_pct"),
)


@dataclass(frozen=True)
class Usage:
    """Columns of trials.parquet about resources, and the checks of the samples behind them."""

    metrics: Metrics
    checks: tuple[Check, ...]
    counters: Mapping[str, Counter]


def measure_usage(
    path: Path, out: Path, measurement: Measurement, *, zero_mono_ns: int, end_s: float, requests: int
) -> Usage:
    """Read the raw counters at `path`, write their rates to `out` (TRIAL_ID.parquet), sum up a load of `end_s` seconds.

    LabError where a subject's rows are missing.
    """
    counters = read_counters(path, zero_mono_ns)
    # A server that the lab did not start has no CPUs where its process was not found, and then no rows.
    for subject in ("server", "generator", "sampler")[0 if measurement.placement.server else 1 :]:
        if subject not in counters:
            raise LabError(f"{path} lacks the rows of the {subject}.", exit_code=1)
    coverage = tick_coverage(path, 0.0, end_s, measurement.sample_hz, counters)
    with replacing(out) as temporary:
        pq.write_table(rates(out.stem, counters), temporary, compression="zstd")
    server, generator = counters.get("server"), counters["generator"]
    metrics: dict[str, float | int | None] = {
        **_server(server, end_s, requests),
        "generator_cpu_mean_pct": generator.mean_pct(0.0, end_s),
        "generator_cpu_peak_1s_pct": generator.peak_pct(0.0, end_s, 1.0),
        "sampler_cpu_mean_pct": counters["sampler"].mean_pct(0.0, end_s),
        "host_steal_pct": 100 * counters["host"].stolen(0.0, end_s) / end_s,
    }
    if "database" in counters and server is not None:
        metrics |= _database(counters["database"], server, measurement, end_s, requests)
    checks = (
        reconcile.lived(measurement),
        reconcile.kept_packets(measurement),
        reconcile.stayed(counters, end_s),
        *reconcile.resource_checks(measurement, metrics, counters, end_s, coverage),
    )
    return Usage(metrics, checks, counters)


def _server(server: Counter | None, end_s: float, requests: int) -> Metrics:
    """Return what is known of the server's use: nothing where its process was not found."""
    if server is None:
        return dict.fromkeys(SERVER)
    values = (
        server.mean_pct(0.0, end_s),
        server.peak_pct(0.0, end_s, 0.1),
        server.peak_pct(0.0, end_s, 1.0),
        _per_request(server, end_s, requests),
        _peak_rss(server),
        100 * server.throttled(0.0, end_s) / end_s,
    )
    return dict(zip(SERVER, values, strict=True))


def others_pct(counters: Mapping[str, Counter], end_s: float, probe_pct: float) -> float | None:
    """Return what was used of the machine's CPUs by programs that are no part of the trial, 100 = one core.

    None for less than a second, of which ticks tell nothing. Interrupts are left out: some kernels book what the
    trial's own connections cost there, and to no program (CONFIG_IRQ_TIME_ACCOUNTING).
    """
    used_pct = {subject: counter.mean_pct(0.0, end_s) for subject, counter in counters.items()}
    interrupts_pct = 100 * counters["host"].interrupted(0.0, end_s) / end_s
    others = used_pct.pop("host") - interrupts_pct - sum(used_pct.values()) - probe_pct
    return None if end_s < 1.0 or math.isnan(others) else others


def _per_request(counter: Counter, end_s: float, requests: int) -> float | None:
    return 1000 * counter.between(0.0, end_s) / requests if requests else None


def _peak_rss(counter: Counter) -> int | None:
    known = counter.rss_bytes[counter.rss_bytes >= 0]
    return int(known.max()) if len(known) else None


def _database(database: Counter, server: Counter, measurement: Measurement, end_s: float, requests: int) -> Metrics:
    metrics: dict[str, float | int | None] = {
        "database_cpu_mean_pct": database.mean_pct(0.0, end_s),
        "database_cpu_peak_1s_pct": database.peak_pct(0.0, end_s, 1.0),
        "database_cpu_ms_per_request": _per_request(database, end_s, requests),
        "database_rss_peak_bytes": _peak_rss(database),
    }
    in_use, size = (server.told(name, 0.0, end_s) for name in ("pool_in_use", "pool_size"))
    if len(in_use):
        metrics["pool_in_use_max"] = int(in_use.max())
        metrics["pool_waiting_max"] = int(server.told("pool_waiting", 0.0, end_s).max())
        metrics["pool_exhausted_pct"] = 100 * float((in_use >= size).mean())
    use = measurement.database
    if use is not None:
        calls = use.after.statement_calls - use.before.statement_calls
        spent_ms = use.after.statement_ms - use.before.statement_ms
        metrics |= {
            "rows_inserted": use.after.rows - use.before.rows,
            "database_sessions": use.after.sessions - use.before.sessions,
            "database_statement_calls": calls,
            "database_statement_mean_ms": spent_ms / calls if calls else None,
        }
    return metrics


def evidence(cell: Cell, measurement: Measurement, metrics: Metrics, mode: str = "keepalive") -> Evidence:
    """Return what the verdict is judged by: CPU use as shares of what each side was given, who waited, and the pool."""
    placement = measurement.placement
    mean, peak = metrics["generator_cpu_mean_pct"] or 0.0, metrics["generator_cpu_peak_1s_pct"]
    peak = mean if peak is None or math.isnan(peak) else peak
    full = 100 * min(len(placement.generator), int(metrics.get("threads") or len(placement.generator)))
    # A ramp's mean rate says nothing of how near its last step came.
    ceiling_rps = measurement.generator_ceiling_rps if len(cell.rates_rps) <= 1 else None
    cpus = measurement.host_cpus or len({*placement.server, *placement.generator, *placement.database})
    requests, checks = metrics.get("requests") or 0, metrics.get("checks") or 0
    used_pct, scripted = metrics["server_cpu_mean_pct"], cell.workload == OWN_SCRIPT
    return Evidence(
        None if used_pct is None else used_pct / (100 * len(placement.server)),
        mean / full,
        peak / full,
        placement.disjoint,
        cell.rate_rps,
        int(metrics.get("dropped") or 0),
        _database_evidence(measurement, metrics),
        waits=tuple(_waits(metrics)) if saw_the_same(cell, mode, metrics) else (),
        throttled_share=(metrics.get("server_throttled_pct") or 0.0) / 100,
        stolen_share=(metrics.get("host_steal_pct") or 0.0) / (100 * cpus),
        others_share=_others_share(measurement, metrics, cpus),
        ceiling_share=(metrics["rps"] or 0.0) / ceiling_rps if ceiling_rps else None,
        failed_share=(metrics.get("failed") or 0) / requests if requests else 0.0,
        checks_failed_share=(metrics.get("checks_failed") or 0) / checks if checks else 0.0,
        unit="iterations" if scripted else "requests",
        probing=None if scripted else probing_of(metrics),
        connecting_share=0.0 if mode == "keepalive" else (metrics.get("opened_pct") or 0.0) / 100,
        ended_late_s=metrics.get("ended_late_s") or 0.0,
    )


def _others_share(measurement: Measurement, metrics: Metrics, cpus: int) -> float:
    """Return the share of the CPUs' time that others took; 0 where the machine has CPUs beside the trial's."""
    placement = measurement.placement
    if cpus > len({*placement.server, *placement.generator, *placement.database}):
        return 0.0
    return max(0.0, metrics.get("others_cpu_mean_pct") or 0.0) / (100 * cpus)


def _waits(metrics: Metrics) -> Iterator[Wait]:
    for name in APART_MS:
        generator_ms, probe_ms = metrics.get(f"latency_{name}_ms"), metrics.get(f"probe_{name}_ms")
        if generator_ms is not None and probe_ms is not None and math.isfinite(generator_ms):
            yield Wait(name, generator_ms, probe_ms)


def _database_evidence(measurement: Measurement, metrics: Metrics) -> DatabaseEvidence | None:
    used_pct = metrics.get("database_cpu_mean_pct")
    if used_pct is None:
        return None
    placement = measurement.placement
    return DatabaseEvidence(
        used_pct / (100 * max(1, len(placement.database))),
        placement.database_shared,
        (metrics.get("pool_exhausted_pct") or 0.0) / 100,
    )
