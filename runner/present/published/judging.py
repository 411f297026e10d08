"""How the claims come out in a run: the ratios that an entry asks for, measured and held against what is claimed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from runner.limits import Limit
from runner.model import LabError
from runner.present.figures.ratios import noise_floor
from runner.present.frames import MODES, Tables
from runner.present.look import captions, style
from runner.present.published import claims, counterparts
from runner.present.published.claims import ABSENT, CLOSE, FILE, Claim, Comparison, Outcome, Part
from runner.present.published.counterparts import STAND_INS, Counterpart, cell, without_terms
from runner.present.published.quantities import QUANTITIES, Bar, Rule
from runner.present.published.special_claims import JUDGES, NOTES
from runner.present.statistics.inference import FEWEST, Ratio, Sample, level, ratio

T = TypeVar("T")
TOO_FEW = f"not enough trials: a ratio takes {FEWEST} a side"
SUCH_A_LOAD = "a run that has such a load, as `bench run claims` makes it"
MANY = 1000
"""Times as many sessions as nobody makes: the ratio lies at the border of what is claimed."""


@dataclass(frozen=True)
class Judged:
    """A claim and how it comes out in a run."""

    claim: Claim
    outcome: Outcome

    @property
    def ratios(self) -> list[str]:
        """What was measured, one text per comparison."""
        return [f"{part.words}: {part.ratio_words}" for part in self.outcome.parts if part.ratio is not None]

    @property
    def measured(self) -> str:
        """The ratios that could be judged, in short: `0.98 [0.95–1.01]`, or `0.52 to 0.61 (3 comparisons)`."""
        parts = [part for part in self.outcome.parts if part.ratio is not None and part.outcome != ABSENT]
        if len(parts) < 2:
            return parts[0].ratio_words if parts else "–"
        ratios = sorted(part.ratio.ratio for part in parts if part.ratio is not None)
        ends = dict.fromkeys(f"×{ratio:.2f}" for ratio in (ratios[0], ratios[-1]))
        return f"{' to '.join(ends)} ({len(parts)} comparisons)"

    @property
    def why(self) -> str:
        """Why it comes out so, and what would decide it where it is not decided."""
        return f"{self.outcome.why}; to decide it: {self.remedy}" if self.remedy else self.outcome.why

    @property
    def remedy(self) -> str:
        """What would decide it, where it is not decided; else empty."""
        outcome = self.outcome.outcome
        parts = [part for part in self.outcome.parts if part.outcome == outcome]
        if outcome == CLOSE:
            times = min(claims.sessions_needed(part, self.claim) for part in parts)
            return f"at least {times:,.0f} times as many sessions" if times < MANY else "no number of sessions"
        whys = [part.why for part in parts] or [self.outcome.why]
        return ", or ".join(dict.fromkeys(map(_remedy, whys))) if outcome == ABSENT else ""

    @property
    def plain(self) -> dict[str, Any]:
        """All of it as plain values, for programs; an end of an interval that is not known is null."""
        keys = ("words", "outcome", "why", "numbers", "values", "p_holds", "p_fails")
        parts = [{key: getattr(part, key) for key in keys} | _plain(part.ratio) for part in self.outcome.parts]
        about = {key: getattr(self.claim, key) for key in ("name", "source", "short", "says", "looks_at")}
        claimed = {"at_least": self.claim.at_least or None, "at_most": _finite(self.claim.at_most)}
        found = {"outcome": self.outcome.outcome, "why": self.outcome.why, "remedy": self.remedy}
        return {**about, **claimed, **found, "comparisons": parts}


def _remedy(why: str) -> str:
    """Return what takes away a reason for which a comparison could not be made."""
    if why == TOO_FEW:
        return "more sessions"
    remedies = (limit.remedy for limit in Limit if why.startswith(limit.why_not))
    return next(remedies, SUCH_A_LOAD)


def _plain(ratio: Ratio | None) -> dict[str, float | None]:
    if ratio is None:
        return dict.fromkeys(("ratio", "low", "high"))
    return {"ratio": ratio.ratio, "low": ratio.low or None, "high": _finite(ratio.high)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@functools.lru_cache(maxsize=1)
def judge_all(tables: Tables) -> tuple[Judged, ...]:
    """Return every claim with its outcome in a run; LabError for an entry that is not whole."""
    return tuple(Judged(claim, judge(tables, claim)) for claim in claims.read_claims())


def judge(tables: Tables, claim: Claim) -> Outcome:
    """Return how a claim comes out in the trials of a run.

    A claim about a language is judged for each framework that stands for it and ran.
    """
    if claim.judge:
        return _named(JUDGES, claim.judge, claim)(tables)
    language = next((name for each in claim.compare for name in each.servers if name in STAND_INS), "")
    if not language:
        return _judged(tables, claim, {})
    loads = [load for each in claim.compare for load in _loads(tables, each.load, (), each.modes, each.connections)]
    names = counterparts.standing_in(language, {str(name) for _, trials, _ in loads for name in trials["server"]})
    outcomes = {name: _judged(tables, claim, {language: name}, len(names)) for name in names}
    return claims.whichever(outcomes, f"which framework `{language}` is")


def _judged(tables: Tables, claim: Claim, stand_in: Mapping[str, str], readings: int = 1) -> Outcome:
    asked = [_questions(tables, each, stand_in) for each in claim.compare]
    every = [question for questions in asked for question in questions]
    cells = [question.cells for question in every]
    seen = [sentence for name in claim.also for sentence in _named(NOTES, name, claim)(tables, cells)]
    if not claim.depends_on:
        return claims.combined(weigh(tables, claim, every), claim, seen, level(tables.manifest), readings)
    outcomes = {
        each.reading: claims.combined(
            weigh(tables, claim, questions), claim, seen, level(tables.manifest), readings * len(asked)
        )
        for each, questions in zip(claim.compare, asked, strict=True)
    }
    return claims.whichever(outcomes, claim.depends_on)


def _named(functions: Mapping[str, T], name: str, claim: Claim) -> T:
    if name not in functions:
        raise LabError(f"{FILE}: claim {claim.name} names {name!r}; special_claims.py has {', '.join(functions)}.")
    return functions[name]


# --- from an entry to ratios ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Question:
    """One ratio that a claim asks for: a / b of the medians of two samples, named in `names`."""

    words: str
    names: tuple[str, ...]
    cells: tuple[Counterpart, ...]
    samples: tuple[Sample, Sample]
    rule: Rule
    column: str = ""
    """The one that both samples come from, if it is one: what noise alone makes of it is added to the interval."""


def _questions(tables: Tables, asked: Comparison, stand_in: Mapping[str, str]) -> list[Question]:
    servers = [stand_in.get(name, name) for name in asked.servers]
    other = asked.against
    loads = _loads(tables, asked.load, servers, asked.modes, asked.connections)
    others = _loads(tables, other.load or asked.load, servers, asked.modes, other.connections or asked.connections)
    if other.load:  # of several rates those that both have
        by_label = {load[0]: load for load in others}
        loads = [load for load in loads if load[0] in by_label] or loads[:1]
        others = [by_label.get(load[0], others[0]) for load in loads]
    pairs = zip(loads, others, strict=True)
    found = [_question_on_best_terms(tables, asked, servers, load, against) for load, against in pairs]
    # A claim about offered rates is about those that serve: which a run offers is not for the claim to say.
    serving = [each for each in found if _serves(tables, each)] if asked.load.endswith(" offered") else []
    return serving or found


def _serves(tables: Tables, question: Question) -> bool:
    """Whether a ratio, or a bound of it, can be given: by what limited the trials, never by a value."""
    if any(each.absence for each in question.cells) or not all(sample.n for sample in question.samples):
        return False
    bars = _bars(tables, question)
    return not bars or _is_bound(question, bars)


def _is_bound(question: Question, bars: Sequence[Bar]) -> bool:
    """Whether all that stands against a ratio is that one of its two servers did at least what it did."""
    return len(bars) == 1 and len(question.cells) == 2 and bars[0].is_floor


Load = tuple[str, pd.DataFrame, str]
"""What a load is called in short, its trials on all terms, and what is said where there are none."""
TERMS = ["idle", "share", "database_share"]
"""Of one load on different terms the first that serves: idle CPUs that poll, then the largest share of a core."""


def _question_on_best_terms(
    tables: Tables, asked: Comparison, servers: Sequence[str], load: Load, against: Load
) -> Question:
    """Return the ratio on the terms on which it can be given, chosen by what limited the trials and never by a value.

    First where every cell may be compared, then where one of them bounds the ratio, then where there are most trials.
    """
    (label, trials, sought), (_, rest, rest_sought) = load, against
    parts, others = _by_terms(trials), _by_terms(rest)
    both = [terms for terms in parts if terms in others] or list(parts)[:1]
    found = [
        _question(
            tables, asked, label,
            cell(parts[terms], servers[0], sought), cell(others.get(terms, rest), servers[-1], rest_sought),
        )
        for terms in both
    ]  # fmt: skip
    return min(found, key=lambda question: _standing(tables, question))


def _by_terms(trials: pd.DataFrame) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the trials on each of their terms, the first that serves first; without trials there are none of them."""
    ordered = trials.sort_values(TERMS, ascending=[True, False, False], kind="stable")
    return {tuple(terms): own for terms, own in ordered.groupby(TERMS, sort=False, dropna=False)} or {(): trials}


