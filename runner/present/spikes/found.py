"""Find CPU spikes: stretches in which a server, or another subject, uses unusually much CPU.

A window is one interval between two readings of the sampler, which is 50 ms at 20 Hz. Only windows
inside the load count.

Baseline: The baseline of a window is the median of all windows whose centre is at most
BASELINE_S / 2 away (a centred rolling median). If the rate of the load rises in steps, the centred
median follows the steps. A median of earlier windows only would lag behind, so that each step would
be reported as a spike. In the last BASELINE_S / 2 seconds of the load, the centred median lags
behind, too, because later windows are missing. Therefore the baseline there is at least the first
quartile of the last END_S seconds: a value that is exceeded for three quarters of this time is a
new level of the load (a step), not a spike.

Deviation: The deviation is 1.4826 x MAD (median absolute deviation) of the differences between CPU
use and baseline over the whole load. It estimates the standard deviation of normal noise (Hampel
1974, Journal of the American Statistical Association 69, 383). CPU use in short windows is skewed
upwards. Therefore the upper side alone, 1.4826 x (third quartile - median), is used if it is
larger. The deviation is never below a floor, which is FLOOR_PCT for CPU use.

Spike: A spike consists of FEWEST_WINDOWS or more consecutive windows, each of which is more than
LIMIT deviations above its baseline. Shorter stretches are left out. Then, if a single window lies
between two of the remaining stretches, they are joined to one spike. A spike is `settling` if it
begins in the first SETTLING_S seconds of the load or of a slice, while connections are opened and
the rate rises from zero. A settling spike is listed but not counted. A stretch that is longer than
half of BASELINE_S, or longer than about a quarter of the load, raises its own baseline, so it is
not found.

Chance: If single windows often exceed the limit, some of these windows are consecutive by chance.
Therefore the minimum length of a stretch grows by one window as long as stretches of at least this
length are not significantly more frequent than by chance (binomial test, P > CHANCE). The chance is
computed for windows that exceed the limit independently of each other with probability q. Then a
stretch has L or more windows with probability q^(L-1), and the mean number of stretches in n
windows is n q (1 - q). q is estimated from this formula and the observed number of stretches.

docs/method-evidence.md gives the rate of false spikes, which tests/present/spikes/test_spikes.py
simulates.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import binary_closing, binary_opening
from scipy.special import bdtrc

from runner.present.statistics.stats import Floats

BASELINE_S = 10.0
LIMIT = 5.0
FEWEST_WINDOWS = 2
FLOOR_PCT = 2.0
"""The deviation of CPU use is never below this floor, in % of a core.

Therefore the height of a spike is at least LIMIT * FLOOR_PCT, which is 10 % of a core.
"""
NORMAL = 1.4826
"""Ratio of the standard deviation to the MAD (median absolute deviation) of normal noise."""
CHANCE = 0.01
SETTLING_S = 1.0
END_S = 1.0
ENOUGH = 40
"""Spikes are looked for only in a load with at least this many windows.

At 20 Hz, these windows take two seconds, of which the first second is not counted.
"""
ROUNDING_S = 1e-6


class Windows(NamedTuple):
    """Consecutive intervals of time, each with a value, such as the sampler's windows."""

    start_s: Floats
    end_s: Floats
    value: Floats


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A stretch of time within a load, in seconds since the load began."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length of the stretch in seconds."""
        return self.end_s - self.start_s

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Return True if the stretch overlaps the interval from `start_s` to `end_s`."""
        return self.start_s < end_s and start_s < self.end_s


@dataclass(frozen=True, kw_only=True)
class Spike(Stretch):
    """A stretch of windows in which the CPU use is above the limit (see the module docstring)."""

    height_pct: float  # height of the highest window above its baseline, in % of a core
    baseline_pct: float  # baseline of the highest window
    deviations: float  # the height as a multiple of the deviation
    excess_ms: float  # CPU time above the baseline
    settling: bool
    """True if the spike begins in the first SETTLING_S seconds of the load or of a slice.

    Such a spike is listed but not counted.
    """


@dataclass(frozen=True, eq=False)
class Track:
    """A series of values over a load, and the stretches in which the values exceed the limit.

    If the series is CPU use in % of a core, these stretches are spikes.
    """

    windows: Windows
    baseline: Floats
    deviation: float
    """Usual deviation of the series from its baseline.

    It is NaN if there were too few windows to look for spikes.
    """
    ranges: tuple[tuple[int, int], ...]  # index of each stretch's first and last window
    fewest: int
    """Minimum length of a stretch, in windows.

    This length is larger than FEWEST_WINDOWS if chance can explain shorter stretches.
    """
    slice_s: float = math.inf
    """Length of a slice in seconds. It is infinite if the load is not divided into slices."""

    @cached_property
    def spikes(self) -> tuple[Spike, ...]:
        """The stretches above the limit as spikes, including spikes that do not count."""
        found = []
        for first, last in self.ranges:
            within = slice(first, last + 1)
            start = self.windows.start_s[within]
            end = self.windows.end_s[within]
            baseline = self.baseline[within]
            above = self.windows.value[within] - baseline
            top = int(above.argmax())
            spike = Spike(
                start_s=float(start[0]),
                end_s=float(end[-1]),
                height_pct=float(above[top]),
                baseline_pct=float(baseline[top]),
                deviations=float(above[top]) / self.deviation,
                # Multiply by 10, because 1 % of a core for one second is 10 ms.
                excess_ms=float((above * (end - start)).sum() * 10),
                settling=not self.is_settled(start[:1])[0],
            )
            found.append(spike)
        return tuple(found)

    @property
    def counted(self) -> tuple[Spike, ...]:
        """The spikes that count: all spikes except those at the start of the load or of a slice."""
        return tuple(spike for spike in self.spikes if not spike.settling)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Mask of the windows that begin after the first SETTLING_S seconds of a load or slice."""
        return self.is_settled(self.windows.start_s)

    def is_settled(self, at_s: Floats) -> NDArray[np.bool_]:
        """Return a mask of the instants after the first SETTLING_S seconds of a load or slice."""
        return np.asarray(self._since_begin_s(at_s) >= SETTLING_S - ROUNDING_S)

    def _since_begin_s(self, at_s: Floats) -> Floats:
        """Return, for each instant, the seconds since the start of its slice.

        If the load has no slices, return the seconds since the start of the load.
        """
        if math.isinf(self.slice_s):
            return at_s
        return at_s - np.floor((at_s + ROUNDING_S) / self.slice_s) * self.slice_s

    @property
    def settled_s(self) -> float:
        """Length of the part of the load in which spikes count, in seconds.

        It is 0 if there were too few windows to look for spikes.
        """
        length_s = self.windows.end_s - self.windows.start_s
        return float(length_s[self.settled].sum()) if math.isfinite(self.deviation) else 0.0


