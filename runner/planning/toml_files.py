"""Models of the lab's TOML files: the tables, their keys, and the kind of each value.

These models check each value alone. The modules that read the files (catalog.py and hosts.py)
check whether several keys contradict each other.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StrictBool

from runner.generator_traits import Tool
from runner.model import LabError, Tier
from runner.planning.search import Objective
from runner.planning.toml_tables import Kind, TableModel
from runner.shapes import Idle, LoadModel, Mode


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or len(set(values)) < len(values):
        raise ValueError("a list of different values: this list is empty or repeats a value")
    return values


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _pairs(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a table")
    return tuple(sorted(value.items()))


def _objective(text: str) -> str:
    try:
        Objective.parse(text)
    except LabError as error:
        raise ValueError(str(error)) from None
    return text


def _one_of(choices: Any) -> Kind:
    """Return a kind whose words list the possible values of a `Literal` in error messages."""
    return Kind(f"one of {', '.join(get_args(choices))}")


Secrets = Literal["environment", "file"]
Base = Literal["scratch", "debian"]
Context = Literal[".", ".."]
Method = Literal["GET", "POST"]

_SOME = Field(min_length=1)
_LISTED = BeforeValidator(_listed)
_DIFFERENT = AfterValidator(_different)
_NUMBER = Annotated[float, Strict(), Field(allow_inf_nan=False)]
_COUNT = Annotated[int, Strict(), Field(ge=1, le=10**8)]
_SECONDS = Annotated[_NUMBER, Field(gt=0, le=86_400)]
_RATE = Annotated[_NUMBER, Field(gt=0, le=10**7)]
_SHARE = Annotated[_NUMBER, Field(ge=0.1, le=1)]
_CPU = Annotated[int, Strict(), Field(ge=0, lt=4096)]
_TEXT = Annotated[str, Field(pattern=r"\S")]
_RATE_WORDS = "a number of requests a second, greater than 0 and at most 10,000,000"

Text = Annotated[_TEXT, Kind("a non-empty string")]
Texts = Annotated[tuple[str, ...], Kind("a list of strings")]
Names = Annotated[
    tuple[_TEXT, ...], _DIFFERENT, _LISTED, Kind("a name, or a list of different names")
]
Pairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs), Kind("a table of strings")]
SubTable = Annotated[dict[str, Any], Kind("a table, such as [name] and lines below it")]
Day = Annotated[date, Strict(), Kind("a date such as 2026-11-22")]
Flag = Annotated[StrictBool, Kind("true or false")]
Count = Annotated[_COUNT, Kind("a whole number from 1 to 100,000,000")]
Counts = Annotated[
    tuple[_COUNT, ...],
    _SOME,
    _LISTED,
    Kind("a whole number of at least 1, or a list of such numbers"),
]
EvenCount = Annotated[
    int,
    Strict(),
    Field(ge=2, le=1000, multiple_of=2),
    Kind("an even number from 2 to 1,000"),
]
SliceSeconds = Annotated[_SECONDS, Field(ge=0.2), Kind("a number from 0.2 to 86,400")]
Seconds = Annotated[_SECONDS, Kind("a number greater than 0 and at most 86,400")]
Rate = Annotated[_RATE, Kind(_RATE_WORDS)]
Rates = Annotated[
    tuple[_RATE, ...], _DIFFERENT, Kind(f"a list of different rates, each {_RATE_WORDS}")
]
ObjectiveText = Annotated[
    str, AfterValidator(_objective), Kind("an objective such as 'p99 <= 10 ms'")
]
Share = Annotated[_SHARE, Kind("a share of a core from 0.1 to 1")]
Shares = Annotated[
    tuple[_SHARE, ...],
    _DIFFERENT,
    _LISTED,
    Kind("a share of a core from 0.1 to 1, or a list of different shares"),
]
IdleStates = Annotated[
    tuple[Idle, ...], _DIFFERENT, _LISTED, Kind("'polling', 'system', or a list of both")
]
Modes = Annotated[tuple[Mode, ...], _SOME, Kind("a list of 'keepalive' and 'close'")]
Cpus = Annotated[tuple[_CPU, ...], _DIFFERENT, Kind("a list of different numbers of CPUs")]
LoadTables = Annotated[tuple[dict[str, Any], ...], _SOME, Kind("at least one table [[load]]")]


# --- the tables of a server.toml ------------------------------------------------------------------


class ServerFile(TableModel):
    """The top level of a server.toml."""

    server: SubTable | None = None
    build: SubTable | None = None
    run: SubTable | None = None
    image: SubTable | None = None


class ServerTable(TableModel):
    """`[server]`: a server's description, and the parts of the contract that it implements."""

    language: Text
    framework: Text
    tier: Annotated[Tier, _one_of(Tier)]
    implements: Texts
    deviations: Texts = ()
    notes: Text = ""


