"""Compare two runs cell by cell.

The comparison of a quantity of a cell consists of the quantity's means in both runs, the ratio of
these means with its interval, and a verdict: tie, better, worse, or not enough trials.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from runner.manifest import Condition, Difference, LoadOfRun, Manifest
from runner.model import LabError, setting_text
from runner.present.answers.ranking_text import percent, times
from runner.present.chart.value import Chart, empty
from runner.present.comparison.compare import sample
from runner.present.comparison.obstacle import is_the_servers
from runner.present.comparison.quantity import OF_TWO_RUNS, Quantity
from runner.present.comparison.ratios import noise_floor, not_compared
from runner.present.figures import forest
from runner.present.frames import Tables, read_tables, sealed_trials
from runner.present.look import style
from runner.present.look.captions import plural, verdict_counts
from runner.present.look.numbers import number, ratio_words
from runner.present.look.palette import Identity
from runner.present.statistics.inference import (
    ALPHA,
    Mean,
    Ratio,
    Sample,
    is_tie,
    mean_of,
    ratio,
)
from runner.present.statistics.significance import cliffs_delta, difference_p, holm, magnitude
from runner.store import RunFolder

TIE = "tie"
BETTER = "better"
WORSE = "worse"
FEW = "not enough trials"
VERDICTS = (TIE, BETTER, WORSE, FEW)
TITLE = "B / A: what both runs measured"
GREY = Identity(style.GREY, style.GREY, "o", "-")


# --- differences between the manifests of two runs ------------------------------------------------

ALWAYS = {
    Condition.MACHINE,
    Condition.HOSTS,
    Condition.ENGINE,
    Condition.IDLE_CPUS,
    Condition.CPUS,
    Condition.SAMPLING,
    Condition.REQUESTS,
}
"""Conditions that change the numbers of all trials."""
WITH_A_DATABASE = {Condition.DATABASE_CPUS, Condition.DATABASE}
"""Conditions that change the numbers of trials with a database."""
ON_PURPOSE = {Condition.COMMIT, Condition.COMPILER, Condition.VARIABLES}
"""Conditions that users may have changed on purpose."""


def conditions(
    a: Manifest, b: Manifest, trials: pd.DataFrame, *, force: bool
) -> tuple[Difference, ...]:
    """Return the differences between two runs' manifests that change the numbers of `trials`.

    A difference between versions of a tool counts only if one of these trials used the tool. A
    difference in the database counts only if one of these trials used the database. Without
    `force`, raise LabError if there is any difference that counts.
    """
    tools = set(trials["tool"]) | (set(trials["server"]) & {"nginx"})
    stored = bool(trials["pool_size"].notna().any())

    def matters(difference: Difference) -> bool:
        if difference.condition is Condition.TOOL:
            return difference.what in tools
        return difference.condition in (ALWAYS | WITH_A_DATABASE if stored else ALWAYS)

    found = tuple(filter(matters, a.differences_from(b)))
    if found and not force:
        named = "; ".join(map(str, found))
        raise LabError(
            f"Runs {a.run_id} and {b.run_id} differ in {named}, so their numbers may differ "
            "for this reason: to compare the runs anyway, give --force."
        )
    return found


def changes(a: Manifest, b: Manifest) -> tuple[Difference, ...]:
    """Return the differences between two runs' manifests that users may have made on purpose.

    Users may have changed the lab's commit, and the servers' compilers and environment variables.
    """
    return tuple(each for each in a.differences_from(b) if each.condition in ON_PURPOSE)


def same_binary(a: Manifest, b: Manifest, servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers that ran the same binary with the same environment variables in both runs.

    If the binary of a server is not known, its image is compared instead.
    """
    others = {each.what for each in a.differences_from(b) if each.condition is Condition.PROGRAM}
    return tuple(server for server in servers if a.program_of(server) and server not in others)


# --- the comparison of each cell ------------------------------------------------------------------


