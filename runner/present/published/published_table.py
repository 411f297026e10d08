"""Every published number beside ours: which load and server of a run repeat it, our value, and their ratio.

The page has a row per published number; the report has two short tables of the same numbers, one per kind of load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.present.frames import MODES, Tables, is_sealed, limits_of, server_bound
from runner.present.look import captions, style
from runner.present.look.content import NOT_RANKED
from runner.present.look.palette import identities
from runner.present.published import counterparts
from runner.present.published.counterparts import CLOSED, METRICS, Counterpart, closed, on_most, sizes
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


@dataclass(frozen=True)
class Row:
    """A published number and ours; without ours `n` is 0 and `remarks` has the reason.

    `low` and `high` are the median's exact 95 % interval, whose coverage is `confidence`; where there are too few
    trials for one, minimum and maximum, and `confidence` is NaN. The ratio and its ends are ours / published.
    """

    line: int
    """Which of the published numbers this is, from 0; several rows may be of one."""
    source: str
    scenario: str
    published_load: str
    published_server: str
    mode: str
    size: float
    metric: str
    published: float
    server: str
    load: str
    n: int
    median: float
    low: float
    high: float
    confidence: float
    verdicts: str
    ranked: bool
    """Whether a rate is the server's; true of what is no rate."""
    remarks: tuple[str, ...]
    """What makes the two different things, as phrases."""

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Ours / published: of the median, and of the ends."""
        return self.median / self.published, self.low / self.published, self.high / self.published


def rows(tables: Tables, published: pd.DataFrame) -> list[Row]:
    """Return every published number with ours, in the order of the file.

    A published server that is a language has a row for each framework that stands for it, a CPU peak for each window.
    """
    return [
        _row(tables, line, number, server, words, column)
        for line, number in enumerate(published.to_dict("records"))
        for server in standing_in(tables, number)
        for words, column in METRICS[number["metric"]].items()
    ]


def standing_in(tables: Tables, number: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return who stands for a published server: of several those that the run has, else the first."""
    return counterparts.standing_in(number["server"], set(closed(tables, number["scenario"])["server"]))


def counterpart(tables: Tables, number: Mapping[Any, Any], server: str) -> Counterpart:
    """Return the cell of a run that repeats a published number.

    The same number of connections for wrk, the nearest number of users for k6, on the largest share of a core; where
    the source names none and gives the highest rate that it reached, the load under which the server's median rate is
    highest.
    """
    scenario, mode, size = str(number["scenario"]), str(number["mode"]), float(number["connections"])
    trials = closed(tables, scenario)
    trials = trials[trials["mode"] == mode]
    if number["metric"] == "cpu_peak":  # under a quota nothing peaks
        trials = trials[trials["share"] == 1]
    sought = f"{CLOSED.get(scenario, (scenario,))[0]}, {MODES.get(mode, mode)}"
    if math.isnan(size):
        own = trials[trials["server"].eq(server) & is_sealed(trials)]
        rates = own.groupby("load")["rps"].median()
        return counterparts.cell(trials[trials["load"] == rates.idxmax()] if len(rates) else trials, server, sought)
    by_wrk = trials["tool"].eq("wrk").all()
    chosen = trials[trials["connections"] == size] if by_wrk else counterparts.nearest(trials, size)
    return counterparts.cell(on_most(chosen), server, f"{sought}, {size:,.0f}")


def _row(tables: Tables, line: int, number: Mapping[Any, Any], server: str, words: str, column: str) -> Row:
    cell, metric = counterpart(tables, number, server), str(number["metric"])
    carried = cell.sealed["requests"].map(lambda count: carried_quantile(count) >= QUANTILES.get(metric, 0.0))
    values = cell.sealed.loc[carried.astype(bool), column]
    sure, whole = median_interval(values), spread(values)
    low, high, confidence = (sure.low, sure.high, sure.confidence) if sure else (whole.low, whole.high, math.nan)
    return Row(
        line=line, source=str(number["source"]), scenario=str(number["scenario"]), published_load=str(number["load"]),
        published_server=str(number["server"]), mode=str(number["mode"]), size=float(number["connections"]),
        metric=words, published=float(number["value"]), server=server, load=cell.load if whole.n else "", n=whole.n,
        median=whole.median, low=low, high=high, confidence=confidence,
        verdicts=captions.verdict_counts(cell.sealed) if whole.n else "",
        ranked=metric != "rps" or server_bound(cell.sealed),
        remarks=tuple(_remarks(tables, number, cell) if whole.n else [cell.absence or ABSENT.get(metric, UNRECORDED)]),
    )  # fmt: skip


