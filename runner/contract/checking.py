"""The client of the checks, HTTP/1.1 on a bare socket, and how checks are made.

It must be able to send what no HTTP library would, and counts what it sends. Most checks are rows, an Exchange under
its name; the others are procedures that say what they saw.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NoReturn

from runner.http_response import Response, ResponseReader, read_response
from runner.model import Check, LabError

TIMEOUT_S = 2.0
"""How long any single answer may take; an answer that takes longer counts as a hang."""
SILENCE_S = 0.3
"""How long a connection may stay silent before nothing more is expected of it."""
Headers = tuple[tuple[str, str], ...]
JSON_HEADER = ("Content-Type", "application/json")
MAX_BODY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Message:
    """What is sent: one request, several in one stream, or bytes that are no request; `a + b` is b right behind a.

    It holds `least` to `most` counted requests: one that is refused, or left, before a route answers may be counted or
    not. With a pause each piece is sent by itself, otherwise all at once.
    """

    pieces: tuple[bytes, ...]
    least: int = 0
    most: int = 0
    pause_s: float = 0.0

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.pieces)

    def __add__(self, other: Message) -> Message:
        pause_s = max(self.pause_s, other.pause_s)
        return Message(self.pieces + other.pieces, self.least + other.least, self.most + other.most, pause_s)

    def cut(self, size: int, pause_s: float) -> Message:
        """Return the same in pieces of so many bytes, with a pause after each."""
        pieces = tuple(self.data[start : start + size] for start in range(0, len(self.data), size))
        return replace(self, pieces=pieces, pause_s=pause_s)

    def maybe_counted(self) -> Message:
        """Return the same, where the server may leave all of it uncounted."""
        return replace(self, least=0)


def joined(messages: Iterable[Message]) -> Message:
    """Return one stream of all messages."""
    return sum(messages, Message(()))


def raw(data: bytes, least: int = 0, most: int = 1) -> Message:
    """Return bytes as they are; without more, they may be one counted request or none."""
    return Message((data,), least, most)


def request(
    method: str, path: str, body: bytes | None = None, headers: Headers = (), version: str = "HTTP/1.1"
) -> Message:
    """Return a well-formed request, counted as the contract says; a body brings its Content-Length and Content-Type."""
    fields = [("Host", "lab"), *headers]
    if body is not None:
        fields += [JSON_HEADER, ("Content-Length", str(len(body)))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    data = f"{method} {path} {version}\r\n{lines}\r\n".encode() + (body or b"")
    if path.partition("?")[0] in ("/health", "/stats"):
        return raw(data, 0, int(method != "GET"))
    return raw(data, int(len(body or b"") <= MAX_BODY_BYTES))


def chunked(*parts: bytes) -> bytes:
    """Return the parts as chunks, and the last, empty one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


HEALTH = request("GET", "/health")
UNKNOWN = request("GET", "/no-such-path")


@dataclass
class Target:
    """Where the server under test listens, and the tally: `least` to `most` counted requests were sent to it."""

    host: str
    port: int
    least: int = 0
    most: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, least: int, most: int) -> None:
        """Put what is about to be sent into the tally."""
        with self._lock:
            self.least += least
            self.most += most


@dataclass(frozen=True)
class TimedResponse(Response):
    """One response, with the Unix times before its request was sent and after it had come."""

    sent_s: float
    came_s: float

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
    def announces_close(self) -> bool:
        """Whether the header says that the server closes."""
        return self.headers.get("connection", "").lower() == "close"

    @property
    def brief(self) -> str:
        """What was answered, for a detail: `400 {"error":"…"}`; a body of another type with its type."""
        kind = "" if self.is_json or not self.body else f" as {self.headers.get('content-type', 'no Content-Type')}"
        return f"{self.status} {shorten(self.body)}".rstrip() + kind

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


class CheckConnection:
    """One TCP connection to the server. Reading raises OSError, or LabError for what is not HTTP."""

    def __init__(self, channel: socket.socket, target: Target, timeout_s: float) -> None:
        self.channel = channel
        self._target = target
        self._timeout_s = timeout_s
        self._reader = ResponseReader()
        self._sent_s, self._to_head = 0.0, False

    def send(self, message: Message) -> None:
        """Send everything, and put it into the tally; a server may close before it has all of it, and answer."""
        self._target.count(message.least, message.most)
        self._to_head = message.data.startswith(b"HEAD ")
        self.channel.settimeout(self._timeout_s)
        self._sent_s = time.time()
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in message.pieces if message.pause_s else (message.data,):
                self.channel.sendall(piece)
                time.sleep(message.pause_s)

    def read(self, within_s: float | None = None) -> TimedResponse:
        """Return the next answer, 1xx ones included; that to HEAD has no body, whatever its headers say."""
        self.channel.settimeout(self._timeout_s if within_s is None else within_s)
        try:
            response = read_response(self.channel, self._reader, head_only=self._to_head, interim=True)
        except ValueError as error:
            raise LabError(f"what came is not HTTP: {error}", 1) from error
        return TimedResponse(**vars(response), sent_s=self._sent_s, came_s=time.time())

    def read_to_the_end(self, within_s: float = SILENCE_S) -> tuple[list[TimedResponse], bool]:
        """Return every answer, and whether the server then closed; after the first, `within_s` of silence end it."""
        answers: list[TimedResponse] = []
        try:
            while True:
                answers.append(self.read(within_s if answers else None))
        except TimeoutError:
            return answers, False
        except ConnectionError:
            return answers, True


