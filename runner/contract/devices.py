"""Checks of POST /devices: answers, rows of the table, validation, parallel inserts and outages."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID, uuid4

from runner.contract.client import TIMEOUT_S, Target, TimedResponse, shorten
from runner.contract.endpoints import DEVICES_ROW, read_stats
from runner.contract.experiments import (
    PUBLISHED,
    ExperimentCase,
    accepted,
    case_row,
    json_cases,
    rejected,
    text_cases,
)
from runner.contract.messages import HEALTH, MAX_BODY_BYTES, UNKNOWN, Message, request
from runner.contract.rows import Exchange, Expected, Result, Rows, error, status
from runner.model import LabError, Server

PATH = "/devices"
RECOVER_WITHIN_S = 5.0  # by the contract, inserts must work again this soon after an outage
MAX_CHARS = 100
MAC = "02-00-00-00-00-01"
ANSWERED = ["id", "uuid", "mac", "firmware", "created_at"]
CLOCK_S = 0.05  # allowed difference between the clocks of server and lab, which may be coarse
UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CREATED_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

VERBATIM = (
    *(
        "'; DROP TABLE devices; --",
        "') RETURNING (SELECT 1) --",
        '"devices"',
        "$1",
        "%s %(mac)s {} {0} :mac ?",
    ),
    *("\\", "\\x41\\000", "E'\\n'", "NULL", "null", " ", " x ", "\x01\x1f\x7f\n\r\t", "e\u0301 é"),
    *("\u202eright to left\u202c", "\ufeff\ufffe\uffff\U0010ffff", "<&>'\"/\u2028"),
)
"""Strings that must be stored and returned unchanged."""


class DeviceDatabase(Protocol):
    """A PostgreSQL database with the table of servers/schema.sql.

    Only the server under test writes to the table. A method raises LabError if the database does
    not do what the method asks for.
    """

    def rows(self, firmware: str) -> Sequence[tuple[Any, ...]]:
        """Return the table's rows that have this firmware: (id, uuid, mac, firmware, created_at).

        The uuid is a UUID, and created_at is a datetime with a time zone.
        """

    def count(self, firmware: str) -> int:
        """Return the number of the table's rows that have this firmware."""

    def pause(self) -> None:
        """Pause all processes of the database, by SIGSTOP or, in a container, by Docker's pause.

        The kernel still accepts connections, but the database does not answer.
        """

    def resume(self) -> None:
        """Let the processes that `pause` has paused continue."""

    def restart(self) -> None:
        """Kill the database with SIGKILL and restart it on the same address with the same data.

        Wait until the database answers.
        """


def device_body(mac: object = MAC, firmware: object = "check", **more: object) -> bytes:
    """Return a device as JSON; `more` adds fields."""
    return json.dumps({"mac": mac, "firmware": firmware} | more, ensure_ascii=False).encode()


def _cases() -> Iterator[ExperimentCase]:
    for field, other in (("mac", "firmware"), ("firmware", "mac")):
        body = partial(lambda name, value: device_body(**{name: value}), field)
        yield from text_cases(field, field, MAX_CHARS, body)
        yield rejected(f"no {field}", field, json.dumps({other: "x"}).encode())
        yield rejected(f"{field} empty", field, body(""))
        for text in VERBATIM:
            yield accepted(f"{field} {text!a}", body(text))
        for text in ("\0", "a\0b", "a\0"):
            # A column of PostgreSQL's type `text` can store every character except NUL.
            yield rejected(f"{field} {text!a}", field, body(text))
        escaped = body("TEXT").replace(b"TEXT", b"\\ud83d\\ude00" * MAX_CHARS)
        yield accepted(f"{field} of {MAX_CHARS} escaped surrogate pairs", escaped)
    yield accepted(
        "fields of the answer are ignored", device_body(id=5, uuid="x", created_at="2000-01-01")
    )
    yield rejected("an object without fields", None, b"{}")
    yield from json_cases(device_body("TEXT"), b"TEXT")
    yield rejected(
        "an array of fields instead of an object", None, b'["02-00-00-00-00-01","check"]'
    )


CASES = tuple(_cases())


def new_tag(what: str) -> str:
    """Return a firmware value that no other row of the table has."""
    return f"{what}-{uuid4().hex}"


