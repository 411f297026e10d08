"""Intervals of medians, of ratios of two servers and of latency curves, over trials.

Too few trials give no interval. A ratio's interval is Student's t on logarithms: of the differences
within blocks if both servers ran in the same blocks, otherwise Welch's for two samples.
Bioequivalence is shown in this way (FDA 2001, Statistical Approaches to Establishing
Bioequivalence). docs/decisions.md compares its coverage with the usual bootstrap of log medians,
and tests/present/statistics/test_inference_simulated.py repeats that.

The distributions come from `scipy.special`. Loading it takes half a second of CPU, which scipy
delays until the first use: `bench run` needs it with `--until` only. `scipy.stats` takes a second
longer to load; a docstring that mentions one of its functions has the reason why it is not used.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike

from runner.manifest import Manifest
from runner.present.statistics.stats import (
    Floats,
    Spread,
    carried_quantile,
    histogram_quantile,
    spread,
)

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
LOOKS = (6, 9, 12, 16, 20)  # sessions after which a run that stops when it knows is looked at
LOOK_ALPHA = 0.0155
"""Level of each look, with which 5 % of such runs decide wrongly at any of them.

Pocock's bounds for looks at these sessions (1977, Biometrika 64, 191), with Student's t for few
sessions; tests/present/statistics/test_inference_simulated.py has the rate.
"""
POWER = 0.8
FEWEST_TRIALS = 5
"""Trials a side below which no ratio is given: fewer say too little of their spread."""
ROUNDING = 1e-12  # differences of logarithms below this are rounding errors of equal values
Sample: TypeAlias = "pd.Series[float]"
"""The trials of one cell: positive values.

