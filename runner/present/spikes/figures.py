"""Make the figure of one trial's CPU spikes.

It shows the CPU use of server, generator and database in every window, and the events of the trial.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.drawing import DASHED, seconds_axes
from runner.present.chart.value import Chart, ServerLoad, chart, points
from runner.present.figures import clients, seconds
from runner.present.figures.seconds import CPU, FINE_S, TIME, usage
from runner.present.look import captions, style
from runner.present.look.numbers import number
from runner.present.look.palette import PROBE, SHADE, SHADE_EDGE, Identity, identities
from runner.present.spikes import cause_words
from runner.present.spikes.coincidence import Events
from runner.present.spikes.found import LIMIT, Windows
from runner.present.spikes.view import View, has_samples
from runner.present.spikes.words import peak_words

PERCENTILES = {"p50": (0.5, 2.0), "p95": (0.95, 1.4), "p99": (0.99, 0.9)}
"""Percentiles of a second's response times, each with its quantile and the width of its line."""
LANES = {
    "GC cycle": "GC pauses",
    "waiting for a CPU": "waited",
    "steal": "stolen",
    "throttling": "throttled",
    "stopped": "stopped",
    "other programs' CPU": "others",
    "context switches": "switches",
    "connection storm": "connects",
    "pool exhausted": "pool full",
    "generator's CPU spike": "generator",
    "database's CPU spike": "database",
}
"""Names of the lanes in the figure, by the kind of event that a lane shows.

A lane is a horizontal strip in the lowest panel, which shows the events of one kind over time.
"""
NUMBER_ROOM = 0.035  # numbers of spikes are at least this share of the panel's width apart


@dataclass(frozen=True)
class _Panel:
    """A panel of the figure. `words` are printed below its name, and `label` beside its y axis."""

    name: str
    words: str
    label: str
    height_in: float
    draw: Callable[[Axes], None]
    read: Callable[[float, float], str]
    """Function that returns the values at a position in the panel, as text.

    The arguments of the function are the coordinates of the position: the time in seconds, and the
    value on the y axis.
    """


@chart("cpu-spikes", notebook="cpu_spikes", needs=has_samples, subject=View)
def spikes(view: View) -> Chart:
    """Return the chart of the CPU use of server, generator and database in a trial, with events.

    In the chart's frame, each row is a window of the sampler. `panel` is the program, `x` is the
    end of the window, `low` and `high` are the baseline, and `solid` is False within a spike.
    """
    names = clients.names(view.case)
    curves = []
    for side, track in view.tracks.items():
        _, end_s, cpu_pct = track.windows
        solid = np.ones(len(end_s), dtype=bool)
        for first, last in track.ranges:
            solid[first : last + 1] = False
        cell = ServerLoad(side, names[side], view.case.frame)
        curves.append(points(cell, "CPU", end_s, cpu_pct, track.baseline, track.baseline, solid))
    spike = "A numbered spike" if view.numbered else "A spike"
    words = (
        f"{spike} of trial {view.case.trial_id} is {view.server.fewest} windows or more in a row "
        f"above the dashed line, {LIMIT:g} deviations above the baseline."
    )
    frame = pd.concat(curves, ignore_index=True)
    title = cause_words.title(view)
    caption = captions.caption(view.case.tables, words)
    text = _description(view)
    draw = partial(_timeline, view=view)
    return Chart(
        title, frame, TIME, CPU, caption=caption, noun="side", draw=draw, describe=lambda _: text
    )


