"""What the notebook that compares two runs opens: conditions, figure, a table per load, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from runner.present.chart import describe, draw
from runner.present.comparison import compare
from runner.present.comparison.conditions import word
from runner.present.frames import read_tables
from runner.present.look import captions
from runner.present.look.content import Block, Bullets, Paragraph, TextTable
from runner.present.look.palette import identities
from runner.present.notebook.page import FLAG, PERCENTAGE, TEXT, Page, check_parameters
from runner.store import figures_folder, find_run


def open_comparison(run_a: str, run_b: str, force: bool = False, fail_above: float | None = None) -> ComparePage:
    """Compare run B with run A for a notebook; both are an id, a path, `latest` or `sample`.

    `force` compares runs of different machines, tools or CPUs; `fail_above` is the % from which on worse is a
    regression. LabError for parameters of other kinds, and as of `compare.compare_runs`.
    """
    check_parameters(run_a=(run_a, TEXT), run_b=(run_b, TEXT), force=(force, FLAG), fail_above=(fail_above, PERCENTAGE))
    return ComparePage(run_a, run_b, force, fail_above)


class ComparePage(Page):
    """A page about two compared runs."""

    def __init__(self, run_a: str, run_b: str, force: bool, fail_above: float | None) -> None:
        folders = find_run(run_a), find_run(run_b)
        self.found = compare.compare_runs(*folders, force=force, fail_above_pct=fail_above)
        self.tables = [read_tables(folder) for folder in folders]
        names = [figures_folder(folder).name for folder in folders]
        super().__init__(
            about=f"runs {self.found.run_a} and {self.found.run_b}",
            figures=figures_folder(folders[1]).with_name("--".join(names)),
            parts={
                "answer": self._answer,
                "conditions": self._conditions,
                "loads": self._loads,
                "left out": self._left_out,
            },
            drawings={"compare-ratios": self._ratios},
        )

    def _answer(self) -> Iterator[Block]:
        """Yield how the comparisons came out."""
        yield Paragraph(f"A is run {self.found.run_a}, B is run {self.found.run_b}; ratios are B / A.")
        yield Bullets(tuple(compare.findings(self.found)))

    def _conditions(self) -> Iterator[Block]:
        """Yield what differs between the runs, what was changed, and both manifests."""
        rows = [{"differs": each.what, "A": word(each.a), "B": word(each.b)} for each in self.found.differences]
        if rows:
            yield TextTable(pd.DataFrame(rows), "Compared by force: these conditions change numbers by themselves")
        else:
            yield Paragraph("Machine, engine, CPUs and tools are the same in both runs.")
        yield Bullets(tuple(compare.provenance(self.found)))
        known = [captions.manifest_facts(each.manifest) for each in self.tables]
        facts = {name: tuple(side.get(name, "–") for side in known) for name in [*known[0], *known[1]]}
        apart = [{"what": name, "A": a, "B": b} for name, (a, b) in facts.items() if a != b]
        alike = [{"what": name, "value": a} for name, (a, b) in facts.items() if a == b]
        yield TextTable(pd.DataFrame(apart), "Not the same in both runs")
        yield TextTable(pd.DataFrame(alike), "The same in both runs")

    def _loads(self) -> Iterator[Block]:
        """Yield a table for each load: medians, ratio with interval, what difference was detectable, and verdict."""
        for load, rows in compare.tables(self.found).items():
            yield TextTable(pd.DataFrame(rows), load)

    def _left_out(self) -> Iterator[Block]:
        """Yield what could not be compared."""
        rows = [{"what": cell, "why": why} for why, cells in compare.left_out(self.found).items() for cell in cells]
        if not rows:
            yield Paragraph("Every cell of either run is in the other one, and could be compared.")
        yield TextTable(pd.DataFrame(rows))

    def _ratios(self) -> tuple[Figure, str]:
        trials = pd.concat([each.trials for each in self.tables], ignore_index=True)
        chart = compare.ratios(self.found, identities(trials))
        return draw(chart), describe(chart)
