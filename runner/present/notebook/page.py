"""A page in a notebook: its cells show parts and figures by name, and the last one proves that it ran."""

# mypy: allow-untyped-calls
# IPython ships without type annotations.

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.getipython import get_ipython
from IPython.display import Image, display
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present.look import captions, markup, style
from runner.present.look.content import Block

T = TypeVar("T")
COMPLETE = "lab_complete"
"""Key of the output metadata by which a notebook proves that its last cell ran."""
Part = Callable[..., Iterable[Block]]
"""Returns what one cell shows."""
Drawing = Callable[[], tuple[Figure, str] | None]
"""Returns a figure and its alternative text; None where the run has nothing for it."""


@dataclass(eq=False)
class Page:
    """What a notebook calls: each method shows the output of one cell."""

    about: str
    """The run, or the runs, in words."""
    figures: Path
    """The folder in which figures are saved."""
    parts: Mapping[str, Part]
    drawings: Mapping[str, Drawing]
    shown: list[str] = field(default_factory=list)
    """The figures saved so far."""
    live: bool = False
    """Whether a reader works with the page, so that no file is changed."""

    def show_part(self, name: str, *details: str) -> None:
        """Show the words and tables of a part; LabError for an unknown name."""
        show(_named(self.parts, name, "part")(*details))

    def show_figure(self, name: str) -> None:
        """Draw a figure and show it; nothing where the run has no load of its kind. LabError for an unknown name."""
        drawn = _named(self.drawings, name, "figure")()
        if drawn is not None:
            self.show_picture(name, *drawn)

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


def _named(known: Mapping[str, T], name: str, noun: str) -> T:
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TEXT, NUMBER, FLAG, PERCENTAGE = "text", "a number", "True or False", "None or a percentage of at least 0"
KINDS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: _is_number,
    FLAG: lambda value: isinstance(value, bool),
    PERCENTAGE: lambda value: value is None or (_is_number(value) and value >= 0),
}


def check_parameters(**given: tuple[Any, str]) -> None:
    """Check a notebook's parameters, name -> (value, kind); from now on a LabError shows as one sentence.

    LabError for a value of another kind, and for a variable that is no parameter, of which papermill only warns.
    """
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((LabError,), _show_sentence)
        _refuse_unknown(shell, list(given))
    for name, (value, kind) in given.items():
        if not KINDS[kind](value):
            raise LabError(f"The parameter {name} must be {kind}, not {value!r}.")


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as its sentence; the reply to papermill stays an error."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


def _refuse_unknown(shell: Any, known: list[str]) -> None:
    """Raise LabError for plain values that are not parameters.

    Where there is a page already, a cell is run again, and the other variables are the reader's.
    """
    plain = (str, int, float, bool, list, tuple, dict, type(None))
    names = {
        name
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in shell.user_ns_hidden and isinstance(value, plain)
    }
    unknown = sorted(names - set(known))
    if unknown and not any(isinstance(value, Page) for value in shell.user_ns.values()):
        has = f"parameter{'s' * (len(known) > 1)} {captions.joined(known)}"
        raise LabError(f"Unknown parameter {', '.join(unknown)}: this notebook has the {has} only.")
