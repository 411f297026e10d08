"""The kernel's table of tracked connections, which a firewall (Docker's, for one) turns on for loopback too.

A closed connection stays in it for two minutes. Loads that open one for each request fill it, and the kernel then drops
packets of new connections: they look like a server that does not accept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

NETFILTER = Path("/proc/sys/net/netfilter")
COUNTERS = Path("/proc/net/stat/nf_conntrack")
ROOM = 0.5
"""Share of the table that must be free before a trial."""
PATIENCE_S = 150.0
"""Longer than the kernel's default for closed connections (nf_conntrack_tcp_timeout_time_wait, 120 s)."""


def dropped_packets() -> int | None:
    """Return how many packets were dropped for want of room since boot; None where nothing is tracked."""
    try:
        head, *rows = (line.split() for line in COUNTERS.read_text().splitlines())
        column = head.index("drop")
        return sum(int(row[column], 16) for row in rows)
    except (OSError, ValueError):
        return None


def wait_for_room(on_wait: Callable[[], None]) -> None:
    """Return once the table has room for a trial, or after PATIENCE_S; `on_wait` is called once if there is a wait."""
    deadline = time.monotonic() + PATIENCE_S
    waiting = False
    while _share_used() > 1 - ROOM and time.monotonic() < deadline:
        if not waiting:
            on_wait()
        waiting = True
        time.sleep(0.5)


def _share_used() -> float:
    try:
        used, size = (int((NETFILTER / name).read_text()) for name in ("nf_conntrack_count", "nf_conntrack_max"))
    except (OSError, ValueError):
        return 0.0
    return used / size if size else 0.0
