"""HTTP/1.1 on a bare socket: the checks must be able to send what no HTTP library would."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from runner.model import LabError

TIMEOUT_S = 2.0
"""How long any single answer may take; an answer that takes longer counts as a hang."""
JSON_HEADER = ("Content-Type", "application/json")


@dataclass(frozen=True)
class Target:
    """Where the server under test listens."""

    host: str
    port: int


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
        except ValueError as error:
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


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def shorten(data: bytes, limit: int = 120) -> str:
    """Return the data as text of at most `limit` characters, for a detail."""
    text = data.decode(errors="backslashreplace")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class Connection:
    """One TCP connection to the server. Methods raise OSError, or LabError for what is not HTTP."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._pending = b""

    def send(self, data: bytes) -> None:
        """Send everything."""
        self.channel.sendall(data)

    def send_all_possible(self, data: bytes) -> None:
        """Send a request that the server may refuse, and close on, before it has all of it."""
        try:
            self.channel.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def read_answer(self) -> Answer:
        """Return the next response, 1xx ones included."""
        head = self._read_until(b"\r\n\r\n").decode("latin-1")
        status_line, *lines = head.split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise LabError(f"The answer does not begin like HTTP: {status_line[:80]!r}", 1)
        headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        status = int(rest[:3])
        return Answer(status, headers, self._read_body(status, headers))

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
def connect(target: Target, timeout_s: float = TIMEOUT_S) -> Iterator[Connection]:
    """Open a connection whose every step may take `timeout_s`, and close it afterwards."""
    with socket.create_connection((target.host, target.port), timeout=timeout_s) as channel:
        # Otherwise Nagle's algorithm and delayed acknowledgements add 40 ms to requests sent in pieces.
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(channel)


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


def fetch(target: Target, method: str, path: str, body: bytes | None = None) -> Answer:
    """Send one request over a connection of its own."""
    with connect(target) as connection:
        connection.send_all_possible(request(method, path, body))
        return connection.read_answer()
