"""HTTP/1.1 on a bare socket: the checks must be able to send what no HTTP library would."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from runner.model import LabError

TIMEOUT_S = 2.0
"""How long any single answer may take; an answer that takes longer counts as a hang."""
JSON_HEADER = ("Content-Type", "application/json")
MAX_BODY_BYTES = 64 * 1024

Counted = tuple[int, int]
"""How many counted requests some bytes hold: at least, and at most."""
UNCOUNTED: Counted = (0, 0)
ONCE: Counted = (1, 1)
OPEN: Counted = (0, 1)
"""What is refused, or left, before a route answers it may be counted or not."""


class Tally:
    """The counted requests that were sent: `least` to `most`, where the contract leaves some open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.least = 0
        self.most = 0

    def add(self, counted: Counted) -> None:
        """Count what is about to be sent."""
        with self._lock:
            self.least += counted[0]
            self.most += counted[1]


@dataclass(frozen=True)
class Target:
    """Where the server under test listens, and the tally of what was sent to it."""

    host: str
    port: int
    tally: Tally = field(default_factory=Tally, compare=False)


@dataclass(frozen=True)
class Answer:
    """One response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> object:
        """Return the decoded body; raise LabError where it is not strict JSON in UTF-8."""
        try:
            value: object = json.loads(self.body.decode(), parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            raise LabError(f"The body is not JSON ({error}): {shorten(self.body)}", 1) from error
        return value

    @property
    def is_json(self) -> bool:
        """Whether the Content-Type says JSON, with or without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"

    @property
    def brief(self) -> str:
        """What was answered, for a detail: `400 {"error":"…"}`."""
        return f"{self.status} {shorten(self.body)}".rstrip()

    @property
    def error(self) -> str | None:
        """The text of `{"error":"…"}`; None for any other body."""
        body = self.json() if self.is_json else None
        text = body.get("error") if isinstance(body, dict) else None
        return text if isinstance(text, str) else None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def shorten(data: bytes, limit: int = 120) -> str:
    """Return the data as text of at most `limit` characters, for a detail."""
    text = data[: 4 * limit].decode(errors="backslashreplace")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Connection:
    """One TCP connection to the server. Methods raise OSError, or LabError for what is not HTTP."""

    def __init__(self, channel: socket.socket, tally: Tally) -> None:
        self.channel = channel
        self._tally = tally
        self._pending = b""

    def count(self, counted: Counted) -> None:
        """Put into the tally what is sent in pieces."""
        self._tally.add(counted)

    def send(self, data: bytes, counted: Counted = UNCOUNTED) -> None:
        """Send everything; `counted` says how many counted requests it is."""
        self._tally.add(counted)
        self.channel.sendall(data)

    def send_all_possible(self, data: bytes, counted: Counted = UNCOUNTED) -> None:
        """Send a request that the server may refuse, and close on, before it has all of it."""
        try:
            self.send(data, counted)
        except (BrokenPipeError, ConnectionResetError):
            return

    def read_answer(self, *, to_head: bool = False) -> Answer:
        """Return the next response, 1xx ones included; the answer to HEAD has no body, whatever its headers say."""
        head = self._read_until(b"\r\n\r\n").decode("latin-1")
        status_line, *lines = head.split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise LabError(f"The answer does not begin like HTTP: {status_line[:80]!r}", 1)
        headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        status = int(rest[:3])
        return Answer(status, headers, b"" if to_head else self._read_body(status, headers))

    def read_to_the_end(self, patience_s: float) -> tuple[list[Answer], bool]:
        """Return every answer, and whether the server then closed; `patience_s` of silence ends the wait."""
        answers: list[Answer] = []
        try:
            while True:
                answers.append(self.read_answer())
                self.channel.settimeout(patience_s)
        except TimeoutError:
            return answers, False
        except ConnectionError:
            return answers, True
        finally:
            self.channel.settimeout(TIMEOUT_S)

    def answers_within(self, seconds: float) -> bool:
        """Whether anything has come by then, or comes; the end of the connection is something too."""
        self.channel.settimeout(seconds)
        try:
            return bool(self._pending) or self._receive() or True
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            self.channel.settimeout(TIMEOUT_S)

    def is_closed(self, within_s: float = 1.0) -> bool:
        """Whether the server closes within that time without sending anything more."""
        self.channel.settimeout(within_s)
        try:
            return not self._pending and self.channel.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self.channel.settimeout(TIMEOUT_S)

    def _read_body(self, status: int, headers: Mapping[str, str]) -> bytes:
        if status < 200 or status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._read_chunks())
        if (length := headers.get("content-length")) is not None:
            if not length.isdigit():
                raise LabError(f"The answer's Content-Length is {length!r}", 1)
            return self._read_exactly(int(length))
        while self._receive():
            pass
        body, self._pending = self._pending, b""
        return body

    def _read_chunks(self) -> Iterator[bytes]:
        while True:
            try:
                size = int(self._read_until(b"\r\n").partition(b";")[0], 16)
            except ValueError as error:
                raise LabError(f"The answer's chunks are malformed: {error}", 1) from error
            chunk = self._read_exactly(size + 2)[:-2]
            if not size:
                return
            yield chunk

    def _read_until(self, mark: bytes) -> bytes:
        while mark not in self._pending:
            if not self._receive():
                raise ConnectionAbortedError(f"closed after {shorten(self._pending)!r}, without an answer")
        part, _, self._pending = self._pending.partition(mark)
        return part

    def _read_exactly(self, size: int) -> bytes:
        while len(self._pending) < size:
            if not self._receive():
                raise ConnectionAbortedError(f"closed after {len(self._pending)} of {size} bytes of a body")
        part, self._pending = self._pending[:size], self._pending[size:]
        return part

    def _receive(self) -> bool:
        data = self.channel.recv(65536)
        self._pending += data
        return bool(data)


