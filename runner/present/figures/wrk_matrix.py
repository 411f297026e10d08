"""Figures of the wrk matrix: a quantity against the number of connections, keep-alive and close."""

from __future__ import annotations

from itertools import product

import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart import Axis, Chart, Fact, Shared, bars, cells, chart, empty, extreme, tidy
from runner.present.chart.drawing import FEW, FEWEST
from runner.present.chart.value import median_points
from runner.present.figures import ratios
from runner.present.frames import MODES, Tables, server_bound
from runner.present.look import captions, scales
from runner.present.look.palette import identities

CONNECTIONS = Axis("connections (log scale)", "connections", log=True)


@chart("wrk-requests", notebook="report", table=captions.BY_LOAD)
def requests(tables: Tables) -> Chart:
    """Return requests/s by connections; points that were not server-bound are hollow and pale."""
    y = Axis("requests/s", "requests per second", "/s")
    words = "Filled: the server was the limit in every repeat, so rates compare. Hollow, pale: it was not; do not rank."
    pale = "Pale points do not rank: the server was not the limit in every trial."
    return _matrix(tables, "requests per second", "rps", y, words, extreme(CONNECTIONS, y, "highest rate"), pale)


@chart("wrk-cpu-per-request", notebook="report", table=captions.BY_LOAD)
def cpu_per_request(tables: Tables) -> Chart:
    """Return the server's CPU milliseconds per request by connections."""
    y = Axis("CPU ms per request", "CPU ms per request", " ms")
    words = "CPU time per request has no window and compares whatever was the limit."
    lowest = extreme(CONNECTIONS, y, "lowest cost", lowest=True)
    return _matrix(tables, "CPU per request", "server_cpu_ms_per_request", y, words, lowest)


def _matrix(tables: Tables, quantity: str, column: str, y: Axis, words: str, fact: Fact, pale: str = "") -> Chart:
    """Return the chart of a column; `pale` says what points are that were not server-bound."""
    title = ratios.finding(tables, column, "wrk") or f"wrk: {quantity} by connections"
    solid = server_bound if pale else lambda _: True
    trials = tables.sealed("wrk")
    trials = trials[trials["connections"].notna() & trials["mode"].isin(MODES) & ~ratios.disturbed(trials)]
    if trials.empty:
        return empty(title, captions.nothing(tables, "wrk"))
    named = with_panels(trials)
    rows = named.groupby("panel")["connections"].nunique().max() < FEWEST
    return Chart(
        title,
        tidy(median_points(cell, column, "connections", solid) for cell in cells(tables, named, "panel")),
        CONNECTIONS,
        y,
        identities(tables.trials),
        captions.caption(tables, tables.of("wrk"), f"{words} Bars: minimum to maximum around the median."),
        headings={panel: (panel, "") for panel in dict.fromkeys(named["panel"])},
        kind="Dot plot" if rows else "Line chart",
        pale=pale,
        noun="mode",
        facts=(fact,),
        draw=Shared(2.5, 1.12, mark=bars, finish=_finish),
    )


def with_panels(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials in the order of their panels, with the column `panel`: mode, share of a core and the like."""
    several = trials["workload"].nunique() > 1
    found = []
    for workload, (mode, name) in product(dict.fromkeys(trials["workload"]), MODES.items()):
        chosen = trials[(trials["workload"] == workload) & (trials["mode"] == mode)]
        heading = f"{workload}, {name}" if several else name.capitalize()
        for terms, alike in chosen.groupby("terms", sort=False):
            found.append(alike.assign(panel=", ".join(filter(None, [heading, str(terms)]))))
    panels: pd.DataFrame = pd.concat(found)
    return panels


def _finish(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[(chart.frame["panel"] == panel) & chart.frame["y"].notna()]
    counts = sorted(rows["x"].unique())
    spare = 1.5 if rows["server"].nunique() <= FEW else 1.8  # labels of neighbouring panels keep apart
    ax.set(xscale="log", xlim=(counts[0] / spare, counts[-1] * spare))
    scales.limit(ax, "y", 0, rows["high"].max() * 1.07 or 1)
    scales.ticks_across(ax, counts)
