"""The vocabulary of the lab: frozen, validated records that all parts of the lab share.

This module imports no other modules of the lab but those that define a load.
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
"""Columns of resources.parquet that contain values of /stats.

The columns are named after the keys of the server's answer. For example, the column `requests`
contains the value of the key `requests`, and the column `pool_size` contains the value of the key
`size` in the object `pool`.
"""
OTHER_ENDPOINTS = "(all other endpoints)"
"""Name of a row in the table of endpoints, which sums up the rarest endpoints of a trial.

The row exists only if the script requests too many endpoints to give each of them a row.
"""
OWN_SCRIPT = "own"
"""Workload of a user's script, whose iterations may contain several requests and pauses."""
OWN_GET = "own-get"  # workload of a plain GET of a user's URL
OWN = (OWN_SCRIPT, OWN_GET)
CLAIMS = (
    Path(__file__).parent / "present" / "published" / "claims.toml"
)  # file with the published claims, and the rules by which they are judged
POSTGRES = (
    Path(__file__).parent / "postgres"
)  # the database's configuration, start script and Dockerfile
SCHEMA = 1  # version of the data format; 1 is the first version, of 2026-11

JsonObject = dict[str, Any]
"""A JSON object whose keys and values the lab does not check."""

Tier = Literal["realistic", "raw", "calibration"]
"""The kind of a server.

`realistic` means that the server uses its framework as is usual. `raw` means that the server is
built on an engine below HTTP. `calibration` means that the server's behaviour is known, so that the
server is never ranked.
"""
CALIBRATION: Tier = "calibration"
"""Tier of servers with known behaviour, which are in no figure and in no ranking."""
Subject = Literal["server", "generator", "database", "host", "sampler"]
State = Literal["planned", "running", "raw", "sealed", "failed", "interrupted"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class LabError(Exception):
    """An error that the user can act on: one sentence that says what is wrong and what to do.

    `exit_code` is 2 for wrong usage or a missing tool, and 1 for a failed trial, run or check.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CannotGoOnError(LabError):
    """An error that makes all further trials impossible, for a reason outside the trials.

    Examples are that the engine stopped responding, that a disk is full, or that a file has
    changed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=1)


def check_name(kind: str, name: str) -> str:
    """Return `name`; raise LabError if it is not fit for file names, labels and URLs."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"{kind} name {name!r} is not valid: use 1 to 40 lower-case letters, digits, '-' or "
            "'_', beginning with a letter or digit."
        )
    return name


def short_number(value: float) -> str:
    """Return a number as a text with three significant digits, or without decimals from 100 on.

    Examples are 0.393, 5.69 and 1,970.
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def setting_text(value: float) -> str:
    """Return the text of a number that a user has set, such as a rate: 0.5, 657.1, 12,500.

    Whole numbers are exact. Other numbers are rounded to four significant digits, or to whole
    numbers from 1,000 on, because a step of a ramp may have a rate of 657.142857 requests/s. Return
    `–` for infinity, and for NaN, which means that the number is unknown.
    """
    if not math.isfinite(value):
        return "–"
    is_whole = value == round(value)
    return f"{value:,.0f}" if is_whole or abs(value) >= 1000 else f"{value:.4g}"


QUOTA_PERIOD_S = 0.01
"""Period of the CPU quotas that the lab sets.

With the kernel's default period of 0.1 s, a server that has used up its quota would wait for tens
of milliseconds until the next period begins.
"""
REQUESTS_BEYOND = 100
"""A percentile is drawn or printed only if at least this many requests are slower than it.

The number of requests that are slower than a percentile is binomial. If 100 are expected, the
relative standard error of their number is 1/sqrt(100) = 10 %.
"""


