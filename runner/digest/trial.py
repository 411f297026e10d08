"""Digest one trial: raw files to tables, metrics, checks and a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runner.digest import reconcile
from runner.digest.histogram import bucket_bounds_ms, bucket_counts
from runner.digest.k6 import K6Points, digest_k6, read_summary
from runner.digest.probe import Probe, late_share, probe_percentiles, read_probe, reopened_share, without_probe
from runner.digest.usage import evidence, measure_usage, others_pct
from runner.digest.verdict import disturbance, judge
from runner.digest.wrk import WrkResult, mean_ms, quantile_ms, read_wrk
from runner.measurement import Measurement, ended
from runner.model import OWN, Check, LabError, Trial, Verdict
from runner.planning.search import Objective
from runner.store import RunFolder, last_line, replacing

Metrics = dict[str, float | int | None]
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class Digest:
    """What one trial's raw files say. A failed check is an outcome, not an exception."""

    metrics: Metrics
    checks: tuple[Check, ...]
    verdict: Verdict
    taken: str | None = None
    """Who took too much of the CPUs' time for this trial to tell what it could have told."""
    mode: str | None = None
    """What happened to the load's connections: `keepalive`, `close` or `mixed`."""

    @property
    def broken(self) -> str | None:
        """The invariants that the trial breaks, in one sentence; None where it keeps all."""
        failed = [f"{check.name} ({check.detail})" for check in self.checks if not check.ok]
        return f"invalid: {'; '.join(failed)}" if failed else None

    @property
    def disturbed(self) -> bool:
        """Whether the machine is to blame.

        For CPU taken away, a late instrument, a part of the trial put on other CPUs, lost packets or a stepped clock.
        """
        failed = {check.name for check in self.checks if not check.ok}
        if failed <= {reconcile.SAMPLER_TICKS, reconcile.PROBE_SCHEDULE, reconcile.STAYED}:
            return bool(failed) or self.taken is not None
        return not failed.isdisjoint({reconcile.KERNEL_DROPS, reconcile.CLOCK})


@dataclass(frozen=True)
class _Load:
    """What a generator's raw files say about the load itself."""

    metrics: Metrics
    checks: tuple[Check, ...]
    begin_wall_ns: int
    duration_s: float
    sent: reconcile.Sent
    mode: str
    answered: int
    """Answers until the load was to end."""


def digest_trial(run: RunFolder, trial: Trial, measurement: Measurement, *, salvage: bool = False) -> Digest:
    """Write the trial's parts of the tables and return its metrics; LabError for a missing or corrupt raw file.

    With `salvage` the end of k6's samples may be cut off: what is before it counts, and nothing is reconciled.
    """
    folder = run.trial(trial.trial_id)
    if measurement.generator_exit != 0 and not salvage:
        said = last_line(folder / "generator.log")
        died = "" if measurement.died is None else f"the server {ended(measurement.died)} under load, and "
        raise LabError(f"{died}{trial.cell.tool} ended with exit code {measurement.generator_exit}{said}.", exit_code=1)
    probe = read_probe(folder / "probe.parquet")
    alone = without_probe(measurement, probe)
    k6 = trial.cell.tool == "k6"
    load = _k6_load(run, trial, alone, salvage, probe) if k6 else _wrk_load(run, trial, alone)
    # Both clocks were read at the same instant; the load is short enough for their drift not to matter.
    zero_mono_ns = measurement.load_started_mono_ns + load.begin_wall_ns - measurement.load_started_wall_ns
    table = run.tables / "probe" / f"{trial.trial_id}.parquet"
    probed = probe_percentiles(probe, table, zero_mono_ns, load.duration_s)
    # An open load lasts its time, whenever its generator has ended: what is sampled ends with that.
    end_s = min(load.duration_s, (measurement.load_ended_mono_ns - zero_mono_ns) / 1e9)
    usage = measure_usage(
        folder / "resources.parquet",
        part(run, "resources", trial.trial_id),
        measurement,
        zero_mono_ns=zero_mono_ns,
        end_s=end_s,
        requests=load.answered + int(probed.get("probe_requests") or 0),
    )
    metrics = {
        **load.metrics,
        **usage.metrics,
        **probed,
        "generator_ceiling_rps": measurement.generator_ceiling_rps,
    }
    if trial.cell.workload not in OWN:  # a server of the user's own may have helpers that the lab does not know
        probe_pct = probed.get("probe_cpu_mean_pct") or 0.0
        metrics["others_cpu_mean_pct"] = others_pct(usage.counters, end_s, probe_pct)
    if trial.cell.rates_rps:
        metrics["sustained"] = not (metrics["dropped"] or metrics["failed"] or metrics.get("checks_failed"))
    if trial.cell.objective is not None:
        metrics["objective_kept"] = Objective.parse(trial.cell.objective).kept(metrics)
    if measurement.database is not None:
        metrics["inserts"] = load.sent.ok
    even = reconcile.clock(measurement)
    checks = (*load.checks, *reconcile.database_checks(load.sent, measurement), *usage.checks, even)
    if probe is not None:
        checks += (reconcile.probe_schedule(late_share(probe, zero_mono_ns, end_s)),)
    evident = evidence(trial.cell, measurement, metrics, load.mode)
    takers = disturbance(evident)
    taken = f"disturbed: {takers} away" if takers else None
    finite = {name: _finite(value) for name, value in metrics.items()}
    return Digest(finite, checks, judge(evident), taken, load.mode)


