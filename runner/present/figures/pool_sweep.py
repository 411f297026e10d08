"""Figures of closed loops with a database: a quantity by the size of the servers' pool of connections."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.figures import multiples
from runner.present.figures.multiples import Panel
from runner.present.frames import Tables, server_bound
from runner.present.look import captions, scales, style
from runner.present.look.palette import pale
from runner.present.statistics.stats import Spread, carried_quantile, spread

Points = list[tuple[float, Spread, bool]]
"""Pool size, the trials' values, and whether the server was the limit in each of them."""


@style.styled
def rate(tables: Tables) -> Figure:
    """Draw requests/s by pool size; hollow and pale where the server was not the limit in every trial."""
    key = "Filled: the server was the limit in every trial, so rates compare. Hollow, pale: it was not; do not rank."
    return _draw(tables, "Inserts per second by pool size", "rps", "inserts/s", key, log=False)


@style.styled
def p99(tables: Tables) -> Figure:
    """Draw the 99th percentile of the latency by pool size."""
    key = "Response times at saturation, which rank nobody. Filled: the server was the limit in every trial."
    return _draw(tables, "Inserts: p99 latency by pool size", "latency_p99_ms", "ms (log scale)", key, log=True)


def sweeps(tables: Tables) -> pd.DataFrame:
    """Return the closed-loop trials of loads that were run with several pool sizes, with the column `loop`.

    A loop is a load but for its pool size.
    """
    trials = tables.pools()
    words = [
        load.removesuffix(f", pool of {size:.0f}")
        for load, size in zip(trials["load"], trials["pool_size"], strict=True)
    ]
    trials = trials.assign(loop=words)
    several = trials.groupby("loop")["pool_size"].transform("nunique") > 1
    return trials[several]


def _draw(tables: Tables, title: str, column: str, label: str, key: str, *, log: bool) -> Figure:
    trials = sweeps(tables)
    shown = multiples.panels(tables, trials, by="loop")
    if not shown:
        reason = captions.unsealed(trials, "closed loop with several pool sizes")
        return style.no_data(title, reason)
    loops = ", ".join(dict.fromkeys(panel.load for panel in shown))
    words = (
        f"Closed loop ({loops}), zero think time. Bars: minimum to maximum around the median; thin grey: the other "
        "servers."
    )
    curves = [_points(carried(panel.trials), column) for panel in shown]
    if not any(curves):
        return style.no_data(title, "No trial has enough requests for a p99.")
    figure, axes = multiples.sheet(
        title,
        captions.caption(tables, trials, words),
        key,
        shown,
        left_in=0.95,
        axis_in=0.38,
    )
    known = [of for points in curves for _, of, _ in points]
    low, high = min(of.low for of in known), max(of.high for of in known)
    for ax, panel, points in zip(axes, shown, curves, strict=True):
        behind = [other for each, other in zip(shown, curves, strict=True) if each.load == panel.load]
        _draw_panel(ax, panel, points, [other for other in behind if other is not points])
        if log:
            ax.set_yscale("log")
            ax.set_ylim(low / 1.4, high * 1.4)
            scales.log_axis(ax, "y")
        else:
            ax.set_ylim(0, high * 1.1)
            scales.even_axis(ax, "y")
        ax.set_ylabel(label)
    for ax in multiples.lowest(axes):
        ax.set_xlabel("pool size (evenly spaced)")
    return figure


def carried(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with p99 latencies only where the number of requests carries one."""
    enough = trials["requests"].map(lambda count: carried_quantile(count) >= 0.99)
    return trials.assign(latency_p99_ms=trials["latency_p99_ms"].where(enough.astype(bool)))


def _points(trials: pd.DataFrame, column: str) -> Points:
    found = [(float(str(size)), spread(own[column]), server_bound(own)) for size, own in trials.groupby("pool_size")]
    return [(size, of, bound) for size, of, bound in found if of.n]


def _draw_panel(ax: Axes, panel: Panel, points: Points, behind: Sequence[Points]) -> None:
    sizes = sorted({size for curve in [points, *behind] for size, _, _ in curve})
    place = {size: number for number, size in enumerate(sizes)}
    for other in behind:
        places = [place[size] for size, _, _ in other]
        ax.plot(places, [of.median for _, of, _ in other], color=style.BEHIND, lw=0.9, label="_other", zorder=1)
    faint = pale(panel.look.color)
    for (x0, a, full0), (x1, b, full1) in pairwise(points):
        color = panel.look.color if full0 and full1 else faint
        ax.plot([place[x0], place[x1]], [a.median, b.median], color=color, lw=1.6, label="_line", zorder=2)
    for size, of, full in points:
        color = panel.look.color if full else faint
        ax.errorbar(
            [place[size]], [of.median], yerr=[[of.median - of.low], [of.high - of.median]], color=color, capsize=3,
            lw=1.3, marker=panel.look.marker, ms=6, label=panel.server, zorder=3,
            markerfacecolor=color if full else "white",
        )  # fmt: skip
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_xticks(range(len(sizes)), [f"{size:,.0f}" for size in sizes])
