"""Read the published numbers, and find the loads and servers of a run that repeat them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from runner.generator_traits import is_sized_by_connections
from runner.model import CALIBRATION, LabError
from runner.places import places
from runner.present.comparison.quantity import (
    P50,
    P90,
    P95,
    PEAK_1S,
    PEAK_100MS,
    THROUGHPUT,
    Quantity,
)
from runner.present.comparison.ratios import not_compared
from runner.present.frames import MODES, Tables, has_no_quota, is_sealed, sealed_trials
from runner.present.statistics.inference import geometric_mean


class Number(NamedTuple):
    """A published number, which is a row of data/published.csv."""

    source: str
    year: int
    scenario: str
    load: str
    server: str
    language: str
    mode: str
    connections: float
    """Number of connections or virtual users.

    It is NaN if the source gives only its highest rate, without this number.
    """
    metric: str
    value: float
    unit: str


WINDOWS = {"1 s": "server_cpu_peak_1s_pct", "100 ms": "server_cpu_peak_100ms_pct"}
"""Columns with our CPU peaks, by the length of time over which CPU use is averaged.

There are two columns, because the source does not say over which length of time it averaged the
published CPU peaks.
"""


@dataclass(frozen=True)
class OurMetric:
    """A metric that the lab measures and that corresponds to a published metric."""

    quantity: Quantity
    words: str
    window: str = ""
    """Length of time over which a CPU peak is averaged: `1 s`. Other metrics have an empty text."""

    @property
    def column(self) -> str:
        """Column of the trials table that contains the metric."""
        return self.quantity.column

    @property
    def label(self) -> str:
        """The metric's label in figures."""
        return f"{self.words}, over {self.window}" if self.window else self.words

    @property
    def name(self) -> str:
        """The metric's name without its unit: `p50`, `CPU peak over 1 s`.

        This name is used for ratios of the metric, because a ratio has no unit.
        """
        name = self.words.split(",", maxsplit=1)[0]
        return f"{name} over {self.window}" if self.window else name

    @property
    def heading(self) -> str:
        """The metric's heading in tables.

        For a CPU peak, the heading names the length of time over which this lab averages, followed
        by `here`, because the source does not name a length.
        """
        return f"{self.label} here" if self.window else self.words


METRICS: dict[str, tuple[OurMetric, ...]] = {
    "rps": (OurMetric(THROUGHPUT, "requests/s"),),
    "latency_p50": (OurMetric(P50, "p50, ms"),),
    "latency_p90": (OurMetric(P90, "p90, ms"),),
    "latency_p95": (OurMetric(P95, "p95, ms"),),
    "cpu_peak": (
        OurMetric(PEAK_1S, "CPU peak, %", "1 s"),
        OurMetric(PEAK_100MS, "CPU peak, %", "100 ms"),
    ),
}
"""Our metrics that correspond to each published metric.

A published CPU peak has two of our metrics, which are averaged over 1 s and over 100 ms.
"""
WORKLOADS = {
    "experiments": ("experiments", "rates"),
    "experiments-md5": ("experiments-md5", "rates-md5"),
    "count": ("wrk-matrix", "count"),
    "static": ("static", "static-k6", "static-ramp", "static-rates"),
    "postgres-insert": ("devices-insert", "devices-insert-k6", "devices-insert-ramp"),
}
"""Our workloads that repeat each published scenario, in closed loops or at offered rates."""
USERS = 3000  # virtual users of the published k6 loads
STAND_INS = {"rust": ("axum", "actix")}
WHY_STAND_INS = (
    "The published server `rust` is a language, not a framework: axum and actix, the two Rust "
    "frameworks that the other sources compare, stand for it, each by itself. A claim "
    "about `rust` holds here only if it holds for each of these two frameworks that ran."
)


def read_published() -> list[Number]:
    """Return the published numbers in the order of their file.

    Raise LabError if the file cannot be read, lacks a column, or has a metric that is not in
    `METRICS`.
    """
    path = places().published
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    if missing := [column for column in Number._fields if column not in frame.columns]:
        raise LabError(f"{path} lacks the column {', '.join(missing)}.", exit_code=1)
    if unknown := sorted(set(frame["metric"].astype(str)) - set(METRICS)):
        raise LabError(
            f"{path} has the unknown metric {unknown[0]!r}: use one of {', '.join(METRICS)}.",
            exit_code=1,
        )
    typed = frame.astype({"connections": float, "value": float})[list(Number._fields)]
    return [Number(*row) for row in typed.itertuples(index=False)]


