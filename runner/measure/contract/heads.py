"""Checks of request heads: how large they may be, and what is not HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from runner.measure.contract.steps import Result, check_connection, ended
from runner.measure.contract.wire import OPEN, Connection, Target, request
from runner.model import Check

HEALTH = request("GET", "/health")
SILENCE_S = 0.3
SERVED_HEADERS = 64
"""Header lines that every server must take; beyond, frameworks draw their lines at 96 or 100."""
HUGE_HEAD_BYTES = (1 << 20) + (64 << 10)
"""1 MiB, which is net/http's limit, and some more."""


def _post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((b"POST /no-such-path HTTP/1.1", b"Host: lab", *lines, b"", body))


def _get(*lines: bytes, target: bytes = b"/health", version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join((b"GET " + target + b" " + version, b"Host: lab", *lines, b"", b""))


MALFORMED = (
    ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    ("a request line of one word", b"GARBAGE\r\n\r\n"),
    ("a request line of two words", b"GET /health\r\nHost: lab\r\n\r\n"),
    ("an unknown version", _get(version=b"HTTP/9.9")),
    ("a version in lower case", _get(version=b"http/1.1")),
    ("a version that is no number", _get(version=b"HTTP/1.x")),
    ("a control character in the target", _get(target=b"/he\x01alth")),
    ("a header line without a colon", _get(b"no colon here")),
    ("an empty header name", _get(b": value")),
    ("a control character in a header name", _get(b"X\x01Name: value")),
    ("a null in a header name", _get(b"X\0Name: value")),
    ("a null in a header value", _get(b"X-Name: a\0b")),
    ("white space before a colon", _post(b"Content-Length : 4", body=b"{ } ")),
    ("a Content-Length that is no number", _post(b"Content-Length: ten")),
    ("a negative Content-Length", _post(b"Content-Length: -1")),
    ("a Content-Length with a plus", _post(b"Content-Length: +4", body=b"{ } ")),
    ("a Content-Length in hex", _post(b"Content-Length: 0x4", body=b"{ } ")),
    ("a Content-Length with a fraction", _post(b"Content-Length: 4.0", body=b"{ } ")),
    ("a Content-Length of two numbers", _post(b"Content-Length: 4 4", body=b"{ } ")),
    ("a Content-Length beyond 64 bits", _post(b"Content-Length: 18446744073709551620", body=b"{ } ")),
)
"""Requests that must end in a 4xx or 5xx answer other than 500, or in none, and in a closed connection."""


def check_heads(target: Target) -> Iterator[Check]:
    """Check malformed heads, which must not be served, and the limits of well-formed ones."""
    for name, data in MALFORMED:
        yield check_connection(f"malformed: {name}", target, partial(try_malformed, data))
    yield check_connection(f"head: {SERVED_HEADERS} header lines", target, partial(_try_headers, SERVED_HEADERS, False))
    yield check_connection("head: 100 header lines", target, partial(_try_headers, 100, True))
    yield check_connection("head: a value of 2,000 bytes", target, _try_long_value)
    yield check_connection("head: more than 1 MiB", target, _try_huge_head)


def try_malformed(data: bytes, connection: Connection) -> Result:
    """Send something malformed and a request behind it, which must not be answered."""
    connection.send_all_possible(data + HEALTH, OPEN)
    answers, closed = connection.read_to_the_end(SILENCE_S)
    # The framing is lost: whatever follows is not a request (RFC 9112, section 6.3).
    ok = closed and len(answers) <= 1 and all(a.status >= 400 and a.status != 500 for a in answers)
    return ok, (
        f"sent {data[:100]!r}, then GET /health; expected 400 (or no answer) and the end; "
        f"got {[a.brief for a in answers]}, {ended(closed)}"
    )


def _try_headers(number: int, may_refuse: bool, connection: Connection) -> Result:
    lines = [b"X-Header-%d: %d" % (n, n) for n in range(number - 1)]  # Host is one, too
    connection.send_all_possible(_get(*lines))
    answers, closed = connection.read_to_the_end(0.05)
    statuses = [answer.status for answer in answers]
    refused = may_refuse and closed and all(400 <= status < 500 for status in statuses)
    expected = "200, or a refusal and the end" if may_refuse else "200"
    return statuses == [
        200
    ] or refused, f"sent {number} header lines; expected {expected}; got {statuses}, {ended(closed)}"


def _try_long_value(connection: Connection) -> Result:
    connection.send(_get(b"X-Long: " + b"x" * 2000))
    answer = connection.read_answer()
    return answer.status == 200, f"sent a header value of 2,000 bytes; expected 200; got {answer.brief}"


def _try_huge_head(connection: Connection) -> Result:
    connection.send_all_possible(_get(*[b"X-Header-%d: %b" % (n, b"x" * 4000) for n in range(HUGE_HEAD_BYTES // 4000)]))
    answers, closed = connection.read_to_the_end(SILENCE_S)
    statuses = [answer.status for answer in answers]
    ok = closed and len(statuses) <= 1 and all(400 <= status < 500 for status in statuses)
    return ok, (
        f"sent a head of {HUGE_HEAD_BYTES >> 10} KiB; expected an error (or no answer) and the end; "
        f"got {statuses}, {ended(closed)}"
    )
