"""A small run folder with every table of schema 1, and with known statistics."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from built import once, write_record
from measured import record_of
from scipy.stats import lognorm

RUN_ID = "20260102T030405Z-synthetic-0001"
CONNECTIONS = (1, 10, 100, 1000)
RATE_RPS = {"experiments": 9000.0, "experiments-md5": 8800.0}
DURATION_S = {"experiments": 30.0, "experiments-md5": 12.0}
SIGMA = 0.55
"""Shape of the log-normal latencies: their q-quantile is median * exp(SIGMA * z_q).

Here z_q is the q-quantile of the standard normal distribution.
"""
BURST_AT_S = 5.0
BURST_S = 1.0
GENERATOR_FULL = ("generator-bound", "the generator used 99 % of its core")

Servers = dict[str, tuple[str, str, float, float]]
THREE = {
    "axum": ("Rust", "axum", 45.0, 250.0),
    "gin": ("Go", "gin", 82.0, 280.0),
    "nginx": ("C", "nginx", 12.0, 200.0),
}
NINE = {
    **THREE,
    "actix": ("Rust", "actix", 41.0, 246.0),
    "hyper": ("Rust", "hyper", 36.0, 240.0),
    "echo": ("Go", "echo", 85.0, 284.0),
    "fiber": ("Go", "fiber", 70.0, 262.0),
    "gnet": ("Go", "gnet", 38.0, 242.0),
    "nethttp": ("Go", "net/http", 78.0, 275.0),
}
"""For each server, its language, its framework, and its CPU use and median latency under k6.

