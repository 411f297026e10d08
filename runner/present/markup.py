"""Tables of text as Markdown and HTML."""

from __future__ import annotations

from html import escape

import pandas as pd

NOT_RANKED = "†"
"""Follows a value that must not be ranked; HTML greys the cell too."""


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, the index left out; the first column is aligned left."""
    heads = [_cell(name) for name in frame.columns]
    rules = ["---", *["---:"] * (len(heads) - 1)]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rules, *rows))


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
