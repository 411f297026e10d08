"""Read k6's end-of-test summaries: three JSON formats, and the text that k6 prints."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.audit.formats.values import (
    PRINTED_QUANTILES,
    JsonObject,
    Row,
    as_number,
    dict_of,
    dicts_of,
    duration_ms,
    value_of,
)

Metrics = Mapping[str, Mapping[str, Any]]
"""The values of each metric, under the names that `--summary-export` uses."""
BUSY = 0.9
"""Smallest mean share of busy users at which a load counts as closed.

A user is busy while an iteration of the user is under way. The users of a closed load are always
busy.
"""
_TREND = {"mean_ms": "avg", "min_ms": "min", "p50_ms": "med", "max_ms": "max"}
_QUANTILES = {f"p{percent}_ms": f"p({percent})" for percent in PRINTED_QUANTILES[1:]}


def rows_of_metrics(metrics: Metrics, source: str, duration_s: float = math.nan) -> Iterator[Row]:
    """Yield the rows of a summary of k6: one for its requests, and one for its iterations.

    If the summary has no iterations, yield only the row for the requests. In the row for the
    iterations, the column `connections` has the number of users, because each user runs one
    iteration at a time.
    """
    shared = {
        "test": source,
        "subject": source,
        "tool": "k6",
        "load_model": load_model(metrics),
        "duration_s": duration_s,
    }
    requests = _number(metrics, "http_reqs", "count")
    failed = _number(metrics, "http_req_failed", "rate", "value")
    answers = metrics.get("http_req_duration", {})
    times = {ours: answers.get(theirs) for ours, theirs in (_TREND | _QUANTILES).items()}
    yield (
        shared
        | times
        | {
            "row": "requests",
            "requests": requests,
            "rate": _number(metrics, "http_reqs", "rate"),
            "errors": failed * requests,
            "failed_checks_pct": _failed_checks_pct(metrics),
        }
    )
    if "iterations" in metrics:
        yield shared | {
            "row": "iterations",
            "connections": _number(metrics, "vus_max", "value", "max"),
            "rate": _number(metrics, "iterations", "rate"),
            "requests": _number(metrics, "iterations", "count"),
            "mean_ms": _number(metrics, "iteration_duration", "avg"),
        }


def load_model(metrics: Metrics) -> str:
    """Return the load model that a summary shows: `open`, `closed` or `unknown`.

    Only an open load has dropped iterations. If there are no dropped iterations and the users were
    nearly always busy (BUSY), the load is closed. Otherwise the load model is unknown, because
    there are several reasons why users can be idle: the next iteration is not due yet (in an open
    load), they pause, or they are added step by step.
    """
    if "dropped_iterations" in metrics:
        return "open"
    users = _number(metrics, "vus_max", "value", "max")
    rate = _number(metrics, "iterations", "rate")
    busy = rate * _number(metrics, "iteration_duration", "avg") / 1000 / users
    return "closed" if busy >= BUSY else "unknown"


def _failed_checks_pct(metrics: Metrics) -> float:
    """Return the share of the script's checks that failed, in percent, or NaN without checks."""
    passed = _number(metrics, "checks", "rate", "value")
    if math.isnan(passed):
        passed = _number(metrics, "checks_succeeded", "rate")
    return 100 * (1 - passed)


def _number(metrics: Metrics, metric: str, *names: str) -> float:
    """Return the value under the first of `names` that the metric has, or NaN if it has none."""
    values = metrics.get(metric, {})
    known = [as_number(values[name]) for name in names if name in values]
    return known[0] if known else math.nan


def is_summary(data: JsonObject) -> bool:
    """Return True if an object is a summary of `--summary-export` or handleSummary."""
    return "http_reqs" in dict_of(data.get("metrics"))


def summary(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the rows of a summary of `--summary-export` or handleSummary."""
    metrics = {
        str(name): dict_of(each.get("values", each))
        for name, each in data["metrics"].items()
        if dict_of(each)
    }
    duration_s = as_number(dict_of(data.get("state")).get("testRunDurationMs")) / 1000
    yield from rows_of_metrics(metrics, source, duration_s)


def is_schema_1(data: JsonObject) -> bool:
    """Return True if an object is the machine-readable summary of k6 2.x."""
    metrics = dicts_of(dict_of(data.get("results")).get("metrics"))
    return any(each.get("name") == "http_reqs" for each in metrics)


def schema_1(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the rows of the machine-readable summary of k6 2.x, schema 1.0."""
    metrics = {
        str(each.get("name")): _named_as_exported(dict_of(each.get("values")))
        for each in dicts_of(dict_of(data.get("results")).get("metrics"))
    }
    duration_s = as_number(dict_of(data.get("config")).get("duration"))
    yield from rows_of_metrics(metrics, source, duration_s)


def _named_as_exported(values: JsonObject) -> JsonObject:
    """Return a metric's values under the names of `--summary-export`: `p95` becomes `p(95)`."""
    return {re.sub(r"^p([\d.]+)$", r"p(\1)", str(name)): each for name, each in values.items()}


# --- the summary that k6 prints as text -----------------------------------------------------------

_MARK = r"^\s*(?:[✓✗]\s{1,8})?"  # k6 prints a mark before metrics with thresholds
_LINE = re.compile(rf"{_MARK}(\w{{1,80}})\.*:\s+(\S.{{0,400}})$")
_PAIR = re.compile(r"(avg|min|med|max|p\([\d.]{1,8}\)|count)=(\S{1,40})")
_PER_SECOND = re.compile(r"(\d[\d.]{0,20})\s+(\d[\d.]{0,20})/s")
_SHARE = re.compile(r"(\d[\d.]{0,20})%")
_REQUESTS = re.compile(rf"{_MARK}http_reqs\.*:\s+\d", re.M)
_RUNNING = re.compile(r"^running \(([\dhms.]{1,20})\)", re.M)


def begins_of_text(text: str) -> Iterator[int]:
    """Yield the offsets at which the summaries in a text begin.

    To find the beginning of a summary, go up from its line of `http_reqs` as long as k6 may have
    printed the lines. These are empty lines, indented lines, and lines that begin with a mark or a
    word of k6.
    """
    for match in _REQUESTS.finditer(text):
        begin = text.rfind("\n", 0, match.start() + 1) + 1
        while begin > 0:
            before = text.rfind("\n", 0, begin - 1) + 1
            line = text[before : begin - 1]
            if line.strip() and not line.startswith(
                (" ", "\t", "█", "✓", "✗", "running", "default")
            ):
                break
            begin = before
        yield begin


def printed(text: str, source: str) -> Iterator[Row]:
    """Yield the rows of a summary that k6 printed."""
    metrics: dict[str, JsonObject] = {}
    for line in text.splitlines():
        if (found := _LINE.match(line)) is not None:
            metrics.setdefault(found[1], _printed_values(found[2]))
    running = [duration_ms(each) / 1000 for each in _RUNNING.findall(text)]
    yield from rows_of_metrics(metrics, source, running[-1] if running else math.nan)


def _printed_values(said: str) -> JsonObject:
    """Return the values of a printed metric, under the names of `--summary-export`."""
    if pairs := _PAIR.findall(said):
        values: JsonObject = {name: value_of("_ms", value) for name, value in pairs}
    elif rate := _PER_SECOND.match(said):
        return {"count": as_number(rate[1]), "rate": as_number(rate[2])}
    elif share := _SHARE.match(said):
        return {"rate": as_number(share[1]) / 100}
    else:
        values = {}
    if first := re.match(r"(\d{1,12})\b(?!\.)", said):
        values["value"] = as_number(first[1])
    return values
