"""Figures of one trial: what two clients saw of a server at the same moment, and who used the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.case import Case, probed
from runner.present.chart import DASHED, Axis, Chart, ServerLoad, chart, empty, points, ridges, seconds_axes
from runner.present.chart.sentences import ends, listing
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


def _trial(case: Case) -> str:
    return f"{case.row['server']} under “{case.row['load']}”"


def names(case: Case) -> dict[str, str]:
    """Return what each side of a trial is called."""
    return {"server": str(case.row["server"]), "generator": case.tool, "database": "PostgreSQL"}


def _look(case: Case) -> Identity:
    return identities(case.tables.trials)[str(case.row["server"])]


# --- two clients ------------------------------------------------------------------------------------------


@chart("verdict-two-clients", notebook="verdict", needs=probed, table="What another client saw", subject=Case)
def two_clients(case: Case) -> Chart:
    """Return the response times of generator and probe: how they spread, and over the time of the load.

    The column `server` holds the client; `median` is that of all its requests.
    """
    histogram = case.tables.latency[case.tables.latency["trial_id"] == case.trial_id]
    if histogram.empty:
        reason = "The latency table has no requests of this trial."
        return empty(f"What {case.tool} saw", f"what {case.tool} saw", reason)
    clients, timed = _clients(case, histogram), bool(histogram["second"].notna().any())
    kind = captions.load_heading(case.frame, "response time")
    headings = {SHARE: (f"{case.row['server']}, {case.row['workload']}", kind)}
    seen = PROBE in clients
    return Chart(
        f"One server, one moment: {case.tool} and another client" if seen else f"What {case.tool} saw of the server",
        pd.concat([*clients.values(), *(_over_time(case, clients) if timed else [])], ignore_index=True),
        Axis("latency, ms (log scale)", "response time in ms", " ms", log=True),
        Axis("share, %", "the share of a client's requests"),
        {case.tool: _look(case), PROBE: PROBE_LOOK},
        captions.caption(case.tables, case.frame, _words(case.tool, seen, timed)),
        headings=headings | ({TIMES: ("Over time", "")} if timed else {}),
        draw=lambda chart: _draw_clients(chart, float(case.row["duration_s"])),
        describe=lambda chart: _describe_clients(chart, case),
    )


def _words(tool: str, seen: bool, timed: bool) -> str:
    parts = ["Share of a client's requests in bins 10.5 % wide, to one scale; upright mark and number: its median."]
    if timed:
        dots = ", each request of the probe as a dot" if seen else ""
        parts.append(f"Over time: {tool}'s median of each second as a line{dots}.")
    return " ".join(parts if seen else [*parts, "There was no probe."])


def _clients(case: Case, histogram: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return for each client the share of its requests in bins, and its median."""
    spread = density_points(case.frame, histogram).sort_values("ms")
    # Two fine bins of the density make one of these.
    share = spread.groupby(np.floor(np.log(spread["ms"]) / BIN))["share_pct"].sum()
    found = {case.tool: _ridge(case, case.tool, share, float(case.row["latency_p50_ms"]))}
    if case.probe is not None and case.probe["ok"].any():
        ms = case.probe.loc[case.probe["ok"], "latency_ms"]
        counts = np.floor(np.log(ms) / BIN).value_counts().sort_index() * 100 / len(ms)
        found[PROBE] = _ridge(case, PROBE, counts, float(ms.median()))
    return found


def _ridge(case: Case, client: str, share: pd.Series[float], median: float) -> pd.DataFrame:
    """Return the middles of the bins that have requests, and their shares."""
    return points(ServerLoad(SHARE, client, case.frame), SHARE, np.exp((share.index + 0.5) * BIN), share, median=median)


