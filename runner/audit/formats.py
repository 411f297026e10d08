"""Readers of other people's tables: JSON of leaderboards, CSV, output of k6, wrk, oha and hey.

The format is recognised by the content.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from runner.model import LabError

JsonObject = dict[str, Any]  # of a file of others: it may hold anything
Row = dict[str, Any]  # one load of one subject, by the columns of TEXTS and NUMBERS
TEXTS = (
    "source",
    "row",
    "test",
    "subject",
    "language",
    "mode",
    "load_model",
    "tool",
    "day",
    "missing",
)
NUMBERS = (
    *("connections", "depth", "rate", "target_rate", "rate_low", "rate_high"),
    *("mean_ms", "stdev_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"),
    *(
        "cpu_pct",
        "cpu_given_pct",
        "cpu_tolerance",
        "requests",
        "duration_s",
        "elapsed_s",
        "errors",
        "bytes_per_s",
    ),
)
"""Numeric columns of the frame; an unknown number is NaN.

`depth` is the number of requests under way per connection. `cpu_tolerance` is the relative error
with which CPU was measured or given. `missing` names the columns whose value
was a placeholder for "unknown", such as -1.
"""
PRINTED_QUANTILES = (50, 90, 95, 99)
BELOW = "<0"  # suffix of a name in `missing` if its value is negative but not -1
POSITIVE = tuple(
    name
    for name in NUMBERS
    if name not in ("errors", "stdev_ms", "cpu_pct", "min_ms", "target_rate")
)


class Format(NamedTuple):
    """A file format: how to recognise it by its content, and how to read it."""

    name: str
    of_json: bool  # True if the content is parsed JSON, False if it is text
    fits: Callable[[Any], bool]
    rows: Callable[[Any, str, Mapping[str, str]], Iterable[Row]]
    """Read (content, file name, columns of a CSV: ours -> theirs); return rows, with known
    columns.
    """


def as_number(value: Any) -> float:
    """Return a finite number, also from a text of digits; NaN for anything else."""
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        found = float(value.replace(",", "")) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def sum_of(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return the sum of the known numbers; NaN if none is known."""
    known = [number for name in names if (number := as_number(row.get(name))) >= 0]
    return sum(known) if known else math.nan


def list_of(value: Any) -> list[Any]:
    """Return the list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def dict_of(value: Any) -> JsonObject:
    """Return the object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[JsonObject]:
    """Return the objects in a list."""
    return [each for each in list_of(value) if isinstance(each, dict)]


# --- boards ---------------------------------------------------------------------------------------

ERRORS = ("4xx", "5xx", "connect", "read", "write", "timeout")
BY_QUERIES = {
    "query": "queryIntervals",
    "update": "queryIntervals",
    "cached_query": "cachedQueryIntervals",
}


def _techempower(data: JsonObject, *_: object) -> Iterator[Row]:
    levels = [
        as_number(each) for each in list_of(data.get("concurrencyLevels")) if as_number(each) > 0
    ]
    languages = {
        str(each.get("name")): each.get("language") for each in dicts_of(data.get("testMetadata"))
    }
    days = dict_of(data.get("completed"))
    duration_s = as_number(data.get("duration"))
    for name, subjects in data["rawData"].items():
        test = str(name).replace("-", "_")
        key = BY_QUERIES.get(
            test, "pipelineConcurrencyLevels" if test == "plaintext" else "concurrencyLevels"
        )
        steps = list_of(data.get(key))
        for subject, entries in dict_of(subjects).items():
            for place, entry in enumerate(map(dict_of, list_of(entries))):
                step = as_number(steps[place]) if place < len(steps) else math.nan
                requests = as_number(entry.get("totalRequests"))
                by_queries = test in BY_QUERIES
                yield {
                    "row": f"{name}.{subject}[{place}]",
                    "subject": subject,
                    "language": languages.get(str(subject)),
                    "test": f"{name}, {step:g} queries" if by_queries else name,
                    "connections": max(levels, default=math.nan) if by_queries else step,
                    "depth": 16 if test == "plaintext" else 1,
                    "day": str(days.get(subject) or "")[:8],
                    "mode": "keepalive",
                    "load_model": "closed",
                    "tool": "wrk",
                    "rate": requests / duration_s if duration_s > 0 else math.nan,
                    "requests": requests,
                    "duration_s": duration_s,
                    "errors": sum_of(entry, ERRORS),
                    "expected": ("rate", "mean_ms"),
                    "elapsed_s": as_number(entry.get("endTime"))
                    - as_number(entry.get("startTime")),
                    "mean_ms": entry.get("latencyAvg"),
                    "stdev_ms": entry.get("latencyStdev"),
                    "max_ms": entry.get("latencyMax"),
                }


