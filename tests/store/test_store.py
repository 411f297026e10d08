"""Tests of the store.

A file is written as a whole or not at all. The journal can be read even if its last line is
incomplete. A run is found, or refused with a reason.
"""

import json
import lzma
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from built import ROOT
from measured import record_of

from runner import store
from runner.digest.tables import shrink
from runner.model import LabError
from runner.store import (
    TABLES,
    RunFolder,
    export_compact,
    figures_folder,
    find_run,
    sha256,
    short_name,
    write_json,
)


@pytest.mark.fault(
    "an error while a file is written", "the old file stands, no temporary one is left"
)
def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def broken():
        with store.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        broken()
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.fault("a crash while the journal is written", "only the incomplete line is lost")
def test_the_journal_loses_only_a_torn_line(tmp_path):
    run = RunFolder(tmp_path)
    for state in ("planned", "running", "raw"):
        run.append(state, "t1")
    with run.journal.open("a") as handle:
        handle.write('{"trial_id": "' + "x" * 200_000)
    assert run.states() == {"t1": "raw"}
    run.append("planned", "t2")
    assert run.states() == {"t1": "raw", "t2": "planned"}
    assert [json.loads(line)["trial_id"] for line in run.journal.read_text().splitlines()] == [
        "t1",
        "t1",
        "t1",
        "t2",
    ]
    run.journal.write_text("torn from the first line on")
    run.append("planned", "t1")
    assert run.states() == {"t1": "planned"}


def test_rubbish_in_the_middle_of_the_journal_is_named(tmp_path):
    run = RunFolder(tmp_path)
    run.journal.write_text(
        '{"trial_id": "t", "state": "planned"}\nrubbish\n{"trial_id": "t", "state": "raw"}\n'
    )
    with pytest.raises(LabError, match="line 2"):
        run.states()


