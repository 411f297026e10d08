"""Checks of request framing: malformed and large heads, ambiguous framing, and bodies."""

from __future__ import annotations

from collections.abc import Iterator

from runner.contract.client import SILENCE_S, Target, TimedResponse
from runner.contract.experiments import PATH, PUBLISHED_BODY
from runner.contract.messages import (
    HEALTH,
    JSON_HEADER,
    MAX_BODY_BYTES,
    UNKNOWN,
    Message,
    chunked,
    raw,
    request,
)
from runner.contract.rows import OK, End, Exchange, Expected, Result, Rows, status, usable_or_closed
from runner.model import Server

SERVED_HEADERS = 64
"""Every server must accept this number of header lines.

The number is lower than 96, because some frameworks accept at most 96 or 100 header lines.
"""
HUGE_HEAD_BYTES = (1 << 20) + (64 << 10)  # more than net/http's limit of 1 MiB
HIDDEN = UNKNOWN.data  # a request hidden in a body, which the server must never answer
REFUSED = Expected(
    "an error other than 500", lambda answer: answer.status >= 400 and answer.status != 500
)


def _post(
    *lines: bytes, body: bytes = b"", path: bytes = b"/no-such-path", version: bytes = b"HTTP/1.1"
) -> bytes:
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
    (
        "a Content-Length beyond 64 bits",
        _post(b"Content-Length: 18446744073709551620", body=b"{ } "),
    ),
)
"""Malformed requests.

The server must close the connection. Before that, it may send one answer with a status of 4xx or
5xx, except 500.
"""

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
"""Spellings of Transfer-Encoding, each of which is sent together with a Content-Length."""

CODINGS = (b"xchunked", b"chunked, identity", b"chunked;x=1, gzip", b"gzip", b"identity")
UNKNOWN_CODINGS = [b"Transfer-Encoding: " + name for name in CODINGS]
"""Header lines of Transfer-Encoding whose last coding is not `chunked`.

If a request has such a line and no Content-Length, the server cannot know where the body ends.
"""

TWO_LENGTHS = (
    ("the smaller first", b"Content-Length: 4\r\nContent-Length: %d"),
    ("the larger first", b"Content-Length: %d\r\nContent-Length: 4"),
    ("as a list", b"Content-Length: 4, %d"),
    ("as a list, the larger first", b"Content-Length: %d, 4"),
    ("with another header between", b"Content-Length: 4\r\nX-Between: 1\r\ncontent-length: %d"),
)


