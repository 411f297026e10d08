"""A small run folder whose servers' CPU spikes at known times, beside known events; 20 windows a second."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import synthetic_database
from built import once
from synthetic_run import Maker, histogram, manifest, quantiles, write

from runner.present.spikes.found import Track, track

WINDOW_S, WARM_S = 0.05, 1.0
"""A window, and how long the sampler ran before the load."""
WINDOWS = 600
"""Of a load of LOAD_S."""
SERVERS = {
    "axum": ("Rust", "axum", 30.0, 5.0),
    "gin": ("Go", "gin", 40.0, 5.0),
    "reference": ("Rust", "hyper", 20.0, 5.0),
}
LOAD_S, WRK_S = 30.0, 3.0
NOISE_PCT = 1.5
GIN_SPIKES = ((4.0, 0.3, 45.0), (9.5, 0.2, 40.0), (16.25, 0.4, 30.0), (22.1, 0.25, 50.0), (27.0, 0.15, 35.0))
"""Begin and length in seconds, height in % of a core."""
SETTLING = (0.2, 0.4, 60.0)
STORM_S, STORM = 16.3, 400
"""When so many connections are accepted at once."""
STEALS_S = (2.5, 7.3, 12.8, 20.4)
NEW = ("switches_per_s", "threads", "steal_ms", "requests", "connections")
"""Columns that older tables lack."""


@dataclass
class Course:
    """What one trial's resources are made of; `reports` says what its server has: a collector, a pool."""

    length_s: float
    level_pct: float
    seed: int
    spikes: tuple[tuple[float, float, float], ...] = ()
    reports: tuple[str, ...] = ()
    noise_pct: float = NOISE_PCT

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


# --- one series -------------------------------------------------------------------------------------------


def ends() -> np.ndarray:
    """The ends of the windows of a load."""
    return (np.arange(WINDOWS) + 1) * WINDOW_S


def samples(cpu_pct: Any) -> pd.DataFrame:
    """A load's rows of the resources table."""
    end = (np.arange(len(cpu_pct)) + 1) * WINDOW_S
    return pd.DataFrame({"t_s": end, "dt_s": WINDOW_S, "cpu_pct": np.asarray(cpu_pct, dtype=float)})


def found_in(cpu_pct: Any) -> Track:
    """What is found in a series that is a load's."""
    return track(samples(cpu_pct), len(cpu_pct) * WINDOW_S)


# --- a run ------------------------------------------------------------------------------------------------


def windows(length_s: float) -> np.ndarray:
    """The ends of the windows, from WARM_S before the load to its end."""
    return np.round(np.arange(-WARM_S + WINDOW_S, length_s + WINDOW_S / 2, WINDOW_S), 3)


def within(end: np.ndarray, begin_s: float, length_s: float) -> np.ndarray:
    """The share of each window that lies in an interval."""
    shared = np.minimum(end, begin_s + length_s) - np.maximum(end - WINDOW_S, begin_s)
    return np.clip(shared, 0, None) / WINDOW_S


def resources(course: Course) -> pd.DataFrame:
    """The rows of one trial in the resources table.

    /stats answers at every fourth window; the collector runs at each spike, and at no other time.
    """
    end = windows(course.length_s)
    loaded = end > 0
    server = np.where(loaded, course.level_pct + course.rng.normal(0, course.noise_pct, end.size), 0.5)
    server = server + sum((height * within(end, at, length) for at, length, height in course.spikes), 0 * end)
    generator = np.where(loaded, 60 + course.rng.normal(0, 2, end.size), 0.0)
    answers = {"requests": 1000 * (end + WARM_S), "connections": 50.0 + STORM * (end > STORM_S)}
    if "collector" in course.reports:
        answers["gc_cycles"] = 3.0 + sum((1.0 * (end > begin) for begin, _, _ in course.spikes), 0 * end)
    if "pool" in course.reports:
        answers |= {"pool_in_use": np.where((end > 5) & (end < 8), 20.0, 3.0), "pool_size": 20.0 + 0 * end}
    answered = {name: np.where(np.arange(end.size) % 4 == 0, values, np.nan) for name, values in answers.items()}
    stolen = sum((10.0 * (within(end, at, 0.1) > 0.01) for at in STEALS_S), 0 * end)
    switches = 9000 + course.rng.normal(0, 300, end.size)
    parts = {
        "server": {"cpu_pct": server, **dict.fromkeys(("gc_cycles", "pool_in_use", "pool_size"), np.nan), **answered},
        "generator": {"cpu_pct": generator},
        "host": {"cpu_pct": server + generator, "switches_per_s": switches, "steal_ms": stolen},
        "sampler": {"cpu_pct": 1.0},
    }
    if "pool" in course.reports:
        parts["database"] = {"cpu_pct": np.where(loaded, 25 + course.rng.normal(0, 1, end.size), 1.0)}
    common = {"t_s": end, "dt_s": WINDOW_S, "rss_bytes": 30_000_000, "threads": 5, "throttled_ms": 0.0}
    frames = [pd.DataFrame({**common, "subject": subject, **columns}) for subject, columns in parts.items()]
    return pd.concat(frames, ignore_index=True)


