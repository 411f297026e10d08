"""How many times as much: every load's servers against one of them, with intervals; what the report's answer says."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from runner.limits import TAKEN, Limit
from runner.model import CALIBRATION
from runner.present.chart import Chart, chart, empty
from runner.present.figures import forest
from runner.present.frames import (
    Tables,
    did_at_least,
    did_the_work,
    is_sealed,
    limits_of,
    sealed_trials,
    server_bound,
)
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.look.style import number, ratio_words
from runner.present.statistics import inference
from runner.present.statistics.inference import FEWEST, Ratio, geometric_mean, level, ratio, sample_of
from runner.present.statistics.stats import carried_quantile

YARDSTICKS = ("nginx",)
"""Servers that show what the machine can do; they answer fixed bodies, and nobody is compared with them first."""


@dataclass(frozen=True)
class Compared:
    """A column of the trials, divided by `unit`, that is compared: `more` says whether more of it is better.

    What is `offered` is compared at offered rates that nobody was at the limit of; `quantile` is that of a time.
    `group` is the heading above its ratios.
    """

    column: str
    noun: str
    group: str = ""
    more: bool = False
    offered: bool = False
    quantile: float = 0.0
    unit: float = 1.0


REPORTED = (
    Compared("served_rps", "requests/s", "Requests per second", more=True),
    Compared("server_cpu_ms_per_request", "CPU time per request", "CPU time per request"),
    Compared("latency_p50_ms", "p50", "Response time of one in two requests", offered=True, quantile=0.5),
    Compared("latency_p99_ms", "p99", "Response time of 99 in 100 requests", offered=True, quantile=0.99),
    Compared("server_cpu_peak_1s_pct", "CPU peak over 1 s", "CPU peak over 1 s, at the same rate", offered=True),
    Compared("server_cpu_peak_100ms_pct", "CPU peak over 0.1 s", "CPU peak over 0.1 s, at the same rate", offered=True),
)
BY_COLUMN = {quantity.column: quantity for quantity in REPORTED}
READING = (
    "Each ratio is of geometric means, within sessions (or blocks), with its 95 % interval. A rate that the generator "
    "limited is the least that a server can do: its ratio is a bound."
)
SAME_LOAD = (
    "workload", "tool", "mode", "connections", "vus", "iterations", "pool_size", "quota_cores",
    "database_share", "idle",
)  # fmt: skip
"""What trials of one load on different shares of a core have in common, beside the server and its slices."""
LINEAR = (
    "A share of a core may stand for a core where the rate on it, divided by the share, is the rate on the whole "
    "core: a ratio of 1. Only where the server was the limit in every trial of both."
)
FEW = f"fewer than {FEWEST} trials"
ERRORS = "more than 1 in 1000 requests failed"


@lru_cache(maxsize=2)
def frame(tables: Tables) -> pd.DataFrame:
    """Return one row per load, quantity, and server beside the one that it is compared with (`base`).

    `ratio` says how many times as good the base is: base / server of a rate, server / base of a cost or a time; above 1
    the base is ahead. `low` and `high` are its 95 % interval over sessions or blocks; an end is 0 or infinite where
    only a bound is known. `why` says why there is none, and is empty where there is one. `ours` and `theirs` are the
    geometric means of base and server; `sessions` is how many were compared. Several figures and texts
    read the same frame: nobody changes it.
    """
    order, rows = _order(tables), list[tuple[Any, ...]]()
    for quantity in REPORTED:
        for _, of_load in _comparable(tables, quantity).groupby("load_order"):
            base, *others = [side for name in order if len(side := of_load[of_load["server"] == name])]
            load, within = str(base["load"].iloc[0]), bool(base["session"].ne("").all())
            noise = noise_floor(tables, load, quantity.column, within=within)
            for other in others:
                samples = [sample_of(side[quantity.column], side["block"]) for side in (base, other)]
                found = ratio(*(samples if quantity.more else reversed(samples)), confidence=1 - level(tables.manifest))
                found, why = _comparison(base, other, quantity, found) if found else (None, FEW)
                ends = (found.ratio, found.low / noise, found.high * noise) if found else (math.nan,) * 3
                pair = [str(side["server"].iloc[0]) for side in (base, other)]
                means = [geometric_mean(sample) for sample in samples]
                sessions = found.blocks if found and found.blocks else min(len(base), len(other))
                rows.append((quantity.column, load, *pair, *means, *ends, sessions, why))
    names = ("quantity", "load", "base", "server", "ours", "theirs", "ratio", "low", "high", "sessions", "why")
    return pd.DataFrame(rows, columns=names)


def disturbed(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return which trials of sessions are left out of ratios: those whose session others took CPU time away from.

    What took it is chance, and no server's doing, so the session is left out for all servers under that load; unless
    fewer than `FEWEST` would be left of it.
    """
    robbed = limits_of(trials).eq(Limit.UNKNOWN) & trials["verdict_reason"].str.contains(TAKEN, regex=False)
    robbed &= is_sealed(trials) & trials["session"].ne("")
    out: pd.Series[bool] = robbed.groupby([trials["load"], trials["session"]]).transform("any")
    left = trials[~out & is_sealed(trials)].groupby("load")["session"].nunique()
    return out & trials["load"].map(left).ge(FEWEST)


