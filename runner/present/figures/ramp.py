"""Figures of rising arrival rates over time, a panel per server; and of inserts by pool size."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from runner.model import setting_text
from runner.present.chart.drawing import bars, facets
from runner.present.chart.value import (
    MEAN_AND_BAR,
    Axis,
    Chart,
    Facet,
    Fact,
    ServerLoad,
    cells,
    chart,
    extreme,
    mean_points,
    of_trials,
    points,
    tidy,
)
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.comparison.ratios import not_compared
from runner.present.figures import seconds
from runner.present.figures.seconds import OfferedSteps
from runner.present.frames import Tables, given_pct, limit_words, sealed_trials
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.statistics.inference import mean_of
from runner.present.statistics.stats import Floats, carried_quantile, spread

BAND = "Line: median of the trials; band: minimum to maximum; thin grey: the other servers."
ACROSS = (
    "Across: seconds since the load began and, below them, the requests/s offered from then on."
)
TABLE = "The answer"
IN_TABLE = ("inserts-answered", "inserts-server-cpu", "inserts-database-cpu", "inserts-rows")
SECONDS = Axis("seconds; requests/s offered", "seconds since the load began", " s")
SIZES = Axis("pool size (evenly spaced)", "the size of the server's pool of connections", even=True)
Bound = Callable[[ServerLoad, Tables, OfferedSteps], tuple[Floats, ArrayLike]]


def _ramp(
    name: str,
    title: str,
    y: Axis,
    values: Callable[[pd.DataFrame, Tables], pd.DataFrame],
    words: str = "",
    bins: str = "",
    *,
    said: Callable[[Tables], str] = lambda _: "",
    described: bool = False,
    note: Callable[[ServerLoad, Tables], str] = lambda *_: "",
    dashed: str = "",
    bound: Bound | None = None,
    key: str = "",
    database: bool = True,
) -> None:
    """Register the figure of `values` over time, computed as in `seconds`.

    It shows loads with a `database`, or those without. Bins have the width `bins` (default:
    `seconds.bin_width`). `words` and `said` are for the caption; texts that are `described` are
    also in the description. `note` is printed above a panel. `bound` returns times and values of
    the dashed line named `dashed`, from the cell, the tables, and the steps offered;
    `key` explains it further.
    """

    def make(tables: Tables) -> Chart:
        trials = tables.ramps(database=database)
        shown = cells(tables, trials)
        sealed = sealed_trials(trials)
        parts = list[pd.DataFrame]()
        found = values(sealed, tables)
        about = said(tables)
        for cell in shown if len(found) else ():
            chosen = found[found["trial_id"].isin(cell.trials["trial_id"])]
            by_time = chosen.groupby(chosen["t_s"].round(3))["value"]
            # NaN interrupts the line if fewer than half of the trials have a point.
            curve = by_time.agg(["median", "min", "max"]).where(
                2 * by_time.count() >= chosen["trial_id"].nunique()
            )
            parts.append(
                points(cell, "median", curve.index, curve["median"], curve["min"], curve["max"])
            )
            parts += (
                [points(cell, dashed, *bound(cell, tables, seconds.offered_steps(cell.trials)))]
                if bound
                else []
            )
        frame = tidy(parts)
        width = bins or f"{seconds.bin_width(sealed):g} s"
        statistic = "median of the trials while the rate offered rises in steps"
        if dashed:
            statistic += (
                f"; dashed: {dashed}, up to "
                f"{number(frame.loc[frame['series'] == dashed, 'y'].max())}{y.unit}"
            )
        return of_trials(
            tables,
            trials,
            title,
            frame,
            SECONDS,
            y,
            " ".join(filter(None, [words, about, BAND, f"Bins of {width}."])),
            "trial with rising rates",
            key=f"Dashed: {dashed}{key}. {ACROSS}" if dashed else ACROSS,
            facets=tuple(_facet(cell, note(cell, tables)) for cell in shown),
            dashed=dashed,
            statistic=f"{statistic}. {about if described else ''}".strip(),
            facts=(extreme(SECONDS, y, rising=y.log),),
            nothing="The tables of this run have nothing of it.",
        )

    needs = (
        Tables.has_database if database else lambda tables: not tables.ramps(database=False).empty
    )
    chart(name, notebook="postgres", needs=needs, table=TABLE if name in IN_TABLE else "")(make)


def _facet(cell: ServerLoad, note: str) -> Facet:
    """Return a cell's panel; its ticks are the steps' begins with their offered rates."""
    steps = seconds.offered_steps(cell.trials)
    ticks = {
        float(begin_s): f"{setting_text(begin_s)} s\n{setting_text(rate_rps)}/s"
        for begin_s, rate_rps in zip(steps.edges_s[:-1], steps.rates_rps, strict=True)
    }
    end = max(float(steps.edges_s[-1]), float(cell.trials["duration_s"].max())) * 1.02
    limit = f"limit: {limit_words(cell.trials)}"
    return Facet(cell.panel, cell.server, (f"{limit}; {note}" if note else limit,), ticks, (0, end))


def _answered(name: str, title: str, what: str, *, database: bool = True) -> None:
    """Register the figure of the rate of successes, with the offered rate."""

    def kept(cell: ServerLoad, tables: Tables) -> str:
        found = spread(seconds.kept_rps(cell.trials, tables.throughput))
        return f"kept to {found.median:,.0f}/s" if found.median else "never kept"

    def offered(_: ServerLoad, __: Tables, steps: OfferedSteps) -> tuple[Floats, Floats]:
        return np.repeat(steps.edges_s, 2)[1:-1], np.repeat(steps.rates_rps, 2)

    words = (
        "Answers with 2xx. Kept: the highest step up to which each was answered at the offered "
        "rate (median)."
    )
    y = Axis("answers/s", f"{what} answered per second", "/s")
    _ramp(
        name,
        title,
        y,
        seconds.answered,
        words,
        note=kept,
        dashed="the rate offered",
        bound=offered,
        database=database,
    )


def _p90(name: str, title: str, what: str, *, database: bool = True) -> None:
    """Register the figure of the 90th percentile of the latency per second."""
    fewest = seconds.FEWEST_BEYOND * 10
    words = (
        f"p90 of the requests of each second; a second with fewer than {fewest} requests has none."
    )
    y = Axis("ms (log scale)", f"the p90 latency of {what} in ms", " ms", log=True)
    p90 = partial(seconds.latency, quantile=0.9)
    _ramp(name, title, y, p90, words, "1 s", database=database)


def _cpu(
    name: str,
    title: str,
    subject: str,
    said: Callable[[Tables], str] = lambda _: "",
    *,
    database: bool = True,
) -> None:
    """Register the figure of the CPU of the servers, or of PostgreSQL, with its allowance."""
    who = "the server" if subject == "server" else "PostgreSQL"
    _ramp(
        name,
        title,
        Axis("CPU, %", f"CPU of {who} in % of a core", " %"),
        partial(seconds.cpu, subject=subject),
        said=said,
        dashed=f"the CPUs that {who} may use",
        key="; 100 % is one core busy",
        bound=lambda cell, tables, steps: (
            steps.edges_s[[0, -1]],
            given_pct(tables, cell.trials, subject).iloc[0],
        ),
        database=database,
    )


def _waited(cell: ServerLoad, _: Tables) -> str:
    most = cell.trials["pool_waiting_max"].max()
    return f"up to {most:,.0f} waited" if most > 0 else ""


def _rows(cell: ServerLoad, _: Tables) -> str:
    found = mean_of(cell.trials["rows_inserted"])
    return f"{found.value:,.0f} rows" if found.trials else ""


_answered("inserts-answered", "Inserts per second over the ramp", "inserts")
_p90("inserts-latency-p90", "Inserts: p90 latency over the ramp", "inserts")
_cpu("inserts-server-cpu", "Inserts: CPU of the server", "server")
_ramp(
    "inserts-server-memory",
    "Inserts: memory of the server",
    Axis("MiB", "the server's resident memory in MiB", " MiB"),
    partial(seconds.sampled, column="rss_bytes", unit=2.0**20),
    "Resident memory of the server's processes, not PostgreSQL's; mean of each second's samples.",
    "1 s",
)
_ramp(
    "inserts-pool-in-use",
    "Connections of the pool in use",
    Axis("connections", "connections of the server's pool in use"),
    partial(seconds.sampled, column="pool_in_use"),
    "As the servers themselves say, asked about five times a second; mean of each second's "
    "answers.",
    "1 s",
    note=_waited,
    dashed="the pool's size",
    bound=lambda cell, _tables, steps: (
        steps.edges_s[[0, -1]],
        cell.trials["pool_size"].iloc[0],
    ),
)
_cpu(
    "inserts-database-cpu",
    "CPU of PostgreSQL",
    "database",
    lambda tables: captions.database_place(tables.manifest),
)
_ramp(
    "inserts-rows",
    "Rows inserted",
    Axis("inserts", "inserts answered so far"),
    seconds.inserted,
    "Inserts: answers with 2xx so far.",
    note=_rows,
    dashed="what was offered",
    described=True,
    bound=lambda _cell, _tables, steps: (
        steps.edges_s,
        np.concatenate([[0.0], np.cumsum(steps.rates_rps * np.diff(steps.edges_s))]),
    ),
    said=lambda tables: captions.rows_equal_answers(sealed_trials(tables.ramps(database=True))),
)
_answered("static-answered", "Without a database: requests per second", "requests", database=False)
_p90(
    "static-latency-p90",
    "Without a database: p90 latency",
    "requests without a database",
    database=False,
)
_cpu("static-server-cpu", "Without a database: CPU of the server", "server", database=False)


@chart("inserts-by-pool-size", notebook="postgres", needs=Tables.has_database, table=TABLE)
def inserts_by_pool_size(tables: Tables) -> Chart:
    """Return the chart of requests/s by pool size.

    Points are hollow and pale if the server was not the limit in every trial.
    """
    y = Axis("inserts/s", "inserts per second", "/s")
    key = (
        "Filled: the server was the limit in every trial, so rates compare. Hollow, pale: it was "
        "not; do not rank."
    )
    pale = "Pale points do not rank: the server was not the limit in every trial."
    fact = extreme(SIZES, y, "highest rate")
    return _by_pool_size(
        tables, "served_rps", "Inserts per second by pool size", y, key, fact, pale
    )


@chart("inserts-latency-by-pool-size", notebook="postgres", needs=Tables.has_database)
def p99_by_pool_size(tables: Tables) -> Chart:
    """Return the chart of the 99th percentile of the latency by pool size."""
    y = Axis("ms (log scale)", "the p99 latency of inserts in ms", " ms", log=True)
    key = (
        "Response times at saturation, which rank nobody. Filled: the server was the limit in "
        "every trial."
    )
    pale = (
        "These are response times at saturation, which rank nobody; pale: the server was not the "
        "limit."
    )
    fact = extreme(SIZES, y, "lowest p99", lowest=True)
    return _by_pool_size(
        tables, "latency_p99_ms", "Inserts: p99 latency by pool size", y, key, fact, pale
    )


def pool_sweeps(tables: Tables) -> pd.DataFrame:
    """Return the closed-loop trials of loads that ran with several pool sizes.

    The column `loop` names the load without the pool size.
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
    loops = ", ".join(dict.fromkeys(cell.panel for cell in shown))
    words = f"Closed loop ({loops}), zero think time. {MEAN_AND_BAR} Thin grey: the other servers."
    return of_trials(
        tables,
        trials,
        title,
        tidy(mean_points(cell, column, "pool_size", ranks_by_throughput) for cell in shown),
        SIZES,
        y,
        words,
        "sweep of pool size",
        key=key,
        facets=tuple(Facet(c.panel, c.server, (f"limit: {limit_words(c.trials)}",)) for c in shown),
        pale=pale,
        noun="loop",
        facts=(fact,),
        nothing="No trial has enough requests for a p99.",
        draw=partial(facets, mark=bars),
    )
