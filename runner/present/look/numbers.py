"""Write quantities, and ratios with their intervals, as text."""

import math


def number(value: float) -> str:
    """Return a quantity with at least three significant digits: 9,254 or 84.5 or 0.0412.

    Return `–` if the value is not finite.
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 99.95 or value == 0:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def ratio_words(ratio: float, low: float, high: float, digits: int = 2, *, sign: str = "") -> str:
    """Return a ratio with its interval: `2.15 [2.05–2.26]`.

    If only one end of the interval is known, return this end as a bound: `at least 2.05` if `high`
    is infinite, and `at most 2.26` if `low` is 0. A `sign` is written before the number: `at least
    ×2.05`. `digits` is the number of decimals.
    """

    def written(value: float) -> str:
        return f"{value:.{digits}f}" if value < 10 else number(value)

    if high == math.inf:
        return f"at least {sign}{written(low)}"
    if low == 0:
        return f"at most {sign}{written(high)}"
    return f"{sign}{written(ratio)} [{written(low)}–{written(high)}]"
