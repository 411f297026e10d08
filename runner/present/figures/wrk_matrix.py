"""Figures of the wrk matrix: a quantity against the number of connections, keep-alive and close."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.figures import multiples
from runner.present.frames import MODES, Tables, server_bound
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, identities, pale
from runner.present.statistics.stats import Spread, spread

Points = dict[str, dict[int, tuple[Spread, bool]]]
"""Server -> number of connections -> the trials' values, and whether they may be compared."""
DASHED: Any = (0, (4, 2))


def always(trials: pd.DataFrame) -> bool:
    """Stand in for `server_bound` where a quantity may be compared whatever was the limit."""
    return bool(len(trials))


@style.styled
def requests(tables: Tables) -> Figure:
    """Draw requests/s against connections; points that were not server-bound are hollow and pale."""
    words = "Filled: the server was the limit in every repeat, so rates compare. Hollow, pale: it was not; do not rank."
    return _matrix(tables, "wrk: requests per second by connections", "rps", "requests/s", words, server_bound)


@style.styled
def cpu_per_request(tables: Tables) -> Figure:
    """Draw the server's CPU milliseconds per request against connections."""
    words = "CPU time per request has no window and compares whatever was the limit."
    title, column = "wrk: CPU per request by connections", "server_cpu_ms_per_request"
    return _matrix(tables, title, column, "CPU ms per request", words, always)


def _matrix(
    tables: Tables, title: str, column: str, label: str, words: str, solid: Callable[[pd.DataFrame], bool]
) -> Figure:
    trials = tables.sealed("wrk")
    trials = trials[trials["connections"].notna()]
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "wrk"))
    looks = identities(tables.trials)
    parts: list[multiples.Part] = [
        _part(heading, _points(own, column, looks, solid), looks, label) for heading, own in panels(trials)
    ]
    caption = captions.caption(tables, tables.of("wrk"), f"{words} Bars: minimum to maximum around the median.")
    return multiples.compose(title, caption, parts)


