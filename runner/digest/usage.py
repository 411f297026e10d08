"""What a load cost each subject: CPU, memory, the database's work; and whether the samples can be believed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from runner.digest import reconcile
from runner.digest.probe import probing_of, saw_the_same
from runner.digest.resources import Counter, Window, rates, read_counters, stitched
from runner.digest.verdict import APART_MS, DatabaseEvidence, Evidence, Network, Serial, Wait
from runner.measurement import Measurement
from runner.model import OWN, OWN_SCRIPT, Cell, Check, LabError
from runner.store import replacing

Metrics = Mapping[str, Any]
WHOLE = 0.5
"""Share of the machine's ticks that the time of all programs must be: a quota may double the ticks, no more."""
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


def read_usage(path: Path, measurement: Measurement, windows: Sequence[Window]) -> dict[str, Counter]:
    """Read the raw counters at `path`, seconds from the first window's begin; LabError where a subject is missing."""
    raw = read_counters(path, windows[0].begin_mono_ns)
    # A server that the lab did not start has no CPUs where its process was not found, and then no rows.
    for subject in ("host", "server", "generator", "sampler"):
        if subject not in raw and (subject != "server" or measurement.placement.server):
            raise LabError(f"{path} lacks the rows of the {subject}.", exit_code=1)
    return raw


def read_hosts(folder: Path, measurement: Measurement, windows: Sequence[Window]) -> dict[str, Counter]:
    """Read what was sampled on the hosts of generators: `generator 2`, and `host 1`, `sampler 1` and so on of each."""
    found: dict[str, Counter] = {}
    for number in range(1, len(measurement.parts) + 2):
        path = folder / f"resources.g{number}.parquet"
        if path.is_file():
            counters = read_counters(path, windows[0].begin_mono_ns)
            first = {"generator"} if number == 1 else set()
            found |= {f"{name} {number}": counter for name, counter in counters.items() if name not in first}
    return found


def _of_generators(counters: Mapping[str, Counter], measurement: Measurement, end_s: float) -> Metrics:
    """Return the CPU use of the busiest of several generators, its CPUs, and the share that was stolen from one."""
    if measurement.between is None:
        return {}
    hosts = measurement.between.generators
    names = ["generator", *(f"generator {part.number}" for part in measurement.parts)]

    def busy(number: int) -> float:
        return counters[names[number]].mean_pct(0.0, end_s) / hosts[number].cpus

    between = [each.between for each in measurement.loads if each.between is not None]
    stolen = [
        counters[f"host {number}"].between(0.0, end_s, "steal_s") / end_s / host.host_cpus
        for number, host in enumerate(hosts, start=1)
        if f"host {number}" in counters
    ]
    most = max(range(len(names)), key=busy)
    busiest = counters[names[most]]
    return {
        "generator_cpu_mean_pct": busiest.mean_pct(0.0, end_s),
        "generator_cpu_peak_1s_pct": busiest.peak_pct(0.0, end_s, 1.0),
        "generator_cpus": hosts[most].cpus,
        "generators_stolen_share": max(stolen, default=0.0),
        "network_share": max(
            each.between.share((each.load_ended_mono_ns - each.load_started_mono_ns) / 1e9)
            for each in measurement.loads
            if each.between is not None
        ),
        "lost_share": sum(each.retransmitted for each in between) / max(1, sum(each.segments for each in between)),
        "round_trip_ms": max(each.round_trip_ns for each in between) / 1e6,
    }


def elsewhere(measurement: Measurement) -> set[str]:
    """Return the subjects that were sampled on other machines than the server's, or are such machines."""
    hosts = measurement.between
    if hosts is None:
        return set()
    server, generator, database = measurement.placement.hosts
    found = {f"host {number}" for number in range(1, len(hosts.generators) + 1)}
    found |= {"generator"} if generator != server else set()
    found |= {"database"} if database != server else set()
    for number, host in enumerate(hosts.generators, start=1):
        found |= {f"generator {number}", f"sampler {number}"} if host.machine != server else set()
    return found


