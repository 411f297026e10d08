"""Make wrk's command lines, and read the results of its warm-up."""

import json
from pathlib import Path

from runner.measure.generators.command import (
    Command,
    Files,
    Generator,
    Output,
    Shot,
    WarmedUp,
)
from runner.model import Cell, LabError, LoadPart
from runner.shapes import ForTime

RESULT = "wrk.json"
TIMEOUT_S = 10


def measured(cell: Cell, shot: Shot, files: Files, _output: Output, load_part: LoadPart) -> Command:
    """Return the command with which wrk runs a load; raise LabError if the load has no duration.

    If several generators share the load, the command sends only one generator's part, `load_part`.
    """
    if not isinstance(cell.shape, ForTime):
        raise LabError(
            f"wrk can load only for a given time, but {cell.cell_id} has no duration: give the "
            "load a duration."
        )
    return _command(load_part.of(cell), shot, files[RESULT], cell.shape.duration_s)


def warm_up(cell: Cell, shot: Shot, files: Files) -> Command:
    """Return the command of the warm-up, which is a closed load."""
    return _command(cell, shot, files[RESULT], cell.warmup_s)


def read_warm_up(files: Files) -> WarmedUp:
    """Return the results of a warm-up.

    All results are None if wrk's file is missing or damaged.
    """
    try:
        result = json.loads(files[RESULT].read_text(encoding="utf-8"))
        return WarmedUp(answers_rps=1e6 * result["requests"] / result["duration_us"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return WarmedUp()


def _command(cell: Cell, shot: Shot, out: Path, duration_s: float) -> Command:
    connections = cell.sockets
    # wrk opens `connections // threads` connections in each thread, so `-t8 -c10` would open only 8
    # connections. So use the largest number of threads up to 8 that divides the connections evenly.
    threads = max(count for count in range(1, 9) if connections % count == 0)
    whole_s = max(1, round(duration_s))
    argv = [
        str(shot.tool),
        f"-t{threads}",
        f"-c{connections}",
        f"-d{whole_s}s",
        f"--timeout={TIMEOUT_S}s",
    ]
    if cell.mode == "close":
        argv += ["-H", "Connection: close"]
    env = {"WRK_METHOD": shot.method, "WRK_BODY": shot.body, "WRK_JSON": str(out)}
    env |= {"WRK_CONNECTIONS": str(connections), "WRK_THREADS": str(threads)}
    command = (*argv, "-s", str(shot.script), shot.url)
    return Command(command, env, whole_s + TIMEOUT_S + 30, duration_s if duration_s < 1 else None)


WRK = Generator(
    measured=measured,
    warm_up=warm_up,
    warm_up_files=(RESULT,),
    read_warm_up=read_warm_up,
    # The exit code of wrk's warm-up means nothing, because a warm-up shorter than 1 s is ended by a
    # signal.
    must_warm_up=False,
    # wrk stores a histogram instead of every request, so it needs only a few MiB of memory.
    kept_requests=lambda _cell: 0,
    memory_bytes=lambda _cell: 0,
)
