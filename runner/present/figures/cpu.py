"""Figures of processor time in the k6 cells: over time, peaks, and per request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from runner.present.chart import Axis, Chart, Extreme, ServerLoad, Shared, cells, chart, empty, points
from runner.present.chart.drawing import beside
from runner.present.chart.sentences import Lines, by_value, ends, fit, in_loads, ranking, said, scope, unknown
from runner.present.figures.seconds import bin_width
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, identities
from runner.present.statistics.stats import sliding_mean, spread

PEAK_WINDOW_S = 1.0
Samples = dict[tuple[str, str], pd.DataFrame]
PEAK, FINE_PEAK, PRICE = "peak over 1 s", "peak over 0.1 s", "CPU per request"
COLUMNS = {
    PEAK: "server_cpu_peak_1s_pct",
    FINE_PEAK: "server_cpu_peak_100ms_pct",
    PRICE: "server_cpu_ms_per_request",
}
"""Series of the bars -> its column of the trials."""


def usage(samples: pd.DataFrame, window_s: float) -> pd.DataFrame:
    """Return the CPU use over trailing windows inside the load: t_s (the end), cpu_pct (100 is one core busy).

    `samples` are the rows of the resources table of one subject in one trial.
    """
    rows = samples[samples["cpu_pct"].notna()].sort_values("t_s")
    t_s, cpu_pct = sliding_mean(rows["t_s"], rows["dt_s"], rows["cpu_pct"], window_s)
    points = pd.DataFrame({"t_s": t_s, "cpu_pct": cpu_pct})
    return points[points["t_s"] - window_s >= -1e-6]


def samples_of(trials: pd.DataFrame, resources: pd.DataFrame) -> Samples:
    """Return the resource samples of `trials` by (trial_id, subject), up to the load's end.

    A pair that was not sampled has an empty frame. What the sampler saw while the generator ended is no load's.
    """
    lasted_s = dict(zip(trials["trial_id"].astype(str), trials["duration_s"], strict=True))
    chosen = resources[resources["trial_id"].isin(trials["trial_id"])]
    chosen = chosen[chosen["t_s"] <= chosen["trial_id"].astype(str).map(lasted_s).astype(float)]
    found = {(str(trial), str(of)): rows for (trial, of), rows in chosen.groupby(["trial_id", "subject"])}
    return defaultdict(lambda: resources.iloc[:0], found)


@chart("cpu-over-time", notebook="report")
def over_time(tables: Tables) -> Chart:
    """Return the CPU over time of server and generator in every trial, with the highest 1 s of each server."""
    title, trials = "CPU over time", tables.sealed("k6")
    if trials.empty:
        return empty(title, "CPU over time", captions.nothing(tables, "k6"))
    samples = samples_of(trials, tables.resources)
    loads = {str(load): bin_width(own) for load, own in trials.groupby("load", sort=False)}
    curves = [rows for cell in cells(tables, trials) for rows in _curves(cell, samples, loads[cell.panel])]
    return Chart(
        title,
        pd.concat(curves, ignore_index=True),
        Axis("seconds since the load began", "seconds", " s"),
        Axis("CPU, %", "CPU in % of a core", " %"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), "Lines: every trial, as means over the windows that the axis names."),
        f"Coloured: the server. Grey, dashed: the load generator. Thick bar and number: the server's peak, its "
        f"highest {PEAK_WINDOW_S:g} s. 100 % is one core busy.",
        headings=captions.load_headings(trials, "CPU"),
        shared=Shared(left_in=0.8, alone=True),
        xlabels={load: f"seconds since the load began (windows of {width:g} s)" for load, width in loads.items()},
        mark=_draw_cell,
        finish=_over_time_axes,
        describe=_describe_over_time,
    )


def _curves(cell: ServerLoad, samples: Samples, width_s: float) -> list[pd.DataFrame]:
    """Return the curves of a cell's trials, the generator's first, and the server's highest second as two points."""
    rows = []
    for subject in ("generator", "server"):
        for trial in cell.trials["trial_id"]:
            curve = usage(samples[trial, subject], width_s)
            rows.append(points(cell, f"{subject} {trial}", curve["t_s"], curve["cpu_pct"], subject=subject))
    if (found := highest_second(cell.trials, samples)) is not None:
        end, peak = found
        rows.append(points(cell, PEAK, [end - PEAK_WINDOW_S, end], [peak, peak], subject=PEAK))
    return rows


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


