"""Sweeps of constant arrival rates: response times by offered rate, with the knee (`knee`) and who was the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.model import OWN_SCRIPT
from runner.present.figures.knee import Knee, knee
from runner.present.figures.multiples import Panel, lowest, panels
from runner.present.frames import MODES, Tables, rate_unit, sealed_trials
from runner.present.look import captions, scales, style
from runner.present.look.palette import PROBE, Identity, pale
from runner.present.statistics.inference import median_interval
from runner.present.statistics.stats import BEYOND, spread

TITLE = "Response times by offered rate"
KNEE_OF = "p90"
SERIES = {
    "p50": ("latency_p50_ms", 0.5),
    "p90": ("latency_p90_ms", 0.9),
    "p99": ("latency_p99_ms", 0.99),
    "probe p50": ("probe_p50_ms", None),
    "probe p95": ("probe_p95_ms", None),
}
"""Name of a curve -> its column, and the quantile that must be carried; the probe's are empty where they are not."""
LETTERS = {"server-bound": "S", "generator-bound": "G", "inconclusive": "?"}


# --- numbers ----------------------------------------------------------------------------------------------


def swept(tables: Tables) -> pd.DataFrame:
    """Return the trials of the sweeps, failed ones too, with a column `sweep`: the load without its rate in words."""
    trials = tables.sweeps()
    several = trials.groupby(["workload", "mode"])["vus"].transform("nunique") > 1
    words = [
        ", ".join(
            [str(row["workload"]), *([] if row["mode"] in ("keepalive", "") else [MODES.get(row["mode"], row["mode"])])]
            + ([f"at most {row['vus']:.0f} users"] if each else [])
        )
        for row, each in zip(trials.to_dict("records"), several, strict=True)
    ]
    return trials.assign(sweep=words)


