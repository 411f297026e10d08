"""The answer about inserts: who inserts most and at what CPU, what the limit was, how large a pool need be."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from runner.limits import Limit
from runner.model import CALIBRATION
from runner.present.answers import summary
from runner.present.answers.caveats import warnings_of
from runner.present.answers.ranking_text import NOTHING, READING, percent
from runner.present.answers.summary import RunAnswer
from runner.present.figures.ramp import sweeps
from runner.present.figures.seconds import kept_rps
from runner.present.frames import Tables, is_sealed, limit_words, limits_of, sealed_trials
from runner.present.look import captions, style
from runner.present.look.palette import identities
from runner.present.statistics.inference import FEWEST, Sample
from runner.present.statistics.ranking import rank
from runner.present.statistics.stats import spread

NO_DATABASE = "This run has no workload with a database behind its servers: there is nothing to show here."
MOSTLY_PCT = 50.0
"""A pool counts as exhausted where every connection was in use in this share of the samples."""


def answer(tables: Tables) -> RunAnswer:
    """Return warnings and findings about a run's inserts as sentences, all computed."""
    whole = summary.summarize(tables)
    table = whole[whole["pool_size"].notna() & (whole["tier"] != CALIBRATION)]
    sealed = tables.trials[tables.trials["pool_size"].notna() & is_sealed(tables.trials)]
    sealed = sealed[sealed["tier"] != CALIBRATION]
    if sealed.empty:
        left = captions.plural(int(table["left_out"].sum()), "trial")
        return RunAnswer(tuple(warnings_of(tables, table)), (f"No number: {left} failed or stopped early.",))
    findings = [
        *_most(tables, table[table["load_model"] == "closed"]),
        _limits(sealed),
        *_ramps(tables),
        *_cpu(tables, table),
        *_pools(tables, table),
        _database(table),
        captions.rows_equal_answers(sealed),
        " ".join([captions.durability(tables.manifest), captions.database_place(tables.manifest)]).strip(),
    ]
    findings = [READING if any("×" in finding for finding in findings) else "", *findings]
    return RunAnswer(tuple(warnings_of(tables, whole)), tuple(finding for finding in findings if finding))


def printable(tables: Tables) -> pd.DataFrame:
    """Return one row per load with a database and server, as texts."""
    table = summary.summarize(tables)
    table = table[table["pool_size"].notna()]
    base = summary.printable(table).drop(columns="verdicts")
    number = {
        "server CPU, %": "cpu_pct",
        "database CPU, %": "database_cpu_pct",
        "most in use": "pool_in_use",
        "rows": "rows",
    }
    more = {words: [style.number(value) for value in table[column]] for words, column in number.items()}
    return base.assign(**more, verdicts=table["verdicts"].to_list())


# --- who inserts most -------------------------------------------------------------------------------------


def _most(tables: Tables, table: pd.DataFrame) -> list[str]:
    """Say who is fastest on the load with the highest rate, of those where two servers were the limit in all trials."""
    loads = list(table[table["trials"] > 0].groupby("load", sort=False))
    compared = [(load, rows) for load, rows in loads if rows["server_bound"].sum() > 1]
    rest = [(load, rows) for load, rows in loads if rows["server_bound"].sum() < 2]
    sentences = []
    if compared:
        load, rows = max(compared, key=lambda pair: float(pair[1].loc[pair[1]["server_bound"], "rps"].max()))
        sentences.append(_ranking(tables, str(load), rows))
        others = "; ".join(str(other) for other, _ in compared if other != load)
        if others:
            sentences.append(f"Servers can be compared on these loads too, see the table: {others}.")
    elif loads:
        sentences.append(
            "Inserts per second are not ranked: no closed loop has two servers that were the limit in each of their "
            "trials."
        )
    if rest:
        words = "; ".join(f"{load} (limit: {_limit(rows)})" for load, rows in rest)
        sentences.append(f"Rates that are not ranked: {words}.")
    return sentences


def _ranking(tables: Tables, load: str, rows: pd.DataFrame) -> str:
    bound = rows[rows["server_bound"]].sort_values("rps", ascending=False).to_dict("records")
    order = summary.by_throughput(tables, rows).words(
        f"Most inserts per second, where the server was the limit ({load})"
    )
    cpu = ", ".join(f"{row['server']} {style.number(row['cpu_pct'])} %" for row in bound)
    rest = rows[~rows["server_bound"]].to_dict("records")
    others = "; ".join(f"{row['server']} ({row['verdicts']})" for row in rest)
    text = f"{order}. Server CPU, of a core: {cpu}."
    return f"{text} Not ranked: {others}." if others else text


def _limit(rows: pd.DataFrame) -> str:
    found = rows[rows["limit"] != ""].groupby("limit", sort=False)["server"]
    if len(found) == 1:
        return str(rows["limit"].iloc[0])
    return "; ".join(f"{limit}: {', '.join(servers)}" for limit, servers in found)


def _limits(sealed: pd.DataFrame) -> str:
    """Say how often each side was the limit, over all trials with a database."""
    counts = limits_of(sealed).value_counts()
    parts = [f"{limit.noun} in {counts[limit]}" for limit in Limit if limit in counts]
    return f"What was the limit, of {captions.plural(len(sealed), 'trial')} with a database: {', '.join(parts)}."


