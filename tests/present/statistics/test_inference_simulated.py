"""Tests of the error rates that intervals, tests and rankings promise.

Thousands of campaigns are simulated, so the true values are known.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from built import ROOT
from scipy import stats
from scipy.special import ndtr

from runner.present.statistics import inference
from runner.present.statistics.inference import (
    ALPHA,
    LOOK_ALPHA,
    LOOKS,
    band,
    noise_floor,
    paired,
    ratio,
    sample_of,
)
from runner.present.statistics.ranking import rank
from runner.present.statistics.significance import Drift, drift, holm, mann_whitney_p, within_blocks
from runner.present.statistics.stats import histogram_quantile
from runner.store import RunFolder

pytestmark = pytest.mark.long

CAMPAIGNS = 2_000
NOISE = 0.02
Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]
USUAL: dict[str, Draw] = {
    "log-normal": lambda rng, shape: rng.standard_normal(shape),
    "t with 3 degrees": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "Laplace": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
}
"""Functions that draw random noise, by the name of the noise's distribution.

The noise is added to logarithms of results, in units of NOISE. Some of the distributions have light
tails, and others have heavy tails.
"""
ODD: dict[str, Draw] = {
    "one in ten five times as far": lambda rng, shape: (
        rng.standard_normal(shape) * rng.choice([1, 5], shape, p=(0.9, 0.1))
    ),
    "slowed down only": lambda rng, shape: 1 - rng.exponential(size=shape),
    "two modes": lambda rng, shape: rng.choice([-1.0, 1.0], shape) + rng.normal(0, 0.1, shape),
    "uniform": lambda rng, shape: rng.uniform(-1.7, 1.7, shape),
}
ALL = USUAL | ODD


def campaigns(name: str, n: int, sides=1, block=0.0, seed=7, times=CAMPAIGNS) -> np.ndarray:
    """Return logarithms of results of equal servers, as an array (sides, campaigns, blocks).

    A side is one of the servers. In each block, all sides are shifted by the same random effect.
    `block` is the standard deviation of this effect, in units of NOISE. `times` is the number of
    campaigns, and `n` the number of blocks.
    """
    rng = np.random.default_rng([seed, n, sides, round(10 * block)])
    shared = block * rng.standard_normal((times, n))
    return NOISE * (np.stack([ALL[name](rng, (times, n)) for _ in range(sides)]) + shared)


def apart(name: str, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms of results of two equal servers that have no block in common."""
    return campaigns(name, n)[0], campaigns(name, m, seed=8)[0]


def covers(ends: Any, truth: float = 0.0) -> float:
    low, high = ends
    return 100 * float(np.mean((low <= truth) & (truth <= high)))


# --- how often intervals cover the true value -----------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [6, 9, 10, 20])
def test_an_interval_of_the_median_covers_as_often_as_it_says(name, n):
    values = np.exp(ALL[name](np.random.default_rng(n), (CAMPAIGNS, n)))
    truth = np.median(np.exp(ALL[name](np.random.default_rng(1), (400_001,))))
    found = [each for campaign in values if (each := inference.sure_spread(campaign)).confidence]
    says = 100 * found[0].confidence
    assert says >= 95 and len(found) == CAMPAIGNS
    # If there are two modes, the true median may be anywhere in the gap between them. So it is not
    # known which value the interval should cover.
    if name != "two modes":
        assert covers(
            np.array([(each.low, each.high) for each in found]).T, truth
        ) == pytest.approx(says, abs=1.5)


