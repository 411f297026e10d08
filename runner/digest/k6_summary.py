"""k6's end-of-test summary as written by `--summary-export=FILE`, for any user script.

k6 1.8 and 2.x write the same two shapes: the standard one, which has what --summary-trend-stats names, and that of
--new-machine-readable-summary, which knows no p(99) and no count. The lab asks for the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.model import LabError
from runner.store import read_json


@dataclass(frozen=True)
class TrendStats:
    """What k6 says of one trend, in ms; None where the summary does not tell."""

    count: int | None
    mean: float
    min: float
    p50: float
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    max: float


@dataclass(frozen=True)
class K6Summary:
    """Counts and statistics of one k6 run as k6 itself summed them up.

    `interrupted` is None: k6 writes the number of interrupted iterations to its log only.
    """

    iterations: int
    interrupted: int | None
    dropped: int
    requests: int
    rps: float | None
    """k6's own rate over its test run; None where it does not tell."""
    http_req_duration: TrendStats | None
    """None where no request was made."""
    iteration_max_ms: float | None
    checks: int = 0
    """How often a script's own check() was asked, and how often it failed (`checks_failed`)."""
    checks_failed: int = 0


def read_summary(path: Path) -> K6Summary:
    """Read the summary at `path`; LabError (exit code 1) where it is missing, broken or not a summary of k6."""
    data = read_json(path)
    try:
        metrics = _metrics(data)
        trend = metrics.get("http_req_duration")
        iteration = metrics.get("iteration_duration")
        kept, failed = (int(_number(metrics.get("checks", {}).get(name, 0))) for name in ("passes", "fails"))
        return K6Summary(
            iterations=_count(metrics, "iterations"),
            interrupted=None,
            dropped=_count(metrics, "dropped_iterations"),
            requests=_count(metrics, "http_reqs"),
            rps=_number(metrics["http_reqs"]["rate"]) if "rate" in metrics.get("http_reqs", {}) else None,
            http_req_duration=None if trend is None else _trend(trend),
            iteration_max_ms=None if iteration is None else _number(iteration["max"]),
            checks=kept + failed,
            checks_failed=failed,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise LabError(
            f"{path} is not an end-of-test summary of k6 ({type(error).__name__}: {error}).", exit_code=1
        ) from None


def _metrics(data: Any) -> dict[str, Mapping[str, Any]]:
    """Return the values of each metric by its name, from either shape."""
    if "results" in data:
        return {metric["name"]: metric["values"] for metric in data["results"]["metrics"]}
    return dict(data["metrics"])


def _count(metrics: Mapping[str, Mapping[str, Any]], name: str) -> int:
    """k6 leaves out a metric without samples: that is 0."""
    return int(_number(metrics[name]["count"])) if name in metrics else 0


def _trend(values: Mapping[str, Any]) -> TrendStats:
    def first(*names: str) -> float | None:
        return next((_number(values[name]) for name in names if name in values), None)

    count = first("count")
    return TrendStats(
        count=None if count is None else int(count),
        mean=_number(values["avg"]),
        min=_number(values["min"]),
        p50=_number(values["med"]),
        p90=first("p(90)", "p90"),
        p95=first("p(95)", "p95"),
        p99=first("p(99)", "p99"),
        p999=first("p(99.9)", "p99.9"),
        max=_number(values["max"]),
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
