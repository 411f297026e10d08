"""Open a run for a notebook.

The notebook may name a file of k6 instead of a run. If the file was not imported before, this
module imports it.
"""

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from runner.importing.run import found_or_imported
from runner.model import LabError
from runner.present.notebook import explore_page, pages, spike_page
from runner.present.notebook.explore_page import ExplorePage
from runner.present.notebook.pages import RunPage, opener
from runner.present.notebook.spike_page import SpikePage
from runner.store import RunFolder, short_name


@opener
def open_report(run: str, trial: str | None = None) -> RunPage:
    """Open a run for a notebook. If `trial` is given, the notebook is about this trial only."""
    return pages.open_report(run_named(run), trial)


def run_named(run: str) -> str:
    """Return the name of a run.

    If `run` is the path of a file, return the name of the run that was imported from this file. If
    there is no such run, import the file first.
    """
    return short_name(_imported(Path(run))) if Path(run).is_file() else run


def _imported(path: Path) -> RunFolder:
    """Return the run that was imported from a file, or import the file if there is no such run.

    The import runs in a process of its own, which ends before the notebook draws its figures. So
    even if the file has several GB, the import does not increase the memory of the notebook's
    process.
    """
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as importer:
            return importer.submit(found_or_imported, path).result()
    except BrokenProcessPool:
        raise LabError(
            f"The process that imported {path} was ended from outside, perhaps because the "
            "machine's memory was short: open the notebook again.",
            exit_code=1,
        ) from None


@opener
def open_tables(run: str, trial: str = "") -> ExplorePage:
    """Open a run for the notebook in which users explore its tables."""
    return explore_page.open_tables(run_named(run), trial)


@opener
def open_spikes(run: str, trial: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> SpikePage:
    """Open a run for the notebook about CPU spikes."""
    return spike_page.open_spikes(run_named(run), trial, start_s, stop_s)
