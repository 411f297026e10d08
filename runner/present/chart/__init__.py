"""A figure is a `Chart`, a frozen value with a tidy frame; three readers draw it, describe it and print it."""

from runner.present.chart.describing import describe, to_table
from runner.present.chart.drawing import DASHED, band, bars, beside, draw, ranged, ridges, seconds_axes, sheet
from runner.present.chart.registry import chart, charts, made, registered
from runner.present.chart.value import (
    Axis,
    Chart,
    Extreme,
    Facet,
    FacetSizes,
    ServerLoad,
    Shared,
    by_panel,
    cells,
    empty,
    median_point,
    median_points,
    points,
    tidy,
)

__all__ = [
    "DASHED",
    "Axis",
    "Chart",
    "Extreme",
    "Facet",
    "FacetSizes",
    "ServerLoad",
    "Shared",
    "band",
    "bars",
    "beside",
    "by_panel",
    "cells",
    "chart",
    "charts",
    "describe",
    "draw",
    "empty",
    "made",
    "median_point",
    "median_points",
    "points",
    "ranged",
    "registered",
    "ridges",
    "seconds_axes",
    "sheet",
    "tidy",
    "to_table",
]
