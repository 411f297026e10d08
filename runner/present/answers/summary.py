"""Summarise a run in a table of means, and in sentences.

The sentences contain rankings, warnings, and the reasons why values are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from runner.model import CALIBRATION, OWN_SCRIPT, REQUESTS_BEYOND, carried_percent, short_number
from runner.present.answers import other_ports
from runner.present.answers.ranking_text import READING, standing, times
from runner.present.answers.unknown import why_unknown
from runner.present.comparison.mean_words import mean_words
from runner.present.comparison.obstacle import is_the_servers, ranks_by_throughput
from runner.present.comparison.quantity import CPU_PER_REQUEST, P50, P99, THROUGHPUT
from runner.present.comparison.ratios import not_compared
from runner.present.frames import (
    Tables,
    is_sealed,
    limit_words,
    repeated,
    sealed_trials,
)
from runner.present.look.captions import plural, verdict_counts
from runner.present.look.markup import NOT_RANKED
from runner.present.look.numbers import number
from runner.present.look.palette import identities
from runner.present.statistics.inference import (
    ALPHA,
    CONFIDENCE,
    FEWEST_TRIALS,
    Mean,
    mean_of,
)
from runner.present.statistics.significance import drift
from runner.present.statistics.stats import (
    carried_quantile,
    histogram_quantiles,
    mlperf_requests,
    tail_error_pct,
)
from runner.verdict.limits import MOST_FAILED, Limit

MEANS = {
    "rps": "throughput_rps",
    "p50_ms": "latency_p50_ms",
    "p95_ms": "latency_p95_ms",
    "p99_ms": "latency_p99_ms",
    "first_byte_p50_ms": "first_byte_p50_ms",
    "first_byte_p99_ms": "first_byte_p99_ms",
    "cpu_ms_per_request": "server_cpu_ms_per_request",
    "cpu_pct": "server_cpu_mean_pct",
    "rows": "rows_inserted",
    "database_cpu_ms_per_request": "database_cpu_ms_per_request",
    "database_cpu_pct": "database_cpu_mean_pct",
}
"""Columns of the summary that contain geometric means.

Each column is mapped to the column of the table of trials from which the means are computed.
"""
MEDIANS = {
    "dropped": "dropped",
    "pool_in_use": "pool_in_use_max",
    "pool_exhausted_pct": "pool_exhausted_pct",
}
"""Columns of the summary that contain medians.

Each column is mapped to the column of the table of trials from which the medians are computed. The
values may be 0, so a geometric mean is not possible.
"""
SUMMARY_COLUMNS = (
    *(
        "load",
        "workload",
        "tool",
        "server",
        "language",
        "trials",
        "compared",
        "left_out",
        "rps",
    ),
    *("p50_ms", "p99_ms", "cpu_ms_per_request", "verdicts", "server_bound"),
    *(
        "tier",
        "load_model",
        "cpu_pct",
        "dropped",
        "pool_size",
        "pool_in_use",
        "pool_exhausted_pct",
        "rows",
    ),
    *("database_cpu_ms_per_request", "database_cpu_pct", "limit", "rank"),
    *("requests", "p95_ms", "tail_percent", "tail_ms", "first_byte_p50_ms", "first_byte_p99_ms"),
    *("failed_pct", "is_limited", "why_unknown", "cost_counts"),
    *(f"{name}_{end}" for name in MEANS for end in ("low", "high")),
)
CARRIED = {"p95_ms": 0.95, "p99_ms": 0.99, "first_byte_p99_ms": 0.99}
"""Columns of the summary that contain a percentile, each mapped to its quantile (0 to 1).

