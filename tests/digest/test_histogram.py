"""Tests of the lab's and wrk's latency histograms.

The histograms are compared with known values, with exact quantiles, and with a copy of the loop by
which wrk itself corrects a histogram.
"""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrk_files import WRK_RESULT

from runner.digest import histogram
from runner.digest.wrk import backfill_interval_us, mean_ms, quantile_ms, read_wrk, undo_backfill
from runner.model import LabError


def test_buckets_of_known_values() -> None:
    index = histogram.bucket_index([0, 0.5, 1, 1.0099, 1.0101, 1000, 1e6])
    assert list(index) == [0, 0, 0, 0, 1, math.floor(math.log(1000) / math.log(1.01)), 1388]
    bounds = histogram.bucket_bounds([0, 100])
    assert list(bounds.lower_ms) == pytest.approx([0.001, 2.704813829 / 1000])
    assert list(bounds.upper_ms) == pytest.approx([0.00101, 2.731861967 / 1000])


@given(st.one_of(st.floats(1, 1e12), st.integers(0, 2500).map(lambda power: 1.01**power)))
def test_bounds_enclose_the_value(us: float) -> None:
    bounds = histogram.bucket_bounds(histogram.bucket_index([us]))
    lower_ms = bounds.lower_ms[0]
    upper_ms = bounds.upper_ms[0]
    assert lower_ms * 1000 <= us * (1 + 1e-15)
    assert us < upper_ms * 1000 * (1 + 1e-15)
    middle = (lower_ms * upper_ms) ** 0.5 * 1000
    assert abs(middle / us - 1) <= (histogram.GROWTH**0.5 - 1) * (1 + 1e-9)


def test_no_bucket_for_what_is_no_latency() -> None:
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            histogram.bucket_index([1.0, bad])


def test_histograms_merge_by_adding() -> None:
    values = np.random.default_rng(1).lognormal(8, 2, 10_000)
    buckets = histogram.bucket_index(values)
    once = np.ones(values.size, dtype=int)
    whole = histogram.merge_counts(buckets, once)
    halves = [histogram.merge_counts(buckets[half::2], once[half::2]) for half in (0, 1)]
    merged = histogram.merge_counts(*(np.concatenate(pair) for pair in zip(*halves, strict=True)))
    assert [list(part) for part in merged] == [list(part) for part in whole]
    twice = histogram.merge_counts(buckets, 2 * once)
    assert list(twice[1]) == list(whole[1] * 2)
    for wrong in ([-1] * 3, [0.5] * 3):
        with pytest.raises(ValueError, match="Counts"):
            histogram.merge_counts([1, 2, 3], wrong)


