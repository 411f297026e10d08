"""Measure one trial: start, verify, warm up, load, sample, stop; the outcome is raw files and a Measurement."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.measure import generators
from runner.measure.contract import quick_check
from runner.measure.counters import passive_opens, read_counters, settle
from runner.measure.database import Database, serving
from runner.measure.engine import Running
from runner.measure.loading import Bench, Subjects, load, warm_up
from runner.measure.readiness import wait_ready
from runner.model import Cell, Counters, DatabaseUse, LabError, Measurement, Server, Workload
from runner.store import lab_root

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
        env = _server_environment(bench, server, cell, nonce, database)
        running = stack.enter_context(bench.engine.started(server, bench.placement.server, env, log))
        wait_ready(server.name, running, nonce, log)
        _verify(server, workload, running, nonce)
        tool = bench.tools[cell.tool]
        on_step("warm up")
        warm_up(bench, cell, generators.Shot.of(workload, tool, running.port, "warm-up"), folder)
        on_step("load")
        shot = generators.Shot.of(workload, tool, running.port, TAG)
        command = generators.measured(cell, shot, folder, bench.observers.output)
        before = settle(running.port)
        _require_alive(server, running)
        stored = database.counters(TAG) if database else None
        probe = generators.Shot.of(workload, tool, running.port, PROBE_TAG)
        loaded = load(bench, command, probe, folder, Subjects(server, running, database))
        died = running.exit_code()
        after = read_counters(running.port) if died is None else Counters(None, None, passive_opens())
        on_step("stop")
        server_exit = running.stop()
        use = DatabaseUse(TAG, database.version, stored, database.counters(TAG)) if database and stored else None
    ceiling = bench.calibration.ceiling_of(cell) if bench.calibration else None
    return Measurement(
        engine=bench.engine.name,
        placement=bench.placement,
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
    )


def _public(text: str, folder: Path) -> str:
    """Return an argument as it may be published: no path of this machine above the trial's folder or the lab."""
    known = ((folder, "TRIAL"), (Path(__file__).parents[1], "runner"), (lab_root(), "."))
    for path, name in known:
        text = text.replace(str(path), name)
    return text


def _server_environment(
    bench: Bench, server: Server, cell: Cell, nonce: str, database: Database | None
) -> dict[str, str]:
    env = {**bench.environment.get(server.name, {}), "LAB_NONCE": nonce}
    if database is not None:
        env["DATABASE_URL"] = database.url
        if cell.pool_size is not None:
            env["DB_POOL_SIZE"] = str(cell.pool_size)
    return env


def _verify(server: Server, workload: Workload, running: Running, nonce: str) -> None:
    for check in quick_check("127.0.0.1", running.port, server, nonce, workload.method, workload.path):
        if not check.ok:
            raise LabError(f"{server.name} breaks the contract: {check.name}, {check.detail}.", exit_code=1)


def _require_alive(server: Server, running: Running) -> None:
    code = running.exit_code()
    if code is not None:
        raise LabError(f"{server.name} died in the warm-up with exit code {code}.", exit_code=1)