@pytest.mark.parametrize(
    ("name", "n", "block", "least", "most"),
    [
        *(
            (name, n, block, 93, 97)
            for name in USUAL
            for n in (5, 6, 7, 10, 20)
            for block in (0.0, 1.0, 3.0)
        ),
        *((name, n, 1.0, 92.5, 98) for name in ODD for n in (5, 10, 20)),
    ],
)
def test_a_ratio_within_blocks_covers_in_93_to_97_percent(name, n, block, least, most):
    """The interval of a ratio within blocks covers the true ratio in 93 to 97 % of the campaigns.

    If the noise has an odd distribution, the limits are 92.5 and 98 %.
    """
    a, b = campaigns(name, n, 2, block)
    assert least <= covers(paired(a, b).interval()) <= most
    assert block or 93 <= covers(paired(a, 3 * b).interval()) <= 97


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 10), (10, 10), (20, 6)])
def test_a_ratio_without_blocks_covers_in_93_to_97_percent(name, n, m):
    assert 93 <= covers(inference.unpaired(*apart(name, n, m)).interval()) <= 97


@pytest.mark.parametrize(("blocks", "least"), [(False, 99), (True, 97)])
def test_the_bootstrap_of_log_medians_breaks_its_promise(blocks, least):
    """Intervals from a bootstrap of log medians are far too wide, so the lab does not use them.

    A campaign has two equal servers, so the true difference of their log medians is 0. Its ten
    blocks are resampled 999 times, in the same way for all campaigns. The middle 95 % of the
    resampled differences are the interval, which should cover 0 in 95 % of the campaigns.

    If blocks are drawn separately for each server, the intervals cover 0 in more than 99 % of the
    campaigns, because the bootstrap then ignores that the servers share an effect in each block. If
    the same blocks are drawn for both servers (`blocks`), the intervals still cover 0 in more than
    97 % of the campaigns.
    """
    a, b = campaigns("log-normal", 10, 2, 3.0, times=1_000)
    rng = np.random.default_rng(3)
    drawn_a, drawn_b = rng.integers(0, 10, (2, 999, 10))
    difference = np.median(a[:, drawn_a], axis=2) - np.median(
        b[:, drawn_a if blocks else drawn_b], axis=2
    )
    assert covers(np.quantile(difference, [0.025, 0.975], axis=1)) > least


# --- how often tests and rankings find a difference of equal servers ------------------------------


def corrected(logs: np.ndarray) -> np.ndarray:
    """Return the p-values of all pairs of servers, with Holm's correction.

    `logs` is an array (servers, campaigns, blocks), and the result is an array (campaigns, pairs).
    """
    pairs = list(combinations(logs, 2))
    return holm(np.stack([within_blocks(*pair, ALPHA / len(pairs)) for pair in pairs], axis=-1))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("servers", "n"), [(2, 5), (2, 9), (2, 20), (3, 5), (3, 11), (5, 5), (5, 10), (9, 5), (9, 10)]
)
def test_equal_servers_differ_in_at_most_5_percent(name, servers, n):
    p = corrected(campaigns(name, n, servers, 1.0))
    # A share of 2,000 campaigns has a standard error of 0.5 %. So the share may exceed 5 % by three
    # standard errors.
    assert np.mean(p.min(axis=-1) <= ALPHA) <= 0.05 + 0.015


@pytest.mark.parametrize(("n", "m"), [(6, 6), (10, 8)])
def test_by_mann_whitney_equals_differ_in_at_most_5_percent(n, m):
    sides = zip(*(side[:1000] for side in apart("t with 3 degrees", n, m)), strict=True)
    assert np.mean([mann_whitney_p(*pair) <= ALPHA for pair in sides]) <= 0.05 + 0.02


@pytest.mark.parametrize(("servers", "n", "shift"), [(2, 10, 1.2), (4, 5, 4.0)])
def test_the_ranking_says_what_the_tests_say(servers, n, shift):
    logs = campaigns("log-normal", n, servers, 1.0)[:, :150]
    logs[0] += shift * NOISE
    differ = corrected(logs) <= ALPHA
    assert 0.1 < differ.mean() < 0.9
    for campaign, wanted in enumerate(differ):
        ranking = rank(
            {
                str(server): sample_of(np.exp(logs[server, campaign]), range(n))
                for server in range(servers)
            }
        )
        found = {frozenset(names): pair.differ for names, pair in ranking.pairs.items()}
        ranked = [found[frozenset(map(str, pair))] for pair in combinations(range(servers), 2)]
        # A permutation test may find a difference although Student's interval still contains 1. In
        # this case the ranking calls the pair a tie.
        assert all(by_test or not by_rank for by_test, by_rank in zip(wanted, ranked, strict=True))
        assert n == 10 or ranked == wanted.tolist()


