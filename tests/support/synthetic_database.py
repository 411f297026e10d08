"""A small run folder with known numbers: workloads with a database, ramps, a calibration server."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from built import once
from synthetic_run import (
    NINE,
    Maker,
    Servers,
    cpu,
    histogram,
    latencies,
    manifest,
    said,
    times,
    write,
)

EIGHT = {name: facts for name, facts in NINE.items() if name != "nginx"}
THREE = {name: EIGHT[name] for name in ("axum", "gin", "echo")}
REFERENCE = {"reference": ("Rust", "hyper", 20.0, 200.0)}
FIRST_RPS = 500.0
LAST_RPS = 5000.0
STEPS = 10
STEP_S = 2.0
CAPACITY_RPS = {
    "axum": 6000.0,
    "actix": 5600.0,
    "hyper": 6200.0,
    "gin": 4200.0,
    "echo": 3600.0,
    "fiber": 4700.0,
}
"""The highest number of inserts/s that each server answers. A server not listed answers 5400."""
POOL = 50
POOLS = (4, 16, 64, 256, 500)
POOL_SHARE = {
    4: 0.4,
    16: 0.96,
    64: 1.0,
    256: 0.9,
    500: 0.88,
    50: 1.0,
}
"""For each size of the pool, the server's rate as a share of the server's capacity."""
WRK_S = 10.0

POOL_FULL = (
    "database-bound",
    "the pool of connections was exhausted: server used 40 % of its CPUs",
)
SERVER_FULL = (
    "server-bound",
    "server used 97 % of its CPUs, generator 50 % of its own (peak 60 %)",
)
GENERATOR_FULL = (
    "generator-bound",
    "server used 60 % of its CPUs, generator 90 % of its own (peak 97 %)",
)
SUSTAINED = ("offered", "5000 requests/s were sustained: server used 60 % of its CPUs")


def capacity(server: str) -> float:
    return CAPACITY_RPS.get(server, 5400.0)


def offered(second: int) -> float:
    return FIRST_RPS + (LAST_RPS - FIRST_RPS) / (STEPS - 1) * int(second / STEP_S)


def answered(server: str, second: int) -> int:
    """Return the number of requests that are answered in a second of the ramp.

    It is a multiple of 10, so that each tenth of a second has the same number of answers.
    """
    return round(min(offered(second), capacity(server)) / 10) * 10


def sustains(server: str, second: int) -> bool:
    """Return whether the server answers the offered rate in a second of the ramp.

    A difference of up to 5 requests/s is tolerated, because `answered` rounds.
    """
    return answered(server, second) >= offered(second) - 5


def median_ms(server: str, second: int, block: int) -> float:
    """Return the median latency in a second of the ramp.

    In block 1 it is about 10 % lower than in block 2, and in block 3 about 10 % higher. So the
    trial in block 2 is the median of three trials.
    """
    return (2.0 if sustains(server, second) else 60.0) * (0.8 + 0.1 * block)


def in_use(server: str, second: int) -> int:
    return min(POOL, answered(server, second) // 100) if sustains(server, second) else POOL


@cache
def one_second(median: float, count: int) -> pd.DataFrame:
    return histogram(latencies(median, count), "", np.zeros(count, int))


def add_ramp(maker: Maker, server: str, block: int, database: bool, **values: Any) -> None:
    """Add one trial of a ramp.

    If `database` is True, the trial has a database. For each insert per second, the database uses
    0.012 % of a core.
    """
    seconds = range(int(STEPS * STEP_S))
    counts = [answered(server, second) for second in seconds]
    sustained = sustains(server, seconds[-1])
    verdict = SUSTAINED if sustained else GENERATOR_FULL if server == "echo" else SERVER_FULL
    workload = "devices-insert-ramp" if database else "static-ramp"
    stored: dict[str, Any] = {
        "pool_size": POOL,
        "inserts": sum(counts),
        "rows_inserted": sum(counts),
        "database_sessions": POOL,
        "database_cpu_mean_pct": 0.012 * np.mean(counts),
        "database_cpu_ms_per_request": 0.12,
        "pool_in_use_max": max(in_use(server, second) for second in seconds),
        "pool_waiting_max": 0 if sustained else 450,
        "pool_exhausted_pct": 100
        * float(np.mean([in_use(server, second) >= POOL for second in seconds])),
    }
    used = [100 * count / capacity(server) * 0.95 for count in counts]
    price = 950 / capacity(server) * (0.98 + 0.01 * block)
    row = maker.trial(
        server,
        f"{workload}-r500-5000",
        block,
        workload=workload,
        tool="k6",
        load_model="open",
        vus=500,
        first_rate_rps=FIRST_RPS,
        rate_rps=LAST_RPS,
        steps=STEPS,
        step_s=STEP_S,
        requests=sum(counts),
        dropped=round(sum(offered(s) for s in seconds)) - sum(counts),
        duration_s=STEPS * STEP_S,
        rps=sum(counts) / (STEPS * STEP_S),
        **times(2.0, 3.0, 90.0),
        **cpu(np.mean(used), max(used), max(used), price),
        **said(verdict) | (stored if database else {}) | values,
    )
    trial_id = row["trial_id"]
    maker.answered(trial_id, np.repeat(np.array(counts) // 10, 10))
    for second, count in enumerate(counts):
        rows = one_second(median_ms(server, second, block), count).assign(
            trial_id=trial_id, second=second
        )
        maker.latency.append(rows)
    ends = np.round(np.arange(0, len(counts), 0.05) + 0.05, 2)
    second_of = np.minimum((ends - 0.025).astype(int), len(counts) - 1)
    rss = (20 + second_of) * 2**20
    pool = {}
    if database:
        in_seconds = np.array([in_use(server, second) for second in seconds], dtype=float)[
            second_of
        ]
        polled = np.arange(ends.size) % 4 == 0
        for column, value in (("size", POOL), ("in_use", in_seconds), ("waiting", 0.0)):
            pool[f"pool_{column}"] = np.where(polled, value, np.nan)
    maker.sampled(trial_id, ends, {"server": np.array(used)[second_of]}, rss_bytes=rss, **pool)
    others = {"generator": 50.0} | (
        {"database": 0.012 * np.array(counts)[second_of]} if database else {}
    )
    maker.sampled(trial_id, ends, others, rss_bytes=rss)


def pool_rate(server: str, pool: int, block: int) -> float:
    """Return the known requests/s of a closed load.

    In block 1 the rate is 1 % lower than in block 2, and in block 3 it is 1 % higher. So the trial
    in block 2 is the median of three trials.
    """
    return capacity(server) * POOL_SHARE[pool] * (0.98 + 0.01 * block)


def add_closed(maker: Maker, server: str, block: int, pool: int, tool: str) -> None:
    """Add one trial of a closed load.

    With a pool of 4 connections, the pool is the limit. With a larger pool, the generator is the
    limit for echo and gnet, and the server is the limit for all other servers.
    """
    rate = pool_rate(server, pool, block)
    verdict = (
        POOL_FULL if pool == 4 else GENERATOR_FULL if server in {"echo", "gnet"} else SERVER_FULL
    )
    wrk = tool == "wrk"
    mean = 97.0 if verdict == SERVER_FULL else 40.0
    load = (
        {"connections": 512, "threads": 1}
        if wrk
        else {"vus": 500, "iterations": round(rate * WRK_S)}
    )
    maker.trial(
        server,
        f"devices-insert{'' if wrk else '-k6'}-pool{pool}",
        block,
        tool=tool,
        workload="devices-insert" if wrk else "devices-insert-k6",
        **load,
        pool_size=pool,
        requests=round(rate * WRK_S),
        inserts=round(rate * WRK_S),
        rows_inserted=round(rate * WRK_S) + (2 if wrk else 0),
        duration_s=WRK_S,
        rps=rate,
        **times(512_000 / rate, 512_000 / rate, 900.0),
        dropped=None if wrk else 0,
        **cpu(mean, 98.0, 99.0, 950 / capacity(server) * (0.98 + 0.01 * block)),
        **said(verdict),
        database_cpu_mean_pct=55.0,
        database_cpu_ms_per_request=0.13,
        database_sessions=pool,
        pool_in_use_max=pool,
        pool_waiting_max=512 - pool,
        pool_exhausted_pct=98.0 if pool == 4 else 20.0,
    )


def add_static(maker: Maker, server: str, block: int, **values: Any) -> None:
    rate = 8 * capacity(server) * (0.98 + 0.01 * block)
    maker.trial(
        server,
        "static-c64",
        block,
        workload="static",
        tool="wrk",
        connections=64,
        threads=1,
        duration_s=WRK_S,
        requests=round(rate * WRK_S),
        rps=rate,
        **times(64_000 / rate, 64_000 / rate, 90.0),
        **cpu(97.0, 98.0, 99.0, 970 / rate),
        **said(SERVER_FULL),
        **values,
    )


@once
def build(
    folder: Path,
    servers: Servers = EIGHT,
    trials=3,
    ramp=True,
    closed=True,
    static=True,
    failed=True,
) -> Path:
    maker = Maker({**servers, **REFERENCE}, np.random.default_rng(2))
    for block in range(1, trials + 1):
        for server in servers:
            for pool in POOLS if closed else ():
                add_closed(maker, server, block, pool, "wrk")
            if closed:
                add_closed(maker, server, block, POOL, "k6")
            if ramp:
                add_ramp(maker, server, block, database=True)
            if static:
                add_ramp(maker, server, block, database=False)
                add_static(maker, server, block)
        if static:
            add_static(maker, "reference", block, tier="calibration")
        if ramp:
            add_ramp(maker, "reference", block, database=True, tier="calibration")
    if failed and ramp:
        server = next(iter(servers))
        add_ramp(
            maker,
            server,
            trials + 1,
            database=True,
            status="failed",
            verdict=None,
            error="the server died under load with exit code 101.",
        )
    write(folder, maker, "docker", **database_manifest())
    return folder


def database_manifest() -> dict[str, Any]:
    """Return the entries of a manifest about a database that shares the generator's CPU."""
    settings = {
        "fsync": "on",
        "synchronous_commit": "off",
        "full_page_writes": "on",
        "max_connections": "520",
    }
    place = manifest()["placement"] | {"database": [1], "database_shared": True}
    return {
        "placement": place,
        "database": {"version": "15.18", "image": None, "settings": settings},
    }
