"""The exact command lines and environments of k6 and wrk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runner.measure.memory import allowed_bytes
from runner.model import OWN, Cell, LabError, Workload

K6_SYSTEM_TAGS = "status,error_code"
K6_TREND_STATS = "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"
_GIB = 2**30
K6_MEMORY_BYTES = 4 * _GIB
"""k6 at thousands of virtual users is bound by its garbage collector. Where there is memory for it, that runs only when
k6 has used this much; else at four times the live heap rather than two."""
_BYTES_A_USER = 200_000
_BYTES_AN_ITERATION = 14_000
WRK_TIMEOUT_S = 10
SLOWEST_RPS = 500
"""A closed load is given the time that it takes at this rate; k6 drops what is left then, and the trial is invalid."""
SLOWEST_OWN_RPS = 20
"""The same for a user's API: an iteration of a script may be several requests, and pauses between them."""
FASTEST_K6_RPS = 15_000
"""More iterations a second than k6 has been seen to make on one core."""
OPEN_GRACE_S = 10
"""How long after an open load's end its last requests may take; the contract has 5 s for the slowest answer."""

RAW = ("k6.json.gz", "k6-summary.json", "wrk.json")
"""Raw files that a generator writes."""
Output = Literal["samples", "summary", "stock"]
"""What k6 writes: every sample, its summary only, or the summary only and with none of the lab's settings."""


@dataclass(frozen=True)
class Command:
    """A generator's command line, the environment that it needs beside PATH, and when it has surely failed to end."""

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None
    """wrk takes whole seconds only: a shorter load is ended by SIGINT."""


def wrk_threads(connections: int) -> int:
    """Return the largest divisor of `connections` that is <= 8.

    wrk opens connections / threads (integer division) in each thread: `-t8 -c10` would open 8.
    """
    return max(threads for threads in range(1, 9) if connections % threads == 0)


@dataclass(frozen=True)
class Shot:
    """What the generator sends, and where to."""

    tool: Path
    script: Path
    url: str
    method: str
    path: str
    body: str
    address: str = "127.0.0.1"
    host: str = "lab"
    """What the probe names as Host; k6 and wrk name that of the URL."""
    more: Mapping[str, str] = field(default_factory=dict)
    """What the script finds in its environment besides."""

    @classmethod
    def of(cls, workload: Workload, tool: Path, port: int, tag: str) -> Shot:
        """Return the workload's request to a server on `port`, with `tag` in its body's place for it."""
        url = f"http://127.0.0.1:{port}{workload.path}"
        body = workload.body.replace("{tag}", tag)
        return cls(tool, workload.script, url, workload.method, workload.path, body)


def measured(cell: Cell, shot: Shot, files: Mapping[str, Path], output: Output = "samples") -> Command:
    """Return the command of the measured load; its raw files go to `files`, by the names in RAW.

    `output` is for k6 only.
    """
    if cell.tool == "k6":
        return _k6_measured(cell, shot, files, output)
    return _wrk(cell, shot, files["wrk.json"], cell.duration_s or 1.0)


def warmup(cell: Cell, shot: Shot, folder: Path) -> Command:
    """Return the command of the warm-up, a closed load; what it writes goes to `folder`, which is thrown away."""
    if cell.tool == "k6":
        scenario = {
            "executor": "constant-vus",
            "vus": min(cell.vus or 1, 100),
            "duration": f"{cell.warmup_s:g}s",
            "gracefulStop": "5s",
        }
        argv = (str(shot.tool), "run", "--no-usage-report", "--quiet", "--log-output=stderr", str(shot.script))
        return Command(argv, _k6_environment(cell, shot, scenario, folder), cell.warmup_s + 60)
    return _wrk(cell, shot, folder / "wrk.json", cell.warmup_s)


def _k6_environment(cell: Cell, shot: Shot, scenario: dict[str, object], folder: Path) -> dict[str, str]:
    return {
        "TARGET_URL": shot.url,
        "METHOD": shot.method,
        "BODY": shot.body,
        "MODE": cell.mode,
        "SCENARIO": json.dumps(scenario),
        **shot.more,
        **_garbage_collector(),
        "HOME": str(folder),  # k6 reads its configuration from there: none, on every machine
    }


def _garbage_collector() -> dict[str, str]:
    """Return the settings of Go's garbage collector for k6 on a machine of this memory."""
    if allowed_bytes() < 3 * K6_MEMORY_BYTES:
        return {"GOGC": "400"}
    return {"GOGC": "off", "GOMEMLIMIT": str(K6_MEMORY_BYTES)}


def k6_iterations(cell: Cell) -> int:
    """Return how many iterations a load of k6 has, rather too many for one that lasts a time."""
    if cell.iterations is not None:
        return cell.iterations
    return round(sum(cell.rates_rps) * (cell.step_s or 0.0) + FASTEST_K6_RPS * (cell.duration_s or 0.0))


