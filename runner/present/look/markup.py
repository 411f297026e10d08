"""Define the blocks of pages and posts, and print the blocks as HTML or Markdown with templates.

The module also makes the HTML page around the blocks.
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

NOT_RANKED = "†"  # marks a value that must not be ranked; in HTML, the cell is also grey
NOT_LOADED = "not loaded"  # text for a server that did not run under the load
DAGGER = (
    f"{NOT_RANKED} A rate of this load that does not rank the server: the server was not the limit "
    "in every trial, or the load set the rate, or the server is only for calibration."
)
NUMBER = re.compile(
    rf"(≥ |< )?[-–]?[\d,.]*( ?%)?(–[\d,.]+)?( ±[\d,.]+ ?%)?( \[[\d,.]+–[\d,.]+\])?"
    rf"( {NOT_RANKED})?|{NOT_LOADED}"
)
"""Pattern of a cell that contains a number, a range, `–` or `NOT_LOADED`.

A column that consists of such cells is aligned right.
"""
LABEL = re.compile(
    r'(?<=<div class="table" role="region" aria-label=")[^"]*(?=")'
    r'|(?<=<div aria-label=")[^"]*(?=" class="table")'
)
"""Pattern, in HTML, of the label by which screen readers name a table.

The pattern has two alternatives, because the attributes of the tag may be in two orders: the
templates write `class` before the label, but nbconvert sorts attributes by name.
"""
FLAME = '<figure class="flame">'
"""The HTML with which each flame graph begins. A page has flame graphs if it contains this HTML.

Nothing else in a page can contain this HTML, because texts are escaped.
"""
LONG = 20  # a column is made wider if one of its texts has more characters than this
UNIT_SLASH = re.compile(r"(?<=\w)/(?=\w{3})")
"""Pattern of a slash in a unit. A line may break after this slash."""
INTERVAL = re.compile(r"\[[^\]\[<>]+\]|±[\d,.]+ ?%")
"""Pattern of the interval of a number. A line must not break inside the interval."""
MOST_COLUMNS_OF_A_PHONE = 5
"""If a table has more columns than this, each of its rows becomes a card on a phone."""
SPECIAL = re.compile(r"[\\*~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")
"""Characters that Markdown would take as markup."""


@dataclass(frozen=True)
class Heading:
    """A heading, which is the title of a page if its rank is 1."""

    text: str
    rank: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. `kind` is the paragraph's class in the style sheet: `lead`, `note` or empty."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences, which is highlighted if `warn` is True.

    If `folded` is not empty, HTML hides the list behind the line `folded` until the reader opens
    the list.
    """

    sentences: tuple[str, ...]
    warn: bool = False
    folded: str = ""

    def __bool__(self) -> bool:
        return bool(self.sentences)


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of texts below the heading `title`.

    `about` is the table's label for screen readers. If `name` is not empty, a published folder
    contains the table as the files NAME.md and NAME.csv, too.
    """

    frame: pd.DataFrame
    title: str = ""
    about: str = ""
    name: str = ""

    def __bool__(self) -> bool:
        return not self.frame.empty


@dataclass(frozen=True)
class Picture:
    """A figure in the files NAME.svg and NAME.png of a folder.

    The dark version of the figure is in NAME-dark.svg and NAME-dark.png. `alt` is the alternative
    text. `caption` says what the figure shows, and names the run. Sizes are in CSS pixels. The PNG
    has two pixels per CSS pixel. `trial_id` is empty if the figure is about the whole run. If
    `inside` is True, a page contains the SVG. If `inside` is False, the page refers to the file.
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
    """A flame graph, which is a static SVG until the page's script replaces it.

    The script (viewer/viewer.js) draws a graph with search and zoom from `data`. Sizes are in CSS
    pixels. Unless `opened` is True, HTML hides the graph behind its name until the reader opens it.
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
    """Code or a command, which is printed unchanged.

    `language` tells syntax highlighters the language of the code.
    """

    text: str
    language: str = ""


@dataclass(frozen=True)
class Link:
    """A link with its words and its address, followed by the text `after`."""

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
"""A block of a page. A page leaves out blocks that are falsy: lists and tables without content."""


def html(blocks: Iterable[Block]) -> str:
    """Return blocks as HTML, without empty blocks."""
    return "\n".join(_rendered("blocks.html", blocks))


def markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown with escaped texts, without empty blocks."""
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
    """Return Jinja's environment, with the templates and the functions that templates call.

    Templates for HTML and SVG escape texts.
    """
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "prose": prose,
        "quantity": quantity,
        "literal": literal,
        "table": literal_table,
        "columns": _columns,
    }
    # SVGs are in the page as data URIs. If they were elements of the page, several SVGs would share
    # ids and styles, and would have no alternative text.
    found.filters["data_uri"] = lambda svg: _data_uri(svg.read_bytes())
    found.filters["svg_uri"] = lambda svg: _data_uri(svg.encode())
    found.filters["fenced"] = fenced
    found.globals["dagger"] = NOT_RANKED
    found.globals["widest"] = MOST_COLUMNS_OF_A_PHONE
    return found


