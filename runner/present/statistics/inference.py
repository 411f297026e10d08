"""Compute confidence intervals of medians, of ratios of two servers, and of latency curves.

With too few trials there is no interval. A ratio's interval is a Student's t interval of
logarithms. If both servers ran in the same blocks, the interval is computed from the differences
within blocks; otherwise it is Welch's interval for two samples. Bioequivalence of drugs is shown in
the same way (FDA 2001, Statistical Approaches to Establishing Bioequivalence). docs/decisions.md
compares the coverage of this interval with the coverage of the usual bootstrap of log medians, and
tests/present/statistics/test_inference_simulated.py repeats the comparison.

The distributions come from `scipy.special`, which takes half a second of CPU to load. scipy loads
this module only when it is first used, so `bench run` spends this time only with `--until`.
`scipy.stats` takes a second longer to load, so its functions are not used here. Docstrings that
mention such a function give further reasons.
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
LOOKS = (6, 9, 12, 16, 20)
"""Numbers of sessions after which a run with `--until` checks whether it can end.

Each such check is called a look.
"""
LOOK_ALPHA = 0.0155
"""Significance level of each look.

The level is so low that only 5 % of the runs with `--until` make a wrong decision at any of their
looks. It is Pocock's bound for looks after these sessions (1977, Biometrika 64, 191), computed with
Student's t because there are few sessions. tests/present/statistics/test_inference_simulated.py
simulates the rate of wrong decisions.
"""
POWER = 0.8
FEWEST_TRIALS = 5
"""Each side of a ratio needs at least this many trials.

Fewer trials do not show how much trials vary.
"""
ROUNDING = 1e-12  # if logarithms differ by less than this, the difference is a rounding error
Sample: TypeAlias = "pd.Series[float]"
"""A positive value for each trial of a cell. The index of the series is the trial's block."""


def level(manifest: Manifest) -> float:
    """Return the significance level of the tests of a run.

    A run with `--until` has a lower level, because it tests several times (`LOOKS`) and each test
    may err.
    """
    return LOOK_ALPHA if manifest.until else ALPHA


