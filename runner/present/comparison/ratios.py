"""Compare each server with one of the servers, the base, under every load.

The results are ratios with intervals. The report's answer and the figure `ratios` are made from
these ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from runner.model import CALIBRATION
from runner.present.comparison.compare import (
    Bound,
    Comparison,
    Measured,
    NotComparable,
    compare,
)
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.comparison.quantity import (
    CATALOGUE,
    CPU_PER_REQUEST,
    OF_A_REPORT,
    OF_THE_COUNTERS,
    THROUGHPUT,
    Need,
    Quantity,
)
from runner.present.frames import Tables, has_cause, is_sealed
from runner.present.look.numbers import number, ratio_words
from runner.present.look.palette import identities
from runner.present.statistics import inference
from runner.present.statistics.inference import (
    FEWEST_TRIALS,
    geometric_mean,
    level,
    ratio,
    sample_of,
)
from runner.present.statistics.stats import carried_quantile
from runner.store import Values
from runner.verdict.limits import Cause

YARDSTICKS = ("nginx",)
"""Servers that only answer with fixed bodies. Their rates show how much the machine can do.

A yardstick is not the base of a comparison if any other server ran under the load.
"""
FRAME_COLUMNS = (
    "quantity",
    "load",
    "base",
    "server",
    "ours",
    "theirs",
    "ratio",
    "low",
    "high",
    "sessions",
    "why",
)
READING = (
    "Each ratio compares two geometric means within sessions (or blocks), and has a 95 % interval. "
    "A rate that the generator limited is a lower bound of what the server can do, so its ratio is "
    "a bound, too."
)
SAME_LOAD = (
    "workload",
    "tool",
    "mode",
    "connections",
    "vus",
    "iterations",
    "pool_size",
    "quota_cores",
    "database_share",
    "idle",
)
"""Columns that are equal if two loads differ only in the server's share of a core."""
LINEAR = (
    "A share of a core can stand for a whole core if the rate on the share, divided by the share, "
    "is equal to the rate on the whole core (a ratio of 1). The table has only servers that were "
    "the limit in every trial on both."
)


@lru_cache(maxsize=4)
def frame(tables: Tables, quantities: Sequence[Quantity] = OF_A_REPORT) -> pd.DataFrame:
    """Return a row for each load, quantity and server that is compared with the base.

    - `ratio` is base / server for a rate, and server / base for a cost or a time. So the base is
      ahead if the ratio is above 1.
    - `low` and `high` are the ends of the ratio's 95 % interval over sessions or blocks. If only a
      bound is known, one of these ends is 0 or infinite.
    - `why` is the reason if there is no ratio, and otherwise empty.
    - `ours` is the geometric mean of the base, and `theirs` is the geometric mean of the other
      server. The ratio is the quotient of these means.
    - `sessions` is the number of sessions or blocks that were compared.

    The frame is cached, so callers must not change it.
    """
    order = _order(tables)
    confidence = 1 - level(tables.manifest)
    rows: list[Values] = []
    for quantity in quantities:
        for _, of_load in _with_quantity(tables, quantity).groupby("load_order"):
            by_server = dict(list(of_load.groupby("server")))
            sides = [Measured(by_server[name], quantity) for name in order if name in by_server]
            base = sides[0]
            load = str(base.trials["load"].iloc[0])
            within_sessions = bool(base.trials["session"].ne("").all())
            noise = noise_floor(tables, load, quantity.column, within=within_sessions)
            for other in sides[1:]:
                dividend = base if quantity.more_is_better else other
                divisor = other if quantity.more_is_better else base
                outcome = compare(dividend, divisor, confidence=confidence, noise_floor=noise)
                rows.append(_row_of(load, base, other, outcome))
    return pd.DataFrame(rows, columns=FRAME_COLUMNS)


