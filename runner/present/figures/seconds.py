"""What happened in each second of a trial: rates, latency, CPU, memory, pool and rows.

Each function takes trials and the run's tables and returns points: trial_id, t_s (the middle of a bin, seconds since
the load began) and value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from runner.present.frames import Tables
from runner.present.statistics.stats import Floats, histogram_quantile, window_means

Points = pd.DataFrame
COLUMNS = ["trial_id", "t_s", "value"]
FINE_S = 0.1
"""Width of the bins of the throughput table."""
SECOND_S = 1.0
SHORT_LOAD_S = 20.0
FEWEST_BEYOND = 10
"""Requests that must lie beyond a second's percentile before it is drawn: 1/sqrt(10) is a standard error of 32 %."""


def bin_width(trials: pd.DataFrame) -> float:
    """Return the width in seconds of bins of rates and CPU: 1, but 0.1 for loads under 20 s.

    A line then has 20 points at least, and a ramp of that length more than one or two in each of its steps.
    """
    return FINE_S if trials["duration_s"].min() < SHORT_LOAD_S else SECOND_S


def answered(trials: pd.DataFrame, tables: Tables) -> Points:
    """Return the requests/s that were answered well (2xx or 3xx), in bins of `bin_width`.

    Rising rates end with their last step: what is answered after it is the rest of a queue, and no rate.
    """
    width = bin_width(trials)
    trials = trials.assign(duration_s=trials["duration_s"].clip(upper=trials["steps"] * trials["step_s"]))
    return _each(trials, tables.throughput, lambda rows: _in_bins(rows, width), width)


def _in_bins(rows: pd.DataFrame, width: float) -> pd.DataFrame:
    bins = max(1, int(np.floor((rows["t_s"].max() + FINE_S) / width + 1e-6)))
    # Bin starts are multiples of 0.1 s that floats miss by a hair: half a fine bin makes floor safe.
    number = np.floor((rows["t_s"] + FINE_S / 2) / width).astype(int)
    counts = (rows["requests"] - rows["failed"]).groupby(number).sum().reindex(range(bins), fill_value=0)
    return pd.DataFrame({"t_s": (counts.index + 0.5) * width, "value": counts.to_numpy() / width})


def inserted(trials: pd.DataFrame, tables: Tables) -> Points:
    """Return how many requests had been answered well by the end of each fine bin (t_s is that end)."""

    def total(rows: pd.DataFrame) -> pd.DataFrame:
        ordered = rows.sort_values("t_s")
        good = (ordered["requests"] - ordered["failed"]).cumsum()
        return pd.DataFrame({"t_s": (ordered["t_s"] + FINE_S).round(1), "value": good.to_numpy(dtype=float)})

    return _each(trials, tables.throughput, total, 0.0)


def latency(quantile: float) -> Callable[[pd.DataFrame, Tables], Points]:
    """Return the function that gives a quantile of each second's latencies in milliseconds.

    A second with fewer than `FEWEST_BEYOND` requests beyond the quantile has no point.
    """

    def one(rows: pd.DataFrame) -> pd.DataFrame:
        found = []
        for second, buckets in rows[rows["second"].notna()].groupby("second"):
            if buckets["count"].sum() * (1 - quantile) < FEWEST_BEYOND - 1e-9:
                continue
            ms = histogram_quantile(buckets["lower_ms"], buckets["upper_ms"], buckets["count"], quantile)
            found.append((float(str(second)) + 0.5, float(ms[0])))
        return pd.DataFrame(found, columns=["t_s", "value"])

    return lambda trials, tables: _each(trials, tables.latency, one)


def cpu(subject: str) -> Callable[[pd.DataFrame, Tables], Points]:
    """Return the function that gives a subject's CPU use in % of a core, in bins of `bin_width`."""

    def points(trials: pd.DataFrame, tables: Tables) -> Points:
        width = bin_width(trials)
        return _each(trials, _of(tables, subject), lambda rows: _windows(rows, width), width)

    return points


def _windows(rows: pd.DataFrame, width: float) -> pd.DataFrame:
    known = rows[rows["cpu_pct"].notna()].sort_values("t_s")
    edges: Floats = np.arange(0.0, known["t_s"].max() + 1e-6, width)
    means = window_means(known["t_s"], known["dt_s"], known["cpu_pct"], edges)
    return pd.DataFrame({"t_s": edges[:-1] + width / 2, "value": means}).dropna()


def memory(trials: pd.DataFrame, tables: Tables) -> Points:
    """Return the server's resident memory in MiB, the mean of each second's samples."""
    return _each(trials, _of(tables, "server"), lambda rows: _sampled(rows, rows["rss_bytes"] / 2**20))


def pool(trials: pd.DataFrame, tables: Tables) -> Points:
    """Return how many connections of the server's pool were in use, the mean of each second's answers of /stats."""
    return _each(trials, _of(tables, "server"), lambda rows: _sampled(rows, rows["pool_in_use"]))


def _sampled(rows: pd.DataFrame, values: pd.Series[float]) -> pd.DataFrame:
    middle = rows["t_s"] - rows["dt_s"] / 2  # a sample's t_s is the end of its interval
    known = middle.ge(0) & values.notna()
    means = values[known].groupby(np.floor(middle[known])).mean()
    return pd.DataFrame({"t_s": means.index.to_numpy(dtype=float) + 0.5, "value": means.to_numpy(dtype=float)})


def _of(tables: Tables, subject: str) -> pd.DataFrame:
    return tables.resources[tables.resources["subject"] == subject]


def _each(
    trials: pd.DataFrame,
    table: pd.DataFrame,
    one: Callable[[pd.DataFrame], pd.DataFrame],
    width_s: float = SECOND_S,
) -> Points:
    """Apply `one` to the table's rows of each trial that has any; bins that reach beyond its load are left out."""
    ends = dict(zip(trials["trial_id"], trials["duration_s"], strict=True))
    parts = []
    for trial_id, rows in table[table["trial_id"].isin(trials["trial_id"])].groupby("trial_id"):
        points = one(rows)
        inside = points[points["t_s"] + width_s / 2 <= ends[trial_id] + FINE_S / 2]
        parts.append(inside.assign(trial_id=trial_id))
    return pd.concat(parts, ignore_index=True)[COLUMNS] if parts else pd.DataFrame(columns=COLUMNS, dtype=float)


def median_and_range(points: Points, trial_ids: pd.Series[str]) -> pd.DataFrame:
    """Return the median, low and high of the trials at each time, index t_s.

    NaN, so that a line breaks, where fewer than half of the trials have a point.
    """
    own = points[points["trial_id"].isin(trial_ids)]
    by_time = own.assign(t_s=own["t_s"].astype(float).round(3)).groupby("t_s")["value"]
    found = pd.DataFrame({"median": by_time.median(), "low": by_time.min(), "high": by_time.max()})
    return found.where(2 * by_time.count() >= own["trial_id"].nunique())
