"""Figures of the published page: ratios of Go to Rust next to ours, and claims about ratios."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

from runner.present.chart.value import Chart, chart, empty
from runner.present.comparison.obstacle import is_the_servers
from runner.present.figures import forest
from runner.present.frames import MODES, Tables
from runner.present.look import captions, style
from runner.present.published import counterparts, published_table
from runner.present.published.counterparts import repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.published.outcomes import ABSENT, CLOSE, FAILS, HOLDS, OUTCOMES
from runner.present.published.published_table import Row
from runner.present.statistics.inference import FEWEST_TRIALS, ratio

BESIDE = "Go / Rust: the published ratios, and ours"
CLAIMED = "What was claimed, and what was measured"
LOOKS = {
    HOLDS: (style.INK, "o", False),
    FAILS: (style.INK, "X", False),
    CLOSE: (style.INK, "o", True),
    ABSENT: (style.GREY, "o", True),
}
"""Outcome -> colour, marker, and whether the marker is hollow."""


@chart("published-ratios", notebook="published", needs=repeats)
def beside_ours(tables: Tables) -> Chart:
    """Return the chart of each published ratio of a Go and a Rust server, next to ours."""
    published: dict[tuple[str, ...], list[Row]] = {}
    for row in published_table.rows(tables):
        compared = row.number.source, row.number.scenario, row.load, row.number.metric
        published.setdefault(compared, []).append(row)
    groups: dict[str, list[forest.ForestRow]] = {}
    for rows in published.values():
        of_go, of_rust = (
            [row for row in rows if row.number.language == language] for language in ("Go", "Rust")
        )
        # If a language has several published servers, only the first is shown.
        for rust, go in product(of_rust, of_go):
            if (go.number, rust.number) == (
                of_go[0].number,
                of_rust[0].number,
            ) and go.metric == rust.metric:
                found = _ratio(go, rust)
                groups.setdefault(found.load, []).append(found.row)
    marks = [row.marks for drawn_rows in groups.values() for row in drawn_rows]
    known = [mark for each in marks for mark in each]
    if not known:
        return empty(BESIDE, "This run has no load and pair of servers that a source compares.")
    words = (
        "Dot: ratio of our means; line: the 95 % interval of the ratio within blocks, from five "
        "trials a side on. The published numbers have no interval."
    )
    key = (
        "Diamond: published. Dot: this run. Hollow and pale: not the servers' own ratio, by what "
        "limited the trials."
    )
    head = (
        f"Forest plot on a logarithmic axis: {len(marks)} published ratios of a Go to a Rust "
        f"server, {len(known)} of them with ours beside it, "
        f"{sum(not mark.hollow for mark in known)} of which are the servers' own."
    )
    trials = counterparts.published_trials(tables)
    caption = captions.caption(tables, trials[trials["load_model"] == "closed"], words)
    return forest.forest(BESIDE, caption, key, groups, "Go / Rust", head)


@dataclass(frozen=True)
class _PublishedRatio:
    """The row of two published numbers, and the load under which the figure has it."""

    load: str
    row: forest.ForestRow


def _ratio(go: Row, rust: Row) -> _PublishedRatio:
    """Return the ratio of two published numbers of one load and metric."""
    number = go.number
    cells = (go.cell, rust.cell)
    said = number.value / rust.number.value
    size = int(number.connections)
    names = f"{go.cell.server}/{rust.cell.server}"
    quantity = go.quantity.label
    # The matrix has one quantity at many numbers of connections; other loads have many quantities
    # at one number of users.
    if number.scenario == "count":
        load = f"count, {MODES.get(number.mode, number.mode)}: {quantity}"
        label = f"{names}, {captions.plural(size, 'connection')}"
    else:
        users = next(
            (int(counterparts.sizes(each.trials).iloc[0]) for each in cells if len(each.trials)),
            size,
        )
        load = f"{number.scenario}, {size:,} users{f', here {users:,}' * (users != size)}"
        label = f"{names}: {quantity}"
    found = ratio(go.sample, rust.sample)
    middle = found.ratio if found else go.ours.value / rust.ours.value
    if not math.isfinite(middle):
        absent = forest.ForestRow(label, f"published {said:.2f}\nnot here", other=said)
        return _PublishedRatio(load, absent)
    low = math.nan if found is None else found.low
    high = math.nan if found is None else found.high
    solid = all(is_the_servers(each.sealed, go.quantity.quantity) for each in cells)
    mark = forest.Mark(middle, low, high, style.INK if solid else style.GREY, hollow=not solid)
    here = f"here {middle:.2f}" + (f" [{low:.2f}–{high:.2f}]" if found else "")
    row = forest.ForestRow(label, f"published {said:.2f}\n{here}", (mark,), other=said)
    return _PublishedRatio(load, row)


@chart(
    "published-claims", notebook="published", needs=lambda tables: repeats(tables, FEWEST_TRIALS)
)
def claimed_and_measured(tables: Tables) -> Chart:
    """Return the chart of each claim's comparisons, over the range in which the claim holds."""
    judged = [each for each in judge_all(tables) if each.ratios and each.claim.range_words]
    groups = {
        f"{outcome[0].upper()}{outcome[1:]}": rows
        for outcome in OUTCOMES
        if (rows := [_claim(each) for each in judged if each.found.outcome == outcome])
    }
    if not groups:
        reason = (
            f"No claim is about servers and a load of which this run has {FEWEST_TRIALS} trials a "
            "side."
        )
        return empty(CLAIMED, reason)
    words = (
        "95 % intervals, within sessions or blocks; a claim of several comparisons fails by Holm's "
        "correction."
    )
    key = (
        "Grey band: the ratios with which the claim agrees. A mark for each comparison that it "
        "needs. Dot: it agrees. Cross: it does not. Hollow: too close to the border. Hollow and "
        "grey: the ratio is not the servers'."
    )
    caption = captions.caption(tables, counterparts.published_trials(tables), words)
    counts = Counter(
        part.outcome for each in judged for part in each.found.parts if part.ratio is not None
    )
    said = ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES if counts[outcome])
    head = (
        f"Forest plot of {counts.total()} ratios with intervals, each over the range that was "
        f"claimed: {said}."
    )
    return forest.forest(CLAIMED, caption, key, groups, "ratio", head)


def _claim(judged: Judged) -> forest.ForestRow:
    marks = []
    claim = judged.claim
    for part in judged.found.parts:
        if part.ratio is not None:
            color, marker, hollow = LOOKS[part.outcome]
            marks.append(
                forest.Mark(
                    part.ratio.ratio, part.ratio.low, part.ratio.high, color, marker, hollow
                )
            )
    claimed = f"claimed {claim.range_words}"
    found = sorted(mark.ratio for mark in marks)
    compared = f"{found[0]:.2f}" if len(found) == 1 else captions.plural(len(found), "comparison")
    said = f"{claimed}, {found[0]:.2f} to {found[-1]:.2f}" if len(found) > 1 else ""
    band = claim.at_least, claim.at_most
    return forest.ForestRow(
        claim.short, f"{claimed}\n{compared}", tuple(marks), band=band, said=said
    )
