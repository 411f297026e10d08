"""Name the cause of a server's CPU spike, if the tables of the trial show the cause.

Four possible causes are tried in the order below. The spike has the first cause that accounts for
at least HALF of its CPU time above the baseline:

1. The server caught up. Something had held the server back before the spike (`hindrance`), so that
   the server used less CPU than usual. In the spike it worked off the requests that had waited.
2. The hypervisor took CPU time during the spike. Some kernels count this time as the server's.
3. The server's garbage collector used the CPU time, as the server itself reports.
4. The server answered more requests than usual. Each request is assumed to take the usual CPU time.

If none of these causes accounts for enough CPU time, the cause is the server's own work. But the
cause is unknown if the server's answers to GET /stats lack the numbers that could exclude causes 3
and 4. For a server that reports no garbage collector, cause 3 is always excluded.
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
"""Lost CPU time counts only if the server lost it at most this many seconds before a spike."""
APART_S = 0.25
"""A hindrance that ended more than this many seconds before the spike does not count.

A hindrance is a stretch in which something held the server back (hindrance.py).
"""


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
    """The cause of a spike, with the numbers that show it.

    - `accounted_ms` is the CPU time in ms that the cause accounts for. It is NaN if the cause is
      the server's own work, or unknown.
    - `hindrance` is what held the server back, if the cause is that the server caught up. For any
      other cause it is None.
    - `cycles` is the number of garbage collections between the answers of GET /stats before and
      after the spike, and `pause_ms` is the pause time of these collections. Both are NaN if the
      server reports no garbage collector.
    """

    cause: Cause
    accounted_ms: float = math.nan
    hindrance: Hindrance | None = None
    cycles: float = math.nan
    pause_ms: float = math.nan
    busiest_thread_pct: float = math.nan
    """CPU use of the busiest thread during the spike, in % of a core. It is NaN if unknown."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The data of a trial from which its spikes are explained.

    `server` is the server's CPU use. `samples` are the server's rows of the resources table.
    `stolen` contains, for each window, the time in ms that the hypervisor took from the machine.
    `hindrances` are the stretches in which something held the server back.
    """

    server: Track
    samples: pd.DataFrame
    stolen: Windows
    hindrances: Sequence[Hindrance]


@dataclass(frozen=True)
class _Candidate:
    """A possible cause of a spike, and the CPU time above the baseline that it accounts for.

    The CPU time is NaN if it is unknown.
    """

    cause: Cause
    accounted_ms: float = math.nan
    hindrance: Hindrance | None = None


def explain(spike: Spike, around: Surroundings) -> Explanation:
    """Return the cause of a spike by the rules in this module's docstring."""
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
    """Return the candidate `CAUGHT_UP`, with the CPU time that the server lost before the spike.

    The CPU time is NaN if nothing held the server back before the spike.
    """
    held = _held_before(spike, around)
    if held is None:
        return _Candidate(Cause.CAUGHT_UP)
    return _Candidate(Cause.CAUGHT_UP, _missing_ms(spike, around.server), held)


def _rest(candidates: Sequence[_Candidate], *, collects: bool) -> _Candidate:
    """Return the cause of a spike that no candidate explains: the server's own work, or unknown.

    The cause is unknown if the number of requests could not be checked. It is also unknown if the
    server reports garbage collections (`collects`), but their CPU time could not be checked.
    """
    accounted_ms = {each.cause: each.accounted_ms for each in candidates}
    knows_requests = math.isfinite(accounted_ms[Cause.REQUESTS])
    knows_collector = math.isfinite(accounted_ms[Cause.COLLECTOR]) or not collects
    return _Candidate(Cause.OWN_WORK if knows_requests and knows_collector else Cause.UNKNOWN)


def _held_before(spike: Spike, around: Surroundings) -> Hindrance | None:
    """Return the hindrance that held the server back before the spike.

    A hindrance counts if it began before the spike, and did not end more than APART_S before the
    spike. If several hindrances count, return the hindrance with the most lost time. Return None if
    no hindrance counts.
    """
    near = [
        each
        for each in around.hindrances
        if each.start_s < spike.start_s and each.end_s >= spike.start_s - APART_S
    ]
    return max(near, key=lambda each: each.lost_ms, default=None)


