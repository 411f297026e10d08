"""The answer of a run in numbers and sentences: what can be ranked, what cannot, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present import captions, style
from runner.present.frames import Tables, read_tables
from runner.present.markup import NOT_RANKED
from runner.present.palette import CALIBRATION, identities
from runner.present.stats import Spread, carried_quantile, spread
from runner.store import RunFolder

COLUMNS = (
    *("load", "workload", "tool", "server", "language", "trials", "left_out", "rps", "rps_low", "rps_high"),
    *("p50_ms", "p99_ms", "cpu_ms_per_request", "cpu_low", "cpu_high", "verdicts", "server_bound"),
    *("tier", "load_model", "cpu_pct", "dropped", "pool_size", "pool_in_use", "pool_exhausted_pct", "rows"),
    *("database_cpu_ms_per_request", "database_cpu_pct", "limit"),
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
ENOUGH_TRIALS = 5
"""Trials a side below which no interval of a ratio is given."""


def summarize(tables: Tables) -> pd.DataFrame:
    """Return one row a load and server, in plain values.

    Columns are `COLUMNS`: trials counts sealed ones, left_out the rest; p99_ms is NaN where a trial has fewer
    than 100 requests beyond it; verdicts is a text that counts them; server_bound says whether every trial was, and
    the load was a closed one: only then throughput may be ranked. Calibration servers are in the table, and never are.
    Values are the median of the trials, low and high their minimum and maximum.
    """
    servers = list(identities(tables.trials))
    ordered = tables.trials.assign(rank=tables.trials["server"].map(servers.index))
    groups = ordered.groupby(["load_order", "rank"], sort=True)
    return pd.DataFrame([_summary(cell) for _, cell in groups], columns=COLUMNS)


def _summary(cell: pd.DataFrame) -> dict[str, Any]:
    sealed, first = cell[cell["status"] == "sealed"], cell.iloc[0]
    rps, cpu = spread(sealed["rps"]), spread(sealed["server_cpu_ms_per_request"])
    carried = sealed[sealed["requests"].map(lambda count: carried_quantile(count) >= 0.99).astype(bool)]
    whole = len(carried) == len(sealed)
    left_out = cell.loc[cell["status"] != "sealed", "status"].value_counts()
    verdicts = [captions.verdict_counts(sealed)] if len(sealed) else []
    return {
        **{name: str(first[name]) for name in ("load", "workload", "tool", "server", "language")},
        "trials": len(sealed), "left_out": len(cell) - len(sealed),
        "rps": rps.median, "rps_low": rps.low, "rps_high": rps.high,
        "p50_ms": spread(sealed["latency_p50_ms"]).median,
        "p99_ms": spread(sealed["latency_p99_ms"] if whole else []).median,
        "cpu_ms_per_request": cpu.median, "cpu_low": cpu.low, "cpu_high": cpu.high,
        "verdicts": "; ".join([*verdicts, *(f"{count} {status}" for status, count in left_out.items())]),
        "server_bound": captions.server_bound(sealed) and first["load_model"] == "closed" and not _calibrates(first),
        "tier": first["tier"], "load_model": first["load_model"], "pool_size": first["pool_size"],
        "limit": captions.limit_words(sealed),
        **{name: spread(sealed[column]).median for name, column in MEDIANS.items()},
    }  # fmt: skip


def summary_rows(run: RunFolder) -> list[dict[str, str]]:
    """Return the summary as printable texts, one mapping of heading to text a row, for a terminal's table."""
    return [
        {str(k): str(v) for k, v in row.items()} for row in printable(summarize(read_tables(run))).to_dict("records")
    ]


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the summary as texts; rates that may not be ranked carry a dagger.

    What only some runs have, the database's cost and requests that could not be sent in time, has a column there.
    """
    stored, dropped = table["database_cpu_ms_per_request"].notna().any(), table["dropped"].fillna(0).any()
    rows = [
        {
            "load": row["load"],
            "server": label(row),
            "trials": str(row["trials"]),
            "requests/s": _rate(row),
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
    """Return one quantity (`rps` or `cpu_ms_per_request`) as texts, one row a load and one column a server."""
    cells = {
        (row["load"], label(row)): _rate(row) if column == "rps" else style.number(row[column])
        for row in table.to_dict("records")
    }
    loads, servers = list(dict.fromkeys(load for load, _ in cells)), list(dict.fromkeys(server for _, server in cells))
    return pd.DataFrame([{"load": load} | {s: cells.get((load, s), "–") for s in servers} for load in loads])


# --- sentences --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a run says: warnings first, then a sentence or two a load."""

    warnings: tuple[str, ...]
    findings: tuple[str, ...]


def answer(tables: Tables) -> Answer:
    """Return the run's warnings and findings as sentences, all computed from its tables and manifest."""
    table = summarize(tables)
    loads = list(table[table["tier"] != CALIBRATION].groupby("load", sort=False))
    findings = [(_offered if _open(rows) else _throughput)(load, rows) for load, rows in loads]
    findings += [sentence for load, rows in loads if (sentence := cpu_order(load, rows))]
    findings += _response_times(tables, [rows for _, rows in loads])
    return Answer(tuple(warnings_of(tables, table)), tuple(findings))


def _open(rows: pd.DataFrame) -> bool:
    return bool(rows["load_model"].iloc[0] == "open")


