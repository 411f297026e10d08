"""Figures of k6 response times, from the mergeable latency histograms."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from runner.present import captions, style
from runner.present.bands import band, trial_curves
from runner.present.frames import Tables
from runner.present.inference import FEWEST
from runner.present.palette import Identity, identities
from runner.present.stats import BEYOND

FIRST_QUANTILE = 0.25
POINTS_PER_DECADE = 24
COARSE = 5
"""Buckets of 1 % that one bin of the density holds: 1.01 ** 5 is 5.1 % wide."""


def spectrum_points(trials: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """Return the percentile spectrum of each trial: load, server, trial_id, q (0 to 1), x = 1/(1-q), ms.

    Each trial ends at the last quantile that has `BEYOND` of its requests above it.
    """
    grid = np.arange(round(np.log10(1 / (1 - FIRST_QUANTILE)) * POINTS_PER_DECADE), 8 * POINTS_PER_DECADE)
    quantiles = 1 - 10.0 ** (-grid / POINTS_PER_DECADE)
    parts = []
    for (load, server, trial_id), buckets in _buckets(trials, latency):
        (ms,) = trial_curves(buckets.assign(trial_id=trial_id), quantiles)
        curve = pd.DataFrame({"load": load, "server": server, "trial_id": trial_id, "q": quantiles, "ms": ms})
        parts.append(curve.assign(x=1 / (1 - quantiles)).dropna(subset=["ms"]))
    columns = ["load", "server", "trial_id", "q", "ms", "x"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _buckets(trials: pd.DataFrame, latency: pd.DataFrame) -> list[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Return each trial's histogram over its whole load: lower_ms, upper_ms, count by rising bucket."""
    merged = latency[latency["trial_id"].isin(trials["trial_id"])]
    merged = merged.groupby(["trial_id", "lower_ms"], as_index=False).agg(
        upper_ms=("upper_ms", "first"), count=("count", "sum")
    )
    by_trial = dict(list(merged.groupby("trial_id")))
    keys = trials[["load", "server", "trial_id"]].itertuples(index=False, name=None)
    return [(key, by_trial[key[2]]) for key in keys if key[2] in by_trial]


@style.styled
def spectrum(tables: Tables) -> Figure:
    """Draw latency against percentile: a line a server, the median of its trials, with their min–max band."""
    title = "Latency by percentile"
    trials = tables.sealed("k6")
    points = spectrum_points(trials, tables.latency)
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    words = (
        f"{_band_words(trials)} A curve ends where fewer than {BEYOND} requests of a trial lie beyond the percentile."
    )
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), words),
        rows=len(loads),
        panel_in=max(2.9, 0.22 * len(looks)),
        right_in=style.label_room(list(looks)),
    )
    for ax, load in zip(axes, loads, strict=True):
        of_load = trials[trials["load"] == load]
        style.heading(ax, of_load["workload"].iloc[0], captions.load_heading(of_load, "response time"))
        _draw_spectrum(ax, points[points["load"] == load], looks)
    return figure


def _draw_spectrum(ax: Axes, points: pd.DataFrame, looks: dict[str, Identity]) -> None:
    ends = []
    for server, look in looks.items():
        own = points[points["server"] == server]
        if own.empty:
            continue
        middle, low, high = _middle(own)
        ax.plot(middle.index, middle, color=look.color, ls=look.dash, label=server)
        ax.fill_between(middle.index, low, high, color=look.color, alpha=0.18, lw=0)
        last = float(middle.index[-1]), float(middle.iloc[-1])
        ax.plot(*last, color=look.color, marker=look.marker, ms=5.5)
        ends.append((server, look, *last))
    if not ends:
        ax.set_axis_off()
        sentence = f"Too few requests: no trial has {BEYOND} beyond its {FIRST_QUANTILE:.0%} percentile."
        ax.text(0, 0.5, sentence, transform=ax.transAxes)
        return
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1 / (1 - FIRST_QUANTILE), max(end[2] for end in ends) * 1.12)
    _percentile_ticks(ax)
    log_ms_axis(ax, "y")
    ax.set_xlabel("requests that were faster (log scale of the rest)")
    ax.set_ylabel("latency, ms (log scale)")
    style.label_ends(ax, ends)


def _band_words(trials: pd.DataFrame) -> str:
    fewest = trials.groupby(["load", "server"])["trial_id"].nunique().min()
    if fewest >= FEWEST:
        return "Line: geometric mean of the trials; band: its 95 % interval, at each percentile."
    return f"Line: median of the trials; band: minimum to maximum (from {FEWEST} trials on: mean, 95 % interval)."


def _middle(own: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float], pd.Series[float]]:
    """Return line, lower and upper end of a server's band, by x.

    Where some trials carry fewer requests their curves end earlier; the line needs all of them.
    """
    curves = own.pivot(index="trial_id", columns="x", values="ms").dropna(axis="columns")
    if len(curves) < FEWEST:
        return curves.median(), curves.min(), curves.max()
    found = band(curves.to_numpy(), 1 - 1 / curves.columns.to_numpy())
    middle, low, high = (pd.Series(side, curves.columns) for side in (found.ms, found.low_ms, found.high_ms))
    return middle, low, high


