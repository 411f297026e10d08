"""The lab's agent on another host, run there in a container: `python -m runner.measure.station`.

station_client.py is the runner's side. The station answers each JSON line on its standard input,
`{"id": 7, "do": NAME, …}`, with one line: `{"id": 7, "done": …}` or `{"id": 7, "error": SENTENCE}`.
Both sides also send a sign of life every second.

If the runner ends, the station's input ends. If the network fails, the input does not end, but no
more lines arrive. So if the input ends, or if no line arrives for `heartbeat.LEASE_S`, the station
kills everything that it started, kills the containers that the lab started on this host, and then
ends. This module imports only modules that are in the instruments' image.
"""

import contextlib
import hmac
import json
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NoReturn

from runner.measure import machine, memory
from runner.measure.cgroups import kill_all
from runner.measure.engine import free_port
from runner.measure.generators.command import Command
from runner.measure.heartbeat import BEAT, BEAT_S, LEASE_S, LOOK_S, Silence
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger, boot_id, is_running
from runner.measure.machine import Diagnosis, Hello
from runner.measure.perf import Observing, Perf, need_perf, refusal
from runner.measure.procfs import descendants
from runner.measure.sites import Ask, Job, Site
from runner.measurement import Placement
from runner.model import LabError
from runner.shapes import Idle

WORK = Path("/work")  # folder for the files of a load
# In a transfer, a station sends bytes to another station, to measure the speed of the network. It
# sends TRANSFER_BYTES at a time. The number must be small, because the transfer fails if sending
# TRANSFER_BYTES takes more than 5 s. On a network with a long round trip, TCP's slow start takes
# 5 s for as little as 256 KiB.
TRANSFER_BYTES = 1 << 16
TRANSFER_LIMIT_S = 5.0  # a transfer waits at most this long for the other station
STRANGER_S = 1.0  # a connection that has not sent the secret within this time is closed
KILLING_S = 3.0  # when the station ends, it tries for this long to kill the remaining processes


class Station(Site):
    """The station of this host; the runner may call every public method."""

    # The runner compares the times that `now` and `wall_now` return with its own clocks.
    now = staticmethod(time.monotonic_ns)
    wall_now = staticmethod(time.time_ns)
    free_port = staticmethod(free_port)

    def __init__(self, work: Path, transfer_limit_s: float = TRANSFER_LIMIT_S) -> None:
        super().__init__(Ledger(work / "ledger.jsonl"))
        self._work = work
        self.transfer_limit_s = transfer_limit_s
        self._instruments: dict[str, tuple[contextlib.ExitStack, Ask]] = {}
        self._idle = IdleCpus()
        self._watched: set[str] = set()
        self._observing: dict[str, contextlib.ExitStack] = {}
        """The observations that perf makes now, by the name of the file that perf will write."""
        self._listening: socket.socket | None = None

    def hello(self) -> Hello:
        """Return the facts of this host that the runner reads when it connects to the station."""
        machine.raise_open_files()
        cpus = sorted(os.sched_getaffinity(0))
        available = memory.available_bytes()
        return {"facts": machine.facts(), "cpus": cpus, "boot": boot_id(), "memory": available}

    def room(self) -> int:
        """Return the number of bytes that are free for the files of a load."""
        return shutil.disk_usage(self._work).free

    def hazards(
        self, server: list[int], others: list[int], connections: int, opened: int
    ) -> list[Diagnosis]:
        """Return the diagnoses of everything on this host that can distort the numbers.

        `server` and `others` are the CPUs of the server and of the other roles on this host.
        `connections` and `opened` mean the same as in `machine.examine`.
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
        """Let idle CPUs poll, or let them sleep as the system decides, as `state` says.

        Return the reason if the CPUs cannot poll, or None if there is no such reason.
        """
        self._idle.ask(state)
        return self._idle.problem

    def start(self, name: str, hz: float, cpus: list[int]) -> None:
        """Start an instrument; if an instrument of the same name runs, end it first."""
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

    def can_profile(self) -> bool:
        """Return whether perf can observe the processes of this host from this container."""
        return refusal() is None

    def observe(self, how: Observing, pid: int, cpus: list[int], name: str) -> None:
        """Start perf on a process and its descendants.

        perf itself runs on `cpus`, and writes the file `name`. perf observes the processes until
        `observed` or `forget` is called with this name.
        """
        perf = Perf(need_perf(), tuple(cpus), self._ledger)
        context = perf.recording if how == "recorded" else perf.counting
        stack = contextlib.ExitStack()
        stack.enter_context(context(pid, self._work / name))
        self._observing[name] = stack

    def observed(self, name: str) -> None:
        """End an observation; perf's file is then in this station's folder."""
        self._observing.pop(name).close()

    def forget(self, name: str) -> None:
        """End an observation whose file is not needed, and ignore any error of perf."""
        with contextlib.suppress(LabError), self._observing.pop(name):
            raise LabError("This observation is not wanted.")

    def new_folder(self, name: str) -> None:
        """Create an empty folder for the files of a load; delete an older folder of this name."""
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
        """Run a generator to its end; return the times of its load and the names of its files."""
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

    def watch(self, container: str) -> None:
        """Register a container, by its full id, so that it is killed when this station ends.

        The container need not run yet.
        """
        self._watched.add(container)

    def listen(self, address: str) -> int:
        """Listen on an address and return the port.

        The port is used for one transfer, or to measure how long it takes to connect.
        """
        if self._listening is not None:
            self._listening.close()
        self._listening = socket.create_server((address, 0), backlog=20)
        self._listening.settimeout(self.transfer_limit_s)
        return int(self._listening.getsockname()[1])

    def receive(self, secret: str) -> float:
        """Receive a transfer that begins with `secret`; return its speed in bytes per second.

        Close each connection on which the other side does not send the secret first. Raise
        TimeoutError if no connection begins with the secret within `transfer_limit_s`.
        """
        assert self._listening is not None
        until = time.monotonic() + self.transfer_limit_s
        with self._listening as listening:
            while (left_s := until - time.monotonic()) > 0:
                listening.settimeout(left_s)
                channel, _ = listening.accept()
                with channel:
                    channel.settimeout(min(left_s, STRANGER_S))
                    if not _begins_with(channel, secret):
                        continue
                    channel.settimeout(self.transfer_limit_s)
                    return _speed(channel)
        raise TimeoutError

    def send(self, address: str, port: int, seconds: float, secret: str) -> None:
        """Send the secret to another station, and then as many bytes as possible for `seconds`."""
        with socket.create_connection((address, port), timeout=self.transfer_limit_s) as channel:
            channel.sendall(secret.encode())
            until = time.monotonic() + seconds
            chunk = bytes(TRANSFER_BYTES)
            while time.monotonic() < until:
                channel.sendall(chunk)

    def close(self) -> None:
        """End everything that this station started, and kill the watched containers' processes."""
        for name in list(self._instruments):
            self.end(name)
        for name in list(self._observing):
            self.forget(name)
        self._idle.close()
        kill_all(lambda: processes_of(self._watched), KILLING_S)

    def abandon(self) -> NoReturn:
        """Kill the watched containers and everything that this process started; end the process."""
        own = os.getpid()

        def left() -> list[int]:
            children = [pid for pid in descendants(own) if pid != own and is_running(pid)]
            return [*processes_of(self._watched), *children]

        kill_all(left, KILLING_S)
        os._exit(1)


