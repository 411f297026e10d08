"""Counts read around a load, independent of the generator: the server's own and the kernel's."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from runner.measure.conntrack import dropped_packets
from runner.measure.readiness import get_json
from runner.measurement import Counters

SETTLE_S = 3.0
"""How long a server may take to drain the warm-up."""


def passive_opens() -> int | None:
    """Return how many TCP connections this network namespace has accepted since boot (TcpPassiveOpens, RFC 4022)."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2:
        return None
    return int(dict(zip(lines[0][1:], lines[1][1:], strict=True))["PassiveOpens"])


def settle(port: int) -> Counters:
    """Return the counters once the server has finished what the warm-up left in its queues, or after SETTLE_S.

    wrk stops with a request under way on every connection: counted into the load, they would be strangers.
    """
    deadline = time.monotonic() + SETTLE_S
    now = read_counters(port)
    while time.monotonic() < deadline:
        time.sleep(0.05)
        before, now = now, read_counters(port)
        quiet = before.connections is None or now.connections is None or now.connections - before.connections == 1
        if quiet and now.requests == before.requests:
            break
    return now


def read_counters(port: int) -> Counters:
    """Read the counters now; asking for them is itself one connection, and no counted request.

    Any server is asked: one that keeps no counter answers something without it.
    """
    stats = get_json(port, "/stats", timeout_s=10.0) or {}
    requests, connections = stats.get("requests"), stats.get("connections")
    return replace(
        host_counters(),
        requests=requests if isinstance(requests, int) else None,
        connections=connections if isinstance(connections, int) else None,
    )


def host_counters() -> Counters:
    """Read what the kernel alone counts: of a server that may not be asked, or cannot be any more."""
    return Counters(None, None, passive_opens(), dropped_packets())
