"""Answers about a k6 script: its endpoints, groups, scenarios, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from runner.present.frames import Tables, sealed_trials
from runner.present.look.numbers import number

MIXTURE = (
    "The percentiles of a group or a scenario are those of a mixture of endpoints: compare "
    "endpoints with each other instead."
)
NO_SCRIPT = "This run has no script of a user, and no imported file: there are no endpoints."
_TIMES = {
    "p50, ms": "latency_p50_ms",
    "p90, ms": "latency_p90_ms",
    "p95, ms": "latency_p95_ms",
    "p99, ms": "latency_p99_ms",
}
MOST_SHOWN = 20
"""Highest number of endpoints of a trial that a page shows; the table has all."""


def has_script(tables: Tables) -> bool:
    """Return whether a run has endpoints of a script."""
    return not tables.of_script("endpoints").empty


def findings(tables: Tables) -> tuple[str, ...]:
    """Return, for each trial with several endpoints, the slowest and the one that failed most."""
    said = []
    for trial_id, rows in _endpoints(tables).groupby("trial_id", sort=False):
        known = rows[rows["latency_tail_ms"].notna()]
        if len(rows) < 2 or known.empty:
            continue
        slowest = known.sort_values("latency_tail_ms").iloc[-1]
        words = (
            f"{trial_id}: the tail is {slowest['endpoint']}'s, with "
            f"{number(slowest['latency_tail_ms'])} ms at p{slowest['latency_tail_percent']:g}"
        )
        failed = rows.sort_values("failed").iloc[-1]
        if failed["failed"]:
            words += (
                f"; {failed['endpoint']} failed most, {failed['failed']:,.0f} of "
                f"{failed['requests']:,.0f} requests"
            )
        said.append(f"{words}.")
    return tuple(said)


def endpoints_table(tables: Tables) -> pd.DataFrame:
    """Return the endpoints of each trial as texts, those with most requests first."""
    rows = _endpoints(tables)
    shown = rows[rows.groupby("trial_id").cumcount() < MOST_SHOWN]
    return _texts(shown, "endpoint")


def mixtures_table(tables: Tables, by: str) -> pd.DataFrame:
    """Return the rows of each trial about groups, or about scenarios, as texts."""
    found = tables.of_script("endpoints")
    sealed = found["trial_id"].isin(sealed_trials(tables.trials)["trial_id"])
    chosen = found[found["endpoint"].isna() & found[by].notna() & sealed]
    return _texts(chosen, by)


def checks_table(tables: Tables) -> pd.DataFrame:
    """Return the checks of each trial as texts, with the seconds in which they failed."""
    rows = [
        {
            "trial": row["trial_id"],
            "check": row["check"],
            "group": row["group"] or "",
            "passes": f"{row['passes']:,.0f}",
            "fails": f"{row['fails']:,.0f}",
            "failed from, s": _seconds(row["first_fail_s"]),
            "to, s": _seconds(row["last_fail_s"]),
        }
        for row in tables.of_script("checks").to_dict("records")
    ]
    return pd.DataFrame(rows)


def _endpoints(tables: Tables) -> pd.DataFrame:
    found = tables.of_script("endpoints")
    sealed = found["trial_id"].isin(sealed_trials(tables.trials)["trial_id"])
    return found[found["endpoint"].notna() & sealed]


def _texts(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return rows of the table of endpoints as texts."""
    found = [
        {
            "trial": row["trial_id"],
            by: row[by] or "(none)",
            "URLs": f"{row['urls']:,.0f}",
            "requests": f"{row['requests']:,.0f}",
            "requests/s": number(row["rps"]),
            "failed": row["failures"] or "–",
            **{heading: number(row[column]) for heading, column in _TIMES.items()},
            "tail, ms": _tail(row),
            "share of the time": f"{100 * row['share_of_iteration']:.0f} %"
            if pd.notna(row["share_of_iteration"])
            else "–",
        }
        for row in rows.to_dict("records")
    ]
    return pd.DataFrame(found)


def _tail(row: Mapping[Any, Any]) -> str:
    ms = row["latency_tail_ms"]
    return "–" if pd.isna(ms) else f"p{row['latency_tail_percent']:g}: {number(ms)}"


def _seconds(value: float) -> str:
    return "–" if pd.isna(value) else number(value)
