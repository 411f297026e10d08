"""CPU rates from cumulative counters: known loads come back, whatever the sampling instants."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.digest.resources import Counter, Window, rates, read_counters, tick_coverage
from runner.digest.tables import SCHEMAS
from runner.model import LabError


def counter_of(cpu_at, times):
    times = np.asarray(times, dtype=float)
    cpu = np.array([cpu_at(t) for t in times])
    return Counter(times, cpu, np.full(len(times), 10.0))


def test_mean_uses_the_time_that_really_passed():
    jittered = np.sort(np.random.default_rng(3).uniform(-0.5, 10.5, 220))
    counter = counter_of(lambda t: 0.37 * t, [-1, *jittered, 11])
    assert counter.mean_pct(0, 10) == pytest.approx(37)


def test_a_burst_is_800_at_100_ms_and_80_at_1_s():
    """Eight cores busy for 100 ms of every second."""

    def burst(t):
        return 0.8 * np.floor(t) + 8 * min(t - np.floor(t), 0.1)

    counter = counter_of(burst, np.arange(0, 10.001, 0.05))
    assert counter.peak_pct(0, 10, 0.1) == pytest.approx(800)
    assert counter.peak_pct(0, 10, 1.0) == pytest.approx(80, rel=0.02)
    assert counter.mean_pct(0, 10) == pytest.approx(80)


def test_a_window_longer_than_the_load_has_no_peak():
    assert np.isnan(counter_of(lambda t: t, np.arange(0, 1, 0.05)).peak_pct(0, 0.5, 1.0))


def write_raw(path, subjects):
    rows = [
        {
            "tick": tick,
            "subject": subject,
            "source": "test",
            "mono_ns": 1_000_000_000 + tick * 50_000_000,
            "cpu_ns": round(tick * 50_000_000 * share),
            "rss_bytes": 1000 + tick,
            "throttled_ns": None,
            "steal_ns": tick * 5_000_000 if subject == "host" else None,
            "switches": tick * 400 if subject == "host" else None,
            "threads": 7 if subject == "server" else None,
            "connections": 10 + tick if subject == "server" and tick % 4 == 0 else None,
        }
        for subject, share in subjects.items()
        for tick in range(41)
    ]
    table = pa.Table.from_pylist(rows)
    for name in set(table.column_names) - {"subject", "source"}:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
    pq.write_table(table, path)


def test_reading_and_rates(tmp_path):
    path = tmp_path / "resources.parquet"
    write_raw(path, {"host": 1.5, "server": 0.25})
    counters = read_counters(path, 1_000_000_000)
    assert counters["server"].mean_pct(0, 2) == pytest.approx(25)
    table = rates("t", counters).to_pandas()
    assert set(table["subject"]) == {"host", "server"}
    assert table.loc[table["subject"] == "host", "cpu_pct"].to_numpy() == pytest.approx(150)
    assert counters["host"].between(0, 2, "steal_s") == pytest.approx(0.2)
    assert tick_coverage(counters["host"], [Window(0, 2.0, 0, 0)], 20) == 1.0
    assert tick_coverage(counters["host"], [Window(0, 4.0, 0, 0)], 20) == pytest.approx(0.5, abs=0.03)


def test_switches_steal_and_threads_are_of_those_that_have_them(tmp_path):
    """400 switches and 5 ms stolen in each tick of 50 ms, of the host; 7 threads of the server."""
    path = tmp_path / "resources.parquet"
    write_raw(path, {"host": 1.5, "server": 0.25})
    table = rates("t", read_counters(path, 1_000_000_000)).to_pandas()
    host, server = (table[table["subject"] == subject] for subject in ("host", "server"))
    assert host["switches_per_s"].to_numpy() == pytest.approx(8000)
    assert host["steal_ms"].to_numpy() == pytest.approx(5)
    assert (server["threads"] == 7).all() and host["threads"].isna().all()
    assert server[["switches_per_s", "steal_ms"]].isna().all(axis=None)
    assert server["connections"].dropna().tolist() == [14, 18, 22, 26, 30, 34, 38, 42, 46, 50]


def test_raw_files_of_a_sampler_that_had_less_are_read(tmp_path):
    path = tmp_path / "resources.parquet"
    write_raw(path, {"host": 1.5, "server": 0.25})
    pq.write_table(pq.read_table(path).drop_columns(["switches", "threads", "connections"]), path)
    table = rates("t", read_counters(path, 1_000_000_000))
    assert table.select(SCHEMAS["resources"].names).cast(SCHEMAS["resources"]).num_rows == 80
    assert table.to_pandas()[["switches_per_s", "threads", "connections"]].isna().all(axis=None)


def test_a_broken_file_is_one_sentence(tmp_path):
    path = tmp_path / "resources.parquet"
    path.write_bytes(b"PAR1 not parquet")
    with pytest.raises(LabError, match=r"resources\.parquet cannot be read"):
        read_counters(path, 0)