def test_a_noise_floor_makes_false_positives_rarer():
    """With a noise floor, false positives are rarer, but a difference of 10 % is still found."""
    false = 0
    false_without = 0
    found = 0
    for one, again, other in zip(
        *np.exp(campaigns("log-normal", 10, 3, 1.0, times=300)), strict=True
    ):
        label = sample_of(one, range(10))
        same = ratio(label, sample_of(again, range(10)))
        for shift, floor in ((1.0, 1.0), (1.0, noise_floor(same)), (1.1, noise_floor(same))):
            ranking = rank(
                {"one": label, "other": sample_of(other * shift, range(10))}, floor=floor
            )
            (pair,) = ranking.pairs.values()
            false_without += pair.differ and floor == 1
            false += pair.differ and floor > 1 == shift
            found += pair.differ and shift > 1
    assert false <= false_without <= 300 * (0.05 + 3 * 0.0126)
    assert found > 300 * 0.98


# --- how often a true difference is found ---------------------------------------------------------


@pytest.mark.parametrize(("servers", "n", "least"), [(2, 10, 90), (5, 10, 90), (2, 5, 75)])
def test_five_percent_is_found_at_two_percent_noise(servers, n, least):
    logs = campaigns("log-normal", n, servers, 3.0)
    logs[0] += np.log(1.05)
    assert 100 * np.mean(corrected(logs)[:, 0] <= ALPHA) >= least


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("alpha", [ALPHA, ALPHA / 10])
def test_a_detectable_ratio_is_found_in_four_of_five_campaigns(n, alpha):
    # Welch's test has less power, because it estimates two variances. The loss is larger if the
    # level is low and there are few trials.
    missed = 0.03 if n > 5 or alpha == ALPHA else 0.08
    for test, degrees, block, off in (
        (paired, n - 1, 1.0, 0.03),
        (inference.unpaired, 2 * n - 2, 0.0, missed),
    ):
        a, b = campaigns("log-normal", n, 2, block)
        spread = NOISE * np.sqrt(
            2 / n
        )  # the standard error of the difference of two means of n logarithms each
        known = inference.Ratio(
            ratio=1, low=1, high=1, p=1, blocks=0, standard_error=spread, degrees=degrees
        )
        shift = np.log(known.detectable(alpha))
        assert np.mean(test(a + shift, b).p_value() <= alpha) == pytest.approx(0.8, abs=off)


# --- how often a run is said to drift -------------------------------------------------------------


