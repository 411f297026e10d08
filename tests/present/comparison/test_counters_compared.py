"""Tests of ratios of counters, start-up times and sizes.

The ratios must agree with those of a simple computation.
"""

from dataclasses import replace

import numpy as np
import pytest
from figure_checks import tables_of
from scipy import stats

from runner.present.comparison import ratios
from runner.present.comparison.quantity import OF_A_REPORT, OF_THE_COUNTERS
from runner.present.notebook import parts

SWITCHES = "server_switches_per_request"
SIZE = "server_binary_bytes"


@pytest.fixture(scope="module")
def six():
    """Return a run of six blocks in which servers have random counters and fixed sizes."""
    tables = tables_of("six of wrk")
    random = np.random.default_rng(4)
    trials = tables.trials.copy()
    is_gin = trials["server"].eq("gin")
    for quantity in OF_THE_COUNTERS:
        trials[quantity.column] = (1 + 2 * is_gin) * np.exp(0.1 * random.normal(size=len(trials)))
    trials[SIZE] = np.where(is_gin, 20, 4) * 2.0**20
    return replace(tables, trials=trials)


def rows_of(tables, column):
    found = ratios.frame(tables, OF_THE_COUNTERS)
    return found[found["quantity"].eq(column) & found["server"].eq("gin")]


def test_a_ratio_is_that_of_the_logarithms_within_blocks(six):
    rows = rows_of(six, SWITCHES)
    assert len(rows) > 1, "one for each load"
    for row in rows.itertuples():
        wide = six.trials[six.trials["load"].eq(row.load)].pivot(
            index="block", columns="server", values=SWITCHES
        )
        apart = np.log(wide["gin"] / wide[row.base])
        low, high = stats.t.interval(0.95, len(apart) - 1, apart.mean(), stats.sem(apart))
        assert row.ratio == pytest.approx(np.exp(apart.mean()))
        assert (row.low, row.high) == pytest.approx((np.exp(low), np.exp(high)))


def test_what_no_load_changes_is_compared_once(six):
    (row,) = rows_of(six, SIZE).itertuples()
    assert (row.ratio, row.ours, row.theirs) == pytest.approx((5.0, 4.0, 20.0))


def test_a_load_with_a_count_of_zero_has_no_ratio(six):
    """If one trial of a load counted zero, the load has no ratio of this counter.

    The logarithm of 0 does not exist, and a ratio of the other trials alone would be too large.
    """
    load = six.trials["load"].iloc[0]
    trials = six.trials.copy()
    trials.loc[trials["load"].eq(load).idxmax(), SWITCHES] = 0.0
    without = rows_of(replace(six, trials=trials), SWITCHES)
    assert set(rows_of(six, SWITCHES)["load"]) - set(without["load"]) == {load}


def test_the_report_has_a_table_of_them_and_the_first_screen_has_none(six):
    tables = [block for block in parts.ratios_of_servers(six) if hasattr(block, "frame")]
    (counted,) = (each for each in tables if each.title.startswith("By how much: counters"))
    assert {quantity.noun for quantity in OF_THE_COUNTERS} == set(counted.frame["what"])
    assert not set(OF_THE_COUNTERS) & set(OF_A_REPORT)


def test_a_run_without_counters_has_no_such_table():
    blocks = list(parts.ratios_of_servers(tables_of("six of wrk")))
    assert not any(
        getattr(block, "title", "").startswith("By how much: c") for block in blocks if block
    )
