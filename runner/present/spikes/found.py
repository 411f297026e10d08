"""Find CPU spikes: windows in which a subject's CPU use exceeds its use just before and after.

A window is one interval between two readings of the sampler, 50 ms at 20 Hz. Only windows inside
the load count.

Baseline of a window: the median of all windows whose centre is at most BASELINE_S / 2 away, cut off
at the load's ends (a centred rolling median). It follows steps of a rate; a trailing median would
lag and report each step as a spike. At the end of the load it lags, too. So there the baseline is
at least the first quartile of the last END_S, because values in more than three quarters of this
time may be a step.

Deviation: 1.4826 x MAD of x - baseline over the whole load, which estimates the standard deviation
of normal noise (Hampel 1974, Journal of the American Statistical Association 69, 383). CPU use in
short windows is skewed upwards. So the upper side alone, 1.4826 x (third quartile - median), is
used if it is larger. The deviation is at least the floor, FLOOR_PCT for CPU.

Spike: FEWEST_WINDOWS or more consecutive windows, each more than LIMIT deviations above its
baseline. Two with a single window between them are joined. A spike that begins in the first
SETTLING_S seconds of the load, or of one of its slices, while connections are opened and the rate
rises from zero, is `settling`: it is listed but not counted. A stretch longer than half of
BASELINE_S, or than about a quarter of the load, raises its own baseline and is not found.

Chance: if single windows exceed the limit often, some are consecutive by chance. If windows
exceeded it independently with probability q, n windows would have n q (1 - q) stretches, which
gives q, and a stretch would have L windows or more with probability q^(L-1). If the number of such
stretches is not significantly higher (binomial, P > CHANCE), the minimum length grows by a window,
until it is, or no stretch is left.

docs/method-evidence.md has the rate of false spikes, which tests/present/spikes/test_spikes.py
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
"""Smallest deviation of CPU use, in % of a core; so a spike is at least 10 % of a core high."""
NORMAL = 1.4826  # ratio of standard deviation to MAD of normal noise
CHANCE = 0.01
SETTLING_S = 1.0
END_S = 1.0
ENOUGH = 40
"""Windows needed to search for spikes: two seconds at 20 Hz, of which the first is not counted."""
ROUNDING_S = 1e-6


class Windows(NamedTuple):
    """Intervals in order of time, with a value in each."""

    start_s: Floats
    end_s: Floats
    value: Floats


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of a load; times are seconds since the load began."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds from its begin to its end."""
        return self.end_s - self.start_s

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """True if it overlaps an interval."""
        return self.start_s < end_s and start_s < self.end_s


@dataclass(frozen=True, kw_only=True)
class Spike(Stretch):
    """A stretch of windows above the limit."""

    height_pct: float  # of its highest window above that window's baseline, in % of a core
    baseline_pct: float
    deviations: float  # the height in deviations
    excess_ms: float  # CPU time above the baseline
    settling: bool


