"""Figures of processor time in the k6 cells: over time, peaks, and per request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from runner.present.chart import Axis, Chart, Fact, ServerLoad, Shared, cells, chart, empty, points, tidy
from runner.present.chart.drawing import beside
from runner.present.figures.seconds import BINS, bin_width
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, identities
from runner.present.statistics.stats import sliding_mean, spread

PEAK_WINDOW_S = 1.0
PEAK, FINE_PEAK, PRICE = "peak over 1 s", "peak over 0.1 s", "CPU per request"
COLUMNS = {
    PRICE: "server_cpu_ms_per_request",
    PEAK: "server_cpu_peak_1s_pct",
    FINE_PEAK: "server_cpu_peak_100ms_pct",
}
"""Series of the bars -> its column of the trials."""
UNSAMPLED = pd.DataFrame(columns=["t_s", "dt_s", "cpu_pct"], dtype=float)


def usage(samples: pd.DataFrame, window_s: float, end_s: float = math.inf) -> pd.DataFrame:
    """Return the CPU use over trailing windows inside the load: t_s (the end), cpu_pct (100 is one core busy).

    `samples` are the rows of the resources table of one subject in one trial; the load ends at `end_s`.
    """
    rows = samples[samples["cpu_pct"].notna()].sort_values("t_s")
    t_s, cpu_pct = sliding_mean(rows["t_s"], rows["dt_s"], rows["cpu_pct"], window_s)
    points = pd.DataFrame({"t_s": t_s, "cpu_pct": cpu_pct})
    return points[points["t_s"].between(window_s - 1e-6, end_s)]


@chart("cpu-over-time", notebook="report")
def over_time(tables: Tables) -> Chart:
    """Return the CPU over time of server and generator in every trial, with the highest 1 s of each server."""
    title, trials = "CPU over time", tables.sealed("k6")
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    widths = {load: bin_width(alike) for load, alike in trials.groupby("load")}
    resources = tables.resources[tables.resources["trial_id"].isin(trials["trial_id"])]
    samples = dict(list(resources.groupby(["trial_id", "subject"])))
    curves = [rows for cell in cells(tables, trials) for rows in _curves(cell, samples, widths[cell.panel])]
    return Chart(
        title,
        pd.concat(curves, ignore_index=True),
        Axis("seconds since the load began", "seconds", " s"),
        Axis("CPU, %", "CPU in % of a core", " %"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), f"Lines: every trial, {BINS}."),
        f"Coloured: the server. Grey, dashed: the load generator. Thick bar and number: the server's peak, its "
        f"highest {PEAK_WINDOW_S:g} s. 100 % is one core busy.",
        headings=captions.load_headings(trials, "CPU"),
        statistic="every trial, the server coloured, its peak over 1 s marked, the load generator dashed; typical: "
        "median over time",
        facts=(
            Fact("peak", _median_of("subject", PEAK), text=_peak),
            Fact("typical use", _median_of("subject", "server"), " %"),
            Fact("generator's typical use", _median_of("subject", "generator"), " %"),
        ),
        draw=Shared(left_in=0.8, alone=True, mark=_draw_cell, finish=_over_time_axes),
    )


def _curves(cell: ServerLoad, samples: Mapping[Any, pd.DataFrame], width_s: float) -> list[pd.DataFrame]:
    """Return the curves of a cell's trials, the generator's first, and the server's highest second as two points.

    That is of the trial with the highest peak, with the trial table's value; none where no trial has a full second.
    What the sampler saw while the generator ended is no load's.
    """
    found, peaks = [], []
    for subject, trial in product(("generator", "server"), cell.trials.to_dict("records")):
        name, end_s = trial["trial_id"], trial["duration_s"]
        sampled = samples.get((name, subject), UNSAMPLED)
        curve = usage(sampled, width_s, end_s)
        found.append(points(cell, f"{subject} {name}", curve["t_s"], curve["cpu_pct"], subject=subject))
        windows = usage(sampled, PEAK_WINDOW_S, end_s)
        if subject == "server" and len(windows):
            highest, listed = windows.iloc[int(windows["cpu_pct"].argmax())], trial[COLUMNS[PEAK]]
            peaks.append((highest["cpu_pct"], highest["t_s"], highest["cpu_pct"] if math.isnan(listed) else listed))
    if peaks:
        _, end_s, value = max(peaks, key=lambda peak: peak[0])
        found.append(points(cell, PEAK, [end_s - PEAK_WINDOW_S, end_s], [value, value], subject=PEAK))
    return found


def _median_of(column: str, name: str) -> Callable[[pd.DataFrame], float]:
    """Return what gives the median of those points whose `column` has a name; NaN without any."""
    return lambda rows: float(rows.loc[rows[column] == name, "y"].median())


def _peak(rows: pd.DataFrame) -> str:
    marked = rows[rows["subject"] == PEAK]
    return f"{style.number(marked['y'].max())} % at {marked['x'].max():.3g} s"


def _draw_cell(ax: Axes, rows: pd.DataFrame, look: Identity, _: str) -> None:
    looks: dict[str, dict[str, Any]] = {
        "generator": {"color": style.GREY, "lw": 1.0, "ls": "--"},
        "server": {"color": look.color, "lw": 1.3},
        PEAK: {"color": style.INK, "lw": 3, "solid_capstyle": "butt"},
    }
    words = f"no full {PEAK_WINDOW_S:g} s sampled"
    for _series, curve in rows.dropna(subset="y").groupby("series", sort=False):
        subject = str(curve["subject"].iloc[0])
        ax.plot(curve["x"], curve["y"], label="peak" if subject == PEAK else subject, **looks[subject])
        if subject == PEAK:
            words = f"peak {style.number(float(curve['y'].iloc[0]))} %"
    # Above all curves: the axis has room there.
    ax.text(0.02, 0.98, words, transform=ax.transAxes, size=style.SMALL_PT, va="top")


def _over_time_axes(ax: Axes, chart: Chart, panel: str) -> None:
    curves = chart.frame[chart.frame["series"] != PEAK]
    longest = curves.loc[curves["panel"] == panel, "x"].max()
    scales.limit(ax, "y", 0, max(100.0, curves["y"].max()) * 1.34)
    scales.limit(ax, "x", 0, longest if longest > 0 else 1.0)


@chart("cpu-peaks", notebook="report", table=captions.BY_LOAD)
def peaks(tables: Tables) -> Chart:
    """Return the server's CPU peak in 1 s (bar) and 0.1 s (mark), and CPU milliseconds per request."""
    title, trials = "CPU: the peak, and the price of a request", tables.sealed("k6")
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    bars = []
    for cell, (series, column) in product(cells(tables, trials), COLUMNS.items()):
        found = spread(cell.trials[column])
        bars.append(points(cell, series, [0.0], [found.median], [found.low], [found.high]))
    return Chart(
        title,
        tidy(bars),
        y=Axis("", "the server's CPU in ms per request, and its peaks over 1 s and 0.1 s in % of a core"),
        looks=identities(tables.trials),
        caption=captions.caption(tables, tables.of("k6"), "Bars: median of the trials; whiskers: minimum to maximum."),
        key="Bar: highest 1 s of the server, its number at the right. Upright mark: highest 0.1 s (median).",
        headings=captions.load_headings(trials, "CPU"),
        kind="Pairs of bar charts",
        facts=(
            Fact("cost", _median_of("series", PRICE), " ms", rising=True, order="cheapest first"),
            Fact("peak", _median_of("series", PEAK), " %"),
            Fact("0.1 s peak", _median_of("series", FINE_PEAK), " %"),
        ),
        draw=_draw_peaks,
    )


