"""Read the answer of Prometheus to `/api/v1/query_range`."""

from __future__ import annotations

import json
import math

import numpy as np

from runner.importing.cpu.series import Series, Time, series_of_percents
from runner.model import JsonObject, LabError

_COUNTER = "_seconds_total"
_IN_CORES = (
    "the values of Prometheus do not have the name of a counter of CPU seconds, so each value "
    "was taken as the number of CPUs in use"
)


def read_prometheus(text: str) -> list[Series]:
    """Return the series about CPU use in the answer, or no series if the text has another format.

    Each series in the answer may have the name of a metric, which shows what the series contains:

    - If the name ends in `_seconds_total`, the values are a counter of CPU seconds.
    - If the name ends in `_bytes`, the values are memory in bytes. This memory becomes the memory
      of the series about CPU use that has the same labels. If the answer has only one series of
      memory, this memory becomes that of all series about CPU use.
    - If the name ends in neither, or is missing, the values are numbers of CPUs in use. For
      example, the result of `rate()` has no name of a metric.

    Raise LabError if a value of CPU use is not finite, or if a number of CPUs is negative.
    """
    if not text.lstrip().startswith("{"):
        return []
    try:
        answer = json.loads(text)
        data = answer["data"]
        if data["resultType"] != "matrix":
            return []
        results = [_Result(each) for each in data["result"]]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    memory = [each for each in results if each.metric.endswith("_bytes")]
    return [each.series(memory) for each in results if each not in memory]


class _Result:
    """One series in Prometheus' answer: its labels, times and values."""

    def __init__(self, given: JsonObject) -> None:
        labels = {str(name): str(value) for name, value in given["metric"].items()}
        self.metric = labels.pop("__name__", "")
        self.labels = labels
        self.at_s = np.array([float(at_s) for at_s, _ in given["values"]])
        self.values = np.array([float(value) for _, value in given["values"]])

    def series(self, memory: list[_Result]) -> Series:
        """Return the samples of CPU use in this series, together with the memory use.

        `memory` contains all series of memory use in the answer. The memory use is taken from the
        series in `memory` that has the labels of this CPU series. If no series has these labels,
        but `memory` contains a single series, the memory use is taken from this single series. In
        all other cases the memory use is unknown (NaN).
        """
        rss = np.full(len(self.at_s), math.nan)
        same = [each for each in memory if each.labels == self.labels] or memory
        if len(same) == 1:
            rss = np.interp(self.at_s, same[0].at_s, same[0].values)
        names = tuple(self.labels.values()) or (self.metric or "query",)
        if not np.isfinite(self.values).all():
            raise LabError(
                f"Some values of Prometheus for {names[0]} are not numbers.", exit_code=1
            )
        if self.metric.endswith(_COUNTER):
            steps = np.diff(self.values, prepend=self.values[:1])
            # After a restart of the server, the counter begins at 0, so the step is negative. The
            # CPU time that was used since the restart is then the value of the counter itself.
            used_s = np.cumsum(np.where(steps < 0, self.values, steps))
            return Series(names, "wall", self.at_s, used_s, rss)
        times = [Time(float(at_s), "wall") for at_s in self.at_s]
        note = "" if self.metric else _IN_CORES
        return series_of_percents(names, times, list(100 * self.values), list(rss), note)
