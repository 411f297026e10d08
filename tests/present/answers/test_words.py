"""Tests of the words with which the lab prints the numbers of a run.

These words say how many requests failed, which percentiles the number of requests allows, why a
limit is unknown, and what the probe measured as a second client.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from figure_checks import HUNDRED, campaign_with, changed, of, read, tables_of
from scipy.stats import gmean

from runner.commands import measuring
from runner.console import rate_words, time_words
from runner.digest.loads import exact_percentiles, first_byte_percentiles
from runner.model import OWN_SCRIPT, carried_percent
from runner.present.answers import evidence, findings, summary
from runner.present.answers.unknown import why_unknown
from runner.present.comparison import ratios
from runner.present.comparison.obstacle import Kind, is_the_servers
from runner.present.comparison.quantity import CPU_PER_REQUEST, OF_TWO_RUNS
from runner.present.frames import Tables, did_at_least, queued, with_causes
from runner.present.notebook import parts
from runner.running.campaign import RunResult
from runner.verdict.limits import Limit

K6 = "experiments, N = 3000"
SHED = {
    "verdict": "inconclusive",
    "verdict_reason": "84.6 % of the requests failed: server used 40 % of its CPUs",
}


@pytest.fixture(scope="module")
def three() -> Tables:
    return tables_of("three")


@pytest.fixture(scope="module")
def shedding(three) -> Tables:
    """Return trials of one server under one load of k6, in which most answers were refusals.

    Each trial lasted 1.168 s, and 5,074 of its 6,000 answers were refusals.
    """
    chosen = of(three, "gin", K6) & three.trials["status"].eq("sealed")
    one = replace(three, trials=three.trials[chosen].reset_index(drop=True))
    rate = {"requests": 6000.0, "failed": 5074.0, "duration_s": 1.168, "served_rps": 926 / 1.168}
    return changed(one, **rate, **SHED)


# --- failed requests in progress lines and in the summary -----------------------------------------


def test_a_progress_line_says_successes_and_failures():
    metrics = {"requests": 6000, "failed": 5074, "duration_s": 1.168, "rps": 5137.0}
    assert [*rate_words(metrics, is_open=False)] == [
        "793 requests/s with success",
        "84.6 % of the requests failed",
    ]
    assert [*rate_words({**metrics, "failed": 0}, is_open=False)] == ["5,137 requests/s"]


def test_a_progress_line_counts_the_probes_answers():
    """In a closed load, a progress line counts the probe's answers as part of the server's rate.

    In an open load, the line leaves the probe's answers out, because the load itself sets the rate.
    """
    metrics = {
        "requests": 500,
        "failed": 0,
        "probe_requests": 5,
        "probe_failed": 0,
        "duration_s": 10.0,
    }
    assert [*rate_words(metrics, is_open=False)] == ["50.5 requests/s"]
    assert [*rate_words(metrics, is_open=True)] == ["50 requests/s"]


@pytest.mark.parametrize("failed", [1, 5, 84, 99, 846, 990, 999, 1000])
def test_a_share_of_failures_has_one_text_in_the_summary_and_in_the_progress(failed):
    """The progress line and the summary give a share of failed requests in the same words.

    For example, if 990 of 1000 requests fail, both say `99 %`, and neither says `99.0 %`.
    """
    metrics = {"requests": 1000, "failed": failed, "duration_s": 4.0}
    _, said = rate_words(metrics, is_open=True)
    assert said == f"{summary.percent_words(failed / 10)} of the requests failed"


def test_refusals_are_answers_nowhere_in_the_summary(shedding):
    """The summary counts refusals as failed requests in its table, sentences and warnings."""
    table = summary.summarize(shedding)
    (row,) = summary.printable(table).to_dict("records")
    assert (row["requests/s"], row["failed"]) == ("793 †", "84.6 %")
    (said,) = findings.sentences(shedding)
    assert said == (
        "On a core, with 3,000 users of k6 (experiments), gin answers 793 requests/s with success; "
        "84.6 % of the requests failed (so the limit is unknown)."
    )
    warning = summary.warnings_of(shedding)[-1]
    assert "84.6 % of gin's" in warning and "include errors" in warning


def test_a_sentence_gives_the_rate_of_the_table_not_of_the_best_trial(shedding):
    """If two trials have 6,170 and 5,541 requests/s, sentence and table give the geometric mean."""
    rates = [6170.0, 5541.0]
    two = replace(shedding, trials=shedding.trials.iloc[:2].reset_index(drop=True))
    numbers = {"served_rps": rates, "failed": 0.0, "verdict": "inconclusive", "verdict_reason": "?"}
    tables = changed(two, **numbers)
    (row,) = summary.printable(summary.summarize(tables)).to_dict("records")
    value = f"{gmean(rates):,.0f}"
    assert row["requests/s"].startswith(value)
    assert f"gin answers {value} requests/s (" in findings.sentences(tables)[0]


def test_no_dagger_is_beside_a_rate_that_was_offered_and_sustained(three):
    offered = changed(three, verdict="offered", verdict_reason="the offered rate was sustained")
    assert not summary.printable(summary.summarize(offered))["requests/s"].str.contains("†").any()
    bound = changed(three, verdict="generator-bound", verdict_reason="the generator was full")
    assert summary.printable(summary.summarize(bound))["requests/s"].str.endswith("†").all()


def test_a_run_without_failures_has_no_columns_of_them(three):
    shown = summary.printable(summary.summarize(three))
    assert not {summary.FAILED} & set(shown)


def test_rates_and_costs_of_errors_are_compared_with_nothing(three):
    six = tables_of("six of wrk")
    failing = changed(six, of(six, "gin"), failed=six.trials["requests"].max() * 0.01, **SHED)
    for tables, why in ((six, ""), (failing, Kind.REQUESTS_FAILED.value)):
        found = ratios.frame(tables)
        pair = found[
            found["load"].eq(HUNDRED) & found["server"].isin(["gin"]) | found["base"].eq("gin")
        ]
        pair = pair[
            pair["load"].eq(HUNDRED)
            & pair["quantity"].isin(["served_rps", "server_cpu_ms_per_request"])
        ]
        assert len(pair) >= 2 and set(pair["why"]) - {"the generator was the limit"} == {why}
    gin = failing.trials[of(failing, "gin")]
    assert not did_at_least(gin) and did_at_least(six.trials[of(six, "gin")])
    assert CPU_PER_REQUEST in OF_TWO_RUNS
    assert not is_the_servers(gin, CPU_PER_REQUEST)
    assert is_the_servers(six.trials[of(six, "gin")], CPU_PER_REQUEST)
    rows = summary.summarize(failing)
    order = summary.cpu_order(failing, rows[rows["load"] == HUNDRED])
    assert "of gin's" in order.partition("Not ranked, because requests failed")[2]


# --- percentiles that a number of requests allows -------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "percent"),
    [
        *(
            (math.nan, None),
            (0, None),
            (199, None),
            (200, 50),
            (1_500, 93),
            (1_999, 94),
            (2_000, 95),
            (9_999, 98),
        ),
        *(
            (10_000, 99),
            (50_000, 99.8),
            (99_999, 99.8),
            (100_000, 99.9),
            (1_000_000, 99.99),
            (10**9, 99.99),
        ),
    ],
)
def test_the_highest_percentile_has_100_requests_beyond_it(requests, percent):
    assert carried_percent(requests) == percent


def test_a_progress_line_says_what_the_sample_carries():
    times = {
        "latency_p50_ms": 0.3,
        "latency_p95_ms": 1001.0,
        "latency_p99_ms": 1002.0,
        "latency_tail_ms": 1001.4,
    }
    assert [*time_words({"requests": 1_500, **times})] == ["p50 0.3 ms", "p93 1,001 ms"]
    assert [*time_words({"requests": 5_000, **times})] == [
        "p50 0.3 ms",
        "p95 1,001 ms",
        "p98 1,001 ms",
    ]
    assert [*time_words({"requests": 50_000, **times})] == [
        "p50 0.3 ms",
        "p95 1,001 ms",
        "p99 1,002 ms",
    ]
    assert [*time_words({"requests": 100, **times})] == ["p50 0.3 ms"]
    assert [*time_words({"requests": 50_000, **dict.fromkeys(times)})] == []


def test_without_an_exact_tail_the_histogram_has_it(three):
    rows = summary.summarize(three).set_index(["load", "server"])
    row = rows.loc[(HUNDRED, "gin")]
    trials = three.trials[of(three, "gin")]
    assert row["tail_percent"] == carried_percent(trials["requests"].min()) > 99
    exact = gmean(
        [
            np.percentile(synthetic_run.latencies(median, 20_000), row["tail_percent"])
            for median in trials["latency_p50_ms"]
        ]
    )
    assert row["tail_ms"] == pytest.approx(exact, rel=0.02)


def test_a_short_load_has_a_reason_for_each_dash(three):
    """If a load has few requests, the table shows the highest percentile that they allow.

    In place of higher percentiles, the table has dashes, and a note says why.
    """
    tail = {"latency_tail_percent": 93.0, "latency_tail_ms": 1001.0}
    short = changed(three, of(three, "gin", K6), requests=1_500.0, **tail)
    table = summary.summarize(short)
    row = table[table["load"].eq(K6) & table["server"].eq("gin")]
    shown = summary.printable(row).iloc[0]
    assert (shown["p95, ms"], shown["p99, ms"], shown["tail, ms"]) == ("–", "–", "p93: 1,001")
    assert summary.notes(row) == tuple(
        f"{name} is missing in 1 row, because a trial has fewer than 100 requests beyond it."
        for name in ("p95", "p99")
    )
    whole = table[table["load"].eq(K6) & table["server"].eq("axum")]
    assert np.isfinite(whole["p95_ms"].iloc[0]) and summary.notes(whole) == ()
    few = summary.summarize(changed(three, requests=150.0))
    assert any(
        note.startswith("tail: a trial has fewer than 200 requests") for note in summary.notes(few)
    )


def test_a_dash_on_a_share_of_a_core_has_its_reason(three):
    nothing = dict.fromkeys(
        [name for name in three.trials if name.startswith("latency_")], math.nan
    )
    table = summary.summarize(changed(three, of(three, "gin", K6), share=0.5, **nothing))
    row = table[table["p50_ms"].isna()]
    (note,) = summary.notes(row)
    assert (
        note
        == "No response times on a share of a core, in 1 row: the server waits for its next period."
    )


def test_percentiles_of_slices_together_are_exact(tmp_path):
    rng = np.random.default_rng(3)
    receiving = rng.uniform(0, 5, 1_500)
    rows = pd.DataFrame(
        {
            "latency_ms": receiving + rng.uniform(1, 9, 1_500),
            "receiving_ms": receiving,
            "status": 200,
        }
    )
    rows.loc[:99, "status"] = 0
    rows.to_parquet(tmp_path / "requests.parquet")
    found = exact_percentiles(tmp_path / "requests.parquet")
    assert found["latency_tail_percent"] == 93
    assert found["latency_tail_ms"] == pytest.approx(np.percentile(rows["latency_ms"], 93))
    answered = rows[rows["status"] > 0]
    first_ms = answered["latency_ms"] - answered["receiving_ms"]
    expected = {
        f"first_byte_p{percent}_ms": np.percentile(first_ms, percent) for percent in (50, 99)
    }
    assert first_byte_percentiles(tmp_path / "requests.parquet") == pytest.approx(expected)


def test_the_first_byte_is_a_column_of_a_run_of_one_s_own_api(three):
    assert summary.of_own_api(three) == {}
    own = changed(campaign_with(three, own={"name": "own-api"}), first_byte_p50_ms=0.55)
    more = summary.of_own_api(own)
    shown = summary.printable(summary.summarize(own), more)
    assert set(shown["first byte p50, ms"]) == {"0.550"}


# --- reasons for an unknown limit -----------------------------------------------------------------


def reasons(*given: str) -> pd.DataFrame:
    verdicts = ["server-bound" if not reason else "inconclusive" for reason in given]
    return with_causes(pd.DataFrame({"verdict": verdicts, "verdict_reason": list(given)}))


def test_the_commonest_reason_is_said_with_its_count():
    busy = "both sides were busy: server used 99 %"
    few = "the rate was not sustained, {} requests were dropped: server"
    assert why_unknown(reasons("", "")) == ""
    assert why_unknown(reasons(busy, busy)) == "both sides were busy"
    assert why_unknown(reasons(busy, "", "")) == "both sides were busy (1 of 3 trials)"
    mixed = reasons(busy, few.format(7), few.format("1,012"))
    assert (
        why_unknown(mixed) == "the rate was not sustained, 7 requests were dropped (2 of 3 trials)"
    )
    assert why_unknown(reasons("neither side was busy")) == "neither side was busy"


def test_the_reason_is_in_the_table_in_json_and_on_the_page(
    shedding, tmp_path, capsys, monkeypatch
):
    folder = synthetic_run.build(tmp_path / "run", k6=("experiments",), wrk=False, failed=False)
    synthetic_run.rewrite(folder, "trials", lambda trials: trials.assign(**SHED))
    tables = read(folder)
    outcome = RunResult(tables.folder, 9, (), ())
    line = f"{K6}, gin: the limit is unknown: 84.6 % of the requests failed."
    measuring.show_result(outcome, False)
    printed = capsys.readouterr()
    assert (
        line in printed.out + printed.err and "† A rate of this load" in printed.out + printed.err
    )
    measuring.show_result(outcome, True)
    assert line in json.loads(capsys.readouterr().out)["unknown"]
    (_, sheet) = parts.unknown(tables)
    assert sheet.frame["why"].to_list() == ["84.6 % of the requests failed"]
    assert {"axum", "gin", "nginx"} == set(sheet.frame["servers"].iloc[0].split(", "))


# --- the probe as a second client -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"verdict": "inconclusive"}, False),
        ({"mode": "close"}, False),
        ({"share": 0.5}, False),
        ({"workload": OWN_SCRIPT}, False),
    ],
)
def test_k6_times_its_own_queue_only_where_it_was_the_limit(changes, said):
    """If k6 was the limit of a closed load, the page says that k6 measured its own queue.

    The page does not say so if k6 was not the limit, or if k6's times cannot be compared with the
    probe's times.
    """
    probed = tables_of("probed")
    closed = probed.trials["tool"].eq("k6") & probed.trials["load_model"].eq("closed")
    facts = {
        "verdict": Limit.GENERATOR.verdict,
        "latency_p50_ms": 245.0,
        "probe_p50_ms": 0.23,
        "share": 1.0,
    }
    tables = changed(probed, closed, **(facts | changes))
    assert ("times its own queue" in findings.two_clients(tables)) is said
    assert bool(queued(tables.trials[closed]).all()) is said


def test_the_page_of_a_trial_has_no_witness_of_new_connections():
    probed = tables_of("probed")
    case = evidence.Case(
        probed, probed.trials.iloc[0].to_dict() | {"mode": "close", "probe_p50_ms": 0.2}, None
    )
    assert evidence.probe_saw(case) == evidence.NO_WITNESS
