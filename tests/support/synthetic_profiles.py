"""A small run with profiles of two servers, whose CPU time by kind of work is known."""

from pathlib import Path

import pandas as pd
import synthetic_run

US = {
    "axum": {"kernel network": 14.0, "HTTP": 4.0, "unknown": 0.2},
    "gin": {"kernel network": 20.0, "HTTP": 9.0, "unknown": 0.3},
}
"""Server -> kind of work -> µs per request."""
LOAD = "wrk-matrix-c100-keepalive"
SLICES = range(1, 7)


def build(folder: Path) -> Path:
    """Build the run, and write the tables of its profiles."""
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
    for name, rows in tables.items():
        pd.DataFrame(rows).to_parquet(folder / "tables" / f"{name}.parquet")
    return folder
