"""Ceilings of the generators: from tables whose rates are known, and only for the machine that they were found on."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_lab

from runner.calibration import Calibration, Ceiling, load_calibration, save_calibration
from runner.digest.ceilings import calibrate
from runner.digest.tables import SCHEMAS
from runner.fingerprint import fingerprint
from runner.measure import doctor
from runner.measure.tools import find_tool
from runner.model import Cell, LabError
from runner.store import RunFolder, calibration_file

FACTS = {"cpu_model": "Example CPU", "cpus": 2, "memory_bytes": 2**34, "kernel": "6.1"}
MANIFEST = {
    "schema": 1,
    "run_id": "r",
    "started_at": "2026-11-21T00:00:00+00:00",
    "machine": FACTS,
    "tools": {"k6": "1.8.1", "wrk": "4.1.0", "python": "3.11"},
    "placement": {"server": [0], "generator": [1]},
}


def closed(trial, server, connections, rps, verdict="generator-bound", status="sealed"):
    row = {"trial_id": trial, "server": server, "tool": "wrk", "load_model": "closed", "mode": "keepalive"}
    return {**row, "connections": connections, "rps": rps, "verdict": verdict, "status": status}


def written(tmp_path, rows, bins=()):
    run = RunFolder(tmp_path / "run")
    run.tables.mkdir(parents=True)
    (run.path / "run.json").write_text(json.dumps(MANIFEST))
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["trials"]), run.table("trials"))
    pq.write_table(pa.Table.from_pylist(list(bins), schema=SCHEMAS["throughput"]), run.table("throughput"))
    return run


def test_the_fastest_servers_median_is_the_ceiling(tmp_path):
    rows = [
        closed("a1", "gnet", 10, 900.0),
        closed("a2", "gnet", 10, 1000.0),
        closed("a3", "gnet", 10, 1100.0, "inconclusive"),
        closed("b1", "nginx", 10, 950.0, "server-bound"),
        closed("b2", "nginx", 10, 9999.0, status="failed"),
    ]
    (found,) = calibrate(written(tmp_path, rows)).ceilings
    assert (found.server, found.rps, found.rps_min, found.rps_max, found.trials) == ("gnet", 1000.0, 900.0, 1100.0, 3)
    assert found.known
    assert found.in_words == "1,000"


def test_where_the_server_was_the_limit_the_rate_is_a_lower_bound(tmp_path):
    calibration = calibrate(written(tmp_path, [closed("a1", "gnet", 10, 900.0, "server-bound")]))
    assert calibration.ceilings[0].in_words == "at least 900"
    assert calibration.ceiling_of(CELL) is None


def test_of_a_ramp_the_best_step_counts(tmp_path):
    """Steps of 1 s that answer 100, 200 and, beyond what it can, 150."""
    row = {"trial_id": "o", "server": "gnet", "tool": "k6", "load_model": "open", "mode": "close", "vus": 100}
    row |= {"rps": 150.0, "verdict": "generator-bound", "status": "sealed", "steps": 3, "step_s": 1.0}
    answered = [10] * 10 + [20] * 10 + [15] * 10 + [99]  # the last bin lies behind the schedule's end
    bins = [{"trial_id": "o", "t_s": i / 10, "requests": n, "failed": 0} for i, n in enumerate(answered)]
    (found,) = calibrate(written(tmp_path, [row], bins)).ceilings
    assert (found.load_model, found.connections, found.rps) == ("open", 100, 200.0)


def test_nothing_sealed_is_no_calibration(tmp_path):
    with pytest.raises(LabError, match="nothing to calibrate by"):
        calibrate(written(tmp_path, [closed("a1", "gnet", 10, 900.0, status="failed")]))


CELL = Cell("gin", "Go", "gin", "realistic", "wrk-matrix", "wrk", "closed", "keepalive", "/x", connections=40)


def calibration(*ceilings):
    return Calibration("r", "now", "", {"k6": "1.8.1"}, 1, ceilings)


def ceiling(connections, rps, **changes):
    return replace(
        Ceiling("wrk", "closed", "keepalive", connections, rps, rps, rps, 3, "gnet", "generator-bound"), **changes
    )


def test_a_cell_is_held_against_the_higher_neighbour_in_connections():
    found = calibration(
        ceiling(10, 1.0), ceiling(100, 2.0), ceiling(100, 3.0, mode="close"), ceiling(40, 4.0, tool="k6")
    )
    assert found.ceiling_of(CELL).rps == 2.0
    assert found.ceiling_of(replace(CELL, connections=10)).rps == 1.0
    assert found.ceiling_of(replace(CELL, connections=5)).rps == 1.0
    assert found.ceiling_of(replace(CELL, connections=1000)).rps == 2.0
    assert found.ceiling_of(replace(CELL, mode="close")).rps == 3.0
    assert found.ceiling_of(replace(CELL, load_model="open")) is None
    assert calibration(ceiling(10, 1.0), ceiling(100, 2.0, trials=2)).ceiling_of(CELL) is None
    assert calibration(ceiling(10, 1.0), ceiling(100, 2.0, verdict="inconclusive")).ceiling_of(CELL) is None


@pytest.mark.parametrize(
    ("facts", "tools", "cpus", "valid"),
    [
        (FACTS, {"k6": "1.8.1"}, 1, True),
        (FACTS, {"k6": "1.9.0"}, 1, False),
        (FACTS, {"k6": "1.8.1"}, 3, False),
        ({**FACTS, "cpu_model": "Another CPU"}, {"k6": "1.8.1"}, 1, False),
    ],
)
def test_it_is_valid_for_its_own_machine_and_tools_only(tmp_path, facts, tools, cpus, valid):
    assert calibrate(written(tmp_path, [closed("a1", "gnet", 10, 900.0)])).valid_for(facts, tools, cpus) is valid


def test_it_is_kept_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_ROOT", str(real_lab.make(tmp_path)))
    assert load_calibration() is None
    save_calibration(calibration(ceiling(10, 1.0)))
    assert load_calibration() == calibration(ceiling(10, 1.0))
    calibration_file().write_text('{"run_id": "r"}')
    with pytest.raises(LabError, match="bench calibrate"):
        load_calibration()


def test_the_doctor_shows_it_and_says_when_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_ROOT", str(real_lab.make(tmp_path)))
    monkeypatch.setattr(doctor, "find_tool", lambda name: None)
    monkeypatch.setattr(doctor.machine, "facts", lambda: FACTS)

    def found():
        finding = doctor._calibration(1)
        return finding.level, finding.text

    assert found() == ("warning", "of k6 and wrk are not known here: find them with `bench calibrate`")
    cpus = len(doctor.machine.place(1).generator)
    fitting = replace(
        calibration(ceiling(10, 900.0), ceiling(100, 12_345.0)), fingerprint=fingerprint(FACTS), generator_cpus=cpus
    )
    save_calibration(fitting)
    assert found() == ("ok", "requests/s, found now: wrk closed keepalive at 100: 12,345")
    save_calibration(replace(fitting, generator_cpus=cpus + 1))
    assert found()[0] == "warning"
    assert "run `bench calibrate` anew" in found()[1]


@pytest.mark.load
@pytest.mark.long
@pytest.mark.skipif(find_tool("k6") is None or find_tool("wrk") is None, reason="k6 or wrk is not installed")
def test_a_calibrated_machine_says_so_in_its_next_run(tmp_path):
    root = real_lab.make(tmp_path)
    arguments = ("--engine", "process", "--scale", "0.1", "--repeats", "1", "--json")
    done = real_lab.bench(root, "calibrate", *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kinds = {(c["tool"], c["load_model"], c["mode"]) for c in found["ceilings"]}
    assert kinds == {(tool, "closed", mode) for tool in ("k6", "wrk") for mode in ("keepalive", "close")} | {
        ("k6", "open", mode) for mode in ("keepalive", "close")
    }
    assert all(c["rps"] > 50 for c in found["ceilings"])
    assert json.loads((root / "data" / "calibration.json").read_text()) == found
    campaign = 'title = "t"\nservers = ["gnet"]\n[[load]]\nworkload = "static"\nconnections = 10\nduration_s = 1\n'
    done, trials = real_lab.run(root, campaign, "--engine", "process")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(next(root.glob("data/runs/*-test-*/run.json")).read_text())
    assert manifest["calibration"]["run_id"] == found["run_id"]
    assert trials["generator_ceiling_rps"].isna().all()  # one trial a load is no ceiling that a verdict leans on
