"""`bench run` on an API of one's own: what a known server does comes back, and nothing else is ever loaded."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pandas as pd
import psutil
import pytest
import real_lab
from marking import long_but
from own_api import BRIEF, CLOSED, free_port, run, script, tiny, wait_for

from runner.measure.tools import find_tool

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(find_tool("k6") is None, reason="k6 is not installed"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="server and generator need a CPU each"),
]


# --- what comes back --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Plain GETs of a Python server that takes 20 ms, and what it says of them."""
    root = real_lab.make(tmp_path_factory.mktemp("plain"))
    with tiny(20) as server:
        made = run(root, "--url", f"{server.url}/x", "--rate", "100", "--duration", "4", *BRIEF)
        assert server.process.poll() is None, "the lab ended a server that it did not start"
        seen = server.seen
    assert made.done.returncode == 0, made.done.stderr
    return made, made.trials.iloc[0], seen


@pytest.mark.long
def test_a_known_delay_comes_back_within_a_millisecond(root):
    """Of the reference server, whose timer is held to 0.2 ms by its own tests."""
    built = real_lab.bench(root, "build", "reference")
    assert built.returncode == 0, built.stderr
    port = free_port()
    env = {"ADDR": f"127.0.0.1:{port}", "LAB_NONCE": "mine", "REFERENCE_SERVICE_MS": "20"}
    binary = real_lab.REPOSITORY / "servers" / "reference" / "build" / "server"
    with subprocess.Popen([binary], env=env) as server:
        try:
            os.sched_setaffinity(server.pid, {0})
            wait_for(("127.0.0.1", port))
            made = run(root, "--url", f"http://{env['ADDR']}/count", "--rate", "100", "--duration", "4", *BRIEF)
        finally:
            server.terminate()
    assert made.done.returncode == 0, made.done.stderr
    row = made.trials.iloc[0]
    assert row["latency_p50_ms"] == pytest.approx(20, abs=1)
    assert row["probe_p50_ms"] == pytest.approx(20, abs=1)


def test_an_open_load_of_plain_gets_has_counts_cpu_and_a_verdict(plain):
    _, row, seen = plain
    assert row["verdict"] == "offered"
    assert "100 requests/s were sustained" in row["verdict_reason"]
    assert row["requests"] == pytest.approx(400, abs=2)
    assert seen["requests"] > row["requests"] + row["probe_requests"]  # the warm-up and the lab's own question besides
    assert 0 < row["server_cpu_mean_pct"] < 60
    assert row["server_rss_peak_bytes"] > 5e6


def test_the_run_says_that_the_server_was_not_the_lab_s(plain):
    made, _, _ = plain
    assert made.manifest["engine"] == "attached"
    assert made.manifest["placement"]["server"] == [0]
    assert 0 not in made.manifest["placement"]["generator"]
    assert made.check("5 ")["detail"].startswith("not checked")
    assert any("was running before" in said for said in made.manifest["host_warnings"])


TWO = """import http from 'k6/http';
import { sleep } from 'k6';
import { Trend } from 'k6/metrics';
import { one } from './lib/paths.js';
const other = open('./other.txt').trim();
const mine = new Trend('mine');
export const options = { vus: 77, thresholds: { mine: ['max<0'] } };
export default function () {
  mine.add(http.get(`${__ENV.BASE_URL}${one}`).timings.duration);
  sleep(0.03);
  http.get(__ENV.BASE_URL + other);
}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A script of two requests and a pause: 10 users, 200 iterations of 20 + 30 + 20 ms."""
    root = real_lab.make(tmp_path_factory.mktemp("two"))
    (root / "lib").mkdir()
    (root / "lib" / "paths.js").write_text("export const one = '/one';\n")
    (root / "other.txt").write_text("/two\n")
    with tiny(20) as server:
        made = run(root, "--url", f"{server.url}/base/", "--script", script(root, TWO), "--vus", "10",
                   "--iterations", "200", *BRIEF)  # fmt: skip
    assert made.done.returncode == 0, made.done.stderr
    return made


