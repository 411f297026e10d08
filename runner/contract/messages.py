"""Messages that the checks send: requests, pipelined requests, and bytes that are not HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

Headers = tuple[tuple[str, str], ...]
JSON_HEADER = ("Content-Type", "application/json")
MAX_BODY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Message:
    """One message: a request, several pipelined requests, or bytes that are not a request.

    `a + b` is a message that sends b directly after a. If `pause_s` is not 0, each piece is sent
    separately, with a pause of `pause_s` seconds after the piece. Otherwise all pieces are sent at
    once.

    A correct server counts at least `least` and at most `most` requests of the message. The two
    numbers may differ, because the server may or may not count a request that is refused or
    abandoned before a route answers it.
    """

    pieces: tuple[bytes, ...] = ()
    least: int = 0
    most: int = 0
    pause_s: float = 0.0

    @property
    def data(self) -> bytes:
        """All bytes of the message."""
        return b"".join(self.pieces)

    def __add__(self, other: Message) -> Message:
        pause_s = max(self.pause_s, other.pause_s)
        return Message(
            self.pieces + other.pieces, self.least + other.least, self.most + other.most, pause_s
        )

    def cut(self, size: int, pause_s: float) -> Message:
        """Return the same message in pieces of `size` bytes, with a pause after each piece."""
        pieces = tuple(self.data[start : start + size] for start in range(0, len(self.data), size))
        return replace(self, pieces=pieces, pause_s=pause_s)

    def maybe_counted(self) -> Message:
        """Return the same message with `least` 0.

        Then a check also succeeds if the server does not count some or all of the requests in the
        message.
        """
        return replace(self, least=0)


def joined(messages: Iterable[Message]) -> Message:
    """Return one message that consists of `messages`, each directly after the one before it."""
    return sum(messages, Message())


def raw(data: bytes, least: int = 0, most: int = 1) -> Message:
    """Return these bytes as a message.

    By default, the server may count the message as one request, or may not count it.
    """
    return Message((data,), least, most)


def request(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Headers = (),
    version: str = "HTTP/1.1",
) -> Message:
    """Return a well-formed request, whose `least` and `most` say how often it may be counted.

    The server must not count a GET of /health or /stats, and may count other methods of these two
    paths. The server must count any other request, but if the body is larger than MAX_BODY_BYTES,
    the server may count the request or not. If the request has a body, Content-Length and
    Content-Type are added.
    """
    fields = [("Host", "lab"), *headers]
    if body is not None:
        fields += [JSON_HEADER, ("Content-Length", str(len(body)))]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    data = f"{method} {path} {version}\r\n{lines}\r\n".encode() + (body or b"")
    if path.partition("?")[0] in ("/health", "/stats"):
        return raw(data, 0, int(method != "GET"))
    return raw(data, int(len(body or b"") <= MAX_BODY_BYTES))


def chunked(*parts: bytes) -> bytes:
    """Return the parts as chunks, followed by the empty last chunk."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


HEALTH = request("GET", "/health")
UNKNOWN = request("GET", "/no-such-path")
