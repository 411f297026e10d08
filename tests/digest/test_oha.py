"""Tests of digesting oha's requests.

The results must agree with known values, with numpy, and with oha's report.

`samples/` contains the files of two short loads that were made by oha 1.16. In both loads, the
reference server takes 5 ms for an answer. One load is closed, and the other offers 100 requests/s.
"""

import csv
import gzip
import io
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import k6_digests
import numpy as np
import pytest
from built import ROOT
from cells import changed
from k6_digests import read_table
from measured import measured
from oha_loads import CLOSED, OPEN, RATE, SECONDS

from runner.digest.k6 import RequestNumbers, digest_requests
from runner.digest.oha import read_report, spool_requests
from runner.digest.reconcile import request_checks
from runner.measurement import Counters
from runner.model import Cell, Check, LabError

BEGAN_NS = 1_790_000_000_250_000_000
NAMES = ("start", "start_latency_correction", "end", "duration", "status", "len_bytes", "run")


SAMPLES = ROOT / "tests" / "support" / "samples"


@dataclass(frozen=True)
class Request:
    """A request as oha stores it.

    `start_s`, `end_s` and `turn_s` are seconds since oha began. In an open load, `turn_s` is the
    time at which the request was due. In a closed load, `turn_s` is None. `run_s` is the time at
    which oha began, in whole seconds since 1970, as oha stores it with each request.
    """

    start_s: float
    end_s: float
    turn_s: float | None = None
    status: int = 200
    run_s: int = BEGAN_NS // 10**9

    @property
    def duration_s(self) -> float:
        return self.end_s - (self.start_s if self.turn_s is None else self.turn_s)


def closed(connections: int = 10, each: int = 200, length_s: float = 0.01) -> list[Request]:
    """Return the requests of a closed load, one connection after the other.

    Each connection sends `each` requests, and each request takes `length_s` seconds.
    """
    return [
        Request(number * length_s, (number + 1) * length_s)
        for _ in range(connections)
        for number in range(each)
    ]


def offered(lengths_s: list[float], late_s: dict[int, float] | None = None) -> list[Request]:
    """Return requests that are due at the offered rate.

    `late_s` maps the index of a request to the seconds by which the request begins too late.
    """
    requests = []
    for number, length_s in enumerate(lengths_s):
        turn_s = number / RATE
        start_s = turn_s + (late_s or {}).get(number, 0.0)
        requests.append(Request(start_s, start_s + length_s, turn_s))
    return requests


def as_text(requests: list[Request]) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(NAMES)
    for it in requests:
        lines.writerow((it.start_s, it.turn_s, it.end_s, it.duration_s, it.status, 50, it.run_s))
    return text.getvalue().encode()


def digest(folder: Path, data: bytes, cell: Cell = CLOSED, lead_s: float = 0.0) -> RequestNumbers:
    raw = folder / "oha.csv.gz"
    raw.write_bytes(data if data.startswith(b"\x1f\x8b") else gzip.compress(data))
    spool = partial(
        spool_requests, began_ns=BEGAN_NS, rate_rps=cell.last_rate_rps or 0.0, lead_s=lead_s
    )
    return k6_digests.digest(raw, mode=cell.mode, spool=spool, window_s=cell.window_s)


def report(folder: Path, requests: list[Request], errors: int = 0, **changed: Any) -> Path:
    durations = np.array([it.duration_s for it in requests])
    summary = {
        "total": SECONDS,
        "average": durations.mean(),
        "fastest": durations.min(),
        "slowest": durations.max(),
        "requestsPerSec": len(requests) / SECONDS,
        "totalData": 50 * len(requests),
        **changed,
    }
    path = folder / "oha.json"
    path.write_text(
        json.dumps(
            {
                "summary": summary,
                "statusCodeDistribution": Counter(str(it.status) for it in requests),
                "errorDistribution": {"timeout": errors} if errors else {},
            }
        )
    )
    return path


def broken(
    cell: Cell, points: RequestNumbers, said: Path, counted: int, accepted: int | None = None
) -> list[Check]:
    """Return the checks of a load that fail if the server counted `counted` requests.

    The server counted `accepted` connections. If `accepted` is None, the server counted as many
    connections as the load has sockets.
    """
    before = Counters(0, 0, 0)
    connections = cell.sockets if accepted is None else accepted
    after = Counters(counted, connections, connections)
    seen = measured(counters_before=before, counters_after=after)
    return [it for it in request_checks(cell, points, read_report(said), seen) if not it.ok]


