"""The contract's checks: every server passes them, and every fault is caught by the check that is named for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contract_faulty_server import NONCE, faulty_server

from runner.catalog import load_server
from runner.measure.contract import cases, check_contract, quick_check
from runner.measure.contract.wire import Target, fetch
from runner.model import LabError, Server

SERVERS = Path(__file__).parents[1] / "servers"
ALL = ("health", "count", "fallback", "experiments", "md5", "devices", "stats")

FAULTS = {
    "wrong nonce": "health",
    "wrong name": "health",
    "text instead of JSON": "devices: list",
    "404 as status": "fallback: /no-such-path",
    "count is text": "count: shape",
    "count stands still": "count: consecutive on one connection",
    "count is racy": "count: race-free over connections",
    "health is counted": "count: /health and /stats are not counted",
    "errors are not counted": "count: equals the requests sent",
    "stats counts too much": "stats: requests equals /count",
    "stats lacks pool": "stats: shape",
    "connections counts requests": "stats: connections equals those opened",
    "500 for bad JSON": "experiments: cut off",
    "deep nesting kills the connection": "experiments: 20,000 open brackets",
    "error names no field": "experiments: no variants",
    "variants come back empty": "experiments: the published body",
    "101 variants are accepted": "experiments: 101 variants",
    "201 characters are accepted": "experiments: name of 201 characters",
    "length in bytes": "experiments: name of 200 two-byte characters",
    "NaN is accepted": "experiments: NaN",
    "bool as a number": "experiments: percentage a bool",
    "range is loose": "experiments: percentage of -0.01",
    "sum is loose": "experiments: sum of 100.02",
    "sum has no room for rounding": "experiments: three times 33.33",
    "no limit": "experiments: a body of 64 KiB and 1 byte",
    "md5 of the name alone": "md5: digest",
    "md5 in capitals": "md5: digest",
    "md5 is not validated": "md5: 101 variants",
    "a device is missing": "devices: list",
    "methods are ignored": "method: GET /experiments",
    "never keeps alive": "keep-alive: two requests on one connection",
    "close is ignored": "close: Connection: close closes",
    "close is not announced": "close: Connection: close closes",
    "pipelined requests are lost": "pipelining: three requests at once",
    "chunks are ignored": "chunked body",
    "no 100-continue": "Expect: 100-continue",
    "two lengths": "malformed: two different Content-Length",
    "malformed chunks leave it open": "malformed chunks",
    "smuggling by Content-Length": "smuggling: Content-Length with Transfer-Encoding",
}


def server_record(name: str, folder: Path, implements: tuple[str, ...]) -> Server:
    return Server(name, folder, "any", "any", "realistic", implements, (), (), (), None, (), (), None, "")


def failed(checks: list) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in checks if not check.ok]


def build_where_missing(name: str) -> tuple[Server, list[str]]:
    """Return a server of the lab and its command; skip where its toolchain is absent."""
    server = load_server(name)
    artifact = server.folder / (server.artifact or "server.sh")
    needs = server.run_needs + (() if artifact.exists() else server.build_needs)
    missing = [tool for tool in needs if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}")
    if not artifact.exists():
        subprocess.run(server.build_command, cwd=server.folder, env=os.environ | dict(server.build_env), check=True)
    return server, [word.replace("{artifact}", str(artifact)) for word in server.run_command]


@pytest.fixture(params=["axum", "gin", "nginx"])
def built_server(request: pytest.FixtureRequest) -> tuple[Server, list[str]]:
    return build_where_missing(request.param)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(folder: Path, command: list[str], port: int, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "ADDR": f"127.0.0.1:{port}", "LAB_NONCE": NONCE, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE) as process:
        try:
            wait_until_open(port, process)
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    # By SIGTERM: nginx's workers outlive a master that was killed.
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()


def wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("the server did not open its port")


def test_server_keeps_the_contract(built_server: tuple[Server, list[str]], tmp_path: Path) -> None:
    server, command = built_server
    port = free_port()
    with started(server.folder, command, port, tmp_path):
        began = time.monotonic()
        checks = check_contract("127.0.0.1", port, server, NONCE)
        assert failed(checks) == []
        assert len(checks) == len({check.name for check in checks})
        assert time.monotonic() - began < 5


def test_servers_answer_the_same_bytes(tmp_path: Path) -> None:
    # Left out: texts that only JSON parsers word, and characters that Go escapes (<, >, &, U+2028).
    plain = [case for case in cases.VALID_CASES if "control characters" not in case.name]
    worded = ("characters", "101 variants", "variants empty", "percentage of -0.01", "100.01", "sum of")
    plain += [case for case in cases.INVALID_CASES if any(word in case.name for word in worded)]
    asked: list[tuple[str, str, bytes | None]] = [
        ("GET", "/count", None),
        ("GET", "/devices", None),
        ("GET", "/no-such-path", None),
        ("PUT", "/count", None),
        ("POST", "/experiments", cases.TOO_LARGE.body),
        *(("POST", "/experiments", case.body) for case in plain),
    ]
    bodies = []
    for name in ("axum", "gin"):
        server, command = build_where_missing(name)
        port = free_port()
        with started(server.folder, command, port, tmp_path):
            bodies.append([fetch(Target("127.0.0.1", port), *request).body for request in asked])
    assert len(asked) > 30
    assert bodies[0] == bodies[1]


def test_sigterm_ends_the_server_with_open_connections(built_server: tuple[Server, list[str]], tmp_path: Path) -> None:
    server, command = built_server
    port = free_port()
    with started(server.folder, command, port, tmp_path) as process:
        idle = socket.create_connection(("127.0.0.1", port))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: lab\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        in_flight = socket.create_connection(("127.0.0.1", port))
        in_flight.sendall(b"POST /experiments HTTP/1.1\r\nHost: lab\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.1)
        began = time.monotonic()
        process.terminate()
        code = process.wait(3)
        idle.close()
        in_flight.close()
        assert (code, time.monotonic() - began < 2) == (0, True)


@pytest.mark.parametrize("address", [None, "", "8080", "localhost:8080", "127.0.0.1:notaport", "127.0.0.1:1;"])
def test_wrong_address_is_one_sentence(
    built_server: tuple[Server, list[str]], address: str | None, tmp_path: Path
) -> None:
    server, command = built_server
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)} | ({} if address is None else {"ADDR": address})
    done = subprocess.run(command, check=False, cwd=server.folder, env=env, capture_output=True, text=True, timeout=5)
    assert done.returncode == 2
    assert done.stderr.startswith("ADDR ")
    assert done.stderr.count("\n") == 1


def test_port_in_use_exits_1(built_server: tuple[Server, list[str]], tmp_path: Path) -> None:
    server, command = built_server
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "ADDR": address}
        done = subprocess.run(
            command, check=False, cwd=server.folder, env=env, capture_output=True, text=True, timeout=10
        )
    assert done.returncode == 1
    assert address in done.stderr


@pytest.mark.parametrize("path", ["/count", "/experiments", "/experiments/md5", "/devices"])
def test_quick_check_is_quick(path: str) -> None:
    server = server_record("faulty", SERVERS, ALL)
    with faulty_server() as port:
        began = time.monotonic()
        checks = quick_check("127.0.0.1", port, server, NONCE, path)
        assert time.monotonic() - began < 0.1
    assert len(checks) == 2
    assert failed(checks) == []


@pytest.mark.parametrize(
    ("fault", "path", "name"),
    [
        ("wrong nonce", "/count", "health"),
        ("count is text", "/count", "count: shape"),
        ("500 for bad JSON", "/experiments", None),
        ("variants come back empty", "/experiments", "experiments: the published body"),
        ("md5 in capitals", "/experiments/md5", "md5: digest"),
        ("a device is missing", "/devices", "devices: list"),
    ],
)
def test_quick_check_looks_at_the_loaded_path(fault: str, path: str, name: str | None) -> None:
    with faulty_server(fault) as port:
        checks = quick_check("127.0.0.1", port, server_record("faulty", SERVERS, ALL), NONCE, path)
    assert [check.name for check in checks if not check.ok] == ([name] if name else [])


def test_quick_check_refuses_unknown_paths() -> None:
    with faulty_server() as port, pytest.raises(LabError, match="/typo"):
        quick_check("127.0.0.1", port, server_record("faulty", SERVERS, ALL), NONCE, "/typo")


def test_faultless_server_passes() -> None:
    with faulty_server() as port:
        assert failed(check_contract("127.0.0.1", port, server_record("faulty", SERVERS, ALL), NONCE)) == []


@pytest.mark.parametrize(("fault", "name"), FAULTS.items())
def test_fault_is_caught_by_its_check(fault: str, name: str) -> None:
    with faulty_server(fault) as port:
        checks = check_contract("127.0.0.1", port, server_record("faulty", SERVERS, ALL), NONCE)
    broken = {check.name: check.detail for check in checks if not check.ok}
    assert name in broken
    assert broken[name]


def test_only_what_is_implemented_is_checked() -> None:
    few = server_record("faulty", SERVERS, ("health", "count", "fallback"))
    with faulty_server("500 for bad JSON") as port:
        checks = check_contract("127.0.0.1", port, few, NONCE)
    assert failed(checks) == []
    assert not any(check.name.startswith(("experiments", "md5", "devices", "stats")) for check in checks)


def test_silent_server_fails_every_check() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        few = server_record("faulty", SERVERS, ("health", "count", "fallback"))
        checks = check_contract("127.0.0.1", reserved.getsockname()[1], few, NONCE)
    assert checks
    assert not any(check.ok for check in checks)
