"""Checks of request bodies: chunks, Expect, bodies in pieces, and those that are too large."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from runner.measure.contract.cases import PUBLISHED_BODY, TOO_LARGE
from runner.measure.contract.connections import HEALTH, SILENCE_S
from runner.measure.contract.heads import try_malformed
from runner.measure.contract.steps import Result, Trial, check_connection, ended
from runner.measure.contract.wire import (
    JSON_HEADER,
    MAX_BODY_BYTES,
    ONCE,
    OPEN,
    Answer,
    Connection,
    Target,
    chunked,
    counted_as,
    request,
)
from runner.model import Check, Server

PATH = "/experiments"
CHUNKED = ("Transfer-Encoding", "chunked")
LARGE_BYTES = 1 << 20
HALF = len(PUBLISHED_BODY) // 2
FIRST, SECOND = PUBLISHED_BODY[:HALF], PUBLISHED_BODY[HALF:]


def head(*headers: tuple[str, str], version: str = "HTTP/1.1") -> bytes:
    """Return the head of a POST with JSON; its framing is the caller's."""
    return request("POST", PATH, headers=(JSON_HEADER, *headers), version=version)


def _chunks_written(size: str, end: bytes = b"\r\n") -> bytes:
    """Return a body as one chunk whose size line is written as `size`, a format of its length, which has letters."""
    body = PUBLISHED_BODY.ljust(0xABC)
    return size.format(len(body)).encode() + b"\r\n" + body + b"\r\n0\r\n" + end


