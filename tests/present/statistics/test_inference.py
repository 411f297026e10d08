"""Tests of intervals of medians, means, ratios and percentile curves.

The intervals must agree with scipy, with printed tables and with known latencies.
"""

import math
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from known_means import known_mean
from scipy import stats
from synthetic_run import SIGMA, histogram, latencies

from runner.present.statistics import inference
from runner.present.statistics.inference import (
    FEWEST_TRIALS,
    Mean,
    Ratio,
    Sample,
    band,
    is_tie,
    mean_of,
    noise_floor,
    ratio,
    sample_of,
    trial_curves,
)
from runner.present.statistics.stats import Spread, mlperf_requests, tail_error_pct

RNG = np.random.default_rng(11)


def sample(values, first_block: int = 1) -> Sample:
    return sample_of(values, range(first_block, first_block + len(values)))


# --- intervals of medians -------------------------------------------------------------------------

# 95 % intervals of a median, as tuples: number of values, rank of the value that is the lower end,
# and coverage. Source: Conover, Practical Nonparametric Statistics, table A3.
TABLE = [
    (6, 1, 0.9688),
    (8, 1, 0.9922),
    (9, 2, 0.9609),
    (10, 2, 0.9785),
    (15, 4, 0.9648),
    (20, 6, 0.9586),
]


@pytest.mark.parametrize(("n", "rank", "confidence"), TABLE)
def test_a_medians_interval_has_the_ranks_of_the_tables(
    n: int, rank: int, confidence: float
) -> None:
    values = np.arange(1.0, n + 1)
    found = inference.sure_spread(RNG.permutation(values))
    assert found == Spread(
        n, float(np.median(values)), rank, n + 1 - rank, pytest.approx(confidence, abs=5e-5)
    )


def test_five_values_have_no_interval_of_their_median() -> None:
    assert [inference.sure_spread(np.arange(n)).confidence for n in range(6)] == [None] * 6
    assert inference.sure_spread([3, 1, 2]) == Spread(3, 2, 1, 3)
    assert inference.sure_spread([3, 1, 5, 2, 4, np.nan], confidence=0.93) == Spread(
        5, 3, 1, 5, 0.9375
    )


# --- means and their intervals --------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 6, 9, 40])
@pytest.mark.parametrize("confidence", [0.95, 0.9845])
def test_a_mean_and_its_interval_are_those_of_scipy(n: int, confidence: float) -> None:
    values = RNG.lognormal(10, 0.2, n)
    found = mean_of(values, confidence)
    logs = np.log(values)
    ends = stats.t.interval(confidence, n - 1, logs.mean(), stats.sem(logs))
    assert (found.trials, found.confidence) == (n, confidence)
    assert found.value == pytest.approx(stats.gmean(values))
    assert (found.low, found.high) == pytest.approx(np.exp(ends))


def test_fewer_than_five_values_have_their_range_beside_the_mean() -> None:
    for values in ([3.0, 1.0, 2.0, 8.0], [3.0, 1.0], [7.0]):
        found = mean_of(values)
        assert found.value == pytest.approx(stats.gmean(values))
        assert (found.trials, found.low, found.high) == (len(values), min(values), max(values))
        assert found.confidence is None
    assert FEWEST_TRIALS == 5 and mean_of([3.0, 1.0, 2.0, 8.0, 4.0]).confidence == 0.95


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_a_mean_of_equal_values_lies_within_its_ends(n: int) -> None:
    """The mean of equal values lies between the ends of its interval, in spite of rounding.

    If the mean lay outside, matplotlib would refuse to draw an error bar of a negative length.
    """
    for value in RNG.lognormal(8, 1, 200):
        found = mean_of([value] * n)
        assert found.low <= found.value <= found.high


def test_no_values_have_no_mean() -> None:
    for values in ([], [math.nan], [0.0, math.nan, math.inf, -1.0]):
        found = mean_of(values)
        assert (found.trials, found.confidence) == (0, None)
        assert np.isnan([found.value, found.low, found.high, found.half_pct]).all()


