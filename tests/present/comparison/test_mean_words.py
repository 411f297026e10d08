"""Tests of means in words: a mean is written with half of its interval, or with its range."""

import math

import pytest

from runner.present.comparison.mean_words import mean_words
from runner.present.statistics.inference import Mean


def about(value: float, half_pct: float) -> Mean:
    """Return a mean of six trials whose interval reaches `half_pct` percent to either side."""
    factor = 1 + half_pct / 100
    return Mean(6, value, value / factor, value * factor, 0.95)


@pytest.mark.parametrize(
    ("value", "half_pct", "text"),
    [
        (29_416.2, 1.84, "29,416 ±1.8 %"),
        (0.03542, 12.3, "0.0354 ±12 %"),
        (84.53, 1.0, "84.5 ±1 %"),
        (29_416.2, 0.34, "29,416 ±0.3 %"),
        (29_416.2, 0.012, "29,416 ±0.01 %"),
        (29_416_123.0, 0.004, "29,416,123 ±0 %"),
        (29_416.2, 99.4, "29,416 ±99 %"),
        (29_416.2, 140.4, "29,416 ±140 %"),
        (29_416.2, 1234.5, "29,416 ±1,234 %"),
    ],
)
def test_a_mean_has_half_its_interval_in_percent(value: float, half_pct: float, text: str) -> None:
    assert mean_words(about(value, half_pct)) == text


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (Mean(3, 29_416.2, 28_900.4, 30_119.6), "29,416 (28,900–30,120)"),
        (Mean(2, 0.0354, 0.0301, 0.0402), "0.0354 (0.0301–0.0402)"),
        (Mean(1, 29_416.2, 29_416.2, 29_416.2), "29,416"),
        (Mean(3, 5.001, 5.0, 5.002), "5.00"),
        (about(5.0, 0.0), "5.00"),
        (about(29_416.2, 0.0003), "29,416"),
        (Mean(0, math.nan, math.nan, math.nan), "–"),
    ],
)
def test_a_mean_without_an_interval_has_its_range_or_nothing(mean: Mean, text: str) -> None:
    """If there are too few trials for an interval, a mean is written with its range.

    If both ends of the range or interval are printed like the mean, the mean is written alone.
    """
    assert mean_words(mean) == text