def threads_of(load: str) -> int:
    """Return the number of threads in a command such as `wrk -d3s -t8 -cN`.

    Return 0 if the command does not set the number of threads.
    """
    found = re.search(r"\bwrk\b.*-t(\d+)", load)
    return int(found[1]) if found else 0


def opened(connections: int, threads: int) -> int:
    """Return the number of connections that wrk opens with the options `-c` and `-t`.

    The value of `-c` is `connections`, and the value of `-t` is `threads`.

    Each thread opens connections / threads, rounded down. Return 0 if wrk refuses to start because
    there are more threads than connections. Source: wrk.c of wrk 4.0 to 4.2, and docs/method.md.
    """
    return connections // threads * threads


# --- the trials of a run that repeat published numbers --------------------------------------------


@dataclass(frozen=True, eq=False)
class Counterpart:
    """A cell of a run (one server under one load) whose trials repeat a published measurement.

    `trials` are the server's trials under this load, including failed trials. The frame is empty if
    the run has no such trials. `others` are the other servers that ran under this load. `load` is
    the name of the load in the run. If the run lacks the load, `load` describes the missing load.
    """

    server: str
    load: str
    trials: pd.DataFrame
    others: tuple[str, ...]

    @cached_property
    def sealed(self) -> pd.DataFrame:
        """The sealed trials."""
        return sealed_trials(self.trials)

    @property
    def absence(self) -> str:
        """The reason why the cell has no numbers. A cell with sealed trials has an empty text."""
        if len(self.sealed):
            return ""
        if len(self.trials):
            return f"no trial of {self.server} under this load was sealed"
        if self.others:
            return f"{self.server} did not run under this load ({', '.join(self.others)} did)"
        return f"this run has no load like {self.load}"


def cell(trials: pd.DataFrame, server: str, sought: str) -> Counterpart:
    """Return a server's cell under one load, without trials that are left out of comparisons.

    `trials` are the trials of all servers under the load. If the run has no such trials, the cell's
    load is `sought`, which describes the missing load in words.
    """
    load = str(trials["load"].iloc[0]) if len(trials) else sought
    trials = trials[~trials["left_out"]]
    others = tuple(sorted(set(trials["server"]) - {server}))
    return Counterpart(server, load, trials[trials["server"] == server], others)


def standing_in(server: str, trials: pd.DataFrame) -> tuple[str, ...]:
    """Return our servers that correspond to a published server.

    If the published "server" is a language, return our frameworks of this language that have
    `trials`, or the first framework if none has trials. A published server that is no language
    corresponds to our server of the same name.
    """
    names = STAND_INS.get(server, (server,))
    return tuple(name for name in names if name in set(trials["server"])) or names[:1]


@lru_cache(maxsize=16)
def published_trials(tables: Tables, scenario: str = "") -> pd.DataFrame:
    """Return the trials that repeat a published scenario, sorted by load.

    Without `scenario`, return the trials that repeat any published scenario. Failed trials are
    included. Trials that are steps of a search, and trials of calibration servers, are left out.
    The additional column `left_out` is True for trials that `ratios.not_compared` excludes from
    comparisons. The frame is cached, so callers must not change the frame.
    """
    scenarios = [scenario] if scenario else WORKLOADS
    trials = tables.trials
    workloads = [workload for each in scenarios for workload in WORKLOADS.get(each, ())]
    known = (
        trials["workload"].isin(workloads)
        & trials["objective"].eq("")
        & trials["tier"].ne(CALIBRATION)
    )
    chosen = trials[known]
    return chosen.assign(left_out=not_compared(tables).loc[chosen.index]).sort_values(
        ["load_order", "trial_order"]
    )


