"""Digest one trial: raw files to tables, metrics, checks and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest import reconcile
from runner.digest.loads import LeftOut, LoadOfTrial, Metrics, left_out_places, part, read_load, together
from runner.digest.probe import ProbeSamples, late_share, probe_percentiles, read_probe, without_probe
from runner.digest.resources import Counter, Window, since, stitched
from runner.digest.usage import (
    elsewhere,
    evidence,
    measure_usage,
    others_pct,
    others_share,
    read_hosts,
    read_usage,
    used,
)
from runner.digest.verdict import disturbance, judge, takers
from runner.limits import Verdict
from runner.measurement import Measurement, ended
from runner.model import OWN, Cell, Check, LabError, Trial
from runner.planning.search import Objective
from runner.store import RunFolder, last_line, raw_name, replacing

T = TypeVar("T")


@dataclass(frozen=True)
class Digest:
    """What one trial's raw files say. A failed check is an outcome, not an exception."""

    metrics: Metrics
    checks: tuple[Check, ...]
    verdict: Verdict
    taken: str | None = None
    """Who took so much of the CPUs' time that the trial is to be repeated."""
    mode: str | None = None
    """What happened to the load's connections: `keepalive`, `close` or `mixed`."""

    @property
    def broken(self) -> str | None:
        """The invariants that the trial breaks, in one sentence; None where it keeps all."""
        failed = [f"{check.name} ({check.detail})" for check in self.checks if not check.ok]
        return f"invalid: {'; '.join(failed)}" if failed else None

    @property
    def restless(self) -> bool:
        """Whether the server was busy while the others of its session were loaded."""
        return any(check.name == reconcile.IDLE and not check.ok for check in self.checks)

    @property
    def disturbed(self) -> bool:
        """Whether the machine is to blame.

        For CPU taken away, a late instrument, a part of the trial put on other CPUs, lost packets or a stepped clock.
        """
        failed = {check.name for check in self.checks if not check.ok}
        if failed <= {reconcile.SAMPLER_TICKS, reconcile.PROBE_SCHEDULE, reconcile.STAYED, reconcile.IDLE}:
            return bool(failed) or self.taken is not None
        return not failed.isdisjoint({reconcile.KERNEL_DROPS, reconcile.CLOCK})


@dataclass(frozen=True)
class _Seen:
    """All that was read of a trial before it is decided which of its slices count."""

    measurement: Measurement
    loads: tuple[LoadOfTrial, ...]
    windows: tuple[Window, ...]
    raw: Mapping[str, Counter]
    """Seconds from the first window's begin."""
    probe: ProbeSamples | None


def digest_session(
    run: RunFolder, measured: Mapping[Trial, Measurement], *, salvage: bool = False, threads: int = 2
) -> dict[Trial, Digest | LabError]:
    """Write the parts of the tables of a session's trials, or of a single one; return what they say.

    LabError in the place of a trial with a missing or corrupt raw file. With `salvage` the end of k6's samples may be
    cut off: what is before it counts, and nothing is reconciled.
    """
    seen = {trial: _or_error(_read, run, trial, each, salvage, threads) for trial, each in measured.items()}
    left_out = left_out_places([_takers(each, trial.cell) for trial, each in seen.items() if isinstance(each, _Seen)])
    return {
        trial: _or_error(_digest, run, trial, each, left_out) if isinstance(each, _Seen) else each
        for trial, each in seen.items()
    }


def _or_error(function: Callable[..., T], *arguments: Any) -> T | LabError:
    """Return what a function returns, or the LabError that it raises."""
    try:
        return function(*arguments)
    except LabError as error:
        return error


def _limited(cell: Cell) -> bool:
    """Return whether a CPU quota of the lab held the server or the database back."""
    return cell.share < 1 or cell.database_share < 1


