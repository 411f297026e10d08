"""Tests that pages agree on what can be compared.

If one page compares two servers under a load, all other pages must compare them, too.
"""

import pandas as pd
import pytest
from figure_checks import changed, tables_of

from runner.present.answers import summary
from runner.present.chart.value import made
from runner.present.comparison import ratios
from runner.present.comparison.compare import Bound, Measured, NotComparable, compare
from runner.present.comparison.obstacle import Kind, obstacle
from runner.present.comparison.quantity import (
    CATALOGUE,
    CPU_PER_REQUEST,
    OF_A_CLAIM,
    OF_A_REPORT,
    OF_TWO_RUNS,
    P50,
    PEAK_1S,
    ROWS,
    THROUGHPUT,
)
from runner.present.frames import sealed_trials
from runner.present.look import style
from runner.present.look.markup import NOT_RANKED
from runner.present.statistics.inference import Ratio
from runner.present.two_runs.compare import cells_of, samples_of
from runner.verdict.limits import Cause, Limit

RUNS = ["three", "five", "six of wrk", "database", "rates", "published", "sample", "all"]


def cells(tables):
    """Return the sealed trials that are compared, by load and server.

    Trials of searches for a highest rate are left out.
    """
    trials = sealed_trials(tables.trials)
    trials = ratios.compared(tables, trials[trials["objective"].eq("")])
    return dict(list(trials.groupby(["load", "server"])))


def compared_by_report(tables, quantity):
    """Return the rows of the report's table of ratios that have a ratio, and those that have none.

    A row compares two servers under one load. Only the rows about `quantity` are returned. A row
    whose ratio is only a bound, or that has too few trials for a ratio, is in neither list.
    """
    frame = ratios.frame(tables)
    rows = frame[frame["quantity"].eq(quantity.name)].to_dict("records")
    whole = [row for row in rows if row["why"] == "" and row["low"] > 0 and row["high"] < 1e300]
    refused = [row for row in rows if row["why"] and "trials" not in row["why"]]
    return whole, refused


def followed_over_runs(tables, quantity):
    """Return the cells whose `quantity` may be compared with other runs, as (load, server).

    These are the cells that `bench compare` and `bench history` use.
    """
    samples = samples_of([cells_of(tables)])
    return {(cell.load, cell.server) for cell, each in samples if each is quantity}


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("quantity", [THROUGHPUT, CPU_PER_REQUEST, P50], ids=lambda each: each.name)
def test_all_pages_compare_what_the_report_compares(run, quantity):
    tables = tables_of(run)
    by_cell = cells(tables)
    followed = followed_over_runs(tables, quantity)
    whole, refused = compared_by_report(tables, quantity)
    for row in whole:
        for server in (row["base"], row["server"]):
            assert (row["load"], server) in followed
            assert obstacle(by_cell[row["load"], server], quantity) is None
    for row in refused:
        sides = [by_cell[row["load"], server] for server in (row["base"], row["server"])]
        assert any(obstacle(side, quantity) is not None for side in sides)


@pytest.mark.parametrize("run", RUNS)
def test_the_summary_marks_the_rates_that_no_page_compares(run):
    tables = tables_of(run)
    table = summary.summarize(tables)
    printed = summary.printable(table)
    marked = printed["requests/s"].str.contains(NOT_RANKED, regex=False)
    has_trials = table["trials"].gt(0)
    is_ranked = table["server_bound"].astype(bool)
    # The load set the rate and the server sustained it, so the rate is not marked.
    is_sustained = table["limit"].eq(Limit.NONE)
    assert marked[has_trials].eq(~(is_ranked | is_sustained)[has_trials]).all()
    trials = sealed_trials(tables.trials)
    trials = trials[~ratios.disturbed(trials)]
    for row in table[has_trials].to_dict("records"):
        mine = trials[trials["load"].eq(row["load"]) & trials["server"].eq(row["server"])]
        allowed = obstacle(mine, THROUGHPUT) is None
        assert bool(row["server_bound"]) == (allowed and row["tier"] != "calibration")


# --- which trials are an obstacle to which quantity -----------------------------------------------


@pytest.fixture(scope="module")
def full():
    """Return the trials of axum under a closed load in which axum was the limit."""
    tables = changed(tables_of("three"), verdict="server-bound", verdict_reason="")
    trials = sealed_trials(tables.trials)
    chosen = trials["server"].eq("axum") & trials["load_model"].eq("closed")
    return trials[chosen & trials["connections"].eq(100) & trials["mode"].eq("keepalive")]