def measure_usage(
    raw: Mapping[str, Counter], out: Path, measurement: Measurement, windows: Sequence[Window], requests: int
) -> Usage:
    """Write the rates of raw counters to `out` (TRIAL_ID.parquet), and sum up the load in `windows`."""
    counters = stitched(raw, windows) if measurement.slices else raw
    end_s = sum(window.seconds for window in windows)
    with replacing(out) as temporary:
        pq.write_table(rates(out.stem, counters), temporary, compression="zstd")
    metrics = {**used(counters, end_s, requests), "idle": measurement.idle}
    metrics |= _of_generators(counters, measurement, end_s)
    if "database" in counters and "server" in counters:
        metrics |= _database(counters["database"], counters["server"], measurement, end_s, requests)
    checks = (
        reconcile.lived(measurement),
        reconcile.kept_packets(measurement),
        reconcile.stayed(raw if not measurement.slices else counters, end_s),
        *reconcile.resource_checks(measurement, metrics, "server" in counters),
        *reconcile.sampled(raw, windows, measurement.sample_hz, metrics["host_steal_pct"]),
        *reconcile.idle_meanwhile(raw, windows[0].begin_mono_ns, measurement.others_loaded),
    )
    return Usage(metrics, checks, counters)


def used(counters: Mapping[str, Counter], end_s: float, requests: int) -> dict[str, Any]:
    """Return the columns of trials.parquet about CPU and memory that every load has."""
    generator = counters["generator"]
    return {
        **_server(counters.get("server"), end_s, requests),
        "generator_cpu_mean_pct": generator.mean_pct(0.0, end_s),
        "generator_cpu_peak_1s_pct": generator.peak_pct(0.0, end_s, 1.0),
        "sampler_cpu_mean_pct": counters["sampler"].mean_pct(0.0, end_s),
        "host_steal_pct": 100 * counters["host"].between(0.0, end_s, "steal_s") / end_s,
    }


def _server(server: Counter | None, end_s: float, requests: int) -> Metrics:
    """Return what is known of the server's use: nothing where its process was not found."""
    if server is None:
        return dict.fromkeys(SERVER)
    peaks = (server.peak_pct(0.0, end_s, window_s) for window_s in (0.1, 1.0))
    per_request, throttled_s = _per_request(server, end_s, requests), server.between(0.0, end_s, "throttled_s")
    values = (server.mean_pct(0.0, end_s), *peaks, per_request, _peak_rss(server), 100 * throttled_s / end_s)
    return dict(zip(SERVER, values, strict=True))


def others_pct(
    counters: Mapping[str, Counter],
    end_s: float,
    probe_pct: float,
    *,
    limited: bool = False,
    without: Collection[str] = (),
) -> float | None:
    """Return what was used of the machine's CPUs by programs that are no part of the trial, 100 = one core.

    From the exact time of all programs where the kernel has it, else from its ticks: None for less than a second then,
    which ticks cannot measure. Interrupts are left out: some kernels book what the trial's connections cost there,
    and to no program (CONFIG_IRQ_TIME_ACCOUNTING). Where a quota limits the server or the database (`limited`), ticks
    are not used: its periods may keep step with them. Subjects of other machines are left out (`without`).
    """
    used_pct = {name: each.mean_pct(0.0, end_s) for name, each in counters.items() if name not in without}
    ran_pct, interrupts_pct = (
        100 * counters["host"].between(0.0, end_s, name) / end_s for name in ("ran_s", "interrupts_s")
    )
    ticked_pct = used_pct.pop("host") - interrupts_pct
    exact = ran_pct >= WHOLE * ticked_pct  # else the group is that of a container, and has its programs only
    others = (ran_pct if exact else ticked_pct) - sum(used_pct.values()) - probe_pct
    unknown = not exact and (end_s < 1.0 or limited)
    return None if unknown or math.isnan(others) else others


def _per_request(counter: Counter, end_s: float, requests: int) -> float | None:
    return 1000 * counter.between(0.0, end_s) / requests if requests else None


def _peak_rss(counter: Counter) -> int | None:
    known = counter.rss_bytes[~np.isnan(counter.rss_bytes)]
    return int(known.max()) if len(known) else None


