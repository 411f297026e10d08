"""Draw the slices of k6's closed loads side by side on one time axis, with breaks between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart.drawing import band
from runner.present.chart.value import Axis, Chart, ServerLoad, cells, points
from runner.present.figures.seconds import FINE_S, SECONDS
from runner.present.frames import Tables
from runner.present.look import style
from runner.present.look.palette import Identity

BREAK = 0.12
"""Width of the break between two slices, as a share of the longest slice."""
FEWEST_OF_QUARTILES = 4
"""A band reaches from quartile to quartile only if there are at least this many trials.

With fewer trials, the band reaches from minimum to maximum.
"""
MIDDLE = (0.25, 0.75)
"""The two quantiles between which a band is drawn if there are enough trials."""


@dataclass(frozen=True)
class Part:
    """A slice of a trial, or the whole load of a trial without slices.

    `number` is the number of the slice, counted from 1. It is 1 for a whole load. `begin_s` and
    `end_s` are in seconds since the load began.
    """

    trial_id: str
    number: int
    begin_s: float
    end_s: float

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows whose `t_s` is in this part of the load.

        In the result, `t_s` is in seconds since the part began. The part is taken to begin and to
        end earlier by half a bin of the throughput table, so that a rounding error in `t_s` does
        not move a row into the previous part.
        """
        inside = rows["t_s"].between(self.begin_s - FINE_S / 2, self.end_s - FINE_S / 2, "left")
        return rows[inside].assign(t_s=rows["t_s"] - self.begin_s)


def parts_of(tables: Tables, trials: pd.DataFrame) -> list[Part]:
    """Return the parts of the trials: each slice, or the whole load of a trial without slices.

    Disturbed slices, for which the table of slices has `kept` = False, are left out. In the other
    tables of a run, `t_s` does not include the time of these slices. Therefore each part begins
    when the previous part ends.
    """
    known = tables.slices()
    kept = known[known["kept"].astype(bool) & known["trial_id"].isin(trials["trial_id"])]
    by_trial = {str(name): rows for name, rows in kept.sort_values("place").groupby("trial_id")}
    found = []
    for trial_id, duration_s in trials[["trial_id", "duration_s"]].itertuples(index=False):
        if trial_id not in by_trial:
            found.append(Part(trial_id, 1, 0.0, float(duration_s)))
            continue
        rows = by_trial[trial_id]
        ends_s = rows["duration_s"].cumsum()
        begins_s = ends_s - rows["duration_s"]
        times = zip(rows["place"], begins_s, ends_s, strict=True)
        found += [Part(trial_id, int(place), float(a), float(b)) for place, a, b in times]
    return found


def bin_width(parts: list[Part]) -> float:
    """Return the largest bin width, in seconds, with which the shortest part has ten bins or more.

    The width is 1, 0.5, 0.2 or 0.1 s. If a part is too short for ten bins of 0.1 s, it has fewer
    bins.
    """
    shortest_s = min(part.end_s - part.begin_s for part in parts)
    return next((width for width in (1.0, 0.5, 0.2) if shortest_s >= 10 * width), 0.1)


def with_widths(tables: Tables, trials: pd.DataFrame) -> Iterator[tuple[ServerLoad, float]]:
    """Yield each cell with the width of its bins, in seconds.

    All cells of a load have bins of the same width.
    """
    for _, of_load in trials.groupby("load", sort=False):
        width_s = bin_width(parts_of(tables, of_load))
        for cell in cells(tables, of_load):
            yield cell, width_s


def curve(cell: ServerLoad, by_number: Mapping[int, pd.DataFrame], **more: Any) -> pd.DataFrame:
    """Return the points of a cell's curve in each slice: the median of the trials, and a band.

    `by_number` maps the number of each slice to a frame with the values in this slice. The frame
    has a column for each trial, and the frame's index is in seconds since the slice began. Bins in
    which a trial has NaN are left out, because these bins lie after the end of the shortest trial.
    """
    found = []
    for number, values in sorted(by_number.items()):
        whole = values.dropna()
        ends = MIDDLE if whole.shape[1] >= FEWEST_OF_QUARTILES else (0.0, 1.0)
        low, high = (whole.quantile(end, axis=1) for end in ends)
        middle = whole.median(axis=1)
        found.append(points(cell, "median", whole.index, middle, low, high, number=number, **more))
    if not found:
        return points(cell, "median", [], [], number=np.nan, **more)
    return pd.concat(found, ignore_index=True)


def laid_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Return curves whose slices are side by side on the x axis, with a row of NaN in each break.

    In `frame`, `x` is in seconds since the slice began. In the result, `x` is the position on the
    axis, and the additional column `begin` is the position at which the slice begins. All slices of
    a panel take as much space as the longest slice.
    """
    if frame.empty:
        return frame
    length = frame.groupby("panel")["x"].transform("max")
    begin = (frame["number"] - 1) * length * (1 + BREAK)
    placed = frame.assign(begin=begin, x=frame["x"] + begin)
    by_slice = placed.groupby(["panel", "server", "number"], sort=False, dropna=False)
    parts = []
    for _, rows in by_slice:
        unknown = dict.fromkeys(("y", "low", "high"), np.nan)
        parts += [rows, rows.tail(1).assign(**unknown)]
    return pd.concat(parts, ignore_index=True)


def across(ax: Axes, chart: Chart, panel: str) -> None:
    """Set the limits and ticks of the x axis of a panel.

    The ticks are labelled with the seconds since the load or the slice began.
    """
    rows = chart.frame[chart.frame["panel"] == panel]
    begins = sorted(rows["begin"].dropna().unique())
    longest_s = float((rows["x"] - rows["begin"]).max())
    end = float(rows["x"].max())
    if not begins or len(begins) == 1:
        style.limit(ax, "x", 0, end if end > 0 else 1.0)
        return
    ax.set_xlim(0, end)
    step_s = next((step for step in (10.0, 5.0, 2.0, 1.0, 0.5) if step <= longest_s * 0.9), 0.2)
    # Only the last slice has room for a second tick.
    seconds = dict.fromkeys(begins, 0.0) | {begins[-1] + step_s: step_s}
    style.ticks_across(ax, list(seconds), lambda x: style.plain(seconds[x]))


def axis(frame: pd.DataFrame) -> Axis:
    """Return the x axis, which shows time.

    The label of the axis says that time counts from the start of the load, or from the start of the
    slice. If only some panels have slices, the label mentions both.
    """
    counts = frame.groupby("panel")["number"].nunique() if len(frame) else pd.Series(dtype=int)
    if (counts <= 1).all():
        return Axis(SECONDS, SECONDS, " s")
    since = "slice" if (counts > 1).all() else "load, or its slice,"
    label = f"seconds since the {since} began"
    return Axis(label, label, " s")


def words(trials: pd.DataFrame) -> str:
    """Return the sentence of the caption that says what lines and bands show."""
    counts = trials.groupby(["load", "server"])["trial_id"].nunique()
    if counts.max() == 1:
        return "Each line is the only trial."
    band_words = "minimum to maximum"
    if counts.max() >= FEWEST_OF_QUARTILES:
        is_of_all = counts.min() >= FEWEST_OF_QUARTILES
        band_words = f"the middle half of them{'' if is_of_all else ', or all of fewer than four'}"
    return f"Lines are medians of the trials, and bands {band_words}."


def solid_band(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    """Draw a curve with its band.

    The curve has no dashes, because it is the only coloured curve in its panel.
    """
    band(ax, rows, replace(look, dash="-"), label)
