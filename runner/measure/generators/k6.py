"""Make k6's scenarios and command lines, and read the results of its warm-up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from runner.measure.generators.command import (
    GO_MEMORY_BYTES,
    OPEN_GRACE_S,
    Command,
    Files,
    Generator,
    Output,
    Shot,
    WarmedUp,
    garbage_collector,
)
from runner.model import OWN, Cell, LabError, LoadPart
from runner.shapes import Closed, ForTime, Search, Steps

SUMMARY = "k6-summary.json"
SAMPLES = "k6.json.gz"
TREND_STATS = "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"
SLOWEST_RPS = 500
"""A closed load with a fixed number of iterations must reach this rate, in iterations per second.

The time limit of such a load follows from this rate. At the time limit, k6 drops the remaining
iterations, which makes the trial invalid.
"""
SLOWEST_OWN_RPS = 20
"""A load of a user's API must reach this rate, in iterations per second, instead of SLOWEST_RPS.

This rate is lower than SLOWEST_RPS, because an iteration of a user's script may contain several
requests.
"""
FASTEST_RPS = 15_000
"""On one core, k6 has never run more iterations per second than this."""
WARM_UP_USERS = 10  # users in the warm-up of an open load, if the load names no number of users
MOST_WARM_UP_USERS = 100


def measured(cell: Cell, shot: Shot, files: Files, output: Output, load_part: LoadPart) -> Command:
    """Return the command with which k6 runs a load.

    If several generators share the load, the command sends only one generator's part, `load_part`.
    """
    scenario = _scenario(cell) if shot.written_s is None else _Scenario({}, shot.written_s)
    options = [f"--summary-export={files[SUMMARY]}"]
    if output != "stock":
        options += [f"--system-tags={shot.system_tags}", f"--summary-trend-stats={TREND_STATS}"]
    if output == "samples":
        options += [f"--out=json={files[SAMPLES]}"]
    if load_part.count > 1:
        ends = ["0", *(f"{number}/{load_part.count}" for number in range(1, load_part.count)), "1"]
        options += [f"--execution-segment={ends[load_part.number - 1]}:{ends[load_part.number]}"]
        options += [f"--execution-segment-sequence={','.join(ends)}"]
    collector = {} if output == "stock" else garbage_collector()
    deadline_s = scenario.limit_s + 90
    return _command(
        cell, shot, scenario.options, files[SAMPLES].parent, deadline_s, collector, options
    )


def warm_up(cell: Cell, shot: Shot, files: Files) -> Command:
    """Return the command of the warm-up, which is a closed load."""
    users = min(cell.shape.users or WARM_UP_USERS, MOST_WARM_UP_USERS)
    # This is a ramp from `users` to `users`, because k6 accepts no `constant-vus` of less than a
    # second.
    stages = [{"target": users, "duration": f"{round(1000 * cell.warmup_s)}ms"}]
    scenario = {
        "executor": "ramping-vus",
        "startVUs": users,
        "stages": stages,
        "gracefulStop": "5s",
    }
    summary = files[SUMMARY]
    options = [f"--summary-export={summary}"]
    return _command(
        cell, shot, scenario, summary.parent, cell.warmup_s + 60, garbage_collector(), options
    )


def read_warm_up(files: Files) -> WarmedUp:
    """Return the results of a warm-up.

    All results are None if k6's summary is missing or damaged.
    """
    try:
        metrics = json.loads(files[SUMMARY].read_text(encoding="utf-8"))["metrics"]
        return WarmedUp(
            answers_rps=_statistic(metrics, "http_reqs", "rate") or 0.0,
            iterations_rps=_statistic(metrics, "iterations", "rate") or 0.0,
            iteration_ms=_statistic(metrics, "iteration_duration", "avg"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return WarmedUp()


def _statistic(metrics: Mapping[str, Any], metric: str, name: str) -> float | None:
    """Return a statistic of k6's summary.

    Return None if the metric is missing, which means that it had no samples.
    """
    return float(metrics[metric][name]) if metric in metrics else None


def iterations(cell: Cell) -> int:
    """Return the number of iterations of a k6 load.

    For a load with a fixed duration, this is an upper estimate.
    """
    match cell.shape:
        case Closed() as load:
            return load.iterations
        case ForTime() as load:
            return round(FASTEST_RPS * load.duration_s)
        case Steps() | Search():
            return cell.to_begin
        case _:
            assert_never(cell.shape)


def memory_bytes(cell: Cell) -> int:
    """Return an upper estimate of k6's memory for a load, in bytes.

    The measured values are 0.2 MiB for each virtual user, and 14 kB of garbage for each iteration.
    """
    # The number of users of an open load is None until a warm-up shows how many users the load
    # needs. Until then, assume the highest number of users that a warm-up can have.
    users = cell.shape.users or MOST_WARM_UP_USERS
    live = 64 * 2**20 + 200_000 * users
    limit = max(0, GO_MEMORY_BYTES - live) if "GOMEMLIMIT" in garbage_collector() else 4 * live
    return live + min(limit, 14_000 * iterations(cell))


def _command(
    cell: Cell,
    shot: Shot,
    scenario: Mapping[str, object],
    folder: Path,
    timeout_s: float,
    collector: Mapping[str, str],
    options: Sequence[str] = (),
) -> Command:
    argv = (
        str(shot.tool),
        "run",
        "--no-usage-report",
        "--quiet",
        "--log-output=stderr",
        "--address=",  # so that k6's API does not listen on port 6565
        *options,
        str(shot.script),
    )
    env = {"TARGET_URL": shot.url, "METHOD": shot.method, "BODY": shot.body, "MODE": cell.mode}
    env |= {"SCENARIO": json.dumps(scenario), **shot.more, **collector}
    env["HOME"] = str(folder)  # so that k6 does not read the user's configuration file
    return Command(argv, env, timeout_s)


@dataclass(frozen=True)
class _Scenario:
    """k6's scenario of a measured load, and the load's time limit."""

    options: dict[str, object]
    limit_s: float
    """Longest time that can pass between the start and the end of the load."""


def _scenario(cell: Cell) -> _Scenario:
    """Return k6's scenario of a measured load, and the load's time limit."""
    match cell.shape:
        case Closed() as load:
            slowest_rps = SLOWEST_OWN_RPS if cell.workload in OWN else SLOWEST_RPS
            limit_s = 60 + load.iterations // slowest_rps
            counted: dict[str, object] = {
                "executor": "shared-iterations",
                "vus": load.users,
                "iterations": load.iterations,
                # k6's default limit of 10 min would drop the remaining iterations of a longer load.
                "maxDuration": f"{limit_s}s",
            }
            return _Scenario(counted, limit_s)
        case ForTime() as load:
            lasting: dict[str, object] = {
                "executor": "constant-vus",
                "vus": load.users,
                "duration": f"{round(1000 * load.duration_s)}ms",
                "gracefulStop": f"{OPEN_GRACE_S}s",
            }
            return _Scenario(lasting, load.duration_s + OPEN_GRACE_S)
        case Steps() | Search() as load:
            return _Scenario(_arrivals(cell, load), cell.offered_s + OPEN_GRACE_S)
        case _:
            assert_never(cell.shape)


def _arrivals(cell: Cell, load: Steps | Search) -> dict[str, object]:
    """Return k6's scenario of an open load.

    Raise LabError if the number of users or the rates are not known yet.
    """
    if load.users is None or not load.rates_rps:
        raise LabError(f"Cell {cell.cell_id} lacks virtual users or arrival rates.")
    rates = [round(rate_rps) for rate_rps in load.rates_rps]
    step = f"{round(1000 * load.step_s)}ms"
    users: dict[str, object] = {
        "gracefulStop": f"{OPEN_GRACE_S}s",
        "timeUnit": "1s",
        "preAllocatedVUs": load.users,
    }
    if len(rates) == 1:
        return {
            "executor": "constant-arrival-rate",
            "rate": rates[0],
            "duration": step,
            **users,
        }
    # k6 changes the rate linearly within a stage. So a stage of 0 s changes the rate in one step.
    stages = [{"target": rate, "duration": length} for rate in rates for length in ("0s", step)]
    return {
        "executor": "ramping-arrival-rate",
        "startRate": rates[0],
        "stages": stages,
        **users,
    }


K6 = Generator(
    measured=measured,
    warm_up=warm_up,
    warm_up_files=(SUMMARY,),
    read_warm_up=read_warm_up,
    must_warm_up=True,
    kept_requests=iterations,
    memory_bytes=memory_bytes,
)
