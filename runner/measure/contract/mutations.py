"""Experiments damaged at random, and a judge of our own that says which of them are still valid."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any, Literal, NoReturn

from runner.measure.contract.cases import PUBLISHED_BODY, VALID_CASES
from runner.measure.contract.wire import MAX_BODY_BYTES

Judgement = Literal["accepted", "rejected", "open"]

KNOWN_KEYS = ("name", "variants", "allocation_percent")
MAX_CHARS = 200
MAX_VARIANTS = 100
PIECES = (*(bytes((byte,)) for byte in b'"\\{}[],:0-. \0\xff\xc3'), b"e9")
HARMLESS = (b" ", b"x", b"0", "é".encode())
"""What often leaves a body valid."""


def mutations(seed: int, size: int) -> list[bytes]:
    """Return `size` bodies, each a short valid one with up to three bytes or pieces lost, doubled, changed or added."""
    random = Random(seed)  # noqa: S311
    short = [PUBLISHED_BODY, *(case.body for case in VALID_CASES if len(case.body) < 300)]
    return [_mutated(random, random.choice(short)) for _ in range(size)]


def _mutated(random: Random, body: bytes) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(body))
        end = min(len(body), at + random.choice((1, 1, 2, 8)))
        body = (
            random.choice(
                (
                    body[:at] + body[end:],
                    body[:end] + body[at:],
                    body[:at] + random.choice(PIECES) + body[at:],
                    body[:at] + random.choice(PIECES) + body[end:],
                    body[:at] + bytes((random.randrange(256),)) + body[at + 1 :],
                    body[:at] + random.choice(HARMLESS) + body[at + 1 :],
                    body[:at] + random.choice(HARMLESS) + body[at:],
                )
            )
            or b"x"
        )
    return body


class _OpenError(Exception):
    """What the contract leaves to the JSON library."""


def judge(body: bytes) -> Judgement:
    """Return what becomes of a body, by Python's JSON and the rules of the contract."""
    if len(body) > MAX_BODY_BYTES or body.startswith(b"\xef\xbb\xbf"):
        return "open"
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_reject,
            object_pairs_hook=_unique,
            parse_float=_double,
            parse_int=_double,
        )
        _no_surrogates(value)
        return "accepted" if _is_experiment(value) else "rejected"
    except _OpenError:
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


def _no_surrogates(value: object) -> None:
    """Raise where a string has half a surrogate pair, which Python's JSON lets pass."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _OpenError from None


def _is_experiment(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_name(value.get("name")):
        return False
    variants = value.get("variants")
    if not isinstance(variants, list) or not 1 <= len(variants) <= MAX_VARIANTS:
        return False
    if not all(isinstance(variant, dict) and _is_name(variant.get("name")) for variant in variants):
        return False
    return _are_percents([variant.get("allocation_percent") for variant in variants])


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_CHARS


def _are_percents(values: Iterable[object]) -> bool:
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(list(values)) or not all(0 <= number <= 100 for number in numbers):
        return False
    distance = abs(sum(numbers) - 100)
    if abs(distance - 0.01) < 1e-6:
        raise _OpenError
    return distance < 0.01
