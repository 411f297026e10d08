"""Nine checks of whether the numbers of a table can be true together.

laws.toml has the law behind each check, and what a finding does not prove.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from runner.audit.finding import Audit, Finding, Rule, Severity, laws, of_row, of_test
from runner.audit.formats import BELOW
from runner.model import short_number
from runner.present.look.captions import plural

IMPOSSIBLE, SUSPICIOUS, KNOWING = Severity
Rules = Sequence[Rule]
MORE = 1.1
"""Share of connections in use up to which rounding alone can explain it.

Printed means have three digits and durations are rounded.
"""
FAR_MORE = 1.5
FAR_LESS = 0.5
"""Shares of connections in use beyond which a finding is graver."""
BUSY = 0.9
HALF_IDLE = 0.5
ROUNDED = 1.02  # two numbers rounded to three digits can change order within 2 %
TIMEOUTS_MS = (1_000, 2_000, 5_000, 8_000, 10_000, 15_000, 20_000, 30_000, 60_000)
WRK_MEAN = "; with wrk the mean is, to which it adds requests that were never sent"
AUDITED_QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
IN_ORDER = ["min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"]
NAMES = {
    **{name: name.removesuffix("_ms") for name in AUDITED_QUANTILES},
    **{
        "min_ms": "the minimum",
        "max_ms": "the maximum",
        "mean_ms": "the mean",
        "stdev_ms": "the standard deviation",
    },
}
BAND = 0.01
AROUND = 0.2
RARE = 1e-4
LEAST_ROWS = 10
LEAST_IN_BAND = 5
CLOSE = 0.05
DIGITS = 10_000
ALIKE = ["rate", "mean_ms", "stdev_ms", "p50_ms", "p99_ms", "max_ms", "requests"]
OLD_DAYS = 180


def audit(rows: pd.DataFrame) -> Audit:
    """Run every check on rows returned by `reading.read_all`."""
    found: list[Finding] = []
    not_done = []
    for key, law in laws().items():
        if any(rows[names.split()].notna().all(axis=1).any() for names in law.needs):
            found += [replace(finding, check=law.name) for finding in CHECKS[key](rows, law.rules)]
        else:
            not_done.append(
                f"{law.name} (takes {' or '.join(', '.join(names.split()) for names in law.needs)})"
            )
    grave = list(Severity)
    return Audit(
        rows,
        tuple(sorted(found, key=lambda finding: grave.index(finding.severity))),
        tuple(not_done),
    )


def _broken(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    """Yield a finding for each row that breaks a rule.

    Names with an @ in a rule's expression are constants of this module.
    """
    for rule in rules:
        for row in rows.query(rule.breaks, engine="python").to_dict("records"):
            yield of_row(rule.severity, row, rule.says)


def _loads(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of each load; only rows of one load can be ranked against each other."""
    for _, load in rows.groupby(
        ["source", "test", "connections", "depth"], sort=False, dropna=False
    ):
        yield load


def under_way(rows: pd.DataFrame, time: str = "mean_ms") -> pd.Series[float]:
    """Return rate x mean / (connections x depth): the mean share of the connections in use.

    NaN for open loads, and if one of these numbers is unknown. `time` names the column used as the
    mean.
    """
    share = rows["rate"] * rows[time] / 1000 / (rows["connections"] * rows["depth"])
    return share.where(rows["load_model"] != "open")


def least_mean(rows: pd.DataFrame) -> pd.Series[float]:
    """Return a lower bound of the mean, in ms, from the known quantiles.

    No value between two quantiles is below the lower one.
    """
    least = pd.Series(0.0, rows.index)
    above = pd.Series(1.0, rows.index)
    for name, quantile in reversed(AUDITED_QUANTILES.items()):
        known = rows[name].notna()
        least += ((above - quantile) * rows[name]).where(known, 0.0)
        above = above.mask(known, quantile)
    return least.where(least > 0)


def _shares_by(rows: pd.DataFrame, time: str, how: str) -> pd.DataFrame:
    """Return the rows with the share of connections that are busy by one of their times."""
    return rows.assign(share=under_way(rows, time), time=rows[time], how=how)


