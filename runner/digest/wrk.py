"""Read wrk's result, and undo the back-fill of wrk's histogram.

The back-fill is wrk's correction for coordinated omission: wrk fills its histogram with further
latencies, although it did not measure them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from runner.digest.histogram import merge_counts
from runner.model import LabError
from runner.store import read_json

Histogram = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Distinct latencies in microseconds, in ascending order, and the count of each latency."""
LONGEST_US = 60_000_000
"""Longest latency that a histogram of wrk can contain.

If a request takes longer than wrk's --timeout, wrk counts the request as a timeout, and not in the
histogram. The lab sets --timeout to 10 s.
"""
# If more than this many steps are needed to undo the back-fill of a histogram, the lab refuses the
# histogram. This many steps take some seconds. A usual histogram needs only a few million steps.
MOST_STEPS = 2_000_000_000


@dataclass(frozen=True)
class WrkResult:
    """The numbers of a load that wrk sent.

    `reported` is the histogram that wrk reports, which is back-filled. `raw` is the histogram
    without the back-fill.
    """

    ended_wall_ns: int
    duration_s: float
    requests: int
    connections: int
    threads: int
    errors: dict[str, int]
    reported: Histogram
    raw: Histogram


def backfill_interval_us(duration_us: int, requests: int, connections: int) -> int | None:
    """Return the interval in µs with which wrk back-filled its histogram of latencies.

    The interval is the duration divided by the number of requests per connection. The divisions are
    integer divisions, as in wrk.c. Return None if wrk did not back-fill the histogram.
    """
    each = requests // connections
    return duration_us // each if each > 0 else None


def undo_backfill(reported: Histogram, interval_us: int) -> Histogram:
    """Return the histogram as it was before wrk called `stats_correct(interval_us)`.

    For each latency n >= 2 * interval, wrk adds the count of n to the counts of n - interval,
    n - 2 * interval and so on, as long as these latencies are longer than the interval (wrk 4.0 to
    4.2, stats.c). So wrk adds to the count of a latency only counts of longer latencies.

    Therefore this function processes the latencies from the longest to the shortest. When the
    function comes to a latency, all additions to the count of this latency are undone already. The
    function then subtracts this count from the counts of the shorter latencies to which wrk added
    it. Raise LabError if a count becomes negative, because then the histogram is not wrk's, or wrk
    used another interval. Raise LabError also if more than MOST_STEPS steps would be needed.
    """
    values, counts = reported
    if len(values) == 0:
        return reported
    if (values // interval_us).sum() > MOST_STEPS:
        raise LabError(
            "wrk's histogram has more values than any load produces, so it cannot be corrected.",
            exit_code=1,
        )
    data = np.zeros(int(values[-1]) + 1, dtype=np.int64)
    data[values] = counts
    for n in values[::-1].tolist():
        if n < 2 * interval_us:
            break
        if data[n]:
            data[n - interval_us : interval_us : -interval_us] -= data[n]
    if (data < 0).any():
        raise LabError(
            "wrk's histogram cannot be corrected, because wrk filled it in with another "
            "interval than expected.",
            exit_code=1,
        )
    kept = np.flatnonzero(data)
    return kept.astype(np.int64), data[kept]


def quantile_ms(histogram: Histogram, q: float) -> float:
    """Return the q-quantile in ms, interpolated between order statistics as in k6 and numpy.

    Return NaN if the histogram is empty.
    """
    values, counts = histogram
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    rank, part = divmod(q * (total - 1), 1)
    low, high = values[
        np.searchsorted(np.cumsum(counts), [rank, min(rank + 1, total - 1)], side="right")
    ]
    return float(low + part * (high - low)) / 1000


def mean_ms(histogram: Histogram) -> float:
    """Return the mean in milliseconds; NaN if the histogram is empty."""
    values, counts = histogram
    return float((values * counts).sum() / counts.sum() / 1000) if counts.sum() else float("nan")


def read_wrk(path: Path) -> WrkResult:
    """Read the file wrk.json, in which the lab's script histogram.lua stores wrk's result.

    Raise LabError if the file is not such a file.
    """
    data = read_json(path)
    try:
        reported = _histogram(data["latency_us"])
        ended_us = _whole(data["ended_wall_us"])
        duration_us = _whole(data["duration_us"])
        requests = _whole(data["requests"])
        connections = _whole(data["connections"])
        threads = _whole(data["threads"])
        errors = {
            name: _whole(data["errors"][name])
            for name in ("connect", "read", "write", "status", "timeout")
        }
        if duration_us == 0 or connections == 0:
            raise ValueError("duration or connections is 0")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LabError(
            f"{path} is not wrk's result as the lab writes it ({error!r}).", exit_code=1
        ) from None
    interval = backfill_interval_us(duration_us, requests, connections)
    raw = undo_backfill(reported, interval) if interval else reported
    return WrkResult(
        1000 * ended_us, duration_us / 1e6, requests, connections, threads, errors, reported, raw
    )


def merge_slices(results: Sequence[WrkResult]) -> WrkResult:
    """Combine the results of consecutive slices: add counts and durations, and merge histograms."""
    return replace(
        results[-1],
        duration_s=sum(result.duration_s for result in results),
        requests=sum(result.requests for result in results),
        errors={name: sum(result.errors[name] for result in results) for name in results[0].errors},
        reported=merge_counts(
            *map(np.concatenate, zip(*(result.reported for result in results), strict=True))
        ),
        raw=merge_counts(
            *map(np.concatenate, zip(*(result.raw for result in results), strict=True))
        ),
    )


def merge_generators(results: Sequence[WrkResult]) -> WrkResult:
    """Combine the results of concurrent generators: add counts and rates, and merge histograms.

    The duration of the combined result is the number of all requests divided by the sum of the
    generators' rates. The combined result has the number of threads of the first generator.
    """
    if len(results) == 1:
        return results[0]
    rate = sum(result.requests / result.duration_s for result in results)
    duration_s = (
        sum(result.requests for result in results) / rate if rate else results[0].duration_s
    )
    begun_ns = results[0].ended_wall_ns - round(1e9 * results[0].duration_s)
    return replace(
        merge_slices(results),
        ended_wall_ns=begun_ns + round(1e9 * duration_s),
        duration_s=duration_s,
        connections=sum(result.connections for result in results),
        threads=results[0].threads,
    )


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is not a count")
    return value


def _histogram(pairs: Any) -> Histogram:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    values = table[:, 0]
    counts = table[:, 1]
    if len(table) and not (
        (np.diff(values) > 0).all()
        and values[0] >= 0
        and values[-1] <= LONGEST_US
        and (counts > 0).all()
    ):
        raise ValueError(
            "the buckets are not in ascending order, a latency is too long, or a count is not "
            "positive"
        )
    if counts.astype(float).sum() >= 2.0**53:
        raise ValueError("there are more requests than can be counted")
    return values, counts
