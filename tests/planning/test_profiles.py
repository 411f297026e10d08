"""Tests of the plan that says under which loads servers are profiled, and for how long."""

from dataclasses import replace

from runner.planning.catalog import campaign_servers, load_campaign
from runner.planning.plan import estimate_s, with_profile
from runner.planning.profiles import plan_profiles
from runner.profiled import KINDS, LONGEST_S, PLACES, TIMELINE, kind_of
from runner.shapes import Sweep

QUICK = load_campaign("quick")
PROFILED = with_profile(QUICK, profile=True)


def planned(campaign):
    return plan_profiles(campaign, campaign_servers(campaign))


def test_without_the_option_no_load_is_profiled():
    loads = tuple(replace(load, profile=False) for load in QUICK.loads)
    assert planned(replace(QUICK, loads=loads)) == []


def test_a_campaign_that_asks_for_profiles_can_run_without_them():
    assert planned(QUICK) != []
    assert planned(with_profile(QUICK, profile=False)) == []


def test_the_slices_of_a_profile_are_as_long_as_the_loads():
    (profile,) = [
        each for each in planned(PROFILED) if each.load_id.startswith("wrk-matrix-c100-keepalive")
    ]
    assert [trial.cell.server for trial in profile.trials] == ["axum", "gin", "nginx"]
    cell = profile.trials[0].cell
    assert cell.slices == PLACES
    assert cell.shape.duration_s / PLACES == 0.5


def test_a_number_of_iterations_becomes_a_time():
    """A load with a fixed number of iterations is profiled for a fixed time.

    The plan must say how long the slices of a profile last, but it is not known in advance how long
    a number of iterations takes.
    """
    (profile,) = [each for each in planned(PROFILED) if each.load_id == "experiments-vus500"]
    shape = profile.trials[0].cell.shape
    assert (shape.users, shape.duration_s) == (500, PLACES * LONGEST_S)


def test_quick_profiles_one_load_in_little_time():
    """`quick` profiles two servers under one load only, because `make report` must stay short."""
    (profile,) = planned(QUICK)
    assert [trial.cell.server for trial in profile.trials] == ["axum", "gin"]
    assert sum(map(estimate_s, profile.trials)) < 30


def test_a_server_that_a_load_leaves_out_is_profiled_only_if_the_user_asks():
    """`bench run quick` does not profile nginx, but `bench run quick --profile` does."""
    only_nginx = replace(QUICK, servers=("nginx",))
    assert planned(only_nginx) == []
    assert planned(with_profile(only_nginx, profile=True)) != []


def test_claims_profiles_every_kind_of_load_and_two_timelines():
    profiles = planned(load_campaign("claims"))
    timelines = [each for each in profiles if each.session.startswith(TIMELINE)]
    assert [trial.cell.server for each in timelines for trial in each.trials] == ["axum", "echo"]
    workloads = {each.trials[0].cell.workload for each in profiles}
    assert workloads == {"wrk-matrix", "experiments", "rates", "static", "devices-insert"}
    copies = [trial.cell.server for trial in profiles[0].trials]
    assert {"gin", "gin-b"} <= set(copies), "an A/A comparison"


def test_only_a_long_load_in_one_piece_has_a_timeline():
    """In the campaign `quick`, only the load of 20 s at a constant rate may have a timeline.

    Loads in sessions, and loads with a fixed number of iterations, have no timeline.
    """
    found = [each for each in planned(PROFILED) if each.session.startswith(TIMELINE)]
    (cells,) = [[trial.cell for trial in each.trials] for each in found]
    assert [(cell.server, cell.workload, cell.slices) for cell in cells] == [
        ("axum", "rates", 1),
        ("gin", "rates", 1),
    ]
    assert cells[0].shape.step_s == 20
    assert kind_of(found[0].session, 1) == "recorded"


def test_a_timeline_is_not_longer_than_half_a_minute():
    long = tuple(
        replace(load, form=replace(load.form, each_s=300.0), profile=True)
        for load in QUICK.loads
        if not load.slices and isinstance(load.form, Sweep)
    )
    (found,) = [
        each for each in planned(replace(QUICK, loads=long)) if each.session.startswith(TIMELINE)
    ]
    assert found.trials[0].cell.shape.step_s == 30


def test_ramps_and_searches_are_not_profiled():
    campaign = with_profile(load_campaign("rates"), profile=True)
    assert all("-s1" not in profile.load_id for profile in planned(campaign))


def test_each_kind_of_slice_comes_in_pairs():
    assert KINDS[::2] == KINDS[1::2]
    assert set(KINDS) == {"recorded", "plain", "counted"}
