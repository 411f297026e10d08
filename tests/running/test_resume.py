"""Tests of resuming a run, which must be possible no matter how the run was interrupted.

A run must not be resumed if its conditions have changed: plan, files and machine must be the same
as before, and sealed files must be unchanged.
"""

import json
import shutil

import fake_lab
import pandas as pd
import pytest
import real_lab
from fake_lab import CLOSE, K6, records

from runner.digest.tables import ensure_tables
from runner.store import RunFolder

pytestmark = pytest.mark.timed


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def without(run, trial_id):
    """Remove a trial's lines from a run's journal, except the line that says `planned`."""
    lines = run.journal.read_text().splitlines(keepends=True)
    run.journal.write_text(
        "".join(line for line in lines if f'"{trial_id}"' not in line or '"planned"' in line)
    )


@pytest.fixture
def copied(finished):
    """Yield a function that copies the finished run under another name; later remove the copies.

    The function can also change the copy's run.json. With `cut_off`, it removes the run's last
    trial, as if the run had been interrupted before this trial.
    """
    made = []

    def copy(name, *, cut_off=False, campaign=None, **manifest):
        made.append(
            run := RunFolder(shutil.copytree(finished.folder, finished.folder.with_name(name)))
        )
        known = run.manifest().campaign.as_json() | (campaign or {})
        edit(run.path / "run.json", run_id=name, campaign=known, **manifest)
        if cut_off:
            last = json.loads(run.journal.read_text().splitlines()[-1])["trial_id"]
            without(run, last)
            shutil.rmtree(run.trial(last))
        return run

    yield copy
    for run in made:
        shutil.rmtree(run.path)


@pytest.fixture
def resumed(finished, bench, monkeypatch):
    """Return a function that resumes a run in this process, and checks exit code and message.

    The function must be called only for runs in which no trial is measured, because no trial is
    left, or because resuming is refused.
    """
    monkeypatch.setenv("BENCH_ROOT", str(finished.root))

    def resume(name, code, said):
        ended, _, err = bench("--resume", name, command="run")
        assert ended == code, err
        assert said in err

    return resume


@pytest.mark.fault(
    "the runner dies as it writes a trial's last line", "the trial is sealed, and not repeated"
)
def test_a_runner_that_died_after_the_record_has_sealed_it(finished, copied, resumed):
    """A trial whose record is written counts as sealed, even if its journal line is incomplete.

    The journal is cut off within this line, as if the runner had died while writing the line.
    """
    run = copied("unwritten")
    lines = run.journal.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if '"sealed"' in line)
    # Only a part of the last line was written.
    run.journal.write_text("".join(lines[:last]) + lines[last][:-20])
    resumed("unwritten", 0, "no trial is left to run")
    states = run.states()
    assert set(states) == {path.name for path in run.path.glob("trials/*")}
    assert {states[record["trial_id"]] for record in finished.records} == {"sealed"}


@pytest.mark.long
@pytest.mark.fault(
    "the runner dies after it made a trial's folder",
    "the trial is a new attempt; sealed files stay",
)
def test_a_runner_that_died_beginning_a_trial_can_go_on(finished, copied):
    run = copied("begun")
    name = records(run.path)[CLOSE]["trial_id"]
    without(run, name)
    run.append("running", name)
    for path in run.trial(name).iterdir():
        path.unlink()
    before = {record["trial_id"]: record["raw"] for record in run.records()}
    real_lab.bench(finished.root, "run", "--resume", "begun", code=0)
    after = {record["trial_id"]: record for record in run.records()}
    new = set(after) - set(before)
    assert [after[each]["status"] for each in new].count("sealed") == 1
    assert all(each.startswith(f"{name.split('.a')[0]}.a") for each in new)
    assert all(after[each]["raw"] == raw for each, raw in before.items())


@pytest.mark.fault(
    "a sealed raw file changed before the run goes on", "refused before anything is loaded"
)
def test_a_changed_sealed_file_stops_a_resumed_run(copied, resumed):
    run = copied("changed")
    name = records(run.path)[CLOSE]["trial_id"]
    without(run, name)
    shutil.rmtree(run.trial(name))
    raw = run.trial(records(run.path)[K6]["trial_id"]) / "k6.json.gz"
    raw.write_bytes(raw.read_bytes() + b"more")
    resumed("changed", 1, "k6.json.gz differs from the sealed one")
    assert not run.trial(name).exists()


@pytest.mark.fault("the plan was changed before the run is resumed", "refused")
def test_a_plan_that_is_not_that_of_the_run_is_refused(copied, resumed):
    run = copied("replanned")
    run.journal.write_text(run.journal.read_text().replace(CLOSE, CLOSE.replace("c4", "c8")))
    resumed("replanned", 2, "a server.toml or a workload has changed since the run began")


@pytest.mark.fault(
    "a script or setting was changed before the run is resumed", "refused; the file is named"
)
def test_a_run_does_not_go_on_with_other_files(finished, copied, resumed):
    copied("other-files", cut_off=True)
    script = finished.root / "servers" / "fake" / "server.py"
    before = script.read_text()
    script.write_text(before + "# changed\n")
    try:
        resumed("other-files", 2, "fake/server.py has changed since the run began")
    finally:
        script.write_text(before)


