"""Evaluate searches for the highest arrival rate at which each server keeps an objective.

A search tests one server in one block, in steps with different rates. Its result is a bracket
between two rates: the highest rate at which the objective was kept, and the lowest rate at which it
was broken. The bracket contains the server's highest rate if the server was the limit of the step
that broke the objective, or if nothing was the limit. If the generator or the database was the
limit, or if the limit is unknown, the server may be able to keep the objective at a higher rate, so
the bracket has no upper end. The bracket has no upper end either if no step broke the objective.

Over several searches, the median of the true highest rates lies between the median of the lower
ends and the median of the upper ends. The median of the upper ends may be infinite.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.planning.search import bracket
from runner.present.chart.value import cells
from runner.present.frames import Tables, limits_of
from runner.present.look.numbers import number
from runner.present.statistics.inference import sure_spread
from runner.verdict.limits import Limit

LIMITS_THAT_DECIDE = (Limit.SERVER, Limit.NONE)
"""If a step at one of these limits broke the objective, the server itself was the reason.

With `SERVER`, the server's CPUs were full. With `NONE`, no program was at a limit.
"""
RANGE_ENDS = "end of the search"
TOO_FEW_SEARCHES = "not enough trials"
ANSWER_COLUMNS = (
    *(
        "search",
        "server",
        "searches",
        "kept_rps",
        "broken_rps",
        "low_rps",
        "high_rps",
        "confidence",
    ),
    *("limit", "why_open", "probe_p95_ms"),
)
WHY: dict[str, str] = {
    **{limit: limit.why_not for limit in Limit},
    Limit.GENERATOR: "k6 was the limit",
    RANGE_ENDS: "the search ended there",
}
"""Reasons why the server's highest rate may be higher than the search shows.

