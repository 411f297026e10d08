"""Tests of the audit of published tables.

Planted errors of each kind must be found, and correct tables must cause no finding. A hostile file
must be refused in one sentence, or be read without harm.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audited_tables import WRK_OUTPUT, sound, table, with_row
from built import ROOT

from runner.audit.checks import audit, under_way
from runner.audit.finding import Severity, summary
from runner.audit.finding import table as table_of
from runner.audit.formats.values import NUMBERS, value_of
from runner.audit.page import HARD, of_published, open_audit, rows_of
from runner.audit.reading import MOST_BYTES, parse, read_all
from runner.audit.stored import store_beside
from runner.model import LabError
from runner.present.frames import read_tables
from runner.present.look.markup import Bullets, TextTable, html
from runner.store import RunFolder

LITTLE, TIMES, COUNTS = HARD
PLATEAU = "one limit for all"


def found(rows: pd.DataFrame, check: str = "") -> list[tuple[str, str, str]]:
    return [
        (f.check, str(f.severity), f.subject)
        for f in audit(rows).findings
        if check in ("", f.check)
    ]


def only(rows: pd.DataFrame, check: str) -> str:
    """Return the text of a check's finding, which must be the only finding of this check."""
    (finding,) = [f for f in audit(rows).findings if f.check == check]
    return finding.says


# --- tables with planted errors -------------------------------------------------------------------


def test_a_sound_table_is_silent() -> None:
    done = audit(table(**sound()))
    assert done.findings == () and [each.split(" (")[0] for each in done.not_done] == []
    assert (
        summary(done).counted
        == "12 rows of 1 test in 1 file: 0 void, 0 impossible, 0 suspicious, 0 worth knowing."
    )


@pytest.mark.parametrize(
    ("values", "check", "severity"),
    [
        ({"mean_ms": 40, "max_ms": 90, "p99_ms": 60, "p50_ms": 30}, LITTLE, "impossible"),
        ({"mean_ms": 8.7, "p99_ms": 22}, LITTLE, "suspicious"),
        ({"mean_ms": 2, "p50_ms": 1, "p99_ms": 9}, LITTLE, "suspicious"),
        ({"mean_ms": 4, "p50_ms": 8.3}, TIMES, "impossible"),
        ({"cpu_pct": 100.5}, COUNTS, "worth knowing"),
        ({"cpu_pct": 106}, COUNTS, "suspicious"),
        ({"errors": 12_000}, COUNTS, "suspicious"),
        ({"errors": 140_255}, COUNTS, "void"),  # as many errors as requests
        ({"p50_ms": 50}, TIMES, "impossible"),
        ({"max_ms": 5}, TIMES, "impossible"),
        ({"p99_ms": -1.5}, "missing values", "impossible"),
        ({"p99_ms": -1}, "missing values", "worth knowing"),
        ({"requests": 50_000}, COUNTS, "impossible"),
        ({"requests": 152_000}, COUNTS, "suspicious"),
        ({"cpu_pct": 112}, COUNTS, "impossible"),
        ({"rps": -1}, "missing values", "suspicious"),
        # A mean above p99 is suspicious but not impossible, because a few slow requests may raise
        # the mean.
        ({"p99_ms": 6.9}, TIMES, "suspicious"),
        ({"p99_ms": sound()["mean_ms"][5]}, TIMES, "suspicious"),
        ({"stdev_ms": 80}, TIMES, "impossible"),  # times from 0 to max_ms cannot vary so much
    ],
)
def test_a_planted_error_is_found_and_nothing_else(
    values: dict[str, float], check: str, severity: str
) -> None:
    rows = with_row(5, **values)
    kinds = {(name, grave) for name, grave, _ in found(rows) if name != "ties"}
    assert (check, severity) in kinds
    assert {name for name, _ in kinds} <= {
        check,
        TIMES if "p99_ms" in values or "max_ms" in values else check,
    }
    assert {subject for _, _, subject in found(rows, check)} <= {"f5", ""}