def insertion(firmware: str) -> Message:
    """Return a request that inserts a device."""
    return request("POST", PATH, device_body(firmware=firmware))


def insert_rows(
    server: Server,
    database: DeviceDatabase | None,
    pool_size: int,
    recover_within_s: float = RECOVER_WITHIN_S,
) -> Rows:
    """Return the checks of inserts.

    If the server does not implement inserts, there are no checks. If `database` is None, the checks
    require that the server refuses inserts.
    """
    if "devices-insert" not in server.implements:
        return {}
    if database is None:
        return rows_without_database()
    single = device_rows(database)
    many = parallel_rows(database, pool_size)
    return {**single, **many, **outage_rows(server, database, pool_size, recover_within_s)}


def device_rows(database: DeviceDatabase) -> Rows:
    """Return checks of single inserts, which compare each answer with the row in the table."""

    def is_compact(answer: TimedResponse) -> bool:
        return (
            answer.status == 201
            and answer.body == json.dumps(answer.json(), separators=(",", ":")).encode()
        )

    def stored(case: ExperimentCase, answer: TimedResponse) -> bool:
        sent = json.loads(case.body)
        row = _row_of(answer)
        return (sent["mac"], sent["firmware"]) == row[2:4] and row in database.rows(
            sent["firmware"]
        )

    row_is_answer = partial(_try_row, database)
    too_large = request("POST", PATH, device_body().ljust(MAX_BODY_BYTES + 1))
    return {
        "devices-insert: answer": insert_row(new_tag("single")),
        "devices-insert: byte for byte": Exchange(
            insertion(new_tag("bytes")), Expected("201 and compact JSON", is_compact)
        ),
        "devices-insert: the row is the answer": row_is_answer,
        **{f"devices-insert: {case.name}": case_row(PATH, case, stored) for case in CASES},
        "devices-insert: a body of 64 KiB and 1 byte": Exchange(too_large, status(413)),
        "devices-insert: the table is still there": row_is_answer,
        "devices-insert: GET /devices is as before": DEVICES_ROW,
    }


def rows_without_database() -> Rows:
    """Return checks of a server that was started without DATABASE_URL.

    The server must answer inserts with 503, and `pool` must be null in the answer of /stats.
    """

    def has_no_pool(target: Target) -> Result:
        pool = read_stats(target)["pool"]
        return pool is None, f"expected pool null without a database; got {pool}"

    return {
        "devices-insert: 503 without a database": Exchange(insertion(new_tag("none")), error(503)),
        "stats: pool is null without a database": has_no_pool,
    }


def insert_row(firmware: str) -> Exchange:
    """Return the check of one insert.

    The server must answer with 201 and the five fields of the inserted device.
    """
    sent = {"mac": MAC, "firmware": firmware}
    words = f"201 and {', '.join(ANSWERED)}"
    return Exchange(
        insertion(firmware), Expected(words, lambda answer: require_device(answer, sent))
    )


def require_device(answer: TimedResponse, sent: Mapping[str, object]) -> bool:
    """Return True if an answer to an insert is right; otherwise raise LabError with the reason.

    `sent` contains the fields that were sent, which the answer must repeat.
    """
    body = answer.json()
    if (
        answer.status != 201
        or not answer.is_json
        or not isinstance(body, dict)
        or list(body) != ANSWERED
    ):
        raise LabError(
            f"{answer.brief}: expected 201 with the fields {', '.join(ANSWERED)} in this order", 1
        )
    rules = {
        "the id is a whole number of 1 or more": type(body["id"]) is int and body["id"] >= 1,
        "mac and firmware are what was sent": {key: body[key] for key in sent} == sent,
        "the uuid is of version 4, in lower case": bool(UUID_4.fullmatch(str(body["uuid"]))),
        "created_at is UTC with six digits of a second and Z": bool(
            CREATED_AT.fullmatch(str(body["created_at"]))
        ),
    }
    if broken := [rule for rule, is_kept in rules.items() if not is_kept]:
        raise LabError(f"{answer.brief}: expected that {' and '.join(broken)}", 1)
    took_s = answer.came_s - answer.sent_s
    late_s = datetime.fromisoformat(body["created_at"]).timestamp() - answer.sent_s
    if not -CLOCK_S <= late_s <= took_s + CLOCK_S:
        raise LabError(
            f"created_at is {late_s:.3f} s after the request was sent; expected a time between "
            f"the request and its answer, which came after {took_s:.3f} s",
            1,
        )
    return True


