"""What the notebooks about one run open: its parts, its figures, and where there is one, the trial that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from runner.model import OWN_SCRIPT, LabError
from runner.present.case import Case, choose
from runner.present.chart import Chart, charts, describe, draw, registered
from runner.present.frames import Tables, read_tables
from runner.present.notebook import parts
from runner.present.notebook.page import TEXT, Page, Part, check_parameters
from runner.store import RunFolder, figures_folder, find_run


@dataclass(eq=False, kw_only=True)
class RunPage(Page):
    """A page about one run."""

    tables: Tables
    """The tables of the run, for a reader who wants to look further."""
    case: Case | None = None
    """The trial that the page is about, if any."""

    def chart(self, name: str) -> Chart | None:
        """Return a figure as a value, whose `frame` holds its points; None where the run has no load for it.

        LabError for an unknown name.
        """
        found = charts().get(name)
        subject = self.case if found is not None and found.subject is Case else self.tables
        if subject is None:
            return None
        found = registered(name, subject)
        return found.make(subject) if found.subject is Case or found.needs(self.tables) else None

    def drawing(self, name: str) -> tuple[Figure, str] | None:
        """Return a figure and its alternative text as it stands in its notebook; None as for `chart`."""
        chart = self.chart(name)
        return None if chart is None else (draw(chart), describe(chart) + charts()[name].place)


def open_report(run: str, trial: str | None = None) -> RunPage:
    """Open a run (an id, a path, `latest` or `sample`) for a notebook, and for one about a trial that `trial` too.

    An empty `trial` is the one in which generator and probe differ most. LabError where papermill injected a parameter
    that the notebook does not have, and where there is no such run or trial; in a notebook a LabError shows as one
    sentence.
    """
    check_parameters(run=(run, TEXT), **({} if trial is None else {"trial": (trial, TEXT)}))
    folder = find_run(run)
    tables = read_tables(folder)
    case = None if trial is None else choose(tables, trial)
    if case is not None and case.row["workload"] == OWN_SCRIPT:
        raise LabError(f"In the trial {trial!r} a script did not send what the probe did: nothing can be compared.")
    return run_page(folder, tables, case)


def run_page(
    folder: RunFolder, tables: Tables, case: Case | None = None, special: Mapping[str, Part] | None = None
) -> RunPage:
    """Return the page of a run, with all parts and figures that notebooks show, and those `special` to one of them."""
    of_trial = {name: partial(parts.of_a_trial, name, case) for name in parts.OF_A_TRIAL}
    page = RunPage(
        about=f"run {tables.manifest['run_id']}",
        figures=figures_folder(folder),
        parts={name: partial(part, tables) for name, part in parts.OF_A_RUN.items()} | of_trial | dict(special or {}),
        drawings={},
        tables=tables,
        case=case,
    )
    page.drawings = {name: partial(page.drawing, name) for name in charts() if charts()[name].subject in (Tables, Case)}
    return page
