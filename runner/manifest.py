"""The manifest of a run (run.json): its campaign, programs, tools and machine.

The types are lenient, because the manifest of another version may lack a field, or contain further
fields. A missing field gets a default. An unknown field is kept, so that it is not lost when the
manifest is written again. `Manifest.differences_from` compares the conditions of two runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict, model_validator

from runner.measurement import Placement

THE_DATABASE = "the database"  # name of the database in a list of servers
MACHINE_FACTS = ("cpu_model", "cpus", "kernel", "governor", "turbo", "hypervisor")
"""Names of the facts of a machine that affect measured numbers, except the memory.

The memory is not listed here, because `Machine.fingerprint` adds it, rounded to GiB.
"""
BYTES_OF_A_GIB = 2**30


# --- conditions that differ between two runs ------------------------------------------------------

Value: TypeAlias = str | int | float | bool | tuple[str | int, ...] | Mapping[str, str] | None


class Condition(StrEnum):
    """The kinds of conditions that may differ between two runs."""

    MACHINE = "machine"
    HOSTS = "hosts"
    ENGINE = "engine"
    IDLE_CPUS = "idle CPUs"
    CPUS = "CPUs"
    DATABASE_CPUS = "CPUs of the database"
    SAMPLING = "sampling"
    REQUESTS = "requests"  # requests that are sent to a user's API
    TOOL = "tool"
    DATABASE = "database"
    COMMIT = "commit"
    VARIABLES = "variables"
    COMPILER = "compiler"
    BINARY = "binary"  # a server's binary; `Difference.what` is the server's name
    IMAGE = "image"  # an image; `Difference.what` is the server's name, or THE_DATABASE
    PROGRAM = "program"  # a server's binary or image, and its variables; `what` is the server
    INPUT = "input"  # a source file of the campaign; `Difference.what` is the file's name


IF_BOTH_KNOW = {Condition.COMPILER}
"""Conditions that are compared only if the manifests of both runs contain them."""


@dataclass(frozen=True)
class Difference:
    """A condition that differs between two runs.

    `condition` is the kind of the condition, and `what` is its name. `here` is the condition's
    value in the first run, and `there` is its value in the second run. An unknown value is None.
    """

    condition: Condition
    what: str
    here: Value
    there: Value

    @property
    def here_in_words(self) -> str:
        """The value in the first run, as a text."""
        return in_words(self.here)

    @property
    def there_in_words(self) -> str:
        """The value in the second run, as a text."""
        return in_words(self.there)

    def __str__(self) -> str:
        return f"{self.what} ({self.here_in_words} and {self.there_in_words})"


def in_words(value: Value) -> str:
    """Return a value of a manifest as a text."""
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {given}" for name, given in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


# --- the parts of a manifest ----------------------------------------------------------------------

Int: TypeAlias = Annotated[int, Strict()]
Number: TypeAlias = Annotated[float, Strict()]
Flag: TypeAlias = Annotated[bool, Strict()]


class Facts(BaseModel):
    """Base class of all parts of a manifest: fields have defaults, and unknown fields are kept.

    An instance is frozen. Values are not converted, so a number that is written as text is an
    error. A null counts as a missing field, unless None is the default of the field.
    """

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: value
            for name, value in given.items()
            if value is not None or cls._may_be_null(name)
        }

    @classmethod
    def _may_be_null(cls, name: str) -> bool:
        """Return True if null is a value of the field, and does not stand for a missing field."""
        field = cls.model_fields.get(name)
        return field is None or field.default is None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return an instance with these JSON values; raise ValidationError for a wrong type."""
        return cls.model_validate(facts)

    def says(self, name: str) -> bool:
        """Return True if the file contains the field, and False if its value is the default."""
        return name in self.model_fields_set

    def as_json(self) -> dict[str, Any]:
        """Return the fields in the form of run.json, without fields that were not given."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Git(Facts):
    """The commit of the lab, and whether the checkout had changed or untracked files."""

    commit: str | None = None
    dirty: Flag = False


class Machine(Facts):
    """Facts of a machine.

    A fact is None if the machine does not provide it, or if an older run did not record it.
    """

    cpu_model: str | None = None
    cpus: Int | None = None
    smt_siblings: tuple[tuple[Int, ...], ...] = ()
    memory_bytes: Int | None = None
    kernel: str | None = None
    os: str | None = None
    hypervisor: Flag | None = None
    governor: str | None = None
    turbo: Flag | None = None
    cgroup_version: Int | None = None
    clock_source: str | None = None
    somaxconn: Int | None = None
    ephemeral_ports: tuple[Int, ...] = ()
    tcp_tw_reuse: Int | None = None
    nf_conntrack_max: Int | None = None
    open_files: Int | None = None

    @property
    def memory_gib(self) -> int | None:
        """Memory in whole GiB.

        The memory is rounded, because at each boot the kernel reserves a different number of MiB.
        """
        return None if self.memory_bytes is None else round(self.memory_bytes / BYTES_OF_A_GIB)

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits of a SHA-256 over the facts on which measured numbers depend.

        Machines with the same fingerprint count as the same machine. An unknown fact is included as
        null.
        """
        known = {name: getattr(self, name) for name in MACHINE_FACTS}
        known["memory_gib"] = self.memory_gib
        text = json.dumps(known, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def conditions(self) -> Iterator[tuple[str, Value]]:
        """Yield name and value of each fact that `fingerprint` contains."""
        for name in MACHINE_FACTS:
            yield name, getattr(self, name)
        yield "memory", None if self.memory_gib is None else f"{self.memory_gib} GiB"


class HostOfRun(Facts):
    """One of several hosts: its roles, the CPUs used, the error of its clock, and its machine."""

    roles: str = ""
    cpus_used: tuple[Int, ...] = ()
    clock_error_ns: Int | None = None
    machine: Machine = Field(default_factory=Machine)


class PlacementOfRun(Facts):
    """The CPUs of server, generator and database.

    `disjoint` is True if server and generator shared no CPU. `database_shared` is True if the
    database shared CPUs with the generator.
    """

    server: tuple[Int, ...] = ()
    generator: tuple[Int, ...] = ()
    database: tuple[Int, ...] = ()
    hosts: tuple[str, ...] = ()
    """Ids of the machines, as in `Placement.hosts`."""
    disjoint: Flag = True
    database_shared: Flag = False

    @classmethod
    def of_placement(cls, placement: Placement) -> PlacementOfRun:
        """Return the manifest's entry for a placement."""
        place = cls(
            server=placement.server,
            generator=placement.generator,
            database=placement.database,
            disjoint=placement.disjoint,
            database_shared=placement.database_shared,
        )
        return place.model_copy(update={"hosts": placement.hosts}) if placement.hosts else place

    def cpus_of(self, subject: str) -> tuple[int, ...]:
        """Return the CPUs of `server`, `generator` or `database`, or () for any other subject."""
        known = {"server": self.server, "generator": self.generator, "database": self.database}
        return known.get(subject, ())


class DatabaseOfRun(Facts):
    """The database: its version, image and settings. The image is None if it ran as processes."""

    version: str | None = None
    image: str | None = None
    settings: dict[str, str] = Field(default_factory=dict)


class LoadOfRun(Facts):
    """A `[[load]]` in a manifest, with types only for the fields that readers of manifests use.

    The other fields of the load are kept unchanged. `campaign_from_manifest` returns loads with
    types for all fields.
    """

    workload: str | None = None
    warmup_s: Number | None = None
    duration_s: Number | None = None
    from_rps: Number | None = None
    to_rps: Number | None = None
    objective: str | None = None


class ApiOfRun(Facts):
    """A user's API, with those fields of `runner.model.UserApi` that readers of manifests use."""

    name: str | None = None
    path: str | None = None
    probe_path: str | None = None
    url: str | None = None
    address: str | None = None
    port: Int | None = None
    process: str | None = None
    folder: str | None = None
    script: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    also: tuple[Int, ...] = ()


class CampaignOfRun(Facts):
    """The campaign as it was run, with its original TOML.

    `scale` is the factor by which the iterations and durations of the TOML were multiplied.
    """

    name: str | None = None
    title: str | None = None
    servers: tuple[str, ...] = ()
    loads: tuple[LoadOfRun, ...] = ()
    server_cpus: Int | None = None
    sample_hz: Number | None = None
    database_cpus: Int | None = None
    attempts: Int | None = None
    environment: tuple[tuple[str, str, str], ...] = ()
    """Environment variables of servers, each as (server, name, value)."""
    copies: tuple[tuple[str, str], ...] = ()
    """Copies of servers, each as (name of the copy, name of the server)."""
    processes: tuple[str, ...] = ()
    """Servers that ran as plain processes, while all other servers ran as containers."""
    own: ApiOfRun | tuple[ApiOfRun, ...] | None = None
    toml: str | None = None
    scale: Number = 1.0

    @property
    def apis(self) -> tuple[ApiOfRun, ...]:
        """The user's APIs. In the file, a single API may be an object, but several are a list."""
        if self.own is None:
            return ()
        return self.own if isinstance(self.own, tuple) else (self.own,)

    def variables_of(self, server: str | None = None) -> tuple[str, ...]:
        """Return a server's environment variables as texts such as `NAME=VALUE of SERVER`.

        If `server` is None, return the variables of all servers.
        """
        return tuple(
            f"{name}={value} of {owner}"
            for owner, name, value in self.environment
            if server in (None, owner)
        )


# --- the manifest ---------------------------------------------------------------------------------


class FileOfRun(Facts):
    """A file of an imported run.

    The fields are the file's name, the server that the file is about (`subject`), and the size and
    SHA-256 that the file had when it was imported.
    """

    name: str = ""
    subject: str = ""
    bytes: Int = 0
    sha256: str = ""


class Origin(Facts):
    """The files from which a run was imported, in the order of the run's trials."""

    files: tuple[FileOfRun, ...] = ()


class Manifest(Facts):
    """The content of run.json: campaign, programs and machine.

    The file is written before the first trial.
    """

    schema_version: Int | None = Field(default=None, alias="schema")
    run_id: str = ""
    started_at: str | None = None
    """When the run began: ISO 8601, in UTC."""
    campaign: CampaignOfRun = Field(default_factory=CampaignOfRun)
    seed: Int | None = None
    git: Git | None = None
    """Commit of the lab; None outside a git checkout."""
    machine: Machine = Field(default_factory=Machine)
    """The machine of the run; if there are several hosts, the server's machine."""
    hosts: tuple[HostOfRun, ...] | None = None
    """Hosts of a run on several machines; None if everything ran on one machine."""
    tools: dict[str, str] = Field(default_factory=dict)
    """Versions of programs, by name."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of Python packages, by name."""
    engine: str | None = None
    engine_reason: str | None = None
    placement: PlacementOfRun = Field(default_factory=PlacementOfRun)
    images: dict[str, str] = Field(default_factory=dict)
    """Digest of each server's image."""
    artifacts: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each server's binary."""
    compilers: dict[str, str] = Field(default_factory=dict)
    """Name and version of the compiler of each server's binary, if the compiler is known."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each source file of the campaign."""
    claims_sha256: str | None = None
    """SHA-256 of the file that contains the published claims and the rules that judge them."""
    database: DatabaseOfRun | None = None
    calibration: dict[str, JsonValue] | None = None
    """The calibration, in the form of `runner.calibration.Calibration`.

    Only the class `Calibration` reads this value.
    """
    idle: str | None = None
    """State of idle CPUs: `polling`, `system`, or `both` if the state alternated between trials."""
    until: str | None = None
    origin: Origin | None = None
    """The files of an imported run; None for any other run."""
    host_warnings: tuple[str, ...] = ()

    @property
    def idle_cpus(self) -> str:
        """State of idle CPUs.

        If the manifest does not contain the state, the state was `system`, because the version of
        the lab that made the run knew no other state.
        """
        return self.idle or "system"

    @property
    def day(self) -> str:
        """The day on which the run began, such as 2026-11-26. Empty if the day is unknown."""
        return (self.started_at or "")[:10]

    def program_of(self, server: str) -> str | None:
        """Return the SHA-256 of a server's binary, or else the digest of the server's image.

        Return None if both are unknown.
        """
        return self.artifacts.get(server) or self.images.get(server)

    def differences_from(self, other: Manifest) -> tuple[Difference, ...]:
        """Return the conditions that differ between this run and `other`, and may affect numbers.

        All code that compares runs calls this function, and ignores the kinds of differences that
        do not matter to it.

        The compared conditions are the machine and the hosts, the engine, the state of idle CPUs,
        the placement of CPUs, the sampling rate, the requests to a user's API, the versions of
        tools and database, the lab's commit, the servers' environment variables, compilers,
        binaries and images, and the campaign's source files. A compiler is compared only if the
        manifests of both runs contain it.

        These are not compared: names, dates, seeds, plans, Python packages, warnings, and facts of
        a machine on which no number depends.
        """
        here = dict(self._conditions())
        there = dict(other._conditions())
        return tuple(
            Difference(condition, what, here.get((condition, what)), there.get((condition, what)))
            for condition, what in dict.fromkeys([*here, *there])
            if here.get((condition, what)) != there.get((condition, what))
            and (condition not in IF_BOTH_KNOW or {(condition, what)} <= here.keys() & there.keys())
        )

    def _conditions(self) -> Iterator[tuple[tuple[Condition, str], Value]]:
        """Yield the kind and the name of each condition, with the condition's value.

        The order of the conditions is the order in which readers see differences.
        """
        for name, value in self.machine.conditions():
            yield (Condition.MACHINE, name), value
        machines = (f"{host.roles}: {host.machine.fingerprint}" for host in self.hosts or ())
        yield (Condition.HOSTS, "machines of the hosts"), tuple(machines)
        yield (Condition.ENGINE, "engine"), self.engine
        yield (Condition.ENGINE, "plain processes"), self.campaign.processes
        yield (Condition.IDLE_CPUS, "idle CPUs"), self.idle_cpus
        yield (Condition.CPUS, "CPUs of the server"), self.placement.server
        yield (Condition.CPUS, "CPUs of the generator"), self.placement.generator
        yield (Condition.CPUS, "hosts of the CPUs"), self.placement.hosts
        yield (Condition.DATABASE_CPUS, "CPUs of the database"), self.placement.database
        yield (Condition.SAMPLING, "samples per second"), self.campaign.sample_hz
        yield from self._conditions_of_requests()
        for tool in sorted(self.tools):
            yield (Condition.TOOL, tool), self.tools[tool]
        yield from self._conditions_of_database()
        yield (Condition.COMMIT, "commit"), self._commit()
        variables = self.campaign.variables_of()
        yield (Condition.VARIABLES, "variables of the servers"), variables
        for server, compiler in self.compilers.items():
            yield (Condition.COMPILER, f"compiler of {server}"), compiler
        yield from self._conditions_of_servers()
        for name, digest in self.inputs.items():
            yield (Condition.INPUT, name), digest

    def _conditions_of_requests(self) -> Iterator[tuple[tuple[Condition, str], Value]]:
        """Yield the conditions about the requests to a user's API.

        The requests are compared because two runs of the same API may send different requests. All
        APIs of a run get the same requests, so only the first API's requests are compared.
        """
        api = next(iter(self.campaign.apis), ApiOfRun())
        files = tuple(f"{name} {digest[:12]}" for name, digest in api.files)
        yield (Condition.REQUESTS, "path"), api.path
        yield (Condition.REQUESTS, "script"), files

    def _conditions_of_database(self) -> Iterator[tuple[tuple[Condition, str], Value]]:
        if self.database is None:
            return
        settings = self.database.settings if self.database.says("settings") else None
        yield (Condition.DATABASE, "PostgreSQL"), self.database.version
        yield (Condition.DATABASE, "its settings"), settings
        yield (Condition.IMAGE, THE_DATABASE), self.database.image

    def _conditions_of_servers(self) -> Iterator[tuple[tuple[Condition, str], Value]]:
        owners = (server for server, _, _ in self.campaign.environment)
        for server in dict.fromkeys([*self.artifacts, *self.images, *owners]):
            program = self.program_of(server) or "unknown"
            yield (
                (Condition.PROGRAM, server),
                (program, *self.campaign.variables_of(server)),
            )
        for server, digest in self.artifacts.items():
            yield (Condition.BINARY, server), digest
        for server, image in self.images.items():
            yield (Condition.IMAGE, server), image

    def _commit(self) -> str:
        git = self.git or Git()
        dirty = " with uncommitted changes" if git.dirty else ""
        return f"{(git.commit or 'unknown')[:12]}{dirty}"
