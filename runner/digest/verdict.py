"""The rules that decide what limited a trial, for example the server or the load generator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runner.verdict.evidence import (
    CLEARLY_MORE,
    LOSSY,
    MOSTLY,
    OTHERS,
    SATURATED,
    SHARE_BEYOND,
    STIRRING,
    STOLEN,
    DatabaseEvidence,
    Evidence,
    Verdict,
    Wait,
)
from runner.verdict.limits import MOST_FAILED, Cause, Limit
from runner.verdict.words import takers


@dataclass(frozen=True)
class Rule:
    """A rule applied to a trial: `holds` says whether the trial meets the rule's condition.

    The first rule that holds gives the trial its cause.
    """

    holds: bool
    cause: Cause


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict of a trial. The first rule that holds gives the verdict's cause.

    If server and generator are both saturated, the limit is unknown, because either the server or
    the generator may have limited the rate.
    """
    cause = next(rule.cause for rule in _rules(evidence) if rule.holds)
    return Verdict(cause, evidence)


def disturbance(evidence: Evidence) -> str:
    """Return a text that names who took so much CPU time that the trial must be repeated.

    The text is empty if the trial need not be repeated.

    The trial is judged a second time, as if no CPU time had been taken. If this judgement says that
    the limit is the generator, or unknown, the trial is not repeated, because a repetition would
    not change the verdict. There is one exception: if the limit is unknown and other programs took
    much CPU time, the trial is repeated, because without these programs the server might have been
    busier, and the limit known.
    """
    calm = judge(replace(evidence, stolen_share=0.0, others_share=0.0)).limit
    hidden = calm is Limit.UNKNOWN and evidence.others_share >= OTHERS
    known = calm not in (Limit.GENERATOR, Limit.UNKNOWN)
    if not known and not hidden:
        return ""
    return takers(evidence.stolen_share, evidence.others_share)


def _rules(e: Evidence) -> Iterator[Rule]:
    """Yield all rules in order of priority."""
    # A failed request may take more or less time than a successful request. So if the rate includes
    # many failed requests, the rate does not show what limited the trial.
    yield Rule(e.wrong_share > MOST_FAILED, _what_failed(e))
    yield Rule(not e.disjoint, Cause.CPUS_SHARED)
    server_is_unknown = e.server_share is None and e.server_used_cores is None
    yield Rule(server_is_unknown and e.generator_share is None, Cause.NO_CPU_KNOWN)
    yield Rule(server_is_unknown, Cause.SERVER_CPU_UNKNOWN)
    yield Rule(e.generator_share is None, Cause.GENERATOR_CPU_UNKNOWN)
    one_quota_held_both = e.shared_quota and e.throttled and not e.saturated and e.share == 1
    yield Rule(one_quota_held_both, Cause.QUOTA_SHARED)
    if e.serial is not None and not (e.limited and e.saturated):
        # One connection: server and generator wait for each other in turn, so neither can use up
        # its CPUs, and the rules about full CPUs do not apply.
        yield Rule(e.wrong_share > 0, _what_failed(e))
        yield _cpu_taken(e)
        yield Rule(True, Cause.ONE_REQUEST)
    yield from _of_full_sides(e)
    yield _cpu_taken(e)
    yield from _of_a_lossy_or_long_way(e)
    yield from _of_contradicting_witnesses(e)
    yield from _of_a_load_with_room(e)


def _of_full_sides(e: Evidence) -> Iterator[Rule]:
    """Yield the rules for a side at its capacity: server, generator, database or network."""
    database = _full_database(e)
    database_is_apart = e.database is not None and (e.database.limited or not e.database.shared)
    a_side_is_full = e.saturated or e.crowded or database is not None
    other_than_server = e.crowded or database is not None
    yield Rule(e.saturated and other_than_server, Cause.BOTH_SIDES_BUSY)
    yield Rule(e.network_full and a_side_is_full, Cause.NETWORK_FULL_AND_A_SIDE_BUSY)
    both_clients = e.crowded and database is not None and database_is_apart
    yield Rule(both_clients, Cause.GENERATOR_AND_DATABASE_BUSY)
    yield Rule(e.saturated, Cause.SERVER_BUSY)
    yield Rule(e.crowded, Cause.GENERATOR_BUSY)
    yield Rule(e.network_full, Cause.NETWORK_FULL)
    if database is not None:
        yield Rule(True, database)


def _full_database(e: Evidence) -> Cause | None:
    """Return the cause that says that the database or the connection pool was at its capacity.

    If both had capacity left, return None.
    """
    if e.database is None:
        return None
    return next((rule.cause for rule in _of_database(e, e.database) if rule.holds), None)