def test_values_without_a_logarithm_are_left_out_of_a_mean() -> None:
    values = RNG.lognormal(0, 1, 6)
    some = mean_of([0.0, *values[:3], math.nan, *values[3:], math.inf, -2.0])
    assert some == mean_of(values) and some.trials == 6
    few = mean_of([*values[:4], 0.0, math.nan])
    assert (few.trials, few.low, few.confidence) == (4, values[:4].min(), None)


def test_equal_values_have_an_interval_without_width() -> None:
    found = mean_of([5.0] * 6)
    assert (found.value, found.low, found.high) == pytest.approx((5, 5, 5))
    assert found.half_pct == pytest.approx(0, abs=1e-9)


def test_half_of_an_interval_is_in_percent_of_the_mean() -> None:
    assert Mean(6, 100.0, 80.0, 125.0, 0.95).half_pct == pytest.approx(25)
    values = RNG.lognormal(3, 0.1, 7)
    assert mean_of(values).half_pct == pytest.approx(known_mean(values).half_pct)


@pytest.mark.parametrize(
    ("first_block", "common"), [(1, 9), (3, 7), (5, 5), (6, 0), (100, 0)], ids=str
)
def test_a_ratio_is_the_quotient_of_its_two_means(first_block: int, common: int) -> None:
    """A ratio is the quotient of two means.

    The means are over the blocks that both sides have. If there are fewer than five such blocks,
    the means are over all trials.
    """
    a = RNG.lognormal(2, 0.3, 9)
    b = RNG.lognormal(1, 0.3, 9)
    found = ratio(sample(a), sample(b, first_block))
    assert found is not None and found.blocks == common
    ours, theirs = (a[9 - common :], b[:common]) if common else (a, b)
    assert found.mean_a == pytest.approx(stats.gmean(ours))
    assert found.mean_b == pytest.approx(stats.gmean(theirs))
    assert found.ratio == pytest.approx(found.mean_a / found.mean_b, rel=1e-12)


# --- ratios and their intervals -------------------------------------------------------------------


def welch(x, y):
    return stats.ttest_ind(x, y, equal_var=False)


@pytest.mark.parametrize(
    ("blocks", "sizes", "test"), [(8, (8, 8), stats.ttest_rel), (0, (7, 12), welch)]
)
def test_a_ratio_is_scipys_t_interval_of_the_logarithms(
    blocks: int, sizes: tuple[int, int], test: Any
) -> None:
    a, b = (RNG.lognormal(4, noise, size) for size, noise in zip(sizes, (0.1, 0.3), strict=True))
    shuffled = RNG.permutation(len(b))
    found = ratio(sample(a), sample_of(b[shuffled], shuffled + (1 if blocks else 100)))
    theirs = test(np.log(a), np.log(b))
    assert found.blocks == blocks
    assert (found.low, found.high) == pytest.approx(np.exp(theirs.confidence_interval()), rel=1e-12)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.ratio == pytest.approx(stats.gmean(a) / stats.gmean(b), rel=1e-12)


def test_fewer_than_five_trials_a_side_have_no_ratio() -> None:
    assert ratio(sample([1, 2, 3, 4]), sample(range(1, 11))) is None
    assert ratio(sample(range(1, 6)), sample([1, 2, 3, np.nan, 0.0, 5])) is None
    assert ratio(sample(range(1, 6)), sample(range(1, 6))) is not None


def test_only_common_blocks_of_one_trial_are_compared() -> None:
    """Only blocks that both sides have are compared.

    If a block of a side has several trials, the sides are compared without blocks.
    """
    a = sample_of([10, 11, 12, 13, 14, 99], [1, 2, 3, 4, 5, 6])
    found = ratio(a, sample_of([5, 5.5, 6, 6.5, 7, 1], [1, 2, 3, 4, 5, 7]))
    assert (found.blocks, found.ratio, found.low, found.high) == pytest.approx((5, 2, 2, 2))
    several = sample_of([9, 10, 11, 10, 9, 11], [1, 1, 2, 3, 4, 5])
    assert ratio(several, sample([5, 6, 5, 6, 5])).blocks == 0


def test_blocks_that_both_sides_share_do_not_widen_a_ratio() -> None:
    machine = np.array([1.0, 0.7, 1.3, 0.9, 1.1, 0.6])
    a, b = np.array([[100], [90]]) * machine * (1 + RNG.normal(0, 0.01, (2, 6)))
    blocked = ratio(sample(a), sample(b))
    apart = ratio(sample(a), sample(b, first_block=50))
    assert blocked.high / blocked.low < 1.06 < 1.5 < apart.high / apart.low


