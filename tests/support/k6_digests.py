"""Random samples and a fixed summary in the formats of k6, and functions that digest samples."""

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
from k6_files import EPOCH_NS, Request, announce, iteration_lines, point_line, request_lines

from runner.digest.k6 import RequestNumbers, digest_requests

US = 1_000
MS = 1_000_000
S = 1_000_000_000

TREND = {
    "avg": 2.5,
    "min": 1,
    "med": 2,
    "max": 9.5,
    "p(90)": 5,
    "p(95)": 6,
    "p(99)": 8,
    "p(99.9)": 9,
}
COUNTS = {"iterations": 10, "dropped_iterations": 2, "http_reqs": 12}
SUMMARY = {
    "root_group": {},
    "metrics": {
        **{name: {"count": count, "rate": 3.5} for name, count in COUNTS.items()},
        **{"http_req_duration": {**TREND, "count": 12}, "iteration_duration": TREND},
        "checks": {"passes": 5, "fails": 1},
    },
}


def make_request(rng: random.Random, number: int) -> Request:
    status = rng.choice([200] * 8 + [201, 302, 404, 500, 0])
    connecting = rng.choice([0, rng.randrange(MS)])
    # For a request that is `lost`, k6 opened a connection, but then did not use this connection.
    lost = status == 0 and rng.random() < 0.5
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
        point_line("my_trend", end_ns, rng.choice(["1e-05", "1e+22", "5", "-3.5"]), odd),
        point_line("http_req_mine", end_ns, "1", "{}"),
        point_line("checks", end_ns, "1", '{"check":"http_reqs"}'),
    ]


def make_lines(
    seed: int, iterations: int, *, stock: bool = False
) -> tuple[list[str], list[Request]]:
    """Return the lines of random iterations, and the requests of these iterations.

    An iteration has 0 to 4 requests. Some iterations are interrupted. Some requests have no
    responseCallback. After some requests, there are points of a user's own metrics and checks.
    """
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
    """Return a request on a connection that is already open.

    The request waits for its answer during its whole duration, by default 1 ms. Both arguments are
    in ns.
    """
    return Request(end_ns, 0, 0, 0, waiting, 0)


def digest(raw: Path, mode: str = "keepalive", **options: Any) -> RequestNumbers:
    tables = (
        raw.parent / "out" / f"{name}.parquet" for name in ("requests", "latency", "throughput")
    )
    return digest_requests(
        raw, tables, trial_id="t1", mode=mode, scratch=raw.parent / "scratch", **options
    )


def read_table(raw: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(raw.parent / "out" / f"{name}.parquet")
