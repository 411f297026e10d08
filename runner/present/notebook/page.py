"""A page in a notebook: its cells show parts and figures by name, and the last one proves that it ran."""

# mypy: allow-untyped-calls
# IPython ships without type annotations.

import inspect
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.getipython import get_ipython
from IPython.display import Image, display
from matplotlib.figure import Figure
from pydantic import ConfigDict, ValidationError, validate_call

from runner.model import LabError
from runner.present.chart import Chart, charts, describe, draw
from runner.present.look import captions, markup, style
from runner.present.look.content import Block

T = TypeVar("T")
COMPLETE = "lab_complete"  # key of the output metadata by which a notebook proves that its last cell ran
PLAIN = (str, int, float, bool, list, tuple, dict, type(None))
"""Types of variables that may have been meant as parameters."""


@dataclass(eq=False)
class Page:
    """What a notebook calls: each method shows the output of one cell."""

    about: str  # the run, or the runs, in words
    figures: Path  # the folder in which figures are saved
    parts: Mapping[str, Callable[..., Iterable[Block]]]  # name -> returns what one cell shows
    charts: Mapping[str, Callable[[], Chart | None]]  # name -> returns a figure; None where the run has nothing for it
    shown: list[str] = field(default_factory=list)  # the figures saved so far
    live: bool = False  # whether a reader works with the page, so that no file is changed

    def chart(self, name: str) -> Chart | None:
        """Return a figure as a value, whose `frame` has its points; None where the run has no load of its kind.

        LabError for an unknown name.
        """
        return named(self.charts, name, "figure")()

    def show_part(self, name: str, *details: str) -> None:
        """Show the words and tables of a part; LabError for an unknown name."""
        show(named(self.parts, name, "part")(*details))

    def show_figure(self, name: str) -> None:
        """Draw a figure and show it; nothing where `chart` has none."""
        if chart := self.chart(name):
            place = charts()[name].place if name in charts() else ""
            self.show_picture(name, draw(chart), describe(chart) + place)

    def show_picture(self, name: str, figure: Figure, alt: str) -> None:
        """Show a figure with its alternative text; unless the page is live, save it as PNG and SVG too."""
        if self.live:
            with style.rc():
                figure.savefig(picture := io.BytesIO(), format="png", dpi=150)
            png = picture.getvalue()
        else:
            png = style.save(figure, self.figures, name)[0].read_bytes()
            self.shown.append(name)
        display(Image(data=png, format="png", width=700, alt=alt))

    def finish(self) -> None:
        """Say that the notebook reached its end; `notebooks.execute` looks for this."""
        words = f"{captions.plural(len(self.shown), 'figure')} of {self.about}."
        display({"text/plain": words}, raw=True, metadata={COMPLETE: list(self.shown)})


def named(known: Mapping[str, T], name: str, noun: str) -> T:
    """Return what has a name; LabError with the names that there are."""
    if name not in known:
        raise LabError(f"There is no {noun} {name!r}: choose from {', '.join(known)}.")
    return known[name]


def show(blocks: Iterable[Block]) -> None:
    """Show blocks, each as HTML and as Markdown."""
    for block in blocks:
        if block:
            plain = markup.markdown([block])
            data = {"text/html": markup.html([block]), "text/markdown": plain, "text/plain": plain}
            display(data, raw=True)


def has_reader() -> bool:
    """Return whether the front end that had the running cell executed has a reader, so that widgets work.

    It says so in `allow_stdin` of its execute_request (Jupyter's messaging protocol): true for JupyterLab, false for
    papermill and nbconvert. False outside a notebook.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent("shell") if kernel is not None else {}
    return bool(request.get("content", {}).get("allow_stdin"))


def opener(open_page: Callable[..., T]) -> Callable[..., T]:
    """Make a function the one that a notebook calls with its parameters: they are held against its annotations.

    LabError for a value of another type, and for a variable that is no parameter, of which papermill only warns. From
    then on a LabError shows as one sentence in the notebook.
    """
    checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(open_page)

    @wraps(open_page)
    def opened(*args: Any, **kwargs: Any) -> T:
        given: dict[str, Any] = inspect.signature(open_page).bind(*args, **kwargs).arguments
        if (shell := get_ipython()) is not None:
            shell.set_custom_exc((LabError,), _show_sentence)
            variables = {name: value for name, value in shell.user_ns.items() if name not in shell.user_ns_hidden}
            plain = {name for name, value in variables.items() if name[0] != "_" and isinstance(value, PLAIN)}
            unknown = ", ".join(sorted(plain - set(given)))
            # Where there is a page already, a cell is run again, and other variables are the reader's.
            if unknown and not any(isinstance(value, Page) for value in variables.values()):
                has = f"parameter{'s' * (len(given) > 1)} {captions.joined(list(given))}"
                raise LabError(f"Unknown parameter {unknown}: this notebook has the {has} only.")
        try:
            return checked(**given)
        except ValidationError as error:
            first = error.errors()[0]
            kind = first["msg"].removeprefix("Input should be ")
            raise LabError(f"The parameter {first['loc'][0]} must be {kind}, not {first['input']!r}.") from None

    return opened


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as its sentence; the reply to papermill stays an error."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])