def _timeline(chart: Chart, view: View) -> Figure:
    """Draw CPU use, requests, response times and events of a trial over one time axis.

    The server's spikes are shaded.
    """
    look = identities(view.case.tables.trials)[str(view.case.row["server"])]
    cpu = (_cpu_panel(view, subject, look) for subject in view.tracks)
    panels = [*cpu, *_rate_panel(view), *_latency_panel(view, look), _events_panel(view.events)]
    rows = [
        style.PanelRow(1, panel.height_in, 0.58 if panel.words else 0.36, 0.08, 1.05, 0.9)
        for panel in panels
    ]
    rows[-1] = replace(rows[-1], axis_in=0.72)
    figure, grid = style.page(chart.title, chart.caption, rows)
    shade: Any = {
        "facecolor": SHADE[0],
        "edgecolor": SHADE_EDGE[0],
        "lw": 0.6,
        "zorder": 0.5,
        "label": "spike",
    }
    for (ax,), panel in zip(grid, panels, strict=True):
        style.heading(ax, panel.name, panel.words, 0.95, above_in=0.06)
        for spike in view.numbered.values():
            ax.axvspan(spike.start_s, spike.end_s, alpha=0.35 if spike.settling else 1.0, **shade)
        ax.set_xlim(view.start_s, view.stop_s)
        panel.draw(ax)
        ax.format_coord = panel.read  # type: ignore[method-assign,assignment]
        ax.set_ylabel(panel.label)
        ax.yaxis.set_label_coords(-0.14, 0.5)
        ax.tick_params(labelbottom=panel is panels[-1])
        style.even_axis(ax, "x")
    top = grid[0][0]
    taken = list[float]()
    # Print the number of each spike. If two numbers would be too close to each other, print only
    # the number of the higher spike.
    for place, spike in sorted(view.numbered.items(), key=lambda pair: -pair[1].height_pct):
        middle = min(max((spike.start_s + spike.end_s) / 2, view.start_s), view.stop_s)
        if all(abs(middle - other) > NUMBER_ROOM * (view.stop_s - view.start_s) for other in taken):
            taken.append(middle)
            aligned: Any = {"transform": top.get_xaxis_transform(), "ha": "center", "va": "top"}
            top.text(middle, 0.98, str(place), size=style.SMALL_PT, weight="bold", **aligned)
    grid[-1][0].set_xlabel(chart.x.label)
    return figure


def _cpu_panel(view: View, subject: str, look: Identity) -> _Panel:
    track = view.tracks[subject]
    name = clients.names(view.case)[subject]
    is_server = subject == "server"
    heading = f"{subject.capitalize()}: {name}"

    def draw(ax: Axes) -> None:
        color = look.color if is_server else style.GREY
        _draw_windows(ax, view, track.windows, 1.25, 10.0, color=color, lw=1.1, label=subject)
        if math.isfinite(track.deviation):
            middle = (track.windows.start_s + track.windows.end_s) / 2
            limit = track.baseline + LIMIT * track.deviation
            ax.plot(middle, limit, color=style.INK, lw=0.9, ls=DASHED, label="limit")
            shown = limit[(middle >= view.start_s) & (middle <= view.stop_s)]
            ax.set_ylim(0, max(ax.get_ylim()[1], 1.1 * float(shown.max(initial=0.0))))
            style.even_axis(ax, "y")
        for value, window_s in view.peaks if is_server else ():
            curve = usage(
                view.samples[view.samples["subject"] == "server"], window_s, view.duration_s + 1e-6
            )
            ends = curve.nlargest(1, "cpu_pct")["t_s"]
            bar: Any = {
                "color": style.INK,
                "lw": 3,
                "solid_capstyle": "butt",
                "label": f"{window_s:g} s",
            }
            for end in ends[
                ends.between(view.start_s, view.stop_s + window_s, inclusive="neither")
            ]:
                ax.plot([end - window_s, end], [value] * 2, **bar)

    def read(t_s: float, _: float) -> str:
        return f"{name}, {_at(track.windows, t_s)} % of a core"

    peaks = f"peak (thick bars): {peak_words(view)}; " if view.peaks else ""
    words = f"{peaks}100 % is one core" if is_server else ""
    height_in = 1.75 if is_server else 0.85
    return _Panel(heading, words, "CPU, %", height_in, draw, read)


