"""What the loop over trials does with an outcome: a disturbed trial is tried again, any other failure stands."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from measured import measured
from typer.testing import CliRunner

from runner.cli import app
from runner.digest.trial import Digest
from runner.limits import Limit, Verdict
from runner.measure.sites import Sites
from runner.model import Check, LabError
from runner.planning import plan
from runner.planning.catalog import load_campaign, load_server
from runner.planning.plan import next_attempt, plan_trials
from runner.running import attempts, preparing
from runner.running.preparing import Prepared
from runner.store import RunFolder


class Silence:
    def __init__(self):
        self.said = []
        self.ended = []

    def say(self, text):
        self.said.append(text)

    def end(self, trial, record):
        self.ended.append(record["trial_id"])

    def plan(self, trials):
        pass

    def skip(self, trials):
        pass

    def begin(self, trial):
        pass

    def step(self, text):
        pass


@pytest.fixture
def trial():
    return plan_trials(load_campaign("quick"), [load_server("gin")])[0]


class NoRun:
    def records(self):
        return []


def run(monkeypatch, trial, outcomes, campaign=None):
    """Run one trial of a campaign, `quick` if none is given, whose attempts end as `outcomes` say."""
    left = list(outcomes)

    def fake(_bench, _run, unit, _ready, _step):
        (attempt,) = unit
        outcome = left.pop(0)
        error = None if outcome == "ok" else outcome
        number = attempt.attempt
        return {
            "trial_id": attempt.trial_id,
            "attempt": number,
            "cell": vars(attempt.cell),
            "status": "sealed" if error is None else "failed",
            "error": error,
            "disturbed": outcome == "disturbed",
        }

    monkeypatch.setattr(attempts, "_run_unit", lambda *given: [fake(*given)])
    report = Silence()
    failed = attempts.run_trials(None, NoRun(), [trial], Prepared({}, None, {}, campaign=campaign), report)
    assert left == []
    return failed, report


def test_a_disturbed_trial_is_repeated_until_it_is_not(monkeypatch, trial):
    failed, report = run(monkeypatch, trial, ["disturbed", "ok"])
    assert failed == ()
    assert report.ended == [f"{trial.trial_id}.a2"]
    assert "is repeated" in report.said[0]


def test_it_is_given_up_after_three_attempts(monkeypatch, trial):
    failed, report = run(monkeypatch, trial, ["disturbed"] * 3)
    assert failed == (f"{trial.trial_id}.a3: disturbed",)
    assert report.ended == [f"{trial.trial_id}.a3"]


def test_it_is_tried_as_often_as_the_campaign_says(monkeypatch, trial):
    once = replace(load_campaign("quick"), attempts=1)
    assert run(monkeypatch, trial, ["disturbed"], once)[0] == (f"{trial.trial_id}: disturbed",)


def test_a_broken_trial_is_not_repeated(monkeypatch, trial):
    failed, _ = run(monkeypatch, trial, ["broken"])
    assert failed == (f"{trial.trial_id}: broken",)


def test_attempts_keep_the_plain_name_as_their_stem(trial):
    second = next_attempt(trial, 2)
    assert next_attempt(second, 3).trial_id == f"{trial.trial_id}.a3"
    assert next_attempt(second, 1).trial_id == trial.trial_id


STOLEN = "disturbed: the hypervisor took 30 % of the CPUs' time away"
TICKS = Check("9 the sampler took >= 99 % of its ticks", False, "80 %")


@pytest.mark.fault("the hypervisor takes the CPUs away", "the trial is repeated, twice at most")
@pytest.mark.parametrize(
    ("attempt", "stolen", "failed", "state"),
    [
        (1, None, (), "sealed"),
        (1, STOLEN, (), "failed"),
        (2, STOLEN, (), "failed"),
        (3, STOLEN, (), "sealed"),  # a machine that is never quiet: the number stands, with what was taken
        (3, STOLEN, (TICKS,), "failed"),
        (1, STOLEN, (Check("5 counted", False, "999"),), "failed"),
    ],
)
def test_a_trial_that_the_hypervisor_disturbed(monkeypatch, trial, tmp_path, attempt, stolen, failed, state):
    digest, again = Digest({}, failed, Verdict(Limit.UNKNOWN, ""), stolen), next_attempt(trial, attempt)
    monkeypatch.setattr(
        attempts, "_measure_unit", lambda *given: setattr(given[-1][again.trial_id], "measurement", measured())
    )
    monkeypatch.setattr(attempts, "digest_session", lambda _, trials: dict.fromkeys(trials, digest))
    folder = RunFolder(tmp_path)
    bench = SimpleNamespace(sites=Sites.here(None))
    (record,) = attempts._run_unit(bench, folder, [again], Prepared({}, None, {}), lambda _: None)
    assert record["status"] == state
    assert record["disturbed"] is (stolen is not None and failed in ((), (TICKS,)))
    if state == "failed" and not failed:
        assert record["error"] == STOLEN
    assert json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[-1])["state"] == state


@pytest.mark.fault("a server of a session is busy while the others are loaded", "no trial of the session counts")
def test_who_does_not_rest_spoils_the_session_in_the_last_attempt_too(monkeypatch, trial, tmp_path):
    unit = [replace(next_attempt(trial, 3), trial_id=name, session="s01") for name in ("calm", "busy")]
    idle = Check("9 it was idle while the other servers of its session were loaded", False, "it used 7 % of a core")
    digests = [Digest({}, checks, Verdict(Limit.SERVER, ""), None) for checks in ((), (idle,))]
    fates = {each.trial_id: attempts._Fate(measurement=measured()) for each in unit}
    monkeypatch.setattr(attempts, "digest_session", lambda _, trials: dict(zip(trials, digests, strict=True)))
    attempts._digest_unit(RunFolder(tmp_path), unit, fates, is_last=True)
    assert [fate.state for fate in fates.values()] == ["failed", "failed"]
    assert "it used 7 % of a core" in fates["calm"].error


@pytest.mark.fault("the disk has too little room for a campaign", "refused before anything is measured")
def test_a_campaign_without_room_is_refused(monkeypatch, trial, tmp_path):
    k6 = replace(trial, cell=replace(trial.cell, tool="k6", iterations=10_000_000))
    monkeypatch.setattr(preparing, "free_bytes", lambda _: 2 * 2**30)
    preparing.require_room([replace(k6, cell=replace(k6.cell, iterations=1_000_000))] * 8, tmp_path)
    with pytest.raises(LabError, match=r"about 2\.1 GiB .* and 2\.0 are free"):
        preparing.require_room([k6], tmp_path)


@pytest.mark.fault("memory is too little for a load's virtual users", "refused before anything is measured")
def test_a_campaign_without_memory_is_refused(monkeypatch, trial, tmp_path):
    crowd = replace(trial, cell=replace(trial.cell, tool="k6", vus=3000, iterations=10_000, slices=None))
    monkeypatch.setattr(preparing, "available_bytes", lambda: 2 * 2**30)
    preparing.require_room([crowd], tmp_path)
    with pytest.raises(LabError, match=r"about 2\.6 GiB of memory, and 2\.0 can be had"):
        preparing.require_room([replace(crowd, cell=replace(crowd.cell, vus=10_000))], tmp_path)


@pytest.mark.fault("temporary files have no room", "refused before anything is measured")
def test_a_campaign_without_room_for_temporary_files_is_refused(monkeypatch, trial, tmp_path):
    monkeypatch.setattr(preparing, "free_bytes", lambda folder: 2**40 if folder == tmp_path else 2**20)
    with pytest.raises(LabError, match=r"1 are free in .* set TMPDIR"):
        preparing.require_room([trial], tmp_path)


@pytest.mark.fault("more connections than open files are allowed", "refused, with the `ulimit` that they need")
def test_a_campaign_with_more_connections_than_files_is_refused(monkeypatch, trial, tmp_path):
    monkeypatch.setattr(preparing.resource, "getrlimit", lambda _: (256, 1024))
    wide = replace(trial, cell=replace(trial.cell, tool="wrk", vus=None, iterations=None, connections=1000))
    with pytest.raises(LabError, match="1000 connections need 1200 open files"):
        preparing.require_room([wide], tmp_path)


# --- a run that ends before its last trial ------------------------------------------------------------------


def looked_at(monkeypatch, looks, seconds_per_trial=0.0, budget_s=math.inf):
    """Run the quick campaign's plan without measuring; `looks` says which loads are settled after how many sessions."""
    trials = plan_trials(load_campaign("quick"), [load_server(name) for name in ("axum", "gin", "nginx")])
    ran, now, report, asked = [], [1000.0], Silence(), []

    def unit_ran(_bench, _run, unit, _ready, _step):
        now[0] += seconds_per_trial * len(unit)
        ran.extend(trial.trial_id for trial in unit)
        return [
            {"trial_id": t.trial_id, "attempt": 1, "cell": vars(t.cell), "status": "sealed", "error": None,
             "disturbed": False} for t in unit
        ]  # fmt: skip

    def look(_run):
        block = max(int(name[1:3]) for name in ran)
        asked.append(block)
        return looks.get(block, set()), "something is known"

    monkeypatch.setattr(attempts, "_run_unit", unit_ran)
    monkeypatch.setattr(plan.time, "monotonic", lambda: now[0])
    folder = SimpleNamespace(records=list, path=Path("the-run"))
    stopping = attempts.Stopping(budget_s, "decided", (2, 4), look)
    attempts.run_trials(None, folder, trials, Prepared({}, None, {}), report, stopping)
    return [trial.trial_id for trial in trials], ran, report, asked


