"""Functions that read the lines and words of a drawn figure, and check that texts are readable.

The module also provides the runs whose figures are drawn.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import imported_run
import numpy as np
import pandas as pd
import synthetic_database
import synthetic_profiles
import synthetic_published
import synthetic_rates
import synthetic_run
import synthetic_spikes
from built import ROOT, new_folder
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from synthetic_run import NINE

from runner.manifest import Manifest
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.chart.value import Chart, made
from runner.present.frames import Case, Tables, choose, read_tables, with_causes
from runner.present.spikes.view import View
from runner.store import RunFolder

RUNS: dict[str, Callable[[Path], Path]] = {
    "three": synthetic_run.build,
    "nine": partial(synthetic_run.build, servers=NINE),
    "five": partial(synthetic_run.build, servers=NINE, trials=5, k6=()),
    "six of wrk": partial(synthetic_run.build, k6=(), trials=6),
    "one load": partial(synthetic_run.build, k6=("experiments",), failed=False),
    "database": synthetic_database.build,
    "six of a database": partial(synthetic_database.build, trials=6),
    "three of a database": partial(
        synthetic_database.build, servers=synthetic_database.THREE, failed=False
    ),
    "rates": partial(synthetic_rates.build, closed=False),
    "nine rates": partial(synthetic_rates.build, servers=NINE, blocks=3, closed=False),
    "gin's rates": partial(
        synthetic_rates.build, servers={"gin": NINE["gin"]}, blocks=1, closed=False
    ),
    "long rates": synthetic_spikes.build,
    "profiled": synthetic_profiles.build,
    "script": imported_run.build,
    "published": synthetic_published.build,
    "probed": partial(synthetic_rates.build, blocks=2, rates=False),
}
"""Functions that build runs, by the name of the run.

Tests share the runs, so no test may change the files of a run.

