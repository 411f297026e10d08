"""Tables of text as Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from runner.model import Server

NOT_RANKED = "†"
"""Follows a value that must not be ranked; HTML greys the cell too."""
DAGGER = (
    f"{NOT_RANKED} A rate of this load, not a rank of this server: the server was not the limit in every trial, or the "
    "rate was set, or the server is there for calibration."
)
NUMBER = re.compile(rf"(≥ |< )?[-–]?[\d,.]*( ?%)?(–[\d,.]+)?( \[[\d,.]+–[\d,.]+\])?( {NOT_RANKED})?")
"""A cell that is a quantity, a range or unknown."""
LONG = 20
"""Characters from which a text is broken into lines of its column."""
SPECIAL = re.compile(r"[\\*~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")
"""What Markdown would take for more than a character."""


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, the index left out; numbers stand on the right."""
    heads = [_cell(name) for name in frame.columns]
    rules = ["---:" if _are_numbers(frame[name]) else "---" for name in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rules, *rows))


def servers_table(servers: Sequence[Server]) -> str:
    """Return the servers as a Markdown table: what each is, what it implements, and what was chosen for it."""
    every = list(dict.fromkeys(name for server in servers for name in server.implements))
    rows = [
        {
            "server": f"`{server.name}`",
            "language": server.language,
            "framework": server.framework,
            "tier": server.tier,
            "implements": _implemented(server.implements, every),
            "what was chosen": _first_sentence(server.notes),
        }
        for server in servers
    ]
    return to_markdown(pd.DataFrame(rows))


def _implemented(names: Sequence[str], every: Sequence[str]) -> str:
    missing = [name for name in every if name not in names]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) < len(names) else ", ".join(names)


def _first_sentence(notes: str) -> str:
    """Return a server's notes up to the first full stop or semicolon that ends a word; the rest is in server.toml."""
    return re.split(r"(?<=[.;])\s", notes.strip(), maxsplit=1)[0].rstrip(".;")


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def literal(text: str) -> str:
    """Return a text for Markdown in which nothing but code between backticks has a meaning of its own."""
    return SPECIAL.sub(r"\\\g<0>", text)


def prose(text: str) -> str:
    """Return a sentence as HTML, code between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def to_html(frame: pd.DataFrame, label: str = "") -> str:
    """Return a table of texts as HTML, the index left out; the first column, or two, say what a row is about.

    It stands in a box that scrolls sideways on a narrow screen. The keyboard reaches the box, and `label`, else the
    first headings, tells a screen reader what it is.
    """
    heads, keys = [str(name) for name in frame.columns], _keys(frame)
    classes = [[*keys[place : place + 1], *_shape(frame[name])] for place, name in enumerate(frame.columns)]
    tags = ['th scope="row"'] * len(keys) + ["td"] * (len(heads) - len(keys))
    head = _html_row(['th scope="col"'] * len(heads), heads, classes)
    rows = "".join(f"{_html_row(tags, row, classes)}\n" for row in frame.itertuples(index=False, name=None))
    named = escape(label or f"Table of {', '.join(heads[:3])}")
    table = f"<table><thead>{head}</thead>\n<tbody>\n{rows}</tbody></table>"
    return f'<div class="table" role="region" aria-label="{named}" tabindex="0">{table}</div>'


def _keys(frame: pd.DataFrame) -> list[str]:
    """Return the classes of the columns that name a row: the first, and the second where only both tell rows apart."""
    first, both = frame.iloc[:, :1], frame.iloc[:, :2]
    return ["key", "key second"] if first.duplicated().any() and not both.duplicated().any() else ["key"]


def _shape(column: pd.Series[Any]) -> list[str]:
    """Return the class of a column, if any: numbers stand on the right, long texts need room."""
    if _are_numbers(column):
        return ["number"]
    return ["words"] if any(len(str(value)) > LONG for value in column) else []


def _are_numbers(column: pd.Series[Any]) -> bool:
    return all(NUMBER.fullmatch(str(value)) for value in column)


def _html_row(tags: Sequence[str], cells: Sequence[object], classes: Sequence[Sequence[str]]) -> str:
    parts = (_html_cell(tag, str(cell), of) for tag, cell, of in zip(tags, cells, classes, strict=True))
    return f"<tr>{''.join(parts)}</tr>"


def _html_cell(tag: str, text: str, classes: Sequence[str]) -> str:
    # A page of the lab has a grey for light and one for dark; elsewhere, as in JupyterLab, the one here holds.
    grey, color = (["grey"], ' style="color:var(--grey,#767676)"') if NOT_RANKED in text else ([], "")
    named = f' class="{" ".join([*classes, *grey])}"' if classes or grey else ""
    return f"<{tag}{named}{color}>{escape(text)}</{tag[:2]}>"
