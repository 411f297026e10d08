"""What an entry of claims.toml names besides ratios: claims that take a function, and what else was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.present.answers.ranking_text import times
from runner.present.frames import Tables, is_sealed, limit_words, limits_of
from runner.present.look import captions, style
from runner.present.published import counterparts
from runner.present.published.claims import ABSENT, FAILS, HOLDS, Outcome
from runner.present.published.counterparts import STAND_INS, WINDOWS, Counterpart, cell, closed, offered, users
from runner.present.published.quantities import QUANTITIES, in_column
from runner.present.statistics.inference import FEWEST, ratio
from runner.present.statistics.stats import spread

GNET_AND_AXUM = ("gnet", "axum")
BUSY = 90.0
"""% of its CPUs from which on the database counts as full, as in its verdict."""
MOSTLY = 0.5
"""Share of a cell's trials beyond which what limited them is said of the cell."""
COUNTED = "requests that the server counted"
"""In the name of the check that reconciles a server's count with the requests sent."""

# --- claims about no ratio --------------------------------------------------------------------------------


def no_failed_requests(tables: Tables) -> Outcome:
    """Judge whether any request failed, in trials that were left out of the figures too."""
    servers = (*STAND_INS["rust"], "echo")
    trials = pd.concat([users(tables, scenario) for scenario in ("experiments", "experiments-md5")])
    counted = trials[trials["server"].isin(servers) & trials["failed"].notna() & trials["requests"].notna()]
    seen = tuple(_failures(str(server), rows) for server, rows in counted.groupby("server", sort=False))
    if counted["failed"].gt(0).any():
        return Outcome(FAILS, "requests failed", seen=seen)
    missing = [name for name in ("rust", "echo") if not set(STAND_INS.get(name, (name,))) & set(counted["server"])]
    if missing:
        return Outcome(ABSENT, f"this run has no count of {' and '.join(missing)} under experiments", seen=seen)
    return Outcome(HOLDS, f"none of {counted['requests'].sum():,.0f} requests failed", seen=seen)


def _failures(server: str, trials: pd.DataFrame) -> str:
    out = int((~is_sealed(trials)).sum())
    left = f", of which {out} did not count otherwise" if out else ""
    total = f"{trials['failed'].sum():,.0f} of {trials['requests'].sum():,.0f} requests failed"
    return f"{server}: {total} in {captions.plural(len(trials), 'trial')}{left}."


def postgres_not_the_limit(tables: Tables) -> Outcome:
    """Judge whether PostgreSQL limited any trial of axum and gnet that inserts, and whether its CPU was full."""
    trials = pd.concat([closed(tables, "postgres-insert"), offered(tables, "postgres-insert")])
    sealed = trials[is_sealed(trials) & trials["server"].isin(GNET_AND_AXUM)]
    if sealed.empty:
        return Outcome(ABSENT, "this run has no sealed trial of them that inserts")
    cpus = len((tables.manifest.get("placement") or {}).get("database") or ())
    share = spread(sealed["database_cpu_mean_pct"] / (cpus or np.nan))
    place = captions.database_place(tables.manifest)
    seen = (
        f"What limited {captions.plural(len(sealed), 'trial')}: {limit_words(sealed)}.",
        f"CPU of PostgreSQL, median: {style.number(share.median)} % of what it was given, at most "
        f"{style.number(share.high)} %.",
        *([place] if place else []),
    )
    return replace(_database_limit(sealed, share.high), seen=seen)


def _database_limit(sealed: pd.DataFrame, highest_pct: float) -> Outcome:
    limits = limits_of(sealed)
    cells = limits.eq(Limit.DATABASE).groupby([sealed["load"], sealed["server"]], sort=False)
    often = cells.mean()[cells.size() >= FEWEST]
    if often.empty:
        return Outcome(ABSENT, f"not enough trials: no cell has {FEWEST}")
    if often.max() > MOSTLY:
        load, server = often.index[int(often.to_numpy().argmax())]
        share = f"{100 * often.max():.0f} %"
        return Outcome(FAILS, f"the database was the limit in {share} of the trials of {server} under {load}")
    missing = [server for server in GNET_AND_AXUM if server not in set(sealed["server"])]
    if missing:
        return Outcome(ABSENT, f"this run has no inserts of {' and '.join(missing)}")
    count = int(limits.isin([Limit.DATABASE, Limit.UNKNOWN]).sum())
    if count or not highest_pct < BUSY:
        why = (
            f"in {count} of {captions.plural(len(sealed), 'trial')} the limit was the database or is unknown, and its "
            f"CPU use reached {style.number(highest_pct)} %"
        )
        return Outcome(ABSENT, why)
    return Outcome(HOLDS, "the database was the limit in no trial, and its CPU was never full")


