"""Figures of an audited table: requests under way, rates in their order, and CPU against the rate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.audit.checks import FAR_LESS, LEAST_ROWS, MORE, band_of, under_way
from runner.audit.finding import Audit
from runner.present.chart import Chart, empty
from runner.present.chart.value import COLUMNS, Axis
from runner.present.look import captions, scales, style

Fill = Callable[[Axes, pd.DataFrame], None]
"""Sets the scales of a panel, and draws what is behind its rows."""
PANELS = 6
"""Tests of a figure, those with the most rows first."""


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the column `panel`: test and, where there is one number, its connections."""
    sizes = [f", {count:,.0f} connections" if count > 0 else "" for count in rows["connections"]]
    return rows.assign(panel=rows["test"] + sizes, server=rows["subject"], series=rows["row"], low=np.nan, high=np.nan)


def _in_order(rows: pd.DataFrame, *, ascending: bool) -> pd.DataFrame:
    """Return rows with their place in their panel as `x`, in the order of `y`."""
    ordered = rows.sort_values(["panel", "y"], ascending=[True, ascending])
    return ordered.assign(x=ordered.groupby("panel").cumcount() + 1)


def _chart(title: str, rows: pd.DataFrame, about: str, key: str, fill: Fill, words: str) -> Chart:
    """Return a chart with a point for each row, those of a test in a panel; the tests with the most rows have one."""
    panels = list(rows["panel"].value_counts().index[:PANELS])
    left = rows["panel"].nunique() - len(panels)
    more = f" {captions.plural(left, 'test')} more have no panel." if left > 0 else ""
    return Chart(
        title,
        rows.loc[rows["panel"].isin(panels), list(COLUMNS)],
        y=Axis(about),
        caption=f"{words}{more}",
        key=key,
        noun="test",
        draw=lambda chart: _sheet(chart, panels, fill),
        describe=lambda chart: _describe(chart, about),
    )


def _sheet(chart: Chart, panels: list[str], fill: Fill) -> Figure:
    figure, axes = style.canvas(
        chart.title, chart.caption, key=chart.key, rows=len(panels), panel_in=1.8, heading_in=0.36, left_in=1.2,
        right_in=0.3, axis_in=0.6,
    )  # fmt: skip
    for ax, panel in zip(axes, panels, strict=True):
        style.heading(ax, style.short(panel, 60))
        rows = chart.frame[chart.frame["panel"] == panel]
        fill(ax, rows)
        for solid, color in ((True, style.INK), (False, style.GREY)):
            part = rows[rows["solid"].astype(bool) == solid]
            ax.scatter(part["x"], part["y"], s=12, color=color if solid else "none", edgecolors=color, linewidths=0.8)
        ax.set_ylabel(chart.y.label)
    return figure


def _describe(chart: Chart, about: str) -> str:
    found = [
        f"{panel}: {captions.plural(len(rows), 'row')}, {about} from {style.number(rows['y'].min())} to "
        f"{style.number(rows['y'].max())}, median {style.number(rows['y'].median())}."
        for panel, rows in chart.frame.groupby("panel", sort=False)
    ]
    return f"Scatter plot of {about}, one point per row. {' '.join(found)}"


def little(found: Audit) -> Chart:
    """Return the share of the requests that may be under way, that were: by row, in its order."""
    title, about = "Little's law: what was under way, of what there was room for", "share under way"
    rows = _named(found.rows).assign(y=under_way(found.rows)).dropna(subset="y")
    if rows.empty:
        return empty(title, "No row of a closed load has rate, mean response time and connections.")
    rows = _in_order(rows.assign(solid=~rows["y"].between(FAR_LESS, MORE)), ascending=True)

    def fill(ax: Axes, shown: pd.DataFrame) -> None:
        ax.set(yscale="log", ylim=(min(shown["y"].min(), FAR_LESS) / 1.4, max(shown["y"].max(), MORE) * 1.4))
        ax.axhspan(FAR_LESS, MORE, color=style.GRID, zorder=0)
        ax.axhline(1, color=style.GREY, lw=1)
        scales.log_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_xlabel("rows, the smallest share first")

    key = "Grey: sound. 1: every connection waits for an answer all the time. Filled: outside of that."
    return _chart(title, rows, about, key, fill, "Closed loads; a row is one load of a subject.")


def rates(found: Audit) -> Chart:
    """Return the rates of each test in their order, and the densest band of 1 %."""
    title, about = "Rates in their order, and the densest band of 1 %", "requests/s"
    rows = _named(found.rows[found.rows["rate"] > 0])
    if rows.empty:
        return empty(title, "No row has a rate.")
    rows = _in_order(rows.assign(y=rows["rate"], solid=False), ascending=False)
    flagged = {finding.test for finding in found.findings if finding.check == "one limit for all"}
    for panel, group in rows.groupby("panel"):
        if panel in flagged and group["subject"].nunique() >= LEAST_ROWS:
            low, high, *_ = band_of(group["rate"])
            rows.loc[group.index, "solid"] = group["rate"].between(low, high)

    def fill(ax: Axes, shown: pd.DataFrame) -> None:
        ax.set_ylim(0, shown["y"].max() * 1.1)
        scales.even_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_xlabel("rows, the highest rate first")

    key = "Filled: within the densest band of 1 %, where chance would hardly make it."
    return _chart(title, rows, about, key, fill, "A row is one load of a subject.")


def cpu(found: Audit) -> Chart:
    """Return the CPU that was used, of what was given, against the rate."""
    title, about = "CPU used, of what was given, against the rate", "% of CPU given"
    rows = _named(found.rows.query("cpu_given_pct > 0 and cpu_pct >= 0 and rate > 0"))
    if rows.empty:
        return empty(title, "No row has rate, CPU used and CPU given.")
    used = 100 * rows["cpu_pct"] / rows["cpu_given_pct"]

    def fill(ax: Axes, shown: pd.DataFrame) -> None:
        ax.set(ylim=(0, max(105.0, shown["y"].max() * 1.05)), xlim=(0, shown["x"].max() * 1.05))
        ax.axhline(100, color=style.GREY, lw=1)
        scales.even_axis(ax, "x")
        scales.even_axis(ax, "y")
        ax.set_xlabel("requests/s")

    rows = rows.assign(x=rows["rate"], y=used, solid=used > 100)
    return _chart(title, rows, about, "Filled: more than there is.", fill, "A row is one load of a subject.")
