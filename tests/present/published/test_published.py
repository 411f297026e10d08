"""Tests of judging published numbers and claims, with runs in which it is known which claims hold.

A `World` says how a run differs from the run of `plain()`, in which nothing is special.
"""

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from figure_checks import read, tables_of
from published_runs import CPU, NOT_FULL, PEAKS, RATE, RUST, WORLDS, both, build, plain
from scipy import stats
from synthetic_published import MATRIX, RAN, World

from runner.model import CLAIMS as FILE
from runner.model import LabError
from runner.present.chart.value import charts
from runner.present.comparison import ratios
from runner.present.comparison.quantity import Need
from runner.present.frames import Tables
from runner.present.published import counterparts, judging, published_table
from runner.present.published.claims import Claim, read_claims
from runner.present.published.counterparts import opened, read_published, threads_of
from runner.present.published.judging import combined, judge_all, sessions_needed
from runner.present.published.outcomes import (
    ABSENT,
    CLOSE,
    FAILS,
    HOLDS,
    OUTCOMES,
    PRIORITIES,
    ClaimPart,
    Combine,
    Direction,
    Finding,
    Outcome,
    combined_direction,
    count_words,
    direction_of,
    direction_words,
)
from runner.present.published.quantities import CLAIM_QUANTITIES
from runner.present.published.special_claims import JUDGES, NOTES
from runner.present.statistics.inference import ALPHA, Ratio
from runner.running.stopping import Settled, settled
from runner.verdict.limits import Cause

CLAIMS = {claim.name: claim for claim in read_claims()}


def judge(name: str, tables: Tables) -> Outcome:
    return judging.judge(tables, CLAIMS[name])


# --- each claim with a run in which it holds, and with a run in which it does not -----------------

ELSEWHERE = {"wrk-opens-what-it-is-asked"}
"""Claims that are judged by the published commands instead of a run.

The tests of "the published commands of wrk" below are about these claims.
"""
ABOUT_LIMITS = {
    name
    for name, claim in CLAIMS.items()
    if {CLAIM_QUANTITIES[each.quantity].need for each in claim.compare} - {Need.WORK}
}
"""The claims about rates and response times.

If the generator was the limit, the measured rates and response times are those of the generator,
and say nothing about the servers.
"""


def test_every_claim_has_worlds_and_every_source_a_claim() -> None:
    assert set(WORLDS) | ELSEWHERE == set(CLAIMS)
    published = pd.DataFrame(read_published())
    assert {claim.source for claim in CLAIMS.values()} >= set(published["source"])
    assert (
        published.loc[published["scenario"] == "experiments", "connections"]
        .eq(counterparts.USERS)
        .all()
    )


def test_only_the_servers_own_quantities_are_always_compared() -> None:
    """CPU time per request and memory are compared no matter which side was the limit.

    The reason is that these two quantities measure the server's own work. All other quantities of
    claims are compared only under certain limits.
    """
    found = {name for name, quantity in CLAIM_QUANTITIES.items() if quantity.need is Need.WORK}
    assert found == {"server_cpu_ms_per_request", "server_rss_peak_bytes"}


OWN = """
[mine.gin-needs-more-cpu]
short = "Gin: more CPU than axum"
says = "Gin needs more CPU for a request than axum."
looks_at = "CPU per request with keep-alive at 100 connections, gin / axum"
compare = [{ quantity = "server_cpu_ms_per_request", load = "count", servers = ["gin", "axum"], modes = ["keepalive"], connections = [100] }]
at_least = 1.0
"""  # noqa: E501 - a table on one line, as people write it


