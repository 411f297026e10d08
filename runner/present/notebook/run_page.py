"""What the notebooks about one run open: its parts, its figures, and where there is one, the trial that it is about."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from runner.model import OWN_SCRIPT, LabError
from runner.present.case import Case, choose
from runner.present.chart import Chart, charts, describe, draw, registered
from runner.present.frames import Tables, read_tables
from runner.present.notebook import parts
from runner.present.notebook.page import TEXT, Page, check_parameters
from runner.store import figures_folder, find_run


def open_report(run: str, trial: str | None = None) -> RunPage:
    """Open a run for a notebook, and for a notebook about one trial that `trial` too, as `RunPage` does.

    LabError where papermill injected a parameter that the notebook does not have; in a notebook it shows as one
    sentence.
    """
    check_parameters(run=(run, TEXT), **({} if trial is None else {"trial": (trial, TEXT)}))
    return RunPage(run, trial)


class RunPage(Page):
    """A page about one run, with all parts and figures that notebooks show."""

    tables: Tables
    """The tables of the run, for a reader who wants to look further."""
    case: Case | None
    """The trial that the page is about, if any."""

    def __init__(self, run: str, trial: str | None = None) -> None:
        """Read a run: an id, a path, `latest` or `sample`; an empty `trial` is chosen as `case.choose` does.

        LabError where there is no such run or trial, and for a trial that cannot be compared with the probe.
        """
        folder = find_run(run)
        self.tables = read_tables(folder)
        self.case = None if trial is None else choose(self.tables, trial)
        if self.case is not None and self.case.row["workload"] == OWN_SCRIPT:
            raise LabError(f"In the trial {trial!r} a script did not send what the probe did: nothing can be compared.")
        of_run = {name: partial(part, self.tables) for name, part in parts.OF_A_RUN.items()}
        of_trial = {name: partial(parts.of_a_trial, name, self.case) for name in parts.OF_A_TRIAL}
        names = [name for name, found in charts().items() if found.subject in (Tables, Case)]
        super().__init__(
            about=f"run {self.tables.manifest['run_id']}",
            figures=figures_folder(folder),
            parts=of_run | of_trial,
            drawings={name: partial(self.drawing, name) for name in names},
        )

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
