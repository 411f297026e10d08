"""The answer in at most five sentences: who is ahead, by how much and under which load; and what is not known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.present.answers.evidence import TWICE
from runner.present.case import choose
from runner.present.figures import objectives, ratios
from runner.present.figures.ratios import REPORTED, YARDSTICKS, disturbed
from runner.present.frames import Tables, is_sealed, sealed_trials
from runner.present.look import captions
from runner.present.look.style import number

NOTHING = "No trial of this run was sealed: there is nothing to compare."
MOST = 5
RATE, COST, HALF, MOST_OF_ALL, *_ = REPORTED
SHARES = {1.0: "a core", 0.5: "half a core", 0.25: "a quarter of a core", 0.1: "a tenth of a core"}
MOST_NAMED = 3
"""Servers of which each has its smallest and its largest ratio in a sentence."""
FAMILIAR = 100
"""Connections of the load that a reader is told first."""
Row = Mapping[Hashable, Any]


def sentences(tables: Tables) -> tuple[str, ...]:
    """Return at most five sentences that say what the run found, each with numbers and 95 % intervals."""
    sealed = tables.trials[is_sealed(tables.trials)]
    if sealed.empty:
        return (NOTHING,)
    found = ratios.frame(tables)
    found = found[~found["server"].isin(YARDSTICKS)]
    known = found[found["why"] == ""]
    said = [
        _one_load(known, sealed),
        _over_loads(known, RATE.column),
        _over_loads(known, COST.column),
        _response_times(tables, known),
        *_objectives(tables),
        two_clients(tables),
    ]
    return tuple(sentence for sentence in said if sentence)[:MOST] or (_alone(sealed),)


def unknown(tables: Tables) -> tuple[str, ...]:
    """Return a sentence for each quantity that could not be compared on some loads, with the reasons."""
    found = ratios.frame(tables)
    said = _left_out(tables)
    for quantity in REPORTED:
        rows = found[found["quantity"] == quantity.column]
        silent = rows[rows["why"] != ""]
        if len(silent):
            why = "; ".join(f"{reason} ({count})" for reason, count in Counter(silent["why"]).most_common())
            pairs = f"{len(silent)} of {len(rows)} pairs of servers under a load"
            said.append(f"No ratio of {quantity.noun} for {pairs}: {why}.")
    return tuple(said)


def _left_out(tables: Tables) -> list[str]:
    sealed = sealed_trials(tables.trials)
    out, every = (rows["session"].nunique() for rows in (sealed[disturbed(sealed)], sealed[sealed["session"].ne("")]))
    if not out:
        return []
    why = "the hypervisor or other programs took so much CPU time that the limit is unknown"
    return [f"Left out of ratios, for all servers: {out} of {captions.plural(every, 'session')}, as {why}."]


def same_twice(tables: Tables) -> tuple[str, ...]:
    """Return a sentence for each server that ran under a second label: what differs between the two is noise."""
    said = []
    for label, server in tables.copies.items():
        pairs = ratios.between(tables, label, server)
        spread = ""
        if pairs:
            spread = f": their rates differed by {_range(pairs)} over {captions.plural(len(pairs), 'load')}"
        said.append(f"{label} is {server} under a second label{spread}. What differs between them is noise.")
    return tuple(said)


def _range(found: Sequence[float]) -> str:
    low, high = (f"{end:.2f}" for end in (min(found), max(found)))
    return f"a factor of {low}" if low == high else f"factors of {low} to {high}"


# --- sentences --------------------------------------------------------------------------------------------


def _one_load(known: pd.DataFrame, sealed: pd.DataFrame) -> str:
    """Say the rates of all servers under the load that most readers know, and their ratios."""
    rates = known[known["quantity"] == RATE.column]
    if rates.empty:
        return ""
    counts = rates.groupby("load", sort=False)["server"].nunique()
    candidates = [str(load) for load, count in counts.items() if count == counts.max()]
    rows = {load: sealed[sealed["load"] == load].iloc[0].to_dict() for load in candidates}
    load = min(candidates, key=lambda name: _strangeness(rows[name]))
    pairs = rates[rates["load"] == load].to_dict("records")
    first = pairs[0]
    parts = [f"{first['base']} answers {_rounded(first['ours'])} requests/s"]
    parts += [f"{pair['server']} {_rounded(pair['theirs'])}" for pair in pairs]
    said = f"{_place(rows[load])} {captions.joined(parts)}: "
    said += captions.joined([f"{_times(pair, 'as many as')} {pair['server']}" for pair in pairs])
    return f"{said} ({captions.plural(int(first['sessions']), _unit(sealed, load))})."


def _strangeness(row: Row) -> tuple[bool, float]:
    """Return how far a load is from the one that most readers know: wrk's kept connections, about a hundred."""
    size = row["connections"] if row["tool"] == "wrk" else row["vus"]
    return row["tool"] != "wrk" or row["mode"] != "keepalive", abs(math.log(max(size, 1) / FAMILIAR))


