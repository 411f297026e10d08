"""What a container is kept from, tried from inside it; and what becomes of a trial whose engine or memory goes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import docker
import psutil
import pytest
import real_lab
import test_docker
from docker.errors import DockerException
from fake_lab import BENCH, records, wait_for
from test_docker import NONCE, REASON, served, started

from runner.digest.reconcile import lived
from runner.measure import docker_engine, machine
from runner.measure.engine import wait_ready
from runner.measure.lab import open_lab
from runner.measure.session import Member, Ready, measure
from runner.measure.tools import build, find_tool
from runner.model import LabError
from runner.planning.catalog import load_campaign, load_server, load_workload
from runner.planning.plan import choose, plan_trials
from runner.running.preparing import place_for, prepare, tools_of

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timed,
    pytest.mark.long,
    pytest.mark.skipif(REASON is not None, reason=f"no Docker engine answers: {REASON}"),
]


ours = test_docker.ours

# Tried in a shell inside PostgreSQL's container, which is made as every server's is: an image FROM scratch has none.
KEPT_FROM = {
    "writing to its programs": "echo x > /etc/passwd",
    "writing beside them": "touch /new",
    "becoming root by a set-uid program": "setpriv --reuid=0 true",
    "mounting": "mount -t tmpfs none /tmp",
    "another host name": "hostname other",
    "a device": "mknod /tmp/disk b 254 0",
    "the kernel's settings": "echo 1 > /proc/sys/vm/drop_caches",
    "the engine's socket": "test -S /var/run/docker.sock || exit 1",
    "another process's memory": "cat /proc/1/environ > /dev/null && cat /proc/1/mem > /dev/null",
    "raw sockets": "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_RAW, 1) or exit 1'",
    "more temporary files than 64 MiB": "head -c 70000000 /dev/zero > /tmp/large",
}


@pytest.mark.fault(
    "a program in a container writes, mounts, takes privileges, other sockets or more memory and processes than it has",
    "refused by the kernel",
)
def test_a_container_is_kept_from_all_that_it_does_not_need(root, ours):
    with served(root):
        (container,) = ours()

        def inside(command: str) -> int:
            return int(container.exec_run(["sh", "-c", command]).exit_code)

        assert inside("true") == 0
        assert inside("touch /tmp/mine && rm /tmp/mine") == 0
        allowed = [what for what, command in KEPT_FROM.items() if inside(command) == 0]
        assert allowed == []
        # Limits: of memory, an allocation beyond it is killed; of processes, no more can be made.
        assert inside("head -c 3000000000 /dev/zero | tail -c 2900000000 > /dev/null") != 0
        loop = "i=0; while [ $i -lt 1200 ]; do sleep 20 & i=$((i+1)); done"
        forked = container.exec_run(["sh", "-c", f'({loop}) 2> /dev/null; echo "ended with $?, $i"'])
        assert forked.output.strip() == b"ended with 2,"  # dash: cannot fork
    assert ours() == []


def other_addresses() -> list[str]:
    """This machine's addresses beside loopback."""
    found = (each for addresses in psutil.net_if_addrs().values() for each in addresses)
    return [each.address for each in found if each.family == socket.AF_INET and not each.address.startswith("127.")]


@pytest.mark.fault("a server is asked at another address than loopback", "nothing listens there")
@pytest.mark.parametrize("name", ["axum", "gin", "gnet", "nginx"])
def test_a_server_is_reached_on_loopback_only(root, name):
    with started(root, name) as running:
        assert urllib.request.urlopen(f"http://127.0.0.1:{running.port}/count", timeout=5).status == 200
        for address in other_addresses():
            with pytest.raises(OSError):
                socket.create_connection((address, running.port), timeout=2)


@pytest.mark.fault("the database's password is looked for in a container's description", "it is not there")
@pytest.mark.parametrize("name", ["axum", "gin"])
def test_the_password_is_in_no_environment(root, ours, name):
    server, log = load_server(name), root / "log"
    build(server)
    with served(root) as (database, engine):
        engine.prepare(server)
        with engine.started(server, (0,), NONCE | database.handed_to(server), log) as running:
            wait_ready(name, running, "n0nce", log)
            described = " ".join(str(container.attrs) for container in ours())
            environment = Path(f"/proc/{running.pid}/environ").read_bytes().decode()
            asked = urllib.request.Request(
                f"http://127.0.0.1:{running.port}/devices",
                b'{"mac":"m","firmware":"f"}',
                {"Content-Type": "application/json"},
            )
            assert urllib.request.urlopen(asked, timeout=10).status == 201
            assert database.count("f") == 1
    assert database.password not in described
    assert database.password not in environment
    assert "DATABASE_URL_FILE=/run/lab/" in environment


