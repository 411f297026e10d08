"""Published numbers and claims against runs in which it is known which of them hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_published
import synthetic_run
from published_runs import CPU, NOT_FULL, PEAKS, RATE, RUST, WORLDS, Build, both, own_lab
from scipy import stats
from synthetic_published import World

from runner.model import LabError
from runner.present.chart import charts
from runner.present.frames import Tables, read_tables
from runner.present.published import claims, counterparts, judging, published_table
from runner.present.published.claims import FAILS, HOLDS, UNDECIDED, Outcome, read_claims
from runner.present.published.counterparts import opened, read_published, threads_of
from runner.present.published.judging import TOO_FEW, joint, judge_all
from runner.present.published.quantities import QUANTITIES, anywhere
from runner.present.published.special_claims import JUDGES, NOTES
from runner.present.statistics.inference import Ratio
from runner.store import RunFolder

CLAIMS = {claim.name: claim for claim in read_claims()}


def judge(name: str, tables: Tables) -> Outcome:
    return judging.judge(tables, CLAIMS[name])


# --- each claim in a world in which it holds, and in one in which it does not --------------------------------

ELSEWHERE = {"wrk-opens-what-it-is-asked"}
"""Of the published commands, not of a world: it has tests of its own."""
ABOUT_LIMITS = {
    claim.name
    for claim in CLAIMS.values()
    if any(QUANTITIES[each.quantity].rule is not anywhere for each in claim.compare)
}
"""Claims about rates and response times, which a busy generator makes its own."""


def test_every_claim_has_worlds_here_and_every_source_has_a_claim() -> None:
    assert set(WORLDS) | ELSEWHERE == set(CLAIMS)
    published = read_published()
    assert {claim.source for claim in CLAIMS.values()} >= set(published["source"])
    assert published.loc[published["scenario"] == "experiments", "connections"].eq(counterparts.USERS).all()


def test_only_what_is_the_servers_whatever_was_the_limit_is_compared_anywhere() -> None:
    found = {name for name, quantity in QUANTITIES.items() if quantity.rule is anywhere}
    assert found == {"server_cpu_ms_per_request", "server_rss_peak_bytes"}


OWN = """
[mine.gin-needs-more-cpu]
short = "Gin: more CPU than axum"
says = "Gin needs more CPU for a request than axum."
looks_at = "CPU per request with keep-alive at 100 connections, gin / axum"
compare = [{ quantity = "server_cpu_ms_per_request", load = "count", servers = ["gin", "axum"], modes = ["keepalive"], connections = [100] }]
at_least = 1.0
"""  # noqa: E501


def test_a_claim_needs_no_source(tmp_path: Path, build: Build) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(claims.FILE.read_text() + OWN)
    *others, own = read_claims(path)
    assert others == list(CLAIMS.values()) and own.source == ""
    assert judging.judge(build(World({("gin", "keepalive-100", CPU): 1.2})), own).outcome == HOLDS
    assert judging.judge(build(World({("gin", "keepalive-100", CPU): 0.8})), own).outcome == FAILS


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"server_cpu_ms', '"cpu_ms', "compare.0.quantity: 'cpu_ms_per_request' is none of rps, "),
        ('load = "count"', 'load = "counts"', "compare.0.load: 'counts' is none of count, experiments, "),
        (', modes = ["keepalive"]', "", "compare.0: modes and connections belong to load = 'count', which needs both"),
        ('["gin", "axum"]', '["gin"]', "compare.0: a single server needs `against`"),
        ("at_least = 1.0", 'at_least = "1"', "at_least: Input should be a valid number"),
        ("at_least = 1.0", "", "`compare` needs a range"),
        ("at_least = 1.0", "at_least = 1.0\nat_most = 1.0", "`compare` needs a range"),
        ("short =", "shrt =", "short: Field required"),
        ("at_least", 'judge = "counters_race"\nat_least', "a claim needs either `compare` or `judge`"),
        ("at_least", "least", "least: Unexpected keyword argument"),
    ],
)
def test_an_entry_that_is_not_whole_is_one_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert old in OWN
    path = tmp_path / "claims.toml"
    path.write_text(claims.FILE.read_text() + OWN.replace(old, new, 1))
    with pytest.raises(LabError) as caught:
        read_claims(path)
    said = re.fullmatch(r"(.+), line (\d+): claim gin-needs-more-cpu: (.+)\.", str(caught.value))
    assert said and said[1] == str(path) and said[3].startswith(sentence), caught.value
    assert int(said[2]) > len(claims.FILE.read_text().splitlines()) + 1


def test_an_entry_that_names_no_function_is_one_sentence(plain: Tables) -> None:
    with pytest.raises(LabError, match="claim counters-race names 'nobody'"):
        judging.judge(plain, replace(CLAIMS["counters-race"], judge="nobody"))


def test_every_function_that_an_entry_names_is_there_and_is_named() -> None:
    assert {claim.judge for claim in CLAIMS.values() if claim.judge} == set(JUDGES)
    assert {name for claim in CLAIMS.values() for name in claim.also} == set(NOTES)


@pytest.mark.parametrize("name", WORLDS)
def test_a_claim_holds_where_it_was_made_to(name: str, build: Build) -> None:
    found = judge(name, build(WORLDS[name][0]))
    assert found.outcome == HOLDS, found


@pytest.mark.parametrize("name", WORLDS)
def test_a_claim_does_not_hold_where_it_was_made_not_to(name: str, build: Build) -> None:
    found = judge(name, build(WORLDS[name][1]))
    assert found.outcome == FAILS, found


@pytest.mark.parametrize("name", [claim.name for claim in CLAIMS.values() if claim.range_words])
def test_a_claim_cannot_be_told_with_four_trials(name: str, build: Build) -> None:
    found = judge(name, build(WORLDS[name][0], trials=4))
    assert found.outcome == UNDECIDED and TOO_FEW in found.why
    assert all(part.ratio is None and "4 trials" in part.values for part in found.parts)


@pytest.mark.parametrize("name", [name for name in WORLDS if name not in {"rust-no-spikes", "counters-race"}])
def test_where_the_generator_was_the_limit_only_what_is_the_servers_own_is_told(name: str, build: Build) -> None:
    world = WORLDS[name][0]
    found = judge(name, build(replace(world, verdicts={"*": "generator-bound"})))
    if name not in ABOUT_LIMITS:
        assert found.outcome == HOLDS
        return
    assert found.outcome == UNDECIDED and "the generator was the limit" in found.why
    barred = [part for part in found.parts if part.why == "the generator was the limit"]
    assert barred and all("generator-bound 6 of 6" in part.numbers for part in barred)
    assert all("the server used 40 % of its CPU" in part.numbers for part in barred)
    assert all("used 98 % of its CPU" in part.numbers for part in barred)


def test_the_numbers_of_a_generators_limit_are_the_probe_and_littles_law(build: Build) -> None:
    tables = build(World(verdicts={"experiments*": "generator-bound"}))
    (part,) = [p for p in judge("rust-slightly-more-requests", tables).parts if p.words.startswith("axum")]
    own = tables.trials[(tables.trials["server"] == "axum") & (tables.trials["workload"] == "experiments")]
    rate, p50 = own["rps"].median(), own["latency_p50_ms"].median()
    assert f"p50 {p50:.1f} ms to k6 and 0.400 ms to the probe" in part.numbers
    assert f"3,000 under way / {rate:,.0f} a second = {3000 / rate * 1000:.0f} ms by Little's law" in part.numbers


def test_a_server_that_did_not_run_is_named_with_those_that_did(build: Build) -> None:
    found = judge("rust-slightly-more-requests", build(World(without=(("echo", "*"),))))
    assert found.outcome == UNDECIDED
    assert found.why == "echo did not run under this load (actix, axum did)"
    alone = build(World(without=tuple((name, "experiments*") for name in (*RUST, "echo"))))
    assert judge("rust-slightly-more-requests", alone).why == "this run has no load like a closed loop of experiments"


def test_what_is_said_of_rust_needs_each_framework_that_stands_for_it(build: Build) -> None:
    one = World({("axum", "experiments", RATE): 1.03, ("actix", "experiments", RATE): 0.9})
    found = judge("rust-slightly-more-requests", build(one))
    assert found.outcome == UNDECIDED and "which framework" in found.why
    assert "axum: holds" in found.why and "actix: does not hold" in found.why
    only = World(one.factors, without=(("actix", "*"),))
    assert judge("rust-slightly-more-requests", build(only)).outcome == HOLDS


def test_spikes_depend_on_the_window(build: Build) -> None:
    short = World({(server, "*", PEAKS[1]): 2.0 for server in RUST}, verdicts=NOT_FULL)
    found = judge("rust-no-spikes", build(short))
    assert found.outcome == UNDECIDED and "it depends on the window" in found.why
    full = judge("rust-no-spikes", build())
    assert full.outcome == UNDECIDED and "nothing could rise above" in full.why


def test_an_interval_across_the_border_tells_nothing(build: Build) -> None:
    found = judge("rust-slightly-more-requests", build(World(both("experiments", RATE, 1.05))))
    assert found.outcome == UNDECIDED and "reaches across the border" in found.why


def test_rows_of_a_ramp_that_was_kept_are_those_that_were_asked_for(build: Build) -> None:
    found = judge("gnet-more-rows", build(World({("gnet", "insert-ramp", "rows_inserted"): 1.2})))
    assert found.outcome == UNDECIDED and "those that were asked for" in found.why


@pytest.mark.parametrize(("verdict", "outcome"), [("inconclusive", UNDECIDED), ("generator-bound", HOLDS)])
def test_what_is_not_told_of_a_database(verdict: str, outcome: str, build: Build) -> None:
    assert judge("postgres-not-the-limit", build(World(verdicts={"insert": verdict}))).outcome == outcome
    full = World(values={("gnet", "insert", "database_cpu_mean_pct"): 95.0})
    assert judge("postgres-not-the-limit", build(full)).outcome == UNDECIDED


def test_counters_need_the_records_of_the_trials(build: Build) -> None:
    found = judge("counters-race", build(records=False))
    assert found.outcome == UNDECIDED and "no record" in found.why
    raced = judge("counters-race", build(World(miscounted=("gin",))))
    assert "48 of 96 trials of axum and gin agree." in raced.seen


def test_no_load_of_a_source_is_no_error(tmp_path: Path) -> None:
    empty = read_tables(RunFolder(synthetic_run.build(tmp_path, k6=(), wrk=False)))
    found = judge_all(empty)
    assert {each.outcome.outcome for each in found} == {UNDECIDED}
    assert all("this run has no" in each.outcome.why for each in found)
    assert all(
        row.n == 0 and row.remarks[0].startswith("this run has no load")
        for row in published_table.rows(empty, read_published())
    )
    assert not any(found.needs(empty) for found in charts("published").values())


# --- the published commands of wrk ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "threads", "open_"), [(1, 8, 0), (10, 8, 8), (100, 8, 96), (1000, 8, 1000), (10, 5, 10)]
)
def test_wrk_opens_whole_shares_of_its_threads(asked: int, threads: int, open_: int) -> None:
    assert opened(asked, threads) == open_


def test_the_published_commands_open_less_than_they_ask_for(plain: Tables, build: Build) -> None:
    found = judge("wrk-opens-what-it-is-asked", plain)
    assert found.outcome == FAILS and found.why.startswith("1, 10, 100 do not divide")
    assert "-t8 -c1 does not start; -t8 -c10 opens 8; -t8 -c100 opens 96; -t8 -c1000 opens 1000" in found.seen[0]
    assert "10 by 5 threads, so that 10 open" in found.seen[1]
    none = build(
        World(without=tuple((server, load) for server in SERVERS_OF_WRK for load in synthetic_published.MATRIX))
    )
    assert judge("wrk-opens-what-it-is-asked", none).outcome == UNDECIDED


SERVERS_OF_WRK = synthetic_published.RAN["close-1"]


def test_commands_whose_connections_divide_open_what_they_ask_for(
    plain: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_lab(tmp_path, monkeypatch)
    path = tmp_path / "data" / "published.csv"
    table = pd.read_csv(path)
    wrk = table["load"].map(threads_of).notna()
    table.assign(connections=table["connections"].mask(wrk, table["connections"] * 8)).to_csv(path, index=False)
    assert judge("wrk-opens-what-it-is-asked", plain).outcome == HOLDS


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.drop(columns="mode"), "lacks the column mode"),
        (lambda table: table.assign(metric="speed"), "has the metric 'speed'; known are rps"),
    ],
)
def test_a_broken_file_is_one_sentence(
    change: Callable[[pd.DataFrame], pd.DataFrame], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_lab(tmp_path, monkeypatch)
    path = tmp_path / "data" / "published.csv"
    change(pd.read_csv(path)).to_csv(path, index=False)
    with pytest.raises(LabError, match=sentence):
        read_published()


# --- statistics -------------------------------------------------------------------------------------------


def test_the_intervals_of_a_claim_are_bonferronis_within_blocks(plain: Tables) -> None:
    parts = judge("axum-less-cpu", plain).parts
    assert len(parts) == 8
    trials = plain.trials[plain.trials["workload"].eq("wrk-matrix") & plain.trials["mode"].eq("close")]
    for part, connections in zip(parts[4:], (1, 10, 100, 1000), strict=True):
        cell = trials[trials["connections"] == connections].sort_values("block")
        logs = [np.log(cell.loc[cell["server"] == server, CPU].to_numpy()) for server in ("axum", "gin")]
        theirs = stats.ttest_rel(*logs).confidence_interval(1 - 0.05 / 8)
        assert part.ratio is not None
        assert (part.ratio.low, part.ratio.high) == pytest.approx((math.exp(theirs.low), math.exp(theirs.high)))


def test_a_claim_that_is_just_refuted_alone_is_not_among_eight() -> None:
    one = Ratio(0.9, 0.0, 0.0, 0.04, 6, standard_error=0.03, degrees=5.0)
    assert joint(one, 1).high < 1 < joint(one, 8).high
    assert joint(one, 1, floor=1.2).high == pytest.approx(1.2 * joint(one, 1).high)


def test_a_claim_of_three_parts_is_refuted_by_chance_no_more_often_than_one() -> None:
    """Where three ratios lie on the border of what is claimed, at most 5 % of campaigns may refute the claim."""
    rng, wrong = np.random.default_rng(5), 0
    claim = CLAIMS["percentiles-alike"]
    for _ in range(2000):
        logs = rng.normal(0, 0.02, (3, 6)) + 0.02  # on the border of what is claimed
        outcomes = []
        for row in logs:
            of = Ratio(math.exp(row.mean()), 0, 0, 0, 6, row.std(ddof=1) / math.sqrt(6), 5.0)
            outcomes.append(claims.claimed(joint(of, 3), claim))
        wrong += FAILS in outcomes
    assert wrong / 2000 <= 0.06


# --- number by number -------------------------------------------------------------------------------------
