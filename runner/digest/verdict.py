"""Who was the limit: the server, the load generator, the database, or nobody that is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runner.limits import CHECKS_FAILED, MOST_FAILED, POOL_EXHAUSTED, TAKEN, Limit, Verdict
from runner.measurement import LEAST_PROBED, PROBE_SHARE
from runner.model import core_words, number

SATURATED = 0.90  # a server above this share of its CPUs is the limit
CROWDED = 0.80  # a generator above this share of its CPUs distorts what it measures (as Hyperfoil's watchdog has it)
FULL_SECOND = 0.95  # a generator that used this share of its CPUs in some second may have set the rate in it,
HELD = 0.97
"""unless a server on a share of a core used this much of it over the whole load: that cost 3 % of the rate at most."""
THROTTLED = 0.01  # a server that its CPU quota held back for this share of the time has used up what it was given
NEAR_CEILING = 0.90
"""A rate above this share of what the generator reached against the fastest server may be the generator's,"""
HARDLY_IDLE = 0.60
"""where the generator also used this share of its CPUs: a calibration may have met a slow moment of the machine."""
NETWORK_FULL = 0.80
"""Share of a measured transfer's bytes per second from which on the network is the limit: headers, acknowledgements and
the way of a packet take the rest."""
LOSSY = 0.01
"""Share of TCP's segments that were sent again from which on waiting for them makes rate and response times."""
FAR = 0.5
"""Share of the median response time from which on the way to the server and back makes the rate of a closed load."""
STOLEN = 0.05
"""Share of the CPUs' time that the hypervisor took: it then makes the response times; a server may only look idle."""
OTHERS = 0.15
"""Share of the CPUs' time that programs took which are no part of the trial. The kernel books the machine's time by its
ticks, the trial's exactly, so that their difference is rough: docs/method.md has what was seen."""
MANY_TIMES = 5.0
APART_MS = {"p50": 1.0, "p95": 5.0, "p99": 5.0}
"""A generator whose percentile is MANY_TIMES the probe's, and this much above it, has measured the queue in itself."""
BEYOND = {"p50": 0.5, "p95": 0.05, "p99": 0.01}
"""Share of the requests that lie beyond a percentile: as many new connections can make it what it is."""
ALIKE = 1.5  # percentiles within this ratio, both above APART_MS, are one wait that generator and probe met alike
STIRRING = 0.25
"""A generator that stayed below this share of its CPUs in every second kept no request waiting: those that did, in the
committed runs, used 52 % or more."""
PROBED = 0.8  # share of the requests due of the probe that must have been answered to be a witness; seen at least: 99 %
BY_CHANCE = 2.0
"""Standard deviations by which the number of the probe's requests may miss what was due, as each has a random time."""
LATE_S = 0.5  # an open load whose last answer comes later than this after its end says so
BUSY_USERS = 0.9  # share of an open load's users that are busy on the average, from which on they are its limit
ROOM = 2.0  # times as many users as would be busy at an offered rate: response times rise under load
MOSTLY = 0.5  # a pool that is exhausted in this share of the samples is the limit
CLEARLY_MORE = 2.0
"""A database that uses this many times the generator's CPU time, on CPUs that both share, is what fills them."""
PACED = "the server made generator and probe wait alike with CPU to spare (a full thread, a lock, or what it waits for)"


