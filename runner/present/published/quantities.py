"""What a claim may compare of two cells: quantities, where each of them is the server's, and its value per trial."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.present.case import given_pct
from runner.present.figures import seconds
from runner.present.frames import Tables, did_at_least, limits_of, server_bound
from runner.present.look import captions, style
from runner.present.published.counterparts import WINDOWS, Counterpart, sizes
from runner.present.statistics.inference import Sample
from runner.present.statistics.stats import carried_quantile, spread


@dataclass(frozen=True)
class Bar:
    """Why a cell may not be compared, and the numbers that say so.

    With `is_floor` the cell's value is the least that the server can do, so that it bounds a ratio on one side.
    """

    why: str
    numbers: str
    is_floor: bool = False


Rule = Callable[[Tables, Counterpart], Bar | None]
"""Returns None where a quantity of a cell may be compared."""

# --- where a quantity may be compared ---------------------------------------------------------------------


def anywhere(_tables: Tables, _cell: Counterpart) -> Bar | None:
    """Allow every cell: for what is the server's, whatever was the limit."""
    return None


def at_its_limit(tables: Tables, cell: Counterpart) -> Bar | None:
    """Allow cells whose server was the limit in every trial: only then a rate is the server's.

    Where another side was the limit of some, the server can do at least what it did.
    """
    if server_bound(cell.sealed):
        return None
    return replace(_barred(tables, cell, Limit.SERVER), is_floor=did_at_least(cell.sealed))


def unlimited(tables: Tables, cell: Counterpart) -> Bar | None:
    """Allow cells whose rate was kept with nobody at the limit: only then a response time is the server's."""
    return None if limits_of(cell.sealed).eq(Limit.NONE).all() else _barred(tables, cell, Limit.NONE)


def response_time(quantile: float) -> Rule:
    """Return the rule of a percentile: enough requests beyond it; a closed loop at its limit, an open one below it."""

    def rule(tables: Tables, cell: Counterpart) -> Bar | None:
        fewest = float(cell.sealed["requests"].min())
        if carried_quantile(fewest) < quantile:
            return Bar("too few requests for the percentile", f"{fewest:,.0f} in the shortest trial")
        return (unlimited if is_open(cell) else at_its_limit)(tables, cell)

    return rule


def beyond_a_server(tables: Tables, cell: Counterpart) -> Bar | None:
    """Allow ramps that ended at the server's limit: below it the rows are those that were asked for."""
    if set(limits_of(cell.sealed)) == {Limit.NONE}:
        kept = "the ramp was kept to its end, so that the rows are those that were asked for"
        return Bar(kept, limit_numbers(tables, cell))
    return at_its_limit(tables, cell)


def room_to_rise(_tables: Tables, cell: Counterpart) -> Bar | None:
    """Allow cells whose server never filled its CPUs."""
    if not limits_of(cell.sealed).eq(Limit.SERVER).any():
        return None
    mean = style.number(spread(cell.sealed["server_cpu_mean_pct"]).median)
    return Bar("its CPUs were full, so that nothing could rise above", f"it used {mean} % of a core (mean)")


def is_open(cell: Counterpart) -> bool:
    """Whether a cell was loaded at offered rates."""
    return bool((cell.sealed["load_model"] == "open").all())


def _barred(tables: Tables, cell: Counterpart, wanted: Limit) -> Bar:
    others = set(limits_of(cell.sealed)) - {wanted}
    limit = next(limit for limit in Limit if limit in others)
    more = {Limit.SERVER: ", so that its response time is that of a queue", Limit.UNKNOWN: _reason(cell.sealed)}
    return Bar(limit.why_not + more.get(limit, ""), limit_numbers(tables, cell))


def _reason(sealed: pd.DataFrame) -> str:
    """Return why the limit is unknown, as most of the verdicts say it before their numbers."""
    reasons = sealed.loc[limits_of(sealed) == Limit.UNKNOWN, "verdict_reason"]
    heads = reasons[reasons.str.contains(": ")].str.split(r"[:,;(] ?", regex=True).str[0].str.strip()
    return f": {heads.mode().iloc[0]}" if len(heads) else ""


def limit_numbers(tables: Tables, cell: Counterpart) -> str:
    """Say what limited a cell, in numbers: verdicts, CPU of both sides, the probe, and Little's law; medians."""
    sealed, tool = cell.sealed, str(cell.sealed["tool"].iloc[0])
    shares = {"the server": _share(tables, sealed, "server"), tool: _share(tables, sealed, "generator")}
    used = [f"{who} used {100 * share:.0f} % of its CPU" for who, share in shares.items() if math.isfinite(share)]
    parts = [captions.verdict_counts(sealed), *used, _beside_probe(sealed, tool), _little(sealed)]
    exhausted = spread(sealed["pool_exhausted_pct"]).median
    parts += [f"the pool was exhausted {style.number(exhausted)} % of the time"] if math.isfinite(exhausted) else []
    return ", ".join(part for part in parts if part)


