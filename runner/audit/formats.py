"""Tables of others as one tidy frame: boards' JSON, CSV, and what k6, wrk, oha and hey print; told by their content."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from runner.model import LabError

MOST_BYTES = 64 * 2**20
MOST_ROWS = 500_000
TEXTS = ("source", "row", "test", "subject", "language", "mode", "load_model", "day", "missing")
NUMBERS = (
    *("connections", "depth", "rate", "target_rate", "rate_low", "rate_high"),
    *("mean_ms", "stdev_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"),
    *("cpu_pct", "cpu_given_pct", "requests", "duration_s", "elapsed_s", "errors", "bytes_per_s"),
)
"""Columns of the frame: a row is one load of one subject; a number that is not known is NaN. `depth` is how many
requests a connection has under way, `missing` names what had a value that stands for none, such as -1."""
POSITIVE = tuple(name for name in NUMBERS if name not in ("errors", "stdev_ms", "cpu_pct", "min_ms", "target_rate"))
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What a file does not say: `columns` (of a CSV, ours -> theirs), connections and depth of a single load."""

    columns: Mapping[str, str] = field(default_factory=dict)
    connections: float = math.nan
    depth: float = math.nan


@dataclass(frozen=True)
class Format:
    """How a kind of file is told from its content, and read; `of_json` says whether that is parsed JSON or text."""

    name: str
    of_json: bool
    fits: Callable[[Any], bool]
    rows: Callable[[Any, str, Options], Iterable[Row]]


def read_all(paths: Iterable[Path], options: Options | None = None, format_name: str = "") -> pd.DataFrame:
    """Return the rows of files, put together; LabError as of `read`."""
    return pd.concat([read(path, options, format_name) for path in paths], ignore_index=True)


def read(path: Path, options: Options | None = None, format_name: str = "") -> pd.DataFrame:
    """Return the rows of a file, or of stdin for `-`.

    LabError for one that cannot be read, is too large, or has no known format.
    """
    if str(path) == "-":
        return parse(sys.stdin.buffer.read(MOST_BYTES + 1), "stdin", options, format_name)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}.", exit_code=1) from None
    return parse(data, path.name, options, format_name)


def parse(data: bytes, source: str, options: Options | None = None, format_name: str = "") -> pd.DataFrame:
    """Return the rows of a file's content; LabError as of `read`."""
    if len(data) > MOST_BYTES:
        raise LabError(f"{source} has more than {MOST_BYTES // 2**20} MiB: audit a part of it.", exit_code=1)
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
    known = [each for each in FORMATS if format_name in ("", each.name)]
    if not known:
        raise LabError(f"--format is one of {', '.join(each.name for each in FORMATS)}, not {format_name!r}.")
    content = _json(text, source)
    for each in known:
        subject = content if each.of_json else text
        if subject is not None and each.fits(subject):
            return _tidy(each.rows(subject, source, options or Options()), source)
    names = ", ".join(each.name for each in known)
    raise LabError(f"{source} is none of these: {names}. For another CSV name its columns by --map.", exit_code=1)


