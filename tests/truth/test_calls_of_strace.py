"""Tests of the counts of system calls per request: perf must agree with strace."""

import http.client
import re
import shutil
import subprocess
import time

import pytest
import real_lab
from real_lab import REPOSITORY

from runner.digest.perf_files import read_events
from runner.measure.engine import free_port
from runner.measure.leftovers import ledger
from runner.measure.perf import ALL_CALLS, Perf, refusal

SERVER = REPOSITORY / "servers" / "reference" / "build" / "server"
REQUESTS = 100
pytestmark = [
    pytest.mark.load,
    real_lab.needs("strace"),
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
    pytest.mark.skipif(not SERVER.is_file(), reason="the reference server is not built"),
]


@pytest.fixture(scope="module")
def server():
    port = free_port()
    env = {"ADDR": f"127.0.0.1:{port}", "LAB_NONCE": "x"}
    with subprocess.Popen([SERVER], env=env, stdout=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        send(connection)  # opens the connection before anything is counted
        yield process.pid, connection
        process.kill()


def send(connection, requests=1):
    for _ in range(requests):
        connection.request("GET", "/count")
        assert connection.getresponse().read()


def straced(pid, work):
    """Return the number of system calls, by name, that strace counts while `work` runs."""
    argv = ["strace", "-c", "-f", "-p", str(pid)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as strace:
        time.sleep(0.5)
        work()
        strace.terminate()
        _, said = strace.communicate(timeout=10)
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", said, re.MULTILINE)
    return {name: int(calls) for calls, name in rows if name != "total"}


def test_perf_and_strace_count_the_same_calls(server, tmp_path):
    pid, connection = server
    with ledger() as book:
        tool = Perf(shutil.which("perf"), (0,), book)
        with tool.counting(pid, tmp_path / "perf-stat.json"):
            send(connection, REQUESTS)
    counted = {event.name: event.count for event in read_events(tmp_path / "perf-stat.json")}
    calls = straced(pid, lambda: send(connection, REQUESTS))
    each = {name: counted.get(f"syscalls:sys_enter_{name}") for name in ("recvfrom", "writev")}
    assert each == {name: pytest.approx(calls[name], abs=0.03 * calls[name] + 2) for name in each}
    # strace slows the server, so the server waits more often than under perf. Because of this, the
    # total numbers of calls under perf and under strace differ a little.
    assert counted[ALL_CALLS] == pytest.approx(sum(calls.values()), rel=0.1)
