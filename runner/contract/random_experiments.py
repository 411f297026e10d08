"""Checks with random bodies: valid experiments in unusual spellings, and damaged experiments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise
from random import Random
from typing import Any

from runner.contract.client import Target, reject_constant, shorten
from runner.contract.experiments import (
    CASES,
    MD5_PATH,
    PATH,
    PERCENT,
    Accepts,
    ExperimentCase,
    Ruling,
    is_digest,
    is_echo,
    verdict,
)
from runner.contract.messages import MAX_BODY_BYTES, request
from runner.contract.rows import Result, Rows
from runner.model import JsonObject, Server

PER_CONNECTION = 50
MAX_CHARS = 200
MAX_VARIANTS = 100
KNOWN_KEYS = ("name", "variants", PERCENT)
SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
PIECES = (*(bytes((byte,)) for byte in b'"\\{}[],:0-. \0\xff\xc3'), b"e9")
HARMLESS = (b" ", b"x", b"0", "é".encode())  # bytes whose insertion often leaves a body valid


def random_rows(server: Server, seed: int, size: int = 250) -> Rows:
    """Return checks that send `size` valid experiments and `size` damaged experiments.

    The check of the MD5 endpoint sends only valid experiments, and only `size` / 5 of them. Checks
    of endpoints that the server does not implement are left out.
    """
    rows: dict[str, partial[Result]] = {}
    if "experiments" in server.implements:
        rows["experiments: random valid bodies"] = partial(
            _try_bodies, PATH, is_echo, seed, samples(seed, size)
        )
        rows["experiments: random damaged bodies"] = partial(
            _try_bodies, PATH, is_echo, seed, mutations(seed, size)
        )
    if "md5" in server.implements:
        few = samples(seed, size // 5)
        rows["md5: random valid bodies"] = partial(_try_bodies, MD5_PATH, is_digest, seed, few)
    return rows


def _try_bodies(
    path: str, accepts: Accepts, seed: int, bodies: Iterator[bytes], target: Target
) -> Result:
    sent = 0
    while part := list(islice(bodies, PER_CONNECTION)):
        with target.connect() as connection:
            for body in part:
                connection.send(request("POST", path, body))
                case = ExperimentCase(judge(body), "", body)
                answer = connection.read()
                if not verdict(case, answer, accepts):
                    said = (
                        f"{answer.status} {shorten(answer.body, 500)!r}; the body is "
                        f"{shorten(body, 500)!r}"
                    )
                    wanted = "accepted or rejected" if case.expected == "open" else case.expected
                    return (
                        False,
                        f"seed {seed}, body {sent}: expected that it is {wanted}; got {said}",
                    )
                sent += 1
    return True, f"seed {seed}: {sent} random bodies were answered as the contract requires"


def samples(seed: int, size: int) -> Iterator[bytes]:
    """Yield `size` valid bodies of at most 64 KiB; the same seed gives the same bodies."""
    random = Random(seed)  # noqa: S311
    made = 0
    while made < size:
        variants = random.choice(
            (1, 2, 2, 3, 3, 4, 5, 7, 10, random.randint(1, MAX_VARIANTS), MAX_VARIANTS)
        )
        longest = random.choice((1, 10, MAX_CHARS)) if variants <= 10 else 20
        name = _text(
            random,
            random.choice((1, random.randint(1, 30), random.randint(1, MAX_CHARS), MAX_CHARS)),
        )
        numbers = map(_Number, _percents(random, variants))
        parts = [
            {"name": _text(random, random.randint(1, longest)), PERCENT: each} for each in numbers
        ]
        body = _written(random, {"name": name, "variants": parts}).encode()
        if len(body) <= MAX_BODY_BYTES:
            made += 1
            yield body


def _character(random: Random) -> str:
    """Return a random character from any Unicode plane.

    Characters of the first two planes, and characters that JSON must escape, are chosen more often
    than other characters.
    """
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
    all_in_one = [
        random.choice(("0", "0.0", "-0", "-0.0", "0e5", "5e-324", "1e-7")) for _ in range(count - 1)
    ]
    all_in_one.insert(random.randrange(count), "100")
    styles = (
        [repr((after - before) / 10) for before, after in pairwise(edges)],
        [repr(100 / count)] * count,
        [repr(min(100.0, 100 * weight / sum(weights))) for weight in weights],
        all_in_one,
    )
    return [_rewritten(random, number) for number in random.choice(styles)]


def _rewritten(random: Random, number: str) -> str:
    """Return the same decimal number, perhaps with extra zeros, an exponent or a moved point."""
    if "e" in number or "E" in number:
        return random.choice((number, number.replace("e", "E")))
    exponent = random.choice(("e", "E")) + random.choice(("", "+", "-"))
    places = random.randint(1, 3)
    written = (
        number,
        f"{number}{'' if '.' in number else '.'}{'0' * random.randint(1, 5)}",
        f"{number}{exponent}{'0' * random.randint(1, 3)}",
        f"{Decimal(number).scaleb(places):f}e-{places}",
    )
    return random.choice(written)


class _Number(str):
    """A number as text, in the spelling in which it is sent."""


def _written(random: Random, value: object, depth: int = 0) -> str:
    """Return the JSON of a value, in a random spelling.

    Objects also get random unknown fields, which are nested at most five levels deep.
    """
    if isinstance(value, _Number):
        text = str(value)
    elif isinstance(value, str):
        share = random.choice((0.0, 0.0, 0.1, 1.0))
        text = f'"{"".join(_letter(random, letter, share) for letter in value)}"'
    elif isinstance(value, list):
        text = f"[{','.join(_written(random, each, depth) for each in value) or _space(random)}]"
    elif isinstance(value, dict):
        # The contract does not say how servers must treat a known key in capitals, such as "NAME".
        # So each unknown key begins with "x", and thus differs from all known keys.
        few = range(random.choice((0, 0, 0, 1, 3)))
        unknown = {"x" + _text(random, random.randint(0, 8)): _any(random, depth) for _ in few}
        items = list((unknown | value).items())
        random.shuffle(items)
        fields = (
            f"{_written(random, key)}:{_written(random, each, depth + 1)}" for key, each in items
        )
        text = f"{{{','.join(fields) or _space(random)}}}"
    else:
        text = json.dumps(value)
    return _space(random) + text + _space(random)


def _space(random: Random) -> str:
    return (
        "".join(random.choices(" \t\r\n", k=random.randint(1, 3))) if random.random() < 0.15 else ""
    )


def _any(random: Random, depth: int) -> object:
    kind = random.randrange(5 if depth < 5 else 3)
    if kind == 0:
        return random.choice((None, True, False))
    if kind == 1:
        return _Number(
            random.choice(
                ("0", "-0.0", "1e300", "-1.5E-300", "9007199254740993", str(random.random()))
            )
        )
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
    return (
        digits.replace("\\u", "\0").upper().replace("\0", "\\u")
        if random.random() < 0.5
        else digits
    )


def mutations(seed: int, size: int) -> Iterator[bytes]:
    """Yield `size` damaged bodies.

    Each body is a short valid body with one to three changes. A change removes, doubles or replaces
    a few bytes, or inserts one or two bytes. By chance, a body may still be valid.
    """
    random = Random(seed)  # noqa: S311
    short = [case.body for case in CASES if case.expected == "accepted" and len(case.body) < 300]
    for _ in range(size):
        body = random.choice(short)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            at = random.randrange(len(body))
            end = min(len(body), at + random.choice((1, 1, 2, 8)))
            kind = random.choice((PIECES, HARMLESS, (random.randbytes(1),)))
            piece = random.choice(kind)
            lost = body[:at] + body[end:]
            doubled = body[:end] + body[at:]
            changed = body[:at] + piece + body[end:]
            added = body[:at] + piece + body[at:]
            body = random.choice((lost, doubled, changed, added)) or b"x"
        yield body


class _OpenError(Exception):
    """Error for a body that the contract allows a server either to accept or to reject."""


def judge(body: bytes) -> Ruling:
    """Return the outcome that the contract requires for a random body: `accepted` or `rejected`.

    If the contract allows both outcomes, return `open`.

    Python's json decodes the body, and `_is_experiment` applies the rules of the contract.
    """
    if len(body) > MAX_BODY_BYTES or body.startswith(b"\xef\xbb\xbf"):
        return "open"
    try:
        value = DECODER.decode(body.decode())
        # Python's JSON accepts half a surrogate pair, which cannot be encoded in UTF-8.
        json.dumps(value, ensure_ascii=False).encode()
        return "accepted" if _is_experiment(value) else "rejected"
    except (_OpenError, UnicodeEncodeError):
        return "open"
    except (ValueError, RecursionError):
        return "rejected"


def _double(text: str) -> float:
    number = float(text)
    # If a number is too large or too small for a double, some JSON libraries accept it, and others
    # do not.
    if abs(number) == float("inf") or (number == 0 and text.lower().partition("e")[0].strip("-0.")):
        raise _OpenError
    return number


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys) or any(
        key not in KNOWN_KEYS and key.casefold() in KNOWN_KEYS for key in keys
    ):
        raise _OpenError
    return dict(pairs)


DECODER = json.JSONDecoder(
    parse_constant=reject_constant,
    object_pairs_hook=_unique,
    parse_float=_double,
    parse_int=_double,
)


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
