"""Tests of the whole lab with real k6, wrk, vegeta and oha on real servers.

The results must show the known service times, numbers of requests and numbers of stored rows.
"""

import json
import os
import shutil
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import psutil
import pytest
import real_lab
from fake_lab import wait_for
from real_lab import campaign, load

from runner.measure.engine import Running, wait_ready
from runner.model import LabError

pytestmark = [real_lab.needs("k6", "wrk")]
needs_postgres = real_lab.needs("postgres")

KNOWN = campaign(
    ["steady", "mixed"],
    load("experiments", vus=5, iterations=200),
    load("wrk-matrix", connections=10, modes=["keepalive", "close"], duration_s=1),
    load("experiments-open", rates_rps=[300], duration_s=2, vus=50),
    copies={"steady": "reference", "mixed": "reference"},
    environment={
        "steady": {"REFERENCE_SERVICE_MS": "20"},
        "mixed": {"REFERENCE_SERVICE_MS": "99:2,1:200"},
    },
)


@pytest.fixture(scope="module")
def known_run(tmp_path_factory):
    return real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("real")), KNOWN, "--engine", "process"
    )


@pytest.fixture(scope="module")
def known(known_run):
    return known_run.trials.set_index("name")


@pytest.mark.load
@pytest.mark.long
def test_every_tool_warms_a_server_up(known_run):
    """Each tool must warm the server up for 0.2 s.

    So the server must have counted requests before the load begins.
    """
    counted = {
        each["trial_id"]: each["measurement"]["counters_before"]["requests"]
        for each in known_run.records
    }
    assert len(counted) == 8 and min(counted.values()) >= 5, counted


@pytest.mark.load
def test_a_steady_service_time_comes_back_through_k6_and_wrk(known):
    for trial in ("experiments-vus5", "wrk-matrix-c10-keepalive", "wrk-matrix-c10-close"):
        row = known.loc[f"b01-steady-{trial}"]
        assert row["latency_p50_ms"] == pytest.approx(20, abs=3), trial
        assert row["latency_p50_ms"] >= 20


@pytest.mark.load
def test_vegeta_sustains_the_rate_and_times_its_requests(known):
    for server, p50 in (("steady", 20), ("mixed", 2)):
        row = known.loc[f"b01-{server}-experiments-open-r300"]
        assert row["latency_p50_ms"] == pytest.approx(p50, abs=3) and row["latency_p50_ms"] >= p50
        assert row["requests"] == pytest.approx(603, abs=2), (
            "2 s, and the 10 ms that a request may be late"
        )
        assert row["duration_s"] == 2.01 and row["rps"] == pytest.approx(300, rel=0.01)
        assert row["sustained"] and row["failed"] == 0 and row["tool"] == "vegeta"


BY_OHA = campaign(
    ["reference"],
    load("static-oha", connections=10, modes=["keepalive", "close"], duration_s=1),
    load("static-oha-open", rates_rps=[300], duration_s=2, vus=500),
    environment={"reference": {"REFERENCE_SERVICE_MS": "20"}},
)


@pytest.mark.load
@real_lab.needs("oha")
def test_a_steady_service_time_comes_back_through_oha(root):
    made = real_lab.run(root, BY_OHA, "--engine", "process")
    trials = made.trials.set_index("name")
    assert trials["status"].to_list() == ["sealed"] * 3
    assert trials["latency_p50_ms"].between(20, 23).all()
    for mode in ("keepalive", "close"):
        row = trials.loc[f"b01-reference-static-oha-c10-{mode}"]
        assert row["mode"] == mode
        assert row["rps"] * row["latency_mean_ms"] / 1000 == pytest.approx(10, rel=0.05)
    offered = trials.loc["b01-reference-static-oha-open-r300"]
    assert offered["requests"] == pytest.approx(603, abs=2), (
        "2 s, and the 10 ms that a request may be late"
    )
    assert offered["sustained"] and offered["rps"] == pytest.approx(300, rel=0.01)
    # oha stores no row for a request that was refused or timed out. Such requests would be noticed,
    # because a check compares the number of rows with the server's count.
    assert all(check["ok"] for record in made.records for check in record["checks"])


