"""k6's raw points against truth of their own: a slow reader that pairs by line, known values, and real k6."""

from __future__ import annotations

import dataclasses
import gzip
import http.server
import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from k6_files import (
    EPOCH_NS,
    Request,
    announce,
    go_float,
    iteration_lines,
    point_line,
    request_lines,
    write_large,
    write_lines,
)

from runner.digest import histogram
from runner.digest.k6 import K6Points, digest_k6, read_summary
from runner.model import LabError

US = 1_000
MS = 1_000_000
S = 1_000_000_000


# --- files and an independent reader ----------------------------------------------------------------------


def _request(rng: random.Random, number: int) -> Request:
    status = rng.choice([200] * 8 + [201, 302, 404, 500, 0])
    connecting = rng.choice([0, rng.randrange(MS)])
    return Request(
        end_ns=EPOCH_NS + S + number * 3 * MS + rng.randrange(20 * MS),
        blocked=connecting + rng.randrange(50, 9_000),
        connecting=connecting,
        sending=rng.randrange(50 * US),
        waiting=rng.randrange(300 * MS),
        receiving=rng.randrange(200 * US),
        status=status,
        error_code=1212 if status == 0 else 1000 + status if status >= 400 else 0,
    )


def _own_points(rng: random.Random, end_ns: int) -> list[str]:
    odd = json.dumps({"status": "weird", "x": 'a"]}\\,é\n', "value": "7"})
    return [
        point_line("my_trend", end_ns, go_float(rng.choice([0.00001, 1e22, 5, -3.5])), odd),
        point_line("http_req_mine", end_ns, "1", "{}"),
        point_line("checks", end_ns, "1", '{"check":"http_reqs"}'),
    ]


def _lines(seed: int, iterations: int, *, stock: bool = False) -> tuple[list[str], list[Request]]:
    """Iterations of 0 to 4 requests each, with users' own metrics between, some interrupted, some without callback."""
    rng = random.Random(seed)
    lines: list[str] = []
    made: list[Request] = []
    for number in range(iterations):
        for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
            made.append(_request(rng, number))
            lines += request_lines(made[-1], stock=stock, failed_point=rng.random() < 0.9)
            if rng.random() < 0.3:
                lines += _own_points(rng, made[-1].end_ns)
        end = EPOCH_NS + 2 * S + number * 3 * MS
        lines += iteration_lines(end, 500 * MS, stock=stock, full=rng.random() < 0.95)
    return announce(lines), made


def _digest(raw: Path, mode: str = "keepalive", **options: Any) -> K6Points:
    return digest_k6(
        raw,
        raw.parent / "out" / "requests.parquet",
        raw.parent / "out" / "latency.parquet",
        raw.parent / "out" / "throughput.parquet",
        trial_id="t1",
        mode=mode,
        scratch=raw.parent / "scratch",
        **options,
    )


def _table(raw: Path, name: str) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(raw.parent / "out" / f"{name}.parquet").to_pydict()
    return columns