def _database(database: Counter, server: Counter, measurement: Measurement, end_s: float, requests: int) -> Metrics:
    metrics: dict[str, float | int | None] = {
        "database_cpu_mean_pct": database.mean_pct(0.0, end_s),
        "database_cpu_peak_1s_pct": database.peak_pct(0.0, end_s, 1.0),
        "database_cpu_ms_per_request": _per_request(database, end_s, requests),
        "database_rss_peak_bytes": _peak_rss(database),
    }
    in_use, size = (server.level(name, 0.0, end_s) for name in ("pool_in_use", "pool_size"))
    if len(in_use):
        metrics["pool_in_use_max"] = int(in_use.max())
        metrics["pool_waiting_max"] = int(server.level("pool_waiting", 0.0, end_s).max())
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
    cpus = int(metrics.get("generator_cpus") or len(placement.generator))
    full = 100 * min(cpus, int(metrics.get("threads") or cpus))
    # A ramp's mean rate says nothing of how near its last step came.
    ceiling_rps = measurement.generator_ceiling_rps if len(cell.rates_rps) <= 1 else None
    requests, checks = metrics.get("requests") or 0, metrics.get("checks") or 0
    used_pct, scripted = metrics["server_cpu_mean_pct"], cell.workload == OWN_SCRIPT
    return Evidence(
        None if used_pct is None else used_pct / (100 * len(placement.server) * cell.share),
        mean / full,
        peak / full,
        placement.disjoint,
        cell.rate_rps,
        int(metrics.get("dropped") or 0),
        _database_evidence(cell, measurement, metrics),
        # A server on a share of a core waits for its next period, which the probe may meet and the load not.
        waits=tuple(_waits(metrics)) if cell.share == 1 and saw_the_same(cell, mode, metrics) else (),
        throttled_share=(metrics.get("server_throttled_pct") or 0.0) / 100,
        stolen_share=max(
            (metrics.get("host_steal_pct") or 0.0) / (100 * measurement.cpus),
            metrics.get("generators_stolen_share") or 0.0,
        ),
        others_share=others_share(measurement, metrics.get("others_cpu_mean_pct")),
        ceiling_share=(metrics["rps"] or 0.0) / ceiling_rps if ceiling_rps else None,
        failed_share=(metrics.get("failed") or 0) / requests if requests else 0.0,
        checks_failed_share=(metrics.get("checks_failed") or 0) / checks if checks else 0.0,
        unit="iterations" if scripted else "requests",
        share=cell.share,
        cores=len(placement.server) * cell.share,
        serial=_serial(cell, measurement, metrics),
        probing=None if scripted else probing_of(metrics),
        connecting_share=0.0 if mode == "keepalive" else (metrics.get("opened_pct") or 0.0) / 100,
        ended_late_s=metrics.get("ended_late_s") or 0.0,
        network=_network(metrics),
    )


def _network(metrics: Metrics) -> Network | None:
    if "network_share" not in metrics:
        return None
    return Network(
        metrics["network_share"], metrics["lost_share"], metrics["round_trip_ms"], metrics.get("latency_p50_ms")
    )


def _serial(cell: Cell, measurement: Measurement, metrics: Metrics) -> Serial | None:
    """Return what one request after the other took; None where more than one is under way, or that is not known."""
    if cell.rates_rps or cell.sockets != 1 or not metrics.get("rps") or cell.workload in OWN:
        return None
    server_pct, generator_pct = metrics["server_cpu_mean_pct"] or 0.0, metrics["generator_cpu_mean_pct"] or 0.0
    return Serial(1e6 / metrics["rps"], server_pct / 100, generator_pct / 100, measurement.idle)


def others_share(measurement: Measurement, taken_pct: float | None) -> float:
    """Return the share of the CPUs' time that others took; 0 where the machine has CPUs beside the trial's."""
    if measurement.cpus > measurement.placement.cpus:
        return 0.0
    return max(0.0, taken_pct or 0.0) / (100 * measurement.cpus)


def _waits(metrics: Metrics) -> Iterator[Wait]:
    for name in APART_MS:
        generator_ms, probe_ms = metrics.get(f"latency_{name}_ms"), metrics.get(f"probe_{name}_ms")
        if generator_ms is not None and probe_ms is not None and math.isfinite(generator_ms):
            yield Wait(name, generator_ms, probe_ms)


def _database_evidence(cell: Cell, measurement: Measurement, metrics: Metrics) -> DatabaseEvidence | None:
    used_pct = metrics.get("database_cpu_mean_pct")
    if used_pct is None:
        return None
    placement = measurement.placement
    return DatabaseEvidence(
        used_pct / (100 * max(1, len(placement.database)) * cell.database_share),
        placement.database_shared,
        (metrics.get("pool_exhausted_pct") or 0.0) / 100,
        limited=cell.database_share < 1,
    )
