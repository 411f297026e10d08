"""Rising arrival rates: a quantity over time, a panel for each server; and inserts by the size of the pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from runner.present.chart import Axis, Chart, Facet, Fact, ServerLoad, cells, chart, empty, extreme, points, tidy
from runner.present.chart.drawing import bars, facets
from runner.present.chart.value import median_points
from runner.present.figures import seconds
from runner.present.figures.seconds import kept_rps, offered_steps
from runner.present.frames import Tables, limit_words, sealed_trials, server_bound
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.statistics.stats import Floats, carried_quantile, spread

BAND = "Line: median of the trials; band: minimum to maximum; thin grey: the other servers."
ACROSS = "Across: seconds since the load began and, below them, the requests/s offered from then on."
TABLE = "The answer"
SECONDS = Axis("seconds; requests/s offered", "seconds since the load began", " s")
SIZES = Axis("pool size (evenly spaced)", "the size of the server's pool of connections", even=True)
Values = Callable[[pd.DataFrame, Tables], pd.DataFrame]  # trials and tables -> points, as of `seconds`


class Bound(NamedTuple):
    """A dashed line: what it is, and for a server and load its times and values."""

    name: str
    line: Callable[[ServerLoad], tuple[Floats, Floats]]


def has_database(tables: Tables) -> bool:
    """Return whether a run has a database behind its servers."""
    return tables.has_database


def has_ramp(tables: Tables) -> bool:
    """Return whether a run has a ramp of arrival rates without a database."""
    return not tables.ramps(database=False).empty


def _answered(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    """Return the answers per second beside the rate that was offered."""

    def kept(cell: ServerLoad) -> str:
        found = spread(kept_rps(cell.trials, tables.throughput))
        return f"kept to {found.median:,.0f}/s" if found.median else "never kept"

    def offered(cell: ServerLoad) -> tuple[Floats, Floats]:
        edges, rates = offered_steps(cell.trials)
        return np.repeat(edges, 2)[1:-1], np.repeat(rates, 2)

    words = "Answers with 2xx. Kept: the highest step up to which each was answered at the offered rate (median)."
    y = Axis("answers/s", f"{what} answered per second", "/s")
    bound = Bound("the rate offered", offered)
    return _ramp(tables, title, y, seconds.answered, words=words, database=database, bound=bound, note=kept)


def _p90(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    """Return each second's 90th percentile of the latency."""
    fewest = seconds.FEWEST_BEYOND * 10
    words = f"p90 of the requests of each second; a second with fewer than {fewest} requests has none."
    y = Axis("ms (log scale)", f"the p90 latency of {what} in ms", " ms", log=True)
    return _ramp(tables, title, y, seconds.latency(0.9), "1 s", words, database=database)


def _cpu(tables: Tables, title: str, subject: str, *, database: bool) -> Chart:
    """Return the CPU of the servers, or of all PostgreSQL processes, with the CPUs that they have."""
    name = "the server" if subject == "server" else "PostgreSQL"
    cpus = len((tables.manifest.get("placement") or {}).get(subject) or ())
    words = captions.database_place(tables.manifest) if subject == "database" else ""
    y = Axis("CPU, %", f"CPU of {name} in % of a core", " %")
    key = f"Dashed: the CPUs that {name} may use; 100 % is one core busy."
    bound = Bound(f"what {name} may use, {100 * cpus} %", lambda cell: _level(cell, 100.0 * cpus)) if cpus else None
    return _ramp(tables, title, y, seconds.cpu(subject), words=words, database=database, key=key, bound=bound)


