"""Make the tables of a script's load: its endpoints, its checks, and its thresholds.

A percentile of an endpoint is exact: DuckDB sorts the requests of each endpoint, on disk if memory
is short.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.k6 import RequestNumbers
from runner.digest.labels import Labels
from runner.model import OTHER_ENDPOINTS, Trial, carried_percent
from runner.store import replacing

MOST_ENDPOINTS = 200
"""Highest number of endpoints of a trial; the last one holds all others."""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
"""Percentiles in the tables; one is null if too few requests lie beyond it."""


@dataclass(frozen=True)
class _Kind:
    """A way to divide the requests: the key of each label, and the columns of each key."""

    keys: Mapping[int, int]
    columns: Sequence[Mapping[str, Any]]


def write_script_tables(
    targets: Mapping[str, Path],
    trial: Trial,
    database: duckdb.DuckDBPyConnection,
    points: RequestNumbers,
) -> None:
    """Write the parts `endpoints`, `checks` and `users` of a trial.

    The rows are those of the views of `k6._open_spool`.
    """
    known = {
        "trial_id": trial.trial_id,
        "server": trial.cell.server,
        "load": trial.cell.load_id,
    }
    rows = [
        {**known, **row}
        for kind in _kinds(database, points)
        for row in _rows(database, points, kind)
    ]
    _write(targets["endpoints"], "endpoints", rows)
    checks = [{**known, **row} for row in _checks(points)]
    _write(targets["checks"], "checks", checks)
    users = database.sql(_USERS, params={"first_ns": points.first_start_ns})
    rows = [{**known, **row} for row in users.to_arrow_table().to_pylist()]
    _write(targets["users"], "users", rows)


def _write(path: Path, table: str, rows: list[dict[str, Any]]) -> None:
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_of(table)), temporary)


# --- the endpoints --------------------------------------------------------------------------------


def _kinds(database: duckdb.DuckDBPyConnection, points: RequestNumbers) -> Iterable[_Kind]:
    """Yield the division by endpoint, and those by group and by scenario if there are several."""
    counts = dict(database.sql("SELECT label, count(*) FROM requests GROUP BY label").fetchall())
    labels = {number: points.labels[number] for number in sorted(counts)}
    yield _by_endpoint(labels, counts, points.urls)
    for name in ("group", "scenario"):
        values = list(dict.fromkeys(getattr(label, name) for label in labels.values()))
        if len(values) > 1:
            keys = {number: values.index(getattr(each, name)) for number, each in labels.items()}
            urls = _sums(keys, points.urls)
            columns = [{name: value, "urls": urls[key]} for key, value in enumerate(values)]
            yield _Kind(keys, columns)


def _by_endpoint(
    labels: Mapping[int, Labels], counts: Mapping[int, int], urls: Mapping[int, int]
) -> _Kind:
    """Return the division by endpoint; the rarest beyond MOST_ENDPOINTS are one."""
    origins = {_origin(label.url) for label in labels.values() if label.url}
    only = origins.pop() if len(origins) == 1 else ""
    found = {number: _endpoint(label, only) for number, label in labels.items()}
    requests: Counter[str] = Counter()
    for number, each in found.items():
        requests[each] += counts[number]
    names = [name for name, _ in requests.most_common() if name != OTHER_ENDPOINTS]
    if len(names) > MOST_ENDPOINTS or OTHER_ENDPOINTS in requests:
        names = [*names[: MOST_ENDPOINTS - 1], OTHER_ENDPOINTS]
    places = {name: place for place, name in enumerate(names)}
    keys = {number: places.get(each, len(names) - 1) for number, each in found.items()}
    of_names = {each: labels[number] for number, each in found.items()}
    sums = _sums(keys, urls)
    columns = []
    for place, name in enumerate(names):
        label = of_names.get(name, Labels())
        texts = {"endpoint": name, "method": label.method or None, "name": label.name or None}
        columns.append({**texts, "urls": sums[place]})
    return _Kind(keys, columns)


def _endpoint(label: Labels, only_origin: str) -> str:
    """Return the name of an endpoint; a URL is without its origin if all share one."""
    where = label.name or label.url.removeprefix(only_origin) or "(no URL)"
    return " ".join(filter(None, (label.method, where)))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _sums(keys: Mapping[int, int], counts: Mapping[int, int]) -> Mapping[int, int]:
    """Return the sums of the labels' counts by key."""
    sums: defaultdict[int, int] = defaultdict(int)
    for number, key in keys.items():
        sums[key] += counts.get(number, 0)
    return sums


