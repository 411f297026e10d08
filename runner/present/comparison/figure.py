"""Figure of two runs beside each other: the ratio of every cell that both have, with its interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from runner.present.answers.ranking_text import percent
from runner.present.chart import Chart, empty
from runner.present.chart.sentences import Form, fit, nothing
from runner.present.comparison.compare import BETTER, FEW, TIE, WORSE, CellComparison, RunComparison
from runner.present.figures import forest
from runner.present.look import captions, style
from runner.present.look.palette import Identity

TITLE = "B / A: what both runs measured"
GREY = Identity(style.GREY, style.GREY, "o", "-")


def ratios(found: RunComparison, looks: Mapping[str, Identity]) -> Chart:
    """Return the ratio B / A of each comparison, a row each, grouped by load; `looks` are those of the servers."""
    if not found.comparisons:
        reason = "No cell of both runs has a quantity that may be compared in both."
        return empty(TITLE, "the ratios of two runs", reason)
    groups: dict[str, list[forest.ForestRow]] = {}
    for row in found.comparisons:
        groups.setdefault(row.load, []).append(_row(row, looks.get(row.server, GREY), found.fail_above_pct))
    floors = any(row.floor > 1 for row in found.comparisons)
    key = [
        "Line: 95 % interval. Filled: a difference; hollow: a tie. Pale band: differences that these trials would have "
        "missed more than once in five times."
    ]
    key += ["Dotted: what noise alone made of one program under two labels."] if floors else []
    if found.fail_above_pct is not None:
        key.append(f"Upright tick: {found.fail_above_pct:g} % worse, the border of a regression.")
    return forest.forest(TITLE, caption(found), " ".join(key), groups, "B / A", lambda _: _describe(found))


def _describe(found: RunComparison) -> str:
    """Describe the ratios of two runs, the farthest from 1 first."""
    known = [(row, row.ratio) for row in found.comparisons if row.ratio is not None]
    if not known:
        return nothing("the ratios of two runs", "No comparison has enough trials for one.")
    counts = Counter(row.verdict for row in found.comparisons)
    said = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    head = f"Forest plot of {len(known)} ratios B / A with 95 % intervals on a logarithmic axis: {said}."
    texts = [
        f"{row.server}, {row.load}, {row.quantity}: {of_both.ratio:.3f} [{of_both.low:.3f} to {of_both.high:.3f}], "
        f"{row.verdict}."
        for row, of_both in sorted(known, key=lambda pair: -abs(math.log(pair[1].ratio)))
    ]
    return fit(f"{head} Farthest from 1 first.", [Form(texts, "ratio")])


def caption(found: RunComparison) -> str:
    """Return the two runs, how many trials a side the comparisons have, and how they came out."""
    sizes = [side.n for row in found.comparisons for side in (row.a, row.b)]
    trials = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    counts = [
        f"{verdict} {count}"
        for verdict in (TIE, BETTER, WORSE, FEW)
        if (count := sum(row.verdict == verdict for row in found.comparisons))
    ]
    return (
        f"A: {found.run_a}. B: {found.run_b}. {captions.plural(len(found.comparisons), 'comparison')} of {trials} "
        f"trials a side: {', '.join(counts)}. Intervals are Welch's on logarithms; differences after Holm's correction."
    )


def _row(row: CellComparison, look: Identity, fail_above_pct: float | None) -> forest.ForestRow:
    words = f"{row.server}: {row.quantity}"
    verdict = f"{row.verdict}, regression" if row.regression else row.verdict
    if row.ratio is None:
        return forest.ForestRow(words, verdict)
    found = row.ratio
    detectable = f" (detectable: {percent(row.detectable)})" if row.verdict == TIE and row.detectable else ""
    limit = math.nan
    if fail_above_pct is not None:
        limit = 1 - fail_above_pct / 100 if row.more_is_better else 1 + fail_above_pct / 100
    return forest.ForestRow(
        words=words, note=f"{found.ratio:.3f} [{found.low:.3f}–{found.high:.3f}]\n{verdict}{detectable}", limit=limit,
        marks=(forest.Mark(found.ratio, found.low, found.high, look.color, look.marker, hollow=row.verdict == TIE),),
        band=(1 / row.detectable, row.detectable) if row.detectable else None,
        floor=row.floor if row.floor > 1 else math.nan,
    )  # fmt: skip
