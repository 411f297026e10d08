"""The evidence of a verdict: CPU use, waiting times and other numbers that decide the verdict.

The digest computes the evidence, and the rules in `runner/digest/verdict.py` use it to decide the
verdict. `trials.parquet` stores each value in a column whose name begins with `evidence_`.
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
"""A server that uses at least this share of its CPUs is the limit."""
CROWDED = 0.80
"""A generator that uses more than this share of its CPUs distorts its measurements.

The watchdog of Hyperfoil, another load generator, has the same limit.
"""
FULL_SECOND = 0.95
"""A generator that used over this share of its CPUs in some second may have limited the rate."""
HELD = 0.97
"""FULL_SECOND is not applied if a server used at least this share of its quota over the whole load.

The server had at most 3 % of its quota left, so the rate could have been at most about 3 % higher,
even though the generator was busy in some seconds.
"""
THROTTLED = 0.01
"""A quota counts as used up if it holds a program back for at least this share of the time."""
NEAR_CEILING = 0.90
"""If the rate is at least this share of the generator's ceiling, the generator may be the limit."""
HARDLY_IDLE = 0.60
"""A generator near its ceiling is the limit only if it used at least this share of its CPUs.

If the generator used less, the stored ceiling is probably too low, because the machine was slow
during the calibration.
"""
NETWORK_FULL = 0.80
"""The network is the limit if a load moves at least this share of the network's bytes per second.

A transfer before the run measures how many bytes per second the network can move. No load moves as
many bytes per second as this transfer, because the network also moves headers and acknowledgements,
and because requests and answers need time on their way.
"""
LOSSY = 0.01
"""If at least this share of the TCP segments is sent again, losses dominate the response times."""
FAR = 0.5
"""The network between hosts limits a closed load if its round trips are long.

They are long if a round trip takes at least this share of the median response time.
"""
STOLEN = 0.05
"""The hypervisor disturbs a trial if it takes at least this share of the CPU time.

The server may then look idle although it was waiting for a CPU, and the response times do not show
its performance.
"""
OTHERS = 0.15
"""Programs outside the trial are a disturbance if they use at least this share of the CPU time.

The CPU time of these programs is computed as the CPU time of the machine minus the CPU time of the
trial. The kernel may count the machine's time in ticks but the trial's time exactly, so the result
is only rough. docs/method-evidence.md has measured values.
"""
MANY_TIMES = 5.0
"""One side waited longer if its response time is more than this many times the other side's.

The sides are generator and probe. The rule compares the same percentile of their response times.
The difference of the two percentiles must also exceed APART_MS.
"""
APART_MS = {"p50": 1.0, "p95": 5.0, "p99": 5.0}
"""Thresholds in ms for the rules of MANY_TIMES and ALIKE, by percentile.

One side waited longer only if the percentiles of generator and probe differ by more than the
threshold. Generator and probe waited alike only if both percentiles exceed the threshold.
"""
SHARE_BEYOND = {"p50": 0.5, "p95": 0.05, "p99": 0.01}
"""Share of the requests that lie above a percentile, by the name of the percentile.

If at least this share of the requests opened a connection, the time of opening connections may be
the reason why the percentile is high.
"""
ALIKE = 1.5
"""Generator and probe waited alike if their percentiles differ at most by this factor.

Both percentiles must also exceed APART_MS.
"""
STIRRING = 0.25
"""A generator that used less than this share of its CPUs in every second did not delay requests.

In the committed runs, each generator that delayed requests used at least 52 % of its CPUs in some
second.
"""
PROBED = 0.8
"""The probe's results are used only if at least this share of its due requests was answered.

The lowest share observed so far was 99 %. If few requests were due, BY_CHANCE may allow a lower
share.
"""
BY_CHANCE = 2.0
"""Standard deviations by which the number of answers to the probe may be lower than planned.

If the number of answers is within this tolerance, the probe's results are used even if the share of
answered requests is below PROBED. The number varies by chance, because the probe sends its requests
at random times.
"""
LAST_ANSWER_LATE_S = 0.5
"""Longest delay of an open load's last answer that the verdict does not mention, in seconds.

The delay is counted from the end of the load.
"""
BUSY_USERS = 0.9
"""The users limit an open load if they are busy for this share of the longest possible time.

`Users.are_the_limit` explains why users cannot be busy all the time.
"""
ROOM = 2.0
"""The lab recommends this many times as many users as would be busy at the offered rate.

The additional users are needed because response times rise under load.
"""
MOSTLY = 0.5
"""The pool of connections is the limit if it is exhausted in at least this share of the samples."""
CLEARLY_MORE = 2.0
"""The database is the limit only if it used this many times the CPU time of the generator.

The rule is for a database and a generator that share CPUs and together fill them.
"""