def _little(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    rows = rows.assign(least_ms=least_mean(rows))
    without = rows["mean_ms"].isna()
    said = _shares_by(rows, "mean_ms", "")
    more = _shares_by(rows, "least_ms", " (at least, by the percentiles)")
    less = _shares_by(rows, "p99_ms", " (p99)")
    parts = [
        said,
        more[without & (more["share"] > MORE)],
        less[without & (less["share"] < FAR_LESS)],
    ]
    known = pd.concat(parts, ignore_index=True).query("share > 0")
    known = known.assign(
        under=known["rate"] * known["time"] / 1000,
        deep=known["depth"].map(lambda depth: f" x {depth:g}" if depth != 1 else ""),
        why=np.where(known["tool"] == "wrk", WRK_MEAN, ""),
        slow=np.where(known["how"] == "", "", ", or one request in 100 took most of the time"),
    )
    yield from _broken(
        known.loc[np.log(known["share"]).abs().sort_values(ascending=False).index], rules
    )


@dataclass(frozen=True)
class RateBand:
    """A band of 1 % in which many rates of a table lie."""

    low_rps: float
    high_rps: float
    count: int
    """How many rates lie in it."""
    chance: float
    """The probability that a table without a common limit has such a band."""


def densest_band(rates: pd.Series[float]) -> RateBand:
    """Return the band of 1 % that most rates lie in.

    Its chance is Poisson's, with the density within 10 % to either side, times the number of places
    for a band.
    """
    logs = np.sort(np.log(rates.to_numpy(dtype=float)))
    ends = np.searchsorted(logs, logs + BAND, side="right")
    counts = ends - np.arange(logs.size)
    first = int(np.argmax(counts))
    count = int(counts[first])
    last = int(ends[first]) - 1
    middle = logs[first] + BAND / 2
    near = int(((logs > middle - AROUND / 2) & (logs < middle + AROUND / 2)).sum()) - count
    expected = max(near, 1) * BAND / (AROUND - BAND)
    # This is scipy.special.pdtrc(count - 1, expected), which takes half a second to import.
    tail = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1))
        for k in range(count, count + 1000)
    )
    return RateBand(
        low_rps=float(np.exp(logs[first])),
        high_rps=float(np.exp(logs[last])),
        count=count,
        chance=min(1.0, logs.size * tail),
    )


