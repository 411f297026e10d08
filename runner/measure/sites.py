"""Where the parts of a trial run: on this machine, or on another host (station_client.py), by the
same calls.

Nothing here imports pyarrow, which would cost an instrument 0.8 s and 50 MB, and is not on other
hosts.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

from runner.measure import counters, memory, quotas
from runner.measure.generators.command import Command, Shot
from runner.measure.leftovers import Ledger
from runner.measure.process_engine import pinned
from runner.measurement import Counters, GeneratorHost, Loaded
from runner.model import LabError
from runner.store import replacing

PATIENCE_S = 60.0
"""An instrument answers within milliseconds, the sampler with all of its rows within a second."""
REACH_S = 4.0
"""A SYN is sent again after 1 s and after 3 s: a network that loses packets is reached all the
same.
"""
Ask = Callable[
    [Mapping[str, Any]], str
]  # hands a command to an instrument, returns its answer; LabError without one


@dataclass(frozen=True)
class Clock:
    """How far a host's monotonic clock is ahead of this machine's, and by how much that may be
    wrong.
    """

    offset_ns: int = 0
    error_ns: int = 0


@dataclass(frozen=True)
class Job:
    """A generator's command, where it runs, and where its files and its output go on this
    machine.
    """

    command: Command
    cpus: tuple[int, ...]
    files: Mapping[str, Path]
    log: Path
    begin_mono_ns: int | None = None
    """When it is to begin, by this machine's clock; at once if that is None."""


class Site:
    """A place where servers, generators or instruments run: this machine."""

    name = ""  # what it is for, as a reader sees it; empty for this machine
    clock = Clock()
    kills = staticmethod(memory.kills)
    quota = staticmethod(quotas.quota_of)
    network = staticmethod(counters.network_bytes)
    undelivered = staticmethod(counters.undelivered)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def counters(self) -> Counters:
        """Return what the kernel there counts: all that is known of a server that may not, or
        cannot, be asked.
        """
        return Counters(
            None, None, counters.tcp_counters()["PassiveOpens"], counters.dropped_packets()
        )

    def reach(self, address: str, port: int, times: int = 1) -> int:
        """Connect to a server and return how many ns the quickest connection took.

        LabError if one takes REACH_S.
        """
        took = []
        for _ in range(times):
            begun = time.monotonic_ns()
            try:
                with socket.create_connection((address, port), timeout=REACH_S):
                    took.append(time.monotonic_ns() - begun)
            except OSError as error:
                raise LabError(
                    f"the server cannot be reached ({error.strerror or error}).", exit_code=1
                ) from None
        return min(took)

    def look_at_clock(self) -> int:
        """Measure the clock anew; return by how much it has moved since, in nanoseconds."""
        return 0

    def room(self) -> int | None:
        """Return how many bytes are free for loads' files there.

        None on this machine, whose disk is the run's.
        """
        return None

    @contextlib.contextmanager
    def instrument(self, name: str, hz: float, cpus: Sequence[int]) -> Iterator[Ask]:
        """Run `runner.measure.NAME` on `cpus`, `hz` times a second.

        The end of its input ends it, or a kill.
        """
        argv = [sys.executable, "-m", f"runner.measure.{name}", str(hz), ",".join(map(str, cpus))]
        process = subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True)
        self._ledger.add_process(process.pid)
        assert process.stdin is not None and process.stdout is not None
        to = process.stdin
        out = process.stdout

        def ask(command: Mapping[str, Any]) -> str:
            answer = ""
            with contextlib.suppress(BrokenPipeError):
                to.write(json.dumps(command) + "\n")
                to.flush()
                if not select.select([out], [], [], PATIENCE_S)[0]:
                    raise LabError(
                        f"The {name} did not answer within {PATIENCE_S:.0f} s.", exit_code=1
                    )
                answer = out.readline()
            if not answer:
                raise LabError(f"The {name} ended before its time.", exit_code=1)
            return answer.strip()

        try:
            yield ask
        finally:
            with contextlib.suppress(BrokenPipeError):
                to.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            out.close()

    def shot(self, shot: Shot) -> Shot:
        """Return what a generator sends with the paths that its tool and script have there."""
        return shot

    def paths(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Return where a generator there has to write the files that are to be here."""
        return files

    def load(self, load: Job, sampler: Ask | None) -> Callable[[], Loaded]:
        """Start a load, at the latest by the call that is returned, which waits for its end and
        brings its files.

        `sampler`, which runs in the same place, watches the generator from before its first
        instruction on. LabError for a generator that had to be killed, as it has surely hung.
        """
        return lambda: self._generate(load, sampler)

    def _generate(self, load: Job, sampler: Ask | None) -> Loaded:
        command = load.command
        folder = Path(tempfile.gettempdir())
        cpus = load.cpus
        log = load.log
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **command.env}
        with pinned(
            "load", command.argv, cpus=cpus, env=env, folder=folder, log=log, ledger=self._ledger
        ) as process:
            if sampler is not None:
                sampler({"add": "generator", "pid": process.pid, "cpus": cpus})
            if load.begin_mono_ns is not None:
                time.sleep(max(0.0, (load.begin_mono_ns - time.monotonic_ns()) / 1e9))
            started = time.time_ns(), time.monotonic_ns()
            process.release()
            try:
                if command.interrupt_after_s is not None:
                    time.sleep(command.interrupt_after_s)
                    process.popen.send_signal(signal.SIGINT)
                code = process.popen.wait(timeout=command.timeout_s)
            except subprocess.TimeoutExpired:
                said = (
                    f"{Path(command.argv[0]).name} did not end within {command.timeout_s:.0f} s "
                    "and was killed."
                )
                raise LabError(said, exit_code=1) from None
            loaded = Loaded(code, *started, time.time_ns(), time.monotonic_ns())
        if code == 0:
            _write_out(command)
        return loaded


def _write_out(command: Command) -> None:
    """Turn a generator's results into its raw files; LabError if one cannot be."""
    for argv, out in command.after:
        with (
            replacing(out) as temporary,
            temporary.open("wb") as plain,
            contextlib.ExitStack() as stack,
        ):
            packed = out.suffix == ".gz"
            file = (
                stack.enter_context(gzip.GzipFile("", "wb", 1, plain, mtime=0)) if packed else plain
            )
            done = subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE_S)
            file.write(done.stdout)
        if done.returncode:
            raise LabError(
                f"{argv[0]} {argv[1]} failed: {done.stderr.decode(errors='replace')[-200:]}.",
                exit_code=1,
            )
    for result in {argv[-1] for argv, _ in command.after}:
        Path(result).unlink()


@dataclass(frozen=True)
class Transfer:
    """What the slowest network between a generator's host and the server's did before a run."""

    bytes_s: float
    round_trip_ns: int  # the quickest of some connections to the server: the way there and back


@dataclass(frozen=True)
class Sites:
    """Who is where."""

    server: Site
    generators: tuple[Site, ...]
    database: Site
    probe: Site
    cpus: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # of generators and instruments, by a host's name
    generator_hosts: tuple[GeneratorHost, ...] = ()
    transfer: Transfer | None = None
    """What the network between generators and server carries; None on one machine."""

    @classmethod
    def here(cls, ledger: Ledger) -> Sites:
        """Return this machine in all roles."""
        site = Site(ledger)
        return cls(site, (site,), site, site)

    @property
    def all(self) -> tuple[Site, ...]:
        """Each place once, the server's first."""
        return tuple(dict.fromkeys((self.server, *self.generators, self.database, self.probe)))
