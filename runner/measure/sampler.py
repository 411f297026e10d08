"""Sample cumulative CPU and memory counters of every subject, in a process of its own.

Run as `python -m runner.measure.sampler HZ CPUS`. Commands come as JSON lines on standard input (`add` a subject,
`poll` a server's /stats, `stop`, which is answered with all rows); the end of input ends it. Each row carries the
monotonic and the wall time of its own reading. The runner's side of it is in sampling.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from array import array

import psutil

from runner.measure.precedence import take_precedence
from runner.measure.stats_poll import StatsPoll
from runner.measure.subjects import HostSubject, Reading, Source, source_of
from runner.model import FIGURES

COLUMNS = (
    "tick",
    "mono_ns",
    "wall_ns",
    "cpu_ns",
    "rss_bytes",
    "threads",
    "throttled_ns",
    "switches",
    "steal_ns",
)


MISSING = -1


class _Rows:
    """Rows in compact arrays: an hour at 20 Hz of five subjects is 26 MB. MISSING stands for a missing value."""

    def __init__(self) -> None:
        self.subjects: list[str] = []
        self.sources: list[str] = []
        self.columns = {name: array("q") for name in COLUMNS}
        self.stats: dict[int, dict[str, float]] = {}
        """What /stats answered, by the number of the row that it came just before."""

    def add(self, tick: int, subject: str, source: str, reading: Reading) -> None:
        self.subjects.append(subject)
        self.sources.append(source)
        values = (tick, *reading)
        for name, value in zip(COLUMNS, values, strict=True):
            self.columns[name].append(MISSING if value is None else value)

    def to_json(self) -> str:
        """Return all columns as one JSON object on one line."""
        numbers = {name: [None if v == MISSING else v for v in values] for name, values in self.columns.items()}
        stats = {name: [self.stats.get(row, {}).get(name) for row in range(len(self.subjects))] for name in FIGURES}
        return json.dumps({"subject": self.subjects, "source": self.sources, **numbers, **stats})


class _Watch:
    """What is sampled at each tick: the subjects' counters, and now and then the server's own figures."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self.sources = sources
        self.rows = _Rows()
        self._poll: StatsPoll | None = None

    def command(self, line: str) -> bool:
        """Carry out one command; return whether to go on."""
        command = json.loads(line)
        if "add" in command:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just died: it has no rows
                self.sources[command["add"]] = source_of(command["pid"])
        if "poll" in command:
            self._poll = StatsPoll(command["poll"])
        return "stop" not in command

    def sample(self, tick: int) -> None:
        """Read every subject once, and take what /stats has answered by now."""
        if self._poll is not None:
            self._poll.ask(tick)
        for subject, source in self.sources.items():
            # A subject that has ended is normal at the edges of a load; its rows simply stop.
            with contextlib.suppress(OSError):
                reading = source.read()
                if subject == "server" and self._poll is not None and (figures := self._poll.take()):
                    self.rows.stats[len(self.rows.subjects)] = figures
                self.rows.add(tick, subject, source.name, reading)


def main() -> None:
    """Sample on an absolute schedule until told to stop; a missed tick is skipped, never made up for."""
    period_ns = round(1e9 / float(sys.argv[1]))
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    take_precedence()
    watch = _Watch({"host": HostSubject(), "sampler": source_of(os.getpid())})
    begin = time.monotonic_ns()
    tick = 0
    while True:
        wait_s = max(0.0, (begin + tick * period_ns - time.monotonic_ns()) / 1e9)
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        if ready:
            line = sys.stdin.readline()
            if not line:
                return
            go_on = watch.command(line)
            watch.sample(tick)
            if not go_on:
                break
            sys.stdout.write("ok\n")
            sys.stdout.flush()
        else:
            watch.sample(tick)
            tick = max(tick + 1, -(-(time.monotonic_ns() - begin) // period_ns))
    sys.stdout.write(watch.rows.to_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
