"""What the checks send: requests, several in one stream, and bytes that no HTTP library would
send.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

Headers = tuple[tuple[str, str], ...]
JSON_HEADER = ("Content-Type", "application/json")
MAX_BODY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Message:
    """What is sent: one request, several in one stream, or bytes that are no request.

    `a + b` is b right behind a.

    It holds `least` to `most` counted requests: one that is refused, or left, before a route
    answers may be counted or not. With a pause each piece is sent by itself, otherwise all at once.
    """

    pieces: tuple[bytes, ...] = ()
    least: int = 0
    most: int = 0
    pause_s: float = 0.0

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.pieces)

    def __add__(self, other: Message) -> Message:
        pause_s = max(self.pause_s, other.pause_s)
        return Message(
            self.pieces + other.pieces, self.least + other.least, self.most + other.most, pause_s
        )

    def cut(self, size: int, pause_s: float) -> Message:
        """Return the same in pieces of so many bytes, with a pause after each."""
        pieces = tuple(self.data[start : start + size] for start in range(0, len(self.data), size))
        return replace(self, pieces=pieces, pause_s=pause_s)

    def maybe_counted(self) -> Message:
        """Return the same, where the server may leave all of it uncounted."""
        return replace(self, least=0)


def joined(messages: Iterable[Message]) -> Message:
    """Return one stream of all messages."""
    return sum(messages, Message())


def raw(data: bytes, least: int = 0, most: int = 1) -> Message:
    """Return bytes as they are; without more, they may be one counted request or none."""
    return Message((data,), least, most)


def request(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Headers = (),
    version: str = "HTTP/1.1",
) -> Message:
    """Return a well-formed request, counted as the contract says.

    A body brings its Content-Length and Content-Type.
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
    """Return the parts as chunks, and the last, empty one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


HEALTH = request("GET", "/health")
UNKNOWN = request("GET", "/no-such-path")
