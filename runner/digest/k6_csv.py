"""Read the lines of k6's `--out csv=FILE` as points, which k6_raw.py combines into requests.

The first line names the columns. Values have six decimals. A duration is a value in ms, so it is
exact to a nanosecond. But the time of a point is a whole second, unless K6_CSV_TIME_FORMAT was set
when k6 ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from runner.digest.k6_raw import KNOWN, Block, DamageError, Lines, Points, tags_of

TAGS = (
    *("status", "error_code", "method", "name", "url", "group", "scenario", "check"),
    *("expected_response", "proto"),
)
"""Tags that the lab reads from a CSV file. Further tags that k6 may write are ignored."""
_FIRST = ("metric_name", "timestamp", "metric_value")
_SEPARATOR = "\x1f"
_UNITS = {10: 1_000_000_000, 13: 1_000_000, 16: 1_000, 19: 1}
"""Length in ns of the unit of a time since the epoch, by the number of the time's digits.

For example, a time with 10 digits is in seconds, so the length is 1,000,000,000 ns.
"""


def csv_lines(blocks: Iterator[bytes]) -> Lines:
    """Return the reader of a CSV file, and the file's blocks without the first line.

    Raise DamageError if the first line does not name k6's columns.
    """
    first = next(blocks, b"")
    head, _, rest = first.partition(b"\n")
    columns = head.decode("utf-8", "replace").lstrip("\ufeff").strip().split(",")
    if tuple(columns[:3]) != _FIRST:
        raise DamageError(1, "the line does not name the columns of k6's CSV")
    return Lines(_Reader(tuple(columns)), chain([rest], blocks), 1)


class _WrongValueError(Exception):
    """An error that says that a value of one of k6's own metrics is negative or not finite.

    k6 does not write such values, so k6 did not write the line.
    """


@dataclass(frozen=True)
class _Reader:
    """A function that parses a block of CSV lines. `columns` names the columns of the lines."""

    columns: tuple[str, ...]

    def __call__(self, block: bytes) -> Block:
        """Return the points of a block.

        If the block cannot be parsed, return a Block without points, but with the fault.
        """
        if not block:
            return Block.without_points()
        try:
            return self._points(block)
        except _WrongValueError as error:
            said = str(error)
        except (pa.ArrowException, ValueError):
            # The texts of these errors name Arrow's types, which do not help the user.
            said = "the columns, times or values are not those that k6 writes"
        fault = DamageError(1, f"this line or a later one is not a line of k6's CSV: {said}")
        return Block.without_points(fault)

    def _points(self, block: bytes) -> Block:
        tags = [name for name in TAGS if name in self.columns]
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(use_threads=False, column_names=list(self.columns)),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                include_columns=[*_FIRST, *tags],
                column_types={
                    **dict.fromkeys((*_FIRST, *tags), pa.string()),
                    "metric_value": pa.float64(),
                },
                strings_can_be_null=False,
            ),
        ).combine_chunks()
        names, metrics = _distinct(table["metric_name"])
        times_ns = _times_ns(table["timestamp"])
        values = table["metric_value"].to_numpy()
        _require_values(names, metrics, values)
        if not tags:
            raise ValueError("the file has no tags")
        texts, sets = _distinct(
            pc.binary_join_element_wise(*(table[name] for name in tags), _SEPARATOR)
        )
        points = Points(np.arange(len(table)), metrics, times_ns, values, sets)
        return Block(points, names, len(table), [tags_of(_tags(tags, each)) for each in texts])


def _tags(names: Sequence[str], joined: str) -> dict[str, str]:
    """Return the tags of a point, without the tags whose value is empty.

    `joined` is a text with the values of the tags `names`, joined by _SEPARATOR.
    """
    values = joined.split(_SEPARATOR)
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _times_ns(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """Convert texts with times to ns since the epoch.

    Raise ValueError if the texts do not have a format in which k6 writes times.
    """
    sample = texts[0].as_py()
    if unit := _UNITS.get(len(sample)) if sample.isdigit() else None:
        return np.asarray(texts.cast(pa.int64()).to_numpy()) * unit
    return np.asarray(texts.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy())


def _distinct(texts: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct texts, and the index of each given text in the distinct texts."""
    found = pa.concat_arrays(texts.chunks).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy()


def _require_values(
    names: Sequence[str], metrics: NDArray[np.int32], values: NDArray[np.float64]
) -> None:
    """Check that each point of one of k6's own metrics has a finite value of 0 or more.

    Raise _WrongValueError for the first point with another value.
    """
    of_k6 = np.array([name in KNOWN for name in names], bool)[metrics]
    wrong = of_k6 & ~((values >= 0) & (values < 1e300))
    for at in np.flatnonzero(wrong)[:1]:
        raise _WrongValueError(
            f"the value of {names[metrics[at]]} is not a finite number of 0 or more"
        )
