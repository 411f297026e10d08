"""The check before every trial: the health, and what is about to be loaded, in no time."""

import time

import pytest
from contract_database import MemoryDatabase
from contract_faulty_server import NONCE, faulty_server, server_record

from runner.contract import quick_check
from runner.model import Check, LabError

pytestmark = pytest.mark.timed


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.ok]


QUICK = (
    ("GET", "/count"),
    ("POST", "/experiments"),
    ("POST", "/experiments/md5"),
    ("GET", "/devices"),
    ("POST", "/devices"),
)


@pytest.mark.parametrize(("method", "path"), QUICK)
def test_quick_check_passes(method: str, path: str) -> None:
    database = MemoryDatabase()
    with faulty_server("", database) as server:
        began = time.monotonic()
        checks = quick_check("127.0.0.1", server.port, server_record(), NONCE, method, path, "tag")
        assert time.monotonic() - began < 0.5
    assert failed(checks) == []
    assert len(checks) == 2
    assert database.count("tag") == (method == "POST" and path == "/devices")


@pytest.mark.parametrize(
    ("fault", "method", "path", "name"),
    [
        ("wrong nonce", "GET", "/count", "health"),
        ("count is text", "GET", "/count", "count: shape"),
        ("500 for bad JSON", "POST", "/experiments", None),
        ("variants come back empty", "POST", "/experiments", "experiments: the published body"),
        ("md5 in capitals", "POST", "/experiments/md5", "md5: digest"),
        ("a device is missing", "GET", "/devices", "devices: list"),
        ("id is text", "POST", "/devices", "devices-insert: answer"),
    ],
)
def test_quick_check_looks_at_what_is_loaded(fault: str, method: str, path: str, name: str | None) -> None:
    with faulty_server(fault, MemoryDatabase()) as server:
        checks = quick_check("127.0.0.1", server.port, server_record(), NONCE, method, path)
    assert failed(checks) == ([name] if name else [])


@pytest.mark.parametrize(("method", "path"), [("GET", "/typo"), ("DELETE", "/devices")])
def test_quick_check_refuses_what_it_does_not_know(method: str, path: str) -> None:
    with faulty_server() as server, pytest.raises(LabError, match=f"{method} {path}"):
        quick_check("127.0.0.1", server.port, server_record(), NONCE, method, path)
