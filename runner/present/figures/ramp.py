"""Loads whose arrival rate rises in steps: a quantity over time, a panel for each server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.present.chart import Axis, Chart, Extreme, Facet, ServerLoad, by_panel, cells, chart, empty, points, tidy
from runner.present.chart.sentences import listing, names_or_count
from runner.present.figures import seconds
from runner.present.figures.seconds import kept_rps, offered_steps
from runner.present.frames import Tables, limit_words, sealed_trials
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.statistics.stats import Floats, spread

BAND = "Line: median of the trials; band: minimum to maximum; thin grey: the other servers."
ACROSS = "Across: seconds since the load began and, below them, the requests/s offered from then on."
TABLE = "The answer"
SECONDS = Axis("seconds; requests/s offered", "seconds since the load began", " s")
Values = Callable[[pd.DataFrame, Tables], pd.DataFrame]
"""Trials and tables -> points, as of `seconds`."""
NOUNS = {str(limit): limit.noun for limit in Limit}
Bound = Callable[[ServerLoad], tuple[Floats, Floats]]
"""Server and load -> times and values of the dashed line."""


def has_database(tables: Tables) -> bool:
    """Return whether a run has a database behind its servers."""
    return tables.has_database


# --- inserts into a database ------------------------------------------------------------------------------


@chart("inserts-answered", notebook="postgres", needs=has_database, table=TABLE)
def inserts_answered(tables: Tables) -> Chart:
    """Return the inserts answered per second beside the rate that was offered."""
    return _answered(tables, "Inserts per second over the ramp", "inserts", database=True)


@chart("inserts-latency-p90", notebook="postgres", needs=has_database)
def inserts_p90(tables: Tables) -> Chart:
    """Return each second's 90th percentile of the latency of inserts."""
    return _p90(tables, "Inserts: p90 latency over the ramp", "inserts", database=True)


@chart("inserts-server-cpu", notebook="postgres", needs=has_database, table=TABLE)
def inserts_server_cpu(tables: Tables) -> Chart:
    """Return the servers' CPU while they insert."""
    return _cpu(tables, "Inserts: CPU of the server", database=True)


@chart("inserts-server-memory", notebook="postgres", needs=has_database)
def inserts_memory(tables: Tables) -> Chart:
    """Return the servers' resident memory while they insert."""
    words = "Resident memory of the server's processes, not PostgreSQL's; mean of each second's samples."
    y = Axis("MiB", "the server's resident memory in MiB", " MiB")
    return _ramp(tables, "Inserts: memory of the server", y, seconds.memory, "1 s", words, database=True)


@chart("inserts-pool-in-use", notebook="postgres", needs=has_database)
def pool_in_use(tables: Tables) -> Chart:
    """Return how many connections of each server's pool are in use, with the pool's size."""

    def waited(cell: ServerLoad) -> str:
        most = cell.trials["pool_waiting_max"].max()
        return f"up to {most:,.0f} waited" if most > 0 else ""

    return _ramp(
        tables,
        "Connections of the pool in use",
        Axis("connections", "connections of the server's pool in use"),
        seconds.pool,
        "1 s",
        "As the servers themselves say, asked about five times a second; mean of each second's answers.",
        database=True,
        dashed="the pool's size",
        bound=lambda cell: _level(cell, float(cell.trials["pool_size"].iloc[0])),
        note=waited,
        remark=_waited,
    )


@chart("inserts-database-cpu", notebook="postgres", needs=has_database, table=TABLE)
def database_cpu(tables: Tables) -> Chart:
    """Return the CPU of all PostgreSQL processes, with the CPUs that PostgreSQL has."""
    place = captions.database_place(tables.manifest)
    return _cpu(tables, "CPU of PostgreSQL", place, subject="database", name="PostgreSQL", database=True)


