"""The sessions that profile servers: which loads they have, and how long their slices are."""

from dataclasses import replace

from runner.planning.catalog import campaign_servers, load_campaign
from runner.planning.plan import with_profile
from runner.planning.profiles import plan_profiles
from runner.profiled import KINDS, LONGEST_S, PLACES

QUICK = load_campaign("quick")


def planned(campaign):
    return plan_profiles(campaign, campaign_servers(campaign))


def test_without_the_option_no_load_is_profiled():
    loads = tuple(replace(load, profile=False) for load in QUICK.loads)
    assert planned(replace(QUICK, loads=loads)) == []


def test_the_slices_of_a_profile_are_as_long_as_the_loads():
    (profile,) = [
        each
        for each in planned(with_profile(QUICK))
        if each.load_id.startswith("wrk-matrix-c100-keepalive")
    ]
    assert [trial.cell.server for trial in profile.trials] == ["axum", "gin", "nginx"]
    cell = profile.trials[0].cell
    assert cell.slices == PLACES
    assert cell.shape.duration_s / PLACES == 0.5


def test_a_number_of_iterations_becomes_a_time():
    """The published load of 20,000 iterations would otherwise be slices of unknown length."""
    (profile,) = [
        each for each in planned(with_profile(QUICK)) if each.load_id == "experiments-vus500"
    ]
    shape = profile.trials[0].cell.shape
    assert (shape.users, shape.duration_s) == (500, PLACES * LONGEST_S)


def test_ramps_and_searches_are_not_profiled():
    campaign = with_profile(load_campaign("rates"))
    assert all("-s1" not in profile.load_id for profile in planned(campaign))


def test_each_kind_of_slice_comes_in_pairs():
    assert KINDS[::2] == KINDS[1::2]
    assert set(KINDS) == {"recorded", "plain", "counted"}
