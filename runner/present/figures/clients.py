"""Make the figures of one trial: the response times that two clients measured, and CPU use."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.present.chart.drawing import DASHED, ridges, seconds_axes
from runner.present.chart.sentences import ends
from runner.present.chart.value import Axis, Chart, ServerLoad, chart, empty, points, tidy
from runner.present.figures import seconds
from runner.present.figures.closed_loads import MEDIANS_IN, density_of
from runner.present.frames import Case, probed
from runner.present.look import captions, palette, style
from runner.present.look.numbers import number

BIN = math.log(1.01) * 10  # e^BIN is 1.105, the ratio of a bin's upper border to its lower border
PROBE = "probe"
SHARE = "share of the requests"
TIMES = "over time"


def names(case: Case) -> dict[str, str]:
    """Return the names of a trial's server, load generator and database, by role."""
    return {"server": str(case.row["server"]), "generator": case.tool, "database": "PostgreSQL"}


def _curve(
    case: Case, panel: str, name: str, x: ArrayLike, y: ArrayLike, **more: float
) -> pd.DataFrame:
    return points(ServerLoad(panel, name, case.frame), panel, x, y, **more)


@chart(
    "verdict-two-clients",
    notebook="verdict",
    needs=probed,
    table="What another client saw",
    subject=Case,
)
def two_clients(case: Case) -> Chart:
    """Return the chart of the response times that the generator and the probe measured.

    The first panel shows the distribution of response times. The second panel shows response times
    over time. It is left out if the latency table does not split this trial into seconds, as with
    wrk. In the chart's frame, the column `server` contains the name of the client. The column
    `median` contains the median response time of all requests of this client, but it is NaN for
    the generator's points over time.
    """
    tool = case.tool
    histogram = case.tables.latency[case.tables.latency["trial_id"] == case.trial_id]
    if histogram.empty:
        return empty(f"What {tool} saw", "The latency table has no requests of this trial.")
    timed = bool(histogram["second"].notna().any())
    seen = pd.DataFrame(columns=["t_s", "latency_ms"])
    if case.probe is not None:
        seen = case.probe[case.probe["ok"]]
    generators = seconds.latency(case.frame, case.tables, 0.5).sort_values("t_s")
    shares = density_of(case.frame, histogram, BIN)
    median = float(case.row["latency_p50_ms"])
    curves = [_curve(case, SHARE, tool, shares.index, shares, median=median)]
    over_time = [_curve(case, TIMES, tool, generators["t_s"], generators["value"], median=math.nan)]
    if len(seen):
        ms = seen["latency_ms"]
        shares = density_of(case.frame, seen.assign(lower_ms=ms, upper_ms=ms, count=1), BIN)
        median = float(ms.median())
        curves.append(_curve(case, SHARE, PROBE, shares.index, shares, median=median))
        over_time.append(_curve(case, TIMES, PROBE, seen["t_s"], ms, median=median))
    title = f"What {tool} saw of the server"
    if len(seen):
        theirs = number(float(case.row["latency_p50_ms"]))
        title = f"{tool} said {theirs} ms, a second client {number(median)} ms"
    words = (
        "Height is the share of a client's requests that took so long, and the upright mark its "
        "median."
    )
    x = Axis("latency, ms (log scale)", "response time in ms", " ms", log=True)
    y = Axis("share, %", "the share of a client's requests")
    frame = tidy(curves + over_time * timed)
    looks = {
        tool: palette.identities(case.tables.trials)[str(case.row["server"])],
        PROBE: palette.PROBE,
    }
    caption = captions.caption(case.tables, words)
    heading = (
        f"{case.row['server']}, {case.row['workload']}",
        f"{captions.load_words(case.frame)}: what each client measured",
    )
    dots = ", and each request of the probe as a dot" if len(seen) else ""
    over_time_words = f"{tool}'s median of each second as a line{dots}"
    headings = {SHARE: heading} | ({TIMES: ("Over time", over_time_words)} if timed else {})
    draw = partial(_draw_clients, case=case)
    describe = partial(_describe_clients, case=case)
    return Chart(
        title, frame, x, y, looks, caption, headings=headings, draw=draw, describe=describe
    )


def _draw_clients(chart: Chart, case: Case) -> Figure:
    row = style.PanelRow(
        1, 1.9, right_in=max(style.label_room(list(chart.of_panel(SHARE))), MEDIANS_IN)
    )
    below = [style.PanelRow(1, 1.9, 0.34, right_in=row.right_in)] * (TIMES in chart.headings)
    figure, panels = style.page(chart.title, chart.caption, [row, *below])
    for (ax,), heading in zip(panels, chart.headings.values(), strict=True):
        style.heading(ax, *heading)
    ridges(panels[0][0], chart, SHARE, BIN, 0.78)
    if TIMES not in chart.headings:
        return figure
    ax = panels[1][0]
    labels = []
    for name, rows in chart.of_panel(TIMES).items():
        known = rows.dropna(subset="y")
        look = chart.looks[name]
        dots: Any = (
            {"marker": ".", "ms": 3, "ls": ""}
            if name == PROBE
            else {"marker": "o", "ms": 3.5, "ls": "-"}
        )
        ax.plot(known["x"], known["y"], color=look.color, label=name, **dots)
        if len(known):
            y = known["median"].iloc[0] if name == PROBE else known["y"].iloc[-1]
            labels.append((name, look, float(known["x"].iloc[-1]), float(y)))
    seconds_axes(ax, 0, float(case.row["duration_s"]))
    ax.set_xlabel(seconds.SECONDS)
    style.even_axis(ax, "x")
    ax.set_ylabel("latency, ms (log)")
    style.label_ends(ax, labels)
    return figure


