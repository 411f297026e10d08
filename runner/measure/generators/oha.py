"""oha: its command, and the conversion of its stored requests to lines of text.

It relies on these facts of oha's source (src/client.rs, src/db.rs, src/lib.rs of 1.16). With `-z`
and `-w` a load ends after the requests in flight. `-q` paces by the time since oha began, in
milliseconds, the resolution of tokio's timer. The next free connection in turn sends a request, so
that each connection is opened by its first request. With `--latency-correction` the time of a
request begins with its turn. oha stores only answered requests, with any status; its report counts
the others by error.
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
"""Columns of oha's table: times are seconds since oha began; `run` is its begin in Unix seconds."""
MOST_THREADS = 4
"""Highest number of oha's threads.

By default oha uses one for each core of the machine, including cores that it may not use.
"""
FASTEST_RPS = 100_000
"""Requests per second that oha cannot exceed on one core, by experience."""
BYTES_IN_MEMORY = 600
"""Memory of a request, which oha keeps until it has reported; measured: 420."""
STORED_RPS = 50_000
"""Lower estimate of the requests that oha stores per second after a load; measured: 90,000."""


def measured(cell: Cell, shot: Shot, files: Files, _output: Output, load_part: LoadPart) -> Command:
    """Return the command of a load.

    The requests in oha's database are converted to lines of text afterwards.
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
    """Return the command of the warm-up, a load like the measured one that stores no requests."""
    return _command(cell, shot, cell.warmup_s, [f"--output={files[REPORT]}"])


def read_warm_up(files: Files) -> WarmedUp:
    """Return the results of a warm-up; all are None if its report is missing or damaged."""
    try:
        report = json.loads(files[REPORT].read_text(encoding="utf-8"))
        answers = sum(report["statusCodeDistribution"].values())
        return WarmedUp(answers_rps=answers / report["summary"]["total"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return WarmedUp()


def kept_requests(cell: Cell) -> int:
    """Return the number of requests of a load; an upper estimate for a closed one."""
    return cell.to_begin if cell.is_open else round(FASTEST_RPS * _duration_s(cell))


def memory_bytes(cell: Cell) -> int:
    """Return an upper estimate of oha's memory for a load, in bytes."""
    return 64 * 2**20 + BYTES_IN_MEMORY * kept_requests(cell)


def connections_of(cell: Cell) -> int:
    """Return the number of connections of a load.

    An open load has at most as many as its lead has requests, because each is opened by its first
    request.
    """
    if cell.rates_rps:
        return max(1, min(cell.sockets, round(cell.rates_rps[0] * LEAD_S)))
    return cell.sockets


def _duration_s(cell: Cell) -> float:
    """Return the duration of a closed load in seconds; raise LabError if it has none."""
    if not isinstance(cell.shape, ForTime):
        raise LabError(f"oha loads for a time only, and {cell.cell_id} has no duration.")
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
    """Write the requests of oha's database to the standard output: a header, then one per line.

    End the program with exit code 1 and a sentence if the database is not oha's.
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
