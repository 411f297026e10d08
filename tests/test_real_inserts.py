"""Real servers and generators on a real PostgreSQL: every row is an answered insert, whatever happens to the server."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import real_lab

from runner.measure.tools import find_program, find_tool

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(find_tool("k6") is None or find_tool("wrk") is None, reason="k6 or wrk is not installed"),
    pytest.mark.skipif(find_program("postgres") is None, reason="PostgreSQL is not installed"),
]

INSERTS = """title = "inserts"
servers = ["axum", "gin"]

[[load]]
workload = "devices-insert"
connections = 32
duration_s = 2
pool_sizes = [4, 16]
warmup_s = 0.3

[[load]]
workload = "devices-insert-k6"
vus = 20
iterations = 2000
pool_sizes = 8
warmup_s = 0.3

[[load]]
workload = "devices-insert-ramp"
from_rps = 100
to_rps = 300
steps = 3
step_s = 1
vus = 50
pool_sizes = 8
warmup_s = 0.3
"""


@pytest.fixture(scope="module")
def inserts(tmp_path_factory):
    root = real_lab.make(tmp_path_factory.mktemp("inserts"))
    done, trials = real_lab.run(root, INSERTS, "--engine", "process")
    assert done.returncode == 0, done.stderr
    return root, trials.set_index("trial_id")


def test_rows_are_the_answered_inserts(inserts):
    _, trials = inserts
    assert len(trials) == 8
    k6 = trials[trials["tool"] == "k6"]
    assert (k6["rows_inserted"] == k6["inserts"]).all()
    assert k6["rows_inserted"].tolist().count(2000) == 2
    wrk = trials[trials["tool"] == "wrk"]
    assert (wrk["inserts"] > 100).all()
    # When wrk stops, each of its 32 connections may have an insert under way.
    assert (wrk["rows_inserted"] - wrk["inserts"]).between(0, 32).all()


def test_a_ramp_is_offered_as_asked(inserts):
    root, trials = inserts
    ramps = trials[trials["workload"] == "devices-insert-ramp"]
    assert ramps["load_model"].tolist() == ["open", "open"]
    # 100 + 200 + 300 requests, one more or less at each step.
    assert (ramps["requests"] + ramps["dropped"]).between(596, 604).all()
    throughput = pd.concat(pd.read_parquet(path) for path in root.glob("data/runs/*/tables/throughput.parquet"))
    for trial_id, row in ramps.iterrows():
        if row["dropped"] == 0:
            own = throughput[throughput["trial_id"] == trial_id]
            by_second = own.groupby(own["t_s"].astype(int))["requests"].sum()
            assert by_second.reindex([0, 1, 2]).tolist() == pytest.approx([100, 200, 300], abs=25)


def test_the_pool_is_seen_from_inside(inserts):
    _, trials = inserts
    pools = trials[(trials["workload"] == "devices-insert") & (trials["pool_size"] == 4)]
    assert (pools["pool_in_use_max"] <= 4).all()
    # 32 connections share 4 of the database's: some are always waiting.
    assert (pools["pool_waiting_max"] > 0).all()
    assert (trials["database_sessions"] >= 0).all()
    assert (trials["database_cpu_mean_pct"] > 0).all()


KILLED = """title = "killed"
servers = ["{server}"]

[[load]]
workload = "devices-insert-k6"
vus = 50
iterations = 20000
pool_sizes = 16
warmup_s = 0.3
"""


@pytest.mark.long
@pytest.mark.fault(
    "a server is killed in mid-load over PostgreSQL", "the trial fails; the rows are those that were answered"
)
@pytest.mark.parametrize("server", ["axum", "gin"])
def test_a_server_killed_in_mid_load_loses_no_row_and_invents_none(tmp_path, server):
    root = real_lab.make(tmp_path)
    (root / "killed.toml").write_text(KILLED.format(server=server))
    runner = subprocess.Popen(
        [sys.executable, "-m", "runner.cli", "run", "killed.toml", "--engine", "process", "--json"],
        cwd=root,
        env={**os.environ, "BENCH_ROOT": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = threading.Thread(target=kill_in_mid_load, args=(runner, root, server))
    killer.start()
    out, err = runner.communicate(timeout=240)
    killer.join()
    assert runner.returncode == 1, err
    (record,) = (json.loads(path.read_text()) for path in Path(json.loads(out)["path"]).glob("trials/*/trial.json"))
    assert "the server lived through the load (it ended with exit code -9)" in record["error"]
    checks = {check["name"]: check for check in record["checks"]}
    assert checks["6 rows inserted = successful inserts"]["ok"], checks["6 rows inserted = successful inserts"]
    metrics = record["metrics"]
    assert 0 < metrics["inserts"] < 20_000
    assert metrics["inserts"] <= metrics["rows_inserted"] <= metrics["inserts"] + 50


def kill_in_mid_load(runner, root, server):
    """Wait for the measured load's first samples, give it a moment, and kill the server."""
    deadline = time.monotonic() + 200
    while not list(root.glob("data/runs/*/trials/*/k6.json.gz")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)
    binary = str((root / "servers" / server).resolve())
    for process in psutil.Process(runner.pid).children(recursive=True):
        if process.exe().startswith(binary):
            process.send_signal(signal.SIGKILL)
