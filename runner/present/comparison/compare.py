"""How two cells compare: a ratio with its interval, a bound of it, or why there is none."""

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
    """A ratio of which one end is not known: one of the two did at least what it did."""

    ratio: Ratio
    """Its `high` is infinite if the first could do more, its `low` is 0 if the second could."""
    obstacle: Obstacle


@dataclass(frozen=True)
class NotComparable:
    """Why two cells have no ratio."""

    obstacle: Obstacle | None
    """None if there are too few trials."""

    @property
    def words(self) -> str:
        """The reason in a few words."""
        return TOO_FEW_TRIALS if self.obstacle is None else self.obstacle.words


Comparison = Ratio | Bound | NotComparable


def sample(trials: pd.DataFrame, quantity: Quantity) -> Sample:
    """Return the values of a column of trials, in the quantity's unit, by block."""
    return sample_of(trials[quantity.column] / quantity.unit, trials["block"])


@dataclass(frozen=True, eq=False)
class Measured:
    """A quantity of a cell's sealed trials, whose values and obstacle are made once."""

    trials: pd.DataFrame
    quantity: Quantity

    @cached_property
    def sample(self) -> Sample:
        """The values, by block."""
        return sample(self.trials, self.quantity)

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """Why the quantity is not the server's; None if it is."""
        return obstacle(self.trials, self.quantity)


def compare(
    first: Measured,
    second: Measured,
    *,
    confidence: float = 0.95,
    noise_floor: float = 1.0,
) -> Comparison:
    """Return the ratio first / second of one quantity of two cells.

    `noise_floor` (>= 1) widens the interval at both ends: it is what noise alone makes.
    """
    found = ratio(first.sample, second.sample, confidence=confidence)
    widened = None if found is None else widen(found, noise_floor)
    return decide(widened, first.obstacle, second.obstacle)


def widen(found: Ratio, noise_floor: float) -> Ratio:
    """Return a ratio whose interval has the noise floor in it."""
    return replace(found, low=found.low / noise_floor, high=found.high * noise_floor)


def decide(
    found: Ratio | None, of_first: Obstacle | None, of_second: Obstacle | None
) -> Comparison:
    """Return what a ratio is worth, by what stands in the way of its two cells.

    It is whole if nothing does. It is a bound if one of the two did at least what it did and the
    other is the server's.
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
