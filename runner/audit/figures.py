"""Figures of an audited table: connections in use, sorted rates, and CPU use against the rate."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from runner.audit.checks import FAR_LESS, LEAST_ROWS, MORE, densest_band, under_way
from runner.audit.finding import Audit, laws, sized
from runner.present.chart.value import POINT_COLUMNS, Axis, Chart
from runner.present.look import captions, style
from runner.present.look.numbers import number

SOURCES = 3  # number of files that a caption names
PANELS = 6  # a figure shows at most this number of tests: those with the most rows


def _draw(chart: Chart, line: float = 0.0, band: tuple[float, float] | None = None) -> Figure:
    """Draw a panel for each test.

    Each row of the chart's table is a point, which is filled if the row's column `solid` is true.
    For reference, each panel also has a line at `line` and a grey band between the two values of
    `band`, which are values on the y axis. The line is left out if `line` is 0, and the band if
    `band` is None.
    """
    names = [
        style.wrap(panel, style.TEXT_PT, style.WIDTH_IN - 0.8, "bold") for panel in chart.panels
    ]
    heading_in = 0.36 + (max(map(len, names)) - 1) * style.LINE_IN
    row = style.PanelRow(
        panel_in=1.8, heading_in=heading_in, left_in=1.2, right_in=0.3, axis_in=0.6
    )
    figure, axes = style.page(chart.title, chart.caption, [row] * len(names), key=chart.key)
    for (ax,), panel, (name, *more) in zip(axes, chart.panels, names, strict=True):
        rows = chart.frame[chart.frame["panel"] == panel]
        low, high = band or (0.0, line)
        low = min(rows["y"].min(), low)
        high = max(rows["y"].max(), high)
        if band:
            ax.axhspan(*band, color=style.GRID, zorder=0)
        if line:
            ax.axhline(line, color=style.GREY, lw=1)
        limits = (low / 1.4, high * 1.4) if chart.y.log else (0.0, high * 1.05)
        style.limit(ax, "y", *limits, log=chart.y.log)
        ax.set_xlim(
            *((0.5, rows["x"].max() + 0.5) if chart.x.even else (0, rows["x"].max() * 1.05))
        )
        style.even_axis(ax, "x", whole=chart.x.even)
        for solid, color in ((True, style.INK), (False, style.GREY)):
            part = rows[rows["solid"].eq(solid)]
            filled = color if solid else "none"
            ax.scatter(part["x"], part["y"], s=12, color=filled, edgecolors=color, linewidths=0.8)
        style.heading(ax, name, "\n".join(more))
        ax.set(xlabel=chart.x.label, ylabel=chart.y.label)
    return figure


def _describe(chart: Chart) -> str:
    found = [
        f"{panel}: {captions.plural(len(y), 'row')}, {chart.y.label} from {number(y.min())} to "
        f"{number(y.max())}, median {number(y.median())}."
        for panel, y in chart.frame.groupby("panel", sort=False)["y"]
    ]
    return f"Scatter plot of {chart.y.label}, one point per row. {' '.join(found)}"


def _chart(
    title: str, rows: pd.DataFrame, x: Axis, y: Axis, key: str, about: str, **beside: Any
) -> Chart | None:
    """Return a chart with a point for each row, or None if there are no rows.

    If `x.even` is true, the points are spaced evenly in the order of `rows`. Each panel shows one
    test with one number of connections. There are at most PANELS panels: if there are more tests,
    only the tests with the most rows are shown. `beside` contains further arguments for `_draw`.
    """
    if rows.empty:
        return None
    panels = [sized(*load) for load in zip(rows["test"], rows["connections"], strict=True)]
    rows = rows.assign(panel=panels, server=rows["subject"], series=rows["row"])
    largest = rows.sort_index()["panel"].value_counts().index
    kept = rows.set_index("panel", drop=False).loc[largest[:PANELS]]
    if x.even:
        kept = kept.assign(x=kept.groupby(level=0).cumcount() + 1)
    left = len(largest) - PANELS
    more = f", and {captions.plural(left, 'test')} more have no panel" if left > 0 else ""
    sources = rows["source"].unique()
    others = f" and {captions.plural(len(sources) - SOURCES, 'file')} more"
    files = ", ".join(sources[:SOURCES]) + others * (len(sources) > SOURCES)
    frame = kept.reset_index(drop=True).reindex(columns=list(POINT_COLUMNS))
    draw = partial(_draw, **beside)
    return Chart(
        title,
        frame,
        x,
        y,
        caption=f"{about}{more}.\nData: {files}.",
        key=key,
        noun="test",
        draw=draw,
        describe=_describe,
    )


def little(found: Audit) -> Chart | None:
    """Return the chart of the shares of connections in use, or None if no share is known."""
    rows = found.rows.assign(y=under_way(found.rows)).dropna(subset="y").sort_values("y")
    title = "Little's law: mean share of the connections in use"
    x = Axis("rows, the smallest share first", even=True)
    y = Axis("share in use", log=True)
    key = (
        "Grey band: plausible shares. Line at 1: every connection waits for an answer all the "
        "time. Filled: rows outside the band."
    )
    about = "A row is one closed load of a subject"
    rows = rows.assign(solid=~rows["y"].between(FAR_LESS, MORE))
    return _chart(title, rows, x, y, key, about, line=1.0, band=(FAR_LESS, MORE))


def rates(found: Audit) -> Chart | None:
    """Return the chart of each test's sorted rates, or None if there are no rates.

    Points are filled if their rates lie in a band of 1 % about which the audit has a finding.
    """
    rows = found.rows[found.rows["rate"] > 0].sort_values("rate", ascending=False)
    title = "Rates in descending order, and the band of 1 % that holds most of them"
    x = Axis("rows, the highest rate first", even=True)
    y = Axis("requests/s")
    key = "Filled: rates in a band of 1 % that holds more rates than chance would explain."
    rows = rows.assign(y=rows["rate"], solid=False)
    if (chart := _chart(title, rows, x, y, key, "A row is one load of a subject")) is None:
        return None
    flagged = {
        finding.test for finding in found.findings if finding.check == laws()["plateau"].name
    }
    for panel, group in chart.frame.groupby("panel"):
        if panel in flagged and group["server"].nunique() >= LEAST_ROWS:
            band = densest_band(group["y"])
            is_inside = group["y"].between(band.low_rps, band.high_rps)
            chart.frame.loc[group.index, "solid"] = is_inside
    return chart


def cpu(found: Audit) -> Chart | None:
    """Return the chart of the CPU time used, as a share of the CPUs given, against the rate.

    A row has a point only if its CPU time, the CPUs given and its rate are known. Return None if
    there is no such row.
    """
    rows = found.rows.query("cpu_given_pct > 0 and cpu_pct >= 0 and rate > 0")
    used = 100 * rows["cpu_pct"] / rows["cpu_given_pct"]
    title = "CPU use by rate, as a share of the CPU that each server was given"
    key = "Filled: more CPU than the server was given."
    rows = rows.assign(x=rows["rate"], y=used, solid=used > 100)
    x = Axis("requests/s")
    y = Axis("% of CPU given")
    return _chart(title, rows, x, y, key, "A row is one load of a subject", line=100.0)
