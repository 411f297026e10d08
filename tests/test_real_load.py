"""Real k6 and wrk on real servers: known service times and counts come back through the whole lab."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import pandas as pd
import pytest
import real_lab

from runner.measure.engine import Running, wait_ready
from runner.measure.tools import find_tool
from runner.model import LabError

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(find_tool("k6") is None or find_tool("wrk") is None, reason="k6 or wrk is not installed"),
]

KNOWN = """title = "known service times"
servers = ["steady", "mixed"]

[copies]
steady = "reference"
mixed = "reference"

[environment.steady]
REFERENCE_SERVICE_MS = "20"

[environment.mixed]
REFERENCE_SERVICE_MS = "99:2,1:200"

[[load]]
workload = "experiments"
vus = 5
iterations = 200
warmup_s = 0.2

[[load]]
workload = "wrk-matrix"
connections = 10
modes = ["keepalive", "close"]
duration_s = 2
warmup_s = 0.2

[[load]]
workload = "experiments-open"
rates_rps = [300]
duration_s = 2
vus = 50
warmup_s = 0.2
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    root = real_lab.make(tmp_path_factory.mktemp("real"))
    done, trials = real_lab.run(root, KNOWN, "--engine", "process")
    assert done.returncode == 0, done.stderr
    return trials.set_index("name")


def test_a_steady_service_time_comes_back_through_k6_and_wrk(known):
    for trial in ("experiments-vus5", "wrk-matrix-c10-keepalive", "wrk-matrix-c10-close"):
        row = known.loc[f"b01-steady-{trial}"]
        assert row["latency_p50_ms"] == pytest.approx(20, abs=3), trial
        assert row["latency_p50_ms"] >= 20


def test_vegeta_keeps_the_rate_and_times_the_requests_that_it_sent(known):
    for server, p50 in (("steady", 20), ("mixed", 2)):
        row = known.loc[f"b01-{server}-experiments-open-r300"]
        assert row["latency_p50_ms"] == pytest.approx(p50, abs=3) and row["latency_p50_ms"] >= p50
        assert row["requests"] == pytest.approx(603, abs=2), "2 s, and the 10 ms that a request may be late"
        assert row["duration_s"] == 2.01 and row["rps"] == pytest.approx(300, rel=0.01)
        assert row["sustained"] and row["failed"] == 0 and row["tool"] == "vegeta"


def test_k6_made_every_request(known):
    rows = known[known["tool"] == "k6"]
    assert rows["requests"].tolist() == [200, 200]
    assert rows["failed"].tolist() == [0, 0]


def test_the_measured_p90_is_not_wrks_back_filled_one(known):
    """99 % take 2 ms and 1 % take 200 ms: whatever wrk back-fills, nine in ten answers came within a few ms."""
    row = known.loc["b01-mixed-wrk-matrix-c10-keepalive"]
    assert row["latency_p90_ms"] < 10
    assert row["latency_max_ms"] >= 200
    assert row["wrk_reported_p99_ms"] > row["latency_p90_ms"] * 5


def test_a_closed_loop_obeys_littles_law(known):
    row = known.loc["b01-steady-wrk-matrix-c10-keepalive"]
    assert row["rps"] * row["latency_mean_ms"] / 1000 == pytest.approx(10, rel=0.1)


REAL = """title = "the lab's own servers"
servers = ["axum", "gin", "nginx"]

[[load]]
workload = "experiments-md5"
vus = 20
iterations = 2000
warmup_s = 0.2

[[load]]
workload = "wrk-matrix"
connections = [10, 100]
modes = ["keepalive", "close"]
duration_s = 1
warmup_s = 0.2
"""


@pytest.mark.long
def test_the_labs_own_servers_pass_every_invariant(tmp_path):
    root = real_lab.make(tmp_path)
    done, trials = real_lab.run(root, REAL, "--engine", "process")
    assert done.returncode == 0, done.stderr
    assert (trials["status"] == "sealed").all()
    assert len(trials) == 2 + 3 * 4
    assert trials["server_cpu_ms_per_request"].between(0.001, 5).all()
    assert trials["verdict_reason"].str.contains("server used").all()
    (requests,) = root.glob("data/runs/*/tables/requests")
    frames = [pd.read_parquet(requests / f"{name}.parquet") for name in trials.query("tool == 'k6'")["trial_id"]]
    assert sum(len(frame) for frame in frames) == 4000
    assert all(frame["ok"].all() for frame in frames)


@pytest.mark.long
def test_the_readmes_example_is_a_server_that_keeps_its_contract(tmp_path):
    root = real_lab.make(tmp_path)
    shutil.copytree(real_lab.REPOSITORY / "examples" / "own-api", root / "servers" / "own-api")
    done = real_lab.bench(root, "check", "own-api", "--engine", "process", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (inspection,) = json.loads(done.stdout)
    assert len(inspection["checks"]) > 5


def test_port_in_use_is_no_proof_of_readiness(tmp_path):
    """A stranger that answers on every port would have to know the nonce."""
    port = 18_765
    stranger = subprocess.Popen(
        [sys.executable, str(real_lab.HERE / "fakes" / "known_server.py"), "stranger", "0"],
        env={**os.environ, "ADDR": f"127.0.0.1:{port}", "LAB_NONCE": "theirs"},
    )
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                    assert json.load(answer)["nonce"] == "theirs"
                break
            except OSError:
                time.sleep(0.05)
        running = Running(stranger.pid, port, stranger.poll, lambda: 0)
        with pytest.raises(LabError, match="Another program than gin answers"):
            wait_ready("gin", running, "ours", tmp_path / "log", deadline_s=0.5)
    finally:
        stranger.kill()
        stranger.wait()


NEIGHBOUR = """title = "a neighbour on the server's CPU"
servers = ["reference"]

[[load]]
workload = "rates"
rates_rps = [100]
duration_s = 2
vus = 20
warmup_s = 0.2
"""


@pytest.mark.long
@pytest.mark.fault("another program takes the server's CPU under load", "the trial is repeated; then it says so")
def test_a_program_that_takes_the_server_s_cpu_is_told(tmp_path):
    root = real_lab.make(tmp_path)
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]) as neighbour:
        try:
            done, trials = real_lab.run(root, NEIGHBOUR, "--engine", "process")
        finally:
            neighbour.kill()
    assert done.returncode == 0, done.stderr
    (row,) = trials.to_dict("records")
    assert row["attempt"] == 3
    assert row["verdict"] == "inconclusive"
    assert "other programs took" in row["verdict_reason"]
    assert row["others_cpu_mean_pct"] > 50
    assert "is repeated: disturbed: " in done.stderr
