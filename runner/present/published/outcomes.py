"""Define the outcomes of published claims, and the rules that decide an outcome.

`bench list --outcomes` prints the rules as the table that docs/method.md contains.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal

from runner.present.answers.ranking_text import times
from runner.present.published.counterparts import Counterpart
from runner.present.statistics.inference import FEWEST_TRIALS, Ratio

SUCH_A_LOAD = "a run with such a load, for example of `bench run claims`"
HOLDS = "holds"
FAILS = "does not hold"
CLOSE = "too close"
ABSENT = "not in this run"
OUTCOMES = (HOLDS, FAILS, CLOSE, ABSENT)


@dataclass(frozen=True)
class Rule:
    """A possible outcome of a comparison for a claim, and when a comparison has this outcome."""

    outcome: str
    when: str
    reason: str = ""
    """The reason that pages print for this outcome.

    Two rules have an empty text. For these, pages print which data are missing, or the obstacle.
    """


class Finding(Enum):
    """What a comparison shows about a claim. The rules are tried in the order of the members."""

    NOT_MEASURED = Rule(ABSENT, "the run has no trial of a side, or did not record the quantity")
    NOT_COMPARABLE = Rule(
        ABSENT,
        "the value of a side does not describe the server, and no bound of the ratio is known",
    )
    TOO_FEW_TRIALS = Rule(
        ABSENT,
        f"a side has fewer than {FEWEST_TRIALS} trials",
        f"not enough trials: a ratio needs {FEWEST_TRIALS} trials of each side",
    )
    WITHIN = Rule(
        HOLDS,
        "the test shows that the ratio, or its bound that the claim is about, lies within the "
        "claimed range",
        "the ratio lies within what is claimed",
    )
    BEYOND = Rule(
        FAILS,
        "the test shows that the ratio or its bound lies beyond the claimed range",
        "the ratio lies beyond what is claimed",
    )
    AT_THE_BORDER = Rule(
        CLOSE,
        "the test of the ratio or its bound shows neither",
        "the interval lies about the border of what is claimed",
    )

    @property
    def outcome(self) -> str:
        """The outcome of the comparison, one of `OUTCOMES`."""
        return self.value.outcome

    @property
    def reason(self) -> str:
        """The reason that pages print. It may be empty (see `Rule.reason`)."""
        return self.value.reason

    @classmethod
    def of_tests(cls, p_holds: float, p_fails: float, alpha: float) -> "Finding":
        """Return the finding that the tests of a ratio or a bound give at the level `alpha`."""
        if p_holds <= alpha:
            return cls.WITHIN
        if p_fails <= alpha:
            return cls.BEYOND
        return cls.AT_THE_BORDER


Combine = Literal["all", "any"]
"""`all` if all comparisons of a claim must hold, and `any` if one comparison is enough."""
PRIORITIES: dict[Combine, tuple[str, ...]] = {
    "all": (FAILS, ABSENT, CLOSE, HOLDS),
    "any": (HOLDS, ABSENT, CLOSE, FAILS),
}
"""The outcomes in order of priority, for each way to combine comparisons.

