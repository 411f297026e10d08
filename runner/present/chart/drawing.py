"""The picture of a chart: a panel for each server and load, the other servers pale behind it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.value import Chart, Facet
from runner.present.look import scales, style
from runner.present.look.palette import Identity, pale

DASHED: Any = (0, (4, 2.5))
SPARE = {"band": (1.08, 1.3), "bars": (1.1, 1.4)}
"""Mark -> factor by which the axis up reaches beyond the values, and where it is logarithmic."""


def draw(chart: Chart) -> Figure:
    """Return the figure; without data a small one that says why there is nothing to see."""
    with style.rc():
        if chart.nothing:
            return style.no_data(chart.title, chart.nothing)
        return (chart.draw or facets)(chart)


# --- a panel for each server, with axes of its own --------------------------------------------------------


def sheet(chart: Chart) -> tuple[Figure, dict[Facet, Axes]]:
    """Return a figure with an empty panel for each facet, below the server's name, the load where there are several,
    and the facet's notes.
    """
    size, shown = chart.sheet, chart.facets
    columns = 1 if len(shown) <= size.alone else 2
    room_in = style.WIDTH_IN / columns - 0.2
    several = len({facet.panel for facet in shown}) > 1
    words = [
        [
            line
            for part in ([facet.panel] if several else []) + [note for note in facet.notes if note]
            for line in style.wrap(part, style.SMALL_PT, room_in)
        ]
        for facet in shown
    ]
    figure, axes = style.canvas(
        chart.title,
        chart.caption,
        key=chart.key,
        rows=-(-len(shown) // columns),
        columns=columns,
        panel_in=size.panel_in[columns - 1],
        heading_in=0.36 + max(len(lines) for lines in words) * style.SMALL_PT * style.LINE / 72,
        left_in=size.left_in,
        right_in=size.right_in[columns - 1],
        axis_in=size.axis_in,
        below_in=size.below_in,
    )
    for ax in axes[len(shown) :]:
        ax.remove()
    kept = axes[: len(shown)]
    for ax, facet, lines in zip(kept, shown, words, strict=True):
        name = style.short(facet.server, 24)
        style.heading(ax, name, "\n".join(lines), size.left_in - 0.1, chart.looks[facet.server].ink)
    _name_lowest(kept, chart.x.label)
    return figure, dict(zip(shown, kept, strict=True))


def _name_lowest(axes: list[Axes], label: str) -> None:
    """Name the axis across in the lowest panel of each column, once for all above."""
    by_column: dict[float, Axes] = {}
    for ax in axes:
        by_column[round(ax.get_position().x0, 3)] = ax
    for ax in by_column.values():
        ax.set_xlabel(label)


def facets(chart: Chart) -> Figure:
    """Draw a panel for each server, all with the same limits upwards."""
    figure, axes = sheet(chart)
    limits = _limits(chart)
    for facet, ax in axes.items():
        curves = chart.of_panel(facet.panel)
        own = curves.pop(facet.server)
        places = _places(pd.concat([own, *curves.values()])["x"]) if chart.x.even else {}
        for other in curves.values():
            ax.plot(*_line(other, places), color=style.BEHIND, lw=0.9, label="_other", zorder=1)
        if chart.dashed:
            dashed = chart.series(facet.panel, facet.server, chart.dashed)
            ax.plot(*_line(dashed, places), color=style.INK, lw=1.0, ls=DASHED, label="bound")
        _mark(ax, chart, own.assign(x=_line(own, places)[0]), facet.server)
        _axis_up(ax, chart, limits)
        _axis_across(ax, facet, places)
    return figure


def _places(values: pd.Series[float]) -> dict[float, int]:
    """Return the place of each value on an axis where they stand at the same distance."""
    return {float(value): number for number, value in enumerate(np.unique(values.dropna()))}


def _line(rows: pd.DataFrame, places: Mapping[float, int]) -> tuple[pd.Series[float], pd.Series[float]]:
    return (rows["x"].map(places) if places else rows["x"]).astype(float), rows["y"].astype(float)


def _limits(chart: Chart) -> tuple[float, float]:
    """Return the limits upwards of all panels alike, so that they compare."""
    frame, (spare, spare_log) = chart.frame, SPARE[chart.mark]
    dashed = frame["series"] == (chart.dashed or None)
    high = float(np.nanmax([frame["high"].max(), frame.loc[dashed, "y"].max()])) or 1.0
    if not chart.y.log:
        return 0.0, high * spare
    low = float(frame["low"].min())
    return max(low, 1e-3) / spare_log, max(high, 1e-3) * spare_log


def _axis_up(ax: Axes, chart: Chart, limits: tuple[float, float]) -> None:
    if chart.y.log:
        ax.set_yscale("log")
    ax.set_ylim(*limits)
    ax.set_ylabel(chart.y.label)
    if chart.y.log:
        scales.log_axis(ax, "y")
    else:
        scales.even_axis(ax, "y")


def _axis_across(ax: Axes, facet: Facet, places: Mapping[float, int]) -> None:
    if places:
        ax.set_xlim(-0.5, len(places) - 0.5)
        ax.set_xticks(range(len(places)), [f"{value:,.10g}" for value in places])
        return
    if facet.limits:
        ax.set_xlim(*facet.limits)
    if facet.ticks:
        scales.ticks_across(ax, list(facet.ticks), lambda at: facet.ticks.get(at, ""))
    else:
        scales.even_axis(ax, "x")


# --- curves -----------------------------------------------------------------------------------------------


def _mark(ax: Axes, chart: Chart, rows: pd.DataFrame, server: str) -> None:
    if chart.mark == "band":
        band(ax, rows, chart.looks[server], server, alpha=0.25)
    else:
        bars(ax, rows, chart.looks[server], server)


def band(ax: Axes, rows: pd.DataFrame, look: Identity, label: str, *, alpha: float = 0.18) -> None:
    """Draw a curve with its low to high behind it, and a mark at its last point."""
    known = rows[rows["y"].notna()]
    ax.fill_between(rows["x"], rows["low"], rows["high"], alpha=alpha, lw=0, color=look.color)
    ax.plot(rows["x"], rows["y"], label=label, color=look.color)
    if len(known):
        x, y = known["x"].iloc[-1], known["y"].iloc[-1]
        ax.plot(x, y, marker=look.marker, ms=5.5, label="_end", clip_on=False, color=look.color)


def bars(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    """Draw points with their low to high, joined; what does not rank is hollow and pale."""
    faint = pale(look.color)
    found = [(p.x, p.y, p.low, p.high, p.solid) for p in rows.dropna(subset="y").itertuples()]
    for (x0, y0, *_, full0), (x1, y1, *_, full1) in pairwise(found):
        color = look.color if full0 and full1 else faint
        ax.plot([x0, x1], [y0, y1], color=color, lw=1.6, label="_line", zorder=2)
    for x, y, low, high, full in found:
        color = look.color if full else faint
        ax.errorbar(
            [x], [y], yerr=[[y - low], [high - y]], color=color, capsize=3, lw=1.3, marker=look.marker, ms=6,
            label=label, zorder=3, markerfacecolor=color if full else "white",
        )  # fmt: skip
