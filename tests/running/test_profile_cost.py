"""Tests of the benchmark of profiling, which must calculate the right ratios from known rates."""

import pandas as pd
import pytest
from profile_cost import beside, seconds

from runner.profiled import KINDS


def test_a_known_cost_is_the_ratio_of_rates():
    """The cost of recording or counting is the ratio of a server's rates with and without perf.

    In recorded slices, the first server reaches 0.9 times its rate in plain slices, and the second
    server 0.8 times. The mean of these two ratios must be their geometric mean. In counted slices,
    both servers reach 0.5 times their rates in plain slices.
    """
    rows = [
        {
            "trial_id": server,
            "session": "p-load",
            "place": place,
            "rps": rate * {"recorded": slower, "counted": 0.5, "plain": 1.0}[kind],
        }
        for server, rate, slower in (("p-a-load", 100.0, 0.9), ("p-b-load", 7000.0, 0.8))
        for place, kind in enumerate(KINDS, start=1)
    ]
    recorded = beside(pd.DataFrame(rows), "recorded")
    assert recorded.mean == pytest.approx((0.9 * 0.8) ** 0.5)
    assert (recorded.lowest, recorded.highest) == pytest.approx((0.8, 0.9))
    assert beside(pd.DataFrame(rows), "counted").mean == pytest.approx(0.5)


def test_a_session_lasts_from_its_first_begin_to_its_last_end():
    records = [
        {"started_at": "2026-01-01T10:00:05+00:00", "ended_at": "2026-01-01T10:01:00+00:00"},
        {"started_at": "2026-01-01T10:00:00+00:00", "ended_at": "2026-01-01T10:00:40+00:00"},
    ]
    assert seconds(records) == 60
