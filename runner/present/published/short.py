"""Our numbers beside the published ones in short, for the report of a run: one table a kind of load."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd

from runner.present.frames import MODES, Tables, server_bound
from runner.present.look.markup import NOT_RANKED
from runner.present.look.palette import identities
from runner.present.look.style import number
from runner.present.published.counterparts import CLOSED
from runner.present.published.numbers import METRICS
from runner.present.statistics.stats import spread

COUNT = "count"


def matrix_table(tables: Tables, published: pd.DataFrame) -> pd.DataFrame:
    """Return the wrk matrix beside the published one, as texts: one row a mode and number of connections.

    Ours is `median [minimum–maximum]`; the ratio is of medians. A dagger marks what may not be ranked.
    Empty where the run has no trial of that workload.
    """
    theirs = published[(published["scenario"] == COUNT) & (published["metric"] == "rps")]
    trials = tables.sealed("wrk")
    trials = trials[trials["workload"].isin(CLOSED[COUNT]) & trials["connections"].notna()]
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
    trials = tables.timed("k6")
    trials = trials[trials["workload"].isin(published["scenario"])]
    ours = [name for name in identities(tables.trials) if name in set(trials["server"])]
    theirs = published[published["scenario"].isin(trials["workload"])]
    names = list(dict.fromkeys(zip(theirs["server"], theirs["language"], strict=True)))
    languages = dict(zip(trials["server"], trials["language"], strict=True))
    rows = []
    for load in dict.fromkeys(trials["load"]):
        of_load = trials[trials["load"] == load]
        scenario = theirs[theirs["scenario"] == of_load["workload"].iloc[0]]
        for metric in METRICS:
            values = scenario[scenario["metric"] == metric]
            if values.empty:
                continue
            words, column = next(iter(METRICS[metric].items()))
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
