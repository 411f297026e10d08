"""Tests of what the lab makes from profiles, with profiles whose numbers are known.

The lab makes means, intervals, differences between servers, sentences, and exported files.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from runner.present.why.exports import folded, speedscope
from runner.present.why.profiles import Microseconds, Profiles
from runner.present.why.words import categories_table, difference_words, events_table, remarks

LOAD = "wrk-matrix-c100"
PLACES = (1, 2, 5, 6, 9, 10)


def profiles_of(us, noise=0.0, seed=1):
    """Return profiles of servers with known CPU times.

    `us` has the mean CPU time per request in µs, by server and then by category. `noise` is the
    standard deviation of this time between slices, in µs.
    """
    random = np.random.default_rng(seed)
    stacks, slices = [], []
    for server, categories in us.items():
        names = {"trial_id": f"p-{server}", "server": server, "load": LOAD}
        for place in range(1, 11):
            kind = "recorded" if place in PLACES else "plain"
            total = 0.0
            for category, mean_us in categories.items() if kind == "recorded" else ():
                value = max(0.0, mean_us + noise * random.standard_normal())
                total += value
                stack = {"stack": f"main;{category}", "category": category, "samples": 9}
                stacks.append({**names, "place": place, **stack, "us_per_request": value})
            used = total if kind == "recorded" else sum(categories.values()) / 1.1
            row = {"kind": kind, "requests": 1000, "cpu_us_per_request": used}
            slices.append({**names, "place": place, **row, "sampled_us_per_request": total})
    counters = [
        {"trial_id": f"p-{server}", "server": server, "load": LOAD, "event": event, **values}
        for server in us
        for event, values in {
            "raw_syscalls:sys_enter": {"per_request": 2.5, "supported": True},
            "cycles": {"per_request": np.nan, "supported": False},
        }.items()
    ]
    return Profiles(pd.DataFrame(stacks), pd.DataFrame(slices), pd.DataFrame(counters))


def test_an_interval_of_slices_is_students():
    values = np.array([3.0, 4.0, 5.0, 4.5])
    found = Microseconds.of_slices(values)
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)


def test_one_slice_has_no_interval():
    found = Microseconds.of_slices(np.array([3.0]))
    assert found.mean == 3.0
    assert not found.is_sure


def test_a_category_that_is_missing_in_a_slice_is_zero_there():
    profiles = profiles_of({"axum": {"HTTP": 6.0, "JSON": 3.0}})
    rows = profiles.stacks
    left = rows[~(rows["category"].eq("JSON") & rows["place"].isin(PLACES[:3]))]
    (found,) = Profiles(left, profiles.slices, profiles.counters).of(LOAD)
    assert found.categories["JSON"].mean == pytest.approx(1.5)
    assert found.total.mean == pytest.approx(7.5)


def test_a_sentence_names_only_what_is_sure():
    us = {
        "axum": {"kernel network": 14.0, "HTTP": 5.0, "unknown": 0.0},
        "gin": {"kernel network": 22.0, "HTTP": 5.01, "scheduler": 6.0, "unknown": 0.0},
    }
    axum, gin = profiles_of(us, noise=0.1).of(LOAD)
    said = difference_words(gin.less(axum))
    assert said.startswith("gin takes 14.")
    assert "in the kernel's network code, " in said
    assert "in scheduling" in said
    assert "HTTP" not in said
    # The sentence is the same if the two servers are exchanged.
    assert difference_words(axum.less(gin)) == said


def test_equal_servers_are_too_close_to_tell():
    us = {"a": {"HTTP": 5.0, "unknown": 0.0}, "b": {"HTTP": 5.0, "unknown": 0.0}}
    a, b = profiles_of(us, noise=0.5).of(LOAD)
    assert difference_words(b.less(a)).partition(" are too close to tell")[1]


def test_noise_excludes_zero_in_one_of_twenty():
    """If a difference is only noise, it is called sure in at most about one of twenty cases.

    The test draws 2000 differences, each over six slices. One of twenty is the rate for a single
    category. With several categories, some difference is called sure more often, because the lab
    makes no correction for several categories.
    """
    random = np.random.default_rng(7)
    slices = random.poisson(40, size=(2000, 6)) - random.poisson(40, size=(2000, 6))
    wrong = np.mean([Microseconds.of_slices(row.astype(float)).is_sure for row in slices])
    assert wrong < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


def test_the_table_adds_up_and_leaves_out_what_is_absent():
    profiles = profiles_of({"axum": {"HTTP": 6.0, "JSON": 3.0, "unknown": 0.0}})
    table = categories_table(profiles.of(LOAD)).set_index("µs per request")["axum"]
    assert list(table.index) == ["HTTP", "JSON", "all"]
    assert table["all"] == "9.00 ± 0.00"


def test_an_event_that_cannot_be_counted_is_no_zero():
    table = events_table(profiles_of({"axum": {"HTTP": 6.0}}), LOAD).set_index("per request")
    assert table.loc["system calls", "axum"] == "2.500"
    assert table.loc["cycles", "axum"] == "not supported"


def test_the_cost_of_profiling_is_stated():
    said = remarks(profiles_of({"axum": {"HTTP": 11.0, "unknown": 0.0}}), LOAD)
    assert said[0].startswith("Recording call stacks changed the CPU time per request by +10.0 %")


def test_each_load_has_its_own_cost_of_profiling():
    """Recording costs 10 % under the first load, and 60 % under the second."""
    made = profiles_of({"axum": {"HTTP": 11.0, "unknown": 0.0}})
    plain = made.slices["kind"].eq("plain")
    dearer = made.slices.assign(load="other", trial_id="p-other")
    dearer["cpu_us_per_request"] *= np.where(plain, 1.0, 1.6 / 1.1)
    both = Profiles(made.stacks, pd.concat([made.slices, dearer]), made.counters)
    assert both.cost(LOAD).mean == pytest.approx(0.1)
    assert both.cost("other").mean == pytest.approx(0.6)


@pytest.mark.parametrize(("share", "words"), [(0.76, "76 %"), (1.2, "120 %"), (0.96, "")])
def test_samples_that_miss_cpu_time_are_named(share, words):
    profiles = profiles_of({"mine": {"HTTP": 10.0, "unknown": 0.0}})
    slices = profiles.slices.assign(cpu_us_per_request=10.0 / share)
    said = remarks(Profiles(profiles.stacks, slices, profiles.counters), LOAD)
    found = [each for each in said if each.startswith("The samples are")]
    assert [f"The samples are {words} of" in each for each in found] == [True] * bool(words)


def test_many_unknown_functions_have_a_remedy():
    profiles = profiles_of({"mine": {"HTTP": 6.0, "unknown": 4.0}})
    assert "40 % of mine's CPU time" in remarks(profiles, LOAD)[-1]


STACKS = pd.Series({"main;a": 2.0, "main;b;a": 0.5004, "main;c": 0.0001})


def test_folded_stacks_are_whole_nanoseconds():
    assert folded(STACKS) == "main;a 2000\nmain;b;a 500\n"


def test_speedscope_gets_every_stack_with_its_weight():
    found = speedscope(STACKS, "axum")
    names = [each["name"] for each in found["shared"]["frames"]]
    (profile,) = found["profiles"]
    stacks = [";".join(names[number] for number in sample) for sample in profile["samples"]]
    assert dict(zip(stacks, profile["weights"], strict=True)) == dict(STACKS)
    assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
