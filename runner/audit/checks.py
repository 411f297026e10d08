"""What numbers of a table can mean together: nine checks, each a law, and what a finding of it does not prove."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from runner.audit.finding import Audit, Finding, Law, Severity, finding, of_test, where
from runner.audit.formats import BELOW
from runner.model import number
from runner.present.look.captions import plural


def audit(rows: pd.DataFrame) -> Audit:
    """Run every check on rows as `formats.read` returns them."""
    found: list[Finding] = []
    not_done = []
    for check in CHECKS:
        if any(rows[list(names)].notna().all(axis=1).any() for names in check.needs):
            found += check.find(rows)
        else:
            not_done.append(f"{check.name} (takes {' or '.join(', '.join(names) for names in check.needs)})")
    grave = list(Severity)
    return Audit(rows, tuple(sorted(found, key=lambda finding: grave.index(finding.severity))), tuple(not_done))


LOAD = ["source", "test", "connections", "depth"]


def _loads(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, own in rows.groupby(LOAD, sort=False, dropna=False):
        yield own


# --- 1: Little's law --------------------------------------------------------------------------------------

MORE, FAR_MORE, FAR_LESS = 1.1, 1.5, 0.5
"""Printed means have three digits and durations are rounded: up to a tenth more than 1 may be that."""
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}


def under_way(rows: pd.DataFrame) -> pd.Series[float]:
    """Return rate x mean / (connections x depth): the share of the requests that may be under way, that were.

    NaN for open loads, and where one of them is not known.
    """
    return _share(rows, rows["mean_ms"])


def least_mean(rows: pd.DataFrame) -> pd.Series[float]:
    """Return what a mean in ms is at least by the quantiles that are known: no value between two is below the lower."""
    least, above = pd.Series(0.0, rows.index), pd.Series(1.0, rows.index)
    for name, quantile in reversed(QUANTILES.items()):
        known = rows[name].notna()
        least += ((above - quantile) * rows[name]).where(known, 0.0)
        above = above.mask(known, quantile)
    return least.where(least > 0)


def _share(rows: pd.DataFrame, mean_ms: pd.Series[float]) -> pd.Series[float]:
    share = rows["rate"] * mean_ms / 1000 / (rows["connections"] * rows["depth"])
    return share.where(rows["load_model"] != "open")


def _little(rows: pd.DataFrame) -> Iterator[Finding]:
    without, least = rows["mean_ms"].isna(), least_mean(rows)
    said = rows.assign(share=under_way(rows), time=rows["mean_ms"], how="")
    more = rows.assign(share=_share(rows, least), time=least, how=" (at least, by the percentiles)")
    less = rows.assign(share=_share(rows, rows["p99_ms"]), time=rows["p99_ms"], how=" (p99)")
    known = pd.concat(
        [said, more[without & (more["share"] > MORE)], less[without & (less["share"] < FAR_LESS)]], ignore_index=True
    )
    known = known[(known["share"] > MORE) | (known["share"] < FAR_LESS)]
    known = known[known["share"] > 0].assign(far=lambda own: own["share"].map(math.log).abs())
    for row in known.sort_values("far", ascending=False).to_dict("records"):
        yield _of_share(row)


def _of_share(row: Mapping[Hashable, Any]) -> Finding:
    deep = f" x {row['depth']:g}" if row["depth"] != 1 else ""
    said = (
        f"{number(row['rate'])} requests/s x {number(row['time'])} ms{row['how']} = "
        f"{number(row['rate'] * row['time'] / 1000)} under way, on {row['connections']:,.0f}{deep} connections: "
        f"{row['share']:.3g} of what there is room for"
    )
    if row["share"] > MORE:
        why = "; with wrk the mean is, to which it adds requests that were never sent" if row["tool"] == "wrk" else ""
        grave = Severity.IMPOSSIBLE if row["share"] > FAR_MORE else Severity.SUSPICIOUS
        return finding(LITTLE, grave, row, f"{said}. One of the three is not what its column says{why}.")
    if row["mode"] == "close":
        return finding(LITTLE, Severity.KNOWING, row, f"{said}; connections were made anew meanwhile.")
    slow = ", or one request in 100 took most of the time" if row["how"] else ""
    return finding(LITTLE, Severity.SUSPICIOUS, row, f"{said}: the connections were elsewhere most of the time{slow}.")


# --- 2: one limit for all ---------------------------------------------------------------------------------

BAND, AROUND = 0.01, 0.2
LEAST_ROWS, LEAST_IN_BAND = 10, 5
RARE = 1e-4


def band_of(rates: pd.Series[float]) -> tuple[float, float, int, float]:
    """Return the densest band of 1 %: its ends, how many rates are in it, and how often chance makes such a one.

    The chance is Poisson's, with the density within 10 % to either side, times the number of places for a band.
    """
    logs = np.sort(np.log(rates.to_numpy(dtype=float)))
    ends = np.searchsorted(logs, logs + BAND, side="right")
    counts = ends - np.arange(logs.size)
    first = int(np.argmax(counts))
    middle = logs[first] + BAND / 2
    near = int(((logs > middle - AROUND / 2) & (logs < middle + AROUND / 2)).sum()) - int(counts[first])
    expected = max(near, 1) * BAND / (AROUND - BAND)
    # scipy.special.pdtrc(count - 1, expected), which takes half a second to import.
    more = range(int(counts[first]), int(counts[first]) + 1000)
    tail = sum(math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in more)
    chance = min(1.0, logs.size * tail)
    last = int(ends[first]) - 1
    return float(np.exp(logs[first])), float(np.exp(logs[last])), int(counts[first]), chance


def _plateau(rows: pd.DataFrame) -> Iterator[Finding]:
    for own in _loads(rows[(rows["rate"] > 0) & (rows["load_model"] != "open")]):
        if own["subject"].nunique() < LEAST_ROWS:
            continue
        low, high, count, chance = band_of(own["rate"])
        inside = own[own["rate"].between(low, high)]
        if count < LEAST_IN_BAND or chance > RARE or inside["subject"].nunique() < LEAST_IN_BAND:
            continue
        above = int((own["rate"] > high).sum())
        spoken = [language for language in inside["language"].unique() if language]
        kinds = f" in {plural(len(spoken), 'language')}" if spoken else ""
        bits = 8e-9 * inside["bytes_per_s"].dropna()
        carried = f" They carry {bits.min():.3g} to {bits.max():.3g} Gbit/s." if len(bits) else ""
        yield of_test(
            PLATEAU, Severity.SUSPICIOUS if above <= len(own) // 10 else Severity.KNOWING, own,
            f"{count} of {len(own)} rates{kinds} lie between {number(low)} and {number(high)} requests/s, within 1 %; "
            f"{above} are higher. Chance would make such a band once in {number(1 / max(chance, 1e-12))} tables."
            f"{carried}",
        )  # fmt: skip


# --- 3: ties ----------------------------------------------------------------------------------------------

CLOSE = 0.05


def _ties(rows: pd.DataFrame) -> Iterator[Finding]:
    for own in _loads(rows[rows["rate"] > 0]):
        if own["subject"].nunique() < 2:
            continue
        ranked = own.sort_values("rate", ascending=False).drop_duplicates("subject")
        spread = ranked[ranked["rate_low"].notna() & ranked["rate_high"].notna()]
        if len(spread) > 1:
            ahead, behind = spread["rate_low"].to_numpy()[:-1], spread["rate_high"].to_numpy()[1:]
            if tied := int((ahead <= behind).sum()):
                said = f"{tied} of {len(spread) - 1} neighbouring places overlap with the spread given: they are ties."
                yield of_test(TIES, Severity.KNOWING, own, said)
            continue
        rates = ranked["rate"].to_numpy()
        steps = rates[:-1] / rates[1:] - 1
        if near := int((steps < CLOSE).sum()):
            yield of_test(
                TIES, Severity.KNOWING, own,
                f"no spread is given, and {near} of {len(steps)} neighbouring places are less than 5 % apart (the "
                f"first two {100 * steps[0]:.2g} %): to rank half of all neighbours, repeats must agree within "
                f"{100 * float(np.median(steps)):.2g} %.",
            )  # fmt: skip


# --- 4: who was busy --------------------------------------------------------------------------------------

BUSY, HALF_IDLE = 0.9, 0.5


def _busy(rows: pd.DataFrame) -> Iterator[Finding]:
    known = rows[
        (rows["cpu_given_pct"] > 0) & (rows["cpu_pct"] >= 0) & (rows["rate"] > 0) & (rows["load_model"] != "open")
    ]
    for own in _loads(known.assign(used=known["cpu_pct"] / known["cpu_given_pct"])):
        if len(own) < 2:
            continue
        first = own.sort_values("rate").iloc[-1].to_dict()
        if first["used"] < HALF_IDLE:
            yield finding(
                CPU, Severity.SUSPICIOUS, first,
                f"the highest rate, {number(first['rate'])} requests/s, took {number(first['cpu_pct'])} % of CPU of "
                f"{number(first['cpu_given_pct'])} % given: the server was not the limit.",
            )  # fmt: skip
        full, idle = int((own["used"] >= BUSY).sum()), int((own["used"] < HALF_IDLE).sum())
        if full and idle:
            yield of_test(
                CPU, Severity.KNOWING, own,
                f"the ranking mixes {full} rows that used 90 % of their CPUs or more with {idle} that used less than "
                "half.",
            )  # fmt: skip


# --- 5: percentiles ---------------------------------------------------------------------------------------

IN_ORDER = ("min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")
ROUNDED = 1.02
"""Two numbers that were rounded to three digits may change their order by so much."""
TIMEOUTS_MS = (1_000, 2_000, 5_000, 8_000, 10_000, 15_000, 20_000, 30_000, 60_000)


def _percentiles(rows: pd.DataFrame) -> Iterator[Finding]:
    for name in (*IN_ORDER, "mean_ms", "stdev_ms"):
        said = partial(_ends_in, "ms, below zero", name)
        yield from where(rows, rows[name] < 0, TIMES, Severity.IMPOSSIBLE, said)
    known = rows[list(IN_ORDER)].where(lambda times: times >= 0)
    before = known.ffill(axis=1).shift(axis=1)
    for place, name in enumerate(IN_ORDER):
        said = partial(_out_of_order, IN_ORDER[:place], name)
        yield from where(rows, before[name] > known[name] * ROUNDED, TIMES, Severity.IMPOSSIBLE, said)
    yield from _of_means(rows)
    yield from _stand_ins(rows)
    for name in ("p99_ms", "max_ms"):
        said = partial(_ends_in, "ms to the digit, which looks like a time-out", name)
        yield from where(rows, rows[name].isin(TIMEOUTS_MS), TIMES, Severity.KNOWING, said)


def _of_means(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield means and standard deviations that cannot belong to the other numbers of their row."""
    mean, top, bottom = rows["mean_ms"], rows["max_ms"], rows["min_ms"].clip(lower=0)
    for mask, grave, low, high in (
        (mean > top * ROUNDED, Severity.IMPOSSIBLE, "mean_ms", "max_ms"),
        (bottom > mean * ROUNDED, Severity.IMPOSSIBLE, "min_ms", "mean_ms"),
    ):
        yield from where(rows, mask, TIMES, grave, partial(_apart, low, high))
    yield from where(
        rows, (mean > rows["p99_ms"] * ROUNDED) & ~(mean > top * ROUNDED), TIMES, Severity.SUSPICIOUS,
        lambda row: f"{_apart('mean_ms', 'p99_ms', row)[:-1]}: one request in 100 would make most of all time.",
    )  # fmt: skip
    least = least_mean(rows)
    yield from where(
        rows.assign(least=least), mean * ROUNDED < least, TIMES, Severity.IMPOSSIBLE,
        lambda row: f"the mean is {number(row['mean_ms'])} ms; by the percentiles it is at least "
        f"{number(row['least'])} ms.",
    )  # fmt: skip
    widest = (((top * ROUNDED - mean) * (mean - bottom.fillna(0.0))).abs() * ROUNDED**2).pow(0.5)
    yield from where(
        rows.assign(widest=widest), rows["stdev_ms"] > widest, TIMES, Severity.IMPOSSIBLE,
        lambda row: f"a standard deviation of {number(row['stdev_ms'])} ms: with this mean and maximum it is at most "
        f"{number(row['widest'])} ms (Bhatia and Davis).",
    )  # fmt: skip


