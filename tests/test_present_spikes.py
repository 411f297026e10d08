"""CPU spikes: injected ones come back, and steady servers have none."""

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter
from synthetic_spikes import WINDOW_S, WINDOWS, ends, found_in, samples, within

from runner.present.spikes.found import robust_deviation, stretches, track

QUIET = np.full(WINDOWS, 12.0)


def near(value, off):
    return pytest.approx(value, abs=off)


# --- what is injected comes back --------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [1.0, 3.217, 14.99, 27.4, 29.6])
@pytest.mark.parametrize("length_s", [0.2, 0.5, 2.0])
@pytest.mark.parametrize("height", [20.0, 60.0])
def test_an_injected_spike_comes_back(at_s, length_s, height):
    noise = np.random.default_rng(7).normal(40, 1.5, WINDOWS)
    length_s = min(length_s, 30 - at_s)
    (spike,) = found_in(noise + height * within(ends(), at_s, length_s)).spikes
    expected = (near(at_s, 0.051), near(length_s, 0.101), near(40, 1.5))
    assert (spike.start_s, spike.length_s, spike.baseline_pct) == expected
    assert spike.height_pct == near(height, 5.5)  # the noise of its highest window
    assert spike.excess_ms == pytest.approx(height * length_s * 10, rel=0.15)


def test_spikes_of_a_constant_series_need_the_floor_and_no_noise():
    assert found_in(QUIET).spikes == () and found_in(QUIET).deviation == 2.0
    low, high = (found_in(QUIET + height * within(ends(), 9, 0.3)).spikes for height in (9.9, 10.1))
    assert low == () and [spike.height_pct for spike in high] == pytest.approx([10.1])


LEVEL = np.random.default_rng(3).normal(30, 1, WINDOWS) + 40 * within(ends(), 10, 12)
SHAPES = [
    ("one window", QUIET + 60 * within(ends(), 9.0, 0.05), 0),
    ("two windows", QUIET + 60 * within(ends(), 9.0, 0.10), 1),
    ("what fills the last second, and may be a step as well", 30 + 50 * within(ends(), 29.1, 0.9), 0),
    ("what ends half a second before", 30 + 50 * within(ends(), 28.6, 1.0), 1),
    ("a level", LEVEL, 0),
]


@pytest.mark.parametrize(("cpu_pct", "count"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
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
    """Nor is the last one, where the median sees one side only."""
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
    """A window that a missed tick made longer counts as one; what is before and after the load counts not at all."""
    whole = samples(30 + 60 * within(ends(), 15.0, 0.4)).drop(index=[100, 101, 250, 305])
    whole.loc[[102, 251, 306], "dt_s"] = [0.15, 0.10, 0.10]
    wild = pd.DataFrame({"t_s": [-0.5, 30.5], "dt_s": 0.05, "cpu_pct": 900.0})
    found = track(pd.concat([wild, whole]), 30.0)
    (spike,) = found.spikes
    assert (spike.start_s, spike.length_s, found.windows.value.max()) == pytest.approx((15.0, 0.4, 90))


def test_the_deviation_of_normal_noise_is_its_standard_deviation():
    assert robust_deviation(np.random.default_rng(1).normal(50, 3, 100_000)) == pytest.approx(3, rel=0.02)


# --- what is steady has none ------------------------------------------------------------------------------


def duty(rng):
    """30 ms of every 100 ms, seen in windows that drift against it."""
    length_s = WINDOW_S * (1 + rng.uniform(-0.002, 0.002))
    edges = rng.uniform(0, 0.1) + np.arange(WINDOWS + 1) * length_s
    used = np.floor(edges / 0.1) * 0.03 + np.minimum(edges % 0.1, 0.03)
    return 100 * np.diff(used) / WINDOW_S


def seldom(rng):
    """Jobs of 20 ms in every tenth window: two in a row come by chance, five times in a trial."""
    return 10 + 40 * (rng.random(WINDOWS) < 0.1) + rng.normal(0, 1, WINDOWS)


TRIALS = 1000
STEADY = {
    "normal": (lambda rng: rng.normal(40, 3, WINDOWS), 0),
    "each like the one before": (lambda rng: 40 + lfilter([1], [1, -0.8], rng.normal(0, 2, WINDOWS)), 0),
    "duty cycle": (duty, 0),
    "all of a CPU, and now and then less": (
        lambda rng: np.minimum(100, rng.normal(99.5, 0.5, WINDOWS)) - 40 * (rng.random(WINDOWS) < 0.02), 0
    ),
    "jobs of 20 ms, on the average one per window": (
        lambda rng: 10 + 40 * rng.poisson(1.0, WINDOWS) + rng.normal(0, 1, WINDOWS), 0
    ),
    "as skewed as waiting times": (lambda rng: 20 + rng.exponential(10, WINDOWS), 5),
    "log-normal": (lambda rng: 20 + 10 * np.exp(rng.normal(0, 1, WINDOWS)), 20),
    "jobs of 20 ms, seldom": (seldom, 40),
}  # fmt: skip
"""Kind of noise -> a trial of it, and how many of so many trials of 30 s may have a spike."""


@pytest.mark.parametrize("kind", STEADY)
def test_a_steady_server_has_no_spikes(kind):
    rng, (noise, most) = np.random.default_rng(11), STEADY[kind]
    assert sum(bool(found_in(noise(rng)).spikes) for _ in range(TRIALS)) <= most


def test_a_spike_among_what_chance_makes_of_single_windows_is_found_alone():
    rng, alone = np.random.default_rng(12), 0
    for _ in range(50):
        found = found_in(seldom(rng) + 80 * within(ends(), 14.0, 0.6))
        (spike,) = [spike for spike in found.spikes if spike.overlaps(14.0, 14.6)]
        assert (spike.start_s, spike.length_s) == (near(14.0, 0.101), near(0.6, 0.151))
        alone += found.spikes == (spike,) and found.fewest > 2
    assert alone >= 40


def test_many_real_spikes_do_not_pass_for_chance():
    """One of 100 ms each second: so many pairs do not come of windows that stand out independently."""
    cpu = np.random.default_rng(4).normal(30, 1, WINDOWS)
    found = found_in(cpu + 40 * sum(within(ends(), begin + 0.25, 0.1) for begin in range(1, 29)))
    assert len(found.counted) == 28 and found.fewest == 2
