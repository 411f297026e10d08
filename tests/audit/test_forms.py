"""Tests of auditing files in many forms.

There are files with several JSON documents, long lists of requests, files in different encodings,
and spreadsheets.
"""

import json
import statistics
import tracemalloc
from pathlib import Path

import pytest
from audited_tables import WRK_OUTPUT, sound, table

from runner.audit import reading
from runner.audit.checks import audit
from runner.audit.finding import Severity
from runner.audit.formats.values import value_of
from runner.audit.page import fixes, remarks
from runner.audit.reading import parse, read_all
from runner.model import LabError
from runner.present.look.markup import Paragraph, TextTable

OHA = {
    "summary": {"total": 2.0, "average": 0.05, "requestsPerSec": 100.0},
    "latencyPercentiles": {"p50": 0.04},
    "statusCodeDistribution": {"200": 200},
    "errorDistribution": {},
}
VEGETA = {
    "latencies": {"mean": 5_000_000, "max": 9_000_000},
    "rate": 300.0,
    "requests": 3000,
    "status_codes": {"200": 3000},
}

# --- several JSON documents in a file -------------------------------------------------------------


@pytest.mark.parametrize("between", ["", "\n", "\n\n  ", "\n\x1e"])
def test_documents_after_each_other_are_a_row_each(between: str) -> None:
    text = between.join(json.dumps(each) for each in (OHA, OHA, VEGETA))
    rows = parse(text.encode(), "all.json")
    assert list(rows["tool"]) == ["oha", "oha", "vegeta"]
    assert list(rows["rate"]) == [100, 100, 300]
    assert rows["subject"].nunique() == 3
    assert set(rows["test"]) == {"all.json"}


def test_a_list_may_have_reports_of_several_tools() -> None:
    assert list(parse(json.dumps([VEGETA, OHA]).encode(), "x")["tool"]) == ["vegeta", "oha"]


def test_lines_of_rows_are_a_table() -> None:
    lines = [json.dumps({"framework": name, "rps": 100, "connections": 8}) for name in "ab"]
    assert list(parse("\n".join(lines).encode(), "x.jsonl")["subject"]) == ["a", "b"]


def test_the_document_that_nothing_reads_is_named() -> None:
    text = json.dumps(OHA) + json.dumps({"weather": "fine"})
    with pytest.raises(
        LabError, match=r"x \[2\] is JSON, but in none of the formats .*fields are weather"
    ):
        parse(text.encode(), "x")
    with pytest.raises(LabError, match="not valid JSON from line 2 on"):
        parse(f"{json.dumps(OHA)}\n{{".encode(), "x")


def test_a_command_above_its_output_does_no_harm() -> None:
    text = f"$ oha --no-tui --json http://a/\n{json.dumps(OHA, indent=1)}\n"
    assert list(parse(text.encode(), "x")["rate"]) == [100]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ({"type": "Point", "metric": "http_reqs", "data": {}}, "bench report FILE"),
        ({"seq": 0, "latency": 5, "timestamp": "2026"}, "the report that `vegeta report` makes"),
    ],
)
def test_single_requests_are_refused_with_advice(line: dict[str, object], advice: str) -> None:
    with pytest.raises(LabError, match=advice):
        parse("\n".join([json.dumps(line)] * 3).encode(), "x")


# --- reports as text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        f"[![badge](https://a/b.svg)](https://a)\n\n{WRK_OUTPUT}".encode(),
        WRK_OUTPUT.encode("utf-16"),
        WRK_OUTPUT.replace("Requests/sec", "\x1b[32mRequests/sec").encode(),
    ],
    ids=["a link first", "of PowerShell", "in colours"],
)
def test_a_report_is_read_in_any_wrapping(data: bytes) -> None:
    rows = parse(data, "README.md")
    assert list(rows["rate"]) == [50_000]
    assert list(rows["requests"]) == [501_000]


def test_a_run_that_nothing_answered_is_the_gravest_finding() -> None:
    text = WRK_OUTPUT.replace("501000 requests", "0 requests").replace("50000.00", "0.00")
    first = audit(parse(text.encode(), "wrk.txt")).findings[0]
    assert first.severity is Severity.VOID
    assert first.says == "no request was answered, so there is no rate."


def test_failed_checks_of_a_script_are_found_though_every_status_is_good() -> None:
    metrics = {
        "http_reqs": {"count": 3000, "rate": 100.0},
        "http_req_failed": {"value": 0},
        "checks": {"passes": 2250, "fails": 750, "value": 0.75},
    }
    (found,) = audit(parse(json.dumps({"metrics": metrics}).encode(), "summary.json")).findings
    assert found.severity is Severity.SUSPICIOUS
    assert found.says.startswith("25 % of the script's checks failed")


# --- tables that people write ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234),
        ("1,234,567.5", 1_234_567.5),
        ("12,34,567", 1_234_567),
        ("1,5", 1.5),
        ("0,125", 0.125),
        ("12.3k", 12_300),
        ("1.2M", 1_200_000),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, value: float) -> None:
    assert value_of("rate", text) == pytest.approx(value)


def test_a_spreadsheet_separates_by_semicolons_and_decimals_by_commas() -> None:
    text = "framework;rps;connections;mean_ms\na;1000,5;10;9,995\nb;2000;10;5\n"
    rows = parse(text.encode(), "x.csv")
    assert list(rows["rate"]) == [1000.5, 2000]
    assert list(rows["mean_ms"]) == [9.995, 5]