def sure_spread(values: ArrayLike, confidence: float = CONFIDENCE) -> Spread:
    """Return the sample median with its exact interval, for values of any distribution.

    The interval runs from the j-th smallest to the j-th largest of n values. Its coverage is
    1 - 2 P(Binomial(n, 1/2) < j). j is the largest number for which the coverage is at least
    `confidence`, and the result's `confidence` is this coverage.

    If even the coverage from minimum to maximum is too low, the result has minimum and maximum as
    its ends, and None as its `confidence`. At 95 %, this happens with fewer than six values,
    because five values cover only 93.75 %. NaN are left out. Source: David & Nagaraja, Order
    Statistics, 3rd ed., section 7.1.
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
    """Return the sample of a cell from the value and the block of each trial.

    Only finite positive values are kept, because other values have no logarithm. A block is a
    number or a name.
    """
    known = pd.Series(list(values), index=list(blocks), dtype=np.float64)
    return known[np.isfinite(known) & (known > 0)]


def geometric_mean(sample: Sample) -> float:
    """Return the geometric mean of a sample, or NaN if the sample is empty."""
    return float(np.exp(np.log(sample).mean()))


@dataclass(frozen=True)
class Mean:
    """The geometric mean of a cell's trials with its interval.

    Reports show geometric means, because the ratio of two cells is the quotient of their geometric
    means. If there are too few trials for an interval, `confidence` is None, and low and high are
    the minimum and maximum of the trials. If `trials` is 0, the mean and its ends are NaN.
    """

    trials: int
    value: float
    low: float
    high: float
    confidence: float | None = None

    @property
    def half_pct(self) -> float:
        """Half the interval's width, in percent of the mean, to be printed after `±`.

        One number is enough for both ends, because the interval is symmetric on a logarithmic
        scale.
        """
        return 100 * (math.sqrt(self.high / self.low) - 1)


def mean_of(values: Iterable[float], confidence: float = CONFIDENCE) -> Mean:
    """Return the geometric mean of trials, with Student's t interval of the logarithms.

    Values that are not finite and positive have no logarithm, so they are left out. With fewer than
    `FEWEST_TRIALS` trials, low and high are the minimum and maximum.
    """
    known = np.asarray(list(values), dtype=np.float64)
    known = known[np.isfinite(known) & (known > 0)]
    if not known.size:
        return Mean(0, math.nan, math.nan, math.nan)
    if known.size < FEWEST_TRIALS:
        lowest = float(known.min())
        highest = float(known.max())
        # Clip the mean, because rounding could put the mean of equal values outside of their range.
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
    """Estimated means of logarithms (usually log ratios), as arrays with one element per estimate.

    The degrees of freedom may also be a single number that applies to all estimates.
    """

    estimate: Floats
    standard_error: Floats
    degrees: Floats

    def interval(self, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of Student's t intervals."""
        half = scipy.special.stdtrit(self.degrees, (1 + confidence) / 2) * self.standard_error
        return np.asarray(self.estimate - half), np.asarray(self.estimate + half)

    def p_value(self) -> Floats:
        """Return the two-sided p-values of the null hypothesis that the log ratio is 0.

        The p-value is 1 if both the difference and the spread are 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.estimate) / self.standard_error
        return np.asarray(np.where(np.isnan(t), 1.0, 2 * scipy.special.stdtr(self.degrees, -t)))


def one_sample(logs: Floats) -> LogRatio:
    """Estimate the mean of logarithms with Student's t (Student 1908, Biometrika 6, 1).

    The last axis of `logs` runs over the trials. `scipy.stats.t.interval` returns the same ends,
    but is not used because it returns NaN if all trials are equal.
    """
    n = logs.shape[-1]
    error = logs.std(axis=-1, ddof=1) / np.sqrt(n)
    return LogRatio(logs.mean(axis=-1), error, np.asarray(float(n - 1)))


def paired(log_a: Floats, log_b: Floats) -> LogRatio:
    """Estimate the mean difference between the logarithms of two servers' values within blocks.

    The last axis of both arguments runs over the blocks, in the same order. Intervals and p-values
    equal those of `scipy.stats.ttest_rel`. That function is not used for two reasons: its result
    lacks the standard error, which `Ratio.p_beyond` and `Ratio.detectable` need, and its p-value is
    NaN if both sides are equal.
    """
    difference = log_a - log_b
    return one_sample(np.where(np.abs(difference) < ROUNDING, 0.0, difference))


def unpaired(log_a: Floats, log_b: Floats) -> LogRatio:
    """Estimate the difference between the mean logarithms of two samples without common blocks.

    The last axis of both arguments runs over the trials. The degrees of freedom are Welch's (1947,
    Biometrika 34, 28). Intervals and p-values equal those of `scipy.stats.ttest_ind` for unequal
    variances. That function is not used for two reasons. Its result lacks the standard error. And
    it prints a warning if all trials of a side have the same value, which can happen with the
    memory of a server.
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

    `low` and `high` are the ends of the interval. The interval is computed from `standard_error`,
    which is the standard error of the ratio's logarithm, and from the degrees of freedom `degrees`.
    `mean_a` and `mean_b` are the geometric means of the compared trials. `p` is the t test's
    p-value of the null hypothesis that the servers do not differ. `blocks` is the number of blocks
    within which the servers were compared, or 0 if they were compared as two samples.
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
        """Return the p-value of Student's one-sided t test of the log ratio against `border`.

        With `above`, the null hypothesis is that the true ratio is not above `border`. Otherwise,
        the null hypothesis is that the true ratio is not below `border`.
        """
        distance = (math.log(self.ratio) - math.log(border)) * (1 if above else -1)
        if self.standard_error > 0:
            return float(scipy.special.stdtr(self.degrees, -distance / self.standard_error))
        return 0.0 if distance > ROUNDING else 1.0

    def detectable(self, alpha: float = ALPHA, power: float = POWER) -> float:
        """Return the smallest true ratio (> 1) that a similar comparison would probably detect.

        If the true ratio has this size, a comparison with the same number of trials and the same
        spread finds a difference at level `alpha` with probability `power`. The computation uses
        the noncentral t distribution, which the t statistic has if the true ratio is not 1 (Cohen
        1988, Statistical Power Analysis, 2nd ed., chapter 2). The chance of finding a difference in
        the wrong direction is ignored.
        """
        critical = scipy.special.stdtrit(self.degrees, alpha / 2)
        noncentrality = scipy.special.nctdtrinc(self.degrees, 1 - power, -critical)
        return math.exp(noncentrality * self.standard_error)


