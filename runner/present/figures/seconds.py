"""Compute a trial's values over time: rates, latency, CPU, memory, pool, and the offered rate.

`answered`, `latency`, `cpu` and `sampled` take trials and the tables of a run. These functions
return points with the columns trial_id, t_s and value, where t_s is the centre of a bin in seconds
since the load began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from runner.present.chart.value import Axis
from runner.present.frames import Tables
from runner.present.statistics.stats import Floats, histogram_quantile, sliding_mean, window_means

TIMELINE_COLUMNS = ["trial_id", "t_s", "value"]
SECONDS = "seconds since the load began"
TIME = Axis(SECONDS, SECONDS, " s")
CPU = Axis("CPU, %", "CPU in % of a core", " %")
FINE_S = 0.1
"""Bin width of the throughput table, in seconds."""
SECOND_S = 1.0
"""Bin width, in seconds, of all series that do not have bins of `FINE_S`."""
SHORT_LOAD_S = 20.0
"""A load that is shorter than this many seconds has bins of `FINE_S` instead of `SECOND_S`."""
BINS = f"means over {SECOND_S:g} s ({FINE_S:g} s where a trial is under {SHORT_LOAD_S:g} s)"
FEWEST_BEYOND = 10
"""A percentile of one second is drawn only if at least this many requests lie beyond it.

The relative standard error of a count of 10 requests is 1/sqrt(10) = 32 %.
"""
SUSTAINED_SHARE = 0.98
"""A step's rate is sustained if at least this share of its requests succeeds during the step."""
SPARE = 2.0
"""A step is sustained even if the share `SUSTAINED_SHARE` is missed by this many requests.

The reason is that these requests may still be under way when the step ends.
"""


def bin_width(trials: pd.DataFrame) -> float:
    """Return the width of the bins for rates and CPU use, in seconds.

    The width is 1 s, or 0.1 s if a trial lasts less than 20 s. With these widths, the line of a
    long load has at least 20 points, and a short ramp has several points per step.
    """
    return FINE_S if trials["duration_s"].min() < SHORT_LOAD_S else SECOND_S


def usage(samples: pd.DataFrame, window_s: float, end_s: float = math.inf) -> pd.DataFrame:
    """Return a program's mean CPU use over the `window_s` seconds before each sample.

    The columns are t_s, which is the time of the sample, and cpu_pct, which is 100 if one core is
    busy. `samples` are the rows that the resources table contains for the program in one trial. A
    value is left out if its `window_s` seconds are not inside the load, which ends at `end_s`.
    """
    rows = samples[samples["cpu_pct"].notna()].sort_values("t_s")
    t_s, cpu_pct = sliding_mean(rows["t_s"], rows["dt_s"], rows["cpu_pct"], window_s)
    points = pd.DataFrame({"t_s": t_s, "cpu_pct": cpu_pct})
    return points[points["t_s"].between(window_s - 1e-6, end_s)]


