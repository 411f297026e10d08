"""Find events during a trial, and test if CPU spikes coincide with them more often than by chance.

An event is an interval of time. The source of an event limits how exactly its start and end are
known. Throttling by a quota, steal (CPU time that the hypervisor took), waiting for a CPU, stops by
a signal (SIGSTOP), context switches and CPU use are known for every window of the sampler. Garbage
collections, the pool and accepted connections are known only from the server's answers to
GET /stats, which the lab sends at most five times a second. Such an event lies somewhere between
two answers.

For waiting, context switches, accepted connections and CPU use, an event is a stretch in which the
values stand out: they are above their baseline by more than a fixed multiple of their usual
distance from the baseline (the deviation), as defined in found.py.

The test computes the share of spikes that overlap an event of one kind. Then it shifts the events
against the spikes by 1, 2, ... windows, in a circle, and computes the same share for each shift.
Shifting preserves how events and spikes cluster, and breaks only the relation between events and
spikes. All shifts are used, so p = (1 + number of shifts with at least the observed share) / (1 +
number of shifts) is exact and never 0 (Phipson & Smyth 2010, Statistical Applications in Genetics
and Molecular Biology 9, 39).

The test assumes that neither events nor spikes become more frequent during the load. On a ramp both
may become more frequent, and then they coincide without being related. Holm's correction covers all
kinds of events of one trial that can be tested. The first SETTLING_S seconds of the load, and of
each slice, are left out.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from runner.present.spikes.found import (
    ENOUGH,
    ROUNDING_S,
    Spike,
    Track,
    Windows,
    inside,
    runs,
    stand_out,
)
from runner.present.spikes.hindrance import OTHERS_WINDOWS, WAITED_FLOOR_PCT, others
from runner.present.statistics.significance import holm
from runner.present.statistics.stats import Floats

Range = tuple[int, int]
ALPHA = 0.05
SWITCHES_FLOOR = 500.0  # the deviation of context switches per second is never below this floor
OTHERS_FLOOR_PCT = 8.0
"""The deviation of other programs' CPU use is never below this floor, in % of a core.

The floor is this high because the kernel counts the machine's CPU use in steps of 10 ms.
"""
STORM_FLOOR = 20.0
"""The deviation of accepted connections per second is never below this floor.

In a connection storm, the server accepts unusually many connections. With this floor, a connection
storm is at least 100 connections per second above the baseline.
"""
FEW_ANSWERS = 5
"""Connection storms are looked for only if GET /stats was answered at least this many times."""


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one kind in a trial, and how often the server's spikes overlap such events.

    `intervals` has a row for each event: its start and end in seconds since the load began. The
    p-values are NaN if there is nothing to test.
    """

    kind: str
    intervals: Floats = field(default_factory=lambda: np.empty((0, 2)))
    amounts_ms: Windows | None = None
    """Lost time or pause time in each window. It is None if this kind of event has no amount."""
    every_s: float = math.nan  # median number of seconds between two observations; NaN if unknown
    unknown: str = ""  # the reason why the times of such events are unknown; empty if known
    count: int = 0  # number of events within the tested windows
    covered: float = 0.0  # share of the tested windows that contain such an event
    together: int = 0  # number of spikes that overlap such an event
    expected: float = math.nan  # share of spikes that would overlap such an event by chance
    p: float = math.nan
    least_p: float = math.nan
    """Smallest p-value that any shift of the events against the spikes would give.

    If this p-value is above ALPHA, the test cannot show a coincidence.
    """
    p_holm: float = math.nan


