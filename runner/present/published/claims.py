"""What was claimed of the published measurements, and how a claim comes out in a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.planning.toml_tables import Table, read_table, text
from runner.present.answers.ranking_text import times
from runner.present.statistics.inference import Ratio

HOLDS, FAILS, UNTOLD = "holds", "does not hold", "cannot be told here"
OUTCOMES = (HOLDS, FAILS, UNTOLD)
FILE = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True)
class Claim:
    """One published claim in our words, and the range of a ratio in which it holds (open: 0 and infinity)."""

    name: str
    source: str
    """As in data/published.csv."""
    short: str
    """A few words to know it by."""
    says: str
    looks_at: str
    at_least: float
    at_most: float

    @property
    def range_words(self) -> str:
        """The range in words: `above 1`, `below 0.75`, `0.95 to 1.05`; empty where the claim is about no ratio."""
        low, high = self.at_least > 0, math.isfinite(self.at_most)
        if low and high:
            return f"{self.at_least:g} to {self.at_most:g}"
        return f"above {self.at_least:g}" if low else f"below {self.at_most:g}" if high else ""


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
    def told(self) -> str:
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


def read_claims() -> tuple[Claim, ...]:
    """Return the claims of claims.toml in their order; LabError with file and line for one that is not whole."""
    top = read_table(FILE)
    top.allow("claim")
    entries = [
        Table(FILE, top.text, "[[claim]]", number, dict(values)) for number, values in enumerate(top.values["claim"])
    ]
    return tuple(_claim(entry) for entry in entries)


def _claim(entry: Table) -> Claim:
    entry.allow("name", "source", "short", "says", "looks_at", "at_least", "at_most")
    words = {key: entry.get(key, text) for key in ("name", "source", "short", "says", "looks_at")}
    at_least, at_most = entry.get("at_least", positive, 0.0), entry.get("at_most", positive, math.inf)
    return Claim(**words, at_least=at_least, at_most=at_most)


def positive(value: Any) -> float | None:
    """a number greater than 0"""
    good = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if good else None


# --- putting parts together -------------------------------------------------------------------------------


def all_of(parts: Sequence[Part], seen: Sequence[str] = ()) -> Outcome:
    """Judge a claim that says several things: it holds where all do, and not where one does not."""
    for outcome in (FAILS, UNTOLD):
        if decisive := [part for part in parts if part.outcome == outcome]:
            return Outcome(outcome, _whys(decisive, len(parts)), tuple(parts), tuple(seen))
    return Outcome(HOLDS, _whys(parts, len(parts)), tuple(parts), tuple(seen))


def any_of(parts: Sequence[Part], seen: Sequence[str] = ()) -> Outcome:
    """Judge a claim that says that something is so somewhere: it holds where one part does."""
    for outcome in (HOLDS, UNTOLD):
        if decisive := [part for part in parts if part.outcome == outcome]:
            return Outcome(outcome, _whys(decisive, len(parts)), tuple(parts), tuple(seen))
    return Outcome(FAILS, _whys(parts, len(parts)), tuple(parts), tuple(seen))


def whichever(outcomes: Mapping[str, Outcome], unnamed: str) -> Outcome:
    """Judge a claim that leaves open what it is about: as all readings come out, else it cannot be told.

    `outcomes` has the readings by name; `unnamed` says what the source leaves open.
    """
    found = list(outcomes.values())
    parts = tuple(part for each in found for part in each.parts)
    seen = tuple(dict.fromkeys(sentence for each in found for sentence in each.seen))
    if len({each.outcome for each in found}) == 1:
        whys = dict.fromkeys(each.why for each in found)
        if len(whys) == 1:
            return Outcome(found[0].outcome, found[0].why, parts, seen)
        return Outcome(found[0].outcome, "; ".join(f"{name}: {of.why}" for name, of in outcomes.items()), parts, seen)
    each_said = "; ".join(f"{name}: {of.outcome} ({of.why})" for name, of in outcomes.items())
    return Outcome(UNTOLD, f"{unnamed}: {each_said}", parts, seen)


def _whys(decisive: Sequence[Part], total: int) -> str:
    """Join the reasons of the parts that decide, each with its number of parts where there are several."""
    counts = Counter(part.why for part in decisive)
    if total == 1:
        return next(iter(counts))
    every = "both" if total == 2 else f"all {total}"
    each = {why: f"{count} of {total}" if count < total else every for why, count in counts.most_common()}
    return "; ".join(f"{why} ({of} comparisons)" for why, of in each.items())


def claimed(ratio: Ratio, claim: Claim) -> str:
    """Return whether a measured ratio lies within what is claimed, beyond it, or on its border."""
    if claim.at_least < ratio.low and ratio.high < claim.at_most:
        return HOLDS
    return FAILS if ratio.high < claim.at_least or ratio.low > claim.at_most else UNTOLD


def count_words(outcomes: Sequence[Outcome]) -> str:
    """Say how many claims came out how: `Of 28 claims 3 hold here, 5 do not hold, 20 cannot be told here.`"""
    counts = Counter(each.outcome for each in outcomes)
    hold, fail, untold = (counts[outcome] for outcome in OUTCOMES)
    return (
        f"Of {len(outcomes)} published claims {hold} hold{'s' * (hold == 1)} here, {fail} do{'es' * (fail == 1)} not, "
        f"and {untold} cannot be told here."
    )
