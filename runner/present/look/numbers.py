"""Numbers as a person writes them: quantities, means and ratios with intervals."""

import math

from runner.present.statistics.inference import Mean

SMALLEST_HALF_PCT = 0.005
"""Half an interval's width, in percent, that is not shown as 0."""


def number(value: float) -> str:
    """Return a quantity with about three significant digits: 9,254 or 84.5 or 0.0412.

    `–` if unknown.
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 99.95 or value == 0:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def mean_words(mean: Mean) -> str:
    """Return a mean with its 95 % interval: `29,416 ±1.8 %`.

    Too few trials for an interval have minimum and maximum: `29,416 (28,900–30,120)`; one trial, or
    trials that all print alike, have neither. `–` if unknown.
    """
    value, low, high = map(number, (mean.value, mean.low, mean.high))
    if mean.trials < 2 or value == low == high:
        return value
    if mean.confidence is None:
        return f"{value} ({low}–{high})"
    return f"{value} ±{_half_words(mean.half_pct)}"


def _half_words(half_pct: float) -> str:
    """Return half an interval's width: `12 %`, `1.8 %`, `0.3 %`, `140 %`."""
    if half_pct < SMALLEST_HALF_PCT:
        return "0 %"
    if half_pct < 1:
        return f"{half_pct:.1g} %"
    return f"{half_pct:.2g} %" if half_pct < 99.5 else f"{half_pct:,.0f} %"


def ratio_words(ratio: float, low: float, high: float, digits: int = 2, *, sign: str = "") -> str:
    """Return a ratio with its interval: `2.15 [2.05–2.26]`.

    A bound is the known end of the interval, because the data exclude values beyond it: `at least
    2.05` if `high` is infinite, `at most 2.26` if `low` is 0. `sign` precedes the number: `at least
    ×2.05`.
    """

    def written(value: float) -> str:
        return f"{value:.{digits}f}" if value < 10 else number(value)

    if high == math.inf:
        return f"at least {sign}{written(low)}"
    if low == 0:
        return f"at most {sign}{written(high)}"
    return f"{sign}{written(ratio)} [{written(low)}–{written(high)}]"
