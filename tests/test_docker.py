"""The docker engine for real: hardened containers, counted and pinned, and nothing of them left."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest
import real_lab
from docker.errors import DockerException
from fake_lab import wait_for

from runner.measure.connecting import connect
from runner.measure.database import serving
from runner.measure.docker_engine import LABEL, RUNNER
from runner.measure.engine import Handed, wait_ready
from runner.measure.inspection import inspect
from runner.measure.lab import open_lab
from runner.measure.machine import place
from runner.measure.subjects import source_of
from runner.measure.tools import build, find_tool
from runner.planning.catalog import load_server


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


NONCE = Handed({"LAB_NONCE": "n0nce"})


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
        inspection = inspect(opened.engine, server, place(1, 1))
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
    assert status["CapEff"].strip("0") == ""
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split()[0] == "65534"
    assert status["Cpus_allowed_list"] == "0"
    assert status["Seccomp"] == "2"
    assert listening == [f"0100007F:{running.port:04X}"]  # 127.0.0.1, little-endian
    assert config["ReadonlyRootfs"]
    assert config["PidsLimit"] > 0
    assert config["Memory"] > 0
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
    runner = subprocess.Popen(
        [*real_lab.BENCH, "run", str(root / "long.toml"), "--engine", "docker"],
        env={**os.environ, "BENCH_ROOT": str(root)},
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    # The database alone is tried first, and may still be going when the trial's comes: two that stay are a trial.
    seen = 0
    while seen < 20 and time.monotonic() < deadline:
        seen = seen + 1 if len(ours(runner.pid)) == 2 else 0
        time.sleep(0.1)
    assert seen == 20
    runner.send_signal(number)
    assert runner.stderr is not None
    said = runner.stderr.read()
    assert runner.wait(timeout=30) in (130, -9)
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