def test_a_claim_needs_no_source(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(FILE.read_text() + OWN)
    *others, mine = read_claims(path)
    assert others == list(CLAIMS.values()) and mine.source == ""
    assert judging.judge(build(World({("gin", "keepalive-100", CPU): 1.2})), mine).outcome == HOLDS
    assert judging.judge(build(World({("gin", "keepalive-100", CPU): 0.8})), mine).outcome == FAILS


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            '"server_cpu_ms',
            '"cpu_ms',
            "compare.0.quantity: 'cpu_ms_per_request' is none of served_rps, ",
        ),
        (
            'load = "count"',
            'load = "counts"',
            "compare.0.load: 'counts' is none of count, experiments, ",
        ),
        (
            ', modes = ["keepalive"]',
            "",
            "compare.0: modes and connections belong to load = 'count', which needs both",
        ),
        ('["gin", "axum"]', '["gin"]', "compare.0: a single server needs `against`"),
        ("at_least = 1.0", 'at_least = "1"', "at_least: Input should be a valid number"),
        ("at_least = 1.0", "", "`compare` needs a range"),
        ("at_least = 1.0", "at_least = 1.0\nat_most = 1.0", "`compare` needs a range"),
        ("short =", "shrt =", "short: Field required"),
        (
            "at_least",
            'judge = "counters_race"\nat_least',
            "a claim needs either `compare` or `judge`",
        ),
        ("at_least", "least", "least: Unexpected keyword argument"),
        ("at_least", 'also = ["nobody"]\nat_least', "also.0: 'nobody' is none of cpu_peaks, "),
        (
            "at_least",
            'judge = "nobody"\nat_least',
            "judge: 'nobody' is none of no_failed_requests, ",
        ),
    ],
)
def test_an_entry_that_is_not_whole_is_one_sentence(
    old: str, new: str, sentence: str, tmp_path: Path
) -> None:
    assert old in OWN
    path = tmp_path / "claims.toml"
    path.write_text(FILE.read_text() + OWN.replace(old, new, 1))
    with pytest.raises(LabError) as caught:
        read_claims(path)
    said = re.fullmatch(r"(.+), line (\d+): claim gin-needs-more-cpu: (.+)\.", str(caught.value))
    assert said and said[1] == str(path) and said[3].startswith(sentence), caught.value
    assert int(said[2]) > len(FILE.read_text().splitlines()) + 1


def test_every_function_that_an_entry_names_is_there() -> None:
    assert {claim.judge for claim in CLAIMS.values() if claim.judge} == set(JUDGES)
    assert {name for claim in CLAIMS.values() for name in claim.also} == set(NOTES)


@pytest.mark.parametrize(("place", "outcome"), [(0, HOLDS), (1, FAILS)])
@pytest.mark.parametrize("name", WORLDS)
def test_a_claim_comes_out_as_it_was_made_to(name: str, place: int, outcome: str) -> None:
    found = judge(name, build(WORLDS[name][place]))
    assert found.outcome == outcome, found


@pytest.mark.long
@pytest.mark.parametrize("name", [claim.name for claim in CLAIMS.values() if claim.range_words])
def test_a_claim_cannot_be_judged_with_four_trials(name: str) -> None:
    found = judge(name, build(WORLDS[name][0], trials=4))
    assert found.outcome == ABSENT and Finding.TOO_FEW_TRIALS.reason in found.why
    assert all(part.ratio is None and "4 trials" in part.values for part in found.parts)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in WORLDS if name not in {"rust-no-spikes", "counters-race"}]
)
def test_at_the_generators_limit_only_the_servers_own_is_judged(name: str) -> None:
    found = judge(name, build(replace(WORLDS[name][0], verdicts={"*": "generator-bound"})))
    if name not in ABOUT_LIMITS:
        assert found.outcome == HOLDS
        return
    assert found.outcome == ABSENT and "the generator was the limit" in found.why
    numbers = [part.numbers for part in found.parts if part.why == "the generator was the limit"]
    said = ("generator-bound 6 of 6", "the server used 40 % of its CPU", "used 98 % of its CPU")
    assert numbers and all(words in each for each in numbers for words in said)


def test_a_generators_limit_is_shown_by_probe_and_littles_law() -> None:
    tables = build(World(verdicts={"experiments*": "generator-bound"}))
    (part,) = [
        p for p in judge("rust-slightly-more-requests", tables).parts if p.words.startswith("axum")
    ]
    trials = tables.trials.query("server == 'axum' and workload == 'experiments'")
    rate = trials["rps"].median()
    p50 = trials["latency_p50_ms"].median()
    assert f"p50 {p50:.1f} ms to k6 and 0.400 ms to the probe" in part.numbers
    assert (
        f"3,000 under way / {rate:,.0f} a second = {3000 / rate * 1000:.0f} ms by Little's law"
        in part.numbers
    )


