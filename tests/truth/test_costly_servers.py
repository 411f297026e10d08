"""Tests of the throughput and response times of servers whose requests have a known cost.

The reference server burns a known CPU time for each request. The lab's numbers must agree with this
cost, and with the reports of wrk and of an unchanged k6 that run alone, without the lab's sampler
and probe.
"""

import contextlib
import json
import math
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import real_lab
from own_api import free_port, run, wait_for
from real_lab import campaign, load
from scipy.special import stdtrit

from runner.measure.tools import build, need_tool
from runner.planning.catalog import load_server
from runner.present.statistics.inference import Ratio, ratio, sample_of

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("k6", "wrk"),
    real_lab.needs_two_cpus,
]
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU = str(CPUS[0])
GENERATOR_CPU = str(CPUS[-1])
CONNECTIONS = 4
WAKE_MS = 0.1
"""The medians of the lab and of an unchanged k6 may differ by this time, in ms.

An idle CPU of a virtual machine takes at least this time to wake. So if a request costs 0.05 ms,
the median response time is 0.15 to 0.2 ms, depending on how often the server's CPU sleeps. An
unchanged k6 that runs alone measures the same median. But if a request costs 1 ms, the unchanged k6
measured a median of 1.16 to 1.18 ms, and the lab measured 1.08 to 1.09 ms. The reason for this
difference is unknown.
"""
SURE = 0.999
"""Confidence level of an interval.

A run of these tests computes a dozen intervals. At this level, one of them misses the truth by
chance in about 1 of 100 runs.
"""


@dataclass(frozen=True)
class Costly:
    """A server whose requests cost a known CPU time, and the sizes of the loads for this server."""

    cost_ms: float
    closed_s: float  # duration of a closed load
    open_rps: int  # half of the server's capacity, or the highest rate that k6 can send
    open_s: int

    @property
    def name(self) -> str:
        return f"cost-{self.cost_ms:g}".replace(".", "-")

    def __str__(self) -> str:
        return f"{self.cost_ms:g} ms"


COSTLY = (
    Costly(0.05, closed_s=3, open_rps=1500, open_s=4),
    Costly(1, closed_s=4, open_rps=500, open_s=4),
    Costly(5, closed_s=5, open_rps=100, open_s=6),
    Costly(20, closed_s=6, open_rps=25, open_s=8),
)
EACH = pytest.mark.parametrize("costly", COSTLY, ids=str)


@contextlib.contextmanager
def serving(cost_ms):
    """Run the reference server on a CPU of its own, without the lab; yield its URL."""
    reference = load_server("reference")
    port = free_port()
    build(reference)
    env = {
        "ADDR": f"127.0.0.1:{port}",
        "LAB_NONCE": "mine",
        "REFERENCE_CPU_MS_PER_REQUEST": f"{cost_ms:g}",
    }
    program = reference.folder / str(reference.artifact)
    with real_lab.process(program, cpus=SERVER_CPU, env=env):
        wait_for(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}/count"


def wrk_rps(url, seconds):
    """Return the requests per second that wrk reports if it runs alone."""
    command = ["taskset", "-c", GENERATOR_CPU, need_tool("wrk").path, "-t1", f"-c{CONNECTIONS}"]
    command += [f"-d{math.ceil(seconds)}s", url]
    report = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return float(re.search(r"Requests/sec:\s+([\d.]+)", report).group(1))


STOCK = """import http from 'k6/http';
export const options = { scenarios: { open: {
  executor: 'constant-arrival-rate',
  rate: RATE, timeUnit: '1s', duration: 'SECONDSs', preAllocatedVUs: 50,
} } };
export default () => http.get('URL');
"""


def stock_k6_p50_ms(folder: Path, url, costly):
    """Return the median response time (ms) of an open load, as k6 reports it without the lab."""
    script = folder / "stock.js"
    summary = folder / "stock.json"
    text = STOCK.replace("RATE", str(costly.open_rps)).replace("SECONDS", str(costly.open_s))
    script.write_text(text.replace("URL", url))
    command = ["taskset", "-c", GENERATOR_CPU, need_tool("k6").path, "run", "--quiet"]
    command += ["--no-usage-report", f"--summary-export={summary}", script]
    subprocess.run(command, capture_output=True, check=True, timeout=90)
    return json.loads(summary.read_text())["metrics"]["http_req_duration"]["med"]


# --- rates of closed loads ------------------------------------------------------------------------


def alone_rps(costly):
    """Return the rate of a server in requests/s, as wrk measures it without the lab."""
    with serving(costly.cost_ms) as url:
        return wrk_rps(url, costly.closed_s)


@pytest.fixture(scope="module")
def alone_before():
    return {costly: alone_rps(costly) for costly in COSTLY}


@pytest.fixture(scope="module")
def closed(alone_before, tmp_path_factory):
    """Let the lab load each costly server by wrk, in one trial each; return the trials by server.

    Before and after these closed loads, wrk measures the servers alone (see `alone`).
    """
    loads = [
        load(
            "wrk-matrix", servers=[costly.name], connections=CONNECTIONS, duration_s=costly.closed_s
        )
        for costly in COSTLY
    ]
    names = [costly.name for costly in COSTLY]
    costs = {
        costly.name: {"REFERENCE_CPU_MS_PER_REQUEST": f"{costly.cost_ms:g}"} for costly in COSTLY
    }
    text = campaign(names, *loads, copies=dict.fromkeys(names, "reference"), environment=costs)
    made = real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("closed")), text, "--engine", "process"
    )
    return made.trials.set_index("server")


