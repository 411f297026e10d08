"""Checks of request bodies: chunks, Expect, bodies in pieces, and those that are too large."""

from __future__ import annotations

from runner.contract.checking import OK, End, Exchange, Expected, Result, Rows, status, usable_or_closed
from runner.contract.connection import (
    HEALTH,
    JSON_HEADER,
    MAX_BODY_BYTES,
    SILENCE_S,
    Answer,
    Message,
    Target,
    chunked,
    connect,
    request,
)
from runner.contract.experiments import PATH, PUBLISHED_BODY, TOO_LARGE
from runner.contract.heads import malformed
from runner.model import Server

CHUNKED = ("Transfer-Encoding", "chunked")
LARGE_BYTES = 1 << 20
LARGE_BODY = b"x" * LARGE_BYTES
HALF = len(PUBLISHED_BODY) // 2
IN_TWO_CHUNKS = chunked(PUBLISHED_BODY[:HALF], PUBLISHED_BODY[HALF:])
EXPECT = ("Expect", "100-continue")
LENGTH = ("Content-Length", str(len(PUBLISHED_BODY)))
LARGE_LENGTH = ("Content-Length", str(LARGE_BYTES))


def _is_published(answer: Answer) -> bool:
    return answer.status == 200 and b"new_home_page" in answer.body


def _is_too_large(answer: Answer) -> bool:
    return answer.status == 417 or (answer.status == 413 and answer.error is not None)


IS_PUBLISHED = Expected("200 with the experiment", _is_published)
IS_TOO_LARGE = Expected("413 with an error, or 417", _is_too_large)


def _head(*headers: tuple[str, str]) -> Message:
    """Return the head of a POST with JSON; its framing is the caller's."""
    return request("POST", PATH, headers=(JSON_HEADER, *headers))


def _body(*parts: bytes) -> Message:
    return Message(parts)


def _chunks_written(size: str, end: bytes = b"\r\n") -> bytes:
    """Return a body as one chunk whose size line is written as `size`, a format of its length, which has letters."""
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
    """Return rows for bodies on POST /experiments, of a server that has it."""
    return {**_chunked_rows(server), **ROWS} if "experiments" in server.implements else {}


def _chunked_rows(server: Server) -> dict[str, Exchange]:
    """Return rows for chunks that are well-formed; a raw engine may answer 411 to all of them."""
    excused = (411,) if server.tier == "raw" else ()
    in_capitals = _head(("TRANSFER-ENCODING", "Chunked")) + _body(chunked(PUBLISHED_BODY))
    sent = {name: _head(CHUNKED) + _body(data) for name, data in WELL_CHUNKED.items()} | {
        "chunked body: Transfer-Encoding in capitals": in_capitals,
        "chunked body: byte by byte": _head(CHUNKED) + _body(IN_TWO_CHUNKS).cut(1, 0.0005),
    }
    rows = {name: Exchange(message + HEALTH, (IS_PUBLISHED, OK), excused=excused) for name, message in sent.items()}
    for words, size in (("64 KiB and 1 byte", MAX_BODY_BYTES + 1), ("1 MiB", LARGE_BYTES)):
        message = (_head(CHUNKED) + _body(_in_chunks(size))).maybe_counted()
        rows[f"too large: chunks of {words}"] = Exchange(message, IS_TOO_LARGE, End.USABLE_OR_CLOSED, excused)
    return rows


def _expect(value: str) -> Exchange:
    rest = Exchange(_body(PUBLISHED_BODY) + HEALTH, (OK, OK))
    return Exchange(_head(LENGTH, ("Expect", value)), status(100), rest, excused=(417,))


def _try_expect_unwaited(target: Target) -> Result:
    with connect(target) as connection:
        connection.send(request("POST", PATH, PUBLISHED_BODY, (EXPECT,)) + HEALTH)
        statuses = [connection.read().status for _ in range(2)]
        if statuses[0] == 100:
            statuses.append(connection.read().status)
    # The server may leave the 100 out: the body is there already (RFC 9110, section 10.1.1).
    ok = statuses in ([100, 200, 200], [200, 200])
    return ok, f"sent Expect with the body at once, then GET /health; expected 200 twice; got {statuses}"


def _try_expect_too_large(target: Target) -> Result:
    with connect(target) as connection:
        connection.send(_head(LARGE_LENGTH, EXPECT).maybe_counted())
        first = connection.read()
        if first.status == 100:
            connection.send(_body(LARGE_BODY))
            second = connection.read()
            return second.status == 413, f"sent Expect for 1 MiB; expected 413 after 100; got {second.brief}"
        # The client may now send the body or not: the server closes, or reads it if it comes.
        ok, detail = usable_or_closed(connection, LARGE_BODY)
    return ok and _is_too_large(first), f"sent Expect for 1 MiB; expected 413; got {first.brief}; {detail}"


def _try_declared(target: Target) -> Result:
    # The server may refuse at once, or wait for the body; either way the body comes late.
    with connect(target) as connection:
        connection.send(_head(LARGE_LENGTH).maybe_counted())
        late = LARGE_BODY
        try:
            refusal = connection.read(SILENCE_S)
        except TimeoutError:
            connection.send(_body(LARGE_BODY))
            refusal, late = connection.read(), b""
        ok, detail = usable_or_closed(connection, late)
    return ok and _is_too_large(refusal), f"declared 1 MiB, and sent it late; got {refusal.brief}; {detail}"


def _too_large(body: bytes) -> Exchange:
    return Exchange(request("POST", PATH, body), IS_TOO_LARGE, End.USABLE_OR_CLOSED)


ROWS: Rows = {
    "body in pieces": Exchange(
        _head(LENGTH) + Message((PUBLISHED_BODY[:1], PUBLISHED_BODY[1:70], PUBLISHED_BODY[70:]), pause_s=0.02),
        IS_PUBLISHED,
    ),
    "body byte by byte": Exchange(request("POST", PATH, PUBLISHED_BODY).cut(1, 0.0005), IS_PUBLISHED),
    "Expect: 100-continue": _expect("100-continue"),
    "Expect: 100-Continue": _expect("100-Continue"),
    "Expect: 100-continue, without waiting": _try_expect_unwaited,
    # HTTP/1.0 has no 100.
    "Expect: 100-continue of HTTP/1.0 is ignored": Exchange(
        request("POST", PATH, PUBLISHED_BODY, (EXPECT,), "HTTP/1.0"), IS_PUBLISHED
    ),
    "Expect: 100-continue for a body that is too large": _try_expect_too_large,
    f"too large: {TOO_LARGE.name}": _too_large(TOO_LARGE.body),
    "too large: a body of 1 MiB": _too_large(PUBLISHED_BODY.ljust(LARGE_BYTES)),
    "too large: declared, and sent only later": _try_declared,
    # The server must only survive it.
    "a client that leaves in the middle of a body": Exchange(
        (_head(("Content-Length", "1000")) + _body(PUBLISHED_BODY)).maybe_counted(), ()
    ),
    **{
        f"malformed chunks: {name}": malformed((_head(CHUNKED) + _body(size + b"\r\n{}\r\n0\r\n\r\n")).maybe_counted())
        for name, size in MALFORMED_CHUNKS.items()
    },
}