@dataclass(frozen=True)
class Evidence:
    """CPU use over the load, as shares of what each side was given (1.0 = all of its CPUs busy), and who waited."""

    server_share: float | None  # none where it is not known which process the server is
    generator_share: float  # of the CPUs that it can use: wrk with one thread fills one core
    generator_peak_share: float  # highest share over one second, or over the whole load where that is shorter
    disjoint: bool  # whether server and generator shared no CPU
    offered_rps: float | None = None  # the rate of an open load; None where the load was closed
    dropped: int = 0  # requests of an open load that could not be sent in time
    database: DatabaseEvidence | None = None
    waits: tuple[Wait, ...] = ()  # percentiles that both generator and probe have
    throttled_share: float | None = 0.0  # of the time, by any quota; None if it is not known
    stolen_share: float = 0.0  # of the time of all CPUs, taken by the hypervisor
    others_share: float = 0.0  # of the time of all CPUs, taken by programs that are no part of the trial
    ceiling_share: float | None = None
    """The rate as a share of the generator's ceiling on this machine; None where that was not calibrated."""
    failed_share: float = 0.0  # of the requests: an error may be quicker, or slower, than the answer that was asked for
    checks_failed_share: float = 0.0  # of what a script checks of its answers by itself
    unit: str = "requests"  # what an open load begins at its rate: a script's iterations may be several requests
    share: float = 1.0
    """Of each of its CPUs that the server was given, by the lab's quota; its CPU use is a share of that."""
    cores: float = 1.0  # how much that is together, or the quota of `foreign_quota`
    foreign_quota: bool = False  # whether a quota that is not the lab's gave it less than that
    shared_quota: bool = False  # whether the generator is under a quota of the server's, too
    generator_throttled_share: float = 0.0  # of the time, by a quota; 0 if it is not known
    serial: Serial | None = None  # one connection: one request after the other
    probing: Probing | None = None  # how the probe fared; None where there was none, or where it is no witness
    unprobed: bool = False  # whether there was no probe, as it would have been too much for the server
    users: Users | None = None  # of an open load of k6
    connecting_share: float = 0.0  # of the requests whose response time has the making of a connection in it
    network: Network | None = None  # what is between several hosts; None on one machine
    ended_late_s: float = 0.0  # how long after the end of an open load its last answer came

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
        held = self.limited and (self.server_share or 0.0) >= HELD
        if self.generator_share > CROWDED or (self.generator_peak_share > FULL_SECOND and not held):
            return True
        if self.generator_throttled_share >= THROTTLED:
            return True
        near = self.ceiling_share is not None and self.ceiling_share >= NEAR_CEILING
        return near and self.generator_share >= HARDLY_IDLE

    @property
    def saturated(self) -> bool:
        """Whether the server had used up its CPUs or its quota.

        The lab's quota has periods of 10 ms, and holds back bursts too: it must be used up. So must
        a quota that the generator uses, too.
        """
        own = self.share == 1 and not self.shared_quota
        return (self.server_share or 0.0) >= SATURATED or (own and self.throttled)


@dataclass(frozen=True)
class Network:
    """What the network between hosts did to a load."""

    share: float  # what went over it, as a share of what it carried in a transfer
    lost_share: float  # of TCP's segments, sent again
    round_trip_ms: float  # the way to the server and back, without load; 0 where it was not measured
    median_ms: float | None = None  # the median response time, where it is known


@dataclass(frozen=True)
class Serial:
    """One request under way at any time: nothing queues, and the rate is 1 / (the time of one cycle)."""

    cycle_us: float
    server_share: float  # CPU use of the server as a share of one core, and so of the cycle; of the generator likewise
    generator_share: float
    idle: str | None  # what idle CPUs did


@dataclass(frozen=True)
class Wait:
    """One percentile of the response time, as generator and probe measured it at the same time."""

    name: str
    generator_ms: float
    probe_ms: float

    @property
    def longer(self) -> str:
        """Who waited many times as long as the other: `generator`, `probe`, or nobody."""
        less, more = sorted((self.generator_ms, self.probe_ms))
        if more <= MANY_TIMES * less or more - less <= APART_MS[self.name]:
            return ""
        return "generator" if more == self.generator_ms else "probe"

    @property
    def alike(self) -> bool:
        """Whether both waited, and about as long."""
        less, more = sorted((self.generator_ms, self.probe_ms))
        return less > APART_MS[self.name] and more <= ALIKE * less

    def __str__(self) -> str:
        generator, probe = number(self.generator_ms), number(self.probe_ms)
        return f"{self.name} {generator} ms to the generator, {probe} ms to the probe"


