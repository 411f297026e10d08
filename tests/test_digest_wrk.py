"""wrk's histogram: the back-fill that wrk applies is undone exactly, and nothing but wrk's result is accepted."""

import json

import numpy as np
import pytest

from runner.digest.wrk import backfill_interval_us, mean_ms, quantile_ms, read_wrk, undo_backfill
from runner.model import LabError


def wrk_stats_correct(data: dict[int, int], expected: int) -> dict[int, int]:
    """wrk's own loop (stats_correct in its stats.c), one bucket at a time, as the independent truth."""
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
    """99 % at 1 ms and 1 % at 100 ms: wrk's own p90 says tens of milliseconds, the measured one 1 ms."""
    measured = {1000: 990, 100_000: 10}
    interval = 1990  # one connection: mean latency
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
    assert quantile_ms((values, counts), q) == pytest.approx(np.quantile(sample, q) / 1000, rel=1e-12)
    assert mean_ms((values, counts)) == pytest.approx(sample.mean() / 1000, rel=1e-12)


GOOD = {
    **{"ended_wall_us": 1_795_222_591_000_000, "duration_us": 1_000_000, "bytes": 1},
    **{"requests": 30, "connections": 10, "threads": 1, "latency_us": [[100, 10], [120, 20]]},
    "errors": dict.fromkeys(("connect", "read", "write", "status", "timeout"), 0),
}
HISTOGRAMS = ([[120, 20], [100, 10]], [[100, -1]], [[100]], [["a", 1]], [[10**15, 1]])
CHANGES = [{"requests": "30"}, {"requests": -1}, {"connections": 0}, {"errors": {}}, {"duration_us": True}]
CHANGES += [{"latency_us": pairs} for pairs in HISTOGRAMS]


def test_a_good_file_is_read_and_anything_else_is_one_sentence_that_names_it(tmp_path):
    path = tmp_path / "wrk.json"
    path.write_text(json.dumps(GOOD))
    result = read_wrk(path)
    assert (result.requests, result.duration_s, result.failed, int(result.raw[1].sum())) == (30, 1.0, 0, 30)
    for change in CHANGES:
        path.write_text(json.dumps(GOOD | change))
        with pytest.raises(LabError, match=r"wrk\.json"):
            read_wrk(path)
