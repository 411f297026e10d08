"""Input for `bench audit`: a correct table, the same table with a changed row, and wrk's output."""

from typing import Any

import numpy as np
import pandas as pd

from runner.audit.reading import parse

WRK_OUTPUT = """Running 10s test @ http://127.0.0.1:8080/
  2 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.00ms    0.89ms  12.92ms   93.69%
    Req/Sec    25.00k     8.07k   62.00k    86.54%
  Latency Distribution
     50%    1.80ms
     75%    2.20ms
     90%    2.50ms
     99%    4.00ms
  501000 requests in 10.02s, 2.87GB read
  Socket errors: connect 0, read 0, write 0, timeout 3
  Non-2xx or 3xx responses: 7
Requests/sec:  50000.00
Transfer/sec:    293.42MB
"""


def table(**columns: Any) -> pd.DataFrame:
    """Return the table that the audit reads from a CSV file with these columns."""
    return parse(pd.DataFrame(columns).to_csv(index=False).encode(), "table.csv")


def sound(n: int = 12) -> dict[str, Any]:
    """Return the columns of a correct table of closed loads.

    The rate of each row is 7 % higher than that of the row before. All 100 connections always have
    a request under way, so Little's law holds exactly.
    """
    rate = 10_000 * 1.07 ** np.arange(n)
    return {
        "framework": [f"f{i}" for i in range(n)],
        "rps": rate.round(2),
        "connections": 100,
        "mean_ms": (100_000 / rate).round(3),
        "p50_ms": (90_000 / rate).round(3),
        "p99_ms": (300_000 / rate).round(3),
        "max_ms": (900_000 / rate).round(3),
        "requests": (10 * rate).round(),
        "errors": 0,
        "bytes_per_s": (180 * rate).round(),
        "duration_s": 10,
        "cpu_pct": 95,
        "cpu_given_pct": 100,
    }


def with_row(number: int, **values: float) -> pd.DataFrame:
    """Return the correct table, but with `values` in row `number`.

    The names of `values` are names of columns. If the correct table has no column of this name, the
    column is added, with 2.0 in all other rows.
    """
    columns = sound()
    for name, value in values.items():
        columns[name] = np.where(np.arange(12) == number, value, columns.get(name, 2.0))
    return table(**columns)
