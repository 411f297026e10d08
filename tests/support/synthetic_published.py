"""A small run folder with all loads about which numbers were published.

Each number is a known number times random noise. A world changes some numbers and verdicts, so that
a published claim holds in one world, and does not hold in another.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from built import once, write_record
from measured import record_of
from synthetic_database import database_manifest
from synthetic_run import NINE, Maker, histogram, latencies, write

NOISE = 0.005
RPS = 20_000.0
P50 = 10.0
CPU_MS = 0.05
CPU_PCT = 40.0
RSS = 50e6
SECONDS, PER_SECOND = 8, 1000
"""Length of a ramp of inserts, in seconds, and its number of requests per second."""
MATRIX = tuple(
    f"{mode}-{number}" for mode in ("close", "keepalive") for number in (1, 10, 100, 1000)
)
EXPERIMENTS = ("experiments", "experiments-md5")
RATES = {"experiments-rate": "rates", "experiments-md5-rate": "rates-md5"}
CLOSED = {"static": "static", "insert": "devices-insert"}
OPEN = {"static-ramp": "static-ramp", "insert-ramp": "devices-insert-ramp", **RATES}
LOADS = (*EXPERIMENTS, *MATRIX, *CLOSED, *OPEN)
RAN = {
    **dict.fromkeys((*EXPERIMENTS, *RATES), ("axum", "actix", "echo")),
    **dict.fromkeys(MATRIX, ("axum", "actix", "gin", "nginx")),
    **dict.fromkeys((*CLOSED, "static-ramp", "insert-ramp"), ("axum", "gnet")),
}
"""For each load, the servers that have trials of this load in every world."""
FULL = "server used 97 % of its CPUs, generator 50 % of its own (peak 60 %)"
VERDICTS = {load: "offered" if load in OPEN else "server-bound" for load in LOADS}
Key = tuple[str, str, str]


@dataclass(frozen=True)
class World:
    """The changes of a synthetic run's numbers and verdicts. `World()` changes nothing.

    A number of a trial is multiplied by its factors in `factors`, or replaced by its value in
    `values`. The keys of both are tuples (server, load, column). `verdicts` has the verdicts of
    trials, by load. In any of these keys, `*` in a server or load stands for any text. All verdicts
    have the reason `reason`.
    """

    factors: Mapping[Key, float] = field(default_factory=dict)
    values: Mapping[Key, Any] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    reason: str = FULL
    without: tuple[tuple[str, str], ...] = ()
    """Pairs (server, load) of `RAN` that have no trials in this world."""
    besides: tuple[tuple[str, str], ...] = ()
    """Pairs (server, load) that have trials in addition to those of `RAN`.

    The server can be any server of `synthetic_run.NINE`.
    """
    first_second: Mapping[str, float] = field(default_factory=dict)
    """For some servers, a factor for the response times in the first second of a ramp."""
    unsteady: Mapping[str, float] = field(default_factory=dict)
    """For some servers, how much more the response times and the CPU use vary within a ramp.

    The number is added to the standard deviation of their logarithms, which is 0.02 for the other
    servers.
    """
    miscounted: tuple[str, ...] = ()
    """Servers whose own count of requests is too low."""


def matches(key: tuple[str, str], server: str, load: str) -> bool:
    return fnmatchcase(server, key[0]) and fnmatchcase(load, key[1])


@once
def build(folder: Path, world: World | None = None, trials: int = 6, records: bool = True) -> Path:
    """Write a run into `folder`, and return `folder`.

    The run has run.json, tables/ and, with `records`, trials/*/trial.json.
    """
    world = world or World()
    maker = Maker(NINE, np.random.default_rng(4))
    rng = np.random.default_rng(11)
    shared = np.exp(0.03 * rng.standard_normal(50))

    def noise(block: int) -> float:
        """Return a factor near 1, which is the noise of the trial times the noise of the block.

        The noise of a block is the same for all servers.
        """
        return float(shared[block] * np.exp(NOISE * rng.standard_normal()))

    for block in range(1, trials + 1):
        for load in LOADS:
            for server in (
                *RAN[load],
                *(name for name, where in world.besides if matches(("*", where), "", load)),
            ):
                if not any(matches(gone, server, load) for gone in world.without):
                    add(maker, world, server, load, block, noise)
    write(folder, maker, "docker", **database_manifest())
    if records:
        write_records(folder, maker, world)
    return folder


def add(
    maker: Maker, world: World, server: str, load: str, block: int, noise: Callable[[int], float]
) -> None:
    known = {
        "served_rps": RPS,
        "latency_mean_ms": P50 * 1.2,
        "latency_p50_ms": P50,
        "latency_p90_ms": 2 * P50,
        "latency_p95_ms": 2.5 * P50,
        "latency_p99_ms": 4 * P50,
        "latency_max_ms": 9 * P50,
        "server_cpu_ms_per_request": CPU_MS,
        "server_cpu_mean_pct": CPU_PCT,
        "server_rss_peak_bytes": RSS,
        "server_cpu_peak_1s_pct": 1.2 * CPU_PCT,
        "server_cpu_peak_100ms_pct": 1.3 * CPU_PCT,
    }
    numbers = {
        name: value * noise(block) * factor(world, server, load, name)
        for name, value in known.items()
    }
    rows = round(100_000 * noise(block) * factor(world, server, load, "rows_inserted"))
    stored = {
        "pool_size": 64,
        "pool_exhausted_pct": 3.0,
        "database_cpu_mean_pct": 30.0,
        "rows_inserted": rows,
    }
    verdict = next(
        (v for name, v in world.verdicts.items() if matches(("*", name), "", load)), VERDICTS[load]
    )
    row = {
        **shape(load),
        **numbers,
        "requests": 100_000,
        "duration_s": float(SECONDS) if load == "insert-ramp" else 5.0,
        "generator_cpu_mean_pct": 98.0,
        "probe_p50_ms": 0.4,
        "verdict": verdict,
        "verdict_reason": world.reason,
        **(stored if load.startswith("insert") else {}),
    }
    row |= {
        name: value
        for (*where, name), value in world.values.items()
        if matches(tuple(where), server, load)
    }
    done = maker.trial(server, load, block, **row, inserts=row.get("rows_inserted"))
    if load == "insert-ramp":
        add_seconds(maker, world, server, done["trial_id"])


def factor(world: World, server: str, load: str, column: str) -> float:
    factors = world.factors.items()
    return math.prod(
        f for (*where, name), f in factors if name == column and matches(tuple(where), server, load)
    )


def shape(load: str) -> dict[str, Any]:
    """Return the columns of a trial that describe a load."""
    if load in EXPERIMENTS:
        return {"workload": load, "tool": "k6", "vus": 3000, "iterations": 100_000}
    if load in MATRIX:
        mode, number = load.split("-")
        threads = {1: 1, 10: 5, 100: 5, 1000: 8}[int(number)]
        return {
            "workload": "wrk-matrix",
            "tool": "wrk",
            "mode": mode,
            "connections": int(number),
            "threads": threads,
        }
    if load not in OPEN:
        return {"workload": CLOSED[load], "tool": "wrk", "connections": 64, "threads": 1}
    first, last, steps, step_s = (
        (1000.0, 1000.0, 1, 5.0) if load in RATES else (500.0, 1500.0, 4, SECONDS / 4)
    )
    return {
        "workload": OPEN[load],
        "tool": "k6",
        "load_model": "open",
        "vus": 500,
        "first_rate_rps": first,
        "rate_rps": last,
        "steps": steps,
        "step_s": step_s,
        "dropped": 0,
    }


def add_seconds(maker: Maker, world: World, server: str, trial_id: str) -> None:
    """Add the response times and the CPU use in each second of a ramp."""
    spread = 0.02 + world.unsteady.get(server, 0.0)
    ms = P50 * np.exp(spread * maker.rng.standard_normal(SECONDS))
    ms[0] *= world.first_second.get(server, 1.0)
    seconds = np.repeat(np.arange(SECONDS), PER_SECOND)
    maker.latency.append(
        histogram(np.outer(ms, latencies(1.0, PER_SECOND)).ravel(), trial_id, seconds)
    )
    ends = np.round(np.arange(0, SECONDS, 0.05) + 0.05, 2)
    cpu = CPU_PCT * np.exp(spread * maker.rng.standard_normal(ends.size))
    maker.sampled(trial_id, ends, {"server": cpu}, rss_bytes=int(RSS))


def write_records(folder: Path, maker: Maker, world: World) -> None:
    """Write the record of each trial with the workload wrk-matrix, except the trials of nginx.

    A check in the record says whether the server counted as many requests as wrk.
    """
    for row in maker.trials:
        if row["workload"] != "wrk-matrix" or row["server"] == "nginx":
            continue
        missed = 7 * (row["server"] in world.miscounted)
        check = {
            "name": "5 requests that the server counted = requests answered",
            "ok": not missed,
            "detail": f"server counted {row['requests'] - missed}, wrk {row['requests']}",
        }
        write_record(
            folder / "trials" / row["trial_id"] / "trial.json",
            record_of(row["trial_id"], checks=[check]),
        )
