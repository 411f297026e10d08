"""What the notebook that compares two runs calls: conditions, figure, a table a load, and what is left out."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import Image, display

from runner.model import LabError
from runner.present.chart import describe, draw
from runner.present.comparison import compare
from runner.present.comparison import figure as compare_figure
from runner.present.comparison.conditions import word
from runner.present.frames import Tables, read_tables
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.look.style import save
from runner.present.notebook.session import COMPLETE, guard_notebook
from runner.present.notebook.showing import show_list, show_table, show_text
from runner.store import figures_folder, find_run

PARAMETERS = ("run_a", "run_b", "force", "fail_above")
FIGURE = "compare-ratios"


def open_comparison(run_a: str, run_b: str, force: bool = False, fail_above: float | None = None) -> ComparisonPage:
    """Compare run B with run A for a notebook; both are an id, a path, `latest` or `sample`.

    `force` compares runs of different machines, tools or CPUs; `fail_above` is the % from which on worse is a
    regression. LabError for parameters of other kinds, and as of `compare.compare_runs`.
    """
    guard_notebook(PARAMETERS, ComparisonPage)
    for name, text in {"run_a": run_a, "run_b": run_b}.items():
        if not isinstance(text, str):
            raise LabError(f"The parameter {name} must be text, not {text!r}.")
    if not isinstance(force, bool):
        raise LabError(f"The parameter force must be True or False, not {force!r}.")
    number = isinstance(fail_above, int | float) and not isinstance(fail_above, bool)
    if fail_above is not None and not (number and fail_above >= 0):
        raise LabError(f"The parameter fail_above must be None or a percentage of at least 0, not {fail_above!r}.")
    folders = find_run(run_a), find_run(run_b)
    names = [figures_folder(folder).name for folder in folders]
    return ComparisonPage(
        compare.compare_runs(*folders, force=force, fail_above_pct=fail_above),
        (read_tables(folders[0]), read_tables(folders[1])),
        figures_folder(folders[1]).with_name("--".join(names)),
    )


@dataclass(frozen=True, eq=False)
class ComparisonPage:
    """Two compared runs in a notebook; each method shows one cell's output."""

    found: compare.RunComparison
    tables: tuple[Tables, Tables]
    figures: Path
    shown: list[str] = field(default_factory=list)

    def answer(self) -> None:
        """Show how the comparisons came out."""
        show_text(f"A is run {self.found.run_a}, B is run {self.found.run_b}; ratios are B / A.")
        show_list(tuple(compare.findings(self.found)))

    def conditions(self) -> None:
        """Show what differs between the runs, what was changed, and both manifests."""
        rows = [{"differs": each.what, "A": word(each.a), "B": word(each.b)} for each in self.found.differences]
        if rows:
            show_table(pd.DataFrame(rows), "Compared by force: these conditions change numbers by themselves")
        else:
            show_text("Machine, engine, CPUs and tools are the same in both runs.")
        show_list(tuple(compare.provenance(self.found)))
        sides = [{row["what"]: row["value"] for row in captions.manifest_rows(of.manifest)} for of in self.tables]
        facts = [(name, *(side.get(name, "–") for side in sides)) for name in dict.fromkeys([*sides[0], *sides[1]])]
        apart = [{"what": name, "A": a, "B": b} for name, a, b in facts if a != b]
        alike = [{"what": name, "value": a} for name, a, b in facts if a == b]
        show_table(pd.DataFrame(apart), "Not the same in both runs")
        show_table(pd.DataFrame(alike), "The same in both runs")

    def show(self) -> None:
        """Draw the ratios, save them as PNG and SVG in the comparison's figures folder, and show them."""
        trials = pd.concat([of.trials for of in self.tables], ignore_index=True)
        chart = compare_figure.ratios(self.found, identities(trials))
        png, _ = save(draw(chart), self.figures, FIGURE)
        self.shown.append(FIGURE)
        display(Image(data=png.read_bytes(), format="png", width=700, alt=describe(chart)))

    def loads(self) -> None:
        """Show a table a load: medians, ratio with its interval, what could have been told, and the verdict."""
        for load in dict.fromkeys(row.load for row in self.found.comparisons):
            show_table(pd.DataFrame(compare.table(self.found, load)), load)

    def left_out(self) -> None:
        """Show what could not be compared."""
        rows = [{"what": cell, "why": why} for why, cells in compare.left_out(self.found).items() for cell in cells]
        if rows:
            show_table(pd.DataFrame(rows))
        else:
            show_text("Every cell of either run is in the other one, and could be compared.")

    def finish(self) -> None:
        """Say that the notebook reached its end; `notebooks.execute` looks for this."""
        words = f"{captions.plural(len(self.shown), 'figure')} of runs {self.found.run_a} and {self.found.run_b}."
        metadata: dict[str, Any] = {COMPLETE: list(self.shown)}
        display({"text/plain": words}, raw=True, metadata=metadata)
