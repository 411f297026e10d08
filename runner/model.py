"""The vocabulary of the lab: frozen, validated records shared by all wings.

Imports no more of ours than what a load is made of.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from runner.flat import (
    CellColumns,
    LoadColumns,
    columns_of_form,
    columns_of_shape,
    form_of,
    shape_of,
    size_of,
)
from runner.generator_traits import TRAITS, SizeColumn, Tool, users_column
from runner.shapes import Form, Idle, LoadModel, Mode, Scale, Shape

STATS_COLUMNS = (
    *("pool_size", "pool_in_use", "pool_idle", "pool_waiting"),
    *("gc_cycles", "gc_pause_total_ms", "gc_cpu_s", "requests", "connections"),
)
"""Columns of resources.parquet that a server says at /stats: the object there, `_`, the key in it.

Or a key of the answer itself.
"""
OWN_SCRIPT = "own"
"""Workload of a script that the user brings: an iteration may be several requests, or pauses."""
OWN_GET = "own-get"  # workload of a plain GET of a URL that the user gives
OWN = (OWN_SCRIPT, OWN_GET)
CLAIMS = (
    Path(__file__).parent / "present" / "published" / "claims.toml"
)  # and the rules by which they are judged
POSTGRES = (
    Path(__file__).parent / "postgres"
)  # the database's configuration, start script and Dockerfile
SCHEMA = 1  # version of the data format. 1 (2026-11): first format.

Tier = Literal["realistic", "raw", "calibration"]
"""`realistic`: the framework as its users use it.

`raw`: an engine below HTTP; `calibration`: a server with a known behaviour that is never ranked.
"""
CALIBRATION: Tier = "calibration"
"""Tier of servers whose behaviour is known: they are in no figure and in no ranking."""
Subject = Literal["server", "generator", "database", "host", "sampler"]
State = Literal["planned", "running", "raw", "sealed", "failed", "interrupted"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class LabError(Exception):
    """An error that the user can act on: one sentence that says what is wrong and what to do.

    `exit_code` is 2 for wrong usage or a missing tool, 1 for a failed trial, run or check.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CannotGoOnError(LabError):
    """No further trial can run, and no trial is at fault.

    The engine stopped responding, a disk is full, or a file has changed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=1)


def check_name(kind: str, name: str) -> str:
    """Return `name` if it is fit for file names, labels and URLs; raise LabError otherwise."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"{kind} name {name!r} is not valid: use 1 to 40 lower-case letters, digits, '-' or "
            "'_', beginning with a letter or digit."
        )
    return name


def short_number(value: float) -> str:
    """Return a number as a person would write it, with three digits or all before the point: 0.393,
    5.69, 1,970.
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


REQUESTS_BEYOND = 100
"""Requests that must lie beyond a percentile before it is drawn or printed.

The count beyond a percentile is binomial: with 100 its relative standard error is 1/sqrt(100) = 10
%.
"""


def carried_percent(requests: float) -> float | None:
    """Return the highest percentile that has at least `REQUESTS_BEYOND` of `requests` above it,
    rounded down.

    It is a whole number up to 99, has one digit up to 99.9, and two above. None if not even the
    median has so many.
    """
    if not requests >= 2 * REQUESTS_BEYOND:
        return None
    hundredths = 10_000 - math.ceil(10_000 * REQUESTS_BEYOND / requests)
    step = 100 if hundredths < 9900 else 10 if hundredths < 9990 else 1
    return hundredths // step * step / 100


def core_words(cores: float) -> str:
    """Return an amount of CPU in words: `0.5 of a core`, `1 core`, `1.5 cores`."""
    if cores < 1:
        return f"{cores:g} of a core"
    return f"{cores:g} core{'s' * (cores != 1)}"


@dataclass(frozen=True)
class Server:
    """One implementation under test: a folder under servers/, described by its server.toml."""

    name: str
    folder: Path
    language: str
    framework: str
    tier: Tier
    implements: tuple[str, ...]
    deviations: tuple[str, ...] = ()
    """Contract checks that the framework itself breaks; `notes` says how."""
    build_needs: tuple[str, ...] = ()  # programs that must be on PATH to build on the host
    build_command: tuple[str, ...] = ()
    build_env: tuple[tuple[str, str], ...] = ()
    artifact: Path | None = None
    """The binary that the build leaves in `folder`; None if `run_command` is a script."""
    run_needs: tuple[str, ...] = ()
    run_command: tuple[str, ...] = ()
    """How the process engine starts it in `folder`; `{artifact}` is the built binary."""
    base: str | None = None
    """Image that the Dockerfile's first stage needs (`debian`), or None for FROM scratch."""
    shared: bool = False
    """Whether its image is built in servers/, because it shares code with others there."""
    notes: str = ""
    secrets_by_file: bool = False
    """Whether it reads the database's URL from a file rather than its environment."""
    contract: bool = True
    """Whether it keeps the lab's contract; else it answers HTTP at the port that it is given."""

    def __post_init__(self) -> None:
        check_name("Server", self.name)

    @property
    def implementation(self) -> str:
        """The folder's name, which the server says of itself; a copy has another `name`."""
        return self.folder.name


