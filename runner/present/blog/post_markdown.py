"""A post as Markdown with front matter, its figures and tables in files beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape

import pandas as pd

from runner.present.blog.plots import Plot
from runner.present.blog.post import Post, Sheet
from runner.present.look.markup import literal, to_markdown

FIGURE = """<figure>
<picture>
<source media="(prefers-color-scheme: dark)" srcset="figures/{name}-dark.svg" type="image/svg+xml">
<source srcset="figures/{name}.svg" type="image/svg+xml">
<img src="figures/{name}.png" width="{width_px}" height="{height_px}" alt="{alt}">
</picture>
<figcaption>{caption}</figcaption>
</figure>"""
"""The SVG is sharp at any size; the PNG is for readers of feeds, which know no SVG and no `<picture>`."""


def post_markdown(post: Post) -> str:
    """Return the whole file. It has no heading of the first rank: blogs write the front matter's title above a post."""
    return "\n\n".join(block for block in _blocks(post) if block) + "\n"


def table_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, of which no character is markup."""
    return to_markdown(frame.rename(columns=literal).map(lambda cell: literal(str(cell))))


def _blocks(post: Post) -> Iterator[str]:
    yield _front_matter(post)
    yield "## The answer"
    yield table_markdown(post.headlines)
    yield literal(post.reading)
    yield _list(map(literal, post.untold))
    yield _list((f"**{literal(warning)}**" for warning in post.warnings), bullet="*")
    yield "## Figures"
    yield from map(_figure, post.plots)
    yield "## Tables"
    yield from map(_sheet, post.sheets)
    yield from map(literal, post.notes)
    yield "## Load by load"
    yield _list(map(literal, post.findings))
    yield "## Method and verdicts"
    yield from map(literal, post.method)
    yield table_markdown(post.verdicts)
    yield "## Machine and provenance"
    yield table_markdown(post.machine)
    yield (
        "[Each sealed trial](tables/trials.csv) and [the medians](tables/summary.csv) are there as numbers. "
        "[provenance.json](provenance.json) has the SHA-256 of the tables that all of this was computed from, of each "
        "sealed trial's record and of each file of this folder."
    )


def _front_matter(post: Post) -> str:
    """Return title, date, description and tags as YAML; a string of JSON is one of YAML."""
    facts = {"title": post.title, "date": post.started_at, "description": post.description, "tags": list(post.tags)}
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items() if value)
    return "\n".join(("---", *lines, "---"))


def _figure(plot: Plot) -> str:
    return FIGURE.format(
        name=plot.name,
        width_px=plot.width_px,
        height_px=plot.height_px,
        alt=escape(plot.alt),
        caption=escape(plot.caption),
    )


def _sheet(sheet: Sheet) -> str:
    link = f"([CSV](tables/{sheet.name}.csv))"
    return f"### {literal(sheet.title)}\n\n{table_markdown(sheet.frame)}\n\n{link}"


def _list(sentences: Iterable[str], bullet: str = "-") -> str:
    """Return a list; of two in a row the second needs another bullet to be one of its own."""
    return "\n".join(f"{bullet} {sentence}" for sentence in sentences)
