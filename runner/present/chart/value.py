"""Define `Chart`, which contains the data, the axes, the words and the colours of a figure.

The data are a frame with a row for each point. The module also contains the registry, in which each
figure can be found by its name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from runner.model import LabError, setting_text
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.look.palette import Identity, identities
from runner.present.statistics.inference import FEWEST_TRIALS, mean_of

if TYPE_CHECKING:
    from matplotlib.figure import (
        Figure,
    )  # this import takes almost a second, and only drawings need it

POINT_COLUMNS = ("panel", "server", "series", "x", "y", "low", "high", "solid")
"""Columns that every chart's frame has. Each row of the frame is a point.

A frame may have further columns.
"""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    `words` name the axis in a sentence (`inserts answered per second`). `unit` follows a value in a
    sentence: `/s`, or ` ms`. If the axis is `even`, neighbouring values are drawn at equal
    distances, even if the differences between the values are unequal.
    """

    label: str
    words: str = ""
    unit: str = ""
    log: bool = False
    even: bool = False
    noun: str = ""
    """Noun in the singular for what the axis counts: `connection`."""


@dataclass(frozen=True)
class Fact:
    """A value that each server in a panel has, such as the median, and words about this value.

    - `noun` names the value in a clause about the servers' values.
    - `value` computes the value from a server's points. NaN means that the value is unknown.
    - `text`, if it is given, makes the words that replace the value and its `unit`.
    - `ends_of` names a column whose lowest and highest value follow in brackets. If `ends_of` is
      empty, no brackets follow.
    - `rising` is True if the server with the smallest value comes first, and False if the server
      with the largest value comes first.
    - `order` names this order in the clause: `shortest first`.
    """

    noun: str
    value: Callable[[pd.DataFrame], float]
    unit: str = ""
    text: Callable[[pd.DataFrame], str] | None = None
    ends_of: str = ""
    rising: bool = False
    order: str = ""


def extreme(
    x: Axis, y: Axis, noun: str = "highest point", *, lowest: bool = False, rising: bool = False
) -> Fact:
    """Return a fact that gives the y and the x value of the highest point of each server's line.

    With `lowest`, the fact is about the lowest point instead of the highest point. With `lowest` or
    `rising`, the server with the smallest y value comes first. Without both, the server with the
    largest y value comes first.
    """

    def text(rows: pd.DataFrame) -> str:
        found = rows.iloc[int(rows["y"].argmin() if lowest else rows["y"].argmax())]
        return f"{number(found['y'])}{y.unit} at {setting_text(found['x'])}{x.unit}"

    return Fact(
        noun,
        lambda rows: float(rows["y"].agg("min" if lowest else "max")),
        text=text,
        rising=rising or lowest,
    )