def _row_of(answer: TimedResponse) -> tuple[object, ...]:
    """Return the row that the table must have, according to the answer to an insert.

    The values have the same types as in `DeviceDatabase.rows`. Raise LabError if the server did not
    accept the insert.
    """
    body = answer.json()
    if answer.status != 201 or not isinstance(body, dict):
        raise LabError(f"POST /devices answered {answer.brief}", 1)
    created_at = datetime.fromisoformat(body["created_at"])
    return body["id"], UUID(body["uuid"]), body["mac"], body["firmware"], created_at


def _try_row(database: DeviceDatabase, target: Target) -> Result:
    tag = new_tag("row")
    answer = target.fetch(insertion(tag))
    rows = list(database.rows(tag))
    detail = (
        f"sent POST /devices; got {answer.brief}; expected exactly this row in the table; it has "
        f"{rows}"
    )
    return rows == [_row_of(answer)], detail


CLIENTS = 32
INSERTS_EACH = 20
IDLE_WITHIN_S = 2.0
ANSWER_WITHIN_S = 5.5  # the contract's limit of 5 s, plus 0.5 s because the machine may be busy
AT_ONCE_S = 1.0
MOST_CLIENTS = 200
RESTART_CLIENTS = 4
NO_ANSWER = 0  # status of a request that got no answer


def parallel_rows(database: DeviceDatabase, pool_size: int) -> Rows:
    """Return checks of parallel inserts, and of the server's pool during and after the inserts."""

    def has_size(target: Target) -> Result:
        pool = read_pool(target)
        return pool["size"] == pool_size, f"expected size {pool_size}; got {pool}"

    return {
        "pool: size as configured": has_size,
        f"devices-insert: {CLIENTS} clients, {INSERTS_EACH} inserts each": partial(
            _try_parallel, database
        ),
        "pool: at rest, in_use and waiting are 0": try_at_rest,
    }


def insert_many(
    target: Target, firmware: str, times: int = 1, timeout_s: float = TIMEOUT_S
) -> list[TimedResponse]:
    """Insert `times` devices one after the other over one connection, and return the answers."""
    answers = []
    with target.connect(timeout_s) as connection:
        for _ in range(times):
            connection.send(insertion(firmware))
            answers.append(connection.read())
    return answers


def read_pool(target: Target) -> dict[str, int]:
    """Return the member `pool` of /stats.

    Raise LabError if `pool` is null, or if the pool has more open connections than its size allows.
    """
    pool: dict[str, int] | None = read_stats(target)["pool"]
    if pool is None:
        raise LabError("the pool of GET /stats is null", 1)
    if pool["in_use"] + pool["idle"] > pool["size"]:
        raise LabError(f"GET /stats has more open connections than the pool's size: {pool}", 1)
    return pool