The index has their blocks, of which equal ones are the same block.
"""


def level(manifest: Manifest) -> float:
    """Return the level of a run's decisions: lower for one that was looked at several times, to
    stop when it knew.
    """
    return LOOK_ALPHA if manifest.until else ALPHA


def sure_spread(values: ArrayLike, confidence: float = CONFIDENCE) -> Spread:
    """Return the sample median with its exact interval by order statistics, whatever the
    distribution.

    The interval runs from the j-th smallest to the j-th largest of n values, with the largest j
    whose coverage is at least `confidence`. The coverage, 1 - 2 P(Binomial(n, 1/2) < j), is the
    result's `confidence`. If even minimum and maximum cover less, they are the ends, and it is
    None: below six values for 95 % (five have 93.75 %). NaN are left out. Source: David & Nagaraja,
    Order Statistics, 3rd ed., section 7.1.
    """
    known = np.sort(np.asarray(values, dtype=np.float64))
    known = known[~np.isnan(known)]
    n = known.size
    tails = scipy.special.bdtr(np.arange(n // 2), n, 0.5)
    wide_enough = np.flatnonzero(1 - 2 * tails >= confidence - 1e-12)
    if not wide_enough.size:
        return spread(known)
    j = int(wide_enough[-1])
    return Spread(
        n,
        float(np.median(known)),
        float(known[j]),
        float(known[n - 1 - j]),
        float(1 - 2 * tails[j]),
    )


def sample_of(values: Iterable[float], blocks: Iterable[Any]) -> Sample:
    """Return the values that have a logarithm, by their blocks: numbers or names."""
    known = pd.Series(list(values), index=list(blocks), dtype=np.float64)
    return known[np.isfinite(known) & (known > 0)]


def geometric_mean(sample: Sample) -> float:
    """Return the geometric mean of a sample; NaN if it is empty."""
    return float(np.exp(np.log(sample).mean()))


@dataclass(frozen=True)
class Mean:
    """The geometric mean of a cell's trials with its interval; all NaN if `trials` is 0.

    The ratio of two cells is the quotient of two of these, so this is what is shown of a quantity
    that is compared. Without a `confidence` there are too few trials for an interval, and low and
    high are their minimum and maximum.
    """

    trials: int
    value: float
    low: float
    high: float
    confidence: float | None = None

    @property
    def half_pct(self) -> float:
        """Half the interval's width in percent of the mean: it is as wide in logarithms on both
        sides.
        """
        return 100 * (math.sqrt(self.high / self.low) - 1)


def mean_of(values: Iterable[float], confidence: float = CONFIDENCE) -> Mean:
    """Return the geometric mean of trials, with Student's interval of the logarithms.

    Values without a logarithm are left out. Fewer than `FEWEST_TRIALS` give minimum and maximum.
    """
    known = np.asarray(list(values), dtype=np.float64)
    known = known[np.isfinite(known) & (known > 0)]
    if not known.size:
        return Mean(0, math.nan, math.nan, math.nan)
    if known.size < FEWEST_TRIALS:
        lowest = float(known.min())
        highest = float(known.max())
        # The logarithm's rounding would put the mean of equal values beside them.
        value = float(np.clip(np.exp(np.log(known).mean()), lowest, highest))
        return Mean(known.size, value, lowest, highest)
    logs = one_sample(np.log(known))
    low, high = logs.interval(confidence)
    return Mean(
        known.size,
        float(np.exp(logs.estimate)),
        float(np.exp(low)),
        float(np.exp(high)),
        confidence,
    )


@dataclass(frozen=True, eq=False)
class LogRatio:
    """Estimates of a mean of logarithms, mostly a log ratio, one an element: estimate, standard
    error, degrees of freedom (or one number of them for all).
    """

    estimate: Floats
    standard_error: Floats
    degrees: Floats

    def interval(self, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of Student's intervals."""
        half = scipy.special.stdtrit(self.degrees, (1 + confidence) / 2) * self.standard_error
        return np.asarray(self.estimate - half), np.asarray(self.estimate + half)

    def p_value(self) -> Floats:
        """Return the two-sided p-values of a log ratio of 0; 1 if there is no difference at all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.estimate) / self.standard_error
        return np.asarray(np.where(np.isnan(t), 1.0, 2 * scipy.special.stdtr(self.degrees, -t)))


def one_sample(logs: Floats) -> LogRatio:
    """Estimate the mean of logarithms with Student's t (Student 1908, Biometrika 6, 1).

    The last axis is the trials. `scipy.stats.t.interval` has the same ends, but NaN if all trials
    are equal.
    """
    n = logs.shape[-1]
    error = logs.std(axis=-1, ddof=1) / np.sqrt(n)
    return LogRatio(logs.mean(axis=-1), error, np.asarray(float(n - 1)))


def paired(log_a: Floats, log_b: Floats) -> LogRatio:
    """Compare logarithms within blocks: the last axis is the blocks, in the same order on both
    sides.

    Intervals and p-values are those of `scipy.stats.ttest_rel`. Its result lacks the standard
    error, which `Ratio.p_beyond` and `Ratio.detectable` need, and its p-value of equal sides is
    NaN.
    """
    difference = log_a - log_b
    return one_sample(np.where(np.abs(difference) < ROUNDING, 0.0, difference))


def unpaired(log_a: Floats, log_b: Floats) -> LogRatio:
    """Compare logarithms of two samples without common blocks (Welch 1947, Biometrika 34, 28).

    The last axis is the trials. Intervals and p-values are those of `scipy.stats.ttest_ind`. Its
    result lacks the standard error, and it prints a warning if all trials of a side are equal, as
    the memory of a server may be.
    """
    a = one_sample(log_a)
    b = one_sample(log_b)
    variance = a.standard_error**2 + b.standard_error**2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = a.standard_error**4 / a.degrees + b.standard_error**4 / b.degrees
        degrees = np.where(variance > 0, variance**2 / parts, a.degrees + b.degrees)
    difference = np.asarray(a.estimate - b.estimate)
    difference = np.where(np.abs(difference) < ROUNDING, 0.0, difference)
    return LogRatio(difference, np.sqrt(variance), degrees)


@dataclass(frozen=True)
class Ratio:
    """The ratio a / b of two servers' geometric means with its interval (95 % by default).

    `mean_a` and `mean_b` are these means, over the trials compared. `p` is the t test's p-value of
    no difference. `blocks` is the number of compared blocks, 0 if the two have no blocks in common.
    The interval is made from `standard_error` (of the log ratio) and `degrees`.
    """

    ratio: float
    low: float
    high: float
    p: float
    blocks: int
    standard_error: float
    degrees: float
    mean_a: float = math.nan
    mean_b: float = math.nan

    def p_beyond(self, border: float, *, above: bool) -> float:
        """Return the p-value of "not above `border`", or "not below" it: Student's one-sided test
        of the logarithm.
        """
        distance = (math.log(self.ratio) - math.log(border)) * (1 if above else -1)
        if self.standard_error > 0:
            return float(scipy.special.stdtr(self.degrees, -distance / self.standard_error))
        return 0.0 if distance > ROUNDING else 1.0

    def detectable(self, alpha: float = ALPHA, power: float = POWER) -> float:
        """Return the smallest ratio (> 1) that as many trials with this spread distinguish from 1
        at `alpha`.

        They do so with probability `power`. The t statistic then has a noncentral t distribution
        (Cohen 1988, Statistical Power Analysis, 2nd ed., chapter 2), whose lower tail, beyond minus
        the critical value, counts for nothing.
        """
        critical = scipy.special.stdtrit(self.degrees, alpha / 2)
        noncentrality = scipy.special.nctdtrinc(self.degrees, 1 - power, -critical)
        return math.exp(noncentrality * self.standard_error)


def ratio(a: Sample, b: Sample, *, confidence: float = CONFIDENCE) -> Ratio | None:
    """Return the ratio of two servers with its interval.

    None if a side has fewer than `FEWEST_TRIALS` trials. The servers are compared within common
    blocks if there are at least `FEWEST_TRIALS` of them, otherwise as two samples.
    """
    if min(len(a), len(b)) < FEWEST_TRIALS:
        return None
    logs = matched(a, b)
    log_a, log_b = logs or (np.log(a.to_numpy()), np.log(b.to_numpy()))
    found = paired(log_a, log_b) if logs else unpaired(log_a, log_b)
    log_low, log_high = found.interval(confidence)
    blocks = logs[0].size if logs else 0
    return Ratio(
        float(np.exp(found.estimate)),
        float(np.exp(log_low)),
        float(np.exp(log_high)),
        float(found.p_value()),
        blocks,
        float(found.standard_error),
        float(found.degrees),
        float(np.exp(log_a.mean())),
        float(np.exp(log_b.mean())),
    )


def matched(a: Sample, b: Sample) -> tuple[Floats, Floats] | None:
    """Return the logarithms of both sides over their common blocks.

    None if these are fewer than `FEWEST_TRIALS`, or a side has several trials in a block.
    """
    common = a.index.intersection(b.index).sort_values()
    if len(common) < FEWEST_TRIALS or not (a.index.is_unique and b.index.is_unique):
        return None
    return np.log(a.loc[common].to_numpy()), np.log(b.loc[common].to_numpy())


def noise_floor(same: Ratio) -> float:
    """Return the largest ratio (>= 1) that noise alone makes, from one server measured under two
    labels (A/A).

    It is the end of their ratio's interval that lies farther from 1: which label is first must not
    matter.
    """
    return max(same.high, 1 / same.low, 1.0)


def is_tie(found: Ratio, floor: float = 1.0) -> bool:
    """Whether a ratio says nothing: its interval overlaps 1, or lies inside the noise floor."""
    return found.low <= 1 <= found.high or (1 / floor <= found.low and found.high <= floor)


def trial_curves(latency: pd.DataFrame, q: ArrayLike) -> Floats:
    """Return the quantiles `q` of each trial, one row per trial, in ms.

    NaN if a trial does not carry one.

    `latency` holds trial_id, lower_ms, upper_ms and count. Seconds are added up, so wrk's rows,
    which have none, serve as well. A trial carries the quantiles above which it has
    `REQUESTS_BEYOND` requests.
    """
    wanted = np.atleast_1d(np.asarray(q, dtype=np.float64))
    merged = latency.groupby(["trial_id", "lower_ms", "upper_ms"], as_index=False)["count"].sum()
    curves = []
    for _, rows in merged.groupby("trial_id", sort=True):
        curve = histogram_quantile(rows["lower_ms"], rows["upper_ms"], rows["count"], wanted)
        carried = carried_quantile(float(rows["count"].sum()))
        curves.append(np.where(wanted <= carried + 1e-12, curve, np.nan))
    return np.array(curves).reshape(-1, wanted.size)


@dataclass(frozen=True, eq=False)
class Band:
    """A mean curve and both ends of its pointwise interval, in ms."""

    middle_ms: Floats
    low_ms: Floats
    high_ms: Floats


def band(curves: Floats) -> Band:
    """Return the geometric mean of curves (ms, one row per trial), with Student's pointwise
    interval.

    The unit is the trial: the difference between trials already includes the variation within one
    (seconds, requests that wait for each other). docs/decisions.md has the reason against a
    hierarchical bootstrap. Fewer than `FEWEST_TRIALS` trials give mean, minimum and maximum.
    """
    if len(curves) < FEWEST_TRIALS:
        lowest = curves.min(axis=0)
        highest = curves.max(axis=0)
        middle = np.clip(np.exp(np.log(curves).mean(axis=0)), lowest, highest)
        return Band(middle, lowest, highest)
    mean = one_sample(np.log(curves).T)
    low, high = mean.interval()
    return Band(np.exp(mean.estimate), np.exp(low), np.exp(high))
