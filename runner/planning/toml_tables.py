"""TOML tables whose values have types, and whose errors name the file and the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from runner.model import LabError
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

    def get(self, key: str, kind: Callable[[Any], T | None], default: T | None = None) -> T:
        """Return `key` converted by `kind`, which returns None for a value that it does not accept."""
        if key not in self.values:
            if default is None:
                raise self.error(key, f"{self.header or 'the file'} lacks {key!r}")
            return default
        value = kind(self.values[key])
        if value is None:
            raise self.error(key, f"{key} = {self.values[key]!r} is not {(kind.__doc__ or 'valid').strip()}")
        return value

    def table(self, name: str) -> Table:
        """Return the table `[name]`, empty where there is none."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return Table(self.path, self.text, f"[{name}]", 0, values)


def text(value: Any) -> str | None:
    """a non-empty string"""
    return value if isinstance(value, str) and value.strip() else None


def texts(value: Any) -> tuple[str, ...] | None:
    """a list of strings"""
    return tuple(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else None


def environment(value: Any) -> tuple[tuple[str, str], ...] | None:
    """a table of strings"""
    good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return tuple(sorted(value.items())) if good else None


def count(value: Any) -> int | None:
    """a whole number from 1 to 100,000,000"""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**8 else None


def counts(value: Any) -> tuple[int, ...] | None:
    """a whole number of at least 1, or a list of such"""
    found = [count(v) for v in (value if isinstance(value, list) else [value])]
    return tuple(v for v in found if v is not None) if found and None not in found else None


def seconds(value: Any) -> float | None:
    """a number greater than 0 and at most 86,400"""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 86_400 else None


def slice_seconds(value: Any) -> float | None:
    """a number from 0.2 to 86,400"""
    found = seconds(value)
    return found if found is not None and found >= 0.2 else None


def rate(value: Any) -> float | None:
    """a number of requests a second, greater than 0 and at most 10,000,000"""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 10**7 else None


def rates(value: Any) -> tuple[float, ...] | None:
    """a list of different rates, each a number of requests a second, greater than 0 and at most 10,000,000"""
    found = [rate(v) for v in value] if isinstance(value, list) else []
    good = found and None not in found and len(set(found)) == len(found)
    return tuple(v for v in found if v is not None) if good else None


def shares(value: Any) -> tuple[float, ...] | None:
    """a share of a core from 0.1 to 1, or a list of different ones"""
    found = value if isinstance(value, list) else [value]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
    good = found and numbers and all(0.1 <= v <= 1 for v in found) and len(set(found)) == len(found)
    return tuple(map(float, found)) if good else None


def share(value: Any) -> float | None:
    """a share of a core from 0.1 to 1"""
    found = None if isinstance(value, list) else shares(value)
    return found[0] if found else None


def idle_states(value: Any) -> Any:
    """'polling', 'system', or a list of both"""
    found = tuple(value) if isinstance(value, list) else (value,)
    known = all(v in ("polling", "system") for v in found)
    return found if found and known and len(set(found)) == len(found) else None


def even(value: Any) -> int | None:
    """an even number from 2 to 1,000"""
    return value if (count(value) or 1) % 2 == 0 and value <= 1000 else None


def objective(value: Any) -> str | None:
    """an objective such as 'p99 <= 10 ms'"""
    try:
        Objective.parse(value)
    except (LabError, AttributeError):
        return None
    return str(value)


def flag(value: Any) -> bool | None:
    """true or false"""
    return value if isinstance(value, bool) else None


def one_of(*choices: str) -> Callable[[Any], Any]:
    """Return a kind that accepts these values only."""

    def accept(value: Any) -> Any:
        return value if value in choices else None

    accept.__doc__ = "one of " + ", ".join(choices)
    return accept


def modes(value: Any) -> Any:
    """a list of 'keepalive' and 'close'"""
    return tuple(value) if isinstance(value, list) and value and set(value) <= {"keepalive", "close"} else None


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
