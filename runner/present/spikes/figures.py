"""Figure of one trial's CPU spikes: each side's CPU at full resolution, and what else happened at that moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from runner.present.chart import DASHED, Axis, Chart, ServerLoad, chart, points, seconds_axes
from runner.present.figures import clients, seconds
from runner.present.figures.cpu import usage
from runner.present.figures.seconds import FINE_S
from runner.present.look import captions, scales, style
from runner.present.look.palette import PROBE, SHADE, SHADE_EDGE, Identity, identities
from runner.present.spikes.found import LIMIT, Track
from runner.present.spikes.survey import has_samples
from runner.present.spikes.view import View
from runner.present.statistics.stats import Floats

NAME = "cpu-spikes"
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
WIDTHS = {"p50": 2.0, "p95": 1.4, "p99": 0.9}
LANES = {
    "GC cycle": "GC",
    "throttling": "throttled",
    "context switches": "switches",
    "steal": "stolen",
    "connection storm": "connects",
    "pool exhausted": "pool full",
    "generator's CPU spike": "generator",
    "database's CPU spike": "database",
}
"""Kind of event -> what its lane is called."""
LANE_IN, RIGHT_IN = 0.26, 0.75
CPU = "CPU, %"
Windows = tuple[Floats, Floats, Floats]
"""Begin, end and value of each."""
NUMBER_ROOM = 0.035
"""Share of the panel's width that a spike's number needs."""


@dataclass(frozen=True)
class _Panel:
    """One of the panels above each other: its heading, its height and what draws it."""

    name: str
    words: str
    height_in: float
    draw: Callable[[Axes], None]
    read: Callable[[float, float], str]
    """Says what the panel shows at a second and a height: where the figure can be pointed at, under the pointer."""


@chart(NAME, notebook="cpu_spikes", needs=has_samples, subject=View)
def spikes(view: View) -> Chart:
    """Return the CPU of each side of a trial, window by window, and what else happened.

    In the frame a panel is a side, x the end of a window, low and high are the baseline, and solid is false in a spike.
    """
    names = clients.names(view.case)
    rows = [
        points(
            ServerLoad(side, names[side], view.case.frame), "CPU", track.end_s, track.cpu_pct, track.baseline_pct,
            track.baseline_pct, ~_spiking(track),
        )
        for side, track in view.tracks.items()
    ]  # fmt: skip
    return Chart(
        _title(view),
        pd.concat(rows, ignore_index=True),
        Axis("seconds since the load began", "seconds since the load began", " s"),
        Axis(CPU, "CPU in % of a core", " %"),
        caption=captions.caption(view.case.tables, view.case.frame, _words(view)),
        noun="side",
        draw=lambda _: timeline(view),
        describe=lambda _: describe(view),
    )


def _spiking(track: Track) -> NDArray[np.bool_]:
    """Return which windows are in a spike."""
    found = np.zeros(len(track.end_s), dtype=bool)
    for spike in track.spikes:
        found |= (track.start_s >= spike.start_s) & (track.end_s <= spike.end_s)
    return found


@style.rc()
def timeline(view: View) -> Figure:
    """Draw CPU, requests, response times and events of a trial over one axis of time, its spikes shaded."""
    look = identities(view.case.tables.trials)[str(view.case.row["server"])]
    panels = [
        *(_cpu_panel(view, subject, look) for subject in view.tracks),
        *_rate_panel(view),
        *_latency_panel(view, look),
        _events_panel(view),
    ]
    rows = [
        style.PanelRow(
            panel_in=panel.height_in,
            heading_in=0.58 if panel.words else 0.36,
            axis_in=0.72 if panel is panels[-1] else 0.08,
            left_in=1.05,
            right_in=RIGHT_IN,
        )
        for panel in panels
    ]
    figure, grid = style.page(_title(view), captions.caption(view.case.tables, view.case.frame, _words(view)), rows)
    axes = [row[0] for row in grid]
    for ax, panel in zip(axes, panels, strict=True):
        style.heading(ax, panel.name, panel.words, 0.95, above_in=0.06)
        _shade(ax, view)
        ax.set_xlim(view.start_s, view.stop_s)
        panel.draw(ax)
        ax.format_coord = panel.read  # type: ignore[method-assign,assignment]
        ax.yaxis.set_label_coords(-0.14, 0.5)
        if ax is not axes[-1]:
            ax.tick_params(labelbottom=False)
        scales.even_axis(ax, "x")
    _number(axes[0], view)
    axes[-1].set_xlabel("seconds since the load began")
    return figure


def _title(view: View) -> str:
    counted = len(view.server.counted)
    return f"{captions.plural(counted, 'CPU spike') if counted else 'No CPU spike'} of {view.case.row['server']}"


def _words(view: View) -> str:
    row = view.case.row
    part = "" if (view.start_s, view.stop_s) == (0.0, view.duration_s) else " A part of the load."
    none = " wrk keeps no times of single requests." if row["tool"] == "wrk" else ""
    probe = "" if view.case.probe is not None else " There was no probe."
    return (
        f"Trial {view.case.trial_id}, {row['load']}.{part} Shaded: spikes of the server, numbered as in the table; "
        f"paler, those of the load's begin. Dashed: {LIMIT:g} deviations above the baseline.{none}{probe}"
    )


def _shade(ax: Axes, view: View) -> None:
    for spike in view.numbered.values():
        alpha = 0.35 if spike.settling else 1.0
        ax.axvspan(
            spike.start_s, spike.end_s, facecolor=SHADE[0], edgecolor=SHADE_EDGE[0], lw=0.6, alpha=alpha, zorder=0.5,
            label="spike",
        )  # fmt: skip


def _number(ax: Axes, view: View) -> None:
    """Write the spikes' numbers where there is room, the highest spike's first."""
    width, taken = view.stop_s - view.start_s, list[float]()
    for number, spike in sorted(view.numbered.items(), key=lambda pair: -pair[1].height_pct):
        middle = min(max((spike.start_s + spike.end_s) / 2, view.start_s), view.stop_s)
        if all(abs(middle - other) > NUMBER_ROOM * width for other in taken):
            taken.append(middle)
            ax.text(
                middle, 0.98, str(number), transform=ax.get_xaxis_transform(), ha="center", va="top",
                size=style.SMALL_PT, weight="bold",
            )  # fmt: skip


# --- CPU --------------------------------------------------------------------------------------------------


def _steps_panel(
    view: View, name: str, words: str, height_in: float, windows: Windows, unit: str, axis: str,
    more: Callable[[Axes], None], **drawn: Any,
) -> _Panel:  # fmt: skip
    """Return a panel of a value for each window (begin, end, value), zero-based; `more` draws what else it has."""
    start_s, end_s, value = windows

    def draw(ax: Axes) -> None:
        _windows(ax, *windows, **drawn)
        more(ax)
        shown = (end_s > view.start_s) & (start_s < view.stop_s)
        spare, least = (1.25, 10.0) if axis == CPU else (1.15, 1.0)
        ax.set_ylim(0, spare * max(float(value[shown].max(initial=0.0)), least))
        scales.even_axis(ax, "y")
        ax.set_ylabel(axis)

    def read(t_s: float, _: float) -> str:
        who = f"{name.partition(': ')[2]}, " if axis == CPU else ""
        place = int(np.searchsorted(start_s, t_s, side="right")) - 1
        inside = place >= 0 and t_s <= end_s[place]
        return f"{who}{t_s:.2f} s: {style.number(float(value[place]) if inside else math.nan)} {unit}"

    return _Panel(name, words, height_in, draw, read)


def _cpu_panel(view: View, subject: str, look: Identity) -> _Panel:
    track, is_server = view.tracks[subject], subject == "server"

    def more(ax: Axes) -> None:
        if math.isfinite(track.deviation_pct):
            limit, middle = track.baseline_pct + LIMIT * track.deviation_pct, (track.start_s + track.end_s) / 2
            ax.plot(middle, limit, color=style.INK, lw=0.9, ls=DASHED, label="limit")
        if is_server:
            _mark_peaks(ax, view)

    return _steps_panel(
        view, f"{subject.capitalize()}: {clients.names(view.case)[subject]}", _peak_words(view) if is_server else "",
        1.75 if is_server else 0.85, (track.start_s, track.end_s, track.cpu_pct), "% of a core", CPU, more,
        color=look.color if is_server else style.GREY, lw=1.1, label=subject,
    )  # fmt: skip


def _windows(ax: Axes, start_s: Floats, end_s: Floats, value: Floats, **drawn: Any) -> None:
    """Draw a value a window as steps; a window that is missing leaves a gap."""
    gap = np.concatenate([start_s[1:] - end_s[:-1] > 1e-3, [False]])
    x = np.column_stack([start_s, end_s, np.where(gap, end_s, np.nan)])
    y = np.column_stack([value, value, np.full(len(value), np.nan)])
    kept = np.column_stack([np.full((len(value), 2), True), gap])
    ax.plot(x[kept], y[kept], **drawn)


PEAKS = {"100ms": (0.1, "0.1 s"), "1s": (1.0, "1 s")}
"""Name in the trials table -> window in seconds, and in words."""


def _peaks(view: View) -> list[tuple[float, float, float, str]]:
    """Return the server's peaks that are known: window, its end (NaN if it cannot be placed), value and words."""
    own = view.samples[view.samples["subject"] == "server"]
    found = []
    for name, (window_s, words) in PEAKS.items():
        value = float(view.case.row[f"server_cpu_peak_{name}_pct"])
        curve = usage(own, window_s)
        curve = curve[curve["t_s"] <= view.duration_s + 1e-6]
        end = float(curve["t_s"].iloc[int(curve["cpu_pct"].argmax())]) if len(curve) else math.nan
        if math.isfinite(value):
            found.append((window_s, end, value, words))
    return found


