"""Read k6's raw file (`--out json=FILE`, plain, .gz or .zst) into one row per request on disk.

If the file is damaged, an error names the line of the first fault.

The file is read once, in blocks of whole lines, so that memory does not grow with the file's size.
Threads parse all lines of a block at once with Arrow and NumPy, and combine the points of whole
requests into rows. Meanwhile zlib-ng inflates the next block and checks gzip's CRC. k6 writes every
point in the same form:

    {"metric":"http_reqs","type":"Point","data":{"time":"2026-11-21T00:56:31.1Z","value":1,"tags":{"status":"200"}}}

Every part of such a line is checked: value and time must be valid, and name and tags must be JSON.
A text that occurs several times in a block is parsed only once. A line in any other form is parsed
with Python's json. If such a line is a valid point, the line is rewritten in the form above. A line
that declares a metric is also valid. Any other line is reported as a fault.

k6 writes the points of a request one after the other, and does not mix them with the points of
another request. Therefore each request must have one point of each metric in REQUEST_METRICS, in
the order of REQUEST_METRICS. Any other order is reported as damage.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from runner.digest.labels import (
    Announced,
    Checked,
    Labelling,
    Labels,
    announced_in,
    labels_of,
    url_of,
)
from runner.digest.watched import WATCHED, Selection, TagSets, Watch

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
"""Metrics of the points of one request, in the order in which k6 writes these points.

The order is that of Trail.SaveSamples (lib/netext/httpext/tracer.go). http_req_failed is left out,
because a request without a responseCallback has no such point.
"""
_POINTS = len(REQUEST_METRICS)
KNOWN = (
    *REQUEST_METRICS,
    "http_req_failed",
    "iterations",
    "iteration_duration",
    "dropped_iterations",
    "vus",
    "vus_max",
    "checks",
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
"""One row per request, in the order of the raw file.

A row has the wall-clock time when the request ended, the durations that k6 measured, the HTTP
status, and k6's error code. `error_code` is 0 if there was no error.
"""
LABELLED = REQUESTS.append(pa.field("label", pa.int32()))
"""One row per request: the columns of REQUESTS, and the index of its label in `Tally.labels`."""
ELSEWHERE = LABELLED.append(pa.field("port", pa.int32()))
"""One row per request that a user's script sent, but that is not part of the load on the server.

There are two kinds of such requests. For a request that setup() or teardown() sent, the column
`port` has SET_UP_PORT. For a request to a port other than the server's port, the column has this
other port.
"""
SET_UP_PORT = 0  # number in the column `port` for all requests of setup() and teardown()
SET_UP_GROUPS = ("::setup", "::teardown")
"""Groups that k6 gives to the requests of setup() and teardown() (internal/js/runner.go)."""
NO_PORT = -1
"""Stands for an unknown port.

The port is unknown if the tag `url` is not a URL. For example, the tag may hold the name that the
script gave the request.
"""
DEFAULT_PORTS = {"http": 80, "https": 443}
ITERATIONS = pa.schema([("end_ns", pa.int64()), ("length_ms", pa.float64())])
"""One row per completed iteration: the wall-clock time when it ended, and its duration."""
USERS = pa.schema([("at_ns", pa.int64()), ("vus", pa.float64()), ("allocated", pa.bool_())])
"""Two rows per second, one for each of k6's two gauges of users.

If `allocated` is false, the column `vus` has the value of k6's gauge `vus`: the number of users
that run an iteration. If `allocated` is true, the column has the value of k6's gauge `vus_max`: the
number of all users.
"""
BLOCK_BYTES = 4 << 20  # size of a block of lines that is read at once
_PIECE_BYTES = 32 << 10  # size of each chunk of a Zstandard stream that is decompressed at once
_LINE_LIMIT = 16 << 20  # longest line that is accepted; no line of k6 is longer
_TIME = re.compile(r"(19|20|21)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_HEAD = b'{"metric":"'
_TO_TIME = b'","type":"Point","data":{"time":"'
_SHORTEST_TIME = len("2026-11-21T00:56:31Z")
_CODE = re.compile(r"[0-9]{1,4}")
USE_BASE_URL = "let the script use __ENV.BASE_URL"
_OLDER_HEAD = b'{"type":"Point","data":{'
_OLDER = re.compile(rb'^\{"type":"Point","data":(\{.*\}),"metric":"([^"\\]*)"\}$', re.MULTILINE)
_NEWER = rb'{"metric":"\2","type":"Point","data":\1}'
_INFINITE = re.compile(rb'"value":([+-])Inf,"tags"')
_LARGEST = 1e300  # replaces infinite values of a script's own metrics


class DamageError(Exception):
    """An error that says that the raw file differs from what the generator writes.

    `cut` is True if only the end of the file is missing.
    """

    def __init__(self, line: int, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        """Number of the faulty line; 0 if unknown.

        If the file ends early or is corrupt, this number is that of the first line that could not
        be read.
        """
        self.reason = reason
        self.cut = cut


@dataclass(kw_only=True)
class Tally:
    """Counts and facts from the lines of a raw file that were read so far."""

    points: Counter[str] = field(default_factory=Counter)
    """Number of points of each metric, including the metrics that a user's script defines."""
    lines: int = 0
    requests: int = 0  # requests to the server
    elsewhere: int = 0  # requests that are in elsewhere.parquet instead of requests.parquet
    set_up: int = 0  # requests of setup() and teardown() that are counted in `elsewhere`, too
    unnamed: int = 0  # requests that are counted in `requests` although their port is unknown
    iterations: int = 0
    dropped_iterations: int = 0
    late: int = 0
    """Number of requests that the generator sent late; always 0 for k6."""
    lines_lost: int = 0
    """Number of lines that were read but not used, because the end of the file is missing.

    These are the line that was cut off, and the lines of a request whose last points are missing.
    Lines in the missing end of the file are not counted, because their number is unknown.
    """
    labelling: Labelling = field(default_factory=Labelling)
    """The labels of requests and checks, with their numbers, and the URLs of each label."""
    checked: dict[int, Checked] = field(default_factory=dict)
    """Results of the script's checks, by the number of the check's label."""
    last_drop_ns: int = 0  # wall-clock time when k6 last dropped an iteration; 0 if it dropped none
    first_drop_ns: int = 0
    thresholds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Expressions of the script's thresholds, by metric."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Kind of each metric whose kind the file states: `counter`, `gauge`, `rate` or `trend`."""

    @property
    def labels(self) -> list[Labels]:
        """The labels of requests and checks. The number of a label is its index in this list."""
        return self.labelling.labels


