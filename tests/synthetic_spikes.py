"""A small run folder whose servers' CPU spikes at known times, beside known events; 20 windows a second."""

from dataclasses import dataclass, field
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
    """What one trial's resources are made of."""

    length_s: float
    level_pct: float
    spikes: tuple[tuple[float, float, float], ...] = ()
    gc: bool = False
    pool: bool = False
    noise_pct: float = NOISE_PCT
    steals_s: tuple[float, ...] = STEALS_S
    seed: int = 1
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)


# --- one series -------------------------------------------------------------------------------------------


def ends(count: int = WINDOWS) -> np.ndarray:
    """The ends of the windows of a load."""
    return (np.arange(count) + 1) * WINDOW_S


def samples(cpu_pct: Any, window_s: float = WINDOW_S) -> pd.DataFrame:
    """A load's rows of the resources table; windows of one length."""
    cpu_pct = np.asarray(cpu_pct, dtype=float)
    return pd.DataFrame({"t_s": (np.arange(cpu_pct.size) + 1) * window_s, "dt_s": window_s, "cpu_pct": cpu_pct})


def found_in(cpu_pct: Any, window_s: float = WINDOW_S) -> Track:
    """What is found in a series that is a load's."""
    return track(samples(cpu_pct, window_s), len(cpu_pct) * window_s)


# --- a run ------------------------------------------------------------------------------------------------


def windows(length_s: float) -> np.ndarray:
    """The ends of the windows, from WARM_S before the load to its end."""
    return np.round(np.arange(-WARM_S + WINDOW_S, length_s + WINDOW_S / 2, WINDOW_S), 3)


def within(end: np.ndarray, begin_s: float, length_s: float) -> np.ndarray:
    """The share of each window that lies in an interval."""
    shared = np.minimum(end, begin_s + length_s) - np.maximum(end - WINDOW_S, begin_s)
    return np.clip(shared, 0, None) / WINDOW_S


def resources(trial_id: str, course: Course) -> pd.DataFrame:
    """The rows of one trial in the resources table."""
    end = windows(course.length_s)
    loaded = end > 0
    noise = course.rng.normal(0, course.noise_pct, end.size)
    server = np.where(loaded, course.level_pct + noise, 0.5)
    for begin, length, height in course.spikes:
        server = server + height * within(end, begin, length)
    generator = np.where(loaded, 60 + course.rng.normal(0, 2, end.size), 0.0)
    stolen = sum((within(end, at, 0.1) > 0.01) * 10.0 for at in course.steals_s)
    parts = {
        "server": {"cpu_pct": server, **told(end, course)},
        "generator": {"cpu_pct": generator},
        "host": {
            "cpu_pct": server + generator,
            "switches_per_s": 9000 + course.rng.normal(0, 300, end.size),
            "steal_ms": stolen + 0 * end,
        },
        "sampler": {"cpu_pct": np.full(end.size, 1.0)},
    }
    if course.pool:
        parts["database"] = {"cpu_pct": np.where(loaded, 25 + course.rng.normal(0, 1, end.size), 1.0)}
    common = {"trial_id": trial_id, "t_s": end, "dt_s": WINDOW_S, "rss_bytes": 30_000_000, "threads": 5}
    common["throttled_ms"] = 0.0
    frames = [pd.DataFrame({**common, "subject": subject, **columns}) for subject, columns in parts.items()]
    return pd.concat(frames, ignore_index=True)


def told(end: np.ndarray, course: Course) -> dict[str, np.ndarray]:
    """What /stats answered, at every fourth window; the collector runs at each spike, and at no other time."""
    answered = np.arange(end.size) % 4 == 0
    cycles = 3.0 + sum((end > begin) * 1.0 for begin, _, _ in course.spikes)
    found = {
        "requests": 1000 * (end + WARM_S),
        "connections": 50.0 + STORM * (end > STORM_S),
        "gc_cycles": (cycles if course.gc else np.nan) + 0 * end,
        "pool_in_use": np.where((end > 5) & (end < 8), 20.0, 3.0) if course.pool else np.nan + 0 * end,
        "pool_size": (20.0 if course.pool else np.nan) + 0 * end,
    }
    return {name: np.where(answered, values, np.nan) for name, values in found.items()}


def add_k6(maker: Maker, server: str, block: int, course: Course, **values: Any) -> dict[str, Any]:
    """One trial at a constant rate of 1,000 requests/s, whose response times follow the spikes."""
    rows = resources("", course)
    inside = rows[(rows["subject"] == "server") & (rows["t_s"] > 0)]["cpu_pct"]
    pairs = inside.to_numpy()[: inside.size // 2 * 2].reshape(-1, 2).mean(axis=1)
    count = round(1000 * course.length_s)
    row = maker.trial(
        server, values.pop("cell", "rates-r1000"), block,
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
    maker.resources.append(rows.assign(trial_id=row["trial_id"]))
    ms = 5.0 * np.exp(0.3 * course.rng.normal(size=count))
    second = np.floor(np.arange(count) / 1000).astype(int)
    for begin, _, _ in course.spikes:
        ms[second == int(begin)] *= 3
    maker.latency.append(histogram(ms, row["trial_id"], second))
    starts = np.round(np.arange(0, course.length_s, 0.1), 1)
    maker.throughput.append(pd.DataFrame({"trial_id": row["trial_id"], "t_s": starts, "requests": 100, "failed": 0}))
    return row


def add_wrk(maker: Maker, server: str, block: int, course: Course) -> None:
    """One short trial with wrk, which keeps no times of requests."""
    row = maker.trial(
        server, "wrk-matrix-c100-keepalive", block, workload="wrk-matrix", tool="wrk", connections=100, threads=1,
        requests=30_000, duration_s=course.length_s, rps=10_000.0, **quantiles(9.0), latency_mean_ms=10.0,
        latency_max_ms=30.0, server_cpu_mean_pct=98.0, server_cpu_peak_1s_pct=99.0, server_cpu_peak_100ms_pct=99.5,
        server_cpu_ms_per_request=0.1, verdict="server-bound", verdict_reason="the server used 98 % of its CPUs",
    )  # fmt: skip
    maker.resources.append(resources(row["trial_id"], course))
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
    for block in (1, 2):
        bursts = (SETTLING, *GIN_SPIKES) if spikes and block == 1 else ()
        gin = Course(LOAD_S, 40.0, bursts, gc=True, pool=database, seed=10 + block)
        axum = Course(LOAD_S, 30.0, pool=database, seed=20 + block)
        sized = {"pool_size": 20} if database else {}
        for server, course in (("gin", gin), ("axum", axum)):
            row = add_k6(maker, server, block, course, **sized)
            if probe:
                add_probe(folder, row["trial_id"], course)
        if wrk:
            for server in ("gin", "axum"):
                add_wrk(maker, server, block, Course(WRK_S, 98.0, noise_pct=0.5, seed=30 + block))
        add_k6(maker, "reference", block, Course(LOAD_S, 20.0, seed=40 + block), tier="calibration")
    facts = synthetic_database.database_manifest() if database else {"placement": manifest()["placement"]}
    write(folder, maker, "process", **facts)
    return folder


def forget_new_columns(folder: Path) -> Path:
    """Take out of the resources table what tables of earlier versions lack."""
    path = folder / "tables" / "resources.parquet"
    pd.read_parquet(path).drop(columns=[*NEW]).to_parquet(path)
    return folder
