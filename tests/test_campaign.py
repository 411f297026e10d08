"""What the loop over trials does with an outcome: a disturbed trial is tried again, any other failure stands."""

import pytest

from runner import campaign
from runner.catalog import load_campaign, load_server
from runner.plan import next_attempt, plan_trials


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


class Ready:
    server = load_server("gin")


class NoRun:
    def records(self):
        return []


def run(monkeypatch, trial, outcomes):
    """Run one trial whose attempts end as `outcomes` say: ok, disturbed or broken."""
    left = list(outcomes)

    def fake(_bench, _run, attempt, _ready, _step):
        outcome = left.pop(0)
        error = None if outcome == "ok" else outcome
        number = attempt.attempt
        return {
            "trial_id": attempt.trial_id,
            "attempt": number,
            "cell": vars(attempt.cell),
            "error": error,
            "disturbed": outcome == "disturbed",
        }

    monkeypatch.setattr(campaign, "_run_trial", fake)
    report = Silence()
    failed = campaign._run_trials(None, NoRun(), [trial], [Ready()], report)
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