class MissingRequestsError(DamageError):
    """An error that says that a complete file has no HTTP request.

    For example, a script that tests only WebSockets sends no HTTP requests.
    """

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally.lines, "the file has no complete request up to this line")
        self.tally = tally


def spool_points(
    raw: Path,
    folder: Path,
    *,
    behind_ns: int = 0,
    threads: int = 2,
    salvage: bool = False,
    server_port: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int], None] | None = None,
    opened: Callable[[Iterator[bytes]], Lines] | None = None,
    watch: Watch | None = None,
    set_up_apart: bool = False,
) -> Tally:
    """Write a raw file's rows into Parquet files in `folder`, and return the counts.

    The files are requests.parquet (LABELLED), iterations.parquet (ITERATIONS) and users.parquet
    (USERS).

    - `behind_ns` is added to all times.
    - `threads` is the number of threads that parse the lines. Each of them parses about
      `block_bytes` of lines at a time.
    - With `salvage`, a missing end of the file is not a fault. Instead, `Tally.lines_lost` counts
      the lines that cannot be used.
    - With `server_port`, requests whose tag `url` names another port are written to
      elsewhere.parquet (ELSEWHERE) instead of requests.parquet.
    - With `set_up_apart`, requests of setup() and teardown() are written to elsewhere.parquet, too.
    - `progress` is called with the number of bytes of the file that were read.
    - If the file's format is not JSON, `opened` is a function that gets the file's blocks and
      returns the Lines of the file.
    - With `watch`, the points that `watch` selects are written to watched.parquet (WATCHED).

    Raise DamageError with the line of the first fault.
    """
    file = _File(raw, block_bytes, progress or _ignored)
    pairing = _Pairing(server_port, watch, set_up_apart=set_up_apart)
    blocks = iter(file)
    lines = opened(blocks) if opened is not None else Lines(_read, blocks)
    tally = pairing.tally
    tally.lines = lines.skipped
    with ExitStack() as stack:
        has_others = server_port is not None or set_up_apart
        writers = _writers(stack, folder, has_others, watch is not None)
        try:
            for found in _ahead(_reader(lines, behind_ns), lines.blocks, threads):
                _write(pairing.add(found), writers)
        except DamageError:
            deque(blocks, maxlen=0)
            if file.damage is None or file.damage.cut:
                raise
            # The file was read to its end above, and its compressed stream is corrupt. The corrupt
            # stream caused the faulty line, so only the fault of the stream is reported, below.
    damage = file.damage
    incomplete = len(pairing.waiting)
    if damage:
        damage.line = tally.lines + 1
    elif incomplete:
        damage = DamageError(tally.lines, "the points of the last request are incomplete", cut=True)
    if damage and not (salvage and damage.cut):
        raise damage
    if tally.requests == 0 and tally.elsewhere > tally.set_up:
        raise DamageError(
            0,
            f"{tally.elsewhere} requests went to other ports, and none to the port of the "
            f"server: {USE_BASE_URL}",
        )
    if tally.requests == 0:
        raise damage or MissingRequestsError(tally)
    tally.lines_lost = incomplete + (file.damage is not None)
    return tally


@dataclass(frozen=True)
class Lines:
    """The lines of a file in blocks, and the function that parses a block."""

    read: Callable[[bytes], Block]
    blocks: Iterator[bytes]
    skipped: int = 0
    """Number of lines before the first block, such as a line that names the columns."""


class GroupWriter(AbstractContextManager["GroupWriter"]):
    """Writer of a Parquet file with row groups of a fixed size.

    The size of the row groups does not depend on the sizes of the batches that are written.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows: int = 122_880, **encoding: Any) -> None:
        self._writer = pq.ParquetWriter(
            path, schema, **({"compression": "none", "use_dictionary": False} | encoding)
        )
        self._rows = rows
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows, and write all row groups that are complete to the file."""
        batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
        self._waiting += [batch for batch in batches if batch.num_rows]
        self._waiting_rows += rows.num_rows
        whole = self._waiting_rows // self._rows * self._rows
        if whole:
            self._flush(whole)

    def _flush(self, rows: int) -> None:
        waiting = pa.Table.from_batches(self._waiting)
        self._writer.write_table(waiting.slice(0, rows).combine_chunks(), row_group_size=self._rows)
        self._waiting = waiting.slice(rows).to_batches()
        self._waiting_rows -= rows

    def __exit__(self, *_: object) -> None:
        if self._waiting_rows:
            self._flush(self._waiting_rows)
        self._writer.close()


