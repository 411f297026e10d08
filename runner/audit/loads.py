"""What k6, wrk, hey and oha print of one load."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from runner.audit.values import Options, Row, as_bytes, as_ms, as_number, dict_of, sum_of


def _single(row: Row, source: str) -> Iterator[Row]:
    yield {"test": source, "subject": source, **row}


def k6(data: dict[str, Any], source: str, _options: Options) -> Iterator[Row]:
    """Yield k6's summary, of --summary-export or handleSummary: its iterations, as a user does one at a time."""
    metrics = {str(name): dict_of(each.get("values", each)) for name, each in data["metrics"].items() if dict_of(each)}

    def found(metric: str, *names: str) -> Any:
        values = metrics.get(metric, {})
        return next((values[name] for name in names if name in values), None)

    times = {"mean_ms": "avg", "min_ms": "min", "p50_ms": "med", "max_ms": "max"}
    times |= {f"p{q}_ms": f"p({q})" for q in (90, 95, 99)}
    requests, failed = as_number(found("http_reqs", "count")), as_number(found("http_req_failed", "rate", "value"))
    shared = {"load_model": "open" if "dropped_iterations" in metrics else "closed"}
    answers = {name: found("http_req_duration", key) for name, key in times.items()}
    counts = {"requests": requests, "rate": found("http_reqs", "rate"), "errors": failed * requests}
    yield from _single({**shared, **answers, **counts, "row": "requests"}, source)
    users, rate = found("vus_max", "value", "max"), found("iterations", "rate")
    loops = {"connections": users, "rate": rate, "mean_ms": found("iteration_duration", "avg"), "row": "iterations"}
    yield from _single({**shared, **loops}, source)


WRK = re.compile(r"^Running (\S{1,20}) test @", re.M)
LATENCY = re.compile(r"^\s+Latency\s+(\S+)\s+(\S+)\s+(\S+)", re.M)
QUANTILE = re.compile(r"^\s+([\d.]{1,8})%\s+(?:in\s+)?(\S+)(?:\s+(secs?|ms|us))?\s*$", re.M)


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.M)
    return found[1] if found else None


def _quantiles(text: str) -> Row:
    wanted = {50.0: "p50_ms", 90.0: "p90_ms", 95.0: "p95_ms", 99.0: "p99_ms"}
    said = {as_number(share): as_ms(f"{value}{unit}") for share, value, unit in QUANTILE.findall(text)}
    return {name: said[share] for share, name in wanted.items() if share in said}


def wrk(text: str, source: str, _options: Options) -> Iterator[Row]:
    """Yield what wrk or wrk2 prints; each thread opens connections / threads, rounded down."""
    latency = LATENCY.search(text)
    times = latency.groups() if latency else (None, None, None)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    wrong = as_number(_found(r"Non-2xx or 3xx responses: (\d{1,18})", text))
    socket = sum(map(as_number, errors.groups())) if errors else 0.0
    opened = re.search(r"([1-9]\d{0,8}) threads and (\d{1,9}) connections", text)
    yield from _single(
        {
            "connections": opened and int(opened[2]) // int(opened[1]) * int(opened[1]),
            "mean_ms": as_ms(times[0]), "stdev_ms": as_ms(times[1]), "max_ms": as_ms(times[2]),
            **_quantiles(text),
            "rate": _found(r"^Requests/sec:\s+([\d.]{1,20})", text),
            "requests": _found(r"^\s+(\d{1,18}) requests in", text),
            "duration_s": as_ms(_found(r"requests in (\S{1,20}),", text)) / 1e3,
            "bytes_per_s": as_bytes(_found(r"^Transfer/sec:\s+(\S{1,20})", text)),
            "errors": socket + (0 if math.isnan(wrong) else wrong),
            "load_model": "open" if "Thread calibration" in text else "closed", "tool": "wrk",
        },
        source,
    )  # fmt: skip


def is_hey(text: str) -> bool:
    """Return whether a text is what hey or oha prints."""
    return "Summary:" in text and "Requests/sec:" in text and "Slowest:" in text


def hey(text: str, source: str, _options: Options) -> Iterator[Row]:
    """Yield what hey or oha print."""

    def time(name: str) -> float:
        found = re.search(rf"^\s+{name}:\s+([\d.]{{1,20}})\s*(secs?|ms|us|µs)?", text, re.M)
        return as_ms(f"{found[1]}{found[2] or 's'}") if found else math.nan

    statuses = [
        (int(code), as_number(count)) for code, count in re.findall(r"^\s+\[(\d{3})\]\s+(\d{1,18}) res", text, re.M)
    ]
    yield from _single(
        {
            "rate": _found(r"Requests/sec:\s+([\d.]{1,20})", text), "mean_ms": time("Average"),
            "min_ms": time("Fastest"), "max_ms": time("Slowest"), "duration_s": time("Total") / 1e3,
            **_quantiles(text), "load_model": "closed",
            "requests": sum(count for _, count in statuses) or None,
            "errors": sum(count for code, count in statuses if code >= 400),
        },
        source,
    )  # fmt: skip


def oha(data: dict[str, Any], source: str, _options: Options) -> Iterator[Row]:
    """Yield what oha writes as JSON."""
    summary, quantiles, codes = (
        dict_of(data.get(name)) for name in ("summary", "latencyPercentiles", "statusCodeDistribution")
    )
    times = {"mean_ms": summary.get("average"), "min_ms": summary.get("fastest"), "max_ms": summary.get("slowest")}
    times |= {f"p{q}_ms": quantiles.get(f"p{q}") for q in (50, 90, 95, 99)}
    yield from _single(
        {
            "rate": summary.get("requestsPerSec"), "duration_s": summary.get("total"), "load_model": "closed",
            **{name: 1e3 * as_number(seconds) for name, seconds in times.items()},
            "requests": sum_of(codes, codes), "errors": sum_of(codes, [code for code in codes if str(code) >= "400"]),
            "bytes_per_s": summary.get("sizePerSec"),
        },
        source,
    )  # fmt: skip
