"""Restrict a user's k6 script to one address, its port, and the permitted further ports."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from string import ascii_lowercase, digits
from urllib.parse import urlsplit

from runner.measure.engine import LOOPBACK, Running

FENCE = {"K6_AUTO_EXTENSION_RESOLUTION": "false"}
"""Use only the installed k6: by default it has another one built for a script that imports k6/x."""
ALL_4 = IPv4Network("0.0.0.0/0")
ALL_6 = IPv6Network("::/0")
NOWHERE = "255.255.255.255"
"""Address to which k6 resolves every forbidden host and port; it is always among the blocked ones.
"""
LOCALHOST = "localhost"


def fence(running: Running, also: Sequence[int] = ()) -> dict[str, object]:
    """Return the options of k6 that permit one address, its port and the ports `also`, and no
    redirection.

    k6 looks up `host:port`, then the host, in its option `hosts`, also for addresses
    (lib/netext/dialer.go). Each permitted `host:port` leads to the server. Everything else leads to
    an address that `blacklistIPs` blocks. That option has all addresses except the server's,
    because k6 has no list of permitted ones. k6 accepts no IPv6 address as a key: a request for
    another IPv6 address at a permitted port goes to the server, and counts as its request.
    """
    allowed = ip_address(running.address)
    others: list[IPv4Network | IPv6Network]
    if isinstance(allowed, IPv4Address):
        others = [*sorted(ALL_4.address_exclude(IPv4Network(allowed))), ALL_6]
    else:
        others = [ALL_4, *sorted(ALL_6.address_exclude(IPv6Network(allowed)))]
    hosts = {"*": NOWHERE}
    for port in (running.port, *also):
        hosts |= _ways_to(running, port)
    return {"maxRedirects": 0, "blacklistIPs": [str(network) for network in others], "hosts": hosts}


def _ways_to(running: Running, port: int) -> dict[str, str]:
    """Return the entries of k6's option `hosts` that lead to a port of the server's address."""
    is_version_6 = ":" in running.address
    there = f"[{running.address}]:{port}" if is_version_6 else f"{running.address}:{port}"
    name = urlsplit(running.origin).hostname or running.address
    ways: dict[str, str] = {}
    if is_version_6:
        ways |= {f"*{character}:{port}": NOWHERE for character in ascii_lowercase + digits}
        ways[f"*:{port}"] = there
    else:
        ways[f"{running.address}:{port}"] = there
    if ":" not in name:
        ways[f"{name}:{port}"] = there
    if running.address == LOOPBACK:
        ways[f"{LOCALHOST}:{port}"] = there
    return ways
