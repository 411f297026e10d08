"""Compute the values that claims compare, and give the reasons why cells cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from runner.present.comparison import quantity as catalogue
from runner.present.comparison.compare import sample
from runner.present.comparison.obstacle import Kind, Obstacle
from runner.present.comparison.quantity import Quantity
from runner.present.figures import seconds
from runner.present.frames import Tables, given_pct
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.published.counterparts import Counterpart, sizes
from runner.present.statistics.inference import Sample, sample_of
from runner.present.statistics.stats import spread
from runner.verdict.limits import Limit
from runner.verdict.words import brief_words


def obstacle_words(found: Obstacle) -> str:
    """Return the reason why a cell cannot be compared.

    If the cell's limit is unknown, the text also says why the limit is unknown.
    """
    if found.limit is Limit.SERVER:
        return f"{found.words}, so most of its response time is waiting in a queue"
    if found.cause is not None:
        return f"{found.words}: {brief_words(found.cause)}"
    return found.words


def obstacle_numbers(tables: Tables, cell: Counterpart, found: Obstacle) -> str:
    """Return, as a text, the measured numbers that show why the cell cannot be compared."""
    if found.kind is Kind.TOO_FEW_REQUESTS:
        return f"{cell.sealed['requests'].min():,.0f} in the shortest trial"
    if found.kind is Kind.CPUS_WERE_FULL:
        mean_pct = number(spread(cell.sealed["server_cpu_mean_pct"]).median)
        return f"it used {mean_pct} % of a core (mean)"
    return limit_numbers(tables, cell)


def limit_numbers(tables: Tables, cell: Counterpart) -> str:
    """Return the numbers that show what limited a cell.

    The text says how many trials have each verdict. Then it gives medians over the trials: the CPU
    use of the server and of the generator, the response times that the generator and the probe
    measured, and the share of time in which the pool was exhausted. For a closed load, it also
    gives the response time that Little's law predicts. Values that are unknown are left out.
    """
    sealed = cell.sealed
    first = sealed.iloc[0]
    rate = spread(sealed["rps"]).median
    p50 = spread(sealed["latency_p50_ms"]).median
    probe_p50 = spread(sealed["probe_p50_ms"]).median
    exhausted = spread(sealed["pool_exhausted_pct"]).median
    said = [captions.verdict_counts(sealed)]
    for who, subject in (("the server", "server"), (first["tool"], "generator")):
        given = given_pct(tables, sealed, subject)
        share = spread(sealed[f"{subject}_cpu_mean_pct"] / given).median
        said += [f"{who} used {100 * share:.0f} % of its CPU"] if math.isfinite(share) else []
    # Compare with the probe only if the load keeps its connections as the probe does. On a new
    # connection, a request also waits until the server accepts the connection.
    if math.isfinite(probe_p50) and first["mode"] == "keepalive":
        said.append(
            f"p50 {number(p50)} ms to {first['tool']} and {number(probe_p50)} ms to the probe"
        )
    if first["load_model"] == "closed":
        size = float(sizes(sealed).iloc[0])
        said.append(
            f"{size:,.0f} under way / {rate:,.0f} a second = {number(1000 * size / rate)} ms by "
            "Little's law"
        )
    if math.isfinite(exhausted):
        said.append(f"the pool was exhausted {number(exhausted)} % of the time")
    return ", ".join(said)


@dataclass(frozen=True)
class Timeline:
    """Two functions that compute a quantity of a trial from values over time, such as CPU use.

    `points` returns the values over time, and `value` makes one number of these values.
    """

    points: Callable[[pd.DataFrame, Tables], pd.DataFrame]
    """Function that returns values over time, given the trials and the tables of the run.

    The result has the columns trial_id, t_s and value.
    """
    value: Callable[[pd.Series[float]], float]
    """Function that returns one number for a trial, given its values indexed by t_s."""


def sample_for(quantity: Quantity, tables: Tables, cell: Counterpart) -> Sample:
    """Return the quantity of each sealed trial of a cell, indexed by block."""
    timeline = TIMELINES.get(quantity.name)
    trials = cell.sealed
    if timeline is None:
        return sample(trials, quantity)
    points = timeline.points(trials, tables).sort_values("t_s").set_index("t_s")
    by_trial = points.groupby("trial_id")["value"].agg(timeline.value)
    return sample_of(trials["trial_id"].map(by_trial).astype(float), trials["block"])


def _unsteadiness(values: pd.Series[float]) -> float:
    """Return a measure of how much a series of values jumps up and down.

    The measure is the standard deviation of the differences between the logarithms of successive
    values. It was chosen because a slow rise of the values hardly changes it. Return NaN if fewer
    than three values are positive.
    """
    logs = np.log(values[values > 0])
    return float(np.diff(logs).std(ddof=1)) if logs.size > 2 else math.nan


_P90 = partial(seconds.latency, quantile=0.9)
_CPU = partial(seconds.cpu, subject="server")
TIMELINES = {
    catalogue.P90_OF_FIRST_SECOND.name: Timeline(_P90, lambda ms: ms[ms.index < 1].median()),
    catalogue.P90_OF_LATER_SECONDS.name: Timeline(_P90, lambda ms: ms.loc[1:].median()),
    catalogue.P90_UNSTEADINESS.name: Timeline(_P90, _unsteadiness),
    catalogue.CPU_UNSTEADINESS.name: Timeline(_CPU, _unsteadiness),
}
"""How to compute each quantity that has no column in the trials table, by the quantity's name."""
CLAIM_QUANTITIES = {quantity.name: quantity for quantity in catalogue.OF_A_CLAIM}
"""The quantities that claims.toml can name, by name."""
