"""Figures of processor time in the k6 cells: over time, peaks, and per request."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from runner.present import captions, style
from runner.present.frames import Tables
from runner.present.palette import Identity, identities
from runner.present.stats import sliding_mean, spread
from runner.present.throughput import bin_width

PEAK_WINDOW_S = 1.0
Samples = dict[tuple[str, str], pd.DataFrame]


def usage(samples: pd.DataFrame, window_s: float) -> pd.DataFrame:
    """Return the CPU use over trailing windows inside the load: t_s (the end), cpu_pct (100 is one core busy).

    `samples` are the rows of the resources table of one subject in one trial.
    """
    rows = samples[samples["cpu_pct"].notna()].sort_values("t_s")
    t_s, cpu_pct = sliding_mean(rows["t_s"], rows["dt_s"], rows["cpu_pct"], window_s)
    points = pd.DataFrame({"t_s": t_s, "cpu_pct": cpu_pct})
    return points[points["t_s"] - window_s >= -1e-6]


def samples_of(trials: pd.DataFrame, resources: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Return the resource samples of `trials` by (trial_id, subject), server and generator only.

    A pair that was not sampled has an empty frame.
    """
    chosen = resources[resources["trial_id"].isin(trials["trial_id"])]
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
    looks = identities(tables.trials)
    cells = [
        (server, load, own)
        for server in looks
        for load in dict.fromkeys(trials["load"])
        if not (own := trials[(trials["server"] == server) & (trials["load"] == load)]).empty
    ]
    columns = 1 if len(cells) <= 3 else 2
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), "Lines: every trial, as means over the windows that the axis names."),
        key="Coloured: the server. Grey, dashed: the load generator. Black bar: the server's peak, its highest 1 s. "
        "100 % is one core busy.",
        rows=-(-len(cells) // columns),
        columns=columns,
        panel_in=1.6 if columns == 1 else 1.4,
        left_in=0.75 if columns == 1 else 0.7,
        right_in=0.2,
        axis_in=0.62,
    )
    samples = samples_of(trials, tables.resources)
    curves = [_curves(own, samples) for _, _, own in cells]
    top = max([100.0, *(c["cpu_pct"].max() for pair in curves for side in pair.values() for c in side if len(c))])
    for ax, (server, load, own), pair in zip(axes, cells, curves, strict=False):
        style.heading(ax, style.short(server, 24), load, 0.6)
        _draw_cell(ax, pair, looks[server], top)
        _mark_peak(ax, own, samples)
        ax.set_xlabel(f"seconds (windows of {bin_width(own):g} s)")
    for ax in axes[len(cells) :]:
        ax.remove()
    return figure


def _curves(trials: pd.DataFrame, samples: Samples) -> dict[str, list[pd.DataFrame]]:
    width = bin_width(trials)
    return {of: [usage(samples[trial, of], width) for trial in trials["trial_id"]] for of in ("generator", "server")}


def _draw_cell(ax: Axes, pair: dict[str, list[pd.DataFrame]], look: Identity, top: float) -> None:
    for subject, curves in pair.items():
        drawn: dict[str, Any] = (
            {"color": look.color, "lw": 1.3} if subject == "server" else {"color": "#9A9A9A", "lw": 1.1, "ls": "--"}
        )
        for curve in curves:
            ax.plot(curve["t_s"], curve["cpu_pct"], alpha=0.85, label=subject, **drawn)
    ax.set_ylim(0, top * 1.3)
    ends = [float(curve["t_s"].max()) for curves in pair.values() for curve in curves if len(curve)]
    ax.set_xlim(0, max(ends, default=1.0))
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_ylabel("CPU, %")


