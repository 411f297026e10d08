"""Bursts of a known function in a real server: its timeline names the function of each burst."""

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
"""Seconds after the first request, which is in the warm-up, and how long.

The load begins within two seconds of it.
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
    # A busy machine may add a spike of its own: these are the two largest.
    ran = sorted(what_ran(timeline), key=lambda each: -each.more_ms)[:2]
    return SimpleNamespace(
        timeline=timeline, ran=sorted(ran, key=lambda each: each.spike.start_s), made=made
    )


def test_each_burst_is_a_spike_that_names_its_function(found):
    assert len(found.ran) == 2
    for each in found.ran:
        function = each.function
        assert "keep_up" in function.name, function
        assert function.stands_out
        assert function.share > 0.5 > function.usual_share


def test_the_bursts_last_and_take_what_they_are_known_to(found):
    """Other programs may take a part of a burst's CPU time, which the sampler then lacks, too."""
    for each, (_, length_s) in zip(found.ran, BURSTS, strict=True):
        assert each.spike.length_s == pytest.approx(length_s, abs=0.15)
        assert each.function.more_ms == pytest.approx(each.spike.excess_ms, rel=0.2)
        assert each.function.more_ms < 1.1 * 10 * SHARE_PCT * length_s
    apart_s = found.ran[1].spike.start_s - found.ran[0].spike.start_s
    assert apart_s == pytest.approx(BURSTS[1][0] - BURSTS[0][0], abs=0.15)


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
