"""Make oha's command lines, and convert the requests in oha's database to lines of text.

This module relies on these facts of oha's source (src/client.rs, src/db.rs, src/lib.rs of 1.16):

- `-z` sets the duration of a load. With `-w`, oha then waits until the requests in flight are
  answered.
- With `-q`, oha schedules each request at a time that is counted from oha's start. The time is in
  whole milliseconds, because that is the resolution of tokio's timer. The next free connection
  sends the request. A connection is opened only when it has to send its first request.
- With `--latency-correction`, the latency of a request counts from its scheduled time.
- oha stores each answered request, whatever its status. Requests without an answer are not stored:
  oha's report contains only the number of such requests for each kind of error.
"""

import csv
import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from runner.generator_traits import LEAD_S
from runner.measure.generators.command import (
    OPEN_GRACE_S,
    Command,
    Files,
    Generator,
    Output,
    Shot,
    WarmedUp,
)
from runner.model import Cell, LabError, LoadPart
from runner.shapes import ForTime

SAMPLES = "oha.csv.gz"
REPORT = "oha.json"
_ALL = 'SELECT "start", start_latency_correction, "end", duration, status, len_bytes, run FROM oha'
"""Query of all requests in oha's table.

Times are seconds since oha began. The column `run` is the time at which oha began, in Unix seconds.
"""
MOST_THREADS = 4
"""oha gets at most this many threads.

By default, oha uses one thread for each core of the machine, even for cores on which it may not
run.
"""
FASTEST_RPS = 100_000
"""On one core, oha has never sent more requests per second than this."""
BYTES_IN_MEMORY = 600
"""Upper estimate of oha's memory per request, in bytes; the measured value is 420.

oha keeps all requests in memory until it writes its report.
"""
STORED_RPS = 50_000
"""Lower estimate of the rate at which oha stores requests after a load, in requests per second.

The measured rate is 90,000.
"""


def measured(cell: Cell, shot: Shot, files: Files, _output: Output, load_part: LoadPart) -> Command:
    """Return the command with which oha runs a load.

    If several generators share the load, the command sends only one generator's part, `load_part`.
    After the load, the command converts the requests in oha's database to lines of text.
    """
    part = load_part.of(cell)
    length_s = part.lead_s + part.window_s if part.window_s else _duration_s(part)
    samples = files[SAMPLES]
    stored = samples.with_name("oha.db")
    stored.unlink(missing_ok=True)  # oha would append to the requests of an interrupted load
    options = [f"--db-url={stored}", f"--output={files[REPORT]}"]
    load = _command(part, shot, length_s, options)
    as_text = (sys.executable, "-m", __name__, str(stored))
    timeout_s = load.timeout_s + kept_requests(part) / STORED_RPS
    return Command(load.argv, load.env, timeout_s, after=((as_text, samples),))


def warm_up(cell: Cell, shot: Shot, files: Files) -> Command:
    """Return the command of the warm-up.

    The warm-up is like the measured load, but it has its own duration, and oha stores no requests.
    """
    return _command(cell, shot, cell.warmup_s, [f"--output={files[REPORT]}"])


def read_warm_up(files: Files) -> WarmedUp:
    """Return the results of a warm-up.

    All results are None if oha's report is missing or damaged.
    """
    try:
        report = json.loads(files[REPORT].read_text(encoding="utf-8"))
        answers = sum(report["statusCodeDistribution"].values())
        return WarmedUp(answers_rps=answers / report["summary"]["total"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return WarmedUp()


def kept_requests(cell: Cell) -> int:
    """Return the number of requests of a load. For a closed load, this is an upper estimate."""
    return cell.to_begin if cell.is_open else round(FASTEST_RPS * _duration_s(cell))


def memory_bytes(cell: Cell) -> int:
    """Return an upper estimate of oha's memory for a load, in bytes."""
    return 64 * 2**20 + BYTES_IN_MEMORY * kept_requests(cell)


def connections_of(cell: Cell) -> int:
    """Return the number of connections of a load.

    An open load has at most as many connections as requests are due in its lead time, which is the
    time before the measured window. oha opens a connection only when the connection has to send its
    first request. So with this limit, all connections are open before the window begins.
    """
    if cell.rates_rps:
        return max(1, min(cell.sockets, round(cell.rates_rps[0] * LEAD_S)))
    return cell.sockets


def _duration_s(cell: Cell) -> float:
    """Return the duration of a load in seconds; raise LabError if it has no fixed duration."""
    if not isinstance(cell.shape, ForTime):
        raise LabError(
            f"oha can load only for a given time, but {cell.cell_id} has no duration: give the "
            "load a duration."
        )
    return cell.shape.duration_s


def _command(cell: Cell, shot: Shot, length_s: float, options: Sequence[str]) -> Command:
    argv = [
        str(shot.tool),
        "--no-tui",
        "--output-format=json",
        *options,
        f"-z{round(1000 * length_s)}ms",
        "--wait-ongoing-requests-after-deadline",
        f"-c{connections_of(cell)}",
        f"-t{OPEN_GRACE_S}s",
        "--redirect=0",
        "--disable-compression",
    ]
    if cell.rates_rps:
        argv += [f"-q{cell.rates_rps[0]:.10g}", "--latency-correction"]
    if cell.mode == "close":
        argv += ["--disable-keepalive"]
    argv += [f"--method={shot.method}"]
    if shot.body:
        argv += [f"-d{shot.body}", "-Tapplication/json"]
    threads = min(MOST_THREADS, connections_of(cell))
    env = {"TOKIO_WORKER_THREADS": str(threads)}
    return Command((*argv, shot.url), env, length_s + OPEN_GRACE_S + 30)


def write_as_text(stored: Path) -> None:
    """Write the requests of oha's database to standard output: a header, then a line per request.

    If the database is not oha's, end the program with an error message and exit code 1.
    """
    address = f"{stored.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            rows = database.execute(_ALL)
            lines = csv.writer(sys.stdout, lineterminator="\n")
            lines.writerow(name for name, *_ in rows.description)
            lines.writerows(rows)
    except sqlite3.Error as error:
        sys.exit(f"{stored} is not a database of oha: {error}")


OHA = Generator(
    measured=measured,
    warm_up=warm_up,
    warm_up_files=(REPORT,),
    read_warm_up=read_warm_up,
    must_warm_up=True,
    kept_requests=kept_requests,
    memory_bytes=memory_bytes,
)

if __name__ == "__main__":
    write_as_text(Path(sys.argv[1]))