The outcome of a claim is the first outcome in this order that one of its comparisons has.
"""


def combined_outcome(outcomes: Collection[str], combine: Combine) -> str:
    """Return the outcome of a claim, given the outcomes of its comparisons or of its readings.

    A reading is one of several ways to understand an ambiguous claim.
    """
    return next(outcome for outcome in PRIORITIES[combine] if outcome in outcomes)


class Direction(StrEnum):
    """How a measured ratio contradicts the range of a claim."""

    UNDERSTATED = "understated"
    """The difference is larger than claimed, or there is a difference although none is claimed."""
    OVERSTATED = "overstated"
    """The difference has the claimed direction, but is smaller than claimed."""
    OPPOSITE = "opposite"
    """The claim says that one side is ahead, but here the other side is ahead."""


def direction_of(
    ratio: float, at_least: float, at_most: float, *, may_be_one: bool = False
) -> Direction:
    """Return the direction in which a ratio lies beyond the range from `at_least` to `at_most`.

    A range around 1 claims that both sides are equal. Then the direction is UNDERSTATED.

    A range above 1 claims that the first side has more, and a range below 1 claims that the first
    side has less. Then the direction depends on the ratio:

    - UNDERSTATED: The ratio lies on the claimed side of 1, and is farther from 1 than the range.
    - OVERSTATED: The ratio lies on the claimed side of 1, between 1 and the range. Or the ratio
      lies on the other side, but its interval includes 1 (`may_be_one`), so that it is not certain
      which side is ahead.
    - OPPOSITE: The ratio lies on the other side of 1, and its interval excludes 1.
    """
    if at_least < 1 < at_most:
        return Direction.UNDERSTATED
    claims_more = at_least >= 1
    if claims_more != (ratio > 1):
        return Direction.OVERSTATED if may_be_one else Direction.OPPOSITE
    goes_further = ratio > at_most if claims_more else ratio < at_least
    return Direction.UNDERSTATED if goes_further else Direction.OVERSTATED


def combined_direction(directions: Collection[Direction]) -> str:
    """Return the directions of a claim's comparisons in words: `understated and opposite`.

    Return an empty text if there are no directions.
    """
    return " and ".join(direction for direction in Direction if direction in directions)


IN_WORDS: dict[str, str] = {
    Direction.UNDERSTATED: "more than claimed",
    Direction.OVERSTATED: "less than claimed",
    Direction.OPPOSITE: "the other way round",
}
"""The words that pages print for each direction of a contradiction."""


def direction_words(direction: str, *, claims_equality: bool = False) -> str:
    """Return the words that pages print for `Judged.direction`.

    For example: `less than claimed, or the other way round`. If the claim says that two sides are
    equal (`claims_equality`), but they differ, return `not equal`.
    """
    if claims_equality and direction == Direction.UNDERSTATED:
        return "not equal"
    return ", or ".join(IN_WORDS.get(each, each) for each in direction.split(" and "))


HEADS = ("of", "the first that is true", "outcome", "reason")


def rows() -> list[tuple[str, ...]]:
    """Return the rules in their order, as rows of texts with the headings `HEADS`."""
    of_comparisons = [
        (
            "a comparison",
            finding.value.when,
            f"*{finding.outcome}*",
            finding.reason or "what was not measured, or the obstacle",
        )
        for finding in Finding
    ]
    of_all = "a claim about all of its comparisons, or with several readings"
    of_any = "a claim about any of its comparisons"
    return [*of_comparisons, *_claim_rows(of_all, "all"), *_claim_rows(of_any, "any")]


def _claim_rows(claim: str, combine: Combine) -> list[tuple[str, ...]]:
    """Return the rows that say how a claim is decided by the outcomes of its comparisons."""
    *decisive, last = PRIORITIES[combine]
    conditions = dict.fromkeys(decisive, "one of them has this outcome")
    conditions[last] = "all of them have this outcome"
    return [
        (claim, condition, f"*{outcome}*", "the reasons of those that have it")
        for outcome, condition in conditions.items()
    ]


@dataclass(frozen=True, order=True)
class Worth:
    """Sort key of the conditions under which a comparison was measured.

    If a comparison was measured under several conditions, the conditions with the smallest key are
    used.
    """

    nothing_measured: bool = True
    obstacles: int = 0
    """Sum of the weights of the obstacles on both sides of the comparison.

    An obstacle has the weight 1 if the value is still a lower bound, and otherwise the weight 2.
    With a sum of 1, the comparison gives a bound of the ratio. With a larger sum, it gives neither
    a ratio nor a bound.
    """
    too_few_trials: bool = True


@dataclass(frozen=True)
class ClaimPart:
    """One comparison for a claim, from the cells in which it was measured.

    - `ratio` is the measured ratio with its 95 % interval. If only a bound is known, one end of the
      interval is 0 or infinite. `ratio` is None if there is neither a ratio nor a bound.
    - `finding` is AT_THE_BORDER until the tests of all comparisons of the claim are combined.
    - `p_holds` and `p_fails` are p-values: a small `p_holds` shows that the claim holds, and a
      small `p_fails` shows that the claim fails.
    - `why` is a short reason, which several comparisons may share. `numbers` is the evidence for
      this reason.
    - `remedy` says what to measure so that the comparison can be decided.
    - `worth` is the sort key of the conditions under which the comparison was measured.
    """

    words: str
    cells: tuple[Counterpart, ...] = ()
    values: str = ""
    ratio: Ratio | None = None
    finding: Finding = Finding.NOT_MEASURED
    why: str = ""
    remedy: str = SUCH_A_LOAD
    numbers: str = ""
    p_holds: float = 1.0
    p_fails: float = 1.0
    worth: Worth = Worth()

    @property
    def outcome(self) -> str:
        """The outcome of the comparison, one of `OUTCOMES`."""
        return self.finding.outcome

    @property
    def serves(self) -> bool:
        """True if the cells were measured and their obstacles allow a ratio or a bound.

        The answer depends on the limits of the trials. It never depends on the size of the measured
        values, because choosing comparisons by their results would bias the outcome.
        """
        return not self.worth.nothing_measured and self.worth.obstacles < 2

    @property
    def ratio_words(self) -> str:
        """The ratio with its interval, or the bound. If neither is known, the text is empty."""
        return times(self.ratio) if self.ratio is not None else ""

    @property
    def sentence(self) -> str:
        """The comparison as a text with the values, the ratio, the outcome and the reason."""
        seen = "; ".join(part for part in (self.values, self.ratio_words) if part)
        why = f"{self.why} ({self.numbers})" if self.numbers else self.why
        return (
            f"{self.words}: "
            f"{f'{seen}. ' if seen else ''}{self.outcome[0].upper()}{self.outcome[1:]}: {why}."
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim (one of `OUTCOMES`), with the reason and the comparisons.

    `seen` are sentences with further observations.
    """

    outcome: str
    why: str
    parts: tuple[ClaimPart, ...] = ()
    seen: tuple[str, ...] = ()