def panels(trials: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the trials of each panel with its heading: those of one workload, mode, share of a core and the like."""
    several = trials["workload"].nunique() > 1
    found = []
    for workload in dict.fromkeys(trials["workload"]):
        for mode, name in MODES.items():
            chosen = trials[(trials["workload"] == workload) & (trials["mode"] == mode)]
            for terms in dict.fromkeys(chosen["terms"]):
                heading = f"{workload}, {name}" if several else name.capitalize()
                own = chosen[chosen["terms"] == terms]
                found.append((", ".join(filter(None, [heading, terms])), own))
    return found


def _points(
    trials: pd.DataFrame, column: str, looks: Mapping[str, Identity], solid: Callable[[pd.DataFrame], bool]
) -> Points:
    """Return server -> number of connections -> the trials' values, and whether they may be compared."""
    found: Points = {}
    for server in looks:
        own = trials[trials["server"] == server]
        cells = {int(float(str(count))): cell for count, cell in own.groupby("connections")}
        points = {count: (spread(cell[column]), solid(cell)) for count, cell in cells.items()}
        if known := {count: point for count, point in points.items() if point[0].n}:
            found[server] = known
    return found


def _part(name: str, points: Points, looks: Mapping[str, Identity], label: str) -> multiples.Part:
    """Return rows where there are too few numbers of connections for a curve, else curves."""
    counts = sorted({count for own in points.values() for count in own})
    if points and len(counts) < 3:
        return Rows(name, points, looks, label, counts)
    return _curves(name, points, looks, label, counts)


# --- curves -----------------------------------------------------------------------------------------------


def _curves(
    name: str, points: Points, looks: Mapping[str, Identity], label: str, counts: Sequence[int]
) -> multiples.Curves:
    # Side by side in one panel, a few per cent apart, so that the error bars of equal servers do not cover one another.
    together = len(points) <= multiples.FEW
    middle = (len(points) - 1) / 2
    nudge = {server: 1.045 ** (place - middle) if together else 1.0 for place, server in enumerate(points)}
    top = max((of.high for own in points.values() for of, _ in own.values()), default=0.0)

    def draw(ax: Axes, server: str) -> None:
        own = [(count * nudge[server], of, full) for count, (of, full) in points[server].items()]
        _draw_server(ax, server, looks[server], own)

    def finish(ax: Axes) -> None:
        ax.set_xscale("log")
        spare = 1.5 if together else 1.8  # so that the labels of neighbouring panels keep apart
        ax.set_xlim(counts[0] / spare, counts[-1] * spare)
        ax.set_ylim(0, top * 1.07 or 1)
        scales.ticks_across(ax, counts)
        scales.even_axis(ax, "y")

    return multiples.Curves(
        name=name,
        words="",
        looks=looks,
        lines={
            server: (np.array(list(own)) * nudge[server], np.array([of.median for of, _ in own.values()]))
            for server, own in points.items()
        },
        draw=draw,
        finish=finish,
        xlabel="connections (log scale)",
        ylabel=label,
        panel_in=2.5,
        left_in=1.12,
    )


def _draw_server(ax: Axes, server: str, look: Identity, points: list[tuple[float, Spread, bool]]) -> None:
    faint = pale(look.color)
    for (x0, a, full0), (x1, b, full1) in pairwise(points):
        sure = full0 and full1
        ax.plot(
            [x0, x1], [a.median, b.median], color=look.color if sure else faint, lw=1.8 if sure else 1.3, label="",
            ls="-" if sure else DASHED, zorder=2,
        )  # fmt: skip
    for x, of, full in points:
        color = look.color if full else faint
        bars = np.array([[of.median - of.low], [of.high - of.median]])
        ax.errorbar(
            [x], [of.median], yerr=bars, color=color, capsize=3, lw=1.3, marker=look.marker, ms=6.5, label=server,
            markerfacecolor=color if full else "white", zorder=3,
        )  # fmt: skip


# --- rows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A panel a number of connections, beside each other, and in it a row a server: what ranks can be read off."""

    name: str
    points: Points
    looks: Mapping[str, Identity]
    label: str
    counts: Sequence[int]

    def rows(self) -> list[style.Row]:
        """Return the one row of panels."""
        left_in = style.label_room(list(self.points)) - 0.1
        return [style.Row(len(self.counts), 0.3 + 0.34 * len(self.points), 0.58, 0.72, left_in, 0.3, 0.3)]

    def fill(self, panels: Sequence[Sequence[Axes]]) -> None:
        """Draw the rows, zero-based, to one scale."""
        top = max((of.high for own in self.points.values() for of, _ in own.values()), default=0.0)
        style.heading(panels[0][0], self.name, above_in=0.34)
        for place, (ax, count) in enumerate(zip(panels[0], self.counts, strict=True)):
            style.heading(ax, "", captions.plural(count, "connection"), 0 if place else style.WIDTH_IN)
            for row, (server, own) in enumerate(self.points.items()):
                if count in own:
                    _draw_row(ax, row, server, self.looks[server], *own[count])
            ax.set_xlim(0, top * 1.42 or 1)
            style.name_rows(ax, list(self.points), self.looks)
            ax.tick_params(labelleft=place == 0)
            scales.even_axis(ax, "x")
            ax.set_xlabel(self.label)


def _draw_row(ax: Axes, row: int, server: str, look: Identity, of: Spread, full: bool) -> None:
    color = look.color if full else pale(look.color)
    ax.plot([0, of.median], [row, row], color=color, lw=1.3, ls="-" if full else DASHED, label="_from zero")
    ax.errorbar(
        [of.median], [row], xerr=[[of.median - of.low], [of.high - of.median]], color=color, capsize=3, lw=1.3,
        marker=look.marker, ms=7, label=server, markerfacecolor=color if full else "white", zorder=3,
    )  # fmt: skip
    ax.annotate(
        style.number(of.median), (of.high, row), (8, 0), textcoords="offset points", size=style.SMALL_PT, va="center"
    )
