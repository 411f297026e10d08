"""Mergeable latency histograms with log buckets of 1 % relative width; pure NumPy, shared by k6's and wrk's digests.

Bucket b holds the latencies x (in us) with 1.01**b <= x < 1.01**(b + 1); everything below 1.01 us is in bucket 0.
Histograms of the same scheme merge by adding counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

GROWTH = 1.01
"""Upper bound of a bucket divided by its lower bound."""

MAX_QUANTILE_ERROR = GROWTH**0.5 - 1
"""Largest relative error of `quantile_ms` against the exact nearest-rank quantile: 0.499 %."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def bucket_index(latency_us: ArrayLike) -> Ints:
    """Return the bucket of each latency in us: floor(ln(us) / ln(1.01)), and 0 below 1 us.

    A rounding error of the logarithm is corrected, so that `bucket_bounds_ms` always enclose the latency.
    ValueError on NaN, infinite or negative latencies.
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


def bucket_bounds_ms(bucket: ArrayLike) -> tuple[Floats, Floats]:
    """Return lower (inclusive) and upper (exclusive) bounds in ms of each bucket."""
    power = np.asarray(bucket, dtype=np.float64)
    return np.power(GROWTH, power) / 1000, np.power(GROWTH, power + 1) / 1000


def bucket_counts(values_us: ArrayLike, counts: ArrayLike | None = None) -> tuple[Ints, Ints]:
    """Return (buckets, counts), ascending and without empty buckets, of latencies in us that occur `counts` times."""
    buckets = bucket_index(values_us).ravel()
    weights = np.ones(buckets.size, dtype=np.int64) if counts is None else _whole(counts)
    return merge_counts(buckets, weights)


def merge_counts(keys: ArrayLike, counts: ArrayLike) -> tuple[Ints, Ints]:
    """Add up the counts of equal keys: (keys, counts), ascending, without zero counts; exact for any int64 sum.

    Keys are buckets, or any integers that contain one (such as second and bucket in one number).
    """
    unique, inverse = np.unique(np.asarray(keys, dtype=np.int64).ravel(), return_inverse=True)
    sums = np.zeros(unique.size, dtype=np.int64)
    np.add.at(sums, inverse, _whole(counts))
    return unique[sums != 0], sums[sums != 0]


def quantile_ms(buckets: ArrayLike, counts: ArrayLike, q: float) -> float:
    """Return the nearest-rank quantile in ms as the geometric middle of its bucket; NaN for an empty histogram.

    Nearest rank: the smallest value that at least a share `q` (0 to 1) of all values does not exceed. The
    relative error is at most MAX_QUANTILE_ERROR for values of 1 us and more.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"A quantile lies within 0 and 1, not at {q!r}.")
    keys, sums = merge_counts(buckets, counts)
    if keys.size == 0:
        return float("nan")
    total = int(sums.sum())
    # The product is rounded up only where it exceeds a whole rank by more than its own rounding error.
    rank = max(1, int(np.ceil(q * total * (1 - 4 * np.finfo(float).eps))))
    bucket = int(keys[np.searchsorted(np.cumsum(sums), rank)])
    return float(GROWTH ** (bucket + 0.5) / 1000)


def _whole(counts: ArrayLike) -> Ints:
    given: NDArray[Any] = np.asarray(counts).ravel()
    if given.size and (not np.issubdtype(given.dtype, np.integer) or np.any(given < 0)):
        raise ValueError("Counts must be integers and not negative.")
    return given.astype(np.int64)