def events_of(
    samples: pd.DataFrame, tracks: Mapping[str, Track], duration_s: float
) -> tuple[Events, ...]:
    """Return the events of a trial, with one `Events` for each kind.

    `samples` are the trial's rows of the resources table. `tracks` maps each subject to its CPU
    use.
    """
    server = samples[samples["subject"] == "server"]
    host = samples[samples["subject"] == "host"]
    others_pct = others(samples, duration_s)
    switches = inside(host, "switches_per_s", duration_s)
    enough = ENOUGH // OTHERS_WINDOWS
    found_others = stand_out(others_pct, OTHERS_FLOOR_PCT, enough=enough).ranges
    spikes_of_others = [
        _events(f"{subject}'s CPU spike", track.windows, track.ranges)
        for subject, track in tracks.items()
        if subject != "server"
    ]
    return (
        _collections(server, duration_s),
        *_holds(server, host, duration_s),
        _events("other programs' CPU", others_pct, found_others),
        _events("context switches", switches, stand_out(switches, SWITCHES_FLOOR).ranges),
        _storms(server, duration_s),
        *_exhausted_pool(server),
        *spikes_of_others,
    )


def _collections(server: pd.DataFrame, duration_s: float) -> Events:
    """Return the garbage collections as events. The amount of an event is its pause time."""
    cycles = inside(server, "gc_cycles", math.inf, -math.inf)
    pauses_ms = inside(server, "gc_pause_total_ms", duration_s)
    return _events(
        "GC cycle",
        cycles,
        _pairs(np.diff(cycles.value) > 0),
        "the server reports no garbage collector",
        2,
        amounts_ms=Windows(pauses_ms.end_s[:-1], pauses_ms.end_s[1:], np.diff(pauses_ms.value)),
    )


def _holds(server: pd.DataFrame, host: pd.DataFrame, duration_s: float) -> Iterator[Events]:
    """Yield each kind of event that holds the server back.

    The kinds are: waiting for a CPU, steal by the hypervisor, throttling by a quota, and being
    stopped by a signal (SIGSTOP). The amount of an event is the time that the server lost. An event
    of the last kind has no amount.
    """
    waited = inside(server, "waited_ms", duration_s)
    waited_pct = waited.value / (10 * (waited.end_s - waited.start_s))
    waits = stand_out(Windows(waited.start_s, waited.end_s, waited_pct), WAITED_FLOOR_PCT)
    yield _events("waiting for a CPU", waited, waits.ranges, amounts_ms=waited)
    stolen = inside(host, "steal_ms", duration_s)
    yield _events("steal", stolen, runs(stolen.value > 0), amounts_ms=stolen)
    throttled = inside(server, "throttled_ms", duration_s)
    yield _events("throttling", throttled, runs(throttled.value > 0), amounts_ms=throttled)
    stopped = inside(server, "stopped", duration_s)
    yield _events("stopped", stopped, runs(stopped.value > 0))


def _storms(server: pd.DataFrame, duration_s: float) -> Events:
    """Return the events in which the server accepted unusually many connections per second."""
    accepted = inside(server, "connections", duration_s)
    at_s = accepted.end_s
    accepted_per_s = Windows(at_s[:-1], at_s[1:], np.diff(accepted.value) / np.diff(at_s))
    found = stand_out(accepted_per_s, STORM_FLOOR, fewest=1, enough=FEW_ANSWERS - 1).ranges
    storms = [(first, last + 1) for first, last in found]
    return _events(
        "connection storm",
        accepted,
        storms,
        "the lab did not ask the server for its accepted connections",
        FEW_ANSWERS,
    )


def _exhausted_pool(server: pd.DataFrame) -> Iterator[Events]:
    """Yield the events in which no connection of the pool was free, if the server has a pool."""
    if server["pool_size"].notna().any():
        free = server.assign(free=server["pool_size"] - server["pool_in_use"])
        windows = inside(free, "free", math.inf, -math.inf)
        yield _events(
            "pool exhausted",
            windows,
            _pairs(windows.value[1:] <= 0),
            "the lab did not ask the server for its pool",
            2,
        )


