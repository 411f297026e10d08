"""Figures of one trial: what two clients saw of a server at the same moment, and who used the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.present.case import Case, probed
from runner.present.chart import DASHED, Axis, Chart, ServerLoad, chart, empty, points, seconds_axes
from runner.present.chart.drawing import ridges
from runner.present.chart.sentences import ends
from runner.present.figures import seconds
from runner.present.figures.cpu import usage
from runner.present.figures.latency import MEDIANS_IN, density_points
from runner.present.figures.seconds import bin_width
from runner.present.look import captions, scales, style
from runner.present.look.palette import PROBE as PROBE_LOOK
from runner.present.look.palette import Identity, identities

BIN = math.log(1.01) * 10
"""Width of a bin of the density in logarithms: 10.5 %."""
PROBE = "probe"
SHARE, TIMES = "share of the requests", "over time"


def names(case: Case) -> dict[str, str]:
    """Return what each side of a trial is called."""
    return {"server": str(case.row["server"]), "generator": case.tool, "database": "PostgreSQL"}


def _look(case: Case) -> Identity:
    return identities(case.tables.trials)[str(case.row["server"])]


def _curve(case: Case, panel: str, name: str, series: str, x: ArrayLike, y: ArrayLike, **more: float) -> pd.DataFrame:
    return points(ServerLoad(panel, name, case.frame), series, x, y, **more)


# --- two clients ------------------------------------------------------------------------------------------


@chart("verdict-two-clients", notebook="verdict", needs=probed, table="What another client saw", subject=Case)
def two_clients(case: Case) -> Chart:
    """Return the response times of generator and probe: how they spread, and over the time of the load.

    The column `server` holds the client; `median` is that of all its requests.
    """
    tool, histogram = case.tool, case.tables.latency[case.tables.latency["trial_id"] == case.trial_id]
    if histogram.empty:
        reason = "The latency table has no requests of this trial."
        return empty(f"What {tool} saw", f"what {tool} saw", reason)
    timed, probe = bool(histogram["second"].notna().any()), case.probe
    answered = probe[probe["ok"]] if probe is not None and probe["ok"].any() else None
    seen = answered is not None
    curves = _spread(case, histogram, answered) + (_over_time(case, answered) if timed else [])
    kind = captions.load_heading(case.frame, "response time")
    headings = {SHARE: (f"{case.row['server']}, {case.row['workload']}", kind)}
    return Chart(
        f"One server, one moment: {tool} and another client" if seen else f"What {tool} saw of the server",
        pd.concat(curves, ignore_index=True),
        Axis("latency, ms (log scale)", "response time in ms", " ms", log=True),
        Axis("share, %", "the share of a client's requests"),
        {tool: _look(case), PROBE: PROBE_LOOK},
        captions.caption(case.tables, case.frame, _words(tool, seen=seen, timed=timed)),
        headings=headings | ({TIMES: ("Over time", "")} if timed else {}),
        draw=lambda chart: _draw_clients(chart, float(case.row["duration_s"])),
        describe=lambda chart: _describe_clients(chart, case),
    )


def _words(tool: str, *, seen: bool, timed: bool) -> str:
    dots = ", each request of the probe as a dot" if seen else ""
    parts = {
        "Share of a client's requests in bins 10.5 % wide, to one scale; upright mark and number: its median.": True,
        f"Over time: {tool}'s median of each second as a line{dots}.": timed,
        "There was no probe.": not seen,
    }
    return " ".join(part for part, said in parts.items() if said)


def _spread(case: Case, histogram: pd.DataFrame, answered: pd.DataFrame | None) -> list[pd.DataFrame]:
    """Return for each client the middles of the bins that have requests, their share in each, and its median."""
    fine = density_points(case.frame, histogram).sort_values("ms")
    # Two fine bins of the density make one of these.
    share = fine.groupby(np.floor(np.log(fine["ms"]) / BIN))["share_pct"].sum()
    shares = {case.tool: (share, float(case.row["latency_p50_ms"]))}
    if answered is not None:
        ms = answered["latency_ms"]
        counts = np.floor(np.log(ms) / BIN).value_counts().sort_index()
        shares[PROBE] = counts * 100 / len(ms), float(ms.median())
    return [
        _curve(case, SHARE, name, SHARE, np.exp((share.index + 0.5) * BIN), share, median=median)
        for name, (share, median) in shares.items()
    ]


def _over_time(case: Case, answered: pd.DataFrame | None) -> list[pd.DataFrame]:
    """Return the generator's median of each second, and each request of the probe."""
    medians = seconds.latency(0.5)(case.frame, case.tables).sort_values("t_s")
    found = [_curve(case, TIMES, case.tool, "median", medians["t_s"], medians["value"], median=math.nan)]
    if answered is not None:
        ms = answered["latency_ms"]
        found.append(_curve(case, TIMES, PROBE, "request", answered["t_s"], ms, median=float(ms.median())))
    return found


