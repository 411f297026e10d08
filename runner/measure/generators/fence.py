"""Restrict a user's k6 script to the server's address and port, and to further permitted ports."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from string import ascii_lowercase, digits
from urllib.parse import urlsplit

from runner.measure.engine import LOOPBACK, Running

FENCE = {"K6_AUTO_EXTENSION_RESOLUTION": "false"}
"""Environment variable that forbids k6 to let another k6 program run a script.

By default, if a script imports an extension (k6/x), k6 obtains another k6 program that contains the
extension, and lets that program run the script.
"""
ALL_4 = IPv4Network("0.0.0.0/0")
ALL_6 = IPv6Network("::/0")
NOWHERE = "255.255.255.255"
"""Address to which k6 resolves every forbidden host and port. This address is always blocked."""
LOCALHOST = "localhost"


def fence(running: Running, also: Sequence[int] = ()) -> dict[str, object]:
    """Return options of k6 that permit requests only to the server's address and port.

    Requests to the ports in `also` of the same address are permitted, too. Redirections are
    forbidden.

    k6 looks up `host:port`, and then the host alone, in its option `hosts`, even if the host is an
    address (lib/netext/dialer.go). Each permitted `host:port` leads to the server. Everything else
    leads to an address that the option `blacklistIPs` blocks. `blacklistIPs` lists all addresses
    except the server's, because k6 has no list of permitted addresses. k6 accepts no IPv6 address
    as a key of `hosts`. So if a script requests another IPv6 address at a permitted port, the
    request goes to the server, and is counted as a request to the server.
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
    """Return the entries of k6's option `hosts` that permit a port of the server's address."""
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