def _draw_windows(
    ax: Axes, view: View, windows: Windows, spare: float, least: float, **drawn: Any
) -> None:
    """Draw the value of each window as steps; a missing window leaves a gap.

    The y axis begins at 0. It ends at `spare` times the highest value, or at `spare` times `least`
    if all values are smaller than `least`.
    """
    start_s, end_s, value = windows
    gaps = 2 * np.flatnonzero(start_s[1:] - end_s[:-1] > 1e-3) + 2
    steps = np.column_stack([start_s, end_s]).ravel(), np.repeat(value, 2)
    ax.plot(*(np.insert(side, gaps, np.nan) for side in steps), **drawn)
    shown = value[(end_s > view.start_s) & (start_s < view.stop_s)]
    ax.set_ylim(0, spare * max(float(shown.max(initial=0.0)), least))
    style.even_axis(ax, "y")


def _at(windows: Windows, t_s: float) -> str:
    """Return the time `t_s`, and the value of the window at this time, as text."""
    start_s, end_s, value = windows
    place = int(np.searchsorted(start_s, t_s, side="right")) - 1
    inside = place >= 0 and t_s <= end_s[place]
    return f"{t_s:.2f} s: {number(float(value[place]) if inside else math.nan)}"


def _rate_panel(view: View) -> Iterator[_Panel]:
    """Yield the panel of requests/s.

    The rate is taken from the generator's bins of 0.1 s. If the trial has no such bins, the rate is
    taken from the server's own counts. Yield nothing if the trial has neither bins nor counts.
    """
    bins = view.case.tables.throughput
    bins = bins[bins["trial_id"] == view.case.trial_id].sort_values("t_s")
    counted = view.samples[view.samples["requests"].notna()].sort_values("t_s")
    if len(bins):
        # Leave out the last bin, which is rarely full.
        start_s, requests = bins[["t_s", "requests"]].to_numpy(dtype=np.float64)[:-1].T
        windows = Windows(start_s, start_s + FINE_S, requests / FINE_S)
        name = f"Requests/s of {view.case.tool}, in bins of {FINE_S:g} s"
    elif len(counted) >= 2:
        at_s, count = counted[["t_s", "requests"]].to_numpy(dtype=np.float64).T
        windows = Windows(at_s[:-1], at_s[1:], np.diff(count) / np.diff(at_s))
        name = "Requests/s, as the server counted them"
    else:
        return
    yield _Panel(
        name,
        "",
        "req/s",
        0.85,
        draw=lambda ax: _draw_windows(
            ax, view, windows, 1.15, 1.0, color=style.INK, lw=1.0, label="requests"
        ),
        read=lambda t_s, _: f"{_at(windows, t_s)} requests/s",
    )


def _latency_panel(view: View, look: Identity) -> Iterator[_Panel]:
    """Yield the panel of response times: percentiles of each second, and the probe's requests.

    Yield nothing if the trial has neither percentiles nor requests of a probe.
    """
    found = {
        name: seconds.latency(view.case.frame, view.case.tables, q)
        for name, (q, _) in PERCENTILES.items()
    }
    lines = {name: line.sort_values("t_s") for name, line in found.items() if len(line)}
    probe = (
        view.case.probe
        if view.case.probe is not None
        else pd.DataFrame(columns=["ok", "t_s", "latency_ms"])
    )
    probe = probe[probe["ok"].astype(bool) & probe["t_s"].between(view.start_s, view.stop_s)]

    def draw(ax: Axes) -> None:
        ends = []
        if len(probe):
            ax.plot(
                probe["t_s"],
                probe["latency_ms"],
                ls="",
                marker=".",
                ms=3,
                color=PROBE.color,
                label="probe",
            )
            ends.append(
                ("probe", PROBE, float(probe["t_s"].iloc[-1]), float(probe["latency_ms"].median()))
            )
        for name, line in lines.items():
            width = PERCENTILES[name][1]
            ax.plot(
                line["t_s"], line["value"], color=look.color, lw=width, marker="o", ms=3, label=name
            )
            last = line[line["t_s"].between(view.start_s, view.stop_s)].tail(1)
            ends += [
                (name, look, float(t_s), float(ms)) for t_s, ms in last[["t_s", "value"]].to_numpy()
            ]
        seconds_axes(ax, view.start_s, view.stop_s)
        style.label_ends(ax, ends)

    def read(t_s: float, ms: float) -> str:
        near = {
            name: line.loc[(line["t_s"] - t_s).abs() <= 0.5, "value"]
            for name, line in lines.items()
        }
        known = [
            f"{name} {number(values.iloc[0])} ms" for name, values in near.items() if len(values)
        ]
        return f"{t_s:.2f} s: {', '.join(known) or f'the pointer is at {number(ms)} ms'}"

    said = [f"{', '.join(lines)} of each second of {view.case.tool}"] if lines else []
    said += ["the probe's requests as dots"] if len(probe) else []
    if said:
        yield _Panel("Response times", "; ".join(said), "ms (log)", 1.4, draw, read)


