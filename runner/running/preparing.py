"""Checks and set-up before the first trial.

Room, tools, CPUs, built servers, a database that starts, and ceilings. A failure in the middle of a
campaign costs hours, so everything that can be checked is checked before it begins.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runner.calibration import Calibration, load_calibration
from runner.manifest import THE_DATABASE, DatabaseOfRun, HostOfRun, Machine, Manifest
from runner.measure import attached, machine
from runner.measure.database import try_database
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.idle import remedy
from runner.measure.lab import Lab
from runner.measure.loading import Bench
from runner.measure.machine import OTHER_FILES
from runner.measure.memory import available_bytes
from runner.measure.session import Ready
from runner.measure.sites import Sites
from runner.measure.tools import Tool, build, need_tool
from runner.measurement import Placement
from runner.model import Campaign, CannotGoOnError, Cell, LabError, Server, Trial
from runner.planning.catalog import campaign_workload, inputs_of
from runner.planning.plan import by_session
from runner.store import free_bytes, sha256

if TYPE_CHECKING:
    from runner.measure.fleet import Fleet


@dataclass(frozen=True)
class Prepared:
    """Everything that trials need, and why a server or the database is missing."""

    bench: Bench
    servers: Mapping[str, Ready] = field(default_factory=dict)
    database: DatabaseOfRun | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    """By the server's name, or THE_DATABASE."""
    inputs: Mapping[str, str] = field(
        default_factory=dict
    )  # SHA-256 of the files that the campaign is made from

    def require_unchanged(self) -> None:
        """Raise CannotGoOnError where a file, or a binary that is run as it lies there, is another
        one by now.
        """
        servers = [ready.server for ready in self.servers.values()]
        begun = Manifest(inputs=dict(self.inputs))
        said = changed_file(begun, inputs_of(self.bench.campaign, servers))
        if said is not None:
            raise CannotGoOnError(f"{said}: put it back.")
        for ready in self.servers.values():
            run_as_it_is = (
                ready.image is None
                and ready.binary is not None
                and ready.server.artifact is not None
            )
            if (
                run_as_it_is
                and sha256(ready.server.folder / str(ready.server.artifact)) != ready.binary
            ):
                raise CannotGoOnError(
                    f"The binary of {ready.server.name} was built anew: put back what it was from."
                )


def changed_file(begun: Manifest, inputs: Mapping[str, str]) -> str | None:
    """Say which file that a run began with is not what it was, or not there; None if all are the
    same.
    """
    now = begun.model_copy(update={"inputs": dict(inputs)})
    for difference in begun.differences_from(now):
        if difference.here is not None:
            return f"The run cannot go on: {difference.what} is not the file that it began with"
    return None


