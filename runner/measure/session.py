"""Measure a session: start, check and warm up its servers, load them in turn, and stop them.

The results are raw files and Measurements. A single trial is a session of one server with one load.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from runner.contract import quick_check
from runner.generator_traits import TRAITS
from runner.measure.counters import read_counters, settle
from runner.measure.database import Database, serving
from runner.measure.engine import (
    LOOPBACK,
    UNKNOWN_PID,
    Running,
    require_answer,
    wait_answer,
    wait_ready,
)
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.generators.command import Shot, WarmedUp, shot_of
from runner.measure.loading import (
    Bench,
    ProbeSeries,
    Watchers,
    generate,
    watching,
    write_rows,
    write_samples,
)
from runner.measure.memory import Kills
from runner.measure.sites import Job, Site
from runner.measure.warming import answer_s, probe_hz, users_of, warm_up
from runner.measurement import (
    Counters,
    DatabaseUse,
    Footprint,
    Loaded,
    LoadFacts,
    Measurement,
    Part,
    Placement,
    Quota,
    Slice,
    Spent,
    ended,
)
from runner.model import (
    OWN,
    OWN_GET,
    OWN_SCRIPT,
    CannotGoOnError,
    Cell,
    LabError,
    Server,
    Subject,
    Workload,
)
from runner.shapes import ForTime
from runner.store import OF_GENERATORS, public, raw_name

TAG = "load"
"""The measured load inserts database rows with this prefix in the column `firmware`.

If the load has slices, the number of the slice follows the prefix. The column need not also name
the trial, because each trial has a database of its own.
"""
PROBE_TAG = "probe"
BY_AFFINITY = {"GODEBUG": "containermaxprocs=0,updatemaxprocs=0"}
"""Environment variable that keeps Go from adapting to a CPU quota.

Without this variable, Go would read the quota when the server starts and whenever the quota
changes. Other runtimes need no such variable, because they read the quota only when the server
starts, and the lab sets the quota later.
"""


@dataclass(frozen=True)
class Observed:
    """A server under load, and its database if it has one."""

    server: Running
    database: Running | None


Instrument = Callable[[Observed, int, Path], contextlib.AbstractContextManager[None]]
"""A function that observes a server during a load, and writes raw files to a folder.

The function's arguments are the server with its database, the place of the load's slice, and the
folder. The place is the slice's number among the slices of this server in the session, from 1.
"""


def nothing(
    _observed: Observed, _place: int, _folder: Path
) -> contextlib.AbstractContextManager[None]:
    """Observe nothing. All trials that do not profile the servers use this instrument."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Ready:
    """A server that is built and can be started."""

    server: Server
    image: str | None
    binary: str | None  # SHA-256 of the binary built on the host
    compiler: str | None = None  # name and version of the compiler that built the binary, if known


@dataclass(frozen=True)
class Member:
    """One server of a session, with its load and the folder of its raw files."""

    trial_id: str
    ready: Ready
    cell: Cell
    folder: Path