def test_equal_values_have_the_ratio_one_and_a_p_value_of_one() -> None:
    for first_block in (1, 50):
        found = ratio(sample([70, 0.3, 3, 4, 5]), sample([70, 0.1 + 0.2, 3, 4, 5], first_block))
        assert (found.ratio, found.p) == (pytest.approx(1), 1)
    same = ratio(sample([2, 2, 2, 2, 2]), sample([1, 1, 1, 1, 1], first_block=50))
    assert (same.low, same.ratio, same.high, same.p) == (2, 2, 2, 0)


@pytest.mark.parametrize(
    ("together", "alone"), [(inference.paired, stats.ttest_rel), (inference.unpaired, welch)]
)
def test_many_campaigns_at_once_give_what_each_gives_alone(together: Any, alone: Any) -> None:
    a, b = RNG.normal(0, 1, (2, 50, 7))
    found = together(a, b)
    theirs = [alone(x, y) for x, y in zip(a, b, strict=True)]
    assert np.allclose(
        np.column_stack(found.interval()), [each.confidence_interval() for each in theirs]
    )
    assert np.allclose(found.p_value(), [each.pvalue for each in theirs])


# --- detectable ratios, and the noise floor -------------------------------------------------------


def detectable(standard_error: float, degrees: int, **how: float) -> float:
    found = Ratio(
        ratio=1, low=1, high=1, p=1, blocks=0, standard_error=standard_error, degrees=degrees
    )
    return found.detectable(**how)


# Tuples (standard error, degrees of freedom, power). The power is that of a two-sided test at a
# level of 5 %, for an effect of half a standard deviation, as G*Power 3.1 computes it.
POWER = [(math.sqrt(1 / 34), 33, 0.8077775), (math.sqrt(2 / 64), 126, 0.8014596)]


@pytest.mark.parametrize(("standard_error", "degrees", "power"), POWER)
def test_detectable_ratio_agrees_with_g_power(
    standard_error: float, degrees: int, power: float
) -> None:
    assert math.log(detectable(standard_error, degrees, power=power)) == pytest.approx(
        0.5, abs=2e-4
    )


def test_more_trials_and_less_noise_find_smaller_ratios() -> None:
    found = detectable(0.01, 9)
    assert 1 < detectable(0.005, 9) < found < detectable(0.01, 4)
    assert found < detectable(0.01, 9, alpha=0.05 / 36)
    assert detectable(0.0, 4) == 1


def test_the_noise_floor_is_the_farther_end_of_an_interval() -> None:
    """The noise floor is computed from the ratio between two names of one server.

    The end of the ratio's interval that is farther from 1 is the noise floor, written as a factor
    above 1. It does not matter which label is the numerator.
    """
    a = sample([100, 101, 99, 102, 98])
    b = sample([103, 100, 101, 102, 101])
    one = ratio(a, b)
    other = ratio(b, a)
    assert noise_floor(one) == pytest.approx(noise_floor(other)) == pytest.approx(1 / one.low)
    assert one.low < 1 < one.high


def test_a_tie_holds_one_or_lies_inside_the_noise_floor() -> None:
    fast = sample([103, 104, 103, 104, 103])
    slow = sample([100, 101, 100, 101, 100])
    above = ratio(fast, slow)
    below = ratio(slow, fast)
    assert 1.029 < above.low < above.high < 1.031
    assert not is_tie(above)
    assert [[is_tie(found, floor) for floor in (1.02, 1.05)] for found in (above, below)] == [
        [False, True]
    ] * 2
    assert is_tie(ratio(sample([90, 110, 100, 95, 106]), sample([100] * 5)))


# --- how many requests a percentile needs ---------------------------------------------------------


def test_requests_that_mlperf_asks_for() -> None:
    # These numbers are from Reddi et al. 2020, MLPerf Inference Benchmark, table IV. The paper then
    # rounds them up to multiples of 2^13.
    assert [mlperf_requests(q) for q in (0.9, 0.95, 0.99)] == [23_886, 50_425, 262_742]
    assert mlperf_requests(0.999) == pytest.approx(2.65e6, rel=1e-3)
    assert tail_error_pct(262_742, 0.99) == pytest.approx(5, abs=1e-4)


