"""Decide from sessions of base, base again and head whether head is worse, better or neither.

A session has each of the three side by side, so that one session gives an effect (head against the
mean of the two bases) and a noise (base again against base). After some sessions the effects are
looked at. An alarm is a suspicion first: further sessions, which had no part in it, must confirm
it. docs/two-commits.md has the rule in words, and `benchmarks/false_alarms.py` its error rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from runner.present.statistics.inference import LOOKS, one_sample
from runner.present.statistics.stats import Floats

LATER_LOOKS = (*LOOKS, 25, 30, 36, 43, 52, 62, 75, 90, 108, 130, 156, 187)
"""Sessions after which the effects are looked at; each is about a fifth later than the one before.
"""
CONFIRMING = 4
"""Sessions after a suspicion that must confirm it."""
SUSPICION_ALPHA = 0.05
"""Two-sided level of each look for a suspicion, which alone has no consequence."""
CONFIRMING_ALPHA = 0.2
"""One-sided level at which the confirming sessions alone must show the difference."""
CONFIRMING_PART = 0.5
"""Part of the border and of the noise that the few confirming sessions alone must exceed."""
TIE_ALPHA = 0.005
"""Two-sided level of each look for a tie, which is final."""
LAST_ALPHA = 0.1
"""Two-sided level for a tie at the end of a run, which is looked at once."""
SMALLEST_FOUND = 2.0
"""A tie excludes differences of this many borders, which are found (docs/two-commits.md)."""


class Outcome(StrEnum):
    """What is known about head; the value is the word of tables and of `--json`."""

    WORSE = "worse"
    UNDECIDED = "not decided"
    BETTER = "better"
    TIE = "tie"


@dataclass(frozen=True)
class Rule:
    """What counts as a difference, and how sure it must be."""

    fail_above: float
    """Border of a difference, as a share: 0.025 for 2.5 %."""
    quantities: int = 1
    """Number of quantities that share the level of a suspicion (Bonferroni)."""

    @property
    def border(self) -> float:
        """The border as a logarithm of a ratio."""
        return math.log1p(self.fail_above)

    @property
    def excluded(self) -> float:
        """The difference that a tie excludes, as a logarithm of a ratio."""
        return math.log1p(SMALLEST_FOUND * self.fail_above)

    @property
    def alpha(self) -> float:
        """Two-sided level of a look for a suspicion."""
        return SUSPICION_ALPHA / self.quantities


@dataclass(frozen=True)
class Change:
    """A ratio of costs with its 95 % interval over sessions: above 1 the later one costs more."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Judged:
    """The outcome for one quantity after some sessions."""

    outcome: Outcome
    head: Change
    """Head against base."""
    same: Change
    """Base again against base: noise."""
    sessions: int
    suspected: bool = False
    """True if a difference is suspected that further sessions have not confirmed yet."""
    cleared: int = 0
    """Number of suspicions that further sessions did not confirm."""
    confirmed: bool = False
    """True if further sessions confirmed the difference."""


@dataclass(frozen=True, eq=False)
class Effects:
    """Logarithms of ratios by session, in their order: positive if head costs more."""

    effect: Floats
    """Head against the mean of both bases."""
    noise: Floats
    """Base again against base."""

    @classmethod
    def of(cls, base: Floats, same: Floats, head: Floats, *, more_is_better: bool) -> Effects:
        """Return the effects of positive values by session."""
        sign = -1.0 if more_is_better else 1.0
        logs = [sign * np.log(np.asarray(side, dtype=np.float64)) for side in (base, same, head)]
        return cls(logs[2] - (logs[0] + logs[1]) / 2, logs[1] - logs[0])

    def until(self, sessions: int) -> Effects:
        """Return those of the first sessions."""
        return Effects(self.effect[:sessions], self.noise[:sessions])

    def after(self, sessions: int) -> Effects:
        """Return those after the first sessions."""
        return Effects(self.effect[sessions:], self.noise[sessions:])


def judge(effects: Effects, rule: Rule, *, ended: bool) -> Judged:
    """Return what all sessions so far decide; `ended` if there are no more.

    The looks are repeated from the first session on, so that the result depends on the sessions
    only.
    """
    count = effects.effect.size
    suspected_at: int | None = None
    sign = 0.0
    cleared = 0
    for sessions in range(LATER_LOOKS[0], count + 1):
        so_far = effects.until(sessions)
        if suspected_at is not None:
            if sessions < suspected_at + CONFIRMING:
                continue
            if _suspects(so_far, rule, sign) and _confirms(so_far.after(suspected_at), rule, sign):
                outcome = Outcome.WORSE if sign > 0 else Outcome.BETTER
                return _judged(outcome, so_far, cleared=cleared, confirmed=True)
            suspected_at = None
            cleared += 1
        elif sessions in LATER_LOOKS or (ended and sessions == count):
            sign = math.copysign(1.0, float(so_far.effect.mean()))
            if _suspects(so_far, rule, sign):
                suspected_at = sessions
            elif _excludes(so_far, rule, TIE_ALPHA):
                return _judged(Outcome.TIE, so_far, cleared=cleared)
    suspected = suspected_at is not None
    is_tie = ended and count >= LATER_LOOKS[0] and not suspected
    is_tie = is_tie and _excludes(effects, rule, LAST_ALPHA, slower_only=True)
    outcome = Outcome.TIE if is_tie else Outcome.UNDECIDED
    return _judged(outcome, effects, suspected=suspected, cleared=cleared)


def _judged(outcome: Outcome, effects: Effects, **more: int | bool) -> Judged:
    head = _change(effects.effect)
    return Judged(outcome, head, _change(effects.noise), effects.effect.size, **more)  # type: ignore[arg-type]


def _change(logs: Floats) -> Change:
    if logs.size < 2:
        estimate = math.exp(float(logs.mean())) if logs.size else math.nan
        return Change(estimate, 0.0, math.inf)
    found = one_sample(logs)
    low, high = found.interval()
    return Change(math.exp(float(found.estimate)), math.exp(float(low)), math.exp(float(high)))


def _suspects(effects: Effects, rule: Rule, sign: float) -> bool:
    """True if head differs in a direction: significantly, beyond border and noise."""
    found = one_sample(sign * effects.effect)
    noise = abs(float(effects.noise.mean()))
    is_certain = float(found.interval(1 - rule.alpha)[0]) > 0
    return is_certain and float(found.estimate) > max(rule.border, noise)


def _confirms(later: Effects, rule: Rule, sign: float) -> bool:
    """True if the sessions after a suspicion show the same difference by themselves."""
    found = one_sample(sign * later.effect)
    noise = abs(float(later.noise.mean()))
    is_likely = float(found.interval(1 - 2 * CONFIRMING_ALPHA)[0]) > 0
    return is_likely and float(found.estimate) > CONFIRMING_PART * max(rule.border, noise)


def _excludes(effects: Effects, rule: Rule, alpha: float, *, slower_only: bool = False) -> bool:
    """True if head cannot differ by the size that a tie excludes."""
    low, high = one_sample(effects.effect).interval(1 - alpha)
    return float(high) < rule.excluded and (slower_only or float(low) > -rule.excluded)
