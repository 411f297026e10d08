"""Checks of pipelining: many requests in one stream, whole or in pieces, are answered one by one and in order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from random import Random

from runner.measure.contract.cases import experiment_body
from runner.measure.contract.connections import HEALTH, UNKNOWN
from runner.measure.contract.counting import is_counting, read_count
from runner.measure.contract.endpoints import DEVICES, NOT_FOUND
from runner.measure.contract.experiments import echo_of
from runner.measure.contract.steps import Result, check, check_connection
from runner.measure.contract.wire import ONCE, Connection, Target, chunked_request, connect, request
from runner.model import Check, Server

PIPELINED = 50


def check_pipelining(target: Target, server: Server, seed: int) -> Iterator[Check]:
    """Check streams of requests of every kind that the server has; `seed` cuts one into random pieces."""
    yield check_connection("pipelining: three requests at once", target, _try_three)
    mixed = f"pipelining: {PIPELINED} mixed requests"
    yield check_connection(f"{mixed} at once", target, partial(_try_mixed, server))
    yield check(f"{mixed} in random pieces", partial(_try_pieces, target, server, seed))


def _try_three(connection: Connection) -> Result:
    connection.send(HEALTH + UNKNOWN + HEALTH, ONCE)
    bodies = [connection.read_answer().json() for _ in range(3)]
    ok = bodies[1] == NOT_FOUND and bodies[0] == bodies[2] != NOT_FOUND
    return ok, f"sent GET /health, /no-such-path, /health at once; expected their answers in order; got {bodies}"


def mixed_requests(server: Server, size: int) -> list[tuple[bytes, object]]:
    """Return `size` counted requests of every kind that the server implements, each with its answer's body."""
    made: list[tuple[bytes, object]] = []
    for number in range(size):
        body = experiment_body(f"page {number} " + "é" * (7 * number % 150))
        kinds: list[tuple[bytes, object]] = [(request("GET", f"/no-such-path/{number}"), NOT_FOUND)]
        if "experiments" in server.implements:
            kinds.append((request("POST", "/experiments", body), echo_of(body)))
        # A raw engine may refuse chunks.
        if "experiments" in server.implements and server.tier != "raw":
            kinds.append((chunked_request("POST", "/experiments", body), echo_of(body)))
        if "devices" in server.implements:
            kinds.append((request("GET", "/devices"), DEVICES))
        made.append(kinds[number % len(kinds)])
    return made


def _try_mixed(server: Server, connection: Connection) -> Result:
    requests = mixed_requests(server, PIPELINED)
    data = b"".join(sent for sent, _ in requests)
    connection.send(data, (PIPELINED, PIPELINED))
    for number, (_, expected) in enumerate(requests, 1):
        answer = connection.read_answer()
        if answer.status != 200 or answer.json() != expected:
            return False, f"answer {number} of {PIPELINED}: expected {str(expected)[:120]}; got {answer.brief}"
    return True, f"{PIPELINED} requests, {len(data)} bytes, were answered in order"


def _try_pieces(target: Target, server: Server, seed: int) -> Result:
    """Send requests cut at random, over a further connection where the server announces that it closes.

    Any answer may announce the end (RFC 9112, section 9.6), but what was sent behind it must then not be processed:
    its client sends it again.
    """
    requests = mixed_requests(server, PIPELINED)
    random = Random(seed)  # noqa: S311
    before = read_count(target) if is_counting(server) else 0
    connections = 0
    while requests:
        connections += 1
        with connect(target) as connection:
            _send_in_pieces(connection, b"".join(sent for sent, _ in requests), random)
            fault = _read_until_announced(connection, requests)
            if fault:
                return False, f"seed {seed}, {fault}"
            connection.count((0, len(requests)))
    counted = read_count(target) - before - 1 if is_counting(server) else PIPELINED
    return counted == PIPELINED, (
        f"seed {seed}: {PIPELINED} requests were answered in order, over {connections} connections; "
        f"expected {PIPELINED} to be counted; got {counted}"
    )


def _read_until_announced(connection: Connection, requests: list[tuple[bytes, object]]) -> str | None:
    """Read answers to the first requests and remove them, until one announces the end; return what is wrong."""
    while requests:
        connection.count(ONCE)
        answer = connection.read_answer()
        _, expected = requests.pop(0)
        if answer.status != 200 or answer.json() != expected:
            return f"{len(requests)} requests before the last: expected {str(expected)[:120]}; got {answer.brief}"
        if answer.headers.get("connection", "").lower() == "close":
            return None
    return None


def _send_in_pieces(connection: Connection, data: bytes, random: Random) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while data:
            size = random.choice((1, 2, random.randint(1, 400)))
            connection.send(data[:size])
            data = data[size:]
            # Otherwise the kernel puts the pieces together again.
            time.sleep(0.0005)
