"""Every published number beside ours: which load and server of a run repeat it, our value, and their ratio.

The page has a row per published number; the report has two short tables of the same numbers, one per kind of load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from runner.limits import Limit
from runner.present.frames import MODES, Tables, limits_of, server_bound
from runner.present.look.captions import plural, verdict_counts
from runner.present.look.content import NOT_RANKED
from runner.present.look.palette import identities
from runner.present.look.style import number as printed
from runner.present.published import counterparts
from runner.present.published.counterparts import CLOSED, METRICS, Counterpart, Number, closed, sizes
from runner.present.statistics.inference import median_interval
from runner.present.statistics.stats import carried_quantile, spread

QUANTILES = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p95": 0.95}
REMARKS = {
    "rps": {
        Limit.GENERATOR: f"{Limit.GENERATOR.why_not}: this rate is the generator's",
        Limit.DATABASE: f"{Limit.DATABASE.why_not}: this rate is the database's",
        Limit.POOL: f"{Limit.POOL.why_not}: this rate is that of its connections",
        Limit.UNKNOWN: Limit.UNKNOWN.why_not,
    },
    "latency": {
        Limit.GENERATOR: f"{Limit.GENERATOR.why_not}: most of this time is its queue",
        Limit.SERVER: "at saturation: users / rate, by Little's law",
        Limit.UNKNOWN: Limit.UNKNOWN.why_not,
    },
    "cpu_peak": {Limit.GENERATOR: "at the rate that the generator could send"},
}
"""Kind of metric -> what limited a trial -> what that means for the number."""
ABSENT = {
    "rps": "this run did not record it",
    **dict.fromkeys(QUANTILES, "too few requests in a trial for this percentile"),
    "cpu_peak": "the load was shorter than the window",
}
"""Published metric -> why a sealed cell has no number of it."""
INTERVALS = (
    "[ ]: the median's exact interval by order statistics (95 % or a little more), from six trials on. ( ): minimum to "
    "maximum of fewer, which claims nothing."
)


@dataclass(frozen=True, eq=False)
class Row:
    """A published number and ours; without ours `n` is 0 and `remarks` has the reason.

    `low` and `high` are the median's exact 95 % interval, whose coverage is `confidence`; where there are too few
    trials for one, minimum and maximum, and `confidence` is NaN. `remarks` are what makes the two different things,
    as phrases.
    """

    number: Number
    metric: str
    cell: Counterpart
    n: int
    median: float
    low: float
    high: float
    confidence: float
    remarks: tuple[str, ...]

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Ours / published: of the median, and of the ends."""
        return self.median / self.number.value, self.low / self.number.value, self.high / self.number.value

    @property
    def ranked(self) -> bool:
        """Whether a rate is the server's; true of what is no rate."""
        return self.number.metric != "rps" or server_bound(self.cell.sealed)


def rows(tables: Tables, published: pd.DataFrame) -> list[Row]:
    """Return every published number with ours, in the order of the file.

    A published server that is a language has a row for each framework that stands for it, a CPU peak for each window.
    """
    return [
        _row(tables, number, server, words, column)
        for number in counterparts.numbers(published)
        for server in counterparts.standing_in(number.server, closed(tables, number.scenario))
        for words, column in METRICS[number.metric].items()
    ]


def _row(tables: Tables, number: Number, server: str, words: str, column: str) -> Row:
    cell = counterparts.counterpart(tables, number, server)
    carried = cell.sealed["requests"].map(carried_quantile) >= QUANTILES.get(number.metric, 0.0)
    values = cell.sealed.loc[carried, column]
    sure, whole = median_interval(values), spread(values)
    low, high, confidence = (sure.low, sure.high, sure.confidence) if sure else (whole.low, whole.high, math.nan)
    remarks = _remarks(tables, number, cell) if whole.n else [cell.absence or ABSENT[number.metric]]
    return Row(number, words, cell, whole.n, whole.median, low, high, confidence, tuple(remarks))


