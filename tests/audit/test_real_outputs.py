"""Tests of the audit with real output of tools, about correct loads and about failed loads.

In some tests, lines of a report are left out or changed. The commands that printed the samples are
in `tests/support/samples/audit-commands.md`.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from audited_tables import WRK_OUTPUT
from built import ROOT

from runner.audit.checks import audit
from runner.audit.finding import Finding, Severity, summary
from runner.audit.reading import parse, read_all

SAMPLES = ROOT / "tests" / "support" / "samples"
FAULTY = sorted((SAMPLES / "audit-faulty").iterdir())


def read(text: str, **options: float) -> pd.DataFrame:
    """Return the rows that the audit reads from a text."""
    return parse(text.encode(), "out.txt", **options)


def grave(rows: pd.DataFrame) -> list[Finding]:
    """Return the findings that are more severe than "worth knowing"."""
    return [each for each in audit(rows).findings if each.severity is not Severity.KNOWING]


def sample(name: str) -> str:
    """Return the report of a tool about a correct load, from the samples."""
    return (SAMPLES / "audit" / name).read_text()


# --- reports of oha -------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["us", "min", "hour"])
def test_oha_s_times_are_read_in_every_unit(unit: str) -> None:
    """The times in a report of oha are read correctly, in whatever unit oha prints them.

    Each of the three samples is about a load of five connections on the reference server, which
    answers after 5 ms. So the rate must be slightly below 1,000 requests/s.
    """
    (row,) = read(sample(f"oha-{unit}.txt")).to_dict("records")
    half_ms = {"us": 0.00000005, "min": 3.0, "hour": 180.0}[unit]
    assert row["resolution_ms"] == pytest.approx(half_ms)
    for name in ("min_ms", "mean_ms", "p50_ms"):
        assert row[name] == pytest.approx(5.2, abs=half_ms + 0.3)
    took_s = row["requests"] / row["rate"]
    assert row["duration_s"] == pytest.approx(took_s, abs=row["duration_slack_s"] + 0.001)
    assert row["requests"] == 500 and 900 < row["rate"] < 1000


def test_a_report_without_readable_numbers_is_not_called_consistent() -> None:
    text = "Summary:\n  Success rate:\t100%\n  Total:\tmuch\n  Requests/sec:\tNaN\n"
    assert summary(audit(read(text))).gravest == (
        "Nothing was checked, because no row has a rate, a count or a response time."
    )


def test_the_text_and_the_json_of_oha_say_the_same() -> None:
    both = [read(sample(f"oha-z.{kind}")).iloc[0] for kind in ("txt", "json")]
    for row in both:
        assert row["requests"] == pytest.approx(row["rate"] * row["duration_s"], rel=0.01)
        assert (row["errors"], row["unfinished"]) == (0, 8)
        assert row["answer_bytes"] == pytest.approx(27.5, abs=0.5)
        assert row["p50_ms"] == pytest.approx(5.15, abs=0.1)


def test_waiting_that_oha_counted_is_named_as_a_reason() -> None:
    """If response times are too long for the rate, the finding names oha's `--latency-correction`.

    With this option of oha, a response time contains the wait for a free connection. Without the
    option, the same load causes no finding.
    """
    rows = read(sample("oha-over-corrected.txt"), connections=2)
    (found,) = grave(rows)
    assert found.severity is Severity.SUSPICIOUS
    assert "--latency-correction" in found.says
    assert grave(read(sample("oha-over.txt"), connections=2)) == []


# --- reports about loads that failed --------------------------------------------------------------


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.name)
def test_a_load_without_good_answers_has_no_rate(path: Path) -> None:
    (found,) = grave(read_all([path]))
    assert found.severity is Severity.VOID


@pytest.mark.parametrize(
    ("name", "pattern", "changed", "check"),
    [
        (
            "ab-close.txt",
            r"Time taken for tests: .*seconds",
            "Time taken for tests:   0.500 seconds",
            "counts",
        ),
        (
            "ab-close.txt",
            r"Requests per second: .*\n",
            "Requests per second:    3900.00 [#/sec]\n",
            "counts",
        ),
        ("ab-close.txt", r"(Time per request: +)7\.737", r"\g<1>3.900", "Little's law"),
        ("ab-close.txt", r"  99% +40", "  99%     13", "percentiles"),
        ("ab-close.txt", r"Total: +5 +8 ", "Total:          5   90 ", "Little's law"),
        ("h2load-warm.txt", r"finished in 3\.00s, 25242", "finished in 3.00s, 16828", "counts"),
        ("h2load-timed.txt", r"30\.12ms", " 2.12ms", "percentiles"),
        ("h2load-h2.txt", r"in 671\.38ms", "in 335.69ms", "counts"),
        ("oha.txt", r"Total:\t.* ms", "Total:\t500.0000 ms", "counts"),
        ("oha-us.txt", r"99\.00% in .*", "99.00% in 5.0000 us", "percentiles"),
        ("oha-min.txt", r"Requests/sec:\t.*", "Requests/sec:\t2000.0", "counts"),
    ],
)
def test_a_fault_planted_in_a_sound_report_is_found(
    name: str, pattern: str, changed: str, check: str
) -> None:
    text, count = re.subn(pattern, changed, sample(name), count=1)
    assert count == 1
    assert check in {each.check for each in grave(read(text))}


def test_broken_connections_are_not_among_the_requests_of_wrk() -> None:
    """wrk counts only answers as requests, so the audit must add the requests that broke off.

    Here 501,000 requests were answered and 600,000 connections broke, so 54.5 % of the requests
    failed.
    """
    text = WRK_OUTPUT.replace("read 0", "read 600000").replace("timeout 3", "timeout 0")
    (found,) = grave(read(text))
    assert found.severity is Severity.SUSPICIOUS
    assert "54.5 %" in found.says


# --- reports that leave something out, or round it ------------------------------------------------

BOMBARDIER = """Bombarding http://127.0.0.1:8080/ for 10s using 50 connection(s)
Statistics        Avg      Stdev        Max
  Reqs/sec       500.00      25.00     600.00
  Latency        1.20ms     0.50ms    32.00ms
  HTTP codes:
    1xx - 0, 2xx - 5000, 3xx - 0, 4xx - 0, 5xx - 0
    others - 0
