"""Define the pages that notebooks open: about a run, two compared runs, or a history of runs.

Each cell of a notebook shows a part or a figure of the page that the notebook opened.
"""

# mypy: allow-untyped-calls
# IPython ships without type annotations.

import inspect
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import Image, display
from matplotlib.figure import Figure
from pydantic import ConfigDict, NonNegativeFloat, ValidationError, validate_call

from runner.manifest import Manifest
from runner.model import OWN_SCRIPT, LabError
from runner.present.answers.evidence import NO_CLOSED_LOAD_BY_K6
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.chart.value import Chart, charts
from runner.present.frames import Case, Tables, choose, read_tables
from runner.present.look import captions, markup, style
from runner.present.look.markup import Block, Bullets, Paragraph, TextTable
from runner.present.look.palette import identities
from runner.present.notebook import parts
from runner.present.two_runs import compare
from runner.present.two_runs.history import findings, history, table, timeline
from runner.store import figures_folder, find_run

T = TypeVar("T")
COMPLETE = "lab_complete"
"""Key in the metadata of the last cell's output. If the key is there, the last cell has run."""
PLAIN = (str, int, float, bool, list, tuple, dict, type(None))
"""A variable of one of these types may be a misspelt parameter of the notebook."""


@dataclass(eq=False)
class Page:
    """The content that a notebook shows. Each cell of the notebook calls one method of the page."""

    about: str  # words that name the run or the runs of the page
    figures: Path  # folder in which figures are saved
    # functions that return a part of the page as blocks, such as paragraphs and tables, by the name
    # of the part
    parts: Mapping[str, Callable[..., Iterable[Block]]]
    charts: Mapping[str, Callable[[], Chart | None]]
    """Functions that return a figure's chart, by the figure's name.

    A function returns None if there are no data for the figure.
    """
    shown: list[str] = field(default_factory=list)  # names of the figures saved so far
    live: bool = False  # True if a reader uses the page interactively, so that no file is written
    provenance: str = ""  # text that says where the figures come from, for their files' metadata
    display: Callable[..., object] = display
    """Function that shows a picture, or the output of `finish`, below the running cell."""

    def chart(self, name: str) -> Chart | None:
        """Return the chart of a figure. The chart's `frame` contains the points of the figure.

        Return None if the run has no load that the figure could show. Raise LabError if there is no
        figure of this name.
        """
        return named(self.charts, name, "figure")()

    def show_part(self, name: str, *details: str) -> None:
        """Show the words and tables of a part.

        `details` are passed to the part's function. Raise LabError for an unknown name.
        """
        show(named(self.parts, name, "part")(*details))

    def show_figure(self, name: str) -> None:
        """Draw and show a figure, or show nothing if the run has no data for this figure."""
        chart = self.chart(name)
        if chart is not None and not chart.frame.empty:
            place = charts()[name].place if name in charts() else ""
            self.show_picture(name, draw(chart), describe(chart) + place)

    def show_picture(self, name: str, figure: Figure, alt: str) -> None:
        """Show a figure with its alternative text.

        Unless the page is live, also save the figure as PNG and SVG.
        """
        if self.live:
            with style.rc():
                figure.savefig(picture := io.BytesIO(), format="png", dpi=150)
            png = picture.getvalue()
        else:
            png = style.save(figure, self.figures, name, self.provenance)[0].read_bytes()
            self.shown.append(name)
        self.display(Image(data=png, format="png", width=700, alt=alt))

    def finish(self) -> None:
        """Show an output that counts the figures.

        `notebooks.execute` recognises by this output that all cells of the notebook have run.
        """
        words = f"{captions.plural(len(self.shown), 'figure')} of {self.about}."
        self.display({"text/plain": words}, raw=True, metadata={COMPLETE: list(self.shown)})


def named(known: Mapping[str, T], name: str, noun: str) -> T:
    """Return the entry of `known` with this name.

    If there is no such entry, raise LabError with the known names. `noun` is the word for an entry
    in the error message.
    """
    if name not in known:
        raise LabError(f"There is no {noun} {name!r}: choose from {', '.join(known)}.")
    return known[name]


