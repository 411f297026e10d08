"""Make the figures of wrk's loads: requests/s and CPU per request by number of connections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from runner.present.chart.dots import DotGroup, DotPanel, draw_dots
from runner.present.chart.value import (
    MEAN_AND_BAR,
    Axis,
    Chart,
    Fact,
    cells,
    chart,
    empty,
    extreme,
    mean_points,
    of_trials,
    tidy,
)
from runner.present.comparison import ratios
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.comparison.quantity import CPU_PER_REQUEST, THROUGHPUT, Quantity
from runner.present.frames import MODES, LoadName, Tables
from runner.present.look import captions
from runner.present.look.numbers import number

CONNECTIONS = Axis("connections", "connections", log=True, noun="connection")
ALL_RANKED = (
    "In every trial the limit was the server, or a single connection on awake CPUs, so all rates "
    "can be ranked."
)
SOME_RANKED = (
    "Filled: the rates can be ranked, because in every trial the limit was the server, or a single "
    "connection on awake CPUs. Hollow, pale: they cannot be ranked."
)
NEW_CONNECTIONS = "Close: a new connection for each request."


@chart("wrk-requests", notebook="report", table=captions.BY_LOAD)
def requests(tables: Tables) -> Chart:
    """Return the chart of requests/s by number of connections.

    A point is hollow and pale if its rates must not be ranked (see `ranks_by_throughput`).
    """
    y = Axis("requests/s", "requests per second", "/s")
    pale = "Pale points must not be ranked: in at least one trial, something else was the limit."
    return _matrix(
        tables,
        "requests per second",
        THROUGHPUT,
        y,
        extreme(CONNECTIONS, y, "highest rate"),
        pale,
    )


@chart("wrk-cpu-per-request", notebook="report", table=captions.BY_LOAD)
def cpu_per_request(tables: Tables) -> Chart:
    """Return the chart of the server's CPU time per request in ms, by number of connections."""
    y = Axis("CPU ms per request", "CPU ms per request", " ms")
    lowest = extreme(CONNECTIONS, y, "lowest cost", lowest=True)
    return _matrix(tables, "CPU per request", CPU_PER_REQUEST, y, lowest)


def _matrix(
    tables: Tables,
    called: str,
    quantity: Quantity,
    y: Axis,
    fact: Fact,
    pale: str = "",
) -> Chart:
    """Return the chart of a quantity by number of connections.

    `pale` is the sentence that says what pale points mean. If `pale` is given, points whose rates
    must not be ranked are drawn pale. If `pale` is empty, no point is drawn pale.
    """
    finding = ratios.finding(tables, quantity, "wrk")
    solid = ranks_by_throughput if pale else lambda _: True
    trials = ratios.compared(tables, tables.of("wrk"))
    trials = trials[trials["connections"].notna() & trials["mode"].isin(MODES)]
    if trials.empty:
        return empty(f"wrk: {called} by connections", captions.nothing(tables, "wrk"))
    modes = trials["mode"].map(MODES)
    named = trials.assign(terms=_terms(trials), mode_words=modes.str.capitalize())
    heads = (
        named["workload"] + ", " + modes if named["workload"].nunique() > 1 else named["mode_words"]
    )
    named = named.assign(panel=heads + (", " + named["terms"]).where(named["terms"] != "", ""))
    frame = tidy(
        mean_points(cell, quantity.column, "connections", solid).assign(
            **cell.trials[["workload", "mode", "mode_words", "terms"]].iloc[0]
        )
        for cell in cells(tables, named, "panel")
    )
    key = ""
    if pale:
        key = ALL_RANKED if frame["solid"].all() else SOME_RANKED
    return of_trials(
        tables,
        tables.of("wrk"),
        finding or _both_modes(frame, quantity, y) or f"wrk: {called} by connections",
        frame,
        CONNECTIONS,
        y,
        MEAN_AND_BAR,
        key=f"{key} {NEW_CONNECTIONS}".strip(),
        kind="Dot plot",
        statistic="mean of the trials",
        pale=pale,
        noun="mode",
        facts=(fact,),
        draw=partial(_draw, best_is_highest=quantity.more_is_better),
    )


