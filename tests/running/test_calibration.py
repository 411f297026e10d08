"""Tests of the generators' ceilings (highest rates), which are calculated from trials' rates.

Further tests check for which machine and tools a calibration is valid.
"""

import hashlib
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_lab
import synthetic_run
from cells import cell_of, changed
from pydantic import ValidationError

from runner.calibration import Calibration, Ceiling, load_calibration, save_calibration
from runner.columns import schema_of
from runner.digest.ceilings import calibrate
from runner.manifest import Machine, Manifest
from runner.measure import doctor
from runner.measure.machine import place
from runner.model import SCHEMA, LabError
from runner.store import RunFolder, data_folder, decode, write_json

FACTS = synthetic_run.manifest()["machine"] | {
    "turbo": False,
    "hypervisor": True,
    "open_files": 1024,
}


def fingerprint(facts):
    return Machine.of(facts).fingerprint


def closed(trial, rps, verdict="generator-bound", server="gnet", status="sealed"):
    row = {
        "trial_id": trial,
        "server": server,
        "tool": "wrk",
        "load_model": "closed",
        "mode": "keepalive",
    }
    return {**row, "connections": 10, "rps": rps, "verdict": verdict, "status": status}


@pytest.fixture
def calibrated(tmp_path):
    """Return a function that writes a run with the given trials, and calibrates from this run.

    The trials are given as rows of the table `trials`. `bins` are rows of the table `throughput`:
    the numbers of answers in tenths of a second. The function returns the Calibration.
    """

    def of_rows(*rows, bins=()):
        run = RunFolder(tmp_path / "run")
        run.tables.mkdir(parents=True)
        write_json(run.path / "run.json", synthetic_run.manifest() | {"machine": FACTS})
        for name, found in (("trials", rows), ("throughput", bins)):
            pq.write_table(
                pa.Table.from_pylist(list(found), schema=schema_of(name)), run.table(name)
            )
        return calibrate(run)

    return of_rows


def test_the_fastest_servers_median_is_the_ceiling(calibrated):
    found = calibrated(
        closed("a1", 900.0),
        closed("a2", 1000.0),
        closed("a3", 1100.0, "inconclusive"),
        closed("b1", 950.0, "server-bound", "nginx"),
        closed("b2", 9999.0, server="nginx", status="failed"),
    )
    (ceiling,) = found.ceilings
    assert (ceiling.server, ceiling.rps, ceiling.rps_min, ceiling.rps_max) == (
        "gnet",
        1000.0,
        900.0,
        1100.0,
    )
    assert (ceiling.trials, ceiling.known, ceiling.in_words) == (3, True, "1,000")


def test_at_the_servers_limit_the_ceiling_is_a_lower_bound(calibrated):
    calibration = calibrated(closed("a1", 900.0, "server-bound"))
    assert (calibration.ceilings[0].in_words, calibration.ceiling_of(CELL)) == (
        "at least 900",
        None,
    )


def test_of_a_ramp_the_best_step_counts(calibrated):
    """The ceiling that a ramp shows is the rate of the step with the most answers.

    Three steps of 1 s have 100, 200 and 150 answers, so the ceiling is 200 answers/s, the rate of
    the second step. The load of the third step exceeds the capacity.
    """
    row = {
        "trial_id": "o",
        "server": "gnet",
        "tool": "k6",
        "load_model": "open",
        "mode": "close",
        "vus": 100,
    }
    row |= {
        "rps": 150.0,
        "verdict": "generator-bound",
        "status": "sealed",
        "steps": 3,
        "step_s": 1.0,
    }
    answered = (
        [10] * 10 + [20] * 10 + [15] * 10 + [99]
    )  # the last bin is after the end of the schedule
    bins = [
        {"trial_id": "o", "t_s": i / 10, "requests": n, "failed": 0} for i, n in enumerate(answered)
    ]
    (found,) = calibrated(row, bins=bins).ceilings
    assert (found.load_model, found.connections, found.rps) == ("open", 100, 200.0)


def test_nothing_sealed_is_no_calibration(calibrated):
    with pytest.raises(LabError, match=r"was sealed, so there are no ceilings"):
        calibrated(closed("a1", 900.0, status="failed"))


CELL = cell_of(workload="wrk-matrix", tool="wrk", connections=40, duration_s=1.0)


def calibration(*ceilings):
    return Calibration("r", "now", "", {"k6": "1.8.1"}, 1, ceilings)


def ceiling(connections, rps, **changes):
    known = Ceiling(
        "wrk", "closed", "keepalive", connections, rps, rps, rps, 3, "gnet", "generator-bound"
    )
    return replace(known, **changes)


def test_a_run_keeps_its_calibration_in_its_manifest():
    given = calibration(ceiling(10, 1.0), ceiling(100, 2.0, mode="close"))
    manifest = Manifest(schema=SCHEMA, run_id="r", calibration=given.as_json())
    again = Manifest.of(json.loads(json.dumps(manifest.as_json())))
    assert decode(Calibration, again.calibration, "") == given


