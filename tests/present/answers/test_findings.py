"""Tests of the sentences that say which server of a run is ahead, and by how much.

For the runs of these tests, the right answer is known.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
import synthetic_run
from figure_checks import HUNDRED, campaign_with, changed, of, read, tables_of
from scipy import stats

from runner.present.answers import evidence, findings, summary
from runner.present.comparison import ratios
from runner.present.frames import Tables

ROBBED = {
    "verdict": "inconclusive",
    "verdict_reason": "the hypervisor took CPU time away: server used 70 %",
}


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return a run with six blocks of axum, gin and nginx, in which the server is always the limit.

    Axum answers 2.00 times as many requests/s as gin, at 0.40 times gin's CPU time per request.
    """
    tables = read(
        synthetic_run.build(tmp_path_factory.mktemp("six") / "run", trials=6, failed=False)
    )
    noise = np.random.default_rng(5).lognormal(0, 0.004, len(tables.trials))
    gin = tables.trials["server"] == "gin"
    rps = np.where(gin, 20_000.0, 40_000.0) * noise
    cost = np.where(gin, 0.05, 0.02) / noise
    return changed(tables, served_rps=rps, server_cpu_ms_per_request=cost, verdict="server-bound")


def said(tables: Tables) -> str:
    return "\n".join(findings.sentences(tables))


def row_of(tables: Tables) -> dict[str, Any]:
    """Return the row that compares axum's requests/s with gin's at 100 kept connections."""
    found = ratios.frame(tables)
    chosen = (
        found["load"].eq(HUNDRED) & found["quantity"].eq("served_rps") & found["server"].eq("gin")
    )
    (row,) = found[chosen].to_dict("records")
    return row


def test_the_sentences_name_servers_rates_ratio_and_costs(six):
    cell = six.trials[of(six)].sort_values("block")
    logs = [
        np.log(cell.loc[cell["server"] == name, "served_rps"].to_numpy())
        for name in ("axum", "gin", "nginx")
    ]
    theirs = stats.ttest_rel(*logs[:2]).confidence_interval(0.95)
    ratio = np.exp((logs[0] - logs[1]).mean())
    first, _, costs, *_ = findings.sentences(six)
    assert first == (
        "On a core, with 100 kept connections (wrk-matrix), axum answers "
        f"{round(np.exp(logs[0].mean()), -2):,.0f} requests/s and gin "
        f"{round(np.exp(logs[1].mean()), -2):,.0f}: {ratio:.2f} "
        f"[{np.exp(theirs.low):.2f}–{np.exp(theirs.high):.2f}] times as many as gin (6 trials); "
        "nginx, with fixed bodies, shows what the machine can do: "
        f"{round(np.exp(logs[2].mean()), -2):,.0f}."
    )
    assert 1.97 < ratio < 2.03
    loads = six.trials.loc[six.trials["server"] == "gin", "load"].nunique()
    assert (
        re.fullmatch(
            r"By load, gin takes (2\.\d\d)(?: to (2\.\d\d))? times axum's CPU time per request\.",
            costs,
        )
        and loads > 1
    )


def test_swapped_servers_swap_the_answer(six):
    swapped = six.trials["server"].replace({"axum": "gin", "gin": "axum"})
    text = said(replace(six, trials=six.trials.assign(server=swapped)))
    assert (
        "gin answers 40,1" in text and "times as many as axum" in text and "axum takes 2.4" in text
    )


def test_a_rate_that_the_generator_limited_is_a_bound(six):
    ours, theirs, both = (
        changed(six, of(six, name), verdict="generator-bound") for name in ("axum", "gin", "")
    )
    row = row_of(ours)
    assert (row["low"], row["high"]) == (pytest.approx(2.0, rel=0.02), np.inf)
    assert f"at least {row['low']:.2f} times as many as gin" in findings.sentences(ours)[0]
    assert (row_of(theirs)["low"], row_of(theirs)["high"]) == (0, pytest.approx(2.0, rel=0.02))
    assert row_of(both)["why"] == "the generator was the limit" and np.isnan(row_of(both)["ratio"])
    assert "No ratio of requests/s for 2 of" in " ".join(findings.unknown(both))


def test_a_difference_that_is_not_shown_is_no_lead(six):
    rates = 30_000 * np.random.default_rng(6).lognormal(0, 0.01, len(six.trials))
    even = replace(six, trials=six.trials.assign(served_rps=rates))
    assert row_of(even)["low"] < 1 < row_of(even)["high"]
    assert "no difference is shown (" in findings.sentences(even)[0]


def test_few_trials_are_said_and_give_no_ratio(six):
    few = replace(six, trials=six.trials[six.trials["block"] <= 3])
    assert ratios.frame(few)["why"].ne("").all()
    assert "fewer than 5 trials" in " ".join(findings.unknown(few))
    assert "times as many" not in said(few)