def test_the_tail_of_a_sample_quantile_is_as_far_off_as_stated() -> None:
    beyond = 1 - np.quantile(RNG.random((2000, 10_000)), 0.99, axis=1)
    stated = tail_error_pct(10_000, 0.99) / 100
    assert stated == pytest.approx(0.256, abs=1e-3)
    inside = np.mean(np.abs(beyond - 0.01) <= stated * 0.01)
    assert 0.985 <= inside <= 0.995
    assert math.isnan(tail_error_pct(0, 0.99))


# --- percentile curves and their bands ------------------------------------------------------------

Q = np.array([0.5, 0.9, 0.99])


def cell(medians_ms: list[float], requests: int = 20_000, seconds: int | None = 10) -> pd.DataFrame:
    """Return the latency table of a cell with a trial for each of these medians.

    The latencies of a trial are log-normal. They are spread evenly over `seconds` seconds. If
    `seconds` is None, the table does not say to which second a latency belongs.
    """
    second = None if seconds is None else np.arange(requests) % seconds
    parts = [
        histogram(latencies(median, requests), f"t{number}", second)
        for number, median in enumerate(medians_ms)
    ]
    return pd.concat(parts, ignore_index=True)


def known(median_ms: float) -> np.ndarray:
    return stats.lognorm(SIGMA, scale=median_ms).ppf(Q)


@pytest.mark.parametrize("seconds", [10, None])
def test_each_trial_has_its_known_curve_with_or_without_seconds(seconds: int | None) -> None:
    curves = trial_curves(cell([10.0, 20.0], seconds=seconds), Q)
    assert curves == pytest.approx(np.array([known(10), known(20)]), rel=0.01)


def test_the_band_is_students_interval_of_the_logarithms() -> None:
    medians = [10.0, 11.0, 12.0, 10.5, 13.0, 9.0]
    found = band(trial_curves(cell(medians), Q))
    curves = np.log([known(median) for median in medians])
    ends = stats.ttest_1samp(curves, 0).confidence_interval()
    theirs = np.exp([ends.low, curves.mean(axis=0), ends.high])
    ours = np.array([found.low_ms, found.middle_ms, found.high_ms])
    assert ours == pytest.approx(theirs, rel=0.01)


def test_few_trials_have_their_range_as_a_band() -> None:
    found = band(trial_curves(cell([10.0, 20.0, 12.0, 12.0]), Q))
    ours = np.array([found.middle_ms, found.low_ms, found.high_ms])
    assert ours == pytest.approx(
        np.array([known(stats.gmean([10, 20, 12, 12])), known(10), known(20)]), rel=0.01
    )
    flat = band(np.full((5, 2), 7.0))
    assert [*flat.low_ms, *flat.high_ms] == pytest.approx([7.0] * 4)


def test_a_quantile_that_one_trial_does_not_carry_has_no_band() -> None:
    many = cell([10.0] * 5)
    few = cell([10.0], requests=5_000).assign(trial_id="few")
    curves = trial_curves(pd.concat([many, few]), [*Q, 0.9999])
    assert np.isfinite(curves).sum(axis=0).tolist() == [6, 6, 5, 0]
    middle = band(curves).middle_ms
    assert (
        np.isfinite(middle).tolist()
        == np.isfinite(curves).all(axis=0).tolist()
        == [True, True, False, False]
    )
    assert trial_curves(many.head(0), Q).shape == (0, 3)


def test_ten_trials_of_a_minute_take_less_than_two_seconds() -> None:
    rng = np.random.default_rng(1)
    trial, second, bucket = (
        side.ravel() for side in np.meshgrid(range(10), range(60), range(300), indexing="ij")
    )
    table = pd.DataFrame(
        {"trial_id": trial, "second": second, "count": rng.poisson(20, trial.size)}
    )
    table = table.assign(lower_ms=1.01**bucket / 1000, upper_ms=1.01 ** (bucket + 1) / 1000)
    started = time.perf_counter()
    band(trial_curves(table, 1 - np.logspace(-0.5, -3.5, 100)))
    assert time.perf_counter() - started < 2
