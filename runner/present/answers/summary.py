"""The answer of a run in numbers and sentences: what can be ranked, what cannot, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.model import CALIBRATION, OWN_SCRIPT
from runner.present.answers.caveats import tail_error, warnings_of
from runner.present.answers.ranking_text import READING, Standing, standing, times
from runner.present.frames import Tables, is_sealed, limit_words, repeated, sealed_trials, server_bound
from runner.present.look import captions, style
from runner.present.look.content import NOT_RANKED
from runner.present.look.palette import identities
from runner.present.statistics.stats import carried_quantile, spread

COLUMNS = (
    *("load", "workload", "tool", "server", "language", "trials", "left_out", "rps", "rps_low", "rps_high"),
    *("p50_ms", "p99_ms", "cpu_ms_per_request", "cpu_low", "cpu_high", "verdicts", "server_bound"),
    *("tier", "load_model", "cpu_pct", "dropped", "pool_size", "pool_in_use", "pool_exhausted_pct", "rows"),
    *("database_cpu_ms_per_request", "database_cpu_pct", "limit", "rank"),
)
MEDIANS = {
    "cpu_pct": "server_cpu_mean_pct",
    "dropped": "dropped",
    "pool_in_use": "pool_in_use_max",
    "pool_exhausted_pct": "pool_exhausted_pct",
    "rows": "rows_inserted",
    "database_cpu_ms_per_request": "database_cpu_ms_per_request",
    "database_cpu_pct": "database_cpu_mean_pct",
}
"""Column of the summary -> column of the trials whose median it is."""
RANK = "rank by requests/s (same letter: a tie)"


def summarize(tables: Tables) -> pd.DataFrame:
    """Return one row per load and server, in plain values.

    Columns are `COLUMNS`: trials counts sealed ones, left_out those of which no attempt counts; p99_ms is NaN where a
    trial has fewer than 100 requests beyond it; verdicts is a text that counts them; server_bound says whether every
    trial was, and the load was a closed one: only then throughput may be ranked. Calibration servers are in the table,
    and never are. Values are the median of the trials, low and high their minimum and maximum; rank is rank and letters
    by requests/s, empty for who is not ranked. The steps of a search are no load of this kind: each has a rate of its
    own.
    """
    servers = list(identities(tables.trials))
    trials = tables.trials[tables.trials["objective"] == ""]
    ordered = trials.assign(place=trials["server"].map(servers.index))
    groups = ordered.groupby(["load_order", "place"], sort=True)
    table = pd.DataFrame([_summary(cell) for _, cell in groups], columns=COLUMNS)
    ranks = {
        (load, server): rank
        for load, rows in table.groupby("load", sort=False)
        for server, rank in by_throughput(tables, rows).ranks().items()
    }
    keys = zip(table["load"], table["server"], strict=True)
    return table.assign(rank=[ranks.get(key, "") for key in keys])


def by_throughput(tables: Tables, rows: pd.DataFrame) -> Standing:
    """Return how the servers of one load stand by requests/s, of those that were the limit in each of their trials."""
    return _standing(tables, rows[rows["server_bound"].astype(bool)], "rps", more_is_better=True)


def by_cpu(tables: Tables, rows: pd.DataFrame) -> Standing:
    """Return how the servers of one load stand by CPU per request, whatever was the limit."""
    return _standing(tables, rows, "server_cpu_ms_per_request", more_is_better=False)


def by_latency(tables: Tables, rows: pd.DataFrame, quantile: float) -> Standing | None:
    """Return how servers that all kept an offered rate stand by a percentile (0.5, 0.9 or 0.99) of the response time.

    None where a trial has too few requests to carry it.
    """
    trials = tables.trials[tables.trials["load"].isin(rows["load"]) & tables.trials["server"].isin(rows["server"])]
    sealed = sealed_trials(trials)
    if carried_quantile(float(sealed["requests"].min())) < quantile:
        return None
    return _standing(tables, rows, f"latency_p{100 * quantile:.0f}_ms", more_is_better=False)


def _standing(tables: Tables, rows: pd.DataFrame, column: str, *, more_is_better: bool) -> Standing:
    """Return how the servers in `rows` of the summary, all of one load, stand by a column of their trials."""
    trials = tables.trials[tables.trials["load"].isin(rows["load"])]
    servers = list(rows["server"])
    return standing(trials, column, servers, more_is_better=more_is_better, copies=tables.copies)


def _summary(cell: pd.DataFrame) -> dict[str, Any]:
    sealed, first = sealed_trials(cell), cell.iloc[0]
    rps, cpu = spread(sealed["rps"]), spread(sealed["server_cpu_ms_per_request"])
    carried = sealed[sealed["requests"].map(lambda count: carried_quantile(count) >= 0.99).astype(bool)]
    whole = len(carried) == len(sealed)
    again = repeated(cell)
    left_out = cell.loc[~is_sealed(cell) & ~again, "status"].value_counts()
    counted = [captions.verdict_counts(sealed)] if len(sealed) else []
    return {
        **{name: str(first[name]) for name in ("load", "workload", "tool", "server", "language")},
        "trials": len(sealed), "left_out": int(left_out.sum()),
        "rps": rps.median, "rps_low": rps.low, "rps_high": rps.high,
        "p50_ms": spread(sealed["latency_p50_ms"]).median,
        "p99_ms": spread(sealed["latency_p99_ms"] if whole else []).median,
        "cpu_ms_per_request": cpu.median, "cpu_low": cpu.low, "cpu_high": cpu.high,
        "verdicts": "; ".join([*counted, *(f"{count} {status}" for status, count in left_out.items())]),
        "server_bound": server_bound(sealed) and first["load_model"] == "closed" and not _calibrates(first),
        "tier": first["tier"], "load_model": first["load_model"], "pool_size": first["pool_size"],
        "limit": limit_words(sealed), "rank": "",
        **{name: spread(sealed[column]).median for name, column in MEDIANS.items()},
    }  # fmt: skip


def text_rows(table: pd.DataFrame) -> list[dict[str, str]]:
    """Return a summary as printable texts, one mapping of heading to text per row, for a terminal's table."""
    return [{str(k): str(v) for k, v in row.items()} for row in printable(table).to_dict("records")]


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the summary as texts; rates that may not be ranked carry a dagger.

    What only some runs have, a rank, the database's cost, requests that could not be sent in time, has a column there.
    """
    stored, dropped = table["database_cpu_ms_per_request"].notna().any(), table["dropped"].fillna(0).any()
    ranked = table["rank"].ne("").any()
    rows = [
        {
            "load": row["load"],
            "server": label(row),
            "trials": str(row["trials"]),
            "requests/s": _rate(row),
            **({RANK: row["rank"] or "–"} if ranked else {}),
            "p50, ms": style.number(row["p50_ms"]),
            "p99, ms": style.number(row["p99_ms"]),
            "CPU ms/request": style.number(row["cpu_ms_per_request"]),
            **({"database CPU ms/request": style.number(row["database_cpu_ms_per_request"])} if stored else {}),
            **({"dropped": style.number(row["dropped"])} if dropped else {}),
            "verdicts": row["verdicts"],
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def label(row: Mapping[Any, Any]) -> str:
    """Return a server's name, marked where it is there for calibration only."""
    return f"{row['server']} (calibration)" if _calibrates(row) else str(row["server"])


