"""Outcome of a published claim in a run, and the comparisons behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.present.answers.ranking_text import times
from runner.present.published.counterparts import Counterpart
from runner.present.statistics.inference import Ratio

SUCH_A_LOAD = "a run that has such a load, as `bench run claims` makes it"
OUTCOMES = HOLDS, FAILS, CLOSE, ABSENT = "holds", "does not hold", "too close", "not in this run"


@dataclass(frozen=True, order=True)
class Worth:
    """Sort key of a comparison under several conditions: the least is the best."""

    nothing_measured: bool = True
    obstacles: int = 0
    """Number of obstacles of its ratio.

    With one it is only a bound; with more it cannot be attributed to the servers.
    """
    too_few_trials: bool = True


@dataclass(frozen=True)
class ClaimPart:
    """One comparison for a claim, from the cells in which it was measured.

    `ratio` is the measured one with its 95 % interval; an end is 0 or infinite if only a bound is
    known. It is None if there are too few trials. `p_holds` and `p_fails` are the p-values against
    disagreement and agreement with the claim. `why` is a short reason, which several parts may
    share; `numbers` are its evidence; `remedy` would decide it. `worth` ranks it against the same
    comparison under other conditions.
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
        """True if there is a ratio or a bound; this depends on limits, never on values."""
        return not self.worth.nothing_measured and self.worth.obstacles < 2

    @property
    def ratio_words(self) -> str:
        """The ratio with its interval, or the bound; empty if there is none."""
        return times(self.ratio) if self.ratio is not None else ""

    @property
    def sentence(self) -> str:
        """The full text: values, ratio with its interval, outcome and reason."""
        seen = "; ".join(part for part in (self.values, self.ratio_words) if part)
        why = f"{self.why} ({self.numbers})" if self.numbers else self.why
        return (
            f"{self.words}: "
            f"{f'{seen}. ' if seen else ''}{self.outcome[0].upper()}{self.outcome[1:]}: {why}."
        )


@dataclass(frozen=True)
class Outcome:
    """Outcome of a claim (one of `OUTCOMES`), its reason, comparisons and further observations."""

    outcome: str
    why: str
    parts: tuple[ClaimPart, ...] = ()
    seen: tuple[str, ...] = ()


def count_words(outcomes: Sequence[str]) -> str:
    """Return the counts of outcomes: `Of 28 published claims 12 hold here, 9 do not, ...`."""
    hold, fail, close, absent = (outcomes.count(outcome) for outcome in OUTCOMES)
    return (
        f"Of {len(outcomes)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} "
        f"do{'es' * (fail == 1)} not, {close} {'is' if close == 1 else 'are'} too close to tell, "
        f"and {absent} cannot be judged from this run."
    )