WELL_CHUNKED = (
    ("two chunks", chunked(FIRST, SECOND)),
    ("one-byte chunks", chunked(*(bytes((byte,)) for byte in PUBLISHED_BODY))),
    ("sizes in capitals", _chunks_written("{:X}")),
    ("sizes with leading zeros", _chunks_written("{:08x}")),
    ("extensions", _chunks_written('{:x};name=value;flag;quoted="a b"')),
    ("trailers", _chunks_written("{:x}", b"X-Trailer: 1\r\nX-Other: 2\r\n\r\n")),
)
MALFORMED_CHUNKS = (
    ("a size that is no number", b"zz\r\n{}\r\n0\r\n\r\n"),
    ("a negative size", b"-2\r\n{}\r\n0\r\n\r\n"),
    ("a size with 0x", b"0x2\r\n{}\r\n0\r\n\r\n"),
    ("an empty size", b"\r\n{}\r\n0\r\n\r\n"),
    ("a size beyond 64 bits", b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    ("a size smaller than the chunk", b"1\r\n{}\r\n0\r\n\r\n"),
)


def check_bodies(target: Target, server: Server) -> Iterator[Check]:
    """Check bodies on POST /experiments, of a server that has it."""
    if "experiments" not in server.implements:
        return
    for name, trial in _trials(server):
        yield check_connection(name, target, trial)
    for name, data in MALFORMED_CHUNKS:
        yield check_connection(f"malformed chunks: {name}", target, partial(try_malformed, head(CHUNKED) + data))


def _trials(server: Server) -> Iterator[tuple[str, Trial]]:
    may_refuse = server.tier == "raw"
    for name, data in WELL_CHUNKED:
        yield f"chunked body: {name}", partial(_try_chunked, data, may_refuse)
    yield "chunked body: Transfer-Encoding in capitals", partial(_try_capitals, may_refuse)
    yield "chunked body: byte by byte", partial(_try_chunks_byte_by_byte, may_refuse)
    yield "body in pieces", _try_body_in_pieces
    yield "body byte by byte", _try_body_byte_by_byte
    yield "Expect: 100-continue", partial(_try_expect, "100-continue")
    yield "Expect: 100-Continue", partial(_try_expect, "100-Continue")
    yield "Expect: 100-continue, without waiting", _try_expect_unwaited
    yield "Expect: 100-continue of HTTP/1.0 is ignored", _try_expect_1_0
    yield "Expect: 100-continue for a body that is too large", _try_expect_too_large
    yield f"too large: {TOO_LARGE.name}", partial(_try_too_large, TOO_LARGE.body)
    yield "too large: a body of 1 MiB", partial(_try_too_large, PUBLISHED_BODY.ljust(LARGE_BYTES))
    yield "too large: declared, and sent only later", _try_declared
    yield "too large: chunks of 64 KiB and 1 byte", partial(_try_too_large_chunks, MAX_BODY_BYTES + 1, may_refuse)
    yield "too large: chunks of 1 MiB", partial(_try_too_large_chunks, LARGE_BYTES, may_refuse)
    yield "chunks of exactly 64 KiB", partial(_try_chunked, _in_chunks(MAX_BODY_BYTES), may_refuse)
    yield "a client that leaves in the middle of a body", _try_leaving


def _is_published(answer: Answer) -> bool:
    return answer.status == 200 and b"new_home_page" in answer.body


def _try_chunked(data: bytes, may_refuse: bool, connection: Connection) -> Result:
    connection.send(head(CHUNKED) + data + HEALTH, ONCE)
    return _read_published(may_refuse, connection)


def _read_published(may_refuse: bool, connection: Connection) -> Result:
    answer = connection.read_answer()
    if answer.status == 411 and may_refuse:
        return True, "sent a chunked body; got 411, which is allowed to a raw engine"
    after = connection.read_answer()
    ok = _is_published(answer) and after.status == 200
    return ok, f"sent a chunked body, then GET /health; expected 200 twice; got {answer.brief}, {after.status}"


def _try_capitals(may_refuse: bool, connection: Connection) -> Result:
    connection.send(head(("TRANSFER-ENCODING", "Chunked")) + chunked(PUBLISHED_BODY) + HEALTH, ONCE)
    return _read_published(may_refuse, connection)


def _try_chunks_byte_by_byte(may_refuse: bool, connection: Connection) -> Result:
    connection.send(head(CHUNKED), ONCE)
    for byte in chunked(FIRST, SECOND):
        connection.send(bytes((byte,)))
        time.sleep(0.0005)
    connection.send(HEALTH)
    return _read_published(may_refuse, connection)


def _try_body_in_pieces(connection: Connection) -> Result:
    connection.send(head(("Content-Length", str(len(PUBLISHED_BODY)))), ONCE)
    for part in (PUBLISHED_BODY[:1], PUBLISHED_BODY[1:70], PUBLISHED_BODY[70:]):
        time.sleep(0.02)
        connection.send(part)
    answer = connection.read_answer()
    return _is_published(answer), f"sent the body in 3 pieces; expected 200; got {answer.brief}"


def _try_body_byte_by_byte(connection: Connection) -> Result:
    connection.count(ONCE)
    for byte in request("POST", PATH, PUBLISHED_BODY):
        connection.send(bytes((byte,)))
        time.sleep(0.0005)
    answer = connection.read_answer()
    return _is_published(answer), f"sent head and body byte by byte; expected 200; got {answer.brief}"


# --- Expect -----------------------------------------------------------------------------------------------


def _try_expect(value: str, connection: Connection) -> Result:
    connection.send(head(("Content-Length", str(len(PUBLISHED_BODY))), ("Expect", value)), ONCE)
    first = connection.read_answer()
    statuses = [first.status]
    if first.status == 100:
        connection.send(PUBLISHED_BODY + HEALTH)
        statuses += [connection.read_answer().status, connection.read_answer().status]
    ok = statuses in ([100, 200, 200], [417])
    return ok, f"sent Expect: {value}; expected 100 and then 200, or 417; got {statuses}"


def _try_expect_unwaited(connection: Connection) -> Result:
    connection.send(request("POST", PATH, PUBLISHED_BODY, (("Expect", "100-continue"),)) + HEALTH, ONCE)
    statuses = [connection.read_answer().status for _ in range(2)]
    if statuses[0] == 100:
        statuses.append(connection.read_answer().status)
    # The server may leave the 100 out: the body is there already (RFC 9110, section 10.1.1).
    ok = statuses in ([100, 200, 200], [200, 200])
    return ok, f"sent Expect with the body at once, then GET /health; expected 200 twice; got {statuses}"


def _try_expect_1_0(connection: Connection) -> Result:
    connection.send(request("POST", PATH, PUBLISHED_BODY, (("Expect", "100-continue"),), "HTTP/1.0"), ONCE)
    answer = connection.read_answer()
    return _is_published(answer), f"sent Expect by HTTP/1.0, which has no 100; expected 200; got {answer.brief}"


def _try_expect_too_large(connection: Connection) -> Result:
    connection.send(head(("Content-Length", str(LARGE_BYTES)), ("Expect", "100-continue")), OPEN)
    first = connection.read_answer()
    if first.status in (413, 417):
        # The client may now send the body or not: the server closes, or reads it if it comes.
        return _try_after_refusal(first, b"x" * LARGE_BYTES, connection)
    connection.send_all_possible(b"x" * LARGE_BYTES)
    answer = connection.read_answer()
    ok = first.status == 100 and answer.status == 413
    return ok, f"sent Expect for 1 MiB; expected 413, or 100 and then 413; got {first.status}, {answer.brief}"


# --- too large --------------------------------------------------------------------------------------------


def _in_chunks(size: int) -> bytes:
    body = PUBLISHED_BODY.ljust(size)
    return chunked(*(body[start : start + 10_000] for start in range(0, size, 10_000)))


def _try_too_large(body: bytes, connection: Connection) -> Result:
    connection.send_all_possible(request("POST", PATH, body), counted_as("POST", PATH, body))
    return _try_after_refusal(connection.read_answer(), b"", connection)


def _try_too_large_chunks(size: int, may_refuse: bool, connection: Connection) -> Result:
    connection.send_all_possible(head(CHUNKED) + _in_chunks(size), OPEN)
    answer = connection.read_answer()
    if answer.status == 411 and may_refuse:
        return True, "sent chunks; got 411, which is allowed to a raw engine"
    return _try_after_refusal(answer, b"", connection)


def _try_declared(connection: Connection) -> Result:
    # The server may refuse at once, or wait for the body; either way the body comes late.
    connection.send(head(("Content-Length", str(LARGE_BYTES))), OPEN)
    body = b"x" * LARGE_BYTES
    if connection.answers_within(SILENCE_S):
        return _try_after_refusal(connection.read_answer(), body, connection)
    connection.send_all_possible(body)
    return _try_after_refusal(connection.read_answer(), b"", connection)


def _try_after_refusal(refusal: Answer, unsent: bytes, connection: Connection) -> Result:
    """Go on after a 413: the connection is usable, or it ends without another answer."""
    connection.send_all_possible(unsent + HEALTH)
    answers, closed = connection.read_to_the_end(SILENCE_S)
    statuses = [answer.status for answer in answers]
    refused = refusal.status == 413 and refusal.error is not None
    ok = (refused or refusal.status == 417) and (statuses == [200] or (not statuses and closed))
    return ok, (
        "sent a body over 64 KiB, then GET /health; expected 413 with an error, then 200 or the end; "
        f"got {refusal.brief}, then {statuses}, {ended(closed)}"
    )


def _try_leaving(connection: Connection) -> Result:
    connection.send(head(("Content-Length", "1000")) + PUBLISHED_BODY, OPEN)
    return True, "sent a part of a body and left; the server must only survive it"