def _draw_peaks(chart: Chart) -> Figure:
    shown = chart.servers
    row = style.PanelRow(2, 0.25 + 0.36 * len(shown), left_in=style.label_room(shown) - 0.1, right_in=0.3, gap_in=0.45)
    figure, axes = style.page(chart.title, chart.caption, [row] * len(chart.headings), key=chart.key)
    for (panel, heading), pair in zip(chart.headings.items(), axes, strict=True):
        style.heading(pair[0], *heading)
        rows = chart.frame[chart.frame["panel"] == panel].set_index(["series", "server"])
        _draw_bars(pair[0], rows, PEAK, chart, FINE_PEAK)
        _draw_bars(pair[1], rows, PRICE, chart)
        pair[1].set_yticklabels([])
        pair[0].set_xlabel("CPU peak, % of a core")
        pair[1].set_xlabel("CPU ms per request")
    for column in (0, 1):
        widest = max(pair[column].get_xlim()[1] for pair in axes)
        for pair in axes:
            pair[column].set_xlim(0, widest)
            scales.even_axis(pair[column], "x")
    return figure


def _draw_bars(ax: Axes, rows: pd.DataFrame, series: str, chart: Chart, marks: str = "") -> None:
    """Draw zero-based horizontal bars, the first server on top, each with its median printed beyond its mark."""
    longest, shown = 0.0, chart.servers
    for place, server in enumerate(shown):
        value, low, high = rows[["y", "low", "high"]].astype(float).reindex([(series, server)]).iloc[0]
        if math.isnan(value):
            beside(ax, 0, place, "no data", 4)
            continue
        color = chart.looks[server].color
        ax.barh(place, value, height=0.62, color=to_rgba(color, 0.4), edgecolor=color, lw=1.2)
        ax.plot([low, high], [place, place], color=style.INK, lw=1.4, label="range")
        mark = float(rows["y"].get((marks, server), math.nan))
        if math.isfinite(mark):
            ax.plot([mark] * 2, [place - 0.31, place + 0.31], color=style.INK, lw=2.2, label="100 ms")
        far = float(np.nanmax([high, mark]))
        beside(ax, far, place, style.number(value), 5)
        longest = max(longest, far)
    ax.set_xlim(0, longest * 1.42 or 1)
    style.name_rows(ax, shown, chart.looks)
