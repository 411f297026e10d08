"""Put the main results of a run into at most five sentences.

The sentences say which server is the fastest, by which ratio, and under which load. The function
`unknown` returns further sentences, on what the run does not show.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from runner.generator_traits import traits_of
from runner.model import core_words
from runner.present.answers.summary import NO_SEALED_TRIAL, percent_words, summarize
from runner.present.comparison import ratios, searches
from runner.present.comparison.quantity import (
    CPU_PER_REQUEST,
    OF_A_REPORT,
    P50,
    P99,
    THROUGHPUT,
    Quantity,
)
from runner.present.comparison.ratios import YARDSTICKS, disturbed, not_compared
from runner.present.frames import (
    Case,
    Tables,
    candidates,
    choose,
    is_sealed,
    limits_of,
    median_trial,
    queued,
    sealed_trials,
)
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.verdict.limits import MOST_FAILED, Limit

SHARES = {1.0: "a core", 0.5: "half a core", 0.25: "a quarter of a core", 0.1: "a tenth of a core"}
BY_LOAD = "By load, "
"""Beginning of a sentence with ratios that depend on the load."""
ONLY_SEARCHES = (
    "Every trial of this run is a step of a search. The search sets the rate of each step, so no "
    "throughput can be reported."
)
MOST_IN_WORDS = 4
"""A sentence states at most this many ratios in words.

