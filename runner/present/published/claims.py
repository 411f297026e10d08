"""The published claims, read from claims.toml, and how a claim comes out in a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from runner.planning.toml_tables import read_table
from runner.present.answers.ranking_text import times
from runner.present.published.counterparts import LOADS
from runner.present.published.quantities import QUANTITIES
from runner.present.statistics.inference import Ratio

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided here"
OUTCOMES = (HOLDS, FAILS, UNDECIDED)
FILE = Path(__file__).with_name("claims.toml")


def _one_of(known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")
        return name

    return AfterValidator(check)


Text = Annotated[str, Field(pattern=r"\S")]
Border = Annotated[float, Field(gt=0, strict=True)]
QuantityName = Annotated[str, _one_of(QUANTITIES)]
LoadName = Annotated[str, _one_of(("count", *LOADS))]
Numbers = tuple[Annotated[int, Field(gt=0)], ...]


@dataclass(frozen=True)
class Against:
    """What the divisor of a ratio has otherwise than the dividend; empty where it has the same."""

    quantity: QuantityName | None = None
    load: Literal["experiments", "experiments-md5"] | None = None
    connections: Numbers = ()

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Comparison:
    """Ratios that a claim is about, one per load: the first server's quantity divided by the second's.

    The keys are explained at the head of claims.toml.
    """

    quantity: QuantityName
    load: LoadName
    servers: Annotated[tuple[Text, ...], Field(min_length=1, max_length=2)]
    modes: tuple[Literal["keepalive", "close"], ...] = ()
    connections: Numbers = ()
    against: Against = Against()
    words: str = ""
    names: tuple[Text, ...] = ()
    reading: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        """ValueError for what does not go together."""
        if (self.load == "count") != bool(self.modes and self.connections):
            raise ValueError("modes and connections belong to load = 'count', which needs both")
        if len(self.servers) == 1 and self.against == Against():
            raise ValueError("a single server needs `against`")
        if self.against.load and not self.load.startswith("experiments"):
            raise ValueError("only experiments and experiments-md5 can be divided by another load")
        if self.against.connections and len(self.against.connections) != len(self.connections):
            raise ValueError("`against` needs as many numbers of connections")


@dataclass(frozen=True)
class Claim:
    """One claim in our words, and the range of a ratio in which it holds (open: 0 and infinity).

    It has the comparisons that decide it, or the name of a function in special_claims.py that does. The keys are
    explained at the head of claims.toml.
    """

    name: Text
    short: Text
    says: Text
    looks_at: Text
    source: str = ""
    compare: tuple[Comparison, ...] = ()
    judge: str = ""
    at_least: Border = 0.0
    at_most: Border = math.inf
    combine: Literal["all", "any"] = "all"
    depends_on: str = ""
    also: tuple[str, ...] = ()

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        """ValueError for what does not go together."""
        if bool(self.compare) == bool(self.judge):
            raise ValueError("a claim needs either `compare` or `judge`")
        if bool(self.compare) != bool(self.range_words) or self.at_least >= self.at_most:
            raise ValueError("`compare` needs a range: at_least, at_most, or both with at_least below at_most")

    @property
    def range_words(self) -> str:
        """The range in words: `above 1`, `below 0.75`, `0.95 to 1.05`; empty where the claim is about no ratio."""
        low, high = self.at_least > 0, math.isfinite(self.at_most)
        if low and high:
            return f"{self.at_least:g} to {self.at_most:g}"
        return f"above {self.at_least:g}" if low else f"below {self.at_most:g}" if high else ""


def read_claims(path: Path = FILE) -> tuple[Claim, ...]:
    """Return the claims of claims.toml in their order; LabError with file and line for one that is not whole."""
    top, adapter, found = read_table(path), TypeAdapter(Claim), []
    for group, source in ((top.table(name), top.table(name).values.get("source", "")) for name in top.values):
        for name in (key for key in group.values if key != "source"):
            entry = replace(group.table(name), header=f"{group.header[:-1]}.{name}]")
            try:
                found.append(adapter.validate_python({"source": source, **entry.values, "name": name}))
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                message = first["msg"].removeprefix("Value error, ")
                raise entry.error(place.split(".")[0], f"claim {name}: {place and f'{place}: '}{message}") from None
    return tuple(found)


# --- how a claim comes out --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One comparison that a claim needs.

    `ratio` is what was measured, with an interval such that those of all parts of the claim hold together with 95 %;
    None where there are too few trials. `why` is a reason of a few words, that of other parts may be the same;
    `numbers` are those that say so.
    """

    words: str
    values: str
    ratio: Ratio | None
    outcome: str
    why: str
    numbers: str = ""

    @property
    def sentence(self) -> str:
        """The whole of it: values, ratio with its interval, outcome and why."""
        seen = "; ".join(part for part in (self.values, times(self.ratio) if self.ratio else "") if part)
        why = f"{self.why} ({self.numbers})" if self.numbers else self.why
        return f"{self.words}: {f'{seen}. ' if seen else ''}{self.outcome[0].upper()}{self.outcome[1:]}: {why}."


