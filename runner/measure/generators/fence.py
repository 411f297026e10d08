"""The fence around a user's k6 script: one address, its port, and the ports that were allowed."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from string import ascii_lowercase, digits
from urllib.parse import urlsplit

from runner.measure.engine import LOOPBACK, Running

FENCE = {"K6_AUTO_EXTENSION_RESOLUTION": "false"}
"""No k6 other than the one that is installed: by itself it would have one built for a script that
imports k6/x.
"""
ALL_4 = IPv4Network("0.0.0.0/0")
ALL_6 = IPv6Network("::/0")
NOWHERE = "255.255.255.255"
"""The address that k6 is given for every host and port that a script may not ask: always one of
those it blocks.
"""
LOCALHOST = "localhost"


def fence(running: Running, also: Sequence[int] = ()) -> dict[str, object]:
    """Return the options of k6 that leave a script one address, its port and the ports `also`, and
    no redirection.

    k6 looks up `host:port`, then the host, in its option `hosts`, for addresses too
    (lib/netext/dialer.go). Each permitted `host:port` leads to the server. Everything else leads to
    an address that `blacklistIPs` blocks. That option has all addresses but the server's, because
    k6 has no list of what is allowed. k6 takes no address of version 6 as a key: there, a request
    for another address of version 6 at a permitted port goes to the server, and is counted as what
    it is, a request of the server.
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
    """Return the keys of k6's option `hosts` that lead to a port of the server's address, with what
    they lead to.
    """
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
