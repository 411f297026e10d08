"""Read files of leaderboards: TechEmpower, HttpArena, and web-frameworks by the-benchmarker."""

import math
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from runner.audit.formats.values import (
    JsonObject,
    Row,
    as_number,
    dict_of,
    dicts_of,
    list_of,
    sum_of,
)

ERRORS = ("4xx", "5xx", "connect", "read", "write", "timeout")
BY_QUERIES = {
    "query": "queryIntervals",
    "update": "queryIntervals",
    "cached_query": "cachedQueryIntervals",
}


def techempower(data: JsonObject, _source: str) -> Iterator[Row]:
    """Yield the rows of TechEmpower's results.json."""
    levels = [
        as_number(each) for each in list_of(data.get("concurrencyLevels")) if as_number(each) > 0
    ]
    languages = {
        str(each.get("name")): each.get("language") for each in dicts_of(data.get("testMetadata"))
    }
    days = dict_of(data.get("completed"))
    duration_s = as_number(data.get("duration"))
    for name, subjects in data["rawData"].items():
        test = str(name).replace("-", "_")
        key = BY_QUERIES.get(
            test, "pipelineConcurrencyLevels" if test == "plaintext" else "concurrencyLevels"
        )
        steps = list_of(data.get(key))
        for subject, entries in dict_of(subjects).items():
            for place, entry in enumerate(map(dict_of, list_of(entries))):
                step = as_number(steps[place]) if place < len(steps) else math.nan
                requests = as_number(entry.get("totalRequests"))
                by_queries = test in BY_QUERIES
                yield {
                    "row": f"{name}.{subject}[{place}]",
                    "subject": subject,
                    "language": languages.get(str(subject)),
                    "test": f"{name}, {step:g} queries" if by_queries else name,
                    "connections": max(levels, default=math.nan) if by_queries else step,
                    "depth": 16 if test == "plaintext" else 1,
                    "day": str(days.get(subject) or "")[:8],
                    "mode": "keepalive",
                    "load_model": "closed",
                    "tool": "wrk",
                    "rate": requests / duration_s if duration_s > 0 else math.nan,
                    "requests": requests,
                    "duration_s": duration_s,
                    "errors": sum_of(entry, ERRORS),
                    "expected": ("rate", "mean_ms"),
                    "elapsed_s": as_number(entry.get("endTime"))
                    - as_number(entry.get("startTime")),
                    "mean_ms": entry.get("latencyAvg"),
                    "stdev_ms": entry.get("latencyStdev"),
                    "max_ms": entry.get("latencyMax"),
                }


def arena_rows(data: Any, path: str = "") -> Iterator[JsonObject]:
    """Yield the rows of a file of HttpArena.

    A file of HttpArena is a list of rows, an object with the results of one framework, or an object
    with several tests. `path` contains the keys that lead to `data` in the file, separated by
    slashes. If a row does not name its test, the row's path becomes the name of the test.
    """
    if isinstance(data, dict) and "rps" in data:
        yield {"test": path, **data}
    elif isinstance(data, dict) and path.count("/") < 3:
        for name, value in data.items():
            shared = {"framework": data["framework"]} if "framework" in data else {}
            yield from ({**shared, **row} for row in arena_rows(value, f"{path}/{name}".strip("/")))
    elif path.count("/") < 3:
        for each in dicts_of(data):
            yield from arena_rows(each, path)


HTTP_2 = re.compile(r"(?<![a-z])(h2c?|http-?2|grpc)(?![a-z0-9])", re.IGNORECASE)
"""Pattern that the name of a test matches if the test uses HTTP/2.

In HTTP/2 a connection carries several requests at once, but the file does not say how many.
"""
ARENA = {
    **{
        "subject": "framework",
        "language": "language",
        "connections": "connections",
    },
    **{
        "rate": "rps",
        "target_rate": "target_rate",
        "mean_ms": "avg_latency",
        "p99_ms": "p99_latency",
    },
    **{"cpu_pct": "cpu", "bytes_per_s": "bandwidth", "duration_s": "duration"},
}


def arena(data: Any, source: str) -> Iterator[Row]:
    """Yield the rows of a file of HttpArena."""
    for row in arena_rows(data):
        has_streams = bool(HTTP_2.search(row["test"] or source))
        yield {
            **{ours: row.get(theirs) for ours, theirs in ARENA.items()},
            "test": row["test"] or source.rsplit(".", 1)[0],
            "cpu_given_pct": 100 * as_number(row.get("threads")),
            "expected": ("rate", "mean_ms", "p99_ms"),
            "requests": sum_of(row, (f"status_{each}xx" for each in (2, 3, 4, 5))),
            "errors": sum_of(row, ("status_4xx", "status_5xx")),
            "load_model": "open" if as_number(row.get("target_rate")) > 0 else "closed",
            "protocol": "h2" if has_streams else "",
            "depth": None if has_streams else row.get("pipeline"),
            "mode": "close" if as_number(row.get("reconnects")) > 0 else "",
        }


LABELS = {
    "total_requests_per_s": "rate",
    "total_requests": "requests",
    "duration_ms": "duration_s",
    "average_latency": "mean_ms",
    "standard_deviation": "stdev_ms",
    "minimum_latency": "min_ms",
    "percentile50": "p50_ms",
    "percentile90": "p90_ms",
    "percentile99": "p99_ms",
    "http_errors": "errors",
}
IN_US = 20.0
"""Median of all p50 above which the times in a file of web-frameworks are in microseconds.

Older files have times in microseconds. If the median is not above this number, the file's times are
in seconds.
"""


def web_frameworks(data: JsonObject, _source: str) -> Iterator[Row]:
    """Yield the rows of web-frameworks' data.min.json."""
    named = {str(each.get("id")): each for each in dicts_of(data.get("frameworks"))}
    cells: dict[tuple[str, float], Row] = {}
    for metric in dicts_of(data["metrics"]):
        key = str(metric.get("framework_id")), as_number(metric.get("level"))
        if (column := LABELS.get(str(metric.get("label")))) is not None:
            cells.setdefault(key, {})[column] = as_number(metric.get("value"))
    middle = pd.Series(
        [row["p50_ms"] for row in cells.values() if row.get("p50_ms", -1) > 0], dtype=float
    ).median()
    scale = 1e-3 if middle > IN_US else 1e3
    for (identity, level), row in cells.items():
        known = named.get(identity, {})
        times = {
            name: value * scale if value != -1 else -1
            for name, value in row.items()
            if name.endswith("_ms")
        }
        yield {
            **row,
            **times,
            "duration_s": row.get("duration_s", math.nan) / 1e3,
            "connections": level,
            "subject": known.get("label") or f"framework {identity}",
            "language": known.get("language"),
            "row": f"framework {identity}, level {level:g}",
            "test": "requests",
            "load_model": "closed",
            "day": str(data.get("updated_at") or "")[:10],
        }
