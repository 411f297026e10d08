"""Checks of POST /devices by many clients at once: every answer is a row, and the pool keeps its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from runner.measure.contract.database import Database
from runner.measure.contract.device_cases import device_body
from runner.measure.contract.devices import fault_of, new_tag
from runner.measure.contract.endpoints import read_stats
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import ONCE, TIMEOUT_S, Answer, Target, connect, request
from runner.model import Check, LabError

CLIENTS = 32
INSERTS_EACH = 20
IDLE_WITHIN_S = 2.0


@dataclass(frozen=True)
class Timed:
    """An answer with the Unix times around it."""

    answer: Answer
    first_s: float
    last_s: float


def check_crowd(target: Target, database: Database, pool_size: int) -> Iterator[Check]:
    """Check parallel inserts, and the pool while they run and afterwards."""
    yield check("pool: size as configured", partial(_try_size, target, pool_size))
    yield check(
        f"devices-insert: {CLIENTS} clients, {INSERTS_EACH} inserts each", partial(_try_crowd, target, database)
    )
    yield check("pool: at rest, in_use and waiting are 0", lambda: try_at_rest(target))


def insert_many(target: Target, firmware: str, times: int, timeout_s: float = TIMEOUT_S) -> list[Timed]:
    """Insert one after the other over one kept connection."""
    timed = []
    with connect(target, timeout_s) as connection:
        for _ in range(times):
            first_s = time.time()
            connection.send(request("POST", "/devices", device_body(firmware=firmware)), ONCE)
            timed.append(Timed(connection.read_answer(), first_s, time.time()))
    return timed


def read_pool(target: Target) -> dict[str, int]:
    """Return `pool` of /stats; LabError where it is null or holds more open connections than its size."""
    pool = read_stats(target)["pool"]
    if not isinstance(pool, dict) or any(type(value) is not int for value in pool.values()):
        raise LabError(f"GET /stats told {pool!r} of the pool, which is not the contract's shape", 1)
    if pool["in_use"] + pool["idle"] > pool["size"]:
        raise LabError(f"GET /stats told of more open connections than the pool's size: {pool}", 1)
    return pool


def try_at_rest(target: Target) -> Result:
    """Wait until no connection is in use and nobody waits for one."""
    return wait_for(lambda: read_pool(target), lambda pool: pool["in_use"] == pool["waiting"] == 0, IDLE_WITHIN_S)


def wait_for(read: Callable[[], dict[str, int]], is_good: Callable[[dict[str, int]], bool], within_s: float) -> Result:
    """Read until the reading is good or the time is over."""
    deadline = time.monotonic() + within_s
    reading = read()
    while not is_good(reading) and time.monotonic() < deadline:
        time.sleep(0.05)
        reading = read()
    return is_good(reading), f"within {within_s:g} s, got {reading}"


def _try_size(target: Target, pool_size: int) -> Result:
    pool = read_pool(target)
    return pool["size"] == pool_size, f"expected size {pool_size}; got {pool}"


def _try_crowd(target: Target, database: Database) -> Result:
    tag = new_tag("crowd")
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        parts = [pool.submit(insert_many, target, tag, INSERTS_EACH, 5 * TIMEOUT_S) for _ in range(CLIENTS)]
        while not all(part.done() for part in parts):
            read_pool(target)
            time.sleep(0.02)
    timed = [one for part in parts for one in part.result()]
    for one in timed:
        fault = fault_of(one.answer, {"firmware": tag}, one.first_s, one.last_s)
        if fault:
            return False, f"one of {len(timed)} parallel inserts: {one.answer.brief}: {fault}"
    bodies = [body for one in timed if isinstance(body := one.answer.json(), dict)]
    return _judge_crowd(bodies, {row[0] for row in database.rows(tag)}, database.count(tag))


def _judge_crowd(bodies: list[dict[str, object]], stored: set[object], rows: int) -> Result:
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
