"""Checks and set-up before the first trial.

The checks concern disk space, memory, tools, CPUs, the servers' builds, the database, and the
generators' ceilings. A failure in the middle of a campaign costs hours, so everything that can be
checked is checked before the first trial.
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
from runner.generator_traits import TRAITS
from runner.manifest import THE_DATABASE, DatabaseOfRun, HostOfRun, Machine, Manifest
from runner.measure import attached, machine
from runner.measure.compilers import compiler_of
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
    """Everything that trials need, and the errors of servers and databases that cannot start."""

    bench: Bench
    servers: Mapping[str, Ready] = field(default_factory=dict)
    database: DatabaseOfRun | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    """Errors of the servers that cannot start, by the name of the server.

    If the database cannot start, its error has the key THE_DATABASE.
    """
    inputs: Mapping[str, str] = field(
        default_factory=dict
    )  # SHA-256 of the campaign's source files

    def require_unchanged(self) -> None:
        """Raise CannotGoOnError if a source file or a server's binary has changed."""
        servers = [ready.server for ready in self.servers.values()]
        begun = Manifest(inputs=dict(self.inputs))
        said = changed_file(begun, inputs_of(self.bench.campaign, servers))
        if said is not None:
            raise CannotGoOnError(f"{said}: restore the file.")
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
                    f"The binary of {ready.server.name} was rebuilt during the run: restore the "
                    "earlier one."
                )


def changed_file(begun: Manifest, inputs: Mapping[str, str]) -> str | None:
    """Return a message if a source file has changed or disappeared since the run began.

    The message names the first such file. It has no full stop, so that the caller can add the
    remedy. Return None if no source file has changed.
    """
    now = begun.model_copy(update={"inputs": dict(inputs)})
    for difference in begun.differences_from(now):
        if difference.here is not None:
            return f"The run cannot continue: {difference.what} has changed since the run began"
    return None


@dataclass(frozen=True)
class Setting:
    """The machines, CPUs and tools that are available now to the trials of a campaign."""

    opened: Lab
    placement: Placement
    tools: Mapping[str, Tool]
    idle: str
    """State of idle CPUs: `polling`, `system`, or `both` if trials alternate between them."""
    idle_warnings: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        """The facts of this machine or, in a run on several hosts, of the server's host."""
        return self.hosts[0].machine if self.hosts else Machine.of(machine.facts())

    @cached_property
    def hosts(self) -> tuple[HostOfRun, ...] | None:
        """The hosts of the run, or None if everything runs on this machine."""
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
    """Assign CPUs to server, generator and database, and set the state of idle CPUs.

    `planned` are all trials of the campaign, and `trials` are the trials to measure now. Raise
    LabError if there are too few CPUs, if the disk of another host is too small for `trials`, or if
    the campaign compares containers with plain processes, but this run cannot start both.
    """
    _require_containers(opened, campaign)
    placement = place_for(campaign, planned, opened.fleet)
    require_room_there(trials, opened.sites)
    idle = ask_idle(opened, planned)
    warnings = (remedy(opened.idle.problem),) if opened.idle.problem else ()
    return Setting(opened, placement, tools, idle, warnings)


def _require_containers(opened: Lab, campaign: Campaign) -> None:
    """Raise LabError if a campaign needs containers and plain processes, but cannot have both here.

    A campaign needs both if its `processes` lists servers that run as plain processes. The lab can
    start both only on this machine, and only with the Docker engine.
    """
    if not campaign.processes:
        return
    compares = f"The campaign {campaign.name!r} compares containers with plain processes"
    if opened.fleet is not None:
        raise LabError(f"{compares}. The lab can start both only on this machine: omit --hosts.")
    if opened.engine.name != "docker":
        raise LabError(
            f"{compares}, but this run has no Docker engine ({opened.engine.reason}): start a "
            "Docker engine, and omit --engine process."
        )