@pytest.mark.parametrize("heading", ["avg (us)", "avg_us", "avg [µs]"])
def test_the_unit_of_a_heading_holds_for_its_column(heading: str) -> None:
    text = f"framework,rps,connections,{heading}\na,1000,10,9995\n"
    rows = parse(text.encode(), "x.csv", columns={"mean_ms": heading})
    assert list(rows["mean_ms"]) == [pytest.approx(9.995)]
    assert audit(rows).findings == ()


def test_two_columns_of_times_with_one_content_are_found() -> None:
    columns = sound()
    rows = table(**columns | {"p90_ms": columns["p99_ms"]})
    said = [each.says for each in audit(rows).findings if each.check == "percentiles"]
    assert said == [
        "p90 and p99 are the same in 12 of 12 rows, so one column may be a copy of the other."
    ]


# --- lists of single requests, as JMeter writes them ----------------------------------------------

COUNT = 30_000
HEAD = "timeStamp,elapsed,label,responseCode,success,bytes,allThreads"


@pytest.fixture
def requests_ms() -> list[int]:
    """Return the response times of the requests in `jtl`, in ms.

    Of every 100 response times, one is at least 70 s. The audit rounds such long response times
    before it counts them.
    """
    return [n % 83 + 1 if n % 100 else 70_000 + n for n in range(COUNT)]


@pytest.fixture
def jtl(tmp_path: Path, requests_ms: list[int]) -> Path:
    """Write a file of JMeter with a request for each time in `requests_ms`, and return its path.

    One request begins in each millisecond, and one request in ten has failed.
    """
    lines = [
        f"{10**12 + n},{time_ms},get,200,{'false' if n % 10 == 3 else 'true'},180,4"
        for n, time_ms in enumerate(requests_ms)
    ]
    path = tmp_path / "results.jtl"
    path.write_text("\n".join([HEAD, *lines, ""]))
    return path


def test_a_list_of_requests_of_any_length_takes_little_memory(
    jtl: Path, requests_ms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "HEAD_BYTES", 1000)
    monkeypatch.setattr(reading, "MOST_BYTES", 10_000)
    read_all([jtl])  # fills caches and imports modules before memory is measured
    tracemalloc.start()
    (row,) = read_all([jtl]).to_dict("records")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < jtl.stat().st_size / 2
    ended_ms = max(n + time_ms for n, time_ms in enumerate(requests_ms))
    ordered = sorted(requests_ms)
    assert row["requests"] == COUNT
    assert row["errors"] == COUNT / 10
    assert row["duration_s"] == pytest.approx(ended_ms / 1000)
    assert row["rate"] == pytest.approx(1000 * COUNT / ended_ms)
    assert row["mean_ms"] == pytest.approx(statistics.fmean(requests_ms))
    assert (row["min_ms"], row["max_ms"]) == (1, ordered[-1])
    assert row["p50_ms"] == ordered[COUNT // 2 - 1]
    assert row["p99_ms"] == pytest.approx(ordered[COUNT * 99 // 100 - 1], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{HEAD}\n1,2,"never closed' + "x" * 200_000, "cannot be read from line"),
        (f"{HEAD}\nnow,fast,get,200,true,1,1\n", "no request with a time in whole ms"),
    ],
)
def test_a_broken_list_of_requests_ends_in_a_sentence(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.jtl"
    path.write_text(text)
    with pytest.raises(LabError, match=words):
        read_all([path])


def test_requests_with_dates_have_a_duration() -> None:
    lines = [f"2026/01/31 12:00:0{second}.500,100,a,200,true,5,1" for second in range(5)]
    (row,) = parse("\n".join([HEAD, *lines]).encode(), "x").to_dict("records")
    assert row["duration_s"] == pytest.approx(4.1)


# --- the page's tables of what to fix -------------------------------------------------------------


def test_each_subject_has_a_table_of_what_to_fix() -> None:
    """For each subject with a finding, the page has a table that says what to fix.

    The subject with the most severe finding comes first. In each table, the most severe finding of
    the subject comes first.
    """
    columns = sound()
    columns["errors"] = [0] * 12
    columns["errors"][8] = columns["requests"][8]
    columns["max_ms"] = [*columns["max_ms"][:4], 1.0, *columns["max_ms"][5:8], 1.0]
    columns["max_ms"] += list(sound()["max_ms"][9:])
    blocks = list(fixes(audit(table(**columns))))
    tables = {each.title: each.frame for each in blocks if isinstance(each, TextTable)}
    assert list(tables) == ["f8", "f4"]
    assert tables["f8"]["severity"][0] == "void"
    assert set(tables["f8"]["severity"][1:]) == {"impossible"}
    assert tables["f8"]["what to do"][0].startswith("Remove the row from the ranking.")
    assert "9.00" not in tables["f4"]["where"][0] and "f4" not in tables["f4"]["where"][0]


def test_a_fault_of_all_is_in_one_table() -> None:
    rows = table(**sound() | {"errors": [round(each / 4) for each in sound()["requests"]]})
    titles = [each.title for each in fixes(audit(rows)) if isinstance(each, TextTable)]
    assert titles == ["Several subjects"]


def test_a_sound_table_has_nothing_to_fix() -> None:
    done = audit(table(**sound()))
    assert list(fixes(done)) == [Paragraph("Nothing has to be fixed.")]
    assert all(each.severity is Severity.KNOWING for each in done.findings)
    assert any(isinstance(each, TextTable) for each in remarks(done)) is True