def _writers(
    stack: ExitStack, folder: Path, has_others: bool, is_watched: bool
) -> dict[str, GroupWriter]:
    """Open the files of a spool, and return a writer for each file.

    The keys of the result are the names of the files, without `.parquet`. `stack` closes the files.
    """
    schemas = {"requests": LABELLED, "users": USERS, "iterations": ITERATIONS}
    if has_others:
        schemas["elsewhere"] = ELSEWHERE
    if is_watched:
        schemas["watched"] = WATCHED
    return {
        name: stack.enter_context(GroupWriter(folder / f"{name}.parquet", schema))
        for name, schema in schemas.items()
    }


def _write(rows: Rows, writers: Mapping[str, GroupWriter]) -> None:
    """Write the rows of each file that has a writer. The rows of other files are ignored."""
    for name, writer in writers.items():
        for batch in rows[name]:
            writer.write(batch)


def _reader(lines: Lines, behind_ns: int) -> Callable[[bytes], _Picked]:
    """Return the function that parses a block and picks the points that become rows."""
    return lambda data: _picked(lines.read(data), behind_ns)


def _ahead(
    function: Callable[[bytes], _Picked], items: Iterator[bytes], threads: int
) -> Iterator[_Picked]:
    """Yield the function's result for each item, in the items' order.

    A pool of `threads` threads computes the results before they are needed.
    """
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[_Picked]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > 2 * threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


# --- from the file to blocks of lines -------------------------------------------------------------


@dataclass
class _File:
    """The complete lines of a file, in blocks of about `block_bytes`.

    If the file is faulty, the last block ends before the fault, and `damage` describes the fault.
    `damage.line` is 0, because this class does not count the lines.
    """

    raw: Path
    block_bytes: int
    progress: Callable[[int], None]
    damage: DamageError | None = None

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        data = b""
        try:
            for data in _chunks(self.raw, self.block_bytes, self.progress):
                end = data.rfind(b"\n") + 1
                if end:
                    yield b"".join((rest, memoryview(data)[:end]))
                    rest = b""
                rest += data[end:]
                if len(rest) > _LINE_LIMIT:
                    self.damage = DamageError(0, "the line is longer than 16 MiB")
                    return
        except DamageError as damage:
            self.damage = damage
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


def _ignored(_read_bytes: int) -> None:
    """Do nothing with the number of bytes that were read, so that no progress is shown."""


