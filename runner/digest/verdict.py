"""Who was the limit: the server, the load generator, or nothing that can be told."""

from __future__ import annotations

from dataclasses import dataclass

from runner.model import POOL_EXHAUSTED, Verdict

SATURATED = 0.90
"""A server above this share of its CPUs is the limit."""
CROWDED = 0.80
"""A generator above this share of its CPUs distorts what it measures (as Hyperfoil's watchdog has it)."""
FULL_SECOND = 0.95
MANY_TIMES = 5.0
"""A generator whose median latency is more than this many times the probe's has measured its own queue."""
MOSTLY = 0.5
"""A pool that is exhausted in this share of the samples is the limit."""
CLEARLY_MORE = 2.0
"""A database that uses this many times the generator's CPU time, on CPUs that both share, is what fills them."""


@dataclass(frozen=True)
class Evidence:
    """CPU use over the load, as shares of what each side was given (1.0 = all of its CPUs busy)."""

    server_share: float
    generator_share: float
    generator_peak_share: float
    """Highest share over one second, or over the whole load where that is shorter."""
    disjoint: bool
    """Whether server and generator had CPUs of their own."""
    offered_rps: float | None = None
    """The rate of an open load; None where the load was closed."""
    dropped: int = 0
    """Requests of an open load that could not be sent in time."""
    database: DatabaseEvidence | None = None
    generator_p50_ms: float | None = None
    """What the generator measured, and what the probe did; None where there are too few samples."""
    probe_p50_ms: float | None = None

    @property
    def queued(self) -> bool:
        """Whether the generator measured a queue of its own: the probe was answered in a fraction of the time."""
        if self.generator_p50_ms is None or self.probe_p50_ms is None:
            return False
        return self.generator_p50_ms > MANY_TIMES * self.probe_p50_ms


@dataclass(frozen=True)
class DatabaseEvidence:
    """What the database and the connections to it say."""

    share: float
    """CPU use as a share of the CPUs that it was given."""
    shared: bool
    """Whether those are the generator's."""
    pool_exhausted_share: float
    """Share of the samples in which every connection of the pool was in use."""


def judge(evidence: Evidence) -> Verdict:
    """Return what the trial measured, with the numbers that say so.

    Two sides that are both saturated make it inconclusive: either may have set the rate.
    """
    said = _said(evidence)
    if not evidence.disjoint:
        return Verdict("inconclusive", f"server and generator shared a CPU; {said}")
    crowded = evidence.generator_share > CROWDED or evidence.generator_peak_share > FULL_SECOND
    saturated = evidence.server_share >= SATURATED
    stored = evidence.database and _judge_database(evidence, evidence.database)
    if saturated and (crowded or stored):
        return Verdict("inconclusive", f"both sides were busy: {said}")
    if saturated:
        return Verdict("server-bound", said)
    if crowded or evidence.queued:
        return Verdict("generator-bound", said)
    if stored:
        return Verdict(stored.verdict, f"{stored.reason}: {said}")
    return _unlimited(evidence, said)


def _unlimited(evidence: Evidence, said: str) -> Verdict:
    """Return the verdict where nobody was busy."""
    if evidence.dropped:
        return Verdict("inconclusive", f"the rate was not sustained, {evidence.dropped} requests were dropped: {said}")
    if evidence.offered_rps is not None:
        return Verdict("offered", f"{evidence.offered_rps:g} requests/s were sustained: {said}")
    return Verdict("inconclusive", f"neither side was busy: {said}")


def _judge_database(evidence: Evidence, database: DatabaseEvidence) -> Verdict | None:
    """Return what is to be said of a database, or a pool of connections to it, that was full; None where it was not."""
    if database.shared and database.share + evidence.generator_share >= SATURATED:
        if database.share >= CLEARLY_MORE * evidence.generator_share:
            return Verdict("database-bound", "the database filled the CPUs that it shares with the generator")
        return Verdict("inconclusive", "database and generator together filled the CPUs that they share")
    if not database.shared and database.share >= SATURATED:
        return Verdict("database-bound", "the database was busy")
    if database.pool_exhausted_share >= MOSTLY:
        return Verdict("database-bound", POOL_EXHAUSTED)
    return None


def _said(evidence: Evidence) -> str:
    server, generator = 100 * evidence.server_share, 100 * evidence.generator_share
    peak = 100 * evidence.generator_peak_share
    said = f"server used {server:.0f} % of its CPUs, generator {generator:.0f} % of its own (peak {peak:.0f} %)"
    if evidence.generator_p50_ms is not None and evidence.probe_p50_ms is not None:
        said += (
            f", p50 {evidence.generator_p50_ms:.3g} ms to the generator, {evidence.probe_p50_ms:.3g} ms to the probe"
        )
    if evidence.database is None:
        return said
    whose = "of the same" if evidence.database.shared else "of its own"
    exhausted = 100 * evidence.database.pool_exhausted_share
    return (
        f"{said}, database {100 * evidence.database.share:.0f} % {whose}, pool exhausted {exhausted:.0f} % of the time"
    )