def _missing_ms(spike: Spike, server: Track) -> float:
    """Return the CPU time, in ms, by which the server fell short of its baseline before the spike.

    The shortfall is summed up over the windows that directly precede the spike. The number of these
    windows is chosen so that the sum is largest, but all of them lie in the last CATCHING_UP_S
    seconds before the spike. The sum is 0 if the server did not fall short of its baseline.
    """
    windows = server.windows
    is_before = windows.end_s <= spike.start_s + ROUNDING_S
    is_near = windows.start_s >= spike.start_s - CATCHING_UP_S
    length_s = windows.end_s - windows.start_s
    below_ms = (10 * (server.baseline - windows.value) * length_s)[is_before & is_near]
    return float(np.cumsum(below_ms[::-1]).max(initial=0.0))


def _sum_within(windows: Windows, spike: Spike) -> float:
    """Return the sum of the values of those windows that overlap a spike."""
    overlaps = (windows.start_s < spike.end_s) & (windows.end_s > spike.start_s)
    return float(windows.value[overlaps].sum())


@dataclass(frozen=True, eq=False)
class _Count:
    """The values of one counter in all answers of GET /stats, and two answers around a spike.

    `first` is the index of the last answer before the spike, or 0 if no answer came before the
    spike. `last` is the index of the second answer after the spike, or of the trial's last answer
    if there is no second answer after the spike. The first answer after the spike may come too
    early: Go updates the numbers of its garbage collector only when a collection ends, and the
    collection may end after the answer.
    """

    at_s: Floats
    value: Floats
    first: int
    last: int

    @property
    def increase(self) -> float:
        """Increase of the counter between the two answers around the spike."""
        return float(self.value[self.last] - self.value[self.first])

    @property
    def length_s(self) -> float:
        """Seconds between the two answers around the spike."""
        return float(self.at_s[self.last] - self.at_s[self.first])

    @property
    def mean_per_s(self) -> float:
        """Mean increase per second over all answers."""
        return float((self.value[-1] - self.value[0]) / (self.at_s[-1] - self.at_s[0]))


def _count(samples: pd.DataFrame, column: str, spike: Spike) -> _Count | None:
    """Return a counter of GET /stats with the answers around a spike.

    Return None if there are fewer than two answers.
    """
    answers = inside(samples, column, math.inf, -math.inf)
    if len(answers.value) < 2:
        return None
    before = int(np.searchsorted(answers.end_s, spike.start_s, side="right")) - 1
    second_after = int(np.searchsorted(answers.end_s, spike.end_s)) + 1
    last = min(len(answers.value) - 1, second_after)
    return _Count(answers.end_s, answers.value, max(0, before), last)


def _increase(samples: pd.DataFrame, column: str, spike: Spike) -> float:
    """Return the increase of a counter of GET /stats around a spike, or NaN if it is unknown."""
    count = _count(samples, column, spike)
    return math.nan if count is None else count.increase


def _unusual_increase(samples: pd.DataFrame, column: str, spike: Spike) -> float:
    """Return the increase of a counter around a spike, minus the usual increase.

    The usual increase is the counter's mean increase per second, times the seconds between the two
    answers around the spike. Return NaN if the increase is unknown.
    """
    count = _count(samples, column, spike)
    return math.nan if count is None else count.increase - count.mean_per_s * count.length_s


def _of_more_requests_ms(spike: Spike, around: Surroundings) -> float:
    """Return the CPU time, in ms, of the additional requests during a spike.

    The server answered these requests in addition to its usual number of requests. Each request is
    assumed to take the load's mean CPU time per request. Return NaN if the number of requests is
    unknown.
    """
    more = _unusual_increase(around.samples, "requests", spike)
    answers = inside(around.samples, "requests", math.inf, 0.0)
    count = answers.value
    if math.isnan(more) or len(count) < 2 or count[-1] == count[0]:
        return math.nan
    rate_per_s = float((count[-1] - count[0]) / (answers.end_s[-1] - answers.end_s[0]))
    mean_pct = float(np.mean(around.server.windows.value))
    return more * 10 * mean_pct / rate_per_s


def _busiest_thread_pct(spike: Spike, samples: pd.DataFrame) -> float:
    """Return the mean CPU use of the busiest thread during a spike, or NaN if it is unknown."""
    windows = inside(samples, "busiest_thread_pct", math.inf)
    overlaps = (windows.start_s < spike.end_s) & (windows.end_s > spike.start_s)
    return float(windows.value[overlaps].mean()) if overlaps.any() else math.nan
