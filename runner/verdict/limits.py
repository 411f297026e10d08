"""The limits that a trial can have (`Limit`), and the rules that decide the limit (`Cause`).

This module imports nothing from this project.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

MOST_FAILED = 0.001
"""If more than this share of a trial's requests failed, the trial's limit is unknown.

The rate and the cost per request of such a trial describe not only right answers, but also errors.
"""


class Limit(StrEnum):
    """The limit of a trial. The value is the word used in tables and figures.

    Members are in order of priority. If a cell's trials hit different limits, the limit whose
    member stands first in this class is reported.
    """

    verdict: str
    """Code in the column `verdict`. `DATABASE` and `POOL` have the same code."""
    letter: str
    """Abbreviation of the word, for figures with little space. It is empty for NONE."""
    noun: str
    """Phrase that names the limit within a sentence, such as `the server`."""
    why_not: str
    """Reason why a rate or response time of a trial with this limit is not compared.

    Pages show this reason if a comparison allows only trials with other limits.
    """
    meaning: str
    """Text that says what the rate or the response times of a trial with this limit mean."""
    remedy: str
    """The change that would lift this limit.

    Pages name this change if a claim cannot be decided because a trial had this limit.
    """

    def __new__(
        cls,
        word: str,
        verdict: str,
        letter: str,
        meaning: str,
        remedy: str,
        noun: str = "",
        why_not: str = "",
    ) -> Self:
        """Make a member whose value is `word`.

        By default, `noun` is "the `word`", and `why_not` is "`noun` was the limit".
        """
        member = str.__new__(cls, word)
        member._value_ = word
        member.verdict = verdict
        member.letter = letter
        member.meaning = meaning
        member.remedy = remedy
        member.noun = noun or f"the {word}"
        member.why_not = why_not or f"{member.noun} was the limit"
        return member

    GENERATOR = (
        "generator",
        "generator-bound",
        "G",
        "rate and response times are the generator's, and do not show what the server can do",
        "a generator on CPUs, or on a host, of its own",
    )
    DATABASE = (
        "database",
        "database-bound",
        "D",
        "the rate is that of the database, or of the pool of connections to it",
        "more CPUs for the database",
    )
    POOL = (
        "pool",
        "database-bound",
        "P",
        "the rate is that of the pool of connections to the database",
        "a larger pool",
    )
    NETWORK = (
        "network",
        "network-bound",
        "N",
        "the network between the hosts was full, slow or lossy, and determined the rate",
        "a faster network",
    )
    SERVER = (
        "server",
        "server-bound",
        "S",
        "the server used up its CPUs while the generator had room:"
        " the rate is what the server can do with them",
        "a lower rate, or more CPUs for the server",
    )
    NONE = (
        "none",
        "offered",
        "",
        "the offered rate was sustained and nobody was at a limit:"
        " the response times are the server's",
        "a higher rate, or a smaller share of a core for the server",
        "nobody",
        "nobody was at a limit",
    )
    SERIAL = (
        "one request at a time",
        "serial",
        "1",
        "one request was under way at a time: the rate is 1 / (the time of one cycle)",
        "more connections, or idle CPUs that poll",
        "one request at a time",
        "one request was under way at a time",
    )
    UNKNOWN = (
        "unknown",
        "inconclusive",
        "?",
        "neither rate nor response times can be ascribed to one side,"
        " or a rate was offered and not sustained",
        "CPUs that nobody else uses",
        "unknown",
        "the limit is unknown",
    )

    @classmethod
    def of(cls, verdict: str, cause: str = "") -> Limit:
        """Return the limit that a trial's columns `verdict` and `verdict_cause` state.

        For a verdict that this version of the lab does not know, return UNKNOWN.
        """
        if verdict == cls.POOL.verdict and cause == Cause.POOL_EXHAUSTED:
            return cls.POOL
        return next((limit for limit in cls if limit.verdict == verdict), cls.UNKNOWN)


class Cause(StrEnum):
    """The rule that decided what limited a trial.

    The value is the code in the column `verdict_cause`. Runs store the codes. So a new rule gets a
    new code, and no code changes its meaning.
    """

    limit: Limit
    """The limit of a trial whose verdict this rule decided."""

    def __new__(cls, code: str, limit: Limit) -> Self:
        """Make a member whose value is `code`."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.limit = limit
        return member

    @classmethod
    def of(cls, code: str) -> Cause | None:
        """Return the cause with the code `code`; None if this version has no such cause."""
        return next((cause for cause in cls if cause.value == code), None)

    # Requests or checks failed.
    REQUESTS_FAILED = "requests-failed", Limit.UNKNOWN
    CHECKS_FAILED = "checks-failed", Limit.UNKNOWN
    # The CPU use of server and generator cannot be told apart, or is unknown.
    CPUS_SHARED = "cpus-shared", Limit.UNKNOWN
    NO_CPU_KNOWN = "no-cpu-known", Limit.UNKNOWN
    SERVER_CPU_UNKNOWN = "server-cpu-unknown", Limit.UNKNOWN
    GENERATOR_CPU_UNKNOWN = "generator-cpu-unknown", Limit.UNKNOWN
    QUOTA_SHARED = "quota-shared", Limit.UNKNOWN
    # One connection: server and generator take turns.
    ONE_REQUEST = "one-request", Limit.SERIAL
    # Server, generator or network was at its limit.
    BOTH_SIDES_BUSY = "both-sides-busy", Limit.UNKNOWN
    NETWORK_FULL_AND_A_SIDE_BUSY = "network-full-and-a-side-busy", Limit.UNKNOWN
    GENERATOR_AND_DATABASE_BUSY = "generator-and-database-busy", Limit.UNKNOWN
    SERVER_BUSY = "server-busy", Limit.SERVER
    GENERATOR_BUSY = "generator-busy", Limit.GENERATOR
    NETWORK_FULL = "network-full", Limit.NETWORK
    # The database, or the pool of connections to it, was the limit.
    DATABASE_USED_ITS_QUOTA = "database-used-its-quota", Limit.DATABASE
    DATABASE_FILLED_SHARED_CPUS = "database-filled-shared-cpus", Limit.DATABASE
    DATABASE_AND_GENERATOR_FILLED_CPUS = "database-and-generator-filled-cpus", Limit.UNKNOWN
    DATABASE_BUSY = "database-busy", Limit.DATABASE
    POOL_EXHAUSTED = "pool-exhausted", Limit.POOL
    # The hypervisor or other programs disturbed the trial.
    CPU_TAKEN = "cpu-taken", Limit.UNKNOWN
    # CPUs, network and database had capacity left.
    NETWORK_LOSSY = "network-lossy", Limit.NETWORK
    NETWORK_FAR = "network-far", Limit.NETWORK
    PROBE_STARVED = "probe-starved", Limit.UNKNOWN
    WAITED_IN_AN_IDLE_GENERATOR = "waited-in-an-idle-generator", Limit.UNKNOWN
    WAITED_TO_BE_ACCEPTED = "waited-to-be-accepted", Limit.UNKNOWN
    WAITED_IN_THE_GENERATOR = "waited-in-the-generator", Limit.GENERATOR
    TOO_FEW_USERS = "too-few-users", Limit.UNKNOWN
    RATE_NOT_SUSTAINED = "rate-not-sustained", Limit.UNKNOWN
    PROBE_WAITED_LONGER = "probe-waited-longer", Limit.UNKNOWN
    RATE_SUSTAINED = "rate-sustained", Limit.NONE
    BOTH_WAITED_ALIKE = "both-waited-alike", Limit.UNKNOWN
    NEITHER_SIDE_BUSY = "neither-side-busy", Limit.UNKNOWN
