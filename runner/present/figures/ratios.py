"""Make the figure of the ratios between servers, with a row for each quantity and server."""

import math

import pandas as pd

from runner.present.chart.value import Chart, chart, empty
from runner.present.comparison.quantity import CPU_PER_REQUEST, P50, P99, THROUGHPUT
from runner.present.comparison.ratios import finding, frame, words
from runner.present.figures import forest
from runner.present.frames import Tables, is_sealed
from runner.present.look import captions
from runner.present.look.palette import Identity, identities
from runner.present.statistics.inference import FEWEST_TRIALS

MOST_ROWS = 14
"""The figure has at most this many rows, unless its first quantity alone needs more rows."""
OF_THE_FIGURE = (THROUGHPUT, CPU_PER_REQUEST, P50, P99)
"""Quantities of the figure, in order of priority.

A quantity is left out if its rows do not fit into the figure.
"""


@chart("ratios", notebook="report", table="By how much")
def ratios(tables: Tables) -> Chart:
    """Return the chart of the known ratios between the base and each other server.

    The base is the server with which the others are compared. There is a mark for the ratio under
    each load. A mark to the right of 1 means that the base is ahead.
    """
    found = frame(tables)
    known = found[found["why"] == ""]
    told_first = (CPU_PER_REQUEST, THROUGHPUT)
    title = next(
        filter(None, (finding(tables, quantity) for quantity in told_first)),
        "Who is ahead, and by how much",
    )
    if known.empty:
        few = (
            "This run has no ratio. A ratio needs a load under which two servers have "
            f"{FEWEST_TRIALS} trials each, and verdicts that allow the comparison."
        )
        none = captions.unsealed(tables.trials, "trial")
        return empty(title, few if is_sealed(tables.trials).any() else none)
    groups = _groups(known, identities(tables.trials))
    bases = known["base"].unique()
    ahead = bases[0] if len(bases) == 1 else "the server to which the heading compares the others"
    meaning = f"right of 1, {ahead} does more or takes less."
    text = f"A mark for each load, with its 95 % interval: {meaning}"
    marks = sum(len(row.marks) for rows in groups.values() for row in rows)
    return forest.forest(
        title,
        captions.caption(tables, text),
        "Row: another server. Mark: a load. Hollow: its interval reaches 1.",
        groups,
        "ratio",
        f"Forest plot of {captions.plural(marks, 'ratio')} of two servers with intervals.",
    )


def _groups(known: pd.DataFrame, looks: dict[str, Identity]) -> dict[str, list[forest.ForestRow]]:
    """Return the rows of the figure, by the heading of the group to which they belong.

    There is a group for each quantity and base. The rows of a group are sorted by their median
    ratio. A quantity is left out if its rows would make more than `MOST_ROWS` rows, but the first
    quantity that has ratios is never left out.
    """
    groups: dict[str, list[forest.ForestRow]] = {}
    for quantity in OF_THE_FIGURE:
        of_quantity = known[known["quantity"] == quantity.name]
        added = {}
        for base, rows in of_quantity.groupby("base", sort=False):
            by_server = [(server, pairs) for server, pairs in rows.groupby("server", sort=False)]
            by_server.sort(key=lambda item: float(item[1]["ratio"].median()))
            both = f"{base} / the others" if quantity.more_is_better else f"the others / {base}"
            added[f"{quantity.group}: {both}"] = [
                _row(str(server), pairs, looks[str(server)]) for server, pairs in by_server
            ]
        count = sum(map(len, (groups | added).values()))
        if count <= MOST_ROWS or not groups:
            groups |= added
    return groups


def _row(server: str, pairs: pd.DataFrame, look: Identity) -> forest.ForestRow:
    """Return the row of a server, with a mark for each load and a note in words.

    The note gives the range of the ratios or, if there is only one load, the ratio.
    """
    marks = []
    for pair in pairs.sort_values("ratio").to_dict("records"):
        low, high = (
            end if 0 < end < math.inf else pair["ratio"] for end in (pair["low"], pair["high"])
        )
        is_open = pair["low"] <= 1 <= pair["high"]
        marks.append(forest.Mark(pair["ratio"], low, high, look.color, look.marker, hollow=is_open))
    if len(pairs) == 1:
        note = words(pairs.iloc[0].to_dict())
    else:
        ends = dict.fromkeys(f"{end:.2f}" for end in (pairs["ratio"].min(), pairs["ratio"].max()))
        note = f"{' to '.join(ends)}, {len(pairs)} loads"
    return forest.ForestRow(server, note, tuple(marks), dense=len(marks) > 1)
