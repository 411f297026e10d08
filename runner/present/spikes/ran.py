"""Find the function that took most of the additional CPU time in a server's CPU spike.

The data come from a timeline, which is a load without a break. During this load, perf took 499
samples per second of the server's CPU time. The spikes are found in the sampler's windows, as in
any trial (found.py). A window belongs to the surroundings of a spike if the middle of the window is
at most BASELINE_S / 2 away from the middle of the spike, and if the window is not in any spike.

A function's additional CPU time is its CPU time in the spike minus its usual CPU time. The usual
CPU time is the function's CPU time in the surroundings, scaled to the length of the spike. The CPU
time of a function always includes the CPU time of its callees.

To find the function of a spike, the search starts at the threads' first functions. It goes on to
the callee with the largest additional CPU time, as long as this callee has at least the share
MOST_OF_MORE of the spike's additional CPU time. The function at which the search ends is the
function of the spike. It stands out if its share of the samples in the spike is significantly
larger than its share of the samples in the surroundings (Fisher's exact test). If the function does
not stand out, the server did more of its usual work in the spike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from runner.present.frames import read_table
from runner.present.spikes.found import BASELINE_S, Spike, Track, track
from runner.present.statistics.stats import Floats
from runner.store import RunFolder

MOST_OF_MORE = 0.5
FEWEST_SAMPLES = 10
"""The function of a spike is named only if perf took at least this many samples in the spike."""
ALPHA = 0.01


@dataclass(frozen=True, eq=False)
class Timeline:
    """A server's CPU use over a recorded load, and the samples that perf took during it."""

    trial_id: str
    server: str
    load: str
    track: Track
    samples: pd.DataFrame
    """The timeline's rows of `timeline_samples`.

    The columns are `t_s`, `cpu_ms`, `category` and `stack`.
    """
    duration_s: float

    @property
    def highest(self) -> float:
        """Height of the highest counted spike, in deviations. It is 0 if no spike counts."""
        return max((spike.deviations for spike in self.track.counted), default=0.0)


@dataclass(frozen=True)
class Function:
    """The function of a spike, with its shares of the samples in the spike and around the spike.

    `more_ms` is the function's additional CPU time in the spike.
    """

    callers: tuple[str, ...]
    """The callers of the function, from the thread's first function to the direct caller."""
    name: str
    more_ms: float
    share: float
    usual_share: float
    stands_out: bool


@dataclass(frozen=True)
class Ran:
    """The work for which a server used more CPU time in a spike than around the spike.

    `samples` is the number of perf's samples in the spike, and `more_ms` is the additional CPU time
    of the spike in ms.
    """

    number: int
    """Number of the spike in its timeline, counted from 1."""
    spike: Spike
    samples: int
    more_ms: float
    function: Function | None
    """The function of the spike.

    It is None if there are too few samples, or if no function has the share MOST_OF_MORE of the
    additional CPU time.
    """
    kinds: Mapping[str, float]
    """Additional CPU time in ms by kind of work, the largest value first."""


def read_timelines(run: RunFolder) -> list[Timeline]:
    """Return the timelines of a run in the order of its tables.

    Return an empty list if the run has no timelines.
    """
    windows = read_table(run, "timeline_windows")
    samples = dict(list(read_table(run, "timeline_samples").groupby("trial_id")))
    found = []
    for trial_id, rows in windows.groupby("trial_id", sort=False):
        first = rows.iloc[0]
        duration_s = float(rows["t_s"].max())
        mine = samples.get(trial_id, pd.DataFrame(columns=["t_s", "cpu_ms", "category", "stack"]))
        found.append(
            Timeline(
                str(trial_id),
                str(first["server"]),
                str(first["load"]),
                track(rows, duration_s),
                mine.reset_index(drop=True),
                duration_s,
            )
        )
    return found


def what_ran(timeline: Timeline) -> list[Ran]:
    """Return the work that took additional CPU time, for each counted spike of a timeline."""
    return [
        _ran(timeline, number, spike)
        for number, spike in enumerate(timeline.track.spikes, start=1)
        if not spike.settling
    ]


@dataclass(frozen=True, eq=False)
class _Beside:
    """The samples in a spike and in its surroundings.

    CPU time in the surroundings is multiplied by `scale`, so that it can be compared with CPU time
    in the spike.
    """

    inside: pd.DataFrame
    around: pd.DataFrame
    scale: float
    """Length of the spike divided by the length of its surroundings.

    It is 0 if there are no surroundings.
    """


def _ran(timeline: Timeline, number: int, spike: Spike) -> Ran:
    beside = _beside(timeline, spike)
    kinds = _more_by(beside, "category")
    more_ms = float(sum(kinds.values()))
    function = None
    if len(beside.inside) >= FEWEST_SAMPLES and more_ms > 0:
        function = _function(beside, more_ms)
    ordered = dict(sorted(kinds.items(), key=lambda each: -each[1]))
    return Ran(number, spike, len(beside.inside), more_ms, function, ordered)


