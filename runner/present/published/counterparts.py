"""Which loads of a run repeat a published one, and which of its servers stands for a published server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from runner.present.frames import MODES, Tables, sealed_trials
from runner.present.look.palette import CALIBRATION

CLOSED = {
    "experiments": ("experiments",),
    "experiments-md5": ("experiments-md5",),
    "count": ("wrk-matrix", "count"),
    "static": ("static", "static-k6"),
    "postgres-insert": ("devices-insert", "devices-insert-k6"),
}
"""Published scenario -> the workloads that repeat it in closed loops."""
OPEN = {"static": ("static-ramp", "static-rates"), "postgres-insert": ("devices-insert-ramp",)}
"""Published scenario -> the workloads that repeat it at offered rates."""
USERS = 3000
"""Virtual users of the published loads by k6."""
STAND_INS = {"rust": ("axum", "actix")}
WHY_STAND_INS = (
    "The published server `rust` is a language, not a framework: axum and actix, the two Rust frameworks that the "
    "other sources compare, stand for it, each by itself. What is said of `rust` holds here only where it holds for "
    "each of them that the run has."
)


@dataclass(frozen=True, eq=False)
class Cell:
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


def stand_ins(server: str) -> tuple[str, ...]:
    """Return the servers of ours that stand for a published one: itself, unless a language was published."""
    return STAND_INS.get(server, (server,))


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


def repeats(tables: Tables, trials: int = 1) -> bool:
    """Return whether a run has a cell with so many sealed trials under a load that a source published."""
    every = [closed(tables, scenario) for scenario in CLOSED] + [offered(tables, scenario) for scenario in OPEN]
    known = pd.concat(every)
    counts = sealed_trials(known).groupby(["load", "server"]).size()
    return bool((counts >= trials).any())


def sizes(trials: pd.DataFrame) -> pd.Series[float]:
    """Return how many requests a closed loop keeps under way: virtual users of k6, connections of wrk."""
    return trials["vus"].where(trials["tool"] == "k6", trials["connections"])


def nearest(trials: pd.DataFrame, size: float) -> pd.DataFrame:
    """Return the trials of the loads whose size is nearest to `size` in ratio; all where there are none."""
    apart = (np.log(sizes(trials)) - np.log(size)).abs()
    chosen: pd.DataFrame = trials[apart == apart.min()]
    return chosen


def of_count(tables: Tables, server: str, mode: str, connections: int) -> Cell:
    """Return a server's trials of GET /count with wrk in one mode at one number of connections."""
    trials = closed(tables, "count")
    own = trials[(trials["mode"] == mode) & (trials["connections"] == connections)]
    return cell(own, server, f"GET /count, {MODES[mode]}, {connections} connection{'s' * (connections != 1)}")


def cell(trials: pd.DataFrame, server: str, sought: str) -> Cell:
    """Return a server's trials among those of one load; `sought` names the load where there are none."""
    own = trials[trials["server"] == server]
    named = trials["load"].iloc[0] if len(trials) else sought
    return Cell(server, str(named), own, tuple(sorted(set(trials["server"]) - {server})))


def by_load(trials: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the trials of each load, in the order of the loads."""
    return {str(load): own for load, own in trials.groupby("load", sort=False)}
