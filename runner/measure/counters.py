"""Read the server's and the kernel's counters before and after a load.

These counters do not depend on what the load generator reports. One counter is the number of
packets that the kernel dropped because its table of tracked connections was full. A firewall (for
example Docker's) makes the kernel track connections in this table, even those over loopback. A
closed connection stays in the table for two minutes, so loads that open a connection per request
can fill the table. Then the kernel drops the packets of new connections, which looks as if the
server did not accept the connections.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from runner.measure.engine import Running, get_json
from runner.measurement import Counters
from runner.model import Cell
from runner.shapes import Closed, ForTime, Search, Steps

WARM_UP_SETTLES_S = 3.0  # longest wait for the server to finish the warm-up's last requests
QUIET_S = 0.05  # the warm-up has settled if the counters stay the same for this long


def tcp_counters() -> dict[str, int]:
    """Return this network namespace's TCP counters since boot (RFC 4022).

    The keys are the kernel's names of the counters.
    """
    lines = [
        line.split()[1:]
        for line in Path("/proc/net/snmp").read_text().splitlines()
        if line.startswith("Tcp:")
    ]
    return dict(zip(lines[0], map(int, lines[1]), strict=True))


def network_bytes() -> dict[str, int]:
    """Return the bytes received and sent, and the TCP segments sent and resent, since boot.

    The bytes are summed over all interfaces except loopback.
    """
    lines = [line.partition(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    numbers = [values.split() for name, _, values in lines if name.strip() != "lo"]
    tcp = tcp_counters()
    return {
        "received": sum(int(each[0]) for each in numbers),
        "sent": sum(int(each[8]) for each in numbers),
        "segments": tcp["OutSegs"],
        "retransmitted": tcp["RetransSegs"],
    }


def undelivered(port: int) -> int:
    """Return the number of connections to `port` that still send data after this host closed them.

    Such a connection remains until its data has arrived at the other host. This can take a while,
    because TCP has to resend data that was lost.
    """
    rows = [line.split()[2:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # Count the states FIN_WAIT1, LAST_ACK and CLOSING of the kernel's include/net/tcp_states.h.
    return sum(
        state in {"04", "09", "0B"} and int(to.partition(":")[2], 16) == port for to, state in rows
    )


def settle(
    running: Running, counted: Callable[[], Counters], afar: Sequence[Callable[[int], int]]
) -> Counters:
    """Return the counters once the server has finished the warm-up, or after WARM_UP_SETTLES_S.

    wrk ends its warm-up while a request is under way on every connection. These requests must not
    be counted as part of the load, so wait until the server has answered them. If generators run on
    other hosts, some requests may not even have arrived at the server yet. So for each of these
    hosts, `afar` contains a function that calls `undelivered` on that host.
    """
    deadline = time.monotonic() + WARM_UP_SETTLES_S
    now = read_counters(running, counted)
    while time.monotonic() < deadline:
        arrived = not any(on_the_way(running.port) for on_the_way in afar)
        time.sleep(QUIET_S)
        before = now
        now = read_counters(running, counted)
        quiet = (
            before.connections is None
            or now.connections is None
            or now.connections - before.connections == 1
        )
        if arrived and quiet and now.requests == before.requests:
            break
    return now


def read_counters(running: Running, counted: Callable[[], Counters]) -> Counters:
    """Read the server's and the kernel's counters; a counter that the server lacks is None.

    `counted` returns the kernel's counters. To read the server's counters, this function opens a
    connection, which the server also counts.
    """
    stats = get_json(running, "/stats", timeout_s=10.0) or {}
    requests = stats.get("requests")
    connections = stats.get("connections")
    return replace(
        counted(),
        requests=requests if isinstance(requests, int) else None,
        connections=connections if isinstance(connections, int) else None,
    )


NETFILTER = Path("/proc/sys/net/netfilter")
"""Folder with the files that contain the size of the connection table and its number of entries.

The connection table is the kernel's table of tracked connections.
"""
STATISTICS = Path("/proc/net/stat/nf_conntrack")
CLOSE_RPS = 30_000
"""Upper estimate of the connections per second that a load in close mode opens.

In close mode each request opens a connection. No load of this lab has ever reached this rate.
"""
SPARE = 2_000
PATIENCE_S = 150.0
"""`wait_for_room` stops waiting for room in the connection table after this time.

The kernel keeps a closed connection in the table for 120 s (nf_conntrack_tcp_timeout_time_wait). So
after 150 s, all connections of earlier loads have left the table.
"""


def dropped_packets(statistics: Path = STATISTICS) -> int | None:
    """Return the number of packets dropped since boot because the connection table was full.

    Return None if the kernel tracks no connections.
    """
    try:
        lines = [line.split() for line in statistics.read_text().splitlines()]
        place = lines[0].index("drop")
        return sum(int(row[place], 16) for row in lines[1:])
    except (OSError, ValueError, IndexError):
        return None


def wait_for_room(
    cells: Sequence[Cell],
    on_wait: Callable[[int], None],
    netfilter: Path = NETFILTER,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait for up to PATIENCE_S until the connection table has room for a session of `cells`.

    If the table has no room, call `on_wait` once with the number of entries needed. If a session
    opens more connections than half of the table can hold, wait only until half of the table is
    free, because the first connections of a long session leave the table before the session ends.
    `netfilter` is the folder with the table's size and number of entries. `sleep` waits for some
    seconds before the table is read again.
    """
    deadline = time.monotonic() + PATIENCE_S
    waiting = False
    while time.monotonic() < deadline:
        try:
            used = int((netfilter / "nf_conntrack_count").read_text())
            size = int((netfilter / "nf_conntrack_max").read_text())
        except (OSError, ValueError):
            return  # the kernel tracks no connections
        needed = min(sum(map(connections_of, cells)), size // 2)
        if size - used >= needed:
            return
        if not waiting:
            on_wait(needed)
        waiting = True
        sleep(0.5)


def connections_of(cell: Cell) -> int:
    """Return the maximum number of connections that a trial opens, including its warm-up."""
    opened = cell.sockets * (1 + (cell.slices or 1)) + SPARE
    return opened + _of_each_request(cell) if cell.mode == "close" else opened


def _of_each_request(cell: Cell) -> int:
    """Return the maximum number of requests of a trial in close mode, including its warm-up.

    In close mode each request opens a connection.
    """
    match cell.shape:
        case Closed() as load:
            return load.iterations + round(CLOSE_RPS * cell.warmup_s)
        case ForTime() as load:
            return round(CLOSE_RPS * (load.duration_s + cell.warmup_s))
        case Steps() | Search():
            return round(CLOSE_RPS * (cell.offered_s + cell.warmup_s))
        case _:
            assert_never(cell.shape)