@pytest.mark.long
def test_iterations_and_requests_of_a_script_are_both_counted_right(two):
    row = two.trials.iloc[0]
    assert row["iterations"] == 200
    assert row["requests"] == 400
    assert 20 <= row["latency_p50_ms"] < 24
    assert 70 <= row["iteration_mean_ms"] < 80
    assert row["in_flight_mean"] == pytest.approx(10, rel=0.05)  # Little: iterations, their pauses too
    assert row["rps"] == pytest.approx(2 * 10 * 1000 / row["iteration_mean_ms"], rel=0.1)


@pytest.mark.long
def test_what_the_script_says_of_its_own_load_is_not_used_and_that_is_said(two):
    said = " ".join(two.manifest["host_warnings"])
    assert "options.vus, options.thresholds" in said
    assert two.records[0]["cell"]["vus"] == 10


@pytest.mark.long
def test_the_run_has_a_copy_of_the_script_and_of_all_that_it_reads(two):
    files = dict(two.manifest["campaign"]["own"]["files"])
    assert set(files) == {"my.js", "lib/paths.js", "other.txt"}
    for name, digest in files.items():
        assert hashlib.sha256((two.folder / "script" / "files" / name).read_bytes()).hexdigest() == digest
    assert two.records[0]["measurement"]["argv"][-1].endswith("/script/own.js")


@pytest.mark.long
def test_a_script_is_never_held_against_the_probe(two):
    row = two.trials.iloc[0]
    assert 20 <= row["probe_p50_ms"] < 24
    assert "to the probe" not in row["verdict_reason"]


@pytest.mark.long
def test_an_open_load_of_a_script_offers_iterations(root):
    text = TWO.replace("./lib/paths.js", "./paths.js")
    (root / "paths.js").write_text("export const one = '/one';\n")
    (root / "other.txt").write_text("/chunks")
    with tiny(20) as server:
        made = run(root, "--url", server.url, "--script", script(root, text), "--rate", "30", "--rate", "60",
                   "--duration", "2", "--probe-path", "/chunks", *BRIEF)  # fmt: skip
    trials = made.trials.set_index("rate_rps")
    quiet = trials[real_lab.undisturbed(trials)]
    assert set(quiet["verdict"]) == {"offered"}
    assert trials["requests"].loc[30] == pytest.approx(120, abs=4)
    assert trials["requests"].loc[60] == pytest.approx(240, abs=4)
    assert all(f"{rate:g} iterations/s were sustained" in reason for rate, reason in quiet["verdict_reason"].items())
    assert (trials["probe_failed"] == 0).all()  # chunked answers
    assert trials["probe_p50_ms"].max() < 22


@pytest.mark.long
def test_close_mode_is_proven_by_the_kernel_and_by_the_server(root):
    with tiny(1) as server:
        made = run(root, "--url", server.url, "--close", *CLOSED)
        assert server.seen["connections"] >= 200
    assert made.done.returncode == 0, made.done.stderr
    check = made.check("7 close")
    assert check["ok"]
    assert int(re.findall(r"accepted (\d+)", check["detail"])[0]) >= 200
    assert made.trials["mode"].tolist() == ["close"]


# --- verdicts ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_server_on_the_generators_cpus_has_no_verdict_and_the_remedy_is_said(root):
    every = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with tiny(5, cpus=every) as server:
        made = run(root, "--url", server.url, *CLOSED)
    row = made.trials.iloc[0]
    assert row["verdict"] == "inconclusive"
    assert "shared a CPU" in row["verdict_reason"]
    assert not made.manifest["placement"]["disjoint"]
    assert "taskset -c 0" in made.done.stderr


@pytest.mark.long
def test_a_server_whose_process_is_not_known_has_no_verdict_and_a_report(root):
    with tiny(5, CALL_ME="docker-proxy") as server:
        made = run(root, "--url", server.url, *CLOSED)
    assert made.done.returncode == 0, made.done.stderr
    row = made.trials.iloc[0]
    assert row["verdict"] == "inconclusive"
    assert "the server's CPU use is not known" in row["verdict_reason"]
    assert pd.isna(row["server_cpu_mean_pct"])
    assert "docker-proxy listens there for another program" in made.done.stderr
    assert real_lab.bench(root, "report", "latest").returncode == 0


