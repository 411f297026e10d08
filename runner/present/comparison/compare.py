"""Two runs beside each other, cell by cell: values, their ratio with its interval, and what can be said of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.model import LabError
from runner.present.answers.ranking_text import percent, times
from runner.present.comparison.conditions import Difference, changes, conditions, same_binary
from runner.present.figures.ratios import noise_floor
from runner.present.frames import Tables, limits_of, read_tables, sealed_trials, server_bound
from runner.present.look import captions, style
from runner.present.statistics.inference import ALPHA, Ratio, Sample, is_tie, median_interval, ratio
from runner.present.statistics.significance import cliffs_delta, difference_test, holm, magnitude
from runner.present.statistics.stats import carried_quantile
from runner.store import RunFolder

TIE, BETTER, WORSE, FEW = "tie", "better", "worse", "not enough trials"


@dataclass(frozen=True)
class ComparedQuantity:
    """What is compared: a column of the trials, where it means something, and which way is better."""

    name: str
    column: str
    allowed: Callable[[pd.DataFrame], bool]
    more_is_better: bool = False
    unit: float = 1.0
    """Divides the column's values."""


def _ranked(sealed: pd.DataFrame) -> bool:
    return server_bound(sealed) and bool((sealed["load_model"] == "closed").all())


def _offered(sealed: pd.DataFrame, quantile: float) -> bool:
    carried = carried_quantile(float(sealed["requests"].min())) >= quantile
    return carried and bool(limits_of(sealed).eq(Limit.NONE).all())


QUANTITIES = (
    ComparedQuantity("requests/s", "rps", _ranked, more_is_better=True),
    *(ComparedQuantity(f"p{q}, ms", f"latency_p{q}_ms", partial(_offered, quantile=q / 100)) for q in (50, 90, 99)),
    ComparedQuantity("CPU ms/request", "server_cpu_ms_per_request", lambda _: True),
    ComparedQuantity("memory, MiB", "server_rss_peak_bytes", lambda _: True, unit=2.0**20),
)


@dataclass(frozen=True)
class Side:
    """The trials of one cell in one run: their median with its exact 95 % interval."""

    n: int
    median: float
    low: float
    high: float
    confidence: float | None
    """The interval's real coverage; None for minimum and maximum, where there are too few trials for an interval."""


@dataclass(frozen=True)
class CellComparison:
    """One quantity of one cell in both runs, and how the second run, B, stands to the first, A.

    `ratio` is B / A; `p` is Holm's corrected value over all comparisons of the two runs; `detectable` the ratio
    (> 1) that these trials show with 80 % power at Holm's strictest step; `delta` Cliff's of B to A with its
    usual word.
    """

    load: str
    server: str
    quantity: str
    more_is_better: bool
    a: Side
    b: Side
    ratio: Ratio | None
    detectable: float | None
    p: float | None
    delta: float
    magnitude: str
    floor: float
    """The largest ratio (>= 1) that noise alone made in either run, of one program under two labels; 1 without."""
    verdict: str
    regression: bool


@dataclass(frozen=True)
class RunComparison:
    """All that two runs have in common, and what they do not.

    `differences` change numbers and are there only by force; `changes` (commit, binaries, variables) are what one
    may want to compare. `same_binary` names the servers that ran the same binary in both runs.
    """

    run_a: str
    run_b: str
    comparisons: tuple[CellComparison, ...]
    differences: tuple[Difference, ...]
    changes: tuple[Difference, ...]
    same_binary: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    unsealed: tuple[str, ...]
    incomparable: tuple[str, ...]
    """Quantities that one run's verdicts allow to compare and the other's do not, with both."""
    fail_above_pct: float | None

    @property
    def decided(self) -> bool:
        """Whether at least one comparison had enough trials for a ratio."""
        return any(each.ratio is not None for each in self.comparisons)

    @property
    def regressions(self) -> tuple[CellComparison, ...]:
        """The comparisons that count as regressions."""
        return tuple(each for each in self.comparisons if each.regression)


