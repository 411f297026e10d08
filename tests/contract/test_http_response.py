"""Tests of the lab's reader of HTTP responses, compared with the independent reader h11."""

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.http_response import Response, ResponseReader

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read_by_h11(wire: bytes, method: str = "GET") -> tuple[h11.Response, bytes, bool, bytes]:
    """Read a response with h11.

    Return the head, the body, whether the connection is kept, and the bytes after the response.
    """
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "lab")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(wire)
    connection.receive_data(b"")
    head = None
    body = b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            is_kept = connection.their_state is h11.DONE
            return head, body, is_kept, bytes(connection.trailing_data[0])
        elif event is h11.NEED_DATA:
            raise h11.RemoteProtocolError("the response has no end")


def read_by_ours(
    wire: bytes, piece_bytes: int = 1 << 20, *, head_only: bool = False
) -> tuple[Response, bytes]:
    """Feed a response to the lab's reader in pieces of `piece_bytes`.

    Return the response, and the bytes after the response.
    """
    reader = ResponseReader()
    response = None
    for start in range(0, len(wire), piece_bytes):
        reader.feed(wire[start : start + piece_bytes])
        response = response or reader.take(head_only=head_only)
    if response is None:
        reader.feed(b"")
        response = reader.take(head_only=head_only)
    return response, reader.pending


# --- valid responses ------------------------------------------------------------------------------

TOKENS = st.text("abcXYZ019-_.!~", min_size=1, max_size=12)
VALUES = st.text('abc XYZ019;,="/\t:', max_size=20).map(lambda text: text.strip(" \t"))
SPACES = st.sampled_from(["", " ", "  ", "\t"])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Draw a response that is valid by RFC 9112, with or without an interim response before it."""
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 500, 599]))
    reason = draw(st.sampled_from(["", " ", " OK", " Not Found"]))
    names = draw(st.lists(TOKENS.map(lambda name: f"X-{name}"), max_size=4))
    lines = [f"{name}:{draw(SPACES)}{draw(VALUES)}{draw(SPACES)}" for name in names]
    if draw(st.booleans()):
        lines.append(draw(st.sampled_from(["Connection: close", "connection: Keep-Alive"])))
    body = draw(st.binary(max_size=60))
    framing = draw(st.sampled_from(["length", "chunks", "end"]))
    if status in (204, 304):
        framing, body = "none", b""
    if framing == "length":
        lines.append(f"CONTENT-length:{draw(SPACES)}{len(body)}")
    if framing == "chunks":
        lines.append("Transfer-Encoding: chunked")
        body = draw(chunks(body))
    head = "\r\n".join([f"HTTP/1.1 {status}{reason}", *lines, "", ""])
    return early + head.encode("latin-1") + body


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw a way to send a body in chunks.

    The sizes of the chunks have upper or lower case digits. Extensions and trailers are optional.
    """
    cuts = sorted(draw(st.sets(st.integers(1, len(body) - 1), max_size=4))) if len(body) > 1 else []
    parts = [
        body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True) if body
    ]
    size = draw(st.sampled_from(["{:x}", "{:X}", "{:04x}", "{:x};name=value"]))
    trailer = draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"]))
    written = [size.format(len(part)).encode() + b"\r\n" + part + b"\r\n" for part in parts]
    return b"".join([*written, b"0\r\n", trailer, b"\r\n"])


@settings(max_examples=300, deadline=None)
@given(wire=responses(), piece_bytes=st.sampled_from([1, 2, 7, 64, 4096]))
def test_a_response_that_keeps_the_rules_is_read_as_h11_reads_it(wire, piece_bytes):
    head, body, is_kept, behind = read_by_h11(wire)
    found, pending = read_by_ours(wire, piece_bytes)
    ends_with_connection = found.length is None and not found.chunked
    assert (found.status, found.body) == (head.status_code, body)
    assert found.kept == (is_kept and not ends_with_connection)
    assert pending == behind == b""
    theirs = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    assert found.headers == theirs


@pytest.mark.parametrize("framing", [LENGTH + b"\r\n", CHUNKED])
def test_the_answer_to_head_has_no_body_and_what_follows_stays(framing):
    after = LENGTH + b"\r\nok"
    head, body, _, behind = read_by_h11(framing + after, "HEAD")
    found, pending = read_by_ours(framing + after, head_only=True)
    assert (found.status, found.body) == (head.status_code, body) == (200, b"")
    assert pending == behind == after


# --- invalid responses ----------------------------------------------------------------------------

BROKEN = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 99 OK\r\nContent-Length: 2\r\n\r\nok",
    "an empty line before it": b"\r\n" + LENGTH + b"\r\nok",
    "a header line without a colon": LENGTH + b"no colon\r\n\r\nok",
    "an empty header name": LENGTH + b": value\r\n\r\nok",
    "white space before a colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a null in a header value": LENGTH + b"X-Name: a\0b\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "two lengths": LENGTH + b"Content-Length: 3\r\n\r\nok",
    "a negative size": CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
    "an empty size": CHUNKED + b"\r\nok\r\n0\r\n\r\n",
    "a size behind a space": CHUNKED + b" 2\r\nok\r\n0\r\n\r\n",
    "a size that ends in LF": CHUNKED + b"2\nok\r\n0\r\n\r\n",
    "a size smaller than its chunk": CHUNKED + b"1\r\nok\r\n0\r\n\r\n",
    "a chunk without its end": CHUNKED + b"2\r\nokXX0\r\n\r\n",
    "a body that is cut off": LENGTH + b"\r\no",
    "chunks that are cut off": CHUNKED + b"2\r\nok\r\n",
}
TAKEN_BY_H11 = {
    "lines that end in LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a head that ends in LF": b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "another version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
}
"""For each fault, an invalid response that h11 accepts.

If the lab read responses with h11, the checks of the contract would miss these faults.
"""


@pytest.mark.parametrize("name", BROKEN)
def test_a_response_that_breaks_the_rules_is_refused_by_both(name):
    with pytest.raises(h11.RemoteProtocolError):
        read_by_h11(BROKEN[name])
    with pytest.raises((ValueError, ConnectionResetError)):
        read_by_ours(BROKEN[name])


@pytest.mark.parametrize("name", TAKEN_BY_H11)
def test_what_h11_takes_though_it_breaks_the_rules_is_refused(name):
    assert read_by_h11(TAKEN_BY_H11[name])[1] == b"ok"
    with pytest.raises((ValueError, ConnectionResetError)):
        read_by_ours(TAKEN_BY_H11[name])


def test_equal_lengths_are_one_and_a_folded_value_is_one_line():
    for more in (b"Content-Length: 2\r\n", b"X-Folded: a,\r\n\tb\r\n"):
        head, body, _, _ = read_by_h11(LENGTH + more + b"\r\nok")
        found, _ = read_by_ours(LENGTH + more + b"\r\nok")
        assert found.body == body == b"ok"
        assert found.headers == {name.decode(): value.decode() for name, value in head.headers}


def test_a_kept_connection_of_http_1_0_serves_on():
    """A connection of HTTP/1.0 is kept if its response says keep-alive (RFC 9112, section 9.3).

    h11 never reports a connection of HTTP/1.0 as kept, so the two readers differ in this case.
    """
    wire = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    assert not read_by_h11(wire)[2]
    assert read_by_ours(wire)[0].kept
