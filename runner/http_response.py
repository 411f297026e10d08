"""Responses of HTTP/1, read from bytes as they come in (RFC 9112): the only reader of them in the
project.

The readers of sockets feed it: the probe and the poll of /stats without waiting, the contract and
the start with `read_response`, which waits. It is not h11, which takes sixteen times the CPU time
and accepts lines that end in a bare LF (docs/decisions.md); tests hold the two against each other.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

RECEIVE_BYTES = 65_536
MOST_BYTES = (
    1 << 24
)  # a longer response is not read to its end: what the lab asks for itself is small
_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(r"HTTP/1\.([0-9]) ([0-9]{3})(?![0-9])")
_FOLD = re.compile(r"\r\n[ \t]+")
"""Where a header value goes on in the next line: read as a space (RFC 9112, section 5.2)."""
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+")


@dataclass(frozen=True)
class Response:
    """One response: what its head says of itself and of the body behind it, and that body."""

    status: int
    headers: Mapping[str, str]  # names in lower case; of two lines with one name the last
    kept: bool  # whether the server keeps the connection
    length: int | None  # bytes of the body; None if chunks or the connection's end delimit it
    chunked: bool
    body: bytes


@lru_cache(16)
def parse_head(text: bytes) -> Response:
    """Read a head without the blank line that ends it; ValueError if it is not HTTP/1.

    The last ones are cached: until its Date changes, every second, the responses of a server have
    one head.
    """
    first, *lines = _FOLD.sub(" ", text.decode("latin-1")).split("\r\n")
    matched = _STATUS_LINE.match(first)
    if not matched:
        raise ValueError(f"not a response of HTTP/1: {first[:80]!r}")
    headers = _headers(lines)
    status = int(matched[2])
    connection = headers.get("connection", "").lower()
    chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
    said = headers.get("content-length")
    length = None
    if said is not None and not chunked:
        if not (said.isascii() and said.isdigit()):
            raise ValueError(f"the Content-Length is {said!r}")
        length = int(said)
    if status < 200 or status in (204, 304):
        chunked = False
        length = 0
    kept = "keep-alive" in connection if matched[1] == "0" else "close" not in connection
    return Response(
        status, headers, kept and (chunked or length is not None), length, chunked, body=b""
    )


def _headers(lines: Sequence[str]) -> dict[str, str]:
    """Read header lines, the last of each name; ValueError for one that is none, or two lengths."""
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if not field:
            raise ValueError(f"not a header line: {line[:80]!r}")
        name = field[1].lower()
        if name == "content-length" and headers.get(name, field[2]) != field[2]:
            raise ValueError(f"the Content-Length is {headers[name]!r} and {field[2]!r}")
        headers[name] = field[2]
    return headers


class ResponseReader:
    """The responses of one connection: `feed` takes bytes, `take` returns a response once all of it
    is there.
    """

    def __init__(self) -> None:
        self.pending = b""  # what has come and is not part of a response that was returned
        self._ended = False
        self._head: Response | None = None  # of the response whose body is on its way
        self._chunks: list[bytes] = []
        self._at = 0  # where in the pending bytes the size of the next chunk stands

    def feed(self, received: bytes) -> None:
        """Take what has come; no bytes at all are the connection's end."""
        self.pending += received
        self._ended = not received

    def take(self, *, head_only: bool = False, interim: bool = False) -> Response | None:
        """Return the next response, None while some of it is missing.

        `head_only` is for the answer to HEAD, or where nobody reads the body. Responses with a
        status below 200 announce another one and are passed over, unless they are wanted:
        `interim`. ConnectionResetError where the connection ended too early, ValueError for what is
        not HTTP.
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
                    f"closed after {self.pending[:120]!r}, before the end of a response"
                )
            return None
        self._head = None
        return replace(found, body=body)

    def _body(self, head: Response) -> bytes | None:
        """Return the body once all of it has come.

        Of chunks also the fields and the blank line behind the last one.
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
                raise ValueError(f"the size of a chunk is {digits[:80]!r}")
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
                raise ValueError(f"a chunk of {size} bytes ends in {self.pending[behind:][:80]!r}")
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
    """Return the next response from a socket that waits.

    OSError, and ValueError as of ResponseReader or if it is longer than MOST_BYTES.
    """
    while (response := reader.take(head_only=head_only, interim=interim)) is None:
        if len(reader.pending) > MOST_BYTES:
            raise ValueError(f"a response of more than {MOST_BYTES} bytes")
        reader.feed(channel.recv(RECEIVE_BYTES))
    return response
