"""Little's law: in a steady state the mean number of requests under way is their rate times the time each takes.

J. D. C. Little, A Proof for the Queuing Formula L = lambda W, Operations Research 9 (1961). In a closed loop without
think time that number is the number of users, so that the mean response time follows from the throughput alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SETTLED = 0.1
"""Share of a load that is left out at its beginning: virtual users begin one after the other."""


@dataclass(frozen=True)
class Steady:
    """The part of a load in which iterations still begin: from a tenth of it to the last one's beginning."""

    seconds: float
    in_flight: float
    """Mean number of iterations under way, each one's time cut to this part."""
    iteration_mean_ms: float
    """Of those that ended in it."""


def steady_state(iterations: Iterable[Mapping[str, NDArray[Any]]]) -> Steady | None:
    """Return the steady part of a load from when its iterations ended and how long each took; None if there is none.

    `iterations` is gone through twice, as there may be more than memory holds: in any order, some at a time, `end_ns`
    (wall clock) and `length_ms` of each.
    """
    first = next((each for each in iterations if each["end_ns"].size), None)
    if first is None:
        return None
    # Differences first: nanoseconds since the epoch are beyond a double's 53 bits.
    origin_ns = int(first["end_ns"][0])
    begun_s, last_start_s, last_end_s = np.inf, -np.inf, -np.inf
    for starts_s, ends_s, _ in _since(origin_ns, iterations):
        begun_s = min(begun_s, float(starts_s.min()))
        last_start_s = max(last_start_s, float(starts_s.max()))
        last_end_s = max(last_end_s, float(ends_s.max()))
    begin = begun_s + SETTLED * (last_end_s - begun_s)
    under_way_s, ended, ended_ms = 0.0, 0, 0.0
    for starts_s, ends_s, lengths_ms in _since(origin_ns, iterations):
        within = (ends_s >= begin) & (ends_s <= last_start_s)
        ended += int(within.sum())
        ended_ms += float(lengths_ms[within].sum())
        under_way_s += float(np.clip(np.minimum(ends_s, last_start_s) - np.maximum(starts_s, begin), 0.0, None).sum())
    if last_start_s <= begin or not ended:
        return None
    return Steady(last_start_s - begin, under_way_s / (last_start_s - begin), ended_ms / ended)


def _since(origin_ns: int, iterations: Iterable[Mapping[str, NDArray[Any]]]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield when some iterations began and ended, in seconds since an instant, and their lengths in ms."""
    for each in iterations:
        if each["end_ns"].size:
            ends_s = (each["end_ns"] - origin_ns) / 1e9
            yield ends_s - each["length_ms"] / 1000, ends_s, each["length_ms"]
