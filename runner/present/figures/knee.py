"""The knee of a curve of response times by offered rate.

It is the rate at which Kleinrock's power, rate / response time, is greatest: up to there more requests cost
little response time, beyond it response time grows faster than the rate (Kleinrock 1979, Power and Deterministic
Rules of Thumb for Probabilistic Problems in Computer Communications, ICC; Jain 1991, The Art of Computer Systems
Performance Analysis, section 3.3). For one queue with random arrivals and service times that is half of its
capacity. Where the power still rises at the highest rate, there is no knee within the rates offered. Compared with
two rivals on four shapes of curve, at the nine rates of `bench run rates`, medians of three trials whose p90 has a
standard deviation of 15 % and is doubled by accident in one of ten (1,000 sweeps a shape):

| knee | at most one rate off | found though the rates end at a third of the capacity |
|---|---|---|
| greatest power | 100 % | 1 % |
| last rate before p90 exceeds three times that of the lowest rate | 99 % | 0 % |
| Kneedle (Satopaa et al. 2011), linear axes | 100 % | 60 % |

Kneedle finds a knee in any bent curve. A multiple of the lowest rate's response time is as steady, but it is another
rate for every multiple, and hangs on one point, where an idle machine is often slower than a busy one. Power has no
constant to choose. The response time is p90: p99 of a trial with 2,500 requests rests on 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

FEWEST_RATES = 3


@dataclass(frozen=True)
class Knee:
    """Where response times begin to grow faster than the rate; where that is not known, NaN, and `why`."""

    rate_rps: float
    why: str = ""


def knee(rates_rps: ArrayLike, latency_ms: ArrayLike, sustained: ArrayLike) -> Knee:
    """Return the knee of one curve, whose rates rise; a rate with NaN is left out.

    Rates from the first one on that was not sustained are no candidates: their response times are those of a queue that
    grows as long as the load lasts.
    """
    rates, latency = np.asarray(rates_rps, dtype=float), np.asarray(latency_ms, dtype=float)
    kept = np.asarray(sustained, dtype=bool)
    collapsed = not kept.all()
    within = np.arange(rates.size) < (int(np.argmin(kept)) if collapsed else rates.size)
    candidates = within & np.isfinite(latency) & (latency > 0)
    if rates.size < FEWEST_RATES:
        return Knee(math.nan, f"too few rates ({rates.size})")
    if not within.any():
        return Knee(math.nan, f"below {rates[0]:,.10g}/s")
    if not candidates.any():
        return Knee(math.nan, "too few requests")
    rates, power = rates[candidates], rates[candidates] / latency[candidates]
    best = int(np.argmax(power))
    if best == rates.size - 1 and not collapsed:
        return Knee(math.nan, f"none up to {rates[-1]:,.10g}/s")
    if best == 0:
        return Knee(math.nan, f"at or below {rates[0]:,.10g}/s")
    return Knee(float(rates[best]))
