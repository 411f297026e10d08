"""Measure the sampler's CPU use in percent of a core, for different sets of sampled processes.

Run: python benchmarks/sampler.py [--seconds N] [--hz N] [--idle]. The sampler runs as in a trial,
and reports its own CPU time in resources.parquet. Meanwhile a stand-in for the load generator keeps
the sampler's CPU and caches busy, because otherwise each tick would be cheaper than in a trial.
`--idle` leaves the stand-in out. The results are CPU times, not wall times, so other programs on
the machine hardly matter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.measure.leftovers import Ledger, ledger
from runner.measure.loading import write_rows
from runner.measure.machine import place
from runner.measure.process_engine import pinned
from runner.measure.sites import Clock, Site
from runner.model import Subject

THREADS = 8
SETTLE_S = 1.0
"""The samples of this many seconds at the beginning are left out.

At the beginning, the sampler still imports modules, and reads every file for the first time.
"""

# A stand-in for a server. Its arguments are the number of threads of the first process and the
# number of further processes. All further processes sleep, and so do all threads but one. The
# thread that does not sleep listens on a free port, and answers every request as /stats would.
_SERVER = """
import os, socket, sys, threading, time
threads, children = int(sys.argv[1]), int(sys.argv[2])
for _ in range(children):
    if os.fork() == 0:
        time.sleep(3600)
for _ in range(threads - 1):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
body = b'{"requests":1,"connections":1,"gc":{"cycles":3,"pause_total_ms":0.5,"cpu_s":0.1},' \\
    b'"pool":{"size":8,"in_use":3,"idle":5,"waiting":0}}'
answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    channel, _ = listener.accept()
    while channel.recv(4096):
        channel.sendall(answer)
"""
_GENERATOR = """
import numpy
memory = numpy.arange(8_000_000)
while True:
    numpy.add(memory, 1, out=memory)
"""


@dataclass(frozen=True)
class Kind:
    """One row of the printed table: what is sampled in addition to the host and the sampler.

    `processes` contains each further subject (server, generator or database) with its number of
    processes. `grouped` is True if each of these subjects runs in a control group, and `stats` is
    True if the server's /stats is polled.
    """

    title: str
    processes: tuple[tuple[Subject, int], ...] = ()
    grouped: bool = True
    stats: bool = False


KINDS = (
    Kind("host and sampler alone"),
    Kind("+ server", (("server", 1),)),
    Kind("+ server with /stats", (("server", 1),), stats=True),
    Kind("+ server without a control group", (("server", 1),), grouped=False),
    Kind("+ database of 20 processes", (("database", 20),)),
    Kind("+ database of 500 processes", (("database", 500),)),
    Kind(
        "+ server, generator, database of 20",
        (("server", 1), ("generator", 1), ("database", 20)),
        stats=True,
    ),
)


def main() -> None:
    """Parse the command line, measure each kind, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each kind is sampled")
    parser.add_argument("--hz", type=float, default=20.0)
    parser.add_argument(
        "--idle", action="store_true", help="leave the sampler's CPU to the sampler"
    )
    options = parser.parse_args()
    if options.seconds <= SETTLE_S or options.hz <= 0:
        parser.error(f"--seconds must be more than {SETTLE_S:g}, and --hz more than 0")
    _show(f"{'sampled':<38}{'% of a core':>12}{'µs a tick':>11}{'ticks':>7}  source")
    with tempfile.TemporaryDirectory(prefix="bench-sampler-") as name, ledger() as book:
        cpus = place(1).generator
        with contextlib.nullcontext() if options.idle else _busy(cpus):
            for kind in KINDS:
                _report(kind, _measure(kind, Path(name), book, cpus, options.hz, options.seconds))


@contextlib.contextmanager
def _busy(cpus: tuple[int, ...]) -> Iterator[None]:
    """Keep the first CPU of `cpus`, and its caches, busy by additions to an array of 64 MB."""
    process = subprocess.Popen(["taskset", "-c", str(cpus[0]), sys.executable, "-c", _GENERATOR])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _measure(
    kind: Kind, folder: Path, book: Ledger, cpus: tuple[int, ...], hz: float, seconds: float
) -> Path:
    """Start stand-ins for the subjects of `kind`, and sample them for `seconds`.

    Return the path of the file with the samples.
    """
    out = folder / "resources.parquet"
    with contextlib.ExitStack() as stack:
        ask = stack.enter_context(Site(book).instrument("sampler", hz, cpus[:1]))
        for subject, processes in kind.processes:
            pid, port = stack.enter_context(_stand_in(processes, kind.grouped, folder, book))
            ask({"add": subject, "pid": pid})
            if subject == "server" and kind.stats:
                ask({"poll": port, "address": "127.0.0.1", "of": subject})
        time.sleep(seconds)
        rows = json.loads(ask({"stop": True}))
        write_rows([(rows, {name: name for name in set(rows["subject"])}, Clock())], out)
    return out


@contextlib.contextmanager
def _stand_in(
    processes: int, grouped: bool, folder: Path, book: Ledger
) -> Iterator[tuple[int, int]]:
    """Start a stand-in for a subject, and yield the stand-in's pid and port.

    The stand-in has the given number of processes. A single process has THREADS threads. `grouped`
    is True if the stand-in runs in a control group.
    """
    argv = [
        sys.executable,
        "-c",
        _SERVER,
        str(THREADS if processes == 1 else 1),
        str(processes - 1),
    ]
    log = folder / "stand-in.log"
    log.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        if grouped:
            cpus = tuple(os.sched_getaffinity(0))
            held = stack.enter_context(
                pinned("bench", argv, cpus=cpus, env={}, folder=folder, log=log, ledger=book)
            )
            held.release()
            pid = held.pid
        else:
            popen = stack.enter_context(subprocess.Popen(argv, stdout=log.open("wb")))
            stack.callback(popen.kill)
            pid = popen.pid
        while not (log.exists() and log.read_text().endswith("\n")):
            time.sleep(0.01)
        yield pid, int(log.read_text())


def _report(kind: Kind, path: Path) -> None:
    table = pq.read_table(path)
    own = table.filter(pc.equal(table["subject"], "sampler")).to_pydict()
    sources = dict(zip(table["subject"].to_pylist(), table["source"].to_pylist(), strict=True))
    first = next(
        row for row, at in enumerate(own["mono_ns"]) if at - own["mono_ns"][0] > SETTLE_S * 1e9
    )
    used_ns = own["cpu_ns"][-1] - own["cpu_ns"][first]
    passed_ns = own["mono_ns"][-1] - own["mono_ns"][first]
    ticks = own["tick"][-1] - own["tick"][first]
    named = ", ".join(dict.fromkeys(sources[subject] for subject, _ in kind.processes))
    _show(
        f"{kind.title:<38}{100 * used_ns / passed_ns:>12.2f}"
        f"{used_ns / 1000 / ticks:>11.0f}{ticks:>7} "
        f" {named}"
    )


def _show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
