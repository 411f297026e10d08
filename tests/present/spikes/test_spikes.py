"""Tests of CPU spikes: injected spikes are found, and steady servers have no spikes.

Spikes and unrelated events coincide no more often than by chance. Words, tables and the figure
describe the spikes and events that were injected.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import synthetic_run
import synthetic_spikes
from built import new_folder
from figure_checks import read, readable, words
from scipy.signal import lfilter
from synthetic_spikes import (
    GIN_SPIKES,
    LOAD_S,
    SETTLING,
    STEALS_S,
    WINDOW_S,
    WINDOWS,
    ends,
    found_in,
    samples,
    within,
)

from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.frames import Tables
from runner.present.spikes import words as spike_words
from runner.present.spikes.coincidence import ALPHA, Events, by_shift, coincidences, events_of
from runner.present.spikes.figures import spikes
from runner.present.spikes.found import LIMIT, robust_deviation, stretches, track
from runner.present.spikes.peaks import peak_table, peak_words, peaks
from runner.present.spikes.side_by_side import has_long_trials, side_by_side
from runner.present.spikes.view import View, most_pronounced, survey, view, windows

QUIET = np.full(WINDOWS, 12.0)


def near(value, off):
    return pytest.approx(value, abs=off)


# --- injected spikes are found --------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [1.0, 3.217, 14.99, 27.4, 29.6])
@pytest.mark.parametrize("length_s", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("height", [20.0, 60.0])
def test_an_injected_spike_comes_back(at_s, length_s, height):
    noise = np.random.default_rng(7).normal(40, 1.5, WINDOWS)
    length_s = min(length_s, 30 - at_s)
    (spike,) = found_in(noise + height * within(ends(), at_s, length_s)).spikes
    expected = (near(at_s, 0.051), near(length_s, 0.101), near(40, 1.5))
    assert (spike.start_s, spike.length_s, spike.baseline_pct) == expected
    # The height is that of the highest window, so it is only as exact as the noise allows.
    assert spike.height_pct == near(height, 5.5)
    assert spike.excess_ms == pytest.approx(height * length_s * 10, rel=0.15)


def test_spikes_of_a_constant_series_need_the_floor_only():
    assert found_in(QUIET).spikes == () and found_in(QUIET).deviation == 2.0
    low, high = (found_in(QUIET + height * within(ends(), 9, 0.3)).spikes for height in (9.9, 10.1))
    assert low == () and [spike.height_pct for spike in high] == pytest.approx([10.1])


LEVEL = np.random.default_rng(3).normal(30, 1, WINDOWS) + 40 * within(ends(), 10, 12)
SHAPES = [
    ("one window", QUIET + 60 * within(ends(), 9.0, 0.05), 0),
    ("two windows", QUIET + 60 * within(ends(), 9.0, 0.10), 1),
    (
        "what fills the last second, and may be a step as well",
        30 + 50 * within(ends(), 29.1, 0.9),
        0,
    ),
    ("what ends half a second before", 30 + 50 * within(ends(), 28.6, 1.0), 1),
    ("a level", LEVEL, 0),
]


@pytest.mark.parametrize(
    ("cpu_pct", "count"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES]
)
def test_what_is_a_spike(cpu_pct, count):
    assert len(found_in(cpu_pct).spikes) == count


def test_two_stretches_with_one_window_between_are_one_spike():
    above = np.array([0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1], dtype=bool)
    assert stretches(above, 2) == ((1, 5), (8, 9))
    assert stretches(above, 1) == ((1, 5), (8, 11), (14, 14))
    assert stretches(np.zeros(0, dtype=bool), 2) == ()


def test_a_spike_of_the_loads_begin_is_listed_and_not_counted():
    found = found_in(30 + 50 * within(ends(), 0.3, 0.5) + 50 * within(ends(), 12.0, 0.5))
    assert [spike.settling for spike in found.spikes] == [True, False]
    assert [spike.start_s for spike in found.counted] == pytest.approx([12.0])
    assert found.settled_s == pytest.approx(29)


@pytest.mark.parametrize("step_s", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("rise", [1, -1])
def test_the_steps_of_a_ramp_are_no_spikes(step_s, rise):
    """The steps of a ramp are no spikes, but a spike within a step is found.

    Even the last step is no spike, although the moving median covers only one side of it.
    """
    level = 50 + rise * 40 * (np.floor((ends() - WINDOW_S) / step_s) * step_s / 30 - 0.5)
    noisy = level + np.random.default_rng(5).normal(0, 1, WINDOWS)
    assert found_in(noisy).counted == ()
    (spike,) = found_in(noisy + 40 * within(ends(), 20.3, 0.4)).counted
    assert spike.start_s == near(20.3, 0.051)


def test_a_short_series_says_that_it_is():
    for count in (0, 1, 39):
        found = found_in(np.full(count, 50.0))
        assert found.spikes == () and np.isnan(found.deviation) and found.settled_s == 0
    assert found_in(np.full(40, 50.0)).deviation == 2.0


def test_missed_ticks_and_windows_outside_the_load():
    """If the sampler missed a tick, the longer window that results counts as one window.

    Windows before and after the load do not count.
    """
    whole = samples(30 + 60 * within(ends(), 15.0, 0.4)).drop(index=[100, 101, 250, 305])
    whole.loc[[102, 251, 306], "dt_s"] = [0.15, 0.10, 0.10]
    wild = pd.DataFrame({"t_s": [-0.5, 30.5], "dt_s": 0.05, "cpu_pct": 900.0})
    found = track(pd.concat([wild, whole]), 30.0)
    (spike,) = found.spikes
    assert (spike.start_s, spike.length_s, found.windows.value.max()) == pytest.approx(
        (15.0, 0.4, 90)
    )


def test_the_deviation_of_normal_noise_is_the_known_one():
    assert robust_deviation(np.random.default_rng(1).normal(50, 3, 100_000)) == pytest.approx(
        3, rel=0.02
    )


# --- steady servers have no spikes ----------------------------------------------------------------


def duty(rng):
    """Return the CPU use per window of a server that is busy for 30 ms of every 100 ms.

    The windows are slightly longer or shorter than 50 ms. So each pair of windows begins at a
    different time within the period of 100 ms.
    """
    length_s = WINDOW_S * (1 + rng.uniform(-0.002, 0.002))
    edges = rng.uniform(0, 0.1) + np.arange(WINDOWS + 1) * length_s
    used = np.floor(edges / 0.1) * 0.03 + np.minimum(edges % 0.1, 0.03)
    return 100 * np.diff(used) / WINDOW_S


def seldom(rng):
    """Return the CPU use per window of a server with a job of 20 ms in a tenth of the windows.

    The windows with a job are drawn at random. By chance, two windows in a row have a job about
    five times in a trial.
    """
    return 10 + 40 * (rng.random(WINDOWS) < 0.1) + rng.normal(0, 1, WINDOWS)


TRIALS = 1000
STEADY = {
    "normal": (lambda rng: rng.normal(40, 3, WINDOWS), 0),
    "each like the one before": (
        lambda rng: 40 + lfilter([1], [1, -0.8], rng.normal(0, 2, WINDOWS)),
        0,
    ),
    "duty cycle": (duty, 0),
    "all of a CPU, and now and then less": (
        lambda rng: (
            np.minimum(100, rng.normal(99.5, 0.5, WINDOWS)) - 40 * (rng.random(WINDOWS) < 0.02)
        ),
        0,
    ),
    "jobs of 20 ms, on the average one per window": (
        lambda rng: 10 + 40 * rng.poisson(1.0, WINDOWS) + rng.normal(0, 1, WINDOWS),
        0,
    ),
    "as skewed as waiting times": (lambda rng: 20 + rng.exponential(10, WINDOWS), 5),
    "log-normal": (lambda rng: 20 + 10 * np.exp(rng.normal(0, 1, WINDOWS)), 20),
    "jobs of 20 ms, seldom": (seldom, 40),
}
"""Kinds of noise, each as (function that draws the CPU use of a trial, limit).

