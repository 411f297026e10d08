"""Read the reports that load generators write as JSON."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.audit.formats.values import (
    PRINTED_QUANTILES,
    JsonObject,
    Row,
    as_number,
    counted,
    dict_of,
    dicts_of,
    list_of,
    sum_of,
    wrong,
)

NS = 1e-6
"""NS, US and S are factors that convert nanoseconds, microseconds and seconds to milliseconds."""
US = 1e-3
S = 1e3
CLOSED = "use of closed network connection"
"""Part of the error message of Go's network library if the program itself closed the connection."""
CLOSED_OR_LIMITED = "closed or limited"
"""Load model of a report that does not say whether the tool limited the rate.

`values.NUMBERS` explains the load models.
"""
ABORTED = "aborted due to deadline"
"""oha's error for requests that were under way when the duration of the load was over."""


def scaled(values: Mapping[str, Any], names: Mapping[str, str], unit_ms: float) -> Row:
    """Return the times in `values`, in ms, by the names of our columns.

    Each key of `names` is the name of one of our columns, and its value is the key of the time in
    `values`. The unit of the times in `values` is `unit_ms` milliseconds.
    """
    return {ours: unit_ms * as_number(values.get(theirs)) for ours, theirs in names.items()}


def oha(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of oha's JSON output (`--json`, `--output-format json`)."""
    summary = dict_of(data.get("summary"))
    codes = dict_of(data.get("statusCodeDistribution"))
    failures = dict_of(data.get("errorDistribution"))
    unfinished = sum_of(failures, [ABORTED])
    failed = sum_of(failures, [name for name in failures if name != ABORTED])
    times = {"mean_ms": "average", "min_ms": "fastest", "max_ms": "slowest"}
    quantiles = {f"p{percent}_ms": f"p{percent}" for percent in PRINTED_QUANTILES}
    yield {
        "test": source,
        "subject": source,
        "tool": "oha",
        "load_model": CLOSED_OR_LIMITED,
        **scaled(summary, times, S),
        **scaled(dict_of(data.get("latencyPercentiles")), quantiles, S),
        "rate": summary.get("requestsPerSec"),
        "duration_s": summary.get("total"),
        "requests": plus(counted(codes), failed, unfinished),
        "errors": plus(wrong(codes), failed),
        "unfinished": unfinished,
        "bytes_per_s": summary.get("sizePerSec") if codes else None,
        "answer_bytes": summary.get("sizePerRequest"),
    }


def plus(*counts: float) -> float:
    """Return the sum of the counts that are not NaN, or NaN if all counts are NaN."""
    known = [each for each in counts if not math.isnan(each)]
    return sum(known) if known else math.nan


def bombardier(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of bombardier's JSON output (`--format json`), whose times are microseconds."""
    spec = dict_of(data.get("spec"))
    result = dict_of(data.get("result"))
    latency = dict_of(result.get("latency"))
    codes = {str(each): result.get(f"req{each}xx") for each in (1, 2, 3, 4, 5)}
    answered = sum_of(codes, codes)
    others = as_number(result.get("others"))
    quantiles = {f"p{percent}_ms": str(percent) for percent in PRINTED_QUANTILES}
    times = {"mean_ms": "mean", "stdev_ms": "stddev", "max_ms": "max"}
    yield {
        "test": source,
        "subject": source,
        "tool": "bombardier",
        "load_model": "open" if as_number(spec.get("rate")) > 0 else "closed",
        "protocol": "h2" if spec.get("client") == "nethttp2" else "",
        "connections": spec.get("numberOfConnections"),
        "target_rate": spec.get("rate"),
        **scaled(latency, times, US),
        **scaled(dict_of(latency.get("percentiles")), quantiles, US),
        "rate": dict_of(result.get("rps")).get("mean"),
        "duration_s": result.get("timeTakenSeconds"),
        "requests": plus(answered, others),
        "errors": plus(sum_of(codes, ("4", "5")), others),
        "answer_bytes": as_number(result.get("bytesRead")) / answered if answered else math.nan,
    }


def vegeta(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of vegeta's JSON report, whose times are nanoseconds."""
    latencies = dict_of(data.get("latencies"))
    codes = dict_of(data.get("status_codes"))
    quantiles = {f"p{percent}_ms": f"{percent}th" for percent in PRINTED_QUANTILES}
    times = {"mean_ms": "mean", "min_ms": "min", "max_ms": "max"}
    yield {
        "test": source,
        "subject": source,
        "tool": "vegeta",
        "load_model": "open",
        **scaled(latencies, times, NS),
        **scaled(latencies, quantiles, NS),
        "rate": data.get("rate"),
        "duration_s": NS / S * as_number(data.get("duration")),
        "requests": data.get("requests"),
        "errors": wrong(codes) if codes else math.nan,
        "answer_bytes": dict_of(data.get("bytes_in")).get("mean"),
    }


def autocannon(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of autocannon's JSON output (`--json`).

    autocannon rounds times down to whole milliseconds.
    """
    latency = dict_of(data.get("latency"))
    requests = dict_of(data.get("requests"))
    failed = plus(sum_of(data, ("errors", "resets", "mismatches")))
    quantiles = {f"p{percent}_ms": f"p{percent}" for percent in PRINTED_QUANTILES}
    quantiles["p95_ms"] = "p95"
    times = {"mean_ms": "average", "stdev_ms": "stddev", "min_ms": "min", "max_ms": "max"}
    yield {
        "test": source,
        "subject": str(data.get("title") or source),
        "tool": "autocannon",
        "load_model": CLOSED_OR_LIMITED,
        "connections": data.get("connections"),
        "depth": data.get("pipelining"),
        **scaled(latency, times, 1.0),
        **scaled(latency, quantiles, 1.0),
        "resolution_ms": 1.0,
        "rate": requests.get("average"),
        "duration_s": data.get("duration"),
        "requests": plus(as_number(requests.get("total")), failed),
        "errors": plus(as_number(data.get("non2xx")), failed),
        "bytes_per_s": dict_of(data.get("throughput")).get("average"),
    }


def fortio(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of fortio's JSON (`-json FILE`), whose times are seconds.

    fortio interpolates percentiles within the buckets of a histogram. So the error of a percentile
    may be as large as the width of a bucket, which is 1 ms or more with fortio's default options.
    """
    histogram = dict_of(data.get("DurationHistogram"))
    every_bucket = dicts_of(histogram.get("Data"))
    up_to_p99 = sum(as_number(each.get("Percent")) < 99 for each in every_bucket) + 1
    buckets = every_bucket[:up_to_p99]
    widths_ms = [
        S * (as_number(each.get("End")) - as_number(each.get("Start"))) for each in buckets
    ]
    known = {
        as_number(each.get("Percentile")): as_number(each.get("Value"))
        for each in dicts_of(histogram.get("Percentiles"))
    }
    codes = dict_of(data.get("RetCodes"))
    answers = {code: count for code, count in codes.items() if as_number(code) > 0}
    unanswered = sum_of(codes, [code for code in codes if code not in answers and code != "OK"])
    requested = as_number(data.get("RequestedQPS"))
    times = {"mean_ms": "Avg", "stdev_ms": "StdDev", "min_ms": "Min", "max_ms": "Max"}
    yield {
        "test": source,
        "subject": str(data.get("Labels") or source),
        "tool": "fortio",
        "load_model": "open" if requested > 0 else "closed",
        "target_rate": requested,
        "connections": data.get("NumThreads"),
        **scaled(histogram, times, S),
        **{f"p{each}_ms": S * known.get(float(each), math.nan) for each in PRINTED_QUANTILES},
        "resolution_ms": max((each for each in widths_ms if each > 0), default=0.0),
        "rate": data.get("ActualQPS"),
        "duration_s": NS / S * as_number(data.get("ActualDuration")),
        "requests": counted(codes),
        "errors": plus(wrong(answers), unanswered),
        "answer_bytes": dict_of(data.get("Sizes")).get("Avg"),
    }


def nighthawk(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of Nighthawk's JSON output: the result `global`, which covers all workers."""
    options = dict_of(data.get("options"))
    results = dicts_of(data.get("results"))
    workers = _workers_of_nighthawk(options, results)
    for result in results:
        if result.get("name") != "global":
            continue
        statistics = {str(each.get("id")): each for each in dicts_of(result.get("statistics"))}
        latency = statistics.get("benchmark_http_client.request_to_response", {})
        counters = {
            str(each.get("name")): each.get("value") for each in dicts_of(result.get("counters"))
        }
        answers = {
            f"{each}00": counters.get(f"benchmark.http_{each}xx") for each in (1, 2, 3, 4, 5)
        }
        failed = sum_of(counters, ("benchmark.stream_resets", "benchmark.pool_connection_failure"))
        duration = result.get("execution_duration") or options.get("duration")
        duration_s = as_number(str(duration).removesuffix("s"))
        requests = plus(counted(answers), failed)
        rate = requests / duration_s if duration_s > 0 else math.nan
        target_rate = as_number(options.get("requests_per_second")) * workers
        is_closed = options.get("open_loop") is False and not rate >= REACHED * target_rate
        yield {
            "test": source,
            "subject": source,
            "tool": "nighthawk",
            "load_model": CLOSED_OR_LIMITED if is_closed else "open",
            "connections": as_number(options.get("connections")) * workers,
            "target_rate": target_rate,
            "protocol": "h2" if "HTTP2" in str(options.get("protocol") or "") else "",
            "mean_ms": latency.get("mean"),
            "stdev_ms": latency.get("pstdev"),
            **_extremes(latency),
            **nearest_percentiles(latency),
            "rate": rate,
            "duration_s": duration_s,
            "requests": requests,
            "errors": plus(wrong(answers), failed),
        }


REACHED = 0.95
"""A load of Nighthawk counts as open if its rate is at least this share of the offered rate.

Even if Nighthawk calls the load closed, the offered rate has then limited it.
"""
NEAR = 0.001
"""A percentile of Nighthawk is used as one of our percentiles if the two differ by at most this.

Percentiles are shares here: the 99th percentile is 0.99.
"""


def _workers_of_nighthawk(options: JsonObject, results: list[JsonObject]) -> float:
    """Return the number of Nighthawk's workers.

    The number is needed because the options name the connections and the rate of a single worker.
    If there are several workers, the file has a result for each of them, and the number of these
    results is returned. If the file has no such results, the option `concurrency` is returned. If
    this option is not a number either (it may be `auto`), 1 is returned.
    """
    found = sum(str(each.get("name")).startswith("worker_") for each in results)
    stated = as_number(options.get("concurrency"))
    return found or (stated if stated > 0 else 1.0)


def _extremes(latency: JsonObject) -> Row:
    """Return the lowest and the highest response time of Nighthawk's statistic.

    Older versions of Nighthawk give these two times only as the percentiles 0 and 1.
    """
    by_percentile = {
        as_number(each.get("percentile")): each.get("duration")
        for each in dicts_of(latency.get("percentiles"))
    }
    return {
        "min_ms": latency.get("min") or by_percentile.get(0.0),
        "max_ms": latency.get("max") or by_percentile.get(1.0),
    }


def nearest_percentiles(latency: JsonObject) -> Row:
    """Return our columns of percentiles from Nighthawk's statistic of latencies.

    Nighthawk gives the percentiles at which its histogram has a step, such as 0.990625 instead of
    0.99. So each of our columns gets the time of the nearest of Nighthawk's percentiles. If even
    the nearest percentile differs by more than NEAR, the column is left out.
    """
    known = [
        (as_number(each.get("percentile")), each.get("duration"))
        for each in dicts_of(latency.get("percentiles"))
    ]
    found: Row = {}
    for percent in PRINTED_QUANTILES:
        near = [each for each in known if abs(each[0] - percent / 100) <= NEAR]
        if near:
            nearest = min(near, key=lambda each: abs(each[0] - percent / 100))
            found[f"p{percent}_ms"] = nearest[1]
    return found


def closed_by_ghz(failures: Mapping[str, Any]) -> float:
    """Return the number of requests that ghz itself cut off at the end of the load.

    `failures` are ghz's counts of errors, by message. At the end of the load, ghz closes its
    connections while requests are under way, and counts these requests as Unavailable or Canceled.
    The message of such an error contains CLOSED. If the server closes a connection, the message is
    different.
    """
    return plus(0.0, sum_of(failures, [why for why in failures if CLOSED in why]))


def ghz(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield the row of ghz's JSON output (`-O json`), whose times are nanoseconds."""
    options = dict_of(data.get("options"))
    known = {
        as_number(each.get("percentage")): NS * as_number(each.get("latency"))
        for each in dicts_of(data.get("latencyDistribution"))
    }
    codes = dict_of(data.get("statusCodeDistribution"))
    unfinished = closed_by_ghz(dict_of(data.get("errorDistribution")))
    failed = sum_of(codes, [code for code in codes if code != "OK"])
    rate = as_number(options.get("rps"))
    times = {"mean_ms": "average", "min_ms": "fastest", "max_ms": "slowest"}
    yield {
        "test": source,
        "subject": str(data.get("name") or source),
        "tool": "ghz",
        "load_model": "open" if rate > 0 else "closed",
        "protocol": "h2",
        "target_rate": rate if rate > 0 else math.nan,
        "connections": options.get("concurrency"),
        "depth": 1,
        **scaled(data, times, NS),
        **{f"p{each}_ms": known.get(float(each)) for each in PRINTED_QUANTILES},
        "rate": data.get("rps"),
        "duration_s": NS / S * as_number(data.get("total")),
        "requests": data.get("count"),
        "errors": plus(failed, 0.0) - unfinished if codes else math.nan,
        "unfinished": unfinished,
    }


GATLING_QUANTILES = {
    "percentiles1": "p50_ms",
    "percentiles3": "p95_ms",
    "percentiles4": "p99_ms",
}
"""Our columns of percentiles, by the names that Gatling uses in its default configuration."""


GATLING_SCRIPT = re.compile(r"\s*var stats = (?=\{)")
GATLING_FUNCTION = re.compile(r"^function \w", re.M)
BARE_NAME = re.compile(r"^(\s*)(\w{1,40}):", re.M)


def json_of_gatling_script(text: str) -> str:
    """Return the statistics in Gatling's js/stats.js as JSON, the format of js/stats.json.

    `text` is the content of js/stats.js: an object of JavaScript, in which some names have no
    quotation marks, and then a function. If `text` is anything else, return an empty text.
    """
    begin = GATLING_SCRIPT.match(text)
    if begin is None:
        return ""
    content = GATLING_FUNCTION.split(text[begin.end() :], maxsplit=1)[0]
    return BARE_NAME.sub(r'\1"\2":', content).rstrip("; \r\n")


def gatling(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield a row for each kind of request in Gatling's stats.json.

    For global_stats.json, yield one row for all requests together.
    """
    requests = list(_gatling_requests(data, 0))
    if requests:
        yield from (_gatling_row(each, source) for each in requests)
    else:
        yield _gatling_row(dict_of(data.get("stats")) or data, source)


def _gatling_requests(data: JsonObject, level: int) -> Iterator[JsonObject]:
    """Yield the statistics of each kind of request, including the kinds inside groups."""
    if level > 8:
        return
    for each in dict_of(data.get("contents")).values():
        entry = dict_of(each)
        if entry.get("type") == "REQUEST":
            yield dict_of(entry.get("stats"))
        else:
            yield from _gatling_requests(entry, level + 1)


def _gatling_row(stats: JsonObject, source: str) -> Row:
    def total(name: str) -> Any:
        return dict_of(stats.get(name)).get("total")

    name = str(stats.get("name") or source)
    return {
        "test": source,
        "subject": name,
        "row": name,
        "tool": "gatling",
        "load_model": "unknown",
        "mean_ms": total("meanResponseTime"),
        "stdev_ms": total("standardDeviation"),
        "min_ms": total("minResponseTime"),
        "max_ms": total("maxResponseTime"),
        **{ours: total(theirs) for theirs, ours in GATLING_QUANTILES.items()},
        "resolution_ms": 1.0,
        "rate": total("meanNumberOfRequestsPerSecond"),
        "requests": total("numberOfRequests"),
        "errors": dict_of(stats.get("numberOfRequests")).get("ko"),
    }


CRANK_TOOLS = ("wrk", "bombardier", "h2load", "http")
"""Load generators of crank. Their names are the prefixes of the names of crank's results.

Several load generators share the prefix `http`. A job may have results under `http` and also under
the prefix of its own load generator. `http` is the last of the prefixes, because `_tool_of_crank`
prefers the first one that it finds.
"""


def crank(data: JsonObject, source: str) -> Iterator[Row]:
    """Yield a row for each load of crank's JSON output (`--json`, `--output`)."""
    results = _results_of_crank(data)
    served = results.get("application", {})
    metadata = {
        name: dicts_of(dict_of(job).get("metadata")) for name, job in _jobs_of_crank(data).items()
    }
    for name, found in results.items():
        tool = _tool_of_crank(found)
        if tool is not None:
            yield _crank_row(name, found, tool, _crank_unit_ms(found, tool, metadata[name])) | {
                "test": source,
                "subject": source,
                "cpu_pct": served.get("benchmarks/cpu"),
                "cpu_given_pct": 100.0 if "benchmarks/cpu" in served else math.nan,
            }


def _jobs_of_crank(data: JsonObject) -> JsonObject:
    """Return crank's jobs by name.

    A file of crank has the jobs in its member `jobResults`. A document from crank's database has
    the jobs at its top level.
    """
    return dict_of((dict_of(data.get("jobResults")) or data).get("jobs"))


def _results_of_crank(data: JsonObject) -> dict[str, JsonObject]:
    return {
        name: dict_of(dict_of(job).get("results")) for name, job in _jobs_of_crank(data).items()
    }


def _tool_of_crank(results: JsonObject) -> str | None:
    """Return the load generator of a job of crank, or None if the job sent no load."""
    return next((tool for tool in CRANK_TOOLS if f"{tool}/rps/mean" in results), None)


def _crank_unit_ms(results: JsonObject, tool: str, metadata: list[JsonObject]) -> float:
    """Return the unit of the latencies in the results of a job of crank, in ms.

    All latencies are in milliseconds, except that older versions of crank give bombardier's
    latencies in microseconds. The first of these sources that exists shows the unit of bombardier's
    latencies:

    1. The job's metadata describe the mean latency, with its unit.
    2. The results contain bombardier's own report, whose times are always in microseconds. If the
       report has the same mean as the results, the results are in microseconds, too.
    3. Only newer versions of crank give percentiles. So results with percentiles are in
       milliseconds, and results without percentiles are in microseconds.
    """
    if tool != "bombardier":
        return 1.0
    name = "bombardier/latency/mean"
    for each in metadata:
        if each.get("name") == name:
            return US if "(us)" in str(each.get("description")) else 1.0
    mean_us = as_number(_report_in_crank(results).get("mean_ms")) / US
    if mean_us > 0:
        is_us = math.isclose(as_number(results.get(name)), mean_us, rel_tol=0.01)
    else:
        is_us = "bombardier/latency/50" not in results
    return US if is_us else 1.0


def _report_in_crank(results: JsonObject) -> Row:
    """Return the row of bombardier's own report in a job's results.

    Return an empty row if there is no report, or if there are several reports because several load
    generators shared the load.
    """
    reports = dicts_of(results.get("bombardier/raw"))
    return next(bombardier(reports[0], "")) if len(reports) == 1 else {}


def _crank_row(name: str, found: JsonObject, tool: str, unit_ms: float) -> Row:
    prefix = f"{tool}/latency/"
    quantiles = {f"p{percent}_ms": f"{prefix}{percent}" for percent in PRINTED_QUANTILES}
    times = {"mean_ms": f"{prefix}mean", "max_ms": f"{prefix}max"}
    failed = sum_of(
        found,
        (f"{tool}/errors/badresponses", f"{tool}/errors/socketerrors", f"{tool}/badresponses"),
    )
    row = {
        "row": name,
        "tool": tool,
        "load_model": "closed",
        **scaled(found, times | quantiles, unit_ms),
        "rate": found.get(f"{tool}/rps/mean"),
        "requests": found.get(f"{tool}/requests"),
        "errors": failed,
        "connections": found.get(f"{tool}/connections"),
    }
    unknown = [
        column
        for column, value in row.items()
        if value is None or (isinstance(value, float) and math.isnan(value))
    ]
    return _report_in_crank(found) | {
        column: value for column, value in row.items() if column not in unknown
    }


def is_oha(data: JsonObject) -> bool:
    """Return True if the JSON is oha's output."""
    return {"summary", "latencyPercentiles"} <= data.keys()


def is_bombardier(data: JsonObject) -> bool:
    """Return True if the JSON is bombardier's output."""
    return {"spec", "result"} <= data.keys() and "latency" in dict_of(data["result"])


def is_vegeta(data: JsonObject) -> bool:
    """Return True if the JSON is vegeta's report."""
    return {"latencies", "status_codes"} <= data.keys()


def is_autocannon(data: JsonObject) -> bool:
    """Return True if the JSON is autocannon's output."""
    return {"latency", "requests", "throughput", "connections"} <= data.keys()


def is_fortio(data: JsonObject) -> bool:
    """Return True if the JSON is fortio's output."""
    return {"DurationHistogram", "ActualQPS"} <= data.keys()


def is_nighthawk(data: JsonObject) -> bool:
    """Return True if the JSON is Nighthawk's output."""
    results = dicts_of(data.get("results"))
    return any({"statistics", "counters"} <= each.keys() for each in results)


def is_ghz(data: JsonObject) -> bool:
    """Return True if the JSON is ghz's output."""
    return {"count", "rps", "fastest", "slowest"} <= data.keys()


def is_gatling(data: JsonObject) -> bool:
    """Return True if the JSON is Gatling's stats.json or global_stats.json."""
    stats = dict_of(data.get("stats")) or data
    return isinstance(stats.get("meanNumberOfRequestsPerSecond"), dict)


def is_crank(data: JsonObject) -> bool:
    """Return True if the JSON is crank's output."""
    return "jobs" in dict_of(data.get("jobResults")) or any(
        map(_tool_of_crank, _results_of_crank(data).values())
    )


def objects(data: Any) -> list[JsonObject]:
    """Return the reports of a file, which contains a single report or a list of reports."""
    return [dict_of(each) for each in list_of(data)] or [dict_of(data)]
