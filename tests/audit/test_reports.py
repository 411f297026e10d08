"""Tests of reading the reports that load generators print.

A file may have several reports, each below its own heading. The samples in
tests/support/samples/audit/ are reports of these tools about loads of one of the lab's servers.
"""

import json
import re
from pathlib import Path

import pytest
from audited_tables import WRK_OUTPUT
from built import ROOT

from runner.audit.checks import audit
from runner.audit.finding import Severity
from runner.audit.reading import parse, read_all
from runner.model import LabError

SAMPLES = sorted((ROOT / "tests" / "support" / "samples" / "audit").iterdir())
AB = """This is ApacheBench, Version 2.3 <$Revision$>

Concurrency Level:      20
Time taken for tests:   2.000 seconds
Complete requests:      4000
Failed requests:        130
   (Connect: 10, Receive: 20, Length: 90, Exceptions: 10)
Non-2xx responses:      60
Requests per second:    2000.00 [#/sec] (mean)
Time per request:       10.000 [ms] (mean)

Connection Times (ms)
              min  mean[+/-sd] median   max
Total:          2   10   4.0      9      80

Percentage of the requests served within a certain time (ms)
  50%      9
  99%     30
 100%     80 (longest request)
"""
VEGETA = """Requests      [total, rate, throughput]         1000, 100.10, 60.05
Duration      [total, attack, wait]             10.01s, 9.99s, 15ms
Latencies     [mean, 50, 95, 99, max]           20ms, 19ms, 40ms, 60ms, 1.5s
Bytes In      [total, mean]                     42000, 42.00
Success       [ratio]                           60.00%
Status Codes  [code:count]                      0:300  200:600  503:100
Error Set:
dial tcp: i/o timeout
"""
GHZ = """
Summary:
  Count:\t4000
  Total:\t2.00 s
  Slowest:\t40.00 ms
  Fastest:\t1.00 ms
  Average:\t9.50 ms
  Requests/sec:\t2000.00

Latency distribution:
  50 % in 9.00 ms
  99 % in 20.00 ms

Status code distribution:
  [Unavailable]   40 responses
  [OK]            3960 responses

Error distribution:
  [40]   rpc error: code = Unavailable
"""
H2LOAD = """starting benchmark...
spawning thread #0: 10 total client(s). 100000 total requests
spawning thread #1: 10 total client(s). 100000 total requests
Application protocol: h2

finished in 2.50s, 80000.00 req/s, 5.43MB/s
requests: 200000 total, 200000 started, 200000 done, 199000 succeeded, \
1000 failed, 400 errored, 100 timeout
status codes: 199000 2xx, 0 3xx, 300 4xx, 200 5xx
                     min         max         mean         sd        +/- sd
time for request:      170us     90.00ms     25.00ms       800us    80.00%
time for connect:      170us      1.00ms       500us       100us    80.00%
"""
BOMBARDIER = """Bombarding http://127.0.0.1:8080/ for 10s using 125 connection(s)
Done!
Statistics        Avg      Stdev        Max
  Reqs/sec     25000.00    2500.00   30000.00
  Latency        5.00ms     1.08ms    32.47ms
  Latency Distribution
     50%     4.80ms
     99%     9.00ms
  HTTP codes:
    1xx - 0, 2xx - 249000, 3xx - 0, 4xx - 300, 5xx - 600
    others - 100
"""
WRK2 = WRK_OUTPUT.replace("Stdev     Max ", "Stdev     99% ").replace(
    "  Latency Distribution\n", "  Thread calibration: mean lat.: 2ms\n  Latency Distribution\n"
)
PRINTED = {
    "ab": (
        AB,
        {"rate": 2000, "connections": 20, "mean_ms": 10, "p99_ms": 30, "max_ms": 80, "errors": 100},
    ),
    "vegeta": (
        VEGETA,
        {
            "rate": 100.1,
            "mean_ms": 20,
            "p95_ms": 40,
            "max_ms": 1500,
            "errors": 400,
            "requests": 1000,
        },
    ),
    "ghz": (
        GHZ,
        {"rate": 2000, "mean_ms": 9.5, "p99_ms": 20, "errors": 40, "requests": 4000},
    ),
    "h2load": (
        H2LOAD,
        {"rate": 80000, "connections": 20, "mean_ms": 25, "max_ms": 90, "errors": 1000},
    ),
    "bombardier": (
        BOMBARDIER,
        {"rate": 25000, "connections": 125, "mean_ms": 5, "p99_ms": 9, "errors": 1000},
    ),
    "wrk2": (WRK2, {"rate": 50000, "connections": 100, "mean_ms": 2, "p99_ms": 4}),
}


