"""Who stands where on one load, in words: order, ratios with intervals, ties and which differences are undetectable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import pandas as pd

from runner.present.frames import sealed_trials
from runner.present.look import style
from runner.present.statistics.inference import Ratio, Sample, noise_floor, ratio
from runner.present.statistics.ranking import Ranking, rank

READING = (
    "How to read an order: × is the ratio to the server before, with its 95 % interval over trials; ≈ joins servers "
    "whose difference these trials do not show (at most 5 % of such orders separate equal servers). An undetectable "
    "difference would have been missed in more than one of five campaigns like this one."
)
NOTHING = 1 + 1e-5
"""Trials without any noise would show smaller ratios than are worth a word."""


@dataclass(frozen=True)
class Standing:
    """The trials of some servers on one load: their values, and the ranking where there are enough of them."""

    samples: dict[str, Sample]
    ranking: Ranking | None
    more_is_better: bool
    noise: str
    """Where the noise floor comes from and how large it is; empty where there is none."""

    def words(self, quantity: str) -> str:
        """Return `quantity: ` and the order with ratios; without enough trials for it, each server's values."""
        if self.ranking is None:
            return f"{quantity}, not enough trials for a ranking: {self._values(self.samples)}"
        parts = [_order(self.ranking, ">" if self.more_is_better else "<"), *_ties(self.ranking)]
        if self.noise:
            parts.append(self.noise)
        if self.ranking.few:
            parts.append(f"not enough trials for a rank: {self._values(self.ranking.few)}")
        return f"{quantity}: {'; '.join(parts)}"

    def _values(self, names: Iterable[str]) -> str:
        return ", ".join(f"{name} {_range(self.samples[name])}" for name in names)

    def ranks(self) -> dict[str, str]:
        """Return rank and letters of each ranked server, such as `1 a`; servers that share a letter are a tie."""
        return {place.name: f"{place.rank} {place.letters}" for place in self.ranking.places} if self.ranking else {}


def standing(
    trials: pd.DataFrame,
    column: str,
    servers: Sequence[str],
    *,
    more_is_better: bool,
    copies: Mapping[str, str] | None = None,
) -> Standing:
    """Return how `servers` stand by a column of one load's trials; failed ones take no part.

    `copies` has the servers that are another one under a second label (A/A), with its name. Such labels differ by noise
    only, so the farthest that their ratios' intervals reach is the noise floor of this load and column.
    """
    sealed = sealed_trials(trials)
    samples = samples_of(sealed, column, servers)
    floor, labels = noise(samples, copies or {})
    words = f"{labels} are one server, so differences up to {percent(floor)} count as noise" if labels else ""
    return Standing(samples, rank(samples, more_is_better=more_is_better, floor=floor), more_is_better, words)


def samples_of(sealed: pd.DataFrame, column: str, servers: Iterable[str]) -> dict[str, Sample]:
    """Return the values of a column by server."""
    by_server = {server: sealed[sealed["server"] == server] for server in servers}
    return {server: Sample.of(trials[column], trials["block"]) for server, trials in by_server.items()}


def noise(samples: Mapping[str, Sample], copies: Mapping[str, str]) -> tuple[float, str]:
    """Return the largest ratio (>= 1) that noise makes of one program under two labels, and which; 1 without any."""
    found = [
        (noise_floor(between), f"{one} and {other}")
        for one, other in combinations(samples, 2)
        if copies.get(one, one) == copies.get(other, other)
        and (between := ratio(samples[one], samples[other])) is not None
    ]
    return max(found, default=(1.0, ""))


# --- words ------------------------------------------------------------------------------------------------


def times(found: Ratio, *, inverse: bool = False) -> str:
    """Return a ratio with its interval: `×0.940 [0.931–0.949]`; of the second to the first where `inverse`."""
    ends = (1 / found.ratio, 1 / found.high, 1 / found.low) if inverse else (found.ratio, found.low, found.high)
    middle, low, high = (f"{end:.3f}" if end < 10 else style.number(end) for end in ends)
    return f"×{middle} [{low}–{high}]"


def percent(factor: float) -> str:
    """Return how far a ratio above 1 is from it, in percent with two digits: 1.0213 is `2.1 %`."""
    return f"{100 * (factor - 1):.2g} %" if factor < 1.9 else f"{100 * (factor - 1):,.0f} %"


def _range(sample: Sample) -> str:
    if not sample.n:
        return "–"
    ends = (style.number(float(end)) for end in (sample.values.min(), sample.values.max()))
    return style.number(sample.median) + (f" [{'–'.join(ends)}]" if sample.n > 1 else "")


def _order(ranking: Ranking, sign: str) -> str:
    """Return `axum 61,200 > gin 50,000 (×0.817 [0.810–0.824])`, with letters where the order does not say all."""
    named = {
        place.name: f"{place.name}{'' if ranking.transitive else ' ' + place.letters} {style.number(place.median)}"
        for place in ranking.places
    }
    text = named[ranking.places[0].name]
    for before, after in pairwise(place.name for place in ranking.places):
        pair = ranking.pair(before, after)
        text += f" {sign if pair.told_apart else '≈'} {named[after]} ({times(pair.ratio, inverse=True)})"
    return text


def _ties(ranking: Ranking) -> list[str]:
    ties = [pair for pair in ranking.pairs if not pair.told_apart]
    words = []
    if not ranking.transitive:
        words.append("servers differ where they share no letter")
    least = max((pair.detectable for pair in ties), default=1.0)
    if least > NOTHING:
        words.append(f"differences below {percent(least)} are undetectable")
    return words