def _ns(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time with any offset and up to 9 digits."""
    stamp, zone = (text[:-1], "+00:00") if text.endswith("Z") else (text[:-6], text[-6:])
    whole, _, fraction = stamp.partition(".")
    return int(datetime.fromisoformat(whole + zone).timestamp()) * S + int(fraction.ljust(9, "0") or 0)


def _read_slowly(raw: Path) -> list[dict[str, Any]]:
    """Pair points the obvious way: a line of http_reqs opens a request, the lines after it belong to it."""
    text = gzip.decompress(raw.read_bytes()) if raw.suffix == ".gz" else raw.read_bytes()
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        record = json.loads(line)
        metric, data = record["metric"], record["data"]
        if record["type"] != "Point":
            continue
        if metric == "http_reqs":
            tags = data["tags"]
            found.append(
                {
                    "end": _ns(data["time"]),
                    "status": int(tags["status"]),
                    "error_code": int(tags.get("error_code", 0)),
                }
            )
        elif metric.startswith("http_req_") and metric not in ("http_req_mine", "http_req_my_trend"):
            assert _ns(data["time"]) == found[-1]["end"]
            assert metric not in found[-1]
            found[-1][metric] = data["value"]
    return found


def _assert_same(raw: Path, points: K6Points, mode: str = "keepalive") -> None:
    """Tables and numbers equal those of the slow reader."""
    slow = _read_slowly(raw)
    table = _table(raw, "requests")
    assert points.requests == len(slow) == len(table["t_s"])
    for column in ("blocked", "connecting", "sending", "waiting", "receiving"):
        assert table[f"{column}_ms"] == [row[f"http_req_{column}"] for row in slow]
    assert table["status"] == [row["status"] for row in slow]
    assert table["error_code"] == [row["error_code"] for row in slow]
    ok = [200 <= row["status"] < 400 and not row["error_code"] for row in slow]
    assert table["ok"] == ok
    assert points.failed == ok.count(False)
    assert points.with_status == sum(row["status"] != 0 for row in slow)
    durations = np.array([row["http_req_duration"] for row in slow])
    connect = [
        max(row["http_req_blocked"], row["http_req_connecting"] + row["http_req_tls_handshaking"]) for row in slow
    ]
    whole = durations + np.array(connect)
    assert table["latency_ms"] == list(whole if mode == "close" else durations)
    first = min(row["end"] - round(occupied * 1e6) for row, occupied in zip(slow, whole, strict=True))
    assert points.first_start_ns == first
    assert points.last_end_ns == max(row["end"] for row in slow)
    assert table["t_s"] == pytest.approx([(row["end"] - first) / 1e9 for row in slow], abs=1e-9)
    quantiles = np.quantile(durations, [0.5, 0.9, 0.95, 0.99, 0.999])
    ours = [getattr(points, f"latency_{name}_ms") for name in ("p50", "p90", "p95", "p99", "p999")]
    assert ours == pytest.approx(list(quantiles), rel=1e-12)
    assert points.latency_mean_ms == pytest.approx(durations.mean(), rel=1e-12)
    assert (points.latency_min_ms, points.latency_max_ms) == (durations.min(), durations.max())


# --- right files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["k6.json.gz", "k6.json"])
@pytest.mark.parametrize("mode", ["keepalive", "close"])
@pytest.mark.parametrize("stock", [False, True])
def test_pairs_like_the_slow_reader(tmp_path: Path, name: str, mode: str, stock: bool) -> None:
    lines, made = _lines(3, 700, stock=stock)
    raw = write_lines(tmp_path / name, lines)
    points = _digest(raw, mode)
    _assert_same(raw, points, mode)
    assert points.requests == len(made)
    for metric in ("http_reqs", "http_req_duration", "http_req_receiving"):
        assert points.points[metric] == len(made)
    assert points.points["http_req_failed"] < len(made)
    assert points.points["my_trend"] == points.points["http_req_mine"] == points.points["checks"] > 0
    assert points.points["iterations"] == points.iterations < points.script_runs == 700
    assert points.iteration_max_ms == 500
    assert points.worst_residual_ms < 1e-9
    assert not points.salvaged


def test_requests_that_straddle_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More lines than many batches of the digest, so that points of a request come apart."""
    monkeypatch.setattr("runner.digest.k6_points._BATCH", 20_001)
    raw = tmp_path / "k6.json.gz"
    write_large(raw, 12_000, vus=50, stock_tags=False)
    points = _digest(raw)
    _assert_same(raw, points)
    assert points.iterations == points.requests == 12_000


def test_histogram_and_throughput_agree_with_the_requests(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "k6.json.gz", _lines(5, 900)[0])
    points = _digest(raw)
    requests, latency, throughput = (_table(raw, name) for name in ("requests", "latency", "throughput"))
    assert set(latency["trial_id"]) == set(throughput["trial_id"]) == {"t1"}
    assert sum(latency["count"]) == sum(throughput["requests"]) == points.requests
    assert sum(throughput["failed"]) == points.failed
    assert len(set(zip(latency["second"], latency["bucket"], strict=True))) == len(latency["bucket"])
    rows = zip(latency["second"], latency["lower_ms"], latency["upper_ms"], latency["count"], strict=True)
    t_s, ms = np.array(requests["t_s"]), np.array(requests["latency_ms"])
    for second, lower, upper, count in rows:
        low = 0 if lower <= 0.001 else lower
        assert count == np.sum((np.floor(t_s) == second) & (ms >= low) & (ms < upper))
    assert throughput["t_s"] == pytest.approx(np.arange(len(throughput["t_s"])) / 10)
    edges = np.arange(len(throughput["t_s"]) + 1) / 10
    assert throughput["requests"] == list(np.histogram(t_s, edges)[0])


def test_blocked_contains_connecting(tmp_path: Path) -> None:
    """A close-mode latency counts connecting once; a failed hand-over (blocked 0) still counts what it cost."""
    first = Request(EPOCH_NS + S, 5 * MS, 4 * MS, MS, 10 * MS, MS)
    lost = Request(EPOCH_NS + 2 * S, 0, 3 * MS, 0, 0, 0, status=0, error_code=1000)
    raw = write_lines(tmp_path / "k6.json", announce(request_lines(first) + request_lines(lost)))
    points = _digest(raw, "close")
    assert _table(raw, "requests")["latency_ms"] == [17.0, 3.0]
    assert points.latency_max_ms == 12.0
    assert points.first_start_ns == EPOCH_NS + S - 17 * MS


def test_time_zones_and_missing_digits(tmp_path: Path) -> None:
    lines = []
    for number, text in enumerate(["2026-11-21T06:26:32.1+05:30", "2026-11-21T00:56:32Z", "2026-11-20T19:56:33-05:00"]):
        made = request_lines(Request(EPOCH_NS + number, 0, 0, 0, MS, 0))
        lines += [json.dumps({**json.loads(line), "data": {**json.loads(line)["data"], "time": text}}) for line in made]
    points = _digest(write_lines(tmp_path / "k6.json", announce(lines)))
    assert points.first_start_ns == EPOCH_NS + S - MS
    assert points.last_end_ns == EPOCH_NS + 2 * S


def test_infinite_values_of_own_metrics_are_no_damage(tmp_path: Path) -> None:
    """k6 writes `+Inf`, which is not JSON, for `trend.add(Infinity)`."""
    lines = request_lines(Request(EPOCH_NS, 0, 0, 0, MS, 0))
    lines += [point_line("mine", EPOCH_NS, "+Inf", "{}"), point_line("mine", EPOCH_NS, "2", "{}")]
    points = _digest(write_lines(tmp_path / "k6.json", [*lines, *iteration_lines(EPOCH_NS, MS)]))
    assert (points.requests, points.points["mine"], points.iterations) == (1, 2, 1)


def test_dropped_iterations_are_summed(tmp_path: Path) -> None:
    lines = request_lines(Request(EPOCH_NS, 0, 0, 0, MS, 0))
    lines += [point_line("dropped_iterations", EPOCH_NS, "1", "{}")] * 3
    lines += [point_line("dropped_iterations", EPOCH_NS, "1.5e+06", "{}")]
    assert _digest(write_lines(tmp_path / "k6.json", announce(lines))).dropped_iterations == 1_500_003


def test_same_tables_from_the_same_file(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "k6.json.gz", _lines(9, 300)[0])
    _digest(raw)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    _digest(raw)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert not list((tmp_path / "scratch").iterdir())


def test_odd_file_names(tmp_path: Path) -> None:
    folder = tmp_path / "it's [a] *"
    folder.mkdir()
    assert _digest(write_lines(folder / "k6.json.gz", _lines(1, 20)[0])).requests > 0


# --- damaged files ----------------------------------------------------------------------------------------


def _refused(raw: Path, **options: Any) -> str:
    """The error of a damaged file; no table may appear, an older one must stay, nothing is left in scratch."""
    out = raw.parent / "out"
    out.mkdir(exist_ok=True)
    (out / "requests.parquet").write_text("older")
    with pytest.raises(LabError) as caught:
        _digest(raw, **options)
    assert [path.name for path in out.iterdir()] == ["requests.parquet"]
    assert (out / "requests.parquet").read_text() == "older"
    assert not list((raw.parent / "scratch").iterdir())
    assert caught.value.exit_code == 1
    message = str(caught.value)
    assert str(raw) in message
    assert "\n" not in message
    return message


LINES, REQUESTS = _lines(11, 400)


def _position(metric: str, after: int = 1000) -> int:
    """Index of a line with a point of `metric`, the first from `after` on."""
    return next(i for i in range(after, len(LINES)) if f'"metric":"{metric}","type":"Point"' in LINES[i])


RUBBISH = {
    "not JSON": "rubbish {{{",
    "a number": "5",
    "null": "null",
    "a list": "[]",
    "blank": "",
    "an empty object": "{}",
    "two objects": '{"a":1}{"b":2}',
    "another type": LINES[2000].replace('"Point"', '"Dot"'),
    "no time": '{"metric":"checks","type":"Point","data":{"value":1,"tags":{}}}',
    "no value": '{"metric":"checks","type":"Point","data":{"time":"2026-11-21T00:56:31Z","tags":{}}}',
    "data is text": '{"metric":"checks","type":"Point","data":"/etc/passwd"}',
    "another file": "/etc/passwd",
}


@pytest.mark.parametrize("name", RUBBISH)
@pytest.mark.parametrize("file", ["k6.json", "k6.json.gz"])
def test_rubbish_in_the_middle(tmp_path: Path, name: str, file: str) -> None:
    at = _position("data_sent")
    lines = [*LINES[:at], RUBBISH[name], *LINES[at + 1 :]]
    assert f"line {at + 1}:" in _refused(write_lines(tmp_path / file, lines))


@pytest.mark.parametrize("value", ['"fast"', "null", "{}", "[1]", "-1", "+Inf", "1e999", "0x10", "NaN"])
def test_wrong_value(tmp_path: Path, value: str) -> None:
    at = _position("http_req_waiting")
    head, _, tail = LINES[at].partition('"value":')
    lines = [*LINES[:at], f'{head}"value":{value},{tail.partition(",")[2]}', *LINES[at + 1 :]]
    assert f"line {at + 1}:" in _refused(write_lines(tmp_path / "k6.json", lines))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"time":"2026-11-21T', '"time":"yesterday '),
        ('"time":"2026-11-21T', '"time":"2026-13-41T'),
        ('"status":"', '"status":"x'),
        ('"status":"', '"other":"'),
    ],
)
def test_wrong_time_or_status(tmp_path: Path, old: str, new: str) -> None:
    at = _position("http_reqs")
    lines = [*LINES[:at], LINES[at].replace(old, new), *LINES[at + 1 :]]
    assert f"line {at + 1}:" in _refused(write_lines(tmp_path / "k6.json", lines))


