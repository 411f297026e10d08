"""Searches for the highest arrival rate that keeps an objective: what each server kept, and who set the end.

Each search (a server in a block) ends in a bracket: the highest rate that kept the objective and the lowest that
broke it. Where the step that broke it was limited by the server, or by nobody, the server's own rate lies in that
bracket. Where the generator or the database was the limit, or the limit is unknown, the server may keep more: the
bracket is open at the top, as it is where no step broke the objective. The median over the searches of what lies in
such brackets lies between the median of their lower ends and the median of their upper ones, which may be infinite.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.planning.search import bracket
from runner.present.frames import Tables, limits_of, sealed_trials
from runner.present.look import style
from runner.present.look.palette import identities
from runner.present.statistics.inference import median_interval
from runner.present.statistics.stats import spread

OWN = (Limit.SERVER, Limit.NONE)
"""Limits of a broken step that make the answer the server's: its CPUs were full, or nobody's were."""
RANGE_ENDS = "end of the search"
FEW = "not enough trials"
COLUMNS = (
    *("search", "load_order", "server", "searches", "kept_rps", "broken_rps", "low_rps", "high_rps", "confidence"),
    *("limit", "probe_p95_ms"),
)
WHY: dict[str, str] = {
    **{limit: limit.why_not for limit in Limit},
    Limit.GENERATOR: "k6 was the limit",
    RANGE_ENDS: "the search ended there",
}
"""Most frequent limit of the last steps -> why the server may keep more."""


# --- numbers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchOutcome:
    """What one search showed: the server keeps `low_rps` (0: none shown) and less than `high_rps` (inf: not shown)."""

    low_rps: float
    high_rps: float
    limit: str
    """What limited the step at the lowest rate that broke the objective."""
    probe_p95_ms: float
    """The probe's p95 in that step; NaN where unknown."""


def outcome(steps: pd.DataFrame) -> SearchOutcome:
    """Return what the sealed steps of one search showed."""
    found = bracket(zip(steps["rate_rps"].astype(float), steps["objective_kept"] == 1, strict=True))
    low = found.kept_rps or 0.0
    if found.broken_rps is None:
        return SearchOutcome(low, math.inf, RANGE_ENDS, math.nan)
    ended = steps[(steps["rate_rps"] == found.broken_rps) & (steps["objective_kept"] != 1)]
    limit = str(limits_of(ended).iloc[-1])
    high = found.broken_rps if limit in OWN else math.inf
    return SearchOutcome(low, high, limit, float(ended["probe_p95_ms"].median()))


def answers(tables: Tables) -> pd.DataFrame:
    """Return one row a search and server, columns `COLUMNS`.

    kept_rps and broken_rps enclose the median over the searches; low_rps and high_rps are its exact 95 % interval
    (`confidence`, from six searches on), else minimum and maximum with a confidence of NaN. 0 is no rate at all, inf
    is not known.
    """
    sealed, servers = sealed_trials(tables.searches()), list(identities(tables.trials))
    ordered = sealed.assign(rank=sealed["server"].map(servers.index))
    rows = [_answer(steps) for _, steps in ordered.groupby(["load_order", "rank"], sort=True)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _answer(steps: pd.DataFrame) -> dict[str, Any]:
    found = [outcome(own) for _, own in steps.groupby("block")]
    lows, highs = np.array([of.low_rps for of in found]), np.array([of.high_rps for of in found])
    sure, first = (median_interval(lows), median_interval(highs)), steps.iloc[0]
    limits = sorted(Counter(of.limit for of in found).items(), key=lambda item: (-item[1], item[0]))
    return {
        "search": str(first["load"]),
        "load_order": first["load_order"],
        "server": str(first["server"]),
        "searches": len(found),
        "kept_rps": float(np.median(lows)),
        "broken_rps": float(np.median(highs)),
        "low_rps": sure[0].low if sure[0] else float(lows.min()),
        "high_rps": sure[1].high if sure[1] else float(highs.max()),
        "confidence": sure[0].confidence if sure[0] else math.nan,
        "limit": ", ".join(word if len(limits) == 1 else f"{word} {count}" for word, count in limits),
        "probe_p95_ms": spread([of.probe_p95_ms for of in found]).median,
    }


# --- words ------------------------------------------------------------------------------------------------


def words(row: Mapping[Any, Any]) -> str:
    """Return what a server keeps: `4,120`, `at least 1,542 (k6 was the limit)`, `less than 250` or `unknown`."""
    kept, broken = row["kept_rps"], row["broken_rps"]
    if math.isinf(broken):
        # The most frequent limit that leaves the answer open.
        limits = [part.rstrip("0123456789 ") for part in str(row["limit"]).split(", ")]
        why = WHY.get(next((limit for limit in limits if limit not in OWN), ""), "see the limit")
        return f"at least {kept:,.0f} ({why})" if kept > 0 else f"unknown ({why})"
    return f"{kept:,.0f}" if kept > 0 else f"less than {broken:,.0f}"


def interval(row: Mapping[Any, Any]) -> str:
    """Return `3,980–4,300` with `≥` and `<` for open ends."""
    low, high = row["low_rps"], row["high_rps"]
    if math.isinf(high):
        return f"≥ {low:,.0f}" if low > 0 else "–"
    return f"{low:,.0f}–{high:,.0f}" if low > 0 else f"< {high:,.0f}"


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return `answers` as texts."""
    rows = [
        {
            "search": row["search"],
            "server": row["server"],
            "searches": str(row["searches"]),
            "highest rate that kept it, requests/s": words(row),
            "lowest that broke it": style.number(row["broken_rps"]),
            "95 % interval": interval(row)
            if math.isfinite(row["confidence"])
            else f"{interval(row)} (minimum–maximum; {FEW})",
            "limit where it broke": row["limit"],
            "probe's p95 there, ms": style.number(row["probe_p95_ms"]),
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def findings(tables: Tables) -> list[str]:
    """Return a sentence a search, the servers in descending order."""
    found = []
    for search, rows in answers(tables).groupby("search", sort=False):
        ordered = rows.sort_values(["kept_rps", "server"], ascending=[False, True]).to_dict("records")
        each = "; ".join(f"{row['server']} {words(row)}" for row in ordered)
        few = "" if rows["confidence"].notna().all() else f", {FEW} for an interval"
        found.append(f"{search}: the highest rate that kept it, requests/s, median of the searches{few}: {each}.")
    return found