@pytest.mark.fault(
    "a run of another lab that sets environment variables of servers is resumed",
    "refused: nothing is started",
)
def test_a_foreign_run_is_not_executed(copied, resumed):
    copied(
        "theirs",
        cut_off=True,
        campaign={"environment": [["fake", "PYTHONSTARTUP", "/tmp/theirs.py"]]},
    )
    resumed("theirs", 2, "was begun elsewhere")


@pytest.mark.fault("a finished run is resumed", "it says so and does nothing")
def test_resuming_a_finished_run_does_nothing(finished, resumed):
    journal = finished.folder / "journal.jsonl"
    before = journal.read_bytes()
    resumed(finished.result["run_id"], 0, "no trial is left to run")
    assert journal.read_bytes() == before


@pytest.mark.fault(
    "a finished run without its tables is resumed", "the tables are made anew from the raw files"
)
def test_resuming_a_finished_run_makes_missing_tables_anew(copied, resumed):
    run = copied("untabled")
    with fake_lab.rebuilt(run.path):
        resumed("untabled", 0, "Rebuilding the tables from the raw samples")


@pytest.mark.fault("a run is resumed on another machine", "refused")
def test_a_run_is_not_resumed_on_another_machine(finished, copied, resumed):
    copied(
        "elsewhere",
        cut_off=True,
        machine=finished.manifest["machine"] | {"cpu_model": "Another CPU"},
    )
    resumed("elsewhere", 2, "its machine has changed since the run began")


OTHERS = {
    "tool": ({"tools": {"k6": "0.1", "wrk": "0.1"}}, "its wrk has changed since the run began"),
    "CPUs": (
        {"placement": {"server": [97], "generator": [98]}},
        "its CPU placement has changed since the run began",
    ),
    "idle CPUs": ({"idle": "both"}, "its idle CPUs was both when the run began"),
    "binary": (
        {"artifacts": {"fake": "a" * 64}},
        f"the binary of fake has changed since the run began ({'a' * 19} then, None now)",
    ),
    "image": (
        {"images": {"fake": "sha256:" + "b" * 64}},
        f"the image of fake has changed since the run began (sha256:{'b' * 12} then, None now)",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_does_not_go_on_under_other_conditions(copied, resumed, name):
    facts, sentence = OTHERS[name]
    run = copied(f"other-{name.replace(' ', '-')}", cut_off=True, **facts)
    before = run.journal.read_bytes()
    resumed(run.path.name, 2, sentence)
    assert run.journal.read_bytes() == before


@pytest.mark.parametrize("name", ["machine", "tools", "placement", "images", "host_warnings"])
def test_a_run_whose_beginning_is_unknown_does_not_go_on(copied, resumed, name):
    copied("unknown", cut_off=True, **{name: None})
    resumed("unknown", 2, f"its run.json does not contain the {name} that the run had")


def test_a_run_that_was_only_created_is_resumed_like_one_that_was_interrupted(finished, copied):
    """Resuming a run without trials gives the same trials and tables as a run without interruption.

    The reason is that every new run is created first, and then measured like a resumed run.
    """
    run = copied("created")
    planned = [line for line in run.journal.read_text().splitlines(True) if '"planned"' in line]
    run.journal.write_text("".join(planned))
    shutil.rmtree(run.path / "trials")
    shutil.rmtree(run.tables)
    real_lab.bench(finished.root, "run", "--resume", "created", code=0)
    begun = [(record["trial_id"], record["cell"]) for record in finished.records]
    again = [(record["trial_id"], record["cell"]) for record in run.records()]
    assert sorted(again, key=str) == sorted(begun, key=str)
    assert {record["status"] for record in run.records()} == {"sealed"}
    tables = {path.name for path in (finished.folder / "tables").glob("*.parquet")}
    assert {path.name for path in run.tables.glob("*.parquet")} == tables


@pytest.mark.long
@pytest.mark.fault(
    "the runner dies before it repeats a disturbed trial", "it is repeated, up to the last attempt"
)
@pytest.mark.parametrize(("attempts", "goes_on"), [(2, True), (1, False)])
def test_a_disturbed_trial_is_repeated_when_the_run_goes_on(finished, copied, attempts, goes_on):
    """If a run was interrupted after a disturbed trial, the resumed run repeats this trial.

    It does not repeat the trial if the campaign allows only one attempt.
    """
    run = copied("cut-off", campaign={"attempts": attempts})
    edit(run.trial(K6) / "trial.json", status="failed", disturbed=True)
    run.append("failed", K6)
    done = real_lab.bench(finished.root, "run", "--resume", "cut-off")
    assert run.trial(f"{K6}.a2").is_dir() is goes_on, done.stderr


@pytest.mark.fault(
    "a table cut off, or older than the run's trials", "it is made anew from the raw files"
)
@pytest.mark.parametrize("harm", ["cut", "stale"])
def test_half_written_or_older_tables_are_made_anew(copied, harm):
    run = copied(harm)
    table = run.table("trials")
    whole = pd.read_parquet(table)
    table.write_bytes(table.read_bytes()[:-100]) if harm == "cut" else whole.iloc[1:].to_parquet(
        table
    )
    ensure_tables(run, print)
    pd.testing.assert_frame_equal(whole, pd.read_parquet(table))
