"""Tests of printed numbers, which must look as a person would write them."""

import math

import pytest

from runner.model import setting_text, short_number
from runner.present.look.numbers import number, ratio_words


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
