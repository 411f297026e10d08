"""The answer in sentences, against runs in which who is ahead, and by how much, is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
import synthetic_run
from scipy import stats

from runner.present.answers import findings
from runner.present.figures import ratios
from runner.present.frames import Tables, read_tables
from runner.store import RunFolder

ROOT = Path(__file__).parents[1]
HUNDRED = "wrk-matrix, keep-alive, 100 connections"


def read(path: Path) -> Tables:
    return read_tables(RunFolder(path))


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Six blocks of axum, gin and nginx, all server-bound; axum does 2.00 times gin's rate at 0.40 of its CPU."""
    tables = read(synthetic_run.build(tmp_path_factory.mktemp("six") / "run", trials=6, failed=False))
    rng = np.random.default_rng(5)
    noise = rng.lognormal(0, 0.004, len(tables.trials))
    gin = tables.trials["server"] == "gin"
    trials = tables.trials.assign(
        rps=np.where(gin, 20_000.0, 40_000.0) * noise,
        server_cpu_ms_per_request=np.where(gin, 0.05, 0.02) / noise,
        verdict="server-bound",
    )
    return replace(tables, trials=trials)


def said(tables: Tables) -> str:
    return "\n".join(findings.sentences(tables))


def row_of(tables: Tables, load: str) -> dict[str, Any]:
    """Return axum's ratio of rates to gin under a load."""
    found = ratios.frame(tables)
    (row,) = found[(found["load"] == load) & (found["quantity"] == "rps") & (found["server"] == "gin")].to_dict(
        "records"
    )
    return row


def changed(tables: Tables, rows: pd.Series, **values: object) -> Tables:
    trials = tables.trials.copy()
    for column, value in values.items():
        trials.loc[rows, column] = value
    return replace(tables, trials=trials)


def test_the_first_sentence_names_both_servers_their_rates_and_the_ratio(six: Tables) -> None:
    cell = six.trials[six.trials["load"] == HUNDRED].sort_values("block")
    logs = [np.log(cell.loc[cell["server"] == name, "rps"].to_numpy()) for name in ("axum", "gin")]
    theirs = stats.ttest_rel(*logs).confidence_interval(0.95)
    ratio = np.exp((logs[0] - logs[1]).mean())
    assert findings.sentences(six)[0] == (
        "On a core, with 100 kept connections (wrk-matrix), axum answers "
        f"{round(np.exp(logs[0].mean()), -2):,.0f} requests/s and gin {round(np.exp(logs[1].mean()), -2):,.0f}: "
        f"{ratio:.2f} [{np.exp(theirs.low):.2f}–{np.exp(theirs.high):.2f}] times as many as gin (6 trials)."
    )
    assert 1.97 < ratio < 2.03


def test_the_costs_are_said_over_all_loads(six: Tables) -> None:
    text = findings.sentences(six)[2]
    loads = six.trials.loc[six.trials["server"] == "gin", "load"].nunique()
    assert text.startswith("Over all loads gin took 2.4") and f"axum's CPU time per request ({loads} loads)." in text


def test_swapped_servers_swap_the_answer(six: Tables) -> None:
    swapped = six.trials["server"].map({"axum": "gin", "gin": "axum", "nginx": "nginx"})
    text = said(replace(six, trials=six.trials.assign(server=swapped)))
    assert "gin answers 40,1" in text and "times as many as axum" in text and "axum took 2.4" in text


def test_a_rate_that_the_generator_limited_is_a_bound(six: Tables) -> None:
    rows = six.trials["load"].eq(HUNDRED) & six.trials["server"].eq("axum")
    bound = changed(six, rows, verdict="generator-bound")
    (row,) = ratios.frame(bound).query("load == @HUNDRED and quantity == 'rps' and server == 'gin'").to_dict("records")
    assert row["high"] == np.inf and row["low"] == pytest.approx(2.0, rel=0.02)
    assert f"at least {row['low']:.2f} times as many as gin" in findings.sentences(bound)[0]
    other = changed(six, six.trials["load"].eq(HUNDRED) & six.trials["server"].eq("gin"), verdict="generator-bound")
    (row,) = ratios.frame(other).query("load == @HUNDRED and quantity == 'rps' and server == 'gin'").to_dict("records")
    assert row["low"] == 0 and row["high"] == pytest.approx(2.0, rel=0.02)
    both = changed(six, six.trials["load"].eq(HUNDRED), verdict="generator-bound")
    (row,) = ratios.frame(both).query("load == @HUNDRED and quantity == 'rps' and server == 'gin'").to_dict("records")
    assert row["why"] == "the generator was the limit" and np.isnan(row["ratio"])
    assert "No ratio of requests/s for 2 of" in " ".join(findings.unknown(both))


def test_a_difference_that_is_not_shown_is_no_lead(six: Tables) -> None:
    rng = np.random.default_rng(6)
    even = replace(six, trials=six.trials.assign(rps=30_000 * rng.lognormal(0, 0.01, len(six.trials))))
    (row,) = ratios.frame(even).query("load == @HUNDRED and quantity == 'rps' and server == 'gin'").to_dict("records")
    assert row["low"] < 1 < row["high"]
    assert "no difference is shown (" in findings.sentences(even)[0]


def test_few_trials_are_said_and_give_no_ratio(tmp_path: Path) -> None:
    few = read(synthetic_run.build(tmp_path / "run", trials=3))
    assert ratios.frame(few)["why"].ne("").all()
    assert "fewer than 5 trials" in " ".join(findings.unknown(few))
    assert "times as many" not in said(few)


