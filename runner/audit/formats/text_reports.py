"""Read the reports that load generators print as text.

A text may contain several reports, of one or several tools, and other text between them.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from runner.audit.formats import k6_summaries
from runner.audit.formats.json_reports import (
    ABORTED,
    CLOSED_OR_LIMITED,
    closed_by_ghz,
    nearest_percentiles,
    plus,
)
from runner.audit.formats.values import (
    PRINTED_QUANTILES,
    Row,
    as_number,
    half_a_digit,
    sum_of,
    value_of,
)

Begins = Callable[[str], Iterable[int]]


@dataclass(frozen=True)
class Tool:
    """A load generator that prints a report."""

    name: str
    begins: Begins
    """Function that returns the offsets at which the tool's reports begin in a text."""
    rows: Callable[[str, str], Iterator[Row]]
    """Function that returns the rows of one report, from its text and the name of the source."""


@dataclass(frozen=True)
class _Report:
    """One report in a text."""

    tool: Tool
    begin: int
    end: int


MARGIN = r"^[ \t>]{0,16}"
"""Pattern of the start of a line that may be indented, or quoted by `>` as in Markdown."""


def at(*lines: str) -> Begins:
    """Return a function that finds where reports begin.

    `lines` are patterns of lines that a report contains once each, in this order. People may leave
    out the first lines of a report, so a report can begin with any of these lines. Each line that
    matches a pattern is compared with the matching line before it. The two lines belong to the same
    report if their patterns are in the same order in `lines`. If the patterns are equal or in
    reverse order, the later line begins a new report.
    """
    compiled = [re.compile(MARGIN + line, re.M) for line in lines]

    def begins(text: str) -> list[int]:
        found = sorted(
            (match.start(), place)
            for place, line in enumerate(compiled)
            for match in line.finditer(text)
        )
        places = [len(lines), *(place for _, place in found)]
        return [
            begin for (begin, place), before in zip(found, places, strict=False) if place <= before
        ]

    return begins


def rows_of_reports(text: str, source: str, tools: Sequence[Tool]) -> list[Row]:
    """Return the rows of all reports in a text, or an empty list if there is no report.

    A single report is named after its file. If there are several reports, each is named after the
    heading above it. A report without a heading is named after the address that was loaded.
    """
    reports = _reports(text, tools)
    if len(reports) == 1:
        only = reports[0]
        return list(_rows_of(only, text, source))
    names = _names(text, reports)
    rows: list[Row] = []
    for name, report in zip(names, reports, strict=True):
        for row in _rows_of(report, text, source):
            part = row.get("row")
            where = f"{name}, {part}" if part else name
            rows.append(row | {"subject": name, "row": where})
    return rows


def _rows_of(report: _Report, text: str, source: str) -> Iterator[Row]:
    """Yield the rows of a report, with the rounding error that its printed duration may have."""
    for row in report.tool.rows(_without_margin(text[report.begin : report.end]), source):
        yield row | {"duration_slack_s": half_a_digit("duration_s", row.get("duration_s"))}


def _without_margin(text: str) -> str:
    """Return a report without its margin, if its first lines all have the same margin."""
    margin = re.match(MARGIN, text)
    lines = [line for line in text.splitlines()[:5] if line.strip()]
    if margin is None or not margin[0] or not all(line.startswith(margin[0]) for line in lines):
        return text
    return "\n".join(line.removeprefix(margin[0]) for line in text.splitlines())


def _reports(text: str, tools: Sequence[Tool]) -> list[_Report]:
    """Return the reports in a text in their order. Each ends where the next report begins."""
    begins = sorted(
        (begin, number) for number, tool in enumerate(tools) for begin in tool.begins(text)
    )
    after_last = [(len(text), -1)]
    return [
        _Report(tools[number], begin, end)
        for (begin, number), (end, _) in pairwise([*begins, *after_last])
    ]


HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.{1,120}?)\s*#*\s*$", re.M)
AB_AUTHORS = ("http://www.zeustech.net", "http://www.apache.org")
"""Addresses of ab's authors, which ab prints above its report. They are not addresses of a load."""
ADDRESS = re.compile(r"https?://[^\s\"'`<>)]{1,120}")


