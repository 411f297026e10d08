"""Sample cumulative CPU and memory counters of every subject, in a separate process.

A subject is a server, a database, a generator, the sampler itself, or the whole host. Run as
`python -m runner.measure.sampler HZ CPUS`. The sampler runs on CPUS. There are HZ ticks per second.
At each tick, the sampler reads every subject, and stores a row for each subject. loading.py sends
the commands, which are JSON objects, one per line of standard input. The sampler ends when its
input ends. The commands are:

- `add` contains the name of a subject, and begins to sample this subject. An earlier subject of the
  same name is replaced. The subject is the control group of `pid`. But if `alone` is false, which
  means that the group also contains other processes, the subject is the process tree of `pid`. If
  `threads` is true, each row also contains the time for which the subject's threads waited for a
  CPU. If `cpus` lists CPUs, each row also contains the number of other CPUs that the subject may
  use.
- `poll` contains a port. Its other fields are `address`, and `of`, the name of a subject. The
  sampler begins to request /stats at this address and port, over one connection that is kept open,
  and stores the answers in rows of this subject. If the port is null, polling ends.
- `stop` reads every subject once more, returns all rows, and ends the sampler.

Each row contains the monotonic time and the wall time at which the subject was read.
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

# A request for /stats is sent at every fourth tick. With 20 ticks per second, these are five
# requests per second. The server does not count requests for /stats.
EVERY_TICKS = 4
MOST_BYTES = 65_536


class StatsPoll:
    """Polls a server's /stats over one connection that is kept open, without waiting for answers.

    A request is sent at one tick, and its answer is read at a later tick. If a saturated server
    answers late, the next request is sent late, but the sampler takes its samples in time.
    """

    def __init__(self, address: str, port: int) -> None:
        self._channel: socket.socket | None = None
        # If the server has just died, raise no error, because the lab reports the death elsewhere.
        with contextlib.suppress(OSError):
            self._channel = socket.create_connection((address, port), timeout=2.0)
            self._channel.setblocking(False)
        self._reader = ResponseReader()
        self._asked = False
        self._last_tick = -EVERY_TICKS

    def ask(self, tick: int) -> None:
        """Send a request if the previous request is answered and the next one is due."""
        if self._channel is None or self._asked or tick - self._last_tick < EVERY_TICKS:
            return
        try:
            self._channel.send(b"GET /stats HTTP/1.1\r\nHost: lab\r\n\r\n")
            self._asked = True
            self._last_tick = tick
        except OSError:
            self.close()

    def take(self) -> dict[str, float] | None:
        """Return the numbers in the answer of /stats, or None if no complete answer has arrived."""
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
        """End the polling, and close the connection."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None


SAMPLE_COLUMNS = ("tick", *Reading._fields, *Scheduling._fields, "foreign_cpus")
"""Columns of a row, without the names of the subject and its source, and without values of /stats.

A row contains the values of one subject at one tick. `foreign_cpus` is the number of CPUs that a
subject may use, although the lab did not give these CPUs to the subject. The columns of
`Scheduling` have values only in the rows of servers.
"""
MISSING = -1
MEMORY_NS = 240_000_000
"""A tick reads memory and threads again only if the last values are at least this old.

So memory and threads are read at every fifth tick of 50 ms. This limit is a little less than the
250 ms of five ticks, because a tick may come a little early.
"""


class _Watch:
    """Reads the subjects' counters at each tick, and requests /stats at every few ticks.

    The rows are stored one after another in a compact array. The rows of five subjects at 20 Hz
    need 32 MB per hour.
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._subjects: list[str] = []
        """Name of the subject of each row."""
        self._names: list[str] = []
        """Name of the source from which each row was read (see `subjects.Source`)."""
        self._numbers = array("q")  # the values of SAMPLE_COLUMNS, row by row
        self._stats: dict[int, dict[str, float]] = {}
        """Answers of /stats, by the index of the row to which they belong."""
        self._poll: StatsPoll | None = None
        self._polled = ""  # the subject whose /stats is polled
        self._threads: dict[str, Threads] = {}
        """Threads of the subjects for which the time of waiting for a CPU is measured."""
        self._held: dict[str, tuple[int, frozenset[int]]] = {}
        """For each subject to which the lab gave CPUs: the subject's pid, and these CPUs."""

    def command(self, line: str) -> bool:
        """Execute one command; return False if the command ends the sampler."""
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
        """Read the counters of every subject once, and append a row for each that still runs.

        A subject is a server, a database, a generator, the sampler itself, or the whole host.
        Request /stats if this is due. If an answer has arrived, keep its numbers with the row of
        the server that answered. `tick` is stored in every row.
        """
        if self._poll is not None:
            self._poll.ask(tick)
        for subject, source in list(self._sources.items()):
            try:
                reading = source.read()
            except OSError:
                # The subject has ended, which may happen near the edges of a load. Do not read it
                # again, because another process may have got its pid. So it gets no further rows.
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
        """Read how long a subject's threads ran and waited, and whether a signal has stopped it.

        All values are None if the sampler does not watch the threads of this subject, or if the
        subject has ended.
        """
        threads = self._threads.get(subject)
        if threads is None:
            return Scheduling()
        try:
            return threads.read()
        except OSError:
            del self._threads[subject]
            return Scheduling()

    def rows(self) -> str:
        """Return all rows as one line: a JSON object with a list of values for each column."""
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
    """Sample at each tick of a fixed schedule until `stop` comes, or until the input ends.

    If a tick is missed, it is skipped, so that the later ticks keep to the schedule.
    """
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
