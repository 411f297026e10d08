"""CPU spikes: where a subject's CPU use stands out from what it is shortly before and after.

A window is one interval between two readings of the sampler, 50 ms at 20 Hz. Only windows inside the load count.

Baseline of a window: the median of all windows whose middle is at most BASELINE_S / 2 away, cut off at the load's
ends (a centred rolling median). A step, or a staircase of rates, passes a centred median unchanged; a trailing one
would lag and call each step of a ramp a spike. Where the median is cut off at the end of the load it lags as well,
so that there the baseline is at least the first quartile of the last END_S: what fills more than three quarters of
these may be a step of a ramp as well.

Deviation: 1.4826 x MAD of x - baseline over the whole load, which estimates the standard deviation of normal noise
(Hampel 1974, Journal of the American Statistical Association 69, 383). CPU use in short windows is skewed upwards,
so that the upper side alone, 1.4826 x (third quartile - median), is taken where it is larger. The deviation is at
least the floor, FLOOR_PCT for CPU: where the MAD is 0, or nearly so, a spike is still LIMIT x FLOOR_PCT high.

Spike: FEWEST_WINDOWS or more in a row of which each is more than LIMIT deviations above its baseline. Two with a
single window between them are one. One that begins in the first SETTLING_S seconds is `settling`: connections are
opened then, and the rate rises from nothing. It is listed, and counted nowhere. What is longer than half of
BASELINE_S, or than about a quarter of the load, is a level and not found.

Chance: where single windows stand out often, of themselves some come in a row. If windows stood out independently, with
a chance q of each, there would be n q (1 - q) stretches in n windows, from which q is told, and a stretch would go on
for L windows or more with the chance q^(L-1). Where no more are as long as that (binomial, P > CHANCE), the least
length grows by a window, until more are or none is left. Spikes that are there, one or many, are far beyond it.

docs/method.md has the rate of false spikes, which tests/test_present_spikes.py simulates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc

from runner.present.statistics.stats import Floats

BASELINE_S = 10.0
LIMIT = 5.0
FEWEST_WINDOWS = 2
FLOOR_PCT = 2.0
"""Least deviation of CPU use, in % of a core: a spike is at least 10 % of a core high."""
NORMAL = 1.4826
"""MAD of normal noise times this is its standard deviation."""
CHANCE = 0.01
SETTLING_S = 1.0
END_S = 1.0
ENOUGH = 40
"""Windows below which nothing is looked for: two seconds at 20 Hz, of which the first is not counted."""
ROUNDING_S = 1e-6


@dataclass(frozen=True)
class Spike:
    """A stretch of windows that stand out; times are seconds since the load began."""

    start_s: float
    end_s: float
    height_pct: float
    """How far its highest window is above that window's baseline, in % of a core."""
    baseline_pct: float
    deviations: float
    """The height in deviations."""
    excess_ms: float
    """CPU time above the baseline."""
    settling: bool

    @property
    def length_s(self) -> float:
        """Seconds from the begin of its first window to the end of its last."""
        return self.end_s - self.start_s

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Whether it shares time with an interval."""
        return self.start_s < end_s and start_s < self.end_s


@dataclass(frozen=True, eq=False)
class Track:
    """A subject's CPU use inside a load, one entry a window, and its spikes."""

    start_s: Floats
    end_s: Floats
    cpu_pct: Floats
    baseline_pct: Floats
    deviation_pct: float
    """NaN where there were too few windows to look for spikes."""
    spikes: tuple[Spike, ...]
    fewest: int = FEWEST_WINDOWS
    """Windows that a spike has at least: more than FEWEST_WINDOWS where so many stand out in a row by chance."""

    @property
    def counted(self) -> tuple[Spike, ...]:
        """The spikes without those of the load's begin."""
        return tuple(spike for spike in self.spikes if not spike.settling)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Which windows begin after the load's first SETTLING_S seconds."""
        return np.asarray(self.start_s >= SETTLING_S - ROUNDING_S)

    @property
    def settled_s(self) -> float:
        """Seconds in which spikes are counted; 0 where none were looked for."""
        seconds = float((self.end_s - self.start_s)[self.settled].sum())
        return seconds if np.isfinite(self.deviation_pct) else 0.0


@dataclass(frozen=True, eq=False)
class Outliers:
    """What stands out of a series: its baseline, its deviation, and the first and last window of each stretch."""

    baseline: Floats
    deviation: float
    ranges: tuple[tuple[int, int], ...]
    fewest: int


