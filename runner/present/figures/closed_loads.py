"""Make the figures of k6's closed loads: response times, and requests per second over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.model import REQUESTS_BEYOND
from runner.present.chart.drawing import Shared, ridges
from runner.present.chart.sentences import ends
from runner.present.chart.value import (
    Axis,
    Chart,
    Fact,
    ServerLoad,
    cells,
    chart,
    empty,
    of_trials,
    points,
    tidy,
)
from runner.present.comparison import ratios
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.figures import slices
from runner.present.figures.seconds import rates_in_bins
from runner.present.frames import Tables, limits_of
from runner.present.look import captions, style
from runner.present.look.numbers import number
from runner.present.statistics.inference import FEWEST_TRIALS, band, mean_of, trial_curves
from runner.verdict.limits import Limit

FIRST_QUANTILE = 0.25
POINTS_PER_DECADE = 24
TICKS = (2.0, *(10.0**power for power in range(1, 9)))
"""Positions of the ticks at the percentiles 50, 90, 99, 99.9 and so on.

The quantile q is at the position x = 1 / (1 - q).
"""
BIN = math.log(1.01) * 5
"""Width of a bin of the density: the difference of the natural logarithms of the bin's borders.

A bin consists of five buckets of the latency histogram. The upper border of a bucket is 1.01 times
its lower border, so the upper border of a bin is 1.051 times its lower border.
"""
MEDIANS_IN = 1.0  # width of the column of medians to the right of the densities
MS = Axis("latency, ms (log scale)", "response time at saturation in ms", " ms", log=True)
STEADY_PCT = 85.0
"""A server slows down if its rate at the end of a load is below this percentage of its usual rate.

