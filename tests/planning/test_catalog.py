"""Tests of reading the file server.toml of a server, and the TOML file of a campaign.

If a file contains a mistake, the error must name the line of the mistake. A valid campaign must
become a plan of trials, and each trial must become a command of a load generator.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from real_lab import campaign, load

from runner.measure import tools
from runner.measure.engine import Running
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.generators.command import WHOLE, shot_of
from runner.measure.tools import build
from runner.model import LabError, Server
from runner.planning import catalog
from runner.planning.catalog import (
    campaign_servers,
    load_campaign,
    load_server,
    read_server,
)
from runner.planning.plan import choose, plan_trials
from runner.store import OF_GENERATORS

USERS = {"workload": "experiments", "vus": 5, "iterations": 10}
WRK = {
    "workload": "wrk-matrix",
    "connections": [1, 10],
    "modes": ["keepalive", "close"],
    "duration_s": 1,
}
RATES = {"workload": "rates", "vus": 5, "duration_s": 1}
CAMPAIGN = campaign(["axum", "gin", "nginx"], USERS, WRK, repeats=2)
OPEN = campaign(
    ["gin"], RATES | {"objective": "p99 <= 10 ms", "from_rps": 100, "to_rps": 200, "bisections": 3}
)
SWEEP = campaign(["gin"], RATES | {"rates_rps": [5, 50]})
STATIC_RAMP = (
    'workload = "static-ramp"\nfrom_rps = 1\nto_rps = 2\nsteps = 2\nstep_s = 1\nvus = 1\nslices = 2'
)
INSERTS = {
    "workload": "devices-insert-ramp",
    "from_rps": 100,
    "to_rps": 400,
    "steps": 4,
    "step_s": 2.5,
    "vus": 30,
}
INSERTS["pool_sizes"] = [4, 16]
SERVER_FILE = """[server]
language = "C"
framework = "none"
tier = "raw"
implements = []
[build]
env = { A = "1" }
command = ["make"]
[image]
base = "debian"
"""
SERVERS = ["gin", "axum", "nginx"]
RAMP = campaign(SERVERS, INSERTS) + '\n[environment.gin]\nGOGC = "200"\n'
COPIES = campaign(["gin", "gin-b"], USERS, copies={"gin-b": "gin"})
PAIR = {"workload": "wrk-matrix", "connections": [4]}
RATE = {"workload": "rates", "vus": 5, "rates_rps": [50]}
SESSIONS = campaign(
    ["gin", "axum"], PAIR, repeats=3, attempts=1, sessions={"slices": 2, "slice_s": 1}
)


@pytest.fixture
def plan(read_campaign):
    def planned(**changes):
        campaign = choose(
            read_campaign(CAMPAIGN), **{"servers": [], "repeats": None, "scale": 1} | changes
        )
        return plan_trials(campaign, [load_server(name) for name in campaign.servers])

    return planned


def test_all_campaigns_and_servers_load():
    assert {"quick", "seeds"} <= set(catalog.campaign_names())
    assert {"axum", "gin", "nginx"} <= set(catalog.server_names())
    assert all(load_campaign(name).loads for name in catalog.campaign_names())
    assert all(load_server(name).implements for name in catalog.server_names())


def test_seeds_has_the_published_size():
    k6 = load_campaign("seeds").loads
    assert [(load.workload, load.users, load.form.iterations) for load in k6] == [
        ("experiments", (3000,), 1_000_000),
        ("experiments-md5", (3000,), 1_000_000),
    ]
    loads = load_campaign("seeds-hour").loads
    (wrk,) = (load for load in loads if load.size_column == "connections")
    assert (wrk.users, wrk.modes, wrk.form.each_s) == (
        (1, 10, 100, 1000),
        ("keepalive", "close"),
        3.0,
    )


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "says"),
    [
        (CAMPAIGN, "vus = 5", "vus = 0", 7, "vus = 0"),
        (CAMPAIGN, "vus = 5", "vuss = 5", 7, "unknown key 'vuss'"),
        (CAMPAIGN, "iterations = 10", "iterations = 3", 8, "there are fewer iterations"),
        (CAMPAIGN, 'workload = "wrk-matrix"', 'workload = "wrk"', 11, "no workload 'wrk'"),
        (CAMPAIGN, "duration_s = 1", "duration_s = -1", 14, "duration_s = -1"),
        (CAMPAIGN, "duration_s = 1", "iterations = 1", 14, "takes no 'iterations'"),
        (CAMPAIGN, 'modes = ["keepalive", "close"]', 'modes = ["open"]', 13, "modes"),
        (
            CAMPAIGN,
            'servers = ["axum", "gin", "nginx"]',
            'servers = "axum"',
            2,
            "must be a list of strings",
        ),
        (CAMPAIGN, "repeats = 2", "repeats = true", 3, "repeats = True"),
        (CAMPAIGN, "repeats = 2", "repeats =", 3, "line 3"),
        (OPEN, "p99 <= 10 ms", "p42 <= 10 ms", 8, "objective"),
        (OPEN, "bisections = 3", "", 4, "needs 'bisections'"),
        (OPEN, "bisections = 3", "bisections = 3\nsteps = 4", 12, "takes no 'steps'"),
        (OPEN, "to_rps = 200", "to_rps = 100", 10, "must be greater than from_rps"),
        (SWEEP, "[5, 50]", "[5, 5]", 8, "a list of different rates"),
        (COPIES, 'gin-b = "gin"', 'gin-c = "gin"', 5, "must be listed in the campaign's `servers`"),
        (
            COPIES,
            'title = "a test"',
            'title = "a test"\nprocesses = ["gin-c"]',
            2,
            "'gin-c' must be listed in the campaign's `servers`, too",
        ),
        (COPIES, 'gin-b = "gin"', 'gin = "gin"', 5, "than the copied server 'gin'"),
        (SESSIONS, "slices = 2", "slices = 3", 7, "slices = 3 must be an even number"),
        (SESSIONS, "slice_s = 1", "", 10, "[[load]] lacks 'slice_s'"),
        (SESSIONS, "slice_s = 1", "slice_s = 0.1", 8, "slice_s = 0.1 must be a number from 0.2"),
        (SESSIONS, "connections", "duration_s = 3\nconnections", 12, "takes no 'duration_s'"),
        (
            SESSIONS,
            "connections",
            "server_share = 1.5\nconnections",
            12,
            "server_share = 1.5 must be a share",
        ),
        (SESSIONS, "connections", "server_share = [0.5, 0.5]\nconnections", 12, "must be a share"),
        (SESSIONS, "repeats = 3", "server_share = 0.05", 3, "server_share = 0.05 must be a share"),
        (
            SESSIONS,
            "repeats = 3",
            'idle = "asleep"',
            3,
            "idle = 'asleep' must be 'polling', 'system'",
        ),
        (
            SESSIONS,
            'workload = "wrk-matrix"\nconnections = [4]',
            STATIC_RAMP,
            17,
            "the load of a ramp or a search cannot be cut into slices",
        ),
        (RAMP, "pool_sizes = [4, 16]", "", 4, "needs 'pool_sizes'"),
        (RAMP, "steps = 4", "", 4, "needs 'steps'"),
        (
            RAMP,
            "vus = 30",
            "vus = 30\niterations = 5",
            11,
            "workload 'devices-insert-ramp' takes no 'iterations'",
        ),
        (RAMP, "from_rps = 100", "from_rps = 0", 6, "greater than 0"),
        (
            RAMP,
            "vus = 30",
            'vus = 30\nservers = ["echo"]',
            11,
            "'echo' is not one of the campaign's servers",
        ),
        (
            RAMP,
            "vus = 30",
            'vus = 30\nprofile = true\nnot_profiled = ["echo"]',
            12,
            "'echo' is not one of the campaign's servers",
        ),
        (RAMP, "GOGC", "ADDR", 14, "the lab sets ADDR itself"),
        (
            RAMP,
            "[environment.gin]",
            "[environment.echo]",
            13,
            "named after one of the campaign's `servers`",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(read_campaign, text, old, new, line, says):
    assert read_campaign(text).loads
    with pytest.raises(LabError, match=rf"mine\.toml.*line {line}\b") as caught:
        read_campaign(text.replace(old, new, 1))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('tier = "raw"', 'tier = "fast"', 4, "tier = 'fast' must be one of realistic, raw, "),
        ('language = "C"\n', "", 1, "[server] lacks 'language'"),
        (
            'base = "debian"',
            'bas = "debian"',
            10,
            "unknown key 'bas': the known keys are base, context",
        ),
        ('["make"]', '["make", 1]', 8, "command = ['make', 1] must be a list of strings"),
        ('A = "1"', "A = 1", 7, "env = {'A': 1} must be a table of strings"),
        ("[server]", "run = 1\n[server]", 1, "run = 1 must be a table, such as [name] and lines"),
    ],
)
def test_a_mistake_in_a_server_toml_is_named_with_its_line(tmp_path, old, new, line, says):
    folder = tmp_path / "mine"
    folder.mkdir()
    file = folder / "server.toml"
    file.write_text(SERVER_FILE)
    assert read_server(folder).build_env == (("A", "1"),)
    file.write_text(SERVER_FILE.replace(old, new, 1))
    with pytest.raises(LabError, match=rf"server\.toml, line {line}: ") as caught:
        read_server(folder)
    assert says in str(caught.value)


NOT_THERE = {
    'gin = "axum"': "has the name of a server in servers/",
    'gin-b = "jin"': "no server 'jin' in servers/",
}


@pytest.mark.parametrize("copy", NOT_THERE)
def test_a_copy_is_of_a_server_that_is_there(read_campaign, copy):
    with pytest.raises(LabError, match=NOT_THERE[copy]):
        choose(read_campaign(COPIES.replace('gin-b = "gin"', copy)), [], None, 1.0)


def test_a_copy_is_the_same_server_under_another_name(read_campaign):
    first, second = campaign_servers(read_campaign(COPIES))
    assert (first.name, second.name) == ("gin", "gin-b")
    assert replace(second, name="gin") == first
    assert [t.trial_id for t in plan_trials(read_campaign(COPIES), [second])] == [
        "b01-gin-b-experiments-vus5"
    ]


def test_blocks_are_complete_and_their_order_is_seeded(plan):
    trials = plan()
    cells = Counter(trial.cell.cell_id for trial in trials)
    assert len(cells) == 2 + 3 * 4  # nginx does not implement the workload `experiments`
    assert set(cells.values()) == {2}
    first, second = ([t.cell.cell_id for t in trials if t.block == block] for block in (1, 2))
    assert sorted(first) == sorted(second) and first != second
    assert [t.trial_id for t in trials] == [t.trial_id for t in plan()]
    assert len({t.trial_id for t in trials}) == len(trials)


def test_scale_shrinks_but_never_below_what_can_be_measured(plan):
    small = plan(scale=0.01)
    assert {t.cell.shape.iterations for t in small if t.cell.tool == "k6"} == {5}
    assert {t.cell.shape.duration_s for t in small if t.cell.tool == "wrk"} == {0.2}
    assert {t.cell.shape.iterations for t in plan(scale=10) if t.cell.tool == "k6"} == {100}
    with pytest.raises(LabError, match="greater than 0"):
        plan(scale=0)


def test_k6_needs_a_second_and_wrk_has_shorter_slices(
    read_campaign,
):
    sliced = campaign(["gin", "axum"], RATE, PAIR, repeats=3, sessions={"slices": 2, "slice_s": 2})
    users, wrk = read_campaign(sliced).scaled(0.1).loads
    assert (users.form.each_s, wrk.form.each_s) == (1.0, 0.2)
    assert read_campaign(SWEEP).scaled(0.1).loads[0].form.each_s == 1.0


def test_servers_and_repeats_are_chosen(plan):
    """A user can choose servers and repeats, but not a server that does not exist."""
    trials = plan(servers=["gin"], repeats=4)
    assert {t.cell.server for t in trials} == {"gin"} and max(t.block for t in trials) == 4
    with pytest.raises(LabError, match="no server 'gone'"):
        plan(servers=["gone"])


def test_different_loads_have_different_names(
    read_campaign,
):
    """Loads that differ only by a decimal point (10 ms and 1.0 ms) get different names.

    Two loads that would get the same name are refused.
    """
    second = OPEN[OPEN.index("[[load]]") :]
    campaign = read_campaign(OPEN + second.replace("10 ms", "1.0 ms"))
    names = {trial.trial_id for trial in plan_trials(campaign, campaign_servers(campaign))}
    assert len(names) == 6 and "b01-gin-rates-p99le1_0ms-s3" in names
    campaign = read_campaign(OPEN + second.replace("duration_s = 1", "duration_s = 2"))
    with pytest.raises(
        LabError, match="two loads that would have the same name b01-gin-rates-p99le10ms-s1"
    ):
        plan_trials(campaign, campaign_servers(campaign))


def test_a_build_that_does_not_end_is_ended(tmp_path, monkeypatch):
    """A build that hangs ends with a sentence that names the server, so that others are built."""
    monkeypatch.setattr(tools, "BUILD_S", 0.2)
    server = replace(load_server("nginx"), folder=tmp_path, build_command=("sleep", "60"))
    with pytest.raises(LabError, match=r"The build of server nginx did not end within 0\.2 s\."):
        build(server)


def test_a_program_that_prints_no_version_is_named(tmp_path, monkeypatch):
    (tmp_path / "wrk").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "wrk").chmod(0o755)
    monkeypatch.setattr(tools, "find_program", lambda name: tmp_path / name)
    monkeypatch.setattr(tools, "VERSION_S", 0.2)
    with pytest.raises(LabError, match=r"wrk -v did not end within 0\.2 s"):
        tools.find_tool("wrk")


def test_two_that_build_the_same_server_take_turns(tmp_path):
    alone = (
        "sh",
        "-c",
        "mkdir building && sleep 0.2 && rmdir building && echo $$ > built && echo done",
    )
    server = Server(
        "twice",
        tmp_path,
        "shell",
        "none",
        "stripped",
        (),
        build_command=alone,
        artifact=Path("built"),
    )
    with ThreadPoolExecutor() as pool:
        assert len(list(pool.map(build, [server] * 3))) == 3
    assert (tmp_path / "build" / "build.log").read_text() == "done\n"


# --- the commands of the generators ---------------------------------------------------------------

SERVER = Running(1, 8080, lambda: None, lambda: None)


@pytest.fixture
def ramp(read_campaign):
    return read_campaign(RAMP)


def cells(campaign):
    return [trial.cell for trial in plan_trials(campaign, campaign_servers(campaign))]


def test_a_ramp_is_crossed_with_pool_sizes_and_servers(ramp):
    assert {(cell.cell_id, cell.rates_rps) for cell in cells(ramp)} == {
        (f"{server}-devices-insert-ramp-r100-400-pool{size}", (100.0, 200.0, 300.0, 400.0))
        for server in ("gin", "axum")
        for size in (4, 16)
    }
    short = {(cell.shape.step_s, cell.rates_rps[-1]) for cell in cells(ramp.scaled(0.1))}
    assert short == {(0.25, 400)}


def command(cell, tool, tag):
    shot = shot_of(catalog.load_workload(cell.workload), Path(tool), SERVER, tag)
    files = {name: Path("folder") / name for name in OF_GENERATORS}
    return GENERATORS[cell.tool].measured(cell, shot, files, "samples", WHOLE)


def test_k6_is_told_to_hold_each_rate(ramp):
    (cell, *_) = cells(ramp)
    env = command(cell, "k6", "load").env
    scenario = json.loads(env["SCENARIO"])
    assert (scenario["executor"], scenario["preAllocatedVUs"]) == ("ramping-arrival-rate", 30)
    assert [stage["target"] for stage in scenario["stages"]] == [
        100,
        100,
        200,
        200,
        300,
        300,
        400,
        400,
    ]
    assert [stage["duration"] for stage in scenario["stages"]] == ["0s", "2500ms"] * 4
    assert json.loads(env["BODY"]) == {"mac": "02-00-00-00-00-01", "firmware": "load"}
    assert cell.to_begin == 2500


def test_wrk_sends_the_workloads_body(read_campaign):
    inserts = load("devices-insert", connections=8, duration_s=1, pool_sizes=4)
    (cell, *_) = cells(read_campaign(campaign(SERVERS, inserts)))
    env = command(cell, "wrk", "tagged").env
    assert env["WRK_METHOD"] == "POST" and json.loads(env["WRK_BODY"])["firmware"] == "tagged"


def test_a_load_and_variables_may_be_for_some_servers_only(read_campaign):
    some = load("static", connections=8, duration_s=1, servers=["axum", "nginx"])
    found = read_campaign(campaign(SERVERS, some, environment={"gin": {"GOGC": "200"}}))
    assert {cell.server for cell in cells(found)} == {"axum", "nginx"}
    assert found.environment == (("gin", "GOGC", "200"),)
