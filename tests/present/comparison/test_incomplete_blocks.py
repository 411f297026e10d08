"""Tests of incomplete blocks, in which a server has no sealed trial.

Such a block is left out for all servers of the load if enough complete blocks remain.
"""

from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
from figure_checks import HUNDRED, changed, of, tables_of
from scipy.stats import gmean

from runner.present.answers import findings, summary
from runner.present.comparison import ratios
from runner.present.comparison.ratios import compared, incomplete, not_compared
from runner.present.frames import Tables, with_causes

OTHER = "wrk-matrix, keep-alive, 10 connections"


def trials_of(blocks: int, servers: str = "abc", loads: str = "xy") -> pd.DataFrame:
    """Return a sealed trial of each server under each load in each block."""
    cells = list(product(range(1, blocks + 1), loads, servers))
    return pd.DataFrame(cells, columns=["block", "load", "server"]).assign(status="sealed")


def failed(
    trials: pd.DataFrame, server: str, *blocks: int, load: str = "x", gone: bool = False
) -> pd.DataFrame:
    """Return `trials`, but mark the trials of one server in some blocks of one load as failed.

    If `gone` is True, remove these trials instead.
    """
    chosen = trials["server"].eq(server) & trials["load"].eq(load) & trials["block"].isin(blocks)
    if gone:
        return trials[~chosen]
    return trials.assign(status=trials["status"].mask(chosen, "failed"))


def left_out(trials: pd.DataFrame) -> dict[str, set[int]]:
    """Return the numbers of the blocks that are left out, by load.

    Check that each of these blocks is left out for all servers of the load.
    """
    mask = incomplete(trials)
    assert mask.index.equals(trials.index) and mask.dtype == bool
    by_block = mask.groupby([trials["load"], trials["block"]])
    assert by_block.nunique().eq(1).all(), "a block is left out for some servers only"
    out = trials[mask]
    return {load: set(rows["block"]) for load, rows in out.groupby("load")}


def test_complete_blocks_are_all_kept():
    assert left_out(trials_of(6)) == {}


@pytest.mark.parametrize("gone", [False, True])
def test_a_block_that_lacks_a_server_is_left_out_for_all(gone):
    """If a server has no sealed trial in a block of a load, the block is left out for all servers.

    The block is kept for the other loads.
    """
    assert left_out(failed(trials_of(6), "b", 2, gone=gone)) == {"x": {2}}
    twice = failed(trials_of(8), "b", 2, gone=gone)
    assert left_out(failed(twice, "c", 7, load="y", gone=gone)) == {"x": {2}, "y": {7}}
    assert left_out(failed(twice, "c", 7, gone=gone)) == {"x": {2, 7}}


def test_no_block_is_left_out_if_fewer_than_five_remain():
    assert left_out(failed(trials_of(5), "b", 2)) == {}
    lacking = failed(failed(trials_of(7), "a", 1, 2), "b", 3)
    assert left_out(lacking) == {}, "each has five trials, and only four blocks have all"
    assert left_out(failed(failed(trials_of(8), "a", 1, 2), "b", 3)) == {"x": {1, 2, 3}}


def test_a_server_with_few_trials_makes_no_block_incomplete():
    assert left_out(failed(trials_of(8), "b", 1, 2, 3, 4)) == {}
    assert left_out(failed(trials_of(8), "b", 1, 2, 3)) == {"x": {1, 2, 3}}
    # b has too few trials to be compared. Therefore a block that lacks only b is kept, but a block
    # that lacks c is left out.
    assert left_out(failed(failed(trials_of(8), "b", 1, 2, 3, 4), "c", 8)) == {"x": {8}}


def test_trials_that_were_never_sealed_leave_nothing_out():
    assert left_out(trials_of(6).assign(status="failed")) == {}
    assert incomplete(trials_of(0)).empty


# --- incomplete blocks of a run -------------------------------------------------------------------


@pytest.fixture(scope="module")
def lacking() -> Tables:
    """Return a run of six blocks, but in block 2 gin has no sealed trial under one load."""
    six = tables_of("six of wrk")
    return changed(six, of(six, "gin") & six.trials["block"].eq(2), status="failed")


def test_means_and_ratios_are_those_of_complete_blocks(lacking):
    mask = not_compared(lacking)
    second = of(lacking) & lacking.trials["block"].eq(2)
    assert mask.equals(second.rename(mask.name)) and second.sum() == 3
    axum = lacking.trials[of(lacking, "axum") & ~second]["served_rps"]
    table = summary.summarize(lacking).set_index(["load", "server"])
    assert table.loc[(HUNDRED, "axum"), "rps"] == pytest.approx(gmean(axum))
    assert table.loc[(HUNDRED, "axum"), ["trials", "compared"]].tolist() == [6, 5]
    assert table.loc[(OTHER, "axum"), ["trials", "compared"]].tolist() == [6, 6]
    found = ratios.frame(lacking)
    row = found[found["load"].eq(HUNDRED) & found["quantity"].eq("served_rps")].iloc[0]
    assert row["ours"] == pytest.approx(gmean(axum)) and row["sessions"] == 5
    assert len(compared(lacking, lacking.trials[of(lacking)])) == 15


def test_reasons_for_an_unknown_limit_are_those_of_compared_trials(lacking):
    """If a limit is unknown, the summary gives the reasons of the compared trials only.

    Block 2 is not compared, because gin has no sealed trial in it. So the summary does not give the
    reason of axum's trial in this block.
    """
    of_axum = of(lacking, "axum")
    dropped = {"verdict": "inconclusive", "verdict_reason": "the rate was not sustained: 7"}
    busy = {"verdict": "inconclusive", "verdict_reason": "both sides were busy: 99 %"}
    every = changed(lacking, of_axum, **dropped)
    only_second = changed(lacking, of_axum & lacking.trials["block"].eq(2), **dropped)
    second_too = changed(every, of_axum & lacking.trials["block"].gt(2), **busy)
    said = [
        summary.summarize(replace(each, trials=with_causes(each.trials)))
        .set_index(["load", "server"])
        .loc[(HUNDRED, "axum"), "why_unknown"]
        for each in (every, only_second, second_too)
    ]
    assert said == ["the rate was not sustained", "", "both sides were busy (4 of 5 trials)"]


def test_a_block_left_out_is_said_with_its_reason(lacking):
    cells = lacking.trials[["load", "block"]].drop_duplicates()
    said = findings.unknown(lacking)
    assert (
        f"Left out of means and ratios, for all servers: 1 of {len(cells)} blocks, because one of "
        "the servers has no sealed trial in the same block."
    ) in said
    whole = replace(lacking, trials=lacking.trials.assign(status="sealed"))
    assert not any("Left out" in sentence for sentence in findings.unknown(whole))
