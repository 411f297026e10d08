"""A figure is a `Chart`, a frozen value with a tidy frame; three readers draw it, describe it and print it."""

from runner.present.chart.describing import describe, to_table
from runner.present.chart.drawing import band, bars, draw, sheet
from runner.present.chart.registry import chart, charts, made, registered
from runner.present.chart.value import (
    Axis,
    Cell,
    Chart,
    Extreme,
    Facet,
    Shared,
    Sheet,
    by_panel,
    cells,
    empty,
    median_point,
    points,
    tidy,
)

__all__ = [
    "Axis",
    "Cell",
    "Chart",
    "Extreme",
    "Facet",
    "Shared",
    "Sheet",
    "band",
    "bars",
    "by_panel",
    "cells",
    "chart",
    "charts",
    "describe",
    "draw",
    "empty",
    "made",
    "median_point",
    "points",
    "registered",
    "sheet",
    "tidy",
    "to_table",
]
