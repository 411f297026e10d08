"""The figure of every known ratio of two servers."""

import math
from collections.abc import Hashable
from typing import Any

from runner.present.chart.value import Chart, chart, empty
from runner.present.comparison.quantity import CATALOGUE, CPU_PER_REQUEST, THROUGHPUT
from runner.present.comparison.ratios import finding, frame, words
from runner.present.figures import forest
from runner.present.frames import Tables, is_sealed
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.statistics.inference import FEWEST_TRIALS


@chart("ratios", notebook="report", table="By how much")
def ratios(tables: Tables) -> Chart:
    """Return the chart of every known ratio, around 1: on the right the base is ahead."""
    found = frame(tables)
    known = found[found["why"] == ""]
    looks = identities(tables.trials)
    told_first = (CPU_PER_REQUEST, THROUGHPUT)
    title = next(
        filter(None, (finding(tables, quantity) for quantity in told_first)),
        "Who is ahead, and by how much",
    )
    if known.empty:
        few = f"This run has no load with two servers of {FEWEST_TRIALS} trials each to compare."
        none = captions.unsealed(tables.trials, "trial")
        return empty(title, few if is_sealed(tables.trials).any() else none)
    groups = {}
    brief = dict(zip(tables.trials["load"], tables.trials["load_brief"], strict=True))
    for (name, base), rows in known.groupby(["quantity", "base"], sort=False):
        quantity = CATALOGUE[str(name)]
        head = f"{quantity.group}: " + (
            f"{base} / the others" if quantity.more_is_better else f"the others / {base}"
        )
        by_load = rows.groupby("load", sort=False)
        groups[head] = [
            _row(brief[str(load)], pairs.to_dict("records"), looks) for load, pairs in by_load
        ]
    text = (
        "Ratios of geometric means within sessions or blocks, with 95 % intervals. Right of 1 the "
        "server that the heading names is ahead: it does more, or takes less. Loads: so many kept "
        "or closed connections, N users of k6, or requests/s offered; on a core, or a part of one."
    )
    trials = tables.trials[tables.trials["load"].isin(known["load"])]
    return forest.forest(
        title,
        captions.caption(tables, trials, text),
        "A mark for each other server, in its colour. Hollow: the interval reaches 1.",
        groups,
        "ratio",
        f"Forest plot of {captions.plural(len(known), 'ratio')} of two servers with intervals.",
    )


def _row(load: str, pairs: list[dict[Hashable, Any]], looks: dict[str, Any]) -> forest.ForestRow:
    marks = []
    for pair in pairs:
        look = looks[pair["server"]]
        low, high = (
            end if 0 < end < math.inf else pair["ratio"] for end in (pair["low"], pair["high"])
        )
        open_end = pair["low"] <= 1 <= pair["high"]
        marks.append(
            forest.Mark(pair["ratio"], low, high, look.color, look.marker, hollow=open_end)
        )
    return forest.ForestRow(
        load, "\n".join(f"{pair['server']} {words(pair)}" for pair in pairs), tuple(marks)
    )
