"""The evidence of a verdict: CPU use over the load, who waited, and what else took part.

The digest computes it, the rules judge it, and `trials.parquet` stores it: each value is a column
whose name begins with `evidence_`.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from runner.measurement import LEAST_PROBED
from runner.verdict.limits import Cause, Limit

SATURATED = 0.90
"""A server above this share of its CPUs is the limit."""
CROWDED = 0.80
"""A generator above this share of its CPUs distorts what it measures, as Hyperfoil's watchdog says.
"""
FULL_SECOND = 0.95
"""A generator that used this share of its CPUs in some second may have set the rate in it."""
HELD = 0.97
"""Unless a server on a quota used this much of it over the whole load: that cost at most 3 %."""
THROTTLED = 0.01
"""A server that its quota held back for this share of the time has used up what it was given."""
NEAR_CEILING = 0.90
"""A rate above this share of the generator's ceiling may be the generator's."""
HARDLY_IDLE = 0.60
"""It is so only if the generator used this share of its CPUs.

A calibration may have met a slow moment of the machine.
"""
NETWORK_FULL = 0.80
"""Share of a measured transfer's bytes per second from which on the network is the limit.

Headers, acknowledgements and the way of a packet take the rest.
"""
LOSSY = 0.01
"""Share of TCP's segments sent again from which on waiting for them makes the response times."""
FAR = 0.5
"""Share of the median response time from which on the way to the server makes a closed rate."""
STOLEN = 0.05
"""Share of the CPUs' time taken by the hypervisor from which on it makes the response times.

A server may only look idle then.
"""
OTHERS = 0.15
"""Share of the CPUs' time taken by programs outside the trial from which on they count.

The kernel books the machine's time by its ticks and the trial's exactly, so that their difference
is rough: docs/method.md has what was seen.
"""
MANY_TIMES = 5.0
"""How many times the probe's percentile the generator's must be to be a queue of its own."""
APART_MS = {"p50": 1.0, "p95": 5.0, "p99": 5.0}
"""By how much more, in ms, it must be longer, too."""
SHARE_BEYOND = {"p50": 0.5, "p95": 0.05, "p99": 0.01}
"""Share of the requests beyond a percentile: as many new connections can make it what it is."""
ALIKE = 1.5
"""Percentiles within this ratio, both above APART_MS, are one wait of generator and probe."""
STIRRING = 0.25
"""A generator below this share of its CPUs in every second kept no request waiting.

Generators that did, in the committed runs, used 52 % or more.
"""
PROBED = 0.8
"""Share of the probe's due requests that must be answered; the least seen was 99 %."""
BY_CHANCE = 2.0
"""Standard deviations by which their number may miss what was due: each has a random time."""
LAST_ANSWER_LATE_S = 0.5
"""An open load whose last answer comes later than this after its end says so."""
BUSY_USERS = 0.9
"""Share of an open load's users that are busy on the average if users are its limit."""
ROOM = 2.0
"""How many times as many users to recommend as would be busy: response times rise under load."""
MOSTLY = 0.5
"""A pool that is exhausted in this share of the samples is the limit."""
CLEARLY_MORE = 2.0
"""A database that uses this many times the generator's CPU time fills the CPUs of both."""

PREFIX = "evidence_"


