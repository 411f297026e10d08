"""Every figure by the name of its files: which function makes its chart, and which notebook and runs it is for."""

from __future__ import annotations

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
    *("figures.closed_loads", "figures.ramp", "figures.sweeps", "figures.objectives"),
    *("published.figures", "figures.clients", "spikes.figures"),
)
"""Where charts are registered, in the order of a post; other modules of `figures` follow.

They are imported by name when the first chart is asked for, since they import this room.
"""
NOTEBOOKS = ("report", "postgres", "rates", "published", "verdict", "cpu_spikes")
"""The order of a post; the charts of other notebooks follow."""
_known: dict[str, Registered] = {}


@dataclass(frozen=True)
class Registered:
    """A figure under its name."""

    name: str
    notebook: str
    """The stem of the notebook that shows it."""
    make: Callable[[Any], Chart]
    """Subject -> chart."""
    needs: Callable[[Tables], bool]
    """Whether a run has a load of the kind that the figure is about."""
    table: str
    """The heading in its notebook under which a table has medians of what it shows; empty where none has."""
    subject: type
    """What it is made from: a run's tables, or one trial."""

    @property
    def place(self) -> str:
        """A sentence that says where in its notebook a table has the numbers; empty where none has."""
        return f" For a table see “{self.table}”." if self.table else ""


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
    """Import every module that registers charts, and return its place in a post by its name."""
    figures = importlib.import_module("runner.present.figures")
    others = sorted(f"figures.{module.name}" for module in pkgutil.iter_modules(figures.__path__))
    names = [f"runner.present.{module}" for module in dict.fromkeys((*MODULES, *others))]
    return {importlib.import_module(name).__name__: place for place, name in enumerate(names)}


def charts(notebook: str = "") -> dict[str, Registered]:
    """Return every figure by its name, or those of one notebook, in the order of a post."""
    modules = _places()

    def place(found: Registered) -> tuple[int, int]:
        ranked = NOTEBOOKS.index(found.notebook) if found.notebook in NOTEBOOKS else len(NOTEBOOKS)
        return ranked, modules.get(found.make.__module__, len(modules))

    return {found.name: found for found in sorted(_known.values(), key=place) if notebook in ("", found.notebook)}


def made(name: str, subject: Any) -> Chart:
    """Return the chart of a run, or of one trial, by its name; LabError where there is none of that subject."""
    found = charts().get(name)
    if found is None or not isinstance(subject, found.subject):
        raise LabError(f"There is no figure {name!r} of {'a run' if isinstance(subject, Tables) else 'one trial'}.")
    return found.make(subject)