@dataclass(frozen=True, eq=False)
class Facet:
    """The panel of one server under one load, in a chart in which each server has its own panel.

    `notes` are paragraphs below the server's name. They are also part of the chart's description.
    `ticks` maps x values to their labels. If `ticks` is empty, the ticks are at round numbers.
    `limits` are the limits of the x axis.
    """

    panel: str
    server: str
    notes: tuple[str, ...] = ()
    ticks: Mapping[float, str] = field(default_factory=dict)
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Chart:
    """One figure, with everything that a reader needs to understand it.

    `frame` has the columns `POINT_COLUMNS`, and its rows are in the order of drawing. A panel is
    usually a load, and a series is a curve of a server. The columns low and high are the ends of
    the range around y, or NaN. The column solid is False if the server is not ranked by this point.
    A line is interrupted where y is NaN.
    """

    title: str
    frame: pd.DataFrame
    x: Axis = Axis("")
    y: Axis = Axis("")
    looks: Mapping[str, Identity] = field(default_factory=dict)
    """The look of each server, by server. All figures of a run have the same order of servers."""
    caption: str = ""
    key: str = ""  # legend above the panels, with the meaning of marks and lines
    headings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The heading of each panel and the words below the heading, by panel.

    Headings are used in charts in which the servers of a load share a panel. If neither headings
    nor `facets` are given, the heading of each panel is the panel's name.
    """
    facets: tuple[Facet, ...] = ()
    """The facets, one for each panel and server.

    The tuple is empty if the servers of a load share a panel.
    """
    dashed: str = ""  # the series drawn as a dashed black line, such as the offered rate
    kind: str = "Line chart"
    statistic: str = "median of the trials"
    """Words that say in the chart's description what a point shows.

    This text may contain further sentences.
    """
    pale: str = ""  # a sentence on the meaning of pale points, or empty if no point can be pale
    noun: str = "load"  # a noun in the singular that says what a panel represents
    facts: tuple[Fact, ...] = ()
    """Facts about each panel that the chart's description gives.

    If the tuple is empty, the description gives the highest point of each line.
    """
    nothing: str = "There is nothing to show of this load."
    """Sentence that replaces an empty panel, or the whole figure if the chart has no data."""
    draw: Callable[[Chart], Figure] | None = None
    """Function that draws the chart.

    If it is None, a chart with facets is drawn by `drawing.facets`, and a chart without facets is
    drawn by `drawing.Shared()`.
    """
    describe: Callable[[Chart], str] | None = None
    """Function that describes the chart. If it is None, `sentences.describe` does so."""

    def __post_init__(self) -> None:
        if not self.headings and not self.facets:
            object.__setattr__(self, "headings", {panel: (panel, "") for panel in self.panels})

    @property
    def panels(self) -> list[str]:
        """The panels in the order of the frame."""
        return list(dict.fromkeys(self.frame["panel"]))

    @property
    def servers(self) -> list[str]:
        """The servers that have a row in any panel, in the order that all figures share."""
        return [server for server in self.looks if self.frame["server"].eq(server).any()]

    def of_panel(self, panel: str) -> dict[str, pd.DataFrame]:
        """Return each server's rows of a panel, in the order of the frame.

        Rows of the dashed series are left out.
        """
        rows = self.frame[
            (self.frame["panel"] == panel) & (self.frame["series"] != (self.dashed or None))
        ]
        return {str(server): curve for server, curve in rows.groupby("server", sort=False)}


def empty(title: str, reason: str) -> Chart:
    """Return a chart without data, with the reason in one sentence."""
    return Chart(title, pd.DataFrame(columns=POINT_COLUMNS), nothing=reason)


def of_trials(
    tables: Tables,
    trials: pd.DataFrame,
    title: str,
    frame: pd.DataFrame,
    x: Axis,
    y: Axis,
    words: str,
    called: str = "trial",
    **more: Any,
) -> Chart:
    """Return a chart of the points in `frame`, which were made from `trials` of a run.

    `trials` include failed trials. If no trial is sealed, the chart has no points, but a sentence
    that says that no trial is sealed. `called` is the word for a trial in this sentence. The
    caption begins with `words`. `more` are further fields of `Chart`.
    """
    if sealed_trials(trials).empty:
        return empty(title, captions.unsealed(trials, called))
    return Chart(
        title,
        frame,
        x,
        y,
        identities(tables.trials),
        captions.caption(tables, words),
        **more,
    )


@dataclass(frozen=True, eq=False)
class ServerLoad:
    """The sealed trials of one server in one panel, which shows a load or several related loads."""

    panel: str
    server: str
    trials: pd.DataFrame


def cells(tables: Tables, trials: pd.DataFrame, by: str = "load") -> list[ServerLoad]:
    """Return a ServerLoad for each value of the column `by` and each server with sealed trials.

    The values of `by` are in the order of the trials. For each value, the servers are in the order
    that all figures share.
    """
    sealed = sealed_trials(trials)
    groups = dict(list(sealed.groupby([by, "server"], sort=False)))
    every = product(dict.fromkeys(sealed[by]), identities(tables.trials))
    return [
        ServerLoad(str(place[0]), place[1], groups[place]) for place in every if place in groups
    ]


def points(
    cell: ServerLoad,
    series: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    low: ArrayLike = np.nan,
    high: ArrayLike = np.nan,
    solid: ArrayLike = True,
    **more: Any,
) -> pd.DataFrame:
    """Return the rows of a cell's curves, with the columns `POINT_COLUMNS` and `more`.

    `series` is the name of the curve, or an array with a name for each point. If there are no
    points, return one row with NaN as its values.
    """
    if not np.size(x):
        x = [np.nan]
        y = [np.nan]
        low = np.nan
        high = np.nan
        solid = True
        more = dict.fromkeys(more, np.nan)
    values = {"series": series, "x": x, "y": y, "low": low, "high": high, "solid": solid, **more}
    columns = {
        name: np.asarray(value) if np.ndim(value) else value for name, value in values.items()
    }
    return pd.DataFrame({"panel": cell.panel, "server": cell.server, **columns})


def tidy(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all curves in one frame. If every y is NaN, the frame has no rows."""
    frame = (
        pd.concat(parts, ignore_index=True)
        if (parts := list(parts))
        else pd.DataFrame(columns=POINT_COLUMNS)
    )
    return frame if frame["y"].notna().any() else frame.iloc[:0]


