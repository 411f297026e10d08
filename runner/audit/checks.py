"""Check whether the numbers of a table can be true together.

laws.toml explains the law behind each check, and says what a finding does not prove.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from runner.audit.finding import Audit, Finding, Rule, Severity, laws, of_row, of_test
from runner.audit.formats.values import BELOW
from runner.model import short_number
from runner.present.look.captions import plural

VOID, IMPOSSIBLE, SUSPICIOUS, KNOWING = Severity
Rules = Sequence[Rule]
MORE = 1.1
"""Highest share of connections in use that rounding can explain.

The true share is at most 1. But tools print means with three digits and round durations, so the
share that is computed from these numbers may be higher than the true share.
"""
FAR_MORE = 1.5
FAR_LESS = 0.5
"""Limits of the share of connections in use.

A share above FAR_MORE is impossible, unless UNCERTAIN names an explanation for the tool. A share
between MORE and FAR_MORE is suspicious. A share below FAR_LESS means that the connections of a
closed load were idle most of the time.
"""
BUSY = 0.9
HALF_IDLE = 0.5
ROUNDED = 1.02  # rounding to three digits can swap the order of numbers that differ by up to 2 %
TIMEOUTS_MS = (1_000, 2_000, 5_000, 8_000, 10_000, 15_000, 20_000, 30_000, 60_000)
UNCERTAIN = {
    "wrk": "; with wrk this is the mean, which includes requests that were never sent",
    "oha": (
        ", unless oha sent several requests at once over each connection (`-p` with HTTP/2: then "
        "give --depth), or counted the time that requests waited for a connection "
        "(--latency-correction)"
    ),
}
"""Reasons why a tool's report may show more requests under way than connections, by tool."""
SAMPLED_TOOLS = ("bombardier", "autocannon")
"""Tools whose rate is a mean of samples, which may differ from requests / time."""
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
STANDING_IN = {("mean_ms", "p99_ms"): SUSPICIOUS, ("p99_ms", "max_ms"): KNOWING}
"""Pairs of columns that a table may have mixed up, with the severity of a finding about each pair.

There is a finding about a pair if a row has the same number in both columns.
"""
FEWEST_ALIKE = 3
MOSTLY_ALIKE = 0.9
"""Conditions for the suspicion that one column of times is a copy of another.

The two columns must agree in at least the share MOSTLY_ALIKE of a test's rows. At least
FEWEST_ALIKE of the equal numbers must have four digits.
"""
DIGITS_APART = 1e-6
"""A number counts as rounded to three digits if it nearly equals a number with three digits.

The two numbers are nearly equal if they differ by at most DIGITS_APART units of the third digit.
"""
BAND = 0.01
AROUND = 0.2
RARE = 1e-4
LEAST_ROWS = 10
LEAST_IN_BAND = 5
CLOSE = 0.05
DIGITS = 10_000
ALIKE = ["rate", "mean_ms", "stdev_ms", "p50_ms", "p99_ms", "max_ms", "requests"]
OLD_DAYS = 180
SHOWN_APART = 3
"""Highest number of rows of a test that get a finding each if they break a rule.

If more rows break the rule, there is a single finding about all of them.
"""
NAMED = 5
"""A finding about several rows of a test names at most this number of rows besides the first."""
MANY_ERRORS = 0.05
"""Share of failed requests above which `_one_rule` judges whether a rate includes errors.

If fewer requests failed, the rate with errors and the rate without errors are nearly the same.
"""
SHORT_S = 2.0
"""A load that is shorter than this many seconds counts as short.

Under a short load, a rate that is a mean of samples may differ much from requests / time.
"""
AGREEING = 0.03
"""A rate agrees with requests / time if the two differ by less than this share of the rate."""
FEW_FOR_P99 = 200
"""If a load has fewer requests than this, p99 may be equal to the maximum."""
OTHER_SIZE = 3.0
"""Two answers count as different if one is more than this many times as large as the other."""
PER_REQUEST = ("locust", "jmeter", "gatling")
"""Tools that report a row for each kind of request in one load.

Such rows are not ranked, because they belong to the same server, and a ranking compares servers.
"""
HEADERS_BYTES = 300
"""If the sizes of two answers differ by less than this, different headers can be the reason."""
EVEN = 1.05
"""If p99 / p50 is at most this, times vary so little that percentiles may be equal by rounding."""
COARSE = 1000
"""Smallest ratio of a mean to the tool's rounding error at which equal means are suspicious.

If the ratio is smaller, two different means may be printed as the same number.
"""
FEW_EACH = 100
"""Mean number of requests per connection below which the end of a load matters.

At the end of a load some connections are idle. If each connection has few requests, the end takes
much of the load's time, so `_least_sound` allows a lower share of connections in use.
"""
STOPPED = ("ab", "h2load")
"""Tools that may announce a load, but then end without printing a report."""
EXACT_TOOLS = ("wrk", "hey", "oha", "ab", "vegeta", "ghz", "fortio", "h2load", "jmeter")
"""Tools whose printed rate is exactly the printed number of requests / the printed duration."""


