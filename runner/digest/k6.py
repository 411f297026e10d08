"""Digest k6's raw samples and summary into three tables and the numbers for the invariants.

k6_raw.py writes one row per request. This module runs SQL on these rows in DuckDB, which moves data
to disk if memory is short.

The module relies on these facts of k6's source (lib/netext/httpext/tracer.go, which is the same in
1.8.1 and 2.2.0):

- `time` is the end of the request, in wall-clock time.
- `http_req_blocked` is the time for which a request waits until it has a connection, so it contains
  `http_req_connecting` and `http_req_tls_handshaking`.
- `http_req_duration` = sending + waiting + receiving. This duration begins after connecting.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import func

from runner.digest.histogram import QUANTILES, bucket_index, latency_table
from runner.digest.k6_raw import (
    SET_UP_PORT,
    DamageError,
    GroupWriter,
    MissingRequestsError,
    Tally,
    spool_points,
)
from runner.model import JsonObject, LabError, carried_percent
from runner.store import read_json, replacing

CLOSED_SHARE = 0.99
"""Share that decides between the modes `close` and `mixed` if connections are not kept.

The mode is `close` if at least this share of the requests opened a new connection, and `mixed` if
fewer did. Requests whose connection could not be opened are not counted, because k6 reports no
connecting time for them.
"""
SETTLED = 0.1
"""The steady time of a load begins when this share of the load is over.

Before that, some virtual users may not have started, because they start one after the other.
"""
BIN_NS = 100_000_000  # width of a bin of the throughput table
GROUP_ROWS = 61_440  # rows in a row group of the table of requests
LONGEST_NS = 30 * 86_400 * 10**9
"""If two requests of a load are further apart than this, the clock was set during the load.

The file of such a load is refused, because the throughput table, which has one row per bin, would
become huge.
"""
MEMORY_MB = 400
"""Memory in MB that the whole process of a digest may need."""
DUCKDB_MB = 120
"""Memory limit of DuckDB in a digest, in MB. If DuckDB reaches the limit, it moves data to disk.

Python, Arrow and the blocks of lines need about 230 MB in addition. DuckDB may exceed the limit by
some tens of MB.
"""
BLOCKED = (1110, 1111)
"""Values of k6's `error_code` for a request to a blocked address or to a blocked host name.

Source: lib/netext/httpext/error_codes.go.
"""
TREND = {
    **{
        "mean": "avg",
        "min": "min",
        "p50": "med",
        "p90": "p(90)",
        "p95": "p(95)",
        "p99": "p(99)",
        "p999": "p(99.9)",
    },
    "max": "max",
}
"""Names of the statistics of a duration in k6's summary, by the lab's names of the statistics."""
OF_ONE_GENERATOR = (
    *("labelling", "checked", "thresholds", "kinds"),
    *("first_drop_ns", "last_drop_ns"),
)
"""Fields of a Tally that keep their default values if several generators share a load.

