"""Checks of POST /devices while its database hangs, and after it died: 503 in time, and then as before."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from runner.contract.checking import Result, Rows
from runner.contract.connection import Answer, Target, fetch
from runner.contract.devices import Database, insert, new_tag
from runner.contract.experiments import PUBLISHED_BODY
from runner.contract.parallel_inserts import insert_many, read_pool, try_at_rest
from runner.model import LabError, Server

ANSWER_WITHIN_S = 5.5
"""The contract's 5 s, and half a second for a busy machine."""
AT_ONCE_S = 1.0
RECOVER_WITHIN_S = 5.0
MOST_CLIENTS = 200
RESTART_CLIENTS = 4
NO_ANSWER = 0
"""Stands for a status where no answer came."""


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
            timed = self._insert_while_paused(target)
        finally:
            self._database.resume()
        self._statuses = [answer.status if answer else NO_ANSWER for answer, _ in timed]
        slowest_s = max(seconds for _, seconds in timed)
        unworded = [answer.brief for answer, _ in timed if answer and answer.error is None]
        ok = set(self._statuses) == {503} and not unworded and slowest_s <= ANSWER_WITHIN_S
        return ok, (
            f"sent {self._clients} inserts to a database that hangs; expected 503 with an error within "
            f"{ANSWER_WITHIN_S:g} s; got {_counts(self._statuses)}, the last after {slowest_s:.2f} s; "
            f"without an error were {unworded[:3]}"
        )

    def _insert_while_paused(self, target: Target) -> list[tuple[Answer | None, float]]:
        with ThreadPoolExecutor(self._clients) as pool:
            parts = [pool.submit(self._insert_timed, target) for _ in range(self._clients)]
            while not all(part.done() for part in parts):
                self._look_around(target)
                time.sleep(0.05)
        return [part.result() for part in parts]

    def _insert_timed(self, target: Target) -> tuple[Answer | None, float]:
        began = time.monotonic()
        answer = None
        with suppress(OSError, LabError):
            # Twice the time: a late answer is not the same as none.
            (answer,) = insert_many(target, self._tag, 1, 2 * ANSWER_WITHIN_S)
        return answer, time.monotonic() - began

    def _look_around(self, target: Target) -> None:
        asked: list[tuple[str, str, bytes | None]] = [("GET", "/health", None), ("GET", "/no-such-path", None)]
        if "experiments" in self._server.implements:
            asked.append(("POST", "/experiments", PUBLISHED_BODY))
        for method, path, body in asked:
            began = time.monotonic()
            try:
                status = fetch(target, method, path, body).status
            except (OSError, LabError):
                status = NO_ANSWER
            self._others.append((f"{method} {path}", status, time.monotonic() - began))
        if "stats" in self._server.implements:
            self._waiting = max(self._waiting, read_pool(target)["waiting"])

    def judge_others(self, _target: Target) -> Result:
        slow = [f"{what}: {code} after {s:.2f} s" for what, code, s in self._others if code != 200 or s > AT_ONCE_S]
        return bool(self._others) and not slow, (
            f"asked {len(self._others)} times meanwhile; expected 200 within {AT_ONCE_S:g} s each time; "
            f"otherwise were {slow[:5]}"
        )

    def judge_waiting(self, _target: Target) -> Result:
        if "stats" not in self._server.implements or self._least_waiting <= 0:
            return True, "the server says nothing of its pool, or the pool is larger than what was sent"
        return self._waiting >= self._least_waiting, (
            f"{self._clients} requests at a pool that hangs; "
            f"expected waiting {self._least_waiting} or more at some time; got at most {self._waiting}"
        )

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
    ok = seen[-1] == 201 and set(seen[1:]) <= {201, 503}
    return ok, (
        f"expected 201 within {RECOVER_WITHIN_S:g} s, and 503 until then; "
        f"got {_counts(seen[1:])} in {time.monotonic() - began:.2f} s"
    )


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
    return ok, (
        f"killed the database under inserts; expected 201 or 503, and at most {len(statuses)} rows; "
        f"got {_counts(statuses)} and {rows} rows"
    )


def _insert_until(target: Target, firmware: str, over: threading.Event) -> list[int]:
    statuses = []
    while not over.is_set():
        statuses.append(_insert_patiently(target, firmware))
        # Refusals come at once: a server must not be flooded with requests that it cannot serve.
        time.sleep(0.005)
    return statuses


def _try_rows(database: Database, target: Target) -> Result:
    tag = new_tag("after")
    statuses = [insert(target, tag).status for _ in range(20)]
    rows = database.count(tag)
    detail = f"sent 20 inserts; expected 201 and 20 rows; got {_counts(statuses)}, {rows}"
    return statuses == [201] * 20 and rows == 20, detail
