"""Synthetic k6 output for tests and the benchmark: the bytes that `k6 run --out json=FILE` would write.

Order, names, number and time formats follow k6 1.8.1 (internal/output/json, lib/netext/httpext/tracer.go,
internal/js/runner.go): the points of one request are consecutive lines, then come the points of its iteration.
"""

import functools
import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EPOCH_NS = 1_795_222_591_000_000_000
"""2026-11-21T00:56:31Z, when the synthetic load begins."""

_PARTS = ("duration", "blocked", "connecting", "tls_handshaking", "sending", "waiting", "receiving", "failed")
REQUEST_METRICS = ("http_reqs", *(f"http_req_{part}" for part in _PARTS))
_ITERATION_METRICS = ("data_sent", "data_received", "iteration_duration", "iterations")
_SECOND_METRICS = ("vus", "vus_max")
_TYPES = {
    **dict.fromkeys(("http_reqs", "iterations"), ("counter", "default")),
    **dict.fromkeys(("data_sent", "data_received"), ("counter", "data")),
    **dict.fromkeys(_SECOND_METRICS, ("gauge", "default")),
    "http_req_failed": ("rate", "default"),
}
_URL = "http://127.0.0.1:18080/experiments"
_STOCK_ITERATION_TAGS = '{"group":"","scenario":"default"}'


@dataclass(frozen=True)
class Request:
    """One request as k6 would measure it: end in ns since the epoch, durations in whole ns."""

    end_ns: int
    blocked: int
    connecting: int
    sending: int
    waiting: int
    receiving: int
    status: int = 200
    error_code: int = 0
    tls: int = 0

    @property
    def duration(self) -> int:
        """k6's http_req_duration in ns."""
        return self.sending + self.waiting + self.receiving


def go_time(ns: int) -> str:
    """Format ns since the epoch as Go's RFC 3339 with nanoseconds in UTC: trailing zeros are dropped."""
    return f"{_second(ns // 10**9)}.{ns % 10**9:09d}".rstrip("0").rstrip(".") + "Z"


@functools.cache
def _second(seconds: int) -> str:
    return str(np.datetime64(seconds, "s"))


def go_float(value: float) -> str:
    """Format as Go's strconv.AppendFloat(value, 'g', -1, 64), which k6 uses."""
    text = repr(float(value)).removesuffix(".0")
    if value == 0 or 1e-4 <= abs(value) < 1e21:
        return text if abs(value) < 1e16 else f"{value:.0f}"
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    return f"{text.partition('e')[0].removesuffix('.0') or mantissa}e{exponent}"


def metric_line(name: str) -> str:
    """Return the line that announces a metric before its first point."""
    kind, contains = _TYPES.get(name, ("trend", "time"))
    data = {"name": name, "type": kind, "contains": contains, "thresholds": [], "submetrics": None}
    return json.dumps({"type": "Metric", "data": data, "metric": name}, separators=(",", ":"))


def point_line(metric: str, end_ns: int, value_text: str, tags: str) -> str:
    """Return the line of one point; `tags` is JSON text."""
    time = go_time(end_ns)
    return f'{{"metric":"{metric}","type":"Point","data":{{"time":"{time}","value":{value_text},"tags":{tags}}}}}'


def request_tags(request: Request, stock: bool = False) -> str:
    """Return a request's tags as JSON text: k6's stock set, or that of --system-tags status,error_code."""
    tags = {"status": str(request.status)}
    if request.error_code:
        tags["error_code"] = str(request.error_code)
    if stock:
        expected = "true" if 200 <= request.status < 400 else "false"
        tags |= {"expected_response": expected, "group": "", "method": "POST", "proto": "HTTP/1.1"}
        tags |= {"scenario": "default", "name": _URL, "url": _URL}
    return json.dumps(dict(sorted(tags.items())), separators=(",", ":"))


def request_lines(request: Request, *, stock: bool = False, failed_point: bool = True) -> list[str]:
    """Return the consecutive lines of one request; without http_req_failed where its responseCallback is null."""
    tags = request_tags(request, stock)
    parts = (request.sending, request.waiting, request.receiving)
    nanoseconds = (request.duration, request.blocked, request.connecting, request.tls, *parts)
    failed = "0" if 200 <= request.status < 400 else "1"
    values = ["1", *(go_float(ns / 1e6) for ns in nanoseconds), failed]
    pairs = list(zip(REQUEST_METRICS, values, strict=True))
    return [point_line(name, request.end_ns, value, tags) for name, value in pairs[: 8 + failed_point]]


def iteration_lines(end_ns: int, duration_ns: int, *, stock: bool = False, full: bool = True) -> list[str]:
    """Return the lines that end an iteration; `full=False` is an interrupted one, which leaves only its bytes."""
    tags = _STOCK_ITERATION_TAGS if stock else "{}"
    values = ("138", "123", go_float(duration_ns / 1e6), "1")
    pairs = list(zip(_ITERATION_METRICS, values, strict=True))
    return [point_line(name, end_ns, value, tags) for name, value in (pairs if full else pairs[:2])]