def test_a_settled_load_gets_no_further_session_and_the_others_do(monkeypatch):
    planned = plan_trials(load_campaign("quick"), [load_server("gin")])
    settled = next(t.session.partition("-")[2] for t in planned if t.session and t.cell.connections == 1000)
    every, ran, report, asked = looked_at(monkeypatch, {2: {settled}, 4: {settled}})
    assert asked == [2, 4], "it is asked after two sessions and after four, and no more"
    skipped = [name for name in every if name not in ran]
    assert skipped and all("c1000" in name and int(name[1:3]) > 2 for name in skipped)
    assert {int(name[1:3]) for name in ran if "c1000" in name} == {1, 2}
    assert "After 2 sessions something is known." in report.said


@pytest.mark.parametrize(("budget_s", "words"), [(300.0, "5 min"), (45.0, "45 s")])
def test_a_budget_ends_the_run_before_it_is_over_and_says_how_to_go_on(monkeypatch, budget_s, words):
    every, ran, report, _ = looked_at(monkeypatch, {}, seconds_per_trial=budget_s / 30, budget_s=budget_s)
    assert 20 <= len(ran) <= 30 and ran == every[: len(ran)]
    left = len(every) - len(ran)
    assert report.said[-1] == (
        f"The budget of {words} ends here, with {left} trials left: `bench run --resume the-run` goes on."
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--budget", "soon"], "--budget is a time such as 90s, 60m or 2h, not 'soon'."),
        (["--until", "5"], "--until is `decided`, or the half-width of the intervals such as `5%`, not '5'."),
        (["--until", "0%"], "--until is `decided`, or the half-width of the intervals such as `5%`, not '0%'."),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_measured(given, sentence):
    with pytest.raises(LabError) as refused:
        CliRunner().invoke(app, ["run", "quick", *given], catch_exceptions=False)
    assert str(refused.value) == sentence
