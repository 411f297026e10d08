"""Functions to which the entries of claims.toml refer by name.

If a claim is not about a ratio, its entry names in the key `judge` the function that judges the
claim. If further observations help to understand a claim, its entry names in the key `also` the
functions that yield these observations.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from runner.present.answers.ranking_text import times
from runner.present.comparison.quantity import CATALOGUE, CPU_PER_REQUEST
from runner.present.frames import Tables, is_sealed, limit_words, limits_of
from runner.present.look.captions import database_place, joined, plural, rows_equal_answers
from runner.present.look.numbers import number
from runner.present.published import counterparts
from runner.present.published.counterparts import (
    STAND_INS,
    WINDOWS,
    Counterpart,
    cell,
    closed,
    offered,
    opened,
    users,
)
from runner.present.published.outcomes import ABSENT, FAILS, HOLDS, Outcome
from runner.present.published.quantities import sample_for
from runner.present.statistics.inference import FEWEST_TRIALS, level, mean_of, ratio
from runner.present.statistics.stats import spread
from runner.verdict.limits import Limit

GNET_AND_AXUM = ("gnet", "axum")

# --- claims that are not about a ratio ------------------------------------------------------------


def no_failed_requests(tables: Tables) -> Outcome:
    """Judge the claim that no request failed.

    The requests of echo and of the Rust frameworks count, with and without MD5. Failed trials also
    count, although figures leave them out.
    """
    trials = pd.concat([users(tables, scenario) for scenario in ("experiments", "experiments-md5")])
    counted = trials[trials["failed"].notna() & trials["requests"].notna()]
    counted = counted[counted["server"].isin((*STAND_INS["rust"], "echo"))]
    seen = []
    for server, rows in counted.groupby("server", sort=False):
        out = int((~is_sealed(rows)).sum())
        are = "is" if out == 1 else "are"
        left = f" ({out} of these trials {are} left out of all other results)" if out else ""
        total = f"{rows['failed'].sum():,.0f} of {rows['requests'].sum():,.0f} requests failed"
        seen.append(f"{server}: {total} in {plural(len(rows), 'trial')}{left}.")
    ran = set(counted["server"])
    missing = [
        name for name in ("rust", "echo") if not ran.intersection(STAND_INS.get(name, (name,)))
    ]
    if counted["failed"].gt(0).any():
        return Outcome(FAILS, "requests failed", seen=tuple(seen))
    if missing:
        return Outcome(
            ABSENT,
            f"this run has no count of {joined(missing)} under experiments",
            seen=tuple(seen),
        )
    return Outcome(
        HOLDS, f"none of {counted['requests'].sum():,.0f} requests failed", seen=tuple(seen)
    )


def postgres_not_the_limit(tables: Tables) -> Outcome:
    """Judge the claim that PostgreSQL was not the limit when axum and gnet inserted rows.

    The claim fails if there is a cell with at least `FEWEST_TRIALS` trials in which the database
    was the limit in more than half of the trials. The claim holds if the run has inserts of both
    servers, the database was the limit in no trial, all limits are known, and PostgreSQL used less
    than 90 % of its CPUs in every trial. Otherwise the run cannot judge the claim.
    """
    trials = counterparts.published_trials(tables, "postgres-insert")
    sealed = trials[is_sealed(trials) & trials["server"].isin(GNET_AND_AXUM)]
    if sealed.empty:
        return Outcome(ABSENT, "this run has no sealed trial in which gnet or axum inserts rows")
    cpus = len(tables.manifest.placement.database)
    used = spread(sealed["database_cpu_mean_pct"] / (cpus or np.nan))
    seen = (
        f"What limited {plural(len(sealed), 'trial')}: {limit_words(sealed)}.",
        f"CPU of PostgreSQL, median: {number(used.median)} % of what it was given, at most "
        f"{number(used.high)} %.",
        database_place(tables.manifest),
    )
    limits = limits_of(sealed)
    cells = limits.eq(Limit.DATABASE).groupby([sealed["load"], sealed["server"]], sort=False)
    often = cells.mean()[cells.size() >= FEWEST_TRIALS]
    missing = [server for server in GNET_AND_AXUM if server not in set(sealed["server"])]
    count = int(limits.isin([Limit.DATABASE, Limit.UNKNOWN]).sum())
    if often.empty:
        found = ABSENT
        why = f"not enough trials: no cell has {FEWEST_TRIALS}"
    elif often.max() > 0.5:
        load, server = often.index[int(often.to_numpy().argmax())]
        share = f"{100 * often.max():.0f} %"
        found = FAILS
        why = f"the database was the limit in {share} of the trials of {server} under {load}"
    elif missing:
        found = ABSENT
        why = f"this run has no inserts of {joined(missing)}"
    elif count or not used.high < 90:  # in verdicts, the database is the limit from 90 % CPU use
        where = (
            f"in {count} of {plural(len(sealed), 'trial')} the limit was the database or is unknown"
        )
        found = ABSENT
        why = f"{where}, and its CPU use reached {number(used.high)} %"
    else:
        found = HOLDS
        why = "the database was the limit in no trial, and its CPU was never full"
    return Outcome(found, why, seen=tuple(filter(None, seen)))


def wrk_opens_what_it_is_asked(tables: Tables) -> Outcome:
    """Judge the claim that wrk opens the number of connections that the published commands name."""
    named = [each for each in counterparts.read_published() if each.connections >= 0]
    commands = sorted(
        {(int(each.connections), t) for each in named if (t := counterparts.threads_of(each.load))}
    )
    trials = closed(tables, "count")
    ours = trials[is_sealed(trials) & trials["threads"].notna()]
    if ours.empty or not commands:
        return Outcome(
            ABSENT, "this run has no trial of GET /count by wrk that records its threads"
        )
    open_ = {command: opened(*command) for command in commands}
    said = "; ".join(
        f"-t{t} -c{c} {f'opens {n}' if n else 'does not start'}" for (c, t), n in open_.items()
    )
    used = sorted(
        set(zip(ours["connections"].astype(int), ours["threads"].astype(int), strict=True))
    )
    here = "; ".join(f"{c} by {plural(t, 'thread')}, so that {opened(c, t)} open" for c, t in used)
    rule = "wrk opens connections / threads, rounded down, in each thread (docs/method.md)"
    seen = (f"{rule}. As published: {said}.", f"In this run: {here}.")
    if off := [str(asked) for (asked, _), count in open_.items() if count != asked]:
        return Outcome(
            FAILS,
            f"{', '.join(off)} do not divide by the threads of the published command",
            seen=seen,
        )
    return Outcome(HOLDS, "each number of connections divides by the threads", seen=seen)


def counters_race(tables: Tables) -> Outcome:
    """Judge the claim that the request counters of axum and gin count wrongly.

    Each trial has a check that compares the server's count with the requests that wrk sent. The
    claim holds if at least one of these checks failed.
    """
    trials = closed(tables, "count")
    servers = dict(zip(trials["trial_id"], trials["server"], strict=True))
    checks = {
        str(record["trial_id"]): check
        for record in (tables.folder.records() if tables.folder is not None else ())
        if servers.get(record["trial_id"]) in ("axum", "gin")
        for check in record.get("checks") or ()
        if "requests that the server counted" in check["name"]
    }
    if not checks:
        return Outcome(
            ABSENT, "this run has no record of axum and gin in which their counts were reconciled"
        )
    wrong = [f"{trial}: {check['detail']}." for trial, check in checks.items() if not check["ok"]]
    counted = (
        f"{plural(len(checks), 'trial')} of {joined(sorted({servers[trial] for trial in checks}))}"
    )
    seen = (f"{len(checks) - len(wrong)} of {counted} agree.", *wrong[:3])
    if wrong:
        return Outcome(HOLDS, "a count and the requests disagree", seen=seen)
    return Outcome(
        FAILS,
        "each count includes every request whose answer wrk received, and no request that wrk did "
        "not send",
        seen=seen,
    )


# --- further observations -------------------------------------------------------------------------

Cells = Sequence[tuple[Counterpart, ...]]
"""The cells from which a claim's ratios were computed: one tuple of cells for each ratio."""


