"""Read the results that JMeter writes as CSV (JTL), with a line for each request.

A file may have any number of requests, because the memory that reading needs depends only on the
number of different labels and times.
"""

import csv
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from runner.audit.formats.csv_tables import delimiter_of, header_of
from runner.audit.formats.values import PRINTED_QUANTILES, Row
from runner.model import LabError

NEEDED = ("timeStamp", "elapsed", "label", "success")
EXACT_MS = 2**16
"""Response times below this number of ms are not rounded before they are counted."""
DIGITS = 13
"""Response times of EXACT_MS or more are rounded down to this number of binary digits.

The error is at most 0.03 %.
"""
MOST_COUNTERS = 2_000_000
"""Highest number of counters for a file. So many counters need about 200 MB of memory.

There is a counter for each label, and for each different response time of a label.
"""
LONGEST_NUMBER = 18
"""A number with more digits than this is not read, because JMeter writes no such number."""


def is_jmeter(header: Collection[str]) -> bool:
    """Return True if a CSV's column names show that JMeter wrote the CSV."""
    return set(NEEDED) <= set(header)


@dataclass
class _Label:
    """Counts and sums over the requests that have the same JMeter label."""

    count: int = 0
    failed: int = 0
    sum_ms: int = 0
    shortest_ms: int = 10**LONGEST_NUMBER
    longest_ms: int = 0
    first_ms: float = math.inf
    last_ms: float = -math.inf
    sum_bytes: int = 0
    sized: int = 0
    """Number of requests whose size is known."""
    threads: float = math.nan
    times: Counter[int] = field(default_factory=Counter)
    """Number of requests for each response time in ms, which `_counted_ms` has rounded down."""

    def quantile_ms(self, quantile: float) -> int:
        """Return the quantile of the requests' times in ms, by nearest rank."""
        rank = max(1, math.ceil(quantile * self.count))
        below = 0
        for time_ms in sorted(self.times):
            below += self.times[time_ms]
            if below >= rank:
                return min(time_ms, self.longest_ms)
        return self.longest_ms

    def row(self, name: str, source: str) -> Row:
        """Return the row of this label. Its quantiles are whole ms, because JMeter's times are."""
        duration_s = (self.last_ms - self.first_ms) / 1000
        is_timed = 0 < duration_s < math.inf
        return {
            "test": source,
            "subject": name,
            "row": name,
            "tool": "jmeter",
            "load_model": "unknown",
            "connections": self.threads,
            "rate": self.count / duration_s if is_timed else math.nan,
            "requests": self.count,
            "duration_s": duration_s if is_timed else math.nan,
            "mean_ms": self.sum_ms / self.count,
            "min_ms": self.shortest_ms,
            "max_ms": self.longest_ms,
            **{f"p{each}_ms": self.quantile_ms(each / 100) for each in PRINTED_QUANTILES},
            "resolution_ms": 1.0,
            "errors": self.failed,
            "answer_bytes": self.sum_bytes / self.sized if self.sized else math.nan,
        }


def rows_of_requests(lines: Iterable[str], source: str) -> Iterator[Row]:
    """Yield a row for each label, computed from the requests that have the label.

    `lines` are the lines of the CSV. Skip lines whose time is not a whole number of milliseconds.
    Raise LabError if all lines are skipped, if the CSV is broken, or if there are too many
    different labels and times.
    """
    every = iter(lines)
    first = next((line for line in every if line.strip()), "")
    names = header_of(first)
    requests = csv.reader(every, delimiter=delimiter_of(first))
    labels: dict[str, _Label] = {}
    counters = 0
    try:
        for cells in requests:
            counters += _count(labels, dict(zip(names, cells, strict=False)))
            if counters > MOST_COUNTERS:
                raise LabError(
                    f"{source} has too many different labels and times: audit a part of the file.",
                    exit_code=1,
                )
    except csv.Error as error:
        raise LabError(
            f"{source} cannot be read from line {requests.line_num} on: {error}.", exit_code=1
        ) from None
    if not labels:
        raise LabError(f"{source} has no request with a time in whole ms.", exit_code=1)
    for name, label in labels.items():
        yield label.row(name, source)


def _count(labels: dict[str, _Label], cells: dict[str, str]) -> int:
    """Count a request in `labels`, and return the number of new counters that the request needed.

    A new label needs a counter, and so does a new response time of a label. The caller adds up the
    returned numbers, because MOST_COUNTERS limits their sum. Skip a request that has no time in
    whole ms or no column `success`, and return 0.
    """
    elapsed_ms = _whole(cells.get("elapsed", ""))
    if elapsed_ms is None or "success" not in cells:
        return 0
    name = cells.get("label", "")
    added = int(name not in labels)
    label = labels.setdefault(name, _Label())
    label.count += 1
    label.failed += cells["success"].strip().lower() != "true"
    label.sum_ms += elapsed_ms
    label.shortest_ms = min(label.shortest_ms, elapsed_ms)
    label.longest_ms = max(label.longest_ms, elapsed_ms)
    counted_ms = _counted_ms(elapsed_ms)
    added += counted_ms not in label.times
    label.times[counted_ms] += 1
    began_ms = _moment_ms(cells.get("timeStamp", ""))
    label.first_ms = min(label.first_ms, began_ms)  # if `began_ms` is NaN, `first_ms` stays
    label.last_ms = max(label.last_ms, began_ms + elapsed_ms)
    size = _whole(cells.get("bytes", ""))
    if size is not None:
        label.sum_bytes += size
        label.sized += 1
    threads = _whole(cells.get("allThreads", ""))
    if threads is not None:
        label.threads = max(threads, label.threads)
    return added


def _counted_ms(time_ms: int) -> int:
    """Round a time down to `DIGITS` binary digits if it is at least `EXACT_MS`."""
    unit = 1 if time_ms < EXACT_MS else 1 << (time_ms.bit_length() - DIGITS)
    return time_ms - time_ms % unit


def _whole(text: str) -> int | None:
    """Return the whole number in a text, or None if the text is anything else.

    Negative numbers, and numbers of more than LONGEST_NUMBER digits, are not accepted.
    """
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER
    return int(digits) if is_number else None


def _moment_ms(text: str) -> float:
    """Return the time in a text, in ms since 1970, or NaN if the text is no number and no date."""
    known = _whole(text)
    if known is not None:
        return known
    try:
        moment = datetime.fromisoformat(text.strip().replace("/", "-"))
    except ValueError:
        return math.nan
    return 1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def lines_of(text: str) -> Sequence[str]:
    """Return the lines of a text, including their line breaks."""
    return text.splitlines(keepends=True)