def test_every_request_of_a_closed_load_comes_back(tmp_path):
    source = random.Random(1)
    lengths_s = [round(source.expovariate(200), 9) for _ in range(1000)]
    requests = [Request(0.5, 0.5 + length_s) for length_s in lengths_s]
    requests[7] = replace(requests[7], status=503)
    points = digest(tmp_path, as_text(requests))
    assert (points.requests, points.failed, points.with_status, points.late) == (1000, 1, 1000, 0)
    for name, q in (("p50", 50), ("p90", 90), ("p99", 99)):
        assert points.latency[name] == pytest.approx(1e3 * np.percentile(lengths_s, q), rel=1e-6)
    assert points.first_start_ns == pytest.approx(BEGAN_NS + 500_000_000, abs=1000)
    table = read_table(tmp_path / "oha.csv.gz", "requests")
    assert sorted(table["latency_ms"]) == pytest.approx(sorted(1e3 * np.array(lengths_s)), abs=1e-6)
    assert table["status"].value_counts().to_dict() == {200: 999, 503: 1}


def test_a_closed_load_keeps_every_invariant(tmp_path):
    requests = closed()
    points = digest(tmp_path, as_text(requests))
    assert points.steady is not None and points.steady.in_flight == pytest.approx(10, rel=0.01)
    assert broken(CLOSED, points, report(tmp_path, requests), counted=2000) == []


@pytest.mark.parametrize(
    ("mode", "accepted", "is_proven"),
    [
        ("keepalive", 10, True),
        ("keepalive", 13, True),
        ("keepalive", 14, False),
        ("keepalive", 9, False),
        ("close", 2000, True),
        ("close", 1999, False),
        ("close", 2004, False),
    ],
)
def test_accepted_connections_prove_the_mode(tmp_path, mode, accepted, is_proven):
    requests = closed()
    cell = replace(CLOSED, mode=mode)
    points = digest(tmp_path, as_text(requests), cell)
    assert points.mode == mode
    found = broken(cell, points, report(tmp_path, requests), counted=2000, accepted=accepted)
    assert [check.name[:1] for check in found] == ([] if is_proven else ["7"])


def test_users_that_rest_break_littles_law(tmp_path):
    requests = [replace(it, end_s=it.start_s + 0.005) for it in closed()]
    points = digest(tmp_path, as_text(requests))
    found = broken(CLOSED, points, report(tmp_path, requests), counted=2000)
    assert [check.name[:1] for check in found] == ["8"]


@pytest.mark.parametrize(
    ("errors", "changed", "counted", "names"),
    [
        (1, {}, 2000, ["1", "2"]),
        (0, {"totalData": 99_999}, 2000, ["2"]),
        (0, {"average": 0.011}, 2000, ["4"]),
        (0, {}, 1999, ["5"]),
        (0, {}, 2001, ["5"]),
    ],
)
def test_a_report_or_a_server_that_says_otherwise(tmp_path, errors, changed, counted, names):
    requests = closed()
    points = digest(tmp_path, as_text(requests))
    said = report(tmp_path, requests, errors, **changed)
    assert [check.name[:1] for check in broken(CLOSED, points, said, counted)] == names


def test_a_report_of_another_status_is_seen(tmp_path):
    requests = closed()
    points = digest(tmp_path, as_text([replace(requests[0], status=500), *requests[1:]]))
    (check,) = broken(CLOSED, points, report(tmp_path, requests), counted=2000)
    assert check.detail == "1999 answers with 200 in the samples, 2000 in the summary"


def test_the_lead_is_reconciled_and_is_no_part_of_the_load(tmp_path):
    requests = offered([0.08] * 250 + [0.001, 0.003] * 375)
    data = as_text(requests)
    whole = digest(tmp_path, data, OPEN)
    loaded = digest(tmp_path, data, OPEN, lead_s=OPEN.lead_s)
    assert (whole.requests, loaded.requests) == (1000, 750)
    assert (loaded.latency["max"], loaded.latency["mean"]) == pytest.approx((3.0, 2.0))
    assert loaded.first_start_ns == pytest.approx(BEGAN_NS + 500_000_000, abs=1000)
    assert broken(OPEN, whole, report(tmp_path, requests), counted=1000, accepted=80) == []
    with pytest.raises(LabError, match="the file has no request"):
        digest(tmp_path, data, OPEN, lead_s=SECONDS)


def test_a_request_that_waited_for_a_connection_is_late_and_its_time_has_the_wait(tmp_path):
    requests = offered([0.001] * 1000, {100: 0.0099, 200: 0.0101, 201: 0.05})
    points = digest(tmp_path, as_text(requests), OPEN)
    assert points.late == 2
    assert points.latency["max"] == pytest.approx(51)


