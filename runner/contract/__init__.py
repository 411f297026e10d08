"""Check a started server against the HTTP contract in servers/CONTRACT.md.

Most checks are a `rows.Exchange`, which states the message to send, the expected answers, and the
expected state of the connection afterwards. Checks that need time, other clients or the database
are functions. All checks send their requests by `client`, which counts the requests. The server
must count the same number of requests.
"""

from __future__ import annotations

import secrets

from runner.contract.client import Target
from runner.contract.connections import (
    JUNK,
    Junk,
    Reading,
    connection_rows,
    endurance_rows,
    pipelining_rows,
)
from runner.contract.devices import RECOVER_WITHIN_S, DeviceDatabase, insert_row, insert_rows
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
    junk: Junk = JUNK,
    recover_within_s: float = RECOVER_WITHIN_S,
) -> list[Check]:
    """Check a started server against each part of the contract that the server implements.

    Return the result of each check. The checks take about 15 s. No other client may use the server
    meanwhile, because the server's counters are compared with the number of requests that the
    checks sent.

    - `resident_bytes` and `open_files` are functions that read the server's memory and the number
      of its open files. A function returns None if it cannot read the number. If a function is not
      given, the check for this kind of leak is left out.
    - `database` is the database behind the server's DATABASE_URL, or None. The checks pause and
      kill this database.
    - `pool_size` is the server's DB_POOL_SIZE.
    - `seed` is the seed of the random bodies. To send the same bodies as an earlier check, pass the
      seed of that check.
    - To find leaks, the checks send several rounds of complete, abandoned and malformed requests.
      `junk` says how many complete and how many abandoned requests are in each round.
    - Inserts must work again within `recover_within_s` after an outage of the database.
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
    inserts = insert_rows(server, database, pool_size, recover_within_s)
    rounds = endurance_rows(server, resident_bytes, open_files, junk)
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
    """Check /health, and the method and path that will be loaded, in well under 0.1 s.

    The check of an insert leaves one row with `firmware` in the database's table. Raise LabError if
    no check covers this method and path.
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
        raise LabError(f"There is no check for {method} {path}: choose from {known}.")
    target = Target(host, port)
    return [
        *check_rows(target, {"health": health}),
        *check_rows(target, dict([rows[method, path]])),
    ]