@dataclass(frozen=True)
class Probing:
    """How many requests of the probe were due within the load, how many of them it sent, and how many failed."""

    due: int
    sent: int
    failed: int = 0

    @property
    def starved(self) -> bool:
        """Whether too few were answered to say anything."""
        answered = self.sent - self.failed
        may_miss = max((1 - PROBED) * self.due, BY_CHANCE * math.sqrt(self.due))
        return answered < self.due - may_miss or answered < LEAST_PROBED

    def __str__(self) -> str:
        failed = f", and {self.failed} failed" if self.failed else ""
        return f"the probe sent {self.sent} of its {self.due} requests{failed}"


@dataclass(frozen=True)
class Users:
    """How busy the virtual users of an open load were."""

    count: int
    iteration_ms: float  # mean of the completed iterations
    rate_rps: float  # iterations that were to begin each second
    busy: float | None  # mean number of users with an iteration under way; None if not known

    @property
    def are_the_limit(self) -> bool:
        """Whether hardly a user was free, but for the time until the next iteration was to begin."""
        longest_share = self.iteration_ms / (self.iteration_ms + 1000 / self.rate_rps)
        return self.busy is not None and self.busy >= BUSY_USERS * longest_share * self.count

    def __str__(self) -> str:
        most_rps = 1000 * self.count / self.iteration_ms
        enough = math.ceil(ROOM * self.rate_rps * self.iteration_ms / 1000)
        users = f"{self.count:,} user{'s' * (self.count != 1)}"
        did = f"{users} / {number(self.iteration_ms)} ms = {number(most_rps)} iterations/s"
        return f"the users were the limit, {did}, and --vus {max(enough, self.count + 1)} would do"


@dataclass(frozen=True)
class DatabaseEvidence:
    """What the database and the connections to it say."""

    share: float  # CPU use as a share of the CPUs that it was given
    shared: bool  # whether those are the generator's
    pool_exhausted_share: float  # share of the samples in which every connection of the pool was in use
    limited: bool = False
    """Whether the lab gave it a part of its CPUs only, so that it cannot fill those that it shares."""


Rule = tuple[bool, Limit, str]
"""Whether it decides a trial, what the limit then was, and why; without a reason the numbers are it."""


def judge(evidence: Evidence) -> Verdict:
    """Return what the trial measured by the first rule that holds, with the numbers that say so.

    Two sides that are both saturated make it inconclusive: either may have set the rate.
    """
    said = _said(evidence)
    limit, reason = next((limit, reason) for holds, limit, reason in _rules(evidence) if holds)
    return Verdict(limit, f"{reason}: {said}" if reason else said)


def _rules(e: Evidence) -> Iterator[Rule]:
    """Yield all rules in their order.

    A rate of errors is nobody's limit: refusing may cost less than answering, or more.
    """
    yield e.wrong_share > MOST_FAILED, Limit.UNKNOWN, _failed(e)
    yield not e.disjoint, Limit.UNKNOWN, "server and generator shared a CPU"
    yield e.server_share is None, Limit.UNKNOWN, "the server's CPU use is not known"
    both_held = e.shared_quota and e.throttled and not e.saturated and e.share == 1
    yield both_held, Limit.UNKNOWN, "server and generator shared a CPU quota"
    if (serial := e.serial) is not None and not (e.limited and e.saturated):
        # Neither side can be full, as each waits for the other.
        yield e.wrong_share > 0, Limit.UNKNOWN, _failed(e)
        yield from _robbed(e)
        cycle = f"a cycle took {serial.cycle_us:.1f} µs, of which the CPU time of both sides explains"
        slept = "" if serial.idle == "polling" else "; idle CPUs slept, and their waking is part of it"
        explained = f"{100 * (serial.server_share + serial.generator_share):.0f} %{slept}"
        yield True, Limit.SERIAL, f"one request under way: {cycle} {explained}"
    stored = next((rule for rule in _of_database(e, e.database) if rule[0]), None) if e.database else None
    full = e.network is not None and e.network.share >= NETWORK_FULL
    apart = e.database is not None and (e.database.limited or not e.database.shared)
    yield e.saturated and (e.crowded or stored is not None), Limit.UNKNOWN, "both sides were busy"
    a_side = e.saturated or e.crowded or stored is not None
    yield full and a_side, Limit.UNKNOWN, "the network between the hosts was full, and a side was busy"
    yield e.crowded and stored is not None and apart, Limit.UNKNOWN, "generator and database were both busy"
    yield e.saturated, Limit.SERVER, ""
    yield e.crowded, Limit.GENERATOR, ""
    yield full, Limit.NETWORK, "the network between the hosts was full"
    if stored:
        yield stored
    yield from _robbed(e)
    yield from _where_nobody_was_full(e)