def test_turns_that_came_late_are_late_by_the_rate_that_was_asked(tmp_path):
    requests = [
        replace(it, start_s=it.start_s + 0.02, turn_s=it.start_s + 0.02, end_s=it.end_s + 0.02)
        for it in offered([0.001] * 1000)
    ]
    assert digest(tmp_path, as_text(requests), OPEN).late == 1000


def test_fewer_than_asked_were_missed(tmp_path):
    requests = offered([0.001] * 700)
    points = digest(tmp_path, as_text(requests), OPEN)
    checks = request_checks(
        OPEN,
        points,
        read_report(report(tmp_path, requests)),
        measured(counters_before=Counters(0, 0, 0), counters_after=Counters(700, 90, 90)),
    )
    details = [check.detail for check in checks if check.name.startswith("1")]
    assert any("300 were never begun" in detail for detail in details)


def test_only_an_open_load_has_a_lead():
    assert (CLOSED.lead_s, CLOSED.window_s, CLOSED.to_begin) == (0.0, None, 0)
    assert (OPEN.lead_s, OPEN.window_s, OPEN.to_begin) == (0.5, 1.51, 1000)


WHOLE = gzip.compress(as_text(closed()))
HEADER = ",".join(NAMES).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "oha.csv.gz"),
        (b"not,oha\n1,2\n", "oha.csv.gz"),
        (HEADER, "the file has no request"),
        (HEADER + b"0.1,,0.2,x,200,50,1790000000\n", "oha.csv.gz"),
        (HEADER + b"0.1,,0.2\n", "oha.csv.gz"),
        (HEADER + b"0.1,,0.2,0.5,200,50,1790000000\n", "the times of 1 requests contradict"),
        (HEADER + b"0.2,,0.1,-0.1,200,50,1790000000\n", "the times of 1 requests contradict"),
        (HEADER + b"0.1,,0.2,0.1,200,50,1700000000\n", "a load that began at 1700000000"),
        (as_text([*closed(), Request(0, 1, run_s=1790000001)]), "1790000000 to 1790000001"),
        (WHOLE[: len(WHOLE) // 2], "oha.csv.gz"),
    ],
    ids=[
        "empty",
        "another-table",
        "no-request",
        "no-number",
        "cut-line",
        "wrong-duration",
        "ends-before-it-starts",
        "another-load",
        "two-loads",
        "cut-file",
    ],
)
def test_a_damaged_or_cut_off_file_is_a_sentence(tmp_path, data, why):
    with pytest.raises(LabError, match=why):
        digest(tmp_path, data)


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '{"summary": 1}', '{"summary": {}, "statusCodeDistribution": {"200": "many"}}'],
)
def test_a_report_that_is_not_ohas_is_a_sentence(tmp_path, text):
    (tmp_path / "oha.json").write_text(text)
    with pytest.raises(LabError, match="is not a report of oha"):
        read_report(tmp_path / "oha.json")


def sample(name: str, began_s: int, cell: Cell) -> tuple[RequestNumbers, Path]:
    """Digest the requests of a stored load, and return the result and the path of oha's report."""
    raw = SAMPLES / f"oha-{name}.csv.gz"
    spool = partial(spool_requests, began_ns=began_s * 10**9, rate_rps=cell.last_rate_rps or 0.0)
    with tempfile.TemporaryDirectory() as folder:
        points = digest_requests(
            raw, (), trial_id="t1", mode=cell.mode, scratch=Path(folder), spool=spool
        )
    return points, SAMPLES / f"oha-{name}.json"


@pytest.mark.parametrize(
    ("name", "began_s", "cell", "requests", "late"),
    [
        ("closed", 1795697162, changed(CLOSED, connections=4, duration_s=0.3), 189, 0),
        (
            "open",
            1795697163,
            changed(OPEN, vus=50, first_rate_rps=100, rate_rps=100, step_s=0.5),
            101,
            1,  # the machine was busy, so one request began 14 ms after it was due
        ),
    ],
)
def test_a_real_load_keeps_every_invariant(name, began_s, cell, requests, late):
    points, said = sample(name, began_s, cell)
    assert (points.requests, points.failed, points.late) == (requests, 0, late)
    assert 5 <= points.latency["min"] <= points.latency["p50"] < 8
    assert broken(cell, points, said, counted=requests) == []
    seen = broken(cell, points, said, counted=requests - 1)
    assert [check.name[:1] for check in seen] == ["5"]