def test_littles_law_is_recomputed_from_what_is_printed() -> None:
    rows = with_row(5, mean_ms=2)
    rate = 10_000 * 1.07**5
    assert f"{rate * 0.002:.1f} concurrent" in only(rows, LITTLE)
    assert f"{rate * 2e-5:.3g} times" in only(rows, LITTLE)
    assert under_way(rows)[5] == pytest.approx(rate * 0.002 / 100, rel=1e-4)
    assert found(table(**sound() | {"mean_ms": 0.2, "load_model": "open"}), LITTLE) == []


def test_littles_law_by_percentiles_where_no_mean_is_given() -> None:
    columns = {
        name: values for name, values in sound().items() if name not in ("mean_ms", "max_ms")
    }
    assert found(table(**columns), LITTLE) == []
    # The percentiles allow no mean below 0.5 x 0 + 0.49 x 40 + 0.01 x 60 = 20.2 ms. At 7,000
    # requests/s, at least 141 requests would be under way, but there are only 100 connections.
    slow = {"rps": 7000, "requests": 70_000, "p50_ms": 40, "p99_ms": 60}
    for changes, words in (
        (slow, "20.2 ms (the least mean that the percentiles allow)"),
        ({"p50_ms": 0.1, "p99_ms": 1}, "(p99)"),
    ):
        rows = table(**{**columns, **changes})
        assert {severity for _, severity, _ in found(rows, LITTLE)} == {"suspicious"}
        assert words in audit(rows).findings[0].says


def test_one_number_that_stands_in_for_another_is_said_once() -> None:
    columns = sound()
    rows = table(**{**columns, "p99_ms": columns["mean_ms"], "max_ms": 900})
    assert only(rows, TIMES) == (
        "the mean and p99 are the same in 12 of 12 rows, so one column may be a copy of the other."
    )


def test_a_plateau_of_different_programs_is_found() -> None:
    """A plateau is found if the twelve fastest of 40 programs have nearly the same rate.

    Their twelve rates lie within 1 %. If all 40 rates rise smoothly instead, no plateau is found.
    """
    rates = np.sort(np.random.default_rng(1).lognormal(10, 0.5, 40))
    smooth = {"framework": [f"f{i}" for i in range(40)], "rps": rates.copy(), "connections": 100}
    rates[-12:] = rates[-12] * np.linspace(1, 1.008, 12)
    assert found(table(**smooth), PLATEAU) == []
    assert found(table(**smooth | {"rps": rates}), PLATEAU) == [(PLATEAU, "suspicious", "")]


@pytest.mark.long
def test_chance_makes_few_plateaus() -> None:
    rng = np.random.default_rng(2)
    names = [f"f{i}" for i in range(200)]
    found_in = 0
    for _ in range(100):
        rates = rng.lognormal(10, rng.uniform(0.2, 1.5), 200)
        found_in += bool(found(table(framework=names, rps=rates, connections=64), PLATEAU))
    assert found_in <= 1


def test_who_is_first_with_idle_cpus_was_not_the_limit() -> None:
    rows = with_row(11, cpu_pct=24)
    assert found(rows, "utilisation") == [
        ("utilisation", "suspicious", "f11"),
        ("utilisation", "worth knowing", ""),
    ]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((100, 1_000, 5_000), True),
        ((10_000, 20_000, 8_000), True),
        ((1_000, 9_000, 20_000), True),
        ((1_000, 7_000, 9_000), False),
    ],
)
def test_levels_that_fall_or_leap(rates: tuple[int, ...], said: bool) -> None:
    rows = table(framework=["a"] * 3, connections=[1, 8, 64], rps=rates)
    assert {subject for *_, subject in found(rows, "across levels")} == ({"a"} if said else set())


def test_ties_with_and_without_a_spread() -> None:
    near = table(framework=list("abcd"), rps=[1000, 999, 998, 500], connections=1)
    assert "2 of 3 pairs of neighbours in the ranking are less than 5 % apart" in only(near, "ties")
    spread = table(
        framework=list("abc"),
        rps=[300, 200, 195],
        rate_low=[290, 190, 185],
        rate_high=[310, 210, 205],
    )
    assert only(spread, "ties").startswith(
        "1 of 2 pairs of neighbours in the ranking overlaps within"
    )