def add_k6(maker: Maker, server: str, block: int, course: Course, **values: Any) -> str:
    """One trial at a constant rate of 1,000 requests/s, whose response times follow the spikes."""
    rows = resources(course)
    inside = rows[(rows["subject"] == "server") & (rows["t_s"] > 0)]["cpu_pct"]
    pairs = inside.to_numpy()[: inside.size // 2 * 2].reshape(-1, 2).mean(axis=1)
    count = round(1000 * course.length_s)
    row = maker.trial(
        server, "rates-r1000", block,
        **{
            "workload": "rates", "tool": "k6", "load_model": "open", "vus": 100, "first_rate_rps": 1000.0,
            "rate_rps": 1000.0, "steps": 1, "step_s": course.length_s, "requests": count, "dropped": 0,
            "sustained": True, "duration_s": course.length_s, "rps": 1000.0, "latency_mean_ms": 5.5,
            **quantiles(5.0), "latency_max_ms": 40.0, "server_cpu_mean_pct": float(inside.mean()),
            "server_cpu_peak_1s_pct": float(inside.rolling(20).mean().max()),
            "server_cpu_peak_100ms_pct": float(pairs.max()), "server_cpu_ms_per_request": 0.3, "verdict": "offered",
            "verdict_reason": "1000 requests/s were sustained", **values,
        },
    )  # fmt: skip
    trial_id = str(row["trial_id"])
    maker.resources.append(rows.assign(trial_id=trial_id))
    ms = 5.0 * np.exp(0.3 * course.rng.normal(size=count))
    second = np.arange(count) // 1000
    ms[np.isin(second, [int(begin) for begin, _, _ in course.spikes])] *= 3
    maker.latency.append(histogram(ms, trial_id, second))
    starts = np.round(np.arange(0, course.length_s, 0.1), 1)
    maker.throughput.append(pd.DataFrame({"trial_id": trial_id, "t_s": starts, "requests": 100, "failed": 0}))
    return trial_id


def add_wrk(maker: Maker, server: str, block: int, course: Course) -> None:
    """One short trial with wrk, which keeps no times of requests."""
    row = maker.trial(
        server, "wrk-matrix-c100-keepalive", block, workload="wrk-matrix", tool="wrk", connections=100, threads=1,
        requests=30_000, duration_s=course.length_s, rps=10_000.0, **quantiles(9.0), latency_mean_ms=10.0,
        latency_max_ms=30.0, server_cpu_mean_pct=98.0, server_cpu_peak_1s_pct=99.0, server_cpu_peak_100ms_pct=99.5,
        server_cpu_ms_per_request=0.1, verdict="server-bound", verdict_reason="the server used 98 % of its CPUs",
    )  # fmt: skip
    maker.resources.append(resources(course).assign(trial_id=row["trial_id"]))
    maker.latency.append(histogram(np.full(1000, 9.0), row["trial_id"], None))


def add_probe(folder: Path, trial_id: str, course: Course) -> None:
    """40 requests a second, slower while the server spikes."""
    at = (np.arange(round(40 * course.length_s)) + 0.5) / 40
    ms = np.full(at.size, 0.6)
    for begin, length, _ in course.spikes:
        ms[(at >= begin) & (at <= begin + length)] = 4.5
    path = folder / "tables" / "probe" / f"{trial_id}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"t_s": at, "latency_ms": ms, "service_ms": ms, "status": 200, "ok": True}).to_parquet(path)


@once
def build(folder: Path, *, spikes: bool = True, probe: bool = True, wrk: bool = True, database: bool = False) -> Path:
    """Write run.json and tables/ into `folder` and return it."""
    maker = Maker(SERVERS, np.random.default_rng(4))
    pool, sized = (("pool",), {"pool_size": 20}) if database else ((), {})
    for block in (1, 2):
        bursts = (SETTLING, *GIN_SPIKES) if spikes and block == 1 else ()
        gin = Course(LOAD_S, 40.0, 10 + block, bursts, ("collector", *pool))
        for server, course in (("gin", gin), ("axum", Course(LOAD_S, 30.0, 20 + block, reports=pool))):
            trial_id = add_k6(maker, server, block, course, **sized)
            if probe:
                add_probe(folder, trial_id, course)
            if wrk:
                add_wrk(maker, server, block, Course(WRK_S, 98.0, 30 + block, noise_pct=0.5))
        add_k6(maker, "reference", block, Course(LOAD_S, 20.0, 40 + block), tier="calibration")
    facts = synthetic_database.database_manifest() if database else {"placement": manifest()["placement"]}
    write(folder, maker, "process", **facts)
    return folder


def forget_new_columns(folder: Path) -> Path:
    """Take out of the resources table what tables of earlier versions lack."""
    path = folder / "tables" / "resources.parquet"
    pd.read_parquet(path).drop(columns=[*NEW]).to_parquet(path)
    return folder
