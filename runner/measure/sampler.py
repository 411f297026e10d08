"""Sample cumulative CPU and memory counters of every subject, in a separate process.

Run as `python -m runner.measure.sampler HZ CPUS`. Commands come as JSON lines on standard input;
the end of input ends it. `add` samples the control group of `pid`, or its process tree where it is
not `alone` in its group, as a subject of that name instead of any before; with `cpus`, those that
it was given, each row says how many others it may use. `poll` asks, over one connection kept open,
the /stats of the server `of` that name at `address` and a port, or of none. `stop` is answered with
all rows, a last one included. Each row carries the monotonic and the wall time of its reading. The
runner's side of it is in loading.py.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from array import array
from typing import Any

from runner.http_response import RECEIVE_BYTES, ResponseReader
from runner.measure.idle import answer, become_instrument
from runner.measure.subjects import HostSubject, Reading, Source, source_of
from runner.model import STATS_COLUMNS

EVERY_TICKS = 4  # at 20 Hz: five questions a second, which are not counted as requests
MOST_BYTES = 65_536


class StatsPoll:
    """One kept connection to /stats: a question is sent at one tick, its answer is looked for at
    the following ones.

    A saturated server answers late; the next question waits until then, and the sampler never does.
    """

    def __init__(self, address: str, port: int) -> None:
        self._channel: socket.socket | None = None
        with contextlib.suppress(
            OSError
        ):  # a server that has just died is not the sampler's affair
            self._channel = socket.create_connection((address, port), timeout=2.0)
            self._channel.setblocking(False)
        self._reader = ResponseReader()
        self._asked = False
        self._last_tick = -EVERY_TICKS

    def ask(self, tick: int) -> None:
        """Send a question if the last one is answered and it is time for another."""
        if self._channel is None or self._asked or tick - self._last_tick < EVERY_TICKS:
            return
        try:
            self._channel.send(b"GET /stats HTTP/1.1\r\nHost: lab\r\n\r\n")
            self._asked = True
            self._last_tick = tick
        except OSError:
            self.close()

    def take(self) -> dict[str, float] | None:
        """Return the figures of an answer that has come since the last call, else None."""
        if self._channel is None or not self._asked:
            return None
        try:
            received = self._channel.recv(RECEIVE_BYTES)
            self._reader.feed(received)
            response = self._reader.take()
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            self.close()
            return None
        if not received or len(self._reader.pending) > MOST_BYTES:
            self.close()
        if response is None:
            return None
        self._asked = False
        stats = None
        found = {}
        with contextlib.suppress(ValueError):
            stats = json.loads(response.body)
        for name in STATS_COLUMNS:
            value: Any = stats
            for key in filter(None, name.partition("_")[::2]):
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[name] = value
        return found

    def close(self) -> None:
        """Ask no more."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None


SAMPLE_COLUMNS = (
    "tick",
    *Reading._fields,
    "foreign_cpus",
)  # the last: CPUs that a subject may use beside those given to it
MISSING = -1
MEMORY_NS = 240_000_000
"""Memory and threads are looked at every fifth tick of 50 ms, which may be a little early."""


class _Watch:
    """What is sampled at each tick: the subjects' counters, and now and then the server's figures.

    Rows lie one after the other in a compact array: an hour at 20 Hz of five subjects is 32 MB.
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._subjects, self._names = list[str](), list[str]()
        """Of each row its subject, and the name of its source."""
        self._numbers = array("q")  # the values of SAMPLE_COLUMNS, row by row
        self._stats: dict[
            int, dict[str, float]
        ] = {}  # /stats, by the number of the row that it came just before
        self._poll: StatsPoll | None = None
        self._polled = ""  # which subject is asked
        self._held: dict[
            str, tuple[int, frozenset[int]]
        ] = {}  # process and CPUs of subjects that are to stay on them

    def command(self, line: str) -> bool:
        """Carry out one command; return whether to go on."""
        command = json.loads(line)
        if "add" in command:
            subject = command["add"]
            pid = command["pid"]
            cpus = command.get("cpus")
            with contextlib.suppress(OSError):  # it has just died: it has no rows
                self._sources[subject] = source_of(pid, MEMORY_NS, alone=command.get("alone", True))
            if cpus is not None:
                self._held[subject] = pid, frozenset(cpus)
        if "poll" in command:
            if self._poll is not None:
                self._poll.close()
            self._poll = (
                None if command["poll"] is None else StatsPoll(command["address"], command["poll"])
            )
            self._polled = command.get("of", "")
        return "stop" not in command

    def sample(self, tick: int) -> None:
        """Read every subject once, and take what /stats has answered by now."""
        if self._poll is not None:
            self._poll.ask(tick)
        for subject, source in list(self._sources.items()):
            try:
                reading = source.read()
            except OSError:
                # A subject that has ended is normal at the edges of a load; its rows simply stop.
                # It is not looked for again: its number may meanwhile be another's.
                del self._sources[subject]
                continue
            if (
                self._poll is not None
                and subject == self._polled
                and (figures := self._poll.take())
            ):
                self._stats[len(self._subjects)] = figures
            foreign = None
            if subject in self._held:
                pid, given = self._held[subject]
                with contextlib.suppress(OSError):  # it has ended
                    foreign = len(os.sched_getaffinity(pid) - given)
            self._subjects.append(subject)
            self._names.append(source.name)
            self._numbers.extend(
                [MISSING if value is None else value for value in (tick, *reading, foreign)]
            )

    def rows(self) -> str:
        """Return all columns as one JSON object on one line."""
        columns = {
            name: self._numbers[at :: len(SAMPLE_COLUMNS)] for at, name in enumerate(SAMPLE_COLUMNS)
        }
        numbers = {
            name: [None if v == MISSING else v for v in values] for name, values in columns.items()
        }
        answers = [self._stats.get(row, {}) for row in range(len(self._subjects))]
        stats = {name: [answer.get(name) for answer in answers] for name in STATS_COLUMNS}
        return json.dumps({"subject": self._subjects, "source": self._names, **numbers, **stats})


def main() -> None:
    """Sample on an absolute schedule until `stop`; a missed tick is skipped, never made up for."""
    period_ns = become_instrument()
    watch = _Watch({"host": HostSubject(MEMORY_NS), "sampler": source_of(os.getpid(), MEMORY_NS)})
    begin = time.monotonic_ns()
    tick = 0
    while True:
        wait_s = max(0.0, (begin + tick * period_ns - time.monotonic_ns()) / 1e9)
        if select.select([sys.stdin], [], [], wait_s)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            go_on = watch.command(line)
            watch.sample(tick)
            answer("ok" if go_on else watch.rows())
            if not go_on:
                return
        else:
            watch.sample(tick)
            tick = max(tick + 1, -(-(time.monotonic_ns() - begin) // period_ns))


if __name__ == "__main__":
    main()
