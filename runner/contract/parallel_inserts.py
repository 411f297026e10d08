"""Checks of POST /devices by many clients at once: while the database is well, while it hangs, and after it died."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from uuid import UUID

from runner.contract.checking import Result, Rows
from runner.contract.connection import HEALTH, TIMEOUT_S, UNKNOWN, Answer, Target, connect, fetch, shorten
from runner.contract.devices import Database, insertion, new_tag, require_device
from runner.contract.endpoints import read_stats
from runner.contract.experiments import PUBLISHED
from runner.model import LabError, Server

CLIENTS = 32
INSERTS_EACH = 20
IDLE_WITHIN_S = 2.0
ANSWER_WITHIN_S = 5.5
"""The contract's 5 s, and half a second for a busy machine."""
AT_ONCE_S = 1.0
RECOVER_WITHIN_S = 5.0
MOST_CLIENTS = 200
RESTART_CLIENTS = 4
NO_ANSWER = 0
"""Stands for a status where no answer came."""


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
            connection.send(insertion(firmware))
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


# --- while the database hangs, and after it died ------------------------------------------------------------


def outage_rows(server: Server, database: Database, pool_size: int) -> Rows:
    """Return rows that pause the database under more requests than the pool has connections, then kill it."""
    outage = _Outage(server, database, pool_size)
    return {
        "database hangs: 503 within 5 s": outage.run,
        "database hangs: all else answers at once": outage.judge_others,
        "database hangs: pool tells who waits": outage.judge_waiting,
        "database goes on: inserts work again": _try_recovered,
        "pool: at rest after the database hung": try_at_rest,
        "database dies: 201 or 503 meanwhile": partial(_try_restart, database),
        "database is back: inserts work again": _try_recovered,
        # As late as can be: a server that tries again by itself may take its time.
        "database is back: no row that nobody asked for": outage.judge_rows,
        "database is back: rows equal answers": partial(_try_rows, database),
        "pool: at rest after the database died": try_at_rest,
    }


class _Outage:
    """One pause of the database, and what was seen meanwhile."""

    def __init__(self, server: Server, database: Database, pool_size: int) -> None:
        self._server = server
        self._database = database
        self._tag = new_tag("paused")
        # More than the pool has connections, where that is not too many threads for us.
        self._clients = min(pool_size + 10, MOST_CLIENTS)
        self._least_waiting = self._clients - pool_size
        self._statuses: list[int] = []
        self._others: list[tuple[str, int, float]] = []
        self._waiting = 0

    def run(self, target: Target) -> Result:
        insert_many(target, self._tag, 1)
        self._database.pause()
        try:
            answers = self._insert_while_paused(target)
        finally:
            self._database.resume()
        self._statuses = [answer.status if answer else NO_ANSWER for answer in answers]
        slowest_s = max((answer.came_s - answer.sent_s for answer in answers if answer), default=0.0)
        unworded = [answer.brief for answer in answers if answer and answer.error is None][:3]
        ok = set(self._statuses) == {503} and not unworded and slowest_s <= ANSWER_WITHIN_S
        return ok, (
            f"sent {self._clients} inserts; expected 503 with an error within {ANSWER_WITHIN_S:g} s; "
            f"got {_counts(self._statuses)}, the last after {slowest_s:.2f} s; without an error were {unworded}"
        )

    def _insert_while_paused(self, target: Target) -> list[Answer | None]:
        with ThreadPoolExecutor(self._clients) as pool:
            parts = [pool.submit(self._insert, target) for _ in range(self._clients)]
            while not all(part.done() for part in parts):
                self._look_around(target)
                time.sleep(0.05)
        return [part.result() for part in parts]

    def _insert(self, target: Target) -> Answer | None:
        with suppress(OSError, LabError):
            # Twice the time: a late answer is not the same as none.
            return insert_many(target, self._tag, 1, 2 * ANSWER_WITHIN_S)[0]
        return None

    def _look_around(self, target: Target) -> None:
        messages = [HEALTH, UNKNOWN, *([PUBLISHED] if "experiments" in self._server.implements else [])]
        for message in messages:
            began = time.monotonic()
            try:
                status = fetch(target, message).status
            except (OSError, LabError):
                status = NO_ANSWER
            self._others.append((shorten(message.data, 16), status, time.monotonic() - began))
        if "stats" in self._server.implements:
            self._waiting = max(self._waiting, read_pool(target)["waiting"])

    def judge_others(self, _target: Target) -> Result:
        slow = [f"{what}: {code} after {s:.2f} s" for what, code, s in self._others if code != 200 or s > AT_ONCE_S]
        detail = (
            f"expected 200 within {AT_ONCE_S:g} s of {len(self._others)} requests meanwhile; otherwise were {slow[:5]}"
        )
        return bool(self._others) and not slow, detail

    def judge_waiting(self, _target: Target) -> Result:
        if "stats" not in self._server.implements or self._least_waiting <= 0:
            return True, "the server says nothing of its pool, or the pool is larger than what was sent"
        detail = f"sent {self._clients} requests; expected waiting {self._least_waiting} or more; got {self._waiting}"
        return self._waiting >= self._least_waiting, detail

    def judge_rows(self, _target: Target) -> Result:
        # What was on its way to the database when it stopped may be stored, though its client got a 503.
        good, most = 1 + self._statuses.count(201), 1 + len(self._statuses)
        rows = self._database.count(self._tag)
        detail = f"{good} answers with 201, {most - good} others; expected {good} to {most} rows; got {rows}"
        return good <= rows <= most, detail


