"""Search for the highest arrival rate at which a server meets an objective.

The search bisects the logarithm of the rate. Each step is a trial.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.model import LabError, Trial
from runner.shapes import Search

FEWEST_BEYOND = 10
"""A percentile is estimated only if at least this many requests take longer than the percentile.

With fewer requests, the percentile depends on single requests. For example, p99 of 100 requests is
just the slowest request.
"""
NARROW = 1.05
"""A bracket is narrow if its higher rate is at most this many times its lower rate.

A `Bracket` consists of two rates, between which the result of a search lies. Once the bracket is
narrow, the next step confirms that the server keeps the objective at the lower rate.
"""
ROUNDING_RPS = 1.0
"""A bracket is also narrow if its higher rate is at most its lower rate x NARROW + ROUNDING_RPS.

Without this tolerance, a bracket might never be narrow, because the rates of steps are rounded to
whole numbers.
"""
_OBJECTIVE = re.compile(r"(p50|p90|p95|p99|p999)\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*ms")


@dataclass(frozen=True)
class Objective:
    """A condition on response times: the upper limit of a percentile, in milliseconds."""

    percentile: str
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read an objective such as `p99 <= 10 ms`; raise LabError if the text is no objective."""
        found = _OBJECTIVE.fullmatch(text.strip())
        if found is None:
            raise LabError(
                f"{text!r} is not an objective: write a percentile (p50, p90, p95, p99 or "
                "p999) and its upper limit, such as 'p99 <= 10 ms'."
            )
        return cls(found[1], float(found[2]))

    @property
    def text(self) -> str:
        """The objective as campaign files contain it, such as `p99 <= 10 ms`."""
        return f"{self.percentile} <= {self.limit_ms:g} ms"

    @property
    def least_requests(self) -> int:
        """Number of requests that a trial needs so that the percentile can be estimated.

        With this number, FEWEST_BEYOND requests take longer than the percentile. For p99 the trial
        needs 1,000 requests, and for p999 it needs 10,000 requests.
        """
        return round(FEWEST_BEYOND / (1 - float(f"0.{self.percentile[1:]}")))

    def kept(self, metrics: Mapping[str, float | int | None]) -> bool:
        """Return True if a trial sustained the offered rate, and kept the percentile's limit.

        `metrics` are the trial's metrics.
        """
        measured = metrics.get(f"latency_{self.percentile}_ms")
        return bool(metrics.get("sustained")) and measured is not None and measured <= self.limit_ms


@dataclass(frozen=True)
class Bracket:
    """Two rates of a search: at the lower rate the objective was kept, at the higher rate broken.

    The result of the search lies between the two rates.
    """

    kept_rps: float
    """Highest rate at which the objective was kept; 0 if it was never kept."""
    broken_rps: float
    """Lowest rate at which the objective was broken; infinite if it was never broken."""


def bracket(outcomes: Iterable[tuple[float, bool]]) -> Bracket:
    """Return the bracket that follows from the steps of one search so far.

    `outcomes` contains, for each step, the rate and whether the objective was kept. The
    higher end of the bracket is the lowest rate at which the objective was broken, because a rising
    load reaches this rate first. If a step at an even higher rate kept the objective, this step is
    ignored, because its success was chance.
    """
    steps = list(outcomes)
    broken_rps = min((rate for rate, kept in steps if not kept), default=math.inf)
    kept_rps = max((rate for rate, kept in steps if kept and rate < broken_rps), default=0.0)
    return Bracket(kept_rps, broken_rps)


SEARCH = (
    "server",
    "workload",
    "mode",
    "pool_size",
    "vus",
    "objective",
    "search_low_rps",
    "search_high_rps",
    "step_s",
)
"""Columns of a cell that identify a search within a block.

The cells of all steps of a search have the same values in these columns.
"""


class Searches:
    """The results of a run's searches so far, which decide the rate of each search's next step."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._outcomes: dict[tuple[Any, ...], list[tuple[float, bool]]] = defaultdict(list)
        self._failed: set[tuple[Any, ...]] = set()
        for record in records:
            self.note(record)

    def note(self, record: Mapping[str, Any]) -> None:
        """Add the result in a trial's record. Ignore a trial that is not a step of a search.

        A sealed trial shows whether the objective was kept at the trial's rate. A failed trial is
        ignored once per rate, so that the next step tries this rate again. If a second trial fails
        at this rate, or if the server died under the load, the objective counts as broken at this
        rate.
        """
        cell = record["cell"]
        rate = cell.get("rate_rps")
        if cell.get("objective") is None or rate is None:
            return
        key = _key(record["block"], cell)
        if record["status"] == "sealed":
            self._outcomes[key].append((rate, bool(record["metrics"]["objective_kept"])))
        elif record["status"] == "failed":
            died = (record.get("measurement") or {}).get("died") is not None
            if died or (key, rate) in self._failed:
                self._outcomes[key].append((rate, False))
            self._failed.add((key, rate))

    def settle(self, trial: Trial) -> Trial:
        """Return the trial with its arrival rate if the trial is a step of a search.

        The rate is the geometric mean of the two ends of the bracket so far. The first bracket
        reaches from the search's lowest to its highest rate. If the bracket is narrow, the rate is
        the lower end of the bracket, so that the step confirms this end. A trial that is no step of
        a search is not changed.
        """
        cell = trial.cell
        if not isinstance(cell.shape, Search):
            return trial
        known = bracket(self._outcomes[_key(trial.block, vars(cell.columns()))])
        low_rps = known.kept_rps or cell.shape.low_rps
        high_rps = min(known.broken_rps, cell.shape.high_rps)
        is_narrow = high_rps <= NARROW * low_rps + ROUNDING_RPS
        rate_rps = float(round(low_rps if is_narrow else math.sqrt(low_rps * high_rps)))
        settled = replace(cell.shape, rate_rps=rate_rps)
        return replace(trial, cell=replace(cell, shape=settled))


def steps_between(low_rps: float, high_rps: float) -> int:
    """Return the number of steps of a search between two rates.

    The search continues until the bracket is narrow, and then needs one more step to confirm the
    lower rate. With each step, the ratio of the bracket's two rates becomes its square root.
    """
    halvings = math.log2(math.log(high_rps / low_rps) / math.log(NARROW))
    return max(1, math.ceil(halvings)) + 1


def _key(block: int, cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return block, *(cell.get(name) for name in SEARCH)