def show(blocks: Iterable[Block]) -> None:
    """Show each block of a page, such as a paragraph or a table, below the running cell.

    A block is shown as HTML and as Markdown.
    """
    for block in blocks:
        if block:
            plain = markup.markdown([block])
            data = {"text/html": markup.html([block]), "text/markdown": plain, "text/plain": plain}
            display(data, raw=True)


def has_reader() -> bool:
    """Return True if a reader uses the notebook interactively, so that widgets work.

    The result is the value of `allow_stdin` in the cell's execute_request (Jupyter's messaging
    protocol). This value is true in JupyterLab, and false in papermill and nbconvert. Return False
    outside a notebook.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent("shell") if kernel is not None else {}
    return bool(request.get("content", {}).get("allow_stdin"))


def opener(open_page: Callable[..., T]) -> Callable[..., T]:
    """Decorate a function that a notebook calls with the notebook's parameters.

    The decorated function raises LabError if the value of a parameter does not have the annotated
    type. It also raises LabError if the notebook has a variable that is not a parameter, because
    the user may have misspelt a parameter, and papermill only warns about this. After the call, the
    notebook shows any LabError as one sentence without a traceback.
    """
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(open_page)

    @wraps(open_page)
    def opened(*args: Any, **kwargs: Any) -> T:
        given: dict[str, object] = inspect.signature(open_page).bind(*args, **kwargs).arguments
        if (shell := get_ipython()) is not None:
            shell.set_custom_exc((LabError,), _show_sentence)
            variables = {
                name: value
                for name, value in shell.user_ns.items()
                if name not in shell.user_ns_hidden
            }
            plain = {
                name
                for name, value in variables.items()
                if name[0] != "_" and isinstance(value, PLAIN)
            }
            unknown = ", ".join(sorted(plain - set(given)))
            # If a page exists already, the reader is running the cell again. The reader may have
            # defined variables since the first time, so do not report variables.
            if unknown and not any(isinstance(value, Page) for value in variables.values()):
                has = f"parameter{'s' * (len(given) > 1)} {captions.joined(list(given))}"
                raise LabError(f"Unknown parameter {unknown}: this notebook has only the {has}.")
        try:
            return checked(**given)
        except ValidationError as error:
            first = error.errors()[0]
            kind = first["msg"].removeprefix("Input should be ")
            raise LabError(
                f"The parameter {first['loc'][0]} must be {kind}, not {first['input']!r}."
            ) from None

    return opened


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as one sentence without a traceback. For papermill, the cell still fails."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


class RunPage(Page):
    """A page about one run, with all parts and figures that notebooks show."""

    tables: Tables  # the tables of the run, for further exploration
    case: Case | None  # the trial that the page is about, or None if it is about the whole run

    def __init__(self, run: str, trial: str | None = None) -> None:
        """Read a run, which is given as an id, a path, `latest` or `sample`.

        If `trial` is empty, `choose` selects a trial. If `trial` is None, the page is not about a
        trial. Raise LabError if there is no such run or trial, or if the trial cannot be compared
        with the probe.
        """
        folder = find_run(run)
        self.tables = read_tables(folder)
        self.case = None if trial is None else choose(self.tables, trial)
        if self.case is not None and self.case.row["workload"] == OWN_SCRIPT:
            raise LabError(
                f"In the trial {trial!r} the script and the probe sent different requests, which "
                "cannot be compared: choose another trial."
            )
        # The possible arguments of functions that make figures, by type. Each function is called
        # with the argument of the type for which it was registered (`Registered.subject`).
        self.subjects: dict[type, Any] = {
            Tables: self.tables,
            Case: self.case,
        }
        super().__init__(
            about=f"run {self.tables.manifest.run_id}",
            figures=figures_folder(folder),
            parts=parts.about(self.tables, parts.OF_A_RUN)
            | parts.about(self.case, parts.OF_A_TRIAL, NO_CLOSED_LOAD_BY_K6),
            charts={name: partial(self._chart, name) for name in charts()},
            provenance=captions.provenance(self.tables),
        )

    def _chart(self, name: str) -> Chart | None:
        found = charts()[name]
        subject = self.subjects.get(found.subject)
        is_ready = subject is not None and (found.subject is not Tables or found.needs(self.tables))
        return found.make(subject) if is_ready else None


@opener
def open_report(run: str, trial: str | None = None) -> RunPage:
    """Return the page about a run, for a notebook. With `trial`, the page is about this trial.

    `RunPage` explains the parameters.
    """
    return RunPage(run, trial)


@opener
def open_comparison(
    run_a: str, run_b: str, force: bool = False, fail_above: NonNegativeFloat | None = None
) -> Page:
    """Return the page that compares run B with run A, for a notebook.

    Each run is given as an id, a path, `latest` or `sample`. With `force`, runs are compared even
    if their machines, tools or CPUs differ. A change for the worse is a regression if its whole
    interval is worse by more than `fail_above` %. Raise LabError in the same cases as
    `compare.compare_runs`.
    """
    folders = find_run(run_a), find_run(run_b)
    found = compare.compare_runs(*folders, force=force, fail_above_pct=fail_above)
    tables = [read_tables(folder) for folder in folders]
    looks = identities(pd.concat([each.trials for each in tables], ignore_index=True))
    about = Paragraph(f"A is run {found.run_a}, B is run {found.run_b}; ratios are B / A.")
    return Page(
        about=f"runs {found.run_a} and {found.run_b}",
        figures=figures_folder(folders[1]).with_name(
            "--".join(figures_folder(folder).name for folder in folders)
        ),
        parts={
            "answer": lambda: [about, Bullets(tuple(compare.findings(found)))],
            "conditions": partial(_conditions, found, [each.manifest for each in tables]),
            # A table for each load: means, ratio with interval, detectable difference and verdict.
            "loads": lambda: [
                TextTable(texts, load) for load, texts in compare.tables(found).items()
            ],
            "left out": partial(_left_out, found),
        },
        charts={"compare-ratios": partial(compare.ratios, found, looks)},
    )


def _conditions(found: compare.RunComparison, manifests: list[Manifest]) -> Iterator[Block]:
    """Yield the conditions that differ between the runs, and the facts of both manifests."""
    rows = [
        {"differs": each.what, "A": each.here_in_words, "B": each.there_in_words}
        for each in found.differences
    ]
    if not rows:
        yield Paragraph("Machine, engine, CPUs and tools are the same in both runs.")
    yield TextTable(
        pd.DataFrame(rows),
        "The runs were compared because of --force (in a notebook: force = True), although these "
        "conditions differ and change the numbers by themselves",
    )
    yield Bullets(tuple(compare.provenance(found)))
    sides = dict(zip("AB", map(captions.manifest_facts, manifests), strict=True))
    facts = pd.DataFrame(sides).fillna("–").rename_axis("what").reset_index()
    alike = facts["A"] == facts["B"]
    yield TextTable(facts[~alike], "Not the same in both runs")
    yield TextTable(
        facts.loc[alike, ["what", "A"]].rename(columns={"A": "value"}), "The same in both runs"
    )


def _left_out(found: compare.RunComparison) -> Iterator[Block]:
    rows = [
        {"what": cell, "why": why}
        for why, cells in compare.left_out(found).items()
        for cell in cells
    ]
    if not rows:
        yield Paragraph("Both runs have the same cells, and all of them could be compared.")
    yield TextTable(pd.DataFrame(rows))


@opener
def open_history(
    runs: str, force: bool = False, fail_above: NonNegativeFloat | None = None
) -> Page:
    """Return the page that follows cells over several runs, for a notebook.

    `runs` are ids, paths, `latest` or `sample`, separated by commas. `force` and `fail_above` mean
    the same as in `open_comparison`. Raise LabError in the same cases as `history.history`.
    """
    folders = [find_run(name.strip()) for name in runs.split(",") if name.strip()]
    found = history(folders, force=force, fail_above_pct=fail_above)
    first = figures_folder(folders[0])
    last = figures_folder(folders[-1])
    return Page(
        about=captions.plural(len(folders), "run"),
        figures=last.with_name(f"history-{first.name}--{last.name}"),
        parts={
            "answer": lambda: [Bullets(tuple(findings(found)))],
            "courses": lambda: [TextTable(table(found), about="Means by run")],
        },
        charts={"history": partial(timeline, found)},
    )
