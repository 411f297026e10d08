"""Checks of the counters: /count and /stats against the requests and connections that were really made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runner.measure.contract.cases import PUBLISHED_BODY
from runner.measure.contract.endpoints import read_stats
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import ONCE, Target, connect, fetch, request
from runner.model import Check, LabError, Server

CLIENTS = 8
REQUESTS_EACH = 40


def is_counting(server: Server) -> bool:
    """Whether the server has counters: without `stats` its /count may be a constant."""
    return {"count", "stats"} <= set(server.implements)


def check_counting(target: Target, server: Server) -> Iterator[Check]:
    """Check the counters of a server that has them, request by request."""
    if not is_counting(server):
        return
    yield check("count: consecutive on one connection", partial(_try_consecutive, target))
    yield check("count: race-free over connections", partial(_try_concurrent, target))
    yield check("count: equals the requests sent", partial(_try_counted, target, server))
    yield check("count: /health and /stats are not counted", partial(_try_uncounted, target))
    yield check("stats: requests equals /count", partial(_try_stats_requests, target))
    yield check("stats: connections equals those opened", partial(_try_stats_connections, target))


def counted(target: Target, server: Server, name: str, checks: Iterable[Check]) -> Iterator[Check]:
    """Make the checks, and one more of that name: /count must have moved on by the tally of what they sent.

    A server without counters, or checks that send nothing, bring no further one.
    """
    if not is_counting(server):
        yield from checks
        return
    first: int | None = None
    with contextlib.suppress(OSError, LabError):
        first = read_count(target)
    least, most = target.tally.least, target.tally.most
    yield from checks

    def step() -> Result:
        if first is None:
            return False, "GET /count did not answer at the beginning"
        low, high = target.tally.least - least, target.tally.most - most
        # The first reading counted itself after it had answered.
        told = read_count(target) - first - 1
        return low <= told <= high, (
            f"sent {low} counted requests, and {high - low} that may be counted or not; "
            f"expected {low} to {high}; counted {told}"
        )

    if target.tally.most > most:
        yield check(name, step)


def read_count(target: Target) -> int:
    """Return the number of GET /count, which counts itself afterwards."""
    return _read_counts(target, 1)[0]


def _read_counts(target: Target, times: int) -> list[int]:
    with connect(target) as connection:
        numbers = []
        for _ in range(times):
            connection.send(request("GET", "/count"), ONCE)
            numbers.append(_number(connection.read_answer().json()))
        return numbers


def _number(body: object) -> int:
    number = body.get("message") if isinstance(body, dict) else None
    if not isinstance(number, int):
        raise LabError(f"GET /count answered {body!r}", 1)
    return number


def _try_consecutive(target: Target) -> Result:
    numbers = _read_counts(target, 5)
    expected = list(range(numbers[0], numbers[0] + 5))
    return numbers == expected, f"sent GET /count 5 times; expected {expected}; got {numbers}"


def _try_concurrent(target: Target) -> Result:
    first = read_count(target) + 1
    with ThreadPoolExecutor(CLIENTS) as pool:
        numbers = [n for part in pool.map(partial(_read_counts, target), [REQUESTS_EACH] * CLIENTS) for n in part]
    total = CLIENTS * REQUESTS_EACH
    ok = sorted(numbers) == list(range(first, first + total))
    return ok, (
        f"sent GET /count {total} times over {CLIENTS} connections; expected each of {first} to "
        f"{first + total - 1} once; got {len(set(numbers))} different from {min(numbers)} to {max(numbers)}"
    )


def _try_counted(target: Target, server: Server) -> Result:
    sent = [
        ("GET", "/no-such-path", None),
        ("POST", "/no-such-path", b"{}"),
        ("DELETE", "/no-such-path", None),
        ("HEAD", "/no-such-path", None),
        ("GET", "/count", None),
        ("PUT", "/count", None),
    ]
    if "experiments" in server.implements:
        sent += [
            ("POST", "/experiments", PUBLISHED_BODY),
            ("POST", "/experiments", b"{"),
            ("GET", "/experiments", None),
        ]
    if "md5" in server.implements:
        sent += [("POST", "/experiments/md5", PUBLISHED_BODY), ("POST", "/experiments/md5", b"{")]
    if "devices" in server.implements:
        sent += [("GET", "/devices", None), ("PUT", "/devices", None)]
    before = read_count(target)
    for method, path, body in sent:
        fetch(target, method, path, body)
    told = read_count(target) - before - 1
    return told == len(sent), f"sent {len(sent)} requests, right and wrong ones; counted {told}"


def _try_uncounted(target: Target) -> Result:
    before = read_count(target)
    for path in ("/health", "/stats", "/health", "/stats"):
        fetch(target, "GET", path)
    told = read_count(target) - before - 1
    return told == 0, f"sent GET /health and /stats twice each; expected 0 counted; got {told}"


def _try_stats_requests(target: Target) -> Result:
    last = _read_counts(target, 3)[-1]
    told = read_stats(target)["requests"]
    return told == last + 1, f"the last /count answered {last}; expected requests {last + 1}; got {told}"


def _try_stats_connections(target: Target) -> Result:
    before, opened = read_stats(target)["connections"], 7
    for _ in range(opened):
        _read_counts(target, 2)
    after = read_stats(target)["connections"]
    # Reading /stats the second time opens one too.
    ok = isinstance(before, int) and after == before + opened + 1
    return ok, f"opened {opened + 1} connections; /stats said {before} before and {after} after"
