"""Compute from profiles how much CPU time per request each kind of work takes, with intervals.

The module also computes the differences between servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from runner.model import LabError
from runner.present.frames import read_table
from runner.store import RunFolder, short_name

CONFIDENCE = 0.95
UNKNOWN = "unknown"
ORDER = (
    *("kernel network", "kernel other", "scheduler", "runtime and garbage collector", "allocator"),
    *("HTTP", "routing and framework", "JSON", "hash", "database client", "application"),
    *("client protocol", "parser and planner", "executor", "storage and locks", "WAL"),
    UNKNOWN,
)
"""Categories (kinds of work) in the order of all tables and figures.

First come the categories of servers, from the kernel to the application, then the categories of
PostgreSQL.
"""
MOST_UNKNOWN = 0.15
"""A page warns about a profile if more than this share of the CPU time is in unknown functions."""


@dataclass(frozen=True)
class Microseconds:
    """A CPU time per request, or the difference of two such times, with its 95 % interval.

    `low` and `high` are NaN if there are fewer than two slices.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of_slices(cls, values: np.ndarray) -> Microseconds:
        """Return the mean of slices with Student's t interval.

        The interval is computed from one value per slice. An interval that is computed from single
        samples of call stacks would be too narrow, because samples that were taken at about the
        same time resemble each other.
        """
        mean = float(values.mean())
        if len(values) < 2:
            return cls(mean, np.nan, np.nan)
        error = float(values.std(ddof=1)) / len(values) ** 0.5
        half = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
        return cls(mean, mean - half, mean + half)

    @property
    def is_sure(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class ServerProfile:
    """The profile of a server under a load.

    `by_category` contains µs per request, with a row for each slice and a column for each category.
    """

    server: str
    load: str
    by_category: pd.DataFrame
    cpu_us_per_request: float
    """CPU time per request in the same slices, as counted by the control group (cgroup)."""

    @property
    def total(self) -> Microseconds:
        """CPU time per request, as the samples show it."""
        return Microseconds.of_slices(self.by_category.sum(axis=1).to_numpy())

    @property
    def categories(self) -> dict[str, Microseconds]:
        """CPU time per request by category, in the order of ORDER."""
        return {
            str(name): Microseconds.of_slices(self.by_category[name].to_numpy())
            for name in self.by_category
        }

    @property
    def unknown_share(self) -> float:
        """Share of the CPU time in functions that no rule assigns to a category."""
        return float(self.by_category[UNKNOWN].sum() / self.by_category.to_numpy().sum())

    def less(self, other: ServerProfile) -> Difference:
        """Return this profile minus another profile of the same load, slice by slice."""
        mine, theirs = self.by_category.align(other.by_category, join="inner", axis=0)
        return Difference(self.server, other.server, self.load, mine - theirs)


@dataclass(frozen=True)
class Difference:
    """The difference between two servers: the values of `more` minus the values of `less`.

    `by_category` contains the differences in µs per request, with a row for each slice and a column
    for each category.
    """

    more: str
    less: str
    load: str
    by_category: pd.DataFrame

    @property
    def total(self) -> Microseconds:
        """Difference in CPU time per request."""
        return Microseconds.of_slices(self.by_category.sum(axis=1).to_numpy())

    @property
    def categories(self) -> dict[str, Microseconds]:
        """Difference in CPU time per request, by category."""
        return {
            str(name): Microseconds.of_slices(self.by_category[name].to_numpy())
            for name in self.by_category
        }


@dataclass(frozen=True, eq=False)
class Profiles:
    """The profiles of a run, which are three tables of the run.

    `stacks` is the table `profiles`, `slices` is the table `profile_slices`, and `counters` is the
    table `counters`.
    """

    stacks: pd.DataFrame
    slices: pd.DataFrame
    counters: pd.DataFrame

    @property
    def loads(self) -> list[str]:
        """The profiled loads, in the order of the table of slices."""
        return list(dict.fromkeys(self.slices["load"]))

    def of(self, load: str) -> list[ServerProfile]:
        """Return the profiles of a load, with the server that needs least CPU time first."""
        found = list(self._of(load))
        return sorted(found, key=lambda each: (each.total.mean, each.server))

    def _of(self, load: str) -> Iterator[ServerProfile]:
        recorded = self.slices[self.slices["kind"].eq("recorded") & self.slices["load"].eq(load)]
        for server, slices in recorded.groupby("server"):
            stacks = self.stacks[self.stacks["trial_id"].isin(slices["trial_id"])]
            table = stacks.pivot_table(
                index="place", columns="category", values="us_per_request", aggfunc="sum"
            )
            names = [*ORDER, *sorted(set(table.columns) - set(ORDER))]
            by_category = table.reindex(index=slices["place"], columns=names).fillna(0.0)
            used = float(slices["cpu_us_per_request"].mean())
            yield ServerProfile(str(server), load, by_category, used)

    def cost(self, load: str) -> Microseconds | None:
        """Return the share by which recording call stacks raises the CPU time under a load.

        For each server, its recorded slices are compared with its plain slices of the same session.
        perf does not run in a plain slice. The result is a share with its interval, such as 0.02
        for 2 %, although its type is `Microseconds`. Return None if there are no plain slices to
        compare with.
        """
        of_load = self.slices[self.slices["load"].eq(load)].set_index("trial_id")
        used = of_load["cpu_us_per_request"]
        kind = of_load["kind"]
        recorded = used[kind.eq("recorded")].groupby("trial_id").mean()
        plain = used[kind.eq("plain")]
        ratios = (recorded.reindex(plain.index) / plain - 1).dropna()
        return Microseconds.of_slices(ratios.to_numpy()) if len(ratios) else None

    def by_stack(self, server: str, load: str) -> pd.DataFrame:
        """Return a server's CPU time per request in µs under a load.

        Each row is a category and a call stack. Each column is a recorded slice, and the column's
        name is the place of the slice in the session.
        """
        chosen = self.stacks["server"].eq(server) & self.stacks["load"].eq(load)
        mine = self.slices["server"].eq(server) & self.slices["load"].eq(load)
        places = self.slices.loc[mine & self.slices["kind"].eq("recorded"), "place"]
        table = self.stacks[chosen].pivot_table(
            index=["category", "stack"], columns="place", values="us_per_request", aggfunc="sum"
        )
        return table.reindex(columns=sorted(places)).fillna(0.0)

    def stacks_of(self, server: str, load: str) -> pd.Series[float]:
        """Return a server's call stacks under a load with their mean µs per request."""
        return self.by_stack(server, load).mean(axis=1).groupby("stack").sum().sort_index()


def read_profiles(run: RunFolder, subject: str = "server") -> Profiles | None:
    """Return the profiles of a run's servers, or of their databases (`subject`).

    `subject` is `server` or `database`. The profile of a database has the name of the server that
    sent requests to the database, and it has no counters. Return None if the run has no profiles of
    the subject.
    """
    stacks, slices = (_of_subject(read_table(run, name), subject) for name in _OF_SUBJECTS)
    counters = read_table(run, "counters")
    tables = Profiles(stacks, slices, counters if subject == "server" else counters.iloc[:0])
    return tables if len(tables.slices) else None


_OF_SUBJECTS = ("profiles", "profile_slices")


def _of_subject(table: pd.DataFrame, subject: str) -> pd.DataFrame:
    """Return the rows of a table that belong to the subject `server` or `database`.

    A row without a subject belongs to `server`, because it is from an older run, in which only
    servers were profiled.
    """
    mine = table["subject"].eq(subject)
    return table[mine | table["subject"].isna()] if subject == "server" else table[mine]


def need_profiles(run: RunFolder) -> Profiles:
    """Return the profiles of a run; raise LabError if the run has no profiles."""
    found = read_profiles(run)
    if found is None:
        raise LabError(
            f"Run {short_name(run)} has no profiles: measure with `bench run CAMPAIGN --profile`."
        )
    return found