def _describe_over_time(chart: Chart) -> str:
    """Describe each cell's marked peak, and what server and generator mostly use."""

    def peak(rows: pd.DataFrame, axis: str = "y") -> float:
        found = rows.loc[rows["subject"] == PEAK, axis].iloc[1:]
        return float(found.iloc[0]) if len(found) else math.nan

    def typical(rows: pd.DataFrame, subject: str) -> float:
        return float(rows.loc[rows["subject"] == subject, "y"].median())

    def typically(rows: pd.DataFrame) -> str:
        return f" at {peak(rows, 'x'):.3g} s (typically {chart.y.say(typical(rows, 'server'))})"

    def generators(curves: Lines) -> str:
        found = pd.Series([typical(own, "generator") for own in curves.values()]).dropna()
        return f"; k6 typically uses {ends(found)} %" if len(found) else ""

    sentence = (
        f"Line chart of {chart.y.words} (up) by seconds (across), {scope(chart)}, every trial: the server in colour "
        "with its peak over 1 s marked, the load generator grey and dashed."
    )
    key = "Typical is the median over time."
    return ranking(chart, sentence, Extreme("peak"), chart.y, peak, typically, key, generators)


def highest_second(trials: pd.DataFrame, samples: Samples) -> tuple[float, float] | None:
    """Return the end (s) and the value (%) of the server's highest 1 s window, of the trial with the highest peak.

    The value is the trial table's. None where no trial has a full window.
    """
    known = zip(trials["trial_id"], trials[COLUMNS[PEAK]], strict=True)
    found = ((usage(samples[trial, "server"], PEAK_WINDOW_S), float(peak)) for trial, peak in known)
    windows = [(window, peak) for window, peak in found if not window.empty]
    if not windows:
        return None
    window, listed = max(windows, key=lambda pair: float(pair[0]["cpu_pct"].max()))
    peak = float(window["cpu_pct"].max()) if pd.isna(listed) else listed
    return float(window["t_s"].iloc[int(window["cpu_pct"].argmax())]), peak


@chart("cpu-peaks", notebook="report", table=captions.BY_LOAD)
def peaks(tables: Tables) -> Chart:
    """Return the server's CPU peak in 1 s (bar) and 0.1 s (mark), and CPU milliseconds per request."""
    title, trials = "CPU: the peak, and the price of a request", tables.sealed("k6")
    if trials.empty:
        return empty(title, "CPU peaks and the price of a request", captions.nothing(tables, "k6"))
    bars = []
    for cell, (series, column) in product(cells(tables, trials), COLUMNS.items()):
        found = spread(cell.trials[column])
        bars.append(points(cell, series, [0.0], [found.median], [found.low], [found.high]))
    return Chart(
        title,
        pd.concat(bars, ignore_index=True),
        y=Axis("", "the server's CPU"),
        looks=identities(tables.trials),
        caption=captions.caption(tables, tables.of("k6"), "Bars: median of the trials; whiskers: minimum to maximum."),
        key="Bar: highest 1 s of the server, its number at the right. Upright mark: highest 0.1 s (median).",
        headings=captions.load_headings(trials, "CPU"),
        draw=_draw_peaks,
        describe=_describe_peaks,
    )


def _bars(chart: Chart, panel: str, series: str) -> pd.DataFrame:
    """Return the known values of a series, by server."""
    own = chart.frame[(chart.frame["panel"] == panel) & (chart.frame["series"] == series)]
    return own.dropna(subset="y").set_index("server")


