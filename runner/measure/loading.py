"""Run a load beside its observers: the generator on its CPUs, the sampler and the probe with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.calibration import Calibration
from runner.measure import generators
from runner.measure.engine import Engine
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger
from runner.measure.probing import Probe, probing
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
    idle: IdleCpus
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


class Watchers:
    """The sampler and the probe beside the loads of one or more servers; each may be left out (Observers)."""

    def __init__(self, sampler: Sampler | None, probe: Probe | None) -> None:
        self.sampler = sampler
        self._probe = probe

    def begin(self, subject: str, server: Server, port: int, shot: generators.Shot) -> None:
        """Turn to a server that is about to be loaded: ask its /stats, and probe it by `shot`."""
        if self.sampler is not None and "stats" in server.implements:
            self.sampler.poll(subject, port)
        if self._probe is not None:
            self._probe.begin(shot, port)

    def end(self) -> dict[str, Any] | None:
        """Leave the server alone again; return what the probe saw."""
        seen = None if self._probe is None else self._probe.pause()
        if self.sampler is not None:
            self.sampler.pause()
        return seen


@contextlib.contextmanager
def watching(bench: Bench) -> Iterator[Watchers]:
    """Start the observers that `bench` asks for, on the generator's CPUs."""
    cpus, observers = bench.placement.generator, bench.observers
    with contextlib.ExitStack() as stack:
        sampler = stack.enter_context(sampling(bench.sample_hz, cpus, bench.ledger)) if observers.sampler else None
        probe = stack.enter_context(probing(cpus, bench.ledger)) if observers.probe else None
        yield Watchers(sampler, probe)


def warm_up(bench: Bench, cell: Cell, shot: generators.Shot, folder: Path) -> None:
    """Run a load that leaves nothing but its log in `folder`."""
    with scratch(bench.ledger) as thrown_away:
        command = generators.warmup(cell, shot, thrown_away)
        code = generate(bench, command, folder / "generator.log", None).exit_code
    if code == -signal.SIGKILL:
        raise LabError(f"{cell.tool} was killed in the warm-up.", exit_code=1)


def generate(bench: Bench, command: generators.Command, log: Path, sampler: Sampler | None) -> Loaded:
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
