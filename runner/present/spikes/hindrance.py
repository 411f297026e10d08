"""Find stretches of a load in which something held the server back, from the resources table.

Four things hold a server back: a signal stops the server (SIGSTOP), the hypervisor takes the
machine's CPUs, a quota throttles the server, or the server's threads wait for a CPU that another
program uses. Stolen, throttled and waiting time count only if they stand out from the usual values
of the load, by the rules of `found`. Therefore a server that is held back all the time, for example
by a quota, has no such stretch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from runner.present.spikes.found import Stretch, Windows, inside, runs, stand_out

LOST_FLOOR_PCT = 4.0
"""The deviation of stolen and of throttled time is never below this floor, in % of the time.

With this floor, a stretch is found only if at least 20 % of its time is lost. A smaller floor would
be pointless, because the kernel counts stolen time in steps of 10 ms, and 10 ms are 20 % of a
window.
"""
WAITED_FLOOR_PCT = 1.0
"""The deviation of the time spent waiting for a CPU is never below this floor, in % of the time.

With this floor, a stretch is found only if at least 5 % of its time is lost. The floor can be
smaller than LOST_FLOOR_PCT, because the kernel counts waiting time in nanoseconds. It has to be
smaller, because a server that needs little CPU waits only a few milliseconds at a time, even beside
a busy program.
"""
LEAST_LOST_MS = 30.0
"""A stretch is reported only if the server lost at least this many ms in it.

This rule applies to stolen, throttled and waiting time. A stretch in which a signal (SIGSTOP) had
stopped the server is always reported.
"""


OTHERS_WINDOWS = 4
"""Number of sampler windows over which the CPU use of other programs is averaged.

The values of single windows are too coarse, because the kernel counts the machine's CPU use in
steps of 10 ms, and 10 ms are a fifth of a window.
"""


class Hold(StrEnum):
    """The kind of thing that held a server back."""

    STOPPED = "stopped"
    STOLEN = "stolen"
    THROTTLED = "throttled"
    WAITED = "waited"


@dataclass(frozen=True, kw_only=True)
class Hindrance(Stretch):
    """A stretch in which something held a server back.

    `lost_ms` is the time that the server lost. Waiting time is summed over the server's threads,
    and stolen time is summed over the CPUs. `others_pct` is the CPU use of programs that do not
    belong to the trial, in % of a core. It is NaN if this CPU use is unknown.
    """

    hold: Hold
    lost_ms: float
    others_pct: float = math.nan


def hindrances(samples: pd.DataFrame, duration_s: float) -> tuple[Hindrance, ...]:
    """Return the stretches of a trial in which something held the server back, sorted by time.

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
    """Yield the stretches in which a signal (SIGSTOP) had stopped the server.

    A stretch consists of consecutive windows at whose ends the sampler found the server stopped.
    """
    for first, last in runs(windows.value > 0):
        start_s = float(windows.start_s[first])
        end_s = float(windows.end_s[last])
        lost_ms = 1000 * (end_s - start_s)
        yield Hindrance(hold=Hold.STOPPED, start_s=start_s, end_s=end_s, lost_ms=lost_ms)


def _lost(hold: Hold, windows: Windows, floor_pct: float, fewest: int) -> Iterator[Hindrance]:
    """Yield the stretches of `fewest` or more windows in which the lost time stands out.

    Stretches with less than LEAST_LOST_MS of lost time are left out. The values of `windows` are
    the lost time in ms. The deviation of the lost time is never below `floor_pct`, in % of the
    time. `hold` is the kind of thing that held the server back.
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
    """Return the CPU use of programs that do not belong to the trial, in % of a core.

    This is the machine's CPU use minus the CPU use of all sampled subjects. It includes the CPU use
    of the probe, because the probe is not sampled. Each value is the mean of OTHERS_WINDOWS windows
    of the sampler. The result is empty if the machine was not sampled.
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
    """Return a function that computes the mean CPU use of other programs between two instants.

    The instants are in seconds since the load began.
    """
    windows = others(samples, duration_s)

    def mean_pct(start_s: float, end_s: float) -> float:
        if not len(windows.value):
            return math.nan
        return float(_mean_within(windows, np.array([start_s]), np.array([end_s]))[0])

    return mean_pct


def _mean_within(windows: Windows, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """Return the mean of the windows' values in each interval from `start_s` to `end_s`.

    Time outside the windows counts as 0.
    """
    if not len(windows.value):
        return np.zeros(len(start_s))
    edges_s = np.append(windows.start_s, windows.end_s[-1])
    total = np.append(0.0, np.cumsum(windows.value * np.diff(edges_s)))
    added = np.interp(end_s, edges_s, total) - np.interp(start_s, edges_s, total)
    return np.asarray(added / (end_s - start_s))
