"""Evidence of a trial in which nothing was at its limit, unless a test changes a number."""

from typing import Any

from runner.verdict.evidence import DatabaseEvidence, Evidence, Network


def evidence(**changes: Any) -> Evidence:
    """Return evidence that server and generator had separate CPUs, and did not use them fully."""
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
    """Return evidence of a network with a short round trip and no losses.

    A tenth of the network's capacity is used.
    """
    idle = {"share": 0.1, "lost_share": 0.0, "round_trip_ms": 0.1}
    return Network(**{**idle, **changes})
