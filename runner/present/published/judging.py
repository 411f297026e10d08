"""How the claims come out in a run: the ratios that an entry asks for, measured and held against what is claimed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pandas as pd
from scipy.special import stdtrit

from runner.limits import Limit
from runner.model import LabError
from runner.present.answers.summary import noise_floor
from runner.present.frames import MODES, Tables
from runner.present.look import captions, style
from runner.present.published import claims, counterparts
from runner.present.published.claims import FAILS, FILE, HOLDS, UNDECIDED, Claim, Comparison, Outcome, Part
from runner.present.published.counterparts import STAND_INS, Cell, cell
from runner.present.published.quantities import QUANTITIES, Rule
from runner.present.published.special_claims import JUDGES, NOTES
from runner.present.statistics.inference import ALPHA, FEWEST, Ratio, Sample, ratio

T = TypeVar("T")
WHY = {
    HOLDS: "the interval lies within what is claimed",
    FAILS: "the interval lies beyond what is claimed",
    UNDECIDED: "the interval reaches across the border of what is claimed: more trials would decide",
}
TOO_FEW = f"not enough trials: a ratio takes {FEWEST} a side"


@dataclass(frozen=True)
class Judged:
    """A claim and how it comes out in a run."""

    claim: Claim
    outcome: Outcome


@functools.lru_cache(maxsize=1)
def judge_all(tables: Tables) -> tuple[Judged, ...]:
    """Return every claim with its outcome in a run; LabError for an entry that is not whole."""
    whole = tables.on_whole_cores
    return tuple(Judged(claim, judge(whole, claim)) for claim in claims.read_claims())


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
    outcomes = {name: _judged(tables, claim, {language: name}) for name in names}
    return claims.whichever(outcomes, f"which framework `{language}` is")


def _judged(tables: Tables, claim: Claim, stand_in: Mapping[str, str]) -> Outcome:
    asked = [_questions(tables, each, stand_in) for each in claim.compare]
    every = [question for questions in asked for question in questions]
    cells = [question.cells for question in every]
    seen = [sentence for name in claim.also for sentence in _named(NOTES, name, claim)(tables, cells)]
    if not claim.depends_on:
        return claims.combined(weigh(tables, claim, every), seen, claim.combine)
    readings = {
        each.reading: claims.combined(weigh(tables, claim, questions), seen, claim.combine)
        for each, questions in zip(claim.compare, asked, strict=True)
    }
    return claims.whichever(readings, claim.depends_on)


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
    cells: tuple[Cell, ...]
    samples: tuple[Sample, Sample]
    rule: Rule
    column: str = ""
    """The one that both samples come from, if it is one: what noise alone makes of it is added to the interval."""


def _questions(tables: Tables, asked: Comparison, stand_in: Mapping[str, str]) -> list[Question]:
    servers = [stand_in.get(name, name) for name in asked.servers]
    other = asked.against
    loads = _loads(tables, asked.load, servers, asked.modes, asked.connections)
    others = _loads(tables, other.load or asked.load, servers, asked.modes, other.connections or asked.connections)
    return [
        _question(tables, asked, label, cell(trials, servers[0], sought), cell(rest, servers[-1], rest_sought))
        for (label, trials, sought), (_, rest, rest_sought) in zip(loads, others, strict=True)
    ]


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
    if kind.startswith("experiments"):
        return [(kind, trials, sought)]
    loads = {str(load): own for load, own in trials.groupby("load", sort=False)}
    common = {load: own for load, own in loads.items() if set(servers) <= set(own["server"])}
    chosen = common or dict(list(loads.items())[:1]) or {sought: trials}
    return [(load, own, sought) for load, own in chosen.items()]


def _question(tables: Tables, asked: Comparison, load: str, a: Cell, b: Cell) -> Question:
    one_cell = (a.server, a.load) == (b.server, b.load)
    name, other = asked.quantity, asked.against.quantity or asked.quantity
    quantity = QUANTITIES[name]
    usual = "{servers} {noun}" if asked.load.startswith("experiments") else "{servers} {noun}, {load}"
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
    """Return what each question of a claim comes to.

    Intervals hold together with 95 %: each has the confidence 1 - 0.05 / m (Bonferroni), so that a claim of many parts
    is refuted by chance no more often than one of a single part.
    """
    return tuple(_weighed(tables, claim, question, len(questions)) for question in questions)


def _weighed(tables: Tables, claim: Claim, question: Question, together: int) -> Part:
    def undecided(why: str, numbers: str = "", values: str = "", found: Ratio | None = None) -> Part:
        return Part(question.words, values, found, UNDECIDED, why, numbers)

    for each in question.cells:
        if each.absence:
            return undecided(each.absence)
    if not min(sample.n for sample in question.samples):
        return undecided("this run did not record it")
    values, found = _values(question), ratio(*question.samples)
    found = None if found is None else joint(found, together, _floor(tables, question))
    bars = {_name(question, each): bar for each in question.cells if (bar := question.rule(tables, each))}
    if bars:
        first = min(bars.values(), key=lambda bar: _gravity(bar.why))
        return undecided(first.why, "; ".join(f"{name}: {bar.numbers}" for name, bar in bars.items()), values, found)
    if found is None:
        return undecided(TOO_FEW, values=values)
    outcome = claims.claimed(found, claim)
    return Part(question.words, values, found, outcome, WHY[outcome])


def _name(question: Question, each: Cell) -> str:
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
    floors = [noise_floor(tables, each.load, question.column) for each in question.cells if question.column]
    return max(floors, default=1)


def joint(found: Ratio, together: int, floor: float = 1.0) -> Ratio:
    """Return a ratio whose interval holds together with those of `together` - 1 others with 95 %.

    What noise makes of one program under two labels (`floor`) is added at both ends.
    """
    half = -float(stdtrit(found.degrees, ALPHA / together / 2)) * found.standard_error + math.log(floor)
    return replace(found, low=found.ratio * math.exp(-half), high=found.ratio * math.exp(half))
