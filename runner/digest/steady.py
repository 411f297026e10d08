"""Little's law: in a steady state the mean number of requests under way is their rate times the time each takes.

J. D. C. Little, A Proof for the Queuing Formula L = lambda W, Operations Research 9 (1961). In a closed loop without
think time that number is the number of users, so that the mean response time follows from the throughput alone.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def steady_state(ends_ns: NDArray[np.int64], lengths_ms: NDArray[np.float64]) -> Steady | None:
    """Return the steady part of a load from when its iterations ended and how long each took; None if there is none."""
    if not ends_ns.size:
        return None
    # Differences first: nanoseconds since the epoch are beyond a double's 53 bits.
    ends_s = (ends_ns - ends_ns.min()) / 1e9
    starts_s = ends_s - lengths_ms / 1000
    begin = float(starts_s.min() + SETTLED * (ends_s.max() - starts_s.min()))
    until = float(starts_s.max())
    within = (ends_s >= begin) & (ends_s <= until)
    if until <= begin or not within.any():
        return None
    under_way_s = np.clip(np.minimum(ends_s, until) - np.maximum(starts_s, begin), 0.0, None)
    return Steady(until - begin, float(under_way_s.sum()) / (until - begin), float(lengths_ms[within].mean()))
