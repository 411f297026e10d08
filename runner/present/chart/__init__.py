"""A figure is a `Chart`, a frozen value with a tidy frame.

Other modules draw it, describe it and print it.
"""

from runner.present.chart.drawing import DASHED, Shared, bars, draw, facets, seconds_axes
from runner.present.chart.sentences import describe, to_table
from runner.present.chart.value import (
    Axis,
    Chart,
    Facet,
    Fact,
    ServerLoad,
    cells,
    chart,
    charts,
    empty,
    extreme,
    made,
    points,
    tidy,
)

__all__ = [
    "DASHED",
    "Axis",
    "Chart",
    "Facet",
    "Fact",
    "ServerLoad",
    "Shared",
    "bars",
    "cells",
    "chart",
    "charts",
    "describe",
    "draw",
    "empty",
    "extreme",
    "facets",
    "made",
    "points",
    "seconds_axes",
    "tidy",
    "to_table",
]
