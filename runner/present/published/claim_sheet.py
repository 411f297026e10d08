"""Draw the figure of the claims.

The figure is a table. Each row has a claim, its published range, our ratios, and the outcome.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from runner.present.chart.sentences import fit
from runner.present.chart.value import POINT_COLUMNS, Axis, Chart
from runner.present.look import style
from runner.present.look.palette import WHITE
from runner.present.statistics.inference import Ratio

KEY = (
    "Ratio: what the claim names first, divided by the other. Grey: the published range. Dot: the "
    "ratio here, with its 95 % interval. Two joined dots: the lowest and the highest of several "
    "ratios."
)
CLAIM_IN = 2.3  # width for the claim
PUBLISHED_IN = 0.95  # width for the published range
HERE_IN = 0.95  # width for the measured ratios
OUTCOME_IN = 1.15  # width for the outcome
ROW_IN = 0.06  # a row is this much higher than its text
HEAD_IN = 0.3  # height of the columns' headings
BETWEEN_IN = 0.1  # distance between claims with different outcomes
NARROWEST = 1.25  # the axis extends at least to this factor and its inverse
WIDEST = 8.0  # the axis extends at most to this factor and its inverse
EDGE = 0.05  # free space at each end of the axis, as a share of the length that values need
TICKS = ((0.25, 0.5, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0), (0.2, 1.0, 5.0), (1.0,))


@dataclass(frozen=True)
class ClaimRow:
    """A claim in words, the range of ratios in which it holds, our ratios, and the outcome.

    Claims of the same `group` are drawn together. If `at_least` is 0 or `at_most` is infinite, the
    range is open at this end.
    """

    words: str
    group: str
    outcome: str
    at_least: float
    at_most: float
    ratios: tuple[Ratio, ...]

    @property
    def published(self) -> str:
        """The range in which the claim holds, as text: for example `> 1` or `0.95–1.05`."""
        if self.at_most == math.inf:
            return f"> {self.at_least:g}"
        if not self.at_least:
            return f"< {self.at_most:g}"
        return f"{self.at_least:g}–{self.at_most:g}"

    @property
    def here(self) -> str:
        """The lowest and the highest of our ratios, as text: for example `0.45–0.68`."""
        ends = dict.fromkeys(f"{end:.2f}" for end in (min(self.middles), max(self.middles)))
        return "–".join(ends)

    @property
    def middles(self) -> list[float]:
        """The ratios without their intervals."""
        return [each.ratio for each in self.ratios]

    @property
    def lines(self) -> list[str]:
        """The claim in words, broken into lines."""
        return style.wrap(self.words, style.SMALL_PT, CLAIM_IN - 0.2)

    @property
    def outcome_lines(self) -> list[str]:
        """The outcome broken into lines."""
        return style.wrap(self.outcome, style.SMALL_PT, OUTCOME_IN - 0.1)

    @property
    def height_in(self) -> float:
        """Height of the row in inches."""
        return ROW_IN + style.LINE_IN * max(len(self.lines), len(self.outcome_lines))

    @property
    def said(self) -> str:
        """The row as a sentence."""
        return f"{self.words}: published {self.published}, here {self.here}: {self.outcome}."


def claim_sheet(title: str, caption: str, rows: Sequence[ClaimRow]) -> Chart:
    """Return the chart of claims; `rows` must be sorted by group.

    The chart's frame has a row for each ratio. In this row, `panel` is the group, `server` is the
    claim in words, and `y` is the ratio. The columns `at_least` and `at_most` are the ends of the
    range in which the claim holds.
    """
    points = [
        (
            row.group,
            row.words,
            str(number),
            math.nan,
            each.ratio,
            each.low,
            each.high,
            True,
            row.at_least,
            row.at_most,
        )
        for row in rows
        for number, each in enumerate(row.ratios)
    ]
    frame = pd.DataFrame(points, columns=[*POINT_COLUMNS, "at_least", "at_most"])
    chart = Chart(title, frame, y=Axis("ratio", log=True), caption=caption, key=KEY, noun="outcome")
    head = f"Forest plot of {len(rows)} claims about a ratio, as a table."
    return replace(
        chart,
        draw=lambda chart: _sheet(chart, rows),
        describe=lambda _: fit(head, [row.said for row in rows], "claim"),
    )


def _sheet(chart: Chart, rows: Sequence[ClaimRow]) -> Figure:
    tops = _tops(rows)
    height = tops[-1] + rows[-1].height_in
    panel = style.PanelRow(
        panel_in=height,
        heading_in=0.1,
        left_in=CLAIM_IN + PUBLISHED_IN,
        right_in=HERE_IN + OUTCOME_IN,
        axis_in=0.62,
    )
    figure, ((ax,),) = style.page(
        chart.title, chart.caption, [panel], key=chart.key, may_shrink=False
    )
    low, high = _ends(rows)
    # Values of the vertical axis are distances from the panel's upper edge, in inches.
    ax.set(xscale="log", xlim=(low, high), ylim=(height, 0))
    style.log_axis(ax, "x", TICKS, 0.4, fewest=1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    ax.grid(visible=True, axis="x", color=style.GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("ratio (log scale)")
    heads = ("claim", "published", "here", "outcome")
    for x_in, words in zip(_columns(), heads, strict=True):
        _write(ax, x_in, HEAD_IN / 2, words, bold=True)
    ax.plot([1, 1], [HEAD_IN, height], color=style.GREY, lw=1.1, zorder=1, label="_one")
    for row, top in zip(rows, tops, strict=True):
        _draw(ax, row, top)
    for (one, other), top in zip(itertools.pairwise(rows), tops[1:], strict=True):
        if one.group != other.group:
            _rule(ax, top - BETWEEN_IN / 2)
    _rule(ax, HEAD_IN)
    return figure


def _tops(rows: Sequence[ClaimRow]) -> list[float]:
    """Return the distance of each row's upper edge from the panel's upper edge, in inches."""
    tops = [HEAD_IN + 0.05]
    for row, following in itertools.pairwise(rows):
        tops.append(tops[-1] + row.height_in + BETWEEN_IN * (row.group != following.group))
    return tops


def _ends(rows: Sequence[ClaimRow]) -> tuple[float, float]:
    """Return the ends of the axis.

    The axis includes all intervals and ranges, but it extends at most to `WIDEST` and its inverse.
    """
    values = [end for row in rows for each in row.ratios for end in (each.low, each.high)]
    values += [end for row in rows for end in (row.at_least, row.at_most)]
    inside = [value for value in values if 0 < value < math.inf]
    low = max(min([1 / NARROWEST, *inside]), 1 / WIDEST)
    high = min(max([NARROWEST, *inside]), WIDEST)
    free = (high / low) ** EDGE
    return low / free, high * free


def _columns() -> tuple[float, float, float, float]:
    """Return the left edges of the four text columns, in inches from the figure's left edge."""
    right_in = style.WIDTH_IN - HERE_IN - OUTCOME_IN + 0.08
    return 0.1, CLAIM_IN, right_in, right_in + HERE_IN