def _terms(trials: pd.DataFrame) -> list[str]:
    """Return a text for each trial, which names its CPU quotas and says if its idle CPUs slept.

    The text names every CPU quota of the server and of the database. It mentions idle CPUs only if
    they slept in some of `trials` and were kept awake in others. The text may be empty.
    """
    is_mixed = trials["idle"].nunique() > 1
    rows = trials.assign(slices=math.nan).to_dict("records")
    return [LoadName.of(row, says_idle=is_mixed).terms for row in rows]


def _both_modes(frame: pd.DataFrame, quantity: Quantity, y: Axis) -> str:
    """Return a sentence with the best values over kept connections and over new connections.

    Return an empty text if the run lacks one of these modes.
    """
    by_mode = frame.groupby("mode")["y"].agg("max" if quantity.more_is_better else "min")
    if not set(MODES) <= set(by_mode.index):
        return ""
    kept, new = (f"{number(by_mode[mode])}{y.unit}" for mode in ("keepalive", "close"))
    border = "At most" if quantity.more_is_better else "At least"
    return f"{border} {kept} over kept connections, {new} over new ones"


def _draw(chart: Chart, *, best_is_highest: bool) -> Figure:
    groups = _groups(chart.frame.dropna(subset="y"), best_is_highest=best_is_highest)
    columns = len(groups[0].panels)
    return draw_dots(chart, groups, [chart.y] * columns)


def _groups(frame: pd.DataFrame, *, best_is_highest: bool) -> list[DotGroup]:
    """Return the chart's rows of panels, from top to bottom.

    Usually there is one row for each workload and number of connections, with a panel for each
    connection mode. If loads of the same mode differ only in their terms, such as quotas, each of
    these loads is in a row of its own. Rows in which a panel is missing come first.
    """
    modes = [mode for mode in MODES if frame["mode"].eq(mode).any()]
    by_load = {
        (workload, mode, x): [rows for _, rows in alike.groupby("terms", sort=False)]
        for (workload, mode, x), alike in frame.groupby(["workload", "mode", "x"], sort=False)
    }
    several = frame["workload"].nunique() > 1
    found = []
    loads = frame[["workload", "x"]].drop_duplicates()
    for workload, x in loads.sort_values("x", kind="stable").itertuples(index=False):
        of_modes = [by_load.get((workload, mode, x), []) for mode in modes]
        for place in range(max(map(len, of_modes))):
            sides = [parts[place] if place < len(parts) else None for parts in of_modes]
            words = f"{x:,.0f} connection{'s' * (x != 1)}"
            name = f"{workload}, {words}" if several else words
            servers = _ranked([rows for rows in sides if rows is not None], best_is_highest)
            found.append(DotGroup(name, servers, [_panel(rows) for rows in sides]))
    return sorted(found, key=lambda group: None not in group.panels)


def _ranked(sides: Sequence[pd.DataFrame], best_is_highest: bool) -> list[str]:
    """Return the servers, sorted from best to worst in the first connection mode.

    `sides` contains the points of each connection mode, with a point for each server. Servers that
    did not run in the first mode follow, sorted from best to worst in the next mode. The best
    server has the highest value if `best_is_highest` is True, and otherwise the lowest value.
    """
    ordered = [rows.sort_values("y", ascending=not best_is_highest)["server"] for rows in sides]
    return list(dict.fromkeys(pd.concat(ordered)))


def _panel(rows: pd.DataFrame | None) -> DotPanel | None:
    if rows is None:
        return None
    return DotPanel(rows, ", ".join(filter(None, rows[["mode_words", "terms"]].iloc[0])))
