"""Figures of k6's response times, from the mergeable latency histograms, and of its requests per second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart import Axis, Chart, Extreme, ServerLoad, Shared, cells, chart, empty, points, sentences
from runner.present.chart.drawing import ridges
from runner.present.figures.seconds import bin_width, rates_in_bins
from runner.present.frames import Tables, server_bound
from runner.present.look import captions, scales, style
from runner.present.look.palette import identities
from runner.present.statistics.inference import FEWEST, band, trial_curves
from runner.present.statistics.stats import BEYOND

FIRST_QUANTILE = 0.25
POINTS_PER_DECADE = 24
COARSE = 5
"""Buckets of 1 % that one bin of the density holds: 1.01 ** 5 is 5.1 % wide."""
MEDIANS_IN = 1.0
"""Width of the medians right of the densities."""


def spectrum_points(trials: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """Return the percentile spectrum of each trial: load, server, trial_id, ms, x = 1/(1-q) of q (0 to 1).

    Each trial ends at the last quantile that has `BEYOND` of its requests above it.
    """
    grid = np.arange(round(np.log10(1 / (1 - FIRST_QUANTILE)) * POINTS_PER_DECADE), 8 * POINTS_PER_DECADE)
    quantiles = 1 - 10.0 ** (-grid / POINTS_PER_DECADE)
    parts = []
    for (load, server, trial_id), buckets in _buckets(trials, latency):
        (ms,) = trial_curves(buckets.assign(trial_id=trial_id), quantiles)
        curve = {"load": load, "server": server, "trial_id": trial_id, "ms": ms, "x": 1 / (1 - quantiles)}
        parts.append(pd.DataFrame(curve).dropna(subset=["ms"]))
    columns = ["load", "server", "trial_id", "ms", "x"]
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
    found, middle = spectrum_points(trials, tables.latency), "geometric mean"
    band_words = "Line: geometric mean of the trials; band: its 95 % interval, at each percentile."
    if trials.groupby(["load", "server"])["trial_id"].nunique().min() < FEWEST:
        middle, otherwise = "median", f"from {FEWEST} trials on: mean, 95 % interval"
        band_words = f"Line: median of the trials; band: minimum to maximum ({otherwise})."
    words = f"{band_words} A curve ends where fewer than {BEYOND} requests of a trial lie beyond the percentile."
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
        statistic=f"{middle} of the trials",
        describe=partial(_describe_spectrum, verdicts=_verdicts(trials)),
    )


def _curve(cell: ServerLoad, found: pd.DataFrame) -> pd.DataFrame:
    """Return line, lower and upper end of a server's band."""
    own = found[(found["load"] == cell.panel) & (found["server"] == cell.server)]
    if own.empty:
        return points(cell, "middle", [], [])
    # Where some trials carry fewer requests their curves end earlier; the line needs all of them.
    curves = own.pivot(index="trial_id", columns="x", values="ms").dropna(axis="columns")
    x, ms = curves.columns.to_numpy(), curves.to_numpy()
    if len(curves) < FEWEST:
        return points(cell, "middle", x, np.median(ms, axis=0), ms.min(axis=0), ms.max(axis=0))
    sure = band(ms)
    return points(cell, "middle", x, sure.ms, sure.low_ms, sure.high_ms)


def _spectrum_axes(ax: Axes, chart: Chart, panel: str) -> None:
    own = chart.frame[chart.frame["panel"] == panel]
    last = own["x"].max() * 1.4
    ax.set(xscale="log", xlim=(1 / (1 - FIRST_QUANTILE), last))
    scales.limit(ax, "y", own["low"].min() / 1.08, own["high"].max() * 1.08, log=True)
    shares = [2.0, *(10.0**power for power in range(1, 9))]
    scales.ticks_across(ax, [share for share in shares if share <= last], lambda x: f"{100 - 100 / x:.10g}")


def _describe_spectrum(chart: Chart, verdicts: str) -> str:
    """Describe the lines at the first and the last whole percentile that all have."""
    clauses = {}
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        lines = {name: own.set_index("x")["y"] for name, rows in curves.items() if len(own := rows.dropna(subset="y"))}
        clauses[panel] = [said + sentences.unknown(curves, lines) for said in _percentiles(lines, chart.y)]
    return sentences.fit(sentences.head(chart), sentences.in_loads(clauses), verdicts)


