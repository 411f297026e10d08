"""Tests of `bench run` on a user's API, also with the commands in docs/your-api.md.

The measured numbers must show the known behaviour of a server, and no other server may get
requests.
"""

import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import fake_lab
import pandas as pd
import psutil
import pytest
import real_lab
from marking import long_but
from own_api import CLOSED, free_port, held_group, run, tiny, wait_for

from runner.measure.tools import build
from runner.planning.catalog import load_server

pytestmark = [real_lab.needs("k6"), real_lab.needs_two_cpus]
# An open load of 1,500 requests. The probe sends 1 % as many, and these 15 requests are enough for
# a median.
OPEN = ("--rate", "300", "--duration", "5")


@pytest.mark.load
@pytest.mark.long
def test_a_known_delay_comes_back_within_a_millisecond(root):
    """The reference server delays each answer by 20 ms, exact to 0.2 ms.

    The medians of k6 and of the probe must agree with this delay within a millisecond.
    """
    reference = load_server("reference")
    port = free_port()
    build(reference)
    env = {"ADDR": f"127.0.0.1:{port}", "LAB_NONCE": "mine", "REFERENCE_SERVICE_MS": "20"}
    with real_lab.process(reference.folder / str(reference.artifact), cpus="0", env=env):
        wait_for(("127.0.0.1", port))
        made = run(root, *OPEN, url=f"http://{env['ADDR']}/count")
    assert made.trials.loc[0, ["latency_p50_ms", "probe_p50_ms"]].to_list() == pytest.approx(
        [20, 20], abs=1
    )


@pytest.mark.load
def test_plain_gets_have_counts_cpu_and_a_verdict(root):
    """A Python server gets 300 requests/s and answers each after 20 ms.

    The run must contain the counts of requests, the server's CPU use, and a verdict.
    """
    with tiny(20) as server:
        made = run(root, *OPEN, url=f"{server.url}/chunks")
        assert server.process.poll() is None, "the lab ended a server that it did not start"
        seen = server.seen
    row = made.trials.iloc[0]
    assert row["verdict"] == "offered" and "300 requests/s were sustained" in row["verdict_reason"]
    assert row["requests"] == pytest.approx(1500, abs=2)
    # The server also counts the requests of the warm-up, and the lab's first requests.
    assert seen["requests"] > row["requests"] + row["probe_requests"]
    assert row["probe_requests"] == pytest.approx(15, abs=1) and row["probe_failed"] == 0
    assert 0 < row["server_cpu_mean_pct"] < 80
    assert row["server_rss_peak_bytes"] > 5e6
    manifest = made.manifest
    assert manifest["engine"] == "attached"
    assert manifest["placement"]["server"] == [0] and 0 not in manifest["placement"]["generator"]
    assert made.check("5 ")["detail"].startswith("not checked")
    assert any("was already running" in said for said in manifest["host_warnings"])


@pytest.mark.load
def test_a_quota_from_elsewhere_is_the_limit_and_is_named(root):
    """The verdict names a CPU quota that the lab did not set, if the server needs more CPU.

    A parent of the server's control group limits the server, which needs a whole core, to half a
    core. The measured throttling is compared with the kernel's counters of the parent group.
    """
    with held_group(0.5) as held, tiny(0, BURN_MS="2") as server:
        held.join(server.process.pid)
        before = held.throttled
        made = run(root, "--vus", "4", "--iterations", "800", url=f"{server.url}/x")
        rose = [after - then for after, then in zip(held.throttled, before, strict=True)]
    assert not held.folder.exists()
    periods, throttled_periods, throttled_s = rose
    assert throttled_periods > 0.5 * periods, "the quota held nothing back: this test shows nothing"
    row = made.trials.iloc[0]
    record = made.records[0]
    assert record["measurement"]["quota"] == {"cores": 0.5, "known": True, "shared": False}
    assert row["server_quota_cores"] == 0.5 and row["share"] == 1
    assert row["server_cpu_mean_pct"] == pytest.approx(50, abs=5)
    # The group's counters cover the warm-up and the load. A large part of the throttled time is in
    # the load, because the load lasts longer than the warm-up.
    seen_s = row["server_throttled_pct"] / 100 * row["duration_s"]
    assert 0.4 * throttled_s < seen_s <= throttled_s + 0.05
    samples = made.table("resources")
    sampled_s = samples.loc[samples["subject"] == "server", "throttled_ms"].sum() / 1000
    assert seen_s - 0.05 <= sampled_s <= throttled_s + 0.05
    assert row["verdict"] == "server-bound", row["verdict_reason"]
    assert "of its 0.5 of a core (a quota that is not the lab's)" in row["verdict_reason"]
    assert row["latency_p50_ms"] > 0, "response times are the server's own"
    said = (
        f"The server at {server.url}/x may use only 0.5 of a core, because of a CPU quota that the "
        "lab did not set."
    )
    assert made.done.stderr.replace("\n", " ").count("may use only 0.5 of a core") == 1
    assert said in made.manifest["host_warnings"]


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