def _remarks(tables: Tables, number: Number, cell: Counterpart) -> list[str]:
    """Return what makes a published number and ours different things, as phrases."""
    size, here = number.connections, float(sizes(cell.sealed).iloc[0])
    share, threads = float(cell.sealed["share"].iloc[0]), counterparts.threads_of(number.load)
    found = [f"on {share:g} of a core"] if share < 1 else []
    if math.isnan(size):
        found.append("the highest of this run's loads of the kind")
    elif threads and (count := counterparts.opened(int(size), threads)) != size:
        did = f"opens {count} connections" if count else "does not start"
        found.append(f"published with -t{threads} -c{size:.0f}, with which wrk {did}")
    elif here != size:
        found.append(f"N = {here:,.0f} instead of {size:,.0f}")
    cpus = (tables.manifest.get("placement") or {}).get("server") or []
    if number.metric == "cpu_peak" and cpus:
        found.append(f"the server has {plural(len(cpus), 'CPU')} here")
    limits = limits_of(cell.sealed).value_counts()
    return found + [
        said if limits[limit] == limits.sum() else f"{said} ({limits[limit]} of {limits.sum()} trials)"
        for limit, said in REMARKS["latency" if number.metric in QUANTILES else number.metric].items()
        if limit in limits
    ]


# --- words ------------------------------------------------------------------------------------------------


def printable(found: Sequence[Row]) -> pd.DataFrame:
    """Return rows of one source and scenario as texts, without what `heading` says of all of them.

    A rate that is not the server's carries a dagger.
    """
    shared, one_load = _shared(found), len({_load(row) for row in found}) == 1
    table = pd.DataFrame([_texts(row, shared) for row in found])
    without = [*(["load"] if one_load else []), *(["remark"] if set(table["remark"]) == {"–"} else [])]
    return table.drop(columns=without)


def heading(found: Sequence[Row]) -> str:
    """Return what rows of one source and scenario are about: load, source, how it was published."""
    number, loads = found[0].number, {_load(row) for row in found}
    load = f", {next(iter(loads))}" if len(loads) == 1 else ""
    return f"{number.scenario}{load}: {number.source}; {number.load}"


def remark_of_all(found: Sequence[Row]) -> str:
    """Return what is to be remarked of every row that has a number of ours; empty where there is nothing."""
    shared = _shared(found)
    return f"All of these: {'; '.join(shared)}." if shared else ""


def _shared(found: Sequence[Row]) -> tuple[str, ...]:
    """Return the remarks that every row with a number of ours has, of several such rows."""
    ours = [row.remarks for row in found if row.n]
    return tuple(remark for remark in ours[0] if all(remark in each for each in ours)) if len(ours) > 1 else ()


def _load(row: Row) -> str:
    mode, size = row.number.mode, row.number.connections
    return MODES.get(mode, mode) + ("" if math.isnan(size) else f", {size:,.0f}")


def _texts(row: Row, shared: Sequence[str]) -> dict[str, str]:
    server, published = row.cell.server, row.number.server
    mark = "" if row.ranked else f" {NOT_RANKED}"
    here = [printed(value) for value in (row.median, row.low, row.high)]
    ratios = [f"{value:.3f}" if value < 10 else printed(value) for value in row.ratio]
    return {
        "server": server if server == published else f"{published} → {server}",
        "load": _load(row),
        "metric": row.metric,
        "published": printed(row.number.value),
        "here": f"{_with_ends(row, *here)}{mark}" if row.n else "–",
        "trials": str(row.n),
        "here / published": _with_ends(row, *ratios) if row.n else "–",
        "verdicts": verdict_counts(row.cell.sealed) if row.n else "–",
        "remark": "; ".join(remark for remark in row.remarks if remark not in shared) or "–",
    }


def _with_ends(row: Row, middle: str, low: str, high: str) -> str:
    """Return a value with its ends in brackets that say what they are; a single trial has none."""
    ends = f"[{low}–{high}]" if math.isfinite(row.confidence) else f"({low}–{high})"
    return f"{middle} {ends}" if row.n > 1 else middle