def test_hdr_histogram_text_has_every_count_at_its_percentile() -> None:
    values = np.random.default_rng(4).lognormal(7, 1, 20_000)
    buckets, counts = np.unique(histogram.bucket_index(values), return_counts=True)
    upper = histogram.bucket_bounds(buckets).upper_ms
    # Each bucket is given twice, as if the load had lasted two seconds. So the two counts of a
    # bucket must be added up. The test reads the rows that programs read to plot the histogram.
    text = histogram.to_hgrm(np.concatenate([upper, upper]), np.concatenate([counts, counts]))
    rows = [line.split() for line in text.splitlines() if re.match(r"\s+[\d.]+ [01]\.\d{12}", line)]
    assert text.split("\n")[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    assert int(rows[-1][2]) == 40_000 and len(rows[-1]) == 3 and float(rows[-1][1]) == 1
    for value, percentile, running, inverse in rows[:-1]:
        assert float(percentile) == pytest.approx(int(running) / 40_000, abs=1e-12)
        assert float(inverse) == pytest.approx(1 / (1 - float(percentile)), abs=0.006)
        exact = np.quantile(values, float(percentile), method="inverted_cdf") / 1000
        assert float(value) / 1.0102 - 0.0006 <= exact <= float(value) * 1.0102 + 0.0006
    mean, deviation = re.search(
        r"#\[Mean    = +([\d.]+), StdDeviation   = +([\d.]+)\]", text
    ).groups()  # type: ignore[union-attr]
    assert float(mean) == pytest.approx(values.mean() / 1000, rel=0.005)
    assert float(deviation) == pytest.approx(values.std() / 1000, rel=0.01)
    assert re.search(r"#\[Max     = +[\d.]+, Total count    = +40000\]", text)
    with pytest.raises(ValueError, match="no count"):
        histogram.to_hgrm([1.0], [0])


# --- wrk's histogram: the correction that wrk applies is undone exactly ---------------------------


def wrk_stats_correct(data: dict[int, int], expected: int) -> dict[int, int]:
    """Return the histogram as wrk corrects it, one bucket at a time.

    This is a copy of `stats_correct` in wrk's stats.c. It is independent of the lab's code that
    undoes the correction.
    """
    corrected = dict(data)
    for n in range(2 * expected, max(data) + 1):
        count = corrected.get(n, 0)
        m = n - expected
        while count and m > expected:
            corrected[m] = corrected.get(m, 0) + count
            m -= expected
    return corrected


def as_histogram(data: dict[int, int]):
    values = np.array(sorted(data), dtype=np.int64)
    return values, np.array([data[v] for v in values.tolist()], dtype=np.int64)


def test_undoing_gives_back_what_was_measured():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = rng.integers(1, 3000, size=rng.integers(1, 200)).tolist()
        measured = dict(zip(values, rng.integers(1, 50, size=len(values)).tolist(), strict=True))
        interval = int(rng.integers(1, 800))
        raw = undo_backfill(as_histogram(wrk_stats_correct(measured, interval)), interval)
        assert dict(zip(*(each.tolist() for each in raw), strict=True)) == measured, seed


def test_the_published_example_of_a_distorted_p90():
    """If 99 % of the requests take 1 ms and 1 % take 100 ms, the lab's p90 must be 1 ms.

    The p90 that wrk prints for these requests is more than 50 ms, because wrk corrects its
    histogram.
    """
    measured = {1000: 990, 100_000: 10}
    interval = 1990  # with one connection, this is the mean latency in us
    reported = as_histogram(wrk_stats_correct(measured, interval))
    assert quantile_ms(reported, 0.9) > 50
    assert quantile_ms(undo_backfill(reported, interval), 0.9) == 1.0


def test_a_histogram_of_another_interval_is_refused():
    reported = as_histogram(wrk_stats_correct({1000: 100, 90_000: 7}, 2000))
    with pytest.raises(LabError, match="another interval"):
        undo_backfill(reported, 1999)


def test_interval_is_wrks_integer_division():
    assert backfill_interval_us(3_000_123, 70_007, 10) == 3_000_123 // (70_007 // 10)
    assert backfill_interval_us(3_000_000, 9, 10) is None


@pytest.mark.parametrize("q", [0.0, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_and_mean_agree_with_numpy(q):
    sample = np.random.default_rng(1).lognormal(6, 1, 5000).astype(np.int64)
    values, counts = np.unique(sample, return_counts=True)
    assert quantile_ms((values, counts), q) == pytest.approx(
        np.quantile(sample, q) / 1000, rel=1e-12
    )
    assert mean_ms((values, counts)) == pytest.approx(sample.mean() / 1000, rel=1e-12)


HISTOGRAMS = ([[120, 20], [100, 10]], [[100, -1]], [[100]], [["a", 1]], [[10**15, 1]])
CHANGES = [
    {"requests": "30"},
    {"requests": -1},
    {"connections": 0},
    {"errors": {}},
    {"duration_us": True},
]
CHANGES += [{"latency_us": pairs} for pairs in HISTOGRAMS]


def test_a_good_file_is_read_and_any_other_is_named(tmp_path):
    """A valid file of wrk is read, and the error about any other file names the file."""
    path = tmp_path / "wrk.json"
    path.write_text(json.dumps(WRK_RESULT))
    result = read_wrk(path)
    assert (result.requests, result.duration_s, int(result.raw[1].sum())) == (30, 1.0, 30)
    assert set(result.errors.values()) == {0}
    for change in CHANGES:
        path.write_text(json.dumps(WRK_RESULT | change))
        with pytest.raises(LabError, match=r"wrk\.json"):
            read_wrk(path)
