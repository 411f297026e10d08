"""Every figure that a run has loads for, as files for a post: light and dark, its caption as text beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from runner.present.alt import describe
from runner.present.case import choose
from runner.present.frames import Tables
from runner.present.look import style
from runner.present.look.content import Picture
from runner.present.look.palette import identities
from runner.present.look.themes import save_both
from runner.present.notebook.gallery import OF_A_RUN, PUBLISHED_FIGURES, SPIKE_FIGURE, VERDICT_FIGURES, has_loads
from runner.present.spikes import figures as spike_figures
from runner.present.spikes.survey import most_pronounced, survey, why
from runner.present.spikes.view import view


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn and described; `trial_id` where it is about one trial."""

    name: str
    figure: Callable[[], Figure]
    alt: Callable[[], str]
    trial_id: str = ""


def draw(tables: Tables, folder: Path, say: Callable[[str], None]) -> tuple[Picture, ...]:
    """Draw the run's figures into `folder` and return what stands beside them; `say` hears of each as it is written.

    A figure that could only say why there is nothing to see is left out.
    """
    looks = list(identities(tables.trials).values())
    drawn = [(drawing, drawing.figure()) for drawing in _of_a_run(tables)]
    full = [(drawing, figure) for drawing, figure in drawn if any(ax.axison for ax in figure.axes)]
    plots = []
    for number, (drawing, figure) in enumerate(full, start=1):
        say(f"[{number}/{len(full)}] {drawing.name}")
        caption = figure.texts[2].get_text().replace("\n", " ")
        without_caption(figure)
        save_both(figure, folder, drawing.name, looks)
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        plots.append(Picture(folder, drawing.name, drawing.alt(), caption, width, height, drawing.trial_id))
    return tuple(plots)


def _of_a_run(tables: Tables) -> Iterator[Drawing]:
    for name, of_run in (OF_A_RUN | PUBLISHED_FIGURES).items():
        if has_loads(tables, name):
            yield Drawing(name, partial(of_run, tables), partial(describe, name, tables))
    case = choose(tables)
    for name, of_trial in VERDICT_FIGURES.items():
        if case is not None and has_loads(tables, name):
            yield Drawing(name, partial(of_trial, case), partial(describe, name, case), case.trial_id)
    if has_loads(tables, SPIKE_FIGURE):
        found = survey(tables)
        trial_id = most_pronounced(found)
        seen = view(tables, trial_id, why(found, trial_id))
        yield Drawing(
            SPIKE_FIGURE, partial(spike_figures.timeline, seen), partial(spike_figures.describe, seen), trial_id
        )


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
