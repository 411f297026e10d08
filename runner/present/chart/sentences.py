"""The alternative text of a chart: what is drawn, then the values it shows, no longer than a listener will bear.

It follows WAI's tutorial on complex images (w3.org/WAI/tutorials/images/complex): the first sentence identifies the
figure, its kind and axes; the rest says the values, relations and trends that a reader sees. What does not fit is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.present.chart.value import Axis, Chart, Extreme
from runner.present.look import captions
from runner.present.look.style import number

LIMIT = 600
"""Characters that an alt text has at most: about 40 seconds of speech."""


@dataclass(frozen=True)
class Form:
    """What a figure shows, in one degree of detail: a sentence for each `noun`, such as a load."""

    parts: Sequence[str]
    noun: str = "load"
    key: str = ""
    """Says how to read what only this degree of detail has."""


def fit(head: str, forms: Sequence[Form], tail: str = "") -> str:
    """Return `head`, the first of `forms` that fits in `LIMIT`, and `tail`.

    `forms` come with the richest first. Where none fits, the last is cut after as many sentences as do, one at least,
    and the text says how many are left out.
    """
    for form in forms:
        whole = _joined(head, form.key, *form.parts, tail)
        if len(whole) <= LIMIT:
            return whole
    last = forms[-1]
    for kept in range(len(last.parts) - 1, 0, -1):
        left = len(last.parts) - kept
        words = f"{left} more {last.noun}{'s are' if left > 1 else ' is'} not described here."
        whole = _joined(head, last.key, *last.parts[:kept], words, tail)
        if len(whole) <= LIMIT:
            break
    return whole


def in_loads(clauses: Mapping[str, Sequence[str]], key: str = "") -> list[Form]:
    """Return a form for each degree of detail of the clauses of each load; `key` explains the first of them."""
    forms = [list(map(within, clauses, texts)) for texts in zip(*clauses.values(), strict=True)]
    return [Form(parts, key="" if place else key) for place, parts in enumerate(forms)]


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def nothing(what: str, reason: str) -> str:
    """Return the alt text of a figure without data: what it would show, and the sentence that it shows instead."""
    return f"Nothing is drawn of {what}. {reason}"


def names_or_count(names: Sequence[str], most: int = 4) -> str:
    """Return up to `most` names, else how many there are: `7 servers`."""
    return captions.joined(names) if len(names) <= most else captions.plural(len(names), "server")


def ends(values: pd.Series[float]) -> str:
    """Return the lowest and the highest of values, `98.2 to 99.1`, or one number where both read alike."""
    low, high = number(float(values.min())), number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def by_value(values: Mapping[str, float], *, rising: bool) -> dict[str, float]:
    """Return what is known of `values`, smallest first if `rising`; equal ones stay in their order."""
    known = {name: value for name, value in values.items() if math.isfinite(value)}
    return dict(sorted(known.items(), key=lambda item: item[1] if rising else -item[1]))


def said(noun: str, order: str, texts: Mapping[str, str], *, short: bool = False) -> str:
    """Return the clause `the medians are, shortest first, axum 250 ms and gin 280 ms`.

    `texts` has a text a name, in the order that is said. If `short`, of more than two only the first and the last, and
    how many lie between.
    """
    if not texts:
        return f"no {noun} is known"
    items = list(texts.items())
    (first, one), (last, other) = items[0], items[-1]
    if len(texts) == 1:
        return f"the {noun} of {first} is {one}"
    if len(set(texts.values())) == 1:
        return f"the {noun}s of {names_or_count(list(texts))} are all {one}"
    if short and len(texts) > 2:
        between = len(texts) - 2
        lie = "lies" if between == 1 else "lie"
        return f"the {noun}s run, {order}, from {first} {one} to {last} {other} ({between} more {lie} between)"
    return f"the {noun}s are, {order}, {captions.joined([f'{name} {text}' for name, text in texts.items()])}"


def unknown(names: Collection[str], known: Collection[str]) -> str:
    """Return what a clause adds about those who have nothing in it: `; nothing is known of gin`, or nothing."""
    without = [name for name in names if name not in known]
    return f"; nothing is known of {names_or_count(without)}" if without and known else ""


def degrees(
    noun: str, order: str, texts: Mapping[str, str], wide: Mapping[str, str], names: Collection[str]
) -> tuple[str, str, str]:
    """Return `said` in three degrees of detail: of the `wide` texts, of `texts`, of the first and the last of these.

    `names` are all servers of the load: who has no text is named.
    """
    rest = unknown(names, texts)
    return (
        said(noun, order, wide) + rest,
        said(noun, order, texts) + rest,
        said(noun, order, texts, short=True) + rest,
    )


def within(load: str, clause: str) -> str:
    """Return a clause as a sentence about a load."""
    return f"In “{load}” {clause}."


# --- a chart -------------------------------------------------------------------------------------------

Lines = Mapping[str, pd.DataFrame]
"""Server -> the rows of its line: x rising, y (NaN is not drawn), and solid: what is not solid does not rank."""


def describe(chart: Chart) -> str:
    """Return the alternative text of a figure: plain text of about `LIMIT` characters at most.

    A figure without data has a sentence that says so.
    """
    if chart.nothing:
        return nothing(chart.about, chart.nothing)
    return (chart.describe or lines)(chart)


def head(chart: Chart) -> str:
    """Return the first sentence about lines: axes, servers, and what a point is."""
    x, y = chart.x, chart.y
    scales = [", logarithmic" if axis.log and not (x.log and y.log) else "" for axis in (x, y)]
    setting = ", both logarithmic" if x.log and y.log else ""
    setting += f", {chart.setting}" if chart.setting else ""
    sentence = f"Line chart of {y.words} (up{scales[1]}) by {x.words} (across{scales[0]}){setting}, {scope(chart)}"
    return f"{sentence}: {chart.statistic}. {chart.hollow}".rstrip()


def scope(chart: Chart) -> str:
    """Return `for 3 servers under 2 loads`, of which one is not said."""
    under = f" under {captions.plural(len(chart.panels), chart.noun)}" if len(chart.panels) > 1 else ""
    return f"for {captions.plural(chart.frame['server'].nunique(), 'server')}{under}"


def lines(chart: Chart, sentence: str = "", noun: str = "", about: Callable[[str, str], str] = within) -> str:
    """Describe a chart of lines: where each begins, its extreme and where it ends, and which points are hollow.

    `sentence` is the first one, `noun` what a panel is, `about` makes a sentence of a panel and its clause.
    """
    told = []
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
        told.append([about(panel, clause + chart.remarks.get(panel, "")) for clause in texts])
    forms = [Form(parts, noun or chart.noun) for parts in zip(*told, strict=True)]
    return fit(sentence or head(chart), forms)


def ranking(
    chart: Chart, sentence: str, extreme: Extreme, axis: Axis, value: Callable[[pd.DataFrame], float],
    after: Callable[[pd.DataFrame], str], key: str, rest: Callable[[Lines], str] = lambda _: "", tail: str = "",
) -> str:  # fmt: skip
    """Describe a value of each server, load by load, in the order of the values; `sentence` is the first one.

    In the richest form a server's value is followed by what `after` says of its rows, and `key` explains it. Who has
    NaN is named; `rest` is what else is said of a load, `tail` of all.
    """
    found = {}
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        values = by_value({server: value(rows) for server, rows in curves.items()}, rising=extreme.rising)
        texts = {server: axis.say(one) for server, one in values.items()}
        wide = {server: text + after(curves[server]) for server, text in texts.items()}
        told = degrees(extreme.noun, extreme.order, texts, wide, curves)
        found[panel] = [words + rest(curves) for words in told]
    return fit(sentence, in_loads(found, key), tail)


def clauses(curves: Lines, extreme: Extreme, across: Axis, up: Axis) -> tuple[str, str, str]:
    """Return lines in three degrees of detail: start, extreme and end; the extremes; the outermost of these."""
    known = {name: drawn for name, rows in curves.items() if len(drawn := rows.dropna(subset="y"))}
    # The first of several that are equal.
    turns = {name: int((rows["y"] if extreme.highest else -rows["y"]).argmax()) for name, rows in known.items()}
    values = {name: float(rows["y"].iloc[turns[name]]) for name, rows in known.items()}
    points = {
        name: [f"{up.say(float(y))} {across.place(float(x))}" for x, y in zip(rows["x"], rows["y"], strict=True)]
        for name, rows in known.items()
    }
    ordered = by_value(values, rising=extreme.rising)
    texts = {name: points[name][turns[name]] for name in ordered}
    courses = "; ".join(_course(name, points[name], turns[name]) for name in ordered)
    rest = unknown(curves, known)
    extremes = said(extreme.noun, extreme.order, texts)
    several = any(len(rows) > 1 for rows in known.values())
    return (
        f"{f'the lines run, {extreme.order}, {courses}' if several else extremes}{rest}",
        f"{extremes}{rest}",
        f"{said(extreme.noun, extreme.order, texts, short=True)}{rest}",
    )


def _course(name: str, points: Sequence[str], turn: int) -> str:
    """Return `gin from 16,130 at 1 over 73,320 at 100 to 65,988 at 1,000`."""
    *first, end = [points[at] for at in sorted({0, turn, len(points) - 1})]
    return f"{name} from {' over '.join(first)} to {end}" if first else f"{name} {end}"


def hollow(curves: Lines) -> tuple[str, str]:
    """Say which points are hollow, exactly and as a count."""
    drawn = {name: rows.dropna(subset="y") for name, rows in curves.items()}
    places = {name: tuple(rows.loc[~rows["solid"].astype(bool), "x"]) for name, rows in drawn.items()}
    found, every = (sum(map(len, each.values())) for each in (places, drawn))
    if found in (0, every):
        words = "every point is hollow" if found else "no point is hollow"
        return words, words
    names: dict[str, list[str]] = {}
    for name, xs in places.items():
        where = f"at {captions.joined([f'{x:,.10g}' for x in xs])}" if len(xs) < len(drawn[name]) else "everywhere"
        if xs:
            names.setdefault(where, []).append(name)
    each = [f"{captions.joined(servers)} {where}" for where, servers in names.items()]
    return f"hollow are {'; '.join(each)}", f"{found} of {every} points are hollow"


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
