"""Every published number beside ours: which load and server of a run repeat it, our value, and their ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.present.frames import MODES, Tables, is_sealed, limits_of, server_bound
from runner.present.look import captions, style
from runner.present.look.markup import NOT_RANKED
from runner.present.published.counterparts import CLOSED, Cell, cell, closed, nearest, sizes, stand_ins
from runner.present.published.numbers import METRICS, opened, threads_of
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
class Beside:
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
    language: str
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


def rows(tables: Tables, published: pd.DataFrame) -> list[Beside]:
    """Return every published number with ours, in the order of the file.

    A published server that is a language has a row for each framework that stands for it, a CPU peak for each window.
    """
    tables = tables.on_whole_cores
    return [
        _beside(tables, line, row, server, words, column)
        for line, row in enumerate(published.to_dict("records"))
        for server in standing_in(tables, row)
        for words, column in METRICS[row["metric"]].items()
    ]


def standing_in(tables: Tables, row: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return who stands for a published server: of several those that the run has, else the first."""
    names = stand_ins(row["server"])
    ran = set(closed(tables, row["scenario"])["server"])
    return tuple(name for name in names if name in ran) or names[:1]


# --- our side ---------------------------------------------------------------------------------------------


def counterpart(tables: Tables, row: Mapping[Any, Any], server: str) -> Cell:
    """Return the cell of a run that repeats a published number.

    The same number of connections for wrk, the nearest number of users for k6; where the source names none and gives
    the highest rate that it reached, the load under which the server's median rate is highest.
    """
    trials = closed(tables, row["scenario"])
    trials = trials[trials["mode"] == row["mode"]]
    size = float(row["connections"])
    sought = f"{', '.join(CLOSED.get(row['scenario'], (row['scenario'],))[:1])}, {MODES.get(row['mode'], row['mode'])}"
    if math.isnan(size):
        return cell(_fastest(trials, server), server, sought)
    by_wrk = trials["tool"].eq("wrk").all()
    chosen = trials[trials["connections"] == size] if by_wrk else nearest(trials, size)
    return cell(chosen, server, f"{sought}, {size:,.0f}")


def _fastest(trials: pd.DataFrame, server: str) -> pd.DataFrame:
    own = trials[trials["server"].eq(server) & is_sealed(trials)]
    if own.empty:
        return trials
    best = own.groupby("load")["rps"].median().idxmax()
    return trials[trials["load"] == best]


def _beside(tables: Tables, line: int, row: Mapping[Any, Any], server: str, words: str, column: str) -> Beside:
    own = counterpart(tables, row, server)
    values = _values(own.sealed, str(row["metric"]), column)
    sure, whole = median_interval(values), spread(values)
    low, high, confidence = (sure.low, sure.high, sure.confidence) if sure else (whole.low, whole.high, math.nan)
    is_rate = row["metric"] == "rps"
    return Beside(
        line=line, source=str(row["source"]), scenario=str(row["scenario"]), published_load=str(row["load"]),
        published_server=str(row["server"]), language=str(row["language"]), mode=str(row["mode"]),
        size=float(row["connections"]), metric=words, published=float(row["value"]), server=server,
        load=own.load if whole.n else "", n=whole.n, median=whole.median, low=low, high=high, confidence=confidence,
        verdicts=captions.verdict_counts(own.sealed) if whole.n else "",
        ranked=not is_rate or server_bound(own.sealed),
        remarks=_absent(row, own, whole.n) or tuple(_remarks(tables, row, own)),
    )  # fmt: skip


def _values(sealed: pd.DataFrame, metric: str, column: str) -> pd.Series[float]:
    """Return a column of the trials; of percentiles only those of trials with enough requests beyond."""
    carried = sealed["requests"].map(lambda count: carried_quantile(count) >= QUANTILES.get(metric, 0.0))
    return sealed.loc[carried.astype(bool), column]


# --- remarks ----------------------------------------------------------------------------------------------


def _remarks(tables: Tables, row: Mapping[Any, Any], own: Cell) -> list[str]:
    """Return what makes a published number and ours different things, as phrases."""
    found = _size(row, own)
    if row["metric"] == "cpu_peak":
        cpus = (tables.manifest.get("placement") or {}).get("server") or []
        found += [f"the server has {captions.plural(len(cpus), 'CPU')} here"] if cpus else []
    kind = REMARKS.get(str(row["metric"]), REMARKS["latency"] if str(row["metric"]) in QUANTILES else {})
    limits = limits_of(own.sealed).value_counts()
    found += [
        said if limits[limit] == limits.sum() else f"{said} ({limits[limit]} of {limits.sum()} trials)"
        for limit, said in kind.items()
        if limit in limits
    ]
    return found