def test_a_cell_is_held_against_the_higher_neighbour():
    found = calibration(
        ceiling(10, 1.0),
        ceiling(100, 2.0),
        ceiling(100, 3.0, mode="close"),
        ceiling(40, 4.0, tool="k6"),
    )
    by_connections = {
        n: found.ceiling_of(changed(CELL, connections=n)).rps for n in (5, 10, 40, 1000)
    }
    assert by_connections == {5: 1.0, 10: 1.0, 40: 2.0, 1000: 2.0}
    assert found.ceiling_of(replace(CELL, mode="close")).rps == 3.0
    rate = {"first_rate_rps": 9.0, "rate_rps": 9.0, "steps": 1, "step_s": 1.0}
    opened = cell_of(tool="wrk", vus=40, **rate)
    assert found.ceiling_of(opened) is None
    assert calibration(ceiling(10, 1.0), ceiling(100, 2.0, trials=2)).ceiling_of(CELL) is None
    assert (
        calibration(ceiling(10, 1.0), ceiling(100, 2.0, verdict="inconclusive")).ceiling_of(CELL)
        is None
    )


@pytest.mark.parametrize(
    ("facts", "tools", "cpus", "valid"),
    [
        (FACTS, {"k6": "1.8.1"}, 1, True),
        (FACTS, {"k6": "1.9.0"}, 1, False),
        (FACTS, {"k6": "1.8.1"}, 3, False),
        ({**FACTS, "cpu_model": "Another CPU"}, {"k6": "1.8.1"}, 1, False),
    ],
)
def test_it_is_valid_for_its_machine_and_tools_only(calibrated, facts, tools, cpus, valid):
    assert calibrated(closed("a1", 900.0)).valid_for(Machine.of(facts), tools, cpus) is valid


# The text whose hash is the fingerprint, written by hand: keys are in alphabetical order, and there
# are no spaces between the parts.
TEXT = (
    '{"cpu_model":"Example CPU @ '
    '2.50GHz","cpus":2,"governor":null,"hypervisor":true,"kernel":"6.1","memory_gib":8,"turbo":false}'
)


def test_a_fingerprint_begins_a_sha256_of_the_facts():
    assert fingerprint(FACTS) == hashlib.sha256(TEXT.encode()).hexdigest()[:12]


def test_whatever_changes_numbers_changes_it():
    other = {"cpu_model": "Another CPU", "cpus": 4, "memory_bytes": 16 * 2**30, "kernel": "6.2"}
    other |= {"governor": "performance", "turbo": True, "hypervisor": False}
    found = {fingerprint(FACTS | {fact: value}) for fact, value in other.items()} | {
        fingerprint(FACTS)
    }
    assert len(found) == len(other) + 1


def test_what_changes_no_number_does_not_change_it():
    other = FACTS | {"os": "Debian", "open_files": 20_000, "memory_bytes": 8 * 2**30 - 40 * 2**20}
    assert fingerprint(other) == fingerprint(dict(reversed(other.items()))) == fingerprint(FACTS)


def test_a_manifest_of_before_the_newer_facts_has_one_too():
    older = {key: value for key, value in FACTS.items() if key not in ("turbo", "hypervisor")}
    assert fingerprint(older) == fingerprint(older | {"turbo": None, "hypervisor": None})
    assert fingerprint(older) != fingerprint(FACTS)
    assert len(fingerprint({})) == 12
    with pytest.raises(ValidationError, match="valid integer"):
        fingerprint({"memory_bytes": "much"})


def test_it_is_kept_in_a_file(bare_lab):
    assert load_calibration() is None
    save_calibration(calibration(ceiling(10, 1.0)))
    assert load_calibration() == calibration(ceiling(10, 1.0))
    (data_folder() / "calibration.json").write_text('{"run_id": "r"}')
    with pytest.raises(LabError, match="bench calibrate"):
        load_calibration()


def test_the_doctor_shows_it_and_says_when_it_does_not_fit(bare_lab):
    def found():
        finding = doctor.examine_calibration(Machine.of(FACTS), versions={}, server_cpus=1)
        return finding.level, finding.text

    assert found() == (
        "warning",
        "No calibration for this machine: run `bench calibrate`.",
    )
    cpus = len(place(1).generator)
    found_now = calibration(ceiling(10, 900.0), ceiling(100, 12_345.0))
    fitting = replace(found_now, fingerprint=fingerprint(FACTS), generator_cpus=cpus)
    save_calibration(fitting)
    assert found() == (
        "ok",
        "highest rates of the generators in requests/s, measured on now: "
        "wrk closed keepalive at 100 connections: 12,345",
    )
    save_calibration(replace(fitting, generator_cpus=cpus + 1))
    assert found()[0] == "warning"
    assert "run `bench calibrate` again" in found()[1]


@pytest.mark.load
@pytest.mark.long
@real_lab.needs("k6", "wrk")
def test_a_calibrated_machine_says_so_in_its_next_run(root):
    arguments = ("--engine", "process", "--scale", "0.1", "--repeats", "1", "--json")
    found = json.loads(real_lab.bench(root, "calibrate", *arguments, code=0).stdout)
    kinds = {(c["tool"], c["load_model"], c["mode"]) for c in found["ceilings"]}
    loads = (("k6", "closed"), ("wrk", "closed"), ("k6", "open"))
    assert kinds == {(*load, mode) for load in loads for mode in ("keepalive", "close")}
    assert all(c["rps"] > 50 for c in found["ceilings"])
    assert json.loads((root / "data" / "calibration.json").read_text()) == found
    campaign = real_lab.campaign(["gnet"], real_lab.load("static", connections=10, duration_s=1))
    made = real_lab.run(root, campaign, "--engine", "process")
    assert made.manifest["calibration"]["run_id"] == found["run_id"]
    assert (
        made.trials["generator_ceiling_rps"].isna().all()
    )  # verdicts use no ceiling that was found with only one trial per load