def two(root, *arguments, path, other):
    """Run a script that reads other files.

    Each of the script's iterations is a request of 20 ms, a pause of 30 ms, and another request of
    20 ms.
    """
    (root / "lib").mkdir()
    (root / "lib" / "paths.js").write_text("export const one = '/one';\n")
    (root / "other.txt").write_text(f"{other}\n")
    with tiny(20) as server:
        return run(root, *arguments, url=f"{server.url}{path}", script=TWO)


@pytest.mark.load
@pytest.mark.long
def test_a_script_of_two_requests_and_what_it_reads(root):
    made = two(root, "--vus", "10", "--iterations", "200", path="/base/", other="/two")
    row = made.trials.iloc[0]
    record = made.records[0]
    assert (row["iterations"], row["requests"]) == (200, 400)
    assert 20 <= row["latency_p50_ms"] < 24
    # The probe sends no requests, because its requests would be under way for more than 1 % of the
    # time. Their times would not be compared with the load's times anyway, because the load is a
    # script.
    assert row["probe_hz"] == 0 and "no second witness" in row["verdict_reason"]
    assert 70 <= row["iteration_mean_ms"] < 80
    # Each of the ten users always has an iteration in flight, because pauses belong to iterations.
    assert row["in_flight_mean"] == pytest.approx(10, rel=0.05)
    assert row["rps"] == pytest.approx(2 * 10 * 1000 / row["iteration_mean_ms"], rel=0.1)
    # The options in the script that describe a load are not used, and a warning says so.
    assert "options.vus, options.thresholds" in " ".join(made.manifest["host_warnings"])
    assert record["cell"]["vus"] == 10
    # The run has a copy of the script and of all files that it reads.
    files = dict(made.manifest["campaign"]["own"]["files"])
    assert set(files) == {"my.js", "lib/paths.js", "other.txt"}
    for name, digest in files.items():
        assert (
            hashlib.sha256((made.folder / "script" / "files" / name).read_bytes()).hexdigest()
            == digest
        )
    assert record["measurement"]["argv"][-1].endswith("/script/own.js")


@pytest.mark.load
@pytest.mark.long
def test_an_open_load_of_a_script_offers_iterations(root):
    rates = ("--rate", "30", "--rate", "60", "--duration", "2", "--probe-path", "/chunks")
    made = two(root, *rates, path="", other="/chunks")
    trials = made.trials.set_index("rate_rps")
    quiet = trials[real_lab.undisturbed(trials)]
    assert set(quiet["verdict"]) == {"offered"}
    assert trials["requests"].loc[[30, 60]].to_list() == pytest.approx([120, 240], abs=4)
    assert all(
        f"{rate:g} iterations/s were sustained" in reason
        for rate, reason in quiet["verdict_reason"].items()
    )
    assert (trials["probe_hz"] == 0).all()


@pytest.mark.timed
@pytest.mark.long
def test_a_server_on_the_generators_cpus_has_no_verdict(root):
    """If the server may use the generator's CPUs, the verdict is inconclusive.

    The run prints a command that keeps the server on one CPU.
    """
    with tiny(5, cpus=",".join(map(str, sorted(os.sched_getaffinity(0))))) as server:
        made = run(root, *CLOSED, url=server.url, code=None)
    row = made.trials.iloc[0]
    assert row["verdict"] == "inconclusive" and "shared a CPU" in row["verdict_reason"]
    assert not made.manifest["placement"]["disjoint"]
    assert "may run on CPU 0" in made.done.stderr and "taskset -c 0" in made.done.stderr


@pytest.mark.timed
@pytest.mark.long
def test_an_unknown_server_process_has_no_verdict_but_a_report(root):
    with tiny(5, CALL_ME="docker-proxy") as server:
        made = run(root, *CLOSED, url=server.url)
    row = made.trials.iloc[0]
    assert (
        row["verdict"] == "inconclusive"
        and "the server's CPU use is not known" in row["verdict_reason"]
    )
    assert pd.isna(row["server_cpu_mean_pct"])
    assert (
        "docker-proxy listens there and forwards connections to another program" in made.done.stderr
    )
    real_lab.bench(root, "report", "latest", code=0)