def _json(text: str, source: str) -> Any:
    """Return what a text is in JSON; None where it is no JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise LabError(f"{source} is nested too deeply.", exit_code=1) from None
    except ValueError:
        return None


def _tidy(rows: Iterable[Row], source: str) -> pd.DataFrame:
    """Return rows as a frame: texts cleaned, numbers finite, and values that stand for none as NaN."""
    found = []
    for number, row in enumerate(rows):
        if number >= MOST_ROWS:
            raise LabError(f"{source} has more than {MOST_ROWS:,} rows: audit a part of it.", exit_code=1)
        values = {name: as_number(row.get(name)) for name in NUMBERS}
        void = [name for name in POSITIVE if values[name] <= 0] + [
            name for name in NUMBERS if name not in POSITIVE and values[name] == -1
        ]
        void += [name for name in row.get("expected", ()) if name not in void and math.isnan(values[name])]
        texts = {name: _clean(row.get(name)) for name in TEXTS}
        texts |= {"source": _clean(source), "row": texts["row"] or str(number + 1)}
        found.append({**texts, **values, **dict.fromkeys(void, math.nan), "missing": " ".join(void)})
    frame = pd.DataFrame(found, columns=[*TEXTS, *NUMBERS])
    return frame.assign(depth=frame["depth"].fillna(1.0)).astype(dict.fromkeys(NUMBERS, float))


def _clean(value: Any) -> str:
    text = "" if value is None else str(value)[:120]
    return "".join(letter if letter.isprintable() else "�" for letter in text)


# --- values -----------------------------------------------------------------------------------------------

UNITS_MS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "μs": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "sec": 1e3,
    "secs": 1e3,
    "m": 6e4,
    "h": 3.6e6,
}
UNITS_BYTES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MEASURE = re.compile(r"\s*(-?\d[\d.,]{0,30}(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%]{0,6})(?:/s)?\s*")


def as_number(value: Any) -> float:
    """Return a finite number; NaN for anything else, a text of digits is read."""
    if isinstance(value, bool) or value is None:
        return math.nan
    try:
        found = float(value.replace(",", "")) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def _measure(value: Any, units: Mapping[str, float], plain: float) -> float:
    """Return a text such as `1.71ms` in the unit of `units`; a number without a unit times `plain`."""
    if not isinstance(value, str):
        return as_number(value) * plain
    found = MEASURE.fullmatch(value[:64])
    if not found:
        return math.nan
    factor = units.get(found[2], math.nan) if found[2] else plain
    return as_number(found[1]) * factor


def as_ms(value: Any, plain: float = 1.0) -> float:
    """Return a time in ms; a number without a unit is `plain` ms."""
    return _measure(value, UNITS_MS, plain)


def _bytes(value: Any) -> float:
    """Return bytes of `3.99GB/s`, `260MiB`."""
    return _measure(
        value, {f"{prefix}{letter}": factor for prefix, factor in UNITS_BYTES.items() for letter in "bB"}, 1.0
    )


def _sum(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """Return the sum of those that are known; NaN where none is."""
    known = [number for name in names if math.isfinite(number := as_number(row.get(name))) and number >= 0]
    return sum(known) if known else math.nan


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    yield from (each for each in _list(value) if isinstance(each, dict))


# --- boards -----------------------------------------------------------------------------------------------

ERRORS = ("4xx", "5xx", "connect", "read", "write", "timeout")
BY_QUERIES = {"query": "queryIntervals", "update": "queryIntervals", "cached_query": "cachedQueryIntervals"}


def _techempower(data: dict[str, Any], _source: str, _options: Options) -> Iterator[Row]:
    levels = [as_number(each) for each in _list(data.get("concurrencyLevels")) if as_number(each) > 0]
    languages = {str(each.get("name")): each.get("language") for each in _dicts(data.get("testMetadata"))}
    days = data.get("completed") if isinstance(data.get("completed"), dict) else {}
    for name, subjects in data["rawData"].items():
        test = str(name).replace("-", "_")
        if not isinstance(subjects, dict):
            continue
        key = BY_QUERIES.get(test, "pipelineConcurrencyLevels" if test == "plaintext" else "concurrencyLevels")
        steps = _list(data.get(key))
        for subject, entries in subjects.items():
            for place, entry in enumerate(_list(entries)):
                step = as_number(steps[place]) if place < len(steps) else math.nan
                by_queries = test in BY_QUERIES
                yield {
                    "row": f"{name}.{subject}[{place}]", "subject": subject, "language": languages.get(str(subject)),
                    "test": f"{name}, {step:g} queries" if by_queries else name,
                    "connections": max(levels, default=math.nan) if by_queries else step,
                    "depth": 16 if test == "plaintext" else 1,
                    "day": str(days.get(subject) or "")[:8],
                    **_of_techempower(entry if isinstance(entry, dict) else {}, as_number(data.get("duration"))),
                }  # fmt: skip


def _of_techempower(entry: Mapping[str, Any], duration_s: float) -> Row:
    requests = as_number(entry.get("totalRequests"))
    return {
        "mode": "keepalive", "load_model": "closed", "rate": requests / duration_s if duration_s > 0 else math.nan,
        "requests": requests, "duration_s": duration_s, "errors": _sum(entry, ERRORS),
        "elapsed_s": as_number(entry.get("endTime")) - as_number(entry.get("startTime")),
        "mean_ms": as_ms(entry.get("latencyAvg")), "stdev_ms": as_ms(entry.get("latencyStdev")),
        "max_ms": as_ms(entry.get("latencyMax")), "expected": ("rate", "mean_ms"),
    }  # fmt: skip


def _is_arena(data: Any) -> bool:
    return any("rps" in row and "framework" in row for row in _arena_rows(data))


def _arena_rows(data: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of a board's list, of one framework's file, or of several tests in one."""
    if isinstance(data, dict) and "rps" in data:
        yield {"test": path, **data}
    elif isinstance(data, dict) and path.count("/") < 3:
        for name, value in data.items():
            shared = {"framework": data["framework"]} if "framework" in data else {}
            yield from ({**shared, **row} for row in _arena_rows(value, f"{path}/{name}".strip("/")))
    elif path.count("/") < 3:
        for each in _dicts(data):
            yield from _arena_rows(each, path)