def _standing(tables: Tables, question: Question) -> tuple[bool, int, bool]:
    """Return what makes a question better than the same on other terms: the smaller tuple is the better."""
    fewest = min(sample.n for sample in question.samples)
    bars = [] if any(each.absence for each in question.cells) else _bars(tables, question)
    return any(each.absence for each in question.cells), sum(1 if bar.is_floor else 2 for bar in bars), fewest < FEWEST


def _loads(
    tables: Tables, kind: str, servers: Sequence[str], modes: Sequence[str], numbers: Sequence[int]
) -> list[tuple[str, pd.DataFrame, str]]:
    """Return what each load of a kind is called in short, its trials, and what is said where there are none.

    Of static answers and inserts those that all `servers` ran; without such a load any one, whose cells say why.
    """
    if kind == "count":
        pairs = [(mode, number) for mode in modes for number in numbers]
        return [(f"{MODES[mode]}, {number}", *counterparts.connections(tables, mode, number)) for mode, number in pairs]
    scenario, choices, sought = counterparts.LOADS[kind]
    trials = pd.concat([choose(tables, scenario) for choose in choices])
    if kind in ("experiments", "experiments-md5"):
        return [("", trials, sought)]
    loads = {str(load): own for load, own in trials.groupby(without_terms(trials), sort=False)}
    common = {load: own for load, own in loads.items() if set(servers) <= set(own["server"])}
    chosen = common or dict(list(loads.items())[:1]) or {sought: trials}
    # A rate is called the same whatever was sent at it.
    return [(load.removeprefix(f"{own['workload'].min()}, "), own, sought) for load, own in chosen.items()]