# --- remarks ----------------------------------------------------------------------------------------------

UNRECORDED = "this run did not record it"
ABSENT = {
    **dict.fromkeys(QUANTILES, "too few requests in a trial for this percentile"),
    "cpu_peak": "the load was shorter than the window",
}
"""Published metric -> why a sealed cell has no number of it."""


def _remarks(tables: Tables, number: Mapping[Any, Any], cell: Counterpart) -> list[str]:
    """Return what makes a published number and ours different things, as phrases."""
    metric, found = str(number["metric"]), _size(number, cell)
    cpus = (tables.manifest.get("placement") or {}).get("server") or []
    if metric == "cpu_peak" and cpus:
        found.append(f"the server has {captions.plural(len(cpus), 'CPU')} here")
    limits = limits_of(cell.sealed).value_counts()
    found += [
        said if limits[limit] == limits.sum() else f"{said} ({limits[limit]} of {limits.sum()} trials)"
        for limit, said in REMARKS["latency" if metric in QUANTILES else metric].items()
        if limit in limits
    ]
    return found


def _size(number: Mapping[Any, Any], cell: Counterpart) -> list[str]:
    size, here = float(number["connections"]), float(sizes(cell.sealed).iloc[0])
    share = float(cell.sealed["share"].iloc[0])
    found = [f"on {share:g} of a core"] if share < 1 else []
    if math.isnan(size):
        return [*found, "the highest of this run's loads of the kind"]
    threads = counterparts.threads_of(str(number["load"]))
    if threads and (count := counterparts.opened(int(size), threads)) != size:
        did = f"opens {count} connections" if count else "does not start"
        return [*found, f"published with -t{threads} -c{size:.0f}, with which wrk {did}"]
    return [*found, f"N = {here:,.0f} instead of {size:,.0f}"] if here != size else found


# --- words ------------------------------------------------------------------------------------------------

INTERVALS = (
    "[ ]: the median's exact interval by order statistics (95 % or a little more), from six trials on. ( ): minimum to "
    "maximum of fewer, which claims nothing."
)


def printable(found: Sequence[Row]) -> pd.DataFrame:
    """Return rows of one source and scenario as texts, without what `heading` says of all of them.

    A rate that is not the server's carries a dagger.
    """
    shared, one_load = _shared(found), len({_load(row) for row in found}) == 1
    table = pd.DataFrame([_printed(row, shared) for row in found])
    without = [*(["load"] if one_load else []), *(["remark"] if set(table["remark"]) == {"–"} else [])]
    return table.drop(columns=without)


def heading(found: Sequence[Row]) -> str:
    """Return what rows of one source and scenario are about: load, source, how it was published."""
    first, loads = found[0], {_load(row) for row in found}
    load = f", {next(iter(loads))}" if len(loads) == 1 else ""
    return f"{first.scenario}{load}: {first.source}; {first.published_load}"


def remark_of_all(found: Sequence[Row]) -> str:
    """Return what is to be remarked of every row that has a number of ours; empty where there is nothing."""
    shared = _shared(found)
    return f"All of these: {'; '.join(shared)}." if shared else ""


def _shared(found: Sequence[Row]) -> tuple[str, ...]:
    """Return the remarks that every row with a number of ours has, of several such rows."""
    ours = [row.remarks for row in found if row.n]
    return tuple(remark for remark in ours[0] if all(remark in each for each in ours)) if len(ours) > 1 else ()


def _load(row: Row) -> str:
    size = "" if math.isnan(row.size) else f"{row.size:,.0f}"
    return ", ".join(part for part in (MODES.get(row.mode, row.mode), size) if part)