def _peak_words(view: View) -> str:
    said = ", ".join(f"{style.number(value)} % over {words}" for _, _, value, words in _peaks(view))
    return f"peak (thick bars): {said}; 100 % is one core" if said else "100 % is one core"


def _mark_peaks(ax: Axes, view: View) -> None:
    for window_s, end, value, words in _peaks(view):
        if end - window_s < view.stop_s and end > view.start_s:
            ax.plot([end - window_s, end], [value, value], color=style.INK, lw=3, solid_capstyle="butt", label=words)


# --- requests ---------------------------------------------------------------------------------------------


def _rate_panel(view: View) -> list[_Panel]:
    """Return the panel of requests/s, in bins of 0.1 s or between two counts of the server's; none without either."""
    rows = view.case.tables.throughput
    own = rows[rows["trial_id"] == view.case.trial_id].sort_values("t_s")
    counted = view.samples[view.samples["requests"].notna()].sort_values("t_s")
    if len(own):
        # The last bin is hardly ever full.
        start, requests = own[["t_s", "requests"]].to_numpy(dtype=np.float64)[:-1].T
        name, windows = (
            f"Requests/s of {view.case.tool}, in bins of {FINE_S:g} s",
            (start, start + FINE_S, requests / FINE_S),
        )
    elif len(counted) >= 2:
        at, count = counted[["t_s", "requests"]].to_numpy(dtype=np.float64).T
        name, windows = "Requests/s, as the server counted them", (at[:-1], at[1:], np.diff(count) / np.diff(at))
    else:
        return []
    drawn = {"color": style.INK, "lw": 1.0, "label": "requests"}
    return [_steps_panel(view, name, "", 0.85, windows, "requests/s", "req/s", lambda _: None, **drawn)]


