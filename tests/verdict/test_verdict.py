"""Tests of the verdict, which says what limited a trial.

From known evidence, the right limit and reason must follow.
"""

from dataclasses import replace

import pandas as pd
import pytest
from made_evidence import busy, database_at, evidence, network

from runner.columns import columns
from runner.digest.tables import trial_row
from runner.digest.verdict import disturbance, judge
from runner.present.frames import limits_of, with_causes
from runner.verdict.evidence import (
    PREFIX,
    Probing,
    Serial,
    Users,
    Wait,
    columns_of,
    evidence_of,
)
from runner.verdict.limits import Cause
from runner.verdict.older import older_verdict
from runner.verdict.rules_table import WHEN
from runner.verdict.words import brief_words, reason, rule_words

LONGER = (Wait("p50", 0.895, 4278.0),)
"""Waiting times of a trial in which the probe waited much longer than the generator.

The server of this trial closes each connection after one answer, and has a backlog of only five
connections.
"""
SHORTER = (Wait("p50", 245.0, 0.23),)
FEW = Probing(due=200, sent=58)
ELSEWHERE = {"cores": 0.5, "foreign_quota": True}
"""Evidence of a server whose quota was set outside the lab."""
HELD = "server used 97 % of its 0.5 of a core (a quota that is not the lab's)"
FULL = database_at(0.97, shared=True, limited=True)
WAITING = database_at(0.15, shared=True, pool_exhausted_share=1.0)
AWAKE = Serial(cycle_us=27.3, server_share=0.53, generator_share=0.44, idle="polling")
ASLEEP = replace(AWAKE, idle="system")

ALL_BUSY = Users(count=5, iteration_ms=20.8, rate_rps=1000, busy=4.98)
TWO_BUSY = Users(count=2, iteration_ms=21.2, rate_rps=200, busy=1.7)
"""Two users, of whom on average 1.7 are busy.

The users are not busy all the time, because after an iteration a user waits up to 5 ms until the
next iteration is due.
"""
SOME_BUSY = Users(count=50, iteration_ms=20.8, rate_rps=1000, busy=21.0)
SHORT_OF_USERS = (
    "the users were the limit, 5 users / 20.8 ms = 240 iterations/s; --vus 42 is enough"
)