The value in such a column is NaN if a trial of the cell has too few requests for the quantile.
"""
FAILED = "failed"  # heading of the column with the share of failed requests
RANK = "rank by requests/s (same letter: a tie)"
NO_SEALED_TRIAL = "No trial of this run was sealed: there is nothing to compare."


def summarize(tables: Tables) -> pd.DataFrame:
    """Return the summary of a run: one row of numbers per load and server.

    A search has no row, because each step of the search has a different rate. The columns are:

    - The columns of `MEANS` are geometric means of the compared trials (`ratios.compared`). The
      ends of the mean's interval (`inference.mean_of`) are in columns that end with `_low` and
      `_high`. The columns of `MEDIANS` are medians of the compared trials.
    - `trials` is the number of sealed trials, `compared` is the number of trials in the means, and
      `left_out` is the number of trials without a sealed attempt.
    - `requests` is the number of requests in the trial with the fewest requests.
    - `p95_ms` and `p99_ms` are NaN if a trial has fewer than 100 requests beyond the percentile.
      `tail_percent` is the highest percentile for which all trials have enough requests. `tail_ms`
      is the response time at this percentile.
    - `rps` is the throughput. For a closed load, it counts all successful answers, including the
      answers to the probe. For an open load, it counts only the answers to the generator.
    - `failed_pct` is the share of failed requests over all trials, in percent.
    - `why_unknown` says why the limit is unknown. It is empty if the limit is known.
    - `cost_counts` is True if few enough requests failed for the CPU time per request to be valid.
    - `is_limited` is True if the server or the database had only a share of a core.
    - `server_bound` is True if the load was closed, the server was the limit of every trial, and
      the server is no calibration server. Throughput is ranked only if `server_bound` is True.
    - `rank` is the rank by requests/s, followed by letters. Servers that share a letter are tied.
      `rank` is empty if the server is not ranked.
    """
    return _summarized(tables).copy()


@lru_cache(maxsize=4)
def _summarized(tables: Tables) -> pd.DataFrame:
    """Return the summary of a run. The summary is cached, so callers must not change it."""
    servers = list(identities(tables.trials))
    trials = tables.trials[tables.trials["objective"] == ""]
    ordered = trials.assign(
        place=trials["server"].map(servers.index),
        is_not_compared=not_compared(tables).loc[trials.index],
    )
    groups = ordered.groupby(["load_order", "place"], sort=True)
    tails = _tails_ms(tables)
    of_cells = [_summary(cell, tails) for _, cell in groups]
    table = pd.DataFrame(of_cells, columns=SUMMARY_COLUMNS)
    for _, rows in table[table["server_bound"].astype(bool)].groupby("load", sort=False):
        if ranking := standing(tables, rows, THROUGHPUT).ranking:
            ranks = {place.name: f"{place.rank} {place.letters}" for place in ranking.places}
            table.loc[rows.index, "rank"] = rows["server"].map(ranks).fillna("")
    return table


def _summary(cell: pd.DataFrame, tails_ms: pd.Series[float]) -> dict[str, object]:
    """Return the summary's row for one load and server."""
    sealed = sealed_trials(cell)
    compared = sealed[~sealed["is_not_compared"]]
    medians = compared[list(MEDIANS.values())].median()
    means = {name: mean_of(compared[column]) for name, column in MEANS.items()}
    first = cell.iloc[0]
    left_out = cell.loc[~is_sealed(cell) & ~repeated(cell), "status"].value_counts()
    counts = [verdict_counts(sealed), *(f"{count} {status}" for status, count in left_out.items())]
    fewest = sealed["requests"].min()
    requests = sealed["requests"].sum()
    found = {
        # `first` has more columns than the summary. The caller keeps only `SUMMARY_COLUMNS`.
        **first,
        **{name: float(medians[column]) for name, column in MEDIANS.items()},
        **{name: mean.value for name, mean in means.items()},
        **_ends_of(means, len(compared)),
        "trials": len(sealed),
        "compared": len(compared),
        "left_out": int(left_out.sum()),
        "verdicts": "; ".join(filter(None, counts)),
        "server_bound": ranks_by_throughput(compared) and first["tier"] != CALIBRATION,
        "cost_counts": is_the_servers(compared, CPU_PER_REQUEST),
        "limit": limit_words(sealed),
        "rank": "",
        "why_unknown": why_unknown(compared),
        "requests": fewest,
        "tail_percent": carried_percent(fewest) or float("nan"),
        "tail_ms": mean_of(compared["trial_id"].map(tails_ms)).value,
        "failed_pct": 100 * sealed["failed"].sum() / requests if requests else float("nan"),
        "is_limited": bool(first["share"] < 1 or first["database_share"] < 1),
    }
    carried = carried_quantile(fewest)
    unknown = [name for name, quantile in CARRIED.items() if carried < quantile]
    unknown += [f"{name}_{end}" for name in unknown for end in ("low", "high")]
    return found | dict.fromkeys(unknown, math.nan)