The generators' values of these fields cannot be added up. For example, the same label may have a
different number in each generator's file.
"""
FIRST_BYTE = ("p50", "p99")
"""The percentiles of the time to the first byte that the tables contain."""
SORTED_DURATIONS = "duration_ms_of_requests"
"""Name by which `quantiles_of` finds the sorted values of http_req_duration."""
Trend = Mapping[str, float]  # statistics in ms, by the lab's names; unknown ones are left out


class NoRequestsError(LabError):
    """An error that says that a file of k6 contains no HTTP request."""


@dataclass(frozen=True)
class Steady:
    """Numbers of the steady time of a load.

    The steady time begins when a tenth of the load is over, and ends when the last iteration
    begins.
    """

    seconds: float
    in_flight: float  # mean number of concurrent iterations within the steady time
    iteration_mean_ms: float  # mean duration of the iterations that ended in the steady time


@dataclass(frozen=True)
class PortUse:
    """Counts of the requests that a user's script sent to one port other than the server's port."""

    port: int
    requests: int
    failed: int


@dataclass(kw_only=True)
class RequestNumbers(Tally):
    """Numbers of a load's requests to the server, from the points in the raw file.

    A point is one value of one metric of k6. A request is `ok` if its status is 200 to 399 and it
    has no error_code.
    """

    failed: int  # requests that are not ok
    with_status: int  # responses received (status other than 0)
    script_runs: int
    """Number of data_sent points.

    k6 writes such a point at the end of each iteration, even of an interrupted iteration. k6 also
    writes one such point for setup() and one for teardown().
    """
    first_start_ns: int
    """Wall-clock time when the first request of the load began.

    The time when a request began is end - duration - max(blocked, connecting + tls).
    """
    last_end_ns: int
    durations: Trend
    """Exact statistics of http_req_duration, which never includes the time of connecting."""
    latency: Trend
    """Exact statistics of the published latency.

    If the mode is `keepalive`, the published latency is http_req_duration, and these statistics are
    equal to `durations`. In the other modes, the published latency also includes the time of
    connecting.
    """
    worst_residual_ms: float  # largest |sending + waiting + receiving - duration|
    iteration_max_ms: float  # largest iteration_duration; 0 without a completed iteration
    steady: Steady | None
    """Numbers of the steady time of the load.

    None if the load has no steady time, for example if no iteration was completed.
    """
    blocked: int = 0  # requests that k6 did not send, because their host or port was not allowed
    other_ports: tuple[PortUse, ...] = ()
    """Counts of the requests to each port other than the server's port, by ascending port.

    Of the latency statistics, only `all_durations` includes these requests.
    """
    all_durations: Trend | None = None
    """Statistics of http_req_duration over all requests of the script.

    `durations` leaves out requests to ports other than the server's port, and may leave out the
    requests of setup() and teardown(). These statistics include all of them. The value is None if
    `durations` leaves out no request.
    """
    proto: str | None = None
    """HTTP versions of the answers, the most frequent version first.

    None if the samples do not name the HTTP version.
    """
    tls_version: str | None = None
    opened: int = 0  # requests that opened a connection
    mode: str = "keepalive"
    """Observed use of connections: `keepalive`, `close` or `mixed`.

    The observed use may differ from the mode that the lab requested for the load.
    """
    answered_by_end: int = 0
    """Number of responses received by the planned end of the load.

    If no end was planned, all responses are counted.
    """
    tail_percent: float | None = None
    """Highest percentile of the latency above which enough requests lie (`carried_percent`).

    None if there are too few requests even for the median.
    """
    tail_ms: float | None = None  # published latency at `tail_percent`; None without `tail_percent`
    first_byte: Trend = field(default_factory=dict)
    """Exact percentiles of the time to the first byte of the answer, in ms.

    This time is the published latency without the time for receiving the answer. If no request was
    answered, there are no percentiles.
    """


def digest_requests(
    raw: Path,
    tables: Iterable[Path],
    *,
    trial_id: str,
    mode: str,
    scratch: Path,
    held: int | None = None,
    window_s: float | None = None,
    threads: int = 2,
    spool: Callable[..., Tally] = spool_points,
    look: Callable[[duckdb.DuckDBPyConnection, RequestNumbers], None] | None = None,
    look_at_rest: Callable[[duckdb.DuckDBPyConnection, Tally], None] | None = None,
) -> RequestNumbers:
    """Digest k6's raw points with limited memory, and return the numbers of the whole load.

    - `tables` are the output paths for requests, latency and throughput, in this order. If there
      are no paths, no table is written.
    - `mode` is the requested use of connections, and `held` is the number of connections that the
      load may hold. `mode_of` derives the observed mode from `mode`, `held` and the requests.
    - `scratch` is a folder for temporary files.
    - `window_s` is the planned duration of an open load, counted from the first request.
    - `spool` is the function that reads the raw file. Each generator other than k6 has its own
      function.
    - `look` is called with the database, so that the caller can read more from the views of
      `_open_spool`. If the file has no HTTP request, only `look_at_rest` is called, and then
      NoRequestsError is raised.

    In mode `keepalive`, the column `latency_ms` is http_req_duration. In the other modes it is the
    time from asking for a connection to the last byte: max(blocked, connecting + tls) + duration.
    Failed requests are included.

    If the raw file is damaged, raise LabError (exit code 1) with the file's name and the faulty
    line, and write no table.
    """
    if not raw.is_file():
        raise LabError(f"{raw} does not exist or is not a regular file.", exit_code=1)
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="k6-", dir=scratch) as name, ExitStack() as stack:
        try:
            tally = spool(raw, Path(name), threads=threads)
            database = stack.enter_context(_open_spool(Path(name), threads))
            points = _numbers_of_load(database, tally, mode, held, window_s)
            if look is not None:
                look(database, points)
            if targets := [stack.enter_context(replacing(path)) for path in tables]:
                _write_tables(database, targets, points, trial_id)
        except MissingRequestsError as rest:
            if look_at_rest is not None:
                look_at_rest(stack.enter_context(_open_spool(Path(name), threads)), rest.tally)
            raise NoRequestsError(f"{raw}, line {rest.line}: {rest.reason}.", 1) from None
        except DamageError as damage:
            where = f"{raw}, line {damage.line}" if damage.line else str(raw)
            raise LabError(f"{where}: {damage.reason}.", exit_code=1) from None
        except duckdb.Error as error:
            why = str(error).splitlines()[0]
            raise LabError(
                f"{raw} could not be read within the limit of {MEMORY_MB} MB of memory: {why}.",
                exit_code=1,
            ) from None
    return points


def spool_together(
    raw: Path,
    folder: Path,
    further: Sequence[tuple[Path, int]],
    *,
    threads: int = 2,
    salvage: bool = False,
) -> Tally:
    """Spool the raw files of several generators, each into its own folder within `folder`.

    Return a Tally with the sums of the files' counts. `raw` is the file of the first generator.
    `further` has the file of each further generator, and the number of nanoseconds to add to the
    times in this file. The addition converts the times to the wall clock of the first generator's
    host.
    """
    whole = Tally()
    for number, (path, behind_ns) in enumerate([(raw, 0), *further], start=1):
        part = folder / f"{number:03d}"
        part.mkdir()
        try:
            tally = spool_points(path, part, behind_ns=behind_ns, threads=threads, salvage=salvage)
        except DamageError as damage:
            raise DamageError(
                damage.line, f"{path.name}: {damage.reason}", cut=damage.cut
            ) from None
        for count in fields(Tally):
            if count.name not in OF_ONE_GENERATOR:
                setattr(whole, count.name, getattr(whole, count.name) + getattr(tally, count.name))
    return whole


def merge_summaries(summaries: Sequence[GeneratorSummary]) -> GeneratorSummary:
    """Merge the summaries of several generators.

    Counts and rates are added, and the mean is weighted by the numbers of requests. Percentiles are
    left out, because they cannot be computed from the summaries.
    """
    names = ("iterations", "dropped", "requests", "rps", "checks", "checks_failed")
    whole = GeneratorSummary(
        **{name: sum(getattr(each, name) for each in summaries) for name in names}
    )
    if not whole.requests:
        return whole
    trends = [(each.http_req_duration, each.requests) for each in summaries if each.requests]
    mean = sum(trend["mean"] * requests for trend, requests in trends) / whole.requests
    least = min(trend["min"] for trend, _ in trends)
    most = max(trend["max"] for trend, _ in trends)
    return replace(whole, http_req_duration={"mean": mean, "min": least, "max": most})


def mode_of(asked: str, opened: int, connected: int, held: int | None) -> str:
    """Return the observed use of a load's connections: `keepalive`, `close` or `mixed`.

    `asked` is the requested mode. If `held` is None, return `asked`.

    `opened` is the number of requests that opened a connection, and `connected` is the number of
    requests that had a new or a reused connection. If connections are reused, a user opens
    connections only for the user's first requests, so the load opens at most `held` connections. If
    the load opens more connections, the generator or the server closed some connections. In this
    case, the mode is `close` if nearly all of the `connected` requests opened a connection
    (CLOSED_SHARE), and `mixed` if fewer did.
    """
    if held is None:
        return asked
    if asked == "keepalive" and opened <= held:
        return "keepalive"
    return "close" if opened >= CLOSED_SHARE * connected else "mixed"


def connect(folder: Path, memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with limited memory and threads, which spills data into `folder`.

    DuckDB installs no extensions and shows no progress bar.
    """
    connection = duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": True,
        }
    )
    connection.execute("SET enable_progress_bar = false")
    return connection