@pytest.mark.parametrize("tool", PRINTED)
def test_a_printed_report_has_the_numbers_that_stand_there(tool: str) -> None:
    text, expected = PRINTED[tool]
    rows = parse(text.encode(), "stdin")
    assert len(rows) == 1
    assert {name: rows[name][0] for name in expected} == pytest.approx(expected)


def test_the_third_column_of_wrk2_is_what_its_heading_says() -> None:
    """The third column of wrk2's report is read as p99 if its heading is `99%`.

    Other versions of wrk2 print the maximum in this column.
    """
    without_table = re.sub(r"  Latency Distribution\n(?:.*%.*\n)+", "", WRK2)
    row = parse(without_table.encode(), "stdin").iloc[0]
    assert row["p99_ms"] == 12.92
    assert row["max_ms"] != row["max_ms"]
    assert row["load_model"] == "open"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_what_a_tool_printed_about_a_sound_load_is_silent(path: Path) -> None:
    """A report about a correct load causes no finding, except for the report of wrk.

    If CPU time is taken away from the machine, wrk's histogram also counts requests that wrk has
    never sent. This happened while wrk's sample was made, so the numbers in the sample do not agree
    with Little's law.
    """
    done = audit(read_all([path]))
    assert len(done.rows) >= 1
    assert done.rows["rate"].gt(0).all()
    graver = [each for each in done.findings if each.severity is not Severity.KNOWING]
    if path.name == "wrk.txt":
        assert [each.check for each in graver] == ["Little's law"]
        assert graver[0].severity is Severity.SUSPICIOUS
    else:
        assert graver == []


@pytest.mark.parametrize("name", ["k6", "k6-open", "vegeta", "bombardier"])
def test_a_tools_text_and_json_agree(name: str) -> None:
    """The text and the JSON of a tool give the same values.

    The two files of bombardier are about different loads. For bombardier, the test therefore checks
    only that the same columns have a value.
    """
    folder = SAMPLES[0].parent
    text = read_all([folder / f"{name}.txt"])
    data = read_all([folder / f"{name}.json"])
    known = ["rate", "mean_ms", "p90_ms", "p95_ms", "max_ms", "requests", "connections"]
    assert list(text["row"]) == list(data["row"])
    for column in known:
        assert list(text[column].notna()) == list(data[column].notna()), column
        if name != "bombardier":
            assert text[column].to_numpy() == pytest.approx(
                data[column].to_numpy(), rel=0.01, nan_ok=True
            ), column


def test_several_reports_are_rows_under_their_headings() -> None:
    """A report ends where the next report begins, even if the next report is of another tool."""
    slower = WRK_OUTPUT.replace("2.00ms", "4.00ms").replace("50000.00", "25000.00")
    text = f"# Results\n\n## way one\n\n{WRK_OUTPUT}\n\n## way two\n\n{slower}\n\n## by ab\n\n{AB}"
    rows = parse(text.encode(), "results.md")
    assert list(rows["subject"]) == ["way one", "way two", "by ab"]
    assert list(rows["mean_ms"]) == [2, 4, 10]
    assert list(rows["rate"]) == [50_000, 25_000, 2_000]
    assert list(rows["tool"]) == ["wrk", "wrk", "ab"]


def test_reports_without_headings_are_named_after_their_addresses() -> None:
    other = WRK_OUTPUT.replace(":8080/", ":8081/")
    rows = parse(f"{WRK_OUTPUT}\n{other}\n{other}".encode(), "out.txt")
    assert list(rows["subject"]) == [
        "http://127.0.0.1:8080/",
        "http://127.0.0.1:8081/ (1)",
        "http://127.0.0.1:8081/ (2)",
    ]


LOCUST = """Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,\
Min Response Time,Max Response Time,Average Content Size,Requests/s,Failures/s,50%,90%,95%,99%,100%
GET,/a,6000,0,20,22.5,3,300,100,100.0,0,20,35,45,80,300
POST,/b,3000,1500,40,47.1,9,704,100,50.0,25.0,40,70,90,160,700
,Aggregated,9000,1500,28,30.7,3,704,100,150.0,25.0,28,52,70,120,700
"""


def test_locusts_sum_is_no_row() -> None:
    rows = parse(LOCUST.encode(), "x_stats.csv")
    assert list(rows["subject"]) == ["GET /a", "POST /b"]
    assert list(rows["errors"]) == [0, 1500]
    assert [each.subject for each in audit(rows).findings] == ["POST /b"]