def _draw(ax: Axes, row: ClaimRow, top: float) -> None:
    """Draw a row whose upper edge is at `top`."""
    middle = top + row.height_in / 2
    left, right = np.clip((row.at_least, row.at_most), *ax.get_xlim())
    ax.barh(
        middle,
        right - left,
        left=left,
        height=row.height_in - 0.05,
        color=style.GRID,
        lw=0,
        zorder=0.5,
    )
    if len(row.ratios) == 1:
        (only,) = row.ratios
        _line(ax, (only.low, only.high), middle, 1.8, "interval")
        _dots(ax, [only.ratio], middle, row.words)
    else:
        ends = min(row.middles), max(row.middles)
        _line(ax, ends, middle, 4.0, "range")
        _dots(ax, list(ends), middle, row.words)
    claim_in, published_in, here_in, outcome_in = _columns()
    _write(ax, claim_in, middle, "\n".join(row.lines))
    _write(ax, published_in, middle, row.published)
    _write(ax, here_in, middle, row.here)
    _write(ax, outcome_in, middle, "\n".join(row.outcome_lines))


def _line(ax: Axes, ends: tuple[float, float], y: float, width_pt: float, label: str) -> None:
    """Draw a line between two ratios, cut off at the ends of the axis."""
    inside = np.clip(ends, *ax.get_xlim())
    ax.plot(inside, [y, y], color=style.INK, lw=width_pt, zorder=3, label=label)


def _dots(ax: Axes, ratios: Sequence[float], y: float, label: str) -> None:
    ax.plot(
        ratios,
        [y] * len(ratios),
        ls="",
        marker="o",
        ms=7,
        color=style.INK,
        mec=WHITE,
        mew=0.8,
        zorder=4,
        label=label,
    )


def _rule(ax: Axes, y: float) -> None:
    """Draw a thin line across all columns."""
    across = blended_transform_factory(style.figure_of(ax).transFigure, ax.transData)
    edge = 0.1 / style.WIDTH_IN
    ax.plot(
        [edge, 1 - edge],
        [y, y],
        color=style.BEHIND,
        lw=0.8,
        transform=across,
        clip_on=False,
        label="_rule",
    )


def _write(ax: Axes, x_in: float, y: float, words: str, *, bold: bool = False) -> None:
    """Write words at `x_in` from the figure's left edge, vertically centred at `y`."""
    ax.text(
        x_in / style.WIDTH_IN,
        y,
        words,
        va="center",
        linespacing=style.LINE - 0.15,
        transform=blended_transform_factory(style.figure_of(ax).transFigure, ax.transData),
        size=style.SMALL_PT,
        weight="bold" if bold else "normal",
    )
