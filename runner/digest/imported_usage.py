"""The server's CPU use and memory during an imported load, as another tool sampled them.

The tool's clock may differ from the clock of the load generator, so the times of the tool's samples
are converted to the clock of the load generator. Each row of the raw file has the CPU time that the
server had used up to the time of the row. The raw file has the form of the files in which the lab's
own sampler writes CPU times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.k6 import RequestNumbers
from runner.digest.resources import Counter, rates, read_counters
from runner.model import LabError, short_number

SAMPLES = "resources.parquet"  # base name of the raw file with the CPU samples
SERVER = "server"
DAY_S = 86_400
ZONE_STEP_S = 900
"""Time zones differ from UTC by multiples of a quarter of an hour."""
MOST_ZONE_S = 14 * 3600
"""Largest offset of a time zone from UTC."""
COVERED = 0.9
"""CPU time per request is computed only if the samples cover at least this share of the load."""
SHORT_S = 0.11
"""The peak CPU use in 0.1 s is computed only if the median interval of samples is at most this."""
LONG_S = 1.6
"""The peak CPU use in 1 s is computed only if the median interval of samples is at most this."""


@dataclass(frozen=True, eq=False)
class ServerUse:
    """The server's CPU and memory during a load. Times are seconds since the load began."""

    counter: Counter
    seconds: float
    """Duration of the load."""
    tool: str
    words: tuple[str, ...]
    """Sentences about the samples and their clock."""

    @property
    def covered(self) -> tuple[float, float]:
        """Beginning and end of the part of the load that the samples cover.

        Both are in seconds since the load began.
        """
        t_s = self.counter.t_s
        return max(0.0, float(t_s[0])), min(self.seconds, float(t_s[-1]))

    @property
    def mean_pct(self) -> float:
        """Mean CPU use in % of a core, over the part of the load that the samples cover."""
        return self.counter.mean_pct(*self.covered)

    def metrics(self, requests: int) -> Mapping[str, float | None]:
        """Return the columns of `trials.parquet` about the server; unknown values are None."""
        begin_s, end_s = self.covered
        every_s = float(np.median(np.diff(self.counter.t_s)))
        covers = end_s - begin_s >= COVERED * self.seconds
        rss_bytes = self.counter.level("rss_bytes", begin_s, end_s)
        return {
            "server_cpu_mean_pct": self.mean_pct,
            "server_cpu_peak_100ms_pct": self._peak_pct(0.1) if every_s <= SHORT_S else None,
            "server_cpu_peak_1s_pct": self._peak_pct(1.0) if every_s <= LONG_S else None,
            "server_cpu_ms_per_request": 10 * self.mean_pct * self.seconds / requests
            if covers
            else None,
            "server_rss_peak_bytes": int(rss_bytes.max()) if len(rss_bytes) else None,
        }

    def _peak_pct(self, window_s: float) -> float:
        return self.counter.peak_pct(*self.covered, window_s)

    def rows(self, trial_id: str) -> pa.Table:
        """Return the rows of the table `resources`, from the samples taken during the load.

        For the beginning and the end of the covered time, the CPU time is interpolated.
        """
        begin_s, end_s = self.covered
        inside = (self.counter.t_s > begin_s) & (self.counter.t_s < end_s)
        at_s = np.concatenate([[begin_s], self.counter.t_s[inside], [end_s]])
        rss = self.counter.column("rss_bytes")
        last = np.clip(np.searchsorted(self.counter.t_s, at_s, side="right") - 1, 0, None)
        columns = {
            "cpu_s": np.interp(at_s, self.counter.t_s, self.counter.column("cpu_s")),
            "rss_bytes": rss[last],
        }
        return rates(trial_id, {SERVER: Counter(at_s, columns)})


