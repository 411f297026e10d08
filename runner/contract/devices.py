"""Checks of POST /devices while the database is well: the answer, the row, and every rule of validation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID, uuid4

from runner.contract import json_cases
from runner.contract.checking import Exchange, Expected, Result, Rows, error, status
from runner.contract.connection import MAX_BODY_BYTES, Answer, Message, Target, fetch, request
from runner.contract.endpoints import DEVICES_ROW, read_stats
from runner.contract.experiments import case_row
from runner.contract.json_cases import Case, accepted, rejected, text_cases
from runner.model import LabError

PATH = "/devices"
MAX_CHARS = 100
MAC = "02-00-00-00-00-01"
ANSWERED = ["id", "uuid", "mac", "firmware", "created_at"]
CLOCK_S = 0.05
"""How coarse a clock the server may read, beside ours."""
UUID_4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CREATED_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

VERBATIM = (
    *("'; DROP TABLE devices; --", "') RETURNING (SELECT 1) --", '"devices"', "$1", "%s %(mac)s {} {0} :mac ?"),
    *("\\", "\\x41\\000", "E'\\n'", "NULL", "null", " ", " x ", "\x01\x1f\x7f\n\r\t", "e\u0301 é"),
    *("\u202eright to left\u202c", "\ufeff\ufffe\uffff\U0010ffff", "<&>'\"/\u2028"),
)
"""Strings that must be stored, and come back, as they are."""


class Database(Protocol):
    """A PostgreSQL with the table of servers/schema.sql, which the server under test writes to and nothing else.

    Methods raise LabError where the database does not do what they say.
    """

    def rows(self, firmware: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows with this firmware: (id, uuid, mac, firmware, created_at), with UUID and aware datetime."""

    def count(self, firmware: str) -> int:
        """Return how many rows have this firmware."""

    def pause(self) -> None:
        """Stop all its processes where they are (SIGSTOP): it accepts connections and says nothing."""

    def resume(self) -> None:
        """Let them go on."""

    def restart(self) -> None:
        """Kill it hard and start it again, on the same address with the same data; return when it answers."""


def device_body(mac: object = MAC, firmware: object = "check", **more: object) -> bytes:
    """Return a device as JSON."""
    return json.dumps({"mac": mac, "firmware": firmware} | more, ensure_ascii=False).encode()


def _cases() -> Iterator[Case]:
    for field, other in (("mac", "firmware"), ("firmware", "mac")):
        body = partial(lambda name, value: device_body(**{name: value}), field)
        yield from text_cases(field, field, MAX_CHARS, body)
        yield rejected(f"no {field}", field, json.dumps({other: "x"}).encode())
        yield rejected(f"{field} empty", field, body(""))
        for text in VERBATIM:
            yield accepted(f"{field} {text!a}", body(text))
        for text in ("\0", "a\0b", "a\0"):
            # PostgreSQL's text holds every character but this.
            yield rejected(f"{field} {text!a}", field, body(text))
        escaped = body("TEXT").replace(b"TEXT", b"\\ud83d\\ude00" * MAX_CHARS)
        yield accepted(f"{field} of {MAX_CHARS} escaped surrogate pairs", escaped)
    yield accepted("fields of the answer are ignored", device_body(id=5, uuid="x", created_at="2000-01-01"))
    yield rejected("an object without fields", None, b"{}")
    for kind in (json_cases.unusual, json_cases.malformed, json_cases.either):
        yield from kind(device_body("TEXT"), b"TEXT")
    yield rejected("an array of fields instead of an object", None, b'["02-00-00-00-00-01","check"]')


CASES = tuple(_cases())


def new_tag(what: str) -> str:
    """Return a firmware that no other row has."""
    return f"{what}-{uuid4().hex}"


def insertion(firmware: str) -> Message:
    """Return a request that inserts a device."""
    return request("POST", PATH, device_body(firmware=firmware))


