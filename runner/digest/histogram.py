"""Latency histograms that can be merged, with logarithmic buckets of 1 % relative width.

Bucket b holds the latencies x (in us) with 1.01**b <= x < 1.01**(b + 1). Bucket 0 holds all
latencies below 1.01 us. To merge histograms, their counts are added.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from runner.columns import schema_of

GROWTH = 1.01
"""Upper bound of a bucket divided by its lower bound.

A latency of 1 us or more differs from the geometric middle of its bucket by at most the factor
GROWTH**0.5, which means by at most 0.499 %. A quantile (nearest rank) is read from a histogram as
the middle of a bucket. So the quantile is wrong by at most 0.499 %, too.
"""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""Quantiles in the tables, by name. The name is part of a column's name (`latency_p50_ms`)."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def bucket_index(latency_us: ArrayLike) -> Ints:
    """Return the bucket of each latency: floor(ln(us) / ln(1.01)), or 0 for latencies below 1 us.

    Rounding errors of the logarithm are corrected, so that a latency of 1 us or more always lies
    within the `bucket_bounds` of its bucket. Raise ValueError for NaN, infinite or negative
    latencies.
    """
    values = np.asarray(latency_us, dtype=np.float64)
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("A latency must be finite and not negative.")
    values = np.maximum(values, 1.0)
    bucket = np.floor(np.log(values) / np.log(GROWTH))
    bucket += values >= np.power(GROWTH, bucket + 1)
    bucket -= values < np.power(GROWTH, bucket)
    whole: Ints = np.maximum(bucket, 0).astype(np.int64)
    return whole


@dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of a latency histogram's buckets, one element per bucket."""

    lower_ms: Floats
    """Inclusive lower bound of each bucket."""
    upper_ms: Floats
    """Exclusive upper bound of each bucket."""


def bucket_bounds(bucket: ArrayLike) -> Bounds:
    """Return the bounds of each bucket."""
    power = np.asarray(bucket, dtype=np.float64)
    return Bounds(np.power(GROWTH, power) / 1000, np.power(GROWTH, power + 1) / 1000)


def merge_counts(keys: ArrayLike, counts: ArrayLike) -> tuple[NDArray[Any], Ints]:
    """Return the sums of the counts of equal keys, as (keys, sums) in ascending order of the keys.

    Keys whose sum is 0 are left out. Sums are exact if they fit into an int64. Raise ValueError if
    a count is negative or not an integer.
    """
    given: NDArray[Any] = np.asarray(counts).ravel()
    if given.size and (not np.issubdtype(given.dtype, np.integer) or np.any(given < 0)):
        raise ValueError("Counts must be integers and not negative.")
    unique, inverse = np.unique(np.asarray(keys).ravel(), return_inverse=True)
    sums = np.zeros(unique.size, dtype=np.int64)
    np.add.at(sums, inverse, given.astype(np.int64))
    return unique[sums != 0], sums[sums != 0]


def latency_table(
    trial_id: str, second: ArrayLike | None, bucket: ArrayLike, count: ArrayLike
) -> pa.Table:
    """Return one trial's rows of tables/latency.parquet.

    `second` has, for each row, the second of the load to which the row's count belongs. If the
    histogram covers the whole load, `second` is None.
    """
    bounds = bucket_bounds(bucket)
    size = bounds.lower_ms.size
    trial_ids = [trial_id] * size
    seconds = [None] * size if second is None else second
    columns = {
        "trial_id": trial_ids,
        "second": seconds,
        "bucket": bucket,
        "lower_ms": bounds.lower_ms,
        "upper_ms": bounds.upper_ms,
    }
    return pa.table({**columns, "count": count}, schema_of("latency"))


def to_hgrm(upper_ms: ArrayLike, counts: ArrayLike) -> str:
    """Return a histogram in HdrHistogram's text form (`.hgrm`), with values in ms.

    Each non-empty bucket has a line. The value in the line is the upper bound of the bucket, so the
    value is at most 1 % too high. The mean is computed from the middles of the buckets. The format
    is that of outputPercentileDistribution in HdrHistogram 2.1, which HdrHistogram's plotter reads.
    Raise ValueError if the histogram is empty.
    """
    upper, each = merge_counts(upper_ms, counts)
    if not each.size:
        raise ValueError("The histogram has no count.")
    running = np.cumsum(each)
    total = int(each.sum())
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    for value, count in zip(upper, running, strict=True):
        beyond = f" {total / (total - count):14.2f}" if count < total else ""
        lines.append(f"{value:12.3f} {count / total:14.12f} {count:10d}{beyond}")
    middle = upper / GROWTH**0.5
    mean = float(np.average(middle, weights=each))
    deviation = float(np.average((middle - mean) ** 2, weights=each) ** 0.5)
    lines.append(f"#[Mean    = {mean:12.3f}, StdDeviation   = {deviation:12.3f}]")
    lines.append(f"#[Max     = {upper[-1]:12.3f}, Total count    = {total:12d}]")
    lines.append(f"#[Buckets = {upper.size:12d}, SubBuckets     = {1:12d}]")
    return "\n".join([*lines, ""])