@dataclass(frozen=True)
class Evidence:
    """What a verdict is judged by.

    CPU use is a share of what each side was given: 1.0 if all of its CPUs were busy all the time.
    A group is None if the load has no such part.
    """

    server_share: float | None
    """None if it is not known which process the server is."""
    generator_share: float | None
    """Of the CPUs that it can use: wrk with one thread fills one core. None if it is not known."""
    generator_peak_share: float | None
    """Highest share over one second, or over the whole load if that is shorter."""
    disjoint: bool
    """Whether server and generator shared no CPU."""
    offered_rps: float | None = None
    """The rate of an open load. None if the load was closed."""
    dropped: int = 0
    """Requests of an open load that could not be sent in time."""
    database: DatabaseEvidence | None = None
    waits: tuple[Wait, ...] = ()
    """Percentiles that both generator and probe have, if the two can be compared."""
    throttled_share: float | None = 0.0
    """Share of the time in which any quota held the server back. None if that is not known."""
    stolen_share: float = 0.0
    """Share of the time of all CPUs that the hypervisor took."""
    others_share: float = 0.0
    """Share of the time of all CPUs that programs outside the trial took."""
    ceiling_share: float | None = None
    """The rate as a share of the generator's ceiling. None if that was not calibrated."""
    failed_share: float = 0.0
    """Of the requests. An error may be quicker or slower than the answer that was asked for."""
    checks_failed_share: float = 0.0
    """Of the checks that a script makes of its answers."""
    unit: str = "requests"
    """What an open load begins at its rate: an iteration may be several requests."""
    share: float = 1.0
    """Quota of the lab: share of each of its CPUs that the server was given."""
    cores: float = 1.0
    """How many cores that is together, or the quota of `foreign_quota`."""
    foreign_quota: bool = False
    """Whether a quota that is not the lab's gave the server less than that."""
    shared_quota: bool = False
    """Whether the generator is under a quota of the server's, too."""
    generator_throttled_share: float = 0.0
    """Share of the time in which a quota held the generator back. 0 if that is not known."""
    serial: Serial | None = None
    """Of a load with one connection: one request after the other."""
    probing: Probing | None = None
    """How the probe fared. None if there was none, or if it is no witness."""
    unprobed: bool = False
    """Whether there was no probe because it would have been too much for the server."""
    users: Users | None = None
    """Of an open load of k6."""
    connecting_share: float = 0.0
    """Of the requests: those whose response time includes the making of a connection."""
    network: Network | None = None
    """What is between several hosts. None on one machine."""
    ended_late_s: float = 0.0
    """How long after the end of an open load its last answer came."""

    @property
    def wrong_share(self) -> float:
        """The larger share of what went wrong, by status or by the script's checks."""
        return max(self.failed_share, self.checks_failed_share)

    @property
    def limited(self) -> bool:
        """Whether a quota gave the server less than its CPUs."""
        return self.share < 1 or self.foreign_quota

    @property
    def throttled(self) -> bool:
        """Whether a quota was seen to hold the server back."""
        return (self.throttled_share or 0.0) >= THROTTLED

    @property
    def crowded(self) -> bool:
        """Whether the generator was busy, at its ceiling, or held back by a quota."""
        mean_share = self.generator_share or 0.0
        peak_share = self.generator_peak_share or 0.0
        if mean_share > CROWDED:
            return True
        server_used_its_quota = self.limited and (self.server_share or 0.0) >= HELD
        if peak_share > FULL_SECOND and not server_used_its_quota:
            return True
        if self.generator_throttled_share >= THROTTLED:
            return True
        near_ceiling = self.ceiling_share is not None and self.ceiling_share >= NEAR_CEILING
        return near_ceiling and mean_share >= HARDLY_IDLE

    @property
    def saturated(self) -> bool:
        """Whether the server had used up its CPUs or its quota.

        The lab's quota has periods of 10 ms and holds back bursts, too: it must be used up. So must
        a quota that the generator uses, too.
        """
        if (self.server_share or 0.0) >= SATURATED:
            return True
        quota_is_its_own = self.share == 1 and not self.shared_quota
        return quota_is_its_own and self.throttled

    @property
    def network_full(self) -> bool:
        """Whether the network between the hosts carried what it can."""
        return self.network is not None and self.network.share >= NETWORK_FULL

    @property
    def probe_starved(self) -> bool:
        """Whether there was a probe, and too few of its requests were answered."""
        return self.probing is not None and self.probing.starved


@dataclass(frozen=True)
class Network:
    """What the network between hosts did to a load."""

    share: float
    """Bytes that went over it, as a share of what it carried in a transfer."""
    lost_share: float
    """Of TCP's segments: those sent again."""
    round_trip_ms: float
    """The way to the server and back, without load. 0 if it was not measured."""
    median_ms: float | None = None
    """The median response time, if it is known."""

    @property
    def is_far(self) -> bool:
        """Whether the way to the server and back is much of the median response time."""
        return bool(self.median_ms) and self.round_trip_ms >= FAR * (self.median_ms or 0.0)


@dataclass(frozen=True)
class Serial:
    """One request under way at any time: nothing queues.

    The rate is 1 / (the time of one cycle).
    """

    cycle_us: float
    server_share: float
    """CPU use of the server as a share of one core, and so of the cycle."""
    generator_share: float
    """The same of the generator."""
    idle: str | None
    """What idle CPUs did: `polling` or `system`."""


@dataclass(frozen=True)
class Wait:
    """One percentile of the response time, as generator and probe measured it at the same time."""

    name: str
    generator_ms: float
    probe_ms: float

    @property
    def longer(self) -> str:
        """Who waited many times as long as the other: `generator`, `probe`, or empty."""
        less_ms, more_ms = sorted((self.generator_ms, self.probe_ms))
        if more_ms <= MANY_TIMES * less_ms or more_ms - less_ms <= APART_MS[self.name]:
            return ""
        return "generator" if more_ms == self.generator_ms else "probe"

    @property
    def alike(self) -> bool:
        """Whether both waited, and about as long."""
        less_ms, more_ms = sorted((self.generator_ms, self.probe_ms))
        return less_ms > APART_MS[self.name] and more_ms <= ALIKE * less_ms


@dataclass(frozen=True)
class Probing:
    """How many of the probe's requests were due within the load, were sent, and failed."""

    due: int
    sent: int
    failed: int = 0

    @property
    def starved(self) -> bool:
        """Whether too few were answered to say anything."""
        answered = self.sent - self.failed
        may_miss = max((1 - PROBED) * self.due, BY_CHANCE * math.sqrt(self.due))
        return answered < self.due - may_miss or answered < LEAST_PROBED


