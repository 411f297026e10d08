"""Geometric means of trials with their 95 % confidence intervals, computed by scipy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class KnownMean(NamedTuple):
    """A geometric mean, and the ends of its confidence interval.

    The interval is Student's t interval for the mean of the logarithms, transformed back by exp().
    """

    value: float
    low: float
    high: float

    @property
    def half_pct(self) -> float:
        """Distance of the interval's upper end from the mean, in percent of the mean."""
        return 100 * (self.high / self.value - 1)


def known_mean(values: ArrayLike) -> KnownMean:
    """Return the geometric mean of `values` and its 95 % interval, computed by scipy."""
    logs = np.log(np.asarray(values, dtype=float))
    low, high = stats.t.interval(0.95, logs.size - 1, logs.mean(), stats.sem(logs))
    value = stats.gmean(np.asarray(values, dtype=float))
    return KnownMean(float(value), float(np.exp(low)), float(np.exp(high)))


def whole_words(values: ArrayLike) -> str:
    """Return the geometric mean of `values` with its interval, as the lab prints them.

    An example is `80,296 ±3.9 %`. The mean must be above 100, because it is rounded to an integer.
    """
    mean = known_mean(values)
    return f"{mean.value:,.0f} ±{mean.half_pct:.2g} %"