"""


def test_a_rate_that_may_be_limited_leaves_connections_idle() -> None:
    (remark,) = audit(read(BOMBARDIER)).findings
    assert remark.severity is Severity.KNOWING
    assert "Either the tool limited the rate" in remark.says
    slow = WRK_OUTPUT.replace("50000.00", "5000.00").replace("501000 requests", "50100 requests")
    assert [each.check for each in grave(read(slow))] == ["Little's law"]


def test_a_rate_of_few_samples_breaks_no_law() -> None:
    """A rate of bombardier that contradicts Little's law is no finding if there are few requests.

    The reason is that bombardier prints the mean of sampled rates. For 100 requests of 100 ms on
    one connection, it may print 12.58 requests/s instead of 10. With 5,000 requests, the audit
    relies on the printed rate, so the same rate is a finding.
    """
    text = BOMBARDIER.replace("for 10s using 50", "with 100 request(s) using 1")
    text = text.replace("500.00 ", "12.58 ").replace("1.20ms", "100ms").replace("32.00ms", "1.21s")
    assert audit(read(text.replace("2xx - 5000", "2xx - 100"))).findings == ()
    assert [each.check for each in grave(read(text))] == ["Little's law"]


def test_the_last_request_of_each_connection_may_take_long() -> None:
    """If each connection sends only one request, it is no finding that connections are idle.

    After its only request, each of the 40 connections is idle until the load ends. If there are
    4,000 connections for the same number of requests, far too few of the connections are in use,
    which is a finding.
    """
    text = sample("ab-one-each.txt")
    assert audit(read(text)).findings == ()
    idle = re.sub(r"(Concurrency Level: +)40", r"\g<1>4000", text)
    assert {each.check for each in audit(read(idle)).findings} == {"Little's law"}


def test_times_in_whole_milliseconds_agree_by_chance() -> None:
    """Two loads of ab with different rates are not taken for copies of each other.

    The two loads have the same count, mean and maximum, because ab prints whole milliseconds.
    """
    one = sample("ab-close.txt")
    other = one.replace("1.547", "1.610").replace("1292.48", "1242.24").replace("7.737", "8.050")
    assert [each for each in audit(read(one + other)).findings if each.check != "ties"] == []


def test_times_that_hardly_vary_agree_by_rounding() -> None:
    """A p99 that equals the maximum is no finding if response times hardly vary.

    In the first report, the median is 1.98 ms. Then p99 and maximum may both be printed as 2.02 ms,
    because they are rounded to three digits. In the second report, the median is 1.50 ms. Then one
    column may be a copy of the other, which is a finding.
    """
    text = WRK_OUTPUT.replace("12.92ms", " 2.02ms").replace("1.80ms", "1.98ms")
    text = text.replace("4.00ms", "2.02ms").replace("2.20ms", "1.99ms").replace("2.50ms", "2.01ms")
    text = text.replace("0.89ms", "0.01ms")
    assert audit(read(text)).findings == ()
    spread = audit(read(text.replace("1.98ms", "1.50ms").replace("  2.00ms", "  1.80ms"))).findings
    assert any("one column may be a copy of the other" in each.says for each in spread)


def test_a_short_run_of_wrk2_is_open_without_a_calibration() -> None:
    text = WRK_OUTPUT.replace("Latency Distribution", "Latency Distribution (HdrHistogram)")
    assert list(read(text)["load_model"]) == ["open"]


def test_streams_of_oha_are_no_contradiction() -> None:
    """In a report of oha, more concurrent requests than connections are suspicious, not impossible.

    With HTTP/2, a connection may have several requests under way, and oha does not print how many.
    The option --depth of `bench audit` gives this number.
    """
    data = {
        "summary": {"total": 10.0, "average": 0.01, "requestsPerSec": 10_000.0},
        "latencyPercentiles": {"p50": 0.009},
        "statusCodeDistribution": {"200": 100_000},
    }
    (found,) = grave(read(json.dumps(data), connections=10))
    assert found.severity is Severity.SUSPICIOUS
    assert "give --depth" in found.says
    assert grave(read(json.dumps(data), connections=10, depth=10)) == []


# --- forms in which tools and people write reports ------------------------------------------------


def _indented(text: str) -> str:
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def _quoted(text: str) -> str:
    return "".join(f"> {line}" for line in text.splitlines(keepends=True))


def _collapsed(text: str) -> str:
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines())


@pytest.mark.parametrize("form", [_indented, _quoted, _collapsed])
def test_reports_may_be_indented_quoted_or_collapsed(
    form: Callable[[str], str],
) -> None:
    rows = read(f"# First\n\n{form(WRK_OUTPUT)}\n# Second\n\n{form(WRK_OUTPUT)}")
    assert list(rows["subject"]) == ["First", "Second"]
    for name, value in (("rate", 50_000), ("requests", 501_000), ("mean_ms", 2), ("errors", 10)):
        assert list(rows[name]) == [value, value], name


def test_a_report_without_its_first_lines_is_a_row_of_its_own() -> None:
    whole = sample("ab-close.txt")
    short = "Concurrency Level:" + whole.partition("Concurrency Level:")[2]
    short = short.replace("      10\n", "      30\n", 1).replace("7.737", "23.211")
    rows = read(f"{whole}\nab -n 2000 -c 30 http://127.0.0.1:9/\n{short}\n{whole}")
    assert list(rows["connections"]) == [10, 30, 10]
    assert list(rows["p50_ms"]) == [5, 5, 5]
    assert rows["subject"][1] == "http://127.0.0.1:9/"


GATLING = """var stats = {
    type: "GROUP",
name: "All Requests",
stats: {
    "name": "All Requests",
    "meanNumberOfRequestsPerSecond": {
        "total": " 1,500.25"
    }
},
contents: {
"req_a": {
        type: "REQUEST",
        name: "A",
stats: {
    "name": "A",
    "numberOfRequests": {
        "total": "   92,000",
        "ok": "   90,000",
        "ko": "    2,000"
    },
    "meanResponseTime": {
        "total": "        4",
        "ko": "        -"
    },
    "meanNumberOfRequestsPerSecond": {
        "total": " 1,500.25"
    }
}
    }
}

}

