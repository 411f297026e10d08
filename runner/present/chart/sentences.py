"""Describe a chart in words, as alternative text for readers who do not see the figure.

The text follows WAI's tutorial on complex images (w3.org/WAI/tutorials/images/complex). The first
sentence names the kind of the figure and its axes. The other sentences give the values, relations
and trends that a reader sees. The text is short, because screen readers read it aloud.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from runner.model import setting_text
from runner.present.chart.value import Chart, Fact, extreme
from runner.present.look import captions
from runner.present.look.numbers import number

LIMIT = 600  # maximum length of an alternative text: about 40 seconds of speech
Lines = Mapping[str, pd.DataFrame]  # the points of each server in a panel, by server


def describe(chart: Chart) -> str:
    """Return the alternative text of a chart: the kind of chart, then the facts of each panel.

    If the text would be too long, name only the first and the last server of each panel. If this
    shorter text is still too long, leave out the last panels.
    """
    if chart.frame.empty:
        return f"Nothing is drawn of “{chart.title}”. {chart.nothing}"
    if chart.describe:
        return chart.describe(chart)
    x = chart.x
    y = chart.y
    servers = captions.plural(chart.frame["server"].nunique(), "server")
    up, across = (", logarithmic" if axis.log else "" for axis in (y, x))
    axes = f" (up{up}) by {x.words} (across{across})" if x.words else ""
    if x.log and y.log:
        axes = f" (up) by {x.words} (across), both logarithmic"
    if chart.kind == "Dot plot":
        axes = f" (across{up}){f' by {x.words}' if x.words else ''}, one row per server"
    under = (
        f" under {captions.plural(len(chart.panels), chart.noun)}" if len(chart.panels) > 1 else ""
    )
    what = f"{chart.kind} of {y.words}{axes}, for {servers}{under}"
    head = f"{what}: {chart.statistic.rstrip('.')}. {chart.pale}".rstrip()
    for short in (False, True):
        parts = [f"In “{panel}” {_clause(chart, panel, short=short)}." for panel in chart.panels]
        if len(" ".join([head, *parts])) <= LIMIT:
            break
    return fit(head, parts, chart.noun)


def fit(head: str, parts: Sequence[str], noun: str) -> str:
    """Return `head`, followed by as many of `parts` as fit into `LIMIT` characters.

    Each part is a sentence about one item, such as a load. `noun` is the word for such an item. If
    some parts do not fit, the last sentence says how many items are not described. The first part
    is always included.
    """
    for kept in range(len(parts), 0, -1):
        left = len(parts) - kept
        rest = (
            f"{left} more {noun}{'s are' if left > 1 else ' is'} not described here."
            if left
            else ""
        )
        whole = " ".join(filter(None, [head, *parts[:kept], rest]))
        if len(whole) <= LIMIT:
            break
    return whole


def _clause(chart: Chart, panel: str, *, short: bool) -> str:
    """Return a clause about a panel: its facts, its pale points, and the notes of its facets.

    A point is pale if the server must not be ranked by it.
    """
    curves = chart.of_panel(panel)
    known = {
        server: rows for server, points in curves.items() if len(rows := points.dropna(subset="y"))
    }
    parts = [
        said(fact, known, curves, short=short)
        for fact in chart.facts or (extreme(chart.x, chart.y),)
    ]
    if chart.pale and known:
        parts.append(pale(known, short=short))
    notes = {
        each.server: "; ".join(filter(None, each.notes))
        for each in chart.facets
        if each.panel == panel
    }
    shown = grouped(
        {server: note for server, note in notes.items() if note}, most=2 if short else 4
    )
    return "; ".join([*parts, *shown])


def said(fact: Fact, known: Lines, names: Collection[str], *, short: bool = False) -> str:
    """Return a fact as a clause: `the medians are, shortest first, axum 250 ms and gin 280 ms`.

    With `short`, a clause about more than two servers names only the first and the last server, and
    says how many servers lie between these two. The clause ends with the servers among `names`
    whose value is unknown.
    """
    values = {
        name: value for name, rows in known.items() if math.isfinite(value := fact.value(rows))
    }
    ordered = sorted(values, key=lambda name: values[name] if fact.rising else -values[name])
    texts = {}
    for name in ordered:
        texts[name] = fact.text(known[name]) if fact.text else f"{number(values[name])}{fact.unit}"
        texts[name] += f" ({ends(known[name][fact.ends_of])})" if fact.ends_of else ""
    if not ordered:
        return f"no {fact.noun} is known"
    items = [f"{name} {text}" for name, text in texts.items()]
    if len(items) == 1:
        clause = f"the {fact.noun} of {ordered[0]} is {texts[ordered[0]]}"
    elif len(set(texts.values())) == 1:
        clause = f"the {fact.noun}s of {names_or_count(ordered)} are all {texts[ordered[0]]}"
    elif short and len(items) > 2:
        clause = (
            f"the {fact.noun}s run from {items[0]} to {items[-1]} ({len(items) - 2} more between)"
        )
    else:
        order = fact.order or f"{'lowest' if fact.rising else 'highest'} first"
        clause = f"the {fact.noun}s are, {order}, {captions.joined(items)}"
    without = [name for name in names if name not in texts]
    return clause + (f"; nothing is known of {names_or_count(without)}" if without else "")


def pale(known: Lines, *, short: bool = False) -> str:
    """Return a clause that names the pale points of a panel, by server and x value.

    A point is pale if the server must not be ranked by it. If all points or no points are pale, the
    clause says only that all or none are pale. With `short`, if a server has both pale and solid
    points, the clause gives only the number of pale points.
    """
    places = {
        name: list(rows.loc[~rows["solid"].astype(bool), "x"]) for name, rows in known.items()
    }
    found, every = (sum(map(len, each.values())) for each in (places, known))
    if found in (0, every):
        return "all are pale" if found else "none is pale"
    if short and any(0 < len(xs) < len(known[name]) for name, xs in places.items()):
        return f"{found} of {every} points are pale"
    texts = {
        name: f"at {captions.joined([setting_text(x) for x in xs])}"
        if len(xs) < len(known[name])
        else "everywhere"
        for name, xs in places.items()
        if xs
    }
    return f"pale are {', '.join(grouped(texts, '{names} {text}'))}"


def grouped(texts: Mapping[str, str], form: str = "{text} ({names})", most: int = 4) -> list[str]:
    """Return each different text with the names of the servers that have it.

    `texts` maps the name of a server to the text of this server. `form` is the pattern of an item,
    in which `{text}` stands for the text and `{names}` for the names of the servers. The text that
    the most servers have comes first. If there are more than `most` different texts, the last item
    gives the number of servers that have the remaining texts.
    """
    ordered = Counter(texts.values()).most_common()
    named = [
        (text, names_or_count([name for name in texts if texts[name] == text]))
        for text, _ in ordered[:most]
    ]
    shown = [form.format(text=text, names=names) for text, names in named]
    left = sum(count for _, count in ordered[most:])
    return shown + [f"{captions.plural(left, 'server')} otherwise"] * bool(left)


def names_or_count(names: Sequence[str], most: int = 4) -> str:
    """Return the names of servers, or their number (`7 servers`) if there are more than `most`."""
    return captions.joined(names) if len(names) <= most else captions.plural(len(names), "server")


def ends(values: pd.Series[float]) -> str:
    """Return the lowest and highest value: `98.2 to 99.1`.

    Return a single number if both values look the same when printed.
    """
    low = number(float(values.min()))
    high = number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def to_table(chart: Chart) -> pd.DataFrame:
    """Return the points of a chart as a table of texts, with the columns server, x, y and range.

    The table also has a column for the panel if the chart has several panels, and a column for the
    series if the chart has several series.
    """
    frame = chart.frame
    columns = {
        chart.noun: frame["panel"],
        "server": frame["server"],
        "series": frame["series"],
        chart.x.label: frame["x"].map(setting_text),
        chart.y.label: frame["y"].map(number),
        "range": [
            f"{number(low)}–{number(high)}"
            for low, high in zip(frame["low"], frame["high"], strict=True)
        ],
    }
    table = pd.DataFrame(columns)
    return table.drop(
        columns=[name for name in (chart.noun, "series") if table[name].nunique() < 2]
    )