def _question(tables: Tables, asked: Comparison, load: str, a: Counterpart, b: Counterpart) -> Question:
    one_cell = (a.server, a.load) == (b.server, b.load)
    name, other = asked.quantity, asked.against.quantity or asked.quantity
    quantity = QUANTITIES[name]
    usual = "{servers} {noun}, {load}" if load else "{servers} {noun}"
    servers = "/".join(dict.fromkeys((a.server, b.server)))
    words = (asked.words or usual).replace("{servers}", servers).replace("{noun}", quantity.noun)
    names = (a.server, b.server) if a.server != b.server else (a.load, b.load)
    return Question(
        words.replace("{load}", load),
        tuple(each.replace("{server}", a.server) for each in asked.names) or names,
        (a,) if one_cell else (a, b),
        (quantity.sample(tables, a, name), QUANTITIES[other].sample(tables, b, other)),
        quantity.rule,
        name if name == other and quantity.points is None else "",
    )


# --- weighing ---------------------------------------------------------------------------------------------


def weigh(tables: Tables, claim: Claim, questions: Sequence[Question]) -> tuple[Part, ...]:
    """Return what each question of a claim comes to, before the claim is decided from all of them."""
    return tuple(_weighed(tables, claim, question) for question in questions)


def _weighed(tables: Tables, claim: Claim, question: Question) -> Part:
    def absent(why: str, numbers: str = "", values: str = "", found: Ratio | None = None) -> Part:
        return replace(part, values=values, ratio=found, outcome=ABSENT, why=why, numbers=numbers)

    part = Part(question.words, "", None, CLOSE, "", loads=tuple(each.load for each in question.cells))
    for each in question.cells:
        if each.absence:
            return absent(each.absence)
    if not min(sample.n for sample in question.samples):
        return absent("this run did not record it")
    values, found = _values(question), ratio(*question.samples, confidence=1 - level(tables.manifest))
    floor = _floor(tables, question)
    found = None if found is None else replace(found, low=found.low / floor, high=found.high * floor)
    bars = {_name(question, each): bar for each in question.cells if (bar := question.rule(tables, each))}
    first = min(bars.values(), key=lambda bar: _gravity(bar.why), default=None)
    numbers = "; ".join(f"{name}: {bar.numbers}" for name, bar in bars.items())
    if first and not (found and _is_bound(question, list(bars.values()))):
        return absent(first.why, numbers, values, found)
    if found is None:
        return absent(TOO_FEW, values=values)
    if first:
        known = replace(found, high=math.inf) if _name(question, question.cells[0]) in bars else replace(found, low=0.0)
        return _tested(replace(part, values=values, ratio=known, why=first.why, numbers=numbers), claim, floor)
    return _tested(replace(part, values=values, ratio=found), claim, floor)