@pytest.mark.load
def test_k6_made_every_request(known):
    assert known.loc[known["tool"] == "k6", ["requests", "failed"]].to_numpy().tolist() == [
        [200, 0],
        [200, 0],
    ]


@pytest.mark.load
def test_the_measured_p90_is_not_wrks_back_filled_one(known):
    """If a server answers 99 % of the requests in 2 ms and 1 % in 200 ms, p90 must be a few ms.

    The percentiles that wrk itself reports are higher. The reason is back-filling: wrk also counts
    latencies of requests that it never sent.
    """
    row = known.loc["b01-mixed-wrk-matrix-c10-keepalive"]
    assert row["latency_p90_ms"] < 10
    assert row["latency_max_ms"] >= 200
    assert row["wrk_reported_p99_ms"] > row["latency_p90_ms"] * 5


@pytest.mark.load
def test_a_closed_loop_obeys_littles_law(known):
    row = known.loc["b01-steady-wrk-matrix-c10-keepalive"]
    assert row["rps"] * row["latency_mean_ms"] / 1000 == pytest.approx(10, rel=0.1)


REAL = campaign(
    ["axum", "gin", "nginx"],
    load("experiments-md5", vus=20, iterations=2000),
    load("wrk-matrix", connections=[10, 100], modes=["keepalive", "close"], duration_s=1),
)


@pytest.mark.load
@pytest.mark.long
def test_the_labs_servers_pass_every_invariant(root):
    made = real_lab.run(root, REAL, "--engine", "process")
    trials = made.trials
    assert trials["status"].to_list() == ["sealed"] * (2 + 3 * 4)
    assert trials["server_cpu_ms_per_request"].between(0.001, 5).all()
    assert trials["verdict_reason"].str.contains("server used").all()
    ok = [made.table(f"requests/{name}")["ok"] for name in trials.query("tool == 'k6'")["trial_id"]]
    assert pd.concat(ok).to_list() == [True] * 4000


@pytest.mark.timed
@pytest.mark.long
def test_the_readmes_example_keeps_the_contract(root):
    shutil.copytree(real_lab.REPOSITORY / "examples" / "own-api", root / "servers" / "own-api")
    done = real_lab.bench(root, "check", "own-api", "--engine", "process", "--json", code=0)
    assert len(json.loads(done.stdout)[0]["checks"]) > 5


class Stranger(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "server": "gin", "nonce": "theirs"}')


