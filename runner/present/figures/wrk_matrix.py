"""Figures of the wrk matrix: a quantity against the number of connections, keep-alive and close."""

from __future__ import annotations

from itertools import product

import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart import Axis, Chart, Extreme, Shared, bars, cells, chart, empty
from runner.present.chart.sentences import lines, scope
from runner.present.chart.value import median_points
from runner.present.figures import ratios
from runner.present.frames import MODES, Tables, server_bound
from runner.present.look import captions, scales
from runner.present.look.palette import identities

FEWEST = 3
"""Numbers of connections that make a curve; fewer are rows beside each other."""


@chart("wrk-requests", notebook="report", table=captions.BY_LOAD)
def requests(tables: Tables) -> Chart:
    """Return requests/s by connections; points that were not server-bound are hollow and pale."""
    y = Axis("requests/s", "requests per second", "/s")
    words = "Filled: the server was the limit in every repeat, so rates compare. Hollow, pale: it was not; do not rank."
    hollow = "Hollow points do not rank: the server was not the limit in every trial."
    return _matrix(tables, "requests per second", "rps", y, words, Extreme("highest rate"), hollow)


@chart("wrk-cpu-per-request", notebook="report", table=captions.BY_LOAD)
def cpu_per_request(tables: Tables) -> Chart:
    """Return the server's CPU milliseconds per request by connections."""
    y = Axis("CPU ms per request", "CPU ms per request", " ms")
    words = "CPU time per request has no window and compares whatever was the limit."
    lowest = Extreme("lowest cost", highest=False, rising=True)
    return _matrix(tables, "CPU per request", "server_cpu_ms_per_request", y, words, lowest)


def _matrix(
    tables: Tables, quantity: str, column: str, y: Axis, words: str, extreme: Extreme, hollow: str = ""
) -> Chart:
    """Return the chart of a column; `hollow` says what points are that were not server-bound."""
    title = ratios.finding(tables, column, "wrk") or f"wrk: {quantity} by connections"
    solid = server_bound if hollow else lambda _: True
    trials = tables.sealed("wrk")
    trials = trials[trials["connections"].notna() & trials["mode"].isin(MODES) & ~ratios.disturbed(trials)]
    if trials.empty:
        return empty(title, f"{y.words} by connections", captions.nothing(tables, "wrk"))
    named = with_panels(trials)
    curves = [median_points(cell, column, "connections", solid) for cell in cells(tables, named, "panel")]
    return Chart(
        title, pd.concat(curves, ignore_index=True), Axis("connections (log scale)", "connections", log=True), y,
        identities(tables.trials),
        captions.caption(tables, tables.of("wrk"), f"{words} Bars: minimum to maximum around the median."),
        headings={panel: (panel, "") for panel in dict.fromkeys(named["panel"])},
        # A few per cent apart in one panel, so that the error bars of equal servers do not cover one another.
        shared=Shared(panel_in=2.5, left_in=1.12, nudge=1.045, fewest=FEWEST),
        mark=bars, finish=_finish, hollow=hollow, noun="mode", extreme=extreme, describe=_describe,
    )  # fmt: skip


def with_panels(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials in the order of their panels, with the column `panel`: mode, share of a core and the like."""
    several = trials["workload"].nunique() > 1
    found = []
    for workload, (mode, name) in product(dict.fromkeys(trials["workload"]), MODES.items()):
        chosen = trials[(trials["workload"] == workload) & (trials["mode"] == mode)]
        heading = f"{workload}, {name}" if several else name.capitalize()
        for terms, own in chosen.groupby("terms", sort=False):
            found.append(own.assign(panel=", ".join(filter(None, [heading, str(terms)]))))
    panels: pd.DataFrame = pd.concat(found)
    return panels


def _finish(ax: Axes, chart: Chart, panel: str) -> None:
    own = chart.frame[(chart.frame["panel"] == panel) & chart.frame["y"].notna()]
    counts = sorted(own["x"].unique())
    spare = 1.5 if own["server"].nunique() <= chart.shared.few else 1.8  # labels of neighbouring panels keep apart
    ax.set(xscale="log", xlim=(counts[0] / spare, counts[-1] * spare))
    scales.limit(ax, "y", 0, own["high"].max() * 1.07 or 1)
    scales.ticks_across(ax, counts)


def _describe(chart: Chart) -> str:
    """Describe where each server is fastest or cheapest, and which rates do not rank."""
    across = f"{chart.y.words} (up) by number of connections (across, logarithmic)"
    rows = f"{chart.y.words} (across), a row a server, by number of connections"
    most = chart.frame.groupby("panel")["x"].nunique().max()
    sentence = (
        f"{f'Line chart of {across}' if most >= FEWEST else f'Dot plot of {rows}'}, "
        f"{scope(chart)}: {chart.statistic}. {chart.hollow}".rstrip()
    )
    return lines(chart, sentence, "panel", _with)


def _with(panel: str, clause: str) -> str:
    # A panel of one of several workloads begins with its name.
    modes = tuple(mode.capitalize() for mode in MODES.values())
    return f"With {panel[0].lower() + panel[1:] if panel.startswith(modes) else panel} {clause}."
