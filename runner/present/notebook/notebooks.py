"""Execute notebooks with papermill, and export them as HTML pages that load no other files."""

# mypy: allow-untyped-calls
# papermill, nbformat and nbconvert ship without type annotations.

import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from nbclient.exceptions import CellControlSignal
from nbconvert import HTMLExporter
from papermill.exceptions import PapermillException, PapermillExecutionError
from papermill.execute import execute_notebook
from papermill.inspection import inspect_notebook

from runner.model import LabError
from runner.places import places
from runner.present.answers.script import has_script
from runner.present.chart.value import charts
from runner.present.frames import Tables, read_tables
from runner.present.look import captions
from runner.present.look.markup import page
from runner.present.notebook.kernels import QUIET, Kernels
from runner.present.notebook.pages import COMPLETE
from runner.store import RunFolder, figures_folder, lab_root, replacing, short_name

# Papermill's log is not needed, because a LabError reports each error, such as a dead kernel.
logging.getLogger("papermill").disabled = True
LONGEST = ("report", "published")
"""The slowest notebooks. They start first, so that all kernels finish at about the same time."""
NEEDS: dict[str, Callable[[Tables], bool]] = {"endpoints": has_script}
"""Functions that return True if a run has content for a notebook, by the name of the notebook.

A notebook whose content is figures needs no such function, because each figure says which runs it
can show (`Registered.needs`).
"""
LONGEST_CELL_S = 900
"""If a cell runs longer than this many seconds, the execution of its notebook fails.

Such a cell hangs: even for the largest runs, a cell takes only a few seconds.
"""


def execute(
    notebook: Path, given: Mapping[str, Any], output: Path, kernel: KernelManager | None = None
) -> list[str]:
    """Execute `notebook` with the parameters `given`, and write the result to `output`.

    Return the names of the notebook's figures. The notebook is executed by `kernel`, which stays
    alive. If `kernel` is None, a new kernel is started. The same run always gives the same bytes,
    because paths, times and random ids are removed.

    Raise LabError if the notebook lacks one of the parameters, or if a cell fails. If a cell fails,
    `output` contains the incomplete notebook. Also raise LabError if the output of `Page.finish` is
    missing, because the kernel may have died although all cells look complete.
    """
    missing = sorted(set(given) - parameters(notebook))
    if missing:
        raise LabError(
            f"{notebook} has no parameter {', '.join(missing)}: give the cell that sets it "
            "the tag `parameters`."
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        executed = execute_notebook(
            str(notebook),
            str(output),
            parameters=dict(given),
            progress_bar=sys.stderr.isatty() and kernel is None,
            resources={
                "metadata": {"path": str(lab_root())}
            },  # papermill's `cwd` would change the folder of the whole process
            extra_arguments=QUIET,
            execution_timeout=LONGEST_CELL_S,
            **({} if kernel is None else {"km": kernel}),
        )
    except PapermillExecutionError as error:
        known = error.ename == "LabError"
        words = (
            error.evalue if known else f"{notebook.name} failed with {error.ename}: {error.evalue}"
        )
        raise LabError(f"{words.rstrip('.')} (see {output}).", exit_code=1) from None
    except (
        PapermillException,
        CellControlSignal,
        NoSuchKernel,
        OSError,
        RuntimeError,
    ) as error:  # not only PapermillException, because a dead kernel raises other errors
        raise LabError(
            f"{notebook.name} could not be executed: {error} (see {output}).", exit_code=1
        ) from error
    executed.metadata.pop("papermill", None)
    for number, cell in enumerate(executed.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = f"injected-{number}"
    _number_cells(executed)
    with replacing(output) as temporary:
        temporary.write_text(nbformat.writes(executed) + "\n", encoding="utf-8")
    figures = figures_shown(output)
    if figures is None:
        raise LabError(
            f"{notebook.name} did not reach its last cell, because its kernel died (see {output}).",
            exit_code=1,
        )
    return figures


def _number_cells(executed: nbformat.NotebookNode) -> None:
    """Number the code cells from 1, as if the kernel had executed no notebook before."""
    code = (cell for cell in executed.cells if cell.cell_type == "code")
    for number, cell in enumerate(code, start=1):
        cell["execution_count"] = number
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = number


def parameters(notebook: Path) -> set[str]:
    """Return the names of a notebook's parameters, which the cell tagged `parameters` sets.

    Raise LabError if the file is not a notebook.
    """
    try:
        return set(inspect_notebook(str(notebook)))
    except (PapermillException, nbformat.ValidationError, OSError, ValueError) as error:
        raise LabError(f"{notebook} cannot be read as a notebook: {error}.") from None


def figures_shown(executed: Path) -> list[str] | None:
    """Return the names of figures that the last cell of an executed notebook lists.

    Return None if the last cell did not run.
    """
    cells = [
        cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"
    ]
    outputs = cells[-1].outputs if cells else []
    proofs = [
        output.metadata[COMPLETE] for output in outputs if COMPLETE in output.get("metadata", {})
    ]
    return list(proofs[0]) if proofs else None


def export_html(executed: Path, html: Path, about: str = "") -> None:
    """Write an executed notebook as one HTML page, which is also readable on a phone.

    The page shows no code, contains all its figures, and loads no other files. The page's title is
    the first heading of the notebook, followed by `about`. If `about` is empty, the name of the
    notebook's folder follows instead. A section is left out if its cells show nothing: for example,
    the section on databases is left out for a run without a database.
    """
    notebook = nbformat.read(executed, as_version=4)
    notebook.cells = _shown(notebook.cells)
    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook)
    first = (
        next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), "")
        or executed.stem
    )
    title = f"{first.splitlines()[0].lstrip('# ')}: {about or executed.parent.name}"
    with replacing(html) as temporary:
        temporary.write_text(page(title, body), encoding="utf-8")


