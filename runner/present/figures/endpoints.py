"""Make the figures of a k6 script.

The figures show the response times of the script's endpoints, and failed requests and users over
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from runner.model import OTHER_ENDPOINTS
from runner.present.chart.drawing import Shared, beside
from runner.present.chart.value import (
    Axis,
    Chart,
    Fact,
    ServerLoad,
    cells,
    chart,
    of_trials,
    points,
    tidy,
)
from runner.present.frames import Tables, sealed_trials
from runner.present.look import style
from runner.present.look.numbers import number
from runner.present.look.palette import identities, pale

MOST_DRAWN = 12
"""A panel shows at most this many endpoints; the table may contain more."""
MOST_PANELS = 4
PERCENTILES = {
    "p50": "latency_p50_ms",
    "p90": "latency_p90_ms",
    "p95": "latency_p95_ms",
    "p99": "latency_p99_ms",
    "p99.9": "latency_p99_9_ms",
}
MOST_BINS = 120
"""A line over time has at most this many points."""
LONGEST_NAME = 34  # the figure shows at most this many characters of an endpoint's name
NO_ENDPOINTS = "No endpoint of this run has enough requests for a percentile."


def _has_endpoints(tables: Tables) -> bool:
    return bool(_endpoints(tables)["latency_p50_ms"].notna().any())


def _endpoints(tables: Tables) -> pd.DataFrame:
    found = tables.of_script("endpoints")
    sealed = found["trial_id"].isin(sealed_trials(tables.trials)["trial_id"])
    return found[found["endpoint"].notna() & sealed]


@chart("endpoints-latency", notebook="endpoints", needs=_has_endpoints, table="The answer")
def latency(tables: Tables) -> Chart:
    """Return the chart of the percentiles of each endpoint's response times.

    Each value is the median of the percentile over the trials.
    """
    found = _endpoints(tables)
    trials = tables.trials[tables.trials["trial_id"].isin(found["trial_id"])]
    title = "Response times by endpoint"
    drawn = cells(tables, trials)[:MOST_PANELS]
    frame = tidy(part for cell in drawn for part in _distribution(cell, found))
    if frame.empty:
        return Chart(title, frame, nothing=NO_ENDPOINTS)
    look = replace(next(iter(identities(tables.trials).values())), marker="o")
    shown = frame["server"].nunique()
    left_out = found["endpoint"].nunique() > shown
    words = "A percentile is missing if fewer than 100 requests lie beyond it"
    words += f", and these are the {shown} endpoints with most requests." if left_out else "."
    made = of_trials(
        tables,
        trials,
        _finding(frame) or title,
        frame,
        Axis(""),
        Axis("ms (log scale)", "response time", " ms", log=True),
        words,
        key="Dots, from left to right: p50, p90, p95, p99 and p99.9. The highest has its number.",
        kind="Dot plot",
        statistic="percentiles of each endpoint, the median of the trials",
        noun="panel",
        facts=(
            Fact(
                "percentiles",
                lambda rows: float(rows["y"].max()),
                text=_in_words,
                order="slowest first",
            ),
        ),
        draw=_draw,
    )
    return replace(made, looks=dict.fromkeys(frame["server"], look))


def _distribution(cell: ServerLoad, found: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the points of the endpoints with the most requests in a cell.

    There are at most `MOST_DRAWN` of these endpoints. The points of an endpoint are its
    percentiles. An endpoint without a known percentile is left out.
    """
    is_one = found["endpoint"] != OTHER_ENDPOINTS
    rows = found[found["trial_id"].isin(cell.trials["trial_id"]) & is_one]
    requests = rows.groupby("endpoint", sort=False)["requests"].sum()
    most = requests.sort_values(ascending=False, kind="stable").index[:MOST_DRAWN]
    panel = f"{cell.server}: {cell.panel}"
    for number_of, endpoint in enumerate(most, start=1):
        own = rows[rows["endpoint"] == endpoint]
        values = own[list(PERCENTILES.values())].median().to_numpy(float)
        if np.isnan(values).all():
            continue
        name = endpoint if len(endpoint) <= LONGEST_NAME else f"{number_of}. {endpoint}"
        place = ServerLoad(panel, style.short(name, LONGEST_NAME), cell.trials)
        yield points(place, list(PERCENTILES), range(len(values)), values)


def _in_words(rows: pd.DataFrame) -> str:
    ends = rows.dropna(subset="y").iloc[[0, -1]]
    return ", ".join(f"{row['series']} {number(row['y'])} ms" for row in ends.to_dict("records"))


def _finding(frame: pd.DataFrame) -> str:
    """Return a sentence with the medians of the slowest and the fastest endpoint.

    Return an empty text if there are several panels, or if there is only one endpoint.
    """
    if frame["panel"].nunique() != 1 or frame["server"].nunique() < 2:
        return ""
    medians = frame[frame["series"] == "p50"].dropna(subset="y").sort_values("y")
    fastest = medians.iloc[0]
    slowest = medians.iloc[-1]
    return (
        f"{slowest['server']} has a median of {number(slowest['y'])} ms, {fastest['server']} one "
        f"of {number(fastest['y'])} ms"
    )


