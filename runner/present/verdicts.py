"""What limited the trials of a run, and whether its database has a row for each answer."""

from __future__ import annotations

import pandas as pd

from runner.model import POOL_EXHAUSTED

LIMITS = {
    "server-bound": "server",
    "generator-bound": "generator",
    "database-bound": "database",
    "offered": "none",
    "serial": "one request at a time",
    "inconclusive": "not told",
}


def limits(trials: pd.DataFrame) -> pd.Series[str]:
    """Return what limited each trial, in a word or two: server, pool, database, generator, none or not told."""
    pooled = (trials["verdict"] == "database-bound") & trials["verdict_reason"].str.startswith(POOL_EXHAUSTED)
    return trials["verdict"].map(LIMITS).mask(pooled, "pool")


def limit_words(trials: pd.DataFrame) -> str:
    """Return what limited the trials: `server`, or with counts where they differ, `database 3, pool 2`."""
    counts = limits(trials).value_counts()
    ordered = sorted(counts.items(), key=lambda item: (-int(item[1]), str(item[0])))
    return ", ".join(str(word) if len(ordered) == 1 else f"{word} {count}" for word, count in ordered)


def server_bound(trials: pd.DataFrame) -> bool:
    """Whether every one of the trials was limited by its server: only then may throughput be ranked.

    One request at a time counts as well where idle CPUs poll: the rate is then how long the server and its path take,
    not how long a CPU takes to wake.
    """
    serial = (trials["verdict"] == "serial") & (trials["idle"] == "polling")
    return bool(len(trials)) and bool(((trials["verdict"] == "server-bound") | serial).all())


def rows_equal_answers(trials: pd.DataFrame) -> str:
    """Say whether the database has as many rows as there were answers with 2xx, and how many."""
    known = trials[trials["rows_inserted"].notna() & trials["inserts"].notna()]
    if known.empty:
        return ""
    rows, unequal = known["rows_inserted"], known[known["rows_inserted"] != known["inserts"]]
    whole = f"{rows.sum():,.0f} rows were in the database after {len(known)} trial{'s' * (len(known) != 1)}"
    if unequal.empty:
        return f"{whole}: in each trial as many as answers with 2xx."
    most = (unequal["rows_inserted"] - unequal["inserts"]).abs().max()
    return f"{whole}; in {len(unequal)} of them up to {most:,.0f} more than 2xx answers: some came too late or never."