# --- the short tables of the report -----------------------------------------------------------------------


def matrix_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the wrk matrix beside the published one, as texts: one row per mode and number of connections.

    Ours is `median [minimum–maximum]`; the ratio is of medians. A dagger marks what may not be ranked.
    Empty where the run has no trial of that workload.
    """
    theirs = published[(published["scenario"] == "count") & (published["metric"] == "rps")]
    said = theirs.set_index(["mode", "connections", "server"])["value"].to_dict()
    trials = tables.sealed("wrk")
    trials = trials[trials["workload"].isin(CLOSED["count"]) & trials["mode"].isin(MODES)]
    compared = list(dict.fromkeys(theirs["server"]))
    others = [name for name in identities(tables.trials) if name in set(trials["server"]) - set(compared)]
    lines = []
    for (_, number, mode), alike in trials.groupby([trials["mode"].map(list(MODES).index), "connections", "mode"]):
        cell = alike[alike["share"] == alike["share"].max()]
        share = float(cell["share"].iloc[0])
        ours = {name: cell[cell["server"] == name] for name in (*compared, *others)}
        line = {"mode": MODES[str(mode)], "connections": f"{number:.0f}{f' (on {share:g} of a core)' * (share < 1)}"}
        value = {name: said.get((mode, number, name), math.nan) for name in compared}
        for name in compared:
            line |= {f"{name}, here": _ranged(ours[name]), f"{name}, published": printed(value[name])}
        for base, other in pairwise(compared):
            ratio = spread(ours[other]["rps"]).median / spread(ours[base]["rps"]).median
            ranked = math.isnan(ratio) or (server_bound(ours[other]) and server_bound(ours[base]))
            line[f"{other}/{base}, here"] = printed(ratio) + ("" if ranked else f" {NOT_RANKED}")
            line[f"{other}/{base}, published"] = printed(value[other] / value[base])
        lines.append(line | {f"{name}, here": _ranged(ours[name]) for name in others})
    return pd.DataFrame(lines)


def _ranged(trials: pd.DataFrame) -> str:
    """Return `median [minimum–maximum]` of the rates, with a dagger where the server was not the limit."""
    rates = spread(trials["rps"])
    if not rates.n:
        return "–"
    mark = "" if server_bound(trials) else f" {NOT_RANKED}"
    return f"{printed(rates.median)} [{printed(rates.low)}–{printed(rates.high)}]{mark}"


def experiments_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the k6 workloads beside the published ones of the same name, as texts: one row per load and metric.

    Columns are the published servers, then every server of ours that ran the workload. Several published
    values of one number stand in one cell. Empty where the run has no such workload.
    """
    trials = tables.timed("k6")
    trials = trials[trials["workload"].isin(published["scenario"])]
    theirs = published[published["scenario"].isin(trials["workload"])]
    names = list(dict.fromkeys(zip(theirs["server"], theirs["language"], strict=True)))
    languages = dict(zip(trials["server"], trials["language"], strict=True))
    ours = {name: languages[name] for name in identities(tables.trials) if name in languages}
    lines = []
    for load, cell in trials.groupby("load", sort=False):
        said = theirs[theirs["scenario"] == cell["workload"].iloc[0]]
        for metric, windows in METRICS.items():
            values = said[said["metric"] == metric]
            if values.empty:
                continue
            words, column = next(iter(windows.items()))
            line = {"load": load, "metric": words}
            for name, language in names:
                known = map(printed, values.loc[values["server"] == name, "value"])
                line[f"{name} ({language}), published"] = "; ".join(known) or "–"
            for name, language in ours.items():
                here = cell[cell["server"] == name]
                value = _ranged(here) if column == "rps" else printed(spread(here[column]).median)
                line[f"{name} ({language}), here"] = value
            lines.append(line)
    return pd.DataFrame(lines)
