"""Tests of CPU rates that are computed from cumulative counters.

The computed rate must be that of the known load, no matter when the counters are sampled.
"""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from runner.columns import schema_of
from runner.digest.resources import (
    Counter,
    Window,
    rates,
    read_counters,
    stitched,
    tick_coverage,
    with_edges,
)
from runner.model import LabError


def counter_of(cpu_at, times):
    times = np.asarray(times, dtype=float)
    return Counter(times, {"cpu_s": np.array([cpu_at(t) for t in times])})


def test_mean_uses_the_time_that_really_passed():
    jittered = np.sort(np.random.default_rng(3).uniform(-0.5, 10.5, 220))
    assert counter_of(lambda t: 0.37 * t, [-1, *jittered, 11]).mean_pct(0, 10) == pytest.approx(37)


def test_a_burst_is_800_at_100_ms_and_80_at_1_s():
    """The peak of a burst depends on the length of the windows.

    Eight cores are busy for 100 ms of every second. Their peak is 800 % in windows of 100 ms, and
    80 % in windows of 1 s.
    """

    def burst(t):
        return 0.8 * np.floor(t) + 8 * min(t - np.floor(t), 0.1)

    counter = counter_of(burst, np.arange(0, 10.001, 0.05))
    assert counter.peak_pct(0, 10, 0.1) == pytest.approx(800)
    assert counter.peak_pct(0, 10, 1.0) == pytest.approx(80, rel=0.02)
    assert counter.mean_pct(0, 10) == pytest.approx(80)
    assert np.isnan(counter.peak_pct(0, 0.5, 1.0)), "a window longer than the load"


@pytest.mark.parametrize("phase_s", np.arange(0.0, 0.05, 0.007))
@pytest.mark.parametrize(("idle", "busy"), [(0.0, 1.0), (0.02, 0.6), (0.5, 0.5)])
def test_the_cpu_time_of_a_load_is_whole_whenever_the_sampler_ticks(phase_s, idle, busy):
    """The CPU time within a load is known to 0.1 ms, although the sampler ticks every 50 ms.

    The server uses the share `idle` of a core before and after the load, and `busy` during it.
    """
    lasts_s = 1.0

    def used(t):
        return idle * t + (busy - idle) * np.clip(t, 0.0, lasts_s)

    counter = counter_of(used, phase_s + np.arange(-0.5, 1.5, 0.05))
    window = Window(0, lasts_s, -10_000_000, 1_010_000_000)
    raw = {"server": counter}
    for found in (with_edges(raw, window), stitched(raw, [window], edges_continued=True)):
        server = found["server"]
        assert server.between(0.0, lasts_s) == pytest.approx(busy * lasts_s, abs=1e-4)
        assert np.all(np.diff(server.column("cpu_s")) >= -1e-12)


@pytest.mark.parametrize("phase_s", np.arange(0.0, 0.05, 0.007))
def test_a_process_that_is_busy_at_both_sides_of_an_edge_has_one_cpu(phase_s):
    """A generator uses a whole core from 0.03 s before its load until 0.03 s after it.

    The CPU time within the load, which lasts 1 s, must be 1 s.
    """
    counter = counter_of(lambda t: np.clip(t, -0.03, 1.03), phase_s + np.arange(-0.5, 1.5, 0.05))
    window = Window(0, 1.0, -10_000_000, 1_010_000_000)
    for found in (
        with_edges({"generator": counter}, window),
        stitched({"generator": counter}, [window], edges_continued=True),
    ):
        assert found["generator"].between(0.0, 1.0) == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("phase_s", np.arange(0.0, 0.05, 0.007))
def test_a_server_may_begin_a_load_with_the_cpu_time_that_its_quota_saved(phase_s):
    """The server uses a whole core for 10 ms, and half a core from then on.

    So its CPU use at the beginning is higher than between any two samples within the load. The CPU
    time within the load must be right nevertheless.
    """

    def used(t):
        return 0.5 * (np.clip(t, 0.0, 1.0) + np.clip(t, 0.0, 0.01))

    counter = counter_of(used, phase_s + np.arange(-0.5, 1.5, 0.05))
    window = Window(0, 1.0, -10_000_000, 1_010_000_000)
    for found in (
        with_edges({"server": counter}, window),
        stitched({"server": counter}, [window], edges_continued=True),
    ):
        assert found["server"].between(0.0, 1.0) == pytest.approx(0.505, abs=1e-4)


def test_the_edges_of_an_older_run_are_interpolated():
    """In older runs, the CPU time at the begin and at the end of a load is interpolated.

    The lab no longer interpolates in new runs, but the numbers of older sealed trials must stay the
    same.
    """
    counter = counter_of(lambda t: np.clip(t, 0.0, 1.0), np.arange(-0.525, 1.5, 0.05))
    window = Window(0, 1.0, -10_000_000, 1_010_000_000)
    found = stitched({"server": counter}, [window], edges_continued=False)
    assert found["server"].between(0.0, 1.0) == pytest.approx(0.975)