Of TRIALS trials that the function draws, no more than the limit may have a spike.
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", STEADY)
def test_a_steady_server_has_no_spikes(kind):
    rng, (noise, most) = np.random.default_rng(11), STEADY[kind]
    assert sum(bool(found_in(noise(rng)).spikes) for _ in range(TRIALS)) <= most


def test_a_spike_among_chance_windows_is_found_alone():
    rng = np.random.default_rng(12)
    alone = 0
    for _ in range(50):
        found = found_in(seldom(rng) + 80 * within(ends(), 14.0, 0.6))
        (spike,) = [spike for spike in found.spikes if spike.overlaps(14.0, 14.6)]
        assert (spike.start_s, spike.length_s) == (near(14.0, 0.101), near(0.6, 0.151))
        alone += found.spikes == (spike,) and found.fewest > 2
    assert alone >= 40


def test_many_real_spikes_do_not_pass_for_chance():
    """In a trial with a spike of 100 ms in each second, all of these spikes are found.

    Each spike is a pair of high windows. Chance alone would not make so many pairs, so the lab must
    not take the pairs for chance.
    """
    cpu = np.random.default_rng(4).normal(30, 1, WINDOWS)
    found = found_in(cpu + 40 * sum(within(ends(), begin + 0.25, 0.1) for begin in range(1, 29)))
    assert len(found.counted) == 28 and found.fewest == 2