def _ends_of(means: Mapping[str, Mean], compared: int) -> dict[str, float]:
    """Return the two ends of each mean's range, by the summary's columns `_low` and `_high`.

    `compared` is the number of compared trials of the cell. The ends are usually those of the
    mean's interval. There are two exceptions:

    - If the cell has fewer than `FEWEST_TRIALS` compared trials, no mean has an interval, and all
      ends are the minimum and the maximum of the values.
    - If the cell has enough trials, but too few of them have a value for one of the means, the ends
      of this mean are NaN. They are not its minimum and maximum, because the other means of the row
      have intervals, and a row must not contain both kinds of ends.
    """
    ends = {}
    for name, mean in means.items():
        is_unlike = mean.confidence is None and compared >= FEWEST_TRIALS
        ends[f"{name}_low"] = math.nan if is_unlike else mean.low
        ends[f"{name}_high"] = math.nan if is_unlike else mean.high
    return ends


@lru_cache(maxsize=2)
def _tails_ms(tables: Tables) -> pd.Series[float]:
    """Return each trial's response time at the tail percentile in ms, by trial.

    The tail percentile of a cell is the highest percentile for which all of its trials have enough
    requests. If the trial recorded its response time at this percentile, the value is exact. If
    not, the value is computed from the histogram, with an error of at most 1 %.
    """
    sealed = sealed_trials(tables.trials)
    fewest = sealed.groupby(["load", "server"])["requests"].transform("min")
    percents = fewest.map(carried_percent).astype(float)
    exact = sealed["latency_tail_ms"].where(sealed["latency_tail_percent"].eq(percents))
    found = pd.Series(exact.to_numpy(dtype=float), index=sealed["trial_id"])
    wanted = pd.Series(percents.to_numpy() / 100, index=sealed["trial_id"])[
        found.isna().to_numpy()
    ].dropna()
    buckets = tables.latency[tables.latency["trial_id"].isin(wanted.index)]
    return found.fillna(histogram_quantiles(buckets, wanted))


# --- tables of texts ------------------------------------------------------------------------------


