"""Checks of the experiment endpoints: one check for each validation rule and JSON corner case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runner.contract.client import TimedResponse
from runner.contract.messages import MAX_BODY_BYTES, request
from runner.contract.rows import Exchange, Expected, Rows, same_bytes
from runner.model import Server

Ruling = Literal["accepted", "rejected", "open"]


@dataclass(frozen=True)
class ExperimentCase:
    """One body for an endpoint, with the expected outcome.

    `expected` says whether the server must accept the body (`accepted`), must reject it with 400
    (`rejected`), or may do either (`open`). If `field` is not None, the error in an answer with 400
    must name this field.
    """

    expected: Ruling
    name: str
    body: bytes
    field: str | None = None


accepted = partial(ExperimentCase, "accepted")
left_open = partial(ExperimentCase, "open")


def rejected(name: str, field: str | None, body: bytes) -> ExperimentCase:
    """Return a case that must be answered with 400 and an error.

    The error must name `field`, unless `field` is None.
    """
    return ExperimentCase("rejected", name, body, field)


WRONG_TYPES: tuple[tuple[str, object], ...] = (
    *(("null", None), ("a number", 5), ("a string", "x"), ("a bool", True), ("a list", ["x"])),
    ("an object", {"name": "x"}),
)
CHARACTERS = (("one-byte", "x"), ("two-byte", "é"), ("three-byte", "€"), ("four-byte", "😀"))
"""One character of each length in UTF-8.

The limits of a text's length count characters, not bytes or units of UTF-16.
"""


def text_cases(
    name: str, field: str, most: int, body: Callable[[object], bytes]
) -> Iterator[ExperimentCase]:
    """Yield cases of a text field, which must have 1 to `most` characters.

    The lengths are 1, `most` and `most` + 1. Further cases have values of wrong types. The function
    `body` returns the JSON of an object whose text field has the given value.
    """
    for label, letter in CHARACTERS:
        yield accepted(f"{name} of 1 {label} character", body(letter))
        yield accepted(f"{name} of {most} {label} characters", body(letter * most))
        yield rejected(f"{name} of {most + 1} {label} characters", field, body(letter * (most + 1)))
    for label, value in WRONG_TYPES:
        if not isinstance(value, str):
            yield rejected(f"{name} {label}", field, body(value))


def with_field(body: bytes, value: bytes) -> bytes:
    """Return the JSON of an object, with an additional unknown field that has the given value."""
    return body[:-1] + b',"unknown":' + value + b"}"


def _nested(body: bytes, levels: int) -> bytes:
    """Return the JSON of an object, with an additional field of nested lists.

    The field makes the JSON `levels` levels deep, and the object itself is the first level.
    """
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
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"-",
    b"1e",
    b"1e+",
    b"0x10",
    b"1_000",
    b"NaN",
    b"-NaN",
    b"Infinity",
    b"-Infinity",
    b"inf",
    b"True",
    b"None",
    b"nul",
    b"undefined",
    b"'x'",
    b"[1,]",
    b"[1 2]",
    b"[,1]",
    b"[1",
    b'{"a":1,}',
    b'{"a" 1}',
    b"{a:1}",
    b"{1:1}",
    b'{"a"}',
    b'"open',
    b"/* no comment */ 1",
)
"""Values that are not valid JSON. Each of them is sent as the value of an unknown field.