The CPU use is in % of a core, and the latency in ms.
"""


@dataclass
class Maker:
    """A collector of rows for four tables of a run.

    For each of these tables, an attribute with the table's name contains the rows.
    """

    servers: Servers
    rng: np.random.Generator
    trials: list[dict[str, Any]] = field(default_factory=list)
    latency: list[pd.DataFrame] = field(default_factory=list)
    throughput: list[pd.DataFrame] = field(default_factory=list)
    resources: list[pd.DataFrame] = field(default_factory=list)

    def trial(self, server: str, cell: str, block: int, **values: Any) -> dict[str, Any]:
        language, framework, _, _ = self.servers[server]
        # Without a probe, the server's rate is the rate at which it answers the generator.
        values.setdefault("served_rps", values.get("rps"))
        values.setdefault("rps", values["served_rps"])
        row = {
            "run_id": RUN_ID,
            "trial_id": f"{server}-{cell}-b{block}",
            "block": block,
            "trial_order": len(self.trials) + 1,
            "attempt": 1,
            "server": server,
            "language": language,
            "framework": framework,
            "tier": "raw" if server in {"nginx", "gnet"} else "realistic",
            "load_model": "closed",
            "mode": "keepalive",
            "connections": None,
            "threads": None,
            "vus": None,
            "iterations": None,
            "rate_rps": None,
            "status": "sealed",
            "error": None,
            "failed": 0,
            "server_rss_peak_bytes": 31e6,
            "generator_cpu_mean_pct": 99.0,
            "generator_cpu_peak_1s_pct": 99.9,
            "sampler_cpu_mean_pct": 1.0,
            "wrk_reported_p50_ms": None,
            "wrk_reported_p99_ms": None,
            "probe_p50_ms": None,
            "probe_p95_ms": None,
            "probe_p99_ms": None,
        }
        self.trials.append(row | values)
        return self.trials[-1]

    def sampled(
        self, trial_id: str, ends_s: np.ndarray, cpu_pct: Mapping[str, Any], **columns: Any
    ) -> None:
        """Add rows to the table `resources`: the windows of 50 ms that end at `ends_s`, in seconds.

        `cpu_pct` maps each sampled subject (`server`, `generator`, `host` and so on) to its CPU use
        in each window, in % of a core.
        """
        windows = len(ends_s)

        def of_all(values: Any) -> np.ndarray:
            return np.tile(np.broadcast_to(values, windows), len(cpu_pct))

        used_pct = [np.broadcast_to(used, windows) for used in cpu_pct.values()]

        rows = {
            "trial_id": trial_id,
            "t_s": of_all(ends_s),
            "dt_s": 0.05,
            "rss_bytes": 30_000_000,
            "threads": 4,
            "subject": np.repeat(list(cpu_pct), windows),
            "cpu_pct": np.concatenate(used_pct),
            "throttled_ms": None,
            **{name: of_all(values) for name, values in columns.items()},
        }
        self.resources.append(pd.DataFrame(rows))

    def answered(self, trial_id: str, requests: Any) -> None:
        """Add rows with the number of requests that were answered in each tenth of a second."""
        starts = np.round(np.arange(len(requests)) * 0.1, 1)
        rows = {"trial_id": trial_id, "t_s": starts, "requests": requests, "failed": 0}
        self.throughput.append(pd.DataFrame(rows))


NAMED = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
FACTORS = {f"latency_{name}_ms": float(lognorm(SIGMA).ppf(q)) for name, q in NAMED.items()}


def quantiles(median_ms: float) -> dict[str, float]:
    """Return exact quantiles of log-normal latencies with this median, in ms.

    The keys are columns of the table of trials, such as `latency_p99_ms`. The function `latencies`
    takes its values from the same distribution.
    """
    return {name: median_ms * factor for name, factor in FACTORS.items()}


def times(median_ms: float, mean_ms: float, max_ms: float) -> dict[str, float]:
    return {**quantiles(median_ms), "latency_mean_ms": mean_ms, "latency_max_ms": max_ms}


def cpu(
    mean_pct: float, peak_1s_pct: float, peak_100ms_pct: float, ms_per_request: float
) -> dict[str, float]:
    peaks = {"server_cpu_peak_1s_pct": peak_1s_pct, "server_cpu_peak_100ms_pct": peak_100ms_pct}
    return {"server_cpu_mean_pct": mean_pct, **peaks, "server_cpu_ms_per_request": ms_per_request}


def said(verdict: tuple[str, str]) -> dict[str, str]:
    return dict(zip(("verdict", "verdict_reason"), verdict, strict=True))


@cache
def _even(count: int) -> np.ndarray:
    return lognorm(SIGMA).ppf((np.arange(count) + 0.5) / count)


def latencies(median_ms: float, count: int) -> np.ndarray:
    """Return `count` log-normal latencies in ascending order.

    They are the quantiles of `count` evenly spaced probabilities.
    """
    return median_ms * _even(count)


def histogram(values_ms: np.ndarray, trial_id: str, second: np.ndarray | None) -> pd.DataFrame:
    """Count latencies in logarithmic buckets; return the counts as rows of the table `latency`.

    `second` contains the second of the load in which each latency was measured. If `second` is
    given, each second is counted separately.
    """
    bucket = np.maximum(0, np.floor(np.log(values_ms * 1000) / np.log(1.01))).astype(np.int64)
    key = bucket if second is None else second * 100_000 + bucket
    keys, counts = np.unique(key, return_counts=True)
    buckets = keys % 100_000
    rows = {
        "trial_id": trial_id,
        "second": pd.NA if second is None else pd.array(keys // 100_000, dtype="Int64"),
        "bucket": buckets,
        "count": counts,
        "lower_ms": 1.01**buckets / 1000,
        "upper_ms": 1.01 ** (buckets + 1) / 1000,
    }
    return pd.DataFrame(rows)


def add_k6(maker: Maker, server: str, workload: str, block: int, trial_factor: float) -> None:
    _, _, used, median = maker.servers[server]
    rate = RATE_RPS[workload] * trial_factor
    duration = DURATION_S[workload]
    requests = round(rate * duration)
    median = median / trial_factor
    md5 = 1.1 if workload.endswith("md5") else 1.0
    mean_pct = used * md5 * trial_factor
    row = maker.trial(
        server,
        f"{workload}-vus3000",
        block,
        workload=workload,
        tool="k6",
        vus=3000,
        iterations=requests,
        requests=requests,
        duration_s=duration,
        rps=rate,
        **times(median, median * np.exp(SIGMA**2 / 2), median * 9),
        **cpu(mean_pct, mean_pct * 1.3, mean_pct * 1.3, mean_pct * 10 / rate),
        **said(GENERATOR_FULL),
    )
    trial_id = row["trial_id"]
    values = latencies(median, requests)
    maker.rng.shuffle(values)
    second = np.floor(np.arange(requests) / rate).astype(int)
    maker.latency.append(histogram(values, trial_id, second))
    # The rate varies by 5 % in a slow wave. The wave has a whole number of periods, so that the
    # mean rate does not change.
    edges = np.append(np.round(np.arange(0, duration, 0.1), 1), duration)
    wave = 0.05 * duration / (4 * np.pi) * (1 - np.cos(4 * np.pi * edges / duration))
    maker.answered(trial_id, np.diff(np.floor((edges + wave) * rate)).astype(int))
    add_resources(maker, trial_id, duration, mean_pct)


def add_resources(maker: Maker, trial_id: str, duration: float, server_pct: float) -> None:
    """Add the CPU use in a trial, sampled at 20 Hz.

    The server's CPU use is steady, except for a burst: for one second it is 1.3 times as high.
    """
    ends = np.round(np.arange(-0.5, duration, 0.05) + 0.05, 2)
    middle = ends - 0.025
    burst = (middle >= BURST_AT_S) & (middle < BURST_AT_S + BURST_S)
    server = np.where(middle < 0, 0.0, np.where(burst, 1.3, 1.0) * server_pct)
    generator = np.where(middle < 0, 0.0, 99.0)
    maker.sampled(
        trial_id,
        ends,
        {"server": server, "generator": generator, "host": server + 99, "sampler": 1.0},
    )


def wrk_rate(server: str, index: int, mode: str, connections: int, block: int) -> float:
    """Return the known requests/s of a trial with wrk.

    In block 1 the rate is 2 % lower than in block 2, and in block 3 it is 2 % higher. So the trial
    in block 2 is the median of three trials.
    """
    peak = {"keepalive": 78_000.0, "close": 21_000.0}[mode] * (
        1.25 if server == "nginx" else 1 - 0.06 * index
    )
    shape = {1: 0.22, 10: 0.7, 100: 1.0, 1000: 0.9}[connections]
    return peak * shape * (0.96 + 0.02 * block)


def add_wrk(maker: Maker, server: str, mode: str, connections: int, block: int) -> None:
    rate = wrk_rate(server, list(maker.servers).index(server), mode, connections, block)
    bound = connections > 1
    mean = connections / rate * 1000
    median = mean / np.exp(SIGMA**2 / 2)
    used = 99.0 if bound else 60.0
    verdict = (
        GENERATOR_FULL
        if not bound or server == "nginx"
        else ("server-bound", "the server used 99 % of its core")
    )
    row = maker.trial(
        server,
        f"wrk-matrix-c{connections}-{mode}",
        block,
        workload="wrk-matrix",
        tool="wrk",
        mode=mode,
        connections=connections,
        threads=1,
        requests=round(rate * 3),
        duration_s=3.0,
        rps=rate,
        **said(verdict),
        **times(median, mean, 2 * quantiles(median)["latency_p999_ms"]),
        **cpu(used, 100.0, 101.0, 10 * used / rate),
    )
    maker.latency.append(histogram(latencies(median, 20_000), row["trial_id"], None))
    add_resources(maker, row["trial_id"], 3.0, 90.0)


def manifest(engine: str = "process") -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": RUN_ID,
        "started_at": "2026-01-02T03:04:05+00:00",
        "campaign": {"name": "synthetic", "title": "A synthetic run", "toml": "", "scale": 1.0},
        "seed": 7,
        "command": ["bench", "run", "synthetic"],
        "git": {"commit": "0" * 40, "dirty": False},
        "machine": {
            "cpu_model": "Example CPU @ 2.50GHz",
            "cpus": 2,
            "memory_bytes": 8 * 2**30,
            "kernel": "6.1",
            "governor": None,
            "cgroup_version": 2,
            "os": "Linux",
        },
        "tools": {"k6": "1.8.1", "wrk": "4.1.0", "nginx": "1.22", "python": "3.11"},
        "engine": engine,
        "engine_reason": "no Docker engine answered" if engine == "process" else "Docker answered",
        "placement": {"server": [0], "generator": [1], "disjoint": True},
        "images": {},
        "artifacts": {},
        "host_warnings": ["The CPU governor is not readable."],
    }


@once
def build(
    folder: Path, servers: Servers = THREE, k6=tuple(RATE_RPS), wrk=True, trials=3, failed=True
) -> Path:
    """Write run.json and tables/ into `folder`, and return `folder`."""
    maker = Maker(servers, np.random.default_rng(1))
    for block in range(1, trials + 1):
        for server in servers:
            for workload in k6:
                if server != "nginx" or workload == "experiments":
                    add_k6(maker, server, workload, block, 0.98 + 0.02 * (block - 1))
            for mode in ("keepalive", "close") if wrk else ():
                for connections in CONNECTIONS:
                    add_wrk(maker, server, mode, connections, block)
    if failed and k6:
        maker.trial(
            next(iter(servers)),
            f"{k6[0]}-vus3000",
            trials + 1,
            workload=k6[0],
            tool="k6",
            vus=3000,
            status="failed",
            error="k6 ended with exit code 107.",
            verdict=None,
        )
    write(folder, maker, "process")
    return folder


def write(folder: Path, maker: Maker, engine: str, **facts: Any) -> None:
    """Write the collected rows as tables, and a manifest that contains `facts`."""
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(manifest(engine) | facts))
    sample = Maker(THREE, maker.rng)  # gives every run the columns of both k6 and wrk
    add_k6(sample, "axum", "experiments", 1, 1.0)
    add_wrk(sample, "axum", "close", 1, 1)
    columns = list({name: None for row in [*sample.trials, *maker.trials] for name in row})
    pd.DataFrame(maker.trials, columns=columns).to_parquet(tables / "trials.parquet")
    for name in ("latency", "throughput", "resources"):
        parts = getattr(maker, name) or [getattr(sample, name)[0].head(0)]
        pd.concat(parts, ignore_index=True).to_parquet(tables / f"{name}.parquet")


def rewrite(folder: Path, table: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    """Change a table of a run on disk, and return `folder`."""
    path = folder / "tables" / f"{table}.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    return folder


def write_records(folder: Path) -> Path:
    """Write the record of each trial of a run, and return `folder`."""
    for row in pd.read_parquet(folder / "tables" / "trials.parquet").to_dict("records"):
        name = row["trial_id"]
        numbers = {"order": int(row["trial_order"]), "block": int(row["block"])}
        write_record(
            folder / "trials" / name / "trial.json",
            record_of(name, status=row["status"], **numbers),
        )
    return folder
