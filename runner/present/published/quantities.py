"""What a claim may compare of two cells: quantities, where each of them is the server's, and its value per trial."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.present.figures import seconds
from runner.present.frames import Tables, did_at_least, did_the_work, given_pct, limits_of, server_bound
from runner.present.look import captions
from runner.present.look.style import number
from runner.present.published.counterparts import WINDOWS, Counterpart, sizes
from runner.present.statistics.inference import Sample, sample_of
from runner.present.statistics.stats import carried_quantile, spread


@dataclass(frozen=True)
class Obstacle:
    """Why a cell may not be compared, and the numbers that say so.

    `limit` is what stood in the way, where it is a limit. With `is_floor` the cell's value is the least that the server
    can do, so that it bounds a ratio on one side.
    """

    why: str
    numbers: str
    limit: Limit | None = None
    is_floor: bool = False


Rule = Callable[[Tables, Counterpart], Obstacle | None]  # returns None where a quantity of a cell may be compared


def at_its_limit(tables: Tables, cell: Counterpart) -> Obstacle | None:
    """Allow cells whose server was the limit in every trial: only then a rate is the server's.

    Where another side was the limit of some, the server can do at least what it did.
    """
    if server_bound(cell.sealed):
        return None
    return replace(_obstacle(tables, cell, Limit.SERVER), is_floor=did_at_least(cell.sealed))


def the_work(tables: Tables, cell: Counterpart) -> Obstacle | None:
    """Allow cells whose requests were answered with success: the cost of errors is not that of the work."""
    if did_the_work(cell.sealed):
        return None
    return Obstacle("more than 1 in 1000 requests failed", limit_numbers(tables, cell))


def unlimited(tables: Tables, cell: Counterpart) -> Obstacle | None:
    """Allow cells whose rate was kept with nobody at the limit: only then a response time is the server's."""
    return None if limits_of(cell.sealed).eq(Limit.NONE).all() else _obstacle(tables, cell, Limit.NONE)


def response_time(tables: Tables, cell: Counterpart, quantile: float) -> Obstacle | None:
    """Allow percentiles with enough requests beyond them, of a closed loop at its limit or an open one below it."""
    fewest = float(cell.sealed["requests"].min())
    if carried_quantile(fewest) < quantile:
        return Obstacle("too few requests for the percentile", f"{fewest:,.0f} in the shortest trial")
    return (unlimited if cell.sealed["load_model"].eq("open").all() else at_its_limit)(tables, cell)


def beyond_a_server(tables: Tables, cell: Counterpart) -> Obstacle | None:
    """Allow ramps that ended at the server's limit: below it the rows are those that were asked for."""
    if unlimited(tables, cell) is None:
        kept = "the ramp was kept to its end, so that the rows are those that were asked for"
        return Obstacle(kept, limit_numbers(tables, cell))
    return at_its_limit(tables, cell)


def room_to_rise(_tables: Tables, cell: Counterpart) -> Obstacle | None:
    """Allow cells whose server never filled its CPUs."""
    if not limits_of(cell.sealed).eq(Limit.SERVER).any():
        return None
    mean = number(spread(cell.sealed["server_cpu_mean_pct"]).median)
    return Obstacle("its CPUs were full, so that nothing could rise above", f"it used {mean} % of a core (mean)")


def _obstacle(tables: Tables, cell: Counterpart, wanted: Limit) -> Obstacle:
    """Return which limit stood in the way; why it is unknown, as most verdicts say it before their numbers."""
    limits = limits_of(cell.sealed)
    limit = next(limit for limit in Limit if limit in set(limits) - {wanted})
    more = ", so that its response time is that of a queue" if limit == Limit.SERVER else ""
    if limit == Limit.UNKNOWN:
        reasons = cell.sealed.loc[limits == Limit.UNKNOWN, "verdict_reason"]
        heads = reasons[reasons.str.contains(": ")].str.split(r"[:,;(] ?", regex=True).str[0].str.strip()
        more = f": {heads.mode().iloc[0]}" if len(heads) else ""
    return Obstacle(limit.why_not + more, limit_numbers(tables, cell), limit)