GIN = "gin-rates-r1000-b1"
AXUM = "axum-rates-r1000-b1"
WRK = "gin-wrk-matrix-c100-keepalive-b1"
CYCLE = "GC cycle"


# --- the test of coincidences ---------------------------------------------------------------------


def hold(starts_s, seed, *kinds):
    """Test whether spikes of 0.2 s that start at `starts_s` coincide with events.

    Each item of `kinds` is (kind, (begin, end), ...) with the times of the events of one kind.
    Return the result for each kind, followed by the number of spikes that were found.
    """
    cpu = np.random.default_rng(seed).normal(30, 1, WINDOWS)
    for start in starts_s:
        cpu = cpu + 50 * within(ends(), start, 0.2)
    spiked = found_in(cpu)
    events = [
        Events(kind, np.array(spans, dtype=float).reshape(-1, 2), 0.2) for kind, *spans in kinds
    ]
    return *coincidences(spiked, events), len(spiked.counted)


def test_shifting_by_hand_gives_the_same_counts():
    there = np.random.default_rng(2).random(97) < 0.15
    spikes = [(3, 6), (40, 42), (90, 97)]
    for shift, count in enumerate(by_shift(spikes, there)):
        assert count == sum(np.roll(there, shift)[first:after].any() for first, after in spikes)


def strewn(rng, count, apart_s=0.5):
    """Return `count` random instants in the load, in seconds, that are at least `apart_s` apart."""
    return (
        1.2
        + np.sort(rng.uniform(0, 28 - (count - 1) * apart_s, count))
        + np.arange(count) * apart_s
    )


def test_p_keeps_its_level_where_nothing_is_tied():
    """If spikes and events are unrelated, p <= 0.05 in at most 5 % of the trials.

    Likewise, p <= 0.25 in at most 25 % of the trials, and p <= 0.5 in at most 50 %.
    """
    rng = np.random.default_rng(8)
    pairs = [(strewn(rng, 6), [(at, at + 0.25) for at in strewn(rng, 25)]) for _ in range(600)]
    p = np.array(
        [hold(spikes, seed, (CYCLE, *spans))[0].p for seed, (spikes, spans) in enumerate(pairs)]
    )
    assert np.isfinite(p).all() and np.median(p) < 0.75
    for level in (0.05, 0.1, 0.25, 0.5):
        assert (p <= level).mean() <= level + 2 * np.sqrt(level * (1 - level) / p.size)


def test_p_is_small_where_spikes_come_of_the_events():
    rng = np.random.default_rng(9)
    small = 0
    for seed in range(100):
        at = strewn(rng, 25)
        found, count = hold(
            rng.choice(at, 6, replace=False), seed, (CYCLE, *[(each, each + 0.2) for each in at])
        )
        assert found.together == count == 6
        small += found.p <= 0.05
    assert small >= 97


