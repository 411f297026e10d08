"""Tests of the memory that the lab needs to derive the load model from millions of requests."""

from types import SimpleNamespace

import duckdb
import pytest

from runner.digest.k6 import SORTED_DURATIONS, connect
from runner.digest.load_model import FASTEST, see_load

REQUESTS = 4_200_000
"""Number of requests in the test's load.

The durations of all these requests need 34 MB. An array that grows by doubling needs 64 MB for the
durations, which is more than LIMIT_MB.
"""
LIMIT_MB = 48
FIRST_NS = 1_700_000_000_000_000_000


def write_spool(folder):
    """Write a spool of k6's samples, with one request per iteration.

    The requests take 0, 1, 2, ... µs, but they are not sorted by duration.
    """
    number = f"SELECT {FIRST_NS} + i * 1000 AS end_ns, i * 7919 % {REQUESTS} / 1000 AS ms"
    rows = f"{number} FROM range({REQUESTS}) AS numbers(i)"
    with duckdb.connect() as database:
        for name, columns in (
            ("iterations", "end_ns, 0.1 AS length_ms"),
            ("requests", "ms AS duration_ms, ms AS occupied_ms"),
        ):
            database.execute(f"COPY (SELECT {columns} FROM ({rows})) TO '{folder}/{name}.parquet'")


def test_the_fastest_of_millions_of_requests_are_found_in_little_memory(tmp_path):
    write_spool(tmp_path)
    points = SimpleNamespace(
        first_start_ns=FIRST_NS,
        last_end_ns=FIRST_NS + REQUESTS * 1000,
        dropped_iterations=0,
        first_drop_ns=0,
        steady=None,
    )
    with connect(tmp_path, LIMIT_MB, 2) as database:
        for name in ("iterations", "requests"):
            database.read_parquet(f"{tmp_path}/{name}.parquet").create_view(name)
        database.execute("CREATE TABLE users (at_ns BIGINT, vus INTEGER, allocated BOOLEAN)")
        durations = database.view("requests").project("duration_ms AS ms").order("ms")
        durations.create(f"sorted_{SORTED_DURATIONS}")
        load = see_load(database, points)
    assert load is not None
    assert load.fastest_ms == pytest.approx(FASTEST * (REQUESTS - 1) / 1000, rel=1e-9)
    assert load.request_ms == pytest.approx((REQUESTS - 1) / 2000, rel=1e-9)