@dataclass(frozen=True)
class CellComparison:
    """One quantity of one cell in two runs, and its change from the first run to the second.

    The first run is called A, and the second run is called B.

    - `a` and `b` are the geometric means with their 95 % intervals, and `ratio` is B / A.
    - `p` is the p-value, which is corrected by Holm's method over all comparisons of the two runs.
    - `detectable` is the smallest true ratio (> 1) that these trials would detect with a
      probability of 80 %, at the strictest level of Holm's correction.
    - `delta` is Cliff's delta of B against A, and `magnitude` is the usual word for its size.
    - `floor` is the largest ratio (>= 1) that noise alone caused in either run. It is measured
      between two names of one server.
    - `verdict` is one of `VERDICTS`.
    """

    load: str
    server: str
    quantity: str
    more_is_better: bool
    a: Mean
    b: Mean
    ratio: Ratio | None
    detectable: float | None
    p: float | None
    delta: float
    magnitude: str
    floor: float
    verdict: str
    regression: bool

    @property
    def words(self) -> str:
        """The verdict, followed by the word `regression` if the comparison is a regression."""
        return f"{self.verdict}, regression" if self.regression else self.verdict


@dataclass(frozen=True)
class RunComparison:
    """The comparison of two runs, and their differences.

    - `differences` are conditions that change the numbers. There are none unless the comparison was
      made with `force`.
    - `changes` are differences (commit, compilers, environment variables) that the user may want to
      compare.
    - `same_binary` names the servers that ran the same binary in both runs.
    - `only_a` and `only_b` are the cells that only one of the runs has.
    - `unsealed` are the cells that have no sealed trial in one of the runs.
    - `incomparable` has a text for each quantity of a cell that describes the server in only one of
      the runs, and is therefore not compared. The text contains the verdicts of both runs.
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
    fail_above_pct: float | None
    imported: bool = False
    """True if at least one run was imported. The lab did not measure CPU use in such a run."""

    @property
    def regressions(self) -> tuple[CellComparison, ...]:
        """The comparisons that count as regressions."""
        return tuple(each for each in self.comparisons if each.regression)

    @property
    def counts(self) -> Counter[str]:
        """Number of comparisons by verdict."""
        return Counter(each.verdict for each in self.comparisons)

    def plain(self) -> dict[str, object]:
        """Return the comparison as plain values, as `--json` prints them."""

        def sides(differences: Iterable[Difference]) -> list[dict[str, object]]:
            return [{"what": each.what, "a": each.here, "b": each.there} for each in differences]

        return asdict(self) | {
            "differences": sides(self.differences),
            "changes": sides(self.changes),
        }


def compare_runs(
    a: RunFolder, b: RunFolder, force: bool = False, fail_above_pct: float | None = None
) -> RunComparison:
    """Compare run B with run A in the cells that both runs have. Failed trials are left out.

    Both runs have a cell if each of them ran the same server under the same load, with the same
    sizes of the load (`SIZES`, which include the warm-up). The runs have no blocks in common, so
    the intervals of the ratios are Welch's.

    Two values differ if two conditions are met. First, the ratio's interval excludes 1 and does not
    lie within the noise between two names of one server. Second, a test finds a difference after
    Holm's correction over all comparisons. Therefore, if two runs are equal, the chance that the
    comparison reports any difference is at most 5 %. A regression is a change for the worse whose
    whole interval is worse by more than `fail_above_pct` percent.

    Raise LabError if the runs have no common cell. Without `force`, also raise LabError if the runs
    were made under different conditions.
    """
    sides = read_tables(a), read_tables(b)
    cells_a, cells_b = map(cells_of, sides)
    common = [cell for cell in cells_a if cell in cells_b]
    manifests = sides[0].manifest, sides[1].manifest
    names = manifests[0].run_id, manifests[1].run_id
    if not common:
        raise LabError(
            f"Runs {names[0]} and {names[1]} have no server under the same load in common: "
            "choose runs with the same servers and loads."
        )
    differences = conditions(*manifests, pd.concat([cells_a[cell] for cell in common]), force=force)
    sealed = {cell: (sealed_trials(cells_a[cell]), sealed_trials(cells_b[cell])) for cell in common}
    whole = {cell: pair for cell, pair in sealed.items() if all(map(len, pair))}
    return RunComparison(
        *names,
        comparisons=tuple(_compared(sides, samples_of((cells_a, cells_b)), fail_above_pct)),
        differences=differences,
        changes=changes(*manifests),
        same_binary=same_binary(*manifests, sorted({cell.server for cell in common})),
        only_a=tuple(str(cell) for cell in cells_a if cell not in cells_b),
        only_b=tuple(str(cell) for cell in cells_b if cell not in cells_a),
        unsealed=tuple(str(cell) for cell in common if cell not in whole),
        incomparable=tuple(
            f"{cell}: {quantity.heading} (A {verdict_counts(one)}; B {verdict_counts(other)})"
            for cell, (one, other) in whole.items()
            for quantity in OF_TWO_RUNS
            if is_the_servers(one, quantity) != is_the_servers(other, quantity)
        ),
        fail_above_pct=fail_above_pct,
        imported=any(manifest.origin is not None for manifest in manifests),
    )


SIZES = {
    "iterations": "{} iterations",
    "steps": "steps: {}",
    "step_s": "{} s a step",
    "duration_s": "{} s",
    "warmup_s": "{} s of warm-up",
}
"""Formats in which the sizes of a load are printed, by the name of the size.

