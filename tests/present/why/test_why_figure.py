"""Tests of the figure of profiles, with a run without profiles and a run with known profiles."""

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from built import ROOT
from captions_held import caption_faults
from figure_checks import tables_of

from runner.present.chart.value import charts
from runner.present.frames import read_tables
from runner.present.look import style
from runner.present.notebook import parts
from runner.present.why import figures, words
from runner.present.why.profiles import Profiles
from runner.store import RunFolder

US = {
    "axum": {"kernel network": 14.0, "unknown": 0.0},
    "gin": {"kernel network": 20.0, "HTTP": 9.0},
}
LOAD = "wrk-matrix-c100"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why")
    synthetic_run.build(folder)
    return read_tables(RunFolder(folder))


@pytest.fixture
def profiled(tables, monkeypatch):
    places = range(1, 7)
    names = [{"trial_id": f"p-{server}", "server": server, "load": LOAD} for server in US]
    stacks = [
        {**each, "place": place, "stack": "main", "category": category, "samples": 9}
        | {"us_per_request": mean_us + 0.1 * place}
        for each in names
        for place in places
        for category, mean_us in US[each["server"]].items()
    ]
    slices = [
        {**each, "place": place, "kind": "recorded", "cpu_us_per_request": 20.0}
        for each in names
        for place in places
    ]
    counters = [
        {**each, "event": "cycles", "per_request": np.nan, "supported": False} for each in names
    ]
    made = Profiles(*map(pd.DataFrame, (stacks, slices, counters)))
    monkeypatch.setattr(figures, "profiles_of", lambda _: made)
    return tables


def test_a_run_without_profiles_has_no_page(tables):
    assert not charts("why")["why-categories"].needs(tables)
    assert figures.categories(tables).nothing == figures.NO_PROFILES


def test_each_bar_is_the_mean_of_its_slices(profiled):
    frame = figures.categories(profiled).frame.set_index(["server", "series"])["y"]
    assert frame["gin", "HTTP"] == pytest.approx(9.35)
    assert frame["axum", "all"] == pytest.approx(14.35 + 0.35)


def test_the_drawing_has_a_bar_for_each_number(profiled):
    made = figures.categories(profiled)
    with style.rc():
        (ax,) = made.draw(made).axes
    widths = sorted(bar.get_width() for bar in ax.patches)
    assert widths == pytest.approx(sorted(made.frame["y"]))
    assert {label.get_text() for label in ax.texts} == {"axum", "gin"}


def test_the_caption_is_one_sentence_and_one_line_of_source(profiled):
    made = figures.categories(profiled)
    assert not caption_faults(made.caption)
    assert "Bar: mean of" in made.key


def test_the_caption_says_what_recording_costs_under_its_load():
    """The caption gives what recording costs under the figure's load, not under all loads.

    The figure is that of the sample.
    """
    made = figures.categories(tables_of("sample"))
    slices = pd.read_parquet(ROOT / "data" / "sample" / "tables" / "profile_slices.parquet")
    slices = slices[slices["load"].eq("wrk-matrix-c100-keepalive-share0_5-x4")]
    slices = slices[slices["subject"].eq("server")]
    us = slices.pivot(index=["trial_id", "place"], columns="kind", values="cpu_us_per_request")
    recorded_us = us["recorded"].groupby("trial_id").mean()
    cost = (recorded_us / us["plain"].dropna()).mean() - 1
    assert 0.15 < cost < 0.25, "over all loads, it is 0.155"
    assert f"and recording the profile raised this time by {100 * cost:.0f} %." in made.caption


def test_the_title_says_who_takes_more(profiled):
    made = figures.categories(profiled)
    assert made.title == "gin takes more CPU time per request than axum"
    assert f"{made.title}. " in made.describe(made)
    profiles = figures.profiles_of(profiled)
    (said,) = words.sentences(profiles, figures.load_of_figure(profiles))
    assert said.startswith("gin takes 15.0 µs more CPU time per request than axum: 9.35 in")


def test_the_server_in_the_title_is_always_drawn():
    assert figures.in_figure("abcdefgh") == ["a", "b", "c", "h"]
    assert figures.in_figure("abcd") == ["a", "b", "c", "d"]


def test_the_first_screen_gives_the_reason(profiled):
    shown, *_ = parts.answer(profiled)
    assert shown.sentences[-1] == (
        "gin takes more CPU time per request than axum. Of the additional time, by profiles, 61 % "
        "is spent in HTTP and 39 % in the kernel's network code; it takes less in functions "
        "without a name."
    )


def test_the_page_has_sentences_and_both_tables(profiled, monkeypatch):
    blocks = list(parts.why(profiled))
    assert [type(block).__name__ for block in blocks] == [
        "Heading",
        "Bullets",
        "TextTable",
        "TextTable",
    ]
