"""A figure as one value, a tidy frame with its axes, words and looks.

And every figure by the name of its files.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.model import LabError
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions
from runner.present.look.palette import Identity, identities
from runner.present.look.style import number

POINT_COLUMNS = ("panel", "server", "series", "x", "y", "low", "high", "solid")
"""Of a chart's frame: a row is a point. A chart may have more columns."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows: its `label`, and how a sentence names it, with the unit (`inserts
    answered per second`).

    `unit` follows a value in a sentence: `/s`, or ` ms`. The values of an `even` axis stand side by
    side at the same distance, whatever lies between them.
    """

    label: str
    words: str = ""
    unit: str = ""
    log: bool = False
    even: bool = False
    noun: str = ""
    """What its values count, in the singular: `connection`."""


@dataclass(frozen=True)
class Fact:
    """What a sentence says of each server in a panel, in the order of a value of its points.

    NaN is not known.

    `text` makes of its points what is said in place of value and unit. The lowest and highest value
    of the column `ends_of` follow in brackets. `rising` says the smallest value first; `order`
    names the order: `shortest first`.
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
    """Return the fact of the highest or lowest point of each line, and where it is."""

    def text(rows: pd.DataFrame) -> str:
        found = rows.iloc[int(rows["y"].argmin() if lowest else rows["y"].argmax())]
        return f"{number(found['y'])}{y.unit} at {found['x']:,.10g}{x.unit}"

    return Fact(
        noun,
        lambda rows: float(rows["y"].agg("min" if lowest else "max")),
        text=text,
        rising=rising or lowest,
    )


@dataclass(frozen=True, eq=False)
class Facet:
    """The panel of one server under one load, where each server has a panel.

    `notes` are paragraphs below the server's name, which the description has too. `ticks` are
    values across with their labels (none: round numbers), `limits` those of the axis across.
    """

    panel: str
    server: str
    notes: tuple[str, ...] = ()
    ticks: Mapping[float, str] = field(default_factory=dict)
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Chart:
    """One figure: what it shows, and what a reader must know to read it.

    `frame` has the columns `POINT_COLUMNS`, in the order in which it is drawn: panel (a load),
    server, series (a curve of a server). low and high (NaN: none) enclose y; solid is false where a
    point does not rank. NaN in y breaks a line.
    """

    title: str
    frame: pd.DataFrame
    x: Axis = Axis("")
    y: Axis = Axis("")
    looks: Mapping[str, Identity] = field(
        default_factory=dict
    )  # server -> its look, in the order of all figures
    caption: str = ""
    key: str = ""  # says above the panels what marks and lines are
    headings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Panel -> its name and the words below it, where servers share a panel.

    If empty, the panels' names.
    """
    facets: tuple[
        Facet, ...
    ] = ()  # one for each panel and server; empty if the servers of a load share a panel
    dashed: str = ""  # the series that is drawn dashed in ink, such as what was offered
    kind: str = "Line chart"
    statistic: str = "median of the trials"
    """What a point is, for the sentence; more sentences may follow."""
    pale: str = ""  # what pale points mean, as a sentence; empty if none is drawn
    noun: str = "load"  # what a panel is
    facts: tuple[
        Fact, ...
    ] = ()  # what the description says of each panel; empty: the highest point of each line
    nothing: str = "There is nothing to show of this load."
    """Why there is nothing to draw, in a panel or, where the frame is empty, at all; a sentence."""
    draw: Callable[[Chart], Figure] | None = None
    """Draws it, where `drawing.facets` and `drawing.Shared()` do not."""
    describe: Callable[[Chart], str] | None = None  # describes an odd shape

    def __post_init__(self) -> None:
        if not self.headings and not self.facets:
            object.__setattr__(self, "headings", {panel: (panel, "") for panel in self.panels})

    @property
    def panels(self) -> list[str]:
        """The panels, in their order."""
        return list(dict.fromkeys(self.frame["panel"]))

    @property
    def servers(self) -> list[str]:
        """The servers that have a row in any panel, in the order of all figures."""
        return [server for server in self.looks if self.frame["server"].eq(server).any()]

    def of_panel(self, panel: str) -> dict[str, pd.DataFrame]:
        """Return each server's rows of a panel, in the order of the frame, without the dashed
        series.
        """
        rows = self.frame[
            (self.frame["panel"] == panel) & (self.frame["series"] != (self.dashed or None))
        ]
        return {str(server): curve for server, curve in rows.groupby("server", sort=False)}


def empty(title: str, reason: str) -> Chart:
    """Return a chart that says in one sentence why there is nothing to draw."""
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
    """Return a chart about `trials` of a run, failed ones too.

    If none was sealed it says so, calling them `called`.

    `words` begin its caption, `more` is what else a `Chart` has.
    """
    if sealed_trials(trials).empty:
        return empty(title, captions.unsealed(trials, called))
    return Chart(
        title,
        frame,
        x,
        y,
        identities(tables.trials),
        captions.caption(tables, trials, words),
        **more,
    )


@dataclass(frozen=True, eq=False)
class ServerLoad:
    """The sealed trials of one server under one load (or one family of loads)."""

    panel: str
    server: str
    trials: pd.DataFrame


def cells(tables: Tables, trials: pd.DataFrame, by: str = "load") -> list[ServerLoad]:
    """Return a cell for each value of the column `by` and each server that has sealed trials of it,
    in that order.
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
    """Return the rows of a cell's curves (`series`: the name of one, or each point's): columns
    `POINT_COLUMNS` and `more`.

    Without points it is one row of NaN.
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
    """Return the frame of all curves; without any value an empty one."""
    frame = (
        pd.concat(parts, ignore_index=True)
        if (parts := list(parts))
        else pd.DataFrame(columns=POINT_COLUMNS)
    )
    return frame if frame["y"].notna().any() else frame.iloc[:0]


def median_points(
    cell: ServerLoad, column: str, by: str, solid: Callable[[pd.DataFrame], bool]
) -> pd.DataFrame:
    """Return the median of a column with minimum and maximum at each value of the column `by`,
    if any is known.
    """
    by_x = cell.trials.groupby(by)
    found = by_x[column].agg(["median", "min", "max"]).dropna()
    full = [solid(trials) for x, trials in by_x if x in found.index]
    return points(cell, "median", found.index, found["median"], found["min"], found["max"], full)


# --- every figure by its name ---------------------------------------------------------------------

Make = TypeVar("Make", bound=Callable[[Any], Chart])
MODULES = (
    *(
        "figures.closed_loads",
        "figures.ratios",
        "figures.ramp",
        "figures.sweeps",
        "figures.objectives",
    ),
    *("published.figures", "figures.clients", "spikes.figures"),
)
"""Where charts are registered, in the order of a post; other modules of `figures` follow.

They are imported by name when the first chart is asked for, since they import this room.
"""


@dataclass(frozen=True)
class Registered:
    """A figure under its name.

    `notebook` is the stem of the one that shows it; a run that it `needs` has a load of the kind
    that it is about. `table` is the heading in that notebook under which a table has medians of
    what it shows (empty: none), `subject` what it is made from: a run's tables, or one trial.
    """

    name: str
    notebook: str
    make: Callable[[Any], Chart]
    needs: Callable[[Tables], bool]
    table: str
    subject: type

    @property
    def place(self) -> str:
        """A sentence that says where in its notebook a table has the numbers; empty if none has."""
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
    """Register the function that makes a chart; see `Registered`."""

    def register(make: Make) -> Make:
        assert name not in _known, f"two figures are called {name}"
        _known[name] = Registered(name, notebook, make, needs, table, subject)
        return make

    return register


@cache
def _places() -> dict[str, int]:
    """Import every module that registers charts; return the place of each in a post."""
    figures = importlib.import_module("runner.present.figures")
    others = sorted(f"figures.{module.name}" for module in pkgutil.iter_modules(figures.__path__))
    modules = [
        importlib.import_module(f"runner.present.{name}")
        for name in dict.fromkeys((*MODULES, *others))
    ]
    return {module.__name__: place for place, module in enumerate(modules)}


def charts(notebook: str = "") -> dict[str, Registered]:
    """Return every figure by its name, or those of one notebook, in the order of a post."""
    places = _places()
    ordered = sorted(
        _known.values(), key=lambda each: places.get(each.make.__module__, len(places))
    )
    return {each.name: each for each in ordered if notebook in ("", each.notebook)}


def made(name: str, subject: Any) -> Chart:
    """Return the chart of a run, or of one trial, by its name.

    LabError if there is none of that subject.
    """
    found = charts().get(name)
    if found is None or not isinstance(subject, found.subject):
        raise LabError(
            f"There is no figure {name!r} of "
            f"{'a run' if isinstance(subject, Tables) else 'one trial'}."
        )
    return found.make(subject)