def ratio(a: Sample, b: Sample, *, confidence: float = CONFIDENCE) -> Ratio | None:
    """Return the ratio of two servers with its interval.

    Return None if a side has fewer than `FEWEST_TRIALS` trials. The servers are compared within
    blocks if they have at least `FEWEST_TRIALS` blocks in common, otherwise as two samples.
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
    """Return the logarithms of both sides in their common blocks, in the same order.

    Return None if there are fewer than `FEWEST_TRIALS` common blocks, or if a side has several
    trials in one block.
    """
    common = a.index.intersection(b.index).sort_values()
    if len(common) < FEWEST_TRIALS or not (a.index.is_unique and b.index.is_unique):
        return None
    return np.log(a.loc[common].to_numpy()), np.log(b.loc[common].to_numpy())


def noise_floor(same: Ratio) -> float:
    """Return the noise floor, which is the largest ratio (>= 1) that noise alone causes.

    `same` is the ratio between two names of one server (A/A). The noise floor is the end of this
    ratio's interval that lies farther from 1. An end below 1 is inverted, so that the order of the
    labels does not matter.
    """
    return max(same.high, 1 / same.low, 1.0)


def is_tie(found: Ratio, floor: float = 1.0) -> bool:
    """Return True if a ratio shows no difference between two servers.

    This is the case if the ratio's interval includes 1, or if the whole interval lies within the
    noise, that is between 1 / `floor` and `floor`.
    """
    return found.low <= 1 <= found.high or (1 / floor <= found.low and found.high <= floor)


def trial_curves(latency: pd.DataFrame, q: ArrayLike) -> Floats:
    """Return the quantiles `q` of each trial's response times in ms, with a row for each trial.

    `latency` has the columns trial_id, lower_ms, upper_ms and count. The rows of k6 are split into
    seconds, and the rows of wrk are not. Both can be used, because the counts of all seconds are
    added up. A value is NaN if the trial has fewer than `REQUESTS_BEYOND` requests above the
    quantile.
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
    """A mean curve, and the two ends of the interval at each point of the curve, in ms."""

    middle_ms: Floats
    low_ms: Floats
    high_ms: Floats


def band(curves: Floats) -> Band:
    """Return the geometric mean of curves, with Student's t interval at each point.

    `curves` has one row per trial, in ms. The interval is computed from one value of each trial,
    not from single requests, because requests depend on each other. The differences between trials
    already include the variation within a trial. docs/decisions.md says why no hierarchical
    bootstrap is used. With fewer than `FEWEST_TRIALS` trials, the band is the mean with minimum and
    maximum.
    """
    if len(curves) < FEWEST_TRIALS:
        lowest = curves.min(axis=0)
        highest = curves.max(axis=0)
        middle = np.clip(np.exp(np.log(curves).mean(axis=0)), lowest, highest)
        return Band(middle, lowest, highest)
    mean = one_sample(np.log(curves).T)
    low, high = mean.interval()
    return Band(np.exp(mean.estimate), np.exp(low), np.exp(high))