def test_a_server_that_did_not_run_is_named_with_those_that_did() -> None:
    found = judge("rust-slightly-more-requests", build(World(without=(("echo", "*"),))))
    assert found.outcome == ABSENT
    assert found.why == "echo did not run under this load (actix, axum did)"
    alone = build(World(without=tuple((name, "experiments*") for name in (*RUST, "echo"))))
    assert (
        judge("rust-slightly-more-requests", alone).why
        == "this run has no load like a closed loop of experiments"
    )


APART = {("axum", "experiments", RATE): 1.03, ("actix", "experiments", RATE): 0.9}
SPIKY = World({(server, "*", PEAKS[1]): 2.0 for server in RUST}, verdicts=NOT_FULL)
BOUND = {("axum", "keepalive-100", "verdict"): "generator-bound"}
DECIDED = [
    # A claim about Rust holds only if it holds for all frameworks in Rust.
    (
        "rust-slightly-more-requests",
        World(APART),
        FAILS,
        ["which framework", "axum: holds", "actix: does not hold"],
    ),
    ("rust-slightly-more-requests", World(APART, without=(("actix", "*"),)), HOLDS, []),
    # The outcome of this claim depends on the length of the windows in which CPU use is measured.
    (
        "rust-no-spikes",
        SPIKY,
        FAILS,
        ["it depends on the window", "over 1 s: holds", "over 100 ms: does not hold"],
    ),
    ("rust-no-spikes", World(), ABSENT, ["a peak could not be seen"]),
    # If all rates of a ramp were sustained, the server stored as many rows as the load asked for.
    # The number of rows then says nothing about the server.
    (
        "gnet-more-rows",
        World({("gnet", "insert-ramp", "rows_inserted"): 1.2}),
        ABSENT,
        ["inserted every row that was asked for"],
    ),
    # Verdicts and PostgreSQL's CPU use tell whether PostgreSQL can be ruled out as the limit.
    ("postgres-not-the-limit", World(verdicts={"insert": "inconclusive"}), ABSENT, []),
    ("postgres-not-the-limit", World(verdicts={"insert": "generator-bound"}), HOLDS, []),
    (
        "postgres-not-the-limit",
        World(values={("gnet", "insert", "database_cpu_mean_pct"): 95.0}),
        ABSENT,
        [],
    ),
    # The generator limited axum's rate, so axum could do more than was measured, and only one end
    # of the ratio's interval is known. The claim stays open if the unknown end could change the
    # outcome.
    ("even-at-100", World(values=BOUND), CLOSE, []),
    ("even-at-100", World({("axum", "keepalive-100", RATE): 1.2}, values=BOUND), FAILS, []),
]


@pytest.mark.parametrize(("name", "world", "outcome", "why"), DECIDED)
def test_a_claim_that_is_decided_by_more_than_its_ratio(
    name: str, world: World, outcome: str, why: list[str]
) -> None:
    found = judge(name, build(world))
    assert found.outcome == outcome and all(words in found.why for words in why)


def test_an_interval_across_the_border_is_too_close() -> None:
    found = judge("rust-slightly-more-requests", build(World(both("experiments", RATE, 1.05))))
    assert found.outcome == CLOSE and "lies about the border" in found.why
    reach = max(max(p.ratio.high / 1.05, 1.05 / p.ratio.low) for p in found.parts if p.ratio) - 1
    assert 0.001 < reach < 0.02
    percents = [float(text) for text in re.findall(r"within ±([\d.]+) % of it", found.why)]
    assert max(percents) == pytest.approx(100 * reach, rel=0.01)


