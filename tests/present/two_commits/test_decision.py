"""Tests of the rule by which `bench ab` decides whether a commit is worse than another one.

The commit that is judged is called head. The commit with which it is compared is called base.
"""

import math

import numpy as np
import pytest
from scipy import stats

from runner.present.two_commits.decision import (
    CONFIRMING,
    LATER_LOOKS,
    Effects,
    Outcome,
    Rule,
    judge,
)

RULE = Rule(0.025)
WAVE = np.resize([1.0, -1.0, 0.5, -0.5], 40)
"""Noise of up to 40 sessions.

The mean of the noise over any four sessions in a row is 0.
"""


def effects(head_pct, *, noise_pct=0.5, sessions=20, same_pct=0.0):
    """Return the effects of sessions in which head costs `head_pct` percent more than base.

    Base is measured twice in each session, and the two results differ by `same_pct` percent. From
    session to session, the first difference varies by `noise_pct` percent times WAVE, and the
    second difference by twice as much.
    """
    logs = noise_pct / 100 * WAVE[:sessions]
    head = math.log1p(head_pct / 100)
    same = math.log1p(same_pct / 100)
    return Effects(logs + head, 2 * logs + same)


def test_effects_are_of_both_bases_and_of_costs():
    found = Effects.of(np.array([2.0]), np.array([8.0]), np.array([8.0]), more_is_better=False)
    assert found.effect == pytest.approx([math.log(2)]) and found.noise == pytest.approx(
        [math.log(4)]
    )
    rate = Effects.of(np.array([4.0]), np.array([4.0]), np.array([2.0]), more_is_better=True)
    assert rate.effect == pytest.approx([math.log(2)]), "half the rate is twice the cost"


def test_the_intervals_are_students_as_scipy_has_them():
    given = effects(1.0, noise_pct=3.0, sessions=7)
    found = judge(given, RULE, ended=True)
    for change, sample in ((found.head, given.effect), (found.same, given.noise)):
        ends = stats.t.interval(0.95, 6, sample.mean(), stats.sem(sample))
        assert np.log([change.low, change.high]) == pytest.approx(ends)


def test_a_slowdown_is_worse_only_once_it_is_confirmed():
    first = LATER_LOOKS[0]
    for sessions in range(first, first + CONFIRMING):
        found = judge(effects(20, sessions=sessions), RULE, ended=True)
        assert found.outcome is Outcome.UNDECIDED and found.suspected, sessions
    found = judge(effects(20, sessions=first + CONFIRMING), RULE, ended=False)
    assert (found.outcome, found.confirmed) == (Outcome.WORSE, True)
    assert found.head.ratio == pytest.approx(1.2, rel=1e-3)


def test_a_gain_is_better():
    assert judge(effects(-20), RULE, ended=False).outcome is Outcome.BETTER


def test_no_difference_is_a_tie_at_the_first_look():
    found = judge(effects(0), RULE, ended=False)
    assert (found.outcome, found.sessions) == (Outcome.TIE, LATER_LOOKS[0])


def test_a_certain_difference_within_the_border_is_a_tie():
    assert judge(effects(1), RULE, ended=False).outcome is Outcome.TIE
    assert judge(effects(1), Rule(0.005), ended=False).outcome is Outcome.WORSE


def test_sessions_that_do_not_confirm_clear_a_suspicion():
    """If later sessions do not confirm a suspected slowdown, head is not called worse.

    Six sessions show a slowdown of 20 %, and the other sessions show none. Many tools would raise
    an alarm after the six sessions.
    """
    slow = effects(20, sessions=6)
    calm = effects(0, sessions=14)
    both = Effects(
        np.concatenate([slow.effect, calm.effect]), np.concatenate([slow.noise, calm.noise])
    )
    assert judge(both.until(6), RULE, ended=True).suspected
    for sessions in range(10, 21):
        found = judge(both.until(sessions), RULE, ended=True)
        assert found.outcome is not Outcome.WORSE and found.cleared >= 1


def test_what_base_against_itself_shows_is_no_regression():
    """If base differs more from itself than head differs from base, head is not called worse.

    Head is 6 % slower than base. But base is measured twice, and the two results differ by 8 %.
    """
    assert judge(effects(6, same_pct=8), RULE, ended=True).outcome is Outcome.UNDECIDED
    assert judge(effects(6, same_pct=0), RULE, ended=True).outcome is Outcome.WORSE
    assert judge(effects(6, same_pct=-8), RULE, ended=True).outcome is Outcome.UNDECIDED


def test_wide_noise_is_not_decided():
    found = judge(effects(0, noise_pct=20), RULE, ended=True)
    assert found.outcome is Outcome.UNDECIDED and not found.suspected


def test_at_the_end_no_slowdown_is_enough_for_a_tie():
    """At the end of a run, the outcome is a tie if the interval excludes a slowdown of 5 %.

    Here the interval reaches from head being 8 % faster to head being 3 % slower.
    """
    far = effects(-3.4, noise_pct=8.0, sessions=9)
    assert judge(far, RULE, ended=False).outcome is Outcome.UNDECIDED
    found = judge(far, RULE, ended=True)
    assert found.head.high < 1.05 and found.head.low < 1 / 1.05
    assert found.outcome is Outcome.TIE


def test_an_outcome_does_not_change_with_later_sessions():
    """The first outcome of a run stays, whatever later sessions show.

    A run ends at its first outcome. If its sessions are judged again later, the outcome must be the
    same.
    """
    long = effects(20, sessions=30)
    early = judge(long.until(10), RULE, ended=False)
    assert judge(long, RULE, ended=True) == early


@pytest.mark.parametrize("sessions", [0, 1, 2, 5])
def test_few_sessions_decide_nothing(sessions):
    assert judge(effects(50, sessions=sessions), RULE, ended=True).outcome is Outcome.UNDECIDED


def test_equal_sessions_have_no_spread():
    same = Effects(np.zeros(8), np.zeros(8))
    assert judge(same, RULE, ended=False).outcome is Outcome.TIE
