"""Our numbers beside the published ones that the lab repeats."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd

from runner.model import LabError
from runner.present.captions import server_bound
from runner.present.frames import MODES, Tables
from runner.present.markup import NOT_RANKED
from runner.present.palette import identities
from runner.present.stats import spread
from runner.present.style import number
from runner.store import published_csv

COLUMNS = ("source", "scenario", "server", "language", "mode", "connections", "metric", "value")
COUNT, COUNT_WORKLOADS = "count", ("wrk-matrix", "count")
METRICS = {
    "rps": ("requests/s", "rps"),
    "latency_p50": ("p50, ms", "latency_p50_ms"),
    "latency_p90": ("p90, ms", "latency_p90_ms"),
    "latency_p95": ("p95, ms", "latency_p95_ms"),
    "cpu_peak": ("CPU peak, % (here over 1 s)", "server_cpu_peak_1s_pct"),
}
"""Published metric -> how it is printed, and our column for it."""


def read_published() -> pd.DataFrame:
    """Return data/published.csv, one row a published number; LabError where it is missing or lacks a column."""
    path = published_csv()
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise LabError(f"{path} lacks the column {', '.join(missing)}.", exit_code=1)
    return frame


def matrix_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the wrk matrix beside the published one, as texts: one row a mode and number of connections.

    Ours is `median [minimum–maximum]`; the ratio is of medians. A dagger marks what may not be ranked.
    Empty where the run has no trial of that workload.
    """
    theirs = published[(published["scenario"] == COUNT) & (published["metric"] == "rps")]
    trials = tables.sealed("wrk")
    trials = trials[trials["workload"].isin(COUNT_WORKLOADS) & trials["connections"].notna()]
    compared = list(dict.fromkeys(theirs["server"]))
    others = [name for name in identities(tables.trials) if name in set(trials["server"]) - set(compared)]
    rows = []
    for mode in MODES:
        of_mode = trials[trials["mode"] == mode]
        for connections in sorted(of_mode["connections"].unique()):
            ours = of_mode[of_mode["connections"] == connections]
            cell = theirs[(theirs["mode"] == mode) & (theirs["connections"] == connections)]
            values = dict(zip(cell["server"], cell["value"].astype(float), strict=True))
            rows.append(
                {"mode": MODES[mode], "connections": f"{connections:.0f}"}
                | _matrix_row(ours, values, compared)
                | {f"{name}, here": _ranged(ours[ours["server"] == name]) for name in others}
            )
    return pd.DataFrame(rows)


def _matrix_row(ours: pd.DataFrame, published: dict[str, float], compared: list[str]) -> dict[str, str]:
    row = {}
    for name in compared:
        row[f"{name}, here"] = _ranged(ours[ours["server"] == name])
        row[f"{name}, published"] = number(published.get(name, math.nan))
    for base, other in pairwise(compared):
        pair = [ours[ours["server"] == name] for name in (other, base)]
        here = spread(pair[0]["rps"]).median / spread(pair[1]["rps"]).median
        mark = "" if all(server_bound(side) for side in pair) or math.isnan(here) else f" {NOT_RANKED}"
        row[f"{other}/{base}, here"] = number(here) + mark
        row[f"{other}/{base}, published"] = number(published.get(other, math.nan) / published.get(base, math.nan))
    return row


def _ranged(trials: pd.DataFrame) -> str:
    """Return `median [minimum–maximum]` of the rates, with a dagger where the server was not the limit."""
    of = spread(trials["rps"])
    if not of.n:
        return "–"
    mark = "" if server_bound(trials) else f" {NOT_RANKED}"
    return f"{number(of.median)} [{number(of.low)}–{number(of.high)}]{mark}"


def experiments_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the k6 workloads beside the published ones of the same name, as texts: one row a load and metric.

    Columns are the published servers, then every server of ours that ran the workload. Several published
    values of one number stand in one cell. Empty where the run has no such workload.
    """
    trials = tables.sealed("k6")
    trials = trials[trials["workload"].isin(published["scenario"])]
    ours = [name for name in identities(tables.trials) if name in set(trials["server"])]
    theirs = published[published["scenario"].isin(trials["workload"])]
    names = list(dict.fromkeys(zip(theirs["server"], theirs["language"], strict=True)))
    languages = dict(zip(trials["server"], trials["language"], strict=True))
    rows = []
    for load in dict.fromkeys(trials["load"]):
        of_load = trials[trials["load"] == load]
        scenario = theirs[theirs["scenario"] == of_load["workload"].iloc[0]]
        for metric, (words, column) in METRICS.items():
            values = scenario[scenario["metric"] == metric]
            if values.empty:
                continue
            row = {"load": load, "metric": words}
            for name, language in names:
                own = values.loc[values["server"] == name, "value"].astype(float)
                row[f"{name} ({language}), published"] = "; ".join(map(number, own)) or "–"
            for name in ours:
                row[f"{name} ({languages[name]}), here"] = _value(of_load[of_load["server"] == name], column)
            rows.append(row)
    return pd.DataFrame(rows)


def _value(trials: pd.DataFrame, column: str) -> str:
    return _ranged(trials) if column == "rps" else number(spread(trials[column]).median)
