"""Draw forest plots, which show rows of ratios with intervals on one logarithmic axis around 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from runner.present.chart.sentences import fit
from runner.present.chart.value import POINT_COLUMNS, Axis, Chart
from runner.present.look import style

LABEL_IN = 2.2  # width for the words to the left of the axis
NOTE_IN = 2.3  # width for the words to the right of the axis
ROW_IN = 0.16  # height that a row has in addition to its text or marks
MARK_IN = 0.16  # height of each mark
DENSE_IN = 0.065  # maximum height of each mark in a dense row
MOST_DENSE_IN = 0.8  # maximum height of all marks in a dense row together
HEADING_IN = 0.4  # height of a group's heading
TICKS = (
    (0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1),
    (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2),
    (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4),
    (0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5),
    (0.4, 0.7, 1.0, 1.5, 2.5),
    (0.25, 0.5, 1.0, 2.0, 4.0),
    (0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0),
)
"""Sets of ticks, from fine to coarse. A figure uses one of these sets (see `style.log_axis`)."""
TICK_IN = 0.45  # minimum distance between ticks
NARROWEST = 1.06  # the axis extends at least to this ratio and its inverse
WIDEST = 20.0  # the axis extends at most to this ratio and its inverse
EDGE = 0.06  # free space at each end of the axis, as a share of the length that the values need


@dataclass(frozen=True)
class Mark:
    """A ratio with its interval. A value of NaN is not drawn.

    A mark is drawn hollow if the caller sets `hollow`, for example because the ratio does not show
    a difference between the servers, or does not describe the servers.
    """

    ratio: float
    low: float
    high: float
    color: str
    marker: str = "o"
    hollow: bool = False


@dataclass(frozen=True)
class ForestRow:
    """A row of a forest plot: words on the left, marks below each other, and a note on the right.

    - `band` is drawn as a pale range behind the marks.
    - `other` is a second ratio for comparison, which is drawn as a diamond.
    - `limit` is a ratio that is drawn as a vertical tick.
    - `floor` is a ratio (> 1) that is drawn as two dotted lines, at `floor` and at 1 / `floor`.
    - `said` replaces the note in the chart's description, unless `said` is empty.
    - `dense` says that the marks are drawn small, because the row may have many marks.

    A value of NaN is not drawn.
    """

    words: str
    note: str
    marks: tuple[Mark, ...] = ()
    band: tuple[float, float] | None = None
    other: float = math.nan
    limit: float = math.nan
    floor: float = math.nan
    said: str = ""
    dense: bool = False

    @property
    def mark_in(self) -> float:
        """Height of each mark in inches."""
        if not self.dense:
            return MARK_IN
        return min(DENSE_IN, MOST_DENSE_IN / max(1, len(self.marks)))

    @property
    def left_lines(self) -> list[str]:
        """The words on the left side, broken into lines."""
        return style.wrap(self.words, style.SMALL_PT, LABEL_IN - 0.3)

    @property
    def right_lines(self) -> list[str]:
        """The words on the right side, broken into lines."""
        return style.wrap(self.note, style.SMALL_PT, NOTE_IN - 0.15)

    @property
    def height_in(self) -> float:
        """Height of the row in inches."""
        lines = max(1, len(self.left_lines), len(self.right_lines))
        return ROW_IN + max(self.mark_in * len(self.marks), style.LINE_IN * lines)


Groups = Mapping[str, Sequence[ForestRow]]


def forest(title: str, caption: str, key: str, groups: Groups, axis: str, head: str) -> Chart:
    """Return a forest plot with the rows of several groups.

    `axis` names the ratio, and `head` is the first sentence of the description.

    The chart's frame has one record for each mark:

    - `panel` is the name of the group, and `server` contains the words of the mark's row.
    - `y` is the ratio, and `low` and `high` are the ends of its interval.
    - `solid` is False if the mark is hollow.
    - `other` is the second ratio of the mark's row.

    If a row has no marks, it has one record in which `y`, `low` and `high` are NaN.
    """
    points = [
        (
            name,
            row.words,
            str(number),
            math.nan,
            mark.ratio,
            mark.low,
            mark.high,
            not mark.hollow,
            row.other,
        )
        for name, rows in groups.items()
        for row in rows
        for number, mark in enumerate(
            row.marks or (Mark(math.nan, math.nan, math.nan, "", hollow=True),)
        )
    ]
    texts = [
        f"{'' if place else f'{name}: '}{row.words}: "
        f"{row.said or ', '.join(row.note.splitlines())}."
        for name, rows in groups.items()
        for place, row in enumerate(rows)
    ]
    frame = pd.DataFrame(points, columns=[*POINT_COLUMNS, "other"])
    chart = Chart(title, frame, y=Axis(axis, log=True), caption=caption, key=key, noun="group")
    return replace(
        chart, draw=lambda chart: _sheet(chart, groups), describe=lambda _: fit(head, texts, "row")
    )


def _sheet(chart: Chart, groups: Groups) -> Figure:
    height = sum(HEADING_IN + sum(row.height_in for row in rows) for rows in groups.values())
    panel = style.PanelRow(
        panel_in=height, heading_in=0.3, left_in=LABEL_IN, right_in=NOTE_IN, axis_in=0.62
    )
    figure, ((ax,),) = style.page(
        chart.title, chart.caption, [panel], key=chart.key, may_shrink=False
    )
    rows = [row for group in groups.values() for row in group]
    found = [
        value for row in rows for mark in row.marks for value in (mark.ratio, mark.low, mark.high)
    ]
    found += [
        value
        for row in rows
        for value in (row.other, row.limit, row.floor, 1 / row.floor, *(row.band or ()))
    ]
    values = [value for value in found if math.isfinite(value) and value > 0]
    low = max(min([1 / NARROWEST, *values]), 1 / WIDEST)
    high = min(max([NARROWEST, *values]), WIDEST)
    free = (high / low) ** EDGE
    low = low / free
    high = high * free
    # Values of the vertical axis are distances from the panel's upper edge, in inches.
    ax.set(xscale="log", xlim=(low, high), ylim=(height, 0))
    style.log_axis(ax, "x", TICKS, TICK_IN, fewest=3)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    ax.grid(visible=True, axis="x", color=style.GRID, lw=0.8)
    ax.set_axisbelow(True)
    if len(rows) > 10:
        ax.tick_params(axis="x", top=True, labeltop=True)
    ax.set_xlabel(f"{chart.y.label} (log scale)")
    at = 0.0
    for name, group in groups.items():
        _write(ax, 0.1, at + HEADING_IN - 0.12, [name], bold=True)
        top = at = at + HEADING_IN
        for row in group:
            _draw(ax, row, at)
            at += row.height_in
        # Interrupt the vertical line at the ratio 1 beside a heading, because a long heading may
        # reach this line.
        ax.plot([1, 1], [top, at], color=style.GREY, lw=1.1, zorder=1, label="_one")
    return figure


def _draw(ax: Axes, row: ForestRow, top: float) -> None:
    """Draw a row whose upper edge is at `top`."""
    middle = top + row.height_in / 2
    half = row.height_in / 2 - 0.05
    upright = [middle - half, middle + half]
    if row.band is not None:
        left, right = np.clip(row.band, 1 / WIDEST / 2, WIDEST * 2)
        ax.barh(
            middle, right - left, left=left, height=2 * half, color=style.GRID, lw=0, zorder=0.5
        )
    if math.isfinite(row.other):
        for mark in row.marks:
            ax.plot(
                [row.other, mark.ratio],
                [middle] * 2,
                color=style.GREY,
                lw=1,
                ls=":",
                zorder=2,
                label="_apart",
            )
        ax.plot(
            row.other,
            middle,
            ls="",
            marker="D",
            ms=7,
            color=style.INK,
            mfc="white",
            mew=1.3,
            zorder=3,
            label="other",
        )
    if math.isfinite(row.limit):
        ax.plot([row.limit] * 2, upright, color=style.INK, lw=1.6, zorder=3, label="limit")
    if math.isfinite(row.floor):
        for end in (row.floor, 1 / row.floor):
            ax.plot([end] * 2, upright, color=style.INK, lw=1.2, ls=":", label="floor")
    for number, mark in enumerate(row.marks):
        y = middle + row.mark_in * (number - (len(row.marks) - 1) / 2)
        if math.isfinite(mark.low) and math.isfinite(mark.high):
            ax.plot(
                [mark.low, mark.high],
                [y, y],
                color=mark.color,
                lw=1.0 if row.dense else 2.2,
                zorder=3,
                label="interval",
            )
        if math.isfinite(mark.ratio):
            drawn: Any = {
                "color": mark.color,
                "mfc": "white" if mark.hollow else mark.color,
                "marker": mark.marker,
            }
            size = 4.0 if row.dense else 7.0
            ax.plot(mark.ratio, y, ls="", ms=size, mew=1.2, zorder=4, label=row.words, **drawn)
    _write(ax, 0.25, middle, row.left_lines)
    _write(ax, style.WIDTH_IN - NOTE_IN + 0.1, middle, row.right_lines)


def _write(ax: Axes, x_in: float, y: float, lines: Sequence[str], *, bold: bool = False) -> None:
    """Write lines at `x_in` from the figure's left edge, vertically centred at `y`."""
    ax.text(
        x_in / style.WIDTH_IN,
        y,
        "\n".join(lines),
        va="center",
        linespacing=style.LINE - 0.15,
        transform=blended_transform_factory(style.figure_of(ax).transFigure, ax.transData),
        size=style.TEXT_PT if bold else style.SMALL_PT,
        weight="bold" if bold else "normal",
    )