def answered(trials: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return the rate of successes (2xx or 3xx) per second, in bins of `bin_width`.

    A ramp is cut off at the end of its last step. After this step, no requests are sent, so all
    later answers belong to requests that waited in a queue.
    """
    width = bin_width(trials)
    trials = trials.assign(
        duration_s=trials["duration_s"].clip(upper=trials["steps"] * trials["step_s"])
    )

    def good(rows: pd.DataFrame) -> pd.Series[float]:
        return rates_in_bins(
            rows["t_s"], rows["requests"] - rows["failed"], width, rows["t_s"].max() + FINE_S
        )

    return _each(trials, tables.throughput, good, width)


def rates_in_bins(
    t_s: pd.Series[float], counts: pd.Series[float], width: float, end_s: float
) -> pd.Series[float]:
    """Return counts per second in the full bins up to `end_s`, indexed by the start of the bin.

    The result has at least one bin. The value of an empty bin is 0.
    """
    bins = max(1, int(np.floor(end_s / width + 1e-6)))
    # The times t_s are multiples of 0.1 s, apart from rounding errors. Add 0.05 s, so that a
    # rounding error does not move a count into the bin before.
    number = np.floor((t_s + FINE_S / 2) / width).astype(int)
    found = counts.groupby(number).sum().reindex(range(bins), fill_value=0) / width
    return found.set_axis(found.index * width)


def latency(trials: pd.DataFrame, tables: Tables, quantile: float) -> pd.DataFrame:
    """Return a quantile of the latencies in each second, in ms.

    A second is left out if fewer than `FEWEST_BEYOND` of its requests lie beyond the quantile.
    """
    rows = tables.latency[tables.latency["trial_id"].isin(trials["trial_id"])]
    found = [
        (
            *place,
            float(
                histogram_quantile(each["lower_ms"], each["upper_ms"], each["count"], quantile)[0]
            ),
        )
        for place, each in rows.assign(t_s=rows["second"] + 0.5).groupby(["trial_id", "t_s"])
        if each["count"].sum() * (1 - quantile) >= FEWEST_BEYOND - 1e-9
    ]
    return _within(pd.DataFrame(found, columns=TIMELINE_COLUMNS), trials)


def cpu(trials: pd.DataFrame, tables: Tables, subject: str) -> pd.DataFrame:
    """Return the mean CPU use of a program in each bin, in % of a core.

    `subject` is `server`, `generator` or `database`. The function `bin_width` gives the width of
    the bins.
    """
    width = bin_width(trials)
    samples = tables.resources

    def windows(rows: pd.DataFrame) -> pd.Series[float]:
        edges: Floats = np.arange(0.0, rows["t_s"].max() + 1e-6, width)
        return pd.Series(
            window_means(rows["t_s"], rows["dt_s"], rows["cpu_pct"], edges), edges[:-1]
        ).dropna()

    known = samples[samples["subject"].eq(subject) & samples["cpu_pct"].notna()]
    return _each(trials, known.sort_values("t_s"), windows, width)


def sampled(trials: pd.DataFrame, tables: Tables, column: str, unit: float = 1.0) -> pd.DataFrame:
    """Return the mean of a column of the server's samples in each second, divided by `unit`."""
    rows = tables.resources[tables.resources["subject"] == "server"]
    middle = rows["t_s"] - rows["dt_s"] / 2  # a sample's t_s is the end of its interval
    rows = rows.assign(t_s=np.floor(middle) + 0.5, value=rows[column] / unit)[middle >= 0]
    means = rows.dropna(subset="value").groupby(["trial_id", "t_s"])["value"].mean()
    return _within(means.reset_index(), trials)


def _each(
    trials: pd.DataFrame,
    table: pd.DataFrame,
    one: Callable[[pd.DataFrame], pd.Series[float]],
    width_s: float,
) -> pd.DataFrame:
    """Apply `one` to each trial's rows of the table, and return the results as points.

    `one` returns values indexed by the start of the bin. Trials without rows are skipped.
    """
    by_trial = table[table["trial_id"].isin(trials["trial_id"])].groupby("trial_id")
    parts = {trial_id: one(rows) for trial_id, rows in by_trial} or {"": pd.Series(dtype=float)}
    found = pd.concat(parts, names=["trial_id", "t_s"]).reset_index(name="value")
    return _within(found.assign(t_s=found["t_s"] + width_s / 2), trials, width_s)


def _within(points: pd.DataFrame, trials: pd.DataFrame, width_s: float = SECOND_S) -> pd.DataFrame:
    """Return those of `points` that belong to `trials` and whose bins end within the load."""
    # Convert the types, because the columns of an empty frame may have other types.
    points = points[TIMELINE_COLUMNS].astype({"t_s": float, "value": float})
    ends = points["trial_id"].map(trials.set_index("trial_id")["duration_s"]).astype(float)
    return points[points["t_s"] + width_s / 2 <= ends + FINE_S / 2].reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class OfferedSteps:
    """The steps of a ramp."""

    edges_s: Floats
    """Start of each step and end of the last step, in seconds since the load began."""
    rates_rps: Floats
    """Offered rate of each step."""


def offered_steps(trials: pd.DataFrame) -> OfferedSteps:
    """Return the steps of a load, given the trials of this load.

    A load without steps counts as one step, which is as long as the shortest trial.
    """
    first = trials.iloc[0]
    number = 1 if np.isnan(first["steps"]) else int(first["steps"])
    low = first["rate_rps"] if np.isnan(first["first_rate_rps"]) else first["first_rate_rps"]
    step_s = trials["duration_s"].min() if np.isnan(first["step_s"]) else float(first["step_s"])
    edges_s = np.arange(number + 1) * step_s
    return OfferedSteps(edges_s, np.linspace(low, first["rate_rps"], number))


def sustained_rps(trials: pd.DataFrame, throughput: pd.DataFrame) -> list[float]:
    """Return the highest rate up to which every step was sustained, for each trial of a load.

    The rate is 0 if the first step was not sustained. A step is sustained if enough of its requests
    succeed before the step ends. The required number is the share `SUSTAINED_SHARE` of the step's
    requests, minus `SPARE` requests.
    """
    offered = offered_steps(trials)
    asked = offered.rates_rps * np.diff(offered.edges_s)
    found = []
    for trial_id in trials["trial_id"]:
        bins = throughput[throughput["trial_id"] == trial_id]
        # Use the centre of a bin to find its step. The start is rounded, so it could fall into the
        # step before.
        succeeded = bins["requests"] - bins["failed"]
        good, _ = np.histogram(bins["t_s"] + 0.05, offered.edges_s, weights=succeeded)
        steps = int(np.logical_and.accumulate(good >= SUSTAINED_SHARE * asked - SPARE).sum())
        found.append(float(offered.rates_rps[steps - 1]) if steps else 0.0)
    return found