@pytest.mark.parametrize(
    ("axums", "factor", "outcome"), [("server", 1.2, HOLDS), ("database", 0.8, FAILS)]
)
def test_of_two_ramps_a_claim_is_judged_on_the_one_that_serves(
    axums: str, factor: float, outcome: str
) -> None:
    """If a run has two ramps, each claim is judged by the ramp that says something about the claim.

    In the first ramp all rates were sustained, so it shows how response times change. The rates of
    the second ramp exceed what a server can do, so it shows how many rows a server can store. If
    axum was held back by the pool of database connections, axum's number of rows is only a lower
    bound.
    """
    sustained = build(
        World({("gnet", "insert-ramp", "rows_inserted"): factor}, first_second={"gnet": 3.0})
    )
    ramps = sustained.trials[sustained.trials["workload"].eq("devices-insert-ramp")]
    beyond = ramps.assign(
        trial_id=ramps["trial_id"] + "-beyond",
        **{
            name: ramps[name].str.replace("1,500", "4,000")
            for name in ("load", "load_without_terms", "load_shape")
        },
        verdict=np.where(ramps["server"] == "axum", f"{axums}-bound", "server-bound"),
        verdict_cause=Cause.POOL_EXHAUSTED.value,
    )
    both = replace(sustained, trials=pd.concat([sustained.trials, beyond], ignore_index=True))
    rows, start = (judge(name, both) for name in ("gnet-more-rows", "gnet-latency-starts-high"))
    assert (rows.outcome, start.outcome) == (outcome, HOLDS)
    assert [["4,000" in each.load for each in part.cells] for part in rows.parts] == [[True, True]]
    assert [["4,000" in each.load for each in part.cells] for part in start.parts] == [[False]]
    assert ("by a bound: the pool was the limit" in rows.why) == (axums == "database")


@pytest.mark.parametrize(("border", "times"), [(1.02, 16), (1.04, 4), (1.0801, 2)])
def test_half_the_interval_takes_four_times_the_sessions(border: float, times: int) -> None:
    found = Ratio(1.0, 1 / 1.08, 1.08, 0.04, 6, standard_error=0.03, degrees=5.0)
    claim = replace(CLAIMS["rust-no-spikes"], at_least=0.0, at_most=border)
    assert sessions_needed(found, claim) == times


@pytest.mark.parametrize(
    ("world", "remedy"),
    [
        (
            World(both("experiments", RATE, 1.05)),
            r"at least [\d,]+ times as many sessions|no number of sessions",
        ),
        (
            World(verdicts={"experiments": "generator-bound"}),
            "a generator on CPUs, or on a host, of its own",
        ),
        (World(verdicts={"experiments": "inconclusive"}), "CPUs that nobody else uses"),
        (
            World(without=(("echo", "*"),)),
            "a run with such a load, for example of `bench run claims`",
        ),
        (World(both("experiments", RATE, 0.9)), ""),
    ],
)
def test_what_is_not_decided_says_what_would_decide_it(world: World, remedy: str) -> None:
    entry = CLAIMS["rust-slightly-more-requests"]
    found = judging.Judged(entry, judging.judge(build(world), entry))
    assert re.fullmatch(remedy, found.remedy) and found.plain["remedy"] == found.remedy
    assert found.why.endswith(f"; to decide it: {found.remedy}" if remedy else found.found.why)


def test_counters_need_the_records_of_the_trials() -> None:
    found = judge("counters-race", build(records=False))
    assert found.outcome == ABSENT and "no record" in found.why
    raced = judge("counters-race", build(World(miscounted=("gin",))))
    assert "48 of 96 trials of axum and gin agree." in raced.seen


def test_no_load_of_a_source_is_no_error(tmp_path: Path) -> None:
    empty = read(synthetic_run.build(tmp_path, k6=(), wrk=False))
    for each in judge_all(empty):
        assert each.found.outcome == ABSENT and "this run has no" in each.found.why
    for row in published_table.rows(empty):
        assert row.ours.trials == 0 and row.remarks[0].startswith("this run has no load")
    assert not any(found.needs(empty) for found in charts("published").values())
    assert settled(empty, "5%") == Settled(frozenset(), "0 of 0 loads are within ±5 %")


# --- the published commands of wrk ----------------------------------------------------------------


def test_wrk_opens_whole_shares_of_its_threads() -> None:
    known = {(1, 8): 0, (10, 8): 8, (100, 8): 96, (1000, 8): 1000, (10, 5): 10}
    assert {command: opened(*command) for command in known} == known


def test_the_published_commands_open_less_than_they_ask_for() -> None:
    found = judge("wrk-opens-what-it-is-asked", plain())
    assert found.outcome == FAILS and found.why.startswith("1, 10, 100 do not divide")
    assert (
        "-t8 -c1 does not start; -t8 -c10 opens 8; -t8 -c100 opens 96; -t8 -c1000 opens 1000"
        in found.seen[0]
    )
    assert "10 by 5 threads, so that 10 open" in found.seen[1]
    none = World(without=tuple((server, load) for load in MATRIX for server in RAN[load]))
    assert judge("wrk-opens-what-it-is-asked", build(none)).outcome == ABSENT