def _latency_panel(view: View, look: Identity) -> list[_Panel]:
    """Return the panel of response times: percentiles of each second and the probe's samples; none without either."""
    lines = {name: seconds.latency(q)(view.case.frame, view.case.tables) for name, q in PERCENTILES.items()}
    lines = {name: points.sort_values("t_s") for name, points in lines.items() if len(points)}
    probe = view.case.probe
    seen = None if probe is None else probe[probe["ok"] & probe["t_s"].between(view.start_s, view.stop_s)]
    if not lines and (seen is None or seen.empty):
        return []
    said = [f"{', '.join(lines)} of each second of {view.case.tool}"] if lines else []
    said += ["the probe's requests as dots"] if seen is not None and len(seen) else []

    def read(t_s: float, ms: float) -> str:
        seconds_of = {name: points[(points["t_s"] - t_s).abs() <= 0.5]["value"] for name, points in lines.items()}
        known = [f"{name} {style.number(own.iloc[0])} ms" for name, own in seconds_of.items() if len(own)]
        return f"{t_s:.2f} s: {', '.join(known) or f'the pointer is at {style.number(ms)} ms'}"

    def draw(ax: Axes) -> None:
        _draw_latency(ax, view, look, lines, seen)

    return [_Panel("Response times", "; ".join(said), 1.4, draw, read)]


