"""Tests with servers by other authors: the lab's numbers must agree with the servers' logs."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import real_lab
from own_api import free_port, run, wait_for

pytestmark = [pytest.mark.load, pytest.mark.long, real_lab.needs("k6"), real_lab.needs_two_cpus]
NODE = real_lab.HERE / "fakes" / "foreign_server.js"
STRANGERS = 20
"""The kernel's count of connections may be too high by up to this number.

The count also contains the connections of other programs.
"""


@contextlib.contextmanager
def listening(port, *command, log=subprocess.DEVNULL, cwd=None):
    """Run a server on the first CPU until the context ends; yield its URL."""
    with real_lab.process(
        *command, cpus=str(min(os.sched_getaffinity(0))), stdout=log, stderr=log, cwd=cwd
    ):
        wait_for(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}/"


def test_a_server_that_closes_after_each_answer_agrees(root, tmp_path):
    """Python's own HTTP server closes the connection after each answer.

    At 400 requests/s, the lab's counts must agree with the server's log.
    """
    (tmp_path / "site").mkdir()
    port = free_port()
    log = tmp_path / "log.txt"
    command = (sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1")
    with log.open("w") as said, listening(port, *command, log=said, cwd=tmp_path / "site") as url:
        made = run(root, "--rate", "400", "--duration", "4", url=url)
    row = made.trials.iloc[0]
    answered = log.read_text().count('"GET / HTTP/1.1" 200')
    # The server keeps no connection open.
    assert (row["mode"], row["opened_pct"], row["probe_reopened_pct"]) == ("close", 100, 100)
    assert made.records[0]["cell"]["mode"] == "keepalive"
    sent = row["requests"] + row["probe_requests"]
    assert answered >= sent
    before, after = (
        made.records[-1]["measurement"][f"counters_{when}"] for when in ("before", "after")
    )
    accepted = after["passive_opens"] - before["passive_opens"]
    assert (
        sent - row["failed"] - row["probe_failed"]
        <= accepted
        <= sent + row["probe_requests"] + STRANGERS
    )
    # The rate of the trial is the rate at which k6 began iterations.
    assert (row["requests"], row["duration_s"]) == (pytest.approx(1600, abs=2), 4)
    assert row["rps"] == pytest.approx(400, abs=1)
    # Response times include opening the connection.
    parts = pd.read_parquet(made.folder / "tables" / "requests" / f"{row['trial_id']}.parquet")
    whole = parts["latency_ms"]
    sent_ms = parts["sending_ms"] + parts["waiting_ms"] + parts["receiving_ms"]
    assert (parts["connecting_ms"] > 0).all()
    assert (whole >= sent_ms + parts["connecting_ms"] - 1e-6).all()
    for name, q in (
        ("p50", 0.5),
        ("p90", 0.9),
        ("p95", 0.95),
        ("p99", 0.99),
        ("p999", 0.999),
        ("max", 1),
    ):
        assert row[f"latency_{name}_ms"] == pytest.approx(np.quantile(whole, q), rel=1e-9)
    # There is no verdict if k6 and the probe contradict each other.
    apart = max(
        row["probe_p50_ms"] / row["latency_p50_ms"], row["latency_p50_ms"] / row["probe_p50_ms"]
    )
    assert row["verdict"] == "inconclusive" or (apart < 5 and row["probe_requests"] >= 13)
    assert row["probe_requests"] == pytest.approx(16, abs=1), (
        "the probe kept its schedule, a hundredth of the rate"
    )


needs_node = real_lab.needs("node")


@dataclass(frozen=True)
class NodeLoad:
    """The trial of a load on the HTTP server of Node.js, and what the server saw."""

    row: pd.Series
    of_k6: list
    """k6's requests of the load, each as time in ms, number of its connection, and client."""
    by_connection_of_probe: Counter
    """For each connection of a client other than k6, the number of requests on it."""


def node(root, most, *arguments):
    """Load the HTTP server of Node.js, and return a NodeLoad.

    The server answers after 20 ms. It closes a connection after `most` requests, or never if `most`
    is 0.
    """
    port = free_port()
    with listening(port, "node", str(NODE), str(port), "20", str(most)) as url:
        made = run(root, *arguments, url=url)
        with urllib.request.urlopen(f"{url}seen", timeout=5) as answer:
            seen = json.load(answer)
    begun_ms = made.records[0]["measurement"]["load_started_wall_ns"] / 1e6
    of_k6 = [each for each in seen if each[0] >= begun_ms and "k6" in each[2]]
    others = Counter(number for _, number, client in seen if "k6" not in client)
    return NodeLoad(made.trials.iloc[-1], of_k6, others)


@needs_node
@pytest.mark.parametrize(
    ("most", "mode", "iterations", "connections"),
    [(0, "keepalive", 2000, 10), (10, "mixed", 6000, 600), (1, "close", 2000, 2000)],
    ids=str,
)
def test_the_mode_is_what_the_server_made_of_it(root, most, mode, iterations, connections):
    found = node(root, most, "--vus", "10", "--iterations", str(iterations))
    row = found.row
    seen = found.of_k6
    assert row["requests"] == len(seen) == iterations
    opened = len({number for _, number, _ in seen})
    assert (
        connections <= opened <= connections + 10 * (most == 10)
    )  # the last connection of each of the ten users may have fewer than ten requests
    assert (row["mode"], row["opened_pct"]) == (mode, pytest.approx(100 * opened / iterations))
    # The server also closes the probe's connections after `most` requests, and the answer of /seen
    # shows how many. After such a closing, the probe opens a new connection for its next request,
    # unless it has a second connection that is idle, or sends no further request. The probe's first
    # request opens a connection, too.
    closed = sum(count == most for count in found.by_connection_of_probe.values())
    reopened = round(row["probe_reopened_pct"] / 100 * row["probe_requests"])
    if most == 1:
        assert reopened == pytest.approx(row["probe_requests"], abs=1)
    else:
        assert max(0, closed - 2) <= reopened <= closed
        assert closed >= 4 or most == 0
    assert 20 <= row["latency_p50_ms"] < 40 and 20 <= row["probe_p50_ms"] < 40


@needs_node
def test_an_open_load_has_the_rate_at_which_it_began(root):
    found = node(root, 0, "--rate", "50", "--duration", "3")
    row = found.row
    seen = found.of_k6
    assert row["requests"] == len(seen)
    times_s = np.array([each[0] for each in seen]) / 1000
    assert row["rps"] == pytest.approx((len(seen) - 1) / (times_s[-1] - times_s[0]), rel=0.02)
    assert row["rps"] == pytest.approx(50, abs=0.7)
    assert row["mode"] == "keepalive"
    assert row["ended_late_s"] < 0.5
    if real_lab.is_quiet(pd.DataFrame([row])).iloc[0]:
        assert row["verdict"] == "offered"
