"""Build flame graphs, which are trees of frames made from call stacks.

A graph shows the stacks of one server, or the difference between the stacks of two servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain

import numpy as np
import pandas as pd

from runner.present.look.captions import printable
from runner.present.why.profiles import ORDER, Microseconds, Profiles
from runner.profiled import KERNEL

LEAST_SHARE = 0.001
"""A frame is left out if it takes a smaller share of the whole CPU time than this.

The CPU time of such a frame is still part of the frame of its caller.
"""


class Change(IntEnum):
    """The direction in which two servers differ significantly in the CPU time of a frame."""

    LESS = -1
    UNSURE = 0
    """The interval of the difference includes zero, or the graph shows only one server."""
    MORE = 1


@dataclass(frozen=True)
class Frame:
    """A function or a kind of work, with everything that it calls."""

    name: str
    us: float
    """CPU time per request in µs. In the graph of a difference, it is the mean of both servers."""
    more_us: float
    """Difference between two servers' CPU times per request in µs.

    In the graph of one server, it is 0.
    """
    change: Change
    in_kernel: bool
    callees: tuple[Frame, ...]
    """The callees that take enough CPU time to be shown.

    Callees are sorted by CPU time, with the largest first. Kinds of work are sorted as in `ORDER`.
    """

    def frames(self) -> Iterator[Frame]:
        """Yield the frame, its callees, the callees of these callees, and so on."""
        yield self
        for callee in self.callees:
            yield from callee.frames()

    def kept(self, most: int) -> Frame:
        """Return the tree with at most `most` frames, which are those that take most CPU time.

        A frame never takes more CPU time than its caller, so the caller of each kept frame is kept,
        too.
        """
        widths = sorted((frame.us for frame in self.frames()), reverse=True)
        return self if len(widths) <= most else _without(self, widths[most])


@dataclass
class _Node:
    """A frame to which stacks are still being added.

    `us` and `more_us` are arrays with the µs per request of each slice.
    """

    name: str
    us: np.ndarray
    more_us: np.ndarray
    callees: dict[str, _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class _Path:
    """A call stack: the names of the frames from the tree's first level down to a function.

    `us` and `more_us` are arrays with the µs per request of this stack in each slice.
    """

    names: Sequence[str]
    us: np.ndarray
    more_us: np.ndarray


def of_server(profiles: Profiles, server: str, load: str) -> Frame:
    """Return the tree of a server's frames under a load. The root frame has the server's name."""
    table = profiles.by_stack(server, load)
    slices = table.to_numpy()
    nothing = np.zeros(slices.shape[1])
    paths = [
        _Path(str(stack).split(";"), us, nothing)
        for (_, stack), us in zip(table.index, slices, strict=True)
    ]
    return _tree(server, paths)


def of_difference(profiles: Profiles, less: str, more: str, load: str) -> Frame:
    """Return the tree of the differences in CPU time per request between two servers.

    Each difference is the value of `more` minus the value of `less`, computed slice by slice. The
    first level of the tree consists of kinds of work. If a stack ends in the kernel, only its
    functions in the kernel are kept, so that servers in different languages have the same stacks.
    """
    tables = (profiles.by_stack(name, load) for name in (less, more))
    theirs, mine = (_aligned(table) for table in tables)
    theirs, mine = theirs.align(mine, join="inner", axis=1)
    theirs, mine = (each.fillna(0.0) for each in theirs.align(mine, join="outer", axis=0))
    both = (theirs + mine).to_numpy() / 2
    apart = (mine - theirs).to_numpy()
    paths = [
        _Path(str(path).split(";"), us, more_us)
        for path, us, more_us in zip(mine.index, both, apart, strict=True)
    ]
    found = _tree(f"{more} minus {less}", paths)
    places = {name: place for place, name in enumerate(ORDER)}
    sorted_ = sorted(found.callees, key=lambda each: places.get(each.name, len(ORDER)))
    return Frame(found.name, found.us, found.more_us, found.change, False, tuple(sorted_))


def _aligned(table: pd.DataFrame) -> pd.DataFrame:
    """Return the µs per request of a server in each slice, by path.

    `table` contains the same values by kind of work and call stack (see `Profiles.by_stack`). A
    path is the kind of work, followed by the functions of the stack. If the stack ends in the
    kernel, only the kernel's functions follow.
    """
    paths = [_path(str(category), str(stack)) for category, stack in table.index]
    return table.groupby(pd.Index(paths, name="path")).sum()


def _path(category: str, stack: str) -> str:
    functions = stack.split(";")
    if functions[-1].endswith(KERNEL):
        functions = [each for each in functions if each.endswith(KERNEL)]
    return ";".join((category, *functions))


def _tree(name: str, paths: Sequence[_Path]) -> Frame:
    """Return the tree of paths, without frames below `LEAST_SHARE`."""
    width = len(paths[0].us) if paths else 0
    root = _Node(name, np.zeros(width), np.zeros(width))
    for path in paths:
        _add(root, path.us, path.more_us)
        node = root
        for each in path.names:
            if each not in node.callees:
                node.callees[each] = _Node(each, np.zeros(width), np.zeros(width))
            node = node.callees[each]
            _add(node, path.us, path.more_us)
    least_us = LEAST_SHARE * float(root.us.mean()) if width else 0.0
    return _frame(root, least_us)


def _add(node: _Node, us: np.ndarray, more_us: np.ndarray) -> None:
    node.us = node.us + us
    node.more_us = node.more_us + more_us


def _frame(node: _Node, least_us: float) -> Frame:
    wide = (each for each in node.callees.values() if each.us.mean() >= least_us)
    callees = sorted((_frame(each, least_us) for each in wide), key=lambda one: (-one.us, one.name))
    more = Microseconds.of_slices(node.more_us) if len(node.us) else Microseconds(0.0, 0.0, 0.0)
    change = Change(int(np.sign(more.mean))) if more.is_sure else Change.UNSURE
    us = float(node.us.mean()) if len(node.us) else 0.0
    in_kernel = node.name.endswith(KERNEL)
    name = printable(node.name.removesuffix(KERNEL))
    return Frame(name, us, more.mean, change, in_kernel, tuple(callees))


def _without(frame: Frame, width_us: float) -> Frame:
    """Return the tree of `frame` without callees that take at most `width_us` µs per request.

    `frame` itself is always kept.
    """
    kept = tuple(_without(each, width_us) for each in frame.callees if each.us > width_us)
    return Frame(frame.name, frame.us, frame.more_us, frame.change, frame.in_kernel, kept)


def signed(us: float) -> str:
    """Return a difference in µs with its sign: `+3.21` or `−0.40`."""
    return f"{us:+.2f}".replace("-", "−")


def widest(frame: Frame, count: int) -> list[Frame]:
    """Return the `count` functions that take most CPU time themselves, without their callees."""
    return sorted(frame.frames(), key=lambda each: (-own_us(each), each.name))[:count]


def own_us(frame: Frame) -> float:
    """Return the µs that a frame takes without its shown callees."""
    return frame.us - sum(callee.us for callee in frame.callees)


def changed(frame: Frame, count: int) -> list[Frame]:
    """Return up to `count` kinds of work that differ significantly, largest difference first."""
    sure = (each for each in frame.callees if each.change is not Change.UNSURE)
    return sorted(sure, key=lambda each: -abs(each.more_us))[:count]


def depth(frames: Iterable[Frame]) -> int:
    """Return the number of rows that frames and all their callees need."""
    rows = 0
    level = list(frames)
    while level:
        rows += 1
        level = list(chain.from_iterable(each.callees for each in level))
    return rows
