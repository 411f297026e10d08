"""What happened while a server's CPU spiked, and whether more of it than by chance.

Events are intervals. They are known only as finely as they are looked at: throttling, steal, context switches and CPU
in every window of the sampler; the garbage collector, the pool and accepted connections only where the server answered
at /stats, five times a second at most, so that an event of these lies somewhere between two answers.

The test: which share of the spikes overlaps an event of a kind, beside the same share after the events were shifted
against the spikes by 1, 2, ... windows, the end joined to the beginning. Shifts keep how events, and spikes, cluster;
they break only what ties one to the other. All shifts are taken, so that p = (1 + shifts with at least that share) /
(1 + shifts) is no estimate, and never 0 (Phipson & Smyth 2010, Statistical Applications in Genetics and Molecular
Biology 9, 39). It takes for granted that neither gets more frequent over the load: on a ramp both may, and then
coincide without being tied. Holm's correction is over the kinds of one trial that can be tested. The load's first
SETTLING_S seconds are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from runner.present.spikes.found import ROUNDING_S, Spike, Track, inside, runs, stand_out
from runner.present.statistics.significance import holm
from runner.present.statistics.stats import Floats

ALPHA = 0.05
SWITCHES_FLOOR = 500.0
"""Least deviation of context switches a second, over the whole machine."""
STORM_FLOOR = 20.0
"""Least deviation of accepted connections a second: a storm is 100 a second above what is usual, at least."""
FEW_ANSWERS = 5
NONE: Floats = np.empty((0, 2))


@dataclass(frozen=True, eq=False)
class Events:
    """One kind of event in a trial: intervals in seconds since the load began, a row each."""

    kind: str
    intervals: Floats
    every_s: float
    """Seconds between two looks at it (median), NaN where it is not known."""
    unknown: str = ""
    """Why nothing is known of it, empty where it was looked at."""

    def during(self, spike: Spike) -> bool:
        """Whether one of them overlaps a spike."""
        return any(spike.overlaps(start, end) for start, end in self.intervals)


@dataclass(frozen=True)
class Coincidence:
    """How often a server's spikes overlap events of one kind; p values are NaN where there is nothing to test."""

    kind: str
    events: int
    covered: float
    """Share of the windows in which there is such an event."""
    together: int
    """Spikes that overlap one."""
    expected: float
    """The share of the spikes that would by chance."""
    p: float
    least_p: float
    """The smallest p that these spikes and these events could give."""
    p_holm: float = math.nan


# --- events -----------------------------------------------------------------------------------------------


def events_of(samples: pd.DataFrame, tracks: Mapping[str, Track], duration_s: float) -> tuple[Events, ...]:
    """Return the events of a trial by kind; `samples` are its rows of the resources table, `tracks` its subjects'."""
    server, host = (samples[samples["subject"] == subject].sort_values("t_s") for subject in ("server", "host"))
    found = [
        _gc(server),
        _in_windows("throttling", server, "throttled_ms", duration_s),
        _switches(host, duration_s),
        _in_windows("steal", host, "steal_ms", duration_s),
        _storms(server, duration_s),
    ]
    if server["pool_size"].notna().any():
        found.append(_pool(server))
    found += [_own_spikes(subject, track) for subject, track in tracks.items() if subject != "server"]
    return tuple(found)


def _answers(server: pd.DataFrame, column: str) -> tuple[Floats, Floats, Floats]:
    """Return begin and end of the window in which each answer of /stats came, and what it said of `column`.

    What differs between two answers happened after the first one's window began, and before the second one's ended.
    """
    own = server[server[column].notna()]
    end, length = own["t_s"].to_numpy(dtype=np.float64), own["dt_s"].to_numpy(dtype=np.float64)
    return end - length, end, own[column].to_numpy(dtype=np.float64)


