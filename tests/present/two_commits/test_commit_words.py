"""Tests of what a pull request shows about two commits, in words, Markdown and JUnit XML.

The commit that is judged is called head. The commit with which it is compared is called base.
"""

import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from runner.present.comparison.quantity import CPU_PER_REQUEST, MEMORY, P50, THROUGHPUT
from runner.present.two_commits.comparing import Kept, Row, outcome_of, plain
from runner.present.two_commits.decision import Change, Judged, Outcome
from runner.present.two_commits.words import (
    Compared,
    change_words,
    junit,
    markdown,
    sentence,
    table,
)

LOAD = "own-get, N = 20"
SAME = Change(1.001, 0.99, 1.012)


def judged(outcome, ratio, **more):
    return Judged(outcome, Change(ratio, ratio / 1.02, ratio * 1.02), SAME, 10, **more)


CPU = Row(LOAD, CPU_PER_REQUEST, 1.0, 1.2, judged(Outcome.WORSE, 1.2), is_deciding=True)
RATE = Row(LOAD, THROUGHPUT, 500.0, 400.0, judged(Outcome.WORSE, 1.25), is_deciding=True)
CALM = replace(CPU, head=1.0, judged=judged(Outcome.TIE, 1.0))
OPEN = replace(CPU, judged=judged(Outcome.UNDECIDED, 1.03))
SIZE = Row(LOAD, MEMORY, 20.0, 21.0, judged(Outcome.UNDECIDED, 1.05))
UNKNOWN = Row("own-get, 50 requests/s", P50, 4.0, 5.0, None, why="the limit is unknown")


def compared(*rows):
    return Compared("main (1234567890)", "HEAD (abcdef0123)", rows, 2.5, "15m", "run-1")


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ((CPU, RATE), Outcome.WORSE),
        ((CALM, replace(SIZE, judged=judged(Outcome.WORSE, 1.5))), Outcome.WORSE),
        ((CALM, SIZE, UNKNOWN), Outcome.TIE),
        ((OPEN, SIZE), Outcome.UNDECIDED),
        ((CALM, replace(RATE, judged=None, why="x")), Outcome.TIE),
        ((CALM, replace(SIZE, judged=judged(Outcome.UNDECIDED, 1.5, suspected=True))), "wait"),
        ((replace(CPU, judged=judged(Outcome.BETTER, 0.8)), SIZE), Outcome.BETTER),
        ((replace(CALM, is_deciding=False),), Outcome.UNDECIDED),
        ((), Outcome.UNDECIDED),
        ((CALM, replace(CPU, is_shown_only=True, is_deciding=False)), Outcome.TIE),
        (
            (
                CALM,
                replace(
                    SIZE,
                    judged=judged(Outcome.UNDECIDED, 1.5, suspected=True),
                    is_shown_only=True,
                ),
            ),
            Outcome.TIE,
        ),
    ],
)
def test_one_outcome_for_all_quantities(rows, outcome):
    assert outcome_of(rows) is (Outcome.UNDECIDED if outcome == "wait" else outcome)


@pytest.mark.parametrize(
    ("ratio", "inverted", "words"),
    [
        (1.2, False, "+20.0 %"),
        (1.25, True, "−20.0 %"),
        (0.9996, False, "0.0 %"),
        (3.456, False, "+246 %"),
        (math.inf, False, "–"),
        (0.0, False, "–"),
        (math.nan, False, "–"),
    ],
)
def test_changes_are_of_the_quantity_itself(ratio, inverted, words):
    """A cost that gets worse has a plus, but a rate that gets worse has a minus.

    If head is 1.25 times worse, a cost has risen by 25 %, but a rate has fallen by 20 %.
    """
    assert change_words(ratio, inverted=inverted) == words


def test_the_sentences_of_all_outcomes():
    worse = sentence(compared(CALM, SIZE, CPU))
    assert worse.startswith("HEAD (abcdef0123) against main (1234567890): worse, with CPU time per")
    assert "CPU time per request +20.0 % [+17.6 % to +22.4 %]" in worse and "2.5 %" in worse
    assert "a tie (no slowdown of 5 %)" in sentence(compared(CALM, SIZE))
    undecided = sentence(compared(OPEN, SIZE))
    assert "not decided within 15m" in undecided and "Raise --budget" in undecided
    assert sentence(compared()).endswith("not decided: too few sessions could be compared.")
    failing = replace(CPU, judged=None, why="more than 1 in 1000 requests failed")
    said = sentence(compared(failing, SIZE))
    assert said.endswith("not decided: more than 1 in 1000 requests failed.")


def test_a_rate_has_its_own_sign():
    rows = table(compared(RATE))
    assert rows.loc[0, "change [95 %]"] == "−20.0 % [−21.6 % to −18.4 %]"


def test_markdown_is_a_sentence_and_a_table():
    lines = markdown(compared(SIZE, CPU, UNKNOWN), ["1 file"], "https://x.test/f").splitlines()
    assert lines[0].startswith("**HEAD (abcdef0123) against main (1234567890): worse")
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert "CPU ms/request" in rows[2], "what decides comes first"
    assert "the limit is unknown" in rows[4]
    assert "> 1 file" in lines and "[Difference of the flame graphs](https://x.test/f)" in lines


def test_junit_has_a_case_for_each_quantity():
    suites = ElementTree.fromstring(junit(compared(CPU, OPEN, SIZE, CALM, UNKNOWN)))
    suite = suites.find("testsuite")
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 5, "failures": 1, "errors": 0, "skipped": 3}
    assert len(suites.findall(".//failure")) == 1 and len(suites.findall(".//skipped")) == 3


def test_junit_of_a_run_without_a_decision_is_no_pass():
    lost = replace(CPU, judged=None, why="fewer than 2 complete sessions")
    for row in (OPEN, lost):
        suite = ElementTree.fromstring(junit(compared(row, SIZE))).find("testsuite")
        assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "1")


@pytest.mark.parametrize(("head", "outcome"), [(10, Outcome.TIE), (5, Outcome.TIE), (4, "worse")])
def test_an_objective_that_only_head_breaks_is_worse(head, outcome):
    kept = Kept("p99 <= 20 ms", 10, 19, head)
    found = replace(compared(CALM, SIZE), kept=kept)
    assert found.outcome == outcome
    assert ("head in 4 of 10 trials" in sentence(found)) == (head == 4)
    suite = ElementTree.fromstring(junit(found)).find("testsuite")
    assert suite.attrib["failures"] == ("1" if head == 4 else "0")
    assert "Objective p99 <= 20 ms at the common rate" in markdown(found, [])


def test_an_objective_that_base_breaks_too_says_nothing_of_head():
    found = replace(compared(CALM), kept=Kept("p99 <= 20 ms", 10, 12, 0))
    assert found.outcome is Outcome.TIE


def test_json_has_no_infinite_numbers():
    wide = Judged(Outcome.UNDECIDED, Change(1.0, 0.0, math.inf), SAME, 1)
    facts = plain(replace(CPU, judged=wide, base=math.nan))
    assert facts["times_worse"] == {"ratio": 1.0, "low": 0.0, "high": None}
    assert facts["base"] is None and facts["noise"]["high"] == pytest.approx(1.012)
