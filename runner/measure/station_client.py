"""The runner's side of a station, which is the lab's process on another host (station.py).

The runner talks to the station through the host's Docker engine (attach), so the host needs no open
port besides the engine's.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import socket
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from runner.measure.generators.command import Shot
from runner.measure.heartbeat import BEAT, BEAT_S, Silence, Vigil
from runner.measure.memory import Kills
from runner.measure.perf import Observing
from runner.measure.sites import Ask, Clock, Job, Site
from runner.measurement import Counters, Loaded, Quota, Spent
from runner.model import CannotGoOnError, LabError
from runner.store import replacing

if TYPE_CHECKING:
    from docker.models.containers import Container

ANSWER_S = 60.0
"""A station must answer a request within this time, even if it shows signs of life."""
LOAD_S = 40.0
"""A station must answer a request for a load within the generator's time limit plus this time."""
OBSERVED_S = 200.0
"""A station must end perf and write perf's samples as text within this time.

The time is longer than the time limits in perf.py. So if perf does not end, the station has time to
report the error of perf.
"""
LOOK_S = 0.25
"""While the runner waits for an answer, it checks at this interval whether a host was lost."""
SIGN_OF_LIFE = b'{"alive"'
"""A line of a station that begins with this text is only a sign of life, not an answer."""
WORK = PurePosixPath("/work")
LAB = Path("/lab")
CLOCK_QUESTIONS = 30


