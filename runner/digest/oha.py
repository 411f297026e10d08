"""Read oha's files, and return their content in the form in which the lab keeps k6's results.

oha's results are a file with one line per request, and a report. The module relies on these facts
of oha's source (src/client.rs, src/db.rs, src/printer.rs of 1.16):

- All times are in seconds since oha began, but oha says only in which second it began. So the lab
  counts from the time when the lab started oha, which is some tens of milliseconds earlier.
- `start` is the time when a request began, and `end` is the time of the last byte of the answer. If
  the request opened a connection, the time of connecting lies between `start` and `end`.
- If the load has an offered rate, each request has a turn, which is the time when the request
  should begin. The column `start_latency_correction` has the turn, but the time in this column may
  be up to a millisecond late. The column `duration` is the time from `start_latency_correction` to
  `end`. If the load has no offered rate, `duration` is the time from `start` to `end`.
- The turns follow each other at the offered rate, and the first turn is when oha begins. So if the
  requests are numbered in the order of their turns, a request's number shows when it was due.
- Requests without an answer are only in the report.
"""

from pathlib import Path

import duckdb

from runner.digest.k6 import GeneratorSummary, connect
from runner.digest.k6_raw import DamageError, Tally
from runner.generator_traits import GENERATOR_LATE_S
from runner.model import LabError
from runner.store import read_json

LONGEST_START_S = 10
"""Oha begins at most this many seconds after the lab starts it.

If the file says that oha began later, the file belongs to another load.
"""
BYTES = "bytes of answers"
_COLUMNS = {
    "start": "DOUBLE",
    "start_latency_correction": "DOUBLE",
    "end": "DOUBLE",
    "duration": "DOUBLE",
    "status": "SMALLINT",
    "len_bytes": "BIGINT",
    "run": "BIGINT",
}
"""Columns of oha's table, in the order of the raw file. Times are in seconds since oha began."""
_REQUESTS = """
    SELECT $began_ns + round_even("end" * 1e9, 0)::BIGINT AS end_ns, duration * 1e3 AS duration_ms,
           0.0::DOUBLE AS blocked_ms, 0.0::DOUBLE AS connecting_ms, 0.0::DOUBLE AS tls_ms,
           0.0::DOUBLE AS sending_ms, duration * 1e3 AS waiting_ms, 0.0::DOUBLE AS receiving_ms,
           status, 0::SMALLINT AS error_code
    FROM results WHERE turn >= $lead ORDER BY "end"
"""
_TURNS = """
    SELECT *, row_number() OVER (ORDER BY coalesce(start_latency_correction, start), start) - 1
              AS turn
    FROM lines
"""
_COUNTS = """
    SELECT count(*), count(*) FILTER (start - turn / $rate_rps > $late_s)
    FROM results WHERE turn >= $lead
"""
_ANSWERS = """
    SELECT status, count(*), sum(len_bytes)::BIGINT FROM results WHERE turn >= $lead GROUP BY status
"""
_ODD = """
    SELECT count(DISTINCT run), min(run), max(run), count(*) FILTER (
        abs(duration - ("end" - coalesce(start_latency_correction, start))) > 1e-6
        OR "end" < start OR start < 0)
    FROM lines
"""


def spool_requests(
    raw: Path,
    folder: Path,
    began_ns: int,
    rate_rps: float,
    *,
    lead_s: float = 0.0,
    threads: int = 2,
) -> Tally:
    """Write requests.parquet and iterations.parquet into `folder`, as k6_raw.spool_points does.

    Return the counts. Each request counts as an iteration, and `late` counts the requests of an
    open load that began more than 10 ms after they were due.

    `began_ns` is the wall-clock time when the lab started oha. `rate_rps` is the offered rate, or 0
    for a closed load. Requests that were due in the first `lead_s` seconds are left out. Raise
    DamageError if the file does not have the form that the lab writes, or belongs to another load.
    """
    lead = {"lead": round(rate_rps * lead_s)}
    try:
        with connect(folder, 400, threads) as connection:
            connection.read_csv(
                str(raw), header=True, columns=_COLUMNS, auto_detect=False, null_padding=False
            ).create("lines")
            _require_one_load(connection, began_ns)
            connection.sql(_TURNS).create("results")
            requests = connection.sql(_REQUESTS, params=lead | {"began_ns": began_ns})
            requests.write_parquet(str(folder / "requests.parquet"))
            requests.project("end_ns, duration_ms AS length_ms").write_parquet(
                str(folder / "iterations.parquet")
            )
            limits = {"late_s": GENERATOR_LATE_S, "rate_rps": rate_rps or None}
            ((count, late),) = connection.sql(_COUNTS, params=lead | limits).fetchall()
            answers = connection.sql(_ANSWERS, params=lead).fetchall()
    except duckdb.Error as error:
        raise DamageError(0, str(error).splitlines()[0]) from None
    if not count:
        raise DamageError(0, "the file has no request")
    tally = Tally(lines=count, requests=count, iterations=count, late=late)
    tally.points.update({"http_reqs": count, "data_sent": count})
    for status, answered, length in answers:
        tally.points.update({_answers(status): answered, BYTES: length})
    return tally


def _answers(status: object) -> str:
    return f"answers with {status}"


def _require_one_load(connection: duckdb.DuckDBPyConnection, began_ns: int) -> None:
    """Raise DamageError unless all lines belong to one load, which the lab began at `began_ns`.

    Raise DamageError also if there are no lines, or if the times of a request contradict each
    other.
    """
    ((runs, first_s, last_s, odd),) = connection.sql(_ODD).fetchall()
    if not runs:
        raise DamageError(0, "the file has no request")
    if odd:
        raise DamageError(0, f"the times of {odd} requests contradict each other")
    began_s = began_ns // 10**9
    if runs > 1 or not began_s <= first_s <= began_s + LONGEST_START_S:
        seconds = f"{first_s}" if runs == 1 else f"{first_s} to {last_s}"
        raise DamageError(
            0,
            f"its requests are from a load that began at {seconds}, but the lab's load "
            f"began at {began_s}",
        )


def read_report(path: Path) -> GeneratorSummary:
    """Read oha's report of a load.

    The number of requests includes requests without an answer. Mean, minimum and maximum are exact.
    Percentiles are left out, because oha does not interpolate them between two requests. Raise
    LabError (exit code 1) if the report is missing, damaged or not oha's.
    """
    data = read_json(path)
    try:
        summary = data["summary"]
        statuses = {
            _answers(status): int(n) for status, n in data["statusCodeDistribution"].items()
        }
        answered = sum(statuses.values())
        count = answered + sum(map(int, data["errorDistribution"].values()))
        said = {"mean": "average", "min": "fastest", "max": "slowest"}
        times = {name: 1000 * float(summary[key]) for name, key in said.items()} if answered else {}
        return GeneratorSummary(
            iterations=count,
            dropped=0,
            requests=count,
            rps=float(summary["requestsPerSec"]),
            http_req_duration=times,
            counts={**statuses, BYTES: int(summary["totalData"])},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabError(
            f"{path} is not a report of oha ({type(error).__name__}: {error}).", exit_code=1
        ) from None
