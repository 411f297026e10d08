"""Percentile curves of latency with pointwise intervals, over the trials of a cell.

A trial's histogram gives one curve. The line is the geometric mean of the trials' curves, the band at each
percentile Student's interval of their logarithms: a trial is the unit, and what varies within it (seconds,
requests that wait for each other) is in the difference between trials already.

A hierarchical bootstrap (trials, then 1 s blocks within each) is the usual proposal. It counts what varies within
a trial twice, in the trials that are drawn and again in the seconds drawn from them (Davison & Hinkley 1997,
Bootstrap Methods and their Application, section 3.8), and its percentiles are too narrow for few trials
(Hesterberg 2015, The American Statistician 69, 371). Coverage in % of 95 % bands at p50, p90 and p99, 1,000
simulated campaigns each:

| trials; what differs | trials and seconds drawn | trials drawn | Student's, as here |
|---|---|---|---|
| 5; seconds only | 97.9, 97.9, 98.3 | 82.9, 81.3, 83.2 | 95.4, 94.7, 95.7 |
| 5; trials as much as seconds | 86.0, 87.5, 91.0 | 82.9, 83.7, 82.1 | 95.1, 95.3, 95.0 |
| 10; seconds only | 98.7, 98.7, 98.4 | 90.0, 90.8, 88.3 | 96.2, 95.4, 95.3 |
| 10; trials as much as seconds | 90.4, 90.8, 94.7 | 88.1, 88.3, 88.6 | 94.4, 93.9, 94.8 |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from runner.present.statistics.inference import CONFIDENCE, FEWEST
from runner.present.statistics.stats import BEYOND, Floats, carried_quantile, histogram_quantile


@dataclass(frozen=True, eq=False)
class Band:
    """A percentile curve: `q` (0 to 1), the geometric mean of the trials' latencies there, and its 95 % interval.

    `low_ms` and `high_ms` are NaN where fewer than `FEWEST` trials carry the quantile; `trials` says how many do.
    """

    q: Floats
    ms: Floats
    low_ms: Floats
    high_ms: Floats
    trials: Floats


def trial_curves(latency: pd.DataFrame, q: ArrayLike, beyond: int = BEYOND) -> Floats:
    """Return the quantiles `q` of each trial, one row a trial, in ms; NaN where a trial does not carry one.

    `latency` holds trial_id, lower_ms, upper_ms and count. Seconds are added up, so wrk's rows, which have none,
    serve as well. A trial carries the quantiles above which it has `beyond` requests.
    """
    wanted = np.atleast_1d(np.asarray(q, dtype=np.float64))
    merged = latency.groupby(["trial_id", "lower_ms", "upper_ms"], as_index=False)["count"].sum()
    rows = [
        np.where(
            wanted <= carried_quantile(float(own["count"].sum()), beyond) + 1e-12,
            histogram_quantile(own["lower_ms"], own["upper_ms"], own["count"], wanted),
            np.nan,
        )
        for _, own in merged.groupby("trial_id", sort=True)
    ]
    return np.array(rows) if rows else np.empty((0, wanted.size))


def band(curves: Floats, q: ArrayLike) -> Band:
    """Return the geometric mean of curves (ms, one row a trial, NaN where unknown) with Student's interval."""
    logs = np.log(np.where(curves > 0, curves, np.nan))
    n = np.isfinite(logs).sum(axis=0)
    total = np.nansum(logs, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.where(n > 0, total / n, np.nan)
        error = np.sqrt(np.nansum((logs - middle) ** 2, axis=0) / (n - 1) / n)
    enough = n >= FEWEST
    half = np.where(enough, stdtrit(np.maximum(n - 1, 1), (1 + CONFIDENCE) / 2) * error, np.nan)
    quantiles = np.atleast_1d(np.asarray(q, dtype=np.float64))
    return Band(quantiles, np.exp(middle), np.exp(middle - half), np.exp(middle + half), n.astype(np.float64))