def test_response_times_are_compared_at_offered_rates_only(tmp_path: Path) -> None:
    tables = read(synthetic_rates.build(tmp_path / "run"))
    found = ratios.frame(tables)
    offered = set(tables.trials.loc[tables.trials["load_model"] == "open", "load"])
    times = found[found["quantity"].isin(["latency_p50_ms", "latency_p99_ms"])]
    assert set(times["load"]) <= offered and times["why"].eq("").any()
    assert "which all keep, one in two requests takes" in said(tables)


def test_a_second_label_is_noise_and_no_server(six: Tables) -> None:
    twin = six.trials[six.trials["server"] == "gin"].assign(server="gin-b")
    twin["rps"] *= 1.03
    campaign = {**(six.manifest.get("campaign") or {}), "copies": [["gin-b", "gin"]]}
    both = Tables(
        {**six.manifest, "campaign": campaign},
        pd.concat([six.trials, twin]),
        six.latency,
        six.throughput,
        six.resources,
    )
    one, two = (row_of(tables, HUNDRED) for tables in (six, both))
    assert two["ratio"] == one["ratio"] and (two["low"], two["high"]) == pytest.approx(
        (one["low"] / 1.03, one["high"] * 1.03), rel=1e-9
    )
    assert "gin-b" not in said(both)
    (text,) = findings.same_twice(both)
    loads = six.trials.loc[six.trials["load_model"] == "closed", "load"].nunique()
    assert text.startswith(f"gin-b is gin under a second label: their rates differed by a factor of 1.03 over {loads} ")


def in_sessions(tables: Tables) -> Tables:
    blocks = tables.trials["block"].astype(str)
    return replace(tables, trials=tables.trials.assign(session="b" + blocks + "-" + tables.trials["load"]))


def test_within_sessions_two_labels_widen_an_interval_only_where_they_come_out_apart(six: Tables) -> None:
    six = in_sessions(six)
    alone = row_of(six, HUNDRED)
    for shift, wider in ((1.0, False), (1.03, True)):
        twin = six.trials[six.trials["server"] == "gin"].assign(server="gin-b")
        twin["rps"] *= shift * np.random.default_rng(7).lognormal(0, 0.002, len(twin))
        campaign = {**(six.manifest.get("campaign") or {}), "copies": [["gin-b", "gin"]]}
        both = replace(
            six,
            manifest={**six.manifest, "campaign": campaign},
            trials=pd.concat([six.trials, twin], ignore_index=True),
        )
        found = row_of(both, HUNDRED)
        assert (found["high"] > 1.02 * alone["high"]) is wider, shift
        assert (found["high"] == alone["high"]) is not wider, shift


def test_a_session_that_others_disturbed_is_left_out_for_all_its_servers(tmp_path: Path) -> None:
    seven = read(synthetic_run.build(tmp_path / "run", trials=7, failed=False))
    seven = in_sessions(changed(seven, seven.trials["server"].ne(""), verdict="server-bound", verdict_reason="full"))
    rows = seven.trials["load"].eq(HUNDRED)
    robbed = {"verdict": "inconclusive", "verdict_reason": "the hypervisor took CPU time away: server used 70 %"}
    first, second, third = sorted(seven.trials.loc[rows, "block"].unique())[:3]
    whole = row_of(seven, HUNDRED)
    # A rate that the theft halved: with it the ratio would be another.
    theft = rows & seven.trials["server"].eq("gin") & seven.trials["block"].eq(second)
    once = changed(seven, theft, rps=1.0, **robbed)
    without = replace(seven, trials=seven.trials[~(rows & seven.trials["block"].eq(second))])
    for key in ("ratio", "low", "high", "ours", "theirs", "sessions"):
        assert row_of(once, HUNDRED)[key] == row_of(without, HUNDRED)[key]
    assert whole["sessions"] == 7 and row_of(once, HUNDRED)["sessions"] == 6
    assert "Left out of ratios, for all servers: 1 of" in " ".join(findings.unknown(once))
    # Another reason is about the servers, and is no accident.
    busy = changed(seven, theft, verdict="inconclusive", verdict_reason="both sides were busy: server used 99 %")
    assert row_of(busy, HUNDRED)["sessions"] == 7 and row_of(busy, HUNDRED)["low"] == 0
    # Where too few would be left, all stay, and bar the load as they are.
    often = changed(seven, rows & seven.trials["block"].isin([first, second, third]), **robbed)
    assert row_of(often, HUNDRED)["why"] == "the limit is unknown"


def test_two_clients_are_said_where_the_generator_was_the_limit() -> None:
    sample = read(ROOT / "data" / "sample")
    (text,) = [sentence for sentence in findings.sentences(sample) if "second client" in sentence]
    closed = sample.trials[(sample.trials["tool"] == "k6") & (sample.trials["status"] == "sealed")]
    row = closed.loc[(closed["latency_p50_ms"] / closed["probe_p50_ms"]).idxmax()]
    assert f"median response time of {row['latency_p50_ms']:.0f} ms for {row['server']}" in text
    assert f"saw {row['probe_p50_ms']:.3f} ms" in text


@pytest.mark.parametrize("run", ["sample", "all"])
def test_the_committed_runs_are_answered_in_five_sentences_at_most(run: str) -> None:
    tables = read(ROOT / "data" / run)
    sentences = findings.sentences(tables)
    assert 3 <= len(sentences) <= 5
    assert not any(word in said(tables) for word in ("nobody", "tie", "≈", "nan"))
    assert all(len(sentence) < 400 for sentence in sentences)


def test_a_run_without_sealed_trials_says_so(six: Tables) -> None:
    none = replace(six, trials=six.trials.assign(status="failed"))
    assert findings.sentences(none) == (findings.NOTHING,)
    assert ratios.frame(none).empty
