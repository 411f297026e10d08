"""What a post says of runs of each kind: inserts, rates, many servers."""

from itertools import chain, takewhile
from pathlib import Path

import figure_checks
import numpy as np
import pytest
import synthetic_database
import synthetic_rates
import synthetic_run

from runner.present.blog import plots
from runner.present.blog.post import Post, compose
from runner.present.chart import draw
from runner.present.figures import closed_loads
from runner.present.frames import read_tables
from runner.present.look import style
from runner.present.look.content import Block, Bullets, Heading, Paragraph, TextTable
from runner.store import RunFolder


def composed(folder: Path) -> Post:
    return compose(read_tables(RunFolder(folder)), ())


def section(post: Post, title: str) -> list[Block]:
    """The blocks under a heading of the second rank."""
    ranks = [block.text if isinstance(block, Heading) and block.rank == 2 else "" for block in post.blocks]
    start = ranks.index(title) + 1
    return [*takewhile(lambda block: not isinstance(block, Heading), post.blocks[start:])]


def sentences(blocks: list[Block]) -> list[str]:
    lists = [block.sentences for block in blocks if isinstance(block, Bullets)]
    return [*(block.text for block in blocks if isinstance(block, Paragraph)), *chain.from_iterable(lists)]


def test_a_post_about_inserts(tmp_path: Path) -> None:
    found = composed(synthetic_database.build(tmp_path, synthetic_database.THREE, trials=2))
    assert "postgresql" in found.tags
    assert "inserts" in {sheet.name for sheet in found.text_tables}
    assert any("rows were in the database" in sentence for sentence in sentences(section(found, "Load by load")))
    assert any("In an open loop" in sentence for sentence in sentences(section(found, "How it was measured")))
    (frame,) = [block.frame for block in section(found, "Machine and provenance") if isinstance(block, TextTable)]
    machine = dict(zip(frame["what"], frame["value"], strict=True))
    assert "synchronous_commit off" in machine["Database"]


def test_a_post_about_rates(tmp_path: Path) -> None:
    found = composed(synthetic_rates.build(tmp_path, blocks=3))
    assert {"objectives", "rates"} <= {sheet.name for sheet in found.text_tables}
    assert any("probe" in sentence for sentence in sentences(section(found, "How it was measured")))
    assert not {"inserts"} & {sheet.name for sheet in found.text_tables}


def test_a_title_counts_many_servers(tmp_path: Path) -> None:
    found = composed(synthetic_run.build(tmp_path, synthetic_run.NINE, k6=(), trials=1))
    assert found.title == "9 web API servers under wrk"
    assert not any(
        "probe" in sentence or "open loop" in sentence for sentence in sentences(section(found, "How it was measured"))
    )


def test_a_figure_without_its_caption_keeps_the_size_of_its_panels(tmp_path: Path) -> None:
    figure = draw(closed_loads.requests(read_tables(RunFolder(synthetic_run.build(tmp_path, trials=5)))))
    caption, height = figure.texts[2].get_text(), figure.get_size_inches()[1]
    sizes = [ax.get_position().height * height for ax in figure.axes]
    feet = [ax.get_position().y0 * height for ax in figure.axes]
    plots.without_caption(figure)
    rest = figure.get_size_inches()[1]
    lines = len(caption.splitlines())
    assert lines > 1 and rest == pytest.approx(height - lines * style.SMALL_PT * style.LINE / 72)
    assert "Machine" not in figure_checks.words(figure)
    np.testing.assert_allclose([ax.get_position().height * rest for ax in figure.axes], sizes)
    np.testing.assert_allclose([ax.get_position().y0 * rest for ax in figure.axes], np.array(feet) - (height - rest))
    figure_checks.readable(figure)