def audit(rows: pd.DataFrame) -> Audit:
    """Run the checks on the rows that `reading.read_all` returns, and return the findings.

    Each law names one or several sets of columns. The law's check is done if a row has values in
    all columns of one of these sets. The result names the checks that were not done.
    """
    found: list[Finding] = []
    not_done = []
    for key, law in laws().items():
        if any(rows[names.split()].notna().all(axis=1).any() for names in law.needs):
            found += [
                replace(finding, check=law.name, fix=finding.fix or law.fix)
                for finding in CHECKS[key](rows, law.rules)
            ]
        else:
            needs = ", or ".join(" + ".join(names.split()) for names in law.needs)
            not_done.append(f"{law.name} (needs {needs})")
    grave = list(Severity)
    order = sorted(found, key=lambda each: (grave.index(each.severity), -each.effect))
    return Audit(rows, tuple(order), tuple(not_done))


def _broken(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    """Yield the findings about the rows that break a rule.

    In a rule's expression, names that begin with @ are constants of this module.
    """
    for rule in rules:
        broken = rows.query(rule.breaks, engine="python")
        if rule.effect:
            broken = broken.sort_values(rule.effect, ascending=False, kind="stable")
        for (source, test), same in broken.groupby(["source", "test"], sort=False):
            every = int((rows["source"].eq(str(source)) & rows["test"].eq(str(test))).sum())
            yield from _of_rule(rule, same, every)


def _of_rule(rule: Rule, broken: pd.DataFrame, every: int) -> Iterator[Finding]:
    """Yield the findings about the rows of a test that break a rule.

    `broken` contains these rows, in descending order of the effect. `every` is the number of all
    rows of the test. If more than SHOWN_APART rows break the rule, yield a single finding about all
    these rows. Otherwise yield a finding about each of these rows.
    """
    found = [
        replace(
            of_row(rule.severity, row, rule.says),
            effect=float(row[rule.effect]) if rule.effect else 0.0,
            fix=rule.fix,
        )
        for row in broken.to_dict("records")
    ]
    if len(found) <= SHOWN_APART:
        yield from found
        return
    names = list(dict.fromkeys(each.subject or each.row for each in found[1:]))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    others = f"{', '.join(names[:NAMED])}{more}"
    said = (
        f"{found[0].says} {len(found):,} of {every:,} rows have the same fault, among them also "
        f"{others}."
    )
    is_shared = any(each.subject != found[0].subject for each in found)
    yield replace(found[0], says=said, is_shared=is_shared)


def _loads(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of each load separately, because a ranking compares rows of the same load.

    Rows are of the same load if they have the same source, test, number of connections and depth.
    """
    for _, load in rows.groupby(
        ["source", "test", "connections", "depth"], sort=False, dropna=False
    ):
        yield load


def under_way(rows: pd.DataFrame, time: str = "mean_ms") -> pd.Series[float]:
    """Return rate x mean / (connections x depth): the mean share of the connections in use.

    The share is NaN for open loads, and if one of these numbers is unknown. `time` names the column
    that is used as the mean.
    """
    return _share(rows, rows[time])


def _share(
    rows: pd.DataFrame, time_ms: pd.Series[float], rate: pd.Series[float] | None = None
) -> pd.Series[float]:
    """Return the mean share of the connections in use if a request takes `time_ms` on average.

    If `rate` is given, it replaces the rate of the rows.
    """
    waiting = (rows["rate"] if rate is None else rate) * time_ms / 1000
    share = waiting / (rows["connections"] * rows["depth"])
    return share.where(rows["load_model"] != "open")


def _slack_ms(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the highest rounding error of the printed times, in ms.

    The rounding error is 0 for tools that do not round coarsely.
    """
    return rows["resolution_ms"].fillna(0.0)


def _slowest_rate(rows: pd.DataFrame) -> pd.Series[float]:
    """Return a lower bound of the true rate, in requests/s.

    For most tools the bound is the printed rate. But the `SAMPLED_TOOLS` print a mean of samples as
    the rate. For these tools the bound is the smaller of the printed rate and requests / time. If
    the number of requests is unknown or smaller than `FEW_FOR_P99`, these tools have no bound, and
    the result is NaN.
    """
    counted = (rows["requests"] / rows["duration_s"]).where(rows["duration_s"] > 0)
    lower = np.fmin(rows["rate"], counted)
    few = rows["tool"].isin(SAMPLED_TOOLS) & ~(rows["requests"] >= FEW_FOR_P99)
    return rows["rate"].mask(rows["tool"].isin(SAMPLED_TOOLS), lower).mask(few)


def _least_sound(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the lowest share of connections in use that is plausible for a closed load.

    In a closed load, a connection should never be idle. But a load may have a fixed number of
    requests. Near its end, no request is left for some of the connections, so they are idle until
    the last request has ended, which takes at most `max_ms`. If there are few requests per
    connection (FEW_EACH), this time is a large part of the load, so a lower share is plausible.
    """
    last = rows["max_ms"] / 1000 / rows["duration_s"].where(rows["duration_s"] > 0)
    few = rows["requests"] < FEW_EACH * rows["connections"]
    return FAR_LESS * (1 - last.where(few).fillna(0.0).clip(upper=1))


def least_mean(rows: pd.DataFrame) -> pd.Series[float]:
    """Return a lower bound of the mean, in ms, from the known quantiles.

    The bound is the mean that would result if all values between two quantiles were equal to the
    lower quantile. The bound is NaN if no quantile is known.
    """
    least = pd.Series(0.0, rows.index)
    above = pd.Series(1.0, rows.index)
    for name, quantile in reversed(AUDITED_QUANTILES.items()):
        known = rows[name].notna()
        least += ((above - quantile) * rows[name]).where(known, 0.0)
        above = above.mask(known, quantile)
    return least.where(least > 0)


def most_mean(rows: pd.DataFrame) -> pd.Series[float]:
    """Return an upper bound of the mean, in ms, from the known quantiles and the maximum.

    The bound is the mean that would result if all values between two quantiles were equal to the
    upper quantile. The bound is NaN if the maximum is unknown.
    """
    most = pd.Series(0.0, rows.index)
    above = pd.Series(1.0, rows.index)
    upper = rows["max_ms"]
    for name, quantile in reversed(AUDITED_QUANTILES.items()):
        known = rows[name].notna()
        most += ((above - quantile) * upper).where(known, 0.0)
        upper = rows[name].where(known, upper)
        above = above.mask(known, quantile)
    return most + above * upper


def _shares_by(rows: pd.DataFrame, time: str, how: str) -> pd.DataFrame:
    """Return the rows with the share of connections in use, computed from the column `time`.

    The tool rounds times, so the true share is between the columns `least_share` and `most_share`.
    `how` says in words which time was used, for the messages of findings.
    """
    slack_ms = _slack_ms(rows)
    return rows.assign(
        share=under_way(rows, time),
        least_share=_share(rows, rows[time] - slack_ms, _slowest_rate(rows)),
        most_share=_share(rows, rows[time] + slack_ms),
        time=rows[time],
        how=how,
    )


def _little(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    rows = rows.assign(least_ms=least_mean(rows))
    without = rows["mean_ms"].isna()
    said = _shares_by(rows, "mean_ms", "")
    more = _shares_by(rows, "least_ms", " (the least mean that the percentiles allow)")
    less = _shares_by(rows, "p99_ms", " (p99)")
    parts = [
        said,
        more[without & (more["share"] > MORE)],
        less[without & (less["share"] < FAR_LESS)],
    ]
    known = pd.concat(parts, ignore_index=True).query("share > 0 or cycle_ms > 0")
    cycle = 1000 * known["connections"] / known["rate"]
    known = known.assign(
        effect=np.log(known["share"].where(known["share"] > 0)).abs(),
        least_sound=_least_sound(known),
        is_uncertain=known["tool"].isin(list(UNCERTAIN)),
        cycle=cycle,
        cycle_apart=(known["cycle_ms"] / cycle - 1).abs().where(known["rate"] >= 1),
        under=known["rate"] * known["time"] / 1000,
        deep=known["depth"].map(lambda depth: f" x {depth:g}" if depth != 1 else ""),
        why=known["tool"].map(UNCERTAIN).fillna(""),
        slow=np.where(known["how"] == "", "", ", or one request in 100 took most of the time"),
    )
    yield from _broken(known, rules)
    yield from _streams(rows)


def _streams(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding about each test whose connections seem to carry several requests at once.

    Rows whose file says how many requests a connection carries at once are left out.
    """
    unknown = rows[rows["protocol"].ne("") & rows["depth"].isna()]
    under_way_each = unknown["rate"] * unknown["mean_ms"] / 1000 / unknown["connections"]
    for (source, test), each in under_way_each.dropna().groupby(
        [unknown["source"], unknown["test"]], sort=False
    ):
        if each.max() > MORE:
            said = (
                f"a connection may carry several requests at once (HTTP/2, pipelining), and the "
                f"table does not say how many: {plural(len(each), 'row')} "
                f"need{'s' * (len(each) == 1)} up to {max(2, round(each.max()))} requests at once "
                "on each connection. Give the number by --depth."
            )
            fix = "Say beside the table how many requests at once a connection had."
            yield Finding(KNOWING, said, str(source), str(test), fix=fix)


@dataclass(frozen=True)
class RateBand:
    """A band of rates, 1 % wide, in which many rates of the same load lie."""

    low_rps: float
    high_rps: float
    count: int
    """Number of rates in the band."""
    chance: float
    """Probability that such a band arises by chance, without a common limit of the rates."""


def densest_band(rates: pd.Series[float]) -> RateBand:
    """Return the band, 1 % wide, that contains the most rates.

    The band's `chance` is the number of bands that were compared, multiplied by a probability, but
    at most 1. The probability is that a given band contains at least as many rates as the returned
    band. It follows from a Poisson distribution. The mean of this distribution is estimated from
    the rates near the band: those outside the band that differ by less than 10 % from its middle.
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
    # This equals scipy.special.pdtrc(count - 1, expected), but importing scipy.special takes half a
    # second.
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
        carried = (
            f" These loads carry {bits.min():.3g} to {bits.max():.3g} Gbit/s." if len(bits) else ""
        )
        said = (
            f"{band.count} of {len(load)} rates{kinds} lie between "
            f"{short_number(band.low_rps)} and {short_number(band.high_rps)} requests/s, "
            f"within 1 %; {above} {'rate is' if above == 1 else 'rates are'} higher. By chance, "
            f"only one of {short_number(1 / max(band.chance, 1e-12))} tables would have such a "
            f"band.{carried}"
        )
        yield of_test(SUSPICIOUS if above <= len(load) // 10 else KNOWING, load, said)


def _ties(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    subjects = rows[~rows["tool"].isin(PER_REQUEST)]
    for load in _loads(subjects.query("rate > 0 and load_model != 'open'")):
        ranked = load.sort_values("rate", ascending=False).drop_duplicates("subject")
        spread = ranked.dropna(subset=["rate_low", "rate_high"])
        if len(spread) > 1:
            tied = int(
                (spread["rate_low"].to_numpy()[:-1] <= spread["rate_high"].to_numpy()[1:]).sum()
            )
            overlap = "overlaps" if tied == 1 else "overlap"
            said = (
                f"{tied} of {plural(len(spread) - 1, 'pair')} of neighbours in the ranking "
                f"{overlap} within the spread that is given, so "
                f"{'it is a tie' if tied == 1 else 'they are ties'}."
            )
        elif len(ranked) > 1:
            steps = ranked["rate"].to_numpy()[:-1] / ranked["rate"].to_numpy()[1:] - 1
            first_pct = short_number(100 * float(steps[0]))
            median_pct = short_number(100 * float(np.median(steps)))
            tied = int((steps < CLOSE).sum())
            said = (
                f"no spread is given, and {tied} of {plural(len(steps), 'pair')} of "
                f"neighbours in the ranking {'is' if tied == 1 else 'are'} less than 5 % "
                f"apart; the first two are {first_pct} % apart. To distinguish half of all "
                f"neighbours, repeated measurements must agree within {median_pct} %."
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
                f"the ranking contains both {full} rows whose servers used at least 90 % of their "
                f"CPUs and {idle} rows whose servers used less than half of their CPUs."
            )
            yield of_test(KNOWING, load, said)


def _percentiles(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    mean = rows["mean_ms"]
    bottom = rows["min_ms"].clip(lower=0).fillna(0.0)
    widest = ((rows["max_ms"] * ROUNDED - mean) * (mean - bottom)).abs().pow(0.5) * ROUNDED
    slack = _slack_ms(rows)
    rows = rows.assign(
        least=least_mean(rows) - slack,
        most=most_mean(rows) + slack,
        widest=widest + slack,
        slack=slack,
    )
    for name, said in NAMES.items():
        yield from _broken(
            rows,
            [Rule(f"{name} < 0", IMPOSSIBLE, f"{said} is {{{name}}} ms, which is below zero.")],
        )
    lower = pd.Series(np.nan, rows.index)
    lower_name = np.full(len(rows), "")
    for name in IN_ORDER:  # compare each quantile with the next lower quantile that is known
        says = f"{{lower_name}} {{lower}} ms is above {NAMES[name]} {{{name}}} ms."
        beside = rows.assign(lower=lower, lower_name=lower_name)
        yield from _broken(
            beside,
            [Rule(f"lower > {name} * @ROUNDED + slack and {name} >= 0", IMPOSSIBLE, says)],
        )
        known = rows[name] >= 0
        lower = rows[name].where(known, lower)
        lower_name = np.where(known, NAMES[name], lower_name)
    yield from _broken(rows, rules)
    for (one, other), severity in STANDING_IN.items():
        same = (
            f"{one} == {other} and {one} > 50 * slack and not requests < @FEW_FOR_P99"
            " and not p99_ms <= @EVEN * p50_ms"
        )
        stands_in = ", so one column may be a copy of the other."
        for (source, test), group in rows.dropna(subset=[one, other]).groupby(
            ["source", "test"], sort=False
        ):
            count = len(group.query(same))
            # If the two columns are equal in most rows of a test, yield one finding for the test
            # instead of one for each row.
            if count > max(2, len(group) // 2):
                said = (
                    f"{NAMES[one]} and {NAMES[other]} are the same in {count} of {len(group)} "
                    f"rows{stands_in}"
                )
                yield Finding(severity, said, str(source), str(test))
            else:
                says = f"{NAMES[one]} is {{{one}}} ms, and so is {NAMES[other]}{stands_in}"
                yield from _broken(group, [Rule(same, severity, says)])
    yield from _columns_alike(rows)


def _columns_alike(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each pair of columns of times that agree in nearly every row of a test.

    At least `FEWEST_ALIKE` of the equal times must have four digits, because rounding to three
    digits can make times equal if the times of a load hardly vary.
    """
    test_of_row = rows.groupby(["source", "test"], sort=False).ngroup().to_numpy()
    count = int(test_of_row.max()) + 1 if len(rows) else 0
    first_rows = rows.drop_duplicates(["source", "test"])[["source", "test"]].to_dict("records")
    is_counted = ~(rows["requests"] < FEW_FOR_P99).to_numpy()
    coarse_ms = 50 * rows["slack"].to_numpy()
    for one, other in itertools.combinations(NAMES, 2):
        if {one, other} in [{*pair} for pair in STANDING_IN]:
            continue
        times_ms = rows[one].to_numpy()
        others_ms = rows[other].to_numpy()
        is_known = is_counted & (times_ms > coarse_ms) & (others_ms > 0)
        is_alike = is_known & (times_ms == others_ms)
        is_precise = is_alike & _has_four_digits(times_ms)
        known = np.bincount(test_of_row[is_known], minlength=count)
        alike = np.bincount(test_of_row[is_alike], minlength=count)
        precise = np.bincount(test_of_row[is_precise], minlength=count)
        for place in np.flatnonzero((precise >= FEWEST_ALIKE) & (alike >= MOSTLY_ALIKE * known)):
            said = (
                f"{NAMES[one]} and {NAMES[other]} are the same in {alike[place]} of "
                f"{known[place]} rows, so one column may be a copy of the other."
            )
            first = first_rows[place]
            yield Finding(SUSPICIOUS, said, first["source"], first["test"])


def _has_four_digits(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the positive values that have more than three significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(values)) - 2)
        return np.abs(values / unit - np.round(values / unit)) > DIGITS_APART


def _counts(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    counted = (rows["requests"] / rows["duration_s"]).where(rows["duration_s"] > 0)
    beside = rows["errors_beside"].fillna(0.0)
    good = counted * (1 - ((rows["errors"] - beside) / rows["requests"]).fillna(0.0))
    rounding = (rows["duration_slack_s"] / rows["duration_s"]).fillna(0.0)
    apart = pd.concat([_apart(counted, rows), _apart(good, rows)], axis=1).min(axis=1) - rounding
    ended = rows["requests"] + beside - rows["unfinished"].fillna(0.0)
    assessed = rows.assign(
        counted=counted,
        apart=apart,
        is_exact=rows["tool"].isin(EXACT_TOOLS),
        is_short=rows["duration_s"] < SHORT_S,
        is_stopped=rows["rate"].isna() & rows["tool"].isin(STOPPED) & ~rows["requests"].eq(0),
        longer=(rows["elapsed_s"] - rows["duration_s"]).abs(),
        ended=ended,
        wrong_place=(rows["errors"] / ended).clip(upper=1) * _part_of_best(rows),
        wrong_pct=100 * rows["errors"] / ended,
        tried=rows["unmade"] + rows["connections"].fillna(0.0),
        unmade_part=rows["unmade"] / (rows["unmade"] + rows["connections"].fillna(0.0)),
        over=rows["cpu_pct"] / rows["cpu_given_pct"] - 1 - rows["cpu_tolerance"].fillna(0.0),
    )
    yield from _broken(assessed, rules)


def _part_of_best(rows: pd.DataFrame) -> pd.Series[float]:
    """Return each rate as a share of the best rate of its load.

    The share decides how much the errors in a row matter: a row with a high rate is ranked above
    many other rows.
    """
    best = rows.groupby(["source", "test", "connections"], dropna=False)["rate"].transform("max")
    return (rows["rate"] / best).fillna(0.0)


def _apart(counted: pd.Series[float], rows: pd.DataFrame) -> pd.Series[float]:
    """Return the difference between each row's rate and `counted`, as a share of the rate.

    `counted` is the rate that follows from the row's number of requests and duration. The result is
    NaN if the row's rate is not positive.
    """
    return (counted / rows["rate"] - 1).abs().where(rows["rate"] > 0)


def _one_rule(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    known = rows[(rows["errors"] > MANY_ERRORS * rows["requests"]) & (rows["duration_s"] > 0)]
    counted = known["requests"] / known["duration_s"]
    failed = known["errors"] - known["errors_beside"].fillna(0.0)
    good = (known["requests"] - failed) / known["duration_s"]
    counts_errors = _apart(counted, known) < AGREEING
    leaves_them_out = (_apart(good, known) < AGREEING) & ~counts_errors
    for source, same in known.groupby("source", sort=False):
        with_errors = same.loc[counts_errors[same.index], "subject"].unique()
        without = same.loc[leaves_them_out[same.index], "subject"].unique()
        if len(with_errors) and len(without):
            said = (
                f"the rates of {', '.join(with_errors[:NAMED])} count errors, but the rates "
                f"of {', '.join(without[:NAMED])} do not, so the two groups cannot be "
                "ranked against each other."
            )
            yield Finding(SUSPICIOUS, said, str(source))


def _sizes(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    from_rate = rows["bytes_per_s"] / rows["rate"]
    subjects = rows[~rows["tool"].isin(PER_REQUEST)]
    known = subjects.assign(size=subjects["answer_bytes"].fillna(from_rate)).query("size > 0")
    for (source, test), same in known.groupby(["source", "test"], sort=False):
        sizes = same.groupby("subject", sort=False)["size"].median().sort_values()
        if len(sizes) < 2:
            continue
        differs = sizes.iloc[-1] > OTHER_SIZE * sizes.iloc[0]
        if not differs or sizes.iloc[-1] - sizes.iloc[0] < HEADERS_BYTES:
            continue
        # If all rows are reports of load generators, the reports may be about different requests.
        # Then different sizes may be right.
        of_a_tool = same["tool"].ne("").all()
        said = (
            f"an answer of {sizes.index[0]} has {sizes.iloc[0]:,.0f} bytes and an answer of "
            f"{sizes.index[-1]} has {sizes.iloc[-1]:,.0f} bytes, so the subjects did not "
            "give the same answer."
        )
        yield Finding(KNOWING if of_a_tool else SUSPICIOUS, said, str(source), str(test))


def _levels(rows: pd.DataFrame, rules: Rules) -> Iterator[Finding]:
    subject = ["source", "test", "subject", "mode", "depth"]
    known = rows.query("rate > 0 and connections > 0 and load_model != 'open'")
    known = known.drop_duplicates([*subject, "connections"]).sort_values([*subject, "connections"])
    levels = known.groupby(subject, sort=False)
    known = known.assign(fewer=levels["connections"].shift(), before=levels["rate"].shift())
    known["change"] = known["rate"] / known["before"]
    known["effect"] = np.abs(np.log(known["change"]))
    yield from _broken(known, rules)


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
                    f"{name} is -1, 0 or empty {where}: such a value was not measured, and must "
                    "not be ranked or averaged."
                )
                yield Finding(
                    SUSPICIOUS if name == "rate" and count < every else KNOWING, says, str(source)
                )


def _duplicates(rows: pd.DataFrame, _rules: Rules) -> Iterator[Finding]:
    yield from _equal_rows(rows)
    yield from _repeated_counts(rows)
    yield from _old_rows(rows)


def _equal_rows(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield findings about rows that are equal to the last digit, although they should differ.

    Rows should differ if they are about different subjects, have different numbers of connections,
    or are from different files.
    """
    known = rows[(rows["rate"] * 10 >= DIGITS) & (rows[ALIKE].notna().sum(axis=1) >= 3)]
    copies: dict[tuple[str, str], list[Finding]] = {}
    for _, group in known.groupby(ALIKE, sort=False, dropna=False):
        differ = any(group[name].nunique() > 1 for name in ("source", "subject", "connections"))
        if differ:
            finding = _copy(
                group,
                "this row has the same numbers, to the last digit, as {others}: {rate} requests/s.",
            )
            files = group["source"].unique()
            copies.setdefault((files[0], files[-1]), []).append(finding)
    for (first, last), found in copies.items():
        if first != last and len(found) > SHOWN_APART:
            said = (
                f"{len(found):,} rows of {last} have the same numbers, to the last digit, as "
                f"rows of {first}."
            )
            yield Finding(SUSPICIOUS, said, first)
        else:
            yield from found


def _repeated_counts(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield findings about rows with equal count, mean and maximum, but different rates."""
    counts = ["requests", "mean_ms", "max_ms"]
    # If a mean is small compared with the rounding error, different means may be printed as equal.
    is_fine = rows["mean_ms"] >= COARSE * _slack_ms(rows)
    known = rows[is_fine & (rows["requests"] * 10 >= DIGITS)].dropna(subset=[*counts, "rate"])
    for _, group in known.groupby(counts, sort=False):
        if group["rate"].nunique() > 1:
            yield _copy(
                group,
                "this row has the same count, mean and maximum as {others}, but another "
                "rate: {rate} requests/s.",
            )


def _copy(rows: pd.DataFrame, says: str) -> Finding:
    """Return a finding about the first of several rows with the same numbers.

    The finding names up to three of the other rows.
    """
    first, *others = rows.to_dict("records")
    named = ", ".join(
        f"{row['subject']} ({row['row']})"
        if row["source"] == first["source"]
        else f"{row['subject']} ({row['source']}, {row['row']})"
        for row in others[:3]
    )
    return of_row(SUSPICIOUS, {**first, "others": named}, says)


def _old_rows(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding about rows that are much older than the newest row of their file."""
    days = pd.to_datetime(
        rows["day"].str.replace("-", "").where(rows["day"] != ""), format="%Y%m%d", errors="coerce"
    )
    for source, dates in days.groupby(rows["source"]):
        old = dates[dates < dates.max() - pd.Timedelta(days=OLD_DAYS)]
        if len(old):
            between = f"{old.min().date()}, {dates.max().date()}"
            said = (
                f"{len(old):,} of {len(dates):,} rows were measured more than half a year "
                f"before the newest row ({between})."
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
    **{"counts": _counts, "one_rule": _one_rule, "sizes": _sizes, "levels": _levels},
    **{"missing": _missing, "duplicates": _duplicates},
}
"""Functions that find the rows that break a law, by the key of the law in laws.toml."""