def _counts(statuses: list[int]) -> dict[int, int]:
    return dict(sorted(Counter(statuses).items()))


def _insert_patiently(target: Target, firmware: str) -> int:
    return insert_many(target, firmware, 1, ANSWER_WITHIN_S)[0].status


def _try_recovered(target: Target) -> Result:
    tag, began, seen = new_tag("recovered"), time.monotonic(), [NO_ANSWER]
    while seen[-1] != 201 and time.monotonic() - began < RECOVER_WITHIN_S:
        seen.append(_insert_patiently(target, tag))
        time.sleep(0.05)
    detail = f"expected 201 within {RECOVER_WITHIN_S:g} s, and 503 until then; got {_counts(seen[1:])}"
    return seen[-1] == 201 and set(seen[1:]) <= {201, 503}, detail


def _try_restart(database: Database, target: Target) -> Result:
    tag, over = new_tag("killed"), threading.Event()
    with ThreadPoolExecutor(RESTART_CLIENTS) as pool:
        parts = [pool.submit(_insert_until, target, tag, over) for _ in range(RESTART_CLIENTS)]
        try:
            time.sleep(0.1)
            database.restart()
            time.sleep(0.1)
        finally:
            over.set()
    statuses = [status for part in parts for status in part.result()]
    rows = database.count(tag)
    # A statement whose answer was lost may be stored; whether what was answered is stored, is up to the database.
    ok = set(statuses) <= {201, 503} and 201 in statuses and rows <= len(statuses)
    return ok, f"expected 201 or 503, and at most {len(statuses)} rows; got {_counts(statuses)} and {rows} rows"


def _insert_until(target: Target, firmware: str, over: threading.Event) -> list[int]:
    statuses = []
    while not over.is_set():
        statuses.append(_insert_patiently(target, firmware))
        # Refusals come at once: a server must not be flooded with requests that it cannot serve.
        time.sleep(0.005)
    return statuses


def _try_rows(database: Database, target: Target) -> Result:
    tag = new_tag("after")
    statuses = [fetch(target, insertion(tag)).status for _ in range(20)]
    rows = database.count(tag)
    detail = f"sent 20 inserts; expected 201 and 20 rows; got {_counts(statuses)}, {rows}"
    return statuses == [201] * 20 and rows == 20, detail
