"""A figure as one value: a tidy frame with its axes, words and looks. It is drawn, described and printed from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.present.frames import Tables, sealed_trials
from runner.present.look.palette import Identity, identities
from runner.present.look.style import number
from runner.present.statistics.stats import spread

COLUMNS = ("panel", "server", "series", "x", "y", "low", "high", "solid")
"""Of a chart's frame: a row is a point. A chart may have more columns."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows: its label, and how a sentence names it and its values."""

    label: str
    """Written at the axis."""
    words: str = ""
    """In a sentence, with the unit: `inserts answered per second`."""
    unit: str = ""
    """Follows a value in a sentence: `/s`, or ` ms`."""
    log: bool = False
    even: bool = False
    """Whether the values stand side by side at the same distance, whatever lies between them."""

    def say(self, value: float) -> str:
        """Return a value with its unit, rounded: `4,210/s`."""
        return f"{number(value)}{self.unit}"

    def place(self, value: float) -> str:
        """Return where on the axis a point is: `at 17.5 s`."""
        return f"at {value:,.10g}{self.unit}"


@dataclass(frozen=True)
class Extreme:
    """Which point of a line a sentence names: the highest or the lowest, and which server first."""

    noun: str = "highest point"
    highest: bool = True
    rising: bool = False
    """Whether the server with the smallest extreme comes first."""
    first: str = ""
    """Such as `shortest`; empty: lowest or highest."""

    @property
    def order(self) -> str:
        """Which server comes first: `highest first`."""
        return f"{self.first or ('lowest' if self.rising else 'highest')} first"


@dataclass(frozen=True, eq=False)
class Facet:
    """The panel of one server under one load, where each server has a panel."""

    panel: str
    server: str
    notes: tuple[str, ...] = ()
    """Paragraphs below the server's name."""
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Value across -> its label; round numbers where it is empty."""
    limits: tuple[float, float] | None = None
    """Of the axis across."""


@dataclass(frozen=True)
class FacetSizes:
    """Sizes of a figure with a panel for each server and axes of its own, in inches."""

    alone: int = 2
    """Up to how many panels stand below each other; more stand in two columns."""
    panel_in: tuple[float, float] = (1.8, 1.35)
    """Height of a panel in one column, and in two."""
    left_in: float = 0.95
    right_in: tuple[float, float] = (0.18, 0.18)
    """In one column, and in two."""
    axis_in: float = 0.56
    below_in: float = 0.26


@dataclass(frozen=True)
class Shared:
    """Sizes, in inches, of a figure whose servers share the panel of a load where they are few."""

    few: int = 4
    """Servers whose curves one panel can hold so that they can be kept apart; of more each has a small panel."""
    panel_in: float = 2.6
    left_in: float = 0.95
    nothing: str = "There is nothing to show of this load."
    """Stands in the panel of a load without points."""
    nudge: float = 1.0
    """Factor by which the points of the next server lie farther across in a panel, so that bars do not hide others."""
    alone: bool = False
    """Whether each server has a small panel even so, without the others behind it, and where it has no points."""
    fewest: int = 0
    """Places across that make a curve: a load with fewer has a panel for each, and in it a row for each server."""


@dataclass(frozen=True, eq=False)
class Chart:
    """One figure: what it shows, and what a reader must know to read it."""

    title: str
    frame: pd.DataFrame
    """Columns `COLUMNS`, in the order in which it is drawn: panel (a load), server, series (a curve of a server).

    low and high (NaN: none) enclose y; solid is false where a point does not rank. NaN in y breaks a line.
    """
    x: Axis = Axis("")
    """Across."""
    y: Axis = Axis("")
    looks: Mapping[str, Identity] = field(default_factory=dict)
    """Server -> its look, in the order of all figures."""
    caption: str = ""
    key: str = ""
    """Says above the panels what marks and lines are."""
    facets: tuple[Facet, ...] = ()
    """One for each panel and server; empty where the servers of a load share a panel."""
    headings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Panel -> its name and the words below it, where the servers of a load share a panel."""
    sizes: FacetSizes = FacetSizes()
    shared: Shared = Shared()
    xlabels: Mapping[str, str] = field(default_factory=dict)
    """Panel -> the label of its axis across, where panels differ in it."""
    mark: Callable[[Axes, pd.DataFrame, Identity, str], None] | None = None
    """Draws the rows of a server in its look, with its name as label; None: `drawing.band`."""
    finish: Callable[[Axes, Chart, str], None] | None = None
    """Sets scales, limits and ticks of a shared panel; None: `drawing.finish`."""
    spare: tuple[float, float] = (1.08, 1.3)
    """Factor by which the axis up reaches beyond the values, and where it is logarithmic."""
    dashed: str = ""
    """The series that is drawn dashed in ink, such as what was offered."""
    statistic: str = "median of the trials"
    """What a point is, for the sentence."""
    setting: str = ""
    """Follows the axes in the sentence: `while the rate offered rises in steps`."""
    hollow: str = ""
    """What hollow points mean, as a sentence; empty where none is drawn."""
    noun: str = "load"
    """What a panel is."""
    extreme: Extreme = Extreme()
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Panel -> what else the description says of it: a clause that begins with `; `."""
    about: str = ""
    """What the figure is about, for the sentence where it has no data."""
    nothing: str = ""
    """Why there is nothing to draw, as a sentence."""
    draw: Callable[[Chart], Figure] | None = None
    """Draws an odd shape."""
    describe: Callable[[Chart], str] | None = None
    """Describes an odd shape."""

    @property
    def panels(self) -> list[str]:
        """The panels, in their order."""
        return list(dict.fromkeys(self.frame["panel"]))

    @property
    def servers(self) -> list[str]:
        """The servers that have a point in any panel, in the order of all figures."""
        present = set(self.frame["server"])
        return [server for server in self.looks if server in present]

    def of_panel(self, panel: str) -> dict[str, pd.DataFrame]:
        """Return each server's rows of a panel, in the order of the frame, without the dashed series."""
        own = self.frame[(self.frame["panel"] == panel) & (self.frame["series"] != (self.dashed or None))]
        return {str(server): rows for server, rows in own.groupby("server", sort=False)}

    def series(self, panel: str, server: str, series: str) -> pd.DataFrame:
        """Return one curve's rows."""
        frame = self.frame
        return frame[(frame["panel"] == panel) & (frame["server"] == server) & (frame["series"] == series)]


