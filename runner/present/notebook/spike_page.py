"""What the notebook about CPU spikes opens: a trial of a run, its spikes and what coincides, to
choose from or not.
"""

# mypy: allow-untyped-calls
# IPython ships without type annotations.

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ipywidgets as widgets
import matplotlib as mpl
from IPython.display import display
from matplotlib.figure import Figure

from runner.present.look import captions, style
from runner.present.look.markup import Block, Bullets, Paragraph, TextTable
from runner.present.notebook import parts
from runner.present.notebook.pages import RunPage, has_reader, opener, show
from runner.present.spikes import words as spike_words
from runner.present.spikes.view import View, most_pronounced, survey, view

CHOSEN = "It was chosen from the list."
PARTS: dict[str, parts.Part] = {
    "trial": lambda view: [Paragraph(spike_words.trial_words(view))],
    "spikes": lambda view: [
        Paragraph(spike_words.spike_words(view)),
        TextTable(spike_words.spike_table(view)),
    ],
    "coincidence": lambda view: [
        Paragraph(spike_words.coincidence_words(view)),
        TextTable(spike_words.coincidence_table(view)),
    ],
    "limits": lambda view: [Bullets(spike_words.limits(view))],
}
"""Name of a part about the trial -> what it shows."""


class SpikePage(RunPage):
    """A page about one trial.

    If a reader is there to choose (`live`), it is shown again for each choice.
    """

    view: View | None = None
    controls: Any = None  # the list of trials and the slider, once they are shown
    _canvas: Any = None  # the figure as a widget, once it is shown to a reader

    def __init__(self, run: str, trial: str, start_s: float, stop_s: float) -> None:
        super().__init__(run)
        self.live = has_reader()
        self._choices = (
            widgets.IntText() if self.live else None
        )  # counts them: what is shown follows it
        self.survey = survey(self.tables)
        self.parts = {
            **self.parts,
            **parts.about(None, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
            "control": self._control,
        }
        if trial:
            self.choose(trial, "The parameter trial names it.", start_s, stop_s)
        elif chosen := most_pronounced(self.survey):
            self.choose(chosen, spike_words.why(self.survey, chosen), start_s, stop_s)

    def choose(self, trial: str, why: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> None:
        """Take a trial, or a part of its load, and show again what is shown already."""
        self.view = self.subjects[View] = view(self.tables, trial, why, start_s, stop_s)
        self.parts = {
            **self.parts,
            **parts.about(self.view, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
        }
        if self._choices is not None:
            self._choices.value += 1

    def show_controls(self) -> None:
        """Show a list of the trials and a slider for the part of the load, where a reader is there
        to use them.
        """
        if not self.live or self.view is None:
            return
        rows = self.survey[["trial_id", "spikes", "peak_pct"]].itertuples(index=False)
        labels = [
            (f"{name}: {captions.plural(spikes, 'spike')}, peak {style.number(pct)} %", name)
            for name, spikes, pct in rows
        ]
        wide = widgets.Layout(width="98%")
        now = self.view
        trials = widgets.Dropdown(
            options=labels, value=now.case.trial_id, description="trial", layout=wide
        )
        part = widgets.FloatRangeSlider(
            min=0.0,
            max=now.duration_s,
            step=0.05,
            value=(now.start_s, now.stop_s),
            description="seconds",
            continuous_update=False,
            layout=wide,
        )

        def cut(_: object) -> None:
            self.choose(trials.value, CHOSEN, *part.value)

        def change(_: object) -> None:
            self.choose(trials.value, CHOSEN)
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
        """Show the figure, which can be replaced later."""
        self._in_place(partial(super().show_figure, name))

    def _in_place(self, render: Callable[[], None]) -> None:
        """Show something, for a reader in a place where it can be replaced."""
        if self._choices is None or self.view is None:
            render()
        else:
            display(widgets.interactive_output(lambda **_: render(), {"choices": self._choices}))

    def _control(self) -> Iterator[Block]:
        """Yield how often each server of the run spikes, and those without a garbage collector
        under the same load.
        """
        if self.view is not None:
            yield Paragraph(spike_words.control_words(self.survey, self.view.case.trial_id))
            yield TextTable(
                spike_words.control_table(self.survey), "All sealed trials of the run, by server"
            )

    def show_picture(self, name: str, figure: Figure, alt: str) -> None:
        """Show a reader the figure as a widget, with its words below.

        All panels zoom and move together. Below stands what is under the pointer (each panel's
        `format_coord`).
        """
        if not self.live:
            super().show_picture(name, figure, alt)
            return
        from ipympl import backend_nbagg  # noqa: PLC0415 - makes widgets when imported, which no page may have

        if self._canvas is not None:
            self._canvas.close()
        mpl.rcParams.update(style.RC)  # ticks that appear while zooming are made then
        first, *others = figure.axes
        for ax in others:
            ax.sharex(first)
        for number in first.texts:  # those of spikes, which may be moved out of sight
            number.set_clip_on(True)
        for ax in figure.axes:
            if ax.get_yscale() == "log":
                ax.callbacks.connect("ylim_changed", lambda changed: style.log_axis(changed, "y"))
        self._canvas = canvas = backend_nbagg.Canvas(figure)
        backend_nbagg.FigureManager(canvas, 0)
        canvas.header_visible = False
        canvas.resizable = False
        display(canvas)
        show([Paragraph(alt)])


@opener
def open_spikes(run: str, trial: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> SpikePage:
    """Open a run for the notebook about CPU spikes.

    An empty `trial` is the one with the spike that stands out most, or without any spike the
    highest peak. `start_s` to `stop_s` is the part of its load that is shown; 0 and 0: all of it.
    LabError as of `RunPage`, and for seconds that are none of the load.
    """
    return SpikePage(run, trial, start_s, stop_s)