@dataclass(frozen=True)
class Outcome:
    """How a claim comes out: one of `OUTCOMES`, why, the comparisons behind it, and what else was seen."""

    outcome: str
    why: str
    parts: tuple[Part, ...] = ()
    seen: tuple[str, ...] = ()


def claimed(ratio: Ratio, claim: Claim) -> str:
    """Return whether a measured ratio lies within what is claimed, beyond it, or on its border."""
    if claim.at_least < ratio.low and ratio.high < claim.at_most:
        return HOLDS
    return FAILS if ratio.high < claim.at_least or ratio.low > claim.at_most else UNDECIDED


def combined(parts: Sequence[Part], seen: Sequence[str], combine: Literal["all", "any"]) -> Outcome:
    """Put the parts of a claim together.

    A claim about all of them holds where all do, and fails where one does not. A claim about any of them holds where
    one does, and fails where none does.
    """
    first, last = (FAILS, HOLDS) if combine == "all" else (HOLDS, FAILS)
    for outcome in (first, UNDECIDED):
        if decisive := [part for part in parts if part.outcome == outcome]:
            return Outcome(outcome, _whys(decisive, len(parts)), tuple(parts), tuple(seen))
    return Outcome(last, _whys(parts, len(parts)), tuple(parts), tuple(seen))


def _whys(decisive: Sequence[Part], total: int) -> str:
    """Join the reasons of the parts that decide, each with its number of parts where there are several."""
    counts = Counter(part.why for part in decisive)
    if total == 1:
        return next(iter(counts))
    every = "both" if total == 2 else f"all {total}"
    each = {why: f"{count} of {total}" if count < total else every for why, count in counts.most_common()}
    return "; ".join(f"{why} ({share} comparisons)" for why, share in each.items())


def whichever(outcomes: Mapping[str, Outcome], depends_on: str) -> Outcome:
    """Judge a claim that leaves open what it is about: as all its readings come out, else it is not decided.

    `outcomes` has the readings by name; `depends_on` is what the source leaves open.
    """
    found = list(outcomes.values())
    parts = tuple(part for each in found for part in each.parts)
    seen = tuple(dict.fromkeys(sentence for each in found for sentence in each.seen))
    if len({each.outcome for each in found}) == 1:
        if len({each.why for each in found}) == 1:
            return Outcome(found[0].outcome, found[0].why, parts, seen)
        whys = "; ".join(f"{name}: {each.why}" for name, each in outcomes.items())
        return Outcome(found[0].outcome, whys, parts, seen)
    each_said = "; ".join(f"{name}: {each.outcome} ({each.why})" for name, each in outcomes.items())
    why = f"it depends on {depends_on}, which the source does not name: {each_said}"
    return Outcome(UNDECIDED, why, parts, seen)


def count_words(outcomes: Sequence[Outcome]) -> str:
    """Say how many claims came out how: `Of 28 published claims 3 hold here, 5 do not, and 20 are not decided here.`"""
    counts = Counter(each.outcome for each in outcomes)
    hold, fail, undecided = (counts[outcome] for outcome in OUTCOMES)
    return (
        f"Of {len(outcomes)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} do{'es' * (fail == 1)} not, "
        f"and {undecided} are not decided here."
    )