def _absent(row: Mapping[Any, Any], own: Cell, values: int) -> tuple[str, ...]:
    """Return why there is no number of ours; empty where there is one."""
    if own.absence:
        return (own.absence,)
    if values:
        return ()
    if row["metric"] in QUANTILES:
        return ("too few requests in a trial for this percentile",)
    return ("the load was shorter than the window" if row["metric"] == "cpu_peak" else "this run did not record it",)


def _size(row: Mapping[Any, Any], own: Cell) -> list[str]:
    size, here = float(row["connections"]), float(sizes(own.sealed).iloc[0])
    if math.isnan(size):
        return ["the highest of this run's loads of the kind"]
    threads = threads_of(str(row["load"]))
    if threads and opened(int(size), threads) != size:
        count = opened(int(size), threads)
        did = f"opens {count} connections" if count else "does not start"
        return [f"published with -t{threads} -c{size:.0f}, with which wrk {did}"]
    return [f"N = {here:,.0f} instead of {size:,.0f}"] if here != size else []


# --- words ------------------------------------------------------------------------------------------------

INTERVALS = (
    "[ ]: the median's exact interval by order statistics (95 % or a little more), from six trials on. ( ): minimum to "
    "maximum of fewer, which claims nothing."
)


def printable(found: Sequence[Beside]) -> pd.DataFrame:
    """Return rows of one source and scenario as texts, without what `heading` says of all of them.

    A rate that is not the server's carries a dagger.
    """
    shared, one_load = _shared(found), len({_load(each) for each in found}) == 1
    table = pd.DataFrame([_printed(each, shared) for each in found])
    without = [*(["load"] if one_load else []), *(["remark"] if set(table["remark"]) == {"–"} else [])]
    return table.drop(columns=without)


def heading(found: Sequence[Beside]) -> str:
    """Return what rows of one source and scenario are about: load, source, how it was published."""
    first, loads = found[0], {_load(each) for each in found}
    load = f", {next(iter(loads))}" if len(loads) == 1 else ""
    return f"{first.scenario}{load}: {first.source}; {first.published_load}"


def remark_of_all(found: Sequence[Beside]) -> str:
    """Return what is to be remarked of every row that has a number of ours; empty where there is nothing."""
    shared = _shared(found)
    return f"All of these: {'; '.join(shared)}." if shared else ""


def _shared(found: Sequence[Beside]) -> tuple[str, ...]:
    """Return the remarks that every row with a number of ours has, of several such rows."""
    ours = [each.remarks for each in found if each.n]
    return tuple(remark for remark in ours[0] if all(remark in each for each in ours)) if len(ours) > 1 else ()


def _load(each: Beside) -> str:
    size = "" if math.isnan(each.size) else f"{each.size:,.0f}"
    return ", ".join(part for part in (MODES.get(each.mode, each.mode), size) if part)


def _printed(each: Beside, shared: Sequence[str]) -> dict[str, str]:
    mark = "" if each.ranked else f" {NOT_RANKED}"
    middle, *ends = (f"{end:.3f}" if end < 10 else style.number(end) for end in each.ratio)
    same = each.server == each.published_server
    return {
        "server": each.server if same else f"{each.published_server} → {each.server}",
        "load": _load(each),
        "metric": each.metric,
        "published": style.number(each.published),
        "here": f"{style.number(each.median)}{_ends(each, (each.low, each.high))}{mark}" if each.n else "–",
        "trials": str(each.n),
        "here / published": f"{middle}{_ends(each, each.ratio[1:], ends)}" if each.n else "–",
        "verdicts": each.verdicts or "–",
        "remark": "; ".join(remark for remark in each.remarks if remark not in shared) or "–",
    }


def _ends(each: Beside, ends: Sequence[float], printed: Sequence[str] = ()) -> str:
    """Return the ends in brackets that say what they are; nothing for a single trial."""
    if each.n < 2:
        return ""
    text = "–".join(printed or map(style.number, ends))
    return f" [{text}]" if math.isfinite(each.confidence) else f" ({text})"