def compare_runs(
    a: RunFolder, b: RunFolder, *, force: bool = False, fail_above_pct: float | None = None
) -> RunComparison:
    """Compare run B with run A over the cells that both have; failed trials take no part.

    A cell is a server under a load with its size and warm-up. Throughput is compared where the server was the limit in
    every trial of both runs, response times where the offered rate was kept in all, CPU per request and memory
    anywhere. The runs have no blocks in common, so ratios are Welch's. Values differ where the ratio's interval
    excludes 1 and the noise of one program under two labels, and a test agrees after Holm's correction over all
    comparisons: of comparisons of equal runs at most 5 % name any difference. A regression is worse with its whole
    interval beyond `fail_above_pct` percent.

    LabError where the runs were made under different conditions, unless `force`, and without a common cell.
    """
    sides = read_tables(a), read_tables(b)
    cells_a, cells_b = map(cells_of, sides)
    common = [cell for cell in cells_a if cell in cells_b]
    manifests = sides[0].manifest, sides[1].manifest
    names = manifests[0]["run_id"], manifests[1]["run_id"]
    if not common:
        raise LabError(f"{names[0]} and {names[1]} have no cell in common: there is nothing to compare.")
    trials = pd.concat([cells_a[cell] for cell in common])
    differences = conditions(*manifests, trials)
    if differences and not force:
        named = "; ".join(str(difference) for difference in differences)
        raise LabError(f"{names[0]} and {names[1]} differ in {named}: --force compares them all the same.")
    sealed = {cell: (sealed_trials(cells_a[cell]), sealed_trials(cells_b[cell])) for cell in common}
    whole = [cell for cell in common if all(len(side) for side in sealed[cell])]
    rows = [
        _compare(cell, quantity, *sealed[cell], max(noise_floor(side, cell.load, quantity.column) for side in sides))
        for cell in whole
        for quantity in QUANTITIES
        if all(is_known(side, quantity) and quantity.allowed(side) for side in sealed[cell])
    ]
    return RunComparison(
        *names,
        comparisons=tuple(_judged(rows, fail_above_pct)),
        differences=differences,
        changes=changes(*manifests),
        same_binary=same_binary(*manifests, sorted({cell.server for cell in common})),
        only_a=tuple(str(cell) for cell in cells_a if cell not in cells_b),
        only_b=tuple(str(cell) for cell in cells_b if cell not in cells_a),
        unsealed=tuple(str(cell) for cell in common if cell not in whole),
        incomparable=tuple(
            f"{cell}: {quantity.name} (A {captions.verdict_counts(sealed[cell][0])}; "
            f"B {captions.verdict_counts(sealed[cell][1])})"
            for cell in whole
            for quantity in QUANTITIES
            if quantity.allowed(sealed[cell][0]) != quantity.allowed(sealed[cell][1])
        ),
        fail_above_pct=fail_above_pct,
    )


SIZES = {
    "iterations": "{:,.0f} iterations",
    "steps": "steps: {:.0f}",
    "step_s": "{:,.10g} s a step",
    "duration_s": "{:,.10g} s",
    "warmup_s": "{:,.10g} s of warm-up",
}
"""In what loads of one name may differ -> how it is printed."""


@dataclass(frozen=True)
class _SizedCell:
    """A server under a load, with what the load's words leave out: sizes, in the units of their names."""

    server: str
    load: str
    sizes: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return f"{self.server}: {self.load}" + "".join(f", {SIZES[name].format(value)}" for name, value in self.sizes)


def cells_of(tables: Tables) -> dict[_SizedCell, pd.DataFrame]:
    """Return the trials of each cell, failed ones too. Steps of a search, with a rate each, are no cell."""
    trials = tables.trials[tables.trials["objective"] == ""].sort_values(["load_order", "server"], kind="stable")
    loads = (tables.manifest.get("campaign") or {}).get("loads") or []
    found = {}
    for (load, server), alike in trials.groupby(["load", "server"], sort=False):
        known = [entry for entry in loads if entry.get("workload") == alike["workload"].iloc[0]]
        entry = known[0] if len(known) == 1 else {}
        sizes = {name: alike[name].dropna().max() for name in ("iterations", "steps", "step_s")}
        sizes |= {name: entry.get(name) for name in ("duration_s", "warmup_s")}
        given = tuple((name, float(size)) for name, size in sizes.items() if size is not None and not np.isnan(size))
        found[_SizedCell(str(server), str(load), given)] = alike
    return found


def is_known(sealed: pd.DataFrame, quantity: ComparedQuantity) -> bool:
    """Return whether trials have a quantity."""
    return quantity.column in sealed.columns and bool((pd.to_numeric(sealed[quantity.column]) > 0).any())


def _compare(
    cell: _SizedCell, quantity: ComparedQuantity, a: pd.DataFrame, b: pd.DataFrame, floor: float
) -> tuple[CellComparison, Sample, Sample]:
    """Return a comparison without p-value and verdict, and the trials of both sides."""
    left, right = trials_of(a, quantity, "A"), trials_of(b, quantity, "B")
    delta = cliffs_delta(right.values, left.values)
    row = CellComparison(
        cell.load, cell.server, quantity.name, quantity.more_is_better, side_of(left), side_of(right),
        ratio(right, left), None, None, delta, magnitude(delta), floor, FEW, regression=False,
    )  # fmt: skip
    return row, left, right


