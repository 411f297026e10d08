"""Tests that read thresholds and custom metrics from files of a real k6.

The results are compared with k6's own summary.
"""

import functools
import http.server
import json
import re
import subprocess
import threading
import time

import pandas as pd
import pytest
import real_lab

from runner.importing.run import Given, import_files

pytestmark = [pytest.mark.timed, pytest.mark.long]

SCRIPT = """import http from 'k6/http';
import { check, group } from 'k6';
import { Counter, Gauge, Rate, Trend } from 'k6/metrics';
const trend = new Trend('my_trend'), counter = new Counter('my_counter');
const rate = new Rate('my_rate'), gauge = new Gauge('my_gauge');
export const options = {
  vus: 3, iterations: 90,
  summaryTrendStats: ['avg', 'min', 'med', 'max', 'p(90)', 'p(95)'],
  thresholds: {
    http_req_duration: ['p(95)<10', 'p(95) >= 10', 'avg<1', 'med<100', 'p(99.9)<5000', 'max<20'],
    'http_req_duration{name:slow}': [
      'p(50)<25', 'min>=30', { threshold: 'max>1', abortOnFail: false },
    ],
    'http_req_duration{name:slow,method:GET}': ['p(90)<1'],
    'http_req_duration{expected_response:true}': ['max<1e4'],
    http_req_failed: ['rate<0.4', 'rate>0.4'],
    'http_req_failed{name:slow}': ['rate==0'],
    http_reqs: ['count===270', 'count!=270', 'rate>100000'],
    'http_reqs{group:::G}': ['count>=90'],
    'http_reqs{kind:mine}': ['count<100'],
    checks: ['rate>0.5'],
    'checks{check:never}': ['rate<=0'],
    my_trend: ['avg<0', 'min==-44', 'p(25)<=-22'],
    my_counter: ['count<180', 'rate>0.001'],
    my_rate: ['rate>0.33', 'rate<0.33'],
    my_gauge: ['value>=0'],
    dropped_iterations: ['count<1'],
    vus: ['value>2'],
  },
};
export default function () {
  const base = __ENV.BASE;
  check(http.get(`${base}/slow`, { tags: { name: 'slow' } }), { never: () => false });
  http.get(`${base}/items/${__ITER}`, { tags: { kind: 'mine' } });
  group('G', () => check(http.get(`${base}/fail`), { 'is 500': (r) => r.status === 500 }));
  trend.add(-__ITER % 45); counter.add(2); rate.add(__ITER % 3 === 0); gauge.add(__ITER);
}
"""
SUMMARIZED = """
export function handleSummary(data) { return { 'handled.json': JSON.stringify(data) }; }
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that answers at once, after 30 ms (/slow), or with status 500 (/fail)."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.03)
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def base():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module", params=real_lab.K6_SERIES)
def recorded(request, base, tmp_path_factory):
    """Return a folder with files of a real k6: JSON, CSV, and both forms of summary.

    k6 writes one form with `--summary-export`, and the script's `handleSummary` writes the other.
    """
    folder = tmp_path_factory.mktemp("k6")
    k6 = real_lab.k6_of(request.param)
    call = functools.partial(
        subprocess.run, cwd=folder, capture_output=True, text=True, timeout=120
    )
    for script, outputs in (
        (SCRIPT, ["--out", "json=a.json.gz", "--out", "csv=a.csv", "--summary-export", "a.sum"]),
        (SCRIPT + SUMMARIZED, ["--out", "json=b.json.gz"]),
    ):
        (folder / "script.js").write_text(script)
        ended = call([k6, "run", "-q", "-e", f"BASE={base}", *outputs, "script.js"])
        assert ended.returncode == 99, ended.stderr  # k6 reports broken thresholds
    return folder


@pytest.fixture
def thresholds(recorded, bare_lab):
    """Return a function that imports a file with its summary, and returns the thresholds."""

    def read(name: str, summary: str) -> pd.DataFrame:
        run = import_files([Given(recorded / name, summary=recorded / summary)])
        return pd.read_parquet(run.table("thresholds"))

    return read


def test_every_threshold_is_judged_as_k6_judged_it(thresholds):
    for name, summary in (("a.json.gz", "a.sum"), ("b.json.gz", "handled.json")):
        found = thresholds(name, summary)
        assert len(found) == len(re.findall(r"[<>=]=*\s*-?[\d.e]+'", SCRIPT))
        assert found["kept_by_k6"].notna().all()
        assert {True, False} <= set(found["kept_by_k6"])
        wrong = found[found["kept"] != found["kept_by_k6"]]
        assert wrong.empty, wrong.to_string()


def test_a_csv_leaves_out_only_thresholds_of_further_tags(thresholds):
    found = thresholds("a.csv", "a.sum")
    unknown = found[found["kept"].isna()]
    assert list(unknown["metric"]) == ["http_reqs{kind:mine}"]
    known = found[found["kept"].notna()]
    assert (known["kept"] == known["kept_by_k6"]).all()


def test_own_metrics_have_the_numbers_of_the_summary(recorded, bare_lab):
    run = import_files([Given(recorded / "a.json.gz")])
    rows = pd.read_parquet(run.table("metrics")).set_index("metric")
    stated = json.loads((recorded / "a.sum").read_text())["metrics"]
    assert set(rows.index) == {"my_trend", "my_counter", "my_rate", "my_gauge", "group_duration"}
    for name in ("my_trend", "group_duration"):
        row = rows.loc[name]
        assert row["kind"] == "trend"
        assert row[["mean", "least", "most"]].tolist() == pytest.approx(
            [stated[name][key] for key in ("avg", "min", "max")]
        )
    assert rows.loc["my_counter", "total"] == stated["my_counter"]["count"] == 180
    assert rows.loc["my_rate", "share"] == pytest.approx(stated["my_rate"]["value"])
