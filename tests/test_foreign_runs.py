"""A run from somebody else: it leads out of no folder, overwrites nothing, and ends in a sentence at worst."""

import json
import os

import pytest
import synthetic_run

from runner.model import LabError
from runner.store import LARGEST_JSON, RunFolder, export_compact, figures_folder, find_run, read_json


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab with one run, as its folder."""
    for name in ("servers", "notebooks", "data/runs"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    folder = tmp_path / "data" / "runs" / "theirs"
    synthetic_run.build(folder)
    return folder


def record(folder, name="t1", **changes):
    path = folder / "trials" / name / "trial.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {"trial_id": name, "order": 1, "block": 1, "attempt": 1, "cell": {}, "status": "sealed", "error": None}
    path.write_text(json.dumps({**plain, "disturbed": False, "metrics": {}, "raw": {}, **changes}))
    return path


@pytest.mark.fault("a foreign run's id is a path", "refused: nothing is written outside its folders")
@pytest.mark.parametrize(
    "run_id", ["../../elsewhere", "/etc/elsewhere", "..", ".hidden", "a/b", "", "a\nb", "x" * 300, 7]
)
def test_the_id_of_a_run_leads_nowhere(lab, run_id):
    manifest = json.loads((lab / "run.json").read_text())
    (lab / "run.json").write_text(json.dumps(manifest | {"run_id": run_id}))
    with pytest.raises(LabError, match="names no run_id"):
        figures_folder(find_run("theirs"))


@pytest.mark.fault("a foreign record names another folder or file", "refused")
@pytest.mark.parametrize(
    "changes",
    [
        {"trial_id": "../../../elsewhere"},
        {"trial_id": "t2"},
        {"raw": {"../../../../etc/passwd": {"sha256": "0"}}},
        {"order": "1"},
        {"attempt": None},
        {"cell": []},
    ],
)
def test_the_record_of_a_trial_is_that_of_its_folder(lab, changes):
    record(lab, **changes)
    with pytest.raises(LabError, match=r"trial\.json is not"):
        RunFolder(lab).records()


def test_a_record_that_lacks_something_is_named(lab):
    path = record(lab)
    path.write_text("[]")
    with pytest.raises(LabError, match="it has no trial_id"):
        RunFolder(lab).records()


@pytest.mark.fault("a link or a device in a foreign run", "refused: nothing outside it is read or copied")
@pytest.mark.parametrize("target", ["/etc/hostname", "/etc", "/nowhere"])
def test_a_link_in_a_run_is_refused(lab, target):
    (lab / "tables" / "probe").mkdir(exist_ok=True)
    (lab / "tables" / "probe" / "t1.parquet").symlink_to(target)
    with pytest.raises(LabError, match="is a link or a device"):
        find_run("theirs")


@pytest.mark.fault("a pipe in the place of a manifest", "refused at once")
def test_a_pipe_in_the_place_of_a_file_is_no_wait(lab):
    (lab / "run.json").unlink()
    os.mkfifo(lab / "run.json")
    with pytest.raises(LabError, match="no file of the lab"):
        read_json(lab / "run.json")


@pytest.mark.fault("a manifest of gigabytes", "refused before it is read")
def test_a_huge_file_is_not_read(lab):
    with (lab / "run.json").open("wb") as handle:
        handle.truncate(LARGEST_JSON + 1)
    with pytest.raises(LabError, match="more than 64 MiB"):
        find_run("theirs")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "\xff", "NaN", "1e999", ""])
def test_no_text_is_more_than_a_sentence(lab, text):
    (lab / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(LabError):
        find_run("theirs")


@pytest.mark.fault("an export to a folder with raw files", "refused, the files stand")
def test_an_export_never_replaces_raw_files(lab, tmp_path):
    mine = tmp_path / "mine"
    record(lab)
    RunFolder(lab).append("sealed", "t1")
    export_compact(RunFolder(lab), mine)
    export_compact(RunFolder(lab), mine)  # an export is replaced
    (mine / "trials" / "t1" / "k6.json.gz").write_bytes(b"hours of work")
    with pytest.raises(LabError, match="something else than an exported run"):
        export_compact(RunFolder(lab), mine)
    assert (mine / "trials" / "t1" / "k6.json.gz").read_bytes() == b"hours of work"
    assert not list(tmp_path.glob(".*.tmp"))
