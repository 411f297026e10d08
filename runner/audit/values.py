"""Values in tables of others: numbers, times and sizes as texts, and what a file does not say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.model import LabError

Row = dict[str, Any]  # one load of one subject, by the columns of `formats.TEXTS` and `formats.NUMBERS`


@dataclass(frozen=True)
class Options:
    """What a file does not say: `columns` (of a CSV, ours -> theirs), connections and depth."""

    columns: Mapping[str, str] = field(default_factory=dict)
    connections: float = math.nan
    depth: float = math.nan

    @classmethod
    def of(cls, columns: str, connections: float | None = None, depth: float | None = None) -> Options:
        """Return the options with columns named as `rps=a,connections=b`; LabError for anything else."""
        pairs = [part.partition("=") for part in columns.split(",") if part.strip()]
        if not all(separator and ours.strip() and theirs.strip() for ours, separator, theirs in pairs):
            raise LabError(f"--map is such as rps=requests_per_second,connections=clients, not {columns!r}.")
        named = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
        return cls(named, connections or math.nan, depth or math.nan)


MS = {
    **{"ns": 1e-6, "ms": 1.0, "m": 6e4, "h": 3.6e6},
    **dict.fromkeys(("us", "µs", "μs"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs"), 1e3),
}
PREFIXES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
UNITS = {
    "_ms": MS,
    "bytes_per_s": {f"{prefix}{letter}": factor for prefix, factor in PREFIXES.items() for letter in "bB"},
    "_s": {unit: ms / 1e3 for unit, ms in MS.items()},
    "_pct": {"%": 1.0},
}
"""End of a column's name -> unit of a text -> its factor."""
MEASURE = re.compile(r"\s*(-?\d[\d.,]{0,30}(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%]{0,6})(?:/s)?\s*")


def as_number(value: Any) -> float:
    """Return a finite number; NaN for anything else, a text of digits is read."""
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        found = float(value.replace(",", "")) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def value_of(column: str, value: Any) -> float:
    """Return what a column of the frame has for a value as a file has it, such as `1.71ms`, `3.99GB/s` or `12 %`."""
    units = next((units for end, units in UNITS.items() if column.endswith(end)), None)
    if units is None or not isinstance(value, str):
        return as_number(value)
    found = MEASURE.fullmatch(value[:64])
    return as_number(found[1]) * (units.get(found[2], math.nan) if found[2] else 1.0) if found else math.nan


def sum_of(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return the sum of those that are known; NaN where none is."""
    known = [number for name in names if (number := as_number(row.get(name))) >= 0]
    return sum(known) if known else math.nan


def list_of(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def dict_of(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [each for each in list_of(value) if isinstance(each, dict)]
