"""Samples of one process or container, in one form for all tools that take samples."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt

from runner.model import LabError

Floats = npt.NDArray[np.float64]
Clock = Literal["wall", "local", "relative", "none"]
"""The clock of a `Time`, which determines the meaning of its number `at_s`.

- `wall`: seconds since the epoch;
- `local`: seconds since the epoch in an unknown time zone;
- `relative`: seconds since the tool began;
- `none`: nothing, because the tool wrote no times.
"""
EPOCH_S = 1e8
"""A time in a file that is a number of at least EPOCH_S counts from the epoch.

A lower number counts from the moment when the tool began.
"""
_UNITS_PER_S = {13: 1e3, 16: 1e6, 19: 1e9}
"""Units of a time since the epoch, in units per second, by the number of the time's digits.

A time with 13 digits is in milliseconds, with 16 digits in microseconds, and with 19 digits in
nanoseconds. A time with any other number of digits is in seconds.
"""
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?\d+)?)\s*([kKMGT]?i?)B?", re.ASCII)
_FACTORS = {
    **{"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"ki": 2**10, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40},
}


@dataclass(frozen=True)
class Time:
    """The time of a sample, and the clock that shows this time."""

    at_s: float
    clock: Clock


@dataclass(frozen=True, eq=False)
class Series:
    """Samples of one process or container, in order of time."""

    names: tuple[str, ...]
    """Texts that identify the process or container: its name, its id, and values of its labels.

    The user may choose the series by any of these texts.
    """
    clock: Clock
    at_s: Floats
    cpu_s: Floats
    """CPU time that was used from the first sample to each sample, in seconds."""
    rss_bytes: Floats
    """Resident memory in bytes; NaN if unknown."""
    note: str = ""
    """A sentence that says what was assumed about the samples; empty if nothing was assumed."""


def series_of_percents(
    names: Sequence[str],
    times: Sequence[Time],
    cpu_pct: Sequence[float],
    rss_bytes: Sequence[float],
    note: str = "",
) -> Series:
    """Return a series from samples that state the mean CPU use since the previous sample.

    The CPU use is in percent of one core. The first sample has no previous sample, so the interval
    before the first sample is assumed to have the median length. The series therefore has an
    additional row for the start of this interval. Raise LabError if a time or a CPU use is not
    finite, if a CPU use is negative, or if the times have different clocks.
    """
    order = np.argsort([each.at_s for each in times], kind="stable")
    at_s = np.array([each.at_s for each in times], np.float64)[order]
    pct = np.array(cpu_pct, np.float64)[order]
    rss = np.array(rss_bytes, np.float64)[order]
    if not np.isfinite(at_s).all() or not (np.isfinite(pct) & (pct >= 0)).all():
        raise LabError(
            f"Some samples of {names[0]} have a time or a CPU use that is negative or not a "
            "number.",
            exit_code=1,
        )
    if len({each.clock for each in times}) > 1:
        raise LabError(
            f"The samples of {names[0]} have their times in different formats.", exit_code=1
        )
    steps_s = np.diff(at_s)
    first_s = float(np.median(steps_s[steps_s > 0])) if (steps_s > 0).any() else 1.0
    used_s = np.concatenate([[first_s], steps_s]) * pct / 100
    return Series(
        tuple(names),
        times[0].clock,
        np.concatenate([[at_s[0] - first_s], at_s]),
        np.concatenate([[0.0], np.cumsum(used_s)]),
        np.concatenate([[math.nan], rss]),
        note,
    )


def time_of(text: str) -> Time | None:
    """Return the time in a text, which is a number, or a date with a time of day in ISO 8601.

    The date may have a time zone. Return None if the text is not a time.
    """
    text = text.strip().strip("[]")
    try:
        number = float(text)
    except ValueError:
        return _iso_time(text)
    if not math.isfinite(number):
        return None
    if number < EPOCH_S:
        return Time(number, "relative")
    return Time(number / _UNITS_PER_S.get(len(text.partition(".")[0]), 1.0), "wall")


def _iso_time(text: str) -> Time | None:
    try:
        found = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    if found.tzinfo is not None:
        return Time(found.timestamp(), "wall")
    return Time((found - datetime(1970, 1, 1)).total_seconds(), "local")


def bytes_of(text: str) -> float:
    """Return the size in a text, in bytes.

    Examples of a text are `50.1MiB`, `1024`, and `50.1MiB / 7.6GiB`. Of two sizes, the first size
    is returned. Return NaN if the text is not a size.
    """
    found = _SIZE.fullmatch(text.partition("/")[0].strip())
    try:
        return float(found[1]) * _FACTORS[found[2]] if found else math.nan
    except (ValueError, KeyError):
        return math.nan


def percent_of(text: str) -> float:
    """Return the number in a text such as `12.5%` or `12.5`; NaN if the text is not a number."""
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        return math.nan


def chosen(series: Sequence[Series], wanted: str | None) -> Series:
    """Return the series of the server, from all series in a file.

    If `wanted` is None, the file must have only one series, which is returned. If `wanted` is a
    name, return the series with this name, or the sum of the series if several have this name.
    Raise LabError if no series has the name, or if `wanted` is None and there are several series.
    """
    found = [each for each in series if wanted is None or wanted in each.names]
    if len(found) == 1:
        return found[0]
    if found and wanted is not None:
        return _sum(found, wanted)
    names = ", ".join(sorted({each.names[0] for each in series})[:8])
    if wanted is None:
        raise LabError(
            f"The file has samples of several processes or containers ({names}): name the "
            "server's process or container by --cpu-of NAME."
        )
    raise LabError(f"The file has no samples of {wanted}. It has samples of: {names}.")


def _sum(series: Sequence[Series], name: str) -> Series:
    """Return the sum of several series, with a row for each time at which any series has a sample.

    If a series has no sample at the time of a row, the values of the series are interpolated.
    """
    at_s = np.unique(np.concatenate([each.at_s for each in series]))
    cpu_s = [np.interp(at_s, each.at_s, each.cpu_s) for each in series]
    rss = [np.interp(at_s, each.at_s, each.rss_bytes) for each in series]
    return Series(
        (name,), series[0].clock, at_s, np.sum(cpu_s, axis=0), np.sum(rss, axis=0), series[0].note
    )


@dataclass(frozen=True)
class Sample:
    """One sample of a tool that writes CPU use in percent of one core."""

    names: tuple[str, ...]
    time: Time
    cpu_pct: float
    rss_bytes: float = math.nan


def series_of_samples(samples: Iterable[Sample], note: str = "") -> list[Series]:
    """Return a series for each process or container that the samples name."""
    by_names: dict[tuple[str, ...], list[Sample]] = {}
    for each in samples:
        by_names.setdefault(each.names, []).append(each)
    return [
        series_of_percents(
            names,
            [each.time for each in group],
            [each.cpu_pct for each in group],
            [each.rss_bytes for each in group],
            note,
        )
        for names, group in by_names.items()
    ]
