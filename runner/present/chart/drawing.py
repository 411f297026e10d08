"""Draw a chart with a panel for each load, or for each server under each load.

If a server has its own panel, the lines of the other servers are drawn in grey behind its line.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.sentences import Lines
from runner.present.chart.value import Chart, Facet
from runner.present.look import captions, style
from runner.present.look.numbers import number
from runner.present.look.palette import Identity, pale

DASHED: Any = (0, (4, 2.5))
OTHERS: Any = {
    "color": style.BEHIND,
    "lw": 0.9,
    "label": "_other",
    "zorder": 1,
}
"""Style of the lines of other servers, which are drawn behind the line of a panel's own server."""
THIN: Any = (0, (4, 2))  # dash pattern of a line that leads to an unranked point
MOST_IN_A_PANEL = 4
"""At most this many servers share a panel. If there are more, each server has a small panel."""
PANELS_ACROSS = 3
"""Number of small panels in a row if there are at most `MOST_IN_ROWS_OF_THREE` servers."""
MOST_IN_ROWS_OF_THREE = 6
CROWDED_ACROSS = 5
"""Number of small panels in a row if there are more than `MOST_IN_ROWS_OF_THREE` servers."""
FEWEST_SIZES = 3
"""Points with ranges are joined to a curve only if there are at least this many sizes of a load.

The sizes are the values of x, such as numbers of connections. With fewer sizes, each size has its
own panel with a row for each server.
"""
NUDGE = 1.045
"""Factor by which the x of each server's points exceeds the x of the previous server's points.

Without this shift, the ranges of servers with equal values would hide each other.
"""
SPARE = 1.08
"""Factor by which a linear y axis extends beyond the highest value."""
SPARE_LOG = 1.3
"""Factor by which a logarithmic y axis extends beyond the highest value."""
Grid = Sequence[Sequence[Axes]]
Mark = Callable[[Axes, pd.DataFrame, Identity, str], None]
"""A function that draws a server's rows with the given look and label."""


def draw(chart: Chart) -> Figure:
    """Return the figure of a chart.

    If the chart has no data, return a small figure with a sentence that gives the reason.
    """
    with style.rc():
        if chart.frame.empty:
            figure, ((ax,),) = style.page(chart.title, "", [style.PanelRow(1, 0.5, 0.05, 0.05)])
            ax.set_axis_off()
            reason = "\n".join(style.wrap(chart.nothing, style.TEXT_PT, 6.8))
            figure.text(0.1 / style.WIDTH_IN, 0.35, reason, size=style.TEXT_PT, color=style.SOFT)
            return figure
        return (chart.draw or (facets if chart.facets else Shared()))(chart)


def lines_of(ax: Axes, rows: pd.DataFrame, **drawn: Any) -> None:
    """Draw a line for each server with seaborn.

    A line is interrupted wherever y is NaN. seaborn by itself would join the points before and
    after a NaN. Therefore each uninterrupted part is passed to seaborn as a line of its own.
    """
    runs = rows["y"].isna().cumsum()[rows["y"].notna()]
    known = rows.loc[runs.index]
    if len(known):
        import seaborn as sns  # noqa: PLC0415 - takes a second to load, and only drawings need it

        # Pass arrays instead of columns, because seaborn would use column names as axis labels.
        x = known["x"].to_numpy(float)
        y = known["y"].to_numpy(float)
        units = pd.factorize(known["server"])[0] * (len(rows) + 1) + runs.to_numpy()
        sns.lineplot(
            x=x, y=y, units=units, estimator=None, sort=False, legend=False, ax=ax, **drawn
        )