@pytest.mark.timed
def test_port_in_use_is_no_proof_of_readiness(tmp_path):
    """If another program answers on the server's port, the server does not count as ready.

    The lab recognizes the other program, because this program does not know the nonce that the lab
    has given to the server.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        running = Running(os.getpid(), stranger.server_port, lambda: None, lambda: 0)
        with pytest.raises(LabError, match="A program other than gin answers"):
            wait_ready("gin", running, "ours", tmp_path / "log", deadline_s=0.5)
        stranger.shutdown()


@pytest.mark.load
@pytest.mark.long
@pytest.mark.fault(
    "another program takes the server's CPU under load", "the trial is repeated; then it says so"
)
def test_a_program_that_takes_the_servers_cpu_is_the_reason(root):
    loads = campaign(["reference"], load("rates", rates_rps=[100], duration_s=2, vus=20))
    with real_lab.process(
        sys.executable, "-c", "while True: pass", cpus=str(min(os.sched_getaffinity(0)))
    ):
        made = real_lab.run(root, loads, "--engine", "process")
    (row,) = made.trials.to_dict("records")
    assert (row["attempt"], row["verdict"]) == (3, "inconclusive")
    assert "other programs took" in row["verdict_reason"] and row["others_cpu_mean_pct"] > 50
    assert "is repeated: disturbed: " in made.done.stderr


INSERTS = campaign(
    ["axum", "gin"],
    load("devices-insert", connections=32, duration_s=2, pool_sizes=[4, 16]),
    load("devices-insert-k6", vus=20, iterations=2000, pool_sizes=8),
    load("devices-insert-ramp", from_rps=100, to_rps=300, steps=3, step_s=1, vus=50, pool_sizes=8),
)


@pytest.mark.timed
@needs_postgres
def test_one_trial_of_inserts(root):
    loads = campaign(["gin"], load("devices-insert", connections=32, duration_s=2, pool_sizes=4))
    (row,) = real_lab.run(root, loads, "--engine", "process").trials.to_dict("records")
    assert row["inserts"] > 100 and 0 <= row["rows_inserted"] - row["inserts"] <= 32
    assert row["pool_in_use_max"] <= 4


@pytest.fixture(scope="module")
def inserts(tmp_path_factory):
    made = real_lab.run(
        real_lab.make(tmp_path_factory.mktemp("inserts")), INSERTS, "--engine", "process"
    )
    return made.trials.set_index("trial_id"), made.table("throughput")


@pytest.mark.load
@pytest.mark.long
@needs_postgres
def test_rows_are_the_answered_inserts(inserts):
    trials, _ = inserts
    assert len(trials) == 8
    k6, wrk = (trials[trials["tool"] == tool] for tool in ("k6", "wrk"))
    assert (k6["rows_inserted"] == k6["inserts"]).all()
    assert k6["rows_inserted"].tolist().count(2000) == 2
    assert (wrk["inserts"] > 100).all()
    # When wrk ends its load, an insert may be under way on each of its 32 connections.
    assert (wrk["rows_inserted"] - wrk["inserts"]).between(0, 32).all()


@pytest.mark.load
@pytest.mark.long
@needs_postgres
def test_a_ramp_is_offered_as_asked(inserts):
    trials, throughput = inserts
    ramps = trials[trials["workload"] == "devices-insert-ramp"]
    assert ramps["load_model"].tolist() == ["open", "open"]
    # The steps offer 100, 200 and 300 requests: 600 in all, with a tolerance of 4.
    assert (ramps["requests"] + ramps["dropped"]).between(596, 604).all()
    by_second = throughput.groupby(["trial_id", throughput["t_s"].astype(int)])["requests"].sum()
    for trial_id in ramps.index[ramps["dropped"] == 0]:
        assert by_second[trial_id].reindex([0, 1, 2]).tolist() == pytest.approx(
            [100, 200, 300], abs=25
        )


@pytest.mark.load
@pytest.mark.long
@needs_postgres
def test_the_pool_is_seen_from_inside(inserts):
    trials, _ = inserts
    pools = trials[(trials["workload"] == "devices-insert") & (trials["pool_size"] == 4)]
    assert (pools["pool_in_use_max"] <= 4).all()
    # The requests of 32 connections share 4 connections to the database, so some always wait.
    assert (pools["pool_waiting_max"] > 0).all()
    assert (trials["database_sessions"] >= 0).all()
    assert (trials["database_cpu_mean_pct"] > 0).all()


@pytest.mark.load
@pytest.mark.long
@needs_postgres
@pytest.mark.fault(
    "a server is killed in mid-load over PostgreSQL",
    "the trial fails; the database has a row for every answered insert",
)
def test_a_server_killed_in_mid_load_loses_no_row(root):
    servers = ["axum", "gin"]
    inserts = load("devices-insert-k6", vus=50, iterations=20_000, pool_sizes=16)
    (root / "test.toml").write_text(campaign(servers, inserts, attempts=1))
    runner = real_lab.start(root, "run", "test.toml", "--engine", "process", "--json")
    for begun in (1, 2):
        wait_for(lambda: len(list(root.glob("data/runs/*/trials/*/k6.json.gz"))) >= begun, 100)  # noqa: B023
        time.sleep(0.5)
        for process in psutil.Process(runner.pid).children(recursive=True):
            if process.exe().startswith(str(real_lab.REPOSITORY / "servers")):
                process.kill()
    records = real_lab.Run(root, real_lab.ended(runner, 1)).records
    assert sorted(record["cell"]["server"] for record in records) == servers
    for record in records:
        said = "the server lived through the load (the server ended with exit code -9)"
        assert said in record["error"]
        assert {check["name"]: check for check in record["checks"]}[
            "6 rows inserted = successful inserts"
        ]["ok"]
        metrics = record["metrics"]
        assert 0 < metrics["inserts"] < 20_000
        assert metrics["inserts"] <= metrics["rows_inserted"] <= metrics["inserts"] + 50
