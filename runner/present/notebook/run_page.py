"""What the notebooks about one run open: its parts, its figures, and where there is one, the trial that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from runner.model import OWN_SCRIPT, LabError
from runner.present.alt import on_page
from runner.present.case import Case, choose
from runner.present.frames import Tables, read_tables
from runner.present.notebook import parts
from runner.present.notebook.gallery import OF_A_RUN, PUBLISHED_FIGURES, VERDICT_FIGURES, has_loads
from runner.present.notebook.page import TEXT, Drawing, Page, Part, check_parameters
from runner.store import RunFolder, figures_folder, find_run


@dataclass(eq=False, kw_only=True)
class RunPage(Page):
    """A page about one run."""

    tables: Tables
    """The tables of the run, for a reader who wants to look further."""


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
    drawings: dict[str, Drawing] = {
        name: partial(_of_a_run, name, draw, tables) for name, draw in (OF_A_RUN | PUBLISHED_FIGURES).items()
    }
    return RunPage(
        about=f"run {tables.manifest['run_id']}",
        figures=figures_folder(folder),
        parts={name: partial(part, tables) for name, part in parts.OF_A_RUN.items()} | of_trial | dict(special or {}),
        drawings=drawings | {name: partial(_of_a_trial, name, draw, case) for name, draw in VERDICT_FIGURES.items()},
        tables=tables,
    )


def _of_a_run(name: str, draw: Callable[[Tables], Figure], tables: Tables) -> tuple[Figure, str] | None:
    return (draw(tables), on_page(name, tables)) if has_loads(tables, name) else None


def _of_a_trial(name: str, draw: Callable[[Case], Figure], case: Case | None) -> tuple[Figure, str] | None:
    return (draw(case), on_page(name, case)) if case is not None else None