For example `1.82 [1.44–2.30] times as many as gin`. If there are more ratios, they stand in
parentheses behind the servers' rates.
"""
MOST_FINDINGS = 5
"""A run has at most this many findings."""
MOST_ON_FIRST_SCREEN = 3
"""The first screen of the report shows at most this many findings."""
Row = Mapping[Hashable, Any]


@dataclass(frozen=True)
class Finding:
    """A sentence on the result of a run."""

    sentence: str
    is_first: bool = False
    """True if this finding is preferred to others on the first screen of the report."""


@lru_cache(maxsize=4)
def found_in(tables: Tables) -> tuple[Finding, ...]:
    """Return at most five findings of a run, with numbers and 95 % intervals."""
    sealed = tables.trials[is_sealed(tables.trials)]
    if sealed.empty:
        return (Finding(NO_SEALED_TRIAL),)
    known = known_ratios(tables)
    ranges = over_loads(known, THROUGHPUT)
    has_one_ratio = len(_rates_compared(known, sealed)) == 1
    possible = (
        Finding(one_load(tables, known), is_first=has_one_ratio or not ranges),
        Finding(ranges, is_first=not has_one_ratio),
        Finding(over_loads(known, CPU_PER_REQUEST), is_first=True),
        Finding(response_times(tables, known), is_first=True),
        *map(Finding, searches.findings(tables)),
        Finding(two_clients(tables)),
    )
    found = tuple(each for each in possible if each.sentence)[:MOST_FINDINGS]
    return found or (Finding(_alone(tables, sealed)),)


def sentences(tables: Tables) -> tuple[str, ...]:
    """Return the findings of a run as sentences."""
    return tuple(each.sentence for each in found_in(tables))


def first_screen(tables: Tables) -> tuple[str, ...]:
    """Return the findings that a reader should see first, at most three.

    These findings are about the requests per second, the CPU time per request, and the response
    times at a rate that all servers sustain. If the run compares two servers, the finding on
    requests per second compares them under one load. If the run compares more servers under several
    loads, this finding gives only a range for each pair of servers: the lowest and the highest
    ratio of their requests per second over all loads. If one of the three findings is missing, the
    next finding of the run takes its place.
    """
    return tuple(each.sentence for each in _shown_first(tables))


def further(tables: Tables) -> tuple[str, ...]:
    """Return the findings that the first screen does not show."""
    shown = _shown_first(tables)
    return tuple(each.sentence for each in found_in(tables) if each not in shown)


def _shown_first(tables: Tables) -> list[Finding]:
    """Return the findings of the first screen, in the order of `found_in`."""
    found = found_in(tables)
    by_preference = sorted(found, key=lambda each: not each.is_first)
    chosen = by_preference[:MOST_ON_FIRST_SCREEN]
    return [each for each in found if each in chosen]


def _alone(tables: Tables, sealed: pd.DataFrame) -> str:
    """Return a sentence about a run in which no two servers can be compared.

    The sentence says which cell has the highest throughput. It gives this throughput, the share of
    the cell's requests that failed, and the limit of the cell.
    """
    table = summarize(tables)
    known = table[table["rps"].notna()]
    if known.empty:
        return ONLY_SEARCHES
    cell = known.sort_values("rps", ascending=False).iloc[0].to_dict()
    is_of_cell = sealed["load"].eq(cell["load"]) & sealed["server"].eq(cell["server"])
    trials = ratios.compared(tables, sealed[is_of_cell])
    phrase = load_phrase(trials.iloc[0].to_dict())
    if tables.manifest.origin is not None:  # an imported file does not say which CPUs were used
        size = phrase.partition(", ")[2]
        phrase = size[0].upper() + size[1:]
    said = f"{phrase} {cell['server']} answers {number(cell['rps'])} requests/s"
    if cell["failed_pct"] > 0:
        said += f" with success; {percent_words(cell['failed_pct'])} of the requests failed"
    limits = limits_of(trials)
    limit = next(limit for limit in Limit if limits.eq(limit).any())
    why = limit.why_not
    if cell["failed_pct"] > 100 * MOST_FAILED:
        why = f"so {why}"
    elif limit == Limit.UNKNOWN:
        why = f"{why}: {cell['why_unknown']}"
    return f"{said} ({why})."


def unknown(tables: Tables) -> tuple[str, ...]:
    """Return sentences that say what the run does not show.

    The first sentences say how many sessions or blocks are left out of means and ratios. Then there
    is a sentence for each quantity that cannot be compared under some loads. If a server also ran
    under a second name (A/A), a sentence gives the factor by which the rates under the two names
    differed. Both names run the same program, so this factor shows how large the noise is.
    """
    found = ratios.frame(tables)
    said = _blocks_left_out_words(tables)
    for quantity in OF_A_REPORT:
        rows = found[found["quantity"] == quantity.name]
        silent = rows.loc[rows["why"] != "", "why"]
        why = "; ".join(f"{reason} ({count})" for reason, count in Counter(silent).most_common())
        where = f"{len(silent)} of {len(rows)} pairs of servers under a load"
        said += [f"No ratio of {quantity.noun} for {where}: {why}."] if why else []
    for label, server in tables.copies.items():
        spread = ""
        pairs = ratios.between(tables, label, server)
        if pairs:
            low = f"{min(pairs):.2f}"
            high = f"{max(pairs):.2f}"
            factor = f"a factor of {low}" if low == high else f"factors of {low} to {high}"
            spread = (
                f": their rates differed by {factor} over {captions.plural(len(pairs), 'load')}"
            )
        said.append(
            f"{label} is {server} under a second name{spread}. What differs between them is noise."
        )
    return tuple(said)


def _blocks_left_out_words(tables: Tables) -> list[str]:
    """Return sentences that say how many sessions or blocks are left out of means and ratios.

    Each reason for leaving sessions or blocks out has its own sentence.
    """
    sealed = sealed_trials(tables.trials)
    taken = disturbed(tables.trials)[sealed.index]
    lacking = not_compared(tables)[sealed.index] & ~taken
    blocks = pd.MultiIndex.from_frame(sealed[["load", "block"]])
    unit = "session" if sealed["session"].ne("").all() else "block"
    every = captions.plural(blocks.nunique(), unit)
    reasons = {
        (
            "because the hypervisor or other programs took so much CPU time that the limit is "
            "unknown"
        ): taken,
        f"because one of the servers has no sealed trial in the same {unit}": lacking,
    }
    counts = {why: blocks[mask].nunique() for why, mask in reasons.items()}
    return [
        f"Left out of means and ratios, for all servers: {count} of {every}, {why}."
        for why, count in counts.items()
        if count
    ]


def known_ratios(tables: Tables) -> pd.DataFrame:
    """Return the rows of `ratios.frame` that have a ratio.

    Rows about yardsticks, which are servers that only answer with fixed bodies, are left out.
    """
    pairs = ratios.frame(tables)
    return pairs[~pairs["server"].isin(YARDSTICKS) & pairs["why"].eq("")]


def best_known_load(known: pd.DataFrame, sealed: pd.DataFrame) -> Row | None:
    """Choose the load under which a text compares the servers, and return a trial of this load.

    The load with the most ratios of requests/s is chosen. Among loads with equally many ratios,
    loads with kept connections are preferred. Among these, the load is chosen whose number of
    connections or users is closest to 100 on a logarithmic scale. Return None if the run has no
    ratio of requests/s.
    """
    rates = known[known["quantity"] == THROUGHPUT.name]
    if rates.empty:
        return None

    def strangeness(row: Row) -> tuple[bool, float]:
        size_column = traits_of(row["tool"]).size_column
        keeps_connections = size_column == "connections" and row["mode"] == "keepalive"
        return not keeps_connections, abs(math.log(max(row[size_column], 1) / 100))

    counts = rates.groupby("load", sort=False)["server"].nunique()
    fullest = sealed[sealed["load"].isin(counts.index[counts == counts.max()])].drop_duplicates(
        "load"
    )
    return min(fullest.to_dict("records"), key=strangeness)


def _rates_compared(known: pd.DataFrame, sealed: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Return the rows of `known` with ratios of requests/s under the load of `best_known_load`.

    `known` are rows of `known_ratios`. Each returned row compares two servers. The list is empty if
    the run has no ratio of requests/s.
    """
    row = best_known_load(known, sealed)
    if row is None:
        return []
    is_here = known["quantity"].eq(THROUGHPUT.name) & known["load"].eq(row["load"])
    return known[is_here].to_dict("records")


