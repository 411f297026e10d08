"""Alt texts of the figures that hold a run against published results, or against another run."""

from __future__ import annotations

import math
from collections import Counter

from runner.present.chart.sentences import Form, fit, nothing
from runner.present.comparison.compare import RunComparison
from runner.present.frames import Tables
from runner.present.published.claims import OUTCOMES
from runner.present.published.claims_registry import judge_all
from runner.present.published.numbers import read_published
from runner.present.published.ratios import pairs


def ratios(tables: Tables) -> str:
    """Describe the published ratios of Go and Rust servers beside ours."""
    found = pairs(tables, read_published())
    known = [pair for pair in found if math.isfinite(pair.ours)]
    if not known:
        return nothing(
            "published ratios beside ours", "This run has no load and pair of servers that a source compares."
        )
    own = sum(pair.own for pair in known)
    head = (
        f"Forest plot on a logarithmic axis: {len(found)} published ratios of a Go to a Rust server, {len(known)} of "
        f"them with ours beside it, {own} of which are the servers' own."
    )
    texts = [f"{pair.load}, {pair.words}: published {pair.published:.2f}, here {pair.ours:.2f}." for pair in known]
    return fit(head, [Form(texts, "ratio")])


def measured(tables: Tables) -> str:
    """Describe the comparisons behind the claims about ratios."""
    judged = [each for each in judge_all(tables) if each.claim.range_words]
    parts = [(each, part) for each in judged for part in each.outcome.parts if part.ratio is not None]
    if not parts:
        return nothing("what was claimed and measured", "No claim is about servers and a load with enough trials here.")
    counts = Counter(part.outcome for _, part in parts)
    said = ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES if counts[outcome])
    head = f"Forest plot of {len(parts)} ratios with intervals, each over the range that was claimed: {said}."
    texts = [
        f"{part.words}: {part.ratio.ratio:.2f}, claimed {each.claim.range_words}: {part.outcome}."
        for each, part in parts
        if part.ratio is not None
    ]
    return fit(head, [Form(texts, "ratio")])


def comparison(found: RunComparison) -> str:
    """Describe the ratios of two runs."""
    known = [row for row in found.comparisons if row.ratio is not None]
    if not known:
        return nothing("the ratios of two runs", "No comparison has enough trials for one.")
    counts = Counter(row.verdict for row in found.comparisons)
    said = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    head = f"Forest plot of {len(known)} ratios B / A with 95 % intervals on a logarithmic axis: {said}."
    far = sorted(known, key=lambda row: -abs(math.log(row.ratio.ratio)) if row.ratio else 0.0)
    texts = [
        f"{row.server}, {row.load}, {row.quantity}: {row.ratio.ratio:.3f} [{row.ratio.low:.3f} to "
        f"{row.ratio.high:.3f}], {row.verdict}."
        for row in far
        if row.ratio
    ]
    return fit(f"{head} Farthest from 1 first.", [Form(texts, "ratio")])
