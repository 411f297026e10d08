"""Write the sentence that explains a verdict. No other module writes such sentences."""

from __future__ import annotations

from collections.abc import Callable

from runner.measurement import PROBE_SHARE
from runner.model import core_words, short_number
from runner.verdict.evidence import (
    CROWDED,
    LAST_ANSWER_LATE_S,
    LOSSY,
    OTHERS,
    STOLEN,
    THROTTLED,
    Evidence,
    Probing,
    Users,
    Verdict,
    Wait,
)
from runner.verdict.limits import Cause


def reason(verdict: Verdict) -> str:
    """Return a sentence that says why a trial has its limit.

    The sentence contains the rule that decided the limit, and then the numbers of the evidence.
    """
    rule = rule_words(verdict.cause, verdict.evidence)
    numbers = _numbers(verdict.evidence)
    return ": ".join(part for part in (rule, numbers) if part)


def rule_words(cause: Cause, evidence: Evidence) -> str:
    """Return a text that describes the rule that decided the verdict of a trial.

    `reason` puts this text before the numbers of the evidence. The text is empty if these numbers
    already make the rule clear.
    """
    if cause in _FIXED:
        return _FIXED[cause]
    return _WITH_NUMBERS[cause](evidence)


def brief_words(cause: Cause) -> str:
    """Return a few words without numbers that describe a rule, for texts with little space."""
    return _BRIEFLY[cause]


def takers(stolen_share: float, others_share: float) -> str:
    """Return a text that says who took much CPU time away, and how much.

    The text names the hypervisor, other programs, or both. If neither took much CPU time, the text
    is empty.
    """
    much = _much(stolen_share, others_share)
    return ", ".join(
        f"{who} took {100 * share:.0f} % of the CPUs' time" for who, share in much.items()
    )


def _much(stolen_share: float, others_share: float) -> dict[str, float]:
    """Return the shares of CPU time that the hypervisor and other programs took, by name.

    Only large shares are returned, so the result may be empty.
    """
    much = {}
    if stolen_share >= STOLEN:
        much["the hypervisor"] = stolen_share
    if others_share >= OTHERS:
        much["other programs"] = others_share
    return much


# --- texts of the rules: first those that contain numbers of the evidence -------------------------


def _requests_failed(evidence: Evidence) -> str:
    return f"{short_number(100 * evidence.failed_share)} % of the requests failed"


def _checks_failed(evidence: Evidence) -> str:
    return f"{short_number(100 * evidence.checks_failed_share)} % of the script's checks failed"


def _one_request(evidence: Evidence) -> str:
    serial = evidence.serial
    assert serial is not None
    explained_pct = 100 * (serial.server_share + serial.generator_share)
    sentence = (
        f"one request under way: a cycle took {serial.cycle_us:.1f} µs,"
        f" of which the CPU time of both sides explains {explained_pct:.0f} %"
    )
    if serial.idle == "polling":
        return sentence
    return f"{sentence}; idle CPUs slept, and the cycle includes the time to wake them"


def _cpu_taken(evidence: Evidence) -> str:
    who = " and ".join(_much(evidence.stolen_share, evidence.others_share))
    return f"{who} took CPU time away"


def _network_lossy(evidence: Evidence) -> str:
    network = evidence.network
    assert network is not None
    lost_pct = 100 * network.lost_share
    return f"the network between the hosts lost {lost_pct:.1f} % of what was sent"


def _network_far(evidence: Evidence) -> str:
    network = evidence.network
    assert network is not None
    way_ms = short_number(network.round_trip_ms)
    return f"the way to the server and back took {way_ms} ms of each request"


def _probe_starved(evidence: Evidence) -> str:
    assert evidence.probing is not None
    return f"{probing_words(evidence.probing)}, too few for a second witness"


def _no_cpu_known(evidence: Evidence) -> str:
    said = "no CPU use is known, neither the server's nor the generator's"
    if evidence.offered_rps is None:
        return f"{said}, so either may have been the limit"
    if evidence.dropped:
        dropped = f"{evidence.dropped:,} iterations were dropped"
        return f"{said}, and the rate was not sustained, {dropped}"
    return f"{said}; the number of users was no limit, because no iteration was dropped"


def _too_few_users(evidence: Evidence) -> str:
    assert evidence.users is not None
    return users_words(evidence.users)


def _rate_not_sustained(evidence: Evidence) -> str:
    return f"the rate was not sustained, {evidence.dropped:,} {evidence.unit} were dropped"


def _rate_sustained(evidence: Evidence) -> str:
    return f"{evidence.offered_rps or 0:,.10g} {evidence.unit}/s were sustained"


