"""A small run folder with known numbers: sweeps, searches, and a probe during every load."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from built import once
from synthetic_database import REFERENCE, THREE
from synthetic_run import (
    SIGMA,
    Maker,
    Servers,
    add_k6,
    cpu,
    latencies,
    manifest,
    quantiles,
    rewrite,
    write,
)

RATES_RPS = (250.0, 500.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 8000.0)
STEP_S = 10.0
CAPACITY_RPS = {"axum": 7500.0, "gin": 4500.0, "echo": 3500.0}
"""The service rate of each server, in requests/s.

Each server is simulated as one queue with random arrivals and service times (M/M/1). A server that
is not listed has a service rate of 20,000, which is higher than all offered rates.
"""
LIMITED_BY_K6 = "echo"
OBJECTIVE = "p99 <= 10 ms"
LOW_RPS = 250.0
HIGH_RPS = 16_000.0
BISECTIONS = 7
PROBE_RPS = 40
PROBE_MS = 0.5
MEDIAN_MS = 280.0
FACTOR = {"axum": 1.1, "gin": 1.0, "echo": 0.9}
CPU_MS = {"axum": 0.05, "gin": 0.1, "echo": 0.08}
USERS = round(9000 * MEDIAN_MS / 1000 * np.exp(SIGMA**2 / 2))
"""Number of users of the closed loads.

