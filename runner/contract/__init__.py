"""The HTTP contract of servers/CONTRACT.md, held against a started server.

Most checks are rows: `rows.Exchange` says what is sent, what is answered and what must be true
then. What needs time, other clients or the database is a function. `client` is what all share; it
keeps the tally of what was sent, which must equal the server's counters.
"""

from __future__ import annotations

import secrets

from runner.contract.client import Target
from runner.contract.connections import Reading, connection_rows, endurance_rows, pipelining_rows
from runner.contract.devices import DeviceDatabase, insert_row, insert_rows
from runner.contract.endpoints import (
    COUNT_ROW,
    DEVICES_ROW,
    counted,
    counting_rows,
    endpoint_rows,
    health_row,
)
from runner.contract.experiments import MD5_ROW, PUBLISHED_ROW, experiment_rows
from runner.contract.framing import body_rows, head_rows, smuggling_rows
from runner.contract.random_experiments import random_rows
from runner.contract.rows import Rows, check_rows
from runner.model import Check, LabError, Server


def check_contract(
    host: str,
    port: int,
    server: Server,
    nonce: str,
    *,
    resident_bytes: Reading | None = None,
    open_files: Reading | None = None,
    database: DeviceDatabase | None = None,
    pool_size: int = 50,
    seed: int | None = None,
) -> list[Check]:
    """Hold a started server against everything in the contract that it implements.

    Takes about 15 s.

    Nothing else may talk to the server meanwhile: its counters are compared with what was sent.
    `resident_bytes` and `open_files` read the server's memory and its number of open files, None
    where they cannot; without them there are no checks for leaks. `database` is what the server's
    DATABASE_URL leads to, None if it has none; it is paused and killed on the way. `pool_size`
    is the server's DB_POOL_SIZE. `seed` repeats the random bodies of an earlier check.
    """
    target = Target(host, port)
    seed = secrets.randbits(32) if seed is None else seed
    requests: Rows = {
        **endpoint_rows(server, nonce),
        **experiment_rows(server),
        **random_rows(server, seed),
        **connection_rows(server),
        **pipelining_rows(server, seed),
        **head_rows(),
        **body_rows(server),
        **smuggling_rows(server),
        **counting_rows(server),
    }
    inserts = insert_rows(server, database, pool_size)
    rounds = endurance_rows(server, resident_bytes, open_files)
    return [
        *counted(
            target, server, "count: equals what was sent so far", check_rows(target, requests)
        ),
        *counted(target, server, "count: equals the inserts sent", check_rows(target, inserts)),
        *counted(target, server, "count: equals what the rounds sent", check_rows(target, rounds)),
        *check_rows(target, {"still answers after all this": health_row(server, nonce)}),
    ]


def quick_check(
    host: str,
    port: int,
    server: Server,
    nonce: str,
    method: str,
    path: str,
    firmware: str = "check",
) -> list[Check]:
    """Check, in well under 0.1 s, the health and the one method and path that are about to be
    loaded.

    An insert leaves one row with `firmware`. Raises LabError for what no check knows.
    """
    health = health_row(server, nonce)
    rows = {
        ("GET", "/health"): ("health", health),
        ("GET", "/count"): ("count: shape", COUNT_ROW),
        ("POST", "/experiments"): ("experiments: the published body", PUBLISHED_ROW),
        ("POST", "/experiments/md5"): ("md5: digest", MD5_ROW),
        ("GET", "/devices"): ("devices: list", DEVICES_ROW),
        ("POST", "/devices"): ("devices-insert: answer", insert_row(firmware)),
    }
    if (method, path) not in rows:
        known = ", ".join(" ".join(pair) for pair in rows)
        raise LabError(f"No check knows {method} {path}; it is one of {known}.")
    target = Target(host, port)
    return [
        *check_rows(target, {"health": health}),
        *check_rows(target, dict([rows[method, path]])),
    ]