def read_use(folder: Path, points: RequestNumbers) -> ServerUse | None:
    """Return the server's CPU and memory from the samples in a trial's folder.

    Return None if the folder has no samples. Raise LabError if the samples do not overlap with the
    load.
    """
    path = folder / SAMPLES
    if not path.is_file():
        return None
    known = _facts(path)
    begin_s = points.first_start_ns / 1e9
    seconds = (points.last_end_ns - points.first_start_ns) / 1e9
    raw = read_counters(path, points.first_start_ns)[SERVER]
    moved = _aligned(raw.t_s, known["clock"], begin_s, seconds)
    counter = replace(raw, t_s=raw.t_s + moved.by_s)
    if not (counter.t_s[0] < seconds and counter.t_s[-1] > 0):
        raise LabError(
            f"The CPU samples are from {_span(counter.t_s, begin_s)}, but the load was from "
            f"{_span(np.array([0.0, seconds]), begin_s)}: give samples that were taken "
            "during the load.",
            exit_code=1,
        )
    use = ServerUse(counter, seconds, known["tool"], ())
    first_s, last_s = use.covered
    every_s = short_number(float(np.median(np.diff(counter.t_s))))
    said = (
        f"{known['tool']} sampled the server's CPU use every {every_s} s. The samples cover "
        f"{100 * (last_s - first_s) / seconds:.0f} % of the load."
    )
    note = f"{known['note']}." if known["note"] else ""
    return replace(use, words=tuple(filter(None, (said, moved.words, note))))


def no_rows() -> pa.Table:
    """Return an empty table of resources, for a load without CPU samples."""
    return schema_of("resources").empty_table()


@dataclass(frozen=True)
class _Moved:
    """The offset that is added to the samples' times to convert them to the load's clock."""

    by_s: float
    words: str = ""
    """Sentence that says what the lab assumed about the samples' clock.

    Empty if the lab assumed nothing.
    """


def _aligned(
    t_s: np.ndarray[Any, np.dtype[np.float64]], clock: str, begin_s: float, seconds: float
) -> _Moved:
    """Return the offset that converts the times of samples to the clock of the load.

    `begin_s` is the time when the load began, in seconds since the epoch, and `t_s` are the
    samples' times minus `begin_s`. `clock` is `wall` if the samples' times are in UTC, and `local`
    if they are in an unknown time zone. For any other `clock`, the samples have no time of day, so
    the lab assumes that the first sample was taken when the load began. The time of the first
    sample is `t_s[1]`, because the import adds a row before this sample.
    """
    if clock == "wall":
        return _Moved(0.0)
    if clock == "local":
        return _in_zone(t_s, begin_s, seconds)
    return _Moved(
        -float(t_s[1]),
        "The CPU samples have no time of day, so they cannot be aligned with the load by "
        "their times: the lab assumed that the first sample was taken at the beginning of "
        "the load.",
    )


def _in_zone(t_s: np.ndarray[Any, np.dtype[np.float64]], begin_s: float, seconds: float) -> _Moved:
    """Return the offset to add to the times of samples whose time zone is unknown.

    The time zone is chosen so that the samples overlap with the load for as long as possible. If
    the samples have only a time of day, and no date, the lab assumes the date of the load.
    """
    days_s = DAY_S * math.floor(begin_s / DAY_S) if t_s[0] + begin_s < DAY_S else 0.0
    zones = range(-MOST_ZONE_S, MOST_ZONE_S + 1, ZONE_STEP_S)

    def overlap_s(by_s: float) -> float:
        return min(seconds, float(t_s[-1]) + by_s) - max(0.0, float(t_s[0]) + by_s)

    east_s = max(zones, key=lambda zone: (round(overlap_s(days_s - zone)), -abs(zone)))
    sign = "-" if east_s < 0 else "+"
    minutes_away = abs(east_s) // 60
    minutes = f":{minutes_away % 60:02d}" if minutes_away % 60 else ""
    zone = f"UTC{sign}{minutes_away // 60}{minutes}"
    return _Moved(
        days_s - east_s,
        "The times of the CPU samples have no time zone: they were taken as "
        f"{zone if east_s else 'UTC'}, because with this zone the samples overlap most with "
        "the load.",
    )


def _facts(path: Path) -> dict[str, str]:
    """Return the values of `tool`, `clock` and `note` in the metadata of a file of samples.

    Raise LabError if the file cannot be read.
    """
    try:
        found = pq.read_schema(path).metadata or {}
        known = {name.decode(): value.decode() for name, value in found.items()}
        return {name: known[name] for name in ("tool", "clock", "note")}
    except (OSError, pa.ArrowException, KeyError, UnicodeDecodeError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None


def _span(t_s: np.ndarray[Any, np.dtype[np.float64]], begin_s: float) -> str:
    first, last = (
        datetime.fromtimestamp(float(at) + begin_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for at in (t_s[0], t_s[-1])
    )
    return f"{first} to {last} UTC"
