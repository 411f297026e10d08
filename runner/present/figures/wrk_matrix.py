"""Figures of the wrk matrix: a quantity against the number of connections, keep-alive and close."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart import Axis, Cell, Chart, Extreme, Shared, cells, chart, empty, points
from runner.present.chart.courses import clauses, hollow
from runner.present.chart.describing import courses_of
from runner.present.chart.sentences import Form, fit, scope
from runner.present.frames import MODES, Tables, server_bound
from runner.present.look import captions, scales
from runner.present.look.palette import Identity, identities, pale
from runner.present.statistics.stats import spread

DASHED: Any = (0, (4, 2))
FEWEST = 3
"""Numbers of connections that make a curve; fewer are rows beside each other."""


@chart("wrk-requests", notebook="report", table=captions.BY_LOAD)
def requests(tables: Tables) -> Chart:
    """Return requests/s by connections; points that were not server-bound are hollow and pale."""
    return _matrix(
        tables,
        "wrk: requests per second by connections",
        "rps",
        Axis("requests/s", "requests per second", "/s"),
        "Filled: the server was the limit in every repeat, so rates compare. Hollow, pale: it was not; do not rank.",
        Extreme("highest rate"),
        server_bound,
        "Hollow points do not rank: the server was not the limit in every trial.",
    )


@chart("wrk-cpu-per-request", notebook="report", table=captions.BY_LOAD)
def cpu_per_request(tables: Tables) -> Chart:
    """Return the server's CPU milliseconds per request by connections."""
    return _matrix(
        tables,
        "wrk: CPU per request by connections",
        "server_cpu_ms_per_request",
        Axis("CPU ms per request", "CPU ms per request", " ms"),
        "CPU time per request has no window and compares whatever was the limit.",
        Extreme("lowest cost", highest=False, rising=True),
        lambda _: True,
    )


def _matrix(
    tables: Tables,
    title: str,
    column: str,
    y: Axis,
    words: str,
    extreme: Extreme,
    solid: Callable[[pd.DataFrame], bool],
    hollow_words: str = "",
) -> Chart:
    trials = tables.sealed("wrk")
    trials = trials[trials["connections"].notna() & trials["mode"].isin(MODES)]
    if trials.empty:
        return empty(title, f"{y.words} by connections", captions.nothing(tables, "wrk"))
    named = with_panels(trials)
    return Chart(
        title,
        pd.concat([_curve(cell, column, solid) for cell in cells(tables, named, "panel")], ignore_index=True),
        Axis("connections (log scale)", "connections", log=True),
        y,
        identities(tables.trials),
        captions.caption(tables, tables.of("wrk"), f"{words} Bars: minimum to maximum around the median."),
        headings={panel: (panel, "") for panel in dict.fromkeys(named["panel"])},
        # A few per cent apart in one panel, so that the error bars of equal servers do not cover one another.
        shared=Shared(panel_in=2.5, left_in=1.12, nudge=1.045, fewest=FEWEST),
        mark=_draw,
        finish=_finish,
        hollow=hollow_words,
        noun="mode",
        extreme=extreme,
        describe=_describe,
    )


def with_panels(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials in the order of their panels, with the column `panel`: mode, share of a core and the like."""
    several = trials["workload"].nunique() > 1
    found = []
    for workload in dict.fromkeys(trials["workload"]):
        for mode, name in MODES.items():
            chosen = trials[(trials["workload"] == workload) & (trials["mode"] == mode)]
            for terms in dict.fromkeys(chosen["terms"]):
                heading = f"{workload}, {name}" if several else name.capitalize()
                own = chosen[chosen["terms"] == terms]
                found.append(own.assign(panel=", ".join(filter(None, [heading, terms]))))
    panels: pd.DataFrame = pd.concat(found)
    return panels


def _curve(cell: Cell, column: str, solid: Callable[[pd.DataFrame], bool]) -> pd.DataFrame:
    rows = [(count, spread(own[column]), solid(own)) for count, own in cell.trials.groupby("connections")]
    known = [(float(str(count)), found.median, found.low, found.high, full) for count, found, full in rows if found.n]
    x, y, low, high, full = (np.array([point[place] for point in known]) for place in range(5))
    return points(cell, "median", x, y, low, high, full)


def _draw(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    faint = pale(look.color)
    known = rows.dropna(subset="y")[["x", "y", "low", "high", "solid"]]
    found: list[tuple[Any, ...]] = list(known.itertuples(index=False, name=None))
    for (x0, y0, *_, full0), (x1, y1, *_, full1) in pairwise(found):
        sure = full0 and full1
        ax.plot(
            [x0, x1], [y0, y1], color=look.color if sure else faint, lw=1.8 if sure else 1.3, label="",
            ls="-" if sure else DASHED, zorder=2,
        )  # fmt: skip
    for x, y, low, high, full in found:
        color = look.color if full else faint
        ax.errorbar(
            [x], [y], yerr=[[y - low], [high - y]], color=color, capsize=3, lw=1.3, marker=look.marker, ms=6.5,
            label=label, markerfacecolor=color if full else "white", zorder=3,
        )  # fmt: skip


def _finish(ax: Axes, chart: Chart, panel: str) -> None:
    own = chart.frame[(chart.frame["panel"] == panel) & chart.frame["y"].notna()]
    counts = sorted(own["x"].unique())
    spare = 1.5 if own["server"].nunique() <= chart.shared.few else 1.8  # labels of neighbouring panels keep apart
    ax.set_xscale("log")
    ax.set_xlim(counts[0] / spare, counts[-1] * spare)
    ax.set_ylim(0, own["high"].max() * 1.07 or 1)
    scales.ticks_across(ax, counts)
    scales.even_axis(ax, "y")


def _describe(chart: Chart) -> str:
    """Describe where each server is fastest or cheapest, and which rates do not rank."""
    forms: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])
    for panel in chart.panels:
        courses = courses_of(chart, panel)
        long, extremes, ends = clauses(courses, chart.extreme, Axis(""), chart.y)
        exactly, counted = (f"; {words}" if chart.hollow else "" for words in hollow(courses, lambda x: f"{x:,.0f}"))
        # A panel of one of several workloads begins with its name.
        modes = tuple(mode.capitalize() for mode in MODES.values())
        name = panel[0].lower() + panel[1:] if panel.startswith(modes) else panel
        sentences = (long + exactly, extremes + exactly, extremes + counted, ends + counted)
        for parts, clause in zip(forms, sentences, strict=True):
            parts.append(f"With {name} {clause}.")
    across = f"{chart.y.words} (up) by number of connections (across, logarithmic)"
    rows = f"{chart.y.words} (across), a row a server, by number of connections"
    most = chart.frame.groupby("panel")["x"].nunique().max()
    sentence = (
        f"{f'Line chart of {across}' if most >= FEWEST else f'Dot plot of {rows}'}, "
        f"{scope(chart.frame['server'], len(chart.panels), chart.noun)}: {chart.statistic}. {chart.hollow}".rstrip()
    )
    return fit(sentence, [Form(parts, "panel") for parts in forms])
