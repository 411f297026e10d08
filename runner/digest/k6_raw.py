"""A raw file of k6 (`--out json=FILE`, plain or .gz) -> one row per request on disk, or the line of its first fault.

The file is read once. Python inflates it, checks gzip's CRC and splits it into lines; DuckDB parses them in parallel
and keeps their order; NumPy puts the points of a request into one row of a Parquet file. So memory does not grow with
the file. `LineReader`, which is slow, reads a damaged file again to name the line of the fault.

A request's points are consecutive lines, because k6 writes one sample container at a time. So the request metrics,
taken out of all lines, must repeat in exactly their order; anything else is damage, never a guess.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

REQUEST_METRICS = (
    "http_reqs",
    "http_req_duration",
    "http_req_blocked",
    "http_req_connecting",
    "http_req_tls_handshaking",
    "http_req_sending",
    "http_req_waiting",
    "http_req_receiving",
)
"""The points of one request in the order of k6's Trail.SaveSamples (lib/netext/httpext/tracer.go).

http_req_failed follows only where the request has a responseCallback, so it takes no part in pairing.
"""
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
_USERS, _METRIC, _BAD = 253, 254, 255
"""Codes of lines, beside indices of _KNOWN: a point of a user's metric, a line that announces a metric, any other."""

REQUESTS = pa.schema(
    [
        ("end_ns", pa.int64()),
        *[(f"{part}_ms", pa.float64()) for part in ("duration", "blocked", "connecting", "tls")],
        *[(f"{part}_ms", pa.float64()) for part in ("sending", "waiting", "receiving")],
        ("status", pa.int16()),
        ("error_code", pa.int16()),
    ]
)
"""One row per request, in the file's order: wall-clock end and k6's durations; error_code 0 where there is none."""
ITERATIONS = pa.schema([("end_ns", pa.int64()), ("length_ms", pa.float64())])
"""One row per completed iteration: wall-clock end and iteration_duration."""
BATCH = 4 * 122_880
"""Lines per batch: enough for Parquet row groups of a good size, little enough for memory."""
_PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}

_CHUNK = 1 << 20
_LINE_LIMIT = 16 << 20
"""A line is longer only where a file is none of k6's."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_INFINITE = re.compile(rb'"value":[+-]Inf,"tags"')


class DamageError(Exception):
    """The raw file cannot be read as k6 wrote it: where and why; `cut` if only its end is missing."""

    def __init__(self, line: int, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.cut = cut


class _MisalignedError(Exception):
    """The points of a request do not follow each other as k6 writes them."""


@dataclass
class Tally:
    """What is counted while the lines pass by."""

    points: Counter[str] = field(default_factory=Counter)
    """Points by metric, those of users' metrics included."""
    lines: int = 0
    bad_lines: int = 0
    requests: int = 0
    iterations: int = 0
    dropped: int = 0
    late: int = 0
    """Requests that the generator began later than they were to be; k6 begins none late."""
    incomplete: int = 0
    """Points of a last request that is not complete."""
    lost: int = 0
    """Lines left out where the file's end was cut off, the torn one included; what was never written is not known."""


