"""How figures look: sizes, panels, labels, and byte-stable files."""

from __future__ import annotations

import contextlib
import functools
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.palette import Identity
from runner.store import replacing

P = ParamSpec("P")

WIDTH_IN = 7.0
TITLE_PT, TEXT_PT, SMALL_PT = 15.0, 12.0, 11.0
LINE = 1.3
"""Line height as a multiple of the font size."""
INK, GREY, PALE = "#222222", "#767676", "#D9D9D9"

RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_PT,
    "axes.labelsize": TEXT_PT,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "figure.dpi": 100,
    "svg.hashsalt": "lab",
    "svg.fonttype": "path",
    "path.simplify": True,
}

# --- figures ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def rc() -> Iterator[None]:
    """Apply the lab's settings over matplotlib's own defaults, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make a figure function draw with the lab's settings."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc():
            return draw(*args, **kwargs)

    return wrapper


def wrap(text: str, size_pt: float, width_in: float) -> list[str]:
    """Break `text` into lines that fit `width_in`; a letter of DejaVu Sans is about 0.57 of its size wide."""
    return textwrap.wrap(text, max(10, int(width_in * 72 / (0.57 * size_pt))), break_on_hyphens=False)


def canvas(
    title: str,
    caption: str,
    *,
    key: str = "",
    rows: int = 1,
    columns: int = 1,
    panel_in: float = 2.6,
    left_in: float = 0.95,
    right_in: float = 0.2,
    heading_in: float = 0.54,
    axis_in: float = 0.68,
    below_in: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of blog width with title, key, caption and a grid of panels, row by row.

    Sizes are inches; the height follows from the content, so text keeps its size with any number of panels. `below_in`
    is room for what only the lowest panels have below them.
    """
    room = WIDTH_IN - 0.2
    heads = wrap(title, TITLE_PT * 1.08, room)
    keys, foot = wrap(key, SMALL_PT, room), wrap(caption, SMALL_PT, room)
    head_in = 0.12 + (len(heads) * TITLE_PT + len(keys) * SMALL_PT) * LINE / 72 + 0.08 * bool(keys)
    foot_in = 0.12 + len(foot) * SMALL_PT * LINE / 72 + below_in
    row_in = heading_in + panel_in + axis_in
    height = head_in + rows * row_in + foot_in
    figure = Figure(figsize=(WIDTH_IN, height))
    figure.text(
        0.1 / WIDTH_IN, 1 - 0.1 / height, "\n".join(heads), size=TITLE_PT, weight="bold", va="top",
        linespacing=LINE - 0.1,
    )  # fmt: skip
    below = 0.18 + len(heads) * TITLE_PT * LINE / 72
    figure.text(0.1 / WIDTH_IN, 1 - below / height, "\n".join(keys), size=SMALL_PT, va="top")
    figure.text(0.1 / WIDTH_IN, 0.08 / height, "\n".join(foot), size=SMALL_PT, va="bottom", color="#444444")
    axes = []
    width = (WIDTH_IN - columns * (left_in + right_in)) / columns
    for row in range(rows):
        bottom = height - head_in - row * row_in - heading_in - panel_in
        for column in range(columns):
            left = column * (left_in + right_in + width) + left_in
            box = (left / WIDTH_IN, bottom / height, width / WIDTH_IN, panel_in / height)
            axes.append(figure.add_axes(box))
    return figure, axes


def heading(ax: Axes, name: str, words: str = "", indent_in: float = WIDTH_IN) -> None:
    """Write a panel's heading above it: `name` bold, `words` below it.

    It starts `indent_in` left of the panel, or at the figure's left margin if that is nearer.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    box, height = ax.get_position(), figure.get_size_inches()[1]
    x, y = max(0.1 / WIDTH_IN, box.x0 - indent_in / WIDTH_IN), box.y1 + 0.1 / height
    if words:
        figure.text(x, y, words, size=SMALL_PT, va="bottom")
        y += (words.count("\n") + 1) * SMALL_PT * LINE / 72 / height
    figure.text(x, y, short(name, 60), size=TEXT_PT, weight="bold", va="bottom")


def no_data(title: str, sentence: str) -> Figure:
    """Return a small figure that says in one sentence why there is nothing to see."""
    figure, (ax,) = canvas(title, "", panel_in=0.5, heading_in=0.05, axis_in=0.05)
    ax.set_axis_off()
    figure.text(0.1 / WIDTH_IN, 0.35, "\n".join(wrap(sentence, TEXT_PT, 6.8)), size=TEXT_PT, color="#444444")
    return figure


def short(name: str, longest: int = 16) -> str:
    """Cut a long name, with an ellipsis."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def label_room(names: Sequence[str]) -> float:
    """Return the inches that the labels beside a panel need."""
    longest = max((len(short(name)) for name in names), default=0)
    return 0.35 + longest * 0.6 * TEXT_PT / 72


def label_ends(ax: Axes, ends: Sequence[tuple[str, Identity, float, float]]) -> None:
    """Write each line's name right of the panel, at the height of its end, without overlap.

    `ends` holds (name, look, x, y) in data units; call it when the axes have their final limits and scales.
    A thin leader joins a label to its line's end.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    panel_pt = ax.get_position().height * figure.get_size_inches()[1] * 72
    to_axes = ax.transData + ax.transAxes.inverted()
    points = [(*to_axes.transform((x, y)), name, look) for name, look, x, y in ends]
    points = sorted((p for p in points if math.isfinite(p[1])), key=lambda point: point[1])
    heights = spread_out([float(point[1]) for point in points], TEXT_PT * 1.22 / panel_pt)
    for (x, y, name, look), height in zip(points, heights, strict=True):
        ax.plot(
            [x, 1.012, 1.035], [y, height, height], transform=ax.transAxes, color=look.color, lw=0.9,
            alpha=0.75, clip_on=False, marker="",
        )  # fmt: skip
        ax.text(1.045, height, short(name), transform=ax.transAxes, color=look.ink, va="center", size=TEXT_PT)


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move sorted heights (0 to 1) apart to at least `gap`, as little as possible and inside 0 to 1.

    Neighbours that are too close form a block that is centred on its members' mean (isotonic regression by
    pooling adjacent violators).
    """
    gap = min(gap, 1.0 / max(1, len(heights) - 1))
    blocks: list[tuple[float, int]] = []  # mean of (height - rank * gap), size
    for rank, height in enumerate(heights):
        value, size = height - rank * gap, 1
        while blocks and blocks[-1][0] >= value:
            before, members = blocks.pop()
            value, size = (before * members + value * size) / (members + size), members + size
        blocks.append((value, size))
    top = 1.0 - (len(heights) - 1) * gap
    lows = [min(max(value, 0.0), max(top, 0.0)) for value, size in blocks for _ in range(size)]
    return [low + rank * gap for rank, low in enumerate(lows)]


def number(value: float) -> str:
    """Print a quantity with about three significant digits: 9,254 or 84.5 or 0.0412; `–` where unknown."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 99.95 or value == 0:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


# --- files ------------------------------------------------------------------------------------------------


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.png (two pixels a CSS pixel at 700 px) and NAME.svg; the same figure gives the same bytes."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    with rc():
        with replacing(png) as temporary:
            figure.savefig(temporary, format="png", dpi=200, metadata={"Software": None})
        with replacing(svg) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    return png, svg