def place_for(campaign: Campaign, trials: Sequence[Trial], fleet: Fleet | None = None) -> Placement:
    """Return the CPUs of server, generator and database, here or on the hosts of `fleet`.

    The database gets CPUs only if a trial uses a database. A server that already runs keeps its
    CPUs, and the generator gets the other CPUs.
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
    """Return the calibration of this machine or, in a run on several hosts, of the hosts.

    Return None if there is no calibration. Also return None if the calibration was made on another
    machine, with other versions of the tools, or with another number of generator CPUs.
    """
    fleet = setting.opened.fleet
    found = load_calibration(of_hosts=fleet is not None)
    cpus = (
        len(setting.placement.generator)
        if fleet is None
        else sum(host.cpus for host in fleet.sites.generator_hosts)
    )
    return found if found and found.valid_for(setting.machine, setting.versions, cpus) else None


def tools_of(trials: Sequence[Trial], *, on_hosts: bool) -> dict[str, Tool]:
    """Return the generators that the trials need, by their names.

    `on_hosts` is True if the generators run on other hosts. Raise LabError if a generator is
    missing, or if it would have to run on another host but cannot.
    """
    names = sorted({str(trial.cell.tool) for trial in trials})
    for name in names:
        if on_hosts and not TRAITS[name].runs_on_hosts:
            raise LabError(
                f"{name} runs only on this machine, but --hosts puts the load generators on "
                "other hosts: choose a campaign with loads of k6 and wrk only, or omit --hosts."
            )
    return {name: need_tool(name) for name in names}


def ask_idle(opened: Lab, trials: Sequence[Trial]) -> str:
    """Set the state of idle CPUs as the trials request, and return the state.

    The state is `polling` if idle CPUs are kept out of sleep states, and `system` if the system
    decides whether they sleep. If some trials request `polling` and other trials request `system`,
    return `both`. If the state `polling` cannot be set, return `system`.
    """
    asked = {trial.cell.idle for trial in trials}
    if "polling" in asked:
        opened.idle.ask("polling")
    if len(asked) > 1 and opened.idle.state == "polling":
        return "both"
    return opened.idle.state


def greet(opened: Lab, warnings: Iterable[str], say: Callable[[str], None]) -> None:
    """Report the leftovers that were removed, the engine, and warnings about this machine."""
    if opened.reaped:
        say(
            "Removed leftovers of a run that ended without cleaning up: "
            f"{', '.join(opened.reaped)}."
        )
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
    """Build the servers, and start the database once as a test.

    If a server or the database cannot start, store the error and continue, because only the trials
    that need this server or the database will fail. But if a user's own server cannot start, raise
    LabError.
    """
    engine = opened.engine
    ready = {}
    errors = {}
    database = None
    for server in servers:
        if engine.name != "attached" and not (server.run_command and not server.contract):
            say(f"Building {server.name} …")
        try:
            binary = build(server)
            image = opened.engine_for(campaign, server).prepare(server)
            ready[server.name] = Ready(server, image, binary, _compiler_of(server))
        except LabError as error:
            if campaign.owns:
                raise
            errors[server.name] = str(error)
    if placement.database:
        say("Testing the database …")
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


def _compiler_of(server: Server) -> str | None:
    """Return the compiler that built a server's binary, or None if the compiler is unknown.

    The compiler's name is read from the binary on this machine, even if the server runs in a
    container, because the server's image contains the same binary.
    """
    return compiler_of(server.folder / server.artifact) if server.artifact else None


BYTES_A_REQUEST = 200
"""Upper estimate of the disk space that each request of a load needs, in bytes.

In measurements, a request took 102 bytes in k6's gzipped samples, and 39 bytes in the table of
requests.
"""
BYTES_A_TRIAL = 2 * 2**20
"""Upper estimate of the size of those files of a trial that do not contain requests, in bytes.

In measurements, these files together took up to 1 MiB.
"""
SPARE_BYTES = 256 * 2**20
TEMPORARY_BYTES = 64 * 2**20
"""Disk space for the files of a warm-up, and for a server's temporary files."""
# Upper estimate of the memory of runner, instruments, server and PostgreSQL together. In a
# measurement with a pool of 500 connections, they used 400 MiB.
MEMORY_BYTES = 512 * 2**20
MEMBER_BYTES = 256 * 2**20
"""Upper estimate of the memory of each further server of a session, including its PostgreSQL."""


def bytes_of(cell: Cell) -> int:
    """Return an upper estimate of the disk space that a trial's files take, in bytes."""
    return BYTES_A_TRIAL + BYTES_A_REQUEST * GENERATORS[cell.tool].kept_requests(cell)


@dataclass(frozen=True)
class Room:
    """The disk space, memory and open files that this machine has left for trials.

    The trials write their raw samples to `folder`.
    """

    folder: Path
    disk_bytes: int
    """Free bytes on the disk of `folder`."""
    temporary_bytes: int
    """Free bytes on the disk of temporary files."""
    memory_bytes: int
    open_files: int
    """Largest number of files that this user may have open, or RLIM_INFINITY if unlimited."""

    @classmethod
    def of(cls, folder: Path) -> Room:
        """Return the disk space, memory and open files that are left now."""
        return cls(
            folder,
            disk_bytes=free_bytes(folder),
            temporary_bytes=free_bytes(Path(tempfile.gettempdir())),
            memory_bytes=available_bytes(),
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        )


def require_room(trials: Sequence[Trial], room: Room) -> None:
    """Raise LabError if the trials need more disk space, memory or open files than `room` has."""
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
        "set TMPDIR to a folder on another disk",
    )
    _require(
        memory,
        room.memory_bytes,
        "of memory",
        "end other programs, or ask for fewer virtual users or iterations",
    )
    if allowed != resource.RLIM_INFINITY and allowed < files:
        raise LabError(
            f"{connections} connections need {files} open files, but `ulimit -Hn` allows "
            f"{allowed}: as root, run `ulimit -n {max(65_536, files)}`, or set `nofile` in "
            "/etc/security/limits.conf.",
            exit_code=1,
        )


def require_room_there(trials: Sequence[Trial], sites: Sites) -> None:
    """Raise LabError if the disk of another host is too small for the files of the largest load."""
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
            f"The trials need about {needed / 2**30:.2g} GiB {where}, but only "
            f"{there / 2**30:.2g} GiB are free: free some space, or {remedy}.",
            exit_code=1,
        )
