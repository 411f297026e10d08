"""What is sent to POST /devices: rows of data, one a rule of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runner.measure.contract import json_cases
from runner.measure.contract.cases import CHARACTERS, WRONG_TYPES
from runner.measure.contract.json_cases import Case, accepted, rejected
from runner.measure.contract.wire import MAX_BODY_BYTES

MAX_CHARS = 100
FIELDS = ("mac", "firmware")

VERBATIM = (
    "'; DROP TABLE devices; --",
    "') RETURNING (SELECT 1) --",
    '"devices"',
    "$1",
    "%s %(mac)s {} {0} :mac ?",
    "\\",
    "\\x41\\000",
    "E'\\n'",
    "NULL",
    "null",
    " ",
    " x ",
    "\x01\x1f\x7f\n\r\t",
    "e\u0301 é",
    "\u202eright to left\u202c",
    "\ufeff\ufffe\uffff\U0010ffff",
    "<&>'\"/\u2028",
)
"""Strings that must be stored, and come back, as they are."""


def device_body(mac: object = "02-00-00-00-00-01", firmware: object = "check", **more: object) -> bytes:
    """Return a device as JSON."""
    return json.dumps({"mac": mac, "firmware": firmware} | more, ensure_ascii=False).encode()


def _valid() -> Iterator[Case]:
    for field in FIELDS:
        for label, letter in CHARACTERS:
            yield accepted(f"{field} of 1 {label} character", device_body(**{field: letter}))
            yield accepted(f"{field} of {MAX_CHARS} {label} characters", device_body(**{field: letter * MAX_CHARS}))
        for text in VERBATIM:
            yield accepted(f"{field} {text!a}", device_body(**{field: text}))
        escaped = device_body(**{field: "TEXT"}).replace(b"TEXT", b"\\ud83d\\ude00" * MAX_CHARS)
        yield accepted(f"{field} of {MAX_CHARS} escaped surrogate pairs", escaped)
    yield accepted("fields of the answer are ignored", device_body(id=5, uuid="x", created_at="2000-01-01"))


def _invalid() -> Iterator[Case]:
    for field in FIELDS:
        other = FIELDS[1 - FIELDS.index(field)]
        yield rejected(f"no {field}", field, json.dumps({other: "x"}).encode())
        yield rejected(f"{field} empty", field, device_body(**{field: ""}))
        for label, letter in CHARACTERS:
            yield rejected(
                f"{field} of {MAX_CHARS + 1} {label} characters",
                field,
                device_body(**{field: letter * (MAX_CHARS + 1)}),
            )
        for text in ("\0", "a\0b", "a\0"):
            # PostgreSQL's text holds every character but this.
            yield rejected(f"{field} {text!a}", field, device_body(**{field: text}))
        for label, value in WRONG_TYPES:
            if not isinstance(value, str):
                yield rejected(f"{field} {label}", field, device_body(**{field: value}))
    yield rejected("an object without fields", None, b"{}")


CASES: tuple[Case, ...] = (
    *_valid(),
    *_invalid(),
    *json_cases.unusual(device_body("TEXT"), b"TEXT"),
    *json_cases.malformed(device_body("TEXT"), b"TEXT"),
    *json_cases.either(device_body("TEXT"), b"TEXT"),
    rejected("an array of fields instead of an object", None, b'["02-00-00-00-00-01","check"]'),
)
TOO_LARGE_BODY = device_body().ljust(MAX_BODY_BYTES + 1)
