"""Closed loops with a database: a quantity by the size of the servers' pool of connections."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from runner.present.chart import (
    Axis,
    Chart,
    Extreme,
    Facet,
    FacetSizes,
    ServerLoad,
    bars,
    cells,
    chart,
    empty,
    median_points,
    tidy,
)
from runner.present.figures.ramp import TABLE, has_database
from runner.present.frames import Tables, limit_words, server_bound
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.statistics.stats import carried_quantile

SIZES = Axis("pool size (evenly spaced)", "the size of the server's pool of connections", even=True)


@chart("inserts-by-pool-size", notebook="postgres", needs=has_database, table=TABLE)
def rate(tables: Tables) -> Chart:
    """Return requests/s by pool size; hollow and pale where the server was not the limit in every trial."""
    y = Axis("inserts/s", "inserts per second", "/s")
    key = "Filled: the server was the limit in every trial, so rates compare. Hollow, pale: it was not; do not rank."
    hollow = "Hollow points do not rank: the server was not the limit in every trial."
    return _chart(tables, "rps", "Inserts per second by pool size", y, key, Extreme("highest rate"), hollow)


@chart("inserts-latency-by-pool-size", notebook="postgres", needs=has_database)
def p99(tables: Tables) -> Chart:
    """Return the 99th percentile of the latency by pool size."""
    y = Axis("ms (log scale)", "the p99 latency of inserts in ms", " ms", log=True)
    key = "Response times at saturation, which rank nobody. Filled: the server was the limit in every trial."
    hollow = "These are response times at saturation, which rank nobody; hollow: the server was not the limit."
    lowest = Extreme("lowest p99", highest=False, rising=True)
    return _chart(tables, "latency_p99_ms", "Inserts: p99 latency by pool size", y, key, lowest, hollow)


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


def _chart(tables: Tables, column: str, title: str, y: Axis, key: str, extreme: Extreme, hollow: str) -> Chart:
    trials, about = sweeps(tables), f"{y.words} by pool size"
    shown = cells(tables, trials, by="loop")
    if not shown:
        return empty(title, about, captions.unsealed(trials, "closed loop with several pool sizes"))
    frame = tidy([_points(cell, column) for cell in shown])
    if frame.empty:
        return empty(title, about, "No trial has enough requests for a p99.")
    loops = ", ".join(dict.fromkeys(cell.panel for cell in shown))
    words = (
        f"Closed loop ({loops}), zero think time. Bars: minimum to maximum around the median; thin grey: the other "
        "servers."
    )
    return Chart(
        title,
        frame,
        SIZES,
        y,
        identities(tables.trials),
        captions.caption(tables, trials, words),
        key,
        facets=tuple(Facet(c.panel, c.server, (f"limit: {limit_words(c.trials)}",)) for c in shown),
        sizes=FacetSizes(axis_in=0.38),
        mark=bars,
        spare=(1.1, 1.4),
        hollow=hollow,
        noun="loop",
        extreme=extreme,
        about=about,
    )


def _points(cell: ServerLoad, column: str) -> pd.DataFrame:
    """Return a point for each pool size; p99 only where the number of requests carries one."""
    enough = cell.trials["requests"].map(lambda count: carried_quantile(count) >= 0.99).astype(bool)
    carried = replace(cell, trials=cell.trials.assign(latency_p99_ms=cell.trials["latency_p99_ms"].where(enough)))
    return median_points(carried, column, "pool_size", server_bound)
