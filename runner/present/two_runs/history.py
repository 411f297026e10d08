"""Follow cells over many runs in time, and find lasting changes of their means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from runner.model import LabError
from runner.present.chart.drawing import Shared, bars
from runner.present.chart.value import POINT_COLUMNS, Axis, Chart, extreme
from runner.present.comparison.mean_words import mean_words
from runner.present.frames import Tables, read_tables
from runner.present.look import captions, style
from runner.present.look.palette import identities
from runner.present.statistics.inference import (
    ALPHA,
    FEWEST_TRIALS,
    Mean,
    geometric_mean,
    mean_of,
)
from runner.present.statistics.stats import Floats
from runner.present.two_runs.compare import cells_of, conditions, samples_of
from runner.store import RunFolder

AT_EACH_SIDE = 2  # a change has at least this many runs before it and after it
LEAST = 6  # changes are looked for only in cells with at least this many runs
SIMULATED = 20_000
"""Number of series without a change that are simulated to compute the p-value of a change."""
SEED = 20_261_123
PANELS = 8
"""The figure has at most this many panels, one for each load and quantity.

Panels with changes come first. The table contains all loads and quantities.
"""


@dataclass(frozen=True)
class Change:
    """A lasting change of a quantity, which begins with run number `at`. Runs are counted from 1.

    `ratio` is the mean after the change divided by the mean before it. Each of the two means
    extends over all runs up to the neighbouring change. `p` is the p-value of the change.
    """

    at: int
    ratio: float
    p: float
    worse: bool


@dataclass(frozen=True, eq=False)
class Course:
    """One quantity of one cell over the runs.

    `sides` contains the mean of each run with its interval, by the number of the run. `changes` are
    the lasting changes.
    """

    load: str
    server: str
    quantity: str
    sides: Mapping[int, Mean]
    changes: tuple[Change, ...]


@dataclass(frozen=True, eq=False)
class History:
    """Several runs sorted by time, and the course of each quantity of a cell over these runs.

    A quantity has a course if it can be compared in at least two runs.
    """

    runs: tuple[str, ...]
    days: tuple[str, ...]
    tables: tuple[Tables, ...]
    courses: tuple[Course, ...]
    fail_above_pct: float | None

    @property
    def regressions(self) -> tuple[Course, ...]:
        """The courses whose last change is for the worse, by more than `fail_above_pct` percent."""
        margin = np.inf if self.fail_above_pct is None else self.fail_above_pct / 100
        last = [(course, course.changes[-1]) for course in self.courses if course.changes]
        return tuple(
            course for course, change in last if change.worse and abs(change.ratio - 1) > margin
        )


def history(
    runs: Sequence[RunFolder], *, force: bool = False, fail_above_pct: float | None = None
) -> History:
    """Return the history of several runs, sorted by when the runs started.

    If a quantity cannot be compared in a run, the run is skipped for this quantity. Each run counts
    as one value, the mean of its trials' logarithms, because a change on the machine between two
    runs affects all trials of a run together.

    Raise LabError if there are fewer than two runs, if a run is named twice, or if no two runs have
    a common cell. Without `force`, also raise LabError if the runs were made under different
    conditions.
    """
    tables = sorted(map(read_tables, runs), key=lambda each: each.manifest.started_at or "")
    names = tuple(each.manifest.run_id for each in tables)
    if len(names) < 2 or len(set(names)) < len(names):
        raise LabError("A history needs at least two different runs: name another run.")
    # `conditions` raises LabError if the runs' conditions differ.
    for before, after in pairwise(tables):
        conditions(
            before.manifest, after.manifest, pd.concat([before.trials, after.trials]), force=force
        )
    found = samples_of([cells_of(each) for each in tables])
    followed = {key: samples for key, samples in found.items() if len(samples) > 1}
    if not followed:
        raise LabError(
            "No two of these runs have a server under the same load in common whose values can "
            "be compared: choose other runs."
        )
    alpha = ALPHA / max(1, sum(len(samples) >= LEAST for samples in followed.values()))
    courses = []
    for (cell, quantity), samples in followed.items():
        numbers = list(samples)
        logs = np.log([geometric_mean(sample) for sample in samples.values()])
        places = list(changes(logs, alpha))
        shifts = np.diff([part.mean() for part in np.split(logs, [place for place, _ in places])])
        known = tuple(
            Change(
                numbers[place],
                float(np.exp(shift)),
                p,
                worse=(shift < 0) == quantity.more_is_better,
            )
            for (place, p), shift in zip(places, shifts, strict=True)
        )
        sides = {number: mean_of(sample) for number, sample in samples.items()}
        courses.append(Course(cell.load, cell.server, quantity.heading, sides, known))
    days = tuple(each.manifest.day for each in tables)
    return History(names, days, tuple(tables), tuple(courses), fail_above_pct)


def changes(values: Floats, alpha: float = ALPHA) -> Iterator[tuple[int, float]]:
    """Yield the positions at which the mean of a series changes, in order, each with its p-value.

    The t statistic is computed for each position at which a change could be. The largest t
    statistic is compared with the largest t statistics of simulated series without a change
    (Worsley 1979, JASA 74, 365). If the largest t statistic is significant, there is a change at
    its position. Then the values before and the values after this position are each searched for
    further changes in this way (binary segmentation, Vostrikova 1981).
    """
    if values.size < LEAST:
        return
    statistics = squared_t(values[None, :])[0]
    place = int(np.argmax(statistics))
    p = float((1 + (_without_change(values.size) >= statistics[place]).sum()) / (1 + SIMULATED))
    if p <= alpha:
        split = place + AT_EACH_SIDE
        yield from changes(values[:split], alpha)
        yield split, p
        yield from ((split + later, of_later) for later, of_later in changes(values[split:], alpha))


def squared_t(rows: Floats) -> Floats:
    """Return the squared t statistic of each position at which a change could be, for each row.

    Each row is a series of values, one per run. The t statistic of a position compares the values
    before the position with the values from this position on. There are at least `AT_EACH_SIDE`
    values on each side.
    """
    n = rows.shape[-1]
    centred = rows - rows.mean(axis=-1, keepdims=True)
    total = (centred**2).sum(axis=-1, keepdims=True)
    before = np.arange(AT_EACH_SIDE, n - AT_EACH_SIDE + 1)
    sums = np.cumsum(centred, axis=-1)[:, before - 1]
    between = sums**2 * n / (before * (n - before))
    return np.asarray((n - 2) * between / np.maximum(total - between, np.finfo(float).tiny))


@lru_cache(maxsize=256)
def _without_change(n: int) -> Floats:
    """Simulate `SIMULATED` series without a change, and return a statistic of each series.

    Each series consists of n values drawn from one normal distribution. The statistic is the
    largest squared t statistic over all positions at which a change could be.
    """
    rng = np.random.default_rng(SEED)
    parts = [
        squared_t(rng.standard_normal((1_000, n))).max(axis=-1) for _ in range(SIMULATED // 1_000)
    ]
    return np.concatenate(parts)


def findings(found: History) -> list[str]:
    """Return a sentence that counts the courses without a change, then a sentence per change."""
    steady = sum(not course.changes for course in found.courses)
    few = "" if len(found.runs) >= LEAST else f" To find a change, {LEAST} runs or more are needed."
    return [
        (
            f"{captions.plural(len(found.runs), 'run')} from {found.days[0]} to "
            f"{found.days[-1]}: {steady} of {captions.plural(len(found.courses), 'value')} that "
            f"were followed show no lasting change.{few}"
        ),
        *(
            f"{course.server}, {course.load}: since run {change.at} "
            f"({found.days[change.at - 1]}), {course.quantity} is {change.ratio:.3f} times its "
            f"earlier value, which is {'worse' if change.worse else 'better'} "
            f"(p = {change.p:.2g})."
            for course in found.courses
            for change in course.changes
        ),
    ]


def table(found: History) -> pd.DataFrame:
    """Return a table of texts with a row for each course: the means by run, and the changes."""
    numbers = range(1, len(found.runs) + 1)
    rows = [
        {"load": course.load, "server": course.server, "quantity": course.quantity}
        | {str(n): mean_words(course.sides[n]) if n in course.sides else "–" for n in numbers}
        | {"changes": "; ".join(f"×{change.ratio:.3f} at {change.at}" for change in course.changes)}
        for course in found.courses
    ]
    return pd.DataFrame(rows)


def timeline(found: History) -> Chart:
    """Return the chart of each run's mean with its interval, one panel per load and quantity."""
    panels: dict[str, list[Course]] = {}
    for course in sorted(found.courses, key=lambda course: not course.changes):
        panels.setdefault(f"{course.load}: {course.quantity}", []).append(course)
    rows = [
        (
            panel,
            course.server,
            "mean",
            float(number),
            side.value,
            side.low,
            side.high,
            True,
            number in {change.at for change in course.changes},
        )
        for panel, courses in list(panels.items())[:PANELS]
        for course in courses
        for number, side in course.sides.items()
    ]
    shown = f" {PANELS} of {len(panels)} loads and quantities, those with changes first."
    runs = ", ".join(f"{number}: {day}" for number, day in enumerate(found.days, start=1))
    return Chart(
        "The same loads over many runs",
        pd.DataFrame(rows, columns=[*POINT_COLUMNS, "changed"]),
        Axis("run", "run"),
        Axis("mean"),
        identities(pd.concat([each.trials for each in found.tables], ignore_index=True)),
        "Means of the trials with their 95 % intervals, or minimum and maximum of fewer than "
        f"{FEWEST_TRIALS} trials.\nData: runs {runs}.",
        key=f"Ring: first run with the changed value.{shown * (len(panels) > PANELS)}",
        noun="load and quantity",
        facts=(extreme(Axis("run"), Axis("mean"), "highest mean"),),
        draw=Shared(mark=bars, finish=_finish),
    )


def _finish(ax: Axes, chart: Chart, panel: str) -> None:
    rows = chart.frame[chart.frame["panel"] == panel]
    numbers = sorted(chart.frame["x"].unique())
    ax.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    ax.set_ylim(0, float(rows["high"].max()) * 1.1 or 1)
    ringed = rows[rows["changed"]]
    colors = [chart.looks[server].color for server in ringed["server"]]
    ax.scatter(
        ringed["x"],
        ringed["y"],
        s=130,
        facecolors="none",
        edgecolors=colors,
        linewidths=1.4,
        zorder=3,
    )
    style.ticks_across(ax, numbers)
    style.even_axis(ax, "y")