@dataclass
class _Live:
    """A member's started server, and the results of its loads so far."""

    member: Member
    workload: Workload
    running: Running
    database: Database | None
    killed_before: Kills
    footprint: Footprint
    placement: Placement
    quota: Quota  # the quota that was set outside the lab
    probe_hz: float = 0.0  # the probe's rate, derived from the warm-up
    users: int | None = None
    """Number of users, derived from the warm-up. None if the load needs no such number."""
    slices: list[Slice] = field(default_factory=list)
    stored: list[DatabaseUse] = field(default_factory=list)
    """For each load of the server so far, the database's counters before the load.

    In these entries, the field `after` is a copy of `before`. When all loads are over, `_stop`
    reads the counters after the loads, and stores complete entries in `slices`.
    """
    probed: list[ProbeSeries] = field(default_factory=list)
    died: int | None = None
    # `exit_code` and `oom_kills` are None until the server is stopped.
    exit_code: int | None = None
    oom_kills: int | None = None
    error: LabError | None = None
    """The error that keeps this server from being measured, or None if there is no error.

    The session continues with the other servers.
    """

    @property
    def subject(self) -> str:
        """The server's name in the sampler."""
        return f"server {self.member.trial_id}"

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Store an error of this server, so that the session continues with the other servers."""
        try:
            yield
        except CannotGoOnError:
            raise
        except LabError as error:
            self.error = error


def measure(
    bench: Bench,
    workload: Workload,
    members: Sequence[Member],
    order: Sequence[tuple[str, int]],
    on_step: Callable[[str], None],
    instrument: Instrument = nothing,
) -> dict[str, Measurement | LabError]:
    """Measure a session; return the Measurement or the error of each member, by trial id.

    In a session, the servers of all members run side by side, and are loaded in turn. Each turn is
    a slice. `order` lists the slices as pairs of the trial id and the place, which is the slice's
    number among the slices of this trial, from 1. If a server dies during a load, its answers until
    then are a result, not an error. `instrument` observes the server during each load. Raise
    CannotGoOnError if the whole run cannot continue.
    """
    bench.lab.idle.ask(members[0].cell.idle)
    on_step("start")
    failed: dict[str, Measurement | LabError] = {}
    with contextlib.ExitStack() as stack:
        lives: dict[str, _Live] = {}
        for member in members:
            try:
                lives[member.trial_id] = stack.enter_context(_started(bench, workload, member))
            except CannotGoOnError:
                raise
            except LabError as error:
                failed[member.trial_id] = error
        for live in lives.values():
            on_step("warm up")
            with live.noting():
                cell = live.member.cell
                running = live.running
                placement = bench.placement
                if cell.share < 1:
                    running.limit(cell.share * len(placement.server))
                if cell.database_share < 1 and live.database is not None:
                    live.database.running.limit(cell.database_share * len(placement.database))
                shot = shot_of(workload, bench.tools[cell.tool], running, "warm-up")
                warmed = WarmedUp()
                # If the workload is a user's script that defines its own load, there is no warm-up,
                # because the script's default function may need the results of its setup().
                if workload.written_s is None:
                    warmed = warm_up(bench, cell, shot, live.member.folder / "generator.log")
                other_path = workload.probe_path if workload.name == OWN_SCRIPT else None
                probe_s = None if other_path is None else answer_s(running, other_path)
                live.probe_hz = probe_hz(cell, warmed, probe_s)
                live.users = users_of(cell, warmed)
                if live.users is not None:
                    live.member = replace(live.member, cell=cell.with_users(live.users))
        loads = _load_in_turn(bench, lives, order, on_step, instrument)
        on_step("stop")
        for live in lives.values():
            _stop(bench, live)
    return failed | {
        name: live.error or _measurement(bench, live, loads) for name, live in lives.items()
    }


def try_server(bench: Bench, workload: Workload, member: Member) -> WarmedUp:
    """Start a server, warm it up on its share of CPU time, and stop it.

    Return the results of the warm-up. Raise LabError if the server does not start or answer, or if
    its share cannot be set.
    """
    with _started(bench, workload, member) as live:
        cell = member.cell
        if cell.share < 1:
            live.running.limit(cell.share * len(bench.placement.server))
        shot = shot_of(workload, bench.tools[cell.tool], live.running, "warm-up")
        return warm_up(bench, cell, shot, member.folder / "generator.log")


@contextlib.contextmanager
def _started(bench: Bench, workload: Workload, member: Member) -> Iterator[_Live]:
    """Start a member's database and server, and stop both when the context ends.

    Raise LabError if the database or the server does not start, or if the server does not answer
    the requests of `_await` correctly.
    """
    server = member.ready.server
    folder = member.folder
    nonce = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        database = None
        if workload.database:
            database = stack.enter_context(
                serving(bench.lab.engine, bench.placement.database, folder / "database.log")
            )
        handed = {**BY_AFFINITY} if member.cell.share < 1 else {}
        handed |= {
            name: value for whose, name, value in bench.campaign.environment if whose == server.name
        }
        if database is not None:
            handed |= database.handed_to(server)
            handed |= (
                {}
                if member.cell.pool_size is None
                else {"DB_POOL_SIZE": str(member.cell.pool_size)}
            )
        handed["LAB_NONCE"] = nonce
        log = folder / "server.log"
        engine = bench.lab.engine_for(bench.campaign, server)
        running = stack.enter_context(engine.started(server, bench.placement.server, handed, log))
        answered_ns = _await(server, workload, running, nonce, log)
        footprint = _footprint(bench, member.ready, running, answered_ns)
        killed = bench.sites.server.kills(running.pid)
        quota = bench.sites.server.quota(running.pid)  # read before the lab sets its own quota
        placement = _seen(bench.placement, running)
        yield _Live(member, workload, running, database, killed, footprint, placement, quota)


def _footprint(bench: Bench, ready: Ready, running: Running, answered_ns: int) -> Footprint:
    """Return the sizes and the start-up time of a server that has just given its first answer."""
    artifact = ready.server.artifact
    began_ns = running.began_wall_ns
    return Footprint(
        start_ns=None if began_ns is None else answered_ns - began_ns,
        rss_started_bytes=_resident(bench, running),
        binary_bytes=(
            (ready.server.folder / artifact).stat().st_size if ready.binary and artifact else None
        ),
        image_bytes=running.image_bytes,
    )


def _resident(bench: Bench, running: Running) -> int | None:
    """Return a server's resident memory, or None if its process is unknown."""
    return None if running.pid == UNKNOWN_PID else bench.sites.server.resident(running.pid)


