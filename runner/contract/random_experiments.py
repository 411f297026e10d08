"""Checks with random experiments: valid ones, written as JSON allows and people do not think of, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, pairwise, zip_longest
from random import Random
from typing import Any, NoReturn

from runner.contract.checking import MAX_BODY_BYTES, Result, Rows, Target, TimedResponse, connect, request, shorten
from runner.contract.experiments import (
    MD5_PATH,
    PATH,
    PERCENT,
    VALID_CASES,
    ExperimentCase,
    Ruling,
    digests_of,
    is_echo,
    verdict,
)
from runner.model import LabError, Server

PER_CONNECTION = 50
MAX_CHARS = 200
MAX_VARIANTS = 100
KNOWN_KEYS = ("name", "variants", PERCENT)
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
PIECES = (*(bytes((byte,)) for byte in b'"\\{}[],:0-. \0\xff\xc3'), b"e9")
HARMLESS = (b" ", b"x", b"0", "é".encode())
"""What often leaves a body valid."""


def random_rows(server: Server, seed: int, size: int = 250) -> Rows:
    """Return rows for `size` valid experiments, as many damaged ones, and a fifth for the MD5 endpoint.

    An answer to a valid one must mean the same, number by number as doubles.
    """
    rows: dict[str, partial[Result]] = {}
    if "experiments" in server.implements:
        rows["experiments: random valid bodies"] = partial(_try_bodies, PATH, seed, partial(_valid, PATH, seed, size))
        rows["experiments: random damaged bodies"] = partial(_try_bodies, PATH, seed, partial(_damaged, seed, size))
    if "md5" in server.implements:
        few = partial(_valid, MD5_PATH, seed, size // 5)
        rows["md5: random valid bodies"] = partial(_try_bodies, MD5_PATH, seed, few)
    return rows


Judged = tuple[bytes, Callable[[TimedResponse], str | None]]
"""A body, and what is wrong with an answer to it."""


def _valid(path: str, seed: int, size: int) -> Iterator[Judged]:
    for sample in samples(seed, size):
        yield sample.body, partial(_difference_of, sample, is_digest=path == MD5_PATH)


def _damaged(seed: int, size: int) -> Iterator[Judged]:
    def fault_of(case: ExperimentCase, answer: TimedResponse) -> str | None:
        return None if verdict(case, answer, is_echo) else f"expected it to be {case.expected}; got {answer.brief}"

    for body in mutations(seed, size):
        yield body, partial(fault_of, ExperimentCase(judge(body), "", body))


def _try_bodies(path: str, seed: int, make: Callable[[], Iterator[Judged]], target: Target) -> Result:
    bodies, sent = make(), 0
    while part := list(islice(bodies, PER_CONNECTION)):
        with connect(target) as connection:
            for body, fault_of in part:
                connection.send(request("POST", path, body))
                if fault := fault_of(connection.read()):
                    return False, f"seed {seed}, body {sent}: {fault}; the body is {shorten(body, 500)!r}"
                sent += 1
    return True, f"seed {seed}: {sent} random bodies were answered as they must be"


def _difference_of(sample: RandomExperiment, answer: TimedResponse, *, is_digest: bool) -> str | None:
    """Return how an answer differs from the experiment that was sent, if it does."""
    try:
        body = answer.json()
    except LabError as error:
        return str(error)
    if answer.status != 200 or not answer.is_json or not isinstance(body, dict) or set(body) != {"name", "variants"}:
        return f"expected 200 with name and variants; got {answer.brief}"
    names = digests_of(sample.name, answer) if is_digest else [sample.name]
    if body["name"] not in names:
        return f"expected the name {names[0]!r}; got {body['name']!r}"
    expected = [{"name": name, PERCENT: percent} for name, percent in sample.variants]
    if body["variants"] == expected and not any(isinstance(each[PERCENT], bool) for each in body["variants"]):
        return None
    got = body["variants"] if isinstance(body["variants"], list) else [body["variants"]]
    wrong = [pair for pair in zip_longest(expected, got) if pair[0] != pair[1]]
    return f"expected the variants {[each for each, _ in wrong[:3]]}; got {[each for _, each in wrong[:3]]}"


@dataclass(frozen=True)
class RandomExperiment:
    """One body, and the experiment that it means; its numbers are doubles."""

    body: bytes
    name: str
    variants: tuple[tuple[str, float], ...]


def samples(seed: int, size: int) -> Iterator[RandomExperiment]:
    """Yield `size` valid bodies of at most 64 KiB; the same seed yields the same."""
    random = Random(seed)  # noqa: S311
    endless = (_sample(random) for _ in count())
    return islice((sample for sample in endless if len(sample.body) <= MAX_BODY_BYTES), size)


def _sample(random: Random) -> RandomExperiment:
    variants = random.choice((1, 2, 2, 3, 3, 4, 5, 7, 10, random.randint(1, MAX_VARIANTS), MAX_VARIANTS))
    longest = random.choice((1, 10, MAX_CHARS)) if variants <= 10 else 20
    name = _text(random, random.choice((1, random.randint(1, 30), random.randint(1, MAX_CHARS), MAX_CHARS)))
    parts = [(_text(random, random.randint(1, longest)), number) for number in _percents(random, variants)]
    written = [{"name": text, PERCENT: _Number(number)} for text, number in parts]
    body = _written(random, {"name": name, "variants": written}).encode()
    return RandomExperiment(body, name, tuple((text, float(number)) for text, number in parts))


def _character(random: Random) -> str:
    """Return a character of any plane; the first planes, and what needs an escape, come more often."""
    kind = random.randrange(8)
    if kind == 0:
        return chr(random.randrange(0x20))
    if kind == 1:
        return random.choice("\"\\/\x7f\u2028\u2029<>&'\ufeff\ufffd\u0301\u200d")
    if kind < 5:
        return chr(random.randrange(0x20, 0x7F))
    code = random.randrange(0x10000) + 0x10000 * random.choice((0, 1, random.randrange(17)))
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ue000"


def _text(random: Random, length: int) -> str:
    return "".join(_character(random) for _ in range(length))


def _percents(random: Random, count: int) -> list[str]:
    edges = [0, *sorted(random.randint(0, 1000) for _ in range(count - 1)), 1000]
    weights = [random.random() for _ in range(count)]
    all_in_one = [random.choice(("0", "0.0", "-0", "-0.0", "0e5", "5e-324", "1e-7")) for _ in range(count - 1)]
    all_in_one.insert(random.randrange(count), "100")
    styles = (
        [repr((after - before) / 10) for before, after in pairwise(edges)],
        [repr(100 / count)] * count,
        [repr(min(100.0, 100 * weight / sum(weights))) for weight in weights],
        all_in_one,
    )
    return [_rewritten(random, number) for number in random.choice(styles)]


def _rewritten(random: Random, number: str) -> str:
    """Return the same decimal number, perhaps with more zeros, an exponent, or its point moved."""
    if "e" in number or "E" in number:
        return random.choice((number, number.replace("e", "E")))
    whole, _, fraction = number.partition(".")
    exponent = random.choice(("e", "E")) + random.choice(("", "+", "-"))
    places = random.randint(1, 3)
    digits = fraction.ljust(places, "0")
    moved = (whole + digits[:places]).lstrip("-").lstrip("0") or "0"
    rest = f".{digits[places:]}" if digits[places:] else ""
    written = (
        number,
        f"{whole}.{fraction}{'0' * random.randint(1, 5)}",
        f"{number}{exponent}{'0' * random.randint(1, 3)}",
        f"{number}e{random.choice(('', '+'))}0",
        f"{'-' if whole.startswith('-') else ''}{moved}{rest}e-{places}",
    )
    return random.choice(written)


class _Number(str):
    """A number as it is to be written."""


def _written(random: Random, value: object, depth: int = 0) -> str:
    """Return JSON of a value; objects get unknown fields, nested at most five deep."""
    if isinstance(value, _Number):
        text = str(value)
    elif isinstance(value, str):
        share = random.choice((0.0, 0.0, 0.1, 1.0))
        text = f'"{"".join(_letter(random, letter, share) for letter in value)}"'
    elif isinstance(value, list):
        text = f"[{','.join(_written(random, each, depth) for each in value) or _space(random)}]"
    elif isinstance(value, dict):
        # "x" keeps a key from being a known one in other letters, which the contract leaves open.
        few = range(random.choice((0, 0, 0, 1, 3)))
        unknown = {"x" + _text(random, random.randint(0, 8)): _any(random, depth) for _ in few}
        items = list((unknown | value).items())
        random.shuffle(items)
        fields = (f"{_written(random, key)}:{_written(random, each, depth + 1)}" for key, each in items)
        text = f"{{{','.join(fields) or _space(random)}}}"
    else:
        text = json.dumps(value)
    return _space(random) + text + _space(random)


def _space(random: Random) -> str:
    return "".join(random.choices(" \t\r\n", k=random.randint(1, 3))) if random.random() < 0.15 else ""


def _any(random: Random, depth: int) -> object:
    kind = random.randrange(5 if depth < 5 else 3)
    if kind == 0:
        return random.choice((None, True, False))
    if kind == 1:
        return _Number(random.choice(("0", "-0.0", "1e300", "-1.5E-300", "9007199254740993", str(random.random()))))
    if kind == 2:
        return _text(random, random.randint(0, 12))
    return {} if kind == 3 else [_any(random, depth + 1) for _ in range(random.randint(0, 3))]


def _letter(random: Random, letter: str, escaped_share: float) -> str:
    must = letter in '"\\' or letter < " "
    if not must and random.random() >= escaped_share:
        return letter
    if letter in SHORT_ESCAPES and random.random() < 0.5:
        return SHORT_ESCAPES[letter]
    escaped = json.dumps(letter) if letter > "~" else f'"\\u{ord(letter):04x}"'
    digits = escaped[1:-1]
    return digits.replace("\\u", "\0").upper().replace("\0", "\\u") if random.random() < 0.5 else digits


def mutations(seed: int, size: int) -> list[bytes]:
    """Return `size` bodies, each a short valid one with up to three bytes or pieces lost, doubled, changed or added."""
    random = Random(seed)  # noqa: S311
    short = [VALID_CASES[0].body, *(case.body for case in VALID_CASES if len(case.body) < 300)]
    return [_mutated(random, random.choice(short)) for _ in range(size)]


def _mutated(random: Random, body: bytes) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(body))
        end = min(len(body), at + random.choice((1, 1, 2, 8)))
        made = (
            body[:at] + body[end:],
            body[:end] + body[at:],
            body[:at] + random.choice(PIECES) + body[at:],
            body[:at] + random.choice(PIECES) + body[end:],
            body[:at] + bytes((random.randrange(256),)) + body[at + 1 :],
            body[:at] + random.choice(HARMLESS) + body[at + 1 :],
            body[:at] + random.choice(HARMLESS) + body[at:],
        )
        body = random.choice(made) or b"x"
    return body


class _OpenError(Exception):
    """What the contract leaves to the JSON library."""


def judge(body: bytes) -> Ruling:
    """Return what becomes of a body, by Python's JSON and the rules of the contract."""
    if len(body) > MAX_BODY_BYTES or body.startswith(b"\xef\xbb\xbf"):
        return "open"
    try:
        value = DECODER.decode(body.decode())
        # Half a surrogate pair, which Python's JSON lets pass, cannot be encoded.
        json.dumps(value, ensure_ascii=False).encode()
        return "accepted" if _is_experiment(value) else "rejected"
    except (_OpenError, UnicodeEncodeError):
        return "open"
    except (ValueError, RecursionError):
        return "rejected"


