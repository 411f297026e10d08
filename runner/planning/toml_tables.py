"""TOML tables whose values have types, and whose errors name the file and the line."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    StrictBool,
    TypeAdapter,
    ValidationError,
)

from runner.generator_traits import TRAITS
from runner.model import LabError
from runner.planning.search import Objective
from runner.shapes import Idle, Mode

LONGEST_LINE = 10_000
"""A key of as many parts takes tomllib a second, and of ten times as many a minute."""


@dataclass(eq=False)
class Kind:
    """What a value must be, in words and as a type of pydantic."""

    words: str
    type: Any

    @functools.cached_property
    def read(self) -> Callable[[Any], Any]:
        """Return what converts a value.

        It raises ValidationError or LabError for one of another kind.
        """
        return TypeAdapter(self.type).validate_python


@dataclass(frozen=True)
class Table:
    """One TOML table together with where it came from, so that errors can name file and line."""

    path: Path
    text: str
    header: str
    """The table's header as written, such as `[build]` or `[[load]]`; empty for the top level."""
    nth: int
    values: dict[str, Any]

    def error(self, key: str, message: str) -> LabError:
        """Return an error that names the file and the line of `key`."""
        return LabError(f"{self.path}, line {self._line(key)}: {message}.")

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        headers = (
            [i for i, line in enumerate(lines) if line.strip().startswith(self.header)]
            if self.header
            else []
        )
        start = headers[self.nth] + 1 if self.nth < len(headers) else 0
        for number in range(start, len(lines)):
            if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
                return number + 1
            if number > start and lines[number].lstrip().startswith("["):
                break
        return max(start, 1)

    def read(
        self, needed: str = "", optional: str = "", tables: str = "", **others: Kind
    ) -> dict[str, Any]:
        """Return the values that are given, each as the kind of its key.

        LabError for one that is wrong or lacking.

        The three are names with spaces between; those of `tables` are read by `table`. `others` are
        keys whose kind is another one here than in `KINDS`.
        """
        known = f"{needed} {optional} {tables}".split()
        for key in self.values:
            if key not in known:
                raise self.error(key, f"unknown key {key!r}; known here are {', '.join(known)}")
        for key in tables.split():
            self.table(key)
        found = dict.fromkeys(
            (*needed.split(), *(key for key in optional.split() if key in self.values))
        )
        return {key: self.get(key, others.get(key) or KINDS[key]) for key in found}

    def get(self, key: str, kind: Kind) -> Any:
        """Return one value as its kind; LabError if it is wrong or lacking."""
        if key not in self.values:
            raise self.error(key, f"{self.header or 'the file'} lacks {key!r}")
        try:
            return kind.read(self.values[key])
        except (ValidationError, LabError):
            raise self.error(key, f"{key} = {self.values[key]!r} is not {kind.words}") from None

    def table(self, name: str) -> Table:
        """Return the table `[name]`, empty if there is none."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return Table(self.path, self.text, f"[{name}]", 0, values)


def read_table(path: Path) -> Table:
    """Return a file's top level; LabError if it cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        if any(len(line) > LONGEST_LINE for line in text.splitlines()):
            raise ValueError(f"a line has more than {LONGEST_LINE:,} characters")
        return Table(path, text, "", 0, tomllib.loads(text))
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.") from None
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text.") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # what tomllib raises is a ValueError, and so is a number too long
        raise LabError(f"{path}: {error}.") from None


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or len(set(values)) < len(values):
        raise ValueError("there is none, or one occurs twice")
    return values


_TEXT = Annotated[str, Field(pattern=r"\S")]
_COUNT = Annotated[int, Strict(), Field(ge=1, le=10**8)]
_NUMBER = Annotated[float, Strict(), Field(allow_inf_nan=False)]
_SECONDS = Annotated[_NUMBER, Field(gt=0, le=86_400)]
_RATE = Annotated[_NUMBER, Field(gt=0, le=10**7)]
_SHARE = Annotated[_NUMBER, Field(ge=0.1, le=1)]
_CPU = Annotated[int, Strict(), Field(ge=0, lt=4096)]
_LISTED = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
_SOME = Field(min_length=1)
_DIFFERENT = AfterValidator(_different)
_RATE_WORDS = "a number of requests a second, greater than 0 and at most 10,000,000"


def _one_of(*choices: str) -> Kind:
    return Kind(f"one of {', '.join(choices)}", Literal.__getitem__(choices))


TEXT = Kind("a non-empty string", _TEXT)
TABLES = Kind("at least one table [[load]]", Annotated[list[dict[str, Any]], _SOME])
_KINDS = {
    "title language framework notes script path body workload artifact engine address "
    "certificates probe": TEXT,
    "implements deviations needs command servers": Kind("a list of strings", tuple[str, ...]),
    "env copies": Kind(
        "a table of strings",
        Annotated[dict[str, str], AfterValidator(lambda pairs: tuple(sorted(pairs.items())))],
    ),
    "generators": Kind(
        "a name, or a list of different ones", Annotated[tuple[_TEXT, ...], _DIFFERENT, _LISTED]
    ),
    "tier": _one_of("realistic", "raw", "calibration"),
    "secrets": _one_of("environment", "file"),
    "base": _one_of("scratch", "debian"),
    "context": _one_of(".", ".."),
    "tool": _one_of(*TRAITS),
    "load_model": _one_of("closed", "open"),
    "method": _one_of("GET", "POST"),
    "database sessions": Kind("true or false", StrictBool),
    "repeats seed server_cpus database_cpus attempts iterations steps bisections": Kind(
        "a whole number from 1 to 100,000,000", _COUNT
    ),
    "vus connections pool_sizes": Kind(
        "a whole number of at least 1, or a list of such",
        Annotated[tuple[_COUNT, ...], _SOME, _LISTED],
    ),
    "slices": Kind(
        "an even number from 2 to 1,000",
        Annotated[int, Strict(), Field(ge=2, le=1000, multiple_of=2)],
    ),
    "slice_s": Kind("a number from 0.2 to 86,400", Annotated[_SECONDS, Field(ge=0.2)]),
    "duration_s step_s warmup_s sample_hz": Kind(
        "a number greater than 0 and at most 86,400", _SECONDS
    ),
    "from_rps to_rps": Kind(_RATE_WORDS, _RATE),
    "rates_rps rates_pct": Kind(
        f"a list of different rates, each {_RATE_WORDS}", Annotated[tuple[_RATE, ...], _DIFFERENT]
    ),
    "objective": Kind(
        "an objective such as 'p99 <= 10 ms'",
        Annotated[str, AfterValidator(lambda text: Objective.parse(text) and text)],
    ),
    "database_share": Kind("a share of a core from 0.1 to 1", _SHARE),
    "server_share": Kind(
        "a share of a core from 0.1 to 1, or a list of different ones",
        Annotated[tuple[_SHARE, ...], _DIFFERENT, _LISTED],
    ),
    "idle": Kind(
        "'polling', 'system', or a list of both", Annotated[tuple[Idle, ...], _DIFFERENT, _LISTED]
    ),
    "modes": Kind("a list of 'keepalive' and 'close'", Annotated[tuple[Mode, ...], _SOME]),
    "cpus": Kind("a list of different numbers of CPUs", Annotated[tuple[_CPU, ...], _DIFFERENT]),
}
KINDS = {key: kind for keys, kind in _KINDS.items() for key in keys.split()}
"""What the value of each key in the lab's TOML files must be."""