@dataclass(frozen=True)
class Setting:
    """Where and with what the trials of a campaign run, as it is now."""

    opened: Lab
    placement: Placement
    tools: Mapping[str, Tool]
    idle: str
    """What idle CPUs do: `polling`, `system`, or `both` in turn."""
    idle_warnings: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The machine; of several hosts the server's."""
        return self.hosts[0].machine if self.hosts else Machine.of(machine.facts())

    @cached_property
    def hosts(self) -> tuple[HostOfRun, ...] | None:
        """The hosts; None if all runs on this machine."""
        fleet = self.opened.fleet
        return None if fleet is None else tuple(map(HostOfRun.of, fleet.facts()))

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the generators that the trials need, by name."""
        return {name: tool.version for name, tool in self.tools.items()}


def set_up(
    opened: Lab,
    campaign: Campaign,
    planned: Sequence[Trial],
    trials: Sequence[Trial],
    tools: Mapping[str, Tool],
) -> Setting:
    """Place the parts of a campaign on CPUs, and have idle CPUs do what it asks.

    `planned` are all of its trials, `trials` those that are to be measured. LabError if there is no
    room for them.
    """
    placement = place_for(campaign, planned, opened.fleet)
    require_room_there(trials, opened.sites)
    idle = ask_idle(opened, planned)
    warnings = (remedy(opened.idle.problem),) if opened.idle.problem else ()
    return Setting(opened, placement, tools, idle, warnings)


def place_for(campaign: Campaign, trials: Sequence[Trial], fleet: Fleet | None = None) -> Placement:
    """Return which CPUs each side gets, here or on the hosts of `fleet`.

    A database only if a trial has one.

    A server that runs already keeps its CPUs, and the generator gets the others.
    """
    if any(api.url is not None for api in campaign.owns):
        return attached.place(campaign.owns)
    needed = any(
        campaign_workload(campaign, name).database
        for name in {trial.cell.workload for trial in trials}
    )
    place = machine.place if fleet is None else fleet.place
    return place(campaign.server_cpus, campaign.database_cpus if needed else 0)


def calibration_for(setting: Setting) -> Calibration | None:
    """Return the calibration of this machine, or of the hosts, if it was made with these tools on
    as many CPUs.
    """
    fleet = setting.opened.fleet
    found = load_calibration(of_hosts=fleet is not None)
    cpus = (
        len(setting.placement.generator)
        if fleet is None
        else sum(host.cpus for host in fleet.sites.generator_hosts)
    )
    return found if found and found.valid_for(setting.machine, setting.versions, cpus) else None


def tools_of(trials: Sequence[Trial]) -> dict[str, Tool]:
    """Return the generators that the trials need; LabError if one is missing."""
    return {name: need_tool(name) for name in sorted({str(trial.cell.tool) for trial in trials})}


def ask_idle(opened: Lab, trials: Sequence[Trial]) -> str:
    """Have idle CPUs do what the trials ask; return `polling`, `system`, or `both` in turn."""
    asked = {trial.cell.idle for trial in trials}
    if "polling" in asked:
        opened.idle.ask("polling")
    if len(asked) > 1 and opened.idle.state == "polling":
        return "both"
    return opened.idle.state


def greet(opened: Lab, warnings: Iterable[str], say: Callable[[str], None]) -> None:
    """Say what was cleaned up, which engine is used, and what on this machine can spoil the
    numbers.
    """
    if opened.reaped:
        say(f"Removed what a run that died had left: {', '.join(opened.reaped)}.")
    word = "NO CONTAINERS. Engine" if opened.engine.name == "process" else "Engine"
    say(f"{word}: {opened.engine.name} ({opened.engine.reason}).")
    for warning in warnings:
        say(f"Warning: {warning}")


def prepare(
    opened: Lab,
    campaign: Campaign,
    servers: Sequence[Server],
    placement: Placement,
    tools: Mapping[str, Tool],
    calibration: Calibration | None,
    say: Callable[[str], None],
) -> Prepared:
    """Build the servers and try the database.

    What is missing fails its trials, and a user's API the campaign.
    """
    engine = opened.engine
    ready = {}
    errors = {}
    database = None
    for server in servers:
        if engine.name != "attached":
            say(f"Building {server.name} …")
        try:
            binary = build(server)
            ready[server.name] = Ready(server, engine.prepare(server), binary)
        except LabError as error:
            if campaign.owns:
                raise
            errors[server.name] = str(error)
    if placement.database:
        say("Trying the database …")
        try:
            database = DatabaseOfRun.of(try_database(engine, placement.database))
        except LabError as error:
            errors[THE_DATABASE] = str(error)
    for said in errors.values():
        say(f"Error: {said}")
    paths = {name: tool.path for name, tool in tools.items()}
    bench = Bench(opened, opened.sites, campaign, placement, paths, calibration)
    return Prepared(
        bench,
        ready,
        database,
        errors,
        inputs_of(campaign, [each.server for each in ready.values()]),
    )


BYTES_A_REQUEST = 200  # seen: 102 of k6's gzipped samples and 39 in the table of requests
BYTES_A_TRIAL = 2 * 2**20  # of all else; seen: up to one MiB
SPARE_BYTES = 256 * 2**20
TEMPORARY_BYTES = 64 * 2**20  # a warm-up, a server's temporary files
MEMORY_BYTES = (
    512 * 2**20
)  # runner, instruments, a server, PostgreSQL; seen: 400 MiB with a pool of 500 connections
MEMBER_BYTES = 256 * 2**20  # each further server of a session, with its PostgreSQL


def bytes_of(cell: Cell) -> int:
    """Return an upper estimate of what a trial leaves on the disk, in bytes."""
    return BYTES_A_TRIAL + BYTES_A_REQUEST * GENERATORS[cell.tool].kept_requests(cell)


@dataclass(frozen=True)
class Room:
    """What this machine has left for trials whose raw samples go to `folder`."""

    folder: Path
    disk_bytes: int
    """Free bytes on the disk of `folder`."""
    temporary_bytes: int
    """Free bytes on the disk of temporary files."""
    memory_bytes: int
    open_files: int
    """The number of open files that this user may have at most; RLIM_INFINITY without a limit."""

    @classmethod
    def of(cls, folder: Path) -> Room:
        """Return what is left now."""
        return cls(
            folder,
            disk_bytes=free_bytes(folder),
            temporary_bytes=free_bytes(Path(tempfile.gettempdir())),
            memory_bytes=available_bytes(),
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        )


def require_room(trials: Sequence[Trial], room: Room) -> None:
    """Raise LabError if a disk, the memory or the open files are too few for the trials."""
    connections = max((trial.cell.sockets for trial in trials), default=0)
    disk = SPARE_BYTES + sum(bytes_of(trial.cell) for trial in trials)
    memory = MEMORY_BYTES + MEMBER_BYTES * max(
        (len(unit) - 1 for unit in by_session(trials)), default=0
    )
    memory += max(
        (GENERATORS[trial.cell.tool].memory_bytes(trial.cell.slice(1)) for trial in trials),
        default=0,
    )
    files = connections + OTHER_FILES
    allowed = room.open_files
    _require(
        disk,
        room.disk_bytes,
        f"on the disk of {room.folder}",
        "make the trials smaller with --scale or --repeats",
    )
    _require(
        TEMPORARY_BYTES,
        room.temporary_bytes,
        f"in {tempfile.gettempdir()}",
        "set TMPDIR to a folder elsewhere",
    )
    _require(
        memory,
        room.memory_bytes,
        "of memory",
        "end other programs, or ask for fewer virtual users or iterations",
    )
    if allowed != resource.RLIM_INFINITY and allowed < files:
        raise LabError(
            f"{connections} connections need {files} open files, and `ulimit -Hn` allows "
            f"{allowed}: as root, `ulimit "
            f"-n {max(65_536, files)}`, or set `nofile` in /etc/security/limits.conf.",
            exit_code=1,
        )


def require_room_there(trials: Sequence[Trial], sites: Sites) -> None:
    """Raise LabError if the disk of another host is too small for the largest load's files."""
    needed = SPARE_BYTES + max(bytes_of(trial.cell) for trial in trials)
    for site in sites.generators:
        if (free := site.room()) is not None:
            _require(
                needed,
                free,
                f"on the disk of the host of the {site.name}",
                "make the loads smaller with --scale",
            )


def _require(needed: int, there: int, where: str, remedy: str) -> None:
    if there < needed:
        raise LabError(
            f"The trials need about {needed / 2**30:.2g} GiB {where}, and {there / 2**30:.2g} are "
            f"free: free some, or {remedy}.",
            exit_code=1,
        )