def _over_loads(known: pd.DataFrame, column: str) -> str:
    """Say from where to where each ratio goes over the loads; of many servers the median."""
    rows = known[(known["quantity"] == column) & (known["low"] > 0) & (known["high"] < math.inf)]
    if rows["load"].nunique() < (2 if column == RATE.column else 1):
        return ""
    base = str(rows["base"].mode().iloc[0])
    by_server = {str(server): own for server, own in rows[rows["base"] == base].groupby("server", sort=False)}
    parts = [_spread_of(base, server, pairs, column) for server, pairs in by_server.items()]
    if len(parts) > MOST_NAMED:
        ordered = sorted(by_server, key=lambda server: float(by_server[server]["ratio"].median()))
        parts = [f"{server} {by_server[server]['ratio'].median():.2f}" for server in ordered]
        what = f"Requests/s of {base} beside the others'"
        if column == COST.column:
            what = f"CPU time per request beside {base}'s"
        return f"{what}, medians over the loads: {captions.joined(parts)} times."
    return f"{'Over all loads ' if rows['load'].nunique() > 1 else ''}{captions.joined(parts)}."


def _spread_of(base: str, server: str, pairs: pd.DataFrame, column: str) -> str:
    least, most = (pairs.loc[pairs["ratio"].agg(end)].to_dict() for end in ("idxmin", "idxmax"))
    spread = ratios.words(least) if len(pairs) == 1 else f"{ratios.words(least)} to {ratios.words(most)}"
    loads = captions.plural(len(pairs), "load")
    if column == RATE.column:
        return f"{base} did {spread} times {server}'s requests/s ({loads})"
    return f"{server} took {spread} times {base}'s CPU time per request ({loads})"


def _response_times(tables: Tables, known: pd.DataFrame) -> str:
    """Say the response times at the highest rate that all kept."""
    rows = known[known["quantity"] == HALF.column]
    if rows.empty:
        return ""
    trials = sealed_trials(tables.trials).drop_duplicates("load").set_index("load")["rate_rps"]
    load = max(dict.fromkeys(rows["load"]), key=lambda name: float(trials[name]))
    pairs = rows[rows["load"] == load].to_dict("records")
    values = [f"{pairs[0]['base']} {number(pairs[0]['ours'])} ms"]
    values += [f"{pair['server']} {number(pair['theirs'])} ms ({ratios.words(pair)} times)" for pair in pairs]
    tail = known[(known["quantity"] == MOST_OF_ALL.column) & (known["load"] == load)].to_dict("records")
    said = f"At {trials[load]:,.0f} requests/s, which all keep, one in two requests takes {captions.joined(values)}"
    if tail:
        slow = [f"{tail[0]['base']} {number(tail[0]['ours'])} ms"]
        slow += [f"{pair['server']} {number(pair['theirs'])} ms ({ratios.words(pair)} times)" for pair in tail]
        said += f"; one in 100 takes longer than {captions.joined(slow)}"
    return f"{said}."


def _objectives(tables: Tables) -> list[str]:
    """Say to which rate each server keeps an objective."""
    said = []
    for search, rows in objectives.answers(tables).groupby("search", sort=False):
        ordered = sorted(rows.to_dict("records"), key=lambda row: (-row["kept_rps"], row["server"]))
        kept = [f"{row['server']} {objectives.words(row)}" for row in ordered]
        said.append(f"{search} is kept up to: {'; '.join(kept)}.")
    return said


def two_clients(tables: Tables) -> str:
    """Say what a generator that was the limit reported beside what another client saw; empty where none was."""
    case = choose(tables)
    if case is None or Limit.of(str(case.row["verdict"])) not in (Limit.GENERATOR, Limit.UNKNOWN):
        return ""
    theirs, ours = float(case.row["latency_p50_ms"]), float(case.row["probe_p50_ms"])
    if not theirs > TWICE * ours:
        return ""
    return (
        f"With {case.row['vus']:,.0f} users {case.tool} reports a median response time of {number(theirs)} ms for "
        f"{case.row['server']}, while a second client saw {number(ours)} ms in the same seconds: {case.tool} times its "
        "own queue."
    )


def _alone(sealed: pd.DataFrame) -> str:
    """Say the rate of a run that has nothing to compare."""
    row = sealed.sort_values("rps", ascending=False).iloc[0].to_dict()
    limit = Limit.of(str(row["verdict"]), str(row["verdict_reason"]))
    return f"{_place(row)} {row['server']} answers {_rounded(row['rps'])} requests/s ({limit.why_not})."


# --- words ------------------------------------------------------------------------------------------------


def _place(row: Row) -> str:
    """Return under which load: `On half a core, at 100 kept connections,`."""
    share = SHARES.get(float(row["share"]), f"{row['share']:g} of a core")
    if row["load_model"] == "open":
        return f"On {share}, at {row['rate_rps']:,.0f} offered requests/s,"
    if row["tool"] == "wrk":
        kind = "kept" if row["mode"] == "keepalive" else "closed"
        size = f"{row['connections']:,.0f} {kind} connection{'s' * (row['connections'] != 1)}"
    else:
        size = f"{row['vus']:,.0f} users of {row['tool']}"
    return f"On {share}, with {size} ({row['workload']}),"


def _unit(sealed: pd.DataFrame, load: str) -> str:
    return "session" if sealed.loc[sealed["load"] == load, "session"].astype(bool).all() else "trial"


def _times(pair: Row, than: str) -> str:
    """Return `2.15 times as many as [2.05–2.26]`, and of a bound what it says."""
    if 0 < pair["low"] <= 1 <= pair["high"] < math.inf:
        return f"no difference is shown ({ratios.words(pair)}) from"
    return f"{ratios.words(pair)} times {than}"


def _rounded(value: float) -> str:
    """Return a rate with three digits: 40,731 is 40,700."""
    digits = 2 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}"