def announce(lines: list[str]) -> list[str]:
    """Insert the line of each metric before its first point, as k6 does."""
    seen: set[str] = set()
    result = []
    for line in lines:
        name = json.loads(line)["metric"]
        if name not in seen:
            seen.add(name)
            result.append(metric_line(name))
        result.append(line)
    return result


def write_lines(path: Path, lines: list[str], level: int = 6) -> Path:
    """Write lines to `path`, compressed where its name ends in .gz; return `path`."""
    data = ("\n".join(lines) + "\n").encode() if lines else b""
    path.write_bytes(gzip.compress(data, level) if path.suffix == ".gz" else data)
    return path


# --- large files ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LargeFile:
    """Facts of a file that `write_large` wrote."""

    iterations: int
    lines: int
    uncompressed_bytes: int


def write_large(
    path: Path, iterations: int, *, vus: int = 3000, seed: int = 7, stock_tags: bool = True, level: int = 5
) -> LargeFile:
    """Write the output of `iterations` one-request iterations of `vus` users to a gzip file, in O(1) memory.

    Completion is not in order of start: each user has its own clock, and k6's buffer mixes them within a flush.
    """
    lines = written = 0
    with closing(gzip.open(path, "wb", compresslevel=level)) as out:
        for block in _large_blocks(iterations, vus, seed, stock_tags):
            out.write(block)
            lines += block.count(b"\n")
            written += len(block)
    return LargeFile(iterations, lines, written)


def _large_blocks(iterations: int, vus: int, seed: int, stock_tags: bool) -> Iterator[bytes]:
    """Yield text of up to 10,000 iterations, at 9,500 iterations/s."""
    names = (*REQUEST_METRICS, *_ITERATION_METRICS, *_SECOND_METRICS)
    yield "".join(metric_line(name) + "\n" for name in names).encode()
    rng = np.random.default_rng(seed)
    # The text of one iteration as a %-template.
    ends = [("%(time)s", "%(tags)s"), ("%(end)s", _STOCK_ITERATION_TAGS if stock_tags else "{}")]
    values = [["1", *(f"%({name})s" for name in REQUEST_METRICS[1:])], ["138", "123", "%(iteration)s", "1"]]
    point = '{"metric":"%s","type":"Point","data":{"time":"%s","value":%s,"tags":%s}}\n'
    template = "".join(
        point % (name, time, value, tags)
        for metrics, (time, tags), each in zip((REQUEST_METRICS, _ITERATION_METRICS), ends, values, strict=True)
        for name, value in zip(metrics, each, strict=True)
    )
    second = -1
    for first in range(0, iterations, 10_000):
        last = min(first + 10_000, iterations)
        text = _large_block(template, rng, np.arange(first, last), vus, stock_tags)
        if last // 9_500 != second:
            second = last // 9_500
            stamp = EPOCH_NS + second * 1_000_000_000 + 4_321
            text += "".join(point_line(name, stamp, str(vus), "{}") + "\n" for name in _SECOND_METRICS)
        yield text.encode()


def _large_block(
    template: str, rng: np.random.Generator, numbers: np.ndarray[Any, Any], vus: int, stock_tags: bool
) -> str:
    count, new = numbers.size, numbers < vus
    ends = (EPOCH_NS + (numbers / 9_500 * 1e9 + rng.exponential(2e7, count))).astype(np.int64)
    connecting = np.where(new, rng.integers(50_000, 5_000_000, count), 0)
    blocked = np.where(new, connecting + rng.integers(2_000, 90_000, count), rng.integers(900, 9_000, count))
    sending = rng.integers(4_000, 90_000, count)
    waiting = rng.lognormal(np.log(2.4e8), 0.35, count).astype(np.int64)
    receiving = rng.integers(9_000, 200_000, count)
    statuses = np.where(rng.random(count) < 0.001, 500, 200)
    tags = {
        status: request_tags(Request(0, 0, 0, 0, 0, 0, status, 0 if status == 200 else 1000 + status), stock_tags)
        for status in (200, 500)
    }
    durations = (sending + waiting + receiving, blocked, connecting, 0 * ends, sending, waiting, receiving)
    rows = zip(*(column.tolist() for column in (ends, statuses, *durations)), strict=True)
    return "".join(
        template
        % {
            "time": go_time(end),
            "tags": tags[status],
            **{name: _ms(ns) for name, ns in zip(REQUEST_METRICS[1:8], each, strict=True)},
            "http_req_failed": "0" if status == 200 else "1",
            "end": go_time(end + 41_000),
            "iteration": _ms(each[0] + each[1] + 41_000),
        }
        for end, status, *each in rows
    )


def _ms(ns: int) -> str:
    """Format ns as ms like go_float(ns / 1e6) for 0.1 us and more, and for 0."""
    whole, fraction = divmod(ns, 1_000_000)
    return f"{whole}.{fraction:06d}".rstrip("0") if fraction else str(whole)


if __name__ == "__main__":
    print(write_large(Path(sys.argv[1]), int(sys.argv[2]), stock_tags=sys.argv[3:] != ["trimmed"]))
