"""Figures of k6 response times, from the mergeable latency histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart import Axis, Chart, Extreme, ServerLoad, Shared, cells, chart, empty, points, ridges
from runner.present.chart.describing import head, ranked
from runner.present.chart.sentences import by_value, ends, fit, in_loads, said, scope, unknown
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
from runner.present.look.palette import identities
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


@chart("latency-spectrum", notebook="report", table=captions.BY_LOAD)
def spectrum(tables: Tables) -> Chart:
    """Return latency against percentile: the middle of each server's trials, with its band."""
    title, trials = "Latency by percentile", tables.timed("k6")
    if trials.empty:
        return empty(title, "response times by percentile", captions.nothing(tables, "k6"))
    found = spectrum_points(trials, tables.latency)
    words = (
        f"{_band_words(trials)} A curve ends where fewer than {BEYOND} requests of a trial lie beyond the percentile."
    )
    return Chart(
        title,
        pd.concat([_curve(cell, found) for cell in cells(tables, trials)], ignore_index=True),
        Axis("requests that were faster, % (log scale of the rest)", "percentile of the requests", log=True),
        Axis("latency, ms (log scale)", "response time at saturation in ms", " ms", log=True),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "response time"),
        shared=Shared(
            panel_in=2.9,
            nothing=f"Too few requests: no trial has {BEYOND} beyond its {FIRST_QUANTILE:.0%} percentile.",
        ),
        finish=_spectrum_axes,
        statistic=f"{'median' if _fewest(trials) < FEWEST else 'geometric mean'} of the trials",
        describe=partial(_describe_spectrum, verdicts=_verdicts(trials)),
    )


def _curve(cell: ServerLoad, found: pd.DataFrame) -> pd.DataFrame:
    own = found[(found["load"] == cell.panel) & (found["server"] == cell.server)]
    if own.empty:
        return points(cell, "middle", [], [])
    line, low, high = middle(own)
    return points(cell, "middle", line.index, line, low, high)


def _spectrum_axes(ax: Axes, chart: Chart, panel: str) -> None:
    own = chart.frame[chart.frame["panel"] == panel]
    ax.set(xscale="log", yscale="log")
    ax.set_xlim(1 / (1 - FIRST_QUANTILE), own["x"].max() * 1.4)
    ax.set_ylim(own["low"].min() / 1.08, own["high"].max() * 1.08)
    shares = [2.0, *(10.0**power for power in range(1, 9))]
    scales.ticks_across(ax, [share for share in shares if share <= ax.get_xlim()[1]], _percent)
    scales.log_axis(ax, "y")


def _describe_spectrum(chart: Chart, verdicts: str) -> str:
    """Describe the lines at the first and the last whole percentile that all have."""
    clauses = {}
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        lines = {name: own.set_index("x")["y"] for name, rows in curves.items() if len(own := rows.dropna(subset="y"))}
        clauses[panel] = [said + unknown(curves, lines) for said in _percentiles(lines, chart.y)]
    return fit(head(chart), in_loads(clauses), verdicts)


def _percentiles(lines: Mapping[str, pd.Series[float]], up: Axis) -> tuple[str, str]:
    """Return what the lines say at the first and the last percentile that all have, and the last alone in short."""
    if not lines:
        words = f"nothing is drawn: no trial has {BEYOND} requests beyond its {FIRST_QUANTILE:.0%} percentile"
        return words, words
    common = sorted(set.intersection(*(set(line.index) for line in lines.values())))
    marks = [x for x in common if abs(math.log10(x) - round(math.log10(x))) < 1e-6] or common[-1:]
    long, short = [], ""
    for mark in dict.fromkeys((marks[0], marks[-1])):
        values = by_value({name: float(line[mark]) for name, line in lines.items()}, rising=True)
        texts = {name: up.say(ms) for name, ms in values.items()}
        noun = f"p{100 - 100 / mark:.6g} value"
        long.append(said(noun, "fastest first", texts))
        short = said(noun, "fastest first", texts, short=True)
    return " and ".join(long), short


def _percent(share: float) -> str:
    """Print 1 / (1 - q) as the percentile: 99.9 for 1000."""
    return f"{100 - 100 / share:.10g}"


def _fewest(trials: pd.DataFrame) -> int:
    return int(trials.groupby(["load", "server"])["trial_id"].nunique().min())


def _verdicts(trials: pd.DataFrame) -> str:
    return f"Verdicts: {captions.verdict_counts(trials)}."


def _band_words(trials: pd.DataFrame) -> str:
    if _fewest(trials) >= FEWEST:
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


@chart("latency-density", notebook="report", table=captions.BY_LOAD)
def density(tables: Tables) -> Chart:
    """Return where each server's latencies lie: a ridge for each server, its median marked."""
    title, about = "Latency: how the requests spread", "how response times spread"
    trials = tables.timed("k6")
    if trials.empty:
        return empty(title, about, captions.nothing(tables, "k6"))
    found = density_points(trials, tables.latency)
    if found.empty:
        return empty(title, about, "The latency table has no requests of this run's k6 trials.")
    words = (
        "Height: share of the requests in bins 5 % wide, to one scale in each panel, every trial weighing the same. "
        "Upright mark, and the number on the right: median of the trials' medians."
    )
    return Chart(
        title,
        pd.concat([_ridge(cell, found) for cell in cells(tables, trials)], ignore_index=True),
        Axis("latency, ms (log scale)", "response time at saturation in ms", " ms", log=True),
        Axis("share, %", "the share of the requests"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "response time"),
        draw=_draw_density,
        describe=partial(_describe_density, verdicts=_verdicts(trials)),
    )


def _ridge(cell: ServerLoad, found: pd.DataFrame) -> pd.DataFrame:
    own = found[(found["load"] == cell.panel) & (found["server"] == cell.server)].sort_values("ms")
    return points(cell, "share", own["ms"], own["share_pct"], median=cell.trials["latency_p50_ms"].median())


def _draw_density(chart: Chart) -> Figure:
    shown = list(dict.fromkeys(chart.frame.dropna(subset="y")["server"]))
    shown.sort(key=list(chart.looks).index)
    figure, axes = style.canvas(
        chart.title,
        chart.caption,
        rows=len(chart.headings),
        panel_in=0.3 + 0.52 * len(shown),
        left_in=max(0.95, style.label_room(shown)),
        right_in=MEDIANS_IN,
    )
    for ax, (panel, heading) in zip(axes, chart.headings.items(), strict=True):
        style.heading(ax, *heading)
        curves = {name: own for name, own in chart.of_panel(panel).items() if own["y"].notna().any()}
        ridges(ax, curves, chart.looks, COARSE * math.log(1.01), 0.85)
        ax.set_xlabel(chart.x.label)
    return figure


def _describe_density(chart: Chart, verdicts: str) -> str:
    """Describe each server's median, and where its ridge begins and ends."""
    shortest = Extreme("median", rising=True, first="shortest")
    clauses = {
        panel: ranked(chart.of_panel(panel), shortest, chart.x, _median, lambda ridge: f" ({ends(ridge['x'])})")
        for panel in chart.panels
    }
    sentence = (
        "Ridge plot of the share of the requests (up) by response time at saturation in ms (across, logarithmic), "
        f"{scope(chart.frame['server'], len(chart.panels))}, each with its median marked."
    )
    return fit(sentence, in_loads(clauses, "In brackets: where a ridge begins and ends."), verdicts)


def _median(ridge: pd.DataFrame) -> float:
    return float(ridge["median"].iloc[0]) if ridge["y"].notna().any() else math.nan
