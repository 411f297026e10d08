"""What the notebook about many runs opens: changes in sentences, a timeline, and a table of all medians."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from runner.present.chart import describe, draw
from runner.present.comparison import history
from runner.present.look import captions
from runner.present.look.content import Block, Bullets, TextTable
from runner.present.notebook.page import FLAG, PERCENTAGE, TEXT, Page, check_parameters
from runner.store import figures_folder, find_run


def open_history(runs: str, force: bool = False, fail_above: float | None = None) -> HistoryPage:
    """Follow the cells of runs for a notebook; `runs` are ids, paths, `latest` or `sample`, with commas between.

    LabError for parameters of other kinds, and as of `history.history`.
    """
    check_parameters(runs=(runs, TEXT), force=(force, FLAG), fail_above=(fail_above, PERCENTAGE))
    return HistoryPage([name.strip() for name in runs.split(",") if name.strip()], force, fail_above)


class HistoryPage(Page):
    """A page about the same cells over many runs."""

    def __init__(self, runs: list[str], force: bool, fail_above: float | None) -> None:
        folders = [find_run(run) for run in runs]
        self.found = history.history(folders, force=force, fail_above_pct=fail_above)
        names = [figures_folder(folder).name for folder in folders]
        super().__init__(
            about=captions.plural(len(runs), "run"),
            figures=figures_folder(folders[-1]).with_name(f"history-{names[0]}--{names[-1]}"),
            parts={"answer": self._answer, "courses": self._courses},
            drawings={"history": self._timeline},
        )

    def _answer(self) -> Iterator[Block]:
        """Yield what changed, and when."""
        yield Bullets(tuple(history.findings(self.found)))

    def _courses(self) -> Iterator[Block]:
        """Yield every median."""
        yield TextTable(history.table(self.found), about="Medians by run")

    def _timeline(self) -> tuple[Figure, str]:
        chart = history.timeline(self.found)
        return draw(chart), describe(chart)