@pytest.mark.timed
@pytest.mark.long
def test_the_script_s_own_checks_count_as_errors(root):
    text = """import http from 'k6/http';
import { check } from 'k6';
export default function () { check(http.get(__ENV.BASE_URL), { odd: () => Math.random() > 0.3 }); }
"""
    with tiny(5) as server:
        made = run(root, "--rate", "50", "--duration", "2", url=server.url, script=text, code=None)
    row = made.trials[real_lab.undisturbed(made.trials)].iloc[0]
    assert (
        row["verdict"] == "inconclusive"
        and "of the script's checks failed" in row["verdict_reason"]
    )
    assert row["sustained"] == False  # noqa: E712 - a column of numpy's


def calling(*calls):
    """Return a script whose iterations send a GET to the server, and then execute `calls`."""
    return (
        f"import http from 'k6/http';\nexport default function () {{ http.get(__ENV.BASE_URL); "
        f"{' '.join(calls)} }}"
    )


@pytest.mark.timed
@pytest.mark.long
def test_an_iteration_that_throws_fails_its_trial(root):
    with tiny(5) as server:
        made = run(
            root, *CLOSED, url=server.url, script=calling("if (__ITER === 3) nope();"), code=1
        )
    assert (
        "4 of 200 iterations threw an error" in made.records[0]["error"]
    )  # each of the four users throws an error once


@pytest.mark.timed
@pytest.mark.long
def test_a_server_that_dies_fails_its_trial_and_later_ones(root):
    with tiny(5, DIE_AFTER="1500") as server:  # the warm-up sends at most 800 requests
        made = run(
            root, "--vus", "4", "--iterations", "4000", "--repeats", "2", url=server.url, code=1
        )
    first, second = (record["error"] for record in made.records)
    assert "the server lived through the load (the server ended)" in first
    assert "is no longer the one with which the run began" in second


STRAY = {
    "another address": "http.get('ELSEWHERE');",
    "a redirection that is followed": (
        "http.get(`${__ENV.BASE_URL}/away?ELSEWHERE`, { redirects: 3 });"
    ),
    "a redirection": "http.get(`${__ENV.BASE_URL}/away?ELSEWHERE`);",
    "a name": "http.get('http://elsewhere.test/');",
}


@pytest.mark.timed
@pytest.mark.parametrize("how", long_but(["another address"], STRAY))
def test_a_script_reaches_no_other_host(root, how):
    with tiny(2) as server, socket.create_server(("127.0.0.2", 0)) as elsewhere:
        text = calling(
            STRAY[how].replace("ELSEWHERE", f"http://127.0.0.2:{elsewhere.getsockname()[1]}/")
        )
        made = run(root, "--vus", "4", "--iterations", "40", url=server.url, script=text, code=None)
        assert select.select([elsewhere], [], [], 0)[0] == [], "somebody connected"
    if how == "a redirection":  # k6 counts it as a successful answer, and does not follow it
        assert made.done.returncode == 0, made.done.stderr
        assert made.trials["requests"].iloc[0] == 80
        return
    assert made.done.returncode == 1
    assert "requests went to another host or port, and were blocked" in made.records[0]["error"]
    assert made.records[0]["verdict"] != "offered"
    assert made.trials["failed"].iloc[0] >= 40


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.parametrize("host", ["localhost", "[::1]", "one that the user answers for"])
def test_a_host_may_be_a_name_or_of_ip_version_6(root, host):
    address = {"localhost": "127.0.0.1", "[::1]": "::1"}.get(host)
    name = host
    answered_for = ()
    if address is None:
        name = address = next(iter(real_lab.other_addresses()), None)
        answered_for = ("--i-own-this-host", address)
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(tiny(5, address=address))
        except (AssertionError, TypeError):
            pytest.skip(f"this machine has no such address: {address}")
        there = f"{name}:{server.url.rpartition(':')[2]}"
        made = run(root, *CLOSED, "--close", *answered_for, url=f"http://{there}/x")
        seen = server.seen
    assert seen["hosts"] == [there]  # k6 and the probe sent the same Host header
    assert made.manifest["campaign"]["own"]["address"] == address
    # The CPU time is known, because the host is this machine under another name.
    assert made.trials["server_cpu_mean_pct"].iloc[0] > 0
    # The kernel and the server both count the accepted connections. Both counts prove that each
    # request opened a connection.
    assert made.trials["mode"].to_list() == ["close"]
    proven = made.check("7 close")
    assert proven["ok"] and int(re.findall(r"accepted (\d+)", proven["detail"])[0]) >= 200
    assert seen["connections"] >= 200


