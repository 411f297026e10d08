"""What limited a trial: the verdicts of the lab, each with its words, letter and meaning. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

POOL_EXHAUSTED = "the pool of connections was exhausted"
"""How the reason of a `database-bound` verdict begins where the pool, and not the database, was the limit."""

MOST_FAILED = 0.001
"""Share of the requests that may fail. Above it, a rate is one of errors, and so is a cost per request."""

CHECKS_FAILED = "of the script's checks failed"
"""How the reason of an `inconclusive` verdict says that a script refused the answers that it got."""

TAKEN = "took CPU time away"
"""How the reason of an `inconclusive` verdict says that the hypervisor or other programs disturbed the trial."""


class Limit(StrEnum):
    """What limited a trial; the value is the word that tables and figures have for it.

    Where the trials of a cell had several limits, and one is to be named, it is the first of these.
    """

    verdict: str  # as it is stored in trial.json and trials.parquet; database and pool share one
    letter: str  # for figures without room for the word; empty where nobody was the limit
    noun: str  # within a sentence: `the limit was the server`
    why_not: str  # why rates, or response times, of such a trial are not compared where another limit is needed
    meaning: str  # what the trial's numbers say
    remedy: str  # what would lift the limit, where another is needed

    def __new__(
        cls, word: str, verdict: str, letter: str, meaning: str, remedy: str, noun: str = "", why_not: str = ""
    ) -> Self:
        """Make a member whose value is `word`; `noun` and `why_not` are given where they are not `the word`."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.verdict, member.letter, member.meaning, member.remedy = verdict, letter, meaning, remedy
        member.noun = noun or f"the {word}"
        member.why_not = why_not or f"{member.noun} was the limit"
        return member

    # fmt: off
    GENERATOR = ("generator", "generator-bound", "G",
                 "rate and response times are the generator's; what the server can do was not seen",
                 "a generator on CPUs, or on a host, of its own")
    DATABASE = ("database", "database-bound", "D",
                "the rate is that of the database, or of the pool of connections to it", "more CPUs for the database")
    POOL = "pool", "database-bound", "P", "the rate is that of the pool of connections to the database", "a larger pool"
    NETWORK = ("network", "network-bound", "N",
               "the network between the hosts was full, slow or lossy: it made the rate", "a faster network")
    SERVER = ("server", "server-bound", "S",
              "the server used up its CPUs while the generator had room: the rate is what the server can do with them",
              "a lower rate, or more CPUs for the server")
    NONE = ("none", "offered", "",
            "the offered rate was kept and nobody was at a limit: the response times are the server's",
            "a higher rate, or a smaller share of a core for the server",
            "nobody", "nobody was at a limit")
    SERIAL = ("one request at a time", "serial", "1",
              "one request was under way at a time: the rate is 1 / (the time of one cycle)",
              "more connections, or idle CPUs that poll",
              "one request at a time", "one request was under way at a time")
    UNKNOWN = ("unknown", "inconclusive", "?",
               "neither rate nor response times can be ascribed to one side, or a rate was offered and not kept",
               "CPUs that nobody else uses",
               "unknown", "the limit is unknown")
    # fmt: on

    @classmethod
    def of(cls, verdict: str, reason: str = "") -> Limit:
        """Return what a stored verdict says was the limit; UNKNOWN for a verdict that the lab does not have."""
        if verdict == cls.POOL.verdict and reason.startswith(POOL_EXHAUSTED):
            return cls.POOL
        return next((limit for limit in cls if limit.verdict == verdict), cls.UNKNOWN)


@dataclass(frozen=True)
class Verdict:
    """What limited a trial, and why."""

    limit: Limit
    reason: str

    @property
    def verdict(self) -> str:
        """The verdict as it is stored."""
        return self.limit.verdict
