"""Execute notebooks with papermill and export them as HTML that needs nothing from the network."""

# mypy: allow-untyped-calls
# papermill, nbformat and nbconvert ship without type annotations of their own.

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import nbformat
import pandas as pd
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbconvert import HTMLExporter
from papermill.exceptions import PapermillException, PapermillExecutionError
from papermill.execute import execute_notebook
from papermill.inspection import inspect_notebook

from runner.model import LabError
from runner.present.frames import read_tables
from runner.present.session import (
    COMPLETE,
    DATABASE_FIGURES,
    RAMP_FIGURES,
    RATES_FIGURES,
    VERDICT_FIGURES,
    has_loads,
)
from runner.present.summary import summarize
from runner.store import RunFolder, figures_folder, lab_root, replacing

NEEDED = {
    "postgres": (*DATABASE_FIGURES, *RAMP_FIGURES),
    "rates": tuple(RATES_FIGURES),
    "verdict": tuple(VERDICT_FIGURES),
}
"""Notebook that is not about every run -> its figures, for one of which a run must have loads."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 17px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: #222;
  background: #fff; max-width: 46rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }}
h1, h2, h3 {{ line-height: 1.25; }}
img, svg {{ display: block; max-width: 100%; height: auto; margin: 1.2rem 0; }}
.table {{ overflow-x: auto; margin: 1rem 0; }}
table {{ border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }}
th {{ border-bottom: 2px solid #999; }}
td.grey {{ color: #767676; }}
ul.warnings {{ font-weight: bold; border-left: 4px solid #d55e00; padding: 0.4rem 0.4rem 0.4rem 2rem; }}
pre {{ overflow-x: auto; }}
.anchor-link {{ display: none; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


@dataclass(frozen=True)
class Report:
    """What `build_report` left on disk, and the run's summary (columns as in `summary.summarize`)."""

    pages: tuple[Path, ...]
    """One HTML page a notebook, the general report first."""
    figures: tuple[Path, ...]
    summary: pd.DataFrame

    @property
    def html(self) -> Path:
        """The general report's page."""
        return self.pages[0]


def execute(notebook: Path, run: str, output: Path) -> None:
    """Execute `notebook` with its parameter `run` and write it, with outputs, to `output`.

    On failure the broken notebook stays at `output` and a LabError of one sentence is raised. The kernel
    starts in the lab's root. That the last cell really ran is proven by the output of `Report.finish`, since
    a kernel that died leaves cells that look completed.
    """
    if "run" not in parameters(notebook):
        raise LabError(f"{notebook} has no parameter run: tag the cell that sets it `parameters`.")
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        execute_notebook(
            str(notebook),
            str(output),
            parameters={"run": run},
            progress_bar=sys.stderr.isatty(),
            cwd=str(lab_root()),
            extra_arguments=["--log-level=40"],  # errors only: its warnings are about a socket on loopback
        )
    except PapermillExecutionError as error:
        known = error.ename == "LabError"
        words = error.evalue if known else f"{notebook.name} failed with {error.ename}: {error.evalue}"
        raise LabError(f"{words.rstrip('.')} (see {output}).", exit_code=1) from None
    except (PapermillException, DeadKernelError, CellControlSignal, NoSuchKernel, OSError) as error:
        raise LabError(f"{notebook.name} could not be executed: {error} (see {output}).", exit_code=1) from error
    if figures_shown(output) is None:
        raise LabError(f"{notebook.name} did not reach its last cell: its kernel died (see {output}).", exit_code=1)


def parameters(notebook: Path) -> set[str]:
    """Return the names in a notebook's cell that is tagged `parameters`; LabError where it is no notebook."""
    try:
        return set(inspect_notebook(str(notebook)))
    except (PapermillException, nbformat.ValidationError, OSError, ValueError) as error:
        raise LabError(f"{notebook} cannot be read as a notebook: {error}.") from None


def figures_shown(executed: Path) -> list[str] | None:
    """Return the figures that an executed notebook's last cell counted; None where that cell did not run."""
    cells = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"]
    outputs = cells[-1].outputs if cells else []
    proofs = [output.metadata[COMPLETE] for output in outputs if COMPLETE in output.get("metadata", {})]
    return list(proofs[0]) if proofs else None


def export_html(executed: Path, html: Path) -> None:
    """Write an executed notebook as one page: no code, figures inside, nothing to load, fit for a phone."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "markdown" or cell.get("outputs")]
    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook)
    first = next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), executed.stem)
    title = first.splitlines()[0].lstrip("# ") if first else executed.stem
    run_id = executed.parent.name
    with replacing(html) as temporary:
        temporary.write_text(PAGE.format(title=escape(f"{title}: {run_id}"), body=body), encoding="utf-8")


def build_report(run: RunFolder) -> Report:
    """Execute every notebook that has a parameter `run`; leave figures, notebooks and pages in figures/<run>/.

    One that the run has nothing for is left out. LabError where there is no such notebook or one of them fails.
    """
    folder, tables = figures_folder(run), read_tables(run)
    summary = summarize(tables)
    left_out = {stem for stem, names in NEEDED.items() if not any(has_loads(tables, name) for name in names)}
    paths = sorted(path for path in (lab_root() / "notebooks").glob("*.ipynb") if path.stem not in left_out)
    notebooks = [path for path in paths if "run" in parameters(path)]
    if not notebooks:
        raise LabError("There is no notebook with a parameter run in notebooks/.")
    names: list[str] = []
    for notebook in notebooks:
        executed = folder / notebook.name
        execute(notebook, _name(run), executed)
        _forget_machine(executed)
        export_html(executed, executed.with_suffix(".html"))
        names += figures_shown(executed) or []
    stems = [notebook.stem for notebook in notebooks]
    first = "report" if "report" in stems else stems[0]
    pages = tuple(folder / f"{stem}.html" for stem in sorted(stems, key=lambda stem: stem != first))
    figures = tuple(folder / f"{name}.{kind}" for name in dict.fromkeys(names) for kind in ("png", "svg"))
    return Report(pages, figures, summary)


def _name(run: RunFolder) -> str:
    """Return the shortest name that finds the run again: it is printed in the executed notebook."""
    data = lab_root() / "data"
    if run.path == data / "sample":
        return "sample"
    return run.path.name if run.path.parent == data / "runs" else str(run.path)


def _forget_machine(executed: Path) -> None:
    """Remove paths, times and random ids, so that the same run gives the same notebook."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata.pop("papermill", None)
    for number, cell in enumerate(notebook.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = f"injected-{number}"
    with replacing(executed) as temporary:
        temporary.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
