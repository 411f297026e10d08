"""The alternative text of a chart: kind and axes, then the values of its lines in their order, from its frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from runner.present.chart.courses import Course, clauses, course, hollow
from runner.present.chart.sentences import (
    Form,
    by_value,
    degrees,
    fit,
    in_loads,
    nothing,
    pale,
    scope,
    span,
    within,
)
from runner.present.chart.value import Chart
from runner.present.look.style import number


def describe(chart: Chart) -> str:
    """Return the alternative text of a figure: plain text of about `sentences.LIMIT` characters at most.

    A figure without data has a sentence that says so.
    """
    if chart.nothing:
        return nothing(chart.about, chart.nothing)
    return (chart.describe or (lines if chart.x.label else rows))(chart)


def head(chart: Chart, kind: str = "Line chart") -> str:
    """Return the first sentence: kind, axes, servers, and what a point is."""
    x, y = chart.x, chart.y
    scales = [", logarithmic" if axis.log and not (x.log and y.log) else "" for axis in (x, y)]
    setting = ", both logarithmic" if x.log and y.log else ""
    setting += f", {chart.setting}" if chart.setting else ""
    servers = scope(chart.frame["server"], len(chart.panels), chart.noun)
    sentence = f"{kind} of {y.words} (up{scales[1]}) by {x.words} (across{scales[0]}){setting}, {servers}"
    return f"{sentence}: {chart.statistic}. {chart.hollow}".rstrip()


def lines(chart: Chart) -> str:
    """Describe a chart of lines: where each begins, its extreme and where it ends, and which points are hollow."""
    forms: list[list[str]] = [[] for _ in range(4 if chart.hollow else 3)]
    for panel in chart.panels:
        courses = courses_of(chart, panel)
        long, extremes, ends = clauses(courses, chart.extreme, chart.x, chart.y)
        said: Sequence[str] = long, extremes, ends
        if chart.hollow:
            exactly, counted = hollow(courses, lambda x: f"{x:,.10g}")
            said = f"{long}; {exactly}", f"{extremes}; {exactly}", f"{extremes}; {counted}", f"{ends}; {counted}"
        for parts, clause in zip(forms, said, strict=True):
            parts.append(within(panel, clause + chart.remarks.get(panel, "")))
    return fit(head(chart), [Form(parts, chart.noun) for parts in forms])


def rows(chart: Chart) -> str:
    """Describe a chart with a row for each server: its points in their order, with their ranges."""
    clauses = {}
    for panel in chart.panels:
        own = chart.of_panel(panel)
        points = {server: found.iloc[0] for server, found in own.items()}
        values = by_value({server: float(point["y"]) for server, point in points.items()}, rising=chart.extreme.rising)
        texts = {server: chart.y.say(value) for server, value in values.items()}
        wide = {server: f"{text} ({_range(points[server])})" for server, text in texts.items()}
        order = "lowest first" if chart.extreme.rising else "highest first"
        more = chart.remarks.get(panel, "")
        if chart.hollow:
            more += f"; {pale({server: bool(points[server]['solid']) for server in values}, 'hollow')}"
        clauses[panel] = [each + more for each in degrees(chart.extreme.noun, order, texts, wide, own)]
    scale = ", logarithmic" if chart.y.log else ""
    servers = scope(chart.frame["server"], len(clauses), chart.noun)
    sentence = f"Dot plot of {chart.y.words} (across{scale}), a row for each server, {servers}: {chart.statistic}."
    return fit(f"{sentence} {chart.hollow}".rstrip(), in_loads(clauses, "In brackets: minimum to maximum."))


def _range(point: pd.Series[Any]) -> str:
    return span(float(point["low"]), float(point["high"]))


def courses_of(chart: Chart, panel: str) -> list[Course]:
    """Return the lines of a panel."""
    return [
        course(server, zip(rows["x"].astype(float), rows["y"].astype(float), rows["solid"].astype(bool), strict=True))
        for server, rows in chart.of_panel(panel).items()
    ]


def to_table(chart: Chart) -> pd.DataFrame:
    """Return the points of a chart as texts: panel and series where there are several, server, x, y and the range."""
    frame = chart.frame
    columns = {
        chart.noun: frame["panel"],
        "server": frame["server"],
        "series": frame["series"],
        chart.x.label: frame["x"].map(lambda x: f"{x:,.10g}"),
        chart.y.label: frame["y"].map(number),
        "range": [f"{number(low)}–{number(high)}" for low, high in zip(frame["low"], frame["high"], strict=True)],
    }
    table = pd.DataFrame(columns)
    return table.drop(columns=[name for name in (chart.noun, "series") if table[name].nunique() < 2])