def wrk_opens_what_it_is_asked(tables: Tables) -> Outcome:
    """Judge whether wrk opens as many connections as the published commands ask for."""
    published = counterparts.read_published()
    rows = published[published["load"].map(counterparts.threads_of).notna() & published["connections"].notna()]
    commands = [(int(row["connections"]), counterparts.threads_of(row["load"]) or 1) for row in rows.to_dict("records")]
    trials = closed(tables, "count")
    ours = trials[is_sealed(trials) & trials["threads"].notna()]
    if ours.empty or not commands:
        return Outcome(ABSENT, "this run has no trial of GET /count by wrk that records its threads")
    found = {(number, threads): counterparts.opened(number, threads) for number, threads in sorted(set(commands))}
    said = "; ".join(f"-t{t} -c{c} {f'opens {n}' if n else 'does not start'}" for (c, t), n in found.items())
    pairs = ours[["connections", "threads"]].drop_duplicates().sort_values(["connections", "threads"]).astype(int)
    here = "; ".join(
        f"{number} by {captions.plural(threads, 'thread')}, so that {counterparts.opened(number, threads)} open"
        for number, threads in pairs.itertuples(index=False)
    )
    rule = "wrk opens connections / threads, rounded down, in each thread (docs/method.md)"
    seen = (f"{rule}. As published: {said}.", f"In this run: {here}.")
    off = [str(number) for (number, _), count in found.items() if count != number]
    if not off:
        return Outcome(HOLDS, "each number of connections divides by the threads", seen=seen)
    return Outcome(FAILS, f"{', '.join(off)} do not divide by the threads of the published command", seen=seen)


def counters_race(tables: Tables) -> Outcome:
    """Judge whether axum or gin missed requests in its count, from the checks of the trials."""
    trials = closed(tables, "count")
    trials = trials[trials["server"].isin(("axum", "gin"))]
    checks = _counts(tables, set(trials["trial_id"]))
    if not checks:
        return Outcome(ABSENT, "this run has no record of axum and gin in which their counts were reconciled")
    wrong = {trial: detail for trial, (ok, detail) in checks.items() if not ok}
    named = " and ".join(sorted(set(trials.loc[trials["trial_id"].isin(checks), "server"])))
    agree = f"{len(checks) - len(wrong)} of {captions.plural(len(checks), 'trial')} of {named} agree."
    seen = (agree, *(f"{trial}: {detail}." for trial, detail in list(wrong.items())[:3]))
    if wrong:
        return Outcome(HOLDS, "a count and the requests disagree", seen=seen)
    return Outcome(FAILS, "each count has every request that wrk had answered, and none that was not sent", seen=seen)


def _counts(tables: Tables, trial_ids: set[str]) -> dict[str, tuple[bool, str]]:
    """Return trial -> whether the server's count was the generator's, and both; only trials with that check."""
    records = tables.folder.records() if tables.folder is not None else []
    return {
        str(record["trial_id"]): (bool(check["ok"]), str(check["detail"]))
        for record in records
        if record["trial_id"] in trial_ids
        for check in record.get("checks") or []
        if COUNTED in check["name"]
    }


JUDGES: dict[str, Callable[[Tables], Outcome]] = {
    each.__name__: each
    for each in (no_failed_requests, postgres_not_the_limit, wrk_opens_what_it_is_asked, counters_race)
}
"""`judge` of an entry -> the function that judges it."""


# --- what else was seen -----------------------------------------------------------------------------------

Cells = Sequence[tuple[Counterpart, ...]]
"""Those of each ratio that the claim is about."""


def cpu_peaks(tables: Tables, cells: Cells) -> list[str]:
    """Say what the published number, the CPU peak, is here, with its windows."""
    cpus = (tables.manifest.get("placement") or {}).get("server") or []
    room = f"; the server has {captions.plural(len(cpus), 'CPU')} here" if cpus else ""
    sentences = []
    for pair in cells:
        known = [each for each in pair if len(each.sealed)]
        said = "; ".join(f"{each.server} {_over_windows(each, '{} % over {}')}" for each in known)
        sentences += [f"CPU peaks under {known[0].load}, in % of a core: {said}{room}."] if known else []
    return sentences


