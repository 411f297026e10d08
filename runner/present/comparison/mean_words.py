"""Write a mean with its interval, in the form that reports print beside the ratios of means."""

from runner.present.look.numbers import number
from runner.present.statistics.inference import Mean

SMALLEST_HALF_PCT = 0.005
"""An interval is printed as `±0 %` if half its width is below this percentage of the mean."""


def mean_words(mean: Mean) -> str:
    """Return a mean with its 95 % interval: `29,416 ±1.8 %`.

    If there are too few trials for an interval, return minimum and maximum instead:
    `29,416 (28,900–30,120)`. Return only the mean if there is one trial, or if the values of all
    trials look the same when printed. Return `–` if the mean is unknown.
    """
    value = number(mean.value)
    low = number(mean.low)
    high = number(mean.high)
    if mean.trials < 2 or value == low == high:
        return value
    if mean.confidence is None:
        return f"{value} ({low}–{high})"
    return f"{value} ±{_half_words(mean.half_pct)}"


def _half_words(half_pct: float) -> str:
    """Return half an interval's width, in percent of the mean, as text: `12 %`, `1.8 %`."""
    if half_pct < SMALLEST_HALF_PCT:
        return "0 %"
    if half_pct < 1:
        return f"{half_pct:.1g} %"
    return f"{half_pct:.2g} %" if half_pct < 99.5 else f"{half_pct:,.0f} %"
