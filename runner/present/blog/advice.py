"""Advise which server to choose for which need, according to the rankings of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from runner.model import CALIBRATION
from runner.present.answers.ranking_text import standing
from runner.present.answers.summary import summarize
from runner.present.blog.chapters import rows_at_a_sustained_rate
from runner.present.blog.story import Story
from runner.present.comparison.quantity import CPU_PER_REQUEST, P99, THROUGHPUT, Quantity
from runner.present.comparison.ratios import YARDSTICKS
from runner.present.frames import Tables
from runner.present.look import captions
from runner.present.look.markup import Block, Bullets
from runner.present.look.numbers import number
from runner.verdict.limits import Limit

MOST_OTHERS = 2
"""The advice names at most this many servers besides those that it recommends.

Each of these further servers came first under at least one load.
"""
MOST_NAMED = 4
"""The advice names the other servers if they are at most this many, and otherwise counts them."""
CONNECTIONS = {
    "keepalive": "clients keep their connections",
    "close": "each request opens a connection",
}
"""Words that say how clients use connections, by the mode of a load."""


def advice(story: Story) -> list[Block]:
    """Return a bullet list that recommends a server for each need, such as low CPU time.

    A need is left out if the run cannot rank servers for it. Return an empty list if the run
    measured fewer than two servers.
    """
    table = summarize(story.tables)
    is_choice = table["tier"].ne(CALIBRATION) & table["trials"].gt(0)
    is_choice &= ~table["server"].isin([*story.tables.copies, *YARDSTICKS])
    table = table[is_choice]
    if table["server"].nunique() < 2:
        return []
    ranked = table[table["server_bound"].astype(bool)]
    costed = table[table["cost_counts"].astype(bool)]
    timed = table[table["limit"].eq(Limit.NONE) & table["p99_ms"].notna()]
    rates = _choices(story, THROUGHPUT, ranked)
    costs = _choices(story, CPU_PER_REQUEST, costed)
    slowest = _choices(story, P99, timed)
    if _agree(rates, costs):
        pairs = zip(rates, costs, strict=True)
        best = [_advice_for_both(rate, cost) for rate, cost in pairs]
    else:
        best = [choice.advice("requests per second count") for choice in rates]
        best += [choice.advice("CPU time is what you pay for") for choice in costs]
    sentences = (
        *best,
        *(choice.advice("the slowest requests count") for choice in slowest),
        _far_from_limits(story, table),
    )
    return [Bullets(tuple(sentence for sentence in sentences if sentence))]


@dataclass(frozen=True)
class _Firsts:
    """How many loads each server ran under, and under how many of them the server came first.

    A load is counted only if at least two of its servers differ. A server comes first under a load
    if no other server is ahead of it, so several servers can come first under one load.
    """

    load_count: Counter[str]
    first_count: Counter[str]
    servers_by_load: tuple[tuple[str, ...], ...]
    """For each counted load, the names of the servers that were ranked under it."""

    @classmethod
    def of(cls, tables: Tables, quantity: Quantity, rows: pd.DataFrame) -> "_Firsts":
        """Count each server's loads, and the loads under which the server came first.

        `rows` are rows of the summary, one for each load and server. Under each load, the servers
        in `rows` are ranked by `quantity`. A load is not counted if its servers cannot be ranked,
        or if no two of them differ.
        """
        load_count = Counter[str]()
        first_count = Counter[str]()
        servers_by_load: list[tuple[str, ...]] = []
        for _, of_load in rows.groupby("load", sort=False):
            ranking = standing(tables, of_load, quantity).ranking if len(of_load) > 1 else None
            if ranking is None or not any(pair.differ for pair in ranking.pairs.values()):
                continue
            load_count.update(place.name for place in ranking.places)
            first_count.update(place.name for place in ranking.places if place.rank == 1)
            servers_by_load.append(tuple(place.name for place in ranking.places))
        return cls(load_count, first_count, tuple(servers_by_load))

    def _share(self, server: str) -> float:
        """Return the share of a server's loads under which it came first."""
        return self.first_count[server] / self.load_count[server]

    @property
    def best(self) -> list[str]:
        """The servers that came first under the largest share of their loads.

        A server is not among them if another server ran under more than twice as many loads,
        because the share of a server with so few loads is unreliable. The list is empty if servers
        differ under no load.
        """
        most_loads = max(self.load_count.values(), default=0)
        shares = {
            server: self._share(server)
            for server, loads in self.load_count.items()
            if 2 * loads >= most_loads
        }
        highest = max(shares.values(), default=0.0)
        return sorted(server for server, share in shares.items() if share == highest)

    @property
    def is_clear(self) -> bool:
        """True if the best servers came first under all of their loads."""
        return all(self._share(server) == 1 for server in self.best)

    def others_words(self, server: str) -> str:
        """Return the names of the servers that were compared with `server` under a counted load.

        If there are more than `MOST_NAMED`, return only their number.
        """
        shared = [names for names in self.servers_by_load if server in names]
        others = sorted({name for names in shared for name in names} - {server})
        if len(others) > MOST_NAMED:
            return f"the {len(others)} other servers"
        return captions.joined(others)

    def count_words(self) -> str:
        """Return words that say under how many loads the best servers came first.

        The words also say under how many loads other servers came first, so that readers see what
        a recommendation depends on.
        """
        best = self.best
        by_count = self.first_count.most_common()
        others = [server for server, firsts in by_count if firsts and server not in best]
        first = best[0]
        following = [*best[1:], *others[:MOST_OTHERS]]
        count = (
            f"compared with {self.others_words(first)}, {first} comes first under "
            f"{self.first_count[first]} of its {captions.plural(self.load_count[first], 'load')}"
        )
        if following:
            rest = [
                f"{server}: {self.first_count[server]} of {self.load_count[server]}"
                for server in following
            ]
            count += f" ({', '.join(rest)})"
        return count