The rate at the end is the rate in the last third of each slice, or of a load without slices. The
usual rate is the rate in the middle third. If servers slow down, the title of the chart names the
server that slows down most.
"""


def by_load(
    tables: Tables,
    trials: pd.DataFrame,
    title: str,
    frame: pd.DataFrame,
    x: Axis,
    y: Axis,
    words: str,
    quantity: str,
    **more: Any,
) -> Chart:
    """Return a chart of k6's closed loads, with a panel for each load.

    `quantity` is the name of the drawn quantity. The heading of a panel says how the load was
    driven, and whether the quantity was measured at saturation. If there are no trials, the chart
    contains a sentence with the reason instead of panels.
    """
    if trials.empty:
        return empty(title, captions.nothing(tables, "k6"))
    headings = captions.load_headings(trials, quantity)
    every = tables.of("k6")
    drawn = every[every["load"].isin(trials["load"])]
    return of_trials(tables, drawn, title, frame, x, y, words, headings=headings, **more)


@chart("latency-spectrum", notebook="report", table=captions.BY_LOAD)
def spectrum(tables: Tables) -> Chart:
    """Return the chart of latency by percentile.

    For each server, a line is the mean of its trials, and a band is the mean's 95 % interval. If
    there are fewer than `FEWEST_TRIALS` trials, the band is the range of the trials instead.
    """
    trials = ratios.compared(tables, tables.timed("k6"))
    nothing = (
        f"Too few requests: no trial has {REQUESTS_BEYOND} requests beyond its "
        f"{FIRST_QUANTILE:.0%} percentile."
    )
    frame = tidy(_spectrum(cell, tables.latency) for cell in cells(tables, trials))
    words = "Lines are means of the trials, and bands their 95 % intervals."
    if trials.groupby(["load", "server"])["trial_id"].nunique().min() < FEWEST_TRIALS:
        words = (
            "Lines are means of the trials, and bands their 95 % intervals, or minimum to maximum "
            f"of fewer than {FEWEST_TRIALS}."
        )
    x = Axis("percentile of the requests", "percentile of the requests", log=True)
    return by_load(
        tables,
        trials,
        _spectrum_finding(frame, trials) or "Latency by percentile",
        frame,
        x,
        MS,
        words,
        "response time",
        nothing=nothing,
        statistic=f"geometric mean of the trials. Verdicts: {captions.verdict_counts(trials)}.",
        facts=_percentile_facts(frame),
        draw=Shared(2.9, finish=_spectrum_axes),
    )


def _spectrum_finding(frame: pd.DataFrame, trials: pd.DataFrame) -> str:
    """Return a title that compares the response times of the fastest and the slowest server.

    All response times are taken at the same percentile. It is the highest percentile of `TICKS`
    that every line reaches.

    - If there is only one line, the title gives the response time of its server.
    - If several servers ran under one load, the title gives the response times of the fastest and
      of the slowest server.
    - If there are several loads, the slowest server's response time is divided by the fastest
      server's, for each load. The title gives the lowest and the highest of these ratios.

    Return an empty text if any line ends before the lowest percentile of `TICKS`.
    """
    known = frame.dropna(subset="y")
    reach = float(known.groupby(["panel", "server"])["x"].max().min()) if len(known) else 0.0
    carried = [x for x in TICKS if x <= reach * 1.001]
    if not carried:
        return ""
    near = known.assign(apart=(known["x"] / carried[-1] - 1).abs())
    at = near.loc[near.groupby(["panel", "server"])["apart"].idxmin()].sort_values("y")
    share = _percentile(carried[-1])
    limits = set(limits_of(trials))
    prefix = "k6 is the limit: " if limits == {Limit.GENERATOR} else ""
    first, last = at.iloc[0], at.iloc[-1]
    if len(at) == 1:
        return f"{prefix}{share} % of the requests take at most {number(first['y'])} ms"
    if at["panel"].nunique() == 1:
        return (
            f"{prefix}{share} % of the requests take at most {number(first['y'])} ms "
            f"({first['server']}) to {number(last['y'])} ms ({last['server']})"
        )
    times = at.groupby("panel")["y"].agg(lambda ms: ms.max() / ms.min())
    text = f"{prefix}the slowest server's p{share} is {ends(times)} times the fastest's"
    return text[0].upper() + text[1:] if not prefix else text


def _spectrum(cell: ServerLoad, latency: pd.DataFrame) -> pd.DataFrame:
    """Return the points of a server's line and band.

    The quantile q is at the position x = 1 / (1 - q).

    The line ends at the last quantile for which all trials have enough requests.
    """
    grid = np.arange(
        round(np.log10(1 / (1 - FIRST_QUANTILE)) * POINTS_PER_DECADE), 8 * POINTS_PER_DECADE
    )
    quantiles = 1 - 10.0 ** (-grid / POINTS_PER_DECADE)
    curves = trial_curves(latency[latency["trial_id"].isin(cell.trials["trial_id"])], quantiles)
    carried = np.isfinite(curves).all(axis=0) & (len(curves) > 0)
    ms = curves[:, carried]
    x = 1 / (1 - quantiles[carried])
    if not len(x):
        return points(cell, "middle", [], [])
    found = band(ms)
    return points(cell, "middle", x, found.middle_ms, found.low_ms, found.high_ms)


def _spectrum_axes(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[chart.frame["panel"] == panel]
    end = float(rows["x"].max())
    following = next((tick for tick in TICKS if tick >= end), end)
    # Extend the axis to the next tick, unless more than half a decade would then be empty.
    last = max(end, following if following < end * 10**0.5 else 0.0) * 1.2
    ax.set(xscale="log", xlim=(1 / (1 - FIRST_QUANTILE), last))
    style.limit(ax, "y", rows["low"].min() / 1.08, rows["high"].max() * 1.08, log=True)
    style.ticks_across(ax, [tick for tick in TICKS if tick <= last], _percentile)


def _percentile(x: float) -> str:
    """Return the percentile at the position `x` of the x axis, for example `99.9` for x = 1000."""
    return f"{100 - 100 / x:.10g}"


def _percentile_facts(frame: pd.DataFrame) -> tuple[Fact, ...]:
    """Return the facts that the description gives: the values at two percentiles.

    The first percentile is p90. The second is the highest of p99, p99.9 and so on that all lines
    reach. If a line does not reach p99, there is only the fact about p90. If a line does not even
    reach p90, there is only a fact about the highest percentile that all lines reach.
    """
    last = frame.dropna(subset="y").groupby(["panel", "server"])["x"].max().min()
    powers = [10.0**power for power in range(1, 9) if 10.0**power <= last * 1.001] or [last]

    def fact(share: float) -> Fact:
        def value(rows: pd.DataFrame) -> float:
            return float(rows["y"].iloc[int((rows["x"] / share - 1).abs().argmin())])

        return Fact(
            f"p{100 - 100 / share:.6g} value", value, " ms", rising=True, order="fastest first"
        )

    return tuple(map(fact, dict.fromkeys((powers[0], powers[-1]))))


def density_of(trials: pd.DataFrame, latency: pd.DataFrame, width: float) -> pd.Series[float]:
    """Return the share of requests in each bin of response time, in %.

    The natural logarithms of a bin's borders differ by `width`. The index of the result is the
    centre of each bin in ms. All trials have equal weight, however many requests they have.
    """
    rows = latency[latency["trial_id"].isin(trials["trial_id"])]
    # Use the centre of a bucket to find its bin. The lower border is rounded, so it could fall into
    # the bin below.
    bins = np.floor(np.log(np.sqrt(rows["lower_ms"].clip(lower=1e-6) * rows["upper_ms"])) / width)
    whole = rows.groupby("trial_id")["count"].transform("sum")
    shares = (100 * rows["count"] / whole).groupby(bins).sum() / trials["trial_id"].nunique()
    return shares.set_axis(np.exp((shares.index + 0.5) * width))


@chart("latency-density", notebook="report", table=captions.BY_LOAD)
def density(tables: Tables) -> Chart:
    """Return the chart of latency densities, with a ridge and a median for each server."""
    trials = ratios.compared(tables, tables.timed("k6"))
    ridges_of = []
    for cell in cells(tables, trials):
        shares = density_of(cell.trials, tables.latency, BIN)
        p50_ms = mean_of(cell.trials["latency_p50_ms"]).value
        ridges_of.append(points(cell, "share", shares.index, shares, median=p50_ms))
    words = "Height is the share of the requests that took so long, and a mark the mean p50."
    y = Axis("share, %", "the share of the requests")
    verdicts = captions.verdict_counts(trials)
    frame = tidy(ridges_of)
    medians = frame["median"].dropna() if len(frame) else pd.Series(dtype=float)
    title = "Latency: how the requests spread"
    if len(medians):
        title = f"Half of the requests take at most {ends(medians)} ms"
    fact = Fact(
        "median",
        lambda rows: float(rows["median"].max()),
        " ms",
        ends_of="x",
        rising=True,
        order="shortest first",
    )
    return by_load(
        tables,
        trials,
        title,
        frame,
        MS,
        y,
        words,
        "response time",
        nothing="The latency table has no requests of this run's k6 trials.",
        kind="Ridge plot",
        statistic="each with its median marked; in brackets where it begins and ends. Verdicts: "
        f"{verdicts}.",
        facts=(fact,),
        draw=_draw_density,
    )


def _draw_density(chart: Chart) -> Figure:
    known = set(chart.frame.dropna(subset="y")["server"])
    shown = [server for server in chart.looks if server in known]
    left_in = max(0.95, style.label_room(shown))
    row = style.PanelRow(1, 0.3 + 0.52 * len(shown), left_in=left_in, right_in=MEDIANS_IN)
    figure, axes = style.page(chart.title, chart.caption, [row] * len(chart.headings))
    for (ax,), (panel, heading) in zip(axes, chart.headings.items(), strict=True):
        style.heading(ax, *heading)
        ridges(ax, chart, panel, BIN, 0.85)
    return figure


def rates(trials: pd.DataFrame, throughput: pd.DataFrame, width: float) -> pd.DataFrame:
    """Return requests/s of a cell's trials, with a column for each trial and a row for each bin.

    All trials are cut to the length of the shortest trial, so that the median of every bin can be
    computed from the same trials. A trial is as long as the `t_s` of its last bin in `throughput`.
    The trial's `duration_s` is not used, because `t_s` includes the generator's start-up, but
    `duration_s` may exclude it. The last 0.1 s of a load is left out, because it is rarely a full
    bin.
    """
    rows = throughput[throughput["trial_id"].isin(trials["trial_id"])]
    end_s = rows.groupby("trial_id")["t_s"].max().min()
    by_trial = rows.groupby("trial_id")
    return pd.DataFrame(
        {
            trial: rates_in_bins(each["t_s"], each["requests"], width, end_s)
            for trial, each in by_trial
        }
    )


@chart("requests-over-time", notebook="report", table=captions.BY_LOAD)
def requests_over_time(tables: Tables) -> Chart:
    """Return the chart of requests/s over time, with the median and a band for each server."""
    trials = ratios.compared(tables, tables.of("k6"))
    curves = [
        slices.curve(
            cell,
            _rates_by_slice(tables, cell.trials, width_s),
            solid=ranks_by_throughput(cell.trials),
            rate_rps=mean_of(cell.trials["throughput_rps"]).value,
        )
        for cell, width_s in slices.with_widths(tables, trials)
    ]
    frame = slices.laid_out(tidy(curves))
    return by_load(
        tables,
        trials,
        _pace_finding(frame) or "Requests per second over time",
        frame,
        slices.axis(frame),
        Axis("requests/s", "requests per second", "/s"),
        slices.words(trials),
        "throughput",
        key="Pale: in at least one trial, the server was not the limit; do not rank.",
        nothing="The throughput table has no requests of this load.",
        statistic="median of the trials over time; rate: their mean, in brackets the line from "
        "lowest to highest",
        pale="Pale lines must not be ranked: in at least one trial, the server was not the limit.",
        facts=(Fact("rate", lambda rows: float(rows["rate_rps"].max()), "/s", ends_of="y"),),
        draw=Shared(left_in=1.12, apart=True, mark=slices.solid_band, finish=_rate_axes),
    )


def _rates_by_slice(
    tables: Tables, trials: pd.DataFrame, width_s: float
) -> dict[int, pd.DataFrame]:
    """Return requests/s of a cell's trials in each slice, by the number of the slice.

    The frame of a slice has a column for each trial and a row for each bin. The index of the frame
    is the centre of each bin, in seconds since the slice began.
    """
    by_trial = {str(name): rows for name, rows in tables.throughput.groupby("trial_id")}
    shifted: dict[int, list[pd.DataFrame]] = {}
    for part in slices.parts_of(tables, trials):
        if part.trial_id in by_trial:
            rows = part.of(by_trial[part.trial_id])
            shifted.setdefault(part.number, []).append(rows)
    found = {}
    for slice_number, parts in shifted.items():
        by_bin = rates(trials, pd.concat(parts), width_s)
        found[slice_number] = by_bin.set_axis(by_bin.index + width_s / 2)
    return found


def _pace_finding(frame: pd.DataFrame) -> str:
    """Return a title that says which server slows down most, or that no server slows down.

    The rate in the last third of each slice is compared with the rate in the middle third. If the
    load has no slices, the thirds are those of the whole load. Return an empty text if there are
    too few points.
    """
    known = frame.dropna(subset="y")
    if known.empty:
        return ""
    by_slice = known.groupby(["panel", "server", "number"])["x"]
    first, last = by_slice.transform("min"), by_slice.transform("max")
    third = np.floor(3 * (known["x"] - first) / (last - first).clip(lower=1e-9)).clip(upper=2)
    rates = known["y"].groupby([known["panel"], known["server"], third]).median().unstack()
    if not {1.0, 2.0} <= set(rates.columns):
        return ""
    pace_pct = (100 * rates[2.0] / rates[1.0]).dropna()
    if pace_pct.empty:
        return ""
    slowest = float(pace_pct.min())
    if slowest >= STEADY_PCT:
        return "No server slows down while it is loaded"
    server = pace_pct.sort_values().index.get_level_values("server")[0]
    return f"At the end of the load {server} does {slowest:.0f} % of its rate in the middle"


def _rate_axes(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[chart.frame["panel"] == panel]
    high = float(rows[["y", "high"]].max().max())
    style.limit(ax, "y", 0, high * 1.08 or 1.0)
    slices.across(ax, chart, panel)