def try_at_rest(target: Target) -> Result:
    """Check that the pool comes to rest within IDLE_WITHIN_S.

    At rest, no connection of the pool is in use, and no request waits for a connection.
    """
    deadline = time.monotonic() + IDLE_WITHIN_S
    while (
        not (ok := (pool := read_pool(target))["in_use"] == pool["waiting"] == 0)
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return ok, f"expected in_use and waiting to be 0 within {IDLE_WITHIN_S:g} s; got {pool}"


def _try_parallel(database: DeviceDatabase, target: Target) -> Result:
    tag = new_tag("crowd")
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = [
            pool.submit(insert_many, target, tag, INSERTS_EACH, 5 * TIMEOUT_S)
            for _ in range(CLIENTS)
        ]
        while not all(part.done() for part in parts):
            read_pool(target)
            time.sleep(0.02)
    answers = [
        answer
        for part in parts
        for answer in part.result()
        if require_device(answer, {"firmware": tag})
    ]
    bodies = [answer.json() for answer in answers]
    ids = {body["id"] for body in bodies}
    uuids = {UUID(str(body["uuid"])).int for body in bodies}
    if not len(ids) == len(uuids) == len(bodies):
        return (
            False,
            f"{len(bodies)} answers have {len(ids)} different ids and {len(uuids)} different "
            "uuids; expected a new id and uuid in each answer",
        )
    # A bit that is equal in all 640 UUIDs is not random. Only six bits may be constant, because the
    # version and the variant of a UUID fix six bits.
    always = ~0
    never = 0
    for uuid in uuids:
        always = always & uuid
        never = never | uuid
    constant = 128 - (never & ~always).bit_count()
    if constant > 6:
        return (
            False,
            f"{constant} bits are the same in all {len(uuids)} uuids; expected only the 6 bits "
            "that version 4 fixes",
        )
    if all(str(body["created_at"]).endswith("000Z") for body in bodies):
        return (
            False,
            f"created_at has no microseconds in any of {len(bodies)} answers; the last one is "
            f"{bodies[-1]['created_at']}",
        )
    rows = database.count(tag)
    ok = {row[0] for row in database.rows(tag)} == ids and rows == len(bodies)
    return (
        ok,
        f"got {len(bodies)} answers with 201 and different ids; expected one row for each of "
        f"these ids; the table has {rows} rows",
    )


def outage_rows(
    server: Server,
    database: DeviceDatabase,
    pool_size: int,
    recover_within_s: float = RECOVER_WITHIN_S,
) -> Rows:
    """Return checks that pause and kill the database while inserts are under way.

    During the pause, the checks send more inserts than the pool has connections, but at most
    MOST_CLIENTS. After each outage, inserts must work again within `recover_within_s`.
    """
    recovered = partial(_try_recovered, recover_within_s)
    outage = _Outage(server, database, pool_size)
    return {
        "database hangs: 503 within 5 s": outage.run,
        "database hangs: all else answers at once": outage.judge_others,
        "database hangs: pool counts waiting requests": outage.judge_waiting,
        "database goes on: inserts work again": recovered,
        "pool: at rest after the database hung": try_at_rest,
        "database dies: 201 or 503 meanwhile": partial(_try_restart, database),
        "database is back: inserts work again": recovered,
        # This check is about the inserts during the pause, but it comes later than the other checks
        # of the pause, because a server may wait before it retries an insert.
        "database is back: no more rows than inserts": outage.judge_rows,
        "database is back: rows equal answers": partial(_try_rows, database),
        "pool: at rest after the database died": try_at_rest,
    }


class _Outage:
    """One pause of the database, and the checks of what the server did during the pause."""

    def __init__(self, server: Server, database: DeviceDatabase, pool_size: int) -> None:
        self._server = server
        self._database = database
        self._tag = new_tag("paused")
        # Send more requests than the pool has connections, so that some requests must wait. But
        # use at most MOST_CLIENTS client threads.
        self._clients = min(pool_size + 10, MOST_CLIENTS)
        self._least_waiting = self._clients - pool_size
        self._statuses: list[int] = []
        self._others: list[tuple[str, int, float]] = []
        self._waiting = 0

    def run(self, target: Target) -> Result:
        insert_many(target, self._tag)
        self._database.pause()
        try:
            with ThreadPoolExecutor(self._clients) as pool:
                parts = [pool.submit(self._insert, target) for _ in range(self._clients)]
                while not all(part.done() for part in parts):
                    self._look_around(target)
                    time.sleep(0.05)
        finally:
            self._database.resume()
        answers = [part.result() for part in parts]
        self._statuses = [answer.status if answer else NO_ANSWER for answer in answers]
        slowest_s = max(
            (answer.came_s - answer.sent_s for answer in answers if answer), default=0.0
        )
        unworded = [answer.brief for answer in answers if answer and answer.error is None][:3]
        ok = set(self._statuses) == {503} and not unworded and slowest_s <= ANSWER_WITHIN_S
        return ok, (
            f"sent {self._clients} inserts; expected 503 with an error within {ANSWER_WITHIN_S:g} "
            f"s; got {dict(Counter(self._statuses))}, the last after {slowest_s:.2f} s; answers "
            f"without an error text: {unworded}"
        )

    def _insert(self, target: Target) -> TimedResponse | None:
        with suppress(OSError, LabError):
            # Wait twice as long as the contract allows, so that late answers are distinguished from
            # missing answers.
            return insert_many(target, self._tag, 1, 2 * ANSWER_WITHIN_S)[0]
        return None

    def _look_around(self, target: Target) -> None:
        messages = [
            HEALTH,
            UNKNOWN,
            *([PUBLISHED] if "experiments" in self._server.implements else []),
        ]
        for message in messages:
            began = time.monotonic()
            try:
                status = target.fetch(message).status
            except (OSError, LabError):
                status = NO_ANSWER
            self._others.append((shorten(message.data, 16), status, time.monotonic() - began))
        if "stats" in self._server.implements:
            self._waiting = max(self._waiting, read_pool(target)["waiting"])

    def judge_others(self, _target: Target) -> Result:
        slow = [
            f"{what}: {code} after {s:.2f} s"
            for what, code, s in self._others
            if code != 200 or s > AT_ONCE_S
        ]
        detail = (
            f"sent {len(self._others)} other requests meanwhile; expected 200 within "
            f"{AT_ONCE_S:g} s for each; exceptions: {slow[:5]}"
        )
        return bool(self._others) and not slow, detail

    def judge_waiting(self, _target: Target) -> Result:
        if "stats" not in self._server.implements or self._least_waiting <= 0:
            return (
                True,
                "not checked: the server does not report its pool, or the pool has a connection "
                "for each request that was sent",
            )
        detail = (
            f"sent {self._clients} requests; expected that `waiting` rises to "
            f"{self._least_waiting} or more; got {self._waiting}"
        )
        return self._waiting >= self._least_waiting, detail

    def judge_rows(self, _target: Target) -> Result:
        # The table may have rows of inserts that were under way while the database was paused,
        # although their clients got a 503.
        good = 1 + self._statuses.count(201)
        most = 1 + len(self._statuses)
        rows = self._database.count(self._tag)
        detail = (
            f"{good} answers with 201, {most - good} others; expected {good} to {most} rows; got "
            f"{rows}"
        )
        return good <= rows <= most, detail


def _try_recovered(within_s: float, target: Target) -> Result:
    tag = new_tag("recovered")
    began = time.monotonic()
    seen = Counter[int]()
    while 201 not in seen and time.monotonic() - began < within_s:
        seen[insert_many(target, tag, 1, ANSWER_WITHIN_S)[0].status] += 1
        time.sleep(0.05)
    detail = f"expected 201 within {within_s:g} s, and 503 until then; got {dict(seen)}"
    return 201 in seen and set(seen) <= {201, 503}, detail


def _try_restart(database: DeviceDatabase, target: Target) -> Result:
    tag = new_tag("killed")
    over = threading.Event()

    def insert_until_over() -> list[int]:
        statuses = []
        while not over.is_set():
            statuses.append(insert_many(target, tag, 1, ANSWER_WITHIN_S)[0].status)
            # While the database is dead, the server refuses inserts at once. This pause keeps the
            # clients from flooding the server.
            time.sleep(0.005)
        return statuses

    with ThreadPoolExecutor(RESTART_CLIENTS) as pool:
        parts = [pool.submit(insert_until_over) for _ in range(RESTART_CLIENTS)]
        try:
            time.sleep(0.1)
            database.restart()
            time.sleep(0.1)
        finally:
            over.set()
    statuses = [status for part in parts for status in part.result()]
    rows = database.count(tag)
    # The table may lack the row of an insert that was answered with 201. This is not the server's
    # fault, because only the database can save rows from a kill. So the number of rows has no lower
    # limit. Its upper limit is the number of all inserts, because the table may also have the row
    # of an insert that was answered with 503.
    ok = set(statuses) <= {201, 503} and 201 in statuses and rows <= len(statuses)
    said = f"got {dict(Counter(statuses))} and {rows} rows"
    return ok, f"expected 201 or 503, and at most {len(statuses)} rows; {said}"


def _try_rows(database: DeviceDatabase, target: Target) -> Result:
    tag = new_tag("after")
    statuses = [target.fetch(insertion(tag)).status for _ in range(20)]
    rows = database.count(tag)
    detail = (
        f"sent 20 inserts; expected 201 and 20 rows; got {dict(Counter(statuses))} and {rows} rows"
    )
    return statuses == [201] * 20 and rows == 20, detail
