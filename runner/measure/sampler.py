"""Sample cumulative CPU and memory counters of every subject, in a separate process.

Run as `python -m runner.measure.sampler HZ CPUS`; loading.py is the runner's side. Commands are
JSON lines on standard input; the sampler ends at the end of input.

`add` samples the control group of `pid`, or its process tree if other processes are in its group
(`alone` is false). The subject replaces any other of its name. With `threads`, each row has the
time for which its threads waited for a CPU. With `cpus`, each row has the number of other CPUs
that the subject may use. `poll` requests /stats of the server `of` that name at `address` and a
port over one kept connection; without a name it stops polling. `stop` returns all rows, including
a last one. Each row has the monotonic and the wall time of its reading.
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
from runner.measure.threads import Scheduling, Threads
from runner.model import STATS_COLUMNS

EVERY_TICKS = 4  # at 20 Hz: five requests a second, which the server does not count
MOST_BYTES = 65_536


class StatsPoll:
    """Polls /stats over one kept connection, without waiting for answers.

    A request is sent at one tick, and its answer is read at a later one. A saturated server answers
    late; then the next request is delayed, but not the sampler.
    """

    def __init__(self, address: str, port: int) -> None:
        self._channel: socket.socket | None = None
        # If the server has just died, another part of the lab reports it.
        with contextlib.suppress(OSError):
            self._channel = socket.create_connection((address, port), timeout=2.0)
            self._channel.setblocking(False)
        self._reader = ResponseReader()
        self._asked = False
        self._last_tick = -EVERY_TICKS

    def ask(self, tick: int) -> None:
        """Send a request if the last one is answered and another one is due."""
        if self._channel is None or self._asked or tick - self._last_tick < EVERY_TICKS:
            return
        try:
            self._channel.send(b"GET /stats HTTP/1.1\r\nHost: lab\r\n\r\n")
            self._asked = True
            self._last_tick = tick
        except OSError:
            self.close()

    def take(self) -> dict[str, float] | None:
        """Return the numbers of an answer that has arrived since the last call; None without
        one.
        """
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
        """Stop polling."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None


SAMPLE_COLUMNS = ("tick", *Reading._fields, *Scheduling._fields, "foreign_cpus")
"""Columns of a row; `foreign_cpus` counts the CPUs that a subject may use beside its own.

Only servers have values in those of `Scheduling`.
"""
MISSING = -1
MEMORY_NS = 240_000_000
"""Age at which memory and threads are read again: every fifth tick of 50 ms.

A tick may be a little early.
"""


class _Watch:
    """Reads the subjects' counters at each tick, and the server's /stats now and then.

    Rows are consecutive in a compact array: an hour of five subjects at 20 Hz is 32 MB.
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._subjects: list[str] = []
        """Subject of each row."""
        self._names: list[str] = []
        """Name of each row's source."""
        self._numbers = array("q")  # the values of SAMPLE_COLUMNS, row by row
        self._stats: dict[int, dict[str, float]] = {}
        """Answers of /stats, by the number of the next row."""
        self._poll: StatsPoll | None = None
        self._polled = ""  # the subject whose /stats is polled
        self._threads: dict[str, Threads] = {}
        """Threads of each subject whose waiting is read."""
        self._held: dict[str, tuple[int, frozenset[int]]] = {}
        """Process and CPUs of each subject that must stay on its CPUs."""

    def command(self, line: str) -> bool:
        """Execute one command; return False to stop."""
        command = json.loads(line)
        if "add" in command:
            subject = command["add"]
            pid = command["pid"]
            cpus = command.get("cpus")
            self._threads.pop(subject, None)
            with contextlib.suppress(OSError):  # the process has just ended, so it has no rows
                source = source_of(pid, MEMORY_NS, alone=command.get("alone", True))
                self._sources[subject] = source
                if command.get("threads"):
                    self._threads[subject] = Threads(pid, source.pids)
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
        """Read every subject once, and the answer of /stats if it has arrived."""
        if self._poll is not None:
            self._poll.ask(tick)
        for subject, source in list(self._sources.items()):
            try:
                reading = source.read()
            except OSError:
                # A subject may end near the edges of a load; then its rows stop. It is not searched
                # again, because another process may have its number.
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
                with contextlib.suppress(OSError):  # the process has ended
                    foreign = len(os.sched_getaffinity(pid) - given)
            self._subjects.append(subject)
            self._names.append(source.name)
            self._numbers.extend(
                [
                    MISSING if value is None else value
                    for value in (tick, *reading, *self._scheduling(subject), foreign)
                ]
            )

    def _scheduling(self, subject: str) -> Scheduling:
        """Read the threads of a subject; nothing is known of one that has ended."""
        threads = self._threads.get(subject)
        if threads is None:
            return Scheduling()
        try:
            return threads.read()
        except OSError:
            del self._threads[subject]
            return Scheduling()

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
    """Sample on an absolute schedule until `stop`; missed ticks are skipped."""
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