def _others_pct(seen: _Seen, cell: Cell, counters: Mapping[str, Counter], lasted_s: float) -> float | None:
    """Return what programs took that are no part of the trial; None where that is not known.

    A user's server may have helpers that the lab does not know.
    """
    if cell.workload in OWN:
        return None
    probe_pct = 100 * (seen.probe.cpu_share or 0.0) if seen.probe else 0.0
    without = elsewhere(seen.measurement)
    probe_pct = 0.0 if "generator" in without else probe_pct  # the probe is beside the first generator, or further
    return others_pct(counters, lasted_s, probe_pct, limited=_limited(cell), without=without)


def _takers(seen: _Seen, cell: Cell) -> list[str]:
    """Return who took much of the CPUs' time in each slice, empty where little was taken; nothing without slices."""
    if not seen.measurement.slices:
        return []
    taken = []
    for window in seen.windows:
        counters = stitched(since(seen.raw, seen.windows[0], window), [window])
        others = others_share(seen.measurement, _others_pct(seen, cell, counters, window.seconds))
        stolen = counters["host"].between(0.0, window.seconds, "steal_s") / window.seconds
        taken.append(takers(stolen / seen.measurement.cpus, others))
    return taken


def _read(run: RunFolder, trial: Trial, measurement: Measurement, salvage: bool, threads: int) -> _Seen:
    """Digest the generator's files of each slice, and read those of sampler and probe."""
    folder = run.trial(trial.trial_id)
    for further in measurement.parts:
        if further.generator_exit != 0 and not salvage:
            said = last_line(folder / raw_name("generator.log", None, further.number))
            raise LabError(
                f"{trial.cell.tool} of generator {further.number} ended with exit code {further.generator_exit}{said}.",
                exit_code=1,
            )
    if measurement.generator_exit != 0 and not salvage:
        said = last_line(folder / "generator.log")
        died = "" if measurement.died is None else f"the server {ended(measurement.died)} under load, and "
        raise LabError(f"{died}{trial.cell.tool} ended with exit code {measurement.generator_exit}{said}.", exit_code=1)
    probe = read_probe(folder / "probe.parquet")
    loads = []
    for number, each in enumerate(measurement.loads, start=1):
        beside = probe and probe.only(number - 1)
        by_itself = without_probe(each, beside)
        loads.append(read_load(run, trial, number, by_itself, beside, salvage=salvage, threads=threads))
    windows = tuple(_window(each, load) for each, load in zip(measurement.loads, loads, strict=True))
    raw = read_usage(folder / "resources.parquet", measurement, windows) | read_hosts(folder, measurement, windows)
    return _Seen(measurement, tuple(loads), windows, raw, probe)


def _window(measurement: Measurement, load: LoadOfTrial) -> Window:
    """Return when a load was by the monotonic clock; what is sampled ends with its generator at the latest."""
    # Both clocks were read at the same instant; a load is short enough for their drift not to matter.
    begin_ns = measurement.load_started_mono_ns + load.begin_wall_ns - measurement.load_started_wall_ns
    end_s = min(load.duration_s, (measurement.load_ended_mono_ns - begin_ns) / 1e9)
    return Window(begin_ns, end_s, measurement.load_started_mono_ns, measurement.load_ended_mono_ns)


