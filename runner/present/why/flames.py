"""Flame graphs: the call stacks of a server, or the difference of two, as a tree of frames."""

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
"""Share of the whole below which a frame is part of its caller."""


class Change(IntEnum):
    """Whether a server is sure to take more or less on a frame than the other one."""

    LESS = -1
    UNSURE = 0
    """The interval of the difference includes zero, or there is no difference to look at."""
    MORE = 1


@dataclass(frozen=True)
class Frame:
    """A function, or a kind of work, with everything that it calls."""

    name: str
    us: float
    """CPU time per request in µs; the mean of both servers in a difference."""
    more_us: float
    """Difference in µs per request; 0 in the graph of one server."""
    change: Change
    in_kernel: bool
    callees: tuple[Frame, ...]
    """Callees that are wide enough, the widest first, or in the order of the kinds of work."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frame and all frames within it."""
        yield self
        for callee in self.callees:
            yield from callee.frames()

    def kept(self, most: int) -> Frame:
        """Return the tree with at most `most` frames, the widest ones.

        A frame is never wider than its caller, so that none loses its caller.
        """
        widths = sorted((frame.us for frame in self.frames()), reverse=True)
        return self if len(widths) <= most else _without(self, widths[most])


@dataclass
class _Node:
    """A frame that is being summed up: µs per request by slice."""

    name: str
    us: np.ndarray
    more_us: np.ndarray
    callees: dict[str, _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class _Path:
    """Names from a tree's first level to a function, and its own µs per request by slice."""

    names: Sequence[str]
    us: np.ndarray
    more_us: np.ndarray


def of_server(profiles: Profiles, server: str, load: str) -> Frame:
    """Return the frames of a server under a load, below one that bears the server's name."""
    table = profiles.by_stack(server, load)
    slices = table.to_numpy()
    nothing = np.zeros(slices.shape[1])
    paths = [
        _Path(str(stack).split(";"), us, nothing)
        for (_, stack), us in zip(table.index, slices, strict=True)
    ]
    return _tree(server, paths)


def of_difference(profiles: Profiles, less: str, more: str, load: str) -> Frame:
    """Return the frames of two servers with what `more` takes more per request than `less`.

    The first level are kinds of work. Stacks that end in the kernel begin where it was entered, so
    that servers of different languages share them. Slices are subtracted one by one.
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
    """Return µs per request by path: the kind of work, then the stack or its kernel part."""
    paths = [_path(str(category), str(stack)) for category, stack in table.index]
    return table.groupby(pd.Index(paths, name="path")).sum()


def _path(category: str, stack: str) -> str:
    functions = stack.split(";")
    if functions[-1].endswith(KERNEL):
        functions = [each for each in functions if each.endswith(KERNEL)]
    return ";".join((category, *functions))


def _tree(name: str, paths: Sequence[_Path]) -> Frame:
    """Return the tree of paths, without frames that are too narrow."""
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
    """Return a tree without frames that are not wider than `width_us`."""
    kept = tuple(_without(each, width_us) for each in frame.callees if each.us > width_us)
    return Frame(frame.name, frame.us, frame.more_us, frame.change, frame.in_kernel, kept)


def signed(us: float) -> str:
    """Return a difference in µs with its sign: `+3.21` or `−0.40`."""
    return f"{us:+.2f}".replace("-", "−")


def widest(frame: Frame, count: int) -> list[Frame]:
    """Return the `count` functions that spend most themselves, without what they call."""
    return sorted(frame.frames(), key=lambda each: (-own_us(each), each.name))[:count]


def own_us(frame: Frame) -> float:
    """Return what a frame spends beside the callees that are shown."""
    return frame.us - sum(callee.us for callee in frame.callees)


def changed(frame: Frame, count: int) -> list[Frame]:
    """Return the `count` kinds of work with the largest differences that are sure."""
    sure = (each for each in frame.callees if each.change is not Change.UNSURE)
    return sorted(sure, key=lambda each: -abs(each.more_us))[:count]


def depth(frames: Iterable[Frame]) -> int:
    """Return the number of rows of frames and all that they call."""
    rows = 0
    level = list(frames)
    while level:
        rows += 1
        level = list(chain.from_iterable(each.callees for each in level))
    return rows