def spool_points(raw: Path, folder: Path, *, memory_mb: int, threads: int, salvage: bool = False) -> Tally:
    """Write requests.parquet (REQUESTS) and iterations.parquet (ITERATIONS) into `folder`, and return the counts.

    DamageError names the line of the first fault. With `salvage` a missing end is no fault, and its lines are `lost`.
    DuckDB gets `memory_mb`, and spills into `folder`.
    """
    tally, problem, lines = Tally(), None, _Lines(raw)
    try:
        with connect(folder, memory_mb, threads) as connection:
            connection.register("lines", pa.RecordBatchReader.from_batches(_LINE, iter(lines)))
            _pair(connection.sql(_POINTS_OF_LINES).to_arrow_reader(BATCH), folder, tally)
    except (OSError, pa.ArrowInvalid, _MisalignedError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        problem = str(error).splitlines()[0]
        # Whether the stream is whole explains more than a line; a thread of DuckDB may still be reading the one above.
        lines = _Lines(raw)
        deque(lines, maxlen=0)
    damage = lines.damage
    if damage is not None and not damage.cut:
        raise damage
    if problem or tally.bad_lines or tally.lines != lines.count:
        _explain(raw, tally, problem)
    tally.lost = tally.incomplete + (damage is not None)
    if damage is None and tally.incomplete:
        damage = DamageError(lines.count, "the points of the last request are incomplete", cut=True)
    if damage is not None and not salvage:
        raise damage
    if tally.requests == 0:
        raise damage or DamageError(lines.count, "there is no complete request up to here")
    return tally


def connect(folder: Path, memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with its limits, spilling into `folder`; it loads no extensions and prints nothing."""
    connection = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": True,
        }
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


def _explain(raw: Path, tally: Tally, problem: str | None) -> None:
    """Find the line at fault with the slow reader, or accept infinite values of users' metrics."""
    reader = LineReader()
    try:
        reader.read(raw)
    except DamageError as damage:
        if not damage.cut:
            raise
    if problem or tally.bad_lines != reader.infinite.total() or tally.lines != reader.number:
        raise DamageError(reader.number, f"the points cannot be read ({problem or 'two readers disagree'})")
    tally.points.update(reader.infinite)


# --- from the file to lines -------------------------------------------------------------------------------

_LINE = pa.schema([("line", pa.string())])


@dataclass
class _Lines:
    """The complete lines of a file as Arrow batches (_LINE); at the end, their number and what ended them early."""

    raw: Path
    count: int = 0
    damage: DamageError | None = None

    def __iter__(self) -> Iterator[Any]:
        try:
            for block in _blocks(self.raw):
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                offsets = np.concatenate([[0], ends + 1]).astype(np.int32)
                self.count += ends.size
                lines = pa.StringArray.from_buffers(ends.size, pa.py_buffer(offsets), pa.py_buffer(block))
                yield pa.record_batch([lines], schema=_LINE)
        except DamageError as damage:
            damage.line += self.count
            self.damage = damage


def _blocks(raw: Path) -> Iterator[bytes]:
    """Yield the complete lines, about a chunk of them at a time; DamageError where they end early or there are none.

    Its line counts from the last one that was yielded.
    """
    size, rest = 0, b""
    try:
        for data in _chunks(raw):
            size += len(data)
            end = data.rfind(b"\n") + 1
            if end:
                yield b"".join((rest, memoryview(data)[:end]))
                rest = b""
            rest += data[end:]
            if len(rest) > _LINE_LIMIT:
                raise DamageError(1, "the line is longer than 16 MiB")
    except EOFError:
        raise DamageError(1, "the gzip stream ends early", cut=True) from None
    except zlib.error as error:
        with raw.open("rb") as handle:
            what = "the gzip stream is corrupt" if handle.read(2) == b"\x1f\x8b" else "the file is not gzip"
        raise DamageError(1, f"{what} ({error})") from None
    if size == 0:
        raise DamageError(1, "the file is empty")
    if rest:
        raise DamageError(1, "the line is cut off", cut=True)


def _chunks(raw: Path) -> Iterator[bytes]:
    """Yield the content, inflated where its name ends in .gz; zlib.error on a wrong CRC, EOFError where gzip is cut."""
    with raw.open("rb") as handle:
        if raw.suffix != ".gz":
            while data := handle.read(_CHUNK):
                yield data
            return
        decoder = zlib.decompressobj(wbits=31)
        while data := handle.read(_CHUNK // 4):
            while data:
                if decoder.eof:
                    decoder = zlib.decompressobj(wbits=31)
                yield decoder.decompress(data, _CHUNK)
                data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        while not decoder.eof and (rest := decoder.decompress(decoder.unconsumed_tail, _CHUNK)):
            yield rest
        if not decoder.eof:
            raise EOFError


# --- from lines to rows -----------------------------------------------------------------------------------

_RECORD = '{"metric": "VARCHAR", "type": "VARCHAR", "data": {"time": "VARCHAR", "value": "DOUBLE"}}'
_TAGS = '{"data": {"tags": {"status": "VARCHAR", "error_code": "VARCHAR"}}}'
_POINTS_OF_LINES = f"""
    SELECT code, value,
           CASE WHEN code = {_USERS} THEN metric END AS users_metric,
           CASE WHEN code IN (0, {_POINTS - 1}, {_ITERATION}) THEN time END AS time,
           tags.status AS status, tags.error_code AS error_code
    FROM (SELECT CASE WHEN type = 'Point' AND value IS NOT NULL AND time IS NOT NULL AND metric <> ''
                      THEN coalesce(known, {_USERS})
                      WHEN type = 'Metric' AND metric IS NOT NULL THEN {_METRIC} ELSE {_BAD} END::UTINYINT AS code,
                 CASE WHEN code = 0 THEN json_transform(line, '{_TAGS}').data.tags END AS tags,
                 metric, time, value
          FROM (SELECT enum_code(TRY_CAST(record.metric AS ENUM {_KNOWN})) AS known, record.metric AS metric,
                       record.type AS type, record.data.time AS time, record.data.value AS value, line
                FROM (SELECT TRY(json_transform(line, '{_RECORD}')) AS record, line FROM lines)))
"""  # noqa: S608 - built of this module's constants only
"""One row per line. A cast to ENUM looks names up by hash: a CASE of names costs half as much as parsing JSON.

Tags are looked for in a request's first line only, which is parsed twice: to look among all lines' tags takes longer.
"""


def _pair(batches: Iterable[Any], folder: Path, tally: Tally) -> None:
    """Write the rows of batches of lines; the points of a request that straddles two batches wait for the next."""
    waiting: Any = None
    with (
        pq.ParquetWriter(folder / "requests.parquet", REQUESTS, **_PLAIN) as requests,
        pq.ParquetWriter(folder / "iterations.parquet", ITERATIONS, **_PLAIN) as iterations,
    ):
        for batch in rebatched(batches, BATCH):
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


def rebatched(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yield the same rows in batches of exactly so many, the last one fewer; DuckDB's depend on how its threads ran."""
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        left = batch
        while size + left.num_rows >= rows:
            yield pa.concat_batches([*waiting, left.slice(0, rows - size)])
            left, waiting, size = left.slice(rows - size), [], 0
        waiting.append(left)
        size += left.num_rows
    if size:
        yield pa.concat_batches(waiting)


def _count(batch: Any, tally: Tally) -> tuple[Any, Any]:
    """Add a batch to the counts; return its points of requests, and its iterations (ITERATIONS)."""
    codes = batch.column("code").to_numpy()
    values = batch.column("value").to_numpy(zero_copy_only=False)
    counts = np.bincount(codes, minlength=_BAD + 1)
    tally.lines += len(codes)
    tally.bad_lines += int(counts[_BAD])
    for code in np.flatnonzero(counts[: len(_KNOWN)]):
        tally.points[_KNOWN[code]] += int(counts[code])
    if counts[_USERS]:
        for found in pc.value_counts(batch.column("users_metric").drop_null()).to_pylist():
            tally.points[found["values"]] += found["counts"]
    tally.iterations += int(values[codes == _KNOWN.index("iterations")].sum())
    tally.dropped += int(values[codes == _KNOWN.index("dropped_iterations")].sum())
    ended = batch.filter(pa.array(codes == _ITERATION))
    columns = [pa.array(_wall_ns(ended.column("time"))), ended.column("value")]
    return batch.filter(pa.array(codes < _POINTS)), pa.record_batch(columns, schema=ITERATIONS)


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
    status = pc.cast(first.column("status"), pa.int16())
    if status.null_count:
        raise _MisalignedError("a request has no status tag")
    error_code = pc.fill_null(pc.cast(first.column("error_code"), pa.int16()), pa.scalar(0, pa.int16()))
    durations = [pa.array(np.ascontiguousarray(values[:, column])) for column in range(1, _POINTS)]
    columns = [pa.array(_wall_ns(first.column("time"))), *durations, status, error_code]
    return pa.record_batch(columns, schema=REQUESTS)


def _wall_ns(times: Any) -> NDArray[np.int64]:
    """Return k6's time stamps as nanoseconds since the epoch."""
    return np.asarray(pc.cast(pc.cast(times, pa.timestamp("ns", "UTC")), pa.int64()).to_numpy(zero_copy_only=False))


# --- the slow reader --------------------------------------------------------------------------------------


@dataclass
class LineReader:
    """Judges a file line by line, independently of DuckDB."""

    number: int = 0
    """Lines judged."""
    expected: int = 0
    """Index in REQUEST_METRICS of the next point of a request."""
    infinite: Counter[str] = field(default_factory=Counter)
    """Points of users' metrics with an infinite value, which k6 1.x writes as `+Inf`: not JSON, but not a fault.

    k6 2.x leaves them out, and says so in its log.
    """
    _first: dict[str, Any] = field(default_factory=dict)

    def read(self, raw: Path) -> None:
        """Raise DamageError at the first fault; the last request may not be incomplete."""
        try:
            for block in _blocks(raw):
                for line in block.split(b"\n")[:-1]:
                    reason = self.judge(line)
                    if reason:
                        raise DamageError(1, reason)
                    self.number += 1
        except DamageError as damage:
            damage.line += self.number
            raise
        if self.expected:
            raise DamageError(self.number, "the points of the last request are incomplete", cut=True)

    def judge(self, line: bytes) -> str | None:
        """Return what is wrong with one line, or None."""
        text = _INFINITE.sub(b'"value":1e999,"tags"', line)
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return "the line is not JSON"
        if not isinstance(record, dict) or not isinstance(record.get("metric"), str):
            return "the line is not a point or metric of k6"
        if record.get("type") == "Metric":
            return None
        if record.get("type") != "Point" or not isinstance(record.get("data"), dict):
            return "the line is not a point or metric of k6"
        return self._judge_point(record["metric"], record["data"])

    def _judge_point(self, metric: str, data: dict[str, Any]) -> str | None:
        value, time = data.get("value"), data.get("time")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"the value of {metric} is not a number"
        if not isinstance(time, str):
            return f"the time of {metric} is not text"
        if metric not in REQUEST_METRICS:
            self.infinite[metric] += not math.isfinite(value)
            return None
        if value < 0 or not math.isfinite(value):
            return f"the value of {metric} is not a finite number of 0 or more"
        return self._judge_request(metric, data)

    def _judge_request(self, metric: str, data: dict[str, Any]) -> str | None:
        wanted = REQUEST_METRICS[self.expected]
        if metric != wanted:
            return f"a point of {metric} stands where one of {wanted} must follow"
        if not _is_time(data["time"]):
            return f"the time of {metric} is not RFC 3339"
        if self.expected == 0:
            tags = data.get("tags")
            self._first = {"time": data["time"], **(tags if isinstance(tags, dict) else {})}
            for tag, needed in (("status", True), ("error_code", False)):
                text = self._first.get(tag)
                if (needed or text is not None) and not re.fullmatch(r"\d{1,4}", str(text)):
                    return f"the request has no numeric {tag} tag (run k6 with --system-tags status,error_code)"
        elif data["time"] != self._first["time"]:
            return f"the time of {metric} differs from that of its request"
        self.expected = (self.expected + 1) % len(REQUEST_METRICS)
        return None


def _is_time(text: str) -> bool:
    """Whether `text` is RFC 3339 as Go writes it and names a moment that exists."""
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text[:19])
    except ValueError:
        return False
    return True
