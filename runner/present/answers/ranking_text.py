"""Put the ranking of servers under one load into words.

The text states the order, the ratios with intervals, the ties, and the size of differences that
would be undetectable.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise

import pandas as pd

from runner.present.comparison.compare import sample
from runner.present.comparison.mean_words import mean_words
from runner.present.comparison.quantity import Quantity
from runner.present.comparison.ratios import compared
from runner.present.frames import Tables
from runner.present.look.numbers import ratio_words
from runner.present.statistics.inference import Ratio, Sample, mean_of, noise_floor, ratio
from runner.present.statistics.ranking import Ranking, rank

READING = (
    "How to read an order: values are means of the trials, ± their 95 % interval; × is the ratio "
    "to the server before, with its own; ≈ joins servers whose difference these trials do not show "
    "(at most 5 % of such orders separate equal servers). An undetectable difference would have "
    "been missed in more than one of five campaigns like this one."
)
SMALLEST_SHOWN_RATIO = 1 + 1e-5
"""The smallest detectable ratio is reported only if it is above this value.

A ratio closer to 1 comes from trials without any noise, so it tells the reader nothing.
"""


@dataclass(frozen=True)
class Standing:
    """The values of servers under one load, and their ranking if there are enough trials."""

    samples: dict[str, Sample]
    ranking: Ranking | None
    sign: str  # `<` or `>`, printed between two servers that differ, with the better server first
    noise: str  # a clause on the noise floor, or an empty text if no server ran under two names

    def words(self, quantity: str) -> str:
        """Return the servers from best to worst, each with its ratio to the server before it.

        For example: `requests/s: axum 61,200 ±0.4 % > gin 50,000 ±0.6 % (×0.817 [0.810–0.824])`.
        Without a ranking, return only each server's mean. If the order alone does not say which
        servers differ, letters follow each name: two servers without a common letter differ.
        """
        ranking = self.ranking
        values = {
            name: f"{name} {mean_words(mean_of(sample))}" for name, sample in self.samples.items()
        }
        if ranking is None:
            return f"{quantity}, not enough trials for a ranking: {', '.join(values.values())}"
        letters = {
            place.name: "" if ranking.transitive else f" {place.letters}"
            for place in ranking.places
        }
        named = {
            place.name: f"{place.name}{letters[place.name]} {mean_words(place.mean)}"
            for place in ranking.places
        }
        order = named[ranking.places[0].name]
        for before, after in pairwise(named):
            pair = ranking.pairs[before, after]
            order += (
                f" {self.sign if pair.differ else '≈'} {named[after]} "
                f"({times(pair.ratio, inverse=True)})"
            )
        least = max(
            (pair.detectable for pair in ranking.pairs.values() if not pair.differ), default=1.0
        )
        parts = [order]
        if not ranking.transitive:
            parts.append("servers differ where they share no letter")
        if least > SMALLEST_SHOWN_RATIO:
            parts.append(f"differences below {percent(least)} are undetectable")
        if self.noise:
            parts.append(self.noise)
        if ranking.few:
            few = ", ".join(values[name] for name in ranking.few)
            parts.append(f"not enough trials for a rank: {few}")
        return f"{quantity}: {'; '.join(parts)}"


def standing(tables: Tables, rows: pd.DataFrame, quantity: Quantity) -> Standing:
    """Return the standing of the servers in `rows`, which are rows of the summary under one load.

    Disturbed sessions and incomplete blocks are left out. If a server ran under two names (A/A),
    the difference between its labels is the noise floor. Two servers are tied if the interval of
    their ratio lies within the noise floor.
    """
    trials = compared(tables, tables.trials[tables.trials["load"].isin(rows["load"])])
    by_server = {server: trials[trials["server"] == server] for server in rows["server"]}
    samples = {server: sample(of_server, quantity) for server, of_server in by_server.items()}
    copies = tables.copies
    same = [
        (noise_floor(between), f"{one} and {other}")
        for one, other in combinations(samples, 2)
        if copies.get(one, one) == copies.get(other, other)
        and (between := ratio(samples[one], samples[other]))
    ]
    floor, labels = max(same, default=(1.0, ""))
    noise = (
        f"{labels} are one server, so differences up to {percent(floor)} count as noise"
        if labels
        else ""
    )
    ranking = rank(samples, more_is_better=quantity.more_is_better, floor=floor)
    return Standing(samples, ranking, ">" if quantity.more_is_better else "<", noise)


def times(found: Ratio, *, inverse: bool = False) -> str:
    """Return the ratio of a first server to a second, with its interval: `×0.940 [0.931–0.949]`.

    With `inverse`, return the ratio of the second server to the first.
    """
    ends = (
        (1 / found.ratio, 1 / found.high, 1 / found.low)
        if inverse
        else (found.ratio, found.low, found.high)
    )
    return ratio_words(*ends, digits=3, sign="×")


def percent(factor: float) -> str:
    """Return the percentage by which a ratio exceeds 1, with two digits: `2.1 %` for 1.0213."""
    return f"{100 * (factor - 1):.2g} %" if factor < 1.9 else f"{100 * (factor - 1):,.0f} %"