def _arena_rows(data: Any, path: str = "") -> Iterator[JsonObject]:
    """Yield the rows of a leaderboard's list, of one framework's file, or of a file with several
    tests.
    """
    if isinstance(data, dict) and "rps" in data:
        yield {"test": path, **data}
    elif isinstance(data, dict) and path.count("/") < 3:
        for name, value in data.items():
            shared = {"framework": data["framework"]} if "framework" in data else {}
            yield from (
                {**shared, **row} for row in _arena_rows(value, f"{path}/{name}".strip("/"))
            )
    elif path.count("/") < 3:
        for each in dicts_of(data):
            yield from _arena_rows(each, path)


ARENA = {
    **{
        "subject": "framework",
        "language": "language",
        "connections": "connections",
        "depth": "pipeline",
    },
    **{
        "rate": "rps",
        "target_rate": "target_rate",
        "mean_ms": "avg_latency",
        "p99_ms": "p99_latency",
    },
    **{"cpu_pct": "cpu", "bytes_per_s": "bandwidth", "duration_s": "duration"},
}


def _arena(data: Any, source: str, _: object) -> Iterator[Row]:
    for row in _arena_rows(data):
        yield {
            **{ours: row.get(theirs) for ours, theirs in ARENA.items()},
            "test": row["test"] or source.rsplit(".", 1)[0],
            "cpu_given_pct": 100 * as_number(row.get("threads")),
            "expected": ("rate", "mean_ms", "p99_ms"),
            "requests": sum_of(row, (f"status_{each}xx" for each in (2, 3, 4, 5))),
            "errors": sum_of(row, ("status_4xx", "status_5xx")),
            "load_model": "open" if as_number(row.get("target_rate")) > 0 else "closed",
            "mode": "close" if as_number(row.get("reconnects")) > 0 else "",
        }


LABELS = {
    "total_requests_per_s": "rate",
    "total_requests": "requests",
    "duration_ms": "duration_s",
    "average_latency": "mean_ms",
    "standard_deviation": "stdev_ms",
    "minimum_latency": "min_ms",
    "percentile50": "p50_ms",
    "percentile90": "p90_ms",
    "percentile99": "p99_ms",
    "http_errors": "errors",
}
IN_US = 20.0
"""If the median of all p50 is above this, the values are microseconds, as in older files."""


def _web_frameworks(data: JsonObject, *_: object) -> Iterator[Row]:
    named = {str(each.get("id")): each for each in dicts_of(data.get("frameworks"))}
    cells: dict[tuple[str, float], Row] = {}
    for metric in dicts_of(data["metrics"]):
        key = str(metric.get("framework_id")), as_number(metric.get("level"))
        if (column := LABELS.get(str(metric.get("label")))) is not None:
            cells.setdefault(key, {})[column] = as_number(metric.get("value"))
    middle = pd.Series(
        [row["p50_ms"] for row in cells.values() if row.get("p50_ms", -1) > 0], dtype=float
    ).median()
    scale = 1e-3 if middle > IN_US else 1e3
    for (identity, level), row in cells.items():
        known = named.get(identity, {})
        times = {
            name: value * scale if value != -1 else -1
            for name, value in row.items()
            if name.endswith("_ms")
        }
        yield {
            **row,
            **times,
            "duration_s": row.get("duration_s", math.nan) / 1e3,
            "connections": level,
            "subject": known.get("label") or f"framework {identity}",
            "language": known.get("language"),
            "row": f"framework {identity}, level {level:g}",
            "test": "requests",
            "load_model": "closed",
            "day": str(data.get("updated_at") or "")[:10],
        }


# --- CSV ------------------------------------------------------------------------------------------

ALIASES = {
    "rate": (
        "rps",
        "requests_per_second",
        "requests_per_second_median",
        "req_per_sec",
        "requests/s",
        "requests/sec",
    ),
    "connections": ("concurrency", "clients", "vus", "connections"),
    "subject": ("framework", "server", "name", "subject"),
    "test": ("test", "scenario", "workload"),
    "mean_ms": ("latency_mean_ms", "latency_avg_ms", "mean_ms", "avg_ms"),
    "duration_s": ("duration", "seconds"),
    "language": ("language",),
}
"""Our column -> CSV headers read as that column, unless `--map` says otherwise."""