def test_commands_whose_connections_divide_open_all_of_them(bare_lab: Path) -> None:
    path = bare_lab / "data" / "published.csv"
    table = pd.read_csv(path)
    wrk = table["load"].map(threads_of).gt(0)
    table.assign(connections=table["connections"].mask(wrk, table["connections"] * 8)).to_csv(
        path, index=False
    )
    assert judge("wrk-opens-what-it-is-asked", plain()).outcome == HOLDS


def test_a_broken_file_is_one_sentence(bare_lab: Path) -> None:
    path = bare_lab / "data" / "published.csv"
    table = pd.read_csv(path)
    lacking = table.drop(columns="mode")
    strange = table.assign(metric="speed")
    for broken, sentence in (
        (lacking, "lacks the column mode"),
        (strange, "has the unknown metric 'speed': use one of rps"),
    ):
        broken.to_csv(path, index=False)
        with pytest.raises(LabError, match=sentence):
            read_published()


# --- a rate that is only a bound, and a share of a core -------------------------------------------


def test_a_rate_that_the_generator_limited_bounds_the_ratio() -> None:
    """If the generator limited one server's rate, the ratio of two servers is only a bound.

    Here gin used its whole CPU, but axum could have done more. So the measured gin / axum is an
    upper bound, and the measured axum / gin is a lower bound.
    """
    one = {
        ("axum", where, "verdict"): "generator-bound" for where in ("close-1*", "keepalive-1000")
    }
    below = judge("gin-ahead-close", build(World({("gin", "close-1*", RATE): 0.8}, values=one)))
    assert below.outcome == FAILS and "by a bound: the generator was the limit" in below.why
    assert all(
        part.ratio and part.ratio.low == 0 and part.ratio.high < 0.85 for part in below.parts
    )
    assert all(
        part.ratio_words.startswith(("at most ×0.8", "at most ×0.79")) for part in below.parts
    )
    above = judge("gin-ahead-close", build(World({("gin", "close-1*", RATE): 1.2}, values=one)))
    assert above.outcome == CLOSE, "gin may still be behind the rate that axum could reach"
    ahead = judge(
        "axum-far-ahead-at-1000", build(World({("axum", "keepalive-1000", RATE): 1.7}, values=one))
    )
    assert ahead.outcome == HOLDS
    assert all(
        part.ratio and part.ratio.high == math.inf and part.ratio.low > 1.6 for part in ahead.parts
    )


def test_a_ratio_is_taken_on_the_largest_server_bound_quota() -> None:
    whole = build(
        World(
            {("axum", "keepalive-1000", RATE): 1.2}, verdicts={"keepalive-1000": "generator-bound"}
        )
    )
    parts = [whole.trials]
    for share, factor in ((0.5, 1.7 / 1.2), (0.25, 3.0)):
        part = whole.trials.query(
            "workload == 'wrk-matrix' and connections == 1000 and mode == 'keepalive'"
        )
        terms = f"{share:g} of a core"
        rps = part["served_rps"] * share * np.where(part["server"] == "axum", factor, 1.0)
        load = part["load"] + f", {terms}"
        parts.append(
            part.assign(share=share, terms=terms, load=load, verdict="server-bound", served_rps=rps)
        )
    tables = replace(whole, trials=pd.concat(parts, ignore_index=True))
    (part,) = judge("axum-far-ahead-at-1000", tables).parts
    assert part.outcome == HOLDS and part.ratio and part.ratio.ratio == pytest.approx(1.7, rel=0.02)
    assert judge("axum-far-ahead-at-1000", whole).outcome == ABSENT


# --- the table of outcomes ------------------------------------------------------------------------

