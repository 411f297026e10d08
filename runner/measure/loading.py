"""Run a load beside its observers: the generator on its CPUs, the sampler and the probe with it.

Sampler and probe are processes driven by JSON lines, whose samples are written here, as the sampler itself must not
import pyarrow: 0.8 s and 50 MB a trial.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from runner.calibration import Calibration
from runner.measure import generators
from runner.measure.engine import Engine
from runner.measure.generators import Shot
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger, scratch
from runner.measure.process_engine import pinned
from runner.measurement import PROBE_HZ, Placement
from runner.model import Cell, LabError, Server, Subject
from runner.store import replacing

PATIENCE_S = 60.0
"""An instrument answers within milliseconds, the sampler's last answer within a second: it writes its samples."""
AnInstrument = TypeVar("AnInstrument", bound="Instrument")


class Instrument:
    """A running instrument: it answers each command with one line."""

    name: str
    """The module of runner.measure that it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, command: Mapping[str, Any]) -> str:
        """Send a command and return the answer; LabError where the instrument has ended before its time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
                raise LabError(f"The {self.name} did not answer within {PATIENCE_S:.0f} s.", exit_code=1)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise LabError(f"The {self.name} ended before its time.", exit_code=1)
        return answer.strip()


@contextlib.contextmanager
def instrument(kind: type[AnInstrument], hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[AnInstrument]:
    """Run an instrument on `cpus`, `hz` times a second; the end of its standard input ends it, at last a kill."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"runner.measure.{kind.name}", str(hz), ",".join(map(str, cpus))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger.add_process(process.pid)
    try:
        yield kind(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


_TYPES = {"subject": pa.string(), "source": pa.string(), "gc_pause_total_ms": pa.float64(), "gc_cpu_s": pa.float64()}
"""Column types; whole numbers where nothing is said."""


class Sampler(Instrument):
    """The runner's handle on the sampling process."""

    name = "sampler"

    def add(self, subject: str, pid: int, *, alone: bool = True, cpus: Sequence[int] | None = None) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row.

        Where it is not `alone` in its group, it is the tree. With `cpus`, those that it was given, each row says how
        many others the process may use. A subject of the same name is sampled no more.
        """
        self.tell({"add": subject, "pid": pid, "alone": alone, "cpus": cpus})

    def poll(self, subject: str, port: int) -> None:
        """Ask a server's /stats as well from now on, over one connection kept open; of another one no more."""
        self.tell({"poll": port, "of": subject})

    def pause(self) -> None:
        """Ask no server's /stats any more."""
        self.tell({"poll": None})

    def stop(self) -> pa.Table:
        """Have a last row taken; return all rows of all subjects, the columns of resources.parquet."""
        rows = json.loads(self.tell({"stop": True}))
        return pa.table({name: pa.array(values, _TYPES.get(name, pa.int64())) for name, values in rows.items()})


def write_rows(rows: pa.Table, names: Mapping[str, Subject], out: Path) -> None:
    """Write the rows of the subjects in `names`, under the names that it gives them, to `out` (resources.parquet)."""
    subjects = rows["subject"].to_pylist()
    renamed = pa.array([names.get(subject) for subject in subjects], pa.string())
    chosen = rows.set_column(rows.schema.get_field_index("subject"), "subject", renamed).filter(renamed.is_valid())
    with replacing(out) as temporary:
        pq.write_table(chosen, temporary, compression="zstd")


class Probe(Instrument):
    """The runner's handle on the probing process."""

    name = "probe"

    def begin(self, shot: Shot, port: int) -> None:
        """Send the first request to a server, and from now on one after the other."""
        request = {"method": shot.method, "path": shot.path, "body": shot.body, "host": shot.host}
        self.tell({**request, "port": port, "address": shot.address})

    def pause(self) -> dict[str, Any]:
        """Send no more, once the answers are there; return the samples by column and what they cost."""
        return dict(json.loads(self.tell({"pause": True})))


def write_samples(answers: Sequence[dict[str, Any]], out: Path) -> None:
    """Write what one or more `pause` returned to `out` (probe.parquet); the probe's CPU time is its metadata.

    `series` counts the answers from 0.
    """
    cost = {name: str(sum(answer[name] for answer in answers)) for name in ("cpu_ns", "lived_ns")}
    tables = []
    for series, answer in enumerate(answers):
        samples = {**answer["samples"], "series": [series] * len(answer["samples"]["status"])}
        tables.append(pa.table({name: pa.array(values, pa.int64()) for name, values in samples.items()}))
    with replacing(out) as temporary:
        pq.write_table(pa.concat_tables(tables).replace_schema_metadata(cost), temporary, compression="zstd")


@dataclass(frozen=True)
class Observers:
    """Who looks on while a load runs. All of them, unless it is the observers' cost that is measured."""

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
    """Exit code and times of a measured load, as LoadFacts has them."""

    generator_exit: int
    load_started_wall_ns: int
    load_started_mono_ns: int
    load_ended_wall_ns: int
    load_ended_mono_ns: int


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
    cpus, observers, book = bench.placement.generator, bench.observers, bench.ledger
    with contextlib.ExitStack() as stack:
        sampler = stack.enter_context(instrument(Sampler, bench.sample_hz, cpus, book)) if observers.sampler else None
        probe = stack.enter_context(instrument(Probe, PROBE_HZ, cpus, book)) if observers.probe else None
        yield Watchers(sampler, probe)


def warm_up(bench: Bench, cell: Cell, shot: generators.Shot, folder: Path) -> None:
    """Run a load that leaves nothing but its log in `folder`."""
    with scratch(bench.ledger) as thrown_away:
        command = generators.warmup(cell, shot, thrown_away)
        code = generate(bench, command, folder / "generator.log", None).generator_exit
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
        loaded = Loaded(code, *started, time.time_ns(), time.monotonic_ns())
    if code == 0:
        _write_out(command)
    return loaded


def _write_out(command: generators.Command) -> None:
    """Turn a generator's results into its raw files; LabError where one cannot be."""
    for argv, out in command.after:
        with replacing(out) as temporary, temporary.open("wb") as plain, contextlib.ExitStack() as stack:
            packed = out.suffix == ".gz"
            file = stack.enter_context(gzip.GzipFile("", "wb", 1, plain, mtime=0)) if packed else plain
            done = subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE_S)
            file.write(done.stdout)
        if done.returncode:
            raise LabError(f"{argv[0]} {argv[1]} failed: {done.stderr.decode(errors='replace')[-200:]}.", exit_code=1)
    for result in {argv[-1] for argv, _ in command.after}:
        Path(result).unlink()
