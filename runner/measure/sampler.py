"""Sample cumulative CPU and memory counters of every subject, in a process of its own.

Run as `python -m runner.measure.sampler OUT HZ`. Commands come as JSON lines on standard input (`add` a subject,
`stop`); the end of input ends it without a file. Each row carries the monotonic and the wall time of its own reading.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.measure.leftovers import Ledger
from runner.measure.subjects import HostSubject, Reading, Source, source_of
from runner.model import LabError, Subject
from runner.store import replacing

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


class Sampler:
    """The runner's handle on the sampling process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def add(self, subject: Subject, pid: int) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row."""
        self._tell({"add": subject, "pid": pid})

    def stop(self) -> None:
        """Take a last row, write the file and wait for the sampler's end."""
        self._tell({"stop": True})
        self._process.wait(timeout=30)

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer.strip() != "ok":
            raise LabError(f"The sampler failed: {answer.strip() or 'it ended'}.", exit_code=1)


@contextlib.contextmanager
def sampling(out: Path, hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[Sampler]:
    """Run a sampler on `cpus` that writes the raw counters to `out` (resources.parquet) when stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.measure.sampler", str(out), str(hz), ",".join(map(str, cpus))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger.add_process(process.pid)
    try:
        yield Sampler(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class _Rows:
    """Rows in compact arrays: an hour at 20 Hz of five subjects is 26 MB. -1 stands for a missing value."""

    def __init__(self) -> None:
        self.subjects: list[str] = []
        self.sources: list[str] = []
        self.columns = {name: array("q") for name in COLUMNS}

    def add(self, tick: int, subject: str, source: str, reading: Reading) -> None:
        self.subjects.append(subject)
        self.sources.append(source)
        values = (tick, *reading)
        for name, value in zip(COLUMNS, values, strict=True):
            self.columns[name].append(-1 if value is None else value)

    def write(self, out: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - 40 ms and 50 MB that the sampling itself must not carry
        import pyarrow.compute as pc  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        table = {"subject": pa.array(self.subjects), "source": pa.array(self.sources)}
        for name, values in self.columns.items():
            column = pa.array(values, pa.int64())
            table[name] = pc.if_else(pc.equal(column, -1), None, column)
        with replacing(out) as temporary:
            pq.write_table(pa.table(table), temporary, compression="zstd")


def _sample(tick: int, sources: dict[str, Source], rows: _Rows) -> None:
    for subject, source in sources.items():
        # A subject that has ended is normal at the edges of a load; its rows simply stop.
        with contextlib.suppress(OSError):
            rows.add(tick, subject, source.name, source.read())


def _command(sources: dict[str, Source], line: str) -> bool:
    """Carry out one command; return whether to go on."""
    command = json.loads(line)
    if "add" in command:
        sources[command["add"]] = source_of(command["pid"])
    return "stop" not in command


def _take_precedence() -> None:
    """Run ahead of the generator where permitted: it needs 0.2 ms a tick, but a late tick blurs a peak."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.nice(-10)


def main() -> None:
    """Sample on an absolute schedule until told to stop; a missed tick is skipped, never made up for."""
    out, period_ns = Path(sys.argv[1]), round(1e9 / float(sys.argv[2]))
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[3].split(",")})
    _take_precedence()
    sources: dict[str, Source] = {"host": HostSubject(), "sampler": source_of(os.getpid())}
    rows = _Rows()
    begin = time.monotonic_ns()
    tick = 0
    while True:
        wait_s = max(0.0, (begin + tick * period_ns - time.monotonic_ns()) / 1e9)
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        if ready:
            line = sys.stdin.readline()
            if not line:
                return
            go_on = _command(sources, line)
            _sample(tick, sources, rows)
            if not go_on:
                break
            sys.stdout.write("ok\n")
            sys.stdout.flush()
        else:
            _sample(tick, sources, rows)
            tick = max(tick + 1, -(-(time.monotonic_ns() - begin) // period_ns))
    rows.write(out)
    sys.stdout.write("ok\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