def _over_windows(each: Counterpart, words: str, unit: float = 1.0) -> str:
    medians = {window: spread(each.sealed[column]).median / unit for window, column in WINDOWS.items()}
    return ", ".join(words.format(style.number(median), window) for window, median in medians.items())


def echo_peaks(tables: Tables, _cells: Cells) -> list[str]:
    """Say how far the peaks of Echo's CPU stand above its mean, to compare with."""
    echo = cell(users(tables, "experiments"), "echo", "")
    mean = spread(echo.sealed["server_cpu_mean_pct"]).median
    return [f"Peak / mean of echo's CPU, medians: {_over_windows(echo, '{} over {}', mean)}."] if mean > 0 else []


def md5_price(_tables: Tables, cells: Cells) -> list[str]:
    """Say what the MD5 costs a server in CPU time, which can be compared whatever was the limit."""
    plain, md5 = cells[0]
    price = ratio(*(in_column(each, "server_cpu_ms_per_request") for each in (md5, plain)))
    words = "In CPU time per request, which can be compared at any rate, the MD5 costs"
    return [f"{words} {plain.server} {times(price)}."] if price else []


def tier_of_gnet(tables: Tables, _cells: Cells) -> list[str]:
    """Say what gnet is here: published below HTTP, it may parse requests in this lab."""
    tiers = tables.trials.loc[tables.trials["server"] == "gnet", "tier"].unique()[:1]
    return [f"gnet is of the tier {tier}; here it answers what the contract of all servers asks." for tier in tiers]


def start_of_axum(tables: Tables, cells: Cells) -> list[str]:
    """Say how axum's first second stands to its later ones on the same ramps."""
    said, names = [], ("p90_of_first_second", "p90_of_later_seconds")
    for (gnet,) in cells:
        axum = cell(tables.trials[tables.trials["load"] == gnet.load], "axum", gnet.load)
        found = ratio(*(QUANTITIES[name].sample(tables, axum, name) for name in names))
        said += [f"The same of axum: {times(found)} ({gnet.load})."] if found else []
    return said


def rows_and_answers(tables: Tables, _cells: Cells) -> list[str]:
    """Say whether the database has as many rows as there were answers."""
    trials = offered(tables, "postgres-insert")
    words = captions.rows_equal_answers(trials[trials["server"].isin(GNET_AND_AXUM) & is_sealed(trials)])
    return [words] if words else []


def price_of_connecting(tables: Tables, _cells: Cells) -> list[str]:
    """Say how much of a request's CPU time is the connection's: the kernel's work more than the server's."""
    said = []
    for server in ("gin", "axum"):
        cells = [cell(counterparts.connections(tables, mode, 100)[0], server, "") for mode in ("close", "keepalive")]
        close, keep = (spread(each.sealed["server_cpu_ms_per_request"]).median for each in cells)
        if close > keep > 0:
            costs = f"{server} {style.number(close)} ms, with keep-alive {style.number(keep)} ms"
            said.append(f"{costs}, so that {style.number(100 * (1 - keep / close))} % of it go to the connection")
    words = "What a request on a connection of its own costs, in CPU time at 100 connections"
    return [f"{words}: {'; '.join(said)}."] if said else []


def shared_cpus(tables: Tables, _cells: Cells) -> list[str]:
    """Say whether server and generator shared CPUs, as they did on the one machine of the source."""
    place = tables.manifest.get("placement") or {}
    if not place.get("server") or not place.get("generator"):
        return []
    counts = " and ".join(captions.plural(len(place[side]), "CPU") for side in ("server", "generator"))
    whose = "of their own" if place.get("disjoint", True) else "that they share"
    return [f"Server and generator have CPUs {whose} here ({counts}); in the source they shared all."]


NOTES: dict[str, Callable[[Tables, Cells], list[str]]] = {
    each.__name__: each
    for each in (
        *(cpu_peaks, echo_peaks, md5_price, tier_of_gnet, start_of_axum, rows_and_answers),
        *(price_of_connecting, shared_cpus),
    )
}
"""Name in an entry's `also` -> the function that says what else was seen."""
