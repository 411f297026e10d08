"""A post as one HTML page that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from runner.present.blog.plots import Plot
from runner.present.blog.post import Post, Sheet
from runner.present.look.markup import prose, to_html
from runner.present.look.page import page

FIGURE = """<figure>
<img class="light" src="{light}" width="{width_px}" height="{height_px}" alt="{alt}">
<img class="dark" src="{dark}" width="{width_px}" height="{height_px}" alt="{alt}">
<figcaption>{caption}</figcaption>
</figure>"""
"""The style sheet shows one of the two. A `<picture>` chooses too late for paper: a dark screen's is printed dark."""


def post_html(post: Post, figures: Path) -> str:
    """Return the whole page, with the SVG of each figure, light and dark, from the folder `figures` inside.

    They are data URIs, not inline elements: an `<img>` has an alternative text and can be saved as a picture, and the
    identifiers and styles of one drawing cannot touch another's or the page's. A third more bytes is the price.
    """
    return page(post.title, "\n".join(_blocks(post, figures)), post.description)


def _blocks(post: Post, figures: Path) -> Iterator[str]:
    yield f"<h1>{escape(post.title)}</h1>"
    yield f'<p class="lead">{prose(post.description)}</p>'
    yield "<h2>The answer</h2>"
    yield to_html(post.headlines, "The answer")
    yield from _paragraphs([post.reading] if post.reading else [])
    yield from _list(post.untold)
    yield from _list(post.warnings, ' class="warnings"')
    yield "<h2>Figures</h2>"
    yield from (_figure(plot, figures) for plot in post.plots)
    yield "<h2>Tables</h2>"
    yield from map(_sheet, post.sheets)
    yield from _paragraphs(post.notes, ' class="note"')
    yield "<h2>Load by load</h2>"
    yield from _list(post.findings)
    yield "<h2>Method and verdicts</h2>"
    yield from _paragraphs(post.method)
    yield to_html(post.verdicts, "Verdicts")
    yield "<h2>Machine and provenance</h2>"
    yield to_html(post.machine, "Machine and run")
    yield (
        '<p><a href="tables/trials.csv">Each sealed trial</a> and <a href="tables/summary.csv">the medians</a> are '
        'there as numbers. <a href="provenance.json">provenance.json</a> has the SHA-256 of the tables that all of '
        "this was computed from, of each sealed trial's record and of each file of the folder that has this page.</p>"
    )


def _figure(plot: Plot, figures: Path) -> str:
    return FIGURE.format(
        dark=_data_uri(figures / f"{plot.name}-dark.svg"),
        light=_data_uri(figures / f"{plot.name}.svg"),
        width_px=plot.width_px,
        height_px=plot.height_px,
        alt=escape(plot.alt),
        caption=escape(plot.caption),
    )


def _data_uri(svg: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode('ascii')}"


def _sheet(sheet: Sheet) -> str:
    return f"<h3>{escape(sheet.title)}</h3>\n{to_html(sheet.frame, sheet.title)}"


def _paragraphs(sentences: Iterable[str], attributes: str = "") -> Iterator[str]:
    return (f"<p{attributes}>{prose(sentence)}</p>" for sentence in sentences)


def _list(sentences: Iterable[str], attributes: str = "") -> Iterator[str]:
    items = "".join(f"<li>{prose(sentence)}</li>\n" for sentence in sentences)
    if items:
        yield f"<ul{attributes}>\n{items}</ul>"