@pytest.mark.long
def test_the_script_s_own_checks_count_as_errors(root):
    text = """import http from 'k6/http';
import { check } from 'k6';
export default function () { check(http.get(__ENV.BASE_URL), { odd: () => Math.random() > 0.3 }); }
"""
    with tiny(5) as server:
        made = run(root, "--url", server.url, "--script", script(root, text), "--rate", "50", "--duration", "2", *BRIEF)
    row = made.trials[real_lab.undisturbed(made.trials)].iloc[0]
    assert row["verdict"] == "inconclusive"
    assert "of the script's checks failed" in row["verdict_reason"]
    assert row["sustained"] == False  # noqa: E712 - a column of numpy's


@pytest.mark.long
def test_an_iteration_that_throws_fails_its_trial(root):
    text = """import http from 'k6/http';
export default function () { http.get(__ENV.BASE_URL); if (__ITER === 3) nope(); }
"""
    with tiny(5) as server:
        made = run(root, "--url", server.url, "--script", script(root, text), *CLOSED)
    assert made.done.returncode == 1
    assert "4 of 200 threw an error" in made.records[0]["error"]  # each of four users once


@pytest.mark.long
def test_a_server_that_dies_under_load_fails_its_trial_and_those_after_it(root):
    with tiny(5, DIE_AFTER="1500") as server:  # the warm-up takes 800 at most
        made = run(root, "--url", server.url, "--vus", "4", "--iterations", "4000", "--repeats", "2")
    assert made.done.returncode == 1
    first, second = (record["error"] for record in made.records)
    assert "the server lived through the load (it ended)" in first
    assert "is not the process of own-api that the run began with" in second


# --- whom it reaches --------------------------------------------------------------------------------------


class Elsewhere:
    """Counts who connects to another address of this machine."""

    def __init__(self):
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.url = f"http://127.0.0.2:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self._listener.accept()[0].close()
                self.connections += 1


STRAY = {
    "another address": "http.get('ELSEWHERE');",
    "a redirection that is followed": "http.get(`${__ENV.BASE_URL}/away?ELSEWHERE`, { redirects: 3 });",
    "a name": "http.get('http://elsewhere.test/');",
}


@pytest.mark.parametrize("how", long_but(["another address"], STRAY))
def test_a_script_reaches_no_other_host(root, how):
    elsewhere = Elsewhere()
    call = STRAY[how].replace("ELSEWHERE", elsewhere.url)
    text = f"import http from 'k6/http';\nexport default function () {{ http.get(__ENV.BASE_URL); {call} }}"
    with tiny(2) as server:
        made = run(root, "--url", server.url, "--script", script(root, text), *CLOSED)
    assert elsewhere.connections == 0
    if how != "a name":  # which has no address here: k6 had nothing to block
        assert made.done.returncode == 1
        assert "were for another host, and blocked" in made.records[0]["error"]
    assert made.records[0]["verdict"] != "offered"
    assert made.trials["failed"].iloc[0] >= 200


@pytest.mark.long
def test_a_redirection_is_an_answer_and_not_followed(root):
    elsewhere = Elsewhere()
    text = (
        "import http from 'k6/http';\n"
        f"export default function () {{ http.get(`${{__ENV.BASE_URL}}/away?{elsewhere.url}`); }}"
    )
    with tiny(2) as server:
        made = run(root, "--url", server.url, "--script", script(root, text), *CLOSED)
    assert made.done.returncode == 0, made.done.stderr
    assert elsewhere.connections == 0
    assert made.trials["requests"].iloc[0] == 200


@pytest.mark.long
def test_a_host_that_one_answers_for_may_be_loaded(root):
    own = [
        each.address
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family == socket.AF_INET and not each.address.startswith("127.")
    ]
    if not own:
        pytest.skip("this machine has no address but loopback")
    with tiny(5, address=own[0]) as server:
        made = run(root, "--url", server.url, "--i-own-this-host", own[0], *CLOSED)
    assert made.done.returncode == 0, made.done.stderr
    assert made.trials["server_cpu_mean_pct"].iloc[0] > 0  # it is this machine's after all


