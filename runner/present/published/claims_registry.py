"""Every published claim with the function that judges it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from runner.model import LabError
from runner.present.frames import Tables
from runner.present.published import claims_experiments as experiments
from runner.present.published import claims_fastest as fastest
from runner.present.published import claims_wrk as wrk
from runner.present.published.claims import FILE, Claim, Outcome, read_claims

JUDGES: dict[str, Callable[[Tables, Claim], Outcome]] = {
    "rust-slightly-more-requests": experiments.slightly_more_requests,
    "percentiles-alike": experiments.percentiles_alike,
    "rust-half-the-cpu": experiments.half_the_cpu,
    "md5-costs-little": experiments.md5_costs_little,
    "rust-no-spikes": experiments.no_spikes,
    "no-failed-requests": experiments.no_failed_requests,
    "gnet-more-static": fastest.more_static,
    "gnet-lower-p90": fastest.lower_p90,
    "gnet-less-memory": fastest.less_memory,
    "gnet-equal-cpu": fastest.equal_cpu,
    "gnet-more-inserts": fastest.more_inserts,
    "gnet-latency-starts-high": fastest.latency_starts_high,
    "axum-steadier": fastest.steadier,
    "gnet-more-rows": fastest.more_rows,
    "postgres-not-the-limit": fastest.postgres_not_the_limit,
    "gin-ahead-close": wrk.gin_ahead_close,
    "axum-ahead-close-few": wrk.axum_ahead_close,
    "axum-far-ahead-at-1000": wrk.axum_far_ahead,
    "even-at-100": wrk.even_at_100,
    "axum-grows-to-1000": wrk.axum_grows,
    "axum-less-cpu": wrk.axum_less_cpu,
    "axum-half-cpu-keepalive": wrk.axum_half_cpu,
    "nginx-nearly-twice": wrk.nginx_twice,
    "actix-slower": wrk.actix_slower,
    "actix-less-cpu": wrk.actix_less_cpu,
    "actix-less-memory": wrk.actix_less_memory,
    "wrk-opens-what-it-is-asked": wrk.opens_what_it_is_asked,
    "counters-race": wrk.counters_race,
}
"""Name of a claim in claims.toml -> the function that judges it."""


@dataclass(frozen=True)
class Judged:
    """A claim and how it comes out in a run."""

    claim: Claim
    outcome: Outcome


@functools.lru_cache(maxsize=1)
def judge_all(tables: Tables) -> tuple[Judged, ...]:
    """Return every claim with its outcome in a run; LabError for a claim that no function judges."""
    claims, tables = read_claims(), tables.on_whole_cores
    unknown = [claim.name for claim in claims if claim.name not in JUDGES]
    if unknown:
        raise LabError(f"{FILE} has claims that no function judges: {', '.join(unknown)}.")
    return tuple(Judged(claim, JUDGES[claim.name](tables, claim)) for claim in claims)
