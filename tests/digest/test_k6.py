"""Tests of digesting k6's raw points.

The results must agree with a slow reader that goes line by line, with known values, and with the
summary of a real k6.
"""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import real_lab
from k6_digests import MS, S, digest, make_lines, plain, read_table
from k6_files import (
    EPOCH_NS,
    Request,
    announce,
    iteration_lines,
    point_line,
    request_lines,
    write_large,
    write_lines,
)
from own_api import tiny

from runner.digest.k6 import RequestNumbers, Trend, mode_of, read_summary, steady_state
from runner.digest.k6_raw import spool_points
from runner.model import carried_percent

ROOT = Path(__file__).parents[2]


def read_slowly(raw: Path) -> pd.DataFrame:
    """Return a row per request, with the values of the request's points.

    Read one line after the other. A point of `http_reqs` begins a request, and the following points
    belong to this request until the next point of `http_reqs`.
    """
    text = gzip.decompress(raw.read_bytes()) if raw.suffix == ".gz" else raw.read_bytes()
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        record = json.loads(line)
        metric = record["metric"]
        data = record["data"]
        if record["type"] != "Point":
            continue
        if metric == "http_reqs":
            tags = {name: int(data["tags"].get(name, 0)) for name in ("status", "error_code")}
            found.append({"end": pd.Timestamp(data["time"]).value, **tags})
        elif metric.startswith("http_req_") and metric not in (
            "http_req_mine",
            "http_req_my_trend",
        ):
            assert pd.Timestamp(data["time"]).value == found[-1]["end"]
            assert metric not in found[-1]
            found[-1][metric] = data["value"]
    return pd.DataFrame(found)


def assert_trend(trend: Trend, values_ms: Any) -> None:
    assert (trend["min"], trend["max"]) == (np.min(values_ms), np.max(values_ms))
    assert trend["mean"] == pytest.approx(np.mean(values_ms), rel=1e-12)
    quantiles = [trend[name] for name in ("p50", "p90", "p95", "p99", "p999")]
    assert quantiles == pytest.approx(
        list(np.quantile(values_ms, [0.5, 0.9, 0.95, 0.99, 0.999])), rel=1e-12
    )


def assert_same(raw: Path, points: RequestNumbers, mode: str = "keepalive") -> None:
    """Check that the digest's tables and numbers equal those of the slow reader."""
    slow = read_slowly(raw)
    table = read_table(raw, "requests")
    assert points.requests == len(slow) == len(table)
    names = {
        f"http_req_{each}": f"{each}_ms"
        for each in ("blocked", "connecting", "sending", "waiting", "receiving")
    }
    same = ["status", "error_code", *names.values()]
    expected = slow.rename(columns=names)[same]
    pd.testing.assert_frame_equal(table[same], expected, check_dtype=False, check_exact=True)
    ok = slow["status"].between(200, 399) & (slow["error_code"] == 0)
    assert table["ok"].tolist() == ok.tolist()
    assert (points.failed, points.with_status) == ((~ok).sum(), (slow["status"] != 0).sum())
    durations = slow["http_req_duration"]
    made = slow["http_req_connecting"] + slow["http_req_tls_handshaking"]
    whole = durations + np.maximum(slow["http_req_blocked"], made)
    published = whole if mode == "close" else durations
    assert table["latency_ms"].tolist() == published.tolist()
    assert_trend(points.latency, published)
    assert_trend(points.durations, durations)
    answered = slow["status"] != 0
    first_byte = (published - slow["http_req_receiving"])[answered]
    assert points.first_byte["p50"] == pytest.approx(np.quantile(first_byte, 0.5), rel=1e-12)
    assert points.first_byte["p99"] == pytest.approx(np.quantile(first_byte, 0.99), rel=1e-12)
    tail_percent = carried_percent(len(slow))
    assert points.tail_percent == tail_percent
    if tail_percent is not None:
        assert points.tail_ms == pytest.approx(np.percentile(published, tail_percent), rel=1e-12)
    first = (slow["end"] - (whole * 1e6).round().astype(int)).min()
    assert (points.first_start_ns, points.last_end_ns) == (first, slow["end"].max())
    assert table["t_s"].to_numpy() == pytest.approx((slow["end"] - first) / 1e9, abs=1e-9)