A name that is not in this dict is the name of a run in data/.
"""

HUNDRED = "wrk-matrix, keep-alive, 100 connections"


@cache
def folder_of(run: str) -> RunFolder:
    return RunFolder(RUNS[run](new_folder()) if run in RUNS else ROOT / "data" / run)


def read(folder: Path) -> Tables:
    return read_tables(RunFolder(folder))


@cache
def tables_of(run: str) -> Tables:
    return read(folder_of(run).path)


def with_facts(tables: Tables, **facts: Any) -> Tables:
    """Return a copy of a run in whose manifest the entries `facts` replace those of the same name.

    `facts` maps the names of entries to JSON values.
    """
    manifest = Manifest.of(tables.manifest.as_json() | facts)
    return replace(tables, manifest=manifest)


def campaign_with(tables: Tables, **facts: Any) -> Tables:
    """Return a copy of a run in whose manifest the campaign has the entries `facts`.

    `facts` maps the names of entries to JSON values.
    """
    return with_facts(tables, campaign=tables.manifest.campaign.as_json() | facts)


def changed(tables: Tables, rows: pd.Series | None = None, **values: Any) -> Tables:
    """Return a copy of a run with other values in some columns of its table of trials.

    `values` maps the names of these columns to their new values. If the mask `rows` is given, only
    the rows that it selects are changed.
    """
    every = tables.trials["trial_id"].notna() if rows is None else rows
    trials = tables.trials.astype(dict.fromkeys(values, object))
    for column, value in values.items():
        trials.loc[every, column] = value
    if {"verdict", "verdict_reason"} & set(values):
        trials = with_causes(trials.assign(verdict_cause=""))
    if "served_rps" in values:
        closed = trials["load_model"].eq("closed")
        trials["throughput_rps"] = trials["throughput_rps"].mask(closed, trials["served_rps"])
    typed = trials.astype(tables.trials.dtypes)
    # The copy has few blocks of memory, so pandas adds columns to it fast.
    return replace(tables, trials=typed.copy())


def of(tables: Tables, server: str = "", load: str = HUNDRED) -> pd.Series:
    """Return a mask that selects the trials under a load.

    If `server` is given, the mask selects only the trials of this server.
    """
    return tables.trials["load"].eq(load) & (tables.trials["server"].eq(server) if server else True)


@cache
def probed_case() -> Case:
    """Return the trial that the lab chooses from the run `probed` to compare generator and probe.

    It is the median trial of one cell: the cell in which the generator's response times exceed the
    probe's response times by the largest factor.
    """
    return choose(tables_of("probed"))


@lru_cache(maxsize=64)
def chart_of(name: str, subject: Tables | Case | View) -> Chart:
    """Return the chart `name` of a subject, which is a run or one trial.

    The chart is kept in a cache, because both its text and its picture need it. This is possible
    because charts are immutable. The cache compares subjects by identity.
    """
    return made(name, subject)


def picture(name: str, subject: Tables | Case | View) -> Figure:
    return draw(chart_of(name, subject))


def text_of(name: str, subject: Tables | Case | View) -> str:
    """Return the alternative text of a figure."""
    return describe(chart_of(name, subject))


def lines(figure: Figure, panel: int, label: str) -> list[tuple[np.ndarray, np.ndarray]]:
    found = [line for line in figure.axes[panel].lines if line.get_label() == label]
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in found
    ]


def marks(figure: Figure, panel: int, label: str) -> dict[float, tuple[float, float, str, bool]]:
    """Return the points that have the label `label` in a panel, with their vertical ranges.

    The result maps the x of each point to a tuple: the point's value, the length of its range, its
    marker, and whether the marker is filled.
    """
    found = {}
    for each in figure.axes[panel].containers:
        if each.get_label() == label:
            point, (ends,) = each.lines[0], each.lines[2]
            x, y = (float(side[0]) for side in (point.get_xdata(), point.get_ydata()))
            low, high = ends.get_segments()[0][:, 1]
            found[x] = (
                y,
                abs(high - low),
                str(point.get_marker()),
                point.get_markerfacecolor() != "white",
            )
    return found


@dataclass(frozen=True)
class DrawnDot:
    """A dot that is drawn in a row of a panel, with the ends of its range."""

    value: float
    low: float
    high: float
    marker: str
    is_filled: bool


def dots(figure: Figure, panel: int, label: str) -> list[DrawnDot]:
    """Return the dots in a panel that have the label `label`, from left to right."""
    drawn = figure.axes[panel].lines
    ranges = {
        float(line.get_ydata()[0]): tuple(map(float, line.get_xdata()))
        for line in drawn
        if line.get_label() == "range"
    }
    found = []
    for line in drawn:
        if line.get_label() == label:
            value, height = (float(side[0]) for side in (line.get_xdata(), line.get_ydata()))
            low, high = ranges.get(height, (math.nan, math.nan))
            is_filled = line.get_markerfacecolor() != "white"
            found.append(DrawnDot(value, low, high, str(line.get_marker()), is_filled))
    return sorted(found, key=lambda dot: dot.value)


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def rgb(color: Any) -> np.ndarray:
    """Return a colour as red, green and blue from 0 to 1.

    An array of pixels keeps its values, but loses its alpha channel.
    """
    return color[..., :3] if isinstance(color, np.ndarray) else np.array(to_rgba(color)[:3])


def linear(color: Any) -> np.ndarray:
    return np.where(
        rgb(color) <= 0.04045, rgb(color) / 12.92, ((rgb(color) + 0.055) / 1.055) ** 2.4
    )


def luminance(color: Any) -> np.ndarray:
    return linear(color) @ np.array([0.2126, 0.7152, 0.0722])


def contrast(a: Any, b: Any) -> np.ndarray:
    """Return the contrast of two colours by the formula of WCAG 2."""
    first = luminance(a) + 0.05
    second = luminance(b) + 0.05
    return np.maximum(first, second) / np.minimum(first, second)


Drawn = list[tuple[Text, tuple[float, float, float, float]]]


def drawn(figure: Figure) -> Drawn:
    """Return every text that is drawn, with its box in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = [*figure.texts]
    for ax in figure.axes:
        if ax.axison:
            found += [*ax.texts, ax.xaxis.label, ax.yaxis.label]
            for axis in (ax.xaxis, ax.yaxis):  # skip ticks beyond the limits, which are not drawn
                low, high = sorted(axis.get_view_interval())
                labels = [
                    tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
                ]
                found += [label for label in labels if label.get_visible()]
    boxes = [
        (text, text.get_window_extent(canvas.get_renderer()))
        for text in found
        if text.get_text().strip()
    ]
    return [(text, tuple(float(side) for side in box.extents)) for text, box in boxes]


def readable(figure: Figure) -> Drawn:
    """Assert that every text is inside the figure, is large enough, and covers no other text.

    Return the texts with their boxes.
    """
    width, height = figure.get_size_inches() * figure.dpi
    assert width == 700
    found = drawn(figure)
    for text, (left, bottom, right, top) in found:
        assert left >= 0 and bottom >= 0 and right <= width and top <= height, (
            f"{text.get_text()!r} is cut"
        )
        assert text.get_fontsize() * 390 / 72 / 7 >= 9, (
            f"{text.get_text()!r} is too small on a phone 390 pixels wide"
        )
    for (first, a), (second, b) in combinations(found, 2):
        # Two boxes may overlap by up to 1.5 pixels.
        shared = min(a[2], b[2]) - max(a[0], b[0]) > 1.5 and min(a[3], b[3]) - max(a[1], b[1]) > 1.5
        assert not shared, f"{first.get_text()!r} covers {second.get_text()!r}"
    return found