PREFIX = "evidence_"


@dataclass(frozen=True)
class Evidence:
    """The numbers of a trial from which the rules decide the trial's verdict.

    The server's CPU use is a share of the server's CPUs, and the generator's CPU use is a share of
    the generator's CPUs. The share is 1.0 if all of these CPUs were busy all the time. A group of
    values, such as `database`, is None if the group does not apply to the load.
    """

    server_share: float | None
    """CPU use of the server.

    None if the server's process, or the number of the server's CPUs, is unknown.
    """
    generator_share: float | None
    """CPU use of the generator, as a share of the CPUs that the generator can use.

    wrk with one thread, for example, can use only one core. None if the CPU use is unknown.
    """
    generator_peak_share: float | None
    """The generator's CPU use in the second in which it was highest.

    If the load is shorter than a second, this is the generator's mean CPU use.
    """
    disjoint: bool
    """True if server and generator shared no CPU."""
    offered_rps: float | None = None
    """The rate of an open load; None if the load was closed."""
    dropped: int = 0
    """Number of requests that an open load could not send in time."""
    database: DatabaseEvidence | None = None
    waits: tuple[Wait, ...] = ()
    """The percentiles of the response time that both generator and probe measured.

    Empty if the response times of generator and probe are not comparable.
    """
    throttled_share: float | None = 0.0
    """Share of the time for which a quota held the server back; None if unknown."""
    stolen_share: float = 0.0
    """Share of a machine's CPU time that the hypervisor took.

    If the trial ran on several machines, this is the highest share.
    """
    others_share: float = 0.0
    """Share of the machine's CPU time that programs outside the trial took."""
    ceiling_share: float | None = None
    """The load's mean rate as a share of the generator's ceiling.

    None if the ceiling is unknown, or if the load is a ramp.
    """
    failed_share: float = 0.0
    """Share of the requests that failed.

    Errors may be faster or slower than right answers, so the rate says little if many requests
    failed.
    """
    checks_failed_share: float = 0.0
    """Share of failures among the results of the checks in a user's script."""
    unit: str = "requests"
    """Unit of an open load's rate: requests, or iterations of several requests."""
    share: float = 1.0
    """Share of the server's CPU time that the lab's quota lets the server use.

    1 if the lab set no quota.
    """
    cores: float = 1.0
    """The server's quota in cores. Without a quota, this is the number of the server's CPUs.

    If two quotas apply, one set by the lab and one set outside the lab, this is the lower quota.
    """
    foreign_quota: bool = False
    """True if a quota from outside the lab allows the server fewer cores than the lab allows."""
    shared_quota: bool = False
    """True if the server's quota also applies to the generator."""
    generator_throttled_share: float = 0.0
    """Share of the time for which a quota held the generator back; 0 if unknown."""
    server_used_cores: float | None = None
    """CPU use of the server in cores, if the number of the server's CPUs is unknown.

    If the number of CPUs is known, this field is None, and `server_share` has the CPU use.
    """
    serial: Serial | None = None
    """Evidence of a load that sends one request at a time, because it has only one connection.

    None for any other load.
    """
    probing: Probing | None = None
    """Counts of the probe's requests.

    None if there was no probe, or if the load is a user's script.
    """
    unprobed: bool = False
    """True if the probe was left out because it would have loaded the server too much."""
    users: Users | None = None
    """Virtual users of an open k6 load; None for any other load."""
    connecting_share: float = 0.0
    """Share of the requests whose response time includes opening a connection."""
    network: Network | None = None
    """The network between several hosts; None if the whole trial ran on one machine."""
    ended_late_s: float = 0.0
    """Seconds from the end of an open load to the last answer."""

    @property
    def wrong_share(self) -> float:
        """The larger one of two shares: of failed requests, and of failed checks."""
        return max(self.failed_share, self.checks_failed_share)

    @property
    def limited(self) -> bool:
        """True if a quota gave the server less than all of the CPU time of the server's CPUs."""
        return self.share < 1 or self.foreign_quota

    @property
    def throttled(self) -> bool:
        """True if a quota measurably held the server back."""
        return (self.throttled_share or 0.0) >= THROTTLED

    @property
    def crowded(self) -> bool:
        """True if the generator was busy, at its ceiling, or held back by a quota."""
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
        """True if the server used up its CPUs or its quota.

        A server that a quota throttled has used up this quota. But in two cases throttling is
        ignored, and only the server's CPU use decides:

        - The lab set the quota. Such a quota has periods of only 10 ms, so it throttles even short
          bursts of CPU use.
        - Server and generator share the quota, so the generator may have used it up.
        """
        if (self.server_share or 0.0) >= SATURATED:
            return True
        quota_is_its_own = self.share == 1 and not self.shared_quota
        return quota_is_its_own and self.throttled

    @property
    def network_full(self) -> bool:
        """True if the network between the hosts was at its capacity."""
        return self.network is not None and self.network.share >= NETWORK_FULL

    @property
    def probe_starved(self) -> bool:
        """True if there was a probe, but too few of its requests were answered."""
        return self.probing is not None and self.probing.starved