def _of_database(e: Evidence, database: DatabaseEvidence) -> Iterator[Rule]:
    """Yield the rules by which a database, or a pool of connections to it, was full."""
    busy = database.share >= SATURATED
    yield database.limited and busy, Limit.DATABASE, "the database used up its share of the CPUs"
    if not database.limited and database.shared and database.share + e.generator_share >= SATURATED:
        filled = database.share >= CLEARLY_MORE * e.generator_share
        yield filled, Limit.DATABASE, "the database filled the CPUs that it shares with the generator"
        yield True, Limit.UNKNOWN, "database and generator together filled the CPUs that they share"
    yield not database.shared and busy, Limit.DATABASE, "the database was busy"
    # A server that is held back by its share holds its connections meanwhile: the pool is then not the limit.
    held_back = e.limited and e.saturated
    yield database.pool_exhausted_share >= MOSTLY and not held_back, Limit.POOL, POOL_EXHAUSTED


def _where_nobody_was_full(e: Evidence) -> Iterator[Rule]:
    """Yield the rules for a load under which CPUs, network and database had room."""
    offered, starved = e.offered_rps is not None, e.probing is not None and e.probing.starved
    if (network := e.network) is not None:
        lost = f"the network between the hosts lost {100 * network.lost_share:.1f} % of what was sent"
        yield network.lost_share >= LOSSY, Limit.NETWORK, lost
        far = not offered and bool(network.median_ms) and network.round_trip_ms >= FAR * (network.median_ms or 0.0)
        way = f"the way to the server and back took {number(network.round_trip_ms)} ms of each request"
        yield far, Limit.NETWORK, way
    contradiction, few = "generator and probe contradict each other", f"{e.probing}, too few for a second witness"
    queued = [wait for wait in e.waits if wait.longer == "generator"]
    if queued:
        # The queue is the generator's where the generator had something to do, and the probe was served. Where
        # connections are not reused, the time may have gone by in the kernel: a burst that a backlog does not hold.
        longer = f"{contradiction}, the generator waited longer"
        accepting = all(BEYOND[wait.name] <= e.connecting_share for wait in queued)
        yield starved, Limit.UNKNOWN, few
        yield e.generator_peak_share < STIRRING, Limit.UNKNOWN, f"{longer} and had little to do"
        yield accepting, Limit.UNKNOWN, f"{longer}, perhaps to be accepted"
        yield True, Limit.GENERATOR, "requests waited in the generator, not in the server"
    short_of_users = e.users is not None and e.users.are_the_limit
    yield e.dropped > 0 and short_of_users, Limit.UNKNOWN, f"{e.users}"
    yield e.dropped > 0, Limit.UNKNOWN, f"the rate was not sustained, {e.dropped} {e.unit} were dropped"
    yield e.wrong_share > 0, Limit.UNKNOWN, _failed(e)
    probes = any(wait.longer == "probe" for wait in e.waits)
    yield probes, Limit.UNKNOWN, f"{contradiction}, the probe waited longer"
    yield offered and starved, Limit.UNKNOWN, few
    yield offered, Limit.NONE, f"{e.offered_rps or 0:.10g} {e.unit}/s were sustained"
    yield any(wait.alike for wait in e.waits), Limit.UNKNOWN, PACED
    yield True, Limit.UNKNOWN, "neither side was busy"