def track(samples: pd.DataFrame, duration_s: float) -> Track:
    """Return the spikes of one subject in one trial; `samples` are its rows of the resources table."""
    start, end, cpu = inside(samples, "cpu_pct", duration_s)
    found = stand_out(start, end, cpu, FLOOR_PCT)
    spikes = tuple(_spike(start, end, cpu, found, first, last) for first, last in found.ranges)
    return Track(start, end, cpu, found.baseline, found.deviation, spikes, found.fewest)


def inside(samples: pd.DataFrame, column: str, duration_s: float) -> tuple[Floats, Floats, Floats]:
    """Return begin, end and value of the windows inside the load whose value is known, in order of time."""
    end, length = samples["t_s"].to_numpy(dtype=np.float64), samples["dt_s"].to_numpy(dtype=np.float64)
    value = samples[column].to_numpy(dtype=np.float64)
    kept = np.flatnonzero((end - length >= -ROUNDING_S) & (end <= duration_s + ROUNDING_S) & ~np.isnan(value))
    kept = kept[np.argsort(end[kept], kind="stable")]
    return end[kept] - length[kept], end[kept], value[kept]


def stand_out(
    start_s: Floats, end_s: Floats, value: Floats, floor: float, *, fewest: int = FEWEST_WINDOWS, enough: int = ENOUGH
) -> Outliers:
    """Return where a series of windows in order of time stands out upwards, by the rule above.

    `floor` is the least deviation, in the unit of `value`. Below `enough` windows the deviation is NaN and nothing
    stands out.
    """
    if len(value) < enough:
        return Outliers(np.full(len(value), np.nan), np.nan, (), fewest)
    baseline = rolling_median((start_s + end_s) / 2, value)
    last = value[end_s > end_s[-1] - END_S]
    cut_off = end_s > end_s[-1] - BASELINE_S / 2
    baseline = np.where(cut_off, np.maximum(baseline, np.quantile(last, 0.25)), baseline)
    residual = value - baseline
    deviation = max(floor, robust_deviation(residual))
    above = residual > LIMIT * deviation
    if fewest > 1:
        fewest = beyond_chance(np.array([last - first + 1 for first, last in runs(above)]), len(above), fewest)
    return Outliers(baseline, deviation, stretches(above, fewest), fewest)


def rolling_median(at_s: Floats, value: Floats) -> Floats:
    """Return the median of the values within BASELINE_S / 2 of each instant, instants in rising order."""
    series = pd.Series(value, index=pd.to_timedelta(at_s, unit="s"))
    window = pd.Timedelta(seconds=BASELINE_S)
    return series.rolling(window, center=True, closed="both").median().to_numpy(dtype=np.float64)


def robust_deviation(residual: ArrayLike) -> float:
    """Return 1.4826 x the larger of MAD and third quartile - median: for normal noise its standard deviation."""
    values = np.asarray(residual, dtype=np.float64)
    middle, upper = np.quantile(values, [0.5, 0.75])
    return float(NORMAL * max(np.median(np.abs(values - middle)), upper - middle))


def runs(above: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and last index of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], above, [False]]).astype(np.int8)))
    return [(int(first), int(after) - 1) for first, after in zip(edges[::2], edges[1::2], strict=True)]


def beyond_chance(lengths: NDArray[np.int64], windows: int, fewest: int) -> int:
    """Return from which length on, at least `fewest`, more of the runs are as long as independent windows would make.

    `lengths` are those of all runs, however short.
    """
    often = (1 - math.sqrt(max(0.0, 1 - 4 * len(lengths) / windows))) / 2
    while long := int((lengths >= fewest).sum()):
        if bdtrc(long - 1, len(lengths), often ** (fewest - 1)) <= CHANCE:
            break
        fewest += 1
    return fewest


def stretches(above: NDArray[np.bool_], fewest: int) -> tuple[tuple[int, int], ...]:
    """Return the first and last index of each run of at least `fewest` True; runs one False apart are one."""
    joined: list[tuple[int, int]] = []
    for first, last in ((first, last) for first, last in runs(above) if last - first + 1 >= fewest):
        if joined and first - joined[-1][1] == 2:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return tuple(joined)


def _spike(start: Floats, end: Floats, cpu: Floats, found: Outliers, first: int, last: int) -> Spike:
    own = slice(first, last + 1)
    above = cpu[own] - found.baseline[own]
    top = int(above.argmax())
    return Spike(
        start_s=float(start[first]),
        end_s=float(end[last]),
        height_pct=float(above[top]),
        baseline_pct=float(found.baseline[own][top]),
        deviations=float(above[top]) / found.deviation,
        excess_ms=float((above * (end[own] - start[own])).sum() * 10),  # 1 % of a core for a second is 10 ms
        settling=bool(start[first] < SETTLING_S),
    )