def test_sha256_is_the_known_one(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert (
        sha256(tmp_path / "abc")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


@pytest.mark.parametrize("run", ["nothing", "../..", "./here", "latest"])
def test_an_unknown_run_is_one_sentence(bare_lab, run):
    with pytest.raises(LabError, match=r"^There is no run"):
        find_run(run)


def make_run(folder, name):
    (folder / "tables").mkdir(parents=True)
    write_json(folder / "run.json", {"schema": 1, "run_id": name})
    (folder / "journal.jsonl").write_text("")
    write_json(folder / "trials" / "t1" / "trial.json", record_of("t1", of_run=name))
    (folder / "trials" / "t1" / "k6.json.gz").write_text("large")
    for table in TABLES:
        rows = pa.table({"trial_id": [name] * 3, "cpu_pct": [1.0, None, 0.1]})
        pq.write_table(rows, folder / "tables" / f"{table}.parquet")
    return RunFolder(folder)


def test_an_export_has_every_value_of_every_table(tmp_path):
    run = make_run(tmp_path / "run", "r")
    export_compact(run, tmp_path / "out", shrink)
    assert not (tmp_path / "out" / "tables" / "slices.parquet").exists()
    pq.write_table(pa.table({"slice": [1, 2]}), run.table("slices"))
    export_compact(run, tmp_path / "out", shrink)
    for table in {*TABLES, "slices"} - {"resources"}:
        assert pq.read_table(RunFolder(tmp_path / "out").table(table)).equals(
            pq.read_table(run.table(table))
        )
    exported = pq.read_table(RunFolder(tmp_path / "out").table("resources")).to_pydict()
    assert exported["trial_id"] == ["r"] * 3 and exported["cpu_pct"][1] is None
    assert exported["cpu_pct"][::2] == pytest.approx([1.0, 0.1], abs=0.004)
    run.table("resources").write_text("no table")
    with pytest.raises(LabError, match=r"resources\.parquet is damaged"):
        export_compact(run, tmp_path / "out", shrink)
    assert (tmp_path / "out" / "run.json").exists()


@pytest.mark.fault("an export to a folder with raw files", "refused, the files stand")
def test_an_export_has_no_raw_files_and_replaces_only_an_export(tmp_path):
    first, second = (make_run(tmp_path / name, name) for name in ("a", "b"))
    out = tmp_path / "out"
    export_compact(first, out)
    export_compact(second, out)
    assert RunFolder(out).run_id == "b"
    assert not list(out.rglob("k6.json.gz"))
    assert [each["of_run"] for each in RunFolder(out).records()] == ["b"]
    thesis = tmp_path / "precious" / "thesis.txt"
    raw = out / "trials" / "t1" / "k6.json.gz"
    for precious in (thesis, raw):
        precious.parent.mkdir(parents=True)
        precious.write_text("years of work")
    for target in (thesis.parent, out, first.path):
        with pytest.raises(LabError, match="files that are not of an exported run"):
            export_compact(first, target)
    assert thesis.read_text() == raw.read_text() == "years of work"
    assert (first.path / "run.json").exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next(tmp_path):
    """The temporary folder of a killed process is removed.

    The temporary folder of a running process, and folders with other names, stay.
    """
    gone = subprocess.Popen(["true"])
    gone.wait()
    abandoned = tmp_path / f".out.{gone.pid}-0a0b0c0d.tmp"
    in_use = tmp_path / f".out.{os.getpid()}-0a0b0c0d.tmp"
    of_another = tmp_path / f".outer.{gone.pid}-0a0b0c0d.tmp"
    mine = tmp_path / ".out.notes.tmp"
    for folder in (abandoned, in_use, of_another, mine):
        folder.mkdir()
    with store.replacing_folder(tmp_path / "out") as folder:
        (folder / "file").write_text("new")
    assert not abandoned.exists() and (tmp_path / "out" / "file").read_text() == "new"
    assert all(folder.exists() for folder in (in_use, of_another, mine))


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_signal_leaves_no_half_written_folder(tmp_path, number):
    """If a signal ends `bench publish` while it draws figures, no half-written folder is left.

    The program `env` restores the default handling of the signals. This is necessary because a
    shell lets its background jobs ignore some signals, and their child processes inherit this.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [
        *("env", "--default-signal=HUP,INT,TERM"),
        *(sys.executable, "-m", "runner.cli", "publish", "sample", "--out", tmp_path / "post"),
    ]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".post.*/figures")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number and list(tmp_path.iterdir()) == []
    if number != signal.SIGINT:
        assert f"{number.name} ended this command before its result.\n" in said


def test_exported_records_are_those_of_the_run(tmp_path):
    run = make_run(tmp_path / "run", "r")
    for order, name in enumerate(("t3", "t2"), start=2):
        path = run.trial(name) / "trial.json"
        odd = {"seconds": 0.1 + 0.2, "title": "naïve\u2028π", "none": None, "whole": 2**70}
        write_json(path, record_of(name, order=order, **odd))
    out = tmp_path / "out"
    again = tmp_path / "again"
    export_compact(run, out)
    export_compact(RunFolder(out), again)  # an exported run can be exported
    hashes = {path.parent.name: sha256(path) for path in run.path.glob("trials/*/trial.json")}
    text = lzma.decompress((out / "trials.jsonl.xz").read_bytes()).decode()
    assert [json.loads(line)["trial_id"] for line in text[:-1].split("\n")] == ["t1", "t3", "t2"]
    for folder in (out, again):
        assert RunFolder(folder).records() == run.records()
        assert RunFolder(folder).record_hashes() == run.record_hashes() == hashes
    assert sorted(path.name for path in out.iterdir()) == [
        "journal.jsonl",
        "run.json",
        "tables",
        "trials.jsonl.xz",
    ]


def test_a_run_exported_by_an_older_version_is_read(tmp_path):
    """A run that an older version exported can be read, exported again, and replaced."""
    old = make_run(tmp_path / "old", "old")
    (old.trial("t1") / "k6.json.gz").unlink()  # an older version exported runs without raw files
    assert [each["trial_id"] for each in old.records()] == ["t1"]
    export_compact(old, tmp_path / "out")
    assert RunFolder(tmp_path / "out").records() == old.records()
    export_compact(make_run(tmp_path / "new", "new"), old.path)
    assert [each["of_run"] for each in old.records()] == ["new"]
    assert not (old.path / "trials").exists()


MANIFESTS = [
    b"[]",
    b"{}",
    b'{"schema": 1}',
    b'{"schema": 1, "run_id": 7}',
    b'{"schema": 99}',
    b"rubbish",
    b"\xff",
]
MANIFESTS += [b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"1e999", b""]


@pytest.mark.parametrize("text", MANIFESTS)
def test_a_broken_manifest_is_one_sentence_before_any_work(tmp_path, text):
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(
        LabError, match=r"run\.json.*schema 99" if b": 99" in text else r"run\.json"
    ):
        find_run(str(tmp_path))


def test_a_committed_run_is_found_by_its_name(bare_lab, tmp_path):
    """A committed run is found by the name of its folder.

    The folder of its figures has the same name.
    """
    make_run(tmp_path / "data" / "mine", "20260101T000000Z-x-1")
    make_run(tmp_path / "data" / "runs" / "20260101T000000Z-y-2", "20260101T000000Z-y-2")
    committed = find_run("mine")
    fresh = find_run("20260101T000000Z-y-2")
    assert (
        committed.path.parent.name == "data"
        and figures_folder(committed).name == short_name(committed) == "mine"
    )
    assert figures_folder(fresh).name == short_name(fresh) == "20260101T000000Z-y-2"
    elsewhere = tmp_path / "elsewhere"
    make_run(elsewhere, "20260101T000000Z-z-3")
    assert short_name(find_run(str(elsewhere))) == str(elsewhere)
