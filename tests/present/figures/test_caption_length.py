"""A caption is one sentence and a line that names the source."""

import re

import pytest
from committed import charts_of
from figure_checks import tables_of

MOST_LETTERS = 150
"""About two lines of a figure."""


def sentences(text: str) -> int:
    """The number of sentences; a point in a number or in a name ends none."""
    return len(re.findall(r"[.!?](?=\s|$)", text))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Line: mean. Band: its interval.", 2),
        ("The mark is 0.5 ms, of rates-p99.9-s1.", 1),
        ("Which one? This one.", 2),
        ("", 0),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert sentences(text) == count


@pytest.mark.long
@pytest.mark.parametrize("run", ["sample", "all", "seeds"])
def test_a_caption_is_one_sentence_and_one_line_of_source(run: str) -> None:
    tables = tables_of(run)
    source = f"Data: run {tables.manifest.run_id}."
    bad = []
    for name, chart in charts_of(tables).items():
        words, *rest = chart.caption.split("\n")
        is_short = len(words) <= MOST_LETTERS and words.count(";") == 0
        if rest != [source] or sentences(words) != 1 or not is_short:
            bad.append((name, chart.caption))
    assert not bad
