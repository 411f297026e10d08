"""Chapters of a post: the caveat names CPUs, and each claim its source."""

import re

from figure_checks import tables_of, with_facts
from published_runs import plain

from runner.present.blog import chapters
from runner.present.blog.story import Story
from runner.present.frames import Tables
from runner.present.look.markup import Bullets, Paragraph, TextTable
from runner.present.published.sources import ADDRESS_OF_SOURCE


def story_of(tables: Tables) -> Story:
    return Story(tables, tables.manifest, {})


def test_each_claim_names_its_source() -> None:
    (bullets,) = [
        block for block in chapters.claims(story_of(plain())) if isinstance(block, Bullets)
    ]
    titles = [re.match(r"Published in “(.+?)”: ", sentence) for sentence in bullets.sentences]
    assert titles and all(title and title[1] in ADDRESS_OF_SOURCE for title in titles)


def test_the_caveat_names_the_cpus_of_server_and_generator() -> None:
    place = {"server": [0], "generator": [1, 2], "disjoint": True}
    text = chapters.caveat(story_of(with_facts(plain(), placement=place))).text
    assert "had CPUs of their own (server on CPU 0, generator on CPUs 1 and 2)" in text
    without = chapters.caveat(story_of(with_facts(plain(), placement={"disjoint": False}))).text
    assert "server and load generator shared CPUs." in without


def test_the_table_says_which_server_was_not_timed_and_what_a_second_label_is() -> None:
    """In the sample gin was never loaded at a set rate, and has a second label."""
    note, table, *_ = chapters.answer_table(story_of(tables_of("sample")))
    assert isinstance(note, Paragraph) and isinstance(table, TextTable)
    rows = table.frame.set_index("server")["p50 at a set rate, ms"]
    assert rows[rows == "–"].index.tolist() == ["gin"]
    assert "gin had no such load." in note.text
    assert "gin-b is gin under a second label" in note.text
