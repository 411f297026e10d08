"""Tests of digesting vegeta's results: the numbers must agree with known values and with numpy."""

import gzip
import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import k6_digests
import numpy as np
import pytest
from cells import cell_of
from k6_digests import read_table
from measured import measured

from runner.digest.k6 import RequestNumbers
from runner.digest.reconcile import request_checks
from runner.digest.vegeta import read_report, spool_results
from runner.generator_traits import LEAD_S
from runner.measurement import Counters
from runner.model import Cell, Check, LabError

RATE = 1000
SECONDS = 2
BEGAN_NS = 1_790_000_000_000_000_000
MS = 1_000_000


def lines(latencies_ms: list[float], late_ms: dict[int, float], codes: dict[int, int]) -> bytes:
    """Return the lines that vegeta writes for these requests, in the order in which they ended.

    A request's number is its index in `latencies_ms`. `late_ms` and `codes` map numbers of requests
    to the ms by which a request begins too late, and to the status of its answer. All other
    requests begin in time, and are answered with status 200.
    """
    rows = []
    for seq, latency in enumerate(latencies_ms):
        at = BEGAN_NS + round(seq * 1e9 / RATE + late_ms.get(seq, 0.0) * MS)
        code = codes.get(seq, 200)
        error = "" if code == 200 else f'"{code}, ""refused"""'
        rows.append(
            (
                at + latency * MS,
                f"{at},{code},{round(latency * MS)},10,20,{error},,,{seq},GET,http://x/,QQ==",
            )
        )
    return ("\n".join(row for _, row in sorted(rows)) + "\n").encode()


def digest(folder: Path, data: bytes, lead_s: float = 0.0) -> RequestNumbers:
    raw = folder / "vegeta.csv.gz"
    raw.write_bytes(data if data.startswith(b"\x1f\x8b") else gzip.compress(data))
    spool = partial(spool_results, rate_rps=RATE, lead_s=lead_s)
    return k6_digests.digest(raw, window_s=SECONDS, spool=spool)


def report(folder: Path, latencies_ms: list[float], **changed: Any) -> Path:
    ms = np.array(latencies_ms) * MS
    said = {"total": ms.sum(), "mean": ms.mean(), "min": ms.min(), "max": ms.max()}
    said |= {f"{q}th": np.percentile(ms, q) * 1.01 for q in (50, 90, 95, 99)}
    path = folder / "vegeta.json"
    path.write_text(json.dumps({"latencies": said, "requests": len(ms), "rate": RATE, **changed}))
    return path


def cell(**values: Any) -> Cell:
    sizes = {
        "vus": 100,
        "first_rate_rps": RATE,
        "rate_rps": RATE,
        "steps": 1,
        "step_s": SECONDS - LEAD_S,
    }
    return cell_of(server="axum", workload="static-open", tool="vegeta", **sizes)


def checks(
    folder: Path, points: RequestNumbers, latencies_ms: list[float], counted: int, **changed: Any
) -> list[Check]:
    """Return all checks of a load in which the server counted `counted` requests.

    Vegeta's report says that the requests took `latencies_ms`. Items of `changed` replace other
    values of the report.
    """
    said = read_report(report(folder, latencies_ms, **changed))
    return [*request_checks(cell(), points, said, measured(counters_after=Counters(counted, 1, 2)))]


def test_every_request_comes_back(tmp_path):
    source = random.Random(1)
    latencies = [round(source.expovariate(0.5), 6) for _ in range(RATE * SECONDS)]
    points = digest(tmp_path, lines(latencies, {}, {7: 503, 9: 0}))
    assert (points.requests, points.failed, points.with_status, points.late) == (2000, 2, 1999, 0)
    for name, q in (("p50", 50), ("p90", 90), ("p99", 99)):
        assert points.latency[name] == pytest.approx(np.percentile(latencies, q), rel=1e-9)
    assert points.latency["mean"] == pytest.approx(np.mean(latencies), rel=1e-9)
    assert points.first_start_ns == BEGAN_NS
    raw = tmp_path / "vegeta.csv.gz"
    assert sorted(read_table(raw, "requests")["latency_ms"]) == pytest.approx(
        sorted(latencies), abs=1e-6
    )
    assert read_table(raw, "throughput")["requests"].sum() == 2000
    assert [check for check in checks(tmp_path, points, latencies, 2000) if not check.ok] == []


