"""A raw file of k6 (`--out json=FILE`, plain or .gz) -> one row per request on disk, or the line of
its first fault.

The file is read once, in blocks of whole lines, so that memory does not grow with it: zlib-ng
inflates the next block and checks gzip's CRC while threads take the lines of a block apart, all at
once, by Arrow and NumPy. k6 writes every point in one form:

{"metric":"http_reqs","type":"Point","data":{"time":"2026-11-21T00:56:31.1Z","value":1,"tags":{"status":"200"}}}

Every part is checked: value and time are numbers and times, name and tags are JSON, read once per
block where they repeat. A line in any other form is read by Python's json, which brings it into
k6's form or says what is wrong.

A request's points are consecutive lines, because k6 writes one sample container at a time. So the
request metrics, taken out of all lines, must repeat in exactly their order; anything else is
damage, never a guess.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from zlib_ng import zlib_ng

Ints = NDArray[np.int32]
REQUEST_METRICS = (
    *(
        "http_reqs",
        "http_req_duration",
        "http_req_blocked",
        "http_req_connecting",
        "http_req_tls_handshaking",
    ),
    *("http_req_sending", "http_req_waiting", "http_req_receiving"),
)
"""The points of one request in the order of k6's Trail.SaveSamples (lib/netext/httpext/tracer.go).

http_req_failed follows only where the request has a responseCallback, so it takes no part in
pairing.
"""
_POINTS = len(REQUEST_METRICS)
_KNOWN = (
    *REQUEST_METRICS,
    "http_req_failed",
    "iterations",
    "iteration_duration",
    "dropped_iterations",
)

_PHASES = ("sending", "waiting", "receiving")
REQUESTS = pa.schema(
    [
        ("end_ns", pa.int64()),
        *[
            (f"{part}_ms", pa.float64())
            for part in ("duration", "blocked", "connecting", "tls", *_PHASES)
        ],
        *[(name, pa.int16()) for name in ("status", "error_code")],
    ]
)
"""One row per request, in the file's order: wall-clock end and k6's durations.

