"""k6's raw points -> one row a request: read by DuckDB in parallel, paired by order, spooled to disk.

A request's points are consecutive lines (see k6_damage.REQUEST_METRICS), and DuckDB keeps the order of lines. So the
request metrics, taken out of the stream, must repeat in exactly their order; anything else is damage, never a guess.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runner.digest.k6_damage import REQUEST_METRICS, DamageError, LineReader, check_stream, is_gzip
from runner.digest.spool import ITERATIONS, REQUESTS

_POINTS = len(REQUEST_METRICS)
_OTHERS = (
    "http_req_failed",
    "iterations",
    "iteration_duration",
    "dropped_iterations",
    "data_sent",
    "data_received",
    "vus",
    "vus_max",
)
_KNOWN = REQUEST_METRICS + _OTHERS
_ITERATION = _KNOWN.index("iteration_duration")
_UNKNOWN = 255
_METRIC, _BAD = "/metric", "/bad"
"""What column `odd` says of a line that announces a metric, or is none of k6's; a user's metric has its name there.

No metric can have these names: k6 allows letters, digits and underscores.
"""

_SUSPECT = (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.IOException)
"""DuckDB's errors about what it reads; others, such as a lack of memory, say nothing about the file."""

_BATCH = 4 * 122_880
"""Lines a batch: enough for Parquet row groups of a good size, little enough for memory."""


@dataclass(frozen=True)
class Spools:
    """Files for what is one row a request (REQUESTS) and one a completed iteration (ITERATIONS)."""

    requests: Path
    iterations: Path

    @classmethod
    def within(cls, folder: Path) -> Spools:
        """Return both in a folder that exists."""
        return cls(folder / "requests.arrow", folder / "iterations.arrow")


@dataclass
class Tally:
    """What is counted while the points pass by."""

    points: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    bad_lines: int = 0
    requests: int = 0
    failed_points: int = 0
    iterations: int = 0
    dropped: int = 0
    incomplete: int = 0
    """Points of a last request that is not complete."""


def read_points(raw: Path, spools: Spools, *, memory_mb: int, threads: int, cut: bool = False) -> Tally:
    """Write one row a request and one an iteration to disk, and return the counts.

    DamageError names the line of the first fault. `cut` accepts an incomplete last request and leaves it out. Memory
    stays constant; DuckDB gets `memory_mb`, and spills beside the spools.
    """
    with ThreadPoolExecutor(1) as pool:
        checking = pool.submit(check_stream, raw)
        problem = None
        tally = Tally()
        try:
            _pair(raw, spools, tally, memory_mb, threads)
        except (*_SUSPECT, pa.ArrowInvalid, _MisalignedError) as error:
            problem = error
        stream = checking.result()
    if stream.damage is not None:
        if tally.bad_lines > 1 or isinstance(problem, _MisalignedError):
            _raise_earlier(raw)
        raise stream.damage
    if problem or tally.bad_lines or tally.lines != stream.lines or (tally.incomplete and not cut):
        _explain(raw, tally, problem, cut)
    return tally


class _MisalignedError(Exception):
    """The points of a request do not follow each other as k6 writes them."""


def _raise_earlier(raw: Path) -> None:
    """Raise the first fault of a file whose stream is damaged further on, if there is one."""
    with suppress(EOFError, zlib.error):
        LineReader().read(raw)


def _explain(raw: Path, tally: Tally, problem: Exception | None, cut: bool) -> None:
    """Find the line at fault with the slow reader, or accept infinite values of users' own metrics."""
    reader = LineReader()
    try:
        reader.read(raw)
    except DamageError as damage:
        if not (cut and damage.cut):
            raise
    infinite = reader.infinite.total()
    if problem is not None or tally.bad_lines != infinite or tally.lines != reader.number:
        why = str(problem).splitlines()[0] if problem else "DuckDB and the line reader disagree"
        raise DamageError(reader.number, f"the points cannot be read ({why})")
    tally.points.update(reader.infinite)


# --- reading ----------------------------------------------------------------------------------------------


