"""Synthetic output of k6, for tests and for the benchmark of the digest.

It consists of the bytes that `k6 run --out json=FILE` would write. The order of the lines, the
names, and the formats of numbers and times follow k6 1.8.1 (internal/output/json,
lib/netext/httpext/tracer.go, internal/js/runner.go). The points of a request are consecutive lines.
The points of an iteration follow the points of its requests.
"""

import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EPOCH_NS = 1_795_222_591_000_000_000
"""2026-11-21T00:56:31Z, when the synthetic load begins."""

_PARTS = (
    "duration",
    "blocked",
    "connecting",
    "tls_handshaking",
    "sending",
    "waiting",
    "receiving",
    "failed",
)
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
    """A request as k6 would measure it.

    The end is in ns since the epoch. Durations are in whole ns.
    """

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
        """The value of k6's metric http_req_duration, but in ns."""
        return self.sending + self.waiting + self.receiving


@functools.lru_cache(100)
def go_time(ns: int) -> str:
    """Format a time in ns since the epoch like Go's RFC3339Nano: in UTC, without trailing zeros."""
    return str(np.datetime64(ns, "ns")).rstrip("0").rstrip(".") + "Z"


def go_float(value: float) -> str:
    """Format a number like Go's strconv.AppendFloat(value, 'g', -1, 64), which k6 uses."""
    return f"{value:.0f}" if 1e16 <= abs(value) < 1e21 else repr(float(value)).removesuffix(".0")


def metric_line(name: str) -> str:
    """Return the line that declares a metric, which k6 writes before the metric's first point."""
    kind, contains = _TYPES.get(name, ("trend", "time"))
    data = {"name": name, "type": kind, "contains": contains, "thresholds": [], "submetrics": None}
    return json.dumps({"type": "Metric", "data": data, "metric": name}, separators=(",", ":"))


def point_line(metric: str, end_ns: int, value_text: str, tags: str) -> str:
    """Return the line of one data point, whose tags are given as JSON text."""
    time = go_time(end_ns)
    data = f'{{"time":"{time}","value":{value_text},"tags":{tags}}}'
    return f'{{"metric":"{metric}","type":"Point","data":{data}}}'


def request_tags(request: Request, stock: bool = False) -> str:
    """Return a request's tags as JSON text.

    With `stock`, these are k6's default tags. Without `stock`, these are the tags that k6 writes
    with `--system-tags status,error_code`.
    """
    tags = {"status": str(request.status)}
    if request.error_code:
        tags["error_code"] = str(request.error_code)
    if stock:
        expected = "true" if 200 <= request.status < 400 else "false"
        tags |= {"expected_response": expected, "group": "", "method": "POST", "proto": "HTTP/1.1"}
        tags |= {"scenario": "default", "name": _URL, "url": _URL}
    return json.dumps(dict(sorted(tags.items())), separators=(",", ":"))


def request_lines(request: Request, *, stock: bool = False, failed_point: bool = True) -> list[str]:
    """Return the consecutive lines of one request.

    Without `failed_point`, the point of http_req_failed is missing, as for a request whose
    responseCallback is null.
    """
    tags = request_tags(request, stock)
    parts = (request.sending, request.waiting, request.receiving)
    nanoseconds = (request.duration, request.blocked, request.connecting, request.tls, *parts)
    failed = "0" if 200 <= request.status < 400 else "1"
    values = ["1", *(go_float(ns / 1e6) for ns in nanoseconds), failed]
    pairs = list(zip(REQUEST_METRICS, values, strict=True))
    return [
        point_line(name, request.end_ns, value, tags) for name, value in pairs[: 8 + failed_point]
    ]


def iteration_lines(
    end_ns: int, duration_ns: int, *, stock: bool = False, full: bool = True
) -> list[str]:
    """Return the lines of an iteration, which follow the lines of its requests in a file.

    With `full=False`, the iteration was interrupted. Such an iteration has only the points for the
    numbers of bytes.
    """
    tags = _STOCK_ITERATION_TAGS if stock else "{}"
    values = ("138", "123", go_float(duration_ns / 1e6), "1")
    pairs = list(zip(_ITERATION_METRICS, values, strict=True))
    return [point_line(name, end_ns, value, tags) for name, value in (pairs if full else pairs[:2])]


def announce(lines: list[str]) -> list[str]:
    """Insert the line that declares each metric before the metric's first point, as k6 does."""
    seen: set[str] = set()
    result = []
    for line in lines:
        name = json.loads(line)["metric"]
        if name not in seen:
            seen.add(name)
            result.append(metric_line(name))
        result.append(line)
    return result


def write_lines(path: Path, lines: list[str]) -> Path:
    """Write lines to `path`, compressed if its name ends in .gz; return `path`."""
    data = ("\n".join(lines) + "\n").encode() if lines else b""
    path.write_bytes(gzip.compress(data, 6) if path.suffix == ".gz" else data)
    return path


def write_large(
    path: Path, iterations: int, *, vus=3000, stock_tags=True, level=5
) -> tuple[int, int]:
    """Write a gzip file of many iterations with one request each, in O(1) memory.

    There are 9,500 iterations/s by `vus` users. As in real files of k6, iterations do not end in
    the order in which they began. Return the number of lines, and the number of bytes before
    compression.
    """
    rng = np.random.default_rng(7)
    block = [
        metric_line(name) for name in (*REQUEST_METRICS, *_ITERATION_METRICS, *_SECOND_METRICS)
    ]
    lines = written = 0
    with gzip.open(path, "wb", compresslevel=level) as out:
        for first in range(0, iterations, 9_500):
            for request in _large_requests(
                rng, np.arange(first, min(first + 9_500, iterations)), vus
            ):
                block += request_lines(request, stock=stock_tags)
                length = request.duration + request.blocked + 41_000
                block += iteration_lines(request.end_ns + 41_000, length, stock=stock_tags)
            now = EPOCH_NS + first // 9_500 * 10**9 + 4_321
            block += [point_line(name, now, str(vus), "{}") for name in _SECOND_METRICS]
            lines += len(block)
            written += out.write(("\n".join(block) + "\n").encode())
            block = []
    return lines, written


def _large_requests(
    rng: np.random.Generator, numbers: np.ndarray[Any, Any], vus: int
) -> Iterator[Request]:
    count = numbers.size
    new = numbers < vus
    connecting = np.where(new, rng.integers(50_000, 5_000_000, count), 0)
    failed = rng.random(count) < 0.001
    columns = {
        "end_ns": (EPOCH_NS + (numbers / 9_500 * 1e9 + rng.exponential(2e7, count))).astype(
            np.int64
        ),
        "blocked": connecting
        + np.where(new, rng.integers(2_000, 90_000, count), rng.integers(900, 9_000, count)),
        "connecting": connecting,
        "sending": rng.integers(4_000, 90_000, count),
        "waiting": rng.lognormal(np.log(2.4e8), 0.35, count).astype(np.int64),
        "receiving": rng.integers(9_000, 200_000, count),
        "status": np.where(failed, 500, 200),
        "error_code": np.where(failed, 1500, 0),
    }
    return map(Request, *(column.tolist() for column in columns.values()))