def _load_in_turn(
    bench: Bench,
    lives: Mapping[str, _Live],
    order: Sequence[tuple[str, int]],
    on_step: Callable[[str], None],
    instrument: Instrument,
) -> list[tuple[str, Loaded]]:
    """Load the servers slice by slice, while sampler and probe watch each server under load.

    `order` lists the slices, as in `measure`. Skip a slice if its server has failed or died. Return
    a pair for each load that was completed: the trial id, and the exit code and times of the load.
    """
    done: list[tuple[str, Loaded]] = []
    with watching(bench) as watchers:
        for live in lives.values():
            if live.running.pid != UNKNOWN_PID:
                # The sampler compares the CPUs that a server may use with the CPUs that the lab
                # gave to it. But the lab gives no CPUs to a user's server that already runs.
                cpus = bench.placement.server if live.running.cpus is None else None
                watchers.add_server(bench.sites.server, live.subject, live.running, cpus)
            if live.database is not None:
                subject = f"database {live.member.trial_id}"
                cpus = bench.placement.database
                watchers.add_database(bench.sites.database, subject, live.database.running, cpus)
        for position, (trial_id, place) in enumerate(order, start=1):
            if (
                trial_id not in lives
                or lives[trial_id].error is not None
                or lives[trial_id].died is not None
            ):
                continue
            on_step("load" if len(order) == 1 else f"slice {position} of {len(order)}")
            with lives[trial_id].noting():
                loaded = _load_slice(
                    bench, watchers, lives[trial_id], (place, position), instrument
                )
                done.append((trial_id, loaded))
        sampled = watchers.stop()
        for live in lives.values() if sampled else ():
            _write_sampled(bench, sampled, live)
    return done


def _write_sampled(
    bench: Bench, sampled: Mapping[Site, Mapping[str, Sequence[Any]]], live: _Live
) -> None:
    """Write the samplers' rows about a server and its load to files.

    `sampled` contains all rows of the sampler at each site. resources.parquet gets the rows of the
    server, of its database, of the first generator, of a generator on the server's host, of the
    sampler on the server's host, and of that host as a whole. For each generator on another host
    than the server's, also write resources.gN.parquet with the rows of the generator, of the
    sampler on its host, and of its host as a whole. N is the number of the generator, from 1.
    """
    common: dict[str, Subject] = {"host": "host", "sampler": "sampler", "generator": "generator"}
    parts = []
    sites = bench.sites
    for site, rows in sampled.items():
        names: dict[str, Subject] = {
            live.subject: "server",
            f"database {live.member.trial_id}": "database",
        }
        if site is sites.server:
            names |= common
        elif site is sites.generators[0]:
            names["generator"] = "generator"
        parts.append((rows, names, site.clock))
    write_rows(parts, live.member.folder / "resources.parquet")
    for number, site in enumerate(sites.generators, start=1):
        if site in sampled and site is not sites.server:
            path = live.member.folder / f"resources.g{number}.parquet"
            write_rows([(sampled[site], common, site.clock)], path)


