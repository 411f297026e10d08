"""Define how figures look (sizes, panels, round ticks, labels), and write reproducible files."""

import functools
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from runner.model import setting_text
from runner.present.look.palette import WHITE, Identity
from runner.store import replacing

WIDTH_IN = 7.0
PNG_DPI = 200  # two pixels per CSS pixel, if the figure is 700 CSS pixels wide
TALLEST_IN = 16.0  # maximum height: 1,600 pixels if the figure is 700 pixels wide
LEAST_OF_PANEL = 0.4
"""Smallest share to which `page` reduces the height of panels.

The panels of a figure shrink only if the figure would otherwise be higher than `TALLEST_IN`.
"""
TITLE_PT = 15.5
TEXT_PT = 12.5
SMALL_PT = 12.0
"""Smallest font size in figures.

On a phone that is 390 pixels wide, letters of this size are 9.3 pixels high.
"""
LINE = 1.3  # line height as a multiple of the font size
LINE_IN = SMALL_PT * LINE / 72
INK, SOFT, GREY = (
    "#222222",
    "#444444",
    "#767676",
)
"""Three colours: for text, for captions, and for marks that belong to no server, such as axes."""
BEHIND, GRID = (
    "#CFCFCF",
    "#E6E6E6",
)
"""Two colours: for lines that are drawn behind the data, and for the grid.

Lines behind the data are, for example, the lines of the other servers in a server's panel.
"""
HINTING = 1.03
"""Factor by which drawn text may be wider than computed, because letters start on whole pixels."""
STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))  # sets of ticks in a decade, finest first
APART_IN = 0.08  # minimum distance between labels of the x axis, in inches
NO_BREAK = "\u00a0"
UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|CPUs?)(?:\W|$))")

RC: Any = {
    **dict.fromkeys(("font.size", "axes.labelsize"), TEXT_PT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), SMALL_PT),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), WHITE),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow", "path.simplify"), True),
    "font.family": "DejaVu Sans",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.parse_math": False,  # otherwise a dollar sign in a name would start a formula
    "lines.linewidth": 1.8,
    "figure.dpi": 100,
    "svg.hashsalt": "lab",
    "svg.fonttype": "path",
}


def rc() -> AbstractContextManager[None]:
    """Return a context in which matplotlib uses the lab's settings.

    The other settings are matplotlib's defaults. The user's matplotlibrc is ignored.
    """
    return matplotlib.style.context(RC, after_reset=True)


@dataclass(frozen=True)
class PanelRow:
    """A row of panels, with its sizes and margins in inches.

    `panel_in` is the height of the panels, `heading_in` is the space above the panels for
    `heading`, `axis_in` is the space below the panels, and `gap_in` is the space between two
    panels.
    """

    columns: int = 1
    panel_in: float = 2.6
    heading_in: float = 0.58
    axis_in: float = 0.72
    left_in: float = 0.95
    right_in: float = 0.2
    gap_in: float = 0.2


