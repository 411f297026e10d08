"""Tests of the elements of pages and posts, and of posts about several kinds of run.

Tables must be accessible to screen readers, Markdown must show texts unchanged, and headings
without content must be left out.
"""

import re
from pathlib import Path

import mistune
import nbformat
import pandas as pd
import pytest
import synthetic_database
import synthetic_rates
import synthetic_run
from figure_checks import read
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from shown import soup

from runner.present.blog.post import Post, compose
from runner.present.look.markup import (
    Code,
    Heading,
    TextTable,
    html,
    literal,
    markdown,
    page,
    prose,
    style_sheet,
)
from runner.present.look.palette import NIGHT
from runner.present.notebook.notebooks import export_html


def test_a_table_says_what_its_rows_and_columns_are() -> None:
    frame = pd.DataFrame(
        {
            "server": ["axum", "<gin>"],
            "requests/s": ["1,234", "987 †"],
            "p50, ms": ["–", "0.0412"],
            "range": ["9,000 [8,820–9,180]", "≥ 500"],
            "verdicts": ["generator-bound 3 of 3, inconclusive", "offered"],
        }
    )
    box = soup(html([TextTable(frame, about="Loads & more")])).div
    assert (box["role"], box["tabindex"], box["aria-label"]) == ("region", "0", "Loads & more")
    heads = [
        [(head.get_text(), head["scope"]) for head in part.find_all("th")]
        for part in (box.thead, box.tbody)
    ]
    assert heads == [[(name, "col") for name in frame.columns], [("axum", "row"), ("<gin>", "row")]]
    classes = [cell.get("class", []) for cell in box.tbody.find_all("tr")[1].find_all("td")]
    assert classes == [["number", "grey"], ["number"], ["number"], ["words"]]
    assert [cell["class"] for cell in box.find_all("th", class_="key")] == [["key"]] * 3
    assert (
        soup(html([TextTable(frame)])).div["aria-label"] == "Table of server, requests/s, p50, ms"
    )


def test_two_columns_that_name_a_row_are_both_its_headings() -> None:
    frame = pd.DataFrame(
        {"load": ["a", "a", "b"], "server": ["x", "y", "x"], "rps": ["1", "2", "3"]}
    )
    named = soup(html([TextTable(frame)])).tbody.find_all("th", scope="row")
    assert [head.get_text() for head in named] == ["a", "x", "a", "y", "b", "x"]
    assert [head["class"] for head in named[:2]] == [["key"], ["key", "second"]]
    twice = pd.concat([frame, frame])  # no two columns tell the rows apart
    assert len(soup(html([TextTable(twice)])).tbody.find_all("th", scope="row")) == 6


def test_tables_of_one_name_are_told_apart() -> None:
    table = html([TextTable(pd.DataFrame({"a": ["1"]}))])
    found = soup(page("t", table * 3)).find_all("div", class_="table")
    assert [box["aria-label"] for box in found] == [
        "Table of a",
        "Table of a (2)",
        "Table of a (3)",
    ]


def test_a_page_says_its_title_and_has_the_style_sheet() -> None:
    text = page("a < b", "<h1>x</h1>", 'say "it"')
    assert soup(text).title.get_text() == "a < b"
    assert soup(text).find("meta", attrs={"name": "description"})["content"] == 'say "it"'
    assert style_sheet() in text and "prefers-color-scheme: dark" in style_sheet()


def test_every_variable_of_the_style_sheet_is_set() -> None:
    """The style sheet sets every variable that it uses, for light pages and for dark pages."""
    css = style_sheet()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    set_in = [set(re.findall(r"(--[\w-]+):", block)) for block in (light, dark)]
    assert set_in[0] == set_in[1] == set(re.findall(r"var\((--[\w-]+)\)", css))
    papers = [re.search(r"--page: (#\w+);", block)[1] for block in (light, dark)]
    # A dark figure has the background colour NIGHT. A dark page must have the same background
    # colour, so that the figure's edge is not visible.
    assert papers == ["#fff", NIGHT.lower()]


def rendered(source: str) -> list[str]:
    """Return the text that each of two Markdown libraries shows for the source.

    The second library follows CommonMark.
    """
    renders = (
        mistune.create_markdown(escape=False, plugins=["table", "strikethrough"]),
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render,
    )
    return [soup(str(render(source))).get_text().strip() for render in renders]


