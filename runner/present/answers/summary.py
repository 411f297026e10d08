"""The summary of a run in numbers and sentences: what can be ranked, what cannot, what to know before any number."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.model import CALIBRATION, OWN_SCRIPT
from runner.present.answers import other_ports
from runner.present.answers.ranking_text import READING, standing, times
from runner.present.frames import Tables, is_sealed, limit_words, repeated, sealed_trials, server_bound
from runner.present.look.captions import plural, verdict_counts
from runner.present.look.markup import NOT_RANKED
from runner.present.look.palette import identities
from runner.present.look.style import number
from runner.present.statistics.inference import ALPHA, FEWEST
from runner.present.statistics.significance import drift
from runner.present.statistics.stats import carried_quantile, mlperf_requests, tail_error_pct

MEDIANS = {
    "rps": "rps",
    "p50_ms": "latency_p50_ms",
    "p99_ms": "latency_p99_ms",
    "cpu_ms_per_request": "server_cpu_ms_per_request",
    "cpu_pct": "server_cpu_mean_pct",
    "dropped": "dropped",
    "pool_in_use": "pool_in_use_max",
    "pool_exhausted_pct": "pool_exhausted_pct",
    "rows": "rows_inserted",
    "database_cpu_ms_per_request": "database_cpu_ms_per_request",
    "database_cpu_pct": "database_cpu_mean_pct",
}
"""Column of the summary -> column of the trials whose median it is."""
COLUMNS = (
    *("load", "workload", "tool", "server", "language", "trials", "left_out", "rps", "rps_low", "rps_high"),
    *("p50_ms", "p99_ms", "cpu_ms_per_request", "cpu_low", "cpu_high", "verdicts", "server_bound"),
    *("tier", "load_model", "cpu_pct", "dropped", "pool_size", "pool_in_use", "pool_exhausted_pct", "rows"),
    *("database_cpu_ms_per_request", "database_cpu_pct", "limit", "rank"),
)
RANK = "rank by requests/s (same letter: a tie)"
NOTHING = "No trial of this run was sealed: there is nothing to compare."


def summarize(tables: Tables) -> pd.DataFrame:
    """Return one row per load and server, in plain values; none for a search, whose steps have a rate each.

    Values are the median of the trials, low and high their minimum and maximum. trials counts sealed ones, left_out
    those of which no attempt counts; p99_ms is NaN where a trial has fewer than 100 requests beyond it; server_bound
    says whether every trial was, and the load was a closed one: only then throughput is ranked, and never that of
    calibration servers. rank is rank and letters by requests/s, empty for who is not ranked.
    """
    servers = list(identities(tables.trials))
    trials = tables.trials[tables.trials["objective"] == ""]
    ordered = trials.assign(place=trials["server"].map(servers.index))
    groups = ordered.groupby(["load_order", "place"], sort=True)
    table = pd.DataFrame([_summary(cell) for _, cell in groups], columns=COLUMNS)
    for _, rows in table[table["server_bound"].astype(bool)].groupby("load", sort=False):
        if ranking := standing(tables, rows, "rps").ranking:
            ranks = {place.name: f"{place.rank} {place.letters}" for place in ranking.places}
            table.loc[rows.index, "rank"] = rows["server"].map(ranks).fillna("")
    return table


def _summary(cell: pd.DataFrame) -> dict[str, Any]:
    sealed, first = sealed_trials(cell), cell.iloc[0]
    left_out = cell.loc[~is_sealed(cell) & ~repeated(cell), "status"].value_counts()
    counts = [verdict_counts(sealed), *(f"{count} {status}" for status, count in left_out.items())]
    rates, costs = sealed["rps"], sealed["server_cpu_ms_per_request"]
    found = {
        **first,  # what is the same in every trial: only `COLUMNS` become the table's
        **{name: float(sealed[column].median()) for name, column in MEDIANS.items()},
        "trials": len(sealed), "left_out": int(left_out.sum()), "verdicts": "; ".join(filter(None, counts)),
        "rps_low": rates.min(), "rps_high": rates.max(), "cpu_low": costs.min(), "cpu_high": costs.max(),
        "server_bound": server_bound(sealed) and first["load_model"] == "closed" and first["tier"] != CALIBRATION,
        "limit": limit_words(sealed), "rank": "",
    }  # fmt: skip
    return found if carried_quantile(sealed["requests"].min()) >= 0.99 else found | {"p99_ms": float("nan")}


# --- tables of texts --------------------------------------------------------------------------------------


def printable(table: pd.DataFrame, more: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the summary as texts; rates that may not be ranked carry a dagger.

    Without any rank, cost of the database or request not sent in time there is no such column. `more` names further
    columns by their headings.
    """
    only = {
        RANK: table["rank"].ne("").any(),
        "database CPU ms/request": table["database_cpu_ms_per_request"].notna().any(),
        "dropped": table["dropped"].fillna(0).any(),
    }
    numbers = {"p50, ms": "p50_ms", "p99, ms": "p99_ms", "CPU ms/request": "cpu_ms_per_request"}
    numbers |= {"database CPU ms/request": "database_cpu_ms_per_request", "dropped": "dropped", **(more or {})}
    rows = [
        {
            "load": row["load"],
            "server": label(row),
            "trials": str(row["trials"]),
            "requests/s": _rate(row),
            RANK: row["rank"] or "–",
            **{heading: number(row[column]) for heading, column in numbers.items()},
            "verdicts": row["verdicts"],
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows).drop(columns=[heading for heading, known in only.items() if rows and not known])


def label(row: Mapping[Any, Any]) -> str:
    """Return a server's name, marked where it is there for calibration only."""
    return f"{row['server']} (calibration)" if row["tier"] == CALIBRATION else str(row["server"])


def _rate(row: Mapping[Any, Any]) -> str:
    return number(row["rps"]) + ("" if row["server_bound"] or not row["trials"] else f" {NOT_RANKED}")


def pivot(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one quantity (`rps` or `cpu_ms_per_request`) as texts, one row per load and one column per server."""
    rows: dict[str, dict[str, str]] = {}
    for row in table.to_dict("records"):
        text = _rate(row) if column == "rps" else number(row[column])
        rows.setdefault(row["load"], {"load": row["load"]})[label(row)] = text
    return pd.DataFrame(list(rows.values())).fillna("–")


# --- warnings ---------------------------------------------------------------------------------------------


def warnings_of(tables: Tables) -> tuple[str, ...]:
    """Return what a reader must know before any number, as sentences."""
    manifest, trials, table = tables.manifest, tables.trials, summarize(tables)
    reason = str(manifest.get("engine_reason") or "no reason is recorded").rstrip(".")
    again = repeated(trials)
    attempts, lost = int(again.sum()), int((~is_sealed(trials) & ~again).sum())
    few = int((table["trials"] < FEWEST).sum())
    closed = trials[is_sealed(trials) & (trials["load_model"] == "closed")]
    found = drift(closed["trial_order"], closed["rps"], zip(closed["load"], closed["server"], strict=True))
    rho, p, pace = (found.rho, found.p, "faster" if found.rho > 0 else "slower") if found else (0.0, 1.0, "")
    said = {
        f"Not in containers: the servers ran as local processes, because: {reason}.": (
            manifest.get("engine") == "process"
        ),
        "Server and load generator shared CPUs, so each slowed the other down.": (
            not (manifest.get("placement") or {}).get("disjoint", True)
        ),
        f"{lost} of {plural(len(trials) - attempts, 'trial')} failed or stopped early and took no part in any figure.":
            lost,
        f"{plural(attempts, 'attempt')} disturbed by the machine took no part: repeated.": attempts,
        f"{few} of {len(table)} combinations of load and server have fewer than {FEWEST} trials: not enough "
        "trials for an interval or a ranking; values stand with minimum to maximum in brackets.": few,
        f"The run drifted: later trials were {pace} (Spearman's rho of order against requests/s beside the cell's "
        f"median: {rho:.2f}, p = {p:.2g}). Compare servers within blocks only.": p <= ALPHA,
        **dict.fromkeys(map(str, manifest.get("host_warnings") or ()), True),
        **dict.fromkeys(other_ports.sentences(tables), True),
    }  # fmt: skip
    return tuple(sentence for sentence, holds in said.items() if holds)


# --- findings ---------------------------------------------------------------------------------------------


def findings(tables: Tables) -> tuple[str, ...]:
    """Return what a run says, a sentence or two per load, computed from its tables and manifest."""
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
    """Return the sentences that say something, behind how to read an order where one has one."""
    reading = [READING] if any("×" in sentence for sentence in sentences) else []
    return tuple(filter(None, [*reading, *sentences]))


def throughput(tables: Tables, rows: pd.DataFrame) -> str:
    """Say how servers rank by throughput on one load: only where each trial of them was server-bound."""
    bound, rest, load = rows[rows["server_bound"]], rows[~rows["server_bound"]], rows["load"].iloc[0]
    by_verdict = rest.groupby("verdicts", sort=False)["server"]
    others = "; ".join(f"{', '.join(servers)} ({verdicts})" for verdicts, servers in by_verdict)
    if not rows["trials"].any():
        return f"{load}: no number, since no trial was sealed: {others}."
    if bound.empty:
        return f"{load}: requests/s are not ranked, since no server was the limit in all its trials: {others}."
    if len(bound) == 1:
        server, rps = bound[["server", "rps"]].iloc[0]
        text = f"{load}: requests/s are not ranked; only {server} was the limit ({number(rps)})"
    else:
        text = f"{load}: {standing(tables, bound, 'rps').words('requests/s where the server was the limit')}"
    return f"{text}. Not ranked: {others}." if others else f"{text}."


def _offered(loads: list[pd.DataFrame]) -> list[str]:
    """Say whose requests of open loads were not all sent in time; the rate is the generator's, and not ranked."""
    by_outcome: dict[str, list[str]] = {}
    for rows in loads:
        dropped = rows[rows["trials"] > 0].set_index("server")["dropped"]
        late = ", ".join(f"{server} ({count:,.0f})" for server, count in dropped.items() if count > 0)
        outcome = "the rate was set, so it is not ranked" if len(dropped) else "no number, since no trial was sealed"
        if len(dropped) and dropped.notna().all():
            outcome += f"; dropped (median of the trials): {late}" if late else "; no request was dropped"
        by_outcome.setdefault(outcome, []).append(rows["load"].iloc[0])
    return [f"{'; '.join(names)}: {outcome}." for outcome, names in by_outcome.items()]


def cpu_order(tables: Tables, rows: pd.DataFrame) -> str:
    """Say how servers rank by CPU per request on one load, whatever was the limit; empty for less than two."""
    known = rows[rows["cpu_ms_per_request"].notna()]
    if len(known) < 2:
        return ""
    found = standing(tables, known, "server_cpu_ms_per_request")
    text = f"{known['load'].iloc[0]}: {found.words('CPU ms per request')}."
    if found.ranking is None or len(found.ranking.places) < 3:
        return text
    first, last = found.ranking.places[0].name, found.ranking.places[-1].name
    extremes = times(found.ranking.pairs[first, last].ratio, inverse=True)
    return f"{text} The cost of {last} is {extremes} that of {first}."


def _response_times(tables: Tables, loads: list[pd.DataFrame]) -> list[str]:
    """Say whether response times may be ranked, only under an offered rate that nobody saturated at, and how."""
    sealed = sealed_trials(tables.trials[tables.trials["tier"] != CALIBRATION])
    if sealed.empty:
        return [NOTHING]
    if kept := [rows[rows["limit"] == Limit.NONE] for rows in loads if (rows["limit"] == Limit.NONE).any()]:
        compared = "; ".join(f"{rows['load'].iloc[0]} ({', '.join(rows['server'])})" for rows in kept)
        said = [f"Response times may be compared on: {compared}. Verdict in every trial: offered."]
        for rows in kept:
            load = rows["load"].iloc[0]
            trials = sealed[sealed["load"].eq(load) & sealed["server"].isin(rows["server"])]
            for percent in (50, 99):
                order = standing(tables, rows, f"latency_p{percent}_ms")
                if order.ranking and 100 * carried_quantile(trials["requests"].min()) >= percent:
                    said.append(f"{load}: {order.words(f'p{percent}, ms')}.")
        return said
    if (sealed["load_model"].eq("closed") & sealed["workload"].ne(OWN_SCRIPT)).all():
        return [
            "Response times are not ranked: every load was a closed loop, whose mean response time is N divided by "
            "the throughput (Little's law) and shows the queue, not the server."
        ]
    return ["Response times are not ranked: on no load has a server the verdict offered in all its trials."]


def _tail_error(tables: Tables) -> str:
    """Say how well the shortest trial knows its p99; empty where all have as many requests as MLPerf asks for."""
    trials = sealed_trials(tables.trials[tables.trials["tier"] != CALIBRATION])
    least = trials.loc[trials["requests"].map(carried_quantile) >= 0.99, "requests"].min()
    if not least < mlperf_requests(0.99):
        return ""
    return (
        f"How sure p99 is: with {least:,.0f} requests in the shortest trial that has one, the share beyond it "
        f"may be off by {tail_error_pct(least, 0.99):.0f} % of its 1 % (99 % confidence, requests taken as "
        f"independent); MLPerf's 5 % take {mlperf_requests(0.99):,} requests."
    )