def drifts(
    seed: int, runs: int, cells: int, blocks: int, slope: float, noise: float
) -> list[Drift]:
    """Return the drift that is found in each of `runs` simulated runs.

    A run measures `cells` cells in each block, in random order. From its first to its last trial,
    the logarithms of the results fall by `slope`.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        order = np.concatenate([rng.permutation(cells) for _ in range(blocks)])
        logs = rng.normal(0, noise, order.size) - np.linspace(0, slope, order.size)
        found.append(drift(np.arange(order.size), np.exp(logs), order))
    return found


def test_a_steady_run_drifts_in_5_percent_of_cases():
    """About 5 % of the steady runs are said to drift.

    By the textbook's test of Spearman's rho, clearly more than 5 % would be said to drift.
    """
    found = drifts(5, 600, cells=28, blocks=3, slope=0.0, noise=0.1)
    textbook = [
        2 * stats.t.sf(abs(each.rho) * np.sqrt(82 / (1 - each.rho**2)), 82) for each in found
    ]
    assert 0.025 <= np.mean([each.p <= 0.05 for each in found]) <= 0.075
    assert np.mean(np.array(textbook) <= 0.05) > 0.075


def test_a_run_that_slows_by_twice_the_noise_is_found_to_drift():
    found = drifts(6, 100, cells=14, blocks=5, slope=0.04, noise=0.02)
    assert np.mean([each.p <= 0.05 and each.rho < 0 for each in found]) > 0.9


# --- how often bands of latency curves cover the true curve ---------------------------------------

EDGES = np.arange(-2.5, 3.5, 0.04)
QUANTILES = np.array([0.5, 0.9, 0.99])


def trial_quantiles(
    rng: np.random.Generator, trials: int, between: float, within: float
) -> np.ndarray:
    """Return quantiles of latencies of simulated trials, as an array (trials, QUANTILES).

    A trial has 500 requests in each of 8 seconds. The logarithm of the median varies between trials
    and between the seconds of a trial, with the standard deviations `between` and `within`.
    """
    centers = rng.normal(0, between, (trials, 1)) + rng.normal(0, within, (trials, 8))
    borders = ndtr((EDGES - centers[..., np.newaxis]) / 0.5)
    borders[..., 0], borders[..., -1] = 0, 1
    counts = rng.multinomial(4000, np.diff(borders).mean(axis=1))
    ms = np.exp(EDGES)
    return np.array([histogram_quantile(ms[:-1], ms[1:], trial, QUANTILES) for trial in counts])


@pytest.mark.parametrize(
    ("trials", "between", "within"), [(5, 0.0, 0.05), (5, 0.05, 0.05), (10, 0.05, 0.2)]
)
def test_latency_bands_cover_in_93_to_97_percent(trials, between, within):
    rng = np.random.default_rng(9)
    truth = np.exp(np.log(trial_quantiles(rng, 10_000, between, within)).mean(axis=0))
    # The quantiles of all campaigns are joined into one long curve, so that one call of `band`
    # computes the bands of all campaigns.
    found = band(
        np.stack([trial_quantiles(rng, CAMPAIGNS, between, within).ravel() for _ in range(trials)])
    )
    low_ms = found.low_ms.reshape(-1, 3)
    high_ms = found.high_ms.reshape(-1, 3)
    inside = (low_ms <= truth) & (truth <= high_ms)
    assert all(93 <= share <= 97 for share in 100 * inside.mean(axis=0))


# --- a run that is judged several times while it goes on ------------------------------------------


def looks(differences: np.ndarray) -> np.ndarray:
    """Return p-values of Student's two-sided test for campaigns that are tested several times.

    A campaign is tested after each number of sessions in LOOKS, and may end after any of these
    tests, which are called looks. A row of `differences` has the log ratio of each session of a
    campaign. The result has a row per campaign, and a column per look.
    """
    return np.stack(
        [stats.ttest_1samp(differences[:, :n], 0, axis=1).pvalue for n in LOOKS], axis=1
    )


def test_a_run_that_stops_when_decided_errs_in_5_percent():
    """Of runs of equal servers that stop as soon as they decide, about 5 % find a difference.

    Each run is tested at five looks, at the level LOOK_ALPHA, which is lower than 5 %. At a level
    of 5 % for each look, 14 % of the runs would find a difference.
    """
    smallest = looks(np.random.default_rng(2).normal(0, NOISE, (40_000, LOOKS[-1]))).min(axis=1)
    assert 0.046 <= (smallest < LOOK_ALPHA).mean() <= 0.052
    assert (smallest < ALPHA).mean() > 0.13


def test_a_run_that_stops_when_it_knows_finds_what_there_is():
    """A run that stops when a difference is decided finds a true difference.

    A difference of 5 % with noise of 3 % is found at the first look in more than half of the runs,
    and at one of the looks in nearly all runs.
    """
    found = (
        looks(np.random.default_rng(3).normal(np.log(1.05), 0.03, (4_000, LOOKS[-1]))) < LOOK_ALPHA
    )
    assert found[:, 0].mean() > 0.5 and found.any(axis=1).mean() > 0.99


# --- the lab's noise: slices of one program under two names --------------------------------------


@pytest.fixture(scope="module")
def twins() -> list[np.ndarray]:
    """Return log(gin-b / gin) of requests/s in slices, as an array for each load of the sample.

    gin-b is a second name of gin. An array has a row for each session, and a column for each place
    of a slice in its session. Sessions with fewer than two values are left out. Loads of which
    fewer than five sessions remain are left out, too.
    """
    run = RunFolder(ROOT / "data" / "sample")
    trials, slices = (pd.read_parquet(run.table(name)) for name in ("trials", "slices"))
    rows = slices.merge(
        trials[["trial_id", "server", "session", "workload", "status"]], on=["trial_id", "session"]
    )
    rows = rows[rows["server"].isin(["gin", "gin-b"]) & rows["status"].eq("sealed") & rows["kept"]]
    load = rows["session"].str.partition("-")[2]
    wide = rows.assign(load=load, log=np.log(rows["rps"])).pivot_table(
        index=["load", "session"], columns=["place", "server"], values="log"
    )
    between = wide.xs("gin-b", axis=1, level="server") - wide.xs("gin", axis=1, level="server")
    between = between[between.notna().sum(axis=1) >= 2]
    return [
        np.array([_without_gaps(session) for session in of_load.to_numpy()])
        for _, of_load in between.groupby("load")
        if len(of_load) >= 5
    ]


def _without_gaps(session: np.ndarray) -> np.ndarray:
    """Return the values of a session's kept places, repeated until there is one for each place.

    The value of a place that was left out is NaN in `session`.
    """
    return np.resize(session[~np.isnan(session)], session.size)


def resampled(twins: list[np.ndarray], injected: float, sessions: int, seed: int) -> np.ndarray:
    """Return mean log ratios of resampled slices: a row per campaign, and a column per session.

    Each campaign draws sessions of one load, then slices within these sessions. For each session it
    also draws which label is the numerator, so that the true ratio is 1. Then all ratios are
    multiplied by `injected`, which thus becomes the true ratio.
    """
    rng = np.random.default_rng(seed)
    found = np.empty((CAMPAIGNS, sessions))
    for campaign in range(CAMPAIGNS):
        slices = twins[rng.integers(len(twins))]
        rows = rng.integers(len(slices), size=(sessions, 1))
        places = rng.integers(slices.shape[1], size=(sessions, slices.shape[1]))
        found[campaign] = slices[rows, places].mean(axis=1) * rng.choice([-1, 1], sessions)
    return found + np.log(injected)


@pytest.mark.parametrize("injected", [1.0, 1.05, 1.5, 3.0])
def test_intervals_of_resampled_slices_cover_an_injected_ratio(twins, injected):
    assert len(twins) >= 3 and sum(map(len, twins)) >= 20
    for sessions in (6, 12, 20):
        logs = resampled(twins, injected, sessions, seed=sessions)
        assert 93 <= covers(paired(logs, np.zeros_like(logs)).interval(), np.log(injected)) <= 97


def test_a_run_that_stops_when_decided_fits_resampled_slices(twins):
    """A run that stops when decided is rarely wrong about real slices of a program with two names.

    If both names are equally fast, at most about 5 % of the campaigns find a difference. If one
    name is made faster, it is hardly ever called slower.
    """
    assert (looks(resampled(twins, 1.0, LOOKS[-1], seed=1)) < LOOK_ALPHA).any(
        axis=1
    ).mean() <= 0.055
    faster = resampled(twins, 1.1, LOOKS[-1], seed=2)
    decided = looks(faster) < LOOK_ALPHA
    signs = np.array(
        [
            row[: LOOKS[look]].mean() > 0
            for row, look in zip(faster, decided.argmax(axis=1), strict=True)
        ]
    )
    assert decided.any(axis=1).mean() > 0.9 and signs[decided.any(axis=1)].mean() >= 0.995
