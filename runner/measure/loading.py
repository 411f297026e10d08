"""Run a load beside its observers: the generator on its CPUs, the sampler and the probe with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.calibration import Calibration
from runner.measure import generators
from runner.measure.database import Database
from runner.measure.engine import UNKNOWN_PID, Engine, Running
from runner.measure.leftovers import Ledger
from runner.measure.probing import probing
from runner.measure.processes import pinned
from runner.measure.sampling import Sampler, sampling
from runner.measure.scratch import scratch
from runner.measurement import Placement
from runner.model import Cell, LabError, Server


@dataclass(frozen=True)
class Observers:
    """Who looks on while a load runs. All of them, unless it is the observers' own cost that is measured."""

    output: generators.Output = "samples"
    sampler: bool = True
    probe: bool = True


@dataclass(frozen=True)
class Bench:
    """What all trials of a run share."""

    engine: Engine
    placement: Placement
    tools: Mapping[str, Path]
    sample_hz: float
    ledger: Ledger
    environment: Mapping[str, Mapping[str, str]]
    """Variables beyond the contract's, by server."""
    calibration: Calibration | None
    """The generators' ceilings; None where this machine has none that is valid."""
    observers: Observers = field(default_factory=Observers)


@dataclass(frozen=True)
class Loaded:
    """The measured load's own times and exit code."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    exit_code: int
    started_wall_ns: int
    started_mono_ns: int
    ended_wall_ns: int
    ended_mono_ns: int


@dataclass(frozen=True)
class Subjects:
    """What a load is sampled with: the server under it, and the database behind that."""

    server: Server
    running: Running
    database: Database | None


def warm_up(bench: Bench, cell: Cell, shot: generators.Shot, folder: Path) -> None:
    """Run a load that leaves nothing but its log in `folder`."""
    with scratch(bench.ledger) as thrown_away:
        command = generators.warmup(cell, shot, thrown_away)
        code = _generate(bench, command, folder / "generator.log", None).exit_code
    if code == -signal.SIGKILL:
        raise LabError(f"{cell.tool} was killed in the warm-up.", exit_code=1)


def load(bench: Bench, command: generators.Command, probe: generators.Shot, folder: Path, subjects: Subjects) -> Loaded:
    """Run the measured load with its observers beside it; the probe's first request is under way before it begins."""
    cpus, port, observers = bench.placement.generator, subjects.running.port, bench.observers
    with contextlib.ExitStack() as stack:
        sampler = prober = None
        if observers.sampler:
            sampler = stack.enter_context(sampling(folder / "resources.parquet", bench.sample_hz, cpus, bench.ledger))
            _watch(sampler, subjects, bench.placement)
        if observers.probe:
            prober = stack.enter_context(probing(folder / "probe.parquet", port, cpus, bench.ledger, shot=probe))
            prober.begin()
        loaded = _generate(bench, command, folder / "generator.log", sampler)
        if prober is not None:
            prober.stop()
        if sampler is not None:
            sampler.stop()
    return loaded


def _watch(sampler: Sampler, subjects: Subjects, placement: Placement) -> None:
    running, database = subjects.running, subjects.database
    if running.pid != UNKNOWN_PID:
        own = placement.server if running.cpus is None else None  # a server of the user's own stays where it is
        sampler.add("server", running.pid, alone=running.alone, cpus=own)
    if database is not None:
        sampler.add("database", database.running.pid, cpus=placement.database)
    if "stats" in subjects.server.implements:
        sampler.poll(subjects.running.port)


def _generate(bench: Bench, command: generators.Command, log: Path, sampler: Sampler | None) -> Loaded:
    """Run a generator on its CPUs to its end, or kill it when it has surely hung."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **command.env}
    cpus = bench.placement.generator
    folder = Path(tempfile.gettempdir())
    with pinned("load", command.argv, cpus=cpus, env=env, folder=folder, log=log, ledger=bench.ledger) as process:
        if sampler is not None:
            sampler.add("generator", process.pid, cpus=cpus)
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
        return Loaded(command.argv, command.env, code, *started, time.time_ns(), time.monotonic_ns())