def _share(tables: Tables, trials: pd.DataFrame, subject: str) -> float:
    """Return the median share of its CPUs that a subject used; NaN where unknown."""
    given = [given_pct(tables, subject, float(threads)) for threads in trials["threads"]]
    return spread(trials[f"{subject}_cpu_mean_pct"].to_numpy(dtype=float) / np.array(given)).median


def _beside_probe(sealed: pd.DataFrame, tool: str) -> str:
    ours, probes = spread(sealed["latency_p50_ms"]).median, spread(sealed["probe_p50_ms"]).median
    # The probe keeps its connections: what new ones wait to be accepted it does not see.
    if not math.isfinite(probes) or sealed["mode"].iloc[0] != "keepalive":
        return ""
    return f"p50 {style.number(ours)} ms to {tool} and {style.number(probes)} ms to the probe"


def _little(sealed: pd.DataFrame) -> str:
    if sealed["load_model"].iloc[0] != "closed":
        return ""
    users, rate = float(sizes(sealed).iloc[0]), spread(sealed["rps"]).median
    return f"{users:,.0f} under way / {rate:,.0f} a second = {style.number(1000 * users / rate)} ms by Little's law"


# --- quantities -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """What can be compared: its noun, where it is the server's, and how a trial's value is made.

    That is the column of the same name divided by `unit`, or `value` of the trial's `points` (t_s, value) in the
    order of time.
    """

    noun: str
    rule: Rule
    unit: float = 1.0
    points: Callable[[pd.DataFrame, Tables], pd.DataFrame] | None = None
    value: Callable[[pd.DataFrame], float] = len

    def sample(self, tables: Tables, cell: Counterpart, column: str) -> Sample:
        """Return the values of a cell's sealed trials; empty where the run has none."""
        sealed = cell.sealed
        if self.points is not None:
            points = self.points(sealed, tables).sort_values("t_s")
            by_trial = {str(trial): self.value(rows) for trial, rows in points.groupby("trial_id")}
            return Sample.of(sealed["trial_id"].map(by_trial).astype(float), sealed["block"])
        return in_column(cell, column, self.unit)


def in_column(cell: Counterpart, column: str, unit: float = 1.0) -> Sample:
    """Return a column of a cell's sealed trials, divided by `unit`; empty where the run's tables lack it."""
    if column not in cell.sealed.columns:
        return Sample.of([], [])
    return Sample.of(pd.to_numeric(cell.sealed[column]).astype(float) / unit, cell.sealed["block"])


def _first_second(points: pd.DataFrame) -> float:
    return float(points.loc[points["t_s"] < 1, "value"].head(1).median())


def _later_seconds(points: pd.DataFrame) -> float:
    return float(points.loc[points["t_s"] >= 1, "value"].median())


def _unsteadiness(points: pd.DataFrame) -> float:
    """Return the standard deviation of the steps of the logarithm, which a slow rise hardly changes."""
    values = points["value"].to_numpy(dtype=float)
    logs = np.log(values[values > 0])
    return float(np.diff(logs).std(ddof=1)) if logs.size > 2 else math.nan


P90 = seconds.latency(0.9)
QUANTITIES = {
    "rps": Quantity("requests/s", at_its_limit),
    "latency_p50_ms": Quantity("p50", response_time(0.5)),
    "latency_p90_ms": Quantity("p90", response_time(0.9)),
    "latency_p95_ms": Quantity("p95", response_time(0.95)),
    "latency_p99_ms": Quantity("p99", response_time(0.99)),
    "server_cpu_ms_per_request": Quantity("CPU ms/request", anywhere),
    "server_cpu_mean_pct": Quantity("CPU", unlimited),
    **{column: Quantity(f"CPU peak over {window}", room_to_rise) for window, column in WINDOWS.items()},
    "server_rss_peak_bytes": Quantity("memory in MiB", anywhere, unit=2.0**20),
    "rows_inserted": Quantity("rows", beyond_a_server),
    "p90_of_first_second": Quantity("p90 of the first second", unlimited, points=P90, value=_first_second),
    "p90_of_later_seconds": Quantity("median p90 of later seconds", unlimited, points=P90, value=_later_seconds),
    "p90_unsteadiness": Quantity("unsteadiness of p90", unlimited, points=P90, value=_unsteadiness),
    "cpu_unsteadiness": Quantity("unsteadiness of CPU", unlimited, points=seconds.cpu("server"), value=_unsteadiness),
}
"""Name as in claims.toml -> quantity; the name is a column of the trials, unless `points` are given."""
