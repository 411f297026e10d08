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
from runner.present.statistics.stats import Floats

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


@dataclass(frozen=True)
class _Candidate:
    """A cause, and the CPU time above the baseline that it accounts for; NaN if it is unknown."""

    cause: Cause
    accounted_ms: float = math.nan
    hindrance: Hindrance | None = None


def explain(spike: Spike, around: Surroundings) -> Explanation:
    """Return the cause of a spike by the rules above."""
    cycles = _increase(around.samples, "gc_cycles", spike)
    candidates = (
        _caught_up(spike, around),
        _Candidate(Cause.STOLEN, _sum_within(around.stolen, spike)),
        _Candidate(Cause.COLLECTOR, 1000 * _unusual_increase(around.samples, "gc_cpu_s", spike)),
        _Candidate(Cause.REQUESTS, _of_more_requests_ms(spike, around)),
    )
    enough_ms = HALF * spike.excess_ms
    sufficient = [each for each in candidates if each.accounted_ms >= enough_ms]
    decided = sufficient[0] if sufficient else _rest(candidates, collects=math.isfinite(cycles))
    return Explanation(
        decided.cause,
        decided.accounted_ms,
        decided.hindrance,
        cycles,
        pause_ms=_increase(around.samples, "gc_pause_total_ms", spike),
        busiest_thread_pct=_busiest_thread_pct(spike, around.samples),
    )


def _caught_up(spike: Spike, around: Surroundings) -> _Candidate:
    """Return the CPU time that the server had missed when something held it back before a spike."""
    held = _held_before(spike, around)
    if held is None:
        return _Candidate(Cause.CAUGHT_UP)
    return _Candidate(Cause.CAUGHT_UP, _missing_ms(spike, around.server), held)


def _rest(candidates: Sequence[_Candidate], *, collects: bool) -> _Candidate:
    """Return the cause of a spike that no candidate explains: own work, or unknown.

    `collects` is True if the server reports garbage collections.
    """
    accounted_ms = {each.cause: each.accounted_ms for each in candidates}
    knows_requests = math.isfinite(accounted_ms[Cause.REQUESTS])
    knows_collector = math.isfinite(accounted_ms[Cause.COLLECTOR]) or not collects
    return _Candidate(Cause.OWN_WORK if knows_requests and knows_collector else Cause.UNKNOWN)


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
    windows = server.windows
    is_before = windows.end_s <= spike.start_s + ROUNDING_S
    is_near = windows.start_s >= spike.start_s - CATCHING_UP_S
    length_s = windows.end_s - windows.start_s
    below_ms = (10 * (server.baseline - windows.value) * length_s)[is_before & is_near]
    return float(np.cumsum(below_ms[::-1]).max(initial=0.0))


def _sum_within(windows: Windows, spike: Spike) -> float:
    """Return the sum of the windows that overlap a spike."""
    overlaps = (windows.start_s < spike.end_s) & (windows.end_s > spike.start_s)
    return float(windows.value[overlaps].sum())


@dataclass(frozen=True, eq=False)
class _Count:
    """The answers of /stats to one count, and the places of those around a spike.

    `last` is the place of the second answer after the spike, because Go updates its numbers of a
    collection when the collection ends.
    """

    at_s: Floats
    value: Floats
    first: int
    last: int

    @property
    def increase(self) -> float:
        """Increase around the spike."""
        return float(self.value[self.last] - self.value[self.first])

    @property
    def length_s(self) -> float:
        """Seconds between the two answers around the spike."""
        return float(self.at_s[self.last] - self.at_s[self.first])

    @property
    def mean_per_s(self) -> float:
        """Mean rate over all answers."""
        return float((self.value[-1] - self.value[0]) / (self.at_s[-1] - self.at_s[0]))


def _count(samples: pd.DataFrame, column: str, spike: Spike) -> _Count | None:
    """Return the answers to a count of /stats around a spike; None if there are fewer than two."""
    answers = inside(samples, column, math.inf, -math.inf)
    if len(answers.value) < 2:
        return None
    before = int(np.searchsorted(answers.end_s, spike.start_s, side="right")) - 1
    second_after = int(np.searchsorted(answers.end_s, spike.end_s)) + 1
    last = min(len(answers.value) - 1, second_after)
    return _Count(answers.end_s, answers.value, max(0, before), last)


def _increase(samples: pd.DataFrame, column: str, spike: Spike) -> float:
    """Return the increase of a count of /stats around a spike; NaN if it is unknown."""
    count = _count(samples, column, spike)
    return math.nan if count is None else count.increase


def _unusual_increase(samples: pd.DataFrame, column: str, spike: Spike) -> float:
    """Return the increase less what the load's mean rate gives for that time; NaN if unknown."""
    count = _count(samples, column, spike)
    return math.nan if count is None else count.increase - count.mean_per_s * count.length_s


def _of_more_requests_ms(spike: Spike, around: Surroundings) -> float:
    """Return the usual CPU time of the requests beyond the load's mean rate; NaN if unknown."""
    more = _unusual_increase(around.samples, "requests", spike)
    answers = inside(around.samples, "requests", math.inf, 0.0)
    count = answers.value
    if math.isnan(more) or len(count) < 2 or count[-1] == count[0]:
        return math.nan
    rate_per_s = float((count[-1] - count[0]) / (answers.end_s[-1] - answers.end_s[0]))
    mean_pct = float(np.mean(around.server.windows.value))
    return more * 10 * mean_pct / rate_per_s


def _busiest_thread_pct(spike: Spike, samples: pd.DataFrame) -> float:
    """Return the mean CPU use of the busiest thread during a spike; NaN if it is unknown."""
    windows = inside(samples, "busiest_thread_pct", math.inf)
    overlaps = (windows.start_s < spike.end_s) & (windows.end_s > spike.start_s)
    return float(windows.value[overlaps].mean()) if overlaps.any() else math.nan