function fillStats(stat){
    $("#total").append(stat.numberOfRequests.total);
}
"""


def test_gatlings_script_has_the_content_of_its_json() -> None:
    (row,) = read(GATLING).to_dict("records")
    assert (row["subject"], row["tool"]) == ("A", "gatling")
    assert (row["requests"], row["errors"]) == (92_000, 2_000)
    assert (row["rate"], row["mean_ms"]) == (1500.25, 4)


LOCUST = """Type,Name,Request Count,Failure Count,Average Response Time,Min Response Time,\
Max Response Time,Average Content Size,Requests/s,Failures/s,50%,90%,95%,99%
GET,/a,6000,0,6022.5,30,{longest},100,100.0,0,5600,9900,10000,11000
"""


def test_locust_rounds_times_above_ten_seconds_to_whole_ones() -> None:
    """A p99 above the maximum is a finding, unless rounding explains the difference.

    Locust rounds percentiles above 10 s to whole seconds. If the maximum is 10.51 s, the p99 may be
    printed as 11000 ms. If the maximum is 8.4 s, a p99 of 11000 ms is a finding.
    """
    assert grave(read(LOCUST.format(longest=10_510))) == []
    assert [each.check for each in grave(read(LOCUST.format(longest=8_400)))] == ["percentiles"]


def _nighthawk(rate_rps: int) -> str:
    """Return a report of Nighthawk about 1,000 requests in 10 s, with this offered rate."""
    latency = {
        "id": "benchmark_http_client.request_to_response",
        "mean": "0.0005s",
        "percentiles": [
            {"percentile": 0.5, "duration": "0.0004s"},
            {"percentile": 0.984375, "duration": "0.0009s"},
            {"percentile": 0.990625, "duration": "0.0012s"},
        ],
    }
    counters = [{"name": "benchmark.http_2xx", "value": "1000"}]
    result = {"name": "global", "execution_duration": "10s", "statistics": [latency]}
    options: dict[str, object] = {
        "requests_per_second": rate_rps,
        "connections": 10,
        "concurrency": "1",
    }
    options["open_loop"] = False
    return json.dumps({"options": options, "results": [result | {"counters": counters}]})


def test_nighthawks_percentiles_are_the_nearest_known_ones() -> None:
    rows = read(_nighthawk(100))
    assert (rows["p50_ms"][0], rows["p99_ms"][0]) == (0.4, 1.2)
    assert rows["p95_ms"].isna()[0]


@pytest.mark.parametrize(("offered_rps", "remarks"), [(100, 0), (1_000, 1)])
def test_a_loop_of_nighthawk_may_be_limited_by_its_rate(offered_rps: int, remarks: int) -> None:
    assert len(audit(read(_nighthawk(offered_rps))).findings) == remarks


def test_workers_of_nighthawk_that_are_as_many_as_cpus_are_counted() -> None:
    """The workers of Nighthawk are counted if its options do not state their number.

    With `--concurrency auto`, there are three workers here. Each of them offers 50 requests/s over
    two connections, so the audit must read six connections and an offered rate of 150 requests/s.
    The report is in the form of an older version of Nighthawk, which gives the lowest and the
    highest time only as the percentiles 0 and 1.
    """
    report = json.loads(_nighthawk(50))
    report["options"] |= {"concurrency": "auto", "connections": 2}
    (result,) = report["results"]
    result["counters"][0]["value"] = "1500"
    times = result["statistics"][0]["percentiles"]
    times += [{"percentile": 0, "duration": "0.0002s"}, {"percentile": 1, "duration": "0.004s"}]
    report["results"] = [*({"name": f"worker_{number}"} for number in range(3)), result]
    text = json.dumps(report)
    rows = read(text)
    expected = {"connections": 6, "target_rate": 150, "rate": 150, "min_ms": 0.2, "max_ms": 4}
    assert {name: rows[name][0] for name in expected} == pytest.approx(expected)
    assert grave(rows) == []


NIGHTHAWK_TEXT = """Nighthawk - A layer 7 protocol benchmarking tool.