def connect(scratch: Path, memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with its limits, spilling into `scratch`; it loads no extensions and prints nothing."""
    connection = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": str(scratch / "spill"),
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": True,
        }
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def _query() -> str:
    """One row a line. A cast to ENUM looks names up by hash: a CASE of names costs half as much as reading JSON."""
    known = ", ".join(f"'{name}'" for name in _KNOWN)
    return f"""
        SELECT coalesce(code, {_UNKNOWN})::UTINYINT AS code, value,
               CASE WHEN code IS NOT NULL AND type = 'Point' AND value IS NOT NULL AND time IS NOT NULL THEN NULL
                    WHEN type = 'Metric' AND metric IS NOT NULL THEN '{_METRIC}'
                    WHEN type = 'Point' AND value IS NOT NULL AND time IS NOT NULL AND metric <> ''
                        THEN metric
                    ELSE '{_BAD}' END AS odd,
               CASE WHEN code IN (0, {_POINTS - 1}, {_ITERATION}) THEN time END AS time,
               CASE WHEN code = 0 THEN tags.status END AS status,
               CASE WHEN code = 0 THEN tags.error_code END AS error_code
        FROM (SELECT enum_code(TRY_CAST(metric AS ENUM ({known}))) AS code, metric, type,
                     data.time AS time, data.value AS value, data.tags AS tags
              FROM read_json($raw, format = 'newline_delimited', ignore_errors = true,
                   compression = $compression,
                   columns = {{metric: 'VARCHAR', type: 'VARCHAR', data: 'STRUCT("time" VARCHAR,
                              "value" DOUBLE, tags STRUCT(status VARCHAR, error_code VARCHAR))'}}))
    """  # noqa: S608 - built of this module's constants only; the file's name is a bound parameter


def _batches(raw: Path, scratch: Path, memory_mb: int, threads: int) -> Iterator[Any]:
    """Yield Arrow batches of the query in the order of lines."""
    compression = "gzip" if is_gzip(raw) else "none"
    with connect(scratch, memory_mb, threads) as connection:
        points = connection.sql(_query(), params={"raw": str(raw), "compression": compression})
        # fetch_record_batch was renamed in DuckDB 1.5.
        stream = points.to_arrow_reader if hasattr(points, "to_arrow_reader") else points.fetch_record_batch
        yield from stream(_BATCH)


def _pair(raw: Path, spools: Spools, tally: Tally, memory_mb: int, threads: int) -> None:
    """Stream the file into the spools; points of a request that straddles two batches wait for the next."""
    waiting: Any = None
    with (
        pa.ipc.new_file(str(spools.requests), REQUESTS) as requests,
        pa.ipc.new_file(str(spools.iterations), ITERATIONS) as iterations,
    ):
        for batch in _batches(raw, spools.requests.parent, memory_mb, threads):
            points, ended = _count(batch, tally)
            iterations.write_batch(ended)
            if waiting is not None:
                points = pa.concat_batches([waiting, points])
            whole = points.num_rows // _POINTS * _POINTS
            waiting = points.slice(whole)
            if whole:
                requests.write_batch(_requests(points.slice(0, whole)))
                tally.requests += whole // _POINTS
    tally.incomplete = 0 if waiting is None else waiting.num_rows


def _count(batch: Any, tally: Tally) -> tuple[Any, Any]:
    """Add a batch to the counts; return its points of requests, and its iterations (ITERATIONS)."""
    codes = batch.column("code").to_numpy()
    values = batch.column("value").to_numpy(zero_copy_only=False)
    tally.lines += len(codes)
    odd = batch.column("odd")
    if odd.null_count < len(odd):
        for entry in pc.value_counts(odd.drop_null()).to_pylist():
            tally.points[entry["values"]] += entry["counts"]
        tally.bad_lines += tally.points.pop(_BAD, 0)
        tally.points.pop(_METRIC, 0)
        codes = np.where(odd.is_null().to_numpy(zero_copy_only=False), codes, _UNKNOWN).astype(np.uint8)
    counts = np.bincount(codes, minlength=len(_KNOWN))
    for code in np.flatnonzero(counts[: len(_KNOWN)]):
        tally.points[_KNOWN[code]] += int(counts[code])

    def of(metric: str) -> NDArray[np.float64]:
        return np.asarray(values[codes == _KNOWN.index(metric)], dtype=np.float64)

    tally.failed_points += int(of("http_req_failed").sum())
    tally.iterations += int(of("iterations").sum())
    tally.dropped += int(of("dropped_iterations").sum())
    ends = _wall_ns(batch.column("time").filter(pa.array(codes == _ITERATION)))
    ended = pa.record_batch([pa.array(ends), pa.array(of("iteration_duration"))], schema=ITERATIONS)
    return batch.filter(pa.array(codes < _POINTS)), ended


def _requests(points: Any) -> Any:
    """Turn the points of whole requests into REQUESTS; _MisalignedError where order, time or values are not k6's."""
    codes = points.column("code").to_numpy().reshape(-1, _POINTS)
    values = points.column("value").to_numpy(zero_copy_only=False).reshape(-1, _POINTS)
    if not (codes == np.arange(_POINTS, dtype=codes.dtype)).all():
        raise _MisalignedError("the points of a request are not in k6's order")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise _MisalignedError("a duration is negative or not finite")
    heads = pa.array(np.arange(0, points.num_rows, _POINTS))
    first = points.take(heads)
    last = points.column("time").take(pc.add(heads, _POINTS - 1))
    if not pc.all(pc.fill_null(pc.equal(first.column("time"), last), False)).as_py():
        raise _MisalignedError("the points of a request differ in time")
    ends = _wall_ns(first.column("time"))
    status = pc.cast(first.column("status"), pa.int16())
    if status.null_count:
        raise _MisalignedError("a request has no status tag")
    error_code = pc.fill_null(pc.cast(first.column("error_code"), pa.int16()), pa.scalar(0, pa.int16()))
    durations = [pa.array(np.ascontiguousarray(values[:, column])) for column in range(1, _POINTS)]
    return pa.record_batch([pa.array(ends), *durations, status, error_code], schema=REQUESTS)


def _wall_ns(times: Any) -> NDArray[np.int64]:
    """Return k6's time stamps as nanoseconds since the epoch."""
    return np.asarray(pc.cast(pc.cast(times, pa.timestamp("ns", "UTC")), pa.int64()).to_numpy(zero_copy_only=False))
