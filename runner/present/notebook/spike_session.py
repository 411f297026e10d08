"""What the notebook about CPU spikes calls: open a run, choose a trial, show its spikes and what coincides."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import Image, display
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present.frames import read_tables
from runner.present.look import scales, style
from runner.present.notebook.session import Report, guard_notebook
from runner.present.notebook.showing import png_of, show_list, show_table, show_text
from runner.present.spikes import figures as spike_figures
from runner.present.spikes import survey as spike_survey
from runner.present.spikes import words as spike_words
from runner.present.spikes.view import View, view
from runner.store import figures_folder, find_run

PARAMETERS = ("run", "trial", "start_s", "stop_s")
NAMED, CHOSEN = "The parameter trial names it.", "It was chosen from the list."
Said = str | tuple[str, ...] | pd.DataFrame
PARTS: dict[str, tuple[Callable[[View], Said], ...]] = {
    "trial": (spike_words.trial_words, spike_words.verdict_words),
    "spikes": (spike_words.spike_words, spike_words.spike_table),
    "coincidence": (spike_words.coincidence_words, spike_words.coincidence_table),
    "limits": (spike_words.limits,),
}
"""What is told of the trial, in words and tables."""
NO_WIDGETS = "To choose the trial here, install ipywidgets; the parameters trial, start_s and stop_s do the same."


def open_spikes(run: str, trial: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> SpikePage:
    """Open a run for the notebook about CPU spikes.

    An empty `trial` is the one with the spike that stands out most, or without any spike the highest peak. `start_s` to
    `stop_s` is the part of its load that is shown; 0 and 0: all of it. LabError as of `session.open_report`, and for
    seconds that are none of the load.
    """
    guard_notebook(PARAMETERS, SpikePage)
    for name, text in {"run": run, "trial": trial}.items():
        if not isinstance(text, str):
            raise LabError(f"The parameter {name} must be text, not {text!r}.")
    for name, number in {"start_s": start_s, "stop_s": stop_s}.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise LabError(f"The parameter {name} must be a number, not {number!r}.")
    folder = find_run(run)
    report = Report(folder, read_tables(folder), figures_folder(folder))
    found = spike_survey.survey(report.tables)
    page = SpikePage(report, found, live=asks_somebody())
    chosen = trial or spike_survey.most_pronounced(found)
    if chosen:
        page.choose(chosen, NAMED if trial else spike_survey.why(found, chosen), start_s, stop_s)
    return page


def asks_somebody() -> bool:
    """Return whether whoever had the running cell executed can answer: a front end with a reader, where widgets work.

    It says so itself: `allow_stdin` of an execute_request (Jupyter's messaging protocol) is true for JupyterLab and
    false for papermill, nbconvert and whatever else executes notebooks with nobody there. False outside a notebook.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent("shell") if kernel is not None else {}
    return bool(request.get("content", {}).get("allow_stdin"))


@dataclass(eq=False)
class SpikePage:
    """An open run in the notebook; each method shows one cell's output.

    Where somebody is there to choose (`live`), what is about the trial is drawn again for each choice.
    """

    report: Report
    survey: pd.DataFrame
    live: bool = False
    view: View | None = None
    controls: Any = None
    """The list of trials and the slider, once they are shown."""
    _canvas: Any = None
    """The figure as a widget, once it is shown to somebody."""
    _sections: list[tuple[Any, Callable[[], None]]] = field(default_factory=list)

    def choose(self, trial: str, why: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> None:
        """Take a trial, or a part of its load, and show again what is shown already."""
        self.view = view(self.report.tables, trial, why, start_s, stop_s)
        for output, render in self._sections:
            _fill(output, render)

    # --- cells ------------------------------------------------------------------------------------------------

    def pick(self) -> None:
        """Show a list of the trials and a slider for the part of the load, where somebody is there to use them."""
        if not self.live or self.view is None:
            return
        widgets = _widgets()
        if widgets is None:
            show_text(NO_WIDGETS)
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

    def tell(self, part: str) -> None:
        """Show one of PARTS of the trial; without a trial the first of them says so."""
        if self.view is None:
            if part == next(iter(PARTS)):
                show_text(spike_words.NOTHING)
            return
        self._section(lambda: self._tell(part))

    def show(self) -> None:
        """Show the figure; where nobody is there to choose another trial, save it in the run's figures folder too."""
        if self.view is not None:
            self._section(self._draw)

    def control(self) -> None:
        """Show how often each server of the run spikes, and those without a garbage collector under the same load."""
        if self.view is None:
            return
        self._section(self._say_control)
        show_table(spike_survey.control_table(self.survey), "All sealed trials of the run, by server")

    def machine(self) -> None:
        """Show where and how the run was made."""
        self.report.machine()

    def finish(self) -> None:
        """Say that the notebook reached its end."""
        self.report.finish()

    # --- what they show ---------------------------------------------------------------------------------------

    def _tell(self, part: str) -> None:
        assert self.view is not None
        for say in PARTS[part]:
            said = say(self.view)
            if isinstance(said, pd.DataFrame):
                show_table(said)
            elif isinstance(said, tuple):
                show_list(said)
            else:
                show_text(said)

    def _say_control(self) -> None:
        assert self.view is not None
        show_text(spike_survey.control_words(self.survey, self.view.case.trial_id))

    def _draw(self) -> None:
        assert self.view is not None
        figure, words = spike_figures.timeline(self.view), spike_figures.describe(self.view)
        if self._canvas is not None:
            self._canvas.close()
        self._canvas = zoomable(figure) if self.live else None
        if self._canvas is not None:
            display(self._canvas)
            show_text(words)
            return
        if self.live:
            png = png_of(figure)
        else:
            png = style.save(figure, self.report.figures, spike_figures.NAME)[0].read_bytes()
            self.report.shown.append(spike_figures.NAME)
        display(Image(data=png, format="png", width=700, alt=words))

    def _section(self, render: Callable[[], None]) -> None:
        """Show something about the trial, where it can be changed in a place of its own."""
        widgets = _widgets() if self.live else None
        if widgets is None:
            render()
            return
        output = widgets.Output()
        display(output)
        self._sections.append((output, render))
        _fill(output, render)


def _fill(output: Any, render: Callable[[], None]) -> None:
    output.clear_output(wait=True)
    with output:
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
    spikes = f"{row['spikes']} spikes" if row["spikes"] != 1 else "1 spike"
    return f"{row['trial_id']}: {spikes}, peak {style.number(row['peak_pct'])} %"
