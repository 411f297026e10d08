"""The published numbers that the lab repeats, as data/published.csv has them."""

from __future__ import annotations

import re

import pandas as pd

from runner.model import LabError
from runner.store import published_csv

COLUMNS = ("source", "year", "scenario", "load", "server", "language", "mode", "connections", "metric", "value", "unit")
WINDOWS = {"1 s": "server_cpu_peak_1s_pct", "100 ms": "server_cpu_peak_100ms_pct"}
"""A published CPU peak names no window: ours are over these."""
METRICS: dict[str, dict[str, str]] = {
    "rps": {"requests/s": "rps"},
    "latency_p50": {"p50, ms": "latency_p50_ms"},
    "latency_p90": {"p90, ms": "latency_p90_ms"},
    "latency_p95": {"p95, ms": "latency_p95_ms"},
    "cpu_peak": {f"CPU peak, %, over {window} here": column for window, column in WINDOWS.items()},
}
"""Published metric -> how it is printed, and our column for it; several where ours need a window."""


def read_published() -> pd.DataFrame:
    """Return data/published.csv, one row a published number.

    LabError where it is missing, lacks a column, or has a metric that is not in `METRICS`.
    """
    path = published_csv()
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise LabError(f"{path} lacks the column {', '.join(missing)}.", exit_code=1)
    unknown = sorted(set(frame["metric"].astype(str)) - set(METRICS))
    if unknown:
        raise LabError(f"{path} has the metric {unknown[0]!r}; known are {', '.join(METRICS)}.", exit_code=1)
    return frame


# --- published commands of wrk ----------------------------------------------------------------------------


def threads_of(load: str) -> int | None:
    """Return the threads of a published command such as `wrk -d3s -t8 -cN`; None where it names none."""
    found = re.search(r"\bwrk\b.*-t(\d+)", load)
    return int(found.group(1)) if found else None


def opened(connections: int, threads: int) -> int:
    """Return how many connections wrk opens: connections / threads, rounded down, in each thread; 0: it refuses.

    Source: wrk.c of wrk 4.0 to 4.2, and docs/method.md.
    """
    return connections // threads * threads
