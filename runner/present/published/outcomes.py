"""How a published claim comes out in a run, and the comparisons behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.present.answers.ranking_text import times
from runner.present.published.counterparts import Counterpart
from runner.present.statistics.inference import Ratio

SUCH_A_LOAD = "a run that has such a load, as `bench run claims` makes it"
OUTCOMES = HOLDS, FAILS, CLOSE, ABSENT = "holds", "does not hold", "too close", "not in this run"


@dataclass(frozen=True, order=True)
class Worth:
    """What makes a comparison better than the same on other terms: the least is the best."""

    nothing_measured: bool = True
    obstacles: int = 0
    """How much stands against its ratio.

    1: it is only a bound, 2 and more: it is not the servers'.
    """
    too_few_trials: bool = True


@dataclass(frozen=True)
class ClaimPart:
    """One comparison that a claim needs, of the cells that it was measured in.

    `ratio` is what was measured, with its 95 % interval; an end is 0 or infinite if only a bound
    is known. None if there are too few trials. `p_holds` and `p_fails` are the p-values of "it
    does not agree with the claim" and of "it does". `why` is a reason of a few words, which other
    parts may share; `numbers` are its evidence; `remedy` is what would decide it. `worth` is
    what makes it better than the same on other terms.
    """

    words: str
    cells: tuple[Counterpart, ...] = ()
    values: str = ""
    ratio: Ratio | None = None
    outcome: str = ABSENT
    why: str = ""
    remedy: str = SUCH_A_LOAD
    numbers: str = ""
    p_holds: float = 1.0
    p_fails: float = 1.0
    worth: Worth = Worth()

    @property
    def serves(self) -> bool:
        """Whether a ratio, or a bound of it, can be given: by what limited the trials, never by a
        value.
        """
        return not self.worth.nothing_measured and self.worth.obstacles < 2

    @property
    def ratio_words(self) -> str:
        """The ratio with its interval, or the bound; empty if there is none."""
        return times(self.ratio) if self.ratio is not None else ""

    @property
    def sentence(self) -> str:
        """The whole of it: values, ratio with its interval, outcome and why."""
        seen = "; ".join(part for part in (self.values, self.ratio_words) if part)
        why = f"{self.why} ({self.numbers})" if self.numbers else self.why
        return (
            f"{self.words}: "
            f"{f'{seen}. ' if seen else ''}{self.outcome[0].upper()}{self.outcome[1:]}: {why}."
        )


@dataclass(frozen=True)
class Outcome:
    """How a claim comes out: one of `OUTCOMES`, why, the comparisons behind it, and what else was
    seen.
    """

    outcome: str
    why: str
    parts: tuple[ClaimPart, ...] = ()
    seen: tuple[str, ...] = ()


def count_words(outcomes: Sequence[str]) -> str:
    """Say how many claims came out how: `Of 28 published claims 12 hold here, 9 do not, ...`."""
    hold, fail, close, absent = (outcomes.count(outcome) for outcome in OUTCOMES)
    return (
        f"Of {len(outcomes)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} "
        f"do{'es' * (fail == 1)} not, {close} {'is' if close == 1 else 'are'} too close to tell, "
        f"and {absent} cannot be judged from this run."
    )
