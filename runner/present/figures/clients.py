"""Figures of one trial: what two clients saw of a server at the same moment, and who used the CPU."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.case import Case
from runner.present.figures import seconds
from runner.present.figures.cpu import usage
from runner.present.figures.latency import MEDIANS_IN, density_points
from runner.present.figures.seconds import bin_width
from runner.present.look import captions, scales, style
from runner.present.look.palette import PROBE as PROBE_LOOK
from runner.present.look.palette import Identity, identities
from runner.present.statistics.stats import Floats

BIN = math.log(1.01) * 10
"""Width of a bin of the density in logarithms: 10.5 %."""
PROBE = "probe"
SUBJECTS = ("server", "generator", "database")


# --- two clients ------------------------------------------------------------------------------------------


@style.styled
def two_clients(case: Case) -> Figure:
    """Draw the response times of generator and probe, on one logarithmic axis, and over the time of the load."""
    histogram = case.tables.latency[case.tables.latency["trial_id"] == case.trial_id]
    if histogram.empty:
        return style.no_data(f"What {case.tool} saw", "The latency table has no requests of this trial.")
    rows, timed = _rows(case, histogram), bool(histogram["second"].notna().any())
    seen = PROBE in rows
    right_in = max(style.label_room(list(rows)), MEDIANS_IN)
    over_time = [style.Row(1, 1.9, 0.34, right_in=right_in)] if timed else []
    figure, panels = style.page(
        f"One server, one moment: {case.tool} and another client" if seen else f"What {case.tool} saw of the server",
        captions.caption(case.tables, case.frame, _words(case.tool, seen, timed)),
        [style.Row(1, 1.9, right_in=right_in), *over_time],
    )
    axes = [ax for (ax,) in panels]
    kind = captions.load_heading(case.frame, "response time")
    style.heading(axes[0], f"{case.row['server']}, {case.row['workload']}", kind)
    _draw_ridges(axes[0], rows)
    if timed:
        style.heading(axes[1], "Over time")
        _draw_seconds(axes[1], case, rows)
    return figure


def _words(tool: str, seen: bool, timed: bool) -> str:
    parts = ["Share of a client's requests in bins 10.5 % wide, to one scale; upright mark and number: its median."]
    if timed:
        dots = ", each request of the probe as a dot" if seen else ""
        parts.append(f"Over time: {tool}'s median of each second as a line{dots}.")
    return " ".join(parts if seen else [*parts, "There was no probe."])


Ridges = dict[str, tuple[Identity, Floats, Floats, float]]
"""Client -> look, bins in milliseconds, share of its requests in % and its median."""


def _rows(case: Case, histogram: pd.DataFrame) -> Ridges:
    look = identities(case.tables.trials)[str(case.row["server"])]
    points = density_points(case.frame, histogram).sort_values("ms")
    # Two fine bins of the density make one of these.
    share = points.groupby(np.floor(np.log(points["ms"]) / BIN))["share_pct"].sum()
    rows = {case.tool: (look, *_outline(share), float(case.row["latency_p50_ms"]))}
    if case.probe is not None and case.probe["ok"].any():
        ms = case.probe.loc[case.probe["ok"], "latency_ms"]
        counts = np.floor(np.log(ms) / BIN).value_counts() * 100 / len(ms)
        rows[PROBE] = (PROBE_LOOK, *_outline(counts), float(ms.median()))
    return rows


def _outline(share: pd.Series[float]) -> tuple[Floats, Floats]:
    """Return the middles of all bins between the outermost, with zeros in the empty ones, and their shares."""
    known = pd.Series(share.to_numpy(dtype=float), index=share.index.astype(int)).sort_index()
    every = np.arange(known.index.min() - 1, known.index.max() + 2)
    shares = known.reindex(every, fill_value=0.0)
    return np.exp((every + 0.5) * BIN).astype(np.float64), np.asarray(shares, dtype=np.float64)


def _draw_ridges(ax: Axes, rows: Ridges) -> None:
    scale = 0.78 / max(float(share.max()) for _, _, share, _ in rows.values())
    for place, (name, (look, ms, share, median)) in enumerate(reversed(rows.items())):
        ax.fill_between(ms, place, place + share * scale, color=look.color, alpha=0.35, lw=0)
        ax.plot(ms, place + share * scale, color=look.color, lw=1.2, label=name)
        ax.plot([median, median], [place, place + 0.25], color=style.INK, lw=1.8, label=f"median of {name}")
        ax.text(1.02, place, f"{style.number(median)} ms", transform=ax.get_yaxis_transform(), size=style.TEXT_PT)
    ax.set_xscale("log")
    scales.log_axis(ax, "x")
    ax.set_ylim(-0.06, len(rows))
    ax.set_yticks(range(len(rows)), list(reversed(rows)))
    ax.tick_params(axis="y", length=0)
    for label, (look, *_) in zip(ax.get_yticklabels(), reversed(rows.values()), strict=True):
        label.set(color=look.ink, size=style.TEXT_PT, va="bottom")
    ax.set_xlabel("latency, ms (log scale)")


def _draw_seconds(ax: Axes, case: Case, rows: Ridges) -> None:
    medians = seconds.latency(0.5)(case.frame, case.tables).sort_values("t_s")
    look = identities(case.tables.trials)[str(case.row["server"])]
    ax.plot(medians["t_s"], medians["value"], color=look.color, marker="o", ms=3.5, label=case.tool)
    ends = [(case.tool, look, float(medians["t_s"].iloc[-1]), float(medians["value"].iloc[-1]))] if len(medians) else []
    if case.probe is not None and PROBE in rows:
        own = case.probe[case.probe["ok"]]
        ax.plot(own["t_s"], own["latency_ms"], ls="", marker=".", ms=3, color=PROBE_LOOK.color, label=PROBE)
        ends.append((PROBE, PROBE_LOOK, float(own["t_s"].iloc[-1]), rows[PROBE][3]))
    ax.set_yscale("log")
    ax.set_xlim(0, float(case.row["duration_s"]))
    low, high = ax.get_ylim()
    spare = max(1.0, math.sqrt(10 * low / high))  # a decade at least, so that a steady load looks steady
    ax.set_ylim(low / spare, high * spare)
    scales.log_axis(ax, "y")
    ax.set_xlabel("seconds since the load began")
    scales.even_axis(ax, "x")
    ax.set_ylabel("latency, ms (log)")
    style.label_ends(ax, ends)


# --- CPU --------------------------------------------------------------------------------------------------


@style.styled
def cpu(case: Case) -> Figure:
    """Draw the CPU of each side over time, beside what it was given."""
    title = "CPU of both sides, beside what each was given"
    samples = case.tables.resources[case.tables.resources["trial_id"] == case.trial_id]
    width = bin_width(case.frame)
    curves = {
        subject: curve
        for subject in SUBJECTS
        if not (curve := _within(case, usage(samples[samples["subject"] == subject], width))).empty
    }
    if not curves:
        return style.no_data(title, "The CPU of this trial was not sampled for long enough.")
    look = identities(case.tables.trials)[str(case.row["server"])]
    words = (
        f"Lines: means over windows of {width:g} s. Dashed: the CPU that the side was given; 100 % is one core busy."
    )
    # Only the lowest panel names its axis.
    axes_in = [0.4] * (len(curves) - 1) + [0.72]
    figure, panels = style.page(
        title,
        captions.caption(case.tables, case.frame, words),
        [style.Row(1, 1.25, axis_in=axis_in, left_in=0.85) for axis_in in axes_in],
    )
    axes = [ax for (ax,) in panels]
    for ax, (subject, curve) in zip(axes, curves.items(), strict=True):
        name = {"server": str(case.row["server"]), "generator": case.tool, "database": "PostgreSQL"}[subject]
        given = case.given(subject)
        style.heading(ax, f"{subject.capitalize()}: {name}", _used(case, subject, given), 0.75)
        color = look.color if subject == "server" else PROBE_LOOK.color
        ax.plot(curve["t_s"], curve["cpu_pct"], color=color, lw=1.5, label=subject)
        ax.fill_between(curve["t_s"], 0, curve["cpu_pct"], color=color, alpha=0.2, lw=0)
        if math.isfinite(given):
            ax.axhline(given, color=style.INK, lw=1.0, ls=(0, (4, 2.5)), label="given")
        ax.set_ylim(0, 1.12 * max(float(curve["cpu_pct"].max()), given if math.isfinite(given) else 0.0, 1.0))
        ax.set_xlim(0, float(case.row["duration_s"]))
        scales.even_axis(ax, "y")
        scales.even_axis(ax, "x")
        ax.set_ylabel("CPU, %")
    axes[-1].set_xlabel("seconds since the load began")
    return figure


def _within(case: Case, curve: pd.DataFrame) -> pd.DataFrame:
    return curve.loc[curve["t_s"] <= float(case.row["duration_s"])]


def _used(case: Case, subject: str, given: float) -> str:
    used = float(case.row[f"{subject}_cpu_mean_pct"])
    if not math.isfinite(used):
        return "mean not known"
    mean = f"{style.number(used)} % on the average"
    return f"{mean}, of {given:.0f} % given" if math.isfinite(given) else mean
