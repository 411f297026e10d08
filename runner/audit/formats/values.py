"""Define the columns of an audited table, and convert values in other people's files to numbers."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

JsonObject = dict[str, Any]  # an object in other people's files, which may contain anything
Row = dict[str, Any]
"""The values of one load of one subject, by the names of the columns TEXTS and NUMBERS.

The additional key `expected` names the columns whose values count as missing if they are unknown.
"""
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
    *("cycle_ms", "duration_slack_s"),
    *("mean_ms", "stdev_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"),
    *("resolution_ms", "cpu_pct", "cpu_given_pct", "cpu_tolerance"),
    *("requests", "duration_s", "elapsed_s", "errors", "errors_beside", "unfinished"),
    *("failed_checks_pct",),
    *("bytes_per_s", "answer_bytes"),
)
"""Numeric columns of an audited table. An unknown number is NaN.

- `depth` is the number of requests under way per connection.
- `connections` is the number of connections that were opened. `unmade` is the number of connections
  that could not be opened.
- `requests` is the number of all requests that ended, even with an error. `errors` is the number
  of requests without the expected answer, whatever the tool calls them. `errors_beside` is the
  number of those errors that `requests` does not include, such as broken connections. `unfinished`
  is the number of requests that the tool itself cut off at the end of the load. `requests` includes
  the unfinished requests.
- `failed_checks_pct` is the share of a script's checks that failed.
- `cycle_ms` is connections / rate, for tools that print this number (ab's mean time per request).
- `duration_slack_s` is the highest rounding error of a printed duration.
- `resolution_ms` is the highest rounding error of a printed response time, for tools that round
  coarsely.
- `cpu_tolerance` is the relative error with which CPU time was measured or limited.
- `answer_bytes` is the mean size of an answer.

Two columns of texts need an explanation, too:

- `load_model` is `closed` or `open`. It is `closed or limited` if the tool can limit the rate of a
  closed load, but the report does not say whether the rate was limited. It is empty if the file
  does not state the load model. The checks treat such a load as closed. It is `unknown` if
  connections may have been idle on purpose, for example while users paused. The checks do not
  object to idle connections of such a load.
- `missing` names the columns whose value was a placeholder for "unknown", such as -1.
"""
PRINTED_QUANTILES = (50, 90, 95, 99)
BELOW = "<0"  # appended to a column's name in `missing` if the value is negative, but not -1
MAY_BE_ZERO = (
    *(
        "errors",
        "errors_beside",
        "unfinished",
        "unmade",
        "stdev_ms",
        "cpu_pct",
        "min_ms",
        "target_rate",
    ),
    *("resolution_ms", "duration_slack_s", "answer_bytes", "failed_checks_pct"),
)
POSITIVE = tuple(name for name in NUMBERS if name not in MAY_BE_ZERO)
MS = {
    **{"ns": 1e-6, "ms": 1.0},
    **dict.fromkeys(("us", "µs", "μs"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs"), 1e3),
    **dict.fromkeys(("m", "min"), 6e4),
    **dict.fromkeys(("h", "hr"), 3.6e6),
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
"""Suffixes of rates and counts in tables that people write, with their factors."""
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
"""For each end of a column's name, the possible units of the column, with their factors."""
MEASURE = re.compile(r"\s*(-?\d[\d.,]{0,30}(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%]{0,6})(?:/s)?\s*")
THOUSANDS = re.compile(r"\d{3}(?!\d).*")
"""Pattern of the text after a comma that separates thousands: exactly three digits come first."""
GO_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:([\d.]{1,20})s)?")


def as_number(value: Any) -> float:
    """Return a number, or the number in a text such as `1,234.5`.

    Return NaN for any other value, for infinity, and for True and False.
    """
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        found = float(_with_point(value) if isinstance(value, str) else value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def _with_point(digits: str) -> str:
    """Return a number's text with a decimal point and without separators of thousands.

    A single comma is a decimal comma if it is not followed by three digits, or if there is only a
    zero before it.
    """
    first, *groups = digits.split(",")
    if not groups:
        return digits
    is_of_thousands = THOUSANDS.fullmatch(groups[0]) and first.strip("+- ") not in ("", "0")
    if len(groups) == 1 and "." not in digits and not is_of_thousands:
        return f"{first}.{groups[0]}"
    return first + "".join(groups)


def value_of(column: str, value: Any) -> float:
    """Convert a value in a file, such as `1.71ms` or `12 %`, to a number in the column's unit.

    Return NaN if the value is not a number, or has a unit that the column cannot have.
    """
    units = next((units for end, units in UNITS.items() if column.endswith(end)), None)
    if units is None or not isinstance(value, str):
        return as_number(value)
    found = MEASURE.fullmatch(value[:64])
    if found is None:
        return duration_ms(value) * units["ms"] if "ms" in units else as_number(value)
    factor = units.get(found[2], math.nan) if found[2] else 1.0
    return as_number(found[1]) * factor


def half_a_digit(column: str, value: Any) -> float:
    """Return the highest rounding error of a printed value, in the unit of a column.

    The error is half a unit of the value's last digit: 0.005 for `1.71`. Return 0 for values that
    are not texts. Also return 0 for values without decimals, such as `10s`, because these values
    are not measured but set by the tool's user.
    """
    found = MEASURE.fullmatch(value[:64]) if isinstance(value, str) else None
    decimals = len(found[1].partition(".")[2]) if found else 0
    if found is None or decimals == 0:
        return 0.0
    return value_of(column, f"{0.5 * 10.0**-decimals:.12f}{found[2]}")


def duration_ms(text: str) -> float:
    """Return in ms a duration that Go has written, such as `1m30.5s`, or NaN for other texts."""
    found = GO_DURATION.fullmatch(text.strip()[:64])
    if found is None or not any(found.groups()):
        return math.nan
    hours, minutes, seconds = (as_number(part or 0) for part in found.groups())
    return 1000 * (3600 * hours + 60 * minutes + seconds)


def sum_of(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return the sum of the known values of `row` under `names`, or NaN if no value is known.

    A value that is negative or not a number counts as unknown.
    """
    known = [number for name in names if (number := as_number(row.get(name))) >= 0]
    return sum(known) if known else math.nan


def list_of(value: Any) -> list[Any]:
    """Return `value` if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def dict_of(value: Any) -> JsonObject:
    """Return `value` if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[JsonObject]:
    """Return the objects in a list, or an empty list if `value` is not a list."""
    return [each for each in list_of(value) if isinstance(each, dict)]


def counted(by_code: Mapping[str, Any]) -> float:
    """Return the sum of the counts of answers by status code, or NaN if there are no counts."""
    return sum_of(by_code, by_code)


def wrong(by_code: Mapping[str, Any]) -> float:
    """Return the number of requests with a status of 400 or more, or with no answer (status 0).

    Return 0 if `by_code`, the counts by status code, has no such status.
    """
    codes = [code for code in by_code if (status := as_number(code)) >= 400 or status == 0]
    return sum_of(by_code, codes) if codes else 0.0
