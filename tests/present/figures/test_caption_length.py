"""Tests of captions: a caption is one sentence, followed by a line that names the source."""

import pytest
from captions_held import caption_faults, sentences
from committed import charts_of
from figure_checks import tables_of


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


@pytest.mark.parametrize(
    ("caption", "faults"),
    [
        ("One sentence.\nData: run one.", []),
        ("One. Two.\nData: run one.", ["not one sentence"]),
        ("One sentence.", ["not one line of source"]),
        ("Left: this; right: that.\nData: run one.", ["a semicolon"]),
        (f"{'long ' * 40}.\nData: run one.", ["too long"]),
    ],
)
def test_faults_of_captions_are_found(caption: str, faults: list[str]) -> None:
    assert caption_faults(caption) == faults


@pytest.mark.long
@pytest.mark.parametrize("run", ["sample", "all", "seeds", "engines"])
def test_a_caption_is_one_sentence_and_one_line_of_source(run: str) -> None:
    tables = tables_of(run)
    source = f"Data: run {tables.manifest.run_id}."
    charts = charts_of(tables)
    bad = {name: caption_faults(chart.caption) for name, chart in charts.items()}
    assert not {name: faults for name, faults in bad.items() if faults}
    assert {chart.caption.rpartition("\n")[2] for chart in charts.values()} == {source}
