"""Checks of request heads: how large they may be, what is not HTTP, and framings that two readers read differently."""

from __future__ import annotations

from collections.abc import Iterator

from runner.contract.checking import OK, End, Exchange, Expected, Result, Rows, shown, status
from runner.contract.connection import HEALTH, UNKNOWN, Message, Target, chunked, connect, raw
from runner.model import Server

SERVED_HEADERS = 64
"""Header lines that every server must take; beyond, frameworks draw their lines at 96 or 100."""
HUGE_HEAD_BYTES = (1 << 20) + (64 << 10)
"""1 MiB, which is net/http's limit, and some more."""
HIDDEN = UNKNOWN.data
"""The request inside a body, which must never be answered."""
REFUSED = Expected("an error other than 500", lambda answer: answer.status >= 400 and answer.status != 500)


def _post(*lines: bytes, body: bytes = b"", path: bytes = b"/no-such-path", version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join((b"POST " + path + b" " + version, b"Host: lab", *lines, b"", body))


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


def head_rows() -> Rows:
    """Return rows for malformed heads, which must not be served, and the limits of well-formed ones."""
    numbered = [b"X-Header-%d: %d" % (n, n) for n in range(SERVED_HEADERS - 1)]  # Host is one, too
    huge = [b"X-Header-%d: %b" % (n, b"x" * 4000) for n in range(HUGE_HEAD_BYTES // 4000)]
    refused = Expected("a 4xx", lambda answer: 400 <= answer.status < 500)
    return {
        **{f"malformed: {name}": malformed(raw(data)) for name, data in MALFORMED},
        f"head: {SERVED_HEADERS} header lines": Exchange(raw(_get(*numbered), 0, 0), OK, End.USABLE_OR_CLOSED),
        "head: 100 header lines": _try_hundred_headers,
        "head: a value of 2,000 bytes": Exchange(raw(_get(b"X-Long: " + b"x" * 2000), 0, 0), OK),
        "head: more than 1 MiB": Exchange(raw(_get(*huge), 0, 0), refused, End.CLOSED, may_be_silent=True),
    }


def malformed(message: Message) -> Exchange:
    """Return the row of something malformed: the server refuses it and ends, and a request behind it is not answered.

    The framing is lost: whatever follows is not a request (RFC 9112, section 6.3).
    """
    return Exchange(message + HEALTH, REFUSED, End.CLOSED, may_be_silent=True)


def _try_hundred_headers(target: Target) -> Result:
    with connect(target) as connection:
        connection.send(raw(_get(*(b"X-Header-%d: %d" % (n, n) for n in range(99))), 0, 0))
        answers, closed = connection.read_to_the_end(0.05)
    statuses = [answer.status for answer in answers]
    ok = statuses == [200] or (closed and all(400 <= code < 500 for code in statuses))
    return ok, f"sent 100 header lines; expected 200, or a refusal and the end; got {shown(answers, closed)}"


def smuggling_rows(server: Server) -> Rows:
    """Return rows for every spelling in both orders and shapes; for two lengths only where no path takes a body."""
    has_body = "experiments" in server.implements
    path = b"/experiments" if has_body else b"/no-such-path"
    body = b"{ } " + HIDDEN
    rows: dict[str, Exchange | tuple[Exchange, ...]] = {}
    for name, lines in TWO_LENGTHS:
        sent = raw(_post(lines % len(body), body=body, path=path))
        rows[f"smuggling: two Content-Length, {name}"] = Exchange(sent, status(400), End.CLOSED)
    return rows | EXPERIMENT_ROWS if has_body else rows


def _hiding(*lines: bytes, body: bytes, statuses: tuple[int, ...], version: bytes = b"HTTP/1.1") -> Exchange:
    sent = raw(_post(*lines, body=body, path=b"/experiments", version=version))
    return Exchange(sent, status(*statuses), End.CLOSED, may_be_silent=True)


def _both(line: bytes) -> Iterator[Exchange]:
    """Yield requests that hide another one, with both headers in both orders.

    Read by Content-Length, the first shape's body ends before HIDDEN; read by Transfer-Encoding, the second's does.
    RFC 9112, section 6.1: the server may refuse, or read by Transfer-Encoding alone, and must close after its answer in
    both cases. None of these bodies is an experiment: read by any length, the answer is 400.
    """
    inside = chunked(HIDDEN)
    behind = chunked() + HIDDEN
    for body, size in ((inside, inside.index(b"\n") + 1), (behind, len(behind))):
        length = b"Content-Length: %d" % size
        for lines in ((length, line), (line, length)):
            yield _hiding(*lines, body=body, statuses=(400, 501))


def _without_length(*lines: bytes, version: bytes = b"HTTP/1.1") -> Exchange:
    return _hiding(*lines, body=chunked(HIDDEN), statuses=(400, 411, 501), version=version)


EXPERIMENT_ROWS: dict[str, Exchange | tuple[Exchange, ...]] = {
    **{f"smuggling: Content-Length with {name}": tuple(_both(line)) for name, line in BOTH_LENGTHS},
    **{
        f"smuggling: Transfer-Encoding: {coding.decode()}": _without_length(b"Transfer-Encoding: " + coding)
        for coding in UNKNOWN_CODINGS
    },
    # RFC 9112, section 6.1: the framing is faulty; the server closes, whatever it makes of the request.
    "smuggling: Transfer-Encoding in HTTP/1.0": tuple(
        _without_length(b"Connection: keep-alive", b"Transfer-Encoding: chunked", *more, version=b"HTTP/1.0")
        for more in ((), (b"Content-Length: 4",))
    ),
}