def _arena(data: Any, source: str, _options: Options) -> Iterator[Row]:
    for row in _arena_rows(data):
        threads = as_number(row.get("threads"))
        yield {
            "test": row["test"] or source.rsplit(".", 1)[0], "subject": row.get("framework"),
            "language": row.get("language"), "connections": row.get("connections"), "depth": row.get("pipeline"),
            "rate": row.get("rps"), "target_rate": row.get("target_rate"), "mean_ms": as_ms(row.get("avg_latency")),
            "p99_ms": as_ms(row.get("p99_latency")), "cpu_pct": _measure(row.get("cpu"), {"%": 1.0}, 1.0),
            "cpu_given_pct": 100 * threads, "bytes_per_s": _bytes(row.get("bandwidth")),
            "duration_s": as_ms(row.get("duration"), 1e3) / 1e3, "expected": ("rate", "mean_ms", "p99_ms"),
            "requests": _sum(row, (f"status_{each}xx" for each in (2, 3, 4, 5))),
            "errors": _sum(row, ("status_4xx", "status_5xx")),
            "load_model": "open" if as_number(row.get("target_rate")) > 0 else "closed",
            "mode": "close" if as_number(row.get("reconnects")) > 0 else "",
        }  # fmt: skip


LABELS = {
    "total_requests_per_s": "rate", "total_requests": "requests", "duration_ms": "duration_s",
    "average_latency": "mean_ms", "standard_deviation": "stdev_ms", "minimum_latency": "min_ms",
    "percentile50": "p50_ms", "percentile90": "p90_ms", "percentile99": "p99_ms", "http_errors": "errors",
}  # fmt: skip
IN_US = 20.0
"""Where the median of all p50 is above this, they are no seconds: older files are in microseconds."""


def _web_frameworks(data: dict[str, Any], _source: str, _options: Options) -> Iterator[Row]:
    named = {str(each.get("id")): each for each in _dicts(data.get("frameworks"))}
    cells: dict[tuple[str, float], Row] = {}
    for metric in _dicts(data["metrics"]):
        key = str(metric.get("framework_id")), as_number(metric.get("level"))
        if (column := LABELS.get(str(metric.get("label")))) is not None:
            cells.setdefault(key, {})[column] = as_number(metric.get("value"))
    middle = pd.Series([row["p50_ms"] for row in cells.values() if row.get("p50_ms", -1) > 0], dtype=float).median()
    scale = 1e-3 if middle > IN_US else 1e3
    for (identity, level), row in cells.items():
        known = named.get(identity, {})
        times = {name: value * scale if value != -1 else -1 for name, value in row.items() if name.endswith("_ms")}
        yield {
            **row, **times, "duration_s": row.get("duration_s", math.nan) / 1e3, "connections": level,
            "subject": known.get("label") or f"framework {identity}", "language": known.get("language"),
            "row": f"framework {identity}, level {level:g}", "test": "requests", "load_model": "closed",
            "day": str(data.get("updated_at") or "")[:10],
        }  # fmt: skip


# --- CSV --------------------------------------------------------------------------------------------------

ALIASES = {
    "rate": ("rps", "requests_per_second", "requests_per_second_median", "req_per_sec", "requests/s", "requests/sec"),
    "connections": ("concurrency", "clients", "vus", "connections"),
    "subject": ("framework", "server", "name", "subject"),
    "test": ("test", "scenario", "workload"),
    "mean_ms": ("latency_mean_ms", "latency_avg_ms", "mean_ms", "avg_ms"),
    "duration_s": ("duration", "seconds"),
    "language": ("language",),
}
"""Our column -> headers that are read as it without being told."""