def _stand_ins(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield where one number seems to stand in for another: once for a test that has it in most of its rows."""
    for one, other, grave in (
        ("mean_ms", "p99_ms", Severity.SUSPICIOUS), ("p99_ms", "max_ms", Severity.KNOWING),
    ):  # fmt: skip
        same = rows[one].eq(rows[other]) & (rows[one] > 0)
        said = f"{_name(one)} and {_name(other)} are the same"
        for _, own in rows[rows[one].notna() & rows[other].notna()].groupby(["source", "test"], sort=False):
            count = int(same[own.index].sum())
            if count > max(2, len(own) // 2):
                says = f"{said} in {count} of {len(own)} rows: one stands in for the other."
                yield Finding(TIMES, grave, own["source"].iloc[0], own["test"].iloc[0], "", "", says)
                continue
            said_of_row = partial(_ends_in, f"ms, as {_name(other)} is: one stands in for the other", one)
            yield from where(own, same[own.index], TIMES, grave, said_of_row)


def _ends_in(words: str, name: str, row: Mapping[Hashable, Any]) -> str:
    return f"{_name(name)} is {number(row[name])} {words}."


def _out_of_order(earlier: Sequence[str], name: str, row: Mapping[Hashable, Any]) -> str:
    return _apart(next(each for each in reversed(earlier) if row[each] >= 0), name, row)


def _apart(low: str, high: str, row: Mapping[Hashable, Any]) -> str:
    return f"{_name(low)} {number(row[low])} ms is above {_name(high)} {number(row[high])} ms."


def _name(column: str) -> str:
    named = {"min": "the minimum", "max": "the maximum", "mean": "the mean", "stdev": "the standard deviation"}
    return named.get(stem := column.removesuffix("_ms"), stem)


# --- 6: counts --------------------------------------------------------------------------------------------

APART, FAR_APART, WRONG, OVERFULL = 0.05, 0.5, 0.001, 1.01


def _counts(rows: pd.DataFrame) -> Iterator[Finding]:
    counted = (rows["requests"] / rows["duration_s"]).where(rows["duration_s"] > 0)
    apart = (counted / rows["rate"] - 1).abs().where(rows["rate"] > 0)
    for mask, grave in (
        (apart > FAR_APART, Severity.IMPOSSIBLE), ((apart > APART) & (apart <= FAR_APART), Severity.SUSPICIOUS),
    ):  # fmt: skip
        yield from where(
            rows.assign(counted=counted), mask, COUNTS, grave,
            lambda row: f"{number(row['requests'])} requests in {number(row['duration_s'])} s are "
            f"{number(row['counted'])} a second, and the rate is given as {number(row['rate'])}.",
        )  # fmt: skip
    longer = (rows["elapsed_s"] - rows["duration_s"]).abs() > (APART * rows["duration_s"]).clip(lower=2.0)
    yield from where(
        rows, longer & (rows["elapsed_s"] > 0) & (rows["duration_s"] > 0), COUNTS, Severity.SUSPICIOUS,
        lambda row: f"the load is said to have lasted {number(row['duration_s'])} s, its begin and end are "
        f"{number(row['elapsed_s'])} s apart.",
    )  # fmt: skip
    yield from where(
        rows, rows["errors"] > WRONG * rows["requests"], COUNTS, Severity.SUSPICIOUS,
        lambda row: f"{number(row['errors'])} errors beside {number(row['requests'])} requests, "
        f"{100 * row['errors'] / row['requests']:.2g} %: an error may be quicker than the answer asked for.",
    )  # fmt: skip
    used, given = rows["cpu_pct"], rows["cpu_given_pct"]
    for mask, grave in (
        (used > OVERFULL * given, Severity.IMPOSSIBLE),
        ((used > given) & (used <= OVERFULL * given), Severity.SUSPICIOUS),
    ):
        yield from where(
            rows, mask, COUNTS, grave,
            lambda row: f"{row['cpu_pct']:,.5g} % of CPU were used, {row['cpu_given_pct']:,.5g} % are there.",
        )  # fmt: skip
    yield from where(
        rows, used < 0, COUNTS, Severity.IMPOSSIBLE, lambda row: f"{number(row['cpu_pct'])} % of CPU is below zero."
    )
    yield from where(
        rows, rows["rate"] > 1.02 * rows["target_rate"], COUNTS, Severity.SUSPICIOUS,
        lambda row: f"{number(row['rate'])} requests/s, where {number(row['target_rate'])} were offered.",
    )  # fmt: skip


# --- 7: across levels -------------------------------------------------------------------------------------

FALLS = 0.5


def _levels(rows: pd.DataFrame) -> Iterator[Finding]:
    known = rows[(rows["rate"] > 0) & (rows["connections"] > 0) & (rows["load_model"] != "open")]
    of_one = ["source", "test", "subject", "mode", "depth"]
    ordered = known.drop_duplicates([*of_one, "connections"]).sort_values([*of_one, "connections"])
    for before, after in pairwise(ordered.to_dict("records")):
        if any(before[name] != after[name] for name in of_one):
            continue
        more, change = after["connections"] / before["connections"], after["rate"] / before["rate"]
        said = (
            f"from {before['connections']:,.0f} to {after['connections']:,.0f} connections the rate goes from "
            f"{number(before['rate'])} to {number(after['rate'])} requests/s"
        )
        if change < FALLS:
            yield finding(LEVELS, Severity.SUSPICIOUS, after, f"{said}: {change:.2g} times.")
        elif change > more * MORE:
            reason = "more than the connections grew, so that each must have been answered sooner"
            yield finding(LEVELS, Severity.SUSPICIOUS, after, f"{said}, {reason}.")


# --- 8: missing values, 9: duplicates ---------------------------------------------------------------------


def _missing(rows: pd.DataFrame) -> Iterator[Finding]:
    for source, own in rows[rows["missing"] != ""].groupby("source", sort=False):
        counts = Counter(name for said in own["missing"] for name in said.split())
        every = int((rows["source"] == source).sum())
        for name, count in counts.most_common():
            row = own[own["missing"].str.split().map(lambda names, name=name: name in names)].iloc[0]
            where = f"in {count:,} of {every:,} rows, first in {row['row']} ({row['subject']})"
            says = f"{name} has -1, 0 or nothing {where}: no number to rank or to take a mean of."
            grave = Severity.SUSPICIOUS if name == "rate" and count < every else Severity.KNOWING
            if name.endswith(BELOW):
                says, grave = f"{name.removesuffix(BELOW)} is below zero {where}.", Severity.IMPOSSIBLE
            yield Finding(MISSING, grave, str(source), "", "", "", says)


ALIKE = ["rate", "mean_ms", "stdev_ms", "p50_ms", "p99_ms", "max_ms", "requests"]
DIGITS = 10_000
OLD_DAYS = 180


def _duplicates(rows: pd.DataFrame) -> Iterator[Finding]:
    known = rows[(rows["rate"] * 10 >= DIGITS) & (rows[ALIKE].notna().sum(axis=1) >= 3)]
    for _, own in known.groupby(["source", *ALIKE], sort=False, dropna=False):
        names = list(dict.fromkeys(own["subject"]))
        if len(own) > 1 and (len(names) > 1 or own["connections"].nunique() > 1):
            others = ", ".join(f"{row['subject']} ({row['row']})" for row in own.iloc[1:4].to_dict("records"))
            said = f"the same numbers to the last digit as {others}: {number(own['rate'].iloc[0])} requests/s."
            yield finding(SAME, Severity.SUSPICIOUS, own.iloc[0].to_dict(), said)
    days = pd.to_datetime(rows["day"].str.replace("-", "").where(rows["day"] != ""), format="%Y%m%d", errors="coerce")
    for source, of_source in days.groupby(rows["source"]):
        old = of_source[of_source < of_source.max() - pd.Timedelta(days=OLD_DAYS)]
        if len(old):
            first, last = old.min().date(), of_source.max().date()
            said = f"{len(old):,} of {len(of_source):,} rows are half a year older than the newest ({first}, {last})."
            yield Finding(SAME, Severity.KNOWING, str(source), "", "", "", said)


# --- all of them ------------------------------------------------------------------------------------------

LITTLE, PLATEAU, TIES, CPU = "Little's law", "one limit for all", "ties", "who was busy"
TIMES, COUNTS, LEVELS, MISSING, SAME = "percentiles", "counts", "across levels", "missing values", "duplicates"
CHECKS: Sequence[Law] = (
    Law(
        LITTLE,
        "In a closed loop requests under way = rate x mean response time (Little 1961), at most connections x depth.",
        (("rate", "connections", "mean_ms"), *(("rate", "connections", name) for name in QUANTILES)),
        "Which of the three columns is wrong, or whether a server is slow. wrk and wrk2 add requests to their "
        "histogram that were never sent, which makes the mean larger.",
        _little,
    ),
    Law(
        PLATEAU,
        "Different programs do not have one rate by chance: a plateau is a generator's, a network's or a harness's.",
        (("rate",),),
        "Which of them it is; equal programs, such as variants of one framework, are equally fast rightly.",
        _plateau,
    ),
    Law(
        TIES,
        "Two places can be told apart only where they differ by more than repeats of one of them do.",
        (("rate",),),
        "That neighbours are equal: with repeats they might be told apart.",
        _ties,
    ),
    Law(
        CPU,
        "Utilisation law: a server that has CPU left was not the limit, so that its rate is a lower bound.",
        (("rate", "cpu_pct", "cpu_given_pct"),),
        "What the limit was: a lock, one thread, the network or the generator leave CPU, too.",
        _busy,
    ),
    Law(
        TIMES,
        "minimum <= p50 <= p90 <= p99 <= maximum; minimum <= mean <= maximum; the variance of values between a and b "
        "with mean m is at most (b - m)(m - a) (Bhatia and Davis 2000).",
        (*pairwise(IN_ORDER), ("mean_ms", "max_ms"), ("mean_ms", "p99_ms"), ("p50_ms", "p99_ms")),
        "Which of the numbers is wrong. A mean above p99 is possible where a few requests took very long.",
        _percentiles,
    ),
    Law(
        COUNTS,
        "Rate = requests / time; nobody uses more CPU than there is; an open load has no more than was offered.",
        (
            ("requests", "duration_s", "rate"),
            ("cpu_pct", "cpu_given_pct"),
            ("errors", "requests"),
            ("target_rate", "rate"),
        ),
        "Which count is wrong: a warm-up or a clock of whole seconds makes some of the difference.",
        _counts,
    ),
    Law(
        LEVELS,
        "With k times the connections the rate grows k times at most, unless each request is answered sooner.",
        (("rate", "connections"),),
        "A fault: a server may collapse under more connections, and a cold first level may be slow.",
        _levels,
    ),
    Law(
        MISSING,
        "-1, 0 and nothing stand for what was not measured.",
        ((),),
        "That a ranking took them for numbers; that they can be taken for some.",
        _missing,
    ),
    Law(
        SAME,
        "Measured numbers do not agree to the last digit, and old ones are of another machine or version.",
        (("rate",),),
        "Which of the equal rows is the copy.",
        _duplicates,
    ),
)