# --- numbers of the whole load, from the spool ----------------------------------------------------


def _by_generator(spool: Path, name: str) -> list[str]:
    """Return the paths of all files NAME.parquet below `spool`, where NAME is `name`.

    Each generator has one such file. The paths are in the order of the generators' numbers.
    """
    return sorted(map(str, spool.rglob(f"{name}.parquet")))


def _open_spool(spool: Path, threads: int) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with the views `iterations`, `users`, `requests`, `every` and `watched`.

    `requests` has the columns that k6_raw.py writes, and also `ok` and `occupied_ms`, which is the
    time from asking for a connection to the last byte. `every` has the rows of `requests`, and in
    addition the rows of the files elsewhere.parquet (ELSEWHERE). In `every`, the column `own` is
    true for the rows of `requests`, and the column `port` has the port of each other row.

    The blocked time should contain the times of connecting and TLS. But if a connection was opened
    and then not used, k6 writes 0 as the blocked time. Therefore, if the sum of connecting and TLS
    is larger than the blocked time, `occupied_ms` uses this sum instead.
    """
    database = connect(spool, DUCKDB_MB, threads)
    requests = _by_generator(spool, "requests")
    database.read_parquet(_by_generator(spool, "iterations")).create_view("iterations")
    if users := _by_generator(spool, "users"):
        database.read_parquet(users).create_view("users")
    if watched := sorted(map(str, spool.rglob("watched.parquet"))):
        database.read_parquet(watched, file_row_number=True).create_view("watched")
    more = (
        "*, status BETWEEN 200 AND 399 AND error_code = 0 AS ok,"
        " greatest(blocked_ms, connecting_ms + tls_ms) + duration_ms AS occupied_ms"
    )
    database.read_parquet(requests).project(more).create_view("requests")
    every = database.view("requests").project("*, true AS own, NULL::INTEGER AS port")
    if elsewhere := sorted(map(str, spool.rglob("elsewhere.parquet"))):
        columns = ", ".join(each for each in every.columns if each not in ("own", "port"))
        others = (
            database.read_parquet(elsewhere).project(more).project(f"{columns}, false AS own, port")
        )
        every = every.union(others)
    every.create_view("every")
    return database


_FACTS = """
    SELECT min(end_ns - round_even(occupied_ms * 1e6, 0)::BIGINT)
               FILTER (port IS DISTINCT FROM $set_up) AS first_start_ns,
           max(end_ns) FILTER (port IS DISTINCT FROM $set_up) AS last_end_ns,
           count(*) FILTER (own AND NOT ok) AS failed,
           count(*) FILTER (own AND status <> 0) AS with_status,
           max(abs(sending_ms + waiting_ms + receiving_ms - duration_ms)) AS worst_residual_ms,
           count(*) FILTER (list_contains($blocked, error_code)) AS blocked,
           count(*) FILTER (own AND connecting_ms > 0) AS opened,
           count(*) FILTER (own AND (connecting_ms > 0 OR status <> 0)) AS connected,
           (SELECT coalesce(max(length_ms), 0) FROM iterations) AS iteration_max_ms
    FROM every