def _csv_rows(text: str) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), restkey="")
    try:
        for row in reader:
            yield {
                str(name).strip(): value for name, value in row.items() if isinstance(value, str)
            }
    except csv.Error as error:
        raise LabError(
            f"The CSV cannot be read from line {reader.line_num} on: {error}.", exit_code=1
        ) from None


def _header(text: str) -> list[str]:
    return [
        name.strip()
        for name in next(csv.reader([re.split(r"[\r\n]", text, maxsplit=1)[0][:10_000]]), [])
    ]


PUBLISHED = {
    "rps": "rate",
    **{f"latency_p{q}": f"p{q}_ms" for q in PRINTED_QUANTILES},
    "cpu_peak": "cpu_pct",
}


def _published(text: str, *_: object) -> Iterator[Row]:
    """Yield a row for each load and server of a CSV with one number per line.

    data/published.csv has this form.
    """
    cells: dict[tuple[str, ...], Row] = {}
    for row in _csv_rows(text):
        key = tuple(
            row.get(name, "")
            for name in ("source", "scenario", "load", "server", "mode", "connections")
        )
        cell = cells.setdefault(
            key,
            {
                "test": f"{key[1]} ({key[0]})",
                "subject": key[3],
                "mode": key[4],
                "connections": key[5],
                "language": row.get("language"),
                "load_model": "open" if "ramping" in key[2] else "closed",
            },
        )
        if (column := PUBLISHED.get(row.get("metric", ""))) is not None:
            cell[column] = row.get("value")
    yield from cells.values()


def _csv(text: str, source: str, renamed: Mapping[str, str]) -> Iterator[Row]:
    header = _header(text)
    by_name = {name.lower(): name for name in reversed(header)}
    columns = {
        ours: by_name[name]
        for ours, names in ALIASES.items()
        for name in reversed(names)
        if name in by_name
    }
    columns |= {name: name for name in (*NUMBERS, "load_model", "day") if name in header}
    for name, theirs in renamed.items():
        ours = {"rps": "rate"}.get(name, name.removeprefix("latency_"))
        if theirs not in header or ours not in (*NUMBERS, *TEXTS):
            what = f"no column {theirs!r}" if theirs not in header else f"no quantity {ours!r}"
            raise LabError(
                f"--map: {source} has {what}; its columns are {', '.join(header)}.", exit_code=1
            )
        columns[ours] = theirs
    if "rate" not in columns:
        what = f"{source} has no column that is known as a rate: name one by --map rps=NAME"
        raise LabError(f"{what}, of {', '.join(header)}.", exit_code=1)
    versions = [
        name
        for name in ("mode", "version", "framework_version")
        if name in set(header) - {*columns.values()}
    ]
    expected = tuple(name for name in columns if name in NUMBERS)
    for row in _csv_rows(text):
        found: Row = {ours: row.get(theirs) for ours, theirs in columns.items()}
        subject = " ".join(
            [found.get("subject") or "", *(row.get(name) or "" for name in versions)]
        ).strip()
        yield {**found, "mode": row.get("mode"), "subject": subject, "expected": expected}


# --- output of load generators --------------------------------------------------------------------


def _k6(data: JsonObject, source: str, _: object) -> Iterator[Row]:
    """Yield k6's summary, of --summary-export or handleSummary.

    Rates are of iterations, because each user runs one iteration at a time.
    """
    metrics = {
        str(name): dict_of(each.get("values", each))
        for name, each in data["metrics"].items()
        if dict_of(each)
    }

    def found(metric: str, *names: str) -> Any:
        values = metrics.get(metric, {})
        return next((values[name] for name in names if name in values), None)

    model = "open" if "dropped_iterations" in metrics else "closed"
    shared = {"test": source, "subject": source, "load_model": model}
    times = {"mean_ms": "avg", "min_ms": "min", "p50_ms": "med", "max_ms": "max"}
    times |= {f"p{q}_ms": f"p({q})" for q in PRINTED_QUANTILES[1:]}
    requests = as_number(found("http_reqs", "count"))
    failed = as_number(found("http_req_failed", "rate", "value"))
    answers = {name: found("http_req_duration", key) for name, key in times.items()}
    counts = {"requests": requests, "rate": found("http_reqs", "rate"), "errors": failed * requests}
    yield {**shared, **answers, **counts, "row": "requests"}
    users = found("vus_max", "value", "max")
    rate = found("iterations", "rate")
    loops = {
        "connections": users,
        "rate": rate,
        "mean_ms": found("iteration_duration", "avg"),
        "row": "iterations",
    }
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
    """Return the printed numbers by column; `plain` is the unit of times printed without one."""
    found = {
        column: match[1]
        for column, pattern in patterns.items()
        if (match := re.search(pattern, text, re.M))
    }
    times = {
        as_number(share): f"{value}{unit or plain}" for share, value, unit in QUANTILE.findall(text)
    }
    shown = {f"p{share}_ms": times[share] for share in PRINTED_QUANTILES if share in times}
    return {"test": source, "subject": source, **found, **shown}


