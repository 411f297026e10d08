"""Figures of the wrk matrix: a quantity against the number of connections, keep-alive and close."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from runner.present import captions, style
from runner.present.captions import server_bound
from runner.present.frames import MODES, Tables
from runner.present.palette import Identity, identities, pale
from runner.present.stats import Spread, spread


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
    panels = [
        (workload, mode, own)
        for workload in dict.fromkeys(trials["workload"])
        for mode in MODES
        if not (own := trials[(trials["workload"] == workload) & (trials["mode"] == mode)]).empty
    ]
    shown = [name for name in looks if name in set(trials["server"])]
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("wrk"), f"{words} Bars: minimum to maximum around the median."),
        rows=len(panels),
        panel_in=max(2.5, 0.24 * len(shown)),
        heading_in=0.38,
        left_in=1.08,
        right_in=style.label_room(shown),
    )
    several = trials["workload"].nunique() > 1
    for ax, (workload, mode, own) in zip(axes, panels, strict=True):
        style.heading(ax, f"{workload}, {MODES[mode]}" if several else MODES[mode].capitalize())
        _draw(ax, own, column, {name: looks[name] for name in shown}, solid)
        ax.set_ylabel(label)
    return figure


def _draw(
    ax: Axes,
    trials: pd.DataFrame,
    column: str,
    looks: dict[str, Identity],
    solid: Callable[[pd.DataFrame], bool],
) -> None:
    counts = sorted(int(number) for number in trials["connections"].unique())
    ends, top = [], 0.0
    for index, (server, look) in enumerate(looks.items()):
        own = trials[trials["server"] == server]
        cells = [(c, own[own["connections"] == c]) for c in counts]
        points = [(c, spread(cell[column]), solid(cell)) for c, cell in cells]
        points = [(c, of, full) for c, of, full in points if of.n]
        if not points:
            continue
        # A few per cent beside each other, so that the error bars of equal servers do not cover one another; a single
        # number of connections leaves room for more.
        nudge = (1.045 if len(counts) > 1 else 1.22) ** (index - (len(looks) - 1) / 2)
        _draw_server(ax, server, look, [(c * nudge, of, full) for c, of, full in points])
        last, of, _ = points[-1]
        ends.append((server, look, last * nudge, of.median))
        top = max(top, *(of.high for _, of, _ in points))
    ax.set_xscale("log")
    spare = 1.5 if len(counts) > 1 else 3.0
    ax.set_xlim(counts[0] / spare, counts[-1] * (1.35 if len(counts) > 1 else spare))
    ax.set_xticks(counts, [f"{count:,}" for count in counts])
    ax.minorticks_off()
    ax.set_ylim(0, top * 1.07 or 1)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ax.set_xlabel("connections (log scale)")
    style.label_ends(ax, ends)


def _draw_server(ax: Axes, server: str, look: Identity, points: list[tuple[float, Spread, bool]]) -> None:
    faint = pale(look.color)
    for (x0, a, full0), (x1, b, full1) in pairwise(points):
        sure = full0 and full1
        ax.plot(
            [x0, x1], [a.median, b.median], color=look.color if sure else faint, lw=1.8 if sure else 1.3, label="",
            ls="-" if sure else (0, (4, 2)), zorder=2,
        )  # fmt: skip
    for x, of, full in points:
        color = look.color if full else faint
        bars = np.array([[of.median - of.low], [of.high - of.median]])
        ax.errorbar(
            [x], [of.median], yerr=bars, color=color, capsize=3, lw=1.3, marker=look.marker, ms=6.5, label=server,
            markerfacecolor=color if full else "white", zorder=3,
        )  # fmt: skip