def _memory(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    """Return the servers' resident memory."""
    words = "Resident memory of the server's processes, not PostgreSQL's; mean of each second's samples."
    return _ramp(tables, title, Axis("MiB", what, " MiB"), seconds.memory, "1 s", words, database=database)


def _pool(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    """Return how many connections of each server's pool are in use, with the pool's size."""

    def waited(cell: ServerLoad) -> str:
        most = cell.trials["pool_waiting_max"].max()
        return f"up to {most:,.0f} waited" if most > 0 else ""

    words = "As the servers themselves say, asked about five times a second; mean of each second's answers."
    y = Axis("connections", what)
    bound = Bound("the pool's size", lambda cell: _level(cell, cell.trials["pool_size"].iloc[0]))
    return _ramp(tables, title, y, seconds.pool, "1 s", words, database=database, note=waited, bound=bound)


def _rows(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    """Return the inserts answered so far; the caption says how many rows the database has in the end."""

    def rows(cell: ServerLoad) -> str:
        found = spread(cell.trials["rows_inserted"])
        return f"{found.median:,.0f} rows" if found.n else ""

    def total(cell: ServerLoad) -> tuple[Floats, Floats]:
        edges, rates = offered_steps(cell.trials)
        return edges, np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])

    in_all = captions.rows_equal_answers(sealed_trials(tables.ramps(database=database)))
    words, bound = f"Inserts: answers with 2xx so far. {in_all}", Bound("what was offered", total)
    y, values = Axis("inserts", what), seconds.inserted
    return _ramp(tables, title, y, values, words=words, database=database, bound=bound, note=rows, said=in_all)


FIGURES = (
    ("inserts-answered", _answered, "Inserts per second over the ramp", "inserts", TABLE),
    ("inserts-latency-p90", _p90, "Inserts: p90 latency over the ramp", "inserts", ""),
    ("inserts-server-cpu", _cpu, "Inserts: CPU of the server", "server", TABLE),
    ("inserts-server-memory", _memory, "Inserts: memory of the server", "the server's resident memory in MiB", ""),
    ("inserts-pool-in-use", _pool, "Connections of the pool in use", "connections of the server's pool in use", ""),
    ("inserts-database-cpu", _cpu, "CPU of PostgreSQL", "database", TABLE),
    ("inserts-rows", _rows, "Rows inserted", "inserts answered so far", TABLE),
    ("static-answered", _answered, "Without a database: requests per second", "requests", ""),
    ("static-latency-p90", _p90, "Without a database: p90 latency", "requests without a database", ""),
    ("static-server-cpu", _cpu, "Without a database: CPU of the server", "server", ""),
)
"""Name, function, title, what it is about and the heading of a table; those called `static-` are without a database."""


def _register(name: str, make: Callable[..., Chart], title: str, what: str, table: str) -> None:
    database = not name.startswith("static-")

    @chart(name, notebook="postgres", needs=has_database if database else has_ramp, table=table)
    def ramp(tables: Tables) -> Chart:
        return make(tables, title, what, database=database)


for figure in FIGURES:
    _register(*figure)


def _level(cell: ServerLoad, value: float) -> tuple[Floats, Floats]:
    edges, _ = offered_steps(cell.trials)
    return edges[[0, -1]], np.array([value, value])


def _ramp(
    tables: Tables, title: str, y: Axis, values: Values, bins: str = "", words: str = "", *, database: bool,
    key: str = "", bound: Bound | None = None, note: Callable[[ServerLoad], str] = lambda _: "", said: str = "",
) -> Chart:  # fmt: skip
    """Return `values` over time, in `bins` (empty: as `seconds.bin_width` says).

    `words` are for the caption, `note` stands above a panel, `said` is a sentence for the description.
    """
    trials = tables.ramps(database=database)
    shown, sealed = cells(tables, trials), sealed_trials(trials)
    if not shown:
        return empty(title, captions.unsealed(trials, "trial with rising rates"))
    found, parts = values(sealed, tables), list[pd.DataFrame]()
    if found.empty:
        return empty(title, "The tables of this run have nothing of it.")
    for cell in shown:
        curve = seconds.median_and_range(found, cell.trials["trial_id"])
        parts.append(points(cell, "median", curve.index, curve["median"], curve["low"], curve["high"]))
        parts += [points(cell, bound.name, *bound.line(cell))] if bound else []
    bins = bins or f"{seconds.bin_width(sealed):g} s"
    dashed = bound.name if bound else ""
    key = key or (f"Dashed: {dashed}." if dashed else "")
    statistic = "median of the trials while the rate offered rises in steps" + (f"; dashed: {dashed}" if dashed else "")
    return Chart(
        title,
        tidy(parts),
        SECONDS,
        y,
        identities(tables.trials),
        captions.caption(tables, trials, f"{words} {BAND} Bins of {bins}.".strip()),
        f"{key} {ACROSS}".strip(),
        facets=tuple(_facet(cell, note(cell)) for cell in shown),
        dashed=dashed,
        statistic=f"{statistic}. {said}" if said else statistic,
        facts=(extreme(SECONDS, y, rising=y.log),),
    )


def _facet(cell: ServerLoad, note: str) -> Facet:
    """Return the panel of a cell, with the second and the rate offered from then on at the starts of its steps."""
    edges, rates = offered_steps(cell.trials)
    ticks = {float(at): f"{at:.10g} s\n{rate:,.10g}/s" for at, rate in zip(edges, rates, strict=False)}
    end = max(float(edges[-1]), float(cell.trials["duration_s"].max())) * 1.02
    limit = f"limit: {limit_words(cell.trials)}"
    return Facet(cell.panel, cell.server, (f"{limit}; {note}" if note else limit,), ticks, (0, end))


@chart("inserts-by-pool-size", notebook="postgres", needs=has_database, table=TABLE)
def inserts_by_pool_size(tables: Tables) -> Chart:
    """Return requests/s by pool size; hollow and pale where the server was not the limit in every trial."""
    y = Axis("inserts/s", "inserts per second", "/s")
    key = "Filled: the server was the limit in every trial, so rates compare. Hollow, pale: it was not; do not rank."
    pale = "Pale points do not rank: the server was not the limit in every trial."
    fact = extreme(SIZES, y, "highest rate")
    return _by_pool_size(tables, "rps", "Inserts per second by pool size", y, key, fact, pale)


@chart("inserts-latency-by-pool-size", notebook="postgres", needs=has_database)
def p99_by_pool_size(tables: Tables) -> Chart:
    """Return the 99th percentile of the latency by pool size."""
    y = Axis("ms (log scale)", "the p99 latency of inserts in ms", " ms", log=True)
    key = "Response times at saturation, which rank nobody. Filled: the server was the limit in every trial."
    pale = "These are response times at saturation, which rank nobody; pale: the server was not the limit."
    fact = extreme(SIZES, y, "lowest p99", lowest=True)
    return _by_pool_size(tables, "latency_p99_ms", "Inserts: p99 latency by pool size", y, key, fact, pale)


def pool_sweeps(tables: Tables) -> pd.DataFrame:
    """Return the closed-loop trials of loads that ran with several pool sizes; `loop` is a load but for that size."""
    trials = tables.pools()
    trials = trials.assign(loop=trials["load"].str.replace(r", pool of \d+\b", "", regex=True))
    several = trials.groupby("loop")["pool_size"].transform("nunique") > 1
    return trials[several]


def _by_pool_size(tables: Tables, column: str, title: str, y: Axis, key: str, fact: Fact, pale: str) -> Chart:
    trials = pool_sweeps(tables)
    enough = trials["requests"].map(carried_quantile) >= 0.99
    trials = trials.assign(latency_p99_ms=trials["latency_p99_ms"].where(enough))
    shown = cells(tables, trials, by="loop")
    if not shown:
        return empty(title, captions.unsealed(trials, "sweep of pool size"))
    loops = ", ".join(dict.fromkeys(cell.panel for cell in shown))
    words = (
        f"Closed loop ({loops}), zero think time. Bars: minimum to maximum around the median; thin grey: the other "
        "servers."
    )
    return Chart(
        title,
        tidy(median_points(cell, column, "pool_size", server_bound) for cell in shown),
        SIZES,
        y,
        identities(tables.trials),
        captions.caption(tables, trials, words),
        key,
        facets=tuple(Facet(c.panel, c.server, (f"limit: {limit_words(c.trials)}",)) for c in shown),
        pale=pale,
        noun="loop",
        facts=(fact,),
        nothing="No trial has enough requests for a p99.",
        draw=partial(facets, mark=bars),
    )
