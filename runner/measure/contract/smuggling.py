"""Checks of request smuggling: framings that two readers would read differently must end the connection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from runner.measure.contract.connections import SILENCE_S
from runner.measure.contract.steps import Result, check, ended
from runner.measure.contract.wire import OPEN, Target, chunked, connect, request
from runner.model import Check, Server

HIDDEN = request("GET", "/no-such-path")
"""The request inside a body, which must never be answered."""

BOTH_LENGTHS = (
    ("Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    ("chunked in capitals", b"TRANSFER-ENCODING: CHUNKED"),
    ("a tab before chunked", b"Transfer-Encoding:\tchunked"),
    ("no space before chunked, one after", b"Transfer-Encoding:chunked "),
    ("xchunked", b"Transfer-Encoding: xchunked"),
    ("chunked, identity", b"Transfer-Encoding: chunked, identity"),
    ("identity, chunked", b"Transfer-Encoding: identity, chunked"),
    ("lines of chunked and identity", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
    ("lines of identity and chunked", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
    ("two lines of chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    ("white space before the colon", b"Transfer-Encoding : chunked"),
    ("a vertical tab before chunked", b"Transfer-Encoding: \x0bchunked"),
    ("chunked on a folded line", b"Transfer-Encoding:\r\n chunked"),
    ("chunked in quotes", b'Transfer-Encoding: "chunked"'),
    ("an empty value", b"Transfer-Encoding:"),
)
"""Spellings of Transfer-Encoding that stand beside a Content-Length."""

UNKNOWN_CODINGS = (b"xchunked", b"chunked, identity", b"chunked;x=1, gzip", b"gzip", b"identity")
"""Codings without Content-Length that leave the body's end unknown: chunked is not the last one."""

TWO_LENGTHS = (
    ("the smaller first", b"Content-Length: 4\r\nContent-Length: %d"),
    ("the larger first", b"Content-Length: %d\r\nContent-Length: 4"),
    ("as a list", b"Content-Length: 4, %d"),
    ("as a list, the larger first", b"Content-Length: %d, 4"),
    ("with another header between", b"Content-Length: 4\r\nX-Between: 1\r\ncontent-length: %d"),
)


def check_smuggling(target: Target, server: Server) -> Iterator[Check]:
    """Check every spelling in both orders and both shapes; needs an endpoint with a body, except for two lengths."""
    path = "/experiments" if "experiments" in server.implements else "/no-such-path"
    for name, lines in TWO_LENGTHS:
        yield check(f"smuggling: two Content-Length, {name}", partial(_try_two_lengths, target, path, lines))
    if "experiments" not in server.implements:
        return
    for name, line in BOTH_LENGTHS:
        yield check(f"smuggling: Content-Length with {name}", partial(_try_both, target, line))
    for coding in UNKNOWN_CODINGS:
        yield check(f"smuggling: Transfer-Encoding: {coding.decode()}", partial(_try_unknown, target, coding))
    yield check("smuggling: Transfer-Encoding in HTTP/1.0", partial(_try_http_1_0, target))


def _shapes(line: bytes) -> Iterator[bytes]:
    """Yield requests that hide another one, with both headers in both orders.

    Read by Content-Length, the first shape's body ends before HIDDEN; read by Transfer-Encoding, the second's does.
    """
    inside = chunked(HIDDEN)
    behind = chunked() + HIDDEN
    for body, length in ((inside, inside.index(b"\n") + 1), (behind, len(behind))):
        for lines in ((b"Content-Length: %d" % length, line), (line, b"Content-Length: %d" % length)):
            yield b"\r\n".join((b"POST /experiments HTTP/1.1", b"Host: lab", *lines, b"", body))


def _try_both(target: Target, line: bytes) -> Result:
    # RFC 9112, section 6.1: the server may refuse, or read by Transfer-Encoding alone, and must close after
    # its answer in both cases. None of these bodies is an experiment: read by any length, the answer is 400.
    for data in _shapes(line):
        ok, detail = _try_one(target, data, (400, 501))
        if not ok:
            return ok, detail
    return True, "sent 4 requests that hide another; none was answered, and all connections ended"


def _try_unknown(target: Target, coding: bytes) -> Result:
    data = b"POST /experiments HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: " + coding + b"\r\n\r\n" + chunked(HIDDEN)
    return _try_one(target, data, (400, 411, 501))


def _try_two_lengths(target: Target, path: str, lines: bytes) -> Result:
    body = b"{ } " + HIDDEN
    head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: lab\r\n" + lines % len(body) + b"\r\n\r\n"
    return _try_one(target, head + body, (400,), may_be_silent=False)


def _try_http_1_0(target: Target) -> Result:
    # RFC 9112, section 6.1: the framing is faulty; the server closes, whatever it makes of the request.
    head = b"POST /experiments HTTP/1.0\r\nHost: lab\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n"
    for more in (b"", b"Content-Length: 4\r\n"):
        ok, detail = _try_one(target, head + more + b"\r\n" + chunked(HIDDEN), (400, 411, 501))
        if not ok:
            return ok, detail
    return True, "sent Transfer-Encoding by HTTP/1.0 with keep-alive; nothing hidden was answered, and it ended"


def _try_one(target: Target, data: bytes, statuses: tuple[int, ...], *, may_be_silent: bool = True) -> Result:
    with connect(target) as connection:
        connection.send_all_possible(data, OPEN)
        answers, closed = connection.read_to_the_end(SILENCE_S)
    got = [answer.status for answer in answers]
    ok = closed and (len(got) == 1 and got[0] in statuses if got else may_be_silent)
    expected = f"{statuses[0]} {'(or no answer) ' if may_be_silent else ''}and the end"
    return ok, f"sent {data!r}; expected {expected}; got {[a.brief for a in answers]}, {ended(closed)}"