def test_jmeters_requests_are_counted_by_label() -> None:
    """The requests of a file of JMeter are counted by label.

    The file has 100 requests of `a`, one every 10 ms, and two failed requests of `b`. Each request
    of `a` takes 5 ms, except for the last one, which takes 30 ms.
    """
    head = "timeStamp,elapsed,label,responseCode,success,bytes,allThreads"
    lines = [f"{1000 + 10 * n},{30 if n == 99 else 5},a,200,true,180,4" for n in range(100)]
    lines += [f"{1000 + 10 * n},2,b,500,false,90,4" for n in range(2)]
    rows = parse("\n".join([head, *lines, ""]).encode(), "results.jtl").set_index("subject")
    assert rows.loc["a", "requests"] == 100
    assert rows.loc["a", "duration_s"] == pytest.approx(1.02)
    assert rows.loc["a", "mean_ms"] == pytest.approx(5.25)
    assert (rows.loc["a", "p50_ms"], rows.loc["a", "max_ms"]) == (5, 30)
    assert rows.loc["b", "errors"] == 2
    severities = [each.severity for each in audit(rows.reset_index()).findings]
    assert severities[0] is Severity.VOID


def test_tables_in_markdown_are_read_as_csv() -> None:
    text = """# Frameworks

## json

| framework | req/s | clients |
|-----------|------:|:-------:|
| **axum**  | 31,680 | 64 |
| gin       | 12,672 | 64 |

| key | value |
|-----|-------|
| cpu | 4     |
"""
    columns = {"rps": "req/s"}
    rows = parse(text.encode(), "README.md", columns=columns)
    assert list(rows["subject"]) == ["axum", "gin"]
    assert list(rows["rate"]) == [31_680, 12_672]
    assert list(rows["connections"]) == [64, 64]
    assert set(rows["test"]) == {"json"}
    with pytest.raises(LabError, match="--map rps=NAME"):
        parse(text.encode(), "README.md")


GATLING_STATS = {
    "name": "All Requests",
    "numberOfRequests": {"total": "300", "ok": "290", "ko": "10"},
    "minResponseTime": {"total": "2"},
    "maxResponseTime": {"total": "90"},
    "meanResponseTime": {"total": "12"},
    "standardDeviation": {"total": "6"},
    "percentiles1": {"total": "10"},
    "percentiles2": {"total": "12"},
    "percentiles3": {"total": "30"},
    "percentiles4": {"total": "60"},
    "meanNumberOfRequestsPerSecond": {"total": "30.5"},
}
GATLING = {
    "type": "GROUP",
    "name": "All Requests",
    "stats": GATLING_STATS,
    "contents": {
        "req_a": {"type": "REQUEST", "stats": GATLING_STATS | {"name": "a"}},
        "group": {
            "type": "GROUP",
            "contents": {"req_b": {"type": "REQUEST", "stats": GATLING_STATS | {"name": "b"}}},
        },
    },
}
NIGHTHAWK = {
    "options": {
        "requests_per_second": 500,
        "connections": 10,
        "concurrency": "2",
        "duration": "10s",
    },
    "results": [
        {
            "name": "global",
            "execution_duration": "10s",
            "statistics": [
                {
                    "id": "benchmark_http_client.request_to_response",
                    "count": "10000",
                    "mean": "0.000120s",
                    "min": "0.000080s",
                    "max": "0.004000s",
                    "percentiles": [
                        {"percentile": 0.5, "duration": "0.000110s"},
                        {"percentile": 0.99, "duration": "0.000500s"},
                    ],
                }
            ],
            "counters": [
                {"name": "benchmark.http_2xx", "value": "9900"},
                {"name": "benchmark.http_5xx", "value": "100"},
            ],
        }
    ],
}
CRANK = {
    "returnCode": 0,
    "jobResults": {
        "jobs": {
            "application": {"results": {"benchmarks/cpu": 98}},
            "load": {
                "results": {
                    "wrk/rps/mean": 100_000,
                    "wrk/requests": 1_500_000,
                    "wrk/latency/mean": 2.56,
                    "wrk/latency/99": 9.5,
                    "wrk/latency/max": 40,
                    "wrk/errors/badresponses": 3,
                    "wrk/errors/socketerrors": 4,
                }
            },
        }
    },
}
GHZ_JSON = {
    "count": 200,
    "total": 2_000_000_000,
    "average": 9_500_000,
    "fastest": 1_000_000,
    "slowest": 40_000_000,
    "rps": 100.0,
    "options": {"concurrency": 10},
    "statusCodeDistribution": {"OK": 190, "Unavailable": 10},
    "latencyDistribution": [{"percentage": 50, "latency": 9_000_000}],
}
REPORTS = {
    "gatling": (GATLING_STATS, {"rate": 30.5, "p95_ms": 30, "errors": 10, "requests": 300}),
    "nighthawk": (
        NIGHTHAWK,
        {"rate": 1000, "connections": 20, "mean_ms": 0.12, "p99_ms": 0.5, "errors": 100},
    ),
    "crank": (CRANK, {"rate": 100_000, "mean_ms": 2.56, "p99_ms": 9.5, "errors": 7, "cpu_pct": 98}),
    "ghz": (GHZ_JSON, {"rate": 100, "connections": 10, "p50_ms": 9, "errors": 10, "duration_s": 2}),
}


