"""What a drawn figure holds: its lines, its words, and whether every text can be read."""

from itertools import combinations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from runner.present.case import Case
from runner.present.chart import describe, draw, made
from runner.present.frames import Tables
from runner.present.spikes.view import View


def picture(name: str, subject: Tables | Case | View) -> Figure:
    """A figure by its name."""
    return draw(made(name, subject))


def text_of(name: str, subject: Tables | Case | View) -> str:
    """Its alternative text."""
    return describe(made(name, subject))


def lines(figure: Figure, panel: int, label: str) -> list[tuple[np.ndarray, np.ndarray]]:
    found = [line for line in figure.axes[panel].lines if line.get_label() == label]
    return [(np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in found]


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


Drawn = list[tuple[Text, tuple[float, float, float, float]]]


def drawn(figure: Figure) -> Drawn:
    """Every text that is drawn, with its box in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = [*figure.texts]
    for ax in figure.axes:
        if ax.axison:
            found += [*ax.texts, ax.xaxis.label, ax.yaxis.label]
            for axis in (ax.xaxis, ax.yaxis):  # ticks beyond the limits exist, but are not drawn
                low, high = sorted(axis.get_view_interval())
                labels = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
                found += [label for label in labels if label.get_visible()]
    boxes = [(text, text.get_window_extent(canvas.get_renderer())) for text in found if text.get_text().strip()]
    return [(text, tuple(float(side) for side in box.extents)) for text, box in boxes]


def texts(figure: Figure, shown: Drawn | None = None) -> list[tuple[str, float, tuple[float, float, float, float]]]:
    """Every text that is drawn: its words, size and box in pixels."""
    found = drawn(figure) if shown is None else shown
    return [(text.get_text(), float(text.get_fontsize()), box) for text, box in found]


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two boxes share more than a rim of 1.5 pixels."""
    return min(a[2], b[2]) - max(a[0], b[0]) > 1.5 and min(a[3], b[3]) - max(a[1], b[1]) > 1.5


def readable(figure: Figure, shown: Drawn | None = None) -> None:
    """Assert that every text (those that were drawn, where they are given) is inside the figure, large, and apart."""
    width, height = figure.get_size_inches() * figure.dpi
    assert width == 700
    found = texts(figure, shown)
    for text, size, (left, bottom, right, top) in found:
        assert size * 390 / 72 / 7 >= 9, f"{text!r} is too small on a phone 390 pixels wide"
        assert left >= 0 and bottom >= 0 and right <= width and top <= height, f"{text!r} is cut"
    for (first, _, a), (second, _, b) in combinations(found, 2):
        assert not overlap(a, b), f"{first!r} covers {second!r}"
