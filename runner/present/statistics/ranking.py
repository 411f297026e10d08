"""Rank servers by their trials. Servers that were not found to differ get a common letter.

Every pair of servers is compared (`significance.difference_p`). Holm's correction limits the
probability that any pair of equal servers is called different to 5 %. Two servers differ if the
corrected p-value is at most 5 %, and the ratio's interval excludes 1 and does not lie within the
noise floor.

This relation is not transitive: server X may beat server Z although server Y differs neither from X
nor from Z. Therefore a ranking has letters and ranks:

- Two servers differ if and only if they share no letter. In the example, X has the letter a, Y has
  the letters ab, and Z has the letter b. Each letter stands for a set of servers in which no two
  servers differ, and to which no other server can be added (compact letter display by insertion and
  absorption, Piepho 2004, Journal of Computational and Graphical Statistics 13, 456).
- The rank of a server is 1 + the number of servers that beat it. In the example, X and Y have rank
  1, and Z has rank 2.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from string import ascii_lowercase

from runner.present.statistics.inference import (
    ALPHA,
    FEWEST_TRIALS,
    Mean,
    Ratio,
    Sample,
    geometric_mean,
    is_tie,
    mean_of,
    ratio,
)
from runner.present.statistics.significance import difference_p, holm


@dataclass(frozen=True)
class ServerPair:
    """The comparison of two servers: the ratio first / second, and whether the servers differ.

    `detectable` is the smallest true ratio (> 1) that these trials would have shown with a
    probability of 80 %, at the strictest level of Holm's correction.
    """

    ratio: Ratio
    differ: bool
    detectable: float


@dataclass(frozen=True)
class RankedServer:
    """A server in a ranking, with the mean of its trials."""

    name: str
    rank: int
    letters: str
    mean: Mean


@dataclass(frozen=True)
class Ranking:
    """Servers sorted by geometric mean, the best first, and the comparison of every pair.

    A key of `pairs` consists of two servers' names, with the better server first. `few` names the
    servers that have too few trials to be ranked.
    """

    places: tuple[RankedServer, ...]
    pairs: Mapping[tuple[str, str], ServerPair]
    few: tuple[str, ...]

    @property
    def transitive(self) -> bool:
        """True if the servers form groups, so that servers differ if and only if their groups do.

        The groups result from dividing the ranking between neighbours that differ.
        """
        names = [place.name for place in self.places]
        apart = [self.pairs[neighbours].differ for neighbours in pairwise(names)]
        spans = combinations(range(len(names)), 2)
        return all(
            pair.differ == any(apart[i:j])
            for (i, j), pair in zip(spans, self.pairs.values(), strict=True)
        )


def rank(
    samples: Mapping[str, Sample], *, more_is_better: bool = True, floor: float = 1.0
) -> Ranking | None:
    """Return the ranking of servers by their trials.

    Return None if fewer than two servers have at least `FEWEST_TRIALS` trials. `floor` is the ratio
    (>= 1) that noise alone can cause: two servers are a tie if the interval of their ratio lies
    between 1 / `floor` and `floor`.

    Two servers are also a tie if the ratio within common blocks contradicts the means over all
    trials: the ratio favours one server, and the means favour the other. This can happen if trials
    failed.
    """
    able = {name: sample for name, sample in samples.items() if len(sample) >= FEWEST_TRIALS}
    few = tuple(name for name in samples if name not in able)
    if len(able) < 2:
        return None
    sign = -1 if more_is_better else 1
    names = sorted(able, key=lambda name: (sign * geometric_mean(able[name]), name))
    combined = list(combinations(names, 2))
    strictest = ALPHA / len(combined)
    corrected = holm(
        [difference_p(able[first], able[second], strictest) for first, second in combined]
    )
    pairs = {}
    for (first, second), p in zip(combined, corrected, strict=True):
        between = ratio(able[first], able[second])
        assert between is not None, "both sides have enough trials"
        differ = p <= ALPHA and not is_tie(between, floor) and (between.ratio > 1) == more_is_better
        pairs[first, second] = ServerPair(between, bool(differ), between.detectable(strictest))
    apart = [names for names, pair in pairs.items() if pair.differ]
    beaten = Counter(second for _, second in apart)
    letters = letter_display(names, apart)
    places = tuple(
        RankedServer(name, 1 + beaten[name], letters[name], mean_of(able[name])) for name in names
    )
    return Ranking(places, pairs, few)


def letter_display(names: Sequence[str], apart: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return letters for each name. Two names share no letter if and only if they are in `apart`.

    `apart` contains the pairs of names that differ. Each letter stands for a set of names. The set
    that contains the first name gets the letter a, the next set gets b, and so on. After z come aa,
    bb, cc.
    """
    groups = [frozenset(names)]
    for first, second in apart:
        split = [
            group - {gone}
            for group in groups
            for gone in (first, second)
            if {first, second} <= group
        ]
        kept = [group for group in groups if not {first, second} <= group]
        distinct = list(dict.fromkeys([*kept, *split]))
        groups = [group for group in distinct if not any(group < other for other in distinct)]
    place = {name: number for number, name in enumerate(names)}
    ordered = sorted(groups, key=lambda group: sorted(place[name] for name in group))
    shown = [
        (ascii_lowercase[number % 26] * (1 + number // 26), group)
        for number, group in enumerate(ordered)
    ]
    return {name: "".join(letter for letter, group in shown if name in group) for name in names}