The server ignores unknown fields, but must still reject invalid JSON.
"""


def json_cases(body: bytes, text: bytes) -> Iterator[ExperimentCase]:
    """Yield bodies that JSON allows or forbids, and bodies that JSON libraries treat differently.

    `body` is a valid object that contains the string `text`. If libraries treat a body differently,
    the server may accept the body or answer 400, but it must not crash, hang or answer 500.
    """
    malformed = {
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
        "10,000 open objects": b'{"a":' * 10_000,
        **{name: body.replace(text, string) for name, string in INVALID_STRINGS.items()},
        **{f"{value.decode()} as a value": with_field(body, value) for value in INVALID_VALUES},
        **{
            f"invalid UTF-8: {name}": body.replace(text, string)
            for name, string in INVALID_UTF8.items()
        },
        # RFC 8259, section 8.1: JSON is UTF-8, even in fields that the server ignores.
        "invalid UTF-8 in an unknown field": with_field(body, b'"\xff"'),
        "invalid UTF-8 in the key of an unknown field": body[:-1] + b',"\xff":1}',
    }
    judged_differently = {
        **{f"{levels:,} levels": _nested(body, levels) for levels in (101, 1000, 20_000)},
        "10,000 levels of objects": with_field(body, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        **{
            f"{text} in an unknown field": with_field(body, text.encode())
            for text in ("1e999", "-1e999", "1e-999")
        },
        "an exponent of 20 digits": with_field(body, b"1e" + b"9" * 20),
        "a number of 30,000 digits": with_field(body, b"9" * 30_000),
        "a fraction of 30,000 digits": with_field(body, b"0." + b"9" * 30_000),
        "a duplicate unknown key": with_field(with_field(body, b"1"), b"2"),
        "half a surrogate pair": body.replace(text, b"\\ud83d"),
        "a surrogate pair the wrong way round": body.replace(text, b"\\ude00\\ud83d"),
        "a byte order mark": b"\xef\xbb\xbf" + body,
    }
    unusual = {
        "100 levels": _nested(body, 100),
        "unknown fields of every type": with_field(
            body, b'[null,true,-1.5e-7,"",{},[]],"\\u00e9":{"name":5}'
        ),
        "an empty key": body[:-1] + b',"":0}',
        "a null in the key of an unknown field": body[:-1] + b',"\\u0000":0}',
        "escaped letters": body.replace(
            text, b'\\u0041\\u00e9\\ud83D\\uDe00\\/\\b\\f\\n\\r\\t\\\\\\"'
        ),
        "U+007F and noncharacters": body.replace(text, "\x7f\ufffe\uffff\U0010ffff".encode()),
        "white space everywhere": b" \r\n\t"
        + body.replace(b'":', b'"\t:\r\n ').replace(b",", b" ,\n")
        + b"\n ",
        "a body of exactly 64 KiB": body.ljust(MAX_BODY_BYTES),
    }
    yield from (accepted(name, made) for name, made in unusual.items())
    yield from (rejected(name, None, made) for name, made in malformed.items())
    yield from (left_open(name, made) for name, made in judged_differently.items())


PATH = "/experiments"
MD5_PATH = "/experiments/md5"
PERCENT = "allocation_percent"

PUBLISHED_BODY = (
    b'{"name":"new_home_page","variants":[{"name":"blue_button","allocation_percent":50.0},'
    b'{"name":"red_button","allocation_percent":50.0}]}'
)
"""The request body of the published comparison."""
PUBLISHED_ANSWER = PUBLISHED_BODY.replace(b"50.0", b"50")
"""The expected answer to PUBLISHED_BODY.

The answer has no spaces, keeps the order of the fields, and has whole numbers without a fraction.
"""


def experiment_body(
    name: object = "page", percents: Sequence[object] = (100,), **more: object
) -> bytes:
    """Return an experiment as JSON, with one variant per percentage.

    `more` replaces or adds fields.
    """
    variants = [{"name": f"v{n}", PERCENT: percent} for n, percent in enumerate(percents)]
    return json.dumps({"name": name, "variants": variants} | more, ensure_ascii=False).encode()


def _variant_named(name: object) -> bytes:
    return experiment_body(variants=[{"name": name, PERCENT: 100}])


def _percents(*numbers: str) -> bytes:
    """Return an experiment's JSON with one variant per number; numbers are written unchanged."""
    variants = ",".join(f'{{"name":"v","allocation_percent":{number}}}' for number in numbers)
    return f'{{"name":"x","variants":[{variants}]}}'.encode()


