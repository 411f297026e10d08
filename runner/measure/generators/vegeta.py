"""Make the command lines with which vegeta runs loads and converts the results to text."""

import base64
import json
from dataclasses import replace
from pathlib import Path

from runner.measure.generators.command import (
    OPEN_GRACE_S,
    Command,
    Files,
    Generator,
    Output,
    Shot,
    WarmedUp,
    garbage_collector,
)
from runner.model import Cell, LoadPart

SAMPLES = "vegeta.csv.gz"
REPORT = "vegeta.json"
WARM_UP = "warm-up.bin"


def measured(cell: Cell, shot: Shot, files: Files, _output: Output, load_part: LoadPart) -> Command:
    """Return the command with which vegeta runs a load.

    If several generators share the load, the command sends only one generator's part, `load_part`.
    Only vegeta can read vegeta's results, so vegeta converts the results to text after the load.
    """
    samples = files[SAMPLES]
    tool = str(shot.tool)
    length_s = cell.lead_s + (cell.window_s or 1.0)
    results = samples.with_name("vegeta.bin")
    attack = _attack(shot, load_part.of(cell).rates_rps[0], length_s, cell.sockets, results)
    encode = (tool, "encode", "-to=csv", str(results))
    report = (tool, "report", "-type=json", str(results))
    return replace(attack, after=((encode, samples), (report, files[REPORT])))


def warm_up(cell: Cell, shot: Shot, files: Files) -> Command:
    """Return the command of the warm-up, which has the same rate as the load."""
    return _attack(shot, cell.rates_rps[0], cell.warmup_s, cell.sockets, files[WARM_UP])


def read_warm_up(_files: Files) -> WarmedUp:
    """Return no results, because a warm-up at a fixed rate says nothing about the capacity."""
    return WarmedUp()


def _attack(
    shot: Shot, rate_rps: float, duration_s: float, connections: int, results: Path
) -> Command:
    target = results.with_suffix(".target.json")
    sent: dict[str, object] = {"method": shot.method, "url": shot.url}
    if shot.body:
        body = base64.b64encode(shot.body.encode()).decode()
        sent |= {"body": body, "header": {"Content-Type": ["application/json"]}}
    target.write_text(json.dumps(sent) + "\n", encoding="utf-8")
    argv = [str(shot.tool), "attack", f"-targets={target}", "-format=json", f"-output={results}"]
    argv += [
        f"-rate={rate_rps:.0f}/s",
        f"-duration={round(1000 * duration_s)}ms",
        f"-timeout={OPEN_GRACE_S}s",
    ]
    argv += [f"-max-workers={connections}", f"-connections={connections}"]
    argv += ["-http2=false", "-max-body=0", "-redirects=-1"]
    return Command(tuple(argv), garbage_collector(), duration_s + OPEN_GRACE_S + 30)


VEGETA = Generator(
    measured=measured,
    warm_up=warm_up,
    warm_up_files=(WARM_UP,),
    read_warm_up=read_warm_up,
    must_warm_up=False,
    kept_requests=lambda cell: cell.to_begin,
    memory_bytes=lambda _cell: 0,
)