VERDICTS = [
    # Trials whose evidence is about the lab's own instruments
    (
        evidence(offered_rps=20.0, unprobed=True),
        "offered",
        "no second witness: the probe would have been more than 1 %",
    ),
    (evidence(server_share=0.95, unprobed=True), "server-bound", "no second witness"),
    (evidence(offered_rps=1000.0, dropped=3872, users=ALL_BUSY), "inconclusive", SHORT_OF_USERS),
    (
        evidence(offered_rps=200.0, dropped=601, users=TWO_BUSY),
        "inconclusive",
        "the users were the limit, 2 users / 21.2",
    ),
    (
        evidence(offered_rps=1000.0, dropped=30, users=SOME_BUSY),
        "inconclusive",
        "30 requests were dropped",
    ),
    (evidence(offered_rps=1000.0, users=ALL_BUSY), "offered", "1,000 requests/s were sustained"),
    (evidence(offered_rps=1000.0, probing=Probing(due=20, sent=12)), "offered", "were sustained"),
    (
        evidence(offered_rps=1000.0, probing=Probing(due=40, sent=12)),
        "inconclusive",
        "too few for a second witness",
    ),
    # Trials whose evidence is about server, generator, database and machine
    (
        evidence(server_share=0.95, generator_share=0.5, generator_peak_share=0.6),
        "server-bound",
        "95 %",
    ),
    (
        evidence(server_share=0.45, generator_share=0.99, generator_peak_share=1.0),
        "generator-bound",
        "45 %",
    ),
    (
        evidence(server_share=0.45, generator_share=0.7, generator_peak_share=0.97),
        "generator-bound",
        "45 %",
    ),
    (
        evidence(server_share=0.45, generator_share=0.5, generator_peak_share=0.6),
        "inconclusive",
        "45 %",
    ),
    (
        evidence(server_share=0.95, generator_share=0.99, generator_peak_share=1.0),
        "inconclusive",
        "95 %",
    ),
    (evidence(server_share=0.95, generator_share=0.5, disjoint=False), "inconclusive", "95 %"),
    (evidence(database=database_at(0.95)), "database-bound", "the database was busy"),
    (
        evidence(database=database_at(0.5, pool_exhausted_share=0.6)),
        "database-bound",
        "pool of connections was exhausted",
    ),
    (
        evidence(database=database_at(0.5, pool_exhausted_share=0.4)),
        "inconclusive",
        "neither side was busy",
    ),
    (
        evidence(database=database_at(0.78, shared=True)),
        "database-bound",
        "filled the CPUs that it shares",
    ),
    (
        busy(generator_share=0.5, database=database_at(0.5, shared=True, pool_exhausted_share=1.0)),
        "inconclusive",
        "together filled",
    ),
    (
        evidence(server_share=0.95, database=database_at(0.95)),
        "inconclusive",
        "both sides",
    ),
    (
        evidence(server_share=0.95, database=database_at(0.3)),
        "server-bound",
        "database used 30 %",
    ),
    (evidence(offered_rps=500.0), "offered", "500 requests/s were sustained"),
    (
        evidence(offered_rps=500.0, dropped=3),
        "inconclusive",
        "not sustained, 3 requests were dropped",
    ),
    (evidence(offered_rps=500.0, server_share=0.95), "server-bound", "server used 95 %"),
    (
        busy(waits=(Wait("p50", 245.0, 0.23),)),
        "generator-bound",
        "p50 was 245 ms for the generator and 0.23 ms for the",
    ),
    (
        busy(offered_rps=500.0, waits=(Wait("p95", 12.0, 2.0),)),
        "generator-bound",
        "waited in the generator",
    ),
    (
        busy(offered_rps=500.0, waits=(Wait("p99", 12.0, 2.0),)),
        "generator-bound",
        "p99 was 12 ms for the generator",
    ),
    (
        evidence(offered_rps=500.0, waits=(Wait("p50", 0.9, 0.1),)),
        "offered",
        "p50 was 0.9 ms for the generator",
    ),
    (
        evidence(offered_rps=500.0, waits=(Wait("p95", 9.0, 2.0),)),
        "offered",
        "p95 was 9 ms for the generator and 2 ms",
    ),
    (
        evidence(server_share=0.95, waits=(Wait("p50", 245.0, 0.23),)),
        "server-bound",
        "0.23 ms for the probe",
    ),
    (
        evidence(throttled_share=0.3),
        "server-bound",
        "its quota held the server back 30 % of the time",
    ),
    (
        evidence(offered_rps=500.0, stolen_share=0.2),
        "inconclusive",
        "the hypervisor took CPU time away",
    ),
    (evidence(server_share=0.95, stolen_share=0.2), "server-bound", "the hypervisor took 20 %"),
    (
        evidence(ceiling_share=0.93, generator_share=0.7),
        "generator-bound",
        "93 % of the generator's ceiling",
    ),
    (
        evidence(ceiling_share=0.93, generator_share=0.5, offered_rps=9.0),
        "offered",
        "93 % of the generator's",
    ),
    (
        evidence(server_share=0.95, ceiling_share=0.93, generator_share=0.7),
        "inconclusive",
        "both sides were busy",
    ),
    (evidence(server_share=0.95, failed_share=0.4), "inconclusive", "40 % of the requests failed"),
    (evidence(server_share=0.95, failed_share=0.0005), "server-bound", "server used 95 %"),
    # If many requests failed, the rate does not show which side was the limit, even if one side was
    # busy.
    (
        evidence(generator_share=0.95, failed_share=0.846),
        "inconclusive",
        "84.6 % of the requests failed: server used",
    ),
    (
        evidence(database=database_at(0.95), failed_share=0.4),
        "inconclusive",
        "40 % of the requests failed",
    ),
    (
        evidence(throttled_share=0.3, checks_failed_share=0.4),
        "inconclusive",
        "40 % of the script's checks failed",
    ),
    (evidence(generator_share=0.95, failed_share=0.001), "generator-bound", "generator 95 %"),
    (
        busy(waits=SHORTER, probing=Probing(200, 200), failed_share=0.01),
        "inconclusive",
        "1 % of the requests failed",
    ),
    (
        evidence(offered_rps=500.0, failed_share=0.0005),
        "inconclusive",
        "0.05 % of the requests failed",
    ),
    (
        evidence(generator_share=0.85, database=database_at(0.97)),
        "inconclusive",
        "were both busy",
    ),
    (
        evidence(generator_share=0.95, database=database_at(0.03, shared=True)),
        "generator-bound",
        "database used 3 %",
    ),
    (evidence(ceiling_share=0.5, offered_rps=500.0), "offered", "500 requests/s"),
    (evidence(waits=(Wait("p50", 12.0, 10.5),)), "inconclusive", "generator and probe wait alike"),
    (
        evidence(others_share=0.3, offered_rps=500.0),
        "inconclusive",
        "other programs took CPU time away",
    ),
    (
        evidence(others_share=0.3, generator_share=0.95),
        "generator-bound",
        "other programs took 30 %",
    ),
    (evidence(waits=(Wait("p50", 0.4, 0.39),)), "inconclusive", "neither side was busy"),
    (evidence(waits=(Wait("p50", 12.0, 7.0),)), "inconclusive", "neither side was busy"),
    # Trials whose evidence is the waiting times, which generator and probe both measured
    (
        evidence(offered_rps=200.0, waits=LONGER),
        "inconclusive",
        "contradict each other, the probe waited longer",
    ),
    (
        evidence(waits=LONGER),
        "inconclusive",
        "p50 was 0.895 ms for the generator and 4,278 ms for the probe",
    ),
    (
        evidence(offered_rps=200.0, waits=(Wait("p95", 2.0, 11.0),)),
        "inconclusive",
        "contradict each other",
    ),
    (evidence(offered_rps=200.0, waits=(Wait("p95", 2.0, 9.9),)), "offered", "p95 was 2 ms"),
    (evidence(offered_rps=200.0, waits=(Wait("p50", 0.1, 1.0),)), "offered", "p50 was 0.1 ms"),
    (evidence(server_share=0.95, waits=LONGER, probing=FEW), "server-bound", "server used 95 %"),
    (
        evidence(generator_share=0.95, waits=LONGER, probing=FEW),
        "generator-bound",
        "generator 95 %",
    ),
    (evidence(waits=SHORTER), "inconclusive", "the generator waited longer and had little to do"),
    (
        busy(waits=SHORTER, probing=FEW),
        "inconclusive",
        "the probe sent 58 of its 200 requests, too few",
    ),
    (
        busy(waits=SHORTER, probing=Probing(200, 200)),
        "generator-bound",
        "requests waited in the generator",
    ),
    (
        busy(waits=SHORTER, connecting_share=1.0),
        "inconclusive",
        "waited longer, perhaps to be accepted",
    ),
    (
        busy(waits=SHORTER, connecting_share=0.02),
        "generator-bound",
        "requests waited in the generator",
    ),
    (
        busy(waits=(Wait("p99", 457.0, 1.4),), connecting_share=0.02),
        "inconclusive",
        "perhaps to be accepted",
    ),
    (
        evidence(offered_rps=200.0, probing=FEW),
        "inconclusive",
        "the probe sent 58 of its 200 requests, too few",
    ),
    (evidence(offered_rps=200.0, probing=Probing(200, 160)), "offered", "200 requests/s"),
    (
        evidence(offered_rps=200.0, probing=Probing(200, 159)),
        "inconclusive",
        "sent 159 of its 200 requests",
    ),
    (
        evidence(offered_rps=200.0, probing=Probing(200, 199, 50)),
        "inconclusive",
        "requests, and 50 failed, too few",
    ),
    (
        evidence(offered_rps=200.0, probing=Probing(8, 8)),
        "inconclusive",
        "sent 8 of its 8 requests, too few",
    ),
    (evidence(probing=FEW), "inconclusive", "neither side was busy"),
    (
        evidence(offered_rps=200.0, dropped=3, waits=LONGER),
        "inconclusive",
        "not sustained, 3 requests were dropped",
    ),
    (
        evidence(offered_rps=200.0, ended_late_s=0.84),
        "offered",
        "the last answer came 0.84 s after the load's end",
    ),
    (
        evidence(offered_rps=200.0, ended_late_s=0.4),
        "offered",
        "server used 40 % of its CPUs, generator 20 % of its",
    ),
    # Trials of servers with a share of a core, and of loads with a single request under way
    (
        evidence(server_share=0.98, share=0.5, cores=0.5),
        "server-bound",
        "server used 98 % of its 0.5 of a core",
    ),
    # In some periods of the quota, the server used up the quota in a burst, and was held back. But
    # on average it used only 60 % of its share, so it was not at its limit.
    (
        evidence(server_share=0.6, share=0.5, cores=0.5, throttled_share=0.3),
        "inconclusive",
        "neither side",
    ),
    # A quota that was set outside the lab held the server back. It is unknown which share of this
    # quota the server used, so the server counts as being at its limit.
    (
        evidence(server_share=0.6, throttled_share=0.3),
        "server-bound",
        "its quota held the server back 30 %",
    ),
    (evidence(server_share=0.97, throttled_share=0.6, **ELSEWHERE), "server-bound", HELD),
    (
        evidence(server_share=0.97, throttled_share=0.6, **ELSEWHERE),
        "server-bound",
        "held the server back 60 %",
    ),
    (evidence(server_share=0.97, generator_peak_share=0.97, **ELSEWHERE), "server-bound", HELD),
    (evidence(server_share=0.97, serial=AWAKE, **ELSEWHERE), "server-bound", HELD),
    (
        evidence(server_share=0.97, cores=1.5, foreign_quota=True),
        "server-bound",
        "of its 1.5 cores (a quota",
    ),
    # The quota applies to server and generator together, so either side may have used it up.
    (
        evidence(throttled_share=0.3, shared_quota=True),
        "inconclusive",
        "server and generator shared a CPU quota",
    ),
    (evidence(throttled_share=0.0, shared_quota=True), "inconclusive", "neither side was busy"),
    (
        evidence(server_share=0.97, shared_quota=True, throttled_share=0.3, **ELSEWHERE),
        "server-bound",
        HELD,
    ),
    # The lab itself runs under a quota, and this quota held the generator back.
    (
        evidence(generator_throttled_share=0.3),
        "generator-bound",
        "a quota held the generator back 30 %",
    ),
    (
        evidence(generator_throttled_share=0.3, server_share=0.97),
        "inconclusive",
        "both sides were busy",
    ),
    # A value that cannot be read is no evidence.
    (
        evidence(throttled_share=None),
        "inconclusive",
        "it is not known whether a CPU quota held the server back",
    ),
    (
        evidence(throttled_share=None, server_share=0.95),
        "server-bound",
        "it is not known whether a CPU quota",
    ),
    (
        evidence(server_share=0.98, share=0.5, cores=0.5, generator_share=0.9),
        "inconclusive",
        "both sides",
    ),
    # 3000 users connect in the first second. The generator has no CPU time left in this second, but
    # the server is held back in all seconds.
    (
        evidence(server_share=0.98, share=0.1, cores=0.1, generator_peak_share=0.97),
        "server-bound",
        "98 % of its",
    ),
    (
        evidence(server_share=0.96, share=0.1, cores=0.1, generator_peak_share=0.97),
        "inconclusive",
        "both sides",
    ),
    (evidence(server_share=0.98, generator_peak_share=0.97), "inconclusive", "both sides"),
    # While the server waits for the next period of its quota, it keeps all connections of its pool.
    # So an exhausted pool does not show that the database was the limit.
    (
        evidence(server_share=0.98, share=0.1, cores=0.1, database=WAITING),
        "server-bound",
        "the pool of connections was exhausted for 100 %",
    ),
    (
        evidence(serial=AWAKE),
        "serial",
        "a cycle took 27.3 µs, of which the CPU time of both sides explains 97 %",
    ),
    (evidence(serial=ASLEEP), "serial", "idle CPUs slept, and the cycle includes the time to wake"),
    (evidence(serial=AWAKE, server_share=0.97), "serial", "one request under way"),
    (
        evidence(serial=AWAKE, server_share=0.97, share=0.5, cores=0.5),
        "server-bound",
        "0.5 of a core",
    ),
    (evidence(serial=AWAKE, stolen_share=0.2), "inconclusive", "the hypervisor took CPU time away"),
    (evidence(serial=AWAKE, failed_share=0.01), "inconclusive", "1 % of the requests failed"),
    (evidence(database=FULL), "database-bound", "the database used up its share of the CPUs"),
    (
        evidence(database=database_at(0.7, shared=True, limited=True)),
        "inconclusive",
        "neither side was busy",
    ),
    (
        evidence(generator_share=0.9, database=FULL),
        "inconclusive",
        "generator and database were both busy",
    ),
]
"""Trials, each as (evidence, expected verdict, words that the reason must contain)."""