def processes_of(containers: Set[str]) -> list[int]:
    """Return the pids of the running processes in containers, which are given by their full ids.

    The processes are found by their control group, because a restarted process has another pid but
    the same group. Whichever cgroup driver the engine uses, the path of the group contains the
    container's id.
    """
    found = []
    for entry in Path("/proc").iterdir() if containers else ():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and is_running(int(entry.name)):
                groups = (entry / "cgroup").read_text()
                found += [int(entry.name)] if any(each in groups for each in containers) else []
    return found


def _begins_with(channel: socket.socket, secret: str) -> bool:
    """Return whether the other side sends `secret` first, within the channel's timeout."""
    expected = secret.encode()
    found = b""
    try:
        while len(found) < len(expected):
            part = channel.recv(len(expected) - len(found))
            if not part:
                return False
            found += part
    except OSError:
        return False
    return hmac.compare_digest(found, expected)


def _speed(channel: socket.socket) -> float:
    """Receive data until the other side closes the connection; return the bytes per second."""
    buffer = bytearray(TRANSFER_BYTES)
    received = 0
    begun = time.monotonic()
    while count := channel.recv_into(buffer):
        received += count
    return received / max(time.monotonic() - begun, 1e-9)


def answer(station: Station, line: str) -> str:
    """Execute the request in a line, and return the answer as a line.

    The answer contains the result as `done`, or a sentence as `error`.
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
        found = {"error": f"No data could be exchanged with the other host for {waited_s:g} s."}
    except (OSError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        found = {"error": f"{type(error).__name__}: {error}."}
    return json.dumps({"id": number, **found}, default=vars)


def _read(requests: "queue.SimpleQueue[str | None]", lease: Silence, over: threading.Event) -> None:
    """Put the runner's requests into the queue; when the input ends, put None and set `over`.

    Each line from the runner ends the silence that `lease` measures, even while a load runs.
    """
    for line in sys.stdin:
        lease.heard()
        if line.strip() != BEAT:
            requests.put(line)
    requests.put(None)
    over.set()


def _guard(station: Station, lease: Silence, over: threading.Event) -> NoReturn:
    """Wait until the input ends, or the runner is silent for LEASE_S; then abandon the station.

    To abandon the station means to kill everything that it started, and to end this process. When
    the input ends, the main thread first gets LOOK_S to end the process in an orderly way. The main
    thread cannot do this while a load runs.
    """
    while lease.seconds() <= LEASE_S:
        if over.wait(LOOK_S):
            time.sleep(LOOK_S)  # meanwhile the main thread ends the process, if no load runs
            break
    station.abandon()


def _say_alive(say: Callable[[str], None]) -> NoReturn:
    while True:
        time.sleep(BEAT_S)
        say(json.dumps({"alive": time.monotonic_ns()}))


def main() -> None:
    """Answer requests until the input ends, the runner is silent for LEASE_S, or a signal comes.

    If the command line contains a number, SIGALRM ends the station after this many seconds.
    """
    saying = threading.Lock()

    def say(line: str) -> None:
        with saying:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    with contextlib.closing(Station(Path(os.environ.get("LAB_WORK", str(WORK))))) as station:
        for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: station.abandon())
        if len(sys.argv) > 1:
            signal.alarm(int(sys.argv[1]))
        lease = Silence()
        requests = queue.SimpleQueue[str | None]()
        over = threading.Event()
        for work, given in (
            (_say_alive, (say,)),
            (_read, (requests, lease, over)),
            (_guard, (station, lease, over)),
        ):
            threading.Thread(target=work, args=given, daemon=True).start()
        while (line := requests.get()) is not None:
            say(answer(station, line))


if __name__ == "__main__":
    main()