@chart("inserts-rows", notebook="postgres", needs=has_database, table=TABLE)
def rows_inserted(tables: Tables) -> Chart:
    """Return the inserts answered so far; the caption says how many rows the database has in the end."""

    def rows(cell: ServerLoad) -> str:
        found = spread(cell.trials["rows_inserted"])
        return f"{found.median:,.0f} rows" if found.n else ""

    def total(cell: ServerLoad) -> tuple[Floats, Floats]:
        edges, rates = offered_steps(cell.trials)
        return edges, np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])

    equal = captions.rows_equal_answers(sealed_trials(tables.ramps(database=True)))
    return _ramp(
        tables,
        "Rows inserted",
        Axis("inserts", "inserts answered so far"),
        seconds.inserted,
        words=f"Inserts: answers with 2xx so far. {equal}",
        database=True,
        dashed="what was offered",
        bound=total,
        note=rows,
        remark=_rows,
    )


# --- without a database -----------------------------------------------------------------------------------


def has_ramp(tables: Tables) -> bool:
    """Return whether a run has a ramp of arrival rates without a database."""
    return not tables.ramps(database=False).empty


@chart("static-answered", notebook="postgres", needs=has_ramp)
def static_answered(tables: Tables) -> Chart:
    """Return the requests answered per second beside the rate that was offered, without a database."""
    return _answered(tables, "Without a database: requests per second", "requests", database=False)


@chart("static-latency-p90", notebook="postgres", needs=has_ramp)
def static_p90(tables: Tables) -> Chart:
    """Return each second's 90th percentile of the latency, without a database."""
    return _p90(tables, "Without a database: p90 latency", "requests without a database", database=False)


@chart("static-server-cpu", notebook="postgres", needs=has_ramp)
def static_server_cpu(tables: Tables) -> Chart:
    """Return the servers' CPU over a ramp without a database."""
    return _cpu(tables, "Without a database: CPU of the server", database=False)


# --- what they share --------------------------------------------------------------------------------------


def _answered(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    def kept(cell: ServerLoad) -> str:
        found = spread(kept_rps(cell.trials, tables.throughput))
        return f"kept to {found.median:,.0f}/s" if found.median else "never kept"

    return _ramp(
        tables,
        title,
        Axis("answers/s", f"{what} answered per second", "/s"),
        seconds.answered,
        words="Answers with 2xx. Kept: the highest step up to which each was answered at the offered rate (median).",
        database=database,
        dashed="the rate offered",
        bound=_offered,
        note=kept,
        remark=lambda own: _kept(own, tables),
    )


def _p90(tables: Tables, title: str, what: str, *, database: bool) -> Chart:
    fewest = seconds.FEWEST_BEYOND * 10
    words = f"p90 of the requests of each second; a second with fewer than {fewest} requests has none."
    y = Axis("ms (log scale)", f"the p90 latency of {what} in ms", " ms", log=True)
    return _ramp(tables, title, y, seconds.latency(0.9), "1 s", words, database=database)


def _cpu(
    tables: Tables, title: str, words: str = "", *, subject: str = "server", name: str = "the server", database: bool
) -> Chart:
    cpus = len((tables.manifest.get("placement") or {}).get(subject) or ())
    return _ramp(
        tables,
        title,
        Axis("CPU, %", f"CPU of {name} in % of a core", " %"),
        seconds.cpu(subject),
        words=words,
        database=database,
        dashed=f"what {name} may use, {100 * cpus} %" if cpus else "",
        key=f"Dashed: the CPUs that {name} may use; 100 % is one core busy.",
        bound=(lambda cell: _level(cell, 100.0 * cpus)) if cpus else None,
    )


def _offered(cell: ServerLoad) -> tuple[Floats, Floats]:
    edges, rates = offered_steps(cell.trials)
    return np.repeat(edges, 2)[1:-1], np.repeat(rates, 2)


def _level(cell: ServerLoad, value: float) -> tuple[Floats, Floats]:
    edges, _ = offered_steps(cell.trials)
    return edges[[0, -1]], np.array([value, value])


def _ramp(
    tables: Tables, title: str, y: Axis, values: Values, bins: str = "", words: str = "", *, database: bool,
    dashed: str = "", key: str = "", bound: Bound | None = None, note: Callable[[ServerLoad], str] = lambda _: "",
    remark: Callable[[Sequence[ServerLoad]], str] = lambda _: "",
) -> Chart:  # fmt: skip
    """Return `values` over time, in `bins` (empty: as `seconds.bin_width` says), with `bound` as a dashed line.

    `words` are for the caption, `note` stands above a panel, `remark` is what the description says of a load besides.
    """
    trials, about = tables.ramps(database=database), f"{y.words} over a ramp of arrival rates"
    shown, sealed = cells(tables, trials), sealed_trials(trials)
    if not shown:
        return empty(title, about, captions.unsealed(trials, "trial with rising rates"))
    found = values(sealed, tables)
    if found.empty:
        return empty(title, about, "The tables of this run have nothing of it.")
    parts = []
    for cell in shown:
        curve = seconds.median_and_range(found, cell.trials["trial_id"])
        parts.append(points(cell, "median", curve.index, curve["median"], curve["low"], curve["high"]))
        parts += [points(cell, dashed, *bound(cell))] if bound else []
    bins = bins or f"{seconds.bin_width(sealed):g} s"
    key = key or (f"Dashed: {dashed}." if dashed else "")
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
        statistic="median of the trials" + (f"; dashed: {dashed}" if dashed else ""),
        setting="while the rate offered rises in steps",
        extreme=Extreme(rising=y.log),
        remarks={panel: _remark(own, remark(own)) for panel, own in by_panel(shown).items()},
        about=about,
    )