def k6_bytes(cell: Cell) -> int:
    """Return about how much memory k6 takes for a load, rather too much.

    Seen: 0.2 MiB a virtual user, and what its samples leave for the garbage collector, 14 kB an iteration.
    """
    live = 64 * 2**20 + _BYTES_A_USER * (cell.vus or 0)
    iterations = k6_iterations(cell)
    garbage = min(4 * live, _BYTES_AN_ITERATION * iterations)
    if "GOMEMLIMIT" in _garbage_collector():
        garbage = min(max(0, K6_MEMORY_BYTES - live), _BYTES_AN_ITERATION * iterations)
    return live + garbage


def _k6_measured(cell: Cell, shot: Shot, files: Mapping[str, Path], output: Output) -> Command:
    scenario, limit_s = _scenario(cell)
    env = _k6_environment(cell, shot, scenario, files["k6.json.gz"].parent)
    argv = [str(shot.tool), "run", "--no-usage-report", "--quiet", "--log-output=stderr"]
    argv += [f"--summary-export={files['k6-summary.json']}"]
    if output == "stock":
        env = {name: value for name, value in env.items() if name not in _garbage_collector()}
    else:
        argv += [f"--system-tags={K6_SYSTEM_TAGS}", f"--summary-trend-stats={K6_TREND_STATS}"]
    if output == "samples":
        argv += [f"--out=json={files['k6.json.gz']}"]
    return Command((*argv, str(shot.script)), env, limit_s + 90)


def _scenario(cell: Cell) -> tuple[dict[str, object], float]:
    """Return k6's scenario of the measured load and the most seconds that it may take."""
    if cell.vus is not None and len(cell.rates_rps) == 1 and cell.step_s is not None:
        return {
            "executor": "constant-arrival-rate",
            "rate": round(cell.rates_rps[0]),
            "timeUnit": "1s",
            "duration": f"{round(1000 * cell.step_s)}ms",
            "preAllocatedVUs": cell.vus,
            "gracefulStop": f"{OPEN_GRACE_S}s",
        }, cell.step_s + OPEN_GRACE_S
    if cell.vus is not None and cell.rates_rps and cell.step_s is not None:
        stages: list[dict[str, object]] = []
        for rate in cell.rates_rps:
            # k6 ramps linearly within a stage: one of no length makes the step.
            stages += [
                {"target": round(rate), "duration": "0s"},
                {"target": round(rate), "duration": f"{round(1000 * cell.step_s)}ms"},
            ]
        return {
            "executor": "ramping-arrival-rate",
            "startRate": round(cell.rates_rps[0]),
            "timeUnit": "1s",
            "preAllocatedVUs": cell.vus,
            "stages": stages,
            "gracefulStop": f"{OPEN_GRACE_S}s",
        }, len(cell.rates_rps) * cell.step_s + OPEN_GRACE_S
    if cell.vus is not None and cell.iterations is None and cell.duration_s is not None:
        return {
            "executor": "constant-vus",
            "vus": cell.vus,
            "duration": f"{round(1000 * cell.duration_s)}ms",
            "gracefulStop": f"{OPEN_GRACE_S}s",
        }, cell.duration_s + OPEN_GRACE_S
    if cell.vus is None or cell.iterations is None:
        raise LabError(f"Cell {cell.cell_id} lacks virtual users, iterations, a duration or arrival rates.")
    limit_s = 60 + cell.iterations // (SLOWEST_OWN_RPS if cell.workload in OWN else SLOWEST_RPS)
    return {
        "executor": "shared-iterations",
        "vus": cell.vus,
        "iterations": cell.iterations,
        # k6's default of 10 min would silently drop the rest of a long run.
        "maxDuration": f"{limit_s}s",
    }, limit_s


def _wrk(cell: Cell, shot: Shot, out: Path, duration_s: float) -> Command:
    if cell.connections is None:
        raise LabError(f"Cell {cell.cell_id} lacks connections.")
    threads = wrk_threads(cell.connections)
    whole_s = max(1, round(duration_s))
    argv = [
        str(shot.tool),
        f"-t{threads}",
        f"-c{cell.connections}",
        f"-d{whole_s}s",
        f"--timeout={WRK_TIMEOUT_S}s",
    ]
    if cell.mode == "close":
        argv += ["-H", "Connection: close"]
    env = {
        "WRK_METHOD": shot.method,
        "WRK_BODY": shot.body,
        "WRK_JSON": str(out),
        "WRK_CONNECTIONS": str(cell.connections),
        "WRK_THREADS": str(threads),
    }
    command = (*argv, "-s", str(shot.script), shot.url)
    return Command(command, env, whole_s + WRK_TIMEOUT_S + 30, duration_s if duration_s < 1 else None)
