"""Test whether two servers differ, and whether a run drifts.

The module also contains Holm's correction for many pairs, and Cliff's delta as an effect size.
"""

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
EXACT_BLOCKS = 14  # if there are at most this many blocks, all permutations are tried
RESOLUTION = 10
"""A test is used only if it can reach a p-value of `alpha` divided by this factor.

If the permutation test or the Mann-Whitney test cannot reach such a small p-value, a t test takes
its place. With n blocks the smallest possible p-value of the permutation test is 2^(1-n), which
occurs if one server wins every block. Therefore five blocks cannot reach 5 %, and ten blocks cannot
reach the 0.14 % that Holm's correction requires of the best of 36 pairs. With a few more blocks,
the permutation test could reach the level only if a server wins almost every block, so it would
have little power. The factor makes sure that a t test takes its place in these cases, too.
"""
MAGNITUDES = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"), (math.inf, "large"))
"""Upper bounds of the absolute value of Cliff's delta, each with the word for values below it.

Source: Romano et al. 2006, Annual Meeting of the Florida Association of Institutional Research.
"""


def difference_p(a: Sample, b: Sample, alpha: float = ALPHA) -> float:
    """Return the two-sided p-value of the null hypothesis that two servers do not differ.

    Each server needs at least `FEWEST_TRIALS` trials. If the servers have common blocks, the test
    permutes the two servers within each block; otherwise it is the Mann-Whitney test. Neither test
    assumes a distribution of the noise.

    `alpha` is the strictest level of Holm's correction. If there are too few trials for these tests
    to reach p-values well below `alpha` (see `RESOLUTION`), the result is the p-value of the t test
    that belongs to the ratio's interval (Student's or Welch's, on logarithms).
    """
    if logs := matched(a, b):
        return float(within_blocks(*logs, alpha))
    if RESOLUTION * 2 / math.comb(len(a) + len(b), len(a)) <= alpha:
        return mann_whitney_p(a, b)
    return float(unpaired(np.log(a.to_numpy()), np.log(b.to_numpy())).p_value())


def within_blocks(log_a: Floats, log_b: Floats, alpha: float = ALPHA) -> Floats:
    """Return the p-values of the null hypothesis that two servers do not differ within blocks.

    The last axis of both arguments runs over the blocks, in the same order. The test is the
    permutation test within blocks. If there are too few blocks for it (see `RESOLUTION`), the test
    is the paired t test.
    """
    n = log_a.shape[-1]
    smallest = 2.0 ** (1 - n) if n <= EXACT_BLOCKS else 1 / (RESAMPLES + 1)
    if smallest * RESOLUTION > alpha:
        return paired(log_a, log_b).p_value()
    return permutation_p(log_a - log_b)


def permutation_p(differences: Floats) -> Floats:
    """Return two-sided p-values of the permutation test within blocks.

    `differences` are the differences of two servers' logarithms in each block. The last axis runs
    over the blocks. If the servers are equal, each difference is equally likely with the opposite
    sign. There are 2^n ways to choose the signs of n differences. p is the share of these ways for
    which the sum of the differences is at least as far from 0 as the observed sum. With more than
    `EXACT_BLOCKS` blocks, p is estimated from `RESAMPLES` seeded random choices of the signs, and
    from the observed signs (Phipson & Smyth 2010, Statistical Applications in Genetics and
    Molecular Biology 9(1), 39).

    `scipy.stats.permutation_test(permutation_type="samples")` returns the same exact p-values. It
    is not used because a call handles only one sample and takes far more CPU time: 170 times as
    much with 10 blocks, and 1,100 times as much with 14 blocks. With more blocks, scipy's two-sided
    p-value is twice the one-sided p-value, so it cannot fall below 2 / (RESAMPLES + 1).
    """
    observed = np.abs(differences.sum(axis=-1))
    n = differences.shape[-1]
    enough = observed - ROUNDING - 1e-9 * observed
    hits = (np.abs(differences @ _signs(n).T) >= enough[..., np.newaxis]).sum(axis=-1)
    return np.asarray(hits / 2.0 ** (n - 1) if n <= EXACT_BLOCKS else (hits + 1) / (RESAMPLES + 1))


