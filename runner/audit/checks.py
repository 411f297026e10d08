"""What numbers of a table can mean together: nine checks, each a law, and what a finding of it does not prove."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import pdtrc

from runner.model import number
from runner.present.look.captions import plural


class Severity(StrEnum):
    """How sure a finding is, the gravest first."""

    IMPOSSIBLE = "impossible"
    SUSPICIOUS = "suspicious"
    KNOWING = "worth knowing"


@dataclass(frozen=True)
class Finding:
    """Where numbers do not go together, and which; `row` is empty where a finding is about a whole test."""

    check: str
    severity: Severity
    source: str
    test: str
    subject: str
    row: str
    says: str

    @property
    def where(self) -> str:
        """Subject, test and row, as far as it has them."""
        return ", ".join(part for part in (self.subject, self.test, self.row) if part)


@dataclass(frozen=True)
class Law:
    """A law, the columns that it takes, and what a finding does not prove."""

    name: str
    law: str
    needs: tuple[tuple[str, ...], ...]
    """Columns that a row must have together; any of these does."""
    proves_not: str
    find: Callable[[pd.DataFrame], Iterator[Finding]]


@dataclass(frozen=True, eq=False)
class Audit:
    """What was read, what was found, the gravest first, and which checks lacked their columns."""

    rows: pd.DataFrame
    findings: tuple[Finding, ...]
    not_done: tuple[str, ...]

    @property
    def counts(self) -> dict[Severity, int]:
        """How many findings there are of each severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}


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


def _finding(check: str, severity: Severity, row: Mapping[Hashable, Any], says: str) -> Finding:
    return Finding(check, severity, row["source"], row["test"], row["subject"], row["row"], says)


def _of_test(check: str, severity: Severity, rows: pd.DataFrame, says: str) -> Finding:
    first = rows.iloc[0]
    size = f", {first['connections']:,.0f} connections" if rows["connections"].nunique() == 1 else ""
    return Finding(check, severity, first["source"], f"{first['test']}{size}", "", "", says)


LOAD = ["source", "test", "connections", "depth"]


