"""Report what a run shows about a k6 script's endpoints, groups, scenarios, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from runner.model import OTHER_ENDPOINTS
from runner.present.frames import Tables, sealed_trials
from runner.present.look.numbers import number

MIXTURE = (
    "The percentiles of a group or a scenario are those of a mixture of endpoints: compare "
    "endpoints with each other instead."
)
OTHERS = (
    f"The row “{OTHER_ENDPOINTS}” combines all endpoints that are too rare for a row of their own. "
    "Its percentiles are those of a mixture."
)
NO_SCRIPT = "This run has no script of a user, and no imported file: there are no endpoints."
_TIMES = {
    "p50, ms": "latency_p50_ms",
    "p90, ms": "latency_p90_ms",
    "p95, ms": "latency_p95_ms",
    "p99, ms": "latency_p99_ms",
}
MOST_SHOWN = 20
"""A page shows at most this many endpoints of a trial, but the run's table contains all."""
TAIL = 0.01
"""Share of a trial's requests that form its tail: the slowest 1 %."""
CHANCE = 0.01
"""Significance level of the test that decides if an endpoint causes a trial's tail.

Many of the slowest requests may belong to one endpoint by chance. The page says that the endpoint
makes the tail only if the probability of such a coincidence is at most this level.
"""


def has_script(tables: Tables) -> bool:
    """Return True if a run has endpoints or further metrics of a user's script."""
    return any(not tables.of_script(name).empty for name in ("endpoints", "metrics"))


def without_requests(tables: Tables) -> tuple[str, ...]:
    """Return a sentence for each trial that has metrics of a script, but no HTTP request.

    The sentence gives the reason, which is the trial's error.
    """
    trials = tables.trials
    known = set(tables.of_script("metrics")["trial_id"]) - set(
        tables.of_script("endpoints")["trial_id"]
    )
    rows = trials[trials["trial_id"].isin(known)]
    return tuple(f"{row.trial_id}: {row.error}." for row in rows.itertuples())


def findings(tables: Tables) -> tuple[str, ...]:
    """Return a sentence on the slowest and the failed requests of each trial, by endpoint.

    The slowest 1 % of a trial's requests are its tail. If it is known to which endpoints these
    requests belong, the sentence says which endpoint makes the tail (`_tail_words`). If any request
    failed, the sentence names the endpoint with the most failed requests. A trial has no sentence
    if it has only one endpoint, or if its tail is unknown and no request failed.
    """
    said = []
    for trial_id, rows in _endpoints(tables).groupby("trial_id", sort=False):
        if len(rows) < 2:
            continue
        parts = []
        if rows["share_of_slowest"].notna().any():
            parts.append(_tail_words(rows))
        failed = rows.sort_values("failed").iloc[-1]
        if failed["failed"]:
            parts.append(
                f"{_name(failed)} failed most, {failed['failed']:,.0f} of "
                f"{failed['requests']:,.0f} requests"
            )
        if parts:
            said.append(f"{trial_id}: {'; '.join(parts)}.")
    return tuple(said)


def _tail_words(rows: pd.DataFrame) -> str:
    """Return a clause that names the endpoint that makes the tail, or says that no endpoint does.

    An endpoint makes the tail if more of the slowest requests belong to it than chance explains.
    """
    from scipy.special import bdtrc  # noqa: PLC0415 - slow to import, and most commands skip this

    slowest = rows.sort_values("share_of_slowest").iloc[-1]
    every = float(rows["requests"].sum())
    of_all = slowest["requests"] / every
    tail_requests = max(1, round(TAIL * every))
    own_requests = round(slowest["share_of_slowest"] * tail_requests)
    by_chance = bdtrc(own_requests - 1, tail_requests, of_all) if own_requests else 1.0
    shares = (
        f"{100 * slowest['share_of_slowest']:.0f} % of the slowest 1 % of the requests "
        f"and {100 * of_all:.0f} % of all requests"
    )
    if by_chance > CHANCE:
        return f"no endpoint makes the tail: {_name(slowest)} has {shares}"
    return f"{_name(slowest)} makes the tail: it has {shares}"


def _name(row: pd.Series[Any]) -> str:
    """Return an endpoint's name for use in a sentence."""
    name = str(row["endpoint"])
    return "the mixture of all other endpoints" if name == OTHER_ENDPOINTS else name