def limit_numbers(tables: Tables, cell: Counterpart) -> str:
    """Say what limited a cell, in numbers: verdicts, CPU of both sides, the probe, and Little's law; medians."""
    sealed = cell.sealed
    first = sealed.iloc[0]
    rate, p50, probe_p50, exhausted = (
        spread(sealed[name]).median for name in ("rps", "latency_p50_ms", "probe_p50_ms", "pool_exhausted_pct")
    )
    said = [captions.verdict_counts(sealed)]
    for who, subject in (("the server", "server"), (first["tool"], "generator")):
        given = np.array([given_pct(tables, subject, float(threads)) for threads in sealed["threads"]])
        if subject == "server":
            given = np.minimum(given, 100 * sealed["quota_cores"].to_numpy(dtype=float))
        share = spread(sealed[f"{subject}_cpu_mean_pct"].to_numpy(dtype=float) / given).median
        said += [f"{who} used {100 * share:.0f} % of its CPU"] if math.isfinite(share) else []
    # The probe keeps its connections: what new ones wait to be accepted it does not see.
    if math.isfinite(probe_p50) and first["mode"] == "keepalive":
        said.append(f"p50 {number(p50)} ms to {first['tool']} and {number(probe_p50)} ms to the probe")
    if first["load_model"] == "closed":
        size = float(sizes(sealed).iloc[0])
        said.append(f"{size:,.0f} under way / {rate:,.0f} a second = {number(1000 * size / rate)} ms by Little's law")
    if math.isfinite(exhausted):
        said.append(f"the pool was exhausted {number(exhausted)} % of the time")
    return ", ".join(said)


@dataclass(frozen=True)
class Quantity:
    """What can be compared: its noun, and the rule where it is the server's; without one, whatever was the limit.

    A trial's value is the column `name` divided by `unit`, or `value` of the trial's `points`: values by time, t_s.
    """

    name: str
    noun: str
    rule: Rule | None = None
    points: Callable[[pd.DataFrame, Tables], pd.DataFrame] | None = None
    value: Callable[[pd.Series[float]], float] = len
    unit: float = 1.0

    def sample(self, tables: Tables, cell: Counterpart) -> Sample:
        """Return the values of a cell's sealed trials."""
        trials = cell.sealed
        if self.points is None:
            return sample_of(trials[self.name] / self.unit, trials["block"])
        points = self.points(trials, tables).sort_values("t_s").set_index("t_s")
        by_trial = points.groupby("trial_id")["value"].agg(self.value)
        return sample_of(trials["trial_id"].map(by_trial).astype(float), trials["block"])


def _unsteadiness(values: pd.Series[float]) -> float:
    """Return the standard deviation of the steps of the logarithm, which a slow rise hardly changes."""
    logs = np.log(values[values > 0])
    return float(np.diff(logs).std(ddof=1)) if logs.size > 2 else math.nan


P90 = partial(seconds.latency, quantile=0.9)
CPU = partial(seconds.cpu, subject="server")
_KNOWN = (
    Quantity("served_rps", "requests/s", at_its_limit),
    *(Quantity(f"latency_p{q}_ms", f"p{q}", partial(response_time, quantile=q / 100)) for q in (50, 90, 95, 99)),
    Quantity("server_cpu_ms_per_request", "CPU ms/request", the_work),
    Quantity("server_cpu_mean_pct", "CPU", unlimited),
    *(Quantity(column, f"CPU peak over {window}", room_to_rise) for window, column in WINDOWS.items()),
    Quantity("server_rss_peak_bytes", "memory in MiB", the_work, unit=2.0**20),
    Quantity("rows_inserted", "rows", beyond_a_server),
    Quantity("p90_of_first_second", "p90 of the first second", unlimited, P90, lambda ms: ms[ms.index < 1].median()),
    Quantity("p90_of_later_seconds", "median p90 of later seconds", unlimited, P90, lambda ms: ms.loc[1:].median()),
    Quantity("p90_unsteadiness", "unsteadiness of p90", unlimited, P90, _unsteadiness),
    Quantity("cpu_unsteadiness", "unsteadiness of CPU", unlimited, CPU, _unsteadiness),
)
QUANTITIES = {quantity.name: quantity for quantity in _KNOWN}
"""Name as in claims.toml -> quantity; the name is a column of the trials, unless `points` are given."""
