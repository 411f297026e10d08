"""Measure one trial: start, verify, warm up, load, sample, stop; the outcome is raw files and a Measurement."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.measure import generators
from runner.measure.contract import quick_check
from runner.measure.counters import read_counters, settle
from runner.measure.engine import Engine, Running
from runner.measure.leftovers import Ledger
from runner.measure.processes import pinned
from runner.measure.readiness import wait_ready
from runner.measure.sampling import Sampler, sampling
from runner.model import Cell, LabError, Measurement, Placement, Server, Workload
from runner.store import lab_root


@dataclass(frozen=True)
class Bench:
    """What all trials of a run share."""

    engine: Engine
    placement: Placement
    tools: dict[str, Path]
    sample_hz: float
    ledger: Ledger


@dataclass(frozen=True)
class _Loaded:
    """The measured load's own times and exit code."""

    exit_code: int
    started_wall_ns: int
    started_mono_ns: int
    ended_wall_ns: int
    ended_mono_ns: int


def measure(
    bench: Bench,
    server: Server,
    workload: Workload,
    cell: Cell,
    folder: Path,
    on_step: Callable[[str], None],
    *,
    image: str | None = None,
    binary: str | None = None,
) -> Measurement:
    """Run one trial of `cell`; raw files and logs go to `folder`. LabError where it could not be measured."""
    nonce = secrets.token_hex(16)
    log = folder / "server.log"
    on_step("start")
    with bench.engine.started(server, bench.placement.server, nonce, log) as running:
        wait_ready(server.name, running, nonce, log)
        _verify(server, cell, running, nonce)
        url = f"http://127.0.0.1:{running.port}{cell.path}"
        tool = bench.tools[cell.tool]
        on_step("warm up")
        with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
            bench.ledger.add("folder", path=scratch)
            command = generators.warmup(cell, workload, tool, url, Path(scratch))
            _generate(bench, command, folder / "generator.log", None)
        on_step("load")
        command = generators.measured(cell, workload, tool, url, folder)
        before = settle(running.port)
        resources = folder / "resources.parquet"
        with sampling(resources, bench.sample_hz, bench.placement.generator, bench.ledger) as sampler:
            sampler.add("server", running.pid)
            loaded = _generate(bench, command, folder / "generator.log", sampler)
            sampler.stop()
        died = running.exit_code()
        if died is not None:
            raise LabError(f"{server.name} died under load with exit code {died}.", exit_code=1)
        after = read_counters(running.port)
        on_step("stop")
        server_exit = running.stop()
    return Measurement(
        engine=bench.engine.name,
        placement=bench.placement,
        port=running.port,
        argv=tuple(_public(part, folder) for part in command.argv),
        generator_env=tuple(sorted((key, _public(value, folder)) for key, value in command.env.items())),
        generator_exit=loaded.exit_code,
        load_started_wall_ns=loaded.started_wall_ns,
        load_started_mono_ns=loaded.started_mono_ns,
        load_ended_wall_ns=loaded.ended_wall_ns,
        load_ended_mono_ns=loaded.ended_mono_ns,
        counters_before=before,
        counters_after=after,
        sample_hz=bench.sample_hz,
        server_exit=server_exit,
        server_image=image,
        server_sha256=binary,
    )


def _public(text: str, folder: Path) -> str:
    """Return an argument as it may be published: no path of this machine above the trial's folder or the lab."""
    known = ((folder, "TRIAL"), (Path(__file__).parents[1], "runner"), (lab_root(), "."))
    for path, name in known:
        text = text.replace(str(path), name)
    return text


def _verify(server: Server, cell: Cell, running: Running, nonce: str) -> None:
    for check in quick_check("127.0.0.1", running.port, server, nonce, cell.path):
        if not check.ok:
            raise LabError(f"{server.name} breaks the contract: {check.name}, {check.detail}.", exit_code=1)


def _generate(bench: Bench, command: generators.Command, log: Path, sampler: Sampler | None) -> _Loaded:
    """Run a generator on its CPUs to its end, or kill it when it has surely hung."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **command.env}
    cpus = bench.placement.generator
    folder = Path(tempfile.gettempdir())
    with pinned("load", command.argv, cpus=cpus, env=env, folder=folder, log=log, ledger=bench.ledger) as process:
        if sampler is not None:
            sampler.add("generator", process.pid)
        started = time.time_ns(), time.monotonic_ns()
        process.release()
        try:
            if command.interrupt_after_s is not None:
                time.sleep(command.interrupt_after_s)
                process.popen.send_signal(signal.SIGINT)
            code = process.popen.wait(timeout=command.timeout_s)
        except subprocess.TimeoutExpired:
            name = Path(command.argv[0]).name
            raise LabError(
                f"{name} did not end within {command.timeout_s:.0f} s and was killed.", exit_code=1
            ) from None
        return _Loaded(code, *started, time.time_ns(), time.monotonic_ns())
