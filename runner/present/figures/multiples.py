"""Small multiples: one panel a server and load, the other servers pale behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions, style
from runner.present.look.palette import Identity, identities
from runner.present.statistics.stats import Floats

FEW = 4
"""Servers whose curves one panel can hold and still be told apart; where there are more, each has a panel."""
COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """One panel: a server under one load (or one family of loads), its sealed trials and its look."""

    server: str
    load: str
    trials: pd.DataFrame
    look: Identity
    load_words: str
    """Names the load where the figure has several; else empty."""


# --- a panel a server, each with axes of its own ----------------------------------------------------------


def panels(tables: Tables, trials: pd.DataFrame, by: str = "load") -> list[Panel]:
    """Return a panel for each value of the column `by` and each server that has sealed trials of it, in that order."""
    sealed = sealed_trials(trials)
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
        style.heading(ax, style.short(panel.server, 24), "\n".join(lines), left_in - 0.1, panel.look.ink)
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


def behind(ax: Axes, curves: Mapping[str, tuple[Floats, Floats]], server: str) -> None:
    """Draw the lines of the servers other than `server`."""
    for other, (x, y) in curves.items():
        if other != server:
            ax.plot(x, y, color=style.BEHIND, lw=0.9, label="_other", zorder=1)


# --- curves of a load: together where they are few, else a panel each with shared axes --------------------


class Part(Protocol):
    """A part of a figure: says how much room it needs, and fills it."""

    def rows(self) -> list[style.Row]:
        """Return the rows of panels that the part needs."""

    def fill(self, panels: Sequence[Sequence[Axes]]) -> None:
        """Draw into them."""


def compose(title: str, caption: str, parts: Sequence[Part], key: str = "") -> Figure:
    """Return a figure of parts below each other."""
    rows = [part.rows() for part in parts]
    figure, panels = style.page(title, caption, [row for own in rows for row in own], key=key)
    start = 0
    for part, own in zip(parts, rows, strict=True):
        part.fill(panels[start : start + len(own)])
        start += len(own)
    return figure


@dataclass(frozen=True)
class Curves:
    """The curves of one load, in one panel where its servers are few, else small multiples with the same limits."""

    name: str
    words: str
    looks: Mapping[str, Identity]
    lines: Mapping[str, tuple[Floats, Floats]]
    """Server -> x and y of its line, in the order of all figures."""
    draw: Callable[[Axes, str], None]
    """Draws a server's curve with all that belongs to it."""
    finish: Callable[[Axes], None]
    """Sets scales, limits and ticks, of all panels alike."""
    xlabel: str
    ylabel: str
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where a curve's label points to, if not to the last point of its line."""
    nothing: str = "There is nothing to show of this load."
    panel_in: float = 2.6
    left_in: float = 0.95
    few: int = FEW

    @property
    def together(self) -> bool:
        """Whether one panel holds all curves."""
        return len(self.lines) <= self.few

    def rows(self) -> list[style.Row]:
        """Return the rows of panels."""
        head_in = 0.36 + bool(self.words) * style.SMALL_PT * style.LINE / 72
        if not self.lines:
            return [style.Row(1, 0.3, head_in, 0.1)]
        if self.together:
            return [style.Row(1, self.panel_in, head_in, 0.72, self.left_in, style.label_room(list(self.lines)))]
        columns = min(COLUMNS, len(self.lines))
        count = -(-len(self.lines) // columns)
        heads_in, axes_in = [head_in + 0.3] + [0.34] * (count - 1), [0.1] * (count - 1) + [0.78]
        return [
            style.Row(columns, 1.15, own_in, axis_in, self.left_in, 0.2, 0.24)
            for own_in, axis_in in zip(heads_in, axes_in, strict=True)
        ]

    def fill(self, panels: Sequence[Sequence[Axes]]) -> None:
        """Draw the curves."""
        if not self.lines:
            self._say_nothing(panels[0][0])
        elif self.together:
            self._fill_one(panels[0][0])
        else:
            self._fill_many(panels)

    def _say_nothing(self, ax: Axes) -> None:
        style.heading(ax, self.name, self.words)
        ax.set_axis_off()
        ax.text(0, 0.5, self.nothing, transform=ax.transAxes)

    def _fill_one(self, ax: Axes) -> None:
        style.heading(ax, self.name, self.words)
        for server in self.lines:
            self.draw(ax, server)
        self.finish(ax)
        ax.set_xlabel(self.xlabel)
        ax.set_ylabel(self.ylabel)
        ends = {server: (float(x[-1]), float(y[-1])) for server, (x, y) in self.lines.items()} | dict(self.ends)
        style.label_ends(ax, [(server, self.looks[server], *end) for server, end in ends.items()])

    def _fill_many(self, panels: Sequence[Sequence[Axes]]) -> None:
        style.heading(panels[0][0], self.name, self.words, above_in=0.38)
        columns, last = len(panels[0]), len(self.lines) - 1
        axes = [ax for row in panels for ax in row]
        for place, (ax, server) in enumerate(zip(axes, self.lines, strict=False)):
            style.heading(ax, style.short(server, 18), "", 0, self.looks[server].ink, 0.05)
            behind(ax, self.lines, server)
            self.draw(ax, server)
            self.finish(ax)
            ax.tick_params(labelbottom=place + columns > last, labelleft=place % columns == 0)
        for ax in axes[last + 1 :]:
            ax.remove()
        _name_axes(panels, self.xlabel, self.ylabel)


def _name_axes(panels: Sequence[Sequence[Axes]], xlabel: str, ylabel: str) -> None:
    """Write the names of shared axes once, in the middle below and on the left."""
    first, last = panels[0][0].get_position(), panels[-1][0].get_position()
    figure = style.figure_of(panels[0][0])
    width, height = figure.get_size_inches()
    right = panels[0][-1].get_position().x1
    below = last.y0 - 0.38 / height
    figure.text((first.x0 + right) / 2, below, xlabel, size=style.TEXT_PT, ha="center", va="top")
    middle = (first.y1 + last.y0) / 2
    figure.text(0.1 / width, middle, ylabel, size=style.TEXT_PT, rotation=90, ha="left", va="center")