def _data_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def prose(text: str) -> Markup:
    """Return a sentence as escaped HTML, in which text between backticks is marked as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped)


def quantity(text: str) -> Markup:
    """Return the text of a table cell that contains a number, as HTML.

    The HTML lets a line break after the slash of a unit, but not inside an interval.
    """
    broken = UNIT_SLASH.sub("/<wbr>", str(prose(text)))
    return Markup(INTERVAL.sub(r'<span class="whole">\g<0></span>', broken))  # noqa: S704 (escaped)


def literal(text: str) -> str:
    """Return a text escaped for Markdown. Backticks are not escaped, so they still mark code."""
    return SPECIAL.sub(r"\\\g<0>", text)


def fenced(text: str, language: str) -> str:
    """Return code as Markdown, between fences with more backticks than any line of the code."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def page(title: str, body: str, description: str = "", image: str = "") -> str:
    """Return an HTML page around `body`.

    The page loads only files that `body` names. It contains a script only if `body` contains flame
    graphs. `title` and `description` are plain text, and `body` is HTML. `image` is the file of the
    picture that other sites show beside a link to the page.
    """
    seen: Counter[str] = Counter()

    def label(found: re.Match[str]) -> str:
        seen[found[0]] += 1
        return f"{found[0]} ({seen[found[0]]})" if seen[found[0]] > 1 else found[0]

    # Screen readers list tables by their labels. If several tables of a page have the same label,
    # add a number to the label of each table after the first, so that all labels differ.
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
    """Return the script for flame graphs.

    The script consists of d3-flame-graph, the parts of d3 that d3-flame-graph needs, and the lab's
    own viewer.js.
    """
    folder = Path(__file__).with_name("viewer")
    files = tomllib.loads((folder / "origins.toml").read_text(encoding="utf-8"))["file"]
    names = [*(each["name"] for each in files), "viewer.js"]
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def style_sheet() -> str:
    """Return the style sheet of all pages, with rules for phones, dark screens and printing."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def literal_table(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, in which `literal` has escaped each text."""
    return to_markdown(frame.rename(columns=literal).map(lambda cell: literal(str(cell))))


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a table of texts as Markdown, without the index.

    Columns of numbers are aligned right.
    """
    rules = ["---:" if _are_numbers(frame[name]) else "---" for name in frame.columns]
    rows = [list(frame.columns), rules, *frame.itertuples(index=False, name=None)]
    texts = ([str(value).replace("|", "\\|").replace("\n", " ") for value in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in texts)


def _columns(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the name, the HTML tag of the cells, and the CSS classes of each column.

    The cells of the first column are the names of the rows. If these names are not unique, but are
    unique together with the second column, both columns name the rows. Numbers are aligned right,
    and columns with long texts are wider.
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