def _percentile_ticks(ax: Axes) -> None:
    ticks = [2.0, *(10.0**power for power in range(1, 9))]
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= ax.get_xlim()[1]]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 - 100 / x:.10g} %"))
    ax.xaxis.set_minor_locator(NullLocator())


def log_ms_axis(ax: Axes, axis: str) -> None:
    """Label a logarithmic axis of milliseconds 0.1, 0.2, 0.5, 1, 2, 5 …, fewer where it spans decades."""
    low, high = ax.get_ylim() if axis == "y" else ax.get_xlim()
    decades = np.log10(high / low)
    steps: tuple[float, ...] = (1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.2 else (1,)
    if decades < 1.2:
        steps = (1, 1.5, 2, 3, 5, 7)
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in exponents for step in steps]
    target = ax.yaxis if axis == "y" else ax.xaxis
    target.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    target.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    target.set_minor_locator(NullLocator())


def density_points(trials: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """Return the density of each server's latency: load, server, ms (a bin's middle), share_pct of requests.

    A bin is `COARSE` buckets wide. Each trial weighs the same, however many requests it has.
    """
    parts = []
    for (load, server, _), buckets in _buckets(trials, latency):
        width = np.log(1.01) * COARSE
        # The middle of a bucket, so that rounding of its border cannot move it to the bin below.
        middle = np.log(np.sqrt(buckets["lower_ms"].clip(lower=1e-6) * buckets["upper_ms"]))
        bins = np.floor(middle / width).astype(int)
        share = 100 * buckets["count"].groupby(bins).sum() / buckets["count"].sum()
        parts.append(pd.DataFrame({"load": load, "server": server, "bin": share.index, "share_pct": share.values}))
    if not parts:
        return pd.DataFrame(columns=["load", "server", "ms", "share_pct"])
    trial_count = trials.groupby(["load", "server"])["trial_id"].nunique().rename("n").reset_index()
    total = pd.concat(parts).groupby(["load", "server", "bin"], as_index=False)["share_pct"].sum()
    total = total.merge(trial_count, on=["load", "server"])
    total["share_pct"] /= total["n"]
    total["ms"] = np.exp((total["bin"] + 0.5) * width)
    return pd.DataFrame(total[["load", "server", "ms", "share_pct"]])


@style.styled
def density(tables: Tables) -> Figure:
    """Draw where each server's latencies lie: one ridge a server on a logarithmic axis, its median marked."""
    title = "Latency: how the requests spread"
    trials = tables.sealed("k6")
    points = density_points(trials, tables.latency)
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    if points.empty:
        return style.no_data(title, "The latency table has no requests of this run's k6 trials.")
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    shown = [name for name in looks if name in set(points["server"])]
    words = (
        "Height: share of the requests in bins 5 % wide, to one scale in each panel, every trial weighing the same. "
        "Mark and number: median of the trials' medians."
    )
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), words),
        rows=len(loads),
        panel_in=0.3 + 0.52 * len(shown),
        left_in=max(0.95, style.label_room(shown)),
    )
    for ax, load in zip(axes, loads, strict=True):
        of_load = trials[trials["load"] == load]
        style.heading(ax, of_load["workload"].iloc[0], captions.load_heading(of_load, "response time"))
        _draw_ridges(ax, points[points["load"] == load], of_load, {name: looks[name] for name in shown})
    return figure


def _draw_ridges(ax: Axes, points: pd.DataFrame, trials: pd.DataFrame, looks: dict[str, Identity]) -> None:
    present = [name for name in looks if name in set(points["server"])]
    scale = 0.85 / points["share_pct"].max()
    for row, server in enumerate(reversed(present)):
        own = points[points["server"] == server].sort_values("ms")
        # An empty bin has no row: without zeros the outline would bridge the gap.
        bins = np.round(np.log(own["ms"]) / (np.log(1.01) * COARSE) - 0.5).astype(int)
        every = np.arange(bins.min() - 1, bins.max() + 2)
        share = pd.Series(own["share_pct"].to_numpy(), index=bins.to_numpy()).reindex(every, fill_value=0.0)
        x, y = np.exp((every + 0.5) * np.log(1.01) * COARSE), row + share.to_numpy() * scale
        ax.fill_between(x, row, y, color=looks[server].color, alpha=0.35, lw=0, zorder=2 - row * 0.01)
        ax.plot(x, y, color=looks[server].color, lw=1.2)
        median = trials.loc[trials["server"] == server, "latency_p50_ms"].median()
        if not np.isfinite(median):
            continue
        ax.plot([median, median], [row, row + 0.18], color=style.INK, lw=1.6)
        ax.annotate(
            f"{style.number(median)} ms", (median, row), (4, 4), textcoords="offset points", size=style.SMALL_PT
        )
    ax.set_xscale("log")
    log_ms_axis(ax, "x")
    ax.set_ylim(-0.06, len(present))
    ax.set_yticks(range(len(present)), [style.short(name) for name in reversed(present)])
    ax.tick_params(axis="y", length=0)
    for label, server in zip(ax.get_yticklabels(), reversed(present), strict=True):
        label.set(color=looks[server].ink, size=style.TEXT_PT, va="bottom")
    ax.set_xlabel("latency, ms (log scale)")