The key of a reason is the limit of the step that broke the objective. The key is `RANGE_ENDS` if no
step broke the objective.
"""


@dataclass(frozen=True)
class SearchOutcome:
    """The result of one search, from its sealed steps."""

    low_rps: float
    """The highest rate at which the server kept the objective. It is 0 if there is no such rate."""
    high_rps: float
    """An upper bound of the highest rate at which the server keeps the objective.

    If the server was the reason, the bound is the lowest rate at which the objective was broken. If
    the server was not the reason, no bound is known, and the value is infinite.
    """
    limit: str
    """The limit of the step with the lowest rate at which the objective was broken.

    The text is `RANGE_ENDS` if no step broke the objective.
    """
    probe_p95_ms: float
    """The 95th percentile of the probe's response times in one step of the search.

    This is the step with the lowest rate at which the objective was broken. The value is NaN if no
    step broke the objective.
    """


def outcome(steps: pd.DataFrame) -> SearchOutcome:
    """Return the result of one search, given its sealed steps."""
    known = bracket(zip(steps["rate_rps"].astype(float), steps["objective_kept"] == 1, strict=True))
    if math.isinf(known.broken_rps):
        return SearchOutcome(known.kept_rps, math.inf, RANGE_ENDS, math.nan)
    ended = steps[(steps["rate_rps"] == known.broken_rps) & (steps["objective_kept"] != 1)]
    limit = str(limits_of(ended).iloc[-1])
    return SearchOutcome(
        low_rps=known.kept_rps,
        high_rps=known.broken_rps if limit in LIMITS_THAT_DECIDE else math.inf,
        limit=limit,
        probe_p95_ms=float(ended["probe_p95_ms"].median()),
    )


def answers(tables: Tables) -> pd.DataFrame:
    """Return one row per search and server, with the columns `ANSWER_COLUMNS`.

    A row combines the searches of all blocks. Each search looks for the highest rate at which the
    server keeps the objective. The median of these rates lies between kept_rps and broken_rps. With
    at least six searches, low_rps and high_rps are the ends of the median's exact 95 % interval,
    and `confidence` is the coverage of this interval. With fewer searches, low_rps and high_rps are
    the minimum and maximum, and `confidence` is NaN. A rate of 0 means that no rate kept the
    objective. A rate of inf means that no upper end is known, usually for the reason in `why_open`.
    """
    rows = []
    for cell in cells(tables, tables.searches()):
        found = pd.DataFrame([outcome(search) for _, search in cell.trials.groupby("block")])
        least = sure_spread(found["low_rps"])
        most = sure_spread(found["high_rps"])
        rates = (least.median, most.median, least.low, most.high, least.confidence or math.nan)
        limits = Counter(sorted(found["limit"])).most_common()
        limit = ", ".join(word if len(limits) == 1 else f"{word} {count}" for word, count in limits)
        why_open = next((WHY[word] for word, _ in limits if word not in LIMITS_THAT_DECIDE), "")
        rows.append(
            (
                cell.panel,
                cell.server,
                len(found),
                *rates,
                limit,
                why_open,
                found["probe_p95_ms"].median(),
            )
        )
    return pd.DataFrame(rows, columns=ANSWER_COLUMNS)


def words(row: Mapping[Any, Any]) -> str:
    """Return the highest rate at which a server keeps an objective, as text.

    If this rate may be higher than the searches show, the text contains the reason. Examples:
    `4,120`, `at least 1,542 (k6 was the limit)`, `less than 250`, `unknown (...)`.
    """
    kept = kept_words(row, at_least="at least", less_than="less than")
    return f"{kept} ({row['why_open']})" if math.isinf(row["broken_rps"]) else kept


def kept_words(row: Mapping[Any, Any], at_least: str, less_than: str) -> str:
    """Return the highest rate at which a server keeps an objective, as text.

    The text is usually the rate `kept_rps`. If no upper end is known (`broken_rps` is infinite),
    the text is `at_least` followed by `kept_rps`. If no rate kept the objective (`kept_rps` is 0),
    the text is `less_than` followed by `broken_rps`. If both are the case, the text is `unknown`.
    """
    kept_rps = row["kept_rps"]
    if math.isinf(row["broken_rps"]):
        return f"{at_least} {kept_rps:,.0f}" if kept_rps > 0 else "unknown"
    return f"{kept_rps:,.0f}" if kept_rps > 0 else f"{less_than} {row['broken_rps']:,.0f}"


def interval(row: Mapping[Any, Any]) -> str:
    """Return the interval in a row of `answers` as text: `3,980–4,300`.

    If only one end is known, return `≥ 3,980` or `< 4,300`. If no end is known, return `–`.
    """
    low = row["low_rps"]
    high = row["high_rps"]
    if math.isinf(high):
        return f"≥ {low:,.0f}" if low > 0 else "–"
    return f"{low:,.0f}–{high:,.0f}" if low > 0 else f"< {high:,.0f}"


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `answers` in the form that pages print: as texts, with full headings."""
    rows = table.to_dict("records")
    few = [
        f" (minimum–maximum; {TOO_FEW_SEARCHES})" * math.isnan(row["confidence"]) for row in rows
    ]
    texts = {
        "search": table["search"],
        "server": table["server"],
        "searches": table["searches"].astype(str),
        "highest rate that kept it, requests/s": [words(row) for row in rows],
        "lowest that broke it": table["broken_rps"].map(number),
        "95 % interval": [f"{interval(row)}{note}" for row, note in zip(rows, few, strict=True)],
        "limit where it broke": table["limit"],
        "probe's p95 there, ms": table["probe_p95_ms"].map(number),
    }
    return pd.DataFrame(texts)


def findings(tables: Tables) -> list[str]:
    """Return a sentence for each load that is a search, with the highest rate of each server.

    The server with the highest rate comes first.
    """
    found = []
    for search, rows in answers(tables).groupby("search", sort=False):
        ordered = rows.sort_values(["kept_rps", "server"], ascending=[False, True]).to_dict(
            "records"
        )
        each = "; ".join(f"{row['server']} {words(row)}" for row in ordered)
        few = "" if rows["confidence"].notna().all() else f", {TOO_FEW_SEARCHES} for an interval"
        found.append(
            f"{search}: the highest rate that kept the objective, in requests/s, as the median of "
            f"the searches{few}: {each}."
        )
    return found
