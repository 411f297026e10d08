"""The histogram's buckets against known values and exact quantiles."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.digest import histogram


def test_buckets_of_known_values() -> None:
    index = histogram.bucket_index([0, 0.5, 1, 1.0099, 1.0101, 1000, 1e6])
    assert list(index) == [0, 0, 0, 0, 1, math.floor(math.log(1000) / math.log(1.01)), 1388]
    lower, upper = histogram.bucket_bounds_ms([0, 100])
    assert list(lower) == pytest.approx([0.001, 2.704813829 / 1000])
    assert list(upper) == pytest.approx([0.00101, 2.731861967 / 1000])


@given(st.one_of(st.floats(1, 1e12), st.integers(0, 2500).map(lambda power: 1.01**power)))
def test_bounds_enclose_the_value(us: float) -> None:
    lower, upper = histogram.bucket_bounds_ms(histogram.bucket_index([us]))
    assert lower[0] * 1000 <= us * (1 + 1e-15)
    assert us < upper[0] * 1000 * (1 + 1e-15)
    middle = (lower[0] * upper[0]) ** 0.5 * 1000
    assert abs(middle / us - 1) <= (histogram.GROWTH**0.5 - 1) * (1 + 1e-9)


def test_no_bucket_for_what_is_no_latency() -> None:
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            histogram.bucket_index([1.0, bad])


def test_histograms_merge_by_adding() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(8, 2, 10_000)
    whole = histogram.bucket_counts(values)
    halves = [histogram.bucket_counts(values[::2]), histogram.bucket_counts(values[1::2])]
    merged = histogram.merge_counts(*(np.concatenate(pair) for pair in zip(*halves, strict=True)))
    assert [list(part) for part in merged] == [list(part) for part in whole]
    twice = histogram.bucket_counts(values, np.full(values.size, 2))
    assert list(twice[1]) == list(whole[1] * 2)
    for wrong in ([-1] * 3, [0.5] * 3):
        with pytest.raises(ValueError, match="Counts"):
            histogram.bucket_counts([1, 2, 3], wrong)


def test_hdr_histogram_text_has_every_count_at_its_percentile() -> None:
    rng = np.random.default_rng(4)
    values = rng.lognormal(7, 1, 20_000)
    buckets, counts = histogram.bucket_counts(values)
    _, upper = histogram.bucket_bounds_ms(buckets)
    # As a plotter reads it, and with the seconds of a load apart: rows of one bucket are added up.
    text = histogram.to_hgrm(np.concatenate([upper, upper]), np.concatenate([counts, counts]))
    rows = [line.split() for line in text.splitlines() if re.match(r"\s+[\d.]+ [01]\.\d{12}", line)]
    assert text.split("\n")[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    assert int(rows[-1][2]) == 40_000 and len(rows[-1]) == 3 and float(rows[-1][1]) == 1
    for value, percentile, running, inverse in rows[:-1]:
        assert float(percentile) == pytest.approx(int(running) / 40_000, abs=1e-12)
        assert float(inverse) == pytest.approx(1 / (1 - float(percentile)), abs=0.006)
        exact = np.quantile(values, float(percentile), method="inverted_cdf") / 1000
        assert float(value) / 1.0102 - 0.0006 <= exact <= float(value) * 1.0102 + 0.0006
    mean, deviation = re.search(r"#\[Mean    = +([\d.]+), StdDeviation   = +([\d.]+)\]", text).groups()  # type: ignore[union-attr]
    assert float(mean) == pytest.approx(values.mean() / 1000, rel=0.005)
    assert float(deviation) == pytest.approx(values.std() / 1000, rel=0.01)
    assert re.search(r"#\[Max     = +[\d.]+, Total count    = +40000\]", text)
    with pytest.raises(ValueError, match="no count"):
        histogram.to_hgrm([1.0], [0])
