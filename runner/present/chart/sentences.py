"""How an alt text is put together: what is drawn, then what it shows, no longer than a listener will bear.

It follows WAI's tutorial on complex images (w3.org/WAI/tutorials/images/complex): the first sentence identifies the
figure, its kind and axes; the rest says the values, relations and trends that a reader sees. What does not fit is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

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


def in_loads(clauses: Mapping[str, Sequence[str]], *keys: str) -> list[Form]:
    """Return a form for each degree of detail of the clauses of each load; `keys` explain the first of them."""
    degrees = len(next(iter(clauses.values())))
    texts = [*keys, *[""] * (degrees - len(keys))]
    return [
        Form([within(load, each[degree]) for load, each in clauses.items()], key=texts[degree])
        for degree in range(degrees)
    ]


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def nothing(what: str, reason: str) -> str:
    """Return the alt text of a figure without data: what it would show, and the sentence that it shows instead."""
    return f"Nothing is drawn of {what}. {reason}"


def scope(names: Collection[str], loads: int, noun: str = "load") -> str:
    """Return `for 3 servers under 2 loads`, of which one is not said."""
    under = f" under {captions.plural(loads, noun)}" if loads > 1 else ""
    return f"for {captions.plural(len(set(names)), 'server')}{under}"


def listing(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def names_or_count(names: Sequence[str], most: int = 4) -> str:
    """Return up to `most` names, else how many there are: `7 servers`."""
    return listing(names) if len(names) <= most else captions.plural(len(names), "server")


def span(low: float, high: float) -> str:
    """Return `98.2 to 99.1`, or one number where both read alike."""
    ends = number(low), number(high)
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def ends(values: pd.Series[float]) -> str:
    """Return the lowest and the highest of values, as `span` does."""
    return span(float(values.min()), float(values.max()))


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
    return f"the {noun}s are, {order}, {listing([f'{name} {text}' for name, text in texts.items()])}"


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


def pale(bound: Mapping[str, bool], noun: str = "pale") -> str:
    """Say which of the servers are drawn pale, since they were not the limit in every trial: `all are pale`."""
    found = [name for name, whole in bound.items() if not whole]
    if not found:
        return f"none is {noun}"
    return f"all are {noun}" if len(found) == len(bound) else f"{noun}: {names_or_count(found)}"


def servers(trials: pd.DataFrame, shown: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return each server's trials, in the order of `shown`; who has none is left out."""
    by_server = {str(name): own for name, own in trials.groupby("server")}
    return {name: by_server[name] for name in shown if name in by_server}