Queueing and connection setup latency (400 samples)
  min: 0s 000ms 010us | mean: 0s 000ms 020us | max: 0s 003ms 000us | pstdev: 0s 000ms 150us

  Percentile  Count       Value
  0.5         200         0s 000ms 015us

Request start to response end (400 samples)
  min: 0s 012ms 500us | mean: 0s 021ms 250us | max: 1s 030ms 001us | pstdev: 0s 009ms 000us

  Percentile  Count       Value
  0.5         200         0s 020ms 125us
  0.75        300         0s 024ms 000us
  0.9         360         0s 030ms 750us
  0.95        380         0s 035ms 000us
  0.990625    397         0s 090ms 500us

Response body size in bytes (400 samples)
  min: 20 | mean: 20.0 | max: 20 | pstdev: 0.0

Counter                                 Value       Per second
benchmark.http_2xx                      390         39.00
benchmark.http_5xx                      8           0.80
benchmark.pool_overflow                 3           0.30
benchmark.stream_resets                 2           0.20
upstream_rq_total                       400         40.00
"""


def test_nighthawks_text_has_its_numbers() -> None:
    rows = read(f"# one run\n\n{NIGHTHAWK_TEXT}")
    expected = {
        "requests": 400,
        "errors": 10,
        "rate": 40,
        "min_ms": 12.5,
        "mean_ms": 21.25,
        "p50_ms": 20.125,
        "p90_ms": 30.75,
        "p95_ms": 35,
        "p99_ms": 90.5,
        "max_ms": 1030.001,
    }
    assert {name: rows[name][0] for name in expected} == pytest.approx(expected)
    assert list(rows["tool"]) == ["nighthawk"]
    twice = read(NIGHTHAWK_TEXT + NIGHTHAWK_TEXT.replace("mean: 0s 021ms", "mean: 0s 022ms"))
    assert list(twice["mean_ms"]) == [21.25, 22.25]


def _crank(latencies: dict[str, float], **job: object) -> dict[str, object]:
    """Return the jobs of a report of crank: the server, and a load of 10,000 requests/s.

    `latencies` are the results about response times, in ms or us. The load has 100 connections, so
    by Little's law the mean response time must be 10 ms. `job` contains further members of the
    load's job.
    """
    results = {"bombardier/rps/mean": 10_000, "bombardier/requests": 100_000}
    times = {f"bombardier/latency/{name}": value for name, value in latencies.items()}
    load = {"results": results | times, **job}
    return {"jobs": {"application": {"results": {"benchmarks/cpu": 50}}, "load": load}}


RAW = {
    "spec": {"numberOfConnections": 100},
    "result": {
        "latency": {"mean": 10_000, "max": 90_000, "percentiles": {"99": 20_000}},
        "rps": {"mean": 10_000},
        "timeTakenSeconds": 10,
        "req2xx": 100_000,
    },
}


@pytest.mark.parametrize(
    "report",
    [
        {"jobResults": _crank({"mean": 10_000, "max": 90_000})},
        {"jobResults": _crank({"mean": 10, "max": 90, "50": 9, "99": 20})},
        _crank(
            {"mean": 10_000, "max": 90_000},
            metadata=[{"name": "bombardier/latency/mean", "description": "Mean latency (us)"}],
        ),
        _crank(
            {"mean": 10, "max": 90},
            metadata=[{"name": "bombardier/latency/mean", "description": "Mean latency (ms)"}],
        ),
    ],
    ids=["an old version", "a new version", "stored in us", "stored in ms"],
)
def test_latencies_of_crank_are_in_the_unit_of_its_version(report: dict[str, object]) -> None:
    rows = read(json.dumps(report))
    assert (rows["mean_ms"][0], rows["max_ms"][0], rows["cpu_pct"][0]) == (10, 90, 50)
    assert audit(rows).findings == ()


@pytest.mark.parametrize("unit", [1, 1000], ids=["ms", "us"])
def test_crank_has_the_connections_and_percentiles_of_bombardiers_report(unit: int) -> None:
    report = _crank({"mean": 10 * unit, "max": 90 * unit})
    report["jobs"]["load"]["results"]["bombardier/raw"] = [RAW]  # type: ignore[index]
    rows = read(json.dumps(report))
    expected = {"mean_ms": 10, "p99_ms": 20, "max_ms": 90, "connections": 100, "duration_s": 10}
    assert {name: rows[name][0] for name in expected} == pytest.approx(expected)
    assert list(rows["tool"]) == ["bombardier"]


def test_metrics_of_k6_with_thresholds_have_marks() -> None:
    marked = re.sub(r"^ {4}( *)http_req", r"  ✗ \1http_req", sample("k6.txt"), flags=re.M)
    assert "✗" in marked
    columns = ["rate", "mean_ms", "p95_ms", "errors", "requests", "connections"]
    pd.testing.assert_frame_equal(read(marked)[columns], read(sample("k6.txt"))[columns])
