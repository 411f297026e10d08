"""The published claims, read from claims.toml, and how a claim comes out in a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from runner.model import CLAIMS, number
from runner.planning.toml_tables import Kind, read_table
from runner.present.answers.ranking_text import times
from runner.present.published.counterparts import LOADS
from runner.present.published.quantities import QUANTITIES
from runner.present.statistics.inference import ALPHA, Ratio
from runner.present.statistics.significance import holm
from runner.store import sha256

HOLDS, FAILS, CLOSE, ABSENT = "holds", "does not hold", "too close", "not in this run"
OUTCOMES = (HOLDS, FAILS, CLOSE, ABSENT)
FILE = CLAIMS


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
    load: Literal["experiments", "experiments-md5", "experiments offered", "experiments-md5 offered"] | None = None
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
    names = [name for name in top.values if name != "written"]
    for group, source in ((top.table(name), top.table(name).values.get("source", "")) for name in names):
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


def written(path: Path = FILE) -> date:
    """Return the day on which the rules of claims.toml were last changed."""
    day: date = read_table(path).get("written", Kind("a date such as 2026-11-22", Annotated[date, Strict()]))
    return day


def rules_words(manifest: Mapping[str, Any]) -> str:
    """Say when the rules were written, and whether a run began with the same."""
    known, now = manifest.get("claims_sha256"), sha256(FILE)
    began = "as they stood when the run began" if known == now else "after the run began" if known else "after the run"
    return f"The rules (claims.toml of {written()}, SHA-256 {now[:12]}…) were written down {began}."


# --- how a claim comes out --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One comparison that a claim needs.

    `ratio` is what was measured, with its 95 % interval; an end is 0 or infinite where only a bound is known. None
    where there are too few trials. `p_holds` and `p_fails` are the p-values of "it does not agree with the claim" and
    of "it does". `why` is a reason of a few words, that of other parts may be the same; `numbers` say so.
    """

    words: str
    values: str
    ratio: Ratio | None
    outcome: str
    why: str
    numbers: str = ""
    p_holds: float = 1.0
    p_fails: float = 1.0
    loads: tuple[str, ...] = ()
    """Those that it was measured under."""

    @property
    def ratio_words(self) -> str:
        """The ratio with its interval, or the bound; empty where there is none."""
        if self.ratio is None:
            return ""
        if self.ratio.low == 0:
            return f"at most ×{self.ratio.ratio:.3g} [to {self.ratio.high:.3g}]"
        if self.ratio.high == math.inf:
            return f"at least ×{self.ratio.ratio:.3g} [from {self.ratio.low:.3g}]"
        return times(self.ratio)

    @property
    def sentence(self) -> str:
        """The whole of it: values, ratio with its interval, outcome and why."""
        seen = "; ".join(part for part in (self.values, self.ratio_words) if part)
        why = f"{self.why} ({self.numbers})" if self.numbers else self.why
        return f"{self.words}: {f'{seen}. ' if seen else ''}{self.outcome[0].upper()}{self.outcome[1:]}: {why}."


@dataclass(frozen=True)
class Outcome:
    """How a claim comes out: one of `OUTCOMES`, why, the comparisons behind it, and what else was seen."""

    outcome: str
    why: str
    parts: tuple[Part, ...] = ()
    seen: tuple[str, ...] = ()


WHY = {
    HOLDS: "the ratio lies within what is claimed",
    FAILS: "the ratio lies beyond what is claimed",
    CLOSE: "the interval lies about the border of what is claimed",
}


def combined(
    parts: Sequence[Part], claim: Claim, seen: Sequence[str] = (), alpha: float = ALPHA, readings: int = 1
) -> Outcome:
    """Decide a claim from its parts, at the level `alpha`.

    A claim about all of them holds where each does: an intersection-union test, which needs no correction (Berger 1982,
    Technometrics 24, 295). It fails where one does, by Holm's correction over the parts, and over its readings where
    there are several. A claim about any of them is the other way round.
    """
    known = [part for part in parts if part.outcome != ABSENT]
    holds, fails = [part.p_holds for part in known], [readings * part.p_fails for part in known]
    if claim.combine == "all":
        fails = list(holm(fails))
    else:
        holds = list(holm(holds))
    decided = iter(
        _decided(part, p_holds <= alpha, p_fails <= alpha)
        for part, p_holds, p_fails in zip(known, holds, fails, strict=True)
    )
    whole = tuple(part if part.outcome == ABSENT else next(decided) for part in parts)
    first, last = (FAILS, HOLDS) if claim.combine == "all" else (HOLDS, FAILS)
    outcome = _foremost((part.outcome for part in whole), first, last)
    decisive = [part for part in whole if part.outcome == outcome]
    why = _whys(decisive, len(whole))
    if outcome == CLOSE and math.isfinite(reach := max(_reach(part, claim) for part in decisive)):
        why += f": within ±{number(100 * reach)} % of it"
    return Outcome(outcome, why, whole, tuple(seen))


