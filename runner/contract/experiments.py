"""Checks of the experiment endpoints: a row for each rule of validation, and the content of the answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from runner.contract import json_cases
from runner.contract.checking import Exchange, Expected, Rows, same_bytes
from runner.contract.connection import MAX_BODY_BYTES, Answer, request
from runner.contract.json_cases import WRONG_TYPES, Case, accepted, left_open, rejected, text_cases
from runner.model import Server

PATH, MD5_PATH = "/experiments", "/experiments/md5"
PERCENT = "allocation_percent"

PUBLISHED_BODY = (
    b'{"name":"new_home_page","variants":[{"name":"blue_button","allocation_percent":50.0},'
    b'{"name":"red_button","allocation_percent":50.0}]}'
)
"""The body of the published comparison."""
PUBLISHED_ANSWER = PUBLISHED_BODY.replace(b"50.0", b"50")
"""The bytes of its answer: compact, fields in order, whole numbers without a fraction."""


def experiment_body(name: object = "page", percents: Sequence[object] = (100,), **more: object) -> bytes:
    """Return an experiment as JSON, with one variant per percentage; `more` replaces or adds fields."""
    variants = [{"name": f"v{n}", PERCENT: percent} for n, percent in enumerate(percents)]
    return json.dumps({"name": name, "variants": variants} | more, ensure_ascii=False).encode()


def _variant_named(name: object) -> bytes:
    return experiment_body(variants=[{"name": name, PERCENT: 100}])


def _percents(*numbers: str) -> bytes:
    """Return an experiment with percentages exactly as written."""
    variants = ",".join(f'{{"name":"v","allocation_percent":{number}}}' for number in numbers)
    return f'{{"name":"x","variants":[{variants}]}}'.encode()


VALID_BODIES = {
    "name of 200 combining characters": experiment_body("e" + "\u0301" * 199),
    "name of 200 escaped surrogate pairs": experiment_body("NAME").replace(b"NAME", b"\\ud83d\\ude00" * 200),
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
    **{
        f"percentage written {number}": _percents(number)
        for number in ("1e2", "1E+2", "100.000", "0.1e3", "1000e-1", "100000000000000000000e-18")
    },
}
NAMES = (
    *text_cases("name", "name", 200, experiment_body),
    *text_cases("variant name", "name", 200, _variant_named),
)


def _invalid() -> Iterator[Case]:
    good = {"name": "v", PERCENT: 100}
    yield rejected("no name", "name", b'{"variants":[{"name":"v","allocation_percent":100}]}')
    yield rejected("empty name", "name", experiment_body(""))
    yield rejected("variant name missing", "name", experiment_body(variants=[{PERCENT: 100}]))
    yield rejected("variant name empty", "name", _variant_named(""))
    yield rejected("no variants", "variants", b'{"name":"x"}')
    yield rejected("variants empty", "variants", experiment_body(percents=[]))
    yield rejected("101 variants", "variants", experiment_body(percents=[0.99] * 101))
    yield rejected("variants with an array of fields", "variants", experiment_body(variants=[["v", 100]]))
    yield rejected("the last of two variants a list", "variants", experiment_body(variants=[good, []]))
    yield rejected("a variant without fields", "name", experiment_body(variants=[{}]))
    yield rejected("percentage missing", PERCENT, experiment_body(variants=[{"name": "v"}]))
    yield rejected("the last percentage missing", PERCENT, experiment_body(variants=[good, {"name": "w"}]))
    yield rejected('percentage "100"', PERCENT, experiment_body(percents=["100"]))
    for label, value in WRONG_TYPES:
        if not isinstance(value, list):
            yield rejected(f"variants {label}", "variants", experiment_body(variants=value))
        if not isinstance(value, dict):
            yield rejected(f"a variant that is {label}", "variants", experiment_body(variants=[good, value]))
        if not isinstance(value, int) or isinstance(value, bool):
            # With the rest it sums to 100, whether it is taken for 0 or for 1.
            rest = 99 if value is True else 100
            yield rejected(f"percentage {label}", PERCENT, experiment_body(percents=[value, rest]))
    for number in ("-0.01", "-5e-324", "100.00000000000001", "100.01", "1e300", "-1e300"):
        # The sum is right: only the range is not.
        yield rejected(f"percentage of {number}", PERCENT, _percents(number, *(["100"] if number[0] == "-" else [])))
    yield rejected("percentages of 150 and -50", PERCENT, _percents("150", "-50"))
    for number in ("0", "50", "99.98", "99.9899", "100.0101", "100.02", "150"):
        over = float(number) - 50 if float(number) > 50 else 0.0
        yield rejected(f"sum of {number}", PERCENT, experiment_body(percents=[float(number) - over, over]))
    yield rejected("10 to the power of 309 as a percentage", None, _percents("1" + "0" * 309))
    for number in ("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "0100", "1e", "100.", "+100", "0x64"):
        yield rejected(f"{number} as a percentage", None, _percents(number))


VALID_CASES: tuple[Case, ...] = (
    accepted("the published body", PUBLISHED_BODY),
    *(case for case in NAMES if case.expected == "accepted"),
    *(accepted(name, body) for name, body in VALID_BODIES.items()),
    *json_cases.unusual(PUBLISHED_BODY, b"new_home_page"),
)
INVALID_CASES: tuple[Case, ...] = (*(case for case in NAMES if case.expected == "rejected"), *_invalid())
MALFORMED_CASES: tuple[Case, ...] = (
    *json_cases.malformed(PUBLISHED_BODY, b"new_home_page"),
    rejected("an array of fields instead of an object", None, b'["x",[{"name":"v","allocation_percent":100}]]'),
    *json_cases.either(PUBLISHED_BODY, b"new_home_page"),
    left_open("a duplicate key", experiment_body()[:-1] + b',"name":"again"}'),
    # RFC 8259 compares names by their characters, but Go's encoding/json in any case.
    left_open("field names in capitals", experiment_body().replace(b'"name"', b'"NAME"')),
    left_open("a percentage of 1e-999", _percents("1e-999", "100")),
)
CASES = (*VALID_CASES, *INVALID_CASES, *MALFORMED_CASES)
TOO_LARGE = Case("a body of 64 KiB and 1 byte", experiment_body().ljust(MAX_BODY_BYTES + 1), "rejected")
PUBLISHED = request("POST", PATH, PUBLISHED_BODY)
MD5_CASES = (
    *("name of 201 two-byte characters", "no name", "101 variants", "sum of 100.02"),
    *("cut off", "a null byte", "two values"),
)
"""The MD5 endpoint shares its validation; a few rows show that it has it."""


def experiment_rows(server: Server) -> Rows:
    """Return rows for every case on those experiment endpoints that the server implements."""
    rows: dict[str, Exchange] = {}
    if "experiments" in server.implements:
        rows |= {f"experiments: {case.name}": case_row(PATH, case, is_echo) for case in CASES}
        rows["experiments: byte for byte"] = Exchange(PUBLISHED, same_bytes(PUBLISHED_ANSWER))
    if "md5" in server.implements:
        few = [case for case in CASES if case.name in MD5_CASES]
        rows["md5: digest"] = MD5_ROW
        rows |= {f"md5: {case.name}": case_row(MD5_PATH, case, lambda _case, _answer: False) for case in few}
    return rows


Accepts = Callable[[Case, Answer], bool]
"""Whether the answer to an accepted case is the right one."""


def case_row(path: str, case: Case, accepts: Accepts) -> Exchange:
    """Return the row of a case: its status, and that the error names the field, or that `accepts` holds."""
    field = f" naming {case.field}" if case.field else ""
    words = {"accepted": "success", "rejected": f"400{field}", "open": "success or 400"}[case.expected]
    return Exchange(request("POST", path, case.body), Expected(words, lambda answer: verdict(case, answer, accepts)))


def verdict(case: Case, answer: Answer, accepts: Accepts) -> bool:
    """Whether an answer is what the case expects."""
    if answer.status == 400:
        return case.expected != "accepted" and answer.error is not None and (case.field or "") in answer.error
    if case.expected == "open":
        return answer.status in (200, 201) and answer.is_json
    return case.expected == "accepted" and answer.is_json and accepts(case, answer)


def is_echo(case: Case, answer: Answer) -> bool:
    """Whether the answer is the experiment that was sent."""
    return answer.status == 200 and answer.json() == echo_of(case.body)


def echo_of(body: bytes) -> dict[str, object]:
    """Return the experiment that a valid body describes, without what the contract ignores."""
    sent = json.loads(body)
    return {"name": sent["name"], "variants": [{key: v[key] for key in ("name", PERCENT)} for v in sent["variants"]]}


def digests_of(name: str, answer: Answer) -> list[str]:
    """Return the MD5 of `NAME-UNIXSECONDS` for each second that the request overlapped.

    One second more each way: the server may read a coarser clock than ours.
    """
    texts = [f"{name}-{second}" for second in range(int(answer.sent_s) - 1, int(answer.came_s) + 2)]
    return [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts]


def _is_digest(answer: Answer) -> bool:
    echo, body = echo_of(PUBLISHED_BODY), answer.json()
    name = body.get("name") if isinstance(body, dict) else None
    known = name in digests_of(str(echo["name"]), answer)
    return answer.status == 200 and answer.is_json and known and body == echo | {"name": name}


IS_DIGEST = Expected("200 and the experiment with a digest as its name", _is_digest)
MD5_ROW = Exchange(request("POST", MD5_PATH, PUBLISHED_BODY), IS_DIGEST)
PUBLISHED_ROW = case_row(PATH, VALID_CASES[0], is_echo)