@pytest.mark.load
@pytest.mark.skipif(find_tool("wrk") is None, reason="wrk is not installed")
@pytest.mark.fault(
    "a container's memory is too little for its server", "the trial is failed: killed for want of memory"
)
def test_a_server_without_memory_fails_its_trial(root, tmp_path, ours, monkeypatch):
    monkeypatch.setattr(docker_engine, "MEMORY_BYTES", 6 * 2**20)
    server = load_server("gin")
    built = build(server)
    campaign = choose(load_campaign("quick"), ["gin"], 1, 1.0)
    trials = plan_trials(campaign, [server])
    wrk = next(t.cell for t in trials if t.cell.tool == "wrk")
    cell = replace(wrk, connections=1000, warmup_s=2.0, duration_s=2.0, slices=None, share=1.0)
    folder = tmp_path / "trial"
    folder.mkdir()
    with open_lab("docker") as opened:
        image = opened.engine.prepare(server)
        placement, tools = place_for(campaign, trials), tools_of(trials)
        bench = prepare(opened, campaign, [], placement, tools, None, print).bench
        machine.raise_open_files()
        member = Member("trial", Ready(server, image, built), cell, folder)
        found = measure(bench, load_workload(cell.workload), [member], [("trial", 1)], lambda _: None)["trial"]
    # It dies at the first connections or only later, once the load has begun to be measured.
    said = str(found) if isinstance(found, LabError) else lived(found).detail
    assert re.search(r"want of memory|exit code 137 before it was ready", said)
    assert ours() == []


@pytest.fixture
def engine(monkeypatch):
    """A Docker engine for this test, which can be ended and started again."""
    home = Path(tempfile.mkdtemp(prefix="lab-engine-"))  # a socket's path may have 107 bytes
    engines: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        argv = ["dockerd", "--data-root", home / "data", "--exec-root", home / "exec", "--pidfile", home / "pid"]
        argv += ["--host", f"unix://{home}/sock", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        log = (home / "log").open("ab")
        process = subprocess.Popen(list(map(str, argv)), stdout=log, stderr=log, start_new_session=True)
        engines.append(process)
        wait_for(answers, seconds=60)
        return process

    def answers() -> bool:
        with suppress(DockerException):
            start.client().close()
            return True
        return False

    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/sock")
    start.client = lambda: docker.DockerClient(f"unix://{home}/sock")
    yield start
    for process in engines:
        process.terminate()
        process.wait(60)
    for mounted in sorted(Path("/proc/self/mounts").read_text().split(), reverse=True):
        if mounted.startswith(str(home)):
            subprocess.run(["umount", "-l", mounted], check=False)
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.load
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a Docker engine")
@pytest.mark.skipif(find_tool("wrk") is None, reason="wrk is not installed")
@pytest.mark.fault(
    "the Docker engine is stopped under load", "the trial is interrupted; the run goes on with the engine"
)
def test_the_engine_is_stopped_in_mid_trial(tmp_path, engine):
    real_lab.make(tmp_path)
    campaign = tmp_path / "test.toml"
    campaign.write_text(
        'title = "engine"\nservers = ["gin"]\nrepeats = 2\n[[load]]\nworkload = "wrk-matrix"\nconnections = 4\n'
        'modes = ["keepalive"]\nduration_s = 4\nwarmup_s = 0.2\n'
    )
    process = engine()
    env = {**os.environ, "BENCH_ROOT": str(tmp_path), "COLUMNS": "200"}
    argv = [*BENCH, "run", str(campaign), "--engine", "docker"]
    runner = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(tmp_path.glob("data/runs/*/trials/b02-*/generator.log")), seconds=120)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert runner.stderr is not None
    said = runner.stderr.read()
    assert runner.wait(timeout=120) == 1, said
    assert "The Docker engine has gone: start it again. Then `bench run --resume" in said
    assert "Traceback" not in said
    process.wait(60)
    (run,) = tmp_path.glob("data/runs/*")
    before = records(run)
    assert before["b01-gin-wrk-matrix-c4-keepalive"]["status"] == "sealed"
    assert before["b02-gin-wrk-matrix-c4-keepalive"]["status"] == "interrupted"
    engine()
    done = real_lab.bench(tmp_path, "run", "--resume", run.name)
    assert done.returncode == 0, done.stderr
    assert {record["status"] for record in records(run).values()} == {"sealed"}
    with closing(engine.client()) as client:
        assert client.containers.list(all=True) == []