def band(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    """Draw a curve with a band from low to high, and a mark at the curve's last point.

    If the server must not be ranked by one of the points, the whole curve has a paler colour.
    """
    known = rows[rows["y"].notna()]
    color = look.color if rows["solid"].all() else pale(look.color)
    ax.fill_between(rows["x"], rows["low"], rows["high"], alpha=0.18, lw=0, color=color)
    lines_of(ax, rows, label=label, color=color, ls=look.dash)
    for x, y in known[["x", "y"]].tail(1).to_numpy():
        ax.plot(x, y, marker=look.marker, ms=5.5, label="_end", clip_on=False, color=color)


def ranged(
    ax: Axes,
    x: float,
    y: float,
    row: Mapping[Any, Any],
    look: Identity,
    label: str,
    *,
    across: bool = False,
) -> None:
    """Draw a row's point at (x, y) with its range from low to high.

    The range is vertical, or horizontal with `across`. If the row is not `solid`, the server must
    not be ranked by this point, so the point is hollow and has a paler colour.
    """
    color = look.color if row["solid"] else pale(look.color)
    ends: Any = {"xerr" if across else "yerr": [[row["y"] - row["low"]], [row["high"] - row["y"]]]}
    mark: Any = {
        "marker": look.marker,
        "ms": 7 if across else 6.5,
        "mfc": color if row["solid"] else "white",
    }
    ax.errorbar([x], [y], color=color, capsize=3, lw=1.3, label=label, zorder=3, **mark, **ends)


def beside(
    ax: Axes, x: float, y: float, words: str, away_pt: float = 8, above_pt: float = 0
) -> None:
    """Write words beside the point (x, y): `away_pt` to the right, and raised by `above_pt`."""
    ax.annotate(
        words,
        (x, y),
        (away_pt, above_pt),
        textcoords="offset points",
        size=style.SMALL_PT,
        va="center",
    )


def bars(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    """Draw points with their ranges from low to high, joined by lines.

    A point by which the server must not be ranked is hollow and has a paler colour, and the lines
    to this point are dashed.
    """
    found = rows.dropna(subset="y").to_dict("records")
    sure: Any = {"color": look.color, "lw": 1.8}
    unsure: Any = {"color": pale(look.color), "lw": 1.3, "ls": THIN}
    for a, b in pairwise(found):
        drawn = sure if a["solid"] and b["solid"] else unsure
        ax.plot([a["x"], b["x"]], [a["y"], b["y"]], label="_line", zorder=2, **drawn)
    for row in found:
        ranged(ax, row["x"], row["y"], row, look, label)


def ridges(ax: Axes, chart: Chart, panel: str, bin_width: float, height: float) -> None:
    """Draw a ridge (the outline of a histogram) for each server, with the first server on top.

    A dark line marks the value in each server's column `median`. The values of x are the centres of
    the histogram's bins. All bins are equally wide on a logarithmic scale: `bin_width` is the
    natural logarithm of a bin's upper border divided by its lower border. An empty bin is missing
    in the chart's frame. The highest ridge is `height` times as high as the distance between the
    baselines of two servers, so ridges may overlap.
    """
    curves = {
        server: rows for server, rows in chart.of_panel(panel).items() if rows["y"].notna().any()
    }
    scale = height / max((float(rows["y"].max()) for rows in curves.values()), default=1.0)
    for place, (server, rows) in enumerate(reversed(curves.items())):
        bins = np.round(np.log(rows["x"]) / bin_width - 0.5).astype(int)
        every = np.arange(bins.min() - 1, bins.max() + 2)
        share = pd.Series(rows["y"].to_numpy(), index=bins.to_numpy()).reindex(
            every, fill_value=0.0
        )
        x = np.exp((every + 0.5) * bin_width)
        y = place + share.to_numpy() * scale
        color = chart.looks[server].color
        median = float(rows["median"].iloc[0])
        ax.fill_between(x, place, y, color=color, alpha=0.35, lw=0, zorder=2 - place * 0.01)
        ax.plot(x, y, color=color, lw=1.2, label=server)
        if math.isfinite(median):
            ax.plot(
                [median, median],
                [place, place + 0.25],
                color=style.INK,
                lw=1.8,
                label=f"median of {server}",
            )
            ax.text(
                1.02,
                place,
                f"{number(median)} ms",
                transform=ax.get_yaxis_transform(),
                size=style.TEXT_PT,
            )
    ax.set_xscale("log")
    style.log_axis(ax, "x")
    style.name_rows(ax, list(reversed(curves)), chart.looks)
    ax.set(ylim=(-0.06, len(curves)), xlabel=chart.x.label)
    ax.grid(visible=True, axis="y")
    for label in ax.get_yticklabels():
        label.set_verticalalignment("bottom")


def seconds_axes(ax: Axes, start_s: float, stop_s: float) -> None:
    """Set the axes of a panel that shows response times over the seconds of a load.

    Call this function after drawing, because the limits depend on what was drawn.
    """
    ax.set_yscale("log")
    ax.set_xlim(start_s, stop_s)
    low, high = ax.get_ylim()
    # Let the axis span at least a factor of ten, so that a steady load looks steady.
    spare = max(1.0, math.sqrt(10 * low / high))
    style.limit(ax, "y", low / spare, high * spare, log=True)


def sheet(
    chart: Chart,
    *,
    alone: int = 2,
    panel_in: tuple[float, float] = (1.8, 1.35),
    left_in: float = 0.95,
    right_in: tuple[float, float] = (0.18, 0.18),
    axis_in: float = 0.38,
    below_in: float = 0.26,
) -> dict[Facet, Axes]:
    """Make a figure with a panel for each facet of a chart, and return the panels by facet.

    The panels have headings, but do not contain data yet. The heading of a panel consists of the
    server, the load if the chart has several loads, and the facet's notes. If there are at most
    `alone` panels, all panels are in one column, below each other. Otherwise all panels are in two
    columns. `panel_in` is the height of a panel in inches, and `right_in` is the space to the right
    of a panel. Both consist of two numbers: the first number is used if there is one column, and
    the second number is used if there are two columns.
    """
    shown = chart.facets
    columns = 1 if len(shown) <= alone else 2
    several = len({facet.panel for facet in shown}) > 1
    texts = ["\n".join((facet.panel * several, *facet.notes)) for facet in shown]
    words = [style.wrap(text, style.SMALL_PT, style.WIDTH_IN / columns - 0.2) for text in texts]
    heading_in = 0.36 + max(map(len, words)) * style.LINE_IN
    axis_in += 0.18 * any(facet.ticks for facet in shown)
    right = right_in[columns - 1]
    row = style.PanelRow(
        columns, panel_in[columns - 1], heading_in, axis_in, left_in, right, left_in + right
    )
    rows = [row] * -(-len(shown) // columns)
    _, grid = style.page(chart.title, chart.caption, rows, key=chart.key, below_in=below_in)
    axes = [ax for row_of_axes in grid for ax in row_of_axes]
    for ax in axes[len(shown) :]:
        ax.remove()
    found = dict(zip(shown, axes, strict=False))
    for (facet, ax), lines in zip(found.items(), words, strict=True):
        style.heading(
            ax,
            style.short(facet.server, 24),
            "\n".join(lines),
            left_in - 0.1,
            chart.looks[facet.server].ink,
        )
    # Label only the lowest panel of each column.
    for ax in {round(ax.get_position().x0, 3): ax for ax in found.values()}.values():
        ax.set_xlabel(chart.x.label)
    return found


def facets(chart: Chart, mark: Mark = band) -> Figure:
    """Return a figure with a panel for each facet of a chart.

    `mark` draws the values of the panel's own server. The lines of the other servers are drawn in
    grey. All panels have the same y limits.
    """
    axes = sheet(chart)
    frame = chart.frame
    high = float(np.nanmax(frame[["y", "high"]])) or 1.0
    limits = (0.0, high * SPARE)
    if chart.y.log:
        limits = max(float(frame["low"].min()), 1e-3) / SPARE_LOG, max(high, 1e-3) * SPARE_LOG
    for facet, ax in axes.items():
        rows = frame[frame["panel"] == facet.panel]
        places = np.unique(rows["x"].dropna())
        if chart.x.even:
            rows = rows.assign(x=np.searchsorted(places, rows["x"]))
        own = rows["server"] == facet.server
        bound = rows["series"] == (chart.dashed or None)
        lines_of(ax, rows[~own & ~bound], **OTHERS)
        lines_of(ax, rows[own & bound], color=style.INK, lw=1.0, ls=DASHED, label="bound")
        # Draw the server's own line as a solid line, even if its look has dashes, because a dashed
        # line in this panel means the chart's dashed series (labelled `bound` above).
        mark(ax, rows[own & ~bound], replace(chart.looks[facet.server], dash="-"), facet.server)
        style.limit(ax, "y", *limits, log=chart.y.log)
        ax.set_ylabel(chart.y.label)
        if facet.limits:
            ax.set_xlim(*facet.limits)
        if chart.x.even:
            ax.set_xlim(-0.5, len(places) - 0.5)
            ax.set_xticks(range(len(places)), list(map(style.plain, places)))
        elif facet.ticks:
            style.ticks_across(ax, list(facet.ticks), facet.ticks.__getitem__)
        else:
            style.even_axis(ax, "x")
    return style.figure_of(ax)


def finish(ax: Axes, chart: Chart, panel: str) -> None:
    """Set the scales and limits of a load's panel.

    A linear axis begins at zero. The limits include all values of the load.
    """
    rows = chart.frame[chart.frame["panel"] == panel]
    for axis, kind, values in (
        ("x", chart.x, rows[["x"]]),
        ("y", chart.y, rows[["y", "low", "high"]]),
    ):
        low, high = (float(end(values.to_numpy(float))) for end in (np.nanmin, np.nanmax))
        spare = SPARE_LOG if kind.log else SPARE if axis == "y" else 1.0
        limits = (low / spare, high * spare) if kind.log else (0.0, high * spare or 1.0)
        style.limit(ax, axis, *limits, log=kind.log)


@dataclass(frozen=True)
class _Plan:
    """The rows of panels that a load needs, and the function that fills these panels."""

    rows: list[style.PanelRow]
    fill: Callable[[Grid], None]


@dataclass(frozen=True)
class Shared:
    """Function object that draws a chart in which the servers of a load share one panel.

    The shared panel is `panel_in` inches high. `mark` draws the points of a server, and `finish`
    sets the scales, limits and ticks of a panel. With `apart`, or if a load has more than
    `MOST_IN_A_PANEL` servers, each server has a small panel instead of the shared panel. In this
    small panel, the lines of the other servers are drawn in grey. With `alone`, each server has a
    small panel without the other servers, even if the server has no points.
    """

    panel_in: float = 2.6
    left_in: float = 0.95
    alone: bool = False
    apart: bool = False
    mark: Mark = band
    finish: Callable[[Axes, Chart, str], None] = finish

    def __call__(self, chart: Chart) -> Figure:
        """Return a figure with the panels of all loads, one load below the other."""
        plans = [self._plan(chart, panel) for panel in chart.headings]
        rows = [row for plan in plans for row in plan.rows]
        figure, grid = style.page(chart.title, chart.caption, rows, key=chart.key)
        left = iter(grid)
        for plan in plans:
            plan.fill(list(islice(left, len(plan.rows))))
        return figure

    def _plan(self, chart: Chart, panel: str) -> _Plan:
        """Return the rows of panels that a load needs, and the function that fills these panels."""
        every = chart.of_panel(panel)
        curves = {
            server: rows for server, rows in every.items() if rows["y"].notna().any() or self.alone
        }
        head_in = 0.36 + bool(chart.headings[panel][1]) * style.LINE_IN
        if not curves:
            row = style.PanelRow(1, 0.3, head_in, 0.1)
            return _Plan([row], lambda grid: _say_nothing(grid[0][0], chart, panel))
        if self.mark is bars and chart.x.log:
            places = sorted(
                {float(x) for rows in curves.values() for x in rows.loc[rows["y"].notna(), "x"]}
            )
            if len(places) < FEWEST_SIZES:
                left_in = style.label_room(list(curves)) - 0.1
                row = style.PanelRow(
                    len(places), 0.3 + 0.34 * len(curves), 0.58, 0.72, left_in, 0.3, 0.3
                )
                return _Plan(
                    [row], lambda grid: _fill_ranking(grid[0], chart, panel, curves, places)
                )
        if len(curves) <= MOST_IN_A_PANEL and not self.alone and not self.apart:
            row = style.PanelRow(
                1, self.panel_in, head_in, 0.72, self.left_in, style.label_room(list(curves))
            )
            return _Plan([row], lambda grid: self._fill_one(grid[0][0], chart, panel, curves))
        is_crowded = len(curves) > MOST_IN_ROWS_OF_THREE
        columns = min(CROWDED_ACROSS if is_crowded else PANELS_ACROSS, len(curves))
        below = -(-len(curves) // columns) - 1
        sizes_in = zip([head_in + 0.3] + [0.34] * below, [0.1] * below + [0.78], strict=True)
        rows_in = [
            style.PanelRow(columns, 1.15, *each_in, self.left_in, 0.2, 0.24) for each_in in sizes_in
        ]
        return _Plan(rows_in, lambda grid: self._fill_many(grid, chart, panel, curves))

    def _fill_one(self, ax: Axes, chart: Chart, panel: str, curves: Lines) -> None:
        style.heading(ax, *chart.headings[panel])
        factor = NUDGE if self.mark is bars and chart.x.log else 1.0
        ends = []
        for place, (server, rows) in enumerate(curves.items()):
            moved = rows.assign(x=rows["x"] * factor ** (place - (len(curves) - 1) / 2))
            self.mark(ax, moved, chart.looks[server], server)
            last = moved.dropna(subset="y").iloc[-1]
            ends.append((server, chart.looks[server], last["x"], last["y"]))
        self.finish(ax, chart, panel)
        ax.set(xlabel=chart.x.label, ylabel=chart.y.label)
        style.label_ends(ax, ends)

    def _fill_many(self, grid: Grid, chart: Chart, panel: str, curves: Lines) -> None:
        style.heading(grid[0][0], *chart.headings[panel], above_in=0.38)
        columns = len(grid[0])
        last = len(curves) - 1
        every = pd.concat(curves.values())
        axes = [ax for row in grid for ax in row]
        for place, (ax, (server, rows)) in enumerate(zip(axes, curves.items(), strict=False)):
            name = style.fitted(server, style.TEXT_PT, style.size_in(ax)[0] + 0.1)
            style.heading(ax, name, "", 0, chart.looks[server].ink, 0.05)
            if not self.alone:
                lines_of(ax, every[every["server"] != server], **OTHERS)
            self.mark(ax, rows, chart.looks[server], server)
            self.finish(ax, chart, panel)
            ax.tick_params(labelbottom=place + columns > last, labelleft=place % columns == 0)
        for ax in axes[last + 1 :]:
            ax.remove()
        # Label the shared axes only once: in the middle of the bottom and of the left edge.
        figure = style.figure_of(axes[0])
        first = axes[0].get_position()
        lowest = grid[-1][0].get_position()
        width, height = figure.get_size_inches()
        middle = (first.x0 + grid[0][-1].get_position().x1) / 2
        below = lowest.y0 - 0.38 / height
        figure.text(middle, below, chart.x.label, size=style.TEXT_PT, ha="center", va="top")
        upright: Any = {"rotation": 90, "ha": "left", "va": "center", "size": style.TEXT_PT}
        figure.text(0.1 / width, (first.y1 + lowest.y0) / 2, chart.y.label, **upright)


def _say_nothing(ax: Axes, chart: Chart, panel: str) -> None:
    style.heading(ax, *chart.headings[panel])
    ax.set_axis_off()
    ax.text(0, 0.5, chart.nothing, transform=ax.transAxes)


def _fill_ranking(
    axes: Sequence[Axes], chart: Chart, panel: str, curves: Lines, places: Sequence[float]
) -> None:
    """Draw a panel for each value of x, with a row for each server.

    These panels are drawn if there are too few values of x for a curve.
    """
    style.heading(axes[0], chart.headings[panel][0], above_in=0.34)
    top = max(float(rows["high"].max()) for rows in curves.values())
    for place, (ax, x) in enumerate(zip(axes, places, strict=True)):
        words = captions.plural(int(x), chart.x.noun)
        style.heading(ax, "", words, 0 if place else style.WIDTH_IN)
        for height, (server, rows) in enumerate(curves.items()):
            for point in rows[(rows["x"] == x) & rows["y"].notna()].to_dict("records"):
                look = chart.looks[server]
                sure = point["solid"]
                color = look.color if sure else pale(look.color)
                dash = "-" if sure else THIN
                ax.plot(
                    [0, point["y"]], [height] * 2, color=color, lw=1.3, ls=dash, label="_from zero"
                )
                ranged(ax, point["y"], height, point, look, server, across=True)
                beside(ax, point["high"], height, number(point["y"]))
        style.limit(ax, "x", 0, top * 1.42 or 1)
        style.name_rows(ax, list(curves), chart.looks)
        ax.tick_params(labelleft=place == 0)
        ax.set_xlabel(chart.y.label)
