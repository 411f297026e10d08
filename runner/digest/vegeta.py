"""Read vegeta's files, and return their content in the form in which the lab keeps k6's results.

vegeta's results are a file with one line per request, and a report. The module relies on these
facts of vegeta's source (lib/attack.go, lib/results.go of 12.13):

- The requests are numbered in the order in which they are due (`seq`, from 0). A request is due
  `seq` / rate seconds after the attack began, where the rate is in requests/s.
- `timestamp` is the time when a worker began the request. `latency` is the time from then until the
  last byte of the answer.
- A request begins late only if no worker is free in time. So a late request is vegeta's fault.
- When the planned duration is over, vegeta sends no further requests, even if some requests were
  due earlier and have not been sent. So the lab lets vegeta run GENERATOR_LATE_S longer.
"""

from pathlib import Path

import duckdb

from runner.digest.k6 import GeneratorSummary, connect
from runner.digest.k6_raw import DamageError, Tally
from runner.generator_traits import GENERATOR_LATE_S
from runner.model import LabError
from runner.store import read_json

UNANSWERED = 1000  # k6's error_code for an unknown kind of error
_COLUMNS = {
    "timestamp": "BIGINT",
    "code": "SMALLINT",
    "latency": "BIGINT",
    "bytes_out": "BIGINT",
    "bytes_in": "BIGINT",
    "error": "VARCHAR",
    "body": "VARCHAR",
    "attack": "VARCHAR",
    "seq": "BIGINT",
    "method": "VARCHAR",
    "url": "VARCHAR",
    "headers": "VARCHAR",
}
"""Columns that `vegeta encode --to csv` writes, in this order. Times are in nanoseconds."""
_REQUESTS = f"""
    SELECT timestamp + latency AS end_ns, latency / 1e6 AS duration_ms,
           0.0::DOUBLE AS blocked_ms, 0.0::DOUBLE AS connecting_ms, 0.0::DOUBLE AS tls_ms,
           0.0::DOUBLE AS sending_ms, latency / 1e6 AS waiting_ms, 0.0::DOUBLE AS receiving_ms,
           code AS status, (CASE WHEN code = 0 THEN {UNANSWERED} ELSE 0 END)::SMALLINT AS error_code
    FROM results WHERE seq >= $lead ORDER BY timestamp + latency
"""  # noqa: S608 - built of this module's constants only
_COUNTS = """
    SELECT count(*), count(*) FILTER (behind_ns - first_ns > $late_ns)
    FROM (SELECT seq,
                 timestamp - (seq * 1e9 / $rate_rps)::BIGINT AS behind_ns,
                 min(behind_ns) OVER () AS first_ns
          FROM results)
    WHERE seq >= $lead
"""


def spool_results(
    raw: Path, folder: Path, rate_rps: float, *, lead_s: float = 0.0, threads: int = 2
) -> Tally:
    """Write requests.parquet and iterations.parquet into `folder`, as k6_raw.spool_points does.

    Return the counts. Each request counts as an iteration, and `late` counts the requests that
    began more than 10 ms after they were due. Requests that were due in the first `lead_s` seconds
    are left out. Raise DamageError if the file does not have the form that vegeta writes.
    """
    lead = {"lead": round(rate_rps * lead_s)}
    try:
        with connect(folder, 400, threads) as connection:
            connection.read_csv(str(raw), header=False, columns=_COLUMNS, auto_detect=False).create(
                "results"
            )
            requests = connection.sql(_REQUESTS, params=lead)
            requests.write_parquet(str(folder / "requests.parquet"))
            requests.project("end_ns, duration_ms AS length_ms").write_parquet(
                str(folder / "iterations.parquet")
            )
            limits = {"late_ns": GENERATOR_LATE_S * 1e9, "rate_rps": rate_rps}
            count, late = connection.sql(_COUNTS, params=lead | limits).fetchall()[0]
    except duckdb.Error as error:
        raise DamageError(0, str(error).splitlines()[0]) from None
    if not count:
        raise DamageError(0, "the file has no request")
    tally = Tally(lines=count, requests=count, iterations=count, late=late)
    tally.points.update({"http_reqs": count, "data_sent": count})
    return tally


def read_report(path: Path) -> GeneratorSummary:
    """Read the output of `vegeta report --type json`.

    Mean, minimum and maximum are exact. Percentiles are left out, because vegeta approximates them
    (t-digest), and the error is large if response times jump. Raise LabError (exit code 1) if the
    file is missing, broken or not vegeta's.
    """
    data = read_json(path)
    try:
        count = int(data["requests"])
        times = {name: data["latencies"][name] / 1e6 for name in ("mean", "min", "max")}
        return GeneratorSummary(count, 0, count, float(data["rate"]), times)
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{path} is not a report of vegeta ({type(error).__name__}: {error}).", exit_code=1
        ) from None
