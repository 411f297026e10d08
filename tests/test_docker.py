"""The docker engine for real: hardened containers, what they are kept from, and nothing of them left.

And what becomes of a trial whose engine or memory goes.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import docker
import psutil
import pytest
import real_lab
from docker.errors import DockerException
from fake_lab import records, wait_for

from runner.digest.reconcile import lived
from runner.measure import docker_engine, machine
from runner.measure.database import serving
from runner.measure.docker_engine import LABEL, RUNNER, connect
from runner.measure.engine import wait_ready
from runner.measure.inspection import inspect
from runner.measure.lab import open_lab
from runner.measure.session import Member, Ready, measure
from runner.measure.subjects import source_of
from runner.measure.tools import build, find_tool
from runner.model import LabError
from runner.planning.catalog import load_campaign, load_server, load_workload
from runner.planning.plan import choose, plan_trials
from runner.running.preparing import place_for, prepare, tools_of


def engine_answers():
    try:
        connect().close()
    except DockerException as error:
        return str(error).splitlines()[0]
    return None


REASON = engine_answers()
pytestmark = [
    pytest.mark.docker,
    pytest.mark.timed,
    pytest.mark.skipif(REASON is not None, reason=f"no Docker engine answers: {REASON}"),
]


NONCE = {"LAB_NONCE": "n0nce"}


def labelled():
    with closing(docker.from_env()) as client:
        return client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)


@contextmanager
def started(root, name):
    """A server in a container that is ready."""
    server, log = load_server(name), root / "log"
    build(server)
    with open_lab("docker") as opened:
        opened.engine.prepare(server)
        with opened.engine.started(server, (0,), NONCE, log) as running:
            wait_ready(name, running, "n0nce", log)
            yield running


@contextmanager
def served(root):
    """PostgreSQL in a container, and the engine."""
    with open_lab("docker") as opened, serving(opened.engine, (0,), root / "database.log") as database:
        yield database, opened.engine


@pytest.fixture
def ours():
    """Return a function that lists the containers that a runner started since: other labs use the same engine.

    The runner is this process where no other is named; None stands for any, where nothing else runs.
    """
    before, this = {container.id for container in labelled()}, os.getpid()

    def started(by=this):
        came = [container for container in labelled() if container.id not in before]
        return [each for each in came if by is None or each.labels[RUNNER].split(":")[-2] == str(by)]

    return started


@pytest.mark.long
@pytest.mark.parametrize("name", ["axum", "gin", "gnet", "nginx"])
def test_every_server_keeps_the_contract_in_a_container(root, name, ours):
    server = load_server(name)
    with open_lab("docker") as opened:
        inspection = inspect(opened.engine, server, machine.place(1, 1))
    assert inspection.error is None
    assert [check for check in inspection.checks if not check.ok] == []
    assert ours() == []


def test_a_container_is_hardened_pinned_and_bound_to_loopback_only(root, ours):
    with started(root, "gin") as running:
        (container,) = ours()
        config = container.attrs["HostConfig"]
        lines = Path(f"/proc/{running.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        listening = [line[1] for line in sockets if line[1].endswith(f":{running.port:04X}") and line[3] == "0A"]
        assert source_of(running.pid).read().cpu_ns > 0
        assert source_of(running.pid).name.startswith("cgroup")
    expected = {"CapEff": "0" * 16, "NoNewPrivs": "1", "Uid": "\t".join(["65534"] * 4), "Cpus_allowed_list": "0"}
    assert expected.items() <= status.items()
    assert status["Seccomp"] == "2"
    assert listening == [f"0100007F:{running.port:04X}"]  # 127.0.0.1, little-endian
    assert config["ReadonlyRootfs"] and config["PidsLimit"] > 0 and config["Memory"] > 0
    assert ours() == []


@pytest.mark.long
def test_the_database_is_as_hardened_fresh_and_gone_with_its_volume(root, ours):
    with served(root) as (database, _):
        (container,) = ours()
        config, volumes = container.attrs["HostConfig"], container.attrs["Mounts"]
        assert database.count("load") == 0
        assert database.password not in json.dumps(container.attrs)
    assert config["ReadonlyRootfs"]
    assert config["CapDrop"] == ["ALL"]
    assert container.attrs["Config"]["User"] == "65534:65534"
    (volume,) = (mount["Name"] for mount in volumes if mount["Type"] == "volume")
    assert ours() == []
    with closing(docker.from_env()) as client:
        assert volume not in [each.name for each in client.volumes.list()]


@pytest.mark.long
def test_the_container_runs_the_very_binary_of_the_process_engine(root, tmp_path):
    server = load_server("axum")
    built = build(server)
    with open_lab("docker") as opened:
        image = opened.engine.prepare(server)
    with closing(docker.from_env()) as client:
        container = client.containers.create(image)
        try:
            stream, _ = container.get_archive("/server")
            subprocess.run(["tar", "-x", "-C", tmp_path], input=b"".join(stream), check=True)
        finally:
            container.remove()
    said = subprocess.run(["sha256sum", tmp_path / "server"], capture_output=True, text=True, check=True).stdout
    assert said.split()[0] == built


CAMPAIGN = """title = "containers"
servers = ["axum"]