@contextmanager
def connect(
    target: Target, timeout_s: float = TIMEOUT_S, receive_bytes: int | None = None
) -> Iterator[CheckConnection]:
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
        yield CheckConnection(channel, target, timeout_s)


def fetch(target: Target, message: Message) -> TimedResponse:
    """Send one request over a new connection."""
    with connect(target) as connection:
        connection.send(message)
        return connection.read()


Result = tuple[bool, str]
"""Whether it went well, and what was compared."""


@dataclass(frozen=True)
class Expected:
    """What one answer must be: in words, and as a judge, which may raise LabError."""

    words: str
    holds: Callable[[TimedResponse], bool]


def status(*statuses: int) -> Expected:
    """Expect one of these statuses."""
    return Expected(" or ".join(map(str, statuses)), lambda answer: answer.status in statuses)


def json_body(code: int, body: object) -> Expected:
    """Expect a status and a body that means the same JSON, with the Content-Type of JSON."""
    words = f"{code} {json.dumps(body, ensure_ascii=False)[:120]} as application/json"
    return Expected(words, lambda answer: answer.status == code and answer.is_json and answer.json() == body)


def same_bytes(body: bytes) -> Expected:
    """Expect exactly these bytes as the body."""
    return Expected(f"{len(body)} bytes, {body[:100]!r}", lambda answer: answer.body == body)


def error(code: int) -> Expected:
    """Expect a status and a body of `{"error":"…"}`."""
    return Expected(f'{code} {{"error":…}}', lambda answer: answer.status == code and answer.error is not None)


OK = status(200)


class End(Enum):
    """What must be true of a connection after the answers; the value says it in words."""

    ANY = "anything"
    CLOSED = "nothing more and the end of the connection"
    USABLE_OR_CLOSED = "then 200 of GET /health, or the end without an answer"


@dataclass(frozen=True)
class Exchange:
    """One row of the contract: what is sent over one connection, which answers come, and what must be true then."""

    send: Message
    expect: Expected | tuple[Expected, ...]
    then: End | Exchange = End.ANY
    """An Exchange is what follows on the same connection."""
    excused: tuple[int, ...] = ()
    """With one of these as the first answer's status all is well, whatever follows."""
    may_be_silent: bool = False
    """Whether the server may close without any answer."""

    def __call__(self, target: Target) -> Result:
        """Make the exchange over a new connection."""
        with connect(target) as connection:
            return self.run(connection)

    def run(self, connection: CheckConnection) -> Result:
        """Make the exchange; return whether it went as the row says, and what was compared."""
        expected = self.expect if isinstance(self.expect, tuple) else (self.expect,)
        connection.send(self.send)
        closed: bool | None = None
        if self.then is End.CLOSED:
            answers, closed = connection.read_to_the_end()
        else:
            answers = []
            while len(answers) < len(expected) and not (answers and answers[0].status in self.excused):
                answers.append(connection.read())
        sent = f"sent {shorten(self.send.data)!r}"
        if answers and answers[0].status in self.excused:
            return True, f"{sent}; got {answers[0].brief}, which is allowed here"
        ok = len(answers) == len(expected) and all(
            each.holds(answer) for each, answer in zip(expected, answers, strict=True)
        )
        ok = ok or (self.may_be_silent and not answers)
        words = ", ".join(each.words for each in expected) + (" (or no answer)" if self.may_be_silent else "")
        detail = f"{sent}; expected {words}; got {shown(answers, closed)}"
        if self.then is End.CLOSED:
            return ok and closed is True, f"{detail}; expected then {End.CLOSED.value}"
        if not ok or self.then is End.ANY:
            return ok, detail
        return self.then.run(connection) if isinstance(self.then, Exchange) else usable_or_closed(connection)


def usable_or_closed(connection: CheckConnection, unsent: bytes = b"") -> Result:
    """Send the rest of a body and GET /health: its answer comes, or the connection ends without another one."""
    connection.send(Message((unsent,)) + HEALTH)
    answers, closed = connection.read_to_the_end()
    statuses = [answer.status for answer in answers]
    ok = statuses == [200] or (not statuses and closed)
    return ok, f"expected {End.USABLE_OR_CLOSED.value}; got {shown(answers, closed)}"


def shown(answers: list[TimedResponse], closed: bool | None = None) -> str:
    """Return the answers, and how the connection ended where that is known, for a detail."""
    words = [answer.brief for answer in answers[:5]] + ["…"] * (len(answers) > 5) or ["no answer"]
    return ", ".join(words + ([] if closed is None else ["closed" if closed else "still open"]))


Procedure = Callable[[Target], Result]
Rows = Mapping[str, Procedure | tuple[Procedure, ...]]
"""Checks by their names. Of several all must go well."""


def check_rows(target: Target, rows: Rows) -> Iterator[Check]:
    """Make the checks in their order; a broken or silent connection is a failed one."""
    for name, row in rows.items():
        try:
            for check in row if isinstance(row, tuple) else (row,):
                ok, detail = check(target)
                if not ok:
                    break
        except TimeoutError:
            ok, detail = False, f"{name}: expected an answer; got none within {TIMEOUT_S:g} s"
        except (OSError, LabError, ValueError) as problem:
            ok, detail = False, f"{name}: expected an answer; got this: {problem}"
        yield Check(name, ok, detail)
