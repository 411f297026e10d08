"""Every figure that a run has loads for, as files for a post: light and dark, its caption as text beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.figure import Figure

from runner.present.case import choose
from runner.present.chart import Chart, charts, describe
from runner.present.chart import draw as draw_chart
from runner.present.frames import Tables
from runner.present.look import style
from runner.present.look.content import Picture
from runner.present.look.palette import identities
from runner.present.look.themes import save_both
from runner.present.spikes.view import View, most_pronounced, survey, view
from runner.present.spikes.words import why


def draw(tables: Tables, folder: Path, say: Callable[[str], None]) -> tuple[Picture, ...]:
    """Draw the run's figures into `folder` and return what stands beside them; `say` hears of each as it is written.

    A figure that could only say why there is nothing to see is left out.
    """
    looks = list(identities(tables.trials).values())
    drawn = [(*each, draw_chart(each[-1])) for each in _charts(tables)]
    full = [each for each in drawn if any(ax.axison for ax in each[-1].axes)]
    plots = []
    for number, (name, trial_id, chart, figure) in enumerate(full, start=1):
        say(f"[{number}/{len(full)}] {name}")
        caption = figure.texts[2].get_text().replace("\n", " ")
        without_caption(figure)
        save_both(figure, folder, name, looks)
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        plots.append(Picture(folder, name, describe(chart), caption, width, height, trial_id))
    return tuple(plots)


def _charts(tables: Tables) -> Iterator[tuple[str, str, Chart]]:
    """Yield each figure that the run has loads for: its name, the trial that it is about, if any, and its chart."""
    for name, found in charts().items():
        if not found.needs(tables):
            continue
        if found.subject is Tables:
            yield name, "", found.make(tables)
        elif found.subject is View:
            spikes = survey(tables)
            trial_id = most_pronounced(spikes)
            yield name, trial_id, found.make(view(tables, trial_id, why(spikes, trial_id)))
        elif case := choose(tables):
            yield name, case.trial_id, found.make(case)


def without_caption(figure: Figure) -> None:
    """Take the caption off a figure of `style.canvas`, and the room for it, so that it can stand below as text."""
    caption = figure.texts[2]
    lines = len(caption.get_text().splitlines())
    caption.set_text("")
    width, height = figure.get_size_inches()
    cut_in = lines * style.SMALL_PT * style.LINE / 72
    rest = height - cut_in
    for ax in figure.axes:
        box = ax.get_position()
        ax.set_position((box.x0, (box.y0 * height - cut_in) / rest, box.width, box.height * height / rest))
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, (y * height - cut_in) / rest))
    figure.set_size_inches(width, rest)