# --- ramps ------------------------------------------------------------------------------------------------


def _ramps(tables: Tables) -> list[str]:
    """Say up to which rate each server kept up, and what was the limit where it did not."""
    trials = tables.ramps(database=True)
    sealed = sealed_trials(trials)
    return [_ramp(str(load), own, tables) for load, own in sealed.groupby("load", sort=False)]


def _ramp(load: str, trials: pd.DataFrame, tables: Tables) -> str:
    whole, part = [], []
    for server in identities(tables.trials):
        own = trials[trials["server"] == server]
        if own.empty:
            continue
        kept = spread(kept_rps(own, tables.throughput))
        if kept.low >= own["rate_rps"].iloc[0]:
            whole.append(server)
        else:
            part.append(f"{server} {style.number(kept.median)}/s (limit: {limit_words(own)})")
    kept_by = f"kept to its end in every trial by {', '.join(whole)}" if whole else "kept to its end by nobody"
    text = f"{load}: {kept_by}"
    if part:
        text += f"; the last rate kept, median of the trials: {', '.join(part)}"
        text += ". It says something of a server only where the server was the limit"
    return f"{text}."


# --- cost -------------------------------------------------------------------------------------------------


def _cpu(tables: Tables, table: pd.DataFrame) -> list[str]:
    """Order the servers by CPU per insert, which needs no verdict: on the ramps, else on all loads."""
    open_ = table[table["load_model"] == "open"]
    chosen = open_ if len(open_) else table
    loads = chosen.groupby("load", sort=False)
    return [text for load, rows in loads if (text := summary.cpu_order(tables, load, rows))]


def _database(table: pd.DataFrame) -> str:
    cost = spread(table["database_cpu_ms_per_request"])
    if not cost.n:
        return ""
    busy = spread(table["database_cpu_pct"])
    return (
        f"The cost of PostgreSQL: {style.number(cost.low)} to {style.number(cost.high)} CPU ms per insert, "
        f"{style.number(busy.low)} to {style.number(busy.high)} % of a core (medians by server and load)."
    )


# --- pool -------------------------------------------------------------------------------------------------


def _pools(tables: Tables, table: pd.DataFrame) -> list[str]:
    """Say where the pool was exhausted, and which size was enough."""
    full = table[table["pool_exhausted_pct"] >= MOSTLY_PCT]
    parts = [
        f"{load} ({len(rows)} of {int((table['load'] == load).sum())} servers)"
        for load, rows in full.groupby("load", sort=False)
    ]
    sentences = [f"Every connection of the pool was in use most of the time on: {'; '.join(parts)}."] if parts else []
    trials = sweeps(tables)
    sealed = sealed_trials(trials)
    return sentences + [_enough(str(loop), own, tables) for loop, own in sealed.groupby("loop", sort=False)]


def _enough(loop: str, trials: pd.DataFrame, tables: Tables) -> str:
    """Say which pool size is the smallest that does not differ from the fastest size."""
    by_size: dict[float, list[str]] = {}
    unknown, detectable = [], 1.0
    for server in identities(tables.trials):
        own = trials[trials["server"] == server]
        if own.empty:
            continue
        found = smallest_pool(own)
        if found is None:
            unknown.append(server)
        else:
            by_size.setdefault(found.size, []).append(server)
            detectable = max(detectable, found.detectable)
    parts = [f"{size:.0f} for {', '.join(servers)}" for size, servers in sorted(by_size.items())]
    why = f"fewer than {FEWEST} trials of a size, or the limit was the generator or is unknown"
    if not parts:
        return f"{loop}: no pool size can be advised ({why})."
    within = f" (differences below {percent(detectable)} are undetectable)" if detectable > NOTHING else ""
    rest = f"; unknown: {', '.join(unknown)} ({why})" if unknown else ""
    return f"{loop}: the smallest pool as fast as any: {'; '.join(parts)}{within}{rest}."


@dataclass(frozen=True)
class SmallestPool:
    """A pool size, and the ratio by which the fastest size could be faster without a difference being found."""

    size: float
    detectable: float


def smallest_pool(trials: pd.DataFrame) -> SmallestPool | None:
    """Return the smallest pool size whose rates do not differ from those of the fastest size.

    `trials` are sealed ones of one server and loop. None where a size has too few trials, or the generator was the
    limit at the fastest size, or could have been: then a larger pool could have been faster.
    """
    sizes = {str(size): own for size, own in trials.groupby("pool_size")}
    ranking = rank({size: Sample.of(own["rps"], own["block"]) for size, own in sizes.items()})
    if ranking is None or ranking.few:
        return None
    best = ranking.places[0].name
    if limits_of(sizes[best]).isin([Limit.GENERATOR, Limit.UNKNOWN]).any():
        return None
    even = [pair for pair in ranking.pairs if pair.first == best and not pair.told_apart]
    smallest = min(even, key=lambda pair: float(pair.second), default=None)
    if smallest is None or float(smallest.second) > float(best):
        return SmallestPool(float(best), 1.0)
    return SmallestPool(float(smallest.second), smallest.detectable)
