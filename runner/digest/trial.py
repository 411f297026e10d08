"""Digest one trial: turn its raw files into tables, metrics, checks and a verdict."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest import reconcile
from runner.digest.loads import (
    LeftOut,
    LoadOfTrial,
    Metrics,
    left_out_places,
    part,
    read_load,
    together,
)
from runner.digest.probe import (
    ProbeSamples,
    late_share,
    probe_percentiles,
    read_probe,
    without_probe,
)
from runner.digest.resources import Counter, Window, rates, stitched, with_edges
from runner.digest.spent import footprint, spent_per_request
from runner.digest.usage import (
    evidence,
    limited,
    measure_usage,
    others_pct,
    others_share,
    read_usage,
    used,
)
from runner.digest.verdict import disturbance, judge
from runner.digest.written import CROSSED, read_written_load
from runner.measurement import Measurement, ended
from runner.model import Blame, Check, LabError, Trial
from runner.planning.search import Objective
from runner.served import served_rps_of
from runner.shapes import Search
from runner.store import RunFolder, last_line, raw_name, replacing
from runner.verdict.evidence import Columns, Verdict, columns_of
from runner.verdict.words import takers

T = TypeVar("T")


@dataclass(frozen=True)
class Digest:
    """Result of digesting one trial's raw files. A failed check is a result, not an exception."""

    metrics: Metrics
    checks: tuple[Check, ...]
    verdict: Verdict
    taken: str | None = None
    """Text that says who took so much CPU time that the trial must be repeated.

    None if the trial need not be repeated for this reason.
    """
    mode: str | None = None
    """Observed use of the load's connections: `keepalive`, `close` or `mixed`."""

    @property
    def evidence(self) -> Columns:
        """The verdict's evidence, by column of `trials.parquet`.

        Values that JSON cannot represent are None.
        """
        columns = columns_of(self.verdict.evidence)
        return {name: finite(value) for name, value in columns.items()}

    @property
    def broken(self) -> str | None:
        """A text that names the broken invariants; None if no invariant is broken."""
        failed = [f"{check.name} ({check.detail})" for check in self.checks if not check.ok]
        return f"invalid: {'; '.join(failed)}" if failed else None

    @property
    def restless(self) -> bool:
        """True if the server was busy while other servers of its session were loaded."""
        return Blame.REST in self._blamed

    @property
    def disturbed(self) -> bool:
        """True if the machine disturbed the trial.

        Lost packets, a silent host and a clock that was set always disturb the trial. Four other
        faults count only if the trial breaks no invariant by its own fault: CPU time taken away,
        late sampling or probing, a server that was not idle between its slices, and a process that
        could run on CPUs that it was not given.
        """
        if Blame.MACHINE in self._blamed:
            return True
        if Blame.TRIAL in self._blamed:
            return False
        return bool(self._blamed) or self.taken is not None

    @property
    def _blamed(self) -> set[Blame]:
        """The blames of all broken invariants."""
        return {check.blame for check in self.checks if not check.ok}


TIMES = ("latency_", "first_byte_", "iteration_mean_ms", "wrk_reported_", "probe_p")
"""A column whose name begins with one of these texts stays empty under a CPU quota of the lab.

Under a quota for server or database, the times in these columns would include the time of waiting
until the next period of the quota begins.
"""


@dataclass(frozen=True)
class _Counters:
    """Counters of some slices, by subject.

    Times are in seconds since the first of these slices began.
    """

    raw: Mapping[str, Counter]
    """The counters as they were read, including the samples from between the slices."""
    of_slices: Mapping[str, Counter]
    """The counters within the slices, as if there were no pauses between the slices."""