def part(run: RunFolder, table: str, trial_id: str) -> Path:
    """Return where a trial's part of a table lies until the parts are put together."""
    return run.tables / "parts" / table / f"{trial_id}.parquet"


# --- k6 ---------------------------------------------------------------------------------------------------


def _k6_load(run: RunFolder, trial: Trial, measurement: Measurement, salvage: bool, probe: Probe | None) -> _Load:
    folder = run.trial(trial.trial_id)
    requests = run.tables / "requests" / f"{trial.trial_id}.parquet"
    requests.parent.mkdir(parents=True, exist_ok=True)
    window_s = None if salvage else reconcile.window_s(trial.cell)
    points = digest_k6(
        folder / "k6.json.gz",
        requests,
        part(run, "latency", trial.trial_id),
        part(run, "throughput", trial.trial_id),
        trial_id=trial.trial_id,
        mode=trial.cell.mode,
        held=reconcile.may_hold(trial.cell, reopened_share(probe)),
        window_s=window_s,
        scratch=run.tables / "parts",  # on the run's own disk, which has room, and gone with the parts
        salvage=salvage,
    )
    lasted_s = (points.last_end_ns - points.first_start_ns) / 1e9
    duration_s = window_s or lasted_s
    metrics: Metrics = {
        "requests": points.requests,
        "opened_pct": 100 * points.opened / points.requests,
        "failed": points.failed,
        "dropped": points.dropped_iterations + reconcile.missed(trial.cell, points),
        "duration_s": duration_s,
        "ended_late_s": max(0.0, lasted_s - window_s) if window_s else None,
        "rps": points.requests / duration_s if duration_s > 0 else None,
        **_k6_latency(points),
        "iteration_mean_ms": points.steady.iteration_mean_ms if points.steady else None,
        "in_flight_mean": points.steady.in_flight if points.steady else None,
    }
    checks: tuple[Check, ...] = ()
    if not salvage:
        summary = read_summary(folder / "k6-summary.json")
        if summary.checks:
            metrics |= {"checks": summary.checks, "checks_failed": summary.checks_failed}
        checks = reconcile.k6_checks(trial.cell, points, summary, measurement)
    interrupted = points.script_runs - points.iterations
    ok = points.requests - points.failed
    sent = reconcile.Sent(
        ok=ok,
        refused=points.with_status - ok,
        lost=points.requests - points.with_status + interrupted,
        at_once=trial.cell.sockets,
    )
    return _Load(metrics, checks, points.first_start_ns, duration_s, sent, points.mode, points.answered_by_end)


def _k6_latency(points: K6Points) -> Metrics:
    return {f"latency_{name}": value for name, value in asdict(points.latency).items()}


# --- wrk --------------------------------------------------------------------------------------------------


def _wrk_load(run: RunFolder, trial: Trial, measurement: Measurement) -> _Load:
    result = read_wrk(run.trial(trial.trial_id) / "wrk.json")
    _write_wrk_latency(part(run, "latency", trial.trial_id), trial.trial_id, result)
    metrics: Metrics = {
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
    begin_ns = result.ended_wall_ns - round(result.duration_s * 1e9)
    checks = reconcile.wrk_checks(trial.cell, result, measurement)
    refused = result.errors["status"]
    # When wrk stops, each connection may have one request under way.
    sent = reconcile.Sent(
        ok=result.requests - refused, refused=refused, lost=result.connections, at_once=result.connections
    )
    return _Load(metrics, checks, begin_ns, result.duration_s, sent, trial.cell.mode, sent.ok + sent.refused)


def _finite(value: float | int | None) -> float | int | None:
    """NaN and infinities have no place in JSON: they become null."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_wrk_latency(path: Path, trial_id: str, result: WrkResult) -> None:
    buckets, counts = bucket_counts(*result.raw)
    lower, upper = bucket_bounds_ms(buckets)
    table = pa.table(
        {
            "trial_id": pa.array([trial_id] * len(buckets), pa.string()),
            "second": pa.nulls(len(buckets), pa.int32()),
            "bucket": pa.array(buckets, pa.int32()),
            "lower_ms": lower,
            "upper_ms": upper,
            "count": pa.array(counts, pa.int64()),
        }
    )
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
