"""Tests of causes: for each spike, the lab names the cause that was put into the samples.

If the server was held back before the spike, the lab also says what held it back.
"""

import numpy as np
import pandas as pd
import pytest
from synthetic_spikes import LOAD_S, WINDOW_S, WINDOWS, ends, within

from runner.present.spikes.causes import Cause, explain
from runner.present.spikes.found import track
from runner.present.spikes.hindrance import Hold, hindrances, others
from runner.present.spikes.view import surroundings

BASE_PCT = 30.0
HELD_AT_S, HELD_S = 10.0, 0.4
CATCH_UP_S = HELD_S * BASE_PCT / (95 - BASE_PCT)
"""How long a server needs to do the work that waited while it was held back, in seconds.

The server then uses 95 % of a core.
"""
UNKNOWN = ("gc_cycles", "gc_pause_total_ms", "gc_cpu_s", "requests", "connections")


def rows(subject, cpu_pct, **columns):
    """Return the rows of the server or of the host (`subject`) in the table `resources`.

    A row is a window of the sampler. The columns in UNKNOWN come from the server's /stats, which
    is read only in every fourth window, so the other rows have no values in these columns.
    """
    values = dict.fromkeys(
        ("throttled_ms", "waited_ms", "stopped", "steal_ms", "busiest_thread_pct"), np.nan
    )
    frame = pd.DataFrame(
        {"subject": subject, "t_s": ends(), "dt_s": WINDOW_S, "cpu_pct": cpu_pct, **values}
    )
    frame = frame.assign(**dict.fromkeys(UNKNOWN, np.nan)).assign(**columns)
    frame.loc[np.arange(WINDOWS) % 4 != 0, list(UNKNOWN)] = np.nan
    return frame


def trial(cpu_pct, *, stolen_ms=0.0, host_pct=None, **columns):
    """Return the samples of a trial whose server has this CPU use and these columns.

    By default, no other program runs on the machine.
    """
    quiet = {"throttled_ms": 0.0, "waited_ms": 0.0, "stopped": 0.0, "requests": 1000 * ends()}
    server = rows("server", cpu_pct, **{**quiet, **columns})
    host = rows("host", cpu_pct if host_pct is None else host_pct, steal_ms=stolen_ms)
    return pd.concat([server, host], ignore_index=True)


def noise():
    return np.random.default_rng(5).normal(0, 0.5, WINDOWS)


def held():
    """Return the CPU use of a server that was held back for HELD_S and then caught up."""
    level = BASE_PCT * (1 - within(ends(), HELD_AT_S, HELD_S))
    caught_up = (95 - BASE_PCT) * within(ends(), HELD_AT_S + HELD_S, CATCH_UP_S)
    return level + caught_up + noise() * (level > 1)


def burst(length_s=0.5, height_pct=50.0):
    return BASE_PCT + noise() + height_pct * within(ends(), HELD_AT_S, length_s)


def explained(samples):
    """Return the explanation of the spike in these samples, which must have exactly one spike."""
    found = track(samples[samples["subject"] == "server"], LOAD_S)
    (spike,) = found.counted
    around = surroundings(samples, found, hindrances(samples, LOAD_S), LOAD_S)
    return explain(spike, around)


def during(length_s=HELD_S):
    """Return the share of each window that lies in the `length_s` seconds from HELD_AT_S on."""
    return within(ends(), HELD_AT_S, length_s)


HOLDS = {
    Hold.STOPPED: {"stopped": (during() > 0.5).astype(float)},
    Hold.WAITED: {"waited_ms": 50 * during()},
    Hold.THROTTLED: {"throttled_ms": 50 * during()},
    Hold.STOLEN: {"stolen_ms": 50 * during()},
}


@pytest.mark.parametrize("hold", HOLDS)
def test_a_server_that_was_held_back_caught_up(hold):
    found = explained(trial(held(), **HOLDS[hold]))
    assert found.cause is Cause.CAUGHT_UP
    assert found.hindrance.hold is hold
    assert found.hindrance.start_s == pytest.approx(HELD_AT_S, abs=WINDOW_S)
    assert found.hindrance.length_s == pytest.approx(HELD_S, abs=2 * WINDOW_S)
    assert found.hindrance.lost_ms == pytest.approx(1000 * HELD_S, rel=0.15)
    assert found.accounted_ms == pytest.approx(10 * BASE_PCT * HELD_S, rel=0.15)


@pytest.mark.parametrize("hold", HOLDS)
def test_a_burst_after_a_hold_without_missing_work_is_the_servers(hold):
    """A server that was held back, but missed no work meanwhile, has nothing to catch up on.

    So a burst afterwards must get another cause: the server's own work, or stolen CPU time if the
    hypervisor took some.
    """
    samples = trial(burst() + 0.0, **HOLDS[hold])
    assert explained(samples).cause is (Cause.STOLEN if hold is Hold.STOLEN else Cause.OWN_WORK)


def test_the_collectors_cpu_time_explains_a_burst():
    after = ends() > HELD_AT_S + 0.5
    samples = trial(
        burst(), gc_cycles=2.0 * after, gc_pause_total_ms=0.6 * after, gc_cpu_s=0.24 * after
    )
    found = explained(samples)
    assert found.cause is Cause.COLLECTOR
    assert (found.cycles, found.pause_ms) == (2.0, pytest.approx(0.6))
    assert found.accounted_ms == pytest.approx(240, rel=0.05)


def test_a_collector_that_used_little_is_not_blamed():
    after = ends() > HELD_AT_S + 0.5
    samples = trial(
        burst(), gc_cycles=1.0 * after, gc_pause_total_ms=0.1 * after, gc_cpu_s=0.02 * after
    )
    assert explained(samples).cause is Cause.OWN_WORK


def test_more_requests_explain_a_burst():
    more = 1000 * 50 / BASE_PCT * np.cumsum(during(0.5)) * WINDOW_S
    assert explained(trial(burst(), requests=1000 * ends() + more)).cause is Cause.REQUESTS


def test_the_cause_is_unknown_without_the_servers_numbers():
    assert explained(trial(burst(), requests=np.nan)).cause is Cause.UNKNOWN
    after = ends() > HELD_AT_S
    assert explained(trial(burst(), gc_cycles=1.0 * after)).cause is Cause.UNKNOWN


def test_a_quota_that_holds_all_the_time_is_no_hindrance():
    throttled_ms = 25 + np.random.default_rng(3).normal(0, 1, WINDOWS)
    assert hindrances(trial(50 + noise(), throttled_ms=throttled_ms), LOAD_S) == ()


def test_single_ticks_of_stolen_time_are_no_hindrance():
    ticks_ms = 10.0 * (np.arange(WINDOWS) % 37 == 0)
    assert hindrances(trial(30 + noise(), stolen_ms=ticks_ms), LOAD_S) == ()


def test_the_cpu_of_other_programs_is_the_machines_rest():
    neighbour_pct = 90 * within(ends(), HELD_AT_S, HELD_S)
    cpu_pct = BASE_PCT + noise()
    samples = trial(
        cpu_pct, host_pct=cpu_pct + neighbour_pct, waited_ms=25 * within(ends(), HELD_AT_S, HELD_S)
    )
    by_four = neighbour_pct.reshape(-1, 4).mean(axis=1)
    assert others(samples, LOAD_S).value == pytest.approx(by_four, abs=0.01)
    (found,) = hindrances(samples, LOAD_S)
    assert (found.hold, found.others_pct) == (Hold.WAITED, pytest.approx(90, rel=0.02))