HUNDREDS = ("1e2", "1E+2", "100.000", "0.1e3", "1000e-1", "100000000000000000000e-18")
VALID_BODIES = {
    "name of 200 combining characters": experiment_body("e" + "\u0301" * 199),
    "name of 200 escaped surrogate pairs": experiment_body("NAME").replace(
        b"NAME", b"\\ud83d\\ude00" * 200
    ),
    "name with quotes, control characters and <&>'\"": experiment_body('a"\\\n\t\u0001\u2028<&>'),
    "name U+0000": experiment_body("\0"),
    "name of one space": experiment_body(" "),
    "1 variant": experiment_body(percents=[100]),
    "100 variants": experiment_body(percents=[1] * 100),
    "100 variants of the same name": experiment_body(variants=[{"name": "v", PERCENT: 1}] * 100),
    "percentages of 0 and 100": experiment_body(percents=[0, 100]),
    "a percentage of -0.0": _percents("-0.0", "-0", "100"),
    "the smallest percentage above 0": _percents("5e-324", "100"),
    "integers and fractions": experiment_body(percents=[33, 33.5, 33.5]),
    "sum of 99.99": experiment_body(percents=[50, 49.99]),
    "sum of 100.01": experiment_body(percents=[50, 50.01]),
    "sum of 99.995": experiment_body(percents=[50, 49.995]),
    "sum of 100.005": experiment_body(percents=[50, 50.005]),
    "three times 33.33": experiment_body(percents=[33.33] * 3),
    "three thirds of 17 digits": experiment_body(percents=[100 / 3] * 3),
    "1,000 tenths in 100 variants": experiment_body(percents=[0.7, 1.3] * 50),
    **{f"percentage written {number}": _percents(number) for number in HUNDREDS},
}


def _invalid() -> Iterator[ExperimentCase]:
    good = {"name": "v", PERCENT: 100}
    yield rejected("no name", "name", b'{"variants":[{"name":"v","allocation_percent":100}]}')
    yield rejected("empty name", "name", experiment_body(""))
    yield rejected("variant name missing", "name", experiment_body(variants=[{PERCENT: 100}]))
    yield rejected("variant name empty", "name", _variant_named(""))
    yield rejected("no variants", "variants", b'{"name":"x"}')
    yield rejected("variants empty", "variants", experiment_body(percents=[]))
    yield rejected("101 variants", "variants", experiment_body(percents=[0.99] * 101))
    yield rejected(
        "variants with an array of fields", "variants", experiment_body(variants=[["v", 100]])
    )
    yield rejected(
        "the last of two variants a list", "variants", experiment_body(variants=[good, []])
    )
    yield rejected("a variant without fields", "name", experiment_body(variants=[{}]))
    yield rejected("percentage missing", PERCENT, experiment_body(variants=[{"name": "v"}]))
    yield rejected(
        "the last percentage missing", PERCENT, experiment_body(variants=[good, {"name": "w"}])
    )
    yield rejected('percentage "100"', PERCENT, experiment_body(percents=["100"]))
    for label, value in WRONG_TYPES:
        if not isinstance(value, list):
            yield rejected(f"variants {label}", "variants", experiment_body(variants=value))
        if not isinstance(value, dict):
            yield rejected(
                f"a variant that is {label}", "variants", experiment_body(variants=[good, value])
            )
        if not isinstance(value, int) or isinstance(value, bool):
            # A lax server may read True as 1, and values of other wrong types as 0. With `rest`,
            # the sum is then 100, which is valid. So only the value's type is a reason to reject.
            rest = 99 if value is True else 100
            yield rejected(f"percentage {label}", PERCENT, experiment_body(percents=[value, rest]))
    for number in ("-0.01", "-5e-324", "100.00000000000001", "100.01", "1e300", "-1e300"):
        # One percentage is out of range, but the sum of all percentages may be right.
        yield rejected(
            f"percentage of {number}",
            PERCENT,
            _percents(number, *(["100"] if number[0] == "-" else [])),
        )
    yield rejected("percentages of 150 and -50", PERCENT, _percents("150", "-50"))
    for number in ("0", "50", "99.98", "99.9899", "100.0101", "100.02", "150"):
        over = float(number) - 50 if float(number) > 50 else 0.0
        yield rejected(
            f"sum of {number}", PERCENT, experiment_body(percents=[float(number) - over, over])
        )
    yield rejected("10 to the power of 309 as a percentage", None, _percents("1" + "0" * 309))
    for number in (
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        "-Infinity",
        "0100",
        "1e",
        "100.",
        "+100",
        "0x64",
    ):
        yield rejected(f"{number} as a percentage", None, _percents(number))