def test_the_share_by_chance_is_that_of_all_shifts():
    """The share expected by chance is the share of all shifts in which spike and event overlap.

    In a shift, all events are moved by the same number of windows, in a circle. A spike of four
    windows and an event of two windows overlap in five of the 580 shifts.
    """
    found, _ = hold([10.0], 1, (CYCLE, (10.05, 10.15)))
    assert (found.together, found.count) == (1, 1)
    assert found.expected == found.p == found.least_p == pytest.approx(5 / 580)
    assert found.covered == pytest.approx(2 / 580)


def test_what_is_always_or_never_there_is_not_tested():
    kinds = ("steal", (0, 30)), ("throttling",), (CYCLE, (10, 10.2), (20, 20.2))
    always, never, tied, _ = hold([10.0, 20.0], 1, *kinds)
    assert (always.covered, always.together) == (1.0, 2) and np.isnan(always.p)
    assert (never.covered, never.together) == (0.0, 0) and np.isnan(never.p)
    # Only one kind of event can be tested, so Holm's correction changes nothing.
    assert tied.p_holm == tied.p <= 0.02
    assert spike_words.reading(always, 2) == "nothing: no time was free of such events"
    assert spike_words.reading(never, 2) == "there was no such event"
    assert spike_words.reading(tied, 2) == "coincides with spikes more than by chance"


def test_events_that_are_too_common_do_not_differ_from_chance():
    """If there is nearly always an event, coincidences cannot differ from chance.

    If there is no spike, there is no test.
    """
    often, _ = hold([10.0], 1, (CYCLE, *[(at, at + 0.2) for at in np.arange(1, 30, 0.5)]))
    assert often.least_p > ALPHA
    assert spike_words.reading(often, 1).startswith(
        "nothing: with so many events, or so few spikes"
    )
    none, count = hold([], 1, (CYCLE, (5, 6)))
    assert np.isnan(none.p) and none.count == 1 and count == 0
    assert spike_words.reading(none, 0) == "there is no spike"


# --- events from the tables -----------------------------------------------------------------------


@cache
def run(old: bool = False, **shape: bool) -> Tables:
    """Return a synthetic run.

    If `old`, the run lacks the columns that earlier versions of the lab did not store.
    """
    folder = synthetic_spikes.build(new_folder(), **shape)
    return read(synthetic_spikes.forget_new_columns(folder) if old else folder)


def of(trial, *part, **shape) -> View:
    """Return the view of a trial of the run `run(**shape)`, or of a part of this trial."""
    return view(run(**shape), trial, "", *part)


def kinds(shown):
    return {events.kind: events for events in shown.events}


def test_the_spikes_of_a_run_are_those_that_were_put_in():
    found = of(GIN).server.spikes
    assert [spike.settling for spike in found] == [True, *[False] * len(GIN_SPIKES)]
    for spike, (begin, length, height) in zip(found, (SETTLING, *GIN_SPIKES), strict=True):
        assert (spike.start_s, spike.length_s) == (
            pytest.approx(begin, abs=0.051),
            pytest.approx(length, abs=0.101),
        )
        assert spike.height_pct == pytest.approx(height, rel=0.2)
    assert of(AXUM).server.spikes == ()


def test_the_events_of_a_run_are_those_that_were_put_in():
    events = kinds(of(GIN))
    cycles = sorted(begin for begin, _, _ in (SETTLING, *GIN_SPIKES))
    for kind, begins in ((CYCLE, cycles), ("connection storm", [synthetic_spikes.STORM_S])):
        for begin, (low, high) in zip(begins, events[kind].intervals, strict=True):
            assert low <= begin <= high <= low + 0.3
    assert events[CYCLE].every_s == pytest.approx(0.2)
    assert events["steal"].intervals == pytest.approx(np.array([(at, at + 0.1) for at in STEALS_S]))
    assert not events["throttling"].unknown
    assert len(events["throttling"].intervals) == len(events["context switches"].intervals) == 0
    assert "pool exhausted" not in events and "database's CPU spike" not in events
    assert kinds(of(AXUM))[CYCLE].unknown == "the server reports no garbage collector"


def test_an_exhausted_pool_is_an_event():
    events = kinds(of(GIN, database=True, wrk=False))
    spans = events["pool exhausted"].intervals
    assert (spans[0, 0], spans[-1, 1]) == (pytest.approx(4.9, abs=0.3), pytest.approx(8.0, abs=0.3))
    assert events["database's CPU spike"].intervals.size == 0