def _csv_rows(text: str) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), restkey="")
    try:
        for row in reader:
            yield {str(name).strip(): value for name, value in row.items() if isinstance(value, str)}
    except csv.Error as error:
        raise LabError(f"The CSV breaks off in line {reader.line_num}: {error}.", exit_code=1) from None


def _header(text: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([text.partition("\n")[0][:10_000]]), [])]


def _is_published(text: str) -> bool:
    return {"server", "metric", "value", "scenario"} <= set(_header(text))


PUBLISHED = {"rps": "rate", **{f"latency_p{q}": f"p{q}_ms" for q in (50, 90, 95, 99)}, "cpu_peak": "cpu_pct"}


def _published(text: str, _source: str, _options: Options) -> Iterator[Row]:
    """Yield a row for each load and server of a table with one number a line, as data/published.csv has it."""
    cells: dict[tuple[str, ...], Row] = {}
    for row in _csv_rows(text):
        key = tuple(row.get(name, "") for name in ("source", "scenario", "load", "server", "mode", "connections"))
        cell = cells.setdefault(
            key,
            {"test": f"{key[1]} ({key[0]})", "subject": key[3], "mode": key[4], "connections": key[5],
             "language": row.get("language"), "load_model": "open" if "ramping" in key[2] else "closed"},
        )  # fmt: skip
        if (column := PUBLISHED.get(row.get("metric", ""))) is not None:
            cell[column] = row.get("value")
    yield from cells.values()


def _is_csv(text: str) -> bool:
    looks_like_json = text.lstrip().startswith(("{", "["))
    return "," in text.partition("\n")[0] and len(set(_header(text))) > 1 and not looks_like_json


def _csv(text: str, source: str, options: Options) -> Iterator[Row]:
    header = _header(text)
    by_name = {name.lower(): name for name in reversed(header)}
    columns = {
        ours: by_name[theirs] for ours, known in ALIASES.items() for theirs in reversed(known) if theirs in by_name
    }
    columns |= {name: name for name in (*NUMBERS, "mode", "load_model", "day") if name in header}
    for name, theirs in options.columns.items():
        ours = {"rps": "rate"}.get(name, name.removeprefix("latency_"))
        if theirs not in header or ours not in (*NUMBERS, *TEXTS):
            what = f"no column {theirs!r}" if theirs not in header else f"no use for {ours!r}"
            raise LabError(f"{source} has {what}; columns are {', '.join(header)}.", exit_code=1)
        columns[ours] = theirs
    if "rate" not in columns:
        raise LabError(
            f"Which column of {source} is the rate? --map rps=NAME; it has {', '.join(header)}.", exit_code=1
        )
    versions = [name for name in ("mode", "version") if name in header and name not in columns.values()]
    for row in _csv_rows(text):
        found: Row = {ours: row.get(theirs) for ours, theirs in columns.items()}
        more = " ".join(row.get(name) or "" for name in versions)
        yield {
            **found,
            "subject": f"{found.get('subject') or ''} {more}".strip(),
            "expected": tuple(name for name in columns if name in NUMBERS),
        }


# --- one load ---------------------------------------------------------------------------------------------


def _single(row: Row, source: str, options: Options) -> Iterator[Row]:
    given = {name: getattr(options, name) for name in ("connections", "depth")}
    yield {"test": source, "subject": source, **row, **{name: v for name, v in given.items() if math.isfinite(v)}}