MEAN_AND_BAR = (
    "Bars are 95 % intervals of the means, or minimum to maximum of fewer than "
    f"{FEWEST_TRIALS} trials."
)
"""Sentence for the caption of a chart whose points come from `mean_points`."""


def mean_points(
    cell: ServerLoad, column: str, by: str, solid: Callable[[pd.DataFrame], bool]
) -> pd.DataFrame:
    """Return a point for each value of the column `by`, with the mean of the column `column`.

    The range of the point is the interval of the mean (`mean_of`). A value of `by` gets a point
    only if at least one of its trials has a positive number in `column`. The function `solid` is
    called with the trials of one point, and returns True if this point is drawn solid.
    """
    known = cell.trials[cell.trials[column] > 0]
    by_x = {float(str(x)): cell.trials[cell.trials[by] == x] for x in sorted(set(known[by]))}
    means = [mean_of(trials[column]) for trials in by_x.values()]
    return points(
        cell,
        "mean",
        list(by_x),
        [mean.value for mean in means],
        [mean.low for mean in means],
        [mean.high for mean in means],
        [solid(trials) for trials in by_x.values()],
    )


# --- the registry, in which each figure is found by its name --------------------------------------

Make = TypeVar("Make", bound=Callable[[Any], Chart])
MODULES = (
    *(
        "figures.closed_loads",
        "figures.connections",
        "figures.cpu_over_time",
        "figures.cpu_peaks",
        "figures.ratios",
        "figures.ramp",
        "figures.pools",
        "figures.sweeps",
        "figures.objectives",
    ),
    *("published.figures", "figures.clients", "why.figures", "spikes.figures"),
    *("spikes.side_by_side", "spikes.ran_figure"),
)
"""Modules that register charts, in the order in which pages show the charts.

The other modules of `figures` follow in alphabetical order. All modules that register charts import
this module. Therefore this module imports them only when the first chart is requested.
"""


@dataclass(frozen=True)
class Registered:
    """A figure that is registered under a name.

    - `notebook` is the file name, without its extension, of the notebook that shows the figure.
    - `make` makes the chart. Its argument is the tables of a run, or one trial. `subject` is the
      type of this argument.
    - `needs` returns True for a run that has the kind of load that the figure shows.
    - `table` is the heading of the notebook's table that contains the same numbers as the figure.
      It is empty if the notebook has no such table.
    """

    name: str
    notebook: str
    make: Callable[[Any], Chart]
    needs: Callable[[Tables], bool]
    table: str
    subject: type

    @property
    def place(self) -> str:
        """A sentence that names the table with the figure's numbers.

        The text is empty if no table contains these numbers.
        """
        return f" For a table see “{self.table}”." if self.table else ""


_known: dict[str, Registered] = {}


def chart(
    name: str,
    *,
    notebook: str,
    needs: Callable[[Tables], bool] = lambda _: True,
    table: str = "",
    subject: type = Tables,
) -> Callable[[Make], Make]:
    """Return a decorator that registers the function that makes a chart (see `Registered`)."""

    def register(make: Make) -> Make:
        assert name not in _known, f"two figures are called {name}"
        _known[name] = Registered(name, notebook, make, needs, table, subject)
        return make

    return register


@cache
def _places() -> dict[str, int]:
    """Import the modules that register charts, and return each module's position by its name.

    The positions are in the order in which pages show the charts of the modules.
    """
    figures = importlib.import_module("runner.present.figures")
    others = sorted(f"figures.{module.name}" for module in pkgutil.iter_modules(figures.__path__))
    modules = [
        importlib.import_module(f"runner.present.{name}")
        for name in dict.fromkeys((*MODULES, *others))
    ]
    return {module.__name__: place for place, module in enumerate(modules)}


def charts(notebook: str = "") -> dict[str, Registered]:
    """Return all figures, or the figures of one notebook, by name and in the order of pages."""
    places = _places()
    ordered = sorted(
        _known.values(), key=lambda each: places.get(each.make.__module__, len(places))
    )
    return {each.name: each for each in ordered if notebook in ("", each.notebook)}


def made(name: str, subject: Any) -> Chart:
    """Return the named chart of a run, or of one trial.

    `subject` is the data from which the chart is made: the tables of a run, or one trial. Raise
    LabError if no chart for this type of subject has the name.
    """
    found = charts().get(name)
    if found is None or not isinstance(subject, found.subject):
        raise LabError(
            f"There is no figure {name!r} for "
            f"{'a run' if isinstance(subject, Tables) else 'one trial'}."
        )
    return found.make(subject)