@pytest.mark.parametrize("name", ["k6.json.gz", "k6.json"])
@pytest.mark.parametrize("mode", ["keepalive", "close"])
@pytest.mark.parametrize("stock", [False, True])
def test_pairs_like_the_slow_reader(tmp_path: Path, name: str, mode: str, stock: bool) -> None:
    lines, made = make_lines(3, 700, stock=stock)
    raw = write_lines(tmp_path / name, lines)
    points = digest(raw, mode)
    assert_same(raw, points, mode)
    assert points.requests == len(made)
    assert {points.points[f"http_req{end}"] for end in ("s", "_duration", "_receiving")} == {
        len(made)
    }
    assert points.points["http_req_failed"] < len(made)
    assert (
        points.points["my_trend"] == points.points["http_req_mine"] == points.points["checks"] > 0
    )
    assert points.points["iterations"] == points.iterations < points.script_runs == 700
    assert points.iteration_max_ms == 500
    assert points.worst_residual_ms < 1e-9
    assert not points.lines_lost
    # k6 sometimes opens a connection for a request, but then does not use the connection. The time
    # to open the connection is part of the latency nevertheless.
    assert any(each.blocked < each.connecting for each in made)


def test_requests_that_straddle_batches(tmp_path: Path) -> None:
    """A request is digested correctly even if its points are read in different pieces of the file.

    The pieces are small here, so that many requests lie across the border of two pieces.
    """
    raw = tmp_path / "k6.json.gz"
    write_large(raw, 12_000, vus=50, stock_tags=False)
    points = digest(raw, spool=partial(spool_points, block_bytes=200_001))
    assert_same(raw, points)
    assert points.iterations == points.requests == 12_000


