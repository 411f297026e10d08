"""Checks of the counters: /count and /stats against the requests and connections that were really made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runner.contract.checking import Result, Rows, check_rows
from runner.contract.connection import HEALTH, Message, Target, connect, fetch, request, shorten
from runner.contract.endpoints import STATS, read_stats
from runner.contract.experiments import PUBLISHED, PUBLISHED_BODY
from runner.model import Check, LabError, Server

CLIENTS = 8
REQUESTS_EACH = 40

COUNT = request("GET", "/count")
SENT = {
    "count": (
        *(request(method, "/no-such-path") for method in ("GET", "DELETE", "HEAD")),
        *(request("POST", "/no-such-path", b"{}"), COUNT, request("PUT", "/count")),
    ),
    "experiments": (PUBLISHED, request("POST", "/experiments", b"{"), request("GET", "/experiments")),
    "md5": (request("POST", "/experiments/md5", PUBLISHED_BODY), request("POST", "/experiments/md5", b"{")),
    "devices": (request("GET", "/devices"), request("PUT", "/devices")),
}
"""What a server implements, and requests for it, right and wrong ones."""


def is_counting(server: Server) -> bool:
    """Whether the server has counters: without `stats` its /count may be a constant."""
    return {"count", "stats"} <= set(server.implements)


def counting_rows(server: Server) -> Rows:
    """Return rows for the counters of a server that has them, request by request."""
    if not is_counting(server):
        return {}
    sent = [message for name, messages in SENT.items() if name in server.implements for message in messages]
    return {
        "count: consecutive on one connection": _try_consecutive,
        "count: race-free over connections": _try_concurrent,
        "count: equals the requests sent": partial(_try_counted, sent),
        "count: /health and /stats are not counted": partial(_try_counted, [HEALTH, STATS] * 2),
        "stats: requests equals /count": _try_stats_requests,
        "stats: connections equals those opened": _try_stats_connections,
    }


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
    least, most = target.least, target.most
    yield from checks

    def equals(target: Target) -> Result:
        if first is None:
            return False, "GET /count did not answer at the beginning"
        low, high = target.least - least, target.most - most
        # The first reading counted itself after it had answered.
        number = read_count(target) - first - 1
        detail = f"sent {low} counted requests, and {high - low} that may be counted or not; counted {number}"
        return low <= number <= high, detail

    if target.most > most:
        yield from check_rows(target, {name: equals})


def read_count(target: Target) -> int:
    """Return the number of GET /count, which counts itself afterwards."""
    return _read_counts(target, 1)[0]


def _read_counts(target: Target, times: int) -> list[int]:
    numbers = []
    with connect(target) as connection:
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
        numbers = [n for part in pool.map(partial(_read_counts, target), [REQUESTS_EACH] * CLIENTS) for n in part]
    total = CLIENTS * REQUESTS_EACH
    ok = sorted(numbers) == list(range(first, first + total))
    return ok, (
        f"expected each of {first} to {first + total - 1} once over {CLIENTS} connections; "
        f"got {len(set(numbers))} different from {min(numbers)} to {max(numbers)}"
    )


def _try_counted(messages: list[Message], target: Target) -> Result:
    before = read_count(target)
    for message in messages:
        fetch(target, message)
    number, expected = read_count(target) - before - 1, sum(message.least for message in messages)
    asked = ", ".join(shorten(message.data.partition(b" HTTP")[0]) for message in messages)
    return number == expected, f"sent {asked}; expected {expected} to be counted; got {number}"


def _try_stats_requests(target: Target) -> Result:
    last = _read_counts(target, 3)[-1]
    said = read_stats(target)["requests"]
    return said == last + 1, f"the last /count answered {last}; expected requests {last + 1}; got {said}"


def _try_stats_connections(target: Target) -> Result:
    before, opened = read_stats(target)["connections"], 7
    for _ in range(opened):
        _read_counts(target, 2)
    after = read_stats(target)["connections"]
    # Reading /stats the second time opens one too.
    ok = isinstance(before, int) and after == before + opened + 1
    return ok, f"opened {opened + 1} connections; /stats said {before} before and {after} after"