@pytest.mark.parametrize("phase_s", [0.002, 0.02, 0.045])
def test_the_process_of_another_slice_counts_for_nothing(phase_s):
    """The CPU time of one slice's generator must not count for another slice.

    Each slice has a generator process of its own, whose CPU time begins at 0. The process starts
    and ends with its slice, and uses a whole core meanwhile. The next slice begins 60 ms after the
    end of the previous one.
    """
    starts_s = [0.0, 1.06, 2.12]
    windows = [Window(int(at * 1e9), 1.0, int(at * 1e9), int(at * 1e9) + 10**9) for at in starts_s]
    t_s = []
    used_s = []
    for start_s in starts_s:
        ticks_s = np.arange(np.ceil((start_s - phase_s) / 0.05) * 0.05 + phase_s, start_s + 1, 0.05)
        t_s += [start_s, *ticks_s]
        used_s += [0.0, *(ticks_s - start_s)]
    raw = {"generator": Counter(np.array(t_s), {"cpu_s": np.array(used_s)})}
    generator = stitched(raw, windows, edges_continued=True)["generator"]
    assert generator.between(0.0, 3.0) == pytest.approx(3.0, abs=1e-6)
    assert generator.peak_pct(0.0, 3.0, 1.0) == pytest.approx(100, abs=0.01)


def test_the_server_of_a_neighbouring_slice_does_not_lower_the_rate_beside_a_slice():
    """The CPU time of a server in two slices is the sum over the slices, even if they are close.

    The server uses 0.8 of a core in each slice of 1 s, and no CPU time in the 60 ms between them.
    """
    windows = [Window(int(at * 1e9), 1.0, int(at * 1e9), int(at * 1e9) + 10**9) for at in (0, 1.06)]

    def used(t):
        return 0.8 * (np.clip(t, 0.0, 1.0) + np.clip(t - 1.06, 0.0, 1.0))

    for phase_s in np.arange(0.0, 0.05, 0.007):
        counter = counter_of(used, phase_s + np.arange(-0.5, 2.6, 0.05))
        server = stitched({"server": counter}, windows, edges_continued=True)["server"]
        assert server.between(0.0, 2.0) == pytest.approx(1.6, abs=0.04)


@pytest.fixture
def raw(tmp_path):
    """Write two seconds of raw counters with a tick every 50 ms, and return the file's path.

    The host uses 1.5 cores, and the server a quarter of a core.
    """
    tick = np.arange(41)
    path = tmp_path / "resources.parquet"
    both = {
        "source": "test",
        "tick": tick,
        "mono_ns": 1_000_000_000 + tick * 50_000_000,
        "rss_bytes": 1000 + tick,
    }
    host = {
        "subject": "host",
        "cpu_ns": tick * 75_000_000,
        "steal_ns": tick * 5_000_000,
        "switches": tick * 400,
    }
    server = {"subject": "server", "cpu_ns": tick * 12_500_000, "threads": 7}
    server["connections"] = np.where(tick % 4 == 0, 10 + tick, np.nan)
    rows = pd.concat([pd.DataFrame(both | host), pd.DataFrame(both | server)]).convert_dtypes()
    rows.assign(throttled_ns=pd.array([None] * 82, dtype="Int64")).to_parquet(path)
    return path


def test_reading_and_rates(raw):
    """Means and rates are computed from the counters of a file.

    In each tick of 50 ms, the host counts 400 context switches and 5 ms of stolen time. The server
    runs 7 threads all the time.
    """
    counters = read_counters(raw, 1_000_000_000)
    assert counters["server"].mean_pct(0, 2) == pytest.approx(25)
    assert counters["host"].between(0, 2, "steal_s") == pytest.approx(0.2)
    assert tick_coverage(counters["host"], [Window(0, 2.0, 0, 0)], 20) == 1.0
    assert tick_coverage(counters["host"], [Window(0, 4.0, 0, 0)], 20) == pytest.approx(
        0.5, abs=0.03
    )
    table = rates("t", counters).to_pandas()
    assert set(table["subject"]) == {"host", "server"}
    host, server = (table[table["subject"] == subject] for subject in ("host", "server"))
    for column, value in {"cpu_pct": 150, "switches_per_s": 8000, "steal_ms": 5}.items():
        assert host[column].to_numpy() == pytest.approx(value)
    assert (server["threads"] == 7).all() and host["threads"].isna().all()
    assert server[["switches_per_s", "steal_ms"]].isna().all(axis=None)
    assert server["connections"].dropna().tolist() == [14, 18, 22, 26, 30, 34, 38, 42, 46, 50]


def test_raw_files_of_a_sampler_that_had_less_are_read(raw):
    pq.write_table(pq.read_table(raw).drop_columns(["switches", "threads", "connections"]), raw)
    table = rates("t", read_counters(raw, 1_000_000_000))
    schema = schema_of("resources")
    assert table.select(schema.names).cast(schema).num_rows == 80
    assert table.to_pandas()[["switches_per_s", "threads", "connections"]].isna().all(axis=None)


def test_a_null_throttled_time_is_unknown_and_0_in_older_files(raw):
    now, older = (
        read_counters(raw, 1_000_000_000, throttled_known=known)["server"]
        for known in (False, True)
    )
    assert np.isnan(now.between(0, 2, "throttled_s"))
    assert older.between(0, 2, "throttled_s") == 0
    assert rates("t", {"server": now}).to_pandas()["throttled_ms"].isna().all()
    assert (rates("t", {"server": older}).to_pandas()["throttled_ms"] == 0).all()


def test_a_broken_file_is_one_sentence(tmp_path):
    path = tmp_path / "resources.parquet"
    path.write_bytes(b"PAR1 not parquet")
    with pytest.raises(LabError, match=r"resources\.parquet cannot be read"):
        read_counters(path, 0)
