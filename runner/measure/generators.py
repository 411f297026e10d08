"""The exact command lines and environments of k6 and wrk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.model import Cell, LabError, Workload

K6_SYSTEM_TAGS = "status,error_code"
K6_TREND_STATS = "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"
K6_GOGC = "400"
"""k6 at thousands of virtual users is bound by its garbage collector; 400 costs memory and buys rate."""
WRK_TIMEOUT_S = 10
SLOWEST_RPS = 500
"""A closed load is given the time that it takes at this rate; k6 drops what is left then, and the trial is invalid."""


@dataclass(frozen=True)
class Command:
    """A generator's command line, the environment that it needs beside PATH, and when it has surely failed to end."""

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None
    """wrk takes whole seconds only: a shorter warm-up is ended by SIGINT."""


def wrk_threads(connections: int) -> int:
    """Return the largest divisor of `connections` that is <= 8.

    wrk opens connections / threads (integer division) in each thread: `-t8 -c10` would open 8.
    """
    return max(threads for threads in range(1, 9) if connections % threads == 0)


def measured(cell: Cell, workload: Workload, tool: Path, url: str, folder: Path) -> Command:
    """Return the command of the measured load; its raw files go to `folder`."""
    if cell.tool == "k6":
        return _k6_measured(cell, workload, tool, url, folder)
    return _wrk(cell, workload, tool, url, folder, duration_s=round(max(1.0, cell.duration_s or 1.0)))


def warmup(cell: Cell, workload: Workload, tool: Path, url: str, folder: Path) -> Command:
    """Return the command of the warm-up; what it writes goes to `folder`, which is thrown away."""
    if cell.tool == "k6":
        env = _k6_environment(cell, url, folder) | {"WARMUP_S": f"{cell.warmup_s:g}"}
        argv = (str(tool), "run", "--no-usage-report", "--quiet", "--log-output=stderr", str(workload.script))
        return Command(argv, env, cell.warmup_s + 60)
    command = _wrk(cell, workload, tool, url, folder, duration_s=max(1, round(cell.warmup_s)))
    short = cell.warmup_s if cell.warmup_s < 1 else None
    return Command(command.argv, command.env, command.timeout_s, short)


def _k6_environment(cell: Cell, url: str, folder: Path) -> dict[str, str]:
    return {
        "TARGET_URL": url,
        "VUS": str(cell.vus),
        "MODE": cell.mode,
        "GOGC": K6_GOGC,
        "HOME": str(folder),  # k6 reads its configuration from there: none, on every machine
    }


def _k6_measured(cell: Cell, workload: Workload, tool: Path, url: str, folder: Path) -> Command:
    if cell.vus is None or cell.iterations is None:
        raise LabError(f"Cell {cell.cell_id} lacks virtual users or iterations.")
    limit_s = 60 + cell.iterations // SLOWEST_RPS
    argv = (
        str(tool),
        "run",
        "--no-usage-report",
        "--quiet",
        "--log-output=stderr",
        f"--system-tags={K6_SYSTEM_TAGS}",
        f"--summary-trend-stats={K6_TREND_STATS}",
        f"--summary-export={folder / 'k6-summary.json'}",
        f"--out=json={folder / 'k6.json.gz'}",
        str(workload.script),
    )
    env = _k6_environment(cell, url, folder) | {
        "ITERATIONS": str(cell.iterations),
        "MAX_DURATION_S": str(limit_s),
    }
    return Command(argv, env, limit_s + 90)


def _wrk(cell: Cell, workload: Workload, tool: Path, url: str, folder: Path, duration_s: int) -> Command:
    if cell.connections is None:
        raise LabError(f"Cell {cell.cell_id} lacks connections.")
    threads = wrk_threads(cell.connections)
    argv = [
        str(tool),
        f"-t{threads}",
        f"-c{cell.connections}",
        f"-d{duration_s}s",
        f"--timeout={WRK_TIMEOUT_S}s",
    ]
    if cell.mode == "close":
        argv += ["-H", "Connection: close"]
    env = {
        "WRK_JSON": str(folder / "wrk.json"),
        "WRK_CONNECTIONS": str(cell.connections),
        "WRK_THREADS": str(threads),
    }
    return Command((*argv, "-s", str(workload.script), url), env, duration_s + WRK_TIMEOUT_S + 30)
