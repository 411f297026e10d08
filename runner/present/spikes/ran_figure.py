"""Make the figure of a timeline.

It shows the server's CPU use according to the sampler, and what the server ran according to perf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.drawing import DASHED
from runner.present.chart.value import POINT_COLUMNS, Chart, chart, empty
from runner.present.figures.seconds import CPU, TIME
from runner.present.frames import Tables
from runner.present.look import captions, style
from runner.present.look.palette import SHADE, SHADE_EDGE, identities
from runner.present.spikes.found import LIMIT
from runner.present.spikes.ran import Ran, Timeline, in_order, read_timelines, what_ran
from runner.present.spikes.ran_words import ran_words, short_function
from runner.present.statistics.stats import Floats

NO_TIMELINE = (
    "This run has no timeline. `bench run --profile` records one for a load that is not divided "
    "into slices, lasts for a fixed time of 5 s or more, and does not change its rate."
)
RECORDED = "perf recorded this load without a break, so the load is in no comparison."
KEY = (
    "Shaded: spikes. Below: CPU use by perf's samples, with a lane for a spike's function and all "
    "that it calls, and a lane for each kind of work. All lanes have the same scale."
)
MOST_LANES = 6
LANE_IN = 0.42
LABEL_IN = 2.85
LETTERS = 28
"""The name of a lane has at most this many characters."""


@dataclass(frozen=True, eq=False)
class _Lane:
    """A horizontal strip of the figure, which shows the CPU use of a kind of work or a function.

    `cpu_pct` contains the CPU use in each window.
    """

    name: str
    cpu_pct: Floats


def timelines_of(tables: Tables) -> list[Timeline]:
    """Return the timelines of a run, with the timeline that has the highest spike first."""
    return [] if tables.folder is None else in_order(read_timelines(tables.folder))


def has_timelines(tables: Tables) -> bool:
    """Return True if a run has a timeline."""
    return bool(timelines_of(tables))


@chart("cpu-spikes-ran", notebook="cpu_spikes", needs=has_timelines, table="What a spike ran")
def ran(tables: Tables) -> Chart:
    """Return the chart of the timeline that has the highest spike.

    In the chart's frame, `panel` is `CPU`, a kind of work or a function. `x` is the end of a
    window, and `y` is the CPU use in this window, in % of a core.
    """
    found = timelines_of(tables)
    if not found:
        return empty("What a spike ran", NO_TIMELINE)
    timeline = found[0]
    spikes = what_ran(timeline)
    lanes = _lanes(timeline, spikes)
    said = " ".join(map(ran_words, spikes)) or "There is no spike."
    return Chart(
        _title(timeline, spikes),
        _frame(timeline, lanes),
        TIME,
        CPU,
        looks=identities(tables.trials),
        caption=captions.caption(tables, RECORDED),
        key=KEY,
        noun="part",
        draw=lambda made: _draw(made, timeline, spikes, lanes),
        describe=lambda _: f"CPU of {timeline.server} over {timeline.duration_s:.0f} s. {said}",
    )


def _title(timeline: Timeline, spikes: Sequence[Ran]) -> str:
    """Return the title of the chart.

    If a function stands out in a spike (see `ran.py`), the title names this function. If there are
    several such spikes, the title names the function of the spike with the most additional CPU
    time. If there is no such spike, the title gives the number of spikes.
    """
    named = [each for each in spikes if each.function is not None and each.function.stands_out]
    if named:
        top = max(named, key=lambda each: each.more_ms)
        assert top.function is not None
        name = short_function(top.function.name, 40)
        return f"{timeline.server}: the spike at {top.spike.start_s:.1f} s ran {name}"
    if spikes:
        return f"{timeline.server}: {captions.plural(len(spikes), 'spike')} of the usual work"
    return f"{timeline.server}: no spike in {timeline.track.settled_s:.0f} recorded seconds"


def _lanes(timeline: Timeline, spikes: Sequence[Ran]) -> list[_Lane]:
    """Return the lanes of the figure, which are at most `MOST_LANES`.

    The first lanes show functions that stand out in a spike. The other lanes show the kinds of work
    with most CPU time.
    """
    samples = timeline.samples
    functions = {
        each.function.name: None
        for each in sorted(spikes, key=lambda one: -one.more_ms)
        if each.function is not None and each.function.stands_out
    }
    named = list(functions)[: MOST_LANES // 2]
    kinds = samples.groupby("category")["cpu_ms"].sum().sort_values(ascending=False)
    lanes = [
        _Lane(short_function(name, LETTERS), _cpu_pct(timeline, samples[_runs(samples, name)]))
        for name in named
    ]
    lanes += [
        _Lane(str(kind), _cpu_pct(timeline, samples[samples["category"].eq(kind)]))
        for kind in kinds.index[: MOST_LANES - len(named)]
    ]
    return lanes


def _runs(samples: pd.DataFrame, function: str) -> pd.Series[bool]:
    """Return a mask of the samples whose call stack contains a function."""
    return (";" + samples["stack"] + ";").str.contains(f";{function};", regex=False)


def _cpu_pct(timeline: Timeline, samples: pd.DataFrame) -> Floats:
    """Return the CPU use in each window of the sampler according to `samples`, in % of a core."""
    windows = timeline.track.windows
    edges = np.append(windows.start_s, windows.end_s[-1:])
    used_ms, _ = np.histogram(samples["t_s"], bins=edges, weights=samples["cpu_ms"])
    return np.asarray(used_ms / (windows.end_s - windows.start_s) / 10.0)


def _frame(timeline: Timeline, lanes: Sequence[_Lane]) -> pd.DataFrame:
    end_s = timeline.track.windows.end_s
    parts = [("CPU", timeline.track.windows.value), *((each.name, each.cpu_pct) for each in lanes)]
    rows = [
        pd.DataFrame({"panel": name, "x": end_s, "y": values, "low": np.nan, "high": np.nan})
        for name, values in parts
    ]
    frame = pd.concat(rows, ignore_index=True)
    frame = frame.assign(server=timeline.server, series="CPU", solid=True)
    return frame[list(POINT_COLUMNS)]


def _draw(made: Chart, timeline: Timeline, spikes: Sequence[Ran], lanes: Sequence[_Lane]) -> Figure:
    top = style.PanelRow(1, 1.75, 0.36, 0.1, LABEL_IN, 0.6)
    below = style.PanelRow(1, LANE_IN * max(1, len(lanes)), 0.36, 0.72, LABEL_IN, 0.6)
    figure, ((cpu,), (work,)) = style.page(made.title, made.caption, [top, below], key=made.key)
    color = made.looks[timeline.server].color if timeline.server in made.looks else style.INK
    style.heading(cpu, "CPU in each window of the sampler, 100 % is one core")
    style.heading(work, "What ran, in % of a core")
    for ax in (cpu, work):
        _shade(ax, spikes)
        ax.set_xlim(0, timeline.duration_s)
        style.even_axis(ax, "x")
    _draw_cpu(cpu, timeline, spikes, color)
    cpu.set_ylabel(made.y.label)
    cpu.tick_params(labelbottom=False)
    _draw_lanes(work, timeline, lanes, color)
    work.set_xlabel(made.x.label)
    return figure


def _shade(ax: Axes, spikes: Sequence[Ran]) -> None:
    shade: Any = {"facecolor": SHADE[0], "edgecolor": SHADE_EDGE[0], "lw": 0.6, "zorder": 0.5}
    for each in spikes:
        ax.axvspan(each.spike.start_s, each.spike.end_s, **shade)


def _draw_cpu(ax: Axes, timeline: Timeline, spikes: Sequence[Ran], color: str) -> None:
    track = timeline.track
    start_s, end_s, cpu_pct = track.windows
    steps = np.column_stack([start_s, end_s]).ravel(), np.repeat(cpu_pct, 2)
    ax.plot(*steps, color=color, lw=1.1, label=timeline.server)
    limit = track.baseline + LIMIT * track.deviation
    if np.isfinite(limit).any():
        ax.plot((start_s + end_s) / 2, limit, color=style.INK, lw=0.9, ls=DASHED, label="limit")
    highest = max(10.0, float(cpu_pct.max(initial=0.0)), float(np.nanmax([0.0, *limit])))
    ax.set_ylim(0, 1.2 * highest)
    style.even_axis(ax, "y")
    for each in spikes:
        aligned: Any = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "top"}
        middle_s = (each.spike.start_s + each.spike.end_s) / 2
        ax.text(middle_s, 0.98, str(each.number), size=style.SMALL_PT, weight="bold", **aligned)


def _draw_lanes(ax: Axes, timeline: Timeline, lanes: Sequence[_Lane], color: str) -> None:
    """Draw the CPU use of each lane as steps, and write the maximum beside the lane.

    All lanes have the same scale.
    """
    start_s, end_s, _ = timeline.track.windows
    highest_pct = max((float(each.cpu_pct.max(initial=0.0)) for each in lanes), default=0.0) or 1.0
    for place, lane in enumerate(lanes):
        base = place + 0.4
        heights = np.repeat(base - 0.8 * lane.cpu_pct / highest_pct, 2)
        at_s = np.column_stack([start_s, end_s]).ravel()
        ax.fill_between(at_s, base, heights, facecolor=color, edgecolor=color, lw=0.4)
        own_pct = float(lane.cpu_pct.max(initial=0.0))
        aligned: Any = {"transform": ax.get_yaxis_transform(), "va": "center", "clip_on": False}
        ax.text(1.01, place, f"{own_pct:.0f} %", size=style.SMALL_PT, **aligned)
    ax.set_ylim(max(1, len(lanes)) - 0.5, -0.5)
    ax.set_yticks(range(len(lanes)), [each.name for each in lanes])
    ax.tick_params(axis="y", length=0, labelsize=style.SMALL_PT)
    ax.grid(visible=False, axis="y")
