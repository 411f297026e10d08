"""What the notebook that compares two runs opens: conditions, figure, a table per load, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from runner.present.chart import describe, draw
from runner.present.comparison import compare
from runner.present.comparison import figure as compare_figure
from runner.present.comparison.conditions import word
from runner.present.frames import Tables, read_tables
from runner.present.look import captions
from runner.present.look.content import Block, Bullets, Paragraph, Sheet
from runner.present.look.palette import identities
from runner.present.notebook.page import FLAG, PERCENTAGE, TEXT, Page, check_parameters
from runner.store import figures_folder, find_run

FIGURE = "compare-ratios"


def open_comparison(run_a: str, run_b: str, force: bool = False, fail_above: float | None = None) -> Page:
    """Compare run B with run A for a notebook; both are an id, a path, `latest` or `sample`.

    `force` compares runs of different machines, tools or CPUs; `fail_above` is the % from which on worse is a
    regression. LabError for parameters of other kinds, and as of `compare.compare_runs`.
    """
    check_parameters(run_a=(run_a, TEXT), run_b=(run_b, TEXT), force=(force, FLAG), fail_above=(fail_above, PERCENTAGE))
    folders = find_run(run_a), find_run(run_b)
    names = [figures_folder(folder).name for folder in folders]
    found = compare.compare_runs(*folders, force=force, fail_above_pct=fail_above)
    sides = Sides(found, (read_tables(folders[0]), read_tables(folders[1])))
    return Page(
        about=f"runs {found.run_a} and {found.run_b}",
        figures=figures_folder(folders[1]).with_name("--".join(names)),
        parts={name: partial(part, sides) for name, part in PARTS.items()},
        drawings={FIGURE: partial(_ratios, sides)},
    )


@dataclass(frozen=True, eq=False)
class Sides:
    """Two compared runs: what was found, and the tables of A and B."""

    found: compare.RunComparison
    tables: tuple[Tables, Tables]


def answer(sides: Sides) -> Iterator[Block]:
    """Yield how the comparisons came out."""
    yield Paragraph(f"A is run {sides.found.run_a}, B is run {sides.found.run_b}; ratios are B / A.")
    yield Bullets(tuple(compare.findings(sides.found)))


def conditions(sides: Sides) -> Iterator[Block]:
    """Yield what differs between the runs, what was changed, and both manifests."""
    rows = [{"differs": each.what, "A": word(each.a), "B": word(each.b)} for each in sides.found.differences]
    if rows:
        yield Sheet(pd.DataFrame(rows), "Compared by force: these conditions change numbers by themselves")
    else:
        yield Paragraph("Machine, engine, CPUs and tools are the same in both runs.")
    yield Bullets(tuple(compare.provenance(sides.found)))
    known = [{row["what"]: row["value"] for row in captions.manifest_rows(each.manifest)} for each in sides.tables]
    facts = [(name, *(side.get(name, "–") for side in known)) for name in dict.fromkeys([*known[0], *known[1]])]
    apart = [{"what": name, "A": a, "B": b} for name, a, b in facts if a != b]
    alike = [{"what": name, "value": a} for name, a, b in facts if a == b]
    yield Sheet(pd.DataFrame(apart), "Not the same in both runs")
    yield Sheet(pd.DataFrame(alike), "The same in both runs")


def loads(sides: Sides) -> Iterator[Block]:
    """Yield one table per load: medians, ratio with its interval, what difference was detectable, and the verdict."""
    for load in dict.fromkeys(row.load for row in sides.found.comparisons):
        yield Sheet(pd.DataFrame(compare.table(sides.found, load)), load)


def left_out(sides: Sides) -> Iterator[Block]:
    """Yield what could not be compared."""
    rows = [{"what": cell, "why": why} for why, cells in compare.left_out(sides.found).items() for cell in cells]
    if not rows:
        yield Paragraph("Every cell of either run is in the other one, and could be compared.")
    yield Sheet(pd.DataFrame(rows))


PARTS = {"answer": answer, "conditions": conditions, "loads": loads, "left out": left_out}
"""Name of a part -> what it shows."""


def _ratios(sides: Sides) -> tuple[Figure, str]:
    trials = pd.concat([each.trials for each in sides.tables], ignore_index=True)
    chart = compare_figure.ratios(sides.found, identities(trials))
    return draw(chart), describe(chart)