def test_response_times_are_compared_at_offered_rates_only(tmp_path):
    tables = read(synthetic_rates.build(tmp_path / "run"))
    found = ratios.frame(tables)
    times = found[found["quantity"].isin(["latency_p50_ms", "latency_p99_ms"])]
    assert set(times["load"]) <= set(
        tables.trials.loc[tables.trials["load_model"] == "open", "load"]
    )
    assert times["why"].eq("").any()
    assert "which all of them sustain, the median response time of" in said(tables)


def with_twin(tables: Tables, shift: float, noise: float = 0.0) -> Tables:
    """Return the run with gin-b, a second name of gin.

    The rates of gin-b are the rates of gin times `shift`, times log-normal noise whose standard
    deviation is `noise`.
    """
    twin = tables.trials[tables.trials["server"] == "gin"].assign(server="gin-b")
    twin["served_rps"] *= shift * np.random.default_rng(7).lognormal(0, noise, len(twin))
    trials = pd.concat([tables.trials, twin], ignore_index=True)
    return replace(campaign_with(tables, copies=[["gin-b", "gin"]]), trials=trials)


def test_a_second_label_is_noise_and_no_server(six):
    both = with_twin(six, 1.03)
    one = row_of(six)
    two = row_of(both)
    assert two["ratio"] == one["ratio"]
    assert (two["low"], two["high"]) == pytest.approx(
        (one["low"] / 1.03, one["high"] * 1.03), rel=1e-9
    )
    assert "gin-b" not in said(both)
    text = findings.unknown(both)[-1]
    loads = six.trials.loc[six.trials["load_model"] == "closed", "load"].nunique()
    assert text.startswith(
        f"gin-b is gin under a second name: their rates differed by a factor of 1.03 over {loads} "
    )


def in_sessions(tables: Tables) -> Tables:
    sessions = "b" + tables.trials["block"].astype(str) + "-" + tables.trials["load"]
    return replace(tables, trials=tables.trials.assign(session=sessions))


@pytest.mark.parametrize(("shift", "wider"), [(1.0, False), (1.03, True)])
def test_two_labels_widen_an_interval_only_if_they_differ(six, shift, wider):
    """In a run in sessions, gin has a second name, under which it was measured again.

    The second name widens the interval of the ratio of axum to gin, but only if the rates of the
    two names differ.
    """
    alone = row_of(in_sessions(six))
    found = row_of(with_twin(in_sessions(six), shift, noise=0.002))
    assert (found["high"] > 1.02 * alone["high"]) is wider
    assert (found["high"] == alone["high"]) is not wider


def test_a_disturbed_session_is_left_out_for_all_its_servers(tmp_path):
    seven = read(synthetic_run.build(tmp_path / "run", trials=7, failed=False))
    seven = in_sessions(changed(seven, verdict="server-bound", verdict_reason="full"))
    block = seven.trials["block"]
    # The disturbed trial has an absurd rate. If the trial were kept, the ratio would change a lot.
    theft = of(seven, "gin") & block.eq(2)
    once = changed(seven, theft, served_rps=1.0, **ROBBED)
    without = replace(seven, trials=seven.trials[~(of(seven) & block.eq(2))])
    keys = ("ratio", "low", "high", "ours", "theirs", "sessions")
    assert [row_of(once)[key] for key in keys] == [row_of(without)[key] for key in keys]
    assert row_of(seven)["sessions"] == 7 and row_of(once)["sessions"] == 6
    cells = once.trials.loc[once.trials["status"] == "sealed", ["load", "block"]]
    assert (
        f"Left out of means and ratios, for all servers: 1 of {len(cells.drop_duplicates())} "
        "sessions, because the hypervisor or other programs took so much CPU time that the limit "
        "is unknown."
    ) in findings.unknown(once)
    # If the limit is unknown because of the load or the server, the trial is kept. Here the reason
    # is that both sides were busy.
    busy = changed(
        seven,
        theft,
        verdict="inconclusive",
        verdict_reason="both sides were busy: server used 99 %",
    )
    assert row_of(busy)["sessions"] == 7 and row_of(busy)["low"] == 0
    # If too few trials would be left without the disturbed trials, all trials are kept, and the
    # load has no ratio.
    often = changed(seven, of(seven) & block.isin([1, 2, 3]), **ROBBED)
    assert row_of(often)["why"] == "the limit is unknown"


@pytest.fixture(scope="module")
def run_sample():
    return tables_of("sample")