@dataclass(frozen=True, eq=False)
class Track:
    """A series over a load, and the stretches in which it exceeds the limit.

    If the series is CPU use in % of a core, these are spikes.
    """

    windows: Windows
    baseline: Floats
    deviation: float  # NaN if there were too few windows to search for spikes
    ranges: tuple[tuple[int, int], ...]  # first and last window of each stretch above the limit
    fewest: int
    """Minimum length of a stretch, in windows.

    It is more than FEWEST_WINDOWS if chance can explain shorter stretches.
    """
    slice_s: float = math.inf
    """Length of a slice; infinite if the load has one begin only."""

    @cached_property
    def spikes(self) -> tuple[Spike, ...]:
        """The spikes found."""
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
                # 1 % of a core for a second is 10 ms.
                excess_ms=float((above * (end - start)).sum() * 10),
                settling=not self.is_settled(start[:1])[0],
            )
            found.append(spike)
        return tuple(found)

    @property
    def counted(self) -> tuple[Spike, ...]:
        """The spikes without those at the load's begin."""
        return tuple(spike for spike in self.spikes if not spike.settling)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Mask of the windows that begin after the first SETTLING_S seconds of load and slices."""
        return self.is_settled(self.windows.start_s)

    def is_settled(self, at_s: Floats) -> NDArray[np.bool_]:
        """Return which instants are not in the first SETTLING_S seconds of load and slices."""
        return np.asarray(self._since_begin_s(at_s) >= SETTLING_S - ROUNDING_S)

    def _since_begin_s(self, at_s: Floats) -> Floats:
        """Return the seconds from the begin of the slice of each instant, or of the load."""
        if math.isinf(self.slice_s):
            return at_s
        return at_s - np.floor((at_s + ROUNDING_S) / self.slice_s) * self.slice_s

    @property
    def settled_s(self) -> float:
        """Seconds in which spikes are counted; 0 if there was no search."""
        length_s = self.windows.end_s - self.windows.start_s
        return float(length_s[self.settled].sum()) if math.isfinite(self.deviation) else 0.0


def track(samples: pd.DataFrame, duration_s: float, slices: float = 1) -> Track:
    """Return the CPU use of one subject in one trial.

    `samples` are its rows of the resources table. With fewer than two `slices`, or an unknown
    number of them, the load has one begin.
    """
    found = stand_out(inside(samples, "cpu_pct", duration_s), FLOOR_PCT)
    return replace(found, slice_s=duration_s / slices) if slices > 1 else found


def inside(samples: pd.DataFrame, column: str, until_s: float, from_s: float = 0.0) -> Windows:
    """Return the windows inside the load with a known value."""
    end, length, value = samples[["t_s", "dt_s", column]].to_numpy(dtype=np.float64).T
    kept = np.flatnonzero(
        (end - length >= from_s - ROUNDING_S) & (end <= until_s + ROUNDING_S) & ~np.isnan(value)
    )
    kept = kept[np.argsort(end[kept], kind="stable")]
    return Windows(end[kept] - length[kept], end[kept], value[kept])


def stand_out(
    windows: Windows, floor: float, *, fewest: int = FEWEST_WINDOWS, enough: int = ENOUGH
) -> Track:
    """Return the stretches in which a series exceeds its limit, by the rules above.

    `floor` is the smallest deviation, in the unit of the values. At least `enough` windows are
    needed.
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
    """Return 1.4826 x the larger of MAD and third quartile - median.

    For normal noise it is the standard deviation.
    """
    values = np.asarray(residual, dtype=np.float64)
    middle, upper = np.quantile(values, [0.5, 0.75])
    return float(NORMAL * max(np.median(np.abs(values - middle)), upper - middle))


def runs(above: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the first and last index of each run of True."""
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False))
    return tuple((int(first), int(after) - 1) for first, after in edges.reshape(-1, 2))


def beyond_chance(lengths: NDArray[np.int64], windows: int, fewest: int) -> int:
    """Return the smallest length, at least `fewest`, from which on runs are not explained by
    chance.

    From this length on, there are more runs than independent windows would have. `lengths` are the
    lengths of all runs, including the shortest.
    """
    often = (1 - math.sqrt(max(0.0, 1 - 4 * len(lengths) / windows))) / 2
    while long := int((lengths >= fewest).sum()):
        if bdtrc(long - 1, len(lengths), often ** (fewest - 1)) <= CHANCE:
            break
        fewest += 1
    return fewest


def stretches(above: NDArray[np.bool_], fewest: int) -> tuple[tuple[int, int], ...]:
    """Return the first and last index of each run of at least `fewest` True.

    Runs with one False between them are joined.
    """
    # Closing treats values beyond an end as False.
    long = np.pad(binary_opening(above, [1] * fewest), 2)
    return runs(binary_closing(long, [1, 1])[2:-2])