def _between(start: Floats, end: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """Return the times between each two answers that are chosen."""
    return np.column_stack([start[:-1], end[1:]])[chosen]


def _spans(start: Floats, end: Floats, ranges: Sequence[tuple[int, int]]) -> Floats:
    return np.array([(start[first], end[last]) for first, last in ranges], dtype=np.float64).reshape(-1, 2)


def _gc(server: pd.DataFrame) -> Events:
    start, end, cycles = _answers(server, "gc_cycles")
    if len(end) < 2:
        return Events("GC cycle", NONE, math.nan, "the server reports no garbage collector")
    return Events("GC cycle", _between(start, end, np.diff(cycles) > 0), _median_step(end))


def _pool(server: pd.DataFrame) -> Events:
    start, end, in_use = _answers(server, "pool_in_use")
    size = server.loc[server["pool_in_use"].notna(), "pool_size"].to_numpy(dtype=np.float64)
    return Events("pool exhausted", _between(start, end, (in_use >= size)[1:]), _median_step(end))


def _storms(server: pd.DataFrame, duration_s: float) -> Events:
    start, end, accepted = _answers(server, "connections")
    within = (start >= 0) & (end <= duration_s)
    start, end, accepted = start[within], end[within], accepted[within]
    if len(end) < FEW_ANSWERS:
        return Events("connection storm", NONE, math.nan, "accepted connections were not asked for along the load")
    rate = np.diff(accepted) / np.diff(end)
    found = stand_out(end[:-1], end[1:], rate, STORM_FLOOR, fewest=1, enough=FEW_ANSWERS - 1)
    return Events("connection storm", _spans(start[:-1], end[1:], found.ranges), _median_step(end))


def _in_windows(kind: str, rows: pd.DataFrame, column: str, duration_s: float) -> Events:
    """Return the stretches of windows in which a column is above 0."""
    start, end, value = inside(rows, column, duration_s)
    if not len(value):
        return Events(kind, NONE, math.nan, "the tables of this run do not have it")
    return Events(kind, _spans(start, end, runs(value > 0)), _median_step(end))


def _switches(host: pd.DataFrame, duration_s: float) -> Events:
    start, end, rate = inside(host, "switches_per_s", duration_s)
    if not len(rate):
        return Events("context switches", NONE, math.nan, "the tables of this run do not have it")
    found = stand_out(start, end, rate, SWITCHES_FLOOR)
    return Events("context switches", _spans(start, end, found.ranges), _median_step(end))


def _own_spikes(subject: str, of: Track) -> Events:
    spans = np.array([(spike.start_s, spike.end_s) for spike in of.spikes], dtype=np.float64).reshape(-1, 2)
    return Events(f"{subject}'s CPU spike", spans, _median_step(of.end_s))


def _median_step(at_s: Floats) -> float:
    return float(np.median(np.diff(at_s))) if len(at_s) > 1 else math.nan


# --- the test ---------------------------------------------------------------------------------------------


def coincidences(server: Track, kinds: Sequence[Events]) -> tuple[Coincidence, ...]:
    """Hold the server's spikes against each kind of event that is known, p corrected for those that can be tested."""
    kept = server.settled
    start, end = server.start_s[kept], server.end_s[kept]
    middle = (start + end) / 2
    spans = [(np.searchsorted(middle, spike.start_s), np.searchsorted(middle, spike.end_s)) for spike in server.counted]
    spikes = [(int(first), int(after)) for first, after in spans]
    found = [_hold(kind, spikes, start, end) for kind in kinds if not kind.unknown]
    testable = [place for place, of in enumerate(found) if math.isfinite(of.p)]
    for place, p in zip(testable, holm([found[place].p for place in testable]), strict=True):
        found[place] = replace(found[place], p_holm=float(p))
    return tuple(found)


def _hold(kind: Events, spikes: Sequence[tuple[int, int]], start: Floats, end: Floats) -> Coincidence:
    if not len(start):
        return Coincidence(kind.kind, 0, 0.0, 0, math.nan, math.nan, math.nan)
    begin, finish = np.sort(kind.intervals, axis=0).T
    # Those that have begun before a window's end, less those that were over by its begin.
    there = np.searchsorted(begin, end - ROUNDING_S) > np.searchsorted(finish, start + ROUNDING_S, side="right")
    own = int(((finish > start[0] + ROUNDING_S) & (begin < end[-1] - ROUNDING_S)).sum())
    covered = float(there.mean())
    if not spikes:
        return Coincidence(kind.kind, own, covered, 0, math.nan, math.nan, math.nan)
    overlaps = by_shift(spikes, there)
    together, expected = int(overlaps[0]), float(overlaps.mean()) / len(spikes)
    if overlaps.min() == overlaps.max():  # no event, or events all the time: no shift differs from another
        return Coincidence(kind.kind, own, covered, together, expected, math.nan, math.nan)
    p, least = (float((overlaps >= most).mean()) for most in (overlaps[0], overlaps.max()))
    return Coincidence(kind.kind, own, covered, together, expected, p, least)


def by_shift(spikes: Sequence[tuple[int, int]], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many spikes overlap an event after the events were shifted by 0, 1, 2, ... windows, in a circle.

    `spikes` are ranges of windows (first, one after the last), `there` says of each window whether it has an event.
    """
    n = len(there)
    shift = np.arange(n)
    total = np.zeros(n, dtype=np.int64)
    for first, after in spikes:
        length = after - first
        counted = np.concatenate([[0], np.cumsum(np.concatenate([there, there[: length - 1]]))])
        total += (counted[length:] > counted[:-length])[(first - shift) % n]
    return total


def seen(kinds: Sequence[Events], spike: Spike) -> tuple[str, ...]:
    """Return the kinds of event that overlap a spike."""
    return tuple(kind.kind for kind in kinds if kind.during(spike))
