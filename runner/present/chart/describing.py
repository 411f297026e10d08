"""The alternative text of a chart: kind and axes, then the values of its lines in their order, from its frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from runner.present.chart import sentences
from runner.present.chart.value import Axis, Chart, Extreme
from runner.present.look.style import number

Lines = Mapping[str, pd.DataFrame]
"""Server -> the rows of its line: x rising, y (NaN is not drawn), and solid: what is not solid does not rank."""


def describe(chart: Chart) -> str:
    """Return the alternative text of a figure: plain text of about `sentences.LIMIT` characters at most.

    A figure without data has a sentence that says so.
    """
    if chart.nothing:
        return sentences.nothing(chart.about, chart.nothing)
    return (chart.describe or (lines if chart.x.label else rows))(chart)


def head(chart: Chart, kind: str = "Line chart") -> str:
    """Return the first sentence: kind, axes, servers, and what a point is."""
    x, y = chart.x, chart.y
    scales = [", logarithmic" if axis.log and not (x.log and y.log) else "" for axis in (x, y)]
    setting = ", both logarithmic" if x.log and y.log else ""
    setting += f", {chart.setting}" if chart.setting else ""
    servers = sentences.scope(chart.frame["server"], len(chart.panels), chart.noun)
    sentence = f"{kind} of {y.words} (up{scales[1]}) by {x.words} (across{scales[0]}){setting}, {servers}"
    return f"{sentence}: {chart.statistic}. {chart.hollow}".rstrip()


def lines(chart: Chart, sentence: str = "", noun: str = "", about: Callable[[str, str], str] = sentences.within) -> str:
    """Describe a chart of lines: where each begins, its extreme and where it ends, and which points are hollow.

    `sentence` is the first one, `noun` what a panel is, `about` makes a sentence of a panel and its clause.
    """
    forms: list[list[str]] = [[] for _ in range(4 if chart.hollow else 3)]
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        long, extremes, outermost = clauses(curves, chart.extreme, chart.x, chart.y)
        texts: Sequence[str] = long, extremes, outermost
        if chart.hollow:
            exactly, counted = hollow(curves)
            texts = (
                *(f"{words}; {exactly}" for words in (long, extremes)),
                *(f"{words}; {counted}" for words in (extremes, outermost)),
            )
        for parts, clause in zip(forms, texts, strict=True):
            parts.append(about(panel, clause + chart.remarks.get(panel, "")))
    return sentences.fit(sentence or head(chart), [sentences.Form(parts, noun or chart.noun) for parts in forms])


def rows(chart: Chart) -> str:
    """Describe a chart with a row for each server: its points in their order, with their ranges."""
    found = {}
    for panel in chart.panels:
        own, more = chart.of_panel(panel), chart.remarks.get(panel, "")
        if chart.hollow:
            solid = {server: bool(point["solid"].iloc[0]) for server, point in own.items() if point["y"].notna().any()}
            more += f"; {sentences.pale(solid, 'hollow')}"
        found[panel] = ranked(own, chart.extreme, chart.y, _first, _range, more)
    scale = ", logarithmic" if chart.y.log else ""
    servers = sentences.scope(chart.frame["server"], len(found), chart.noun)
    sentence = f"Dot plot of {chart.y.words} (across{scale}), a row for each server, {servers}: {chart.statistic}."
    return sentences.fit(
        f"{sentence} {chart.hollow}".rstrip(), sentences.in_loads(found, "In brackets: minimum to maximum.")
    )


def _first(rows: pd.DataFrame) -> float:
    return float(rows["y"].iloc[0])


def _range(rows: pd.DataFrame) -> str:
    return f" ({sentences.span(float(rows['low'].iloc[0]), float(rows['high'].iloc[0]))})"


def ranked(
    curves: Lines,
    extreme: Extreme,
    axis: Axis,
    value: Callable[[pd.DataFrame], float],
    after: Callable[[pd.DataFrame], str],
    rest: str = "",
) -> list[str]:
    """Return a value of each server in the order of the values, in `degrees` of detail, each followed by `rest`.

    In the first a server's value is followed by what `after` says of its rows. Who has NaN is named.
    """
    values = sentences.by_value({server: value(rows) for server, rows in curves.items()}, rising=extreme.rising)
    texts = {server: axis.say(found) for server, found in values.items()}
    wide = {server: text + after(curves[server]) for server, text in texts.items()}
    return [words + rest for words in sentences.degrees(extreme.noun, extreme.order, texts, wide, curves)]


def clauses(curves: Lines, extreme: Extreme, across: Axis, up: Axis) -> tuple[str, str, str]:
    """Return lines in three degrees of detail: start, extreme and end; the extremes; the outermost of these."""
    known = {name: drawn for name, rows in curves.items() if len(drawn := rows.dropna(subset="y"))}
    turns = {name: _turn(rows, extreme) for name, rows in known.items()}
    values = {name: float(rows["y"].iloc[turns[name]]) for name, rows in known.items()}
    points = {name: _points(rows, across, up) for name, rows in known.items()}
    ordered = sentences.by_value(values, rising=extreme.rising)
    texts = {name: points[name][turns[name]] for name in ordered}
    courses = "; ".join(_course(name, points[name], turns[name]) for name in ordered)
    rest = sentences.unknown(curves, known)
    extremes = sentences.said(extreme.noun, extreme.order, texts)
    several = any(len(rows) > 1 for rows in known.values())
    return (
        f"{f'the lines run, {extreme.order}, {courses}' if several else extremes}{rest}",
        f"{extremes}{rest}",
        f"{sentences.said(extreme.noun, extreme.order, texts, short=True)}{rest}",
    )


def _turn(rows: pd.DataFrame, extreme: Extreme) -> int:
    """Return the place of a line's extreme, the first of several that are equal."""
    return int(rows["y"].argmax() if extreme.highest else rows["y"].argmin())


def _points(rows: pd.DataFrame, across: Axis, up: Axis) -> list[str]:
    return [f"{up.say(float(y))} {across.place(float(x))}" for x, y in zip(rows["x"], rows["y"], strict=True)]


def _course(name: str, points: Sequence[str], turn: int) -> str:
    """Return `gin from 16,130 at 1 over 73,320 at 100 to 65,988 at 1,000`."""
    last = len(points) - 1
    if last == 0:
        return f"{name} {points[0]}"
    *first, end = [points[at] for at in sorted({0, turn, last})]
    return f"{name} from {' over '.join(first)} to {end}"


def hollow(curves: Lines) -> tuple[str, str]:
    """Say which points are hollow, exactly and as a count."""
    drawn = {name: rows.dropna(subset="y") for name, rows in curves.items()}
    places = {name: tuple(rows.loc[~rows["solid"].astype(bool), "x"]) for name, rows in drawn.items()}
    found, every = (sum(map(len, each.values())) for each in (places, drawn))
    if found in (0, every):
        words = "every point is hollow" if found else "no point is hollow"
        return words, words
    names: dict[tuple[float, ...], list[str]] = {}
    for name, xs in places.items():
        if xs:
            names.setdefault(xs if len(xs) < len(drawn[name]) else (), []).append(name)
    each = [f"{sentences.listing(servers)} {_where(xs)}" for xs, servers in names.items()]
    return f"hollow are {'; '.join(each)}", f"{found} of {every} points are hollow"


def _where(xs: Sequence[float]) -> str:
    return f"at {sentences.listing([f'{x:,.10g}' for x in xs])}" if xs else "everywhere"


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