def _draw(chart: Chart) -> Figure:
    """Draw a row for each endpoint, with a dot for each percentile, and a line from dot to dot."""
    rows_of = {panel: chart.of_panel(panel) for panel in chart.panels}
    names = [name for rows in rows_of.values() for name in rows]
    left_in = 0.3 + max(style.text_in(name, style.SMALL_PT) for name in names)
    sizes = [
        style.PanelRow(1, 0.1 + 0.28 * len(rows), 0.36, 0.72, left_in, 0.9)
        for rows in rows_of.values()
    ]
    figure, grid = style.page(chart.title, chart.caption, sizes, key=chart.key, may_shrink=False)
    low = chart.frame["y"].min() / 1.2
    high = chart.frame["y"].max() * 1.2
    for (ax,), (panel, endpoints) in zip(grid, rows_of.items(), strict=True):
        style.heading(ax, panel)
        for place, (name, rows) in enumerate(endpoints.items()):
            known = rows.dropna(subset="y")
            color = chart.looks[name].color
            ends = [known["y"].min(), known["y"].max()]
            ax.plot(ends, [place, place], color=pale(color), lw=2.2, label="range", zorder=1)
            for y in known["y"]:
                is_last = y == ends[1]
                ax.plot(
                    y,
                    place,
                    marker=chart.looks[name].marker,
                    ms=6.5,
                    ls="",
                    color=color,
                    mfc=color if is_last else "white",
                    label=name,
                    zorder=3,
                )
            words = f"{known.iloc[-1]['series']} {number(ends[1])}"
            beside(ax, ends[1], place, words)
        style.limit(ax, "x", low, high, log=True)
        style.name_rows(ax, list(endpoints), chart.looks)
        ax.set_yticks(range(len(endpoints)), list(endpoints), fontsize=style.SMALL_PT)
        ax.set_xlabel(chart.y.label)
    return figure


# --- failed requests and users over time ----------------------------------------------------------


def _of_scripts(tables: Tables) -> pd.DataFrame:
    """Return the sealed trials in which a user's script sent the requests.

    Only trials of scripts have rows in the table of endpoints.
    """
    trials = sealed_trials(tables.trials)
    return trials[trials["trial_id"].isin(tables.of_script("endpoints")["trial_id"])]


def _has_failures(tables: Tables) -> bool:
    return bool((_of_scripts(tables)["failed"] > 0).any())


def _has_users(tables: Tables) -> bool:
    return not tables.of_script("users").empty


@chart("failures-over-time", notebook="endpoints", needs=_has_failures)
def failures_over_time(tables: Tables) -> Chart:
    """Return the chart of the share of requests that failed, over time."""
    trials = _of_scripts(tables)
    frame = tidy(_failures(cell, tables) for cell in cells(tables, trials))
    worst = f"Up to {number(frame['y'].max())} % of the requests failed at one time"
    title = worst if len(frame) else "Failed requests over time"
    return of_trials(
        tables,
        trials,
        title,
        frame,
        Axis("seconds since the load began", "seconds since the load began", " s"),
        Axis("failed requests, %", "share of failed requests", " %"),
        "All trials of a server together.",
        statistic="failed requests of all trials / their requests",
        nothing="No trial of a script was sealed.",
        facts=(Fact("highest share", lambda rows: float(rows["y"].max()), " %"),),
        draw=Shared(),
    )


@chart("users-over-time", notebook="endpoints", needs=_has_users)
def users_over_time(tables: Tables) -> Chart:
    """Return the chart of the number of k6's users that ran an iteration, over time."""
    trials = _of_scripts(tables)
    users = tables.of_script("users")
    frame = tidy(_users(cell, users) for cell in cells(tables, trials))
    most = f"Up to {frame['y'].max():,.0f} users had an iteration" if len(frame) else ""
    return of_trials(
        tables,
        trials,
        most or "Users over time",
        frame,
        Axis("seconds since the load began", "seconds since the load began", " s"),
        Axis("users", "users with an iteration"),
        "k6 counts its users once a second.",
        statistic="median of the trials",
        nothing="This run has no sealed trial whose users are known.",
        facts=(Fact("most users", lambda rows: float(rows["y"].max())),),
        draw=Shared(),
    )


def _failures(cell: ServerLoad, tables: Tables) -> pd.DataFrame:
    """Return the share of failed requests in a cell, in %, for each bin of one second or more."""
    rows = tables.throughput[tables.throughput["trial_id"].isin(cell.trials["trial_id"])]
    width_s = _bin_s(cell)
    bins = rows.groupby((rows["t_s"] // width_s).astype(int))[["requests", "failed"]].sum()
    whole = max(1, int(cell.trials["duration_s"].min() // width_s))  # leave out an incomplete bin
    known = bins[(bins["requests"] > 0) & (bins.index < whole)]
    share_pct = 100 * known["failed"] / known["requests"]
    return points(cell, "failed", (known.index + 0.5) * width_s, share_pct)


def _users(cell: ServerLoad, users: pd.DataFrame) -> pd.DataFrame:
    """Return the median number of users in a cell's trials, for each bin of one second or more."""
    rows = users[users["trial_id"].isin(cell.trials["trial_id"]) & (users["t_s"] >= 0)]
    width_s = _bin_s(cell)
    bins = rows.groupby((rows["t_s"] // width_s).astype(int))["users"].median()
    return points(cell, "users", (bins.index + 0.5) * width_s, bins)


def _bin_s(cell: ServerLoad) -> int:
    """Return the smallest width of a bin, in whole seconds, that gives at most MOST_BINS points."""
    return max(1, math.ceil(float(cell.trials["duration_s"].max()) / MOST_BINS))