def page(
    title: str,
    caption: str,
    rows: Sequence[PanelRow],
    *,
    key: str = "",
    below_in: float = 0.0,
    may_shrink: bool = True,
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure that is `WIDTH_IN` wide, and the rows of empty panels that it contains.

    The figure has the title and the legend (`key`) at the top, and the caption at the bottom. The
    figure is as high as its content. If it would be higher than `TALLEST_IN`, the height of the
    panels is reduced, unless `may_shrink` is False. `may_shrink` must be False for panels that
    contain rows of text, because the rows would overlap. `below_in` is additional space below the
    lowest panels.
    """
    room = WIDTH_IN - 0.2
    heads = wrap(title, TITLE_PT, room, "bold")
    keys = wrap(key, SMALL_PT, room)
    foot = wrap(caption, SMALL_PT, room)
    head_in = 0.12 + (len(heads) * TITLE_PT + len(keys) * SMALL_PT) * LINE / 72 + 0.08 * bool(keys)
    foot_in = 0.12 + len(foot) * SMALL_PT * LINE / 72 + below_in
    around_in = head_in + sum(row.heading_in + row.axis_in for row in rows) + foot_in
    panels_in = sum(row.panel_in for row in rows)
    shrunk = float(np.clip((TALLEST_IN - around_in) / panels_in, LEAST_OF_PANEL, 1.0))
    shrunk = shrunk if may_shrink else 1.0
    rows = [replace(row, panel_in=row.panel_in * shrunk) for row in rows]
    height = around_in + panels_in * shrunk
    figure = Figure(figsize=(WIDTH_IN, height))
    left = 0.1 / WIDTH_IN
    below = 0.18 + len(heads) * TITLE_PT * LINE / 72
    bold: Any = {"size": TITLE_PT, "weight": "bold", "va": "top", "linespacing": LINE - 0.1}
    figure.text(left, 1 - 0.1 / height, "\n".join(heads), **bold)
    figure.text(left, 1 - below / height, "\n".join(keys), size=SMALL_PT, va="top")
    figure.text(left, 0.08 / height, "\n".join(foot), size=SMALL_PT, va="bottom", color=SOFT)
    panels = []
    top = height - head_in
    for row in rows:
        bottom = top - row.heading_in - row.panel_in
        width = (
            WIDTH_IN - row.left_in - row.right_in - (row.columns - 1) * row.gap_in
        ) / row.columns
        lefts = [row.left_in + column * (width + row.gap_in) for column in range(row.columns)]
        boxes = [
            (left / WIDTH_IN, bottom / height, width / WIDTH_IN, row.panel_in / height)
            for left in lefts
        ]
        panels.append([figure.add_axes(box) for box in boxes])
        top = bottom - row.axis_in
    return figure, panels


def heading(
    ax: Axes,
    name: str,
    words: str = "",
    indent_in: float = WIDTH_IN,
    color: str = INK,
    above_in: float = 0.1,
) -> None:
    """Write a heading above a panel: `name` in bold, and `words` below the name.

    Both `name` and `words` may be empty. The heading is `above_in` above the panel. It begins
    `indent_in` to the left of the panel, but inside the figure's margin.
    """
    figure = figure_of(ax)
    box = ax.get_position()
    height = figure.get_size_inches()[1]
    x = max(0.1 / WIDTH_IN, box.x0 - indent_in / WIDTH_IN)
    y = box.y1 + above_in / height
    if words:
        figure.text(x, y, words, size=SMALL_PT, va="bottom")
        y += (words.count("\n") + 1) * SMALL_PT * LINE / 72 / height
    if name:
        figure.text(x, y, short(name, 60), size=TEXT_PT, weight="bold", va="bottom", color=color)


def short(name: str, longest: int = 16) -> str:
    """Return a name, shortened with an ellipsis if it has more than `longest` characters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def fitted(name: str, size_pt: float, width_in: float) -> str:
    """Shorten a bold name until it is at most `width_in` wide."""
    longest = len(name)
    while longest > 2 and text_in(short(name, longest), size_pt, "bold") > width_in:
        longest -= 1
    return short(name, longest)


@functools.cache
def text_in(text: str, size_pt: float, weight: str = "normal") -> float:
    """Return the width of a line of text in inches."""
    font = FontProperties(family=RC["font.family"], size=size_pt, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def wrap(text: str, size_pt: float, width_in: float, weight: str = "normal") -> list[str]:
    """Wrap each line of `text` to `width_in`, but do not separate a number from its unit."""
    lines: list[str] = []
    for first, *words in (line.split(" ") for line in UNIT.sub(NO_BREAK, text).split("\n")):
        lines.append(first)
        for word in words:
            longer = f"{lines[-1]} {word}"
            fits = text_in(longer, size_pt, weight) * HINTING <= width_in
            lines[-1:] = [longer] if fits else [lines[-1], word]
    return [line.replace(NO_BREAK, " ") for line in lines if line]


def label_room(names: Sequence[str]) -> float:
    """Return the width in inches that `names` need as labels beside a panel."""
    return 0.38 + max((text_in(short(name), TEXT_PT) for name in names), default=0.0)


def name_rows(ax: Axes, servers: Sequence[str], looks: Mapping[str, Identity]) -> None:
    """Divide a panel into a row for each server, with the first server on top.

    The names of the servers are on the left, each in the server's colour.
    """
    ax.set_ylim(len(servers) - 0.4, -0.6)
    ax.set_yticks(range(len(servers)), [short(name) for name in servers])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    for label, server in zip(ax.get_yticklabels(), servers, strict=True):
        label.set(color=looks[server].ink, size=TEXT_PT)


def size_in(ax: Axes) -> tuple[float, float]:
    """Return the width and height of a panel in inches."""
    box, (width, height) = ax.get_position(), figure_of(ax).get_size_inches()
    return float(box.width * width), float(box.height * height)


def figure_of(ax: Axes) -> Figure:
    """Return the figure that a panel is in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def plain(value: float) -> str:
    """Return a value of an axis as text: `0.05` or `12,500`."""
    return setting_text(value)


def even_axis(ax: Axes, axis: str, *, whole: bool = False) -> None:
    """Give a linear axis as many round ticks as fit.

    With `whole`, ticks are only at whole numbers.
    """
    width, height = size_in(ax)
    room = round(width / 0.75) if axis == "x" else round(height / 0.38)
    target = getattr(ax, f"{axis}axis")
    steps = [1, 2, 2.5, 5, 10]
    fewest = 1 if whole else 2
    target.set_major_locator(
        MaxNLocator(max(2, min(7, room)), steps=steps, integer=whole, min_n_ticks=fewest)
    )
    target.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def limit(ax: Axes, axis: str, low: float, high: float, *, log: bool = False) -> None:
    """Set the limits and the scale of an axis, and give the axis as many ticks as fit."""
    ax.set(**{f"{axis}scale": "log" if log else "linear", f"{axis}lim": (low, high)})
    (log_axis if log else even_axis)(ax, axis)


def log_axis(
    ax: Axes,
    axis: str,
    choices: Sequence[Sequence[float]] = (),
    apart_in: float = 0.0,
    fewest: int = 2,
) -> None:
    """Give a logarithmic axis as many round ticks (0.1, 0.2, 0.5, 1, 2, 5 …) as fit.

    Call this function when the limits of the axis are final. `choices` are sets of ticks, from fine
    to coarse. They replace the sets of round ticks. The axis gets the first set that has at least
    `fewest` ticks inside the limits, and whose ticks are at least `apart_in` inches apart. If there
    is no such set, the axis gets the coarsest set with `fewest` ticks. If `apart_in` is 0, ticks
    need only be so far apart that their labels do not overlap.
    """
    low, high = sorted(getattr(ax, f"get_{axis}lim")())
    inch = size_in(ax)[0 if axis == "x" else 1] / math.log10(high / low)

    def fit(ticks: Sequence[float]) -> bool:
        wide_in = max(text_in(plain(tick), SMALL_PT) for tick in ticks) + APART_IN
        need_in = apart_in or (wide_in if axis == "x" else SMALL_PT * 1.5 / 72)
        return all(inch * math.log10(b / a) >= need_in for a, b in pairwise(ticks))

    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    usual = [[step * 10.0**power for power in exponents for step in steps] for steps in STEPS]
    usual += [[10.0**power for power in exponents if power % every == 0] for every in (2, 3)]
    inside = [[tick for tick in each if low <= tick <= high] for each in choices or usual]
    known = [ticks for ticks in inside if len(ticks) >= fewest]
    fix(ax, axis, next(filter(fit, known), known[-1] if known else []))


def ticks_across(ax: Axes, ticks: Sequence[float], label: Callable[[float], str] = plain) -> None:
    """Give the x axis only those `ticks` whose labels do not overlap.

    `ticks` are in rising order. The lowest tick is always kept. A tick is left out if its label
    would overlap the label of the tick that was kept before it. A label may have several lines.
    Call this function when the limits and the scale of the axis are final.
    """
    kept: list[float] = []
    edge = -math.inf
    for tick in ticks:
        x_in = (
            float(ax.transData.transform(np.array([tick, ax.get_ylim()[0]]))[0]) / figure_of(ax).dpi
        )
        half_in = max(text_in(line, SMALL_PT) for line in label(tick).split("\n")) / 2
        if x_in - half_in >= edge + APART_IN:
            kept.append(tick)
            edge = x_in + half_in
    fix(ax, "x", kept, label)


def fix(ax: Axes, axis: str, ticks: Sequence[float], label: Callable[[float], str] = plain) -> None:
    """Give an axis exactly these ticks, with the labels that `label` returns for them."""
    target = getattr(ax, f"{axis}axis")
    target.set_major_locator(FixedLocator(ticks))
    target.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    target.set_minor_locator(NullLocator())


def label_ends(ax: Axes, ends: Sequence[tuple[str, Identity, float, float]]) -> None:
    """Write the name of each line to the right of the panel, near the end of the line.

    The names do not overlap, so a name may be above or below the end of its line. Therefore a thin
    line leads from the end of each line to the name. `ends` contains the name, the look, and the
    end (x and y in data units) of each line. Call this function when limits and scales are final.
    """
    panel_pt = size_in(ax)[1] * 72
    to_axes = ax.transData + ax.transAxes.inverted()
    points = [(*to_axes.transform((x, y)), name, look) for name, look, x, y in ends]
    points = sorted((p for p in points if math.isfinite(p[1])), key=lambda point: point[1])
    heights = spread_out([float(point[1]) for point in points], TEXT_PT * 1.22 / panel_pt)
    for (x, y, name, look), height in zip(points, heights, strict=True):
        leader: Any = {"color": look.color, "lw": 0.9, "clip_on": False, "marker": ""}
        ax.plot([x, 1.012, 1.035], [y, height, height], transform=ax.transAxes, **leader)
        ax.text(
            1.045,
            height,
            short(name),
            transform=ax.transAxes,
            color=look.ink,
            va="center",
            size=TEXT_PT,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Return `heights`, moved so that neighbours are at least `gap` apart.

    The heights are numbers from 0 to 1 in rising order. They are moved as little as possible, and
    stay between 0 and 1. Neighbours that are too close are placed around their mean (isotonic
    regression by pooling adjacent violators).
    """
    # Import the function here, because loading takes half a second, and only drawings need it.
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    gap = min(gap, 1.0 / max(1, len(heights) - 1))
    ranks = gap * np.arange(len(heights))
    moved = isotonic_regression(np.array(heights) - ranks).x if len(heights) else ranks
    return list(np.clip(moved, 0.0, max(0.0, 1.0 - (len(heights) - 1) * gap)) + ranks)


_MARKER = r'\s*<use xlink:href="[^"]*" x="[^"]*" y="[^"]*"'
_MARKERS = re.compile(
    rf'(?P<begin><g(?: clip-path="[^"]*")?)>'
    rf'(?P<markers>{_MARKER}(?P<style> style="[^"]*")/>(?:{_MARKER}(?P=style)/>)+\s*)</g>'
)
"""Pattern of a group of two or more markers that have the same style, in matplotlib's SVG."""


def save(figure: Figure, folder: Path, name: str, provenance: str = "") -> tuple[Path, Path]:
    """Write NAME.png and NAME.svg, and return their paths.

    The PNG has two pixels per CSS pixel if the figure is 700 CSS pixels wide. The same figure
    always gives the same bytes. Both files have `provenance` as their description.
    """
    about = PngInfo()
    if provenance:
        about.add_itxt("Description", provenance)
    png = folder / f"{name}.png"
    svg = folder / f"{name}.svg"
    with rc():
        figure.savefig(pixels := io.BytesIO(), format="rgba", dpi=PNG_DPI)
        data = pixels.getvalue()
        width = int(figure.get_figwidth() * PNG_DPI)
        whole = Image.frombytes("RGBA", (width, len(data) // (4 * width)), data)
        # Use only 256 colours: the file has a third of the bytes, and the difference is invisible.
        picture = whole.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        with replacing(png) as temporary:
            picture.save(temporary, format="PNG", compress_level=6, pnginfo=about)
        metadata = {"Date": None, "Creator": None, "Description": provenance or None}
        figure.savefig(drawn := io.StringIO(), format="svg", metadata=metadata)
        with replacing(svg) as temporary:
            temporary.write_text(share_styles(drawn.getvalue()), encoding="utf-8")
    return png, svg


def share_styles(svg: str) -> str:
    """Return matplotlib's SVG with fewer bytes: equal markers of a group share one style.

    matplotlib writes the style at each marker. In a figure with thousands of dots, these styles are
    half of the bytes. If all markers of a group have the same style, this function moves the style
    from the markers to the group. The picture stays the same, because markers inherit the style of
    their group (CSS Cascading, "Inheritance").
    """
    return _MARKERS.sub(_with_shared_style, svg)


def _with_shared_style(group: re.Match[str]) -> str:
    markers = group["markers"].replace(group["style"], "")
    return f"{group['begin']}{group['style']}>{markers}</g>"
