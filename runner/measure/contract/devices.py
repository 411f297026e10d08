"""Checks of POST /devices while the database is well: the answer, the row, and every rule of validation."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from uuid import RFC_4122, UUID, uuid4

from runner.measure.contract.database import Database
from runner.measure.contract.device_cases import CASES, TOO_LARGE_BODY, device_body
from runner.measure.contract.endpoints import read_stats, try_devices
from runner.measure.contract.experiments import check_case
from runner.measure.contract.json_cases import Case
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import Answer, Target, fetch
from runner.model import Check, LabError

FIELDS = ["id", "uuid", "mac", "firmware", "created_at"]
CLOCK_S = 0.05
"""How coarse a clock the server may read, beside ours."""
_CREATED_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def new_tag(what: str) -> str:
    """Return a firmware that no other row has."""
    return f"{what}-{uuid4().hex}"


def check_devices_insert(target: Target, database: Database) -> Iterator[Check]:
    """Check single inserts and their rows."""
    yield check_insert(target, new_tag("single"))
    yield check("devices-insert: byte for byte", partial(_try_bytes, target))
    yield check("devices-insert: the row is the answer", partial(_try_row, target, database))
    for case in CASES:
        yield check_case(target, "/devices", "devices-insert", case, partial(_is_stored, database))
    yield check("devices-insert: a body of 64 KiB and 1 byte", partial(_try_too_large, target))
    yield check("devices-insert: the table is still there", partial(_try_row, target, database))
    yield check("devices-insert: GET /devices is as before", partial(try_devices, target))


def check_without_database(target: Target) -> Iterator[Check]:
    """Check what a server answers that was started without DATABASE_URL."""
    yield check("devices-insert: 503 without a database", partial(_try_without, target))
    yield check("stats: pool is null without a database", partial(_try_no_pool, target))


def check_insert(target: Target, firmware: str) -> Check:
    """Check one insert: 201 and the five fields."""

    def step() -> Result:
        first_s = time.time()
        answer = insert(target, firmware)
        fault = fault_of(answer, {"mac": "02-00-00-00-00-01", "firmware": firmware}, first_s, time.time())
        return fault is None, f"sent POST /devices; expected 201 and {', '.join(FIELDS)}; got {answer.brief}: {fault}"

    return check("devices-insert: answer", step)


def insert(target: Target, firmware: str) -> Answer:
    """Insert a device over a connection of its own."""
    return fetch(target, "POST", "/devices", device_body(firmware=firmware))


def fault_of(answer: Answer, sent: Mapping[str, object], first_s: float, last_s: float) -> str | None:
    """Return what is wrong with the answer to an insert that lasted from `first_s` to `last_s`, Unix time."""
    if answer.status != 201 or not answer.is_json:
        return "not 201 with JSON"
    body = answer.json()
    if not isinstance(body, dict) or list(body) != FIELDS:
        return f"the fields are not {', '.join(FIELDS)}, in this order"
    if type(body["id"]) is not int or body["id"] < 1:
        return "the id is no whole number from 1"
    if {key: body[key] for key in sent} != sent:
        return "mac or firmware is not what was sent"
    return _fault_of_uuid(body["uuid"]) or _fault_of_time(body["created_at"], first_s, last_s)


def _fault_of_uuid(text: object) -> str | None:
    try:
        uuid = UUID(text) if isinstance(text, str) else None
    except ValueError:
        uuid = None
    if uuid is None or str(uuid) != text:
        return "the uuid is not 32 lower-case hex digits with 4 hyphens"
    return None if uuid.version == 4 and uuid.variant == RFC_4122 else "the uuid is not of version 4"


def _fault_of_time(text: object, first_s: float, last_s: float) -> str | None:
    if not isinstance(text, str) or not _CREATED_AT.fullmatch(text):
        return "created_at is not UTC with six digits of a second and Z"
    try:
        created_s = datetime.fromisoformat(text).timestamp()
    except ValueError:
        return "created_at is no date"
    if not first_s - CLOCK_S <= created_s <= last_s + CLOCK_S:
        return f"created_at is {created_s - first_s:.3f} s after the request, which took {last_s - first_s:.3f} s"
    return None


def row_of(answer: Answer) -> tuple[object, ...]:
    """Return the row that a good answer describes, as the database returns it."""
    body = answer.json()
    if answer.status != 201 or not isinstance(body, dict):
        raise LabError(f"POST /devices answered {answer.brief}", 1)
    created_at = datetime.fromisoformat(body["created_at"])
    return body["id"], UUID(body["uuid"]), body["mac"], body["firmware"], created_at


def _rows(database: Database, firmware: str) -> list[tuple[object, ...]]:
    return [(*row[:4], row[4].astimezone(UTC)) for row in database.rows(firmware)]


def _try_row(target: Target, database: Database) -> Result:
    tag = new_tag("row")
    answer = insert(target, tag)
    rows = _rows(database, tag)
    return rows == [
        row_of(answer)
    ], f"sent POST /devices; got {answer.brief}; expected this row alone; the table has {rows}"


def _is_stored(database: Database, case: Case, answer: Answer) -> bool:
    sent = json.loads(case.body)
    row = row_of(answer)
    return (sent["mac"], sent["firmware"]) == row[2:4] and row in _rows(database, sent["firmware"])


def _try_bytes(target: Target) -> Result:
    answer = insert(target, new_tag("bytes"))
    expected = json.dumps(answer.json(), separators=(",", ":")).encode()
    return answer.status == 201 and answer.body == expected, (
        f"sent POST /devices; expected compact JSON {expected!r}; got {answer.body!r}"
    )


def _try_too_large(target: Target) -> Result:
    answer = fetch(target, "POST", "/devices", TOO_LARGE_BODY)
    return answer.status == 413, f"sent a device of 64 KiB and 1 byte; expected 413; got {answer.brief}"


def _try_without(target: Target) -> Result:
    answer = insert(target, new_tag("none"))
    ok = answer.status == 503 and answer.error is not None
    return ok, f'sent POST /devices without a database; expected 503 {{"error":…}}; got {answer.brief}'


def _try_no_pool(target: Target) -> Result:
    pool = read_stats(target)["pool"]
    return pool is None, f"expected pool null without a database; got {pool}"
