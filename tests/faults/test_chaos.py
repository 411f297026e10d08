"""Tests of `make chaos`, which hits the lab with faults and must notice each broken promise.

A promise is broken, for example, if a sealed file changes or a process is left. If `make chaos`
missed a broken promise, its success would prove nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chaos import labs
from chaos.__main__ import Outcome, report


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Return a lab whose run has a sealed trial, a failed trial, and an unfinished trial."""
    monkeypatch.setattr(labs, "CLEAN_UP_S", 0.3)
    (tmp_path / "tmp").mkdir()
    run = tmp_path / "data" / "runs" / "r"
    states = {"b01-axum": "sealed", "b01-gin": "failed", "b02-axum": "running"}
    for name, state in states.items():
        folder = run / "trials" / name
        folder.mkdir(parents=True)
        (folder / "wrk.json").write_text("{}")
        if state != "running":
            (folder / "trial.json").write_text(json.dumps({"trial_id": name, "status": state}))
    (run / "run.json").write_text("{}")
    lines = [json.dumps({"trial_id": name, "state": state}) for name, state in states.items()]
    (run / "journal.jsonl").write_text("\n".join([*lines, '{"trial_id": "b02-a']))
    return labs.Lab(tmp_path, engine=None, clock_switch=None, environment={})


def trial(lab: labs.Lab, name: str) -> Path:
    return lab.data / "runs" / "r" / "trials" / name


def test_a_changed_or_missing_sealed_file_is_noticed(lab):
    before = lab.sealed_files()
    assert lab.changed(before) == []
    (trial(lab, "b01-axum") / "wrk.json").write_text("{ }")
    (trial(lab, "b01-axum") / "trial.json").unlink()
    assert len(lab.changed(before)) == 2


def test_a_failed_trial_is_no_sealed_one(lab):
    assert {path.parent.name for path in lab.sealed_files()} == {"b01-axum"}
    assert [path.parent.name for path in lab.unsealed_files()] == ["b02-axum"]


def test_a_run_is_unfinished_until_each_trial_has_a_result(lab):
    assert lab.unfinished()
    with (lab.data / "runs" / "r" / "journal.jsonl").open("a") as journal:
        journal.write('\n{"trial_id": "b02-axum.a2", "state": "sealed"}\n')
    assert not lab.unfinished()


def test_a_sealed_trial_without_a_row_is_noticed(lab):
    assert lab.contradictions() == ["there is no table of trials"]


def test_what_is_left_behind_is_named(lab):
    assert lab.left_behind(killed_watchdog=False) == []
    (lab.root / "tmp" / "bench-x").mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(60)", str(lab.root)]
    with subprocess.Popen(command) as left:
        try:
            said = lab.left_behind(killed_watchdog=False)
        finally:
            left.kill()
    assert ["time.sleep" in said[0], "bench-x" in said[1], len(said)] == [True, True, 2]


def test_the_table_counts_broken_promises():
    kept = Outcome("full disk", 1.0, "disk", 1, 1, 8, 0, ())
    broken = Outcome("full disk", 2.0, "", 0, 0, 7, 1, ("left behind: x",))
    text = report(7, [kept, broken])
    assert "seed 7: 1 broke a promise" in text
    assert text.splitlines()[-1] == "| full disk | 2 | 1 | 1 | 15 | 1 | 1 |"
