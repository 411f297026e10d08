"""How a notebook's cell shows tables, sentences and lists: as HTML, as Markdown and as text."""

from __future__ import annotations

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.
import io
from html import escape

import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from runner.present.look import style
from runner.present.look.markup import literal, prose, to_html, to_markdown


def show_table(table: pd.DataFrame, words: str = "") -> None:
    """Show a table of texts, `words` above it; nothing where it is empty."""
    if table.empty:
        return
    lead = f"<p><strong>{escape(words)}</strong></p>\n" if words else ""
    plain = f"**{literal(words)}**\n\n" if words else ""
    markdown = plain + to_markdown(table.astype(str).map(literal))
    display({"text/html": lead + to_html(table, words), "text/markdown": markdown, "text/plain": markdown}, raw=True)


def show_text(words: str) -> None:
    """Show a paragraph."""
    display({"text/html": f"<p>{prose(words)}</p>", "text/plain": words}, raw=True)


def show_list(sentences: tuple[str, ...], strong: bool = False) -> None:
    """Show sentences as a list, warnings `strong`; nothing where there are none."""
    if not sentences:
        return
    items = "".join(f"<li>{prose(sentence)}</li>\n" for sentence in sentences)
    style = ' class="warnings" style="font-weight:bold"' if strong else ""
    plain = "\n".join(f"- {sentence}" for sentence in sentences)
    display({"text/html": f"<ul{style}>\n{items}</ul>", "text/plain": plain}, raw=True)


def png_of(figure: Figure) -> bytes:
    """Return a figure as PNG for a reader in front of the notebook, where no file is written."""
    with style.rc():
        figure.savefig(picture := io.BytesIO(), format="png", dpi=150)
    return picture.getvalue()
