"""Convert cells and loads to flat columns for the disk, and back.

trial.json, run.json and the tables contain these columns, so that other programs can read them.
Columns that a load does not need are empty. The lab's code describes a load by a shape instead
(`runner/shapes.py`). `Cell` and `Load` use this module when they are stored and read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from runner.generator_traits import SizeColumn, Tool, users_column
from runner.shapes import (
    Bisections,
    Closed,
    Duration,
    Form,
    ForTime,
    Idle,
    Iterations,
    LoadModel,
    Mode,
    Ramp,
    Search,
    Shape,
    Steps,
    Sweep,
    SweepOfCapacity,
)

T = TypeVar("T")


@dataclass(frozen=True)
class CellColumns:
    """The flat columns of a cell, as trial.json and the table of trials contain them."""

    server: str
    language: str
    framework: str
    tier: str
    workload: str
    tool: Tool
    load_model: LoadModel
    mode: Mode
    path: str
    vus: int | None = None
    iterations: int | None = None
    connections: int | None = None
    duration_s: float | None = None
    first_rate_rps: float | None = None
    rate_rps: float | None = None
    steps: int | None = None
    step_s: float | None = None
    pool_size: int | None = None
    warmup_s: float = 1.0
    objective: str | None = None
    search_low_rps: float | None = None
    search_high_rps: float | None = None
    bisection: int | None = None
    share: float = 1.0
    database_share: float = 1.0
    idle: Idle = "polling"
    slices: int | None = None


@dataclass(frozen=True)
class LoadColumns:
    """The flat columns of a `[[load]]`, as run.json contains them."""

    workload: str
    repeats: int
    warmup_s: float
    modes: tuple[Mode, ...] = ("keepalive",)
    vus: tuple[int, ...] = ()
    iterations: int | None = None
    connections: tuple[int, ...] = ()
    duration_s: float | None = None
    from_rps: float | None = None
    to_rps: float | None = None
    steps: int | None = None
    step_s: float | None = None
    rates_rps: tuple[float, ...] = ()
    rates_pct: tuple[float, ...] = ()
    objective: str | None = None
    bisections: int | None = None
    pool_sizes: tuple[int, ...] = ()
    servers: tuple[str, ...] = ()
    shares: tuple[float, ...] = (1.0,)
    database_share: float = 1.0
    idle: tuple[Idle, ...] = ("polling",)
    slices: int | None = None
    slice_s: float | None = None
    profile: bool = False
    not_profiled: tuple[str, ...] = ()


def columns_of_shape(shape: Shape, tool: Tool) -> dict[str, Any]:
    """Return the columns that describe a shape: names of fields of CellColumns, and their values.

    Columns that the shape does not need are left out.
    """
    users: dict[str, Any] = {users_column(tool, shape.load_model): shape.users}
    match shape:
        case Closed():
            return {**users, "iterations": shape.iterations}
        case ForTime():
            return {**users, "duration_s": shape.duration_s}
        case Steps():
            return {
                **users,
                "first_rate_rps": shape.first_rate_rps,
                "rate_rps": shape.rate_rps,
                "steps": shape.steps,
                "step_s": shape.step_s,
            }
        case Search():
            return {
                **users,
                "first_rate_rps": shape.rate_rps,
                "rate_rps": shape.rate_rps,
                "steps": None if shape.rate_rps is None else 1,
                "step_s": shape.step_s,
                "objective": shape.objective,
                "search_low_rps": shape.low_rps,
                "search_high_rps": shape.high_rps,
                "bisection": shape.bisection,
            }


def shape_of(columns: CellColumns) -> Shape:
    """Return the shape that the columns describe; raise ValueError if a needed column is empty."""
    size_column = users_column(columns.tool, columns.load_model)
    users = columns.connections if size_column == "connections" else columns.vus
    if columns.objective is not None:
        return Search(
            users,
            columns.objective,
            _given("search_low_rps", columns.search_low_rps),
            _given("search_high_rps", columns.search_high_rps),
            _given("bisection", columns.bisection),
            _given("step_s", columns.step_s),
            columns.rate_rps,
        )
    if columns.load_model == "open":
        return Steps(
            users,
            _given("first_rate_rps", columns.first_rate_rps),
            _given("rate_rps", columns.rate_rps),
            _given("steps", columns.steps),
            _given("step_s", columns.step_s),
        )
    if columns.iterations is not None:
        return Closed(_given(size_column, users), columns.iterations)
    return ForTime(_given(size_column, users), _given("duration_s", columns.duration_s))


def columns_of_form(form: Form, slices: int | None) -> dict[str, Any]:
    """Return the columns that describe a form: names of fields of LoadColumns, and their values.

    Columns that the form does not need are left out.
    """
    length_column = "duration_s" if slices is None else "slice_s"
    match form:
        case Iterations():
            return {"iterations": form.iterations, "slice_s": form.slice_s}
        case Duration():
            return {length_column: form.each_s}
        case Ramp():
            return {
                "from_rps": form.from_rps,
                "to_rps": form.to_rps,
                "steps": form.steps,
                "step_s": form.step_s,
            }
        case Sweep():
            return {"rates_rps": form.rates_rps, length_column: form.each_s}
        case SweepOfCapacity():
            return {"rates_pct": form.rates_pct, length_column: form.each_s}
        case Bisections():
            return {
                "objective": form.objective,
                "from_rps": form.from_rps,
                "to_rps": form.to_rps,
                "bisections": form.bisections,
                "duration_s": form.duration_s,
            }


def form_of(columns: LoadColumns) -> Form:
    """Return the form that the columns describe; raise ValueError if a needed column is empty."""
    if columns.objective is not None:
        return Bisections(
            columns.objective,
            _given("from_rps", columns.from_rps),
            _given("to_rps", columns.to_rps),
            _given("bisections", columns.bisections),
            _given("duration_s", columns.duration_s),
        )
    if columns.steps is not None:
        return Ramp(
            _given("from_rps", columns.from_rps),
            _given("to_rps", columns.to_rps),
            columns.steps,
            _given("step_s", columns.step_s),
        )
    if columns.iterations is not None:
        return Iterations(columns.iterations, columns.slice_s)
    if columns.slices is None:
        each_s = _given("duration_s", columns.duration_s)
    else:
        each_s = _given("slice_s", columns.slice_s)
    if columns.rates_rps:
        return Sweep(columns.rates_rps, each_s)
    if columns.rates_pct:
        return SweepOfCapacity(columns.rates_pct, each_s)
    return Duration(each_s)


def size_of(columns: LoadColumns) -> tuple[SizeColumn, tuple[int, ...]]:
    """Return the name of the column that holds a load's numbers of users, and these numbers."""
    if columns.connections:
        return "connections", columns.connections
    return "vus", columns.vus


def _given(name: str, value: T | None) -> T:
    if value is None:
        raise ValueError(f"a load of this shape needs {name}")
    return value