NARROW = 0.01
"""The standard error of a log ratio in the tests below.

It is so small that the ratios HIGHER, LOWER and 1 lie clearly on one side of each border of the
claims ABOVE, BELOW and BETWEEN.
"""
ABOVE = replace(CLAIMS["gin-ahead-close"], at_least=1.2, at_most=math.inf)
BELOW = replace(ABOVE, at_least=0.0, at_most=1.2)
BETWEEN = replace(ABOVE, at_least=0.9, at_most=1.2)
WITHIN = Finding.WITHIN
BEYOND = Finding.BEYOND
BORDER = Finding.AT_THE_BORDER
HIGHER = 1.5
LOWER = 0.5
NEAR = 1.2
RATIO = (0.4, 1.6)
AT_LEAST = (0.4, math.inf)
AT_MOST = (0.0, 1.6)
COMPARISONS = {
    "a ratio above the border": (HIGHER, RATIO, {ABOVE: WITHIN, BELOW: BEYOND, BETWEEN: BEYOND}),
    "a ratio below the border": (LOWER, RATIO, {ABOVE: BEYOND, BELOW: WITHIN, BETWEEN: BEYOND}),
    "a ratio between borders": (1.0, RATIO, {ABOVE: BEYOND, BELOW: WITHIN, BETWEEN: WITHIN}),
    "a ratio at the border": (NEAR, RATIO, dict.fromkeys((ABOVE, BELOW, BETWEEN), BORDER)),
    "at least a ratio above": (HIGHER, AT_LEAST, {ABOVE: WITHIN, BELOW: BEYOND, BETWEEN: BEYOND}),
    "at least a ratio below": (LOWER, AT_LEAST, dict.fromkeys((ABOVE, BELOW, BETWEEN), BORDER)),
    "at most a ratio above": (HIGHER, AT_MOST, dict.fromkeys((ABOVE, BELOW, BETWEEN), BORDER)),
    "at most a ratio below": (LOWER, AT_MOST, {ABOVE: BEYOND, BELOW: WITHIN, BETWEEN: BEYOND}),
}
"""Comparisons by name: a ratio, the ends of its interval, and the right finding for each claim."""


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("claim", [ABOVE, BELOW, BETWEEN], ids=["above", "below", "between"])
def test_a_ratio_or_bound_shows_what_the_table_says(name: str, claim: Claim) -> None:
    value, (low, high), findings = COMPARISONS[name]
    found = Ratio(value, low, high, p=0.01, blocks=6, standard_error=NARROW, degrees=5.0)
    part = judging.tested(ClaimPart("", ratio=found), claim, 1.0)
    finding = Finding.of_tests(part.p_holds, part.p_fails, ALPHA)
    assert finding is findings[claim]
    decided = combined([replace(part, finding=BORDER)], claim)
    assert (decided.outcome, decided.parts[0].finding) == (finding.outcome, finding)
    assert decided.why.startswith(finding.reason)


@pytest.mark.parametrize(
    ("world", "trials", "finding"),
    [
        (World(without=(("gin", "*"),)), 6, Finding.NOT_MEASURED),
        (World(verdicts={"*": "generator-bound"}), 6, Finding.NOT_COMPARABLE),
        (World(verdicts={"*": "generator-bound"}), 4, Finding.NOT_COMPARABLE),
        (World(), 4, Finding.TOO_FEW_TRIALS),
    ],
    ids=["without-gin", "generator-bound", "generator-bound-and-few-trials", "few-trials"],
)
def test_without_a_ratio_or_bound_nothing_is_shown(
    world: World, trials: int, finding: Finding
) -> None:
    found = judge("gin-ahead-close", build(world, trials=trials))
    assert {part.finding for part in found.parts} == {finding}
    assert found.outcome == finding.outcome == ABSENT
    assert all(finding.reason in part.why for part in found.parts)


def test_the_tests_of_the_table_have_each_of_its_rules() -> None:
    shown = {each for _, _, findings in COMPARISONS.values() for each in findings.values()}
    missing = {Finding.NOT_MEASURED, Finding.NOT_COMPARABLE, Finding.TOO_FEW_TRIALS}
    assert shown | missing == set(Finding)


PARTS = {
    HOLDS: ClaimPart("", finding=BORDER, p_holds=0.0),
    FAILS: ClaimPart("", finding=BORDER, p_fails=0.0),
    CLOSE: ClaimPart("", finding=BORDER),
    ABSENT: ClaimPart(""),
}
"""For each outcome, a comparison that has this outcome."""
TRIPLES = list(itertools.combinations_with_replacement(OUTCOMES, 3))


