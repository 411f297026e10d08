"""Measure one trial: start, verify, warm up, load, sample, stop; the outcome is raw files and a Measurement."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from runner.measure import generators, oom
from runner.measure.contract import quick_check
from runner.measure.counters import host_counters, passive_opens, read_counters, settle
from runner.measure.database import Database, serving
from runner.measure.engine import Handed, Running
from runner.measure.loading import Bench, Subjects, load, warm_up
from runner.measure.own_load import shot_of
from runner.measure.readiness import require_answer, wait_answer, wait_ready
from runner.measurement import Counters, DatabaseUse, Measurement, Placement, ended
from runner.model import OWN, OWN_GET, Cell, LabError, Server, Workload
from runner.store import public

TAG = "load"
"""What the rows of the measured load carry as firmware; the cluster is the trial's own."""
PROBE_TAG = "probe"


@dataclass(frozen=True)
class Ready:
    """A server that is built, and prepared to be started."""

    server: Server
    image: str | None
    binary: str | None
    """SHA-256 of the binary that the host built."""


def measure(
    bench: Bench, ready: Ready, workload: Workload, cell: Cell, folder: Path, on_step: Callable[[str], None]
) -> Measurement:
    """Run one trial of `cell`; raw files and logs go to `folder`. LabError where it could not be measured.

    A server that dies under the load is measured all the same: what was answered until then is a result.
    """
    server = ready.server
    nonce = secrets.token_hex(16)
    on_step("start")
    with contextlib.ExitStack() as stack:
        database = None
        if workload.database:
            database = stack.enter_context(serving(bench.engine, bench.placement.database, folder / "database.log"))
        log = folder / "server.log"
        handed = _handed(bench, server, cell, nonce, database)
        running = stack.enter_context(bench.engine.started(server, bench.placement.server, handed, log))
        _await(server, workload, running, nonce, log)
        tool = bench.tools[cell.tool]
        killed_before = oom.kills(running.pid)
        on_step("warm up")
        warm_up(bench, cell, shot_of(workload, tool, running, "warm-up"), folder)
        on_step("load")
        command = generators.measured(cell, shot_of(workload, tool, running, TAG), folder, bench.observers.output)
        before = settle(running.port) if server.contract else host_counters()
        placement = _seen(bench.placement, running)
        _require_alive(server, running, killed_before)
        stored = database.counters(TAG) if database else None
        probe = shot_of(workload, tool, running, PROBE_TAG, probing=True)
        loaded = load(bench, command, probe, folder, Subjects(server, running, database))
        died, killed = running.exit_code(), oom.kills(running.pid)
        after = _counters(server, running, died)
        placement = _seen(placement, running, placement.server)
        on_step("stop")
        server_exit = running.stop()
        use = DatabaseUse(TAG, database.version, stored, database.counters(TAG)) if database and stored else None
    ceiling = bench.calibration.ceiling_of(cell) if bench.calibration else None
    return Measurement(
        engine=bench.engine.name,
        placement=placement,
        port=running.port,
        argv=tuple(_public(part, folder) for part in loaded.argv),
        generator_env=tuple(sorted((key, _public(value, folder)) for key, value in loaded.env.items())),
        generator_exit=loaded.exit_code,
        load_started_wall_ns=loaded.started_wall_ns,
        load_started_mono_ns=loaded.started_mono_ns,
        load_ended_wall_ns=loaded.ended_wall_ns,
        load_ended_mono_ns=loaded.ended_mono_ns,
        counters_before=before,
        counters_after=after,
        sample_hz=bench.sample_hz,
        server_exit=server_exit,
        server_image=ready.image,
        server_sha256=ready.binary,
        died=died,
        database=use,
        generator_ceiling_rps=ceiling.rps_max if ceiling else None,
        host_cpus=os.cpu_count(),
        oom_kills=killed.since(killed_before),
    )


def _public(text: str, folder: Path) -> str:
    """Return an argument as it may be published: no path of this machine above the trial's folder or the lab."""
    for path, name in ((folder, "TRIAL"), (Path(__file__).parents[1], "runner")):
        text = text.replace(str(path), name)
    return public(text)


def _handed(bench: Bench, server: Server, cell: Cell, nonce: str, database: Database | None) -> Handed:
    handed = Handed({**bench.environment.get(server.name, {}), "LAB_NONCE": nonce})
    if database is None:
        return handed
    pool = {} if cell.pool_size is None else {"DB_POOL_SIZE": str(cell.pool_size)}
    return handed | database.handed_to(server) | Handed(pool)


def _counters(server: Server, running: Running, died: int | None) -> Counters:
    if died is not None:
        return Counters(None, None, passive_opens())
    return read_counters(running.port) if server.contract else host_counters()


def _seen(placement: Placement, running: Running, earlier: tuple[int, ...] = ()) -> Placement:
    """Return the placement with the CPUs that the server may use now, or could `earlier`, where it is not the lab's."""
    if running.cpus is None:
        return placement
    return replace(placement, server=tuple(sorted({*earlier, *running.cpus()})))


def _await(server: Server, workload: Workload, running: Running, nonce: str, log: Path) -> None:
    """Return when the server is there and answers right what is about to be asked; LabError where it does not."""
    if server.contract:
        wait_ready(server.name, running, nonce, log)
    else:
        wait_answer(server.name, running, workload.path, log)
    if workload.name not in OWN:
        _verify(server, workload, running, nonce)
        return
    require_answer("the server", running, workload.probe_path or workload.path)
    if workload.name == OWN_GET:
        require_answer("the server", running, workload.path)


def _verify(server: Server, workload: Workload, running: Running, nonce: str) -> None:
    for check in quick_check("127.0.0.1", running.port, server, nonce, workload.method, workload.path):
        if not check.ok:
            raise LabError(f"{server.name} breaks the contract: {check.name}, {check.detail}.", exit_code=1)


def _require_alive(server: Server, running: Running, killed_before: oom.Kills) -> None:
    code = running.exit_code()
    if code is None:
        return
    killed = oom.kills(running.pid).since(killed_before)
    why = ": the kernel killed it for want of memory" if killed else ""
    raise LabError(f"{server.name} {ended(code)} in the warm-up{why}.", exit_code=1)
