"""Small multiples: one panel a server and load, the other servers pale behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present import captions, style
from runner.present.frames import Tables
from runner.present.palette import Identity, identities

BEHIND = "#D4D4D4"
"""Colour of the other servers' lines behind a panel's own."""


@dataclass(frozen=True)
class Panel:
    """One panel: a server under one load (or one family of loads), its sealed trials and its look."""

    server: str
    load: str
    trials: pd.DataFrame
    look: Identity
    load_words: str
    """Names the load where the figure has several; else empty."""


def panels(tables: Tables, trials: pd.DataFrame, by: str = "load") -> list[Panel]:
    """Return a panel for each value of the column `by` and each server that has sealed trials of it, in that order."""
    sealed = trials[trials["status"] == "sealed"]
    looks, loads = identities(tables.trials), list(dict.fromkeys(sealed[by]))
    found = []
    for load in loads:
        of_load = sealed[sealed[by] == load]
        for server, look in looks.items():
            own = of_load[of_load["server"] == server]
            if len(own):
                found.append(Panel(server, str(load), own, look, str(load) if len(loads) > 1 else ""))
    return found


def sheet(
    title: str,
    caption: str,
    key: str,
    shown: Sequence[Panel],
    left_in: float,
    axis_in: float,
    notes: Sequence[str] = (),
) -> tuple[Figure, list[Axes]]:
    """Return a figure with an empty axes for each panel, two beside each other where there are more than two.

    Above each panel stand the server's name, its load where there are several, what limited it, and the panel's note.
    """
    columns = 1 if len(shown) <= 2 else 2
    room_in = style.WIDTH_IN / columns - 0.2
    words = [_words(panel, note, room_in) for panel, note in zip(shown, notes or [""] * len(shown), strict=True)]
    most = max(len(lines) for lines in words)
    figure, axes = style.canvas(
        title,
        caption,
        key=key,
        rows=-(-len(shown) // columns),
        columns=columns,
        panel_in=1.35 if columns == 2 else 1.8,
        heading_in=0.36 + most * style.SMALL_PT * style.LINE / 72,
        left_in=left_in,
        right_in=0.18,
        axis_in=axis_in,
        below_in=0.26,
    )
    for ax in axes[len(shown) :]:
        ax.remove()
    for ax, panel, lines in zip(axes, shown, words, strict=False):
        style.heading(ax, style.short(panel.server, 24), "\n".join(lines), left_in - 0.1)
    return figure, axes[: len(shown)]


def _words(panel: Panel, note: str, room_in: float) -> list[str]:
    limit = f"limit: {captions.limit_words(panel.trials)}"
    parts = [panel.load_words, limit if not note else f"{limit}; {note}"]
    return [line for part in parts if part for line in style.wrap(part, style.SMALL_PT, room_in)]


def lowest(axes: Sequence[Axes]) -> list[Axes]:
    """Return the lowest panel of each column: where an axis is named once for all above."""
    by_column: dict[float, Axes] = {}
    for ax in axes:
        by_column[round(ax.get_position().x0, 3)] = ax
    return list(by_column.values())
