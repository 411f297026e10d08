"""Tests of profiling in a run that is interrupted, that has a time budget, or that lacks perf."""

import contextlib
import json
import os
import shutil
from types import SimpleNamespace

import fake_lab
import pytest
import real_lab

from runner.measure.perf import refusal
from runner.planning.catalog import campaign_servers, load_campaign
from runner.planning.plan import estimate_s, with_profile
from runner.planning.profiles import plan_profiles
from runner.present.answers import summary
from runner.present.frames import read_tables
from runner.running import profiling
from runner.running.profiling import TimeBudget, kept_s, profiles_left
from runner.store import RunFolder

pytestmark = pytest.mark.timed
CAMPAIGN = with_profile(load_campaign("quick"), profile=True)
PROFILES = plan_profiles(CAMPAIGN, campaign_servers(CAMPAIGN))
needs_perf = pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}")


def record(run, profile, status):
    for trial in profile.trials:
        run.profiles.trial(trial.trial_id).mkdir(parents=True)
        run.profiles.record(trial.trial_id).write_text(json.dumps({"status": status}))


def test_only_profiles_that_did_not_end_are_left(tmp_path):
    run = RunFolder(tmp_path)
    assert profiles_left(run, CAMPAIGN) == PROFILES
    for profile, status in zip(PROFILES, ("sealed", "failed", "interrupted"), strict=False):
        record(run, profile, status)
    assert profiles_left(run, CAMPAIGN) == PROFILES[2:]


def test_a_budget_keeps_time_for_the_profiles_but_at_most_half():
    needed_s = sum(estimate_s(trial) for profile in PROFILES for trial in profile.trials)
    assert kept_s(PROFILES, 10 * needed_s) == needed_s
    assert kept_s(PROFILES, needed_s) == needed_s / 2
    assert kept_s(PROFILES, float("inf")) == needed_s
    assert kept_s([], 60.0) == 0


@pytest.mark.parametrize(("fit", "left"), [(2, len(PROFILES) - 2), (len(PROFILES), 0)])
@pytest.mark.parametrize("database_refusal", [None, "The kernel refuses perf there."])
def test_profiles_beyond_the_budget_are_left(tmp_path, monkeypatch, fit, left, database_refusal):
    """If each profile takes as long as estimated, the profiles beyond the budget are not made.

    If the database's host refuses perf, one sentence says so, and the servers are profiled.
    """
    now_s = 0.0
    made = []

    def run_unit(_run, trials, *_rest):
        nonlocal now_s
        now_s += sum(map(estimate_s, trials))
        made.append(trials[0].session)
        return [{"trial_id": trial.trial_id, "error": None} for trial in trials]

    monkeypatch.setattr(profiling, "run_unit", run_unit)
    monkeypatch.setattr(profiling, "build_profiles", lambda run: None)
    monkeypatch.setattr(profiling, "obstacle", lambda **_: None)
    of_servers = profiling.Profiling(None, None, database_refusal)
    instrument = contextlib.nullcontext(of_servers)
    monkeypatch.setattr(profiling.Profiling, "opened", lambda bench: instrument)
    seconds = sum(estimate_s(trial) for each in PROFILES[:fit] for trial in each.trials) + 0.1
    prepared = SimpleNamespace(bench=SimpleNamespace(lab=SimpleNamespace(fleet=None)))
    report = SimpleNamespace(say=print, begin=print, step=print)
    budget = TimeBudget(seconds, lambda: now_s)
    said = profiling.profile_servers(RunFolder(tmp_path), PROFILES, prepared, report, budget)
    assert len(made) == fit
    expected = []
    if database_refusal is not None:
        expected.append(f"The databases were not profiled: {database_refusal}")
    if left:
        expected.append(
            f"The servers were not profiled under {left} of {len(PROFILES)} loads: the budget is "
            f"used up. Continue with `bench run --resume {tmp_path.name}`."
        )
    assert said == tuple(expected)


# --- runs of a lab in which servers and generators are scripts ------------------------------------

LOAD = real_lab.load(
    "wrk-matrix", modes=["keepalive"], connections=4, duration_s=0.3, warmup_s=0.1, profile=True
)


def without_perf(tmp_path):
    """Return a PATH with all programs except perf."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for path in sorted(real_lab.Path(place).glob("*")):
            link = folder / path.name
            link.unlink(missing_ok=True)
            if path.name != "perf":
                link.symlink_to(path)
    return str(folder)


def test_without_perf_the_run_goes_on_and_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", without_perf(tmp_path))
    campaign = fake_lab.make(tmp_path / "lab", campaign=fake_lab.campaign_of(LOAD))
    done = fake_lab.bench(tmp_path / "lab", "run", str(campaign), "--engine", "process")
    said = " ".join(done.stderr.split())
    assert done.returncode == 0, said
    sentence = (
        "The servers were not profiled: perf is not installed: install it with `apt-get install "
        "linux-perf`."
    )
    assert f"Warning: {sentence}" in said
    (folder,) = (tmp_path / "lab" / "data" / "runs").iterdir()
    assert sentence in summary.warnings_of(read_tables(RunFolder(folder))), "the report has it"
    again = fake_lab.bench(tmp_path / "lab", "run", "--resume", folder.name)
    words = " ".join(again.stderr.split())
    assert again.returncode == 0, words
    assert f"Warning: {sentence}" in words and "is finished: no trial is left to run." in words
    assert "Building" not in words, "nothing is started for a profile that cannot be made"
    assert json.loads((folder / "run.json").read_text())["host_warnings"].count(sentence) == 1
    doctor = fake_lab.bench(tmp_path / "lab", "doctor")
    assert sentence.partition(": ")[2] in " ".join((doctor.stdout + doctor.stderr).split())


@needs_perf
def test_an_interrupted_profile_is_made_when_the_run_goes_on(tmp_path):
    campaign = fake_lab.make(tmp_path, campaign=fake_lab.campaign_of(LOAD))
    done = fake_lab.bench(tmp_path, "run", str(campaign), "--engine", "process")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "data" / "runs").iterdir()
    run = RunFolder(folder)
    before = {path: path.read_bytes() for path in folder.glob("trials/*/trial.json")}
    (profile,) = run.profiles.path.glob("trials/*/trial.json")
    profile.write_text(json.dumps(json.loads(profile.read_text()) | {"status": "interrupted"}))
    shutil.rmtree(folder / "tables")
    earlier = [
        f"The {whose} were not profiled: of an earlier part." for whose in ("servers", "databases")
    ]
    edit = {"host_warnings": earlier}
    manifest = folder / "run.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | edit))
    for said in (f"Profiling 1 server under {LOAD['workload']}", "is finished: no trial is left"):
        again = fake_lab.bench(tmp_path, "run", "--resume", folder.name)
        assert (again.returncode, said in again.stderr) == (0, True), again.stderr
    made = json.loads(profile.read_text())
    assert made["status"] in ("sealed", "failed")  # a busy machine may disturb the profile
    assert run.table("profiles").is_file() == (made["status"] == "sealed")
    assert {path: path.read_bytes() for path in before} == before
    assert "of an earlier part" not in manifest.read_text()
