"""Figures of k6's response times, from the mergeable latency histograms, and of its requests per second."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart import Axis, Chart, Fact, ServerLoad, Shared, cells, chart, empty, points, tidy
from runner.present.chart.drawing import ridges
from runner.present.chart.sentences import ends
from runner.present.figures.seconds import BINS, bin_width, rates_in_bins
from runner.present.frames import Tables, server_bound
from runner.present.look import captions, scales, style
from runner.present.look.palette import identities
from runner.present.statistics.inference import FEWEST, band, trial_curves
from runner.present.statistics.stats import BEYOND

FIRST_QUANTILE = 0.25
POINTS_PER_DECADE = 24
BIN = math.log(1.01) * 5
"""Width of a bin of the density in logarithms: five buckets of 1 % are 5.1 % wide."""
MEDIANS_IN = 1.0
"""Width of the medians right of the densities."""
MS = Axis("latency, ms (log scale)", "response time at saturation in ms", " ms", log=True)


@chart("latency-spectrum", notebook="report", table=captions.BY_LOAD)
def spectrum(tables: Tables) -> Chart:
    """Return latency against percentile: the middle of each server's trials, with its band."""
    title, trials = "Latency by percentile", tables.timed("k6")
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    nothing = f"Too few requests: no trial has {BEYOND} beyond its {FIRST_QUANTILE:.0%} percentile."
    frame, middle = tidy(_spectrum(cell, tables.latency) for cell in cells(tables, trials)), "geometric mean"
    if frame.empty:
        return empty(title, nothing)
    band_words = "Line: geometric mean of the trials; band: its 95 % interval, at each percentile."
    if trials.groupby(["load", "server"])["trial_id"].nunique().min() < FEWEST:
        middle, otherwise = "median", f"from {FEWEST} trials on: mean, 95 % interval"
        band_words = f"Line: median of the trials; band: minimum to maximum ({otherwise})."
    words = f"{band_words} A curve ends where fewer than {BEYOND} requests of a trial lie beyond the percentile."
    return Chart(
        title,
        frame,
        Axis("requests that were faster, % (log scale of the rest)", "percentile of the requests", log=True),
        MS,
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "response time"),
        statistic=f"{middle} of the trials. Verdicts: {captions.verdict_counts(trials)}.",
        facts=tuple(_at_percentile(share) for share in _whole_percentiles(frame)),
        nothing=nothing,
        draw=Shared(2.9, finish=_spectrum_axes),
    )


def _spectrum(cell: ServerLoad, latency: pd.DataFrame) -> pd.DataFrame:
    """Return a server's line with its band up to the last quantile that all of its trials carry: x is 1 / (1 - q)."""
    grid = np.arange(round(np.log10(1 / (1 - FIRST_QUANTILE)) * POINTS_PER_DECADE), 8 * POINTS_PER_DECADE)
    quantiles = 1 - 10.0 ** (-grid / POINTS_PER_DECADE)
    curves = trial_curves(latency[latency["trial_id"].isin(cell.trials["trial_id"])], quantiles)
    carried = np.isfinite(curves).all(axis=0) & (len(curves) > 0)
    ms, x = curves[:, carried], 1 / (1 - quantiles[carried])
    if not len(x):
        return points(cell, "middle", [], [])
    if len(ms) < FEWEST:
        return points(cell, "middle", x, np.median(ms, axis=0), ms.min(axis=0), ms.max(axis=0))
    sure = band(ms)
    return points(cell, "middle", x, sure.ms, sure.low_ms, sure.high_ms)


