"""Test of the post in examples/post, which `make readme` writes."""

import bs4
import pytest
from built import ROOT

from runner.present.blog.publish import publish
from runner.store import RunFolder

MOST_WORDS = 1200
MOST_BYTES = 2_000_000
"""Limit of the total size of the post's files, which each clone of the repository contains."""


@pytest.mark.long
def test_the_example_is_the_post_of_the_committed_run(tmp_path):
    example = ROOT / "examples" / "post"
    made = publish(RunFolder(ROOT / "data" / "sample"), tmp_path / "post", print, page_only=True)
    names = [path.relative_to(made.folder) for path in made.files]
    assert names == [path.relative_to(example) for path in sorted(example.rglob("*.*"))]
    for name in names:
        assert (example / name).read_bytes() == (made.folder / name).read_bytes(), name
    assert sum((example / name).stat().st_size for name in names) < MOST_BYTES
    page = bs4.BeautifulSoup((example / "index.html").read_text(), "html.parser")
    assert len(page.main.get_text(" ").split()) <= MOST_WORDS
