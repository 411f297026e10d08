"""Write the tables `endpoints`, `checks` and `users` for the loads of users' scripts.

The percentiles of an endpoint are exact, because DuckDB sorts the latencies of all requests of the
endpoint. If memory is short, DuckDB sorts on disk.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.k6 import DUCKDB_MB, RequestNumbers, connect
from runner.digest.k6_raw import SET_UP_PORT
from runner.digest.labels import Checked, Labelling, Labels
from runner.model import OTHER_ENDPOINTS, Trial, carried_percent
from runner.store import Values, replacing

MOST_ENDPOINTS = 200
"""The table of endpoints has at most this many endpoints per trial.

If the script requests more endpoints, the trial's last endpoint in the table stands for all
endpoints that are requested too rarely to have their own row.
"""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
"""Latency percentiles in the tables, by the name that their columns contain.

The column of a percentile is null if too few requests were slower than the percentile.
"""


@dataclass(frozen=True)
class _Load:
    """What the tables need to know about a script's load: labels, results of checks, mode, times.

    The requests, iterations and users of the load are not here, but in views of a DuckDB database.
    """

    labelling: Labelling
    checked: Mapping[int, Checked]
    """Results of the script's checks, by the number of the check's label."""
    mode: str
    first_start_ns: int
    last_end_ns: int
    slow_ms: float
    """99th percentile of the load's latency. A request with a higher latency counts as slow."""
    has_set_up: bool = False
    """True if setup() or teardown() sent requests.

    The database's view `every` contains these requests, but its view `requests` does not.
    """


@dataclass(frozen=True)
class ScriptSlice:
    """A script's requests in one slice of a session.

    The requests, iterations and users of the slice are in three files, as rows. Each row of a
    request has the number of the request's label in `labelling`.
    """

    labelling: Labelling
    checked: Mapping[int, Checked]
    first_start_ns: int
    files: Mapping[str, Path]
    """Paths of the three files, by the names of the DuckDB views from which the rows come."""


@dataclass(frozen=True)
class _Kind:
    """A way to divide the requests into groups, such as endpoints.

    Each group has a number, counted from 0, which is called the key of the group.
    """

    keys: Mapping[int, int]
    """Mapping from the number of a label to the key of a group.

    Requests with this label belong to this group.
    """
    columns: Sequence[Mapping[str, Any]]
    """One mapping per group, in the order of the groups' keys.

    The mapping has the values of the columns that describe the group, by the name of the column.
    """
    view: str = "requests"


def write_script_tables(
    targets: Mapping[str, Path],
    trial: Trial,
    database: duckdb.DuckDBPyConnection,
    points: RequestNumbers,
) -> None:
    """Write a trial's parts of the tables `endpoints`, `checks` and `users`.

    A part is a file with the trial's rows of one table. `targets` has the paths of the parts, by
    the name of the table. `database` has the views that `k6._open_spool` creates.
    """
    load = _Load(
        labelling=points.labelling,
        checked=points.checked,
        mode=points.mode,
        first_start_ns=points.first_start_ns,
        last_end_ns=points.last_end_ns,
        slow_ms=points.latency["p99"],
        has_set_up=points.set_up > 0,
    )
    _write_tables(targets, trial, database, load)


_OF_SLICES = {
    "requests": "label, status, error_code, ok, duration_ms, occupied_ms",
    "iterations": "length_ms",
    "users": "at_ns, vus, allocated",
}
"""The columns of each view that are kept for a slice, by the name of the view."""


def keep_slice(
    place: Callable[[str], Path], database: duckdb.DuckDBPyConnection, points: RequestNumbers
) -> ScriptSlice:
    """Keep the rows of one slice for `write_tables_of_slices`.

    `place` is a function that gets the name of a view, and returns the path of the file into which
    the view's rows are written.
    """
    files = {}
    for view, names in _OF_SLICES.items():
        files[view] = place(view)
        files[view].parent.mkdir(parents=True, exist_ok=True)
        database.view(view).project(names).write_parquet(str(files[view]))
    return ScriptSlice(points.labelling, points.checked, points.first_start_ns, files)