def _spectrum_axes(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[chart.frame["panel"] == panel]
    last = rows["x"].max() * 1.4
    ax.set(xscale="log", xlim=(1 / (1 - FIRST_QUANTILE), last))
    scales.limit(ax, "y", rows["low"].min() / 1.08, rows["high"].max() * 1.08, log=True)
    shares = [2.0, *(10.0**power for power in range(1, 9))]
    scales.ticks_across(ax, [share for share in shares if share <= last], lambda x: f"{100 - 100 / x:.10g}")


def _whole_percentiles(frame: pd.DataFrame) -> list[float]:
    """Return where the first and the last of p90, p99, p99.9 … are that all lines have, else where the first ends."""
    last = frame.dropna(subset="y").groupby(["panel", "server"])["x"].max().min()
    powers = [10.0**power for power in range(1, 9) if 10.0**power <= last * 1.001] or [last]
    return list(dict.fromkeys((powers[0], powers[-1])))


def _at_percentile(share: float) -> Fact:
    def value(rows: pd.DataFrame) -> float:
        return float(rows["y"].iloc[int((rows["x"] / share - 1).abs().argmin())])

    return Fact(f"p{100 - 100 / share:.6g} value", value, " ms", rising=True, order="fastest first")


def density_of(trials: pd.DataFrame, latency: pd.DataFrame, width: float) -> pd.Series[float]:
    """Return the share of the requests, in %, in bins `width` wide in logarithms, by a bin's middle in ms.

    Each trial weighs the same, however many requests it has.
    """
    rows = latency[latency["trial_id"].isin(trials["trial_id"])]
    # The middle of a bucket, so that rounding of its border cannot move it to the bin below.
    bins = np.floor(np.log(np.sqrt(rows["lower_ms"].clip(lower=1e-6) * rows["upper_ms"])) / width)
    whole = rows.groupby("trial_id")["count"].transform("sum")
    shares = (100 * rows["count"] / whole).groupby(bins).sum() / trials["trial_id"].nunique()
    return shares.set_axis(np.exp((shares.index + 0.5) * width))


@chart("latency-density", notebook="report", table=captions.BY_LOAD)
def density(tables: Tables) -> Chart:
    """Return where each server's latencies lie: a ridge for each server, its median marked."""
    title, trials = "Latency: how the requests spread", tables.timed("k6")
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    ridges_of = []
    for cell in cells(tables, trials):
        shares, median = density_of(cell.trials, tables.latency, BIN), cell.trials["latency_p50_ms"].median()
        ridges_of.append(points(cell, "share", shares.index, shares, median=median))
    words = (
        "Height: share of the requests in bins 5 % wide, to one scale in each panel, every trial weighing the same. "
        "Upright mark, and the number on the right: median of the trials' medians."
    )
    return Chart(
        title,
        tidy(ridges_of),
        MS,
        Axis("share, %", "the share of the requests"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "response time"),
        kind="Ridge plot",
        statistic="each with its median marked; in brackets where it begins and ends. "
        f"Verdicts: {captions.verdict_counts(trials)}.",
        facts=(Fact("median", _median, text=_median_and_ends, rising=True, order="shortest first"),),
        nothing="The latency table has no requests of this run's k6 trials.",
        draw=_draw_density,
    )


def _median(ridge: pd.DataFrame) -> float:
    return float(ridge["median"].iloc[0])


def _median_and_ends(ridge: pd.DataFrame) -> str:
    return f"{style.number(_median(ridge))} ms ({ends(ridge['x'])})"


def _draw_density(chart: Chart) -> Figure:
    known = set(chart.frame.dropna(subset="y")["server"])
    shown = [server for server in chart.looks if server in known]
    figure, axes = style.canvas(
        chart.title, chart.caption, rows=len(chart.headings), panel_in=0.3 + 0.52 * len(shown),
        left_in=max(0.95, style.label_room(shown)), right_in=MEDIANS_IN,
    )  # fmt: skip
    for ax, (panel, heading) in zip(axes, chart.headings.items(), strict=True):
        style.heading(ax, *heading)
        curves = {name: rows for name, rows in chart.of_panel(panel).items() if rows["y"].notna().any()}
        ridges(ax, curves, chart.looks, BIN, 0.85)
        ax.set_xlabel(chart.x.label)
    return figure


# --- requests per second ------------------------------------------------------------------------------------


def rates(trials: pd.DataFrame, throughput: pd.DataFrame, width: float) -> pd.DataFrame:
    """Return the requests/s of one server's trials under one load: a column for each trial, by the start of a bin.

    Bins without requests count as 0. Every trial ends with the shortest one, so that each median is one of the same
    trials; the last 0.1 s of a load is hardly ever a full bin, and is left out. Lengths come from the bins themselves:
    the trials' `duration_s` need not count a generator's start-up, as `t_s` does.
    """
    rows = throughput[throughput["trial_id"].isin(trials["trial_id"])]
    shortest_s, by_trial = rows.groupby("trial_id")["t_s"].max().min(), rows.groupby("trial_id")
    return pd.DataFrame(
        {trial: rates_in_bins(each["t_s"], each["requests"], width, shortest_s) for trial, each in by_trial}
    )


@chart("requests-over-time", notebook="report", table=captions.BY_LOAD)
def requests_over_time(tables: Tables) -> Chart:
    """Return requests/s over time: the median of each server's trials, with minimum and maximum."""
    title, trials = "Requests per second over time", tables.sealed("k6")
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    words = (
        f"Line: median of the trials' {BINS}; band: minimum to maximum; up to the end of the server's shortest trial. "
        "Pale: the server was not the limit in every trial; do not rank."
    )
    widths, curves = {load: bin_width(alike) for load, alike in trials.groupby("load")}, []
    for cell in cells(tables, trials):
        found = rates(cell.trials, tables.throughput, widths[cell.panel])
        middle, low, high = (found.agg(name, axis=1) for name in ("median", "min", "max"))
        curves.append(points(cell, "median", found.index, middle, low, high, server_bound(cell.trials)))
    y = Axis("requests/s", "requests per second", "/s")
    return Chart(
        title,
        tidy(curves),
        Axis("seconds since the load began", "seconds since the load began"),
        y,
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "throughput"),
        statistic="median of the trials; typical: over time, in brackets from lowest to highest",
        pale="Pale lines do not rank: the server was not the limit in every trial.",
        facts=(Fact("typical rate", lambda rows: float(rows["y"].median()), text=partial(typical, unit="/s")),),
        nothing="The throughput table has no requests of this load.",
        draw=Shared(left_in=1.12),
    )


def typical(rows: pd.DataFrame, unit: str) -> str:
    """Return the median of a line over time, with its lowest and highest point."""
    return f"{style.number(float(rows['y'].median()))}{unit} ({ends(rows['y'])})"