@pytest.fixture(scope="module")
def alone(alone_before, closed):
    """Return the rate of each server in requests/s, as wrk measures it without the lab.

    The rate is the mean of two measurements, one before and one after the lab's loads.
    """
    return {
        costly: (before_rps + alone_rps(costly)) / 2 for costly, before_rps in alone_before.items()
    }


@EACH
def test_the_rate_of_a_closed_load_by_wrk_is_that_of_wrk_alone(closed, alone, costly):
    row = closed.loc[costly.name]
    assert row["served_rps"] == pytest.approx(alone[costly], rel=0.03)
    assert row["probe_hz"] <= 0.0101 * row["served_rps"]


@pytest.mark.parametrize("costly", COSTLY[1::2], ids=str)
def test_the_rate_of_users_in_a_closed_load_is_that_of_wrk(root, alone, costly):
    """If the lab loads a server at a URL by k6, it finds the same rate as wrk alone."""
    iterations = round(costly.closed_s * alone[costly])
    with serving(costly.cost_ms) as url:
        made = run(root, "--vus", str(CONNECTIONS), "--iterations", str(iterations), url=url)
    row = made.trials.iloc[0]
    assert row["served_rps"] == pytest.approx(alone[costly], rel=0.03)
    if real_lab.undisturbed(made.trials).iloc[0]:
        assert row["verdict"] == "server-bound", row["verdict_reason"]


# --- response times of open loads -----------------------------------------------------------------


@EACH
def test_the_median_of_an_open_load_is_that_of_stock_k6(root, tmp_path, costly):
    with serving(costly.cost_ms) as url:
        before_ms = stock_k6_p50_ms(tmp_path, url, costly)
        made = run(root, "--rate", str(costly.open_rps), "--duration", str(costly.open_s), url=url)
        after_ms = stock_k6_p50_ms(tmp_path, url, costly)
    row = made.trials.iloc[0]
    stock_ms = (before_ms + after_ms) / 2
    assert row["latency_p50_ms"] == pytest.approx(stock_ms, abs=max(0.05 * stock_ms, WAKE_MS))
    assert row["rps"] == pytest.approx(costly.open_rps, rel=0.01)
    assert row["probe_hz"] <= costly.open_rps / 100
    if real_lab.undisturbed(made.trials).iloc[0]:
        assert row["verdict"] == "offered", row["verdict_reason"]
    if costly.open_rps * costly.open_s < 1200:
        assert row["probe_hz"] == 0 and "no second witness" in row["verdict_reason"]


# --- ratios of two servers, measured in sessions --------------------------------------------------

PAIRS_MS = {"half": (0.5, 1.0), "costly": (20.0, 40.0)}
SLICE_S = {"half": 1, "costly": 3}
RATIO = 2.0


def known(found: Ratio, truth):
    """Return whether the truth is in the ratio's interval (level SURE), or within 0.5 % of it."""
    wide = stdtrit(found.degrees, (1 + SURE) / 2) * found.standard_error
    return abs(math.log(found.ratio / truth)) <= max(wide, 0.005)


@pytest.mark.parametrize("pair", PAIRS_MS)
def test_a_ratio_of_costs_of_2_comes_back_on_a_quota(root, pair):
    """A server that burns half the CPU time per request answers twice as many requests.

    The lab measures the server's CPU time in two ways, which must agree to 1 %: by the sampler
    within the slices, and from /proc before and after each slice. The time from /proc also includes
    the last request, on which the server still works after the end of a slice. If a request takes
    tens of milliseconds, the slices are longer, so that this request matters less.
    """
    costs_ms = dict(zip(("cheap", "dear"), PAIRS_MS[pair], strict=True))
    loads = campaign(
        list(costs_ms),
        load("wrk-matrix", connections=CONNECTIONS, warmup_s=0.5),
        repeats=6,
        server_share=0.5,
        sessions={"slices": 2, "slice_s": SLICE_S[pair]},
        copies=dict.fromkeys(costs_ms, "reference"),
        environment={
            name: {"REFERENCE_CPU_MS_PER_REQUEST": f"{cost:g}"} for name, cost in costs_ms.items()
        },
    )
    trials = real_lab.run(root, loads, "--engine", "process").trials
    rates = {
        name: sample_of(rows["served_rps"], rows["block"])
        for name, rows in trials.groupby("server")
    }
    found = ratio(rates["cheap"], rates["dear"])
    assert known(found, RATIO), found
    assert found.high / found.low < 1.25
    counted_ms = trials["server_user_ms_per_request"] + trials["server_system_ms_per_request"]
    shares = trials["server_cpu_ms_per_request"] / counted_ms
    assert shares.mean() == pytest.approx(1, abs=0.01)


def test_the_ratio_of_two_urls_is_that_of_their_costs(root):
    """Two servers whose requests cost 15 ms and 10 ms are loaded in turn: the ratio must be 1.5.

    The requests of the probe cost CPU time, too. If the probe sent 40 requests/s, the measured
    ratio would be about 2.03, so the probe must send fewer requests.
    """
    with serving(10) as cheap, serving(15) as dear:
        made = real_lab.run(
            root, None, "--url", cheap, "--url", dear, "--vus", "4", "--iterations", "240"
        )
    rates = {
        name: sample_of(rows["served_rps"], rows["block"])
        for name, rows in made.trials.groupby("server")
    }
    assert known(ratio(rates["url-a"], rates["url-b"]), 1.5)
