"""Ratios of two servers with their intervals, load by load; and what a share of a core stands for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pandas as pd

from runner.present.frames import Tables, is_sealed, server_bound
from runner.present.look import style
from runner.present.look.palette import identities
from runner.present.statistics.inference import Ratio, Sample, ratio

QUANTITIES = {"rps": "requests/s", "server_cpu_ms_per_request": "CPU per request"}
READING = (
    "Each ratio is of geometric means, within sessions (or blocks), with its 95 % interval. A ratio of requests/s is "
    "in parentheses where a server was not the limit in every trial: the rate is then another side's."
)
SAME_LOAD = ("workload", "tool", "mode", "connections", "vus", "iterations", "pool_size", "database_share", "idle")
"""What trials of one load on different shares of a core have in common, beside the server and its slices."""
LINEAR = (
    "A share of a core may stand for a core where the rate on it, divided by the share, is the rate on the whole "
    "core: a ratio of 1. Only where the server was the limit in every trial of both."
)


def table(tables: Tables) -> pd.DataFrame:
    """Return the ratios of each load's servers as texts: one row per load and pair; empty where there is none."""
    rows = [row for load, of_load in _loads(tables) for row in _pairs(load, of_load, list(identities(tables.trials)))]
    return pd.DataFrame(rows)


def linearity(tables: Tables) -> pd.DataFrame:
    """Return (rate on a share / share) / (rate on the whole core) as texts, one row per server, load and share."""
    sealed = _sealed(tables)
    rows = []
    for _, own in sealed.groupby(["server", *SAME_LOAD, "slices"], sort=False, dropna=False):
        whole = own[own["share"] == 1]
        for share, part in own[own["share"] < 1].groupby("share"):
            found = _ratio(part.assign(rps=part["rps"] / part["share"]), whole, "rps")
            if found is None or not (server_bound(part) and server_bound(whole)):
                continue
            rows.append(
                {
                    "server": whole["server"].iloc[0],
                    "load": whole["load"].iloc[0],
                    "share": f"{float(str(share)):g}",
                    "requests/s on it": style.number(part["rps"].median()),
                    "on the whole core": style.number(whole["rps"].median()),
                    "per core, beside the whole": _words(found),
                    "sessions": str(found.blocks or len(part)),
                }
            )
    return pd.DataFrame(rows)


def _sealed(tables: Tables) -> pd.DataFrame:
    trials = tables.trials
    return trials[is_sealed(trials) & (trials["tier"] != "calibration") & (trials["objective"] == "")]


def _loads(tables: Tables) -> Iterator[tuple[str, pd.DataFrame]]:
    for _, of_load in _sealed(tables).groupby("load_order"):
        yield str(of_load["load"].iloc[0]), of_load


def _pairs(load: str, trials: pd.DataFrame, servers: list[str]) -> Iterator[dict[str, Any]]:
    by_server = {name: own for name in servers if len(own := trials[trials["server"] == name])}
    for (a, of_a), (b, of_b) in combinations(by_server.items(), 2):
        found = {words: _ratio(of_a, of_b, column) for column, words in QUANTITIES.items()}
        if all(each is None for each in found.values()):
            continue
        ranks = server_bound(of_a) and server_bound(of_b)
        yield {
            "load": load,
            "pair": f"{a} / {b}",
            **{
                words: "–" if each is None else _words(each) if ranks or words != "requests/s" else f"({_words(each)})"
                for words, each in found.items()
            },
            "sessions": str(max(each.blocks or min(len(of_a), len(of_b)) for each in found.values() if each)),
        }


def _ratio(a: pd.DataFrame, b: pd.DataFrame, column: str) -> Ratio | None:
    return ratio(Sample.of(a[column], a["block"]), Sample.of(b[column], b["block"]))


def _words(found: Ratio) -> str:
    """Return a ratio with its interval: `2.15 [2.05–2.26]`."""
    return f"{style.number(found.ratio)} [{style.number(found.low)}–{style.number(found.high)}]"
