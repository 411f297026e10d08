"""Little's law against loads whose number of requests under way is known."""

from dataclasses import astuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from runner.digest.k6 import steady_state

WALL_NS = 1_795_000_000_000_000_000


def closed_loop(users, seconds, mean_ms, busy=1.0, seed=1):
    """Return ends and durations of users who wait for each answer, and think so that they are `busy` of the time."""
    rng = np.random.default_rng(seed)
    took = rng.exponential(mean_ms / 1000, (users, int(3 * seconds / mean_ms * 1000)))
    ended = np.cumsum(took, axis=1) + np.cumsum(took * (1 / busy - 1), axis=1) - took * (1 / busy - 1)
    kept = ended - took < seconds
    return WALL_NS + (ended[kept] * 1e9).astype(np.int64), took[kept] * 1000


def steady(ends_ns, lengths_ms, parts=7):
    """Ask for the steady state as a digest does: iterations come in parts, one of them empty here."""
    cut = [*np.array_split(np.arange(len(ends_ns)), parts), np.empty(0, int)]
    tables = [pa.table({"end_ns": ends_ns[part], "length_ms": lengths_ms[part]}) for part in cut]
    with duckdb.connect() as database:
        database.register("iterations", pa.concat_tables(tables))
        return steady_state(database)


def test_in_how_many_parts_they_come_does_not_matter():
    loop = closed_loop(50, 5.0, 20.0)
    assert astuple(steady(*loop, parts=40)) == pytest.approx(astuple(steady(*loop, parts=1)), rel=1e-12)


def test_users_who_never_wait_are_all_under_way_and_of_those_busy_half_of_the_time_half_are():
    found = steady(*closed_loop(50, 5.0, 20.0))
    assert found.in_flight == pytest.approx(50, rel=0.001)
    assert (found.iteration_mean_ms, found.seconds) == pytest.approx((20.0, 4.5), rel=0.05)
    assert steady(*closed_loop(50, 5.0, 20.0, busy=0.5)).in_flight == pytest.approx(25, rel=0.1)


def test_an_open_load_has_rate_times_duration_under_way():
    """1000 iterations a second, each 40 ms: 40 under way."""
    ends = WALL_NS + (np.arange(10_000) * 1_000_000 + 40_000_000)
    assert steady(ends, np.full(10_000, 40.0)).in_flight == pytest.approx(40, rel=0.01)


def test_without_iterations_there_is_none():
    assert steady(np.empty(0, np.int64), np.empty(0)) is None
    assert steady(np.array([WALL_NS]), np.array([5.0])) is None
