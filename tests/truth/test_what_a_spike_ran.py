"""Tests of a server's timeline: it must name the function that runs in each burst of CPU time."""

from types import SimpleNamespace

import pytest
import real_lab
from real_lab import campaign, load

from runner.measure.perf import refusal
from runner.present.spikes.ran import read_timelines, what_ran
from runner.store import RunFolder

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("k6"),
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
]
SHARE_PCT = 60
BURSTS = ((3.5, 0.3), (5.5, 0.6))
"""The bursts as (begin, duration), in seconds.

The begin of a burst is counted from the first request, which belongs to the warm-up. The load
begins within two seconds after this request.
"""
SPIKE = ",".join(f"{1000 * at:.0f}:{1000 * length:.0f}:{SHARE_PCT}" for at, length in BURSTS)
CAMPAIGN = campaign(
    ["bursting"],
    load("rates", rates_rps=[50], duration_s=7, vus=10, profile=True),
    copies={"bursting": "reference"},
    environment={"bursting": {"REFERENCE_SPIKE": SPIKE}},
    attempts=1,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    made = real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("bursts")), CAMPAIGN, "--engine", "process"
    )
    (timeline,) = read_timelines(RunFolder(made.folder))
    named = [each for each in what_ran(timeline) if "keep_up" in getattr(each.function, "name", "")]
    return SimpleNamespace(timeline=timeline, named=named, made=made)


def test_each_burst_is_a_spike_that_names_its_function(found):
    """Each burst must be found as a spike, for which the function of the burst is named.

    On a busy machine, a burst may be divided into several spikes. Then the function must be named
    for each of these spikes.
    """
    first_s = found.named[0].spike.start_s
    apart_s = BURSTS[1][0] - BURSTS[0][0]
    after_s = [each.spike.start_s - first_s for each in found.named]
    of_second = [apart_s - 0.3 <= at < apart_s + BURSTS[1][1] for at in after_s]
    assert any(of_second) and all(
        second or at < BURSTS[0][1] for second, at in zip(of_second, after_s, strict=True)
    ), after_s
    for each in found.named:
        function = each.function
        assert function.stands_out
        assert function.share > 0.5 > function.usual_share, function


def test_the_bursts_take_what_the_sampler_saw(found):
    """The CPU time of each burst in the profile agrees with the CPU time that the sampler measured.

    If other programs take a part of a burst's CPU time, this part is missing in both
    measurements.
    """
    for each in found.named:
        assert each.function.more_ms == pytest.approx(each.spike.excess_ms, rel=0.25, abs=10)
    total_ms = sum(each.function.more_ms for each in found.named)
    assert total_ms < 1.1 * sum(10 * SHARE_PCT * length_s for _, length_s in BURSTS)


def test_the_samples_are_the_cpu_time_of_the_sampler(found):
    windows = found.timeline.track.windows
    by_sampler_ms = float((windows.value * (windows.end_s - windows.start_s)).sum() * 10)
    sampled_ms = float(found.timeline.samples["cpu_ms"].sum())
    assert sampled_ms == pytest.approx(by_sampler_ms, rel=0.15)


def test_a_timeline_is_no_trial(found):
    trials = found.made.table("trials")
    assert len(trials) == 1
    profiled = set(found.made.table("profile_slices")["trial_id"])
    assert profiled == {f"p-{found.timeline.trial_id[2:]}"}
