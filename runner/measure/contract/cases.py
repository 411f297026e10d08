"""What is sent to the JSON endpoints and what must come back: rows of data, one a rule of the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

MAX_BODY_BYTES = 64 * 1024

PUBLISHED_BODY = (
    b'{"name":"new_home_page","variants":[{"name":"blue_button","allocation_percent":50.0},'
    b'{"name":"red_button","allocation_percent":50.0}]}'
)
"""The body of the published comparison."""

DEVICES = [
    {"uuid": f"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0{n}", "mac": f"02-00-00-00-00-0{n}", "firmware": firmware}
    for n, firmware in enumerate(("1.0.0", "1.0.4", "1.2.0", "2.0.1", "3.1.5"), start=1)
]
"""The fixed list of GET /devices."""

WRONG_METHODS = (
    ("health", "PUT", "/health"),
    ("count", "PUT", "/count"),
    ("experiments", "GET", "/experiments"),
    ("md5", "DELETE", "/experiments/md5"),
    ("devices", "PUT", "/devices"),
    ("stats", "PUT", "/stats"),
)
"""What a server implements, a method it must refuse with 405, and where."""


@dataclass(frozen=True)
class Case:
    """One body for an experiment endpoint.

    `statuses` are the allowed ones; 200 means that the experiment comes back. `field` must be in the error.
    """

    name: str
    body: bytes
    statuses: tuple[int, ...]
    field: str | None = None


def experiment_body(name: object = "page", percents: Sequence[object] = (100,), **more: object) -> bytes:
    """Return an experiment as JSON, with one variant a percentage; `more` replaces or adds fields."""
    variants = [{"name": f"v{n}", "allocation_percent": percent} for n, percent in enumerate(percents)]
    return json.dumps({"name": name, "variants": variants} | more, ensure_ascii=False).encode()


def _variant_named(name: object) -> bytes:
    return experiment_body(variants=[{"name": name, "allocation_percent": 100}])


def _with_field(value: bytes) -> bytes:
    return experiment_body()[:-1] + b',"unknown":' + value + b"}"


def _accepted(name: str, body: bytes) -> Case:
    return Case(name, body, (200,))


def _rejected(name: str, field: str, body: bytes) -> Case:
    return Case(name, body, (400,), field)


def _not_json(name: str, body: bytes) -> Case:
    return Case(name, body, (400,))


def _left_open(name: str, body: bytes) -> Case:
    return Case(name, body, (200, 400))


VALID_CASES = (
    _accepted("the published body", PUBLISHED_BODY),
    _accepted("name of 1 character", experiment_body("x")),
    _accepted("name of 200 characters", experiment_body("x" * 200)),
    _accepted("name of 200 two-byte characters", experiment_body("é" * 200)),
    _accepted("name of 200 four-byte characters", experiment_body("😀" * 200)),
    _accepted(
        "name of 200 escaped surrogate pairs",
        b'{"name":"' + b"\\ud83d\\ude00" * 200 + b'","variants":[{"name":"v","allocation_percent":100}]}',
    ),
    _accepted("name with quotes, control characters and <&>'\"", experiment_body('a"\\\n\t\u0001\u2028<&>')),
    _accepted("variant name of 1 character", _variant_named("x")),
    _accepted("variant name of 200 characters", _variant_named("é" * 200)),
    _accepted("1 variant", experiment_body(percents=[100])),
    _accepted("100 variants", experiment_body(percents=[1] * 100)),
    _accepted("percentages of 0 and 100", experiment_body(percents=[0, 100])),
    _accepted("integers and fractions", experiment_body(percents=[33, 33.5, 33.5])),
    _accepted("sum of 99.995", experiment_body(percents=[50, 49.995])),
    _accepted("sum of 100.005", experiment_body(percents=[50, 50.005])),
    _accepted("three times 33.33", experiment_body(percents=[33.33] * 3)),
    _accepted("exponents", b'{"name":"x","variants":[{"name":"v","allocation_percent":1e2}]}'),
    _accepted("unknown fields", experiment_body(owner={"id": [1, None]}, active=True)),
    _accepted("white space around", b" \r\n\t" + experiment_body() + b"\n "),
    _accepted("a body of exactly 64 KiB", experiment_body().ljust(MAX_BODY_BYTES)),
)

INVALID_CASES = (
    _rejected("no name", "name", b'{"variants":[{"name":"v","allocation_percent":100}]}'),
    _rejected("empty name", "name", experiment_body("")),
    _rejected("name of 201 characters", "name", experiment_body("x" * 201)),
    _rejected("name of 201 two-byte characters", "name", experiment_body("é" * 201)),
    _rejected("name of 201 four-byte characters", "name", experiment_body("😀" * 201)),
    _rejected("name null", "name", experiment_body(None)),
    _rejected("name a number", "name", experiment_body(5)),
    _rejected("name a list", "name", experiment_body(["x"])),
    _rejected("no variants", "variants", b'{"name":"x"}'),
    _rejected("variants empty", "variants", experiment_body(percents=[])),
    _rejected("variants null", "variants", experiment_body(variants=None)),
    _rejected("variants an object", "variants", experiment_body(variants={"name": "v"})),
    _rejected("variants with a string", "variants", experiment_body(variants=["v"])),
    _rejected("variants with an array of fields", "variants", experiment_body(variants=[["v", 100]])),
    _rejected("101 variants", "variants", experiment_body(percents=[0.99] * 101)),
    _rejected("variant name missing", "name", experiment_body(variants=[{"allocation_percent": 100}])),
    _rejected("variant name empty", "name", _variant_named("")),
    _rejected("variant name of 201 characters", "name", _variant_named("é" * 201)),
    _rejected("variant name a bool", "name", _variant_named(True)),
    _rejected("percentage missing", "allocation_percent", experiment_body(variants=[{"name": "v"}])),
    _rejected("percentage null", "allocation_percent", experiment_body(percents=[None])),
    _rejected("percentage a string", "allocation_percent", experiment_body(percents=["100"])),
    _rejected("percentage a bool", "allocation_percent", experiment_body(percents=[True, 99])),
    _rejected("percentage of -0.01", "allocation_percent", experiment_body(percents=[-0.01, 100])),
    _rejected("percentage of 100.01", "allocation_percent", experiment_body(percents=[100.01])),
    _rejected("percentage of 1e300", "allocation_percent", experiment_body(percents=[1e300])),
    _rejected("sum of 99.98", "allocation_percent", experiment_body(percents=[50, 49.98])),
    _rejected("sum of 100.02", "allocation_percent", experiment_body(percents=[50, 50.02])),
    _rejected("sum of 0", "allocation_percent", experiment_body(percents=[0])),
)

MALFORMED_CASES = (
    _not_json("empty body", b""),
    _not_json("only white space", b"  \n"),
    _not_json("cut off", PUBLISHED_BODY[:-2]),
    _not_json("trailing bytes", PUBLISHED_BODY + b"x"),
    _not_json("two values", PUBLISHED_BODY * 2),
    _not_json("single quotes", PUBLISHED_BODY.replace(b'"', b"'")),
    _not_json("a null byte", b"\0"),
    _not_json("NaN", experiment_body(percents=[float("nan")])),
    _not_json("Infinity", experiment_body(percents=[float("inf")])),
    _not_json("invalid UTF-8", PUBLISHED_BODY.replace(b"new_home_page", b"caf\xe9")),
    _not_json("overlong UTF-8", PUBLISHED_BODY.replace(b"new_home_page", b"\xc0\xaf")),
    _not_json("null instead of an object", b"null"),
    _not_json("an array instead of an object", b'["x",[{"name":"v","allocation_percent":100}]]'),
    _not_json("a string instead of an object", b'"x"'),
    _not_json("1e999 as a percentage", b'{"name":"x","variants":[{"name":"v","allocation_percent":1e999}]}'),
    _not_json("20,000 open brackets", b"[" * 20_000),
    _left_open("20,000 levels in an unknown field", _with_field(b"[" * 20_000 + b"]" * 20_000)),
    _left_open("1e999 in an unknown field", _with_field(b"1e999")),
    _left_open("a number of 30,000 digits", _with_field(b"9" * 30_000)),
    _left_open("a duplicate key", experiment_body()[:-1] + b',"name":"again"}'),
    _left_open("half a surrogate pair", experiment_body("NAME").replace(b"NAME", b"\\ud83d")),
    _left_open("a byte order mark", b"\xef\xbb\xbf" + PUBLISHED_BODY),
)

TOO_LARGE = Case("a body of 64 KiB and 1 byte", experiment_body().ljust(MAX_BODY_BYTES + 1), (413,))

MD5_CASES = tuple(
    case
    for case in INVALID_CASES + MALFORMED_CASES
    if case.name in ("name of 201 characters", "101 variants", "sum of 100.02", "cut off", "a null byte")
)
"""The MD5 endpoint shares its validation; a few rows show that it has it."""