def carried_percent(requests: float) -> float | None:
    """Return the highest percentile that at least REQUESTS_BEYOND response times exceed.

    `requests` is the number of all requests. The percentile is rounded down: below 99 to a whole
    number, below 99.9 to one decimal, and from 99.9 on to two decimals. Return None if fewer than
    REQUESTS_BEYOND requests are slower than the median.
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
    """Checks of the contract that the server fails because of its framework (see `notes`)."""
    build_needs: tuple[str, ...] = ()
    """Programs that must be on PATH to build the server on the host."""
    build_command: tuple[str, ...] = ()
    build_env: tuple[tuple[str, str], ...] = ()
    artifact: Path | None = None
    """The binary that the build leaves in `folder`; None if `run_command` is a script."""
    run_needs: tuple[str, ...] = ()
    run_command: tuple[str, ...] = ()
    """Command with which the process engine starts the server in `folder`.

    In the command, `{artifact}` stands for the path of the built binary.
    """
    base: str | None = None
    """Base image that the Dockerfile needs: `debian`, or None if the Dockerfile uses `scratch`."""
    shared: bool = False
    """True if the server's image contains code that several servers share.

    Then Docker builds the image in the folder servers/, and not in the server's own folder.
    """
    notes: str = ""
    secrets_by_file: bool = False
    """True if the server reads the database's URL from a file, not from its environment."""
    contract: bool = True
    """True if the server implements the lab's contract.

    About any other server, the lab assumes only that it answers HTTP at its port.
    """

    def __post_init__(self) -> None:
        check_name("Server", self.name)

    @property
    def implementation(self) -> str:
        """Name of the server's folder, which is also the name that the server reports.

        A copy of a server has another `name`, but the same implementation.
        """
        return self.folder.name


@dataclass(frozen=True)
class Workload:
    """What a load sends to a server and by which tool, and what the server must implement."""

    name: str
    title: str
    tool: Tool
    script: Path
    load_model: LoadModel
    method: str
    path: str
    body: str = ""
    """Body of the request.

    In the body, `{tag}` is replaced by the load's tag, by which inserted rows are counted.
    """
    needs: tuple[str, ...] = ()
    database: bool = False  # True if each server gets a fresh PostgreSQL
    probe_path: str | None = None
    """Path that the probe requests by GET; None if the probe sends the same request as the load."""
    also: tuple[int, ...] = ()  # further ports of the server's host that a user's script may use
    written_s: float | None = None
    """Longest possible duration of the load, if the options of a user's script define the load.

    None if the lab defines the load.
    """

    def __post_init__(self) -> None:
        check_name("Workload", self.name)


