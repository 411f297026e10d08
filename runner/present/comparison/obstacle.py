"""Decide if a quantity of a cell describes the server, and find the obstacle if it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from runner.present.comparison.quantity import THROUGHPUT, Need, Quantity
from runner.present.frames import (
    did_at_least,
    did_the_work,
    has_cause,
    limits_of,
    server_bound,
)
from runner.present.statistics.stats import carried_quantile
from runner.verdict.limits import Cause, Limit


class Kind(StrEnum):
    """Kind of obstacle to a comparison, with a short description as the value of each member."""

    REQUESTS_FAILED = "more than 1 in 1000 requests failed"
    TOO_FEW_REQUESTS = "too few requests for the percentile"
    ANOTHER_LIMIT = "another side was the limit"
    RATE_WAS_SET = "the load set the rate, so it is not the server's"
    RAMP_WAS_SUSTAINED = (
        "the ramp was sustained to its end, so the server inserted every row that was asked for"
    )
    CPUS_WERE_FULL = "its CPUs were full, so a peak could not be seen"


@dataclass(frozen=True)
class Obstacle:
    """The reason why a quantity of a cell does not describe the server."""

    kind: Kind
    limit: Limit | None = None
    """The limit of the trials, or None if the obstacle is not a limit."""
    cause: Cause | None = None
    """The most frequent reason why the limit of a trial is unknown.

    It is None if `limit` is not `Limit.UNKNOWN`, or if no reason is known.
    """
    is_floor: bool = False
    """True if the cell's value is a lower bound of the server's capacity in spite of the obstacle.

    A comparison with such a value gives a bound instead of a ratio.
    """

    @property
    def words(self) -> str:
        """The obstacle in a few words."""
        return self.kind.value if self.limit is None else self.limit.why_not


def obstacle(trials: pd.DataFrame, quantity: Quantity) -> Obstacle | None:
    """Return the reason why a quantity of a cell's sealed trials does not describe the server.

    Return None if the quantity describes the server.
    """
    if not did_the_work(trials):
        return Obstacle(Kind.REQUESTS_FAILED)
    by_need = _RULES[quantity.need](trials)
    if by_need is not None:
        return by_need
    if carried_quantile(float(trials["requests"].min())) < quantity.quantile:
        return Obstacle(Kind.TOO_FEW_REQUESTS)
    return None


def is_the_servers(trials: pd.DataFrame, quantity: Quantity) -> bool:
    """Return True if a quantity of a cell's sealed trials describes the server.

    Return False if there is an obstacle, or if there are no trials.
    """
    return len(trials) > 0 and obstacle(trials, quantity) is None


def ranks_by_throughput(trials: pd.DataFrame) -> bool:
    """Return True if the rate of a cell's sealed trials is the server's throughput."""
    return is_the_servers(trials, THROUGHPUT)


def foremost(obstacles: Iterable[Obstacle]) -> Obstacle | None:
    """Return the obstacle to report, or None if there is no obstacle.

    If there are several obstacles, return the one whose limit comes first in `Limit`. An obstacle
    without a limit is returned only if none of the obstacles has a limit.
    """
    order = [*Limit, None]
    return min(obstacles, key=lambda each: order.index(each.limit), default=None)


def _server_limit(trials: pd.DataFrame) -> Obstacle | None:
    if trials["load_model"].eq("open").any():
        return Obstacle(Kind.RATE_WAS_SET)
    return _at_its_limit(trials)


def _at_its_limit(trials: pd.DataFrame) -> Obstacle | None:
    if server_bound(trials):
        return None
    others = set(limits_of(trials)) - {Limit.SERVER, Limit.SERIAL} or {Limit.SERIAL}
    return _another_limit(trials, others, is_floor=did_at_least(trials))


def _no_limit(trials: pd.DataFrame) -> Obstacle | None:
    others = set(limits_of(trials[~_sustained_without_cpu(trials)])) - {Limit.NONE}
    return _another_limit(trials, others) if others else None


def _sustained_without_cpu(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the trials that sustained an offered rate although CPU use is unknown.

    Such trials come from imported files. Their limit is unknown, but their response times are
    compared, because there is no sign that server or generator was at a limit.
    """
    sustained = trials["load_model"].eq("open") & trials["dropped"].fillna(0).eq(0)
    is_imported = has_cause(trials, Cause.NO_CPU_KNOWN)
    is_imported |= has_cause(trials, Cause.GENERATOR_CPU_UNKNOWN)
    return is_imported & sustained


def _work(_trials: pd.DataFrame) -> Obstacle | None:
    return None  # `obstacle` has checked already that the work was done


def _room(trials: pd.DataFrame) -> Obstacle | None:
    was_full = limits_of(trials).eq(Limit.SERVER).any()
    return Obstacle(Kind.CPUS_WERE_FULL) if was_full else None


def _limit_of_a_ramp(trials: pd.DataFrame) -> Obstacle | None:
    if _no_limit(trials) is None:
        return Obstacle(Kind.RAMP_WAS_SUSTAINED)
    return _at_its_limit(trials)


_RULES: dict[Need, Callable[[pd.DataFrame], Obstacle | None]] = {
    Need.SERVER_LIMIT: _server_limit,
    Need.NO_LIMIT: _no_limit,
    Need.WORK: _work,
    Need.ROOM: _room,
    Need.LIMIT_OF_A_RAMP: _limit_of_a_ramp,
}


def _another_limit(trials: pd.DataFrame, others: set[Limit], *, is_floor: bool = False) -> Obstacle:
    """Return the obstacle that the trials had other limits than the quantity needs.

    `others` are these limits. The returned obstacle contains only the limit among `others` that
    comes first in `Limit`. If this limit is `UNKNOWN`, the obstacle also contains the most frequent
    reason why a trial's limit is unknown.
    """
    limit = next(limit for limit in Limit if limit in others)
    cause = _commonest_cause(trials) if limit is Limit.UNKNOWN else None
    return Obstacle(Kind.ANOTHER_LIMIT, limit, cause, is_floor)


def _commonest_cause(trials: pd.DataFrame) -> Cause | None:
    """Return the most frequent reason why the limit of a trial is unknown.

    The reason is the cause of the trial's verdict. Trials whose limit is known are ignored. Return
    None if no trial with an unknown limit has a cause.
    """
    unknown = limits_of(trials).eq(Limit.UNKNOWN)
    codes = [code for code in trials.loc[unknown, "verdict_cause"] if code]
    if not codes:
        return None
    code, _ = Counter(sorted(codes)).most_common(1)[0]
    return Cause.of(code)