def test_close_mode_accepts_all_the_time_and_is_no_storm():
    at = ends()
    none = dict.fromkeys(
        [
            *("gc_cycles", "gc_pause_total_ms", "pool_size", "pool_in_use"),
            *("switches_per_s", "steal_ms", "waited_ms", "stopped"),
        ],
        np.nan,
    )
    accepted = np.cumsum(np.random.default_rng(6).poisson(500, at.size)).astype(float)
    connections = np.where(np.arange(at.size) % 4 == 0, accepted, np.nan)
    rows = pd.DataFrame(
        {"subject": "server", "t_s": at, "dt_s": WINDOW_S, "throttled_ms": 0.0, "cpu_pct": 50.0}
    )
    found = {
        events.kind: events
        for events in events_of(rows.assign(connections=connections, **none), {}, 30.0)
    }
    storms = found["connection storm"]
    assert not storms.unknown and len(storms.intervals) == 0


# --- the trial that is shown, and the comparison of servers ---------------------------------------


def test_the_trial_with_the_most_pronounced_spike_is_shown():
    found = survey(run())
    still = survey(run(spikes=False))
    assert most_pronounced(found) == GIN and "22.10 s into the load" in spike_words.why(found, GIN)
    highest = most_pronounced(still)
    assert (still["spikes"] == 0).all()
    assert still.set_index("trial_id").loc[highest, "peak_pct"] == still["peak_pct"].max()
    assert "No server spiked" in spike_words.why(still, highest)


def test_only_trials_that_are_long_enough_are_said_to_have_no_spike():
    still = survey(run(spikes=False))
    highest = most_pronounced(still)
    short = still.assign(seconds=still["seconds"].where(still["trial_id"] == highest, 0.0))
    said = spike_words.why(short, highest)
    count = len(still) - 1
    assert said.startswith(
        f"No server spiked in the 1 trial that is long enough ({count} are too short) of this run"
    )
    none = spike_words.why(still.assign(seconds=0.0), highest)
    assert none.startswith("No trial of this run is long enough to look for spikes; this one has")


def test_the_control_counts_spikes_by_server():
    found = survey(run())
    table = spike_words.control_table(found).set_index("server")
    gin = table.loc["gin"]
    assert gin[["spikes", "trials with a spike", "spikes at the beginning"]].tolist() == [
        str(len(GIN_SPIKES)),
        "1",
        "1",
    ]
    seconds = 2 * (LOAD_S - 1) + 2 * (synthetic_spikes.WRK_S - 1)
    assert float(gin["spikes a minute"]) == pytest.approx(60 * len(GIN_SPIKES) / seconds, rel=0.01)
    assert table.loc["axum", ["spikes", "spikes a minute", "GC cycles/s"]].tolist() == [
        "0",
        "0",
        "none reported",
    ]
    assert "reference (calibration)" in table.index
    said = spike_words.control_words(found, GIN)
    assert "gin 5 spikes in 58.0 s, 5.17 a minute; it reports a garbage collector." in said
    assert said.endswith(
        "For comparison, servers that report none: axum 0 spikes in 58.0 s, 0 a minute."
    )
    assert "there is no server to compare with" in spike_words.control_words(
        found.assign(gc_per_s=np.nan), GIN
    )


# --- words and figure about one trial -------------------------------------------------------------


def said(shown):
    parts = (spike_words.trial_words, spike_words.spike_words, spike_words.coincidence_words)
    return " ".join([*(part(shown) for part in parts), *spike_words.limits(shown)])


def test_the_tables_say_what_coincides():
    shown = of(GIN)
    table = spike_words.spike_table(shown)
    assert table["spike"].tolist() == ["1", "2", "3", "4", "5", "6"]
    assert table["meanwhile"].str.contains(CYCLE).all()
    assert (
        "the load or a slice began" in table["meanwhile"][0]
        and "connection storm" in table["meanwhile"][3]
    )
    assert (table["probe's slowest, ms"] == "4.50").all()
    table = spike_words.coincidence_table(shown).set_index("event")
    assert table.loc[CYCLE, "spikes with one"] == "5 of 5"
    assert table.loc[CYCLE, "what it says"] == "coincides with spikes more than by chance"
    assert table.loc["steal", "what it says"] == "no more than by chance"
    assert "coincide with: GC cycle" in said(shown)
    assert "Sampled at longer intervals than a spike takes" not in said(
        shown
    )  # the time of an event is known to 0.2 s, which is shorter than a spike of 0.25 s