def _draw_clients(chart: Chart, duration_s: float) -> Figure:
    curves = chart.of_panel(SHARE)
    right_in = max(style.label_room(list(curves)), MEDIANS_IN)
    below = [style.PanelRow(1, 1.9, 0.34, right_in=right_in)] * (TIMES in chart.headings)
    figure, panels = style.page(chart.title, chart.caption, [style.PanelRow(1, 1.9, right_in=right_in), *below])
    for (ax,), heading in zip(panels, chart.headings.values(), strict=True):
        style.heading(ax, *heading)
    ridges(panels[0][0], curves, chart.looks, BIN, 0.78)
    panels[0][0].set_xlabel(chart.x.label)
    if TIMES in chart.headings:
        _draw_seconds(panels[1][0], chart, duration_s)
    return figure


def _draw_seconds(ax: Axes, chart: Chart, duration_s: float) -> None:
    ends = []
    for name, rows in chart.of_panel(TIMES).items():
        known, look = rows.dropna(subset="y"), chart.looks[name]
        dots: Any = {"marker": ".", "ms": 3, "ls": ""} if name == PROBE else {"marker": "o", "ms": 3.5, "ls": "-"}
        ax.plot(known["x"], known["y"], color=look.color, label=name, **dots)
        if len(known):
            y = known["median"].iloc[0] if name == PROBE else known["y"].iloc[-1]
            ends.append((name, look, float(known["x"].iloc[-1]), float(y)))
    seconds_axes(ax, 0, duration_s)
    ax.set_xlabel("seconds since the load began")
    scales.even_axis(ax, "x")
    ax.set_ylabel("latency, ms (log)")
    style.label_ends(ax, ends)


def _describe_clients(chart: Chart, case: Case) -> str:
    """Describe both medians, what is between them, and their course."""
    tool, course = case.tool, ""
    if TIMES in chart.headings:
        course = (
            f" Below it, the response time in ms (up, logarithmic) by seconds (across): {tool}'s median of each second "
            "as a line, the probe's requests as dots."
        )
    head = (
        f"Of one trial, {case.row['server']} under “{case.row['load']}”: ridge plot of the share of a client's "
        f"requests (up) by response time in ms (across, logarithmic), a ridge a client.{course}"
    )
    medians = {name: float(rows["median"].iloc[0]) for name, rows in chart.of_panel(SHARE).items()}
    ours, other = medians[tool], medians.get(PROBE)
    said = f"{tool}'s median is {style.number(ours)} ms"
    if other is None:
        said += f". {'There was no probe' if case.probe is None else 'The probe got no answer'}."
    else:
        said += f", the probe's {style.number(other)} ms: {tool}'s is {style.number(ours / other)} times as long."
    curves = {name: rows["y"].dropna() for name, rows in chart.of_panel(TIMES).items()}
    known = [
        f"{len(ms):,} requests of the probe took {ends(ms)} ms"
        if name == PROBE
        else f"{name}'s medians of single seconds are {ends(ms)} ms"
        for name, ms in curves.items()
        if len(ms)
    ]
    times = f"Over time {', '.join(known)}." if known else ""
    return " ".join(part for part in (head, said, times, f"Verdict: {case.row['verdict']}.") if part)


# --- CPU --------------------------------------------------------------------------------------------------


