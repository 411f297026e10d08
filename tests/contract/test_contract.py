"""Tests of the lab's own servers.

Each server must keep the contract, and must start and end as the contract demands. All servers must
send the same bytes for the same request.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import real_lab
from contract_faulty_server import NONCE
from marking import long_but
from own_api import free_port, wait_for

from runner.contract import check_contract
from runner.contract.client import Target
from runner.contract.experiments import CASES, experiment_body
from runner.contract.messages import request
from runner.measure.tools import build
from runner.model import Server
from runner.planning.catalog import load_server, server_names

pytestmark = pytest.mark.timed

Built = tuple[Server, list[str]]
"""A server of the lab and the command that runs it."""
WHOLE_CHECK_S = 30
"""How long the check of the whole contract may take, in seconds.

This is twice the time that is allowed on an idle machine, because other tests may run at the same
time.
"""


def failed(checks: list) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in checks if not check.ok]


def build_where_missing(name: str) -> Built:
    """Return a server of the lab, built if necessary, and the command that runs it.

    Skip the test if a program that is needed to build or run the server is missing.
    """
    server = load_server(name)
    artifact = server.folder / (server.artifact or "server.sh")
    needs = server.run_needs + (() if artifact.exists() else server.build_needs)
    missing = [tool for tool in needs if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}")
    if not artifact.exists():
        build(server)
    return server, [word.replace("{artifact}", str(artifact)) for word in server.run_command]


@pytest.fixture(params=long_but(["axum", "gin"], server_names()))
def built_server(request: pytest.FixtureRequest) -> Built:
    return build_where_missing(request.param)


@contextmanager
def started(
    server: Server, command: list[str], scratch: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a server until the context ends, and yield its process and its port."""
    port = free_port()
    env = {
        "PATH": os.environ["PATH"],
        "ADDR": f"127.0.0.1:{port}",
        "LAB_NONCE": NONCE,
        "TMPDIR": str(scratch),
    }
    with real_lab.process(*command, cwd=server.folder, env=env, stderr=subprocess.PIPE) as process:
        wait_for(("127.0.0.1", port))
        yield process, port


def test_server_keeps_the_contract(built_server: Built, tmp_path: Path) -> None:
    server, command = built_server
    with started(server, command, tmp_path) as (_, port):
        began = time.monotonic()
        checks = check_contract("127.0.0.1", port, server, NONCE)
        assert failed([check for check in checks if check.name not in server.deviations]) == []
        assert {check.name for check in checks} >= set(server.deviations)
        assert len(checks) == len({check.name for check in checks})
        assert time.monotonic() - began < WHOLE_CHECK_S


def asked_of_all() -> list[tuple[str, str, bytes | None]]:
    # Bodies are left out if servers may answer them with different bytes: error messages of JSON
    # parsers differ, Go escapes some characters (<, >, & and U+2028), and Go writes -0.0 as -0.
    worded = (
        "characters",
        "101 variants",
        "variants empty",
        "percentage of -0.01",
        "100.01",
        "sum of",
    )
    escaped = ("control characters", "U+007F", "escaped letters", "U+0000", "-0.0")
    plain = [
        case.body
        for case in CASES
        if case.expected == "accepted" and not any(map(case.name.count, escaped))
    ]
    plain += [case.body for case in CASES if case.field and any(map(case.name.count, worded))]
    without_body = (
        ("GET", "/count"),
        ("GET", "/devices"),
        ("GET", "/no-such-path"),
        ("PUT", "/count"),
    )
    too_large = experiment_body().ljust(64 * 1024 + 1)
    return [(*each, None) for each in without_body] + [
        ("POST", "/experiments", body) for body in (too_large, *plain)
    ]


@pytest.mark.long
def test_servers_answer_the_same_bytes(tmp_path: Path) -> None:
    asked = asked_of_all()
    bodies = {}
    for name in server_names():
        if "experiments" in load_server(name).implements:
            server, command = build_where_missing(name)
            with started(server, command, tmp_path) as (_, port):
                bodies[name] = [
                    Target("127.0.0.1", port).fetch(request(*each)).body for each in asked
                ]
    first = next(iter(bodies.values()))
    assert len(bodies) > 1
    for name, answered in bodies.items():
        assert [
            each for each in zip(asked, answered, first, strict=True) if each[1] != each[2]
        ] == [], name


def test_sigterm_ends_the_server_with_open_connections(built_server: Built, tmp_path: Path) -> None:
    server, command = built_server
    with started(server, command, tmp_path) as (process, port):
        idle = socket.create_connection(("127.0.0.1", port))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: lab\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        in_flight = socket.create_connection(("127.0.0.1", port))
        in_flight.sendall(
            b"POST /experiments HTTP/1.1\r\nHost: lab\r\nContent-Length: 100\r\n\r\n{"
        )
        time.sleep(0.1)
        began = time.monotonic()
        process.terminate()
        code = process.wait(3)
        idle.close()
        in_flight.close()
        assert (code, time.monotonic() - began < 2) == (0, True)


def refused(built_server: Built, scratch: Path, **address: str) -> tuple[int, str]:
    """Start a server with an address that it cannot use, and return its exit code and message."""
    server, command = built_server
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(scratch), **address}
    done = subprocess.run(
        command, check=False, cwd=server.folder, env=env, capture_output=True, text=True, timeout=5
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "address", [None, "", "8080", "localhost:8080", "127.0.0.1:notaport", "127.0.0.1:1;"]
)
def test_wrong_address_is_one_sentence(
    built_server: Built, address: str | None, tmp_path: Path
) -> None:
    code, said = refused(built_server, tmp_path, **({} if address is None else {"ADDR": address}))
    assert (code, said[:5], said.count("\n")) == (2, "ADDR ", 1)


def test_port_in_use_exits_1(built_server: Built, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = refused(built_server, tmp_path, ADDR=address)
    assert code == 1 and address in said


def test_silent_server_fails_every_check() -> None:
    with socket.socket() as reserved:
        # The port is reserved, but no program listens on it. So the kernel refuses connections.
        reserved.bind(("127.0.0.1", 0))
        checks = check_contract("127.0.0.1", reserved.getsockname()[1], load_server("gin"), NONCE)
    assert checks and [check.name for check in checks if check.ok] == []
