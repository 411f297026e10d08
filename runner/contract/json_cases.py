"""Bytes that are not JSON, or where JSON libraries differ, made from any valid body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Expectation = Literal["accepted", "rejected", "open"]


@dataclass(frozen=True)
class Case:
    """One body for an endpoint, and what becomes of it: accepted, rejected with 400, or open (either).

    A rejected one's error must name `field`.
    """

    name: str
    body: bytes
    expected: Expectation
    field: str | None = None


def accepted(name: str, body: bytes) -> Case:
    """Return a case that must be accepted."""
    return Case(name, body, "accepted")


def rejected(name: str, field: str | None, body: bytes) -> Case:
    """Return a case that must be answered with 400."""
    return Case(name, body, "rejected", field)


def left_open(name: str, body: bytes) -> Case:
    """Return a case that may be accepted or answered with 400."""
    return Case(name, body, "open")


WRONG_TYPES: tuple[tuple[str, object], ...] = (
    ("null", None),
    ("a number", 5),
    ("a string", "x"),
    ("a bool", True),
    ("a list", ["x"]),
    ("an object", {"name": "x"}),
)
CHARACTERS = (("one-byte", "x"), ("two-byte", "é"), ("three-byte", "€"), ("four-byte", "😀"))
"""A limit in characters is not one in bytes, nor in UTF-16 units."""


def text_cases(name: str, field: str, most: int, body: Callable[[object], bytes]) -> Iterator[Case]:
    """Yield what a field of 1 to `most` characters takes and refuses; `body` makes an object with that value."""
    for label, letter in CHARACTERS:
        yield accepted(f"{name} of 1 {label} character", body(letter))
        yield accepted(f"{name} of {most} {label} characters", body(letter * most))
        yield rejected(f"{name} of {most + 1} {label} characters", field, body(letter * (most + 1)))
    for label, value in WRONG_TYPES:
        if not isinstance(value, str):
            yield rejected(f"{name} {label}", field, body(value))


def with_field(body: bytes, value: bytes) -> bytes:
    """Return an object's JSON with one more, unknown field."""
    return body[:-1] + b',"unknown":' + value + b"}"


def _nested(body: bytes, levels: int) -> bytes:
    """Return the object with `levels` levels of nesting, itself the first."""
    return with_field(body, b"[" * (levels - 1) + b"]" * (levels - 1))


INVALID_UTF8 = {
    "Latin-1": b"caf\xe9",
    "an overlong /, 2 bytes": b"\xc0\xaf",
    "an overlong /, 3 bytes": b"\xe0\x80\xaf",
    "an overlong /, 4 bytes": b"\xf0\x80\x80\xaf",
    "an encoded surrogate": b"\xed\xa0\xbd",
    "surrogates encoded one by one (CESU-8)": b"\xed\xa0\xbd\xed\xb8\x80",
    "a code point beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "a character cut off, 2 bytes": b"\xc3",
    "a character cut off, 3 bytes": b"\xe2\x82",
    "a character cut off, 4 bytes": b"\xf0\x9f\x98",
    "a continuation byte alone": b"\x80",
    "the byte FF": b"\xff",
}
INVALID_STRINGS = {
    "a raw line feed in a string": b"a\nb",
    "a raw tab in a string": b"a\tb",
    "a raw null in a string": b"a\0b",
    "an unknown escape": b"\\x41",
    "an escape cut off": b"\\u12",
    "an escape that is no hex": b"\\u12g4",
}
INVALID_VALUES = (
    b"01", b"1.", b".5", b"+1", b"-", b"1e", b"1e+", b"0x10", b"1_000", b"NaN", b"-NaN", b"Infinity", b"-Infinity",
    b"inf", b"True", b"None", b"nul", b"undefined", b"'x'", b"[1,]", b"[1 2]", b"[,1]", b"[1", b'{"a":1,}', b'{"a" 1}',
    b"{a:1}", b"{1:1}", b'{"a"}', b'"open', b"/* no comment */ 1",
)  # fmt: skip
"""Values that JSON does not know, each as the value of an unknown field: ignored, it must still be JSON."""


