"""Evaluate the thresholds of a k6 script from raw samples, and describe the script's own metrics.

A threshold follows k6's grammar (metrics/thresholds_parser.go): an aggregation, an operator and a
number, such as `p(95)<200`. Percentiles interpolate between order statistics, as in k6. The rate of
a counter is the counter's total divided by the time from the start of the first request to the end
of the last request. k6 itself divides by the duration of the whole test, so k6's rate may differ
slightly.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.k6 import quantiles_of
from runner.digest.k6_raw import KNOWN, Tally
from runner.digest.watched import Selection, Watch, selection_of
from runner.model import Trial, carried_percent
from runner.store import Values, read_json, replacing

KINDS = {
    **dict.fromkeys(("http_reqs", "iterations", "dropped_iterations"), "counter"),
    **dict.fromkeys(("data_sent", "data_received", "ws_sessions", "ws_msgs_sent"), "counter"),
    "ws_msgs_received": "counter",
    **dict.fromkeys(("http_req_failed", "checks"), "rate"),
    **dict.fromkeys(("vus", "vus_max"), "gauge"),
}
"""Kind of each built-in metric of k6 that is not a trend, by the metric's name."""
OWN_TRENDS = ("http_req_", "iteration_duration", "group_duration", "ws_", "grpc_req_")
"""Prefixes of the names of those built-in metrics of k6 that are trends."""
UNWATCHED = (*KNOWN, "data_sent", "data_received", "http_req_failed")
"""Metrics whose points are kept only if a threshold needs them.

The points of all other metrics are always kept.
"""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "===": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_EXPRESSION = re.compile(
    rf"\s*(count|rate|value|avg|min|max|med|p\(\s*({_NUMBER})\s*\))\s*"
    rf"(>=|<=|>|<|===|==|!=)\s*({_NUMBER})\s*"
)
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True)
class Stated:
    """A threshold, and whether k6 reported that the load kept it."""

    metric: str
    """The metric with its tags: `http_req_duration{name:slow}`."""
    expression: str
    kept: bool | None = None
    """None if k6's summary does not say whether the threshold was kept."""