def _tested(part: Part, claim: Claim, floor: float) -> Part:
    """Return a part with its p-values; one-sided tests, of which a bound on one side allows only one.

    What noise makes of one program under two labels (`floor`) is added to the distance from every border.
    """
    found = part.ratio
    assert found is not None

    def below(border: float) -> float:
        return 1.0 if found.high == math.inf else found.p_below(border / floor)

    def above(border: float) -> float:
        return 1.0 if found.low == 0 else found.p_above(border * floor)

    within, beyond = [], []
    if claim.at_least > 0:
        within, beyond = [above(claim.at_least)], [below(claim.at_least)]
    if claim.at_most < math.inf:
        within, beyond = [*within, below(claim.at_most)], [*beyond, above(claim.at_most)]
    return replace(part, p_holds=max(within), p_fails=len(beyond) * min(beyond))


def _bars(tables: Tables, question: Question) -> list[Bar]:
    return [bar for each in question.cells if (bar := question.rule(tables, each))]


def _name(question: Question, each: Counterpart) -> str:
    """Return what tells the cells of a question apart: the server, or of one server the load."""
    return each.server if len({known.server for known in question.cells}) > 1 else each.load


def _gravity(why: str) -> int:
    """Return the place of a reason: of two cells that may not be compared, the one whose limit is known says why."""
    return next((place for place, limit in enumerate(Limit) if why.startswith(limit.why_not)), len(Limit))


def _values(question: Question) -> str:
    pairs = zip(question.names, question.samples, strict=True)
    medians = "; ".join(f"{name}: {style.number(sample.median)}" for name, sample in pairs)
    counts = [sample.n for sample in question.samples]
    trials = captions.plural(counts[0], "trial") if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} trials"
    return f"{medians} (medians of {trials})"


def _floor(tables: Tables, question: Question) -> float:
    floors = [
        noise_floor(tables, each.load, question.column, within=bool(each.sealed["session"].ne("").all()))
        for each in question.cells
        if question.column
    ]
    return max(floors, default=1.0)