def one_load(tables: Tables, known: pd.DataFrame) -> str:
    """Return a sentence with the rates and ratios of all servers under one load.

    The load is chosen by `best_known_load`. If there are at most `MOST_IN_WORDS` ratios, they
    follow after all rates. If there are more, each server's rate is followed by its ratio, which is
    in parentheses. A yardstick is a server that only answers with fixed bodies. If one ran under
    this load, the sentence ends with its rate. Return an empty text if the run has no ratio of
    requests/s.
    """
    sealed = sealed_trials(tables.trials)
    row = best_known_load(known, sealed)
    if row is None:
        return ""
    pairs = _rates_compared(known, sealed)
    unit = "session" if sealed.loc[sealed["load"] == row["load"], "session"].all() else "trial"
    trials = captions.plural(pairs[0]["sessions"], unit)
    most = _machine_words(tables, str(row["load"]))
    if len(pairs) > MOST_IN_WORDS:
        rates = _rates_with_ratios(pairs)
        return f"{load_phrase(row)} {captions.joined(rates)}, {trials}{most}."
    parts = [f"{pairs[0]['base']} answers {_rounded(pairs[0]['ours'])} requests/s"]
    parts += [f"{pair['server']} {_rounded(pair['theirs'])}" for pair in pairs]
    times = []
    for pair in pairs:
        is_open = 0 < pair["low"] <= 1 <= pair["high"] < math.inf
        said = ratios.words(pair)
        said = f"no difference is shown ({said}) from" if is_open else f"{said} times as many as"
        times.append(f"{said} {pair['server']}")
    return (
        f"{load_phrase(row)} {captions.joined(parts)}: {captions.joined(times)} ({trials}){most}."
    )


def _rates_with_ratios(pairs: Sequence[Row]) -> list[str]:
    """Return the rate of each server as text, the base first.

    The base is the server with which the other servers are compared. The rate of each other server
    is followed by a ratio in parentheses: the base's rate divided by this rate. For example `gin
    20,100 (axum/gin 1.82 [1.44–2.30])`. Only the first ratio names its two servers.
    """
    base = pairs[0]["base"]
    parts = [f"{base} answers {_rounded(pairs[0]['ours'])} requests/s"]
    label = f"{base}/{pairs[0]['server']} "
    for pair in pairs:
        parts.append(f"{pair['server']} {_rounded(pair['theirs'])} ({label}{ratios.words(pair)})")
        label = ""
    return parts


def _machine_words(tables: Tables, load: str) -> str:
    """Return a clause with the rates of the yardsticks that ran under a load.

    A yardstick is a server that only answers with fixed bodies. Return an empty text if no
    yardstick ran under the load.
    """
    found = ratios.frame(tables)
    is_here = found["quantity"].eq(THROUGHPUT.name) & found["load"].eq(load)
    rows = found[is_here & found["server"].isin(YARDSTICKS)].to_dict("records")
    return "".join(
        f"; {row['server']}, with fixed bodies, shows what the machine can do: "
        f"{_rounded(row['theirs'])}"
        for row in rows
    )