@pytest.mark.timed
@pytest.mark.long
def test_an_interrupted_run_goes_on_with_the_same_process_only(root):
    port = free_port()
    script = root / "my.js"
    script.write_text(calling())
    load = ["--script", str(script), "--vus", "4", "--iterations", "800", "--repeats", "3"]
    with tiny(5, port=port) as server:
        runner = real_lab.start(root, "run", "--url", server.url, *load)
        fake_lab.wait_for(lambda: list(root.glob("data/runs/*/trials/*/trial.json")), 60)
        runner.send_signal(signal.SIGINT)
        real_lab.ended(runner, 130)
        folder = next(root.glob("data/runs/*"))
        copy = shutil.copytree(folder, folder.with_name(f"{folder.name}-copy"))
        script.unlink()  # the run has its own copy
        real_lab.bench(root, "run", "--resume", folder.name, code=0)
    assert (pd.read_parquet(folder / "tables" / "trials.parquet")["status"] == "sealed").sum() == 3

    def refused():
        return real_lab.bench(root, "run", "--resume", str(copy), code=2).stderr

    assert "was begun elsewhere" in refused()
    shutil.copy(root / "data" / ".begun" / folder.name, root / "data" / ".begun" / copy.name)
    with tiny(5, port=port):
        assert "is not the process that was loaded" in refused()
    (copy / "script" / "files" / "my.js").write_text("export default function () {}")
    assert "has changed since the run began" in refused()


@pytest.mark.load
def test_two_urls_are_loaded_in_turn_with_the_known_ratio(root):
    """If ten users load servers that answer after 20 ms and 30 ms, the rates have a ratio of 1.5.

    By Little's law, the rates are 500 and 333 requests/s.
    """
    with tiny(20) as quick, tiny(30, port=free_port() + 1) as slow:
        urls = ("--url", f"{quick.url}/x", "--url", f"{slow.url}/x")
        made = run(root, *urls, "--vus", "10", "--iterations", "600", "--repeats", "2")
        seen = {"url-a": quick.seen["requests"], "url-b": slow.seen["requests"]}
        assert quick.process.poll() is None and slow.process.poll() is None
    trials = made.trials
    assert sorted(trials["server"]) == ["url-a", "url-a", "url-b", "url-b"]
    assert (trials["session"].value_counts() == 2).all()
    assert (trials["requests"] == 100 * trials["slices_kept"]).all()
    by_server = trials.groupby("server")
    medians = by_server[["latency_p50_ms", "rps"]].median()
    assert medians["latency_p50_ms"].to_dict() == pytest.approx({"url-a": 20, "url-b": 30}, rel=0.2)
    # The servers also count the requests of the probe and of the warm-up.
    assert (pd.Series(seen) > by_server["requests"].sum()).all()
    assert medians["rps"]["url-a"] / medians["rps"]["url-b"] == pytest.approx(1.5, rel=0.15)


def session_of(pid):
    with contextlib.suppress(ProcessLookupError):  # the process has just ended
        return os.getsid(pid)


