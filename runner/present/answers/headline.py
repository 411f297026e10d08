"""The answer in a few lines: which server for what, by how much, how sure, and what could not be told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.present.answers.standings import Standing, times
from runner.present.answers.summary import by_cpu, by_latency, by_throughput, programs, summarize
from runner.present.figures import objectives
from runner.present.frames import Tables, is_sealed, limits_of
from runner.present.look import captions
from runner.present.look.palette import CALIBRATION
from runner.present.statistics.inference import ALPHA, FEWEST
from runner.present.statistics.ranking import Pair, Ranking

READING = (
    "How to read this: a server is ahead on a load where its trials are told apart from those of every other server "
    "(at most 5 % of such orders tell equal servers apart). × is the ratio to the next server with its 95 % interval, "
    "from the load with the smallest lead to that with the largest."
)
NOTHING = "No trial of this run was sealed: there is nothing to compare."
NONE = "nobody"
UNTOLD = "–"


@dataclass(frozen=True)
class Headline:
    """One question with its answer, each part a few words."""

    question: str
    answer: str
    """Which server on how many loads, or `nobody`."""
    margin: str
    """By how much it is ahead of the next, smallest and largest over the loads, with 95 % intervals."""
    sureness: str
    """Trials behind it, and the largest p of those that decided."""
    untold: str
    """Which loads could not tell, and why; empty where all could."""


@dataclass(frozen=True)
class Contest:
    """How the servers of one load stand in one quantity; without a ranking, why there is none."""

    load: str
    standing: Standing | None
    reason: str

    @property
    def ranking(self) -> Ranking | None:
        """The ranking, where there are enough trials of two servers."""
        return self.standing.ranking if self.standing else None

    @property
    def leaders(self) -> tuple[str, ...]:
        """Those who are beaten by nobody: one, or several that are not told apart."""
        return tuple(sorted(place.name for place in self.ranking.places if place.rank == 1)) if self.ranking else ()

    @property
    def lead(self) -> Pair | None:
        """The comparison of the only leader with the next server; None where several lead."""
        if self.ranking is None or len(self.leaders) != 1:
            return None
        first, second = (place.name for place in self.ranking.places[:2])
        return self.ranking.pair(first, second)


def headlines(tables: Tables) -> tuple[Headline, ...]:
    """Return the run's answer: a headline for each question that it has loads for; none where no trial was sealed."""
    if not is_sealed(tables.trials).any():
        return ()
    table = summarize(tables)
    table = table[~table["server"].isin(second_labels(tables))]
    loads = [(str(load), rows) for load, rows in table[table["tier"] != CALIBRATION].groupby("load", sort=False)]
    closed = [(load, rows) for load, rows in loads if rows["load_model"].iloc[0] == "closed"]
    stored = [(load, rows) for load, rows in closed if rows["pool_size"].notna().any()]
    plain = [(load, rows) for load, rows in closed if rows["pool_size"].isna().all()]
    offered = [(load, rows) for load, rows in loads if rows["load_model"].iloc[0] == "open"]
    asked = [
        ("Most requests per second", [_by_rate(tables, *each) for each in plain]),
        ("Most inserts per second", [_by_rate(tables, *each) for each in stored]),
        ("Least CPU per request", [_by_cost(tables, *each) for each in loads]),
        ("Shortest response time, p50", [_by_wait(tables, *each, 0.5) for each in offered]),
        ("Shortest response time, p99", [_by_wait(tables, *each, 0.99) for each in offered]),
    ]
    found = [_headline(question, contests) for question, contests in asked if contests]
    return (*found, *_objectives(tables))


def second_labels(tables: Tables) -> dict[str, str]:
    """Return the servers that are another one under a second label, with its name, where the run has more than these.

    Against the others they would be counted twice; where a run has nothing else, the two are what it is about.
    """
    labels: dict[tuple[str, ...], list[str]] = {}
    servers = sorted(map(str, tables.trials["server"].unique()), key=lambda name: (len(name), name))
    for server, program in programs(tables.manifest, servers).items():
        labels.setdefault(program, []).append(server)
    if len(labels) < 2:
        return {}
    return {label: first for first, *others in labels.values() for label in others}


def printable(found: Iterable[Headline]) -> pd.DataFrame:
    """Return the headlines as a table of texts, without what could not be told."""
    rows = [
        {"question": of.question, "answer": of.answer, "ahead of the next by": of.margin, "how sure": of.sureness}
        for of in found
    ]
    return pd.DataFrame(rows)


def untold(found: Iterable[Headline]) -> tuple[str, ...]:
    """Return a sentence for each question that some loads could not tell."""
    return tuple(f"{of.question}: {of.untold}." for of in found if of.untold)


def doubled(tables: Tables) -> tuple[str, ...]:
    """Return a sentence for each server that is another one under a second label."""
    return tuple(
        f"{label} is {server} under a second label: what differs between the two is noise, and no answer counts it."
        for label, server in second_labels(tables).items()
    )


# --- contests ---------------------------------------------------------------------------------------------


def _by_rate(tables: Tables, load: str, rows: pd.DataFrame) -> Contest:
    bound = rows[rows["server_bound"].astype(bool)]
    if len(bound) >= 2:
        return _contest(load, by_throughput(tables, rows), bound)
    if len(bound) == 1:
        return Contest(load, None, "only one server was the limit in all its trials")
    trials = tables.trials[(tables.trials["load"] == load) & is_sealed(tables.trials)]
    limits = Counter(limit for limit in limits_of(trials) if limit != Limit.SERVER)
    foremost = max(sorted(limits), key=lambda limit: limits[limit], default=None)
    return Contest(load, None, foremost.why_not if foremost else "no trial was sealed")