@lru_cache(maxsize=256)
def noise_floor(tables: Tables, load: object, column: str, *, within: bool = False) -> float:
    """Return the factor (>= 1) by which intervals of `column` are widened under a load; 1 where nothing ran twice.

    It is the largest ratio that noise alone makes, from a program under two labels. An interval of what is compared
    `within` sessions has that noise in it already (docs/method.md), unless the two labels themselves come out apart.
    """
    trials = sealed_trials(tables.trials[tables.trials["load"] == load])
    trials = trials[~disturbed(trials)]
    factors = [1.0]
    for pair in tables.copies.items():
        sides = (trials[trials["server"] == name] for name in pair)
        same = ratio(*(sample_of(side[column], side["block"]) for side in sides))
        if same is not None and not (within and same.low <= 1 <= same.high):
            factors.append(inference.noise_floor(same))
    return max(factors)


def between(tables: Tables, one: str, other: str) -> list[float]:
    """Return the ratios of two servers' rates, one per closed load that both ran: geometric means."""
    trials = tables.trials[is_sealed(tables.trials) & tables.trials["load_model"].eq("closed")]
    wide = trials.assign(log=np.log(trials["served_rps"])).pivot_table(index="load", columns="server", values="log")
    return [math.exp(value) for value in (wide[one] - wide[other]).dropna()]


def _comparable(tables: Tables, quantity: Compared) -> pd.DataFrame:
    """Return the sealed trials that have the quantity: rates of closed loops, response times of offered ones."""
    trials = tables.trials
    known = is_sealed(trials) & trials["tier"].ne(CALIBRATION) & trials["objective"].eq("")
    known &= ~trials["server"].isin(tables.copies) & (trials[quantity.column] > 0)
    if quantity.more:
        known &= trials["load_model"].eq("closed")
    if quantity.offered:
        known &= trials["load_model"].eq("open") & (trials["steps"] <= 1)
    chosen: pd.DataFrame = trials[known & ~disturbed(trials)].sort_values(["load_order", "block"])
    return chosen


def _order(tables: Tables) -> list[str]:
    """Return the servers in the order in which they stand for the others: who needs least CPU per request comes first.

    That is known under every load, whatever was the limit. Who ran under more loads comes before; yardsticks last.
    """
    trials = _comparable(tables, REPORTED[1])
    wide = trials.pivot_table(index="load", columns="server", values=REPORTED[1].column)
    ranks = wide.rank(axis=1).mean()
    named = [name for name in identities(tables.trials) if name not in tables.copies]
    loads = wide.count()
    return sorted(named, key=lambda name: (name in YARDSTICKS, -loads.get(name, 0), ranks.get(name, math.inf)))


def _comparison(base: pd.DataFrame, other: pd.DataFrame, quantity: Compared, found: Ratio) -> tuple[Ratio | None, str]:
    """Return how many times as good `base` is, as far as the limits of both let it be known; or why it is not.

    A ratio of rates is whole where both servers were the limit, one-sided where one of them could do more.
    """
    if not (did_the_work(base) and did_the_work(other)):
        return None, ERRORS
    limits = {*limits_of(base), *limits_of(other)}
    if quantity.more and not all(full := [server_bound(side) for side in (base, other)]):
        if full[1] and did_at_least(base):
            return replace(found, high=math.inf), ""
        if full[0] and did_at_least(other):
            return replace(found, low=0.0), ""
        limits = limits - {Limit.SERVER, Limit.SERIAL} or {Limit.SERIAL}
    elif quantity.offered:
        limits = limits - {Limit.NONE}
        if not limits:
            few = carried_quantile(float(pd.concat([base, other])["requests"].min())) < quantity.quantile
            return (None, "too few requests for the percentile") if few else (found, "")
    else:
        return found, ""
    return None, next(limit for limit in Limit if limit in limits).why_not


def words(row: Mapping[Any, Any]) -> str:
    """Return a ratio as `2.15 [2.05–2.26]`, `at least 2.05`, or why there is none."""
    return str(row["why"]) or ratio_words(row["ratio"], row["low"], row["high"])


def table(tables: Tables) -> pd.DataFrame:
    """Return the ratios as texts: one row per quantity, load and pair."""
    rows = []
    for row in frame(tables).to_dict("records"):
        quantity = BY_COLUMN[row["quantity"]]
        # A rate is that of the base first; a cost or a time that of the other.
        sides = [(row["base"], row["ours"]), (row["server"], row["theirs"])]
        names, values = zip(*(sides if quantity.more else reversed(sides)), strict=True)
        texts = (quantity.noun, " / ".join(names), " / ".join(map(number, values)), words(row), str(row["sessions"]))
        rows.append((row["load"], *texts))
    return pd.DataFrame(rows, columns=["load", "what", "pair", "values", "ratio", "sessions"])