@pytest.mark.parametrize("combine", PRIORITIES)
@pytest.mark.parametrize("outcomes", TRIPLES, ids=str)
def test_a_claim_has_the_outcome_of_the_table(combine: Combine, outcomes: tuple[str, ...]) -> None:
    parts = [
        replace(PARTS[outcome], ratio=Ratio(1.0, 0.9, 1.1, 0.5, 6, NARROW, 5.0))
        for outcome in outcomes
    ]
    decisive, unanimous = (FAILS, HOLDS) if combine == "all" else (HOLDS, FAILS)
    if decisive in outcomes:
        expected = decisive
    elif ABSENT in outcomes:
        expected = ABSENT
    elif CLOSE in outcomes:
        expected = CLOSE
    else:
        expected = unanimous
    assert combined(parts, replace(ABOVE, combine=combine)).outcome == expected


@pytest.mark.parametrize(
    ("ratio", "at_least", "at_most", "direction"),
    [
        (2.4, 1.0, 1.05, Direction.UNDERSTATED),  # claimed: slightly ahead; measured: far ahead
        (1.2, 2.0, math.inf, Direction.OVERSTATED),
        (0.8, 2.0, math.inf, Direction.OPPOSITE),
        (0.9, 1.0, math.inf, Direction.OPPOSITE),
        # claimed: half of the CPU time; measured: a third of it
        (0.3, 0.4, 0.65, Direction.UNDERSTATED),
        (0.9, 0.4, 0.65, Direction.OVERSTATED),
        (1.1, 0.4, 0.65, Direction.OPPOSITE),
        (1.1, 0.0, 0.75, Direction.OPPOSITE),
        (0.8, 0.98, 1.02, Direction.UNDERSTATED),  # claimed: alike; measured: different
        (1.3, 0.98, 1.02, Direction.UNDERSTATED),
    ],
)
def test_a_ratio_beyond_a_claim_has_a_direction(ratio, at_least, at_most, direction) -> None:
    assert direction_of(ratio, at_least, at_most) is direction


def test_directions_of_comparisons_are_counted_and_named() -> None:
    more, less = Direction.UNDERSTATED, Direction.OVERSTATED
    assert combined_direction([]) == ""
    assert combined_direction([more, more]) == "understated"
    assert combined_direction([less, more, less]) == "understated and overstated"
    said = count_words([HOLDS, more, more, less, FAILS, CLOSE, ABSENT, ABSENT])
    assert said == (
        "Of 8 published claims 1 holds here, 4 do not (more than claimed: 2; less than claimed: 1; "
        "without a ratio: 1), 1 is too close to tell, and 2 cannot be judged from this run."
    )
    assert "0 do not, 0 are too close" in count_words([HOLDS])
    assert "2 do not, 0 are too close" in count_words([more, less], with_ways=False)
    both = combined_direction([more, less])
    assert (
        "3 do not (less than claimed: 1; more than claimed, or less than claimed: 2)"
        in count_words([both, less, both])
    )


def test_pages_say_a_direction_as_a_person_does() -> None:
    assert direction_words("understated") == "more than claimed"
    assert direction_words("understated", claims_equality=True) == "not equal"
    assert direction_words("overstated and opposite") == "less than claimed, or the other way round"
    assert [direction_words(each) for each in (HOLDS, FAILS)] == [HOLDS, FAILS]


def test_an_interval_about_one_is_not_the_opposite() -> None:
    assert direction_of(0.8, 2.0, math.inf, may_be_one=True) is Direction.OVERSTATED
    assert direction_of(1.1, 0.4, 0.65, may_be_one=True) is Direction.OVERSTATED


def test_a_program_reads_outcome_and_direction() -> None:
    judged = {each.claim.name: each.plain for each in judge_all(tables_of("sample"))}
    ahead = judged["rust-slightly-more-requests"]
    assert (ahead["outcome"], ahead["direction"]) == (FAILS, "understated")
    assert {each["direction"] for each in judged.values() if each["outcome"] != FAILS} <= {
        HOLDS,
        CLOSE,
        ABSENT,
    }


# --- the statistical tests by which claims are judged ---------------------------------------------