"""
_ANSWERS_BY_LABEL = "SELECT label, count(*) FROM requests WHERE status <> 0 GROUP BY label"
_OTHER_PORTS = """
    SELECT port, count(*) AS requests, count(*) FILTER (NOT ok) AS failed
    FROM every
    WHERE NOT own AND port <> $set_up AND NOT list_contains($blocked, error_code)
    GROUP BY port ORDER BY port
"""


def _numbers_of_load(
    database: duckdb.DuckDBPyConnection,
    tally: Tally,
    asked: str,
    held: int | None,
    window_s: float | None,
) -> RequestNumbers:
    """Return the numbers of a load's requests, from the views of `_open_spool`.

    `asked` is the requested use of connections. `digest_requests` explains `held` and `window_s`.
    Raise DamageError if the clock was set during the load.
    """
    params = {"blocked": BLOCKED, "set_up": SET_UP_PORT}
    facts = database.sql(_FACTS, params=params).to_arrow_table().to_pylist()[0]
    first_ns = facts["first_start_ns"]
    last_ns = facts["last_end_ns"]
    connected = facts.pop("connected")
    if last_ns - first_ns > LONGEST_NS:
        raise DamageError(
            tally.lines,
            "the requests up to here are more than 30 days apart, so the clock was set "
            "during the load",
        )
    mode = mode_of(asked, facts["opened"], connected, held)
    durations = _statistics(database, "duration_ms")
    published = "duration_ms" if mode == "keepalive" else "occupied_ms"
    latency = durations if mode == "keepalive" else _statistics(database, published)
    tail_percent = carried_percent(tally.requests)
    until_ns = last_ns if window_s is None else first_ns + round(window_s * 1e9)
    in_time = database.view("requests").filter(f"status <> 0 AND end_ns <= {until_ns}").count("*")
    ((answered,),) = in_time.fetchall()
    return RequestNumbers(
        **vars(tally),
        script_runs=tally.points["data_sent"],
        durations=durations,
        latency=latency,
        other_ports=_other_ports(database) if tally.elsewhere else (),
        all_durations=_statistics(database, "duration_ms", of="every") if tally.elsewhere else None,
        tail_percent=tail_percent,
        tail_ms=_tail_ms(database, published, tail_percent),
        first_byte=_first_byte(database, published),
        steady=steady_state(database),
        mode=mode,
        answered_by_end=answered,
        proto=_protocol(database, tally, "proto"),
        tls_version=_protocol(database, tally, "tls_version"),
        **facts,
    )


def _protocol(database: duckdb.DuckDBPyConnection, tally: Tally, name: str) -> str | None:
    """Return the values that the answers' labels have in the field `name`.

    `name` is `proto` or `tls_version`. Several values are joined by commas, the most frequent value
    first. Return None if no label has a value.
    """
    known = [getattr(label, name) for label in tally.labels]
    if not any(known):
        return None
    counts: Counter[str] = Counter()
    for number, answers in database.sql(_ANSWERS_BY_LABEL).fetchall():
        counts[known[number]] += answers
    return ", ".join(word for word, _ in counts.most_common() if word) or None


def _other_ports(database: duckdb.DuckDBPyConnection) -> tuple[PortUse, ...]:
    """Return counts of the requests to each port other than the server's port.

    Requests that k6 blocked are not counted.
    """
    given = {"blocked": BLOCKED, "set_up": SET_UP_PORT}
    found = database.sql(_OTHER_PORTS, params=given).to_arrow_table().to_pylist()
    return tuple(PortUse(**each) for each in found)


def _statistics(database: duckdb.DuckDBPyConnection, column: str, of: str = "requests") -> Trend:
    """Return exact statistics, in ms, of one latency column of the view `of`.

    Quantiles interpolate between order statistics, as k6 does (TrendSink.P). DuckDB sorts on disk
    if memory is short.
    """
    sorted_name = f"{column}_of_{of}"
    database.view(of).project(f"{column} AS ms").order("ms").create(f"sorted_{sorted_name}")
    ordered = database.table(f"sorted_{sorted_name}")
    ((mean, least, most),) = ordered.aggregate("fsum(ms) / count(*), min(ms), max(ms)").fetchall()
    return {
        "mean": mean,
        "min": least,
        "max": most,
        **quantiles_of(database, sorted_name, QUANTILES),
    }


def _tail_ms(
    database: duckdb.DuckDBPyConnection, published: str, percent: float | None
) -> float | None:
    """Return a percentile, in ms, of the latency in the column `published`.

    `percent` is the percentile. If it is None, because there are too few requests even for the
    median, return None.
    """
    if percent is None:
        return None
    return quantiles_of(database, f"{published}_of_requests", {"tail": percent / 100})["tail"]


def _first_byte(database: duckdb.DuckDBPyConnection, published: str) -> Trend:
    """Return percentiles of the time to the first byte of the answer.

    This time is the latency in the column `published` without the time for receiving the answer. If
    no request was answered, return an empty Trend.
    """
    answered = database.view("requests").filter("status <> 0")
    answered.project(f"{published} - receiving_ms AS ms").order("ms").create("sorted_first_byte")
    return quantiles_of(database, "first_byte", {name: QUANTILES[name] for name in FIRST_BYTE})


def quantiles_of(
    database: duckdb.DuckDBPyConnection, sorted_name: str, quantiles: Mapping[str, float]
) -> Trend:
    """Return quantiles of the times in the table `sorted_NAME`, where NAME is `sorted_name`.

    Return an empty Trend if the table has no rows.
    """
    ordered = database.table(f"sorted_{sorted_name}")
    ((count,),) = ordered.count("*").fetchall()
    if not count:
        return {}
    ranks = {name: q * (count - 1) for name, q in quantiles.items()}
    wanted = sorted(
        {whole for rank in ranks.values() for whole in (math.floor(rank), math.ceil(rank))}
    )
    at = dict(ordered.filter(f"list_contains({wanted}, rowid)").project("rowid, ms").fetchall())
    ends = {
        name: (at[math.floor(rank)], at[math.ceil(rank)], rank % 1) for name, rank in ranks.items()
    }
    return {name: low + (high - low) * part for name, (low, high, part) in ends.items()}


_STEADY = """
    WITH spans AS (  -- differences first: nanoseconds since the epoch are beyond a double's 53 bits
             SELECT (end_ns - origin_ns) / 1e9 AS end_s,
                    end_s - length_ms / 1000 AS start_s,
                    length_ms
             FROM iterations, (SELECT min(end_ns) AS origin_ns FROM iterations)),
         part AS (
             SELECT min(start_s) + $settled * (max(end_s) - min(start_s)) AS begin_s,
                    max(start_s) AS until_s
             FROM spans)
    SELECT any_value(until_s - begin_s),
           sum(greatest(0, least(end_s, until_s) - greatest(start_s, begin_s))),
           avg(length_ms) FILTER (end_s BETWEEN begin_s AND until_s)
    FROM spans, part