def _decided(part: Part, holds: bool, fails: bool) -> Part:
    outcome = HOLDS if holds else FAILS if fails else CLOSE
    return replace(part, outcome=outcome, why=WHY[outcome] + (f", by a bound: {part.why}" if part.why else ""))


def _reach(part: Part, claim: Claim) -> float:
    """Return how far an interval reaches from the border that is nearest to the ratio; 0.1 is 10 %."""
    found = part.ratio
    assert found is not None
    borders = [border for border in (claim.at_least, claim.at_most) if 0 < border < math.inf]
    border = min(borders, key=lambda value: abs(math.log(value / found.ratio)))
    return max(found.high / border, border / found.low if found.low else math.inf) - 1


def sessions_needed(part: Part, claim: Claim) -> float:
    """Return how many times as many sessions would tell on which side of the nearest border a ratio lies.

    An interval is as wide as one over the square root of the sessions, and the ratio is taken to stay where it is.
    """
    found = part.ratio
    assert found is not None
    off = min(
        abs(math.log(border / found.ratio)) for border in (claim.at_least, claim.at_most) if 0 < border < math.inf
    )
    ends = [abs(math.log(end / found.ratio)) for end in (found.low, found.high) if 0 < end < math.inf]
    return max(2, math.ceil((max(ends) / off) ** 2)) if off else math.inf


def _foremost(outcomes: Iterable[str], first: str, last: str) -> str:
    """Return the outcome that decides: `first` where one has it, `last` where all have."""
    return min(outcomes, key=(first, ABSENT, CLOSE, last).index)


def _whys(decisive: Sequence[Part], total: int) -> str:
    """Join the reasons of the parts that decide, each with its number of parts where there are several."""
    counts = Counter(part.why for part in decisive)
    if total == 1:
        return next(iter(counts))
    every = "both" if total == 2 else f"all {total}"
    each = {why: f"{count} of {total}" if count < total else every for why, count in counts.most_common()}
    return "; ".join(f"{why} ({share} comparisons)" for why, share in each.items())


def whichever(outcomes: Mapping[str, Outcome], depends_on: str) -> Outcome:
    """Judge a claim that leaves open what it is about: it holds where all its readings do, and fails where one does.

    `outcomes` has the readings by name; `depends_on` is what the source leaves open.
    """
    found = list(outcomes.values())
    parts = tuple(part for each in found for part in each.parts)
    seen = tuple(dict.fromkeys(sentence for each in found for sentence in each.seen))
    outcome = _foremost((each.outcome for each in found), FAILS, HOLDS)
    if len({(each.outcome, each.why) for each in found}) == 1:
        return Outcome(outcome, found[0].why, parts, seen)
    if len({each.outcome for each in found}) == 1:
        return Outcome(outcome, "; ".join(f"{name}: {each.why}" for name, each in outcomes.items()), parts, seen)
    each_said = "; ".join(f"{name}: {each.outcome} ({each.why})" for name, each in outcomes.items())
    return Outcome(outcome, f"it depends on {depends_on}, which the source does not name: {each_said}", parts, seen)


def count_words(outcomes: Sequence[str]) -> str:
    """Say how many claims came out how: `Of 28 published claims 12 hold here, 9 do not, ...`."""
    hold, fail, close, absent = (outcomes.count(outcome) for outcome in OUTCOMES)
    return (
        f"Of {len(outcomes)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} do{'es' * (fail == 1)} not, "
        f"{close} {'is' if close == 1 else 'are'} too close to tell, and {absent} cannot be judged from this run."
    )
