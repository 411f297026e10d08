"""Make the two charts of the page on published numbers.

The first chart compares published ratios of Rust and Go servers with the ratios of this run. The
second chart shows the published claims about ratios, with their outcomes.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

from runner.present.chart.value import Chart, chart, empty
from runner.present.comparison.compare import widen
from runner.present.comparison.obstacle import is_the_servers
from runner.present.comparison.ratios import noise_floor
from runner.present.figures import forest
from runner.present.frames import MODES, Tables
from runner.present.look import captions, style
from runner.present.published import claim_sheet, counterparts, published_table
from runner.present.published.claim_sheet import ClaimRow
from runner.present.published.claim_words import sentence
from runner.present.published.counterparts import METRICS, repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.published.outcomes import ABSENT, HOLDS, OUTCOMES
from runner.present.published.published_table import Row
from runner.present.statistics.inference import FEWEST_TRIALS, level, ratio

BESIDE = "How far Rust is ahead of Go, as published and here"


@chart("published-ratios", notebook="published", needs=repeats)
def beside_ours(tables: Tables) -> Chart:
    """Return the chart that shows published ratios of a Rust and a Go server beside our ratios.

    In every row, a ratio above 1 means that the Rust server is ahead: it has the higher rate, or
    the lower cost or response time.
    """
    published: dict[tuple[str, ...], list[Row]] = {}
    for row in published_table.rows(tables):
        compared = row.number.source, row.number.scenario, row.load, row.number.metric
        published.setdefault(compared, []).append(row)
    found: list[_PublishedRatio] = []
    for rows in published.values():
        of_go = [row for row in rows if row.number.language == "Go"]
        of_rust = [row for row in rows if row.number.language == "Rust"]
        # If a source has several servers of a language, show only the first of these servers.
        for rust, go in product(of_rust, of_go):
            if (go.number, rust.number) == (
                of_go[0].number,
                of_rust[0].number,
            ) and go.metric == rust.metric:
                found.append(_ratio(tables, go, rust))
    known = [each for each in found if each.row.marks]
    if not known:
        none = "This run has no numbers of a Rust and a Go server that a source compares."
        return empty(BESIDE, none)
    groups: dict[str, list[forest.ForestRow]] = {}
    for each in sorted(known, key=lambda each: each.place):
        groups.setdefault(each.group, []).append(each.row)
    for group in dict.fromkeys(each.group for each in known):
        groups[group] = groups.pop(group)  # restore the order of the published numbers
    own = sum(not mark.hollow for each in known for mark in each.row.marks)
    key = (
        "Right of 1, Rust is ahead: it does more, or takes less. Diamond: published. Dot: this "
        "run, with its 95 % interval. Hollow grey dot: the ratio does not describe the servers, "
        "for example because the generator was the limit. Numbers: published → here."
    )
    head = (
        "Forest plot on a logarithmic axis: by how much a Rust server is ahead of a Go server, in "
        f"{len(known)} published ratios with ours beside them, {own} of which are the servers' own."
    )
    words = "Ours are ratios of means within blocks, and the published ones have no interval."
    caption = captions.caption(tables, words)
    return forest.forest(BESIDE, caption, key, groups, "Rust is ahead by a factor of", head)


@dataclass(frozen=True)
class _PublishedRatio:
    """A row of the figure, which shows one published ratio, and the group of this row."""

    group: str
    place: int
    """Position of the row's quantity within the group."""
    row: forest.ForestRow