[[load]]
workload = "experiments"
vus = 20
iterations = 1000
warmup_s = 0.2

[[load]]
workload = "wrk-matrix"
connections = 10
modes = ["keepalive", "close"]
duration_s = 1
warmup_s = 0.2
"""
INSERTS = """
[[load]]
workload = "devices-insert"
connections = 10
duration_s = 1
pool_sizes = 4
warmup_s = 0.2
"""


@pytest.mark.load
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.skipif(find_tool("wrk") is None or find_tool("k6") is None, reason="k6 or wrk is not installed")
def test_a_campaign_in_containers_passes_every_invariant(root, ours, whole):
    campaign = CAMPAIGN.replace('["axum"]', '["axum", "nginx"]') + INSERTS if whole else CAMPAIGN
    done, trials = real_lab.run(root, campaign)  # `auto` takes docker
    assert done.returncode == 0, done.stderr
    assert trials["status"].tolist() == ["sealed"] * (6 if whole else 3)
    (path,) = root.glob("data/runs/*/run.json")
    manifest = json.loads(path.read_text())
    assert manifest["engine"] == "docker"
    assert set(manifest["images"]) == ({"axum", "nginx"} if whole else {"axum"})
    assert all(image.startswith("sha256:") for image in manifest["images"].values())
    if whole:
        (inserts,) = trials[trials["workload"] == "devices-insert"].to_dict("records")
        assert 0 <= inserts["rows_inserted"] - inserts["inserts"] <= 10
        assert inserts["inserts"] > 0
        assert manifest["database"]["image"].startswith("sha256:")
    assert ours(None) == []


@pytest.mark.long
@pytest.mark.fault("SIGINT or SIGKILL of a runner with containers", "no container is left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_runner_leaves_no_container(root, number, ours):
    longer = INSERTS.replace("duration_s = 1", "duration_s = 60")
    (root / "long.toml").write_text(f'title = "long"\nservers = ["gin"]\n{longer}')
    runner, seen, deadline = real_lab.start(root, "run", "long.toml", "--engine", "docker"), 0, time.monotonic() + 60
    # The database alone is tried first, and may still be going when the trial's comes: two that stay are a trial.
    while seen < 20 and time.monotonic() < deadline:
        seen = seen + 1 if len(ours(runner.pid)) == 2 else 0
        time.sleep(0.1)
    assert seen == 20
    runner.send_signal(number)
    code, _, said = real_lab.ended(runner)
    assert code in (130, -9)
    assert "Traceback" not in said
    wait_for(lambda: not ours(runner.pid) and not list((root / "data" / ".live").iterdir()), 20)


@pytest.mark.long
@pytest.mark.fault("a server dies in its container", "one sentence with its exit code and last words")
def test_a_server_that_dies_in_its_container_is_one_sentence(root, ours):
    with started(root, "axum") as running:
        os.kill(running.pid, signal.SIGKILL)
        wait_for(lambda: running.exit_code() is not None, 10)
        assert running.exit_code() == 137
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{running.port}/health", timeout=1)
    assert ours() == []


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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.fault("a server is asked at another address than loopback", "nothing listens there")
@pytest.mark.parametrize("name", ["axum", "gin", "gnet", "nginx"])
def test_a_server_is_reached_on_loopback_only(root, name):
    with started(root, name) as running:
        assert urllib.request.urlopen(f"http://127.0.0.1:{running.port}/count", timeout=5).status == 200
        for address in other_addresses():
            with pytest.raises(OSError):
                socket.create_connection((address, running.port), timeout=2)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.load
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a Docker engine")
@pytest.mark.skipif(find_tool("wrk") is None, reason="wrk is not installed")
@pytest.mark.fault(
    "the Docker engine is stopped under load", "the trial is interrupted; the run goes on with the engine"
)
def test_the_engine_is_stopped_in_mid_trial(tmp_path, engine):
    real_lab.make(tmp_path)
    load = real_lab.load("wrk-matrix", connections=4, modes=["keepalive"], duration_s=4)
    (tmp_path / "test.toml").write_text(real_lab.campaign(["gin"], load, repeats=2))
    process = engine()
    runner = real_lab.start(tmp_path, "run", "test.toml", "--engine", "docker")
    wait_for(lambda: list(tmp_path.glob("data/runs/*/trials/b02-*/generator.log")), seconds=120)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    code, _, said = real_lab.ended(runner)
    assert code == 1, said
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
