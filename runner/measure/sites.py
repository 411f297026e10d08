"""Sites on which the parts of a trial run: this machine, or another host (station_client.py).

Both kinds of site have the same methods. This module does not import pyarrow, because the import
takes 0.8 s and 50 MB in each instrument, and because pyarrow is not installed on other hosts.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
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
from runner.measure import spent as took
from runner.measure.generators.command import Command, Shot
from runner.measure.leftovers import Ledger
from runner.measure.process_engine import pinned
from runner.measure.tools import run_within
from runner.measurement import Counters, GeneratorHost, Loaded, Quota
from runner.model import LabError
from runner.store import replacing

PATIENCE_S = 60.0
"""An instrument must answer within this time.

Instruments normally answer within milliseconds. Only the sampler's last answer, which contains all
rows, may take a second.
"""
REACH_S = 4.0
"""A connection must be established within this time.

The kernel sends a lost SYN again after 1 s and after 3 s. So the connection is established even if
the network loses one or two packets.
"""
Ask = Callable[[Mapping[str, Any]], str]
"""A function that sends a command to an instrument and returns the instrument's answer.

The function raises LabError if no answer comes.
"""


@dataclass(frozen=True)
class Clock:
    """The offset of a host's monotonic clock, and the largest possible error of this offset.

    The offset is the time by which the host's clock is ahead of this machine's clock.
    """

    offset_ns: int = 0
    error_ns: int = 0


@dataclass(frozen=True)
class Job:
    """The command that one generator runs for a load, and the CPUs that the generator uses.

    `files` and `log` are the paths on this machine of the generator's raw files and of its log.
    """

    command: Command
    cpus: tuple[int, ...]
    files: Mapping[str, Path]
    log: Path
    begin_mono_ns: int | None = None
    """When the load shall begin, by this machine's clock, or None to begin immediately."""


class Site:
    """This machine, as a site on which servers, generators or instruments run.

    The subclass StationClient is a site on another host.
    """

    name = ""  # role of the site, as shown to readers; empty for this machine
    address = ""  # address in the network between the hosts; empty for this machine
    clock = Clock()
    kills = staticmethod(memory.kills)
    spent = staticmethod(took.spent_by)
    resident = staticmethod(took.resident_bytes)
    network = staticmethod(counters.network_bytes)
    undelivered = staticmethod(counters.undelivered)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def loss(self) -> str:
        """A sentence that names the lost hosts. Empty, because this machine cannot be lost."""
        return ""

    def take_longest_silence_s(self) -> float:
        """Return the longest silence of the site since the previous call, in seconds.

        This machine is never silent, so return 0.
        """
        return 0.0

    def quota(self, pid: int) -> Quota:
        """Return the lowest quota that applies to a process, as `quotas.quota_of` does."""
        return quotas.quota_of(pid)

    def counters(self) -> Counters:
        """Return the kernel's counters.

        The server's own counters (`requests` and `connections`) are None, because this method does
        not ask the server.
        """
        return Counters(
            None, None, counters.tcp_counters()["PassiveOpens"], counters.dropped_packets()
        )

    def reach(self, address: str, port: int, times: int = 1) -> int:
        """Connect to a server `times` times; return the duration of the fastest connect, in ns.

        Raise LabError if any connect fails or exceeds REACH_S.
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
        """Measure the offset of the site's clock, and return the change of the offset, in ns.

        On this machine, the offset is always 0, so return 0.
        """
        return 0

    def room(self) -> int | None:
        """Return the number of bytes that are free for the files of a load.

        Return None on this machine, because here a load writes its files to the disk of the run,
        whose free space is checked elsewhere.
        """
        return None

    @contextlib.contextmanager
    def instrument(self, name: str, hz: float, cpus: Sequence[int]) -> Iterator[Ask]:
        """Run the instrument `runner.measure.NAME` on `cpus`, with `hz` samples per second.

        When the context ends, close the instrument's input, which makes the instrument end. If the
        instrument does not end, kill it.
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
                        f"The process of the {name} did not answer within {PATIENCE_S:.0f} s.",
                        exit_code=1,
                    )
                answer = out.readline()
            if not answer:
                raise LabError(
                    f"The process of the {name} ended before the end of the trial.", exit_code=1
                )
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
        """Return a Shot with the paths of the generator's program and script on this site.

        A Shot is an HTTP request, together with the paths of the program and the script that send
        it. `shot` contains the paths on the runner's machine. This site is the runner's machine, so
        return `shot` unchanged.
        """
        return shot

    def new_paths(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Return the paths on this site at which a load writes its files, by the files' names.

        `files` contains the paths on the runner's machine. This site is the runner's machine, so
        return `files` unchanged. On another host (StationClient), the paths are different, and the
        files are copied to `files` after the load.
        """
        return files

    def load(self, load: Job, sampler: Ask | None) -> Callable[[], Loaded]:
        """Return a function that waits until a load has ended and its files are on this machine.

        On this machine, the load starts only when the caller calls the returned function. On
        another host, `load` itself starts the load, and the returned function copies the load's
        files to this machine. If `sampler` is given, this sampler of the site watches the generator
        from the generator's first instruction on. The returned function returns the exit code and
        the times of the load. It raises LabError if the generator exceeded its time limit and was
        killed, or if the generator's results cannot be converted.
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
    """Convert a generator's results into raw files, and then delete the results.

    Raise LabError if the conversion fails.
    """
    longest_s = max(PATIENCE_S, command.timeout_s)
    for argv, out in command.after:
        name = f"{argv[0]} {argv[1]}"
        done = run_within(name, argv, longest_s)
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-200:]
            raise LabError(f"{name} failed: {said}.", exit_code=1)
        with replacing(out) as temporary, temporary.open("wb") as plain:
            if out.suffix == ".gz":
                with gzip.GzipFile("", "wb", 1, plain, mtime=0) as packed:
                    packed.write(done.stdout)
            else:
                plain.write(done.stdout)
    for result in {argv[-1] for argv, _ in command.after}:
        Path(result).unlink()


@dataclass(frozen=True)
class Transfer:
    """The network between the generators' hosts and the server's host, as measured before a run.

    With several generators, each value is the worst of all generators' values.
    """

    bytes_s: float
    round_trip_ns: int  # duration of the fastest of several connects to the server


@dataclass(frozen=True)
class Sites:
    """The sites of a run's server, generators, database and probe."""

    server: Site
    generators: tuple[Site, ...]
    database: Site
    probe: Site
    cpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """CPUs of generators and instruments, by the name of their site."""
    generator_hosts: tuple[GeneratorHost, ...] = ()
    transfer: Transfer | None = None
    """The network between generators and server, or None if all run on one machine."""

    @classmethod
    def here(cls, ledger: Ledger) -> Sites:
        """Return Sites with this machine in all roles."""
        site = Site(ledger)
        return cls(site, (site,), site, site)

    @property
    def all(self) -> tuple[Site, ...]:
        """Each site once; the server's site is the first."""
        return tuple(dict.fromkeys((self.server, *self.generators, self.database, self.probe)))

    def without_addresses(self, text: str) -> str:
        """Replace the server's address in a text by SERVER, and other hosts' addresses by HOST."""
        for site in filter(lambda site: site.address, self.all):
            word = "SERVER" if site is self.server else "HOST"
            text = re.sub(rf"(?<![\d.]){re.escape(site.address)}(?!\d)", word, text)
        return text