@dataclass(frozen=True)
class Network:
    """Effect of the network between hosts on a load."""

    share: float
    """The load's bytes per second, as a share of the bytes per second that the network can move.

    A transfer before the run measures how many bytes per second the network can move.
    """
    lost_share: float
    """Share of TCP segments that were sent again."""
    round_trip_ms: float
    """Duration of a round trip to the server without load; 0 if it was not measured."""
    median_ms: float | None = None
    """Median response time; None if unknown."""

    @property
    def is_far(self) -> bool:
        """True if the round trip takes at least the share FAR of the median response time."""
        return bool(self.median_ms) and self.round_trip_ms >= FAR * (self.median_ms or 0.0)


@dataclass(frozen=True)
class Serial:
    """Evidence of a load that sends one request at a time.

    The next request starts only after the response to the previous request, so there is no queue. A
    cycle lasts from the start of a request to the start of the next request. So the rate is
    1 / (the time of one cycle).
    """

    cycle_us: float
    server_share: float
    """CPU use of the server as a share of one core.

    This is also the share of a cycle for which the server runs.
    """
    generator_share: float
    """CPU use of the generator as a share of one core."""
    idle: str | None
    """State of idle CPUs: `polling` (the lab kept them awake) or `system` (they may have slept).

    None if the state is unknown.
    """


@dataclass(frozen=True)
class Wait:
    """One percentile of the response time, measured by generator and probe at the same time."""

    name: str
    generator_ms: float
    probe_ms: float

    @property
    def longer(self) -> str:
        """The side that waited many times as long (MANY_TIMES): `generator` or `probe`.

        Empty if neither side waited many times as long as the other side.
        """
        less_ms, more_ms = sorted((self.generator_ms, self.probe_ms))
        if more_ms <= MANY_TIMES * less_ms or more_ms - less_ms <= APART_MS[self.name]:
            return ""
        return "generator" if more_ms == self.generator_ms else "probe"

    @property
    def alike(self) -> bool:
        """True if generator and probe waited about equally long, and both longer than APART_MS."""
        less_ms, more_ms = sorted((self.generator_ms, self.probe_ms))
        return less_ms > APART_MS[self.name] and more_ms <= ALIKE * less_ms


