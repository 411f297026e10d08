"""Claims about GET /count with wrk: axum, Gin, actix and nginx, close and keep-alive, 1 to 1000 connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from runner.present.frames import MODES, Tables, is_sealed
from runner.present.look import captions, style
from runner.present.published.claims import FAILS, HOLDS, UNTOLD, Claim, Outcome, all_of, any_of
from runner.present.published.claims_evidence import Allowed, Question, anywhere, at_its_limit, compare, weigh
from runner.present.published.counterparts import closed, of_count
from runner.present.published.numbers import opened, read_published, threads_of
from runner.present.statistics.stats import spread

FEW, MANY = (1, 10), (100, 1000)
COUNTED = "requests that the server counted"
"""In the name of the check that reconciles a server's count with the requests sent."""


def _questions(
    tables: Tables,
    pair: tuple[str, str],
    what: tuple[str, str],
    modes: Iterable[str],
    connections: Sequence[int],
    allowed: Allowed,
) -> list[Question]:
    """Ask for the ratio of two servers at each number of connections; `what` is a quantity and its column."""
    quantity, column = what
    return [
        compare(
            f"{pair[0]}/{pair[1]} {quantity}, {MODES[mode]}, {number}",
            of_count(tables, pair[0], mode, number),
            of_count(tables, pair[1], mode, number),
            column,
            allowed,
        )
        for mode in modes
        for number in connections
    ]


RATE, CPU, MEMORY = (
    ("requests/s", "rps"),
    ("CPU ms/request", "server_cpu_ms_per_request"),
    ("memory in MiB", "server_rss_peak_bytes"),
)