def _ratio(tables: Tables, go: Row, rust: Row) -> _PublishedRatio:
    """Return the row with the published ratio of a Rust server and a Go server, and our ratio.

    The row has no mark if the run did not measure the ratio. The interval of our ratio is computed
    as in the report: with the confidence level of the run, and widened by the run's noise.
    """
    number = go.number
    quantity = go.quantity.quantity
    ahead, behind = (rust, go) if quantity.more_is_better else (go, rust)
    said = ahead.number.value / behind.number.value
    group, label = _names(go, rust)
    narrow = ratio(ahead.sample, behind.sample, confidence=1 - level(tables.manifest))
    found = None if narrow is None else widen(narrow, _noise(tables, go, rust))
    middle = found.ratio if found else ahead.ours.value / behind.ours.value
    if not math.isfinite(middle):
        return _PublishedRatio(group, 0, forest.ForestRow(label, "", other=said))
    low = math.nan if found is None else found.low
    high = math.nan if found is None else found.high
    solid = all(is_the_servers(each.cell.sealed, quantity) for each in (go, rust))
    mark = forest.Mark(middle, low, high, style.INK if solid else style.GREY, hollow=not solid)
    here = f"{middle:.2f}" + (f" [{low:.2f}–{high:.2f}]" if found else "")
    row = forest.ForestRow(
        label,
        f"{said:.2f} → {here}",
        (mark,),
        other=said,
        said=f"published {said:.2f}, here {here}",
    )
    return _PublishedRatio(group, list(METRICS).index(number.metric), row)


def _noise(tables: Tables, go: Row, rust: Row) -> float:
    """Return the factor (>= 1) by which our ratio's interval is widened because of noise.

    `go` and `rust` are the rows of the two servers that the ratio compares. `noise_floor` computes
    a factor for the load of each server, from the ratio between two names of one server. The
    larger of the two factors is returned. It is 1 if the run has no server with two names.
    """
    column = go.quantity.quantity.column
    return max(
        noise_floor(
            tables,
            each.cell.load,
            column,
            within=bool(each.cell.sealed["session"].ne("").all()),
        )
        for each in (go, rust)
    )


def _names(go: Row, rust: Row) -> tuple[str, str]:
    """Return two texts for a published ratio: the name of its group, and the name of its row.

    For GET /count, the sources publish one quantity at many numbers of connections. Therefore a row
    is named by its number of connections. For other requests, the sources publish many quantities
    at one number of users. Therefore a row is named by its quantity.
    """
    number = go.number
    servers = f"{rust.cell.server} beside {go.cell.server}"
    size = int(number.connections)
    if number.scenario == "count":
        mode = MODES.get(number.mode, number.mode)
        group = f"{servers}: {go.quantity.name} of count, {mode}"
        return group, f"{size:,} connection{'s' * (size != 1)}"
    cells = (go.cell, rust.cell)
    users = next(
        (int(counterparts.sizes(each.trials).iloc[0]) for each in cells if len(each.trials)),
        size,
    )
    here = f", here {users:,}" * (users != size)
    return f"{servers}: {number.scenario}, {size:,} users{here}", go.quantity.name


@chart(
    "published-claims", notebook="published", needs=lambda tables: repeats(tables, FEWEST_TRIALS)
)
def claimed_and_measured(tables: Tables) -> Chart:
    """Return the chart of claims about ratios: the claimed range, our ratios and the outcome."""
    judged = [
        each
        for each in judge_all(tables)
        if each.ratios and each.claim.range_words and each.found.outcome != ABSENT
    ]
    if not judged:
        reason = (
            f"No claim about a ratio can be judged: a ratio needs {FEWEST_TRIALS} trials of each "
            "side, and values that describe the servers."
        )
        return empty("What was claimed, and what was measured", reason)
    counts = Counter(each.found.outcome for each in judged)
    title = (
        f"{counts[HOLDS]} of {captions.plural(len(judged), 'published claim')} about a ratio "
        f"hold{'s' * (counts[HOLDS] == 1)} here"
    )
    places = {outcome: place for place, outcome in enumerate(OUTCOMES)}
    judged.sort(key=lambda each: (places[each.found.outcome], each.direction))
    words = (
        "Intervals of joined dots are not drawn, and a claim that needs all comparisons fails if "
        "one fails after Holm's correction."
    )
    caption = captions.caption(tables, words)
    rows = [_claim(each) for each in judged]
    return claim_sheet.claim_sheet(title, caption, rows)


def _claim(judged: Judged) -> ClaimRow:
    claim = judged.claim
    known = [
        part for part in judged.found.parts if part.ratio is not None and part.outcome != ABSENT
    ]
    return ClaimRow(
        words=sentence(claim),
        group=judged.found.outcome,
        outcome=judged.outcome_words,
        at_least=claim.at_least,
        at_most=claim.at_most,
        ratios=tuple(part.ratio for part in known if part.ratio is not None),
    )