@pytest.mark.parametrize("run", ["sample", "all"])
def test_the_committed_runs_are_answered_in_five_sentences(run):
    tables = tables_of(run)
    sentences = findings.sentences(tables)
    assert 3 <= len(sentences) <= 5
    assert not any(word in said(tables) for word in ("nobody", "tie", "≈", "nan"))
    assert all(len(sentence) < 400 for sentence in sentences)
    if run == "sample":  # in the sample, the generator was the limit of some trials
        closed = tables.trials[
            (tables.trials["tool"] == "k6") & (tables.trials["status"] == "sealed")
        ]
        times = closed["latency_p50_ms"] / closed["probe_p50_ms"]
        of_cells = times.groupby([closed["workload"], closed["server"]]).median()
        workload, server = of_cells.idxmax()
        alike = closed["workload"].eq(workload) & closed["server"].eq(server)
        known_ms = closed.loc[alike & times.notna(), "latency_p50_ms"]
        assert len(known_ms) == 10
        row = closed.loc[known_ms.sort_values().index[4]]
        (text,) = [sentence for sentence in sentences if "second client" in sentence]
        assert f"median response time of {row['latency_p50_ms']:.0f} ms for {row['server']}" in text
        assert f"saw {row['probe_p50_ms']:.3f} ms" in text


def ranges_by_pandas(tables: Tables, quantity: str) -> list[tuple[str, float, float]]:
    """Return [("gin", lowest, highest)]: the range of the ratios of axum to gin in the sample.

    A ratio above 1 means that axum is better: it is axum / gin for a rate, and gin / axum for a
    cost. There is a ratio for each load of wrk, because gin ran under no other loads. Also check
    that every trial has a verdict that allows a ratio.
    """
    trials = tables.trials[tables.trials["status"].eq("sealed")]
    trials = trials[trials["workload"].eq("wrk-matrix")]
    assert set(trials["verdict"]) == {"server-bound", "serial"}
    wide = np.log(trials[quantity]).groupby([trials["load"], trials["server"]]).mean().unstack()
    apart = wide["axum"] - wide["gin"]
    ratios = np.exp(apart if quantity == "served_rps" else -apart)
    return [("gin", ratios.min(), ratios.max())]


def test_the_first_screen_has_one_range_per_quantity_and_times(run_sample):
    """The first screen has one sentence per quantity, with the range of the ratios over all loads.

    The ratio and the rates under a single load are not on the first screen, but below it.
    """
    first = findings.first_screen(run_sample)
    assert len(first) == 3
    for sentence, quantity in zip(first, ("served_rps", "server_cpu_ms_per_request"), strict=False):
        assert "[" not in sentence
        for server, low, high in ranges_by_pandas(run_sample, quantity):
            assert re.search(rf"\b{server}\b", sentence)
            assert f"{low:.2f} to {high:.2f}" in sentence
    assert "the median response time of" in first[2]
    further = findings.further(run_sample)
    assert "requests/s, actix" in further[0]
    assert {*first, *further} == set(findings.sentences(run_sample))
    assert not set(first) & set(further)


def test_a_run_that_cannot_compare_has_its_other_sentences_first():
    (only,) = findings.first_screen(tables_of("seeds"))
    assert "a second client saw" in only and findings.further(tables_of("seeds")) == ()


def test_the_line_on_warnings_counts_what_concerns_the_numbers(run_sample, six):
    lost = sum(
        "no figure includes" in warning or "no number includes" in warning
        for warning in summary.warnings_of(run_sample)
    )
    every = len(summary.warnings_of(run_sample))
    assert summary.warnings_line(run_sample) == (
        f"{every} warnings: {every - lost} on how these numbers were measured, {lost} on trials "
        "that are left out of all numbers."
    )
    failed = six.trials["trial_id"] == six.trials["trial_id"].iloc[0]
    one_lost = changed(six, failed, status="failed")
    assert "trials that are left out of all numbers" in summary.warnings_line(one_lost)


def test_a_run_without_sealed_trials_says_so(six):
    none = replace(six, trials=six.trials.assign(status="failed"))
    assert findings.sentences(none) == (findings.NO_SEALED_TRIAL,) and ratios.frame(none).empty


def test_the_proof_says_how_busy_generator_and_server_were(run_sample):
    """The proof gives the mean CPU use of each side, weighted by the time of each sample.

    In the trial that the proof is about, server and generator had a core each.
    """
    case = findings.queued_case(run_sample)
    assert case is not None
    duration_s = case.row["duration_s"]
    of_trial = run_sample.resources[run_sample.resources["trial_id"] == case.row["trial_id"]]
    busy_pct = {}
    for subject, samples in of_trial.groupby("subject"):
        begin = (samples["t_s"] - samples["dt_s"]).clip(lower=0)
        within_s = (samples["t_s"].clip(upper=duration_s) - begin).clip(lower=0)
        busy_pct[subject] = (samples["cpu_pct"] * within_s).sum() / duration_s
    said = evidence.law_words(case)
    assert f"k6, at {busy_pct['generator']:.0f} % of its CPU, limits the rate" in said
    assert said.endswith(f"; the server used {busy_pct['server']:.0f} % of its CPU.")