def write_tables_of_slices(
    targets: Mapping[str, Path],
    trial: Trial,
    slices: Sequence[ScriptSlice],
    seconds: Sequence[float],
    mode: str,
    slow_ms: float,
) -> None:
    """Write a trial's parts of the tables `endpoints`, `checks` and `users` from all of its slices.

    In the tables, each slice begins when the slice before it ends, as if there were no pauses
    between the slices. `seconds` has the length of each slice. `targets` has the paths of the
    parts, by the name of the table. `mode` is the observed use of connections. A request with a
    latency above `slow_ms` counts as slow. The same label may have different numbers in two slices,
    so all labels get new numbers.
    """
    begin_ns = slices[0].first_start_ns
    labelling = Labelling()
    checked: dict[int, Checked] = {}
    with connect(targets["endpoints"].parent, DUCKDB_MB, threads=2) as database:
        views: defaultdict[str, list[duckdb.DuckDBPyRelation]] = defaultdict(list)
        at_ns = begin_ns
        for place, (each, length_s) in enumerate(zip(slices, seconds, strict=True)):
            numbers = labelling.numbers_of(each.labelling)
            later_ns = at_ns - each.first_start_ns
            _add_checks(checked, each, [int(number) for number in numbers], later_ns)
            renumbered = pa.table({"label": range(len(numbers)), "number": numbers})
            database.register(f"numbers_{place}", renumbered)
            for view, path in each.files.items():
                rows = database.read_parquet(str(path))
                if view == "requests":
                    rows = rows.join(database.view(f"numbers_{place}"), "label")
                    rows = rows.project("* REPLACE (number AS label)")
                if view == "users":
                    rows = rows.project(f"* REPLACE (at_ns + {later_ns} AS at_ns)")
                views[view].append(rows)
            at_ns += round(1e9 * length_s)
        for view, parts in views.items():
            whole = parts[0]
            for rows in parts[1:]:
                whole = whole.union(rows)
            whole.create_view(view)
        load = _Load(labelling, checked, mode, begin_ns, at_ns, slow_ms)
        _write_tables(targets, trial, database, load)


def _add_checks(
    checked: dict[int, Checked], of_slice: ScriptSlice, numbers: Sequence[int], later_ns: int
) -> None:
    """Add the results of one slice's checks to `checked`.

    `numbers` has the new number of each label. `later_ns` is added to the times of the slice.
    """
    for label, each in of_slice.checked.items():
        whole = checked.setdefault(numbers[label], Checked())
        whole.passes += each.passes
        whole.fails += each.fails
        if each.fails:
            whole.first_fail_ns = whole.first_fail_ns or each.first_fail_ns + later_ns
            whole.last_fail_ns = each.last_fail_ns + later_ns


def _write_tables(
    targets: Mapping[str, Path],
    trial: Trial,
    database: duckdb.DuckDBPyConnection,
    load: _Load,
) -> None:
    """Write a trial's parts of the tables `endpoints`, `checks` and `users`."""
    known = {
        "trial_id": trial.trial_id,
        "server": trial.cell.server,
        "load": trial.cell.load_id,
    }
    rows = [
        {**known, **row} for kind in _kinds(database, load) for row in _rows(database, load, kind)
    ]
    _write(targets["endpoints"], "endpoints", rows)
    checks = [{**known, **row} for row in _checks(load)]
    _write(targets["checks"], "checks", checks)
    users = database.sql(_USERS, params={"first_ns": load.first_start_ns})
    rows = [{**known, **row} for row in users.to_arrow_table().to_pylist()]
    _write(targets["users"], "users", rows)


def _write(path: Path, table: str, rows: list[Values]) -> None:
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_of(table)), temporary)


# --- rows of the table `endpoints` ----------------------------------------------------------------


def _kinds(database: duckdb.DuckDBPyConnection, load: _Load) -> Iterable[_Kind]:
    """Yield the ways to divide the requests: by endpoint, by the script's groups, by scenario.

    If all requests belong to the same group of the script, the division by group is left out. If
    all requests belong to the same scenario, the division by scenario is left out.
    """
    counts = _counts(database, "requests")
    labels = {number: load.labelling.labels[number] for number in sorted(counts)}
    yield _by_endpoint(labels, counts, load.labelling)
    of_groups = labels
    view = "requests"
    if load.has_set_up:
        view = "with_set_up"
        database.view("every").filter(f"own OR port = {SET_UP_PORT}").create_view(view)
        numbers = sorted(_counts(database, view))
        of_groups = {number: load.labelling.labels[number] for number in numbers}
    for name, of_kind, of_view in (("group", of_groups, view), ("scenario", labels, "requests")):
        values = list(dict.fromkeys(getattr(label, name) for label in of_kind.values()))
        if len(values) > 1:
            keys = {number: values.index(getattr(each, name)) for number, each in of_kind.items()}
            urls = _urls(keys, load.labelling)
            columns = [{name: value, "urls": urls[key]} for key, value in enumerate(values)]
            yield _Kind(keys, columns, of_view)


def _counts(database: duckdb.DuckDBPyConnection, view: str) -> dict[int, int]:
    """Return the number of a view's requests with each label, by the number of the label."""
    rows = database.view(view).aggregate("label, count(*)", "label").fetchall()
    return dict(rows)


def _by_endpoint(
    labels: Mapping[int, Labels], counts: Mapping[int, int], labelling: Labelling
) -> _Kind:
    """Return the division of the requests by endpoint.

    If there are more than MOST_ENDPOINTS endpoints, the rarest endpoints become a single endpoint.
    """
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
    urls = _urls(keys, labelling)
    columns = []
    for place, name in enumerate(names):
        label = of_names.get(name, Labels())
        texts = {"endpoint": name, "method": label.method or None, "name": label.name or None}
        columns.append({**texts, "urls": urls[place]})
    return _Kind(keys, columns)


