"""Tests with a real Docker engine: containers are hardened, and no container is left behind.

In further tests, the engine ends during a trial, or a server has too little memory.
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest
import real_lab
from docker.errors import DockerException
from fake_lab import records, wait_for
from marking import long_but
from real_lab import campaign, load

from runner.measure import machine
from runner.measure.database import serving
from runner.measure.docker_engine import LABEL, RUNNER
from runner.measure.engine import wait_ready
from runner.measure.inspection import inspect
from runner.measure.lab import open_lab
from runner.measure.subjects import source_of
from runner.measure.tools import build
from runner.planning.catalog import load_server

pytestmark = [pytest.mark.docker, pytest.mark.timed, real_lab.needs_docker()]
needs_wrk = real_lab.needs("wrk")

SERVERS = ["axum", "gin", "gnet", "nginx"]
NONCE = {"LAB_NONCE": "n0nce"}


def labelled():
    with closing(docker.from_env()) as client:
        return client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)


@contextmanager
def started(name, opened, log, given=NONCE):
    """Start a server in a container; yield it once it is ready."""
    server = load_server(name)
    build(server)
    opened.engine.prepare(server)
    with opened.engine.started(server, (0,), given, log) as running:
        wait_ready(name, running, "n0nce", log)
        yield running


@contextmanager
def served(root):
    """Start PostgreSQL in a container; yield the database and the opened lab."""
    with (
        open_lab("docker") as opened,
        serving(opened.engine, (0,), root / "database.log") as database,
    ):
        yield database, opened


@pytest.fixture
def ours():
    """Return a function that lists the containers that a runner has started during this test.

    The function's argument is the pid of the runner: by default the pid of this process, or None
    for any runner. Other containers are left out, because other labs may use the same engine.
    """
    before = {container.id for container in labelled()}
    this = os.getpid()

    def started(by=this):
        came = [container for container in labelled() if container.id not in before]
        return [
            each for each in came if by is None or each.labels[RUNNER].split(":")[-2] == str(by)
        ]

    return started


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_every_server_keeps_the_contract_in_a_container(root, name, ours):
    with open_lab("docker") as opened:
        inspection = inspect(opened.engine, load_server(name), machine.place(1, 1))
    assert (inspection.error, [check for check in inspection.checks if not check.ok]) == (None, [])
    assert ours() == []


@pytest.mark.fault("a server is asked at another address than loopback", "nothing listens there")
@pytest.mark.fault(
    "a server dies in its container", "its exit code is known; nothing of it is left"
)
@pytest.mark.parametrize("name", long_but(["gin"], SERVERS))
def test_a_container_is_hardened_pinned_and_on_loopback_only(root, name, ours):
    with open_lab("docker") as opened, started(name, opened, root / "log") as running:
        (container,) = ours()
        config = container.attrs["HostConfig"]
        lines = Path(f"/proc/{running.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        listening = [
            line[1]
            for line in sockets
            if line[1].endswith(f":{running.port:04X}") and line[3] == "0A"
        ]
        assert source_of(running.pid).read().cpu_ns > 0
        assert source_of(running.pid).name.startswith("cgroup")
        asked = f"http://127.0.0.1:{running.port}/count"
        assert urllib.request.urlopen(asked, timeout=5).status == 200
        for address in real_lab.other_addresses():
            with pytest.raises(OSError):
                socket.create_connection((address, running.port), timeout=2)
        os.kill(running.pid, signal.SIGKILL)
        assert wait_for(running.exit_code, 10) == 137
        with pytest.raises(OSError):
            urllib.request.urlopen(asked, timeout=1)
    expected = {
        "CapEff": "0" * 16,
        "NoNewPrivs": "1",
        "Uid": "\t".join(["65534"] * 4),
        "Cpus_allowed_list": "0",
    }
    assert (expected | {"Seccomp": "2"}).items() <= status.items()
    assert set(listening) == {
        f"0100007F:{running.port:04X}"
    }  # the address 127.0.0.1, little-endian
    assert config["ReadonlyRootfs"] and config["PidsLimit"] > 0 and config["Memory"] > 0
    assert ours() == []


@pytest.mark.long
def test_the_container_runs_the_binary_of_the_process_engine(root):
    server = load_server("axum")
    built = build(server)
    with open_lab("docker") as opened:
        image = opened.engine.prepare(server)
    with closing(docker.from_env()) as client:
        container = client.containers.create(image)
        try:
            packed = io.BytesIO(b"".join(container.get_archive("/server")[0]))
        finally:
            container.remove()
    with tarfile.open(fileobj=packed) as tar:
        assert hashlib.sha256(tar.extractfile("server").read()).hexdigest() == built


LOADS = [
    load("experiments", vus=20, iterations=1000),
    load("wrk-matrix", connections=10, modes=["keepalive", "close"], duration_s=1),
]
INSERTS = load("devices-insert", connections=10, duration_s=1, pool_sizes=4)


@real_lab.needs("k6", "wrk")
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_campaign_in_containers_passes_every_invariant(root, ours, whole):
    servers = {"axum", "nginx"} if whole else {"axum"}
    # Without --engine, the run uses Docker.
    made = real_lab.run(root, campaign(sorted(servers), *LOADS, *[INSERTS] * whole))
    trials = made.trials
    manifest = made.manifest
    assert trials["status"].tolist() == ["sealed"] * (6 if whole else 3)
    assert (manifest["engine"], set(manifest["images"])) == ("docker", servers)
    assert all(image.startswith("sha256:") for image in manifest["images"].values())
    if whole:
        (inserts,) = trials[trials["workload"] == "devices-insert"].to_dict("records")
        assert 0 <= inserts["rows_inserted"] - inserts["inserts"] <= 10 and inserts["inserts"] > 0
        assert manifest["database"]["image"].startswith("sha256:")
    assert ours(None) == []


BESIDE = {
    "copies": {"axum-process": "axum"},
    "processes": ["axum-process"],
    "sessions": {"slices": 2, "slice_s": 0.5},
}


@needs_wrk
def test_a_server_runs_as_a_plain_process_beside_a_container(root, ours):
    """In one session, axum runs in a container, and its copy as a plain process.

    Both run the same binary, but only the trial in the container has an image.
    """
    crowd = load("wrk-matrix", connections=4, modes=["keepalive"])
    asked = campaign(["axum", "axum-process"], crowd, repeats=1, **BESIDE)
    made = real_lab.run(root, asked, "--engine", "docker")
    assert made.trials["status"].tolist() == ["sealed"] * 2
    engines = {each["cell"]["server"]: each["measurement"]["engine"] for each in made.records}
    assert engines == {"axum": "docker", "axum-process": "process"}
    manifest = made.manifest
    assert set(manifest["images"]) == {"axum"}
    assert len(set(manifest["artifacts"].values())) == 1
    image_bytes = dict(zip(made.trials["server"], made.trials["server_image_bytes"], strict=True))
    assert image_bytes["axum"] > 0 and not image_bytes["axum-process"] > 0
    assert ours(None) == []


@pytest.mark.long
@pytest.mark.fault("SIGINT or SIGKILL of a runner with containers", "no container is left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_runner_leaves_no_container(root, number, ours):
    (root / "long.toml").write_text(campaign(["gin"], INSERTS | {"duration_s": 60}))
    runner = real_lab.start(root, "run", "long.toml", "--engine", "docker")
    seen = 0
    deadline = time.monotonic() + 60
    # The trial has begun once two containers (database and server) have existed for 2 s. Two
    # containers that exist for a shorter time may both be databases: the lab tries one database
    # before the trial, and this container may still exist when the trial's database starts.
    while seen < 20 and time.monotonic() < deadline:
        seen = seen + 1 if len(ours(runner.pid)) == 2 else 0
        time.sleep(0.1)
    assert seen == 20
    runner.send_signal(number)
    real_lab.ended(runner, 130 if number == signal.SIGINT else -9)
    wait_for(lambda: not ours(runner.pid) and not list((root / "data" / ".live").iterdir()), 20)


# Commands that must fail in a shell inside PostgreSQL's container. The key of each command says
# what the command tries to do. The test uses PostgreSQL's container, because the containers of
# servers have the same options, but no shell: their images are built FROM scratch.
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
    "a program in a container writes, mounts, takes privileges, other sockets or more memory "
    "and processes than it has",
    "refused by the kernel",
)
def test_a_container_is_kept_from_all_that_it_does_not_need(root, ours):
    with served(root) as (database, _):
        (container,) = ours()
        assert database.count("load") == 0
        assert database.password not in json.dumps(container.attrs)
        (volume,) = (
            mount["Name"] for mount in container.attrs["Mounts"] if mount["Type"] == "volume"
        )

        def inside(command: str) -> int:
            return int(container.exec_run(["sh", "-c", command]).exit_code)

        assert inside("true") == inside("touch /tmp/mine && rm /tmp/mine") == 0
        assert [what for what, command in KEPT_FROM.items() if inside(command) == 0] == []
        # The kernel kills a program that needs more memory than the limit, and refuses to start
        # more processes than the limit.
        assert inside("head -c 3000000000 /dev/zero | tail -c 2900000000 > /dev/null") != 0
        loop = "i=0; while [ $i -lt 1200 ]; do sleep 20 & i=$((i+1)); done"
        forked = container.exec_run(
            ["sh", "-c", f'({loop}) 2> /dev/null; echo "ended with $?, $i"']
        )
        assert forked.output.strip() == b"ended with 2,"  # the shell could not fork
    config = container.attrs["HostConfig"]
    assert (config["ReadonlyRootfs"], config["CapDrop"]) == (True, ["ALL"])
    assert container.attrs["Config"]["User"] == "65534:65534"
    assert ours() == []
    with closing(docker.from_env()) as client:
        assert volume not in [each.name for each in client.volumes.list()]


@pytest.mark.long
@pytest.mark.fault(
    "the database's password is looked for in a container's description", "it is not there"
)
@pytest.mark.parametrize("name", ["axum", "gin"])
def test_the_password_is_in_no_environment(root, ours, name):
    with served(root) as (database, opened):
        given = NONCE | database.handed_to(load_server(name))
        with started(name, opened, root / "log", given) as running:
            described = " ".join(str(container.attrs) for container in ours())
            environment = Path(f"/proc/{running.pid}/environ").read_bytes().decode()
            kind = {"Content-Type": "application/json"}
            url = f"http://127.0.0.1:{running.port}/devices"
            body = b'{"mac":"m","firmware":"f"}'
            assert (
                urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=10).status
                == 201
            )
            assert database.count("f") == 1
    assert database.password not in described + environment
    assert "DATABASE_URL_FILE=/run/lab/" in environment


@pytest.mark.long
@needs_wrk
@pytest.mark.fault(
    "a container's memory is too little for its server",
    "the trial fails: killed because memory ran out",
)
def test_a_server_without_memory_fails_its_trial(root, ours):
    """If a server has too little memory, its trial must fail, no matter how the server fails.

    The server may die at the first connections or later. It may also live, but answer no request
    while the kernel reclaims memory.
    """
    crowd = load("wrk-matrix", connections=1000, modes=["keepalive"], duration_s=2, warmup_s=2)
    small = real_lab.with_changed("runner.measure.docker_engine", "m.MEMORY_BYTES = 6 * 2**20")
    made = real_lab.run(
        root, campaign(["gin"], crowd, repeats=1), "--engine", "docker", program=small, code=1
    )
    said = (
        r"when memory ran out|it used up its memory|exit code 137 before it was ready|"
        r"some request was answered with success \(0 of|"
        r"expected an answer; got none within"
    )
    assert re.search(said, made.records[0]["error"])
    assert ours(None) == []


@pytest.fixture
def engine(monkeypatch):
    """Yield a function that starts a Docker engine for this test only.

    The function returns the engine's process, which the test may end.
    """
    # The folder is not in `tmp_path`, because the path of a socket can have only 107 bytes, and
    # `tmp_path` may be too long for that.
    home = Path(tempfile.mkdtemp(prefix="lab-engine-"))
    engines: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        argv = [
            "dockerd",
            "--data-root",
            home / "data",
            "--exec-root",
            home / "exec",
            "--pidfile",
            home / "pid",
        ]
        argv += [
            "--host",
            f"unix://{home}/sock",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ]
        log = (home / "log").open("ab")
        process = subprocess.Popen(
            list(map(str, argv)), stdout=log, stderr=log, start_new_session=True
        )
        engines.append(process)
        wait_for(lambda: not start.client().close(), 60, DockerException)
        return process

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
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a Docker engine")
@needs_wrk
@pytest.mark.fault(
    "the Docker engine is stopped under load",
    "the trial is interrupted; the run goes on with the engine",
)
def test_the_engine_is_stopped_in_mid_trial(tmp_path, engine):
    real_lab.make(tmp_path)
    wrk = load("wrk-matrix", connections=4, modes=["keepalive"], duration_s=4)
    (tmp_path / "test.toml").write_text(campaign(["gin"], wrk, repeats=2))
    process = engine()
    runner = real_lab.start(tmp_path, "run", "test.toml", "--engine", "docker")
    wait_for(lambda: list(tmp_path.glob("data/runs/*/trials/b02-*/generator.log")), seconds=120)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert (
        "The Docker engine stopped responding: restart it. Then continue with `bench run --resume"
        in real_lab.ended(runner, 1).stderr
    )
    process.wait(60)
    (run,) = tmp_path.glob("data/runs/*")
    assert [record["status"] for _, record in sorted(records(run).items())] == [
        "sealed",
        "interrupted",
    ]
    engine()
    real_lab.bench(tmp_path, "run", "--resume", run.name, code=0)
    assert {record["status"] for record in records(run).values()} == {"sealed"}
    with closing(engine.client()) as client:
        assert client.containers.list(all=True) == []