Loads of different runs may differ in these sizes although they have the same name.
"""


@dataclass(frozen=True)
class SizedCell:
    """A server under a load. `sizes` are the sizes of the load in words, such as `30 s`."""

    server: str
    load: str
    sizes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.server}: {', '.join((self.load, *self.sizes))}"


Followed = tuple[SizedCell, Quantity]


def cells_of(tables: Tables) -> dict[SizedCell, pd.DataFrame]:
    """Return the trials of each cell, including failed trials.

    Steps of a search are left out, because each step has a different rate. Disturbed sessions and
    incomplete blocks are left out, as in the ratios of one run.
    """
    chosen = tables.trials["objective"].eq("") & ~not_compared(tables)
    trials = tables.trials[chosen].sort_values(["load_order", "server"], kind="stable")
    loads = tables.manifest.campaign.loads
    found = {}
    for (load, server), alike in trials.groupby(["load", "server"], sort=False):
        known = [entry for entry in loads if entry.workload == alike["workload"].iloc[0]]
        given = known[0] if len(known) == 1 else LoadOfRun()
        sizes = alike[["iterations", "steps", "step_s"]].max().to_dict()
        sizes |= {"duration_s": given.duration_s, "warmup_s": given.warmup_s}
        words = tuple(
            text.format(setting_text(sizes[name]))
            for name, text in SIZES.items()
            if pd.notna(sizes[name])
        )
        found[SizedCell(str(server), str(load), words)] = alike
    return found


def samples_of(
    runs: Sequence[Mapping[SizedCell, pd.DataFrame]],
) -> dict[Followed, dict[int, Sample]]:
    """Return the samples of all runs, by cell and quantity, and then by the number of the run.

    A sample contains the value of the quantity in each sealed trial of the cell. `runs` contains
    the trials of each run by cell (see `cells_of`). Runs are counted from 1. If a quantity does not
    describe the server in a run, the result has no sample of this quantity for this run.
    """
    found: dict[Followed, dict[int, Sample]] = {}
    for run_number, cells in enumerate(runs, start=1):
        for cell, trials in cells.items():
            sealed = sealed_trials(trials)
            # Add the run to each block's name, because blocks of different runs are unrelated.
            blocks = [f"{run_number} {block}" for block in sealed["block"]]
            for quantity in OF_TWO_RUNS:
                if is_the_servers(sealed, quantity) and (sealed[quantity.column] > 0).any():
                    values = sample(sealed.assign(block=blocks), quantity)
                    found.setdefault((cell, quantity), {})[run_number] = values
    return found


def _compared(
    sides: Sequence[Tables],
    samples: Mapping[Followed, Mapping[int, Sample]],
    fail_above_pct: float | None,
) -> Iterator[CellComparison]:
    """Yield a comparison for each cell and quantity that both runs have.

    The p-values are corrected over all these comparisons.
    """
    asked = [
        (*key, pair[1], pair[2], ratio(pair[2], pair[1]))
        for key, pair in samples.items()
        if len(pair) == 2
    ]
    known = [(a, b) for *_, a, b, found in asked if found]
    strictest = ALPHA / max(1, len(known))
    corrected = iter(holm([difference_p(b, a, strictest) for a, b in known]))
    margin = math.inf if fail_above_pct is None else fail_above_pct / 100
    for cell, quantity, a, b, found in asked:
        floor = max(noise_floor(side, cell.load, quantity.column) for side in sides)
        p = detectable = None
        verdict = FEW
        beyond = False
        if found:
            p = float(next(corrected))
            detectable = found.detectable(strictest)
            worse = (found.ratio < 1) == quantity.more_is_better
            verdict = TIE if is_tie(found, floor) or p > ALPHA else WORSE if worse else BETTER
            beyond = found.high < 1 - margin if quantity.more_is_better else found.low > 1 + margin
        delta = cliffs_delta(b, a)
        yield CellComparison(
            cell.load,
            cell.server,
            quantity.heading,
            quantity.more_is_better,
            mean_of(a),
            mean_of(b),
            found,
            detectable,
            p,
            delta,
            magnitude(delta),
            floor,
            verdict,
            regression=verdict == WORSE and beyond,
        )


# --- the comparison as tables and sentences -------------------------------------------------------


def tables(found: RunComparison) -> dict[str, pd.DataFrame]:
    """Return the comparisons of each load as a table of texts.

    Only the ratio is printed with its interval. The two means are printed without intervals, so
    that the table fits into a terminal.
    """
    by_load: dict[str, list[dict[str, str]]] = {}
    for row in found.comparisons:
        texts = {
            "server": row.server,
            "quantity": row.quantity,
            "A": number(row.a.value),
            "B": number(row.b.value),
            "B/A [95 %]": times(row.ratio) if row.ratio else "–",
            "detectable": percent(row.detectable) if row.detectable else "–",
            "verdict": row.words,
        }
        by_load.setdefault(row.load, []).append(texts)
    return {load: pd.DataFrame(rows) for load, rows in by_load.items()}


def findings(found: RunComparison) -> list[str]:
    """Return the findings as sentences.

    The first sentences count the verdicts and the regressions. Then there is a sentence for each
    comparison that shows a difference.
    """
    tie, better, worse, few = (found.counts[verdict] for verdict in VERDICTS)
    said = [
        (
            f"Of {plural(len(found.comparisons), 'comparison')} {tie} are ties; B is better in "
            f"{better} and worse in {worse}; {few} did not have enough trials."
        )
    ]
    if found.fail_above_pct is not None:
        limit = f"{found.fail_above_pct:g} %"
        count = len(found.regressions)
        said.append(
            f"Regressions (comparisons whose whole interval is worse by more than {limit}): "
            f"{count or 'none'}."
        )
    return said + [
        f"{row.server}, {row.load}: {row.quantity} {times(row.ratio)}, "
        f"{row.words.replace(', ', ', a ')} (p = {row.p:.2g} after Holm's correction)."
        for row in found.comparisons
        if row.verdict in (BETTER, WORSE) and row.ratio
    ]


def provenance(found: RunComparison) -> list[str]:
    """Return sentences that say which causes the differences between the runs may have.

    For example, a sentence names the servers whose binary is the same in both runs, and another
    sentence names the changes that users may have made on purpose.
    """
    said = ["The ratios also include everything that changed on the machine between the two runs."]
    if found.imported:
        said.append(
            "The CPU use of an imported run is not known, so a difference may be due to "
            "the load generator or to its machine."
        )
    if found.same_binary:
        said.append(
            "These servers have the same binary in both runs, so their differences are due to "
            f"something else: {', '.join(found.same_binary)}."
        )
    if found.changes:
        said.append(f"Changed between the runs: {'; '.join(map(str, found.changes))}.")
    return said


def left_out(found: RunComparison) -> dict[str, tuple[str, ...]]:
    """Return the cells, or quantities of cells, that were not compared, by the reason."""
    reasons = {
        f"Only in {found.run_a}": found.only_a,
        f"Only in {found.run_b}": found.only_b,
        "Without a sealed trial in one of the runs": found.unsealed,
        (
            "Not compared, because in one run, by its verdicts, the value does not describe the "
            "server"
        ): found.incomparable,
    }
    return {why: cells for why, cells in reasons.items() if cells}


# --- the comparison as a figure -------------------------------------------------------------------


def ratios(found: RunComparison, looks: Mapping[str, Identity]) -> Chart:
    """Return the chart of the ratio B / A of each comparison, grouped by load.

    `looks` contains the look of each server by name. A server without a look is grey.
    """
    if not found.comparisons:
        return empty(
            TITLE,
            "Nothing can be compared, because no server under a load has a quantity that "
            "describes the server in both runs.",
        )
    groups: dict[str, list[forest.ForestRow]] = {}
    margin = (math.nan if found.fail_above_pct is None else found.fail_above_pct) / 100
    for row in found.comparisons:
        groups.setdefault(row.load, []).append(_row(row, looks.get(row.server, GREY), margin))
    key = (
        "Line: 95 % interval. Filled: a difference; hollow: a tie. Pale band: differences that "
        "these trials would have missed more than once in five times."
    )
    if any(row.floor > 1 for row in found.comparisons):
        key += " Dotted: the ratio that noise alone made between two names of one program."
    if found.fail_above_pct is not None:
        key += f" Upright tick: {found.fail_above_pct:g} % worse, the border of a regression."
    sizes = [side.trials for row in found.comparisons for side in (row.a, row.b)]
    trials = " to ".join(str(size) for size in dict.fromkeys((min(sizes), max(sizes))))
    counts = ", ".join(
        f"{verdict} {found.counts[verdict]}" for verdict in VERDICTS if found.counts[verdict]
    )
    caption = (
        f"Of {plural(len(found.comparisons), 'comparison')} with {trials} trials a side: {counts}."
        f"\nData: A is run {found.run_a}, B is run {found.run_b}."
    )
    known = sum(row.ratio is not None for row in found.comparisons)
    head = (
        f"Forest plot of {known} ratios B / A with 95 % intervals on a logarithmic axis: {counts}."
    )
    return forest.forest(TITLE, caption, key, groups, "B / A", head)


def _row(row: CellComparison, look: Identity, margin: float) -> forest.ForestRow:
    words = f"{row.server}: {row.quantity}"
    found = row.ratio
    if found is None or row.detectable is None:
        return forest.ForestRow(words, row.verdict)
    tie = row.verdict == TIE
    note = f"{ratio_words(found.ratio, found.low, found.high, 3)}\n{row.words}"
    return forest.ForestRow(
        words,
        note + f" (detectable: {percent(row.detectable)})" * tie,
        (forest.Mark(found.ratio, found.low, found.high, look.color, look.marker, tie),),
        band=(1 / row.detectable, row.detectable),
        limit=1 - margin if row.more_is_better else 1 + margin,
        floor=row.floor if row.floor > 1 else math.nan,
    )