def _loads(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, own in rows.groupby(LOAD, sort=False, dropna=False):
        yield own


# --- 1: Little's law --------------------------------------------------------------------------------------

MORE, FAR_MORE, FAR_LESS = 1.1, 1.5, 0.5
"""Printed means have three digits and durations are rounded: up to a tenth more than 1 may be that."""


def under_way(rows: pd.DataFrame) -> pd.Series[float]:
    """Return rate x mean / (connections x depth): the share of the requests that may be under way, that were.

    NaN for open loads, and where one of them is not known.
    """
    share = rows["rate"] * rows["mean_ms"] / 1000 / (rows["connections"] * rows["depth"])
    return share.where(rows["load_model"] != "open")


def _little(rows: pd.DataFrame) -> Iterator[Finding]:
    known = rows.assign(share=under_way(rows)).dropna(subset="share")
    for row in known[(known["share"] > MORE) | (known["share"] < FAR_LESS)].to_dict("records"):
        deep = f" x {row['depth']:g}" if row["depth"] != 1 else ""
        said = (
            f"{number(row['rate'])} requests/s x {number(row['mean_ms'])} ms = "
            f"{number(row['rate'] * row['mean_ms'] / 1000)} under way, on {row['connections']:,.0f}{deep} connections: "
            f"{row['share']:.3g} of what there is room for"
        )
        if row["share"] > FAR_MORE:
            yield _finding(LITTLE, Severity.IMPOSSIBLE, row, f"{said}. One of the three is not what its column says.")
        elif row["share"] > MORE:
            yield _finding(LITTLE, Severity.SUSPICIOUS, row, f"{said}.")
        elif row["mode"] == "close":
            yield _finding(LITTLE, Severity.KNOWING, row, f"{said}; connections were made anew meanwhile.")
        else:
            yield _finding(
                LITTLE, Severity.SUSPICIOUS, row, f"{said}: the connections were elsewhere most of the time."
            )


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
    chance = min(1.0, logs.size * float(pdtrc(counts[first] - 1, expected)))
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
        yield _of_test(
            PLATEAU, Severity.SUSPICIOUS if above <= len(own) // 10 else Severity.KNOWING, own,
            f"{count} of {len(own)} rates{kinds} lie between {number(low)} and {number(high)} requests/s, within 1 %; "
            f"{above} are higher. Chance would make such a band once in {number(1 / max(chance, 1e-12))} tables.",
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
                yield _of_test(TIES, Severity.KNOWING, own, said)
            continue
        rates = ranked["rate"].to_numpy()
        steps = rates[:-1] / rates[1:] - 1
        if near := int((steps < CLOSE).sum()):
            yield _of_test(
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
            yield _finding(
                CPU, Severity.SUSPICIOUS, first,
                f"the highest rate, {number(first['rate'])} requests/s, took {number(first['cpu_pct'])} % of CPU of "
                f"{number(first['cpu_given_pct'])} % given: the server was not the limit.",
            )  # fmt: skip
        full, idle = int((own["used"] >= BUSY).sum()), int((own["used"] < HALF_IDLE).sum())
        if full and idle:
            yield _of_test(
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
    times = [*IN_ORDER, "mean_ms", "stdev_ms"]
    for row in rows[rows[times].notna().sum(axis=1) > 0].to_dict("records"):
        yield from _of_times(row)


def _of_times(row: Mapping[Hashable, Any]) -> Iterator[Finding]:
    for name in (*IN_ORDER, "mean_ms", "stdev_ms"):
        if row[name] < 0:
            yield _finding(TIMES, Severity.IMPOSSIBLE, row, f"{_name(name)} is {number(row[name])} ms, below zero.")
    known = [(name, row[name]) for name in IN_ORDER if row[name] >= 0]
    for (before, low), (after, high) in pairwise(known):
        if low > high * ROUNDED:
            said = f"{_name(before)} {number(low)} ms is above {_name(after)} {number(high)} ms."
            yield _finding(TIMES, Severity.IMPOSSIBLE, row, said)
    mean, p99, top, bottom = (row[name] for name in ("mean_ms", "p99_ms", "max_ms", "min_ms"))
    if mean > top * ROUNDED:
        yield _finding(
            TIMES, Severity.IMPOSSIBLE, row, f"the mean {number(mean)} ms is above the maximum {number(top)} ms."
        )
    elif mean > p99 * ROUNDED:
        said = (
            f"the mean {number(mean)} ms is above p99 {number(p99)} ms: one request in 100 would make most of all time."
        )
        yield _finding(TIMES, Severity.SUSPICIOUS, row, said)
    elif mean == p99 and mean > 0:
        said = (
            f"mean and p99 are the same, {number(mean)} ms: one of them stands in for the other, or all took as long."
        )
        yield _finding(TIMES, Severity.SUSPICIOUS, row, said)
    if bottom > mean * ROUNDED:
        said = f"the minimum {number(bottom)} ms is above the mean {number(mean)} ms."
        yield _finding(TIMES, Severity.IMPOSSIBLE, row, said)
    widest = math.sqrt(abs(top * ROUNDED - mean) * abs(mean - (bottom if bottom >= 0 else 0.0))) * ROUNDED
    if row["stdev_ms"] > widest:
        yield _finding(
            TIMES, Severity.IMPOSSIBLE, row,
            f"a standard deviation of {number(row['stdev_ms'])} ms: with this mean and maximum it is at "
            f"most {number(widest)} ms (Bhatia and Davis).",
        )  # fmt: skip
    for name in ("p99_ms", "max_ms"):
        if row[name] in TIMEOUTS_MS:
            said = f"{_name(name)} is {number(row[name])} ms to the digit, which looks like a time-out."
            yield _finding(TIMES, Severity.KNOWING, row, said)


def _name(column: str) -> str:
    named = {"min": "the minimum", "max": "the maximum", "mean": "the mean", "stdev": "the standard deviation"}
    return named.get(stem := column.removesuffix("_ms"), stem)


# --- 6: counts --------------------------------------------------------------------------------------------

APART, FAR_APART, WRONG, OVERFULL = 0.05, 0.5, 0.001, 1.01


def _counts(rows: pd.DataFrame) -> Iterator[Finding]:
    for row in rows.to_dict("records"):
        counted = row["requests"] / row["duration_s"] if row["duration_s"] > 0 else math.nan
        apart = abs(counted / row["rate"] - 1) if row["rate"] > 0 else math.nan
        if apart > APART:
            yield _finding(
                COUNTS, Severity.IMPOSSIBLE if apart > FAR_APART else Severity.SUSPICIOUS, row,
                f"{number(row['requests'])} requests in {number(row['duration_s'])} s are {number(counted)} a second, "
                f"and the rate is given as {number(row['rate'])}.",
            )  # fmt: skip
        if (
            row["elapsed_s"] > 0
            and row["duration_s"] > 0
            and abs(row["elapsed_s"] - row["duration_s"]) > max(2.0, APART * row["duration_s"])
        ):
            yield _finding(
                COUNTS, Severity.SUSPICIOUS, row,
                f"the load is said to have lasted {number(row['duration_s'])} s, its begin and end are "
                f"{number(row['elapsed_s'])} s apart.",
            )  # fmt: skip
        if row["errors"] > WRONG * row["requests"]:
            yield _finding(
                COUNTS, Severity.SUSPICIOUS, row,
                f"{number(row['errors'])} errors beside {number(row['requests'])} requests, "
                f"{100 * row['errors'] / row['requests']:.2g} %: an error may be quicker than the answer asked for.",
            )  # fmt: skip
        if row["cpu_pct"] > OVERFULL * row["cpu_given_pct"]:
            said = f"{number(row['cpu_pct'])} % of CPU were used, {number(row['cpu_given_pct'])} % are there."
            yield _finding(COUNTS, Severity.IMPOSSIBLE, row, said)
        if row["cpu_pct"] < 0:
            yield _finding(COUNTS, Severity.IMPOSSIBLE, row, f"{number(row['cpu_pct'])} % of CPU is below zero.")
        if row["rate"] > 1.02 * row["target_rate"]:
            said = f"{number(row['rate'])} requests/s, where {number(row['target_rate'])} were offered."
            yield _finding(COUNTS, Severity.SUSPICIOUS, row, said)


# --- 7: across levels -------------------------------------------------------------------------------------

FALLS = 0.5


def _levels(rows: pd.DataFrame) -> Iterator[Finding]:
    known = rows[(rows["rate"] > 0) & (rows["connections"] > 0) & (rows["load_model"] != "open")]
    for _, own in known.groupby(["source", "test", "subject", "mode", "depth"], sort=False, dropna=False):
        ordered = own.sort_values("connections").drop_duplicates("connections").to_dict("records")
        for before, after in pairwise(ordered):
            more, change = after["connections"] / before["connections"], after["rate"] / before["rate"]
            said = (
                f"from {before['connections']:,.0f} to {after['connections']:,.0f} connections the rate goes from "
                f"{number(before['rate'])} to {number(after['rate'])} requests/s"
            )
            if change < FALLS:
                yield _finding(LEVELS, Severity.SUSPICIOUS, after, f"{said}: {change:.2g} times.")
            elif change > more * MORE:
                reason = "more than the connections grew, so that each must have been answered sooner"
                yield _finding(LEVELS, Severity.SUSPICIOUS, after, f"{said}, {reason}.")


# --- 8: missing values, 9: duplicates ---------------------------------------------------------------------


def _missing(rows: pd.DataFrame) -> Iterator[Finding]:
    for source, own in rows[rows["missing"] != ""].groupby("source", sort=False):
        counts = Counter(name for said in own["missing"] for name in said.split())
        every = int((rows["source"] == source).sum())
        for name, count in counts.most_common():
            row = own[own["missing"].str.split().map(lambda names, name=name: name in names)].iloc[0]
            grave = Severity.SUSPICIOUS if name == "rate" and count < every else Severity.KNOWING
            yield Finding(
                MISSING, grave, str(source), "", "", "",
                f"{name} has -1, 0 or nothing in {count:,} of {every:,} rows, first in {row['row']} "
                f"({row['subject']}): no number to rank or to take a mean of.",
            )  # fmt: skip


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
            yield _finding(SAME, Severity.SUSPICIOUS, own.iloc[0].to_dict(), said)
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
        (("rate", "mean_ms", "connections"),),
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