def gin_ahead_close(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether Gin is ahead without keep-alive at many connections."""
    asked = _questions(tables, ("gin", "axum"), RATE, ["close"], MANY, at_its_limit)
    return all_of(weigh(tables, claim, asked), _price_of_connecting(tables, ("gin", "axum")))


def axum_ahead_close(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum is ahead without keep-alive at few connections."""
    asked = _questions(tables, ("axum", "gin"), RATE, ["close"], FEW, at_its_limit)
    return all_of(weigh(tables, claim, asked), _price_of_connecting(tables, ("gin", "axum")))


def _price_of_connecting(tables: Tables, servers: Sequence[str]) -> list[str]:
    """Say how much of a request's CPU time is the connection's: the kernel's work more than the server's."""
    said = []
    for server in servers:
        costs = [
            spread(of_count(tables, server, mode, MANY[0]).sealed["server_cpu_ms_per_request"]).median
            for mode in ("close", "keepalive")
        ]
        if costs[0] > costs[1] > 0:
            close, keep, share = (style.number(each) for each in (*costs, 100 * (1 - costs[1] / costs[0])))
            said.append(f"{server} {close} ms, with keep-alive {keep} ms, so that {share} % of it go to the connection")
    words = f"What a request on a connection of its own costs, in CPU time at {MANY[0]} connections"
    return [f"{words}: {'; '.join(said)}."] if said else []


def axum_far_ahead(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum is far ahead with keep-alive at 1000 connections."""
    asked = _questions(tables, ("axum", "gin"), RATE, ["keepalive"], MANY[1:], at_its_limit)
    return all_of(weigh(tables, claim, asked), _places(tables))


def even_at_100(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum and Gin are even with keep-alive at 100 connections."""
    asked = _questions(tables, ("axum", "gin"), RATE, ["keepalive"], MANY[:1], at_its_limit)
    return all_of(weigh(tables, claim, asked))


def axum_grows(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum answers far more with keep-alive at 1000 connections than at 100."""
    many, few = (of_count(tables, "axum", "keepalive", number) for number in (MANY[1], MANY[0]))
    asked = compare("axum requests/s, keep-alive, 1000/100", many, few, "rps", at_its_limit)
    return all_of(weigh(tables, claim, [asked]), _places(tables))


def _places(tables: Tables) -> list[str]:
    """Say whether server and generator shared CPUs, as they did on the one machine of the source."""
    place = tables.manifest.get("placement") or {}
    if not place.get("server") or not place.get("generator"):
        return []
    counts = [captions.plural(len(place[side]), "CPU") for side in ("server", "generator")]
    whose = "of their own" if place.get("disjoint", True) else "that they share"
    return [
        f"Server and generator have CPUs {whose} here ({counts[0]} and {counts[1]}); in the source they shared all."
    ]


def axum_less_cpu(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum needs less CPU for a request everywhere."""
    return all_of(weigh(tables, claim, _questions(tables, ("axum", "gin"), CPU, MODES, (*FEW, *MANY), anywhere)))


def axum_half_cpu(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether axum needs about half of Gin's CPU anywhere with keep-alive."""
    asked = _questions(tables, ("axum", "gin"), CPU, ["keepalive"], (*FEW, *MANY), anywhere)
    return any_of(weigh(tables, claim, asked))


def nginx_twice(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether nginx is nearly twice as fast as both at one connection."""
    asked = [
        question
        for other in ("axum", "gin")
        for question in _questions(tables, ("nginx", other), RATE, MODES, FEW[:1], at_its_limit)
    ]
    return all_of(weigh(tables, claim, asked))


def actix_slower(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether actix is somewhat slower than axum."""
    return all_of(weigh(tables, claim, _questions(tables, ("actix", "axum"), RATE, MODES, MANY, at_its_limit)))


def actix_less_cpu(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether actix needs less CPU for a request than axum."""
    return all_of(weigh(tables, claim, _questions(tables, ("actix", "axum"), CPU, MODES, MANY, anywhere)))


def actix_less_memory(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether actix needs less memory than axum."""
    return all_of(weigh(tables, claim, _questions(tables, ("actix", "axum"), MEMORY, MODES, MANY, anywhere)))


# --- the generator, and the counters ----------------------------------------------------------------------


def opens_what_it_is_asked(tables: Tables, _claim: Claim) -> Outcome:
    """Judge whether wrk opens as many connections as the published commands ask for."""
    published = read_published()
    rows = published[published["load"].map(threads_of).notna() & published["connections"].notna()]
    asked = sorted({(int(row["connections"]), threads_of(row["load"]) or 1) for row in rows.to_dict("records")})
    trials = closed(tables, "count")
    ours = trials[is_sealed(trials) & trials["threads"].notna()]
    if ours.empty or not asked:
        return Outcome(UNTOLD, "this run has no trial of GET /count by wrk that records its threads")
    found = {(connections, threads): opened(connections, threads) for connections, threads in asked}
    seen = (
        "wrk opens connections / threads, rounded down, in each thread (docs/method.md). As published: "
        + "; ".join(f"-t{t} -c{c} {f'opens {n}' if n else 'does not start'}" for (c, t), n in found.items())
        + ".",
        f"In this run: {_split(ours)}.",
    )
    off = [connections for (connections, _), count in found.items() if count != connections]
    if not off:
        return Outcome(HOLDS, "each number of connections divides by the threads", seen=seen)
    return Outcome(
        FAILS, f"{', '.join(map(str, off))} do not divide by the threads of the published command", seen=seen
    )


def _split(trials: pd.DataFrame) -> str:
    pairs = trials[["connections", "threads"]].drop_duplicates().sort_values(["connections", "threads"])
    said = [
        f"{connections} by {captions.plural(threads, 'thread')}, so that {opened(connections, threads)} open"
        for connections, threads in pairs.astype(int).itertuples(index=False)
    ]
    return "; ".join(said)


def counters_race(tables: Tables, _claim: Claim) -> Outcome:
    """Judge whether axum or gin missed requests in its count, from the checks of the trials."""
    trials = closed(tables, "count")
    own = trials[trials["server"].isin(("axum", "gin"))]
    checks = _counts(tables, set(own["trial_id"]))
    if not checks:
        return Outcome(UNTOLD, "this run has no record of axum and gin in which their counts were reconciled")
    wrong = {trial: detail for trial, (ok, detail) in checks.items() if not ok}
    named = sorted(set(own.loc[own["trial_id"].isin(checks), "server"]))
    seen = [f"{len(checks) - len(wrong)} of {captions.plural(len(checks), 'trial')} of {' and '.join(named)} agree."]
    seen += [f"{trial}: {detail}." for trial, detail in list(wrong.items())[:3]]
    if wrong:
        return Outcome(HOLDS, "a count and the requests disagree", seen=tuple(seen))
    return Outcome(
        FAILS, "each count has every request that wrk had answered, and none that was not sent", seen=tuple(seen)
    )


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
