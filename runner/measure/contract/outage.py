"""Checks of POST /devices while its database hangs, and after it died: 503 in time, and then as if nothing had been."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from runner.measure.contract.cases import PUBLISHED_BODY
from runner.measure.contract.crowd import insert_many, read_pool, try_at_rest
from runner.measure.contract.database import Database
from runner.measure.contract.devices import insert, new_tag
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import Answer, Target, fetch
from runner.model import Check, LabError, Server

ANSWER_WITHIN_S = 5.5
"""The contract's 5 s, and half a second for a busy machine."""
AT_ONCE_S = 1.0
RECOVER_WITHIN_S = 5.0
MOST_CLIENTS = 200
RESTART_CLIENTS = 4
NO_ANSWER = 0
"""Stands for a status where no answer came."""


def check_outage(target: Target, server: Server, database: Database, pool_size: int) -> Iterator[Check]:
    """Pause the database under more requests than the pool has connections, then kill it under a few."""
    outage = _Outage(target, server, database, new_tag("paused"), pool_size)
    yield check("database hangs: 503 within 5 s", outage.run)
    yield check("database hangs: all else answers at once", outage.judge_others)
    yield check("database hangs: pool tells who waits", outage.judge_waiting)
    yield check("database goes on: inserts work again", lambda: _try_recovered(target, new_tag("resumed")))
    yield check("pool: at rest after the database hung", lambda: try_at_rest(target))
    yield check("database dies: 201 or 503 meanwhile", partial(_try_restart, target, database))
    yield check("database is back: inserts work again", lambda: _try_recovered(target, new_tag("restarted")))
    # As late as can be: a server that tries again by itself may take its time.
    yield check("database is back: no row that nobody asked for", outage.judge_rows)
    yield check("database is back: rows equal answers", partial(_try_rows, target, database))
    yield check("pool: at rest after the database died", lambda: try_at_rest(target))


class _Outage:
    """One pause of the database, and what was seen meanwhile."""

    def __init__(self, target: Target, server: Server, database: Database, tag: str, pool_size: int) -> None:
        self._target = target
        self._server = server
        self._database = database
        self._tag = tag
        self._pool_size = pool_size
        # More than the pool has connections, where that is not too many threads for us.
        self._clients = min(pool_size + 10, MOST_CLIENTS)
        self._statuses: list[int] = []
        self._others: list[tuple[str, int, float]] = []
        self._waiting = 0

    def run(self) -> Result:
        insert_many(self._target, self._tag, 1)
        self._database.pause()
        try:
            timed = self._insert_while_paused()
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

    def _insert_while_paused(self) -> list[tuple[Answer | None, float]]:
        with ThreadPoolExecutor(self._clients) as pool:
            parts = [pool.submit(self._insert_timed) for _ in range(self._clients)]
            while not all(part.done() for part in parts):
                self._look_around()
                time.sleep(0.05)
        return [part.result() for part in parts]

    def _insert_timed(self) -> tuple[Answer | None, float]:
        began = time.monotonic()
        try:
            # Twice the time: a late answer is told from none.
            (timed,) = insert_many(self._target, self._tag, 1, 2 * ANSWER_WITHIN_S)
            answer = timed.answer
        except (OSError, LabError):
            answer = None
        return answer, time.monotonic() - began

    def _look_around(self) -> None:
        asked: list[tuple[str, str, bytes | None]] = [("GET", "/health", None), ("GET", "/no-such-path", None)]
        if "experiments" in self._server.implements:
            asked.append(("POST", "/experiments", PUBLISHED_BODY))
        for method, path, body in asked:
            began = time.monotonic()
            try:
                status = fetch(self._target, method, path, body).status
            except (OSError, LabError):
                status = NO_ANSWER
            self._others.append((f"{method} {path}", status, time.monotonic() - began))
        if "stats" in self._server.implements:
            self._waiting = max(self._waiting, read_pool(self._target)["waiting"])

    def judge_others(self) -> Result:
        slow = [
            f"{what}: {status} after {s:.2f} s" for what, status, s in self._others if status != 200 or s > AT_ONCE_S
        ]
        return bool(self._others) and not slow, (
            f"asked {len(self._others)} times meanwhile; expected 200 within {AT_ONCE_S:g} s each time; "
            f"otherwise were {slow[:5]}"
        )

    def judge_waiting(self) -> Result:
        if "stats" not in self._server.implements or self._clients <= self._pool_size:
            return True, "the server tells nothing of its pool, or the pool is larger than what was sent"
        least = self._clients - self._pool_size
        return self._waiting >= least, (
            f"{self._clients} requests at a pool of {self._pool_size} that hangs; "
            f"expected waiting {least} or more at some time; got at most {self._waiting}"
        )

    def judge_rows(self) -> Result:
        # What was on its way to the database when it stopped may be stored, though its client was told 503.
        good = 1 + self._statuses.count(201)
        most = 1 + len(self._statuses)
        rows = self._database.count(self._tag)
        return (
            good <= rows <= most,
            f"{good} answers with 201, {most - good} others; expected {good} to {most} rows; got {rows}",
        )


def _counts(statuses: list[int]) -> dict[int, int]:
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def _try_recovered(target: Target, firmware: str) -> Result:
    began = time.monotonic()
    seen: list[int] = []
    while time.monotonic() - began < RECOVER_WITHIN_S:
        with_answer = _insert_patiently(target, firmware)
        seen.append(with_answer)
        if with_answer == 201:
            break
        time.sleep(0.05)
    ok = seen[-1] == 201 and set(seen) <= {201, 503}
    return ok, (
        f"expected 201 within {RECOVER_WITHIN_S:g} s, and 503 until then; "
        f"got {_counts(seen)} in {time.monotonic() - began:.2f} s"
    )


def _insert_patiently(target: Target, firmware: str) -> int:
    (timed,) = insert_many(target, firmware, 1, ANSWER_WITHIN_S)
    return timed.answer.status


def _try_restart(target: Target, database: Database) -> Result:
    tag, over = new_tag("killed"), threading.Event()
    with ThreadPoolExecutor(RESTART_CLIENTS) as pool:
        parts: list[Future[list[int]]] = [pool.submit(_insert_until, target, tag, over) for _ in range(RESTART_CLIENTS)]
        try:
            time.sleep(0.1)
            database.restart()
            time.sleep(0.1)
        finally:
            over.set()
    statuses = [status for part in parts for status in part.result()]
    rows = database.count(tag)
    # A statement whose answer was lost may be stored; whether what was answered is, is the database's to keep.
    good = statuses.count(201)
    ok = set(statuses) <= {201, 503} and good > 0 and rows <= len(statuses)
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


def _try_rows(target: Target, database: Database) -> Result:
    tag = new_tag("after")
    statuses = [insert(target, tag).status for _ in range(20)]
    rows = database.count(tag)
    return statuses == [
        201
    ] * 20 and rows == 20, f"sent 20 inserts; expected 201 and 20 rows; got {_counts(statuses)}, {rows}"