class BuildTable(TableModel):
    """`[build]`: how the server's binary is built on the host."""

    needs: Texts = ()
    command: Texts = ()
    env: Pairs = ()
    artifact: Text | None = None


class RunTable(TableModel):
    """`[run]`: how the server is started."""

    needs: Texts = ()
    command: Texts = ("{artifact}",)
    secrets: Annotated[Secrets, _one_of(Secrets)] = "environment"


class ImageTable(TableModel):
    """`[image]`: how the server's container image is built."""

    base: Annotated[Base, _one_of(Base)] = "scratch"
    context: Annotated[Context, _one_of(Context)] = "."


# --- the tables in files of workloads and campaigns -----------------------------------------------


class WorkloadFile(TableModel):
    """The top level of a workload's file in runner/workloads/."""

    title: Text
    tool: Annotated[Tool, _one_of(Tool)]
    load_model: Annotated[LoadModel, _one_of(LoadModel)]
    method: Annotated[Method, _one_of(Method)]
    path: Text
    needs: Texts
    script: Text | None = None
    body: Text = ""
    database: Flag = False


class SharedSettings(TableModel):
    """Settings that a campaign can make for all of its loads, and that a load can override."""

    repeats: Count | None = None
    server_share: Shares | None = None
    database_share: Share | None = None
    idle: IdleStates | None = None
    profile: Flag | None = None


class SessionsTable(TableModel):
    """`[sessions]`: how many slices each server has in a session, and how long the slices are."""

    slices: EvenCount | None = None
    slice_s: SliceSeconds | None = None


class CampaignFile(SharedSettings):
    """The top level of a campaign's file."""

    title: Text
    servers: Texts
    load: LoadTables
    copies: Pairs = ()
    processes: Texts = ()
    seed: Count | None = None
    server_cpus: Count | None = None
    database_cpus: Count | None = None
    attempts: Count | None = None
    sample_hz: Seconds | None = None
    environment: SubTable | None = None
    sessions: SubTable | None = None


class LoadTable(SharedSettings, SessionsTable):
    """`[[load]]`: a load. Its `workload` decides which of the sizes the table must contain."""

    workload: Text
    servers: Texts = ()
    not_profiled: Texts = ()
    warmup_s: Seconds | None = None
    modes: Modes = ()
    sessions: Flag = False
    pool_sizes: Counts = ()
    vus: Counts = ()
    iterations: Count | None = None
    connections: Counts = ()
    duration_s: Seconds | None = None
    from_rps: Rate | None = None
    to_rps: Rate | None = None
    steps: Count | None = None
    step_s: Seconds | None = None
    rates_rps: Rates = ()
    rates_pct: Rates = ()
    objective: ObjectiveText | None = None
    bisections: Count | None = None


# --- the tables of a hosts file -------------------------------------------------------------------


class HostsFile(TableModel):
    """The top level of a hosts file."""

    host: SubTable | None = None
    roles: SubTable | None = None


class HostTable(TableModel):
    """`[host.NAME]`: the address of a host, and its Docker engine."""

    engine: Text
    address: Text
    certificates: Text | None = None
    cpus: Cpus = ()


class RolesTable(TableModel):
    """`[roles]`: the host of each role. The roles `database` and `probe` are optional."""

    server: Text
    generators: Names
    database: Text | None = None
    probe: Text | None = None
