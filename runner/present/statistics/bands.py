"""Percentile curves of latency with pointwise intervals, over the trials of a cell.

A trial's histogram gives one curve. The line is the geometric mean of the trials' curves, the band at each percentile
Student's interval of their logarithms. A trial is the unit: what varies within it (seconds, requests that wait for each
other) is in the difference between trials already. docs/decisions.md says why it is no hierarchical bootstrap.
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
    """Return the quantiles `q` of each trial, one row per trial, in ms; NaN where a trial does not carry one.

    `latency` holds trial_id, lower_ms, upper_ms and count. Seconds are added up, so wrk's rows, which have none,
    serve as well. A trial carries the quantiles above which it has `beyond` requests.
    """
    wanted = np.atleast_1d(np.asarray(q, dtype=np.float64))
    merged = latency.groupby(["trial_id", "lower_ms", "upper_ms"], as_index=False)["count"].sum()
    curves = [
        np.where(
            wanted <= carried_quantile(float(rows["count"].sum()), beyond) + 1e-12,
            histogram_quantile(rows["lower_ms"], rows["upper_ms"], rows["count"], wanted),
            np.nan,
        )
        for _, rows in merged.groupby("trial_id", sort=True)
    ]
    return np.array(curves) if curves else np.empty((0, wanted.size))


def band(curves: Floats, q: ArrayLike) -> Band:
    """Return the geometric mean of curves (ms, one row per trial, NaN where unknown) with Student's interval."""
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