@lru_cache(maxsize=32)
def _signs(n: int) -> Floats:
    """Return choices of n signs, one choice per row.

    For up to `EXACT_BLOCKS` signs, return all choices whose first sign is +. The other choices are
    not needed: they are the mirror images of these choices, and their sums have the same absolute
    values. For more signs, return `RESAMPLES` seeded random choices.
    """
    if n <= EXACT_BLOCKS:
        return np.array([(1.0, *signs) for signs in product((1.0, -1.0), repeat=n - 1)])
    return np.random.default_rng(SEED).choice([-1.0, 1.0], size=(RESAMPLES, n))


def mann_whitney_p(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of the Mann-Whitney test.

    The p-value is exact if all values are distinct. Otherwise it is the normal approximation.
    """
    left = np.asarray(a, dtype=np.float64)
    right = np.asarray(b, dtype=np.float64)
    exact = np.unique(np.concatenate([left, right])).size == left.size + right.size
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - a second to load, and rarely needed

    found = mannwhitneyu(
        left, right, alternative="two-sided", method="exact" if exact else "asymptotic"
    )
    return float(found.pvalue)


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values corrected for the number of tests in their family (the last axis).

    If every corrected p-value is compared with one level, the chance of any false rejection in the
    family is at most this level. The i-th smallest of m p-values is multiplied by m + 1 - i. If the
    product is smaller than the corrected p-value before it, the product is raised to that value
    (Holm 1979, Scandinavian Journal of Statistics 6, 65). scipy does not have this correction. Its
    function `false_discovery_control` limits the share of false rejections among all rejections
    instead.
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

    Return NaN if a side has no values. Cliff's delta measures how well the ranks are separated, not
    how large the difference is: with little noise, a ratio of 1.001 can have a delta of +1. Source:
    Cliff 1993, Psychological Bulletin 114, 494. The delta equals 2 U / (n m) - 1, where U is the
    statistic of `scipy.stats.mannwhitneyu`. That function is not used because `scipy.stats` takes a
    second to load.
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
    """Spearman's rho, which says how steadily values rise or fall over a run.

    `p` is the p-value of rho, and `n` is the number of trials. The function `drift` explains how
    rho is computed.
    """

    rho: float
    p: float
    n: int


def drift(order: ArrayLike, values: ArrayLike, cells: Iterable[Hashable]) -> Drift | None:
    """Return Spearman's rho, which says how steadily values rise or fall over a run.

    Rho is computed between the order of the trials and their residuals. A residual is the logarithm
    of a value minus the median of the logarithms in its cell. Values without a logarithm and cells
    with a single trial are left out. Return None if fewer than `FEWEST_TRIALS` trials remain, or if
    all residuals are equal.

    The p-value is computed from the observed order and from `DRIFT_RESAMPLES` seeded orders, in
    which the trials of each cell are shuffled. It is the share of all these orders in which rho is
    at least as far from 0 as in the observed order. `scipy.stats.spearmanr` is not used, because it
    assumes that residuals are independent. But the residuals of a cell depend on each other through
    the cell's median: with three trials per cell, `spearmanr` would find a drift in 10 % of the
    steady runs instead of in 5 %. `scipy.stats.permutation_test` is not used, because it would
    shuffle all trials together instead of within cells.
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
    # Each row of `shuffled` is one shuffle: at the positions of a cell's trials, the row has the
    # residuals of the same cell in random order.
    places = frame.groupby("cell", sort=False).ngroup().to_numpy()
    keys = places + np.random.default_rng(SEED).random((DRIFT_RESAMPLES, at.size))
    shuffled = np.empty_like(keys)
    shuffled[:, np.argsort(places, kind="stable")] = at[np.argsort(keys, axis=1)]
    hits = int((np.abs(shuffled @ over) >= abs(observed) * (1 - 1e-9)).sum())
    return Drift(observed / norm, (hits + 1) / (DRIFT_RESAMPLES + 1), len(frame))