def _calibrates(row: Mapping[Any, Any] | pd.Series[Any]) -> bool:
    return bool(row["tier"] == CALIBRATION)


def _rate(row: dict[Any, Any]) -> str:
    if not row["trials"]:
        return "–"
    mark = "" if row["server_bound"] else f" {NOT_RANKED}"
    return style.number(row["rps"]) + mark


def pivot(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one quantity (`rps` or `cpu_ms_per_request`) as texts, one row per load and one column per server."""
    cells = {
        (row["load"], label(row)): _rate(row) if column == "rps" else style.number(row[column])
        for row in table.to_dict("records")
    }
    loads, servers = list(dict.fromkeys(load for load, _ in cells)), list(dict.fromkeys(server for _, server in cells))
    return pd.DataFrame([{"load": load} | {s: cells.get((load, s), "–") for s in servers} for load in loads])


# --- sentences --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunAnswer:
    """What a run says: warnings first, then a sentence or two per load."""

    warnings: tuple[str, ...]
    findings: tuple[str, ...]


def answer(tables: Tables) -> RunAnswer:
    """Return the run's warnings and findings as sentences, all computed from its tables and manifest."""
    table = summarize(tables)
    loads = list(table[table["tier"] != CALIBRATION].groupby("load", sort=False))
    findings = [_throughput(tables, load, rows) for load, rows in loads if not _open(rows)]
    findings += _offered([(str(load), rows) for load, rows in loads if _open(rows)])
    findings += [sentence for load, rows in loads if (sentence := cpu_order(tables, load, rows))]
    findings += _response_times(tables, [rows for _, rows in loads])
    findings += [sentence for sentence in (tail_error(tables),) if sentence]
    if any("×" in finding for finding in findings):
        findings.insert(0, READING)
    return RunAnswer(tuple(warnings_of(tables, table)), tuple(findings))


def _open(rows: pd.DataFrame) -> bool:
    return bool(rows["load_model"].iloc[0] == "open")


def _throughput(tables: Tables, load: object, rows: pd.DataFrame) -> str:
    """Say how servers rank by throughput on one load: only where each trial of them was server-bound."""
    bound, rest = rows[rows["server_bound"]], rows[~rows["server_bound"]]
    others = "; ".join(
        f"{', '.join(servers)} ({verdicts})" for verdicts, servers in rest.groupby("verdicts", sort=False)["server"]
    )
    if not rows["trials"].any():
        return f"{load}: no number, since no trial was sealed: {others}."
    if bound.empty:
        return f"{load}: requests/s are not ranked, since no server was the limit in all its trials: {others}."
    if len(bound) == 1:
        only = bound.iloc[0]
        text = f"{load}: requests/s are not ranked; only {only['server']} was the limit ({style.number(only['rps'])})"
    else:
        text = f"{load}: {by_throughput(tables, bound).words('requests/s where the server was the limit')}"
    return f"{text}. Not ranked: {others}." if others else f"{text}."


SET = "the rate was set, so it is not ranked"
KEPT = f"{SET}; no request was dropped"


def _offered(loads: list[tuple[str, pd.DataFrame]]) -> list[str]:
    """Say whose requests of open loads were not all sent in time; the rate is the generator's, and not ranked."""
    outcomes = {load: _outcome(rows) for load, rows in loads}
    kept = [load for load, outcome in outcomes.items() if outcome == KEPT]
    found = [f"{load}: {outcome}." for load, outcome in outcomes.items() if outcome != KEPT]
    return [f"{'; '.join(kept)}: {KEPT}.", *found] if kept else found


def _outcome(rows: pd.DataFrame) -> str:
    known = rows[rows["trials"] > 0]
    if known.empty:
        return "no number, since no trial was sealed"
    late = [f"{row['server']} ({row['dropped']:,.0f})" for row in known.to_dict("records") if row["dropped"] > 0]
    if known["dropped"].isna().any():
        return SET
    return f"{SET}; dropped (median of the trials): {', '.join(late)}" if late else KEPT


def cpu_order(tables: Tables, load: object, rows: pd.DataFrame) -> str:
    """Say how servers rank by CPU per request on one load, whatever was the limit; empty for less than two."""
    known = rows[rows["cpu_ms_per_request"].notna()]
    if len(known) < 2:
        return ""
    found = by_cpu(tables, known)
    text = f"{load}: {found.words('CPU ms per request')}."
    if found.ranking is None or len(found.ranking.places) < 3:
        return text
    ends = found.ranking.places[0], found.ranking.places[-1]
    extremes = found.ranking.pair(ends[0].name, ends[1].name)
    return f"{text} The cost of {ends[1].name} is {times(extremes.ratio, inverse=True)} that of {ends[0].name}."


def _response_times(tables: Tables, loads: list[pd.DataFrame]) -> list[str]:
    """Say whether response times may be ranked: only under an offered rate that nobody saturated at."""
    sealed = tables.trials[is_sealed(tables.trials) & (tables.trials["tier"] != CALIBRATION)]
    if sealed.empty:
        return ["No trial of this run was sealed: there is nothing to compare."]
    compared, orders = [], []
    for rows in loads:
        kept = rows[rows["limit"] == Limit.NONE]
        if len(kept):
            compared.append(f"{rows['load'].iloc[0]} ({', '.join(kept['server'])})")
            orders += _latency_order(tables, kept)
    if compared:
        return [f"Response times may be compared on: {'; '.join(compared)}. Verdict in every trial: offered.", *orders]
    return [
        "Response times are not ranked: every load was a closed loop, whose mean response time is N divided by "
        "the throughput (Little's law) and shows the queue, not the server."
        if (sealed["load_model"].eq("closed") & sealed["workload"].ne(OWN_SCRIPT)).all()
        else "Response times are not ranked: on no load has a server the verdict offered in all its trials."
    ]


def _latency_order(tables: Tables, rows: pd.DataFrame) -> list[str]:
    """Say how servers that all kept an offered rate rank by response time; nothing where the trials are too few."""
    orders = [(quantile, by_latency(tables, rows, quantile)) for quantile in (0.5, 0.99)]
    return [
        f"{rows['load'].iloc[0]}: {order.words(f'p{100 * quantile:.0f}, ms')}."
        for quantile, order in orders
        if order is not None and order.ranking is not None
    ]