def test_equal_rows_and_old_ones() -> None:
    columns = sound()
    for name in ("rps", "mean_ms", "p50_ms", "p99_ms", "max_ms", "requests"):
        columns[name][7] = columns[name][2]
    columns["day"] = ["2026-01-01"] * 11 + ["2024-01-01"]
    kinds = found(table(**columns), "duplicates")
    assert kinds == [("duplicates", "suspicious", "f2"), ("duplicates", "worth knowing", "")]


# --- formats of files that the audit reads --------------------------------------------------------

TECHEMPOWER = {
    "rawData": {
        "json": {
            "gemini": [
                {},
                {
                    "latencyAvg": "1.00ms",
                    "latencyMax": "9.00ms",
                    "latencyStdev": "500.00us",
                    "totalRequests": 480_000,
                    "startTime": 100,
                    "endTime": 115,
                },
            ]
        },
        "plaintext": {
            "gemini": [
                {"latencyAvg": "4.00ms", "latencyMax": "9.00ms", "totalRequests": 15_360_000}
            ]
        },
        "query": {"gemini": [{"latencyAvg": "16.00ms", "totalRequests": 480_000, "5xx": 4}]},
        "slocCounts": {"gemini": 7},
        "commitCounts": {},
    },
    "concurrencyLevels": [16, 32, 512],
    "pipelineConcurrencyLevels": [256, 1024],
    "queryIntervals": [1, 5],
    "duration": 15,
    "testMetadata": [{"name": "gemini", "language": "Java"}],
    "completed": {"gemini": "20191213222617"},
}


def test_techempower() -> None:
    rows = parse(json.dumps(TECHEMPOWER).encode(), "results.json")
    said = list(zip(rows["test"], rows["connections"], rows["depth"], strict=True))
    assert said == [
        ("json", 16, 1),
        ("json", 32, 1),
        ("plaintext", 256, 16),
        ("query, 1 queries", 512, 1),
    ]
    assert rows["rate"].tolist()[1:] == [32_000, 1_024_000, 32_000]
    assert under_way(rows).tolist()[1:] == pytest.approx([1.0, 1.0, 1.0])
    assert (
        rows["stdev_ms"][1] == 0.5 and rows["errors"][3] == 4 and set(rows["language"]) == {"Java"}
    )
    assert rows["missing"][0] == "rate mean_ms"


def test_httparena() -> None:
    row = {
        "framework": "a",
        "language": "C",
        "rps": 1_000_000,
        "avg_latency": "4.096ms",
        "p99_latency": "14.60ms",
        "cpu": "6644.3%",
        "memory": "260MiB",
        "connections": 4096,
        "threads": 64,
        "duration": "5s",
        "pipeline": 1,
        "bandwidth": "3.99GB/s",
        "reconnects": 0,
        "status_2xx": 4_999_000,
        "status_3xx": 0,
        "status_4xx": 1_000,
    }
    one = parse(json.dumps([row]).encode(), "json-4096.json")
    assert under_way(one)[0] == pytest.approx(1.0) and one["test"][0] == "json-4096"
    assert (one["cpu_pct"][0], one["cpu_given_pct"][0]) == (6644.3, 6400) and one["bytes_per_s"][
        0
    ] == 3.99e9
    assert ("counts", "worth knowing", "a") in found(one)
    several = {"framework": "a", "json": {"4096": row}, "tls": [row | {"target_rate": 10}]}
    many = parse(json.dumps(several).encode(), "a.json")
    assert list(many["test"]) == ["json/4096", "tls"] and list(many["load_model"]) == [
        "closed",
        "open",
    ]
    assert parse(json.dumps(row).encode(), "one.json")["rate"][0] == 1_000_000