_COUNTS = """
    SELECT key, count(*) AS requests, count(*) FILTER (NOT ok) AS failed,
           sum(occupied_ms) AS occupied_ms, fsum(latency) / count(*) AS latency_mean_ms,
           count(*) FILTER (latency > $slow_ms) AS slow
    FROM (SELECT *, {published} AS latency FROM requests) JOIN keys USING (label)
    GROUP BY key ORDER BY key
"""
_SORTED = """
    SELECT key, {published} AS ms FROM requests JOIN keys USING (label) ORDER BY key, ms
"""
_FAILURES = """
    SELECT key, status, error_code, count(*) AS failed
    FROM requests JOIN keys USING (label) WHERE NOT ok
    GROUP BY ALL ORDER BY key, failed DESC, status, error_code
"""


def _rows(
    database: duckdb.DuckDBPyConnection, points: RequestNumbers, kind: _Kind
) -> Iterable[dict[str, Any]]:
    """Yield a row for each key, in the order of its columns."""
    published = "duration_ms" if points.mode == "keepalive" else "occupied_ms"
    keys = pa.table({"label": list(kind.keys), "key": list(kind.keys.values())})
    database.register("keys", keys)
    slow = {"slow_ms": points.latency["p99"]}
    found = database.sql(_COUNTS.format(published=published), params=slow)
    counts = found.to_arrow_table().to_pylist()
    all_slow = sum(each["slow"] for each in counts)
    failures: defaultdict[int, list[str]] = defaultdict(list)
    for key, status, error_code, failed in database.sql(_FAILURES).fetchall():
        failures[key].append(f"{failed} x {_failure(status, error_code)}")
    latencies = _percentiles(database, [each["requests"] for each in counts], published)
    seconds = max((points.last_end_ns - points.first_start_ns) / 1e9, 1e-9)
    ((iterations_ms,),) = database.sql("SELECT sum(length_ms) FROM iterations").fetchall()
    for each, latency in zip(counts, latencies, strict=True):
        occupied_ms = each.pop("occupied_ms")
        key = each.pop("key")
        slow_requests = each.pop("slow")
        yield {
            **kind.columns[key],
            **each,
            **latency,
            "rps": each["requests"] / seconds,
            "failures": "; ".join(failures[key][:8]) or None,
            "share_of_slowest": slow_requests / all_slow if all_slow else None,
            "share_of_iteration": occupied_ms / iterations_ms if iterations_ms else None,
        }
    database.unregister("keys")


def _failure(status: int, error_code: int) -> str:
    """Return a failure in words: its status, or k6's code of an error without an answer."""
    return f"status {status}" if status else f"k6 error {error_code}"


def _percentiles(
    database: duckdb.DuckDBPyConnection, requests: Sequence[int], published: str
) -> list[dict[str, float | None]]:
    """Return the latency columns of each key, whose requests are counted in the keys' order."""
    wanted = []
    begin = 0
    for count in requests:
        carried = carried_percent(count)
        percents = {
            f"latency_{name}_ms": percent
            for name, percent in PERCENTILES.items()
            if carried is not None and percent <= carried
        }
        if carried is not None:
            percents["latency_tail_ms"] = carried
        ranks = {name: begin + percent / 100 * (count - 1) for name, percent in percents.items()}
        wanted.append((carried, ranks))
        begin += count
    places = sorted(
        {end for _, ranks in wanted for rank in ranks.values() for end in _around(rank)}
    )
    database.sql(_SORTED.format(published=published)).create("sorted_by_key")
    found = database.table("sorted_by_key").filter(f"list_contains({places}::BIGINT[], rowid)")
    at = dict(found.project("rowid, ms").fetchall())
    database.execute("DROP TABLE sorted_by_key")
    return [
        {
            "latency_tail_percent": carried,
            **{
                name: at[low] + (at[high] - at[low]) * (rank % 1)
                for name, rank in ranks.items()
                for low, high in (_around(rank),)
            },
        }
        for carried, ranks in wanted
    ]


def _around(rank: float) -> tuple[int, int]:
    return math.floor(rank), math.ceil(rank)


# --- the users and the checks ---------------------------------------------------------------------


_USERS = """
    SELECT (at_ns - $first_ns) / 1e9 AS t_s,
           max(vus) FILTER (NOT allocated)::BIGINT AS users,
           max(vus) FILTER (allocated)::BIGINT AS allocated
    FROM users GROUP BY at_ns ORDER BY at_ns
"""


def _checks(points: RequestNumbers) -> Iterable[dict[str, Any]]:
    """Yield a row for each check of the script, with the seconds at which it failed."""
    for number, checked in points.checked.items():
        label = points.labels[number]
        yield {
            "check": label.check,
            "group": label.group or None,
            "scenario": label.scenario or None,
            "passes": checked.passes,
            "fails": checked.fails,
            "first_fail_s": _since(checked.first_fail_ns, points),
            "last_fail_s": _since(checked.last_fail_ns, points),
        }


def _since(at_ns: int, points: RequestNumbers) -> float | None:
    """Return seconds since the begin of the load; None for no time."""
    return (at_ns - points.first_start_ns) / 1e9 if at_ns else None
