"""Files of k6 samples with known contents, and an independent reader that pairs them line by line."""

import gzip
import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from k6_files import EPOCH_NS, Request, announce, go_float, iteration_lines, point_line, request_lines

from runner.digest.k6 import K6Points, TrendStats, digest_k6

US = 1_000
MS = 1_000_000
S = 1_000_000_000


def make_request(rng: random.Random, number: int) -> Request:
    status = rng.choice([200] * 8 + [201, 302, 404, 500, 0])
    connecting = rng.choice([0, rng.randrange(MS)])
    lost = status == 0 and rng.random() < 0.5  # k6 made the connection, and did not hand it over
    return Request(
        end_ns=EPOCH_NS + S + number * 3 * MS + rng.randrange(20 * MS),
        blocked=0 if lost else connecting + rng.randrange(50, 9_000),
        connecting=connecting,
        sending=rng.randrange(50 * US),
        waiting=rng.randrange(300 * MS),
        receiving=rng.randrange(200 * US),
        status=status,
        error_code=1212 if status == 0 else 1000 + status if status >= 400 else 0,
    )


def users_points(rng: random.Random, end_ns: int) -> list[str]:
    odd = json.dumps({"status": "weird", "x": 'a"]}\\,é\n', "value": "7"})
    return [
        point_line("my_trend", end_ns, go_float(rng.choice([0.00001, 1e22, 5, -3.5])), odd),
        point_line("http_req_mine", end_ns, "1", "{}"),
        point_line("checks", end_ns, "1", '{"check":"http_reqs"}'),
    ]


def make_lines(seed: int, iterations: int, *, stock: bool = False) -> tuple[list[str], list[Request]]:
    """Iterations of 0 to 4 requests each, with users' metrics between, some interrupted, some without callback."""
    rng = random.Random(seed)
    lines: list[str] = []
    made: list[Request] = []
    for number in range(iterations):
        for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
            made.append(make_request(rng, number))
            lines += request_lines(made[-1], stock=stock, failed_point=rng.random() < 0.9)
            if rng.random() < 0.3:
                lines += users_points(rng, made[-1].end_ns)
        end = EPOCH_NS + 2 * S + number * 3 * MS
        lines += iteration_lines(end, 500 * MS, stock=stock, full=rng.random() < 0.95)
    return announce(lines), made


def plain(end_ns: int = EPOCH_NS, waiting: int = MS) -> Request:
    """A request of a millisecond on a connection that was there."""
    return Request(end_ns, 0, 0, 0, waiting, 0)


def digest(raw: Path, mode: str = "keepalive", **options: Any) -> K6Points:
    tables = (raw.parent / "out" / f"{name}.parquet" for name in ("requests", "latency", "throughput"))
    return digest_k6(raw, *tables, trial_id="t1", mode=mode, scratch=raw.parent / "scratch", **options)


def read_table(raw: Path, name: str) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(raw.parent / "out" / f"{name}.parquet").to_pydict()
    return columns


def time_ns(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time with any offset and up to 9 digits."""
    stamp, zone = (text[:-1], "+00:00") if text.endswith("Z") else (text[:-6], text[-6:])
    whole, _, fraction = stamp.partition(".")
    return int(datetime.fromisoformat(whole + zone).timestamp()) * S + int(fraction.ljust(9, "0") or 0)


def read_slowly(raw: Path) -> list[dict[str, Any]]:
    """Pair points the obvious way: a line of http_reqs opens a request, the lines after it belong to it."""
    text = gzip.decompress(raw.read_bytes()) if raw.suffix == ".gz" else raw.read_bytes()
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        record = json.loads(line)
        metric, data = record["metric"], record["data"]
        if record["type"] != "Point":
            continue
        if metric == "http_reqs":
            status, error_code = (int(data["tags"].get(name, 0)) for name in ("status", "error_code"))
            found.append({"end": time_ns(data["time"]), "status": status, "error_code": error_code})
        elif metric.startswith("http_req_") and metric not in ("http_req_mine", "http_req_my_trend"):
            assert time_ns(data["time"]) == found[-1]["end"]
            assert metric not in found[-1]
            found[-1][metric] = data["value"]
    return found


def assert_trend(trend: TrendStats, values_ms: Any) -> None:
    """These are the statistics of these values."""
    assert (trend.count, trend.min, trend.max) == (len(values_ms), np.min(values_ms), np.max(values_ms))
    assert trend.mean == pytest.approx(np.mean(values_ms), rel=1e-12)
    quantiles = [trend.p50, trend.p90, trend.p95, trend.p99, trend.p999]
    assert quantiles == pytest.approx(list(np.quantile(values_ms, [0.5, 0.9, 0.95, 0.99, 0.999])), rel=1e-12)


def assert_same(raw: Path, points: K6Points, mode: str = "keepalive") -> None:
    """Tables and numbers equal those of the slow reader."""
    slow = read_slowly(raw)
    table = read_table(raw, "requests")
    assert points.requests == len(slow) == len(table["t_s"])
    names = {f"{each}_ms": f"http_req_{each}" for each in ("blocked", "connecting", "sending", "waiting", "receiving")}
    for column, name in (names | {"status": "status", "error_code": "error_code"}).items():
        assert table[column] == [row[name] for row in slow]
    ok = [200 <= row["status"] < 400 and not row["error_code"] for row in slow]
    assert table["ok"] == ok
    assert (points.failed, points.with_status) == (ok.count(False), sum(row["status"] != 0 for row in slow))
    durations = np.array([row["http_req_duration"] for row in slow])
    made = [row["http_req_connecting"] + row["http_req_tls_handshaking"] for row in slow]
    whole = durations + np.maximum([row["http_req_blocked"] for row in slow], made)
    published = whole if mode == "close" else durations
    assert table["latency_ms"] == list(published)
    assert_trend(points.latency, published)
    assert_trend(points.durations, durations)
    first = min(row["end"] - round(occupied * 1e6) for row, occupied in zip(slow, whole, strict=True))
    assert (points.first_start_ns, points.last_end_ns) == (first, max(row["end"] for row in slow))
    assert table["t_s"] == pytest.approx([(row["end"] - first) / 1e9 for row in slow], abs=1e-9)
