"""Page of the notebook about CPU spikes: a trial, its spikes and coinciding events.

In a live notebook, the reader can choose the trial.
"""

# mypy: allow-untyped-calls
# IPython ships without type annotations.

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import matplotlib as mpl
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present.look import captions, style
from runner.present.look.markup import Block, Bullets, Link, Links, Paragraph, TextTable
from runner.present.look.numbers import number
from runner.present.notebook import parts
from runner.present.notebook.pages import RunPage, has_reader, opener, show
from runner.present.spikes import words as spike_words
from runner.present.spikes.peaks import peak_table, peak_words, peaks
from runner.present.spikes.view import View, most_pronounced, survey, view, windows
from runner.present.why import figures as why_figures
from runner.present.why import words as why_words
from runner.store import replacing

try:
    import ipywidgets as widgets
except ModuleNotFoundError:  # it comes with the extra `lab`, and without it no page is interactive
    widgets = None

CHOSEN = "It was chosen from the list."
PEAKS_FILE = "cpu-peaks.csv"
INTERACTIVE = "cpu-spikes"
"""The figure that is a widget for a reader."""
PARTS: dict[str, parts.Part] = {
    "trial": lambda view: [Paragraph(spike_words.trial_words(view))],
    "spikes": lambda view: [
        Paragraph(spike_words.spike_words(view)),
        TextTable(spike_words.spike_table(view)),
    ],
    "held": lambda view: [
        Paragraph(spike_words.hindrance_words(view)),
        TextTable(spike_words.hindrance_table(view)),
    ],
    "coincidence": lambda view: [
        Paragraph(spike_words.coincidence_words(view)),
        TextTable(spike_words.coincidence_table(view)),
    ],
    "limits": lambda view: [Bullets(spike_words.limits(view))],
}
"""Name of a part about the trial -> its content."""


class SpikePage(RunPage):
    """A page about one trial; with a reader (`live`), it is updated for each choice."""

    view: View | None = None
    controls: Any = None  # the list of trials and the slider, once shown
    canvas: Any = None  # the figure as a widget, once shown to a reader

    def __init__(self, run: str, trial: str, start_s: float, stop_s: float) -> None:
        super().__init__(run)
        self.live = has_reader() and widgets is not None
        # Counts the spikes, as the other displays do.
        self._choices = widgets.IntText() if self.live else None
        self.survey = survey(self.tables)
        self.parts = {
            **self.parts,
            **parts.about(None, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
            "control": self._control,
            "ran": self._ran,
            "peaks": self._peaks,
        }
        if trial:
            self.choose(trial, "The parameter trial names it.", start_s, stop_s)
        elif chosen := most_pronounced(self.survey):
            self.choose(chosen, spike_words.why(self.survey, chosen), start_s, stop_s)

    def choose(self, trial: str, why: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> None:
        """Choose a trial, or a part of its load, and update everything shown."""
        self.view = self.subjects[View] = view(self.tables, trial, why, start_s, stop_s)
        self.parts = {
            **self.parts,
            **parts.about(self.view, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
        }
        if self._choices is not None:
            self._choices.value += 1

    def show_controls(self) -> None:
        """Show a list of trials and a slider for the part of the load, if there is a reader."""
        if not self.live or self.view is None:
            return
        rows = self.survey[["trial_id", "spikes", "peak_pct"]].itertuples(index=False)
        labels = [
            (f"{name}: {captions.plural(spikes, 'spike')}, peak {number(pct)} %", name)
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
        """Show a part; parts about the trial can be updated later."""
        self._in_place(partial(super().show_part, name, *details))

    def show_figure(self, name: str) -> None:
        """Show the figure, which can be updated later."""
        self._in_place(partial(super().show_figure, name))

    def _in_place(self, render: Callable[[], None]) -> None:
        """Show an object; in an interactive notebook, at a place where it can be updated."""
        if self._choices is None or self.view is None:
            render()
        else:
            display(widgets.interactive_output(lambda **_: render(), {"choices": self._choices}))

    @cached_property
    def peaks(self) -> pd.DataFrame:
        """The highest peaks of all trials, the highest above its baseline first."""
        return peaks(self.tables)

    def windows(self) -> pd.DataFrame:
        """Return a tidy frame of the trial: a row per window of the sampler and subject.

        Raise LabError if no trial is shown.
        """
        if self.view is None:
            raise LabError(spike_words.NO_TRIAL_TO_LOOK_AT)
        return windows(self.view)

    def _peaks(self) -> Iterator[Block]:
        """Yield the highest peaks of all trials, and write all of them to a file."""
        yield Paragraph(peak_words(self.peaks))
        yield TextTable(peak_table(self.peaks), about="Highest CPU peaks of all trials")
        if not self.live and len(self.peaks):
            self.figures.mkdir(parents=True, exist_ok=True)
            with replacing(self.figures / PEAKS_FILE) as temporary:
                self.peaks.to_csv(temporary, index=False, lineterminator="\n", encoding="utf-8")
            yield Links(
                (Link("All peaks", PEAKS_FILE, ", as CSV, beside the figures of this run."),)
            )

    def _control(self) -> Iterator[Block]:
        """Yield each server's rate of spikes in the run, beside servers without garbage
        collection.
        """
        if self.view is not None:
            yield Paragraph(spike_words.control_words(self.survey, self.view.case.trial_id))
            yield TextTable(
                spike_words.control_table(self.survey), "All sealed trials of the run, by server"
            )

    def _ran(self) -> Iterator[Block]:
        """Yield what the trial's server ran in its profile under this load, if there is one."""
        profiles = why_figures.profiles_of(self.tables)
        if profiles is None or self.view is None:
            return
        case = self.view.case
        load = why_words.load_of_trial(profiles, self.tables, case.trial_id)
        server = str(case.row["server"])
        for profile in profiles.of(load):
            if profile.server == server:
                yield Paragraph(
                    f"{server} was profiled under this load after its trials: "
                    f"{why_words.work_words(profile)}. The profile is of other seconds, so it does "
                    "not show what ran in a spike."
                )

    def show_picture(self, name: str, figure: Figure, alt: str) -> None:
        """Show the figure with its words; for a reader as a widget.

        All panels zoom and pan together. Values under the pointer are shown below (`format_coord`).
        """
        if not self.live or name != INTERACTIVE:
            super().show_picture(name, figure, alt)
            return
        from ipympl import backend_nbagg  # noqa: PLC0415 - makes widgets when imported, which no page may have

        if self.canvas is not None:
            self.canvas.close()
        mpl.rcParams.update(style.RC)  # ticks created while zooming use them
        first, *others = figure.axes
        for ax in others:
            ax.sharex(first)
        for label in first.texts:  # numbers of spikes, which can be panned out of sight
            label.set_clip_on(True)
        for ax in figure.axes:
            if ax.get_yscale() == "log":
                ax.callbacks.connect("ylim_changed", lambda changed: style.log_axis(changed, "y"))
        self.canvas = canvas = backend_nbagg.Canvas(figure)
        backend_nbagg.FigureManager(canvas, 0)
        canvas.header_visible = False
        canvas.resizable = False
        display(canvas)
        show([Paragraph(alt)])


@opener
def open_spikes(run: str, trial: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> SpikePage:
    """Open a run for the notebook about CPU spikes.

    An empty `trial` selects the one with the most prominent spike, or without spikes the highest
    peak. `start_s` to `stop_s` is the displayed part of the load; 0 and 0 mean all of it. Raise
    LabError as `RunPage` does, and if the seconds are outside the load.
    """
    return SpikePage(run, trial, start_s, stop_s)
