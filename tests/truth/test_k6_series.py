"""Tests of every series (major version) of k6 that the lab drives.

Loads of each kind, and a user's script, must pass all invariants.
"""

import pytest
import real_lab
from own_api import CLOSED, free_port, run, tiny
from real_lab import Run, campaign, load

from runner.digest.k6 import read_summary

pytestmark = [pytest.mark.timed, pytest.mark.long, real_lab.needs_two_cpus]

LOADS = campaign(
    ["gin"],
    load("experiments", vus=20, modes=["keepalive", "close"], iterations=2000),
    load("rates", rates_rps=[200], duration_s=2, vus=20),
    load("static-ramp", from_rps=100, to_rps=200, steps=2, step_s=1, vus=20),
)
SCRIPT = """import http from 'k6/http';
import { check, group } from 'k6';
import { Trend } from 'k6/metrics';
const mine = new Trend('mine', true);
export const options = { summaryTrendStats: ['avg'], thresholds: { mine: ['max<0'] } };
export default function () {
  group('g', () => check(http.get(`${__ENV.BASE_URL}/x`), { 'is 200': (r) => r.status === 200 }));
  mine.add(1);
}
export function handleSummary() { return { stdout: 'my summary' }; }
"""


@pytest.fixture(params=real_lab.K6_SERIES)
def series(request):
    return request.param


@pytest.fixture
def lab(series, tmp_path):
    return real_lab.make(tmp_path, k6=real_lab.k6_of(series))


def holds(made: Run, series: str, trials: int) -> None:
    """Check that this series of k6 was used, and that every trial is sealed.

    Also check that k6 reported all numbers that the lab needs for its checks.
    """
    assert made.manifest["tools"]["k6"].startswith(f"{series.removeprefix('v')}.")
    assert len(made.records) == trials
    for record in made.records:
        assert record["status"] == "sealed", record["error"]
        assert all(check["ok"] for check in record["checks"])
        assert {check["name"].partition(" ")[0] for check in record["checks"]} >= {
            "1",
            "2",
            "3",
            "4",
            "9",
        }
        summary = read_summary(made.folder / "trials" / record["trial_id"] / "k6-summary.json")
        assert summary.requests == record["metrics"]["requests"]


def test_closed_open_and_close_mode_loads_keep_every_invariant(lab, series):
    made = real_lab.run(lab, LOADS, "--engine", "process", "--repeats", "1")
    holds(made, series, trials=4)
    assert {record["cell"]["mode"] for record in made.records} == {"keepalive", "close"}


def test_a_script_that_makes_its_summary_keeps_every_invariant(lab, series):
    with tiny(5) as server:
        made = run(lab, *CLOSED, url=server.url, script=SCRIPT)
    holds(made, series, trials=1)
    assert made.trials["requests"].tolist() == [200]
    assert "options.summaryTrendStats, options.thresholds, handleSummary" in " ".join(
        made.manifest["host_warnings"]
    )


def test_requests_to_an_allowed_port_are_told_apart(lab, series):
    with tiny(20) as server, tiny(1, port=free_port() + 1) as other:
        asks = (
            f"export default function () {{ http.get(__ENV.BASE_URL); http.get('{other.url}/x'); }}"
        )
        port = other.url.rpartition(":")[2]
        made = run(
            lab,
            *CLOSED,
            "--also",
            port,
            url=server.url,
            script=f"import http from 'k6/http';\n{asks}\n",
        )
    (record,) = made.records
    assert record["status"] == "sealed", record["error"]
    assert (record["metrics"]["requests"], record["metrics"]["elsewhere"]) == (200, 200)
    assert record["metrics"]["latency_p50_ms"] > 20
    assert made.manifest["tools"]["k6"].startswith(f"{series.removeprefix('v')}.")