def test_a_report_without_times_agrees_with_none(tmp_path):
    latencies = [1.0] * RATE * SECONDS
    points = digest(tmp_path, lines(latencies, {}, {}))
    said = read_report(report(tmp_path, latencies))
    silent = replace(said, http_req_duration={})
    found = request_checks(
        cell(), points, silent, measured(counters_after=Counters(len(latencies), 1, 2))
    )
    assert [check.name[:1] for check in found if not check.ok] == ["4"]


def test_the_lead_is_reconciled_and_is_no_part_of_the_load(tmp_path):
    latencies = [80.0] * 400 + [1.0, 2.0, 3.0, 4.0] * 400
    data = lines(latencies, {5: 70.0, 399: 60.0, 400: 12.0}, {3: 500, 401: 0})
    whole = digest(tmp_path, data)
    loaded = digest(tmp_path, data, lead_s=0.4)
    assert (whole.requests, whole.with_status, whole.failed, whole.late) == (2000, 1999, 2, 3)
    assert (loaded.requests, loaded.with_status, loaded.failed, loaded.late) == (1600, 1599, 1, 1)
    assert (loaded.latency["max"], loaded.latency["mean"]) == (4.0, pytest.approx(2.5))
    assert loaded.first_start_ns == BEGAN_NS + 401 * MS, (
        "that of the request of 400 ms, 12 ms late, is not the first"
    )
    with pytest.raises(LabError, match="the file has no request"):
        digest(tmp_path, data, lead_s=2.0)


def test_a_cell_says_how_long_it_is_offered_and_what_counts():
    assert (cell().lead_s, cell().window_s, cell().to_begin) == (0.5, 1.51, 2000)
    k6 = replace(cell(), tool="k6")
    assert (k6.lead_s, k6.window_s, k6.to_begin) == (0.0, 1.5, 1500)


def test_what_is_begun_late_is_counted(tmp_path):
    assert digest(tmp_path, lines([1.0] * 2000, {100: 9.9, 200: 10.1, 201: 50}, {})).late == 2


@pytest.mark.parametrize(
    ("counted", "latencies", "changed", "broken"),
    [
        (2000, [1.0] * 2000, {"requests": 1999}, {"1", "2"}),
        (1999, [1.0] * 2000, {}, {"5"}),
        (2000, [1.0] * 1999 + [3.0], {}, {"4"}),
    ],
)
def test_a_report_or_a_server_that_says_otherwise(tmp_path, counted, latencies, changed, broken):
    found = checks(
        tmp_path, digest(tmp_path, lines([1.0] * 2000, {}, {})), latencies, counted, **changed
    )
    assert {check.name[0] for check in found if not check.ok} == broken


def test_fewer_than_asked_were_missed(tmp_path):
    found = checks(tmp_path, digest(tmp_path, lines([1.0] * 1500, {}, {})), [1.0] * 1500, 1500)
    assert all(check.ok for check in found) and any(
        "500 were never begun" in check.detail for check in found
    )


WHOLE = gzip.compress(lines([1.0] * 2000, {}, {}))


@pytest.mark.parametrize(
    "data", [b"", b"not,vegeta\n", b"1,200,x,0,0,,,,0,GET,u,\n", WHOLE[: len(WHOLE) // 2]]
)
def test_a_damaged_or_cut_off_file_is_a_sentence(tmp_path, data):
    with pytest.raises(LabError, match=r"vegeta\.csv\.gz"):
        digest(tmp_path, data)
    (tmp_path / "vegeta.json").write_text('{"requests": "many"}')
    with pytest.raises(LabError, match="is not a report of vegeta"):
        read_report(tmp_path / "vegeta.json")
