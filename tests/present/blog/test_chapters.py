"""Tests of the chapters of a post: the caveat names the CPUs, and each claim names its source."""

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


def test_the_table_says_which_server_was_not_loaded_and_what_a_second_label_is() -> None:
    """The table says that echo, gnet and nginx had other loads, and that gin has a second label."""
    note, table, *_ = chapters.answer_table(story_of(tables_of("sample")))
    assert isinstance(note, Paragraph) and isinstance(table, TextTable)
    rows = table.frame.set_index("server")
    not_loaded = rows.index[rows["requests/s"] == "not loaded"]
    assert set(not_loaded) == {"echo (Go)", "gnet (Go)", "nginx (C)"}
    assert rows.loc["gin (Go)", "p50, ms"] == "–"
    assert rows.loc["echo (Go)", "p50, ms"] != "–"
    assert "not loaded: the run has no such load of this server." in note.text
    assert "gin-b is gin under a second label" in note.text


def test_a_post_begins_with_one_ratio_that_its_table_has() -> None:
    story = story_of(tables_of("sample"))
    first, second = chapters.finding(story)
    (quoted,) = re.findall(r"\d\.\d+ \[[^\]]+\]", first)
    assert first.endswith(f"axum answers {quoted} times as many requests per second as gin.")
    assert "[" not in second
    _, table, *_ = chapters.answer_table(story)
    assert isinstance(table, TextTable)
    rows = table.frame.set_index("server")
    assert rows.loc["gin (Go)", "axum / this server"] == quoted
