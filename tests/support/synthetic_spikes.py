"""A small run folder in which the servers' CPU use has spikes at known times, with known events.

The CPU use is sampled in 20 windows per second.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import synthetic_database
from built import once
from synthetic_run import Maker, cpu, histogram, manifest, rewrite, said, times, write

from runner.present.spikes.found import Track, track

WINDOW_S, WARM_S = 0.05, 1.0
"""Length of a window, and how long the sampler ran before the load, both in seconds."""
WINDOWS = 600
"""Number of windows in a load that lasts LOAD_S seconds."""
SERVERS = {
    "axum": ("Rust", "axum", 30.0, 5.0),
    "gin": ("Go", "gin", 40.0, 5.0),
    "reference": ("Rust", "hyper", 20.0, 5.0),
}
LOAD_S = 30.0
WRK_S = 3.0
GIN_SPIKES = (
    (4.0, 0.3, 45.0),
    (9.5, 0.2, 40.0),
    (16.25, 0.4, 30.0),
    (22.1, 0.25, 50.0),
    (27.0, 0.15, 35.0),
)
"""Spikes of gin, as (begin, length, height): begin and length in seconds, height in % of a core."""
SETTLING = (0.2, 0.4, 60.0)
PAUSE_MS = 0.25
"""How long each garbage collection pauses the server.

The CPU time of the collections is much longer than the pauses: all CPU time of a spike above the
usual level belongs to the collections.
"""
STORM_S, STORM = 16.3, 400
"""When a connection storm happens, in seconds, and how many connections are then accepted."""
STEALS_S = (2.5, 7.3, 12.8, 20.4)
NEW = ("switches_per_s", "threads", "steal_ms", "requests", "connections")
"""Columns of the table of resources that runs of earlier versions lack."""


@dataclass
class Course:
    """Description of the CPU use in a trial.

    `reports` says what the server reports in /stats: `collector` for its garbage collector, and
    `pool` for its pool of connections.
    """

    length_s: float
    level_pct: float
    seed: int
    spikes: tuple[tuple[float, float, float], ...] = ()
    reports: tuple[str, ...] = ()
    noise_pct: float = 1.5

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


# --- functions for the CPU use of one load, without a run -----------------------------------------


def ends(count: int = WINDOWS) -> np.ndarray:
    """Return the times at which the windows of a load end."""
    return (np.arange(count) + 1) * WINDOW_S


def samples(cpu_pct: Any) -> pd.DataFrame:
    """Return rows of the table of resources, for a load with this CPU use in each window."""
    return pd.DataFrame(
        {"t_s": ends(len(cpu_pct)), "dt_s": WINDOW_S, "cpu_pct": np.asarray(cpu_pct, dtype=float)}
    )


def found_in(cpu_pct: Any) -> Track:
    """Return the spikes and other facts that the lab finds in a load with this CPU use."""
    return track(samples(cpu_pct), len(cpu_pct) * WINDOW_S)


# --- functions that write a run with spikes -------------------------------------------------------


def windows(length_s: float) -> np.ndarray:
    """Return the times at which windows end, from WARM_S before the load to the load's end."""
    return np.round(np.arange(-WARM_S + WINDOW_S, length_s + WINDOW_S / 2, WINDOW_S), 3)


def within(end: np.ndarray, begin_s: float, length_s: float) -> np.ndarray:
    """Return the share of each window that lies in an interval.

    `end` are the times at which the windows end. The interval begins at `begin_s`.
    """
    shared = np.minimum(end, begin_s + length_s) - np.maximum(end - WINDOW_S, begin_s)
    return np.clip(shared, 0, None) / WINDOW_S


def add_resources(maker: Maker, trial_id: str, course: Course) -> pd.Series:
    """Add the windows of one trial; return the server's CPU use in the windows of the load.

    /stats is read in every fourth window. The garbage collector runs only during spikes, and uses
    all CPU time above the usual level.
    """
    end = windows(course.length_s)
    loaded = end > 0
    server = np.where(
        loaded, course.level_pct + course.rng.normal(0, course.noise_pct, end.size), 0.5
    )
    server = server + sum(
        (height * within(end, at, length) for at, length, height in course.spikes), 0 * end
    )
    generator = np.where(loaded, 60 + course.rng.normal(0, 2, end.size), 0.0)
    answers = {"requests": 1000 * (end + WARM_S), "connections": 50.0 + STORM * (end > STORM_S)}
    if "collector" in course.reports:
        answers["gc_cycles"] = 3.0 + sum(
            (1.0 * (end > begin) for begin, _, _ in course.spikes), 0 * end
        )
        answers["gc_pause_total_ms"] = PAUSE_MS * answers["gc_cycles"]
        answers["gc_cpu_s"] = sum(
            (
                height / 100 * length * (end > begin + length)
                for begin, length, height in course.spikes
            ),
            0 * end,
        )
    if "pool" in course.reports:
        answers |= {
            "pool_in_use": np.where((end > 5) & (end < 8), 20.0, 3.0),
            "pool_size": 20.0 + 0 * end,
        }
    answered = {
        name: np.where(np.arange(end.size) % 4 == 0, values, np.nan)
        for name, values in answers.items()
    }
    stolen = sum((10.0 * (within(end, at, 0.1) > 0.01) for at in STEALS_S), 0 * end)
    switches = 9000 + course.rng.normal(0, 300, end.size)
    reports = ("gc_cycles", "gc_pause_total_ms", "gc_cpu_s", "pool_in_use", "pool_size")
    reported = dict.fromkeys(reports, np.nan) | answered
    sampled = partial(maker.sampled, trial_id, end, threads=5, throttled_ms=0.0)
    sampled({"server": server}, **reported)
    sampled({"generator": generator})
    sampled({"host": server + generator}, switches_per_s=switches, steal_ms=stolen)
    sampled({"sampler": 1.0})
    if "pool" in course.reports:
        sampled({"database": np.where(loaded, 25 + course.rng.normal(0, 1, end.size), 1.0)})
    return pd.Series(server[loaded])


