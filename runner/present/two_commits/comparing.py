"""Compare the servers of two commits quantity by quantity, using the tables of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from runner.model import JsonObject
from runner.planning.search import Objective
from runner.present.comparison.obstacle import foremost, obstacle
from runner.present.comparison.quantity import (
    CPU_PER_REQUEST,
    MEMORY,
    OF_THE_COUNTERS,
    P50,
    P90,
    P95,
    P99,
    THROUGHPUT,
    Need,
    Quantity,
)
from runner.present.comparison.ratios import compared
from runner.present.frames import Tables
from runner.present.statistics.inference import geometric_mean, sample_of
from runner.present.statistics.stats import carried_quantile
from runner.present.two_commits.decision import (
    LATER_LOOKS,
    Change,
    Effects,
    Judged,
    Outcome,
    Rule,
    judge,
)

BASE = "base"
AGAIN = "same"
HEAD = "head"
"""Labels of the servers in a run of two commits: the base, the base again, and the head.

All labels have the same length, so that the paths of the servers' folders have the same length,
too. Otherwise the server with the longer path would have its stack at other addresses, which can
change its speed.
"""
FEW_SESSIONS = "fewer than 2 complete sessions"
OF_CLOSED_LOADS = (CPU_PER_REQUEST, THROUGHPUT, MEMORY)
OF_OPEN_LOADS = (P50, P90, P95, P99)
SHOWN = OF_THE_COUNTERS
"""Quantities that only explain other quantities, and do not affect the outcome of the run."""
DECIDING = (CPU_PER_REQUEST, THROUGHPUT)
"""Quantities of the closed load that must be decided before the run may end early."""


@dataclass(frozen=True)
class Row:
    """One quantity under one load: the means of both commits, and the decision between them."""

    load: str
    quantity: Quantity
    base: float
    head: float
    judged: Judged | None
    """The decision about the quantity. It is None if the quantity cannot be compared."""
    why: str = ""
    """The reason why the quantity cannot be compared. It is empty if there is a decision."""
    is_deciding: bool = False
    """True if this quantity must be decided before the run may end early."""
    is_shown_only: bool = False
    """True if this quantity is only shown to explain other quantities (`SHOWN`)."""

    @property
    def outcome(self) -> Outcome | None:
        """The decision about head. It is None if the quantity is only shown or not comparable."""
        return None if self.judged is None or self.is_shown_only else self.judged.outcome

    @property
    def is_suspected(self) -> bool:
        """True if a difference is suspected, but further sessions have not confirmed it yet.

        It is always False for a quantity that is only shown.
        """
        return self.judged is not None and self.judged.suspected and not self.is_shown_only


@dataclass(frozen=True)
class _Followed:
    """A quantity under a load, with the trials in which the quantity has a value."""

    load: str
    quantity: Quantity
    trials: pd.DataFrame
    is_shown_only: bool

    @property
    def is_deciding(self) -> bool:
        """True if this quantity must be decided before the run may end early."""
        is_closed = bool(self.trials["load_model"].eq("closed").all())
        return self.quantity in DECIDING and is_closed


def rows_of(tables: Tables, rule: Rule, *, ended: bool) -> tuple[Row, ...]:
    """Return a row for each quantity of each load, with the decision about the quantity.

    `ended` is True if no further session follows. Each deciding quantity (`DECIDING`) is judged at
    the significance level of the rule. Each other quantity is judged at this level divided by the
    number of other quantities (Bonferroni), because each of them is a further chance of a false
    alarm. Quantities that are only shown (`SHOWN`) are not part of this number.
    """
    followed = list(_followed(tables))
    others = sum(not each.is_deciding and not each.is_shown_only for each in followed)
    strict = replace(rule, quantities=max(1, others))
    return tuple(_row(each, rule if each.is_deciding else strict, ended=ended) for each in followed)


@dataclass(frozen=True)
class Kept:
    """The number of trials of base, and of head, that kept an objective under the open load."""

    objective: str
    sessions: int
    base: int
    """Number of trials of base that kept the objective. Each session has two trials of base."""
    head: int
    """Number of trials of head that kept the objective. Each session has one trial of head."""

    @property
    def is_broken(self) -> bool:
        """True if head breaks the objective although base keeps it.

        Base keeps the objective in at least 90 % of its trials, and head in less than half of its
        trials. If head really kept the objective as often as base, these two conditions would be
        met in fewer than one of 700 runs with 6 sessions (binomial distribution). With fewer than 6
        sessions, the value is always False.
        """
        enough = self.sessions >= LATER_LOOKS[0]
        return enough and self.base >= 0.9 * 2 * self.sessions and self.head < self.sessions / 2

    @property
    def words(self) -> str:
        """A clause that says in how many trials base and head kept the objective."""
        return (
            f"{self.objective} at the common rate: base kept it in {self.base} of "
            f"{2 * self.sessions}, head in {self.head} of {self.sessions} trials"
        )


def kept_of(tables: Tables, objective: Objective) -> Kept:
    """Count the trials of base and of head that kept an objective under the open load.

    A trial keeps the objective if the percentile that the objective names is at most the limit of
    the objective, and if the trial sustained the offered rate.
    """
    trials = compared(tables, tables.trials)
    trials = trials[trials["load_model"].eq("open")]
    times_ms = trials[f"latency_{objective.percentile}_ms"]
    keeps = (times_ms <= objective.limit_ms) & trials["sustained"].eq(1)
    by_server = keeps.groupby(trials["server"]).sum()
    return Kept(
        f"{objective.percentile} <= {objective.limit_ms:g} ms",
        int(trials["server"].eq(HEAD).sum()),
        int(by_server.get(BASE, 0) + by_server.get(AGAIN, 0)),
        int(by_server.get(HEAD, 0)),
    )


def outcome_of(rows: Sequence[Row], kept: Kept | None = None) -> Outcome:
    """Return the outcome of a run of two commits, given the row of each quantity.

    `kept` is None if the run has no objective. The outcome is the first of these that applies:

    1. `WORSE` if any quantity is worse, or if head breaks the objective.
    2. `UNDECIDED` if no deciding quantity can be compared, or if one of them is not decided yet.
    3. `UNDECIDED` if a difference in any quantity is suspected but not confirmed.
    4. `BETTER` if any quantity is better.
    5. `TIE`.
    """
    found = {row.outcome for row in rows}
    if Outcome.WORSE in found or (kept is not None and kept.is_broken):
        return Outcome.WORSE
    deciding = [row for row in rows if row.is_deciding and row.judged is not None]
    if not deciding or any(row.outcome is Outcome.UNDECIDED for row in deciding):
        return Outcome.UNDECIDED
    if any(row.is_suspected for row in rows):
        return Outcome.UNDECIDED
    return Outcome.BETTER if Outcome.BETTER in found else Outcome.TIE


def is_known(rows: Sequence[Row]) -> bool:
    """Return True if the outcome of the run is known, so that no further session is needed."""
    return outcome_of(rows) is not Outcome.UNDECIDED


def sessions_of(rows: Sequence[Row]) -> int:
    """Return the number of sessions that were compared, which is the largest number in any row."""
    return max((row.judged.sessions for row in rows if row.judged is not None), default=0)


def _followed(tables: Tables) -> Iterator[_Followed]:
    trials = compared(tables, tables.trials)
    for load, of_load in trials.sort_values("load_order").groupby("load", sort=False):
        is_closed = bool(of_load["load_model"].eq("closed").all())
        judged = OF_CLOSED_LOADS if is_closed else OF_OPEN_LOADS
        shown = SHOWN if is_closed else ()
        for quantity in (*judged, *shown):
            known = of_load[of_load[quantity.column] > 0]
            if known["server"].nunique() == len((BASE, AGAIN, HEAD)) and _carries(known, quantity):
                yield _Followed(str(load), quantity, known, quantity in shown)


def _carries(trials: pd.DataFrame, quantity: Quantity) -> bool:
    """Return True if each trial has enough requests for the quantity's percentile."""
    return carried_quantile(float(trials["requests"].min())) >= quantity.quantile