def _k6(data: dict[str, Any], source: str, options: Options) -> Iterator[Row]:
    """Yield k6's summary, of --summary-export or handleSummary: its iterations, as a user does one at a time."""
    metrics = {str(name): each.get("values", each) for name, each in data["metrics"].items() if isinstance(each, dict)}

    def of(metric: str, *names: str) -> Any:
        values = metrics.get(metric)
        return next((values[name] for name in names if isinstance(values, dict) and name in values), None)

    times = {"mean_ms": "avg", "min_ms": "min", "p50_ms": "med", "max_ms": "max"}
    times |= {f"p{q}_ms": f"p({q})" for q in (90, 95, 99)}
    requests, rate = as_number(of("http_reqs", "count")), as_number(of("http_reqs", "rate"))
    shared: Row = {"connections": of("vus_max", "value", "max"), "load_model": "closed"}
    if "dropped_iterations" in metrics:
        shared["load_model"] = "open"
    answers = {name: of("http_req_duration", key) for name, key in times.items()}
    failed = as_number(of("http_req_failed", "rate", "value"))
    whole = {"requests": requests, "rate": rate, "errors": failed * requests}
    for test, more in (
        ("requests", {**answers, **whole, "connections": None}),
        ("iterations", {"rate": of("iterations", "rate"), "mean_ms": of("iteration_duration", "avg")}),
    ):
        yield from _single({**shared, **more, "row": test}, source, options)


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


def _wrk(text: str, source: str, options: Options) -> Iterator[Row]:
    latency = LATENCY.search(text)
    times = latency.groups() if latency else (None, None, None)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    wrong = as_number(_found(r"Non-2xx or 3xx responses: (\d{1,18})", text))
    socket = sum(map(as_number, errors.groups())) if errors else 0.0
    yield from _single(
        {
            "connections": _found(r"threads and (\d{1,9}) connections", text),
            "mean_ms": as_ms(times[0]), "stdev_ms": as_ms(times[1]), "max_ms": as_ms(times[2]),
            **_quantiles(text),
            "rate": _found(r"^Requests/sec:\s+([\d.]{1,20})", text),
            "requests": _found(r"^\s+(\d{1,18}) requests in", text),
            "duration_s": as_ms(_found(r"requests in (\S{1,20}),", text)) / 1e3,
            "bytes_per_s": _bytes(_found(r"^Transfer/sec:\s+(\S{1,20})", text)),
            "errors": socket + (0 if math.isnan(wrong) else wrong),
            "load_model": "open" if "Thread calibration" in text else "closed", "tool": "wrk",
        },
        source, options,
    )  # fmt: skip


def _is_hey(text: str) -> bool:
    return "Summary:" in text and "Requests/sec:" in text and "Slowest:" in text


def _hey(text: str, source: str, options: Options) -> Iterator[Row]:
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
        source, options,
    )  # fmt: skip


def _oha(data: dict[str, Any], source: str, options: Options) -> Iterator[Row]:
    summary = data["summary"] if isinstance(data["summary"], dict) else {}
    quantiles, codes = (
        each if isinstance(each := data.get(name), dict) else {}
        for name in ("latencyPercentiles", "statusCodeDistribution")
    )
    yield from _single(
        {
            "rate": summary.get("requestsPerSec"), "duration_s": summary.get("total"), "load_model": "closed",
            **{
                name: 1e3 * as_number(summary.get(key))
                for name, key in (("mean_ms", "average"), ("min_ms", "fastest"), ("max_ms", "slowest"))
            },
            **{f"p{q}_ms": 1e3 * as_number(quantiles.get(f"p{q}")) for q in (50, 90, 95, 99)},
            "requests": _sum(codes, codes), "errors": _sum(codes, [code for code in codes if str(code) >= "400"]),
            "bytes_per_s": summary.get("sizePerSec"),
        },
        source, options,
    )  # fmt: skip


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda data: isinstance(data, dict) and all(key in data for key in keys)


def _of_k6(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("metrics"), dict) and "http_reqs" in data["metrics"]


FORMATS = (
    Format(
        "techempower", True, lambda data: isinstance(data, dict) and isinstance(data.get("rawData"), dict), _techempower
    ),
    Format(
        "web-frameworks",
        True,
        lambda data: _has("metrics")(data) and isinstance(data["metrics"], list),
        _web_frameworks,
    ),
    Format("k6", True, _of_k6, _k6),
    Format("oha", True, _has("summary", "latencyPercentiles"), _oha),
    Format("httparena", True, _is_arena, _arena),
    Format("wrk", False, lambda text: bool(WRK.search(text[:100_000])), _wrk),
    Format("hey", False, _is_hey, _hey),
    Format("published", False, _is_published, _published),
    Format("csv", False, _is_csv, _csv),
)
"""In the order in which they are tried."""