def has_others(tables: Tables) -> bool:
    """Return True if the table of endpoints has a row that combines a trial's rare endpoints."""
    return bool(_endpoints(tables)["endpoint"].eq(OTHER_ENDPOINTS).any())


def endpoints_table(tables: Tables) -> pd.DataFrame:
    """Return a table of the first `MOST_SHOWN` endpoints of each trial, as texts."""
    rows = _endpoints(tables)
    shown = rows[rows.groupby("trial_id").cumcount() < MOST_SHOWN]
    return _texts(shown, "endpoint")


def mixtures_table(tables: Tables, by: str) -> pd.DataFrame:
    """Return a table of each trial's groups, or of its scenarios, as texts.

    `by` is `group` or `scenario`.
    """
    found = tables.of_script("endpoints")
    sealed = found["trial_id"].isin(sealed_trials(tables.trials)["trial_id"])
    chosen = found[found["endpoint"].isna() & found[by].notna() & sealed]
    return _texts(chosen, by)


def checks_table(tables: Tables) -> pd.DataFrame:
    """Return a table of the checks of each trial, as texts.

    A row contains the first and the last second in which the check failed.
    """
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


def thresholds_table(tables: Tables) -> pd.DataFrame:
    """Return a table of the thresholds of each trial's script, as texts.

    Thresholds that were broken come first.
    """
    found = tables.of_script("thresholds")
    rows = [
        {
            "trial": row["trial_id"],
            "metric": row["metric"],
            "threshold": row["threshold"],
            "value": _seconds(row["value"]),
            "in the samples": _kept_words(row["kept"]),
            "said k6": _kept_words(row["kept_by_k6"]),
        }
        for row in found.assign(
            is_kept=found["kept"].fillna(found["kept_by_k6"]).fillna(value=True).astype(bool)
        )
        .sort_values(["is_kept"], kind="stable")
        .to_dict("records")
    ]
    return pd.DataFrame(rows)


def threshold_findings(tables: Tables) -> tuple[str, ...]:
    """Return one sentence per trial, with the number of thresholds that were broken.

    The lab evaluates the thresholds from the samples. The sentence also names the thresholds for
    which k6 came to another result.
    """
    said = []
    for trial_id, rows in tables.of_script("thresholds").groupby("trial_id", sort=False):
        known = rows[rows["kept"].notna()]
        broken = int((~known["kept"].astype(bool)).sum())
        words = f"{trial_id}: {broken} of {len(known)} thresholds were broken"
        unknown = len(rows) - len(known)
        if unknown:
            words += f"; {unknown} cannot be evaluated from this file"
        both = known[known["kept_by_k6"].notna()]
        other = both[both["kept"].astype(bool) != both["kept_by_k6"].astype(bool)]
        if len(other):
            named = ", ".join(f"{row.metric} {row.threshold}" for row in other.itertuples())
            words += f"; k6 says otherwise of {named}"
        said.append(f"{words}.")
    return tuple(said)


def metrics_table(tables: Tables) -> pd.DataFrame:
    """Return a table of each trial's metrics other than those of HTTP requests, as texts."""
    columns = {"mean": "mean", "lowest": "least", "highest": "most"}
    percentiles = ("p50", "p90", "p95", "p99")
    rows = [
        {
            "trial": row["trial_id"],
            "metric": row["metric"],
            "kind": row["kind"] or "unknown",
            "samples": f"{row['points']:,.0f}",
            "sum": _seconds(row["total"]),
            **{heading: _seconds(row[name]) for heading, name in columns.items()},
            **{name: _seconds(row[name]) for name in percentiles},
        }
        for row in tables.of_script("metrics").to_dict("records")
    ]
    return pd.DataFrame(rows)


def _kept_words(kept: bool | None) -> str:
    if kept is None or pd.isna(kept):
        return "–"
    return "kept" if kept else "broken"


def _endpoints(tables: Tables) -> pd.DataFrame:
    found = tables.of_script("endpoints")
    sealed = found["trial_id"].isin(sealed_trials(tables.trials)["trial_id"])
    return found[found["endpoint"].notna() & sealed]


def _texts(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return rows of the table of endpoints as texts.

    `by` is the column that names a row: `endpoint`, `group` or `scenario`.
    """
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
