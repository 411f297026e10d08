"""Define the page of the notebook about CPU spikes.

The page shows the spikes and the events of one trial. A reader who uses the notebook interactively
can choose another trial.
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
from runner.present.spikes import ran_words
from runner.present.spikes import words as spike_words
from runner.present.spikes.peaks import peak_table, peak_words, peaks
from runner.present.spikes.ran import what_ran
from runner.present.spikes.ran_figure import timelines_of
from runner.present.spikes.view import View, most_pronounced, survey, view, windows
from runner.present.why import figures as why_figures
from runner.present.why import words as why_words
from runner.store import replacing

try:
    import ipywidgets as widgets
# The extra `lab` of this project installs ipywidgets. Without ipywidgets, no page is interactive.
except ModuleNotFoundError:
    widgets = None

CHOSEN = "It was chosen from the list."
PEAKS_FILE = "cpu-peaks.csv"
INTERACTIVE = "cpu-spikes"
"""Name of the figure that is a widget if a reader uses the notebook interactively."""
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
"""Functions that make the parts about the shown trial, by the part's name.

Each function is called with the `View` of this trial.
"""


class SpikePage(RunPage):
    """A page about one trial. A `live` page is updated whenever the reader chooses a trial."""

    view: View | None = None
    controls: Any = None  # the list of trials and the slider, after they have been shown
    canvas: Any = None  # the figure as a widget, after it has been shown

    def __init__(self, run: str, trial: str, start_s: float, stop_s: float) -> None:
        super().__init__(run)
        self.live = has_reader() and widgets is not None
        # The number of choices that the reader has made. Parts and figures observe this number, so
        # that each choice updates what they show.
        self._choices = widgets.IntText() if self.live else None
        self.survey = survey(self.tables)
        self.parts = {
            **self.parts,
            **parts.about(None, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
            "control": self._control,
            "ran": self._ran,
            "in spikes": self._in_spikes,
            "peaks": self._peaks,
        }
        if trial:
            self.choose(trial, "The parameter trial names it.", start_s, stop_s)
        elif chosen := most_pronounced(self.survey):
            self.choose(chosen, spike_words.why(self.survey, chosen), start_s, stop_s)

    def choose(self, trial: str, why: str = "", start_s: float = 0.0, stop_s: float = 0.0) -> None:
        """Choose a trial and the seconds of its load to show, and update everything that is shown.

        If `start_s` and `stop_s` are 0, the whole load is shown. `why` is a sentence that says why
        the trial was chosen.
        """
        self.view = self.subjects[View] = view(self.tables, trial, why, start_s, stop_s)
        self.parts = {
            **self.parts,
            **parts.about(self.view, PARTS, spike_words.NO_TRIAL_TO_LOOK_AT),
        }
        if self._choices is not None:
            self._choices.value += 1

    def show_controls(self) -> None:
        """Show a list of trials, and a slider for the seconds of the load that are shown.

        Show nothing unless the page is live.
        """
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
        """Show a part of the page, which is updated when the reader chooses another trial."""
        self._in_place(partial(super().show_part, name, *details))

    def show_figure(self, name: str) -> None:
        """Show a figure, which is updated when the reader chooses another trial."""
        self._in_place(partial(super().show_figure, name))

    def _in_place(self, render: Callable[[], None]) -> None:
        """Call `render`, which shows something below the running cell.

        If the page is live, call `render` again after each choice of the reader, so that the new
        output replaces the old output.
        """
        if self._choices is None or self.view is None:
            render()
        else:
            display(widgets.interactive_output(lambda **_: render(), {"choices": self._choices}))

    @cached_property
    def peaks(self) -> pd.DataFrame:
        """The CPU spikes of all trials, followed by the peaks of trials without a spike.

        Spikes are sorted by their height above the baseline.
        """
        return peaks(self.tables)

    def windows(self) -> pd.DataFrame:
        """Return a frame of the resources used in the trial, by subject and window.

        There is a row for each subject (such as the server or the generator) in each window. A
        window is the time between two readings of the sampler. The columns are described in
        `runner.present.spikes.view.windows`. Raise LabError if the page shows no trial.
        """
        if self.view is None:
            raise LabError(spike_words.NO_TRIAL_TO_LOOK_AT)
        return windows(self.view)

    def _peaks(self) -> Iterator[Block]:
        """Yield a table of the highest CPU peaks of all trials.

        Unless the page is live, also write all peaks to a CSV file, and yield a link to this file.
        """
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
        """Yield sentences and a table that say how often each server of the run has spikes.

        The sentences and the table show whether servers without a garbage collector have spikes,
        too. Such servers are the control group.
        """
        if self.view is not None:
            yield Paragraph(spike_words.control_words(self.survey, self.view.case.trial_id))
            yield TextTable(
                spike_words.control_table(self.survey), "All sealed trials of the run, by server"
            )

    def _ran(self) -> Iterator[Block]:
        """Yield a paragraph that says on which kinds of work the trial's server spent CPU time.

        The kinds of work come from the server's profile under the trial's load. Yield nothing if
        the run has no such profile.
        """
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

    def _in_spikes(self) -> Iterator[Block]:
        """Yield, for each timeline of the run, the functions that ran in the server's CPU spikes.

        A timeline is a load that perf recorded without a break.
        """
        for timeline in timelines_of(self.tables):
            ran = what_ran(timeline)
            load = why_words.load_words(self.tables, timeline.load)
            yield Paragraph(ran_words.timeline_words(timeline, ran, load))
            yield Bullets(tuple(map(ran_words.ran_words, ran)))
            yield TextTable(ran_words.ran_table(ran), f"What a spike ran: {timeline.server}")

    def show_picture(self, name: str, figure: Figure, alt: str) -> None:
        """Show a figure with its alternative text.

        If the page is live, the figure named `INTERACTIVE` is shown as a widget. The panels of the
        widget zoom and pan together. Below the panels, the widget shows the values under the
        pointer (`format_coord`).
        """
        if not self.live or name != INTERACTIVE:
            super().show_picture(name, figure, alt)
            return
        # Import the module here, because importing it creates widgets, which static pages must not
        # contain.
        from ipympl import backend_nbagg  # noqa: PLC0415

        if self.canvas is not None:
            self.canvas.close()
        mpl.rcParams.update(style.RC)  # also applies to ticks that are created while zooming
        first, *others = figure.axes
        for ax in others:
            ax.sharex(first)
        for label in first.texts:  # hide the number of a spike that is panned out of the panel
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
    """Return the page about the CPU spikes of a run, for a notebook.

    If `trial` is empty, the page shows the trial with the most pronounced spike (see
    `most_pronounced`). The page shows the load from `start_s` to `stop_s`, or the whole load if
    both are 0. Raise LabError in the same cases as `RunPage`, and also if `start_s` or `stop_s` is
    outside the load.
    """
    return SpikePage(run, trial, start_s, stop_s)
