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


def _sizes(rows: pd.DataFrame) -> list[str]:
    return list(rows["panel"].value_counts().index[:PANELS])


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the column `panel`: test and, where there is one number, its connections."""
    sizes = [f", {count:,.0f} connections" if count > 0 else "" for count in rows["connections"]]
    return rows.assign(panel=[f"{test}{size}" for test, size in zip(rows["test"], sizes, strict=True)])


def _chart(title: str, rows: pd.DataFrame, y: str, about: str, key: str, fill: Fill, words: str) -> Chart:
    """Return a chart with a point for each row: x is its place, y the column of that name."""
    shown = rows[rows["panel"].isin(panels := _sizes(rows))]
    left = rows["panel"].nunique() - len(panels)
    more = f" {captions.plural(left, 'test')} more have no panel." if left > 0 else ""
    frame = pd.DataFrame(
        {
            "panel": shown["panel"], "server": shown["subject"], "series": shown["row"], "x": shown["x"],
            "y": shown[y], "low": np.nan, "high": np.nan, "solid": shown["solid"],
        },
        columns=list(COLUMNS),
    )  # fmt: skip
    return Chart(
        title, frame, y=Axis(about), caption=f"{words}{more}", key=key, noun="test",
        draw=lambda chart: _sheet(chart, panels, fill),
        describe=lambda chart: _describe(chart, about),
    )  # fmt: skip


def _sheet(chart: Chart, panels: list[str], fill: Fill) -> Figure:
    figure, axes = style.canvas(
        chart.title, chart.caption, key=chart.key, rows=len(panels), panel_in=1.8, heading_in=0.36, left_in=1.2,
        right_in=0.3, axis_in=0.6,
    )  # fmt: skip
    for ax, panel in zip(axes, panels, strict=True):
        style.heading(ax, style.short(panel, 60))
        own = chart.frame[chart.frame["panel"] == panel]
        fill(ax, own)
        for solid, color in ((True, style.INK), (False, style.GREY)):
            part = own[own["solid"].astype(bool) == solid]
            ax.scatter(part["x"], part["y"], s=12, color=color if solid else "none", edgecolors=color, linewidths=0.8)
        ax.set_ylabel(chart.y.label)
    return figure


def _describe(chart: Chart, about: str) -> str:
    found = [
        f"{panel}: {captions.plural(len(own), 'row')}, {about} from {style.number(own['y'].min())} to "
        f"{style.number(own['y'].max())}, median {style.number(own['y'].median())}."
        for panel, own in chart.frame.groupby("panel", sort=False)
    ]
    return f"Scatter plot of {about}, a point a row. {' '.join(found)}"


def little(found: Audit) -> Chart:
    """Return the share of the requests that may be under way, that were: by row, in its order."""
    title, about = "Little's law: what was under way, of what there was room for", "rate x mean / connections"
    rows = _named(found.rows).assign(share=under_way(found.rows)).dropna(subset="share")
    if rows.empty:
        return empty(title, about, "No row of a closed load has rate, mean response time and connections.")
    ordered = rows.sort_values(["panel", "share"])
    ordered = ordered.assign(
        x=ordered.groupby("panel").cumcount() + 1, solid=ordered["share"].between(FAR_LESS, MORE).map(lambda ok: not ok)
    )

    def fill(ax: Axes, own: pd.DataFrame) -> None:
        ax.set(yscale="log", ylim=(min(own["y"].min(), FAR_LESS) / 1.4, max(own["y"].max(), MORE) * 1.4))
        ax.axhspan(FAR_LESS, MORE, color=style.GRID, zorder=0)
        ax.axhline(1, color=style.GREY, lw=1)
        scales.log_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_xlabel("rows, the smallest share first")

    key = "Grey: sound. 1: every connection waits for an answer all the time. Filled: outside of that."
    return _chart(
        title, ordered, "share", "share under way", key, fill, "Closed loads; a row is one load of a subject."
    )


def rates(found: Audit) -> Chart:
    """Return the rates of each test in their order, and the densest band of 1 %."""
    title, about = "Rates in their order, and the densest band of 1 %", "requests/s"
    rows = _named(found.rows[found.rows["rate"] > 0])
    if rows.empty:
        return empty(title, about, "No row has a rate.")
    ordered = rows.sort_values(["panel", "rate"], ascending=[True, False])
    ordered = ordered.assign(x=ordered.groupby("panel").cumcount() + 1, solid=False)
    flagged = {finding.test for finding in found.findings if finding.check == "one limit for all"}
    for panel, own in ordered.groupby("panel"):
        if panel in flagged and own["subject"].nunique() >= LEAST_ROWS:
            low, high, *_ = band_of(own["rate"])
            ordered.loc[own.index, "solid"] = own["rate"].between(low, high)

    def fill(ax: Axes, own: pd.DataFrame) -> None:
        ax.set_ylim(0, own["y"].max() * 1.1)
        scales.even_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_xlabel("rows, the highest rate first")

    key = "Filled: within the densest band of 1 %, where chance would hardly make it."
    return _chart(title, ordered, "rate", about, key, fill, "A row is one load of a subject.")


def cpu(found: Audit) -> Chart:
    """Return the CPU that was used, of what was given, against the rate."""
    title, about = "CPU used, of what was given, against the rate", "% of CPU given"
    rows = _named(
        found.rows[(found.rows["cpu_given_pct"] > 0) & (found.rows["cpu_pct"] >= 0) & (found.rows["rate"] > 0)]
    )
    if rows.empty:
        return empty(title, about, "No row has rate, CPU used and CPU given.")
    used = 100 * rows["cpu_pct"] / rows["cpu_given_pct"]
    rows = rows.assign(x=rows["rate"], used=used, solid=used > 100)

    def fill(ax: Axes, own: pd.DataFrame) -> None:
        ax.set(ylim=(0, max(105.0, own["y"].max() * 1.05)), xlim=(0, own["x"].max() * 1.05))
        ax.axhline(100, color=style.GREY, lw=1)
        scales.even_axis(ax, "x")
        scales.even_axis(ax, "y")
        ax.set_xlabel("requests/s")

    return _chart(title, rows, "used", about, "Filled: more than there is.", fill, "A row is one load of a subject.")