def trials_of(sealed: pd.DataFrame, quantity: ComparedQuantity, run: str = "") -> Sample:
    """Return the values of trials; blocks of different runs are different ones."""
    values = pd.to_numeric(sealed[quantity.column]) / quantity.unit
    return Sample.of(values, [f"{run} {block}" for block in sealed["block"]])


def side_of(sample: Sample) -> Side:
    """Return the median with its interval; with minimum and maximum where the trials are too few for one."""
    interval = median_interval(sample.values)
    if interval is None:
        ends = (float(sample.values.min()), float(sample.values.max())) if sample.n else (math.nan, math.nan)
        return Side(sample.n, sample.median, *ends, confidence=None)
    return Side(sample.n, interval.estimate, interval.low, interval.high, interval.confidence)


def _judged(
    rows: Sequence[tuple[CellComparison, Sample, Sample]], fail_above_pct: float | None
) -> Iterator[CellComparison]:
    """Yield each comparison; one that has a ratio with its corrected p-value and its verdict."""
    strictest = ALPHA / max(1, sum(row.ratio is not None for row, _, _ in rows))
    tests = [difference_test(b, a, strictest) for _, a, b in rows]
    corrected = iter(holm(np.array([test.p for test in tests if test is not None])))
    margin = math.inf if fail_above_pct is None else fail_above_pct / 100
    for row, _, _ in rows:
        found = row.ratio
        if found is None:
            yield row
            continue
        p = float(next(corrected))
        worse = (found.ratio < 1) == row.more_is_better
        verdict = TIE if is_tie(found, row.floor) or p > ALPHA else WORSE if worse else BETTER
        beyond = found.high < 1 - margin if row.more_is_better else found.low > 1 + margin
        regression = verdict == WORSE and beyond
        yield replace(row, p=p, detectable=found.detectable(strictest), verdict=verdict, regression=regression)


def table(found: RunComparison, load: str) -> list[dict[str, str]]:
    """Return the comparisons of one load as texts for a terminal's table."""
    return [
        {
            "server": row.server,
            "quantity": row.quantity,
            "A": style.number(row.a.median),
            "B": style.number(row.b.median),
            "B/A [95 %]": times(row.ratio) if row.ratio else "–",
            "detectable": percent(row.detectable) if row.detectable else "–",
            "verdict": f"{row.verdict}, regression" if row.regression else row.verdict,
        }
        for row in found.comparisons
        if row.load == load
    ]


def findings(found: RunComparison) -> list[str]:
    """Return how the comparisons came out, counted, and each that is no tie, as sentences."""
    counts = Counter(row.verdict for row in found.comparisons)
    said = [
        f"Of {captions.plural(len(found.comparisons), 'comparison')} {counts[TIE]} came out as ties; B is better in "
        f"{counts[BETTER]}, worse in {counts[WORSE]}, and {counts[FEW]} had not enough trials."
    ]
    if found.fail_above_pct is not None:
        limit = f"{found.fail_above_pct:g} %"
        count = len(found.regressions)
        said.append(f"Regressions, worse by more than {limit} with the whole interval: {count or 'none'}.")
    said += [
        f"{row.server}, {row.load}: {row.quantity} {times(row.ratio)}, {row.verdict}"
        f"{', a regression' if row.regression else ''} (p = {row.p:.2g} after Holm's correction)."
        for row in found.comparisons
        if row.verdict in (BETTER, WORSE) and row.ratio
    ]
    return said


def notes(found: RunComparison) -> list[str]:
    """Return what a reader must know beside the table, as sentences."""
    return [*provenance(found), *(f"{why}: {'; '.join(cells)}." for why, cells in left_out(found).items())]


def provenance(found: RunComparison) -> list[str]:
    """Return what is the same and what changed between the two runs."""
    said = ["What changed on the machine between the two runs is in the ratios as well."]
    if found.same_binary:
        said.append(f"The same binary in both runs, so only that: {', '.join(found.same_binary)}.")
    if found.changes:
        said.append(f"Changed: {'; '.join(str(change) for change in found.changes)}.")
    return said


def left_out(found: RunComparison) -> dict[str, tuple[str, ...]]:
    """Return what could not be compared: why -> the cells, or the quantities of cells."""
    reasons = {
        f"Only in {found.run_a}": found.only_a,
        f"Only in {found.run_b}": found.only_b,
        "Without a sealed trial in one of the runs": found.unsealed,
        "Not compared, as one run's verdicts forbid it": found.incomparable,
    }
    return {why: cells for why, cells in reasons.items() if cells}