@dataclass(frozen=True)
class Cell:
    """A server under a load.

    If `slices` is not None, the cell belongs to a session. Then the iterations and durations in
    `shape` are sums over all slices of the cell.

    On disk, a cell is a flat record (see `columns`), which pydantic reads.
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
    """Share of its CPUs' time to which a quota limits the server. 1.0 means no quota."""
    database_share: float = 1.0
    """Share of its CPUs' time to which a quota limits the database. 1.0 means no quota."""
    idle: Idle = "polling"
    """Requested state of idle CPUs."""
    slices: int | None = None
    """Number of slices that the server has in a session; None if the trial is in no session."""

    @classmethod
    def from_columns(cls, columns: CellColumns) -> Cell:
        """Return the cell that the columns describe; raise ValueError if they are contradictory."""
        kept = {name: getattr(columns, name) for name in _CELL_COLUMNS}
        cell = cls(**kept, shape=shape_of(columns))
        _require_same(cell.columns(), columns)
        return cell

    def columns(self) -> CellColumns:
        """Return the cell's flat columns, as trial.json and the table of trials contain them."""
        kept = {name: getattr(self, name) for name in _CELL_COLUMNS}
        return CellColumns(
            **kept, load_model=self.load_model, **columns_of_shape(self.shape, self.tool)
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        """Let pydantic read a cell from its flat columns."""
        return _read_flat(handler.generate_schema(CellColumns), cls.from_columns)

    @property
    def load_model(self) -> LoadModel:
        """`closed` or `open`.

        In a closed load, each user waits for an answer before the next request. In an open load,
        requests begin at planned times.
        """
        return self.shape.load_model

    @property
    def load_id(self) -> str:
        """Name of the load, as used in file names: `experiments-vus3000`."""
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
        """Return the cell of slice `number` (from 1), or the cell itself if it has no slices."""
        if self.slices is None:
            return self
        return replace(self, slices=None, shape=self.shape.slice(number, self.slices))

    def with_users(self, users: int) -> Cell:
        """Return the cell with another number of virtual users or connections."""
        return replace(self, shape=replace(self.shape, users=users))

    @property
    def is_open(self) -> bool:
        """True if the load is open: requests begin at planned times, and wait for no answers."""
        return self.load_model == "open"

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """Arrival rates of an open load, in the order of its steps.

        Empty for a closed load, and for a step of a search before its rate is known.
        """
        return self.shape.rates_rps

    @property
    def last_rate_rps(self) -> float | None:
        """Last arrival rate of an open load.

        None for a closed load, and for a step of a search before its rate is known.
        """
        return self.shape.last_rate_rps

    @property
    def offered_s(self) -> float:
        """Duration of an open load in seconds, without its lead (see `lead_s`).

        0 for a closed load, and for a step of a search before its rate is known.
        """
        return self.shape.offered_s

    @property
    def window_s(self) -> float | None:
        """Seconds within which all iterations of an open load must begin.

        None for a closed load, and for a step of a search before its rate is known.

        Some generators begin no iteration after the time that the lab gives them. They get more
        time than the load lasts (`late_s`), so that delayed iterations can still begin.
        """
        return self.offered_s + TRAITS[self.tool].late_s if self.rates_rps else None

    @property
    def lead_s(self) -> float:
        """Seconds before an open load in which requests are sent, but do not count (the lead).

        0 for a closed load, and for a step of a search before its rate is known.
        """
        return TRAITS[self.tool].lead_s if self.rates_rps else 0.0

    @property
    def to_begin(self) -> int:
        """Number of iterations that an open load must begin, or 0 for a closed load.

        The number includes the iterations of the lead: the `lead_s` seconds before the load.
        """
        return self.shape.to_begin(self.lead_s)

    @property
    def sockets(self) -> int:
        """Number of connections that the load keeps open at the same time. 0 if not known yet."""
        return self.shape.users or 0

    @property
    def cell_id(self) -> str:
        """Name of the cell: `axum-experiments-vus3000`."""
        return f"{self.server}-{self.load_id}"


_CELL_COLUMNS = tuple(each.name for each in fields(Cell) if each.name != "shape")


@dataclass(frozen=True)
class LoadPart:
    """The part of a load that one of `count` generators sends: generator `number`, from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def all(cls, count: int) -> tuple[LoadPart, ...]:
        """Return the parts of a load that `count` generators share."""
        return tuple(cls(number, count) for number in range(1, count + 1))

    def of(self, cell: Cell) -> Cell:
        """Return the cell with this part's share of the load.

        If the users cannot be divided equally, each of the first generators gets one user more. k6
        divides the users in the same way, by its execution segments (lib/execution_segment.go).
        Iterations are divided in proportion to users, as in k6, whose numbers may differ by one
        iteration (lib/executor/shared_iterations.go).
        """
        if self.count == 1:
            return cell
        if cell.sockets < self.count:
            raise LabError(
                f"The load of {cell.cell_id} has fewer connections than there are "
                f"generators ({self.count}): give the load more connections, or name fewer "
                "generators in the hosts file."
            )
        return replace(cell, shape=cell.shape.part(self.number, self.count))


@dataclass(frozen=True)
class Trial:
    """One execution of a cell, on a fresh server or on the server of a `--url`.

    `order` numbers the trials of the whole run from 1.
    """

    trial_id: str
    order: int
    block: int
    cell: Cell
    attempt: int = 1
    session: str | None = None
    """Name of the trial's session, in which servers run side by side. None without a session."""


@dataclass(frozen=True)
class Load:
    """One `[[load]]` of a campaign: a workload, and the sizes with which each server is loaded.

    In run.json, a load is a flat record (see `columns`), which pydantic reads.
    """

    workload: str
    repeats: int
    warmup_s: float
    form: Form
    modes: tuple[Mode, ...] = ("keepalive",)
    users: tuple[int, ...] = ()
    """Numbers of users. The plan contains a cell for each server with each of these numbers.

    Empty for an open load whose warm-up decides the number of users.
    """
    size_column: SizeColumn = "vus"
    """Column that holds `users`: `vus` for virtual users, and `connections` for connections."""
    pool_sizes: tuple[int, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers of the campaign that get this load; empty if all servers get it."""
    shares: tuple[float, ...] = (1.0,)
    """Shares of the CPUs' time to which a quota limits a server. 1.0 means that there is no quota.

    The plan contains a cell for each server with each of the shares.
    """
    database_share: float = 1.0
    idle: tuple[Idle, ...] = ("polling",)
    slices: int | None = None
    """Number of slices that each server has in each session; None without sessions."""
    profile: bool = False
    """True if the servers are profiled under this load after the run's trials."""
    not_profiled: tuple[str, ...] = ()
    """Servers of the load that are left out of its profile."""

    @classmethod
    def from_columns(cls, columns: LoadColumns) -> Load:
        """Return the load that the columns describe; raise ValueError if they are contradictory."""
        kept = {name: getattr(columns, name) for name in _LOAD_COLUMNS}
        size_column, users = size_of(columns)
        load = cls(**kept, form=form_of(columns), users=users, size_column=size_column)
        _require_same(load.columns(), columns)
        return load

    def columns(self) -> LoadColumns:
        """Return the load's flat columns, as run.json contains them."""
        kept = {name: getattr(self, name) for name in _LOAD_COLUMNS}
        users: dict[str, Any] = {self.size_column: self.users}
        return LoadColumns(**kept, **users, **columns_of_form(self.form, self.slices))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        """Let pydantic read a load from its flat columns."""
        return _read_flat(handler.generate_schema(LoadColumns), cls.from_columns)

    def shapes(self, users: int | None) -> list[Shape]:
        """Return the shapes of the load's cells with this number of users."""
        return self.form.shapes(users, self.slices)

    def scaled(self, factor: float) -> Load:
        """Return the load with iterations and durations multiplied by `factor`.

        The results have lower limits, which `Campaign.scaled` describes.
        """
        counts_users = self.size_column == "vus" and bool(self.users)
        least_iterations = max(self.users, default=1) * (self.slices or 1)
        least_s = 1.0 if counts_users else 0.2
        return replace(self, form=self.form.scaled(Scale(factor, least_iterations, least_s)))


_LOAD_COLUMNS = tuple(
    each.name for each in fields(Load) if each.name not in {"form", "users", "size_column"}
)


def _require_same(made: CellColumns | LoadColumns, given: CellColumns | LoadColumns) -> None:
    """Raise ValueError if columns changed when they were converted to a cell or load, and back.

    `given` contains the original columns, and `made` the columns after the conversion.
    """
    for each in fields(given):
        if getattr(made, each.name) != getattr(given, each.name):
            raise ValueError(
                f"{each.name} = {getattr(given, each.name)!r} contradicts the other columns"
            )


def _read_flat(columns_schema: Any, convert: Any) -> Any:
    """Return a pydantic schema that reads columns, and then converts them by calling `convert`."""
    from pydantic_core import core_schema  # noqa: PLC0415 - only decoding needs pydantic

    return core_schema.no_info_after_validator_function(convert, columns_schema)


def record_of(value: Any) -> Any:
    """Return a value in its stored form.

    Dataclasses become dictionaries, as with `dataclasses.asdict`, but cells and loads become flat
    records.
    """
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
    """A user's API in a campaign: its address or folder, and the requests that it gets."""

    name: str  # name of the API among the campaign's servers
    path: str
    """Path and query of the URL.

    A plain GET requests this path. A script reads the variable BASE_URL, which ends with this path.
    """
    probe_path: str  # path that the probe requests
    url: str | None = None
    """URL of a server that already runs. None if the lab starts the server from `folder`."""
    address: str = "127.0.0.1"
    """IP address of the URL's host. The load can reach no other address."""
    port: int | None = None
    process: str | None = None
    """Identity of the process that listened at `port` before the run (see attached.Listener).

    None if the process is unknown.
    """
    folder: str | None = None  # folder of the server, relative to the lab's root
    script: str | None = None  # name of the script, which `files` includes; None for a plain GET
    files: tuple[tuple[str, str], ...] = ()
    """Name and SHA-256 of the script and of each file that it imports or opens."""
    also: tuple[int, ...] = ()
    """Further ports of the URL's host that the script may use."""
    ca: str | None = None
    """File with the certificates to trust, relative to the lab's root.

    If None, the system's certificates are trusted.
    """
    ca_sha256: str | None = None
    written_s: float | None = None
    """Longest possible duration of the load, if the script's own options define the load.

    None if the lab defines the load.
    """
    insecure: bool = False
    """True if any certificate of the server is accepted, even an invalid one."""
    certificate: str | None = None
    """File with the client's certificate, relative to the lab's root.

    None if the client has no certificate.
    """
    certificate_sha256: str | None = None
    key: str | None = None
    """File with the key of the client's certificate, relative to the lab's root."""
    commit: str | None = None
    """Id of the commit, if `folder` is a temporary checkout; None if `folder` is the user's own."""
    start: str | None = None
    """Shell command that starts the server in `folder` as a plain process, listening on $PORT."""


@dataclass(frozen=True)
class Campaign:
    """Everything to run: loads, servers and repeats."""

    name: str
    title: str
    servers: tuple[str, ...]
    loads: tuple[Load, ...]
    seed: int
    server_cpus: int
    sample_hz: float
    database_cpus: int = 1
    attempts: int = 3
    """A disturbed trial is repeated, but has at most this many attempts.

    The last attempt counts even if it was disturbed, unless it breaks an invariant.
    """
    environment: tuple[tuple[str, str, str], ...] = ()
    """Variables that servers get in addition to the contract's, each as (server, name, value)."""
    copies: tuple[tuple[str, str], ...] = ()
    """Copies of servers, each as (name of the copy, name of the server)."""
    processes: tuple[str, ...] = ()
    """Servers that are started as plain processes, while all other servers are containers."""
    owns: tuple[UserApi, ...] = ()
    """The user's APIs, which are measured instead of servers in servers/.

    All of these APIs get the same load.
    """
    text: str = field(repr=False, default="")  # the campaign's original TOML, for the manifest

    def scaled(self, factor: float) -> Campaign:
        """Return the campaign with iterations and durations multiplied by `factor` (> 0).

        There are lower limits. At least one iteration per user remains. If a load has slices, at
        least one iteration per user remains in each slice. Durations are at least 0.2 s, or 1 s if
        virtual users send the load, because k6 accepts no shorter duration. The steps of a ramp are
        at least 0.2 s long. Arrival rates and the number of steps of a search do not change.
        """
        if not 0 < factor < math.inf:
            raise LabError(f"--scale must be a number greater than 0, not {factor:g}.")
        return replace(self, loads=tuple(load.scaled(factor) for load in self.loads))


class Blame(StrEnum):
    """The possible reasons why a trial breaks an invariant.

    The reason decides whether the trial fails or is repeated.
    """

    TRIAL = "trial"
    """The server, the generator or a measured number is wrong, so the trial fails."""
    LAB = "lab"
    """The sampler or the probe was late, or a process could use CPUs of another role.

    The trial is repeated. But if an invariant with the blame TRIAL is broken, too, the trial fails.
    """
    REST = "rest"
    """A server was busy while another server of its session was loaded.

    The trial is repeated, as for LAB. But if this happens in the last attempt, the whole session
    fails, because such a server slows the other servers down.
    """
    MACHINE = "machine"
    """The machine disturbed the trial.

    The trial is repeated, even if other invariants failed, too.
    """


@dataclass(frozen=True)
class Check:
    """The result of checking an invariant on a trial; `detail` contains the compared numbers."""

    name: str
    ok: bool
    detail: str
    blame: Blame = Blame.TRIAL