def _load_slice(
    bench: Bench,
    watchers: Watchers,
    live: _Live,
    at: tuple[int, int],
    instrument: Instrument,
) -> Loaded:
    """Load a server once, and store the results in `live`.

    Return the exit code and the times of the load. `at` contains the slice's place and its
    position. The place is the slice's number among the slices of its trial, and the position is its
    number among all slices of the session.
    """
    place, position = at
    member = live.member
    running = live.running
    server = live.member.ready.server
    sites = bench.sites
    number = place if member.cell.slices else None
    tag = TAG if number is None else f"{TAG}-{number}"
    tool = bench.tools[member.cell.tool]
    planned = _loads(bench, live, shot_of(live.workload, tool, running, tag), number)
    probe = shot_of(live.workload, tool, running, PROBE_TAG, probing=True)
    count = sites.server.counters
    afar = sites.generators if sites.transfer else ()
    before = (
        settle(running, count, [site.undelivered for site in afar]) if server.contract else count()
    )
    if (code := running.exit_code()) is not None:
        when = "in the warm-up" if not live.slices else "between two slices"
        killed = sites.server.kills(running.pid).since(live.killed_before)
        why = ", because the kernel killed it when memory ran out" if killed else ""
        raise LabError(f"{server.name} {ended(code)} {when}{why}.", exit_code=1)
    if live.database is not None:
        now = live.database.counters(tag)
        live.stored.append(DatabaseUse(tag, live.database.version, before=now, after=now))
    spent_before = _spent(bench, running)
    watchers.begin(sites.server, live.subject, server, running, probe, live.probe_hz)
    try:
        database = None if live.database is None else live.database.running
        with instrument(Observed(running, database), place, member.folder):
            generated = generate(bench, planned, watchers)
    finally:
        probed = watchers.end()
    spent_after = _spent(bench, running)
    live.probed += [probed] if probed is not None else []
    live.died = running.exit_code()
    live.placement = _seen(live.placement, running, live.placement.server)
    if live.died is not None:
        after = Counters(None, None, count().passive_opens)
    else:
        after = read_counters(running, count) if server.contract else count()
        for site in afar:
            site.reach(running.address, running.port)
    facts = [
        _facts(load, done, member.folder, running)
        for load, done in zip(planned, generated.loads, strict=True)
    ]
    parts = tuple(
        Part(number=load_part.number, **part)
        for load_part, part in zip(bench.load_parts, facts, strict=True)
    )[1:]
    seen = facts[0] | {
        "counters_before": before,
        "counters_after": after,
        "between": generated.between,
        "parts": parts,
        "spent": spent_after.since(spent_before) if spent_before and spent_after else None,
    }
    live.slices.append(Slice(place=place, position=position, **seen))
    return generated.loads[0]


def _spent(bench: Bench, running: Running) -> Spent | None:
    """Return the CPU time and other counts of a server so far.

    Return None if the server's process is unknown or has ended.
    """
    return None if running.pid == UNKNOWN_PID else bench.sites.server.spent(running.pid)


def _loads(bench: Bench, live: _Live, shot: Shot, number: int | None) -> list[Job]:
    """Return the jobs of a load, one for each generator.

    `shot` contains the request to send. `number` is the number of the load's slice, or None if the
    load is not divided into slices. The generators' raw files and logs will be written to the
    trial's folder.
    """
    cell = live.member.cell
    folder = live.member.folder
    loads = []
    if number is not None:
        cell = cell.slice(number)
    elif TRAITS[cell.tool].whole_seconds and isinstance(cell.shape, ForTime):
        whole = replace(cell.shape, duration_s=max(1.0, cell.shape.duration_s))
        cell = replace(cell, shape=whole)
    for load_part, site in zip(bench.load_parts, bench.sites.generators, strict=True):
        files = {name: folder / raw_name(name, number, load_part.number) for name in OF_GENERATORS}
        command = GENERATORS[cell.tool].measured(
            cell, site.shot(shot), site.new_paths(files), bench.output, load_part
        )
        log = folder / raw_name("generator.log", None, load_part.number)
        loads.append(Job(command, bench.cpus_of(site), files, log))
    return loads


def _facts(load: Job, done: Loaded, folder: Path, running: Running) -> dict[str, Any]:
    """Return the fields of LoadFacts that come from one generator.

    In these fields, paths of folders and addresses of machines are replaced by names.
    """

    def shown(text: str) -> str:
        for path, name in ((folder, "TRIAL"), (Path(__file__).parents[1], "runner")):
            text = text.replace(str(path), name)
        if not running.host and running.address != LOOPBACK:
            text = text.replace(running.address, "SERVER")
        return public(text)

    env = tuple(sorted((key, shown(value)) for key, value in load.command.env.items()))
    return {"argv": tuple(map(shown, load.command.argv)), "generator_env": env, **vars(done)}


def _stop(bench: Bench, live: _Live) -> None:
    """Stop a server, count the rows that it stored in the database, and write the probe's samples.

    The rows are counted after the server has stopped, because then no statement is under way.
    """
    live.oom_kills = bench.sites.server.kills(live.running.pid).since(live.killed_before)
    live.footprint = replace(live.footprint, rss_after_bytes=_resident(bench, live.running))
    live.exit_code = live.running.stop()
    with live.noting():
        if live.database is not None and live.error is None:
            uses = [replace(use, after=live.database.counters(use.tag)) for use in live.stored]
            live.slices = [
                replace(each, database=use) for each, use in zip(live.slices, uses, strict=True)
            ]
    if live.probed:
        write_samples(live.probed, live.member.folder / "probe.parquet", bench.sites.probe.clock)