@dataclass(frozen=True)
class Users:
    """How busy the virtual users of an open load were."""

    count: int
    iteration_ms: float
    """Mean of the completed iterations."""
    rate_rps: float
    """Iterations that were to begin each second."""
    busy: float | None
    """Mean number of users with an iteration under way. None if it is not known."""

    @property
    def are_the_limit(self) -> bool:
        """Whether hardly a user was free, but for the time until its next iteration."""
        longest_share = self.iteration_ms / (self.iteration_ms + 1000 / self.rate_rps)
        return self.busy is not None and self.busy >= BUSY_USERS * longest_share * self.count

    @property
    def most_rps(self) -> float:
        """Iterations per second that so many users can make."""
        return 1000 * self.count / self.iteration_ms

    @property
    def enough(self) -> int:
        """How many users would do."""
        busy_at_the_rate = self.rate_rps * self.iteration_ms / 1000
        return max(math.ceil(ROOM * busy_at_the_rate), self.count + 1)


@dataclass(frozen=True)
class DatabaseEvidence:
    """What the database and the connections to it say."""

    share: float
    """CPU use as a share of the CPUs that the database was given."""
    shared: bool
    """Whether those are the generator's."""
    pool_exhausted_share: float
    """Share of the samples in which every connection of the pool was in use."""
    limited: bool = False
    """Whether a quota of the lab's gave it a part of its CPUs only.

    It cannot fill CPUs that it shares then.
    """


@dataclass(frozen=True)
class Verdict:
    """What limited a trial, by which rule, and the evidence."""

    cause: Cause
    evidence: Evidence = field(repr=False)

    @property
    def limit(self) -> Limit:
        """What limited the trial."""
        return self.cause.limit


# --- evidence as columns --------------------------------------------------------------------------

GROUPS: dict[str, type] = {
    "database": DatabaseEvidence,
    "serial": Serial,
    "probing": Probing,
    "users": Users,
    "network": Network,
}
"""Fields of Evidence that are a group of values: `database.share` is `evidence_database_share`."""


Columns: TypeAlias = dict[str, float | bool | str | None]
"""Values by column; None for what is not known, or what a load does not have."""


def columns_of(evidence: Evidence) -> Columns:
    """Return the evidence as columns of `trials.parquet`, by their names.

    All columns of a group that the load does not have are None.
    """
    columns: Columns = {}
    for each in fields(Evidence):
        value = getattr(evidence, each.name)
        if each.name == "waits":
            columns |= _columns_of_waits(value)
        elif each.name in GROUPS:
            columns |= _columns_of_group(each.name, value)
        else:
            columns[PREFIX + each.name] = value
    return columns


def evidence_of(row: Mapping[Any, Any]) -> Evidence | None:
    """Return the evidence that a trial's row stores; None for a run from before it was stored.

    `row` has the columns of `columns_of`. Numbers may be floats, flags 0 and 1, and an unknown
    value None, NaN or an empty text, as pandas has them.
    """
    if not _is_known(row.get(f"{PREFIX}disjoint")):
        return None
    values: dict[str, Any] = {}
    for each in fields(Evidence):
        if each.name == "waits":
            values[each.name] = _waits_of(row)
        elif each.name in GROUPS:
            values[each.name] = _group_of(each.name, row)
        else:
            values[each.name] = _typed(Evidence, each.name, row.get(PREFIX + each.name))
    return Evidence(**values)


def _columns_of_waits(waits: tuple[Wait, ...]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    by_name = {wait.name: wait for wait in waits}
    for name in APART_MS:
        wait = by_name.get(name)
        columns[f"{PREFIX}{name}_generator_ms"] = None if wait is None else wait.generator_ms
        columns[f"{PREFIX}{name}_probe_ms"] = None if wait is None else wait.probe_ms
    return columns


def _waits_of(row: Mapping[Any, Any]) -> tuple[Wait, ...]:
    waits = []
    for name in APART_MS:
        generator_ms = row.get(f"{PREFIX}{name}_generator_ms", math.nan)
        probe_ms = row.get(f"{PREFIX}{name}_probe_ms", math.nan)
        if _is_known(generator_ms) and _is_known(probe_ms):
            waits.append(Wait(name, float(generator_ms), float(probe_ms)))
    return tuple(waits)


def _columns_of_group(group: str, value: object) -> Columns:
    return {
        f"{PREFIX}{group}_{each.name}": None if value is None else getattr(value, each.name)
        for each in fields(GROUPS[group])
    }


def _group_of(group: str, row: Mapping[Any, Any]) -> Any:
    kind = GROUPS[group]
    values = {
        each.name: _typed(kind, each.name, row.get(f"{PREFIX}{group}_{each.name}"))
        for each in fields(kind)
    }
    is_there = any(value is not None for value in values.values())
    return kind(**values) if is_there else None


def _is_known(value: object) -> bool:
    if isinstance(value, float) and math.isnan(value):
        return False
    return value is not None and value != ""


def _typed(kind: type, name: str, value: object) -> Any:
    """Return a stored value in the type of its field; None if it is unknown."""
    return _type_of(kind, name)(value) if _is_known(value) else None


@functools.cache
def _type_of(kind: type, name: str) -> type:
    """Return the type of a field, without the None that it may be instead."""
    declared = typing.get_type_hints(kind)[name]
    choices = typing.get_args(declared) or (declared,)
    kinds: list[type] = [choice for choice in choices if choice is not type(None)]
    return kinds[0]
