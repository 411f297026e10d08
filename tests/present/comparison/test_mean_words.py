"""Numbers as a person writes them."""

import math

import pytest

from runner.model import setting_text, short_number
from runner.present.look.numbers import mean_words, number, ratio_words
from runner.present.statistics.inference import Mean


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (657.142857142857, "657.1"),
        (4142.857142857143, "4,143"),
        (500.0, "500"),
        (12_500.0, "12,500"),
        (0.5, "0.5"),
        (1.142857142857, "1.143"),
        (0.0, "0"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_a_number_that_was_set_is_exact_or_has_four_digits(value: float, text: str) -> None:
    assert setting_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(99.97, "100"), (123.4, "123"), (0.0393, "0.0393"), (5.694, "5.69")]
)
def test_a_short_number_has_three_digits(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(9254.4, "9,254"), (84.53, "84.5"), (0.04123, "0.0412"), (99.97, "100"), (math.nan, "–")],
)
def test_a_measured_number_has_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_bound_is_the_known_end_of_its_interval() -> None:
    assert ratio_words(2.15, 2.05, 2.26) == "2.15 [2.05–2.26]"
    assert ratio_words(2.15, 2.05, math.inf, sign="×") == "at least ×2.05"
    assert ratio_words(0.9, 0.0, 0.95) == "at most 0.95"


def about(value: float, half_pct: float) -> Mean:
    """A mean with an interval of six trials that is so wide."""
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
    """Nor has one whose ends print as it does."""
    assert mean_words(mean) == text
