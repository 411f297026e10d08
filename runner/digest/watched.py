"""Keep the points of k6's file that are needed for thresholds and for the script's own metrics.

A selection consists of all points of a metric, or only of the points that have certain tags. k6
writes a selection as `http_req_duration{name:slow,method:GET}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

WATCHED = pa.schema([("selection", pa.int32()), ("value", pa.float64())])
"""One row per point and selection. A point has a row for each selection to which it belongs.

A row has the selection's number and the point's value. The rows of a selection are in the order in
which the points are in k6's file.
"""
MOST_SELECTIONS = 500
"""A load may have at most this many selections. The points of further selections are not kept."""
_SELECTION = re.compile(r"([^{}]+)(?:\{(.*)\})?", re.DOTALL)


@dataclass(frozen=True)
class Selection:
    """A metric, and the tags that a point of the metric must have to be selected."""

    metric: str
    tags: tuple[tuple[str, str], ...] = ()


def selection_of(text: str) -> Selection | None:
    """Parse a selection that is written as k6 writes it, like `http_req_duration{name:slow}`.

    Return None if the text is not written in this way.
    """
    found = _SELECTION.fullmatch(text.strip())
    if found is None:
        return None
    pairs = [each.partition(":") for each in (found[2] or "").split(",") if each.strip()]
    if any(not colon for _, colon, _ in pairs):
        return None
    tags = ((_bare(name), _bare(value)) for name, _, value in pairs)
    return Selection(found[1].strip(), tuple(sorted(tags)))


def _bare(text: str) -> str:
    return text.strip().strip("\"'")


@dataclass(frozen=True, eq=False)
class TagSets:
    """The distinct sets of tags of a block's points, and for each point the index of its set."""

    known: Sequence[Mapping[str, Any]] = ()
    indices: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


class Watch:
    """The selections of a load. Only points that belong to a selection are kept.

    At first, the selections are the given `selections`. `rows` adds a selection of all points of
    each metric in the file, except for the metrics in `of_k6`. The points of a metric in `of_k6`
    are kept only if the given selections, or those that `add` adds, contain them.
    """

    def __init__(self, of_k6: Iterable[str], selections: Iterable[Selection] = ()) -> None:
        self._of_k6 = frozenset(of_k6)
        self._by_metric: dict[str, list[Selection]] = {}
        self.numbers: dict[Selection, int] = {}
        """Number of each selection, by which the rows of WATCHED name the selection."""
        for each in selections:
            self.add(each)

    def add(self, selection: Selection) -> None:
        """Keep the points of a selection from now on."""
        if selection not in self.numbers and len(self.numbers) < MOST_SELECTIONS:
            self.numbers[selection] = len(self.numbers)
            self._by_metric.setdefault(selection.metric, []).append(selection)

    def rows(
        self,
        names: Sequence[str],
        metrics: NDArray[np.int32],
        values: NDArray[np.float64],
        tags: TagSets,
    ) -> pa.RecordBatch | None:
        """Return the rows of WATCHED for the selected points of a block.

        `names` are the names of the block's metrics. `metrics` has one element per point: the index
        of the point's metric in `names`. `values` has the value of each point, and `tags` has the
        tags of the points. Return None if no metric in `names` has a selection.
        """
        found = []
        for place, name in enumerate(names):
            if name not in self._of_k6:
                self.add(Selection(name))
            selections = self._by_metric.get(name, ())
            if not selections:
                continue
            chosen = np.flatnonzero(metrics == place)
            for each in selections:
                rows = chosen[_have(each, tags)[tags.indices[chosen]]] if each.tags else chosen
                found.append((self.numbers[each], values[rows]))
        if not found:
            return None
        numbers = np.repeat(
            np.array([number for number, _ in found], np.int32), [len(each) for _, each in found]
        )
        columns = [numbers, np.concatenate([each for _, each in found])]
        return pa.record_batch([pa.array(each) for each in columns], schema=WATCHED)


def _have(selection: Selection, tags: TagSets) -> NDArray[np.bool_]:
    """Return a mask of the sets of tags that contain all tags of a selection."""
    return np.array(
        [
            all(str(known.get(name, "")) == value for name, value in selection.tags)
            for known in tags.known
        ],
        bool,
    )