@pytest.mark.parametrize("metric", ["http_reqs", "http_req_duration", "http_req_blocked", "http_req_receiving"])
@pytest.mark.parametrize("change", ["drop", "double"])
def test_a_missing_or_doubled_line_never_pairs_wrongly(tmp_path: Path, metric: str, change: str) -> None:
    at = _position(metric)
    lines = [*LINES[:at], *([LINES[at]] * 2 if change == "double" else []), *LINES[at + 1 :]]
    message = _refused(write_lines(tmp_path / "k6.json.gz", lines))
    number = int(message.split("line ")[1].split(":")[0])
    assert at < number <= at + 15


def test_eight_lines_lost_across_two_requests(tmp_path: Path) -> None:
    """The order of metrics alone would look right: the head of one request continues with the tail of the next."""
    requests = [Request(EPOCH_NS + i * MS, 0, 0, 0, (i + 1) * MS, 0) for i in range(4)]
    lines = [line for request in requests for line in request_lines(request, failed_point=False)]
    for begin in range(8, 16):
        raw = write_lines(tmp_path / "k6.json", lines[:begin] + lines[begin + 8 :])
        if begin % 8:
            _refused(raw)


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9, 0.9999])
def test_cut_off_gzip(tmp_path: Path, share: float) -> None:
    whole = gzip.compress("\n".join([*LINES, ""]).encode())
    raw = tmp_path / "k6.json.gz"
    raw.write_bytes(whole[: max(3, int(len(whole) * share))])
    message = _refused(raw)
    assert "gzip" in message
    assert "line " in message