def _names(text: str, reports: Sequence[_Report]) -> list[str]:
    """Return a name for each report. Add a number to names that several reports share."""
    names = []
    before = 0
    for number, report in enumerate(reports, start=1):
        above = text[before : report.begin]
        headings = HEADING.findall(above)
        first_line = text[report.begin : report.end].partition("\n")[0]
        addresses = ADDRESS.findall(first_line) or [
            address for address in ADDRESS.findall(above) if not address.startswith(AB_AUTHORS)
        ]
        names.append(headings[-1] if headings else (addresses or [f"report {number}"])[-1])
        before = report.begin
    count = Counter(names)
    seen: Counter[str] = Counter()
    told = []
    for name in names:
        seen[name] += 1
        told.append(f"{name} ({seen[name]})" if count[name] > 1 else name)
    return told


def _first(pattern: str, text: str) -> str | None:
    """Return the first group of a pattern's first match in a text, or None without a match."""
    found = re.search(pattern, text, re.M)
    return None if found is None else found[1]


def _numbers(patterns: Mapping[str, str], text: str) -> Row:
    """Return the values that the patterns find in a text, by column.

    Each key of `patterns` is a column, and the first group of its pattern is the column's value.
    Columns whose pattern does not match are left out.
    """
    found = {column: _first(pattern, text) for column, pattern in patterns.items()}
    return {column: value for column, value in found.items() if value is not None}


_UNIT = "secs?|ms|us|µs|ns|min|hr|s|m|h"
"""Pattern of the units of printed times."""
_TIME = rf"\s+([\d.]{{1,24}}\s*(?:{_UNIT})?)"
QUANTILE = re.compile(
    rf"^\s+([\d.]{{1,8}})\s*%{{1,2}}\s+(?:in\s+)?([\d.]{{1,24}})\s?({_UNIT})?\s*$", re.M
)
"""Pattern of a printed line with a percentile: the percentage, the time, and the time's unit."""


def _quantiles(text: str, unit: str = "") -> Row:
    """Return the percentiles that a report prints, in ms, by the names of our columns.

    `unit` is the unit of times that are printed without a unit.
    """
    times: dict[float, float] = {}
    for percent, value, printed in QUANTILE.findall(text):
        times.setdefault(as_number(percent), value_of("_ms", f"{value}{printed or unit}"))
    return {f"p{each}_ms": times[each] for each in PRINTED_QUANTILES if each in times}


def _in_table(text: str, heading: str, label: str) -> dict[str, str]:
    """Return the values in a row of a printed table, by the names of the columns.

    The pattern `heading` matches the line with the names of the columns, and its first group
    contains these names. The pattern `label` matches the name of the row.
    """
    names = _first(heading, text)
    values = _first(rf"^\s*{label}\s+(\S.{{0,200}})$", text)
    if names is None or values is None:
        return {}
    return dict(zip(re.split(r"\s{1,20}", names.strip()), values.split(), strict=False))


def _coarsest_ms(text: str) -> float:
    """Return the largest rounding error, in ms, of the times in a report's summary.

    These times are the mean, the shortest and the longest response time.
    """
    times = re.findall(rf"^\s*(?:Average|Fastest|Slowest):{_TIME}", text, re.M)
    return max((half_a_digit("mean_ms", each) for each in times), default=0.0)


# --- wrk and wrk2 ---------------------------------------------------------------------------------

WRK = {
    "rate": r"^Requests/sec:\s+([\d.]{1,20})",
    "requests": r"^\s*(\d{1,18}) requests in",
    "duration_s": r"requests in (\S{1,20}),",
    "bytes_per_s": r"^Transfer/sec:\s+(\S{1,20})",
}
WRK_COLUMNS = {"Avg": "mean_ms", "Stdev": "stdev_ms", "Max": "max_ms", "99%": "p99_ms"}
"""Our columns, by the names of the columns in wrk's statistics.

In place of the column `Max` of wrk, wrk2 prints the column `99%`.
"""
WRK2 = re.compile(r"Thread calibration|HdrHistogram")
"""Pattern of two texts that wrk2 prints, but wrk does not.

Each of them shows that wrk2 printed the report. `Thread calibration` alone would not be enough,
because wrk2 does not print it for a short load.
"""
SOCKET_ERRORS = (
    r"Socket errors: connect (\d{1,18}), read (\d{1,18}), write (\d{1,18}), timeout (\d{1,18})"
)