def _mark_peak(ax: Axes, trials: pd.DataFrame, samples: Samples) -> None:
    """Mark the highest 1 s window of the trial with the highest peak; the value is the trial table's."""
    windows = [(trial, usage(samples[trial, "server"], PEAK_WINDOW_S)) for trial in trials["trial_id"]]
    windows = [(trial, window) for trial, window in windows if not window.empty]
    if not windows:
        words = f"no full {PEAK_WINDOW_S:g} s was sampled"
        ax.text(0.03, 0.9, words, transform=ax.transAxes, size=style.SMALL_PT, va="top")
        return
    trial, window = max(windows, key=lambda pair: float(pair[1]["cpu_pct"].max()))
    end = float(window["t_s"].iloc[int(window["cpu_pct"].argmax())])
    listed = float(trials.loc[trials["trial_id"] == trial, "server_cpu_peak_1s_pct"].iloc[0])
    peak = float(window["cpu_pct"].max()) if pd.isna(listed) else listed
    ax.plot([end - PEAK_WINDOW_S, end], [peak, peak], color=style.INK, lw=3, solid_capstyle="butt", label="peak")
    left, right = ax.get_xlim()
    place = (end - PEAK_WINDOW_S / 2 - left) / (right - left)
    ax.annotate(
        f"peak {style.number(peak)} % over {PEAK_WINDOW_S:g} s",
        (min(max(place, 0.0), 1.0), peak),
        (0, 4),
        xycoords=ax.get_yaxis_transform(),
        textcoords="offset points",
        size=style.SMALL_PT,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
        ha="left" if place < 0.3 else "right" if place > 0.7 else "center",
    )


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
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), words),
        key="Bar: highest 1 s of the server, its number at the right. Upright mark: highest 0.1 s (median).",
        rows=len(loads),
        columns=2,
        panel_in=0.25 + 0.36 * len(shown),
        heading_in=0.56,
    )
    for row, load in enumerate(loads):
        of_load = trials[trials["load"] == load]
        pair = axes[2 * row : 2 * row + 2]
        _share_names(pair, style.label_room(shown) - 0.1)
        style.heading(pair[0], of_load["workload"].iloc[0], captions.load_heading(of_load, "CPU"))
        _draw_bars(pair[0], of_load, "server_cpu_peak_1s_pct", shown, looks)
        _draw_marks(pair[0], of_load, shown)
        _draw_bars(pair[1], of_load, "server_cpu_ms_per_request", shown, looks)
        pair[1].set_yticklabels([])
        pair[0].set_xlabel("CPU peak, % of a core")
        pair[1].set_xlabel("CPU ms per request")
    for column in (0, 1):
        widest = max(ax.get_xlim()[1] for ax in axes[column::2])
        for ax in axes[column::2]:
            ax.set_xlim(0, widest)
    return figure


def _share_names(pair: list[Axes], names_in: float, gap_in: float = 0.45) -> None:
    """Give both panels of a row the room that the names, written once, leave."""
    width = (style.WIDTH_IN - names_in - 2 * gap_in) / 2
    for place, ax in enumerate(pair):
        box = ax.get_position()
        left = names_in + place * (width + gap_in)
        ax.set_position((left / style.WIDTH_IN, box.y0, width / style.WIDTH_IN, box.height))


def _draw_bars(ax: Axes, trials: pd.DataFrame, column: str, shown: list[str], looks: dict[str, Identity]) -> None:
    """Draw zero-based horizontal bars, the first server on top, each with its median printed."""
    longest = 0.0
    for row, server in enumerate(shown):
        of = spread(trials.loc[trials["server"] == server, column])
        if not of.n:
            ax.annotate("no data", (0, row), (4, 0), textcoords="offset points", size=style.SMALL_PT, va="center")
            continue
        ax.barh(row, of.median, height=0.62, color=looks[server].color, alpha=0.55)
        ax.plot([of.low, of.high], [row, row], color=style.INK, lw=1.4, label="range")
        far = of.high
        if column == "server_cpu_peak_1s_pct":
            fine = spread(trials.loc[trials["server"] == server, "server_cpu_peak_100ms_pct"])
            far = max(far, fine.median) if fine.n else far
        ax.annotate(
            style.number(of.median), (far, row), (5, 0), textcoords="offset points", size=style.SMALL_PT, va="center"
        )
        longest = max(longest, far)
    ax.set_xlim(0, longest * 1.36 or 1)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_yticks(range(len(shown)), [style.short(name) for name in shown])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    for label, server in zip(ax.get_yticklabels(), shown, strict=True):
        label.set(color=looks[server].ink, size=style.TEXT_PT)


def _draw_marks(ax: Axes, trials: pd.DataFrame, shown: list[str]) -> None:
    for row, server in enumerate(shown):
        fine = spread(trials.loc[trials["server"] == server, "server_cpu_peak_100ms_pct"])
        if fine.n:
            ax.plot([fine.median] * 2, [row - 0.31, row + 0.31], color=style.INK, lw=2.2, label="100 ms")