def cpu_peaks(tables: Tables, cells: Cells) -> Iterator[str]:
    """Yield a sentence for each ratio of a claim, with the CPU peaks of the compared servers.

    A peak is the highest mean CPU use over 1 s, or over 100 ms. The sentence gives both.
    """
    cpus = tables.manifest.placement.server
    room = f"; the server has {plural(len(cpus), 'CPU')} here" if cpus else ""
    for pair in cells:
        if known := [each for each in pair if len(each.sealed)]:
            said = "; ".join(f"{each.server} {_over_windows(each, ' %')}" for each in known)
            yield f"CPU peaks under {known[0].load}, in % of a core: {said}{room}."


def echo_peaks(tables: Tables, _cells: Cells) -> Iterator[str]:
    """Yield a sentence with the ratio of Echo's CPU peaks to Echo's mean CPU use."""
    echo = cell(users(tables, "experiments"), "echo", "")
    if (mean_pct := mean_of(echo.sealed["server_cpu_mean_pct"]).value) > 0:
        yield f"Peak / mean of echo's CPU: {_over_windows(echo, '', mean_pct)}."


def _over_windows(each: Counterpart, unit: str, divisor: float = 1.0) -> str:
    means = {
        window: mean_of(each.sealed[column]).value / divisor for window, column in WINDOWS.items()
    }
    return ", ".join(f"{number(mean)}{unit} over {window}" for window, mean in means.items())


