"""The HTTP contract of servers/CONTRACT.md, held against a started server.

`endpoints` asks for each answer (its rows are in `cases`), `connections` for the protocol, `counting` for the
counters; `wire` is the HTTP client that they share.
"""

from __future__ import annotations

from runner.measure.contract import cases
from runner.measure.contract.connections import check_connections
from runner.measure.contract.counting import check_counting
from runner.measure.contract.endpoints import (
    check_case,
    check_count,
    check_devices,
    check_endpoints,
    check_health,
    check_md5,
)
from runner.measure.contract.wire import Target
from runner.model import Check, LabError, Server


def check_contract(host: str, port: int, server: Server, nonce: str) -> list[Check]:
    """Hold a started server against everything in the contract that it implements; takes about 2 s.

    Nothing else may talk to the server meanwhile: its counters are compared with what was sent. A server
    without `stats` keeps no counters, and its /count may be a constant.
    """
    target = Target(host, port)
    checks = [
        *check_endpoints(target, server, nonce),
        *check_connections(target, server),
        *check_counting(target, server),
    ]
    alive = check_health(target, server, nonce)
    return [*checks, Check("still answers after all this", alive.ok, alive.detail)]


def quick_check(host: str, port: int, server: Server, nonce: str, workload_path: str) -> list[Check]:
    """Check, in well under 0.1 s, the health and the one path that is about to be loaded.

    Raises LabError for a path that no check knows.
    """
    target = Target(host, port)
    checks = {
        "/health": lambda: check_health(target, server, nonce),
        "/count": lambda: check_count(target),
        "/experiments": lambda: check_case(target, workload_path, "experiments", cases.VALID_CASES[0]),
        "/experiments/md5": lambda: check_md5(target),
        "/devices": lambda: check_devices(target),
    }
    if workload_path not in checks:
        raise LabError(f"No check knows the path {workload_path}; it is one of {', '.join(checks)}.")
    return [check_health(target, server, nonce), checks[workload_path]()]


__all__ = ["check_contract", "quick_check"]