@dataclass(frozen=True)
class StatedByK6:
    """The thresholds and the kinds of the metrics in a summary that k6 wrote."""

    thresholds: tuple[Stated, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def selections(self) -> list[Selection]:
        """The selections whose points are needed to evaluate the thresholds."""
        found = (selection_of(each.metric) for each in self.thresholds)
        return [each for each in found if each is not None]


def read_stated(path: Path) -> StatedByK6:
    """Return the thresholds and the kinds of metrics in a summary that read_summary() accepts.

    A summary has one of three forms. In the file of `--summary-export`, the value of a threshold is
    true if the threshold was crossed. In the data of handleSummary(), the value of a threshold is
    an object whose member `ok` is true if the threshold was kept. k6's machine-readable summary has
    no thresholds, so for this form return an empty object.
    """
    metrics = read_json(path).get("metrics")
    if not isinstance(metrics, dict):
        return StatedByK6()
    stated = []
    kinds = {}
    for name, known in metrics.items():
        if not isinstance(known, dict):
            continue
        kinds[name] = str(known.get("type") or _kind_of(known))
        given = known.get("thresholds")
        for expression, verdict in given.items() if isinstance(given, dict) else ():
            stated.append(Stated(name, expression, _kept(verdict)))
    return StatedByK6(tuple(stated), kinds)


def _kept(verdict: object) -> bool | None:
    if isinstance(verdict, dict):
        ok = verdict.get("ok")
        return ok if isinstance(ok, bool) else None
    return not verdict if isinstance(verdict, bool) else None


def _kind_of(values: Mapping[str, Any]) -> str:
    """Return the kind of a metric, derived from the names of its values in --summary-export."""
    if "passes" in values:
        return "rate"
    if "count" in values and "avg" not in values:
        return "counter"
    return "gauge" if "value" in values else "trend"


@dataclass(frozen=True)
class _Sink:
    """The aggregates of a selection's points. If there are no points, all aggregates are 0.

    A selection consists of all points of a metric, or only of the points that have certain tags.
    """

    points: int
    total: float
    nonzero: int
    mean: float
    least: float
    most: float
    last: float


_SINK = """
    SELECT count(*) AS points, coalesce(fsum(value), 0) AS total,
           count(*) FILTER (value <> 0) AS nonzero, coalesce(fsum(value) / count(*), 0) AS mean,
           coalesce(min(value), 0) AS least, coalesce(max(value), 0) AS most,
           coalesce(arg_max(value, file_row_number), 0) AS last
    FROM watched WHERE selection = $number
"""


@dataclass(frozen=True, eq=False)
class Watched:
    """The selected points of a load, and the facts needed to aggregate them."""

    database: duckdb.DuckDBPyConnection
    watch: Watch
    tally: Tally
    stated: StatedByK6
    seconds: float
    """Duration of the load."""

    def kind(self, metric: str) -> str:
        """Return the kind of a metric; empty if it is not known."""
        said = self.tally.kinds.get(metric) or self.stated.kinds.get(metric)
        if said or metric in KINDS:
            return said or KINDS[metric]
        return "trend" if metric.startswith(OWN_TRENDS) else ""

    def sink(self, selection: Selection) -> _Sink:
        """Return the aggregates of a selection."""
        number = self.watch.numbers.get(selection, -1)
        found = self.database.sql(_SINK, params={"number": number}).to_arrow_table().to_pylist()
        return _Sink(**found[0])

    def quantiles(self, selection: Selection, percents: Mapping[str, float]) -> dict[str, float]:
        """Return percentiles of a selection's values; empty if the selection has no points."""
        number = self.watch.numbers.get(selection, -1)
        chosen = self.database.view("watched").filter(f"selection = {number}")
        chosen.project("value AS ms").order("ms").create("sorted_selection")
        shares = {name: percent / 100 for name, percent in percents.items()}
        found = dict(quantiles_of(self.database, "selection", shares))
        self.database.execute("DROP TABLE sorted_selection")
        return found

    def value(self, selection: Selection, aggregation: str, percent: str | None) -> float | None:
        """Return the number that a threshold compares with its limit, from a selection's points.

        `aggregation` and `percent` come from the threshold's expression, such as `p(95)<200`. If
        the aggregation is not a percentile, `percent` is None. Return None if the number cannot be
        computed, for example if the threshold is about the rate of a metric whose kind is unknown.
        """
        if percent is not None and not 0 <= float(percent) <= 100:
            return None
        if percent is not None:
            return self.quantiles(selection, {"it": float(percent)}).get("it", 0.0)
        if aggregation == "med":
            return self.quantiles(selection, {"it": 50.0}).get("it", 0.0)
        sink = self.sink(selection)
        if aggregation == "rate":
            return self._rate(selection, sink)
        of_sink = {
            "count": sink.total,
            "value": sink.last,
            "avg": sink.mean,
            "min": sink.least,
            "max": sink.most,
        }
        return of_sink[aggregation]

    def _rate(self, selection: Selection, sink: _Sink) -> float | None:
        kind = self.kind(selection.metric)
        if kind == "counter":
            return sink.total / max(self.seconds, 1e-9)
        return sink.nonzero / max(1, sink.points) if kind == "rate" else None


def threshold_rows(watched: Watched, known_tags: Sequence[str] | None) -> list[Values]:
    """Return a row for each threshold: the measured value, and whether the threshold was kept.

    `known_tags` are the tags that the lab reads from the file, or None if the lab reads all tags. A
    threshold's row has no value if the threshold needs a tag that the lab does not read, or does
    not follow k6's grammar.
    """
    announced = (
        Stated(metric, expression)
        for metric, expressions in watched.tally.thresholds.items()
        for expression in expressions
    )
    by_name = {(each.metric, each.expression): each for each in announced}
    by_name |= {(each.metric, each.expression): each for each in watched.stated.thresholds}
    return [_threshold_row(watched, each, known_tags) for each in by_name.values()]


def _threshold_row(watched: Watched, stated: Stated, known_tags: Sequence[str] | None) -> Values:
    row: Values = {
        "metric": stated.metric,
        "threshold": stated.expression,
        "kept_by_k6": stated.kept,
    }
    selection = selection_of(stated.metric)
    expression = _EXPRESSION.fullmatch(stated.expression)
    if selection is None or expression is None or selection not in watched.watch.numbers:
        return row
    if known_tags is not None and not {name for name, _ in selection.tags} <= set(known_tags):
        return row
    aggregation, percent, sign, limit = expression.groups()
    value = watched.value(selection, aggregation, percent)
    if value is None or not math.isfinite(value):
        return row
    return {**row, "value": value, "kept": _OPERATORS[sign](value, float(limit))}


def metric_rows(watched: Watched) -> list[Values]:
    """Return a row for each metric in the file that is not in UNWATCHED.

    Most of these metrics are defined by the script, or belong to a protocol other than HTTP, for
    example to WebSockets or gRPC.
    """
    return [
        _metric_row(watched, each)
        for each in watched.watch.numbers
        if not each.tags and each.metric not in UNWATCHED
    ]


def _metric_row(watched: Watched, selection: Selection) -> Values:
    sink = watched.sink(selection)
    carried = carried_percent(sink.points)
    percents = {
        name: percent
        for name, percent in PERCENTILES.items()
        if carried is not None and percent <= carried
    }
    kind = watched.kind(selection.metric)
    is_rate = kind == "rate"
    return {
        "metric": selection.metric,
        "kind": kind or None,
        "points": sink.points,
        "total": sink.total,
        "share": sink.nonzero / max(1, sink.points) if is_rate else None,
        "mean": sink.mean,
        "least": sink.least,
        "most": sink.most,
        **watched.quantiles(selection, percents),
    }


def write_watched(
    parts: Mapping[str, Path], trial: Trial, watched: Watched, known_tags: Sequence[str] | None
) -> None:
    """Write a trial's parts of the tables `thresholds` and `metrics`.

    `parts` has the path of each part, by the name of the table. `known_tags` are the tags that the
    lab reads from the file, or None if the lab reads all tags.
    """
    write_rows(parts["thresholds"], "thresholds", trial, threshold_rows(watched, known_tags))
    write_rows(parts["metrics"], "metrics", trial, metric_rows(watched))


def write_rows(path: Path, table: str, trial: Trial, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a trial's part of a table, which is a file with the trial's rows of the table.

    `path` is the path of the part. `table` is the name of the table, which must be a table about
    users' scripts. `rows` are the trial's rows without the columns `trial_id`, `server` and `load`,
    which this function adds.
    """
    known = {
        "trial_id": trial.trial_id,
        "server": trial.cell.server,
        "load": trial.cell.load_id,
    }
    whole = [{**known, **row} for row in rows]
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(whole, schema=schema_of(table)), temporary)
