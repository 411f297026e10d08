"""CPU spikes: where a subject's CPU use stands out from what it is shortly before and after.

A window is one interval between two readings of the sampler, 50 ms at 20 Hz. Only windows inside
the load count.

Baseline of a window: the median of all windows whose middle is at most BASELINE_S / 2 away, cut off
at the load's ends (a centred rolling median). Steps of a rate pass it unchanged; a trailing median
would lag and call each a spike. At the end of the load it lags as well, so that there the baseline
is at least the first quartile of the last END_S: what fills more than three quarters of these may
be a step as well.

Deviation: 1.4826 x MAD of x - baseline over the whole load, which estimates the standard deviation
of normal noise (Hampel 1974, Journal of the American Statistical Association 69, 383). CPU use in
short windows is skewed upwards, so that the upper side alone, 1.4826 x (third quartile - median),
is taken if it is larger. It is at least the floor, FLOOR_PCT for CPU.

Spike: FEWEST_WINDOWS or more in a row of which each is more than LIMIT deviations above its
baseline. Two with a single window between them are one. One that begins in the first SETTLING_S
seconds, in which connections are opened and the rate rises from nothing, is `settling`: listed, but
not counted. What is longer than half of BASELINE_S, or than about a quarter of the load, is a level
and not found.

Chance: where single windows stand out often, some are in a row by chance. If windows stood out
independently, with a probability q of each, there would be n q (1 - q) stretches in n windows,
which gives q, and a stretch would be L windows or longer with probability q^(L-1). If no more
are as long as that (binomial, P > CHANCE), the least length grows by a window, until more are or
none is left.

docs/method.md has the rate of false spikes, which tests/present/spikes/test_spikes.py simulates.
"""

import math
from dataclasses import dataclass
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
"""Least deviation of CPU use, in % of a core: a spike is at least 10 % of a core high."""
NORMAL = 1.4826  # MAD of normal noise times this is its standard deviation
CHANCE = 0.01
SETTLING_S = 1.0
END_S = 1.0
ENOUGH = 40
"""Windows that it takes to look for spikes: two seconds at 20 Hz, of which the first is not
counted.
"""
ROUNDING_S = 1e-6


class Windows(NamedTuple):
    """Intervals in order of time, and a value in each."""

    start_s: Floats
    end_s: Floats
    value: Floats


@dataclass(frozen=True)
class Spike:
    """A stretch of windows that stand out; times are seconds since the load began."""

    start_s: float
    end_s: float
    height_pct: float  # how far its highest window is above that window's baseline, in % of a core
    baseline_pct: float
    deviations: float  # the height in deviations
    excess_ms: float  # CPU time above the baseline
    settling: bool

    @property
    def length_s(self) -> float:
        """Seconds from its begin to its end."""
        return self.end_s - self.start_s

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Whether it shares time with an interval."""
        return self.start_s < end_s and start_s < self.end_s


@dataclass(frozen=True, eq=False)
class Track:
    """A series over a load (CPU use in % of a core, for it to have spikes), and what stands out of
    it.
    """

    windows: Windows
    baseline: Floats
    deviation: float  # NaN if there were too few windows to look for spikes
    ranges: tuple[tuple[int, int], ...]  # first and last window of each stretch that stands out
    fewest: int
    """Windows that such a stretch has at least: more than FEWEST_WINDOWS where chance makes so many
    in a row.
    """

    @cached_property
    def spikes(self) -> tuple[Spike, ...]:
        """What stands out."""
        found = []
        for first, last in self.ranges:
            start, end, value, baseline = (
                side[first : last + 1] for side in (*self.windows, self.baseline)
            )
            above = value - baseline
            top = int(above.argmax())
            spike = Spike(
                start_s=float(start[0]),
                end_s=float(end[-1]),
                height_pct=float(above[top]),
                baseline_pct=float(baseline[top]),
                deviations=float(above[top]) / self.deviation,
                excess_ms=float(
                    (above * (end - start)).sum() * 10
                ),  # 1 % of a core for a second is 10 ms
                settling=bool(start[0] < SETTLING_S),
            )
            found.append(spike)
        return tuple(found)

    @property
    def counted(self) -> tuple[Spike, ...]:
        """The spikes without those of the load's begin."""
        return tuple(spike for spike in self.spikes if not spike.settling)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Which windows begin after the load's first SETTLING_S seconds."""
        return np.asarray(self.windows.start_s >= SETTLING_S - ROUNDING_S)

    @property
    def settled_s(self) -> float:
        """Seconds in which spikes are counted; 0 if none were looked for."""
        length_s = self.windows.end_s - self.windows.start_s
        return float(length_s[self.settled].sum()) if math.isfinite(self.deviation) else 0.0


def track(samples: pd.DataFrame, duration_s: float) -> Track:
    """Return the CPU use of one subject in one trial.

    `samples` are its rows of the resources table.
    """
    return stand_out(inside(samples, "cpu_pct", duration_s), FLOOR_PCT)


def inside(samples: pd.DataFrame, column: str, until_s: float, from_s: float = 0.0) -> Windows:
    """Return the windows inside the load whose value is known."""
    end, length, value = samples[["t_s", "dt_s", column]].to_numpy(dtype=np.float64).T
    kept = np.flatnonzero(
        (end - length >= from_s - ROUNDING_S) & (end <= until_s + ROUNDING_S) & ~np.isnan(value)
    )
    kept = kept[np.argsort(end[kept], kind="stable")]
    return Windows(end[kept] - length[kept], end[kept], value[kept])


def stand_out(
    windows: Windows, floor: float, *, fewest: int = FEWEST_WINDOWS, enough: int = ENOUGH
) -> Track:
    """Return where a series stands out upwards, by the rule above.

    `floor` is the least deviation, in the unit of the values. It takes `enough` windows.
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
    """Return 1.4826 x the larger of MAD and third quartile - median: for normal noise its standard
    deviation.
    """
    values = np.asarray(residual, dtype=np.float64)
    middle, upper = np.quantile(values, [0.5, 0.75])
    return float(NORMAL * max(np.median(np.abs(values - middle)), upper - middle))


def runs(above: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return the first and last index of each run of True."""
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False))
    return tuple((int(first), int(after) - 1) for first, after in edges.reshape(-1, 2))


def beyond_chance(lengths: NDArray[np.int64], windows: int, fewest: int) -> int:
    """Return from which length on, at least `fewest`, more of the runs are as long as independent
    windows would make.

    `lengths` are those of all runs, however short.
    """
    often = (1 - math.sqrt(max(0.0, 1 - 4 * len(lengths) / windows))) / 2
    while long := int((lengths >= fewest).sum()):
        if bdtrc(long - 1, len(lengths), often ** (fewest - 1)) <= CHANCE:
            break
        fewest += 1
    return fewest


def stretches(above: NDArray[np.bool_], fewest: int) -> tuple[tuple[int, int], ...]:
    """Return the first and last index of each run of at least `fewest` True.

    Runs one False apart are one.
    """
    long = np.pad(
        binary_opening(above, [1] * fewest), 2
    )  # closing takes what lies beyond an end for False
    return runs(binary_closing(long, [1, 1])[2:-2])