"""


def steady_state(database: duckdb.DuckDBPyConnection) -> Steady | None:
    """Return numbers of a load's steady time, from the rows of the view `iterations`.

    The rows may be in any order. Return None if the load has no steady time.

    The numbers serve to check Little's law: in a steady state, the mean number of requests under
    way is the rate of the requests times the mean time of a request (J. D. C. Little, A Proof for
    the Queuing Formula L = lambda W, Operations Research 9, 1961). In a closed loop without think
    time, every user always has a request under way. So the mean number of requests under way is the
    number of users, and the mean response time is the number of users divided by the throughput.
    """
    ((seconds, under_way_s, mean_ms),) = database.sql(
        _STEADY, params={"settled": SETTLED}
    ).fetchall()
    if seconds is None or seconds <= 0 or mean_ms is None:
        return None
    return Steady(seconds, under_way_s / seconds, mean_ms)


# --- from the views to the tables -----------------------------------------------------------------

_REQUESTS = """
    SELECT since_ns / 1e9 AS t_s, latency_ms,
           blocked_ms, connecting_ms, sending_ms, waiting_ms, receiving_ms,
           status, error_code, ok
    FROM answers
"""
_LATENCY = """
    SELECT since_ns // 1_000_000_000 AS second,
           bucket(latency_ms * 1000) AS bucket,
           count(*) AS count
    FROM answers GROUP BY ALL ORDER BY ALL