By Little's law, this is the rate times the mean of the log-normal response times. This product is
the same for all servers.
"""


def capacity(server: str) -> float:
    return CAPACITY_RPS.get(server, 20_000.0)


def quantile_ms(server: str, rate_rps: float, q: float) -> float:
    """Return the exact quantile of the time that a request spends in an M/M/1 system, in ms.

    This time has an exponential distribution, whose rate is the capacity minus the arrival rate.
    """
    return 1000 * -np.log(1 - q) / (capacity(server) - rate_rps)


def factor(block: int) -> float:
    """Return the factor by which the response times of a block are multiplied.

    The median of the factors of three consecutive blocks is 1.
    """
    return 1.0 + 0.02 * ((block % 3) - 1)


def judged(server: str, rate_rps: float) -> dict[str, Any]:
    """Return the columns `verdict` and `verdict_reason` of a trial at an offered rate.

    Below 80 % of the server's capacity, nothing is the limit, and the verdict is `offered`. At
    higher rates, the limit is the generator for LIMITED_BY_K6, and the server for the others.
    """
    limit = "generator" if server == LIMITED_BY_K6 else "server"
    if rate_rps < 0.8 * capacity(server):
        return {
            "verdict": "offered",
            "verdict_reason": f"{rate_rps:g} requests/s were sustained: server used 60 %",
        }
    return {
        "verdict": f"{limit}-bound",
        "verdict_reason": "server used 97 % of its CPUs, generator 50 % of its own",
    }


def add_rate(
    maker: Maker, server: str, block: int, rate_rps: float, cell: str, **values: Any
) -> dict[str, Any]:
    sustained = rate_rps < 0.98 * capacity(server)
    scale = factor(block)
    ms = {
        f"latency_p{percent}_ms": scale * quantile_ms(server, rate_rps, percent / 100)
        if sustained
        else 1500.0
        for percent in (50, 90, 95, 99)
    }
    requests = round(rate_rps * STEP_S * (1.0 if sustained else 0.9))
    row = {
        "workload": "rates",
        "tool": "k6",
        "load_model": "open",
        "vus": 400,
        "first_rate_rps": rate_rps,
        "rate_rps": rate_rps,
        "steps": 1,
        "step_s": STEP_S,
        "requests": requests,
        "sustained": sustained,
        "dropped": round(rate_rps * STEP_S) - requests,
        "duration_s": STEP_S,
        "rps": requests / STEP_S,
        **ms,
        "latency_mean_ms": 2.0,
        "latency_max_ms": 1600.0,
        "latency_p999_ms": 1550.0,
        **cpu(50.0, 55.0, 60.0, 0.1),
        **probed(PROBE_MS * scale),
        **judged(server, rate_rps),
    }
    return maker.trial(server, cell, block, **row | values)


def probed(median_ms: float, requests: int = 400) -> dict[str, Any]:
    """Return the columns about the probe in a trial's row.

    The response times of the probe have a log-normal distribution.
    """
    law = quantiles(median_ms)
    ms = {f"probe_{name}_ms": law[f"latency_{name}_ms"] for name in ("p50", "p95", "p99")}
    return {"probe_requests": requests, "probe_failed": 0, "probe_cpu_mean_pct": 0.9, **ms}


def add_search(maker: Maker, server: str, block: int, limit_rps: float) -> None:
    """Add the steps of a search that finds `limit_rps` by bisection on a logarithmic scale."""
    low = LOW_RPS
    high = HIGH_RPS
    busy = {
        "verdict": "generator-bound" if server == LIMITED_BY_K6 else "server-bound",
        "verdict_reason": "busy",
    }
    for bisection in range(1, BISECTIONS + 1):
        rate = float(round(np.sqrt(low * high)))
        kept = rate <= limit_rps
        low, high = (rate, high) if kept else (low, rate)
        step = {
            "objective": OBJECTIVE,
            "bisection": bisection,
            "sustained": True,
            "objective_kept": kept,
        }
        add_rate(
            maker,
            server,
            block,
            rate,
            f"rates-p99le10ms-s{bisection}",
            **step,
            **({} if kept else busy),
        )


def limit(server: str, block: int) -> float:
    """Return the highest rate, in requests/s, that keeps the objective in a block."""
    return 0.9 * capacity(server) * (0.97 + 0.01 * block)


def add_closed(maker: Maker, folder: Path, server: str, block: int) -> None:
    """Add a trial of a closed load that obeys Little's law, and the samples of its probe.

    A server with a larger FACTOR answers more requests, and each request in a shorter time. A
    request costs CPU_MS of CPU time. The median of the probe's response times is `probe_ms`.
    """
    maker.servers = {
        **maker.servers,
        server: (*maker.servers[server][:2], CPU_MS[server] * 900, MEDIAN_MS),
    }
    add_k6(maker, server, "experiments", block, FACTOR[server])
    row = maker.trials[-1]
    count = round(row["duration_s"] * PROBE_RPS)
    row |= {
        "vus": USERS,
        "iteration_mean_ms": row["latency_mean_ms"],
        "in_flight_mean": USERS - 4.0,
        "host_steal_pct": 0.4,
        "server_throttled_pct": 0.0,
        **probed(probe_ms(server), count),
    }
    ms = maker.rng.permutation(latencies(probe_ms(server), count))
    # The first sample is from before the load, so the lab must not count it.
    found = {"t_s": [-0.5, *((np.arange(count) + 0.5) / PROBE_RPS)], "latency_ms": [900.0, *ms]}
    samples = pd.DataFrame({**found, "service_ms": found["latency_ms"], "status": 200, "ok": True})
    (folder / "tables" / "probe").mkdir(parents=True, exist_ok=True)
    samples.to_parquet(folder / "tables" / "probe" / f"{row['trial_id']}.parquet")


def probe_ms(server: str) -> float:
    """Return the median of the probe's response times during a closed load, in ms.

    The median of gin is half the median of each other server.
    """
    return PROBE_MS * (0.5 if server == "gin" else 1.0)


@once
def build(
    folder: Path, servers: Servers = THREE, blocks: int = 6, rates: bool = True, closed: bool = True
) -> Path:
    maker = Maker({**servers, **REFERENCE}, np.random.default_rng(3))
    for block in range(1, blocks + 1):
        for server in servers:
            for rate in RATES_RPS if rates else ():
                add_rate(maker, server, block, rate, f"rates-r{rate:g}")
            if rates:
                add_search(maker, server, block, limit(server, block))
            if closed and block <= 2 and server in FACTOR:
                add_closed(maker, folder, server, block)
        if rates:
            add_rate(maker, "reference", block, 500.0, "rates-r500", tier="calibration")
    campaign = manifest()["campaign"] | {
        "loads": [
            {"workload": "rates", "objective": OBJECTIVE, "from_rps": LOW_RPS, "to_rps": HIGH_RPS}
        ]
    }
    write(folder, maker, "docker", campaign=campaign)
    return folder


def forget(folder: Path, *columns: str) -> Path:
    """Remove columns from a run's table of trials, and the samples of its probes.

    Runs of earlier versions lack these columns and samples.
    """
    for samples in (folder / "tables" / "probe").glob("*.parquet"):
        samples.unlink()
    return rewrite(
        folder, "trials", lambda trials: trials.drop(columns=list(columns), errors="ignore")
    )
