"""Tests of the figure of ratios: it has a row for each server and a mark for each load.

It must not have more rows than fit on two screens.
"""

import pytest
from figure_checks import picture, tables_of

from runner.present.chart.value import made
from runner.present.comparison import ratios
from runner.present.comparison.quantity import CATALOGUE
from runner.present.figures.ratios import MOST_ROWS, OF_THE_FIGURE

HIGHEST_PX = 1600


@pytest.mark.parametrize("run", ["sample", "all", "six of wrk"])
def test_each_mark_is_a_ratio_of_the_table(run):
    tables = tables_of(run)
    chart = made("ratios", tables)
    known = ratios.frame(tables).query("why == ''")
    for panel, of_panel in chart.frame.groupby("panel"):
        quantity = next(each for each in OF_THE_FIGURE if panel.startswith(f"{each.group}:"))
        expected = known[known["quantity"] == quantity.name]
        for server, marks in of_panel.groupby("server"):
            of_server = expected[expected["server"] == server]
            assert sorted(marks["y"]) == pytest.approx(sorted(of_server["ratio"]))
            open_ends = (of_server["low"] <= 1) & (of_server["high"] >= 1)
            assert (~marks["solid"].astype(bool)).sum() == open_ends.sum()


@pytest.mark.parametrize("run", ["sample", "all"])
def test_the_figure_is_read_at_once(run):
    """The rows are sorted, there are at most MOST_ROWS rows, and the figure fits on two screens."""
    tables = tables_of(run)
    frame = made("ratios", tables).frame
    assert len(frame.groupby(["panel", "server"])) <= MOST_ROWS
    for _, rows in frame.groupby("panel", sort=False):
        medians = rows.groupby("server", sort=False)["y"].median()
        assert medians.is_monotonic_increasing
    figure = picture("ratios", tables)
    assert 100 * figure.get_figheight() <= HIGHEST_PX
    assert {each.name for each in OF_THE_FIGURE} <= set(CATALOGUE)