def _row(followed: _Followed, rule: Rule, *, ended: bool) -> Row:
    quantity = followed.quantity
    sides = dict(list(followed.trials.groupby("server")))
    values = {
        name: sample_of(side[quantity.column] / quantity.unit, side["block"])
        for name, side in sides.items()
    }
    blocks = sorted(set.intersection(*(set(values[name].index) for name in (BASE, AGAIN, HEAD))))
    known = {name: each.loc[blocks] for name, each in values.items()}
    row = Row(
        followed.load,
        quantity,
        geometric_mean(pd.concat([known[BASE], known[AGAIN]])),
        geometric_mean(known[HEAD]),
        None,
        is_deciding=followed.is_deciding,
        is_shown_only=followed.is_shown_only,
    )
    refused = foremost(
        found for side in sides.values() if (found := obstacle(side, quantity)) is not None
    )
    if refused is not None and quantity.need is not Need.WORK:
        return replace(row, why=refused.words)
    if refused is not None or len(blocks) < 2:
        return replace(row, why=FEW_SESSIONS if refused is None else refused.words)
    base, same, head = (np.asarray(known[name], np.float64) for name in (BASE, AGAIN, HEAD))
    effects = Effects.of(base, same, head, more_is_better=quantity.more_is_better)
    return replace(row, judged=judge(effects, rule, ended=ended))


def plain(row: Row) -> Mapping[str, Any]:
    """Return a row in the form that `--json` prints. An unknown or infinite number becomes None."""
    judged = row.judged

    facts: JsonObject = {
        "load": row.load,
        "quantity": row.quantity.name,
        "unit": row.quantity.heading,
        "base": _known(row.base),
        "head": _known(row.head),
        "more_is_better": row.quantity.more_is_better,
        "decides": row.is_deciding,
        "outcome": None if row.outcome is None else row.outcome.value,
        "why": row.why or None,
    }
    if judged is None:
        return facts
    return facts | {
        "times_worse": _plain_change(judged.head),
        "noise": _plain_change(judged.same),
        "sessions": judged.sessions,
        "suspected": judged.suspected,
        "confirmed": judged.confirmed,
        "suspicions_not_confirmed": judged.cleared,
    }


def _plain_change(change: Change) -> Mapping[str, float | None]:
    return {name: _known(value) for name, value in asdict(change).items()}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