def _facet(cell: ServerLoad, note: str) -> Facet:
    """Return the panel of a cell, with the second and the rate offered from then on at the starts of its steps."""
    edges, rates = offered_steps(cell.trials)
    ticks = {float(at): f"{at:.10g} s\n{rate:,.10g}/s" for at, rate in zip(edges, rates, strict=False)}
    end = max(float(edges[-1]), float(cell.trials["duration_s"].max())) * 1.02
    limit = f"limit: {limit_words(cell.trials)}"
    return Facet(cell.panel, cell.server, (f"{limit}; {note}" if note else limit,), ticks, (0, end))


# --- what the description says besides --------------------------------------------------------------------


def _remark(own: Sequence[ServerLoad], more: str) -> str:
    words = [limit_words(cell.trials) for cell in own]
    groups = {word: [c.server for c, said in zip(own, words, strict=True) if said == word] for word in words}
    limits = listing([f"{NOUNS.get(word, word)} for {names_or_count(names)}" for word, names in groups.items()])
    return f"{f'; {more}' if more else ''}; the limit was {limits}"


def _kept(own: Sequence[ServerLoad], tables: Tables) -> str:
    """Say up to which rate the servers answered what was offered, the highest first."""
    medians = {cell.server: spread(kept_rps(cell.trials, tables.throughput)).median for cell in own}
    _, rates = offered_steps(own[0].trials)
    groups = {rate: [name for name, kept in medians.items() if kept == rate] for rate in sorted(set(medians.values()))}
    words = []
    for rate, names in reversed(groups.items()):
        upto = f"to the last, {rate:,.0f}/s," if rate == rates[-1] else f"to {rate:,.0f}/s" if rate else "at no step"
        words.append(f"{upto} by {names_or_count(names)}")
    return f"the rate was kept {listing(words)}"


def _waited(own: Sequence[ServerLoad]) -> str:
    """Say where requests waited for a connection of the pool, and how many at most."""
    most = {cell.server: float(cell.trials["pool_waiting_max"].max()) for cell in own}
    waited = [name for name, count in most.items() if count > 0]
    if not waited:
        return "no request was seen waiting for one"
    return f"up to {max(most[name] for name in waited):,.0f} requests waited for one, with {names_or_count(waited)}"


def _rows(own: Sequence[ServerLoad]) -> str:
    """Say whether the database has as many rows as there were answers."""
    words = captions.rows_equal_answers(pd.concat([cell.trials for cell in own]))
    return words.removesuffix(".") or "how many rows the database has is not known"
