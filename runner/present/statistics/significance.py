"""Tests of two servers, their correction for many pairs, an effect size, and the drift of a run."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from runner.present.statistics.inference import (
    ALPHA,
    FEWEST_TRIALS,
    ROUNDING,
    Sample,
    matched,
    paired,
    unpaired,
)
from runner.present.statistics.stats import Floats

RESAMPLES = 9_999
SEED = 20_261_121
DRIFT_RESAMPLES = 1_999
EXACT_BLOCKS = 14  # blocks up to which every one of the 2^n permutations is tried
RESOLUTION = 10
"""A permutation test is used only if its smallest p-value is this many times below its threshold.

With n blocks that p-value is 2^(1-n), if one server wins every block. Five blocks cannot reach 5 %,
nor ten the 0.14 % that Holm requires of the best of 36 pairs. Near that limit the test requires
unanimity and has no power.
"""
MAGNITUDES = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"), (math.inf, "large"))
"""Upper bounds of |Cliff's delta| with their words: Romano et al.

2006, Annual Meeting of the Florida Association of Institutional Research.
"""


def difference_p(a: Sample, b: Sample, alpha: float = ALPHA) -> float:
    """Return the two-sided p-value of no difference between two servers.

    Each needs at least `FEWEST_TRIALS` trials. With common blocks the test permutes the two servers
    within each block, without them it is the exact Mann-Whitney test: neither assumes a
    distribution of the noise. If their smallest possible p-value is not `RESOLUTION` times below
    `alpha`, the level of the strictest step, the t test of the ratio's interval (Student's or
    Welch's, on logarithms) replaces them.
    """
    if logs := matched(a, b):
        return float(within_blocks(*logs, alpha))
    if RESOLUTION * 2 / math.comb(len(a) + len(b), len(a)) <= alpha:
        return mann_whitney_p(a, b)
    return float(unpaired(np.log(a.to_numpy()), np.log(b.to_numpy())).p_value())


def within_blocks(log_a: Floats, log_b: Floats, alpha: float = ALPHA) -> Floats:
    """Return p-values of no difference; the last axis is the blocks, in one order on both sides."""
    n = log_a.shape[-1]
    smallest = 2.0 ** (1 - n) if n <= EXACT_BLOCKS else 1 / (RESAMPLES + 1)
    if smallest * RESOLUTION > alpha:
        return paired(log_a, log_b).p_value()
    return permutation_p(log_a - log_b)


def permutation_p(differences: Floats) -> Floats:
    """Return two-sided p-values of the permutation test within blocks; the last axis is the blocks.

    `differences` are a - b in each block (here of logarithms). If the servers are equal, each is as
    likely with the opposite sign: p is the share of the 2^n choices of signs whose sum is at least
    as far from 0. Exact up to `EXACT_BLOCKS` blocks; beyond, from `RESAMPLES` seeded choices, with
    the observed one counted in (Phipson & Smyth 2010, Statistical Applications in Genetics and
    Molecular Biology 9(1), 39).

    `scipy.stats.permutation_test(permutation_type="samples")` has the same exact p-values, at 170
    (10 blocks) to 1,100 times (14) the CPU time, for one sample per call. Beyond, its two-sided
    p-value is twice that of the statistic's side, so it cannot fall below 2 / (RESAMPLES + 1).
    """
    observed = np.abs(differences.sum(axis=-1))
    n = differences.shape[-1]
    enough = observed - ROUNDING - 1e-9 * observed
    hits = (np.abs(differences @ _signs(n).T) >= enough[..., np.newaxis]).sum(axis=-1)
    return np.asarray(hits / 2.0 ** (n - 1) if n <= EXACT_BLOCKS else (hits + 1) / (RESAMPLES + 1))


@lru_cache(maxsize=32)
def _signs(n: int) -> Floats:
    """Return choices of n signs, one per row: all with a leading +, which stand for both halves, or
    seeded ones.
    """
    if n <= EXACT_BLOCKS:
        return np.array([(1.0, *signs) for signs in product((1.0, -1.0), repeat=n - 1)])
    return np.random.default_rng(SEED).choice([-1.0, 1.0], size=(RESAMPLES, n))


def mann_whitney_p(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of the Mann-Whitney test: exact, or approximate with ties."""
    left = np.asarray(a, dtype=np.float64)
    right = np.asarray(b, dtype=np.float64)
    exact = np.unique(np.concatenate([left, right])).size == left.size + right.size
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - a second to load, and rarely needed

    found = mannwhitneyu(
        left, right, alternative="two-sided", method="exact" if exact else "asymptotic"
    )
    return float(found.pvalue)


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values corrected for their number.

    The chance of one false rejection among all stays at the level.

    The i-th smallest of m is multiplied by m + 1 - i, and never less than the one before it (Holm
    1979, Scandinavian Journal of Statistics 6, 65). The last axis is the family. scipy has only
    `false_discovery_control`, which keeps another promise: few false among those rejected.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, axis=-1, kind="stable")
    factors = np.arange(p.shape[-1], 0, -1)
    grown = np.maximum.accumulate(np.take_along_axis(p, order, axis=-1) * factors, axis=-1)
    found = np.empty_like(p)
    np.put_along_axis(found, order, np.minimum(grown, 1.0), axis=-1)
    return found