def _describe_clients(chart: Chart, case: Case) -> str:
    """Return the description of the chart.

    The description gives the median response time of each client, the ratio of the two medians, and
    the response times over time. If the probe has no median, the description says why.
    """
    medians = {name: float(rows["median"].iloc[0]) for name, rows in chart.of_panel(SHARE).items()}
    said = f"{case.tool}'s median is {number(medians[case.tool])} ms"
    if PROBE in medians:
        times = medians[case.tool] / medians[PROBE]
        said += (
            f", the probe's {number(medians[PROBE])} ms: {case.tool}'s is {number(times)} times as "
            "long."
        )
    else:
        said += f". {'There was no probe' if case.probe is None else 'The probe got no answer'}."
    curves = {name: rows["y"].dropna() for name, rows in chart.of_panel(TIMES).items()}
    known = [
        f"{len(ms):,} requests of the probe took {ends(ms)} ms"
        if name == PROBE
        else f"{name}'s medians of single seconds are {ends(ms)} ms"
        for name, ms in curves.items()
        if len(ms)
    ]
    course = (
        f" Below it, response times (up, logarithmic) by seconds (across): {'; '.join(known)}."
        if known
        else ""
    )
    return (
        f"Of one trial, {case.row['server']} under “{case.row['load']}”: ridge plot of the share "
        "of a client's requests (up) by response time in ms (across, logarithmic), a ridge for "
        f"each client. {said}{course} Verdict: {case.row['verdict']}."
    )


@chart("verdict-cpu", notebook="verdict", needs=probed, table="The verdict", subject=Case)
def cpu(case: Case) -> Chart:
    """Return the chart of CPU use over time, with a panel each for server, generator and database.

    The column `given` of the chart's frame contains the CPU that the panel's program could use, in
    % of a core. A dashed line shows this value.
    """
    title = "CPU of both sides, beside what each was given"
    width = seconds.bin_width(case.frame)
    samples = case.tables.resources
    called = names(case)
    looks = palette.identities(case.tables.trials)
    samples = samples[samples["trial_id"] == case.trial_id]
    curves = {}
    for side, name in called.items():
        usage = seconds.usage(
            samples[samples["subject"] == side], width, float(case.row["duration_s"])
        )
        if len(usage):
            curves[side] = _curve(
                case, side, name, usage["t_s"], usage["cpu_pct"], given=case.given(side)
            )
    if not curves:
        return empty(title, "The CPU of this trial was not sampled for long enough.")
    said = (
        f"Lines are means over windows of {width:g} s, and dashed lines the CPU that the side was "
        "given."
    )
    headings = {}
    for side in curves:
        average = float(case.row[f"{side}_cpu_mean_pct"])
        given = case.given(side)
        mean = f"{number(average)} % on the average" if math.isfinite(average) else "mean not known"
        words = f"{mean}, of {given:.0f} % given" if math.isfinite(given) else mean
        headings[side] = (f"{side.capitalize()}: {called[side]}", words)
    frame = tidy(curves.values())
    panels = captions.joined(list(curves))
    ranges = frame.groupby("panel")["y"].apply(ends)
    used = "; ".join(
        f"{name}: {words} ({ranges[side]} over time)" for side, (name, words) in headings.items()
    )
    text = (
        f"Line chart of the CPU of {panels} in % of a core (up) by {seconds.SECONDS} (across), "
        f"each beside what it was given, dashed, of one trial, {case.row['server']} under "
        f"“{case.row['load']}”. {used}. Verdict: {case.row['verdict']}."
    )
    shown = {
        called[side]: looks[called[side]] if side == "server" else palette.PROBE for side in curves
    }
    draw = partial(_draw_cpu, case=case)
    caption = captions.caption(case.tables, said)
    x = seconds.TIME
    y = seconds.CPU
    return Chart(
        title,
        frame,
        x,
        y,
        shown,
        caption,
        headings=headings,
        noun="side",
        draw=draw,
        describe=lambda _: text,
    )


def _draw_cpu(chart: Chart, case: Case) -> Figure:
    # Label only the lowest panel's x axis.
    axes_in = [0.4] * (len(chart.headings) - 1) + [0.72]
    figure, panels = style.page(
        chart.title,
        chart.caption,
        [style.PanelRow(1, 1.25, axis_in=axis_in, left_in=0.85) for axis_in in axes_in],
    )
    for (ax,), (side, heading) in zip(panels, chart.headings.items(), strict=True):
        ((name, rows),) = chart.of_panel(side).items()
        color = chart.looks[name].color
        given = float(rows["given"].iloc[0])
        style.heading(ax, *heading, 0.75)
        ax.plot(rows["x"], rows["y"], color=color, lw=1.5, label=side)
        ax.fill_between(rows["x"], 0, rows["y"], color=color, alpha=0.2, lw=0)
        if math.isfinite(given):
            ax.axhline(given, color=style.INK, lw=1.0, ls=DASHED, label="given")
        style.limit(ax, "y", 0, 1.12 * float(np.nanmax([rows["y"].max(), given, 1.0])))
        style.limit(ax, "x", 0, float(case.row["duration_s"]))
        ax.set_ylabel(chart.y.label)
    panels[-1][0].set_xlabel(chart.x.label)
    return figure