def device_rows(database: Database) -> Rows:
    """Return rows for single inserts and their rows in the table."""
    row_is_answer, stored = partial(_try_row, database), partial(_is_stored, database)
    compact = Expected("201 and compact JSON", _is_compact)
    too_large = request("POST", PATH, device_body().ljust(MAX_BODY_BYTES + 1))
    return {
        "devices-insert: answer": insert_row(new_tag("single")),
        "devices-insert: byte for byte": Exchange(insertion(new_tag("bytes")), compact),
        "devices-insert: the row is the answer": row_is_answer,
        **{f"devices-insert: {case.name}": case_row(PATH, case, stored) for case in CASES},
        "devices-insert: a body of 64 KiB and 1 byte": Exchange(too_large, status(413)),
        "devices-insert: the table is still there": row_is_answer,
        "devices-insert: GET /devices is as before": DEVICES_ROW,
    }


def rows_without_database() -> Rows:
    """Return rows for a server that was started without DATABASE_URL."""
    return {
        "devices-insert: 503 without a database": Exchange(insertion(new_tag("none")), error(503)),
        "stats: pool is null without a database": _try_no_pool,
    }


def insert_row(firmware: str) -> Exchange:
    """Return the row of one insert: 201 and the five fields."""
    sent = {"mac": MAC, "firmware": firmware}
    words = f"201 and {', '.join(ANSWERED)}"
    return Exchange(insertion(firmware), Expected(words, lambda answer: require_device(answer, sent)))


def require_device(answer: Answer, sent: Mapping[str, object]) -> bool:
    """Return True for a right answer to an insert; raise LabError that says what is wrong with it."""
    body = answer.json()
    if answer.status != 201 or not answer.is_json or not isinstance(body, dict) or list(body) != ANSWERED:
        raise LabError(f"{answer.brief}: not 201 with {', '.join(ANSWERED)}, in this order", 1)
    rules = {
        "the id is a whole number from 1": type(body["id"]) is int and body["id"] >= 1,
        "mac and firmware are what was sent": {key: body[key] for key in sent} == sent,
        "the uuid is of version 4, in lower case": bool(UUID_4.fullmatch(str(body["uuid"]))),
        "created_at is UTC with six digits of a second and Z": bool(CREATED_AT.fullmatch(str(body["created_at"]))),
    }
    if broken := [rule for rule, is_kept in rules.items() if not is_kept]:
        raise LabError(f"{answer.brief}: expected that {' and '.join(broken)}", 1)
    took_s = answer.came_s - answer.sent_s
    late_s = datetime.fromisoformat(body["created_at"]).timestamp() - answer.sent_s
    if not -CLOCK_S <= late_s <= took_s + CLOCK_S:
        raise LabError(f"created_at is {late_s:.3f} s after the request, which took {took_s:.3f} s", 1)
    return True


def _row_of(answer: Answer) -> tuple[object, ...]:
    """Return the row that a good answer describes, as the database returns it."""
    body = answer.json()
    if answer.status != 201 or not isinstance(body, dict):
        raise LabError(f"POST /devices answered {answer.brief}", 1)
    created_at = datetime.fromisoformat(body["created_at"])
    return body["id"], UUID(body["uuid"]), body["mac"], body["firmware"], created_at


def _rows(database: Database, firmware: str) -> list[tuple[object, ...]]:
    return [(*row[:4], row[4].astimezone(UTC)) for row in database.rows(firmware)]


def _try_row(database: Database, target: Target) -> Result:
    tag = new_tag("row")
    answer = fetch(target, insertion(tag))
    rows = _rows(database, tag)
    detail = f"sent POST /devices; got {answer.brief}; expected this row alone; the table has {rows}"
    return rows == [_row_of(answer)], detail


def _is_stored(database: Database, case: Case, answer: Answer) -> bool:
    sent, row = json.loads(case.body), _row_of(answer)
    return (sent["mac"], sent["firmware"]) == row[2:4] and row in _rows(database, sent["firmware"])


def _is_compact(answer: Answer) -> bool:
    return answer.status == 201 and answer.body == json.dumps(answer.json(), separators=(",", ":")).encode()


def _try_no_pool(target: Target) -> Result:
    pool = read_stats(target)["pool"]
    return pool is None, f"expected pool null without a database; got {pool}"