def _plateau(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    for load in _loads(rows.query("rate > 0 and load_model != 'open'")):
        if load["subject"].nunique() < LEAST_ROWS:
            continue
        band = densest_band(load["rate"])
        inside = load[load["rate"].between(band.low_rps, band.high_rps)]
        if band.chance > RARE or inside["subject"].nunique() < LEAST_IN_BAND:
            continue
        above = int((load["rate"] > band.high_rps).sum())
        languages = inside.loc[inside["language"] != "", "language"].nunique()
        kinds = f" in {plural(languages, 'language')}" if languages else ""
        bits = 8e-9 * inside["bytes_per_s"].dropna()
        carried = f" They carry {bits.min():.3g} to {bits.max():.3g} Gbit/s." if len(bits) else ""
        said = (
            f"{band.count} of {len(load)} rates{kinds} lie between {short_number(band.low_rps)} "
            f"and {short_number(band.high_rps)} requests/s, within 1 %; {above} are higher. Chance "
            f"would make such a band once in {short_number(1 / max(band.chance, 1e-12))} "
            f"tables.{carried}"
        )
        yield of_test(SUSPICIOUS if above <= len(load) // 10 else KNOWING, load, said)


def _ties(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    for load in _loads(rows.query("rate > 0")):
        ranked = load.sort_values("rate", ascending=False).drop_duplicates("subject")
        spread = ranked.dropna(subset=["rate_low", "rate_high"])
        if len(spread) > 1:
            tied = int(
                (spread["rate_low"].to_numpy()[:-1] <= spread["rate_high"].to_numpy()[1:]).sum()
            )
            overlap = "overlaps" if tied == 1 else "overlap"
            said = (
                f"{tied} of {plural(len(spread) - 1, 'pair')} of neighbours {overlap} with the "
                f"spread given: {'it is a tie' if tied == 1 else 'they are ties'}."
            )
        elif len(ranked) > 1:
            steps = ranked["rate"].to_numpy()[:-1] / ranked["rate"].to_numpy()[1:] - 1
            first_pct = short_number(100 * float(steps[0]))
            median_pct = short_number(100 * float(np.median(steps)))
            tied = int((steps < CLOSE).sum())
            said = (
                f"no spread is given, and {tied} of {plural(len(steps), 'pair')} of neighbours "
                f"{'is' if tied == 1 else 'are'} less than 5 % apart, the first two {first_pct} %: "
                f"to rank half of all neighbours, repeats must agree within {median_pct} %."
            )
        else:
            continue
        if tied:
            yield of_test(KNOWING, load, said)


def _busy(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    known = rows.query("cpu_given_pct > 0 and cpu_pct >= 0 and rate > 0 and load_model != 'open'")
    for load in _loads(known.assign(used=known["cpu_pct"] / known["cpu_given_pct"])):
        if len(load) < 2:
            continue
        yield from _broken(load.sort_values("rate").tail(1), rules)
        full = int((load["used"] >= BUSY).sum())
        idle = int((load["used"] < HALF_IDLE).sum())
        if full and idle:
            said = (
                f"{full} rows that used 90 % of their CPUs or more with {idle} that used less than "
                "half"
            )
            yield of_test(KNOWING, load, f"the ranking mixes {said}.")


def _percentiles(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    mean = rows["mean_ms"]
    bottom = rows["min_ms"].clip(lower=0).fillna(0.0)
    widest = ((rows["max_ms"] * ROUNDED - mean) * (mean - bottom)).abs().pow(0.5) * ROUNDED
    rows = rows.assign(least=least_mean(rows), widest=widest)
    for name, said in NAMES.items():
        yield from _broken(
            rows, [Rule(f"{name} < 0", IMPOSSIBLE, f"{said} is {{{name}}} ms, below zero.")]
        )
    lower = pd.Series(np.nan, rows.index)
    lower_name = np.full(len(rows), "")
    for name in IN_ORDER:  # compare each quantile with the next lower known one
        says = f"{{lower_name}} {{lower}} ms is above {NAMES[name]} {{{name}}} ms."
        beside = rows.assign(lower=lower, lower_name=lower_name)
        yield from _broken(
            beside, [Rule(f"lower > {name} * @ROUNDED and {name} >= 0", IMPOSSIBLE, says)]
        )
        known = rows[name] >= 0
        lower = rows[name].where(known, lower)
        lower_name = np.where(known, NAMES[name], lower_name)
    yield from _broken(rows, rules)
    for one, other, severity in (("mean_ms", "p99_ms", SUSPICIOUS), ("p99_ms", "max_ms", KNOWING)):
        same = f"{one} == {other} and {one} > 0"
        stands_in = ": one stands in for the other."
        for (source, test), group in rows.dropna(subset=[one, other]).groupby(
            ["source", "test"], sort=False
        ):
            count = len(group.query(same))
            if count > max(
                2, len(group) // 2
            ):  # one finding for a test if most of its rows have it
                said = (
                    f"{NAMES[one]} and {NAMES[other]} are the same in {count} of {len(group)} "
                    f"rows{stands_in}"
                )
                yield Finding(severity, said, str(source), str(test))
            else:
                says = f"{NAMES[one]} is {{{one}}} ms, as {NAMES[other]} is{stands_in}"
                yield from _broken(group, [Rule(same, severity, says)])


def _counts(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    counted = (rows["requests"] / rows["duration_s"]).where(rows["duration_s"] > 0)
    apart = (counted / rows["rate"] - 1).abs().where(rows["rate"] > 0)
    longer = (rows["elapsed_s"] - rows["duration_s"]).abs()
    wrong_pct = 100 * rows["errors"] / rows["requests"]
    beside = rows.assign(
        counted=counted,
        apart=apart,
        longer=longer,
        wrong_pct=wrong_pct,
        cpu_tolerance=rows["cpu_tolerance"].fillna(0.0),
    )
    yield from _broken(beside, rules)


def _levels(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    subject = ["source", "test", "subject", "mode", "depth"]
    known = rows.query("rate > 0 and connections > 0 and load_model != 'open'")
    known = known.drop_duplicates([*subject, "connections"]).sort_values([*subject, "connections"])
    levels = known.groupby(subject, sort=False)
    known = known.assign(fewer=levels["connections"].shift(), before=levels["rate"].shift())
    yield from _broken(known.assign(change=known["rate"] / known["before"]), rules)


def _missing(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    for source, lacking in rows[rows["missing"] != ""].groupby("source", sort=False):
        counts = Counter(name for said in lacking["missing"] for name in said.split())
        every = int((rows["source"] == source).sum())
        for name, count in counts.most_common():
            row = lacking[
                lacking["missing"].str.split().map(lambda names, name=name: name in names)
            ].iloc[0]
            where = f"in {count:,} of {every:,} rows, first in {row['row']} ({row['subject']})"
            if name.endswith(BELOW):
                yield Finding(
                    IMPOSSIBLE, f"{name.removesuffix(BELOW)} is below zero {where}.", str(source)
                )
            else:
                says = (
                    f"{name} has -1, 0 or nothing {where}: no number to rank or to take a mean of."
                )
                yield Finding(
                    SUSPICIOUS if name == "rate" and count < every else KNOWING, says, str(source)
                )


def _duplicates(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    known = rows[(rows["rate"] * 10 >= DIGITS) & (rows[ALIKE].notna().sum(axis=1) >= 3)]
    for _, group in known.groupby(["source", *ALIKE], sort=False, dropna=False):
        if group["subject"].nunique() > 1 or group["connections"].nunique() > 1:
            first, *others = group.to_dict("records")
            named = ", ".join(f"{row['subject']} ({row['row']})" for row in others[:3])
            says = "the same numbers to the last digit as {others}: {rate} requests/s."
            yield of_row(SUSPICIOUS, {**first, "others": named}, says)
    days = pd.to_datetime(
        rows["day"].str.replace("-", "").where(rows["day"] != ""), format="%Y%m%d", errors="coerce"
    )
    for source, dates in days.groupby(rows["source"]):
        old = dates[dates < dates.max() - pd.Timedelta(days=OLD_DAYS)]
        if len(old):
            between = f"{old.min().date()}, {dates.max().date()}"
            said = (
                f"{len(old):,} of {len(dates):,} rows are half a year older than the newest "
                f"({between})."
            )
            yield Finding(KNOWING, said, str(source))


CHECKS = {
    **{
        "little": _little,
        "plateau": _plateau,
        "ties": _ties,
        "busy": _busy,
        "percentiles": _percentiles,
    },
    **{"counts": _counts, "levels": _levels, "missing": _missing, "duplicates": _duplicates},
}
"""By the law's name in laws.toml: the function that finds the rows that break it."""