def _measurement(
    bench: Bench, live: _Live, loads: Sequence[tuple[str, Loaded]]
) -> Measurement | LabError:
    """Return the measurement of a server, or a LabError if no load reached the server."""
    if not live.slices:
        return LabError(
            "No load reached this server: an earlier step of its session failed.", exit_code=1
        )
    slices = tuple(live.slices)
    first = slices[0]
    last = slices[-1]
    cell = live.member.cell
    ceiling = bench.calibration.ceiling_of(cell) if bench.calibration else None
    database = None
    if uses := [each.database for each in slices if each.database is not None]:
        # The rows that each slice inserted have a tag of their own, so add up the rows of all
        # slices. The database's other counters are cumulative, so take their values before the
        # first slice and after the last slice.
        before = uses[0].before
        rows = sum(use.after.rows - use.before.rows for use in uses)
        after = replace(uses[-1].after, rows=before.rows + rows)
        database = DatabaseUse(TAG, uses[0].version, before, after)
    facts = {each.name: getattr(first, each.name) for each in fields(LoadFacts)} | {
        "generator_exit": max((each.generator_exit for each in slices), key=abs),
        "load_ended_wall_ns": last.load_ended_wall_ns,
        "load_ended_mono_ns": last.load_ended_mono_ns,
        "counters_after": last.counters_after,
        "database": database,
        "spent": _together([each.spent for each in slices]),
    }
    return Measurement(
        **facts,
        engine=bench.lab.engine_for(bench.campaign, live.member.ready.server).name,
        placement=live.placement,
        port=live.running.port,
        sample_hz=bench.campaign.sample_hz,
        server_exit=live.exit_code,
        server_image=live.member.ready.image,
        server_sha256=live.member.ready.binary,
        died=live.died,
        generator_ceiling_rps=ceiling.rps_max if ceiling else None,
        host_cpus=bench.lab.host_cpus,
        oom_kills=live.oom_kills,
        idle=bench.lab.idle.state,
        quota=live.quota,
        also_ports=live.workload.also,
        as_written=live.workload.written_s is not None,
        edges_continued=True,
        slices=slices if cell.slices else (),
        footprint=live.footprint,
        probe_hz=live.probe_hz,
        users=live.users,
        others_loaded=tuple(
            (load.load_started_mono_ns, load.load_ended_mono_ns)
            for name, load in loads
            if name != live.member.trial_id
        ),
    )


def _together(parts: Sequence[Spent | None]) -> Spent | None:
    """Return the sum of the counts of all slices.

    Return None if the counts of any slice are unknown.
    """
    total: Spent | None = Spent(0, 0, 0, 0, 0)
    for part in parts:
        total = total.plus(part) if total and part else None
    return total


def _seen(placement: Placement, running: Running, earlier: tuple[int, ...] = ()) -> Placement:
    """Return `placement` with the CPUs that the server really may use.

    If the lab started the server, `placement` already contains these CPUs, so return it unchanged.
    If the lab did not start the server, these are the CPUs that the server may use now, together
    with the CPUs that it could use before (`earlier`).
    """
    if running.cpus is None:
        return placement
    return replace(placement, server=tuple(sorted({*earlier, *running.cpus()})))


def _await(server: Server, workload: Workload, running: Running, nonce: str, log: Path) -> int:
    """Wait for the server's first answer, then check further answers of the server.

    Return the wall time of the first answer, in ns. If the workload is one of the lab's own, check
    /health and the load's request against the HTTP contract. If the workload is a user's script or
    URL, send GET for the path of the probe until an answer is 2xx. For a user's URL, do the same
    for the path of the load. Raise LabError if the server does not answer correctly.
    """
    if server.contract:
        wait_ready(server.name, running, nonce, log)
    else:
        wait_answer(server.name, running, workload.path, log)
    answered_ns = time.time_ns()
    if workload.name not in OWN:
        for check in quick_check(
            running.address, running.port, server, nonce, workload.method, workload.path
        ):
            if not check.ok:
                raise LabError(
                    f"{server.name} breaks the rule `{check.name}` of the HTTP contract: "
                    f"{check.detail}.",
                    exit_code=1,
                )
        return answered_ns
    require_answer("the server", running, workload.probe_path or workload.path)
    if workload.name == OWN_GET:
        require_answer("the server", running, workload.path)
    return answered_ns
