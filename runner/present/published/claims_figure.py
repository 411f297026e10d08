"""Figure of the published claims that are about a ratio: what was claimed, and what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from runner.present.chart import Chart, chart, empty
from runner.present.chart.sentences import Form, fit
from runner.present.figures import forest
from runner.present.frames import Tables
from runner.present.look import captions, style
from runner.present.published.claims import ABSENT, CLOSE, FAILS, HOLDS, OUTCOMES, Part
from runner.present.published.counterparts import CLOSED, OPEN, repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.statistics.inference import FEWEST

TITLE = "What was claimed, and what was measured"
LOOKS = {
    HOLDS: (style.INK, "o", False),
    FAILS: (style.INK, "X", False),
    CLOSE: (style.INK, "o", True),
    ABSENT: (style.GREY, "o", True),
}
"""Outcome -> colour, marker, and whether it is hollow."""


@chart("published-claims", notebook="published", needs=lambda tables: repeats(tables, FEWEST))
def measured(tables: Tables) -> Chart:
    """Return the comparisons behind each claim that gave a ratio, over the range in which the claim holds."""
    judged = [each for each in judge_all(tables) if each.claim.range_words]
    rows = [(each, _marks(each)) for each in judged if _marks(each)]
    groups = {
        f"{outcome[0].upper()}{outcome[1:]}": own
        for outcome in OUTCOMES
        if (own := [_row(each, marks) for each, marks in rows if each.outcome.outcome == outcome])
    }
    if not groups:
        reason = f"No claim is about servers and a load of which this run has {FEWEST} trials a side."
        return empty(TITLE, "what was claimed and measured", reason)
    words = "95 % intervals, within sessions or blocks; a claim of several comparisons fails by Holm's correction."
    key = (
        "Grey band: the ratios with which the claim agrees. A mark for each comparison that it needs. Dot: it agrees. "
        "Cross: it does not. Hollow: too close to the border. Hollow and grey: the ratio is not the servers'."
    )
    caption = captions.caption(tables, _trials(tables), words)
    return forest.forest(TITLE, caption, key, groups, "ratio", lambda _: _describe(judged))


def _describe(judged: Sequence[Judged]) -> str:
    """Describe each comparison behind the claims."""
    parts = [(each, part, part.ratio) for each in judged for part in each.outcome.parts if part.ratio is not None]
    counts = Counter(part.outcome for _, part, _ in parts)
    said = ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES if counts[outcome])
    head = f"Forest plot of {len(parts)} ratios with intervals, each over the range that was claimed: {said}."
    texts = [
        f"{part.words}: {ratio.ratio:.2f}, claimed {each.claim.range_words}: {part.outcome}."
        for each, part, ratio in parts
    ]
    return fit(head, [Form(texts, "ratio")])


def _trials(tables: Tables) -> pd.DataFrame:
    workloads = [name for names in (*CLOSED.values(), *OPEN.values()) for name in names]
    return tables.trials[tables.trials["workload"].isin(workloads)]


def _marks(judged: Judged) -> tuple[forest.Mark, ...]:
    return tuple(_mark(part) for part in judged.outcome.parts if part.ratio is not None)


def _mark(part: Part) -> forest.Mark:
    assert part.ratio is not None
    color, marker, hollow = LOOKS[part.outcome]
    return forest.Mark(part.ratio.ratio, part.ratio.low, part.ratio.high, color, marker, hollow)


def _row(judged: Judged, marks: tuple[forest.Mark, ...]) -> forest.ForestRow:
    claim = judged.claim
    compared = f"{marks[0].ratio:.2f}" if len(marks) == 1 else captions.plural(len(marks), "comparison")
    note = f"claimed {claim.range_words}\n{compared}"
    return forest.ForestRow(claim.short, note, marks, band=(claim.at_least, claim.at_most))