def track(samples: pd.DataFrame, duration_s: float, slices: float = 1) -> Track:
    """Return the CPU use of one subject in one trial, and its spikes.

    `samples` are the subject's rows of the resources table. `slices` is the number of slices
    that make up the load. It is 1 or NaN if the load was not divided into slices.
    """
    found = stand_out(inside(samples, "cpu_pct", duration_s), FLOOR_PCT)
    return replace(found, slice_s=duration_s / slices) if slices > 1 else found


def inside(samples: pd.DataFrame, column: str, until_s: float, from_s: float = 0.0) -> Windows:
    """Return the windows between `from_s` and `until_s` with their values, sorted by time.

    The values are those of `column`. Windows in which `column` is NaN are left out.
    """
    end, length, value = samples[["t_s", "dt_s", column]].to_numpy(dtype=np.float64).T
    kept = np.flatnonzero(
        (end - length >= from_s - ROUNDING_S) & (end <= until_s + ROUNDING_S) & ~np.isnan(value)
    )
    kept = kept[np.argsort(end[kept], kind="stable")]
    return Windows(end[kept] - length[kept], end[kept], value[kept])


def stand_out(
    windows: Windows, floor: float, *, fewest: int = FEWEST_WINDOWS, enough: int = ENOUGH
) -> Track:
    """Return the stretches in which a series exceeds its limit, by the rules of this module.

    `floor` is the value below which the deviation never falls, in the unit of the series. `fewest`
    is the minimum length of a stretch, in windows. If there are fewer than `enough` windows, the
    result has no stretch.
    """
    start_s, end_s, value = windows
    if len(value) < enough:
        return Track(windows, np.full(len(value), np.nan), math.nan, (), fewest)
    series = pd.Series(value, index=pd.to_timedelta((start_s + end_s) / 2, unit="s"))
    around = series.rolling(pd.Timedelta(seconds=BASELINE_S), center=True, closed="both")
    baseline = around.median().to_numpy(dtype=np.float64)
    last_quartile = np.quantile(value[end_s > end_s[-1] - END_S], 0.25)
    cut_off = end_s > end_s[-1] - BASELINE_S / 2
    baseline = np.where(cut_off, np.maximum(baseline, last_quartile), baseline)
    deviation = max(floor, robust_deviation(value - baseline))
    above = value - baseline > LIMIT * deviation
    if fewest > 1:
        fewest = beyond_chance(
            np.array([last - first + 1 for first, last in runs(above)]), len(above), fewest
        )
    return Track(windows, baseline, deviation, stretches(above, fewest), fewest)


def robust_deviation(residual: ArrayLike) -> float:
    """Return the larger of 1.4826 x MAD and 1.4826 x (third quartile - median).

    For normal noise, both values estimate the standard deviation.
    """
    values = np.asarray(residual, dtype=np.float64)
    middle, upper = np.quantile(values, [0.5, 0.75])
    return float(NORMAL * max(np.median(np.abs(values - middle)), upper - middle))


def runs(above: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the first and the last index of each run of True values."""
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False))
    return tuple((int(first), int(after) - 1) for first, after in edges.reshape(-1, 2))


def beyond_chance(lengths: NDArray[np.int64], windows: int, fewest: int) -> int:
    """Return the smallest length of a run, from `fewest` on, that chance does not explain.

    A run consists of consecutive windows above the limit. Chance does not explain a length if the
    number of runs with at least this length is significantly larger than expected. The expected
    number is computed for windows that exceed the limit independently of each other. If chance
    explains the lengths of all runs, return a length that no run has. `lengths` are the lengths of
    all runs, including runs of a single window, and `windows` is the number of all windows.
    """
    often = (1 - math.sqrt(max(0.0, 1 - 4 * len(lengths) / windows))) / 2
    while long := int((lengths >= fewest).sum()):
        if bdtrc(long - 1, len(lengths), often ** (fewest - 1)) <= CHANCE:
            break
        fewest += 1
    return fewest


def stretches(above: NDArray[np.bool_], fewest: int) -> tuple[tuple[int, int], ...]:
    """Return the first and the last index of each stretch of windows above the limit.

    `above` is True for each window above the limit. First, each run of fewer than `fewest` True
    values is left out. Then, if a single window lies between two of the remaining runs, these runs
    and the window are joined to one stretch.
    """
    # `binary_closing` treats values beyond the ends as False, and would shorten a run that reaches
    # an end. Therefore pad both ends.
    long = np.pad(binary_opening(above, [1] * fewest), 2)
    return runs(binary_closing(long, [1, 1])[2:-2])
