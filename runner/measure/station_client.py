"""The runner's side of a station on another host, over Docker's attach channel.

No other port is needed.
"""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
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
from runner.measure.memory import Kills
from runner.measure.sites import Ask, Clock, Job, Site
from runner.measurement import Counters, Loaded, Quota
from runner.model import CannotGoOnError, LabError
from runner.store import replacing

if TYPE_CHECKING:
    from docker.models.containers import Container

SILENT_S = 20.0
"""A station sends a sign of life every 3 s; after this silence it counts as lost."""
WORK = PurePosixPath("/work")
LAB = Path("/lab")
CLOCK_QUESTIONS = 30


class Channel:
    """Lines to and from a container's standard input and output.

    Stdout and stderr come in frames (Docker's attach protocol).
    """

    def __init__(self, container: Container) -> None:
        self._raw: Any = container.attach_socket(
            params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        )
        self._socket: Any = getattr(self._raw, "_sock", self._raw)
        self._socket.settimeout(None)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.complaint = b""  # the last output on its standard error
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, line: str) -> None:
        """Send a line; raise OSError if the container has ended."""
        self._socket.sendall(line.encode() + b"\n")

    def take(self, timeout_s: float) -> bytes | None:
        """Return the next line; None if the station has ended.

        Raise queue.Empty if none arrives in time.
        """
        return self._lines.get(timeout=timeout_s)

    def close(self) -> None:
        """End the station by ending its input."""
        for each in (self._socket, self._raw):
            with contextlib.suppress(OSError, EOFError):
                each.close()

    def _read(self) -> None:
        pending = b""
        with contextlib.suppress(OSError, EOFError, ValueError):
            while head := self._exactly(8):
                stream, length = struct.unpack(">BxxxL", head)
                text = self._exactly(length)
                if stream == 1:
                    *lines, pending = (pending + text).split(b"\n")
                    for line in lines:
                        self._lines.put(line)
                else:
                    self.complaint = (self.complaint + text)[-2000:]
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
    """Another host as a Site, which sends its calls to the host's station."""

    def __init__(self, name: str, container: Container, channel: Channel, address: str) -> None:
        self.name = name
        self.address = address
        self.is_lost = False  # True if no more answers will come
        self._container = container
        self._channel = channel
        # Request id: replies to abandoned requests are discarded.
        self._asked = 0

    def ask(self, do: str, timeout_s: float = 3 * SILENT_S, **more: Any) -> Any:
        """Call a method of the station and return the result.

        Raise LabError with the station's error, or if no answer comes.
        """
        return self.begin(do, timeout_s, **more)()

    def begin(self, do: str, timeout_s: float = 3 * SILENT_S, **more: Any) -> Callable[[], Any]:
        """Begin a call; the returned function waits for its result."""
        if self.is_lost:
            raise CannotGoOnError(
                f"The host of the {self.name} stopped responding: "
                "check that it and its Docker engine run."
            )
        self._asked += 1
        try:
            self._channel.send(json.dumps({"id": self._asked, "do": do, **more}))
        except OSError:
            raise self._lost("stopped responding") from None
        return lambda: self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Any:
        found: dict[str, object] = {}
        until = time.monotonic() + timeout_s
        while found.get("id") != self._asked:
            try:
                line = self._channel.take(min(SILENT_S, max(0.1, until - time.monotonic())))
            except queue.Empty:
                raise self._lost("did not answer") from None
            if time.monotonic() > until + SILENT_S:
                raise self._lost(f"did not answer within {timeout_s:.0f} s")
            if line is None:
                raise self._lost("stopped responding")
            found = json.loads(line)
        if "error" in found:
            raise LabError(f"On the host of the {self.name}: {found['error']}", exit_code=1)
        return found["done"]

    def _lost(self, how: str) -> LabError:
        self.is_lost = True
        last = self._channel.complaint.decode(errors="replace").strip().splitlines()[-1:]
        said = f" (its last message: {last[0][:200]})" if last else ""
        return LabError(f"The host of the {self.name} {how}{said}.", exit_code=1)

    def look_at_clock(self) -> int:
        """Measure the clock's offset again, by the request with the fastest answer.

        Return its change in ns.
        """
        found = []
        for _ in range(CLOCK_QUESTIONS):
            asked = time.monotonic_ns()
            there = self.ask("now")
            took = time.monotonic_ns() - asked
            found.append(Clock(there - asked - took // 2, took - took // 2))
        before = self.clock
        self.clock = min(found, key=lambda clock: clock.error_ns)
        return abs(self.clock.offset_ns - before.offset_ns)

    def counters(self) -> Counters:
        """Return that host's kernel counters."""
        return Counters(**self.ask("counters"))

    def kills(self, pid: int) -> Kills:
        """Return the number of processes killed there for lack of memory."""
        return Kills(**self.ask("kills", pid=pid))

    @staticmethod
    def spent(_pid: int) -> None:
        """Return None: what a server on another host took is not read."""

    @staticmethod
    def resident(_pid: int) -> None:
        """Return None: the memory of a server on another host is only sampled."""

    def quota(self, pid: int) -> Quota:
        """Return the CPU quota of a process there."""
        return Quota(**self.ask("quota", pid=pid))

    def network(self) -> dict[str, int]:
        """Return the bytes sent over its interfaces so far, and TCP's segments."""
        return dict(self.ask("network"))

    def undelivered(self, port: int) -> int:
        """Return the number of closed connections from there that still have data to deliver.

        Only connections to this port of a server count.
        """
        return int(self.ask("undelivered", port=port))

    def reach(self, address: str, port: int, times: int = 1) -> int:
        """Return the fastest connect from there to a server, in ns.

        Raise LabError if there is none.
        """
        return int(self.ask("reach", address=address, port=port, times=times))

    def room(self) -> int:
        """Return the free bytes on the disk of a load's files there."""
        return int(self.ask("room"))

    @contextlib.contextmanager
    def instrument(self, name: str, hz: float, cpus: Sequence[int]) -> Iterator[Ask]:
        """Run an instrument there."""
        self.ask("start", name=name, hz=hz, cpus=list(cpus))
        try:
            yield lambda command: str(
                self.ask("command", 2 * SILENT_S, name=name, command=dict(command))
            )
        finally:
            with contextlib.suppress(LabError):
                self.ask("end", name=name)

    def shot(self, shot: Shot) -> Shot:
        """Return a generator's request with the paths of the instruments' image."""
        script = LAB / "runner" / "workloads" / shot.script.name
        return replace(shot, tool=LAB / "tools" / shot.tool.name.partition("-")[0], script=script)

    def new_paths(self, files: Mapping[str, Path]) -> Mapping[str, Path]:
        """Empty the folder of a load there; return the paths of the load's files."""
        self.ask("new_folder", name="load")
        return {name: Path(WORK / "load" / name) for name in files}

    def load(self, load: Job, sampler: Ask | None) -> Callable[[], Loaded]:
        """Start a load there; the returned function waits for its end and copies its files."""
        folder = "load"
        begin = None if load.begin_mono_ns is None else load.begin_mono_ns + self.clock.offset_ns
        asked: dict[str, object] = {
            "command": {**asdict(load.command), "after": []},
            "cpus": load.cpus,
            "folder": folder,
        }
        asked |= {"begin_mono_ns": begin, "sampled": sampler is not None}
        answer = self.begin("run", load.command.timeout_s + 2 * SILENT_S, **asked)

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

    def _copy(self, there: PurePosixPath, here: Path) -> None:
        """Copy a file from there; append a log to the one here."""
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
        for _ in chunks:  # unread data would keep the connection open, of which ssh allows ten
            pass