Error_code 0 if there is none.
"""
ELSEWHERE = REQUESTS.append(pa.field("port", pa.int32()))
"""One row per request of a user's script to another port than the server's, and which port that
was.
"""
NO_PORT = -1  # of a request whose tag `url` is no URL: the script gave it a name
DEFAULT_PORTS = {"http": 80, "https": 443}
ITERATIONS = pa.schema([("end_ns", pa.int64()), ("length_ms", pa.float64())])
"""One row per completed iteration: wall-clock end and iteration_duration."""
CHUNK = 2 << 20  # bytes of lines that are read at once
_LINE_LIMIT = 16 << 20  # a line is longer only where a file is none of k6's
_TIME = re.compile(r"(19|20|21)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_HEAD = b'{"metric":"'
_SHORTEST_TIME = len("2026-11-21T00:56:31Z")
_CODE = re.compile(r"[0-9]{1,4}")
USE_BASE_URL = "let the script use __ENV.BASE_URL"
_INFINITE = re.compile(rb'"value":[+-]Inf,"tags"')


class DamageError(Exception):
    """The raw file cannot be read as k6 wrote it: where and why.

    `cut` if only its end is missing.
    """

    def __init__(self, line: int, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        """0 if it is not known, or where the stream ended: after the lines that were read."""
        self.reason = reason
        self.cut = cut


@dataclass(kw_only=True)
class Tally:
    """What is counted while the lines pass by."""

    points: Counter[str] = field(
        default_factory=Counter
    )  # points by metric, those of users' metrics included
    lines: int = 0
    requests: int = 0  # those of the server
    elsewhere: int = 0  # those of a user's script to other ports
    unnamed: int = 0  # those of `requests` that do not say which port they asked
    iterations: int = 0
    dropped_iterations: int = 0
    late: int = 0
    """Requests that the generator began later than they were to be; k6 begins none late."""
    lines_lost: int = 0
    """Those left out where the file's end was cut off, the torn one included.

    What was never written is not known.
    """


def spool_points(
    raw: Path,
    folder: Path,
    *,
    behind_ns: int = 0,
    threads: int = 2,
    salvage: bool = False,
    server_port: int | None = None,
) -> Tally:
    """Write requests.parquet (REQUESTS) and iterations.parquet (ITERATIONS) into `folder`, and
    return the counts.

    With `server_port`, requests whose tag `url` names another port go to elsewhere.parquet
    (ELSEWHERE) instead. `behind_ns` is added to all times. DamageError names the line of the first
    fault. With `salvage` a missing end is no fault, and its lines are `lines_lost`.
    """
    file = _File(raw)
    pairing = _Pairing(server_port)
    blocks = iter(file)
    tally = pairing.tally
    with ExitStack() as stack:
        requests = stack.enter_context(GroupWriter(folder / "requests.parquet", REQUESTS))
        iterations = stack.enter_context(GroupWriter(folder / "iterations.parquet", ITERATIONS))
        others = (
            GroupWriter(folder / "elsewhere.parquet", ELSEWHERE)
            if server_port is not None
            else None
        )
        elsewhere = stack.enter_context(others) if others is not None else None
        try:
            for found in _ahead(_read, blocks, threads):
                found.points["end_ns"] += behind_ns
                rows = pairing.add(found)
                requests.write(rows.requests)
                iterations.write(rows.iterations)
                if elsewhere is not None:
                    elsewhere.write(rows.elsewhere)
        except DamageError:
            deque(blocks, maxlen=0)
            if file.damage is None or file.damage.cut:
                raise
            # That the stream is corrupt explains more than a line does.
    damage = file.damage
    incomplete = len(pairing.waiting)
    if damage:
        damage.line = tally.lines + 1
    elif incomplete:
        damage = DamageError(tally.lines, "the points of the last request are incomplete", cut=True)
    if damage and not (salvage and damage.cut):
        raise damage
    if tally.requests == 0 and tally.elsewhere:
        raise DamageError(
            0,
            f"{tally.elsewhere} requests went to other ports and none to the server: "
            f"{USE_BASE_URL}",
        )
    if tally.requests == 0:
        raise damage or DamageError(tally.lines, "there is no complete request up to here")
    tally.lines_lost = incomplete + (file.damage is not None)
    return tally


class GroupWriter(AbstractContextManager["GroupWriter"]):
    """A Parquet file, written in groups of so many rows, however many a batch has."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int = 122_880, **encoding: Any) -> None:
        self._writer = pq.ParquetWriter(
            path, schema, **({"compression": "none", "use_dictionary": False} | encoding)
        )
        self._rows = rows
        self._waiting = schema.empty_table()

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows."""
        self._waiting = pa.concat_tables([self._waiting, pa.table(rows)])
        whole = len(self._waiting) // self._rows * self._rows
        if whole:
            self._flush(whole)

    def _flush(self, rows: int) -> None:
        self._writer.write_table(
            self._waiting.slice(0, rows).combine_chunks(), row_group_size=self._rows
        )
        self._waiting = self._waiting.slice(rows)

    def __exit__(self, *_: object) -> None:
        if len(self._waiting):
            self._flush(len(self._waiting))
        self._writer.close()


def _ahead(
    function: Callable[[bytes], _Block], items: Iterator[bytes], threads: int
) -> Iterator[_Block]:
    """Yield what a function returns for each item, in their order, called by so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[_Block]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > 2 * threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


# --- from the file to blocks of lines -------------------------------------------------------------


@dataclass
class _File:
    """The complete lines of a file, in blocks of about a chunk.

    `damage` is what ended them early, without its line.
    """

    raw: Path
    damage: DamageError | None = None

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        data = b""
        try:
            for data in _chunks(self.raw):
                end = data.rfind(b"\n") + 1
                if end:
                    yield b"".join((rest, memoryview(data)[:end]))
                    rest = b""
                rest += data[end:]
                if len(rest) > _LINE_LIMIT:
                    self.damage = DamageError(0, "the line is longer than 16 MiB")
                    return
        except EOFError:
            self.damage = DamageError(0, "the gzip stream ends early", cut=True)
        except zlib_ng.error as error:  # type: ignore[misc]  # the stub has an instance, not the class
            with self.raw.open("rb") as handle:
                what = (
                    "the gzip stream is corrupt"
                    if handle.read(2) == b"\x1f\x8b"
                    else "the file is not gzip"
                )
            self.damage = DamageError(0, f"{what} ({error})")
        else:
            if not data:
                self.damage = DamageError(0, "the file is empty")
            elif rest:
                self.damage = DamageError(0, "the line is cut off", cut=True)


