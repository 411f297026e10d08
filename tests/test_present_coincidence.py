"""What coincides with CPU spikes: chance keeps its level; words, tables and figure say what was put in."""

import numpy as np
import pandas as pd
import pytest
import synthetic_run
import synthetic_spikes
from figure_checks import readable, words
from synthetic_spikes import GIN_SPIKES, LOAD_S, SETTLING, WINDOW_S, WINDOWS, ends, found_in, within

from runner.model import LabError
from runner.present.frames import read_tables
from runner.present.spikes import figures as spike_figures
from runner.present.spikes import words as spike_words
from runner.present.spikes.coincidence import ALPHA, Events, by_shift, coincidences, events_of
from runner.present.spikes.found import LIMIT
from runner.present.spikes.view import most_pronounced, survey, view
from runner.store import RunFolder

# --- the test -----------------------------------------------------------------------------------------------


def intervals(*spans):
    return np.array(spans, dtype=float).reshape(-1, 2)


def events(kind, *spans, every_s=0.2):
    return Events(kind, intervals(*spans), every_s)


def course_of(starts_s, seed, length_s=0.2, windows=WINDOWS):
    cpu = np.random.default_rng(seed).normal(30, 1, windows)
    for start in starts_s:
        cpu = cpu + 50 * within(ends(windows), start, length_s)
    return found_in(cpu)


def test_shifting_by_hand_gives_the_same_counts():
    rng = np.random.default_rng(2)
    there = rng.random(97) < 0.15
    spikes = [(3, 6), (40, 42), (90, 97)]
    counts = by_shift(spikes, there)
    for shift in range(97):
        moved = np.roll(there, shift)
        assert counts[shift] == sum(moved[first:after].any() for first, after in spikes)


def strewn(rng, count, apart_s=0.5):
    """Instants in the load that are at least so far apart."""
    return 1.2 + np.sort(rng.uniform(0, 28 - (count - 1) * apart_s, count)) + np.arange(count) * apart_s


def test_p_keeps_its_level_where_nothing_is_tied():
    """Of unrelated spikes and events at most 5 % have p <= 0.05, and p is spread evenly as far as it can be."""
    rng = np.random.default_rng(8)
    p = []
    for seed in range(600):
        spiked = course_of(strewn(rng, 6), seed)
        apart = [(at, at + 0.25) for at in strewn(rng, 25)]
        (of,) = coincidences(spiked, [events("GC cycle", *apart)])
        p.append(of.p)
    p = np.array(p)
    assert np.isfinite(p).all()
    error = np.sqrt(0.05 * 0.95 / p.size)
    assert (p <= 0.05).mean() <= 0.05 + 2 * error
    for level in (0.1, 0.25, 0.5):
        assert (p <= level).mean() <= level + 2 * np.sqrt(level * (1 - level) / p.size)
    assert np.median(p) < 0.75


def test_p_is_small_where_spikes_come_of_the_events():
    rng = np.random.default_rng(9)
    told = 0
    for seed in range(100):
        at = strewn(rng, 25)
        spiked = course_of(rng.choice(at, 6, replace=False), seed)
        (of,) = coincidences(spiked, [events("GC cycle", *[(each, each + 0.2) for each in at])])
        assert of.together == len(spiked.counted) == 6
        told += of.p <= 0.05
    assert told >= 97


def test_the_share_by_chance_is_that_of_all_shifts():
    """One spike of four windows, one event of two: of 580 shifts, five overlap."""
    spiked = course_of([10.0], 1)
    (of,) = coincidences(spiked, [events("GC cycle", (10.05, 10.15))])
    assert (of.together, of.events) == (1, 1)
    assert of.expected == pytest.approx(5 / 580)
    assert of.p == of.least_p == pytest.approx(5 / 580)
    assert of.covered == pytest.approx(2 / 580)