@pytest.mark.parametrize(
    ("quantity", "change", "kind", "limit", "is_floor"),
    [
        (THROUGHPUT, {}, None, None, False),
        (THROUGHPUT, {"failed": 1e6}, Kind.REQUESTS_FAILED, None, False),
        (THROUGHPUT, {"load_model": "open"}, Kind.RATE_WAS_SET, None, False),
        (THROUGHPUT, {"verdict": "generator-bound"}, Kind.ANOTHER_LIMIT, Limit.GENERATOR, True),
        (THROUGHPUT, {"verdict": "serial"}, Kind.ANOTHER_LIMIT, Limit.SERIAL, False),
        (THROUGHPUT, {"verdict": "offered"}, Kind.ANOTHER_LIMIT, Limit.NONE, False),
        (CPU_PER_REQUEST, {"verdict": "generator-bound"}, None, None, False),
        (CPU_PER_REQUEST, {"failed": 1e6}, Kind.REQUESTS_FAILED, None, False),
        (P50, {}, Kind.ANOTHER_LIMIT, Limit.SERVER, False),
        (P50, {"verdict": "offered"}, None, None, False),
        (P50, {"verdict": "offered", "requests": 10.0}, Kind.TOO_FEW_REQUESTS, None, False),
        (PEAK_1S, {}, Kind.CPUS_WERE_FULL, None, False),
        (PEAK_1S, {"verdict": "generator-bound"}, None, None, False),
        (ROWS, {}, None, None, False),
        (ROWS, {"verdict": "offered"}, Kind.RAMP_WAS_SUSTAINED, None, False),
    ],
)
def test_what_stands_in_the_way_of_a_quantity(full, quantity, change, kind, limit, is_floor):
    found = obstacle(full.assign(**change), quantity)
    assert (found is None) == (kind is None)
    if found is not None:
        assert (found.kind, found.limit, found.is_floor) == (kind, limit, is_floor)


def test_an_unknown_limit_names_its_commonest_cause(full):
    causes = [Cause.CPU_TAKEN.value, Cause.BOTH_SIDES_BUSY.value, Cause.BOTH_SIDES_BUSY.value]
    unknown = full.head(3).assign(verdict="inconclusive", verdict_cause=causes)
    found = obstacle(unknown, THROUGHPUT)
    assert (found.limit, found.cause) == (Limit.UNKNOWN, Cause.BOTH_SIDES_BUSY)


def test_every_quantity_of_a_page_is_in_the_catalogue_once():
    names = [quantity.name for quantity in CATALOGUE.values()]
    assert len(names) == len(set(names))
    for quantity in (*OF_A_REPORT, *OF_TWO_RUNS, *OF_A_CLAIM):
        assert CATALOGUE[quantity.name] is quantity


# --- two servers have a ratio, a bound or neither -------------------------------------------------


def six(full, rps, verdict="server-bound", trials=6):
    """Return a measurement of about `rps` requests/s in `trials` trials.

    There may be at most six trials. Their noise is always the same.
    """
    one = pd.concat([full.head(1)] * 6, ignore_index=True)
    noise = [0.99, 1.01, 1.0, 0.98, 1.02, 1.0]
    rates = [rps * each for each in noise]
    rows = one.assign(served_rps=rates, block=range(6), verdict=verdict)
    return Measured(rows.head(trials), THROUGHPUT)


def test_two_servers_at_their_limits_have_a_ratio(full):
    found = compare(six(full, 200.0), six(full, 100.0))
    assert isinstance(found, Ratio)
    assert found.ratio == pytest.approx(2.0)


def test_a_server_that_could_do_more_bounds_the_ratio(full):
    more = compare(six(full, 200.0, "generator-bound"), six(full, 100.0))
    less = compare(six(full, 200.0), six(full, 100.0, "generator-bound"))
    assert isinstance(more, Bound) and more.ratio.high == float("inf")
    assert isinstance(less, Bound) and less.ratio.low == 0.0


def test_two_servers_that_could_do_more_have_no_ratio(full):
    found = compare(six(full, 200.0, "generator-bound"), six(full, 100.0, "generator-bound"))
    assert isinstance(found, NotComparable)
    assert found.words == "the generator was the limit"


def test_too_few_trials_have_no_ratio(full):
    few = six(full, 200.0, trials=2)
    found = compare(few, six(full, 100.0))
    assert isinstance(found, NotComparable)
    assert found.words == "fewer than 5 trials"


def test_noise_widens_an_interval_at_both_ends(full):
    narrow = compare(six(full, 200.0), six(full, 100.0))
    wide = compare(six(full, 200.0), six(full, 100.0), noise_floor=1.1)
    assert wide.low == pytest.approx(narrow.low / 1.1)
    assert wide.high == pytest.approx(narrow.high * 1.1)


def test_no_heading_of_the_committed_matrix_is_cut():
    panels = made("wrk-requests", tables_of("sample")).headings
    assert len(panels) > 3
    assert all(style.short(name, 60) == name for name, _ in panels.values())
