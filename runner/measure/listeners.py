"""Which processes listen at an address of this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import psutil

from runner.measure.procfs import descendants

INIT = 1
_LISTEN = "0A"
"""TCP_LISTEN of the kernel's include/net/tcp_states.h, in hexadecimal."""


def leaders(address: str, port: int) -> list[int]:
    """Return the processes that listen at `address` and `port`, without those whose parent does so as well.

    Several that have one parent in common count as that parent, where it is neither init nor one above the lab: workers
    with a socket each. Empty where no process of this machine has the socket, or this user may not see which.
    """
    holders = _holders(_sockets(address, port)) if _is_here(address) else set()
    parents = {pid: _parent(pid) for pid in holders}
    found = sorted(pid for pid in holders if parents[pid] not in holders)
    above = {parents[pid] for pid in found}
    if len(found) < 2 or len(above) > 1:
        return found
    common = above.pop()
    return found if common in (None, INIT) or os.getpid() in descendants(common) else [common]


def _is_here(address: str) -> bool:
    """Return whether an address is one of this machine's: another one's sockets are not in this kernel's tables."""
    own = (each.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses)
    return ip_address(address).is_loopback or address in own


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _sockets(address: str, port: int) -> set[str]:
    """Return the inodes of the sockets to which a connection may come: those of the address before those of all."""
    found: dict[str, set[str]] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                host, _, number = local.partition(":")
                if state == _LISTEN and int(number, 16) == port:
                    found.setdefault(_address(host), set()).add(rest[5])
    return next((found[name] for name in _names(address) if name in found), set())


def _address(words: str) -> str:
    """Return an address of /proc/net/tcp, hexadecimal words of 32 bits in the machine's byte order, as text."""
    data = bytes.fromhex(words)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return str(ip_address(data))


def _names(address: str) -> Iterator[str]:
    """Yield what a socket that accepts connections to `address` can be bound to, the most exact first."""
    yield address
    if ip_address(address).version == 4:
        yield str(ip_address(f"::ffff:{address}"))
        yield "0.0.0.0"  # noqa: S104 - what others listen at
    yield "::"


def _holders(sockets: set[str]) -> set[int]:
    """Return the processes that have one of the sockets open, as far as this user may look.

    psutil.net_connections names one process for each socket only, and workers share their parent's.
    """
    links = {f"socket:[{inode}]" for inode in sockets}
    return {pid for pid in psutil.pids() if links & _open(pid)}


def _open(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found.add(os.readlink(entry.path))  # noqa: PTH115 - the text of the link, which is no path
    return found