@pytest.mark.long
@pytest.mark.parametrize(("name", "address"), [("localhost", "127.0.0.1"), ("[::1]", "::1")])
def test_a_host_may_be_a_name_or_of_version_6(root, name, address):
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(tiny(5, address=address))
        except AssertionError:
            pytest.skip(f"this machine has no {address}")
        made = run(root, "--url", f"http://{name}:{server.url.rpartition(':')[2]}/x", *CLOSED)
        assert server.seen["hosts"] == [f"{name}:{server.url.rpartition(':')[2]}"]  # of k6 and the probe alike
    assert made.done.returncode == 0, made.done.stderr
    assert made.manifest["campaign"]["own"]["address"] == address
    assert made.trials["server_cpu_mean_pct"].iloc[0] > 0


# --- going on ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_interrupted_run_goes_on_with_the_same_process_only(root):
    arguments = ["--vus", "4", "--iterations", "800", "--repeats", "3"]
    text = "import http from 'k6/http';\nexport default function () { http.get(__ENV.BASE_URL); }"
    port = free_port()
    with tiny(5, port=port) as server:
        runner = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "runner.cli",
                "run",
                "--url",
                server.url,
                "--script",
                script(root, text),
                *arguments,
            ],
            env={**os.environ, "BENCH_ROOT": str(root)},
            cwd=root,
        )
        deadline = time.monotonic() + 60
        while not list(root.glob("data/runs/*/trials/*/trial.json")) and time.monotonic() < deadline:
            time.sleep(0.1)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(timeout=30) == 130
        folder = next(root.glob("data/runs/*"))
        copy = root / "data" / "runs" / f"{folder.name}-copy"
        shutil.copytree(folder, copy)
        (root / "my.js").unlink()  # the run has its own
        again = real_lab.bench(root, "run", "--resume", folder.name)
        assert again.returncode == 0, again.stderr
    assert (pd.read_parquet(folder / "tables" / "trials.parquet")["status"] == "sealed").sum() == 3
    assert "was not begun in this lab" in real_lab.bench(root, "run", "--resume", str(copy)).stderr
    begun = root / "data" / ".begun"
    shutil.copy(begun / folder.name, begun / copy.name)
    with tiny(5, port=port):
        refused = real_lab.bench(root, "run", "--resume", str(copy))
    assert refused.returncode == 2
    assert "is not the process that it began with" in refused.stderr
    (copy / "script" / "files" / "my.js").write_text("export default function () {}")
    assert "is not the script that it began with" in real_lab.bench(root, "run", "--resume", str(copy)).stderr


# --- two servers against each other -----------------------------------------------------------------------


def test_two_urls_are_loaded_in_turn_and_a_known_ratio_comes_back(root):
    """Servers that take 20 and 30 ms, ten users: by Little's law 500 and 333 requests/s."""
    with tiny(20) as quick, tiny(30, port=free_port() + 1) as slow:
        urls = ("--url", f"{quick.url}/x", "--url", f"{slow.url}/x")
        made = run(root, *urls, "--vus", "10", "--iterations", "600", "--repeats", "2")
        seen = {"url-a": quick.seen["requests"], "url-b": slow.seen["requests"]}
        assert quick.process.poll() is None and slow.process.poll() is None
    assert made.done.returncode == 0, made.done.stderr
    trials = made.trials
    assert sorted(trials["server"]) == ["url-a", "url-a", "url-b", "url-b"]
    assert (trials["session"].value_counts() == 2).all()
    assert (trials["requests"] == 600).all()
    by_server = trials.groupby("server")
    for name, rows in by_server:
        assert rows["latency_p50_ms"].median() == pytest.approx({"url-a": 20, "url-b": 30}[name], rel=0.2)
        assert seen[name] > rows["requests"].sum()  # the probe, the warm-up and the lab's questions besides
    ratio = by_server["rps"].median()["url-a"] / by_server["rps"].median()["url-b"]
    assert ratio == pytest.approx(1.5, rel=0.15)