def probing_words(probing: Probing) -> str:
    """Return the part of a sentence that says how many of the due requests the probe sent."""
    failed = f", and {probing.failed} failed" if probing.failed else ""
    return f"the probe sent {probing.sent} of its {probing.due} requests{failed}"


def users_words(users: Users) -> str:
    """Return the part of a sentence that says that the users were the limit.

    The text also says how many users would be enough.
    """
    noun = "user" if users.count == 1 else "users"
    iteration = short_number(users.iteration_ms)
    rate = short_number(users.most_rps)
    did = f"{users.count:,} {noun} / {iteration} ms = {rate} iterations/s"
    return f"the users were the limit, {did}; --vus {users.enough} is enough"


_CONTRADICTION = "generator and probe contradict each other"
_GENERATOR_WAITED = f"{_CONTRADICTION}, the generator waited longer"
_WAITED_ALIKE = "the server made generator and probe wait alike, although it had CPU to spare"

_FIXED: dict[Cause, str] = {
    Cause.CPUS_SHARED: "server and generator shared a CPU",
    Cause.SERVER_CPU_UNKNOWN: "the server's CPU use is not known",
    Cause.GENERATOR_CPU_UNKNOWN: "the generator's CPU use is not known",
    Cause.QUOTA_SHARED: "server and generator shared a CPU quota",
    Cause.BOTH_SIDES_BUSY: "both sides were busy",
    Cause.NETWORK_FULL_AND_A_SIDE_BUSY: (
        "the network between the hosts was full, and a side was busy"
    ),
    Cause.GENERATOR_AND_DATABASE_BUSY: "generator and database were both busy",
    Cause.SERVER_BUSY: "",
    Cause.GENERATOR_BUSY: "",
    Cause.NETWORK_FULL: "the network between the hosts was full",
    Cause.DATABASE_USED_ITS_QUOTA: "the database used up its share of the CPUs",
    Cause.DATABASE_FILLED_SHARED_CPUS: (
        "the database filled the CPUs that it shares with the generator"
    ),
    Cause.DATABASE_AND_GENERATOR_FILLED_CPUS: (
        "database and generator together filled the CPUs that they share"
    ),
    Cause.DATABASE_BUSY: "the database was busy",
    Cause.POOL_EXHAUSTED: "the pool of connections was exhausted",
    Cause.WAITED_IN_AN_IDLE_GENERATOR: f"{_GENERATOR_WAITED} and had little to do",
    Cause.WAITED_TO_BE_ACCEPTED: f"{_GENERATOR_WAITED}, perhaps to be accepted",
    Cause.WAITED_IN_THE_GENERATOR: "requests waited in the generator, not in the server",
    Cause.PROBE_WAITED_LONGER: f"{_CONTRADICTION}, the probe waited longer",
    Cause.BOTH_WAITED_ALIKE: (
        f"{_WAITED_ALIKE} (perhaps because of a full thread, a lock, or a slow service)"
    ),
    Cause.NEITHER_SIDE_BUSY: "neither side was busy",
}
"""The texts of the rules whose texts contain no number, by cause.

`rule_words` explains why some texts are empty.
"""

_WITH_NUMBERS: dict[Cause, Callable[[Evidence], str]] = {
    Cause.REQUESTS_FAILED: _requests_failed,
    Cause.CHECKS_FAILED: _checks_failed,
    Cause.ONE_REQUEST: _one_request,
    Cause.CPU_TAKEN: _cpu_taken,
    Cause.NETWORK_LOSSY: _network_lossy,
    Cause.NETWORK_FAR: _network_far,
    Cause.PROBE_STARVED: _probe_starved,
    Cause.TOO_FEW_USERS: _too_few_users,
    Cause.RATE_NOT_SUSTAINED: _rate_not_sustained,
    Cause.RATE_SUSTAINED: _rate_sustained,
    Cause.NO_CPU_KNOWN: _no_cpu_known,
}

_BRIEFLY: dict[Cause, str] = {
    **_FIXED,
    Cause.NETWORK_FULL_AND_A_SIDE_BUSY: "the network between the hosts was full",
    Cause.WAITED_IN_AN_IDLE_GENERATOR: _CONTRADICTION,
    Cause.WAITED_TO_BE_ACCEPTED: _CONTRADICTION,
    Cause.PROBE_WAITED_LONGER: _CONTRADICTION,
    Cause.BOTH_WAITED_ALIKE: _WAITED_ALIKE,
    Cause.REQUESTS_FAILED: "requests failed",
    Cause.CHECKS_FAILED: "checks of the script failed",
    Cause.ONE_REQUEST: "one request under way",
    Cause.CPU_TAKEN: "others took CPU time away",
    Cause.NETWORK_LOSSY: "the network between the hosts lost packets",
    Cause.NETWORK_FAR: "the network round trip took most of the response time",
    Cause.PROBE_STARVED: "too few of the probe's requests were answered",
    Cause.TOO_FEW_USERS: "the users were the limit",
    Cause.RATE_NOT_SUSTAINED: "the rate was not sustained",
    Cause.RATE_SUSTAINED: "the rate was sustained",
    Cause.NO_CPU_KNOWN: "no CPU use is known",
}


