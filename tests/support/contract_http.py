"""The part of the test server that reads HTTP/1.1 requests.

It follows the standard strictly, except for the fault that a test chooses.
"""

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BODY = 65536
MAX_HEAD = 1 << 18
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
HEADER = re.compile(rb"(" + TOKEN + rb"):[ \t]*([^\0-\x08\x0a-\x1f\x7f]*?)[ \t]*")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class RefusedError(Exception):
    """The request is answered with an error. If `close` is True, the connection is then closed."""

    def __init__(self, status: int, error: str, close: bool = False) -> None:
        super().__init__(error)
        self.status = status
        self.close = close


class GoneError(Exception):
    """The client has closed the connection."""


@dataclass
class Request:
    method: str
    path: str
    minor: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    too_large: bool = False

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def options(self) -> list[str]:
        return [
            part.strip().lower() for value in self.values("connection") for part in value.split(",")
        ]


@dataclass
class Reader:
    """A reader of the requests on one connection."""

    channel: socket.socket
    fault: str
    pending: bytes = b""

    def read(self) -> Request:
        request = self.head()
        try:
            self.body(request)
        except RefusedError as refused:
            refused.close = self.fault != "malformed chunks leave it open"
            raise
        if self.fault == "pipelined requests are lost":
            self.pending = b""
        return request

    def head(self) -> Request:
        lines = []
        size = 0
        while (line := self.line()) or not lines:
            size += len(line)
            lines.append(line)
            if size > MAX_HEAD and self.fault != "heads without end":
                raise RefusedError(431, "the head is too large", close=True)
        if self.fault == "lenient heads":
            return self.lenient(lines)
        kept_open = self.fault == "malformed heads leave it open"
        matched = REQUEST_LINE.fullmatch(lines[0])
        if not matched:
            raise RefusedError(400, "malformed request line", close=not kept_open)
        limits = {"50 headers at most": 50, "headers are cut off": 8}
        headers = []
        for line in lines[1:]:
            header = HEADER.fullmatch(line)
            if not header or len(headers) >= limits.get(self.fault, 1000):
                raise RefusedError(400, "malformed header", close=not kept_open)
            if len(header[2]) > 1000 and self.fault == "short values":
                raise RefusedError(431, "the value is too long", close=True)
            headers.append((header[1].decode().lower(), header[2].decode("latin-1")))
        target = matched[2].decode()
        if self.fault != "absolute form is a path":
            target = re.sub("^http://[^/]*", "", target)
        return Request(matched[1].decode(), target.partition("?")[0], int(matched[3]), headers)

    def lenient(self, lines: list[bytes]) -> Request:
        words = lines[0].decode("latin-1").split() + ["/health"] * 3
        pairs = (line.decode("latin-1").partition(":") for line in lines[1:])
        headers = [
            (name.strip().lower(), value.strip())
            for name, _, value in pairs
            if value.strip()[:1] not in "t-+0418"
        ]
        return Request(words[0], words[1], 1, headers)

    def body(self, request: Request) -> None:
        values = request.values("content-length")
        codings = request.values("transfer-encoding")
        lengths = [part.strip() for value in values for part in value.split(",")]
        if self.fault == "a list of lengths is taken" and len(values) == 1:
            lengths = lengths[:1]
        if self.fault == "the last of two lengths":
            lengths = lengths[-1:]
        if codings and self.is_chunked(request, ",".join(codings), lengths):
            self.expect(request, 1)
            request.body = b"".join(self.chunks(request))
            return
        if (
            any(not re.fullmatch("[0-9]{1,18}", length) for length in lengths)
            or len(set(lengths)) > 1
        ):
            raise RefusedError(400, "malformed Content-Length")
        length = int(lengths[0]) if lengths else 0
        self.expect(request, length)
        request.too_large = length > MAX_BODY and self.fault != "no limit"
        if not request.too_large or self.fault != "refused bodies are not read":
            request.body = self.exactly(length)

    def is_chunked(self, request: Request, codings: str, lengths: list[str]) -> bool:
        fault = self.fault
        if fault == "smuggling by Content-Length" and lengths:
            return False
        if fault == "Transfer-Encoding of HTTP/1.0" and request.minor == 0:
            return False
        if fault == "chunked in any words" and "chunked" in codings and not lengths:
            return True
        both_pass = fault in ("smuggling by Transfer-Encoding", "Transfer-Encoding and close")
        if request.minor == 0 or (lengths and not both_pass):
            raise RefusedError(400, "Transfer-Encoding with another length")
        if codings != "chunked" and (
            codings.lower() != "chunked" or fault == "chunked in lower case only"
        ):
            raise RefusedError(501, "unknown Transfer-Encoding")
        return True

    def expect(self, request: Request, length: int) -> None:
        expected = request.values("expect")
        if self.fault != "100-continue in lower case only":
            expected = [value.lower() for value in expected]
        too_old = request.minor == 0 and self.fault == "100 for HTTP/1.0"
        waits = (
            request.minor == 1
            and length
            and self.pending == b""
            and self.fault != "no 100-continue"
        )
        if expected == ["100-continue"] and (too_old or waits):
            self.channel.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def chunks(self, request: Request) -> Iterator[bytes]:
        total = 0
        while size := self.chunk_size(self.line()):
            total += size
            request.too_large = total > MAX_BODY and self.fault != "no limit for chunks"
            yield self.exactly(size)
            if self.line() != b"":
                raise RefusedError(400, "malformed chunk")
        while self.line() and self.fault != "trailers are not read":
            pass

    def chunk_size(self, line: bytes) -> int:
        if self.fault == "chunk sizes by int":
            try:
                return min(99_999, abs(int(line.partition(b";")[0], 16)))
            except ValueError:
                raise RefusedError(400, "malformed chunk") from None
        matched = CHUNK_SIZE.fullmatch(line)
        wrong = {"no chunk extensions": b";", "small hex only": b"C", "no leading zeros": b"0000"}
        if not matched or wrong.get(self.fault, b"\n") in line:
            raise RefusedError(400, "malformed chunk")
        return int(matched[1], 16)

    def line(self) -> bytes:
        while b"\r\n" not in self.pending:
            if len(self.pending) > MAX_HEAD and self.fault != "heads without end":
                raise RefusedError(431, "the line is too long", close=True)
            self.receive()
        line, _, self.pending = self.pending.partition(b"\r\n")
        return line

    def exactly(self, size: int) -> bytes:
        while len(self.pending) < size:
            self.receive()
        data = self.pending[:size]
        self.pending = self.pending[size:]
        return data

    def receive(self) -> None:
        data = self.channel.recv(65536)
        if not data:
            raise GoneError
        if self.fault == "pieces are whole requests" and len(data) < 20:
            raise RefusedError(400, "not a whole request", close=True)
        self.pending += data