def _reject(constant: str) -> NoReturn:
    raise ValueError(constant)


def _double(text: str) -> float:
    number = float(text)
    # Beyond a double, or so small that it is none: libraries differ.
    if number in (float("inf"), float("-inf")) or (number == 0 and text.strip("-0.eE+") != ""):
        raise _OpenError
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys) or any(key not in KNOWN_KEYS and key.casefold() in KNOWN_KEYS for key in keys):
        raise _OpenError
    return dict(pairs)


DECODER = json.JSONDecoder(parse_constant=_reject, object_pairs_hook=_unique, parse_float=_double, parse_int=_double)


def _is_experiment(value: Any) -> bool:
    variants = value.get("variants") if isinstance(value, dict) else None
    if not isinstance(variants, list) or not all(isinstance(variant, dict) for variant in variants):
        return False
    names = [each.get("name") for each in (value, *variants)]
    percents = [variant.get(PERCENT) for variant in variants]
    well_named = all(isinstance(name, str) and 1 <= len(name) <= MAX_CHARS for name in names)
    in_range = all(isinstance(percent, float) and 0 <= percent <= 100 for percent in percents)
    if not (well_named and in_range and 1 <= len(variants) <= MAX_VARIANTS):
        return False
    distance = float(abs(sum(percents) - 100))
    if abs(distance - 0.01) < 1e-6:
        raise _OpenError
    return distance < 0.01
