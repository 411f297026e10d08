"""What the notebook about CPU spikes opens: a trial of a run, its spikes and what coincides, to choose from or not."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import matplotlib as mpl
import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from runner.present.frames import read_tables
from runner.present.look import captions, scales, style
from runner.present.look.content import Block, Paragraph, Sheet
from runner.present.notebook.page import NUMBER, TEXT, check_parameters, png_of, show, show_picture
from runner.present.notebook.parts import block
from runner.present.notebook.run_page import RunPage, run_page
from runner.present.spikes import figures as spike_figures
from runner.present.spikes import survey as spike_survey
from runner.present.spikes import words as spike_words
from runner.present.spikes.view import View, view
from runner.store import find_run

NAMED, CHOSEN = "The parameter trial names it.", "It was chosen from the list."
PARTS: dict[str, tuple[Callable[[View], str | tuple[str, ...] | pd.DataFrame], ...]] = {
    "trial": (spike_words.trial_words, spike_words.verdict_words),
    "spikes": (spike_words.spike_words, spike_words.spike_table),
    "coincidence": (spike_words.coincidence_words, spike_words.coincidence_table),
    "limits": (spike_words.limits,),
}
"""Name of a part about the trial -> what says it, in words and tables."""
NO_WIDGETS = "To choose the trial here, install ipywidgets; the parameters trial, start_s and stop_s do the same."


def open_spikes(run: str, trial: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> SpikePage:
    """Open a run for the notebook about CPU spikes.

    An empty `trial` is the one with the spike that stands out most, or without any spike the highest peak. `start_s` to
    `stop_s` is the part of its load that is shown; 0 and 0: all of it. LabError as of `run_page.open_report`, and for
    seconds that are none of the load.
    """
    check_parameters(run=(run, TEXT), trial=(trial, TEXT), start_s=(start_s, NUMBER), stop_s=(stop_s, NUMBER))
    folder = find_run(run)
    tables = read_tables(folder)
    found = spike_survey.survey(tables)
    page = SpikePage(**vars(run_page(folder, tables)), survey=found, live=has_reader())
    chosen = trial or spike_survey.most_pronounced(found)
    if chosen:
        page.choose(chosen, NAMED if trial else spike_survey.why(found, chosen), start_s, stop_s)
    return page


def has_reader() -> bool:
    """Return whether whoever had the running cell executed can answer: a front end with a reader, where widgets work.

    It says so itself: `allow_stdin` of an execute_request (Jupyter's messaging protocol) is true for JupyterLab and
    false for papermill, nbconvert and whatever else executes notebooks with nobody there. False outside a notebook.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent("shell") if kernel is not None else {}
    return bool(request.get("content", {}).get("allow_stdin"))


@dataclass(eq=False, kw_only=True)
class SpikePage(RunPage):
    """A page about one trial; where a reader is there to choose (`live`), it is shown again for each choice."""

    survey: pd.DataFrame
    live: bool = False
    view: View | None = None
    controls: Any = None
    """The list of trials and the slider, once they are shown."""
    _canvas: Any = None
    """The figure as a widget, once it is shown to a reader."""
    _places: list[tuple[Any, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        said = {name: partial(self._said, name) for name in PARTS}
        self.parts = {**self.parts, **said, "control": self._control}
        self.drawings = {spike_figures.NAME: self._timeline}

    def choose(self, trial: str, why: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> None:
        """Take a trial, or a part of its load, and show again what is shown already."""
        self.view = view(self.tables, trial, why, start_s, stop_s)
        for place, render in self._places:
            _fill(place, render)

    def show_controls(self) -> None:
        """Show a list of the trials and a slider for the part of the load, where a reader is there to use them."""
        if not self.live or self.view is None:
            return
        widgets = _widgets()
        if widgets is None:
            show([Paragraph(NO_WIDGETS)])
            return
        labels = [(_label(row), row["trial_id"]) for row in self.survey.to_dict("records")]
        wide, now = widgets.Layout(width="98%"), self.view
        trials = widgets.Dropdown(options=labels, value=now.case.trial_id, description="trial", layout=wide)
        part = widgets.FloatRangeSlider(
            min=0.0, max=now.duration_s, step=0.05, value=(now.start_s, now.stop_s), description="seconds",
            continuous_update=False, layout=wide,
        )  # fmt: skip

        def cut(_: object) -> None:
            assert self.view is not None
            self.choose(self.view.case.trial_id, self.view.why, *part.value)

        def change(event: Any) -> None:
            self.choose(event["new"], CHOSEN)
            assert self.view is not None
            part.unobserve(cut, "value")
            part.max = self.view.duration_s
            part.value = (0.0, self.view.duration_s)
            part.observe(cut, "value")

        trials.observe(change, "value")
        part.observe(cut, "value")
        self.controls = widgets.VBox([trials, part])
        display(self.controls)

    def show_part(self, name: str, *details: str) -> None:
        """Show a part; what is about the trial can be replaced later."""
        self._in_place(partial(super().show_part, name, *details))

    def show_figure(self, name: str) -> None:
        """Show the figure; where nobody is there to choose another trial, save it in the run's figures folder too."""
        self._in_place(self._show_unsaved if self.live else partial(super().show_figure, name))

    # --- what they show ---------------------------------------------------------------------------------------

    def _in_place(self, render: Callable[[], None]) -> None:
        """Show something in a place of its own where it can be replaced."""
        widgets = _widgets() if self.live and self.view is not None else None
        if widgets is None:
            render()
            return
        place = widgets.Output()
        display(place)
        self._places.append((place, render))
        _fill(place, render)

    def _said(self, name: str) -> Iterator[Block]:
        if self.view is None:
            yield from [Paragraph(spike_words.NOTHING)] if name == next(iter(PARTS)) else []
            return
        for say in PARTS[name]:
            yield block(say(self.view))

    def _control(self) -> Iterator[Block]:
        """Yield how often each server of the run spikes, and those without a garbage collector under the same load."""
        if self.view is not None:
            yield Paragraph(spike_survey.control_words(self.survey, self.view.case.trial_id))
            yield Sheet(spike_survey.control_table(self.survey), "All sealed trials of the run, by server")

    def _timeline(self) -> tuple[Figure, str] | None:
        if self.view is None:
            return None
        return spike_figures.timeline(self.view), spike_figures.describe(self.view)

    def _show_unsaved(self) -> None:
        """Show the figure as a widget that zooms, with its words below; as a picture where ipympl is not installed."""
        drawn = self._timeline()
        if drawn is None:
            return
        figure, words = drawn
        if self._canvas is not None:
            self._canvas.close()
        self._canvas = zoomable(figure)
        if self._canvas is None:
            show_picture(png_of(figure), words)
        else:
            display(self._canvas)
            show([Paragraph(words)])


def _fill(place: Any, render: Callable[[], None]) -> None:
    place.clear_output(wait=True)
    with place:
        render()


def _widgets() -> Any:
    """Return ipywidgets, which only a reader in front of the notebook needs; None where it is not installed."""
    return _installed("ipywidgets")


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def zoomable(figure: Figure) -> Any:
    """Return a figure over one axis of time as a widget (ipympl's Canvas); None where ipympl is not installed.

    Zooming or moving one panel does so to all. Below the figure stands what is under the pointer (each panel's
    `format_coord`).
    """
    backend = _installed("ipympl.backend_nbagg")
    if backend is None or _widgets() is None:
        return None
    mpl.rcParams.update(style.RC)  # ticks that appear while zooming are made then
    first, *others = figure.axes
    for ax in others:
        ax.sharex(first)
    for number in first.texts:  # those of spikes, which may be moved out of sight
        number.set_clip_on(True)
    for ax in figure.axes:
        if ax.get_yscale() == "log":
            ax.callbacks.connect("ylim_changed", lambda changed: scales.log_axis(changed, "y"))
    canvas = backend.Canvas(figure)
    backend.FigureManager(canvas, 0)
    canvas.header_visible, canvas.resizable = False, False
    return canvas


def _label(row: dict[Any, Any]) -> str:
    return f"{row['trial_id']}: {captions.plural(row['spikes'], 'spike')}, peak {style.number(row['peak_pct'])} %"