@pytest.mark.parametrize("tool", REPORTS)
def test_json_of_tools_that_are_not_here_has_its_numbers(tool: str) -> None:
    data, expected = REPORTS[tool]
    rows = parse(json.dumps(data).encode(), "out.json")
    assert set(rows["tool"]) == {"wrk" if tool == "crank" else tool}
    assert {name: rows[name][0] for name in expected} == pytest.approx(expected)


def test_gatlings_requests_are_rows_also_within_groups() -> None:
    rows = parse(json.dumps(GATLING).encode(), "stats.json")
    assert list(rows["subject"]) == ["a", "b"]


def test_a_list_of_reports_has_a_row_for_each() -> None:
    rows = parse(json.dumps([GHZ_JSON, GHZ_JSON | {"count": 300}]).encode(), "out.json")
    assert list(rows["requests"]) == [200, 300]
    assert rows["subject"].nunique() == 2


OHA = {
    "summary": {
        "total": 2.0,
        "slowest": 0.4,
        "fastest": 0.02,
        "average": 0.05,
        "requestsPerSec": 60.0,
    },
    "latencyPercentiles": {"p50": 0.04, "p99": 0.3},
    "statusCodeDistribution": {"200": 60},
    "errorDistribution": {"connection refused": 30, "aborted due to deadline": 30},
}


def test_errors_are_errors_wherever_a_tool_counts_them() -> None:
    """In oha's report, connection errors count as errors, but requests cut off at the end do not.

    Of the 120 requests, 30 were refused and 30 were cut off when the load ended.
    """
    row = parse(json.dumps(OHA).encode(), "oha.json").iloc[0]
    assert (row["requests"], row["errors"], row["unfinished"]) == (120, 30, 30)
    refused = OHA | {"statusCodeDistribution": {}, "errorDistribution": {"refused": 10}}
    found = audit(parse(json.dumps(refused).encode(), "oha.json")).findings[0]
    assert found.severity is Severity.VOID


K6 = {
    "http_reqs": {"count": 3000, "rate": 100.0},
    "http_req_duration": {"avg": 20.0, "min": 15.0, "med": 19.5, "max": 70.0},
    "iterations": {"count": 3000, "rate": 100.0},
    "vus_max": {"value": 50, "min": 50, "max": 50},
    "iteration_duration": {"avg": 20.4},
}


@pytest.mark.parametrize(
    ("changed", "model", "is_found"),
    [
        ({}, "unknown", False),  # 100 requests/s of 20.4 ms keep only 2 of 50 users busy
        ({"vus_max": {"value": 2}}, "closed", False),
        # A single user would need two requests under way at once, which is impossible.
        ({"vus_max": {"value": 1}}, "closed", True),
        ({"dropped_iterations": {"count": 5}}, "open", False),
    ],
)
def test_the_load_model_of_k6_is_read_off_its_users(
    changed: dict[str, object], model: str, is_found: bool
) -> None:
    rows = parse(json.dumps({"metrics": K6 | changed}).encode(), "summary.json")
    assert set(rows["load_model"]) == {model}
    assert bool(audit(rows).findings) is is_found


def test_a_fault_in_json_is_named_with_its_line() -> None:
    with pytest.raises(LabError, match=r"crank.json is not valid JSON from line 3 on: .*\."):
        parse(b'{\n  "jobResults": {},\n}', "crank.json")


def test_a_text_that_nothing_reads_is_quoted() -> None:
    with pytest.raises(LabError, match=r'its first line is "Dear all,".*--map rps=NAME'):
        parse(b"\n\nDear all,\nwe were fast.\n", "mail.txt")