@pytest.mark.parametrize(("scale", "value"), [("s", 0.0064), ("us", 6400.0)])
def test_web_frameworks(scale: str, value: float) -> None:
    metrics = [
        {"level": 64, "label": label, "value": number, "framework_id": 7}
        for label, number in (
            ("total_requests_per_s", 10_000.0),
            ("average_latency", value),
            ("percentile50", value),
            ("percentile99", -1.0),
            ("duration_ms", 15_000.0),
            ("total_requests", 150_000),
        )
    ]
    named = [{"id": 7, "label": "gemini", "language": "java"}]
    rows = parse(
        json.dumps({"metrics": metrics, "frameworks": named, "updated_at": "2026-02-11"}).encode(),
        scale,
    )
    assert len(rows) == 1 and rows["subject"][0] == "gemini" and rows["missing"][0] == "p99_ms"
    assert rows["mean_ms"][0] == pytest.approx(6.4) and under_way(rows)[0] == pytest.approx(1.0)
    assert rows["duration_s"][0] == 15 and np.isnan(rows["p99_ms"][0])


HEY = """
Summary:
  Total:\t10.0000 secs
  Slowest:\t0.0300 secs
  Fastest:\t0.0001 secs
  Average:\t0.0050 secs
  Requests/sec:\t10000.0000

Latency distribution:
  50% in 0.0045 secs
  99% in 0.0100 secs

Status code distribution:
  [200]\t99990 responses
  [500]\t10 responses
"""


def test_wrk() -> None:
    rows = parse(WRK_OUTPUT.encode(), "stdin")
    row = rows.iloc[0]
    assert (row["connections"], row["rate"], row["errors"], row["p99_ms"]) == (100, 50_000, 10, 4)
    assert (
        under_way(rows)[0] == pytest.approx(1.0)
        and row["duration_s"] == 10.02
        and row["stdev_ms"] == 0.89
    )
    assert found(rows) == []


def test_hey_and_oha() -> None:
    hey = parse(HEY.encode(), "stdin", connections=50)
    assert (
        under_way(hey)[0] == pytest.approx(1.0)
        and hey["errors"][0] == 10
        and hey["p50_ms"][0] == pytest.approx(4.5)
    )
    oha = {
        "summary": {
            "requestsPerSec": 10_000.0,
            "average": 0.005,
            "slowest": 0.03,
            "fastest": 0.0001,
            "total": 10.0,
        },
        "latencyPercentiles": {"p50": 0.0045, "p99": 0.01},
        "statusCodeDistribution": {"200": 99_990, "500": 10},
    }
    same = parse(json.dumps(oha).encode(), "stdin", connections=50)
    for name in (
        "rate",
        "mean_ms",
        "p50_ms",
        "p99_ms",
        "max_ms",
        "requests",
        "errors",
        "connections",
    ):
        assert same[name][0] == pytest.approx(hey[name][0]), name
    printed = (
        HEY.replace("secs", "sec").replace("50% in", "50.00% in").replace("99% in", "99.00% in")
    )
    assert parse(printed.encode(), "stdin")["p99_ms"][0] == pytest.approx(10)


@pytest.mark.parametrize("nested", [False, True])
def test_k6(nested: bool) -> None:
    metrics: dict[str, Any] = {
        "http_reqs": {"count": 90_000, "rate": 9_000.0},
        "http_req_failed": {"rate": 0.0},
        "http_req_duration": {
            "avg": 300.0,
            "min": 1.0,
            "med": 280.0,
            "max": 900.0,
            "p(90)": 500.0,
            "p(95)": 600.0,
        },
        "iterations": {"count": 90_000, "rate": 9_000.0},
        "iteration_duration": {"avg": 331.0},
        "vus_max": {"value": 3000, "min": 3000, "max": 3000},
    }
    if nested:
        metrics = {
            name: {"type": "trend", "contains": "time", "values": values}
            for name, values in metrics.items()
        }
    rows = parse(json.dumps({"metrics": metrics}).encode(), "summary.json")
    assert list(rows["row"]) == ["requests", "iterations"]
    assert under_way(rows).tolist()[1] == pytest.approx(9_000 * 0.331 / 3000) and np.isnan(
        under_way(rows)[0]
    )
    assert rows["p95_ms"][0] == 600 and found(rows) == []