def empty(title: str, about: str, reason: str) -> Chart:
    """Return a chart that says in one sentence why there is nothing to draw."""
    return Chart(title, pd.DataFrame(columns=COLUMNS), about=about, nothing=reason)


# --- a frame ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ServerLoad:
    """The sealed trials of one server under one load (or one family of loads)."""

    panel: str
    server: str
    trials: pd.DataFrame


def cells(tables: Tables, trials: pd.DataFrame, by: str = "load") -> list[ServerLoad]:
    """Return a cell for each value of the column `by` and each server that has sealed trials of it, in that order."""
    sealed = sealed_trials(trials)
    groups = dict(list(sealed.groupby([by, "server"], sort=False)))
    every = product(dict.fromkeys(sealed[by]), identities(tables.trials))
    return [ServerLoad(str(place[0]), place[1], groups[place]) for place in every if place in groups]


def points(
    cell: ServerLoad,
    series: str,
    x: ArrayLike,
    y: ArrayLike,
    low: ArrayLike = np.nan,
    high: ArrayLike = np.nan,
    solid: ArrayLike = True,
    **more: Any,
) -> pd.DataFrame:
    """Return the rows of one curve of a cell: columns `COLUMNS` and those of `more`; without points one row of NaN."""
    if not np.size(x):
        x, y = [np.nan], [np.nan]
        low = high = np.nan
        solid, more = True, dict.fromkeys(more, np.nan)
    values = {"x": x, "y": y, "low": low, "high": high, "solid": solid, **more}
    rows = pd.DataFrame({name: np.asarray(value) for name, value in values.items() if np.ndim(value)})
    known = {name: value for name, value in values.items() if not np.ndim(value)}
    rows = rows.assign(panel=cell.panel, server=cell.server, series=series, **known)
    return rows[[*COLUMNS, *more]]


def tidy(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the frame of all curves; without any value an empty one."""
    frame = pd.concat(parts, ignore_index=True) if (parts := list(parts)) else pd.DataFrame(columns=COLUMNS)
    return frame if frame["y"].notna().any() else frame.iloc[:0]


def median_points(cell: ServerLoad, column: str, by: str, solid: Callable[[pd.DataFrame], bool]) -> pd.DataFrame:
    """Return the median of a column with minimum and maximum at each value of the column `by`, where any is known."""
    found = [(float(str(x)), spread(own[column]), solid(own)) for x, own in cell.trials.groupby(by)]
    known = [(x, each.median, each.low, each.high, full) for x, each, full in found if each.n]
    x, y, low, high, full = (np.array([point[place] for point in known]) for place in range(5))
    return points(cell, "median", x, y, low, high, full)
