"""Read the output of `docker stats`: JSON (`--format json`), or a CSV made by a template.

Docker writes no times. But the user may have added a time before each line, or in a field.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterator

from runner.importing.cpu.series import (
    Sample,
    Series,
    Time,
    bytes_of,
    percent_of,
    series_of_samples,
    time_of,
)

STREAM_S = 0.5
"""Interval between two samples of a container in a stream of `docker stats`, in seconds.

`docker stats` writes a stream to a terminal or a file until the user stops it.
"""
CALL_S = 2.0
"""Approximate duration of a call of `docker stats --no-stream`, in seconds.

Each call writes one sample of each container.
"""
_SCREEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PERCENT = re.compile(r"\d+(?:\.\d+)?%")
_MEMORY = re.compile(r"[0-9.]+(?:[KMGT]i)?B\s*/\s*[0-9.]+(?:[KMGT]i)?B")
_TIME_FIELDS = ("time", "timestamp", "ts", "@timestamp", "date", "read")


def read_docker_json(text: str) -> list[Series]:
    """Return the series in the lines of `docker stats --format json`.

    If the text has another format, return no series.
    """
    return _series(_of_json(_SCREEN.sub("", text)), _every_s(text))


def read_docker_csv(text: str) -> list[Series]:
    """Return the series in the lines that `docker stats` writes with a template.

    The user chooses the template, such as `{{.Name}},{{.CPUPerc}},{{.MemUsage}}`, so the fields may
    be in any order. The first percentage in a line is taken as the CPU use, because the CPU use
    comes first in all templates of Docker's documentation. If the text has another format, return
    no series.
    """
    return _series(_of_csv(_SCREEN.sub("", text)), _every_s(text))


def _every_s(text: str) -> float:
    """Return the time between two samples: STREAM_S for a stream, and CALL_S for single calls.

    Only a stream contains codes that clear the terminal's screen. So a text with such codes is a
    stream, and a text without them is the output of single calls.
    """
    return STREAM_S if _SCREEN.search(text) else CALL_S


def _series(samples: Iterator[Sample], every_s: float) -> list[Series]:
    """Return a series for each container that the samples name.

    If no sample has a time, the samples of a container are assumed to be `every_s` seconds apart.
    If only some samples have a time, the samples without a time are left out.
    """
    found = list(samples)
    if any(each.time.clock != "none" for each in found):
        return series_of_samples(each for each in found if each.time.clock != "none")
    seen: Counter[tuple[str, ...]] = Counter()
    numbered = []
    for each in found:
        numbered.append(
            Sample(
                each.names,
                Time(seen[each.names] * every_s, "none"),
                each.cpu_pct,
                each.rss_bytes,
            )
        )
        seen[each.names] += 1
    note = f"docker stats writes no times, so one sample every {every_s:g} s was assumed"
    return series_of_samples(numbered, note)


def _of_json(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        before, brace, rest = line.partition("{")
        if not brace:
            continue
        try:
            record = json.loads(brace + rest)
        except (ValueError, RecursionError):
            continue
        if not isinstance(record, dict) or "CPUPerc" not in record:
            continue
        names = [str(record[key]) for key in ("Name", "ID", "Container") if record.get(key)]
        given = [before, *(str(record[key]) for key in record if key.lower() in _TIME_FIELDS)]
        cpu_pct = percent_of(str(record["CPUPerc"]))
        # Docker prints `--` while a container starts, and after it has ended.
        if math.isfinite(cpu_pct):
            rss_bytes = bytes_of(str(record.get("MemUsage", "")))
            yield Sample(tuple(names) or ("container",), _time(given), cpu_pct, rss_bytes)


def _of_csv(text: str) -> Iterator[Sample]:
    for fields in csv.reader(text.splitlines()):
        cells = [each.strip() for each in fields]
        percents = [each for each in cells if _PERCENT.fullmatch(each)]
        sizes = [each for each in cells if _MEMORY.fullmatch(each)]
        if not percents or not sizes:
            continue
        time = _time(cells)
        known = {*percents, *(each for each in cells if "/" in each)}
        names = [each for each in cells if each not in known and time_of(each) is None]
        yield Sample(
            tuple(names) or ("container",), time, percent_of(percents[0]), bytes_of(sizes[0])
        )


def _time(texts: list[str]) -> Time:
    """Return the first time in the texts that is a date or a time since the epoch.

    Numbers that count from the start of a tool are ignored. If no text has a time, return a time
    whose clock is `none`.
    """
    times = (time_of(each) for each in texts)
    dated = (each for each in times if each is not None and each.clock != "relative")
    return next(dated, Time(0.0, "none"))