def _of_database(e: Evidence, database: DatabaseEvidence) -> Iterator[Rule]:
    """Yield the rules for the database and its connection pool."""
    busy = database.share >= SATURATED
    yield Rule(database.limited and busy, Cause.DATABASE_USED_ITS_QUOTA)
    generator_share = e.generator_share or 0.0
    together = database.share + generator_share
    if not database.limited and database.shared and together >= SATURATED:
        mostly_its_own = database.share >= CLEARLY_MORE * generator_share
        yield Rule(mostly_its_own, Cause.DATABASE_FILLED_SHARED_CPUS)
        yield Rule(True, Cause.DATABASE_AND_GENERATOR_FILLED_CPUS)
    yield Rule(not database.shared and busy, Cause.DATABASE_BUSY)
    # While a quota holds the server back, the server keeps the connections of its pool in use. In
    # this case an exhausted pool is a consequence of the quota, and not the limit.
    held_back = e.limited and e.saturated
    exhausted = database.pool_exhausted_share >= MOSTLY
    yield Rule(exhausted and not held_back, Cause.POOL_EXHAUSTED)


def _of_a_lossy_or_long_way(e: Evidence) -> Iterator[Rule]:
    """Yield the rules for a network between hosts that lost packets or had a long delay.

    These rules decide only if server, generator, database and network all had capacity left.
    """
    if e.network is None:
        return
    yield Rule(e.network.lost_share >= LOSSY, Cause.NETWORK_LOSSY)
    is_closed = e.offered_rps is None
    yield Rule(is_closed and e.network.is_far, Cause.NETWORK_FAR)


def _of_contradicting_witnesses(e: Evidence) -> Iterator[Rule]:
    """Yield the rules for a generator that waited many times as long as the probe.

    Generator and probe are two witnesses of the response times: they waited for the same server at
    the same time. So if the generator was busy and the probe got its answers, the requests must
    have queued in the generator. There is another explanation if connections were not reused: a
    burst of new connections may have overflowed the backlog, so that connections waited in the
    kernel until the server accepted them.
    """
    queued = [wait for wait in e.waits if wait.longer == "generator"]
    if not queued:
        return
    yield Rule(e.probe_starved, Cause.PROBE_STARVED)
    yield Rule((e.generator_peak_share or 0.0) < STIRRING, Cause.WAITED_IN_AN_IDLE_GENERATOR)
    yield Rule(_were_perhaps_accepted_late(queued, e), Cause.WAITED_TO_BE_ACCEPTED)
    yield Rule(True, Cause.WAITED_IN_THE_GENERATOR)


def _were_perhaps_accepted_late(queued: list[Wait], e: Evidence) -> bool:
    """Return whether waiting for new connections can explain all long waits of the generator.

    `queued` has the percentiles at which the generator waited longer than the probe. A percentile
    can be explained if the share of requests beyond it is at most the share of requests that opened
    a connection.
    """
    return all(SHARE_BEYOND[wait.name] <= e.connecting_share for wait in queued)


def _of_a_load_with_room(e: Evidence) -> Iterator[Rule]:
    """Yield the rules for a load under which CPUs, network and database had capacity left."""
    offered = e.offered_rps is not None
    short_of_users = e.users is not None and e.users.are_the_limit
    yield Rule(e.dropped > 0 and short_of_users, Cause.TOO_FEW_USERS)
    yield Rule(e.dropped > 0, Cause.RATE_NOT_SUSTAINED)
    yield Rule(e.wrong_share > 0, _what_failed(e))
    probe_waited = any(wait.longer == "probe" for wait in e.waits)
    yield Rule(probe_waited, Cause.PROBE_WAITED_LONGER)
    yield Rule(offered and e.probe_starved, Cause.PROBE_STARVED)
    yield Rule(offered, Cause.RATE_SUSTAINED)
    yield Rule(any(wait.alike for wait in e.waits), Cause.BOTH_WAITED_ALIKE)
    yield Rule(True, Cause.NEITHER_SIDE_BUSY)


def _what_failed(e: Evidence) -> Cause:
    """Return the cause for a load with failed requests or failed checks.

    If the share of failed checks is larger than the share of failed requests, the cause is
    CHECKS_FAILED. Otherwise it is REQUESTS_FAILED.
    """
    if e.checks_failed_share > e.failed_share:
        return Cause.CHECKS_FAILED
    return Cause.REQUESTS_FAILED


def _cpu_taken(e: Evidence) -> Rule:
    """Return the rule for a trial from which the hypervisor or other programs took CPU time."""
    return Rule(e.stolen_share >= STOLEN or e.others_share >= OTHERS, Cause.CPU_TAKEN)