@dataclass(frozen=True)
class _Seen:
    """The data of all slices of a trial, also of slices that `_digest` leaves out later."""

    trial: Trial
    measurement: Measurement
    loads: tuple[LoadOfTrial, ...]
    windows: tuple[Window, ...]
    raw: Mapping[str, Counter]  # times in seconds since the first load began
    probe: ProbeSamples | None

    def counters(self, slices: Sequence[int]) -> _Counters:
        """Return the counters of some slices.

        `slices` has the numbers of these slices, counted from 0.
        """
        windows = [self.windows[at] for at in slices]
        apart_s = (windows[0].begin_mono_ns - self.windows[0].begin_mono_ns) / 1e9
        raw = {
            subject: replace(counter, t_s=counter.t_s - apart_s)
            for subject, counter in self.raw.items()
        }
        is_continued = self.measurement.edges_continued
        if self.measurement.slices:
            return _Counters(raw, stitched(raw, windows, edges_continued=is_continued))
        return _Counters(raw, with_edges(raw, windows[0]) if is_continued else raw)

    def takers(self) -> list[str]:
        """Return one text per slice, which says who took much CPU time away in the slice.

        The text names the hypervisor, other programs, or both. If little CPU time was taken away,
        the text is empty. If the trial has no slices, return no texts.
        """
        taken = []
        for at, window in enumerate(self.windows if self.measurement.slices else ()):
            counters = self.counters([at]).of_slices
            taken_pct = others_pct(
                self.trial.cell, self.measurement, counters, window.seconds, self.probe
            )
            stolen = counters["host"].between(0.0, window.seconds, "steal_s") / window.seconds
            taken.append(
                takers(stolen / self.measurement.cpus, others_share(self.measurement, taken_pct))
            )
        return taken

    def checks(self) -> tuple[Check, ...]:
        """Return one check per invariant. The check covers all slices together.

        If an invariant is broken in some slices, the check fails, and its detail joins the details
        of these slices.
        """
        by_name: dict[str, list[Check]] = {}
        for each, load in zip(self.measurement.loads, self.loads, strict=True):
            for check in (
                *load.checks,
                *reconcile.database_checks(load.sent, each),
                reconcile.clock(each),
            ):
                by_name.setdefault(check.name, []).append(check)
        if not self.measurement.slices:
            return tuple(check for (check,) in by_name.values())
        whole = reconcile.whole([each.sent for each in self.loads], self.measurement)
        found = []
        for checks in by_name.values():
            broken = [
                f"slice {number}: {each.detail}"
                for number, each in enumerate(checks, start=1)
                if not each.ok
            ]
            said = "; ".join(broken) or (
                f"in all {len(checks)} slices, for example: {checks[0].detail}"
            )
            found.append(replace(checks[0], ok=not broken, detail=said))
        return (*found, *whole)


def digest_session(
    run: RunFolder,
    measured: Mapping[Trial, Measurement],
    *,
    salvage: bool = False,
    threads: int = 2,
) -> dict[Trial, Digest | LabError]:
    """Write the parts of the tables for a session's trials, or for a single trial.

    A part is a file with the rows that one trial adds to one table. Return the digest of each
    trial. If a raw file of a trial is missing or corrupt, the result has a LabError in place of the
    trial's digest. With `salvage`, the end of k6's samples may be missing, and the samples are
    used without checking their invariants.
    """
    seen = {
        trial: _or_error(_read, run, _settled(trial, each), each, salvage, threads)
        for trial, each in measured.items()
    }
    left_out = left_out_places([each.takers() for each in seen.values() if isinstance(each, _Seen)])
    return {
        trial: _or_error(_digest, run, each, left_out) if isinstance(each, _Seen) else each
        for trial, each in seen.items()
    }


def _settled(trial: Trial, measurement: Measurement) -> Trial:
    """Return the trial with the number of virtual users that the warm-up chose.

    If the warm-up chose no number, return the trial unchanged.
    """
    if measurement.users is None:
        return trial
    return replace(trial, cell=trial.cell.with_users(measurement.users))


def _or_error(function: Callable[..., T], *arguments: Any) -> T | LabError:
    """Return the function's result, or the LabError that it raises."""
    try:
        return function(*arguments)
    except LabError as error:
        return error


def _read(
    run: RunFolder, trial: Trial, measurement: Measurement, salvage: bool, threads: int
) -> _Seen:
    """Digest the generator's files of each slice, and read the files of sampler and probe."""
    folder = run.trial(trial.trial_id)
    ends = [
        (f" of generator {part.number}", part.number, part.generator_exit)
        for part in measurement.parts
    ]
    fine = (0, CROSSED) if measurement.as_written else (0,)
    for whose, number, code in [*ends, ("", 1, measurement.generator_exit)]:
        if code not in fine and not salvage:
            said = last_line(folder / raw_name("generator.log", None, number))
            died = (
                ""
                if measurement.died is None
                else f"the server {ended(measurement.died)} under load, and "
            )
            raise LabError(
                f"{died}{trial.cell.tool}{whose} ended with exit code {code}{said}.", exit_code=1
            )
    probe = read_probe(folder / "probe.parquet")
    loads = []
    windows = []
    for number, each in enumerate(measurement.loads, start=1):
        beside = probe and probe.only(number - 1)
        by_itself = without_probe(each, beside)
        how: dict[str, Any] = {"salvage": salvage, "threads": threads}
        if measurement.as_written:
            load = read_written_load(run, trial, by_itself, beside, **how)
        else:
            load = read_load(run, trial, number, by_itself, beside, **how)
        loads.append(load)
        # Convert the start of the load from the wall clock to the monotonic clock. Both clocks were
        # read when the generator started, and they hardly drift apart during a load.
        begin_ns = each.load_started_mono_ns + load.begin_wall_ns - each.load_started_wall_ns
        # The load ends after its duration, but at the latest when its generator ends.
        end_s = min(load.metrics["duration_s"], (each.load_ended_mono_ns - begin_ns) / 1e9)
        windows.append(Window(begin_ns, end_s, each.load_started_mono_ns, each.load_ended_mono_ns))
    raw = read_usage(folder, measurement, windows)
    return _Seen(trial, measurement, tuple(loads), tuple(windows), raw, probe)


