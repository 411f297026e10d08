"""Whether the probe saw what the generator saw, and enough of it to be a witness."""

from __future__ import annotations

from collections.abc import Mapping

from runner.digest.probe import HZ
from runner.digest.verdict import Probing
from runner.model import OWN_SCRIPT, Cell

AS_OFTEN = 0.1
"""Shares of requests that found their connection closed, the load's and the probe's, that are one share."""


def saw_the_same(cell: Cell, mode: str, metrics: Mapping[str, float | int | None]) -> bool:
    """Return whether response times of the probe and of the load are those of the same thing.

    A script asks for what it likes, the probe for one path. And the probe keeps its connections where the server lets
    it: a load that makes new ones waits to be accepted, which the probe meets only where the server closes on it as
    often. Its latency then has its connecting in it, as the load's has.
    """
    if cell.workload == OWN_SCRIPT:
        return False
    if mode == "keepalive":
        return True
    requests = metrics.get("requests") or 0
    opened_pct, reopened_pct = metrics.get("opened_pct"), metrics.get("probe_reopened_pct")
    if opened_pct is None or reopened_pct is None:
        return False
    opened = round(requests * opened_pct / 100)
    first = min(cell.sockets, opened) if cell.mode == "keepalive" else 0
    if requests <= first:
        return abs(opened_pct - reopened_pct) <= 100 * AS_OFTEN
    return abs((opened - first) / (requests - first) - reopened_pct / 100) <= AS_OFTEN


def probing_of(metrics: Mapping[str, float | int | None]) -> Probing | None:
    """Return how many of its requests the probe had answered; None without a probe."""
    sent, lasted_s = metrics.get("probe_requests"), metrics.get("duration_s")
    if sent is None or not lasted_s:
        return None
    return Probing(due=int(lasted_s * HZ), sent=int(sent), failed=int(metrics.get("probe_failed") or 0))