@contextmanager
def connect(target: Target, timeout_s: float = TIMEOUT_S, receive_bytes: int | None = None) -> Iterator[Connection]:
    """Open a connection whose every step may take `timeout_s`, and close it afterwards.

    `receive_bytes` is about how much the kernel may take from the server before we read.
    """
    with socket.socket(socket.AF_INET6 if ":" in target.host else socket.AF_INET) as channel:
        if receive_bytes is not None:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            # Loopback's segments of 64 KiB make the server's side of the connection hold megabytes.
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        channel.settimeout(timeout_s)
        channel.connect((target.host, target.port))
        # Otherwise Nagle's algorithm and delayed acknowledgements add 40 ms to requests sent in pieces.
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(channel, target.tally)


def request(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    version: str = "HTTP/1.1",
) -> bytes:
    """Return a request's bytes; a body brings its Content-Length and Content-Type with it."""
    fields = [("Host", "lab"), *headers]
    if body is not None:
        fields += [JSON_HEADER, ("Content-Length", str(len(body)))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{method} {path} {version}\r\n{lines}\r\n".encode() + (body or b"")


def chunked(*parts: bytes) -> bytes:
    """Return the parts as chunks, and the last, empty one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def chunked_request(method: str, path: str, body: bytes) -> bytes:
    """Return a request whose body comes in two chunks."""
    half = len(body) // 2
    head = request(method, path, headers=(JSON_HEADER, ("Transfer-Encoding", "chunked")))
    return head + chunked(body[:half], body[half:])


def counted_as(method: str, path: str, body: bytes | None = None) -> Counted:
    """Return how the contract counts a well-formed request."""
    if path.partition("?")[0] in ("/health", "/stats"):
        return UNCOUNTED if method == "GET" else OPEN
    too_large = body is not None and len(body) > MAX_BODY_BYTES
    return OPEN if too_large else ONCE


def fetch(target: Target, method: str, path: str, body: bytes | None = None) -> Answer:
    """Send one request over a connection of its own."""
    with connect(target) as connection:
        connection.send_all_possible(request(method, path, body), counted_as(method, path, body))
        return connection.read_answer(to_head=method == "HEAD")
