"""Who was the limit: the server, the load generator, or nothing that can be told."""

from __future__ import annotations

from dataclasses import dataclass

from runner.model import Verdict

SATURATED = 0.90
"""A server above this share of its CPUs is the limit."""
CROWDED = 0.80
"""A generator above this share of its CPUs distorts what it measures (as Hyperfoil's watchdog has it)."""
FULL_SECOND = 0.95


@dataclass(frozen=True)
class Evidence:
    """CPU use over the load, as shares of what each side was given (1.0 = all of its CPUs busy)."""

    server_share: float
    generator_share: float
    generator_peak_share: float
    """Highest share over one second, or over the whole load where that is shorter."""
    disjoint: bool
    """Whether server and generator had CPUs of their own."""


def judge(evidence: Evidence) -> Verdict:
    """Return what the trial measured, with the numbers that say so.

    A saturated server beside a crowded generator is inconclusive: either may have set the rate.
    """
    server, generator = 100 * evidence.server_share, 100 * evidence.generator_share
    peak = 100 * evidence.generator_peak_share
    said = f"server used {server:.0f} % of its CPUs, generator {generator:.0f} % of its own (peak {peak:.0f} %)"
    if not evidence.disjoint:
        return Verdict("inconclusive", f"server and generator shared a CPU; {said}")
    crowded = evidence.generator_share > CROWDED or evidence.generator_peak_share > FULL_SECOND
    saturated = evidence.server_share >= SATURATED
    if saturated and crowded:
        return Verdict("inconclusive", f"both sides were busy: {said}")
    if saturated:
        return Verdict("server-bound", said)
    if crowded:
        return Verdict("generator-bound", said)
    return Verdict("inconclusive", f"neither side was busy: {said}")