def wrk(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of wrk or wrk2.

    Each thread opens the same number of connections: connections / threads, rounded down. So there
    may be fewer connections than the output says.
    """
    sockets = re.search(SOCKET_ERRORS, text)
    unmade = as_number(sockets[1]) if sockets else 0.0
    broken = sum(as_number(each) for each in sockets.groups()[1:]) if sockets else 0.0
    refused = as_number(_first(r"Non-2xx or 3xx responses: (\d{1,18})", text) or 0)
    opened = re.search(r"([1-9]\d{0,8}) threads? and (\d{1,9}) connections", text)
    tried = int(opened[2]) // int(opened[1]) * int(opened[1]) if opened else math.nan
    columns = _in_table(text, r"Thread Stats\s+(Avg.{0,80})$", "Latency")
    times = {ours: columns.get(theirs) for theirs, ours in WRK_COLUMNS.items() if theirs in columns}
    yield {
        "test": source,
        "subject": source,
        "tool": "wrk",
        "load_model": "open" if WRK2.search(text) else "closed",
        "connections": tried - unmade if unmade < tried else math.nan,
        "unmade": unmade,
        **times,
        **_quantiles(text),
        **_numbers(WRK, text),
        "errors": broken + refused,
        "errors_beside": broken,
    }


# --- hey, oha and ghz, whose reports have the same parts ------------------------------------------

SUMMARY = {
    "rate": r"^\s*Requests/sec:\s*([\d.]{1,20})",
    "mean_ms": rf"^\s*Average:{_TIME}",
    "min_ms": rf"^\s*Fastest:{_TIME}",
    "max_ms": rf"^\s*Slowest:{_TIME}",
    "duration_s": rf"^\s*Total:{_TIME}",
}
BY_STATUS = re.compile(r"^\s+\[(\w{1,20})\]\s+(\d{1,18}) res", re.M)
BY_ERROR = re.compile(r"^\s+\[(\d{1,18})\]\s+(?!\d{1,18} res)(\S.{0,200})$", re.M)


def _with_summary(text: str, source: str, tool: str) -> Row:
    """Return those columns of a report's row that hey, oha and ghz print in the same way."""
    codes: dict[str, float] = {}
    for code, count in BY_STATUS.findall(text):
        codes[code] = codes.get(code, 0.0) + as_number(count)
    failures = BY_ERROR.findall(text) if tool != "ghz" else []
    unfinished = sum(as_number(count) for count, why in failures if why.startswith(ABORTED))
    failed = sum(as_number(count) for count, _ in failures) - unfinished
    good = {code: count for code, count in codes.items() if _is_good(code)}
    answered = sum(codes.values()) if codes else math.nan
    return {
        "test": source,
        "subject": source,
        "tool": tool,
        "load_model": CLOSED_OR_LIMITED,
        **_numbers(SUMMARY, text),
        **_quantiles(text, "s"),
        "requests": plus(answered, failed, unfinished) if codes or failures else math.nan,
        "errors": sum(codes.values()) - sum(good.values()) + failed,
        "unfinished": unfinished,
    }


def _is_good(code: str) -> bool:
    """Return True if a status is a success: an HTTP status from 100 to 399, or gRPC's OK."""
    return code == "OK" or 100 <= as_number(code) < 400


def hey(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of hey, which prints times in seconds with four decimals."""
    size = _first(r"^\s*Size/request:\s+([\d.]{1,20}) bytes", text)
    yield _with_summary(text, source, "hey") | {
        "answer_bytes": size,
        "resolution_ms": _coarsest_ms(text),
    }


def oha(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of oha.

    oha prints all times in one unit, from ns to hours, which depends on the longest response time.
    """
    yield _with_summary(text, source, "oha") | {
        "answer_bytes": _first(r"^\s*Size/request:\s+([\d.]{1,20} [KMGT]?i?B)\s*$", text),
        "resolution_ms": _coarsest_ms(text),
    }


def ghz(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of ghz."""
    row = _with_summary(text, source, "ghz")
    unfinished = closed_by_ghz({why: count for count, why in BY_ERROR.findall(text)})
    yield row | {
        "requests": _first(r"^\s*Count:\s+(\d{1,18})", text),
        "errors": row["errors"] - unfinished,
        "unfinished": unfinished,
        "protocol": "h2",
        "depth": 1,
    }


# --- ab -------------------------------------------------------------------------------------------

AB = {
    "connections": r"^Concurrency Level:\s+(\d{1,9})",
    "duration_s": r"^Time taken for tests:\s+([\d.]{1,20}) seconds",
    "requests": r"^Complete requests:\s+(\d{1,18})",
    "rate": r"^Requests per second:\s+([\d.]{1,20})",
    "cycle_ms": r"^Time per request:\s+([\d.]{1,20}) \[ms\] \(mean\)",
}
AB_FAILED = (
    r"\(Connect: (\d{1,18}), Receive: (\d{1,18}), Length: \d{1,18}, Exceptions: (\d{1,18})\)"
)
AB_TOTAL = r"^Total:\s+(\d{1,12})\s+(\d{1,12})\s+([\d.]{1,20})\s+\d{1,12}\s+(\d{1,12})"
"""Pattern of ab's line `Total`, whose five numbers describe the time of a request in ms.

The numbers are the minimum, mean, standard deviation, median and maximum. The pattern has a group
for each number but the median.
"""
AB_STOPPED = r"^Total of (\d{1,18}) requests completed"
"""The line that ab prints instead of a report if it gives up."""


def ab(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of ApacheBench, which prints percentiles in whole milliseconds.

    ab counts an answer as failed if its length differs from the length of the first answer. Here
    such an answer does not count as an error, because the length of a page may vary. ab does not
    measure the mean time per request that it prints, but computes it as connections / rate. The
    measured mean is in ab's line `Total`.
    """
    parts = re.search(AB_FAILED, text)
    failed = (
        sum(as_number(each) for each in parts.groups())
        if parts
        else as_number(_first(r"^Failed requests:\s+(\d{1,18})", text) or 0)
    )
    refused = as_number(_first(r"^Non-2xx responses:\s+(\d{1,18})", text) or 0)
    total = re.search(AB_TOTAL, text, re.M)
    complete = as_number(_first(AB["requests"], text))
    percentages = text.partition("Percentage of the requests")[2]
    yield {
        "test": source,
        "subject": source,
        "tool": "ab",
        "load_model": "closed",
        "mode": "keepalive" if "Keep-Alive requests:" in text else "close",
        "requests": _first(AB_STOPPED, text),
        **_numbers(AB, text),
        "min_ms": total and total[1],
        "mean_ms": total and total[2],
        "stdev_ms": total and total[3],
        "max_ms": total and total[4],
        **_quantiles(percentages, "ms"),
        "resolution_ms": 1.0,
        "errors": np.fmin(failed + refused, complete),
        "answer_bytes": _first(r"^Document Length:\s+(\d{1,12}) bytes", text),
    }


# --- bombardier -----------------------------------------------------------------------------------


def bombardier(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of bombardier."""
    rates = _in_table(text, r"^Statistics\s+(Avg.{0,60})$", "Reqs/sec")
    times = _in_table(text, r"^Statistics\s+(Avg.{0,60})$", "Latency")
    codes = {
        code: as_number(count) for code, count in re.findall(r"\b([1-5])xx - (\d{1,18})", text)
    }
    others = as_number(_first(r"^\s+(?:others|errored) - (\d{1,18})", text) or 0)
    yield {
        "test": source,
        "subject": source,
        "tool": "bombardier",
        "load_model": CLOSED_OR_LIMITED,
        "connections": _first(r"using (\d{1,9}) connection", text),
        "duration_s": _first(r"^Bombarding \S{1,2000} for (\S{1,20}) using", text),
        "rate": rates.get("Avg"),
        "mean_ms": times.get("Avg"),
        "stdev_ms": times.get("Stdev"),
        "max_ms": times.get("Max"),
        **_quantiles(text),
        "requests": sum(codes.values()) + others if codes else math.nan,
        "errors": codes.get("4", 0.0) + codes.get("5", 0.0) + others,
        "bytes_per_s": None,
    }


# --- vegeta ---------------------------------------------------------------------------------------

VEGETA_TIMES = {
    "min": "min_ms",
    "mean": "mean_ms",
    "50": "p50_ms",
    "90": "p90_ms",
    "95": "p95_ms",
    "99": "p99_ms",
    "max": "max_ms",
}


def _listed(text: str, label: str) -> dict[str, str]:
    """Return the values in the line of vegeta's report that begins with `label`, by their names.

    The names are in brackets before the values: `Requests  [total, rate]  100, 10.05`.
    """
    found = re.search(rf"^{label}\s+\[([^\]\n]{{1,200}})\]\s+(\S.{{0,200}})$", text, re.M)
    if found is None:
        return {}
    names = [name.strip() for name in found[1].split(",")]
    values = [value.strip() for value in found[2].split(",")]
    return dict(zip(names, values, strict=False))


def vegeta(text: str, source: str) -> Iterator[Row]:
    """Yield the row of vegeta's text report."""
    requests = _listed(text, "Requests")
    duration = _listed(text, "Duration")
    times = _listed(text, "Latencies")
    statuses = _first(r"^Status Codes.{0,40}\](.{0,500})$", text) or ""
    codes = dict(re.findall(r"\b(\d{1,3}):(\d{1,18})", statuses))
    failed = sum(as_number(count) for code, count in codes.items() if not _is_good(code))
    yield {
        "test": source,
        "subject": source,
        "tool": "vegeta",
        "load_model": "open",
        "requests": requests.get("total"),
        "rate": requests.get("rate"),
        "duration_s": duration.get("attack"),
        **{ours: times.get(theirs) for theirs, ours in VEGETA_TIMES.items()},
        "errors": failed if codes else math.nan,
        "answer_bytes": _listed(text, "Bytes In").get("mean"),
    }


# --- h2load ---------------------------------------------------------------------------------------

H2LOAD_TIMES = {
    "min": "min_ms",
    "mean": "mean_ms",
    "max": "max_ms",
    "sd": "stdev_ms",
    "median": "p50_ms",
    "p95": "p95_ms",
    "p99": "p99_ms",
}
H2LOAD_MAIN = r"and (\d{1,9}s) of main duration"
H2LOAD_RAMP = re.compile(r"client\(s\) will be created every")
H2LOAD_COUNTS = (
    r"^requests: (\d{1,18}) total, \d{1,18} started, (\d{1,18}) done, (\d{1,18}) succeeded, "
    r"(\d{1,18}) failed, (\d{1,18}) errored, (\d{1,18}) timeout"
)


def h2load(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the output of h2load.

    A connection may have several requests under way (by HTTP/2 or by pipelining), but h2load does
    not print how many. So the number of concurrent requests is unknown.

    If h2load announces a main duration, this is the duration of the load. The time in h2load's line
    `finished in` then includes a warm-up, whose requests are not counted. Without a main duration,
    the time in this line is the duration. If the end of the report is missing, the number of
    requests is unknown.
    """
    columns = _in_table(text, r"^\s{10,40}(min\s.{0,120})$", r"(?:time for )?request\s*:")
    counts = re.search(H2LOAD_COUNTS, text, re.M)
    clients = [as_number(each) for each in re.findall(r"(\d{1,9}) total client\(s\)", text)]
    statuses = text.partition("status codes")[2]
    refused = [as_number(each) for each in re.findall(r"(\d{1,18}) [45]xx", statuses)]
    unanswered = as_number(counts[5]) + as_number(counts[6]) if counts else 0.0
    left = as_number(counts[1]) - as_number(counts[2]) if counts else 0.0
    is_http_1 = bool(re.search(r"^Application protocol: http/1", text, re.M))
    finished_s = _first(r"^finished in ([\d.]{1,20}\w{1,2}),", text)
    yield {
        "test": source,
        "subject": source,
        "tool": "h2load",
        "load_model": "unknown" if H2LOAD_RAMP.search(text) else CLOSED_OR_LIMITED,
        "protocol": "http/1" if is_http_1 else "h2",
        "connections": sum(clients) or None,
        "rate": _first(r"^finished in \S{1,20}, ([\d.]{1,20}) req/s", text),
        "duration_s": _first(H2LOAD_MAIN, text) or finished_s,
        "bytes_per_s": _first(r"req/s, (\S{1,20}B)/s", text),
        **{ours: columns.get(theirs) for theirs, ours in H2LOAD_TIMES.items()},
        "requests": as_number(counts[2]) if counts else math.nan,
        "errors": sum(refused) + unanswered,
        "errors_beside": min(unanswered, max(left, 0.0)),
    }


# --- Nighthawk ------------------------------------------------------------------------------------

NIGHTHAWK_STATISTIC = re.compile(r"^(\S.{0,80}?) \(\d{1,18} samples\)\s*$", re.M)
"""The line with the name of a statistic and its number of samples. The group is the name."""
NIGHTHAWK_LATENCY = (
    "Request start to response end",
    "benchmark_http_client.request_to_response",  # in older versions
)
"""Names of the statistic of response times."""
NIGHTHAWK_TIME = r"(\d{1,9})s (\d{1,3})ms (\d{1,3})us"
NIGHTHAWK_TIMES = {"mean_ms": "mean", "stdev_ms": "pstdev", "min_ms": "min", "max_ms": "max"}
NIGHTHAWK_PERCENTILE = re.compile(
    rf"^\s*([01](?:\.\d{{1,12}})?)\s+\d{{1,18}}\s+{NIGHTHAWK_TIME}", re.M
)
NIGHTHAWK_COUNTER = re.compile(r"^benchmark\.(\w{1,40})\s+(\d{1,18})\s+([\d.]{1,20})\s*$", re.M)
"""A line with a counter of Nighthawk's client.

The groups are the counter's name, the counter's value, and the rate per second.
"""
NIGHTHAWK_FAILURES = ("stream_resets", "pool_connection_failure")


def nighthawk(text: str, source: str) -> Iterator[Row]:
    """Yield the row of the text that Nighthawk prints.

    Nighthawk sends a closed load with a limited rate. The text names neither the number of
    connections nor the limit of the rate.
    """
    _, *parts = NIGHTHAWK_STATISTIC.split(text)
    statistics = dict(zip(parts[::2], parts[1::2], strict=True))
    times = next((statistics[name] for name in NIGHTHAWK_LATENCY if name in statistics), "")
    percentiles = [
        {"percentile": percentile, "duration": _nighthawk_ms(*parts)}
        for percentile, *parts in NIGHTHAWK_PERCENTILE.findall(times)
    ]
    counts = {name: as_number(value) for name, value, _ in NIGHTHAWK_COUNTER.findall(text)}
    rates = {name: as_number(per_s) for name, _, per_s in NIGHTHAWK_COUNTER.findall(text)}
    answers = [f"http_{digit}xx" for digit in (1, 2, 3, 4, 5)]
    wrong = ["http_4xx", "http_5xx"]
    requests = [*answers, *NIGHTHAWK_FAILURES]
    yield {
        "test": source,
        "subject": source,
        "tool": "nighthawk",
        "load_model": CLOSED_OR_LIMITED,
        **{
            ours: _nighthawk_ms(*found.groups())
            for ours, theirs in NIGHTHAWK_TIMES.items()
            if (found := re.search(rf"\b{theirs}: {NIGHTHAWK_TIME}", times))
        },
        **nearest_percentiles({"percentiles": percentiles}),
        "rate": sum_of(rates, requests),
        "requests": sum_of(counts, requests),
        "errors": plus(0.0, sum_of(counts, [*wrong, *NIGHTHAWK_FAILURES])),
    }


def _nighthawk_ms(seconds: str, milliseconds: str, microseconds: str) -> float:
    """Return the time in ms that Nighthawk prints as `0s 053ms 798us`."""
    return 1e3 * float(seconds) + float(milliseconds) + float(microseconds) / 1e3


TOOLS = (
    Tool(
        "wrk",
        at(r"Running \S{1,20} test @", r"\d{1,9} threads? and \d", r"Thread Stats\s+Avg"),
        wrk,
    ),
    Tool("hey", at(r"Summary:\s*\n(?=[\s>]*Total:)"), hey),
    Tool("oha", at(r"Summary:\s*\n(?=[\s>]*Success rate:)"), oha),
    Tool("ghz", at(r"Summary:\s*\n(?=[\s>]*(?:Name:.*\n[\s>]*)?Count:)"), ghz),
    Tool(
        "ab",
        at("This is ApacheBench", "Server Software:", r"Concurrency Level:\s+\d"),
        ab,
    ),
    Tool("bombardier", at(r"Bombarding \S{1,2000} ", r"Statistics\s+Avg\s"), bombardier),
    Tool("vegeta", at(r"Requests\s+\[total, rate"), vegeta),
    Tool("h2load", at("starting benchmark", r"finished in \S{1,20}, \d"), h2load),
    Tool(
        "nighthawk",
        at(
            r"Nighthawk - A layer 7 protocol benchmarking tool", r"Request start to response end \("
        ),
        nighthawk,
    ),
    Tool("k6", k6_summaries.begins_of_text, k6_summaries.printed),
)
"""All tools whose printed reports can be read."""
