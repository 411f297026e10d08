"""The kernel's table of tracked connections, which a firewall (Docker's, for one) turns on for loopback too.

A closed connection stays in it for two minutes. Loads that open one for each request fill it, and the kernel then drops
packets of new connections: they look like a server that does not accept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.model import Cell

NETFILTER = Path("/proc/sys/net/netfilter")
COUNTERS = Path("/proc/net/stat/nf_conntrack")
CLOSE_RPS = 30_000
"""More connections a second than a close-mode load of this lab has been seen to open."""
SPARE = 2_000
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


def wait_for_room(cells: Sequence[Cell], on_wait: Callable[[int], None]) -> None:
    """Return once the table has room for a session of `cells`, or after PATIENCE_S.

    `on_wait` is called once, with the entries needed, if there is a wait. A session that needs more than half of the
    table waits for half: the connections of its own beginning are forgotten in the course of a long one.
    """
    deadline = time.monotonic() + PATIENCE_S
    waiting = False
    while (table := _table()) is not None and time.monotonic() < deadline:
        used, size = table
        needed = min(sum(map(connections_of, cells)), size // 2)
        if size - used >= needed:
            return
        if not waiting:
            on_wait(needed)
        waiting = True
        time.sleep(0.5)


def connections_of(cell: Cell) -> int:
    """Return at most how many connections a trial opens, its warm-up included."""
    opened = cell.sockets * (1 + (cell.slices or 1)) + SPARE
    if cell.mode == "close":
        load_s = (cell.duration_s or 0.0) + len(cell.rates_rps) * (cell.step_s or 0.0) + cell.warmup_s
        opened += round(CLOSE_RPS * load_s) + (cell.iterations or 0)
    return opened


def _table() -> tuple[int, int] | None:
    """Return the entries used and the most there may be; None where nothing is tracked."""
    try:
        used, size = (int((NETFILTER / name).read_text()) for name in ("nf_conntrack_count", "nf_conntrack_max"))
    except (OSError, ValueError):
        return None
    return used, size
