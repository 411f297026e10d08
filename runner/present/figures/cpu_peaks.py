"""Make the figure of CPU peaks at offered rates.

At an offered rate, all servers get the same requests, so the height of a peak depends on the server
alone.
"""

from __future__ import annotations

from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from runner.present.chart.dots import DotGroup, DotPanel, draw_dots
from runner.present.chart.value import (
    MEAN_AND_BAR,
    Axis,
    Chart,
    Fact,
    ServerLoad,
    cells,
    chart,
    empty,
    of_trials,
    points,
    tidy,
)
from runner.present.comparison.obstacle import is_the_servers
from runner.present.comparison.quantity import PEAK_1S_AT_A_RATE
from runner.present.comparison.ratios import compared
from runner.present.figures.sweeps import swept
from runner.present.frames import Tables, has_no_quota, rate_unit
from runner.present.look.numbers import number
from runner.present.look.style import plain
from runner.present.statistics.inference import mean_of

PEAK = "peak over 1 s"
FINE_PEAK = "peak over 0.1 s"
PRICE = "CPU per request"
COLUMN_OF_SERIES = {
    PEAK: "server_cpu_peak_1s_pct",
    FINE_PEAK: "server_cpu_peak_100ms_pct",
    PRICE: "server_cpu_ms_per_request",
}
"""Columns of the trials table from which the dots of each series are made."""
AXIS_OF_SERIES = {
    PEAK: Axis("highest 1 s, % of a core"),
    FINE_PEAK: Axis("highest 0.1 s, %"),
    PRICE: Axis("CPU ms per request"),
}


@chart("cpu-peaks", notebook="report")
def peaks(tables: Tables) -> Chart:
    """Return the chart of each server's CPU peaks and CPU time per request at offered rates.

    There is a panel for each sweep. The panel shows only one of the sweep's rates (see
    `_at_one_rate`). Loads with a CPU quota for the server are left out, because the quota limits
    the peaks.
    """
    title = "CPU peaks at offered rates"
    trials = swept(tables)
    is_whole = has_no_quota(trials)
    if len(trials) and not is_whole.any():
        reason = "This run has no offered rate on a whole core: a peak on a share is the quota."
        return empty(title, reason)
    trials = trials[is_whole]
    unit = rate_unit(trials["workload"])
    named = trials.assign(
        panel=[
            f"{sweep}: {plain(rate)} {unit}"
            for sweep, rate in zip(trials["sweep"], trials["rate_rps"], strict=True)
        ]
    )
    sustained = [
        cell
        for cell in cells(tables, compared(tables, named), "panel")
        if is_the_servers(cell.trials, PEAK_1S_AT_A_RATE)
    ]
    frame = tidy(
        _point(cell, series) for cell, series in product(_at_one_rate(sustained), COLUMN_OF_SERIES)
    )
    shown = trials[named["panel"].isin(frame["panel"])] if len(frame) else trials
    return of_trials(
        tables,
        shown,
        _finding(frame) or title,
        frame,
        Axis(""),
        Axis("", "the server's CPU peaks over 1 s and 0.1 s in % of a core, and its CPU in ms"),
        MEAN_AND_BAR,
        "offered-rate trial",
        nothing="No server sustained a rate of this run, or the CPU was not sampled.",
        kind="Dot plot",
        statistic="mean of the trials",
        noun="rate",
        facts=(
            _fact("cost", PRICE, " ms"),
            _fact("peak", PEAK, " %"),
            _fact("0.1 s peak", FINE_PEAK, " %"),
        ),
        draw=_draw,
    )


def _point(cell: ServerLoad, series: str) -> pd.DataFrame:
    found = mean_of(cell.trials[COLUMN_OF_SERIES[series]])
    return points(cell, series, [0.0], [found.value], [found.low], [found.high])


def _at_one_rate(sustained: list[ServerLoad]) -> list[ServerLoad]:
    """Return, for each sweep, the cells at only one of the sweep's rates.

    `sustained` contains the cells of servers that sustained their rate. The chosen rate of a sweep
    is the rate that the largest number of servers sustained. If several rates were sustained by
    equally many servers, the highest of these rates is chosen.
    """
    rows = pd.DataFrame(
        [
            (cell.trials["sweep"].iloc[0], float(cell.trials["rate_rps"].iloc[0]), cell.panel)
            for cell in sustained
        ],
        columns=["sweep", "rate_rps", "panel"],
    )
    counted = rows.value_counts().rename("servers").reset_index()
    best = counted.sort_values(["servers", "rate_rps"]).drop_duplicates("sweep", keep="last")
    return [cell for cell in sustained if cell.panel in set(best["panel"])]


def _fact(noun: str, series: str, unit: str) -> Fact:
    """Return a fact with each server's value of a series. The lowest value comes first."""

    def value(rows: pd.DataFrame) -> float:
        return float(rows.loc[rows["series"] == series, "y"].max())

    return Fact(noun, value, unit, rising=True, order="least first")


def _finding(frame: pd.DataFrame) -> str:
    """Return a sentence with the highest peak over 1 s and the lowest peak of the same sweep.

    Return an empty text if there are no peaks.
    """
    found = frame[frame["series"].eq(PEAK) & frame["y"].notna()].sort_values("y")
    if found.empty:
        return ""
    last = found.iloc[-1]
    first = found[found["panel"] == last["panel"]].iloc[0]
    if first["server"] == last["server"]:
        return f"The busiest second takes {last['server']} {number(last['y'])} % of a core"
    return (
        f"The busiest second takes {first['server']} {number(first['y'])} % of a core, "
        f"{last['server']} {number(last['y'])} %"
    )


def _draw(chart: Chart) -> Figure:
    groups = []
    for panel in chart.panels:
        rows = chart.frame[chart.frame["panel"] == panel]
        by_series = {str(name): each for name, each in rows.groupby("series")}
        known = rows.dropna(subset="y").sort_values("y")
        servers = list(dict.fromkeys([*known.loc[known["series"] == PEAK, "server"]]))
        servers += [name for name in chart.servers if name in set(known["server"]) - set(servers)]
        panels = [DotPanel(by_series[name].dropna(subset="y")) for name in COLUMN_OF_SERIES]
        groups.append(DotGroup(panel, servers, panels))
    return draw_dots(chart, groups, list(AXIS_OF_SERIES.values()))
