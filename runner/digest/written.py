"""Read a load that is defined by the options of a user's script (`bench run --as-written`).

The lab does not know how many requests such a load should have, so it compares k6's samples only
with k6's summary. The trial's rates and latencies do not include the requests of setup() and
teardown(). The table `endpoints` has separate rows for these requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import duckdb

from runner.digest import reconcile
from runner.digest.endpoints import write_script_tables
from runner.digest.invariants import Invariant
from runner.digest.k6 import GeneratorSummary, RequestNumbers, digest_requests, read_summary
from runner.digest.k6_raw import spool_points
from runner.digest.load_model import LoadSeen, see_load
from runner.digest.loads import (
    K6_SAMPLES,
    LoadOfTrial,
    load_tables,
    metrics_of_points,
    parts_of_script,
)
from runner.digest.probe import ProbeSamples, reopened_share
from runner.digest.thresholds import UNWATCHED, StatedByK6, Watched, read_stated, write_watched
from runner.digest.watched import Watch
from runner.measurement import Measurement
from runner.model import Check, Trial
from runner.store import RunFolder, raw_name

SUMMARY = "k6-summary.json"
CROSSED = 99
"""Exit code of k6 if a load did not keep a threshold (errext/exitcodes in k6's source).

The lab treats such a load as a result, and not as an error.
"""


def read_written_load(
    run: RunFolder,
    trial: Trial,
    measurement: Measurement,
    probe: ProbeSamples | None,
    *,
    salvage: bool,
    threads: int = 2,
) -> LoadOfTrial:
    """Read a trial's load, write the trial's parts of the tables, and check the load's invariants.

    A part is a file with the trial's rows of one table. With `salvage` the end of k6's samples may
    be missing, and no invariant is checked. Raise LabError if a file is missing or corrupt.
    """
    folder = run.trial(trial.trial_id)
    cell = trial.cell
    summary_path = folder / raw_name(SUMMARY, None)
    stated = StatedByK6() if salvage else read_stated(summary_path)
    watch = Watch(UNWATCHED, stated.selections)
    seen: list[LoadSeen | None] = []

    def look(database: duckdb.DuckDBPyConnection, points: RequestNumbers) -> None:
        seen.append(see_load(database, points))
        parts = parts_of_script(run, trial)
        write_script_tables(parts, trial, database, points)
        seconds = (points.last_end_ns - points.first_start_ns) / 1e9
        write_watched(parts, trial, Watched(database, watch, points, stated, seconds), None)

    points = digest_requests(
        folder / raw_name(K6_SAMPLES, None),
        load_tables(run, trial, None).values(),
        trial_id=trial.trial_id,
        mode=cell.mode,
        scratch=run.tables / "parts",
        held=reconcile.may_hold(cell, reopened_share(probe)),
        threads=threads,
        spool=partial(
            spool_points,
            salvage=salvage,
            server_port=measurement.port if measurement.also_ports else None,
            watch=watch,
            set_up_apart=True,
        ),
        look=look,
    )
    metrics = metrics_of_points(points, cell, None)
    metrics["dropped"] = points.dropped_iterations
    if measurement.also_ports:
        metrics["elsewhere"] = points.elsewhere - points.set_up
    checks: tuple[Check, ...] = ()
    if not salvage:
        summary = read_summary(summary_path)
        if summary.checks:
            metrics |= {"checks": summary.checks, "checks_failed": summary.checks_failed}
        checks = tuple(_checks(trial, points, summary, measurement, seen[0]))
    ok = points.requests - points.failed
    return LoadOfTrial(
        metrics,
        checks,
        points.first_start_ns,
        reconcile.Sent(
            ok=ok,
            refused=points.with_status - ok,
            lost=points.requests - points.with_status,
            at_once=cell.sockets,
        ),
        points.mode,
        points.answered_by_end,
    )


def _checks(
    trial: Trial,
    points: RequestNumbers,
    summary: GeneratorSummary,
    measurement: Measurement,
    seen: LoadSeen | None,
) -> Iterator[Check]:
    """Yield the checks of a load whose size the lab did not choose."""
    yield from reconcile.summary_checks(points, summary)
    yield from reconcile.own_checks(trial.cell, points, measurement)
    words = "no iteration was completed" if seen is None else " ".join(seen.words())
    yield Invariant.LOAD_SEEN.check(True, words)