def test_intervals_and_tests_of_a_claim_are_students() -> None:
    parts = judge("axum-less-cpu", plain()).parts
    assert len(parts) == 8
    trials = plain().trials.query("workload == 'wrk-matrix' and mode == 'close'")
    for part, connections in zip(parts[4:], (1, 10, 100, 1000), strict=True):
        logs = np.log(
            trials[trials["connections"] == connections].pivot_table(CPU, "block", "server")
        )
        theirs = stats.ttest_rel(logs["axum"], logs["gin"]).confidence_interval(0.95)
        assert (part.ratio.low, part.ratio.high) == pytest.approx(
            (math.exp(theirs.low), math.exp(theirs.high))
        )
        differences = logs["axum"] - logs["gin"] - math.log(0.75)
        assert part.p_holds == pytest.approx(
            stats.ttest_1samp(differences, 0, alternative="less").pvalue
        )
        assert part.p_fails == pytest.approx(
            stats.ttest_1samp(differences, 0, alternative="greater").pvalue
        )


def decisions(claim: str, centres: tuple[float, ...], campaigns: int = 2000) -> dict[str, float]:
    """Return the share of simulated campaigns that end in each outcome of the claim.

    `centres` are the true log ratios of the claim's comparisons. Each campaign has six sessions and
    noise of 2 %.
    """
    rng = np.random.default_rng(5)
    outcomes = Counter[str]()
    t = stats.t.ppf(0.975, 5)
    for _ in range(campaigns):
        parts = []
        for row in rng.normal(np.reshape(centres, (-1, 1)), 0.02, (len(centres), 6)):
            middle = row.mean()
            error = row.std(ddof=1) / math.sqrt(6)
            found = Ratio(
                *np.exp([middle, middle - t * error, middle + t * error]), 0, 6, error, 5.0
            )
            part = ClaimPart("", ratio=found, finding=Finding.AT_THE_BORDER)
            parts.append(judging.tested(part, CLAIMS[claim], 1.0))
        outcomes[combined(parts, CLAIMS[claim]).outcome] += 1
    return {outcome: outcomes[outcome] / campaigns for outcome in (HOLDS, FAILS, CLOSE)}


@pytest.mark.long
def test_a_claim_on_its_border_is_seldom_decided_wrongly() -> None:
    """A claim near its border gets the wrong outcome in at most about one of twenty campaigns.

    A claim that is just true must rarely be found false, and a claim that is just false must rarely
    be found true.
    """
    border = math.log(1.02)
    assert decisions("percentiles-alike", (border,) * 3)[FAILS] <= 0.06, (
        "it holds: three ratios are just within"
    )
    assert decisions("percentiles-alike", (-0.03, 0, border))[HOLDS] <= 0.06, (
        "it does not: one is just beyond"
    )
    assert decisions("percentiles-alike", (0, 0, border))[HOLDS] <= 0.06
    assert decisions("axum-half-cpu-keepalive", (math.log(0.55),) * 4)[HOLDS] <= 0.06, (
        "none is below"
    )
    assert decisions("axum-half-cpu-keepalive", (0.5, 0.5, 0.5, math.log(0.55)))[FAILS] <= 0.06, (
        "one is just below"
    )


def test_claims_far_from_their_border_are_decided() -> None:
    assert decisions("percentiles-alike", (0.1, 0, 0))[FAILS] >= 0.99
    assert decisions("actix-less-cpu", (math.log(0.7),) * 4)[HOLDS] >= 0.95


def test_noise_between_labels_is_added_to_the_distance() -> None:
    part = ClaimPart("", ratio=Ratio(0.9, 0.85, 0.95, 0.04, 6, standard_error=0.02, degrees=5.0))
    for floor in (1.0, 1.2):
        found = judging.tested(part, CLAIMS["gin-ahead-close"], floor)
        assert found.p_fails == pytest.approx(stats.t.cdf(math.log(0.9 * floor) / 0.02, 5))


def test_a_bound_is_the_same_number_in_claim_and_table() -> None:
    low = 2.05
    high = 2.26
    for ends, in_claim, in_table in (
        ((low, math.inf), "at least ×2.050", "at least 2.05"),
        ((0.0, high), "at most ×2.260", "at most 2.26"),
        ((low, high), "×2.150 [2.050–2.260]", "2.15 [2.05–2.26]"),
    ):
        found = Ratio(2.15, *ends, p=0.01, blocks=5, standard_error=0.01, degrees=4)
        row = {"why": "", "ratio": found.ratio, "low": found.low, "high": found.high}
        assert ClaimPart("axum/gin", ratio=found).ratio_words == in_claim
        assert ratios.words(row) == in_table