def test_a_part_of_the_load():
    shown = of(GIN, 8.0, 17.0)
    assert list(shown.numbered) == [3, 4] and spike_words.spike_table(shown)["spike"].tolist() == [
        "3",
        "4",
    ]
    assert "2 are in the part shown" in said(shown)
    assert len(shown.server.counted) == len(GIN_SPIKES)
    assert draw(spikes(shown)).axes[0].get_xlim() == (8.0, 17.0)


@pytest.mark.parametrize("part", [(-1, 5), (5, 5), (6, 2), (40, 50), (40, 0)])
def test_seconds_that_are_none_of_the_load_are_refused(part):
    with pytest.raises(
        LabError, match=r"start_s and stop_s must be seconds of the load from 0 to 30\.0"
    ):
        of(GIN, *part)


def test_what_is_not_known_is_said():
    wrk = said(of(WRK))
    old = of(GIN, old=True, probe=False)
    assert "wrk keeps no times" in wrk and "no probe" in wrk
    assert "the absence of spikes proves nothing" in wrk
    assert "Not known for this trial: waiting for a CPU, steal, stopped, " in said(old)
    table = spike_words.coincidence_table(old).set_index("event")
    assert (
        table.loc["steal", "what it says"] == "not known: the tables of this run do not contain it"
    )
    assert table.loc[CYCLE, "spikes with one"] == "5 of 5"


def drawn(shown):
    """Draw the figure of a trial and check that it can be read.

    Return the figure and the labels of its panels.
    """
    figure = draw(spikes(shown))
    readable(figure)
    return figure, [ax.get_ylabel() for ax in figure.axes]


def test_the_figure_shows_every_window_the_spikes_and_the_peaks():
    figure, panels = drawn(of(GIN))
    assert panels == ["CPU, %", "CPU, %", "req/s", "ms (log)", ""]
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    values = run().resources.query("trial_id == @GIN and subject == 'server' and t_s > 0")[
        "cpu_pct"
    ]
    assert np.asarray(lines["server"].get_ydata(), float)[::2] == pytest.approx(values.to_numpy())
    for ax in figure.axes:
        assert len([patch for patch in ax.patches if patch.get_label() == "spike"]) == 1 + len(
            GIN_SPIKES
        )
        assert ax.get_xlim() == (0, LOAD_S)
    row = run().trials.set_index("trial_id").loc[GIN]
    for label, column, window_s in (("0.1 s", "100ms", 0.1), ("1 s", "1s", 1.0)):
        assert np.ptp(lines[label].get_xdata()) == pytest.approx(window_s)
        assert lines[label].get_ydata()[0] == pytest.approx(row[f"server_cpu_peak_{column}_pct"])
    assert {text.get_text() for text in figure.axes[0].texts} == {"1", "2", "3", "4", "5", "6"}
    assert (
        f"{LIMIT:g} deviations" in words(figure)
        and GIN in words(figure)
        and "Data: run " in words(figure)
    )


def test_the_figure_of_any_trial_can_be_read():
    assert drawn(of(WRK))[1] == [
        "CPU, %",
        "CPU, %",
        "req/s",
        "",
    ]  # wrk has no requests over time, so the server's counts are drawn
    bare, panels = drawn(of(WRK, old=True, probe=False))
    assert panels == ["CPU, %", "CPU, %", ""]
    assert f"trial {of(WRK).case.trial_id} " in words(bare)
    assert drawn(of(GIN, database=True, wrk=False))[1][:3] == ["CPU, %"] * 3
    drawn(of(GIN, spikes=False))


