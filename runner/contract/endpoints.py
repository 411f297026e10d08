"""Checks of the endpoints without a request body, and of the counters /count and /stats."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runner.contract.client import Target, TimedResponse, shorten
from runner.contract.experiments import PUBLISHED, PUBLISHED_BODY
from runner.contract.messages import HEALTH, Message, request
from runner.contract.rows import (
    End,
    Exchange,
    Expected,
    Result,
    Rows,
    check_rows,
    error,
    json_body,
    same_bytes,
    status,
)
from runner.model import Check, JsonObject, LabError, Server

NOT_FOUND = {"code": 404, "message": "not found"}
IS_NOT_FOUND = json_body(200, NOT_FOUND)
DEVICES = [
    {
        "uuid": f"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0{n}",
        "mac": f"02-00-00-00-00-0{n}",
        "firmware": firmware,
    }
    for n, firmware in enumerate(("1.0.0", "1.0.4", "1.2.0", "2.0.1", "3.1.5"), start=1)
]
"""The fixed answer of GET /devices."""
IS_DEVICES = json_body(200, DEVICES)

UNKNOWN_PATHS = (
    *("/no-such-path", "/", "/no/such/path?x=1", "/count/", "/COUNT", "/counts"),
    *("/no%20such%2Fpath", "/caf%C3%A9", "/no-such-path?", "/" + "x" * 2000),
)
STATS = request("GET", "/stats")
COUNT = request("GET", "/count")
WRONG_METHODS = (
    ("health", "/health", ("PUT", "POST", "DELETE")),
    ("count", "/count", ("PUT", "POST", "PATCH")),
    ("experiments", "/experiments", ("GET", "PUT", "DELETE")),
    ("md5", "/experiments/md5", ("DELETE", "GET")),
    ("devices", "/devices", ("PUT", "DELETE")),
    ("stats", "/stats", ("PUT", "POST")),
)
"""Methods that a server with a feature must refuse with 405: (feature, path, methods)."""


def endpoint_rows(server: Server, nonce: str) -> Rows:
    """Return checks of unknown paths, refused methods, and endpoints without a request body."""
    rows: dict[str, Exchange] = {}
    if "health" in server.implements:
        rows["health"] = health_row(server, nonce)
    if "count" in server.implements:
        rows["count: shape"] = COUNT_ROW
    if "fallback" in server.implements:
        paths = (
            (*UNKNOWN_PATHS, "/experiments/none")
            if "experiments" in server.implements
            else UNKNOWN_PATHS
        )
        rows |= {
            f"fallback: {path[:40]}": Exchange(request("GET", path), IS_NOT_FOUND) for path in paths
        }
    if "devices" in server.implements:
        compact = json.dumps(DEVICES, separators=(",", ":")).encode()
        rows["devices: list"] = DEVICES_ROW
        rows["devices: byte for byte"] = Exchange(request("GET", "/devices"), same_bytes(compact))
    if "stats" in server.implements:
        rows["stats: shape"] = Exchange(STATS, Expected("the contract's shape", _is_stats))
        # Only a server that implements `stats` must refuse wrong methods. A server without `stats`
        # serves fixed bodies, so it may ignore the method.
        for needed, path, methods in WRONG_METHODS:
            if needed in server.implements:
                rows |= {
                    f"method: {method} {path}": Exchange(request(method, path), error(405))
                    for method in methods
                }
    # A server may refuse HEAD, and may close the connection. But it must not send a body, because a
    # client would read the body as the start of the next answer.
    head = status(200, 404, 405, 501)
    for path in ("/health", "/count", "/no-such-path"):
        rows[f"HEAD {path} has no body"] = Exchange(
            request("HEAD", path), head, End.USABLE_OR_CLOSED
        )
    return rows


def health_row(server: Server, nonce: str) -> Exchange:
    """Return the check that /health answers with the server's name and the nonce.

    The lab gave the nonce to the process of the server when it started this process. No other
    process knows the nonce, so the check shows that the answer comes from this process.
    """
    return Exchange(
        HEALTH, json_body(200, {"status": "ok", "server": server.implementation, "nonce": nonce})
    )


def _is_count(answer: TimedResponse) -> bool:
    body = answer.json()
    number = body.get("message") if isinstance(body, dict) else None
    good = {"code": 200, "message": number}
    return (
        answer.status == 200
        and answer.is_json
        and body == good
        and type(number) is int
        and number >= 0
    )


COUNT_ROW = Exchange(COUNT, Expected('200 {"code":200,"message":N} as application/json', _is_count))
DEVICES_ROW = Exchange(request("GET", "/devices"), IS_DEVICES)


def read_stats(target: Target) -> JsonObject:
    """Return the body of GET /stats; raise LabError if its shape breaks the contract."""
    answer = target.fetch(STATS)
    if not _is_stats(answer):
        raise LabError(f"GET /stats answered {answer.brief}, which is not the contract's shape", 1)
    return dict(answer.json())


def _is_stats(answer: TimedResponse) -> bool:
    body = answer.json()
    return (
        answer.status == 200
        and answer.is_json
        and isinstance(body, dict)
        and set(body) == {"requests", "connections", "gc", "pool"}
        and all(type(body[key]) is int for key in ("requests", "connections"))
        and (
            body["gc"] is None
            or _are_numbers(body["gc"], {"cycles", "pause_total_ms", "cpu_s"}, int, float)
        )
        and (
            body["pool"] is None
            or _are_numbers(body["pool"], {"size", "in_use", "idle", "waiting"}, int)
        )
    )


def _are_numbers(value: object, keys: set[str], *types: type) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == keys
        and all(type(number) in types and number >= 0 for number in value.values())
    )


CLIENTS = 8
REQUESTS_EACH = 40
SENT = {
    "count": (
        *(request(method, "/no-such-path") for method in ("GET", "DELETE", "HEAD")),
        *(request("POST", "/no-such-path", b"{}"), COUNT, request("PUT", "/count")),
    ),
    "experiments": (
        PUBLISHED,
        request("POST", "/experiments", b"{"),
        request("GET", "/experiments"),
    ),
    "md5": (
        request("POST", "/experiments/md5", PUBLISHED_BODY),
        request("POST", "/experiments/md5", b"{"),
    ),
    "devices": (request("GET", "/devices"), request("PUT", "/devices")),
}
"""Valid and invalid requests that a server must count, by the feature that it implements."""


def is_counting(server: Server) -> bool:
    """Return whether the server counts requests.

    A server counts requests if it implements both `count` and `stats`. `count` alone is not enough,
    because without `stats` the answer of /count may be a constant.
    """
    return {"count", "stats"} <= set(server.implements)


def counting_rows(server: Server) -> Rows:
    """Return checks that compare the number of requests sent with the server's counters.

    Return no checks if the server has no counters.
    """
    if not is_counting(server):
        return {}
    sent = [
        message
        for name, messages in SENT.items()
        if name in server.implements
        for message in messages
    ]
    return {
        "count: consecutive on one connection": _try_consecutive,
        "count: race-free over connections": _try_concurrent,
        "count: equals the requests sent": partial(_try_counted, sent),
        "count: /health and /stats are not counted": partial(_try_counted, [HEALTH, STATS] * 2),
        "stats: requests equals /count": _try_stats_requests,
        "stats: connections equals those opened": _try_stats_connections,
    }


def counted(target: Target, server: Server, name: str, checks: Iterable[Check]) -> Iterator[Check]:
    """Yield the checks, then one more check that is called `name`.

    The additional check compares the growth of /count with the number of requests that `checks`
    sent and that the server must count. Requests that the server may or may not count are allowed
    to make /count grow further. The additional check is left out if the server has no counters, or
    if `checks` sent no request that may be counted.
    """
    first: int | None = None
    with contextlib.suppress(OSError, LabError):
        first = read_count(target) if is_counting(server) else None
    least = target.least
    most = target.most
    yield from checks

    def equals(target: Target) -> Result:
        if first is None:
            return False, "GET /count did not answer at the beginning"
        low = target.least - least
        high = target.most - most
        # The answer of /count does not include the request that it answers. So `first` does not
        # include the first request for /count, but the number that is read now does. Therefore 1 is
        # subtracted.
        number = read_count(target) - first - 1
        detail = (
            f"sent {low} requests that must be counted, and {high - low} that may be counted or "
            f"not; the server counted {number}"
        )
        return low <= number <= high, detail

    if is_counting(server) and target.most > most:
        yield from check_rows(target, {name: equals})


def read_count(target: Target) -> int:
    """Return the number in the answer of GET /count, which does not include this request itself."""
    return _read_counts(target, 1)[0]


def _read_counts(target: Target, times: int) -> list[int]:
    numbers = []
    with target.connect() as connection:
        for _ in range(times):
            connection.send(COUNT)
            body = connection.read().json()
            number = body.get("message") if isinstance(body, dict) else None
            if not isinstance(number, int):
                raise LabError(f"GET /count answered {body!r}", 1)
            numbers.append(number)
    return numbers


def _try_consecutive(target: Target) -> Result:
    numbers = _read_counts(target, 5)
    expected = list(range(numbers[0], numbers[0] + 5))
    return numbers == expected, f"sent GET /count 5 times; expected {expected}; got {numbers}"


def _try_concurrent(target: Target) -> Result:
    first = read_count(target) + 1
    with ThreadPoolExecutor(CLIENTS) as pool:
        numbers = [
            n
            for part in pool.map(partial(_read_counts, target), [REQUESTS_EACH] * CLIENTS)
            for n in part
        ]
    total = CLIENTS * REQUESTS_EACH
    ok = sorted(numbers) == list(range(first, first + total))
    return ok, (
        f"sent GET /count {total} times over {CLIENTS} connections; expected each number from "
        f"{first} to {first + total - 1} once; got {len(set(numbers))} different numbers from "
        f"{min(numbers)} to {max(numbers)}"
    )


def _try_counted(messages: list[Message], target: Target) -> Result:
    before = read_count(target)
    for message in messages:
        target.fetch(message)
    number = read_count(target) - before - 1
    expected = sum(message.least for message in messages)
    asked = ", ".join(shorten(message.data.partition(b" HTTP")[0]) for message in messages)
    return number == expected, f"sent {asked}; expected {expected} to be counted; got {number}"


def _try_stats_requests(target: Target) -> Result:
    last = _read_counts(target, 3)[-1]
    said = read_stats(target)["requests"]
    return (
        said == last + 1,
        f"the last /count answered {last}; expected that /stats reports {last + 1} requests; got "
        f"{said}",
    )


def _try_stats_connections(target: Target) -> Result:
    before = read_stats(target)["connections"]
    opened = 7
    for _ in range(opened):
        _read_counts(target, 2)
    after = read_stats(target)["connections"]
    # The second request for /stats opens a connection, too.
    ok = after == before + opened + 1
    return ok, f"opened {opened + 1} connections; /stats said {before} before and {after} after"