def head_rows() -> Rows:
    """Return checks of malformed heads, and of well-formed heads at the limits of size."""
    # `_get` adds the header line Host, so the request has SERVED_HEADERS header lines in all.
    numbered = [b"X-Header-%d: %d" % (n, n) for n in range(SERVED_HEADERS - 1)]
    huge = [b"X-Header-%d: %b" % (n, b"x" * 4000) for n in range(HUGE_HEAD_BYTES // 4000)]
    refused = Expected("a 4xx", lambda answer: 400 <= answer.status < 500)
    served = Expected("200 or a 4xx", lambda answer: answer.status == 200 or refused.holds(answer))
    hundred = raw(_get(*(b"X-Header-%d: %d" % (n, n) for n in range(99))), 0, 0)
    return {
        **{f"malformed: {name}": malformed(raw(data)) for name, data in MALFORMED},
        f"head: {SERVED_HEADERS} header lines": Exchange(
            raw(_get(*numbered), 0, 0), OK, End.USABLE_OR_CLOSED
        ),
        "head: 100 header lines": Exchange(
            hundred, served, End.SERVED_OR_CLOSED, may_be_silent=True
        ),
        "head: a value of 2,000 bytes": Exchange(raw(_get(b"X-Long: " + b"x" * 2000), 0, 0), OK),
        "head: more than 1 MiB": Exchange(
            raw(_get(*huge), 0, 0), refused, End.CLOSED, may_be_silent=True
        ),
    }


def malformed(message: Message) -> Exchange:
    """Return the check that the server refuses a malformed message and closes the connection."""
    return Exchange(message + HEALTH, REFUSED, End.CLOSED, may_be_silent=True)


def smuggling_rows(server: Server) -> Rows:
    """Return checks of request smuggling: requests whose framing headers contradict each other.

    The checks with two Content-Lengths work at any path. The other checks send a body to POST
    /experiments, so they are left out if the server lacks this endpoint.
    """
    has_body = "experiments" in server.implements
    path = b"/experiments" if has_body else b"/no-such-path"
    body = b"{ } " + HIDDEN
    rows: dict[str, Exchange | tuple[Exchange, ...]] = {}
    for name, lines in TWO_LENGTHS:
        sent = raw(_post(lines % len(body), body=body, path=path))
        rows[f"smuggling: two Content-Length, {name}"] = Exchange(sent, status(400), End.CLOSED)
    if has_body:
        rows |= {
            f"smuggling: Content-Length with {name}": tuple(_both(line))
            for name, line in BOTH_LENGTHS
        }
        rows |= {f"smuggling: {line.decode()}": _hiding(line) for line in UNKNOWN_CODINGS}
        # RFC 9112, section 6.1: Transfer-Encoding in HTTP/1.0 is faulty framing. The server must
        # close the connection, whatever it answers.
        kept = (b"Connection: keep-alive", b"Transfer-Encoding: chunked")
        rows["smuggling: Transfer-Encoding in HTTP/1.0"] = tuple(
            _hiding(*kept, *more, version=b"HTTP/1.0") for more in ((), (b"Content-Length: 4",))
        )
    return rows


def _hiding(*lines: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1") -> Exchange:
    """Return the check of a request to POST /experiments whose body hides another request.

    By default, the body is a single chunk that contains the request HIDDEN. The server must refuse
    the request or stay silent, and must close the connection without answering HIDDEN.
    """
    sent = raw(_post(*lines, body=body or chunked(HIDDEN), path=b"/experiments", version=version))
    statuses = (400, 501) if body else (400, 411, 501)
    return Exchange(sent, status(*statuses), End.CLOSED, may_be_silent=True)


def _both(line: bytes) -> Iterator[Exchange]:
    """Yield checks of requests with both Content-Length and Transfer-Encoding, in both orders.

    The body of each request hides another request, HIDDEN. In the first two requests, HIDDEN comes
    after the end of the body that Content-Length states. In the last two requests, HIDDEN comes
    after the last chunk.

    By RFC 9112, section 6.1, the server may refuse such a request, or use Transfer-Encoding alone.
    In both cases it must close the connection after its answer. Whichever header the server uses,
    the body is not a valid experiment. So if the server answers, the answer must be an error.
    """
    inside = chunked(HIDDEN)
    behind = chunked() + HIDDEN
    for body, size in ((inside, inside.index(b"\n") + 1), (behind, len(behind))):
        length = b"Content-Length: %d" % size
        for lines in ((length, line), (line, length)):
            yield _hiding(*lines, body=body)


NAME = b"new_home_page"
CHUNKED = ("Transfer-Encoding", "chunked")
LARGE_BYTES = 1 << 20
LARGE_BODY = b"x" * LARGE_BYTES
HALF = len(PUBLISHED_BODY) // 2
IN_TWO_CHUNKS = chunked(PUBLISHED_BODY[:HALF], PUBLISHED_BODY[HALF:])
EXPECT = ("Expect", "100-continue")
LENGTH = ("Content-Length", str(len(PUBLISHED_BODY)))
LARGE_LENGTH = ("Content-Length", str(LARGE_BYTES))


def _is_too_large(answer: TimedResponse) -> bool:
    return answer.status == 417 or (answer.status == 413 and answer.error is not None)


IS_PUBLISHED = Expected(
    "200 with the experiment", lambda answer: answer.status == 200 and NAME in answer.body
)
IS_TOO_LARGE = Expected("413 with an error, or 417", _is_too_large)


def _head(*headers: tuple[str, str]) -> Message:
    """Return the head of a POST of JSON, with these headers; the caller adds the body."""
    return request("POST", PATH, headers=(JSON_HEADER, *headers))


def post_chunks(data: bytes) -> Message:
    """Return a POST with chunked framing, and `data` as its raw body."""
    return _head(CHUNKED) + Message((data,))


def _chunks_written(size: str, end: bytes = b"\r\n") -> bytes:
    """Return a body as one chunk with an unusual size line.

    `size` is a format string that makes the size line from the length of the body. `end` follows
    the last chunk. The body is padded to 0xABC bytes: all digits of this number are letters,
    because one check writes the size in capitals.
    """
    body = PUBLISHED_BODY.ljust(0xABC)
    return size.format(len(body)).encode() + b"\r\n" + body + b"\r\n0\r\n" + end


def _in_chunks(size: int) -> bytes:
    body = PUBLISHED_BODY.ljust(size)
    return chunked(*(body[start : start + 10_000] for start in range(0, size, 10_000)))


WELL_CHUNKED = {
    "chunked body: two chunks": IN_TWO_CHUNKS,
    "chunked body: one-byte chunks": chunked(*(bytes((byte,)) for byte in PUBLISHED_BODY)),
    "chunked body: sizes in capitals": _chunks_written("{:X}"),
    "chunked body: sizes with leading zeros": _chunks_written("{:08x}"),
    "chunked body: extensions": _chunks_written('{:x};name=value;flag;quoted="a b"'),
    "chunked body: trailers": _chunks_written("{:x}", b"X-Trailer: 1\r\nX-Other: 2\r\n\r\n"),
    "chunks of exactly 64 KiB": _in_chunks(MAX_BODY_BYTES),
}
MALFORMED_CHUNKS = {
    "a size that is no number": b"zz",
    "a negative size": b"-2",
    "a size with 0x": b"0x2",
    "an empty size": b"",
    "a size beyond 64 bits": b"fffffffffffffffff",
    "a size smaller than the chunk": b"1",
}


def body_rows(server: Server) -> Rows:
    """Return checks of bodies of POST /experiments.

    If the server lacks this endpoint, there are no checks. Servers written on a raw TCP engine may
    answer a body in chunks with 411.
    """
    if "experiments" not in server.implements:
        return {}
    excused = (411,) if server.tier == "raw" else ()
    in_capitals = _head(("TRANSFER-ENCODING", "Chunked")) + Message((chunked(PUBLISHED_BODY),))
    sent = {name: post_chunks(data) for name, data in WELL_CHUNKED.items()} | {
        "chunked body: Transfer-Encoding in capitals": in_capitals,
        "chunked body: byte by byte": _head(CHUNKED) + Message((IN_TWO_CHUNKS,)).cut(1, 0.0005),
    }
    rows = {
        name: Exchange(message + HEALTH, (IS_PUBLISHED, OK), excused=excused)
        for name, message in sent.items()
    }
    for words, size in (("64 KiB and 1 byte", MAX_BODY_BYTES + 1), ("1 MiB", LARGE_BYTES)):
        message = post_chunks(_in_chunks(size)).maybe_counted()
        rows[f"too large: chunks of {words}"] = Exchange(
            message, IS_TOO_LARGE, End.USABLE_OR_CLOSED, excused
        )
    return {**rows, **ROWS}


def _expect(value: str) -> Exchange:
    rest = Exchange(Message((PUBLISHED_BODY,)) + HEALTH, (OK, OK))
    return Exchange(_head(LENGTH, ("Expect", value)), status(100), rest, excused=(417,))


def _try_expect_too_large(target: Target) -> Result:
    with target.connect() as connection:
        connection.send(_head(LARGE_LENGTH, EXPECT).maybe_counted())
        first = connection.read()
        if first.status == 100:
            connection.send(Message((LARGE_BODY,)))
            second = connection.read()
            return (
                second.status == 413,
                "sent `Expect: 100-continue` for a body of 1 MiB; expected 413 after 100; got "
                f"{second.brief}",
            )
        # The server refused the body at once. The client may still send the body after this answer,
        # but it need not. So the server must either close the connection or read the body.
        ok, detail = usable_or_closed(connection, LARGE_BODY)
    return ok and _is_too_large(first), (
        "sent `Expect: 100-continue` for a body of 1 MiB; expected 413; got "
        f"{first.brief}; {detail}"
    )


def _try_declared(target: Target) -> Result:
    # The server may refuse the request at once, or wait for the body. The client sends the body
    # after the refusal, or after SILENCE_S without a refusal.
    with target.connect() as connection:
        connection.send(_head(LARGE_LENGTH).maybe_counted())
        late = LARGE_BODY
        try:
            refusal = connection.read(SILENCE_S)
        except TimeoutError:
            connection.send(Message((LARGE_BODY,)))
            refusal = connection.read()
            late = b""
        ok, detail = usable_or_closed(connection, late)
    return ok and _is_too_large(
        refusal
    ), f"declared a body of 1 MiB, sent it late; expected 413; got {refusal.brief}; {detail}"


def _too_large(size: int) -> Exchange:
    return Exchange(
        request("POST", PATH, PUBLISHED_BODY.ljust(size)), IS_TOO_LARGE, End.USABLE_OR_CLOSED
    )


ROWS: Rows = {
    "body in pieces": Exchange(
        _head(LENGTH)
        + Message((PUBLISHED_BODY[:1], PUBLISHED_BODY[1:70], PUBLISHED_BODY[70:]), pause_s=0.02),
        IS_PUBLISHED,
    ),
    "body byte by byte": Exchange(
        request("POST", PATH, PUBLISHED_BODY).cut(1, 0.0005), IS_PUBLISHED
    ),
    "Expect: 100-continue": _expect("100-continue"),
    "Expect: 100-Continue": _expect("100-Continue"),
    # The server may omit status 100 if the body has already arrived (RFC 9110, section 10.1.1).
    "Expect: 100-continue, without waiting": Exchange(
        request("POST", PATH, PUBLISHED_BODY, (EXPECT,)) + HEALTH, (OK, OK), may_continue=True
    ),
    # HTTP/1.0 has no status 100, so the server must ignore `Expect` in a request of HTTP/1.0.
    "Expect: 100-continue of HTTP/1.0 is ignored": Exchange(
        request("POST", PATH, PUBLISHED_BODY, (EXPECT,), "HTTP/1.0"), IS_PUBLISHED
    ),
    "Expect: 100-continue for a body that is too large": _try_expect_too_large,
    "too large: a body of 64 KiB and 1 byte": _too_large(MAX_BODY_BYTES + 1),
    "too large: a body of 1 MiB": _too_large(LARGE_BYTES),
    "too large: declared, and sent only later": _try_declared,
    # The client sends a part of the body, and closes the connection without reading. Whether the
    # server answers does not matter, but it must survive.
    "a client that leaves in the middle of a body": Exchange(
        (_head(("Content-Length", "1000")) + Message((PUBLISHED_BODY,))).maybe_counted(), ()
    ),
    **{
        f"malformed chunks: {name}": malformed(
            post_chunks(size + b"\r\n{}\r\n0\r\n\r\n").maybe_counted()
        )
        for name, size in MALFORMED_CHUNKS.items()
    },
}
