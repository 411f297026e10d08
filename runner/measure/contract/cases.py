"""What is sent to the experiment endpoints and what must come back: rows of data, one a rule of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from runner.measure.contract import json_cases
from runner.measure.contract.json_cases import Case, accepted, left_open, rejected
from runner.measure.contract.wire import MAX_BODY_BYTES

PUBLISHED_BODY = (
    b'{"name":"new_home_page","variants":[{"name":"blue_button","allocation_percent":50.0},'
    b'{"name":"red_button","allocation_percent":50.0}]}'
)
"""The body of the published comparison."""
PUBLISHED_ANSWER = PUBLISHED_BODY.replace(b"50.0", b"50")
"""The bytes of its answer: compact, fields in order, whole numbers without a fraction."""

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


def experiment_body(name: object = "page", percents: Sequence[object] = (100,), **more: object) -> bytes:
    """Return an experiment as JSON, with one variant a percentage; `more` replaces or adds fields."""
    variants = [{"name": f"v{n}", "allocation_percent": percent} for n, percent in enumerate(percents)]
    return json.dumps({"name": name, "variants": variants} | more, ensure_ascii=False).encode()


def _variant_named(name: object) -> bytes:
    return experiment_body(variants=[{"name": name, "allocation_percent": 100}])


def _percent_written(number: str) -> bytes:
    return b'{"name":"x","variants":[{"name":"v","allocation_percent":%b}]}' % number.encode()


def _percents(*numbers: str) -> bytes:
    """Return an experiment with percentages exactly as written."""
    variants = ",".join(f'{{"name":"v","allocation_percent":{number}}}' for number in numbers)
    return f'{{"name":"x","variants":[{variants}]}}'.encode()


def _valid_names() -> Iterator[Case]:
    for label, letter in CHARACTERS:
        yield accepted(f"name of 1 {label} character", experiment_body(letter))
        yield accepted(f"name of 200 {label} characters", experiment_body(letter * 200))
        yield accepted(f"variant name of 1 {label} character", _variant_named(letter))
        yield accepted(f"variant name of 200 {label} characters", _variant_named(letter * 200))
    yield accepted("name of 200 combining characters", experiment_body("e" + "\u0301" * 199))
    yield accepted(
        "name of 200 escaped surrogate pairs", experiment_body("NAME").replace(b"NAME", b"\\ud83d\\ude00" * 200)
    )
    yield accepted("name with quotes, control characters and <&>'\"", experiment_body('a"\\\n\t\u0001\u2028<&>'))
    yield accepted("name U+0000", experiment_body("\0"))
    yield accepted("name of one space", experiment_body(" "))


def _valid_percents() -> Iterator[Case]:
    yield accepted("1 variant", experiment_body(percents=[100]))
    yield accepted("100 variants", experiment_body(percents=[1] * 100))
    yield accepted(
        "100 variants of the same name", experiment_body(variants=[{"name": "v", "allocation_percent": 1}] * 100)
    )
    yield accepted("percentages of 0 and 100", experiment_body(percents=[0, 100]))
    yield accepted("a percentage of -0.0", _percents("-0.0", "-0", "100"))
    yield accepted("the smallest percentage above 0", _percents("5e-324", "100"))
    yield accepted("integers and fractions", experiment_body(percents=[33, 33.5, 33.5]))
    yield accepted("sum of 99.99", experiment_body(percents=[50, 49.99]))
    yield accepted("sum of 100.01", experiment_body(percents=[50, 50.01]))
    yield accepted("sum of 99.995", experiment_body(percents=[50, 49.995]))
    yield accepted("sum of 100.005", experiment_body(percents=[50, 50.005]))
    yield accepted("three times 33.33", experiment_body(percents=[33.33] * 3))
    yield accepted("three thirds of 17 digits", experiment_body(percents=[100 / 3] * 3))
    yield accepted("1,000 tenths in 100 variants", experiment_body(percents=[0.7, 1.3] * 50))
    for number in ("1e2", "1E+2", "100.000", "0.1e3", "1000e-1", "100000000000000000000e-18"):
        yield accepted(f"percentage written {number}", _percent_written(number))


VALID_CASES: tuple[Case, ...] = (
    accepted("the published body", PUBLISHED_BODY),
    *_valid_names(),
    *_valid_percents(),
    *json_cases.unusual(PUBLISHED_BODY, b"new_home_page"),
)


def _invalid_names() -> Iterator[Case]:
    yield rejected("no name", "name", b'{"variants":[{"name":"v","allocation_percent":100}]}')
    yield rejected("empty name", "name", experiment_body(""))
    yield rejected("variant name missing", "name", experiment_body(variants=[{"allocation_percent": 100}]))
    yield rejected("variant name empty", "name", _variant_named(""))
    for label, letter in CHARACTERS:
        yield rejected(f"name of 201 {label} characters", "name", experiment_body(letter * 201))
        yield rejected(f"variant name of 201 {label} characters", "name", _variant_named(letter * 201))
    for label, value in WRONG_TYPES:
        if not isinstance(value, str):
            yield rejected(f"name {label}", "name", experiment_body(value))
            yield rejected(f"variant name {label}", "name", _variant_named(value))


def _invalid_variants() -> Iterator[Case]:
    good = {"name": "v", "allocation_percent": 100}
    yield rejected("no variants", "variants", b'{"name":"x"}')
    yield rejected("variants empty", "variants", experiment_body(percents=[]))
    yield rejected("101 variants", "variants", experiment_body(percents=[0.99] * 101))
    yield rejected("variants with an array of fields", "variants", experiment_body(variants=[["v", 100]]))
    yield rejected("the last of two variants a list", "variants", experiment_body(variants=[good, []]))
    yield rejected("a variant without fields", "name", experiment_body(variants=[{}]))
    for label, value in WRONG_TYPES:
        if not isinstance(value, list):
            yield rejected(f"variants {label}", "variants", experiment_body(variants=value))
        if not isinstance(value, dict):
            yield rejected(f"a variant that is {label}", "variants", experiment_body(variants=[good, value]))


def _invalid_percents() -> Iterator[Case]:
    field = "allocation_percent"
    yield rejected("percentage missing", field, experiment_body(variants=[{"name": "v"}]))
    yield rejected(
        "the last percentage missing", field, experiment_body(variants=[{"name": "v", field: 100}, {"name": "w"}])
    )
    for label, value in WRONG_TYPES:
        if not isinstance(value, int) or isinstance(value, bool):
            # With the rest it sums to 100, whether it is taken for 0 or for 1.
            yield rejected(
                f"percentage {label}", field, experiment_body(percents=[value, 99 if value is True else 100])
            )
    yield rejected('percentage "100"', field, experiment_body(percents=["100"]))
    for number in ("-0.01", "-5e-324", "100.00000000000001", "100.01", "1e300", "-1e300"):
        # The sum is right: only the range is not.
        yield rejected(f"percentage of {number}", field, _percents(number, *(["100"] if number[0] == "-" else [])))
    yield rejected("percentages of 150 and -50", field, _percents("150", "-50"))
    for number in ("0", "50", "99.98", "99.9899", "100.0101", "100.02", "150"):
        rest = float(number) - 50 if float(number) > 50 else 0.0
        yield rejected(f"sum of {number}", field, experiment_body(percents=[float(number) - rest, rest]))
    for number in (
        "1e999",
        "-1e999",
        "1" + "0" * 309,
        "NaN",
        "Infinity",
        "-Infinity",
        "0100",
        "1e",
        "100.",
        "+100",
        "0x64",
    ):
        shown = number if len(number) < 20 else "10 to the power of 309"
        yield rejected(f"{shown} as a percentage", None, _percent_written(number))


INVALID_CASES: tuple[Case, ...] = (*_invalid_names(), *_invalid_variants(), *_invalid_percents())

MALFORMED_CASES: tuple[Case, ...] = (
    *json_cases.malformed(PUBLISHED_BODY, b"new_home_page"),
    rejected("an array of fields instead of an object", None, b'["x",[{"name":"v","allocation_percent":100}]]'),
    *json_cases.either(PUBLISHED_BODY, b"new_home_page"),
    left_open("a duplicate key", experiment_body()[:-1] + b',"name":"again"}'),
    # RFC 8259 compares names by their characters, but Go's encoding/json in any case.
    left_open("field names in capitals", experiment_body().replace(b'"name"', b'"NAME"')),
    left_open("a percentage of 1e-999", _percents("1e-999", "100")),
)

TOO_LARGE = Case("a body of 64 KiB and 1 byte", experiment_body().ljust(MAX_BODY_BYTES + 1), "rejected")

MD5_CASES = tuple(
    case
    for case in INVALID_CASES + MALFORMED_CASES
    if case.name
    in (
        "name of 201 two-byte characters",
        "no name",
        "101 variants",
        "sum of 100.02",
        "cut off",
        "a null byte",
        "two values",
    )
)
"""The MD5 endpoint shares its validation; a few rows show that it has it."""
