"""What is wrong with a raw k6 file, and where: integrity of its stream, the line of a fault, rescue of a cut-off tail.

DuckDB reads fast but neither checks gzip's CRC nor the number of lines; this module does, in plain Python.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

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

They are consecutive lines, because k6 writes one sample container at a time; http_req_failed follows only where the
request has a responseCallback, so it takes no part in pairing.
"""

_CHUNK = 1 << 20
_LINE_LIMIT = 16 << 20
"""Longest line that DuckDB accepts (maximum_object_size)."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_INFINITE = re.compile(rb'"value":[+-]Inf,"tags"')


class DamageError(Exception):
    """The raw file cannot be read as k6 wrote it: where and why; `cut` if only its tail is missing."""

    def __init__(self, line: int, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.cut = cut


@dataclass(frozen=True)
class Stream:
    """Outcome of reading a raw file to its end: complete lines, bytes, and what ended it early, if anything."""

    lines: int
    uncompressed_bytes: int
    damage: DamageError | None


def is_gzip(raw: Path) -> bool:
    """Whether the file's name promises gzip, as k6 decides it."""
    return raw.suffix == ".gz"


def _chunks(raw: Path) -> Iterator[bytes]:
    """Yield the uncompressed content; zlib.error on corruption or a wrong CRC, EOFError where gzip data is missing."""
    with raw.open("rb") as handle:
        if not is_gzip(raw):
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


def check_stream(raw: Path, sink: Callable[[bytes], object] | None = None) -> Stream:
    """Read `raw` to its end: check gzip's CRC, count lines, notice a missing end. Content goes to `sink` as it comes.

    O(1) memory; releases the interpreter lock while it inflates, so it runs well beside DuckDB.
    """
    lines = size = 0
    last = b"\n"
    damage: DamageError | None = None
    try:
        for data in _chunks(raw):
            lines += data.count(b"\n")
            size += len(data)
            last = data[-1:] or last
            if sink is not None:
                sink(data)
    except EOFError:
        damage = DamageError(lines + 1, "the gzip stream ends early", cut=True)
    except zlib.error as error:
        what = "the file is not gzip" if size == 0 else "the gzip stream is corrupt"
        damage = DamageError(lines + 1, f"{what} ({error})")
    if damage is None and size == 0:
        damage = DamageError(1, "the file is empty")
    elif damage is None and last != b"\n":
        damage = DamageError(lines + 1, "the line is cut off", cut=True)
    return Stream(lines, size, damage)


def rescue(raw: Path, target: Path) -> Stream:
    """Write the complete lines of a cut-off file to `target` (plain JSON lines) and return what was read."""
    with target.open("wb") as out:
        stream = check_stream(raw, out.write)
    with target.open("rb+") as out:
        out.truncate(_end_of_last_line(out))
    return stream


def _end_of_last_line(handle: Any) -> int:
    position: int = handle.seek(0, 2)
    while position > 0:
        start = max(0, position - _CHUNK)
        handle.seek(start)
        newline = handle.read(position - start).rfind(b"\n")
        if newline >= 0:
            return int(start + newline + 1)
        position = start
    return 0


# --- the slow reader --------------------------------------------------------------------------------------


@dataclass
class LineReader:
    """Judges a file line by line, independently of DuckDB; slow, so only for naming a fault (and for tests)."""

    number: int = 0
    expected: int = 0
    """Index in REQUEST_METRICS of the next point of a request."""
    infinite: Counter[str] = field(default_factory=Counter)
    """Points of users' own metrics with an infinite value, which k6 1.x writes as `+Inf`: not JSON, but not a fault.

    k6 2.x leaves them out, and says so in its log.
    """
    _first: dict[str, Any] = field(default_factory=dict)

    def read(self, raw: Path) -> None:
        """Raise DamageError at the first fault; the last request may not be incomplete."""
        for line in _lines(raw):
            self.number += 1
            reason = self.judge(line)
            if reason:
                raise DamageError(self.number, reason)
        if self.expected:
            raise DamageError(self.number, "the points of the last request are incomplete", cut=True)

    def judge(self, line: bytes) -> str | None:
        """Return what is wrong with one line, or None."""
        text = _INFINITE.sub(b'"value":1e999,"tags"', line)
        try:
            record = json.loads(text)
        except ValueError:
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


def _lines(raw: Path) -> Iterator[bytes]:
    """Yield lines without their end; DamageError at a line longer than DuckDB accepts."""
    rest = b""
    number = 0
    for data in _chunks(raw):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > _LINE_LIMIT:
            raise DamageError(number + 1, "the line is longer than 16 MiB")
    if rest:
        yield rest
