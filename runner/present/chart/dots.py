"""Draw a dot plot: a row for each server, and a number beside each dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.drawing import beside
from runner.present.chart.value import Axis, Chart
from runner.present.look import style
from runner.present.look.numbers import number
from runner.present.look.palette import PROBE, Identity, pale

ROW_IN = 0.28
BELOW = 0.3
"""Distance of the probe's marks below a server's row, as a share of the distance between rows."""
LABEL_PT = 7.0  # horizontal distance between a dot and its number
ABOVE_PT = 6.8  # the middle of the number is this far above the dot and its line


@dataclass(frozen=True, eq=False)
class DotPanel:
    """A panel of a dot plot. It shows each server's dots on a horizontal line of their own.

    `rows` is a frame with the columns of a chart's frame. Each row of this frame is a dot: y is the
    value of the dot, and low and high are the ends of the range around this value. A server may
    have several dots. With `names_series`, the text beside each dot begins with the dot's `series`.
    `words` are printed above the panel. `second` contains the values that a second client, the
    probe, measured. These values are drawn as grey marks below the servers' dots.
    """

    rows: pd.DataFrame
    words: str = ""
    names_series: bool = False
    second: pd.DataFrame = field(default_factory=pd.DataFrame)


@dataclass(frozen=True, eq=False)
class DotGroup:
    """Panels side by side that have the same servers as rows, with the first server on top.

    A panel is None if there are no measurements for it.
    """

    name: str
    servers: Sequence[str]
    panels: Sequence[DotPanel | None]


def draw_dots(chart: Chart, groups: Sequence[DotGroup], axes: Sequence[Axis]) -> Figure:
    """Return the figure of a dot plot, with a row of panels for each group.

    A row has a panel for each of `axes`, which are the x axes of the panels from left to right.
    Panels with equal axes get the same limits, so that a reader can compare these panels. A linear
    axis begins at zero.
    """
    longest = [server for group in groups for server in group.servers]
    every = [panel for group in groups for panel in group.panels if panel is not None]
    has_words = any(panel.words for panel in every)
    pitch_in = ROW_IN * (1.35 if any(len(panel.second) for panel in every) else 1.0)
    last = len(groups) - 1
    rows = [
        style.PanelRow(
            len(axes),
            0.1 + pitch_in * len(group.servers),
            0.36 + has_words * style.LINE_IN,
            0.72 if place == last else 0.1,
            style.label_room(longest) - 0.1,
            0.35,
            0.25,
        )
        for place, group in enumerate(groups)
    ]
    figure, grid = style.page(chart.title, chart.caption, rows, key=chart.key)
    for column, axis in enumerate(axes):
        same = [
            panel
            for group in groups
            for panel, other in zip(group.panels, axes, strict=True)
            if panel is not None and other == axis
        ]
        limits = _limits(grid[0][column], axis, same)
        panels = [group.panels[column] for group in groups]
        lowest = max(place for place, panel in enumerate(panels) if panel is not None)
        for place, (group, panel) in enumerate(zip(groups, panels, strict=True)):
            ax = grid[place][column]
            if column == 0:
                indent_in = style.WIDTH_IN
                above_in = 0.1 + has_words * style.LINE_IN
                style.heading(ax, group.name, "", indent_in, above_in=above_in)
            if panel is None:
                ax.set_axis_off()
                continue
            if panel.words:
                style.heading(ax, "", panel.words, 0 if column else style.WIDTH_IN)
            style.limit(ax, "x", *limits, log=axis.log)
            _fill(ax, chart, group, panel)
            style.name_rows(ax, group.servers, chart.looks)
            ax.tick_params(labelleft=column == 0, labelbottom=place == lowest)
            if place == lowest:
                ax.set_xlabel(axis.label)
    return figure


def _limits(ax: Axes, axis: Axis, panels: Sequence[DotPanel]) -> tuple[float, float]:
    """Return limits of the x axis that leave space for the number beside the last dot."""
    rows = pd.concat([each for panel in panels for each in (panel.rows, panel.second) if len(each)])
    high = float(rows[["y", "high"]].max().max())
    words = [_words(row, panel) for panel in panels for row in panel.rows.to_dict("records")]
    label_in = max(style.text_in(text, style.SMALL_PT) for text in words) + 0.2
    width_in = style.size_in(ax)[0]
    share = min(0.6, label_in / width_in)
    top = float(rows["y"].max())
    if not axis.log:
        return 0.0, max(top / (1 - share), high * 1.03) or 1.0
    low = float(rows[["y", "low"]].min().min()) / 1.2
    return low, max(low * (top / low) ** (1 / (1 - share)), high * 1.1)


def _words(row: dict[Any, Any], panel: DotPanel) -> str:
    value = number(row["y"])
    return f"{row['series']} {value}" if panel.names_series else value


def _fill(ax: Axes, chart: Chart, group: DotGroup, panel: DotPanel) -> None:
    places = {server: place for place, server in enumerate(group.servers)}
    for row in panel.rows.dropna(subset="y").to_dict("records"):
        server = row["server"]
        _draw_dot(ax, row, places[server], chart.looks[server])
    for server, rows in panel.rows.dropna(subset="y").groupby("server"):
        _label(ax, rows.sort_values("y"), places[str(server)], panel)
    for row in panel.second.dropna(subset="y").to_dict("records") if len(panel.second) else ():
        height = places[row["server"]] + BELOW
        ax.plot(
            row["y"],
            height,
            marker="|",
            ms=6,
            mew=1.6,
            ls="",
            color=PROBE.color,
            label=row["series"],
        )


def _label(ax: Axes, rows: pd.DataFrame, place: float, panel: DotPanel) -> None:
    """Write the number of each dot beside the dot.

    The number is left out if it would reach the next dot in the row.
    """
    x_in = ax.transData.transform([(x, place) for x in rows["y"]])[:, 0] / style.figure_of(ax).dpi
    following_in = [*x_in[1:], math.inf]
    for row, here_in, next_in in zip(rows.to_dict("records"), x_in, following_in, strict=True):
        words = _words(row, panel)
        if here_in + LABEL_PT / 72 + style.text_in(words, style.SMALL_PT) <= next_in:
            beside(ax, row["y"], place, words, LABEL_PT, ABOVE_PT)


def _draw_dot(ax: Axes, row: dict[Any, Any], place: float, look: Identity) -> None:
    """Draw a server's dot, and its range as a pale line behind the dot.

    A dot is hollow and pale if the server is not ranked by the dot's value.
    """
    color = look.color if row["solid"] else pale(look.color)
    if math.isfinite(row["low"]) and math.isfinite(row["high"]):
        ax.plot(
            [row["low"], row["high"]],
            [place, place],
            color=pale(look.color),
            lw=2.2,
            solid_capstyle="butt",
            label="range",
            zorder=1,
        )
    ax.plot(
        row["y"],
        place,
        marker=look.marker,
        ms=7,
        color=color,
        mfc=color if row["solid"] else "white",
        ls="",
        label=row["server"],
        zorder=3,
    )