def _over_time(case: Case, clients: Mapping[str, pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the generator's median of each second, and each request of the probe."""
    medians = seconds.latency(0.5)(case.frame, case.tables).sort_values("t_s")
    found = [
        points(ServerLoad(TIMES, case.tool, case.frame), "median", medians["t_s"], medians["value"], median=math.nan)
    ]
    if case.probe is not None and PROBE in clients:
        own = case.probe[case.probe["ok"]]
        median = float(clients[PROBE]["median"].iloc[0])
        found.append(
            points(ServerLoad(TIMES, PROBE, case.frame), "request", own["t_s"], own["latency_ms"], median=median)
        )
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
        dots = name == PROBE
        ax.plot(
            known["x"], known["y"], color=look.color, label=name, marker="." if dots else "o", ms=3 if dots else 3.5,
            ls="" if dots else "-",
        )  # fmt: skip
        if len(known):
            x, y = (float(known[axis].iloc[-1]) for axis in ("x", "y"))
            ends.append((name, look, x, float(known["median"].iloc[0]) if dots else y))
    seconds_axes(ax, 0, duration_s)
    ax.set_xlabel("seconds since the load began")
    scales.even_axis(ax, "x")
    ax.set_ylabel("latency, ms (log)")
    style.label_ends(ax, ends)


def _describe_clients(chart: Chart, case: Case) -> str:
    """Describe both medians, what is between them, and their course."""
    timed = TIMES in chart.headings
    course = (
        f" Below it, the response time in ms (up, logarithmic) by seconds (across): {case.tool}'s median of each "
        "second as a line, the probe's requests as dots."
    )
    head = (
        f"Of one trial, {_trial(case)}: ridge plot of the share of a client's requests (up) by response time in ms "
        f"(across, logarithmic), a ridge a client.{course if timed else ''}"
    )
    medians = {name: float(rows["median"].iloc[0]) for name, rows in chart.of_panel(SHARE).items()}
    parts = [head, _medians(case, medians), _courses(chart, case), f"Verdict: {case.row['verdict']}."]
    return " ".join(part for part in parts if part)


def _medians(case: Case, medians: Mapping[str, float]) -> str:
    ours = medians[case.tool]
    said = f"{case.tool}'s median is {style.number(ours)} ms"
    if PROBE not in medians:
        return f"{said}. {'There was no probe' if case.probe is None else 'The probe got no answer'}."
    other = medians[PROBE]
    return f"{said}, the probe's {style.number(other)} ms: {case.tool}'s is {style.number(ours / other)} times as long."


def _courses(chart: Chart, case: Case) -> str:
    curves = {name: rows["y"].dropna() for name, rows in chart.of_panel(TIMES).items()}
    words = {
        case.tool: "{tool}'s medians of single seconds are {ends} ms",
        PROBE: "{n:,} requests of the probe took {ends} ms",
    }
    known = [words[name].format(tool=name, ends=ends(ms), n=len(ms)) for name, ms in curves.items() if len(ms)]
    return f"Over time {', '.join(known)}." if known else ""


# --- CPU --------------------------------------------------------------------------------------------------


@chart("verdict-cpu", notebook="verdict", needs=probed, table="The verdict", subject=Case)
def cpu(case: Case) -> Chart:
    """Return the CPU of each side over time, beside what it was given (column `given`); a panel is a side."""
    title = "CPU of both sides, beside what each was given"
    samples = case.tables.resources[case.tables.resources["trial_id"] == case.trial_id]
    width, called = bin_width(case.frame), names(case)
    curves = {
        subject: curve
        for subject in called
        if not (curve := _within(case, usage(samples[samples["subject"] == subject], width))).empty
    }
    if not curves:
        reason = "The CPU of this trial was not sampled for long enough."
        return empty(title, "the CPU of both sides", reason)
    words = (
        f"Lines: means over windows of {width:g} s. Dashed: the CPU that the side was given; 100 % is one core busy."
    )
    return Chart(
        title,
        pd.concat(
            [
                points(
                    ServerLoad(side, called[side], case.frame),
                    "CPU",
                    own["t_s"],
                    own["cpu_pct"],
                    given=case.given(side),
                )
                for side, own in curves.items()
            ],
            ignore_index=True,
        ),
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
        ax.set_ylim(0, 1.12 * max(float(rows["y"].max()), given if math.isfinite(given) else 0.0, 1.0))
        ax.set_xlim(0, duration_s)
        scales.even_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_ylabel(chart.y.label)
    panels[-1][0].set_xlabel(chart.x.label)
    return figure


def _within(case: Case, curve: pd.DataFrame) -> pd.DataFrame:
    return curve.loc[curve["t_s"] <= float(case.row["duration_s"])]


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
    words = listing([_side(chart, side, case) for side in ordered])
    return (
        f"Line chart of the CPU of {listing(chart.panels)} in % of a core (up) by seconds since the load began "
        f"(across), each beside what it was given, dashed, of one trial, {_trial(case)}. The fullest first: {words}. "
        f"Verdict: {case.row['verdict']}."
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