def printable(table: pd.DataFrame, more: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the summary as a table of texts.

    A dagger marks a rate that must not be ranked. The column for the rank is left out if no server
    is ranked, and the column for the database's CPU time per request is left out if no row has such
    a value. The column for dropped requests is left out if no request was dropped, and the column
    for failed requests is left out if no request failed. `more` maps headings to further columns of
    the summary.
    """
    has_failed = table["failed_pct"].fillna(0).gt(0).any()
    only = {
        FAILED: has_failed,
        RANK: table["rank"].ne("").any(),
        "database CPU ms/request": table["database_cpu_ms_per_request"].notna().any(),
        "dropped": table["dropped"].fillna(0).any(),
    }
    times = {"p50, ms": "p50_ms", "p95, ms": "p95_ms", "p99, ms": "p99_ms"}
    numbers = {
        "CPU ms/request": "cpu_ms_per_request",
        "database CPU ms/request": "database_cpu_ms_per_request",
        "dropped": "dropped",
        **(more or {}),
    }
    rows = [
        {
            "load": row["load"],
            "server": label(row),
            "trials": str(row["trials"]),
            "requests/s": _rate(row),
            FAILED: percent_words(row["failed_pct"]),
            RANK: row["rank"] or "–",
            **{heading: value_words(row, column) for heading, column in times.items()},
            "tail, ms": tail_words(row),
            **{heading: value_words(row, column) for heading, column in numbers.items()},
            "verdicts": row["verdicts"],
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows).drop(
        columns=[heading for heading, known in only.items() if rows and not known]
    )


def value_words(row: Mapping[Any, Any], column: str) -> str:
    """Return a value of the summary as text: a mean with its interval, or a median."""
    return mean_words(mean_in(row, column)) if column in MEANS else number(row[column])


def mean_in(row: Mapping[Any, Any], column: str) -> Mean:
    """Return a mean of the summary with the ends of its interval."""
    trials = int(row["compared"])
    value = float(row[column])
    low = float(row[f"{column}_low"])
    high = float(row[f"{column}_high"])
    has_no_ends = not math.isfinite(low)
    if has_no_ends:
        return Mean(min(trials, 1), value, low, high)
    confidence = CONFIDENCE if trials >= FEWEST_TRIALS else None
    return Mean(trials, value, low, high, confidence)


def percent_words(share_pct: float) -> str:
    """Return a share in percent as text, for example `84.6 %`, or `–` if the share is unknown.

    The share is rounded in the same way as in the reason of a verdict: `99 %`, not `99.0 %`.
    """
    return f"{short_number(share_pct)} %" if np.isfinite(share_pct) else "–"


def tail_words(row: Mapping[Any, Any]) -> str:
    """Return the tail percentile and its response time in ms as text, for example `p93: 1,001`.

    Return `–` if the row of the summary has no tail percentile.
    """
    return (
        f"p{row['tail_percent']:g}: {number(row['tail_ms'])}"
        if np.isfinite(row["tail_ms"])
        else "–"
    )


def of_own_api(tables: Tables) -> dict[str, str]:
    """Return the additional columns that are printed for a run of the user's own API.

    The result maps headings to columns of the summary. It is empty for any other run.
    """
    is_own = bool(tables.manifest.campaign.apis)
    return {"first byte p50, ms": "first_byte_p50_ms"} if is_own else {}


def notes(table: pd.DataFrame, more: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return a sentence for each reason why values are missing in the printed summary.

    `more` are the further columns that are printed. Rows without trials are skipped, because the
    verdicts in these rows already say why values are missing.
    """
    return tuple(_missing(table[table["trials"] > 0], more or {}))


def _missing(known: pd.DataFrame, more: Mapping[str, str]) -> Iterator[str]:
    timed = known[known["p50_ms"].notna()]
    limited = int((known["p50_ms"].isna() & known["is_limited"]).sum())
    if limited:
        where = plural(limited, "row")
        yield (
            f"No response times on a share of a core, in {where}: the server waits for its next "
            "period."
        )
    for name in ("p95", "p99"):
        if few := int(timed[f"{name}_ms"].isna().sum()):
            yield (
                f"{name} is missing in {plural(few, 'row')}, because a trial has fewer than "
                f"{REQUESTS_BEYOND} requests beyond it."
            )
    if short := int(timed["tail_percent"].isna().sum()):
        fewest = 2 * REQUESTS_BEYOND
        yield f"tail: a trial has fewer than {fewest} requests in {plural(short, 'row')}."
    if costless := int(known["cpu_ms_per_request"].isna().sum()):
        yield f"CPU per request: the server's process is not known in {plural(costless, 'row')}."
    if "first_byte_p50_ms" in more.values() and (
        untimed := int(timed["first_byte_p50_ms"].isna().sum())
    ):
        yield (
            f"No time to the first byte in {plural(untimed, 'row')}: no request was answered, or "
            "an earlier version of the lab made the run."
        )


def reasons_unknown(table: pd.DataFrame) -> tuple[str, ...]:
    """Return a sentence with load, server and reason for each row whose limit is unknown."""
    rows = table[table["why_unknown"] != ""].to_dict("records")
    return tuple(
        f"{row['load']}, {label(row)}: {Limit.UNKNOWN.why_not}: {row['why_unknown']}."
        for row in rows
    )


def label(row: Mapping[Any, Any]) -> str:
    """Return a server's name, followed by `(calibration)` if it is a calibration server."""
    return f"{row['server']} (calibration)" if row["tier"] == CALIBRATION else str(row["server"])


def _rate(row: Mapping[Any, Any]) -> str:
    """Return the rate of a row of the summary as text.

    The text ends with a dagger if the rate must not be ranked. A rate that was offered and
    sustained is not ranked either, but it needs no dagger.
    """
    is_sustained = row["limit"] == Limit.NONE
    has_dagger = row["trials"] and not row["server_bound"] and not is_sustained
    return value_words(row, "rps") + (f" {NOT_RANKED}" if has_dagger else "")


def pivot(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table of one quantity as texts, with a row per load and a column per server.

    `column` is `rps` or `cpu_ms_per_request`.
    """
    rows: dict[str, dict[str, str]] = {}
    for row in table.to_dict("records"):
        text = _rate(row) if column == "rps" else value_words(row, column)
        rows.setdefault(row["load"], {"load": row["load"]})[label(row)] = text
    return pd.DataFrame(list(rows.values())).fillna("–")


# --- warnings -------------------------------------------------------------------------------------


def warnings_of(tables: Tables) -> tuple[str, ...]:
    """Return the warnings that a reader must know before any number, as sentences.

    Warnings on how the numbers were measured come first. Warnings about trials that are left out of
    all numbers come last.
    """
    return (*_on_what_counts(tables), *_on_what_does_not_count(tables))


def _on_what_counts(tables: Tables) -> tuple[str, ...]:
    table = summarize(tables)
    sentences = (
        *_on_the_set_up(tables),
        _on_drift(tables),
        *tables.manifest.host_warnings,
        *other_ports.sentences(tables),
        _on_few_trials(table),
        _on_failures(table),
    )
    return tuple(sentence for sentence in dict.fromkeys(sentences) if sentence)


def _on_what_does_not_count(tables: Tables) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_on_lost_trials(tables)))


def warnings_line(tables: Tables) -> str:
    """Return a sentence that counts the warnings.

    Warnings on how the numbers were measured, and warnings on trials that are left out of all
    numbers, are counted separately.
    """
    concerning = len(_on_what_counts(tables))
    others = len(_on_what_does_not_count(tables))
    every = plural(concerning + others, "warning")
    if not concerning:
        return f"{every}, only on trials that are left out of all numbers."
    if not others:
        return f"{every} on how these numbers were measured."
    return (
        f"{every}: {concerning} on how these numbers were measured, {others} on trials that "
        "are left out of all numbers."
    )


def _on_the_set_up(tables: Tables) -> Iterator[str]:
    """Yield a warning on servers without containers, and one on CPUs shared with the generator."""
    manifest = tables.manifest
    if manifest.engine == "process":
        reason = (manifest.engine_reason or "no reason is recorded").rstrip(".")
        yield f"Not in containers: the servers ran as local processes, because: {reason}."
    if not manifest.placement.disjoint:
        yield "Server and load generator shared CPUs, so each slowed the other down."


def _on_lost_trials(tables: Tables) -> Iterator[str]:
    """Yield warnings that say how many trials failed, and how many attempts were repeated."""
    trials = tables.trials
    again = repeated(trials)
    attempts = int(again.sum())
    lost = int((~is_sealed(trials) & ~again).sum())
    if lost:
        yield (
            f"{lost} of {plural(len(trials) - attempts, 'trial')} failed or stopped early, so no "
            f"figure includes {'it' if lost == 1 else 'them'}."
        )
    if attempts:
        were = (
            "was disturbed by the machine. It was"
            if attempts == 1
            else ("were disturbed by the machine. They were")
        )
        yield (
            f"{plural(attempts, 'attempt')} {were} repeated, and no number includes "
            f"{'it' if attempts == 1 else 'them'}."
        )


def _on_few_trials(table: pd.DataFrame) -> str:
    """Return a warning if cells have too few trials for an interval, or else an empty text."""
    few = int((table["trials"] < FEWEST_TRIALS).sum())
    if not few:
        return ""
    return (
        f"{few} of {len(table)} combinations of load and server have fewer than "
        f"{FEWEST_TRIALS} trials: not enough trials for an interval or a ranking; values stand "
        "with minimum to maximum in brackets."
    )


def _on_drift(tables: Tables) -> str:
    """Return a warning if later trials of closed loads were faster or slower than earlier trials.

    Return an empty text if the rates did not drift in this way.
    """
    trials = tables.trials
    closed = trials[is_sealed(trials) & (trials["load_model"] == "closed")]
    cells = zip(closed["load"], closed["server"], strict=True)
    found = drift(closed["trial_order"], closed["served_rps"], cells)
    if not found or found.p > ALPHA:
        return ""
    pace = "faster" if found.rho > 0 else "slower"
    return (
        f"The run drifted: later trials were {pace} (Spearman's rho between the trials' order and "
        f"their requests/s, divided by the cell's median: {found.rho:.2f}, p = {found.p:.2g}). "
        "Compare servers within blocks only."
    )


def _on_failures(table: pd.DataFrame) -> str:
    """Return a warning that names the servers with more failed requests than `MOST_FAILED` allows.

    Return an empty text if no server had so many failures.
    """
    failing = table[table["failed_pct"] > 100 * MOST_FAILED]
    if failing.empty:
        return ""
    whose = _failing_words(failing)
    return f"Requests failed: {whose}. So the rates, times and costs of these rows include errors."


def _failing_words(rows: pd.DataFrame) -> str:
    """Return a text with the share of failed requests, the server and the load of each row."""
    shares = (
        f"{percent_words(row['failed_pct'])} of {label(row)}'s" for row in rows.to_dict("records")
    )
    return "; ".join(f"{share} ({load})" for share, load in zip(shares, rows["load"], strict=True))


# --- findings -------------------------------------------------------------------------------------


def findings(tables: Tables) -> tuple[str, ...]:
    """Return the findings of a run as sentences.

    The sentences rank the servers by throughput, CPU time per request and response times. If
    servers cannot be ranked by throughput or response times, a sentence says why. If there is a
    ranking, the first sentence says how to read it. If a p99 is uncertain, because a trial has few
    requests, the last sentence says how uncertain it is.
    """
    table = summarize(tables)
    loads = [rows for _, rows in table[table["tier"] != CALIBRATION].groupby("load", sort=False)]
    offered = [rows for rows in loads if rows["load_model"].iloc[0] == "open"]
    found = [
        *(throughput(tables, rows) for rows in loads if rows["load_model"].iloc[0] != "open"),
        *_offered(offered),
        *(cpu_order(tables, rows) for rows in loads),
        *_response_times(tables, loads),
        _tail_error(tables),
    ]
    return with_reading(found)


def with_reading(sentences: list[str]) -> tuple[str, ...]:
    """Return the sentences that are not empty.

    If one of the sentences contains a ranking, a sentence on how to read a ranking is added first.
    """
    reading = [READING] if any("×" in sentence for sentence in sentences) else []
    return tuple(filter(None, [*reading, *sentences]))


def throughput(tables: Tables, rows: pd.DataFrame) -> str:
    """Return the ranking of servers by throughput under one load.

    Only servers that were the limit in all their trials are ranked. The other servers are named
    with their verdicts.
    """
    bound = rows[rows["server_bound"]]
    rest = rows[~rows["server_bound"]]
    load = rows["load"].iloc[0]
    by_verdict = rest.groupby("verdicts", sort=False)["server"]
    others = "; ".join(f"{', '.join(servers)} ({verdicts})" for verdicts, servers in by_verdict)
    if not rows["trials"].any():
        return f"{load}: no number, since no trial was sealed: {others}."
    if bound.empty:
        return (
            f"{load}: requests/s are not ranked, since no server was the limit in all its trials: "
            f"{others}."
        )
    if len(bound) == 1:
        only = bound.iloc[0]
        text = (
            f"{load}: requests/s are not ranked; only {only['server']} was the limit "
            f"({value_words(only.to_dict(), 'rps')})"
        )
    else:
        order = standing(tables, bound, THROUGHPUT)
        text = f"{load}: {order.words('requests/s where the server was the limit')}"
    return f"{text}. Not ranked: {others}." if others else f"{text}."


def _offered(loads: list[pd.DataFrame]) -> list[str]:
    """Return sentences about open loads, whose rates are not ranked because the campaign set them.

    The sentences name each server for which the generator dropped requests. The generator drops a
    request if it cannot send it in time. The sentences also name each server whose requests failed.
    """
    by_outcome: dict[str, list[str]] = {}
    for rows in loads:
        known = rows[rows["trials"] > 0].set_index("server")
        dropped = known["dropped"]
        failed_pct = known["failed_pct"]
        late = ", ".join(
            f"{server} ({count:,.0f})" for server, count in dropped.items() if count > 0
        )
        outcome = (
            "the rate was set, so it is not ranked"
            if len(dropped)
            else "no number, since no trial was sealed"
        )
        if len(dropped) and dropped.notna().all():
            outcome += (
                f"; dropped (median of the trials): {late}" if late else "; no request was dropped"
            )
        wrong = ", ".join(
            f"{server} ({percent_words(share)})"
            for server, share in failed_pct.items()
            if share > 0
        )
        outcome += f"; failed: {wrong}" if wrong else ""
        by_outcome.setdefault(outcome, []).append(rows["load"].iloc[0])
    return [f"{'; '.join(names)}: {outcome}." for outcome, names in by_outcome.items()]


def cpu_order(tables: Tables, rows: pd.DataFrame) -> str:
    """Return the ranking of servers by CPU time per request under one load.

    The ranking is valid whatever limited the trials. Return an empty text if fewer than two servers
    have a valid CPU time per request.
    """
    costs = rows[rows["cpu_ms_per_request"].notna()]
    known = costs[costs["cost_counts"]]
    if len(known) < 2:
        return ""
    found = standing(tables, known, CPU_PER_REQUEST)
    text = f"{known['load'].iloc[0]}: {found.words('CPU ms per request')}."
    if len(known) < len(costs):
        text += f" Not ranked, because requests failed: {_failing_words(costs.drop(known.index))}."
    if found.ranking is None or len(found.ranking.places) < 3:
        return text
    first = found.ranking.places[0].name
    last = found.ranking.places[-1].name
    extremes = times(found.ranking.pairs[first, last].ratio, inverse=True)
    return f"{text} The cost of {last} is {extremes} that of {first}."


def _response_times(tables: Tables, loads: list[pd.DataFrame]) -> list[str]:
    """Return the rankings by response times, or a sentence that says why there is no ranking.

    Response times are ranked only at an offered rate, and only for servers that sustained this rate
    without reaching a limit.
    """
    sealed = sealed_trials(tables.trials[tables.trials["tier"] != CALIBRATION])
    if sealed.empty:
        return [NO_SEALED_TRIAL]
    if sustained := [
        rows[rows["limit"] == Limit.NONE] for rows in loads if (rows["limit"] == Limit.NONE).any()
    ]:
        compared = "; ".join(
            f"{rows['load'].iloc[0]} ({', '.join(rows['server'])})" for rows in sustained
        )
        said = [f"Response times may be compared on: {compared}. Verdict in every trial: offered."]
        for rows in sustained:
            load = rows["load"].iloc[0]
            trials = sealed[sealed["load"].eq(load) & sealed["server"].isin(rows["server"])]
            carried = carried_quantile(trials["requests"].min())
            for quantity in (P50, P99):
                order = standing(tables, rows, quantity)
                if order.ranking and carried >= quantity.quantile:
                    said.append(f"{load}: {order.words(quantity.heading)}.")
        return said
    if (sealed["load_model"].eq("closed") & sealed["workload"].ne(OWN_SCRIPT)).all():
        return [
            "Response times are not ranked: every load was a closed loop, whose mean response time "
            "is N divided by the throughput (Little's law) and shows the queue, not the server."
        ]
    return [
        "Response times are not ranked: on no load has a server the verdict offered in all its "
        "trials."
    ]


def _tail_error(tables: Tables) -> str:
    """Return a sentence on the uncertainty of p99 in the trial with the fewest requests.

    Only trials with enough requests to report a p99 are considered. Return an empty text if there
    is no such trial, or if each of these trials has at least as many requests as MLPerf requires
    for a p99.
    """
    trials = sealed_trials(tables.trials[tables.trials["tier"] != CALIBRATION])
    least = trials.loc[trials["requests"].map(carried_quantile) >= 0.99, "requests"].min()
    if not least < mlperf_requests(0.99):
        return ""
    return (
        f"How sure p99 is: of the trials that have a p99, the shortest has {least:,.0f} requests. "
        "In it, the share of requests above p99 may be off by "
        f"{tail_error_pct(least, 0.99):.0f} % of its 1 % (99 % confidence, if requests are "
        f"independent). MLPerf allows 5 %, which takes {mlperf_requests(0.99):,} requests."
    )
