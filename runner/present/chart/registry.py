"""Every figure by the name of its files: which function makes its chart, and which notebook and runs it is for."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from runner.model import LabError
from runner.present.chart.value import Chart
from runner.present.frames import Tables

Make = TypeVar("Make", bound=Callable[[Any], Chart])
MODULES = (
    *("figures.closed_loads", "figures.ratios", "figures.ramp", "figures.sweeps", "figures.objectives"),
    *("published.figures", "figures.clients", "spikes.figures"),
)
"""Where charts are registered, in the order of a post; other modules of `figures` follow.

They are imported by name when the first chart is asked for, since they import this room.
"""


@dataclass(frozen=True)
class Registered:
    """A figure under its name.

    `notebook` is the stem of the one that shows it; a run that it `needs` has a load of the kind that it is about.
    `table` is the heading in that notebook under which a table has medians of what it shows (empty: none), `subject`
    what it is made from: a run's tables, or one trial.
    """

    name: str
    notebook: str
    make: Callable[[Any], Chart]
    needs: Callable[[Tables], bool]
    table: str
    subject: type

    @property
    def place(self) -> str:
        """A sentence that says where in its notebook a table has the numbers; empty where none has."""
        return f" For a table see “{self.table}”." if self.table else ""


_known: dict[str, Registered] = {}


def chart(
    name: str, *, notebook: str, needs: Callable[[Tables], bool] = lambda _: True, table: str = "",
    subject: type = Tables,
) -> Callable[[Make], Make]:  # fmt: skip
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
    modules = [importlib.import_module(f"runner.present.{name}") for name in dict.fromkeys((*MODULES, *others))]
    return {module.__name__: place for place, module in enumerate(modules)}


def charts(notebook: str = "") -> dict[str, Registered]:
    """Return every figure by its name, or those of one notebook, in the order of a post."""
    places = _places()
    ordered = sorted(_known.values(), key=lambda each: places.get(each.make.__module__, len(places)))
    return {each.name: each for each in ordered if notebook in ("", each.notebook)}


def made(name: str, subject: Any) -> Chart:
    """Return the chart of a run, or of one trial, by its name; LabError where there is none of that subject."""
    found = charts().get(name)
    if found is None or not isinstance(subject, found.subject):
        raise LabError(f"There is no figure {name!r} of {'a run' if isinstance(subject, Tables) else 'one trial'}.")
    return found.make(subject)
