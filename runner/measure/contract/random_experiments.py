"""Valid experiments at random, written in ways that JSON allows and people do not think of."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from runner.measure.contract.wire import MAX_BODY_BYTES

SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
PLANES = 17
MAX_CHARS = 200
MAX_VARIANTS = 100


@dataclass(frozen=True)
class Sample:
    """One body, and the experiment that it means; its numbers are doubles."""

    body: bytes
    name: str
    variants: tuple[tuple[str, float], ...]


def samples(seed: int, size: int) -> list[Sample]:
    """Return `size` valid bodies of at most 64 KiB; the same seed returns the same."""
    random = Random(seed)  # noqa: S311
    writer = _Writer(random)
    return [_sample(random, writer) for _ in range(size)]


def _sample(random: Random, writer: _Writer) -> Sample:
    while True:
        count = random.choice((1, 2, 2, 3, 3, 4, 5, 7, 10, random.randint(1, MAX_VARIANTS)))
        longest = random.choice((1, 10, MAX_CHARS)) if count <= 10 else 20
        numbers = _percents(random, count)
        name = _text(random, random.choice((1, random.randint(1, 30), random.randint(1, MAX_CHARS), MAX_CHARS)))
        variants = tuple((_text(random, random.randint(1, longest)), number) for number in numbers)
        body = writer.experiment(name, variants)
        if len(body) <= MAX_BODY_BYTES:
            return Sample(body, name, tuple((text, float(number)) for text, number in variants))


def _character(random: Random) -> str:
    """Return a character of any plane; the first planes, and what needs an escape, come more often."""
    kind = random.randrange(8)
    if kind == 0:
        return chr(random.randrange(0x20))
    if kind == 1:
        return random.choice("\"\\/\x7f\u2028\u2029<>&'\ufeff\ufffd\u0301\u200d")
    if kind < 5:
        return chr(random.randrange(0x20, 0x7F))
    code = random.randrange(0x10000) + 0x10000 * random.choice((0, 1, random.randrange(PLANES)))
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ue000"


def _text(random: Random, length: int) -> str:
    return "".join(_character(random) for _ in range(length))


# --- percentages, as texts that sum to 100 ----------------------------------------------------------------


def _percents(random: Random, count: int) -> list[str]:
    style = random.choice((_in_tenths, _in_equal_parts, _in_random_parts, _in_one_part))
    return [_rewritten(random, number) for number in style(random, count)]


def _cut(random: Random, whole: int, count: int) -> list[int]:
    edges = [0, *sorted(random.randint(0, whole) for _ in range(count - 1)), whole]
    return [after - before for before, after in pairwise(edges)]


def _in_tenths(random: Random, count: int) -> list[str]:
    return [f"{part // 10}.{part % 10}" for part in _cut(random, 1000, count)]


def _in_equal_parts(_random: Random, count: int) -> list[str]:
    return [repr(100 / count)] * count


def _in_random_parts(random: Random, count: int) -> list[str]:
    weights = [random.random() for _ in range(count)]
    return [repr(min(100.0, 100 * weight / sum(weights))) for weight in weights]


def _in_one_part(random: Random, count: int) -> list[str]:
    numbers = [random.choice(("0", "0.0", "-0", "-0.0", "0e5", "5e-324", "1e-7")) for _ in range(count)]
    numbers[random.randrange(count)] = "100"
    return numbers


def _rewritten(random: Random, number: str) -> str:
    """Return the same decimal number, perhaps with more zeros or an exponent."""
    if "e" in number or "E" in number:
        return random.choice((number, number.replace("e", "E")))
    whole, _, fraction = number.partition(".")
    exponent = random.choice(("e", "E")) + random.choice(("", "+", "-"))
    return random.choice(
        (
            number,
            f"{whole}.{fraction}{'0' * random.randint(1, 5)}",
            f"{number}{exponent}{'0' * random.randint(1, 3)}",
            f"{number}e{random.choice(('', '+'))}0",
            _shifted(whole, fraction, random.randint(1, 3)),
        )
    )


def _shifted(whole: str, fraction: str, places: int) -> str:
    """Return the number with its point moved to the right, and an exponent that moves it back."""
    digits = fraction.ljust(places, "0")
    moved = (whole + digits[:places]).lstrip("-").lstrip("0") or "0"
    sign = "-" if whole.startswith("-") else ""
    rest = digits[places:]
    return f"{sign}{moved}{'.' if rest else ''}{rest}e-{places}"


# --- JSON texts -------------------------------------------------------------------------------------------


class _Writer:
    """Writes JSON with random escapes, white space, order of fields and unknown fields."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def experiment(self, name: str, variants: tuple[tuple[str, str], ...]) -> bytes:
        """Return the bytes of an experiment whose percentages are already texts."""
        written = [self._object({"name": self._string(n), "allocation_percent": p}) for n, p in variants]
        return self._padded(self._object({"name": self._string(name), "variants": self._array(written)})).encode()

    def _padded(self, text: str) -> str:
        return self._space() + text + self._space()

    def _space(self) -> str:
        random = self._random
        return "".join(random.choices(" \t\r\n", k=random.randint(1, 3))) if random.random() < 0.15 else ""

    def _object(self, fields: dict[str, str]) -> str:
        unknown = {self._unknown_key(): self._value(0) for _ in range(self._random.choice((0, 0, 0, 1, 3)))}
        items = list((unknown | fields).items())
        self._random.shuffle(items)
        written = (f"{self._padded(self._string(key))}:{self._padded(value)}" for key, value in items)
        return f"{{{','.join(written)}}}" if items else f"{{{self._space()}}}"

    def _array(self, values: list[str]) -> str:
        return f"[{','.join(map(self._padded, values))}]" if values else f"[{self._space()}]"

    def _unknown_key(self) -> str:
        # "x" keeps it from being a known key in other letters, which the contract leaves open.
        return "x" + _text(self._random, self._random.randint(0, 8))

    def _value(self, depth: int) -> str:
        """Return any JSON value, nested at most five deep."""
        random = self._random
        kinds: list[Callable[[], str]] = [
            lambda: random.choice(("null", "true", "false")),
            lambda: random.choice(("0", "-0.0", "1e300", "-1.5E-300", "9007199254740993", str(random.random()))),
            lambda: self._string(_text(random, random.randint(0, 12))),
        ]
        if depth < 5:
            kinds.append(lambda: self._array([self._value(depth + 1) for _ in range(random.randint(0, 3))]))
            kinds.append(lambda: self._object({self._unknown_key(): self._value(depth + 1)}))
        return random.choice(kinds)()

    def _string(self, text: str) -> str:
        share = self._random.choice((0.0, 0.0, 0.1, 1.0))
        return f'"{"".join(self._letter(letter, share) for letter in text)}"'

    def _letter(self, letter: str, escaped_share: float) -> str:
        random = self._random
        must = letter in '"\\' or letter < " "
        if not must and random.random() >= escaped_share:
            return letter
        if letter in SHORT_ESCAPES and random.random() < 0.5:
            return SHORT_ESCAPES[letter]
        escaped = json.dumps(letter) if letter > "~" else f'"\\u{ord(letter):04x}"'
        digits = escaped[1:-1]
        return digits.replace("\\u", "\0").upper().replace("\0", "\\u") if random.random() < 0.5 else digits
