"""Tests of naming what ran in a spike, with a timeline whose burst runs a known function."""

import shutil

import numpy as np
import pytest
import synthetic_profiles
from captions_held import caption_faults
from synthetic_profiles import BURST_PCT, BURST_S, TIMELINE_S, USUAL_PCT, timeline_tables

from runner.present.frames import read_tables
from runner.present.spikes.found import track
from runner.present.spikes.ran import Timeline, read_timelines, what_ran
from runner.present.spikes.ran_figure import has_timelines
from runner.present.spikes.ran_figure import ran as figure
from runner.present.spikes.ran_words import ran_table, ran_words, timeline_words
from runner.store import RunFolder


def timeline_of(**changes):
    tables = timeline_tables(**changes)
    windows = tables["timeline_windows"]
    found = track(windows, TIMELINE_S)
    samples = tables["timeline_samples"]
    return Timeline("t-axum", "axum", "a load", found, samples, TIMELINE_S)


def test_a_burst_is_named_with_its_time_and_its_callers():
    (ran,) = what_ran(timeline_of())
    length_s = BURST_S[1] - BURST_S[0]
    assert (ran.spike.start_s, ran.spike.end_s) == pytest.approx(BURST_S)
    assert ran.more_ms == pytest.approx(10 * BURST_PCT * length_s, rel=0.05)
    assert (ran.function.callers, ran.function.name) == (("main", "collect"), "sweep_pages")
    assert ran.function.share == pytest.approx(BURST_PCT / (BURST_PCT + USUAL_PCT), abs=0.02)
    assert ran.function.usual_share == 0
    assert ran.function.stands_out
    assert next(iter(ran.kinds)) == "runtime and garbage collector"
    assert ran.kinds["HTTP"] == pytest.approx(0, abs=5)


def test_more_of_the_same_work_names_no_function():
    """If all functions use more CPU in a burst, no function is named.

    The words then call the burst "more of the same work".
    """
    (ran,) = what_ran(timeline_of(burst_stack="main;serve"))
    assert not ran.function.stands_out
    assert ran_words(ran).endswith("in the same functions as around it: more of the same work.")


def test_the_function_of_a_burst_that_always_runs_a_little_is_named():
    """A function that uses most of a burst is named even if it also runs outside of the burst.

    Here the function uses 5 % of the CPU time before the burst.
    """
    made = timeline_of()
    rows = made.samples
    usual = rows["stack"].eq("main;serve") & (np.arange(len(rows)) % 20 == 0)
    changed = rows.assign(stack=rows["stack"].mask(usual, synthetic_profiles.BURST))
    samples = Timeline("t", "axum", "a load", made.track, changed, TIMELINE_S)
    (ran,) = what_ran(samples)
    assert ran.function.name == "sweep_pages"
    assert ran.function.stands_out
    assert ran.function.usual_share == pytest.approx(0.05, abs=0.02)


def test_without_samples_nothing_is_said_of_functions():
    made = timeline_of()
    (ran,) = what_ran(
        Timeline("t", "axum", "a load", made.track, made.samples.iloc[:0], TIMELINE_S)
    )
    assert ran.function is None
    assert "0 samples of perf are too few" in ran_words(ran)
    assert ran_table([ran])["function with most of it"].tolist() == ["–"]


def test_samples_outside_of_windows_do_not_count():
    """A sample of perf does not count if it lies in no window of the sampler.

    Here the sampler missed the windows from 7 to 8 s, so perf's samples of this second are ignored.
    """
    tables = timeline_tables()
    windows = tables["timeline_windows"]
    hole = windows["t_s"].between(7.0, 8.0)
    late = tables["timeline_samples"]["t_s"].between(7.05, 7.95)
    samples = tables["timeline_samples"].assign(
        stack=tables["timeline_samples"]["stack"].mask(late, "main;elsewhere")
    )
    found = track(windows[~hole], TIMELINE_S)
    (ran,) = what_ran(Timeline("t", "axum", "a load", found, samples, TIMELINE_S))
    assert ran.function.name == "sweep_pages"
    assert ran.more_ms == pytest.approx(10 * BURST_PCT * 0.5, rel=0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_profiles.build(tmp_path_factory.mktemp("timelines") / "run")


def test_a_run_tells_what_its_spikes_ran(run):
    (timeline,) = read_timelines(RunFolder(run))
    ran = what_ran(timeline)
    said = ran_words(ran[0])
    assert said.startswith("Spike 1 (at 6.00 s, 0.50 s long) took ")
    assert said.endswith(" % of it in sweep_pages, which did not run around it.")
    assert "1 spike in 11" in timeline_words(timeline, ran, "a load")


def test_the_figure_has_the_burst_in_a_lane_of_its_own(run):
    made = figure(read_tables(RunFolder(run)))
    assert not caption_faults(made.caption)
    assert made.title == "axum: the spike at 6.0 s ran sweep_pages"
    lane = made.frame[made.frame["panel"].eq("sweep_pages")]
    inside = lane["x"].between(BURST_S[0] + 0.01, BURST_S[1] + 0.01)
    assert lane.loc[inside, "y"].mean() == pytest.approx(BURST_PCT, rel=0.1)
    assert lane.loc[~inside, "y"].max() == 0
    usual = made.frame[made.frame["panel"].eq("HTTP")]
    assert usual["y"].mean() == pytest.approx(USUAL_PCT, rel=0.05)


def test_a_run_without_a_timeline_has_none(run, tmp_path):
    assert read_timelines(RunFolder(tmp_path)) == []
    alone = shutil.copytree(run, tmp_path / "run")
    for path in (alone / "tables").glob("timeline_*"):
        path.unlink()
    assert not has_timelines(read_tables(RunFolder(alone)))