def _shown(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return the cells of a page, without sections in which no code cell has an output.

    A section extends from a heading to the next heading of the same or a higher level. A section
    without code cells consists only of words, and is kept. Single code cells without an output are
    left out, too.
    """
    headings = [
        re.match(r"#{1,6}(?= )", cell.source) if cell.cell_type == "markdown" else None
        for cell in cells
    ]
    ranks = [len(heading[0]) if heading else 0 for heading in headings]
    empty: set[int] = set()
    for start, rank in enumerate(ranks):
        end = next((n for n in range(start + 1, len(cells)) if 0 < ranks[n] <= rank), len(cells))
        outputs = [cell.outputs for cell in cells[start:end] if cell.cell_type == "code"]
        if rank and outputs and not any(outputs):
            empty |= set(range(start, end))
    kept = [cell for number, cell in enumerate(cells) if number not in empty]
    return [cell for cell in kept if cell.cell_type == "markdown" or cell.get("outputs")]


def build_report(
    run: RunFolder, say: Callable[[str], None] = lambda _: None, kernels: Kernels | None = None
) -> dict[Path, list[str]]:
    """Execute every notebook that has a parameter `run`, and write the pages to figures/<run>/.

    Return the HTML pages, each with the names of its figures. The general report comes first. A
    notebook is left out if the run has no content for it. `say` is called with a progress message
    for each finished notebook. To save time, the caller can start `kernels` beforehand. If
    `kernels` is None, this function starts kernels. Raise LabError if no notebook has a parameter
    `run`, or if a notebook fails.
    """
    tables = read_tables(run)
    folder = figures_folder(run)
    every = charts().values()
    left_out = {found.notebook for found in every} - {
        found.notebook for found in every if found.needs(tables)
    }
    left_out |= {name for name, needs in NEEDS.items() if not needs(tables)}
    paths = sorted(
        places().notebooks.glob("*.ipynb"), key=lambda path: (path.stem != "report", path)
    )
    notebooks = [path for path in paths if path.stem not in left_out and "run" in parameters(path)]
    if not notebooks:
        raise LabError("There is no notebook with a parameter run in notebooks/.")

    def make_page(notebook: Path) -> list[str]:
        with ready.one() as kernel:
            return build_page(
                notebook.stem,
                {"run": short_name(run)},
                folder / f"{notebook.stem}.html",
                "",
                kernel,
            )

    shown: dict[Path, list[str]] = {}
    begun = time.monotonic()
    with contextlib.nullcontext(kernels) if kernels else Kernels() as ready:
        pool = ThreadPoolExecutor(ready.count)
        try:
            order = sorted(notebooks, key=lambda path: path.stem not in LONGEST)
            tasks = {pool.submit(make_page, notebook): notebook for notebook in order}
            for task in as_completed(tasks):
                notebook = tasks[task]
                shown[notebook] = task.result()
                count = captions.plural(len(shown[notebook]), "figure")
                took_s = time.monotonic() - begun
                say(
                    f"[{len(shown)}/{len(notebooks)}] {notebook.name}: {count}, after "
                    f"{took_s:.0f} s"
                )
        finally:
            # Do not wait for running notebooks, because they end when their kernels are killed.
            pool.shutdown(wait=False, cancel_futures=True)
    return {folder / f"{notebook.stem}.html": shown[notebook] for notebook in notebooks}


def build_page(
    notebook: str,
    given: Mapping[str, Any],
    html: Path,
    about: str = "",
    kernel: KernelManager | None = None,
) -> list[str]:
    """Execute a notebook of the lab, and write its page to `html`.

    The executed notebook is written beside the page. Return the names of the page's figures.
    """
    executed = html.with_suffix(".ipynb")
    shown = execute(places().notebooks / f"{notebook}.ipynb", given, executed, kernel)
    export_html(executed, html, about)
    return shown
