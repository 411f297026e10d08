"""Blocks of which pages and posts consist, as HTML and as Markdown, and the HTML page around them.

Templates define the output.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

NOT_RANKED = "†"  # marks a value that must not be ranked; HTML also greys its cell
DAGGER = (
    f"{NOT_RANKED} A rate of this load, not a rank of this server: the server was not the limit in "
    "every trial, or the rate was set, or the server is there for calibration."
)
NUMBER = re.compile(
    rf"(≥ |< )?[-–]?[\d,.]*( ?%)?(–[\d,.]+)?( \[[\d,.]+–[\d,.]+\])?( {NOT_RANKED})?"
)
"""A cell with a quantity, a range or an unknown value."""
LABEL = re.compile(
    r'(?<=<div class="table" role="region" aria-label=")[^"]*(?=")'
    r'|(?<=<div aria-label=")[^"]*(?=" class="table")'
)
"""The label of a table, also in HTML from nbconvert, which sorts attributes."""
FLAME = '<figure class="flame">'
"""Begin of a flame graph; texts cannot have it, because their characters are escaped."""
LONG = 20  # number of characters from which on a text is wrapped in its column
SPECIAL = re.compile(r"[\\*~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")
"""Characters that are markup in Markdown."""


@dataclass(frozen=True)
class Heading:
    """A heading; rank 1 is the title of a page."""

    text: str
    rank: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. Its kind is empty, `lead` or `note`, a class of the style sheet."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences; warnings are highlighted.

    HTML folds it behind the line `folded`, if there is one.
    """

    sentences: tuple[str, ...]
    warn: bool = False
    folded: str = ""

    def __bool__(self) -> bool:
        return bool(self.sentences)


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of texts below the heading `title`; `about` is its label for screen readers.

    `name` is the stem of its files in a published folder: NAME.md and NAME.csv.
    """

    frame: pd.DataFrame
    title: str = ""
    about: str = ""
    name: str = ""

    def __bool__(self) -> bool:
        return not self.frame.empty


@dataclass(frozen=True)
class Picture:
    """A figure in the files NAME.svg and NAME.png; its dark version has the suffix `-dark`.

    `caption` says what is shown, and names the run. Sizes are CSS pixels;
    the PNG has twice as many. `trial_id` is empty if the figure covers the whole run. A page has
    the file inside, or a link to it if the picture is not `inside`.
    """

    folder: Path
    name: str
    alt: str
    caption: str
    width_px: int
    height_px: int
    trial_id: str = ""
    inside: bool = True


@dataclass(frozen=True)
class Flame:
    """A flame graph: a static SVG, which the page's viewer replaces by one with search and zoom.

    `data` is for the viewer (viewer/viewer.js). Sizes are CSS pixels. HTML folds the graph behind
    its name, unless it is `opened`.
    """

    svg: str
    data: Mapping[str, Any]
    name: str
    alt: str
    caption: str
    width_px: int
    height_px: int
    opened: bool = True


@dataclass(frozen=True)
class Code:
    """Code, or a command, as it is; `language` is for highlighters."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Link:
    """An address with words for it, and words that follow."""

    words: str
    address: str
    after: str = ""


@dataclass(frozen=True)
class Links:
    """A list of links."""

    links: tuple[Link, ...]

    def __bool__(self) -> bool:
        return bool(self.links)


@dataclass(frozen=True)
class Downloads:
    """Links to the files with numbers and hashes that accompany a post."""


Block = Heading | Paragraph | Bullets | TextTable | Picture | Flame | Code | Links | Downloads
"""Blocks that are falsy, such as lists and tables without content, are left out of pages."""


def html(blocks: Iterable[Block]) -> str:
    """Return blocks as HTML, without empty ones."""
    return "\n".join(_rendered("blocks.html", blocks))


def markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown, without empty ones; characters of texts are escaped."""
    return "\n\n".join(_rendered("blocks.md", blocks))


def _rendered(template: str, blocks: Iterable[Block]) -> list[str]:
    macros = templates().get_template(template).module
    return [
        str(getattr(macros, type(block).__name__.lower())(block)).strip()
        for block in blocks
        if block
    ]


@cache
def templates() -> Environment:
    """Return the templates and the functions that they call; HTML escapes texts."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "prose": prose,
        "literal": literal,
        "table": literal_table,
        "columns": _columns,
    }
    # SVGs inserted directly would share their ids and styles, and have no alternative text.
    found.filters["data_uri"] = lambda svg: _data_uri(svg.read_bytes())
    found.filters["svg_uri"] = lambda svg: _data_uri(svg.encode())
    found.filters["fenced"] = fenced
    found.globals["dagger"] = NOT_RANKED
    return found


def _data_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def prose(text: str) -> Markup:
    """Return a sentence as HTML, with code between backticks."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped)


def literal(text: str) -> str:
    """Return a text escaped for Markdown, except for code between backticks."""
    return SPECIAL.sub(r"\\\g<0>", text)


def fenced(text: str, language: str) -> str:
    """Return code as Markdown, in a fence that is longer than any in the code."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def page(title: str, body: str, description: str = "", image: str = "") -> str:
    """Return a page that loads nothing but what `body` names.

    It has no script, unless `body` has flame graphs: then it has their viewer. `title` and
    `description` are text, `body` is HTML. `image` is the file that other sites show with a link to
    the page.
    """
    seen: Counter[str] = Counter()

    def label(found: re.Match[str]) -> str:
        seen[found[0]] += 1
        return f"{found[0]} ({seen[found[0]]})" if seen[found[0]] > 1 else found[0]

    # Number tables with the same label, because a screen reader lists regions by their labels.
    template = templates().get_template("page.html")
    apart = LABEL.sub(label, body)
    return template.render(
        title=title,
        description=description,
        image=image,
        style=style_sheet(),
        body=apart,
        viewer=viewer() if FLAME in body else "",
    )


@cache
def viewer() -> str:
    """Return the script of flame graphs: d3-flame-graph, the parts of d3 it needs, and ours."""
    folder = Path(__file__).with_name("viewer")
    files = tomllib.loads((folder / "origins.toml").read_text(encoding="utf-8"))["file"]
    names = [*(each["name"] for each in files), "viewer.js"]
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def style_sheet() -> str:
    """Return the style sheet of all pages, which covers phones, dark screens and paper."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def literal_table(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, with all characters escaped."""
    return to_markdown(frame.rename(columns=literal).map(lambda cell: literal(str(cell))))


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, without index, with numbers aligned right."""
    rules = ["---:" if _are_numbers(frame[name]) else "---" for name in frame.columns]
    rows = [list(frame.columns), rules, *frame.itertuples(index=False, name=None)]
    texts = ([str(value).replace("|", "\\|").replace("\n", " ") for value in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in texts)


def _columns(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the name, the cells' tag and the classes of each column.

    The first column names a row, together with the second if both are needed. Numbers are aligned
    right, and long texts get more width.
    """
    first = frame.iloc[:, :1]
    both = frame.iloc[:, :2]
    keys = (
        ["key", "key second"]
        if first.duplicated().any() and not both.duplicated().any()
        else ["key"]
    )
    found = []
    for place, name in enumerate(frame.columns):
        long = any(len(str(value)) > LONG for value in frame[name])
        shape = ["number"] if _are_numbers(frame[name]) else ["words"] if long else []
        tag = 'th scope="row"' if place < len(keys) else "td"
        found.append({"name": str(name), "tag": tag, "classes": [*keys[place : place + 1], *shape]})
    return found


def _are_numbers(column: pd.Series[Any]) -> bool:
    return all(NUMBER.fullmatch(str(value)) for value in column)
