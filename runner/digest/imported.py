"""Digest a k6 file that somebody else recorded. The file becomes one trial of an imported run.

The lab itself measured nothing while the file was recorded, so the generator's CPU use is unknown.
The server's CPU use is known only if another tool sampled the CPU use, and the tool's samples were
imported, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from runner.digest import reconcile
from runner.digest.endpoints import write_script_tables
from runner.digest.imported_usage import ServerUse, no_rows, read_use
from runner.digest.invariants import Invariant
from runner.digest.k6 import (
    GeneratorSummary,
    NoRequestsError,
    RequestNumbers,
    digest_requests,
    read_summary,
)
from runner.digest.k6_csv import TAGS as CSV_TAGS
from runner.digest.k6_csv import csv_lines
from runner.digest.k6_raw import Tally, spool_points
from runner.digest.labels import MOST_LABELS
from runner.digest.load_model import LoadSeen, see_load
from runner.digest.loads import K6_TABLES, metrics_of_points, part, parts_of_script
from runner.digest.thresholds import (
    UNWATCHED,
    StatedByK6,
    Watched,
    read_stated,
    write_watched,
)
from runner.digest.trial import Digest, finite
from runner.digest.verdict import judge
from runner.digest.watched import Watch
from runner.model import OWN_SCRIPT, Cell, Check, LabError, Trial
from runner.shapes import ForTime
from runner.store import IMPORTED_RAW, RunFolder, replacing
from runner.verdict.evidence import Evidence

SUMMARY = "k6-summary.json"  # name of the file with k6's summary, in the folder of the samples


@dataclass(frozen=True)
class ImportedDigest:
    """The digest of an imported trial, the trial itself, and remarks for readers."""

    trial: Trial
    """The trial. If the samples show the shape of the load, the trial's cell has this shape."""
    digest: Digest
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Seen:
    """The load that the samples show, and the imported trial."""

    load: LoadSeen | None
    """Load that the samples show; None if the samples have no completed iteration."""
    trial: Trial
    """The imported trial. If `load` is not None, the trial's cell has the shape of this load."""


def cell_of(server: str) -> Cell:
    """Return the cell of an imported trial whose file has not been read yet.

    The load of this cell is a placeholder, because only the file shows the load.
    """
    return Cell(
        server=server,
        language="unknown",
        framework="unknown",
        tier="realistic",
        workload=OWN_SCRIPT,
        tool="k6",
        mode="keepalive",
        path="/",
        shape=ForTime(1, 1.0),
        warmup_s=0.0,
    )


