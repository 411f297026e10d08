"""Checks of what a server does with a connection: keeping, closing, and clients that are slow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial

from runner.measure.contract.endpoints import DEVICES, NOT_FOUND
from runner.measure.contract.steps import Result, check, check_connection, ended
from runner.measure.contract.wire import (
    ONCE,
    OPEN,
    TIMEOUT_S,
    Connection,
    Target,
    connect,
    fetch,
    request,
)
from runner.model import Check, Server

HEALTH = request("GET", "/health")
UNKNOWN = request("GET", "/no-such-path")
KEPT_REQUESTS = 100
SILENCE_S = 0.3
"""How long a connection that should have ended may stay silent before it counts as open."""

CLOSE_OPTIONS = (
    b"Connection: Close",
    b"Connection: CLOSE",
    b"Connection: keep-alive, close",
    b"Connection: close, x-option",
    b"Connection: x-option,close",
    b"Connection: keep-alive\r\nConnection: close",
    b"cONNECTION:close",
)


def check_connections(target: Target, server: Server) -> Iterator[Check]:
    """Check keep-alive, closing, and clients that are slow, on the endpoints that every server has."""
    trials = (
        ("keep-alive: two requests on one connection", _try_keep_alive),
        (f"keep-alive: {KEPT_REQUESTS} requests on one connection", _try_keep_alive_long),
        ("close: Connection: close closes", _try_close),
        ("close: nothing after it is answered", _try_after_close),
        ("HTTP/1.0 closes", _try_http_1_0),
        ("HTTP/1.0 with keep-alive", _try_http_1_0_keep_alive),
        ("HTTP/1.0 gets no chunks", _try_http_1_0_unchunked),
        ("header names in any case", _try_header_case),
        ("an absolute-form target", _try_absolute_form),
        ("half-closed connection", _try_half_closed),
        ("slow client", _try_slow_client),
        ("slow client: byte by byte", _try_byte_by_byte),
    )
    for name, trial in trials:
        yield check_connection(name, target, trial)
    yield check("slow reader", partial(_try_slow_reader, target, server))
    for option in CLOSE_OPTIONS:
        shown = option.decode().replace("\r\n", ", ")
        yield check_connection(f"close: {shown}", target, partial(_try_close_option, option))


def _try_keep_alive(connection: Connection) -> Result:
    statuses = []
    for _ in range(2):
        connection.send(HEALTH)
        answer = connection.read_answer()
        statuses.append(answer.status)
    kept = answer.headers.get("connection", "keep-alive").lower() != "close"
    return statuses == [200, 200] and kept, f"sent GET /health twice; expected 200 twice; got {statuses}"


def _try_keep_alive_long(connection: Connection) -> Result:
    for number in range(1, KEPT_REQUESTS + 1):
        connection.send(UNKNOWN, ONCE)
        try:
            answer = connection.read_answer()
        except ConnectionError as error:
            return False, f"expected {KEPT_REQUESTS} answers; the connection ended before number {number}: {error}"
        if answer.status != 200 or answer.json() != NOT_FOUND:
            return False, f"expected {KEPT_REQUESTS} times {NOT_FOUND}; number {number} was {answer.brief}"
    return True, f"{KEPT_REQUESTS} requests were answered on one connection"


def _try_close(connection: Connection) -> Result:
    connection.send(request("GET", "/health", headers=(("Connection", "close"),)))
    answer = connection.read_answer()
    told = answer.headers.get("connection")
    closed = connection.is_closed()
    ok = answer.status == 200 and (told or "").lower() == "close" and closed
    return ok, (
        "sent GET /health with Connection: close; expected 200, the same header and the end; "
        f"got {answer.status}, Connection: {told}, {ended(closed)}"
    )


def _try_close_option(option: bytes, connection: Connection) -> Result:
    connection.send(b"GET /health HTTP/1.1\r\nHost: lab\r\n" + option + b"\r\n\r\n")
    answer = connection.read_answer()
    closed = connection.is_closed(SILENCE_S)
    return answer.status == 200 and closed, (
        f"sent GET /health with {option!r}; expected 200 and the end; got {answer.status}, {ended(closed)}"
    )


def _try_after_close(connection: Connection) -> Result:
    connection.send(request("GET", "/health", headers=(("Connection", "close"),)) + UNKNOWN, OPEN)
    answers, closed = connection.read_to_the_end(SILENCE_S)
    statuses = [answer.status for answer in answers]
    # RFC 9112, section 9.6: no further request of the connection is processed.
    return statuses == [200] and closed, (
        "sent GET /health with Connection: close, and one more; expected [200] and the end; "
        f"got {statuses}, {ended(closed)}"
    )


def _try_http_1_0(connection: Connection) -> Result:
    connection.send(b"GET /health HTTP/1.0\r\n\r\n")
    answer = connection.read_answer()
    closed = connection.is_closed()
    return answer.status == 200 and closed, (
        f"sent GET /health HTTP/1.0; expected 200 and the end; got {answer.status}, {ended(closed)}"
    )


def _try_http_1_0_keep_alive(connection: Connection) -> Result:
    ask = b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    connection.send(ask)
    answer = connection.read_answer()
    if answer.headers.get("connection", "").lower() != "keep-alive":
        # A server may keep the connection only if it says so: otherwise the client waits for the end.
        closed = connection.is_closed(SILENCE_S)
        return answer.status == 200 and closed, (
            f"sent HTTP/1.0 with keep-alive; got {answer.status}, not kept; expected the end; got {ended(closed)}"
        )
    connection.send(ask)
    second = connection.read_answer()
    return (answer.status, second.status) == (200, 200), (
        f"sent HTTP/1.0 with keep-alive twice; expected 200 twice; got {answer.status}, {second.status}"
    )


def _try_http_1_0_unchunked(connection: Connection) -> Result:
    connection.send(b"GET /no-such-path HTTP/1.0\r\n\r\n", ONCE)
    answer = connection.read_answer()
    ok = answer.status == 200 and "transfer-encoding" not in answer.headers and answer.json() == NOT_FOUND
    coding = answer.headers.get("transfer-encoding", "none")
    return ok, f"sent GET /no-such-path HTTP/1.0; expected no Transfer-Encoding; got {answer.brief}, {coding}"


def _try_header_case(connection: Connection) -> Result:
    connection.send(b"GET /health HTTP/1.1\r\nhOST: lab\r\ncONNECTION:close\r\n\r\n")
    answer = connection.read_answer()
    closed = connection.is_closed()
    return answer.status == 200 and closed, (
        f"sent GET /health with cONNECTION:close; expected 200 and the end; got {answer.status}, {ended(closed)}"
    )


def _try_absolute_form(connection: Connection) -> Result:
    # RFC 9112, section 3.2.2: a server must accept it, also when it is no proxy.
    connection.send(request("GET", "http://lab/health"))
    answer = connection.read_answer()
    body = answer.json()
    ok = answer.status == 200 and isinstance(body, dict) and body.get("status") == "ok"
    return ok, f"sent GET http://lab/health; expected the health; got {answer.brief}"


def _try_half_closed(connection: Connection) -> Result:
    connection.send(UNKNOWN, OPEN)
    connection.channel.shutdown(socket.SHUT_WR)
    answers, closed = connection.read_to_the_end(1.0)
    statuses = [answer.status for answer in answers]
    # Servers may take the half-close for a client that left; what they may not do is hang.
    return statuses in ([], [200]) and closed, (
        f"sent GET and closed for writing; expected 200 and the end, or the end; got {statuses}, {ended(closed)}"
    )


def _try_slow_client(connection: Connection) -> Result:
    size = -(-len(HEALTH) // 6)
    for start in range(0, len(HEALTH), size):
        connection.send(HEALTH[start : start + size])
        time.sleep(0.05)
    answer = connection.read_answer()
    return answer.status == 200, f"sent GET /health in 6 pieces over 0.3 s; expected 200; got {answer.brief}"


def _try_byte_by_byte(connection: Connection) -> Result:
    # Twice: a parser that keeps its place must also find the beginning of the next request.
    for byte in HEALTH * 2:
        connection.send(bytes((byte,)))
        time.sleep(0.001)
    statuses = [connection.read_answer().status for _ in range(2)]
    return statuses == [200, 200], f"sent GET /health twice byte by byte; expected 200 twice; got {statuses}"


def _try_slow_reader(target: Target, server: Server) -> Result:
    """Ask for more than the sockets hold without reading: others are answered, and at last everything comes."""
    path, expected = ("/devices", DEVICES) if "devices" in server.implements else ("/no-such-path", NOT_FOUND)
    # The requests must fit into the server's socket: a server that cannot write need not read.
    times = 500
    with connect(target, 2 * TIMEOUT_S, receive_bytes=4096) as connection:
        connection.send(request("GET", path) * times, (times, times))
        # Until the server has written all that it can.
        time.sleep(0.2)
        began = time.monotonic()
        others = [fetch(target, "GET", "/health").status for _ in range(5)]
        waited_s = time.monotonic() - began
        for number in range(1, times + 1):
            answer = connection.read_answer()
            if answer.status != 200 or (number % 100 == 0 and answer.json() != expected):
                return False, f"answer {number} of {times}: expected 200 {str(expected)[:80]}; got {answer.brief}"
    ok = others == [200] * 5 and waited_s < TIMEOUT_S
    return (
        ok,
        f"{times} answers were read late; meanwhile others got {others} in {waited_s:.2f} s; expected 200 at once",
    )