def _by_cost(tables: Tables, load: str, rows: pd.DataFrame) -> Contest:
    known = rows[rows["cpu_ms_per_request"].notna()]
    return _contest(load, by_cpu(tables, known), known)


def _by_wait(tables: Tables, load: str, rows: pd.DataFrame, quantile: float) -> Contest:
    kept = rows[rows["limit"] == Limit.NONE]
    if len(kept) < 2:
        return Contest(load, None, "not offered, kept and unlimited in all trials of two servers")
    found = by_latency(tables, kept, quantile)
    if found is None:
        return Contest(load, None, f"too few requests for a p{100 * quantile:g}")
    return _contest(load, found, kept)


def _contest(load: str, standing: Standing, rows: pd.DataFrame) -> Contest:
    if standing.ranking is not None:
        return Contest(load, standing, "")
    able = (rows["trials"] >= FEWEST).sum()
    return Contest(
        load, None, "only one server has it" if len(rows) < 2 or able == 1 else f"fewer than {FEWEST} trials"
    )


# --- words ------------------------------------------------------------------------------------------------


def _headline(question: str, contests: Sequence[Contest]) -> Headline:
    told = [contest for contest in contests if contest.ranking]
    leads = [(contest, contest.lead) for contest in told]
    won = [(contest, lead) for contest, lead in leads if lead is not None]
    return Headline(question, _who(told), _margin(won), _sureness(told, [lead for _, lead in won]), _untold(contests))


def _who(told: Sequence[Contest]) -> str:
    if not told:
        return NONE
    groups = Counter(contest.leaders for contest in told)
    parts = []
    for leaders, count in sorted(groups.items(), key=lambda item: (len(item[0]) > 1, -item[1], item[0])):
        share = "" if len(told) == 1 else f" on {count} of {captions.plural(len(told), 'load')}"
        parts.append(f"{leaders[0] if len(leaders) == 1 else f'a tie of {_list(leaders)}'}{share}")
    return "; ".join(parts)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}"


def _margin(won: Sequence[tuple[Contest, Pair]]) -> str:
    """Return the smallest and the largest lead; a ratio is that of the better to the next, above 1."""
    if not won:
        return UNTOLD
    ordered = sorted((_lead(contest, pair) for contest, pair in won), key=lambda item: item[0])
    (_, least), (_, most) = ordered[0], ordered[-1]
    return least if len(ordered) == 1 else f"{least} to {most}"


def _lead(contest: Contest, pair: Pair) -> tuple[float, str]:
    assert contest.standing is not None
    inverse = not contest.standing.more_is_better
    return (1 / pair.ratio.ratio if inverse else pair.ratio.ratio), f"{times(pair.ratio, inverse=inverse)}"


def _sureness(told: Sequence[Contest], leads: Sequence[Pair]) -> str:
    if not told:
        return UNTOLD
    counts = [place.n for contest in told if contest.ranking for place in contest.ranking.places]
    low, high = min(counts), max(counts)
    each = f"{captions.plural(low, 'trial')} each" if low == high else f"{low} to {high} trials each"
    if not leads:
        return f"{each}; no difference at the top told"
    return f"{each}; p ≤ {_rounded_up(max(lead.p for lead in leads))}"


def _rounded_up(p: float) -> str:
    """Return a p-value as a bound: 0.001, 0.01 or the level of the tests."""
    return next(f"{bound:g}" for bound in (0.001, 0.01, ALPHA, 1) if p <= bound)


def _untold(contests: Sequence[Contest]) -> str:
    silent = [contest for contest in contests if contest.ranking is None]
    if not silent:
        return ""
    reasons = Counter(contest.reason for contest in silent)
    words = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items(), key=lambda item: -item[1]))
    return f"{len(silent)} of {captions.plural(len(contests), 'load')} cannot tell: {words}"


# --- searches ---------------------------------------------------------------------------------------------


def _objectives(tables: Tables) -> list[Headline]:
    rows = objectives.answers(tables)
    return [_objective(str(search), of.to_dict("records")) for search, of in rows.groupby("search", sort=False)]


def _objective(search: str, rows: Sequence[Mapping[Any, Any]]) -> Headline:
    """Return who keeps an objective to the highest rate: told where its interval lies above those of all others."""
    question = f"Highest rate: {search}"
    ordered = sorted(rows, key=lambda row: (-row["kept_rps"], row["server"]))
    values = "; ".join(f"{row['server']} {objectives.words(row)}" for row in ordered)
    few = any(math.isnan(row["confidence"]) for row in ordered)
    first, others = ordered[0], ordered[1:]
    ahead = not few and others and all(first["low_rps"] > row["high_rps"] for row in others)
    searches = min(row["searches"] for row in ordered)
    sure = f"{searches} search{'es' * (searches != 1)} each"
    if ahead:
        margin = f"×{first['kept_rps'] / others[0]['kept_rps']:.2f} (medians)" if others[0]["kept_rps"] else UNTOLD
        return Headline(question, str(first["server"]), margin, f"{sure}; 95 % intervals apart", values)
    why = objectives.FEW if few else "intervals overlap or are open at the top"
    return Headline(question, NONE, UNTOLD, sure, f"{why}: {values}")
