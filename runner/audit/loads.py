"""What k6, wrk, hey and oha print of one load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.audit.values import Row, as_number, dict_of, sum_of

QUANTILES = (50, 90, 95, 99)


def k6(data: dict[str, Any], source: str, _: object) -> Iterator[Row]:
    """Yield k6's summary, of --summary-export or handleSummary: its iterations, as a user does one at a time."""
    metrics = {str(name): dict_of(each.get("values", each)) for name, each in data["metrics"].items() if dict_of(each)}

    def found(metric: str, *names: str) -> Any:
        values = metrics.get(metric, {})
        return next((values[name] for name in names if name in values), None)

    model = "open" if "dropped_iterations" in metrics else "closed"
    shared = {"test": source, "subject": source, "load_model": model}
    times = {"mean_ms": "avg", "min_ms": "min", "p50_ms": "med", "max_ms": "max"}
    times |= {f"p{q}_ms": f"p({q})" for q in QUANTILES[1:]}
    requests, failed = as_number(found("http_reqs", "count")), as_number(found("http_req_failed", "rate", "value"))
    answers = {name: found("http_req_duration", key) for name, key in times.items()}
    counts = {"requests": requests, "rate": found("http_reqs", "rate"), "errors": failed * requests}
    yield {**shared, **answers, **counts, "row": "requests"}
    users, rate = found("vus_max", "value", "max"), found("iterations", "rate")
    loops = {"connections": users, "rate": rate, "mean_ms": found("iteration_duration", "avg"), "row": "iterations"}
    yield {**shared, **loops}


QUANTILE = re.compile(r"^\s+([\d.]{1,8})%\s+(?:in\s+)?(\S+)(?:\s+(secs?|ms|us))?\s*$", re.M)
WRK = {
    "mean_ms": r"^\s+Latency\s+(\S+)\s+\S+\s+\S+",
    "stdev_ms": r"^\s+Latency\s+\S+\s+(\S+)\s+\S+",
    "max_ms": r"^\s+Latency\s+\S+\s+\S+\s+(\S+)",
    "rate": r"^Requests/sec:\s+([\d.]{1,20})",
    "requests": r"^\s+(\d{1,18}) requests in",
    "duration_s": r"requests in (\S{1,20}),",
    "bytes_per_s": r"^Transfer/sec:\s+(\S{1,20})",
}
_TIME = r"\s+([\d.]{1,20}\s*(?:secs?|ms|us|µs)?)"
HEY = {
    "rate": r"Requests/sec:\s*([\d.]{1,20})",
    "mean_ms": rf"^\s+Average:{_TIME}",
    "min_ms": rf"^\s+Fastest:{_TIME}",
    "max_ms": rf"^\s+Slowest:{_TIME}",
    "duration_s": rf"^\s+Total:{_TIME}",
}


def _printed(text: str, source: str, patterns: Mapping[str, str], plain: str = "") -> Row:
    """Return what is printed, by columns; `plain` is the unit of times without one."""
    found = {column: match[1] for column, pattern in patterns.items() if (match := re.search(pattern, text, re.M))}
    times = {as_number(share): f"{value}{unit or plain}" for share, value, unit in QUANTILE.findall(text)}
    shown = {f"p{share}_ms": times[share] for share in QUANTILES if share in times}
    return {"test": source, "subject": source, **found, **shown}


def wrk(text: str, source: str, _: object) -> Iterator[Row]:
    """Yield what wrk or wrk2 prints; each thread opens connections / threads, rounded down."""
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    wrong = re.search(r"Non-2xx or 3xx responses: (\d{1,18})", text)
    opened = re.search(r"([1-9]\d{0,8}) threads and (\d{1,9}) connections", text)
    failed = (*(errors.groups() if errors else ()), *(wrong.groups() if wrong else ()))
    more: Row = {"connections": opened and int(opened[2]) // int(opened[1]) * int(opened[1]), "tool": "wrk"}
    more |= {"errors": sum(map(as_number, failed)), "load_model": "open" if "Thread calibration" in text else "closed"}
    yield _printed(text, source, WRK) | more


def hey(text: str, source: str, _: object) -> Iterator[Row]:
    """Yield what hey or oha print."""
    codes = {code: as_number(count) for code, count in re.findall(r"^\s+\[(\d{3})\]\s+(\d{1,18}) res", text, re.M)}
    wrong = sum(count for code, count in codes.items() if code >= "400")
    counts = {"requests": sum(codes.values()) or None, "errors": wrong, "load_model": "closed"}
    yield _printed(text, source, HEY, "s") | counts


def oha(data: dict[str, Any], source: str, _: object) -> Iterator[Row]:
    """Yield what oha writes as JSON."""
    named = ("summary", "latencyPercentiles", "statusCodeDistribution")
    summary, quantiles, codes = (dict_of(data.get(name)) for name in named)
    times = {"mean_ms": summary.get("average"), "min_ms": summary.get("fastest"), "max_ms": summary.get("slowest")}
    times |= {f"p{q}_ms": quantiles.get(f"p{q}") for q in QUANTILES}
    row: Row = {name: 1e3 * as_number(seconds) for name, seconds in times.items()}
    row |= {"rate": summary.get("requestsPerSec"), "duration_s": summary.get("total"), "load_model": "closed"}
    row |= {"requests": sum_of(codes, codes), "errors": sum_of(codes, [code for code in codes if str(code) >= "400"])}
    yield {"test": source, "subject": source, **row, "bytes_per_s": summary.get("sizePerSec")}