def _percentiles(lines: Mapping[str, pd.Series[float]], up: Axis) -> tuple[str, str]:
    """Return what the lines say at the first and the last percentile that all have, and the last alone in short."""
    if not lines:
        words = f"nothing is drawn: no trial has {BEYOND} requests beyond its {FIRST_QUANTILE:.0%} percentile"
        return words, words
    common = sorted(set.intersection(*(set(line.index) for line in lines.values())))
    marks = [x for x in common if abs(math.log10(x) - round(math.log10(x))) < 1e-6] or common[-1:]
    long, short = [], ""
    for mark in dict.fromkeys((marks[0], marks[-1])):
        values = sentences.by_value({name: float(line[mark]) for name, line in lines.items()}, rising=True)
        texts = {name: up.say(ms) for name, ms in values.items()}
        noun = f"p{100 - 100 / mark:.6g} value"
        long.append(sentences.said(noun, "fastest first", texts))
        short = sentences.said(noun, "fastest first", texts, short=True)
    return " and ".join(long), short


def _verdicts(trials: pd.DataFrame) -> str:
    return f"Verdicts: {captions.verdict_counts(trials)}."


def density_points(trials: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """Return the density of each server's latency: load, server, ms (a bin's middle), share_pct of requests.

    A bin is `COARSE` buckets wide. Each trial weighs the same, however many requests it has.
    """
    parts, width = [], np.log(1.01) * COARSE
    for (load, server, _), buckets in _buckets(trials, latency):
        # The middle of a bucket, so that rounding of its border cannot move it to the bin below.
        middle = np.log(np.sqrt(buckets["lower_ms"].clip(lower=1e-6) * buckets["upper_ms"]))
        bins = np.floor(middle / width).astype(int)
        share = 100 * buckets["count"].groupby(bins).sum() / buckets["count"].sum()
        parts.append(pd.DataFrame({"load": load, "server": server, "bin": share.index, "share_pct": share.values}))
    if not parts:
        return pd.DataFrame(columns=["load", "server", "ms", "share_pct"])
    total = pd.concat(parts).groupby(["load", "server", "bin"])["share_pct"].sum().reset_index()
    count = trials.groupby(["load", "server"])["trial_id"].nunique().to_dict()
    trials_of = [count[pair] for pair in zip(total["load"], total["server"], strict=True)]
    return total.assign(ms=np.exp((total["bin"] + 0.5) * width), share_pct=total["share_pct"] / trials_of)


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
    ridges_of = []
    for cell in cells(tables, trials):
        own = found[(found["load"] == cell.panel) & (found["server"] == cell.server)].sort_values("ms")
        median = cell.trials["latency_p50_ms"].median()
        ridges_of.append(points(cell, "share", own["ms"], own["share_pct"], median=median))
    words = (
        "Height: share of the requests in bins 5 % wide, to one scale in each panel, every trial weighing the same. "
        "Upright mark, and the number on the right: median of the trials' medians."
    )
    return Chart(
        title,
        pd.concat(ridges_of, ignore_index=True),
        Axis("latency, ms (log scale)", "response time at saturation in ms", " ms", log=True),
        Axis("share, %", "the share of the requests"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "response time"),
        draw=_draw_density,
        describe=partial(_describe_density, verdicts=_verdicts(trials)),
    )


def _draw_density(chart: Chart) -> Figure:
    known = set(chart.frame.dropna(subset="y")["server"])
    shown = [server for server in chart.looks if server in known]
    figure, axes = style.canvas(
        chart.title, chart.caption, rows=len(chart.headings), panel_in=0.3 + 0.52 * len(shown),
        left_in=max(0.95, style.label_room(shown)), right_in=MEDIANS_IN,
    )  # fmt: skip
    for ax, (panel, heading) in zip(axes, chart.headings.items(), strict=True):
        style.heading(ax, *heading)
        curves = {name: own for name, own in chart.of_panel(panel).items() if own["y"].notna().any()}
        ridges(ax, curves, chart.looks, COARSE * math.log(1.01), 0.85)
        ax.set_xlabel(chart.x.label)
    return figure


def _describe_density(chart: Chart, verdicts: str) -> str:
    """Describe each server's median, and where its ridge begins and ends."""

    def median(ridge: pd.DataFrame) -> float:
        return float(ridge["median"].iloc[0]) if ridge["y"].notna().any() else math.nan

    sentence = (
        "Ridge plot of the share of the requests (up) by response time at saturation in ms (across, logarithmic), "
        f"{sentences.scope(chart)}, each with its median marked."
    )
    shortest = Extreme("median", rising=True, first="shortest")
    key = "In brackets: where a ridge begins and ends."
    return sentences.ranking(
        chart, sentence, shortest, chart.x, median, lambda r: f" ({sentences.ends(r['x'])})", key, tail=verdicts
    )


# --- requests per second ------------------------------------------------------------------------------------


def rates(trials: pd.DataFrame, throughput: pd.DataFrame) -> pd.DataFrame:
    """Return requests/s of each trial of one load: server, trial_id, t_s (a bin's start), rps.

    Bins without requests count as 0. Every trial of a server ends with the shortest one, so that each median is
    one of the same trials; the last 0.1 s of a load is hardly ever a full bin, and is left out. Lengths come from
    the bins themselves: the trials' `duration_s` need not count a generator's start-up, as `t_s` does.
    """
    width = bin_width(trials)
    parts = [pd.DataFrame(columns=["server", "trial_id", "t_s", "rps"])]
    for server, own in trials.groupby("server"):
        rows = throughput[throughput["trial_id"].isin(own["trial_id"])]
        shortest_s = rows.groupby("trial_id")["t_s"].max().min()
        for trial_id, each in rows.groupby("trial_id"):
            rps = rates_in_bins(each["t_s"], each["requests"], width, shortest_s)
            parts.append(pd.DataFrame({"server": server, "trial_id": trial_id, "t_s": rps.index, "rps": rps.values}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


@chart("requests-over-time", notebook="report", table=captions.BY_LOAD)
def requests_over_time(tables: Tables) -> Chart:
    """Return requests/s over time: the median of each server's trials, with minimum and maximum."""
    title, trials = "Requests per second over time", tables.sealed("k6")
    if trials.empty:
        return empty(title, "requests per second over time", captions.nothing(tables, "k6"))
    words = (
        "Line: median of the trials; band: minimum to maximum; up to the end of the server's shortest trial. "
        "Pale: the server was not the limit in every trial; do not rank."
    )
    loads = {str(load): own for load, own in trials.groupby("load", sort=False)}
    found, curves = {load: rates(own, tables.throughput) for load, own in loads.items()}, []
    for cell in cells(tables, trials):
        rows, bound = found[cell.panel], server_bound(cell.trials)
        curve = rows[rows["server"] == cell.server].groupby("t_s")["rps"].agg(["median", "min", "max"])
        curves.append(points(cell, "median", curve.index, curve["median"], curve["min"], curve["max"], bound))
    return Chart(
        title,
        pd.concat(curves, ignore_index=True),
        Axis("seconds since the load began", "seconds since the load began"),
        Axis("requests/s", "requests per second", "/s"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "throughput"),
        shared=Shared(left_in=1.12, nothing="The throughput table has no requests of this load."),
        xlabels={load: f"seconds since the load began (bins of {bin_width(own):g} s)" for load, own in loads.items()},
        hollow="Pale lines do not rank: the server was not the limit in every trial.",
        describe=_describe_rates,
    )


def _describe_rates(chart: Chart) -> str:
    """Describe each line's median over time, its lowest and highest point."""
    return sentences.ranking(
        chart, sentences.head(chart), Extreme("typical rate"), chart.y, lambda rows: float(rows["y"].median()),
        lambda rows: f" ({sentences.ends(rows['y'])})", "In brackets: the lowest and highest point of a line.", _pale,
    )  # fmt: skip


def _pale(curves: sentences.Lines) -> str:
    """Say which of the servers are drawn pale, since they were not the limit in every trial: `; all are pale`."""
    known = [server for server, rows in curves.items() if rows["y"].notna().any()]
    found = [server for server in known if not curves[server]["solid"].all()]
    if not found:
        return "; none is pale" if known else ""
    return "; all are pale" if found == known else f"; pale: {sentences.names_or_count(found)}"
