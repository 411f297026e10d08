"""The answer of a run in numbers and sentences: what can be ranked, what cannot, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present import captions, style
from runner.present.frames import Tables, read_tables
from runner.present.markup import NOT_RANKED
from runner.present.stats import Spread, carried_quantile, spread
from runner.store import RunFolder

COLUMNS = (
    *("load", "workload", "tool", "server", "language", "trials", "left_out", "rps", "rps_low", "rps_high"),
    *("p50_ms", "p99_ms", "cpu_ms_per_request", "cpu_low", "cpu_high", "verdicts", "server_bound"),
)
ENOUGH_TRIALS = 5
"""Trials a side below which no interval of a ratio is given."""


def summary_table(run: RunFolder) -> pd.DataFrame:
    """Read a run's tables and return one row a load and server; see `summarize`."""
    return summarize(read_tables(run))


def summarize(tables: Tables) -> pd.DataFrame:
    """Return one row a load and server, in plain values.

    Columns are `COLUMNS`: trials counts sealed ones, left_out the rest; p99_ms is NaN where a trial has fewer
    than 100 requests beyond it; verdicts is a text that counts them; server_bound says whether every trial was,
    since only then throughput may be ranked.
    Values are the median of the trials, low and high their minimum and maximum.
    """
    servers = list(style.identities(tables.trials))
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
        "server_bound": captions.server_bound(sealed),
    }  # fmt: skip


def summary_rows(run: RunFolder) -> list[dict[str, str]]:
    """Return the summary as printable texts, one mapping of heading to text a row, for a terminal's table."""
    return [{str(k): str(v) for k, v in row.items()} for row in printable(summary_table(run)).to_dict("records")]


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the summary as texts; rates that may not be ranked carry a dagger."""
    rows = [
        {
            "load": row["load"],
            "server": row["server"],
            "trials": str(row["trials"]),
            "requests/s": _rate(row),
            "p50, ms": style.number(row["p50_ms"]),
            "p99, ms": style.number(row["p99_ms"]),
            "CPU ms/request": style.number(row["cpu_ms_per_request"]),
            "verdicts": row["verdicts"],
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def _rate(row: dict[Any, Any]) -> str:
    if not row["trials"]:
        return "–"
    mark = "" if row["server_bound"] else f" {NOT_RANKED}"
    return style.number(row["rps"]) + mark


def pivot(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one quantity (`rps` or `cpu_ms_per_request`) as texts, one row a load and one column a server."""
    cells = {
        (row["load"], row["server"]): _rate(row) if column == "rps" else style.number(row[column])
        for row in table.to_dict("records")
    }
    loads, servers = list(dict.fromkeys(table["load"])), list(dict.fromkeys(table["server"]))
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
    findings = [_throughput(load, rows) for load, rows in table.groupby("load", sort=False)]
    findings += [sentence for load, rows in table.groupby("load", sort=False) if (sentence := _cpu(load, rows))]
    findings += _response_times(tables)
    return Answer(tuple(_warnings(tables, table)), tuple(findings))


def _warnings(tables: Tables, table: pd.DataFrame) -> list[str]:
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
        spreads = {row["server"]: _spread(row, "rps") for row in bound.to_dict("records")}
        text = f"{load}: requests/s where the server was the limit: {_order(spreads, '>')}"
    return f"{text}. Not ranked: {others}." if others else f"{text}."


def _cpu(load: object, rows: pd.DataFrame) -> str:
    """Say how servers rank by CPU per request on one load, whatever was the limit; empty for less than two."""
    known = rows[rows["cpu_ms_per_request"].notna()]
    if len(known) < 2:
        return ""
    known = known.rename(columns={"cpu_ms_per_request": "cpu"})
    if known["trials"].min() < 2:
        values = ", ".join(f"{row['server']} {style.number(row['cpu'])}" for row in known.to_dict("records"))
        return f"{load}: CPU ms per request of single trials, which rank nobody: {values}."
    spreads = {row["server"]: _spread(row, "cpu") for row in known.to_dict("records")}
    least, most = known["cpu"].min(), known["cpu"].max()
    factor = f" The dearest costs {most / least:.2f} times the cheapest." if least > 0 else ""
    return f"{load}: CPU ms per request: {_order(spreads, '<')}.{factor}"


def _spread(row: dict[Any, Any], name: str) -> Spread:
    return Spread(row["trials"], row[name], row[f"{name}_low"], row[f"{name}_high"])


def _order(spreads: dict[str, Spread], sign: str) -> str:
    """Return `nginx 61,200 > axum 50,000 ≈ gin 49,900`: by median, with ≈ where neighbours' ranges overlap."""
    ranked = sorted(spreads.items(), key=lambda pair: (pair[1].median * (-1 if sign == ">" else 1), pair[0]))
    text = ""
    for place, (server, of) in enumerate(ranked):
        if place:
            text += f" {'≈' if of.overlaps(ranked[place - 1][1]) else sign} "
        text += f"{server} {style.number(of.median)}"
    return text


def _response_times(tables: Tables) -> list[str]:
    """Say whether response times may be ranked: only under an offered rate that nobody saturated at."""
    sealed = tables.trials[tables.trials["status"] == "sealed"]
    if sealed.empty:
        return ["No trial of this run was sealed: there is nothing to compare."]
    if (sealed["verdict"] == "offered").any():
        loads = ", ".join(dict.fromkeys(sealed.loc[sealed["verdict"] == "offered", "load"]))
        return [f"Response times may be compared on: {loads} (verdict: offered)."]
    return [
        "Response times rank nobody: every load was a closed loop, whose mean response time is N divided by "
        "the throughput (Little's law) and shows the queue, not the server."
        if (sealed["load_model"] == "closed").all()
        else "Response times rank nobody: no load has the verdict offered."
    ]
