"""Parse HTTP/1 responses from bytes as they arrive (RFC 9112); no other module parses them.

The probe, and the code that polls a server's /stats, feed bytes to a `ResponseReader`, which never
waits. The checks of the contract, and the code that starts servers, use `read_response`, which
waits for further bytes. The library h11 is not used, because it takes sixteen times as much CPU
time as this parser, and accepts lines that end in a bare LF (docs/decisions.md). But tests compare
the results of this parser with those of h11.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

RECEIVE_BYTES = 65_536
MOST_BYTES = 1 << 24
"""A response of more bytes than this is an error.

The lab's own requests have short answers.
"""
_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(r"HTTP/1\.([0-9]) ([0-9]{3})(?![0-9])")
_FOLD = re.compile(r"\r\n[ \t]+")
"""Pattern of a line break inside a header value, which is read as a space.

RFC 9112, section 5.2, calls it obsolete line folding.
"""
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+")


@dataclass(frozen=True)
class Response:
    """One response: its status, headers and body, and whether the connection stays open."""

    status: int
    headers: Mapping[str, str]  # by name in lower case, each with the value of its last line
    kept: bool  # True if the server keeps the connection open after the response
    length: int | None  # length of the body in bytes; None if the header does not give it
    chunked: bool
    body: bytes


@lru_cache(16)
def parse_head(text: bytes) -> Response:
    """Parse the head of a response; `text` ends before the blank line that ends the head.

    Raise ValueError if the text is not HTTP/1. Results are cached, because a server's responses
    have the same head until the header Date changes.
    """
    first, *lines = _FOLD.sub(" ", text.decode("latin-1")).split("\r\n")
    matched = _STATUS_LINE.match(first)
    if not matched:
        raise ValueError(f"this is not a status line of HTTP/1: {first[:80]!r}")
    headers = _headers(lines)
    status = int(matched[2])
    connection = headers.get("connection", "").lower()
    chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
    said = headers.get("content-length")
    length = None
    if said is not None and not chunked:
        if not (said.isascii() and said.isdigit()):
            raise ValueError(f"the Content-Length is {said!r}, which is not a number")
        length = int(said)
    if status < 200 or status in (204, 304):
        chunked = False
        length = 0
    kept = "keep-alive" in connection if matched[1] == "0" else "close" not in connection
    return Response(
        status, headers, kept and (chunked or length is not None), length, chunked, body=b""
    )


def _headers(lines: Sequence[str]) -> dict[str, str]:
    """Return the values of header lines by name, in lower case.

    If several lines have the same name, return the value of the last line.

    Raise ValueError for an invalid line, and for two different values of Content-Length.
    """
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if not field:
            raise ValueError(f"this is not a header line: {line[:80]!r}")
        name = field[1].lower()
        if name == "content-length" and headers.get(name, field[2]) != field[2]:
            raise ValueError(
                f"the response has two different Content-Lengths, {headers[name]!r} and "
                f"{field[2]!r}"
            )
        headers[name] = field[2]
    return headers


class ResponseReader:
    """Reader for the responses of one connection.

    `feed` accepts bytes, and `take` returns complete responses.
    """

    def __init__(self) -> None:
        self.pending = b""  # received bytes after the last returned response
        self._ended = False
        self._head: Response | None = None  # head of the response whose body is incomplete
        self._chunks: list[bytes] = []
        self._at = 0  # index in `pending` at which the size of the next chunk begins

    def feed(self, received: bytes) -> None:
        """Accept received bytes. Empty bytes mean that the connection has ended."""
        self.pending += received
        self._ended = not received

    def take(self, *, head_only: bool = False, interim: bool = False) -> Response | None:
        """Return the next response, or None if it is incomplete.

        If `head_only` is True, read no body. An answer to HEAD must be read in this way, because it
        has no body. A response with a status below 200 precedes the real response. It is skipped
        unless `interim` is True. Raise ConnectionResetError if the connection ended before the end
        of the response, and ValueError for bytes that are not HTTP.
        """
        while self._head is None:
            text, end, rest = self.pending.partition(_END)
            if not end:
                break
            head = parse_head(text)
            self.pending = rest
            if head.status >= 200:
                self._head = head
            elif interim:
                return head
        found = self._head
        body = None if found is None else b"" if head_only else self._body(found)
        if found is None or body is None:
            if self._ended:
                raise ConnectionResetError(
                    "the server closed the connection before the end of a response, after "
                    f"{self.pending[:120]!r}"
                )
            return None
        self._head = None
        return replace(found, body=body)

    def _body(self, head: Response) -> bytes | None:
        """Return the body of the response `head`, or None if the body is incomplete.

        A body in chunks is complete when the trailer fields and the blank line after the last chunk
        have arrived.
        """
        if not head.chunked:
            if len(self.pending) < (head.length or 0) or (head.length is None and not self._ended):
                return None
            size = len(self.pending) if head.length is None else head.length
            body = self.pending[:size]
            self.pending = self.pending[size:]
            return body
        while (end := self.pending.find(b"\r\n", self._at)) >= 0:
            digits = self.pending[self._at : end].partition(b";")[0].rstrip(b" \t")
            if not _CHUNK_SIZE.fullmatch(digits):
                raise ValueError(
                    f"the size of a chunk is {digits[:80]!r}, which is not a hexadecimal number"
                )
            begin = end + 2
            size = int(digits, 16)
            if size == 0 and (last := self.pending.find(_END, end)) >= 0:
                body = b"".join(self._chunks)
                self.pending = self.pending[last + len(_END) :]
                self._chunks = []
                self._at = 0
                return body
            behind = begin + size
            if size == 0 or len(self.pending) < behind + 2:
                return None
            if self.pending[behind : behind + 2] != b"\r\n":
                raise ValueError(
                    f"a chunk of {size} bytes is followed by {self.pending[behind:][:80]!r} "
                    "instead of an end of line"
                )
            self._chunks.append(self.pending[begin:behind])
            self._at = behind + 2
        return None


def read_response(
    channel: socket.socket,
    reader: ResponseReader,
    *,
    head_only: bool = False,
    interim: bool = False,
) -> Response:
    """Return the next response from a blocking socket.

    Raise OSError if the connection fails, or ends before the end of the response. Raise ValueError
    for bytes that are not HTTP, and for a response of more than MOST_BYTES.
    """
    while (response := reader.take(head_only=head_only, interim=interim)) is None:
        if len(reader.pending) > MOST_BYTES:
            raise ValueError(f"the response has more than {MOST_BYTES} bytes")
        reader.feed(channel.recv(RECEIVE_BYTES))
    return response