def _beside(timeline: Timeline, spike: Spike) -> _Beside:
    windows = timeline.track.windows
    middle_s = (windows.start_s + windows.end_s) / 2
    usual = np.ones(len(middle_s), dtype=bool)
    for first, last in timeline.track.ranges:
        usual[first : last + 1] = False
    near = np.abs(middle_s - (spike.start_s + spike.end_s) / 2) <= BASELINE_S / 2
    usual &= near
    around_s = float((windows.end_s - windows.start_s)[usual].sum())
    at_s = timeline.samples["t_s"].to_numpy(dtype=np.float64)
    inside = (at_s >= spike.start_s) & (at_s < spike.end_s)
    around = _within(at_s, windows.start_s, windows.end_s, usual)
    scale = spike.length_s / around_s if around_s else 0.0
    return _Beside(timeline.samples[inside], timeline.samples[around], scale)


def _within(
    at_s: Floats, start_s: Floats, end_s: Floats, chosen: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return a mask of the instants `at_s` that lie in a chosen window."""
    place = np.searchsorted(start_s, at_s, side="right") - 1
    known = (place >= 0) & (at_s < end_s[place]) if len(end_s) else np.zeros(len(at_s), dtype=bool)
    return np.asarray(known & chosen[place]) if len(end_s) else known


def _more_by(beside: _Beside, column: str) -> dict[str, float]:
    """Return the additional CPU time during a spike, in ms, for each value of `column`.

    This is the CPU time in the spike minus the CPU time in the surroundings, scaled to the length
    of the spike.
    """
    inside_ms, around_ms = (
        each.groupby(column)["cpu_ms"].sum() for each in (beside.inside, beside.around)
    )
    inside_ms, around_ms = inside_ms.align(around_ms, join="outer", fill_value=0.0)
    return {str(name): float(ms) for name, ms in (inside_ms - beside.scale * around_ms).items()}


@dataclass
class _Node:
    """A function in the tree of call stacks, with its callees.

    `inside` and `around` are the numbers of the function's samples in the spike and in the
    surroundings. `more_ms` is the function's additional CPU time.
    """

    inside: int = 0
    around: int = 0
    more_ms: float = 0.0
    callees: dict[str, _Node] = field(default_factory=lambda: defaultdict(_Node))


def _tree(beside: _Beside) -> _Node:
    root = _Node()
    for stack, count, cpu_ms in _by_stack(beside.inside):
        for node in _nodes(root, stack):
            node.inside += count
            node.more_ms += cpu_ms
    for stack, count, cpu_ms in _by_stack(beside.around):
        for node in _nodes(root, stack):
            node.around += count
            node.more_ms -= beside.scale * cpu_ms
    return root


def _by_stack(samples: pd.DataFrame) -> Iterator[tuple[str, int, float]]:
    """Yield each call stack with the number of its samples and their CPU time in ms."""
    by_stack = samples.groupby("stack")["cpu_ms"].agg(["size", "sum"])
    for stack, count, cpu_ms in by_stack.itertuples():
        yield str(stack), int(count), float(cpu_ms)


def _nodes(root: _Node, stack: str) -> Iterator[_Node]:
    """Yield the root, then the node of each function of a call stack.

    Nodes that do not exist yet are created.
    """
    node = root
    yield node
    for function in stack.split(";"):
        node = node.callees[function]
        yield node


def _function(beside: _Beside, more_ms: float) -> Function | None:
    """Return the function of a spike, as explained in this module's docstring.

    Return None if no function has the share MOST_OF_MORE of the additional CPU time.
    """
    root = node = _tree(beside)
    path: list[str] = []
    while node.callees:
        name, callee = max(node.callees.items(), key=lambda each: (each[1].more_ms, each[0]))
        if callee.more_ms < MOST_OF_MORE * more_ms:
            break
        path.append(name)
        node = callee
    if not path:
        return None
    share = node.inside / root.inside
    usual_share = node.around / root.around if root.around else 0.0
    return Function(
        callers=tuple(path[:-1]),
        name=path[-1],
        more_ms=node.more_ms,
        share=share,
        usual_share=usual_share,
        stands_out=_stands_out(node, root),
    )


def _stands_out(node: _Node, root: _Node) -> bool:
    table = np.array(
        [
            [node.inside, root.inside - node.inside],
            [node.around, root.around - node.around],
        ]
    )
    return bool(fisher_exact(table, alternative="greater").pvalue < ALPHA)


def in_order(timelines: Sequence[Timeline]) -> list[Timeline]:
    """Return the timelines sorted by their highest spike, with the highest of all first.

    Timelines whose highest spikes are equally high are sorted by the server's name.
    """
    return sorted(timelines, key=lambda each: (-each.highest, each.server))