def digest_imported(
    run: RunFolder,
    trial: Trial,
    *,
    threads: int = 2,
    progress: Callable[[int], None] | None = None,
) -> ImportedDigest:
    """Write an imported trial's parts of the tables, and return the trial's digest.

    A part is a file with the trial's rows of one table. If the end of the raw file is missing, the
    rest of the raw file is digested. `progress` is called with the number of bytes read so far.
    Raise LabError if the file is missing or was not written by k6.
    """
    raw = samples_of(run.trial(trial.trial_id))
    is_csv = ".csv" in raw.name
    opened = csv_lines if is_csv else None
    stated = _stated(run, trial)
    watch = Watch(UNWATCHED, stated.selections)
    seen: list[_Seen] = []

    def look(database: duckdb.DuckDBPyConnection, points: RequestNumbers) -> None:
        load = see_load(database, points)
        cell = trial.cell if load is None else replace(trial.cell, shape=load.shape)
        seen.append(_Seen(load, replace(trial, cell=cell)))
        write_script_tables(parts_of_script(run, trial), seen[0].trial, database, points)
        seconds = (points.last_end_ns - points.first_start_ns) / 1e9
        watched = Watched(database, watch, points, stated, seconds)
        _write_watched(run, seen[0].trial, watched, is_csv)

    rest: list[Watched] = []

    def look_at_rest(database: duckdb.DuckDBPyConnection, tally: Tally) -> None:
        ((seconds,),) = database.sql(_ITERATIONS_S).fetchall()
        rest.append(Watched(database, watch, tally, stated, seconds))
        _write_watched(run, trial, rest[0], is_csv)

    names = {table: part(run, table, trial.trial_id) for table in K6_TABLES}
    names["requests"] = run.tables / "requests" / f"{trial.trial_id}.parquet"
    try:
        points = digest_requests(
            raw,
            names.values(),
            trial_id=trial.trial_id,
            mode="keepalive",
            scratch=run.tables / "parts",
            held=None,
            threads=threads,
            spool=partial(
                spool_points, salvage=True, progress=progress, opened=opened, watch=watch
            ),
            look=look,
            look_at_rest=look_at_rest,
        )
    except NoRequestsError:
        if not watch.numbers:
            raise
        return _without_requests(trial, rest[0].tally)
    load = seen[0].load
    trial = seen[0].trial
    use = read_use(run.trial(trial.trial_id), points)
    _write_resources(run, trial, use)
    summary = _summary(run, trial)
    metrics = metrics_of_points(points, trial.cell, None)
    metrics["dropped"] = points.dropped_iterations
    if use is not None:
        metrics |= use.metrics(points.requests)
    passed, failed = _checks_counted(points)
    if passed + failed:
        metrics |= {"checks": passed + failed, "checks_failed": failed}
    if trial.cell.is_open:
        metrics["sustained"] = not (points.dropped_iterations or points.failed or failed)
    sent = reconcile.Sent(
        ok=points.requests - points.failed,
        refused=points.with_status - (points.requests - points.failed),
        lost=points.requests - points.with_status,
        at_once=trial.cell.sockets,
    )
    checks = (*_held_against(summary, points), reconcile.succeeded(sent))
    verdict = judge(_evidence(trial.cell, points, use, failed / max(1, passed + failed)))
    known = {name: finite(value) for name, value in metrics.items()}
    digest = Digest(known, checks, verdict, mode=points.mode)
    return ImportedDigest(trial, digest, tuple(_remarks(points, load, use, summary)))


_NO_URL = {("", "", "")}
"""The method, name and URL of labels that do not count as endpoints: all three are empty.

The labels of the script's checks have these three empty texts, because a check belongs to no
request.
"""
_ITERATIONS_S = """
    SELECT coalesce(max(end_ns) - min(end_ns - (length_ms * 1e6)::BIGINT), 0) / 1e9 FROM iterations
"""


def _write_watched(run: RunFolder, trial: Trial, watched: Watched, is_csv: bool) -> None:
    """Write a trial's parts of the tables `thresholds` and `metrics`."""
    write_watched(parts_of_script(run, trial), trial, watched, CSV_TAGS if is_csv else None)


def _without_requests(trial: Trial, tally: Tally) -> ImportedDigest:
    """Return the digest of a file without HTTP requests.

    The digest has no metrics. Its only check is that of the invariant HAS_REQUESTS, which fails.
    """
    own = [name for name in tally.points if name not in UNWATCHED]
    words = ", ".join(f"{name} ({tally.points[name]:,})" for name in sorted(own)[:8])
    said = (
        "the file has no HTTP request, and the lab's figures are about HTTP requests; the "
        f"page of endpoints shows the file's {tally.iterations:,} iterations and its other "
        f"metrics: {words}"
    )
    none_known = Evidence(None, None, None, disjoint=True, unit="iterations")
    check = Invariant.HAS_REQUESTS.check(False, said)
    digest = Digest({}, (check,), judge(none_known))
    return ImportedDigest(trial, digest, (f"T{said[1:]}.",))


def samples_of(folder: Path) -> Path:
    """Return the raw file with an imported trial's samples; raise LabError if there is none."""
    for name in IMPORTED_RAW:
        if (folder / name).is_file():
            return folder / name
    raise LabError(f"{folder} has no samples of k6: import the file again.", exit_code=1)


