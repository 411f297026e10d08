"""Rankings of hand-made servers: letters, ranks, and who differs from whom."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from runner.present.statistics.inference import Sample, sample_of
from runner.present.statistics.ranking import Ranking, letter_display, rank

BLOCKS = range(1, 11)
LEVELS = {"a": 1.2, "b": 1.1, "c": 1.0}


def noisy(center: float, seed: int, noise: float = 0.01, blocks: range = BLOCKS) -> Sample:
    rng = np.random.default_rng(seed)
    return sample_of(center * rng.lognormal(0, noise, len(blocks)), blocks)


# --- letters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_letters_are_the_largest_sets_of_servers_that_do_not_differ(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(rng.integers(1, 9))]
    pairs = list(combinations(names, 2))
    apart = {pair for pair in pairs if rng.random() < rng.choice([0.2, 0.5, 0.8])}
    letters = letter_display(names, apart)
    groups = {frozenset(n for n in names if letter in letters[n]) for letter in set("".join(letters.values()))}
    # The largest sets without a pair in `apart`, found by trying all sets.
    sets = [frozenset(chosen) for size in range(len(names)) for chosen in combinations(names, size + 1)]
    alike = [each for each in sets if not apart & set(combinations(sorted(each), 2))]
    assert groups == {each for each in alike if not any(each < other for other in alike)}
    assert all((pair in apart) == (not set(letters[pair[0]]) & set(letters[pair[1]])) for pair in pairs)


def test_the_first_letter_is_the_foremost_servers() -> None:
    assert letter_display(["a", "b", "c"], [("a", "c")]) == {"a": "a", "b": "ab", "c": "b"}
    assert letter_display(["a", "b"], []) == {"a": "a", "b": "a"}
    many = [f"s{i:02d}" for i in range(28)]
    letters = letter_display(many, list(combinations(many, 2)))
    assert [letters[many[i]] for i in (0, 25, 26, 27)] == ["a", "z", "aa", "bb"]


# --- ranks ------------------------------------------------------------------------------------------------


def ranked(servers: dict[str, Sample], **how: Any) -> tuple[Ranking, list[tuple[str, int, str]]]:
    """A ranking, and name, rank and letters of each server in it."""
    ranking = rank(servers, **how)
    return ranking, [(place.name, place.rank, place.letters) for place in ranking.places]


def test_servers_far_apart_have_an_order() -> None:
    servers = {"slow": noisy(80, 1), "fast": noisy(120, 2), "middle": noisy(100, 3)}
    ranking, places = ranked(servers)
    assert places == [("fast", 1, "a"), ("middle", 2, "b"), ("slow", 3, "c")] and ranking.transitive
    pair = ranking.pairs["fast", "slow"]
    assert pair.ratio.low < 1.5 < pair.ratio.high and pair.differ
    assert [name for name, _, _ in ranked(servers, more_is_better=False)[1]] == ["slow", "middle", "fast"]


def test_equal_servers_share_a_rank_and_a_letter_and_what_could_not_be_found_is_known() -> None:
    ranking, places = ranked({"one": noisy(100, 1, 0.03), "other": noisy(100, 2, 0.03), "worse": noisy(70, 3, 0.03)})
    assert sorted(places) == [("one", 1, "a"), ("other", 1, "a"), ("worse", 3, "b")] and ranking.transitive
    (tie,) = [pair for pair in ranking.pairs.values() if not pair.differ]
    # 3 % noise a side, ten blocks, 80 % power at 5 % / 3: about 4 standard errors, of 1.3 % if well estimated.
    assert 1.02 < tie.detectable < 1.09


def test_ties_that_are_not_transitive_get_two_letters_and_ranks_by_who_beats_whom() -> None:
    up, down = np.tile([1.02, 0.98], 5), np.tile([0.98, 1.02], 5)
    values = {"a": 103 * up, "b": 101.5 * down, "c": 100 * up}
    ranking, places = ranked({name: sample_of(each, BLOCKS) for name, each in values.items()})
    assert places == [("a", 1, "a"), ("b", 1, "ab"), ("c", 2, "b")] and not ranking.transitive


@pytest.mark.parametrize(("floor", "last"), [(1.0, 2), (1.01, 2), (1.03, 1)])
def test_a_difference_inside_the_noise_floor_is_a_tie(floor: float, last: int) -> None:
    _, places = ranked({"a": noisy(102, 1, 0.002), "b": noisy(100, 2, 0.002)}, floor=floor)
    assert places == [("a", 1, "a"), ("b", last, "a" if last == 1 else "b")]


def test_fewer_than_two_servers_with_five_trials_are_no_ranking() -> None:
    assert rank({}) is None and rank({"a": noisy(100, 1)}) is None
    four = noisy(90, 2, blocks=range(1, 5))
    assert rank({"a": noisy(100, 1), "b": four}) is None
    ranking, places = ranked({"a": noisy(100, 1), "b": four, "c": noisy(120, 3)})
    assert places == [("c", 1, "a"), ("a", 2, "b")] and ranking.few == ("b",)


def test_five_trials_of_nine_servers_can_be_ranked_where_they_differ_by_much() -> None:
    """No permutation test could: with five blocks its p-value is at least 6 %."""
    ranking, places = ranked({f"s{i}": noisy(1.1**i, i, 0.005, range(1, 6)) for i in range(9)})
    assert [name for name, _, _ in places] == [f"s{i}" for i in reversed(range(9))]
    assert np.mean([pair.differ for pair in ranking.pairs.values()]) > 0.95


def test_a_failed_trial_costs_its_block_in_its_pairs_only() -> None:
    rng, machine = np.random.default_rng(1), np.array([1, 0.6, 1.4, 0.8, 1.2, 0.7, 1.1, 0.9, 1.3, 1])
    values = {name: 100 * machine * level * rng.lognormal(0, 0.01, 10) for name, level in LEVELS.items()}
    values["c"][0] = np.nan
    ranking, places = ranked({name: sample_of(each, BLOCKS) for name, each in values.items()})
    assert [name for name, _, _ in places] == ["a", "b", "c"]
    assert [pair.ratio.blocks for pair in ranking.pairs.values()] == [10, 9, 9]


def test_an_order_that_missing_blocks_turn_round_is_a_tie() -> None:
    """Over its nine blocks b is slower than a throughout, but it is missing where the machine was slowest."""
    a, b = [1.0, *np.full(9, 100.0)], [np.nan, *np.linspace(94, 96, 9)]
    assert ranked({"a": sample_of(a, BLOCKS), "b": sample_of(b, BLOCKS)})[1] == [("b", 1, "a"), ("a", 1, "a")]