def test_csv_with_other_names_and_without_latencies() -> None:
    text = b"stack,req/s,c,avg\na,1000,10,10ms\nb,500,10,20\n"
    columns = {"rps": "req/s", "connections": "c", "subject": "stack", "latency_mean_ms": "avg"}
    with pytest.raises(LabError, match="--map rps=NAME"):
        parse(text, "a.csv")
    rows = parse(text, "a.csv", columns=columns)
    assert list(rows["subject"]) == ["a", "b"] and under_way(rows)[1] == 1.0
    with pytest.raises(LabError, match="no column 'nope'"):
        parse(text, "a.csv", columns={"rps": "nope"})
    shark = (
        b"language,mode,version,framework,framework_version,requests_per_second_median,memory_median\n"
        b"Dart,AOT,2.14,Shelf,1,3329,5\nDart,AOT,2.15,Shelf,1,3332,4\n"
    )
    rows = parse(shark, "web_result.csv")
    assert rows["rate"].tolist() == [3329, 3332] and "AOT" in rows["subject"][0]
    said = summary(audit(rows)).not_checked
    assert "Little's law" in said and "percentiles" in said and "utilisation" in said


def test_the_published_numbers() -> None:
    done = audit(read_all([ROOT / "data" / "published.csv"]))
    text = html(of_published())
    # By Little's law, 3000 users at 9,254 requests/s have a mean response time of 3000 / 9254 s,
    # which is 324.2 ms.
    assert "the mean response time is 324 ms" in text
    assert not any(f.severity is Severity.IMPOSSIBLE for f in done.findings)


@pytest.mark.parametrize("text", ["1.71ms", "1710us", "0.00171s", "1710µs"])
def test_times_with_units(text: str) -> None:
    assert value_of("mean_ms", text) == pytest.approx(1.71)


# --- trials that the lab measured -----------------------------------------------------------------


@pytest.mark.parametrize("run", ["sample", "all", "seeds", "engines"])
def test_the_laws_are_kept_by_the_committed_runs(run: str) -> None:
    rows = rows_of(read_tables(RunFolder(ROOT / "data" / run)))
    done = audit(rows)
    assert len(rows) >= 18
    assert [f for f in done.findings if f.check in HARD and f.severity != Severity.KNOWING] == []


def test_the_tolerance_of_a_quota_is_two_of_its_periods_in_a_slice() -> None:
    """If a server exceeds its CPU quota only a little, there is no finding.

    A quota grants CPU time anew in each period, here every 10 ms. In each slice, a server may use
    more CPU time than its quota, by as much as two periods grant. The slices of this trial last
    about one second, which is 100 periods. So the tolerance is 2 % of the quota, and a server with
    a quota of half a core may use 51 % of a core.
    """
    rows = rows_of(read_tables(RunFolder(ROOT / "data" / "sample")))
    row = rows[(rows["cpu_given_pct"] == 50) & rows["cpu_tolerance"].between(0.018, 0.02)].iloc[[0]]

    def findings(cpu_pct: float) -> list[Severity]:
        found = audit(row.assign(cpu_pct=cpu_pct)).findings
        return [each.severity for each in found if "% of CPU were used" in each.says]

    tolerance = float(row["cpu_tolerance"].iloc[0])
    assert findings(50 * (1 + tolerance) - 0.01) == []
    assert findings(50 * (1 + tolerance) + 0.01) == [Severity.KNOWING]
    assert findings(50 * (1.05 + tolerance) + 0.01) == [Severity.SUSPICIOUS]
    assert findings(50 * (1.1 + tolerance) + 0.01) == [Severity.IMPOSSIBLE]


# --- hostile files --------------------------------------------------------------------------------

HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "zeros": lambda: bytes(1000),
    "deep": lambda: b"[" * 200_000,
    "deep objects": lambda: b'{"rawData":' * 100_000,
    "cut off": lambda: b'{"rawData": {"json": ',
    "wrong types": lambda: (
        b'{"rawData": {"json": {"a": [1, null, "x", []], "b": 7}, "db": []}, "duration": []}'
    ),
    "huge numbers": lambda: (
        b'[{"framework": "a", "rps": 1e999, "connections": ' + b"9" * 4000 + b"}]"
    ),
    "too many digits": lambda: b'[{"framework": "a", "rps": ' + b"9" * 9000 + b"}]",
    "not a number": lambda: (
        b'[{"framework": "a", "rps": NaN, "avg_latency": "Infinityms", "threads": -Infinity}]'
    ),
    "arena of others": lambda: (
        b'[{"framework": {}, "rps": [], "pipeline": {}, "cpu": [], "threads": "x"}, 3, null]'
    ),
    "metrics of others": lambda: (
        b'{"metrics": [1, {"label": [], "level": {}, "value": "x"}], "frameworks": 3}'
    ),
    "k6 of others": lambda: (
        b'{"metrics": {"http_reqs": 3, "vus_max": [], "iterations": {"rate": {}}}}'
    ),
    "oha of others": lambda: b'{"summary": [], "latencyPercentiles": 1}',
    "half a wrk": lambda: b"Running 10s test @ x\n    Latency  x y z\nRequests/sec: 1.2.3\n",
    "a quote without end": lambda: b'framework,rps\n"a,1\n' + b"x," * 100_000,
    "a line that returns": lambda: b"a\rb,rps\n1,2\n",
    "a zip": lambda: b"PK\x03\x04" + bytes(range(256)) * 10,
    "letters": "framework,rps\n\x1b[31m<script>alert(1)</script>\u202e,5\n".encode,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_ends_in_a_sentence_or_in_findings(kind: str) -> None:
    began = time.monotonic()
    try:
        done = audit(parse(HOSTILE[kind](), "hostile"))
    except LabError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
    else:
        assert all(summary(done).sentences)
        assert all(np.isfinite(done.rows[name].dropna()).all() for name in NUMBERS)
        text = html([Bullets(summary(done).sentences), TextTable(table_of(done))])
        assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert time.monotonic() - began < 5


REFUSED = {
    "64 MiB": (bytes(MOST_BYTES + 1), ""),
    "--format must be one of techempower": (b"{}", "nope"),
    r"x is JSON, but in none of the formats wrk: it has no named fields": (b"{}", "wrk"),
    r"x has none of the formats wrk: its first line is": (b"a,b", "wrk"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_read_is_refused(words: str) -> None:
    data, format_name = REFUSED[words]
    with pytest.raises(LabError, match=words):
        parse(data, "x", format_name=format_name)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU time that this process uses for a call of `work`, in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.long
def test_ten_megabytes_take_seconds() -> None:
    """The audit of a file of 10 MB takes at most 72 times the CPU time of parsing its JSON.

    The limit is relative so that it does not depend on the speed of the machine. The test parses
    the JSON eight times in a row, and the audit may take nine times as long as that (8 x 9 = 72).
    In practice, the audit takes four to six times as long.
    """
    entries = TECHEMPOWER["rawData"]["json"]["gemini"][1:] * 6  # type: ignore[index]
    data = {
        **TECHEMPOWER,
        "rawData": {f"json{i}": {f"f{j}": entries for j in range(400)} for i in range(32)},
    }
    text = json.dumps(data).encode()
    assert len(text) > 10_000_000
    rows: list[int] = []
    before_s = cpu_s(lambda: [json.loads(text) for _ in range(8)])
    took_s = cpu_s(lambda: rows.append(len(audit(parse(text, "large.json")).rows)))
    after_s = cpu_s(lambda: [json.loads(text) for _ in range(8)])
    assert rows == [76_800]
    assert took_s < 9 * (before_s + after_s) / 2


# --- the page about an audit ----------------------------------------------------------------------


@pytest.fixture
def with_a_comma(tmp_path):
    """Return the path of a table whose name contains a comma."""
    path = tmp_path / "results, of May.csv"
    pd.DataFrame(sound()).to_csv(path, index=False)
    return path


def test_a_path_with_a_comma_is_one_file_in_a_list(with_a_comma):
    assert open_audit([str(with_a_comma)]).about == "1 file"


def test_files_in_a_text_have_commas_between_them():
    published = str(ROOT / "data" / "published.csv")
    assert open_audit(f"{published}, {published}").about == "2 files"


def test_a_page_whose_name_has_a_comma_is_one_file(with_a_comma):
    page = with_a_comma.with_suffix(".html")
    given = store_beside(audit(read_all([str(with_a_comma)])), page)
    assert given == {"files": [str(page.with_suffix(".audit.parquet"))]}
    assert open_audit(**given).about == "1 file"