@pytest.mark.parametrize(("given", "verdict", "words"), VERDICTS)
def test_verdict(given, verdict, words):
    judged = judge(given)
    sentence = reason(judged)
    assert judged.limit.verdict == verdict
    assert words in sentence
    assert given.ended_late_s > 0.5 or "last answer" not in sentence


def test_the_table_of_rules_has_every_cause_once_and_in_the_order_in_which_they_are_tried():
    """If two rules apply to a trial, the rule that the table lists first must decide."""
    assert list(WHEN) == list(Cause)
    both = evidence(server_share=None, disjoint=False, failed_share=0.5)
    assert judge(both).cause is next(iter(WHEN))
    assert judge(replace(both, failed_share=0.0)).cause is Cause.CPUS_SHARED


GIVEN = [given for given, _, _ in VERDICTS] + [
    evidence(disjoint=False),
    evidence(server_share=None),
    evidence(server_share=None, generator_share=None, generator_peak_share=None),
    evidence(generator_share=None, generator_peak_share=None),
    evidence(checks_failed_share=0.4, unit="iterations", offered_rps=5.5),
    evidence(network=network(share=0.9)),
    evidence(network=network(share=0.9), server_share=0.97),
    evidence(network=network(lost_share=0.02)),
    evidence(network=network(round_trip_ms=10.0, median_ms=10.4)),
]
"""The evidence of many trials: each rule decides at least one of these trials."""


