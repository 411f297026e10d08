"""Rankings of hand-made servers: letters, ranks, and who is told apart from whom."""

from itertools import combinations

import numpy as np
import pytest

from runner.present.statistics.inference import Sample
from runner.present.statistics.ranking import Ranking, letter_display, rank

BLOCKS = range(1, 11)


def noisy(center: float, seed: int, noise: float = 0.01, blocks: range = BLOCKS) -> Sample:
    rng = np.random.default_rng(seed)
    return Sample.of(center * rng.lognormal(0, noise, len(blocks)), blocks)


def places(ranking: Ranking | None) -> list[tuple[str, int, str]]:
    assert ranking is not None
    return [(place.name, place.rank, place.letters) for place in ranking.places]


# --- letters ----------------------------------------------------------------------------------------------


def cliques(names: list[str], apart: set[tuple[str, str]]) -> set[frozenset[str]]:
    """The largest sets without a pair in `apart`, found by trying all sets."""
    sets = [
        frozenset(chosen)
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
        if not any(pair in apart for pair in combinations(chosen, 2))
    ]
    return {one for one in sets if not any(one < other for other in sets)}


@pytest.mark.parametrize("seed", range(30))
def test_letters_are_the_largest_sets_of_servers_that_are_not_told_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(rng.integers(1, 9))]
    pairs = list(combinations(names, 2))
    apart = {pair for pair in pairs if rng.random() < rng.choice([0.2, 0.5, 0.8])}
    letters = letter_display(names, apart)
    groups = {frozenset(n for n in names if letter in letters[n]) for letter in set("".join(letters.values()))}
    assert groups == cliques(names, apart)
    for pair in pairs:
        assert (pair in apart) == (not set(letters[pair[0]]) & set(letters[pair[1]]))


def test_the_first_letter_is_the_foremost_servers() -> None:
    assert letter_display(["a", "b", "c"], [("a", "c")]) == {"a": "a", "b": "ab", "c": "b"}
    assert letter_display(["a", "b"], []) == {"a": "a", "b": "a"}
    many = [f"s{i:02d}" for i in range(28)]
    letters = letter_display(many, list(combinations(many, 2)))
    assert [letters[many[i]] for i in (0, 25, 26, 27)] == ["a", "z", "aa", "bb"]


# --- ranks ------------------------------------------------------------------------------------------------


def test_servers_far_apart_have_an_order() -> None:
    servers = {"slow": noisy(80, 1), "fast": noisy(120, 2), "middle": noisy(100, 3)}
    ranking = rank(servers)
    assert places(ranking) == [("fast", 1, "a"), ("middle", 2, "b"), ("slow", 3, "c")]
    assert ranking is not None and ranking.transitive
    pair = ranking.pair("fast", "slow")
    assert pair.ratio.low < 1.5 < pair.ratio.high and pair.p < 0.001
    assert [name for name, _, _ in places(rank(servers, more_is_better=False))] == ["slow", "middle", "fast"]


def test_equal_servers_share_a_rank_and_a_letter_and_what_could_not_be_told_is_known() -> None:
    ranking = rank({"one": noisy(100, 1, 0.03), "other": noisy(100, 2, 0.03), "worse": noisy(70, 3, 0.03)})
    assert {name: (place, letters) for name, place, letters in places(ranking)} == {
        "one": (1, "a"),
        "other": (1, "a"),
        "worse": (3, "b"),
    }
    assert ranking is not None and ranking.transitive
    tie = next(pair for pair in ranking.pairs if not pair.differ)
    # 3 % noise a side, ten blocks, 80 % power at 5 % / 3: about 4 standard errors, of 1.3 % if well estimated.
    assert 1.02 < tie.detectable < 1.09


def test_ties_that_are_not_transitive_get_two_letters_and_ranks_by_who_beats_whom() -> None:
    up, down = np.tile([1.02, 0.98], 5), np.tile([0.98, 1.02], 5)
    servers = {
        "a": Sample.of(103 * up, BLOCKS),
        "b": Sample.of(101.5 * down, BLOCKS),
        "c": Sample.of(100 * up, BLOCKS),
    }
    ranking = rank(servers)
    assert places(ranking) == [("a", 1, "a"), ("b", 1, "ab"), ("c", 2, "b")]
    assert ranking is not None and not ranking.transitive


def test_a_difference_inside_the_noise_floor_is_a_tie() -> None:
    servers = {"a": noisy(102, 1, 0.002), "b": noisy(100, 2, 0.002)}
    assert places(rank(servers)) == [("a", 1, "a"), ("b", 2, "b")]
    assert places(rank(servers, floor=1.01)) == [("a", 1, "a"), ("b", 2, "b")]
    assert places(rank(servers, floor=1.03)) == [("a", 1, "a"), ("b", 1, "a")]


def test_fewer_than_two_servers_with_five_trials_are_no_ranking() -> None:
    assert rank({}) is None and rank({"a": noisy(100, 1)}) is None
    four = noisy(90, 2, blocks=range(1, 5))
    assert rank({"a": noisy(100, 1), "b": four}) is None
    ranking = rank({"a": noisy(100, 1), "b": four, "c": noisy(120, 3)})
    assert places(ranking) == [("c", 1, "a"), ("a", 2, "b")]
    assert ranking is not None and ranking.few == ("b",)


def test_five_trials_of_nine_servers_can_be_ranked_where_they_differ_by_much() -> None:
    """No permutation test could: with five blocks its p-value is at least 6 %."""
    servers = {f"s{i}": noisy(1.1**i, i, 0.005, range(1, 6)) for i in range(9)}
    ranking = rank(servers)
    assert [name for name, _, _ in places(ranking)] == [f"s{i}" for i in reversed(range(9))]
    assert ranking is not None
    apart = [pair.differ for pair in ranking.pairs]
    assert np.mean(apart) > 0.95


def test_a_failed_trial_costs_its_block_in_its_own_pairs_only() -> None:
    machine = np.array([1, 0.6, 1.4, 0.8, 1.2, 0.7, 1.1, 0.9, 1.3, 1])
    rng = np.random.default_rng(1)
    values = {
        name: 100 * machine * level * rng.lognormal(0, 0.01, 10)
        for name, level in zip("abc", (1.2, 1.1, 1), strict=True)
    }
    servers = {name: Sample.of(own, BLOCKS) for name, own in values.items()}
    servers["c"] = Sample.of([np.nan, *values["c"][1:]], BLOCKS)
    ranking = rank(servers)
    assert [name for name, _, _ in places(ranking)] == ["a", "b", "c"]
    assert ranking is not None
    assert [ranking.pair(*names).ratio.blocks for names in (("a", "b"), ("a", "c"), ("b", "c"))] == [10, 9, 9]


def test_an_order_that_missing_blocks_turn_round_is_a_tie() -> None:
    """Over its nine blocks b is slower than a throughout, but it is missing where the machine was slowest."""
    a = [1.0, *np.full(9, 100.0)]
    b = [np.nan, *np.linspace(94, 96, 9)]
    ranking = rank({"a": Sample.of(a, BLOCKS), "b": Sample.of(b, BLOCKS)})
    assert places(ranking) == [("b", 1, "a"), ("a", 1, "a")]
