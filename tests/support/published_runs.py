"""Worlds (sets of known numbers) in which it is known whether a published claim holds.

The module also has functions that build runs with the numbers of a world.
"""

from typing import Any

import synthetic_published
from built import new_folder
from figure_checks import read, tables_of
from synthetic_published import World

from runner.present.frames import Tables

RUST = ("axum", "actix")


def build(world: World | None = None, **shape: Any) -> Tables:
    """Return a run that has the numbers of a world. Tests must not change the run's files."""
    return read(synthetic_published.build(new_folder(), world, **shape))


def plain() -> Tables:
    """Return the run of `World()`, which changes no number and no verdict.

    Tests share this run, and results about it are cached for the object that this function returns.
    A test with other claims or numbers must use the copy `replace(plain())`, so that it does not
    get a cached result.
    """
    return tables_of("published")


def both(load: str, column: str, factor: float) -> dict[tuple[str, str, str], float]:
    return {(server, load, column): factor for server in RUST}


CPU = "server_cpu_ms_per_request"
RATE = "served_rps"
RAM = "server_rss_peak_bytes"
NOT_FULL = {"experiments*": "generator-bound"}
PEAKS = ("server_cpu_peak_1s_pct", "server_cpu_peak_100ms_pct")
WORLDS: dict[str, tuple[World, World]] = {
    "rust-slightly-more-requests": (
        World(both("experiments", RATE, 1.03)),
        World(both("experiments", RATE, 0.9)),
    ),
    "percentiles-alike": (World(), World(both("experiments-rate", "latency_p95_ms", 1.1))),
    "rust-half-the-cpu": (
        World(both("experiments*", CPU, 0.5)),
        World(both("experiments-md5", CPU, 0.9)),
    ),
    "md5-costs-little": (World(), World(both("experiments-md5", RATE, 0.9))),
    "rust-no-spikes": (
        World(verdicts=NOT_FULL),
        World({(s, "*", peak): 2.0 for s in RUST for peak in PEAKS}, verdicts=NOT_FULL),
    ),
    "no-failed-requests": (World(), World(values={("echo", "experiments-md5", "failed"): 1})),
    "gnet-more-static": (
        World({("gnet", "static", RATE): 1.2}),
        World({("gnet", "static", RATE): 0.8}),
    ),
    "gnet-lower-p90": (
        World({("gnet", "static-ramp", "latency_p90_ms"): 0.8}),
        World({("gnet", "static-ramp", "latency_p90_ms"): 1.2}),
    ),
    "gnet-less-memory": (
        World({("gnet", "static*", RAM): 0.5}),
        World({("gnet", "static-ramp", RAM): 2.0}),
    ),
    "gnet-equal-cpu": (World(), World({("gnet", "static-ramp", "server_cpu_mean_pct"): 1.6})),
    "gnet-more-inserts": (
        World({("gnet", "insert", RATE): 1.2}),
        World({("gnet", "insert", RATE): 0.8}),
    ),
    "gnet-latency-starts-high": (
        World(first_second={"gnet": 3.0}),
        World(first_second={"axum": 3.0}),
    ),
    "axum-steadier": (World(unsteady={"gnet": 0.5}), World(unsteady={"axum": 0.5})),
    "gnet-more-rows": (
        World(
            {("gnet", "insert-ramp", "rows_inserted"): 1.2},
            verdicts={"insert-ramp": "server-bound"},
        ),
        World(
            {("gnet", "insert-ramp", "rows_inserted"): 0.8},
            verdicts={"insert-ramp": "server-bound"},
        ),
    ),
    "postgres-not-the-limit": (
        World(),
        World(verdicts={"insert": "database-bound"}, reason="the database was busy"),
    ),
    "gin-ahead-close": (
        World({("gin", "close-1*", RATE): 1.2}),
        World({("gin", "close-1000", RATE): 0.8}),
    ),
    "axum-ahead-close-few": (
        World({("axum", "close-1*", RATE): 1.2}),
        World({("axum", "close-10", RATE): 0.8}),
    ),
    "axum-far-ahead-at-1000": (
        World({("axum", "keepalive-1000", RATE): 1.7}),
        World({("axum", "keepalive-1000", RATE): 1.2}),
    ),
    "even-at-100": (World(), World({("axum", "keepalive-100", RATE): 1.2})),
    "axum-grows-to-1000": (World({("axum", "keepalive-1000", RATE): 2.7}), World()),
    "axum-less-cpu": (
        World({("axum", "*", CPU): 0.6}),
        World({("axum", "*", CPU): 0.6, ("gin", "close-10", CPU): 0.7}),
    ),
    "axum-half-cpu-keepalive": (
        World({("axum", "keepalive-100", CPU): 0.45}),
        World({("axum", "*", CPU): 0.7}),
    ),
    "nginx-nearly-twice": (
        World({("nginx", "*", RATE): 1.9}),
        World({("nginx", "close-1", RATE): 1.9}),
    ),
    "actix-slower": (World({("actix", "*", RATE): 0.8}), World({("actix", "close*", RATE): 0.8})),
    "actix-less-cpu": (World({("actix", "*", CPU): 0.7}), World({("actix", "close*", CPU): 0.7})),
    "actix-less-memory": (
        World({("actix", "*", RAM): 0.5}),
        World({("actix", "close*", RAM): 0.5}),
    ),
    "counters-race": (World(miscounted=("gin",)), World()),
}
"""For each claim, a world in which the claim holds, and a world in which it does not hold."""