def _digest(run: RunFolder, seen: _Seen, left_out: LeftOut) -> Digest:
    """Combine the slices that are not left out into the trial's digest, with a verdict.

    The invariants are checked in every slice, also in slices that are left out.
    """
    trial = seen.trial
    measurement = seen.measurement
    cell = seen.trial.cell
    every = range(len(seen.loads))
    # `left_out.places` has the numbers, from 1, of the slices that are left out. If a server died
    # early, all of its slices may be among them. In this case all of its slices are used, which
    # does no harm, because the trial has failed anyway.
    kept = [at for at in every if not measurement.slices or at + 1 not in left_out.places]
    kept = kept or list(every)
    load = together(run, trial, [(at + 1, seen.loads[at]) for at in kept])
    windows = [seen.windows[at] for at in kept]
    lasted_s = sum(window.seconds for window in windows)
    probed = probe_percentiles(
        seen.probe, run.tables / "probe" / f"{trial.trial_id}.parquet", windows
    )
    of_kept = seen.counters(kept)
    counters = of_kept.of_slices
    _write(part(run, "resources", trial.trial_id), rates(trial.trial_id, counters))
    requests = load.answered + int(probed.get("probe_requests") or 0)
    usage = measure_usage(counters, measurement, lasted_s, requests)
    metrics = {
        **load.metrics,
        **usage,
        **probed,
        "generator_ceiling_rps": measurement.generator_ceiling_rps,
    }
    metrics["served_rps"] = served_rps_of(metrics)
    metrics["probe_hz"] = measurement.probe_hz
    metrics["vus_allowed"] = measurement.users
    if measurement.slices:
        _write(part(run, "slices", trial.trial_id), _slices(seen, kept))
        metrics |= {"slices": len(seen.loads), "slices_kept": len(kept)}
    metrics |= footprint(measurement)
    metrics |= spent_per_request([measurement.loads[at] for at in kept], requests)
    metrics["others_cpu_mean_pct"] = others_pct(cell, measurement, counters, lasted_s, seen.probe)
    if cell.is_open:
        metrics["sustained"] = not (
            metrics["dropped"] or metrics["failed"] or metrics.get("checks_failed")
        )
    if isinstance(cell.shape, Search):
        metrics["objective_kept"] = Objective.parse(cell.shape.objective).kept(metrics)
    if measurement.database is not None:
        metrics["inserts"] = load.sent.ok
        uses = [use for at in kept if (use := measurement.loads[at].database) is not None]
        metrics["rows_inserted"] = sum(use.after.rows - use.before.rows for use in uses)
    checks = (
        *seen.checks(),
        *reconcile.sample_checks(measurement, metrics, of_kept.raw, counters, windows),
    )
    checks += (reconcile.succeeded(load.sent),)
    if seen.probe is not None:
        checks += (reconcile.probe_schedule(late_share(seen.probe, windows, measurement.probe_hz)),)
    evident = evidence(cell, measurement, metrics, load.mode)
    taker = disturbance(evident)
    taken = f"disturbed: {taker} away" if taker else left_out.why_repeat
    if limited(cell):
        metrics |= dict.fromkeys(name for name in metrics if name.startswith(TIMES))
        part(run, "latency", trial.trial_id).unlink()
    metrics = {name: finite(value) for name, value in metrics.items()}
    return Digest(metrics, checks, judge(evident), taken, load.mode)


def _slices(seen: _Seen, kept: Sequence[int]) -> pa.Table:
    """Return the trial's rows of the table of slices: one row per slice.

    `kept` has the numbers, counted from 0, of the slices that are not left out.
    """
    rows = []
    for at, (each, load) in enumerate(zip(seen.measurement.slices, seen.loads, strict=True)):
        counters = seen.counters([at]).of_slices
        lasted_s = seen.windows[at].seconds
        window = seen.windows[at]
        probed = 0 if seen.probe is None else int(seen.probe.due_within(window).sum())
        requests = load.answered + probed
        row = {
            "trial_id": seen.trial.trial_id,
            "session": seen.trial.session,
            "place": each.place,
            "position": each.position,
            "kept": at in kept,
            "begin_mono_ns": seen.windows[at].begin_mono_ns,
            "answered": requests,
            **{
                name: load.metrics.get(name)
                for name in ("duration_s", "requests", "failed", "dropped", "rps")
            },
            **used(counters, lasted_s, requests),
            "others_cpu_mean_pct": others_pct(
                seen.trial.cell, seen.measurement, counters, lasted_s, seen.probe
            ),
        }
        rows.append({name: finite(value) for name, value in row.items()})
    return pa.Table.from_pylist(rows, schema=schema_of("slices"))


def _write(path: Path, table: pa.Table) -> None:
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON cannot represent, by None."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
