"""Checks of what each endpoint that takes no body answers, one request at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from runner.measure.contract.steps import Result, check, check_connection
from runner.measure.contract.wire import Answer, Connection, Target, counted_as, fetch, request
from runner.model import Check, LabError, Server

NOT_FOUND = {"code": 404, "message": "not found"}
DEVICES = [
    {"uuid": f"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0{n}", "mac": f"02-00-00-00-00-0{n}", "firmware": firmware}
    for n, firmware in enumerate(("1.0.0", "1.0.4", "1.2.0", "2.0.1", "3.1.5"), start=1)
]
"""The fixed list of GET /devices."""

UNKNOWN_PATHS = (
    "/no-such-path",
    "/",
    "/no/such/path?x=1",
    "/count/",
    "/COUNT",
    "/counts",
    "/no%20such%2Fpath",
    "/caf%C3%A9",
    "/no-such-path?",
    "/" + "x" * 2000,
)
WRONG_METHODS = (
    ("health", "/health", ("PUT", "POST", "DELETE")),
    ("count", "/count", ("PUT", "POST", "PATCH")),
    ("experiments", "/experiments", ("GET", "PUT", "DELETE")),
    ("md5", "/experiments/md5", ("DELETE", "GET")),
    ("devices", "/devices", ("PUT", "DELETE")),
    ("stats", "/stats", ("PUT", "POST")),
)
"""What a server implements, where, and methods that it must refuse there with 405."""


def check_endpoints(target: Target, server: Server, nonce: str) -> Iterator[Check]:
    """Check the endpoints without a body that the server implements, the fallback, and methods."""
    implemented = set(server.implements)
    if "health" in implemented:
        yield check_health(target, server, nonce)
    if "count" in implemented:
        yield check_count(target)
    if "fallback" in implemented:
        paths = (*UNKNOWN_PATHS, "/experiments/none") if "experiments" in implemented else UNKNOWN_PATHS
        for path in paths:
            yield check(f"fallback: {path[:40]}", partial(_try_fallback, target, path))
    if "devices" in implemented:
        yield check_devices(target)
        yield check("devices: byte for byte", partial(_try_devices_bytes, target))
    if "stats" in implemented:
        yield check("stats: shape", partial(_try_stats, target))
        # A server without counters serves fixed bodies and is excused from refusing methods.
        yield from _check_methods(target, implemented)
    for path in ("/health", "/count", "/no-such-path"):
        yield check_connection(f"HEAD {path} has no body", target, partial(_try_head, path))


def compare(answer: Answer, status: int, body: object, sent: str) -> Result:
    """Say whether the answer has that status and that body as JSON."""
    ok = answer.status == status and answer.is_json and answer.json() == body
    expected = f"{status} {json.dumps(body, ensure_ascii=False)[:120]} as application/json"
    kind = answer.headers.get("content-type", "no Content-Type")
    return ok, f"sent {sent}; expected {expected}; got {answer.brief} as {kind}"


def check_health(target: Target, server: Server, nonce: str) -> Check:
    """Check that this very process answers: its name, and the nonce that it was started with."""

    def step() -> Result:
        answer = fetch(target, "GET", "/health")
        expected = {"status": "ok", "server": server.implementation, "nonce": nonce}
        return compare(answer, 200, expected, "GET /health")

    return check("health", step)


def check_count(target: Target) -> Check:
    """Check the status and shape of GET /count."""

    def step() -> Result:
        answer = fetch(target, "GET", "/count")
        body = answer.json()
        number = body.get("message") if isinstance(body, dict) else None
        ok, detail = compare(answer, 200, {"code": 200, "message": number}, "GET /count")
        return ok and type(number) is int and number >= 0, detail

    return check("count: shape", step)


def _try_fallback(target: Target, path: str) -> Result:
    return compare(fetch(target, "GET", path), 200, NOT_FOUND, f"GET {path[:80]}")


def check_devices(target: Target) -> Check:
    """Check the fixed list of devices."""
    return check("devices: list", partial(try_devices, target))


def try_devices(target: Target) -> Result:
    """Ask for the fixed list."""
    return compare(fetch(target, "GET", "/devices"), 200, DEVICES, "GET /devices")


def _try_devices_bytes(target: Target) -> Result:
    answer = fetch(target, "GET", "/devices")
    expected = json.dumps(DEVICES, separators=(",", ":")).encode()
    return answer.body == expected, (
        f"sent GET /devices; expected {len(expected)} bytes, {expected[:60]!r}…; "
        f"got {len(answer.body)} bytes, {answer.body[:60]!r}…"
    )


def read_stats(target: Target) -> dict[str, object]:
    """Return the body of GET /stats; raise LabError where its shape is not the contract's."""
    answer = fetch(target, "GET", "/stats")
    body = answer.json()
    if answer.status != 200 or not answer.is_json or not isinstance(body, dict) or not _is_stats(body):
        raise LabError(f"GET /stats answered {answer.brief}, which is not the contract's shape", 1)
    return body


def _is_stats(body: dict[str, object]) -> bool:
    gc, pool = body.get("gc"), body.get("pool")
    return (
        set(body) == {"requests", "connections", "gc", "pool"}
        and all(type(body[key]) is int for key in ("requests", "connections"))
        and (gc is None or _are_numbers(gc, {"cycles", "pause_total_ms", "cpu_s"}))
        and (pool is None or _are_numbers(pool, {"size", "in_use", "idle", "waiting"}))
    )


def _are_numbers(value: object, keys: set[str]) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == keys
        and all(type(number) in (int, float) and number >= 0 for number in value.values())
    )


def _try_stats(target: Target) -> Result:
    return True, f"GET /stats answered {read_stats(target)}"


def _check_methods(target: Target, implemented: set[str]) -> Iterator[Check]:
    for needed, path, methods in WRONG_METHODS:
        if needed in implemented:
            for method in methods:
                yield check(f"method: {method} {path}", partial(_try_method, target, method, path))


def _try_method(target: Target, method: str, path: str) -> Result:
    answer = fetch(target, method, path)
    ok = answer.status == 405 and answer.error is not None
    return ok, f'sent {method} {path}; expected 405 {{"error":…}}; got {answer.brief}'


def _try_head(path: str, connection: Connection) -> Result:
    connection.send(request("HEAD", path), counted_as("HEAD", path))
    connection.send_all_possible(request("GET", "/health"))
    answer = connection.read_answer(to_head=True)
    # A server may refuse HEAD and may close; a body would be taken for the beginning of the next answer.
    after, closed = connection.read_to_the_end(0.05)
    ok = answer.status in (200, 404, 405, 501) and ([a.status for a in after] == [200] or (not after and closed))
    return ok, (
        f"sent HEAD {path}, then GET /health; expected a head, and then the health; "
        f"got {answer.status}, then {[a.brief for a in after]}"
    )
