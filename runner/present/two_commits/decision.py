"""Decide if the second of two commits (head) is worse than the first (base), better, or neither.

In each session three servers run side by side: base, base again (a second name of base), and head.
Each session gives an effect (head compared with the mean of the two bases) and a measure of the
noise (base again compared with base). After certain numbers of sessions (`LATER_LOOKS`), there is
an interim look: the effects of all sessions so far are tested. If a look shows a difference, this
is only a suspicion. The sessions before the look raised the suspicion, so only the sessions after
the look can confirm it. docs/two-commits.md explains the rule, and `benchmarks/false_alarms.py`
measures how often the rule errs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from runner.present.statistics.inference import LOOKS, one_sample
from runner.present.statistics.stats import Floats

LATER_LOOKS = (*LOOKS, 25, 30, 36, 43, 52, 62, 75, 90, 108, 130, 156, 187)
"""Numbers of sessions after which there is an interim look.

After the first five numbers, each number is about a fifth larger than the number before it.
"""
CONFIRMING = 4
"""A suspicion is confirmed or dropped after this many further sessions."""
SUSPICION_ALPHA = 0.05
"""Two-sided significance level of a suspicion at each interim look.

The level may be lenient, because later sessions must confirm a suspicion before head counts as
different.
"""
CONFIRMING_ALPHA = 0.2
"""One-sided significance level at which the confirming sessions alone must show the difference."""
CONFIRMING_PART = 0.5
"""In the confirming sessions, the difference must exceed this share of the border and of the noise.

The share is less than 1, because there are so few confirming sessions that their mean is uncertain.
"""
TIE_ALPHA = 0.005
"""Two-sided significance level of a tie at each interim look.

The level is strict, because there are many looks, and a tie at any look is final: no later session
can correct it.
"""
LAST_ALPHA = 0.1
"""Two-sided significance level of a tie at the end of a run.

The level may be lenient, because this decision is made only once.
"""
SMALLEST_FOUND = 2.0
"""A tie says that the difference is smaller than this many times the border.

A difference of this size is found reliably (docs/two-commits.md), but a smaller difference may go
unnoticed.
"""


class Outcome(StrEnum):
    """The decision about head. The value of each member is the word in tables and in `--json`."""

    WORSE = "worse"
    UNDECIDED = "not decided"
    BETTER = "better"
    TIE = "tie"


@dataclass(frozen=True)
class Rule:
    """The rule that says which difference of two commits counts, and how certain it must be."""

    fail_above: float
    """The border, which is the smallest difference that counts, as a share (0.025 for 2.5 %)."""
    quantities: int = 1
    """Number of quantities among which the significance level is divided (Bonferroni)."""

    @property
    def border(self) -> float:
        """The border as the logarithm of a ratio."""
        return math.log1p(self.fail_above)

    @property
    def excluded(self) -> float:
        """The difference that a tie excludes, as the logarithm of a ratio."""
        return math.log1p(SMALLEST_FOUND * self.fail_above)

    @property
    def alpha(self) -> float:
        """Two-sided significance level of a suspicion about one quantity, at each interim look."""
        return SUSPICION_ALPHA / self.quantities


@dataclass(frozen=True)
class Change:
    """A ratio of costs with its 95 % interval over sessions.

    A ratio above 1 means that the second server costs more than the first server.
    """

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Judged:
    """The outcome for one quantity after some sessions."""

    outcome: Outcome
    head: Change
    """The change from base to head."""
    same: Change
    """The change from base to base again (a second name of base), which is only noise."""
    sessions: int
    suspected: bool = False
    """True if a difference is suspected that further sessions have not confirmed yet."""
    cleared: int = 0
    """Number of suspicions that further sessions did not confirm."""
    confirmed: bool = False
    """True if further sessions confirmed the suspected difference."""


@dataclass(frozen=True, eq=False)
class Effects:
    """Two comparisons in each session: head with base, and base again with base.

    Both fields contain the logarithm of a ratio for each session, in the order of the sessions. A
    logarithm is positive if head, or base again, costs more than base.
    """

    effect: Floats
    """Logarithms of the ratio of head to the mean of both bases."""
    noise: Floats
    """Logarithms of the ratio of base again to base."""

    @classmethod
    def of(cls, base: Floats, same: Floats, head: Floats, *, more_is_better: bool) -> Effects:
        """Return the effects, given the values of base, base again (`same`) and head.

        Each array contains a positive value for each session, in the order of the sessions.
        """
        sign = -1.0 if more_is_better else 1.0
        logs = [sign * np.log(np.asarray(side, dtype=np.float64)) for side in (base, same, head)]
        return cls(logs[2] - (logs[0] + logs[1]) / 2, logs[1] - logs[0])

    def until(self, sessions: int) -> Effects:
        """Return the effects of the first `sessions` sessions."""
        return Effects(self.effect[:sessions], self.noise[:sessions])

    def after(self, sessions: int) -> Effects:
        """Return the effects of all sessions after the first `sessions`."""
        return Effects(self.effect[sessions:], self.noise[sessions:])


def judge(effects: Effects, rule: Rule, *, ended: bool) -> Judged:
    """Decide from all sessions so far if head is worse, better or neither.

    `ended` is True if there are no further sessions. Each call repeats all interim looks from the
    first look on, so that the result depends only on the sessions and not on earlier calls.
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