BEYOND_DOUBLES = ("1e999", "-1e999", "1e-999")


def malformed(body: bytes, text: bytes) -> Iterator[Case]:
    """Yield what must be answered with 400; `text` is a string that `body`, a valid object, contains."""
    bodies = {
        "empty body": b"",
        "only white space": b"  \n",
        "cut off": body[:-2],
        "trailing bytes": body + b"x",
        "a trailing null": body + b"\0",
        "a trailing comma": body + b",",
        "two values": body * 2,
        "a form feed for white space": b"\f" + body,
        "a no-break space for white space": b"\xc2\xa0" + body,
        "single quotes": body.replace(b'"', b"'"),
        "a comment": body + b"// the end",
        "a null byte": b"\0",
        "UTF-16": body.decode().encode("utf-16"),
        "null instead of an object": b"null",
        "a string instead of an object": b'"x"',
        "a number instead of an object": b"1",
        "a bool instead of an object": b"true",
        "an empty array instead of an object": b"[]",
        "the object in an array": b"[" + body + b"]",
        "20,000 open brackets": b"[" * 20_000,
        "20,000 open objects": b'{"a":' * 10_000,
        **{name: body.replace(text, string) for name, string in INVALID_STRINGS.items()},
        **{f"{value.decode()} as a value": with_field(body, value) for value in INVALID_VALUES},
        **{f"invalid UTF-8: {name}": body.replace(text, string) for name, string in INVALID_UTF8.items()},
        # RFC 8259, section 8.1: what is not UTF-8 is not JSON, whether somebody reads that field or not.
        "invalid UTF-8 in an unknown field": with_field(body, b'"\xff"'),
        "invalid UTF-8 in the key of an unknown field": body[:-1] + b',"\xff":1}',
    }
    return (rejected(name, None, broken) for name, broken in bodies.items())


def either(body: bytes, text: bytes) -> Iterator[Case]:
    """Yield what JSON libraries judge differently: accepted or 400, but neither a crash nor a hang nor a 500."""
    bodies = {
        **{f"{levels:,} levels": _nested(body, levels) for levels in (101, 1000, 20_000)},
        "10,000 levels of objects": with_field(body, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        **{f"{number} in an unknown field": with_field(body, number.encode()) for number in BEYOND_DOUBLES},
        "an exponent of 20 digits": with_field(body, b"1e" + b"9" * 20),
        "a number of 30,000 digits": with_field(body, b"9" * 30_000),
        "a fraction of 30,000 digits": with_field(body, b"0." + b"9" * 30_000),
        "a duplicate unknown key": with_field(with_field(body, b"1"), b"2"),
        "half a surrogate pair": body.replace(text, b"\\ud83d"),
        "a surrogate pair the wrong way round": body.replace(text, b"\\ude00\\ud83d"),
        "a byte order mark": b"\xef\xbb\xbf" + body,
    }
    return (left_open(name, made) for name, made in bodies.items())


def unusual(body: bytes, text: bytes) -> Iterator[Case]:
    """Yield what is valid JSON, if rarely seen."""
    bodies = {
        "100 levels": _nested(body, 100),
        "unknown fields of every type": with_field(body, b'[null,true,-1.5e-7,"",{},[]],"\\u00e9":{"name":5}'),
        "an empty key": body[:-1] + b',"":0}',
        "a null in the key of an unknown field": body[:-1] + b',"\\u0000":0}',
        "escaped letters": body.replace(text, b'\\u0041\\u00e9\\ud83D\\uDe00\\/\\b\\f\\n\\r\\t\\\\\\"'),
        "U+007F and noncharacters": body.replace(text, "\x7f\ufffe\uffff\U0010ffff".encode()),
        "white space everywhere": b" \r\n\t" + body.replace(b'":', b'"\t:\r\n ').replace(b",", b" ,\n") + b"\n ",
        "a body of exactly 64 KiB": body.ljust(64 * 1024),
    }
    return (accepted(name, made) for name, made in bodies.items())
