"""Alt texts of loads whose arrival rate rises in steps: each server's course over time, and who was the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.limits import Limit
from runner.present.alt.courses import Course, Wording, clauses, course
from runner.present.alt.sentences import Form, fit, listing, names_or_count, nothing, scope, within
from runner.present.figures import multiples, seconds
from runner.present.figures.multiples import Panel
from runner.present.figures.offered import kept_rps, offered_steps
from runner.present.frames import Tables, limit_words, sealed_trials
from runner.present.look import captions
from runner.present.look.style import number
from runner.present.statistics.stats import spread

Say = Callable[[Sequence[Panel], Tables], str]
"""The panels of one load -> a clause about them, or nothing."""

NOUNS = {str(limit): limit.noun for limit in Limit}


@dataclass(frozen=True)
class Ramp:
    """What a figure of a ramp draws over time, and how it is told."""

    what: str
    """What is up, with its unit."""
    unit: str
    """Follows a value."""
    points: Callable[[pd.DataFrame, Tables], pd.DataFrame]
    database: bool = True
    dashed: str = ""
    """What the dashed line is."""
    latency: bool = False
    """Whether less is better: the scale is logarithmic then, and the server with the lowest peak told first."""
    more: Say | None = None


# --- the figures ------------------------------------------------------------------------------------------


def inserts_answered(tables: Tables) -> str:
    """Return the alt text of `ramp.inserts_answered`."""
    return _told(tables, _answered("inserts", database=True))


def inserts_p90(tables: Tables) -> str:
    """Return the alt text of `ramp.inserts_p90`."""
    return _told(tables, _p90("inserts", database=True))


def inserts_server_cpu(tables: Tables) -> str:
    """Return the alt text of `ramp.inserts_server_cpu`."""
    return _told(tables, _cpu(tables, "server", database=True))


def inserts_memory(tables: Tables) -> str:
    """Return the alt text of `ramp.inserts_memory`."""
    return _told(tables, Ramp("the server's resident memory in MiB", " MiB", seconds.memory))


def pool_in_use(tables: Tables) -> str:
    """Return the alt text of `ramp.pool_in_use`."""
    ramp = Ramp("connections of the server's pool in use", "", seconds.pool, dashed="the pool's size", more=_waited)
    return _told(tables, ramp)


def database_cpu(tables: Tables) -> str:
    """Return the alt text of `ramp.database_cpu`."""
    return _told(tables, _cpu(tables, "database", database=True))


def rows_inserted(tables: Tables) -> str:
    """Return the alt text of `ramp.rows_inserted`."""
    return _told(tables, Ramp("inserts answered so far", "", seconds.inserted, dashed="what was offered", more=_rows))


def static_answered(tables: Tables) -> str:
    """Return the alt text of `ramp.static_answered`."""
    return _told(tables, _answered("requests", database=False))


def static_p90(tables: Tables) -> str:
    """Return the alt text of `ramp.static_p90`."""
    return _told(tables, _p90("requests without a database", database=False))


def static_server_cpu(tables: Tables) -> str:
    """Return the alt text of `ramp.static_server_cpu`."""
    return _told(tables, _cpu(tables, "server", database=False))


def _answered(what: str, *, database: bool) -> Ramp:
    return Ramp(f"{what} answered per second", "/s", seconds.answered, database, "the rate offered", more=_kept)


def _p90(what: str, *, database: bool) -> Ramp:
    return Ramp(f"the p90 latency of {what} in ms", " ms", seconds.latency(0.9), database, latency=True)


def _cpu(tables: Tables, subject: str, *, database: bool) -> Ramp:
    name = {"server": "the server", "database": "PostgreSQL"}[subject]
    given = len((tables.manifest.get("placement") or {}).get(subject) or ())
    dashed = f"what {name} may use, {100 * given} %" if given else ""
    return Ramp(f"CPU of {name} in % of a core", " %", seconds.cpu(subject), database, dashed)


# --- what they share --------------------------------------------------------------------------------------


def _told(tables: Tables, ramp: Ramp) -> str:
    trials = tables.ramps(database=ramp.database)
    shown = multiples.panels(tables, trials)
    what = f"{ramp.what} over a ramp of arrival rates"
    if not shown:
        return nothing(what, captions.unsealed(trials, "trial with rising rates"))
    points = ramp.points(sealed_trials(trials), tables)
    if points.empty:
        return nothing(what, "The tables of this run have nothing of it.")
    wording = Wording(
        "highest point",
        lambda value: f"{number(value)}{ramp.unit}",
        lambda t_s: f"at {t_s:.10g} s",
        rising=ramp.latency,
    )
    forms: tuple[list[str], list[str], list[str]] = ([], [], [])
    for load in dict.fromkeys(panel.load for panel in shown):
        own = [panel for panel in shown if panel.load == load]
        rest = f"; {ramp.more(own, tables)}" if ramp.more else ""
        limit = f"; the limit was {_limits(own)}"
        for parts, clause in zip(forms, clauses([_course(panel, points) for panel in own], wording), strict=True):
            parts.append(within(load, f"{clause}{rest}{limit}"))
    dashed = f"; dashed: {ramp.dashed}" if ramp.dashed else ""
    loads, scale = len({panel.load for panel in shown}), "up, logarithmic" if ramp.latency else "up"
    head = (
        f"Line chart of {ramp.what} ({scale}) by seconds since the load began (across), while the rate offered "
        f"rises in steps, {scope([panel.server for panel in shown], loads)}: median of the trials{dashed}."
    )
    return fit(head, [Form(parts) for parts in forms])


def _course(panel: Panel, points: pd.DataFrame) -> Course:
    median = seconds.median_and_range(points, panel.trials["trial_id"])["median"]
    return course(panel.server, [(float(str(t_s)), float(value), True) for t_s, value in median.items()])


def _limits(own: Sequence[Panel]) -> str:
    """Say what limited whom: `nobody for axum and the server for gin and fiber`."""
    words = [limit_words(panel.trials) for panel in own]
    groups = {word: [p.server for p, of in zip(own, words, strict=True) if of == word] for word in dict.fromkeys(words)}
    return listing([f"{NOUNS.get(word, word)} for {names_or_count(names)}" for word, names in groups.items()])


def _kept(own: Sequence[Panel], tables: Tables) -> str:
    """Say up to which rate the servers answered what was offered, the highest first."""
    medians = {panel.server: spread(kept_rps(panel.trials, tables.throughput)).median for panel in own}
    _, rates = offered_steps(own[0].trials)
    groups = {rate: [name for name, kept in medians.items() if kept == rate] for rate in sorted(set(medians.values()))}
    words = []
    for rate, names in reversed(groups.items()):
        upto = f"to the last, {rate:,.0f}/s," if rate == rates[-1] else f"to {rate:,.0f}/s" if rate else "at no step"
        words.append(f"{upto} by {names_or_count(names)}")
    return f"the rate was kept {listing(words)}"


def _waited(own: Sequence[Panel], _tables: Tables) -> str:
    """Say where requests waited for a connection of the pool, and how many at most."""
    most = {panel.server: float(panel.trials["pool_waiting_max"].max()) for panel in own}
    waited = [name for name, count in most.items() if count > 0]
    if not waited:
        return "no request was seen waiting for one"
    return f"up to {max(most[name] for name in waited):,.0f} requests waited for one, with {names_or_count(waited)}"


def _rows(own: Sequence[Panel], _tables: Tables) -> str:
    """Say whether the database has as many rows as there were answers."""
    words = captions.rows_equal_answers(pd.concat([panel.trials for panel in own]))
    return words.removesuffix(".") or "how many rows the database has is not known"