def _robbed(e: Evidence) -> Iterator[Rule]:
    """Yield the rule where others took much of the CPUs' time."""
    who = _much(e.stolen_share, e.others_share)
    yield bool(who), Limit.UNKNOWN, f"{' and '.join(who)} {TAKEN}"


def disturbance(evidence: Evidence) -> str:
    """Return who took so much CPU away that a trial that could have decided something is to be repeated; else nothing.

    One whose generator was the limit decides no more in a calm moment, nor does one that is undecided
    anyway; but a server whose CPU others took may seem to be no limit only for that.
    """
    calm = judge(replace(evidence, stolen_share=0.0, others_share=0.0)).limit
    hidden = calm is Limit.UNKNOWN and evidence.others_share >= OTHERS
    known = calm not in (Limit.GENERATOR, Limit.UNKNOWN)
    return takers(evidence.stolen_share, evidence.others_share) if known or hidden else ""


def _much(stolen_share: float, others_share: float) -> dict[str, float]:
    """Return who else took much of the CPUs' time, and which share."""
    others = (("the hypervisor", stolen_share, STOLEN), ("other programs", others_share, OTHERS))
    return {who: share for who, share, much in others if share >= much}


def takers(stolen_share: float, others_share: float) -> str:
    """Return the same in words; empty where that was little."""
    much = _much(stolen_share, others_share).items()
    return ", ".join(f"{who} took {100 * share:.0f} % of the CPUs' time" for who, share in much)


def _failed(e: Evidence) -> str:
    what = CHECKS_FAILED if e.checks_failed_share > e.failed_share else "of the requests failed"
    return f"{number(100 * e.wrong_share)} % {what}"


def _said(e: Evidence) -> str:
    """Return the numbers behind a verdict, those that are always there first."""
    generator, peak = 100 * e.generator_share, 100 * e.generator_peak_share
    whose = f"its {core_words(e.cores)}" if e.limited else "its CPUs"
    whose += " (a quota that is not the lab's)" * e.foreign_quota
    parts = [] if e.server_share is None else [f"server used {100 * e.server_share:.0f} % of {whose}"]
    parts += [f"generator {generator:.0f} % of its own (peak {peak:.0f} %)", *map(str, e.waits)]
    if (database := e.database) is not None:
        its = "of its share" if database.limited else "of the same" if database.shared else "of its own"
        parts.append(f"database {100 * database.share:.0f} % {its}")
        parts.append(f"pool exhausted {100 * database.pool_exhausted_share:.0f} % of the time")
    if e.ceiling_share is not None and e.ceiling_share >= CROWDED:
        parts.append(f"{100 * e.ceiling_share:.0f} % of the generator's ceiling")
    if e.ended_late_s > LATE_S:
        parts.append(f"the last answer came {number(e.ended_late_s)} s after the load's end")
    if (network := e.network) is not None:
        lost = f", {100 * network.lost_share:.2f} % of the segments sent again"
        parts.append(
            f"network {100 * network.share:.0f} % of what it carries{lost * (network.lost_share >= LOSSY / 100)}"
        )
    if e.unprobed:
        parts.append(f"no second witness: the probe would have been more than {100 * PROBE_SHARE:g} % of the load")
    if e.throttled:
        held_pct = 100 * (e.throttled_share or 0.0)
        parts.append(f"its quota held the server back {held_pct:.0f} % of the time")
    if e.generator_throttled_share >= THROTTLED:
        held_pct = 100 * e.generator_throttled_share
        parts.append(f"a quota held the generator back {held_pct:.0f} % of the time")
    if e.throttled_share is None and e.server_share is not None:
        parts.append("whether a CPU quota held the server back is not known")
    return ", ".join(filter(None, [*parts, takers(e.stolen_share, e.others_share)]))
