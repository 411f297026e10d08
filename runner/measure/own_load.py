"""Loads on an API of the user's own: what k6 and the probe send, and the fence that keeps a script from other hosts."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from pathlib import Path

from runner.measure.engine import Running
from runner.measure.generators import Shot
from runner.model import OWN, OWN_SCRIPT, Workload

FENCE = {"K6_AUTO_EXTENSION_RESOLUTION": "false"}
"""No k6 other than the one that is installed: by itself it would have one built for a script that imports k6/x."""

ALL_4, ALL_6 = IPv4Network("0.0.0.0/0"), IPv6Network("::/0")


def shot_of(workload: Workload, tool: Path, running: Running, tag: str, *, probing: bool = False) -> Shot:
    """Return what a load sends to a server, or, with `probing`, what the probe beside it does."""
    if workload.name not in OWN:
        return Shot.of(workload, tool, running.port, tag)
    path = workload.probe_path if probing and workload.probe_path is not None else workload.path
    more = {"OPTIONS": json.dumps(fence(running)), **FENCE}
    if workload.name == OWN_SCRIPT:
        more["BASE_URL"] = f"{running.origin}{workload.path}".rstrip("/")
    return Shot(
        tool,
        workload.script,
        f"{running.origin}{path}",
        workload.method,
        path,
        workload.body,
        address=running.address,
        host=running.origin.partition("//")[2],
        more=more,
    )


def fence(running: Running) -> dict[str, object]:
    """Return those options of k6 that leave a script one address only, and no redirection.

    A name other than the server's may be looked up, and leads nowhere else. k6 has no list of what is allowed, so all
    others are blocked: what is left of the address space without the address.
    """
    allowed = ip_address(running.address)
    others: list[IPv4Network | IPv6Network]
    if isinstance(allowed, IPv4Address):
        others = [*sorted(ALL_4.address_exclude(IPv4Network(allowed))), ALL_6]
    else:
        others = [ALL_4, *sorted(ALL_6.address_exclude(IPv6Network(allowed)))]
    return {
        "maxRedirects": 0,
        "blacklistIPs": [str(network) for network in others],
        **({} if _is_address(name := _name(running)) else {"hosts": {name: running.address}}),
    }


def _name(running: Running) -> str:
    """Return the host of the server's URL, without its port."""
    host = running.origin.partition("//")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
