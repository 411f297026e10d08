"""The rules that decide what limited a trial, as a table for readers (docs/method.md).

`runner/digest/verdict.py` applies the rules, and `evidence.py` defines their thresholds.
"""

from __future__ import annotations

from runner.verdict.evidence import (
    ALIKE,
    APART_MS,
    CLEARLY_MORE,
    CROWDED,
    FAR,
    FULL_SECOND,
    LOSSY,
    MANY_TIMES,
    MOSTLY,
    NEAR_CEILING,
    NETWORK_FULL,
    OTHERS,
    PROBED,
    SATURATED,
    STIRRING,
    STOLEN,
    THROTTLED,
)
from runner.verdict.limits import MOST_FAILED, Cause


def _percent(share: float) -> str:
    """Return a share as percent: `90 %`."""
    return f"{100 * share:g} %"


_MUCH_LONGER = (
    f"more than {MANY_TIMES:g} times as long, and {APART_MS['p50']:g} ms (p50) or "
    f"{APART_MS['p95']:g} ms (p95, p99) longer,"
)
_GENERATOR_WAITED = f"the generator waited {_MUCH_LONGER} than the probe"

WHEN: dict[Cause, str] = {
    Cause.REQUESTS_FAILED: (
        f"more than {_percent(MOST_FAILED)} of the requests failed; at one connection or at an "
        "offered rate, if any failed"
    ),
    Cause.CHECKS_FAILED: "the same of the checks that the script makes of its answers",
    Cause.CPUS_SHARED: "server and generator could run on the same CPU",
    Cause.NO_CPU_KNOWN: (
        "the CPU use of neither server nor generator is known, as in an imported file"
    ),
    Cause.SERVER_CPU_UNKNOWN: "nobody could read how much CPU the server used",
    Cause.GENERATOR_CPU_UNKNOWN: "nobody could read how much CPU the generator used",
    Cause.QUOTA_SHARED: (
        f"one CPU quota held server and generator back for {_percent(THROTTLED)} of the time, and "
        "the server did not use it up alone"
    ),
    Cause.ONE_REQUEST: "the load had one connection: each side waited for the other",
    Cause.BOTH_SIDES_BUSY: "the server was busy, and so was the generator or the database",
    Cause.NETWORK_FULL_AND_A_SIDE_BUSY: "the network was full, and one of the sides was busy",
    Cause.GENERATOR_AND_DATABASE_BUSY: "generator and database were busy on CPUs of their own",
    Cause.SERVER_BUSY: (
        f"the server used {_percent(SATURATED)} of its CPUs or of its quota, or a quota from "
        f"elsewhere held it back for {_percent(THROTTLED)} of the time"
    ),
    Cause.GENERATOR_BUSY: (
        f"the generator used more than {_percent(CROWDED)} of its CPUs, or more than "
        f"{_percent(FULL_SECOND)} in some second; or it reached {_percent(NEAR_CEILING)} of its "
        f"ceiling; or a quota held it back for {_percent(THROTTLED)} of the time"
    ),
    Cause.NETWORK_FULL: (
        f"the load used {_percent(NETWORK_FULL)} of the bytes per second that the network between "
        "the hosts carried before the run"
    ),
    Cause.DATABASE_USED_ITS_QUOTA: f"the database used {_percent(SATURATED)} of its quota",
    Cause.DATABASE_FILLED_SHARED_CPUS: (
        f"database and generator used {_percent(SATURATED)} of the CPUs that they share, the "
        f"database at least {CLEARLY_MORE:g} times as much as the generator"
    ),
    Cause.DATABASE_AND_GENERATOR_FILLED_CPUS: (
        f"database and generator used {_percent(SATURATED)} of the CPUs that they share, neither "
        "clearly more"
    ),
    Cause.DATABASE_BUSY: f"the database used {_percent(SATURATED)} of CPUs of its own",
    Cause.POOL_EXHAUSTED: (
        f"every connection of the pool was in use in {_percent(MOSTLY)} of the samples"
    ),
    Cause.CPU_TAKEN: (
        f"the hypervisor took {_percent(STOLEN)}, or programs outside the trial took "
        f"{_percent(OTHERS)}, of the time of all CPUs"
    ),
    Cause.NETWORK_LOSSY: f"{_percent(LOSSY)} of TCP's segments were sent again",
    Cause.NETWORK_FAR: (
        "a closed load: the way to the server and back took "
        f"{_percent(FAR)} of the median response time"
    ),
    Cause.PROBE_STARVED: (
        f"the probe had answers to less than {_percent(PROBED)} of its requests, and the verdict "
        "rests on it"
    ),
    Cause.WAITED_IN_AN_IDLE_GENERATOR: (
        f"{_GENERATOR_WAITED} and used less than {_percent(STIRRING)} of its CPUs in every second"
    ),
    Cause.WAITED_TO_BE_ACCEPTED: (
        f"{_GENERATOR_WAITED} and new connections are enough to explain that"
    ),
    Cause.WAITED_IN_THE_GENERATOR: f"{_GENERATOR_WAITED} for neither reason",
    Cause.TOO_FEW_USERS: "requests were dropped, because all virtual users were waiting",
    Cause.RATE_NOT_SUSTAINED: "requests were dropped for another reason",
    Cause.PROBE_WAITED_LONGER: f"the probe waited {_MUCH_LONGER} than the generator",
    Cause.RATE_SUSTAINED: "an open load: every request was sent in time",
    Cause.BOTH_WAITED_ALIKE: (
        f"generator and probe waited equally long, within a factor of {ALIKE:g}"
    ),
    Cause.NEITHER_SIDE_BUSY: "none of the above",
}
"""Cause -> the condition under which it decides a trial, if no cause before it does."""


HEADS = ("cause", "limit", "if")


def rows() -> list[tuple[str, ...]]:
    """Return the rules in their order as texts under `HEADS`."""
    return [(f"`{cause}`", str(cause.limit), when) for cause, when in WHEN.items()]