def md5_price(tables: Tables, cells: Cells) -> Iterator[str]:
    """Yield a sentence that compares CPU time per request with and without MD5.

    CPU time per request can be compared whatever the limit was.
    """
    plain, md5 = cells[0]
    samples = [sample_for(CPU_PER_REQUEST, tables, each) for each in (md5, plain)]
    if price := ratio(*samples, confidence=1 - level(tables.manifest)):
        words = "In CPU time per request, which can be compared at any rate, the MD5 costs"
        yield f"{words} {plain.server} {times(price)}."


def tier_of_gnet(tables: Tables, _cells: Cells) -> Iterator[str]:
    """Yield a sentence with the tier of our gnet server.

    The tier matters because the published gnet server does not parse HTTP requests. Our gnet server
    parses them or does not, depending on its tier.
    """
    for tier in tables.trials.loc[tables.trials["server"] == "gnet", "tier"].unique()[:1]:
        yield (
            f"Our gnet server is of the tier {tier}, and gives the answers that the contract "
            "demands of every server."
        )


def start_of_axum(tables: Tables, cells: Cells) -> Iterator[str]:
    """Yield, for each ramp, a sentence that says how much higher axum's p90 is at the start.

    The sentence gives axum's p90 in the first second divided by axum's p90 in the later seconds. A
    claim about gnet is judged by this ratio of gnet's p90, so axum's ratio helps to judge it.
    """
    names = ("p90_of_first_second", "p90_of_later_seconds")
    for (gnet,) in cells:
        trials = offered(tables, "postgres-insert")
        axum = cell(trials[trials["load"] == gnet.load], "axum", gnet.load)
        samples = [sample_for(CATALOGUE[name], tables, axum) for name in names]
        if found := ratio(*samples, confidence=1 - level(tables.manifest)):
            yield (
                "p90 of axum's first second, divided by that of its later seconds: "
                f"{times(found)} ({gnet.load})."
            )


def rows_and_answers(tables: Tables, _cells: Cells) -> Iterator[str]:
    """Yield a sentence that compares the number of rows with the number of answered inserts."""
    trials = offered(tables, "postgres-insert")
    if words := rows_equal_answers(
        trials[trials["server"].isin(GNET_AND_AXUM) & is_sealed(trials)]
    ):
        yield words


def price_of_connecting(tables: Tables, _cells: Cells) -> Iterator[str]:
    """Yield a sentence that says how much CPU time a request costs on a connection of its own.

    The sentence also gives the CPU time of a request on a kept connection. The difference is spent
    on the connection itself, and the sentence gives this difference in percent.
    """
    said = []
    for server in ("gin", "axum"):
        cells = [
            cell(counterparts.connections(tables, mode, 100), server, "")
            for mode in ("close", "keepalive")
        ]
        close, keep = (mean_of(each.sealed["server_cpu_ms_per_request"]).value for each in cells)
        if close > keep > 0:
            costs = (
                f"{server} takes {number(keep)} ms over kept connections, and {number(close)} ms "
                "if each request opens a connection"
            )
            opening_pct = number(100 * (1 - keep / close))
            said.append(f"{costs}, so {opening_pct} % of the CPU time is spent on the connection")
    if said:
        yield f"CPU time per request at 100 connections: {'; '.join(said)}."


def shared_cpus(tables: Tables, _cells: Cells) -> Iterator[str]:
    """Yield a sentence that says whether server and generator shared CPUs in this run.

    In the published measurement, the two shared all CPUs, because both ran on one machine.
    """
    place = tables.manifest.placement
    if place.server and place.generator:
        counts = " and ".join(plural(len(cpus), "CPU") for cpus in (place.server, place.generator))
        whose = "of their own" if place.disjoint else "that they share"
        yield (
            f"In this run, server and generator have CPUs {whose} ({counts}). In the source, they "
            "shared all CPUs."
        )


_JUDGES = no_failed_requests, postgres_not_the_limit, wrk_opens_what_it_is_asked, counters_race
JUDGES = {judge.__name__: judge for judge in _JUDGES}
"""The functions that judge a claim, by the name that an entry gives in its key `judge`."""
_NOTES = (
    *(
        cpu_peaks,
        echo_peaks,
        md5_price,
        tier_of_gnet,
        start_of_axum,
        rows_and_answers,
        price_of_connecting,
    ),
    shared_cpus,
)
NOTES = {note.__name__: note for note in _NOTES}
"""The functions that yield further observations, by the names in an entry's key `also`."""
