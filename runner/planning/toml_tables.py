"""TOML tables whose values have types, and whose errors name the file and the line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StrictBool, TypeAdapter, ValidationError

from runner.model import Idle, LabError, Mode
from runner.planning.search import Objective

T = TypeVar("T")
LONGEST_LINE = 10_000
"""A key of as many parts takes tomllib a second, and of ten times as many a minute."""


@dataclass(frozen=True)
class Table:
    """One TOML table together with where it came from, so that errors can name file and line."""

    path: Path
    text: str
    header: str
    """The table's header as written, such as `[build]` or `[[load]]`; empty for the top level."""
    nth: int
    values: dict[str, Any]
    own: frozenset[str] = frozenset()
    """Keys that stand in this table; further `values` may come from the table above it."""

    def error(self, key: str, message: str) -> LabError:
        """Return an error that names the file and the line of `key`."""
        return LabError(f"{self.path}, line {self._line(key)}: {message}.")

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        headers = [i for i, line in enumerate(lines) if line.strip().startswith(self.header)] if self.header else []
        start = headers[self.nth] + 1 if self.nth < len(headers) else 0
        for number in range(start, len(lines)):
            if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
                return number + 1
            if number > start and lines[number].lstrip().startswith("["):
                break
        return max(start, 1)

    def allow(self, *keys: str) -> None:
        """Refuse keys that nothing reads: a misspelt key must not be ignored silently."""
        for key in self.values:
            if key not in keys:
                raise self.error(key, f"unknown key {key!r}; known here are {', '.join(keys)}")

    def get(self, key: str, kind: Kind[T], default: T | None = None) -> T:
        """Return `key` converted by `kind`; LabError for a value that it does not accept."""
        if key not in self.values:
            if default is None:
                raise self.error(key, f"{self.header or 'the file'} lacks {key!r}")
            return default
        value = kind(self.values[key])
        if value is None:
            raise self.error(key, f"{key} = {self.values[key]!r} is not {kind.words}")
        return value

    def table(self, name: str) -> Table:
        """Return the table `[name]`, empty where there is none."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return Table(self.path, self.text, f"[{name}]", 0, values)


class Kind(Generic[T]):
    """What a value must be, in words and as a type of pydantic."""

    def __init__(self, words: str, kind: Any) -> None:
        self.words = words
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def __call__(self, value: Any) -> T | None:
        """Return the value as this kind of it, None where it is of another."""
        try:
            return self._adapter.validate_python(value)
        except (ValidationError, LabError):
            return None


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("a value occurs twice")
    return values


_COUNT = Annotated[int, Strict(), Field(ge=1, le=10**8)]
_NUMBER = Annotated[float, Strict(), Field(allow_inf_nan=False)]
_RATE = Annotated[_NUMBER, Field(gt=0, le=10**7)]
_SHARE = Annotated[_NUMBER, Field(ge=0.1, le=1)]
_LISTED = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
_SOME, _DIFFERENT = Field(min_length=1), AfterValidator(_different)

text = Kind[str]("a non-empty string", Annotated[str, Field(pattern=r"\S")])
texts = Kind[tuple[str, ...]]("a list of strings", tuple[str, ...])
environment = Kind[tuple[tuple[str, str], ...]](
    "a table of strings", Annotated[dict[str, str], AfterValidator(lambda given: tuple(sorted(given.items())))]
)
count = Kind[int]("a whole number from 1 to 100,000,000", _COUNT)
counts = Kind[tuple[int, ...]](
    "a whole number of at least 1, or a list of such", Annotated[tuple[_COUNT, ...], _SOME, _LISTED]
)
even = Kind[int]("an even number from 2 to 1,000", Annotated[int, Strict(), Field(ge=2, le=1000, multiple_of=2)])
seconds = Kind[float]("a number greater than 0 and at most 86,400", Annotated[_NUMBER, Field(gt=0, le=86_400)])
slice_seconds = Kind[float]("a number from 0.2 to 86,400", Annotated[_NUMBER, Field(ge=0.2, le=86_400)])
_RATE_WORDS = "a number of requests a second, greater than 0 and at most 10,000,000"
rate = Kind[float](_RATE_WORDS, _RATE)
rates = Kind[tuple[float, ...]](
    f"a list of different rates, each {_RATE_WORDS}", Annotated[tuple[_RATE, ...], _SOME, _DIFFERENT]
)
share = Kind[float]("a share of a core from 0.1 to 1", _SHARE)
shares = Kind[tuple[float, ...]](
    "a share of a core from 0.1 to 1, or a list of different ones",
    Annotated[tuple[_SHARE, ...], _SOME, _DIFFERENT, _LISTED],
)
idle_states = Kind[tuple[Idle, ...]](
    "'polling', 'system', or a list of both", Annotated[tuple[Idle, ...], _SOME, _DIFFERENT, _LISTED]
)
modes = Kind[tuple[Mode, ...]]("a list of 'keepalive' and 'close'", Annotated[tuple[Mode, ...], _SOME])
objective = Kind[str](
    "an objective such as 'p99 <= 10 ms'",
    Annotated[str, AfterValidator(lambda given: Objective.parse(given) and given)],
)
cpu_numbers = Kind[tuple[int, ...]](
    "a list of different numbers of CPUs",
    Annotated[tuple[Annotated[int, Strict(), Field(ge=0, lt=4096)], ...], _SOME, _DIFFERENT],
)
names = Kind[tuple[str, ...]](
    "a name, or a list of different ones",
    Annotated[tuple[Annotated[str, Field(pattern=r"\S")], ...], _SOME, _DIFFERENT, _LISTED],
)
flag = Kind[bool]("true or false", StrictBool)


def one_of(*choices: str) -> Kind[Any]:
    """Return a kind that accepts these values only."""
    return Kind(f"one of {', '.join(choices)}", Literal.__getitem__(choices))


def read_table(path: Path) -> Table:
    """Return a file's top level; LabError where it cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        if any(len(line) > LONGEST_LINE for line in text.splitlines()):
            raise ValueError(f"a line has more than {LONGEST_LINE:,} characters")
        return Table(path, text, "", 0, tomllib.loads(text))
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.") from None
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text.") from None
    except (ValueError, RecursionError) as error:  # what tomllib raises is a ValueError, and so is a number too long
        raise LabError(f"{path}: {error}.") from None
