"""The lab's agent on another host, run there in a container: `python -m runner.measure.station`.

station_client.py is the runner's side. The station answers each JSON line on its standard input,
`{"id": 7, "do": NAME, …}`, with one line: `{"id": 7, "done": …}` or `{"id": 7, "error": SENTENCE}`.
It also sends a sign of life now and then. At the end of its input, it ends with all that it
started; the input ends when the runner does, for whatever reason. This module imports only modules
that are in the instruments' image.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.measure import machine, memory
from runner.measure.engine import free_port
from runner.measure.generators.command import Command
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger, boot_id, start_ticks
from runner.measure.machine import Diagnosis, Hello
from runner.measure.sites import Ask, Job, Site
from runner.measurement import Placement
from runner.model import LabError
from runner.shapes import Idle

WORK = Path("/work")  # folder of the loads' files
# bytes sent at a time: on a long network, TCP's slow start takes 5 s for 256 KiB
TRANSFER_BYTES = 1 << 16
TRANSFER_LIMIT_S = 5.0  # longest wait of a transfer for its other side
ALIVE_S = 3.0
"""Interval of a station's signs of life, because an answer may take as long as a load."""


class Station(Site):
    """The station of this host; the runner may call every public method."""

    # the runner measures its offset from the runner's own clock
    now = staticmethod(time.monotonic_ns)
    free_port = staticmethod(free_port)

    def __init__(self, work: Path, transfer_limit_s: float = TRANSFER_LIMIT_S) -> None:
        super().__init__(Ledger(work / "ledger.jsonl"))
        self._work = work
        self.transfer_limit_s = transfer_limit_s
        self._instruments: dict[str, tuple[contextlib.ExitStack, Ask]] = {}
        self._idle = IdleCpus()
        self._watched: dict[int, int | None] = {}
        self._listening: socket.socket | None = None

    def hello(self) -> Hello:
        """Return this host's facts."""
        machine.raise_open_files()
        cpus = sorted(os.sched_getaffinity(0))
        available = memory.available_bytes()
        return {"facts": machine.facts(), "cpus": cpus, "boot": boot_id(), "memory": available}

    def room(self) -> int:
        """Return the free bytes on the disk of the loads' files."""
        return shutil.disk_usage(self._work).free

    def hazards(
        self, server: list[int], others: list[int], connections: int, opened: int
    ) -> list[Diagnosis]:
        """Return everything checked that can distort the numbers on this host.

        `server` and `others` are the CPUs of the server and of the other parts.
        """
        placement = Placement(
            tuple(server or others), tuple(others or server), hosts=("server", "others", "others")
        )
        return [
            found
            for found in machine.examine(placement, connections, opened)
            if found.subject != "cpus"
        ]

    def idle(self, state: Idle) -> str | None:
        """Let idle CPUs poll, or sleep as the system decides; return why that fails."""
        self._idle.ask(state)
        return self._idle.problem

    def start(self, name: str, hz: float, cpus: list[int]) -> None:
        """Start an instrument; end one of the same name first."""
        self.end(name)
        stack = contextlib.ExitStack()
        self._instruments[name] = stack, stack.enter_context(self.instrument(name, hz, cpus))

    def command(self, name: str, command: Mapping[str, Any]) -> str:
        """Send a command to an instrument, and return its answer."""
        if name not in self._instruments:
            raise LabError(f"The {name} does not run.", exit_code=1)
        return self._instruments[name][1](command)

    def end(self, name: str) -> None:
        """End an instrument."""
        if name in self._instruments:
            self._instruments.pop(name)[0].close()

    def new_folder(self, name: str) -> None:
        """Create a new folder for the files of a load."""
        folder = self._work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    def run(
        self,
        command: Mapping[str, Any],
        cpus: list[int],
        folder: str,
        begin_mono_ns: int | None,
        sampled: bool,
    ) -> dict[str, object]:
        """Run a generator to its end; return when it was, and the names of its files."""
        log = self._work / folder / "generator.log"
        load = Job(
            Command(**{**command, "argv": tuple(command["argv"])}),
            tuple(cpus),
            {},
            log,
            begin_mono_ns,
        )
        sampler = (
            self._instruments["sampler"][1] if sampled and "sampler" in self._instruments else None
        )
        loaded = self.load(load, sampler)()
        return {"loaded": loaded, "files": sorted(path.name for path in log.parent.iterdir())}

    def watch(self, pid: int) -> None:
        """Kill a container's process when this station ends, because the runner may be dead."""
        self._watched[pid] = start_ticks(pid)

    def listen(self, address: str) -> int:
        """Listen on an address, for one transfer or for connections that are closed at once.

        Return the port.
        """
        if self._listening is not None:
            self._listening.close()
        self._listening = socket.create_server((address, 0), backlog=20)
        self._listening.settimeout(self.transfer_limit_s)
        return int(self._listening.getsockname()[1])

    def receive(self, peer: str) -> float:
        """Receive a transfer from `peer` only; return the bytes per second."""
        assert self._listening is not None
        with self._listening as listening:
            channel, whose = listening.accept()
            with channel:
                if whose[0] != peer:
                    raise LabError("Another host connected to the transfer.", exit_code=1)
                channel.settimeout(self.transfer_limit_s)
                buffer = bytearray(TRANSFER_BYTES)
                received = 0
                begun = time.monotonic()
                while count := channel.recv_into(buffer):
                    received += count
                return received / max(time.monotonic() - begun, 1e-9)

    def send(self, address: str, port: int, seconds: float) -> None:
        """Send as much as possible to another station for `seconds`."""
        with socket.create_connection((address, port), timeout=self.transfer_limit_s) as channel:
            until = time.monotonic() + seconds
            chunk = bytes(TRANSFER_BYTES)
            while time.monotonic() < until:
                channel.sendall(chunk)

    def close(self) -> None:
        """End everything; kill the watched processes that still run."""
        for name in list(self._instruments):
            self.end(name)
        self._idle.close()
        for pid, begun in self._watched.items():
            if begun is not None and start_ticks(pid) == begun:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def answer(station: Station, line: str) -> str:
    """Execute the request in a line.

    Return a line with `done` and the result, or with `error` and a sentence.
    """
    asked = json.loads(line)
    number = asked.pop("id", None)
    name = asked.pop("do", "")
    try:
        if name.startswith("_"):
            raise AttributeError(name)
        found = {"done": getattr(station, name)(**asked)}
    except LabError as error:
        found = {"error": str(error)}
    except TimeoutError:
        waited_s = station.transfer_limit_s
        found = {"error": f"Nothing came from the other host, or went to it, for {waited_s:g} s."}
    except (OSError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        found = {"error": f"{type(error).__name__}: {error}."}
    return json.dumps({"id": number, **found}, default=vars)


def main() -> None:
    """Answer until the end of input or a signal; at the deadline SIGALRM ends it."""
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    if len(sys.argv) > 1:
        signal.alarm(int(sys.argv[1]))
    saying = threading.Lock()

    def say(line: str) -> None:
        with saying:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def say_alive() -> None:
        while True:
            time.sleep(ALIVE_S)
            say(json.dumps({"alive": time.monotonic_ns()}))

    threading.Thread(target=say_alive, daemon=True).start()
    with contextlib.closing(Station(Path(os.environ.get("LAB_WORK", str(WORK))))) as station:
        for line in sys.stdin:
            say(answer(station, line))


if __name__ == "__main__":
    main()