def count_words(directions: Sequence[str], *, with_ways: bool = True) -> str:
    """Return a sentence that counts the claims by `Judged.direction`.

    For example: `Of 28 published claims 12 hold here, 9 do not (more than claimed: 5; the other way
    round: 4), ...`. If `with_ways` is False, the part in brackets is left out.
    """
    counts = Counter(directions)
    hold = counts[HOLDS]
    close = counts[CLOSE]
    beyond = {each: count for each, count in counts.items() if each not in (HOLDS, CLOSE, ABSENT)}
    fail = sum(beyond.values())
    ways = [
        f"{'without a ratio' if each == FAILS else direction_words(each)}: {beyond[each]}"
        for each in sorted(beyond, key=_place)
    ]
    in_which_ways = f" ({'; '.join(ways)})" if ways and with_ways else ""
    return (
        f"Of {len(directions)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} "
        f"do{'es' * (fail == 1)} not{in_which_ways}, {close} "
        f"{'is' if close == 1 else 'are'} too close to tell, and {counts[ABSENT]} cannot be judged "
        "from this run."
    )


def _place(direction: str) -> tuple[bool, int, int]:
    """Return the sort key of a text that names one or more directions.

    Texts with a single direction come first, then texts with several directions. The text of failed
    claims without a direction comes last.
    """
    first = direction.split(" ", maxsplit=1)[0]
    place = list(Direction).index(Direction(first)) if direction != FAILS else len(Direction)
    return direction == FAILS, direction.count(" and "), place