def test_the_synthetic_run_of_other_tests_is_read_too(tmp_path):
    """The spike in the synthetic run that other tests use is found.

    In this run the server has one burst of CPU use, which lasts one second. The run's tables have
    no columns with values of /stats, and no rows about the host.
    """
    other = read(synthetic_run.build(tmp_path, trials=1))
    shown = view(other, most_pronounced(survey(other)), "")
    (spike,) = shown.server.spikes
    assert spike.start_s == pytest.approx(synthetic_run.BURST_AT_S, abs=0.051)
    assert spike.length_s == pytest.approx(synthetic_run.BURST_S, abs=0.101)
    drawn(shown)
    assert "Not known for this trial" in said(shown)


# --- peaks of all trials, and the table of all windows --------------------------------------------


def test_the_highest_peaks_come_first_with_their_cause():
    found = peaks(run())
    spikes_of_gin = found[found["is_spike"]]
    heights = sorted((height for _, _, height in GIN_SPIKES), reverse=True)
    assert spikes_of_gin["height_pct"].to_numpy() == pytest.approx(heights, rel=0.2)
    assert spikes_of_gin["at_s"].iloc[0] == near(22.1, 0.051)
    assert spikes_of_gin["cause"].str.startswith("garbage collection: 1 cycle").all()
    others = found[~found["is_spike"]]
    assert set(others["trial_id"]) == set(
        run().trials["trial_id"][run().trials["tier"] != "calibration"]
    ) - {GIN}
    assert (others["cause"] == "").all()
    assert "reference" not in set(found["server"])


def test_the_peaks_over_two_windows_are_those_of_the_samples():
    row = peaks(run()).iloc[0]
    cpu = run().resources.query("trial_id == @GIN and subject == 'server' and t_s > 0")
    near_it = cpu[cpu["t_s"].between(row["at_s"] - 1, row["at_s"] + 2)]["cpu_pct"]
    assert row["peak_100ms_pct"] == pytest.approx(near_it.rolling(2).mean().max())
    assert row["peak_1s_pct"] == pytest.approx(near_it.rolling(20).mean().max(), rel=0.01)


def test_a_peak_is_its_height_above_the_baseline():
    """In the table of peaks, the peak over 100 ms agrees with the height plus the baseline.

    For a peak that is no spike, the two are equal. For a spike, the peak over 100 ms is not larger
    than height plus baseline.
    """
    found = peaks(run())
    top_pct = found["height_pct"] + found["baseline_pct"]
    is_spike = found["is_spike"].astype(bool)
    assert (found["peak_100ms_pct"] <= top_pct + 0.1)[is_spike].all()
    single = found[~is_spike]
    assert len(single) > 0
    assert single["peak_100ms_pct"].to_numpy() == pytest.approx(top_pct[~is_spike].to_numpy())


def test_the_table_of_peaks_says_what_is_no_spike():
    table = peak_table(peaks(run(spikes=False)))
    assert (table["cause"] == "no spike").all()
    assert "no server spiked" in peak_words(peaks(run(spikes=False)))
    capped = run()
    trials = capped.trials.assign(share=0.5)
    assert peaks(replace(capped, trials=trials)).empty


def test_long_trials_of_all_servers_share_one_axis():
    chart = side_by_side(run())
    assert chart.title == "gin spiked 5 times in 29 s, axum never"
    figure = draw(chart)
    readable(figure)
    cpu, pauses = figure.axes
    assert {line.get_label() for line in cpu.lines} >= {"gin", "axum"}
    assert [label.get_text() for label in pauses.get_yticklabels()] == ["gin GC"]
    assert not has_long_trials(run_of_short_loads())


def run_of_short_loads() -> Tables:
    """Return the run without its loads at an offered rate."""
    whole = run()
    return replace(whole, trials=whole.trials[whole.trials["tool"] == "wrk"])


def test_the_tidy_frame_has_every_window_with_its_spike():
    frame = windows(of(GIN))
    server = frame[(frame["subject"] == "server") & (frame["t_s"] > 0)]
    assert len(server) == WINDOWS
    third = server[server["spike"] == 3]
    assert third["t_s"].min() == near(9.5 + WINDOW_S, 0.001)
    assert len(third) == pytest.approx(0.2 / WINDOW_S, abs=1)
    assert third["baseline_pct"].to_numpy() == pytest.approx(40, abs=1)
    assert (frame.loc[frame["subject"] == "generator", "spike"] == 0).all()
