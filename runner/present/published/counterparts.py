"""The published numbers, and what of a run repeats them: which of its loads, and which of its servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from runner.model import CALIBRATION, LabError
from runner.present.figures.ratios import disturbed
from runner.present.frames import MODES, Tables, sealed_trials
from runner.store import published_csv

COLUMNS = ("source", "year", "scenario", "load", "server", "language", "mode", "connections", "metric", "value", "unit")
WINDOWS = {"1 s": "server_cpu_peak_1s_pct", "100 ms": "server_cpu_peak_100ms_pct"}
"""A published CPU peak names no window: ours are over these."""
METRICS: dict[str, dict[str, str]] = {
    "rps": {"requests/s": "rps"},
    "latency_p50": {"p50, ms": "latency_p50_ms"},
    "latency_p90": {"p90, ms": "latency_p90_ms"},
    "latency_p95": {"p95, ms": "latency_p95_ms"},
    "cpu_peak": {f"CPU peak, %, over {window} here": column for window, column in WINDOWS.items()},
}
"""Published metric -> how it is printed, and our column for it; several where ours need a window."""
CLOSED = {
    "experiments": ("experiments",),
    "experiments-md5": ("experiments-md5",),
    "count": ("wrk-matrix", "count"),
    "static": ("static", "static-k6"),
    "postgres-insert": ("devices-insert", "devices-insert-k6"),
}
"""Published scenario -> the workloads that repeat it in closed loops."""
OPEN = {
    "experiments": ("rates",),
    "experiments-md5": ("rates-md5",),
    "static": ("static-ramp", "static-rates"),
    "postgres-insert": ("devices-insert-ramp",),
}
"""Published scenario -> the workloads that repeat it at offered rates."""
USERS = 3000
"""Virtual users of the published loads by k6."""
STAND_INS = {"rust": ("axum", "actix")}
WHY_STAND_INS = (
    "The published server `rust` is a language, not a framework: axum and actix, the two Rust frameworks that the "
    "other sources compare, stand for it, each by itself. What is said of `rust` holds here only where it holds for "
    "each of them that the run has."
)


def read_published() -> pd.DataFrame:
    """Return data/published.csv, one row per published number.

    LabError where it is missing, lacks a column, or has a metric that is not in `METRICS`.
    """
    path = published_csv()
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise LabError(f"{path} lacks the column {', '.join(missing)}.", exit_code=1)
    unknown = sorted(set(frame["metric"].astype(str)) - set(METRICS))
    if unknown:
        raise LabError(f"{path} has the metric {unknown[0]!r}; known are {', '.join(METRICS)}.", exit_code=1)
    return frame


def threads_of(load: str) -> int | None:
    """Return the threads of a published command such as `wrk -d3s -t8 -cN`; None where it names none."""
    found = re.search(r"\bwrk\b.*-t(\d+)", load)
    return int(found.group(1)) if found else None


def opened(connections: int, threads: int) -> int:
    """Return how many connections wrk opens: connections / threads, rounded down, in each thread; 0: it refuses.

    Source: wrk.c of wrk 4.0 to 4.2, and docs/method.md.
    """
    return connections // threads * threads


# --- what of a run repeats them ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counterpart:
    """One server under one load of a run: its trials, failed ones too, and who else ran under that load.

    `trials` is empty where the server, or the load, is not in the run; `load` then says what was looked for.
    """

    server: str
    load: str
    trials: pd.DataFrame
    others: tuple[str, ...]

    @cached_property
    def sealed(self) -> pd.DataFrame:
        """The trials that may be shown."""
        return sealed_trials(self.trials)

    @property
    def absence(self) -> str:
        """Why there is no number; empty where there is one."""
        if not len(self.trials) and not self.others:
            return f"this run has no load like {self.load}"
        if not len(self.trials):
            return f"{self.server} did not run under this load ({', '.join(self.others)} did)"
        if not len(self.sealed):
            return f"no trial of {self.server} under this load was sealed"
        return ""


def cell(trials: pd.DataFrame, server: str, sought: str) -> Counterpart:
    """Return a server's trials among those of one load; `sought` names the load where there are none."""
    named = trials["load"].iloc[0] if len(trials) else sought
    trials = trials[~disturbed(trials)]
    return Counterpart(
        server, str(named), trials[trials["server"] == server], tuple(sorted(set(trials["server"]) - {server}))
    )


def standing_in(server: str, ran: set[str]) -> tuple[str, ...]:
    """Return the servers of ours that stand for a published one: of several those that ran, else the first.

    That is the server itself, unless a language was published.
    """
    names = STAND_INS.get(server, (server,))
    return tuple(name for name in names if name in ran) or names[:1]


def closed(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials of a published scenario in closed loops, failed ones too, sorted by load."""
    return _chosen(tables, CLOSED.get(scenario, ()), "closed")


def offered(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials of a published scenario at offered rates, failed ones too; steps of a search are none."""
    chosen = _chosen(tables, OPEN.get(scenario, ()), "open")
    return chosen[chosen["objective"] == ""]


def _chosen(tables: Tables, workloads: tuple[str, ...], load_model: str) -> pd.DataFrame:
    trials = tables.trials
    known = trials["workload"].isin(workloads) & trials["load_model"].eq(load_model) & trials["tier"].ne(CALIBRATION)
    return trials[known].sort_values(["load_order", "trial_order"])


def without_terms(trials: pd.DataFrame) -> pd.Series[str]:
    """Return what each trial's load is called, whatever the share of a core and the slices it was measured in."""
    pairs = zip(trials["load"], trials["terms"], strict=True)
    return pd.Series([load.removesuffix(f", {terms}" * bool(terms)) for load, terms in pairs], index=trials.index)


def users(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials of a scenario by k6 under the load whose number of users is nearest to the published one."""
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
"""Kind of load -> published scenario, how its trials are chosen, and what is said where there are none."""


def connections(tables: Tables, mode: str, number: int) -> tuple[pd.DataFrame, str]:
    """Return the trials of GET /count by wrk in one mode at one number of connections, and what that load is called."""
    trials = closed(tables, "count")
    chosen = trials[(trials["mode"] == mode) & (trials["connections"] == number)]
    return chosen, f"GET /count, {MODES[mode]}, {number} connection{'s' * (number != 1)}"


def sizes(trials: pd.DataFrame) -> pd.Series[float]:
    """Return how many requests a closed loop keeps under way: virtual users of k6, connections of wrk."""
    return trials["vus"].where(trials["tool"] == "k6", trials["connections"])


def nearest(trials: pd.DataFrame, size: float) -> pd.DataFrame:
    """Return the trials of the loads whose size is nearest to `size` in ratio; all where there are none."""
    apart = (np.log(sizes(trials)) - np.log(size)).abs()
    chosen: pd.DataFrame = trials[apart == apart.min()]
    return chosen


def on_most(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials on the largest share of a core that there is."""
    chosen: pd.DataFrame = trials[trials["share"] == trials["share"].max()]
    return chosen


def repeats(tables: Tables, trials: int = 1) -> bool:
    """Return whether a run has a cell with so many sealed trials under a load that a source published."""
    every = [closed(tables, scenario) for scenario in CLOSED] + [offered(tables, scenario) for scenario in OPEN]
    known = pd.concat(every)
    counts = sealed_trials(known).groupby(["load", "server"]).size()
    return bool((counts >= trials).any())