def _chunks(raw: Path, most_bytes: int, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the content of a file in pieces of at most about `most_bytes`.

    Files whose names end in .gz or .zst are decompressed. Raise zlib_ng.error for a wrong CRC.
    Raise DamageError if the stream is cut off, or if a .zst file is not Zstandard.
    """
    if raw.suffix == ".zst":
        yield from _inflated(raw, most_bytes, progress)
        return
    with raw.open("rb") as handle:
        if raw.suffix != ".gz":
            while data := handle.read(most_bytes):
                progress(handle.tell())
                yield data
            return
        decoder = zlib_ng.decompressobj(wbits=31)
        while data := handle.read(most_bytes // 4):
            progress(handle.tell())
            while data:
                if decoder.eof:
                    decoder = zlib_ng.decompressobj(wbits=31)
                yield decoder.decompress(data, most_bytes)
                data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        while not decoder.eof and (rest := decoder.decompress(decoder.unconsumed_tail, most_bytes)):
            yield rest
        if not decoder.eof:
            raise DamageError(0, "the gzip stream ends early", cut=True)


def _inflated(raw: Path, most_bytes: int, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the content of a Zstandard file.

    Raise DamageError if the file is cut off or corrupt.
    """
    with pa.OSFile(str(raw)) as file, pa.CompressedInputStream(file, "zstd") as stream:
        pieces = _Pieces(stream)
        while data := b"".join(islice(pieces, max(1, most_bytes // _PIECE_BYTES))):
            progress(file.tell())
            yield data
        if pieces.damage is not None:
            raise pieces.damage


class _Pieces(Iterator[bytes]):
    """The content of a Zstandard stream in pieces.

    If a stream is cut off, Arrow loses the whole piece in which the stream ends. The pieces are
    small, so that little is lost.
    """

    def __init__(self, stream: pa.CompressedInputStream) -> None:
        self._stream = stream
        self.damage: DamageError | None = None

    def __next__(self) -> bytes:
        try:
            piece: bytes = self._stream.read(_PIECE_BYTES)
        except OSError as error:
            cut = "Truncated" in str(error)
            said = "ends early" if cut else f"is corrupt ({error})"
            self.damage = DamageError(0, f"the Zstandard stream {said}", cut=cut)
            piece = b""
        if not piece:
            raise StopIteration
        return piece


# --- from blocks to points ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a block, in the file's order, as columns with one value per point."""

    line: NDArray[np.int64]
    """Number of the line within the block, from 0."""
    metric: Ints
    """Index of the metric's name in `Block.names`."""
    end_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    tags: Ints
    """Index of the tags in `Block.tags`."""

    @classmethod
    def none(cls) -> Points:
        """Return columns without any point."""
        return cls(
            line=np.empty(0, np.int64),
            metric=np.empty(0, np.int32),
            end_ns=np.empty(0, np.int64),
            value=np.empty(0, np.float64),
            tags=np.empty(0, np.int32),
        )


@dataclass
class Block:
    """Content of a block of lines, up to the first faulty line.

    `fault` is the fault of the first faulty line; None if no line is faulty.
    """

    points: Points
    names: list[str]  # names of the metrics
    lines: int
    tags: Sequence[Tags]
    """The distinct sets of tags that the points have."""
    fault: DamageError | None = None
    announced: list[Announced] = field(default_factory=list)

    @classmethod
    def without_points(cls, fault: DamageError | None = None) -> Block:
        """Return a Block without points, for a text that is empty or cannot be parsed."""
        return cls(Points.none(), [], 0, [], fault)


def _read(block: bytes) -> Block:
    """Parse a block of lines. Lines that are not in k6's form are parsed with Python's json.

    The docstring of this module shows k6's form.

    Older versions of k6 write the metric's name at the end of a line. Such a line is rewritten with
    the name at the beginning before it is parsed.
    """
    if block.startswith(_OLDER_HEAD):
        block = _OLDER.sub(_NEWER, block)
    odd: Sequence[int]
    try:
        apart = _taken_apart(block)
        if apart.fits.all():
            return _block(apart)
        odd = np.flatnonzero(~apart.fits).tolist()
    except (ValueError, RecursionError):
        # It is not known which line is invalid, so every line is parsed with Python's json.
        odd = range(block.count(b"\n"))
    if b"\n" + _OLDER_HEAD in block and (newer := _OLDER.sub(_NEWER, block)) != block:
        return _read(newer)
    return _read_singly(block.split(b"\n"), odd)


def _read_singly(lines: list[bytes], odd: Iterable[int]) -> Block:
    """Parse a block of lines, some of which may not be in k6's form.

    `odd` has the indexes of the lines that may not be in k6's form. First rewrite these lines in
    k6's form, with Python's json, up to the first invalid line. Then parse all lines before the
    invalid line together. If no line is invalid, parse all lines.
    """
    fault = None
    announced = []
    for at in odd:
        try:
            announced.append(announced_in(lines[at]))
            lines[at] = _rewritten(lines[at])
        except ValueError as error:
            lines = [*lines[:at], b""]
            fault = DamageError(at + 1, str(error))
            break
    try:
        apart = _taken_apart(b"\n".join(lines), rewritten=True)
    except ValueError:
        # The text of this error names Arrow's types, which do not help the user.
        said = "this line or a later one has a time or a value that k6 does not write"
        return Block.without_points(DamageError(1, said))
    return _block(apart, fault, [each for each in announced if each is not None])


def _block(
    apart: _Apart, fault: DamageError | None = None, announced: Sequence[Announced] = ()
) -> Block:
    return Block(apart.points, apart.names, len(apart.fits), apart.tags, fault, list(announced))


@dataclass(frozen=True, eq=False)
class _Apart:
    """Result of `_taken_apart`: the points of a block, without the points of skipped lines."""

    points: Points
    names: list[str]
    """Names of the points' metrics."""
    fits: NDArray[np.bool_]
    """One element per line of the block: True for a line in k6's form, False for a skipped line."""
    tags: Sequence[Tags]


def _taken_apart(block: bytes, *, rewritten: bool = False) -> _Apart:
    """Parse the lines of a block that are in k6's form, and skip the other lines.

    The docstring of this module shows k6's form. Each line in this form gives one point. Raise
    ValueError if the name, time, value or tags of such a line are invalid.

    The first call for a block is made without `rewritten`. It skips each line whose value JSON
    might forbid. `_read_singly` then replaces the skipped lines by the results of `_rewritten`, and
    makes a second call with `rewritten`. The second call does not check the values, because
    `_rewritten` writes only valid values, some of which the check would reject, such as negative
    numbers.
    """
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n")).astype(np.int32)
    begins = np.concatenate([np.zeros(1, np.int32), ends + 1])[:-1]
    name = np.minimum(begins + len(_HEAD), ends)
    name_end, time = _behind_name(block, name, ends)
    time_end, value = _split(block, np.minimum(time + _SHORTEST_TIME, ends), ends, '","value":')
    value_end, tags = _split(block, value, ends, ',"tags":')
    fits = _begin_with(block, begins, ends, _HEAD) & (tags < ends - 2)
    fits &= (text[ends - 1] == ord("}")) & (text[np.maximum(ends - 2, 0)] == ord("}"))
    # Arrow accepts numbers that JSON forbids: inf, .5, 5. and 007. So a line counts as a line in
    # k6's form only if its value begins and ends with a digit, and has no leading zero. Python's
    # json parses the other lines later.
    if not rewritten:
        first = text[value]
        fits &= _is_digit(first) & _is_digit(text[value_end - 1])
        fits &= (first != ord("0")) | ~_is_digit(text[np.minimum(value + 1, ends)])
    rows = np.flatnonzero(fits)
    if not len(rows):
        return _Apart(Points.none(), [], fits, [])
    if len(rows) < len(fits):
        name, name_end, time, time_end = name[rows], name_end[rows], time[rows], time_end[rows]
        value, value_end, tags, ends = value[rows], value_end[rows], tags[rows], ends[rows]
    names, metrics = _distinct(_texts(block, name, name_end))
    times = _texts(block, time, time_end).cast(pa.timestamp("ns", "UTC"))
    values = _values(_texts(block, value, value_end).cast(pa.float64()), "f8")
    if not np.isfinite(values).all():
        raise ValueError("a value is too large")
    tag_texts, tag_sets = _distinct(_texts(block, tags, ends - 2))
    names = [json.loads(f'"{name}"') for name in names]
    points = Points(rows, metrics, _values(times, "i8"), values, tag_sets)
    return _Apart(points, names, fits, [_tags_in(each) for each in tag_texts])


def _behind_name(block: bytes, name: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return two offsets for each line: where the metric's name ends, and where the time begins.

    If a line is not in k6's form, both offsets are the end of the line.
    """
    name_end, _ = _split(block, name, ends, '"')
    time = np.minimum(name_end + len(_TO_TIME), ends)
    rest = np.flatnonzero(~_begin_with(block, name_end, ends, _TO_TIME))
    if len(rest):  # for example if a name contains a quotation mark
        name_end[rest], time[rest] = _split(block, name[rest], ends[rest], _TO_TIME.decode())
    return name_end, time


@lru_cache(maxsize=4096)
def _tags_in(text: str) -> Tags:
    """Return the tags in the text of a JSON object; raise ValueError for any other text."""
    known = json.loads(text)
    if not isinstance(known, dict):
        raise ValueError("tags are an object")
    return tags_of(known)


@dataclass(frozen=True)
class Tags:
    """The tags of a point, and the values that are derived from the tags."""

    known: Mapping[str, Any]
    status: int
    """The HTTP status; -1 if the tag is missing or not a number."""
    error_code: int
    """k6's code of the error; 0 if the tag is missing, and -1 if it is not a number."""
    port: int
    labels: Labels
    url: str
    """The tag `url`, or the tag `name` if there is no tag `url`; empty if both are missing."""


def tags_of(known: Mapping[str, Any]) -> Tags:
    """Return the tags of a point, with the values that are derived from the tags."""
    return Tags(
        known,
        status=_code(str(known.get("status", ""))),
        error_code=_code(str(known.get("error_code", "0"))),
        port=_port(str(known.get("url", ""))),
        labels=labels_of(known),
        url=url_of(known),
    )


def _code(text: str) -> int:
    """Return a status or an error's code; -1 if the text is not a number."""
    return int(text) if _CODE.fullmatch(text) else -1


def _port(url: str) -> int:
    """Return the port that a URL names, or else the default port of the URL's scheme.

    Return NO_PORT if the text is not a URL, or if the scheme has no entry in DEFAULT_PORTS.
    """
    try:
        parts = urlsplit(url)
        default = DEFAULT_PORTS.get(parts.scheme, NO_PORT)
        return (parts.port or default) if parts.hostname else NO_PORT
    except ValueError:
        return NO_PORT


# The type uint8 has no negative numbers. So for a character below "0", the difference wraps round
# to more than 200, and the character does not count as a digit.
def _is_digit(characters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray(characters - np.uint8(ord("0")) < 10)


def _texts(block: bytes, begins: Ints, ends: Ints) -> pa.StringArray:
    """Return pieces of a block as an Arrow string array, without copying them.

    The pieces must be in ascending order and must not overlap. Between two pieces the array has a
    null, which stands for the bytes between the pieces.
    """
    offsets = np.column_stack([begins, ends])
    every_second = bytes([0b01010101]) * (len(begins) // 4 + 1)
    buffers = [pa.py_buffer(each) for each in (every_second, offsets, block)]
    return pa.Array.from_buffers(pa.string(), 2 * len(begins) - 1, buffers)


def _values(of_texts: pa.Array, kind: str) -> NDArray[Any]:
    """Return the values that Arrow parsed from the texts of `_texts`, as NumPy's type `kind`.

    The nulls that `_texts` puts between the texts are left out.
    """
    return np.frombuffer(of_texts.buffers()[1], kind)[: len(of_texts) : 2]


def _distinct(texts: pa.StringArray) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct texts, and the index of each given text in the distinct texts."""
    found = texts.dictionary_encode()
    return found.dictionary.to_pylist(), _values(found.indices, "i4")


def _split(block: bytes, begins: Ints, ends: Ints, needle: str) -> tuple[Ints, Ints]:
    """Return the offsets where the needle begins and ends in each piece of a block.

    If a piece lacks the needle, both offsets are the end of the piece.
    """
    found = _values(pc.find_substring(_texts(block, begins, ends), needle), "i4")
    before = np.where(found < 0, ends, begins + found)
    return before, np.minimum(before + len(needle), ends)


def _begin_with(block: bytes, begins: Ints, ends: Ints, needle: bytes) -> NDArray[np.bool_]:
    """Return a mask of the pieces of a block: True for each piece that begins with the needle."""
    if not len(begins):
        return np.empty(0, bool)
    found = pc.starts_with(_texts(block, begins, ends), needle.decode())
    bits = np.frombuffer(found.buffers()[1], np.uint8)
    return np.unpackbits(bits, bitorder="little", count=len(found))[::2].view(bool)


# --- from points to rows --------------------------------------------------------------------------

_KEPT = np.dtype([("status", "i2"), ("error_code", "i2"), ("port", "i4"), ("label", "i4")])
"""The values that are derived from a point's tags and kept instead of the tags.

`label` is the number of the point's label.
"""
POINT = np.dtype(
    [
        *[("line", "i8"), ("metric", "i4"), ("end_ns", "i8"), ("value", "f8")],
        *[(name, _KEPT[name]) for name in _KEPT.names or ()],
    ]
)
"""A single point.

`metric` is an index of KNOWN. `line` is the number of the line within its block, from 0.
`_Pairing.add` converts this number to the number of the line within the file, from 1.
"""
Singles = NDArray[np.void]
"""An array of single points, in the form of POINT."""
_UNKNOWN = len(KNOWN)  # stands for every metric that is not in KNOWN
_NUMBERS = {name: number for number, name in enumerate(KNOWN)}
_ITERATIONS = _NUMBERS["iterations"]
_DROPPED = _NUMBERS["dropped_iterations"]


@dataclass(frozen=True, eq=False)
class _Requests:
    """Requests of which all points were read, as columns with one value per request."""

    end_ns: NDArray[np.int64]
    durations_ms: NDArray[np.float64]
    """An array with one row per metric of REQUEST_METRICS except the first, and one column per
    request.
    """
    kept: NDArray[np.void]
    """The values of _KEPT for each request, derived from the tags of the request's first point."""

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return one row per request, with the columns of `schema`: LABELLED or ELSEWHERE."""
        tags = [self.kept[name] for name in ("status", "error_code", "label", "port")]
        return _batch([self.end_ns, *self.durations_ms, *tags][: len(schema)], schema)

    def chosen(self, mask: NDArray[np.bool_]) -> _Requests:
        """Return the requests that `mask` selects."""
        return _Requests(self.end_ns[mask], self.durations_ms[:, mask], self.kept[mask])


@dataclass(frozen=True, eq=False)
class _Numbered:
    """The points of a block of lines, prepared to be combined into requests.

    Each metric's name is replaced by its index in KNOWN, and each set of tags by the values of
    _KEPT that are derived from it.
    """

    points: Points
    """The points. Their field `metric` has an index of KNOWN, or _UNKNOWN."""
    kept: NDArray[np.void]
    """The values of _KEPT for each set of tags in the block."""

    def places(self, *metrics: str) -> NDArray[np.int64]:
        """Return the indexes of the points that belong to any of these metrics."""
        wanted = [self.points.metric == _NUMBERS[metric] for metric in metrics]
        return np.flatnonzero(np.logical_or.reduce(wanted))

    def singles(self, places: NDArray[np.int64]) -> Singles:
        """Return the points with these indexes, in the form of POINT."""
        found = np.empty(len(places), POINT)
        for name in ("line", "metric", "end_ns", "value"):
            found[name] = getattr(self.points, name)[places]
        kept = self.kept[self.points.tags[places]]
        for name in _KEPT.names or ():
            found[name] = kept[name]
        return found

    def requests(self, places: NDArray[np.int64]) -> _Requests | None:
        """Return the requests that consist of the points with these indexes.

        Return None if any of these requests is faulty in the sense of `_faulty`.
        """
        of_requests = places.reshape(-1, _POINTS)
        first = of_requests[:, 0]
        in_order = self.points.metric[of_requests] == np.arange(_POINTS)
        ends_ns = self.points.end_ns[of_requests]
        kept = self.kept[self.points.tags[first]]
        tagged = np.minimum(kept["status"], kept["error_code"]) >= 0
        if not (in_order.all() and (ends_ns == ends_ns[:, :1]).all() and tagged.all()):
            return None
        durations_ms = np.ascontiguousarray(self.points.value[of_requests[:, 1:]].T)
        return _Requests(ends_ns[:, 0], durations_ms, kept)


@dataclass(frozen=True, eq=False)
class _Picked:
    """The points of a block that become rows or counts, grouped by their use.

    `_Pairing` counts the points and combines them into rows. k6 writes the points of a request in a
    fixed order. If the block's points of request metrics are in this order, `requests` has the
    requests whose points are all in this block. If they are not in this order, `requests` is empty,
    and `before` has all points of request metrics, so that `_Pairing` finds the point that is out
    of order.
    """

    block: Block
    labelling: Labelling
    """The labels whose numbers are in the field `label` of the points."""
    sums: NDArray[np.float64]
    """Sum of the values of each metric of KNOWN, from which `_Pairing` counts iterations."""
    before: Singles
    """Points of a request whose first points are in an earlier block."""
    following: Singles
    """The next point of a request metric after the points in `before`, as an array of one point.

    `_Pairing` uses this point to check that the request in `before` is complete. The array is empty
    if `before` has all of the block's points of request metrics.
    """
    requests: _Requests
    after: Singles
    """Points of a request whose last points are in a later block."""
    drops: Singles
    checks: Singles
    iterations: pa.RecordBatch
    users: pa.RecordBatch


_NO_PLACES = np.empty(0, np.int64)
_NO_SINGLES: Singles = np.empty(0, POINT)
_NO_REQUESTS = _Requests(np.empty(0, np.int64), np.empty((_POINTS - 1, 0)), np.empty(0, _KEPT))


def _picked(block: Block, behind_ns: int) -> _Picked:
    """Pick the points of a block that become rows or counts, and group them by their use.

    `behind_ns` is added to all times.
    """
    labelling = Labelling()
    kept = np.array(
        [
            (each.status, each.error_code, each.port, labelling.number(each.labels, each.url))
            for each in block.tags
        ],
        _KEPT,
    )
    numbers = np.array([_NUMBERS.get(name, _UNKNOWN) for name in block.names], np.int32)
    points = replace(
        block.points,
        metric=numbers[block.points.metric] if len(numbers) else block.points.metric,
        end_ns=block.points.end_ns + behind_ns,
    )
    numbered = _Numbered(points, kept)
    places = np.flatnonzero(points.metric < _POINTS)
    begin = int(-points.metric[places[0]] % _POINTS) if len(places) else 0
    end = max(begin, len(places) - (len(places) - begin) % _POINTS)
    requests = numbered.requests(places[begin:end])
    after = numbered.singles(places[end:])
    if requests is None or _faulty(after).any():
        begin = len(places)
        requests = _NO_REQUESTS
        after = _NO_SINGLES
    ended = numbered.places("iteration_duration")
    gauges = numbered.places("vus", "vus_max")
    is_allocated = points.metric[gauges] == _NUMBERS["vus_max"]
    return _Picked(
        block,
        labelling,
        np.asarray(np.bincount(points.metric, points.value, _UNKNOWN), np.float64),
        numbered.singles(places[:begin]),
        numbered.singles(places[begin : begin + 1]),
        requests,
        after,
        drops=numbered.singles(numbered.places("dropped_iterations")),
        checks=numbered.singles(numbered.places("checks")),
        iterations=_batch([points.end_ns[ended], points.value[ended]], ITERATIONS),
        users=_batch([points.end_ns[gauges], points.value[gauges], is_allocated], USERS),
    )


def _batch(columns: Sequence[NDArray[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of rows from NumPy columns that have the types of `schema`.

    Arrow gets the columns as buffers, because Arrow's own conversion of NumPy columns takes longer
    if there are few rows.
    """
    arrays = []
    for column, kind in zip(columns, schema.types, strict=True):
        bits = np.packbits(column, bitorder="little") if pa.types.is_boolean(kind) else column
        buffers = [None, pa.py_buffer(np.ascontiguousarray(bits))]
        arrays.append(pa.Array.from_buffers(kind, len(column), buffers))
    return pa.record_batch(arrays, schema=schema)


Rows = Mapping[str, Sequence[pa.RecordBatch]]
"""Batches of rows, by the name (without `.parquet`) of the file to which they will be written.

The rows have the columns of LABELLED, ELSEWHERE, ITERATIONS, USERS or WATCHED.
"""


class _Pairing:
    """The step that counts points and combines them into rows, block after block.

    If only a part of a request's points is in a block, these points wait for the next block.
    """

    def __init__(
        self,
        server_port: int | None = None,
        watch: Watch | None = None,
        *,
        set_up_apart: bool = False,
    ) -> None:
        self.tally = Tally()
        self._watch = watch
        self._set_up_apart = set_up_apart
        self._server_port = server_port  # None if every request goes to the server
        self.waiting = _NO_SINGLES

    def add(self, picked: _Picked) -> Rows:
        """Return the rows that a block completes, and count the block's points.

        Raise DamageError if the block has a fault, or if a point is faulty in the sense of
        `_faulty`.
        """
        block = picked.block
        tally = self.tally
        self._note_announced(block.announced)
        watched = None
        if self._watch is not None:
            sets = TagSets([each.known for each in block.tags], block.points.tags)
            watched = self._watch.rows(block.names, block.points.metric, block.points.value, sets)
        numbers = tally.labelling.numbers_of(picked.labelling)
        for points in (picked.before, picked.following, picked.after, picked.checks):
            points["line"] += tally.lines + 1
            points["label"] = _renumbered(points["label"], numbers)
        picked.requests.kept["label"] = _renumbered(picked.requests.kept["label"], numbers)
        paired = self._paired(picked)
        if block.fault:
            block.fault.line += tally.lines
            raise block.fault
        counts = np.bincount(block.points.metric, minlength=len(block.names))
        for name, count in zip(block.names, counts.tolist(), strict=True):
            tally.points[name] += count
        tally.lines += block.lines
        tally.iterations += int(picked.sums[_ITERATIONS])
        tally.dropped_iterations += int(picked.sums[_DROPPED])
        self._note_drops(picked.drops)
        self._note_checks(picked.checks)
        own = []
        elsewhere = []
        for requests in (paired, picked.requests):
            is_other = self._take_others_apart(requests)
            others = int(is_other.sum())
            tally.elsewhere += others
            tally.requests += len(is_other) - others
            own.append((requests.chosen(~is_other) if others else requests).batch(LABELLED))
            if others:
                elsewhere.append(requests.chosen(is_other).batch(ELSEWHERE))
        return {
            "requests": own,
            "elsewhere": elsewhere,
            "iterations": [picked.iterations],
            "users": [picked.users],
            "watched": [] if watched is None else [watched],
        }

    def _paired(self, picked: _Picked) -> _Requests:
        """Return the requests that began in an earlier block and end in this block.

        Raise DamageError if a point is faulty in the sense of `_faulty`. If `_picked` found such a
        point in the block, `picked.before` has all of the block's points of request metrics, so
        that this function checks them all, and finds the faulty point.
        """
        joined = np.concatenate([self.waiting, picked.before])
        _require_order(np.concatenate([joined, picked.following]))
        whole = len(joined) // _POINTS * _POINTS
        self.waiting = picked.after if len(picked.following) else joined[whole:]
        rows = joined[:whole].reshape(-1, _POINTS)
        kept = np.empty(len(rows), _KEPT)
        for name in _KEPT.names or ():
            kept[name] = rows[name][:, 0]
        return _Requests(rows["end_ns"][:, 0], rows["value"][:, 1:].T, kept)

    def _take_others_apart(self, requests: _Requests) -> NDArray[np.bool_]:
        """Return a mask of the requests that must be written to elsewhere.parquet.

        Add the number of requests whose port is unknown to `Tally.unnamed`.
        """
        is_other = np.zeros(len(requests.end_ns), bool)
        ports = requests.kept["port"]
        if self._server_port is not None:
            self.tally.unnamed += int((ports == NO_PORT).sum())
            is_other = (ports != self._server_port) & (ports != NO_PORT)
        if self._set_up_apart and len(is_other):
            is_other |= self._take_set_up_apart(requests)
        return is_other

    def _take_set_up_apart(self, requests: _Requests) -> NDArray[np.bool_]:
        """Return a mask of the requests of setup() and teardown().

        Set the port of these requests to SET_UP_PORT, and count them.
        """
        groups = np.array([label.group in SET_UP_GROUPS for label in self.tally.labels])
        is_set_up = groups[requests.kept["label"]]
        requests.kept["port"][is_set_up] = SET_UP_PORT
        self.tally.set_up += int(is_set_up.sum())
        return np.asarray(is_set_up)

    def _note_announced(self, announced: Sequence[Announced]) -> None:
        """Store the kinds and thresholds of metrics in the tally.

        If there is a Watch, make the Watch keep the points of each metric that has thresholds, from
        now on.
        """
        for each in announced:
            self.tally.kinds[each.metric] = each.kind
            if each.thresholds:
                self.tally.thresholds[each.metric] = each.thresholds
                if self._watch is not None:
                    self._watch.add(Selection(each.metric))

    def _note_drops(self, points: Singles) -> None:
        """Store in the tally when k6 dropped the first and the last iteration."""
        if len(points):
            tally = self.tally
            tally.first_drop_ns = tally.first_drop_ns or int(points["end_ns"].min())
            tally.last_drop_ns = max(tally.last_drop_ns, int(points["end_ns"].max()))

    def _note_checks(self, points: Singles) -> None:
        """Add the results of the script's checks to the tally, by label."""
        for label in np.unique(points["label"]):
            rows = points[points["label"] == label]
            failed = rows[rows["value"] == 0]
            checked = self.tally.checked.setdefault(int(label), Checked())
            checked.passes += len(rows) - len(failed)
            checked.fails += len(failed)
            if len(failed):
                checked.first_fail_ns = checked.first_fail_ns or int(failed["end_ns"].min())
                checked.last_fail_ns = max(checked.last_fail_ns, int(failed["end_ns"].max()))


def _renumbered(labels: Ints, numbers: Ints) -> Ints:
    return numbers[labels] if len(labels) else labels


def _require_order(points: Singles) -> None:
    """Raise DamageError for the first point that is faulty in the sense of `_faulty`."""
    for at in np.flatnonzero(_faulty(points))[:1]:
        due = at % _POINTS
        metric = KNOWN[points["metric"][at]]
        if points["metric"][at] != due:
            reason = (
                f"the line has a point of {metric}, but a point of {REQUEST_METRICS[due]} must "
                "follow here"
            )
        elif points["end_ns"][at] != points["end_ns"][at - due]:
            reason = f"the time of {metric} differs from that of its request"
        else:
            reason = (
                "the request's tag `status` or `error_code` is missing or not a number "
                "(run k6 with --system-tags status,error_code)"
            )
        raise DamageError(int(points["line"][at]), reason)


def _faulty(points: Singles) -> NDArray[np.bool_]:
    """Return a mask of the faulty points.

    The first of the given points must be the first point of a request. A point is faulty if its
    metric is not the next metric in the order of REQUEST_METRICS, or if its time differs from the
    time of the request's first point. The first point of a request is also faulty if its status is
    missing, or if its status or error code is not a number.
    """
    place = np.arange(len(points))
    due = place % _POINTS
    wrong = points["metric"] != due
    apart = points["end_ns"] != points["end_ns"][place - due]
    untagged = (due == 0) & (np.minimum(points["status"], points["error_code"]) < 0)
    return np.asarray(wrong | apart | untagged)


def _rewritten(line: bytes) -> bytes:
    """Return the line of a point, rewritten in the form that this module's docstring shows.

    Return an empty line if the line declares a metric. Raise ValueError with the reason if the line
    is invalid.

    k6 1.x writes infinite values of users' metrics as `+Inf` or `-Inf`. These values are not JSON,
    but they are accepted here, and replaced by large numbers. k6 2.x omits infinite values, and
    says so in its log.
    """
    try:
        record = json.loads(_INFINITE.sub(_finite, line))
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
    if isinstance(value, bool) or (metric in KNOWN and not 0 <= value < 1e300):
        raise ValueError(f"the value of {metric} is not a finite number of 0 or more")
    if not _is_time(time):
        raise ValueError(f"the time of {metric} is not RFC 3339")
    is_nan = isinstance(value, float) and math.isnan(value)
    known = {
        "time": time,
        "value": 0 if is_nan else max(-_LARGEST, min(value, _LARGEST)),
        "tags": tags if isinstance(tags, dict) else {},
    }
    return json.dumps(
        {"metric": metric, "type": "Point", "data": known}, separators=(",", ":")
    ).encode()


def _finite(found: re.Match[bytes]) -> bytes:
    sign = b"-" if found[1] == b"-" else b""
    return b'"value":' + sign + str(_LARGEST).encode() + b',"tags"'


def _is_time(text: str) -> bool:
    """Return whether `text` is a time in RFC 3339 as Go writes it, with a date of 1900 to 2199."""
    try:
        return bool(_TIME.fullmatch(text) and datetime.fromisoformat(text[:19]))
    except ValueError:
        return False