def _row_of(load: str, base: Measured, other: Measured, outcome: Comparison) -> Values:
    """Return the row of `frame` that compares two servers under one load."""
    fewest = min(len(base.trials), len(other.trials))
    row = {
        "quantity": base.quantity.name,
        "load": load,
        "base": str(base.trials["server"].iloc[0]),
        "server": str(other.trials["server"].iloc[0]),
        "ours": _mean_of(base),
        "theirs": _mean_of(other),
    }
    if isinstance(outcome, NotComparable):
        unknown = dict.fromkeys(("ratio", "low", "high"), math.nan)
        return row | unknown | {"sessions": fewest, "why": outcome.words}
    found = outcome.ratio if isinstance(outcome, Bound) else outcome
    means = [found.mean_a, found.mean_b]
    if not base.quantity.more_is_better:
        means.reverse()
    return row | {
        "ours": means[0],
        "theirs": means[1],
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "sessions": found.blocks or fewest,
        "why": "",
    }


def _mean_of(side: Measured) -> float:
    """Return the geometric mean of one side of a comparison.

    Return NaN if the quantity is a percentile and a trial has too few requests for this percentile.
    """
    carried = carried_quantile(float(side.trials["requests"].min()))
    return geometric_mean(side.sample) if carried >= side.quantity.quantile else math.nan