def _chunks(raw: Path) -> Iterator[bytes]:
    """Yield the content, inflated if it ends in .gz.

    Zlib_ng.error on a wrong CRC, EOFError where gzip is cut.
    """
    with raw.open("rb") as handle:
        if raw.suffix != ".gz":
            while data := handle.read(CHUNK):
                yield data
            return
        decoder = zlib_ng.decompressobj(wbits=31)
        while data := handle.read(CHUNK // 4):
            while data:
                if decoder.eof:
                    decoder = zlib_ng.decompressobj(wbits=31)
                yield decoder.decompress(data, CHUNK)
                data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        while not decoder.eof and (rest := decoder.decompress(decoder.unconsumed_tail, CHUNK)):
            yield rest
        if not decoder.eof:
            raise EOFError


# --- from blocks to points ------------------------------------------------------------------------

_TAGS = ("status", "error_code", "port")  # what is kept of a point's tags
_POINT = np.dtype(
    [
        *[("line", "i8"), ("metric", "i4"), ("end_ns", "i8"), ("value", "f8")],
        *[("status", "i2"), ("error_code", "i2"), ("port", "i4")],
    ]
)
Points = NDArray[np.void]
"""Points as _POINT: `line` from 0, `metric` an index of names.

Status or error_code -1 if they are no numbers.
"""


@dataclass
class _Block:
    """What stands in a block of lines, up to the first that is none of k6's, whose `fault`
    it has.
    """

    points: Points
    names: list[str]  # of metrics
    lines: int
    fault: DamageError | None = None


def _read(block: bytes) -> _Block:
    """Take a block apart; what is not in k6's form is read as JSON."""
    try:
        points, names, fits = _taken_apart(block)
        if fits.all():
            return _Block(points, names, len(fits))
        odd: Sequence[int] = np.flatnonzero(~fits).tolist()
    except (ValueError, RecursionError):  # a part of some line is not what it should be
        odd = range(block.count(b"\n"))
    lines = block.split(b"\n")
    fault = None
    for at in odd:
        try:
            lines[at] = _rewritten(lines[at])
        except ValueError as error:
            lines = [*lines[:at], b""]
            fault = DamageError(at + 1, str(error))
            break
    try:
        points, names, fits = _taken_apart(b"\n".join(lines))
    except ValueError as error:
        return _Block(
            np.empty(0, _POINT),
            [],
            0,
            DamageError(1, f"the lines from here on cannot be read ({error})"),
        )
    return _Block(points, names, len(fits), fault)


def _taken_apart(block: bytes) -> tuple[Points, list[str], NDArray[np.bool_]]:
    """Return the points of the lines that have k6's form, the names of metrics, and which lines
    these are.

    ValueError if name, time, value or tags of some line are not what JSON allows.
    """
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n")).astype(np.int32)
    begins = np.concatenate([np.zeros(1, np.int32), ends + 1])[:-1]
    name = np.minimum(begins + len(_HEAD), ends)
    name_end, time = _split(block, name, ends, '","type":"Point","data":{"time":"')
    time_end, value = _split(block, np.minimum(time + _SHORTEST_TIME, ends), ends, '","value":')
    value_end, tags = _split(block, value, ends, ',"tags":')
    fits = _stands(block, begins, _HEAD) & _stands(block, ends - 2, b"}}") & (tags < ends - 2)
    # Arrow takes more for a number than JSON does: inf, .5, 5. and 007. Negative ones are left to
    # JSON, too.
    fits &= _is_digit(text[value]) & _is_digit(text[value_end - 1])
    fits &= (text[value] != ord("0")) | ~_is_digit(text[np.minimum(value + 1, ends)])
    rows = np.flatnonzero(fits)
    points = np.empty(len(rows), _POINT)
    if not len(rows):
        return points, [], fits
    points["line"] = rows
    names, points["metric"] = _distinct(_texts(block, name[rows], name_end[rows]))
    points["end_ns"] = _values(
        _texts(block, time[rows], time_end[rows]).cast(pa.timestamp("ns", "UTC")), "i8"
    )
    points["value"] = _values(_texts(block, value[rows], value_end[rows]).cast(pa.float64()), "f8")
    if not np.isfinite(points["value"]).all():
        raise ValueError("a value is too large")
    tag_sets, indices = _distinct(_texts(block, tags[rows], ends[rows] - 2))
    kept = np.array([_kept(each) for each in tag_sets])[indices]
    for place, tag in enumerate(_TAGS):
        points[tag] = kept[:, place]
    return points, [json.loads(f'"{name}"') for name in names], fits


def _kept(tags: str) -> tuple[int, int, int]:
    """Return status, error_code and port of a point by its tags, as _TAGS.

    An error_code that is not there is 0.
    """
    known = json.loads(tags)
    if not isinstance(known, dict):
        raise ValueError("tags are an object")
    status = str(known.get("status", ""))
    error_code = str(known.get("error_code", "0"))
    codes = [int(code) if _CODE.fullmatch(code) else -1 for code in (status, error_code)]
    return codes[0], codes[1], _port(str(known.get("url", "")))


def _port(url: str) -> int:
    """Return the port that a URL names, or that of its scheme; NO_PORT if the text is no URL."""
    try:
        parts = urlsplit(url)
        default = DEFAULT_PORTS.get(parts.scheme, NO_PORT)
        return (parts.port or default) if parts.hostname else NO_PORT
    except ValueError:
        return NO_PORT


def _is_digit(characters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray(
        characters - np.uint8(ord("0")) < 10
    )  # what is below 0 goes round to 200 and more


def _texts(block: bytes, begins: Ints, ends: Ints) -> pa.StringArray:
    """Return parts of a block, in their order, as strings of Arrow without a copy.

    What is between two is a null.
    """
    offsets = np.column_stack([begins, ends])
    every_second = bytes([0b01010101]) * (len(begins) // 4 + 1)
    buffers = [pa.py_buffer(each) for each in (every_second, offsets, block)]
    return pa.Array.from_buffers(pa.string(), 2 * len(begins) - 1, buffers)


def _values(of_texts: pa.Array, kind: str) -> NDArray[Any]:
    """Return what Arrow made of _texts, without the nulls between; `kind` is its type to NumPy."""
    return np.frombuffer(of_texts.buffers()[1], kind)[: len(of_texts) : 2]


def _distinct(texts: pa.StringArray) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different ones of _texts, and which of them each is."""
    found = texts.dictionary_encode()
    return found.dictionary.to_pylist(), _values(found.indices, "i4")


def _split(block: bytes, begins: Ints, ends: Ints, needle: str) -> tuple[Ints, Ints]:
    """Return where the needle begins and ends in each part of a block.

    Twice the part's end if it is not in it.
    """
    found = _values(pc.find_substring(_texts(block, begins, ends), needle), "i4")
    before = np.where(found < 0, ends, begins + found)
    return before, np.minimum(before + len(needle), ends)


def _stands(block: bytes, places: Ints, needle: bytes) -> NDArray[np.bool_]:
    """Return whether the needle stands at each of these places."""
    last = len(block) - len(needle)
    if last < 0:
        return np.zeros(len(places), bool)
    windows = np.ndarray(last + 1, f"S{len(needle)}", block, strides=(1,))
    return np.asarray(windows[np.clip(places, 0, last)] == needle)


def _batch(columns: Sequence[NDArray[Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(np.ascontiguousarray(column)) for column in columns], schema=schema
    )


# --- from points to rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The rows that a block completes: REQUESTS, ELSEWHERE and ITERATIONS."""

    requests: pa.RecordBatch
    elsewhere: pa.RecordBatch
    iterations: pa.RecordBatch


class _Pairing:
    """Counts points and makes rows of them.

    Those of a request that straddles two blocks wait for the next.
    """

    def __init__(self, server_port: int | None = None) -> None:
        self.tally = Tally()
        self._server_port = server_port  # None if every request is the server's
        self.waiting: Points = np.empty(0, _POINT)
        self._metrics = {name: number for number, name in enumerate(_KNOWN)}
        """Those of users come behind the known ones."""

    def add(self, block: _Block) -> _Rows:
        """Return the requests and iterations that a block completes, and count its points.

        DamageError where the points of a request are not as k6 writes them.
        """
        points = block.points
        tally = self.tally
        numbers = np.array(
            [self._metrics.setdefault(name, len(self._metrics)) for name in block.names],
            dtype=np.int32,
        )
        points["metric"] = metrics = numbers[points["metric"]]
        points["line"] += tally.lines + 1
        of_requests = np.concatenate([self.waiting, points[metrics < _POINTS]])
        _require_order(of_requests)
        if block.fault:
            block.fault.line += tally.lines
            raise block.fault
        counts = np.bincount(metrics)
        sums = np.bincount(metrics, points["value"], len(_KNOWN))
        tally.points.update(dict(zip(block.names, counts[numbers].tolist(), strict=True)))
        tally.lines += block.lines
        tally.iterations += int(sums[_KNOWN.index("iterations")])
        tally.dropped_iterations += int(sums[_KNOWN.index("dropped_iterations")])
        ended = points[metrics == _KNOWN.index("iteration_duration")]
        whole = len(of_requests) // _POINTS
        self.waiting = of_requests[whole * _POINTS :]
        rows = of_requests[: whole * _POINTS].reshape(-1, _POINTS)
        is_other = np.zeros(whole, bool)
        if self._server_port is not None:
            ports = rows["port"][:, 0]
            tally.unnamed += int((ports == NO_PORT).sum())
            is_other = (ports != self._server_port) & (ports != NO_PORT)
        others = int(is_other.sum())
        tally.elsewhere += others
        tally.requests += whole - others
        own = _columns(rows[~is_other] if others else rows)
        other = _columns(rows[is_other], "port")
        iterations = _batch([ended["end_ns"], ended["value"]], ITERATIONS)
        return _Rows(_batch(own, REQUESTS), _batch(other, ELSEWHERE), iterations)


def _columns(rows: Points, *more: str) -> list[NDArray[Any]]:
    """Return the columns of REQUESTS of requests, each a row of its points, and `more` of what
    their tags say.
    """
    first = rows[:, 0]
    durations = rows["value"][:, 1:].T
    return [first["end_ns"], *durations, *(first[name] for name in ("status", "error_code", *more))]


def _require_order(points: Points) -> None:
    """Raise DamageError at the first point of a request that is not as k6 writes it."""
    place = np.arange(len(points))
    due = place % _POINTS
    wrong = points["metric"] != due
    apart = points["end_ns"] != points["end_ns"][place - due]
    untagged = (due == 0) & (np.minimum(points["status"], points["error_code"]) < 0)
    for at in np.flatnonzero(wrong | apart | untagged)[:1]:
        metric = _KNOWN[points["metric"][at]]
        if wrong[at]:
            reason = (
                f"a point of {metric} stands where one of {REQUEST_METRICS[due[at]]} must follow"
            )
        elif apart[at]:
            reason = f"the time of {metric} differs from that of its request"
        else:
            reason = (
                "a tag of the request is missing or no number (run k6 with --system-tags "
                "status,error_code)"
            )
        raise DamageError(int(points["line"][at]), reason)


def _rewritten(line: bytes) -> bytes:
    """Return a point in k6's form, nothing for the announcement of a metric.

    ValueError says what is wrong with a line.

    k6 1.x writes infinite values of users' metrics as `+Inf`, which is not JSON, but no fault; 2.x
    leaves them out, and says so in its log. Of users' metrics only the names are needed.
    """
    try:
        record = json.loads(_INFINITE.sub(b'"value":1e999,"tags"', line))
    except (ValueError, RecursionError):
        raise ValueError("the line is not JSON") from None
    match record:
        case {"type": "Metric", "metric": str()}:
            return b""
        case {
            "type": "Point",
            "metric": str(metric),
            "data": {"time": str(time), "value": int() | float()} as data,
        }:
            value = data["value"]
            tags = data.get("tags")
        case _:
            raise ValueError("the line is not a point or metric of k6")
    if isinstance(value, bool) or (metric in _KNOWN and not 0 <= value < 1e300):
        raise ValueError(f"the value of {metric} is not a finite number of 0 or more")
    if not _is_time(time):
        raise ValueError(f"the time of {metric} is not RFC 3339")
    known = {
        "time": time,
        "value": value if metric in _KNOWN else 0,
        "tags": tags if isinstance(tags, dict) else {},
    }
    return json.dumps(
        {"metric": metric, "type": "Point", "data": known}, separators=(",", ":")
    ).encode()


def _is_time(text: str) -> bool:
    """Whether `text` is RFC 3339 as Go writes it and names a moment that exists, of this age."""
    try:
        return bool(_TIME.fullmatch(text) and datetime.fromisoformat(text[:19]))
    except ValueError:
        return False