def test_cut_off_last_line(tmp_path: Path) -> None:
    raw = tmp_path / "k6.json"
    raw.write_text("\n".join(LINES)[:-20])
    assert f"line {len(LINES)}: the line is cut off" in _refused(raw)


@pytest.mark.parametrize("gz", [True, False])
def test_salvage_keeps_complete_requests(tmp_path: Path, gz: bool) -> None:
    at = _position("http_req_waiting", 3000)
    text = "\n".join([*LINES[:at], LINES[at][:50]])
    whole = gzip.compress(text.encode())[:-8] if gz else text.encode()
    raw = tmp_path / ("k6.json.gz" if gz else "k6.json")
    raw.write_bytes(whole)
    points = _digest(raw, salvage=True)
    complete = sum('"metric":"http_req_receiving","type":"Point"' in line for line in LINES[:at])
    assert points.requests == complete == len(_table(raw, "requests")["t_s"])
    assert points.salvaged
    assert points.lines_lost == 7
    assert not list((tmp_path / "scratch").iterdir())


def test_salvage_does_not_excuse_rubbish(tmp_path: Path) -> None:
    lines = [*LINES[:500], "rubbish", *LINES[501:]]
    raw = tmp_path / "k6.json"
    raw.write_text("\n".join(lines)[:-20])
    assert "line 501:" in _refused(raw, salvage=True)
    whole = bytearray(gzip.compress("\n".join([*LINES, ""]).encode()))
    whole[len(whole) // 2] ^= 0x10
    (tmp_path / "k6.json.gz").write_bytes(whole)
    assert "gzip" in _refused(tmp_path / "k6.json.gz", salvage=True)


def test_incomplete_last_request(tmp_path: Path) -> None:
    lines = LINES[: _position("http_req_sending", 2000)]
    raw = write_lines(tmp_path / "k6.json", lines)
    assert f"line {len(lines)}:" in _refused(raw)
    points = _digest(raw, salvage=True)
    assert points.salvaged
    assert points.lines_lost == 5


def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    """DuckDB does not check gzip's CRC: a changed digit would pass unseen."""
    whole = gzip.compress("\n".join([*LINES, ""]).encode(), compresslevel=0)
    at = whole.index(b'"value":0.', 5000) + 12
    raw = tmp_path / "k6.json.gz"
    raw.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert "corrupt" in _refused(raw)


@pytest.mark.parametrize("content", [b"", b"\n", b"\x00" * 100, b"rubbish", random.Random(2).randbytes(5000)])
@pytest.mark.parametrize("name", ["k6.json", "k6.json.gz"])
def test_empty_or_something_else(tmp_path: Path, content: bytes, name: str) -> None:
    raw = tmp_path / name
    raw.write_bytes(content)
    _refused(raw)
    _refused(raw, salvage=True)
    if content and name.endswith(".gz"):
        raw.write_bytes(gzip.compress(content))
        assert "line 1" in _refused(raw)


def test_missing_folder_or_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for raw in (tmp_path / "none.json.gz", tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(LabError, match="not a regular file"):
            _digest(raw)


def test_a_clock_set_by_years(tmp_path: Path) -> None:
    lines = request_lines(Request(EPOCH_NS, 0, 0, 0, MS, 0)) + request_lines(Request(0, 0, 0, 0, MS, 0))
    assert "clock" in _refused(write_lines(tmp_path / "k6.json", announce(lines)))


def test_no_requests(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "k6.json", announce(iteration_lines(EPOCH_NS, MS)))
    assert "no complete request" in _refused(raw)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_change_of_bytes_ends_in_tables_or_one_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray("\n".join([*LINES[:60], ""]).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(st.binary(max_size=8))
    content[at : at + data.draw(st.integers(0, 300))] = junk
    raw = tmp_path_factory.mktemp("fuzz") / "k6.json"
    raw.write_bytes(content)
    try:
        points = _digest(raw)
    except LabError as error:
        assert "\n" not in str(error)
    else:
        assert points.points["http_reqs"] == points.points["http_req_receiving"] == points.requests


# --- summary ----------------------------------------------------------------------------------------------


def test_summary_of_either_shape(tmp_path: Path) -> None:
    values = {"avg": 2.5, "min": 1, "med": 2, "max": 9.5, "p(90)": 5, "p(95)": 6, "p(99)": 8, "p(99.9)": 9}
    old = {
        "root_group": {},
        "metrics": {
            "http_req_duration": {**values, "count": 12},
            "http_reqs": {"count": 12, "rate": 3.5},
            "iterations": {"count": 10, "rate": 3},
            "dropped_iterations": {"count": 2, "rate": 1},
            "iteration_duration": values,
        },
    }
    (tmp_path / "old.json").write_text(json.dumps(old))
    summary = read_summary(tmp_path / "old.json")
    assert (summary.iterations, summary.dropped, summary.requests) == (10, 2, 12)
    assert summary.interrupted is None
    assert summary.iteration_max_ms == 9.5
    assert summary.http_req_duration is not None
    assert dataclasses.astuple(summary.http_req_duration) == (12, 2.5, 1, 2, 5, 6, 8, 9, 9.5)
    metrics = [
        {"name": "http_reqs", "values": {"count": 3}},
        {"name": "http_req_duration", "values": {"avg": 1, "min": 1, "med": 1, "max": 1, "p90": 1, "p95": 1}},
    ]
    (tmp_path / "new.json").write_text(json.dumps({"results": {"metrics": metrics}}))
    new = read_summary(tmp_path / "new.json")
    assert (new.requests, new.iterations, new.dropped) == (3, 0, 0)
    assert new.http_req_duration is not None
    assert (new.http_req_duration.p90, new.http_req_duration.p99) == (1, None)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", "{}", '{"metrics":{"http_reqs":{}}}', '{"metrics":{"iterations":{"count":"x"}}}', '{"metrics":5}'],
)
def test_broken_summary(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(LabError, match=r"s\.json") as caught:
        read_summary(tmp_path / "s.json")
    assert caught.value.exit_code == 1


# --- histogram --------------------------------------------------------------------------------------------


def test_buckets_of_known_values() -> None:
    index = histogram.bucket_index([0, 0.5, 1, 1.0099, 1.0101, 1000, 1e6])
    assert list(index) == [0, 0, 0, 0, 1, math.floor(math.log(1000) / math.log(1.01)), 1388]
    lower, upper = histogram.bucket_bounds_ms([0, 100])
    assert list(lower) == pytest.approx([0.001, 2.704813829 / 1000])
    assert list(upper) == pytest.approx([0.00101, 2.731861967 / 1000])


@given(st.one_of(st.floats(1, 1e12), st.integers(0, 2500).map(lambda power: 1.01**power)))
def test_bounds_enclose_the_value(us: float) -> None:
    lower, upper = histogram.bucket_bounds_ms(histogram.bucket_index([us]))
    assert lower[0] * 1000 <= us * (1 + 1e-15)
    assert us < upper[0] * 1000 * (1 + 1e-15)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_no_bucket_for_what_is_no_latency(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        histogram.bucket_index([1.0, bad])


def test_histograms_merge_by_adding() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(8, 2, 10_000)
    whole = histogram.bucket_counts(values)
    halves = [histogram.bucket_counts(values[::2]), histogram.bucket_counts(values[1::2])]
    merged = histogram.merge_counts(*(np.concatenate(pair) for pair in zip(*halves, strict=True)))
    assert [list(part) for part in merged] == [list(part) for part in whole]
    twice = histogram.bucket_counts(values, np.full(values.size, 2))
    assert list(twice[1]) == list(whole[1] * 2)
    for wrong in ([-1] * 3, [0.5] * 3):
        with pytest.raises(ValueError, match="Counts"):
            histogram.bucket_counts([1, 2, 3], wrong)


@settings(max_examples=60)
@given(
    st.lists(st.floats(1.01, 1e9), min_size=1, max_size=200),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0]),
)
def test_quantile_within_its_error(values: list[float], q: float) -> None:
    exact = np.quantile(values, q, method="inverted_cdf")
    estimate = histogram.quantile_ms(*histogram.bucket_counts(values), q) * 1000
    assert abs(estimate / exact - 1) <= histogram.MAX_QUANTILE_ERROR * (1 + 1e-9)


def test_quantile_of_nothing_or_beyond() -> None:
    assert math.isnan(histogram.quantile_ms([], [], 0.5))
    with pytest.raises(ValueError, match="quantile"):
        histogram.quantile_ms([1], [1], 1.5)


# --- memory -----------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The digest in a process of its own keeps below 600 MB; its own use hardly grows with three times the lines."""
    program = (
        "import resource, sys; from pathlib import Path; from runner.digest.k6 import digest_k6\n"
        "raw = Path(sys.argv[1]); out = raw.parent / 'out'\n"
        "digest_k6(raw, out / 'r.parquet', out / 'l.parquet', out / 't.parquet', trial_id='t', mode='close',"
        " scratch=raw.parent / 'scratch')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for iterations in (10_000, 40_000):
        raw = tmp_path / f"{iterations}.json.gz"
        write_large(raw, iterations, level=1)
        command = [sys.executable, "-c", program, str(raw)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        peaks.append(int(done.stdout) / 1024)
    assert max(peaks) < 600
    assert peaks[1] - peaks[0] < 150


# --- real k6 ----------------------------------------------------------------------------------------------

SCRIPT = """
import http from 'k6/http';
import { check, group } from 'k6';
import { Trend, Gauge } from 'k6/metrics';
const own = new Trend('http_req_my_trend', true), gauge = new Gauge('my_gauge');
const BASE = __ENV.BASE;
export const options = { scenarios: {
  many: { executor: 'shared-iterations', vus: 8, iterations: 240, maxDuration: '20s' },
  cut: { executor: 'constant-vus', vus: 2, duration: '1s', gracefulStop: '0s', exec: 'slow' },
} };
export function setup() { http.get(BASE + '/ok'); return {}; }
export function slow() { http.get(BASE + '/slow'); }
export default function () {
  const i = __ITER * 8 + __VU;
  group('a "quoted" é', () => {
    check(http.get(BASE + '/ok', { tags: { extra: 'v"]}\\\\' } }), { 'is 200': (r) => r.status === 200 });
  });
  own.add(1.5); gauge.add(i);
  if (i % 3 === 0) http.get(BASE + '/redirect');
  if (i % 5 === 0) http.get(BASE + '/broken');
  if (i % 7 === 0) http.get('http://127.0.0.1:1/refused');
  if (i % 50 === 0) http.get(BASE + '/slow', { timeout: '100ms' });
  if (i % 11 === 0) http.batch([['GET', BASE + '/ok'], ['GET', BASE + '/broken'], ['GET', BASE + '/redirect']]);
  if (i % 13 === 0) http.get(BASE + '/ok', { responseCallback: null });
}
export function handleSummary() { return { stdout: 'own summary' }; }
"""


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(2)
        self.send_response({"/redirect": 302, "/broken": 500}.get(self.path, 200))
        if self.path == "/redirect":
            self.send_header("Location", "/ok")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that give up are part of the test."""


@pytest.fixture
def server() -> Iterator[str]:
    with _Quiet(("127.0.0.1", 0), _Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def _k6() -> str | None:
    local = Path(__file__).parents[1] / ".tools" / "k6"
    local = local / "k6" if local.is_dir() else local
    return os.environ.get("K6") or (str(local) if local.is_file() else shutil.which("k6"))


@pytest.mark.load
@pytest.mark.skipif(_k6() is None, reason="no k6: not in $K6, .tools/k6 or on PATH")
@pytest.mark.parametrize(("zone", "system_tags"), [("UTC", "status,error_code"), ("Asia/Kolkata", None)])
def test_real_k6(tmp_path: Path, server: str, zone: str, system_tags: str | None) -> None:
    (tmp_path / "script.js").write_text(SCRIPT)
    raw, summary_path = tmp_path / "k6.json.gz", tmp_path / "summary.json"
    command = [str(_k6()), "run", "--no-usage-report", "--out", f"json={raw}", "--address", ""]
    command += ["--summary-export", str(summary_path)]
    command += ["--summary-trend-stats", "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"]
    command += ["--system-tags", system_tags] if system_tags else []
    environment = {"PATH": os.environ["PATH"], "TZ": zone, "BASE": server, "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, str(tmp_path / "script.js")],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    points = _digest(raw)
    _assert_same(raw, points)
    summary = read_summary(summary_path)
    assert summary.iterations == points.iterations == 240
    assert points.script_runs == 240 + 2 + 1, "two interrupted iterations and setup()"
    assert summary.requests == points.requests == points.points["http_req_receiving"]
    trend = summary.http_req_duration
    assert trend is not None
    assert trend.count == points.requests
    for name in ("mean", "min", "p50", "p90", "p95", "p99", "p999", "max"):
        assert getattr(points, f"latency_{name}_ms") == pytest.approx(getattr(trend, name), rel=1e-9)
    assert summary.iteration_max_ms == points.iteration_max_ms >= points.latency_max_ms
    assert points.worst_residual_ms < 1e-9
    statuses = set(_table(raw, "requests")["status"])
    assert statuses == {0, 200, 302, 500}
    assert points.points["http_req_failed"] < points.requests
    assert abs(points.first_start_ns / 1e9 - raw.stat().st_ctime) < 60
