"""Percentile curves of known latencies, their bands, and how long they take."""

import time

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from scipy import stats

from runner.present.statistics.inference import band, trial_curves

Q = np.array([0.5, 0.9, 0.99])


def curve_of(latency, q):
    return band(trial_curves(latency, q))


def cell(medians_ms: list[float], requests: int = 20_000, seconds: int | None = 10) -> pd.DataFrame:
    """The latency table of one cell: log-normal latencies whose median differs between trials."""
    parts = []
    for number, median in enumerate(medians_ms):
        values = stats.lognorm(synthetic_run.SIGMA, scale=median).ppf((np.arange(requests) + 0.5) / requests)
        second = None if seconds is None else np.arange(requests) % seconds
        parts.append(synthetic_run.histogram(values, f"t{number}", second))
    return pd.concat(parts, ignore_index=True)


def known(median_ms: float) -> np.ndarray:
    return stats.lognorm(synthetic_run.SIGMA, scale=median_ms).ppf(Q)


@pytest.mark.parametrize("seconds", [10, None])
def test_each_trial_has_its_known_curve_with_or_without_seconds(seconds: int | None) -> None:
    curves = trial_curves(cell([10.0, 20.0], seconds=seconds), Q)
    assert curves == pytest.approx(np.array([known(10), known(20)]), rel=0.01)


def test_the_band_is_students_interval_of_the_logarithms_over_trials() -> None:
    medians = [10.0, 11.0, 12.0, 10.5, 13.0, 9.0]
    found = curve_of(cell(medians), Q)
    curves = np.log([known(median) for median in medians])
    ends = stats.ttest_1samp(curves, 0).confidence_interval()
    assert found.ms == pytest.approx(np.exp(curves.mean(axis=0)), rel=0.01)
    assert found.low_ms == pytest.approx(np.exp(ends.low), rel=0.01)
    assert found.high_ms == pytest.approx(np.exp(ends.high), rel=0.01)


def test_fewer_than_five_trials_have_a_curve_and_no_band() -> None:
    found = curve_of(cell([10.0] * 4), Q)
    assert found.ms == pytest.approx(known(10), rel=0.01)
    assert np.isnan(found.low_ms).all() and np.isnan(found.high_ms).all()


def test_a_quantile_counts_only_the_trials_that_carry_it() -> None:
    many, few = cell([10.0] * 5), cell([10.0], requests=5_000).assign(trial_id="few")
    curves = trial_curves(pd.concat([many, few]), [*Q, 0.9999])
    assert np.isfinite(curves).sum(axis=0).tolist() == [6, 6, 5, 0]
    assert np.isnan(band(curves).ms[-1]) and np.isfinite(band(curves).ms[:-1]).all()
    assert np.isnan(curve_of(many.head(0), Q).ms).all()


def test_equal_trials_have_a_band_without_width() -> None:
    found = band(np.full((5, 2), 7.0))
    assert found.low_ms == pytest.approx([7, 7]) and found.high_ms == pytest.approx([7, 7])


def test_ten_trials_of_a_minute_take_less_than_two_seconds() -> None:
    rng = np.random.default_rng(1)
    trial, second, bucket = (side.ravel() for side in np.meshgrid(range(10), range(60), range(300), indexing="ij"))
    table = pd.DataFrame({"trial_id": trial, "second": second, "count": rng.poisson(20, trial.size)})
    table = table.assign(lower_ms=1.01**bucket / 1000, upper_ms=1.01 ** (bucket + 1) / 1000)
    started = time.perf_counter()
    curve_of(table, 1 - np.logspace(-0.5, -3.5, 100))
    assert time.perf_counter() - started < 2
