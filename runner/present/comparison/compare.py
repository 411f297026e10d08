"""Compare two cells: compute their ratio or a bound of the ratio, or say why neither is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from runner.present.comparison.obstacle import Obstacle, foremost, obstacle
from runner.present.comparison.quantity import Quantity
from runner.present.statistics.inference import (
    FEWEST_TRIALS,
    Ratio,
    Sample,
    ratio,
    sample_of,
)

TOO_FEW_TRIALS = f"fewer than {FEWEST_TRIALS} trials"


@dataclass(frozen=True)
class Bound:
    """A bound of a ratio.

    The exact ratio is unknown, because the value of one of the two servers is only a lower bound of
    what this server can do.
    """

    ratio: Ratio
    """The ratio, with an interval that is open at one end.

    If the first server's value is a lower bound, the ratio may be higher, so `ratio.high` is
    infinite. If the second server's value is a lower bound, the ratio may be lower, so `ratio.low`
    is 0.
    """
    obstacle: Obstacle


@dataclass(frozen=True)
class NotComparable:
    """The reason why two cells have neither a ratio nor a bound."""

    obstacle: Obstacle | None
    """The obstacle to the comparison, or None if there are too few trials for a ratio."""

    @property
    def words(self) -> str:
        """The reason in a few words."""
        return TOO_FEW_TRIALS if self.obstacle is None else self.obstacle.words


Comparison = Ratio | Bound | NotComparable


def sample(trials: pd.DataFrame, quantity: Quantity) -> Sample:
    """Return the quantity of each trial in the quantity's unit, indexed by block."""
    return sample_of(trials[quantity.column] / quantity.unit, trials["block"])


@dataclass(frozen=True, eq=False)
class Measured:
    """A quantity of a cell's sealed trials.

    The properties `sample` and `obstacle` are computed at the first use and then cached.
    """

    trials: pd.DataFrame
    quantity: Quantity

    @cached_property
    def sample(self) -> Sample:
        """The quantity of each trial, indexed by block."""
        return sample(self.trials, self.quantity)

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """The reason why the quantity does not describe the server.

        It is None if the quantity describes the server.
        """
        return obstacle(self.trials, self.quantity)


def compare(
    first: Measured,
    second: Measured,
    *,
    confidence: float = 0.95,
    noise_floor: float = 1.0,
) -> Comparison:
    """Return the ratio of the first cell's quantity to the second cell's.

    `noise_floor` (>= 1) is the largest ratio that noise alone can cause. The interval is widened by
    this factor at both ends. If a cell has an obstacle, or too few trials, the result is a bound or
    NotComparable (see `decide`).
    """
    found = ratio(first.sample, second.sample, confidence=confidence)
    widened = None if found is None else widen(found, noise_floor)
    return decide(widened, first.obstacle, second.obstacle)


def widen(found: Ratio, noise_floor: float) -> Ratio:
    """Return the ratio with its interval widened by the noise floor."""
    return replace(found, low=found.low / noise_floor, high=found.high * noise_floor)


def decide(
    found: Ratio | None, of_first: Obstacle | None, of_second: Obstacle | None
) -> Comparison:
    """Return a ratio, a bound or NotComparable, depending on the obstacles of both cells.

    `found` is the ratio. If `found` is None, there are too few trials for a ratio, so return
    NotComparable. If neither cell has an obstacle, return the ratio. If the value of one cell is a
    lower bound and the other cell has no obstacle, return a bound. In all other cases, return
    NotComparable.
    """
    if found is None:
        return NotComparable(None)
    if of_first is None and of_second is None:
        return found
    if of_second is None and of_first is not None and of_first.is_floor:
        return Bound(replace(found, high=math.inf), of_first)
    if of_first is None and of_second is not None and of_second.is_floor:
        return Bound(replace(found, low=0.0), of_second)
    return NotComparable(foremost(each for each in (of_first, of_second) if each is not None))
