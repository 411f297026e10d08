"""Tables of text as Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import pandas as pd

from runner.model import Server

NOT_RANKED = "†"
"""Follows a value that must not be ranked; HTML greys the cell too."""


def to_markdown(frame: pd.DataFrame, rule: str = "---:") -> str:
    """Return a table of texts as Markdown, the index left out; the first column is aligned left, the rest by `rule`."""
    heads = [_cell(name) for name in frame.columns]
    rules = ["---", *[rule] * (len(heads) - 1)]
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
    return to_markdown(pd.DataFrame(rows), "---")


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


def to_html(frame: pd.DataFrame) -> str:
    """Return a table of texts as HTML that scrolls sideways on a narrow screen, the index left out."""
    heads = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(_html_cell(str(value)) for value in row) + "</tr>\n"
        for row in frame.itertuples(index=False, name=None)
    )
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>'


def _html_cell(text: str) -> str:
    grey = ' class="grey" style="color:#767676"' if NOT_RANKED in text else ""
    return f"<td{grey}>{escape(text)}</td>"