def add_k6(maker: Maker, server: str, block: int, course: Course, **values: Any) -> str:
    """Add one trial at 1,000 requests/s, whose response times are longer during the spikes."""
    trial_id = f"{server}-rates-r1000-b{block}"
    inside = add_resources(maker, trial_id, course)
    pairs = inside.to_numpy()[: inside.size // 2 * 2].reshape(-1, 2).mean(axis=1)
    count = round(1000 * course.length_s)
    maker.trial(
        server,
        "rates-r1000",
        block,
        workload="rates",
        tool="k6",
        load_model="open",
        vus=100,
        first_rate_rps=1000.0,
        rate_rps=1000.0,
        steps=1,
        step_s=course.length_s,
        requests=count,
        dropped=0,
        sustained=True,
        duration_s=course.length_s,
        rps=1000.0,
        **times(5.0, 5.5, 40.0),
        **cpu(
            float(inside.mean()), float(inside.rolling(20).mean().max()), float(pairs.max()), 0.3
        ),
        **said(("offered", "1000 requests/s were sustained")),
        **values,
    )
    ms = 5.0 * np.exp(0.3 * course.rng.normal(size=count))
    second = np.arange(count) // 1000
    ms[np.isin(second, [int(begin) for begin, _, _ in course.spikes])] *= 3
    maker.latency.append(histogram(ms, trial_id, second))
    maker.answered(trial_id, np.full(round(10 * course.length_s), 100))
    return trial_id


def add_wrk(maker: Maker, server: str, block: int, course: Course) -> None:
    """Add one short trial with wrk, which does not record when requests were sent."""
    row = maker.trial(
        server,
        "wrk-matrix-c100-keepalive",
        block,
        workload="wrk-matrix",
        tool="wrk",
        connections=100,
        threads=1,
        requests=30_000,
        duration_s=course.length_s,
        rps=10_000.0,
        **times(9.0, 10.0, 30.0),
        **cpu(98.0, 99.0, 99.5, 0.1),
        **said(("server-bound", "the server used 98 % of its CPUs")),
    )
    add_resources(maker, row["trial_id"], course)
    maker.latency.append(histogram(np.full(1000, 9.0), row["trial_id"], None))


def add_probe(folder: Path, trial_id: str, course: Course) -> None:
    """Write samples of a probe: 40 requests per second, which are slower during the spikes."""
    at = (np.arange(round(40 * course.length_s)) + 0.5) / 40
    ms = np.full(at.size, 0.6)
    for begin, length, _ in course.spikes:
        ms[(at >= begin) & (at <= begin + length)] = 4.5
    path = folder / "tables" / "probe" / f"{trial_id}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(
        {"t_s": at, "latency_ms": ms, "service_ms": ms, "status": 200, "ok": True}
    ).to_parquet(path)


@once
def build(
    folder: Path,
    *,
    spikes: bool = True,
    probe: bool = True,
    wrk: bool = True,
    database: bool = False,
) -> Path:
    maker = Maker(SERVERS, np.random.default_rng(4))
    pool, sized = (("pool",), {"pool_size": 20}) if database else ((), {})
    for block in (1, 2):
        bursts = (SETTLING, *GIN_SPIKES) if spikes and block == 1 else ()
        gin = Course(LOAD_S, 40.0, 10 + block, bursts, ("collector", *pool))
        for server, course in (
            ("gin", gin),
            ("axum", Course(LOAD_S, 30.0, 20 + block, reports=pool)),
        ):
            trial_id = add_k6(maker, server, block, course, **sized)
            if probe:
                add_probe(folder, trial_id, course)
            if wrk:
                add_wrk(maker, server, block, Course(WRK_S, 98.0, 30 + block, noise_pct=0.5))
        add_k6(maker, "reference", block, Course(LOAD_S, 20.0, 40 + block), tier="calibration")
    facts = (
        synthetic_database.database_manifest()
        if database
        else {"placement": manifest()["placement"]}
    )
    write(folder, maker, "process", **facts)
    return folder


def forget_new_columns(folder: Path) -> Path:
    """Remove the columns of NEW from the table of resources, and return `folder`."""
    return rewrite(folder, "resources", lambda table: table.drop(columns=[*NEW]))