def _endpoint(label: Labels, only_origin: str) -> str:
    """Return the name of an endpoint: the method, and the name or the URL of the request.

    The URL is used only if the request has no name. `only_origin` is the origin that all URLs of
    the load share, and is left out of the URL. If the URLs have several origins, `only_origin` is
    empty.
    """
    where = label.name or label.url.removeprefix(only_origin) or "(no URL)"
    return " ".join(filter(None, (label.method, where)))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _urls(keys: Mapping[int, int], labelling: Labelling) -> Mapping[int, int]:
    """Return the number of different URLs in each group, by the group's key."""
    labels: defaultdict[int, list[int]] = defaultdict(list)
    for number, key in keys.items():
        labels[key].append(number)
    return {key: labelling.different_urls(numbers) for key, numbers in labels.items()}


_COUNTS = """
    SELECT key, count(*) AS requests, count(*) FILTER (NOT ok) AS failed,
           sum(occupied_ms) AS occupied_ms, fsum(latency) / count(*) AS latency_mean_ms,
           count(*) FILTER (latency > $slow_ms) AS slow
    FROM (SELECT *, {published} AS latency FROM {view}) JOIN keys USING (label)
    GROUP BY key ORDER BY key
"""
_SORTED = """
    SELECT key, {published} AS ms FROM {view} JOIN keys USING (label) ORDER BY key, ms
"""
_FAILURES = """
    SELECT key, status, error_code, count(*) AS failed
    FROM {view} JOIN keys USING (label) WHERE NOT ok
    GROUP BY ALL ORDER BY key, failed DESC, status, error_code
"""


def _rows(database: duckdb.DuckDBPyConnection, load: _Load, kind: _Kind) -> Iterable[Values]:
    """Yield a row of the table `endpoints` for each group, in ascending order of the keys."""
    published = "duration_ms" if load.mode == "keepalive" else "occupied_ms"
    keys = pa.table({"label": list(kind.keys), "key": list(kind.keys.values())})
    database.register("keys", keys)
    slow = {"slow_ms": load.slow_ms}
    found = database.sql(_COUNTS.format(published=published, view=kind.view), params=slow)
    counts = found.to_arrow_table().to_pylist()
    all_slow = sum(each["slow"] for each in counts)
    failures: defaultdict[int, list[str]] = defaultdict(list)
    for key, status, error_code, failed in database.sql(
        _FAILURES.format(view=kind.view)
    ).fetchall():
        failures[key].append(f"{failed} x {_failure(status, error_code)}")
    latencies = _percentiles(database, [each["requests"] for each in counts], published, kind.view)
    seconds = max((load.last_end_ns - load.first_start_ns) / 1e9, 1e-9)
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
    """Return a text with the status of an answer, or k6's error code if there was no answer."""
    return f"status {status}" if status else f"k6 error {error_code}"


def _percentiles(
    database: duckdb.DuckDBPyConnection, requests: Sequence[int], published: str, view: str
) -> list[dict[str, float | None]]:
    """Return the latency columns of each group, in the order of the groups' keys.

    Each element of the result has the values of one group, by column of the table `endpoints`. A
    percentile is left out if too few requests of the group lie above it (`carried_percent`). If too
    few requests lie even above the median, `latency_tail_percent` is None.

    `requests` has the number of requests of each group, in the order of the keys. `published` is
    the column of the view `view` that has the published latency.
    """
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
    database.sql(_SORTED.format(published=published, view=view)).create("sorted_by_key")
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


# --- rows of the tables `users` and `checks` ------------------------------------------------------


_USERS = """
    SELECT (at_ns - $first_ns) / 1e9 AS t_s,
           max(vus) FILTER (NOT allocated)::BIGINT AS users,
           max(vus) FILTER (allocated)::BIGINT AS allocated
    FROM users GROUP BY at_ns ORDER BY at_ns
"""


def _checks(load: _Load) -> Iterable[Values]:
    """Yield a row for each check of the script, with the times when it first and last failed."""
    for number, checked in load.checked.items():
        label = load.labelling.labels[number]
        yield {
            "check": label.check,
            "group": label.group or None,
            "scenario": label.scenario or None,
            "passes": checked.passes,
            "fails": checked.fails,
            "first_fail_s": _since(checked.first_fail_ns, load),
            "last_fail_s": _since(checked.last_fail_ns, load),
        }


def _since(at_ns: int, load: _Load) -> float | None:
    """Return the seconds from the beginning of the load to `at_ns`; None if `at_ns` is 0."""
    return (at_ns - load.first_start_ns) / 1e9 if at_ns else None
