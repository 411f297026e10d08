"""Evidence of a trial in which no side was at its limit, except for what a test changes."""

from typing import Any

from runner.verdict.evidence import DatabaseEvidence, Evidence, Network


def evidence(**changes: Any) -> Evidence:
    """Return evidence of a server and a generator that have separate CPUs, which were not full."""
    idle = {
        "server_share": 0.4,
        "generator_share": 0.2,
        "generator_peak_share": 0.2,
        "disjoint": True,
    }
    return Evidence(**{**idle, **changes})


def busy(**changes: Any) -> Evidence:
    """Return evidence of a generator that was busy, but not at its limit."""
    return evidence(**{"generator_share": 0.45, "generator_peak_share": 0.52, **changes})


def database_at(share: float, **changes: Any) -> DatabaseEvidence:
    """Return evidence of a database that used this share of its CPUs.

    The database shares no CPUs, and its pool of connections was never exhausted.
    """
    spare = {"shared": False, "pool_exhausted_share": 0.0}
    return DatabaseEvidence(share, **{**spare, **changes})


def network(**changes: Any) -> Network:
    """Return evidence of a network with a short round trip, no losses, and a tenth of its capacity
    in use.
    """
    idle = {"share": 0.1, "lost_share": 0.0, "round_trip_ms": 0.1}
    return Network(**{**idle, **changes})