@dataclass(frozen=True)
class Workload:
    """One way of loading a server: a tool, a script, a request and what the server must implement
    for it.
    """

    name: str
    title: str
    tool: Tool
    script: Path
    load_model: LoadModel
    method: str
    path: str
    body: str = ""
    """What is sent; `{tag}` in it stands for the trial's tag, by which inserted rows are counted.
    """
    needs: tuple[str, ...] = ()
    database: bool = False  # whether a fresh PostgreSQL stands behind the server
    probe_path: str | None = None
    """What the probe asks for by GET; None if it sends the load's request."""
    also: tuple[int, ...] = ()  # further ports of the server's host that a user's script may ask

    def __post_init__(self) -> None:
        check_name("Workload", self.name)


@dataclass(frozen=True)
class Cell:
    """Server x load: what a number is measured of.

    With `slices` the cell is one server's part of a session; the lengths of its shape are of all
    its slices together.

    On disk a cell is flat (`columns`), and pydantic reads it so.
    """

    server: str
    language: str
    framework: str
    tier: str
    workload: str
    tool: Tool
    mode: Mode
    path: str
    shape: Shape
    pool_size: int | None = None
    warmup_s: float = 1.0
    share: float = 1.0
    """Of each CPU that the server was given, by a CPU quota; 1.0 without a quota."""
    database_share: float = 1.0
    """The same for the database."""
    idle: Idle = "polling"
    """What idle CPUs were asked to do."""
    slices: int | None = None
    """How many slices the load has in a session; None if the trial is in no session."""

    @classmethod
    def from_columns(cls, columns: CellColumns) -> Cell:
        """Return the cell that flat columns describe; ValueError if they contradict each other."""
        kept = {name: getattr(columns, name) for name in _CELL_COLUMNS}
        cell = cls(**kept, shape=shape_of(columns))
        _require_same(cell.columns(), columns)
        return cell

    def columns(self) -> CellColumns:
        """Return the cell's flat columns, as trial.json and the table of trials have them."""
        kept = {name: getattr(self, name) for name in _CELL_COLUMNS}
        return CellColumns(
            **kept, load_model=self.load_model, **columns_of_shape(self.shape, self.tool)
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        """Tell pydantic to read a cell's flat columns."""
        return _read_flat(handler.generate_schema(CellColumns), cls.from_columns)

    @property
    def load_model(self) -> LoadModel:
        """Whether a request waits for the one before it (closed) or for its time (open)."""
        return self.shape.load_model

    @property
    def load_id(self) -> str:
        """The load without the server, as used in file names: `experiments-vus3000`."""
        size = self.shape.size_name
        connections = None
        if users_column(self.tool, self.load_model) == "connections":
            connections = None if self.shape.users is None else f"c{self.shape.users}"
        elif size is None:
            size = f"vus{self.shape.users}"
        parts = (
            self.workload,
            size,
            connections,
            None if connections is None and self.mode == "keepalive" else self.mode,
            None if self.pool_size is None else f"pool{self.pool_size}",
            None if self.share == 1 else f"share{self.share:g}".replace(".", "_"),
            None
            if self.database_share == 1
            else f"dbshare{self.database_share:g}".replace(".", "_"),
            None if self.idle == "polling" else "idle",
            None if self.slices is None else f"x{self.slices}",
        )
        return "-".join(part for part in parts if part is not None)

    def slice(self, number: int) -> Cell:
        """Return the load of one slice, counted from 1; the cell itself if it has no slices."""
        if self.slices is None:
            return self
        return replace(self, slices=None, shape=self.shape.slice(number, self.slices))

    def with_users(self, users: int) -> Cell:
        """Return the cell with so many virtual users or connections."""
        return replace(self, shape=replace(self.shape, users=users))

    @property
    def is_open(self) -> bool:
        """Whether requests begin at their times, however long the ones before them take."""
        return self.load_model == "open"

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """The arrival rates of an open load in order; empty for a closed one.

        Empty for a step of a search, too, whose rate is not known yet.
        """
        return self.shape.rates_rps

    @property
    def last_rate_rps(self) -> float | None:
        """The last arrival rate of an open load; None of a closed one."""
        return self.shape.last_rate_rps

    @property
    def offered_s(self) -> float:
        """How long an open load is offered, without its lead; 0 for a closed one."""
        return self.shape.offered_s

    @property
    def window_s(self) -> float | None:
        """The time in which an open load is to be begun.

        None for a closed one, which lasts as long as it takes.

        A generator may begin nothing any more when its time is over: what may be late at the end
        needs time for it.
        """
        return self.offered_s + TRAITS[self.tool].late_s if self.rates_rps else None

    @property
    def lead_s(self) -> float:
        """How long an open load is offered before it counts; 0 for a closed one."""
        return TRAITS[self.tool].lead_s if self.rates_rps else 0.0

    @property
    def to_begin(self) -> int:
        """How many iterations an open load is to begin, those of its lead too.

        0 for a closed one.
        """
        return self.shape.to_begin(self.lead_s)

    @property
    def sockets(self) -> int:
        """How many connections the load holds open at once; 0 if that is not known yet."""
        return self.shape.users or 0

    @property
    def cell_id(self) -> str:
        """The cell's name: `axum-experiments-vus3000`."""
        return f"{self.server}-{self.load_id}"


_CELL_COLUMNS = tuple(each.name for each in fields(Cell) if each.name != "shape")


@dataclass(frozen=True)
class LoadPart:
    """One generator's part of a load: the `number`-th of `count`, both from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def all(cls, count: int) -> tuple[LoadPart, ...]:
        """Return the parts of a load by so many generators."""
        return tuple(cls(number, count) for number in range(1, count + 1))

    def of(self, cell: Cell) -> Cell:
        """Return the cell of this part: users that cannot be divided go to the first generators,
        one each.

        So k6 divides them by its execution segments (lib/execution_segment.go), and iterations in
        proportion to them (lib/executor/shared_iterations.go), give or take one.
        """
        if self.count == 1:
            return cell
        if not TRAITS[cell.tool].is_divisible:
            raise LabError(f"{cell.tool} runs on one generator only: name one in the hosts file.")
        if cell.sockets < self.count:
            raise LabError(
                f"{cell.cell_id} has fewer connections than there are generators ({self.count})."
            )
        return replace(cell, shape=cell.shape.part(self.number, self.count))


@dataclass(frozen=True)
class Trial:
    """One execution of a cell, in a fresh server or in that of a `--url`.

    `order` counts from 1 over the whole run.
    """

    trial_id: str
    order: int
    block: int
    cell: Cell
    attempt: int = 1
    session: str | None = None
    """Whose servers live and are loaded side by side; None for a single trial."""


@dataclass(frozen=True)
class Load:
    """One `[[load]]` entry of a campaign: a workload and the parameters to cross with the
    servers.

    In run.json a load is flat (`columns`), and pydantic reads it so.
    """

    workload: str
    repeats: int
    warmup_s: float
    form: Form
    modes: tuple[Mode, ...] = ("keepalive",)
    users: tuple[int, ...] = ()
    """A cell each; empty if the warm-ups of an open load decide how many it may have."""
    size_column: SizeColumn = "vus"
    """What the users are called: virtual users, or connections."""
    pool_sizes: tuple[int, ...] = ()
    servers: tuple[str, ...] = ()
    """Those of the campaign's servers that this load is for; all if it is empty."""
    shares: tuple[float, ...] = (1.0,)
    """Shares of a core for each CPU of the server: a cell each."""
    database_share: float = 1.0
    idle: tuple[Idle, ...] = ("polling",)
    slices: int | None = None
    """Slices per server and session; None without sessions."""

    @classmethod
    def from_columns(cls, columns: LoadColumns) -> Load:
        """Return the load that flat columns describe; ValueError if they contradict each other."""
        kept = {name: getattr(columns, name) for name in _LOAD_COLUMNS}
        size_column, users = size_of(columns)
        load = cls(**kept, form=form_of(columns), users=users, size_column=size_column)
        _require_same(load.columns(), columns)
        return load

    def columns(self) -> LoadColumns:
        """Return the load's flat columns, as run.json has them."""
        kept = {name: getattr(self, name) for name in _LOAD_COLUMNS}
        users: dict[str, Any] = {self.size_column: self.users}
        return LoadColumns(**kept, **users, **columns_of_form(self.form, self.slices))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        """Tell pydantic to read a load's flat columns."""
        return _read_flat(handler.generate_schema(LoadColumns), cls.from_columns)

    def shapes(self, users: int | None) -> list[Shape]:
        """Return the shapes of the load's cells with so many users."""
        return self.form.shapes(users, self.slices)

    def scaled(self, factor: float) -> Load:
        """Return the load with iterations and durations multiplied by `factor`.

        `Campaign.scaled` says what remains at least.
        """
        counts_users = self.size_column == "vus" and bool(self.users)
        least_iterations = max(self.users, default=1) * (self.slices or 1)
        least_s = 1.0 if counts_users else 0.2
        return replace(self, form=self.form.scaled(Scale(factor, least_iterations, least_s)))


_LOAD_COLUMNS = tuple(
    each.name for each in fields(Load) if each.name not in {"form", "users", "size_column"}
)


def _require_same(made: CellColumns | LoadColumns, given: CellColumns | LoadColumns) -> None:
    """Raise ValueError if columns say more than the shape that was made of them."""
    for each in fields(given):
        if getattr(made, each.name) != getattr(given, each.name):
            raise ValueError(f"{each.name} = {getattr(given, each.name)!r} contradicts the others")


def _read_flat(columns_schema: Any, convert: Any) -> Any:
    """Return pydantic's schema of what is read as columns and then converted."""
    from pydantic_core import core_schema  # noqa: PLC0415 - only what decodes needs it

    return core_schema.no_info_after_validator_function(convert, columns_schema)


def record_of(value: Any) -> Any:
    """Return a value as it is stored: like `dataclasses.asdict`, but cells and loads are flat."""
    if isinstance(value, Cell | Load):
        return record_of(value.columns())
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: record_of(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: record_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(record_of(each) for each in value)
    return value


@dataclass(frozen=True)
class UserApi:
    """A user's API in a campaign: where it is, and what is sent to it."""

    name: str  # by which the campaign's servers have it
    path: str
    """Path and query of its URL: what a plain GET asks for, and what a script's BASE_URL ends in.
    """
    probe_path: str  # what the probe asks for
    url: str | None = None
    """Of a server that runs already; None if the lab starts one from `folder`."""
    address: str = "127.0.0.1"
    """The IP address that the URL's host stands for; the load can reach no other."""
    port: int | None = None
    process: str | None = None
    """Which one listened there before the run (attached.Listener); None if not known."""
    folder: str | None = None  # relative to the lab's root
    script: str | None = None  # the script among `files`; None for a plain GET
    files: tuple[tuple[str, str], ...] = ()
    """Name and SHA-256 of the script and of each file that it imports or opens."""
    also: tuple[int, ...] = ()
    """Further ports of its host to which the script may send requests."""


@dataclass(frozen=True)
class Campaign:
    """Cells x repeats: what to run."""

    name: str
    title: str
    servers: tuple[str, ...]
    loads: tuple[Load, ...]
    seed: int
    server_cpus: int
    sample_hz: float
    database_cpus: int = 1
    attempts: int = 3
    """How often a disturbed trial is tried; the last one stands if it keeps every invariant."""
    environment: tuple[tuple[str, str, str], ...] = ()
    """Variables beyond those of the contract: (server, name, value)."""
    copies: tuple[tuple[str, str], ...] = ()  # second labels of servers: (label, server)
    owns: tuple[UserApi, ...] = ()
    """The user's APIs, measured instead of those in servers/; all get the same load."""
    text: str = field(repr=False, default="")  # the TOML as given, kept for the manifest

    def scaled(self, factor: float) -> Campaign:
        """Return the campaign with iterations and durations multiplied by `factor` (> 0).

        At least one iteration per virtual user remains, and at least 0.2 s of each duration and
        step; 1 s if virtual users send the load, because k6 accepts no less. Arrival rates and the
        number of a search's steps do not change.
        """
        if not 0 < factor < math.inf:
            raise LabError(f"--scale must be a number greater than 0, not {factor:g}.")
        return replace(self, loads=tuple(load.scaled(factor) for load in self.loads))


class Blame(StrEnum):
    """What is to blame if an invariant is broken."""

    TRIAL = "trial"
    """The server, the generator or their numbers: the trial fails."""
    LAB = "lab"
    """An instrument that came late or was moved. The trial is repeated if nothing else failed."""
    REST = "rest"
    """A server that was busy while others of its session were loaded: like LAB.

    It slows the others down, so that it fails the session even in the last attempt.
    """
    MACHINE = "machine"
    """The machine under all of them, whatever else failed: the trial is repeated."""


@dataclass(frozen=True)
class Check:
    """One invariant held against one trial; `detail` carries the numbers that were compared."""

    name: str
    ok: bool
    detail: str
    blame: Blame = Blame.TRIAL
