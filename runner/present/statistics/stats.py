"""Compute statistics of trials and histograms with pure functions of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from runner.model import REQUESTS_BEYOND

Floats = NDArray[np.float64]

Z_99 = NormalDist().inv_cdf(0.995)
"""Half the width of a 99 % confidence interval in standard errors, for a normal distribution."""


@dataclass(frozen=True)
class Spread:
    """The median of `n` values, with the two ends of their range or of a confidence interval.

    If `confidence` is given, low and high are the ends of a confidence interval of the median at
    this level. Otherwise low and high are the minimum and maximum. If `n` is 0, the median and the
    ends are NaN.
    """

    n: int
    median: float
    low: float
    high: float
    confidence: float | None = None


def spread(values: Iterable[float]) -> Spread:
    """Return the exact median with minimum and maximum; ignore NaN.

    The median of an even number of values is the mean of the two middle values, as in
    `numpy.median`.
    """
    known = pd.Series(list(values), dtype=np.float64).dropna()
    return Spread(len(known), known.median(), known.min(), known.max())


def histogram_quantile(
    lower: ArrayLike, upper: ArrayLike, count: ArrayLike, q: ArrayLike
) -> Floats:
    """Return the quantiles `q` (0 to 1) of a histogram, in the unit of its bucket borders.

    `lower`, `upper` and `count` have one entry per bucket, in any order. The values in a bucket are
    assumed to be evenly spread (linear interpolation, like Prometheus' `histogram_quantile`).
    Therefore the error is at most the bucket's width, which is 1 % of the value in the latency
    table. Return NaN if the histogram is empty.

    `scipy.stats.rv_histogram` does the same, but it needs buckets without gaps. The latency table
    has gaps, because it has no buckets for latencies that did not occur.
    """
    low = np.asarray(lower, dtype=np.float64)
    high = np.asarray(upper, dtype=np.float64)
    counts = np.asarray(count, dtype=np.float64)
    wanted = np.atleast_1d(np.asarray(q, dtype=np.float64))
    order = np.argsort(low)[counts[np.argsort(low)] > 0]
    low = low[order]
    high = high[order]
    counts = counts[order]
    if not counts.size:
        return np.full(wanted.shape, np.nan)
    total = np.cumsum(counts)
    rank = wanted * total[-1]
    bucket = np.minimum(np.searchsorted(total, rank, side="left"), counts.size - 1)
    inside = (rank - (total[bucket] - counts[bucket])) / counts[bucket]
    return np.asarray(
        low[bucket] + np.clip(inside, 0, 1) * (high[bucket] - low[bucket]), dtype=np.float64
    )


def histogram_quantiles(buckets: pd.DataFrame, quantiles: pd.Series[float]) -> pd.Series[float]:
    """Return one quantile of each trial's histogram in ms, by trial.

    This function does the same as `histogram_quantile`, but for many histograms at once. `buckets`
    are rows of the latency table (`trial_id`, `lower_ms`, `upper_ms`, `count`). `quantiles` maps
    each trial to the wanted quantile (0 to 1). Trials without a bucket are left out.
    """
    if buckets.empty:
        return pd.Series(dtype=float)
    merged = buckets.groupby(["trial_id", "lower_ms", "upper_ms"], as_index=False, sort=True)[
        "count"
    ].sum()
    merged = merged[merged["count"] > 0]
    by_trial = merged.groupby("trial_id", sort=False)["count"]
    up_to = by_trial.cumsum()
    rank = merged["trial_id"].map(quantiles) * by_trial.transform("sum")
    reached = merged.assign(up_to=up_to, rank=rank)[up_to >= rank].drop_duplicates("trial_id")
    below = reached["up_to"] - reached["count"]
    inside = ((reached["rank"] - below) / reached["count"]).clip(0, 1)
    values = reached["lower_ms"] + inside * (reached["upper_ms"] - reached["lower_ms"])
    return pd.Series(values.to_numpy(dtype=float), index=reached["trial_id"].to_numpy())


def carried_quantile(requests: float) -> float:
    """Return the highest quantile (0 to 1) above which at least `REQUESTS_BEYOND` requests lie."""
    return max(0.0, 1.0 - REQUESTS_BEYOND / requests) if requests > 0 else 0.0


def tail_error_pct(requests: float, q: float) -> float:
    """Return the uncertainty of the quantile `q` of a sample, as a percentage.

    The true share of requests beyond the measured quantile is about 1 - q. With 99 % confidence,
    this share differs from 1 - q by at most the returned percentage of 1 - q. The formula is the
    normal approximation of a binomial count: z * sqrt(q (1 - q) / requests), divided by 1 - q. The
    formula assumes that requests are independent. If requests wait for each other in a queue, they
    are not independent, and the true error is larger. Return NaN if there are no requests.
    """
    if requests <= 0:
        return np.nan
    return float(100 * Z_99 * np.sqrt(q / ((1 - q) * requests)))


def mlperf_requests(q: float) -> int:
    """Return the number of requests that MLPerf requires before it accepts the quantile `q`.

    MLPerf allows an error of 5 % of 1 - q with 99 % confidence. This requires 262,742 requests for
    p99, and 2.65 million requests for p99.9 (Reddi et al. 2020, MLPerf Inference Benchmark, ISCA,
    table IV). About 2,650 of these requests lie beyond the quantile.

    `carried_quantile` requires only `REQUESTS_BEYOND` requests beyond the quantile. The error is
    then 26 % with the same confidence. This is enough to draw a curve, but not enough to promise a
    service level.
    """
    return round(Z_99**2 * q * (1 - q) / ((1 - q) / 20) ** 2)


def sliding_mean(
    t_s: ArrayLike, dt_s: ArrayLike, value: ArrayLike, window_s: float
) -> tuple[Floats, Floats]:
    """Return the ends of windows of `window_s` seconds, and the mean of a rate over each window.

    `t_s` are the ends of the sampled intervals in rising order, `dt_s` are the lengths of these
    intervals, and `value` is the rate in each interval. For each interval there is a window that
    ends at the end of this interval. A window may begin in the middle of another interval, because
    the integral of the rate is interpolated. Windows that begin before the first interval are left
    out.

    The rate is taken as constant within an interval. `scipy.integrate` is not used, because it
    would join the points by straight lines.
    """
    times, integral = _integrated(t_s, dt_s, value)
    full = times[1:][times[1:] - window_s >= times[0] - 1e-9]
    return full, (
        np.interp(full, times, integral) - np.interp(full - window_s, times, integral)
    ) / window_s


def window_means(t_s: ArrayLike, dt_s: ArrayLike, value: ArrayLike, edges: ArrayLike) -> Floats:
    """Return the mean of a rate in each window between two neighbouring `edges`.

    `edges` are times in seconds, in rising order. `t_s`, `dt_s` and `value` are as in
    `sliding_mean`. The mean is NaN for a window that does not lie fully inside the samples.
    """
    times, integral = _integrated(t_s, dt_s, value)
    at = np.asarray(edges, dtype=np.float64)
    inside = np.interp(at, times, integral, left=np.nan, right=np.nan)
    return np.asarray(np.diff(inside) / np.diff(at), dtype=np.float64)


def _integrated(t_s: ArrayLike, dt_s: ArrayLike, value: ArrayLike) -> tuple[Floats, Floats]:
    """Return the borders of the sampled intervals, and the integral of the rate up to each border.

    If there are no intervals, both arrays contain a single NaN.
    """
    ends = np.asarray(t_s, dtype=np.float64)
    steps = np.asarray(dt_s, dtype=np.float64)
    rates = np.asarray(value, dtype=np.float64)
    if not ends.size:
        return np.array([np.nan]), np.array([np.nan])
    return np.concatenate([ends[:1] - steps[:1], ends]), np.concatenate(
        [[0.0], np.cumsum(rates * steps)]
    )