def warnings_of(tables: Tables, table: pd.DataFrame) -> list[str]:
    """Return what a reader must know before any number, as sentences; `table` is the summary of the run."""
    manifest, warnings = tables.manifest, []
    if manifest.get("engine") == "process":
        reason = str(manifest.get("engine_reason") or "no reason is recorded").rstrip(".")
        warnings.append(f"Not in containers: the servers ran as local processes, because: {reason}.")
    if not (manifest.get("placement") or {}).get("disjoint", True):
        warnings.append("Server and load generator shared CPUs, so each slowed the other down.")
    left_out = int(table["left_out"].sum())
    if left_out:
        total = captions.plural(len(tables.trials), "trial")
        warnings.append(f"{left_out} of {total} failed or stopped early and took no part in any figure.")
    few = table[table["trials"] < ENOUGH_TRIALS]
    if len(few):
        warnings.append(
            f"{len(few)} of {len(table)} combinations of load and server have fewer than {ENOUGH_TRIALS} trials: not "
            "enough trials for an interval. Ranges are minimum to maximum; ≈ joins servers whose ranges overlap."
        )
    warnings += [str(warning) for warning in manifest.get("host_warnings") or []]
    return warnings


def _throughput(load: object, rows: pd.DataFrame) -> str:
    """Say how servers rank by throughput on one load: only where each trial of them was server-bound."""
    bound, rest = rows[rows["server_bound"]], rows[~rows["server_bound"]]
    others = "; ".join(
        f"{', '.join(servers)} ({verdicts})" for verdicts, servers in rest.groupby("verdicts", sort=False)["server"]
    )
    if not rows["trials"].any():
        return f"{load}: no number, since no trial was sealed: {others}."
    if bound.empty:
        return f"{load}: requests/s rank nobody, since no server was the limit in all its trials: {others}."
    if len(bound) == 1:
        only = bound.iloc[0]
        text = f"{load}: requests/s rank nobody; only {only['server']} was the limit ({style.number(only['rps'])})"
    elif bound["trials"].min() < 2:
        values = ", ".join(f"{row['server']} {style.number(row['rps'])}" for row in bound.to_dict("records"))
        text = f"{load}: requests/s of single trials, which rank nobody: {values}"
    else:
        spreads = {row["server"]: spread_of(row, "rps") for row in bound.to_dict("records")}
        text = f"{load}: requests/s where the server was the limit: {order(spreads, '>')}"
    return f"{text}. Not ranked: {others}." if others else f"{text}."


def _offered(load: object, rows: pd.DataFrame) -> str:
    """Say whose requests of an open load were not all sent in time; the rate is the generator's, and ranks nobody."""
    known = rows[rows["trials"] > 0]
    if known.empty:
        return f"{load}: no number, since no trial was sealed."
    late = [f"{row['server']} ({row['dropped']:,.0f})" for row in known.to_dict("records") if row["dropped"] > 0]
    dropped = f"; dropped (median of the trials): {', '.join(late)}" if late else "; none was dropped"
    dropped = "" if known["dropped"].isna().any() else dropped
    return f"{load}: the rate was set, and ranks nobody{dropped}."


def cpu_order(load: object, rows: pd.DataFrame) -> str:
    """Say how servers rank by CPU per request on one load, whatever was the limit; empty for less than two."""
    known = rows[rows["cpu_ms_per_request"].notna()]
    if len(known) < 2:
        return ""
    known = known.rename(columns={"cpu_ms_per_request": "cpu"})
    if known["trials"].min() < 2:
        values = ", ".join(f"{row['server']} {style.number(row['cpu'])}" for row in known.to_dict("records"))
        return f"{load}: CPU ms per request of single trials, which rank nobody: {values}."
    spreads = {row["server"]: spread_of(row, "cpu") for row in known.to_dict("records")}
    least, most = known["cpu"].min(), known["cpu"].max()
    factor = f" The dearest costs {most / least:.2f} times the cheapest." if least > 0 else ""
    return f"{load}: CPU ms per request: {order(spreads, '<')}.{factor}"


def spread_of(row: Mapping[Any, Any], name: str) -> Spread:
    """Return the trials' spread of a quantity from a row of the summary."""
    return Spread(row["trials"], row[name], row[f"{name}_low"], row[f"{name}_high"])


def order(spreads: dict[str, Spread], sign: str) -> str:
    """Return `nginx 61,200 > axum 50,000 ≈ gin 49,900`: by median, with ≈ where neighbours' ranges overlap."""
    ranked = sorted(spreads.items(), key=lambda pair: (pair[1].median * (-1 if sign == ">" else 1), pair[0]))
    text = ""
    for place, (server, of) in enumerate(ranked):
        if place:
            text += f" {'≈' if of.overlaps(ranked[place - 1][1]) else sign} "
        text += f"{server} {style.number(of.median)}"
    return text


def _response_times(tables: Tables, loads: list[pd.DataFrame]) -> list[str]:
    """Say whether response times may be ranked: only under an offered rate that nobody saturated at."""
    sealed = tables.trials[(tables.trials["status"] == "sealed") & (tables.trials["tier"] != CALIBRATION)]
    if sealed.empty:
        return ["No trial of this run was sealed: there is nothing to compare."]
    compared = []
    for rows in loads:
        kept = [row["server"] for row in rows.to_dict("records") if row["limit"] == captions.LIMITS["offered"]]
        if kept:
            compared.append(f"{rows['load'].iloc[0]} ({', '.join(kept)})")
    if compared:
        return [f"Response times may be compared on: {'; '.join(compared)}. Verdict in every trial: offered."]
    return [
        "Response times rank nobody: every load was a closed loop, whose mean response time is N divided by "
        "the throughput (Little's law) and shows the queue, not the server."
        if (sealed["load_model"] == "closed").all()
        else "Response times rank nobody: on no load has a server the verdict offered in all its trials."
    ]
