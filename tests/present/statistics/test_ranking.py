"""Tests of rankings, two-sided tests, effect sizes and drift.

Rankings say which servers differ, and are tested with made-up servers. Everything else must agree
with scipy.
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from runner.present.statistics import significance
from runner.present.statistics.inference import Sample, sample_of
from runner.present.statistics.ranking import Ranking, letter_display, rank
from runner.present.statistics.significance import (
    cliffs_delta,
    drift,
    holm,
    mann_whitney_p,
    permutation_p,
)

RNG = np.random.default_rng(12)
BLOCKS = range(1, 11)
LEVELS = {"a": 1.2, "b": 1.1, "c": 1.0}


def noisy(center: float, seed: int, noise: float = 0.01, blocks: range = BLOCKS) -> Sample:
    rng = np.random.default_rng(seed)
    return sample_of(center * rng.lognormal(0, noise, len(blocks)), blocks)


# --- letters that servers without a difference share ----------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_letters_are_the_largest_sets_without_a_difference(seed):
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(rng.integers(1, 9))]
    pairs = list(combinations(names, 2))
    apart = {pair for pair in pairs if rng.random() < rng.choice([0.2, 0.5, 0.8])}
    letters = letter_display(names, apart)
    groups = {
        frozenset(n for n in names if letter in letters[n])
        for letter in set("".join(letters.values()))
    }
    # The expected groups are the largest sets without a pair in `apart`. The test finds these
    # groups by trying all sets.
    sets = [
        frozenset(chosen) for size in range(len(names)) for chosen in combinations(names, size + 1)
    ]
    alike = [each for each in sets if not apart & set(combinations(sorted(each), 2))]
    assert groups == {each for each in alike if not any(each < other for other in alike)}
    assert all(
        (pair in apart) == (not set(letters[pair[0]]) & set(letters[pair[1]])) for pair in pairs
    )


def test_the_first_letter_is_the_foremost_servers():
    assert letter_display(["a", "b", "c"], [("a", "c")]) == {"a": "a", "b": "ab", "c": "b"}
    assert letter_display(["a", "b"], []) == {"a": "a", "b": "a"}
    many = [f"s{i:02d}" for i in range(28)]
    letters = letter_display(many, list(combinations(many, 2)))
    assert [letters[many[i]] for i in (0, 25, 26, 27)] == ["a", "z", "aa", "bb"]


# --- ranks of servers -----------------------------------------------------------------------------


def ranked(servers: dict[str, Sample], **how: Any) -> tuple[Ranking, list[tuple[str, int, str]]]:
    """Return the ranking of servers, and (name, rank, letters) of each server in the ranking.

    If two servers share a letter, no difference between them was found.
    """
    ranking = rank(servers, **how)
    return ranking, [(place.name, place.rank, place.letters) for place in ranking.places]


def test_servers_far_apart_have_an_order():
    servers = {"slow": noisy(80, 1), "fast": noisy(120, 2), "middle": noisy(100, 3)}
    ranking, places = ranked(servers)
    assert places == [("fast", 1, "a"), ("middle", 2, "b"), ("slow", 3, "c")] and ranking.transitive
    pair = ranking.pairs["fast", "slow"]
    assert pair.ratio.low < 1.5 < pair.ratio.high and pair.differ
    assert [name for name, _, _ in ranked(servers, more_is_better=False)[1]] == [
        "slow",
        "middle",
        "fast",
    ]


def test_equal_servers_share_a_rank_and_a_letter():
    """Equal servers share a rank and a letter.

    For such a pair, the ranking gives the smallest difference that would have been found.
    """
    ranking, places = ranked(
        {"one": noisy(100, 1, 0.03), "other": noisy(100, 2, 0.03), "worse": noisy(70, 3, 0.03)}
    )
    assert (
        sorted(places) == [("one", 1, "a"), ("other", 1, "a"), ("worse", 3, "b")]
        and ranking.transitive
    )
    (tie,) = [pair for pair in ranking.pairs.values() if not pair.differ]
    # A power of 80 % at a level of 5 % / 3 needs a difference of about 4 standard errors. With ten
    # blocks and noise of 3 % on each side, a standard error is about 1.3 %.
    assert 1.02 < tie.detectable < 1.09


def test_ties_that_are_not_transitive_get_two_letters():
    """If a ties with b, and b ties with c, but a beats c, then b has the letters of both a and c.

    A server's rank is one more than the number of servers that beat it. No server beats a or b, so
    both have rank 1.
    """
    up = np.tile([1.02, 0.98], 5)
    down = np.tile([0.98, 1.02], 5)
    values = {"a": 103 * up, "b": 101.5 * down, "c": 100 * up}
    ranking, places = ranked({name: sample_of(each, BLOCKS) for name, each in values.items()})
    assert places == [("a", 1, "a"), ("b", 1, "ab"), ("c", 2, "b")] and not ranking.transitive


@pytest.mark.parametrize(("floor", "last"), [(1.0, 2), (1.01, 2), (1.03, 1)])
def test_a_difference_inside_the_noise_floor_is_a_tie(floor, last):
    _, places = ranked({"a": noisy(102, 1, 0.002), "b": noisy(100, 2, 0.002)}, floor=floor)
    assert places == [("a", 1, "a"), ("b", last, "a" if last == 1 else "b")]


def test_fewer_than_two_servers_with_five_trials_are_no_ranking():
    assert rank({}) is None and rank({"a": noisy(100, 1)}) is None
    four = noisy(90, 2, blocks=range(1, 5))
    assert rank({"a": noisy(100, 1), "b": four}) is None
    ranking, places = ranked({"a": noisy(100, 1), "b": four, "c": noisy(120, 3)})
    assert places == [("c", 1, "a"), ("a", 2, "b")] and ranking.few == ("b",)


def test_five_trials_of_nine_different_servers_are_ranked():
    """Nine different servers are ranked after five trials.

    A permutation test could not find any difference, because with five blocks its p-value is at
    least 6 %.
    """
    ranking, places = ranked({f"s{i}": noisy(1.1**i, i, 0.005, range(1, 6)) for i in range(9)})
    assert [name for name, _, _ in places] == [f"s{i}" for i in reversed(range(9))]
    assert np.mean([pair.differ for pair in ranking.pairs.values()]) > 0.95


def test_a_failed_trial_costs_its_block_in_its_pairs_only():
    rng = np.random.default_rng(1)
    machine = np.array([1, 0.6, 1.4, 0.8, 1.2, 0.7, 1.1, 0.9, 1.3, 1])
    values = {
        name: 100 * machine * level * rng.lognormal(0, 0.01, 10) for name, level in LEVELS.items()
    }
    values["c"][0] = np.nan
    ranking, places = ranked({name: sample_of(each, BLOCKS) for name, each in values.items()})
    assert [name for name, _, _ in places] == ["a", "b", "c"]
    assert [pair.ratio.blocks for pair in ranking.pairs.values()] == [10, 9, 9]


def test_an_order_that_missing_blocks_turn_round_is_a_tie():
    """If a missing block turns the order of two means round, the two servers are a tie.

    In the nine blocks that both servers have, b is slower than a. But b has no trial in the block
    in which the machine was slowest, so the mean of all trials of b is higher.
    """
    a = [1.0, *np.full(9, 100.0)]
    b = [np.nan, *np.linspace(94, 96, 9)]
    assert ranked({"a": sample_of(a, BLOCKS), "b": sample_of(b, BLOCKS)})[1] == [
        ("b", 1, "a"),
        ("a", 1, "a"),
    ]


# --- two-sided tests of a difference --------------------------------------------------------------


def scipys(a, **how: Any) -> float:
    """Return scipy's p-value for the differences `a`, which has one element per block.

    scipy's test exchanges the two sides within each block.
    """

    def difference(x, y, axis):
        return np.mean(x - y, axis=axis)

    return stats.permutation_test(
        (a, np.zeros(len(a))), difference, permutation_type="samples", **how
    ).pvalue


@pytest.mark.parametrize("n", [5, 7, 10])
@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_the_permutation_test_within_blocks_is_scipys(n, shift):
    a = RNG.normal(shift, 1, n) - RNG.normal(0, 1, n)
    assert float(permutation_p(a)) == pytest.approx(scipys(a, n_resamples=np.inf), abs=1e-12)


def test_five_blocks_cannot_reach_five_percent_by_permutation():
    assert permutation_p(np.array([[0.5, 0.6, 0.7, 0.5, 0.6], [0] * 5])).tolist() == [2 / 32, 1]


def test_with_many_blocks_permutations_are_seeded_samples():
    """If there are many blocks, only a sample of the permutations is tried.

    The sample is seeded, so the p-value is always the same. The p-value is never zero.
    """
    a = RNG.normal(0.4, 1, 20)
    exact = scipys(a, n_resamples=99_999, rng=1)
    assert float(permutation_p(a)) == pytest.approx(exact, abs=4 * math.sqrt(exact / 9_999))
    assert float(permutation_p(a)) == float(permutation_p(a))
    assert float(permutation_p(np.full(20, 9.0) + RNG.normal(0, 0.1, 20))) == pytest.approx(1e-4)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 9), (12, 10)])
def test_mann_whitney_is_scipys_exact_one(n, m):
    a = RNG.normal(0.5, 1, n)
    b = RNG.normal(0, 1, m)
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: stats.mannwhitneyu(x, y, axis=axis).statistic,
        vectorized=True,
        n_resamples=np.inf if math.comb(n + m, n) < 6000 else 20_000,
        rng=2,
    )
    assert mann_whitney_p(a, b) == pytest.approx(theirs.pvalue, abs=1e-9 if n < 12 else 0.02)


def test_mann_whitney_with_equal_values_is_an_approximation():
    assert mann_whitney_p([1, 1, 2, 3, 3], [1, 1, 2, 3, 3]) == pytest.approx(1, abs=0.02)
    assert mann_whitney_p([1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]) < 0.01


TESTS: dict[str, Callable[..., float]] = {
    "permutation": lambda a, b: float(permutation_p(a - b)),
    "student": lambda a, b: stats.ttest_rel(a, b).pvalue,
    "welch": lambda a, b: stats.ttest_ind(a, b, equal_var=False).pvalue,
    "mann-whitney": mann_whitney_p,
}
"""Functions that return the p-value of a test for the logarithms of two sides, by test."""


@pytest.mark.parametrize(
    ("n", "common", "pairs", "test"),
    [
        (5, True, 1, "student"),
        (10, True, 1, "permutation"),
        (10, True, 36, "student"),
        (20, True, 36, "permutation"),
        (5, False, 1, "welch"),
        (6, False, 1, "mann-whitney"),
        (6, False, 36, "welch"),
        (10, False, 36, "mann-whitney"),
    ],
)
def test_the_distribution_free_test_is_taken_if_it_can_tell(n, common, pairs, test):
    a, b = RNG.lognormal(1, 0.1, (2, n))
    first_block_of_b = 1 if common else 100
    found = significance.difference_p(
        sample_of(a, range(1, n + 1)),
        sample_of(b, range(first_block_of_b, first_block_of_b + n)),
        0.05 / pairs,
    )
    p = {name: each(np.log(a), np.log(b)) for name, each in TESTS.items()}
    assert [name for name in TESTS if found == pytest.approx(p[name], rel=1e-9)] == [test]


def test_holm_is_that_of_the_textbook():
    # The first expected values are from R 4.3: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm").
    # In the second assertion the p-values are not sorted.
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04, 0.01, 0.9]) == pytest.approx([0.08, 0.03, 0.9])
    assert holm([0.6, 0.7]) == pytest.approx([1, 1])
    both = holm(np.array([[0.04, 0.01, 0.9], [0.5, 0.5, 0.001]]))
    assert both.tolist() == [pytest.approx([0.08, 0.03, 0.9]), pytest.approx([1, 1, 0.003])]


# --- effect sizes (Cliff's delta) -----------------------------------------------------------------


def test_cliffs_delta_counts_pairs():
    assert cliffs_delta([3, 4], [1, 2]) == 1 and cliffs_delta([1, 2], [3, 4]) == -1
    assert cliffs_delta([1, 2, 3], [1, 2, 3]) == 0
    assert cliffs_delta([1, 3], [2, 2]) == 0
    assert math.isnan(cliffs_delta([], [1]))
    a = RNG.normal(0.3, 1, 15)
    b = RNG.normal(0, 1, 9)
    u = stats.mannwhitneyu(a, b).statistic
    assert cliffs_delta(a, b) == pytest.approx(2 * u / (15 * 9) - 1)


@pytest.mark.parametrize(
    ("delta", "word"),
    [
        (0, "negligible"),
        (-0.146, "negligible"),
        (0.147, "small"),
        (0.33, "medium"),
        (-0.474, "large"),
        (1, "large"),
    ],
)
def test_words_for_cliffs_delta_are_romanos(delta, word):
    assert significance.magnitude(delta) == word


# --- drift of a run -------------------------------------------------------------------------------


def test_drift_is_spearmans_rho_of_order_and_residual():
    cells = np.tile(["a", "b", "c"], 8)
    order = np.arange(24)
    values = np.where(cells == "a", 100, np.where(cells == "b", 5000, 7)) * RNG.lognormal(
        0, 0.1, 24
    )
    found = drift(order, values, cells)
    medians = {name: np.median(np.log(values[cells == name])) for name in "abc"}
    residuals = np.log(values) - [medians[name] for name in cells]
    assert found.n == 24
    assert found.rho == pytest.approx(stats.spearmanr(order, np.round(residuals, 12)).statistic)


def test_a_run_that_slows_down_drifts_and_a_steady_one_does_not():
    cells = np.tile(["a", "b", "c", "d"], 6)
    order = np.arange(24)
    steady = np.tile([10, 20, 30, 40], 6) * np.random.default_rng(1).lognormal(0, 0.02, 24)
    slower = drift(order, steady * np.linspace(1, 0.85, 24), cells)
    assert slower.rho < -0.7 and slower.p < 0.001
    assert slower == drift(order, steady * np.linspace(1, 0.85, 24), cells)
    calm = drift(order, steady, cells)
    assert calm.p > 0.05


def test_what_says_nothing_of_drift_is_left_out():
    assert drift([1, 2, 3], [1, 2, 3], ["a", "a", "b"]) is None
    assert drift(range(6), [1.0, 1, 1, 1, 1, 1], ["a"] * 6) is None
    some = drift(range(8), [1, 2, np.nan, 3, 4, 0.0, 9, 5], ["a"] * 6 + ["alone", "a"])
    assert some.n == 5
