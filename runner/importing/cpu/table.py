"""Read samples from any CSV whose columns the user names: `time=COL,cpu=COL[,memory=COL]`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping

from runner.importing.cpu.series import (
    Sample,
    Series,
    bytes_of,
    percent_of,
    series_of_samples,
    time_of,
)
from runner.model import LabError

KEYS = ("time", "cpu", "memory", "name")


def columns_of(text: str) -> dict[str, str]:
    """Return the columns that a value of `--map` names, by key: `time`, `cpu`, `memory`, `name`.

    Raise LabError if the value is invalid.
    """
    pairs = dict(each.partition("=")[::2] for each in text.split(","))
    if not {"time", "cpu"} <= set(pairs) <= set(KEYS) or not all(pairs.values()):
        raise LabError(
            f"--map {text} is not valid: write `time=COLUMN,cpu=COLUMN`. If the file has such "
            "columns, append `,memory=COLUMN` or `,name=COLUMN`, or both."
        )
    return pairs


def read_table(text: str, columns: Mapping[str, str]) -> list[Series]:
    """Return the series of a CSV whose first line names the columns.

    Cells are separated by `,`, `;` or tabs. CPU use is in percent of one core. Memory is in bytes,
    or has a unit, such as `50.1MiB`. Raise LabError if a column is missing, or if a row has no time
    or no CPU use.
    """
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), delimiter=separator))
    known = [each.strip() for each in head.removeprefix("\ufeff").split(separator)]
    for name in columns.values():
        if name not in known:
            raise LabError(f"There is no column {name!r}: the columns are {', '.join(known[:20])}.")
    return series_of_samples(_sample(at, row, columns) for at, row in enumerate(rows, start=2))


def _sample(line: int, row: Mapping[str, str | None], columns: Mapping[str, str]) -> Sample:
    cells = {key.strip(): str(value or "") for key, value in row.items() if key is not None}
    time = time_of(cells[columns["time"]])
    cpu_pct = percent_of(cells[columns["cpu"]])
    if time is None or not math.isfinite(cpu_pct):
        raise LabError(f"Line {line} has no time or no CPU use in the columns of --map.", 1)
    name = cells[columns["name"]] if "name" in columns else "server"
    rss_bytes = bytes_of(cells[columns["memory"]]) if "memory" in columns else math.nan
    return Sample((name,), time, cpu_pct, rss_bytes)