def closed(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials that repeat a scenario in closed loops."""
    trials = published_trials(tables, scenario)
    return trials[trials["load_model"] == "closed"]


def offered(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials that repeat a scenario at offered rates."""
    trials = published_trials(tables, scenario)
    return trials[trials["load_model"] == "open"]


def users(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials of a scenario in closed loops, with about as many users as published.

    Only loads that keep their connections are considered. The load whose number of users is closest
    to `USERS` is chosen.
    """
    trials = closed(tables, scenario)
    return nearest(trials[trials["mode"] == "keepalive"], USERS)


LOADS = {
    "experiments": ("experiments", (users,), "a closed loop of experiments"),
    "experiments-md5": ("experiments-md5", (users,), "a closed loop of experiments-md5"),
    "experiments offered": ("experiments", (offered,), "experiments at offered rates"),
    "experiments-md5 offered": ("experiments-md5", (offered,), "experiments-md5 at offered rates"),
    "static": ("static", (closed, offered), "the static list in a closed loop"),
    "static closed": ("static", (closed,), "the static list in a closed loop"),
    "static offered": ("static", (offered,), "the static list at offered rates"),
    "inserts closed": ("postgres-insert", (closed,), "inserts in a closed loop"),
    "inserts offered": ("postgres-insert", (offered,), "inserts at offered rates"),
}
"""The loads that an entry of claims.toml can name in its key `load`.

The value of each load is a tuple: the published scenario, the functions that choose the load's
trials, and a description of the load. If the run has no trials of the load, the description is
printed.
"""


def connections(tables: Tables, mode: str, number: int) -> pd.DataFrame:
    """Return wrk's trials of GET /count with `number` connections in the connection mode `mode`."""
    trials = closed(tables, "count")
    chosen: pd.DataFrame = trials[(trials["mode"] == mode) & (trials["connections"] == number)]
    return chosen


def connections_words(mode: str, number: int) -> str:
    """Return a load in words: `GET /count, keep-alive, 100 connections`."""
    return f"GET /count, {MODES[mode]}, {number} connection{'s' * (number != 1)}"


def sizes(trials: pd.DataFrame) -> pd.Series[float]:
    """Return, for each trial, the number of requests that the closed loop keeps under way.

    This is the number of k6's virtual users, or of wrk's connections.
    """
    return trials["vus"].fillna(trials["connections"])


def nearest(trials: pd.DataFrame, size: float) -> pd.DataFrame:
    """Return the trials of the loads whose size is closest to `size` on a logarithmic scale."""
    apart = (np.log(sizes(trials)) - np.log(size)).abs()
    chosen: pd.DataFrame = trials[apart == apart.min()]
    return chosen


def counterpart(tables: Tables, number: Number, server: str) -> Counterpart:
    """Return the cell of a run that repeats a published number.

    For wrk, the cell has the published number of connections. For k6, the cell has the number of
    users that is closest to the published number. If there are loads on several shares of a core,
    the largest share is used. If the source gives only its highest rate, the load with the server's
    highest mean rate is used.
    """
    trials = closed(tables, number.scenario)
    trials = trials[trials["mode"] == number.mode]
    if number.metric == "cpu_peak":  # leave quotas out, because a quota cuts off CPU peaks
        trials = trials[has_no_quota(trials)]
    sought = (
        f"{WORKLOADS.get(number.scenario, (number.scenario,))[0]}, "
        f"{MODES.get(number.mode, number.mode)}"
    )
    if math.isnan(number.connections):
        rates = (
            trials[trials["server"].eq(server) & is_sealed(trials)]
            .groupby("load")["served_rps"]
            .agg(geometric_mean)
        )
        return cell(
            trials[trials["load"] == rates.idxmax()] if len(rates) else trials, server, sought
        )
    by_connections = trials["tool"].map(is_sized_by_connections).all()
    chosen = (
        trials[trials["connections"] == number.connections]
        if by_connections
        else nearest(trials, number.connections)
    )
    return cell(
        chosen[chosen["share"] == chosen["share"].max()],
        server,
        f"{sought}, {number.connections:,.0f}",
    )


def repeats(tables: Tables, trials: int = 1) -> bool:
    """Return True if the run repeats a published scenario.

    This is the case if at least one cell of such a scenario has at least `trials` sealed trials.
    """
    return bool(
        (sealed_trials(published_trials(tables)).groupby(["load", "server"]).size() >= trials).any()
    )
