"""Figures of processor time in the k6 cells: over time, peaks, and per request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from runner.present.figures import multiples
from runner.present.figures.seconds import bin_width
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, identities
from runner.present.statistics.stats import sliding_mean, spread

PEAK_WINDOW_S = 1.0
Samples = dict[tuple[str, str], pd.DataFrame]
Sides = dict[str, list[pd.DataFrame]]


def usage(samples: pd.DataFrame, window_s: float) -> pd.DataFrame:
    """Return the CPU use over trailing windows inside the load: t_s (the end), cpu_pct (100 is one core busy).

    `samples` are the rows of the resources table of one subject in one trial.
    """
    rows = samples[samples["cpu_pct"].notna()].sort_values("t_s")
    t_s, cpu_pct = sliding_mean(rows["t_s"], rows["dt_s"], rows["cpu_pct"], window_s)
    points = pd.DataFrame({"t_s": t_s, "cpu_pct": cpu_pct})
    return points[points["t_s"] - window_s >= -1e-6]


def samples_of(trials: pd.DataFrame, resources: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Return the resource samples of `trials` by (trial_id, subject), server and generator only, up to the load's end.

    A pair that was not sampled has an empty frame. What the sampler saw while the generator ended is no load's.
    """
    lasted_s = dict(zip(trials["trial_id"].astype(str), trials["duration_s"], strict=True))
    chosen = resources[resources["trial_id"].isin(trials["trial_id"])]
    chosen = chosen[chosen["t_s"] <= chosen["trial_id"].astype(str).map(lasted_s).astype(float)]
    found = {(str(trial), str(of)): rows for (trial, of), rows in chosen.groupby(["trial_id", "subject"])}
    pairs = [(str(trial), subject) for trial in trials["trial_id"] for subject in ("server", "generator")]
    return {pair: found.get(pair, resources.iloc[:0]) for pair in pairs}


@style.styled
def over_time(tables: Tables) -> Figure:
    """Draw CPU over time of server and generator, a panel a cell, with the highest 1 s window marked."""
    title = "CPU over time"
    trials = tables.sealed("k6")
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    samples = samples_of(trials, tables.resources)
    cells = {load: _cells(trials[trials["load"] == load], looks, samples) for load in loads}
    sides = [side for of_load in cells.values() for pair in of_load.values() for side in pair.values()]
    top = max([100.0, *(curve["cpu_pct"].max() for side in sides for curve in side if len(curve))])
    return multiples.compose(
        title,
        captions.caption(tables, tables.of("k6"), "Lines: every trial, as means over the windows that the axis names."),
        [_part(trials[trials["load"] == load], cells[load], looks, samples, top) for load in loads],
        key="Coloured: the server. Grey, dashed: the load generator. Thick bar and number: the server's peak, its "
        f"highest {PEAK_WINDOW_S:g} s. 100 % is one core busy.",
    )


def _cells(trials: pd.DataFrame, looks: dict[str, Identity], samples: Samples) -> dict[str, Sides]:
    """Return the curves of one load: server -> subject -> a curve a trial."""
    width = bin_width(trials)
    return {
        server: {of: [usage(samples[trial, of], width) for trial in own] for of in ("generator", "server")}
        for server in looks
        if len(own := trials.loc[trials["server"] == server, "trial_id"])
    }


def _part(
    trials: pd.DataFrame, cells: dict[str, Sides], looks: dict[str, Identity], samples: Samples, top: float
) -> multiples.Curves:
    """Return the panels of one load."""
    sides = [side for pair in cells.values() for side in pair.values()]
    longest = max((float(curve["t_s"].max()) for side in sides for curve in side if len(curve)), default=1.0)

    def draw(ax: Axes, server: str) -> None:
        looks_of: dict[str, dict[str, Any]] = {
            "generator": {"color": style.GREY, "lw": 1.0, "ls": "--"},
            "server": {"color": looks[server].color, "lw": 1.3},
        }
        for subject, curves in cells[server].items():
            for curve in curves:
                ax.plot(curve["t_s"], curve["cpu_pct"], label=subject, **looks_of[subject])
        _mark_peak(ax, trials[trials["server"] == server], samples)

    def finish(ax: Axes) -> None:
        ax.set_ylim(0, top * 1.34)
        ax.set_xlim(0, longest)
        scales.even_axis(ax, "x")
        scales.even_axis(ax, "y")

    return multiples.Curves(
        name=str(trials["workload"].iloc[0]),
        words=captions.load_heading(trials, "CPU"),
        looks=looks,
        lines=dict.fromkeys(cells, (np.empty(0), np.empty(0))),
        draw=draw,
        finish=finish,
        xlabel=f"seconds since the load began (windows of {bin_width(trials):g} s)",
        ylabel="CPU, %",
        left_in=0.8,
        few=0,
    )