@dataclass(frozen=True)
class Probing:
    """Counts of the probe's requests: due during the load, sent, and failed."""

    due: int
    sent: int
    failed: int = 0

    @property
    def starved(self) -> bool:
        """True if so few requests were answered that the probe's results cannot be used."""
        answered = self.sent - self.failed
        may_miss = max((1 - PROBED) * self.due, BY_CHANCE * math.sqrt(self.due))
        return answered < self.due - may_miss or answered < LEAST_PROBED


@dataclass(frozen=True)
class Users:
    """Number of virtual users of an open load, and numbers that show how busy these users were."""

    count: int
    iteration_ms: float
    """Mean duration of a completed iteration."""
    rate_rps: float
    """Iterations due per second."""
    busy: float | None
    """Mean number of users that run an iteration at the same time; None if unknown."""

    @property
    def are_the_limit(self) -> bool:
        """True if the users were nearly as busy as users can be.

        After an iteration, a user waits until the next iteration is due. The wait lasts at most as
        long as the time between two iterations at the offered rate. So even if there are too few
        users, no user is busy all the time.
        """
        longest_share = self.iteration_ms / (self.iteration_ms + 1000 / self.rate_rps)
        return self.busy is not None and self.busy >= BUSY_USERS * longest_share * self.count

    @property
    def most_rps(self) -> float:
        """Highest rate, in iterations per second, that this number of users can reach."""
        return 1000 * self.count / self.iteration_ms

    @property
    def enough(self) -> int:
        """Number of users that would suffice for the offered rate."""
        busy_at_the_rate = self.rate_rps * self.iteration_ms / 1000
        return max(math.ceil(ROOM * busy_at_the_rate), self.count + 1)


@dataclass(frozen=True)
class DatabaseEvidence:
    """Numbers that show how busy the database and the pool of connections to it were."""

    share: float
    """CPU use of the database as a share of the CPU time that the database may use."""
    shared: bool
    """True if the database shares its CPUs with the generator."""
    pool_exhausted_share: float
    """Share of the samples in which all connections of the pool were in use."""
    limited: bool = False
    """True if the lab limits the database's CPU time by a quota.

    A database with such a quota cannot fill the CPUs that it shares with the generator.
    """


@dataclass(frozen=True)
class Verdict:
    """The rule that decided what limited a trial, and the evidence for it."""

    cause: Cause
    evidence: Evidence = field(repr=False)

    @property
    def limit(self) -> Limit:
        """The limit of the trial, which follows from the cause."""
        return self.cause.limit


# --- conversion of evidence to columns of trials.parquet, and back --------------------------------

GROUPS: dict[str, type] = {
    "database": DatabaseEvidence,
    "serial": Serial,
    "probing": Probing,
    "users": Users,
    "network": Network,
}
"""The type of each field of Evidence that holds a group of values, by the name of the field.

The value `database.share`, for example, is stored in the column `evidence_database_share`.
"""


Columns: TypeAlias = dict[str, float | bool | str | None]
"""Values by column.

A value is None if it is unknown, or if it belongs to a group that does not apply to the load.
"""


def columns_of(evidence: Evidence) -> Columns:
    """Return the evidence as columns of `trials.parquet`, by name.

    If a group of values does not apply to the load, all columns of this group are None.
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
    """Return the evidence in a trial's row.

    `row` has the columns of `columns_of`. The values may have the types that pandas gives them: a
    number may be a float, a flag may be 0 or 1, and an unknown value may be None, NaN or an empty
    text. Return None if the row has no evidence, as in older runs.
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
    """Return a stored value, converted to the type of the field `name` of the class `kind`.

    Return None if the value is unknown.
    """
    return _type_of(kind, name)(value) if _is_known(value) else None


@functools.cache
def _type_of(kind: type, name: str) -> type:
    """Return the type of the field `name` of a class, without None: float for `float | None`."""
    declared = typing.get_type_hints(kind)[name]
    choices = typing.get_args(declared) or (declared,)
    kinds: list[type] = [choice for choice in choices if choice is not type(None)]
    return kinds[0]