@chart("verdict-cpu", notebook="verdict", needs=probed, table="The verdict", subject=Case)
def cpu(case: Case) -> Chart:
    """Return the CPU of each side over time, beside what it was given (column `given`); a panel is a side."""
    title = "CPU of both sides, beside what each was given"
    samples = case.tables.resources[case.tables.resources["trial_id"] == case.trial_id]
    width, called, curves = bin_width(case.frame), names(case), {}
    for side, name in called.items():
        own = usage(samples[samples["subject"] == side], width)
        own = own[own["t_s"] <= float(case.row["duration_s"])]
        if not own.empty:
            curves[side] = _curve(case, side, name, "CPU", own["t_s"], own["cpu_pct"], given=case.given(side))
    if not curves:
        reason = "The CPU of this trial was not sampled for long enough."
        return empty(title, "the CPU of both sides", reason)
    words = (
        f"Lines: means over windows of {width:g} s. Dashed: the CPU that the side was given; 100 % is one core busy."
    )
    return Chart(
        title,
        pd.concat(curves.values(), ignore_index=True),
        Axis("seconds since the load began", "seconds since the load began", " s"),
        Axis("CPU, %", "CPU in % of a core", " %"),
        {called[side]: _look(case) if side == "server" else PROBE_LOOK for side in curves},
        captions.caption(case.tables, case.frame, words),
        headings={side: (f"{side.capitalize()}: {called[side]}", _used(case, side)) for side in curves},
        noun="side",
        draw=lambda chart: _draw_cpu(chart, float(case.row["duration_s"])),
        describe=lambda chart: _describe_cpu(chart, case),
    )


def _draw_cpu(chart: Chart, duration_s: float) -> Figure:
    # Only the lowest panel names its axis.
    axes_in = [0.4] * (len(chart.headings) - 1) + [0.72]
    figure, panels = style.page(
        chart.title, chart.caption, [style.PanelRow(1, 1.25, axis_in=axis_in, left_in=0.85) for axis_in in axes_in]
    )
    for (ax,), (side, heading) in zip(panels, chart.headings.items(), strict=True):
        ((name, rows),) = chart.of_panel(side).items()
        color, given = chart.looks[name].color, float(rows["given"].iloc[0])
        style.heading(ax, *heading, 0.75)
        ax.plot(rows["x"], rows["y"], color=color, lw=1.5, label=side)
        ax.fill_between(rows["x"], 0, rows["y"], color=color, alpha=0.2, lw=0)
        if math.isfinite(given):
            ax.axhline(given, color=style.INK, lw=1.0, ls=DASHED, label="given")
        scales.limit(ax, "y", 0, 1.12 * float(np.nanmax([rows["y"].max(), given, 1.0])))
        scales.limit(ax, "x", 0, duration_s)
        ax.set_ylabel(chart.y.label)
    panels[-1][0].set_xlabel(chart.x.label)
    return figure


def _mean(case: Case, side: str) -> float:
    return float(case.row[f"{side}_cpu_mean_pct"])


def _used(case: Case, side: str) -> str:
    used, given = _mean(case, side), case.given(side)
    if not math.isfinite(used):
        return "mean not known"
    mean = f"{style.number(used)} % on the average"
    return f"{mean}, of {given:.0f} % given" if math.isfinite(given) else mean


def _describe_cpu(chart: Chart, case: Case) -> str:
    """Describe what each side used of what it was given, the fullest first."""
    full = {side: _mean(case, side) / case.given(side) for side in chart.panels}
    ordered = sorted(full, key=lambda side: -full[side] if math.isfinite(full[side]) else math.inf)
    words = captions.joined([_side(chart, side, case) for side in ordered])
    return (
        f"Line chart of the CPU of {captions.joined(chart.panels)} in % of a core (up) by seconds since the load began "
        f"(across), each beside what it was given, dashed, of one trial, {case.row['server']} under "
        f"“{case.row['load']}”. The fullest first: {words}. Verdict: {case.row['verdict']}."
    )


def _side(chart: Chart, side: str, case: Case) -> str:
    """Return `the generator k6 used 99.0 % on the average of the 100 % given (97.8 to 99.9 over time)`."""
    ((name, rows),) = chart.of_panel(side).items()
    mean, given = _mean(case, side), case.given(side)
    used = (
        f"used {style.number(mean)} % on the average"
        if math.isfinite(mean)
        else "used, of which the mean is not known,"
    )
    share = f" of the {given:.0f} % given" if math.isfinite(given) else ""
    return f"the {side} {name} {used}{share} ({ends(rows['y'])} over time)"