def _events(
    kind: str,
    windows: Windows,
    ranges: Iterable[Range],
    unknown: str = "the tables of this run do not contain it",
    enough: int = 1,
    *,
    amounts_ms: Windows | None = None,
) -> Events:
    """Return the events of one kind, given the windows and the range of windows of each event.

    A range in `ranges` consists of the indices of an event's first and last window. If there are
    fewer than `enough` windows, the events of this kind are not known, and the result contains the
    reason `unknown` instead of events.
    """
    if len(windows.end_s) < enough:
        return Events(kind, unknown=unknown)
    spans = [(windows.start_s[first], windows.end_s[last]) for first, last in ranges]
    every_s = float(np.median(np.diff(windows.end_s))) if len(windows.end_s) > 1 else math.nan
    has_amounts = amounts_ms is not None and len(amounts_ms.value) > 0
    return Events(
        kind,
        np.array(spans, dtype=np.float64).reshape(-1, 2),
        amounts_ms if has_amounts else None,
        every_s=every_s,
    )


def _pairs(differs: NDArray[np.bool_]) -> list[Range]:
    """Return the range of windows of each event that two successive answers of GET /stats show.

    There is a window for each answer. `differs` has a value for each answer except the first one.
    The value is True if an event happened since the previous answer. The range of such an event
    consists of the windows of these two answers.
    """
    return [(int(place), int(place) + 1) for place in np.flatnonzero(differs)]


def coincidences(server: Track, kinds: Sequence[Events]) -> tuple[Events, ...]:
    """Test if spikes coincide with each kind of event, and return the kinds with the results.

    The p-values are corrected by Holm's method for the number of kinds that can be tested.
    """
    start, end, _ = (side[server.settled] for side in server.windows)
    borders = [(spike.start_s, spike.end_s) for spike in server.counted]
    spikes = [
        (int(first), int(after)) for first, after in np.searchsorted((start + end) / 2, borders)
    ]
    found = [_hold(kind, spikes, start, end) for kind in kinds]
    p_holm = np.array([kind.p for kind in found])
    testable = np.isfinite(p_holm)
    p_holm[testable] = holm(p_holm[testable])
    return tuple(replace(kind, p_holm=float(p)) for kind, p in zip(found, p_holm, strict=True))


def _hold(kind: Events, spikes: Sequence[Range], start: Floats, end: Floats) -> Events:
    if not len(start):
        return kind
    begin, finish = np.sort(kind.intervals, axis=0).T
    # A window contains an event if the number of events that began before the window's end is
    # larger than the number of events that ended before the window's start.
    there = np.searchsorted(begin, end - ROUNDING_S) > np.searchsorted(
        finish, start + ROUNDING_S, side="right"
    )
    count = int(((finish > start[0] + ROUNDING_S) & (begin < end[-1] - ROUNDING_S)).sum())
    overlaps = by_shift(spikes, there)
    expected = float(overlaps.mean()) / len(spikes) if spikes else math.nan
    covered = float(there.mean())
    together = int(overlaps[0])
    found = replace(kind, count=count, covered=covered, together=together, expected=expected)
    # If the same number of spikes overlap events at each shift, nothing can be tested. For example,
    # this is the case if there are no spikes or no events, or if there are events all the time.
    if overlaps.min() == overlaps.max():
        return found
    return replace(
        found,
        p=float((overlaps >= overlaps[0]).mean()),
        least_p=float((overlaps >= overlaps.max()).mean()),
    )


def by_shift(spikes: Sequence[Range], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of spikes that overlap an event, for each shift of the events.

    The shifts are 0, 1, 2, ... windows, in a circle. `spikes` are ranges of windows, each with the
    index of its first window and the index after its last window. `there` is a mask of the windows
    that contain an event.
    """
    shifts = np.arange(len(there))
    total = np.zeros(len(there), dtype=np.int64)
    for first, after in spikes:
        in_a_circle = np.pad(there, (0, after - first - 1), mode="wrap")
        # Compute for each window whether a spike of this length that began at the window would
        # overlap an event.
        overlaps = np.any(sliding_window_view(in_a_circle, after - first), axis=1)
        total += overlaps[(first - shifts) % len(there)]
    return total


def seen(kinds: Sequence[Events], spike: Spike) -> tuple[str, ...]:
    """Return the names of the kinds of events that overlap a spike."""
    return tuple(
        kind.kind for kind in kinds if any(spike.overlaps(*interval) for interval in kind.intervals)
    )