def _wrk(text: str, source: str, _: object) -> Iterator[Row]:
    """Yield the output of wrk or wrk2.

    Each thread opens connections / threads, rounded down.
    """
    errors = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    wrong = re.search(r"Non-2xx or 3xx responses: (\d{1,18})", text)
    opened = re.search(r"([1-9]\d{0,8}) threads and (\d{1,9}) connections", text)
    failed = (*(errors.groups() if errors else ()), *(wrong.groups() if wrong else ()))
    more: Row = {
        "connections": opened and int(opened[2]) // int(opened[1]) * int(opened[1]),
        "tool": "wrk",
    }
    more |= {
        "errors": sum(map(as_number, failed)),
        "load_model": "open" if "Thread calibration" in text else "closed",
    }
    yield _printed(text, source, WRK) | more


def _hey(text: str, source: str, _: object) -> Iterator[Row]:
    """Yield the output of hey or oha."""
    codes = {
        code: as_number(count)
        for code, count in re.findall(r"^\s+\[(\d{3})\]\s+(\d{1,18}) res", text, re.M)
    }
    wrong = sum(count for code, count in codes.items() if code >= "400")
    counts = {"requests": sum(codes.values()) or None, "errors": wrong, "load_model": "closed"}
    yield _printed(text, source, HEY, "s") | counts


def _oha(data: JsonObject, source: str, _: object) -> Iterator[Row]:
    """Yield oha's JSON output."""
    summary = dict_of(data.get("summary"))
    quantiles = dict_of(data.get("latencyPercentiles"))
    codes = dict_of(data.get("statusCodeDistribution"))
    times = {
        "mean_ms": summary.get("average"),
        "min_ms": summary.get("fastest"),
        "max_ms": summary.get("slowest"),
    }
    times |= {f"p{q}_ms": quantiles.get(f"p{q}") for q in PRINTED_QUANTILES}
    row: Row = {name: 1e3 * as_number(seconds) for name, seconds in times.items()}
    row |= {
        "rate": summary.get("requestsPerSec"),
        "duration_s": summary.get("total"),
        "load_model": "closed",
    }
    row |= {
        "requests": sum_of(codes, codes),
        "errors": sum_of(codes, [code for code in codes if str(code) >= "400"]),
    }
    yield {"test": source, "subject": source, **row, "bytes_per_s": summary.get("sizePerSec")}


FORMATS = (
    Format(
        "techempower",
        True,
        lambda data: isinstance(dict_of(data).get("rawData"), dict),
        _techempower,
    ),
    Format(
        "web-frameworks",
        True,
        lambda data: isinstance(dict_of(data).get("metrics"), list),
        _web_frameworks,
    ),
    Format("k6", True, lambda data: "http_reqs" in dict_of(dict_of(data).get("metrics")), _k6),
    Format(
        "oha", True, lambda data: {"summary", "latencyPercentiles"} <= dict_of(data).keys(), _oha
    ),
    Format(
        "httparena",
        True,
        lambda data: any({"rps", "framework"} <= {*row} for row in _arena_rows(data)),
        _arena,
    ),
    Format(
        "wrk",
        False,
        lambda text: bool(re.search(r"^Running \S{1,20} test @", text[:100_000], re.M)),
        _wrk,
    ),
    Format(
        "hey",
        False,
        lambda text: bool(re.search(r"^Summary:.*^ +Slowest:", text, re.M | re.S)),
        _hey,
    ),
    Format(
        "published",
        False,
        lambda text: {"server", "metric", "value", "scenario"} <= {*_header(text)},
        _published,
    ),
    Format(
        "csv",
        False,
        lambda text: len({*_header(text)}) > 1 and not text.lstrip().startswith(("{", "[")),
        _csv,
    ),
)
"""All formats, in the order in which they are tried."""
