"""Make the figure that shows the CPU use of several servers under one long load."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.model import CALIBRATION
from runner.present.chart.value import Chart, ServerLoad, chart, empty, points
from runner.present.figures.seconds import CPU, TIME
from runner.present.frames import Tables, has_no_quota, sealed_trials
from runner.present.look import captions, style
from runner.present.look.numbers import number
from runner.present.look.palette import SHADE, SHADE_EDGE, Identity, identities
from runner.present.spikes.coincidence import Events
from runner.present.spikes.view import View, view

LONG_S = 20.0
"""The figure shows only a load that lasts at least this many seconds."""
NO_LONG_TRIAL = (
    f"No trial of this run has a load of {LONG_S:g} s or more at an offered rate on a whole core."
)
PAUSES = "GC cycle"
MOST_SERVERS = 4


def long_trials(tables: Tables) -> pd.DataFrame:
    """Return one trial of each server under the first long load at a constant offered rate.

    Under this load each server may use whole cores, so that no quota limits a peak. The load has
    no slices, so that no peak is due to the start of a slice. At most MOST_SERVERS trials are
    returned. The frame is empty if the run has no such load.
    """
    sampled = tables.resources.loc[tables.resources["subject"] == "server", "trial_id"]
    trials = sealed_trials(tables.trials)
    long = trials[
        (trials["load_model"] == "open")
        & has_no_quota(trials)
        & (trials["duration_s"] >= LONG_S - 0.5)
        & (trials["tier"] != CALIBRATION)
        & ~(trials["slices_kept"] > 1)
        & ~(trials["steps"] > 1)
        & trials["trial_id"].isin(set(sampled))
    ].sort_values(["load_order", "trial_order"])
    first = long[long["load"] == long["load"].iloc[0]] if len(long) else long
    return first.drop_duplicates("server").head(MOST_SERVERS)


def has_long_trials(tables: Tables) -> bool:
    """Return True if a run has a load that this figure can show (see `long_trials`)."""
    return not long_trials(tables).empty


@chart("cpu-side-by-side", notebook="cpu_spikes", needs=has_long_trials)
def side_by_side(tables: Tables) -> Chart:
    """Return the chart of several servers' CPU use, window by window, under one long load.

    In the chart's frame, `panel` is the load, `x` is the end of a window, `low` and `high` are the
    baseline, and `solid` is False within a spike.
    """
    trials = long_trials(tables)
    if trials.empty:
        return empty("CPU of several servers side by side", NO_LONG_TRIAL)
    shown = {row["server"]: view(tables, row["trial_id"], "") for _, row in trials.iterrows()}
    looks = identities(tables.trials)
    curves = []
    for server, each in shown.items():
        track = each.server
        solid = np.ones(len(track.windows.end_s), dtype=bool)
        for first, last in track.ranges:
            solid[first : last + 1] = False
        cell = ServerLoad(str(trials["load"].iloc[0]), str(server), each.case.frame)
        curves.append(
            points(
                cell,
                "CPU",
                track.windows.end_s,
                track.windows.value,
                track.baseline,
                track.baseline,
                solid,
            )
        )
    words = (
        "One trial of each server, with its CPU spikes shaded: several windows in a row above the "
        "server's usual use."
    )
    sentences = _sentences(shown)
    return Chart(
        _title(shown),
        pd.concat(curves, ignore_index=True),
        TIME,
        CPU,
        looks=looks,
        caption=captions.caption(tables, words),
        noun="load",
        draw=lambda chart: _draw(chart, shown),
        describe=lambda _: sentences,
    )


def _title(shown: dict[Any, View]) -> str:
    """Return a title that says how often each server spiked.

    For example: `gin spiked 3 times in 24 s, axum never`.
    """
    counts = {str(server): len(each.server.counted) for server, each in shown.items()}
    seconds = f"{min(each.server.settled_s for each in shown.values()):.0f}"
    if not any(counts.values()):
        return f"No CPU spike of {captions.joined(list(counts))} in {seconds} s"
    (most, count), *others = sorted(counts.items(), key=lambda pair: -pair[1])
    rest = [f"{server} {_times(spikes)}" for server, spikes in others]
    return ", ".join([f"{most} spiked {_times(count)} in {seconds} s", *rest])


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _sentences(shown: dict[Any, View]) -> str:
    """Return a sentence for each server with its CPU use, spikes and garbage collections."""
    found = []
    for server, each in shown.items():
        row = each.case.row
        collections = next(kind for kind in each.events if kind.kind == PAUSES)
        reported = (
            "it reports no garbage collector"
            if collections.unknown
            else captions.plural(collections.count, "garbage collection")
        )
        found.append(
            f"{server}: mean {number(row['server_cpu_mean_pct'])} % of a core, peak over 0.1 s "
            f"{number(row['server_cpu_peak_100ms_pct'])} %, "
            f"{captions.plural(len(each.server.counted), 'spike')}, {reported}."
        )
    return " ".join(found)


def _draw(chart: Chart, shown: dict[Any, View]) -> Figure:
    """Draw the CPU use of all servers in one panel.

    Below this panel, draw a horizontal strip for each server, which shows the pauses of its garbage
    collector. A server without known pauses has no strip.
    """
    pauses = {
        str(server): kind
        for server, each in shown.items()
        for kind in each.events
        if kind.kind == PAUSES and kind.amounts_ms is not None
    }
    room = style.label_room([str(server) for server in shown])
    cpu = style.PanelRow(1, 3.0, 0.36, 0.1 if pauses else 0.72, 0.95, room)
    lanes = replace(cpu, panel_in=0.32 * len(pauses), axis_in=0.72)
    rows = [cpu, lanes] if pauses else [cpu]
    figure, grid = style.page(chart.title, chart.caption, rows)
    longest_s = max(each.duration_s for each in shown.values())
    (top,) = grid[0]
    _draw_cpu(top, chart, shown, longest_s)
    if pauses:
        top.tick_params(labelbottom=False)
        _draw_pauses(grid[1][0], pauses, chart.looks, longest_s)
    grid[-1][0].set_xlabel(chart.x.label)
    return figure


def _draw_cpu(ax: Axes, chart: Chart, shown: dict[Any, View], longest_s: float) -> None:
    shade: Any = {"facecolor": SHADE[0], "edgecolor": SHADE_EDGE[0], "lw": 0.6, "zorder": 0.5}
    ends = []
    highest = 10.0
    for server, each in shown.items():
        look = chart.looks[str(server)]
        _, end_s, cpu_pct = each.server.windows
        for spike in each.server.counted:
            ax.axvspan(spike.start_s, spike.end_s, **shade)
        ax.step(end_s, cpu_pct, where="pre", color=look.color, lw=0.9, label=str(server))
        highest = max(highest, float(cpu_pct.max(initial=0.0)))
        ends.append((str(server), look, float(end_s[-1]), float(np.median(cpu_pct))))
    ax.set_xlim(0, longest_s)
    ax.set_ylim(0, 1.1 * highest)
    style.even_axis(ax, "x")
    style.even_axis(ax, "y")
    ax.set_ylabel(chart.y.label)
    style.heading(ax, "CPU in each window of the sampler, 100 % is one core")
    style.label_ends(ax, ends)


def _draw_pauses(ax: Axes, pauses: dict[str, Events], looks: Any, longest_s: float) -> None:
    """Draw the pauses of each garbage collector as bars; the height of a bar is the pause time."""
    for lane, (server, kind) in enumerate(pauses.items()):
        amounts_ms = kind.amounts_ms
        if amounts_ms is None:
            continue
        highest_ms = float(amounts_ms.value.max(initial=0.0))
        look: Identity = looks[server]
        for start_s, end_s, value_ms in zip(*amounts_ms, strict=True):
            if value_ms > 0:
                height = 0.8 * value_ms / highest_ms
                ax.broken_barh(
                    [(start_s, end_s - start_s)], (lane + 0.4 - height, height), color=look.color
                )
        aligned: Any = {"transform": ax.get_yaxis_transform(), "va": "center", "clip_on": False}
        ax.text(1.01, lane, f"{number(highest_ms)} ms", size=style.SMALL_PT, **aligned)
    ax.set_xlim(0, longest_s)
    ax.set_ylim(len(pauses) - 0.5, -0.5)
    ax.set_yticks(range(len(pauses)), [f"{server} GC" for server in pauses])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    style.even_axis(ax, "x")