def test_histogram_and_throughput_agree_with_the_requests(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "k6.json.gz", make_lines(5, 900)[0])
    points = digest(raw)
    requests, latency, throughput = (
        read_table(raw, name) for name in ("requests", "latency", "throughput")
    )
    assert set(latency["trial_id"]) == set(throughput["trial_id"]) == {"t1"}
    assert latency["count"].sum() == throughput["requests"].sum() == points.requests
    assert throughput["failed"].sum() == points.failed
    assert not latency.duplicated(["second", "bucket"]).any()
    t_s = requests["t_s"]
    ms = requests["latency_ms"]
    for second, lower, upper, count in latency[
        ["second", "lower_ms", "upper_ms", "count"]
    ].to_numpy():
        low = 0 if lower <= 0.001 else lower
        assert count == ((t_s // 1 == second) & (ms >= low) & (ms < upper)).sum()
    edges = np.arange(len(throughput) + 1) / 10
    assert throughput["t_s"].to_numpy() == pytest.approx(edges[:-1])
    assert throughput["requests"].tolist() == list(np.histogram(t_s, edges)[0])


MODES: dict[tuple[str, int, int, int | None], str] = {
    ("keepalive", 50, 20_000, 50): "keepalive",
    ("keepalive", 51, 20_000, 50): "mixed",
    ("keepalive", 20_000, 20_000, 50): "close",
    ("keepalive", 19_799, 20_000, 50): "mixed",
    ("keepalive", 400, 500, 400): "keepalive",
    ("keepalive", 300, 300, 400): "keepalive",
    ("keepalive", 300, 300, 0): "close",
    ("keepalive", 0, 0, 50): "keepalive",
    ("close", 40, 40, 50): "close",
    ("close", 20, 40, 50): "mixed",
    ("close", 0, 40, None): "close",
    ("keepalive", 40, 40, None): "keepalive",
}
"""Loads, each with the mode that must be observed.

A load is (requested mode, number of requests that opened a connection, number of requests that had
a connection, number of connections that the users may hold). If the last number is None, the
requested mode counts as observed.
"""


def test_blocked_contains_connecting(tmp_path: Path) -> None:
    """In close mode, a request's latency contains the time of connecting exactly once.

    The value of k6's `blocked` usually contains this time. But if k6 opened a connection and did
    not use the connection, `blocked` is 0. In this case, too, the latency must contain the time of
    connecting.
    """
    first = Request(EPOCH_NS + S, 5 * MS, 4 * MS, MS, 10 * MS, MS)
    lost = Request(EPOCH_NS + 2 * S, 0, 3 * MS, 0, 0, 0, status=0, error_code=1000)
    raw = write_lines(tmp_path / "k6.json", announce(request_lines(first) + request_lines(lost)))
    points = digest(raw, "close")
    assert read_table(raw, "requests")["latency_ms"].tolist() == [17.0, 3.0]
    assert (points.durations["max"], points.first_start_ns) == (12.0, EPOCH_NS + S - 17 * MS)


def test_the_mode_is_what_happened_to_the_connections() -> None:
    assert {given: mode_of(*given) for given in MODES} == MODES


@pytest.mark.parametrize(("held", "mode"), [(10_000, "keepalive"), (0, "mixed")])
def test_the_latency_is_the_one_that_the_mode_implies(tmp_path: Path, held: int, mode: str) -> None:
    """The observed mode decides whether a latency contains the time of connecting.

    If the users may hold as many connections as were opened, the mode is "keepalive", and a latency
    excludes the time of connecting. Otherwise the mode is "mixed", and a latency includes the time.
    """
    raw = write_lines(tmp_path / "k6.json.gz", make_lines(7, 900)[0])
    points = digest(raw, held=held)
    table = read_table(raw, "requests")
    assert points.mode == mode
    assert points.opened == (table["connecting_ms"] > 0).sum()
    durations = table["sending_ms"] + table["waiting_ms"] + table["receiving_ms"]
    begun = np.maximum(table["blocked_ms"], table["connecting_ms"]) if mode == "mixed" else 0.0
    assert table["latency_ms"].to_numpy() == pytest.approx(durations + begun, abs=1e-9)
    assert_trend(points.latency, table["latency_ms"])
    assert points.durations["p50"] == pytest.approx(np.median(durations)), (
        "k6's own quantiles stay those of durations"
    )


def test_answers_after_an_open_load_do_not_count_for_its_cpu(tmp_path: Path) -> None:
    lines = [line for number in range(5) for line in request_lines(plain(EPOCH_NS + number * S))]
    raw = write_lines(tmp_path / "k6.json", announce(lines))
    assert [digest(raw, window_s=window_s).answered_by_end for window_s in (None, 2.5)] == [5, 3]


def test_time_zones_and_missing_digits(tmp_path: Path) -> None:
    lines = []
    for number, text in enumerate(
        ["2026-11-21T06:26:32.1+05:30", "2026-11-21T00:56:32Z", "2026-11-20T19:56:33-05:00"]
    ):
        made = map(json.loads, request_lines(plain(EPOCH_NS + number)))
        lines += [json.dumps({**line, "data": {**line["data"], "time": text}}) for line in made]
    points = digest(write_lines(tmp_path / "k6.json", announce(lines)))
    assert (points.first_start_ns, points.last_end_ns) == (EPOCH_NS + S - MS, EPOCH_NS + 2 * S)


def test_json_in_any_other_form_says_the_same(tmp_path: Path) -> None:
    lines = make_lines(4, 300)[0]
    turned = [json.dumps(dict(reversed(json.loads(line).items()))) for line in lines]
    others = [
        other if number % 3 else line
        for number, (line, other) in enumerate(zip(lines, turned, strict=True))
    ]
    raw = tmp_path / "k6.json"
    found = [
        (digest(write_lines(raw, each)), read_table(raw, "requests")) for each in (lines, others)
    ]
    assert found[0][0] == found[1][0]
    pd.testing.assert_frame_equal(found[0][1], found[1][1], check_exact=True)


def test_infinite_values_of_own_metrics_are_no_damage(tmp_path: Path) -> None:
    """A file is read although a script's own metric has the value `+Inf`, which is not JSON.

    k6 1.x writes `+Inf` for `trend.add(Infinity)`, but k6 2.x leaves the point out.
    """
    lines = request_lines(plain())
    lines += [point_line("mine", EPOCH_NS, "+Inf", "{}"), point_line("mine", EPOCH_NS, "2", "{}")]
    points = digest(write_lines(tmp_path / "k6.json", [*lines, *iteration_lines(EPOCH_NS, MS)]))
    assert (points.requests, points.points["mine"], points.iterations) == (1, 2, 1)


def test_dropped_iterations_are_summed(tmp_path: Path) -> None:
    lines = request_lines(plain())
    lines += [point_line("dropped_iterations", EPOCH_NS, "1", "{}")] * 3
    lines += [point_line("dropped_iterations", EPOCH_NS, "1.5e+06", "{}")]
    assert (
        digest(write_lines(tmp_path / "k6.json", announce(lines))).dropped_iterations == 1_500_003
    )


def test_same_tables_from_the_same_file_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "it's [a] *"
    folder.mkdir()
    raw = write_lines(folder / "k6.json.gz", make_lines(9, 300)[0])
    found = []
    for _ in range(2):
        digest(raw)
        found.append({path.name: path.read_bytes() for path in (folder / "out").iterdir()})
    assert found[0] == found[1] and len(found[0]) == 3
    assert not list((folder / "scratch").iterdir())


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A digest uses less than 600 MB, and hardly more if the file has four times as many lines.

    The digest runs in a process of its own, so that its memory can be measured.
    """
    program = (
        "import re, sys\nfrom pathlib import Path\nfrom runner.digest.k6 import digest_requests\n"
        "raw = Path(sys.argv[1])\nout = raw.parent / 'out'\n"
        "tables = [out / f'{name}.parquet' for name in 'rlt']\n"
        "scratch = raw.parent / 'scratch'\n"
        "digest_requests(raw, tables, trial_id='t', mode='close', scratch=scratch)\n"
        # ru_maxrss would be too high, because it begins with the memory of the process that started
        # this process.
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    peaks = []
    for iterations in (10_000, 40_000):
        write_large(raw := tmp_path / f"{iterations}.json.gz", iterations, level=1)
        done = subprocess.run(
            [sys.executable, "-c", program, raw], check=True, capture_output=True, cwd=ROOT
        )
        peaks.append(int(done.stdout) / 1024)
    assert max(peaks) < 600 and peaks[1] - peaks[0] < 150


# --- Little's law: loads in which the number of requests under way is known -----------------------


def closed_loop(users, seconds, mean_ms, busy=1.0, seed=1):
    """Return the ends (in ns) and the durations (in ms) of the iterations of a closed load.

    Each user waits for an answer and then pauses, so that the user is busy for the share `busy` of
    the time.
    """
    rng = np.random.default_rng(seed)
    took = rng.exponential(mean_ms / 1000, (users, int(3 * seconds / mean_ms * 1000)))
    ended = (
        np.cumsum(took, axis=1) + np.cumsum(took * (1 / busy - 1), axis=1) - took * (1 / busy - 1)
    )
    kept = ended - took < seconds
    return EPOCH_NS + (ended[kept] * 1e9).astype(np.int64), took[kept] * 1000


def steady(ends_ns, lengths_ms, parts=7):
    """Return the steady state as a digest computes it from these iterations.

    The digest gets the iterations as `parts` tables, and then an empty table.
    """
    cut = [*np.array_split(np.arange(len(ends_ns)), parts), np.empty(0, int)]
    tables = [pa.table({"end_ns": ends_ns[part], "length_ms": lengths_ms[part]}) for part in cut]
    with duckdb.connect() as database:
        database.register("iterations", pa.concat_tables(tables))
        return steady_state(database)


def test_in_how_many_parts_they_come_does_not_matter():
    loop = closed_loop(50, 5.0, 20.0)
    assert astuple(steady(*loop, parts=40)) == pytest.approx(
        astuple(steady(*loop, parts=1)), rel=1e-12
    )


def test_users_under_way_are_those_who_are_busy():
    """With 50 users who never pause, 50 requests are under way.

    If each user is busy for half of the time, 25 requests are under way.
    """
    found = steady(*closed_loop(50, 5.0, 20.0))
    assert found.in_flight == pytest.approx(50, rel=0.001)
    assert (found.iteration_mean_ms, found.seconds) == pytest.approx((20.0, 4.5), rel=0.05)
    assert steady(*closed_loop(50, 5.0, 20.0, busy=0.5)).in_flight == pytest.approx(25, rel=0.1)


def test_an_open_load_has_rate_times_duration_under_way():
    """If 1000 iterations begin per second and each takes 40 ms, 40 iterations are under way."""
    ends = EPOCH_NS + (np.arange(10_000) * 1_000_000 + 40_000_000)
    assert steady(ends, np.full(10_000, 40.0)).in_flight == pytest.approx(40, rel=0.01)


def test_without_iterations_there_is_none():
    assert steady(np.empty(0, np.int64), np.empty(0)) is None
    assert steady(np.array([EPOCH_NS]), np.array([5.0])) is None


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
    const extra = { tags: { extra: 'v"]}\\\\' } };
    check(http.get(BASE + '/ok', extra), { 'is 200': (r) => r.status === 200 });
  });
  own.add(1.5); gauge.add(i);
  if (i % 3 === 0) http.get(BASE + '/away?/ok');
  if (i % 5 === 0) http.get(BASE + '/broken');
  if (i % 7 === 0) http.get('http://127.0.0.1:1/refused');
  if (i % 50 === 0) http.get(BASE + '/slow', { timeout: '100ms' });
  const paths = ['/ok', '/broken', '/away?/ok'];
  if (i % 11 === 0) http.batch(paths.map((path) => ['GET', BASE + path]));
  if (i % 13 === 0) http.get(BASE + '/ok', { responseCallback: null });
}
export function handleSummary() { return { stdout: 'own summary' }; }
"""


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.parametrize("series", real_lab.K6_SERIES)
@pytest.mark.parametrize(
    ("zone", "system_tags"), [("UTC", "status,error_code"), ("Asia/Kolkata", None)]
)
def test_real_k6(tmp_path: Path, series: str, zone: str, system_tags: str | None) -> None:
    (tmp_path / "script.js").write_text(SCRIPT)
    raw = tmp_path / "k6.json.gz"
    summary_path = tmp_path / "summary.json"
    trends = "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"
    command = [
        real_lab.k6_of(series),
        "run",
        "--no-usage-report",
        "--out",
        f"json={raw}",
        "--address",
        "",
    ]
    command += [
        "--summary-export",
        summary_path,
        "--summary-trend-stats",
        trends,
        tmp_path / "script.js",
    ]
    command += ["--system-tags", system_tags] if system_tags else []
    with tiny(0) as server:
        environment = {
            "PATH": os.environ["PATH"],
            "TZ": zone,
            "BASE": server.url,
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    points = digest(raw)
    assert_same(raw, points)
    summary = read_summary(summary_path)
    assert summary.iterations == points.iterations == 240
    assert points.script_runs == 240 + 2 + 1, "two interrupted iterations and setup()"
    assert summary.requests == points.requests == points.points["http_req_receiving"]
    assert points.durations == pytest.approx(summary.http_req_duration, rel=1e-9)
    longest_ms = json.loads(summary_path.read_text())["metrics"]["iteration_duration"]["max"]
    assert longest_ms == points.iteration_max_ms >= points.durations["max"]
    assert points.worst_residual_ms < 1e-9
    assert set(read_table(raw, "requests")["status"]) == {0, 200, 302, 500}
    assert points.points["http_req_failed"] < points.requests
    assert abs(points.first_start_ns / 1e9 - raw.stat().st_ctime) < 60