def linearity(tables: Tables) -> pd.DataFrame:
    """Return (rate on a share / share) / (rate on the whole core) as texts, one row per server, load and share."""
    rows, sealed = [], _comparable(tables, REPORTED[0])
    for _, alike in sealed.groupby(["server", *SAME_LOAD, "slices"], sort=False, dropna=False):
        whole = alike[alike["share"] == 1]
        for share, part in alike[alike["share"] < 1].groupby("share"):
            per_core = sample_of(part["served_rps"] / part["share"], part["block"])
            found = ratio(per_core, sample_of(whole["served_rps"], whole["block"]))
            if found and server_bound(part) and server_bound(whole):
                cell = (whole["server"].iloc[0], whole["load"].iloc[0], f"{float(str(share)):g}")
                medians = [number(trials["served_rps"].median()) for trials in (part, whole)]
                beside = ratio_words(found.ratio, found.low, found.high)
                rows.append((*cell, *medians, beside, str(found.blocks or len(part))))
    names = ("requests/s on it", "on the whole core", "per core, beside the whole", "sessions")
    return pd.DataFrame(rows, columns=["server", "load", "share", *names])


def finding(tables: Tables, column: str, tool: str = "") -> str:
    """Return the largest difference of a quantity in a few words: `gin takes 1.54 to 2.37 times axum's CPU time ...`.

    Over the loads (of one tool, if named) of the two servers that are farthest apart, each ratio of which is shown to
    be on one side of 1; empty where there are no such two.
    """
    noun, more, rows = BY_COLUMN[column].noun, BY_COLUMN[column].more, frame(tables)
    rows = rows[(rows["quantity"] == column) & (rows["why"] == "") & ~rows["server"].isin(YARDSTICKS)]
    if tool:
        rows = rows[rows["load"].isin(tables.sealed(tool)["load"])]
    apart = {
        pair: found["ratio"]
        for pair, found in rows.groupby(["base", "server"], sort=False)
        if (found["low"] > 1).all() and (found["high"] < math.inf).all()
    }
    if not apart:
        return ""
    (base, server), found = max(apart.items(), key=lambda item: float(item[1].median()))
    ends = (found.min(), found.max())
    times = " to ".join(dict.fromkeys(f"{end:.2g}" if end >= 10 else f"{end:.1f}" for end in ends))
    return f"{base} does {times} times {server}'s {noun}" if more else f"{server} takes {times} times {base}'s {noun}"


@chart("ratios", notebook="report", table="By how much")
def ratios(tables: Tables) -> Chart:
    """Return every ratio that could be measured, around 1: on the right the base is ahead."""
    found = frame(tables)
    known = found[found["why"] == ""]
    looks, columns = identities(tables.trials), (REPORTED[1].column, REPORTED[0].column)
    title = next(filter(None, (finding(tables, column) for column in columns)), "Who is ahead, and by how much")
    if known.empty:
        few = f"This run has no load with two servers of {FEWEST} trials each to compare."
        none = captions.unsealed(tables.trials, "trial")
        return empty(title, few if is_sealed(tables.trials).any() else none)
    groups = {}
    for (column, base), rows in known.groupby(["quantity", "base"], sort=False):
        quantity = BY_COLUMN[str(column)]
        head = f"{quantity.group}: " + (f"{base} / the others" if quantity.more else f"the others / {base}")
        by_load = rows.groupby("load", sort=False)
        groups[head] = [_row(str(load), pairs.to_dict("records"), looks) for load, pairs in by_load]
    text = (
        "Ratios of geometric means within sessions or blocks, with 95 % intervals. Right of 1 the first is ahead. "
        "Loads: so many kept or closed connections, N users of k6, or requests/s offered; on a core, or a part of one."
    )
    trials = tables.trials[tables.trials["load"].isin(known["load"])]
    return forest.forest(
        title, captions.caption(tables, trials, text),
        "A mark for each other server, in its colour. Hollow: the interval reaches 1.",
        groups, "ratio", f"Forest plot of {captions.plural(len(known), 'ratio')} of two servers with intervals.",
    )  # fmt: skip


BRIEFLY = (
    (r", \d+ slices?$", ""), (r"\bkeep-alive, ([\d,]+) connections?", r"kept \1"),
    (r"\bclose, ([\d,]+) connections?", r"closed \1"), (r" requests/s offered", "/s"), (r" of a core\b", " core"),
)  # fmt: skip
"""How a load is called where there is little room, so that its label has a line or two."""


def _row(load: str, pairs: list[dict[Hashable, Any]], looks: dict[str, Any]) -> forest.ForestRow:
    marks = []
    for pair in pairs:
        look = looks[pair["server"]]
        low, high = (end if 0 < end < math.inf else pair["ratio"] for end in (pair["low"], pair["high"]))
        open_end = pair["low"] <= 1 <= pair["high"]
        marks.append(forest.Mark(pair["ratio"], low, high, look.color, look.marker, hollow=open_end))
    for long, short in BRIEFLY:
        load = re.sub(long, short, load)
    return forest.ForestRow(load, "\n".join(f"{pair['server']} {words(pair)}" for pair in pairs), tuple(marks))