CASES: tuple[ExperimentCase, ...] = (
    accepted("the published body", PUBLISHED_BODY),
    *text_cases("name", "name", 200, experiment_body),
    *text_cases("variant name", "name", 200, _variant_named),
    *(accepted(name, body) for name, body in VALID_BODIES.items()),
    *_invalid(),
    *json_cases(PUBLISHED_BODY, b"new_home_page"),
    rejected(
        "an array of fields instead of an object",
        None,
        b'["x",[{"name":"v","allocation_percent":100}]]',
    ),
    left_open("a duplicate key", experiment_body()[:-1] + b',"name":"again"}'),
    # RFC 8259 compares names exactly, but Go's encoding/json ignores upper and lower case. So both
    # outcomes are allowed.
    left_open("field names in capitals", experiment_body().replace(b'"name"', b'"NAME"')),
    left_open("a percentage of 1e-999", _percents("1e-999", "100")),
)
PUBLISHED = request("POST", PATH, PUBLISHED_BODY)
MD5_CASES = (
    *("name of 201 two-byte characters", "no name", "101 variants", "sum of 100.02"),
    *("cut off", "a null byte", "two values"),
)
"""Names of the cases that are also sent to the MD5 endpoint.

A few cases suffice to show that this endpoint validates bodies as POST /experiments does.
"""


def experiment_rows(server: Server) -> Rows:
    """Return the checks of the experiment endpoints that the server implements.

    All cases are sent to POST /experiments, but only the cases in MD5_CASES to the MD5 endpoint.
    """
    rows: dict[str, Exchange] = {}
    if "experiments" in server.implements:
        rows |= {f"experiments: {case.name}": case_row(PATH, case, is_echo) for case in CASES}
        rows["experiments: byte for byte"] = Exchange(PUBLISHED, same_bytes(PUBLISHED_ANSWER))
    if "md5" in server.implements:
        few = [case for case in CASES if case.name in MD5_CASES]
        rows |= {"md5: digest": MD5_ROW} | {
            f"md5: {case.name}": case_row(MD5_PATH, case, is_digest) for case in few
        }
    return rows


Accepts = Callable[[ExperimentCase, TimedResponse], bool]


def case_row(path: str, case: ExperimentCase, accepts: Accepts) -> Exchange:
    """Return the check of a case.

    The answer must have the expected status. If the body must be rejected, the error in the answer
    must name the case's field. If the body must be accepted, `accepts` must return True for the
    answer.
    """
    field = f" with an error that names {case.field}" if case.field else ""
    words = {"accepted": "success", "rejected": f"400{field}", "open": "success or 400"}[
        case.expected
    ]
    return Exchange(
        request("POST", path, case.body),
        Expected(words, lambda answer: verdict(case, answer, accepts)),
    )


def verdict(case: ExperimentCase, answer: TimedResponse, accepts: Accepts) -> bool:
    """Return whether the server answered as the case expects."""
    if answer.status == 400:
        return (
            case.expected != "accepted"
            and answer.error is not None
            and (case.field or "") in answer.error
        )
    if case.expected == "open":
        return answer.status in (200, 201) and answer.is_json
    return case.expected == "accepted" and answer.is_json and accepts(case, answer)


def echo_of(body: bytes) -> dict[str, object]:
    """Return the experiment in a valid body, without the fields that the contract ignores."""
    sent = json.loads(body)
    return {
        "name": sent["name"],
        "variants": [{key: v[key] for key in ("name", PERCENT)} for v in sent["variants"]],
    }


def is_echo(case: ExperimentCase, answer: TimedResponse, names: Collection[str] = ()) -> bool:
    """Return whether the answer repeats the experiment in the case's body.

    Numbers are compared as doubles. If `names` is not empty, the experiment in the answer must have
    one of these names, instead of the name in the body.
    """
    echo = echo_of(case.body)
    body = answer.json()
    same = answer.status == 200 and body in [
        echo | {"name": name} for name in names or (echo["name"],)
    ]
    return same and not any(isinstance(each[PERCENT], bool) for each in body["variants"])


def is_digest(case: ExperimentCase, answer: TimedResponse) -> bool:
    """Return whether the answer's name is the MD5 of `NAME-UNIXSECONDS`.

    NAME is the name of the experiment that was sent. UNIXSECONDS must lie between the time of the
    request and the time of the answer. One more second is allowed before and after, because the
    server may read a coarser clock than the lab.
    """
    seconds = range(int(answer.sent_s) - 1, int(answer.came_s) + 2)
    texts = [f"{echo_of(case.body)['name']}-{second}".encode() for second in seconds]
    return is_echo(
        case, answer, [hashlib.md5(text, usedforsecurity=False).hexdigest() for text in texts]
    )


PUBLISHED_ROW = case_row(PATH, CASES[0], is_echo)
MD5_ROW = case_row(MD5_PATH, CASES[0], is_digest)
