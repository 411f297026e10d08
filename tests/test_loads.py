"""From a campaign's TOML to what the generators are told: open loads, pools, servers of a load, variables."""

import json
from pathlib import Path

import pytest
from real_lab import campaign, load
from test_catalog import INSERTS

from runner.measure import generators
from runner.measure.engine import Running
from runner.planning.catalog import campaign_servers, load_workload
from runner.planning.plan import plan_trials
from runner.store import OF_GENERATORS

SERVERS = ["gin", "axum", "nginx"]
SERVER = Running(1, 8080, lambda: None, lambda: None)


@pytest.fixture
def ramp(read_campaign):
    return read_campaign(campaign(SERVERS, INSERTS))


def cells(campaign):
    return [trial.cell for trial in plan_trials(campaign, campaign_servers(campaign))]


def test_a_ramp_is_crossed_with_pool_sizes_and_the_servers_that_insert(ramp):
    assert {(cell.cell_id, cell.rates_rps) for cell in cells(ramp)} == {
        (f"{server}-devices-insert-ramp-r100-400-pool{size}", (100.0, 200.0, 300.0, 400.0))
        for server in ("gin", "axum")
        for size in (4, 16)
    }
    assert {(cell.step_s, cell.rates_rps[-1]) for cell in cells(ramp.scaled(0.1))} == {(0.25, 400)}


def command(cell, tool, tag):
    shot = generators.shot_of(load_workload(cell.workload), Path(tool), SERVER, tag)
    return generators.measured(cell, shot, {name: Path("folder") / name for name in OF_GENERATORS})


def test_k6_is_told_to_hold_each_rate(ramp):
    (cell, *_) = cells(ramp)
    env = command(cell, "k6", "load").env
    scenario = json.loads(env["SCENARIO"])
    assert (scenario["executor"], scenario["preAllocatedVUs"]) == ("ramping-arrival-rate", 30)
    assert [stage["target"] for stage in scenario["stages"]] == [100, 100, 200, 200, 300, 300, 400, 400]
    assert [stage["duration"] for stage in scenario["stages"]] == ["0s", "2500ms"] * 4
    assert json.loads(env["BODY"]) == {"mac": "02-00-00-00-00-01", "firmware": "load"}
    assert cell.to_begin == 2500


def test_wrk_sends_the_workloads_body(read_campaign):
    inserts = load("devices-insert", connections=8, duration_s=1, pool_sizes=4)
    (cell, *_) = cells(read_campaign(campaign(SERVERS, inserts)))
    env = command(cell, "wrk", "tagged").env
    assert env["WRK_METHOD"] == "POST" and json.loads(env["WRK_BODY"])["firmware"] == "tagged"


def test_a_load_may_be_for_some_servers_only_and_variables_reach_one(read_campaign):
    some = load("static", connections=8, duration_s=1, servers=["axum", "nginx"])
    found = read_campaign(campaign(SERVERS, some, environment={"gin": {"GOGC": "200"}}))
    assert {cell.server for cell in cells(found)} == {"axum", "nginx"}
    assert found.environment == (("gin", "GOGC", "200"),)
