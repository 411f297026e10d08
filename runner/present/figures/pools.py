"""Make the figures that show inserts per second and response times by size of the server's pool."""

from functools import partial

import pandas as pd

from runner.present.chart.drawing import bars, facets
from runner.present.chart.value import (
    MEAN_AND_BAR,
    Axis,
    Chart,
    Facet,
    Fact,
    cells,
    chart,
    extreme,
    mean_points,
    of_trials,
    tidy,
)
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.comparison.ratios import not_compared
from runner.present.frames import Tables, limit_words
from runner.present.statistics.stats import carried_quantile

TABLE = "The answer"
SIZES = Axis("pool size (evenly spaced)", "the size of the server's pool of connections", even=True)


@chart("inserts-by-pool-size", notebook="postgres", needs=Tables.has_database, table=TABLE)
def inserts_by_pool_size(tables: Tables) -> Chart:
    """Return the chart of requests/s by pool size.

    A point is hollow and pale if, in at least one trial, the server was not the limit.
    """
    y = Axis("inserts/s", "inserts per second", "/s")
    key = (
        "Filled: the server was the limit in every trial, so its rates can be ranked. Hollow, "
        "pale: it was not."
    )
    pale = "Pale points must not be ranked: in at least one trial, the server was not the limit."
    fact = extreme(SIZES, y, "highest rate")
    return _by_pool_size(
        tables, "served_rps", "Inserts per second by pool size", y, key, fact, pale
    )


@chart("inserts-latency-by-pool-size", notebook="postgres", needs=Tables.has_database)
def p99_by_pool_size(tables: Tables) -> Chart:
    """Return the chart of the p99 of response times by pool size."""
    y = Axis("ms (log scale)", "the p99 latency of inserts in ms", " ms", log=True)
    key = (
        "Response times at saturation, which rank no server. Filled: the server was the limit in "
        "every trial."
    )
    pale = "These response times at saturation rank no server; pale: the server was not the limit."
    fact = extreme(SIZES, y, "lowest p99", lowest=True)
    return _by_pool_size(
        tables, "latency_p99_ms", "Inserts: p99 latency by pool size", y, key, fact, pale
    )


def pool_sweeps(tables: Tables) -> pd.DataFrame:
    """Return the closed-loop trials of loads that ran with several pool sizes.

    The additional column `loop` is the name of the load without the pool size.
    """
    trials = tables.pools()
    trials = trials.assign(loop=trials["load_without_pool"])
    return trials[trials.groupby("loop")["pool_size"].transform("nunique") > 1]


def _by_pool_size(
    tables: Tables, column: str, title: str, y: Axis, key: str, fact: Fact, pale: str
) -> Chart:
    trials = pool_sweeps(tables)
    trials = trials[~not_compared(tables).loc[trials.index]]
    enough = trials["requests"].map(carried_quantile) >= 0.99
    trials = trials.assign(latency_p99_ms=trials["latency_p99_ms"].where(enough))
    shown = cells(tables, trials, by="loop")
    return of_trials(
        tables,
        trials,
        title,
        tidy(mean_points(cell, column, "pool_size", ranks_by_throughput) for cell in shown),
        SIZES,
        y,
        MEAN_AND_BAR,
        "sweep of pool size",
        key=f"{key} Thin grey: the other servers.",
        facets=tuple(Facet(c.panel, c.server, (f"limit: {limit_words(c.trials)}",)) for c in shown),
        pale=pale,
        noun="loop",
        facts=(fact,),
        nothing="No trial has enough requests for a p99.",
        draw=partial(facets, mark=bars),
    )
