"""Columns of an audited table, and how the values in other people's files become numbers."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

JsonObject = dict[str, Any]  # of a file of others: it may hold anything
Row = dict[str, Any]  # one load of one subject, by the columns of TEXTS and NUMBERS
TEXTS = (
    "source",
    "row",
    "test",
    "subject",
    "language",
    "mode",
    "load_model",
    "protocol",
    "tool",
    "day",
    "missing",
)
NUMBERS = (
    *("connections", "depth", "unmade", "rate", "target_rate", "rate_low", "rate_high"),
    *("mean_ms", "stdev_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"),
    *("resolution_ms", "cpu_pct", "cpu_given_pct", "cpu_tolerance"),
    *("requests", "duration_s", "elapsed_s", "errors", "unfinished", "failed_checks_pct"),
    *("bytes_per_s", "answer_bytes"),
)
"""Numeric columns of the frame; an unknown number is NaN.

`depth` is the number of requests under way per connection. `connections` are those that were made,
`unmade` those that were tried in vain. `requests` has all that ended, also by an error. `errors`
are those without the answer that was asked for, whatever a tool calls them. `unfinished` are those
that the tool itself cut off at its end, and counts. `failed_checks_pct` is the share of a script's
checks that failed. `resolution_ms` is how far a time may lie from
the true one, as the tool rounds it. `cpu_tolerance` is the relative error with which CPU was
measured or given. `answer_bytes` is the mean size of an answer.

`load_model` is `closed`, `open`, `unknown` if the file contradicts a closed one, or empty if it
says nothing. `missing` names the columns whose value was a placeholder for "unknown", such as -1.
"""
PRINTED_QUANTILES = (50, 90, 95, 99)
BELOW = "<0"  # suffix of a name in `missing` if its value is negative but not -1
MAY_BE_ZERO = (
    *("errors", "unfinished", "unmade", "stdev_ms", "cpu_pct", "min_ms", "target_rate"),
    *("resolution_ms", "answer_bytes", "failed_checks_pct"),
)
POSITIVE = tuple(name for name in NUMBERS if name not in MAY_BE_ZERO)
MS = {
    **{"ns": 1e-6, "ms": 1.0, "m": 6e4, "h": 3.6e6},
    **dict.fromkeys(("us", "µs", "μs"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs"), 1e3),
}
PREFIXES = {
    "": 1,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
COUNTS = {"k": 1e3, "K": 1e3, "M": 1e6}
"""Units of rates and counts in tables that people write."""
UNITS = {
    "_ms": MS,
    "_bytes": {f"{prefix}B": factor for prefix, factor in PREFIXES.items()},
    "bytes_per_s": {
        f"{prefix}{letter}": factor for prefix, factor in PREFIXES.items() for letter in "bB"
    },
    "_s": {unit: ms / 1e3 for unit, ms in MS.items()},
    "_pct": {"%": 1.0},
    "rate": COUNTS,
    "requests": COUNTS,
    "errors": COUNTS,
}
"""By suffix of a column's name: units in texts, with their factors."""
MEASURE = re.compile(r"\s*(-?\d[\d.,]{0,30}(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%]{0,6})(?:/s)?\s*")
THOUSANDS = re.compile(r"\d{3}(?!\d).*")
"""What follows a comma between thousands."""
GO_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:([\d.]{1,20})s)?")


def as_number(value: Any) -> float:
    """Return a finite number, also from a text of digits; NaN for anything else."""
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        found = float(_with_point(value) if isinstance(value, str) else value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def _with_point(digits: str) -> str:
    """Return digits as Python writes numbers, without separators of thousands.

    A single comma separates decimals if three digits do not follow it, or a zero is before it.
    """
    first, *groups = digits.split(",")
    if not groups:
        return digits
    is_of_thousands = THOUSANDS.fullmatch(groups[0]) and first.strip("+- ") not in ("", "0")
    if len(groups) == 1 and "." not in digits and not is_of_thousands:
        return f"{first}.{groups[0]}"
    return first + "".join(groups)


def value_of(column: str, value: Any) -> float:
    """Return a column's number from a value in a file, such as `1.71ms`, `3.99GB/s` or `12 %`."""
    units = next((units for end, units in UNITS.items() if column.endswith(end)), None)
    if units is None or not isinstance(value, str):
        return as_number(value)
    found = MEASURE.fullmatch(value[:64])
    if found is None:
        return duration_ms(value) * units["ms"] if "ms" in units else as_number(value)
    factor = units.get(found[2], math.nan) if found[2] else 1.0
    return as_number(found[1]) * factor


def duration_ms(text: str) -> float:
    """Return a time as Go writes long ones, such as `1m30.5s`, in ms; NaN for anything else."""
    found = GO_DURATION.fullmatch(text.strip()[:64])
    if found is None or not any(found.groups()):
        return math.nan
    hours, minutes, seconds = (as_number(part or 0) for part in found.groups())
    return 1000 * (3600 * hours + 60 * minutes + seconds)


def sum_of(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return the sum of the known numbers; NaN if none is known."""
    known = [number for name in names if (number := as_number(row.get(name))) >= 0]
    return sum(known) if known else math.nan


def list_of(value: Any) -> list[Any]:
    """Return the list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def dict_of(value: Any) -> JsonObject:
    """Return the object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[JsonObject]:
    """Return the objects in a list."""
    return [each for each in list_of(value) if isinstance(each, dict)]


def counted(by_code: Mapping[str, Any]) -> float:
    """Return the number of answers by their status codes; NaN if there is none."""
    return sum_of(by_code, by_code)


def wrong(by_code: Mapping[str, Any]) -> float:
    """Return the number of answers with a status of 400 or more, or 0, which is no answer."""
    codes = [code for code in by_code if (status := as_number(code)) >= 400 or status == 0]
    return sum_of(by_code, codes) if codes else 0.0
