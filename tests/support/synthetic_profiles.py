"""A small run with profiles of two servers, whose CPU time by kind of work is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import synthetic_run

US = {
    "axum": {"kernel network": 14.0, "HTTP": 4.0, "unknown": 0.2},
    "gin": {"kernel network": 20.0, "HTTP": 9.0, "unknown": 0.3},
}
"""CPU time per request in µs, by server and then by kind of work."""
LOAD = "wrk-matrix-c100-keepalive"
SLICES = range(1, 7)
TIMELINE_S, WINDOW_S, SAMPLE_MS = 12.0, 0.05, 2.0
USUAL_PCT, BURST_PCT = 20, 50
"""Usual CPU use in the timeline, and the additional CPU use during the burst, in % of a core."""
BURST_S = (6.0, 6.5)
BURST = "main;collect;sweep_pages"
"""Call stack of the samples of the burst; all other samples have another call stack."""


def timeline_tables(server: str = "axum", burst_stack: str = BURST) -> dict[str, pd.DataFrame]:
    """Return the tables of a server's timeline, in which a known function runs during a burst.

    In each window, the samples of each call stack are evenly spaced.
    """
    names = {"trial_id": f"t-{server}", "server": server, "load": LOAD}
    ends = np.arange(1, round(TIMELINE_S / WINDOW_S) + 1) * WINDOW_S
    starts = ends - WINDOW_S
    bursts = (starts >= BURST_S[0] - 1e-9) & (ends <= BURST_S[1] + 1e-9)
    cpu_pct = USUAL_PCT + BURST_PCT * bursts
    windows = pd.DataFrame({"t_s": ends, "dt_s": WINDOW_S, "cpu_pct": cpu_pct})
    samples = []
    for start, is_burst in zip(starts, bursts, strict=True):
        for stack, category, pct in (
            ("main;serve", "HTTP", USUAL_PCT),
            (burst_stack, "runtime and garbage collector", BURST_PCT * int(is_burst)),
        ):
            count = round(10 * pct * WINDOW_S / SAMPLE_MS)
            at_s = start + (np.arange(count) + 0.5) / max(1, count) * WINDOW_S
            samples += [(at, SAMPLE_MS, category, stack) for at in at_s]
    columns = ["t_s", "cpu_ms", "category", "stack"]
    return {
        "timeline_windows": windows.assign(**names),
        "timeline_samples": pd.DataFrame(samples, columns=columns).assign(**names),
    }


def build(folder: Path) -> Path:
    """Build the run in `folder`, add the tables of its profiles, and return `folder`."""
    synthetic_run.build(folder)
    names = [{"trial_id": f"p01-{server}", "server": server, "load": LOAD} for server in US]
    stacks = [
        {**each, "place": place, "stack": "main", "category": category, "samples": 9}
        | {"us_per_request": mean_us + 0.1 * place}
        for each in names
        for place in SLICES
        for category, mean_us in US[str(each["server"])].items()
    ]
    slices = [
        {**each, "place": place, "kind": "recorded", "requests": 1000}
        | {"cpu_us_per_request": 20.0, "sampled_us_per_request": 20.0}
        for each in names
        for place in SLICES
    ]
    counters = [
        {**each, "event": "raw_syscalls:sys_enter", "per_request": 2.6, "supported": True}
        for each in names
    ]
    tables = {"profiles": stacks, "profile_slices": slices, "counters": counters}
    made = {name: pd.DataFrame(rows) for name, rows in tables.items()} | timeline_tables()
    for name, frame in made.items():
        frame.to_parquet(folder / "tables" / f"{name}.parquet")
    return folder