def test_what_is_always_or_never_there_is_not_tested():
    spiked = course_of([10.0, 20.0], 1)
    always, never, tied = coincidences(
        spiked, [events("steal", (0, 30)), events("throttling"), events("GC cycle", (10, 10.2), (20, 20.2))]
    )
    assert (always.covered, always.together) == (1.0, 2) and np.isnan(always.p)
    assert (never.covered, never.together) == (0.0, 0) and np.isnan(never.p)
    assert tied.p_holm == tied.p <= 0.02  # Holm's family has those that can be tested
    said = [spike_words.reading(of, 2) for of in (always, never, tied)]
    assert said == [
        "nothing: there was one all the time", "there was none", "coincides with spikes more than by chance",
    ]  # fmt: skip


def test_events_that_are_too_common_cannot_be_told_from_chance():
    spiked = course_of([10.0], 1)
    often = [(at, at + 0.2) for at in np.arange(1, 30, 0.5)]
    (of,) = coincidences(spiked, [events("GC cycle", *often)])
    assert of.least_p > ALPHA
    assert spike_words.reading(of, 1).startswith("nothing: too common")


def test_no_spikes_no_test():
    (of,) = coincidences(course_of([], 1), [events("GC cycle", (5, 6))])
    assert np.isnan(of.p) and of.events == 1
    assert spike_words.reading(of, 0) == "there is no spike"


# --- events from the tables -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_spikes.build(tmp_path_factory.mktemp("spikes") / "run")


