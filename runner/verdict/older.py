"""Read the verdicts of older runs, which stored sentences instead of causes.

Older runs have only the columns `verdict` and `verdict_reason`. No other module parses sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.verdict.limits import Cause, Limit

_RULES: tuple[tuple[str, Cause], ...] = (
    (r"[\d.,]+ % of the script's checks failed", Cause.CHECKS_FAILED),
    (r"[\d.,]+ % of the requests failed", Cause.REQUESTS_FAILED),
    (r"server and generator shared a CPU quota", Cause.QUOTA_SHARED),
    (r"server and generator shared a CPU", Cause.CPUS_SHARED),
    (r"no CPU use is known", Cause.NO_CPU_KNOWN),
    (r"the server's CPU use is not known", Cause.SERVER_CPU_UNKNOWN),
    (r"the generator's CPU use is not known", Cause.GENERATOR_CPU_UNKNOWN),
    (r"one request under way", Cause.ONE_REQUEST),
    (r"both sides were busy", Cause.BOTH_SIDES_BUSY),
    (
        r"the network between the hosts was full, and a side was busy",
        Cause.NETWORK_FULL_AND_A_SIDE_BUSY,
    ),
    (r"the network between the hosts was full", Cause.NETWORK_FULL),
    (r"the network between the hosts lost ", Cause.NETWORK_LOSSY),
    (r"the way to the server and back took ", Cause.NETWORK_FAR),
    (r"generator and database were both busy", Cause.GENERATOR_AND_DATABASE_BUSY),
    (r"the database used up its share of the CPUs", Cause.DATABASE_USED_ITS_QUOTA),
    (
        r"the database filled the CPUs that it shares with the generator",
        Cause.DATABASE_FILLED_SHARED_CPUS,
    ),
    (
        r"database and generator together filled the CPUs that they share",
        Cause.DATABASE_AND_GENERATOR_FILLED_CPUS,
    ),
    (r"the database was busy", Cause.DATABASE_BUSY),
    (r"the pool of connections was exhausted", Cause.POOL_EXHAUSTED),
    (r"(the hypervisor|other programs).* took CPU time away", Cause.CPU_TAKEN),
    (r"the probe sent [^:]*too few for a second witness", Cause.PROBE_STARVED),
    (r"[^:]*the generator waited longer and had little to do", Cause.WAITED_IN_AN_IDLE_GENERATOR),
    (r"[^:]*the generator waited longer, perhaps to be accepted", Cause.WAITED_TO_BE_ACCEPTED),
    (r"[^:]*the probe waited longer", Cause.PROBE_WAITED_LONGER),
    (r"requests waited in the generator, not in the server", Cause.WAITED_IN_THE_GENERATOR),
    (r"the users were the limit, ", Cause.TOO_FEW_USERS),
    (r"the rate was not sustained, ", Cause.RATE_NOT_SUSTAINED),
    (r"[\d.,e+]+ (requests|iterations)/s were sustained", Cause.RATE_SUSTAINED),
    (r"the server made generator and probe wait alike", Cause.BOTH_WAITED_ALIKE),
    (r"neither side was busy", Cause.NEITHER_SIDE_BUSY),
)
"""Pairs of a pattern and the cause of a verdict whose stored reason begins with the pattern.

If several patterns match a reason, the first pattern decides. So a longer pattern stands before a
shorter pattern that begins in the same way.
"""

_NUMBERS_ALONE: dict[Limit, Cause] = {
    Limit.SERVER: Cause.SERVER_BUSY,
    Limit.GENERATOR: Cause.GENERATOR_BUSY,
}
"""The cause of a verdict whose stored reason consists of numbers only, by the limit of the trial.

Such a reason contains no words that name a rule. Only the rules of these two causes stored such
reasons, so the cause follows from the limit.
"""


@dataclass(frozen=True)
class CauseInWords:
    """The rule that decided a verdict, as a cause and in words."""

    cause: Cause | None
    """The rule's cause; None if this version of the lab has no such rule."""
    rule: str
    """The rule in words: the stored reason without the numbers after the colon.

    If the reason has no colon, this is the whole reason.
    """


def older_verdict(verdict: str, reason: str) -> CauseInWords:
    """Return the cause that a stored `reason` names, and the words in which the reason names it.

    `verdict` is the code that the run stored beside the reason. A cause is considered only if its
    limit has this code.
    """
    rule, colon, numbers = reason.partition(": ")
    words = rule if colon and numbers else reason
    for beginning, cause in _RULES:
        if re.match(beginning, reason) and cause.limit.verdict == verdict:
            return CauseInWords(cause, words)
    return CauseInWords(_NUMBERS_ALONE.get(Limit.of(verdict)), words)