def points(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the curves of one server and sweep: series, rate_rps, n, median, low, high (ms), rising by rate.

    Low and high are the exact 95 % interval of the median from six trials on, else minimum and maximum. A percentile
    is left out where the trials of a rate have fewer than `BEYOND` requests beyond it, all together.
    """
    found = []
    for rate, own in trials.groupby("rate_rps"):
        for series, (column, quantile) in SERIES.items():
            beyond = math.inf if quantile is None else float(own["requests"].sum()) * (1 - quantile)
            of = spread(own[column])
            if not of.n or beyond < BEYOND - 1e-6:
                continue
            sure = median_interval(own[column])
            low, high = (sure.low, sure.high) if sure else (of.low, of.high)
            found.append((series, float(str(rate)), of.n, of.median, low, high))
    return pd.DataFrame(found, columns=["series", "rate_rps", "n", "median", "low", "high"])


def outcomes(trials: pd.DataFrame) -> pd.DataFrame:
    """Return what became of each rate of one server and sweep, rising: rate_rps, sustained, offered, letter.

    sustained: in more than half of the trials; offered: the verdict in every trial; letter: of the most frequent other
    verdict (`LETTERS`), empty where there is none.
    """
    found = []
    for rate, own in trials.groupby("rate_rps"):
        others = own.loc[own["verdict"] != "offered", "verdict"]
        letter = LETTERS.get(str(others.mode().iloc[0]), "?") if len(others) else ""
        found.append((float(str(rate)), bool((own["sustained"] == 1).mean() > 0.5), others.empty, letter))
    return pd.DataFrame(found, columns=["rate_rps", "sustained", "offered", "letter"])


def knee_of(trials: pd.DataFrame) -> Knee:
    """Return the knee of one server and sweep, of the medians of its trials."""
    table = outcomes(trials)
    curve = points(trials)
    ms = curve[curve["series"] == KNEE_OF].set_index("rate_rps")["median"].reindex(table["rate_rps"])
    return knee(table["rate_rps"], ms, table["sustained"])


def knees_of_blocks(trials: pd.DataFrame) -> list[float]:
    """Return the knee of each block of one server and sweep, of the block's own trials; NaN where it has none."""
    column, _ = SERIES[KNEE_OF]
    found = []
    for _, own in trials.groupby("block"):
        rising = own.sort_values("rate_rps").drop_duplicates("rate_rps")
        found.append(knee(rising["rate_rps"], rising[column], rising["sustained"] == 1).rate_rps)
    return found


def highest_sustained(table: pd.DataFrame) -> float:
    """Return the highest rate of `outcomes` up to which every one was sustained; NaN where the lowest was not."""
    kept = table["sustained"].cummin()
    return float(table.loc[kept, "rate_rps"].max()) if kept.any() else math.nan


# --- words ------------------------------------------------------------------------------------------------


def knee_table(tables: Tables) -> pd.DataFrame:
    """Return for each server and sweep, as texts: the knee, its range over the blocks, and what was sustained."""
    rows, unit = [], rate_unit(tables.sweeps()["workload"])
    for panel in panels(tables, swept(tables), by="sweep"):
        table = outcomes(panel.trials)
        of, blocks = knee_of(panel.trials), spread(knees_of_blocks(panel.trials))
        last = highest_sustained(table)
        comparable = table[table["offered"].cummin()]["rate_rps"]
        rows.append(
            {
                "sweep": panel.load,
                "server": panel.server,
                "trials": str(len(panel.trials)),
                f"knee, {unit}": _rate(of.rate_rps) if math.isfinite(of.rate_rps) else of.why,
                "knee by block": f"{_rate(blocks.low)}–{_rate(blocks.high)} ({blocks.n})" if blocks.n else "–",
                "limit beyond the knee": _first_limit_above(panel.trials, of.rate_rps),
                "sustained up to": _rate(last) if math.isfinite(last) else f"below {_rate(table['rate_rps'].min())}",
                "limit beyond": _limit_above(panel.trials, last if math.isfinite(last) else 0.0),
                "response times compare up to": _rate(comparable.max()) if len(comparable) else "–",
            }
        )
    return pd.DataFrame(rows)


def _rate(value: float) -> str:
    return f"{value:,.10g}" if math.isfinite(value) else "–"


def _limit_above(trials: pd.DataFrame, rate_rps: float) -> str:
    """Return what limited the trials at the next rate above `rate_rps`; `–` where there is none."""
    above = trials.loc[trials["rate_rps"] > rate_rps, "rate_rps"]
    if above.empty or math.isnan(rate_rps):
        return "–"
    return captions.limit_words(trials[trials["rate_rps"] == above.min()])


def _first_limit_above(trials: pd.DataFrame, rate_rps: float) -> str:
    """Return the limit that trials met first above `rate_rps`: at the rate whose letter the figure shows first.

    A knee comes before its limit: one queue has it at half of its capacity, where nobody is busy yet.
    """
    limited = trials[(trials["rate_rps"] > rate_rps) & (trials["verdict"] != "offered")]
    return _limit_above(trials if limited.empty else limited, rate_rps)


def _notes(trials: pd.DataFrame) -> list[str]:
    """Return the words above a panel: the knee, and what limited the rate after the last that was sustained."""
    of, last = knee_of(trials), highest_sustained(outcomes(trials))
    beyond, rest = _first_limit_above(trials, of.rate_rps), _limit_above(trials, last)
    first = f"knee at {_rate(of.rate_rps)}/s" if math.isfinite(of.rate_rps) else f"knee: {of.why}"
    if beyond.startswith(captions.LIMITS["generator-bound"]):
        first += ", the generator's"
    if not math.isfinite(last):
        return [first, "not sustained at any rate"]
    return [first, f"sustained to {_rate(last)}/s" + ("" if rest == "–" else f"; then: {rest}")]


# --- the figure -------------------------------------------------------------------------------------------


@style.styled
def latency(tables: Tables) -> Figure:
    """Draw response times against the offered rate, a panel a server: generator and probe, outcomes and the knee."""
    trials = swept(tables)
    shown = panels(tables, trials, by="sweep")
    if not shown:
        return style.no_data(TITLE, captions.unsealed(trials, "trial at a constant arrival rate"))
    curves = [points(panel.trials) for panel in shown]
    if all(curve.empty for curve in curves):
        return style.no_data(TITLE, f"No rate of this run has {BEYOND} requests beyond a percentile.")
    figure, axes = _sheet(tables, trials, shown)
    limits = _limits(sealed_trials(trials), curves)
    for ax, panel, curve in zip(axes, shown, curves, strict=False):
        _draw_panel(ax, panel, curve, limits)
    for ax in axes[len(shown) :]:
        ax.remove()
    for ax in lowest(axes[: len(shown)]):
        ax.set_xlabel(f"{rate_unit(trials['workload'])} offered (log scale)")
    return figure


def _sheet(tables: Tables, trials: pd.DataFrame, shown: Sequence[Panel]) -> tuple[Figure, list[Axes]]:
    columns = 1 if len(shown) == 1 else 2
    enough = sealed_trials(trials).groupby(["server", "load"]).size().min() >= 6
    bars = "95 % interval of the median" if enough else "minimum to maximum"
    words = (
        f"Points: median of the trials; bars: {bars}. A percentile is left out where the trials of a rate have fewer "
        f"than {BEYOND} requests beyond it together. Knee: the greatest rate / p90 (Kleinrock's power); where the "
        "generator is the first limit beyond it, the knee is the generator's."
    )
    if OWN_SCRIPT in set(trials["workload"]):
        words += " The probe asked for one path alone, not for what the script does."
    notes = [_notes(panel.trials) for panel in shown]
    room = style.WIDTH_IN / columns - 0.2
    lines = [
        [line for text in ([panel.load_words] if panel.load_words else []) + own
         for line in style.wrap(text, style.SMALL_PT, room)]
        for panel, own in zip(shown, notes, strict=True)
    ]  # fmt: skip
    most = max(len(own) for own in lines)
    figure, axes = style.canvas(
        TITLE,
        captions.caption(tables, trials, words),
        key="Coloured: the generator's p50, p90 and p99. Grey, dashed: the probe's p50 and p95. Filled: verdict "
        "offered in every trial. Hollow: not, and a letter says the limit (S server, G generator, ? not told). ×: the "
        "rate was not sustained in half of the trials or more. Upright line: the knee.",
        rows=-(-len(shown) // columns),
        columns=columns,
        panel_in=2.1,
        heading_in=0.36 + most * style.SMALL_PT * style.LINE / 72,
        left_in=0.92,
        right_in=0.7 if columns == 1 else 0.5,
        axis_in=0.36,
        below_in=0.28,
    )
    for ax, panel, own in zip(axes, shown, lines, strict=False):
        style.heading(ax, style.short(panel.server, 24), "\n".join(own), 0.82, panel.look.ink)
    return figure, axes


def _limits(trials: pd.DataFrame, curves: Sequence[pd.DataFrame]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the limits of all panels alike: of the rates, and of the milliseconds with room for letters above."""
    every = pd.concat(curves)
    low, high = float(every["low"].clip(lower=1e-3).min()), float(every["high"].max())
    rates = trials["rate_rps"]
    return (float(rates.min()) / 1.25, float(rates.max()) * 1.25), (low / 1.4, high * (high / low) ** 0.16 * 1.2)


def _draw_panel(
    ax: Axes, panel: Panel, curve: pd.DataFrame, limits: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    table = outcomes(panel.trials).set_index("rate_rps")
    ends = []
    for series in SERIES:
        own = curve[curve["series"] == series]
        if own.empty:
            continue
        look = PROBE if series.startswith("probe") else replace(panel.look, marker="o", dash="-")
        _draw_curve(ax, series, own, look, table)
        ends.append(
            (series.removeprefix("probe "), look, float(own["rate_rps"].iloc[-1]), float(own["median"].iloc[-1]))
        )
    of = knee_of(panel.trials)
    if math.isfinite(of.rate_rps):
        ax.axvline(of.rate_rps, color=style.INK, lw=1.1, ymax=0.84, label="knee", zorder=1)
    ax.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
    _write_letters(ax, table["letter"])
    scales.log_axis(ax, "y")
    scales.ticks_across(ax, [float(str(rate)) for rate in table.index])
    ax.set_ylabel("ms (log scale)")
    style.label_ends(ax, ends)


def _draw_curve(ax: Axes, series: str, own: pd.DataFrame, look: Identity, table: pd.DataFrame) -> None:
    """Draw a curve; where the rate was not sustained it is pale: those response times grow with the load's length."""
    probe = series.startswith("probe")
    rows = own.to_dict("records")
    for a, b in pairwise(rows):
        sure = bool(table.loc[[a["rate_rps"], b["rate_rps"]], "sustained"].all())
        ax.plot(
            [a["rate_rps"], b["rate_rps"]], [a["median"], b["median"]], color=look.color if sure else pale(look.color),
            lw=1.1 if probe else 1.7, ls=look.dash, label="", zorder=2,
        )  # fmt: skip
    for row in rows:
        outcome = table.loc[row["rate_rps"]]
        marker = "." if probe else "o" if outcome["sustained"] else "x"
        bars = np.array([[row["median"] - row["low"]], [row["high"] - row["median"]]])
        ax.errorbar(
            [row["rate_rps"]], [row["median"]], yerr=np.clip(bars, 0, None), color=look.color, capsize=2, lw=0.9,
            marker=marker, ms=3 if probe else 4.6, markeredgewidth=1.1, label=series,
            markerfacecolor=look.color if outcome["offered"] or probe else "white", zorder=3,
        )  # fmt: skip


def _write_letters(ax: Axes, letters: pd.Series[str]) -> None:
    """Write each rate's letter at the top of its panel; one that repeats its neighbour's needs room for itself."""
    last, written = 0.0, ""
    for rate, letter in letters.items():
        at = float(str(rate))
        if not letter or (letter == written and _apart_in(ax, last, at) < 0.16):
            continue
        last, written = at, letter
        ax.annotate(
            letter, (at, 0.98), xycoords=ax.get_xaxis_transform(), ha="center", va="top", size=style.SMALL_PT
        )  # fmt: skip


def _apart_in(ax: Axes, low: float, high: float) -> float:
    """Return how many inches lie between two values of a logarithmic axis across."""
    left, right = ax.get_xlim()
    return style.size_in(ax)[0] * math.log10(high / low) / math.log10(right / left)
