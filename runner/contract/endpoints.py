"""Checks of what each endpoint that takes no body answers, one request at a time."""

from __future__ import annotations

import json

from runner.contract.checking import End, Exchange, Expected, Rows, error, json_body, same_bytes, status
from runner.contract.connection import HEALTH, Answer, Target, fetch, request
from runner.model import LabError, Server

NOT_FOUND = {"code": 404, "message": "not found"}
IS_NOT_FOUND = json_body(200, NOT_FOUND)
DEVICES = [
    {"uuid": f"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0{n}", "mac": f"02-00-00-00-00-0{n}", "firmware": firmware}
    for n, firmware in enumerate(("1.0.0", "1.0.4", "1.2.0", "2.0.1", "3.1.5"), start=1)
]
"""The fixed list of GET /devices."""
IS_DEVICES = json_body(200, DEVICES)

UNKNOWN_PATHS = (
    *("/no-such-path", "/", "/no/such/path?x=1", "/count/", "/COUNT", "/counts"),
    *("/no%20such%2Fpath", "/caf%C3%A9", "/no-such-path?", "/" + "x" * 2000),
)
STATS = request("GET", "/stats")
WRONG_METHODS = (
    ("health", "/health", ("PUT", "POST", "DELETE")),
    ("count", "/count", ("PUT", "POST", "PATCH")),
    ("experiments", "/experiments", ("GET", "PUT", "DELETE")),
    ("md5", "/experiments/md5", ("DELETE", "GET")),
    ("devices", "/devices", ("PUT", "DELETE")),
    ("stats", "/stats", ("PUT", "POST")),
)
"""What a server implements, where, and methods that it must refuse there with 405."""


def endpoint_rows(server: Server, nonce: str) -> Rows:
    """Return rows for the endpoints without a body that the server implements, the fallback, and methods."""
    rows: dict[str, Exchange] = {}
    if "health" in server.implements:
        rows["health"] = health_row(server, nonce)
    if "count" in server.implements:
        rows["count: shape"] = COUNT_ROW
    if "fallback" in server.implements:
        paths = (*UNKNOWN_PATHS, "/experiments/none") if "experiments" in server.implements else UNKNOWN_PATHS
        rows |= {f"fallback: {path[:40]}": Exchange(request("GET", path), IS_NOT_FOUND) for path in paths}
    if "devices" in server.implements:
        compact = json.dumps(DEVICES, separators=(",", ":")).encode()
        rows["devices: list"] = DEVICES_ROW
        rows["devices: byte for byte"] = Exchange(request("GET", "/devices"), same_bytes(compact))
    if "stats" in server.implements:
        rows["stats: shape"] = Exchange(STATS, Expected("the contract's shape", _is_stats))
        # A server without counters serves fixed bodies and is excused from refusing methods.
        for needed, path, methods in WRONG_METHODS:
            if needed in server.implements:
                rows |= {f"method: {method} {path}": Exchange(request(method, path), error(405)) for method in methods}
    # A server may refuse HEAD and may close; a body would be taken for the beginning of the next answer.
    head = status(200, 404, 405, 501)
    for path in ("/health", "/count", "/no-such-path"):
        rows[f"HEAD {path} has no body"] = Exchange(request("HEAD", path), head, End.USABLE_OR_CLOSED)
    return rows


def health_row(server: Server, nonce: str) -> Exchange:
    """Return the row that shows that this very process answers: its name, and the nonce that it was started with."""
    return Exchange(HEALTH, json_body(200, {"status": "ok", "server": server.implementation, "nonce": nonce}))


def _is_count(answer: Answer) -> bool:
    body = answer.json()
    number = body.get("message") if isinstance(body, dict) else None
    good = {"code": 200, "message": number}
    return answer.status == 200 and answer.is_json and body == good and type(number) is int and number >= 0


COUNT_ROW = Exchange(request("GET", "/count"), Expected('200 {"code":200,"message":N} as application/json', _is_count))
DEVICES_ROW = Exchange(request("GET", "/devices"), IS_DEVICES)


def read_stats(target: Target) -> dict[str, object]:
    """Return the body of GET /stats; raise LabError where its shape is not the contract's."""
    answer = fetch(target, STATS)
    body = answer.json()
    if not _is_stats(answer) or not isinstance(body, dict):
        raise LabError(f"GET /stats answered {answer.brief}, which is not the contract's shape", 1)
    return body


def _is_stats(answer: Answer) -> bool:
    body = answer.json()
    return (
        answer.status == 200
        and answer.is_json
        and isinstance(body, dict)
        and set(body) == {"requests", "connections", "gc", "pool"}
        and all(type(body[key]) is int for key in ("requests", "connections"))
        and (body["gc"] is None or _are_numbers(body["gc"], {"cycles", "pause_total_ms", "cpu_s"}))
        and (body["pool"] is None or _are_numbers(body["pool"], {"size", "in_use", "idle", "waiting"}))
    )


def _are_numbers(value: object, keys: set[str]) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == keys
        and all(type(number) in (int, float) and number >= 0 for number in value.values())
    )
