"""The published ratios of a Go and a Rust server beside ours: machines differ, ratios compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present.chart import Chart, chart, empty
from runner.present.chart.sentences import Form, fit
from runner.present.figures import forest
from runner.present.frames import MODES, Tables, server_bound
from runner.present.look import captions, style
from runner.present.published.counterparts import CLOSED, METRICS, read_published, repeats, sizes
from runner.present.published.published_table import counterpart, standing_in
from runner.present.published.quantities import in_column
from runner.present.statistics.inference import Ratio, ratio

TITLE = "Go / Rust: the published ratios, and ours"
SIDES = ("Go", "Rust")
"""Languages of what is divided: the first by the second."""


@dataclass(frozen=True)
class Pair:
    """One published ratio of two servers, and ours of the servers that stand for them.

    `ours` is the ratio of medians, NaN where the run has none (`why` says so); `interval` the ratio within blocks
    with its 95 % interval, where there are trials enough. `own`: whether it is the servers', and not a generator's.
    """

    load: str
    words: str
    published: float
    ours: float
    interval: Ratio | None
    own: bool
    why: str


def pairs(tables: Tables, published: pd.DataFrame) -> list[Pair]:
    """Return a pair for each number that a source has of a Go and of a Rust server under the same load."""
    keys = ["source", "scenario", "mode", "connections", "metric"]
    found: list[Pair] = []
    for _, rows in published.groupby(keys, sort=False, dropna=False):
        sides = [rows[rows["language"] == language].to_dict("records") for language in SIDES]
        if all(sides):
            found += _pairs(tables, sides[0][0], sides[1][0])
    return found


def _pairs(tables: Tables, go: Mapping[Any, Any], rust: Mapping[Any, Any]) -> list[Pair]:
    return [
        _pair(tables, {server: go, other: rust}, words, column)
        for server in standing_in(tables, go)
        for other in standing_in(tables, rust)
        for words, column in METRICS[str(go["metric"])].items()
    ]


def _pair(tables: Tables, rows: Mapping[str, Mapping[Any, Any]], words: str, column: str) -> Pair:
    """Return the pair of two servers of ours, each with the published row that it stands for."""
    cells = [counterpart(tables, row, server) for server, row in rows.items()]
    go, rust = rows.values()
    said = float(go["value"]) / float(rust["value"])
    names, quantity = "/".join(rows), words.removesuffix(" here")
    size, mode = int(go["connections"]), str(go["mode"])
    # The matrix has one quantity at many numbers of connections, the other loads many at one number of users.
    if str(go["scenario"]) == "count":
        load, named = f"count, {MODES.get(mode, mode)}: {quantity}", f"{names}, {captions.plural(size, 'connection')}"
    else:
        users = next((int(sizes(each.trials).iloc[0]) for each in cells if len(each.trials)), size)
        measured = "" if users == size else f", here {users:,}"
        load, named = f"{go['scenario']}, {size:,} users{measured}", f"{names}: {quantity}"
    absent = next((each.absence for each in cells if each.absence), "")
    if absent:
        return Pair(load, named, said, math.nan, None, own=False, why=absent)
    samples = [in_column(each, column) for each in cells]
    # CPU is the server's own, whatever was the limit.
    own = column.startswith("server_cpu") or all(server_bound(each.sealed) for each in cells)
    ours = samples[0].median / samples[1].median
    return Pair(load, named, said, ours, ratio(*samples), own, "" if math.isfinite(ours) else "no value here")


@chart("published-ratios", notebook="published", needs=lambda tables: repeats(tables, 1))
def dumbbells(tables: Tables) -> Chart:
    """Return each published ratio of a Go and a Rust server, and ours with its interval, a row each."""
    found = pairs(tables, read_published())
    workloads = [name for names in CLOSED.values() for name in names]
    trials = tables.trials[tables.trials["workload"].isin(workloads) & tables.trials["load_model"].eq("closed")]
    if not any(math.isfinite(pair.ours) for pair in found):
        reason = "This run has no load and pair of servers that a source compares."
        return empty(TITLE, "published ratios beside ours", reason)
    groups: dict[str, list[forest.ForestRow]] = {}
    for pair in found:
        groups.setdefault(pair.load, []).append(_row(pair))
    words = (
        "Dot: ratio of our medians; line: the 95 % interval of the ratio within blocks, from five trials a side on. "
        "The published numbers have no interval."
    )
    key = (
        "Diamond: published. Dot: this run. Hollow and pale: not the servers' own ratio, since a server was not the "
        "limit in every trial."
    )
    return forest.forest(TITLE, captions.caption(tables, trials, words), key, groups, "Go / Rust", _describe)


def _describe(chart: Chart) -> str:
    """Describe the published ratios beside ours."""
    known = chart.frame.dropna(subset="y")
    head = (
        f"Forest plot on a logarithmic axis: {len(chart.frame)} published ratios of a Go to a Rust server, "
        f"{len(known)} of them with ours beside it, {known['solid'].sum()} of which are the servers' own."
    )
    texts = [f"{row.panel}, {row.server}: published {row.other:.2f}, here {row.y:.2f}." for row in known.itertuples()]
    return fit(head, [Form(texts, "ratio")])


def _row(pair: Pair) -> forest.ForestRow:
    of = pair.interval
    published = f"published {pair.published:.2f}"
    if pair.why:
        return forest.ForestRow(pair.words, f"{published}\nnot here", other=pair.published)
    ends = (of.low, of.high) if of else (math.nan, math.nan)
    mark = forest.Mark(pair.ours, *ends, style.INK if pair.own else style.GREY, hollow=not pair.own)
    here = f"here {pair.ours:.2f}" + (f" [{of.low:.2f}–{of.high:.2f}]" if of else "")
    return forest.ForestRow(pair.words, f"{published}\n{here}", (mark,), other=pair.published)