def _events_panel(every: Sequence[Events]) -> _Panel:
    """Return the panel with a lane for each known kind of event.

    If a kind of event has amounts, such as lost time, its lane shows the amounts, and the highest
    amount is printed beside the lane.
    """
    kinds = [kind for kind in every if not kind.unknown]

    def draw(ax: Axes) -> None:
        for lane, kind in enumerate(kinds):
            if kind.amounts_ms is None:
                spans = [(start, end - start) for start, end in kind.intervals]
                ax.broken_barh(
                    spans,
                    (lane - 0.32, 0.64),
                    facecolor=style.GREY,
                    edgecolor="none",
                    label=kind.kind,
                )
            else:
                _draw_amounts(ax, lane, kind.kind, kind.amounts_ms)
        ax.set_ylim(max(1, len(kinds)) - 0.5, -0.5)
        ax.set_yticks(range(len(kinds)), [LANES[kind.kind] for kind in kinds])
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")

    def read(t_s: float, height: float) -> str:
        lane = min(max(round(height), 0), len(kinds) - 1)
        amounts_ms = kinds[lane].amounts_ms
        if amounts_ms is not None:
            return f"{kinds[lane].kind}, {_at(amounts_ms, t_s)} ms"
        now = [
            kind.kind for kind in kinds if any(start <= t_s <= end for start, end in kind.intervals)
        ]
        return f"{t_s:.2f} s: {', '.join(now) or 'none of these'}"

    words = "on the right, the highest amount in a window"
    return _Panel("What else happened", words, "", 0.28 * len(kinds), draw, read)


def _draw_amounts(ax: Axes, lane: int, kind: str, amounts_ms: Windows) -> None:
    """Draw the amount of each window as a bar in a lane.

    Write the highest amount beside the lane.
    """
    highest_ms = float(amounts_ms.value.max(initial=0.0))
    shares = amounts_ms.value / highest_ms if highest_ms > 0 else amounts_ms.value
    for start_s, end_s, share in zip(amounts_ms.start_s, amounts_ms.end_s, shares, strict=True):
        if share > 0:
            ax.broken_barh(
                [(start_s, end_s - start_s)],
                (lane + 0.36 - 0.72 * share, 0.72 * share),
                facecolor=style.GREY,
                edgecolor="none",
                label=kind,
            )
    aligned: Any = {"transform": ax.get_yaxis_transform(), "va": "center", "clip_on": False}
    ax.text(1.01, lane, f"{number(highest_ms)} ms", size=style.SMALL_PT, **aligned)


def _description(view: View) -> str:
    said = (
        f"CPU of {', '.join(view.tracks)} from {view.start_s:.1f} to {view.stop_s:.1f} s of trial "
        f"{view.case.trial_id}, with requests, response times and events below on the same axis "
        "of time."
    )
    if not view.numbered:
        return f"{said} There is no spike of the server."
    highest = max(view.numbered.values(), key=lambda spike: spike.height_pct)
    return (
        f"{said} {captions.plural(len(view.numbered), 'spike')} of the server; the highest, "
        f"{number(highest.height_pct)} % of a core above its baseline, from {highest.start_s:.2f} "
        f"to {highest.end_s:.2f} s."
    )