@dataclass(frozen=True)
class _Choice:
    """The servers that are best at a quantity, under all loads or under some of them.

    If `use` is empty, all loads are counted. Otherwise only those loads are counted whose clients
    use connections in this way.
    """

    firsts: _Firsts
    use: str = ""
    """Words that say how clients use connections, such as `each request opens a connection`.

    The text is empty if the best servers do not depend on the use of connections.
    """

    @property
    def best(self) -> str:
        """The best servers in words: `actix or axum`."""
        return " or ".join(self.firsts.best)

    @property
    def condition(self) -> str:
        """A clause that follows another condition: ` and clients keep their connections`.

        It is empty if the choice does not depend on the use of connections.
        """
        return f" and {self.use}" if self.use else ""

    def advice(self, need: str) -> str:
        """Return a sentence that recommends the best servers for a need."""
        hedge = "" if self.firsts.is_clear else ", but measure your own load"
        count = self.firsts.count_words()
        return f"Take {self.best} if {need}{self.condition}{hedge}: {count}."


def _agree(rates: Sequence[_Choice], costs: Sequence[_Choice]) -> bool:
    """Return True if one sentence can recommend the best servers by rates and by costs.

    The same servers must be the best by rates and by costs, for each use of connections that has a
    choice of its own. Each of these servers must have come first under all of its loads, both by
    rates and by costs.
    """
    chosen_by_rate = [(choice.best, choice.use) for choice in rates]
    chosen_by_cost = [(choice.best, choice.use) for choice in costs]
    are_clear = all(choice.firsts.is_clear for choice in (*rates, *costs))
    return chosen_by_rate == chosen_by_cost and are_clear


def _advice_for_both(rate: _Choice, cost: _Choice) -> str:
    """Return a sentence that recommends the servers that are the best by rates and by costs."""
    first = rate.firsts.best[0]
    rate_loads = captions.plural(rate.firsts.load_count[first], "load")
    cost_loads = captions.plural(cost.firsts.load_count[first], "load")
    return (
        f"Take {rate.best} if requests per second or CPU time count{rate.condition}: "
        f"{rate.firsts.others_words(first)} never beat {first} in requests per second "
        f"({rate_loads}) or CPU time per request ({cost_loads})."
    )


def _choices(story: Story, quantity: Quantity, rows: pd.DataFrame) -> list[_Choice]:
    """Return the best servers for a quantity, usually as one choice for all loads.

    Return two choices if the best servers did not come first under all of their loads, and if they
    depend on the use of connections. One choice is then for clients that keep their connections,
    and the other is for clients that open a connection for each request. Return an empty list if
    servers differ under no load.
    """
    found = _Firsts.of(story.tables, quantity, rows)
    if not found.best:
        return []
    mode_of_load = story.sealed.drop_duplicates("load").set_index("load")["mode"]
    modes = rows["load"].map(mode_of_load)
    by_use = [
        _Choice(_Firsts.of(story.tables, quantity, rows[modes.eq(mode)]), words)
        for mode, words in CONNECTIONS.items()
    ]
    bests = {choice.best for choice in by_use}
    depends_on_use = len(bests) > 1 and "" not in bests
    if found.is_clear or not depends_on_use:
        return [_Choice(found)]
    return by_use


def _far_from_limits(story: Story, table: pd.DataFrame) -> str:
    """Return the advice for a load that is far below every server's limit.

    The advice is to take the server that the team knows. The sentence also gives the lowest and the
    highest median response time at a rate that several servers sustained. Return an empty text if
    no two servers sustained the same rate.
    """
    timed = rows_at_a_sustained_rate(table)
    if len(timed) < 2:
        return ""
    ordered = sorted(timed.values(), key=lambda row: float(row["p50_ms"]))
    fastest = ordered[0]
    slowest = ordered[-1]
    return (
        "Take what your team knows if you are far from any limit: "
        f"{story.phrase_of(str(fastest['load']))}, the median response time is "
        f"{number(float(fastest['p50_ms']))} ms ({fastest['server']}) to "
        f"{number(float(slowest['p50_ms']))} ms ({slowest['server']})."
    )
