"""A figure is a `Chart`, a frozen value with a tidy frame; three readers draw it, describe it and print it."""

from runner.present.chart.drawing import DASHED, bars, draw, seconds_axes
from runner.present.chart.registry import chart, charts, made, registered
from runner.present.chart.sentences import describe, to_table
from runner.present.chart.value import Axis, Chart, Extreme, ServerLoad, Shared, cells, empty, points

__all__ = [
    "DASHED", "Axis", "Chart", "Extreme", "ServerLoad", "Shared", "bars", "cells", "chart", "charts", "describe",
    "draw", "empty", "made", "points", "registered", "seconds_axes", "to_table",
]  # fmt: skip
