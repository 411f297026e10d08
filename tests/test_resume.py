"""A run goes on after any end, and only as the run that it was: the same plan, files, machine, and sealed bytes."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from fake_lab import CLOSE, K6, bench, records

from runner.store import RunFolder

pytestmark = pytest.mark.timed


@pytest.fixture
def copied(finished):
    """Makes copies of the run beside it, each under its own name, which go with the test."""
    made = []

    def copy(name, **campaign):
        folder = Path(finished[1]["path"]).with_name(name)
        shutil.copytree(finished[1]["path"], folder)
        made.append(folder)
        manifest = json.loads((folder / "run.json").read_text())
        manifest["campaign"] |= campaign
        (folder / "run.json").write_text(json.dumps(manifest | {"run_id": name}))
        return RunFolder(folder)

    yield copy
    for folder in made:
        shutil.rmtree(folder)


@pytest.mark.fault(
    "the runner dies between a trial's record and its last line in the journal, which is torn",
    "the trial is sealed, and not repeated",
)
def test_a_runner_that_died_between_record_and_journal_has_sealed_its_trial(finished, copied):
    root, result = finished
    run = copied("unwritten")
    lines = run.journal.read_text().splitlines(keepends=True)
    sealed = [number for number, line in enumerate(lines) if '"sealed"' in line]
    run.journal.write_text("".join(lines[: sealed[-1]]) + lines[sealed[-1]][:-20])  # the last line was being written
    done = bench(root, "run", "--resume", "unwritten")
    states, folders = run.states(), {path.name for path in run.path.glob("trials/*")}
    assert done.returncode == 0, done.stderr
    assert "nothing to resume" in done.stderr
    assert set(states) == folders
    assert {states[record["trial_id"]] for record in records(result["path"]).values()} == {"sealed"}


@pytest.mark.long
@pytest.mark.fault(
    "the runner dies after it made a trial's folder",
    "the trial is repeated as a new attempt; sealed files keep their hashes",
)
def test_a_runner_that_died_while_it_began_a_trial_is_not_in_its_own_way(finished, copied):
    root, _ = finished
    run = copied("begun")
    name = records(run.path)[CLOSE]["trial_id"]
    lines = run.journal.read_text().splitlines(keepends=True)
    run.journal.write_text("".join(line for line in lines if f'"{name}"' not in line or '"planned"' in line))
    run.append("running", name)
    for path in run.trial(name).iterdir():
        path.unlink()
    before = {record["trial_id"]: record["raw"] for record in run.records()}
    done = bench(root, "run", "--resume", "begun")
    after = {record["trial_id"]: record for record in run.records()}
    assert done.returncode == 0, done.stderr
    new = set(after) - set(before)
    assert len([each for each in new if after[each]["status"] == "sealed"]) == 1
    assert all(each.startswith(f"{name.split('.a')[0]}.a") for each in new)
    assert all(after[each]["raw"] == raw for each, raw in before.items())


@pytest.mark.fault("a sealed raw file changed before the run goes on", "refused before anything is loaded")
def test_a_sealed_file_that_changed_stops_a_resumed_run_before_any_load(finished, copied):
    root, _ = finished
    run = copied("changed")
    name = records(run.path)[CLOSE]["trial_id"]
    lines = run.journal.read_text().splitlines(keepends=True)
    run.journal.write_text("".join(line for line in lines if f'"{name}"' not in line or '"planned"' in line))
    shutil.rmtree(run.trial(name))
    raw = run.trial(records(run.path)[K6]["trial_id"]) / "k6.json.gz"
    raw.write_bytes(raw.read_bytes() + b"more")
    done = bench(root, "run", "--resume", "changed")
    repeated = run.trial(name).exists()
    assert done.returncode == 1
    assert "k6.json.gz is not the file that was sealed" in done.stderr
    assert not repeated


@pytest.mark.fault("the plan is another one when the run goes on", "refused")
def test_a_plan_that_is_not_that_of_the_run_is_refused(finished, copied):
    root, _ = finished
    run = copied("replanned")
    run.journal.write_text(run.journal.read_text().replace(CLOSE, CLOSE.replace("c4", "c8")))
    done = bench(root, "run", "--resume", "replanned")
    assert done.returncode == 2
    assert "its plan is not the one that it began with" in done.stderr


@pytest.fixture
def cut_off(copied):
    """Makes copies that lack their last trial, with another manifest where `changes` say so."""

    def cut(name, **changes):
        run = copied(name)
        manifest = json.loads((run.path / "run.json").read_text())
        (run.path / "run.json").write_text(json.dumps(manifest | changes))
        lines = [json.loads(line) for line in run.journal.read_text().splitlines()]
        last = lines[-1]["trial_id"]
        kept = [line for line in lines if line["trial_id"] != last or line["state"] == "planned"]
        run.journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
        shutil.rmtree(run.trial(last))
        return run

    return cut


@pytest.mark.fault("a script or setting is another one when the run goes on", "refused; the file is named")
def test_a_run_does_not_go_on_with_other_files(finished, cut_off):
    root, _ = finished
    cut_off("other-files")
    script = root / "servers" / "fake" / "server.py"
    before = script.read_text()
    script.write_text(before + "# changed\n")
    done = bench(root, "run", "--resume", "other-files")
    script.write_text(before)
    assert done.returncode == 2
    assert "fake/server.py is not the file that it began with" in done.stderr


@pytest.mark.fault(
    "a foreign run brings an environment for its servers, and is to go on", "refused: nothing is started"
)
def test_a_foreign_run_is_not_executed(finished, cut_off):
    root, result = finished
    manifest = json.loads((Path(result["path"]) / "run.json").read_text())
    campaign = manifest["campaign"] | {"environment": [["fake", "PYTHONSTARTUP", "/tmp/theirs.py"]]}
    cut_off("theirs", campaign=campaign)
    done = bench(root, "run", "--resume", "theirs")
    assert done.returncode == 2
    assert "was not begun in this lab" in done.stderr


@pytest.mark.fault("a finished run is resumed", "it says so and does nothing")
def test_resuming_a_finished_run_does_nothing(finished):
    root, result = finished
    journal = (Path(result["path"]) / "journal.jsonl").read_bytes()
    done = bench(root, "run", "--resume", result["run_id"])
    assert done.returncode == 0
    assert "nothing to resume" in done.stderr
    assert (Path(result["path"]) / "journal.jsonl").read_bytes() == journal


@pytest.mark.fault("a run is resumed on another machine", "refused")
def test_a_run_is_not_resumed_on_another_machine(finished, cut_off):
    root, result = finished
    machine = json.loads((Path(result["path"]) / "run.json").read_text())["machine"]
    cut_off("elsewhere", machine=machine | {"cpu_model": "Another CPU"})
    done = bench(root, "run", "--resume", "elsewhere")
    assert done.returncode == 2
    assert "its machine is not the one that it began with" in done.stderr


@pytest.mark.long
@pytest.mark.fault("the runner dies before it repeats a disturbed trial", "it is repeated, up to the last attempt")
@pytest.mark.parametrize(("attempts", "goes_on"), [(2, True), (1, False)])
def test_a_disturbed_trial_that_was_cut_off_before_its_repetition_is_repeated(finished, copied, attempts, goes_on):
    root, _ = finished
    folder = copied("cut-off", attempts=attempts).path
    path = folder / "trials" / K6 / "trial.json"
    record = json.loads(path.read_text()) | {"status": "failed", "disturbed": True}
    path.write_text(json.dumps(record))
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"trial_id": K6, "state": "failed"}) + "\n")
    done = bench(root, "run", "--resume", "cut-off")
    repeated = (folder / "trials" / f"{K6}.a2").is_dir()
    assert repeated is goes_on, done.stderr


@pytest.mark.long
@pytest.mark.fault("a table cut off, or older than the run's trials", "it is made anew from the raw files")
@pytest.mark.parametrize("harm", ["cut", "stale"])
def test_tables_that_are_half_written_or_of_an_earlier_state_are_made_anew(finished, copied, tmp_path, harm):
    root, _ = finished
    run = copied(harm)
    table = run.table("trials")
    whole = pd.read_parquet(table)
    table.write_bytes(table.read_bytes()[:-100]) if harm == "cut" else whole.iloc[1:].to_parquet(table)
    done = bench(root, "report", harm)
    again = pd.read_parquet(table)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(whole, again)