SENTENCES = [
    "axum 0.0412 < gin 0.0815 (×1.98 [1.9–2.0]); a<b, p<0.05 and </p>",
    "fsync on, synchronous_commit off, __init__ and _so_ *on* ~~not~~",
    "a \\ b & c &amp; d &lt; e",
    "[a](b) and [c][d] and [e]: f",
    "verdicts | rates",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_come_out_of_markdown_as_they_went_in(sentence: str) -> None:
    assert rendered(literal(sentence)) == [sentence, sentence]


WORDS = st.lists(
    st.sampled_from(
        ["a", "b_c", "_d", "*", "**", "<", ">", "[", "](", "]", "&", "&amp;", "~~", "1", "\\", "|"]
    ),
    min_size=1,
)


@given(WORDS)
def test_any_words_come_out_of_markdown_as_they_went_in(words: list[str]) -> None:
    sentence = "x " + " ".join(words) + " y" + "".join(words) + " z"
    assert rendered(literal(sentence)) == [sentence, sentence]


def test_code_between_backticks_is_code() -> None:
    assert prose("run `bench <x>` & go") == "run <code>bench &lt;x&gt;</code> &amp; go"


# --- sections of a notebook without content -------------------------------------------------------


def exported(tmp_path: Path, *cells: str) -> list[str]:
    """Export a notebook with these cells, and return the texts of its page.

    `= text` is a code cell with the output `text`, and `=` is a code cell without output. Any other
    cell is Markdown.
    """
    made = []
    for cell in cells:
        if cell.startswith("="):
            outputs = [nbformat.v4.new_output("stream", text=cell[2:])] if cell[2:] else []
            made.append(nbformat.v4.new_code_cell("pass", outputs=outputs))
        else:
            made.append(nbformat.v4.new_markdown_cell(cell))
    path = tmp_path / "n.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    export_html(path, path.with_suffix(".html"))
    body = soup(path.with_suffix(".html").read_text()).main
    return [
        found.get_text().replace("¶", "").strip()
        for found in body.find_all(["h1", "h2", "h3", "p", "pre"])
    ]


SECTIONS = {
    "# Title|=|## Kept|= shown|## Gone\n\nIts words.|=|More words.|=|## Last|=|= end": (
        "Title|Kept|shown|Last|end"
    ),
    "# Title|## Gone|### Gone too|=|## Stays|### Gone|=|### Full|= shown|## Words\n\nOnly words.": (
        "Title|Stays|Full|shown|Words|Only words."
    ),
}
"""The cells of each notebook, and the texts that the notebook's page must have.

Both cells and texts are separated by `|`. A section reaches from its heading to the next heading of
the same or a higher level. If a section has code cells, but none of them has an output, the section
is left out with its heading and its words. A section that has only words, and no code cell, stays.
"""


@pytest.mark.parametrize("cells", SECTIONS)
def test_a_heading_without_content_is_left_out_with_its_words(tmp_path: Path, cells: str) -> None:
    assert "|".join(exported(tmp_path, *cells.split("|"))) == SECTIONS[cells]


def test_code_cannot_leave_its_fence() -> None:
    code = "wrk -d1s\n```\n<script>alert(1)</script>\n`````"
    shown = soup(MarkdownIt("commonmark", {"html": True}).render(markdown([Code(code, "sh")])))
    assert shown.find("code").get_text() == f"{code}\n" and not shown.find("script")
    assert html([Code("a < b & <script>", "go")]) == (
        '<pre><code class="language-go">a &lt; b &amp; &lt;script&gt;</code></pre>'
    )


# --- posts about runs of each kind ----------------------------------------------------------------


def posted(folder: Path) -> tuple[Post, dict[str, str]]:
    """Return the post about a run, and the words under each heading of the post's report."""
    post = compose(read(folder), ())
    found = dict[str, str]()
    title = ""
    for block in post.report:
        if isinstance(block, Heading) and block.rank == 2:
            title = block.text
        found[title] = f"{found.get(title, '')} {markdown([block])}"
    return post, found


def test_a_post_about_inserts(tmp_path: Path) -> None:
    post, sections = posted(synthetic_database.build(tmp_path, synthetic_database.THREE, trials=2))
    assert "postgresql" in post.tags and "inserts" in {sheet.name for sheet in post.text_tables}
    assert "rows were in the database" in sections["Load by load"]
    assert "In an open loop" in sections["How it was measured"]
    assert "synchronous_commit off" in sections["Machine and provenance"]


def test_a_post_about_rates(tmp_path: Path) -> None:
    post, sections = posted(synthetic_rates.build(tmp_path, blocks=3))
    names = {sheet.name for sheet in post.text_tables}
    assert {"objectives", "rates"} <= names and "inserts" not in names
    assert "probe" in sections["How it was measured"]


def test_a_title_counts_many_servers(tmp_path: Path) -> None:
    post, sections = posted(synthetic_run.build(tmp_path, synthetic_run.NINE, k6=(), trials=1))
    assert post.title == "9 web API servers under wrk"
    assert not {"probe", "open loop"} & set(
        re.findall("probe|open loop", sections["How it was measured"])
    )