@pytest.fixture(scope="module")
def tables(run):
    return read_tables(RunFolder(run))


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = synthetic_spikes.build(tmp_path_factory.mktemp("old") / "run", probe=False)
    return read_tables(RunFolder(synthetic_spikes.forget_new_columns(folder)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = synthetic_spikes.build(tmp_path_factory.mktemp("database") / "run", database=True, wrk=False)
    return read_tables(RunFolder(folder))


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    folder = synthetic_spikes.build(tmp_path_factory.mktemp("calm") / "run", spikes=False)
    return read_tables(RunFolder(folder))


GIN, AXUM, WRK = "gin-rates-r1000-b1", "axum-rates-r1000-b1", "gin-wrk-matrix-c100-keepalive-b1"


def kinds(shown):
    return {of.kind: of for of in shown.events}


def test_the_spikes_of_a_run_are_those_that_were_put_in(tables):
    shown = view(tables, GIN, "")
    assert [spike.settling for spike in shown.server.spikes] == [True, *[False] * len(GIN_SPIKES)]
    for spike, (begin, length, height) in zip(shown.server.spikes, (SETTLING, *GIN_SPIKES), strict=True):
        assert spike.start_s == pytest.approx(begin, abs=0.051)
        assert spike.length_s == pytest.approx(length, abs=0.101)
        assert spike.height_pct == pytest.approx(height, rel=0.2)
    assert view(tables, AXUM, "").server.spikes == ()


def test_the_events_of_a_run_are_those_that_were_put_in(tables):
    of = kinds(view(tables, GIN, ""))
    assert len(of["GC cycle"].intervals) == 1 + len(GIN_SPIKES)
    for (begin, _, _), (low, high) in zip(sorted((SETTLING, *GIN_SPIKES)), of["GC cycle"].intervals, strict=True):
        assert low <= begin <= high <= low + 0.3
    assert of["GC cycle"].every_s == pytest.approx(0.2)
    assert len(of["connection storm"].intervals) == 1
    low, high = of["connection storm"].intervals[0]
    assert low <= synthetic_spikes.STORM_S <= high <= low + 0.3
    stolen = of["steal"].intervals
    assert stolen == pytest.approx(np.array([(at, at + 0.1) for at in synthetic_spikes.STEALS_S]))
    assert not of["throttling"].unknown and len(of["throttling"].intervals) == 0
    assert len(of["context switches"].intervals) == 0
    assert "pool exhausted" not in of and "database's CPU spike" not in of
    assert kinds(view(tables, AXUM, ""))["GC cycle"].unknown == "the server reports no garbage collector"


def test_an_exhausted_pool_is_an_event(stored):
    of = kinds(view(stored, GIN, ""))["pool exhausted"]
    assert of.intervals[0, 0] == pytest.approx(4.9, abs=0.3)
    assert of.intervals[-1, 1] == pytest.approx(8.0, abs=0.3)
    assert kinds(view(stored, GIN, ""))["database's CPU spike"].intervals.size == 0


def test_close_mode_accepts_all_the_time_and_is_no_storm():
    at = np.arange(1, 601) * WINDOW_S
    rng = np.random.default_rng(6)
    rows = pd.DataFrame({"subject": "server", "t_s": at, "dt_s": WINDOW_S, "throttled_ms": 0.0, "cpu_pct": 50.0})
    rows = rows.assign(gc_cycles=np.nan, pool_size=np.nan, pool_in_use=np.nan, switches_per_s=np.nan, steal_ms=np.nan)
    accepted = np.cumsum(rng.poisson(500, at.size)).astype(float)
    rows["connections"] = np.where(np.arange(at.size) % 4 == 0, accepted, np.nan)
    (storms,) = [of for of in events_of(rows, {}, 30.0) if of.kind == "connection storm"]
    assert not storms.unknown and len(storms.intervals) == 0


# --- which trial, and the control -------------------------------------------------------------------------


def test_the_trial_with_the_most_pronounced_spike_is_shown(tables, calm):
    found = survey(tables)
    assert most_pronounced(found) == GIN
    assert "22.10 s into the load" in spike_words.why(found, GIN)
    still = survey(calm)
    assert (still["spikes"] == 0).all()
    highest = most_pronounced(still)
    assert still.set_index("trial_id").loc[highest, "peak_pct"] == still["peak_pct"].max()
    assert "No server spiked" in spike_words.why(still, highest)


def test_the_control_counts_spikes_by_server(tables):
    found = survey(tables)
    table = spike_words.control_table(found).set_index("server")
    seconds = 2 * (LOAD_S - 1) + 2 * (synthetic_spikes.WRK_S - 1)
    assert table.loc["gin", "spikes"] == str(len(GIN_SPIKES))
    assert float(table.loc["gin", "a minute"]) == pytest.approx(60 * len(GIN_SPIKES) / seconds, rel=0.01)
    assert table.loc["gin", "trials with one"] == "1"
    assert table.loc["gin", "with the load's begin"] == "1"
    assert table.loc["axum", ["spikes", "a minute", "GC cycles/s"]].tolist() == ["0", "0", "none reported"]
    assert "reference (calibration)" in table.index
    said = spike_words.control_words(found, GIN)
    assert "gin 5 spikes in 58.0 s, 5.17 a minute; it reports a garbage collector." in said
    assert said.endswith("Beside it those that report none: axum 0 spikes in 58.0 s, 0 a minute.")
    assert "reference" not in said


def test_without_collectors_there_is_no_control(old):
    folder_less = survey(old).assign(gc_per_s=np.nan)
    assert "there is no control" in spike_words.control_words(folder_less, GIN)


# --- words and figure -------------------------------------------------------------------------------------


def said(shown):
    parts = (spike_words.trial_words, spike_words.spike_words, spike_words.coincidence_words)
    return " ".join([*(part(shown) for part in parts), *spike_words.limits(shown)])


def test_the_table_of_spikes_says_what_happened_meanwhile(tables):
    table = spike_words.spike_table(view(tables, GIN, ""))
    assert table["spike"].tolist() == ["1", "2", "3", "4", "5", "6"]
    assert table["meanwhile"].str.contains("GC cycle").all()
    assert "the load began" in table["meanwhile"][0] and "connection storm" in table["meanwhile"][3]
    assert (table["probe's slowest, ms"] == "4.50").all()


def test_the_collector_coincides_and_steal_does_not(tables):
    shown = view(tables, GIN, "")
    table = spike_words.coincidence_table(shown).set_index("event")
    assert table.loc["GC cycle", "spikes with one"] == "5 of 5"
    assert table.loc["GC cycle", "what it says"] == "coincides with spikes more than by chance"
    assert table.loc["steal", "what it says"] == "no more than by chance"
    assert "coincide with: GC cycle" in said(shown)
    assert "Looked at more coarsely than a spike is long" not in said(shown)  # 0.2 s, and spikes of 0.25


def test_a_part_of_the_load(tables):
    shown = view(tables, GIN, "", 8.0, 17.0)
    assert list(shown.numbered) == [3, 4]
    assert spike_words.spike_table(shown)["spike"].tolist() == ["3", "4"]
    assert "2 in the part shown" in said(shown)
    assert len(shown.server.counted) == len(GIN_SPIKES)
    assert spike_figures.timeline(shown).axes[0].get_xlim() == (8.0, 17.0)


@pytest.mark.parametrize("part", [(-1, 5), (5, 5), (6, 2), (40, 50), (40, 0)])
def test_seconds_that_are_none_of_the_load_are_refused(tables, part):
    with pytest.raises(LabError, match=r"start_s and stop_s must be seconds of the load, 0 to 30\.0"):
        view(tables, GIN, "", *part)


def test_what_cannot_be_told_is_said(tables, old):
    wrk = said(view(tables, WRK, ""))
    assert "wrk keeps no times" in wrk and "a spike has no room" in wrk and "no probe" in wrk
    before = said(view(old, GIN, ""))
    assert "Not known of this trial: context switches, steal, connection storm." in before
    table = spike_words.coincidence_table(view(old, GIN, "")).set_index("event")
    assert table.loc["steal", "what it says"] == "not known: the tables of this run do not have it"
    assert table.loc["GC cycle", "spikes with one"] == "5 of 5"


def panels(figure):
    return [ax.get_ylabel() for ax in figure.axes]


def drawn(ax, label):
    return [line for line in ax.lines if line.get_label() == label]


def test_the_figure_shows_every_window_the_spikes_and_the_peaks(tables):
    figure = spike_figures.timeline(view(tables, GIN, ""))
    readable(figure)
    assert panels(figure) == ["CPU, %", "CPU, %", "req/s", "ms (log)", ""]
    server = figure.axes[0]
    (line,) = drawn(server, "server")
    values = tables.resources.query("trial_id == @GIN and subject == 'server' and t_s > 0")["cpu_pct"]
    assert np.asarray(line.get_ydata(), float)[::2] == pytest.approx(values.to_numpy())
    for ax in figure.axes:
        assert len([patch for patch in ax.patches if patch.get_label() == "spike"]) == 1 + len(GIN_SPIKES)
        assert ax.get_xlim() == (0, LOAD_S)
    row = tables.trials.set_index("trial_id").loc[GIN]
    for label, column, window_s in (("0.1 s", "100ms", 0.1), ("1 s", "1s", 1.0)):
        (mark,) = drawn(server, label)
        assert np.ptp(mark.get_xdata()) == pytest.approx(window_s)
        assert mark.get_ydata()[0] == pytest.approx(row[f"server_cpu_peak_{column}_pct"])
    assert {text.get_text() for text in server.texts} == {"1", "2", "3", "4", "5", "6"}
    assert f"{LIMIT:g} deviations" in words(figure) and GIN in words(figure) and "offered 1 of 1" in words(figure)


def test_the_figure_of_any_trial_can_be_read(tables, old, stored, calm):
    wrk = spike_figures.timeline(view(tables, WRK, ""))
    assert panels(wrk) == ["CPU, %", "CPU, %", "req/s", ""]  # the server's own counts stand in for wrk's
    bare = spike_figures.timeline(view(old, WRK, ""))
    assert panels(bare) == ["CPU, %", "CPU, %", ""]
    assert "wrk keeps no times" in words(bare) and "There was no probe" in words(bare)
    base = spike_figures.timeline(view(stored, GIN, ""))
    assert panels(base)[:3] == ["CPU, %"] * 3
    for figure in (wrk, bare, base, spike_figures.timeline(view(calm, GIN, ""))):
        readable(figure)


def test_the_synthetic_run_of_other_tests_is_read_too(tmp_path):
    """Its tables have neither columns of /stats nor of the host, and one burst of a second."""
    other = read_tables(RunFolder(synthetic_run.build(tmp_path / "run", trials=1)))
    found = survey(other)
    shown = view(other, most_pronounced(found), "")
    (spike,) = shown.server.spikes
    assert spike.start_s == pytest.approx(synthetic_run.BURST_AT_S, abs=0.051)
    assert spike.length_s == pytest.approx(synthetic_run.BURST_S, abs=0.101)
    readable(spike_figures.timeline(shown))
    assert "Not known of this trial" in said(shown)