def test_each_rule_decides_some_evidence():
    assert {judge(given).cause for given in GIVEN} == set(Cause)


def stored_row(given):
    """Return the row that pandas would read from trials.parquet for the evidence `given`."""
    verdict = judge(given)
    record = {
        "order": 1,
        "cell": {},
        "metrics": {},
        "verdict": verdict.limit.verdict,
        "verdict_cause": verdict.cause.value,
        "verdict_reason": reason(verdict),
        "evidence": columns_of(given),
    }
    row = trial_row(record)
    as_numbers = {
        name: float(value) if isinstance(value, bool | int) else value
        for name, value in row.items()
    }
    return {
        name: float("nan") if value is None and name.startswith(PREFIX) else value
        for name, value in as_numbers.items()
    }


@pytest.mark.parametrize("given", GIVEN)
def test_evidence_comes_back_from_the_columns_of_a_trial(given):
    assert evidence_of(stored_row(given)) == given


def test_each_value_of_the_evidence_is_a_documented_column():
    documented = {each.name for each in columns("trials") if each.name.startswith(PREFIX)}
    assert set(columns_of(evidence())) == documented


def test_a_row_without_evidence_has_none():
    assert evidence_of({}) is None
    assert evidence_of({f"{PREFIX}disjoint": float("nan")}) is None