def cliffs_delta(a: ArrayLike, b: ArrayLike) -> float:
    """Return Cliff's delta: P(a > b) - P(a < b) over all pairs of values, from -1 to 1.

    NaN without values.

    Source: Cliff 1993, Psychological Bulletin 114, 494. It measures the separation in rank, not its
    size: with little noise a ratio of 1.001 can have +1. It is 2 U / (n m) - 1 of
    `scipy.stats.mannwhitneyu`, which takes longer to load than these lines to write.
    """
    differences = np.subtract.outer(
        np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    )
    return float(np.sign(differences).mean()) if differences.size else math.nan


def magnitude(delta: float) -> str:
    """Return the usual word for the size of Cliff's delta: negligible, small, medium or large."""
    return next(word for bound, word in MAGNITUDES if abs(delta) < bound)


@dataclass(frozen=True)
class Drift:
    """Spearman's rho of the order of trials against their residuals, its p-value, and the number of
    trials.
    """

    rho: float
    p: float
    n: int


def drift(order: ArrayLike, values: ArrayLike, cells: Iterable[Hashable]) -> Drift | None:
    """Return whether values rise or fall over a run; None with fewer than `FEWEST_TRIALS` trials.

    A residual is the logarithm of a value minus the median of its cell's. Values without a
    logarithm and cells of a single trial are left out. The p-value is that of rho among
    `DRIFT_RESAMPLES` seeded shuffles of each cell's trials, the observed order counted in.
    Residuals of a cell depend on each other through its median, for which the textbook's
    distribution of rho is too narrow: with three trials a cell it calls 10 % of steady runs
    drifting instead of 5 %. `scipy.stats.spearmanr` has that distribution, and
    `scipy.stats.permutation_test` shuffles all trials alike, not within cells.
    """
    frame = pd.DataFrame({"order": order, "value": values, "cell": list(cells)})
    frame = frame[np.isfinite(frame["value"]) & (frame["value"] > 0)]
    frame = frame[frame.groupby("cell")["value"].transform("size") > 1]
    if len(frame) < FEWEST_TRIALS:
        return None
    logs = np.log(frame["value"])
    residuals = logs - logs.groupby(frame["cell"]).transform("median")
    at = residuals.round(12).rank().to_numpy()
    at = at - at.mean()
    over = frame["order"].rank().to_numpy()
    over = over - over.mean()
    norm = math.sqrt(float(at @ at) * float(over @ over))
    if not norm:
        return None
    observed = float(at @ over)
    # Each row has the values of each cell in a random order among its places.
    places = frame.groupby("cell", sort=False).ngroup().to_numpy()
    keys = places + np.random.default_rng(SEED).random((DRIFT_RESAMPLES, at.size))
    shuffled = np.empty_like(keys)
    shuffled[:, np.argsort(places, kind="stable")] = at[np.argsort(keys, axis=1)]
    hits = int((np.abs(shuffled @ over) >= abs(observed) * (1 - 1e-9)).sum())
    return Drift(observed / norm, (hits + 1) / (DRIFT_RESAMPLES + 1), len(frame))