def _digest(run: RunFolder, trial: Trial, seen: _Seen, left_out: LeftOut) -> Digest:
    """Sum up the slices that count, and judge them; every slice must keep the invariants."""
    measurement, cell = seen.measurement, trial.cell
    every = range(len(seen.loads))
    # A server that died may have no slice but in places that are left out; its trial has failed anyway.
    kept = [at for at in every if not measurement.slices or at + 1 not in left_out.places] or list(every)
    load = together(run, trial, [(at + 1, seen.loads[at]) for at in kept])
    windows = [seen.windows[at] for at in kept]
    probed = probe_percentiles(seen.probe, run.tables / "probe" / f"{trial.trial_id}.parquet", windows)
    raw = since(seen.raw, seen.windows[0], windows[0])
    answered = load.answered + int(probed.get("probe_requests") or 0)
    usage = measure_usage(raw, part(run, "resources", trial.trial_id), measurement, windows, answered)
    metrics = {**load.metrics, **usage.metrics, **probed, "generator_ceiling_rps": measurement.generator_ceiling_rps}
    metrics |= _of_session(run, trial, seen, kept)
    if cell.workload not in OWN:
        lasted_s = sum(window.seconds for window in windows)
        metrics["others_cpu_mean_pct"] = _others_pct(seen, cell, usage.counters, lasted_s)
    if cell.rates_rps:
        metrics["sustained"] = not (metrics["dropped"] or metrics["failed"] or metrics.get("checks_failed"))
    if cell.objective is not None:
        metrics["objective_kept"] = Objective.parse(cell.objective).kept(metrics)
    if measurement.database is not None:
        metrics["inserts"] = load.sent.ok
        uses = [use for at in kept if (use := measurement.loads[at].database) is not None]
        metrics["rows_inserted"] = sum(use.after.rows - use.before.rows for use in uses)
    checks = (*_checks(seen, load), *usage.checks)
    if seen.probe is not None:
        checks += (reconcile.probe_schedule(late_share(seen.probe, windows)),)
    evident = evidence(cell, measurement, metrics, load.mode)
    taker = disturbance(evident)
    taken = f"disturbed: {taker} away" if taker else left_out.taken
    verdict = judge(evident)
    if _limited(cell):
        metrics |= dict.fromkeys(name for name in metrics if name.startswith(TIMES))
        part(run, "latency", trial.trial_id).unlink()
    return Digest({name: _finite(value) for name, value in metrics.items()}, checks, verdict, taken, load.mode)


TIMES = ("latency_", "iteration_mean_ms", "wrk_reported_", "probe_p")
"""Columns that are empty where a server was held back by a quota of the lab's: it waited for its next period."""


def _checks(seen: _Seen, load: LoadOfTrial) -> tuple[Check, ...]:
    """Return the invariants of all slices: each name once, and what each slice that breaks it says."""
    measurement = seen.measurement
    if not measurement.slices:
        return (*load.checks, *reconcile.database_checks(load.sent, measurement), reconcile.clock(measurement))
    by_name: dict[str, list[Check]] = {}
    for each, slice_load in zip(measurement.loads, seen.loads, strict=True):
        for check in (*slice_load.checks, *reconcile.database_checks(slice_load.sent, each), reconcile.clock(each)):
            by_name.setdefault(check.name, []).append(check)
    sent = [(slice_load.sent.ok + slice_load.sent.refused, slice_load.sent.lost) for slice_load in seen.loads]
    return (*(_of_slices(name, checks) for name, checks in by_name.items()), *reconcile.whole(sent, measurement))


def _of_slices(name: str, checks: Sequence[Check]) -> Check:
    broken = [f"slice {number}: {check.detail}" for number, check in enumerate(checks, start=1) if not check.ok]
    return Check(name, not broken, "; ".join(broken) or f"in all {len(checks)} slices, such as: {checks[0].detail}")


def _of_session(run: RunFolder, trial: Trial, seen: _Seen, kept: Sequence[int]) -> Metrics:
    """Write the trial's rows of the table of slices, and return how many it has, and how many count."""
    if not seen.measurement.slices:
        return {}
    rows = []
    for at, (each, load, window) in enumerate(zip(seen.measurement.slices, seen.loads, seen.windows, strict=True)):
        counters = stitched(since(seen.raw, seen.windows[0], window), [window])
        requests = load.answered + (0 if seen.probe is None else len(seen.probe.only(at).status))
        row = {
            "trial_id": trial.trial_id,
            "session": trial.session,
            "place": each.place,
            "position": each.position,
            "kept": at in kept,
            "duration_s": load.duration_s,
            **{name: load.metrics.get(name) for name in ("requests", "failed", "dropped", "rps")},
            **used(counters, window.seconds, requests),
            "others_cpu_mean_pct": _others_pct(seen, trial.cell, counters, window.seconds),
        }
        rows.append({name: _finite(value) for name, value in row.items()})
    path = part(run, "slices", trial.trial_id)
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_of("slices")), temporary, compression="zstd")
    return {"slices": len(rows), "slices_kept": len(kept)}


def _finite(value: float | int | None) -> float | int | None:
    """NaN and infinities have no place in JSON: they become null."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