# --- the numbers behind a verdict -----------------------------------------------------------------


def _numbers(evidence: Evidence) -> str:
    """Return a text with the numbers behind a verdict.

    The text begins with the CPU use of server and generator, if the CPU use is known.
    """
    parts = [
        _of_the_server(evidence),
        _of_the_generator(evidence),
        *(_of_a_wait(wait) for wait in evidence.waits),
        *_of_the_database(evidence),
        _of_the_ceiling(evidence),
        _of_the_end(evidence),
        _of_the_network(evidence),
        _of_the_second_witness(evidence),
        *_of_the_quotas(evidence),
        takers(evidence.stolen_share, evidence.others_share),
    ]
    return ", ".join(part for part in parts if part)


def _of_the_server(evidence: Evidence) -> str:
    if evidence.server_used_cores is not None:
        cores = short_number(evidence.server_used_cores)
        return f"the server used {cores} CPUs of an unknown number that it was given"
    if evidence.server_share is None:
        return ""
    given = core_words(evidence.cores) if evidence.limited else "CPUs"
    source = " (a quota that is not the lab's)" if evidence.foreign_quota else ""
    return f"server used {100 * evidence.server_share:.0f} % of its {given}{source}"


def _of_the_generator(evidence: Evidence) -> str:
    if evidence.generator_share is None or evidence.generator_peak_share is None:
        return ""
    mean_pct = 100 * evidence.generator_share
    peak_pct = 100 * evidence.generator_peak_share
    return f"generator {mean_pct:.0f} % of its own (peak {peak_pct:.0f} %)"


def _of_a_wait(wait: Wait) -> str:
    generator_ms = short_number(wait.generator_ms)
    probe_ms = short_number(wait.probe_ms)
    return f"{wait.name} was {generator_ms} ms for the generator and {probe_ms} ms for the probe"


def _of_the_database(evidence: Evidence) -> list[str]:
    database = evidence.database
    if database is None:
        return []
    if database.limited:
        whose = "of its quota"
    elif database.shared:
        whose = "of the CPUs that it shares with the generator"
    else:
        whose = "of its own CPUs"
    return [
        f"database used {100 * database.share:.0f} % {whose}",
        "the pool of connections was exhausted for "
        f"{100 * database.pool_exhausted_share:.0f} % of the time",
    ]


def _of_the_ceiling(evidence: Evidence) -> str:
    if evidence.ceiling_share is None or evidence.ceiling_share < CROWDED:
        return ""
    return f"the rate was {100 * evidence.ceiling_share:.0f} % of the generator's ceiling"


def _of_the_end(evidence: Evidence) -> str:
    if evidence.ended_late_s <= LAST_ANSWER_LATE_S:
        return ""
    return f"the last answer came {short_number(evidence.ended_late_s)} s after the load's end"


def _of_the_network(evidence: Evidence) -> str:
    network = evidence.network
    if network is None:
        return ""
    carried = f"the load used {100 * network.share:.0f} % of the network's capacity"
    if network.lost_share < LOSSY / 100:
        return carried
    return f"{carried}, {100 * network.lost_share:.2f} % of the TCP segments were sent again"


def _of_the_second_witness(evidence: Evidence) -> str:
    if not evidence.unprobed:
        return ""
    most_pct = f"{100 * PROBE_SHARE:g}"
    return f"no second witness: the probe would have been more than {most_pct} % of the load"


def _of_the_quotas(evidence: Evidence) -> list[str]:
    parts = []
    if evidence.throttled:
        held_pct = 100 * (evidence.throttled_share or 0.0)
        parts.append(f"its quota held the server back {held_pct:.0f} % of the time")
    if evidence.generator_throttled_share >= THROTTLED:
        held_pct = 100 * evidence.generator_throttled_share
        parts.append(f"a quota held the generator back {held_pct:.0f} % of the time")
    if evidence.throttled_share is None and evidence.server_share is not None:
        parts.append("it is not known whether a CPU quota held the server back")
    return parts
