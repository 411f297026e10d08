"""Make the figure of the servers' CPU use over time under k6's closed loads.

The figure also shows how much CPU each server could use.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart.drawing import DASHED, Shared
from runner.present.chart.sentences import ends
from runner.present.chart.value import Chart, Fact, chart, tidy
from runner.present.comparison import ratios
from runner.present.figures import slices
from runner.present.figures.closed_loads import by_load
from runner.present.figures.seconds import CPU
from runner.present.frames import Tables, given_pct
from runner.present.look import style
from runner.present.look.palette import WHITE, Identity
from runner.present.statistics.stats import window_means

UNSAMPLED = "The CPU of this run's k6 trials was not sampled."
USED_UP = 0.9
"""A server uses up its quota if its median CPU use is at least this share of the quota."""
LABEL_IN = 0.24
"""Space for the label above the dashed line that shows the quota, in inches."""


@chart("cpu-over-time", notebook="report")
def over_time(tables: Tables) -> Chart:
    """Return the chart of each server's CPU over time, with the median of its trials and a band.

    A dashed line shows the quota or, without a quota, the CPUs that the server was given.
    """
    trials = ratios.compared(tables, tables.of("k6"))
    samples = {
        str(name): rows.dropna(subset="cpu_pct").sort_values("t_s")
        for name, rows in tables.resources[tables.resources["subject"] == "server"].groupby(
            "trial_id"
        )
    }
    curves = [
        slices.curve(
            cell,
            _by_slice(tables, cell.trials, samples, width_s),
            given=float(given_pct(tables, cell.trials, "server").iloc[0]),
            is_quota=_is_held(cell.trials),
            generator_pct=float(cell.trials["generator_cpu_mean_pct"].mean()),
        )
        for cell, width_s in slices.with_widths(tables, trials)
    ]
    frame = slices.laid_out(tidy(curves))
    return by_load(
        tables,
        trials,
        _finding(frame) or "CPU over time",
        frame,
        slices.axis(frame),
        CPU,
        slices.words(trials),
        "CPU",
        nothing=UNSAMPLED,
        key="Dashed: the quota, or the CPUs that the server was given.",
        statistic="median of the trials over time, a panel per server; typical: median over time",
        facts=(
            Fact("typical use", lambda rows: float(rows["y"].median()), " %", ends_of="y"),
            Fact("generator's typical use", lambda rows: float(rows["generator_pct"].max()), " %"),
        ),
        draw=Shared(left_in=0.8, alone=True, mark=_draw_server, finish=_axes),
    )


def _is_held(trials: pd.DataFrame) -> bool:
    """Return True if the server had a CPU quota in `trials`, which are the trials of one load."""
    first = trials.iloc[0]
    return bool(first["share"] < 1 or math.isfinite(first["quota_cores"]))


def _by_slice(
    tables: Tables, trials: pd.DataFrame, samples: dict[str, pd.DataFrame], width_s: float
) -> dict[int, pd.DataFrame]:
    """Return the server's CPU use in each slice in % of a core, by the number of the slice.

    The frame of a slice has a column for each trial and a row for each bin. The index of the frame
    is the centre of each bin, in seconds since the slice began.
    """
    by_number: dict[int, dict[str, pd.Series[float]]] = {}
    for part in slices.parts_of(tables, trials):
        if part.trial_id not in samples:
            continue
        rows = samples[part.trial_id]
        count = max(0, math.floor((part.end_s - part.begin_s) / width_s + 1e-6))
        edges = part.begin_s + np.arange(count + 1) * width_s
        values = window_means(rows["t_s"], rows["dt_s"], rows["cpu_pct"], edges)
        centres = (np.arange(count) + 0.5) * width_s
        by_number.setdefault(part.number, {})[part.trial_id] = pd.Series(values, centres)
    return {number: pd.DataFrame(columns) for number, columns in by_number.items()}


def _finding(frame: pd.DataFrame) -> str:
    """Return a title that says how much CPU the servers use.

    For servers with a quota, the title says how much of the quota they use. For servers without a
    quota, it says how much CPU these servers and k6 use. Return an empty text if there are no data.
    """
    if frame.empty:
        return ""
    columns = {"y": "median", "given": "first", "is_quota": "first", "generator_pct": "first"}
    by_cell = frame.dropna(subset="y").groupby(["panel", "server"]).agg(columns)
    is_quota = by_cell["is_quota"].astype(bool)
    held, free = by_cell[is_quota], by_cell[~is_quota]
    of_quota = held["y"] / held["given"]
    texts = []
    if len(held):
        are_used_up = (of_quota >= USED_UP).all()
        texts = ["Each server uses up its quota"]
        if not are_used_up:
            texts = [f"The servers use {ends(100 * of_quota)} % of their quotas"]
    if len(free):
        who = "servers without a quota" if held.size else "The servers"
        texts.append(f"{who} use {ends(free['y'])} % of a core, k6 {ends(free['generator_pct'])} %")
    return "; ".join(texts)


def _draw_server(ax: Axes, rows: pd.DataFrame, look: Identity, name: str) -> None:
    given = rows["given"].dropna()
    if len(given):
        quota = float(given.iloc[0])
        ax.axhline(quota, color=style.INK, lw=1.0, ls=DASHED, label="given", zorder=1)
        cpus = f"{quota / 100:g} CPU{'s' * (quota != 100)}"
        words = f"quota {style.plain(quota)} %" if rows["is_quota"].iloc[0] else cpus
        place = (0.03, quota)
        ax.annotate(
            words,
            place,
            (0, 3),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            size=style.SMALL_PT,
            va="bottom",
            bbox={"facecolor": WHITE, "edgecolor": "none", "pad": 0.5},
            zorder=4,
        )
    slices.solid_band(ax, rows, look, name)


def _axes(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[chart.frame["panel"] == panel]
    room = min(0.6, LABEL_IN / style.size_in(ax)[1])
    given = float(rows["given"].max()) if rows["given"].notna().any() else 0.0
    top = max(given / (1 - room), float(rows[["y", "high"]].max().max()) * 1.05)
    style.limit(ax, "y", 0, top if top > 0 else 1.0)
    slices.across(ax, chart, panel)
