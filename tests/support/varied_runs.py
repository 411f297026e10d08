"""Runs that differ from each other by known factors, for tests that compare two or more runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import synthetic_run

from runner.store import RunFolder

LOAD = "wrk-matrix, keep-alive, 100 connections"
MEASURED = (
    "served_rps",
    "server_cpu_ms_per_request",
    "server_rss_peak_bytes",
    "latency_p50_ms",
    "latency_p99_ms",
)
Factors = Mapping[tuple[str, str], float]


def varied(
    folder: Path, factors: Factors | None = None, change=None, trials=6, **facts: Any
) -> RunFolder:
    """Return a run whose numbers have 1 % noise.

    `factors` maps (server, column) to the factor by which the server's numbers in this column are
    multiplied. `change` then changes the table of trials. `facts` are written into the manifest.
    """
    synthetic_run.build(folder, k6=(), trials=6)
    manifest = json.loads((folder / "run.json").read_text()) | {"run_id": folder.name} | facts
    (folder / "run.json").write_text(json.dumps(manifest))
    rng = np.random.default_rng(sum(folder.name.encode()))
    synthetic_run.rewrite(
        folder, "trials", lambda table: known(table[table["block"] <= trials], rng, factors or {})
    )
    return RunFolder(synthetic_run.rewrite(folder, "trials", change) if change else folder)


def known(table: pd.DataFrame, rng: np.random.Generator, factors: Factors) -> pd.DataFrame:
    cell = table.groupby(["server", "mode", "connections"])
    noisy = {
        name: cell[name].transform("mean") * rng.lognormal(0, 0.01, len(table)) for name in MEASURED
    }
    table = table.assign(**noisy)
    for (server, column), factor in factors.items():
        table.loc[table["server"] == server, column] *= factor
    open_ = table["mode"].eq("close") & table["connections"].eq(100)
    offered = {"load_model": "open", "rate_rps": 1000.0, "verdict": "offered"}
    return table.assign(**{name: table[name].mask(open_, value) for name, value in offered.items()})


def less(table: pd.DataFrame) -> pd.DataFrame:
    return table[
        ~(table["server"].eq("nginx") & table["connections"].eq(1) & table["mode"].eq("close"))
    ]