def disturbed(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the trials in disturbed sessions.

    A session is disturbed if, in one of its sealed trials, the hypervisor or other programs took so
    much CPU time that the limit is unknown. Such a session is left out for all servers under its
    load, because the disturbance does not depend on the server. But no session of a load is left
    out if fewer than `FEWEST_TRIALS` sessions would remain.
    """
    robbed = has_cause(trials, Cause.CPU_TAKEN)
    robbed &= is_sealed(trials) & trials["session"].ne("")
    return _of_blocks(trials, robbed, trials["session"])


def incomplete(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the trials in incomplete blocks.

    A block of a load is incomplete if one of the servers has no sealed trial in it. Ratios are
    computed within blocks, so an incomplete block would change the mean of a server but not the
    ratio. To keep means and ratios consistent, the block is left out for all servers. There are two
    exceptions. No block of a load is left out if fewer than `FEWEST_TRIALS` blocks would remain. No
    block is left out because of a server with fewer than `FEWEST_TRIALS` sealed trials, because
    this server has no ratio.
    """
    sealed = trials[is_sealed(trials)]
    if sealed.empty:
        return pd.Series(False, trials.index)
    blocks_of_server = sealed.groupby(["load", "server"])["block"].nunique()
    able = blocks_of_server[blocks_of_server >= FEWEST_TRIALS]
    servers_of_load = able.groupby("load").size()
    is_able = pd.MultiIndex.from_frame(sealed[["load", "server"]]).isin(able.index)
    servers_of_block = sealed[is_able].groupby(["load", "block"])["server"].nunique()
    places = pd.MultiIndex.from_frame(trials[["load", "block"]])
    here = pd.Series(servers_of_block.reindex(places).to_numpy(), trials.index).fillna(0)
    lacks_one = here < trials["load"].map(servers_of_load).fillna(0)
    return _of_blocks(trials, lacks_one, trials["block"])


@lru_cache(maxsize=4)
def not_compared(tables: Tables) -> pd.Series[bool]:
    """Return a mask of the trials of disturbed sessions and of incomplete blocks.

    These trials are left out of the ratios, and of the means that are printed beside the ratios.
    The mask is cached, so callers must not change it.
    """
    is_disturbed = disturbed(tables.trials)
    rest = incomplete(tables.trials[~is_disturbed])
    return is_disturbed | rest.reindex(tables.trials.index, fill_value=False)


def compared(tables: Tables, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `trials` from which ratios and means are computed."""
    return trials[is_sealed(trials) & ~not_compared(tables).loc[trials.index]]


def _of_blocks(
    trials: pd.DataFrame, unfit: pd.Series[bool], blocks: pd.Series[Any]
) -> pd.Series[bool]:
    """Return a mask of the trials in all blocks that have a trial in the mask `unfit`.

    These trials are left out. `blocks` contains the block, or the session, of each trial. Trials
    belong to the same block only if they have the same load, too. A load keeps all of its trials
    if fewer than `FEWEST_TRIALS` of its blocks would keep a sealed trial.
    """
    out: pd.Series[bool] = unfit.groupby([trials["load"], blocks]).transform("any")
    remaining = blocks[~out & is_sealed(trials)].groupby(trials["load"]).nunique()
    return out & trials["load"].map(remaining).ge(FEWEST_TRIALS)


@lru_cache(maxsize=256)
def noise_floor(tables: Tables, load: object, column: str, *, within: bool = False) -> float:
    """Return the factor (>= 1) by which intervals of `column` are widened under a load.

    The factor is the largest ratio that noise alone caused between two names of one server (A/A).
    The factor is 1 if the run has no such labels. If comparisons are made `within` sessions, their
    intervals already include this noise (docs/method-evidence.md). Therefore the factor is 1 in
    this case, too, unless the two names differ significantly.
    """
    trials = compared(tables, tables.trials[tables.trials["load"] == load])
    factors = [1.0]
    for pair in tables.copies.items():
        sides = (trials[trials["server"] == name] for name in pair)
        same = ratio(*(sample_of(side[column], side["block"]) for side in sides))
        if same is not None and not (within and same.low <= 1 <= same.high):
            factors.append(inference.noise_floor(same))
    return max(factors)


def between(tables: Tables, one: str, other: str) -> list[float]:
    """Return the rate of server `one` divided by the rate of server `other`, under each load.

    There is a ratio for each closed load under which both servers ran. It is the quotient of the
    geometric means.
    """
    trials = compared(tables, tables.trials)
    trials = trials[trials["load_model"].eq("closed")]
    wide = trials.assign(log=np.log(trials["served_rps"])).pivot_table(
        index="load", columns="server", values="log"
    )
    return [math.exp(value) for value in (wide[one] - wide[other]).dropna()]


def _with_quantity(tables: Tables, quantity: Quantity) -> pd.DataFrame:
    """Return the compared trials in which the quantity was measured, sorted by load and block.

    Calibration servers, second names of servers (A/A), and steps of a search are left out. For a
    rate, only trials of closed loads are returned. For a response time, or a CPU peak at a rate,
    only trials of loads with a constant offered rate are returned.
    """
    trials = compared(tables, tables.trials)
    known = trials["tier"].ne(CALIBRATION) & trials["objective"].eq("")
    known &= ~trials["server"].isin(tables.copies) & (trials[quantity.column] > 0)
    if quantity.need is Need.SERVER_LIMIT:
        known &= trials["load_model"].eq("closed")
    if quantity.need is Need.NO_LIMIT:
        known &= trials["load_model"].eq("open") & (trials["steps"] <= 1)
    chosen: pd.DataFrame = trials[known].sort_values(["load_order", "block"])
    if quantity not in OF_THE_COUNTERS:
        return chosen
    return _counted(chosen, trials[trials[quantity.column].eq(0)], quantity)


def _counted(chosen: pd.DataFrame, zeros: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Return the trials among `chosen` that can be compared by a counter, such as page faults.

    A load is left out if one of its trials counted zero events (`zeros`). Zero has no logarithm, so
    such a trial cannot be part of a geometric mean, and the mean of the other trials would be too
    high. If the quantity does not depend on the load, only the load with the most servers is used.
    """
    whole = chosen[~chosen["load"].isin(zeros["load"])]
    if quantity.by_load or whole.empty:
        return whole
    servers = whole.groupby("load_order")["server"].nunique()
    return whole[whole["load_order"].isin([servers.idxmax()])]


def _order(tables: Tables) -> list[str]:
    """Return the servers in the order in which they are preferred as the base of comparisons.

    Servers that ran under more loads come first. If two servers ran under equally many loads, the
    server that takes less CPU time per request comes first. CPU time per request decides the order,
    because this quantity can be compared under every load. Yardsticks come last.
    """
    trials = _with_quantity(tables, CPU_PER_REQUEST)
    wide = trials.pivot_table(index="load", columns="server", values=CPU_PER_REQUEST.column)
    ranks = wide.rank(axis=1).mean()
    named = [name for name in identities(tables.trials) if name not in tables.copies]
    loads = wide.count()
    return sorted(
        named, key=lambda name: (name in YARDSTICKS, -loads.get(name, 0), ranks.get(name, math.inf))
    )


def words(row: Mapping[Any, Any]) -> str:
    """Return the ratio in a row of `frame` as text: `2.15 [2.05–2.26]` or `at least 2.05`.

    If there is no ratio, return the reason.
    """
    return str(row["why"]) or ratio_words(row["ratio"], row["low"], row["high"])


def table(tables: Tables, quantities: Sequence[Quantity] = OF_A_REPORT) -> pd.DataFrame:
    """Return the ratios as a table of texts, with the same rows as `frame`."""
    rows = []
    for row in frame(tables, quantities).to_dict("records"):
        quantity = CATALOGUE[row["quantity"]]
        # Name the numerator of the ratio first: the base for a rate, the other server for a cost
        # or a time.
        names = [row["base"], row["server"]]
        values = [number(row["ours"]), number(row["theirs"])]
        if not quantity.more_is_better:
            names.reverse()
            values.reverse()
        texts = (
            quantity.noun,
            " / ".join(names),
            " / ".join(values),
            words(row),
            str(row["sessions"]),
        )
        rows.append((row["load"], *texts))
    return pd.DataFrame(rows, columns=["load", "what", "pair", "values", "ratio", "sessions"])


def linearity(tables: Tables) -> pd.DataFrame:
    """Return a table of texts that shows whether the rate is proportional to the share of a core.

    There is a row for each server, load and share, if the server was the limit in all trials on the
    share and on a whole core. The ratio in a row is the server's rate on the share, divided by the
    share, and then divided by the server's rate on a whole core. A ratio of 1 means that the rate
    is proportional to the share.
    """
    rows = []
    sealed = _with_quantity(tables, THROUGHPUT)
    for _, alike in sealed.groupby(["server", *SAME_LOAD, "slices"], sort=False, dropna=False):
        whole = alike[alike["share"] == 1]
        for share, part in alike[alike["share"] < 1].groupby("share"):
            per_core = sample_of(part["served_rps"] / part["share"], part["block"])
            found = ratio(per_core, sample_of(whole["served_rps"], whole["block"]))
            if found and ranks_by_throughput(part) and ranks_by_throughput(whole):
                cell = (whole["server"].iloc[0], whole["load"].iloc[0], f"{float(str(share)):g}")
                rates = [number(found.mean_a * float(str(share))), number(found.mean_b)]
                beside = ratio_words(found.ratio, found.low, found.high)
                rows.append((*cell, *rates, beside, str(found.blocks or len(part))))
    names = ("requests/s on the share", "on the whole core", "per core / whole core", "sessions")
    return pd.DataFrame(rows, columns=["server", "load", "share", *names])


def finding(tables: Tables, quantity: Quantity, tool: str = "") -> str:
    """Return a difference between two servers in a few words, with its range over the loads.

    For example `gin takes 1.5 to 2.4 times axum's CPU time per request`. Two servers are considered
    only if their ratio is significantly above 1 under every load. The text names the two servers
    that were compared under the most loads and, among several such pairs, those that differ most.
    If `tool` is given, only loads of this tool are considered. Return an empty text if no two
    servers meet these conditions.
    """
    rows = frame(tables)
    is_asked_for = rows["quantity"].eq(quantity.name) & rows["why"].eq("")
    rows = rows[is_asked_for & ~rows["server"].isin(YARDSTICKS)]
    if tool:
        rows = rows[rows["load"].isin(tables.sealed(tool)["load"])]
    apart = {
        pair: found["ratio"]
        for pair, found in rows.groupby(["base", "server"], sort=False)
        if (found["low"] > 1).all() and (found["high"] < math.inf).all()
    }
    if not apart:
        return ""
    (base, server), found = max(
        apart.items(), key=lambda item: (len(item[1]), float(item[1].median()))
    )
    ends = (found.min(), found.max())
    times = " to ".join(dict.fromkeys(f"{end:.2g}" if end >= 10 else f"{end:.1f}" for end in ends))
    if quantity.more_is_better:
        return f"{base} does {times} times {server}'s {quantity.noun}"
    return f"{server} takes {times} times {base}'s {quantity.noun}"
