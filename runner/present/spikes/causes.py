"""Name the cause of a server's CPU spike, if the tables of its trial contain one.

The rules are tried in this order, and the first that accounts for HALF of the CPU time above the
baseline decides:

1. It caught up: before the spike it had used less CPU than usual, as something held it back
   (`hindrance`), and worked off afterwards what had waited.
2. The hypervisor took CPU time during the spike, which some kernels count as the server's.
3. Its garbage collector used the CPU time, as the server itself reports.
4. More requests than usual were answered, at the load's usual CPU time per request.
5. None of these: it was the server's own work.

Without the numbers for rules 3 and 4, which come from the server's /stats, the last rule says that
the cause is unknown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from runner.present.spikes.found import ROUNDING_S, Spike, Track, Windows, inside
from runner.present.spikes.hindrance import Hindrance

HALF = 0.5
CATCHING_UP_S = 3.0
"""Seconds before a spike in which missing CPU time is searched."""
APART_S = 0.25
"""Longest time between the end of what held a server back and the spike."""


class Cause(StrEnum):
    """The cause of a spike."""

    CAUGHT_UP = "caught up"
    STOLEN = "stolen"
    COLLECTOR = "collector"
    REQUESTS = "requests"
    OWN_WORK = "own work"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Explanation:
    """The cause of a spike, and the CPU time in ms that it accounts for; NaN if it has none.

    `hindrance` is what held the server back before it caught up. `pause_ms` is the pause time of
    the garbage collections, and `cycles` their number, between the answers of /stats around the
    spike; NaN if there is no collector.
    """

    cause: Cause
    accounted_ms: float = math.nan
    hindrance: Hindrance | None = None
    cycles: float = math.nan
    pause_ms: float = math.nan
    busiest_thread_pct: float = math.nan
    """CPU use of the thread that used most of it during the spike; NaN if it is unknown."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What is known of a trial beside its spikes.

    `samples` are the server's rows of the resources table, `stolen` the machine's stolen time in
    ms by window.
    """

    server: Track
    samples: pd.DataFrame
    stolen: Windows
    hindrances: Sequence[Hindrance]


def explain(spike: Spike, around: Surroundings) -> Explanation:
    """Return the cause of a spike by the rules above."""
    enough_ms = HALF * spike.excess_ms
    busiest_pct = _busiest_thread_pct(spike, around.samples)
    held = _held_before(spike, around)
    missing_ms = _missing_ms(spike, around.server)
    if held is not None and missing_ms >= enough_ms:
        return Explanation(Cause.CAUGHT_UP, missing_ms, held, busiest_thread_pct=busiest_pct)
    stolen_ms = _within(around.stolen, spike)
    if stolen_ms >= enough_ms:
        return Explanation(Cause.STOLEN, stolen_ms, busiest_thread_pct=busiest_pct)
    collector_ms = 1000 * _added(around.samples, "gc_cpu_s", spike, beyond_usual=True)
    cycles = _added(around.samples, "gc_cycles", spike)
    pause_ms = _added(around.samples, "gc_pause_total_ms", spike)
    if collector_ms >= enough_ms:
        return Explanation(
            Cause.COLLECTOR, collector_ms, None, cycles, pause_ms, busiest_thread_pct=busiest_pct
        )
    requests_ms = _of_more_requests_ms(spike, around)
    if requests_ms >= enough_ms:
        return Explanation(
            Cause.REQUESTS, requests_ms, None, cycles, pause_ms, busiest_thread_pct=busiest_pct
        )
    collects = math.isfinite(cycles)
    all_known = math.isfinite(requests_ms) and (math.isfinite(collector_ms) or not collects)
    cause = Cause.OWN_WORK if all_known else Cause.UNKNOWN
    return Explanation(cause, math.nan, None, cycles, pause_ms, busiest_thread_pct=busiest_pct)


def _held_before(spike: Spike, around: Surroundings) -> Hindrance | None:
    """Return what held the server back longest until shortly before the spike, or into it."""
    near = [
        each
        for each in around.hindrances
        if each.start_s < spike.start_s and each.end_s >= spike.start_s - APART_S
    ]
    return max(near, key=lambda each: each.lost_ms, default=None)


def _missing_ms(spike: Spike, server: Track) -> float:
    """Return the CPU time that is missing below the baseline before the spike.

    It is the largest sum up to the spike's begin, from any instant of the CATCHING_UP_S before.
    """
    start_s, end_s, value = server.windows
    before = (end_s <= spike.start_s + ROUNDING_S) & (start_s >= spike.start_s - CATCHING_UP_S)
    below_ms = 10 * ((server.baseline - value) * (end_s - start_s))[before]
    return float(np.cumsum(below_ms[::-1]).max(initial=0.0))


def _within(windows: Windows, spike: Spike) -> float:
    """Return the sum of the windows that overlap a spike."""
    overlaps = (windows.start_s < spike.end_s) & (windows.end_s > spike.start_s)
    return float(windows.value[overlaps].sum())


def _added(
    samples: pd.DataFrame, column: str, spike: Spike, *, beyond_usual: bool = False
) -> float:
    """Return the increase of a count of /stats around a spike; NaN if it is unknown.

    With `beyond_usual`, less what the load's mean rate gives for that time. The increase is that
    from the last answer before the spike to the second one after it, because Go updates its numbers
    of a collection when the collection ends.
    """
    _, end_s, count = inside(samples, column, math.inf, -math.inf)
    if len(count) < 2:
        return math.nan
    first = max(0, int(np.searchsorted(end_s, spike.start_s, side="right")) - 1)
    last = min(len(count) - 1, int(np.searchsorted(end_s, spike.end_s)) + 1)
    added = float(count[last] - count[first])
    if not beyond_usual:
        return added
    usual_per_s = (count[-1] - count[0]) / (end_s[-1] - end_s[0])
    return added - float(usual_per_s * (end_s[last] - end_s[first]))


def _of_more_requests_ms(spike: Spike, around: Surroundings) -> float:
    """Return the usual CPU time of the requests beyond the load's mean rate; NaN if unknown."""
    more = _added(around.samples, "requests", spike, beyond_usual=True)
    _, end_s, count = inside(around.samples, "requests", math.inf, 0.0)
    if math.isnan(more) or len(count) < 2 or count[-1] == count[0]:
        return math.nan
    rate_per_s = float((count[-1] - count[0]) / (end_s[-1] - end_s[0]))
    mean_pct = float(np.mean(around.server.windows.value))
    return more * 10 * mean_pct / rate_per_s


def _busiest_thread_pct(spike: Spike, samples: pd.DataFrame) -> float:
    """Return the mean CPU use of the busiest thread during a spike; NaN if it is unknown."""
    start_s, end_s, value = inside(samples, "busiest_thread_pct", math.inf)
    overlaps = (start_s < spike.end_s) & (end_s > spike.start_s)
    return float(value[overlaps].mean()) if overlaps.any() else math.nan
