"""Servers that nobody here wrote, as they come: what they say of a load is what the lab says of it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import real_lab
from own_api import BRIEF, free_port, run, wait_for

from runner.measure.tools import find_tool

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    pytest.mark.skipif(find_tool("k6") is None, reason="k6 is not installed"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="server and generator need a CPU each"),
]
NODE = Path(__file__).parent / "fakes" / "foreign_server.js"
STRANGERS = 20
"""Connections of others that the kernel may count."""


@contextlib.contextmanager
def listening(port, *command, log=subprocess.DEVNULL, cwd=None):
    """Run a server on the first CPU until the context ends."""
    first = str(min(os.sched_getaffinity(0)))
    process = subprocess.Popen(["taskset", "-c", first, *command], stdout=log, stderr=log, cwd=cwd)
    try:
        wait_for(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()


def accepted(made):
    """Return how many connections the kernel accepted during the load."""
    measured = made.records[-1]["measurement"]
    return measured["counters_after"]["passive_opens"] - measured["counters_before"]["passive_opens"]


def published(made, row):
    """Return the latencies of a trial's single requests."""
    return pd.read_parquet(made.folder / "tables" / "requests" / f"{row['trial_id']}.parquet")["latency_ms"].to_numpy()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python's own server, which closes after each answer, at 100 requests/s; and how often it says it was asked."""
    folder = tmp_path_factory.mktemp("site")
    root = real_lab.make(tmp_path_factory.mktemp("python"))
    port, log = free_port(), folder / "log.txt"
    command = (sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1")
    with log.open("w") as said, listening(port, *command, log=said, cwd=folder) as url:
        made = run(root, "--url", url, "--rate", "100", "--duration", "3", *BRIEF)
    assert made.done.returncode == 0, made.done.stderr
    return made, made.trials.iloc[0], log.read_text().count('"GET / HTTP/1.1" 200')


def test_a_server_that_closes_after_each_answer_has_no_kept_connections(python):
    made, row, answered = python
    assert (row["mode"], row["opened_pct"], row["probe_reopened_pct"]) == ("close", 100, 100)
    sent = row["requests"] + row["probe_requests"]
    assert answered >= sent
    assert sent - row["failed"] - row["probe_failed"] <= accepted(made) <= sent + row["probe_requests"] + STRANGERS
    assert made.records[0]["cell"]["mode"] == "keepalive"


def test_its_rate_is_the_one_that_was_begun(python):
    _, row, _ = python
    assert row["requests"] == pytest.approx(300, abs=2)
    assert row["duration_s"] == 3
    assert row["rps"] == pytest.approx(100, abs=1)


def test_its_response_times_begin_with_asking_for_a_connection(python):
    made, row, _ = python
    whole = published(made, row)
    parts = pd.read_parquet(made.folder / "tables" / "requests" / f"{row['trial_id']}.parquet")
    sent = parts["sending_ms"] + parts["waiting_ms"] + parts["receiving_ms"]
    assert (parts["connecting_ms"] > 0).all()
    assert (whole >= sent + parts["connecting_ms"] - 1e-6).all()
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1)):
        assert row[f"latency_{name}_ms"] == pytest.approx(np.quantile(whole, q), rel=1e-9)


def test_no_verdict_rests_on_witnesses_that_contradict_each_other(python):
    _, row, _ = python
    apart = max(row["probe_p50_ms"] / row["latency_p50_ms"], row["latency_p50_ms"] / row["probe_p50_ms"])
    assert row["verdict"] == "inconclusive" or (apart < 5 and row["probe_requests"] >= 96)
    assert row["probe_requests"] == pytest.approx(120, abs=4), "the probe kept its schedule"


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def node(root, most, *arguments):
    """Load node's own server, which takes 20 ms and closes after `most` requests; return the run, and what k6 sent."""
    port = free_port()
    with listening(port, "node", str(NODE), str(port), "20", str(most)) as url:
        made = run(root, "--url", url, *arguments, *BRIEF)
        with urllib.request.urlopen(f"{url}seen", timeout=5) as answer:
            seen = json.load(answer)
    assert made.done.returncode == 0, made.done.stderr
    begun_ms = made.records[0]["measurement"]["load_started_wall_ns"] / 1e6
    return made.trials.iloc[-1], [each for each in seen if each[0] >= begun_ms and "k6" in each[2]]


@needs_node
@pytest.mark.parametrize(
    ("most", "mode", "connections"), [(0, "keepalive", 10), (10, "mixed", 50), (1, "close", 500)], ids=str
)
def test_the_mode_is_what_the_server_made_of_it(root, most, mode, connections):
    row, seen = node(root, most, "--vus", "10", "--iterations", "500")
    assert row["requests"] == len(seen) == 500
    opened = len({number for _, number, _ in seen})
    assert connections <= opened <= connections + 10 * (most == 10)  # users do not get ten times ten requests each
    assert row["opened_pct"] == pytest.approx(opened / 5)
    assert row["mode"] == mode
    assert row["probe_reopened_pct"] == pytest.approx(100 / most if most else 0, abs=5)
    assert 20 <= row["latency_p50_ms"] < 40
    assert 20 <= row["probe_p50_ms"] < 40


@needs_node
def test_an_open_load_has_the_rate_at_which_it_began(root):
    row, seen = node(root, 0, "--rate", "50", "--duration", "3")
    assert row["requests"] == len(seen)
    times_s = np.array([each[0] for each in seen]) / 1000
    assert row["rps"] == pytest.approx((len(seen) - 1) / (times_s[-1] - times_s[0]), rel=0.02)
    assert row["rps"] == pytest.approx(50, abs=0.7)
    assert row["mode"] == "keepalive"
    assert row["ended_late_s"] < 0.5
    if real_lab.is_quiet(pd.DataFrame([row])).iloc[0]:
        assert row["verdict"] == "offered"
