"""Little's law against loads whose number of requests under way is known."""

import numpy as np
import pytest

from runner.digest.steady import steady_state

WALL_NS = 1_795_000_000_000_000_000


def closed_loop(users, seconds, mean_ms, busy=1.0, seed=1):
    """Return ends and durations of users who wait for each answer, and think so that they are `busy` of the time."""
    rng = np.random.default_rng(seed)
    ends, lengths = [], []
    for _ in range(users):
        clock = 0.0
        while clock < seconds:
            took = rng.exponential(mean_ms / 1000)
            clock += took
            ends.append(clock)
            lengths.append(took * 1000)
            clock += took * (1 / busy - 1)
    return WALL_NS + (np.array(ends) * 1e9).astype(np.int64), np.array(lengths)


def test_users_who_never_wait_are_all_under_way():
    found = steady_state(*closed_loop(50, 5.0, 20.0))
    assert found.in_flight == pytest.approx(50, rel=0.001)
    assert found.iteration_mean_ms == pytest.approx(20.0, rel=0.05)
    assert found.seconds == pytest.approx(4.5, rel=0.05)


def test_users_who_do_something_else_half_of_the_time_are_half_as_many():
    assert steady_state(*closed_loop(50, 5.0, 20.0, busy=0.5)).in_flight == pytest.approx(25, rel=0.1)


def test_an_open_load_has_rate_times_duration_under_way():
    """1000 iterations a second, each 40 ms: 40 under way."""
    ends = WALL_NS + (np.arange(10_000) * 1_000_000 + 40_000_000)
    assert steady_state(ends, np.full(10_000, 40.0)).in_flight == pytest.approx(40, rel=0.01)


def test_without_iterations_there_is_none():
    assert steady_state(np.empty(0, np.int64), np.empty(0)) is None
    assert steady_state(np.array([WALL_NS]), np.array([5.0])) is None