class Channel:
    """Sends lines to a container's standard input, and receives lines from its standard output.

    A channel also sends signs of life to the container, and measures how long no data arrive from
    the container. The container's standard output and standard error arrive on one connection, in
    frames (Docker's attach protocol).
    """

    def __init__(self, container: Container) -> None:
        self._raw: Any = container.attach_socket(
            params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        )
        self._socket: Any = getattr(self._raw, "_sock", self._raw)
        self._socket.settimeout(None)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self.silence = Silence()
        self.is_over = False
        self.complaint = b""  # the last output on the container's standard error
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, line: str) -> None:
        """Send a line; raise OSError if the container has ended."""
        with self._sending:
            self._socket.sendall(line.encode() + b"\n")

    def take(self, timeout_s: float) -> bytes | None:
        """Return the next line, or None if the station has ended.

        Raise queue.Empty if no line arrives in time.
        """
        return self._lines.get(timeout=timeout_s)

    def close(self) -> None:
        """Close the station's input, which makes the station end."""
        self._closed.set()
        with contextlib.suppress(OSError, EOFError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for lines
        for each in (self._socket, self._raw):
            with contextlib.suppress(OSError, EOFError):
                each.close()

    def _beat(self) -> None:
        """Send the station a sign of life every BEAT_S."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            while not self._closed.wait(BEAT_S):
                self.send(BEAT)

    def _read(self) -> None:
        pending = b""
        with contextlib.suppress(OSError, EOFError, ValueError):
            while head := self._exactly(8):
                stream, length = struct.unpack(">BxxxL", head)
                text = self._exactly(length)
                self.silence.heard()
                if stream == 1:
                    *lines, pending = (pending + text).split(b"\n")
                    for line in lines:
                        if not line.startswith(SIGN_OF_LIFE):
                            self._lines.put(line)
                else:
                    self.complaint = (self.complaint + text)[-2000:]
        self.is_over = True
        self._lines.put(None)

    def _exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                return b""
            parts += part
        return parts


class StationClient(Site):
    """A Site on another host; most methods are calls to the station on that host."""

    def __init__(
        self, name: str, container: Container, channel: Channel, address: str, vigil: Vigil
    ) -> None:
        self.name = name
        self.address = address
        self._container = container
        self._channel = channel
        self._vigil = vigil
        # Id of the last request. Answers with another id belong to abandoned requests, and are
        # discarded.
        self._asked = 0

    def beside(self, container: Container, channel: Channel) -> StationClient:
        """Return the client of a second station, which runs in `container` on the same host.

        Calls to the second station, too, raise CannotGoOnError if any host of the run is lost.
        """
        return StationClient(self.name, container, channel, self.address, self._vigil)

    @property
    def is_lost(self) -> bool:
        """True if the station's host is lost."""
        return self._vigil.is_lost(self.name)

    @property
    def loss(self) -> str:
        """A sentence that names all lost hosts of the run. It is empty if no host is lost."""
        return self._vigil.loss

    def take_longest_silence_s(self) -> float:
        """Return the longest time without data from the host since the previous call, in s."""
        return self._channel.silence.take_longest_s()

    def ask(self, do: str, timeout_s: float = ANSWER_S, **more: Any) -> Any:
        """Call a method of the station and return the result.

        Raise LabError if the method fails, or if no answer comes within `timeout_s`. Raise
        CannotGoOnError if any host of the run is lost.
        """
        return self.begin(do, timeout_s, **more)()

    def begin(self, do: str, timeout_s: float = ANSWER_S, **more: Any) -> Callable[[], Any]:
        """Begin a call of a method; return a function that waits for the result of the call."""
        self._vigil.require()
        self._asked += 1
        try:
            self._channel.send(json.dumps({"id": self._asked, "do": do, **more}))
        except OSError:
            raise self._ended() from None
        return lambda: self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Any:
        found: dict[str, object] = {}
        until = time.monotonic() + timeout_s
        while found.get("id") != self._asked:
            self._vigil.require()
            if time.monotonic() > until:
                raise LabError(
                    f"The host of the {self.name} did not answer within {timeout_s:.0f} s.",
                    exit_code=1,
                )
            try:
                line = self._channel.take(LOOK_S)
            except queue.Empty:
                continue
            if line is None:
                raise self._ended()
            found = json.loads(line)
        if "error" in found:
            raise LabError(f"On the host of the {self.name}: {found['error']}", exit_code=1)
        return found["done"]

    def _ended(self) -> CannotGoOnError:
        """Mark the host as lost, because its station has ended; return the error to raise."""
        self._vigil.lose(self._channel)
        last = self._channel.complaint.decode(errors="replace").strip().splitlines()[-1:]
        said = f" Its station's last message: {last[0][:200]}" if last else ""
        lost = self.loss or f"The host of the {self.name} stopped responding."
        return CannotGoOnError(f"{lost}{said}")

    def look_at_clock(self) -> int:
        """Measure the offset of the host's clock again; return by how many ns it has changed."""
        before = self.clock
        self.clock = self._compared("now", time.monotonic_ns)
        return abs(self.clock.offset_ns - before.offset_ns)

    def wall_ahead_ns(self) -> int:
        """Return the time by which the host's wall clock is ahead of this machine's, in ns."""
        return self._compared("wall_now", time.time_ns).offset_ns

    def _compared(self, question: str, now: Callable[[], int]) -> Clock:
        """Return how far a clock of the host is ahead of the same clock of this machine.

        The result also contains the largest possible error. `question` is the name of the station's
        method that returns the time by the host's clock. `now` returns the time by this machine's
        clock. Call the station's method CLOCK_QUESTIONS times, and use only the answer that came
        fastest, because its error is the smallest.
        """
        found = []
        for _ in range(CLOCK_QUESTIONS):
            asked = now()
            there = self.ask(question)
            took = now() - asked
            found.append(Clock(there - asked - took // 2, took - took // 2))
        return min(found, key=lambda clock: clock.error_ns)

    def counters(self) -> Counters:
        """Return the counters of the host's kernel."""
        return Counters(**self.ask("counters"))

    def kills(self, pid: int) -> Kills:
        """Return the numbers of processes that were killed for lack of memory on the host."""
        return Kills(**self.ask("kills", pid=pid))

    def spent(self, pid: int) -> Spent | None:
        """Return the counts of a process and its descendants, or None if all have ended."""
        found = self.ask("spent", pid=pid)
        return None if found is None else Spent(**found)

    def resident(self, pid: int) -> int | None:
        """Return the resident memory of a process and its descendants, or None if unknown."""
        found = self.ask("resident", pid=pid)
        return None if found is None else int(found)

    def quota(self, pid: int) -> Quota:
        """Return the CPU quota of a process on the host."""
        return Quota(**self.ask("quota", pid=pid))

    def network(self) -> dict[str, int]:
        """Return the host's counts of bytes and TCP segments, as `counters.network_bytes` does."""
        return dict(self.ask("network"))

    def undelivered(self, port: int) -> int:
        """Return the number of connections that `counters.undelivered` counts on the host."""
        return int(self.ask("undelivered", port=port))

    def reach(self, address: str, port: int, times: int = 1) -> int:
        """Connect from the host to a server; return the duration of the fastest connect, in ns.

        Raise LabError if any connect fails.
        """
        return int(self.ask("reach", address=address, port=port, times=times))

    def room(self) -> int:
        """Return the number of bytes that are free on the host for the files of a load."""
        return int(self.ask("room"))

    @contextlib.contextmanager
    def instrument(self, name: str, hz: float, cpus: Sequence[int]) -> Iterator[Ask]:
        """Run an instrument on the host."""
        self.ask("start", name=name, hz=hz, cpus=list(cpus))
        try:
            yield lambda command: str(
                self.ask("command", ANSWER_S, name=name, command=dict(command))
            )
        finally:
            with contextlib.suppress(LabError):
                self.ask("end", name=name)

    def shot(self, shot: Shot) -> Shot:
        """Return a Shot with the paths of the generator's program and script in the image.

        A Shot is an HTTP request, together with the paths of the program and the script that send
        it. `shot` contains the paths on the runner's machine. Replace them by the paths in the
        station's image, because the generator runs in the station's container.
        """
        script = LAB / "runner" / "workloads" / shot.script.name
        return replace(shot, tool=LAB / "tools" / shot.tool.name.partition("-")[0], script=script)

    def new_paths(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Empty the folder for the files of a load on the host.

        Return the paths that the files will have in this folder, by the files' names.
        """
        self.ask("new_folder", name="load")
        return {name: Path(WORK / "load" / name) for name in files}

    def load(self, load: Job, sampler: Ask | None) -> Callable[[], Loaded]:
        """Start a load on the host; return a function that waits for the load's end.

        The function then copies the load's files to this machine, and returns the exit code and the
        times of the load, with monotonic times by this machine's clock.
        """
        folder = "load"
        begin = None if load.begin_mono_ns is None else load.begin_mono_ns + self.clock.offset_ns
        asked: dict[str, object] = {
            "command": {**asdict(load.command), "after": []},
            "cpus": load.cpus,
            "folder": folder,
        }
        asked |= {"begin_mono_ns": begin, "sampled": sampler is not None}
        answer = self.begin("run", load.command.timeout_s + LOAD_S, **asked)

        def wait() -> Loaded:
            done = answer()
            for name, path in {**load.files, "generator.log": load.log}.items():
                if name in done["files"]:
                    self._copy(WORK / folder / name, path)
            loaded = Loaded(**done["loaded"])
            ahead_ns = self.clock.offset_ns
            begun = loaded.load_started_mono_ns - ahead_ns
            end = loaded.load_ended_mono_ns - ahead_ns
            return replace(loaded, load_started_mono_ns=begun, load_ended_mono_ns=end)

        return wait

    @contextlib.contextmanager
    def observing(self, how: Observing, pid: int, cpus: Sequence[int], out: Path) -> Iterator[None]:
        """Let perf on the host observe a process and its descendants while the context is open.

        perf runs on `cpus` of the host. When the context ends, copy perf's file to `out`. Raise
        LabError if perf fails.
        """
        name = out.name
        self.ask("observe", how=how, pid=pid, cpus=list(cpus), name=name)
        try:
            yield
        except BaseException:
            with contextlib.suppress(LabError):
                self.ask("forget", name=name)
            raise
        self.ask("observed", OBSERVED_S, name=name)
        self._copy(WORK / name, out)

    def _copy(self, there: PurePosixPath, here: Path) -> None:
        """Copy a file from the host; if it is a log, append it to the log on this machine."""
        chunks, _ = self._container.get_archive(str(there))
        stream: Any = SimpleNamespace(read=lambda _size: next(chunks, b""))
        with tarfile.open(fileobj=stream, mode="r|") as packed:
            entry = packed.next()
            source = packed.extractfile(entry) if entry is not None and entry.isfile() else None
            if source is None:
                raise LabError(f"The host of the {self.name} has no {there.name}.", exit_code=1)
            if here.suffix == ".log":
                with here.open("ab") as log:
                    log.write(source.read())
            else:
                with replacing(here) as temporary, temporary.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
        # Read all data of the archive, because unread data would keep the connection open, and ssh
        # allows only ten connections.
        for _ in chunks:
            pass