def highest_second(trials: pd.DataFrame, samples: Samples) -> tuple[float, float] | None:
    """Return the end (s) and the value (%) of the server's highest 1 s window, of the trial with the highest peak.

    The value is the trial table's. None where no trial has a full window.
    """
    windows = [(trial, usage(samples[trial, "server"], PEAK_WINDOW_S)) for trial in trials["trial_id"]]
    windows = [(trial, window) for trial, window in windows if not window.empty]
    if not windows:
        return None
    trial, window = max(windows, key=lambda pair: float(pair[1]["cpu_pct"].max()))
    listed = float(trials.loc[trials["trial_id"] == trial, "server_cpu_peak_1s_pct"].iloc[0])
    peak = float(window["cpu_pct"].max()) if pd.isna(listed) else listed
    return float(window["t_s"].iloc[int(window["cpu_pct"].argmax())]), peak


def _mark_peak(ax: Axes, trials: pd.DataFrame, samples: Samples) -> None:
    """Mark the highest second of a cell, with its value."""
    found = highest_second(trials, samples)
    words = f"no full {PEAK_WINDOW_S:g} s sampled"
    if found is not None:
        end, peak = found
        ax.plot([end - PEAK_WINDOW_S, end], [peak, peak], color=style.INK, lw=3, solid_capstyle="butt", label="peak")
        words = f"peak {style.number(peak)} %"
    # Above all curves: the axis has room there.
    ax.text(0.02, 0.98, words, transform=ax.transAxes, size=style.SMALL_PT, va="top")


@style.styled
def peaks(tables: Tables) -> Figure:
    """Draw the server's CPU peak in 1 s (bar) and 0.1 s (mark), and beside it CPU milliseconds per request."""
    title = "CPU: the peak, and the price of a request"
    trials = tables.sealed("k6")
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    shown = [name for name in looks if name in set(trials["server"])]
    words = "Bars: median of the trials; whiskers: minimum to maximum."
    row = style.Row(2, 0.25 + 0.36 * len(shown), left_in=style.label_room(shown) - 0.1, right_in=0.3, gap_in=0.45)
    figure, axes = style.page(
        title,
        captions.caption(tables, tables.of("k6"), words),
        [row] * len(loads),
        key="Bar: highest 1 s of the server, its number at the right. Upright mark: highest 0.1 s (median).",
    )
    for load, pair in zip(loads, axes, strict=True):
        of_load = trials[trials["load"] == load]
        style.heading(pair[0], of_load["workload"].iloc[0], captions.load_heading(of_load, "CPU"))
        _draw_bars(pair[0], of_load, "server_cpu_peak_1s_pct", shown, looks)
        _draw_marks(pair[0], of_load, shown)
        _draw_bars(pair[1], of_load, "server_cpu_ms_per_request", shown, looks)
        pair[1].set_yticklabels([])
        pair[0].set_xlabel("CPU peak, % of a core")
        pair[1].set_xlabel("CPU ms per request")
    for column in (0, 1):
        widest = max(pair[column].get_xlim()[1] for pair in axes)
        for pair in axes:
            pair[column].set_xlim(0, widest)
            scales.even_axis(pair[column], "x")
    return figure


def _draw_bars(ax: Axes, trials: pd.DataFrame, column: str, shown: list[str], looks: dict[str, Identity]) -> None:
    """Draw zero-based horizontal bars, the first server on top, each with its median printed."""
    longest = 0.0
    for row, server in enumerate(shown):
        of = spread(trials.loc[trials["server"] == server, column])
        if not of.n:
            ax.annotate("no data", (0, row), (4, 0), textcoords="offset points", size=style.SMALL_PT, va="center")
            continue
        color = looks[server].color
        ax.barh(row, of.median, height=0.62, color=to_rgba(color, 0.4), edgecolor=color, lw=1.2)
        ax.plot([of.low, of.high], [row, row], color=style.INK, lw=1.4, label="range")
        far = of.high
        if column == "server_cpu_peak_1s_pct":
            fine = spread(trials.loc[trials["server"] == server, "server_cpu_peak_100ms_pct"])
            far = max(far, fine.median) if fine.n else far
        ax.annotate(
            style.number(of.median), (far, row), (5, 0), textcoords="offset points", size=style.SMALL_PT, va="center"
        )
        longest = max(longest, far)
    ax.set_xlim(0, longest * 1.42 or 1)
    style.name_rows(ax, shown, looks)


def _draw_marks(ax: Axes, trials: pd.DataFrame, shown: list[str]) -> None:
    for row, server in enumerate(shown):
        fine = spread(trials.loc[trials["server"] == server, "server_cpu_peak_100ms_pct"])
        if fine.n:
            ax.plot([fine.median] * 2, [row - 0.31, row + 0.31], color=style.INK, lw=2.2, label="100 ms")
