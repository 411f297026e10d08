"""Checks of the counters: /count and /stats against the requests and connections that were really made."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runner.measure.contract.cases import PUBLISHED_BODY
from runner.measure.contract.endpoints import check, read_stats
from runner.measure.contract.wire import Target, connect, fetch, request
from runner.model import Check, LabError, Server

CLIENTS = 8
REQUESTS_EACH = 40


def check_counting(target: Target, server: Server) -> Iterator[Check]:
    """Check the counters of a server that has them: one that implements both `count` and `stats`."""
    if not {"count", "stats"} <= set(server.implements):
        return
    yield check("count: consecutive on one connection", partial(_try_consecutive, target))
    yield check("count: race-free over connections", partial(_try_concurrent, target))
    yield check("count: equals the requests sent", partial(_try_counted, target, server))
    yield check("count: /health and /stats are not counted", partial(_try_uncounted, target))
    yield check("stats: requests equals /count", partial(_try_stats_requests, target))
    yield check("stats: connections equals those opened", partial(_try_stats_connections, target))


def _read_counts(target: Target, times: int) -> list[int]:
    with connect(target) as connection:
        numbers = []
        for _ in range(times):
            connection.send(request("GET", "/count"))
            numbers.append(_number(connection.read_answer().json()))
        return numbers


def _number(body: object) -> int:
    number = body.get("message") if isinstance(body, dict) else None
    if not isinstance(number, int):
        raise LabError(f"GET /count answered {body!r}", 1)
    return number


def _try_consecutive(target: Target) -> tuple[bool, str]:
    numbers = _read_counts(target, 5)
    expected = list(range(numbers[0], numbers[0] + 5))
    return numbers == expected, f"sent GET /count 5 times; expected {expected}; got {numbers}"


def _try_concurrent(target: Target) -> tuple[bool, str]:
    first = _read_counts(target, 1)[0] + 1
    with ThreadPoolExecutor(CLIENTS) as pool:
        numbers = [n for part in pool.map(partial(_read_counts, target), [REQUESTS_EACH] * CLIENTS) for n in part]
    total = CLIENTS * REQUESTS_EACH
    ok = sorted(numbers) == list(range(first, first + total))
    return ok, (
        f"sent GET /count {total} times over {CLIENTS} connections; expected each of {first} to "
        f"{first + total - 1} once; got {len(set(numbers))} different from {min(numbers)} to {max(numbers)}"
    )


def _try_counted(target: Target, server: Server) -> tuple[bool, str]:
    sent = [("GET", "/no-such-path", None), ("POST", "/no-such-path", b"{}"), ("GET", "/count", None)]
    if "experiments" in server.implements:
        sent += [("POST", "/experiments", PUBLISHED_BODY), ("POST", "/experiments", b"{")]
    if "md5" in server.implements:
        sent.append(("POST", "/experiments/md5", PUBLISHED_BODY))
    if "devices" in server.implements:
        sent.append(("GET", "/devices", None))
    before = _read_counts(target, 1)[0]
    for method, path, body in sent:
        fetch(target, method, path, body)
    counted = _read_counts(target, 1)[0] - before - 1
    return counted == len(sent), f"sent {len(sent)} requests, right and wrong ones; counted {counted}"


def _try_uncounted(target: Target) -> tuple[bool, str]:
    before = _read_counts(target, 1)[0]
    for path in ("/health", "/stats", "/health", "/stats"):
        fetch(target, "GET", path)
    counted = _read_counts(target, 1)[0] - before - 1
    return counted == 0, f"sent GET /health and /stats twice each; expected 0 counted; got {counted}"


def _try_stats_requests(target: Target) -> tuple[bool, str]:
    last = _read_counts(target, 3)[-1]
    told = read_stats(target)["requests"]
    return told == last + 1, f"the last /count answered {last}; expected requests {last + 1}; got {told}"


def _try_stats_connections(target: Target) -> tuple[bool, str]:
    before, opened = read_stats(target)["connections"], 7
    for _ in range(opened):
        _read_counts(target, 2)
    after = read_stats(target)["connections"]
    # Reading /stats the second time opens one too.
    ok = isinstance(before, int) and after == before + opened + 1
    return ok, f"opened {opened + 1} connections; /stats said {before} before and {after} after"