@pytest.fixture
def documented(root):
    """Return the blocks of commands in docs/your-api.md, and a function that runs commands.

    The function replaces port 9000 by a free port, and changes nothing else in the commands.
    """
    shutil.copytree(
        real_lab.REPOSITORY / "examples", root / "examples", ignore=shutil.ignore_patterns("build")
    )
    (root / ".venv").symlink_to(real_lab.REPOSITORY / ".venv")
    blocks = re.findall(
        r"```sh\n(.*?)```", (real_lab.REPOSITORY / "docs" / "your-api.md").read_text(), re.S
    )

    def go(commands):
        """Run commands; return their output, and the trials of all runs that exist afterwards."""
        command = ["bash", "-c", "set -eu\n" + commands.replace("9000", str(free_port()))]
        user = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env = user | {"BENCH_ROOT": str(root), "COLUMNS": "200"}
        said = root / "said.txt"
        with said.open("w") as out:
            shell = subprocess.Popen(
                command, cwd=root, env=env, stdout=out, stderr=out, start_new_session=True
            )
        try:
            code = shell.wait(timeout=280)
            left = [each for each in psutil.process_iter() if session_of(each.pid) == shell.pid]
            # A process that has just ended may not have been reaped yet.
            left = psutil.wait_procs(left, timeout=5)[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        assert (code, left) == (0, []), said.read_text()
        tables = sorted(root.glob("data/runs/*/tables/trials.parquet"))
        return said.read_text(), [real_lab.standing(pd.read_parquet(path)) for path in tables]

    return blocks, go


def assert_offered(trials):
    quiet = trials[real_lab.undisturbed(trials)]
    assert set(quiet["verdict"]) == {"offered"}, list(quiet["verdict_reason"])


def of_20_ms(trials):
    """Check that the verdicts are `offered`, and that the median response time is 20 to 22 ms."""
    assert_offered(trials)
    assert 20 <= trials["latency_p50_ms"].median() < 22


needs_go = real_lab.needs("go")
needs_docker = real_lab.needs_docker()


@pytest.mark.load
@pytest.mark.long
@needs_go
def test_the_documented_five_minutes(root, documented):
    blocks, go = documented
    said, (scripted, plain) = go("".join(blocks[:3]))
    of_20_ms(scripted)
    assert scripted["rps"].to_numpy() == pytest.approx(100, rel=0.02)
    assert set(plain["verdict"]) == {"inconclusive"}
    assert plain.loc[real_lab.undisturbed(plain), "verdict_reason"].str.contains("wait alike").all()
    assert (plain["rps"] <= 500).all()
    assert "own-api" in Path(re.findall(r"^Report: +(\S+report\.html)", said, re.M)[0]).read_text()


@pytest.mark.timed
@pytest.mark.long
@needs_go
def test_the_documented_script_as_written(root, documented):
    blocks, go = documented
    their = root / "their.js"
    own = (root / "examples" / "plain-api" / "load.js").read_text()
    their.write_text(f"{own}\nexport const options = {{ vus: 2, iterations: 40 }};\n")
    _, (trials,) = go("\n".join([*blocks[0].splitlines(), blocks[5], "kill %1"]))
    assert set(trials["requests"]) == {80}


@pytest.mark.timed
@pytest.mark.long
@needs_go
def test_the_documented_search(root, documented):
    blocks, go = documented
    # Exit code 1 is accepted, because on a busy machine k6 may begin too many iterations, and then
    # a step fails.
    search = blocks[3].replace("--repeats 1", "--repeats 1 || test $? = 1")
    said, (trials,) = go(blocks[0].splitlines()[0] + "\n" + search)
    assert set(trials["objective"]) == {"p95 <= 50 ms"} and len(trials) == 6
    assert "searches of run " in said
    assert "the highest rate that kept the objective, in requests/s" in " ".join(said.split())


@pytest.mark.timed
@pytest.mark.long
@needs_go
@real_lab.needs("openssl")
def test_the_documented_server_over_tls(root, documented):
    blocks, go = documented
    _, (trials,) = go(blocks[0].splitlines()[0] + "\n" + blocks[4])
    assert (trials["failed"] == 0).all() and (trials["latency_p50_ms"] >= 20).all()
    assert set(trials["proto"]) == {"HTTP/2.0"} and set(trials["tls_version"]) == {"tls1.3"}


@pytest.mark.load
@pytest.mark.long
@needs_go
@pytest.mark.docker
@needs_docker
def test_the_documented_folder_with_a_dockerfile(root, documented):
    blocks, go = documented
    go(blocks[0].splitlines()[0])
    said, (trials,) = go(blocks[6])
    assert "Engine: docker" in said
    of_20_ms(trials)
    assert trials["server_cpu_mean_pct"].gt(0).all()
    manifest = json.loads(next(root.glob("data/runs/*/run.json")).read_text())
    assert manifest["images"]["own-api"].startswith("sha256:")


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.docker
@needs_docker
def test_a_container_that_ends_at_once_fails_with_what_it_said(root):
    folder = root / "empty"
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        'FROM scratch\nCOPY server /server\nENTRYPOINT ["/server"]\n'
    )
    real_lab.program(folder / "server", "#!/nowhere\n")
    made = run(root, "--folder", str(folder), *CLOSED, code=1)
    assert re.search(r'before it was ready: "exec /server: no such file', made.records[0]["error"])


@pytest.mark.load
@pytest.mark.long
@needs_go
def test_the_documented_folder_of_the_lab_s_kind(root, documented):
    blocks, go = documented
    _, (trials,) = go(blocks[7])
    assert_offered(trials)
    assert set(trials["language"]) == {"Go"}
    assert trials["requests"].to_numpy() == pytest.approx(2 * 50 * 5, abs=4)
    assert len(blocks) == 8  # each of these blocks is run by one of the tests above