def _summary(run: RunFolder, trial: Trial) -> GeneratorSummary | None:
    path = run.trial(trial.trial_id) / SUMMARY
    return read_summary(path) if path.is_file() else None


def _stated(run: RunFolder, trial: Trial) -> StatedByK6:
    """Return the thresholds in k6's summary and their results.

    If the trial has no summary, return a StatedByK6 without thresholds.
    """
    path = run.trial(trial.trial_id) / SUMMARY
    return read_stated(path) if path.is_file() else StatedByK6()


def _checks_counted(points: RequestNumbers) -> tuple[int, int]:
    """Return the number of times that a check of the script passed, and that a check failed."""
    results = points.checked.values()
    return sum(each.passes for each in results), sum(each.fails for each in results)


def _held_against(summary: GeneratorSummary | None, points: RequestNumbers) -> list[Check]:
    """Compare the samples with k6's own summary, and return the results as checks.

    Return no checks if there is no summary, or if the end of the file of samples is missing.
    """
    if summary is None or points.lines_lost:
        return []
    return list(reconcile.summary_checks(points, summary))


def _evidence(
    cell: Cell, points: RequestNumbers, use: ServerUse | None, checks_failed_share: float
) -> Evidence:
    """Return the evidence for the verdict.

    The server's CPU use may be known, but the generator's CPU use is always unknown.
    """
    return Evidence(
        server_used_cores=None if use is None else use.mean_pct / 100,
        server_share=None,
        generator_share=None,
        generator_peak_share=None,
        disjoint=True,
        offered_rps=cell.last_rate_rps,
        dropped=points.dropped_iterations,
        throttled_share=None,
        failed_share=points.failed / points.requests,
        checks_failed_share=checks_failed_share,
        unit="iterations",
    )


def _remarks(
    points: RequestNumbers,
    load: LoadSeen | None,
    use: ServerUse | None,
    summary: GeneratorSummary | None,
) -> list[str]:
    """Return sentences with facts that a reader needs to understand the trial's numbers."""
    said = []
    if points.lines_lost:
        said.append(
            "The end of the file is missing, so all numbers are about its first "
            f"{points.lines:,} lines."
        )
    scenarios = sorted({label.scenario for label in points.labels if label.scenario})
    if len(scenarios) > 1:
        said.append(
            f"The file has {len(scenarios)} scenarios ({', '.join(scenarios[:8])}). The "
            "report describes the load of all scenarios together, which may be closed and "
            "open at the same time."
        )
    endpoints = len({(label.method, label.name, label.url) for label in points.labels} - _NO_URL)
    if endpoints > 1:
        number = f"{endpoints:,}" if endpoints < MOST_LABELS else f"more than {MOST_LABELS:,}"
        said.append(
            f"The percentiles of the whole load mix the response times of {number} "
            "endpoints: the page of endpoints has the percentiles of each endpoint."
        )
    if load is not None:
        said += load.words()
        if load.whole_seconds:
            said.append(
                "The file's times are whole seconds, so rates are uncertain by up to "
                f"{100 / load.seconds:.0f} %, and nothing shorter than a second can be "
                "seen: set K6_CSV_TIME_FORMAT=unix_micro when you run k6."
            )
    if use is not None:
        said += use.words
    if summary is not None and not points.lines_lost:
        said.append("The counts and percentiles of the samples were checked against k6's summary.")
    return said


def _write_resources(run: RunFolder, trial: Trial, use: ServerUse | None) -> None:
    """Write the trial's part of the table `resources`.

    If there are no samples of the server's CPU use, the part has no rows.
    """
    rows = no_rows() if use is None else use.rows(trial.trial_id)
    with replacing(part(run, "resources", trial.trial_id)) as temporary:
        pq.write_table(rows, temporary)
