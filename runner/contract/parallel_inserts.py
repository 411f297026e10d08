"""Checks of POST /devices by many clients at once: every answer is a row, and the pool keeps its limits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from runner.contract.checking import Result, Rows
from runner.contract.connection import TIMEOUT_S, Answer, Target, connect, request
from runner.contract.devices import Database, device_body, new_tag, require_device
from runner.contract.endpoints import read_stats
from runner.model import LabError

CLIENTS = 32
INSERTS_EACH = 20
IDLE_WITHIN_S = 2.0


def parallel_rows(database: Database, pool_size: int) -> Rows:
    """Return rows for parallel inserts, and for the pool while they run and afterwards."""
    return {
        "pool: size as configured": partial(_try_size, pool_size),
        f"devices-insert: {CLIENTS} clients, {INSERTS_EACH} inserts each": partial(_try_parallel, database),
        "pool: at rest, in_use and waiting are 0": try_at_rest,
    }


def insert_many(target: Target, firmware: str, times: int, timeout_s: float = TIMEOUT_S) -> list[Answer]:
    """Insert one after the other over one kept connection."""
    answers = []
    with connect(target, timeout_s) as connection:
        for _ in range(times):
            connection.send(request("POST", "/devices", device_body(firmware=firmware)))
            answers.append(connection.read())
    return answers


def read_pool(target: Target) -> dict[str, int]:
    """Return `pool` of /stats; LabError where it is null or holds more open connections than its size."""
    pool = read_stats(target)["pool"]
    if not isinstance(pool, dict) or any(type(value) is not int for value in pool.values()):
        raise LabError(f"the pool of GET /stats is {pool!r}, which is not the contract's shape", 1)
    if pool["in_use"] + pool["idle"] > pool["size"]:
        raise LabError(f"GET /stats has more open connections than the pool's size: {pool}", 1)
    return pool


def try_at_rest(target: Target) -> Result:
    """Wait until no connection is in use and nobody waits for one."""
    deadline = time.monotonic() + IDLE_WITHIN_S
    while not (ok := (pool := read_pool(target))["in_use"] == pool["waiting"] == 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    return ok, f"within {IDLE_WITHIN_S:g} s, got {pool}"


def _try_size(pool_size: int, target: Target) -> Result:
    pool = read_pool(target)
    return pool["size"] == pool_size, f"expected size {pool_size}; got {pool}"


def _try_parallel(database: Database, target: Target) -> Result:
    tag = new_tag("crowd")
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = [pool.submit(insert_many, target, tag, INSERTS_EACH, 5 * TIMEOUT_S) for _ in range(CLIENTS)]
        while not all(part.done() for part in parts):
            read_pool(target)
            time.sleep(0.02)
    answers = [answer for part in parts for answer in part.result() if require_device(answer, {"firmware": tag})]
    bodies = [body for answer in answers if isinstance(body := answer.json(), dict)]
    return _judge(bodies, {row[0] for row in database.rows(tag)}, database.count(tag))


def _judge(bodies: list[dict[str, object]], stored: set[object], rows: int) -> Result:
    ids = {body["id"] for body in bodies}
    uuids = {UUID(str(body["uuid"])).int for body in bodies}
    if not len(ids) == len(uuids) == len(bodies):
        return False, f"{len(bodies)} answers have {len(ids)} ids and {len(uuids)} uuids; expected all different"
    # A bit that is the same in 640 random numbers is not random: version and variant have 6 such bits.
    always, never = ~0, 0
    for uuid in uuids:
        always, never = always & uuid, never | uuid
    constant = 128 - (never & ~always).bit_count()
    if constant > 6:
        return False, f"{constant} bits are the same in {len(uuids)} uuids; expected the 6 of version 4"
    if all(str(body["created_at"]).endswith("000Z") for body in bodies):
        return False, f"created_at of {len(bodies)} answers has no microseconds; the last is {bodies[-1]['created_at']}"
    ok = stored == ids and rows == len(bodies)
    return ok, f"{len(bodies)} answers with 201, all different; expected the same ids as rows; the table has {rows}"
