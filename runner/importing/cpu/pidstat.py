"""Read the output of `pidstat -h -u [-r]`, a program of sysstat."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime

from runner.importing.cpu.series import EPOCH_S, Sample, Series, Time, series_of_samples

_DATE = re.compile(r"(\d\d)/(\d\d)/(\d\d(?:\d\d)?)|(\d{4})-(\d\d)-(\d\d)")
_DAY_S = 86_400


def read_pidstat(text: str) -> list[Series]:
    """Return a series for each process, or no series if the text has another format.

    pidstat writes the date only in its first line, and a time of day in each further line. The time
    zone is unknown. With the option `-H`, pidstat writes seconds since the epoch instead of a time
    of day.
    """
    return series_of_samples(_samples(text))


def _samples(text: str) -> Iterator[Sample]:
    date_s = 0.0
    columns: list[str] = []
    last_s = -math.inf
    for line in text.splitlines():
        if "Linux " in line and (date := _DATE.search(line)):
            date_s = _date_s(date)
        elif line.startswith("#"):
            columns = line.removeprefix("#").split()
        elif columns and line.strip():
            sample = _sample(line, columns, date_s, last_s)
            if sample is not None:
                last_s = sample.time.at_s
                yield sample


def _sample(line: str, columns: list[str], date_s: float, last_s: float) -> Sample | None:
    """Return the sample in a line, or None if the line has no sample.

    `date_s` is the start of the date in pidstat's first line, and `last_s` is the time of the
    previous sample. If the line's time of day is more than 12 hours before the previous sample, the
    line's sample was taken on the next day.
    """
    cells = line.split()
    if len(cells) > 1 and cells[1] in ("AM", "PM"):
        cells[0:2] = [" ".join(cells[:2])]
    cells = " ".join(cells).split(" ", len(columns) - 1) if " " not in cells[0] else cells
    row = dict(zip(columns, cells, strict=False))
    try:
        time = _time(row["Time"], date_s)
        cpu_pct = float(row["%CPU"])
        rss_bytes = float(row["RSS"]) * 1024 if "RSS" in row else math.nan
        names = tuple(filter(None, (row.get("Command", ""), row["PID"])))
    except (KeyError, ValueError):
        return None
    while time.clock == "local" and time.at_s < last_s - _DAY_S / 2:
        time = Time(time.at_s + _DAY_S, "local")
    return Sample(names, time, cpu_pct, rss_bytes)


def _date_s(date: re.Match[str]) -> float:
    """Return the start of a date, in seconds since the epoch; 0 if the date does not exist."""
    parts = date.groups()
    if parts[0] is None:
        year, month, day = parts[3:]
    else:
        month, day, year = parts[:3]
    century = "20" if len(year) == 2 else ""
    try:
        began = datetime(int(century + year), int(month), int(day))
    except ValueError:
        return 0.0
    return (began - datetime(1970, 1, 1)).total_seconds()


def _time(text: str, date_s: float) -> Time:
    if text.isdigit() and float(text) > EPOCH_S:
        return Time(float(text), "wall")
    form = "%I:%M:%S %p" if text.endswith("M") else "%H:%M:%S"
    of_day = datetime.strptime(text, form)
    return Time(date_s + of_day.hour * 3600 + of_day.minute * 60 + of_day.second, "local")
