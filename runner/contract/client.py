"""HTTP/1.1 client of the checks, on a bare socket.

It keeps a tally of the requests that it sends, which the checks compare with the server's counter.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from runner.contract.messages import Message
from runner.http_response import Response, ResponseReader, read_response
from runner.model import LabError

TIMEOUT_S = 2.0  # longest wait for an answer; a slower answer counts as a hang
SILENCE_S = 0.3  # if a connection is silent for this time, no more answers are expected on it


def reject_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's JSON decoder would accept."""
    raise ValueError(f"{name} is not JSON")


def shorten(data: bytes, limit: int = 120) -> str:
    """Return the data as text of at most `limit` characters, for a check's detail."""
    text = data[: 4 * limit].decode(errors="backslashreplace")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


@dataclass(frozen=True)
class TimedResponse(Response):
    """A response, with the Unix times when its request was sent and when the response arrived."""

    sent_s: float
    came_s: float

    def json(self) -> Any:
        """Return the decoded body; raise LabError if it is not strict JSON in UTF-8."""
        try:
            return json.loads(self.body.decode(), parse_constant=reject_constant)
        except (ValueError, RecursionError) as error:
            raise LabError(f"The body is not JSON ({error}): {shorten(self.body)}", 1) from error

    @property
    def is_json(self) -> bool:
        """True if the Content-Type is JSON, with or without parameters."""
        return (
            self.headers.get("content-type", "").partition(";")[0].strip().lower()
            == "application/json"
        )

    @property
    def announces_close(self) -> bool:
        """True if a header announces that the server will close the connection."""
        return self.headers.get("connection", "").lower() == "close"

    @property
    def brief(self) -> str:
        """The answer in short, for a check's detail: `400 {"error":"…"}`.

        If the body is not JSON, the Content-Type of the answer is appended.
        """
        kind = (
            ""
            if self.is_json or not self.body
            else f" as {self.headers.get('content-type', 'no Content-Type')}"
        )
        return f"{self.status} {shorten(self.body)}".rstrip() + kind

    @property
    def error(self) -> str | None:
        """The text of `{"error":"…"}`; None for any other body."""
        body = self.json() if self.is_json else None
        text = body.get("error") if isinstance(body, dict) else None
        return text if isinstance(text, str) else None


@dataclass
class Target:
    """Address of the server under test, and the tally of the requests that the server must count.

    The tally is a range from `least` to `most`, because the contract leaves open whether the server
    counts certain requests, such as malformed ones.
    """

    host: str
    port: int
    least: int = 0
    most: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, least: int, most: int) -> None:
        """Add the number of a message's requests to the tally, before the message is sent."""
        with self._lock:
            self.least += least
            self.most += most

    @contextmanager
    def connect(
        self, timeout_s: float = TIMEOUT_S, receive_bytes: int | None = None
    ) -> Iterator[CheckConnection]:
        """Open a connection, and close it when the context ends.

        Each socket operation may take up to `timeout_s` seconds. `receive_bytes` limits roughly how
        many bytes of answers the kernel buffers before the client reads them.
        """
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as channel:
            if receive_bytes is not None:
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
                # Use small TCP segments: with loopback's segments of 64 KiB, the kernel would
                # buffer megabytes on the server's side of the connection.
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            channel.settimeout(timeout_s)
            channel.connect((self.host, self.port))
            # Without this option, Nagle's algorithm and delayed acknowledgements would add 40 ms to
            # requests sent in pieces.
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield CheckConnection(channel, self, timeout_s)

    def fetch(self, message: Message) -> TimedResponse:
        """Send one request over a new connection; return the response."""
        with self.connect() as connection:
            connection.send(message)
            return connection.read()


@dataclass(frozen=True)
class LastAnswers:
    """The responses on a connection, until the server closed the connection or fell silent."""

    answers: list[TimedResponse]
    closed: bool
    """True if the server closed the connection."""


class CheckConnection:
    """One TCP connection to the server.

    Reading raises OSError if the connection fails, and LabError if the bytes are not HTTP.
    """

    def __init__(self, channel: socket.socket, target: Target, timeout_s: float) -> None:
        self.channel = channel
        self._target = target
        self._timeout_s = timeout_s
        self._reader = ResponseReader()
        self._sent_s = 0.0
        self._to_head = False

    def send(self, message: Message) -> None:
        """Send all bytes of a message, and add the number of its requests to the tally.

        It is no error if the server closes the connection before the server has received
        everything, because the server may already have answered.
        """
        self._target.count(message.least, message.most)
        self._to_head = message.data.startswith(b"HEAD ")
        self.channel.settimeout(self._timeout_s)
        self._sent_s = time.time()
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in message.pieces if message.pause_s else (message.data,):
                self.channel.sendall(piece)
                time.sleep(message.pause_s)

    def read(self, within_s: float | None = None) -> TimedResponse:
        """Return the next answer, which may have a 1xx status.

        An answer to HEAD is read without a body, whatever the headers of the answer say.
        """
        self.channel.settimeout(self._timeout_s if within_s is None else within_s)
        try:
            response = read_response(
                self.channel, self._reader, head_only=self._to_head, interim=True
            )
        except ValueError as error:
            raise LabError(f"the answer is not HTTP: {error}", 1) from error
        return TimedResponse(**vars(response), sent_s=self._sent_s, came_s=time.time())

    def read_to_the_end(self, within_s: float = SILENCE_S) -> LastAnswers:
        """Return all answers that come before the server closes the connection or falls silent.

        The first answer must begin within the connection's timeout. Each further answer must begin
        within `within_s`.
        """
        answers: list[TimedResponse] = []
        try:
            while True:
                answers.append(self.read(within_s if answers else None))
        except (TimeoutError, ConnectionError) as end:
            return LastAnswers(answers, closed=not isinstance(end, TimeoutError))