"""
_THROUGHPUT = """
    SELECT $trial_id AS trial_id, bin / $per_second AS t_s,
           coalesce(requests, 0) AS requests, coalesce(failed, 0) AS failed
    FROM range($bins) AS bins(bin)
    LEFT JOIN (SELECT since_ns // $bin_ns AS bin,
                      count(*) AS requests,
                      count(*) FILTER (NOT ok) AS failed
               FROM answers GROUP BY bin) USING (bin)
    ORDER BY bin
"""
"""Query that returns one row per bin, from the start of the load to the end of the last request.

In the row of a bin in which no request ended, the counts are 0, so that a stall is visible.
"""


def _write_tables(
    database: duckdb.DuckDBPyConnection,
    targets: Sequence[Path],
    points: RequestNumbers,
    trial_id: str,
) -> None:
    """Write the tables of requests, latency (a histogram per second) and throughput.

    `targets` has the paths of the three tables, in this order. docs/data.md describes the columns.
    """
    requests, latency, throughput = targets
    column = "duration_ms" if points.mode == "keepalive" else "occupied_ms"
    database.view("requests").project(
        f"*, end_ns - {points.first_start_ns} AS since_ns, {column} AS latency_ms"
    ).create_view("answers")
    rows = database.sql(_REQUESTS).to_arrow_reader(GROUP_ROWS)
    doubles = [each.name for each in rows.schema if pa.types.is_float64(each.type)]
    encoding: dict[str, object] = {
        "use_dictionary": ["status", "error_code"],
        "use_byte_stream_split": doubles,
    }
    with GroupWriter(
        requests, rows.schema, GROUP_ROWS, compression="zstd", compression_level=1, **encoding
    ) as writer:
        for batch in rows:
            writer.write(batch)
    database.create_function(
        "bucket",
        lambda us: pa.array(bucket_index(us.to_numpy())),
        ["DOUBLE"],
        "BIGINT",
        type=func.ARROW,
    )
    histogram = database.sql(_LATENCY).fetchnumpy()
    pq.write_table(latency_table(trial_id, **histogram), latency, compression="zstd")
    bins = {"bins": (points.last_end_ns - points.first_start_ns) // BIN_NS + 1, "bin_ns": BIN_NS}
    rates = database.sql(
        _THROUGHPUT, params={"trial_id": trial_id, "per_second": 1_000_000_000 // BIN_NS, **bins}
    )
    pq.write_table(rates.to_arrow_table(), throughput, compression="zstd")


# --- the generator's own summary of a load --------------------------------------------------------


@dataclass(frozen=True)
class GeneratorSummary:
    """Counts and statistics from the summary that k6 (or another generator) wrote about a load."""

    iterations: int
    dropped: int
    requests: int
    rps: float  # requests/s, as the generator computed the rate; 0 without requests
    http_req_duration: Trend = field(default_factory=dict)  # empty without requests
    checks: int = 0
    """Number of times that a check of the script passed or failed.

    `checks_failed` is the number of times that a check failed.
    """
    checks_failed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """Further counts in the summary, by name.

    `Tally.points` has counts with the same names, which were made from the samples.
    """


def read_summary(path: Path) -> GeneratorSummary:
    """Read the summary that k6 wrote to `--summary-export=FILE`, or passed to handleSummary().

    Raise LabError (exit code 1) if the file is missing, damaged or not from k6.
    """
    data = read_json(path)
    try:
        metrics = _summarized_metrics(data)

        def said(metric: str, name: str) -> float:
            # k6 omits metrics without samples.
            return _number(metrics[metric][name]) if metric in metrics else 0.0

        iterations = int(said("iterations", "count"))
        dropped = int(said("dropped_iterations", "count"))
        requests = int(said("http_reqs", "count"))
        kept = int(said("checks", "passes"))
        failed = int(said("checks", "fails"))
        stated = metrics["http_req_duration"] if requests else {}
        known = {
            name: key
            for name, key in TREND.items()
            if requests and ("p(" not in key or key in stated)
        }
        trend = {name: _number(stated[key]) for name, key in known.items()}
        return GeneratorSummary(
            iterations, dropped, requests, said("http_reqs", "rate"), trend, kept + failed, failed
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LabError(
            f"{path} is not an end-of-test summary of k6 ({why}).", exit_code=1
        ) from None


def _summarized_metrics(data: Any) -> JsonObject:
    """Return the values of each metric, from a summary in any of k6's three forms.

    - In the file of `--summary-export`, the object of a metric has the values as members.
    - In the data of handleSummary(), the object of a metric has a member `values` with the values.
    - The machine-readable summary has a list of metrics. In this form, p(90) is called `p90`.
    """
    if "results" in data:
        listed = {each["name"]: dict(each["values"]) for each in data["results"]["metrics"]}
        for values in listed.values():
            values |= {f"p({name[1:]})": value for name, value in values.items() if name[0] == "p"}
            if "matches" in values:
                values |= {
                    "passes": values["matches"],
                    "fails": values["total"] - values["matches"],
                }
            values.setdefault("rate", 0.0)
        return listed
    return {name: each.get("values", each) for name, each in data["metrics"].items()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
