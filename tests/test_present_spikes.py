"""CPU spikes: injected ones come back, and steady servers have none."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from synthetic_spikes import WINDOW_S, WINDOWS, ends, found_in, samples, within

from runner.present.spikes.found import robust_deviation, stretches, track

# --- what is injected comes back --------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [1.0, 3.217, 14.99, 27.4, 29.6])
@pytest.mark.parametrize("length_s", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("height", [20.0, 60.0])
def test_an_injected_spike_comes_back(at_s, length_s, height):
    noise = np.random.default_rng(7).normal(40, 1.5, WINDOWS)
    length_s = min(length_s, 30 - at_s)
    (spike,) = found_in(noise + height * within(ends(), at_s, length_s)).spikes
    assert spike.start_s == pytest.approx(at_s, abs=0.051)
    assert spike.length_s == pytest.approx(length_s, abs=0.101)
    assert spike.height_pct == pytest.approx(height, abs=5.5)  # the noise of its highest window
    assert spike.excess_ms == pytest.approx(height * length_s * 10, rel=0.15)
    assert spike.baseline_pct == pytest.approx(40, abs=1.5)


def test_spikes_of_a_constant_series_need_the_floor_and_no_noise():
    quiet = np.full(WINDOWS, 12.0)
    assert found_in(quiet).spikes == ()
    assert found_in(quiet).deviation == 2.0
    low, high = (found_in(quiet + height * within(ends(), 9, 0.3)).spikes for height in (9.9, 10.1))
    assert low == ()
    assert [spike.height_pct for spike in high] == pytest.approx([10.1])


def test_one_window_is_no_spike_and_two_are():
    quiet = np.full(WINDOWS, 12.0)
    assert found_in(quiet + 60 * within(ends(), 9.0, 0.05)).spikes == ()
    assert len(found_in(quiet + 60 * within(ends(), 9.0, 0.10)).spikes) == 1


def test_two_stretches_with_one_window_between_are_one_spike():
    above = np.array([0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1], dtype=bool)
    assert stretches(above, 2) == ((1, 5), (8, 9))
    assert stretches(above, 1) == ((1, 5), (8, 11), (14, 14))
    assert stretches(np.zeros(0, dtype=bool), 2) == ()


def test_a_spike_of_the_loads_begin_is_listed_and_not_counted():
    cpu = 30 + 50 * within(ends(), 0.3, 0.5) + 50 * within(ends(), 12.0, 0.5)
    found = found_in(cpu)
    assert [spike.settling for spike in found.spikes] == [True, False]
    assert [spike.start_s for spike in found.counted] == pytest.approx([12.0])
    assert found.settled_s == pytest.approx(29)


def test_what_fills_the_last_second_may_be_a_step_as_well():
    assert found_in(30 + 50 * within(ends(), 29.1, 0.9)).spikes == ()
    assert len(found_in(30 + 50 * within(ends(), 28.6, 1.0)).spikes) == 1


def test_a_level_is_no_spike():
    cpu = np.random.default_rng(3).normal(30, 1, WINDOWS) + 40 * within(ends(), 10, 12)
    assert found_in(cpu).spikes == ()


@pytest.mark.parametrize("step_s", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("rise", [1, -1])
def test_the_steps_of_a_ramp_are_no_spikes(step_s, rise):
    """Nor is the last one, where the median sees one side only."""
    level = 50 + rise * 40 * (np.floor((ends() - WINDOW_S) / step_s) * step_s / 30 - 0.5)
    noise = np.random.default_rng(5).normal(0, 1, WINDOWS)
    assert found_in(level + noise).counted == ()
    (spike,) = found_in(level + noise + 40 * within(ends(), 20.3, 0.4)).counted
    assert spike.start_s == pytest.approx(20.3, abs=0.051)


def test_a_short_series_says_that_it_is():
    for count in (0, 1, 39):
        found = found_in(np.full(count, 50.0))
        assert found.spikes == () and np.isnan(found.deviation) and found.settled_s == 0
    assert found_in(np.full(40, 50.0)).deviation == 2.0


def test_missed_ticks_and_windows_outside_the_load():
    """A window that a missed tick made longer counts as one; what is before and after the load counts not at all."""
    rows = samples(30 + 60 * within(ends(), 15.0, 0.4))
    whole = rows.drop(index=[100, 101, 250, 305])
    whole.loc[[102, 251, 306], "dt_s"] = [0.15, 0.10, 0.10]
    wild = pd.DataFrame({"t_s": [-0.5, 30.5], "dt_s": 0.05, "cpu_pct": 900.0})
    found = track(pd.concat([wild, whole]), 30.0)
    (spike,) = found.spikes
    assert (spike.start_s, spike.length_s) == pytest.approx((15.0, 0.4))
    assert found.windows.value.max() == pytest.approx(90)


def test_the_deviation_of_normal_noise_is_its_standard_deviation():
    noise = np.random.default_rng(1).normal(50, 3, 100_000)
    assert robust_deviation(noise) == pytest.approx(3, rel=0.02)


# --- what is steady has none ------------------------------------------------------------------------------


def normal(rng):
    return rng.normal(40, 3, WINDOWS)


def exponential(rng):
    """As skewed as waiting times."""
    return 20 + rng.exponential(10, WINDOWS)


def bursty(rng):
    """Jobs of 20 ms that come by themselves, on the average one in a window."""
    return 10 + 40 * rng.poisson(1.0, WINDOWS) + rng.normal(0, 1, WINDOWS)


def seldom(rng):
    """Jobs of 20 ms in every tenth window: two in a row come by chance, five times in a trial."""
    return 10 + 40 * (rng.random(WINDOWS) < 0.1) + rng.normal(0, 1, WINDOWS)


def lognormal(rng):
    return 20 + 10 * np.exp(rng.normal(0, 1, WINDOWS))


def correlated(rng):
    """Each window much like the one before."""
    noise = np.zeros(WINDOWS)
    steps = rng.normal(0, 2, WINDOWS)
    for place, (_, step) in enumerate(pairwise(steps), start=1):
        noise[place] = 0.8 * noise[place - 1] + step
    return 40 + noise


def duty(rng):
    """30 ms of every 100 ms, seen in windows that drift against it."""
    length_s = WINDOW_S * (1 + rng.uniform(-0.002, 0.002))
    edges = rng.uniform(0, 0.1) + np.arange(WINDOWS + 1) * length_s
    used = np.floor(edges / 0.1) * 0.03 + np.minimum(edges % 0.1, 0.03)
    return 100 * np.diff(used) / WINDOW_S


def saturated(rng):
    """All of one CPU, and now and then less."""
    return np.minimum(100, rng.normal(99.5, 0.5, WINDOWS)) - 40 * (rng.random(WINDOWS) < 0.02)


TRIALS = 1000
MOST = {normal: 0, correlated: 0, duty: 0, saturated: 0, bursty: 0, exponential: 5, lognormal: 20, seldom: 40}
"""Kind of noise -> how many of so many trials of 30 s may have a spike."""


@pytest.mark.parametrize("kind", MOST, ids=lambda kind: kind.__name__)
def test_a_steady_server_has_no_spikes(kind):
    rng = np.random.default_rng(11)
    false = sum(bool(found_in(kind(rng)).spikes) for _ in range(TRIALS))
    assert false <= MOST[kind]


def test_a_spike_among_what_chance_makes_of_single_windows_is_found_alone():
    rng, alone = np.random.default_rng(12), 0
    for _ in range(50):
        found = found_in(seldom(rng) + 80 * within(ends(), 14.0, 0.6))
        near = [spike for spike in found.spikes if spike.overlaps(14.0, 14.6)]
        assert len(near) == 1
        assert near[0].start_s == pytest.approx(14.0, abs=0.101) and near[0].length_s == pytest.approx(0.6, abs=0.151)
        alone += found.spikes == (near[0],) and found.fewest > 2
    assert alone >= 40


def test_many_real_spikes_do_not_pass_for_chance():
    """One of 100 ms each second: so many pairs do not come of windows that stand out independently."""
    cpu = np.random.default_rng(4).normal(30, 1, WINDOWS)
    for begin in range(1, 29):
        cpu = cpu + 40 * within(ends(), begin + 0.25, 0.1)
    found = found_in(cpu)
    assert len(found.counted) == 28 and found.fewest == 2
