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
        f"more than {_percent(MOST_FAILED)} of the requests failed; for a load with one "
        "connection, or with capacity left on all sides, any request failed"
    ),
    Cause.CHECKS_FAILED: (
        f"more than {_percent(MOST_FAILED)} of the script's checks failed; for a load with one "
        "connection, or with capacity left on all sides, any check failed"
    ),
    Cause.CPUS_SHARED: "server and generator could run on the same CPU",
    Cause.NO_CPU_KNOWN: (
        "the CPU use of neither server nor generator is known, as in an imported file"
    ),
    Cause.SERVER_CPU_UNKNOWN: "the lab could not read how much CPU the server used",
    Cause.GENERATOR_CPU_UNKNOWN: "the lab could not read how much CPU the generator used",
    Cause.QUOTA_SHARED: (
        "server and generator were under one CPU quota, which held them back for "
        f"{_percent(THROTTLED)} of the time, and the server did not use up the quota alone"
    ),
    Cause.ONE_REQUEST: (
        "the load had one connection, so server and generator waited for each other in turn"
    ),
    Cause.BOTH_SIDES_BUSY: "the server was busy, and so was the generator or the database",
    Cause.NETWORK_FULL_AND_A_SIDE_BUSY: "the network was full, and one of the sides was busy",
    Cause.GENERATOR_AND_DATABASE_BUSY: (
        "generator and database were both busy, each on CPUs of its own"
    ),
    Cause.SERVER_BUSY: (
        f"the server used {_percent(SATURATED)} of its CPUs or of its quota, or a quota "
        f"that the lab did not set held it back for {_percent(THROTTLED)} of the time"
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
        f"database and generator together used {_percent(SATURATED)} of the CPUs that they "
        f"share, and the database used at least {CLEARLY_MORE:g} times as much as the "
        "generator"
    ),
    Cause.DATABASE_AND_GENERATOR_FILLED_CPUS: (
        f"database and generator together used {_percent(SATURATED)} of the CPUs that they "
        "share, and neither used clearly more than the other"
    ),
    Cause.DATABASE_BUSY: (
        f"the database had its own CPUs and used at least {_percent(SATURATED)} of them"
    ),
    Cause.POOL_EXHAUSTED: (
        f"every connection of the pool was in use in {_percent(MOSTLY)} of the samples"
    ),
    Cause.CPU_TAKEN: (
        f"the hypervisor took {_percent(STOLEN)}, or programs outside the trial took "
        f"{_percent(OTHERS)}, of the time of all CPUs"
    ),
    Cause.NETWORK_LOSSY: f"{_percent(LOSSY)} of the TCP segments were retransmitted",
    Cause.NETWORK_FAR: (
        f"the load is closed, and the network round trip took {_percent(FAR)} of the median "
        "response time"
    ),
    Cause.PROBE_STARVED: (
        f"less than {_percent(PROBED)} of the probe's requests were answered, and all rules "
        "below need these answers"
    ),
    Cause.WAITED_IN_AN_IDLE_GENERATOR: (
        f"{_GENERATOR_WAITED}, and the generator used less than {_percent(STIRRING)} of its "
        "CPUs in every second"
    ),
    Cause.WAITED_TO_BE_ACCEPTED: (
        f"{_GENERATOR_WAITED}, and the opening of new connections is enough to explain the "
        "difference"
    ),
    Cause.WAITED_IN_THE_GENERATOR: (
        f"{_GENERATOR_WAITED}, but the generator used at least {_percent(STIRRING)} of its CPUs in "
        "some second, and new connections cannot explain the difference"
    ),
    Cause.TOO_FEW_USERS: "requests were dropped, because all virtual users were waiting",
    Cause.RATE_NOT_SUSTAINED: "requests were dropped for another reason",
    Cause.PROBE_WAITED_LONGER: f"the probe waited {_MUCH_LONGER} than the generator",
    Cause.RATE_SUSTAINED: "the load is open, and every request was sent in time",
    Cause.BOTH_WAITED_ALIKE: (
        f"generator and probe waited equally long, within a factor of {ALIKE:g}"
    ),
    Cause.NEITHER_SIDE_BUSY: "none of the conditions above is met",
}
"""For each cause, the condition under which the cause decides the limit of a trial.

A cause decides only if the conditions of all earlier causes in this table are not met.
"""


HEADS = ("cause", "limit", "if")


def rows() -> list[tuple[str, ...]]:
    """Return one row of texts per rule, in the rules' order, with the columns of `HEADS`."""
    return [(f"`{cause}`", str(cause.limit), when) for cause, when in WHEN.items()]