def _draw_peaks(chart: Chart) -> Figure:
    shown = chart.servers
    row = style.PanelRow(2, 0.25 + 0.36 * len(shown), left_in=style.label_room(shown) - 0.1, right_in=0.3, gap_in=0.45)
    figure, axes = style.page(chart.title, chart.caption, [row] * len(chart.headings), key=chart.key)
    for (panel, heading), pair in zip(chart.headings.items(), axes, strict=True):
        fine, none = _bars(chart, panel, FINE_PEAK)["y"], pd.Series(dtype=float)
        style.heading(pair[0], *heading)
        _draw_bars(pair[0], _bars(chart, panel, PEAK), fine, shown, chart.looks)
        for server, value in fine.items():
            at = shown.index(str(server))
            pair[0].plot([value] * 2, [at - 0.31, at + 0.31], color=style.INK, lw=2.2, label="100 ms")
        _draw_bars(pair[1], _bars(chart, panel, PRICE), none, shown, chart.looks)
        pair[1].set_yticklabels([])
        pair[0].set_xlabel("CPU peak, % of a core")
        pair[1].set_xlabel("CPU ms per request")
    for column in (0, 1):
        widest = max(pair[column].get_xlim()[1] for pair in axes)
        for pair in axes:
            pair[column].set_xlim(0, widest)
            scales.even_axis(pair[column], "x")
    return figure


def _draw_bars(
    ax: Axes, bars: pd.DataFrame, marks: pd.Series[float], shown: list[str], looks: Mapping[str, Identity]
) -> None:
    """Draw zero-based horizontal bars, the first server on top, each with its median printed beyond its mark."""
    longest = 0.0
    for row, server in enumerate(shown):
        if server not in bars.index:
            beside(ax, 0, row, "no data", 4)
            continue
        value, low, high = (float(bars[name].astype(float)[server]) for name in ("y", "low", "high"))
        color = looks[server].color
        ax.barh(row, value, height=0.62, color=to_rgba(color, 0.4), edgecolor=color, lw=1.2)
        ax.plot([low, high], [row, row], color=style.INK, lw=1.4, label="range")
        far = max(high, float(marks.get(server, high)))
        beside(ax, far, row, style.number(value), 5)
        longest = max(longest, far)
    ax.set_xlim(0, longest * 1.42 or 1)
    style.name_rows(ax, shown, looks)


def _describe_peaks(chart: Chart) -> str:
    """Describe what a request costs, and the peaks over 1 s and 0.1 s."""
    clauses = {}
    for panel in chart.panels:
        costs = _texts(chart, panel, PRICE, " ms", rising=True)
        tops = _texts(chart, panel, PEAK, " %", rising=False)
        fine = _texts(chart, panel, FINE_PEAK, " %", rising=False)
        more = f"; over 0.1 s up to {next(iter(fine.values()))} ({next(iter(fine))})" if fine else ""
        cost, top, rest = ("cost", "cheapest first"), ("peak", "highest first"), unknown(chart.of_panel(panel), tops)
        clauses[panel] = (
            f"{said(*cost, costs)}; {said(*top, tops)}{rest}{more}",
            f"{said(*cost, costs, short=True)}; {said(*top, tops, short=True)}{rest}",
        )
    sentence = (
        "Pairs of bar charts of the server's CPU: its peak over 1 s in % of a core, with a mark for 0.1 s, and the "
        f"cost of a request in CPU ms, {scope(chart)}: {chart.statistic}."
    )
    return fit(sentence, in_loads(clauses))


def _texts(chart: Chart, panel: str, series: str, unit: str, *, rising: bool) -> dict[str, str]:
    """Return each server's value of a series as text, in the order of the values."""
    values = {str(server): float(value) for server, value in _bars(chart, panel, series)["y"].items()}
    return {server: f"{style.number(value)}{unit}" for server, value in by_value(values, rising=rising).items()}