@dataclass(frozen=True)
class QuotedRatio:
    """The one ratio of requests/s that a reader may quote."""

    pair: Row
    """The row of `known_ratios` with the ratio."""
    trial: Row
    """A trial of the load under which the ratio was measured."""

    @property
    def servers(self) -> frozenset[str]:
        """The two servers that the ratio compares."""
        return frozenset((self.pair["base"], self.pair["server"]))


def quoted_ratio(tables: Tables) -> QuotedRatio | None:
    """Return the largest ratio of requests/s under the load that `best_known_load` chooses.

    Only ratios whose interval is bounded at both ends are considered, and the second name of a
    server (A/A) is left out. Return None if no ratio remains.
    """
    known = known_ratios(tables)
    trial = best_known_load(known, sealed_trials(tables.trials))
    if trial is None:
        return None
    is_here = known["quantity"].eq(THROUGHPUT.name) & known["load"].eq(trial["load"])
    pairs = known[is_here & _is_whole(known) & ~known["server"].isin(tables.copies)]
    if pairs.empty:
        return None
    return QuotedRatio(pairs.sort_values("ratio").iloc[-1].to_dict(), trial)


def quoted_servers(tables: Tables) -> frozenset[str]:
    """Return the two servers that `quoted_ratio` compares.

    Return an empty set if `quoted_ratio` finds no ratio.
    """
    quoted = quoted_ratio(tables)
    return frozenset() if quoted is None else quoted.servers


def largest_ratio(tables: Tables, names: Mapping[str, str] | None = None) -> str:
    """Return a sentence with the ratio that `quoted_ratio` chooses.

    If the same two servers can be compared under other loads, too, the sentence ends with the range
    of their ratios over all these loads. `names` maps a server to the name that the sentence uses.
    A server that is not in `names` is named as in the tables. Return an empty text if
    `quoted_ratio` finds no ratio.
    """
    quoted = quoted_ratio(tables)
    if quoted is None:
        return ""
    pair = quoted.pair
    base, server = ((names or {}).get(pair[side], pair[side]) for side in ("base", "server"))
    known = known_ratios(tables)
    both = known["base"].eq(pair["base"]) & known["server"].eq(pair["server"])
    alike = known[known["quantity"].eq(THROUGHPUT.name) & _is_whole(known) & both]
    said = (
        f"{load_phrase(quoted.trial)} {base} answers {ratios.words(pair)} times as many requests "
        f"per second as {server}"
    )
    if len(alike) > 1:
        return f"{said}, {_range_words(alike)} times across {len(alike)} loads."
    return f"{said}."


def _is_whole(pairs: pd.DataFrame) -> "pd.Series[bool]":
    """Return a mask of the pairs whose ratio has an interval that is bounded at both ends."""
    return pairs["low"].gt(0) & pairs["high"].lt(math.inf)


def over_loads(known: pd.DataFrame, quantity: Quantity) -> str:
    """Return a sentence with the range of each server's ratios over all loads.

    Each ratio compares a server with one base: the server that is the base of most ratios. The
    servers are in the order of the medians of their ratios. If a server has a ratio under only one
    load, the sentence gives that ratio with its interval instead of a range. Return an empty text
    if too few loads have a ratio: requests/s need two loads, CPU time per request needs one.
    """
    is_whole = (known["low"] > 0) & (known["high"] < math.inf)
    rows = known[known["quantity"].eq(quantity.name) & is_whole]
    loads = rows["load"].nunique()
    is_rate = quantity is THROUGHPUT
    if loads < (2 if is_rate else 1):
        return ""
    base = str(rows["base"].mode().iloc[0])
    by_server = rows[rows["base"] == base].groupby("server", sort=False)
    ordered = sorted(by_server, key=lambda item: float(item[1]["ratio"].median()))
    (first, its_pairs), *others = ordered
    if is_rate:
        said = f"{base} answers {_range_words(its_pairs)} times as many requests/s as {first}"
        parts = [said, *(f"{_range_words(pairs)} as {server}" for server, pairs in others)]
    else:
        said = f"{first} takes {_range_words(its_pairs)} times {base}'s {quantity.noun}"
        parts = [said, *(f"{server} {_range_words(pairs)}" for server, pairs in others)]
    return f"{BY_LOAD if loads > 1 else ''}{captions.joined(parts)}."