@pytest.mark.parametrize("given", GIVEN)
def test_a_sentence_of_an_older_run_names_the_rule_that_made_it(given):
    verdict = judge(given)
    read = older_verdict(verdict.limit.verdict, reason(verdict))
    assert read.cause is verdict.cause


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ("inconclusive", ""),
        ("inconclusive", "a reason that the lab does not have"),
        ("server-bound", "the pool of connections was exhausted"),
        ("made up", "both sides were busy"),
    ],
)
def test_a_foreign_sentence_is_no_rule_of_another_limit(verdict, sentence):
    read = older_verdict(verdict, sentence)
    assert read.cause in (None, Cause.SERVER_BUSY)
    assert read.rule == sentence


def test_older_and_newer_runs_have_the_same_limits_and_rules():
    newer = with_causes(pd.DataFrame([stored_row(given) for given in GIVEN]))
    older = with_causes(newer[["verdict", "verdict_reason"]])
    assert limits_of(older).tolist() == limits_of(newer).tolist()
    assert limits_of(newer).tolist() == [judge(given).limit for given in GIVEN]
    unknown = newer["verdict"].eq("inconclusive")
    assert (
        older.loc[unknown, "verdict_rule"].tolist() == newer.loc[unknown, "verdict_rule"].tolist()
    )


@pytest.mark.parametrize("given", GIVEN)
def test_a_reason_begins_with_its_rule(given):
    verdict = judge(given)
    rule = rule_words(verdict.cause, given)
    assert reason(verdict).startswith(rule)
    assert not any(letter.isdigit() for letter in brief_words(verdict.cause))


@pytest.mark.parametrize(
    ("given", "repeated"),
    [
        (evidence(offered_rps=500.0, stolen_share=0.05), True),
        (evidence(offered_rps=500.0, stolen_share=0.049), False),
        (evidence(server_share=0.95, stolen_share=0.2), True),
        (evidence(database=database_at(0.95), stolen_share=0.2), True),
        (evidence(generator_share=0.95, stolen_share=0.2), False),
        (evidence(server_share=0.95, generator_share=0.95, stolen_share=0.2), False),
        (evidence(stolen_share=0.2), False),
        (evidence(offered_rps=500.0, dropped=3, stolen_share=0.2), False),
        (evidence(offered_rps=500.0, others_share=0.15), True),
        (evidence(offered_rps=500.0, others_share=0.149), False),
        (evidence(generator_share=0.95, others_share=0.3), False),
        (evidence(server_share=0.5, others_share=0.25), True),
    ],
)
def test_a_trial_is_repeated_if_a_calm_moment_tells_more(given, repeated):
    assert bool(disturbance(given)) is repeated
