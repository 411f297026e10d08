"""Checks of HTTP/1.1 itself: what a server does with a connection, and with bytes that are not quite HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

from runner.measure.contract.cases import PUBLISHED_BODY
from runner.measure.contract.endpoints import NOT_FOUND, check
from runner.measure.contract.wire import JSON_HEADER, Connection, Target, connect, request
from runner.model import Check, Server

HEALTH = request("GET", "/health")
CHUNKED = ("Transfer-Encoding", "chunked")
Trial = Callable[[Connection], tuple[bool, str]]

MALFORMED = (
    ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    ("a request line of one word", b"GARBAGE\r\n\r\n"),
    ("an unknown version", b"GET /health HTTP/9.9\r\nHost: lab\r\n\r\n"),
    ("white space before a colon", b"POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length : 4\r\n\r\n{ } "),
    ("a Content-Length that is no number", b"POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length: ten\r\n\r\n"),
    ("a negative Content-Length", b"POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length: -1\r\n\r\n"),
    (
        "two different Content-Length",
        b"POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length: 4\r\nContent-Length: 1\r\n\r\n{ } ",
    ),
)
"""Requests that must end in a 4xx or 5xx answer or none, and a closed connection."""


def check_connections(target: Target, server: Server) -> Iterator[Check]:
    """Check keep-alive, closing, pipelining, framing and slow clients on the endpoints that the server has."""
    trials: list[tuple[str, Trial]] = [
        ("keep-alive: two requests on one connection", _try_keep_alive),
        ("close: Connection: close closes", _try_close),
        ("HTTP/1.0 closes", _try_http_1_0),
        ("pipelining: three requests at once", _try_pipelining),
        ("header names in any case", _try_header_case),
        ("half-closed connection", _try_half_closed),
        ("slow client", _try_slow_client),
    ]
    if "experiments" in server.implements:
        trials += [
            ("chunked body", _try_chunked),
            ("Expect: 100-continue", _try_expect),
            ("body in pieces", _try_body_in_pieces),
            ("smuggling: Content-Length with Transfer-Encoding", _try_smuggling),
            ("malformed chunks", _try_malformed_chunks),
            ("a client that leaves in the middle of a body", _try_leaving),
        ]
    for name, trial in trials:
        yield check(name, partial(_with_connection, target, trial))
    for name, data in MALFORMED:
        yield check(f"malformed: {name}", partial(_with_connection, target, partial(_try_malformed, data)))


def _with_connection(target: Target, trial: Trial) -> tuple[bool, str]:
    with connect(target) as connection:
        return trial(connection)


def _try_keep_alive(connection: Connection) -> tuple[bool, str]:
    statuses = []
    for _ in range(2):
        connection.send(HEALTH)
        answer = connection.read_answer()
        statuses.append(answer.status)
    kept = answer.headers.get("connection", "keep-alive").lower() != "close"
    return statuses == [200, 200] and kept, f"sent GET /health twice; expected 200 twice; got {statuses}"


def _try_close(connection: Connection) -> tuple[bool, str]:
    connection.send(request("GET", "/health", headers=(("Connection", "close"),)))
    answer = connection.read_answer()
    told = answer.headers.get("connection")
    closed = connection.is_closed()
    ok = answer.status == 200 and (told or "").lower() == "close" and closed
    return ok, (
        "sent GET /health with Connection: close; expected 200, the same header and the end; "
        f"got {answer.status}, Connection: {told}, {'closed' if closed else 'still open after 1 s'}"
    )


def _try_http_1_0(connection: Connection) -> tuple[bool, str]:
    connection.send(b"GET /health HTTP/1.0\r\n\r\n")
    answer = connection.read_answer()
    closed = connection.is_closed()
    end = "closed" if closed else "still open after 1 s"
    return answer.status == 200 and closed, (
        f"sent GET /health HTTP/1.0; expected 200 and the end; got {answer.status}, {end}"
    )


def _try_pipelining(connection: Connection) -> tuple[bool, str]:
    connection.send(HEALTH + request("GET", "/no-such-path") + HEALTH)
    bodies = [connection.read_answer().json() for _ in range(3)]
    ok = bodies[1] == NOT_FOUND and bodies[0] == bodies[2] != NOT_FOUND
    return ok, f"sent GET /health, /no-such-path, /health at once; expected their answers in order; got {bodies}"


def _try_header_case(connection: Connection) -> tuple[bool, str]:
    connection.send(b"GET /health HTTP/1.1\r\nhOST: lab\r\ncONNECTION:close\r\n\r\n")
    answer = connection.read_answer()
    closed = connection.is_closed()
    return answer.status == 200 and closed, (
        "sent GET /health with cONNECTION:close; expected 200 and the end; "
        f"got {answer.status}, {'closed' if closed else 'still open after 1 s'}"
    )


def _try_half_closed(connection: Connection) -> tuple[bool, str]:
    connection.send(HEALTH)
    connection.channel.shutdown(socket.SHUT_WR)
    try:
        answer = connection.read_answer()
    except ConnectionError as error:
        # Servers may take the half-close for a client that left; what they may not do is hang.
        return True, f"sent GET /health and closed for writing; got no answer, but the end: {error}"
    closed = connection.is_closed()
    end = "closed" if closed else "still open after 1 s"
    return answer.status == 200 and closed, (
        f"sent GET /health and closed for writing; expected 200 and the end, or the end; got {answer.status}, {end}"
    )


def _try_slow_client(connection: Connection) -> tuple[bool, str]:
    size = -(-len(HEALTH) // 6)
    for start in range(0, len(HEALTH), size):
        connection.send(HEALTH[start : start + size])
        time.sleep(0.05)
    answer = connection.read_answer()
    return answer.status == 200, f"sent GET /health in 6 pieces over 0.3 s; expected 200; got {answer.brief}"


def _experiment_head(*headers: tuple[str, str]) -> bytes:
    return request("POST", "/experiments", headers=(JSON_HEADER, *headers))


def _chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def _try_chunked(connection: Connection) -> tuple[bool, str]:
    connection.send(_experiment_head(CHUNKED) + _chunked(PUBLISHED_BODY[:50], PUBLISHED_BODY[50:]) + HEALTH)
    answer = connection.read_answer()
    if answer.status == 411:
        return True, "sent a chunked body; got 411, which is allowed"
    after = connection.read_answer()
    ok = answer.status == 200 and b"new_home_page" in answer.body and after.status == 200
    return ok, f"sent a chunked body, then GET /health; expected 200 twice; got {answer.brief}, {after.status}"


def _try_expect(connection: Connection) -> tuple[bool, str]:
    length = ("Content-Length", str(len(PUBLISHED_BODY)))
    connection.send(_experiment_head(length, ("Expect", "100-continue")))
    first = connection.read_answer()
    statuses = [first.status]
    if first.status == 100:
        connection.send(PUBLISHED_BODY)
        statuses.append(connection.read_answer().status)
    ok = statuses in ([100, 200], [417])
    return ok, f"sent Expect: 100-continue; expected 100 and then 200, or 417; got {statuses}"


def _try_body_in_pieces(connection: Connection) -> tuple[bool, str]:
    connection.send(_experiment_head(("Content-Length", str(len(PUBLISHED_BODY)))))
    for part in (PUBLISHED_BODY[:1], PUBLISHED_BODY[1:70], PUBLISHED_BODY[70:]):
        time.sleep(0.02)
        connection.send(part)
    answer = connection.read_answer()
    return answer.status == 200, f"sent the body in 3 pieces; expected 200; got {answer.brief}"


def _try_smuggling(connection: Connection) -> tuple[bool, str]:
    # By Transfer-Encoding, everything up to the empty chunk is one request and nothing follows. By
    # Content-Length, the body is the first chunk's size line, and the rest would begin a second request.
    hidden = request("GET", "/no-such-path")
    body = _chunked(hidden)
    size_line = body.index(b"\n") + 1
    connection.send_all_possible(_experiment_head(("Content-Length", str(size_line)), CHUNKED) + body)
    answers = []
    try:
        answers.append(connection.read_answer())
        connection.channel.settimeout(0.2)
        answers.append(connection.read_answer())
    except (ConnectionError, TimeoutError):
        pass  # closed, or silent: no further answer came
    ok = len(answers) < 2 and all(answer.status == 400 for answer in answers)
    return ok, (
        "sent Content-Length with Transfer-Encoding around a hidden GET; expected one 400 (or the end); "
        f"got {[answer.brief for answer in answers]}"
    )


def _try_malformed_chunks(connection: Connection) -> tuple[bool, str]:
    return _try_malformed(_experiment_head(CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n", connection)


def _try_leaving(connection: Connection) -> tuple[bool, str]:
    connection.send(_experiment_head(("Content-Length", "1000")) + PUBLISHED_BODY)
    return True, "sent a part of a body and left; the server must only survive it"


def _try_malformed(data: bytes, connection: Connection) -> tuple[bool, str]:
    connection.send(data)
    try:
        answer = connection.read_answer()
    except ConnectionError:
        return True, f"sent {data[:60]!r}; the server closed without an answer"
    closed = connection.is_closed()
    ok = answer.status >= 400 and answer.status != 500 and closed
    end = "closed" if closed else "still open after 1 s"
    return ok, f"sent {data[:60]!r}; expected 400 and the end; got {answer.brief}, {end}"
