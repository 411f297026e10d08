"""Figures of k6 response times, from the mergeable latency histograms."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.figures import multiples
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
from runner.present.look.palette import Identity, identities
from runner.present.statistics.bands import band, trial_curves
from runner.present.statistics.inference import FEWEST
from runner.present.statistics.stats import BEYOND

FIRST_QUANTILE = 0.25
POINTS_PER_DECADE = 24
COARSE = 5
"""Buckets of 1 % that one bin of the density holds: 1.01 ** 5 is 5.1 % wide."""
MEDIANS_IN = 1.0
"""Width of the medians right of the densities."""


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
    trials = tables.timed("k6")
    points = spectrum_points(trials, tables.latency)
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    words = (
        f"{_band_words(trials)} A curve ends where fewer than {BEYOND} requests of a trial lie beyond the percentile."
    )
    parts = []
    for load in loads:
        of_load = trials[trials["load"] == load]
        name, kind = str(of_load["workload"].iloc[0]), captions.load_heading(of_load, "response time")
        parts.append(_spectrum_part(name, kind, points[points["load"] == load], looks))
    return multiples.compose(title, captions.caption(tables, tables.of("k6"), words), parts)


def _spectrum_part(name: str, words: str, points: pd.DataFrame, looks: dict[str, Identity]) -> multiples.Curves:
    bands = {server: middle(own) for server in looks if len(own := points[points["server"] == server])}
    lines = {
        server: (np.asarray(line.index, np.float64), np.asarray(line, np.float64))
        for server, (line, _, _) in bands.items()
    }

    def draw(ax: Axes, server: str) -> None:
        look, (line, low, high) = looks[server], bands[server]
        ax.plot(line.index, line, color=look.color, ls=look.dash, label=server)
        ax.fill_between(line.index, low, high, color=look.color, alpha=0.18, lw=0)
        ax.plot(line.index[-1], line.iloc[-1], color=look.color, marker=look.marker, ms=5.5)

    def finish(ax: Axes) -> None:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(1 / (1 - FIRST_QUANTILE), max(x[-1] for x, _ in lines.values()) * 1.4)
        ends = [float(end) for _, low, high in bands.values() for end in (low.min(), high.max())]
        ax.set_ylim(min(ends) / 1.08, max(ends) * 1.08)
        shares = [2.0, *(10.0**power for power in range(1, 9))]
        scales.ticks_across(ax, [share for share in shares if share <= ax.get_xlim()[1]], _percent)
        scales.log_axis(ax, "y")

    return multiples.Curves(
        name, words, looks, lines, draw, finish, "requests that were faster, % (log scale of the rest)",
        "latency, ms (log scale)", nothing=f"Too few requests: no trial has {BEYOND} beyond its "
        f"{FIRST_QUANTILE:.0%} percentile.", panel_in=2.9,
    )  # fmt: skip


def _percent(share: float) -> str:
    """Print 1 / (1 - q) as the percentile: 99.9 for 1000."""
    return f"{100 - 100 / share:.10g}"


def _band_words(trials: pd.DataFrame) -> str:
    fewest = trials.groupby(["load", "server"])["trial_id"].nunique().min()
    if fewest >= FEWEST:
        return "Line: geometric mean of the trials; band: its 95 % interval, at each percentile."
    return f"Line: median of the trials; band: minimum to maximum (from {FEWEST} trials on: mean, 95 % interval)."


def middle(own: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float], pd.Series[float]]:
    """Return line, lower and upper end of a server's band, by x.

    Where some trials carry fewer requests their curves end earlier; the line needs all of them.
    """
    curves = own.pivot(index="trial_id", columns="x", values="ms").dropna(axis="columns")
    if len(curves) < FEWEST:
        return curves.median(), curves.min(), curves.max()
    found = band(curves.to_numpy(), 1 - 1 / curves.columns.to_numpy())
    line, low, high = (pd.Series(side, curves.columns) for side in (found.ms, found.low_ms, found.high_ms))
    return line, low, high


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
    trials = tables.timed("k6")
    points = density_points(trials, tables.latency)
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    if points.empty:
        return style.no_data(title, "The latency table has no requests of this run's k6 trials.")
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    shown = [name for name in looks if name in set(points["server"])]
    words = (
        "Height: share of the requests in bins 5 % wide, to one scale in each panel, every trial weighing the same. "
        "Upright mark, and the number on the right: median of the trials' medians."
    )
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), words),
        rows=len(loads),
        panel_in=0.3 + 0.52 * len(shown),
        left_in=max(0.95, style.label_room(shown)),
        right_in=MEDIANS_IN,
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
        ax.plot([median, median], [row, row + 0.25], color=style.INK, lw=1.8)
        ax.text(1.02, row, f"{style.number(median)} ms", transform=ax.get_yaxis_transform(), size=style.TEXT_PT)
    ax.set_xscale("log")
    scales.log_axis(ax, "x")
    ax.set_ylim(-0.06, len(present))
    ax.set_yticks(range(len(present)), [style.short(name) for name in reversed(present)])
    ax.tick_params(axis="y", length=0)
    for label, server in zip(ax.get_yticklabels(), reversed(present), strict=True):
        label.set(color=looks[server].ink, size=style.TEXT_PT, va="bottom")
    ax.set_xlabel("latency, ms (log scale)")
