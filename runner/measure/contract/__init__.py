"""The HTTP contract of servers/CONTRACT.md, held against a started server.

`endpoints` asks for each answer; `experiments` and `devices` send the rows of `cases` and `device_cases`, and
`random_checks` what nobody wrote down. `connections`, `pipelining`, `heads`, `bodies` and `smuggling` look at the
protocol, `counting` at the counters, `crowd` and `outage` at the database, `endurance` at what is left behind.
`wire` is the HTTP client that they share, and keeps the tally of what was sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from runner.measure.contract import cases
from runner.measure.contract.bodies import check_bodies
from runner.measure.contract.connections import check_connections
from runner.measure.contract.counting import check_counting, counted
from runner.measure.contract.crowd import check_crowd
from runner.measure.contract.database import Database
from runner.measure.contract.devices import check_devices_insert, check_insert, check_without_database
from runner.measure.contract.endpoints import check_count, check_devices, check_endpoints, check_health
from runner.measure.contract.endurance import Reading, check_endurance
from runner.measure.contract.experiments import check_experiment, check_experiments, check_md5
from runner.measure.contract.heads import check_heads
from runner.measure.contract.outage import check_outage
from runner.measure.contract.pipelining import check_pipelining
from runner.measure.contract.random_checks import check_random
from runner.measure.contract.smuggling import check_smuggling
from runner.measure.contract.wire import Target
from runner.model import Check, LabError, Server

POOL_SIZE = 50
"""DB_POOL_SIZE where nobody sets it."""


def check_contract(
    host: str,
    port: int,
    server: Server,
    nonce: str,
    *,
    resident_bytes: Reading | None = None,
    open_files: Reading | None = None,
    database: Database | None = None,
    pool_size: int = POOL_SIZE,
    seed: int | None = None,
) -> list[Check]:
    """Hold a started server against everything in the contract that it implements; takes about 15 s.

    Nothing else may talk to the server meanwhile: its counters are compared with what was sent. A server
    without `stats` keeps no counters, and its /count may be a constant. `resident_bytes` and `open_files` read the
    server's memory and its number of open files, None where they cannot; without them nothing is said about leaks.
    `database` is what the server's DATABASE_URL leads to, None where it has none; it is paused and killed on the way.
    `pool_size` is the server's DB_POOL_SIZE. `seed` repeats the random bodies of an earlier check; without it they
    are new ones.
    """
    target = Target(host, port)
    seed = secrets.randbits(32) if seed is None else seed
    checks = [
        *counted(target, server, "count: equals what was sent so far", _check_requests(target, server, nonce, seed)),
        *counted(
            target, server, "count: equals the inserts sent", _check_database(target, server, database, pool_size)
        ),
        *counted(
            target,
            server,
            "count: equals what the rounds sent",
            check_endurance(target, server, resident_bytes, open_files),
        ),
    ]
    alive = check_health(target, server, nonce)
    return [*checks, Check("still answers after all this", alive.ok, alive.detail)]


def _check_requests(target: Target, server: Server, nonce: str, seed: int) -> Iterator[Check]:
    yield from check_endpoints(target, server, nonce)
    yield from check_experiments(target, server)
    yield from check_random(target, server, seed)
    yield from check_connections(target, server)
    yield from check_pipelining(target, server, seed)
    yield from check_heads(target)
    yield from check_bodies(target, server)
    yield from check_smuggling(target, server)
    yield from check_counting(target, server)


def _check_database(target: Target, server: Server, database: Database | None, pool_size: int) -> Iterator[Check]:
    if "devices-insert" not in server.implements:
        return
    if database is None:
        yield from check_without_database(target)
        return
    yield from check_devices_insert(target, database)
    yield from check_crowd(target, database, pool_size)
    yield from check_outage(target, server, database, pool_size)


def quick_check(
    host: str, port: int, server: Server, nonce: str, method: str, path: str, firmware: str = "check"
) -> list[Check]:
    """Check, in well under 0.1 s, the health and the one method and path that are about to be loaded.

    An insert leaves one row with `firmware`. Raises LabError for what no check knows.
    """
    target = Target(host, port)
    checks: dict[tuple[str, str], Callable[[], Check]] = {
        ("GET", "/health"): lambda: check_health(target, server, nonce),
        ("GET", "/count"): lambda: check_count(target),
        ("POST", "/experiments"): lambda: check_experiment(target, cases.VALID_CASES[0]),
        ("POST", "/experiments/md5"): lambda: check_md5(target),
        ("GET", "/devices"): lambda: check_devices(target),
        ("POST", "/devices"): lambda: check_insert(target, firmware),
    }
    if (method, path) not in checks:
        known = ", ".join(" ".join(pair) for pair in checks)
        raise LabError(f"No check knows {method} {path}; it is one of {known}.")
    return [check_health(target, server, nonce), checks[method, path]()]


__all__ = ["Database", "check_contract", "quick_check"]