def _printed(row: Row, shared: Sequence[str]) -> dict[str, str]:
    mark = "" if row.ranked else f" {NOT_RANKED}"
    middle, *ends = (f"{end:.3f}" if end < 10 else style.number(end) for end in row.ratio)
    same = row.server == row.published_server
    return {
        "server": row.server if same else f"{row.published_server} → {row.server}",
        "load": _load(row),
        "metric": row.metric,
        "published": style.number(row.published),
        "here": f"{style.number(row.median)}{_ends(row, map(style.number, (row.low, row.high)))}{mark}"
        if row.n
        else "–",
        "trials": str(row.n),
        "here / published": f"{middle}{_ends(row, ends)}" if row.n else "–",
        "verdicts": row.verdicts or "–",
        "remark": "; ".join(remark for remark in row.remarks if remark not in shared) or "–",
    }


def _ends(row: Row, ends: Iterable[str]) -> str:
    """Return the ends in brackets that say what they are; nothing for a single trial."""
    if row.n < 2:
        return ""
    return f" [{'–'.join(ends)}]" if math.isfinite(row.confidence) else f" ({'–'.join(ends)})"


# --- the short tables of the report -----------------------------------------------------------------------


def matrix_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the wrk matrix beside the published one, as texts: one row per mode and number of connections.

    Ours is `median [minimum–maximum]`; the ratio is of medians. A dagger marks what may not be ranked.
    Empty where the run has no trial of that workload.
    """
    theirs = published[(published["scenario"] == "count") & (published["metric"] == "rps")]
    trials = tables.sealed("wrk")
    trials = trials[
        trials["workload"].isin(CLOSED["count"]) & trials["connections"].notna() & trials["mode"].isin(MODES)
    ]
    compared = list(dict.fromkeys(theirs["server"]))
    others = [name for name in identities(tables.trials) if name in set(trials["server"]) - set(compared)]
    lines = []
    for mode, number in sorted(set(zip(trials["mode"], trials["connections"], strict=True)), key=_by_mode):
        values = theirs[(theirs["mode"] == mode) & (theirs["connections"] == number)]
        said = dict(zip(values["server"], values["value"].astype(float), strict=True))
        cell = on_most(trials[(trials["mode"] == mode) & (trials["connections"] == number)])
        ours = {name: cell[cell["server"] == name] for name in (*compared, *others)}
        share = "" if (given := float(cell["share"].iloc[0])) == 1 else f" (on {given:g} of a core)"
        line = {"mode": MODES[mode], "connections": f"{number:.0f}{share}"}
        for name in compared:
            line |= {f"{name}, here": _ranged(ours[name]), f"{name}, published": style.number(said.get(name, math.nan))}
        for base, other in pairwise(compared):
            line[f"{other}/{base}, here"] = _ratio(ours[other], ours[base])
            line[f"{other}/{base}, published"] = style.number(said.get(other, math.nan) / said.get(base, math.nan))
        lines.append(line | {f"{name}, here": _ranged(ours[name]) for name in others})
    return pd.DataFrame(lines)


def _by_mode(load: tuple[str, float]) -> tuple[int, float]:
    return list(MODES).index(load[0]), load[1]


def _ratio(a: pd.DataFrame, b: pd.DataFrame) -> str:
    here = spread(a["rps"]).median / spread(b["rps"]).median
    ranked = math.isnan(here) or (server_bound(a) and server_bound(b))
    return style.number(here) + ("" if ranked else f" {NOT_RANKED}")


def _ranged(trials: pd.DataFrame) -> str:
    """Return `median [minimum–maximum]` of the rates, with a dagger where the server was not the limit."""
    rates = spread(trials["rps"])
    if not rates.n:
        return "–"
    mark = "" if server_bound(trials) else f" {NOT_RANKED}"
    return f"{style.number(rates.median)} [{style.number(rates.low)}–{style.number(rates.high)}]{mark}"


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
            values = said[said["metric"] == metric].astype({"value": float})
            if values.empty:
                continue
            words, column = next(iter(windows.items()))
            line = {"load": load, "metric": words}
            for name, language in names:
                known = map(style.number, values.loc[values["server"] == name, "value"])
                line[f"{name} ({language}), published"] = "; ".join(known) or "–"
            for name, language in ours.items():
                here = cell[cell["server"] == name]
                value = _ranged(here) if column == "rps" else style.number(spread(here[column]).median)
                line[f"{name} ({language}), here"] = value
            lines.append(line)
    return pd.DataFrame(lines)