def _range_words(pairs: pd.DataFrame) -> str:
    """Return the lowest and the highest ratio in `pairs` as text, for example `0.86 to 1.38`.

    `pairs` are rows of `known_ratios`, each of which compares two servers under a load. If there is
    only one row, return its ratio with the interval.
    """
    if len(pairs) == 1:
        return ratios.words(pairs.iloc[0].to_dict())
    ends = (pairs["ratio"].min(), pairs["ratio"].max())
    return " to ".join(dict.fromkeys(f"{end:.2f}" for end in ends))


def response_times(tables: Tables, known: pd.DataFrame) -> str:
    """Return a sentence with the servers' response times at one rate.

    The rate is the highest rate at which response times can be compared. Return an empty text if
    response times can be compared at no rate.
    """
    rates = sealed_trials(tables.trials).drop_duplicates("load").set_index("load")["rate_rps"]
    half = known[known["quantity"] == P50.name]
    most = known[known["quantity"] == P99.name]
    if half.empty:
        return ""
    load = max(half["load"].unique(), key=lambda name: float(rates[name]))
    said = f"the median response time of {_times_words(half[half['load'] == load])}"
    if load in set(most["load"]):
        said += f"; the p99 of {_times_words(most[most['load'] == load])}"
    return f"At {rates[load]:,.0f} requests/s, which all of them sustain, {said}."


def _times_words(rows: pd.DataFrame) -> str:
    """Return the response times of all servers, each with its ratio to the base's response time.

    The text continues the words `the median response time of`, for example with `axum is 0.207 ms,
    of echo 0.255 ms (1.23 [1.13–1.34] times axum's)`.
    """
    pairs = rows.to_dict("records")
    base = pairs[0]["base"]
    others = [
        f"of {pair['server']} {number(pair['theirs'])} ms ({ratios.words(pair)} times {base}'s)"
        for pair in pairs
    ]
    return captions.joined([f"{base} is {number(pairs[0]['ours'])} ms", *others])


def queued_case(tables: Tables) -> Case | None:
    """Return the trial that best shows that a generator can time its own queue, not the server.

    Only trials in which k6 was the limit and timed its own queue are considered (see `queued`).
    Return the median trial of the cell in which k6's response times exceeded the probe's by the
    largest factor. Return None if k6 timed its own queue in no trial.
    """
    known = candidates(tables)
    known = known[queued(known)]
    if known.empty:
        return None
    return choose(tables, str(median_trial(known)["trial_id"].iloc[0]))


def two_clients(tables: Tables) -> str:
    """Return a sentence with the median response times of generator and probe in one trial.

    The trial is chosen by `queued_case`. Return an empty text if there is no such trial.
    """
    case = queued_case(tables)
    if case is None:
        return ""
    theirs = float(case.row["latency_p50_ms"])
    ours = float(case.row["probe_p50_ms"])
    return (
        f"With {case.row['vus']:,.0f} users {case.tool} reports a median response time of "
        f"{number(theirs)} ms for {case.row['server']}, while a second client saw {number(ours)} "
        f"ms in the same seconds: {case.tool} times its own queue."
    )


def load_phrase(row: Row) -> str:
    """Return the first words of a sentence: how much CPU the server had, and what the load was.

    For example `On half a core, with 100 kept connections (wrk-matrix),`.
    """
    cores = float(row["share"])
    quota = float(row["quota_cores"])
    narrow = quota < min(1.0, cores)
    cores = quota if narrow else cores
    share = SHARES.get(cores, core_words(cores))
    if math.isfinite(quota) and not narrow:
        share += f" with a quota of {core_words(quota)}"
    if row["load_model"] == "open":
        return f"On {share}, at {row['rate_rps']:,.0f} offered requests/s,"
    if traits_of(row["tool"]).size_column == "connections":
        kind = "kept" if row["mode"] == "keepalive" else "closed"
        size = f"{row['connections']:,.0f} {kind} connection{'s' * (row['connections'] != 1)}"
    else:
        size = f"{row['vus']:,.0f} users of {row['tool']}"
    return f"On {share}, with {size} ({row['workload']}),"


def _rounded(value: float) -> str:
    """Return a rate rounded to three significant digits: 40,731 becomes 40,700."""
    return f"{float(f'{value:.3g}'):,.0f}"