def _draw_latency(
    ax: Axes, view: View, look: Identity, lines: dict[str, pd.DataFrame], probe: pd.DataFrame | None
) -> None:
    ends = []
    if probe is not None and len(probe):
        ax.plot(probe["t_s"], probe["latency_ms"], ls="", marker=".", ms=3, color=PROBE.color, label="probe")
        ends.append(("probe", PROBE, float(probe["t_s"].iloc[-1]), float(probe["latency_ms"].median())))
    for name, line in lines.items():
        ax.plot(line["t_s"], line["value"], color=look.color, lw=WIDTHS[name], marker="o", ms=3, label=name)
        shown = line[line["t_s"].between(view.start_s, view.stop_s)]
        if len(shown):
            ends.append((name, look, float(shown["t_s"].iloc[-1]), float(shown["value"].iloc[-1])))
    seconds_axes(ax, view.start_s, view.stop_s)
    ax.set_ylabel("ms (log)")
    style.label_ends(ax, ends)


# --- events -----------------------------------------------------------------------------------------------


def _events_panel(view: View) -> _Panel:
    kinds = view.events

    def draw(ax: Axes) -> None:
        for lane, kind in enumerate(kinds):
            spans = [(start, end - start) for start, end in kind.intervals]
            ax.broken_barh(spans, (lane - 0.32, 0.64), facecolor=style.GREY, edgecolor="none", label=kind.kind)
            if kind.unknown:
                ax.text(
                    0.01, lane, "not known", transform=ax.get_yaxis_transform(), va="center", size=style.SMALL_PT,
                    color=style.GREY,
                )  # fmt: skip
        ax.set_ylim(len(kinds) - 0.5, -0.5)
        ax.set_yticks(range(len(kinds)), [LANES.get(kind.kind, kind.kind) for kind in kinds])
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")

    def read(t_s: float, _: float) -> str:
        now = [kind.kind for kind in kinds if any(start <= t_s <= end for start, end in kind.intervals)]
        return f"{t_s:.2f} s: {', '.join(now) or 'none of these'}"

    return _Panel("What else happened", "", LANE_IN * len(kinds), draw, read)


def describe(view: View) -> str:
    """Return what the figure shows, for a reader who does not see it."""
    spikes = view.numbered.values()
    highest = max(spikes, key=lambda spike: spike.height_pct, default=None)
    said = (
        f"CPU of {', '.join(view.tracks)} from {view.start_s:.1f} to {view.stop_s:.1f} s of trial "
        f"{view.case.trial_id}, with requests, response times and events below on the same axis of time."
    )
    if highest is None:
        return f"{said} There is no spike of the server."
    return (
        f"{said} {captions.plural(len(spikes), 'spike')} of the server; the highest, "
        f"{style.number(highest.height_pct)} % of a core above its baseline, from {highest.start_s:.2f} to "
        f"{highest.end_s:.2f} s."
    )
