"""The ticks of an axis: as many as can be read, on values that people count in."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from runner.present.look import style

STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))  # of a decade, from many to few
APART_IN = 0.08  # least room between two labels across


def plain(value: float) -> str:
    """Print a value of an axis: 0.05 or 12,500."""
    return f"{value:,.10g}"


def even_axis(ax: Axes, axis: str, *, whole: bool = False) -> None:
    """Give a linear axis as many round ticks as have room, on whole numbers alone if `whole`."""
    width, height = style.size_in(ax)
    room = round(width / 0.75) if axis == "x" else round(height / 0.38)
    target = getattr(ax, f"{axis}axis")
    steps, fewest = [1, 2, 2.5, 5, 10], 1 if whole else 2
    target.set_major_locator(MaxNLocator(max(2, min(7, room)), steps=steps, integer=whole, min_n_ticks=fewest))
    target.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def limit(ax: Axes, axis: str, low: float, high: float, *, log: bool = False) -> None:
    """Set the limits of an axis, its scale, and as many ticks as have room."""
    ax.set(**{f"{axis}scale": "log" if log else "linear", f"{axis}lim": (low, high)})
    (log_axis if log else even_axis)(ax, axis)


def log_axis(
    ax: Axes, axis: str, choices: Sequence[Sequence[float]] = (), apart_in: float = 0.0, fewest: int = 2
) -> None:
    """Give a logarithmic axis that has its final limits as many ticks 0.1, 0.2, 0.5, 1, 2, 5 … as have room.

    Other `choices` go from fine to coarse. `fewest` ticks must be inside, and `apart_in` (0: what their labels need).
    """
    low, high = sorted(getattr(ax, f"get_{axis}lim")())
    inch = style.size_in(ax)[0 if axis == "x" else 1] / math.log10(high / low)

    def fit(ticks: Sequence[float]) -> bool:
        wide_in = max(style.text_in(plain(tick), style.SMALL_PT) for tick in ticks) + APART_IN
        need_in = apart_in or (wide_in if axis == "x" else style.SMALL_PT * 1.5 / 72)
        return all(inch * math.log10(b / a) >= need_in for a, b in pairwise(ticks))

    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    usual = [[step * 10.0**power for power in exponents for step in steps] for steps in STEPS]
    usual += [[10.0**power for power in exponents if power % every == 0] for every in (2, 3)]
    inside = [[tick for tick in each if low <= tick <= high] for each in choices or usual]
    known = [ticks for ticks in inside if len(ticks) >= fewest]
    fix(ax, axis, next(filter(fit, known), known[-1] if known else []))


def ticks_across(ax: Axes, ticks: Sequence[float], label: Callable[[float], str] = plain) -> None:
    """Label those of the rising `ticks` for whose labels there is room, the lowest first.

    Call it when the axes have their final limits and scales. A label may have several lines.
    """
    kept: list[float] = []
    edge = -math.inf
    for tick in ticks:
        x_in = float(ax.transData.transform(np.array([tick, ax.get_ylim()[0]]))[0]) / style.figure_of(ax).dpi
        half_in = max(style.text_in(line, style.SMALL_PT) for line in label(tick).split("\n")) / 2
        if x_in - half_in >= edge + APART_IN:
            kept.append(tick)
            edge = x_in + half_in
    fix(ax, "x", kept, label)


def fix(ax: Axes, axis: str, ticks: Sequence[float], label: Callable[[float], str] = plain) -> None:
    """Give an axis these ticks and no other."""
    target = getattr(ax, f"{axis}axis")
    target.set_major_locator(FixedLocator(ticks))
    target.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    target.set_minor_locator(NullLocator())
