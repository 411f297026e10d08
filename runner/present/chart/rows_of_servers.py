"""A load with few places across: a panel for each of them, and in it a row for each server, which shows ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart.value import Chart
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, pale

DASHED: Any = (0, (4, 2))
Curves = Mapping[str, pd.DataFrame]
"""Server -> its rows of the frame."""


def wanted(chart: Chart, curves: Curves) -> bool:
    """Return whether the curves of a load have too few places across to be curves."""
    return 0 < len(_places(curves)) < chart.shared.fewest


def _places(curves: Curves) -> list[float]:
    return sorted({float(x) for rows in curves.values() for x in rows.loc[rows["y"].notna(), "x"]})


def row(curves: Curves) -> style.Row:
    """Return the row of panels that a load needs."""
    left_in = style.label_room(list(curves)) - 0.1
    return style.Row(len(_places(curves)), 0.3 + 0.34 * len(curves), 0.58, 0.72, left_in, 0.3, 0.3)


def fill(axes: Sequence[Axes], chart: Chart, panel: str, curves: Curves) -> None:
    """Draw a load's rows, zero-based, to one scale."""
    name, _ = chart.headings[panel]
    top = max(float(rows["high"].max()) for rows in curves.values())
    style.heading(axes[0], name, above_in=0.34)
    for place, (ax, x) in enumerate(zip(axes, _places(curves), strict=True)):
        words = captions.plural(int(x), chart.x.words.removesuffix("s"))
        style.heading(ax, "", words, 0 if place else style.WIDTH_IN)
        for number, (server, rows) in enumerate(curves.items()):
            for _, point in rows[(rows["x"] == x) & rows["y"].notna()].iterrows():
                _draw_row(ax, number, server, chart.looks[server], point)
        ax.set_xlim(0, top * 1.42 or 1)
        style.name_rows(ax, list(curves), chart.looks)
        ax.tick_params(labelleft=place == 0)
        scales.even_axis(ax, "x")
        ax.set_xlabel(chart.y.label)


def _draw_row(ax: Axes, row: int, server: str, look: Identity, point: pd.Series[Any]) -> None:
    full = bool(point["solid"])
    color, middle = look.color if full else pale(look.color), float(point["y"])
    low, high = float(point["low"]), float(point["high"])
    ax.plot([0, middle], [row, row], color=color, lw=1.3, ls="-" if full else DASHED, label="_from zero")
    ax.errorbar(
        [middle], [row], xerr=[[middle - low], [high - middle]], color=color, capsize=3, lw=1.3,
        marker=look.marker, ms=7, label=server, markerfacecolor=color if full else "white", zorder=3,
    )  # fmt: skip
    ax.annotate(style.number(middle), (high, row), (8, 0), textcoords="offset points", size=style.SMALL_PT, va="center")
