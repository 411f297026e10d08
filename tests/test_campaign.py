"""What the loop over trials does with an outcome: a disturbed trial is tried again, any other failure stands."""

import json
from dataclasses import replace

import pytest
from measured import measured

from runner.digest.trial import Digest
from runner.limits import Limit, Verdict
from runner.measure import resource_check
from runner.model import Check, LabError
from runner.planning.catalog import load_campaign, load_server
from runner.planning.plan import next_attempt, plan_trials
from runner.running import attempts
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


def run(monkeypatch, trial, outcomes):
    """Run one trial whose attempts end as `outcomes` say: ok, disturbed or broken."""
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
    failed = attempts.run_trials(None, NoRun(), [trial], Prepared({}, None, {}), report)
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
    (record,) = attempts._run_unit(None, folder, [again], None, lambda _: None)
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
    attempts._digest_unit(RunFolder(tmp_path), unit, fates)
    assert [fate.state for fate in fates.values()] == ["failed", "failed"]
    assert "it used 7 % of a core" in fates["calm"].error


@pytest.mark.fault("the disk has too little room for a campaign", "refused before anything is measured")
def test_a_campaign_without_room_is_refused(monkeypatch, trial, tmp_path):
    k6 = replace(trial, cell=replace(trial.cell, tool="k6", iterations=10_000_000))
    monkeypatch.setattr(resource_check, "free_bytes", lambda _: 2 * 2**30)
    resource_check.require_room([replace(k6, cell=replace(k6.cell, iterations=1_000_000))] * 8, tmp_path)
    with pytest.raises(LabError, match=r"about 2\.1 GiB .* and 2\.0 are free"):
        resource_check.require_room([k6], tmp_path)


@pytest.mark.fault("memory is too little for a load's virtual users", "refused before anything is measured")
def test_a_campaign_without_memory_is_refused(monkeypatch, trial, tmp_path):
    crowd = replace(trial, cell=replace(trial.cell, tool="k6", vus=3000, iterations=10_000, slices=None))
    monkeypatch.setattr(resource_check, "available_bytes", lambda: 2 * 2**30)
    resource_check.require_room([crowd], tmp_path)
    with pytest.raises(LabError, match=r"about 2\.6 GiB of memory, and 2\.0 can be had"):
        resource_check.require_room([replace(crowd, cell=replace(crowd.cell, vus=10_000))], tmp_path)


@pytest.mark.fault("temporary files have no room", "refused before anything is measured")
def test_a_campaign_without_room_for_temporary_files_is_refused(monkeypatch, trial, tmp_path):
    monkeypatch.setattr(resource_check, "free_bytes", lambda folder: 2**40 if folder == tmp_path else 2**20)
    with pytest.raises(LabError, match=r"1 are free in .* set TMPDIR"):
        resource_check.require_room([trial], tmp_path)


@pytest.mark.fault("more connections than open files are allowed", "refused, with the `ulimit` that they need")
def test_a_campaign_with_more_connections_than_files_is_refused(monkeypatch, trial, tmp_path):
    monkeypatch.setattr(resource_check.resource, "getrlimit", lambda _: (256, 1024))
    wide = replace(trial, cell=replace(trial.cell, tool="wrk", vus=None, iterations=None, connections=1000))
    with pytest.raises(LabError, match="1000 connections need 1200 open files"):
        resource_check.require_room([wide], tmp_path)