def _judged(
    outcome: Outcome,
    effects: Effects,
    *,
    cleared: int,
    suspected: bool = False,
    confirmed: bool = False,
) -> Judged:
    """Return `outcome` together with the changes that the sessions of `effects` show."""
    return Judged(
        outcome,
        head=_change(effects.effect),
        same=_change(effects.noise),
        sessions=effects.effect.size,
        suspected=suspected,
        cleared=cleared,
        confirmed=confirmed,
    )


def _change(logs: Floats) -> Change:
    if logs.size < 2:
        estimate = math.exp(float(logs.mean())) if logs.size else math.nan
        return Change(estimate, 0.0, math.inf)
    found = one_sample(logs)
    low, high = found.interval()
    return Change(math.exp(float(found.estimate)), math.exp(float(low)), math.exp(float(high)))


def _suspects(effects: Effects, rule: Rule, sign: float) -> bool:
    """Return True if head seems to differ from base in the direction of `sign`.

    `sign` is +1 if head costs more, and -1 if head costs less. The difference must be significant,
    and it must be larger than the border and larger than the noise.
    """
    found = one_sample(sign * effects.effect)
    noise = abs(float(effects.noise.mean()))
    is_certain = float(found.interval(1 - rule.alpha)[0]) > 0
    return is_certain and float(found.estimate) > max(rule.border, noise)


def _confirms(later: Effects, rule: Rule, sign: float) -> bool:
    """Return True if the sessions after a suspicion confirm the suspicion.

    These sessions alone must show a difference in the same direction, which is larger than
    `CONFIRMING_PART` of the border and of the noise.
    """
    found = one_sample(sign * later.effect)
    noise = abs(float(later.noise.mean()))
    is_likely = float(found.interval(1 - 2 * CONFIRMING_ALPHA)[0]) > 0
    return is_likely and float(found.estimate) > CONFIRMING_PART * max(rule.border, noise)


def _excludes(effects: Effects, rule: Rule, alpha: float, *, slower_only: bool = False) -> bool:
    """Return True if the sessions exclude every difference that a tie must exclude.

    The interval of the effect at the level `alpha` must lie between `-rule.excluded` and
    `rule.excluded`. With `slower_only`, the sessions need to exclude only that head is slower than
    base, so only the upper end of the interval is checked.
    """
    low, high = one_sample(effects.effect).interval(1 - alpha)
    return float(high) < rule.excluded and (slower_only or float(low) > -rule.excluded)
