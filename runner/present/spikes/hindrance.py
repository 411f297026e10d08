"""Stretches of a load in which something held the server back, from its tables of resources.

A signal stops a server (SIGSTOP), the hypervisor takes the machine's CPUs, a quota holds it, or its
threads wait for a CPU that another program has. Stolen, throttled and waiting time must stand out
of what is usual in the load, by the rules of `found`; a server that is held all the time, as on a
quota, has no such stretch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from runner.present.spikes.found import Stretch, Windows, inside, runs, stand_out

LOST_FLOOR_PCT = 4.0
"""Smallest deviation of stolen and throttled time, in % of the time; so 20 % of a stretch is lost.

The kernel counts stolen time in steps of 10 ms.
"""
WAITED_FLOOR_PCT = 1.0
"""The same for a wait for a CPU, which is counted in nanoseconds; so 5 % of a stretch is lost.

A server that needs little CPU waits for a few milliseconds at a time, even beside a busy program.
"""
LEAST_LOST_MS = 30.0
"""Less lost time than this is not reported."""


OTHERS_WINDOWS = 4
"""Windows of the sampler over which other programs' CPU use is averaged.

The kernel counts the machine's use in steps of 10 ms, a fifth of a window.
"""


class Hold(StrEnum):
    """What held a server back."""

    STOPPED = "stopped"
    STOLEN = "stolen"
    THROTTLED = "throttled"
    WAITED = "waited"


@dataclass(frozen=True, kw_only=True)
class Hindrance(Stretch):
    """A stretch in which a server was held back.

    `lost_ms` is the time lost, summed over threads if they waited, and over CPUs if it was stolen.
    `others_pct` is the CPU use, in % of a core, of programs that are no part of the trial; NaN if
    it is unknown.
    """

    hold: Hold
    lost_ms: float
    others_pct: float = math.nan


def hindrances(samples: pd.DataFrame, duration_s: float) -> tuple[Hindrance, ...]:
    """Return what held the server back in a trial, in the order of time.

    `samples` are the trial's rows of the resources table.
    """
    server = samples[samples["subject"] == "server"]
    host = samples[samples["subject"] == "host"]
    others_pct = _mean_of_others(samples, duration_s)
    found = [
        *_stopped(inside(server, "stopped", duration_s)),
        *_lost(Hold.STOLEN, inside(host, "steal_ms", duration_s), LOST_FLOOR_PCT, fewest=1),
        *_lost(
            Hold.THROTTLED, inside(server, "throttled_ms", duration_s), LOST_FLOOR_PCT, fewest=2
        ),
        *_lost(Hold.WAITED, inside(server, "waited_ms", duration_s), WAITED_FLOOR_PCT, fewest=2),
    ]
    with_others = [replace(each, others_pct=others_pct(each.start_s, each.end_s)) for each in found]
    return tuple(sorted(with_others, key=lambda each: each.start_s))


def _stopped(windows: Windows) -> Iterator[Hindrance]:
    """Yield the stretches at whose windows' ends the server was stopped."""
    for first, last in runs(windows.value > 0):
        start_s = float(windows.start_s[first])
        end_s = float(windows.end_s[last])
        lost_ms = 1000 * (end_s - start_s)
        yield Hindrance(hold=Hold.STOPPED, start_s=start_s, end_s=end_s, lost_ms=lost_ms)


def _lost(hold: Hold, windows: Windows, floor_pct: float, fewest: int) -> Iterator[Hindrance]:
    """Yield the stretches of `fewest` windows or more in which lost time stands out.

    `floor_pct` is its smallest deviation, in % of the time.
    """
    lost_pct = windows.value / (10 * (windows.end_s - windows.start_s))
    shares = Windows(windows.start_s, windows.end_s, lost_pct)
    for first, last in stand_out(shares, floor_pct, fewest=fewest).ranges:
        lost_ms = float(windows.value[first : last + 1].sum())
        if lost_ms >= LEAST_LOST_MS:
            start_s = float(windows.start_s[first])
            end_s = float(windows.end_s[last])
            yield Hindrance(hold=hold, start_s=start_s, end_s=end_s, lost_ms=lost_ms)


def others(samples: pd.DataFrame, duration_s: float) -> Windows:
    """Return the CPU use of programs that are no part of the trial, in % of a core.

    It is the machine's use less that of all sampled subjects; the probe, which is not sampled, is
    in it. Each value is the mean of OTHERS_WINDOWS windows of the sampler. Empty if the machine was
    not sampled.
    """
    host = inside(samples[samples["subject"] == "host"], "cpu_pct", duration_s)
    rest_pct = host.value.copy()
    for subject in sorted(set(samples["subject"]) - {"host"}):
        used = inside(samples[samples["subject"] == subject], "cpu_pct", duration_s)
        rest_pct -= _mean_within(used, host.start_s, host.end_s)
    start_s = host.start_s[::OTHERS_WINDOWS]
    end_s = np.append(start_s[1:], host.end_s[-1:])
    rest = Windows(host.start_s, host.end_s, rest_pct)
    return Windows(start_s, end_s, _mean_within(rest, start_s, end_s))


def _mean_of_others(samples: pd.DataFrame, duration_s: float) -> Callable[[float, float], float]:
    """Return a function from two seconds to the mean CPU use of other programs between them."""
    windows = others(samples, duration_s)

    def mean_pct(start_s: float, end_s: float) -> float:
        if not len(windows.value):
            return math.nan
        return float(_mean_within(windows, np.array([start_s]), np.array([end_s]))[0])

    return mean_pct


def _mean_within(windows: Windows, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """Return the mean value within each interval; 0 outside the windows."""
    if not len(windows.value):
        return np.zeros(len(start_s))
    edges_s = np.append(windows.start_s, windows.end_s[-1])
    total = np.append(0.0, np.cumsum(windows.value * np.diff(edges_s)))
    added = np.interp(end_s, edges_s, total) - np.interp(start_s, edges_s, total)
    return np.asarray(added / (end_s - start_s))
