"""From a campaign's TOML to what the generators are told: open loads, pools, servers of a load, variables."""

import json
from pathlib import Path

import pytest

from runner.digest import reconcile
from runner.measure import generators
from runner.measure.engine import Running
from runner.model import LabError
from runner.planning.catalog import load_campaign, load_server, load_workload
from runner.planning.plan import plan_trials
from runner.store import OF_GENERATORS

SERVER = Running(1, 8080, lambda: None, lambda: None)
HEAD = """title = "t"
servers = ["gin", "axum", "nginx"]
"""
RAMP = """
[[load]]
workload = "devices-insert-ramp"
from_rps = 100
to_rps = 400
steps = 4
step_s = 2.5
vus = 30
pool_sizes = [4, 16]
"""
LOAD = '\n[[load]]\nworkload = "{}"\nconnections = 8\nduration_s = 1\n'


@pytest.fixture
def campaign(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return load_campaign(str(path))

    return write


def cells(campaign):
    return [trial.cell for trial in plan_trials(campaign, [load_server(name) for name in campaign.servers])]


def test_a_ramp_is_crossed_with_pool_sizes_and_the_servers_that_insert(campaign):
    found = cells(campaign(HEAD + RAMP))
    assert {cell.cell_id for cell in found} == {
        f"{server}-devices-insert-ramp-r100-400-pool{size}" for server in ("gin", "axum") for size in (4, 16)
    }
    assert {cell.rates_rps for cell in found} == {(100.0, 200.0, 300.0, 400.0)}
    scaled = cells(campaign(HEAD + RAMP).scaled(0.1))
    assert {(cell.step_s, cell.rates_rps[-1]) for cell in scaled} == {(0.25, 400)}


def command(cell, tool, tag):
    shot = generators.shot_of(load_workload(cell.workload), Path(tool), SERVER, tag)
    return generators.measured(cell, shot, {name: Path("folder") / name for name in OF_GENERATORS})


def test_k6_is_told_to_hold_each_rate(campaign):
    (cell, *_) = cells(campaign(HEAD + RAMP))
    env = command(cell, "k6", "load").env
    scenario = json.loads(env["SCENARIO"])
    assert (scenario["executor"], scenario["preAllocatedVUs"]) == ("ramping-arrival-rate", 30)
    assert [stage["target"] for stage in scenario["stages"]] == [100, 100, 200, 200, 300, 300, 400, 400]
    assert [stage["duration"] for stage in scenario["stages"]] == ["0s", "2500ms"] * 4
    assert json.loads(env["BODY"]) == {"mac": "02-00-00-00-00-01", "firmware": "load"}
    assert reconcile.asked(cell, 0) == 2500


def test_wrk_sends_the_workloads_body(campaign):
    text = HEAD + LOAD.format("devices-insert") + "pool_sizes = 4\n"
    (cell, *_) = cells(campaign(text))
    env = command(cell, "wrk", "tagged").env
    assert env["WRK_METHOD"] == "POST" and json.loads(env["WRK_BODY"])["firmware"] == "tagged"


def test_a_load_may_be_for_some_servers_only_and_variables_reach_one(campaign):
    found = campaign(
        HEAD + '[environment.gin]\nGOGC = "200"\n' + LOAD.format("static") + 'servers = ["axum", "nginx"]\n'
    )
    assert {cell.server for cell in cells(found)} == {"axum", "nginx"}
    assert found.environment == (("gin", "GOGC", "200"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + RAMP.replace("pool_sizes = [4, 16]\n", ""), "needs 'pool_sizes'"),
        (HEAD + RAMP.replace("steps = 4\n", ""), "needs 'steps'"),
        (HEAD + RAMP + "iterations = 5\n", "line 12: workload 'devices-insert-ramp' takes no 'iterations'"),
        (HEAD + RAMP.replace("from_rps = 100", "from_rps = 0"), "greater than 0"),
        (HEAD + RAMP + 'servers = ["echo"]\n', "'echo' is none of the campaign's servers"),
        (HEAD + '[environment.gin]\nADDR = "x"\n' + RAMP, "ADDR is set by the lab itself"),
        (HEAD + '[environment.echo]\nX = "x"\n' + RAMP, "of a server listed here"),
    ],
)
def test_a_mistake_names_its_line(campaign, text, says):
    with pytest.raises(LabError, match=r"mine\.toml, line") as caught:
        campaign(text)
    assert says in str(caught.value)
